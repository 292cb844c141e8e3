"""Solvers with a gradient from two of their answers, or from none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from softly import native
from softly._compiling import outside
from softly.estimators import calls
from softly.estimators.perturbed import (
    Reduction,
    Sense,
    check,
    checked_reduction,
    checked_sense,
    readable,
    reduced,
    solutions,
)
from softly.estimators.surrogates import once, with_gradient

__all__ = ["SpoPlusLoss", "blackbox", "negative_identity"]


def positive(value: float, function: str, argument: str) -> float:
    """Refuse what isn't a positive and finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{function}: {argument} must be a number, got {type(value).__name__}.")
    if not 0 < value < float("inf"):
        raise ValueError(f"{function}: {argument} must be positive and finite, got {value}.")
    return float(value)


class _Answered(torch.autograd.Function):
    """An answer with a gradient that another function makes of the one that comes in."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, answer: Tensor, pull: Callable[[Tensor], Tensor], function: str) -> Tensor:
        ctx.pull, ctx.function = pull, function
        ctx.save_for_backward(y)
        return answer.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        read = native.data(grad)
        if read is None or native.transformed(grad):
            raise RuntimeError(f"{ctx.function}: it takes one gradient at a time, since the solver is asked for each.")
        pulled = ctx.pull(read)
        if torch.is_grad_enabled():
            message = f"{ctx.function}: there is no second derivative, since the gradient is made of solutions."
            pulled = once(pulled, message, grad, *ctx.saved_tensors)
        return pulled, None, None, None

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(f"{ctx.function}: there is a gradient, but no forward-mode derivative.")


def answered(y: Tensor, answer: Tensor, pull: Callable[[Tensor], Tensor], function: str) -> Tensor:
    """``answer``, whose gradient in ``y`` is ``pull`` of the one that comes in; plain autograd only, and once."""
    if native.transformed(y):
        raise RuntimeError(f"{function}: torch.func and forward mode can't see through a solver: use torch.autograd.")
    return _Answered.apply(y, answer, pull, function)


def blackbox(
    solver: Callable[..., Any], *, strength: float = 20.0, sense: Sense = "min", vectorized: bool = True
) -> Callable[[Tensor], Tensor]:
    """A solver with the gradient of its linearisation: what changes when the problem moves along the incoming gradient.

    The value is the hard solution. For ``sense="min"`` the gradient is ``(solver(y + strength g) - solver(y)) /
    strength`` for the incoming gradient g, for "max" that with both signs turned: that of a piecewise linear
    interpolation of the loss, which tends to the true one, 0 almost everywhere, as ``strength -> 0``. It takes one
    more call of the solver.

    Args:
        solver: Returns the best solution for scores or costs (1, B, ...), in their shape.
        strength: How far the problem is moved, > 0.
        sense: Whether the solver maximises or minimises.
        vectorized: Whether the solver takes (1, B, ...), as the other estimators call it. If not, it is called with
            (B, ...).

    Returns:
        A function of ``y`` (B, ...).

    Example:
        >>> solve = softly.estimators.blackbox(softly.estimators.solvers.argmax, strength=2.0, sense="max")
        >>> y = torch.tensor([[0.0, 1.0]], requires_grad=True)
        >>> solution = solve(y)
        >>> solution
        tensor([[0., 1.]], grad_fn=<...>)
        >>> (solution * torch.tensor([[0.0, 1.0]])).sum().backward()
        >>> y.grad
        tensor([[-0.5000,  0.5000]])
    """
    name = "softly.estimators.blackbox"
    step = positive(strength, name, "strength") * (1.0 if checked_sense(sense, name) == "min" else -1.0)

    @outside(calls.OUTSIDE)
    def solve(y: Tensor) -> Tensor:
        read = readable(solver, y, name)
        here = solutions(solver, read[None], name, vectorized=vectorized, moved=False)[0]

        def pull(grad: Tensor) -> Tensor:
            there = solutions(solver, (read + step * grad)[None], name, vectorized=vectorized)[0]
            return (there - here) / step

        return answered(y, here, pull, name)

    return solve


def negative_identity(
    solver: Callable[..., Any], *, sense: Sense = "min", vectorized: bool = True
) -> Callable[[Tensor], Tensor]:
    """A solver whose gradient is minus the identity (``sense="min"``), or the identity ("max").

    The value is the hard solution; a cost that rises makes its part of the solution smaller, and that is all that the
    gradient says. It takes no further call of the solver.

    Args:
        solver: Returns the best solution for scores or costs (1, B, ...), in their shape.
        sense: Whether the solver maximises or minimises.
        vectorized: Whether the solver takes (1, B, ...). If not, it is called with (B, ...).

    Returns:
        A function of ``y`` (B, ...).

    Example:
        >>> solve = softly.estimators.negative_identity(softly.estimators.solvers.argmax, sense="max")
        >>> y = torch.tensor([[0.0, 1.0]], requires_grad=True)
        >>> (solve(y) * torch.tensor([[3.0, 4.0]])).sum().backward()
        >>> y.grad
        tensor([[3., 4.]])
    """
    name = "softly.estimators.negative_identity"
    sign = -1.0 if checked_sense(sense, name) == "min" else 1.0

    @outside(calls.OUTSIDE)
    def solve(y: Tensor) -> Tensor:
        read = readable(solver, y, name)
        here = solutions(solver, read[None], name, vectorized=vectorized, moved=False)[0]
        return answered(y, here, lambda grad: sign * grad, name)

    return solve


class SpoPlusLoss(torch.nn.Module):
    """The SPO+ loss: a convex bound on how much worse the solution for predicted costs is under the true ones.

    For ``sense="min"`` it is ``-min_w <2 y - costs, w> + 2 <y, w*> - <costs, w*>`` with w* the solution for the true
    costs, for "max" the same with all signs turned and the maximum. It is 0 where ``y`` is ``costs``, and at least the
    regret ``<costs, solver(y) - w*>``. Its subgradient is ``2 (w* - solver(2 y - costs))``, of the other sign for
    "max".

    The solver is asked about ``2 y - costs`` as it is: `solvers.shortest_path` refuses that where it is negative.

    Args:
        solver: Returns the best solution for scores or costs (1, B, ...), in their shape.
        sense: Whether the solver maximises or minimises.
        vectorized: Whether the solver takes (1, B, ...). If not, it is called with (B, ...).
        reduction: "mean" or "sum" over examples, or "none".

    Example:
        >>> loss = softly.estimators.SpoPlusLoss(softly.estimators.solvers.argmax, sense="max")
        >>> loss(torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]))
        tensor(3.)
    """

    _name = "softly.estimators.SpoPlusLoss"

    def __init__(
        self,
        solver: Callable[..., Any],
        *,
        sense: Sense = "min",
        vectorized: bool = True,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        self.solver, self.sense, self.vectorized = solver, checked_sense(sense, self._name), vectorized
        self.reduction = checked_reduction(reduction, self._name)

    @outside(calls.OUTSIDE)
    def forward(self, y: Tensor, costs: Tensor, solution: Tensor | None = None) -> Tensor:
        """The loss.

        Args:
            y: (B, ...) Predicted scores or costs.
            costs: (B, ...) The true ones.
            solution: (B, ...) The solution for ``costs``; None asks the solver.
        """
        calls.constant((costs, solution), self._name)
        read = calls.readable(y, self._name)
        costs = calls.readable(costs, self._name).to(read)
        if costs.shape != read.shape:
            raise ValueError(
                f"{self._name}: costs must have the shape of y, {tuple(read.shape)}, got {tuple(costs.shape)}."
            )
        ask = {"vectorized": self.vectorized, "moved": False}
        if solution is None:
            solution = solutions(self.solver, costs[None], self._name, **ask)[0]
        elif solution.shape != read.shape:
            raise ValueError(
                f"{self._name}: solution must have the shape of y, {tuple(read.shape)}, got {tuple(solution.shape)}."
            )
        solution = solution.to(read)
        beyond = 2.0 * read - costs
        check(self.solver, beyond)
        there = solutions(self.solver, beyond[None], self._name, **ask)[0]
        sign = 1.0 if self.sense == "min" else -1.0
        total = 2.0 * read * solution - costs * solution - beyond * there
        message = f"{self._name}: there is no second derivative, since the gradient is made of solutions."
        gradient = once(2.0 * sign * (solution - there), message, y)
        return reduced(with_gradient(sign * calls.rows(total, 1).sum(1), y, gradient), self.reduction)

    def extra_repr(self) -> str:
        return f"{calls.name_of(self.solver)}, sense={self.sense!r}"
