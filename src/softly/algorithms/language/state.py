"""The variables of a program in the constructor language, and how its functions see them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from softly.algorithms.engine.arrays import Array, Categorical, Store
from softly.algorithms.engine.runtime import Runtime


@lru_cache(maxsize=4096)
def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


_ALL = slice(None)


class _View:
    """A batched array as functions see it: ``d[:, i, j]`` reads a cell, anything else is the tensor's."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.array.engine.batch, *self.array.shape))

    def __getitem__(self, key: Any) -> Any:
        if type(key) is tuple and type(key[0]) is slice and key[0] == _ALL:
            array = self.array
            position = array._cell(key[1:])
            value = array[key[1:]] if position is None else array.store.unbound()[position]
            return value.tensor() if type(value) is Array else array.engine.column(value)
        return self.array.tensor()[key]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.array.tensor(), name)

    def __len__(self) -> int:
        return self.array.engine.batch

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = _pytree.tree_map(lambda v: v.array.tensor() if isinstance(v, _View) else v, (args, kwargs or {}))
        return func(*args, **kwargs)


def _tensor_operator(name: str) -> Callable[..., Any]:
    def apply(self: _View, *args: Any) -> Any:
        plain = [a.array.tensor() if isinstance(a, _View) else a for a in args]
        return getattr(self.array.tensor(), name)(*plain)

    return apply


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(_View, f"__{_name}__", _tensor_operator(f"__{_name}__"))
    setattr(_View, f"__r{_name}__", _tensor_operator(f"__r{_name}__"))
for _name in ("neg", "abs", "lt", "le", "gt", "ge"):
    setattr(_View, f"__{_name}__", _tensor_operator(f"__{_name}__"))


class State:
    """The variables of a run."""

    def __init__(self, engine: Runtime) -> None:
        self.engine = engine
        self.values: dict[str, Any] = {}
        self.integers: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        if name not in self.values:
            raise NameError(f"softly.algorithms: no variable is called {name!r}; there are {', '.join(self.values)}.")
        return self.values[name]

    def outside(self, name: str) -> Any:
        """A variable as functions see it, with its batch."""
        value = self.values.get(name)
        if type(value) is Array:
            return _View(value)
        if name in self.integers:
            return value
        return value if type(value) is Tensor and value.ndim else self.engine.column(self[name])

    def call(self, function: Callable[..., Any]) -> Any:
        result = function(*[self.outside(name) for name in _parameters(function)])
        return result.array.tensor() if type(result) is _View else result

    def read(self, value: Any) -> Any:
        """A name, a function, or a value itself."""
        if isinstance(value, str):
            return self[value]
        if callable(value):
            value = self.call(value)
            return value if type(value) is int else self.engine.wrap(value)
        return value if type(value) in (int, float) else self.engine.outer(value)

    def tensor(self, value: Any) -> Tensor:
        """The same as a tensor with its batch."""
        return self.call(value) if callable(value) else self.engine.dense(self.read(value))

    def index(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        found = []
        for index in indices:
            if index is None:
                index = slice(None)
            elif not isinstance(index, slice):
                index = self.read(index)
                if isinstance(index, Array):
                    index = Categorical(self.engine, index.tensor())
            found.append(index)
        return tuple(found)

    def write(self, name: str, value: Any) -> None:
        """Give a declared variable a value of its shape."""
        old = self[name]
        if name in self.integers:
            raise TypeError(f"softly.algorithms.Let: {name!r} is a VarInt; use LetInt.")
        if isinstance(old, Array):
            if not isinstance(value, Array):
                value = Array(Store(self.engine, tuple(old.shape), None, [value] * old.shape.numel()))
            if value.shape != old.shape:
                raise ValueError(
                    f"softly.algorithms.Let: {name!r} has shape {tuple(old.shape)}, got {tuple(value.shape)}."
                )
        elif isinstance(value, Array):
            raise ValueError(f"softly.algorithms.Let: {name!r} is a number, got shape {tuple(value.shape)}.")
        self.engine.journals.write(self.values, name, value)
