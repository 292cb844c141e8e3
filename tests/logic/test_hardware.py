"""Circuits on small machines and in fixed point: as C on AVR and Cortex-M0, and as Verilog that linters accept."""

import re
import subprocess

import numpy as np
import pytest
import torch
from judges import found, needs
from sklearn.datasets import load_digits

from softly.logic import Circuit, LogicNetwork, Thermometer, discretize
from softly.logic.execution import Comparisons
from softly.logic.netlist import Layer


def run(*command, cwd=None, fails=False):
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=cwd)
    assert (result.returncode != 0) == fails, (result.stdout + result.stderr)[-2000:]
    return result.stdout + result.stderr


@pytest.fixture(scope="module")
def digits():
    """A circuit of 4 x 500 gates on scikit-learn's digits, with names of classes, and some of its rows."""
    torch.manual_seed(0)
    x = load_digits().data
    encoding = Thermometer(4).fit(torch.tensor(x))
    network = LogicNetwork(encoding.num_bits, [500] * 4, 10, tau=5.0, encoding=encoding, seed=0)
    return discretize(network, classes=list("0123456789")), x[:40]


def random_circuit(texts=(), **arguments):
    generator = np.random.default_rng(0)
    columns = np.repeat([0, 1, 2], [9, 6, 3])
    special = [0.1, -0.75, 3.0, 127.9, 200.0, -300.0, np.inf, -np.inf, 0.0]
    thresholds = np.concatenate((special, generator.integers(-9, 9, 6) / 8, [0, 1, 2]))
    kinds = np.concatenate((generator.integers(0, 2, 15), [1, 1, 1]))
    layers, below = [], 18
    for width in (40, 30):
        layers.append(Layer(generator.integers(0, 16, width), generator.integers(0, below, (2, width))))
        below = width
    return Circuit(18, layers, k=3, comparisons=Comparisons(3, columns, thresholds, kinds), texts=texts, **arguments)


# C -------------------------------------------------------------------------------------------------------------------

WARNINGS = ("-Os", "-Wall", "-Wextra", "-Werror", "-std=c99", "-pedantic")

# On AVR what is written to the serial port is what simavr prints, and sleeping without interrupts ends it.
AVR_MAIN = """
#include <avr/interrupt.h>
#include <avr/io.h>
#include <avr/sleep.h>
static const float rows[][{columns}] PROGMEM = {{
{rows}
}};
int main(void)
{{
  static float row[{columns}];
  uint8_t i, j;
  UCSR0B = 1 << TXEN0;
  for (i = 0; i < {count}; i++) {{
    for (j = 0; j < {columns}; j++) row[j] = pgm_read_float(&rows[i][j]);
    while (!(UCSR0A & 1 << UDRE0)) {{}}
    UDR0 = (char)('0' + circuit_predict_row(row));
  }}
  while (!(UCSR0A & 1 << UDRE0)) {{}}
  UDR0 = '\\n';
  cli();
  sleep_mode();
  return 0;
}}
"""


@needs("avr-gcc", "avr-size", "simavr")
def test_digits_on_an_atmega328p(digits, tmp_path):
    circuit, rows = digits
    numbers = ",\n".join("{" + ", ".join(f"{value:.1f}F" for value in row) + "}" for row in rows)
    main = AVR_MAIN.format(columns=64, rows=numbers, count=len(rows))
    (tmp_path / "main.c").write_text(circuit.to_c(numbers="float") + main)
    run("avr-gcc", "-mmcu=atmega328p", *WARNINGS, "-DF_CPU=16000000UL", "-o", "main.elf", "main.c", cwd=tmp_path)
    text, data, bss = map(int, run("avr-size", tmp_path / "main.elf").splitlines()[1].split()[:3])
    assert text + data < 32 << 10
    assert data + bss < 2 << 10  # tables stay in flash
    printed = run("timeout", "60", "simavr", "-m", "atmega328p", "-f", "16000000", "main.elf", cwd=tmp_path)
    found = re.search(rf"[0-9]{{{len(rows)}}}", printed)
    assert found, printed
    assert [int(char) for char in found[0]] == circuit.predict(rows).tolist()


