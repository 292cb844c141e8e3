"""Relaxed minimum, maximum, swap and comparisons (appendix C), and their n-ary forms."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from softly import _inputs, distributions
from softly.distributions import Distribution

__all__ = [
    "Swap",
    "argmax",
    "argmin",
    "categorical_equal",
    "equal",
    "greater",
    "less",
    "max",
    "maximum",
    "min",
    "minimum",
    "swap",
]


class Swap(NamedTuple):
    """The result of `swap`.

    Example:
        >>> low, high, keep = softly.swap(torch.tensor(0.0), torch.tensor(2.0), steepness=0.5)
        >>> keep
        tensor(0.7500)
    """

    low: Tensor
    """The relaxed minimum."""
    high: Tensor
    """The relaxed maximum."""
    keep: Tensor
    """The probability that the first argument stays first."""


def symmetric(distribution: str | Distribution, function: str) -> Distribution:
    """Look a distribution up and refuse it if it isn't symmetric."""
    chosen = distributions.get(distribution)
    if not chosen.symmetric:
        raise ValueError(
            f"{function}: distribution must be symmetric, so that the order of the arguments doesn't matter; "
            f"got {distribution!r}."
        )
    return chosen


def _pair(a: Tensor, b: Tensor, function: str) -> None:
    _inputs.floating(a, function, "a")
    _inputs.floating(b, function, "b")


def _swap(a: Tensor, b: Tensor, distribution: str | Distribution, steepness: float | Tensor, function: str) -> Swap:
    _pair(a, b, function)
    chosen = symmetric(distribution, function)
    steepness = _inputs.steepness(steepness, function)
    difference = _inputs.finite(b) - _inputs.finite(a)
    ordered = difference > 0
    gap = torch.where(ordered, difference, -difference)
    cross = chosen.cdf(-steepness * gap)
    # Added to the hard minimum and maximum, so that infinite ones stay what they are.
    error = gap * cross
    return Swap(
        torch.where(ordered, a, b) + error,
        torch.where(ordered, b, a) - error,
        torch.where(ordered, 1.0 - cross, cross),
    )


def swap(
    a: Tensor,
    b: Tensor,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
) -> Swap:
    """Order two tensors elementwise, softly.

    As ``steepness -> inf`` this is ``(min(a, b), max(a, b))``; at every steepness ``low + high == a + b``.

    Args:
        a, b: (...) Broadcastable tensors.
        distribution: Name or `Distribution`, symmetric. Its CDF weighs the two orders; "cauchy", "reciprocal"
            and "optimal" keep the swap monotonic.
        steepness: Inverse temperature, > 0.

    Returns:
        `Swap(low, high, keep)` of the broadcast shape; ``keep`` is the probability that ``a`` stays first.

    Example:
        >>> softly.swap(torch.tensor(3.0), torch.tensor(1.0), distribution="logistic", steepness=1.0).low
        tensor(1.2384)
    """
    return _swap(a, b, distribution, steepness, "softly.swap")


def minimum(
    a: Tensor,
    b: Tensor,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
) -> Tensor:
    """The relaxed minimum of two tensors, elementwise: ``a F(b - a) + b F(a - b)``.

    As ``steepness -> inf`` it is ``torch.minimum``, and never below; ``minimum + maximum == a + b``.

    Args:
        a, b: (...) Broadcastable tensors.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0.

    Example:
        >>> softly.minimum(torch.tensor(0.0), torch.tensor([-1.0, 0.0, 1.0]), distribution="optimal")
        tensor([-0.9937,  0.0000,  0.0063])
    """
    return _swap(a, b, distribution, steepness, "softly.minimum").low


def maximum(
    a: Tensor,
    b: Tensor,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
) -> Tensor:
    """The relaxed maximum of two tensors, elementwise: ``a F(a - b) + b F(b - a)``.

    As ``steepness -> inf`` it is ``torch.maximum``, and never above; ``minimum + maximum == a + b``.

    Args:
        a, b: (...) Broadcastable tensors.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0.

    Example:
        >>> softly.maximum(torch.tensor(0.0), torch.tensor([-1.0, 0.0, 1.0]), distribution="optimal")
        tensor([-0.0063,  0.0000,  0.9937])
    """
    return _swap(a, b, distribution, steepness, "softly.maximum").high


