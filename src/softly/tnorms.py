"""T-norms and T-conorms of appendix B: differentiable "and" and "or" on [0, 1].

A T-norm is associative, commutative, monotonic and has 1 as its neutral element; its T-conorm is the dual
``1 - T(1 - a, 1 - b)``. All families but the minimum are Archimedean: over any number of operands they are
one closed form, ``g⁻¹(Σ g(xᵢ))`` with the generator ``g``, and here never a fold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from softly import _dims, _inputs, native
from softly._dims import Dim
from softly._p_norm import p_norm

__all__ = [
    "AczelAlsina",
    "Dombi",
    "Einstein",
    "Frank",
    "Hamacher",
    "Lukasiewicz",
    "Minimum",
    "Probabilistic",
    "SchweizerSklar",
    "TNorm",
    "Yager",
    "get",
    "names",
]


def _check(x: Tensor, function: str, argument: str) -> None:
    """Refuse what is no floating-point tensor, and what is outside [0, 1] where that can be read without waiting."""
    _inputs.floating(x, function, argument)
    known = native.data(x)
    if known is not None and known.device.type == "cpu" and known.numel():
        _inputs.unit_range(known, function, argument)


class TNorm:
    """A T-norm with its dual T-conorm.

    On {0, 1} every family is the Boolean "and" and "or". Operands are probabilities: what is outside [0, 1] by more
    than rounding is refused, in eager mode on the CPU, and wherever a kernel runs. Subclasses define ``_all(x, dim)``,
    and ``_any`` where the dual ``1 - _all(1 - x)`` is less accurate, and for two operands ``_and`` and ``_or``.

    Example:
        >>> t = softly.tnorms.get("probabilistic")
        >>> t.tnorm(torch.tensor(0.5), torch.tensor(0.4)), t.tconorm(torch.tensor(0.5), torch.tensor(0.4))
        (tensor(0.2000), tensor(0.7000))
    """

    @property
    def _kernel(self) -> bool:
        """Whether reductions have a kernel that looks at the range of their operands on its way."""
        return False

    def _all(self, x: Tensor, dim: int) -> Tensor:
        raise AttributeError(f"{type(self).__name__} defines no reduction")

    def _any(self, x: Tensor, dim: int) -> Tensor:
        return 1.0 - self._all(1.0 - x, dim)

    def _and(self, a: Tensor, b: Tensor) -> Tensor:
        return self._all(torch.stack(torch.broadcast_tensors(a, b)), 0)

    def _or(self, a: Tensor, b: Tensor) -> Tensor:
        return self._any(torch.stack(torch.broadcast_tensors(a, b)), 0)

    def tnorm(self, a: Tensor, b: Tensor) -> Tensor:
        """``a`` and ``b``, elementwise, for broadcastable tensors in [0, 1].

        Example:
            >>> softly.tnorms.get("yager", p=2.0).tnorm(torch.tensor([0.5, 1.0]), torch.tensor([0.6, 0.3]))
            tensor([0.3597, 0.3000])
        """
        return self._binary(a, b, "tnorm", self._and)

    def tconorm(self, a: Tensor, b: Tensor) -> Tensor:
        """``a`` or ``b``, elementwise, for broadcastable tensors in [0, 1].

        Example:
            >>> softly.tnorms.get("einstein").tconorm(torch.tensor([0.5, 0.0]), torch.tensor([0.5, 0.3]))
            tensor([0.8000, 0.3000])
        """
        return self._binary(a, b, "tconorm", self._or)

    def all(self, x: Tensor, *, dim: Dim = -1, keepdim: bool = False) -> Tensor:
        """The T-norm of all entries along ``dim``, one or a tuple of them; 1 for none.

        Example:
            >>> softly.tnorms.get("probabilistic").all(torch.tensor([[0.5, 0.5, 0.5], [1.0, 1.0, 0.0]]))
            tensor([0.1250, 0.0000])
        """
        return self._reduce(x, dim, keepdim, "all", self._all, 1.0)

    def any(self, x: Tensor, *, dim: Dim = -1, keepdim: bool = False) -> Tensor:
        """The T-conorm of all entries along ``dim``, one or a tuple of them; 0 for none.

        Example:
            >>> softly.tnorms.get("minimum").any(torch.tensor([[0.5, 0.25], [0.0, 1.0]]), dim=0)
            tensor([0.5000, 1.0000])
        """
        return self._reduce(x, dim, keepdim, "any", self._any, 0.0)

    @staticmethod
    def _binary(a: Tensor, b: Tensor, name: str, function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        _check(a, f"softly.tnorms.{name}", "a")
        _check(b, f"softly.tnorms.{name}", "b")
        return _inputs.at_least_single(function, a, b)

    def _reduce(
        self, x: Tensor, dim: Dim, keepdim: bool, name: str, function: Callable[[Tensor, int], Tensor], neutral: float
    ) -> Tensor:
        name = f"softly.tnorms.{name}"
        if self._kernel and native.available() and x.dtype in (torch.float32, torch.float64):
            _inputs.floating(x, name, "x")  # the kernel looks at the rest, on its way
        else:
            _check(x, name, "x")
        if x.ndim == 0:
            return x
        dims = _dims.checked(dim, x.ndim, name)
        y, along = (x, dims[0]) if len(dims) == 1 else (_dims.merged(x, dims), -1)
        if y.shape[along] == 0:
            result = y.sum(along) + neutral
        else:
            result = _inputs.at_least_single(lambda z: function(z, along), y)
        return _dims.kept(result, dims) if keepdim else result


@dataclass(frozen=True)
class Minimum(TNorm):
    """``min(a, b)`` and ``max(a, b)``: the largest T-norm, the smallest T-conorm.

    Example:
        >>> softly.tnorms.Minimum().tnorm(torch.tensor(0.5), torch.tensor(0.4))
        tensor(0.4000)
    """

    def _all(self, x: Tensor, dim: int) -> Tensor:
        return x.amin(dim)

    def _any(self, x: Tensor, dim: int) -> Tensor:
        return x.amax(dim)

    def _and(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.minimum(a, b)

    def _or(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.maximum(a, b)


def _hamacher_reference(x: Tensor, p: float, dual: bool) -> Tensor:
    # The generator is log((x + p (1 - x)) / x): its sum is a product in the exponential, and stays in [0, 1].
    y = 1.0 - x if dual else x
    product = (y / (y + p * (1.0 - y))).prod(-1)
    value = p * product / (p + (1.0 - p) * (1.0 - product))
    return 1.0 - value if dual else value


def _hamacher_forward(x: Tensor, p: float, dual: bool) -> Tensor:
    out, n = x.new_empty(x.shape[:-1]), x.shape[-1]
    sizes = (out.numel(), n, p, dual, torch.get_num_threads())
    if not native.kernel("hamacher", x.dtype)(x.data_ptr(), out.data_ptr(), *sizes):
        _inputs.unit_range(x.detach(), f"softly.tnorms.{'any' if dual else 'all'}", "x")
    return out


def _hamacher_backward(grad: Tensor, x: Tensor, p: float, dual: bool) -> Tensor:
    grad_x, n = torch.empty_like(x), x.shape[-1]
    native.kernel("hamacher_backward", x.dtype)(
        x.data_ptr(), grad.data_ptr(), grad_x.data_ptr(), grad.numel(), n, p, dual, torch.get_num_threads()
    )
    return grad_x


_hamacher = native.Operator(
    "hamacher",
    forward=_hamacher_forward,
    shape=lambda x, p, dual: x.new_empty(x.shape[:-1]),
    backward=_hamacher_backward,
    reference=_hamacher_reference,
)


@dataclass(frozen=True)
class Probabilistic(TNorm):
    """``ab`` and ``a + b - ab``: the events are independent.

    Example:
        >>> softly.tnorms.Probabilistic().tconorm(torch.tensor(0.5), torch.tensor(0.4))
        tensor(0.7000)
    """

    _kernel = True

    def _all(self, x: Tensor, dim: int) -> Tensor:
        return _hamacher(x.movedim(dim, -1), 1.0, False)

    def _any(self, x: Tensor, dim: int) -> Tensor:
        return _hamacher(x.movedim(dim, -1), 1.0, True)

    def _and(self, a: Tensor, b: Tensor) -> Tensor:
        return a * b

    def _or(self, a: Tensor, b: Tensor) -> Tensor:
        return a + b - a * b


def _require(family: str, p: float, valid: bool, rule: str) -> None:
    if not (valid and math.isfinite(p)):
        raise ValueError(f"softly.tnorms.{family}: p must be in {rule}, got {p}.")


@dataclass(frozen=True)
class Hamacher(TNorm):
    """``ab / (p + (1 - p)(a + b - ab))``, p > 0; probabilistic at 1, Einstein at 2.

    Example:
        >>> softly.tnorms.Hamacher(0.5).tnorm(torch.tensor(0.5), torch.tensor(0.5))
        tensor(0.2857)
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        _require("Hamacher", self.p, self.p > 0, "(0, inf)")

    _kernel = True

    def _all(self, x: Tensor, dim: int) -> Tensor:
        return _hamacher(x.movedim(dim, -1), self.p, False)

    def _any(self, x: Tensor, dim: int) -> Tensor:
        return _hamacher(x.movedim(dim, -1), self.p, True)

    def _and(self, a: Tensor, b: Tensor) -> Tensor:
        product = a * b
        union = a + b - product
        return product / (union + self.p * (1.0 - union))

    def _or(self, a: Tensor, b: Tensor) -> Tensor:
        product = a * b
        extra = (self.p - 1.0) * product
        return (a + b - product + extra) / (1.0 + extra)


