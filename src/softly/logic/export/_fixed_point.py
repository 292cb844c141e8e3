"""Comparisons of numbers in fixed point, as Verilog."""

from __future__ import annotations

import math

from softly.logic.export._source import Source
from softly.logic.export._verilog_module import Module, declared

_NAME = "softly.logic.Circuit.to_verilog"


def comparators(circuit: Source, fixed: tuple[int, int], name: str, clocked: bool) -> str:
    """A module from a row of numbers to the bits of a circuit, after one clock where it is clocked.

    A number is ``value * 2^fraction`` in so many bits, signed; the smallest one stands for a missing value, with which
    every comparison is false. A comparison with a threshold is one with the next number that there is.
    """
    bits, fraction = _checked(circuit, fixed)
    assert circuit.inputs is not None
    c, module = circuit.inputs, Module(clocked)
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    for column in sorted(set(c.columns.tolist())):
        module.lines.append(f"  wire signed {declared(bits, True)}c{column} = row[{bits * column} +: {bits}];")
    values = []
    parts = zip(c.columns.tolist(), c.thresholds.tolist(), c.kinds.tolist(), strict=True)
    for bit, (column, threshold, kind) in enumerate(parts):
        exact = threshold * 2.0**fraction  # exact, or infinite
        if kind:
            whole = math.isfinite(exact) and float(exact).is_integer() and low < exact <= high
            text = f"c{column} == {_number(int(exact), bits)}" if whole else "1'b0"
        elif exact > high:
            text = "1'b0"
        else:
            # What is missing is the smallest number, and less than this.
            least = max(low + 1, math.ceil(exact) if math.isfinite(exact) else low + 1)
            text = f"c{column} >= {_number(least, bits)}"
        values.append(module.step(f"b{bit}", text))
    module.vector("x", values)
    ports = [
        f"input wire {declared(c.num_columns * bits, True)}row",
        f"output wire {declared(len(values), True)}x",
    ]
    head = (
        f"// Column j is row[{bits} * j +: {bits}], signed: the number times 2^{fraction}, or {low} if it is missing.\n"
        "// Where a column has texts, it is their number times the same.\n"
    )
    return head + module.source(name, ports)


def _checked(circuit: Source, fixed: tuple[int, int]) -> tuple[int, int]:
    whole = len(fixed) == 2 and all(isinstance(part, int) and not isinstance(part, bool) for part in fixed)
    if not whole or not 2 <= fixed[0] <= 64 or not 0 <= fixed[1] < 64:
        raise ValueError(f"{_NAME}: fixed must be the bits of a number, 2 to 64, and of its fraction; got {fixed!r}.")
    if circuit.inputs is None:
        raise ValueError(f"{_NAME}: fixed is for circuits that compare numbers, and this one takes bits.")
    bits, fraction = fixed
    for column, texts in enumerate(circuit.texts):
        if len(texts) - 1 << fraction >= 1 << (bits - 1):
            raise ValueError(f"{_NAME}: fixed = {fixed} has too few bits to count the texts of column {column}.")
    return bits, fraction


def _number(value: int, bits: int) -> str:
    return f"-{bits}'sd{-value}" if value < 0 else f"{bits}'sd{value}"
