"""Losses whose gradients and Hessians are known in closed form, by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from softly.estimators import Derivatives


def _squared_error(y: Tensor, target: Tensor) -> Derivatives:
    difference = y - target
    hessian = torch.eye(y.shape[-1]).to(y).expand(len(y), -1, -1)
    return Derivatives(0.5 * difference.square().sum(-1), difference, hessian)


def _softmax_cross_entropy(y: Tensor, target: Tensor) -> Derivatives:
    log_q = y.log_softmax(-1)
    q, total = log_q.exp(), target.sum(-1, keepdim=True)
    hessian = total.unsqueeze(-1) * (torch.diag_embed(q) - q.unsqueeze(-1) * q.unsqueeze(-2))
    return Derivatives(-(target * log_q).sum(-1), total * q - target, hessian)


def _binary_cross_entropy(y: Tensor, target: Tensor) -> Derivatives:
    other, rest = 1.0 - y, 1.0 - target
    value = -torch.xlogy(target, y) - torch.xlogy(rest, other)
    curvature = _ratio(target, y * y) + _ratio(rest, other * other)
    return Derivatives(value.sum(-1), _ratio(rest, other) - _ratio(target, y), torch.diag_embed(curvature))


def _ratio(p: Tensor, y: Tensor) -> Tensor:
    """p / y, which is 0 where p is, as the logarithm that it comes from is left out there."""
    return torch.where(p == 0, 0.0, p / torch.where(p == 0, 1.0, y))


def _sigmoid_binary_cross_entropy(y: Tensor, target: Tensor) -> Derivatives:
    value = torch.nn.functional.binary_cross_entropy_with_logits(y, target, reduction="none").sum(-1)
    q = y.sigmoid()
    return Derivatives(value, q - target, torch.diag_embed(q * (-y).sigmoid()))


CLOSED_FORMS: dict[str, Callable[[Tensor, Tensor], Derivatives]] = {
    "squared_error": _squared_error,
    "softmax_cross_entropy": _softmax_cross_entropy,
    "binary_cross_entropy": _binary_cross_entropy,
    "sigmoid_binary_cross_entropy": _sigmoid_binary_cross_entropy,
}


def one_hot(y: Tensor, target: Tensor, name: str, function: str) -> Tensor:
    """Targets of the shape of ``y`` (B, m); class numbers (B,) are taken by the softmax cross-entropy."""
    if name == "softmax_cross_entropy" and target.shape == y.shape[:1] and not target.is_floating_point():
        bad = target[(target < 0) | (target >= y.shape[-1])]
        if len(bad):
            raise ValueError(f"{function}: classes must be in [0, {y.shape[-1] - 1}], got {int(bad[0])}.")
        return torch.nn.functional.one_hot(target.long(), y.shape[-1]).to(y)
    if target.shape != y.shape:
        raise ValueError(
            f"{function}: the target must have the shape of y, {tuple(y.shape)}, got {tuple(target.shape)}."
        )
    return target.to(y)
