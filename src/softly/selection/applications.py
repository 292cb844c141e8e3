"""What a differentiable top-k is good for: neighbours that vote, retrieval, and a mixture of experts."""

from __future__ import annotations

import torch
from torch import Tensor

from softly import _inputs
from softly._steepness import Steep
from softly.distributions import Distribution
from softly.minmax import symmetric
from softly.selection.sorters import get_selector
from softly.selection.threshold import soft_topk
from softly.sorting import graded
from softly.sorting.graded import Reduction
from softly.sorting.sorter import Sorter

__all__ = ["TopKGate", "recall_loss", "soft_knn"]


def soft_knn(
    queries: Tensor, keys: Tensor, labels: Tensor, k: int, *, sorter: str | Sorter, num_classes: int | None = None
) -> Tensor:
    """Class probabilities by a vote of the k nearest keys, in squared Euclidean distance.

    As the sorter's steepness goes to infinity, these are the shares of the votes of the k nearest neighbours; at every
    steepness they sum to 1. The gradient moves queries and keys, and so trains what embeds them.

    Args:
        queries: (..., d) Points to classify.
        keys: (n, d) Points with known labels.
        labels: (n,) Labels of the keys, integers from 0.
        k: How many neighbours vote, in [1, n].
        sorter: Ranks the negative squared distances: a `Sorter` or the name of one; `TopKNetwork`, "splitter",
            needs only its k rows.
        num_classes: Number of classes; None counts up to the largest label.

    Returns:
        (..., num_classes) Probabilities.

    Example:
        >>> keys, labels = torch.tensor([[0.0], [1.0], [4.0], [5.0]]), torch.tensor([0, 0, 1, 1])
        >>> sorter = softly.TopKNetwork(steepness=1.0)
        >>> softly.selection.soft_knn(torch.tensor([[2.0]]), keys, labels, 3, sorter=sorter)
        tensor([[0.6432, 0.3568]])
    """
    name = "softly.selection.soft_knn"
    _inputs.floating(queries, name, "queries")
    if keys.ndim != 2 or queries.ndim == 0 or queries.shape[-1] != keys.shape[-1]:
        raise ValueError(
            f"{name}: queries and keys must have shapes (..., d) and (n, d), "
            f"got {tuple(queries.shape)} and {tuple(keys.shape)}."
        )
    if labels.shape != keys.shape[:1] or labels.is_floating_point():
        raise ValueError(
            f"{name}: labels must be integers of shape ({len(keys)},), got {labels.dtype} of shape "
            f"{tuple(labels.shape)}."
        )
    chosen = get_selector(sorter, name)
    num_classes = int(labels.max()) + 1 if num_classes is None else num_classes

    def votes(q: Tensor, points: Tensor) -> Tensor:
        closeness = 2.0 * q @ points.T - points.square().sum(-1) - q.square().sum(-1, keepdim=True)
        neighbours = chosen.topk(closeness, k).mean(-2)
        return neighbours @ torch.nn.functional.one_hot(labels.long(), num_classes).to(neighbours)

    return _inputs.at_least_single(votes, queries, keys)


def recall_loss(
    scores: Tensor, relevant: Tensor, k: int, *, sorter: str | Sorter, reduction: Reduction = "mean"
) -> Tensor:
    """One minus the recall among the first k of a relaxed ranking by ``scores``, for learning to retrieve.

    As the sorter's steepness goes to infinity, this is ``1 - hits / min(k, number of relevant entries)``, so that 0 can
    always be reached. With a sorter whose columns sum to at most 1, such as `TopKNetwork`, it stays in [0, 1].

    Args:
        scores: (..., n) Predicted scores, one list in each row.
        relevant: (..., n) Which entries are to be retrieved, boolean.
        k: How many are retrieved, in [1, n].
        sorter: Ranks the scores, from the largest: a `Sorter`, or the name of one, such as "splitter".
        reduction: "mean" over the lists with any relevant entry, "sum", or "none", where the other lists have 0.

    Returns:
        A scalar, or (...) with ``reduction="none"``.

    Example:
        >>> scores, relevant = torch.tensor([0.9, 0.1, 0.6, 0.4]), torch.tensor([True, False, False, True])
        >>> softly.selection.recall_loss(scores, relevant, 2, sorter=softly.TopKNetwork(steepness=100.0))
        tensor(0.4922)
    """
    name = "softly.selection.recall_loss"
    _inputs.floating(scores, name, "scores")
    if scores.ndim == 0 or relevant.shape != scores.shape or relevant.dtype != torch.bool:
        raise ValueError(
            f"{name}: relevant must be boolean and of the shape of scores, {tuple(scores.shape)}, "
            f"got {relevant.dtype} of shape {tuple(relevant.shape)}."
        )
    chosen = get_selector(sorter, name)

    def loss(s: Tensor) -> Tensor:
        number = relevant.sum(-1)
        hits = torch.where(relevant, chosen.topk(s, k).sum(-2), 0.0).sum(-1)
        missed = torch.where(number > 0, 1.0 - hits / number.clamp(min=1, max=k), 0.0)
        return graded.reduce(missed, number > 0, reduction, name)

    return _inputs.at_least_single(loss, scores)


class TopKGate(Steep):
    """The gate of a mixture of experts that uses k of them, softly: ``softmax(x) * soft_topk(x, k)``, renormalised.

    As ``steepness -> inf`` this is the softmax over the k largest scores and 0 elsewhere; at every steepness weights
    sum to 1. Experts that are not chosen keep a gradient, with which they can come back.

    Args:
        k: How many experts, >= 1; all of them where there are fewer.
        distribution: Name or `Distribution`, symmetric and continuous; heavy tails reach experts far below.
        steepness: Inverse temperature, > 0; a parameter is learned.

    Example:
        >>> gate = softly.selection.TopKGate(2, steepness=4.0)
        >>> gate(torch.tensor([2.0, -1.0, 1.0, 0.0]))
        tensor([7.4564e-01, 9.2020e-05, 2.4221e-01, 1.2059e-02])
    """

    def __init__(
        self, k: int, *, distribution: str | Distribution = "logistic", steepness: float | Tensor = 10.0
    ) -> None:
        super().__init__(steepness, name="softly.selection.TopKGate")
        k = _inputs.integer(k, "softly.selection.TopKGate", "k")
        if k < 1:
            raise ValueError(f"softly.selection.TopKGate: k must be >= 1, got {k}.")
        self.k = k
        self.distribution = symmetric(distribution, "softly.selection.TopKGate")

    def forward(self, scores: Tensor) -> Tensor:
        """The weights of the experts, (..., experts), from their scores."""
        _inputs.floating(scores, "softly.selection.TopKGate", "scores")

        def weights(x: Tensor) -> Tensor:
            steepness = self._checked_steepness()
            chosen = soft_topk(x, min(self.k, x.shape[-1]), distribution=self.distribution, steepness=steepness)
            # The largest score has the largest share of both factors, so that the sum can't underflow.
            product = torch.softmax(_inputs.finite(x), -1) * chosen
            return product / product.sum(-1, keepdim=True)

        return _inputs.at_least_single(weights, scores)

    def extra_repr(self) -> str:
        return f"{self.k}, distribution={self.distribution}, steepness={self.steepness}"