@dataclass(frozen=True)
class Einstein(Hamacher):
    """``ab / (2 - a - b + ab)``, and ``(a + b) / (1 + ab)``, the relativistic sum of velocities.

    Example:
        >>> softly.tnorms.Einstein().tconorm(torch.tensor(0.5), torch.tensor(0.5))
        tensor(0.8000)
    """

    p: float = field(default=2.0, init=False, repr=False)


@dataclass(frozen=True)
class Frank(TNorm):
    """``log_p(1 + (p^a - 1)(p^b - 1) / (p - 1))``, p > 0; probabilistic at 1, its limit.

    Example:
        >>> softly.tnorms.Frank(2.0).tnorm(torch.tensor(0.5), torch.tensor(0.5))
        tensor(0.2284)
    """

    p: float = 2.0

    def __post_init__(self) -> None:
        _require("Frank", self.p, self.p > 0, "(0, inf)")

    def _all(self, x: Tensor, dim: int) -> Tensor:
        log_p = math.log(self.p)
        if abs(log_p) < 1e-9:  # where 1 - p has no digits left
            return x.prod(dim)
        # (p^x - 1) / (p - 1), in [0, 1], and likewise the logarithm: written from both ends, so that 0 and 1
        # are exact, and with negative exponents only, so that nothing overflows.
        rate = abs(log_p)
        gentle = lambda y: torch.expm1(-rate * y) / math.expm1(-rate)  # noqa: E731
        steep = lambda y: torch.exp(rate * (y - 1.0)) * gentle(y)  # noqa: E731
        low, high = (steep, gentle) if log_p > 0 else (gentle, steep)
        product = torch.where(x < 0.5, low(x), 1.0 - high(1.0 - x)).prod(dim)
        small = product < 0.5
        near_zero = torch.log1p((self.p - 1.0) * torch.where(small, product, 0.5))
        near_one = log_p + torch.log1p((1.0 - 1.0 / self.p) * (torch.where(small, 0.5, product) - 1.0))
        return torch.where(small, near_zero, near_one) / log_p


