"""Solvers of linear problems, as the estimators call them: scores or costs in, the best solution out.

A solver is any callable that returns, for scores ``y`` (..., n), the w of a set that makes ``(y * w).sum()`` largest
(``sense="max"``) or smallest (``sense="min"``), of the shape of ``y``. It may have two more methods: ``check(y)``
raises for a ``y`` that it can't be asked about, and ``perturbed(y)`` is asked in its place where an estimator has
moved ``y``.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from softly import _inputs, native
from softly.estimators.grid_path import grid_path

__all__ = ["argmax", "assignment", "ranking", "shortest_path", "topk"]

_NAME = "softly.estimators.solvers"


class _ShortestPath:
    """The shortest path through a grid from its first cell to its last, ``sense="min"``: 1 on its cells, 0 elsewhere.

    Costs are (..., height, width), one for each cell, and a step goes to one of the 8 cells around. A negative cost is
    refused. Costs that noise has made negative are clamped at 0, since a walk could otherwise earn without end:
    estimators ask ``shortest_path.perturbed``. A cell of infinite cost is a wall. Of several shortest paths the one
    with the fewest cells is taken, then the one through the first cell.

    Example:
        >>> costs = torch.tensor([[1.0, 9.0, 9.0], [1.0, 9.0, 9.0], [9.0, 1.0, 1.0]])
        >>> softly.estimators.solvers.shortest_path(costs)
        tensor([[1., 0., 0.],
                [1., 0., 0.],
                [0., 1., 1.]])
    """

    __name__ = __qualname__ = "shortest_path"
    _name = f"{_NAME}.shortest_path"

    def __call__(self, costs: Tensor) -> Tensor:
        self.check(costs)
        return self._solve(costs, clamped=False)

    def perturbed(self, costs: Tensor) -> Tensor:
        """The same where noise may have made costs negative: those count as 0."""
        return self._solve(costs, clamped=True)

    def check(self, costs: Tensor) -> None:
        """Refuse costs that are negative."""
        _inputs.floating(costs, self._name, "costs")
        if costs.ndim < 2 or 0 in costs.shape[-2:]:
            raise ValueError(f"{self._name}: costs must have shape (..., height, width), got {tuple(costs.shape)}.")
        read = native.data(costs)
        if read is not None and bool((read < 0).any()):
            raise ValueError(
                f"{self._name}: costs must not be negative, got {read.min().item():g}. Make them positive, by softplus "
                f"for example, or ask shortest_path.perturbed, which takes them as 0."
            )

    def _solve(self, costs: Tensor, clamped: bool) -> Tensor:
        result = _inputs.at_least_single(
            lambda x: grid_path(x.reshape(-1, *x.shape[-2:]), clamped).reshape(x.shape), costs.detach()
        )
        read, known = native.data(result), native.data(costs)
        if read is not None and known is not None and bool(read.isnan().any() & ~known.isnan().any()):
            raise ValueError(f"{self._name}: there must be a path of finite cost, got a grid that has none.")
        return result


shortest_path = _ShortestPath()
"""The shortest path through a grid of costs, as the class says."""


def _honest(y: Tensor, solution: Tensor, dims: int = 1) -> Tensor:
    """The solution, NaN where the scores have one."""
    unknown = y.isnan().flatten(-dims).any(-1).reshape(*y.shape[: y.ndim - dims], *[1] * dims)
    return torch.where(unknown, torch.nan, solution.to(y.dtype))


def argmax(y: Tensor) -> Tensor:
    """The largest score, ``sense="max"``: 1 there and 0 elsewhere.

    The entries of a solution sum to 1; of equal scores one is taken.

    Args:
        y: (..., n) Scores.

    Example:
        >>> softly.estimators.solvers.argmax(torch.tensor([0.1, 2.0, 0.3]))
        tensor([0., 1., 0.])
    """
    return topk(y, 1)


def topk(y: Tensor, k: int) -> Tensor:
    """The k largest scores, ``sense="max"``: 1 there and 0 elsewhere. As a solver, ``functools.partial(topk, k=3)``.

    The entries of a solution sum to k; of equal scores as many as needed are taken.

    Args:
        y: (..., n) Scores.
        k: In [1, n].

    Example:
        >>> softly.estimators.solvers.topk(torch.tensor([0.1, 2.0, 0.3]), 2)
        tensor([0., 1., 1.])
    """
    _inputs.floating(y, f"{_NAME}.topk", "y")
    if y.ndim == 0 or not 1 <= _inputs.integer(k, f"{_NAME}.topk", "k") <= y.shape[-1]:
        most = y.shape[-1] if y.ndim else 0
        raise ValueError(f"{_NAME}.topk: k must be in [1, {most}], got {k}.")
    y = y.detach()
    return _honest(y, torch.zeros_like(y).scatter(-1, y.topk(k, -1).indices, 1.0))


def ranking(y: Tensor) -> Tensor:
    """The ranks of scores from 1, the lowest, to n, ``sense="max"``: of all orders of 1 to n the one closest to ``y``.

    The entries of a solution are 1 to n; equal scores are ranked by their places.

    Args:
        y: (..., n) Scores.

    Example:
        >>> softly.estimators.solvers.ranking(torch.tensor([0.1, 2.0, 0.3]))
        tensor([1., 3., 2.])
    """
    _inputs.floating(y, f"{_NAME}.ranking", "y")
    if y.ndim == 0:
        raise ValueError(f"{_NAME}.ranking: y must have at least one dimension, got a single number.")
    y = y.detach()
    return _honest(y, y.argsort(dim=-1, stable=True).argsort(-1) + 1)


def assignment(y: Tensor, *, sense: Literal["max", "min"] = "max") -> Tensor:
    """The best matching of rows with columns, by scipy: 1 where a row has its column and 0 elsewhere.

    Every row of a solution has one 1 and every column at most one; there must be no more rows than columns.

    Args:
        y: (..., n, m) Scores, n <= m.
        sense: Whether the sum of the chosen is the largest or the smallest.

    Example:
        >>> softly.estimators.solvers.assignment(torch.tensor([[1.0, 2.0], [0.0, 5.0]]))
        tensor([[1., 0.],
                [0., 1.]])
    """
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError as error:
        raise ImportError(f"{_NAME}.assignment: needs scipy, which is not installed.") from error
    _inputs.floating(y, f"{_NAME}.assignment", "y")
    if sense not in ("max", "min"):
        raise ValueError(f"{_NAME}.assignment: sense must be 'max' or 'min', got {sense!r}.")
    if y.ndim < 2 or y.shape[-2] > y.shape[-1]:
        raise ValueError(f"{_NAME}.assignment: y must have shape (..., n, m) with n <= m, got {tuple(y.shape)}.")
    y = y.detach()
    flat = y.reshape(-1, *y.shape[-2:]).double().cpu()
    solution = torch.zeros_like(flat)
    for grid, out in zip(flat, solution, strict=True):
        if not grid.isnan().any():
            rows, columns = linear_sum_assignment(grid.numpy(), maximize=sense == "max")
            out[rows, columns] = 1.0
    return _honest(y, solution.reshape(y.shape).to(y.device), 2)
