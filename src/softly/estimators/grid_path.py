"""Shortest paths through grids of node weights, as an operator."""

from __future__ import annotations

import torch
from torch import Tensor

from softly import native


def _forward(costs: Tensor, clamped: bool) -> Tensor:
    out = torch.empty_like(costs)
    kernel = native.kernel("grid_path", costs.dtype)
    if not kernel(costs.data_ptr(), out.data_ptr(), *costs.shape, clamped, torch.get_num_threads()):
        raise MemoryError("softly.estimators.solvers.shortest_path: no memory for the scratch space.")
    return out


def _around(x: Tensor, outside: float) -> Tensor:
    """(..., h, w, 8) What is around each cell, row by row."""
    framed = torch.nn.functional.pad(x, (1, 1, 1, 1), value=outside)
    windows = framed.unfold(-2, 3, 1).unfold(-2, 3, 1).flatten(-2)
    return torch.cat((windows[..., :4], windows[..., 5:]), -1)


def _reference(costs: Tensor, clamped: bool) -> Tensor:
    """As many rounds of all cells at once as there are cells: the longest path has no more."""
    bad = costs.isnan() if clamped else ~(costs >= 0)
    costs = torch.where(bad, torch.inf, costs.clamp(min=0.0))
    h, w = costs.shape[-2:]
    n = h * w
    first = torch.arange(n, device=costs.device).reshape(h, w) == 0
    start = torch.where(first, costs, torch.inf)
    distance, steps = start, torch.zeros_like(costs)
    for _ in range(n):
        near, far = _around(distance, torch.inf), _around(steps, torch.inf)
        least = near.amin(-1, keepdim=True)
        fewest = torch.where(near == least, far, torch.inf).amin(-1)
        distance = torch.where(first, start, least.squeeze(-1) + costs)
        steps = torch.where(first, 0.0, fewest + 1.0)
    near, far = _around(distance, torch.inf), _around(steps, torch.inf)
    nearest = near == near.amin(-1, keepdim=True)
    fewest = torch.where(nearest, far, torch.inf).amin(-1, keepdim=True)
    # Of several the first, which argmax does not promise.
    chosen = torch.where(nearest & (far == fewest), torch.arange(8, device=costs.device), 8).amin(-1).clamp(max=7)
    offsets = torch.tensor([-w - 1, -w, -w + 1, -1, 1, w - 1, w, w + 1], device=costs.device)
    cells = torch.arange(n, device=costs.device).reshape(h, w)
    before = torch.where(first, 0, cells + offsets[chosen]).clamp(0, n - 1).flatten(-2)
    at = torch.full_like(before[..., :1], n - 1)
    path = torch.zeros_like(costs.flatten(-2))
    for _ in range(n):
        path = path.scatter(-1, at, 1.0)
        at = before.gather(-1, at)
    lost = bad.flatten(-2).any(-1, keepdim=True) | ~(distance.flatten(-2)[..., -1:] < torch.inf)
    return torch.where(lost, torch.nan, path).reshape(costs.shape)


grid_path = native.Operator(
    "grid_path",
    forward=_forward,
    shape=lambda costs, clamped: costs.new_empty(costs.shape),
    backward=None,
    reference=_reference,
)
