"""The usual losses of learning to rank, to compare relaxed sorting with: they need no sorter."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from softly import _inputs
from softly.sorting import graded
from softly.sorting.graded import Reduction

__all__ = ["approx_ndcg_loss", "lambda_loss", "listmle_loss", "listnet_loss", "ranknet_loss"]


def ranknet_loss(
    scores: Tensor,
    grades: Tensor,
    *,
    steepness: float | Tensor = 1.0,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """RankNet (Burges et al., 2005): ``log(1 + exp(-steepness * (s_i - s_j)))`` over the pairs with grades i > j.

    As ``steepness -> inf``, the loss divided by it is the mean of ``max(0, s_j - s_i)``. It is invariant to shifts of
    the scores, and ``log 2`` where all are equal.

    Args:
        scores: (..., n) Predicted scores, one list in each row.
        grades: (..., n) Relevance grades, >= 0.
        steepness: Inverse temperature, > 0, the σ of the paper.
        lengths: (...) Lengths of lists that are padded at their end.
        mask: (..., n) Where there is an entry.
        reduction: "none" gives the loss of every list, the mean over its pairs, 0 without any; "sum" adds these up, and
            "mean" is the mean over the pairs of all lists.

    Example:
        >>> softly.sorting.ranknet_loss(torch.tensor([0.2, 1.3, 0.9]), torch.tensor([0, 2, 1]))
        tensor(0.4012)
    """
    name = "softly.sorting.ranknet_loss"
    rate = _inputs.steepness(steepness, name)
    valid = graded.checked(scores, grades, lengths, mask, name)
    better = _better(grades, valid)
    pairs = better.sum((-2, -1))

    def loss(s: Tensor) -> Tensor:
        surprise = torch.nn.functional.softplus(-rate * _differences(s))
        return torch.where(better, surprise, 0.0).sum((-2, -1)) / pairs.clamp(min=1)

    return _of_lists(loss, scores, valid, pairs, reduction, name)


def lambda_loss(
    scores: Tensor,
    grades: Tensor,
    *,
    steepness: float | Tensor = 1.0,
    weighting: str = "ndcg2++",
    mu: float = 10.0,
    gain: str = "exponential",
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """LambdaLoss (Wang et al., 2018): RankNet's pairs, in bits and weighted by what their order is worth to the NDCG.

    The loss of a list is ``Σ w_ij log2(1 + exp(-steepness * (s_i - s_j)))`` over the pairs with grades i > j. With the
    normalised gains G, the discounts d and the ranks i and j that the scores give at present, ``w_ij`` is
    ``|G_i - G_j|`` times ``|d_i - d_j|`` for "lambdarank" (Burges et al., 2006), ``|d_{|i-j|} - d_{|i-j|+1}|`` for
    "ndcg2", and the first plus ``mu`` times the second for "ndcg2++". The weights have no gradient. As
    ``steepness -> inf`` the loss is 0 exactly where the scores have the order of the grades.

    Args:
        scores: (..., n) Predicted scores, one list in each row.
        grades: (..., n) Relevance grades, >= 0.
        steepness: Inverse temperature, > 0, the σ of the paper.
        weighting: "ndcg2++", "ndcg2" or "lambdarank".
        mu: Weight of "ndcg2" in "ndcg2++", >= 0.
        gain: "exponential" is ``2^grade - 1``, "linear" the grade.
        lengths: (...) Lengths of lists that are padded at their end.
        mask: (..., n) Where there is an entry.
        reduction: "mean" over lists with any relevant entry, "sum", or "none", where the others have 0.

    Example:
        >>> softly.sorting.lambda_loss(torch.tensor([0.2, 1.3, 0.9]), torch.tensor([0, 2, 1]), weighting="lambdarank")
        tensor(0.3427)
    """
    name = "softly.sorting.lambda_loss"
    rate = _inputs.steepness(steepness, name)
    if weighting not in ("ndcg2++", "ndcg2", "lambdarank"):
        raise ValueError(f"{name}: weighting must be one of ndcg2++, ndcg2, lambdarank, got {weighting!r}.")
    if not mu >= 0:
        raise ValueError(f"{name}: mu must not be negative, got {mu}.")
    valid = graded.checked(scores, grades, lengths, mask, name)
    better, n = _better(grades, valid), scores.shape[-1]

    def loss(s: Tensor) -> Tensor:
        gains, ideal = _gains(grades, valid, gain, s, name)
        order = torch.argsort(torch.where(valid, s.detach(), -torch.inf), dim=-1, descending=True, stable=True)
        place = order.argsort(-1)
        discounts = graded.discounts(n + 1, s)
        at = discounts[place]
        swapped = (at.unsqueeze(-1) - at.unsqueeze(-2)).abs()
        apart = (place.unsqueeze(-1) - place.unsqueeze(-2)).abs().clamp(min=1)
        stepped = discounts[apart - 1] - discounts[apart]
        weights = {"lambdarank": swapped, "ndcg2": stepped, "ndcg2++": swapped + mu * stepped}[weighting]
        worth = (gains.unsqueeze(-1) - gains.unsqueeze(-2)).abs() / ideal.unsqueeze(-1)
        bits = torch.nn.functional.softplus(-rate * _differences(s)) / torch.log(s.new_full((), 2.0))
        return torch.where(better, weights * worth * bits, 0.0).sum((-2, -1))

    return _of_lists(loss, scores, valid, _relevant(grades, valid), reduction, name)


def listnet_loss(
    scores: Tensor,
    grades: Tensor,
    *,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """ListNet (Cao et al., 2007): the cross-entropy between the softmax of the grades and that of the scores.

    It is least, the entropy of the grades' softmax, exactly where scores are grades up to a shift.

    Args:
        scores: (..., n) Predicted scores, one list in each row.
        grades: (..., n) Relevance grades, >= 0.
        lengths: (...) Lengths of lists that are padded at their end.
        mask: (..., n) Where there is an entry.
        reduction: "mean" over lists that have an entry, "sum", or "none", where the others have 0.

    Example:
        >>> softly.sorting.listnet_loss(torch.tensor([0.2, 1.3, 0.9]), torch.tensor([0, 2, 1]))
        tensor(0.8917)
    """
    name = "softly.sorting.listnet_loss"
    valid = graded.checked(scores, grades, lengths, mask, name)

    def loss(s: Tensor) -> Tensor:
        lowest = -_inputs.large(s)
        target = torch.softmax(torch.where(valid, grades.to(s.dtype), lowest), -1)
        log_share = torch.log_softmax(torch.where(valid, s, lowest), -1)
        return -torch.where(valid, target * log_share, 0.0).sum(-1)

    return _of_lists(loss, scores, valid, valid.any(-1), reduction, name)


def listmle_loss(
    scores: Tensor,
    grades: Tensor,
    *,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """ListMLE (Xia et al., 2008): the surprise of the true order under the Plackett-Luce model of the scores.

    The loss of a list is ``-Σ_i (s_i - log Σ_j exp(s_j))`` over j with no higher grade than i. That is the paper's
    where all grades differ; entries of one grade are drawn against each other in no order (Breslow's likelihood), so
    that the order in which a list is written down doesn't matter. It tends to 0 as scores in the order of distinct
    grades move apart.

    Args:
        scores: (..., n) Predicted scores, one list in each row.
        grades: (..., n) Relevance grades, >= 0.
        lengths: (...) Lengths of lists that are padded at their end.
        mask: (..., n) Where there is an entry.
        reduction: "mean" over lists that have an entry, "sum", or "none", where the others have 0.

    Example:
        >>> softly.sorting.listmle_loss(torch.tensor([0.2, 1.3, 0.9]), torch.tensor([0, 2, 1]))
        tensor(1.0979)
    """
    name = "softly.sorting.listmle_loss"
    valid = graded.checked(scores, grades, lengths, mask, name)
    behind = (grades.unsqueeze(-1) >= grades.unsqueeze(-2)) & valid.unsqueeze(-2) & valid.unsqueeze(-1)

    def loss(s: Tensor) -> Tensor:
        lowest = -_inputs.large(s)
        rivals = torch.where(behind, s.unsqueeze(-2), lowest).logsumexp(-1)
        return torch.where(valid, rivals - s, 0.0).sum(-1)

    return _of_lists(loss, scores, valid, valid.any(-1), reduction, name)


def approx_ndcg_loss(
    scores: Tensor,
    grades: Tensor,
    *,
    steepness: float | Tensor = 10.0,
    gain: str = "exponential",
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """ApproxNDCG (Qin et al., 2010): one minus the NDCG at the ranks ``1 + Σ_j sigmoid(steepness * (s_j - s_i))``.

    As ``steepness -> inf`` this is ``1 - NDCG``, where no two scores are equal.

    Args:
        scores: (..., n) Predicted scores, one list in each row.
        grades: (..., n) Relevance grades, >= 0.
        steepness: Inverse temperature, > 0, the α of the paper.
        gain: "exponential" is ``2^grade - 1``, "linear" the grade.
        lengths: (...) Lengths of lists that are padded at their end.
        mask: (..., n) Where there is an entry.
        reduction: "mean" over lists with any relevant entry, "sum", or "none", where the others have 0.

    Example:
        >>> softly.sorting.approx_ndcg_loss(torch.tensor([0.2, 1.3, 0.9]), torch.tensor([0, 2, 1]))
        tensor(0.0096)
    """
    name = "softly.sorting.approx_ndcg_loss"
    rate = _inputs.steepness(steepness, name)
    valid = graded.checked(scores, grades, lengths, mask, name)
    others = ~torch.eye(scores.shape[-1], dtype=torch.bool, device=scores.device) & valid.unsqueeze(-2)

    def loss(s: Tensor) -> Tensor:
        gains, ideal = _gains(grades, valid, gain, s, name)
        ranks = 1.0 + torch.where(others, torch.sigmoid(-rate * _differences(s)), 0.0).sum(-1)
        found = (gains / torch.log2(1.0 + ranks)).sum(-1, keepdim=True) / ideal
        return torch.where(_relevant(grades, valid), 1.0 - found.squeeze(-1), 0.0)

    return _of_lists(loss, scores, valid, _relevant(grades, valid), reduction, name)


def _of_lists(
    loss: Callable[[Tensor], Tensor], scores: Tensor, valid: Tensor, counts: Tensor, reduction: str, name: str
) -> Tensor:
    """The losses of lists, reduced, with what is padding kept out and infinite scores held."""
    return _inputs.at_least_single(
        lambda s: graded.reduce(loss(torch.where(valid, _inputs.finite(s), 0.0)), counts, reduction, name), scores
    )


def _differences(s: Tensor) -> Tensor:
    """``s_i - s_j``, (..., n, n)."""
    return s.unsqueeze(-1) - s.unsqueeze(-2)


def _better(grades: Tensor, valid: Tensor) -> Tensor:
    """The pairs in which the first has the higher grade, (..., n, n)."""
    return (grades.unsqueeze(-1) > grades.unsqueeze(-2)) & valid.unsqueeze(-1) & valid.unsqueeze(-2)


def _relevant(grades: Tensor, valid: Tensor) -> Tensor:
    return ((grades > 0) & valid).any(-1)


def _gains(grades: Tensor, valid: Tensor, gain: str, like: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """The gains of the entries, and what they add up to at best, (..., 1), 1 without any."""
    gains = graded.gains(grades, valid, gain, like.dtype, name)
    ideal = gains.sort(-1, descending=True).values @ graded.discounts(gains.shape[-1], like)
    return gains, torch.where(ideal > 0, ideal, 1.0).unsqueeze(-1)
