"""The asymmetric families: extreme values and one-sided distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from softly import _clamped
from softly._compiling import fact
from softly.distributions.base import Distribution, Reversed, bisect, differentiable_root


@dataclass(frozen=True)
class GumbelMax(Distribution):
    """``F(x) = exp(-exp(-x))``, the limit of maxima; perturbing n scores with it gives the softmax.

    Example:
        >>> softly.distributions.GumbelMax().cdf(torch.tensor([0.0, 2.0]))
        tensor([0.3679, 0.8734])
    """

    # Below this point F, and with it every derivative, underflows in double precision.
    _UNDERFLOW = -20.0

    def _decay(self, x: Tensor) -> Tensor:
        return torch.exp(-torch.clamp(x, min=self._UNDERFLOW))

    def _cdf(self, x: Tensor) -> Tensor:
        return torch.exp(-self._decay(x))

    def _log_cdf(self, x: Tensor) -> Tensor:
        return -torch.exp(-torch.clamp(x, min=-0.9 * math.log(torch.finfo(x.dtype).max)))

    def _sf(self, x: Tensor) -> Tensor:
        return -torch.expm1(-self._decay(x))

    def _pdf(self, x: Tensor) -> Tensor:
        decay = self._decay(x)
        return decay * torch.exp(-decay)

    def _icdf(self, u: Tensor) -> Tensor:
        return -torch.log(-torch.log(u))

    def _isf(self, u: Tensor) -> Tensor:
        return -torch.log(-torch.log1p(-u))

    def _score(self, x: Tensor) -> Tensor:
        return -torch.expm1(-x)

    def reversed(self) -> Distribution:
        return GumbelMin()


@dataclass(frozen=True)
class GumbelMin(Reversed):
    """``F(x) = 1 - exp(-exp(x))``, the limit of minima.

    Example:
        >>> softly.distributions.GumbelMin().cdf(torch.tensor([-2.0, 0.0]))
        tensor([0.1266, 0.6321])
    """

    base: Distribution = field(default=GumbelMax(), init=False, repr=False)


@dataclass(frozen=True)
class Exponential(Distribution):
    """``F(x) = 1 - exp(-x)`` for ``x >= 0``.

    Example:
        >>> softly.distributions.Exponential().cdf(torch.tensor([-1.0, 1.0]))
        tensor([0.0000, 0.6321])
    """

    def _cdf(self, x: Tensor) -> Tensor:
        return torch.where(x < 0, 0.0, -torch.expm1(-torch.where(x < 0, 0.0, x)))

    def _sf(self, x: Tensor) -> Tensor:
        return torch.where(x < 0, 1.0, torch.exp(-torch.where(x < 0, 0.0, x)))

    def _pdf(self, x: Tensor) -> Tensor:
        return torch.where(x < 0, 0.0, torch.exp(-torch.where(x < 0, 0.0, x)))

    def _icdf(self, u: Tensor) -> Tensor:
        return -torch.log1p(-u)

    def _isf(self, u: Tensor) -> Tensor:
        return -torch.log(u)

    def _score(self, x: Tensor) -> Tensor:
        return torch.where(x.isnan(), x, (x >= 0).to(x.dtype))


@dataclass(frozen=True)
class Levy(Distribution):
    """``F(x) = erfc(√(1 / 2x))`` for ``x > 0``: one-sided with a heavy tail.

    Example:
        >>> softly.distributions.Levy().cdf(torch.tensor([-1.0, 1.0]))
        tensor([0.0000, 0.3173])
    """

    # Below this point F, and with it every derivative, underflows in double precision.
    _UNDERFLOW = 5e-4

    def _positive(self, x: Tensor, function: Callable[[Tensor], Tensor], below: float) -> Tensor:
        small = x <= self._UNDERFLOW
        return torch.where(small, below, function(torch.where(small, 1.0, x)))

    def _cdf(self, x: Tensor) -> Tensor:
        return self._positive(x, lambda y: torch.erfc(torch.rsqrt(2.0 * y)), 0.0)

    def _sf(self, x: Tensor) -> Tensor:
        return self._positive(x, lambda y: torch.erf(torch.rsqrt(2.0 * y)), 1.0)

    def _pdf(self, x: Tensor) -> Tensor:
        return self._positive(x, lambda y: y**-1.5 * torch.exp(-0.5 / y) / math.sqrt(2.0 * math.pi), 0.0)

    def _icdf(self, u: Tensor) -> Tensor:
        return torch.special.ndtri(0.5 * u) ** -2

    def _isf(self, u: Tensor) -> Tensor:
        return 0.5 * torch.erfinv(u) ** -2

    def _score(self, x: Tensor) -> Tensor:
        outside = x <= 0
        inverse = 1.0 / torch.where(outside, 1.0, x)
        return torch.where(outside, 0.0, 0.5 * inverse * (3.0 - inverse))


class _IncompleteGamma(torch.autograd.Function):
    """Regularised incomplete gamma functions in ``x``; torch's own know no forward-mode derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, shape: float, upper: bool) -> Tensor:
        function = torch.special.gammaincc if upper else torch.special.gammainc
        return function(torch.full_like(x, shape), x)

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        x, ctx.shape, ctx.upper = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def _slope(ctx) -> Tensor:  # type: ignore[no-untyped-def]
        (x,) = ctx.saved_tensors
        return (-1.0 if ctx.upper else 1.0) * _gamma_density(x, ctx.shape)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return grad * _IncompleteGamma._slope(ctx), None, None

    @staticmethod
    def jvp(ctx, tangent, *_):  # type: ignore[no-untyped-def]
        return tangent * _IncompleteGamma._slope(ctx)


