"""Differentiable top-k networks: selection networks whose swaps are relaxed."""

from __future__ import annotations

from torch import Tensor

from softly._compiling import constant_result
from softly.distributions import Distribution
from softly.minmax import symmetric
from softly.selection import networks
from softly.sorting.network_sort import careful_steepness, register, rows
from softly.sorting.sorter import Sorter, Steepness

__all__ = ["TopKNetwork"]


class TopKNetwork(Sorter):
    """A selection network with relaxed swaps (chapter 4): the rows of the k largest, at O(n k log n).

    As ``steepness -> inf`` rows are one-hot at ``torch.topk(x, k).indices``; at every steepness they sum to 1, and
    no column sums to more. A splitter network has 22 layers for n = 1024 and k = 5, where sorting has 55: it blurs
    less, and costs less. Only `topk` is there; for whole permutations use `SortingNetwork`.

    Args:
        network: A name of `softly.selection.networks.names`.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0. "auto" bounds the error of the whole network by a tenth of the
            standard deviation of the values.

    Example:
        >>> softly.TopKNetwork(steepness=10.0).topk(torch.tensor([3.0, 1.0, 2.0]), 1)
        tensor([[0.9526, 0.0162, 0.0312]])
    """

    def __init__(
        self,
        network: str = "splitter",
        *,
        distribution: str | Distribution = "cauchy",
        steepness: Steepness = 10.0,
    ) -> None:
        super().__init__(steepness=steepness)
        if network not in networks.names():
            choices = ", ".join(networks.names())
            raise ValueError(f"softly.TopKNetwork: unknown network {network!r}; choose from {choices}.")
        self.network = network
        self.distribution = symmetric(distribution, "softly.TopKNetwork")

    def _topk(self, x: Tensor, steepness: float | Tensor, k: int) -> Tensor:
        return rows(x, _key(self.network, x.shape[-1], k), self.distribution, steepness, k)

    def _auto(self, n: int, k: int) -> float:
        return careful_steepness(_key(self.network, n, k), self.distribution)

    def _permutation(self, x: Tensor, steepness: float | Tensor) -> Tensor:
        raise TypeError(
            "softly.TopKNetwork: it selects without sorting; for sort, permutation and rank use SortingNetwork."
        )

    def extra_repr(self) -> str:
        return f"{self.network!r}, distribution={self.distribution}, {super().extra_repr()}"


@constant_result
def _key(network: str, n: int, k: int) -> str:
    return register(networks.get(network, n, k))