def less(
    a: Tensor,
    b: Tensor,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
) -> Tensor:
    """The probability that ``a < b`` under perturbation: ``F(steepness * (b - a))``.

    As ``steepness -> inf`` this is ``a < b``, with ½ at ties; ``less(a, b) + less(b, a) == 1``.

    Args:
        a, b: (...) Broadcastable tensors.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0.

    Example:
        >>> softly.less(torch.tensor([0.0, 1.0]), torch.tensor(1.0), distribution="logistic", steepness=2.0)
        tensor([0.8808, 0.5000])
    """
    return _less(a, b, 1.0, distribution, steepness, "softly.less")


def greater(
    a: Tensor,
    b: Tensor,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
) -> Tensor:
    """The probability that ``a > b`` under perturbation: ``F(steepness * (a - b))``.

    As ``steepness -> inf`` this is ``a > b``, with ½ at ties; ``greater(a, b) == less(b, a)``.

    Args:
        a, b: (...) Broadcastable tensors.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0.

    Example:
        >>> softly.greater(torch.tensor([0.0, 1.0]), torch.tensor(1.0), distribution="cauchy", steepness=1.0)
        tensor([0.2500, 0.5000])
    """
    return _less(a, b, -1.0, distribution, steepness, "softly.greater")


def _less(
    a: Tensor,
    b: Tensor,
    sign: float,
    distribution: str | Distribution,
    steepness: float | Tensor,
    function: str,
) -> Tensor:
    _pair(a, b, function)
    steepness = _inputs.steepness(steepness, function)
    return symmetric(distribution, function).cdf(sign * steepness * (_inputs.finite(b) - _inputs.finite(a)))


def equal(
    a: Tensor,
    b: Tensor,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
) -> Tensor:
    """How likely ``a == b`` is under perturbation: ``f(steepness * (a - b)) / f(0)`` with the density f.

    As ``steepness -> inf`` this is ``a == b``; it is 1 at ties.

    Args:
        a, b: (...) Broadcastable tensors.
        distribution: Name or `Distribution`, symmetric, with its highest density at 0.
        steepness: Inverse temperature, > 0.

    Example:
        >>> softly.equal(torch.tensor([0.0, 1.0]), torch.tensor(1.0), distribution="cauchy", steepness=2.0)
        tensor([0.2000, 1.0000])
    """
    _pair(a, b, "softly.equal")
    chosen = symmetric(distribution, "softly.equal")
    if not chosen.peaked:
        raise ValueError(f"softly.equal: distribution must have a density with its peak at 0, got {distribution!r}.")
    steepness = _inputs.steepness(steepness, "softly.equal")
    difference = steepness * (_inputs.finite(a) - _inputs.finite(b))
    return chosen.pdf(difference) / chosen.pdf(torch.zeros_like(difference))


def categorical_equal(p: Tensor, q: Tensor, *, similarity: str = "cosine", dim: int = -1) -> Tensor:
    """How likely two categorical distributions name the same category.

    For one-hot vectors this is exactly their equality, 1 or 0.

    Args:
        p, q: (..., c, ...) Broadcastable tensors of probabilities along ``dim``.
        similarity: "inner" is the probability that independent draws agree, which is below 1 for equal but
            uncertain arguments; "cosine" normalises it to 1 for those.
        dim: The dimension of the categories.

    Example:
        >>> p = torch.tensor([0.5, 0.5, 0.0])
        >>> softly.categorical_equal(p, p), softly.categorical_equal(p, p, similarity="inner")
        (tensor(1.0000), tensor(0.5000))
    """
    _inputs.floating(p, "softly.categorical_equal", "p")
    _inputs.floating(q, "softly.categorical_equal", "q")
    if similarity == "cosine":
        return torch.nn.functional.cosine_similarity(p, q, dim=dim)
    if similarity == "inner":
        return (p * q).sum(dim)
    raise ValueError(f"softly.categorical_equal: similarity must be 'cosine' or 'inner', got {similarity!r}.")


