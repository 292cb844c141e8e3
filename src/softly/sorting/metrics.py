"""How well scores order things: the metrics of chapter 3, which are hard and have no gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from softly import _inputs
from softly.sorting import graded

__all__ = ["elementwise_match", "exact_match", "exact_match_k", "kendall_tau", "mrr", "ndcg"]


def _check_shapes(scores: Tensor, target: Tensor, function: str) -> None:
    if scores.shape != target.shape or scores.ndim == 0:
        raise ValueError(
            f"softly.sorting.metrics.{function}: scores and target must have one shape (..., n), "
            f"got {tuple(scores.shape)} and {tuple(target.shape)}."
        )


def _matches(scores: Tensor, target: Tensor, function: str) -> Tensor:
    """Where an entry has the right rank, (..., n): as many entries below, and as many on a par. NaN never has."""
    _check_shapes(scores, target, function)
    pairs = zip(_places(scores), _places(target), strict=True)
    below, above = (a == b for a, b in pairs)
    return below & above & ~scores.isnan()


def _places(x: Tensor) -> tuple[Tensor, Tensor]:
    """How many entries of its list are smaller than an entry, and how many are no larger."""
    x = x.detach().contiguous()
    ordered = x.sort(-1).values
    return torch.searchsorted(ordered, x), torch.searchsorted(ordered, x, right=True)


def exact_match(scores: Tensor, target: Tensor) -> Tensor:
    """EM: the share of lists whose whole order is right.

    Scores that tie are right only where the target ties too; constant scores match nothing else.

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
    """EW: the share of entries whose rank is right: that have as many entries below them, and as many on a par.

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
    k = _inputs.integer(k, "softly.sorting.metrics.exact_match_k", "k")
    if scores.ndim == 0 or not 1 <= k <= scores.shape[-1]:
        n = scores.shape[-1] if scores.ndim else 0
        raise ValueError(f"softly.sorting.metrics.exact_match_k: k must be in [1, {n}], got {k}.")
    used = scores.shape[-1] // k * k
    group = lambda x: x[..., :used].unflatten(-1, (-1, k))  # noqa: E731
    return _matches(group(scores), group(target), "exact_match_k").all(-1).float().mean()


def kendall_tau(scores: Tensor, target: Tensor) -> Tensor:
    """Kendall's τ-b, the normalised surplus of concordant over discordant pairs, averaged over lists.

    A list whose scores, or whose target, are all equal has no order to be right about, and counts as 0.

    Args:
        scores: (..., n) Predictions.
        target: (..., n) Anything in the true order; ties are accounted for.

    Example:
        >>> softly.sorting.metrics.kendall_tau(torch.tensor([0.1, 0.4, 0.2]), torch.tensor([1, 2, 3]))
        tensor(0.3333)
    """
    _check_shapes(scores, target, "kendall_tau")
    a = torch.sign(scores.unsqueeze(-1) - scores.unsqueeze(-2)).double()
    b = torch.sign(target.unsqueeze(-1) - target.unsqueeze(-2)).double()
    most = torch.sqrt(a.square().sum((-2, -1)) * b.square().sum((-2, -1)))
    tau = (a * b).sum((-2, -1)) / torch.where(most == 0, 1.0, most)
    # The sign of NaN is 0, and would hide it.
    return torch.where((scores.isnan() | target.isnan()).any(-1), torch.nan, tau).mean().float()


def ndcg(
    scores: Tensor,
    grades: Tensor,
    *,
    k: int | None = None,
    gain: str = "exponential",
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """NDCG@k: the gains of the entries at the discounts of their ranks, from the largest score, over the best possible.

    Entries of equal score share their ranks, as scikit-learn has it: constant scores get what chance gets. It is 1
    exactly where no entry of a lower grade is ranked before one of a higher grade, among those that count.

    Args:
        scores: (..., n) Predictions.
        grades: (..., n) Relevance grades, >= 0.
        k: How many ranks count; None for all.
        gain: "exponential" is ``2^grade - 1``, "linear" the grade.
        lengths: (...) Lengths of lists that are padded at their end.
        mask: (..., n) Where there is an entry.

    Returns:
        The mean over lists with any relevant entry; 0 without any.

    Example:
        >>> scores, grades = torch.tensor([0.9, 1.3, 0.2]), torch.tensor([0, 2, 1])
        >>> softly.sorting.metrics.ndcg(scores, grades)
        tensor(0.9639)
    """
    name = "softly.sorting.metrics.ndcg"
    valid = graded.checked(scores, grades, lengths, mask, name)
    scores, n = scores.detach().double(), scores.shape[-1]
    gains = graded.gains(grades, valid, gain, torch.float64, name)
    k = n if k is None else _inputs.integer(k, name, "k")
    discounts = graded.discounts(n, scores) * (torch.arange(n, device=scores.device) < k)
    ahead, level = _from_the_top(scores, valid)
    # Up to a rank, the discounts add up to this; on a par, an entry has the mean of theirs.
    sums = torch.nn.functional.pad(discounts.cumsum(0), (1, 0))
    shared = (sums[level] - sums[ahead]) / (level - ahead).clamp(min=1)
    ideal = gains.sort(-1, descending=True).values @ discounts
    relevant = ideal > 0
    found = torch.where(relevant, (gains * shared).sum(-1) / torch.where(relevant, ideal, 1.0), 0.0)
    return graded.reduce(found, relevant, "mean", name).float()


def mrr(
    scores: Tensor,
    grades: Tensor,
    *,
    k: int | None = None,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """MRR@k: the reciprocal of the rank at which the first relevant entry stands, averaged over lists.

    Among entries of equal score it is the mean over all their orders: constant scores get what chance gets.

    Args:
        scores: (..., n) Predictions.
        grades: (..., n) Relevance, any grade above 0.
        k: How many ranks count, a relevant entry behind them being worth 0; None for all.
        lengths: (...) Lengths of lists that are padded at their end.
        mask: (..., n) Where there is an entry.

    Returns:
        The mean over lists with any relevant entry; 0 without any.

    Example:
        >>> scores, grades = torch.tensor([[0.9, 1.3, 0.2], [0.1, 0.4, 0.3]]), torch.tensor([[0, 2, 1], [0, 0, 1]])
        >>> softly.sorting.metrics.mrr(scores, grades)
        tensor(0.7500)
    """
    name = "softly.sorting.metrics.mrr"
    valid = graded.checked(scores, grades, lengths, mask, name)
    relevant = (grades > 0) & valid
    ahead, _ = _from_the_top(scores.detach().double(), valid)
    n = scores.shape[-1]
    # The group of equal scores that holds the first relevant entry: where it begins, its size, and how many count.
    start = torch.where(relevant, ahead, n).amin(-1, keepdim=True)
    inside = (ahead == start) & valid
    size, hits = inside.sum(-1, keepdim=True).double(), (inside & relevant).sum(-1, keepdim=True).double()
    place = torch.arange(1, n + 1, device=scores.device)
    # The first of the relevant ones is at this place of the group's random order with probability C(size - place,
    # hits - 1) / C(size, hits).
    left = size - place
    log_choose = lambda a, b: torch.lgamma(a + 1) - torch.lgamma(b + 1) - torch.lgamma(a - b + 1)  # noqa: E731
    possible = (left >= hits - 1) & (hits > 0)
    ways = log_choose(torch.where(possible, left, 1.0), torch.where(possible, hits - 1, 0.0))
    chance = torch.where(possible, torch.exp(ways - log_choose(size, hits.clamp(min=0))), 0.0)
    rank = start + place
    counted = torch.where(rank <= (n if k is None else _inputs.integer(k, name, "k")), 1.0 / rank, 0.0)
    return graded.reduce((chance * counted).sum(-1), relevant.any(-1), "mean", name).float()


def _from_the_top(scores: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """How many entries of its list have a higher score than an entry, and how many one that is no lower."""
    ahead, level = _places(torch.where(valid, -scores, torch.inf))
    # Padding is behind everything: entries at -inf are not on a par with it.
    return ahead, torch.minimum(level, valid.sum(-1, keepdim=True))
