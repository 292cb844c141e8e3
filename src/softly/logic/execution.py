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
_KERNELS = {"B": "u8", "f": "f32", "d": "f64"}  # by what numpy calls a dtype
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

    def merged(self) -> tuple[Comparisons, np.ndarray]:
        """Every comparison once, by column, kind and threshold; and (bits,) which of them a bit is.

        Example:
            >>> import numpy as np
            >>> c = softly.logic.execution.Comparisons(1, np.zeros(3, int), np.array([2.0, 1.0, 2.0]), np.zeros(3, int))
            >>> c.merged()[0].thresholds, c.merged()[1]
            (array([1., 2.]), array([1, 0, 1]))
        """
        order = np.lexsort((self.thresholds, self.kinds, self.columns))
        columns, kinds, thresholds = (part[order] for part in (self.columns, self.kinds, self.thresholds))
        new = np.ones(len(order), dtype=bool)
        new[1:] = (np.diff(columns) != 0) | (np.diff(kinds) != 0) | (thresholds[1:] != thresholds[:-1])
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.cumsum(new) - 1
        return self.take(order[new]), places

    @property
    def sorted(self) -> bool:
        """Whether comparisons come by column, then kind.

        Example:
            >>> import numpy as np
            >>> softly.logic.execution.Comparisons(2, np.array([1, 0]), np.zeros(2), np.zeros(2, dtype=int)).sorted
            False
        """
        return bool((np.diff(2 * self.columns + self.kinds) >= 0).all())

    def take(self, chosen: np.ndarray) -> Comparisons:
        """Some of the comparisons, in that order.

        Example:
            >>> import numpy as np
            >>> c = softly.logic.execution.Comparisons(2, np.array([0, 1]), np.array([0.5, 3.0]), np.array([0, 1]))
            >>> c.take(np.array([1])).thresholds
            array([3.])
        """
        return Comparisons(self.num_columns, self.columns[chosen], self.thresholds[chosen], self.kinds[chosen])

    def thresholds_for(self, dtype: np.dtype) -> np.ndarray:
        """Thresholds with which numbers of a dtype compare as they do with the ones in double precision.

        For ``>=`` that is the next number of that dtype, and for ``==`` NaN where there is no such number. Those of
        bytes are 16-bit, and 256 where no byte is large enough, or equal.

        Example:
            >>> import numpy as np
            >>> c = softly.logic.execution.Comparisons(1, np.zeros(2, int), np.array([0.1, 0.1]), np.array([0, 1]))
            >>> c.thresholds_for(np.dtype(np.float32)), c.thresholds_for(np.dtype(np.uint8))
            (array([0.1, nan], dtype=float32), array([  1, 256], dtype=int16))
        """
        exact, equal = self.thresholds, self.kinds == 1
        if dtype == np.uint8:
            whole = np.ceil(np.clip(exact, 0, 256))
            return np.where(equal & (whole != exact), 256, whole).astype(np.int16)
        with np.errstate(over="ignore"):
            near = exact.astype(dtype)
        above = np.where(near.astype(np.float64) < exact, np.nextafter(near, dtype.type(np.inf)), near)
        return np.where(equal & (near.astype(np.float64) != exact), dtype.type(np.nan), above).astype(dtype)


