"""Exports are equal to the circuit: judged by the tools that read them."""

import ctypes
import re
import subprocess
import sys

import numpy as np
import pytest
from judges import equal_circuits, found, needs

from softly.logic import Circuit
from softly.logic.execution import Comparisons
from softly.logic.netlist import Layer

HOSTILE = (
    "a */ #error b\n#error c",
    'd"; system("x"); //',
    "`define y\n$finish; \\\nendmodule",
    "größe ??/ ' %s {} \0\ud800",
)


def random_circuit(num_inputs, widths, k, seed, gates=range(16), **arguments):
    generator, below, layers = np.random.default_rng(seed), num_inputs, []
    for width in widths:
        layers.append(
            Layer(generator.choice(list(gates), width), np.stack([generator.integers(0, below, width) for _ in "ab"]))
        )
        below = width
    return Circuit(num_inputs, layers, k=k, **arguments)


def one_layer(gates, wires, **arguments):
    return Circuit(3, [Layer(np.array(gates), np.array(wires))], **arguments)


CIRCUITS = {
    "random": random_circuit(20, [60, 60, 60], 3, 0),
    "deep": random_circuit(8, [31] * 9, 1, 1, gates=range(1, 15)),
    "many groups": random_circuit(16, [40, 35], 35, 2),
    "group of five": random_circuit(12, [80, 50], 10, 3, gates=[1, 6, 7, 9, 14]),
    "inputs and their negations": one_layer([3, 5, 12, 10], [[0, 1, 2, 0], [1, 2, 0, 1]], k=2),
    "constants": one_layer([0, 15, 15, 15], [[0, 0, 0, 0], [1, 1, 1, 1]], k=2),
    "one output": one_layer([6], [[0], [2]], k=1),
    "one constant output": one_layer([15], [[0], [2]], k=1),
}


@pytest.fixture(params=CIRCUITS)
def circuit(request):
    return CIRCUITS[request.param]


def vectors(circuit, count=300):
    return np.random.default_rng(5).integers(0, 2, (count, circuit.num_inputs), dtype=np.uint8)


def comparing_circuit(**arguments):
    generator = np.random.default_rng(7)
    comparisons = Comparisons(
        3, generator.integers(0, 3, 12), generator.integers(-2, 3, 12) / 3, generator.integers(0, 2, 12)
    )
    comparisons.thresholds[:2], comparisons.kinds[:2] = (np.inf, -np.inf), (1, 0)
    return random_circuit(12, [30, 30], 3, 7, comparisons=comparisons, **arguments)


def numbers(count=200):
    rows = np.random.default_rng(6).integers(-2, 3, (count, 3)) / 3
    rows[::7, 1], rows[::11, 2], rows[::13, 0] = np.nan, np.inf, -np.inf
    return rows


def run(*command, cwd=None):
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=cwd)
    assert result.returncode == 0, (result.stdout + result.stderr)[-2000:]
    return result.stdout


# C -------------------------------------------------------------------------------------------------------------------


def compiled(folder, source, *options):
    (folder / "circuit.c").write_text(source, encoding="ascii")
    run(
        *("gcc", "-Os", "-Wall", "-Wextra", "-Werror", "-std=c99", "-pedantic", "-shared", "-fPIC", *options),
        *("-o", folder / "circuit.so", folder / "circuit.c"),
    )
    library = ctypes.CDLL(str(folder / "circuit.so"))
    library.circuit_score.restype = ctypes.c_float
    return library


def pointer(array, kind=ctypes.c_void_p):
    return array.ctypes.data_as(kind)


def counts_in_c(function, rows, k):
    counts = np.full((len(rows), k), -1, dtype=np.int32)
    for row, count in zip(np.ascontiguousarray(rows), counts, strict=True):
        function(pointer(row), pointer(count))
    return counts


def numbers_in_c(function, rows, k):
    predicted = np.full((len(rows), k), -1, dtype=np.float32)
    for row, number in zip(np.ascontiguousarray(rows), predicted, strict=True):
        function(pointer(row), pointer(number))
    return predicted


