"""Relaxed minimum, maximum, swap and comparisons (appendix C), and their n-ary forms."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from softly import _dims, _inputs, _straight_through, distributions
from softly._dims import Dim
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


Operand = Tensor | float


def operands(function: str, **values: Operand) -> list[Tensor]:
    """Tensors and numbers as tensors of one dtype: numbers take that of the tensors.

    As in torch, tensors with dimensions decide over those without. All are looked at together, so that the dtype
    doesn't depend on the order of the arguments.
    """
    tensors = [
        _inputs.floating(v, function, name)  # type: ignore[arg-type]
        for name, v in values.items()
        if not isinstance(v, (int, float)) or isinstance(v, bool)
    ]
    if not tensors:
        raise TypeError(f"{function}: at least one of {', '.join(values)} must be a tensor, got numbers only.")
    deciding = [t.dtype for t in tensors if t.ndim] or [t.dtype for t in tensors]
    dtype = functools.reduce(torch.promote_types, deciding)
    return [
        v.to(dtype) if isinstance(v, Tensor) else torch.full((), v, dtype=dtype, device=tensors[0].device)
        for v in values.values()
    ]


def _difference(a: Tensor, b: Tensor) -> Tensor:
    """``b - a``, 0 of equal infinities, and held where it would be infinite."""
    tie = a.isinf() & (a == b)
    return torch.where(tie, 0.0, b - a).clamp(-_inputs.large(a), _inputs.large(a))


def single(x: Tensor) -> Tensor:
    """``x`` in float32 at least: what stands for infinity in half precision is smaller than many a number."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def half(x: Tensor) -> Tensor:
    """The hard comparison with 0: 0, 1, and ½ at ties."""
    return 0.5 + 0.5 * torch.sign(x)


def compared(
    a: Operand,
    b: Operand,
    distribution: str | Distribution,
    steepness: float | Tensor,
    straight_through: bool,
    function: str,
) -> Swap:
    a, b = operands(function, a=a, b=b)
    dtype = a.dtype
    a, b = single(a), single(b)
    chosen = symmetric(distribution, function)
    steepness = _inputs.steepness(steepness, function)
    difference = _difference(a, b)
    ordered = difference > 0
    gap = torch.where(ordered, difference, -difference)
    cross = chosen.cdf(-steepness * gap)
    # Added to the hard minimum and maximum, so that infinite ones stay what they are.
    error = gap * cross
    low, high = torch.where(ordered, a, b), torch.where(ordered, b, a)
    swap = Swap(low + error, high - error, torch.where(ordered, 1.0 - cross, cross))
    if straight_through:
        pairs = zip((low, high, half(difference)), swap, strict=True)
        swap = Swap(*(_straight_through.straight_through(hard, soft) for hard, soft in pairs))
    return Swap(*(part.to(dtype) for part in swap))


def swap(
    a: Operand,
    b: Operand,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
    straight_through: bool = False,
) -> Swap:
    """Order two tensors elementwise, softly.

    As ``steepness -> inf`` this is ``(min(a, b), max(a, b))``; at every steepness ``low + high == a + b``.

    Args:
        a, b: (...) Broadcastable tensors; one of them may be a number.
        distribution: Name or `Distribution`, symmetric. Its CDF weighs the two orders; "cauchy", "reciprocal"
            and "optimal" keep the swap monotonic.
        steepness: Inverse temperature, > 0.
        straight_through: Give the limit, with the gradient of the relaxation.

    Returns:
        `Swap(low, high, keep)` of the broadcast shape; ``keep`` is the probability that ``a`` stays first.

    Example:
        >>> softly.swap(torch.tensor(3.0), torch.tensor(1.0), distribution="logistic", steepness=1.0).low
        tensor(1.2384)
    """
    return compared(a, b, distribution, steepness, straight_through, "softly.swap")


def minimum(
    a: Operand,
    b: Operand,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
    straight_through: bool = False,
) -> Tensor:
    """The relaxed minimum of two tensors, elementwise: ``a F(b - a) + b F(a - b)``.

    As ``steepness -> inf`` it is ``torch.minimum``, and never below; ``minimum + maximum == a + b``.

    Args:
        a, b: (...) Broadcastable tensors; one of them may be a number.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0.
        straight_through: Give the limit, with the gradient of the relaxation.

    Example:
        >>> softly.minimum(torch.tensor(0.0), torch.tensor([-1.0, 0.0, 1.0]), distribution="optimal")
        tensor([-0.9937,  0.0000,  0.0063])
    """
    return compared(a, b, distribution, steepness, straight_through, "softly.minimum").low


