"""Sorting networks as wire indices: layers of comparators, without tensors.

A comparator ``(i, j)`` puts the smaller value on wire ``i`` and the larger on wire ``j``; ``i > j`` is
allowed (the arrows of the textbook's bitonic network point both ways). Wires without a partner in a layer
pass through.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np

from softly._cache import bounded

__all__ = ["Network", "get", "names"]

Layer = tuple[tuple[int, int], ...]

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
        return _svg(self, row, _logistic if keep is None else keep, title)

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
    if name not in _BUILDERS:
        choices = ", ".join(map(repr, _BUILDERS))
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
    return tuple(_BUILDERS)


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
    return Network._made(n, list(_BUILDERS[name](n)), f"{name} {n}")


def _nonempty(build: Callable[[int], Iterator[np.ndarray]]) -> Callable[[int], Iterator[np.ndarray]]:
    return lambda n: filter(len, build(n))


def _pairs(i: np.ndarray, j: np.ndarray) -> np.ndarray:
    return np.stack((i, j), -1)


def _odd_even(n: int) -> Iterator[np.ndarray]:
    for layer in range(n):
        first = np.arange(layer % 2, n - 1, 2)
        yield _pairs(first, first + 1)


def _bitonic(n: int) -> Iterator[np.ndarray]:
    power = (n - 1).bit_length()
    first = 2**power - n
    wires = np.arange(first, 2**power)
    for block in range(power):
        for stride in (2**p for p in range(block, -1, -1)):
            low = wires[wires & stride == 0]
            ends = _pairs(low - first, low + stride - first)
            descending = (low >> (block + 1)) & 1 == 1
            yield np.where(descending[:, None], ends[:, ::-1], ends)


def _odd_even_merge(n: int) -> Iterator[np.ndarray]:
    for p in (2**e for e in range((n - 1).bit_length())):  # merges sorted runs of p into runs of 2p
        stride = p
        while stride:
            start = stride % p
            i = np.arange(start, n - stride)
            i = i[((i - start) & stride == 0) & (i // (2 * p) == (i + stride) // (2 * p))]
            yield _pairs(i, i + stride)
            stride //= 2


def _pairwise(n: int) -> Iterator[np.ndarray]:
    power = (n - 1).bit_length()
    for p in (2**e for e in range(power)):  # sort pairs, then pairs of pairs by their first members, ...
        i = np.arange(n - p)
        i = i[i & p == 0]
        yield _pairs(i, i + p)
    for e in range(power - 2, -1, -1):  # ... and merge them back, from the widest spacing to neighbours
        p = 2**e
        for reach in (2**r - 1 for r in range(power - 1 - e, 0, -1)):
            j = np.arange((reach + 1) * p, n)
            j = j[j & p == 0]
            yield _pairs(j - reach * p, j)


def _optimal(n: int) -> Iterator[np.ndarray]:
    # Without their last wire, which keeps a +inf that enters on it, these networks sort one value less.
    known = min((size for size in _SHALLOWEST if size >= n), default=None)
    if known is None:
        sizes = f"1 to {max(_SHALLOWEST)}"
        raise ValueError(
            f"softly.sorting.networks.get: 'optimal' networks are known for n = {sizes}, got {n}; "
            f"'odd_even_merge' and 'pairwise' exist for every n."
        )
    for layer in _SHALLOWEST[known]:
        yield np.array([(i, j) for i, j in layer if j < n]).reshape(-1, 2)


_BUILDERS: dict[str, Callable[[int], Iterator[np.ndarray]]] = {
    "odd_even": _odd_even,
    "bitonic": _bitonic,
    "odd_even_merge": _nonempty(_odd_even_merge),
    "pairwise": _nonempty(_pairwise),
    "optimal": _nonempty(_optimal),
}

_SHALLOWEST: dict[int, tuple[Layer, ...]] = {
    1: (),
    2: (((0, 1),),),
    4: (((0, 2), (1, 3)), ((0, 1), (2, 3)), ((1, 2),)),
    6: (
        ((0, 5), (1, 3), (2, 4)),
        ((1, 2), (3, 4)),
        ((0, 3), (2, 5)),
        ((0, 1), (2, 3), (4, 5)),
        ((1, 2), (3, 4)),
    ),
    8: (
        ((0, 2), (1, 3), (4, 6), (5, 7)),
        ((0, 4), (1, 5), (2, 6), (3, 7)),
        ((0, 1), (2, 3), (4, 5), (6, 7)),
        ((2, 4), (3, 5)),
        ((1, 4), (3, 6)),
        ((1, 2), (3, 4), (5, 6)),
    ),
    10: (
        ((0, 1), (2, 5), (3, 6), (4, 7), (8, 9)),
        ((0, 6), (1, 8), (2, 4), (3, 9), (5, 7)),
        ((0, 2), (1, 3), (4, 5), (6, 8), (7, 9)),
        ((0, 1), (2, 7), (3, 5), (4, 6), (8, 9)),
        ((1, 2), (3, 4), (5, 6), (7, 8)),
        ((1, 3), (2, 4), (5, 7), (6, 8)),
        ((2, 3), (4, 5), (6, 7)),
    ),
    12: (
        ((0, 8), (1, 7), (2, 6), (3, 11), (4, 10), (5, 9)),
        ((0, 2), (1, 4), (3, 5), (6, 8), (7, 10), (9, 11)),
        ((0, 1), (2, 9), (4, 7), (5, 6), (10, 11)),
        ((1, 3), (2, 7), (4, 9), (8, 10)),
        ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)),
        ((1, 2), (3, 5), (6, 8), (9, 10)),
        ((2, 4), (3, 6), (5, 8), (7, 9)),
        ((1, 2), (3, 4), (5, 6), (7, 8), (9, 10)),
    ),
    16: (
        ((0, 5), (1, 4), (2, 12), (3, 13), (6, 7), (8, 9), (10, 15), (11, 14)),
        ((0, 2), (1, 10), (3, 6), (4, 7), (5, 14), (8, 11), (9, 12), (13, 15)),
        ((0, 8), (1, 3), (2, 11), (4, 13), (5, 9), (6, 10), (7, 15), (12, 14)),
        ((0, 1), (2, 4), (3, 8), (5, 6), (7, 12), (9, 10), (11, 13), (14, 15)),
        ((1, 3), (2, 5), (4, 8), (6, 9), (7, 11), (10, 13), (12, 14)),
        ((1, 2), (3, 5), (4, 11), (6, 8), (7, 9), (10, 12), (13, 14)),
        ((2, 3), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13)),
        ((4, 6), (5, 7), (8, 10), (9, 11)),
        ((3, 4), (5, 6), (7, 8), (9, 10), (11, 12)),
    ),
}


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


# The picture ----------------------------------------------------------------------------------------------

_WIRE_GAP = 26  # px between wires
_LANE_GAP = 13  # px between comparators of one layer that would overlap
_LAYER_GAP = 28  # px between layers
_LABEL_WIDTH = 58  # px for a value at either end
_STAY, _TIE, _SWAP = (59, 130, 246), (145, 152, 161), (240, 106, 20)  # legible on white and on black
_STYLE = """
.softly-network line { stroke-width: 2; }
.softly-network .wire { stroke: #9aa4af; stroke-width: 1.2; }
.softly-network .comparator { stroke: #24292f; fill: #24292f; }
.softly-network text { fill: #24292f; font: 12px ui-monospace, Menlo, Consolas, monospace; }
.softly-network .end { text-anchor: end; }
@media (prefers-color-scheme: dark) {
  .softly-network .wire { stroke: #57606a; }
  .softly-network .comparator { stroke: #e6edf3; fill: #e6edf3; }
  .softly-network text { fill: #e6edf3; }
}
"""


def _logistic(difference: float) -> float:
    tail = math.exp(-abs(difference))
    return (1.0 if difference >= 0 else tail) / (1.0 + tail)


def _colour(swap: float) -> str:
    """From blue at 0 (stay) through grey at 1/2 to orange at 1 (swap); grey for NaN."""
    far = 0.0 if math.isnan(swap) else min(1.0, abs(2 * swap - 1))
    end = _SWAP if swap > 0.5 else _STAY
    return "#" + "".join(f"{round(t + far * (e - t)):02x}" for t, e in zip(_TIE, end, strict=True))


def _lanes(layer: Layer) -> list[int]:
    """A lane for every comparator such that those that would overlap are drawn side by side."""
    ends: list[int] = []  # the last wire that is taken in every lane
    lanes = [0] * len(layer)
    for position in sorted(range(len(layer)), key=lambda p: min(layer[p])):
        first, last = min(layer[position]), max(layer[position])
        lane = next((lane for lane, end in enumerate(ends) if end < first), len(ends))
        if lane == len(ends):
            ends.append(last)
        ends[lane] = last
        lanes[position] = lane
    return lanes


def _svg(network: Network, row: list[float] | None, keep: Callable[[float], float], title: str | None) -> str:
    margin = 16 if row is None else _LABEL_WIDTH
    top = 16
    arrows = any(i > j for layer in network.layers for i, j in layer)
    inputs = None if row is None else list(row)
    marks = []
    x = margin + _LAYER_GAP / 2
    for layer in network.layers:
        lanes = _lanes(layer)
        for (i, j), lane in zip(layer, lanes, strict=True):
            attributes, note = 'class="comparator"', ""
            if row is not None:
                difference = row[j] - row[i]
                swap = 1.0 - keep(difference)
                row[i], row[j] = row[i] + swap * difference, row[j] - swap * difference
                colour = _colour(swap)
                attributes = f'stroke="{colour}" fill="{colour}"'
                note = f"<title>({i}, {j}): swap {swap:.3f}</title>"
            shape = _comparator(x + lane * _LANE_GAP, top + i * _WIRE_GAP, top + j * _WIRE_GAP, arrows)
            marks.append(f"<g {attributes}>{note}{shape}</g>")
        x += max(lanes, default=0) * _LANE_GAP + _LAYER_GAP
    right = x - _LAYER_GAP / 2
    bottom = top + (network.n - 1) * _WIRE_GAP

    wires, labels = [], []
    for wire in range(network.n):
        y = top + wire * _WIRE_GAP
        wires.append(f'<line class="wire" x1="{margin}" y1="{y}" x2="{right:g}" y2="{y}"/>')
        if inputs is not None and row is not None:
            labels.append(f'<text class="end" x="{margin - 6}" y="{y + 4}">{inputs[wire]:.3g}</text>')
            labels.append(f'<text x="{right + 6:g}" y="{y + 4}">{row[wire]:.3g}</text>')
    if row is not None:
        bottom += 34
        labels.append(_legend((margin + right) / 2, bottom))
    width, height = right + margin, bottom + 16
    heading = _escape(title or f"{network.name} network: {network.n} wires, {network.depth} layers")
    body = "\n".join([*wires, *marks, *labels])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="softly-network" role="img" width="{width:g}" '
        f'height="{height:g}" viewBox="0 0 {width:g} {height:g}">\n'
        f"<title>{heading}</title>\n<style>{_STYLE}</style>\n{body}\n</svg>\n"
    )


def _comparator(x: float, low: float, high: float, arrow: bool) -> str:
    """A line from the wire of the smaller value to that of the larger, where a dot or an arrow head is."""
    down = 1 if high > low else -1
    line = f'<line x1="{x:g}" y1="{low}" x2="{x:g}" y2="{high - (6 * down if arrow else 0)}"/>'
    dot = f'<circle cx="{x:g}" cy="{low}" r="3" stroke="none"/>'
    if arrow:
        head = f'<path d="M{x:g} {high}l-4.5 {-9 * down}h9z" stroke="none"/>'
    else:
        head = f'<circle cx="{x:g}" cy="{high}" r="3" stroke="none"/>'
    return line + dot + head


def _legend(centre: float, y: float) -> str:
    swatches = "".join(
        f'<rect x="{centre - 44 + 8 * k:g}" y="{y - 9:g}" width="8" height="8" fill="{_colour(k / 10)}"/>'
        for k in range(11)
    )
    return (
        f'<text class="end" x="{centre - 52:g}" y="{y:g}">stay</text>{swatches}'
        f'<text x="{centre + 52:g}" y="{y:g}">swap</text>'
    )


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
