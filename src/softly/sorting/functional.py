"""Sorting, ranking and selecting in one call."""

from __future__ import annotations

from torch import Tensor

from softly.distributions import Distribution
from softly.sorting import networks
from softly.sorting.fastsort import FastSort
from softly.sorting.network_sort import SortingNetwork
from softly.sorting.neuralsort import NeuralSort
from softly.sorting.sinkhorn import SinkhornSort
from softly.sorting.softsort import SoftSort
from softly.sorting.sorter import Sorter, Steepness

__all__ = ["permutation", "rank", "sort", "topk"]

_SORTERS: dict[str, type[Sorter]] = {
    "fastsort": FastSort,
    "neuralsort": NeuralSort,
    "sinkhornsort": SinkhornSort,
    "softsort": SoftSort,
}


def get_sorter(
    sorter: str | Sorter, steepness: Steepness | None, distribution: str | Distribution | None, function: str
) -> Sorter:
    """The sorter of a name, or the sorter itself, which has its hyperparameters already."""
    if isinstance(sorter, Sorter):
        if steepness is not None or distribution is not None:
            raise ValueError(f"{function}: a sorter that is an object has its steepness and distribution already.")
        return sorter
    options = {} if steepness is None else {"steepness": steepness}
    if sorter in networks.names():
        return SortingNetwork(sorter, distribution="cauchy" if distribution is None else distribution, **options)
    if sorter not in _SORTERS:
        choices = ", ".join((*networks.names(), *_SORTERS))
        raise ValueError(f"{function}: unknown sorter {sorter!r}; choose from {choices}, or give a Sorter.")
    if distribution is not None:
        raise ValueError(f"{function}: only sorting networks have a distribution, {sorter!r} has none.")
    return _SORTERS[sorter](**options)


def sort(
    x: Tensor,
    *,
    sorter: str | Sorter = "bitonic",
    steepness: Steepness | None = None,
    distribution: str | Distribution | None = None,
    dim: int = -1,
    descending: bool = False,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The relaxed sorted values of ``x``; see `Sorter.sort`.

    As ``steepness -> inf`` this is ``torch.sort(x, dim).values``.

    Args:
        x: (..., n, ...) Values.
        sorter: A sorting network's name, another sorter's in lower case, or a `Sorter`.
        steepness: Inverse temperature, > 0, or "auto"; by default 10, and 1 for "fastsort".
        distribution: Of a network's swaps, "cauchy" by default.
        dim: The dimension that is sorted.
        descending: From the largest.
        lengths, mask: Which entries there are, in lists of unequal length.

    Example:
        >>> softly.sort(torch.tensor([3.0, 1.0, 2.0]), steepness=1000.0)
        tensor([1.0006, 2.0000, 2.9994])
    """
    chosen = get_sorter(sorter, steepness, distribution, "softly.sort")
    return chosen.sort(x, dim=dim, descending=descending, lengths=lengths, mask=mask)


def permutation(
    x: Tensor,
    *,
    sorter: str | Sorter = "bitonic",
    steepness: Steepness | None = None,
    distribution: str | Distribution | None = None,
    dim: int = -1,
    descending: bool = False,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The relaxed permutation matrix ``P[rank, input]`` of ``x``, (..., n, n); see `Sorter.permutation`.

    As ``steepness -> inf`` this is the matrix with ``P @ x == torch.sort(x).values``.

    Args:
        x: (..., n, ...) Values.
        sorter: A sorting network's name, another sorter's in lower case, or a `Sorter`.
        steepness: Inverse temperature, > 0, or "auto"; by default 10, and 1 for "fastsort".
        distribution: Of a network's swaps, "cauchy" by default.
        dim: The dimension that is sorted.
        descending: From the largest.
        lengths, mask: Which entries there are, in lists of unequal length.

    Example:
        >>> softly.permutation(torch.tensor([1.0, 0.0]), steepness=1.0)
        tensor([[0.2500, 0.7500],
                [0.7500, 0.2500]])
    """
    chosen = get_sorter(sorter, steepness, distribution, "softly.permutation")
    return chosen.permutation(x, dim=dim, descending=descending, lengths=lengths, mask=mask)


def rank(
    x: Tensor,
    *,
    sorter: str | Sorter = "bitonic",
    steepness: Steepness | None = None,
    distribution: str | Distribution | None = None,
    dim: int = -1,
    descending: bool = False,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The expected rank of every entry of ``x``, from 1 to n; see `Sorter.rank`.

    As ``steepness -> inf`` this is the rank; ranks of the relaxation sum to ``n (n + 1) / 2``.

    Args:
        x: (..., n, ...) Values.
        sorter: A sorting network's name, another sorter's in lower case, or a `Sorter`.
        steepness: Inverse temperature, > 0, or "auto"; by default 10, and 1 for "fastsort".
        distribution: Of a network's swaps, "cauchy" by default.
        dim: The dimension that is ranked.
        descending: Rank 1 is the largest.
        lengths, mask: Which entries there are, in lists of unequal length.

    Example:
        >>> softly.rank(torch.tensor([3.0, 1.0, 2.0]), steepness=1000.0)
        tensor([2.9994, 1.0006, 2.0000])
    """
    chosen = get_sorter(sorter, steepness, distribution, "softly.rank")
    return chosen.rank(x, dim=dim, descending=descending, lengths=lengths, mask=mask)


def topk(
    x: Tensor,
    k: int,
    *,
    sorter: str | Sorter = "bitonic",
    steepness: Steepness | None = None,
    distribution: str | Distribution | None = None,
    dim: int = -1,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The rows of the k largest entries, (..., k, n), row 0 that of the largest; see `Sorter.topk`.

    As ``steepness -> inf`` rows are one-hot at ``torch.topk(x, k).indices``; rows sum to 1.

    Args:
        x: (..., n, ...) Values.
        k: How many, in [1, n].
        sorter: A sorting network's name, another sorter's in lower case, or a `Sorter`.
        steepness: Inverse temperature, > 0, or "auto"; by default 10, and 1 for "fastsort".
        distribution: Of a network's swaps, "cauchy" by default.
        dim: The dimension that is searched.
        lengths, mask: Which entries there are, in lists of unequal length.

    Example:
        >>> softly.topk(torch.tensor([1.0, 0.0]), 1, steepness=1.0)
        tensor([[0.7500, 0.2500]])
    """
    chosen = get_sorter(sorter, steepness, distribution, "softly.topk")
    return chosen.topk(x, k, dim=dim, lengths=lengths, mask=mask)
