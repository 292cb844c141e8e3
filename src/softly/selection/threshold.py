"""Soft top-k by a threshold: for long vectors, where no network and no matrix fits."""

from __future__ import annotations

import torch
from torch import Tensor

from softly import _inputs, distributions, native
from softly.distributions import Distribution
from softly.distributions.kernels import codes, decode
from softly.minmax import symmetric

__all__ = ["soft_topk"]


def soft_topk(
    x: Tensor,
    k: float,
    *,
    distribution: str | Distribution = "logistic",
    steepness: float | Tensor = 10.0,
    dim: int = -1,
) -> Tensor:
    """How much every entry belongs to the k largest: ``F(steepness * (x - t))``, with the t at which they sum to k.

    As ``steepness -> inf`` this is 1 at ``torch.topk(x, k).indices`` and 0 elsewhere, at every steepness the sum is k.
    It costs a few passes over ``x``, for a million entries as for ten; what it does not tell is which of the k largest
    an entry is. For that, use `TopKNetwork`.

    Args:
        x: (..., n, ...) Scores.
        k: How many, in (0, n]; need not be an integer.
        distribution: Name or `Distribution`, symmetric and continuous.
        steepness: Inverse temperature, > 0.
        dim: The dimension that is searched.

    Returns:
        Memberships in [0, 1], of the shape of ``x``.

    Example:
        >>> softly.selection.soft_topk(torch.tensor([3.0, 1.0, 2.0, 0.0]), 2, steepness=4.0)
        tensor([0.9975, 0.1192, 0.8808, 0.0025])
    """
    name = "softly.selection.soft_topk"
    _inputs.floating(x, name, "x")
    chosen = symmetric(distribution, name)
    steepness = _inputs.steepness(steepness, name)
    if isinstance(chosen, distributions.Heaviside):
        raise ValueError(f"{name}: distribution must be continuous, got {distribution!r}.")
    if x.ndim == 0 or not -x.ndim <= dim < x.ndim:
        raise ValueError(f"{name}: dim must be in [{-x.ndim}, {x.ndim - 1}], got {dim}.")
    n = x.shape[dim]
    if not 0 < k <= n:
        raise ValueError(f"{name}: k must be in (0, {n}], got {k}.")

    def memberships(y: Tensor) -> Tensor:
        y = steepness * _inputs.finite(y.movedim(dim, -1))
        if k == n:
            return torch.ones_like(y).movedim(-1, dim)
        margin = abs(float(chosen._icdf(torch.tensor(k / n, dtype=torch.float64))))
        numbers = codes(chosen)
        if numbers is None:
            t = _bisect(y.detach(), k, margin, chosen)
        else:
            t = _threshold(y, float(k), margin, *numbers)
        if torch.is_grad_enabled() and (y.requires_grad or native.transformed(y)):
            # Two Newton steps from the root make its first three derivatives right.
            for _ in range(2):
                surplus = chosen._cdf(y - t).sum(-1, keepdim=True) - k
                slope = chosen._pdf(y - t).sum(-1, keepdim=True)
                t = t + torch.where(slope > 0, surplus / torch.where(slope > 0, slope, 1.0), 0.0)
        return chosen._cdf(y - t).movedim(-1, dim)

    return _inputs.at_least_single(memberships, x)


def _bisect(y: Tensor, k: float, margin: float, distribution: Distribution) -> Tensor:
    """Where ``Σ F(y - t) == k``, (..., 1); it is within ``margin`` of the smallest and the largest entry."""
    low, high = y.amin(-1, keepdim=True) - margin, y.amax(-1, keepdim=True) + margin
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = distribution._cdf(y - middle).sum(-1, keepdim=True) > k
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return 0.5 * (low + high)


def _threshold_shape(x: Tensor, k: float, margin: float, distribution: int, art: float) -> Tensor:
    return x.new_empty(*x.shape[:-1], 1)


def _threshold_forward(x: Tensor, k: float, margin: float, distribution: int, art: float) -> Tensor:
    out = _threshold_shape(x, k, margin, distribution, art)
    native.kernel("threshold", x.dtype)(
        x.data_ptr(),
        out.data_ptr(),
        out.numel(),
        x.shape[-1],
        k,
        margin,
        distribution,
        art,
        torch.get_num_threads(),
    )
    return out


_threshold = native.Operator(
    "threshold",
    forward=_threshold_forward,
    shape=_threshold_shape,
    backward=None,
    reference=lambda x, k, margin, number, art: _bisect(x, k, margin, decode(number, art)),
)