def maximum(
    a: Operand,
    b: Operand,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
    straight_through: bool = False,
) -> Tensor:
    """The relaxed maximum of two tensors, elementwise: ``a F(a - b) + b F(b - a)``.

    As ``steepness -> inf`` it is ``torch.maximum``, and never above; ``minimum + maximum == a + b``.

    Args:
        a, b: (...) Broadcastable tensors; one of them may be a number.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0.
        straight_through: Give the limit, with the gradient of the relaxation.

    Example:
        >>> softly.maximum(torch.tensor(0.0), torch.tensor([-1.0, 0.0, 1.0]), distribution="optimal")
        tensor([-0.0063,  0.0000,  0.9937])
    """
    return compared(a, b, distribution, steepness, straight_through, "softly.maximum").high


def less(
    a: Operand,
    b: Operand,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
    straight_through: bool = False,
) -> Tensor:
    """The probability that ``a < b`` under perturbation: ``F(steepness * (b - a))``.

    As ``steepness -> inf`` this is ``a < b``, with ½ at ties; ``less(a, b) + less(b, a) == 1``.

    Args:
        a, b: (...) Broadcastable tensors; one of them may be a number.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0.
        straight_through: Give the limit, with the gradient of the relaxation.

    Example:
        >>> softly.less(torch.tensor([0.0, 1.0]), torch.tensor(1.0), distribution="logistic", steepness=2.0)
        tensor([0.8808, 0.5000])
    """
    return _less(a, b, distribution, steepness, straight_through, "softly.less")


def greater(
    a: Operand,
    b: Operand,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
    straight_through: bool = False,
) -> Tensor:
    """The probability that ``a > b`` under perturbation: ``F(steepness * (a - b))``.

    As ``steepness -> inf`` this is ``a > b``, with ½ at ties; ``greater(a, b) == less(b, a)``.

    Args:
        a, b: (...) Broadcastable tensors; one of them may be a number.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0.
        straight_through: Give the limit, with the gradient of the relaxation.

    Example:
        >>> softly.greater(torch.tensor([0.0, 1.0]), torch.tensor(1.0), distribution="cauchy", steepness=1.0)
        tensor([0.2500, 0.5000])
    """
    return _less(a, b, distribution, steepness, straight_through, "softly.greater", backwards=True)


def _less(
    a: Operand,
    b: Operand,
    distribution: str | Distribution,
    steepness: float | Tensor,
    straight_through: bool,
    function: str,
    backwards: bool = False,
) -> Tensor:
    a, b = operands(function, a=a, b=b)
    chosen = symmetric(distribution, function)
    difference = _difference(single(b), single(a)) if backwards else _difference(single(a), single(b))
    soft = chosen.cdf(_inputs.steepness(steepness, function) * difference)
    return finished(half(difference), soft, straight_through, a.dtype)


def finished(hard: Tensor, soft: Tensor, straight_through: bool, dtype: torch.dtype) -> Tensor:
    """The soft value, or the hard one with its gradient, in the dtype of the arguments."""
    return (_straight_through.straight_through(hard, soft) if straight_through else soft).to(dtype)


def equal(
    a: Operand,
    b: Operand,
    *,
    distribution: str | Distribution = "cauchy",
    steepness: float | Tensor = 10.0,
    straight_through: bool = False,
) -> Tensor:
    """How likely ``a == b`` is under perturbation: ``f(steepness * (a - b)) / f(0)`` with the density f.

    As ``steepness -> inf`` this is ``a == b``; it is 1 at ties.

    Args:
        a, b: (...) Broadcastable tensors; one of them may be a number.
        distribution: Name or `Distribution`, symmetric, with its highest density at 0.
        steepness: Inverse temperature, > 0.
        straight_through: Give the limit, with the gradient of the relaxation.

    Example:
        >>> softly.equal(torch.tensor([0.0, 1.0]), torch.tensor(1.0), distribution="cauchy", steepness=2.0)
        tensor([0.2000, 1.0000])
    """
    a, b = operands("softly.equal", a=a, b=b)
    chosen = symmetric(distribution, "softly.equal")
    if not chosen.peaked:
        raise ValueError(f"softly.equal: distribution must have a density with its peak at 0, got {distribution!r}.")
    difference = _difference(single(b), single(a))
    density = chosen.pdf(_inputs.steepness(steepness, "softly.equal") * difference)
    return finished(a == b, density / chosen.pdf(torch.zeros_like(difference)), straight_through, a.dtype)


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


def argmax(x: Tensor, *, dim: Dim = -1, steepness: float | Tensor = 10.0, straight_through: bool = False) -> Tensor:
    """The probability of each entry to be the largest: the softmax, which is a Gumbel perturbation.

    As ``steepness -> inf`` this is the one-hot vector of ``torch.argmax``, shared evenly by ties.

    Args:
        x: (..., n, ...) Scores.
        dim: The dimension that is searched, or a tuple of them.
        steepness: Inverse temperature, > 0.
        straight_through: Give the limit, with the gradient of the relaxation.

    Returns:
        Weights of the shape of ``x`` that sum to 1 along ``dim``.

    Example:
        >>> softly.argmax(torch.tensor([0.0, 1.0, 2.0]), steepness=2.0)
        tensor([0.0159, 0.1173, 0.8668])
    """
    return _argmax(x, dim, steepness, straight_through, "softly.argmax")


