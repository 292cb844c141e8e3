"""Sorting networks as wire indices: layers of comparators, without tensors.

A comparator ``(i, j)`` puts the smaller value on wire ``i`` and the larger on wire ``j``; ``i > j`` is
allowed (the arrows of the textbook's bitonic network point both ways). Wires without a partner in a layer
pass through.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np

from softly._cache import bounded
from softly.sorting import network_drawing
from softly.sorting.network_builders import BUILDERS, Layer

__all__ = ["Network", "get", "names"]

_CUSTOM = "custom"
_BUDGET = 64 << 20  # of the comparators that are kept

EXHAUSTIVE_WIRES = 16  # 2^16 patterns are 8 kB a wire; every further wire doubles that


class Network:
    """A comparator network on ``n`` wires.

    ``network.layers[l]`` holds the comparators ``(i, j)`` of layer ``l``; no wire appears twice in a layer.

    Args:
        n: Number of wires, >= 1.
        layers: Layers of ``(i, j)`` pairs, in the order in which they are applied.
        name: What the network is called in pictures and representations.

    Example:
        >>> softly.sorting.networks.get("odd_even", 3).layers
        (((0, 1),), ((1, 2),), ((0, 1),))
    """

    def __init__(self, n: int, layers: Sequence[Any], *, name: str = "custom") -> None:
        if n < 1:
            raise ValueError(f"softly.sorting.networks.Network: n must be >= 1, got {n}.")
        pairs = [np.array([(i, j) for i, j in layer], dtype=np.int64).reshape(-1, 2) for layer in layers]
        for position, layer in enumerate(pairs):
            if layer.size and (layer.min() < 0 or layer.max() >= n):
                raise ValueError(
                    f"softly.sorting.networks.Network: layer {position} must use wires in [0, {n - 1}], "
                    f"got {layer.min()} to {layer.max()}."
                )
            if np.unique(layer).size != layer.size:
                raise ValueError(
                    f"softly.sorting.networks.Network: layer {position} must use a wire at most once, "
                    f"got {tuple(map(tuple, layer.tolist()))}."
                )
        self._set(n, pairs, name, None)

    @classmethod
    def _made(cls, n: int, layers: Sequence[np.ndarray], key: str, **more: Any) -> Self:
        """A network of arrays of pairs, which are right, under the key by which `lookup` makes it again."""
        network = cls.__new__(cls)
        network._set(n, layers, key.split()[0], key, **more)
        return network

    def _set(self, n: int, layers: Sequence[np.ndarray], name: str, key: str | None, **more: Any) -> None:
        wires = np.concatenate([np.empty((0, 2), np.int32), *layers]).astype(np.int32).ravel()
        offsets = np.cumsum([0, *map(len, layers)], dtype=np.int32)
        for array in (wires, offsets):
            array.flags.writeable = False
        self.__dict__.update(n=n, name=name, wires=wires, offsets=offsets, _key=key, **more)

    _key: str | None
    n: int
    """Number of wires."""
    name: str
    """What the network is called."""
    wires: np.ndarray
    """All comparators, flat: ``i, j`` of the first, ``i, j`` of the second, ... as 32-bit integers."""
    offsets: np.ndarray
    """Where layers begin among the comparators, ``depth + 1`` 32-bit integers from 0 to ``size``."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a network can't be changed, and {name} can't be set")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Network) and self._identity == other._identity

    def __hash__(self) -> int:
        # Networks are keys of caches; hashing every comparator of a deep one would cost more than a sort.
        return hash((self.n, self.depth, self.size, self.name))

    @property
    def _identity(self) -> tuple[Any, ...]:
        return self.n, self.name, self.outputs, self.offsets.tobytes(), self.wires.tobytes()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, n={self.n}, depth={self.depth}, size={self.size})"

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """The layers of comparators, as Python's own tuples."""
        pairs = list(map(tuple, self.wires.reshape(-1, 2).tolist()))
        return tuple(tuple(pairs[begin:end]) for begin, end in pairwise(self.offsets.tolist()))

    @cached_property
    def key(self) -> str:
        """The network as a text from which `lookup` makes it again, in any process."""
        if self._key is not None:
            return self._key
        layers = ";".join(",".join(f"{i}-{j}" for i, j in layer) for layer in self.layers)
        return f"{_CUSTOM} {self.n} {','.join(map(str, self.outputs))} {layers}".rstrip()

    @property
    def depth(self) -> int:
        """Number of layers."""
        return len(self.offsets) - 1

    @property
    def size(self) -> int:
        """Number of comparators."""
        return len(self.wires) // 2

    @property
    def nbytes(self) -> int:
        """The memory that the comparators take."""
        return self.wires.nbytes + self.offsets.nbytes

    @property
    def outputs(self) -> tuple[int, ...]:
        """The wires of the results, from the largest."""
        return tuple(range(self.n - 1, -1, -1))

    def apply(self, values: Sequence[Any]) -> list[Any]:
        """Run the hard network on a sequence of ``n`` values that can be ordered by ``<``.

        Example:
            >>> softly.sorting.networks.get("bitonic", 5).apply([3, 1, 2, 5, 4])
            [1, 2, 3, 4, 5]
        """
        row = self._row("apply", values)
        for i, j in self.wires.reshape(-1, 2).tolist():
            if row[j] < row[i]:
                row[i], row[j] = row[j], row[i]
        return row

    def sorts(self, *, patterns: int = 4096, seed: int = 0) -> bool:
        """Whether the network sorts, by the 0-1 principle: it does iff it sorts every pattern of 0 and 1.

        Exhaustive, and therefore a proof, for ``n <= 16``; above that, descending and random ones are tried.

        Args:
            patterns: Number of random patterns for ``n > 16``, >= 1.
            seed: Seed of the random patterns.
        """
        row = zero_one_patterns(self.n, patterns, seed)
        for i, j in self.wires.reshape(-1, 2).tolist():
            row[i], row[j] = row[i] & row[j], row[i] | row[j]
        return not any(low & ~high for low, high in pairwise(row))

    def draw(
        self,
        values: Sequence[float] | None = None,
        *,
        keep: Callable[[float], float] | None = None,
        title: str | None = None,
    ) -> str:
        """Draw the network as an SVG: wires from left to right, comparators across them.

        With ``values`` the relaxed network runs on them: a comparator's colour is its swap weight, and the
        numbers at both ends are the values that go in and that come out. Dots mark comparators whose smaller
        output is the upper wire throughout; in networks that mix directions, arrows point to the wire of the
        larger value.

        Args:
            values: ``n`` numbers, or None for the plain network.
            keep: Maps the difference ``y_j - y_i`` to the probability that the two stay where they are, e.g.
                ``lambda d: float(distribution.cdf(torch.tensor(steepness * d)))``; None is logistic.
            title: Text for screen readers and tooltips; None describes the network.

        Returns:
            A self-contained SVG document that follows the reader's light or dark colour scheme.
        """
        if keep is not None and values is None:
            raise ValueError("softly.sorting.networks.Network.draw: keep needs values, got values=None.")
        row = None if values is None else [float(value) for value in self._row("draw", values)]
        heading = title or f"{self.name} network: {self.n} wires, {self.depth} layers"
        return network_drawing.svg(self.n, self.layers, row, keep, heading)

    def _row(self, method: str, values: Sequence[Any]) -> list[Any]:
        row = list(values)
        if len(row) != self.n:
            raise ValueError(
                f"softly.sorting.networks.Network.{method}: values must have length {self.n}, got {len(row)}."
            )
        return row


