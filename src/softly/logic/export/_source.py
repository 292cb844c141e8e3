"""What exports know of a circuit, and how they write names and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol
from urllib.parse import quote

from softly.logic.execution import Comparisons
from softly.logic.netlist import Netlist

_LONGEST = 80  # characters of a name in a comment


class Source(Protocol):
    """The attributes of `softly.logic.Circuit` that exports read."""

    netlist: Netlist
    k: int
    tau: float
    beta: float
    logit_size: int
    scale: float
    shift: float
    task: str
    inputs: Comparisons | None
    columns: tuple[str, ...]
    texts: tuple[tuple[str, ...], ...]
    classes: tuple[str, ...]


def identifier(name: str, function: str) -> str:
    """The name, which every language takes as one."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", name):
        raise ValueError(f"{function}: name must be a letter and up to 63 letters, digits or '_'; got {name!r}.")
    return name


def comment(name: str) -> str:
    """A name that can stand in a comment of any language: percent-encoded, but for letters, digits, spaces, -._~."""
    text = quote(name[:_LONGEST], safe=" ", errors="replace")
    return text if len(name) <= _LONGEST else f"{text}..."


def legend(circuit: Source) -> Iterator[str]:
    """What inputs and groups mean, a line each: nothing of it is needed to run the circuit."""
    if (c := circuit.inputs) is not None:
        for bit, (column, threshold, kind) in enumerate(
            zip(c.columns.tolist(), c.thresholds.tolist(), c.kinds.tolist(), strict=True)
        ):
            name = f"column {column}" + (f" ({comment(circuit.columns[column])})" if circuit.columns else "")
            yield f"input {bit}: {name} {'==' if kind else '>='} {threshold!r}"
        for column, texts in enumerate(circuit.texts):
            for place, text in enumerate(texts):
                yield f"text {place} of column {column}: {comment(text)}"
    else:
        for bit, name in enumerate(circuit.columns):
            yield f"input {bit}: {comment(name)}"
    for group, name in enumerate(circuit.classes):
        yield f"class {group}: {comment(name)}"


def describe(circuit: Source) -> str:
    """One line on the circuit."""
    n = circuit.netlist
    return (
        f"{n.num_inputs} bits in, {n.num_gates} gates of depth {n.depth}, {len(n.outputs)} bits in {circuit.k} groups"
    )


def score(circuit: Source) -> str:
    """The formula from a count to a score."""
    formula = f"count / {circuit.tau!r} + {circuit.beta!r}"
    if circuit.logit_size:
        formula = f"logit({formula}), {0.5 / circuit.logit_size!r} from 0 and 1"
    return formula if unscaled(circuit) else f"({formula}) * {circuit.scale!r} + {circuit.shift!r}"


def unscaled(circuit: Source) -> bool:
    """Whether the score is what `tau`, `beta` and the logit say."""
    return (circuit.scale, circuit.shift) == (1.0, 0.0)


def num_columns(circuit: Source) -> int:
    """Numbers in a row, or bits."""
    return circuit.netlist.num_inputs if circuit.inputs is None else circuit.inputs.num_columns


def wrapped(items: Iterable[object], indent: str = "  ") -> str:
    """Items with commas between them, as many a line as fit."""
    texts = [str(item) for item in items]
    count = max(1, (118 - len(indent)) // (max(map(len, texts), default=1) + 2))
    lines = (", ".join(texts[i : i + count]) for i in range(0, len(texts), count))
    return ",\n".join(f"{indent}{line}" for line in lines)