@dataclass(frozen=True)
class Yager(TNorm):
    """``max(0, 1 - ((1 - a)^p + (1 - b)^p)^(1/p))``, p > 0; Łukasiewicz at 1.

    Example:
        >>> softly.tnorms.Yager(2.0).tconorm(torch.tensor(0.3), torch.tensor(0.4))
        tensor(0.5000)
    """

    p: float = 2.0

    def __post_init__(self) -> None:
        _require("Yager", self.p, self.p > 0, "(0, inf)")

    @property
    def _kernel(self) -> bool:
        return self.p == 2

    def _all(self, x: Tensor, dim: int) -> Tensor:
        return torch.clamp(1.0 - p_norm(1.0 - x, self.p, dim, "all"), min=0.0)

    def _any(self, x: Tensor, dim: int) -> Tensor:
        return torch.clamp(p_norm(x, self.p, dim, "any"), max=1.0)


@dataclass(frozen=True)
class Lukasiewicz(TNorm):
    """``max(0, a + b - 1)`` and ``min(1, a + b)``.

    Example:
        >>> softly.tnorms.Lukasiewicz().tnorm(torch.tensor(0.5), torch.tensor(0.75))
        tensor(0.2500)
    """

    def _all(self, x: Tensor, dim: int) -> Tensor:
        return torch.clamp(1.0 - (1.0 - x).sum(dim), min=0.0)

    def _any(self, x: Tensor, dim: int) -> Tensor:
        return torch.clamp(x.sum(dim), max=1.0)


