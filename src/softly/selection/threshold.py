"""Soft top-k by a threshold: for long vectors, where no network and no matrix fits."""

from __future__ import annotations

import torch
from torch import Tensor

from softly import _inputs, _straight_through, distributions, native
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
    straight_through: bool = False,
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
        straight_through: Whether memberships are those of the limit, with the gradients of the soft ones.

    Returns:
        Memberships in [0, 1], of the shape of ``x``.

    Example:
        >>> softly.selection.soft_topk(torch.tensor([3.0, 1.0, 2.0, 0.0]), 2, steepness=4.0)
        tensor([0.9975, 0.1192, 0.8808, 0.0025])
    """
    name = "softly.selection.soft_topk"
    _inputs.floating(x, name, "x")
    chosen = symmetric(distribution, name)
    if isinstance(chosen, distributions.Heaviside):
        raise ValueError(f"{name}: distribution must be continuous, got {distribution!r}.")
    if x.ndim == 0 or not -x.ndim <= dim < x.ndim:
        raise ValueError(f"{name}: dim must be in [{-x.ndim}, {x.ndim - 1}], got {dim}.")
    n = x.shape[dim]
    if not 0 < k <= n:
        raise ValueError(f"{name}: k must be in (0, {n}], got {k}.")

    def memberships(y: Tensor) -> Tensor:
        y = y.movedim(dim, -1)
        y = _inputs.steepness_of_lists(steepness, y, name) * y
        if k == n:
            return torch.ones_like(y).movedim(-1, dim)
        numbers = codes(chosen)
        t = _bisect(y.detach(), float(k), chosen) if numbers is None else _threshold(y, float(k), *numbers)
        result = _memberships(y, t, float(k), chosen)
        return result.movedim(-1, dim)

    soft = _inputs.at_least_single(memberships, x)
    return _straight_through.straight_through(_hard_memberships(x.detach(), k, dim), soft) if straight_through else soft


def _hard_memberships(x: Tensor, k: float, dim: int) -> Tensor:
    places = torch.argsort(torch.argsort(x, dim=dim, descending=True, stable=True), dim=dim)
    return (k - places).clamp(0.0, 1.0)


def _memberships(y: Tensor, t: Tensor, k: float, distribution: Distribution) -> Tensor:
    if _inputs.known_finite(y):
        if native.transformed(y) or (torch.is_grad_enabled() and y.requires_grad):
            t = _polished(y, t, k, distribution)
        return distribution._cdf(y - t)
    # What is infinite is in or out; there may be too much of it for k, or too little.
    share = _Share(y, k)
    finite = torch.where(share.finite, y, 0.0)
    t = _polished(finite, t, share.k, distribution, share.finite)
    inside = torch.where(share.missing, 0.0, torch.where(share.surplus, 1.0, distribution._cdf(finite - t)))
    return torch.where(share.finite, inside, torch.where(y > 0, share.high, share.low))


class _Share:
    """What is left of k for the finite entries of rows, and for those at inf and -inf."""

    def __init__(self, y: Tensor, k: float) -> None:
        self.finite = ~y.isinf()
        above = (y == torch.inf).sum(-1, keepdim=True).to(y.dtype)
        below = (y == -torch.inf).sum(-1, keepdim=True).to(y.dtype)
        count = self.finite.sum(-1, keepdim=True).to(y.dtype)
        left = k - above
        self.missing, self.surplus = left <= 0, left >= count
        self.k = torch.where(self.missing | self.surplus, 0.5 * count, left)
        self.quota = torch.where(count > 0, self.k / count.clamp(min=1.0), 0.5)
        self.high = (k / above.clamp(min=1.0)).clamp(max=1.0)
        self.low = ((left - count) / below.clamp(min=1.0)).clamp(min=0.0)


def _polished(
    y: Tensor, t: Tensor, k: float | Tensor, distribution: Distribution, finite: Tensor | None = None
) -> Tensor:
    """The root t with its derivatives: two Newton steps from it make the first three right."""
    for _ in range(2):
        weights, slopes = distribution._cdf(y - t), distribution._pdf(y - t)
        if finite is not None:
            weights, slopes = torch.where(finite, weights, 0.0), torch.where(finite, slopes, 0.0)
        slope = slopes.sum(-1, keepdim=True)
        step = (weights.sum(-1, keepdim=True) - k) / torch.where(slope > 0, slope, 1.0)
        t = t + torch.where(slope > 0, step, 0.0)
    return t


def _bisect(y: Tensor, k: float, distribution: Distribution) -> Tensor:
    """Where the memberships of the finite entries sum to what is left for them, (..., 1).

    That is within a margin of the smallest and the largest of them.
    """
    share = _Share(y, k)
    margin = distribution._icdf(share.quota).abs()
    low = torch.where(share.finite, y, torch.inf).amin(-1, keepdim=True) - margin
    high = torch.where(share.finite, y, -torch.inf).amax(-1, keepdim=True) + margin
    low, high = torch.where(low == torch.inf, 0.0, low), torch.where(high == -torch.inf, 0.0, high)
    finite = torch.where(share.finite, y, 0.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        weights = torch.where(share.finite, distribution._cdf(finite - middle), 0.0)
        above = weights.sum(-1, keepdim=True) > share.k
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return 0.5 * (low + high)


def _threshold_shape(x: Tensor, k: float, distribution: int, art: float) -> Tensor:
    return x.new_empty(*x.shape[:-1], 1)


def _threshold_forward(x: Tensor, k: float, distribution: int, art: float) -> Tensor:
    out, n = _threshold_shape(x, k, distribution, art), x.shape[-1]
    margin = abs(float(decode(distribution, art)._icdf(torch.tensor(k / n, dtype=torch.float64))))
    sizes = (out.numel(), n, k, margin, distribution, art, torch.get_num_threads())
    if not native.kernel("threshold", x.dtype)(x.data_ptr(), out.data_ptr(), *sizes):
        raise MemoryError("softly.selection.soft_topk: no memory for the sums of a row.")
    return out


def _check(x: Tensor, k: float, distribution: int, art: float) -> None:
    if x.ndim == 0 or not 0 < k < x.shape[-1]:
        raise ValueError(f"softly.selection.soft_topk: k must be in (0, n), got {k} for shape {tuple(x.shape)}.")
    decode(distribution, art)


_threshold = native.Operator(
    "threshold",
    forward=_threshold_forward,
    shape=_threshold_shape,
    backward=None,
    reference=lambda x, k, number, art: _bisect(x.detach(), k, decode(number, art)),
    check=_check,
    regular=lambda x, *_: _inputs.known_finite(x),
)
