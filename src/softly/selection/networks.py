"""Selection networks as wire indices: comparators that find the k largest of n values, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from softly._cache import bounded
from softly.sorting import networks as sorting
from softly.sorting.networks import Network

__all__ = ["SelectionNetwork", "get", "names"]


class SelectionNetwork(Network):
    """A comparator network that puts the largest values onto the wires ``outputs``.

    Args:
        n: Number of wires.
        layers: Layers of comparators ``(i, j)``, which put the smaller value onto ``i``.
        name: What the network is called.
        outputs: The wires of the k largest values, from the largest.

    Example:
        >>> network = softly.selection.networks.get("splitter", n=1024, k=5)
        >>> network.depth, network.size, len(network.outputs)
        (22, 5273, 5)
    """

    _outputs: tuple[int, ...]

    def __init__(self, n: int, layers: Sequence[Any], *, name: str = "custom", outputs: tuple[int, ...] = ()) -> None:
        super().__init__(n, layers, name=name)
        self.__dict__["_outputs"] = tuple(outputs)

    @property
    def outputs(self) -> tuple[int, ...]:
        """The wires of the k largest values, from the largest."""
        return self._outputs

    @property
    def k(self) -> int:
        """How many values are selected."""
        return len(self.outputs)

    def selects(self, *, patterns: int = 4096, seed: int = 0) -> bool:
        """Whether the network selects, by the 0-1 principle: exhaustively for n <= 16, by random patterns above.

        Example:
            >>> softly.selection.networks.get("splitter", n=12, k=3).selects()
            True
        """
        row = sorting.zero_one_patterns(self.n, patterns, seed)
        # Bit p of counts[c] tells whether pattern p has more than c ones, up to k.
        counts = [0] * self.k
        for wire in row:
            for c in range(self.k - 1, 0, -1):
                counts[c] |= counts[c - 1] & wire
            counts[0] |= wire
        for i, j in self.wires.reshape(-1, 2).tolist():
            row[i], row[j] = row[i] & row[j], row[i] | row[j]
        return all(row[wire] == count for wire, count in zip(self.outputs, counts, strict=True))


def names() -> tuple[str, ...]:
    """The names that `get` knows.

    Example:
        >>> softly.selection.networks.names()[:2]
        ('splitter', 'odd_even')
    """
    return ("splitter", *sorting.names())


def get(name: str, n: int, k: int) -> SelectionNetwork:
    """The network ``name`` that selects the k largest of n values.

    - ``splitter``: splitter selection networks (chapter 4), with O(log n) layers for a fixed k.
    - a sorting network's name: that network without the comparators that cannot reach its last k wires.

    Args:
        name: One of `names()`.
        n: Number of wires, >= 1.
        k: Number of values that are selected, in [1, n].

    Returns:
        A `SelectionNetwork`; the same object for the same arguments.

    Example:
        >>> softly.selection.networks.get("bitonic", n=1024, k=5).depth
        55
    """
    if name not in names():
        raise ValueError(f"softly.selection.networks.get: unknown network {name!r}; choose from {', '.join(names())}.")
    if not 1 <= k <= n:
        raise ValueError(f"softly.selection.networks.get: k must be in [1, n] = [1, {n}], got {k}.")
    return _build(name, n, k)


sorting.register(names(), get)


@bounded(64 << 20, size=lambda network: network.nbytes)
def _build(name: str, n: int, k: int) -> SelectionNetwork:
    if name == "splitter":
        layers, outputs = _splitter(n, k)
    else:
        outputs = tuple(range(n - 1, n - 1 - k, -1))
        layers = _reaching(sorting.get(name, n), outputs)
    return SelectionNetwork._made(n, layers, f"{name} {n} {k}", _outputs=outputs)


def _reaching(network: Network, outputs: tuple[int, ...]) -> list[np.ndarray]:
    """The comparators that can reach an output, layer by layer."""
    live = np.zeros(network.n, dtype=bool)
    live[list(outputs)] = True
    kept = []
    for layer in reversed(np.split(network.wires.reshape(-1, 2), network.offsets[1:-1])):
        needed = layer[live[layer].any(-1)]
        live[needed] = True
        kept.append(needed)
    return [layer for layer in reversed(kept) if len(layer)]


def _splitter(n: int, k: int) -> tuple[list[np.ndarray], tuple[int, ...]]:
    """The layers and the outputs.

    Every wire knows a lower bound of its rank: of how many wires hold larger values for certain. A cascade over wires
    with equal bounds finds their largest and raises the bounds of the others; wires whose bound reaches k are out.
    Cascades that don't share wires run in the same layers. In the end, one wire is left for each bound below k, and
    the bound is its rank.
    """
    bound, free = [0] * n, [0] * n
    members: list[list[int]] = [list(range(n)), *([] for _ in range(k - 1))]  # by bound, in order of the wires
    layers: list[list[tuple[int, int]]] = []
    sweep, added = 0, True
    while added:
        added = False
        for r in range(k - 1, sweep - 1, -1):
            chosen = members[r]
            if len(chosen) < 2:
                continue
            added = True
            start = max(free[wire] for wire in chosen)
            depth = (len(chosen) - 1).bit_length()
            while len(layers) < start + depth:
                layers.append([])
            for level in range(depth):
                stride = 1 << (depth - 1 - level)
                layers[start + level].extend(
                    (chosen[j + stride], chosen[j]) for j in range(len(chosen) - stride) if not j & stride
                )
            touched = {r}
            for j, wire in enumerate(chosen):
                free[wire] = start + depth
                bound[wire] += (1 << j.bit_count()) - 1
                if r < bound[wire] < k:
                    members[bound[wire]].append(wire)
                    touched.add(bound[wire])
            members[r] = [wire for wire in chosen if bound[wire] == r]
            for b in touched:
                members[b].sort()
        sweep += 1
    return [np.array(layer).reshape(-1, 2) for layer in layers], tuple(wires[0] for wires in members)
