"""Perturbed optimizers and their Fenchel-Young losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from softly._compiling import outside
from softly.distributions import Distribution
from softly.estimators import calls
from softly.estimators.noise import Noise, Sampler, scored
from softly.estimators.smoothing import Derivatives
from softly.estimators.surrogates import reweighted, with_gradient

__all__ = ["FenchelYoungLoss", "PerturbedOptimizer"]

Sense = Literal["max", "min"]
Reduction = Literal["none", "mean", "sum"]


def checked_sense(sense: Sense, function: str) -> Sense:
    if sense not in ("max", "min"):
        raise ValueError(f"{function}: sense must be 'max' or 'min', got {sense!r}.")
    return sense


def checked_reduction(reduction: Reduction, function: str) -> Reduction:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{function}: reduction must be 'none', 'mean' or 'sum', got {reduction!r}.")
    return reduction


def reduced(losses: Tensor, reduction: Reduction) -> Tensor:
    """Losses (B,) as ``reduction`` wants them."""
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()


def check(solver: Callable[..., Any], y: Tensor) -> None:
    """Let the solver refuse what it can't be asked about."""
    refuse = getattr(solver, "check", None)
    if refuse is not None:
        refuse(y)


def readable(solver: Callable[..., Any], y: Tensor, function: str) -> Tensor:
    """The numbers of ``y``, about which the solver can be asked."""
    read = calls.readable(y, function)
    check(solver, read)
    return read


def solutions(solver: Callable[..., Any], x: Tensor, function: str, *, vectorized: bool, moved: bool = True) -> Tensor:
    """The solver's answers to ``x`` (S, B, ...); ``moved`` tells whether that is no longer what the user gave."""
    ask = getattr(solver, "perturbed", solver) if moved else solver
    return calls.evaluate(ask, x, (), function, vectorized=vectorized, like=x[0])


