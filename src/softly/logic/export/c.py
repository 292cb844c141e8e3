"""Circuits as C99 that needs nothing but its compiler: tables, and a loop over them.

A line of C for every gate takes compilers minutes and many bytes of code; a table takes neither.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from string import Template

import numpy as np
import torch

from softly.logic.execution import Comparisons
from softly.logic.export import _c_source as source
from softly.logic.export._program import program
from softly.logic.export._source import (
    Source,
    describe,
    identifier,
    legend,
    num_columns,
    score,
    unscaled,
    wrapped,
)

__all__ = ["to_c"]

_LONGEST_STRING = 1000  # characters of a name, of four bytes at most: C99 promises strings of 4095 bytes


def to_c(circuit: Source, *, name: str = "circuit", numbers: str = "double") -> str:
    """A C99 file with functions from bits, and from numbers where the circuit compares them, to counts and classes.

    It is `softly.logic.Circuit.to_c`; its results are those of `softly.logic.Circuit.counts` for every input.

    Example:
        >>> circuit = softly.logic.discretize(softly.logic.LogicNetwork(8, [20, 20], 2, seed=0))
        >>> source = softly.logic.export.to_c(circuit, name="digits")
        >>> "int32_t digits_predict(const uint8_t *bits);" in source
        True
    """
    identifier(name, "softly.logic.Circuit.to_c")
    if numbers not in ("double", "float"):
        raise ValueError(f"softly.logic.Circuit.to_c: numbers must be 'double' or 'float', got {numbers!r}.")
    p = program(circuit.netlist, circuit.k)
    slot_type, slot_size = _unsigned(p.num_slots - 1)
    size = len(circuit.netlist.outputs) // circuit.k
    flash = slot_size * (p.gates.size + len(p.outputs)) + 8 * len(p.runs) + 4 * p.groups.size
    parts = _Parts(circuit, name, numbers)
    tables, declared, defined = parts.tables, parts.declared, parts.defined
    if circuit.logit_size or not unscaled(circuit):
        scores = _scores(circuit, size)
        flash += 4 * len(scores)
        tables.append(_array(name, f"float {name}_scores[]", map(_float, scores)))
        formula = f"{name}_float(&{name}_scores[count])"
    else:
        tau, beta = torch.tensor([circuit.tau, circuit.beta]).tolist()
        formula = f"(float)count / {_float(tau)} + {_float(beta)}"
    names = ""
    if circuit.classes:
        strings = [_string(text) for text in circuit.classes]
        names = f"extern const char *const {name}_names[{circuit.k}];\n\n"
        flash += sum(map(len, circuit.classes)) + circuit.k * 5
        tables.append(f"\nconst char *const {name}_names[{circuit.k}] = {{\n{wrapped(strings)}\n}};")
    needs_math = circuit.texts or any("INFINITY" in part or "NAN" in part for part in (*tables, formula))
    return source.FILE.substitute(
        name=name,
        description=describe(circuit),
        flash=flash + parts.flash,
        ram=4 * circuit.k,
        legend="".join(f" * {line}\n" for line in legend(circuit)),
        score=score(circuit),
        include="#include <math.h>\n" if needs_math else "",
        inputs=circuit.netlist.num_inputs,
        columns=num_columns(circuit),
        k=circuit.k,
        names=names,
        declarations="".join(declared),
        slot_type=slot_type,
        slots=p.num_slots,
        planes=max(1, size.bit_length()),
        gates=wrapped(_triples(p.gates)),
        runs=wrapped(f"{{{kind}, {count}}}" for kind, count in p.runs or [(0, 0)]),
        outputs=wrapped(p.outputs.tolist() or [0]),
        groups=wrapped(_triples(p.groups)),
        tables="\n".join(tables),
        formula=formula,
        **{place: f"slot[{name}_{slot_type}(&(*gate)[{number}])]" for number, place in enumerate("abc")},
    ) + "".join(defined)


class _Parts:
    """What a file has beside the gates: comparisons, texts, and what is made of counts."""

    def __init__(self, circuit: Source, name: str, number: str) -> None:
        self.name, self.number = name, number
        self.tables: list[str] = []
        self.declared: list[str] = []
        self.defined: list[str] = []
        self.flash = 0
        forms = [{"suffix": "", "argument": "const uint8_t *bits", "given": "bits"}]
        if circuit.inputs is not None:
            self._comparisons(circuit.inputs)
            forms.append({"suffix": "_row", "argument": f"const {number} *row", "given": "row"})
        if circuit.task == "classes":
            self.defined.append(source.BEST.substitute(name=name))
        for form in forms:
            if circuit.task == "classes":
                self._add(source.CLASSES_DECLARED, source.CLASSES, **form)
            else:
                self._add(source.NUMBERS_DECLARED, source.NUMBERS, **form)
        if circuit.texts:
            self._texts(circuit.texts)

    def _add(self, declaration: Template, definition: Template, **options: str) -> None:
        options |= {"name": self.name, "number": self.number}
        self.declared.append(declaration.substitute(options))
        self.defined.append(definition.substitute(options))

    def _table(self, declaration: str, items: Iterable[object], size: int, count: int) -> None:
        self.tables.append(_array(self.name, declaration, items))
        self.flash += size * count

    def _comparisons(self, c: Comparisons) -> None:
        name, number = self.name, self.number
        exact = c.thresholds_for(np.dtype(np.float64 if number == "double" else np.float32))
        different, places = np.unique(exact, return_inverse=True)
        column_type, column_size = _unsigned(c.num_columns - 1)
        place_type, place_size = _unsigned(len(different) - 1)
        kinds = np.packbits(c.kinds.astype(bool), bitorder="little")
        literal = _double if number == "double" else _float
        self.tables.append("\n/* Comparisons: of which column, with what, and a bit where it is for equality. */")
        self._table(f"{column_type} {name}_column[]", c.columns.tolist(), column_size, len(c.columns))
        self._table(f"{number} {name}_threshold[]", map(literal, different.tolist()), exact.itemsize, len(different))
        self._table(f"{place_type} {name}_threshold_of[]", places.tolist(), place_size, len(places))
        self._table(f"uint8_t {name}_equal[]", kinds.tolist(), 1, len(kinds))
        self._add(
            source.ROWS_DECLARED,
            source.ROWS,
            column_type=column_type,
            place_type=place_type,
            exact=source.DOUBLES.substitute(name=name) if number == "double" else "",
        )

    def _texts(self, texts: tuple[tuple[str, ...], ...]) -> None:
        known = [[_bytes(text) for text in part] for part in texts]
        starts = np.cumsum([0, *(sum(map(len, part)) for part in known)]).tolist()
        data = b"".join(text for part in known for text in part)
        self.tables.append("\n/* Texts of all columns; where those of a column begin, and how many they are. */")
        self._table(f"uint8_t {self.name}_texts[]", data, 1, len(data))
        counts = (f"{{{start}, {len(part)}}}" for start, part in zip(starts, known, strict=False))
        self._table(f"uint32_t {self.name}_texts_of[][2]", counts, 8, len(known))
        self._add(source.TEXTS_DECLARED, source.TEXTS)


def _unsigned(largest: int) -> tuple[str, int]:
    """The smallest unsigned type of a number, and its bytes."""
    bits = next(bits for bits in (8, 16, 32) if largest < 1 << bits)
    return f"uint{bits}_t", bits // 8


def _triples(rows: np.ndarray) -> Iterator[str]:
    """Rows of a table; C has no empty ones."""
    for a, b, c in rows.tolist() or [(0, 0, 0)]:
        yield f"{{{a}, {b}, {c}}}"


def _array(name: str, declaration: str, items: Iterable[object]) -> str:
    return f"static const {declaration} {name}_flash = {{\n{wrapped(items)}\n}};"


def _double(value: float) -> str:
    """Exactly that number."""
    if math.isnan(value):
        return "NAN"
    return value.hex() if math.isfinite(value) else "INFINITY" if value > 0 else "-INFINITY"


def _float(value: float) -> str:
    return f"{value.hex()}F" if math.isfinite(value) else _double(value)


def _scores(circuit: Source, size: int) -> list[float]:
    """The scores of all counts, so that C needs no logarithm, and rounds nothing in its own way."""
    scores = torch.arange(size + 1, dtype=torch.int32).float() / circuit.tau + circuit.beta
    if circuit.logit_size:
        scores = torch.logit(scores, 0.5 / circuit.logit_size)
    return (scores if unscaled(circuit) else scores * circuit.scale + circuit.shift).tolist()


def _bytes(text: str) -> bytes:
    """A text as C has it, for a table of numbers: C99 promises strings of 4095 bytes. With a zero it equals none."""
    return b"\xff\0" if "\0" in text else text.encode("utf-8", "surrogatepass") + b"\0"


def _string(text: str) -> str:
    """A literal that has nothing in it but letters, digits and escapes of three digits."""
    data = text[:_LONGEST_STRING].encode("utf-8", "replace")
    return '"' + "".join(chr(byte) if chr(byte).isalnum() and byte < 128 else f"\\{byte:03o}" for byte in data) + '"'
