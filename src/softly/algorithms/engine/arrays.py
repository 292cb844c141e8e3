"""The arrays of a relaxed program, and other values that are neither numbers nor tensors.

Inside a program a tensor is always one number per example, of shape (batch,), or without dimensions the same for
all. Anything longer is an `Array`: numpy's rules over a list of cells, so that a write touches one cell.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softly.algorithms.engine.numbers import Answer, Number, raw
from softly.algorithms.engine.protocol import Run


class Undefined:
    """What a variable holds that has no value on some path; using it is an error."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name = name
        self.error = error

    def fail(self, *_: Any, **__: Any) -> Any:
        raise self.error or UnboundLocalError(
            f"softly.relax: {self.name!r} has no value here on at least one path through the program."
        )

    __getattr__ = __getitem__ = __iter__ = __len__ = __call__ = __bool__ = __float__ = __index__ = fail
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = fail
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = fail
    __lt__ = __le__ = __gt__ = __ge__ = fail
    __setitem__ = __contains__ = __str__ = __format__ = fail


class Store:
    """The cells of an array, as one tensor (batch, *shape), as a list of cells, or both while they agree."""

    __slots__ = ("_positions", "born", "cells", "dense", "engine", "rows", "shape")

    def __init__(self, engine: Run, shape: tuple[int, ...], dense: Tensor | None, cells: list[Any] | None) -> None:
        self.engine, self.shape, self.dense, self.cells = engine, shape, dense, cells
        self.born = engine.serial
        self.rows: Sequence[Tensor] | None = None
        self._positions: np.ndarray | None = None

    def unbound(self) -> list[Any]:
        if self.cells is None:
            assert self.dense is not None
            # All at once: selecting one cell would cost a whole array in the backward pass.
            self.cells = list(self.dense.flatten(1).unbind(1))
        return self.cells

    def __getitem__(self, position: int) -> Any:
        return self.unbound()[position]

    def __setitem__(self, position: int, value: Any) -> None:
        (self.cells or self.unbound())[position] = value
        self.dense = self.rows = None

    def tensor(self) -> Tensor:
        if self.dense is None:
            assert self.cells is not None
            self.dense = self.engine.stack(self.cells).unflatten(1, self.shape)
        return self.dense

    def row(self, i: int) -> Tensor | None:
        """The i-th row where there is a tensor to take it from."""
        if self.dense is None:
            return None
        if self.rows is None:
            self.rows = self.dense.unbind(1)
        return self.rows[i]

    def positions(self) -> np.ndarray:
        if self._positions is None:
            self._positions = np.arange(int(np.prod(self.shape))).reshape(self.shape)
        return self._positions