def argmin(x: Tensor, *, dim: Dim = -1, steepness: float | Tensor = 10.0, straight_through: bool = False) -> Tensor:
    """The probability of each entry to be the smallest; ``argmin(x) == argmax(-x)``.

    As ``steepness -> inf`` this is the one-hot vector of ``torch.argmin``, shared evenly by ties.

    Args:
        x: (..., n, ...) Scores.
        dim: The dimension that is searched, or a tuple of them.
        steepness: Inverse temperature, > 0.
        straight_through: Give the limit, with the gradient of the relaxation.

    Example:
        >>> softly.argmin(torch.tensor([0.0, 1.0, 2.0]), steepness=2.0)
        tensor([0.8668, 0.1173, 0.0159])
    """
    return _argmax(-_inputs.floating(x, "softly.argmin", "x"), dim, steepness, straight_through, "softly.argmin")


def max(
    x: Tensor,
    *,
    dim: Dim = -1,
    keepdim: bool = False,
    steepness: float | Tensor = 10.0,
    straight_through: bool = False,
) -> Tensor:
    """The mean of ``x`` under `argmax`.

    As ``steepness -> inf`` this is ``torch.amax``; it is never above it.

    Args:
        x: (..., n, ...) Scores.
        dim: The dimension that is reduced, or a tuple of them.
        keepdim: Whether it stays, at length 1.
        steepness: Inverse temperature, > 0.
        straight_through: Give the limit, with the gradient of the relaxation.

    Example:
        >>> softly.max(torch.tensor([0.0, 1.0, 2.0]), steepness=2.0)
        tensor(1.8509)
    """
    return _max(x, dim, keepdim, steepness, straight_through, "softly.max")


def min(
    x: Tensor,
    *,
    dim: Dim = -1,
    keepdim: bool = False,
    steepness: float | Tensor = 10.0,
    straight_through: bool = False,
) -> Tensor:
    """The mean of ``x`` under `argmin`; ``min(x) == -max(-x)``.

    As ``steepness -> inf`` this is ``torch.amin``; it is never below it.

    Args:
        x: (..., n, ...) Scores.
        dim: The dimension that is reduced, or a tuple of them.
        keepdim: Whether it stays, at length 1.
        steepness: Inverse temperature, > 0.
        straight_through: Give the limit, with the gradient of the relaxation.

    Example:
        >>> softly.min(torch.tensor([0.0, 1.0, 2.0]), steepness=2.0)
        tensor(0.1491)
    """
    return -_max(-_inputs.floating(x, "softly.min", "x"), dim, keepdim, steepness, straight_through, "softly.min")


def _weights(
    x: Tensor, dim: Dim, steepness: float | Tensor, straight_through: bool, function: str
) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """``x`` and its weights, in float32 at least and with all that is reduced last; and what that is."""
    _inputs.floating(x, function, "x")
    dims = _dims.checked(dim, x.ndim, function)
    y = _dims.merged(single(x), dims)
    if y.shape[-1] == 0:
        raise ValueError(f"{function}: x must not be empty along dim {dim}, got shape {tuple(x.shape)}.")
    top = y.detach().amax(-1, keepdim=True)
    first = (y == top).to(y.dtype)
    # Measured from the largest, no score overflows, and infinities are what they are.
    large = _inputs.large(y)
    behind = torch.where(y.isinf() | top.isinf(), large * (first - 1.0), y - top).clamp(min=-large)
    weights = torch.softmax(_inputs.steepness(steepness, function) * behind, -1)
    if straight_through:
        weights = _straight_through.straight_through(first / first.sum(-1, keepdim=True), weights)
    return y, weights, dims


def _argmax(x: Tensor, dim: Dim, steepness: float | Tensor, straight_through: bool, function: str) -> Tensor:
    _, weights, dims = _weights(x, dim, steepness, straight_through, function)
    return _dims.split(weights, dims, x.shape).to(x.dtype)


def _max(
    x: Tensor, dim: Dim, keepdim: bool, steepness: float | Tensor, straight_through: bool, function: str
) -> Tensor:
    y, weights, dims = _weights(x, dim, steepness, False, function)
    mean = (weights * torch.where(y.isinf(), 0.0, y)).sum(-1)
    hard = y.amax(-1)
    result = finished(hard, torch.where(hard.isinf(), hard, mean), straight_through, x.dtype)
    return _dims.kept(result, dims) if keepdim else result
