"""Circuits as C99 that needs nothing but its compiler: tables, and a loop over them.

A line of C for every gate takes compilers minutes and many bytes of code; a table takes neither.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from string import Template

import numpy as np
import torch

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

_FILE = Template("""\
/*
 * A circuit of logic gates: $description.
 * C99 without libraries or allocation; gcc -Os is fine. Tables take $flash bytes of read-only memory,
 * values $slots * sizeof(${name}_word) + $ram bytes of memory. As values are static, only one call may run at a time.
 *
$legend * Score of a count: $score.
 */
#include <stdint.h>
$include
enum { ${name}_inputs = $inputs, ${name}_columns = $columns, ${name}_groups = $k };

/* One bit each of as many examples as a word has bits. */
#ifndef ${name}_word
#define ${name}_word uint8_t
#endif

$names/* How many outputs of every group are true, for one example of ${name}_inputs bytes, 0 or not. */
void ${name}_counts(const uint8_t *bits, int32_t *counts);
/* The same for 8 * sizeof(${name}_word) examples, of which a word of every input has one bit each; a row of counts
   for every example. */
void ${name}_counts_words(const ${name}_word *words, int32_t *counts);
/* The score of a count. */
float ${name}_score(int32_t count);
$declarations
/* Two values to read and one to write. */
static const $slot_type ${name}_gate[][3] = {
$gates
};
/* Runs of gates: 0 a & b, 1 a & ~b, 2 ~(a | b), 3 a ^ b; and how many gates a run has. */
static const uint32_t ${name}_run[][2] = {
$runs
};
/* Values that are counted, group by group. */
static const $slot_type ${name}_output[] = {
$outputs
};
/* For every group: outputs that are always true, values to count, and values to count where they are false. */
static const uint32_t ${name}_group[][3] = {
$groups
};
$tables
static ${name}_word ${name}_slot[$slots];
static int32_t ${name}_result[${name}_groups];

static void ${name}_execute(void)
{
  const $slot_type(*gate)[3] = ${name}_gate;
  ${name}_word *slot = ${name}_slot;
  uint32_t run, n;
  for (run = 0; run < sizeof ${name}_run / sizeof *${name}_run; run++) {
    n = ${name}_run[run][1];
    switch (${name}_run[run][0]) {
    case 0:
      for (; n; n--, gate++) slot[(*gate)[2]] = (${name}_word)(slot[(*gate)[0]] & slot[(*gate)[1]]);
      break;
    case 1:
      for (; n; n--, gate++) slot[(*gate)[2]] = (${name}_word)(slot[(*gate)[0]] & ~slot[(*gate)[1]]);
      break;
    case 2:
      for (; n; n--, gate++) slot[(*gate)[2]] = (${name}_word)~(slot[(*gate)[0]] | slot[(*gate)[1]]);
      break;
    default:
      for (; n; n--, gate++) slot[(*gate)[2]] = (${name}_word)(slot[(*gate)[0]] ^ slot[(*gate)[1]]);
    }
  }
}

/* Counters of all examples of a word at once: plane p has the bits p of them. */
static void ${name}_count(unsigned examples, int32_t *counts)
{
  const $slot_type *output = ${name}_output;
  uint32_t group, n;
  unsigned example, p;
  for (group = 0; group < ${name}_groups; group++) {
    ${name}_word plane[$planes] = {0};
    const uint32_t plain = ${name}_group[group][1], all = plain + ${name}_group[group][2];
    for (n = 0; n < all; n++) {
      ${name}_word word = ${name}_slot[*output++];
      if (n >= plain) word = (${name}_word)~word;
      for (p = 0; word; p++) {
        const ${name}_word carry = (${name}_word)(plane[p] & word);
        plane[p] = (${name}_word)(plane[p] ^ word);
        word = carry;
      }
    }
    for (example = 0; example < examples; example++) {
      int32_t count = (int32_t)${name}_group[group][0];
      for (p = 0; p < $planes; p++) count += (int32_t)(plane[p] >> example & 1) << p;
      counts[example * ${name}_groups + group] = count;
    }
  }
}

void ${name}_counts(const uint8_t *bits, int32_t *counts)
{
  uint32_t i;
  for (i = 0; i < ${name}_inputs; i++) ${name}_slot[i] = bits[i] != 0;
  ${name}_execute();
  ${name}_count(1, counts);
}

