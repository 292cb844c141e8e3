"""What losses and metrics over lists share: which entries there are, gains, discounts and reductions."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from softly import _inputs, native

Reduction = Literal["mean", "sum", "none"]
REDUCTIONS = ("mean", "sum", "none")


def checked(scores: Tensor, grades: Tensor, lengths: Tensor | None, mask: Tensor | None, function: str) -> Tensor:
    """Which entries there are, (..., n), of scores and grades that belong together."""
    _inputs.floating(scores, function, "scores")
    if scores.shape != grades.shape or scores.ndim == 0:
        raise ValueError(
            f"{function}: scores and grades must have one shape (..., n), "
            f"got {tuple(scores.shape)} and {tuple(grades.shape)}."
        )
    valid = entries(scores, lengths, mask, function)
    known = native.data(torch.where(valid, grades.detach(), 0))
    if known is not None and not (known >= 0).all():
        raise ValueError(f"{function}: grades must not be negative, got {known.min().item()}.")
    return valid


def entries(x: Tensor, lengths: Tensor | None, mask: Tensor | None, function: str) -> Tensor:
    """Which entries of ``x`` (..., n) there are."""
    if lengths is not None and mask is not None:
        raise ValueError(f"{function}: give lengths or mask, not both.")
    if lengths is not None:
        if lengths.shape != x.shape[:-1] or lengths.is_floating_point() or lengths.dtype == torch.bool:
            raise ValueError(
                f"{function}: lengths must be integers of shape {tuple(x.shape[:-1])}, "
                f"got {lengths.dtype} of shape {tuple(lengths.shape)}."
            )
        return torch.arange(x.shape[-1], device=x.device) < lengths.unsqueeze(-1)
    if mask is not None:
        if mask.shape != x.shape or mask.dtype != torch.bool:
            raise ValueError(
                f"{function}: mask must be boolean of shape {tuple(x.shape)}, "
                f"got {mask.dtype} of shape {tuple(mask.shape)}."
            )
        return mask
    return torch.ones_like(x, dtype=torch.bool)


def gains(grades: Tensor, valid: Tensor, gain: str, dtype: torch.dtype, function: str) -> Tensor:
    """What an entry of a grade is worth, 0 where there is none."""
    if gain not in ("exponential", "linear"):
        raise ValueError(f"{function}: gain must be 'exponential' or 'linear', got {gain!r}.")
    worth = grades.to(dtype)
    return torch.where(valid, torch.exp2(worth) - 1.0 if gain == "exponential" else worth, 0.0)


def discounts(k: int, like: Tensor) -> Tensor:
    """What the first k ranks count: ``1 / log2(1 + rank)``."""
    return 1.0 / torch.log2(torch.arange(2, k + 2, dtype=like.dtype, device=like.device))


def reduce(losses: Tensor, counts: Tensor, reduction: str, function: str) -> Tensor:
    """What is left of the losses of lists, each a mean over so many counted things.

    "none" gives them as they are, "sum" their sum, and "mean" the mean over all that was counted.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"{function}: reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}.")
    if reduction == "mean":
        counts = counts.to(losses.dtype)
        return (losses * counts).sum() / counts.sum().clamp(min=1.0)
    return losses.sum() if reduction == "sum" else losses
