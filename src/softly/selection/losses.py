"""Losses that accept a prediction among the first k: chapter 4's, and the one it is compared with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from softly import _inputs, _logarithms, native
from softly._steepness import Steep
from softly.selection.sorters import get_selector
from softly.sorting.graded import REDUCTIONS
from softly.sorting.sorter import Sorter

__all__ = ["SmoothTopKLoss", "TopKCrossEntropy"]

_STEEPNESS = 1.0  # of sorters by name; the guide to top-k has the measurement


def _check_scores(scores: Tensor, target: Tensor, function: str, ignore_index: int | None = None) -> None:
    _inputs.floating(scores, function, "scores")
    if scores.ndim != 2 or target.shape != scores.shape[:1] or target.is_floating_point():
        raise ValueError(
            f"{function}: scores must have shape (batch, classes) and target integers of shape (batch,), "
            f"got {tuple(scores.shape)} and {target.dtype} of shape {tuple(target.shape)}."
        )
    known = native.data(target)
    if known is None:
        return
    wrong = (known < 0) | (known >= scores.shape[-1])
    if ignore_index is not None:
        wrong = wrong & (known != ignore_index)
    if wrong.any():
        raise ValueError(
            f"{function}: target must be in [0, {scores.shape[-1] - 1}], one of the classes, "
            f"got {known[wrong][0].item()}."
        )


def _reduce(losses: Tensor, weights: Tensor, reduction: str) -> Tensor:
    """As in torch.nn.CrossEntropyLoss: the mean is weighted, and NaN over nothing."""
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / weights.sum()


class TopKCrossEntropy(torch.nn.Module):
    """The cross-entropy of the true class being among the first k predictions, with k drawn from ``p_k`` (chapter 4).

    The loss is ``-log Σ_k p_k[k] Σ_{r <= k} P[r, y]``, in closed form, with the probability ``P[r, y]`` that the true
    class y is the r-th best prediction. With ``p_k = [1]`` it is a top-1 loss; ``[.5, 0, 0, 0, .5]`` asks for the
    first place and accepts the first five. As the sorter's steepness goes to infinity, the loss is 0 exactly where the
    rank of the true class has all of ``p_k`` at or behind it.

    Args:
        p_k: (K,) Probabilities of k = 1, ..., K, or (classes, K) with a row for every label. Rows sum to 1.
        sorter: Ranks the scores: a `Sorter`, or the name of one, at steepness 1; "splitter" is a `TopKNetwork`. Scores
            of a classifier are logits, several apart: steeper sorters hardly tell it how to change them.
        m: Rank only the true class and the m - 1 largest of the others, in descending order, K <= m; None, or no less
            than there are classes, ranks all of them, in their own order. The thesis takes 16 for a thousand classes
            and 50 for ten thousand.
        top1: Where the share of k = 1 comes from: "sort" takes it from the sorter like the others, "softmax" from the
            softmax of the scores, and "separate" mixes two losses, the softmax cross-entropy with weight ``p_k[1]``
            and the top-k one, renormalised over k >= 2, with the rest.
        weight: (classes,) Weights of the classes, as in `torch.nn.CrossEntropyLoss`.
        ignore_index: Label of examples that are left out.
        label_smoothing: Share of the target that is spread evenly, in [0, 1]; over the ranked classes.
        reduction: "mean", "sum" or "none".

    Example:
        >>> loss = softly.TopKCrossEntropy([0.5, 0.0, 0.5], top1="softmax")
        >>> loss(torch.tensor([[0.1, 2.0, 1.5, -1.0]]), torch.tensor([2]))
        tensor(0.4396)
    """

    p_k: Tensor
    weight: Tensor | None

    def __init__(
        self,
        p_k: Sequence[float] | Sequence[Sequence[float]] | Tensor,
        *,
        sorter: str | Sorter = "splitter",
        m: int | None = None,
        top1: str = "softmax",
        weight: Tensor | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        name = "softly.TopKCrossEntropy"
        p_k = _distribution_over_k(p_k, name)
        if top1 not in ("softmax", "sort", "separate"):
            raise ValueError(f"{name}: top1 must be 'softmax', 'sort' or 'separate', got {top1!r}.")
        m = None if m is None else _inputs.integer(m, name, "m")
        if m is not None and m < p_k.shape[-1]:
            raise ValueError(f"{name}: m must be at least {p_k.shape[-1]}, the largest k of p_k, got {m}.")
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"{name}: label_smoothing must be in [0, 1], got {label_smoothing}.")
        if reduction not in REDUCTIONS:
            raise ValueError(f"{name}: reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}.")
        self.register_buffer("p_k", p_k)
        self.register_buffer("weight", weight)
        self.sorter = get_selector(sorter, name, steepness=_STEEPNESS)
        self.m = m
        self.top1 = top1
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.reduction = reduction

    def forward(self, scores: Tensor, target: Tensor, p_k: Tensor | None = None) -> Tensor:
        """The loss of ``scores`` (batch, classes) at ``target`` (batch,).

        Args:
            scores: (batch, classes) Scores.
            target: (batch,) Labels.
            p_k: (batch, K) A distribution over k for every example, instead of the loss's own.
        """
        name = "softly.TopKCrossEntropy"
        _check_scores(scores, target, name, self.ignore_index)
        counted = target != self.ignore_index
        label = torch.where(counted, target, 0).long()
        chosen = self.p_k if p_k is None else _distribution_over_k(p_k, name)
        if p_k is not None and chosen.shape[:-1] != target.shape:
            raise ValueError(f"{name}: p_k must have shape (batch, K) = ({len(target)}, K), got {tuple(p_k.shape)}.")
        if p_k is None and chosen.ndim == 2:
            if len(chosen) != scores.shape[-1]:
                raise ValueError(f"{name}: p_k has rows for {len(chosen)} classes, got {scores.shape[-1]} scores.")
            chosen = chosen[label]
        chosen = chosen.to(scores).reshape(-1, chosen.shape[-1])  # one row for all, or one for each
        ranked = self._ranked(scores, label)
        log_p = _inputs.at_least_single(lambda s, q: self._log_probability(s, q, ranked), scores, chosen)
        place = (ranked == label.unsqueeze(-1)).to(torch.uint8).argmax(-1, keepdim=True)
        weight = scores.new_ones(scores.shape[-1]) if self.weight is None else self.weight.to(scores)
        losses = -weight[label] * log_p.gather(-1, place).squeeze(-1)
        if self.label_smoothing:
            even = -(weight[ranked] * log_p).mean(-1)
            losses = (1.0 - self.label_smoothing) * losses + self.label_smoothing * even
        losses = torch.where(counted, losses, 0.0)
        return _reduce(losses, torch.where(counted, weight[label], 0.0), self.reduction)

    def _ranked(self, scores: Tensor, label: Tensor) -> Tensor:
        """The classes that are ranked, (batch, m)."""
        n = scores.shape[-1]
        if self.m is None or self.m >= n:
            return torch.arange(n, device=scores.device).expand(scores.shape)
        best = _largest(scores, self.m)
        # Networks depend on the order of their wires, so that the place of the true class must not tell which it is:
        # it is the one that its score gives it, the last where it is not among the best.
        last = torch.where((best == label.unsqueeze(-1)).any(-1), best[..., -1], label)
        return torch.cat([best[..., :-1], last.unsqueeze(-1)], -1)

    def _log_probability(self, scores: Tensor, p_k: Tensor, ranked: Tensor) -> Tensor:
        """The logarithm of the probability that each ranked class is accepted, (batch, m)."""
        first, rest = p_k[:, :1], p_k[:, 1:]
        if self.top1 == "sort":
            return _logarithms.floor(self._log_accepted(scores.gather(-1, ranked), p_k))
        ranked_scores = scores.gather(-1, ranked)
        bounded = scores if _inputs.known_finite(scores) else _inputs.finite(scores)
        log_softmax = bounded.gather(-1, ranked) - _logsumexp(bounded)
        if p_k.shape[-1] == 1:
            return log_softmax
        if self.top1 == "softmax":
            accepted = self._log_accepted(ranked_scores, torch.cat([0 * first, rest], -1))
            return _logarithms.floor(_logarithms.add(_logarithms.log(first) + log_softmax, accepted))
        share = 1.0 - first
        later = torch.where(share > 0, rest / torch.where(share > 0, share, 1.0), 0.0)
        accepted = _logarithms.floor(self._log_accepted(ranked_scores, torch.cat([0 * first, later], -1)))
        return first * log_softmax + torch.where(share > 0, share * accepted, 0.0)

    def _log_accepted(self, scores: Tensor, p_k: Tensor) -> Tensor:
        """log Σ_k p_k[k] Σ_{r <= k} P[r, c] for the ranked classes: rank r counts for all k >= r."""
        k = p_k.shape[-1]
        if k > scores.shape[-1]:
            raise ValueError(f"softly.TopKCrossEntropy: p_k reaches to k = {k}, got only {scores.shape[-1]} classes.")
        at_least = p_k.flip(-1).cumsum(-1).flip(-1).unsqueeze(-1)
        if self.sorter.monotonic:
            # Tails as heavy as that don't underflow. For matrices this small, faster than a product of them.
            return _logarithms.log((at_least * self.sorter.topk(scores, k)).sum(-2))
        rows = self.sorter.log_topk(scores, k).clamp(min=_logarithms.NOTHING)
        return torch.logsumexp(_logarithms.log(at_least) + rows, -2)


_FEW = 64  # up to which a list of the best so far beats a partial sort


def _largest(x: Tensor, m: int) -> Tensor:
    """``torch.topk(x, m).indices``."""
    return x.detach().topk(m, -1).indices if m > _FEW else _few_largest(x, m)


def _few_largest_forward(x: Tensor, m: int) -> Tensor:
    indices = x.new_empty(*x.shape[:-1], m, dtype=torch.int64)
    rows, n = x.shape[:-1].numel(), x.shape[-1]
    native.kernel("largest", x.dtype)(x.data_ptr(), indices.data_ptr(), rows, n, m, torch.get_num_threads())
    return indices


_few_largest = native.Operator(
    "largest",
    forward=_few_largest_forward,
    shape=lambda x, m: x.new_empty(*x.shape[:-1], m, dtype=torch.int64),
    backward=None,
    reference=lambda x, m: x.topk(m, -1).indices,
)


def _logsumexp_shape(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.new_empty(*x.shape[:-1], 1), x.new_empty(*x.shape[:-1], 1)


def _logsumexp_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    out = x.new_empty(*x.shape[:-1], 1)
    rows, n = out.numel(), x.shape[-1]
    native.kernel("logsumexp", x.dtype)(x.data_ptr(), out.data_ptr(), rows, n, torch.get_num_threads())
    return out, out.clone()


def _logsumexp_backward(grad: Tensor, x: Tensor, out: Tensor) -> Tensor:
    grad_x, n = torch.empty_like(x), x.shape[-1]
    native.kernel("logsumexp_backward", x.dtype)(
        x.data_ptr(), out.data_ptr(), grad.data_ptr(), grad_x.data_ptr(), out.numel(), n, torch.get_num_threads()
    )
    return grad_x


_logsumexp = native.Operator(
    "logsumexp",
    forward=_logsumexp_forward,
    shape=_logsumexp_shape,
    backward=_logsumexp_backward,
    reference=lambda x: torch.logsumexp(x, -1, keepdim=True),
)


def _distribution_over_k(p_k: Sequence[float] | Sequence[Sequence[float]] | Tensor, function: str) -> Tensor:
    p_k = torch.as_tensor(p_k, dtype=None if isinstance(p_k, Tensor) else torch.get_default_dtype())
    if p_k.ndim not in (1, 2) or p_k.shape[-1] == 0 or not p_k.is_floating_point():
        raise ValueError(
            f"{function}: p_k must be probabilities of shape (K,) or (classes, K), got {tuple(p_k.shape)}."
        )
    known = native.data(p_k)
    if known is not None and known.shape == p_k.shape:  # else there is an example's dimension, which may be anywhere
        sums = known.sum(-1)
        worst = sums.flatten()[(sums - 1).abs().argmax()]
        if (known < 0).any() or not (worst - 1).abs() <= 1e-4:
            raise ValueError(f"{function}: p_k must be non-negative and sum to 1, got a sum of {float(worst):.4g}.")
    return p_k


class SmoothTopKLoss(Steep):
    """The smooth top-k loss of Berrada et al. (2018), the baseline of chapter 4.

    A smoothed hinge between all sets of k classes and those that hold the true one, in closed form by elementary
    symmetric polynomials: ``τ log(1 + exp(1/τ) e_k / (exp(s_y / kτ) e_{k-1}))`` over ``exp(s_j / kτ)`` of the other
    classes. As ``steepness = 1/τ -> inf`` it is the hinge ``max(0, 1 + (s - s_y) / k)`` with the k-th best s
    of the others.

    Args:
        k: Size of the sets, >= 1.
        steepness: Inverse temperature, > 0.
        reduction: "mean", "sum" or "none".

    Example:
        >>> loss = softly.selection.SmoothTopKLoss(2, steepness=5.0)
        >>> loss(torch.tensor([[0.1, 2.0, 1.5, -1.0]]), torch.tensor([0]))
        tensor(1.6501)
    """

    def __init__(self, k: int, *, steepness: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(steepness, name="softly.selection.SmoothTopKLoss")
        k = _inputs.integer(k, "softly.selection.SmoothTopKLoss", "k")
        if k < 1:
            raise ValueError(f"softly.selection.SmoothTopKLoss: k must be >= 1, got {k}.")
        if reduction not in REDUCTIONS:
            choices = ", ".join(REDUCTIONS)
            raise ValueError(f"softly.selection.SmoothTopKLoss: reduction must be one of {choices}, got {reduction!r}.")
        self.k = k
        self.reduction = reduction

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """The loss of ``scores`` (batch, classes) at ``target`` (batch,)."""
        _check_scores(scores, target, "softly.selection.SmoothTopKLoss")
        n = scores.shape[-1]
        if self.k >= n:
            raise ValueError(f"softly.selection.SmoothTopKLoss: k must be below the {n} classes, got {self.k}.")
        losses = _inputs.at_least_single(lambda s: self._losses(s, target.unsqueeze(-1)), scores)
        return _reduce(losses, torch.ones_like(losses), self.reduction)

    def _losses(self, scores: Tensor, target: Tensor) -> Tensor:
        steepness = self._checked_steepness()
        rate = steepness / self.k
        index = torch.arange(scores.shape[-1] - 1, device=scores.device)
        others = scores.gather(-1, index + (index >= target))
        # A class at -inf is in no set; as a very low number it has a gradient, 0. One at inf would hide the others in
        # its rounding: the loss is NaN then.
        others = torch.where(others.isneginf(), -_inputs.large(others), others)
        polynomials = _log_symmetric_polynomials(rate * others, self.k)
        own = rate * scores.gather(-1, target).squeeze(-1)
        margin = steepness + polynomials[..., self.k] - polynomials[..., self.k - 1] - own
        return torch.nn.functional.softplus(margin) / steepness


def _log_symmetric_polynomials(x: Tensor, k: int) -> Tensor:
    """log e_0, ..., log e_k of ``exp(x)`` over the last dimension, by products of polynomials in a tree."""
    lowest = -_inputs.large(x)
    # Coefficients of 1 + exp(x) z for every entry, in logarithms.
    terms = torch.stack([torch.zeros_like(x), x], -1)
    while terms.shape[-2] > 1:
        if terms.shape[-2] % 2:
            one = torch.full_like(terms[..., :1, :], lowest)
            one[..., 0] = 0.0
            terms = torch.cat([terms, one], -2)
        a, b = terms[..., 0::2, :], terms[..., 1::2, :]
        degree = min(k, 2 * (a.shape[-1] - 1))
        products = []
        for d in range(degree + 1):
            low, high = max(0, d - b.shape[-1] + 1), min(d, a.shape[-1] - 1)
            products.append(torch.logsumexp(a[..., low : high + 1] + b[..., d - high : d - low + 1].flip(-1), -1))
        terms = torch.stack(products, -1)
    result = terms.squeeze(-2)
    missing = k + 1 - result.shape[-1]
    return torch.nn.functional.pad(result, (0, missing), value=lowest) if missing > 0 else result[..., : k + 1]