class Engine:
    """Counts the outputs that are true, in groups of neighbours.

    Args:
        netlist: What is run.
        k: Number of groups; divides the number of outputs.
        comparisons: How rows of numbers become inputs, by columns, ``>=`` before ``==``; None where bits come in, and
            every number but 0 is true.

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
        if comparisons is not None and not comparisons.sorted:
            raise ValueError("softly.logic.execution.Engine: comparisons must come as from Comparisons.merged.")
        self.netlist, self.k, self.comparisons = netlist, k, comparisons
        self._native = native.available()
        self._converted: dict[str, _Memory] = {}

    def counts(self, rows: np.ndarray) -> np.ndarray:
        """(rows, inputs) bits or (rows, columns) numbers to (rows, k) counts."""
        counts = np.empty((len(rows), self.k), dtype=np.int32)
        if not self._run("counts", rows, counts):
            for i in range(0, len(rows), _CHUNK):
                counts[i : i + _CHUNK] = self._count(rows[i : i + _CHUNK])
        return counts

    def best(self, rows: np.ndarray) -> np.ndarray:
        """(rows,) The group with the largest count, the lowest one of ties."""
        best = np.empty(len(rows), dtype=np.int64)
        return best if self._run("best", rows, best) else self.counts(rows).argmax(-1)

    def _run(self, what: str, rows: np.ndarray, result: np.ndarray) -> bool:
        """Whether a kernel could do it."""
        if not self._native:
            return False
        if not (rows.dtype.isnative and rows.flags.aligned):
            rows = rows.astype(rows.dtype.newbyteorder("="))  # kernels see memory alone
        kind = rows.dtype.char
        if kind == "?":
            rows, kind = rows.view(np.uint8), "B"
        if self.comparisons is None or (kind == "B" and self._bytes is not None):
            return self._run_bits(f"logic_{what}", rows, result)
        if kind in _KERNELS:
            return self._run_numbers(f"logic_compared_{what}_{_KERNELS[kind]}", rows, result)
        # Halves are floats, and other numbers doubles, as far as these go: as in the reference.
        wider = np.float32 if kind == "e" else np.float64
        step = max(1, _BYTES // (8 * rows.shape[1]))
        parts = (slice(i, i + step) for i in range(0, len(rows), step))
        return all(self._run(what, rows[part].astype(wider), result[part]) for part in parts)

    def _run_bits(self, kernel: str, rows: np.ndarray, result: np.ndarray) -> bool:
        plan, thresholds = (self._plan, self._ones) if self.comparisons is None else self._bytes or (None, None)
        if plan is None or thresholds is None or not plan.handle:
            return False
        function, threads = native.function(kernel), torch.get_num_threads()
        if rows.dtype == np.uint8:
            return function(plan.handle, _pointer(rows), thresholds.pointer, _pointer(result), len(rows), threads)
        step = max(1, _BYTES // rows.shape[1])
        for i in range(0, len(rows), step):
            bits = rows[i : i + step] != 0
            pointers = (_pointer(bits), thresholds.pointer, _pointer(result[i : i + step]))
            if not function(plan.handle, *pointers, len(bits), threads):
                return False
        return True

    def _run_numbers(self, kernel: str, rows: np.ndarray, result: np.ndarray) -> bool:
        used, thresholds, handle = self._used, self._thresholds(rows.dtype), self._plan.handle
        if not handle:
            return False
        pointers = (_pointer(rows), thresholds.pointer, _pointer(result))
        return native.function(kernel)(
            *(handle, used.pointer, used.length, rows.shape[1], *pointers), len(rows), torch.get_num_threads()
        )

    @cached_property
    def _plan(self) -> _Plan:
        return _Plan(self.netlist, self.k)

    @cached_property
    def _ones(self) -> _Memory:
        return _Memory(np.ones(self.netlist.num_inputs, dtype=np.uint8))

    @cached_property
    def _used(self) -> _Memory:
        """(columns, 4) Every column that is compared, its first comparison, the first for equality, and the end."""
        c = self.comparisons
        assert c is not None
        columns, begin = np.unique(c.columns, return_index=True)
        end = np.append(begin[1:], len(c.columns))
        equal = end - np.add.reduceat(c.kinds.astype(np.int64), begin)
        return _Memory(np.stack((columns, begin, equal, end), 1).astype(np.int64))

    def _thresholds(self, dtype: np.dtype) -> _Memory:
        """What numbers of that dtype are compared with."""
        if (known := self._converted.get(dtype.char)) is None:
            assert self.comparisons is not None
            known = self._converted[dtype.char] = _Memory(self.comparisons.thresholds_for(dtype))
        return known

    @cached_property
    def _bytes(self) -> tuple[_Plan, _Memory] | None:
        """Where no column has two comparisons, and all are ``>=``: a plan whose inputs are the columns themselves."""
        c = self.comparisons
        if c is None or c.kinds.any() or (np.diff(c.columns) == 0).any() or (c.thresholds > 255).any():
            return None
        thresholds = np.ones(c.num_columns, dtype=np.uint8)
        thresholds[c.columns] = c.thresholds_for(np.dtype(np.uint8))
        return _Plan(self.netlist.spread(c.columns, c.num_columns), self.k), _Memory(thresholds)

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


def _pointer(array: np.ndarray) -> int:
    """Where an array is, in a third of the time that ``ctypes.data`` takes."""
    return array.__array_interface__["data"][0]


class _Memory:
    """An array that stays, and where it is."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = np.ascontiguousarray(array)
        self.pointer, self.length = _pointer(self.array), len(array)


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