@needs("avr-gcc")
def test_doubles_of_four_bytes_are_refused(digits, tmp_path):
    (tmp_path / "a.c").write_text(digits[0].to_c())
    printed = run("avr-gcc", "-mmcu=atmega328p", "-Os", "-c", "a.c", cwd=tmp_path, fails=True)
    assert "double_must_have_eight_bytes" in printed


@needs("arm-none-eabi-gcc", "arm-none-eabi-nm", "arm-none-eabi-size")
@pytest.mark.parametrize("numbers", ["double", "float"])
def test_digits_on_a_cortex_m0(digits, numbers, tmp_path):
    (tmp_path / "a.c").write_text(digits[0].to_c(numbers=numbers))
    run("arm-none-eabi-gcc", "-mcpu=cortex-m0", "-mthumb", *WARNINGS, "-c", "-o", "a.o", "a.c", cwd=tmp_path)
    missing = re.findall(r" U (.*)", run("arm-none-eabi-nm", tmp_path / "a.o"))
    assert all(name.startswith(("__aeabi_", "__gnu_thumb1")) for name in missing), missing  # the compiler's own
    _, data, bss = map(int, run("arm-none-eabi-size", tmp_path / "a.o").splitlines()[1].split()[:3])
    assert data + bss < 2 << 10


# Without a library: what is printed goes to Linux, for which qemu stands.
ARM_MAIN = """
static const {number} rows[][{columns}] = {{
{rows}
}};
static int32_t call(int32_t which, int32_t a, int32_t b, int32_t c)
{{
  register int32_t r0 __asm__("r0") = a, r1 __asm__("r1") = b, r2 __asm__("r2") = c, r7 __asm__("r7") = which;
  __asm__ volatile("svc 0" : "+r"(r0) : "r"(r1), "r"(r2), "r"(r7) : "memory");
  return r0;
}}
void _start(void);
void _start(void)
{{
  static char printed[{count}];
  int32_t i;
  for (i = 0; i < {count}; i++) printed[i] = (char)('0' + circuit_predict_row(rows[i]));
  call(4, 1, (int32_t)printed, {count});
  call(1, 0, 0, 0);
}}
"""


@needs("arm-none-eabi-gcc", "qemu-arm")
@pytest.mark.parametrize("numbers", ["double", "float"])
def test_digits_run_as_on_a_cortex_m0(digits, numbers, tmp_path):
    circuit, rows = digits
    mark = "F" if numbers == "float" else ""
    text = ",\n".join("{" + ", ".join(f"{value:.1f}{mark}" for value in row) + "}" for row in rows)
    main = ARM_MAIN.format(columns=64, rows=text, count=len(rows), number=numbers)
    (tmp_path / "a.c").write_text(circuit.to_c(numbers=numbers) + main)
    machine = ("-mcpu=cortex-m0", "-mthumb", "-nostdlib", "-static", "-Wl,-e,_start")
    options = ("-Os", "-std=gnu99", "-Wall", "-Wextra", "-Werror")
    run("arm-none-eabi-gcc", *machine, *options, "-o", "a.elf", "a.c", "-lgcc", cwd=tmp_path)
    printed = run("timeout", "60", "qemu-arm", "a.elf", cwd=tmp_path)
    assert [int(char) for char in printed] == circuit.predict(rows).tolist()


def circuit_of_copies():
    """A class for every comparison, with numbers that floats have below or above them alone."""
    comparisons = Comparisons(3, np.array([0, 0, 1, 2]), np.array([0.1, 0.7, 0.7, 1 / 3]), np.array([0, 0, 1, 0]))
    assert set(np.sign(np.float32(comparisons.thresholds).astype(float) - comparisons.thresholds)) == {-1, 1}
    return Circuit(4, [Layer(np.full(4, 3), np.array([[1, 0, 2, 3], [0] * 4]))], k=4, comparisons=comparisons)


