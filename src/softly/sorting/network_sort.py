"""Differentiable sorting networks: a network of comparators whose swaps are relaxed."""

from __future__ import annotations

import torch
from torch import Tensor

from softly._compiling import constant_result
from softly.distributions import Distribution
from softly.minmax import symmetric
from softly.sorting import network_operators, networks
from softly.sorting.lists import Lists
from softly.sorting.network_reference import LARGEST_TABLE
from softly.sorting.networks import Network
from softly.sorting.sorter import Sorter, Steepness

__all__ = ["SortingNetwork"]


class NetworkSorter(Sorter):
    """What sorting and selection networks share: relaxed comparators, and operators that take any entries."""

    def __init__(self, *, distribution: str | Distribution, steepness: Steepness, straight_through: bool) -> None:
        super().__init__(steepness=steepness, straight_through=straight_through)
        self.distribution = symmetric(distribution, self._name)

    def _key(self, n: int, k: int) -> str:
        """Which network sorts ``n`` values, or selects k of them, as a text that operators can carry."""
        raise AttributeError(f"{type(self).__name__} defines no networks")

    @property
    def monotonic(self) -> bool:
        """That of the distribution: whether its swap is, which heavy tails are needed for."""
        return bool(self.distribution.swap_is_monotonic)

    @property
    def doubly_stochastic(self) -> bool:
        """Always: a relaxed swap is."""
        return True

    def error_bound(self, n: int, *, k: int | None = None) -> float | None:
        """Of values: every layer adds at most ``swap_error / steepness`` of the distribution; None for "auto"."""
        if isinstance(self.steepness, str):
            return None
        steepness = self.steepness.detach().min() if isinstance(self.steepness, Tensor) else self.steepness
        depth = networks.lookup(self._key(n, n if k is None else k)).depth
        return self.distribution.swap_error * depth / float(steepness)

    def _sorted(self, x: Tensor, valid: Tensor | None) -> Tensor:
        return network_operators.values(x, valid, *self._choices(x, valid, x.shape[-1]))

    def _matrix(self, x: Tensor, valid: Tensor | None) -> Tensor:
        return network_operators.matrix(x, valid, *self._choices(x, valid, x.shape[-1]))

    def _log_matrix(self, x: Tensor, valid: Tensor | None) -> Tensor:
        return network_operators.log_matrix(x, valid, *self._choices(x, valid, x.shape[-1]))

    def _ranked(self, x: Tensor, valid: Tensor | None) -> Tensor:
        n = x.shape[-1]
        if valid is None:
            weights = torch.arange(n, 0, -1, dtype=x.dtype, device=x.device).unsqueeze(0)
            return network_operators.rows(x, None, *self._choices(x, None, n), n, weights).squeeze(-2)
        rows = self._top(x, valid, n)
        ranks = valid.sum(-1, keepdim=True) - torch.arange(n, device=x.device)
        return (ranks.to(x.dtype).unsqueeze(-2) @ rows).squeeze(-2)

    def _top(self, x: Tensor, valid: Tensor | None, k: int) -> Tensor:
        return network_operators.rows(x, valid, *self._choices(x, valid, k), k)

    def _log_top(self, x: Tensor, valid: Tensor | None, k: int) -> Tensor:
        return network_operators.log_rows(x, valid, *self._choices(x, valid, k), k)

    def _choices(self, x: Tensor, valid: Tensor | None, k: int) -> tuple[str, Distribution, float | Tensor]:
        lists = self._lists(x, valid) if isinstance(self._current_steepness(), str) else None
        return self._key(x.shape[-1], k), self.distribution, self._dial(x, lists, k)

    def _auto(self, n: int, k: int) -> float:
        return _careful_steepness(self._key(n, k), self.distribution)

    def _auto_by_count(self, lists: Lists, n: int, k: int) -> Tensor:
        key = self._key(n, k)
        if n <= LARGEST_TABLE and networks.has_sizes(key):
            return super()._auto_by_count(lists, n, k)
        # Without a network for every size, only rows of this size are known.
        known = torch.full_like(lists.count, self._auto(n, k), dtype=torch.float64)
        return torch.where(lists.count == n, known, torch.nan)

    def extra_repr(self) -> str:
        return f"{self.network!r}, distribution={self.distribution}, {super().extra_repr()}"


@constant_result
def _careful_steepness(key: str, distribution: Distribution) -> float:
    """Where the error of the network, at unit standard deviation, is at most a tenth."""
    error = distribution.swap_error * networks.lookup(key).depth
    return 10.0 * error if error else 1.0


class SortingNetwork(NetworkSorter):
    """A sorting network with relaxed swaps (chapter 3).

    As ``steepness -> inf`` it sorts like ``torch.sort``; at every steepness ``P`` is doubly stochastic and
    ``P @ x`` equals the values. With "cauchy", "reciprocal" and "optimal" it is monotonic, and the error of a
    value is at most ``swap_error * depth / steepness`` of the distribution and the network.

    Args:
        network: A name of `softly.sorting.networks.names`, or a `Network`, which sorts vectors of its size.
        distribution: Name or `Distribution`, symmetric.
        steepness: Inverse temperature, > 0. "auto" bounds the error of the whole network by a tenth of the
            standard deviation of the values: it grows with the depth and with the inverse of the spread.
        straight_through: Whether values are hard, with soft gradients.

    Example:
        >>> s = softly.SortingNetwork("bitonic", distribution="cauchy", steepness=10.0)
        >>> s.sort(torch.tensor([3.0, 1.0, 2.0]))
        tensor([1.0635, 2.0000, 2.9365])
        >>> s.permutation(torch.tensor([3.0, 1.0, 2.0])).sum(-2).round(decimals=4)
        tensor([1., 1., 1.])
    """

    def __init__(
        self,
        network: str | Network = "bitonic",
        *,
        distribution: str | Distribution = "cauchy",
        steepness: Steepness = 10.0,
        straight_through: bool = False,
    ) -> None:
        super().__init__(distribution=distribution, steepness=steepness, straight_through=straight_through)
        if not isinstance(network, Network) and network not in networks.names():
            choices = ", ".join(networks.names())
            raise ValueError(f"softly.SortingNetwork: unknown network {network!r}; choose from {choices}.")
        if isinstance(network, Network) and network.outputs != tuple(range(network.n - 1, -1, -1)):
            raise ValueError(f"softly.SortingNetwork: network must sort, got {network}; for selection use TopKNetwork.")
        self.network = network

    def _key(self, n: int, k: int) -> str:
        if isinstance(self.network, str):
            return f"{self.network} {n}"
        return networks.resized(_own_key(self.network), n)


@constant_result
def _own_key(network: Network) -> str:
    return network.key
