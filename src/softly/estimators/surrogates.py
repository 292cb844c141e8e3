"""Values with derivatives that are not their own: what estimators and losses hand to autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from softly.estimators.calls import rows
from softly.estimators.noise import Noise, twice


class _LogRatio(torch.autograd.Function):
    """The logarithm of a density over itself: 0, with the derivatives of the logarithm."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, noise: Noise) -> Tensor:
        return torch.zeros_like(z)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        z, ctx.noise = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(z)
        ctx.save_for_forward(z)

    @staticmethod
    def _slope(ctx: Any) -> Tensor:
        (z,) = ctx.saved_tensors
        score = ctx.noise.distribution._score(z)
        reason = twice(ctx.noise.distribution)
        return -score if reason is None else -once(score, f"{ctx.noise.function}: {reason}")

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> tuple[Tensor | None, None]:
        return None if grad is None else grad * _LogRatio._slope(ctx), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return tangent * _LogRatio._slope(ctx)


class _Once(torch.autograd.Function):
    """What must not be differentiated."""

    generate_vmap_rule = True

    @staticmethod
    def forward(message: str, x: Tensor, *of: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.message, ctx.count = inputs[0], len(inputs)
        ctx.set_materialize_grads(False)  # who asks for no derivative is given none

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        if grad is None:
            return (None,) * ctx.count
        raise RuntimeError(ctx.message)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(ctx.message)


def once(x: Tensor, message: str, *of: Tensor) -> Tensor:
    """``x``, which depends on ``of`` and on what it is made of, and raises ``message`` when it is differentiated."""
    return _Once.apply(message, x, *of)


def reweighted(noise: Noise, y: Tensor, read: Tensor, drawn: Tensor, centred: Tensor) -> Tensor:
    """0 with the derivatives, of any order, that the mean over samples has in the centre of their distribution.

    When the centre moves, the points stay and their weights become the ratio of the densities. The derivatives of that
    ratio are the scores.

    Args:
        noise: Of the samples.
        y: (B, ...) The centre, as autograd sees it.
        read: (B, ...) Its numbers.
        drawn: (S, B, ...) The standard noise.
        centred: (S, B, ...) The values at the samples, less their baseline.

    Returns:
        (B, ...) Like a sample's values, in float64.
    """
    z = noise.residual(read, y - read, drawn)
    ratio = torch.expm1(rows(_LogRatio.apply(z, noise), 2).sum(2))
    return (centred * ratio.reshape(*ratio.shape, *[1] * (centred.ndim - 2))).mean(0)


class _WithGradient(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(value: Tensor, y: Tensor, gradient: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, _, gradient = inputs
        ctx.save_for_backward(gradient)
        ctx.save_for_forward(gradient)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return grad, grad.reshape(*grad.shape, *[1] * (gradient.ndim - grad.ndim)) * gradient, None

    @staticmethod
    def jvp(ctx: Any, value: Tensor | None, y: Tensor | None, _: Any) -> Any:
        (gradient,) = ctx.saved_tensors
        dims = list(range(1, gradient.ndim))
        total = 0.0 if value is None else value
        if y is not None:
            total = total + ((y * gradient).sum(dims) if dims else y * gradient)
        return total


def with_gradient(value: Tensor, y: Tensor, gradient: Tensor) -> Tensor:
    """``value`` (B,), whose derivative in ``y`` (B, ...) is ``gradient`` (B, ...).

    Further derivatives are those of ``gradient``, and those of ``value`` are kept.
    """
    return _WithGradient.apply(value, y, gradient)
