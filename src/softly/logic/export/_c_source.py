"""What a file of C consists of: its functions, with the tables left out."""

from __future__ import annotations

from string import Template

FILE = Template("""\
/*
 * A circuit of logic gates: $description.
 * C99 without libraries or allocation; gcc -Os is fine. Tables take $flash bytes of read-only memory,
 * values $slots * sizeof(${name}_word) + $ram bytes of memory. As values are static, only one call may run at a time.
 *
$legend * Score of a count: $score.
 */
#include <stdint.h>
$include
/* Tables that are only read. On AVR these stay in flash, from where they are read in a way of its own. */
#ifndef ${name}_flash
#ifdef __AVR__
#include <avr/pgmspace.h>
#define ${name}_flash PROGMEM
#define ${name}_uint8_t(place) pgm_read_byte(place)
#define ${name}_uint16_t(place) pgm_read_word(place)
#define ${name}_uint32_t(place) pgm_read_dword(place)
#define ${name}_float(place) pgm_read_float(place)
#else
#define ${name}_flash
#define ${name}_uint8_t(place) (*(place))
#define ${name}_uint16_t(place) (*(place))
#define ${name}_uint32_t(place) (*(place))
#define ${name}_float(place) (*(place))
#endif
#endif

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
static const $slot_type ${name}_gate[][3] ${name}_flash = {
$gates
};
/* Runs of gates: 0 a & b, 1 a & ~b, 2 ~(a | b), 3 a ^ b; and how many gates a run has. */
static const uint32_t ${name}_run[][2] ${name}_flash = {
$runs
};
/* Values that are counted, group by group. */
static const $slot_type ${name}_output[] ${name}_flash = {
$outputs
};
/* For every group: outputs that are always true, values to count, and values to count where they are false. */
static const uint32_t ${name}_group[][3] ${name}_flash = {
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
    n = ${name}_uint32_t(&${name}_run[run][1]);
    switch (${name}_uint32_t(&${name}_run[run][0])) {
    case 0:
      for (; n; n--, gate++) $c = (${name}_word)($a & $b);
      break;
    case 1:
      for (; n; n--, gate++) $c = (${name}_word)($a & ~$b);
      break;
    case 2:
      for (; n; n--, gate++) $c = (${name}_word)~($a | $b);
      break;
    default:
      for (; n; n--, gate++) $c = (${name}_word)($a ^ $b);
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
    const uint32_t plain = ${name}_uint32_t(&${name}_group[group][1]);
    const uint32_t all = plain + ${name}_uint32_t(&${name}_group[group][2]);
    for (n = 0; n < all; n++) {
      ${name}_word word = ${name}_slot[${name}_${slot_type}(output++)];
      if (n >= plain) word = (${name}_word)~word;
      for (p = 0; word; p++) {
        const ${name}_word carry = (${name}_word)(plane[p] & word);
        plane[p] = (${name}_word)(plane[p] ^ word);
        word = carry;
      }
    }
    for (example = 0; example < examples; example++) {
      int32_t count = (int32_t)${name}_uint32_t(&${name}_group[group][0]);
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

ROWS_DECLARED = Template("""\
/* The counts of one row of ${name}_columns numbers; NAN where one is missing. */
void ${name}_counts_row(const $number *row, int32_t *counts);
$exact""")

ROWS = Template("""
void ${name}_counts_row(const $number *row, int32_t *counts)
{
  uint32_t i;
  for (i = 0; i < ${name}_inputs; i++) {
    const $number value = row[${name}_$column_type(&${name}_column[i])];
    const $number threshold = ${name}_$number(&${name}_threshold[${name}_$place_type(&${name}_threshold_of[i])]);
    ${name}_slot[i] = ${name}_uint8_t(&${name}_equal[i / 8]) >> i % 8 & 1 ? value == threshold : value >= threshold;
  }
  ${name}_execute();
  ${name}_count(1, counts);
}
""")

# What is made of counts, from bits and, where the circuit compares, from rows of numbers.
CLASSES_DECLARED = Template("""\
/* The group with the largest count, the lowest one of ties. */
int32_t ${name}_predict$suffix($argument);
""")

BEST = Template("""
static int32_t ${name}_best(void)
{
  int32_t group, best = 0;
  for (group = 1; group < ${name}_groups; group++)
    if (${name}_result[group] > ${name}_result[best]) best = group;
  return best;
}
""")

CLASSES = Template("""
int32_t ${name}_predict$suffix($argument)
{
  ${name}_counts$suffix($given, ${name}_result);
  return ${name}_best();
}
""")

NUMBERS_DECLARED = Template("""\
/* The ${name}_groups numbers that are predicted: the scores of the counts. */
void ${name}_predict$suffix($argument, float *numbers);
""")

NUMBERS = Template("""
void ${name}_predict$suffix($argument, float *numbers)
{
  uint32_t group;
  ${name}_counts$suffix($given, ${name}_result);
  for (group = 0; group < ${name}_groups; group++) numbers[group] = ${name}_score(${name}_result[group]);
}
""")

DOUBLES = Template("""\
/* Some compilers have doubles of four bytes, to which thresholds would be rounded: export with floats for these. */
typedef char ${name}_double_must_have_eight_bytes[sizeof(double) == 8 ? 1 : -1];
#define ${name}_double(place) (*(place))
""")

TEXTS_DECLARED = Template("""\
/* The number that stands for a text in a column of texts; NAN for a text that is not known. */
$number ${name}_text(uint32_t column, const char *text);
""")

TEXTS = Template("""
$number ${name}_text(uint32_t column, const char *text)
{
  const uint8_t *known = ${name}_texts + ${name}_uint32_t(&${name}_texts_of[column][0]);
  const uint32_t count = ${name}_uint32_t(&${name}_texts_of[column][1]);
  uint32_t place, n;
  for (place = 0; place < count; place++) {
    for (n = 0; text[n] && (uint8_t)text[n] == ${name}_uint8_t(known + n); n++) {}
    if ((uint8_t)text[n] == ${name}_uint8_t(known + n)) return ($number)place;
    while (${name}_uint8_t(known++)) {}
  }
  return ($number)NAN;
}
""")
