"""The noise of the estimators: which distributions have a score that tells the truth, and how samples are drawn."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from softly import _inputs, distributions
from softly.distributions import Distribution
from softly.distributions.base import Reversed, Shifted

Sampler = Literal["random", "sobol", "latin_hypercube"]
Baseline = Literal["leave_one_out", "value"] | None

_SMOOTH = ("gaussian", "logistic", "hyperbolic_secant", "cauchy", "gumbel_max", "gumbel_min", "levy")
_KINKED = ("laplace", "reciprocal", "optimal")
_UNBOUNDED = "its score is unbounded, so that gradients would have an infinite variance"
_REASONS: dict[type[Distribution], str] = {
    distributions.Heaviside: "it has no density, and so no score",
    distributions.Uniform: "its score is 0, and the jumps at the ends of its density, which matter, have none",
    distributions.Exponential: "its density jumps at 0, unseen by its score, so that gradients would be biased",
    distributions.Wigner: _UNBOUNDED,
    distributions.CubicHermite: _UNBOUNDED,
    distributions.Gamma: _UNBOUNDED,
}
_LARGEST_SOBOL, _BITS = torch.quasirandom.SobolEngine.MAXDIM, torch.quasirandom.SobolEngine.MAXBIT


def _family(distribution: Distribution) -> Distribution:
    """The family behind a reversed or shifted distribution, which are as smooth."""
    families = {type(distributions.get(name)) for name in distributions.names()}
    while type(distribution) not in families and isinstance(distribution, (Reversed, Shifted)):
        distribution = distribution.base
    return distribution


def _among(distribution: Distribution, names: tuple[str, ...]) -> bool:
    return any(type(_family(distribution)) is type(distributions.get(name)) for name in names)


def scored(distribution: str | Distribution, function: str) -> Distribution:
    """A distribution whose score gives unbiased gradients; others are refused with the reason."""
    found = distributions.get(distribution)
    if not _among(found, (*_SMOOTH, *_KINKED)):
        reason = _REASONS.get(type(_family(found)), "nobody has checked that its score gives unbiased gradients")
        raise ValueError(
            f"{function}: no gradients with the distribution {found}: {reason}. Choose from "
            f"{', '.join((*_SMOOTH, *_KINKED))}."
        )
    return found


def twice(distribution: Distribution) -> str | None:
    """Why a distribution gives no Hessians, or None where it does."""
    if _among(distribution, _SMOOTH):
        return None
    return (
        f"no second derivatives with the distribution {distribution}: its density has a kink, of whose point mass in "
        f"the second derivative its score knows nothing. Choose from {', '.join(_SMOOTH)}."
    )


class Noise:
    """Perturbs examples.

    Samples come in groups that are independent of each other: single ones, antithetic pairs, or, of a sampler that
    draws all of a group jointly, two halves where the one has to be the other's baseline.

    Args:
        function: Whose noise it is, for errors.
        distribution: Of the noise; `scored` checks it where scores are used.
        scale: Of the noise: a number > 0, or for the Gaussian a matrix (n, n) that multiplies it, n the number of
            entries of an example. The covariance is the matrix times its transpose.
        num_samples: How many, S.
        sampler: How uniform numbers are drawn.
        antithetic: Whether samples come in pairs u and 1 - u.
        grouped: Whether at least two independent groups are needed.
        multiplicative: Whether examples are multiplied by exp(scale noise - scale² / 2), which is 1 in the mean.
        generator: Of random numbers; None is torch's own.
    """

    def __init__(
        self,
        function: str,
        distribution: Distribution,
        scale: float | Tensor,
        num_samples: int,
        *,
        sampler: Sampler = "random",
        antithetic: bool = False,
        grouped: bool = False,
        multiplicative: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        self.function, self.distribution, self.generator = function, distribution, generator
        self.sampler, self.antithetic, self.multiplicative = sampler, antithetic, multiplicative
        self.scale = self._checked_scale(scale)
        self.num_samples = _inputs.integer(num_samples, function, "num_samples")
        if sampler not in ("random", "sobol", "latin_hypercube"):
            raise ValueError(f"{function}: sampler must be 'random', 'sobol' or 'latin_hypercube', got {sampler!r}.")
        pair = 2 if antithetic else 1
        self.groups = self.num_samples // pair if sampler == "random" else 2 if grouped else 1
        least = 2 * pair if grouped else pair
        if self.num_samples < least:
            reason = "the baseline of a sample is the mean of others" if grouped else "antithetic samples come in pairs"
            raise ValueError(
                f"{function}: num_samples must be at least {least}, got {num_samples}"
                + (f": {reason}." if least > 1 else ".")
            )
        multiple = pair if sampler == "random" else pair * self.groups
        if self.num_samples % multiple:
            reason = "antithetic samples come in pairs" if antithetic else ""
            halves = "one half is the baseline of the other" if multiple > pair else ""
            raise ValueError(
                f"{function}: num_samples must be a multiple of {multiple}, got {num_samples}: "
                f"{', and '.join(filter(None, (reason, halves)))}."
            )
        if multiplicative and not isinstance(distribution, distributions.Gaussian):
            raise ValueError(
                f"{function}: multiplicative noise is exp of a 'gaussian', whose mean is known; got {distribution}."
            )
        if multiplicative and isinstance(self.scale, Tensor):
            raise ValueError(f"{function}: the scale of multiplicative noise must be a number, got a matrix.")

    def _checked_scale(self, scale: float | Tensor) -> float | Tensor:
        function = self.function
        if isinstance(scale, Tensor) and scale.ndim == 0:
            if scale.requires_grad:
                raise ValueError(f"{function}: scale gets no gradient, but requires one: detach it.")
            scale = scale.item()
        if isinstance(scale, Tensor):
            _inputs.floating(scale, function, "scale")
            if not isinstance(self.distribution, distributions.Gaussian):
                raise ValueError(f"{function}: a scale that is a matrix needs the gaussian, got {self.distribution}.")
            if scale.requires_grad:
                raise ValueError(f"{function}: scale gets no gradient, but requires one: detach it.")
            if scale.ndim != 2 or scale.shape[0] != scale.shape[1]:
                raise ValueError(
                    f"{function}: scale must be a number or a square matrix, got shape {tuple(scale.shape)}."
                )
            matrix = scale.detach().double()
            if not matrix.isfinite().all() or torch.linalg.matrix_rank(matrix) < len(matrix):
                raise ValueError(f"{function}: a scale that is a matrix must be finite and invertible.")
            return matrix
        if isinstance(scale, bool) or not isinstance(scale, (int, float)):
            raise TypeError(f"{function}: scale must be a number or a matrix, got {type(scale).__name__}.")
        if not 0 < scale < math.inf:
            raise ValueError(f"{function}: scale must be positive and finite, got {scale}.")
        return float(scale)

    def draw(self, y: Tensor) -> Tensor:
        """(S, B, ...) Standard noise for examples ``y`` (B, ...), in float64."""
        size = y.shape[1:].numel()
        if isinstance(self.scale, Tensor) and size != len(self.scale):
            raise ValueError(
                f"{self.function}: scale is a matrix of {len(self.scale)} rows, examples have {size} numbers."
            )
        if self.multiplicative and bool((y == 0).any()):
            raise ValueError(f"{self.function}: multiplicative noise can't move a y that is 0.")
        pair = 2 if self.antithetic else 1
        shape = (self.groups, self.num_samples // self.groups // pair, *y.shape)
        options: Any = {"generator": self.generator, "dtype": torch.float64, "device": self._device(y)}
        if self.sampler == "random" and isinstance(self.distribution, distributions.Gaussian):
            # In float32 for all dtypes, so that they have the same samples: several times faster, and what is left out
            # beyond 5.7 has a probability of 1e-8.
            base = torch.randn(shape, **{**options, "dtype": torch.float32}).double()
            halves = [base, -base]
        else:
            if self.sampler == "random":
                u = torch.rand(shape, **options)
            else:
                u = torch.stack([self._uniform(shape[1], y) for _ in range(self.groups)])
            u = u.clamp(2.0**-54, 1.0 - 2.0**-53)
            halves = [self.distribution._icdf(u)]
            if self.antithetic:
                halves.append(self.distribution._isf(u))
        return torch.cat(halves[:pair], 1).flatten(0, 1).to(y.device)

    def _device(self, y: Tensor) -> torch.device:
        return y.device if self.generator is None else self.generator.device

    def _uniform(self, size: int, y: Tensor) -> Tensor:
        """(size, B, ...) Uniform numbers of which those of an example fill its space evenly."""
        shape = (size, *y.shape)
        options: Any = {"generator": self.generator, "dtype": torch.float64, "device": self._device(y)}
        if self.sampler == "latin_hypercube":
            strata = torch.rand(shape, **options).argsort(0)
            return (strata + torch.rand(shape, **options)) / size
        dimension = y.shape[1:].numel()
        if dimension > _LARGEST_SOBOL:
            raise ValueError(
                f"{self.function}: sampler 'sobol' knows up to {_LARGEST_SOBOL} numbers an example, got {dimension}."
            )
        seed = int(torch.randint(2**31, (), generator=self.generator, device=self._device(y)))
        engine = torch.quasirandom.SobolEngine(max(dimension, 1), scramble=True, seed=seed)
        points = (engine.draw(size, dtype=torch.float64) * 2.0**_BITS).long().to(self._device(y))
        points = points[:, :dimension].reshape(size, 1, *y.shape[1:])
        # One set of points for all examples, whose bits each example turns as it likes: that keeps them even.
        turned = torch.randint(2**_BITS, y.shape, generator=self.generator, device=self._device(y))
        return ((points ^ turned) + torch.rand(shape, **options)) / 2.0**_BITS

    # What the noise does to examples ------------------------------------------------------------------------------

    def points(self, y: Tensor, noise: Tensor) -> Tensor:
        """(S, B, ...) The perturbed examples."""
        if self.multiplicative:
            return y * self.factor(noise).to(y.dtype)
        if isinstance(self.scale, Tensor):
            moved = (noise.reshape(-1, len(self.scale)) @ self.scale.t().to(noise)).reshape(noise.shape)
        else:
            moved = self.scale * noise
        return y + moved.to(y.dtype)

    def factor(self, noise: Tensor) -> Tensor:
        """What multiplicative noise multiplies examples by."""
        assert isinstance(self.scale, float)
        return torch.exp(self.scale * noise - 0.5 * self.scale**2)

    def residual(self, y: Tensor, step: Tensor, noise: Tensor) -> Tensor:
        """The standard noise that leads to the same points from ``y + step``."""
        step = step.double()
        if self.multiplicative:
            return noise - torch.log1p(step / y.double()) / self.scale
        if isinstance(self.scale, Tensor):
            back = torch.linalg.solve(self.scale.to(step.device), step.reshape(-1, len(self.scale)).t()).t()
            return noise - back.reshape(step.shape)
        return noise - step / self.scale

    def score(self, y: Tensor, noise: Tensor) -> Tensor:
        """(S, B, ...) The derivative of the points' log-density in ``y``."""
        score = self.distribution._score(noise)
        if self.multiplicative:
            return score / (self.scale * y.double())
        if isinstance(self.scale, Tensor):
            rows = score.reshape(-1, len(self.scale))
            return torch.linalg.solve(self.scale.t().to(rows.device), rows.t()).t().reshape(score.shape)
        return score / self.scale

    def unscaled(self, hessian: Tensor) -> Tensor:
        """The second derivative in examples from ``hessian`` (B, n, n), that in standard noise."""
        if isinstance(self.scale, Tensor):
            half = torch.linalg.solve(self.scale.t().to(hessian.device), hessian)
            return torch.linalg.solve(self.scale.to(hessian.device), half, left=False)
        return hessian / self.scale**2

    def curvature(self, noise: Tensor) -> Tensor:
        """(S, B, ...) The derivative of the standard noise's score."""
        with torch.enable_grad():
            leaf = noise.detach().requires_grad_()
            score = self.distribution._score(leaf)
            (slope,) = torch.autograd.grad(score.sum(), leaf)
        return slope

    # Baselines ----------------------------------------------------------------------------------------------------

    def left_out(self, values: Tensor) -> Tensor:
        """(S, ...) For each sample the mean of ``values`` (S, ...) over the other groups."""
        grouped = values.unflatten(0, (self.groups, -1))
        own = grouped.sum(1, keepdim=True)
        size = grouped.shape[1]
        others = (own.sum(0, keepdim=True) - own) / (self.num_samples - size)
        return others.expand_as(grouped).flatten(0, 1)


def checked_baseline(baseline: Baseline, function: str) -> Baseline:
    if baseline not in ("leave_one_out", "value", None):
        raise ValueError(f"{function}: baseline must be 'leave_one_out', 'value' or None, got {baseline!r}.")
    return baseline
