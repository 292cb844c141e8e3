"""How the kernel of silhouettes knows distributions and T-conorms: by numbers."""

from __future__ import annotations

import math
from functools import lru_cache

from softly import tnorms
from softly._compiling import constant_result
from softly.distributions import (
    Distribution,
    Exponential,
    Gamma,
    GumbelMax,
    Levy,
    Wigner,
    kernels,
)
from softly.distributions.base import Reversed, Shifted
from softly.tnorms import TNorm

_ASYMMETRIC: tuple[Distribution, ...] = (  # in the order of native/rendering/coverage.h, behind the symmetric ones
    GumbelMax(),
    Exponential(),
    Levy(),
    Gamma(0.5),
    Gamma(2.0),
)
_FIRST = 11
_WIGNER = kernels.codes(Wigner())[0]  # type: ignore[index]
_AGGREGATIONS = (  # in the order of native/rendering/aggregation.h
    tnorms.Minimum,
    tnorms.Hamacher,
    tnorms.Frank,
    tnorms.Yager,
    tnorms.AczelAlsina,
    tnorms.Dombi,
    tnorms.SchweizerSklar,
)
_SUM = len(_AGGREGATIONS)
_POWERS = (tnorms.Yager, tnorms.AczelAlsina, tnorms.Dombi, tnorms.SchweizerSklar)
_HIGHEST = 5.0
"""Up to which power of probabilities their sum is a number in single precision: beyond, it is the reference's."""
_MILD = 3.0
"""And from 1 up to which power single precision is enough, since a power multiplies relative errors."""


@constant_result  # which has to be outside of the cache
def of_distribution(distribution: Distribution) -> tuple[int, bool, float] | None:
    """Number, whether it is reversed, and shift behind that; None for a distribution that the kernel doesn't know."""
    return _cached_distribution(distribution)


@lru_cache(maxsize=256)
def _cached_distribution(distribution: Distribution) -> tuple[int, bool, float] | None:
    shift, turned = 0.0, False
    while isinstance(distribution, (Shifted, Reversed)):
        if isinstance(distribution, Shifted):
            shift += -distribution.shift if turned else distribution.shift
        else:
            turned = not turned
        distribution = distribution.base
    if distribution == Gamma(1.0):
        distribution = Exponential()
    if distribution in _ASYMMETRIC:
        return _FIRST + _ASYMMETRIC.index(distribution), turned, shift
    known = kernels.codes(distribution)
    return None if known is None or known[1] >= 0 else (known[0], turned, shift)


def distribution_of(number: int, turned: bool, shift: float) -> Distribution:
    """The distribution of such numbers."""
    if number < _FIRST:
        found = kernels.decode(number, -1.0)
    elif number < _FIRST + len(_ASYMMETRIC):
        found = _ASYMMETRIC[number - _FIRST]
    else:
        last = _FIRST + len(_ASYMMETRIC) - 1
        raise ValueError(f"softly.Renderer: the kernel knows distributions 0 to {last}, got {number}.")
    return (found.reversed() if turned else found).shifted(shift)


@constant_result
def of_tconorm(tconorm: TNorm | None) -> tuple[int, float] | None:
    """Number and parameter, also of the sum, which is None; None for a T-conorm that the kernel doesn't know."""
    if tconorm is None:
        return _SUM, 1.0
    if isinstance(tconorm, tnorms.Probabilistic):
        return 1, 1.0
    if isinstance(tconorm, tnorms.Lukasiewicz):
        return 3, 1.0
    for number, family in enumerate(_AGGREGATIONS):
        if type(tconorm) is family or (family is tnorms.Hamacher and isinstance(tconorm, tnorms.Einstein)):
            p = float(getattr(tconorm, "p", 1.0))
            if family in _POWERS and abs(p) > _HIGHEST:
                return None
            if family is tnorms.Frank and abs(math.log(p)) < 1e-9:
                return 1, 1.0
            return number, p
    return None


def tconorm_of(number: int, p: float) -> TNorm | None:
    """The T-conorm of such numbers; None for the sum."""
    if number == 0:
        return tnorms.get("minimum")
    if number == _SUM:
        return None
    if not 0 < number < _SUM:
        raise ValueError(f"softly.Renderer: the kernel knows T-conorms 0 to {_SUM}, got {number}.")
    return _AGGREGATIONS[number](p)  # type: ignore[call-arg]


def delicate(distribution: int, tconorm: int, p: float) -> bool:
    """Whether single precision is too little for gradients: tails or slopes have no bound, ties decide, or powers."""
    if distribution >= _FIRST or distribution == _WIGNER or tconorm == 0:
        return True
    return tconorm < _SUM and _AGGREGATIONS[tconorm] in _POWERS and not 1.0 <= abs(p) <= _MILD
