"""Conditions: comparisons, truth values, and what is made of them."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from softly.algorithms.engine.arrays import RELAXED, Array, Categorical, Undefined, number
from softly.algorithms.engine.containers import Choice, Maybe, intact, relaxed, torn
from softly.algorithms.engine.numbers import Answer, Number, exactly, is_whole
from softly.algorithms.engine.protocol import Run
from softly.algorithms.engine.regions import Aside

_ORDERED = (bool, int, float, Number, Categorical, Array)


def _apart(symbol: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Whole numbers, moved by a half such that a comparison of them has no ties."""
    half = 0.5 if "=" in symbol else -0.5
    if symbol[0] == "<":
        return x, y + half
    return (x + half, y) if symbol[0] == ">" else (x, y)


class Conditions:
    """The conditions of one run."""

    def __init__(self, engine: Run) -> None:
        self.engine = engine

    def compare(self, symbol: str, a: Any, b: Any, steepness: float | Tensor | None = None) -> Any:
        if steepness is None:
            steepness = self.engine.steepness
        elif not isinstance(steepness, Tensor):
            steepness = self.engine.constant(steepness)
        if type(a) is Number and type(b) is Number and not (a.whole and b.whole):
            x, y = a.tensor, b.tensor
            return Answer(
                self.engine, self.engine.comparators.compare(symbol, x, y, steepness), ("compare", symbol, x, y)
            )
        if not self.engine.typed and not isinstance(a, Array) and not isinstance(b, Array):
            return self.engine.comparators.compare(symbol, number(a), number(b), steepness)
        for value in (a, b):
            if isinstance(value, Undefined):
                value.fail()
        if isinstance(a, Choice) or isinstance(b, Choice):
            a, b = (self.engine.blended(v) if isinstance(v, Choice) else v for v in (a, b))
        if isinstance(a, Array) or isinstance(b, Array):
            return self.engine.elementwise(lambda x, y: self.engine.comparators.compare(symbol, x, y, steepness), a, b)
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
            raise self.engine.error(TypeError, f"a number can't be ordered relative to {type(other).__name__}")
        a, b = (int(v) if type(v) is bool else v for v in (a, b))
        x, y = number(a), number(b)
        for value in (x, y):
            if type(value) is float:
                self.engine.constant(value)  # which notices infinities
        question = ("compare", symbol, x, y)
        if not self.engine.settings.hard and is_whole(a) and is_whole(b):
            # Ints are told apart half-way between them, so that ties are what they are.
            x, y = _apart(symbol, x, y)
        return Answer(self.engine, self.engine.comparators.compare(symbol, x, y, steepness), question)

    def _compare_hard(self, symbol: str, a: Any, b: Any) -> Any:
        method = {"<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__", "==": "__eq__", "!=": "__ne__"}[symbol]
        own = getattr(type(a), method, None)
        if self.engine.calls.lowerable(own):
            return self.engine.call(own, a, b)
        if relaxed(a) or relaxed(b):
            raise self.engine.error(
                TypeError, f"{symbol} of {type(a).__name__} and {type(b).__name__} that hold relaxed values"
            )
        return self.engine.comparators.compare(symbol, a, b, self.engine.steepness)

    def _compare_sequences(self, symbol: str, a: Any, b: Any, steepness: float | Tensor) -> Any:
        if not (relaxed(a) or relaxed(b)):
            return self.engine.comparators.compare(symbol, a, b, steepness)
        if symbol in ("==", "!="):
            same = len(a) == len(b) and self._every(
                [self.compare("==", x, y, steepness) for x, y in zip(a, b, strict=True)]
            )
            return same if symbol == "==" else self.not_(same)
        if not a or not b:
            return self.engine.comparators.compare(symbol, len(a), len(b), steepness)
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
            return Answer(self.engine, p * q + self.engine.complement(p) * self.engine.complement(q))
        if isinstance(b, (bool, int, float)) and b in (0, 1):
            return a if b else self.not_(a)
        return None

    def steepness_of(self, name: str) -> float | Tensor:
        return self.engine.settings.variables[name]

    def truth(self, value: Any) -> Any:
        """A bool, or the probability that a value is true."""
        kind = type(value)
        if kind is Answer or kind is bool:
            return value
        if not isinstance(value, (Tensor, Number, Categorical, Array, Undefined, Choice)):
            broken = torn(value)
            if broken is not None:
                broken.fail()
            return bool(value)
        if isinstance(value, Choice):
            return self.engine.control.each(value, self.truth)
        value = number(value)
        if not isinstance(value, Tensor):
            return bool(value)  # which raises
        if value.dtype == torch.bool:
            return self.answer_of(value.to(self.engine.dtype))
        if self.engine.typed:
            return self.compare("!=", Number(self.engine, value), 0)
        if self.engine.settings.hard:
            return (value != 0).to(self.engine.dtype)
        high, low = self.engine.control.range(value)
        if low < -1e-5 or high > 1.0 + 1e-5:
            raise self.engine.error(
                ValueError,
                f"the truth of a relaxed value is a probability in [0, 1], got {low:.4g} to {high:.4g}; "
                "compare it, as in `x != 0`",
            )
        return value

    def answer_of(self, p: Tensor) -> Any:
        return Answer(self.engine, p) if self.engine.typed else p

    def answer(self, value: Any) -> Any:
        """A condition that is a comparison or made of such."""
        if isinstance(value, (Answer, Tensor)):
            return value
        return self.truth(value)

    def exact(self, answer: Any) -> Tensor:
        return exactly(answer, self.engine)

    def is_(self, a: Any, b: Any) -> Any:
        """``a is b``."""
        for value, other in ((a, b), (b, a)):
            if type(value) is Answer and (other is True or other is False):
                return value if other else self.not_(value)
            if isinstance(value, (Number, Categorical)):
                if other is None or not isinstance(other, (bool, int, float, Number, Categorical)):
                    return False
                raise self.engine.error(TypeError, "`is` of a relaxed number; compare it with ==")
            if isinstance(value, Choice) and other is not None:
                raise self.engine.error(TypeError, "`is` of a collection that depends on a branch")
            if isinstance(value, Undefined):
                value.fail()
        return a is b

    def hard(self, condition: Any) -> bool:
        """The condition of a comprehension, which decides about the length of a list."""
        condition = self.truth(condition)
        if isinstance(condition, RELAXED):
            raise self.engine.error(
                TypeError, "the `if` of a comprehension depends on a relaxed value; write a sum of products"
            )
        return bool(condition)

    def contains(self, value: Any, collection: Any) -> Any:
        if isinstance(collection, Choice):
            return self.engine.control.each(collection, lambda option: self.contains(value, option))
        if isinstance(collection, dict):
            if isinstance(value, RELAXED):
                numbers = [k for k in collection if isinstance(k, (bool, int, float))]
                return self._any([self._at(value, k, collection) for k in numbers])
            entry = collection.get(value)
            return Answer(self.engine, entry.presence) if type(entry) is Maybe else value in collection
        own = getattr(type(collection), "__contains__", None)
        if self.engine.calls.lowerable(own):
            return self.truth(self.engine.call(own, collection, value))
        intact(collection)
        if not (relaxed(value) or relaxed(collection)):
            return value in collection
        return self._any([self.compare("==", value, v) for v in collection])

    def _at(self, value: Any, key: Any, collection: dict[Any, Any]) -> Any:
        """Whether a relaxed value equals a key, and the key is there."""
        return self.and_(self.compare("==", value, key), lambda: self.contains(key, collection), False)

    def _any(self, answers: list[Any]) -> Any:
        return self._wrapped(self.engine.comparators.any([number(a) for a in answers]))

    def _every(self, answers: list[Any]) -> Any:
        return self._wrapped(self.engine.comparators.all([number(a) for a in answers]))

    def _wrapped(self, answer: Any, question: Any = None) -> Any:
        return Answer(self.engine, answer, question) if isinstance(answer, Tensor) and self.engine.typed else answer

    def not_(self, value: Any) -> Any:
        value = self.truth(value)
        if isinstance(value, Answer):
            return Answer(self.engine, self.engine.complement(value.tensor), ("not", value))
        return self.engine.complement(value) if isinstance(value, Tensor) else not value

    def _second(self, first: Any, second: Callable[[], Any], way: bool, heavy: bool) -> Any:
        """What the second operand of ``and`` and ``or`` says, where the first doesn't decide."""
        p = first.tensor
        if heavy and self.engine.control.paths is None:
            return self.engine.control.conditional(
                first if way else self.not_(first), lambda: self.truth(second()), lambda: not way, False
            )
        self.engine.control.regions.append(Aside(self.engine, self.engine.column(p), way, first))
        other = self.truth(second())
        self.engine.control.regions.pop()
        return other

    def and_(self, first: Any, second: Callable[[], Any], heavy: bool = True) -> Any:
        if not isinstance(first, (*RELAXED, Choice)):
            intact(first)
            return second() if first else first
        p = self.truth(first)
        high, low = self.engine.control.range(p.tensor)
        if high <= 0.0:  # as in Python, what can't matter isn't evaluated
            return p
        other = self._second(p, second, True, heavy and low < 1.0)
        return self._wrapped(self.engine.comparators.both(p.tensor, number(other)), ("and", p, other))

    def or_(self, first: Any, second: Callable[[], Any], heavy: bool = True) -> Any:
        if not isinstance(first, (*RELAXED, Choice)):
            intact(first)
            return first if first else second()
        p = self.truth(first)
        high, low = self.engine.control.range(p.tensor)
        if low >= 1.0:
            return p
        other = self._second(p, second, False, heavy and high > 0.0)
        return self._wrapped(self.engine.comparators.either(p.tensor, number(other)), ("or", p, other))

    def bitwise(self, symbol: str, a: Any, b: Any) -> Any:
        """``a & b`` and its like, of answers or of whole numbers."""
        if all(isinstance(v, (Answer, bool)) for v in (a, b)):
            if symbol == "&":
                return self._wrapped(self.engine.comparators.both(number(a), number(b)), ("and", a, b))
            if symbol == "|":
                return self._wrapped(self.engine.comparators.either(number(a), number(b)), ("or", a, b))
            if symbol == "^":
                return self.not_(self.compare("==", a, b))
        x, y = number(a), number(b)
        if symbol in ("<<", ">>") and is_whole(a) and is_whole(b):
            return a * 2**b if symbol == "<<" else a // 2**b
        if all(isinstance(v, int) or (isinstance(v, Tensor) and not v.dtype.is_floating_point) for v in (x, y)):
            table = {"&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift}
            return self.engine.number(table.get(symbol, operator.rshift)(x, y))
        raise self.engine.error(
            TypeError, f"{symbol} of relaxed numbers; bits have no derivative, use and, or, * and //"
        )

    def arg_extreme(self, values: Any, sign: int) -> Any:
        if not relaxed(values):
            entries = list(values)
            return entries.index(max(entries) if sign > 0 else min(entries))
        tensor = self.engine.array(values).tensor().flatten(1)
        return Categorical(
            self.engine,
            self.engine.comparators.largest(tensor, self.engine.steepness if sign > 0 else self.engine.downhill),
        )
