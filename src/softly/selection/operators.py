"""Differentiable top-k networks: selection networks whose swaps are relaxed."""

from __future__ import annotations

from torch import Tensor

from softly.distributions import Distribution
from softly.selection import networks
from softly.sorting.network_sort import NetworkSorter
from softly.sorting.sorter import Steepness

__all__ = ["TopKNetwork"]


class TopKNetwork(NetworkSorter):
    """A selection network with relaxed swaps (chapter 4): the rows of the k largest, at O(n k log n).

    As ``steepness -> inf`` rows are one-hot at ``torch.topk(x, k).indices``; at every steepness they sum to 1, and
    no column sums to more. A splitter network has 22 layers for n = 1024 and k = 5, where sorting has 55: it blurs
    less, and costs less. Only `topk` is there; for whole permutations use `SortingNetwork`.

    Args:
        network: A name of `softly.selection.networks.names`.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0. "auto" bounds the error of the whole network by a tenth of the
            standard deviation of the values.
        straight_through: Whether values are hard, with soft gradients.

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
        straight_through: bool = False,
    ) -> None:
        super().__init__(distribution=distribution, steepness=steepness, straight_through=straight_through)
        if network not in networks.names():
            choices = ", ".join(networks.names())
            raise ValueError(f"softly.TopKNetwork: unknown network {network!r}; choose from {choices}.")
        self.network = network

    def _key(self, n: int, k: int) -> str:
        return f"{self.network} {n} {k}"

    def _matrix(self, x: Tensor, valid: Tensor | None) -> Tensor:
        raise TypeError(
            "softly.TopKNetwork: it selects without sorting; for sort, permutation and rank use SortingNetwork."
        )

    _sorted = _ranked = _log_matrix = _matrix