@needs("gcc")
def test_c_counts_and_predicts(circuit, tmp_path):
    library, bits = compiled(tmp_path, circuit.to_c()), vectors(circuit)
    np.testing.assert_array_equal(counts_in_c(library.circuit_counts, bits, circuit.k), circuit.counts(bits))
    if circuit.task == "classes":
        predicted = [library.circuit_predict(pointer(row)) for row in bits]
        np.testing.assert_array_equal(predicted, circuit.predict(bits))
    else:
        np.testing.assert_array_equal(numbers_in_c(library.circuit_predict, bits, circuit.k), circuit(bits))


@needs("gcc")
@pytest.mark.parametrize(("word", "dtype"), [("uint8_t", np.uint8), ("uint64_t", np.uint64)])
def test_c_runs_as_many_examples_as_a_word_has_bits(word, dtype, circuit, tmp_path):
    examples = 8 * dtype().itemsize
    bits = vectors(circuit, examples)
    words = (bits.T.astype(np.uint64) << np.arange(examples, dtype=np.uint64)).sum(1, dtype=np.uint64).astype(dtype)
    library = compiled(tmp_path, circuit.to_c(), f"-Dcircuit_word={word}")
    counts = np.zeros((examples, circuit.k), dtype=np.int32)
    library.circuit_counts_words(pointer(words), pointer(counts))
    np.testing.assert_array_equal(counts, circuit.counts(bits))


@needs("gcc")
def test_c_compares_numbers(tmp_path):
    circuit, rows = comparing_circuit(), numbers()
    library = compiled(tmp_path, circuit.to_c())
    np.testing.assert_array_equal(counts_in_c(library.circuit_counts_row, rows, 3), circuit.counts(rows))
    predicted = [library.circuit_predict_row(pointer(row)) for row in rows]
    np.testing.assert_array_equal(predicted, circuit.predict(rows))


@needs("gcc")
@pytest.mark.parametrize(
    "head",
    [
        {"tau": 3.7, "beta": -0.3},
        {"tau": 20.0, "logit_size": 20},
        {"tau": 1e300},
        {"tau": 3.7, "scale": 0.3, "shift": 150.1},
        {"tau": 20.0, "logit_size": 20, "scale": -77.0, "shift": 152.5},
    ],
)
def test_c_has_the_scores(head, tmp_path):
    circuit = random_circuit(10, [60], 3, 0, **head)
    library, bits = compiled(tmp_path, circuit.to_c()), vectors(circuit, 50)
    scores = [[library.circuit_score(ctypes.c_int32(count)) for count in row] for row in circuit.counts(bits).tolist()]
    np.testing.assert_array_equal(np.array(scores, dtype=np.float32), circuit(bits))


def circuit_of_texts(**arguments):
    comparisons = Comparisons(
        3, np.array([0, 0, 1, 1, 1, 2]), np.array([0.5, 1.5, 0, 1, 2, 0]), np.array([0, 0, 1, 1, 1, 1])
    )
    texts = ((), ("red", 'bl"ue\n', "grün"), ("",))
    return random_circuit(6, [30, 30], 3, 7, comparisons=comparisons, texts=texts, **arguments)


TEXTS = [[1.0, "red", ""], [None, "grün", None], [2.0, 'bl"ue\n', "x"], [0.0, None, ""], [float("nan"), "gr", ""]]


@needs("gcc")
@pytest.mark.parametrize("task", ["classes", "numbers"])
def test_c_of_texts(task, tmp_path):
    circuit = circuit_of_texts(task=task, scale=2.5, shift=-3.0)
    library = compiled(tmp_path, circuit.to_c())
    library.circuit_text.restype = ctypes.c_double

    def number(column, value):
        if isinstance(value, str):
            return library.circuit_text(ctypes.c_uint32(column), value.encode())
        return np.nan if value is None else value

    rows = np.array([[number(column, value) for column, value in enumerate(row)] for row in TEXTS])
    np.testing.assert_array_equal(counts_in_c(library.circuit_counts_row, rows, 3), circuit.counts(TEXTS))
    if task == "classes":
        predicted = [library.circuit_predict_row(pointer(row)) for row in rows]
        np.testing.assert_array_equal(predicted, circuit.predict(TEXTS))
    else:
        np.testing.assert_array_equal(numbers_in_c(library.circuit_predict_row, rows, 3), circuit(TEXTS))