class Array:
    """A view of a `Store`: the whole of it, a row of it, or the cells at ``positions``."""

    __slots__ = ("_positions", "_row", "engine", "flat", "store")

    def __init__(self, store: Store, positions: np.ndarray | None = None, row: int | None = None) -> None:
        self.engine, self.store, self._positions, self._row = store.engine, store, positions, row
        self.flat = positions is None and row is None and len(store.shape) == 1

    @staticmethod
    def of(engine: Run, dense: Tensor) -> Array:
        """The array of a tensor (batch, *shape)."""
        return Array(Store(engine, tuple(dense.shape[1:]), dense, None))

    @property
    def whole(self) -> bool:
        return self._positions is None and self._row is None

    @property
    def positions(self) -> np.ndarray:
        """Where in the store the cell of each entry is."""
        if self._positions is not None:
            return self._positions
        return self.store.positions() if self._row is None else self.store.positions()[self._row]

    @property
    def shape(self) -> torch.Size:
        if self._positions is not None:
            return torch.Size(self._positions.shape)
        return torch.Size(self.store.shape if self._row is None else self.store.shape[1:])

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor().dtype

    @property
    def T(self) -> Array:
        return Array(self.store, self.positions.T)

    def same(self, other: Array) -> bool:
        """Whether both are the same view, so that they can't differ."""
        if self.store is not other.store:
            return False
        return (self._row, self._positions is None) == (other._row, other._positions is None) and (
            self._positions is other._positions or np.array_equal(self.positions, other.positions)
        )

    def tensor(self) -> Tensor:
        """The entries as a tensor (batch, *shape)."""
        if self.whole:
            return self.store.tensor()
        if self._row is not None and (row := self.store.row(self._row)) is not None:
            return row
        return self.engine.stack(self.cells()).unflatten(1, self.shape)

    def cells(self) -> list[Any]:
        """The entries one by one."""
        cells = self.store.unbound()
        return list(cells) if self.whole else [cells[i] for i in self.positions.ravel().tolist()]

    def copy(self) -> Array:
        store = self.store
        if self.whole:
            cells = None if store.cells is None else list(store.cells)
            return Array(Store(self.engine, store.shape, store.dense, cells))
        if self._row is not None and (row := store.row(self._row)) is not None:
            return Array.of(self.engine, row)
        return Array(Store(self.engine, tuple(self.shape), None, self.cells()))

    clone = copy

    def tolist(self) -> list[Any]:
        return self.engine.made_list([entry.tolist() if isinstance(entry, Array) else entry for entry in self])

    def dim(self) -> int:
        return self.ndim

    def numel(self) -> int:
        return self.shape.numel()

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        raise self.engine.error(TypeError, "an array has no truth value; use all() or any() on it")

    def __contains__(self, value: Any) -> bool:
        raise self.engine.error(TypeError, "`in` on a relaxed array works only inside a relaxed function")

    def _cell(self, key: tuple[Any, ...]) -> int | None:
        """The position of the cell at hard ints, for an array that is its whole store; else None."""
        shape = self.store.shape
        if len(key) != len(shape) or self._positions is not None or self._row is not None:
            return None
        if len(key) == 2:  # the matrices of dynamic programming
            i, j = key
            if type(i) is int and type(j) is int and 0 <= i < shape[0] and 0 <= j < shape[1]:
                return i * shape[1] + j
        position = 0
        for k, n in zip(key, shape, strict=True):
            if type(k) is not int:
                return None
            if not -n <= k < n:
                raise self.engine.error(IndexError, f"index {k} is out of range for an array of {n}")
            position = position * n + (k if k >= 0 else k + n)
        return position

    def __getitem__(self, key: Any) -> Any:
        key = key if type(key) is tuple else (key,)
        position = self._cell(key)
        if position is not None:
            return self.engine.entry(self.store.unbound()[position])
        key = tuple([raw(k) for k in key])
        if self.whole and len(key) == 1 and type(key[0]) is int and len(self.store.shape) > 1:
            n = self.store.shape[0]
            if not -n <= key[0] < n:
                raise self.engine.error(IndexError, f"index {key[0]} is out of range for an array of {n}")
            return Array(self.store, None, key[0] % n)
        if any(isinstance(k, (Tensor, Categorical)) for k in key):
            part, weights = self._relaxed(key)
            dense = part.tensor()
            found = self.engine.wrap(self.engine.positions.contract(dense, weights))
            if isinstance(found, Number):
                found.whole = not dense.dtype.is_floating_point
            return found
        found = self._found(key)
        return Array(self.store, found) if np.ndim(found) else self.engine.entry(self.store.unbound()[int(found)])

    def _found(self, key: tuple[Any, ...]) -> Any:
        try:
            return self.positions[tuple(_hard(k) for k in key)]
        except IndexError as error:
            raise self.engine.error(IndexError, str(error)) from None

    def __setitem__(self, key: Any, value: Any) -> None:
        write, store = self.engine.journals.write, self.store
        key = key if type(key) is tuple else (key,)
        position = self._cell(key)
        if position is not None:
            write(store, position, value.tensor if type(value) is Number else self.engine.cell(value))
            return
        key = tuple([raw(k) for k in key])
        if any(isinstance(k, (Tensor, Categorical)) for k in key):
            part, weights = self._relaxed(key)
            mixed = self.engine.positions.spread(part.tensor(), weights, value)
            for position, cell in zip(part.positions.ravel().tolist(), mixed.flatten(1).unbind(1), strict=True):
                write(store, position, cell)
            return
        found = self._found(key)
        if np.ndim(found) == 0:
            write(store, int(found), self.engine.cell(value))
            return
        for position, cell in zip(found.ravel().tolist(), self.engine.cells_like(value, found.shape), strict=True):
            write(store, position, cell)

    def _relaxed(self, key: tuple[Any, ...]) -> tuple[Array, list[tuple[int, Any]]]:
        """What is left after the hard part of a key, and its axes with the relaxed keys that they are read at."""
        if any(k is None or k is Ellipsis for k in key):
            raise self.engine.error(TypeError, "a relaxed index can't be combined with None or ...")
        hard = tuple(slice(None) if isinstance(k, (Tensor, Categorical)) else _hard(k) for k in key)
        found, axis, weights = self.positions[hard], 0, []
        for k in key:
            if isinstance(k, (Tensor, Categorical)):
                weights.append((axis, k))
            if isinstance(k, (Tensor, Categorical, slice)):
                axis += 1
        everything = self.whole and all(k == slice(None) for k in hard)
        return (self if everything else Array(self.store, found)), weights

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.utils import _pytree

        engine = next(a.engine for a in _pytree.tree_leaves((args, kwargs)) if isinstance(a, Array))
        return engine.torch_call(func, args, kwargs or {})

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise self.engine.error(TypeError, "a NumPy array can't be made of a relaxed array; keep it as it is")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            raise self.engine.error(TypeError, f"numpy.{ufunc.__name__}.{method} of a relaxed array; write a loop")
        return self.engine.call(ufunc, *inputs, **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return self.engine.call(func, *args, **kwargs)

    def __hash__(self) -> int:
        raise self.engine.error(TypeError, "a relaxed array can't be in a set or a key of a dict")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"an array of a relaxed program has no attribute {name!r}")
        return self.engine.attribute(self, name)

    def __neg__(self) -> Array:
        return Array.of(self.engine, -self.tensor())

    def __abs__(self) -> Any:
        return self.engine.call(abs, self)

    def __matmul__(self, other: Any) -> Any:
        return self.engine.apply(torch.matmul, (self, other), {})

    def __rmatmul__(self, other: Any) -> Any:
        return self.engine.apply(torch.matmul, (other, self), {})

    def __repr__(self) -> str:
        return f"Array(shape={tuple(self.shape)})"


