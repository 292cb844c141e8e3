"""Losses on relaxed permutations and ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from softly import _inputs
from softly.sorting.sorter import Sorter

__all__ = ["ndcg_loss", "ranking_loss", "spearman_loss"]


def ranking_loss(P: Tensor, target_ranks: Tensor) -> Tensor:
    """The cross-entropy between relaxed permutation matrices and the true ones: the mean of ``-log P[rank, input]``.

    It is 0 exactly where ``P`` is the true permutation matrix.

    Args:
        P: (..., n, n) Probabilities ``P[rank, input]``, as of `Sorter.permutation`.
        target_ranks: (..., n) The true rank of every input, integers from 1 to n; 0 leaves an input out, as padding.

    Returns:
        The mean over all inputs, a scalar.

    Example:
        >>> P = softly.SoftSort(steepness=2.0).permutation(torch.tensor([3.0, 1.0, 2.0]))
        >>> softly.sorting.ranking_loss(P, torch.tensor([3, 1, 2]))
        tensor(0.1751)
    """
    _inputs.floating(P, "softly.sorting.ranking_loss", "P")
    if P.ndim < 2 or P.shape[-1] != P.shape[-2]:
        raise ValueError(f"softly.sorting.ranking_loss: P must have shape (..., n, n), got {tuple(P.shape)}.")
    if target_ranks.shape != P.shape[:-1] or target_ranks.is_floating_point():
        raise ValueError(
            f"softly.sorting.ranking_loss: target_ranks must be integers of shape {tuple(P.shape[:-1])}, "
            f"got {target_ranks.dtype} of shape {tuple(target_ranks.shape)}."
        )
    counted = target_ranks > 0
    rows = torch.where(counted, target_ranks - 1, 0).long()
    chosen = P.gather(-2, rows.unsqueeze(-2)).squeeze(-2)
    # A probability that has underflowed gets the largest finite loss.
    surprise = -torch.log(chosen.clamp(min=torch.finfo(P.dtype).tiny))
    return torch.where(counted, surprise, 0.0).sum() / counted.sum().clamp(min=1)


def spearman_loss(ranks: Tensor, target_ranks: Tensor) -> Tensor:
    """One minus Spearman's rank correlation of relaxed ranks: ``6 Σ (r - t)² / (n (n² - 1))``, averaged over lists.

    It is 0 for the true ranks and 2 for reversed ones; a list of one entry has loss 0.

    Args:
        ranks: (..., n) Relaxed ranks from 1 to n, as of `Sorter.rank`.
        target_ranks: (..., n) The true ranks; 0 leaves an entry out, as padding.

    Returns:
        The mean over lists, a scalar.

    Example:
        >>> ranks = softly.SoftSort(steepness=2.0).rank(torch.tensor([3.0, 1.0, 2.0]))
        >>> softly.sorting.spearman_loss(ranks, torch.tensor([3, 1, 2]))
        tensor(0.0118)
    """
    _inputs.floating(ranks, "softly.sorting.spearman_loss", "ranks")
    if ranks.shape != target_ranks.shape or ranks.ndim == 0:
        raise ValueError(
            "softly.sorting.spearman_loss: ranks and target_ranks must have one shape (..., n), "
            f"got {tuple(ranks.shape)} and {tuple(target_ranks.shape)}."
        )
    counted = target_ranks > 0
    n = counted.sum(-1).to(ranks.dtype)
    squares = torch.where(counted, ranks - target_ranks, 0.0).square().sum(-1)
    return (6.0 * squares / (n * (n * n - 1.0)).clamp(min=1.0)).mean()


def ndcg_loss(
    scores: Tensor,
    grades: Tensor,
    *,
    sorter: Sorter,
    k: int | None = None,
    gain: str = "exponential",
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """One minus the normalised discounted cumulative gain of a relaxed ranking by ``scores``.

    As the sorter's steepness goes to infinity this is ``1 - NDCG@k``. With `NeuralSort` it is PiRank (at ``k``) and
    NeuralNDCG; with `SortingNetwork` the gradients of all its distributions.

    Args:
        scores: (..., n) Predicted scores, one list in each row.
        grades: (..., n) Relevance grades, >= 0.
        sorter: Ranks the scores, from the largest.
        k: How many ranks count; None for all.
        gain: "exponential" is ``2^grade - 1``, "linear" the grade.
        lengths: (...) Lengths of lists that are padded at their end.
        mask: (..., n) Where there is an entry.

    Returns:
        The mean over lists with any relevant entry, a scalar.

    Example:
        >>> scores, grades = torch.tensor([0.2, 1.3, 0.9]), torch.tensor([0, 2, 1])
        >>> softly.sorting.ndcg_loss(scores, grades, sorter=softly.SoftSort(steepness=20.0))
        tensor(6.8188e-05)
    """
    _inputs.floating(scores, "softly.sorting.ndcg_loss", "scores")
    if scores.shape != grades.shape or scores.ndim == 0:
        raise ValueError(
            "softly.sorting.ndcg_loss: scores and grades must have one shape (..., n), "
            f"got {tuple(scores.shape)} and {tuple(grades.shape)}."
        )
    if gain not in ("exponential", "linear"):
        raise ValueError(f"softly.sorting.ndcg_loss: gain must be 'exponential' or 'linear', got {gain!r}.")
    n = scores.shape[-1]
    k = n if k is None else min(k, n)
    gains = grades.to(scores.dtype)
    gains = torch.exp2(gains) - 1.0 if gain == "exponential" else gains
    if lengths is not None:
        gains = torch.where(torch.arange(n, device=scores.device) < lengths.unsqueeze(-1), gains, 0.0)
    if mask is not None:
        gains = torch.where(mask, gains, 0.0)
    rows = sorter.topk(scores, k, lengths=lengths, mask=mask)
    discount = 1.0 / torch.log2(torch.arange(2, k + 2, dtype=scores.dtype, device=scores.device))
    dcg = (rows @ gains.unsqueeze(-1)).squeeze(-1) @ discount
    ideal = torch.topk(gains, k, -1).values @ discount
    relevant = ideal > 0
    loss = torch.where(relevant, 1.0 - dcg / torch.where(relevant, ideal, 1.0), 0.0)
    return loss.sum() / relevant.sum().clamp(min=1)
