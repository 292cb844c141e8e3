"""Circuits against the models they come from, and against gates that are evaluated one by one."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import softly
from softly.logic import (
    Circuit,
    ColumnEncoding,
    GroupSum,
    LogicLayer,
    LogicNetwork,
    Logit,
    OneHot,
    Thermometer,
    Threshold,
    discretize,
    gates,
)
from softly.logic.execution import Comparisons, Engine
from softly.logic.netlist import AND, XOR, Layer, build

NATIVE = pytest.mark.skipif(not softly.native.available(), reason="the compiled kernels are not there")


def layers_of(generator, num_inputs, widths, kinds=16):
    below, layers = num_inputs, []
    for width in widths:
        layers.append(Layer(generator.choice(kinds, width), generator.integers(0, below, (2, width))))
        below = width
    return layers


def one_by_one(layers, bits):
    """(examples, inputs) to (examples, outputs) by the truth tables alone."""
    truth = gates.TRUTH.numpy()
    for layer in layers:
        a, b = bits[:, layer.wires[0]].astype(int), bits[:, layer.wires[1]].astype(int)
        bits = truth[layer.gates, 2 * a + b]
    return bits


def all_bits(n):
    return np.array(list(itertools.product((0, 1), repeat=n)), dtype=np.uint8)


@pytest.fixture(params=[pytest.param(True, marks=[NATIVE, pytest.mark.native]), False], ids=["native", "numpy"])
def engine(request, monkeypatch):
    """A function that makes engines with or without kernels."""

    def make(netlist, k, comparisons=None):
        with monkeypatch.context() as patch:
            if not request.param:
                patch.setattr(softly.native.library, "module", None)
            return Engine(netlist, k, comparisons)

    return make


@settings(deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    num_inputs=st.integers(1, 6),
    widths=st.lists(st.integers(1, 12), min_size=1, max_size=4),
)
def test_simplified_netlist_equals_the_gates(seed, num_inputs, widths):
    layers = layers_of(np.random.default_rng(seed), num_inputs, widths)
    netlist = build(num_inputs, layers)
    x = all_bits(num_inputs)
    values = [np.zeros(len(x), bool), *x.T.astype(bool)]
    literal = lambda l: values[l >> 1] ^ bool(l & 1)  # noqa: E731
    seen = set()
    for node, kind, a, b in netlist.gates():
        assert node == len(values)
        assert 2 <= a < b < 2 * node, "constants and copies are gone, and inputs come first"
        assert a ^ b != 1
        assert kind == AND or not (a | b) & 1
        assert (kind, a, b) not in seen, "equal gates are one"
        seen.add((kind, a, b))
        values.append(literal(a) & literal(b) if kind == AND else literal(a) ^ literal(b))
    np.testing.assert_array_equal(np.stack([literal(o) for o in netlist.outputs], 1), one_by_one(layers, x))
    used = {o >> 1 for o in netlist.outputs} | {v >> 1 for _, _, a, b in netlist.gates() for v in (a, b)}
    assert all(node in used for node, *_ in netlist.gates()), "dead gates are gone"


def test_levels_are_longest_ways():
    layers = layers_of(np.random.default_rng(3), 8, [30, 30, 30])
    netlist = build(8, layers)
    level = [0] * 9
    for (_, _, a, b), stated in zip(netlist.gates(), netlist.levels, strict=True):
        level.append(1 + max(level[a >> 1], level[b >> 1]))
        assert level[-1] == stated
    assert netlist.depth == max(level) <= 3


def test_known_simplifications():
    wires = np.array([[0], [1]])
    a_and_not_a = [Layer(np.array([3, 12]), np.array([[0, 0], [1, 1]])), Layer(np.array([1]), wires)]
    assert build(2, a_and_not_a).outputs.tolist() == [0]
    assert build(2, [a_and_not_a[0], Layer(np.array([7]), wires)]).outputs.tolist() == [1]
    twice_negated = [Layer(np.array([12, 5]), np.array([[0, 0], [1, 1]])), Layer(np.array([12]), wires)]
    assert build(2, twice_negated).outputs.tolist() == [2]
    de_morgan = build(2, [Layer(np.array([7, 8, 14, 1, 6, 9]), np.array([[0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 1, 0]]))])
    assert de_morgan.num_gates == 3
    assert sorted(de_morgan.kinds.tolist()) == [AND, AND, XOR]
    a, b, c, d, e, f = de_morgan.outputs
    assert (a ^ 1, c ^ 1, e ^ 1) == (b, d, f)


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 255, 256, 257, 511, 512, 513, 1500])
@pytest.mark.parametrize(
    ("num_inputs", "widths", "k"), [(1, [4], 2), (17, [40, 30], 3), (33, [64, 48], 1), (70, [90], 90)]
)
def test_any_number_of_rows(engine, rows, num_inputs, widths, k):
    generator = np.random.default_rng(rows)
    layers = layers_of(generator, num_inputs, widths)
    x = generator.integers(0, 2, (rows, num_inputs), dtype=np.uint8)
    expected = one_by_one(layers, x).reshape(rows, k, widths[-1] // k).sum(-1)
    made = engine(build(num_inputs, layers), k)
    np.testing.assert_array_equal(made.counts(x), expected)
    np.testing.assert_array_equal(made.best(x), expected.argmax(-1) if rows else np.zeros(0))


@pytest.mark.parametrize("group", [*range(1, 20), 31, 32, 33, 255, 256, 257, 1000])
def test_counts_of_every_size(engine, group):
    generator = np.random.default_rng(group)
    layers = layers_of(generator, 9, [3 * group])
    x = np.concatenate([all_bits(9), all_bits(9)[:5]])
    expected = one_by_one(layers, x).reshape(len(x), 3, group).sum(-1)
    made = engine(build(9, layers), 3)
    np.testing.assert_array_equal(made.counts(x), expected)
    np.testing.assert_array_equal(made.best(x), expected.argmax(-1))


def test_ties_go_to_the_lowest_class(engine):
    copies = Layer(np.full(300, 3), np.zeros((2, 300), dtype=np.int64))  # 300 classes of one bit, all alike
    made = engine(build(1, [copies]), 300)
    assert made.best(np.array([[0], [1]], dtype=np.uint8)).tolist() == [0, 0]


def test_more_than_a_panel_of_inputs(engine):
    generator = np.random.default_rng(0)
    layers = layers_of(generator, 2500, [3000, 700])
    x = generator.integers(0, 2, (600, 2500), dtype=np.uint8)
    made = engine(build(2500, layers), 7)
    np.testing.assert_array_equal(made.counts(x), one_by_one(layers, x).reshape(600, 7, -1).sum(-1))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads(threads):
    before = torch.get_num_threads()
    generator = np.random.default_rng(0)
    layers = layers_of(generator, 100, [300, 200])
    x = generator.integers(0, 2, (5000, 100), dtype=np.uint8)
    circuit = Circuit(100, layers, k=10)
    try:
        torch.set_num_threads(threads)
        np.testing.assert_array_equal(circuit.counts(x), one_by_one(layers, x).reshape(5000, 10, -1).sum(-1))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8", ">i4", "f4", "f8"])
def test_memory_in_another_order_is_read_as_numbers(engine, dtype):
    """Big-endian numbers, and ones that begin at any byte; thresholds for them were those of other rows, too."""
    comparisons = Comparisons(3, np.array([0, 1, 2]), np.array([0.25, 0.5, 2.0]), np.array([0, 0, 1]))
    made = engine(build(3, [Layer(np.full(3, 3), np.stack((np.arange(3), np.zeros(3, dtype=int))))]), 3, comparisons)
    x = np.random.default_rng(0).integers(0, 4, (600, 3)).astype(dtype)
    shifted = np.frombuffer(b"." + x.tobytes(), dtype=np.uint8)[1:].view(dtype).reshape(x.shape)
    expected = comparisons(x.astype(float))
    for rows in (x, shifted, x.astype(np.float32), x.astype(np.float64)):
        np.testing.assert_array_equal(made.counts(rows), expected)
        np.testing.assert_array_equal(made.best(rows), expected.argmax(-1))


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int64, np.float16, np.float32, np.float64])
def test_every_number_but_zero_is_true(engine, dtype):
    layers = layers_of(np.random.default_rng(1), 6, [20])
    x = all_bits(6)
    made = engine(build(6, layers), 4)
    expected = made.counts(x)
    np.testing.assert_array_equal(made.counts((x * (3 if dtype != np.bool_ else 1)).astype(dtype)), expected)


SPECIAL = [0.0, -0.0, 0.1, 1 / 3, 5e-324, 1e-45, -1e-40, 1e308, -1e308, 3.5e38, 255.0, 255.5, 256.0, np.inf, -np.inf]


@pytest.mark.parametrize("rows", [1, 3, 16, 17, 300, 511, 512, 513, 1100])
@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int64, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("num_columns", [1, 3, 40])
def test_comparisons_are_those_in_double_precision(engine, rows, dtype, num_columns):
    generator = np.random.default_rng(rows)
    with np.errstate(over="ignore"):
        some = np.concatenate((SPECIAL, np.float32(SPECIAL).astype(float), generator.normal(size=20), np.arange(4.0)))
    count = 4 * num_columns + 3
    given = Comparisons(
        num_columns,
        generator.integers(0, num_columns, count),
        generator.choice(some, count),
        generator.integers(0, 2, count),
    )
    comparisons, _ = given.merged()
    bits = len(comparisons.columns)
    copies = Layer(np.full(bits, 3), np.stack((np.arange(bits), np.zeros(bits, dtype=int))))
    x = generator.choice([*some, np.nan], (rows, num_columns))
    if np.dtype(dtype).kind in "ui":
        x = np.clip(np.nan_to_num(x), 0, 255)
    with np.errstate(over="ignore"):
        x = x.astype(dtype)
        near = np.nextafter(x, x.dtype.type(1)) if x.dtype.kind == "f" else x
    x = np.where(generator.integers(0, 2, x.shape) == 1, x, near)
    values = x.astype(np.float64)[:, comparisons.columns]
    expected = np.where(comparisons.kinds == 1, values == comparisons.thresholds, values >= comparisons.thresholds)
    made = engine(build(bits, [copies]), bits, comparisons)
    np.testing.assert_array_equal(made.counts(x), expected)
    np.testing.assert_array_equal(made.best(x), expected.argmax(-1))


@NATIVE
@pytest.mark.native
@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int16, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("rows", [1, 3000])
def test_numbers_are_compared_by_kernels(dtype, rows, monkeypatch):
    """NumPy took 83 times as long for a row of numbers as the kernels for its bits."""
    comparisons, _ = Comparisons(2, np.zeros(3, int), np.array([0.5, 1.0, 1.5]), np.array([0, 1, 0])).merged()
    made = Engine(build(3, [Layer(np.full(3, 3), np.stack((np.arange(3), np.zeros(3, dtype=int))))]), 3, comparisons)
    x = np.random.default_rng(0).integers(0, 2, (rows, 2)).astype(dtype)
    expected = comparisons(x)
    monkeypatch.delattr(Comparisons, "__call__")
    np.testing.assert_array_equal(made.counts(x), expected)
    np.testing.assert_array_equal(made.best(x), expected.argmax(-1))


def test_bytes_with_one_comparison_a_column_are_packed_as_they_are(engine):
    generator = np.random.default_rng(0)
    columns = np.array([1, 2, 5, 9])
    comparisons = Comparisons(12, columns, np.array([0.0, 99.5, 255.0, -3.0]), np.zeros(4, dtype=int))
    layers = layers_of(generator, 4, [9, 6])
    x = generator.integers(0, 256, (700, 12), dtype=np.uint8)
    made = engine(build(4, layers), 3, comparisons)
    np.testing.assert_array_equal(made.counts(x), one_by_one(layers, comparisons(x)).reshape(700, 3, 2).sum(-1))


def test_an_engine_wants_comparisons_by_column():
    comparisons = Comparisons(2, np.array([1, 0]), np.zeros(2), np.zeros(2, dtype=int))
    with pytest.raises(ValueError, match=r"as from Comparisons\.merged"):
        Engine(build(2, layers_of(np.random.default_rng(0), 2, [4])), 1, comparisons)


def encodings():
    table = torch.tensor([[0.0, 3.0, 10.0], [1.0, 3.0, 250.0], [2.0, 5.0, 40.0], [1.0, 4.0, 90.0]])
    yield Threshold([0.5, 1.5, 40.0]).fit(table)
    yield Thermometer(3).fit(table)
    yield OneHot().fit(table)
    yield Threshold(40.0).fit(table)
    yield Threshold(-1.0).fit(table)
    yield Threshold(300.0).fit(table)
    yield Threshold(39.5).fit(table)
    yield ColumnEncoding([([0, 1], OneHot()), ([2], Thermometer(2))]).fit(table)


@pytest.mark.parametrize("encoding", list(encodings()), ids=str)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float64, torch.int64])
def test_encodings_are_part_of_the_circuit(encoding, dtype):
    model = (
        LogicNetwork(encoding.num_bits, [12, 12], 3, tau=2.0, encoding=encoding, seed=0)
        if encoding.num_bits > 1
        else None
    )
    assert model is not None
    rows = torch.tensor([[0, 3, 10], [1, 3, 250], [2, 5, 40], [1, 4, 90], [0, 0, 39], [255, 255, 255]]).to(dtype)
    circuit = discretize(model)
    assert circuit.num_columns == 3
    assert torch.equal(circuit(rows), model.eval()(rows))


@pytest.mark.parametrize("head", [[], [GroupSum(4, tau=3.7, beta=-0.3)], [GroupSum(2, tau=10.0), Logit(10)]])
@pytest.mark.parametrize("kind", ["array", "tensor"])
def test_scores_equal_the_model(head, kind):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        LogicLayer(9, 50, seed=1), torch.nn.Sequential(LogicLayer(50, 20, seed=2)), *head
    ).eval()
    circuit = discretize(model)
    x = torch.randint(0, 2, (4, 77, 9), dtype=torch.uint8)
    expected = model(x.float())
    if kind == "tensor":
        assert torch.equal(circuit(x), expected)
        assert torch.equal(circuit.predict(x), expected.argmax(-1))
    else:
        np.testing.assert_array_equal(circuit(x.numpy()), expected.numpy())
        np.testing.assert_array_equal(circuit.predict(x.numpy()), expected.argmax(-1).numpy())
        assert circuit(x.numpy()).dtype == np.float32


def test_trained_on_digits():
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn has the data")
    torch.manual_seed(0)
    images, labels = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    x, y = torch.tensor(images[order]), torch.tensor(labels[order])
    encoding = Threshold([4.0, 8.0, 12.0]).fit(x)
    model = LogicNetwork(encoding.num_bits, [600, 600], 10, tau=6.0, encoding=encoding, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), 0.03)
    loss = torch.nn.functional.cross_entropy
    for _ in range(10):
        softly.logic.training.train_epoch(model, optimizer, loss, x[:1400], y[:1400], batch_size=50)
    circuit = discretize(model)
    assert torch.equal(circuit(x), softly.logic.training.evaluate(model, x))
    assert (circuit.predict(x)[1400:] == y[1400:]).float().mean() > 0.85
    assert torch.equal(circuit.predict(x.to(torch.uint8)), circuit.predict(x))


def test_copies_and_pickles():
    circuit = Circuit(4, layers_of(np.random.default_rng(0), 4, [9, 6]), k=3, tau=2.0, classes=["a", "b", "c"])
    x = all_bits(4)
    expected = circuit(x)
    for other in (copy.deepcopy(circuit), pickle.loads(pickle.dumps(circuit))):
        np.testing.assert_array_equal(other(x), expected)
        assert other.classes == circuit.classes


def test_estimators_predict_with_their_circuit():
    pytest.importorskip("sklearn", reason="the estimators are scikit-learn's")
    generator = np.random.default_rng(0)
    X = generator.normal(size=(200, 3))
    y = (X[:, 0] > 0.2).astype(int)
    model = softly.logic.LogicClassifier((60, 60), epochs=10, random_state=0).fit(X, y)
    network = softly.logic.training.evaluate(model.network_, torch.tensor(X))
    assert torch.equal(model.circuit_(torch.tensor(X)), network)
    np.testing.assert_array_equal(model.predict(X), model.classes_[model.circuit_.predict(X)])
    regressor = softly.logic.LogicRegressor((60, 60), epochs=10, link="logit", random_state=0).fit(X, X[:, 0])
    assert regressor.circuit_.logit_size == 60
    assert regressor.predict(X).shape == (200,)


def test_summary():
    layers = [Layer(np.array([1, 6, 3, 15]), np.array([[0, 0, 0, 0], [1, 1, 1, 1]]))]
    summary = Circuit(2, layers, k=2).summary()
    assert summary.histogram.tolist() == [[0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1]]
    assert (summary.gates_before, summary.gates_after, summary.ands_after, summary.xors_after) == (4, 2, 1, 1)
    assert "4 gates of depth 1 became 2 (1 and, 1 xor) of depth 1." in str(summary)
    pytest.importorskip("matplotlib", reason="draws the picture")
    from matplotlib import pyplot as plt

    axes = summary.plot()
    assert [text.get_text() for text in axes.get_yticklabels()] == ["layer 1"]
    plt.close(axes.figure)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": [Layer(np.array([16]), np.array([[0], [1]]))]}, "gates of layer 0 must be in"),
        ({"layers": [Layer(np.array([1]), np.array([[0], [2]]))]}, "wires of layer 0 must be in"),
        ({"layers": [Layer(np.array([1]), np.array([[0], [-1]]))]}, "wires of layer 0 must be in"),
        ({"layers": []}, "at least one layer"),
        ({"k": 2}, "must divide the 1 outputs"),
        ({"tau": 0.0}, "tau must be positive"),
        ({"beta": float("nan")}, "beta finite"),
        ({"classes": ["a", "b"]}, "classes must have 1 names"),
        ({"comparisons": Comparisons(1, np.array([0]), np.array([0.5]), np.array([0]))}, "must give 2 bits"),
    ],
)
def test_bad_circuits_are_refused(change, message):
    good = {"num_inputs": 2, "layers": [Layer(np.array([1]), np.array([[0], [1]]))], "k": 1}
    Circuit(**good)
    with pytest.raises(ValueError, match=message):
        Circuit(**{**good, **change})


def test_bad_input_is_refused():
    circuit = Circuit(2, [Layer(np.array([1]), np.array([[0], [1]]))], k=1)
    with pytest.raises(ValueError, match=r"x must be of shape \(\.\.\., 2\), got \(3,\)"):
        circuit(np.zeros(3))
    with pytest.raises(TypeError, match="x must be boolean, integer or floating-point"):
        circuit(np.zeros(2, dtype=complex))
    with pytest.raises(TypeError, match="can't take Linear where it stands"):
        discretize(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    with pytest.raises(TypeError, match="can't take LogicLayer"):
        discretize(torch.nn.Sequential(LogicLayer(4, 4), GroupSum(2), LogicLayer(4, 4)))
    with pytest.raises(TypeError, match="no LogicLayer"):
        discretize(torch.nn.Sequential())
    with pytest.raises(ValueError, match="fit the encoding"):
        discretize(torch.nn.Sequential(OneHot(), LogicLayer(4, 4)))


def test_described_has_the_same_gates():
    circuit = Circuit(2, [Layer(np.array([1, 6]), np.array([[0, 0], [1, 1]]))], k=2, columns=["a", "b"])
    assert circuit.predict([{"a": 1, "b": 0}]).tolist() == [1]
    other = circuit.described(columns=["c", "d"], classes=["and", "xor"], tau=2.0)
    assert other.netlist is circuit.netlist
    assert other.labels([{"c": 1, "d": 0}]).tolist() == ["xor"]
    np.testing.assert_array_equal(other(np.array([[1, 0]])), circuit(np.array([[1, 0]])) / 2)
    assert (circuit.columns, circuit.classes, circuit.tau) == (("a", "b"), (), 1.0)
    assert pickle.loads(pickle.dumps(other)).columns == ("c", "d")
    with pytest.raises(ValueError, match="classes must have 2 names, got 1"):
        circuit.described(classes=["and"])
    with pytest.raises(TypeError, match=r"described: changes must be of tau, .*; got k\. Other gates make another"):
        circuit.described(k=1)
