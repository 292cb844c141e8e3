"""Circuits as BLIF, which synthesis and verification tools read."""

from __future__ import annotations

from softly.logic.export._source import Source, describe, identifier, legend
from softly.logic.netlist import XOR

__all__ = ["to_blif"]


def to_blif(circuit: Source, *, name: str = "circuit") -> str:
    """The bits before they are counted, as a BLIF model with inputs x0, x1, … and outputs y0, y1, ….

    It is `softly.logic.Circuit.to_blif`; group j of ``outputs / k`` neighbours is what class j counts.

    Example:
        >>> circuit = softly.logic.discretize(softly.logic.LogicLayer(2, 1, gates=["implies"], seed=0))
        >>> print(softly.logic.export.to_blif(circuit).rstrip())
        # A circuit of logic gates: 2 bits in, 1 gates of depth 1, 1 bits in 1 groups.
        .model circuit
        .inputs \\
         x0 \\
         x1
        .outputs \\
         y0
        .names x0 x1 n3
        ...
        .names n3 y0
        0 1
        .end
    """
    identifier(name, "softly.logic.Circuit.to_blif")
    netlist = circuit.netlist
    lines = [f"# A circuit of logic gates: {describe(circuit)}.", *(f"# {line}" for line in legend(circuit))]
    lines += [f".model {name}"]
    lines += [".inputs" + "".join(f" \\\n x{i}" for i in range(netlist.num_inputs))]
    lines += [".outputs" + "".join(f" \\\n y{i}" for i in range(len(netlist.outputs)))]

    def signal(literal: int) -> str:
        node = literal >> 1
        return f"x{node - 1}" if node <= netlist.num_inputs else f"n{node}"

    for node, kind, a, b in netlist.gates():
        lines.append(f".names {signal(a)} {signal(b)} n{node}")
        lines += ["01 1", "10 1"] if kind == XOR else [f"{1 - (a & 1)}{1 - (b & 1)} 1"]
    for i, literal in enumerate(netlist.outputs.tolist()):
        if literal > 1:
            lines += [f".names {signal(literal)} y{i}", f"{1 - (literal & 1)} 1"]
        else:
            lines += [f".names y{i}", *(["1"] if literal else [])]
    return "\n".join([*lines, ".end", ""])
