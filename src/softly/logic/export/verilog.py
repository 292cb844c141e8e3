"""Circuits as Verilog-2001: the gates, and the adders and comparators that make classes of them."""

from __future__ import annotations

import re
from collections import defaultdict

from softly.logic.export import _fixed_point as fixed_point
from softly.logic.export._source import Source, describe, identifier, legend, num_columns, score
from softly.logic.export._verilog_module import KEYWORDS, Module, declared
from softly.logic.netlist import XOR

__all__ = ["to_verilog"]

_INSIDE = re.compile(r"x|y|clk|row|counts|index|gates|bits|LATENCY|[bcimns]\d+(_\d+)*")


def to_verilog(
    circuit: Source, *, pipeline: int = 0, name: str = "circuit", fixed: tuple[int, int] | None = None
) -> str:
    """Two modules: the gates, and around them the counts of all groups and the class with the largest.

    It is `softly.logic.Circuit.to_verilog`; counts are those of `softly.logic.Circuit.counts` for every input, after
    ``LATENCY`` clocks. With ``fixed`` a third one around them compares rows of numbers in fixed point.

    Example:
        >>> circuit = softly.logic.discretize(softly.logic.LogicNetwork(8, [20, 20], 2, seed=0))
        >>> source = softly.logic.export.to_verilog(circuit, pipeline=1)
        >>> "localparam LATENCY = 7;" in source  # two levels of gates, four of adders, one comparison
        True
    """
    function = "softly.logic.Circuit.to_verilog"
    identifier(name, function)
    if name in KEYWORDS:
        raise ValueError(f"{function}: name must not be a word of Verilog or SystemVerilog, got {name!r}.")
    if _INSIDE.fullmatch(name):
        raise ValueError(f"{function}: name must not be that of a port or a signal inside, got {name!r}.")
    if isinstance(pipeline, bool) or not isinstance(pipeline, int) or pipeline < 0:
        raise ValueError(f"{function}: pipeline must be a whole number from 0, got {pipeline!r}.")
    gates, stages = _gates(circuit, pipeline, f"{name}_gates")
    compared = ""
    if fixed is not None:
        compared = fixed_point.comparators(circuit, fixed, f"{name}_bits", pipeline > 0)
        stages += pipeline > 0
    top = _top(circuit, pipeline, name, stages, fixed)
    return "\n".join(part for part in (_head(circuit, pipeline) + top, compared, gates) if part)


def _head(circuit: Source, pipeline: int) -> str:
    lines = [
        f"A circuit of logic gates: {describe(circuit)}.",
        *legend(circuit),
        f"Score of a count: {score(circuit)}.",
    ]
    if pipeline:
        every = "every level" if pipeline == 1 else f"{pipeline} levels"
        lines += [
            f"Registers after {every} of gates, and every level of adders and comparisons:",
            "what enters at one clock leaves LATENCY clocks later, and a new example can enter at every clock.",
        ]
    else:
        lines += ["Combinational: LATENCY is 0."]
    # Linters are told that inputs which no gate needs, and LATENCY, are there for others.
    return "".join(f"// {line}\n" for line in lines) + "/* verilator lint_off UNUSED */\n\n"


