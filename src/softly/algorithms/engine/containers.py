"""The mutable collections of a relaxed program: those it makes itself, and those that depend on a branch."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any, NoReturn

import torch
from torch import Tensor

from softly.algorithms.engine.arrays import RELAXED, Array, Undefined
from softly.algorithms.engine.protocol import Run


class List(list[Any]):
    """A list that a program made; it knows when, so that what was there before a branch can be told apart."""

    __slots__ = ("born", "engine")

    def __init__(self, engine: Run, entries: Iterable[Any] = ()) -> None:
        super().__init__(entries)
        self.engine, self.born = engine, engine.serial

    def __getitem__(self, key: Any) -> Any:
        entry = super().__getitem__(key)
        return List(self.engine, entry) if type(key) is slice else entry

    def copy(self) -> List:
        return List(self.engine, self)

    def __add__(self, other: Any) -> Any:
        return self.engine.concatenate(self, other)

    def __radd__(self, other: Any) -> Any:
        return self.engine.concatenate(other, self)

    def __mul__(self, count: Any) -> Any:
        return List(self.engine, super().__mul__(self.engine.hard_int(count, "the repetitions of a list")))

    __rmul__ = __mul__

    def __copy__(self) -> List:
        return self.copy()

    def __reduce__(self) -> Any:
        return list, (list(self),)


class Dict(dict[Any, Any]):
    """A dict that a program made."""

    __slots__ = ("born", "engine")

    def __init__(self, engine: Run, entries: Any = ()) -> None:
        super().__init__(entries)
        self.engine, self.born = engine, engine.serial

    def copy(self) -> Dict:
        return Dict(self.engine, self)

    def __copy__(self) -> Dict:
        return self.copy()

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


class Torn(Undefined):
    """The only entry of a list whose length depends on a branch: any use of the list is an error."""


class Maybe:
    """The entry of a dict at a key that is there with a probability (batch,)."""

    __slots__ = ("presence", "value")

    def __init__(self, value: Any, presence: Tensor) -> None:
        self.value, self.presence = value, presence


class Choice:
    """One of several collections, each with a probability (batch,): reads are averaged, writes go to each."""

    __slots__ = ("engine", "options")

    def __init__(self, engine: Run, options: list[tuple[Tensor, Any]]) -> None:
        self.engine = engine
        self.options: list[tuple[Tensor, Any]] = []
        found = self.options
        for weight, option in options:
            for w, inner in option.options if type(option) is Choice else [(None, option)]:
                share = weight if w is None else weight * w
                same = next((i for i, (_, other) in enumerate(found) if other is inner), None)
                if same is None:
                    found.append((share, inner))
                else:
                    found[same] = (found[same][0] + share, inner)

    @property
    def born(self) -> int:
        return min(birth(option) for _, option in self.options)

    def same(self, other: Choice) -> bool:
        return [id(o) for _, o in self.options] == [id(o) for _, o in other.options] and all(
            a is b for (a, _), (b, _) in zip(self.options, other.options, strict=True)
        )

    def _refuse(self) -> NoReturn:
        raise self.engine.error(TypeError, "a collection that depends on a branch can't be used by code not lowered")

    def __bool__(self) -> bool:
        self._refuse()

    def __iter__(self) -> Any:
        return iter(self.engine.access.iterate(self))

    def __len__(self) -> int:
        self._refuse()

    def __getitem__(self, key: Any) -> Any:
        return self.engine.access.getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.engine.access.setitem(self, key, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.engine.attribute(self, name)

    def __neg__(self) -> Any:
        return self.engine.control.each(self, operator.neg)

    def __hash__(self) -> int:
        self._refuse()

    def __eq__(self, other: object) -> Any:
        return self.engine.conditions.compare("==", self, other)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.utils import _pytree

        engine = next(a.engine for a in _pytree.tree_leaves((args, kwargs)) if isinstance(a, Choice))
        return engine.torch_call(func, args, kwargs or {})


def _binary(function: Callable[[Any, Any], Any]) -> None:
    def forward(self: Choice, other: Any) -> Any:
        return self.engine.control.each(self, lambda option: function(option, other))

    def backward(self: Choice, other: Any) -> Any:
        return self.engine.control.each(self, lambda option: function(other, option))

    name = function.__name__.strip("_")
    setattr(Choice, f"__{name}__", forward)
    setattr(Choice, f"__r{name}__", backward)


for _function in (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod):
    _binary(_function)
_binary(operator.pow)
_binary(operator.matmul)

SEQUENCES = (list, deque)


def birth(value: Any) -> int:
    """When a program made a collection; −1 for one that it didn't make."""
    if type(value) is Array:
        return value.store.born
    return getattr(value, "born", -1) if isinstance(value, (List, Dict, Choice)) else -1


def torn(value: Any) -> Torn | None:
    """Why a list can't be used, if it can't."""
    if isinstance(value, SEQUENCES) and len(value) == 1 and type(value[0]) is Torn:
        return value[0]
    return None


def intact(value: Any) -> Any:
    """The collection itself, if its length or keys don't depend on a branch; else an error."""
    if isinstance(value, SEQUENCES):
        if len(value) == 1 and type(value[0]) is Torn:
            value[0].fail()
    elif isinstance(value, dict) and any(type(v) is Maybe for v in value.values()):
        key = next(k for k, v in value.items() if type(v) is Maybe)
        raise ValueError(
            f"softly.relax: whether {key!r} is in a dict depends on a branch; ask for single keys by `in` or get()."
        )
    return value


def relaxed(value: Any, depth: int = 4) -> bool:
    """Whether a value, or anything in it, depends on tensors."""
    kind = type(value)
    if isinstance(value, RELAXED) or kind is Choice or kind is Maybe:
        return True
    if kind in _PLAIN or depth == 0:
        return False
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return any(relaxed(v, depth) for v in value)
    if isinstance(value, dict):
        return any(relaxed(v, depth) for v in value.values())
    if has_attributes(value):
        return any(relaxed(v, depth - 1) for v in vars(value).values())
    return False


_PLAIN = {int, float, bool, str, bytes, type(None), range, slice}


def has_attributes(value: Any) -> bool:
    """Whether a value is an object of a class written in Python, whose attributes a program may read and write."""
    kind = type(value)
    if not hasattr(value, "__dict__") or isinstance(value, (type, ModuleType, FunctionType, torch.nn.Module, Tensor)):
        return False
    return kind.__module__ != "builtins" and not kind.__module__.startswith(("softly.", "torch.", "numpy."))