def _annihilated(x: Tensor, dim: int, annihilator: float, slope: float, inside: Callable[[Tensor], Tensor]) -> Tensor:
    """``inside(x)`` where no entry is the annihilator, 0 of a T-norm or 1 of a T-conorm; elsewhere that.

    A lone annihilator has derivative ``slope``, the family's limit; beside one all derivatives are 0.
    """
    hit = x == annihilator
    count = hit.sum(dim, keepdim=True)
    border = annihilator + slope * torch.where(hit & (count == 1), x - annihilator, 0.0).sum(dim)
    return torch.where(count.squeeze(dim) > 0, border, inside(torch.where(count > 0, 0.5, x)))


def _positive(x: Tensor) -> Tensor:
    """Keep off subnormal numbers, whose reciprocal overflows."""
    return x.clamp(min=torch.finfo(x.dtype).tiny)


@dataclass(frozen=True)
class AczelAlsina(TNorm):
    """``exp(-(|log a|^p + |log b|^p)^(1/p))``, p > 0; probabilistic at 1.

    Example:
        >>> softly.tnorms.AczelAlsina(2.0).tnorm(torch.tensor(0.5), torch.tensor(0.5))
        tensor(0.3752)
    """

    p: float = 2.0

    def __post_init__(self) -> None:
        _require("AczelAlsina", self.p, self.p > 0, "(0, inf)")

    def _all(self, x: Tensor, dim: int) -> Tensor:
        if self.p == 1:
            return x.prod(dim)
        return _annihilated(
            x,
            dim,
            0.0,
            float(self.p > 1),
            lambda y: torch.exp(-p_norm(-torch.log(_positive(y)), self.p, dim)),
        )

    def _any(self, x: Tensor, dim: int) -> Tensor:
        if self.p == 1:
            return 1.0 - (1.0 - x).prod(dim)
        return _annihilated(
            x, dim, 1.0, float(self.p > 1), lambda y: -torch.expm1(-p_norm(-torch.log1p(-y), self.p, dim))
        )


