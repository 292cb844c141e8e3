"""Entries of collections: how a program reads, writes and goes through them."""

from __future__ import annotations

import copy
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from softly.algorithms.engine.arrays import RELAXED, Array, Categorical, Undefined
from softly.algorithms.engine.containers import Choice, List, Maybe, Torn, intact, relaxed
from softly.algorithms.engine.journals import mutable
from softly.algorithms.engine.numbers import Answer, Number, is_whole
from softly.algorithms.engine.protocol import Run

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


class Access:
    """The collections of one run."""

    def __init__(self, engine: Run) -> None:
        self.engine = engine

    def getitem(self, collection: Any, key: Any) -> Any:
        kind = type(collection)
        if kind is Array:
            if type(key) is int and collection.flat:
                store = collection.store
                try:
                    cell = (store.cells or store.unbound())[key]
                except IndexError:
                    return collection[key]  # which says where
                if not self.engine.typed:
                    return cell
                if type(cell) is Tensor and cell.dtype is self.engine.dtype:
                    return Number(self.engine, cell)
                return self.engine.number(cell) if isinstance(cell, Tensor) else cell
            return collection[key]
        if kind is List and type(key) is int and -len(collection) <= key < len(collection):
            found = list.__getitem__(collection, key)
            if type(found) is Torn:
                found.fail()
            return found
        if kind is Choice:
            return self.engine.control.each(collection, lambda option: self.getitem(option, key))
        if isinstance(collection, dict):
            return self._entry(collection, key)
        if isinstance(collection, (Number, Tensor)):
            raise self.engine.no_collection("a number can't be indexed")
        entries: Any = intact(collection)
        if isinstance(collection, (list, tuple, deque, range)):
            if isinstance(key, (Tensor, Number, Categorical)):
                return self._read_relaxed(collection, key)
            if isinstance(key, slice) and kind is list:
                return List(self.engine, entries[key])
            try:
                entry = entries[key]
                return self.engine.outer(entry) if type(entry) is Tensor else entry
            except IndexError as error:
                if self.engine.control.uncertain and not bool(self.engine.control.here().any()):
                    # Nobody is here: the plain program never gets to see this.
                    return Undefined("an entry out of range", self.engine.error(IndexError, str(error)))
                raise
        if isinstance(key, (*RELAXED, Choice)):
            raise self.engine.error(TypeError, f"a {kind.__name__} can't be read at a relaxed key")
        own = getattr(kind, "__getitem__", None)
        if self.engine.calls.lowerable(own):
            return self.engine.call(own, collection, key)
        return self.engine.outer(collection[key])

    def _read_relaxed(self, collection: Any, key: Any) -> Any:
        if not len(collection):
            raise self.engine.error(IndexError, "an empty list is read at a relaxed position")
        positions = self._positions(collection) if isinstance(key, Categorical) else None
        if positions is not None:
            weights = self.engine.positions.weights(key, len(collection))
            return Categorical(self.engine, (weights.unsqueeze(1) @ positions).squeeze(1))
        if all(mutable(v) for v in collection):
            weights = self.engine.positions.weights(key, len(collection))
            return Choice(self.engine, list(zip(weights.unbind(1), collection, strict=True)))
        if any(isinstance(v, tuple) for v in collection):
            weights = self.engine.positions.weights(key, len(collection))
            return self.engine.control.each(
                Choice(self.engine, [(w, [v]) for w, v in zip(weights.unbind(1), collection, strict=True)]),
                lambda o: o[0],
            )
        found = self.engine.array(collection)[key]
        if isinstance(found, Number):
            found.whole = all(is_whole(v) for v in collection)
        return found

    def _entry(self, collection: dict[Any, Any], key: Any) -> Any:
        if isinstance(key, (*RELAXED, Choice)):
            raise self.engine.error(TypeError, "a dict can't be read at a relaxed key")
        if key not in collection and hasattr(type(collection), "__missing__"):
            self.engine.journals.remember(collection)
        entry = collection[key]
        if type(entry) is Maybe:
            if hasattr(type(collection), "__missing__"):
                kind: Any = type(collection)
                made = lambda: kind.__missing__(copy.copy(collection), key)  # noqa: E731
                return self.engine.control.conditional(
                    Answer(self.engine, entry.presence), lambda: entry.value, made, True
                )
            if not self.engine.trusts() and bool((self.engine.control.here() & (entry.presence.detach() < 0.5)).any()):
                raise self.engine.error(KeyError, f"{key!r} is not in the dict")
            return entry.value
        return entry

    def _positions(self, collection: Any) -> Tensor | None:
        """Entries that are positions themselves, hard or categorical, as weights (batch, entries, n); else None."""
        if not all(type(v) is Categorical or (type(v) is int and v >= 0) for v in collection):
            return None
        n = max((v.weights.shape[1] if type(v) is Categorical else v + 1 for v in collection), default=0)
        hard = torch.eye(n, dtype=self.engine.dtype, device=self.engine.device)
        rows = [
            self.engine.positions.weights(v, n) if type(v) is Categorical else hard[v].expand(self.engine.batch, n)
            for v in collection
        ]
        return torch.stack(rows, 1)

    def setitem(self, collection: Any, key: Any, value: Any) -> None:
        kind = type(collection)
        if kind is Array:
            fits = type(key) is int and collection.flat and 0 <= key < collection.store.shape[0]
            if fits and (type(value) is Number or type(value) is Tensor):
                self.engine.journals.write(collection.store, key, value.tensor if type(value) is Number else value)
            else:
                collection[key] = value
        elif kind is Choice:
            self.engine.control.each(collection, lambda option: self.setitem(option, key, value))
        elif isinstance(collection, (Number, Tensor)):
            raise self.engine.no_collection("a number can't be indexed")
        elif isinstance(collection, dict):
            if isinstance(key, (*RELAXED, Choice)):
                raise self.engine.error(TypeError, "a dict can't be written at a relaxed key")
            self.engine.journals.write(collection, key, value)
        elif isinstance(collection, (list, deque)):
            self._set_entry(intact(collection), key, value)
        elif isinstance(key, (*RELAXED, Choice)):
            raise self.engine.error(TypeError, f"a {kind.__name__} can't be written at a relaxed key")
        elif self.engine.calls.lowerable(getattr(kind, "__setitem__", None)):
            self.engine.call(kind.__setitem__, collection, key, value)
        elif relaxed(value) or self.engine.control.uncertain:
            raise self.engine.error(
                TypeError, f"a {kind.__name__} can't be written to where it depends on relaxed values"
            )
        else:
            collection[key] = value

    def _set_entry(self, collection: Any, key: Any, value: Any) -> None:
        if isinstance(key, (Tensor, Number, Categorical)):
            weights = self.engine.positions.weights(key, len(collection))
            held = self.engine.journals.held
            for i, (old, w) in enumerate(zip(list(collection), weights.unbind(1), strict=True)):
                (mixed,) = self.engine.joins.mix(w, [held(value)], [held(old)], ["an entry"], self.engine.serial)
                self.engine.journals.write(collection, i, mixed)
        elif isinstance(key, slice):
            entries = list(self.iterate(value))
            self.engine.journals.remember(collection)
            list.__setitem__(collection, key, entries)
        else:
            position = self.engine.hard_int(key, "a position")
            if not -len(collection) <= position < len(collection):
                raise self.engine.error(
                    IndexError, f"position {position} is out of range for {len(collection)} entries"
                )
            self.engine.journals.write(collection, position % len(collection), value)

    def delitem(self, collection: Any, key: Any) -> None:
        """``del collection[key]``."""
        if isinstance(collection, Choice):
            self.engine.control.each(collection, lambda option: self.delitem(option, key))
            return
        if isinstance(key, RELAXED) or not isinstance(collection, (list, dict, deque)):
            raise self.engine.error(
                TypeError, f"del of an entry of a {type(collection).__name__} that is relaxed or unknown"
            )
        self.engine.journals.remember(collection)
        del collection[key]

    def iterate(self, iterable: Any) -> Iterable[Any]:
        if isinstance(iterable, (Number, Tensor)):
            raise self.engine.no_collection("a loop over a relaxed number; it needs a range, a list or an array")
        if isinstance(iterable, Choice):
            first = iterable.options[0][1]
            if isinstance(first, (Array, list)) and all(len(o) == len(first) for _, o in iterable.options):
                return (self.getitem(iterable, i) for i in range(len(first)))
            raise self.engine.error(TypeError, "a loop over a collection that depends on a branch")
        if isinstance(iterable, list):
            return self._live(iterable)
        if isinstance(iterable, (dict, set, deque)):
            return list(intact(iterable))
        own = getattr(type(iterable), "__iter__", None)
        if self.engine.calls.lowerable(own):
            return self.iterate(self.engine.call(own, iterable))
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
            raise self.engine.error(TypeError, "the bounds of a slice must be hard ints, not relaxed numbers")
        return slice(*parts)

    def update(self, operation: str, old: Any, value: Any) -> Any:
        """``old += value`` and its like, in place where Python does it in place."""
        if type(old) is Number or type(old) is int or type(old) is float:
            return _UPDATES[operation](old, value)
        if isinstance(old, Array):
            old[...] = _UPDATES[operation](old, value)
            return old
        if isinstance(old, Choice) and operation == "Add":
            self.engine.control.each(old, lambda option: self.update(operation, option, value))
            return old
        if isinstance(old, (list, deque)) and operation == "Add":
            entries = list(self.iterate(value))
            self.engine.journals.remember(intact(old))
            old.extend(entries)
            return old
        if isinstance(old, list) and operation == "Mult":
            self.engine.journals.remember(intact(old))
            old *= self.engine.hard_int(value, "the repetitions of a list")
            return old
        if isinstance(old, (set, dict)) and isinstance(value, (set, dict)):
            self.engine.journals.remember(intact(old))
        return _UPDATES[operation](old, value)