class _Perturbed(torch.nn.Module):
    """What perturbed optimizers and their losses have in common."""

    _name: str

    def __init__(
        self,
        solver: Callable[..., Any],
        *,
        sense: Sense,
        distribution: str | Distribution,
        scale: float | Tensor,
        num_samples: int,
        noise: Literal["additive", "multiplicative"],
        sampler: Sampler,
        antithetic: bool,
        vectorized: bool,
        generator: torch.Generator | None,
    ) -> None:
        super().__init__()
        if noise not in ("additive", "multiplicative"):
            raise ValueError(f"{self._name}: noise must be 'additive' or 'multiplicative', got {noise!r}.")
        self.solver, self.sense, self.vectorized = solver, checked_sense(sense, self._name), vectorized
        self.noise = Noise(
            self._name,
            scored(distribution, self._name),
            scale,
            num_samples,
            sampler=sampler,
            antithetic=antithetic,
            grouped=True,
            multiplicative=noise == "multiplicative",
            generator=generator,
        )

    def extra_repr(self) -> str:
        noise = self.noise
        return (
            f"{calls.name_of(self.solver)}, sense={self.sense!r}, {noise.distribution}, num_samples={noise.num_samples}"
        )

    def _solve(self, read: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The standard noise, the points and the solutions there."""
        drawn = self.noise.draw(read)
        points = self.noise.points(read, drawn)
        return drawn, points, solutions(self.solver, points, self._name, vectorized=self.vectorized)


class PerturbedOptimizer(_Perturbed):
    """The mean solution under noise, ``E[solver(y + scale noise)]``, which has a gradient.

    As ``scale -> 0`` this is the solution at ``y``, where there is one only; at every scale it lies in the convex
    hull of all solutions. With "gumbel_max" noise at scale 1 and `solvers.argmax` it is the softmax.

    Args:
        solver: Returns the best solution for scores or costs (S, B, ...), in their shape: any callable, those of
            `solvers` among them. It need not use torch.
        sense: Whether the solver maximises or minimises; the mean solution and its gradient are the same.
        distribution: Of the noise, as in `smooth`.
        scale: Of the noise, as in `smooth`.
        num_samples: How often the solver is called for each example, at least 2.
        noise: "additive", or "multiplicative": ``y exp(scale noise - scale² / 2)``, which keeps signs; Gaussian only.
        sampler, antithetic: How samples are drawn, as in `smooth`.
        vectorized: Whether the solver takes (S, B, ...). If not, it is called S times with (B, ...).
        generator: Of random numbers.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> soft = softly.estimators.PerturbedOptimizer(
        ...     softly.estimators.solvers.argmax, distribution="gumbel_max", scale=1.0, num_samples=100_000
        ... )
        >>> y = torch.tensor([[0.0, 1.0, 2.0]])
        >>> bool((soft(y) - y.softmax(-1)).abs().max() < 0.01)
        True
    """

    _name = "softly.estimators.PerturbedOptimizer"

    def __init__(
        self,
        solver: Callable[..., Any],
        *,
        sense: Sense = "max",
        distribution: str | Distribution = "gaussian",
        scale: float | Tensor = 1.0,
        num_samples: int = 10,
        noise: Literal["additive", "multiplicative"] = "additive",
        sampler: Sampler = "random",
        antithetic: bool = False,
        vectorized: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            solver,
            sense=sense,
            distribution=distribution,
            scale=scale,
            num_samples=num_samples,
            noise=noise,
            sampler=sampler,
            antithetic=antithetic,
            vectorized=vectorized,
            generator=generator,
        )

    @outside(calls.OUTSIDE)
    def forward(self, y: Tensor) -> Tensor:
        """The mean solution, of the shape of ``y``.

        Args:
            y: (B, ...) Scores or costs.
        """
        read = readable(self.solver, y, self._name)
        drawn, _, solved = self._solve(read)
        centred = solved - self.noise.left_out(solved)
        return solved.mean(0) + reweighted(self.noise, y, read, drawn, centred).to(y.dtype)


class FenchelYoungLoss(_Perturbed):
    """The Fenchel-Young loss of a perturbed optimizer: its gradient is the mean solution less the true one.

    For ``sense="max"`` the loss is ``E[max_w <y + scale noise, w>] - <y, target>``, for "min" the negative of that
    with the minimum. It is convex in ``y``, at least 0 in the mean, and smallest where the mean solution is the
    target. (What a Fenchel-Young loss has besides, a function of the target alone, is left out.) As ``scale -> 0`` it
    is how much worse the target is than the best solution. Double backward gives the same as `hessian` from the same
    samples.

    Args:
        solver: Returns the best solution for scores or costs (S, B, ...), in their shape.
        sense: Whether the solver maximises or minimises.
        distribution: Of the noise, as in `smooth`.
        scale: Of the noise, as in `smooth`.
        num_samples: How often the solver is called for each example, at least 2.
        noise: "additive", or "multiplicative": ``y exp(scale noise - scale² / 2)``, which keeps signs; Gaussian only.
            The solutions in the gradient are then multiplied by the same factor.
        sampler, antithetic: How samples are drawn, as in `smooth`.
        vectorized: Whether the solver takes (S, B, ...). If not, it is called S times with (B, ...).
        reduction: "mean" or "sum" over examples, or "none".
        generator: Of random numbers.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> loss = softly.estimators.FenchelYoungLoss(softly.estimators.solvers.argmax, num_samples=1000)
        >>> y = torch.zeros(1, 2, requires_grad=True)
        >>> loss(y, torch.tensor([[1.0, 0.0]])).backward()
        >>> bool((y.grad - torch.tensor([[-0.5, 0.5]])).abs().max() < 0.1)
        True
    """

    _name = "softly.estimators.FenchelYoungLoss"

    def __init__(
        self,
        solver: Callable[..., Any],
        *,
        sense: Sense = "max",
        distribution: str | Distribution = "gaussian",
        scale: float | Tensor = 1.0,
        num_samples: int = 10,
        noise: Literal["additive", "multiplicative"] = "additive",
        sampler: Sampler = "random",
        antithetic: bool = False,
        vectorized: bool = True,
        reduction: Reduction = "mean",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(
            solver,
            sense=sense,
            distribution=distribution,
            scale=scale,
            num_samples=num_samples,
            noise=noise,
            sampler=sampler,
            antithetic=antithetic,
            vectorized=vectorized,
            generator=generator,
        )
        self.reduction = checked_reduction(reduction, self._name)

    @outside(calls.OUTSIDE)
    def forward(self, y: Tensor, target: Tensor) -> Tensor:
        """The loss.

        Args:
            y: (B, ...) Scores or costs.
            target: (B, ...) The true solutions.
        """
        read, target = self._inputs(y, target)
        drawn, points, solved = self._solve(read)
        value = self._sign * (calls.rows(points * solved, 2).sum(2).mean(0) - calls.rows(read * target, 1).sum(1))
        gradient = self._sign * (self._field(y, read, drawn, points, solved) - target)
        return reduced(with_gradient(value, y, gradient.to(y.dtype)), self.reduction)

    @outside(calls.OUTSIDE)
    def hessian(self, y: Tensor, target: Tensor) -> Tensor:
        """(B, n, n) The Hessian of each example's loss: symmetric, and unbiased with every noise that gradients have.

        Args:
            y: (B, ...) Scores or costs, n an example.
            target: (B, ...) The true solutions.
        """
        return self.derivatives(y, target).hessian

    @outside(calls.OUTSIDE)
    def derivatives(self, y: Tensor, target: Tensor) -> Derivatives:
        """The loss of each example, its gradient and its Hessian from the same samples.

        Args:
            y: (B, ...) Scores or costs, n an example.
            target: (B, ...) The true solutions.
        """
        read, target = self._inputs(y, target)
        drawn, points, solved = self._solve(read)
        value = self._sign * (calls.rows(points * solved, 2).sum(2).mean(0) - calls.rows(read * target, 1).sum(1))
        weighted = self._weighted(read, points, solved)
        centred, score = calls.rows(self._centred(weighted), 2).double(), calls.rows(self.noise.score(read, drawn), 2)
        jacobian = torch.einsum("sbi,sbj->bij", centred, score) / len(solved)
        if self.noise.multiplicative:
            jacobian = jacobian - torch.diag_embed(calls.rows(weighted.mean(0) / read, 1).double())
        hessian = 0.5 * self._sign * (jacobian + jacobian.mT)
        return Derivatives(value, self._sign * (weighted.mean(0) - target), hessian.to(y.dtype))

    @property
    def _sign(self) -> float:
        return 1.0 if self.sense == "max" else -1.0

    def _inputs(self, y: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        calls.constant((target,), self._name)
        read = readable(self.solver, y, self._name)
        if target.shape != read.shape:
            raise ValueError(
                f"{self._name}: target must have the shape of y, {tuple(read.shape)}, got {tuple(target.shape)}."
            )
        target = target.to(read)
        if not target.isfinite().all():
            raise ValueError(f"{self._name}: target must be finite.")
        return read, target

    def _weighted(self, y: Tensor, points: Tensor, solved: Tensor) -> Tensor:
        """The derivative of a sample's best value: its solution, times what ``y`` was multiplied with."""
        return points / y * solved if self.noise.multiplicative else solved

    def _centred(self, weighted: Tensor) -> Tensor:
        return weighted - self.noise.left_out(weighted)

    def _field(self, y: Tensor, read: Tensor, drawn: Tensor, points: Tensor, solved: Tensor) -> Tensor:
        """The mean solution, whose Jacobian is the symmetrised estimate."""
        fixed = self._centred(self._weighted(read, points, solved)).double()
        mean = self._weighted(y, points, solved).mean(0).double()
        centred = self._centred(self._weighted(y, points, solved)).double()
        field = mean + reweighted(self.noise, y, read, drawn, centred)
        step = (y - read).double()
        score = self.noise.score(read, drawn)
        along = self._inner(score, step) * fixed
        across = self._inner(fixed, step) * score
        return field - 0.5 * (along - across).mean(0)

    @staticmethod
    def _inner(a: Tensor, b: Tensor) -> Tensor:
        """The inner products of samples (S, B, ...) with examples (B, ...), of shape (S, B, 1, ...)."""
        return calls.rows(a * b, 2).sum(2).reshape(*a.shape[:2], *[1] * (a.ndim - 2))
