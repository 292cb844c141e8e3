"""A netlist as a program over few slots, for machines that run one gate after another."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import numpy as np

from softly.logic.netlist import XOR, Netlist

# What a run of gates computes: with the inputs in the right order, three kinds of "and" are enough.
AND, AND_NOT, NOR, XOR_ = range(4)


@dataclass(frozen=True)
class Program:
    """Gates in runs of one kind, each with the slots that it reads and writes.

    Inputs are in the first slots. No gate of a run reads what another gate of that run writes, so that a run may also
    read everything before it writes.

    Attributes:
        num_slots: As many values are kept at a time, at most.
        gates: (gates, 3) Two slots to read and one to write.
        runs: Kind and number of gates of each run.
        outputs: The slots of the outputs that are no constants, by groups; first those that are taken as they are,
            then those that are negated.
        groups: (k, 3) For each group the number of outputs that are always true, of those taken as they are, and of
            those negated.
    """

    num_slots: int
    gates: np.ndarray
    runs: list[tuple[int, int]]
    outputs: np.ndarray
    groups: np.ndarray


def program(netlist: Netlist, k: int) -> Program:
    """Order the gates by level and kind, and let values that are used up make room for others."""
    base = netlist.num_inputs + 1
    first, second = netlist.first, netlist.second
    kinds = np.where(netlist.kinds == XOR, XOR_, AND + (first & 1) + (second & 1))
    swap = (kinds == AND_NOT) & (first & 1 == 1)
    a, b = np.where(swap, second, first) >> 1, np.where(swap, first, second) >> 1
    order = np.lexsort((kinds, netlist.levels))

    last = np.full(base + netlist.num_gates, -1)
    np.maximum.at(last, a[order], np.arange(len(order)))
    np.maximum.at(last, b[order], np.arange(len(order)))
    last[netlist.outputs >> 1] = len(order)

    uses = last.tolist()
    slots = list(range(-1, netlist.num_inputs)) + [0] * netlist.num_gates  # the constant has none
    free = [node - 1 for node in range(base - 1, 0, -1) if uses[node] < 0]
    num_slots = netlist.num_inputs
    rows = []
    for step, (gate, left, right) in enumerate(zip(order.tolist(), a[order].tolist(), b[order].tolist(), strict=True)):
        free.extend(slots[node] for node in (left, right) if uses[node] == step)
        if free:
            slot = free.pop()
        else:
            slot, num_slots = num_slots, num_slots + 1
        slots[base + gate] = slot
        rows.append((slots[left], slots[right], slot))

    outputs, groups = [], []
    for group in netlist.outputs.reshape(k, -1).tolist():
        plain = [slots[literal >> 1] for literal in group if literal > 1 and not literal & 1]
        negated = [slots[literal >> 1] for literal in group if literal > 1 and literal & 1]
        outputs += plain + negated
        groups.append((group.count(1), len(plain), len(negated)))
    levels_and_kinds = zip(netlist.levels[order].tolist(), kinds[order].tolist(), strict=True)
    return Program(
        num_slots,
        np.array(rows, dtype=np.int64).reshape(-1, 3),
        [(kind, len(list(run))) for (_, kind), run in groupby(levels_and_kinds)],
        np.array(outputs, dtype=np.int64),
        np.array(groups, dtype=np.int64),
    )
