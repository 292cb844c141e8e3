"""Relaxed quantiles: order statistics of a relaxed sort."""

from __future__ import annotations

import torch
from torch import Tensor

from softly import _inputs, _straight_through, elementary, native
from softly.distributions import Distribution
from softly.sorting.functional import get_sorter
from softly.sorting.sorter import Sorter, Steepness

__all__ = ["median", "quantile"]


def median(
    x: Tensor,
    *,
    dim: int = -1,
    keepdim: bool = False,
    sorter: str | Sorter = "bitonic",
    steepness: Steepness | None = None,
    distribution: str | Distribution | None = None,
    straight_through: bool = False,
) -> Tensor:
    """The relaxed median, ``quantile(x, 0.5)``: of an even number of values the mean of the middle two.

    As ``steepness -> inf`` this is ``torch.quantile(x, 0.5, dim)``, which for an even number is not
    ``torch.median``; with a doubly stochastic sorter it is between the smallest and the largest value.

    Args:
        x: (..., n, ...) Values.
        dim: The dimension that is reduced.
        keepdim: Whether it stays, at length 1.
        sorter: A sorting network's name, another sorter's in lower case, or a `Sorter`.
        steepness: Inverse temperature, > 0, or "auto"; by default 10, and 1 for "fastsort".
        distribution: Of a network's swaps, "cauchy" by default.
        straight_through: Give the limit, with the gradient of the relaxation.

    Example:
        >>> softly.median(torch.tensor([3.0, 1.0, 7.0]), steepness=2.0)
        tensor(3.0029)
    """
    chosen = get_sorter(sorter, steepness, distribution, "softly.median")
    return _quantile(x, 0.5, dim, keepdim, chosen, straight_through, "softly.median")


def quantile(
    x: Tensor,
    q: float | Tensor,
    *,
    dim: int = -1,
    keepdim: bool = False,
    sorter: str | Sorter = "bitonic",
    steepness: Steepness | None = None,
    distribution: str | Distribution | None = None,
    straight_through: bool = False,
) -> Tensor:
    """Relaxed quantiles: the relaxed sort, interpolated linearly at ``q (n - 1)``, counted from 0.

    As ``steepness -> inf`` this is ``torch.quantile(x, q, dim)``; at ``q`` of 0 and 1 it is the first and the last
    value of the relaxed sort.

    Args:
        x: (..., n, ...) Values.
        q: A number in [0, 1], or a tensor of shape () or (m,) of them.
        dim: The dimension that is reduced.
        keepdim: Whether it stays, at length 1.
        sorter: A sorting network's name, another sorter's in lower case, or a `Sorter`.
        steepness: Inverse temperature, > 0, or "auto"; by default 10, and 1 for "fastsort".
        distribution: Of a network's swaps, "cauchy" by default.
        straight_through: Give the limit, with the gradient of the relaxation.

    Returns:
        The shape of ``x`` without ``dim``; for m quantiles, they come first: (m, ...).

    Example:
        >>> x = torch.tensor([3.0, 1.0, 7.0, 5.0])
        >>> softly.quantile(x, torch.tensor([0.0, 0.25, 1.0]), steepness=1000.0)
        tensor([1.0010, 2.5000, 6.9990])
    """
    chosen = get_sorter(sorter, steepness, distribution, "softly.quantile")
    return _quantile(x, q, dim, keepdim, chosen, straight_through, "softly.quantile")


def _quantile(
    x: Tensor, q: float | Tensor, dim: int, keepdim: bool, sorter: Sorter, straight_through: bool, function: str
) -> Tensor:
    _inputs.floating(x, function, "x")
    if isinstance(q, Tensor):
        if q.ndim > 1 or not q.is_floating_point():
            raise ValueError(
                f"{function}: q must be floating-point and of shape () or (m,), "
                f"got {q.dtype} of shape {tuple(q.shape)}."
            )
        known = native.data(q)
        if known is not None and not ((known >= 0) & (known <= 1)).all():
            raise ValueError(f"{function}: q must be in [0, 1], got {float(known.min())} to {float(known.max())}.")
    elif not 0 <= q <= 1:
        raise ValueError(f"{function}: q must be in [0, 1], got {q}.")
    values = sorter.sort(x, dim=dim).movedim(dim, -1)
    result = _interpolated(values, q)
    if straight_through:
        result = _straight_through.straight_through(
            _interpolated(x.detach().sort(dim).values.movedim(dim, -1), q), result
        )
    if isinstance(q, Tensor) and q.ndim:
        result = result.movedim(-1, 0)
        return result.unsqueeze(dim % x.ndim + 1) if keepdim else result
    result = result.squeeze(-1)
    return result.unsqueeze(dim % x.ndim) if keepdim else result


def _interpolated(values: Tensor, q: float | Tensor) -> Tensor:
    """Sorted values between ranks, (..., m)."""
    n = values.shape[-1]
    place = torch.as_tensor(q, dtype=torch.float64, device=values.device).reshape(-1) * (n - 1)
    below = place.detach().floor().clamp(0, n - 1)
    above = (below + 1).clamp(max=n - 1)
    share = (place - below).to(values.dtype)
    pick = lambda index: values.index_select(-1, index.long())  # noqa: E731
    return elementary.where(share, pick(above), pick(below))
