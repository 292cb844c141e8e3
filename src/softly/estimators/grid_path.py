"""Shortest paths through grids of node weights, as an operator."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from softly import native


def _forward(costs: Tensor, clamped: bool) -> Tensor:
    out = torch.empty_like(costs)
    kernel = native.kernel("grid_path", costs.dtype)
    if not kernel(costs.data_ptr(), out.data_ptr(), *costs.shape, clamped, torch.get_num_threads()):
        raise MemoryError("softly.estimators.solvers.shortest_path: no memory for the scratch space.")
    return out


def _around(x: Tensor) -> Tensor:
    """(..., h, w, 8) What is around each cell, row by row; infinite outside of the grid."""
    framed = torch.nn.functional.pad(x, (1, 1, 1, 1), value=torch.inf)
    windows = framed.unfold(-2, 3, 1).unfold(-2, 3, 1).flatten(-2)
    return torch.cat((windows[..., :4], windows[..., 5:]), -1)


def _least_around(x: Tensor) -> Tensor:
    """(..., h, w) The least of each cell and those around it."""
    framed = torch.nn.functional.pad(x, (1, 1, 1, 1), value=torch.inf)
    rows = torch.minimum(torch.minimum(framed[..., :-2], framed[..., 1:-1]), framed[..., 2:])
    return torch.minimum(torch.minimum(rows[..., :-2, :], rows[..., 1:-1, :]), rows[..., 2:, :])


def _repeated(change: Callable[[Tensor], Tensor], x: Tensor, times: int) -> Tensor:
    """``change`` done so many times to ``x``, or as often as it changes anything, where that can be read."""
    for _ in range(times):
        before, x = x, change(x)
        known, read = native.data(before), native.data(x)
        if known is not None and read is not None and torch.equal(known, read):
            break
    return x


def _reference(costs: Tensor, clamped: bool) -> Tensor:
    """Rounds of all cells at once, until nothing changes: as many as the longest of all shortest paths has cells.

    Compiled code can't read that, and does as many as there are cells.
    """
    bad = costs.isnan() if clamped else ~(costs >= 0)
    costs = torch.where(bad, torch.inf, costs.clamp(min=0.0))
    h, w = costs.shape[-2:]
    n = h * w
    cells = torch.arange(n, device=costs.device).reshape(h, w)
    first = cells == 0
    # What a cell costs is no less than 0: to stay is never shorter.
    start = torch.where(first, costs, torch.inf)
    distance = _repeated(lambda x: torch.minimum(x, _least_around(x) + costs), start, n)
    near = _around(distance)
    nearest = near == near.amin(-1, keepdim=True)
    begun = torch.where(first, 0.0, torch.full_like(costs, torch.inf))
    fewest = lambda x: torch.where(nearest, _around(x), torch.inf).amin(-1)  # noqa: E731
    steps = _repeated(lambda x: torch.where(first, 0.0, fewest(x) + 1.0), begun, n)
    # Of several the first, which argmax does not promise.
    fit = nearest & (_around(steps) == fewest(steps).unsqueeze(-1))
    chosen = torch.where(fit, torch.arange(8, device=costs.device), 8).amin(-1).clamp(max=7)
    offsets = torch.tensor([-w - 1, -w, -w + 1, -1, 1, w - 1, w, w + 1], device=costs.device)
    before = torch.where(first, 0, cells + offsets[chosen]).clamp(0, n - 1).flatten(-2)
    # From the last cell back: what is 1, 2, 4, ... cells before a cell of the path belongs to it.
    path = (torch.zeros_like(costs) + (cells == n - 1)).flatten(-2)
    for _ in range(n.bit_length()):
        path = (path + torch.zeros_like(path).scatter_add(-1, before, path)).clamp(max=1.0)
        before = before.gather(-1, before)
    lost = bad.flatten(-2).any(-1, keepdim=True) | ~(distance.flatten(-2)[..., -1:] < torch.inf)
    return torch.where(lost, torch.nan, path).reshape(costs.shape)


grid_path = native.Operator(
    "grid_path",
    forward=_forward,
    shape=lambda costs, clamped: costs.new_empty(costs.shape),
    backward=None,
    reference=_reference,
)
