"""Circuits as AIGER, the format of model checkers and equivalence checkers."""

from __future__ import annotations

from softly.logic.export._source import Source, describe, legend
from softly.logic.netlist import XOR

__all__ = ["to_aiger"]


def to_aiger(circuit: Source, *, binary: bool = False) -> str | bytes:
    """The bits before they are counted, as an and-inverter graph in AIGER's ascii format, or in its binary one.

    It is `softly.logic.Circuit.to_aiger`; an "xor" is three "and", and group j of ``outputs / k`` neighbours is what
    class j counts.

    Example:
        >>> circuit = softly.logic.discretize(softly.logic.LogicNetwork(4, [6], 2, seed=0))
        >>> print(softly.logic.export.to_aiger(circuit).splitlines()[0])
        aag ... 4 0 6 ...
    """
    netlist = circuit.netlist
    literals = [2 * node for node in range(netlist.num_inputs + 1)]
    ands: list[tuple[int, int, int]] = []

    def conjunction(a: int, b: int) -> int:
        result = 2 * (netlist.num_inputs + len(ands) + 1)
        ands.append((result, max(a, b), min(a, b)))
        return result

    for _, kind, first, second in netlist.gates():
        a, b = literals[first >> 1] ^ first & 1, literals[second >> 1] ^ second & 1
        if kind == XOR:
            literals.append(conjunction(conjunction(a, b) ^ 1, conjunction(a ^ 1, b ^ 1) ^ 1))
        else:
            literals.append(conjunction(a, b))
    outputs = netlist.outputs.tolist()
    sizes = f"{netlist.num_inputs + len(ands)} {netlist.num_inputs} 0 {len(outputs)} {len(ands)}"
    ends = [str(literals[literal >> 1] ^ literal & 1) for literal in outputs]
    names = [f"i{i} x{i}" for i in range(netlist.num_inputs)] + [f"o{i} y{i}" for i in range(len(outputs))]
    names += ["c", f"A circuit of logic gates: {describe(circuit)}.", *legend(circuit), ""]
    if binary:
        packed = b"".join(_packed(result - a) + _packed(a - b) for result, a, b in ands)
        return "\n".join((f"aig {sizes}", *ends, "")).encode() + packed + "\n".join(names).encode()
    inputs = [str(2 * i + 2) for i in range(netlist.num_inputs)]
    return "\n".join([f"aag {sizes}", *inputs, *ends, *(f"{result} {a} {b}" for result, a, b in ands), *names])


def _packed(number: int) -> bytes:
    """Seven bits a byte, the lowest first; all but the last one have the eighth bit set."""
    parts = []
    while number >= 128:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes((*parts, number))
