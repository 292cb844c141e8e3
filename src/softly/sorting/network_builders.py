"""How sorting networks are built for any number of wires, and the shallowest that are known for a few."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

Layer = tuple[tuple[int, int], ...]


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


BUILDERS: dict[str, Callable[[int], Iterator[np.ndarray]]] = {
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
