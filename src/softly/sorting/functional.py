"""Sorting, ranking and selecting in one call."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from softly.distributions import Distribution
from softly.sorting import networks
from softly.sorting.fastsort import FastSort
from softly.sorting.network_sort import SortingNetwork
from softly.sorting.neuralsort import NeuralSort
from softly.sorting.sinkhorn import SinkhornSort
from softly.sorting.softsort import SoftSort
from softly.sorting.sorter import Sorter, Steepness

__all__ = ["permutation", "rank", "sort", "topk", "topk_values"]

_SORTERS: dict[str, type[Sorter]] = {
    "fastsort": FastSort,
    "neuralsort": NeuralSort,
    "sinkhornsort": SinkhornSort,
    "softsort": SoftSort,
}


def get_sorter(
    sorter: str | Sorter,
    steepness: Steepness | None,
    distribution: str | Distribution | None,
    function: str,
    *,
    straight_through: bool = False,
) -> Sorter:
    """A sorter of a name, or the sorter itself, which has its hyperparameters already."""
    if isinstance(sorter, Sorter):
        if steepness is not None or distribution is not None or straight_through:
            raise ValueError(
                f"{function}: a sorter that is an object has its steepness and distribution already, "
                "and so whether it is straight-through."
            )
        return sorter
    if not isinstance(sorter, str):
        raise TypeError(f"{function}: sorter must be a name or a Sorter, got {type(sorter).__name__}.")
    options: dict[str, Any] = {} if steepness is None else {"steepness": steepness}
    if straight_through:
        options["straight_through"] = True
    if sorter in networks.names():
        return SortingNetwork(sorter, distribution="cauchy" if distribution is None else distribution, **options)
    if sorter not in _SORTERS:
        choices = ", ".join((*networks.names(), *_SORTERS))
        raise ValueError(f"{function}: unknown sorter {sorter!r}; choose from {choices}, or give a Sorter.")
    if distribution is not None:
        raise ValueError(f"{function}: only sorting networks have a distribution, {sorter!r} has none.")
    return _SORTERS[sorter](**options)


_NUMBERS, _CHOICES = (float, int, str, type(None)), (str, Distribution, type(None))


@lru_cache(maxsize=64, typed=True)  # True is no steepness, though it equals 1
def _kept(straight_through: bool, *choices: Any) -> Sorter:
    return get_sorter(*choices, straight_through=straight_through)


def _chosen(
    sorter: str | Sorter,
    steepness: Steepness | None,
    distribution: str | Distribution | None,
    straight_through: bool,
    function: str,
) -> Sorter:
    """What `get_sorter` gives, made once for choices that are no tensors: nobody else sees it, so nobody changes it."""
    simple = isinstance(sorter, str) and isinstance(steepness, _NUMBERS) and isinstance(distribution, _CHOICES)
    if simple and not torch.compiler.is_compiling():
        return _kept(straight_through, sorter, steepness, distribution, function)
    return get_sorter(sorter, steepness, distribution, function, straight_through=straight_through)


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
    straight_through: bool = False,
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
        straight_through: Whether values are those of the hard operator, with the gradients of the soft one.

    Example:
        >>> softly.sort(torch.tensor([3.0, 1.0, 2.0]), steepness=1000.0)
        tensor([1.0006, 2.0000, 2.9994])
    """
    chosen = _chosen(sorter, steepness, distribution, straight_through, "softly.sort")
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
    straight_through: bool = False,
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
        straight_through: Whether values are those of the hard operator, with the gradients of the soft one.

    Example:
        >>> softly.permutation(torch.tensor([1.0, 0.0]), steepness=1.0)
        tensor([[0.2500, 0.7500],
                [0.7500, 0.2500]])
    """
    chosen = _chosen(sorter, steepness, distribution, straight_through, "softly.permutation")
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
    straight_through: bool = False,
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
        straight_through: Whether values are those of the hard operator, with the gradients of the soft one.

    Example:
        >>> softly.rank(torch.tensor([3.0, 1.0, 2.0]), steepness=1000.0)
        tensor([2.9994, 1.0006, 2.0000])
    """
    chosen = _chosen(sorter, steepness, distribution, straight_through, "softly.rank")
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
    straight_through: bool = False,
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
        straight_through: Whether values are those of the hard operator, with the gradients of the soft one.

    Example:
        >>> softly.topk(torch.tensor([1.0, 0.0]), 1, steepness=1.0)
        tensor([[0.7500, 0.2500]])
    """
    chosen = _chosen(sorter, steepness, distribution, straight_through, "softly.topk")
    return chosen.topk(x, k, dim=dim, lengths=lengths, mask=mask)


def topk_values(
    x: Tensor,
    k: int,
    *,
    sorter: str | Sorter = "bitonic",
    steepness: Steepness | None = None,
    distribution: str | Distribution | None = None,
    dim: int = -1,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
    straight_through: bool = False,
) -> Tensor:
    """The relaxed values of the k largest entries, from the largest; see `Sorter.topk_values`.

    As ``steepness -> inf`` this is ``torch.topk(x, k, dim).values``; it equals ``topk(x, k) @ x``.

    Args:
        x: (..., n, ...) Values.
        k: How many, in [1, n].
        sorter: A sorting network's name, another sorter's in lower case, or a `Sorter`.
        steepness: Inverse temperature, > 0, or "auto"; by default 10, and 1 for "fastsort".
        distribution: Of a network's swaps, "cauchy" by default.
        dim: The dimension that is searched.
        lengths, mask: Which entries there are, in lists of unequal length.
        straight_through: Whether values are those of the hard operator, with the gradients of the soft one.

    Example:
        >>> softly.topk_values(torch.tensor([3.0, 1.0, 2.0]), 2, steepness=1000.0)
        tensor([2.9994, 2.0000])
    """
    chosen = _chosen(sorter, steepness, distribution, straight_through, "softly.topk_values")
    return chosen.topk_values(x, k, dim=dim, lengths=lengths, mask=mask)