@dataclass(frozen=True)
class Dombi(TNorm):
    """``1 / (1 + (((1 - a)/a)^p + ((1 - b)/b)^p)^(1/p))``, p > 0.

    Example:
        >>> softly.tnorms.Dombi(1.0).tnorm(torch.tensor(0.5), torch.tensor(0.5))
        tensor(0.3333)
    """

    p: float = 2.0

    def __post_init__(self) -> None:
        _require("Dombi", self.p, self.p > 0, "(0, inf)")

    def _all(self, x: Tensor, dim: int) -> Tensor:
        return _annihilated(x, dim, 0.0, 1.0, lambda y: 1.0 / (1.0 + p_norm((1.0 - y) / _positive(y), self.p, dim)))

    def _any(self, x: Tensor, dim: int) -> Tensor:
        def inside(y: Tensor) -> Tensor:
            odds = p_norm(y / (1.0 - y), self.p, dim)
            return odds / (1.0 + odds)

        return _annihilated(x, dim, 1.0, 1.0, inside)


@dataclass(frozen=True)
class SchweizerSklar(TNorm):
    """``(a^p + b^p - 1)^(1/p)``, p < 0.

    Example:
        >>> softly.tnorms.SchweizerSklar(-1.0).tnorm(torch.tensor(0.5), torch.tensor(0.5))
        tensor(0.3333)
    """

    p: float = -1.0

    def __post_init__(self) -> None:
        _require("SchweizerSklar", self.p, self.p < 0, "(-inf, 0)")

    def _all(self, x: Tensor, dim: int) -> Tensor:
        return _annihilated(x, dim, 0.0, 1.0, lambda y: self._inside(_positive(y), dim))

    def _inside(self, x: Tensor, dim: int) -> Tensor:
        # Divided by the smallest entry's power, which may overflow, the sum is 1 plus what the others add.
        least = x.detach().amin(dim, keepdim=True)
        unit = least ** (-self.p)
        total = ((x / least) ** self.p - unit).sum(dim, keepdim=True) + unit
        return (least * total ** (1.0 / self.p)).squeeze(dim)


_FAMILIES: dict[str, type[TNorm]] = {
    "minimum": Minimum,
    "probabilistic": Probabilistic,
    "einstein": Einstein,
    "hamacher": Hamacher,
    "frank": Frank,
    "yager": Yager,
    "aczel_alsina": AczelAlsina,
    "dombi": Dombi,
    "schweizer_sklar": SchweizerSklar,
    "lukasiewicz": Lukasiewicz,
}
_DEFAULTS: dict[str, TNorm] = {name: family() for name, family in _FAMILIES.items()}
_WITH_P = tuple(name for name, t in _DEFAULTS.items() if hasattr(t, "p") and name != "einstein")


def names() -> tuple[str, ...]:
    """The names of all families.

    Example:
        >>> softly.tnorms.names()[:3]
        ('minimum', 'probabilistic', 'einstein')
    """
    return tuple(_FAMILIES)


def get(tnorm: str | TNorm, *, p: float | None = None) -> TNorm:
    """Look a T-norm up by name; an object is returned as it is.

    Args:
        tnorm: One of `names`, or a `TNorm`.
        p: The parameter of ``"hamacher"``, ``"frank"``, ``"yager"``, ``"aczel_alsina"``, ``"dombi"`` (> 0) or
            ``"schweizer_sklar"`` (< 0).

    Example:
        >>> softly.tnorms.get("hamacher", p=2.0).tconorm(torch.tensor(0.5), torch.tensor(0.5))
        tensor(0.8000)
    """
    if isinstance(tnorm, TNorm) and p is None:
        return tnorm
    if not isinstance(tnorm, str):
        raise TypeError(f"softly.tnorms.get: tnorm must be a name or a TNorm, got {type(tnorm).__name__}.")
    if tnorm not in _FAMILIES:
        raise ValueError(f"softly.tnorms.get: unknown T-norm {tnorm!r}; choose from {', '.join(_FAMILIES)}.")
    if p is None:
        return _DEFAULTS[tnorm]
    if tnorm not in _WITH_P:
        raise ValueError(f"softly.tnorms.get: {tnorm!r} has no parameter p; {', '.join(_WITH_P)} have.")
    return _FAMILIES[tnorm](p)  # type: ignore[call-arg]
