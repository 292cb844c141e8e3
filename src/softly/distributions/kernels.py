"""How kernels know distributions: by number."""

from __future__ import annotations

from functools import lru_cache

from softly import distributions
from softly._compiling import constant_result
from softly.distributions.base import Distribution
from softly.distributions.symmetric import Art

_FAMILIES = (  # in the order of native/core/distributions.h
    "heaviside",
    "uniform",
    "cubic_hermite",
    "wigner",
    "gaussian",
    "laplace",
    "logistic",
    "hyperbolic_secant",
    "cauchy",
    "reciprocal",
    "optimal",
)


@constant_result  # which has to be outside of the cache
def codes(distribution: Distribution) -> tuple[int, float] | None:
    """The kernels' number of a distribution and the strength of its replaced activations, -1 for none.

    None for a distribution that they don't know.
    """
    return _cached_codes(distribution)


@lru_cache(maxsize=256)
def _cached_codes(distribution: Distribution) -> tuple[int, float] | None:
    strength = -1.0
    if isinstance(distribution, Art):
        strength, distribution = distribution.strength, distribution.base
    for number, name in enumerate(_FAMILIES):
        if distribution == distributions.get(name):
            return number, strength
    return None


def decode(number: int, strength: float) -> Distribution:
    """The distribution of the kernels' number and of a strength."""
    if not 0 <= number < len(_FAMILIES):
        raise ValueError(f"softly.distributions: kernels know the numbers 0 to {len(_FAMILIES) - 1}, got {number}.")
    distribution = distributions.get(_FAMILIES[number])
    return distribution if strength < 0 else distributions.art(distribution, strength=strength)
