"""Sums of probabilities in logarithms, with derivatives of any order wherever they are."""

from __future__ import annotations

import math

import torch
from torch import Tensor

NOTHING = -1e30
"""Stands for log 0 on the way, as a number that has derivatives; no logarithm of a probability comes near it."""


def add(a: Tensor, b: Tensor) -> Tensor:
    """``log(exp(a) + exp(b))``; torch's has no second derivative where one is far above the other."""
    above = a > b
    return torch.where(above, a, b) + torch.log1p(torch.exp(torch.where(above, b - a, a - b)))


def log(p: Tensor) -> Tensor:
    """The logarithm of a probability, `NOTHING` at 0."""
    zero = p <= 0
    return torch.where(zero, NOTHING, torch.log(torch.where(zero, 1.0, p)))


def nothing(logarithm: Tensor) -> Tensor:
    """Where a logarithm is that of 0."""
    return logarithm < 0.5 * NOTHING


def floor(logarithm: Tensor) -> Tensor:
    """A logarithm with that of the smallest normal number, without a gradient, for that of 0."""
    return torch.where(nothing(logarithm), math.log(torch.finfo(logarithm.dtype).tiny), logarithm)
