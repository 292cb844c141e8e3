"""RESGRO, the regularized sampling greedy optimizer: steps towards the best of a few samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from softly import _inputs, distributions
from softly._compiling import outside
from softly.distributions import Distribution
from softly.estimators import Samples, Smoothed, calls
from softly.estimators.noise import Noise
from softly.optimization.splitting import OUTSIDE, Reduction, checked_reduction, pulled_to

__all__ = ["Resgro"]


class Resgro(torch.nn.Module):
    """A loss that pulls towards the best of a few samples: its gradient is ``y - z*``, with no derivative of ``loss``.

    z* is the mean, over subsets of ``subset_size`` of the samples ``y + scale noise``, of the sample with the least
    loss in each. Of samples with the same loss each has the same share; where all samples have the same, there is
    nothing to learn and z* is ``y``. With one subset of all samples this is vanilla RESGRO; as ``scale -> 0`` the
    step vanishes. Few samples regularize: large subsets take larger, greedier steps.

    Args:
        loss: ``(samples, *args)``, of all samples (S, B, ...) at once, returns a number (S, B) for each. It need not be
            differentiable, nor use torch; infinite losses are never the best. A `Smoothed` stands for its function.
            Parameters inside it get no gradient: they are refused, unless it detaches them.
        num_samples: M, how often ``loss`` is evaluated for each example, exactly.
        subset_size: K, from 2 to M, the size of the subsets, which are drawn without replacement; None is M.
        num_sets: How many random subsets an example has; None is the mean over all subsets, in closed form: the
            sample of rank r, from the best, has weight C(M - r, K - 1) / C(M, K).
        distribution: Of the noise: any, since no score is needed.
        scale: Of the noise, > 0, or for the Gaussian a matrix, as in `smooth`.
        vectorized: Whether ``loss`` takes (S, B, ...). If not, it is called S times with (B, ...).
        reduction: "sum", or "mean", which divides value and gradient by B.
        generator: Of random numbers.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> steps = lambda y: (y.round() - 2.0).abs().sum(-1)
        >>> resgro = softly.Resgro(steps, num_samples=1000, subset_size=10, scale=1.0)
        >>> y = torch.zeros(1, 1, requires_grad=True)
        >>> resgro(y).backward()
        >>> bool(y.grad < -1.0)
        True
    """

    _name = "softly.Resgro"

    def __init__(
        self,
        loss: Callable[..., Any],
        *,
        num_samples: int = 10,
        subset_size: int | None = None,
        num_sets: int | None = None,
        distribution: str | Distribution = "gaussian",
        scale: float | Tensor = 0.1,
        vectorized: bool = True,
        reduction: Reduction = "sum",
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.loss = loss.fn if isinstance(loss, Smoothed) else loss
        self.vectorized, self.reduction = vectorized, checked_reduction(reduction, self._name)
        self.noise = Noise(self._name, distributions.get(distribution), scale, num_samples, generator=generator)
        count = self.noise.num_samples
        self.subset_size = count if subset_size is None else _inputs.integer(subset_size, self._name, "subset_size")
        if count < 2:
            raise ValueError(f"{self._name}: num_samples must be at least 2, got {count}: one alone is not the best.")
        if not 2 <= self.subset_size <= count:
            raise ValueError(
                f"{self._name}: subset_size must be in [2, {count}], got {subset_size}: one alone is not the best."
            )
        self.num_sets = None if num_sets is None else _inputs.integer(num_sets, self._name, "num_sets")
        if self.num_sets is not None and self.num_sets < 1:
            raise ValueError(f"{self._name}: num_sets must be at least 1, got {num_sets}.")

    @outside(OUTSIDE)
    def forward(self, y: Tensor, *args: Any, samples: Samples | None = None) -> Tensor:
        """``½ |y - z*|²``.

        Args:
            y: (B, ...) What the loss takes.
            args: What it takes besides; they get no gradient.
            samples: Of `Smoothed.samples`, in the place of new ones.
        """
        calls.constant(args, self._name)
        return pulled_to(y, self._target(y, args, samples), self.reduction)

    @outside(OUTSIDE)
    def target(self, y: Tensor, *args: Any, samples: Samples | None = None) -> Tensor:
        """z*, as `split` takes it for its ``step``: a constant.

        Args:
            y: (B, ...) What the loss takes.
            args: What it takes besides.
            samples: Of `Smoothed.samples`, in the place of new ones.
        """
        with torch.no_grad():
            return self._target(y, args, samples)

    def _target(self, y: Tensor, args: tuple[Any, ...], samples: Samples | None) -> Tensor:
        read = calls.readable(y, self._name)
        if samples is None:
            points = self.noise.points(read, self.noise.draw(read))
            values = calls.evaluate(self.loss, points, args, self._name, vectorized=self.vectorized, infinite=True)
        else:
            samples.around(read, self._name)
            points, values = samples.points, samples.values
        if values.ndim != 2:
            raise ValueError(
                f"{self._name}: the loss must return a number for each example, shape {tuple(points.shape[:2])}, got "
                f"{tuple(values.shape)}."
            )
        if len(points) != self.noise.num_samples:
            raise ValueError(
                f"{self._name}: there must be {self.noise.num_samples} samples, as num_samples, got {len(points)}."
            )
        weights = self._expected(values) if self.num_sets is None else self._drawn(values, self.num_sets)
        solved = (values == values[:1]).all(0)
        weights = weights.reshape(*weights.shape, *[1] * (read.ndim - 1)).to(read.dtype)
        step = (weights * (points - read)).sum(0)
        return read + torch.where(solved.reshape(-1, *[1] * (read.ndim - 1)), 0.0, step)

    def _expected(self, values: Tensor) -> Tensor:
        """(M, B) How likely each sample is the best of a random subset; those of the same loss share."""
        count, size = self.noise.num_samples, self.subset_size
        total = math.comb(count, size)
        by_rank = [math.comb(count - rank, size - 1) / total for rank in range(1, count + 1)]
        ordered, order = values.double().sort(0)
        # Samples from the first to the last of the same loss have the mean of their ranks' weights.
        before = torch.searchsorted(ordered.t().contiguous(), ordered.t().contiguous(), side="left").t()
        behind = torch.searchsorted(ordered.t().contiguous(), ordered.t().contiguous(), side="right").t()
        sums = torch.tensor([0.0, *by_rank], dtype=torch.float64, device=values.device).cumsum(0)
        shared = (sums[behind] - sums[before]) / (behind - before)
        return torch.zeros_like(shared).scatter(0, order, shared)

    def _drawn(self, values: Tensor, num_sets: int) -> Tensor:
        """(M, B) The share of each sample in the bests of random subsets."""
        options: Any = {"generator": self.noise.generator, "device": self.noise._device(values)}
        keys = torch.rand(num_sets, *values.shape, dtype=torch.float64, **options).to(values.device)
        chosen = keys.argsort(1).argsort(1) < self.subset_size
        within = torch.where(chosen, values.double(), torch.inf)
        best = chosen & (within == within.amin(1, keepdim=True))
        return (best / best.sum(1, keepdim=True)).mean(0)

    def extra_repr(self) -> str:
        return (
            f"{calls.name_of(self.loss)}, num_samples={self.noise.num_samples}, subset_size={self.subset_size}, "
            f"num_sets={self.num_sets}, {self.noise.distribution}"
        )
