"""Losses on relaxed permutations and ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from softly import _clamped, _inputs, native
from softly.sorting import graded
from softly.sorting.functional import get_sorter
from softly.sorting.graded import Reduction
from softly.sorting.sorter import Sorter

__all__ = ["ndcg_loss", "ranking_loss", "spearman_loss"]

_KINDS = ("cross_entropy", "binary_cross_entropy")


def _check_ranks(target_ranks: Tensor, padding: Callable[[], Tensor], function: str) -> None:
    """Refuse what is no ranking of the entries that there are: 0 is for padding alone."""
    ranks = native.data(target_ranks)
    if ranks is None or ranks.shape != target_ranks.shape:
        return
    n = ranks.shape[-1]
    if not ((ranks >= 0) & (ranks <= n)).all():
        raise ValueError(
            f"{function}: target_ranks must be from 1 to n = {n}, or 0 for padding, "
            f"got {ranks.min().item()} to {ranks.max().item()}."
        )
    unranked = ranks == 0
    empty = native.data(padding()) if unranked.any() else None
    if empty is not None and empty.shape == unranked.shape and (unranked & ~empty).any():
        raise ValueError(
            f"{function}: target_ranks count from 1, and 0 is for padding; an entry that is none has rank 0. "
            "Ranks that count from 0 need 1 added; the order that argsort gives is not yet ranks: "
            "order.argsort(-1) + 1 is."
        )
    seen = torch.zeros(*ranks.shape[:-1], n + 1, dtype=torch.bool, device=ranks.device)
    seen.scatter_(-1, ranks.long(), True)
    seen[..., 0] = False
    length = (~unranked).sum(-1, keepdim=True)
    expected = torch.arange(n + 1, device=ranks.device)
    if not torch.equal(seen, (expected > 0) & (expected <= length)):
        raise ValueError(
            f"{function}: the target_ranks of a list of m entries must be 1 to m, each once; "
            "some are missing or given twice."
        )


def ranking_loss(
    P: Tensor,
    target_ranks: Tensor,
    *,
    kind: Literal["cross_entropy", "binary_cross_entropy"] = "cross_entropy",
    log: bool = False,
    reduction: Reduction = "mean",
) -> Tensor:
    """The cross-entropy between relaxed permutation matrices and the true ones: the mean of ``-log P[rank, input]``.

    It is 0 exactly where ``P`` is the true permutation matrix. Give it logarithms: their gradients are right where
    probabilities underflow. Of a probability below the root of the smallest normal number, 1e-19 in float32, the
    gradient is clamped; one that is exactly 0, as bounded distributions have them, counts as the smallest normal
    number, a loss of 87 in float32 and 708 in float64, in both forms, and has no gradient in logarithms.

    Args:
        P: (..., n, n) Probabilities ``P[rank, input]``, as of `Sorter.permutation`, or with ``log`` their logarithms,
            as of `Sorter.log_permutation`.
        target_ranks: (..., n) The true rank of every input, integers from 1 to n, each once; 0 for padding. Of values
            they are ``values.argsort(-1).argsort(-1) + 1``; a single argsort would give the inputs of the ranks.
        kind: "cross_entropy", the equation of chapter 3, or "binary_cross_entropy", which its figure names: every
            entry of P is a probability of its own, and those that should be 0 are pushed there too.
        log: Whether P holds logarithms.
        reduction: "none" gives the loss of every list, (...), a mean over its inputs, or over its n² entries of P for
            the binary kind; "sum" adds these up, and "mean" is the mean over the inputs, or entries, of all lists.

    Returns:
        A scalar, or (...) with ``reduction="none"``.

    Example:
        >>> sorter, x, ranks = softly.SoftSort(steepness=2.0), torch.tensor([3.0, 1.0, 2.0]), torch.tensor([3, 1, 2])
        >>> softly.sorting.ranking_loss(sorter.log_permutation(x), ranks, log=True)
        tensor(0.1751)
        >>> softly.sorting.ranking_loss(sorter.permutation(x), ranks)
        tensor(0.1751)
    """
    name = "softly.sorting.ranking_loss"
    _inputs.floating(P, name, "P")
    if P.ndim < 2 or P.shape[-1] != P.shape[-2]:
        raise ValueError(f"{name}: P must have shape (..., n, n), got {tuple(P.shape)}.")
    if target_ranks.shape != P.shape[:-1] or target_ranks.is_floating_point():
        raise ValueError(
            f"{name}: target_ranks must be integers of shape {tuple(P.shape[:-1])}, "
            f"got {target_ranks.dtype} of shape {tuple(target_ranks.shape)}."
        )
    if kind not in _KINDS:
        raise ValueError(f"{name}: kind must be one of {', '.join(_KINDS)}, got {kind!r}.")
    _check_ranks(target_ranks, lambda: P.detach().eq(-torch.inf if log else 0.0).all(-2), name)
    return _inputs.at_least_single(lambda M: _ranking_loss(M, target_ranks, kind, log, reduction, name), P)


def _ranking_loss(P: Tensor, target_ranks: Tensor, kind: str, log: bool, reduction: str, name: str) -> Tensor:
    counted = target_ranks > 0
    rows = torch.where(counted, target_ranks - 1, 0).long().unsqueeze(-2)
    length = counted.sum(-1)
    if kind == "cross_entropy":
        surprise = -_log(P.gather(-2, rows).squeeze(-2), log)
        losses = torch.where(counted, surprise, 0.0).sum(-1) / length.clamp(min=1)
        return graded.reduce(losses, length, reduction, name)
    places = torch.arange(P.shape[-1], device=P.device)
    true = counted.unsqueeze(-2) & (places.unsqueeze(-1) == rows)
    inside = counted.unsqueeze(-2) & (places < length.unsqueeze(-1)).unsqueeze(-1)
    # Of the two logarithms only the one that counts is taken.
    hit = _log(torch.where(true, P, 0.0 if log else 1.0), log)
    surprise = -torch.where(true, hit, _log_other(P, log, inside & ~true))
    losses = torch.where(inside, surprise, 0.0).sum((-2, -1)) / length.square().clamp(min=1)
    return graded.reduce(losses, length.square(), reduction, name)


def _log(P: Tensor, log: bool) -> Tensor:
    """log P, at 0 that of the smallest normal number."""
    if not log:
        return _clamped.log(P)
    return torch.where(P.isneginf(), math.log(torch.finfo(P.dtype).tiny), P)


def _log_other(P: Tensor, log: bool, counted: Tensor) -> Tensor:
    """log(1 - P) where it is ``counted``; where P is 1 the largest loss there is, and no gradient."""
    if not log:
        return _clamped.log_other(torch.where(counted, P, 0.0))
    # log(1 - exp(log P)): the nearer end decides which form has its digits.
    x = torch.where(counted, P, -1.0).clamp(max=-torch.finfo(P.dtype).tiny)
    near = x > -0.7
    above = torch.log(-torch.expm1(torch.where(near, x, -1.0)))
    return torch.where(near, above, torch.log1p(-torch.exp(torch.where(near, -1.0, x))))


def spearman_loss(ranks: Tensor, target_ranks: Tensor, *, reduction: Reduction = "mean") -> Tensor:
    """One minus Spearman's rank correlation of relaxed ranks: ``6 Σ (r - t)² / (n (n² - 1))``, averaged over lists.

    It is 0 for the true ranks and 2 for reversed ones; a list of one entry has loss 0.

    Args:
        ranks: (..., n) Relaxed ranks from 1 to n, as of `Sorter.rank`.
        target_ranks: (..., n) The true ranks from 1 to n, each once; 0 for padding.
        reduction: "mean" over lists, "sum", or "none", (...).

    Returns:
        A scalar, or (...) with ``reduction="none"``.

    Example:
        >>> ranks = softly.SoftSort(steepness=2.0).rank(torch.tensor([3.0, 1.0, 2.0]))
        >>> softly.sorting.spearman_loss(ranks, torch.tensor([3, 1, 2]))
        tensor(0.0118)
    """
    name = "softly.sorting.spearman_loss"
    _inputs.floating(ranks, name, "ranks")
    if ranks.shape != target_ranks.shape or ranks.ndim == 0:
        raise ValueError(
            f"{name}: ranks and target_ranks must have one shape (..., n), "
            f"got {tuple(ranks.shape)} and {tuple(target_ranks.shape)}."
        )
    _check_ranks(target_ranks, lambda: ranks.detach() == 0, name)
    counted = target_ranks > 0

    def loss(r: Tensor) -> Tensor:
        n = counted.sum(-1).to(r.dtype)
        squares = torch.where(counted, r - target_ranks, 0.0).square().sum(-1)
        losses = 6.0 * squares / (n * (n * n - 1.0)).clamp(min=1.0)
        return graded.reduce(losses, torch.ones_like(losses), reduction, name)

    return _inputs.at_least_single(loss, ranks)


def ndcg_loss(
    scores: Tensor,
    grades: Tensor,
    *,
    sorter: str | Sorter,
    k: int | None = None,
    gain: str = "exponential",
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """One minus the normalised discounted cumulative gain of a relaxed ranking by ``scores``.

    As the sorter's steepness goes to infinity this is ``1 - NDCG@k``. With `NeuralSort` it is PiRank (at ``k``) and
    NeuralNDCG; with `SortingNetwork` the gradients of all its distributions.

    Args:
        scores: (..., n) Predicted scores, one list in each row.
        grades: (..., n) Relevance grades, >= 0.
        sorter: Ranks the scores, from the largest: a `Sorter`, or the name of one as in `softly.sort`.
        k: How many ranks count; None for all.
        gain: "exponential" is ``2^grade - 1``, "linear" the grade.
        lengths: (...) Lengths of lists that are padded at their end.
        mask: (..., n) Where there is an entry.
        reduction: "mean" over lists with any relevant entry, "sum", or "none", where the others have 0.

    Returns:
        A scalar, or (...) with ``reduction="none"``.

    Example:
        >>> scores, grades = torch.tensor([0.2, 1.3, 0.9]), torch.tensor([0, 2, 1])
        >>> softly.sorting.ndcg_loss(scores, grades, sorter=softly.SoftSort(steepness=20.0))
        tensor(6.8188e-05)
    """
    name = "softly.sorting.ndcg_loss"
    valid = graded.checked(scores, grades, lengths, mask, name)
    chosen = get_sorter(sorter, None, None, name)
    n = scores.shape[-1]
    k = n if k is None else min(_inputs.integer(k, name, "k"), n)

    def loss(s: Tensor) -> Tensor:
        gains = graded.gains(grades, valid, gain, s.dtype, name)
        rows = chosen.topk(s, k, lengths=lengths, mask=mask)
        discounts = graded.discounts(k, s)
        dcg = (rows @ gains.unsqueeze(-1)).squeeze(-1) @ discounts
        ideal = torch.topk(gains, k, -1).values @ discounts
        relevant = ideal > 0
        losses = torch.where(relevant, 1.0 - dcg / torch.where(relevant, ideal, 1.0), 0.0)
        return graded.reduce(losses, relevant, reduction, name)

    return _inputs.at_least_single(loss, scores)
