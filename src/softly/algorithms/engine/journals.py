"""What was written on a path, so that it can be undone, and done again where paths join."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from softly.algorithms.engine.arrays import Array, Store
from softly.algorithms.engine.containers import SEQUENCES, Choice, Dict, List, relaxed
from softly.algorithms.engine.numbers import Number, raw
from softly.algorithms.engine.protocol import Run

Names = tuple[Any, ...]


class Mark:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


MISSING = Mark("missing")
WHOLE = Mark("whole")


class Journal(dict[Any, Any]):
    """The first value of everything that was written: (id of container, key) -> (container, key, old)."""

    def undo(self) -> None:
        for container, key, old in self.values():
            if type(container) is Store:
                container[key] = old
            else:
                put(container, key, old)


def read(container: Any, key: Any) -> Any:
    if type(container) is Store:
        return container.unbound()[key]
    if key is WHOLE:
        return container.copy()
    if isinstance(container, dict):
        return container.get(key, MISSING)
    return container[key]


def put(container: Any, key: Any, value: Any) -> None:
    if key is WHOLE:
        container.clear()
        container.extend(value) if isinstance(container, SEQUENCES) else container.update(value)
    elif value is MISSING:
        container.pop(key, None)
    else:
        container[key] = value


class Held:
    """A collection at the end of a path: the object, and what was in it then, before other paths undo that."""

    __slots__ = ("content", "original")

    def __init__(self, original: Any, content: Any) -> None:
        self.original, self.content = original, content


MUTABLE = (list, dict, set, collections.deque)
_COLLECTIONS = {List, Dict, Array, list, dict, set, collections.deque, collections.Counter, collections.defaultdict}


class Journals(list[Journal]):
    """One journal for every path that a run is on, so that it can go back."""

    def __init__(self, engine: Run) -> None:
        super().__init__()
        self.engine = engine

    def write(self, container: Any, key: Any, value: Any) -> None:
        """Write one cell of a store, an entry of a list or of a dict."""
        if self:
            journal, k = self[-1], (id(container), key)
            if k not in journal and (id(container), WHOLE) not in journal:
                journal[k] = (container, key, read(container, key))
        if self.engine.outside and id(container) in self.engine.outside and relaxed(value):
            self.keep_inside(container)
        container[key] = raw(value) if type(container) is Store and type(value) is not Tensor else value

    def keep_inside(self, container: Any) -> None:
        """Refuse to leave relaxed values, or what depends on a branch, in a collection that belongs to others."""
        raise self.engine.error(
            TypeError,
            f"a {type(container).__name__} from outside of the program would keep what depends on relaxed values; "
            "make it in the program, and return it",
        )

    def remember(self, container: Any) -> None:
        """Note the content of a list, dict or set that is about to change its length."""
        if not self:
            return
        journal, k = self[-1], (id(container), WHOLE)
        if k in journal:
            return
        old = container.copy()
        for other in [o for o in journal if o[0] == id(container)]:
            _, key, value = journal.pop(other)
            put(old, key, value)
        journal[k] = (container, WHOLE, old)

    def contents(self, journals: Sequence[Journal]) -> dict[Any, Any]:
        """What stands now where something was written."""
        if len(journals) == 1 and not journals[0]:
            return {}
        written = {}
        for journal in journals:
            for k, (container, key, _) in journal.items():
                if type(container) is Store:
                    written[k] = (container, key, (container.cells or container.unbound())[key])
                else:
                    written[k] = (container, key, self.held(read(container, key)))
        return written

    def held(self, value: Any) -> Any:
        kind = type(value)
        if kind is Number or kind is Tensor:
            return value
        if kind is tuple:
            return tuple([self.held(v) for v in value])
        return Held(value, self._content(value)) if kind in _COLLECTIONS else value

    def _content(self, value: Any) -> Any:
        kind = type(value)
        if kind is Array:
            return value.copy()
        if isinstance(value, list):
            return [self.held(v) for v in value]
        content = value.copy()
        if isinstance(content, dict):
            for k, v in value.items():
                dict.__setitem__(content, k, self.held(v))
        elif isinstance(content, collections.deque):
            for i, v in enumerate(value):
                content[i] = self.held(v)
        return content

    def hold(self, names: Names) -> Names:
        return tuple([v if type(v) is Number else self.held(v) for v in names])

    @classmethod
    def release(cls, names: Names) -> Names:
        return tuple([cls.released(v) for v in names])

    @classmethod
    def released(cls, value: Any) -> Any:
        if type(value) is Held:
            return value.original
        return tuple([cls.released(v) for v in value]) if type(value) is tuple else value


def mutable(value: Any) -> bool:
    """Whether a value is a collection that is told apart by its identity."""
    return isinstance(value, (*MUTABLE, Array, Choice))