def get(name: str, n: int) -> Network:
    """The sorting network ``name`` on ``n`` wires.

    - ``odd_even``: neighbours, alternately from the first and the second wire; n layers.
    - ``bitonic``: Batcher's, with its arrows in both directions; k(k+1)/2 layers at n = 2^k. Between the
      powers of two it is the next power's network without its first wires: the missing ones act as -inf in
      ascending blocks and as +inf in descending ones, where no comparator would have moved them.
    - ``odd_even_merge``: Batcher's merge exchange; as deep as bitonic with fewer comparators.
    - ``pairwise``: Parberry's pairwise network; as deep and as large as ``odd_even_merge`` at powers of two.
    - ``optimal``: the least depth there is, for n <= 16. The networks are those of B. Dobbelaere's "List of
      smallest and fastest known sorting networks" for n = 4, 6, 8, 10, 12, 16, the others are these without
      their last wires. That no shallower ones exist was proven by Knuth (n <= 8; The Art of Computer
      Programming, vol. 3), Parberry (n = 9, 10; 1989) and Bundala and Závodný (n = 11 to 16; 2014).

    Args:
        name: One of `names()`.
        n: Number of wires, >= 1.

    Returns:
        A `Network`; the same object for the same arguments.

    Example:
        >>> softly.sorting.networks.get("bitonic", 1024).depth
        55
    """
    if name not in BUILDERS:
        choices = ", ".join(map(repr, BUILDERS))
        raise ValueError(f"softly.sorting.networks.get: name must be one of {choices}, got {name!r}.")
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError(f"softly.sorting.networks.get: n must be an integer, got {n!r}.") from None
    if n < 1:
        raise ValueError(f"softly.sorting.networks.get: n must be >= 1, got {n}.")
    return _build(name, n)