void ${name}_counts_words(const ${name}_word *words, int32_t *counts)
{
  uint32_t i;
  for (i = 0; i < ${name}_inputs; i++) ${name}_slot[i] = words[i];
  ${name}_execute();
  ${name}_count(8 * sizeof(${name}_word), counts);
}

float ${name}_score(int32_t count)
{
  return $formula;
}
""")

_ROWS_DECLARED = Template("""\
/* The counts of one row of ${name}_columns numbers; NAN where one is missing. */
void ${name}_counts_row(const double *row, int32_t *counts);
""")

_ROWS = Template("""
void ${name}_counts_row(const double *row, int32_t *counts)
{
  uint32_t i;
  for (i = 0; i < ${name}_inputs; i++) {
    const double value = row[${name}_column[i]], threshold = ${name}_threshold[i];
    ${name}_slot[i] = ${name}_equal[i] ? value == threshold : value >= threshold;
  }
  ${name}_execute();
  ${name}_count(1, counts);
}
""")

# What is made of counts, from bits and, where the circuit compares, from rows of numbers.
_CLASSES_DECLARED = Template("""\
/* The group with the largest count, the lowest one of ties. */
int32_t ${name}_predict$suffix($argument);
""")

_BEST = Template("""
static int32_t ${name}_best(void)
{
  int32_t group, best = 0;
  for (group = 1; group < ${name}_groups; group++)
    if (${name}_result[group] > ${name}_result[best]) best = group;
  return best;
}
""")

_CLASSES = Template("""
int32_t ${name}_predict$suffix($argument)
{
  ${name}_counts$suffix($given, ${name}_result);
  return ${name}_best();
}
""")

_NUMBERS_DECLARED = Template("""\
/* The ${name}_groups numbers that are predicted: the scores of the counts. */
void ${name}_predict$suffix($argument, float *numbers);
""")

_NUMBERS = Template("""
void ${name}_predict$suffix($argument, float *numbers)
{
  uint32_t group;
  ${name}_counts$suffix($given, ${name}_result);
  for (group = 0; group < ${name}_groups; group++) numbers[group] = ${name}_score(${name}_result[group]);
}
""")

_TEXTS_DECLARED = Template("""\
/* The number that stands for a text in a column of texts; NAN for a text that is not known. */
double ${name}_text(uint32_t column, const char *text);
""")

_TEXTS = Template("""
double ${name}_text(uint32_t column, const char *text)
{
  uint32_t i, n;
  for (i = ${name}_texts_of[column]; i < ${name}_texts_of[column + 1]; i++) {
    for (n = 0; text[n] && text[n] == ${name}_texts[i][n]; n++) {}
    if (text[n] == ${name}_texts[i][n]) return i - ${name}_texts_of[column];
  }
  return NAN;
}
""")


def to_c(circuit: Source, name: str = "circuit") -> str:
    """A C99 file with functions from bits, and from numbers where the circuit compares them, to counts and classes.

    It is `softly.logic.Circuit.to_c`; its results are those of `softly.logic.Circuit.counts` for every input.

    Example:
        >>> circuit = softly.logic.discretize(softly.logic.LogicNetwork(8, [20, 20], 2, seed=0))
        >>> source = softly.logic.export.to_c(circuit, name="digits")
        >>> "int32_t digits_predict(const uint8_t *bits);" in source
        True
    """
    identifier(name, "softly.logic.Circuit.to_c")
    p = program(circuit.netlist, circuit.k)
    slot_type, slot_size = _unsigned(p.num_slots - 1)
    size = len(circuit.netlist.outputs) // circuit.k
    flash = slot_size * (p.gates.size + len(p.outputs)) + 8 * len(p.runs) + 4 * p.groups.size
    tables: list[str] = []
    declared, defined = [], []
    forms = [{"name": name, "suffix": "", "argument": "const uint8_t *bits", "given": "bits"}]
    if (c := circuit.inputs) is not None:
        column_type, column_size = _unsigned(c.num_columns - 1)
        flash += (column_size + 9) * len(c.columns)
        tables += [
            "\n/* Comparisons: of which column, with what, and whether for equality or for at least that. */",
            _array(f"{column_type} {name}_column[]", c.columns.tolist()),
            _array(f"double {name}_threshold[]", map(_double, c.thresholds.tolist())),
            _array(f"uint8_t {name}_equal[]", c.kinds.tolist()),
        ]
        declared.append(_ROWS_DECLARED.substitute(name=name))
        defined.append(_ROWS.substitute(name=name))
        forms.append({"name": name, "suffix": "_row", "argument": "const double *row", "given": "row"})
    if circuit.task == "classes":
        defined.append(_BEST.substitute(name=name))
    for form in forms:
        classes = circuit.task == "classes"
        declared.append((_CLASSES_DECLARED if classes else _NUMBERS_DECLARED).substitute(form))
        defined.append((_CLASSES if classes else _NUMBERS).substitute(form))
    if circuit.texts:
        known = [text for texts in circuit.texts for text in texts]
        starts = np.cumsum([0, *map(len, circuit.texts)]).tolist()
        flash += 4 * len(starts) + sum(len(text.encode("utf-8", "replace")) + 9 for text in known)
        tables += [
            "\n/* Texts of all columns, and where those of a column begin. */",
            _array(f"char *const {name}_texts[]", map(_string, known)),
            _array(f"uint32_t {name}_texts_of[]", starts),
        ]
        declared.append(_TEXTS_DECLARED.substitute(name=name))
        defined.append(_TEXTS.substitute(name=name))
    if circuit.logit_size or not unscaled(circuit):
        scores = _scores(circuit, size)
        flash += 4 * len(scores)
        tables.append(_array(f"float {name}_scores[]", map(_float, scores)))
        formula = f"{name}_scores[count]"
    else:
        tau, beta = torch.tensor([circuit.tau, circuit.beta]).tolist()
        formula = f"(float)count / {_float(tau)} + {_float(beta)}"
    names = ""
    if circuit.classes:
        strings = [_string(text) for text in circuit.classes]
        names = f"extern const char *const {name}_names[{circuit.k}];\n\n"
        flash += sum(map(len, circuit.classes)) + circuit.k * 5
        tables.append(f"\nconst char *const {name}_names[{circuit.k}] = {{\n{wrapped(strings)}\n}};")
    return _FILE.substitute(
        name=name,
        description=describe(circuit),
        flash=flash,
        ram=4 * circuit.k,
        legend="".join(f" * {line}\n" for line in legend(circuit)),
        score=score(circuit),
        include="#include <math.h>\n"
        if circuit.texts or any("INFINITY" in part for part in (*tables, formula))
        else "",
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
    ) + "".join(defined)


def _unsigned(largest: int) -> tuple[str, int]:
    """The smallest unsigned type of a number, and its bytes."""
    bits = next(bits for bits in (8, 16, 32) if largest < 1 << bits)
    return f"uint{bits}_t", bits // 8


def _triples(rows: np.ndarray) -> Iterator[str]:
    """Rows of a table; C has no empty ones."""
    for a, b, c in rows.tolist() or [(0, 0, 0)]:
        yield f"{{{a}, {b}, {c}}}"


def _array(declaration: str, items: Iterable[object]) -> str:
    return f"static const {declaration} = {{\n{wrapped(items)}\n}};"


def _double(value: float) -> str:
    """Exactly that number."""
    return value.hex() if math.isfinite(value) else "INFINITY" if value > 0 else "-INFINITY"


def _float(value: float) -> str:
    return f"{value.hex()}F" if math.isfinite(value) else _double(value)


def _scores(circuit: Source, size: int) -> list[float]:
    """The scores of all counts, so that C needs no logarithm, and rounds nothing in its own way."""
    scores = torch.arange(size + 1, dtype=torch.int32).float() / circuit.tau + circuit.beta
    if circuit.logit_size:
        scores = torch.logit(scores, 0.5 / circuit.logit_size)
    return (scores if unscaled(circuit) else scores * circuit.scale + circuit.shift).tolist()


def _string(text: str) -> str:
    """A literal that has nothing in it but letters, digits and escapes of three digits."""
    data = text[:_LONGEST_STRING].encode("utf-8", "replace")
    return '"' + "".join(chr(byte) if chr(byte).isalnum() and byte < 128 else f"\\{byte:03o}" for byte in data) + '"'
