"""How well scores order things: the metrics of chapter 3, which are hard and have no gradient."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["elementwise_match", "exact_match", "exact_match_k", "kendall_tau"]


def _matches(scores: Tensor, target: Tensor, function: str) -> Tensor:
    """Where the rank of an entry is right, (..., n)."""
    if scores.shape != target.shape or scores.ndim == 0:
        raise ValueError(
            f"softly.sorting.metrics.{function}: scores and target must have one shape (..., n), "
            f"got {tuple(scores.shape)} and {tuple(target.shape)}."
        )
    return _ranks(scores) == _ranks(target)


def _ranks(x: Tensor) -> Tensor:
    return x.argsort(dim=-1, stable=True).argsort(dim=-1)


def exact_match(scores: Tensor, target: Tensor) -> Tensor:
    """EM: the share of lists whose whole order is right.

    Args:
        scores: (..., n) Predictions.
        target: (..., n) Anything in the true order, such as true values or ranks.

    Example:
        >>> scores = torch.tensor([[0.1, 0.7, 0.3], [0.2, 0.1, 0.9]])
        >>> softly.sorting.metrics.exact_match(scores, torch.tensor([[1, 3, 2], [1, 2, 3]]))
        tensor(0.5000)
    """
    return _matches(scores, target, "exact_match").all(-1).float().mean()


def elementwise_match(scores: Tensor, target: Tensor) -> Tensor:
    """EW: the share of entries whose rank is right.

    Args:
        scores: (..., n) Predictions.
        target: (..., n) Anything in the true order.

    Example:
        >>> scores = torch.tensor([[0.1, 0.7, 0.3], [0.2, 0.1, 0.9]])
        >>> softly.sorting.metrics.elementwise_match(scores, torch.tensor([[1, 3, 2], [1, 2, 3]]))
        tensor(0.6667)
    """
    return _matches(scores, target, "elementwise_match").float().mean()


def exact_match_k(scores: Tensor, target: Tensor, *, k: int = 5) -> Tensor:
    """EM5 for ``k = 5``: exact matches among k entries, so that models trained on any n can be compared.

    A list is cut into consecutive groups of ``k``; entries that fill no group are left out.

    Args:
        scores: (..., n) Predictions, n >= k.
        target: (..., n) Anything in the true order.
        k: Size of the groups.

    Example:
        >>> scores, target = torch.tensor([0.1, 0.2, 0.4, 0.3]), torch.tensor([1, 2, 3, 4])
        >>> softly.sorting.metrics.exact_match_k(scores, target, k=2)
        tensor(0.5000)
    """
    if scores.ndim == 0 or not 1 <= k <= scores.shape[-1]:
        n = scores.shape[-1] if scores.ndim else 0
        raise ValueError(f"softly.sorting.metrics.exact_match_k: k must be in [1, {n}], got {k}.")
    used = scores.shape[-1] // k * k
    group = lambda x: x[..., :used].unflatten(-1, (-1, k))  # noqa: E731
    return _matches(group(scores), group(target), "exact_match_k").all(-1).float().mean()


def kendall_tau(scores: Tensor, target: Tensor) -> Tensor:
    """Kendall's τ-b, the normalised surplus of concordant over discordant pairs, averaged over lists.

    Args:
        scores: (..., n) Predictions.
        target: (..., n) Anything in the true order; ties are accounted for.

    Example:
        >>> softly.sorting.metrics.kendall_tau(torch.tensor([0.1, 0.4, 0.2]), torch.tensor([1, 2, 3]))
        tensor(0.3333)
    """
    if scores.shape != target.shape or scores.ndim == 0:
        raise ValueError(
            "softly.sorting.metrics.kendall_tau: scores and target must have one shape (..., n), "
            f"got {tuple(scores.shape)} and {tuple(target.shape)}."
        )
    a = torch.sign(scores.unsqueeze(-1) - scores.unsqueeze(-2)).double()
    b = torch.sign(target.unsqueeze(-1) - target.unsqueeze(-2)).double()
    tau = (a * b).sum((-2, -1)) / torch.sqrt(a.square().sum((-2, -1)) * b.square().sum((-2, -1)))
    return tau.mean().float()