def names() -> tuple[str, ...]:
    """The names that `get` knows.

    Example:
        >>> softly.sorting.networks.names()
        ('odd_even', 'bitonic', 'odd_even_merge', 'pairwise', 'optimal')
    """
    return tuple(BUILDERS)


def lookup(key: str) -> Network:
    """The network of a key, `Network.key`: a family and its size, or all comparators of one that has no family."""
    try:
        name, n, *rest = key.split(" ", 3)
        if name == _CUSTOM:
            return _parsed(key)
        if not rest:
            return get(name, int(n))
        (k,) = rest
        return _families[name](name, int(n), int(k))
    except (ValueError, KeyError) as error:
        raise ValueError(f"softly.sorting.networks: no network has the key {key[:80]!r}: {error}.") from None


def resized(key: str, n: int) -> str:
    """The key of the network that does the same for ``n`` wires; a network without a family has only one size."""
    name, wires, *rest = key.split(" ", 2)
    if int(wires) == n:
        return key
    if not has_sizes(key):
        raise ValueError(f"softly.SortingNetwork: the network has {wires} wires, got {n} values.")
    return " ".join((name, str(n), *(str(min(int(k), n)) for k in rest)))


def has_sizes(key: str) -> bool:
    """Whether there is a network like it for other numbers of wires."""
    return not key.startswith(f"{_CUSTOM} ")


# What has keys of three parts, "splitter 16 3", is made elsewhere.
_families: dict[str, Callable[[str, int, int], Network]] = {}


def register(names: Sequence[str], get: Callable[[str, int, int], Network]) -> None:
    """Let `lookup` find networks of a name, a number of wires and a number of outputs."""
    _families.update(dict.fromkeys(names, get))


@bounded(_BUDGET, size=lambda network: network.nbytes)
def _parsed(key: str) -> Network:
    _, n, outputs, *layers = key.split(" ")
    pairs = [
        [tuple(map(int, pair.split("-"))) for pair in layer.split(",") if pair]
        for layer in (layers[0].split(";") if layers else [])
    ]
    network = Network(int(n), pairs)
    if tuple(map(int, outputs.split(","))) != network.outputs:
        raise ValueError("its outputs are not those of a sorting network")
    return network


@bounded(_BUDGET, size=lambda network: network.nbytes)
def _build(name: str, n: int) -> Network:
    return Network._made(n, list(BUILDERS[name](n)), f"{name} {n}")


# 0-1 patterns, a bit for each: an integer holds what all patterns have on one wire ------------------------


def zero_one_patterns(n: int, patterns: int, seed: int) -> list[int]:
    """For each wire, what all patterns have on it: every pattern where n is small, else random ones."""
    return _every_pattern(n) if n <= EXHAUSTIVE_WIRES else _random_patterns(n, patterns, seed)


def _every_pattern(n: int) -> list[int]:
    ones = (1 << 2**n) - 1
    return [ones // ((1 << 2**i) + 1) for i in range(n)]  # 2^i ones, 2^i zeros, 2^i ones, ...


def _random_patterns(n: int, patterns: int, seed: int) -> list[int]:
    """Random patterns of every density, as fair coins alone would hardly ever have few ones or few zeros, and
    those that are in descending order, the farthest from sorted.
    """
    if patterns < 1:
        raise ValueError(f"softly.sorting.networks.Network.sorts: patterns must be >= 1, got {patterns}.")
    generator = random.Random(seed)
    # Pattern t has ones with the probability of its density, a binary fraction built from its lowest bit:
    # p <- p/2 (and with a coin) where the bit is 0, p <- (1 + p)/2 (or with a coin) where it is 1.
    densities = [generator.getrandbits(patterns) for _ in range(8)]
    row = []
    for i in range(n):
        wire = generator.getrandbits(patterns)
        for density in densities:
            coin = generator.getrandbits(patterns)
            wire = (wire & coin) | ((wire | coin) & density)
        descending = (1 << n) - (1 << i)  # pattern k has ones on wires 0 to k
        row.append(wire | descending << patterns)
    return row