def _incomplete_gamma(x: Tensor, shape: float, upper: bool) -> Tensor:
    if torch.compiler.is_compiling():  # which refuses functions with a jvp, and needs none
        return _IncompleteGamma.forward(x, shape, upper)
    return _IncompleteGamma.apply(x, shape, upper)


def _gamma_density(x: Tensor, shape: float) -> Tensor:
    return torch.exp((shape - 1.0) * torch.log(x) - x - math.lgamma(shape))


@dataclass(frozen=True)
class Gamma(Distribution):
    """``F(x) = γ(shape, x) / Γ(shape)`` for ``x > 0``.

    For ``shape < 1`` the density is infinite at 0; it is clamped to a large finite value there.

    Example:
        >>> softly.distributions.Gamma(0.5).cdf(torch.tensor([-1.0, 1.0]))
        tensor([0.0000, 0.8427])
    """

    shape: float = 0.5

    def __post_init__(self) -> None:
        if not (math.isfinite(self.shape) and self.shape > 0):
            raise ValueError(f"softly.distributions.Gamma: shape must be positive and finite, got {self.shape}.")

    @fact
    def lipschitz(self) -> float:
        """The supremum of the density; inf for ``shape < 1``."""
        return math.inf if self.shape < 1 else super().lipschitz

    @property
    def _border_density(self) -> float:
        return math.exp((self.shape - 1.0) * math.log(_clamped.BORDER) - math.lgamma(self.shape))

    @property
    def _underflow(self) -> float:
        """A point beyond which the density underflows in double precision, for every shape."""
        return 2.0 * self.shape + 1500.0

    def _positive(self, x: Tensor, function: Callable[[Tensor], Tensor], below: float) -> Tensor:
        outside = x < 0
        return torch.where(outside, below, function(torch.where(outside, 1.0, x).clamp(max=self._underflow)))

    def _cdf(self, x: Tensor) -> Tensor:
        return self._positive(x, self._lower_part, 0.0)

    def _sf(self, x: Tensor) -> Tensor:
        return self._positive(x, self._upper_part, 1.0)

    def _lower_part(self, x: Tensor) -> Tensor:
        return _clamped.near_border(x, lambda y: _incomplete_gamma(y, self.shape, False), self._border_density)

    def _upper_part(self, x: Tensor) -> Tensor:
        return _clamped.near_border(x, lambda y: _incomplete_gamma(y, self.shape, True), -self._border_density)

    def _pdf(self, x: Tensor) -> Tensor:
        return self._positive(x, lambda y: _gamma_density(y.clamp(min=_clamped.BORDER), self.shape), 0.0)

    def _icdf(self, u: Tensor) -> Tensor:
        # In log x the lower tail keeps its relative accuracy; the upper one is found by its own probability.
        lowest, highest = -1500.0, math.log(self._underflow)
        shape = torch.tensor(self.shape, dtype=torch.float64, device=u.device)
        lower = bisect(lambda e: torch.special.gammainc(shape, torch.exp(e)), u, lowest, highest)
        upper = bisect(lambda e: -torch.special.gammaincc(shape, torch.exp(e)), u - 1.0, lowest, highest)
        root = torch.exp(torch.where(u > 0.5, upper, lower)).to(u.dtype)
        root = torch.where(u <= 0, 0.0, torch.where(u >= 1, torch.inf, root))
        regular = (root > _clamped.BORDER) & (self._pdf(root) > 0)
        return differentiable_root(self, u, root, regular, self.shape)

    def _from_uniform(self, u: Tensor, generator: torch.Generator | None) -> Tensor:
        return torch._standard_gamma(torch.full_like(u, self.shape), generator=generator)

    def _score(self, x: Tensor) -> Tensor:
        outside = x <= 0
        return torch.where(outside, 0.0, 1.0 - (self.shape - 1.0) / torch.where(outside, 1.0, x))