@needs("gcc", "nm", "size")
def test_c_of_a_large_network_is_small_and_allocates_nothing(tmp_path):
    circuit = random_circuit(784, [2000] * 6, 10, 0)
    source = circuit.to_c()
    library, bits = compiled(tmp_path, source), vectors(circuit, 20)
    np.testing.assert_array_equal(counts_in_c(library.circuit_counts, bits, 10), circuit.counts(bits))

    run("gcc", "-Os", "-std=c99", "-c", "-fno-stack-protector", "-o", "circuit.o", "circuit.c", cwd=tmp_path)
    assert not re.findall(r" U (?!_GLOBAL_OFFSET_TABLE_).*", run("nm", tmp_path / "circuit.o"))
    text, data, bss = map(int, run("size", tmp_path / "circuit.o").splitlines()[1].split()[:3])
    flash, slots, ram = map(
        int, re.search(r"take (\d+) bytes.*?values (\d+) \* .*? \+ (\d+) bytes", source, re.S).groups()
    )
    assert flash <= text <= flash + 2500
    assert data == 0
    assert slots + ram <= bss <= slots + ram + 64
    assert slots < 3 * 2000  # of 784 inputs and 12,000 gates


# Verilog -------------------------------------------------------------------------------------------------------------


def simulated(folder, circuit, source, bits):
    """Counts and classes of rows that enter one at every clock."""
    width = (len(circuit.netlist.outputs) // circuit.k).bit_length()
    latency = int(re.search(r"localparam LATENCY = (\d+);", source)[1])
    clocked = "input wire clk" in source
    (folder / "circuit.v").write_text(source, encoding="ascii")
    (folder / "rows.txt").write_text("".join("".join(map(str, row[::-1])) + "\n" for row in bits))
    (folder / "test.v").write_text(f"""
module test;
  reg clk = 0;
  reg [{circuit.netlist.num_inputs - 1}:0] rows [0:{len(bits) - 1}];
  reg [{circuit.netlist.num_inputs - 1}:0] x;
  wire [{circuit.k * width - 1}:0] counts;
  wire [{max(1, (circuit.k - 1).bit_length()) - 1}:0] index;
  integer i;
  circuit dut ({".clk(clk), " if clocked else ""}.x(x), .counts(counts), .index(index));
  initial begin
    $readmemb("rows.txt", rows);
    for (i = 0; i < {len(bits) + latency}; i = i + 1) begin
      x = i < {len(bits)} ? rows[i] : 0;
      #1;
      if (i >= {latency}) $display("%b %d", counts, index);
      clk = 1; #1; clk = 0; #1;
    end
  end
endmodule
""")
    run("iverilog", "-g2001", "-Wall", "-Wno-timescale", "-o", "test", "test.v", "circuit.v", cwd=folder)
    lines = [line.split() for line in run("vvp", "-n", "test", cwd=folder).splitlines()]
    counts = [[int(row[::-1][j * width : (j + 1) * width][::-1], 2) for j in range(circuit.k)] for row, _ in lines]
    return np.array(counts), np.array([int(index) for _, index in lines])


@needs("iverilog", "vvp")
@pytest.mark.parametrize("pipeline", [0, 1, 2, 4])
def test_verilog_in_simulation(circuit, pipeline, tmp_path):
    bits = vectors(circuit)
    counts, index = simulated(tmp_path, circuit, circuit.to_verilog(pipeline=pipeline), bits)
    np.testing.assert_array_equal(counts, circuit.counts(bits))
    np.testing.assert_array_equal(index, circuit.counts(bits).argmax(-1))


@needs("iverilog", "vvp")
def test_verilog_of_a_large_network(tmp_path):
    circuit = random_circuit(784, [2000] * 6, 10, 0)
    bits = vectors(circuit, 10)
    counts, _ = simulated(tmp_path, circuit, circuit.to_verilog(), bits)
    np.testing.assert_array_equal(counts, circuit.counts(bits))


def test_latency_of_a_pipeline():
    circuit = CIRCUITS["random"]
    adders, comparisons = 5, 2  # 20 bits a group, 3 groups
    for pipeline in (1, 2, 5):
        latency = -(-circuit.netlist.depth // pipeline) + adders + comparisons
        assert f"localparam LATENCY = {latency};" in circuit.to_verilog(pipeline=pipeline)


@pytest.mark.parametrize("pipeline", [-1, 1.5, True, "2"])
def test_pipeline_is_a_whole_number(pipeline):
    with pytest.raises(ValueError, match="to_verilog: pipeline must be a whole number"):
        CIRCUITS["random"].to_verilog(pipeline=pipeline)


@needs("yosys")
@pytest.mark.parametrize("pipeline", [0, 2])
def test_verilog_is_synthesized_by_yosys(pipeline, tmp_path):
    circuit = CIRCUITS["random"]
    (tmp_path / "circuit.v").write_text(circuit.to_verilog(pipeline=pipeline))
    script = "read_verilog circuit.v; hierarchy -check -top circuit; synth -flatten -top circuit; check -assert; stat"
    report = run(found("yosys"), "-p", script, cwd=tmp_path)
    cells = dict(re.findall(r"^     (\$_\w+_) +(\d+)$", report.rpartition("=== circuit ===")[2], re.M))
    registers = sum(int(count) for kind, count in cells.items() if "DFF" in kind)
    assert (registers > 0) == (pipeline > 0)
    assert not any("LATCH" in kind for kind in cells)
    gates = sum(map(int, cells.values())) - registers
    # Every full adder is a handful of gates; without them the circuit's own gates remain.
    assert circuit.netlist.num_gates / 2 < gates < circuit.netlist.num_gates + 12 * len(circuit.netlist.outputs)


# BLIF and AIGER ------------------------------------------------------------------------------------------------------


@needs("yosys")
def test_verilog_blif_and_aiger_are_proven_equal(circuit, tmp_path):
    (tmp_path / "circuit.v").write_text(circuit.to_verilog())
    (tmp_path / "circuit.blif").write_text(circuit.to_blif(), encoding="ascii")
    (tmp_path / "circuit.aag").write_text(circuit.to_aiger(), encoding="ascii")
    script = (
        "read_verilog circuit.v; hierarchy -top circuit_gates; proc; techmap; "
        "write_blif verilog.blif; design -reset; "
        "read_aiger -module_name circuit circuit.aag; write_blif aiger.blif"
    )
    run(found("yosys"), "-q", "-p", script, cwd=tmp_path)
    # yosys calls the bits of a vector x[0], x[1], …, and that of a single one x.
    text = (tmp_path / "verilog.blif").read_text()
    (tmp_path / "verilog.blif").write_text(re.sub(r"\b([xy])(?:\[(\d+)\]|\b)", lambda m: m[1] + (m[2] or "0"), text))
    for other in ("verilog.blif", "aiger.blif"):
        assert equal_circuits("circuit.blif", other, tmp_path)


@needs("yosys")
def test_binary_aiger_is_proven_equal(circuit, tmp_path):
    (tmp_path / "circuit.blif").write_text(circuit.to_blif(), encoding="ascii")
    (tmp_path / "circuit.aig").write_bytes(circuit.to_aiger(binary=True))
    assert equal_circuits("circuit.blif", "circuit.aig", tmp_path)


def test_binary_aiger_is_the_text(circuit):
    text, binary = circuit.to_aiger().splitlines(), circuit.to_aiger(binary=True)
    sizes = text[0].split()[1:]
    _, inputs, _, outputs, ands = map(int, sizes)
    head, *rest = binary.split(b"\n", 1 + outputs)
    assert head.decode().split() == ["aig", *sizes]
    assert [line.decode() for line in rest[:outputs]] == text[1 + inputs : 1 + inputs + outputs]
    data, found = rest[outputs], []

    def number():
        nonlocal data
        value = shift = 0
        while True:
            byte, data = data[0], data[1:]
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    for gate in range(ands):
        left = 2 * (inputs + gate + 1)
        first = left - number()
        found.append(f"{left} {first} {first - number()}")
    assert found == text[1 + inputs + outputs : 1 + inputs + outputs + ands]
    assert data.decode().splitlines() == text[1 + inputs + outputs + ands :]


@needs("yosys")
def test_the_proof_can_fail(tmp_path):
    (tmp_path / "a.blif").write_text(CIRCUITS["one output"].to_blif())
    (tmp_path / "b.blif").write_text(one_layer([7], [[0], [2]], k=1).to_blif())
    assert not equal_circuits("a.blif", "b.blif", tmp_path)


@needs("yosys", "iverilog", "vvp")
@pytest.mark.parametrize("form", ["blif", "aiger"])
def test_blif_and_aiger_in_simulation(form, tmp_path):
    circuit = CIRCUITS["group of five"]
    source = circuit.to_blif(name="circuit_gates") if form == "blif" else circuit.to_aiger()
    (tmp_path / "source").write_text(source)
    read = "read_blif source" if form == "blif" else "read_aiger -module_name circuit_gates source"
    run(found("yosys"), "-q", "-p", f"{read}; write_verilog -noattr gates.v", cwd=tmp_path)
    bits = [f".{port}{i}({port}[{i}])" for port, n in (("x", 12), ("y", 50)) for i in range(n)]
    instance = f"circuit_gates gates ({', '.join(bits)});"
    top = circuit.to_verilog().partition("module circuit_gates")[0]
    top = top.replace("circuit_gates gates (.x(x), .y(y));", instance)
    assert instance in top
    rows = vectors(circuit)
    counts, _ = simulated(tmp_path, circuit, top + (tmp_path / "gates.v").read_text(), rows)
    np.testing.assert_array_equal(counts, circuit.counts(rows))


# NumPy ---------------------------------------------------------------------------------------------------------------


def module(source):
    names = {}
    exec(compile(source, "circuit.py", "exec"), names)
    return names


def test_numpy(circuit):
    names, bits = module(circuit.to_numpy()), vectors(circuit, 5000)
    np.testing.assert_array_equal(names["counts"](bits), circuit.counts(bits))
    np.testing.assert_array_equal(names["predict"](bits), circuit.predict(bits))
    assert names["counts"](bits[:0]).shape == (0, circuit.k)


@pytest.mark.parametrize("seed", range(20))
def test_slots_are_not_reused_too_early(seed):
    generator = np.random.default_rng(seed)
    k = int(generator.integers(1, 5))
    widths = [*generator.integers(1, 60, generator.integers(0, 8)).tolist(), k * int(generator.integers(1, 9))]
    circuit = random_circuit(int(generator.integers(1, 12)), widths, k, seed)
    bits = vectors(circuit, 64)
    np.testing.assert_array_equal(module(circuit.to_numpy())["counts"](bits), circuit.counts(bits))


def test_numpy_compares_numbers():
    circuit, rows = comparing_circuit(), numbers()
    names = module(circuit.to_numpy())
    np.testing.assert_array_equal(names["counts"](rows), circuit.counts(rows))
    with pytest.raises(ValueError, match=r"rows must be of shape \(n, 3\), got \(4, 2\)"):
        names["counts"](np.zeros((4, 2)))


@pytest.mark.parametrize("task", ["classes", "numbers"])
@pytest.mark.parametrize("head", [{}, {"tau": 10.0, "logit_size": 10, "scale": 30.0, "shift": 1e8}])
def test_numpy_of_texts(task, head):
    circuit = circuit_of_texts(task=task, **head)
    names = module(circuit.to_numpy())
    np.testing.assert_array_equal(names["counts"](TEXTS), circuit.counts(TEXTS))
    np.testing.assert_allclose(names["predict"](TEXTS), circuit.predict(TEXTS), rtol=1e-15)
    for row, message in (([1.0, 2.0, ""], "column 1 has texts, got 2.0"), (["1", "", ""], "column 0 has numbers")):
        with pytest.raises(TypeError, match=message):
            names["counts"]([row])
    with pytest.raises(ValueError, match="3 values"):
        names["counts"]([[1.0]])


def test_numpy_of_one_number():
    circuit = CIRCUITS["one output"].described(scale=0.1, shift=7.0)
    bits = vectors(circuit)
    np.testing.assert_array_equal(module(circuit.to_numpy())["predict"](bits), circuit.predict(bits))


def test_comparisons_that_nothing_needs_are_in_no_export():
    comparisons = Comparisons(2, np.array([1, 0, 1, 0]), np.array([3.0, 0.5, 3.0, 7.5]), np.array([0, 0, 0, 0]))
    both = Layer(np.array([1, 1]), np.array([[0, 2], [1, 1]]))  # the comparison with 3 is there twice
    circuit = Circuit(4, [both], k=1, comparisons=comparisons)
    assert (circuit.inputs.columns.tolist(), circuit.inputs.thresholds.tolist()) == ([0, 1], [0.5, 3.0])
    assert circuit.netlist.num_gates == 1
    for source in (circuit.to_c(), circuit.to_verilog(), circuit.to_blif(), circuit.to_aiger(), circuit.to_numpy()):
        assert "7.5" not in source
        assert source.count("3.0") + source.count("0x1.8000000000000p+1") in (1, 2)


def test_numpy_needs_numpy_alone(tmp_path):
    (tmp_path / "circuit.py").write_text(CIRCUITS["random"].to_numpy())
    loaded = run(sys.executable, "-c", "import circuit, sys; print(*sys.modules)", cwd=tmp_path).split()
    assert not {"softly", "torch"} & set(loaded)


# Names ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def hostile():
    return comparing_circuit(columns=HOSTILE[:3], classes=HOSTILE[1:])


def test_names_leave_nothing_but_letters_in_comments(hostile):
    for source in (hostile.to_c(), hostile.to_verilog(), hostile.to_blif(), hostile.to_aiger()):
        assert source.isascii()
        assert "\0" not in source
        for name in HOSTILE:
            assert name not in source


@needs("gcc")
def test_hostile_names_in_c(hostile, tmp_path):
    library, rows = compiled(tmp_path, hostile.to_c()), numbers()
    np.testing.assert_array_equal(counts_in_c(library.circuit_counts_row, rows, 3), hostile.counts(rows))
    names = (ctypes.c_char_p * 3).in_dll(library, "circuit_names")
    assert [name.decode() for name in names] == [*HOSTILE[1:3], HOSTILE[3].partition("\0")[0]]


@needs("iverilog", "vvp")
def test_hostile_names_in_verilog(hostile, tmp_path):
    circuit = random_circuit(3, [12], 3, 0, columns=HOSTILE[:3], classes=HOSTILE[1:])
    bits = vectors(circuit)
    counts, _ = simulated(tmp_path, circuit, circuit.to_verilog(), bits)
    np.testing.assert_array_equal(counts, circuit.counts(bits))
    counts, _ = simulated(tmp_path, hostile, hostile.to_verilog(pipeline=1), hostile.inputs(numbers()) * 1)
    np.testing.assert_array_equal(counts, hostile.counts(numbers()))


@needs("yosys")
def test_hostile_names_in_blif_and_aiger(hostile, tmp_path):
    (tmp_path / "a.blif").write_text(hostile.to_blif())
    (tmp_path / "a.aag").write_text(hostile.to_aiger())
    run(found("yosys"), "-q", "-p", "read_aiger -module_name circuit a.aag; write_blif b.blif", cwd=tmp_path)
    assert equal_circuits("a.blif", "b.blif", tmp_path)


def test_hostile_names_in_numpy(hostile):
    names = module(hostile.to_numpy())
    assert tuple(names["CLASSES"]) == HOSTILE[1:]
    np.testing.assert_array_equal(names["counts"](numbers()), hostile.counts(numbers()))


@pytest.mark.parametrize("name", ["", "1st", "a b", "x;", "_x", "ä", "a" * 65])
def test_the_name_of_a_module_is_an_identifier(name):
    circuit = CIRCUITS["random"]
    for export in (circuit.to_c, circuit.to_verilog, circuit.to_blif):
        with pytest.raises(ValueError, match="name must be a letter"):
            export(name=name)


@needs("gcc")
def test_two_circuits_in_one_file_of_c(tmp_path):
    both = CIRCUITS["random"].to_c(name="circuit") + comparing_circuit().to_c(name="other")
    assert hasattr(compiled(tmp_path, both), "other_predict_row")
