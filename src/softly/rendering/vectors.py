"""Vectors in space."""

from __future__ import annotations

import torch
from torch import Tensor

# By x, y and z apart: torch takes longer for sums over three numbers than for all the rest.


def dot(a: Tensor, b: Tensor) -> Tensor:
    """(..., 1) The inner products of vectors (..., 3)."""
    (ax, ay, az), (bx, by, bz) = a.unbind(-1), b.unbind(-1)
    return (ax * bx + ay * by + az * bz).unsqueeze(-1)


def unit(x: Tensor) -> Tensor:
    """``x`` at length 1; what has none stays 0."""
    square = dot(x, x).squeeze(-1)
    zero = square == 0
    inverse = 1.0 / torch.where(zero, 1.0, square).sqrt()
    return torch.stack([torch.where(zero, 0.0, part * inverse) for part in x.unbind(-1)], -1)


def interpolated(values: Tensor, weights: Tensor) -> Tensor:
    """(..., C) Of values (..., 3, C) at the corners of triangles, by weights (..., 3) of them."""
    (a, b, c), (u, v, w) = values.unbind(-2), weights.unsqueeze(-1).unbind(-2)
    return a * u + b * v + c * w
