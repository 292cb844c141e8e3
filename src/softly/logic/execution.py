"""Running a netlist on many examples at once: a bit of a machine word each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from softly import native
from softly.logic.netlist import XOR, Netlist

__all__ = ["Comparisons", "Engine"]

_CHUNK = 1 << 12  # examples at a time where numpy does the work
_BYTES = 1 << 26  # of examples whose bits numpy prepares for the kernel, at a time


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
        self._plan = _Plan(netlist, k) if native.available() else None
        self._thresholds = np.ones(netlist.num_inputs, dtype=np.uint8)

    def counts(self, rows: np.ndarray) -> np.ndarray:
        """(rows, inputs) bits or numbers to (rows, k) counts."""
        counts = np.empty((len(rows), self.k), dtype=np.int32)
        if not self._run("logic_counts", rows, counts):
            for i in range(0, len(rows), _CHUNK):
                counts[i : i + _CHUNK] = self._count(rows[i : i + _CHUNK])
        return counts

    def best(self, rows: np.ndarray) -> np.ndarray:
        """(rows,) The group with the largest count, the lowest one of ties."""
        best = np.empty(len(rows), dtype=np.int64)
        return best if self._run("logic_best", rows, best) else self.counts(rows).argmax(-1)

    def _run(self, kernel: str, rows: np.ndarray, result: np.ndarray) -> bool:
        """Whether the kernel could do it."""
        if self._plan is None or not self._plan.handle:
            return False
        function = native.function(kernel)
        threads = torch.get_num_threads()
        if rows.dtype in (np.uint8, np.bool_):
            thresholds = self._thresholds if self.comparisons is None else self._byte_thresholds
            if thresholds is not None:
                pointers = (rows.ctypes.data, thresholds.ctypes.data, result.ctypes.data)
                return function(self._plan.handle, *pointers, len(rows), threads)
        step = max(1, _BYTES // self.netlist.num_inputs)
        for i in range(0, len(rows), step):
            bits = np.ascontiguousarray(self._bits(rows[i : i + step]))
            pointers = (bits.ctypes.data, self._thresholds.ctypes.data, result[i : i + step].ctypes.data)
            if not function(self._plan.handle, *pointers, len(bits), threads):
                return False
        return True

    @cached_property
    def _byte_thresholds(self) -> np.ndarray | None:
        """What bytes are compared with, where every bit is a column of its own and compares with ``>=``."""
        c = self.comparisons
        if c is None or c.num_columns != len(c.columns) or (c.columns != np.arange(len(c.columns))).any():
            return None
        if c.kinds.any() or not (c.thresholds <= 255).all():
            return None
        return np.ceil(np.maximum(c.thresholds, 0)).astype(np.uint8)

    def _bits(self, rows: np.ndarray) -> np.ndarray:
        return rows != 0 if self.comparisons is None else self.comparisons(rows)

    @cached_property
    def _steps(self) -> list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
        """Kind, nodes and literals of gates that can run at once."""
        netlist, steps = self.netlist, []
        for level in range(1, netlist.depth + 1):
            for kind in (0, XOR):
                chosen = np.flatnonzero((netlist.levels == level) & (netlist.kinds == kind))
                if len(chosen):
                    nodes = netlist.num_inputs + 1 + chosen
                    steps.append((kind, nodes, netlist.first[chosen], netlist.second[chosen]))
        return steps

    def _count(self, rows: np.ndarray) -> np.ndarray:
        packed = np.packbits(self._bits(rows), axis=0, bitorder="little").T
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


class _Plan:
    """A netlist as the kernels want it, freed with this object; its handle is 0 if it is too large for them."""

    def __init__(self, netlist: Netlist, k: int) -> None:
        self._destroy = native.function("logic_plan_destroy")
        arrays = [np.ascontiguousarray(netlist.kinds, dtype=np.uint8)]
        for part in (netlist.first, netlist.second, netlist.levels, netlist.outputs):
            arrays.append(np.ascontiguousarray(part, dtype=np.int64))
        pointers = (array.ctypes.data for array in arrays)
        self.handle = native.function("logic_plan")(
            netlist.num_inputs, netlist.num_gates, *pointers, len(netlist.outputs), k
        )

    def __del__(self) -> None:
        if getattr(self, "handle", 0):
            self._destroy(self.handle)
