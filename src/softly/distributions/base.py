"""The interface of a distribution, its facts, and the distributions derived from another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from softly import _clamped, _inputs
from softly._compiling import fact, made


def _evaluate(function: Callable[[Tensor], Tensor], x: Tensor, name: str) -> Tensor:
    _inputs.floating(x, f"softly.distributions.{name}", "the argument")
    return _inputs.at_least_single(lambda y: function(_inputs.finite(y)), x)


class Distribution:
    """A probability distribution on the real line, seen through its CDF.

    ``cdf(steepness * x)`` tends to the Heaviside step as ``steepness -> inf``, for every family. Subclasses
    define ``_cdf``, ``_pdf``, ``_icdf`` and ``_score``, ``_sf`` and ``_isf`` where ``1 - cdf`` and ``icdf(1 - u)``
    would lose the upper tail, and ``_log_cdf`` where ``cdf`` underflows in the lower one.

    Example:
        >>> d = softly.distributions.get("logistic")
        >>> d.cdf(torch.tensor([0.0, 2.0]))
        tensor([0.5000, 0.8808])
        >>> d.symmetric, d.support, d.swap_is_monotonic, round(d.swap_error_bound, 4)
        (True, (-inf, inf), False, 0.0696)
    """

    symmetric: bool = False
    """Whether ``cdf(-x) == 1 - cdf(x)``; minimum, maximum, swaps and sorters need it."""

    peaked: bool = False
    """Whether the density is positive, finite and largest at 0, as a soft equality needs."""

    def _cdf(self, x: Tensor) -> Tensor:
        raise AttributeError(f"{type(self).__name__} defines no cdf")

    def _sf(self, x: Tensor) -> Tensor:
        return 1.0 - self._cdf(x)

    def _log_cdf(self, x: Tensor) -> Tensor:
        p = self._cdf(x)
        upper = p > 0.5
        return torch.where(upper, torch.log1p(-torch.where(upper, self._sf(x), 0.5)), log(torch.where(upper, 0.5, p)))

    def _pdf(self, x: Tensor) -> Tensor:
        raise AttributeError(f"{type(self).__name__} defines no pdf")

    def _icdf(self, u: Tensor) -> Tensor:
        raise AttributeError(f"{type(self).__name__} defines no icdf")

    def _isf(self, u: Tensor) -> Tensor:
        return self._icdf(1.0 - u)

    def _score(self, x: Tensor) -> Tensor:
        raise AttributeError(f"{type(self).__name__} defines no score")

    def cdf(self, x: Tensor) -> Tensor:
        """Probability of a value below ``x``.

        Example:
            >>> softly.distributions.get("cauchy").cdf(torch.tensor([-1.0, 0.0, 1.0]))
            tensor([0.2500, 0.5000, 0.7500])
        """
        return _evaluate(self._cdf, x, "cdf")

    def sf(self, x: Tensor) -> Tensor:
        """``1 - cdf(x)``, accurate in the upper tail.

        Example:
            >>> softly.distributions.get("logistic").sf(torch.tensor(30.0))
            tensor(9.3576e-14)
        """
        return _evaluate(self._sf, x, "sf")

    def log_cdf(self, x: Tensor) -> Tensor:
        """The logarithm of `cdf`, accurate in both tails; -inf, with derivative 0, where that is 0.

        Of the families on the whole line it is finite wherever ``x`` is, and of "gaussian", "laplace", "logistic" and
        "hyperbolic_secant" also where `cdf` underflows.

        Example:
            >>> softly.distributions.get("gaussian").log_cdf(torch.tensor([-40.0, 0.0, 2.0]))
            tensor([-8.0461e+02, -6.9315e-01, -2.3013e-02])
        """
        _inputs.floating(x, "softly.distributions.log_cdf", "the argument")

        def held(y: Tensor) -> Tensor:
            ends = torch.where(y > 0, 0.0, -torch.inf).to(y.dtype)
            return torch.where(y.isinf(), ends, self._log_cdf(_inputs.finite(y)))

        return _inputs.at_least_single(held, x)

    def pdf(self, x: Tensor) -> Tensor:
        """The derivative of `cdf`.

        Example:
            >>> softly.distributions.get("uniform").pdf(torch.tensor([0.0, 2.0]))
            tensor([0.5000, 0.0000])
        """
        return _evaluate(self._pdf, x, "pdf")

    def icdf(self, u: Tensor) -> Tensor:
        """The quantile function, the inverse of `cdf`; NaN outside [0, 1].

        Example:
            >>> softly.distributions.get("reciprocal").icdf(torch.tensor([0.25, 0.5, 1.0]))
            tensor([-1.,  0., inf])
        """
        return _evaluate(lambda v: torch.where((v >= 0) & (v <= 1), self._icdf(v), torch.nan), u, "icdf")

    def score(self, x: Tensor) -> Tensor:
        """``-(log pdf)'``, the factor of score-function gradient estimators; 0 outside the support.

        Example:
            >>> softly.distributions.get("gaussian").score(torch.tensor([-1.5, 2.0]))
            tensor([-1.5000,  2.0000])
        """
        return _evaluate(self._score, x, "score")

    def sample(
        self,
        shape: Sequence[int] = (),
        *,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        """Draw independent values, on the device of ``generator``.

        Example:
            >>> g = torch.Generator().manual_seed(0)
            >>> softly.distributions.get("cauchy").sample((2, 3), generator=g).shape
            torch.Size([2, 3])
        """
        device = generator.device if generator is not None else None
        # 53 random bits reach far into the tails; the offset keeps off 0, where quantiles may be infinite.
        u = torch.rand(tuple(shape), generator=generator, dtype=torch.float64, device=device) + 2.0**-54
        return self._from_uniform(u, generator).to(dtype or torch.get_default_dtype())

    def _from_uniform(self, u: Tensor, generator: torch.Generator | None) -> Tensor:
        return self._icdf(u)

    def reversed(self) -> Distribution:
        """The distribution of the negated variable: ``F_rev(x) = 1 - F(-x)``.

        Example:
            >>> softly.distributions.get("exponential").reversed().cdf(torch.tensor([-1.0, 1.0]))
            tensor([0.3679, 1.0000])
        """
        return self if self.symmetric else made(Reversed, self)

    def squared(self) -> Distribution:
        """The square-root distribution of chapter 5: ``F_sq(x) = F(|x| x)``.

        Example:
            >>> softly.distributions.get("cauchy").squared().cdf(torch.tensor([1.0, 10.0]))
            tensor([0.7500, 0.9968])
        """
        return made(Squared, self)

    def shifted(self, shift: float) -> Distribution:
        """``F(x + shift)``.

        Example:
            >>> softly.distributions.get("levy").shifted(1.0).cdf(torch.tensor(0.0))
            tensor(0.3173)
        """
        if not math.isfinite(shift):
            raise ValueError(f"softly.distributions.shifted: shift must be finite, got {shift}.")
        return self if shift == 0 else made(Shifted, self, float(shift))

    @fact
    def support(self) -> tuple[float, float]:
        """The interval outside which the density is 0."""
        ends = self._icdf(torch.tensor([0.0, 1.0], dtype=torch.float64))
        return float(ends[0]), float(ends[1])

    @fact
    def lipschitz(self) -> float:
        """The smallest Lipschitz constant of the CDF, the supremum of the density; inf if there is none."""
        grid = torch.cat([_WIDE_GRID, -_WIDE_GRID, torch.zeros(1, dtype=torch.float64)]).sort().values
        return _maximum(self._pdf, grid)

    @fact
    def swap_is_monotonic(self) -> bool | None:
        """Whether the relaxed ``min(x, 0) = x F(-x)`` never decreases; None without symmetry."""
        if not self.symmetric:
            return None
        swapped = self._cdf(-_WIDE_GRID)
        slope = swapped - _WIDE_GRID * self._pdf(_WIDE_GRID)
        return bool((slope >= -1e-12 * swapped).all())

    @fact
    def swap_error_bound(self) -> float | None:
        """``sup_x |min_F(x, 0) - min(x, 0)|`` at Lipschitz constant 1.

        It is inf if the CDF has no Lipschitz constant, None without symmetry.
        """
        if not self.symmetric:
            return None
        # F(x / a) has Lipschitz constant 1 if F has a, and stretches x F(-x) by a.
        return self.swap_error * self.lipschitz if self.swap_error else 0.0

    @fact
    def swap_error(self) -> float:
        """``sup_x |min_F(x, 0) - min(x, 0)|`` as the CDF is, at steepness 1."""
        return _maximum(lambda x: x * self._cdf(-x), _WIDE_GRID)


_WIDE_GRID = torch.logspace(-9, 12, 8401, dtype=torch.float64)


def _maximum(function: Callable[[Tensor], Tensor], grid: Tensor) -> float:
    """The maximum over an interval, by a grid and three refinements around its best point."""
    for _ in range(4):
        values = function(grid)
        best = int(values.argmax())
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        grid = torch.cat([grid[best : best + 1], low + (high - low) * torch.linspace(0, 1, 1001, dtype=torch.float64)])
    return float(values.max())


@dataclass(frozen=True)
class Reversed(Distribution):
    base: Distribution

    @property
    def lipschitz(self) -> float:
        return self.base.lipschitz

    def _cdf(self, x: Tensor) -> Tensor:
        return self.base._sf(-x)

    def _sf(self, x: Tensor) -> Tensor:
        return self.base._cdf(-x)

    def _pdf(self, x: Tensor) -> Tensor:
        return self.base._pdf(-x)

    def _icdf(self, u: Tensor) -> Tensor:
        return -self.base._isf(u)

    def _isf(self, u: Tensor) -> Tensor:
        return -self.base._icdf(u)

    def _score(self, x: Tensor) -> Tensor:
        return -self.base._score(-x)

    def _from_uniform(self, u: Tensor, generator: torch.Generator | None) -> Tensor:
        return -self.base._from_uniform(u, generator)

    def reversed(self) -> Distribution:
        return self.base


@dataclass(frozen=True)
class Squared(Distribution):
    base: Distribution

    @property
    def symmetric(self) -> bool:  # type: ignore[override]
        return self.base.symmetric

    def _cdf(self, x: Tensor) -> Tensor:
        return self.base._cdf(_signed_square(x))

    def _log_cdf(self, x: Tensor) -> Tensor:
        return self.base._log_cdf(_signed_square(x))

    def _sf(self, x: Tensor) -> Tensor:
        return self.base._sf(_signed_square(x))

    def _pdf(self, x: Tensor) -> Tensor:
        return 2.0 * x.abs() * self.base._pdf(_signed_square(x))

    def _icdf(self, u: Tensor) -> Tensor:
        return signed_power(self.base._icdf(u), 0.5)

    def _isf(self, u: Tensor) -> Tensor:
        return signed_power(self.base._isf(u), 0.5)

    def _score(self, x: Tensor) -> Tensor:
        zero = x == 0
        return 2.0 * x.abs() * self.base._score(_signed_square(x)) - torch.where(
            zero, 0.0, 1.0 / torch.where(zero, 1.0, x)
        )

    def _from_uniform(self, u: Tensor, generator: torch.Generator | None) -> Tensor:
        return signed_power(self.base._from_uniform(u, generator), 0.5)


@dataclass(frozen=True)
class Shifted(Distribution):
    base: Distribution
    shift: float

    @property
    def lipschitz(self) -> float:
        return self.base.lipschitz

    def _cdf(self, x: Tensor) -> Tensor:
        return self.base._cdf(x + self.shift)

    def _log_cdf(self, x: Tensor) -> Tensor:
        return self.base._log_cdf(x + self.shift)

    def _sf(self, x: Tensor) -> Tensor:
        return self.base._sf(x + self.shift)

    def _pdf(self, x: Tensor) -> Tensor:
        return self.base._pdf(x + self.shift)

    def _icdf(self, u: Tensor) -> Tensor:
        return self.base._icdf(u) - self.shift

    def _isf(self, u: Tensor) -> Tensor:
        return self.base._isf(u) - self.shift

    def _score(self, x: Tensor) -> Tensor:
        return self.base._score(x + self.shift)

    def _from_uniform(self, u: Tensor, generator: torch.Generator | None) -> Tensor:
        return self.base._from_uniform(u, generator) - self.shift


def log(p: Tensor) -> Tensor:
    """The logarithm, with derivative 0 at 0, where it is -inf."""
    zero = p <= 0
    return torch.where(zero, -torch.inf, torch.log(torch.where(zero, 1.0, p)))


def lower(x: Tensor) -> Tensor:
    """``-|x|``, differentiable to any order on either side of 0 (``abs`` has second derivative 0 at 0)."""
    return torch.where(x > 0, -x, x)


def _signed_square(x: Tensor) -> Tensor:
    """``x |x|``, held where it would overflow."""
    x = x.clamp(-_inputs.large(x), _inputs.large(x))
    return x * x.abs()


def signed_power(x: Tensor, exponent: float) -> Tensor:
    """``sign(x) |x| ** exponent``."""
    root = _clamped.power(-lower(x), exponent)
    return torch.where(x > 0, root, -root)


def bisect(function: Callable[[Tensor], Tensor], target: Tensor, low: float, high: float) -> Tensor:
    """Where an increasing ``function`` reaches ``target``, in double precision and without a gradient."""
    target = target.detach().double()
    left, right = torch.full_like(target, low), torch.full_like(target, high)
    for _ in range(64):
        middle = 0.5 * (left + right)
        below = function(middle) < target
        left, right = torch.where(below, middle, left), torch.where(below, right, middle)
    return 0.5 * (left + right)


def differentiable_root(distribution: Distribution, u: Tensor, root: Tensor, regular: Tensor, centre: float) -> Tensor:
    """Give the quantile ``root`` of ``u`` its derivatives, where it is ``regular``.

    Each Newton step from a fixed start doubles the order of contact: after two, three derivatives in ``u``
    are right. ``centre`` is a regular point to differentiate in the place of others.
    """
    x = torch.where(regular, root, centre)
    target = torch.where(regular, u, distribution._cdf(x).detach())
    for _ in range(2):
        x = x - (distribution._cdf(x) - target) / distribution._pdf(x)
    return root + torch.where(regular, x - x.detach(), 0.0)