def _gates(circuit: Source, pipeline: int, name: str) -> tuple[str, int]:
    """The module of the gates, and how many clocks it takes."""
    netlist, module = circuit.netlist, Module(pipeline > 0)
    stages = -(-netlist.depth // pipeline) if pipeline else 0
    # A value is made in a stage, and goes through a register to each one after it that uses it.
    stage = [0] * (netlist.num_inputs + 1)
    stage += ((netlist.levels - 1) // pipeline if pipeline else netlist.levels * 0).tolist()
    delays: defaultdict[int, int] = defaultdict(int)

    def signal(literal: int, at: int) -> str:
        node = literal >> 1
        if node == 0:
            return f"1'b{literal & 1}"
        text = f"x[{node - 1}]" if node <= netlist.num_inputs else f"n{node}"
        for delay in range(1, at - stage[node] + 1):
            later = f"n{node}_{delay}"
            if delay > delays[node]:
                module.register(later, text)
                delays[node] = delay
            text = later
        return f"~{text}" if literal & 1 else text

    for node, kind, a, b in netlist.gates():
        at = stage[node]
        module.wire(f"n{node}", f"{signal(a, at)} {'^' if kind == XOR else '&'} {signal(b, at)}")
    outputs = netlist.outputs.tolist()
    module.vector("y", [signal(literal, stages) for literal in outputs])
    ports = [f"input wire {declared(netlist.num_inputs, True)}x", f"output wire {declared(len(outputs), True)}y"]
    return module.source(name, ports), stages


def _top(circuit: Source, pipeline: int, name: str, stages: int, fixed: tuple[int, int] | None) -> str:
    """The module of the adders, one tree a group, and of the tree of comparisons."""
    module = Module(pipeline > 0)
    outputs, k = len(circuit.netlist.outputs), circuit.k
    size = outputs // k
    width, index_width = size.bit_length(), max(1, (k - 1).bit_length())
    clock = ".clk(clk), " if pipeline else ""
    bits = circuit.netlist.num_inputs
    body = [f"  wire {declared(outputs, True)}y;", f"  {name}_gates gates ({clock}.x(x), .y(y));"]
    if fixed is not None:
        body = [f"  wire {declared(bits, True)}x;", f"  {name}_bits bits ({clock}.row(row), .x(x));", *body]

    literals = circuit.netlist.outputs.reshape(k, -1).tolist()
    counts, latency = [], stages
    for group in range(k):
        values, level = [f"y[{group * size + i}]" for i in _paired(literals[group])], 0
        while len(values) > 1:
            level += 1
            below, wide = min(level, width), min(level + 1, width)
            zero = f"{{{wide - below}'b0, %s}}" if wide > below else "%s"
            pairs = [[zero % value for value in values[i : i + 2]] for i in range(0, len(values), 2)]
            # A value without a partner is added to nothing, which keeps all of a level in step.
            values = [module.step(f"s{group}_{level}_{i}", " + ".join(pair), wide) for i, pair in enumerate(pairs)]
        counts.append(values[0])
    latency += (size - 1).bit_length() if pipeline else 0

    best = [(count, f"{index_width}'d{group}") for group, count in enumerate(counts)]
    level = 0
    while len(best) > 1:
        level += 1
        winners = []
        for i in range(0, len(best), 2):
            (a, first), (b, second) = best[i], best[min(i + 1, len(best) - 1)]
            chosen = a if i + 1 == len(best) else f"{a} >= {b} ? {a} : {b}"
            index = first if i + 1 == len(best) else f"{a} >= {b} ? {first} : {second}"
            winners.append(
                (
                    module.step(f"m{level}_{i // 2}", chosen, width),
                    module.step(f"i{level}_{i // 2}", index, index_width),
                )
            )
        best = winners
        if pipeline:
            latency += 1
            counts = [module.register(f"c{group}_{level}", count, width) for group, count in enumerate(counts)]
    module.lines = [f"  localparam LATENCY = {latency};", *body, *module.lines]
    module.vector("counts", counts)
    module.lines += [f"  assign index = {best[0][1]};"]
    ports = [
        f"input wire {declared(bits, True)}x"
        if fixed is None
        else f"input wire {declared(num_columns(circuit) * fixed[0], True)}row",
        f"output wire {declared(k * width, True)}counts",
        f"output wire {declared(index_width, True)}index",
    ]
    return f"// Group j is counts[{width} * j +: {width}]; of groups with the same count, index is the lowest.\n" + (
        module.source(name, ports)
    )


def _paired(literals: list[int]) -> list[int]:
    """An order in which equal outputs meet in the first adders, which synthesis then finds to be none."""
    places: defaultdict[int, list[int]] = defaultdict(list)
    for place, literal in enumerate(literals):
        places[literal].append(place)
    pairs = [place for equal in places.values() for place in equal[: len(equal) // 2 * 2]]
    return pairs + [equal[-1] for equal in places.values() if len(equal) % 2]
