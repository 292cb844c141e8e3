"""Relaxed positions: arrays that are read and written between their entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softly.algorithms.engine import indexing
from softly.algorithms.engine.arrays import Categorical
from softly.algorithms.engine.protocol import Run


class Positions:
    """The positions of one run."""

    def __init__(self, engine: Run) -> None:
        self.engine = engine

    def weights(self, position: Any, n: int) -> Tensor:
        """The weights (batch, n) of a relaxed position."""
        if isinstance(position, Categorical):
            found = position.weights.shape[1]
            if found > n:
                raise self.engine.error(IndexError, f"a position among {found} can't index an array of {n}")
            return torch.nn.functional.pad(position.weights, (0, n - found)) if found < n else position.weights
        position = self._inside(self.engine.column(position), n)
        if self.engine.settings.hard or not position.dtype.is_floating_point:
            return indexing.nearest_weights(position, n, self.engine.dtype)
        return indexing.filter_weights(
            position,
            n,
            distribution=self.engine.settings.distribution,
            steepness=self.engine.steepness,
            exact_gradient=self.engine.settings.exact_gradient,
        )

    def _inside(self, position: Tensor, n: int) -> Tensor:
        """A position counted from the front; one that the plain program would raise at is an error."""
        nearest = (position.detach() + 0.5).floor()
        position = torch.where(nearest < 0, position + n, position)
        if not self.engine.trusts():
            beyond = (nearest < -n) | (nearest >= n)
            if bool(beyond.any()) and bool((beyond & self.engine.control.here()).any()):
                worst = float(nearest[beyond & self.engine.control.here()][0])
                raise self.engine.error(IndexError, f"a relaxed position of {worst:g} is out of range for {n} entries")
        return position

    def _full_weights(self, shape: torch.Size, weights: list[tuple[int, Any]]) -> Iterator[tuple[int, Tensor]]:
        for axis, position in weights:
            w = self.weights(position, shape[axis + 1])
            yield axis + 1, w.reshape(w.shape[0], *[1] * axis, w.shape[1], *[1] * (len(shape) - axis - 2))

    def contract(self, tensor: Tensor, weights: list[tuple[int, Any]]) -> Tensor:
        """Read a tensor (batch, ...) at relaxed positions of some of its axes."""
        for axis, w in self._full_weights(tensor.shape, weights):
            used = torch.where(w == 0, 0.0, tensor) if self.engine.guarded or self.engine.settings.hard else tensor
            tensor = (used * w).sum(axis, keepdim=True)
        for axis, _ in reversed(weights):
            tensor = tensor.squeeze(axis + 1)
        return tensor

    def spread(self, tensor: Tensor, weights: list[tuple[int, Any]], value: Any) -> Tensor:
        """Write ``value`` to a tensor (batch, ...) at relaxed positions of some of its axes."""
        total: Tensor | None = None
        for _, w in self._full_weights(tensor.shape, weights):
            total = w if total is None else total * w
        assert total is not None
        if isinstance(value, (list, tuple, np.ndarray)):
            value = self.engine.array(value)
        value = self.engine.dense(value)
        if isinstance(value, Tensor) and value.ndim:
            rest = iter(value.shape[1:])
            read = {axis for axis, _ in weights}
            kept = [1 if axis in read else next(rest, 1) for axis in range(tensor.ndim - 1)]
            value = value.reshape(value.shape[0], *kept)
        return self.engine.comparators.mix(total.expand_as(tensor), value, tensor)
