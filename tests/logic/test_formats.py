"""Circuits in files: what is written is read again, and what anybody else wrote does no harm."""

import json
import os
import resource
import stat
import struct
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file
from torch import nn

import softly
from softly.logic import Circuit, LogicLayer, LogicNetwork, Logit, OneHot, Thermometer, formats
from softly.logic.netlist import Layer

MOST = 100 << 20  # bytes that reading a small file may take, whatever it says


@pytest.fixture(autouse=True)
def _memory():
    """Less memory than the machine has, so that a file that asks for all of it fails a test and nothing else."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def explicit(widths=(7, 9), k=3, **arguments):
    generator, below, layers = np.random.default_rng(0), 5, []
    for width in widths:
        layers.append(Layer(generator.integers(0, 16, width), generator.integers(0, below, (2, width))))
        below = width
    return Circuit(5, layers, k=k, **arguments)


def comparing():
    table = torch.randn(50, 3)
    encoding = softly.logic.ColumnEncoding([([0, 2], Thermometer(3)), ([1], OneHot())]).fit(table.round())
    network = LogicNetwork(encoding.num_bits, [11, 12], 4, tau=2.5, beta=-1.0, encoding=encoding, seed=3)
    return softly.logic.discretize(network, columns=["a", 'b"\n', "\ud800"], classes=["", "x", "y", "ü" * 1000])


class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = LogicLayer(5, 7, seed=0), LogicLayer(9, 4, seed=1)

    def forward(self, x):
        first = self.first(x)
        return torch.cat((self.second(torch.cat((first, x[:, :2]), 1)), first[:, 5:], x[:, 3:]), 1)


CIRCUITS = {
    "explicit": explicit,
    "odd widths": lambda: explicit((1, 3, 5), 5),
    "seeded": lambda: softly.logic.discretize(LogicNetwork(20, [31, 30], 5, tau=3.0, seed=2)),
    "unique": lambda: softly.logic.discretize(LogicNetwork(20, [31, 30], 5, wiring="unique", seed=2)),
    "regression": lambda: softly.logic.discretize(
        nn.Sequential(LogicLayer(9, 20, seed=0), softly.logic.GroupSum(2, tau=10.0), Logit(10))
    ),
    "comparing": comparing,
    "of texts": lambda: comparing().described(
        texts=[(), ("", "a", '"ü"'), ()], missing=["unknown"], task="numbers", scale=0.1, shift=1e9
    ),
    "of few kinds": lambda: softly.logic.discretize(LogicNetwork(20, [31, 30], 5, gates=["and", "or", "xor"], seed=2)),
    "with a skip": lambda: softly.logic.discretize(Skip()),
    "of one kind": lambda: softly.logic.discretize(LogicNetwork(20, [31, 30], 5, gates=["xor"], seed=2)),
}


def rows(circuit):
    numbers = np.random.default_rng(1).integers(-2, 3, (100, circuit.num_columns))
    numbers = numbers if circuit.comparisons is None else numbers.astype(float)
    for column, texts in enumerate(circuit.texts):
        numbers[:, column] %= len(texts) or 5
    return numbers


def assert_equal(a, b):
    names = ("num_inputs", "k", "tau", "beta", "logit_size", "scale", "shift", "task")
    for name in (*names, "columns", "texts", "missing", "classes"):
        assert getattr(a, name) == getattr(b, name), name
    assert (a.comparisons is None) == (b.comparisons is None)
    if a.comparisons is not None:
        for name in ("num_columns", "columns", "thresholds", "kinds"):
            np.testing.assert_array_equal(getattr(a.comparisons, name), getattr(b.comparisons, name))
    for one, other in zip(a.layers, b.layers, strict=True):
        np.testing.assert_array_equal(one.gates, other.gates)
        np.testing.assert_array_equal(one.wires, other.wires)
        assert one.wiring == other.wiring
        np.testing.assert_array_equal(one.source, other.source)
    np.testing.assert_array_equal(a.outputs, b.outputs)
    np.testing.assert_array_equal(a(rows(a)), b(rows(a)))


@pytest.mark.parametrize("name", CIRCUITS)
def test_round_trip(name, tmp_path):
    circuit = CIRCUITS[name]()
    circuit.save(tmp_path / "a")
    loaded = Circuit.load(tmp_path / "a")
    assert_equal(circuit, loaded)
    loaded.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_wiring_by_seed_takes_no_room_and_other_wiring_some(tmp_path):
    network = LogicNetwork(100, [4000, 4000], 4, seed=0)
    softly.logic.discretize(network).save(tmp_path / "seeded")
    assert (tmp_path / "seeded").stat().st_size < 4000 + 1000
    with torch.no_grad():
        network.layers[1].wires[:, 0] = torch.tensor([5, 6])
    circuit = softly.logic.discretize(network)
    assert [layer.wiring is None for layer in circuit.layers] == [False, True]
    circuit.save(tmp_path / "changed")
    assert_equal(circuit, Circuit.load(tmp_path / "changed"))


@pytest.mark.parametrize("name", ["bits", "columns", "regression"])
def test_files_of_the_first_version(name):
    folder = Path(__file__).with_name("files")
    expected = json.loads((folder / "expected-1.json").read_text())[name]
    circuit = Circuit.load(folder / f"{name}-1.safetensors")
    rows = np.array(expected["rows"], dtype=float)
    np.testing.assert_array_equal(circuit(rows), np.array(expected["scores"], dtype=np.float32))
    assert (list(circuit.columns), list(circuit.classes)) == (expected["columns"], expected["classes"])


@pytest.mark.parametrize(("kinds", "bits"), [(16, 4), (8, 3), (3, 2), (2, 1), (1, 1)])
def test_gates_take_the_bits_that_tell_their_kinds_apart(kinds, bits, tmp_path):
    circuit = softly.logic.discretize(LogicNetwork(100, [8000, 8000], 4, gates=list(range(kinds)), seed=0))
    circuit.save(tmp_path / "a")
    assert bits * 2000 <= (tmp_path / "a").stat().st_size < bits * 2000 + 1200


def test_thresholds_that_columns_share_are_written_once(tmp_path):
    encoding = softly.logic.Threshold([0.25, 0.5, 0.75]).fit(torch.zeros(1, 3072))  # CIFAR-10 of the chapter, small
    network = LogicNetwork(encoding.num_bits, [12000] * 4, 10, encoding=encoding, seed=0)
    circuit = softly.logic.discretize(network)
    circuit.save(tmp_path / "a")
    assert (tmp_path / "a").stat().st_size < 24_000 + 2000
    np.testing.assert_array_equal(Circuit.load(tmp_path / "a").comparisons.columns, circuit.comparisons.columns)


# Writing -------------------------------------------------------------------------------------------------------------


def test_a_failing_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    explicit().save(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(formats.os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        explicit((4, 6)).save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_a_file_may_be_read_by_whom_the_umask_lets(tmp_path):
    previous = os.umask(0o022)
    try:
        explicit().save(tmp_path / "a")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o644


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        explicit().save(tmp_path / "none" / "a")
    with pytest.raises(FileNotFoundError):
        Circuit.load(tmp_path / "none")


# Files that are not what they should be ------------------------------------------------------------------------------


def parts(circuit=None):
    """What a file consists of, to be spoiled: tensors and description."""
    circuit = circuit or explicit()
    described = {
        "format": "softly.circuit",
        "version": 1,
        "num_inputs": circuit.num_inputs,
        "k": circuit.k,
        "tau": 1.0,
        "beta": 0.0,
        "logit_size": 0,
    }
    described |= {"columns": [], "classes": [], "layers": [{"width": len(layer.gates)} for layer in circuit.layers]}
    tensors = {}
    for number, layer in enumerate(circuit.layers):
        gates = np.pad(layer.gates, (0, len(layer.gates) % 2))
        tensors[f"gates.{number}"] = (gates[::2] | gates[1::2] << 4).astype(np.uint8)
        tensors[f"wires.{number}"] = layer.wires.astype(np.int32)
    return tensors, described


def written(path, tensors, described):
    save_file(tensors, path, {"circuit": described if isinstance(described, str) else json.dumps(described)})
    return path


def refused(path, reason):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=reason):
            Circuit.load(path)
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()


def test_what_the_spoiled_files_begin_with(tmp_path):
    assert_equal(Circuit.load(written(tmp_path / "a", *parts())), explicit())


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 7, b"\0" * 100, b"PK\x03\x04" * 30, b"\xff" * 100, b"{}", b"\x02" + b"\0" * 7 + b"{}"]
)
def test_no_safetensors_file(data, tmp_path):
    (tmp_path / "a").write_bytes(data)
    refused(tmp_path / "a", "no safetensors file|it is no circuit")


def test_a_header_longer_than_the_file(tmp_path):
    (tmp_path / "a").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    refused(tmp_path / "a", "no safetensors file")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": "softly.mesh"}, "its format is 'softly.mesh', not 'softly.circuit'"),
        ({"format": None}, "its format is None"),
        ({"version": 3}, "its version is 3; this softly reads 1 and 2"),
        ({"version": "1"}, "its version is '1'; this softly reads 1 and 2"),
        ({"version": True}, "its version is True"),
        ({"version": [[]]}, "its version is"),
    ],
)
def test_another_format_or_version(changes, reason, tmp_path):
    tensors, described = parts()
    refused(written(tmp_path / "a", tensors, described | changes), reason)


def test_another_safetensors_file(tmp_path):
    save_file(parts()[0], tmp_path / "a", {"format": "pt"})
    refused(tmp_path / "a", "it is no circuit, but another safetensors file")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "3", '"x"', "[" * 100_000, '{"a":' * 100_000, "9" * 5000, '{"num_inputs": ' + "9" * 5000],
    ids=lambda text: text[:10],
)
def test_a_description_that_is_none(text, tmp_path):
    refused(written(tmp_path / "a", parts()[0], text), "its description")


WHOLE = [None, "5", 5.0, True, -1, 0, [], {}, 2**63, 10**400]


@pytest.mark.parametrize("value", [*WHOLE, 10**15, 2**62, 2**31])
def test_inputs_that_cannot_be(value, tmp_path):
    tensors, described = parts()
    refused(written(tmp_path / "a", tensors, described | {"num_inputs": value}), "num_inputs|more than it could use")


@pytest.mark.parametrize("value", [*WHOLE, 2, 10**15])
def test_groups_that_cannot_be(value, tmp_path):
    tensors, described = parts()
    refused(written(tmp_path / "a", tensors, described | {"k": value}), "'?k'? (must|= )")


@pytest.mark.parametrize("key", ["tau", "beta"])
@pytest.mark.parametrize("value", [None, "1", True, [], {}, float("nan"), float("inf"), -float("inf"), 10**400])
def test_scores_that_cannot_be(key, value, tmp_path):
    tensors, described = parts()
    refused(written(tmp_path / "a", tensors, described | {key: value}), f"'{key}' must be a finite number")


@pytest.mark.parametrize("tau", [0, -1.0])
def test_a_temperature_that_is_not_positive(tau, tmp_path):
    tensors, described = parts()
    refused(written(tmp_path / "a", tensors, described | {"tau": tau}), "tau must be positive")


@pytest.mark.parametrize("key", ["columns", "classes"])
@pytest.mark.parametrize("value", [None, "abcde", {}, 5, [1] * 5, [None] * 3, ["a"], [["a"]] * 3])
def test_names_that_cannot_be(key, value, tmp_path):
    tensors, described = parts()
    refused(written(tmp_path / "a", tensors, described | {key: value}), f"{key}'? must")


@pytest.mark.parametrize(
    "value", [None, "x", {}, 3, [], [None], [[]], [{}], [{"width": 7}] * 3, [{"width": 7}, {"width": 10**15}]]
)
def test_layers_that_cannot_be(value, tmp_path):
    tensors, described = parts()
    refused(written(tmp_path / "a", tensors, described | {"layers": value}), "layer|'width'|gates")


@pytest.mark.parametrize("key", ["num_inputs", "k", "tau", "beta", "logit_size", "columns", "classes", "layers"])
def test_a_part_that_is_missing(key, tmp_path):
    tensors, described = parts()
    del described[key]
    refused(written(tmp_path / "a", tensors, described), f"'{key}' must be")


@pytest.mark.parametrize("width", [*WHOLE, 6, 9, 10**15])
def test_a_width_that_cannot_be(width, tmp_path):
    tensors, described = parts()
    described["layers"][0]["width"] = width
    refused(written(tmp_path / "a", tensors, described), "'width' must|bytes of them")


@pytest.mark.parametrize("wire", [5, -1, 2**31 - 1, -(2**31)])
def test_a_wire_out_of_range(wire, tmp_path):
    tensors, described = parts()
    tensors["wires.0"][1, 3] = wire
    refused(written(tmp_path / "a", tensors, described), r"wires of layer 0 must be in \[0, 4\]")


@pytest.mark.parametrize("tensor", ["gates.0", "wires.1"])
def test_a_tensor_that_is_missing(tensor, tmp_path):
    tensors, described = parts()
    del tensors[tensor]
    refused(written(tmp_path / "a", tensors, described), f"it has no '{tensor}'")


@pytest.mark.parametrize("tensor", ["gates.0", "wires.1"])
@pytest.mark.parametrize("change", ["float64", "int64", "bool", "flat", "empty", "scalar", "deep"])
def test_a_tensor_of_another_kind(tensor, change, tmp_path):
    tensors, described = parts()
    value = tensors[tensor]
    if change in ("float64", "int64", "bool"):
        value = value.astype(change)
    else:
        shapes = {
            "flat": value.reshape(-1),
            "empty": value[..., :0],
            "scalar": value.reshape(-1)[0],
            "deep": value[None],
        }
        value = np.ascontiguousarray(shapes[change]) if change != "scalar" else np.array(shapes[change])
        if tensor == "gates.0" and change == "flat":
            value = np.append(value, value)
    tensors[tensor] = value
    refused(written(tmp_path / "a", tensors, described), "which it can't be|bytes of them|layer 1 has")


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "U128", "", 7])
def test_a_dtype_that_numpy_does_not_have(dtype, tmp_path):
    tensors, described = parts()
    data = written(tmp_path / "a", tensors, described).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header["gates.0"]["dtype"] = dtype
    if dtype == "BF16":
        header["gates.0"]["shape"] = [2]
    text = json.dumps(header).encode()
    (tmp_path / "a").write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])
    refused(tmp_path / "a", "can't be|no safetensors file|can't be read")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"wiring": "none"}, "name must be one of random, unique"),
        ({"wiring": ["random"]}, "'wiring' must be a str"),
        ({"wiring": "unique"}, "5 inputs have 10 pairs, too few for 12 gates"),
        ({"seed": -1}, "'seed' must be"),
        ({"seed": 2**63}, "'seed' must be"),
        ({"seed": 0.5}, "'seed' must be"),
        ({"seed": None}, "'seed' must be"),
    ],
)
def test_a_wiring_that_cannot_be(changes, reason, tmp_path):
    tensors, described = parts(explicit((12, 9)))
    described["layers"][0] |= {"wiring": "random", "seed": 0} | changes
    refused(written(tmp_path / "a", tensors, described), reason)


def test_a_seeded_wiring_of_absurdly_many_inputs(tmp_path):
    tensors, described = parts()
    described["layers"][0] |= {"wiring": "random", "seed": 0}
    for inputs in (10**15, 2**40, 2**21):
        refused(written(tmp_path / "a", tensors, described | {"num_inputs": inputs}), "more than it could use")
    refused(written(tmp_path / "a", tensors, described | {"num_inputs": 1}), "in_dim must be at least 2")


def comparisons(**changes):
    tensors, described = parts()
    described["num_columns"] = 2
    tensors["comparisons.columns"] = np.array([0, 1, 0, 1, 1], dtype=np.int32)
    tensors["comparisons.thresholds"] = np.arange(5.0)
    tensors["comparisons.kinds"] = np.array([0, 1, 0, 1, 1], dtype=np.uint8)
    for name, value in changes.items():
        if name == "num_columns":
            described[name] = value
        elif value is None:
            del tensors[f"comparisons.{name}"]
        else:
            tensors[f"comparisons.{name}"] = value
    return tensors, described


def test_comparisons_that_can_be(tmp_path):
    assert Circuit.load(written(tmp_path / "a", *comparisons())).num_columns == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_columns": 1}, r"columns outside of \[0, 0\]"),
        ({"num_columns": 0}, "'num_columns' must be"),
        ({"num_columns": 2.0}, "'num_columns' must be"),
        ({"num_columns": 10**15}, "fewer than 2\\^31"),
        ({"columns": np.array([0, 1, 0, 1, -1], dtype=np.int32)}, "columns outside of"),
        ({"columns": np.array([0, 1, 0, 1], dtype=np.int32)}, "must give 5 bits, got 4"),
        ({"columns": np.zeros((5, 1), dtype=np.int32)}, "which it can't be"),
        ({"columns": np.zeros(5)}, "which it can't be"),
        ({"thresholds": np.zeros(4)}, "must give 5 bits"),
        ({"thresholds": np.zeros(5, dtype=np.float32)}, "which it can't be"),
        ({"thresholds": np.full(5, np.nan)}, "must not be NaN"),
        ({"kinds": np.full(5, 2, dtype=np.uint8)}, "kinds of comparisons must be 0 or 1"),
        ({"kinds": np.zeros(6, dtype=np.uint8)}, "must give 5 bits"),
        ({"kinds": None}, "it has no 'comparisons.kinds'"),
    ],
)
def test_comparisons_that_cannot_be(changes, reason, tmp_path):
    refused(written(tmp_path / "a", *comparisons(**changes)), reason)


def second(name="of texts"):
    """Tensors and description of a file of the second version."""
    with tempfile.NamedTemporaryFile() as file:
        CIRCUITS[name]().save(file.name)
        with safe_open(file.name, framework="numpy") as opened:
            described = json.loads(opened.metadata()["circuit"])
            return {key: opened.get_tensor(key) for key in opened.keys()}, described  # noqa: SIM118


def test_what_the_spoiled_files_of_the_second_version_begin_with(tmp_path):
    assert Circuit.load(written(tmp_path / "a", *second())).texts[1] == ("", "a", '"ü"')


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("scale", None, "'scale' must be a finite number"),
        ("shift", "0", "'shift' must be a finite number"),
        ("task", "sorting", "task must be 'classes' or 'numbers'"),
        ("task", 1, "'task' must be a str"),
        ("texts", None, "'texts' must be a list"),
        ("texts", [[], ["a"]], "texts must be given for all of the 3 columns"),
        ("texts", [[], ["a", "a"], []], "texts of column 1 must be different"),
        ("texts", [[], "a", []], "'texts' must be a list"),
        ("texts", [[], [1], []], "'texts' must be names"),
        ("missing", [1], "'missing' must be names"),
        ("columns", ["a", "a", "b"], "columns must have different names"),
    ],
)
def test_descriptions_of_the_second_version_that_cannot_be(key, value, reason, tmp_path):
    tensors, described = second()
    refused(written(tmp_path / "a", tensors, described | {key: value}), reason)


@pytest.mark.parametrize("kinds", [None, [], [16], [-1], [True], [1.0], list(range(17)), ["and"]])
def test_kinds_that_cannot_be(kinds, tmp_path):
    tensors, described = second()
    described["layers"][0]["kinds"] = kinds
    refused(written(tmp_path / "a", tensors, described), "'kinds'|bytes of them")


def test_gates_of_no_kind(tmp_path):
    tensors, described = second("of few kinds")
    tensors["gates.0"][:] = 255
    refused(written(tmp_path / "a", tensors, described), "gates of none of its 3 kinds")


@pytest.mark.parametrize(
    ("part", "value", "reason"),
    [
        ("thresholds", np.zeros(0), "thresholds that are not there"),
        ("thresholds", np.full(50, np.nan), "must not be NaN"),
        ("lengths", np.array([200], dtype=np.uint8), "not those of the ladders"),
        ("lengths", np.array([-1], dtype=np.int8), "which it can't be"),
        ("runs", np.zeros((1, 2), dtype=np.uint8), "ladders that are not there"),
        ("runs", np.array([[0, 1, 99]], dtype=np.uint8), "ladders that are not there"),
        ("runs", np.array([[0, 1, 0]], dtype=np.uint8), "must give .* bits"),
        ("runs", np.array([[0, 2**32 - 1, 0]] * 9, dtype=np.uint32), "must give .* bits"),
        ("runs", np.zeros((0, 3), dtype=np.uint8), "must give .* bits"),
        ("ladders", np.array([1.0]), "which it can't be"),
    ],
)
def test_ladders_that_cannot_be(part, value, reason, tmp_path):
    tensors, described = second()
    tensors[f"comparisons.{part}"] = value
    refused(written(tmp_path / "a", tensors, described), reason)


@pytest.mark.parametrize("tensor", ["sources.1", "outputs"])
@pytest.mark.parametrize(
    "value", [[[0, 2**31]], [[0, 0]], [[0, 1, 2]], [[99, 1]], [[0, 2**32 - 1]] * 9, np.zeros((0, 2)), [[-1, 1]]]
)
def test_sources_that_cannot_be(tensor, value, tmp_path):
    tensors, described = second("with a skip")
    kind = np.uint32 if np.min(value, initial=0) >= 0 else np.int32
    tensors[tensor] = np.array(value, dtype=kind)
    refused(written(tmp_path / "a", tensors, described), "must be runs|must be values|which it can't be|in_dim|k = ")


def test_columns_of_ladders_that_are_not_there(tmp_path):
    tensors, described = second()
    tensors["comparisons.runs"][:, 0] += 100
    refused(written(tmp_path / "a", tensors, described), "columns outside of")


# Fuzzing -------------------------------------------------------------------------------------------------------------


def harmless(path):
    """Either a circuit that runs or a reason why not, and never much memory."""
    reason = "softly.logic."
    tracemalloc.start()
    try:
        circuit = Circuit.load(path)
        if circuit.num_columns <= 1 << 20:  # any number is good that no comparison looks at
            assert circuit.counts(np.zeros((2, circuit.num_columns))).shape == (2, circuit.k)
    except ValueError as error:
        reason = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert reason.startswith("softly.logic.")
    assert peak < MOST


FUZZED = ["explicit", "seeded", "comparing", "of texts", "of few kinds", "with a skip"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    torch.manual_seed(0)
    for name in FUZZED:
        CIRCUITS[name]().save(folder / name)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("name", FUZZED)
def test_truncated_files(name, files, tmp_path):
    data = files[name]
    for length in {*range(0, 16), *range(0, len(data), max(1, len(data) // 60)), len(data) - 1}:
        (tmp_path / "a").write_bytes(data[:length])
        refused(tmp_path / "a", "no safetensors file")
    (tmp_path / "a").write_bytes(data + b"\0")
    refused(tmp_path / "a", "no safetensors file")


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(
    st.sampled_from(FUZZED),
    st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=4)), min_size=1, max_size=8),
)
def test_bytes_that_were_changed(files, tmp_path, name, changes):
    data = bytearray(files[name])
    for place, replacement in changes:
        start = int(place * (len(data) - 1))
        data[start : start + len(replacement)] = replacement
    (tmp_path / "a").write_bytes(data)
    harmless(tmp_path / "a")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["width", "seed", "wiring", "a"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@FUZZ
@given(st.data())
def test_descriptions_that_were_changed(tmp_path, data):
    tensors, described = data.draw(st.sampled_from([parts, comparisons, second]))()
    for key in data.draw(st.lists(st.sampled_from([*described, "layer"]), min_size=1, max_size=3)):
        if key == "layer" and isinstance(described["layers"], list) and described["layers"]:
            layer = data.draw(st.sampled_from(["width", "seed", "wiring", "kinds"]))
            if isinstance(described["layers"][0], dict):
                described["layers"][0][layer] = data.draw(JSON | st.sampled_from(["random", "unique", 3]))
        else:
            described[key] = data.draw(JSON)
    harmless(written(tmp_path / "a", tensors, described))