def _check_reduction(x: Tensor, dim: int, function: str) -> None:
    _inputs.floating(x, function, "x")
    if not -x.ndim <= dim < x.ndim:
        raise ValueError(f"{function}: dim must be in [{-x.ndim}, {x.ndim - 1}], got {dim}.")
    if x.shape[dim] == 0:
        raise ValueError(f"{function}: x must not be empty along dim {dim}, got shape {tuple(x.shape)}.")


def argmax(x: Tensor, *, dim: int = -1, steepness: float | Tensor = 10.0) -> Tensor:
    """The probability of each entry to be the largest: the softmax, which is a Gumbel perturbation.

    As ``steepness -> inf`` this is the one-hot vector of ``torch.argmax``, shared evenly by ties.

    Args:
        x: (..., n, ...) Scores.
        dim: The dimension that is searched.
        steepness: Inverse temperature, > 0.

    Returns:
        Weights of the shape of ``x`` that sum to 1 along ``dim``.

    Example:
        >>> softly.argmax(torch.tensor([0.0, 1.0, 2.0]), steepness=2.0)
        tensor([0.0159, 0.1173, 0.8668])
    """
    return _argmax(x, dim, steepness, "softly.argmax")


def argmin(x: Tensor, *, dim: int = -1, steepness: float | Tensor = 10.0) -> Tensor:
    """The probability of each entry to be the smallest; ``argmin(x) == argmax(-x)``.

    As ``steepness -> inf`` this is the one-hot vector of ``torch.argmin``, shared evenly by ties.

    Args:
        x: (..., n, ...) Scores.
        dim: The dimension that is searched.
        steepness: Inverse temperature, > 0.

    Example:
        >>> softly.argmin(torch.tensor([0.0, 1.0, 2.0]), steepness=2.0)
        tensor([0.8668, 0.1173, 0.0159])
    """
    return _argmax(-_inputs.floating(x, "softly.argmin", "x"), dim, steepness, "softly.argmin")


def max(x: Tensor, *, dim: int = -1, steepness: float | Tensor = 10.0) -> Tensor:
    """The mean of ``x`` under `argmax`.

    As ``steepness -> inf`` this is ``torch.amax``; it is never above it.

    Args:
        x: (..., n, ...) Scores.
        dim: The dimension that is reduced.
        steepness: Inverse temperature, > 0.

    Example:
        >>> softly.max(torch.tensor([0.0, 1.0, 2.0]), steepness=2.0)
        tensor(1.8509)
    """
    return _max(x, dim, steepness, "softly.max")


def min(x: Tensor, *, dim: int = -1, steepness: float | Tensor = 10.0) -> Tensor:
    """The mean of ``x`` under `argmin`; ``min(x) == -max(-x)``.

    As ``steepness -> inf`` this is ``torch.amin``; it is never below it.

    Args:
        x: (..., n, ...) Scores.
        dim: The dimension that is reduced.
        steepness: Inverse temperature, > 0.

    Example:
        >>> softly.min(torch.tensor([0.0, 1.0, 2.0]), steepness=2.0)
        tensor(0.1491)
    """
    return -_max(-_inputs.floating(x, "softly.min", "x"), dim, steepness, "softly.min")


def _argmax(x: Tensor, dim: int, steepness: float | Tensor, function: str) -> Tensor:
    _check_reduction(x, dim, function)
    return torch.softmax(_inputs.steepness(steepness, function) * _inputs.finite(x), dim)


def _max(x: Tensor, dim: int, steepness: float | Tensor, function: str) -> Tensor:
    mean = (_argmax(x, dim, steepness, function) * _inputs.finite(x)).sum(dim)
    hard = x.amax(dim)
    return torch.where(hard.isinf(), hard, mean)
