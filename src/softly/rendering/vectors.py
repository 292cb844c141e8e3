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
    a, b, c = x.detach().abs().unbind(-1)
    largest = torch.maximum(torch.maximum(a, b), c)
    zero = largest == 0
    scaled = x / torch.where(zero, 1.0, largest).unsqueeze(-1)  # whose square is neither too small nor too large
    inverse = 1.0 / torch.where(zero, 1.0, dot(scaled, scaled).squeeze(-1)).sqrt()
    return torch.stack([torch.where(zero, 0.0, part * inverse) for part in scaled.unbind(-1)], -1)


def inverse(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse of (..., 3, 3), and the determinant (...)."""
    x, y, z = matrix.unbind(-2)
    columns = torch.stack([torch.linalg.cross(y, z), torch.linalg.cross(z, x), torch.linalg.cross(x, y)], -1)
    determinant = (x * columns[..., 0]).sum(-1)
    return columns / determinant[..., None, None], determinant


def interpolated(values: Tensor, weights: Tensor) -> Tensor:
    """(..., C) Of values (..., 3, C) at the corners of triangles, by weights (..., 3) of them."""
    (a, b, c), (u, v, w) = values.unbind(-2), weights.unsqueeze(-1).unbind(-2)
    return a * u + b * v + c * w