@needs("gcc")
@pytest.mark.parametrize("make", [random_circuit, circuit_of_copies])
def test_floats_compare_as_they_would_with_doubles(make, tmp_path):
    import ctypes

    circuit = make()
    (tmp_path / "a.c").write_text(circuit.to_c(numbers="float"))
    run("gcc", *WARNINGS, "-shared", "-fPIC", "-o", "a.so", "a.c", cwd=tmp_path)
    library = ctypes.CDLL(str(tmp_path / "a.so"))
    near = np.float32(circuit.comparisons.thresholds)
    with np.errstate(invalid="ignore"):
        values = np.concatenate((near, np.nextafter(near, np.float32(1)), np.nextafter(near, np.float32(-1)), [np.nan]))
    rows = np.random.default_rng(1).choice(values.astype(np.float32), (500, 3))
    predicted = [library.circuit_predict_row(row.ctypes.data_as(ctypes.c_void_p)) for row in rows]
    np.testing.assert_array_equal(predicted, circuit.predict(rows))


def test_numbers_are_doubles_or_floats(digits):
    with pytest.raises(ValueError, match="numbers must be 'double' or 'float', got 'half'"):
        digits[0].to_c(numbers="half")


# Verilog -------------------------------------------------------------------------------------------------------------


@needs("verilator")
@pytest.mark.parametrize("pipeline", [0, 1])
@pytest.mark.parametrize("fixed", [None, (16, 8)])
def test_verilator_has_nothing_to_say(digits, pipeline, fixed, tmp_path):
    for number, circuit in enumerate((digits[0], random_circuit())):
        (tmp_path / f"{number}.v").write_text(circuit.to_verilog(pipeline=pipeline, fixed=fixed))
        options = ("--lint-only", "-Wall", "-Wno-DECLFILENAME", "--top-module", "circuit")
        assert not run("verilator", *options, f"{number}.v", cwd=tmp_path).strip()


