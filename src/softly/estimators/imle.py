"""Implicit maximum likelihood estimation: perturb, solve, and compare with a target that the gradient points to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from softly import distributions
from softly._compiling import outside
from softly.distributions import Distribution
from softly.estimators import calls
from softly.estimators.linearization import answered, positive
from softly.estimators.noise import Noise, Sampler
from softly.estimators.perturbed import Sense, checked_sense, readable, solutions

__all__ = ["Imle"]

_STEP, _DECAY, _TARGET = 1e-3, 0.9, 1.0  # of the adaptive strength


class Imle(torch.nn.Module):
    """Implicit maximum likelihood estimation: the mean solution under noise, with a gradient from moved problems.

    The value is the mean of ``solver(y + scale noise)``, which as ``scale -> 0`` is the hard solution. For
    ``sense="max"`` the gradient is the mean over the same noise of ``(solver(x) - solver(x - strength g)) /
    strength`` for the incoming gradient g, for "min" of ``(solver(x + strength g) - solver(x)) / strength``:
    `blackbox` under noise, with which it agrees without.

    Args:
        solver: Returns the best solution for scores or costs (S, B, ...), in their shape.
        strength: How far the problems are moved, > 0; or "adaptive", which moves them by a share of the norm of
            ``y``. The share starts at 1 and changes by 0.001 with each backward pass in training mode, so that on
            average one entry of a sample's gradient is not 0; it is part of the state.
        sense: Whether the solver maximises or minimises.
        distribution: Of the noise: any, since no score is needed.
        scale: Of the noise, > 0.
        num_samples: How often the solver is called for each example; the backward pass calls it as often.
        sampler, antithetic: How samples are drawn, as in `smooth`.
        vectorized: Whether the solver takes (S, B, ...). If not, it is called S times with (B, ...).
        generator: Of random numbers.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> solve = softly.estimators.Imle(softly.estimators.solvers.argmax, strength=1.0, sense="max", num_samples=100)
        >>> y = torch.zeros(1, 2, requires_grad=True)
        >>> (solve(y) * torch.tensor([[0.0, 1.0]])).sum().backward()
        >>> bool(y.grad[0, 1] > 0)
        True
    """

    _name = "softly.estimators.Imle"
    share: Tensor
    changed: Tensor

    def __init__(
        self,
        solver: Callable[..., Any],
        *,
        strength: float | Literal["adaptive"] = 10.0,
        sense: Sense = "max",
        distribution: str | Distribution = "gumbel_max",
        scale: float | Tensor = 1.0,
        num_samples: int = 1,
        sampler: Sampler = "random",
        antithetic: bool = False,
        vectorized: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if isinstance(strength, str) and strength != "adaptive":
            raise ValueError(f"{self._name}: strength must be a number or 'adaptive', got {strength!r}.")
        self.strength = strength if isinstance(strength, str) else positive(strength, self._name, "strength")
        self.solver, self.sense, self.vectorized = solver, checked_sense(sense, self._name), vectorized
        self.noise = Noise(
            self._name,
            distributions.get(distribution),
            scale,
            num_samples,
            sampler=sampler,
            antithetic=antithetic,
            generator=generator,
        )
        if self.strength == "adaptive":
            self.register_buffer("share", torch.tensor(1.0, dtype=torch.float64))
            self.register_buffer("changed", torch.tensor(_TARGET, dtype=torch.float64))

    @outside(calls.OUTSIDE)
    def forward(self, y: Tensor) -> Tensor:
        """The mean solution, of the shape of ``y``.

        Args:
            y: (B, ...) Scores or costs.
        """
        read = readable(self.solver, y, self._name)
        points = self.noise.points(read, self.noise.draw(read))
        here = solutions(self.solver, points, self._name, vectorized=self.vectorized)

        def pull(grad: Tensor) -> Tensor:
            strength = self._strength_for(read, grad)
            if strength == 0:  # nothing to be moved, or nowhere to go
                return torch.zeros_like(grad)
            step = strength if self.sense == "min" else -strength
            there = solutions(self.solver, points + step * grad, self._name, vectorized=self.vectorized)
            if self.strength == "adaptive" and self.training:
                self._adapt(there != here)
            return (there - here).mean(0) / step

        return answered(y, here.mean(0), pull, self._name)

    def _strength_for(self, y: Tensor, grad: Tensor) -> float:
        if not isinstance(self.strength, str):
            return self.strength
        length = float(grad.double().norm())
        return float(self.share * y.double().norm() / length) if length else 0.0

    def _adapt(self, changed: Tensor) -> None:
        """Move the share so that one entry of a sample changes on average."""
        count = float(changed.sum()) / max(changed.shape[0] * changed.shape[1], 1)
        self.changed.mul_(_DECAY).add_((1.0 - _DECAY) * count)
        self.share.add_(_STEP if self.changed < _TARGET else -_STEP).clamp_(min=0.0)

    def extra_repr(self) -> str:
        return (
            f"{calls.name_of(self.solver)}, strength={self.strength}, sense={self.sense!r}, {self.noise.distribution}"
        )
