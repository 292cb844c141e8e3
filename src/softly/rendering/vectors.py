"""Vectors in space."""

from __future__ import annotations

import torch
from torch import Tensor


def unit(x: Tensor) -> Tensor:
    """``x`` at length 1; what has none stays 0."""
    square = x.square().sum(-1, keepdim=True)
    zero = square == 0
    return torch.where(zero, 0.0, x / torch.where(zero, 1.0, square).sqrt())
