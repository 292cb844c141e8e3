"""The elementary functions that branch: where, absolute value, ReLU, clamp, sign and rounding, relaxed."""

from __future__ import annotations

import torch
from torch import Tensor

from softly import _inputs, _straight_through, minmax
from softly.distributions import Distribution
from softly.minmax import Operand, operands, symmetric

__all__ = ["abs", "clamp", "relu", "round", "sign", "where"]


def where(p: Operand, a: Operand, b: Operand, *, straight_through: bool = False) -> Tensor:
    """The mean of a choice between ``a``, with probability ``p``, and ``b``: ``p a + (1 - p) b``.

    At ``p`` of 0 and 1 this is ``torch.where(p.bool(), a, b)``, whatever the other value is, infinite too; at every
    ``p`` it lies between ``a`` and ``b``.

    Args:
        p: (...) Probabilities in [0, 1], as of `softly.less`.
        a, b: (...) Broadcastable tensors or numbers.
        straight_through: Choose ``a`` for ``p > 1/2`` and ``b`` below, with the gradient of the mean.

    Example:
        >>> x = torch.tensor([-1.0, 0.0, 1.0])
        >>> softly.where(softly.less(x, 0.0, steepness=1.0), -x, x)
        tensor([0.5000, 0.0000, 0.5000])
    """
    p, a, b = operands("softly.where", p=p, a=a, b=b)
    dtype = p.dtype
    p, a, b = minmax.single(p), minmax.single(a), minmax.single(b)
    soft = _mean(p, a, b)
    if straight_through:
        soft = _straight_through.straight_through(_mean(minmax.half(p - 0.5), a, b), soft)
    return soft.to(dtype)


def _mean(p: Tensor, a: Tensor, b: Tensor) -> Tensor:
    # Nothing times infinity is nothing here, and an infinite mean has derivative 0.
    first, second = (p != 0) & a.isinf(), (p != 1) & b.isinf()
    infinite = torch.where(first, a, 0.0) + torch.where(second, b, 0.0)
    mean = p * torch.where(a.isinf(), 0.0, a) + (1.0 - p) * torch.where(b.isinf(), 0.0, b)
    return torch.where(first | second, infinite.detach(), mean)


def abs(
    x: Tensor,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
    straight_through: bool = False,
) -> Tensor:
    """The relaxed absolute value, ``maximum(x, -x)``.

    As ``steepness -> inf`` this is ``torch.abs``, and never above; it is even, ``abs(-x) == abs(x)``.

    Args:
        x: (...) Values.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0.
        straight_through: Give the limit, with the gradient of the relaxation.

    Example:
        >>> softly.abs(torch.tensor([-2.0, 0.0, 0.1]), steepness=10.0)
        tensor([1.9682, 0.0000, 0.0705])
    """
    _inputs.floating(x, "softly.abs", "x")
    return minmax.compared(x, -x, distribution, steepness, straight_through, "softly.abs").high


def relu(
    x: Tensor,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
    straight_through: bool = False,
) -> Tensor:
    """The relaxed positive part, ``maximum(x, 0) = x F(steepness * x)``.

    As ``steepness -> inf`` this is ``torch.relu``, and never above; ``relu(x) - relu(-x) == x``. With the Gaussian
    distribution it is the GELU, with the logistic one the SiLU (swish).

    Args:
        x: (...) Values.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0.
        straight_through: Give the limit, with the gradient of the relaxation.

    Example:
        >>> softly.relu(torch.tensor([-1.0, 0.0, 1.0]), distribution="gaussian", steepness=1.0)
        tensor([-0.1587,  0.0000,  0.8413])
    """
    _inputs.floating(x, "softly.relu", "x")
    return minmax.compared(x, 0.0, distribution, steepness, straight_through, "softly.relu").high


