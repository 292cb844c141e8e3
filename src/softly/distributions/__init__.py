"""The distributions of appendix A: sigmoid functions as cumulative distribution functions.

A relaxed comparison is the probability that it holds when the difference is perturbed; which distribution
perturbs it decides how the relaxation behaves. Every family here is accurate in both tails and differentiable
twice where the mathematics is; `art`, `Distribution.reversed`, `Distribution.squared` and
`Distribution.shifted` derive more.
"""

from __future__ import annotations

from softly._compiling import made
from softly.distributions.asymmetric import Exponential, Gamma, GumbelMax, GumbelMin, Levy
from softly.distributions.base import Distribution
from softly.distributions.symmetric import (
    Art,
    Cauchy,
    CubicHermite,
    Gaussian,
    Heaviside,
    HyperbolicSecant,
    Laplace,
    Logistic,
    Optimal,
    Reciprocal,
    Uniform,
    Wigner,
)

__all__ = [
    "Cauchy",
    "CubicHermite",
    "Distribution",
    "Exponential",
    "Gamma",
    "Gaussian",
    "GumbelMax",
    "GumbelMin",
    "Heaviside",
    "HyperbolicSecant",
    "Laplace",
    "Levy",
    "Logistic",
    "Optimal",
    "Reciprocal",
    "Uniform",
    "Wigner",
    "art",
    "get",
    "names",
]

_FAMILIES: dict[str, Distribution] = {
    "heaviside": Heaviside(),
    "uniform": Uniform(),
    "cubic_hermite": CubicHermite(),
    "wigner": Wigner(),
    "gaussian": Gaussian(),
    "laplace": Laplace(),
    "logistic": Logistic(),
    "hyperbolic_secant": HyperbolicSecant(),
    "cauchy": Cauchy(),
    "reciprocal": Reciprocal(),
    "optimal": Optimal(),
    "gumbel_max": GumbelMax(),
    "gumbel_min": GumbelMin(),
    "exponential": Exponential(),
    "levy": Levy(),
    "gamma": Gamma(),
}


def names() -> tuple[str, ...]:
    """The names of all families.

    Example:
        >>> softly.distributions.names()[:3]
        ('heaviside', 'uniform', 'cubic_hermite')
    """
    return tuple(_FAMILIES)


def get(distribution: str | Distribution, *, shape: float | None = None) -> Distribution:
    """Look a distribution up by name; an object is returned as it is.

    Args:
        distribution: One of `names`, or a `Distribution`.
        shape: The shape of ``"gamma"``, > 0, by default 0.5.

    Example:
        >>> softly.distributions.get("gamma", shape=2.0).cdf(torch.tensor(1.0))
        tensor(0.2642)
    """
    if shape is not None:
        if distribution != "gamma":
            raise ValueError(
                f"softly.distributions.get: only 'gamma' has a shape, got shape={shape} for {distribution!r}."
            )
        return made(Gamma, shape)
    if isinstance(distribution, Distribution):
        return distribution
    if not isinstance(distribution, str):
        raise TypeError(
            "softly.distributions.get: distribution must be a name or a Distribution, "
            f"got {type(distribution).__name__}."
        )
    if distribution not in _FAMILIES:
        raise ValueError(
            f"softly.distributions.get: unknown distribution {distribution!r}; choose from {', '.join(_FAMILIES)}."
        )
    return _FAMILIES[distribution]


def art(distribution: str | Distribution, *, strength: float = 0.25) -> Distribution:
    """The activation replacement trick of chapter 3: ``cdf(x / (|x|^strength + 1e-10))``.

    It moves the differences of a sorting network away from 0, where values blur, and in from the tails,
    where gradients vanish; it gives up monotonicity. The β of the thesis is
    ``steepness = β ** (1 / (1 - strength))`` here. At ties its derivative is defined as 0.
    As ``strength -> 0`` it is the distribution itself.

    Args:
        distribution: A symmetric distribution.
        strength: λ of the thesis, in [0, 1).

    Example:
        >>> softly.distributions.art("logistic", strength=0.25).cdf(torch.tensor([-0.1, 0.0, 0.1]))
        tensor([0.4557, 0.5000, 0.5443])
    """
    base = get(distribution)
    if not base.symmetric:
        raise ValueError(f"softly.distributions.art: the distribution must be symmetric, got {base}.")
    if not 0 <= strength < 1:
        raise ValueError(f"softly.distributions.art: strength must be in [0, 1), got {strength}.")
    return made(Art, base, float(strength))
