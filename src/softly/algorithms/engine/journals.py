"""What was written on a path, so that it can be undone, and done again where paths join."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from softly.algorithms.engine.arrays import Array, Store
from softly.algorithms.engine.values import Values

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
        container.extend(value) if isinstance(container, list) else container.update(value)
    elif value is MISSING:
        container.pop(key, None)
    else:
        container[key] = value


class Held:
    """A collection at the end of a path: the object, and what was in it then, before other paths undo that."""

    __slots__ = ("content", "original")

    def __init__(self, original: Any, content: Any) -> None:
        self.original, self.content = original, content


_COLLECTIONS = (list, tuple, dict, Array)


class Journals(Values):
    """A run that can go back: one journal for every path that it is on."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.journals: list[Journal] = []

    def write(self, container: Any, key: Any, value: Any) -> None:
        """Write one cell of a store, an entry of a list or of a dict."""
        if self.journals:
            journal, k = self.journals[-1], (id(container), key)
            if k not in journal and (id(container), WHOLE) not in journal:
                journal[k] = (container, key, read(container, key))
        container[key] = value

    def remember(self, container: Any) -> None:
        """Note the content of a list, dict or set that is about to change its length."""
        if not self.journals:
            return
        journal, k = self.journals[-1], (id(container), WHOLE)
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
        return {
            k: (container, key, self.held(read(container, key)))
            for journal in journals
            for k, (container, key, _) in journal.items()
        }

    def held(self, value: Any) -> Any:
        return Held(value, self.frozen(value)) if type(value) in _COLLECTIONS else value

    def hold(self, names: Names) -> Names:
        return tuple([self.held(v) if type(v) in _COLLECTIONS else v for v in names])

    @staticmethod
    def release(names: Names) -> Names:
        return tuple([v.original if type(v) is Held else v for v in names])
