"""Stochastic smoothing: the mean of a black box under noise, with the gradient of that mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from softly._compiling import outside
from softly.distributions import Distribution
from softly.estimators import calls
from softly.estimators.noise import Baseline, Noise, Sampler, checked_baseline, scored, twice
from softly.estimators.surrogates import reweighted

__all__ = ["Derivatives", "Samples", "Smoothed", "smooth"]


class Derivatives(NamedTuple):
    """What an estimator knows of a loss at a point, all from the same samples.

    Example:
        >>> bowl = softly.estimators.smooth(lambda y: y.square().sum(-1), num_samples=1000)
        >>> value, gradient, hessian = bowl.derivatives(torch.ones(4, 2))
        >>> value.shape, gradient.shape, hessian.shape
        (torch.Size([4]), torch.Size([4, 2]), torch.Size([4, 2, 2]))
    """

    value: Tensor
    """(B,) The loss of each example."""
    gradient: Tensor
    """(B, ...) Its gradient."""
    hessian: Tensor
    """(B, n, n) Its Hessian, over the n entries of an example."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Points around an example and what a black box says to them, to be used by more than one estimator.

    Example:
        >>> bowl = softly.estimators.smooth(lambda y: y.square().sum(-1), num_samples=6)
        >>> y = torch.zeros(4, 2, requires_grad=True)
        >>> samples = bowl.samples(y)
        >>> samples.points.shape, samples.values.shape
        (torch.Size([6, 4, 2]), torch.Size([6, 4]))
        >>> resgro = softly.Resgro(bowl, num_samples=6, subset_size=3)
        >>> (bowl(y, samples=samples).sum() + resgro(y, samples=samples)).backward()
    """

    source: Noise
    """What drew them."""
    centre: Tensor
    """(B, ...) The examples."""
    noise: Tensor
    """(S, B, ...) The standard noise, in float64."""
    points: Tensor
    """(S, B, ...) The perturbed examples."""
    values: Tensor
    """(S, B, ...) The answers of the black box."""

    def around(self, read: Tensor, function: str) -> Samples:
        """These samples, refused if they are not those of the examples ``read``."""
        if self.centre.shape != read.shape or not torch.equal(self.centre, read):
            raise ValueError(f"{function}: samples must be of the same y.")
        return self


def smooth(
    fn: Callable[..., Any],
    *,
    distribution: str | Distribution = "gaussian",
    scale: float | Tensor = 0.1,
    num_samples: int = 10,
    baseline: Baseline = "leave_one_out",
    sampler: Sampler = "random",
    antithetic: bool = False,
    vectorized: bool = True,
    generator: torch.Generator | None = None,
) -> Smoothed:
    """Make any function trainable, by its mean under noise: ``E[fn(y + scale noise)]``.

    The value is the mean over samples, and the gradient is estimated from the same samples by the score of the noise:
    unbiased, whether ``fn`` has a gradient or not. As ``scale -> 0`` it is ``fn(y)`` where that is continuous; the mean
    of a linear function under symmetric noise is the function itself at every scale.

    Args:
        fn: ``(samples, *args)``, of all samples (S, B, ...) at once, returns a number (S, B) or an array (S, B, ...)
            for each. It need not be differentiable, nor use torch. `each` adapts one that takes a single example.
            Parameters inside it get no gradient: they are refused, unless it detaches them.
        distribution: Of the noise. Gradients are unbiased with "gaussian", "logistic", "hyperbolic_secant", "cauchy",
            "gumbel_max", "gumbel_min", "levy", "laplace", "reciprocal" and "optimal", and second derivatives with the
            first seven; others are refused.
        scale: Of the noise, > 0. For the Gaussian also a matrix (n, n) that multiplies it, n the number of entries of
            an example: its product with its transpose is the covariance.
        num_samples: How often ``fn`` is evaluated for each example.
        baseline: What is subtracted from the values before they are weighted by scores, which changes the variance
            and not the mean: the mean over the other samples (with antithetic pairs over the other pairs, with
            "sobol" and "latin_hypercube", whose samples depend on each other, over another half that is drawn on its
            own); "value", which is ``fn(y)`` and one more evaluation; or None.
        sampler: "random", "sobol" or "latin_hypercube", which fill the space of each example more evenly.
        antithetic: Whether samples come in pairs, of u and 1 - u through the quantile function.
        vectorized: Whether ``fn`` takes (S, B, ...). If not, it is called S times with (B, ...).
        generator: Of random numbers.

    Returns:
        A `Smoothed`, called as ``(y, *args)`` with ``y`` (B, ...); ``args`` go to ``fn`` as they are and get no
        gradient.

    Example:
        >>> _ = torch.manual_seed(0)
        >>> steps = softly.estimators.smooth(torch.floor, scale=1.0, num_samples=100_000)
        >>> y = torch.tensor([0.5], requires_grad=True)
        >>> value = steps(y)
        >>> value.backward()
        >>> bool((value - 0.0).abs() < 0.02), bool((y.grad - 1.0).abs() < 0.05)
        (True, True)
    """
    return Smoothed(
        fn,
        distribution=distribution,
        scale=scale,
        num_samples=num_samples,
        baseline=baseline,
        sampler=sampler,
        antithetic=antithetic,
        vectorized=vectorized,
        generator=generator,
    )


class Smoothed:
    """A black box under noise: what `smooth` returns.

    Double backward gives the same as `hessian` does from the same samples, and raises where the noise has no second
    derivatives.

    Example:
        >>> softly.estimators.smooth(torch.round, num_samples=4)(torch.tensor([0.2])).shape
        torch.Size([1])
    """

    _NAME = "softly.estimators.smooth"

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        distribution: str | Distribution,
        scale: float | Tensor,
        num_samples: int,
        baseline: Baseline,
        sampler: Sampler,
        antithetic: bool,
        vectorized: bool,
        generator: torch.Generator | None,
    ) -> None:
        self.fn, self.vectorized = fn, vectorized
        self.baseline = checked_baseline(baseline, self._NAME)
        self.noise = Noise(
            self._NAME,
            scored(distribution, self._NAME),
            scale,
            num_samples,
            sampler=sampler,
            antithetic=antithetic,
            grouped=baseline == "leave_one_out",
            generator=generator,
        )

    @outside(calls.OUTSIDE)
    def __call__(self, y: Tensor, *args: Any, samples: Samples | None = None) -> Tensor:
        """The mean over samples; ``samples`` of `samples` take the place of new ones."""
        calls.constant(args, self._NAME)
        read = calls.readable(y, self._NAME)
        samples = self._checked(samples, read) or self._sampled(read, args)
        centred = samples.values - self._level(samples, args)
        return samples.values.mean(0) + reweighted(self.noise, y, read, samples.noise, centred).to(y.dtype)

    @outside(calls.OUTSIDE)
    def samples(self, y: Tensor, *args: Any) -> Samples:
        """Draw samples and evaluate them, for more than one use.

        Args:
            y: (B, ...) The examples.
            args: What ``fn`` takes besides.
        """
        return self._sampled(calls.readable(y, self._NAME), args)

    @outside(calls.OUTSIDE)
    def hessian(self, y: Tensor, *args: Any, samples: Samples | None = None) -> Tensor:
        """(B, n, n) The Hessian of the mean, for a ``fn`` that returns a number for each example.

        It is unbiased, and symmetric.

        Args:
            y: (B, ...) The examples, of n numbers each.
            args: What ``fn`` takes besides.
            samples: Of `samples`; None draws new ones.
        """
        return self.derivatives(y, *args, samples=samples).hessian

    @outside(calls.OUTSIDE)
    def derivatives(self, y: Tensor, *args: Any, samples: Samples | None = None) -> Derivatives:
        """The value, its gradient and its Hessian from the same samples.

        Args:
            y: (B, ...) The examples, of n numbers each.
            args: What ``fn`` takes besides.
            samples: Of `samples`; None draws new ones.
        """
        reason = twice(self.noise.distribution)
        if reason is not None:
            raise ValueError(f"{self._NAME}: {reason}")
        read = calls.readable(y, self._NAME)
        samples = self._checked(samples, read) or self._sampled(read, args)
        if samples.values.ndim != 2:
            raise ValueError(
                f"{self._NAME}: only functions that return a number for each example have a Hessian, "
                f"{calls.name_of(self.fn)} returned shape {tuple(samples.values.shape)}."
            )
        weight = (samples.values - self._level(samples, args)).double() / len(samples.values)
        standard = calls.rows(self.noise.distribution._score(samples.noise), 2)
        hessian = torch.einsum("sb,sbi,sbj->bij", weight, standard, standard)
        hessian -= torch.diag_embed(
            torch.einsum("sb,sbi->bi", weight, calls.rows(self.noise.curvature(samples.noise), 2))
        )
        gradient = (weight.reshape(*weight.shape, *[1] * (read.ndim - 1)) * self.noise.score(read, samples.noise)).sum(
            0
        )
        return Derivatives(samples.values.mean(0), gradient.to(y.dtype), self.noise.unscaled(hessian).to(y.dtype))

    def _sampled(self, read: Tensor, args: tuple[Any, ...]) -> Samples:
        noise = self.noise.draw(read)
        points = self.noise.points(read, noise)
        values = calls.evaluate(self.fn, points, args, self._NAME, vectorized=self.vectorized)
        return Samples(self.noise, read, noise, points, values)

    def _checked(self, samples: Samples | None, read: Tensor) -> Samples | None:
        if samples is not None and samples.source is not self.noise:
            raise ValueError(f"{self._NAME}: samples must be those that this function has drawn, got another's.")
        return None if samples is None else samples.around(read, self._NAME)

    def _level(self, samples: Samples, args: tuple[Any, ...]) -> Tensor | float:
        """The baseline."""
        if self.baseline == "leave_one_out":
            return self.noise.left_out(samples.values)
        if self.baseline == "value":
            return calls.evaluate(self.fn, samples.centre[None], args, self._NAME, vectorized=self.vectorized)
        return 0.0
