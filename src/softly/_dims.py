"""Dimensions that are reduced: one, or a tuple of them."""

from __future__ import annotations

import sys
import warnings

from torch import Tensor

Dim = int | tuple[int, ...]


def checked(dim: Dim, ndim: int, function: str) -> tuple[int, ...]:
    """The dimensions, counted from 0 and in ascending order."""
    dims = dim if isinstance(dim, tuple) else (dim,)
    for d in dims:
        if not -ndim <= d < ndim:
            raise ValueError(f"{function}: dim must be in [{-ndim}, {ndim - 1}], got {dim}.")
    found = tuple(sorted({d % ndim for d in dims}))
    if len(found) != len(dims) or not dims:
        raise ValueError(f"{function}: dim must name one dimension or several different ones, got {dim}.")
    return found


def merged(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """``x`` with ``dims`` as its last dimension."""
    if len(dims) == 1:
        return x.movedim(dims[0], -1)
    moved = x.movedim(dims, tuple(range(-len(dims), 0)))
    return moved.flatten(-len(dims))


def split(x: Tensor, dims: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """The inverse of `merged`, for a tensor that had ``shape``."""
    if len(dims) == 1:
        return x.movedim(-1, dims[0])
    return x.unflatten(-1, [shape[d] for d in dims]).movedim(tuple(range(-len(dims), 0)), dims)


def kept(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """``x`` with the dimensions that were reduced, at length 1."""
    for d in dims:
        x = x.unsqueeze(d)
    return x


def warn_of_one(x: Tensor, function: str) -> None:
    """Say that the last dimension has one entry, so that nothing happens along it, to who called softly."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("softly."):
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"{function}: x has shape {tuple(x.shape)}, and its last dimension, along which it works, has one entry. "
        f"Scores of a network want x.squeeze(-1), or dim=-2; where lists of one are meant, dim={x.ndim - 1} says so.",
        stacklevel=level,
    )
