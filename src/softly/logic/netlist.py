"""The hard network as a list of gates, simplified.

As in AIGER files, a *literal* is ``2 * node`` or, negated, ``2 * node + 1``. Node 0 is the constant false, the inputs
follow, then the gates. With negation in the literals, two kinds of gates are enough, "and" and "xor"; whatever is a
constant, a copy, a negation or a gate that is already there, costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np

__all__ = ["AND", "XOR", "Layer", "Netlist", "build"]

AND, XOR = 0, 1

# For every gate of `gates.NAMES`: a constant, one of its inputs, "and" or "xor", with negations of its inputs and of
# its result. "or" is an "and" with all three negated.
_CONSTANT, _FIRST, _SECOND, _AND, _XOR = range(5)
_KIND, _NOT_A, _NOT_B, _NOT = np.array(
    [
        (_CONSTANT, 0, 0, 0),
        (_AND, 0, 0, 0),
        (_AND, 0, 1, 0),
        (_FIRST, 0, 0, 0),
        (_AND, 1, 0, 0),
        (_SECOND, 0, 0, 0),
        (_XOR, 0, 0, 0),
        (_AND, 1, 1, 1),
        (_AND, 1, 1, 0),
        (_XOR, 0, 0, 1),
        (_SECOND, 0, 0, 1),
        (_AND, 1, 0, 1),
        (_FIRST, 0, 0, 1),
        (_AND, 0, 1, 1),
        (_AND, 0, 0, 1),
        (_CONSTANT, 0, 0, 1),
    ],
    dtype=np.int64,
).T


@dataclass(frozen=True)
class Layer:
    """A layer of gates before it was simplified.

    Attributes:
        gates: (width,) Numbers of the gates, as in `softly.logic.gates`.
        wires: (2, width) Inputs, counted in what the layer sees.
        wiring: Name of the wiring and its seed, where that is what the wires are.
        source: The values that the layer sees, of all before it: the inputs and then the gates of every layer, counted
            from 0. None where it sees the layer before, or the first one the inputs.

    Example:
        >>> import numpy as np
        >>> softly.logic.netlist.Layer(np.array([6]), np.array([[0], [1]])).wiring is None
        True
    """

    gates: np.ndarray
    wires: np.ndarray
    _: KW_ONLY
    wiring: tuple[str, int] | None = None
    source: np.ndarray | None = None


@dataclass(frozen=True)
class Netlist:
    """Gates in an order in which every one comes after its inputs.

    Attributes:
        num_inputs: Number of inputs, the nodes 1 to ``num_inputs``.
        kinds: (gates,) `AND` or `XOR`, of the nodes ``num_inputs + 1``, ….
        first, second: (gates,) Literals of the inputs, ``first < second``; those of "xor" are never negated.
        outputs: (outputs,) Literals.
        levels: (gates,) The length of the longest way from an input, from 1.

    Example:
        >>> import numpy as np
        >>> Layer = softly.logic.netlist.Layer
        >>> xor_twice = [Layer(np.array([6]), np.array([[0], [1]])), Layer(np.array([6]), np.array([[0], [0]]))]
        >>> softly.logic.netlist.build(2, xor_twice).outputs  # x xor x is the constant false
        array([0])
    """

    num_inputs: int
    kinds: np.ndarray
    first: np.ndarray
    second: np.ndarray
    outputs: np.ndarray
    levels: np.ndarray

    @property
    def num_gates(self) -> int:
        """How many gates there are."""
        return len(self.kinds)

    @property
    def depth(self) -> int:
        """The longest way from an input to a gate."""
        return int(self.levels.max(initial=0))

    def gates(self) -> Iterator[tuple[int, int, int, int]]:
        """Node, kind and the two literals of every gate."""
        rows = zip(self.kinds.tolist(), self.first.tolist(), self.second.tolist(), strict=True)
        for number, (kind, a, b) in enumerate(rows):
            yield self.num_inputs + 1 + number, kind, a, b

    def spread(self, places: np.ndarray, num_inputs: int) -> Netlist:
        """The same gates on more inputs: input i becomes ``places[i]``, from 0.

        Example:
            >>> import numpy as np
            >>> both = softly.logic.netlist.Layer(np.array([1]), np.array([[0], [1]]))
            >>> netlist = softly.logic.netlist.build(2, [both]).spread(np.array([3, 5]), 6)
            >>> netlist.first, netlist.second, netlist.outputs
            (array([8]), array([12]), array([14]))
        """
        gates = np.arange(self.num_gates) + num_inputs + 1
        return self._renumbered(num_inputs, np.concatenate((np.zeros(1, dtype=np.int64), places + 1, gates)))

    def used(self) -> np.ndarray:
        """The inputs that a gate or an output reads, from 0.

        Example:
            >>> import numpy as np
            >>> both = softly.logic.netlist.Layer(np.array([1]), np.array([[0], [2]]))
            >>> softly.logic.netlist.build(3, [both]).used()
            array([0, 2])
        """
        read = np.zeros(1 + self.num_inputs + self.num_gates, dtype=bool)
        for literals in (self.first, self.second, self.outputs):
            read[literals >> 1] = True
        return np.flatnonzero(read[1 : 1 + self.num_inputs])

    def kept(self, inputs: np.ndarray) -> Netlist:
        """The same gates without the inputs that are not listed, in ascending order; no gate may read those.

        Example:
            >>> import numpy as np
            >>> both = softly.logic.netlist.Layer(np.array([1]), np.array([[0], [2]]))
            >>> netlist = softly.logic.netlist.build(3, [both])
            >>> netlist.kept(netlist.used()).second
            array([4])
        """
        nodes = np.zeros(1 + self.num_inputs + self.num_gates, dtype=np.int64)
        nodes[inputs + 1] = np.arange(len(inputs)) + 1
        nodes[self.num_inputs + 1 :] = np.arange(self.num_gates) + len(inputs) + 1
        return self._renumbered(len(inputs), nodes)

    def _renumbered(self, num_inputs: int, nodes: np.ndarray) -> Netlist:
        first, second, outputs = (
            2 * nodes[literals >> 1] | literals & 1 for literals in (self.first, self.second, self.outputs)
        )
        return Netlist(num_inputs, self.kinds, first, second, outputs, self.levels)


def build(
    num_inputs: int, layers: Sequence[Layer], *, bits: np.ndarray | None = None, outputs: np.ndarray | None = None
) -> Netlist:
    """Simplify layers of gates: constants, copies, negations, equal gates, and what no output needs.

    Args:
        num_inputs: Number of inputs.
        layers: From the first to the last.
        bits: (bits,) Which input each bit is that the layers see; None where these are the inputs.
        outputs: (outputs,) Values, as in `Layer.source`; None for the gates of the last layer.

    Example:
        >>> import numpy as np
        >>> nand_and_and = softly.logic.netlist.Layer(np.array([14, 1]), np.array([[0, 1], [1, 0]]))
        >>> netlist = softly.logic.netlist.build(2, [nand_and_and])
        >>> netlist.num_gates, netlist.outputs
        (1, array([7, 6]))
    """
    gates = _Gates(num_inputs)
    literals = 2 * (1 + (np.arange(num_inputs) if bits is None else bits))
    values = [literals]
    for layer in layers:
        if layer.source is not None:
            literals = np.concatenate(values)[layer.source]
        literals = gates.layer(layer.gates.astype(np.int64), literals[layer.wires[0]], literals[layer.wires[1]])
        values.append(literals)
    return gates.netlist(literals if outputs is None else np.concatenate(values)[outputs])


class _Gates:
    """The gates so far, by layers: those of one have their inputs in the layers before."""

    def __init__(self, num_inputs: int) -> None:
        self.num_inputs = num_inputs
        self.keys: list[np.ndarray] = []  # sorted, per layer: kind, then the two literals
        self.starts: list[int] = []  # the first node of each layer
        self.count = num_inputs + 1

    def layer(self, ids: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Add a layer; the literals of its outputs."""
        kind, a, b, negated = _KIND[ids], a ^ _NOT_A[ids], b ^ _NOT_B[ids], _NOT[ids]
        result = np.where(kind == _FIRST, a, np.where(kind == _SECOND, b, 0))
        low, high = np.minimum(a, b), np.maximum(a, b)

        # "xor" is not interested in which of its inputs is negated.
        xor = kind == _XOR
        negated = np.where(xor, negated ^ (a & 1) ^ (b & 1), negated)
        low, high = np.where(xor, low & ~1, low), np.where(xor, high & ~1, high)

        same, opposite = low == high, low == (high ^ 1)
        # Literal 0 is false, and as the smallest it is `low`; literal 1 is true.
        trivial = np.where(same, low, np.where(opposite | (low == 0), 0, high))
        trivial = np.where(xor, np.where(same, 0, high), trivial)
        gate = np.where(xor, ~same & (low > 0), (kind == _AND) & ~same & ~opposite & (low > 1))
        result = np.where((kind == _AND) | xor, trivial, result)
        result[gate] = self._nodes(xor[gate], low[gate], high[gate])
        return result ^ negated

    def _nodes(self, xor: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """The literals of gates, equal ones being one."""
        keys, inverse = np.unique(xor.astype(np.int64) << 62 | low << 31 | high, return_inverse=True)
        nodes = np.full(len(keys), -1)
        for start, known in zip(self.starts, self.keys, strict=True):
            place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            found = known[place] == keys if len(known) else np.zeros(len(keys), dtype=bool)
            nodes[found] = start + place[found]
        new = nodes < 0
        nodes[new] = self.count + np.arange(new.sum())
        self.starts.append(self.count)
        self.keys.append(keys[new])
        self.count += int(new.sum())
        return 2 * nodes[inverse]

    def netlist(self, outputs: np.ndarray) -> Netlist:
        keys = np.concatenate([*self.keys, np.zeros(0, dtype=np.int64)])
        kinds, first, second = keys >> 62, keys >> 31 & (1 << 31) - 1, keys & (1 << 31) - 1
        base = self.num_inputs + 1

        alive = np.zeros(self.count, dtype=bool)
        alive[outputs >> 1] = True
        spans = list(zip(self.starts, [*self.starts[1:], self.count], strict=False))
        for start, end in reversed(spans):
            used = np.flatnonzero(alive[start:end]) + start - base
            alive[first[used] >> 1] = True
            alive[second[used] >> 1] = True
        alive[:base] = True

        levels = np.zeros(self.count, dtype=np.int64)
        for start, end in spans:
            span = slice(start - base, end - base)
            levels[start:end] = np.maximum(levels[first[span] >> 1], levels[second[span] >> 1]) + 1

        number = np.cumsum(alive) - 1
        kept = np.flatnonzero(alive[base:])
        renumber = lambda literals: 2 * number[literals >> 1] | literals & 1  # noqa: E731
        a, b = renumber(first[kept]), renumber(second[kept])
        return Netlist(self.num_inputs, kinds[kept].astype(np.uint8), a, b, renumber(outputs), levels[base:][kept])
