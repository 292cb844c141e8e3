"""The symmetric families, which relax comparisons, minimum, maximum and swaps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from softly import _clamped
from softly.distributions.base import Distribution, bisect, differentiable_root, log, lower


class Symmetric(Distribution):
    """A family given by its lower half: ``_tail`` is the CDF at ``x <= 0`` and ``_quantile`` inverts it.

    ``_log_tail`` is the logarithm of ``_tail``, defined where that underflows.
    """

    symmetric = True
    peaked = True
    swap_is_monotonic = False  # but for tails as heavy as 1 / |x|; known, so that nobody has to compute it

    def _isf(self, u: Tensor) -> Tensor:
        return -self._icdf(u)

    def _tail(self, x: Tensor) -> Tensor:
        raise AttributeError(f"{type(self).__name__} defines no tail")

    def _quantile(self, u: Tensor) -> Tensor:
        raise AttributeError(f"{type(self).__name__} defines no quantile")

    def _cdf(self, x: Tensor) -> Tensor:
        tail = self._tail(lower(x))
        return torch.where(x > 0, 1.0 - tail, tail)

    def _sf(self, x: Tensor) -> Tensor:
        return self._cdf(-x)

    def _log_tail(self, x: Tensor) -> Tensor:
        return log(self._cdf(x))

    def _log_cdf(self, x: Tensor) -> Tensor:
        below = lower(x)
        return torch.where(x > 0, torch.log1p(-self._cdf(below)), self._log_tail(below))

    def _icdf(self, u: Tensor) -> Tensor:
        upper = u > 0.5
        lower = self._quantile(torch.where(upper, 1.0 - u, u))
        return torch.where(upper, -lower, lower)


@dataclass(frozen=True)
class Heaviside(Distribution):
    """No perturbation: the hard comparison, ½ at ties. Its density is 0 and it has no score.

    Example:
        >>> softly.distributions.Heaviside().cdf(torch.tensor([-0.1, 0.0, 0.1]))
        tensor([0.0000, 0.5000, 1.0000])
    """

    symmetric = True
    lipschitz = math.inf
    swap_is_monotonic = True

    def _cdf(self, x: Tensor) -> Tensor:
        return torch.where(x.isnan(), x, 0.5 + 0.5 * torch.sign(x))

    def _sf(self, x: Tensor) -> Tensor:
        return self._cdf(-x)

    def _pdf(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    def _icdf(self, u: Tensor) -> Tensor:
        return torch.zeros_like(u)

    def _score(self, x: Tensor) -> Tensor:
        raise ValueError("softly.distributions.score: heaviside has no density and therefore no score.")


@dataclass(frozen=True)
class Uniform(Symmetric):
    """``F(x) = (1 + x) / 2`` on [-1, 1].

    Example:
        >>> softly.distributions.Uniform().cdf(torch.tensor([-2.0, 0.5]))
        tensor([0.0000, 0.7500])
    """

    def _cdf(self, x: Tensor) -> Tensor:
        return torch.clamp(0.5 + 0.5 * x, 0.0, 1.0)

    def _pdf(self, x: Tensor) -> Tensor:
        return torch.where(x.isnan(), x, 0.5 * (x.abs() <= 1))

    def _icdf(self, u: Tensor) -> Tensor:
        return 2.0 * u - 1.0

    def _score(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


@dataclass(frozen=True)
class CubicHermite(Symmetric):
    """``F(x) = 3y² - 2y³`` with ``y = (1 + x) / 2`` on [-1, 1], the smooth step of graphics.

    Example:
        >>> softly.distributions.CubicHermite().cdf(torch.tensor([-0.5, 0.5]))
        tensor([0.1562, 0.8438])
    """

    def _cdf(self, x: Tensor) -> Tensor:
        y = torch.clamp(0.5 + 0.5 * x, 0.0, 1.0)
        return y * y * (3.0 - 2.0 * y)

    def _log_tail(self, x: Tensor) -> Tensor:
        y = torch.clamp(0.5 + 0.5 * x, min=0.0)
        return 2.0 * log(y) + torch.log(3.0 - 2.0 * y)

    def _pdf(self, x: Tensor) -> Tensor:
        y = torch.clamp(0.5 + 0.5 * x, 0.0, 1.0)
        return 3.0 * y * (1.0 - y)

    def _icdf(self, u: Tensor) -> Tensor:
        return -2.0 * torch.sin(torch.asin(1.0 - 2.0 * u) / 3.0)

    def _score(self, x: Tensor) -> Tensor:
        outside = x.abs() >= 1
        inner = torch.where(outside, 0.0, x)
        return torch.where(outside, 0.0, 2.0 * inner / (1.0 - inner * inner))


@dataclass(frozen=True)
class Wigner(Symmetric):
    """Wigner's semicircle on [-1, 1]: ``F(x) = ½ + (x √(1 - x²) + arcsin x) / π``.

    Example:
        >>> softly.distributions.Wigner().cdf(torch.tensor([-0.5, 0.5]))
        tensor([0.1955, 0.8045])
    """

    def _cdf(self, x: Tensor) -> Tensor:
        outside = x.abs() >= 1
        # In the angle the density is a smooth square, so that its derivative has no cancelling infinities.
        angle = torch.acos(-torch.where(outside, 0.0, x))
        inside = (angle - torch.sin(angle) * torch.cos(angle)) / math.pi
        return torch.where(outside, (x > 0).to(x.dtype), inside)

    def _pdf(self, x: Tensor) -> Tensor:
        outside = x.abs() >= 1
        inner = torch.where(outside, 0.0, x)
        return torch.where(outside, 0.0, (2.0 / math.pi) * torch.sqrt((1.0 - inner) * (1.0 + inner)))

    def _icdf(self, u: Tensor) -> Tensor:
        angle = bisect(lambda a: a - torch.sin(a) * torch.cos(a), math.pi * u, 0.0, math.pi)
        inside = (u > 0) & (u < 1)
        root = torch.where(inside, -torch.cos(angle).to(u.dtype), torch.sign(u.detach() - 0.5))
        return differentiable_root(self, u, root, inside & (root.abs() < 1), 0.0)

    def _score(self, x: Tensor) -> Tensor:
        outside = x.abs() >= 1
        inner = torch.where(outside, 0.0, x)
        return torch.where(outside, 0.0, inner / ((1.0 - inner) * (1.0 + inner)))


@dataclass(frozen=True)
class Gaussian(Symmetric):
    """The standard normal distribution.

    Example:
        >>> softly.distributions.Gaussian().cdf(torch.tensor([-1.0, 1.0]))
        tensor([0.1587, 0.8413])
    """

    def _cdf(self, x: Tensor) -> Tensor:
        return 0.5 * torch.erfc(-math.sqrt(0.5) * x)  # torch's ndtr has no digits below -8

    def _log_tail(self, x: Tensor) -> Tensor:
        # Far out the asymptotic series has all digits, of derivatives too, where the CDF underflows or loses them.
        border = -20.0 if x.dtype == torch.float64 else -10.0
        far = x < border
        y = torch.where(far, x, border)
        r = 1.0 / (y * y)
        series = r
        for factor in (13.0, 11.0, 9.0, 7.0, 5.0, 3.0):
            series = r * (1.0 - factor * series)
        beyond = -0.5 * y * y - torch.log(-y) - 0.5 * math.log(2.0 * math.pi) + torch.log1p(-series)
        return torch.where(far, beyond, torch.log(self._cdf(torch.where(far, border, x))))

    def _pdf(self, x: Tensor) -> Tensor:
        return torch.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)

    def _icdf(self, u: Tensor) -> Tensor:
        return torch.special.ndtri(u)

    def _score(self, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True)
class Laplace(Symmetric):
    """``F(x) = exp(x) / 2`` for ``x <= 0``.

    Example:
        >>> softly.distributions.Laplace().cdf(torch.tensor([-1.0, 1.0]))
        tensor([0.1839, 0.8161])
    """

    def _tail(self, x: Tensor) -> Tensor:
        return 0.5 * torch.exp(x)

    def _log_tail(self, x: Tensor) -> Tensor:
        return x - math.log(2.0)

    def _pdf(self, x: Tensor) -> Tensor:
        return 0.5 * torch.exp(lower(x))

    def _quantile(self, u: Tensor) -> Tensor:
        return torch.log(2.0 * u)

    def _score(self, x: Tensor) -> Tensor:
        return torch.sign(x)


@dataclass(frozen=True)
class Logistic(Symmetric):
    """``F(x) = 1 / (1 + exp(-x))``.

    Example:
        >>> softly.distributions.Logistic().cdf(torch.tensor([-1.0, 1.0]))
        tensor([0.2689, 0.7311])
    """

    def _cdf(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)

    def _log_tail(self, x: Tensor) -> Tensor:
        return x - torch.log1p(torch.exp(x))

    def _pdf(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x) * torch.sigmoid(-x)

    def _quantile(self, u: Tensor) -> Tensor:
        return torch.log(u) - torch.log1p(-u)

    def _score(self, x: Tensor) -> Tensor:
        return torch.tanh(0.5 * x)


@dataclass(frozen=True)
class HyperbolicSecant(Symmetric):
    """The Gudermannian: ``F(x) = 2/π arctan(exp(π x / 2))``.

    Example:
        >>> softly.distributions.HyperbolicSecant().cdf(torch.tensor([-1.0, 1.0]))
        tensor([0.1305, 0.8695])
    """

    def _tail(self, x: Tensor) -> Tensor:
        return (2.0 / math.pi) * torch.atan(torch.exp((0.5 * math.pi) * x))

    def _log_tail(self, x: Tensor) -> Tensor:
        # log atan(e^y), which is y up to a square of e^y that is lost in rounding where that is small.
        y = (0.5 * math.pi) * x
        far = y < -10.0
        near = torch.log(torch.atan(torch.exp(torch.where(far, 0.0, y))))
        return math.log(2.0 / math.pi) + torch.where(far, y - torch.exp(2.0 * y) / 3.0, near)

    def _pdf(self, x: Tensor) -> Tensor:
        decay = torch.exp((0.5 * math.pi) * lower(x))
        return decay / (1.0 + decay * decay)

    def _quantile(self, u: Tensor) -> Tensor:
        return (2.0 / math.pi) * torch.log(torch.tan((0.5 * math.pi) * u))

    def _score(self, x: Tensor) -> Tensor:
        return (0.5 * math.pi) * torch.tanh((0.5 * math.pi) * x)


@dataclass(frozen=True)
class Cauchy(Symmetric):
    """``F(x) = ½ + arctan(x) / π``: heavy tails, a monotonic swap with error bound 1/π².

    Example:
        >>> softly.distributions.Cauchy().cdf(torch.tensor([-1.0, 1.0]))
        tensor([0.2500, 0.7500])
    """

    swap_is_monotonic = True

    def _cdf(self, x: Tensor) -> Tensor:
        return torch.atan2(torch.ones_like(x), -x) / math.pi

    def _pdf(self, x: Tensor) -> Tensor:
        return 1.0 / (math.pi * (1.0 + x * x))

    def _quantile(self, u: Tensor) -> Tensor:
        return -1.0 / torch.tan(math.pi * u)

    def _score(self, x: Tensor) -> Tensor:
        # 2x / (1 + x²) without squaring, which overflows long before the score vanishes.
        large = x.abs() > 1
        inverse = 1.0 / torch.where(large, x, 1.0)
        inner = torch.where(large, 0.0, x)
        return torch.where(large, 2.0 * inverse / (1.0 + inverse * inverse), 2.0 * inner / (1.0 + inner * inner))


@dataclass(frozen=True)
class Reciprocal(Symmetric):
    """``F(x) = ½ + x / (2 + 2|x|)``: the simplest monotonic swap, error bound 1/4.

    The sorting tables of the thesis write it with twice the argument: their β is ``steepness = 2β`` here.

    Example:
        >>> softly.distributions.Reciprocal().cdf(torch.tensor([-1.0, 1.0]))
        tensor([0.2500, 0.7500])
    """

    swap_is_monotonic = True

    def _tail(self, x: Tensor) -> Tensor:
        return 0.5 / (1.0 - x)

    def _log_tail(self, x: Tensor) -> Tensor:
        return -math.log(2.0) - torch.log1p(-x)

    def _pdf(self, x: Tensor) -> Tensor:
        tail = 1.0 / (1.0 - lower(x))
        return 0.5 * tail * tail

    def _quantile(self, u: Tensor) -> Tensor:
        return 1.0 - 0.5 / u

    def _score(self, x: Tensor) -> Tensor:
        return 2.0 * torch.sign(x) / (1.0 - lower(x))


@dataclass(frozen=True)
class Optimal(Symmetric):
    """Linear, then ``1 / (16 |x|)``: of all monotonic swaps the one with the smallest error bound, 1/16.

    Example:
        >>> softly.distributions.Optimal().cdf(torch.tensor([-1.0, 0.1, 1.0]))
        tensor([0.0625, 0.6000, 0.9375])
    """

    swap_is_monotonic = True

    def _tail(self, x: Tensor) -> Tensor:
        inner = x >= -0.25
        return torch.where(inner, 0.5 + x, -0.0625 / torch.where(inner, -1.0, x))

    def _pdf(self, x: Tensor) -> Tensor:
        inner = x.abs() <= 0.25
        inverse = 0.25 / torch.where(inner, 1.0, x)
        return torch.where(inner, 1.0, inverse * inverse)

    def _quantile(self, u: Tensor) -> Tensor:
        inner = u >= 0.25
        return torch.where(inner, u - 0.5, -0.0625 / torch.where(inner, 1.0, u))

    def _score(self, x: Tensor) -> Tensor:
        inner = x.abs() <= 0.25
        return torch.where(inner, 0.0, 2.0 / torch.where(inner, 1.0, x))


_ART_OFFSET = 1e-10


@dataclass(frozen=True)
class Art(Distribution):
    base: Distribution
    strength: float

    symmetric = True
    lipschitz = math.inf

    def _replace(self, x: Tensor) -> Tensor:
        """φ(x) = x / (|x|^strength + offset), with derivative 0 at 0."""
        tie = x == 0
        inner = torch.where(tie, 1.0, x)
        return torch.where(tie, 0.0, inner / ((-lower(inner)) ** self.strength + _ART_OFFSET))

    def _slope(self, x: Tensor) -> Tensor:
        """φ'(x), 0 at ties."""
        tie = x == 0
        magnitude = (-lower(torch.where(tie, 1.0, x))) ** self.strength
        slope = ((1.0 - self.strength) * magnitude + _ART_OFFSET) / (magnitude + _ART_OFFSET) ** 2
        return torch.where(tie, 0.0, slope)

    def _cdf(self, x: Tensor) -> Tensor:
        return self.base._cdf(self._replace(x))

    def _log_cdf(self, x: Tensor) -> Tensor:
        return self.base._log_cdf(self._replace(x))

    def _sf(self, x: Tensor) -> Tensor:
        return self.base._sf(self._replace(x))

    def _pdf(self, x: Tensor) -> Tensor:
        return self.base._pdf(self._replace(x)) * self._slope(x)

    def _icdf(self, u: Tensor) -> Tensor:
        target = self.base._icdf(u)
        magnitude = -lower(target)
        x = _clamped.power(magnitude, 1.0 / (1.0 - self.strength))
        # The offset is felt only next to 0; there, one step of |x| = |φ(x)| (|x|^strength + offset) adds it.
        x = magnitude * (_clamped.power(x, self.strength) + _ART_OFFSET)
        return torch.where(target > 0, x, -x)

    def _isf(self, u: Tensor) -> Tensor:
        return -self._icdf(u)

    def _score(self, x: Tensor) -> Tensor:
        tie = x == 0
        inner = torch.where(tie, 1.0, x)
        m, keep = (-lower(inner)) ** self.strength, 1.0 - self.strength
        curvature = -self.strength * m / inner * (keep * m + (1.0 + self.strength) * _ART_OFFSET)
        curvature = curvature / ((m + _ART_OFFSET) * (keep * m + _ART_OFFSET))
        return torch.where(tie, 0.0, self.base._score(self._replace(inner)) * self._slope(inner) - curvature)