def _hard(k: Any) -> Any:
    if k is None or k is Ellipsis:
        return k
    if isinstance(k, slice):
        return slice(*(None if part is None else operator.index(part) for part in (k.start, k.stop, k.step)))
    if isinstance(k, np.ndarray):
        return k
    if isinstance(k, (list, tuple)):
        return np.array([operator.index(i) for i in k], dtype=np.int64)
    return k if isinstance(k, int) else operator.index(k)


class Categorical:
    """A position as weights (batch, n); in arithmetic it is its expectation."""

    __slots__ = ("engine", "weights")

    def __init__(self, engine: Run, weights: Tensor) -> None:
        self.engine, self.weights = engine, weights

    @property
    def value(self) -> Tensor:
        positions = torch.arange(self.weights.shape[1], dtype=self.weights.dtype, device=self.weights.device)
        return (self.weights * positions).sum(1)

    def __neg__(self) -> Any:
        return self.engine.number(-self.value)

    def __bool__(self) -> bool:
        return bool(Number(self.engine, self.value))  # which raises

    def __hash__(self) -> int:
        return hash(Number(self.engine, self.value))  # which raises

    def __index__(self) -> int:
        return int(Number(self.engine, self.value))  # which raises

    __int__ = __index__


RELAXED = (Tensor, Number, Array, Categorical)


def number(value: Any) -> Any:
    """A relaxed number or a categorical position as a tensor; anything else as it is."""
    kind = type(value)
    if kind is Number or kind is Answer:
        return value.tensor
    return value.value if kind is Categorical else value


def _binary(name: str) -> None:
    def forward(self: Any, other: Any) -> Any:
        return self.engine.arithmetic(name, self, other)

    def backward(self: Any, other: Any) -> Any:
        return self.engine.arithmetic(name, other, self)

    for cls in (Array, Categorical):
        setattr(cls, f"__{name}__", forward)
        setattr(cls, f"__r{name}__", backward)


def _comparison(name: str, symbol: str) -> None:
    def compare(self: Any, other: Any) -> Any:
        return self.engine.conditions.compare(symbol, self, other)

    for cls in (Array, Categorical):
        setattr(cls, f"__{name}__", compare)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    _binary(_name)
for _name, _symbol in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items():
    _comparison(_name, _symbol)
