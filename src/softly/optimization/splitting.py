"""Splitting backpropagation: one step on a stage, and training towards where it leads."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from softly import _inputs, native
from softly._compiling import outside

__all__ = ["split"]

OUTSIDE = (
    "softly.optimization: a step on a loss runs outside of compiled code. Compile the model without fullgraph=True, or "
    "compile what is before and after it."
)
Reduction = Literal["sum", "mean"]
Step = float | Callable[..., Any]


def checked_reduction(reduction: Reduction, function: str) -> Reduction:
    if reduction not in ("sum", "mean"):
        raise ValueError(f"{function}: reduction must be 'sum' or 'mean', got {reduction!r}.")
    return reduction


def untransformed(z: Tensor, function: str) -> None:
    """Refuse function transforms, inside of which no gradient of one's own can be taken."""
    if native.transformed(z):
        raise RuntimeError(f"{function}: a step is done by plain autograd, outside of torch.func and forward mode.")


def pulled_to(z: Tensor, target: Tensor, reduction: Reduction) -> Tensor:
    """``½ |z - target|²``, whose gradient is ``z - target``."""
    share = 0.5 / len(z) if reduction == "mean" and len(z) else 0.5
    return share * torch.nn.functional.mse_loss(z, target.detach(), reduction="sum")


def split(stage: Callable[..., Tensor], *, step: Step = 1.0) -> Callable[..., Tensor]:
    """A loss that stands for a stage of training: its gradient at z is ``z - z*``, with z* one step on the stage.

    What is before z is trained towards z*, by whatever optimizes it, while the stage is optimized in its own way. With
    gradient descent and ``step=1.0`` this is backpropagation, exactly. Parameters inside the stage get the gradients
    that they have without the split. The value is ``½ |z - z*|²``. Stages nest: a stage may itself end in a split.

    Args:
        stage: ``(z, *args)`` returns a scalar, such as a loss after the later layers of a network.
        step: Leads from z to z*. A number is the step size of gradient descent. A class of `torch.optim`, or a
            ``functools.partial`` of one, does one step from its initial state. Any other callable is ``(z, *args) ->
            z*`` itself, such as `NewtonLoss.target` and `Resgro.target`; the stage is then needed for its parameters
            only.

    Returns:
        A function ``(z, *args)`` that returns a scalar.

    Example:
        >>> stage = lambda z: (z - 1.0).square().sum()
        >>> z = torch.zeros(3, requires_grad=True)
        >>> softly.optimization.split(stage, step=0.25)(z).backward()
        >>> z.grad
        tensor([-0.5000, -0.5000, -0.5000])
    """
    name = "softly.optimization.split"
    if isinstance(step, bool) or not (isinstance(step, (int, float)) or callable(step)):
        raise TypeError(f"{name}: step must be a number or callable, got {type(step).__name__}.")
    if isinstance(step, (int, float)) and not 0 < step < float("inf"):
        raise ValueError(f"{name}: a step that is a number must be positive and finite, got {step}.")

    @outside(OUTSIDE)
    def loss(z: Tensor, *args: Any) -> Tensor:
        read = _read(z, name)
        with torch.enable_grad():
            leaf = read.detach().clone().requires_grad_()
            value = stage(leaf, *args)
        if not isinstance(value, Tensor) or value.ndim:
            got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"{name}: the stage must return a scalar, got {got}.")
        target = _end(value, leaf, args, stage, step, name)
        if target.shape != read.shape:
            raise ValueError(f"{name}: step must return shape {tuple(read.shape)}, got {tuple(target.shape)}.")
        pulled = pulled_to(z, target.to(read), "sum")
        # The value of the stage has the gradients of its parameters; to z it is a constant.
        return pulled + (value - value.detach()) if torch.is_grad_enabled() and trained(value, leaf) else pulled

    return loss


def _read(z: Tensor, function: str) -> Tensor:
    _inputs.floating(z, function, "z")
    untransformed(z, function)
    read = native.data(z)
    if read is None:
        raise RuntimeError(f"{function}: z has no numbers that a step could start from. {OUTSIDE}")
    return read


def trained(value: Tensor, leaf: Tensor) -> bool:
    """Whether anything but the leaf gets a gradient from the value."""
    found, seen = [value.grad_fn], set()
    while found:
        node = found.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None and variable is not leaf:
            return True
        found.extend(following for following, _ in node.next_functions)
    return False


def _optimizer(step: Step) -> Callable[..., torch.optim.Optimizer] | None:
    inner = step
    while isinstance(inner, functools.partial):
        inner = inner.func
    if isinstance(inner, type) and issubclass(inner, torch.optim.Optimizer):
        return step  # type: ignore[return-value]
    return None


def _end(
    value: Tensor, leaf: Tensor, args: Sequence[Any], stage: Callable[..., Tensor], step: Step, function: str
) -> Tensor:
    """z*."""
    factory = _optimizer(step)
    if callable(step) and factory is None:
        end = step(leaf.detach(), *args)
        if not isinstance(end, Tensor):
            raise TypeError(
                f"{function}: step must return z*, a tensor, got {type(end).__name__}. Give a class of torch.optim as "
                "it is, or in a functools.partial."
            )
        return end.detach()
    if not value.requires_grad:
        raise ValueError(
            f"{function}: the stage does not depend on z by differentiable operations: give a step that needs no "
            "gradient, such as softly.Resgro(...).target."
        )
    (gradient,) = torch.autograd.grad(value, leaf, retain_graph=True, allow_unused=True)
    if gradient is None:
        raise ValueError(f"{function}: the stage does not depend on z.")
    if not callable(step):
        return leaf.detach() - step * gradient
    moved = leaf.detach().clone().requires_grad_()
    moved.grad = gradient.clone()
    assert factory is not None
    optimizer = factory([moved])

    def again() -> Tensor:
        with torch.enable_grad():
            result = stage(moved, *args)
            (moved.grad,) = torch.autograd.grad(result, moved)
        return result.detach()

    if isinstance(optimizer, torch.optim.LBFGS):
        optimizer.step(again)
    else:
        optimizer.step()
    return moved.detach()