def clamp(
    x: Operand,
    low: Operand,
    high: Operand,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
    straight_through: bool = False,
) -> Tensor:
    """``x`` held between two bounds, ``maximum(low, minimum(x, high))``.

    As ``steepness -> inf`` this is ``torch.clamp``; at every steepness it is off by at most ``swap_error / steepness``
    of the distribution on either side, so that bounds may be passed by as much.

    Args:
        x: (...) Values.
        low, high: (...) Broadcastable bounds, tensors or numbers, ``low <= high``.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0.
        straight_through: Give the limit, with the gradient of the relaxation.

    Example:
        >>> softly.clamp(torch.tensor([-2.0, 0.5, 3.0]), 0.0, 1.0, distribution="logistic", steepness=10.0)
        tensor([-4.1223e-09,  5.0009e-01,  9.9995e-01])
    """
    name = "softly.clamp"
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and not low <= high:
        raise ValueError(f"{name}: low must not be above high, got {low} and {high}.")
    x, low, high = operands(name, x=x, low=low, high=high)
    below = minmax.compared(x, high, distribution, steepness, False, name).low
    soft = minmax.compared(low, below, distribution, steepness, False, name).high
    if not straight_through:
        return soft
    return _straight_through.straight_through(torch.maximum(low, torch.minimum(x, high)), soft)


def sign(
    x: Tensor,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
    straight_through: bool = False,
) -> Tensor:
    """The relaxed sign, ``2 F(steepness * x) - 1``.

    As ``steepness -> inf`` this is ``torch.sign``; it is odd, ``sign(-x) == -sign(x)``.

    Args:
        x: (...) Values.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0.
        straight_through: Give the limit, with the gradient of the relaxation.

    Example:
        >>> softly.sign(torch.tensor([-0.1, 0.0, 2.0]), distribution="logistic", steepness=20.0)
        tensor([-0.7616,  0.0000,  1.0000])
    """
    _inputs.floating(x, "softly.sign", "x")
    chosen = symmetric(distribution, "softly.sign")
    soft = 2.0 * chosen.cdf(_inputs.steepness(steepness, "softly.sign") * minmax.single(x)) - 1.0
    return minmax.finished(torch.sign(x), soft, straight_through, x.dtype)


def round(
    x: Tensor,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
    straight_through: bool = False,
) -> Tensor:
    """Relaxed rounding: stairs whose steps are the CDF, from one integer to the next.

    Between integers it is ``floor(x) + (F(s (f - 1/2)) - F(-s/2)) / (F(s/2) - F(-s/2))`` with the fraction f of ``x``
    and the steepness s: continuous, increasing, and exact at integers and halves. As ``steepness -> inf`` this is
    ``torch.round``, but for halves, where it stays in the middle.

    Args:
        x: (...) Values.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0.
        straight_through: Give ``torch.round``, which takes halves to the even neighbour, with the gradient of the
            relaxation.

    Example:
        >>> softly.round(torch.tensor([-1.0, 0.4, 0.5, 0.6]), distribution="logistic", steepness=20.0)
        tensor([-1.0000,  0.1192,  0.5000,  0.8808])
    """
    name = "softly.round"
    _inputs.floating(x, name, "x")
    chosen = symmetric(distribution, name)
    steepness = _inputs.steepness(steepness, name)
    soft = stairs(minmax.single(x), chosen, steepness)
    return minmax.finished(torch.round(x), soft, straight_through, x.dtype)


def stairs(x: Tensor, distribution: Distribution, steepness: float | Tensor) -> Tensor:
    """What `round` is, of any distribution whose support is more than a point; infinities stay."""
    infinite = x.isinf()
    y = torch.where(infinite, 0.0, x)
    floor = torch.floor(y.detach())
    half = 0.5 * steepness * torch.ones_like(y)
    start = distribution.cdf(-half)
    step = (distribution.cdf(steepness * (y - floor - 0.5)) - start) / (distribution.cdf(half) - start)
    return torch.where(infinite, x, floor + step)
