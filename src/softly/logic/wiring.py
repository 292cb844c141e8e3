"""Which two inputs a gate has: drawn once, from a seed, and never learned.

The numbers come from Philox, a counter-based generator whose bits are the same on every machine and in every version
of numpy, and become permutations by sorting. So a network is its seeds and four bits a gate.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

__all__ = ["names", "wires"]


class _Stream:
    """Random permutations and bits that depend on the seed alone."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.Philox(key=seed)

    def raw(self, count: int) -> np.ndarray:
        return self._bits.random_raw(count)

    def permutation(self, count: int) -> np.ndarray:
        return np.argsort(self.raw(count), kind="stable")


def _random(in_dim: int, out_dim: int, stream: _Stream) -> np.ndarray:
    slots = 2 * out_dim
    rounds = [stream.permutation(in_dim) for _ in range(-(-slots // in_dim))]
    # The last round may be cut short, all others are whole: every input is used equally often, or once more.
    pairs = np.concatenate(rounds)[:slots][stream.permutation(slots)].reshape(2, out_dim)
    for gate in np.flatnonzero(pairs[0] == pairs[1]):
        # Exchanging an input with a gate that has no part in it keeps every count, and makes no new clash.
        twice = pairs[0, gate]
        while pairs[1, gate] == twice:
            other = int(stream.raw(1)[0]) % out_dim
            if twice not in pairs[:, other]:
                pairs[1, [gate, other]] = pairs[1, [other, gate]]
    return pairs


def _unique(in_dim: int, out_dim: int, stream: _Stream) -> np.ndarray:
    # Inputs on a circle, in random order: the pairs at one distance use every input twice (at half the circle, once).
    # Distance 1 is left for the last pairs, of which any number can be taken evenly, as it is a single cycle.
    circle = stream.permutation(in_dim)
    start = np.arange(in_dim)
    distances = 2 + stream.permutation(max(0, (in_dim - 1) // 2 - 1))[: out_dim // in_dim]
    parts = [np.stack((start, (start + distance) % in_dim)) for distance in distances]
    missing = out_dim - len(parts) * in_dim
    if missing > in_dim:
        across = start[: in_dim // 2]  # every other distance is in use
        parts.append(np.stack((across, across + in_dim // 2)))
        missing -= in_dim // 2
    edges = np.concatenate((start[::2], start[1::2]))[:missing]
    parts.append(np.stack((edges, (edges + 1) % in_dim)))
    pairs = circle[np.concatenate(parts, 1)][:, stream.permutation(out_dim)]
    swapped = (stream.raw(out_dim) & 1).astype(bool)
    return np.where(swapped, pairs[::-1], pairs)


_WIRINGS: dict[str, Callable[[int, int, _Stream], np.ndarray]] = {"random": _random, "unique": _unique}


def names() -> tuple[str, ...]:
    """The names of all wirings.

    Example:
        >>> softly.logic.wiring.names()
        ('random', 'unique')
    """
    return tuple(_WIRINGS)


def wires(name: str, in_dim: int, out_dim: int, seed: int) -> Tensor:
    """Two different inputs for every gate, the same for the same arguments everywhere.

    Every input is used equally often, or once more than another.

    Args:
        name: "random" pairs inputs at random; "unique" gives no two gates the same pair.
        in_dim: Number of inputs, at least 2.
        out_dim: Number of gates; for "unique" at most ``in_dim * (in_dim - 1) / 2``.
        seed: In [0, 2^63).

    Returns:
        (2, out_dim) The first input of every gate, and the second.

    Example:
        >>> softly.logic.wiring.wires("unique", 4, 5, seed=0)
        tensor([[2, 2, 0, 0, 3],
                [1, 3, 1, 2, 1]])
    """
    function = "softly.logic.wiring.wires"
    if name not in _WIRINGS:
        raise ValueError(f"{function}: name must be one of {', '.join(_WIRINGS)}; got {name!r}.")
    if in_dim < 2:
        raise ValueError(f"{function}: in_dim must be at least 2, since gates have two inputs; got {in_dim}.")
    if out_dim < 1:
        raise ValueError(f"{function}: out_dim must be at least 1, got {out_dim}.")
    if not 0 <= seed < 2**63:
        raise ValueError(f"{function}: seed must be in [0, 2^63), got {seed}.")
    most = in_dim * (in_dim - 1) // 2
    if name == "unique" and out_dim > most:
        raise ValueError(f"{function}: {in_dim} inputs have {most} pairs, too few for {out_dim} gates; take 'random'.")
    return torch.from_numpy(_WIRINGS[name](in_dim, out_dim, _Stream(seed)).astype(np.int64))
