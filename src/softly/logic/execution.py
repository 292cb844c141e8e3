"""Running a netlist on many examples at once: a bit of a machine word each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from softly.logic.netlist import XOR, Netlist

__all__ = ["Comparisons", "Engine"]

_CHUNK = 4096  # examples at a time where numpy does the work


@dataclass(frozen=True)
class Comparisons:
    """How numbers become bits: bit i is ``x[columns[i]] >= thresholds[i]``, or ``==`` where ``kinds[i]`` is 1.

    Attributes:
        num_columns: Numbers in a row.
        columns, thresholds, kinds: (bits,) As in `softly.logic.Encoding.comparisons`.

    Example:
        >>> import numpy as np
        >>> c = softly.logic.execution.Comparisons(2, np.array([0, 1]), np.array([0.5, 3.0]), np.array([0, 1]))
        >>> c(np.array([[1.0, 3.0], [0.0, 4.0]]))
        array([[ True,  True],
               [False, False]])
    """

    num_columns: int
    columns: np.ndarray
    thresholds: np.ndarray
    kinds: np.ndarray

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """(rows, columns) numbers to (rows, bits) booleans; in double precision, so that nothing is rounded."""
        values = rows[:, self.columns].astype(np.float64, copy=False)
        return np.where(self.kinds == 0, values >= self.thresholds, values == self.thresholds)


class Engine:
    """Counts the outputs that are true, in groups of neighbours.

    Args:
        netlist: What is run.
        k: Number of groups; divides the number of outputs.
        comparisons: How rows of numbers become inputs; None where bits come in, and every number but 0 is true.

    Example:
        >>> import numpy as np
        >>> and_or = softly.logic.netlist.Layer(np.array([1, 7]), np.array([[0, 0], [1, 1]]))
        >>> netlist = softly.logic.netlist.build(2, [and_or])
        >>> softly.logic.execution.Engine(netlist, 1, None).counts(np.array([[0, 0], [0, 1], [1, 1]], dtype=np.uint8))
        array([[0],
               [1],
               [2]], dtype=int32)
    """

    def __init__(self, netlist: Netlist, k: int, comparisons: Comparisons | None) -> None:
        self.netlist, self.k, self.comparisons = netlist, k, comparisons
        base = netlist.num_inputs + 1
        self._steps = []
        for level in range(1, netlist.depth + 1):
            for kind in (0, XOR):
                chosen = np.flatnonzero((netlist.levels == level) & (netlist.kinds == kind))
                if len(chosen):
                    self._steps.append((kind, base + chosen, netlist.first[chosen], netlist.second[chosen]))

    def counts(self, rows: np.ndarray) -> np.ndarray:
        """(rows, inputs) bits or numbers to (rows, k) counts."""
        parts = [self._count(rows[i : i + _CHUNK]) for i in range(0, len(rows), _CHUNK)]
        return np.concatenate([np.zeros((0, self.k), dtype=np.int32), *parts])

    def best(self, rows: np.ndarray) -> np.ndarray:
        """(rows,) The group with the largest count, the lowest one of ties."""
        return self.counts(rows).argmax(-1)

    def _count(self, rows: np.ndarray) -> np.ndarray:
        bits = rows != 0 if self.comparisons is None else self.comparisons(rows)
        packed = np.packbits(bits, axis=0, bitorder="little").T
        words = np.zeros((1 + self.netlist.num_inputs + self.netlist.num_gates, packed.shape[1]), dtype=np.uint8)
        words[1 : 1 + len(packed)] = packed
        for kind, nodes, first, second in self._steps:
            a, b = self._literals(words, first), self._literals(words, second)
            words[nodes] = a ^ b if kind == XOR else a & b
        outputs = np.unpackbits(self._literals(words, self.netlist.outputs), axis=1, count=len(rows), bitorder="little")
        return outputs.reshape(self.k, -1, len(rows)).sum(1, dtype=np.int32).T

    @staticmethod
    def _literals(words: np.ndarray, literals: np.ndarray) -> np.ndarray:
        return words[literals >> 1] ^ (255 * (literals & 1)).astype(np.uint8)[:, None]
