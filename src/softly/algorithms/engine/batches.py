"""The arguments of a relaxed program: what of them is batched, and how results get their batch back."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from softly.algorithms.engine.arrays import Array, Categorical, Undefined
from softly.algorithms.engine.containers import Choice, Dict, List, Maybe, has_attributes
from softly.algorithms.engine.numbers import Number
from softly.algorithms.engine.runtime import Runtime


class Copying(Tensor):
    """A tensor whose entries are copied when they are read, as those of a list are."""

    def __getitem__(self, key: Any) -> Any:
        entry = super().__getitem__(key)
        return entry.clone() if entry.ndim == 0 else entry

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))


def plain(value: Any) -> Any:
    return _pytree.tree_map(lambda v: v.as_subclass(Tensor) if isinstance(v, Copying) else v, value)


def outcome(engine: Runtime, value: Any) -> Any:
    """What a program returned, as a tensor (batch, ...) if it is a number or an array."""
    if isinstance(value, Undefined):
        value.fail()
    if isinstance(value, Maybe):
        raise engine.error(ValueError, "a dict is returned whose keys depend on a branch")
    if isinstance(value, Array):
        value = value.tensor()
    elif isinstance(value, Categorical):
        value = value.weights
    elif isinstance(value, (Number, Tensor, bool, int, float)):
        value = engine.column(value)
    else:
        return value
    if engine.anchor is not None and not value.requires_grad and value.dtype.is_floating_point:
        # All that was skipped was certain: the gradient is 0, but there is one.
        value = value + 0.0 * engine.anchor.reshape(engine.anchor.shape + (1,) * (value.ndim - engine.anchor.ndim))
    return value


class _Fields:
    """A dataclass whose fields are arguments or results."""

    def __init__(self, kind: type, values: dict[str, Any]) -> None:
        self.kind, self.values = kind, values


def _made(values: Any, context: Any) -> Any:
    kind, names = context
    made = object.__new__(kind)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(made, name, value)
    return made


_pytree.register_pytree_node(
    _Fields, lambda f: (list(f.values.values()), (f.kind, tuple(f.values))), _made, serialized_type_name="softly.Fields"
)
_pytree.register_pytree_node(List, lambda v: (list(v), None), lambda v, _: list(v), serialized_type_name="softly.List")
_pytree.register_pytree_node(
    Dict,
    lambda v: (list(v.values()), list(v)),
    lambda v, keys: dict(zip(keys, v, strict=True)),
    serialized_type_name="softly.Dict",
)


def _dataclass(value: Any) -> bool:
    return hasattr(type(value), "__dataclass_fields__")


def opened(tree: Any) -> Any:
    """A tree of arguments or results with the fields of dataclasses as parts of it."""
    if not any(_dataclass(leaf) for leaf in _pytree.tree_leaves(tree)):
        return tree

    def one(value: Any) -> Any:
        if not _dataclass(value):
            return value
        return _Fields(type(value), {f.name: opened(getattr(value, f.name)) for f in dataclasses.fields(value)})

    return _pytree.tree_map(one, tree)


def results(engine: Runtime, result: Any) -> Any:
    """What a program returned, with collections that depend on a branch as their means."""
    leaves = _pytree.tree_leaves(result)
    if any(type(leaf) is Choice for leaf in leaves):
        result = _pytree.tree_map(lambda v: engine.blended(v) if isinstance(v, Choice) else v, result)
    return opened(result)


class Batch:
    """The arguments of one call: what is batched, and how results get their batch back."""

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.name, dims = function.__name__, function._batch_dims
        self.leaves, self.structure = _pytree.tree_flatten(opened((args, kwargs)))
        self.lists = getattr(function, "_lists", False)
        shared = _shared(function, args)
        self.batched = [
            isinstance(leaf, Tensor) and not any(leaf is s for s in shared) and not isinstance(leaf, torch.nn.Parameter)
            for leaf in self.leaves
        ]
        shape: torch.Size | None = None
        for leaf, batched in zip(self.leaves, self.batched, strict=True):
            if not batched:
                continue
            if leaf.ndim < dims:
                raise ValueError(
                    f"softly.relax: {self.name} takes tensors with batch_dims={dims} leading dimensions, "
                    f"got one of shape {tuple(leaf.shape)}."
                )
            if shape is None:
                shape = leaf.shape[:dims]
            elif leaf.shape[:dims] != shape:
                raise ValueError(
                    f"softly.relax: {self.name} takes tensors of one batch, got {tuple(shape)} and "
                    f"{tuple(leaf.shape[:dims])}; in_dims=None marks those without."
                )
        self.shape = torch.Size([1] * dims) if shape is None else shape
        self.dims, self.size = dims, math.prod(self.shape)
        self._check_objects()
        floating = [x for x in self.leaves if isinstance(x, Tensor) and x.dtype.is_floating_point]
        first = next((x for x in self.leaves if isinstance(x, Tensor)), None)
        self.dtype = floating[0].dtype if floating else torch.get_default_dtype()
        self.device = torch.device("cpu") if first is None else first.device

    def _check_objects(self) -> None:
        """Refuse objects with tensors that may or may not have a batch."""
        for leaf in self.leaves:
            if not has_attributes(leaf):
                continue
            for name, value in vars(leaf).items():
                if isinstance(value, Tensor) and self.dims and value.shape[: self.dims] == self.shape and value.ndim:
                    raise TypeError(
                        f"softly.relax: {self.name} got a {type(leaf).__name__} whose {name!r} is a tensor that may or "
                        "may not have a batch; pass the tensor itself, or make the class a dataclass."
                    )

    def infinite(self) -> bool:
        if any(isinstance(x, float) and math.isinf(x) for x in self.leaves):
            return True
        return any(
            isinstance(x, Tensor) and x.dtype.is_floating_point and bool(torch.isinf(x.detach()).any())
            for x in self.leaves
        )

    @property
    def bare(self) -> torch.Size | None:
        """The shape of an argument that is nothing but a batch, as one is whose batch was forgotten."""
        shapes = (
            x.shape for x, batched in zip(self.leaves, self.batched, strict=True) if batched and x.ndim == self.dims
        )
        return next(shapes, None) if self.dims else None

    def _flat(self, leaf: Tensor) -> Tensor:
        return leaf.reshape(self.size, *leaf.shape[self.dims :]) if self.dims != 1 else leaf

    def enter(self, engine: Runtime, examples: Iterable[Tensor] | None = None) -> Any:
        """The arguments as values of the program; ``examples`` in the place of its tensors, all with a batch."""
        leaves = []
        others = None if examples is None else iter(examples)
        engine.bare = self.bare
        for leaf, batched in zip(self.leaves, self.batched, strict=True):
            if isinstance(leaf, Tensor):
                if others is not None:
                    leaf = engine.wrap(next(others))
                else:
                    leaf = engine.wrap(self._flat(leaf)) if batched else engine.outer(leaf)
                if self.lists and isinstance(leaf, Array):
                    leaf = leaf.tolist()
            leaves.append(leaf)
        return _pytree.tree_unflatten(leaves, self.structure)

    def leave(self, engine: Runtime, result: Any) -> Any:
        """The result with its batch."""

        def one(value: Any) -> Any:
            value = outcome(engine, value)
            if self.dims == 1 or not isinstance(value, Tensor):
                return value
            return value.reshape(self.shape + value.shape[1:])

        return _pytree.tree_map(one, results(engine, result))

    def example(self, i: int) -> Any:
        """The arguments of the i-th example, as the plain function wants them."""
        leaves = []
        for leaf, batched in zip(self.leaves, self.batched, strict=True):
            if isinstance(leaf, Tensor):
                leaf = (self._flat(leaf)[i] if batched else leaf).detach().clone()
                leaf = leaf.tolist() if self.lists else leaf.as_subclass(Copying)
            leaves.append(leaf)
        return _pytree.tree_unflatten(leaves, self.structure)

    def collect(self, results: Sequence[Any]) -> Any:
        """The results of all examples as tensors with the batch in front."""
        if not results:
            raise ValueError(f"softly.relax: {self.name}.hard needs at least one example.")
        flat = [_pytree.tree_flatten(r) for r in results]

        def together(values: list[Any]) -> Any:
            if not all(isinstance(v, (Tensor, bool, int, float)) for v in values):
                return values[0]
            tensors = [v if isinstance(v, Tensor) else torch.tensor(v) for v in values]
            dtype = functools.reduce(torch.promote_types, (t.dtype for t in tensors))
            stacked = torch.stack([t.to(dtype) for t in tensors])
            return stacked.reshape(self.shape + stacked.shape[1:])

        columns = zip(*(leaves for leaves, _ in flat), strict=True)
        return _pytree.tree_unflatten([together(list(column)) for column in columns], flat[0][1])


def _shared(function: Any, args: tuple[Any, ...]) -> list[Any]:
    """The tensors among the positional arguments that ``in_dims`` says have no batch."""
    if function._in_dims is None:
        return []
    if len(function._in_dims) != len(args):
        raise ValueError(
            f"softly.relax: in_dims has {len(function._in_dims)} entries for {len(args)} positional arguments."
        )
    return [
        leaf
        for dim, arg in zip(function._in_dims, args, strict=True)
        if dim is None
        for leaf in _pytree.tree_leaves(arg)
        if isinstance(leaf, Tensor)
    ]
