"""Comparisons as files have them: every threshold once, and every ladder of comparisons that columns share.

A ladder is what neighbouring bits ask of one column, as thresholds and kinds; a run of neighbouring columns that all
have one ladder is a first column, a number of columns and the ladder.
"""

from __future__ import annotations

import numpy as np

from softly.logic.execution import Comparisons

__all__ = ["PARTS", "join", "split"]

PARTS = ("thresholds", "ladders", "lengths", "runs")


def split(comparisons: Comparisons) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Different thresholds; rungs of all ladders, ``2 * threshold + kind``; their lengths; and (runs, 3) the runs.

    Example:
        >>> import numpy as np
        >>> columns, thresholds = np.array([0, 0, 1, 1]), np.array([0.25, 0.5, 0.25, 0.5])
        >>> c = softly.logic.execution.Comparisons(2, columns, thresholds, np.zeros(4, dtype=int))
        >>> softly.logic.ladders.split(c)
        (array([0.25, 0.5 ]), array([0, 2]), array([2]), array([[0, 2, 0]]))
    """
    thresholds, places = np.unique(comparisons.thresholds, return_inverse=True)
    rungs = 2 * places + comparisons.kinds
    ladders: dict[bytes, int] = {}
    pieces: list[np.ndarray] = []
    runs: list[list[int]] = []
    starts = np.flatnonzero(np.diff(comparisons.columns, prepend=-1))
    for piece, column in zip(np.split(rungs, starts[1:]), comparisons.columns[starts].tolist(), strict=True):
        ladder = ladders.setdefault(piece.tobytes(), len(ladders))
        if ladder == len(pieces):
            pieces.append(piece)
        if runs and runs[-1][2] == ladder and column == runs[-1][0] + runs[-1][1]:
            runs[-1][1] += 1
        else:
            runs.append([column, 1, ladder])
    return thresholds, np.concatenate(pieces), np.array([len(piece) for piece in pieces]), np.array(runs)


def join(
    num_columns: int, num_bits: int, thresholds: np.ndarray, ladders: np.ndarray, lengths: np.ndarray, runs: np.ndarray
) -> Comparisons:
    """What `split` took apart; a ValueError says why it can't have been that.

    Example:
        >>> import numpy as np
        >>> parts = np.array([0.25, 0.5]), np.array([0, 3]), np.array([2]), np.array([[0, 2, 0]])
        >>> c = softly.logic.ladders.join(2, 4, *parts)
        >>> c.columns, c.thresholds, c.kinds
        (array([0, 0, 1, 1]), array([0.25, 0.5 , 0.25, 0.5 ]), array([0, 1, 0, 1]))
    """
    if lengths.sum() != len(ladders) or (len(lengths) and lengths.min() < 1):
        raise ValueError("'comparisons.lengths' are not those of the ladders.")
    if len(ladders) and ladders.max() >= 2 * len(thresholds):
        raise ValueError("'comparisons.ladders' have thresholds that are not there.")
    if runs.shape[1:] != (3,) or (runs.size and runs[:, 2].max() >= len(lengths)):
        raise ValueError("'comparisons.runs' have ladders that are not there.")
    first, count, ladder = runs.T
    # Before anything is made as large as a file says.
    if sum(a * b for a, b in zip(count.tolist(), lengths[ladder].tolist(), strict=True)) != num_bits:
        raise ValueError(f"comparisons must give {num_bits} bits, and those of the file give another number.")
    which = np.repeat(ladder, count)
    column = np.repeat(first - np.cumsum(count) + count, count) + np.arange(len(which))
    sizes = lengths[which]
    columns = np.repeat(column, sizes)
    within = np.arange(len(columns)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rungs = ladders[np.repeat((np.cumsum(lengths) - lengths)[which], sizes) + within]
    return Comparisons(num_columns, columns, thresholds[rungs >> 1], rungs & 1)