def in_fixed_point(folder, circuit, source, rows, bits):
    """Counts of rows of whole numbers, one at every clock."""
    width = (len(circuit.netlist.outputs) // circuit.k).bit_length()
    latency = int(re.search(r"localparam LATENCY = (\d+);", source)[1])
    clocked = "input wire clk" in source
    size = bits * circuit.num_columns
    (folder / "circuit.v").write_text(source, encoding="ascii")
    mask = (1 << bits) - 1
    lines = [f"{sum((int(v) & mask) << bits * j for j, v in enumerate(row)):x}" for row in rows]
    (folder / "rows.txt").write_text("\n".join(lines))
    (folder / "test.v").write_text(f"""
module test;
  reg clk = 0;
  reg [{size - 1}:0] rows [0:{len(rows) - 1}];
  reg [{size - 1}:0] row;
  wire [{circuit.k * width - 1}:0] counts;
  integer i;
  circuit dut ({".clk(clk), " if clocked else ""}.row(row), .counts(counts));
  initial begin
    $readmemh("rows.txt", rows);
    for (i = 0; i < {len(rows) + latency}; i = i + 1) begin
      row = i < {len(rows)} ? rows[i] : 0;
      #1;
      if (i >= {latency}) $display("%b", counts);
      clk = 1; #1; clk = 0; #1;
    end
  end
endmodule
""")
    run(
        "iverilog",
        "-g2001",
        "-Wall",
        "-Wno-timescale",
        "-Wno-portbind",
        "-o",
        "test",
        "test.v",
        "circuit.v",
        cwd=folder,
    )
    printed = run("vvp", "-n", "test", cwd=folder).split()
    return [[int(row[::-1][j * width : (j + 1) * width][::-1], 2) for j in range(circuit.k)] for row in printed]


@needs("iverilog", "vvp")
@pytest.mark.parametrize("pipeline", [0, 2])
@pytest.mark.parametrize(("bits", "fraction"), [(16, 8), (9, 0), (4, 3), (64, 63), (32, 3)])
def test_fixed_point_compares_as_numbers_do(pipeline, bits, fraction, tmp_path):
    circuit = random_circuit()
    generator = np.random.default_rng(0)
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    near = [int(t * 2.0**fraction) + d for t in circuit.comparisons.thresholds if np.isfinite(t) for d in (-1, 0, 1)]
    values = [min(max(value, low), high) for value in (*near, low, low + 1, high, 0, -1)]
    rows = [[values[i] for i in row] for row in generator.integers(0, len(values), (300, 3))]
    # Doubles have 53 bits: with 64, numbers are taken that are both.
    rows = [[value if float(value) == value or value == low else 0 for value in row] for row in rows]
    numbers = np.array([[np.nan if value == low else value / 2.0**fraction for value in row] for row in rows])
    counts = in_fixed_point(
        tmp_path, circuit, circuit.to_verilog(pipeline=pipeline, fixed=(bits, fraction)), rows, bits
    )
    np.testing.assert_array_equal(counts, circuit.counts(numbers))


@needs("iverilog", "vvp")
def test_texts_in_fixed_point(tmp_path):
    circuit = random_circuit(texts=((), (), ("blue", "red", "green")))
    table = [[0.5, 1.0, "red"], [-0.75, None, "green"], [3.0, 0.25, None], [0.0, -1.0, "mauve"], [1.5, 2.0, "blue"]]
    rows = [[128, 256, 256], [-192, -32768, 512], [768, 64, -32768], [0, -256, -32768], [384, 512, 0]]
    counts = in_fixed_point(tmp_path, circuit, circuit.to_verilog(fixed=(16, 8)), rows, 16)
    np.testing.assert_array_equal(counts, circuit.counts(table))
    with pytest.raises(ValueError, match="too few bits to count the texts of column 2"):
        circuit.to_verilog(fixed=(10, 8))


@pytest.mark.parametrize("fixed", [(1, 0), (65, 0), (16, -1), (16, 64), (16,), (16.0, 8), (True, 0)])
def test_fixed_point_that_cannot_be(fixed):
    with pytest.raises(ValueError, match="fixed must be the bits of a number, 2 to 64"):
        random_circuit().to_verilog(fixed=fixed)


def test_fixed_point_is_for_numbers():
    bits = Circuit(2, [Layer(np.array([6]), np.array([[0], [1]]))], k=1)
    with pytest.raises(ValueError, match="this one takes bits"):
        bits.to_verilog(fixed=(16, 8))


@pytest.mark.parametrize("name", ["reg", "logic", "bit", "module", "always_ff", "xor"])
def test_words_of_verilog_are_no_names(name):
    with pytest.raises(ValueError, match=f"must not be a word of Verilog or SystemVerilog, got '{name}'"):
        random_circuit().to_verilog(name=name)
    random_circuit().to_c(name=name)
    random_circuit().to_blif(name=name)


@pytest.mark.parametrize(
    "name", ["x", "y", "clk", "row", "counts", "index", "gates", "bits", "n3", "s0_1_0", "LATENCY"]
)
def test_names_that_others_have_inside(name):
    with pytest.raises(ValueError, match="must not be that of a port or a signal inside"):
        random_circuit().to_verilog(name=name)


@needs("iverilog", "verilator", "yosys")
@pytest.mark.parametrize("name", ["X", "reg1", "gate", "int_", "top", "circuit_gates", "main"])
def test_other_names_are_read_by_all_tools(name, tmp_path):
    (tmp_path / "a.v").write_text(random_circuit().to_verilog(pipeline=1, name=name, fixed=(16, 8)))
    run("iverilog", "-g2001", "-Wall", "-Wno-timescale", "-o", "a", "a.v", cwd=tmp_path)
    options = ("--lint-only", "-Wall", "-Wno-DECLFILENAME", "--top-module", name)
    assert not run("verilator", *options, "a.v", cwd=tmp_path).strip()
    run(found("yosys"), "-q", "-p", f"read_verilog a.v; hierarchy -check -top {name}", cwd=tmp_path)
