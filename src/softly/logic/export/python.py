"""Circuits as Python modules that need NumPy and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from string import Template

from softly.logic.export._program import program
from softly.logic.export._source import Source, describe, legend, num_columns, score, unscaled, wrapped

__all__ = ["to_numpy"]

_FILE = Template('''\
# A circuit of logic gates: $description.
# Score of a count: $score.
$legend
import numpy as np

COLUMNS = $columns  # numbers in a row
TEXTS = [  # of every column that has texts: their places are its numbers
$texts
]
CLASSES = [
$classes
]
# Two values to read and one to write.
GATES = np.array([
$gates
], dtype=np.int64).reshape(-1, 3)
# Runs of gates: 0 a & b, 1 a & ~b, 2 ~(a | b), 3 a ^ b; and how many gates a run has.
RUNS = [
$runs
]
# Values that are counted, group by group.
OUTPUTS = np.array([
$outputs
], dtype=np.int64)
# For every group: outputs that are always true, values to count, and values to count where they are false.
GROUPS = np.array([
$groups
], dtype=np.int64)
$comparisons

def counts(rows):
    """(n, COLUMNS) bits or numbers to (n, $k) int32: how many outputs of every group are true.

    Lists of rows may have texts, and None where a value is missing.
    """
    rows = rows if isinstance(rows, np.ndarray) and rows.dtype.kind in "buif" else _numbers(rows)
    if rows.ndim != 2 or rows.shape[1] != COLUMNS:
        raise ValueError(f"rows must be of shape (n, {COLUMNS}), got {rows.shape}.")
    parts = [_counts(rows[i : i + 4096]) for i in range(0, len(rows), 4096)]
    return np.concatenate([np.zeros((0, len(GROUPS)), dtype=np.int32), *parts])


def scores(rows):
    """(n, $k) float64: the scores of the counts."""
    result = counts(rows) / $tau + $beta
$logit    return result$map


def predict(rows):
$predict

def _numbers(rows):
    rows = [list(row) for row in rows]
    if any(len(row) != COLUMNS for row in rows):
        raise ValueError(f"rows must have {COLUMNS} values each.")
    result = np.empty((len(rows), COLUMNS))
    for number, row in enumerate(rows):
        for column, value in enumerate(row):
            texts = TEXTS[column] if TEXTS else []
            if value is None or value != value:
                result[number, column] = np.nan
            elif isinstance(value, str) != bool(texts):
                raise TypeError(f"column {column} has {'texts' if texts else 'numbers'}, got {value!r}.")
            elif texts:
                result[number, column] = texts.index(value) if value in texts else np.nan
            else:
                result[number, column] = value
    return result


def _counts(rows):
    packed = np.packbits(_bits(rows), axis=0).T
    slots = np.zeros(($slots, packed.shape[1]), dtype=np.uint8)
    slots[: len(packed)] = packed
    start = 0
    for kind, count in RUNS:
        first, second, result = GATES[start : start + count].T
        a, b = slots[first], slots[second]
        slots[result] = _gate(kind, a, b)
        start += count
    values = np.unpackbits(slots[OUTPUTS], axis=1, count=len(rows))
    result, start = np.empty((len(rows), len(GROUPS)), dtype=np.int32), 0
    for group, (always, plain, negated) in enumerate(GROUPS.tolist()):
        middle, end = start + plain, start + plain + negated
        result[:, group] = values[start:middle].sum(0, dtype=np.int32) - values[middle:end].sum(0, dtype=np.int32)
        result[:, group] += always + negated
        start = end
    return result


def _gate(kind, a, b):
    if kind == 0:
        return a & b
    if kind == 1:
        return a & ~b
    return ~(a | b) if kind == 2 else a ^ b
''')

_BITS = """

def _bits(rows):
    return rows != 0
"""

_COMPARISONS = Template("""\
# Comparisons: of which column, with what, and whether for equality or for at least that.
COLUMN = np.array([
$columns
])
THRESHOLD = np.array([
$thresholds
])
EQUAL = np.array([
$kinds
], dtype=bool)


def _bits(rows):
    values = rows[:, COLUMN].astype(np.float64)
    return np.where(EQUAL, values == THRESHOLD, values >= THRESHOLD)
""")


_CLASSES = '''\
    """(n,) The group with the largest count, the lowest one of ties."""
    return counts(rows).argmax(-1)
'''
_NUMBERS = '''\
    """(n, groups) The numbers that are predicted."""
    return scores(rows)
'''
_NUMBER = '''\
    """(n,) The number that is predicted."""
    return scores(rows)[:, 0]
'''


def to_numpy(circuit: Source) -> str:
    """A Python module with ``counts(rows)`` and ``predict(rows)``, for arrays of bits or of numbers to compare.

    It is `softly.logic.Circuit.to_numpy`; its results are those of `softly.logic.Circuit.counts` for every input.

    Example:
        >>> import numpy as np
        >>> circuit = softly.logic.discretize(softly.logic.LogicNetwork(8, [20, 20], 2, seed=0))
        >>> module = {}
        >>> exec(softly.logic.export.to_numpy(circuit), module)
        >>> bits = np.eye(8, dtype=np.uint8)
        >>> np.array_equal(module["counts"](bits), circuit.counts(bits))
        True
    """
    p = program(circuit.netlist, circuit.k)
    comparisons = _BITS
    if (c := circuit.inputs) is not None:
        comparisons = _COMPARISONS.substitute(
            columns=_list(c.columns.tolist()),
            thresholds=_list(f'float("{t}")' if abs(t) == float("inf") else repr(t) for t in c.thresholds.tolist()),
            kinds=_list(c.kinds.tolist()),
        )
    predict = _CLASSES if circuit.task == "classes" else _NUMBERS if circuit.k > 1 else _NUMBER
    logit = ""
    if circuit.logit_size:
        border = 0.5 / circuit.logit_size
        logit = (
            f"    result = np.clip(result, {border!r}, {1 - border!r})\n    result = np.log(result / (1 - result))\n"
        )
    return _FILE.substitute(
        texts=_list(f"[{', '.join(map(ascii, texts))}]" for texts in circuit.texts),
        tau=repr(circuit.tau),
        beta=repr(circuit.beta),
        logit=logit,
        map="" if unscaled(circuit) else f" * {circuit.scale!r} + {circuit.shift!r}",
        predict=predict,
        description=describe(circuit),
        score=score(circuit),
        legend="".join(f"# {line}\n" for line in legend(circuit)),
        columns=num_columns(circuit),
        classes=_list(map(ascii, circuit.classes)),
        gates=_list(map(tuple, p.gates.tolist())),
        runs=_list(p.runs),
        outputs=_list(p.outputs.tolist()),
        groups=_list(map(tuple, p.groups.tolist())),
        comparisons=comparisons,
        k=circuit.k,
        slots=p.num_slots,
    )


def _list(items: Iterable[object]) -> str:
    text = wrapped(items, indent="    ")
    return f"{text}," if text else ""
