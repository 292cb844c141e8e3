"""What lowered Python code asks for besides arithmetic: conditions, entries of collections, attributes."""

from __future__ import annotations

import copy
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from softly.algorithms.engine.arrays import RELAXED, Array, Categorical, Undefined, number
from softly.algorithms.engine.calls import Calls
from softly.algorithms.engine.containers import Choice, List, Maybe, Torn, intact, relaxed
from softly.algorithms.engine.control import Aside, Engine
from softly.algorithms.engine.journals import Names, mutable
from softly.algorithms.engine.methods import Methods
from softly.algorithms.engine.numbers import Answer, Number, exactly, is_whole

_UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": operator.truediv,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "Pow": operator.pow,
    "MatMult": operator.matmul,
    "BitAnd": operator.and_,
    "BitOr": operator.or_,
    "BitXor": operator.xor,
    "LShift": operator.lshift,
    "RShift": operator.rshift,
}
_ORDERED = (bool, int, float, Number, Categorical, Array)


def _apart(symbol: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Whole numbers, moved by a half such that a comparison of them has no ties."""
    half = 0.5 if "=" in symbol else -0.5
    if symbol[0] == "<":
        return x, y + half
    return (x + half, y) if symbol[0] == ">" else (x, y)


class Runtime(Engine):
    """The engine with the operations that lowered Python code calls; ``_rt`` in that code."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.calls = Calls(self)
        self.methods = Methods(self)

    # Conditions --------------------------------------------------------------------------------------------------

    def compare(self, symbol: str, a: Any, b: Any, steepness: float | Tensor | None = None) -> Any:
        if steepness is None:
            steepness = self.steepness
        elif not isinstance(steepness, Tensor):
            steepness = self.constant(steepness)
        if type(a) is Number and type(b) is Number and not (a.whole and b.whole):
            x, y = a.tensor, b.tensor
            return Answer(self, self.comparators.compare(symbol, x, y, steepness), ("compare", symbol, x, y))
        if not self.typed and not isinstance(a, Array) and not isinstance(b, Array):
            return self.comparators.compare(symbol, number(a), number(b), steepness)
        for value in (a, b):
            if isinstance(value, Undefined):
                value.fail()
        if isinstance(a, Choice) or isinstance(b, Choice):
            a, b = (self.blended(v) if isinstance(v, Choice) else v for v in (a, b))
        if isinstance(a, Array) or isinstance(b, Array):
            return self.elementwise(lambda x, y: self.comparators.compare(symbol, x, y, steepness), a, b)
        if isinstance(a, (list, tuple, deque)) and isinstance(b, (list, tuple, deque)):
            return self._compare_sequences(symbol, intact(a), intact(b), steepness)
        if not isinstance(a, RELAXED) and not isinstance(b, RELAXED):
            return self._compare_hard(symbol, a, b)
        if symbol in ("==", "!=") and (type(a) is Answer or type(b) is Answer):
            same = self._same_truth(a, b)
            if same is not None:
                return same if symbol == "==" else self.not_(same)
        if not isinstance(a, _ORDERED) or not isinstance(b, _ORDERED):
            if symbol in ("==", "!="):
                return symbol == "!="  # a number never equals what is none
            other = b if isinstance(a, _ORDERED) else a
            raise self.error(TypeError, f"a number can't be ordered relative to {type(other).__name__}")
        a, b = (int(v) if type(v) is bool else v for v in (a, b))
        x, y = number(a), number(b)
        for value in (x, y):
            if type(value) is float:
                self.constant(value)  # which notices infinities
        question = ("compare", symbol, x, y)
        if not self.settings.hard and is_whole(a) and is_whole(b):
            # Ints are told apart half-way between them, so that ties are what they are.
            x, y = _apart(symbol, x, y)
        return Answer(self, self.comparators.compare(symbol, x, y, steepness), question)

    def _compare_hard(self, symbol: str, a: Any, b: Any) -> Any:
        method = {"<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__", "==": "__eq__", "!=": "__ne__"}[symbol]
        own = getattr(type(a), method, None)
        if self.calls.lowerable(own):
            return self.call(own, a, b)
        if relaxed(a) or relaxed(b):
            raise self.error(
                TypeError, f"{symbol} of {type(a).__name__} and {type(b).__name__} that hold relaxed values"
            )
        return self.comparators.compare(symbol, a, b, self.steepness)

    def _compare_sequences(self, symbol: str, a: Any, b: Any, steepness: float | Tensor) -> Any:
        if not (relaxed(a) or relaxed(b)):
            return self.comparators.compare(symbol, a, b, steepness)
        if symbol in ("==", "!="):
            same = len(a) == len(b) and self._every(
                [self.compare("==", x, y, steepness) for x, y in zip(a, b, strict=True)]
            )
            return same if symbol == "==" else self.not_(same)
        if not a or not b:
            return self.comparators.compare(symbol, len(a), len(b), steepness)
        # In the order of a dictionary: by the first entries that differ.
        strict = symbol[0]
        first = self.compare(strict, a[0], b[0], steepness)
        equal = self.compare("==", a[0], b[0], steepness)
        rest = self._compare_sequences(symbol, a[1:], b[1:], steepness)
        return self.or_(first, lambda: self.and_(equal, lambda: rest, False), False)

    def _same_truth(self, a: Any, b: Any) -> Any:
        """``a == b`` where at least one is an answer; None if the other is no truth value."""
        a, b = (b, a) if type(b) is Answer and type(a) is not Answer else (a, b)
        if type(b) is Answer:
            p, q = a.tensor, b.tensor
            return Answer(self, p * q + self.complement(p) * self.complement(q))
        if isinstance(b, (bool, int, float)) and b in (0, 1):
            return a if b else self.not_(a)
        return None

    def steepness_of(self, name: str) -> float | Tensor:
        return self.settings.variables[name]

    def answer(self, value: Any) -> Any:
        """A condition that is a comparison or made of such."""
        if isinstance(value, (Answer, Tensor)):
            return value
        return self.truth(value)

    def is_(self, a: Any, b: Any) -> Any:
        """``a is b``."""
        for value, other in ((a, b), (b, a)):
            if type(value) is Answer and (other is True or other is False):
                return value if other else self.not_(value)
            if isinstance(value, (Number, Categorical)):
                if other is None or not isinstance(other, (bool, int, float, Number, Categorical)):
                    return False
                raise self.error(TypeError, "`is` of a relaxed number; compare it with ==")
            if isinstance(value, Choice) and other is not None:
                raise self.error(TypeError, "`is` of a collection that depends on a branch")
            if isinstance(value, Undefined):
                value.fail()
        return a is b

    def hard(self, condition: Any) -> bool:
        """The condition of a comprehension, which decides about the length of a list."""
        condition = self.truth(condition)
        if isinstance(condition, RELAXED):
            raise self.error(
                TypeError, "the `if` of a comprehension depends on a relaxed value; write a sum of products"
            )
        return bool(condition)

    def contains(self, value: Any, collection: Any) -> Any:
        if isinstance(collection, Choice):
            return self.each(collection, lambda option: self.contains(value, option))
        if isinstance(collection, dict):
            if isinstance(value, RELAXED):
                numbers = [k for k in collection if isinstance(k, (bool, int, float))]
                return self._any([self._at(value, k, collection) for k in numbers])
            entry = collection.get(value)
            return Answer(self, entry.presence) if type(entry) is Maybe else value in collection
        own = getattr(type(collection), "__contains__", None)
        if self.calls.lowerable(own):
            return self.truth(self.call(own, collection, value))
        intact(collection)
        if not (relaxed(value) or relaxed(collection)):
            return value in collection
        return self._any([self.compare("==", value, v) for v in collection])

    def _at(self, value: Any, key: Any, collection: dict[Any, Any]) -> Any:
        """Whether a relaxed value equals a key, and the key is there."""
        return self.and_(self.compare("==", value, key), lambda: self.contains(key, collection), False)

    def _any(self, answers: list[Any]) -> Any:
        return self._wrapped(self.comparators.any([number(a) for a in answers]))

    def _every(self, answers: list[Any]) -> Any:
        return self._wrapped(self.comparators.all([number(a) for a in answers]))

    def _wrapped(self, answer: Any, question: Any = None) -> Any:
        return Answer(self, answer, question) if isinstance(answer, Tensor) and self.typed else answer

    def not_(self, value: Any) -> Any:
        value = self.truth(value)
        if isinstance(value, Answer):
            return Answer(self, self.complement(value.tensor), ("not", value))
        return self.complement(value) if isinstance(value, Tensor) else not value

    def _second(self, first: Any, second: Callable[[], Any], way: bool, heavy: bool) -> Any:
        """What the second operand of ``and`` and ``or`` says, where the first doesn't decide."""
        p = first.tensor
        if heavy and self.paths is None:
            return self.conditional(
                first if way else self.not_(first), lambda: self.truth(second()), lambda: not way, False
            )
        self.regions.append(Aside(self, self.column(p), way, first))
        other = self.truth(second())
        self.regions.pop()
        return other

    def and_(self, first: Any, second: Callable[[], Any], heavy: bool = True) -> Any:
        if not isinstance(first, (*RELAXED, Choice)):
            intact(first)
            return second() if first else first
        p = self.truth(first)
        high, low = self.range(p.tensor)
        if high <= 0.0:  # as in Python, what can't matter isn't evaluated
            return p
        other = self._second(p, second, True, heavy and low < 1.0)
        return self._wrapped(self.comparators.both(p.tensor, number(other)), ("and", p, other))

    def or_(self, first: Any, second: Callable[[], Any], heavy: bool = True) -> Any:
        if not isinstance(first, (*RELAXED, Choice)):
            intact(first)
            return first if first else second()
        p = self.truth(first)
        high, low = self.range(p.tensor)
        if low >= 1.0:
            return p
        other = self._second(p, second, False, heavy and high > 0.0)
        return self._wrapped(self.comparators.either(p.tensor, number(other)), ("or", p, other))

    def bitwise(self, symbol: str, a: Any, b: Any) -> Any:
        """``a & b`` and its like, of answers or of whole numbers."""
        if all(isinstance(v, (Answer, bool)) for v in (a, b)):
            if symbol == "&":
                return self._wrapped(self.comparators.both(number(a), number(b)), ("and", a, b))
            if symbol == "|":
                return self._wrapped(self.comparators.either(number(a), number(b)), ("or", a, b))
            if symbol == "^":
                return self.not_(self.compare("==", a, b))
        x, y = number(a), number(b)
        if symbol in ("<<", ">>") and is_whole(a) and is_whole(b):
            return a * 2**b if symbol == "<<" else a // 2**b
        if all(isinstance(v, int) or (isinstance(v, Tensor) and not v.dtype.is_floating_point) for v in (x, y)):
            table = {"&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift}
            return self.number(table.get(symbol, operator.rshift)(x, y))
        raise self.error(TypeError, f"{symbol} of relaxed numbers; bits have no derivative, use and, or, * and //")

    # Collections -------------------------------------------------------------------------------------------------

    def getitem(self, collection: Any, key: Any) -> Any:
        kind = type(collection)
        if kind is Array:
            if type(key) is int and collection.flat:
                store = collection.store
                try:
                    cell = (store.cells or store.unbound())[key]
                except IndexError:
                    return collection[key]  # which says where
                if not self.typed:
                    return cell
                if type(cell) is Tensor and cell.dtype is self.dtype:
                    return Number(self, cell)
                return self.number(cell) if isinstance(cell, Tensor) else cell
            return collection[key]
        if kind is List and type(key) is int and -len(collection) <= key < len(collection):
            found = list.__getitem__(collection, key)
            if type(found) is Torn:
                found.fail()
            return found
        if kind is Choice:
            return self.each(collection, lambda option: self.getitem(option, key))
        if isinstance(collection, dict):
            return self._entry(collection, key)
        if isinstance(collection, (Number, Tensor)):
            raise self.error(TypeError, "a number can't be indexed")
        entries: Any = intact(collection)
        if isinstance(collection, (list, tuple, deque, range)):
            if isinstance(key, (Tensor, Number, Categorical)):
                return self._read_relaxed(collection, key)
            if isinstance(key, slice) and kind is list:
                return List(self, entries[key])
            try:
                entry = entries[key]
                return self.outer(entry) if type(entry) is Tensor else entry
            except IndexError as error:
                if self.uncertain and not bool(self.here().any()):
                    # Nobody is here: the plain program never gets to see this.
                    return Undefined("an entry out of range", self.error(IndexError, str(error)))
                raise
        if isinstance(key, (*RELAXED, Choice)):
            raise self.error(TypeError, f"a {kind.__name__} can't be read at a relaxed key")
        own = getattr(kind, "__getitem__", None)
        if self.calls.lowerable(own):
            return self.call(own, collection, key)
        return self.outer(collection[key])

    def _read_relaxed(self, collection: Any, key: Any) -> Any:
        if not len(collection):
            raise self.error(IndexError, "an empty list is read at a relaxed position")
        positions = self._positions(collection) if isinstance(key, Categorical) else None
        if positions is not None:
            weights = self.weights(key, len(collection))
            return Categorical(self, (weights.unsqueeze(1) @ positions).squeeze(1))
        if all(mutable(v) for v in collection):
            weights = self.weights(key, len(collection))
            return Choice(self, list(zip(weights.unbind(1), collection, strict=True)))
        if any(isinstance(v, tuple) for v in collection):
            weights = self.weights(key, len(collection))
            return self.each(
                Choice(self, [(w, [v]) for w, v in zip(weights.unbind(1), collection, strict=True)]), lambda o: o[0]
            )
        found = self.array(collection)[key]
        if isinstance(found, Number):
            found.whole = all(is_whole(v) for v in collection)
        return found

    def _entry(self, collection: dict[Any, Any], key: Any) -> Any:
        if isinstance(key, (*RELAXED, Choice)):
            raise self.error(TypeError, "a dict can't be read at a relaxed key")
        if key not in collection and hasattr(type(collection), "__missing__"):
            self.remember(collection)
        entry = collection[key]
        if type(entry) is Maybe:
            if hasattr(type(collection), "__missing__"):
                kind: Any = type(collection)
                made = lambda: kind.__missing__(copy.copy(collection), key)  # noqa: E731
                return self.conditional(Answer(self, entry.presence), lambda: entry.value, made, True)
            if not self.trusts() and bool((self.here() & (entry.presence.detach() < 0.5)).any()):
                raise self.error(KeyError, f"{key!r} is not in the dict")
            return entry.value
        return entry

    def _positions(self, collection: Any) -> Tensor | None:
        """Entries that are positions themselves, hard or categorical, as weights (batch, entries, n); else None."""
        if not all(type(v) is Categorical or (type(v) is int and v >= 0) for v in collection):
            return None
        n = max((v.weights.shape[1] if type(v) is Categorical else v + 1 for v in collection), default=0)
        hard = torch.eye(n, dtype=self.dtype, device=self.device)
        rows = [self.weights(v, n) if type(v) is Categorical else hard[v].expand(self.batch, n) for v in collection]
        return torch.stack(rows, 1)

    def setitem(self, collection: Any, key: Any, value: Any) -> None:
        kind = type(collection)
        if kind is Array:
            fits = type(key) is int and collection.flat and 0 <= key < collection.store.shape[0]
            if fits and (type(value) is Number or type(value) is Tensor):
                self.write(collection.store, key, value.tensor if type(value) is Number else value)
            else:
                collection[key] = value
        elif kind is Choice:
            self.each(collection, lambda option: self.setitem(option, key, value))
        elif isinstance(collection, (Number, Tensor)):
            raise self.error(TypeError, "a number can't be indexed")
        elif isinstance(collection, dict):
            if isinstance(key, (*RELAXED, Choice)):
                raise self.error(TypeError, "a dict can't be written at a relaxed key")
            self.write(collection, key, value)
        elif isinstance(collection, (list, deque)):
            self._set_entry(intact(collection), key, value)
        elif isinstance(key, (*RELAXED, Choice)):
            raise self.error(TypeError, f"a {kind.__name__} can't be written at a relaxed key")
        elif self.calls.lowerable(getattr(kind, "__setitem__", None)):
            self.call(kind.__setitem__, collection, key, value)
        elif relaxed(value) or self.uncertain:
            raise self.error(TypeError, f"a {kind.__name__} can't be written to where it depends on relaxed values")
        else:
            collection[key] = value

    def _set_entry(self, collection: Any, key: Any, value: Any) -> None:
        if isinstance(key, (Tensor, Number, Categorical)):
            weights = self.weights(key, len(collection))
            for i, (old, w) in enumerate(zip(list(collection), weights.unbind(1), strict=True)):
                self.write(collection, i, self.mix(w, [value], [old], ["an entry"])[0])
        elif isinstance(key, slice):
            entries = list(self.iterate(value))
            self.remember(collection)
            list.__setitem__(collection, key, entries)
        else:
            position = self.hard_int(key, "a position")
            if not -len(collection) <= position < len(collection):
                raise self.error(IndexError, f"position {position} is out of range for {len(collection)} entries")
            self.write(collection, position % len(collection), value)

    def delitem(self, collection: Any, key: Any) -> None:
        """``del collection[key]``."""
        if isinstance(collection, Choice):
            self.each(collection, lambda option: self.delitem(option, key))
            return
        if isinstance(key, RELAXED) or not isinstance(collection, (list, dict, deque)):
            raise self.error(TypeError, f"del of an entry of a {type(collection).__name__} that is relaxed or unknown")
        self.remember(collection)
        del collection[key]

    def iterate(self, iterable: Any) -> Iterable[Any]:
        if isinstance(iterable, (Number, Tensor)):
            raise self.error(TypeError, "a loop over a relaxed number; it needs a range, a list or an array")
        if isinstance(iterable, Choice):
            first = iterable.options[0][1]
            if isinstance(first, (Array, list)) and all(len(o) == len(first) for _, o in iterable.options):
                return (self.getitem(iterable, i) for i in range(len(first)))
            raise self.error(TypeError, "a loop over a collection that depends on a branch")
        if isinstance(iterable, list):
            return self._live(iterable)
        if isinstance(iterable, (dict, set, deque)):
            return list(intact(iterable))
        own = getattr(type(iterable), "__iter__", None)
        if self.calls.lowerable(own):
            return self.iterate(self.call(own, iterable))
        return iterable

    def entries(self, iterable: Any) -> list[Any]:
        """All that a loop would see, at once."""
        if type(iterable) is List or type(iterable) is list:
            return list(intact(iterable))
        return list(self.iterate(iterable))

    def _live(self, entries: list[Any]) -> Iterator[Any]:
        i = 0
        while i < len(intact(entries)):
            yield entries[i]
            i += 1

    def slice(self, *parts: Any) -> slice:
        if any(isinstance(p, RELAXED) for p in parts):
            raise self.error(TypeError, "the bounds of a slice must be hard ints, not relaxed numbers")
        return slice(*parts)

    def undefined(self, name: str) -> Undefined:
        return Undefined(name)

    def update(self, operation: str, old: Any, value: Any) -> Any:
        """``old += value`` and its like, in place where Python does it in place."""
        if type(old) is Number or type(old) is int or type(old) is float:
            return _UPDATES[operation](old, value)
        if isinstance(old, Array):
            old[...] = _UPDATES[operation](old, value)
            return old
        if isinstance(old, Choice) and operation == "Add":
            self.each(old, lambda option: self.update(operation, option, value))
            return old
        if isinstance(old, (list, deque)) and operation == "Add":
            entries = list(self.iterate(value))
            self.remember(intact(old))
            old.extend(entries)
            return old
        if isinstance(old, list) and operation == "Mult":
            self.remember(intact(old))
            old *= self.hard_int(value, "the repetitions of a list")
            return old
        if isinstance(old, (set, dict)) and isinstance(value, (set, dict)):
            self.remember(intact(old))
        return _UPDATES[operation](old, value)

    def block(self, manager: Any, entry: Names, labels: tuple[str, ...]) -> Any:
        """A ``with`` statement of a program."""
        if not hasattr(manager, "__relaxed_block__"):
            raise self.error(TypeError, "only softly.algorithms.steepness(...) and unmerged() can stand in a `with`")
        return manager.__relaxed_block__(self, entry, labels)

    # Attributes and calls ----------------------------------------------------------------------------------------

    def attribute(self, value: Any, name: str) -> Any:
        return self.methods.attribute(value, name)

    def setattr(self, value: Any, name: str, new: Any) -> None:
        """``value.name = new``."""
        self.methods.assign(value, name, new)

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self.calls(function, args, kwargs)

    def method(self, value: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
        return self.methods(value, name, args, kwargs)

    def closure(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """An inner function of a program."""

        def called(*args: Any, **kwargs: Any) -> Any:
            return self.invoke(lambda: function(*args, **kwargs), name)

        called.__name__ = name
        return self.lowered(called)

    def lowered(self, function: Any) -> Any:
        """A function whose code is lowered already."""
        function._softly_lowered = function
        return function

    def torch_call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.calls.torch(function, args, kwargs)

    def arg_extreme(self, values: Any, sign: int) -> Any:
        if not relaxed(values):
            entries = list(values)
            return entries.index(max(entries) if sign > 0 else min(entries))
        tensor = self.array(values).tensor().flatten(1)
        return Categorical(self, self.comparators.largest(tensor, self.steepness if sign > 0 else self.downhill))

    def exact(self, answer: Any) -> Tensor:
        return exactly(answer, self)
