"""Tables of numbers and texts, in every form that people have them in, give what their numbers give."""

import re
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.datasets import load_diabetes, load_iris

from softly.logic import Circuit, LogicClassifier, LogicRegressor
from softly.logic.execution import Comparisons
from softly.logic.netlist import Layer
from softly.logic.tables import Columns

NAN = float("nan")
AGES = [31.0, None, 12.5, 70.0, 3.0]
COLOURS = ["red", "blue", None, "mauve", "blue"]  # nobody knows mauve
NUMBERS = np.array([[31.0, 1.0], [NAN, 0.0], [12.5, NAN], [70.0, NAN], [3.0, 0.0]])


def mixed(**arguments):
    """Four bits of two columns, each a class of its own; and numbers where they are asked for."""
    comparisons = Comparisons(2, np.array([0, 0, 1, 1]), np.array([10.0, 50.0, 0.0, 1.0]), np.array([0, 0, 1, 1]))
    copies = Layer(np.full(4, 3), np.stack((np.arange(4), np.zeros(4, dtype=int))))
    described = {"columns": ["age", "colour"], "texts": [(), ("blue", "red")], "classes": list("abcd")}
    return Circuit(4, [copies], k=4, comparisons=comparisons, **described | arguments)


COUNTS = np.array([[1, 0, 0, 1], [0, 0, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0]])


def tables():
    structured = np.array(
        [(NAN if a is None else a, c or "", i) for i, (a, c) in enumerate(zip(AGES, COLOURS, strict=True))],
        dtype=[("age", "f4"), ("colour", "U5"), ("other", "i8")],
    )
    columns = {"colour": COLOURS, "other": list("vwxyz"), "age": AGES}
    yield "numbers", NUMBERS
    yield "float32", NUMBERS.astype(np.float32)
    yield "tensor", torch.from_numpy(NUMBERS)
    yield "masked", np.ma.masked_invalid(NUMBERS)
    yield "lists", [list(row) for row in zip(AGES, COLOURS, strict=True)]
    yield "tuples", tuple(zip(AGES, COLOURS, strict=True))
    yield "objects", np.array(list(zip(AGES, COLOURS, strict=True)), dtype=object)
    yield "decimals", [(a and Decimal(str(a)), c) for a, c in zip(AGES, COLOURS, strict=True)]
    yield "dictionaries", [{"colour": c, "age": a, "other": 3} for a, c in zip(AGES, COLOURS, strict=True)]
    yield "columns", columns
    yield "structured", structured
    yield "record", structured.view(np.recarray)
    yield "bytes", structured.astype([("age", "f8"), ("colour", "S5"), ("other", "i8")])
    yield "pandas", pd.DataFrame(columns)
    yield "pandas objects", pd.DataFrame(columns, dtype=object)
    yield "pandas categories", pd.DataFrame(columns).astype({"colour": "category"})
    yield "pandas nullable", pd.DataFrame(columns).astype({"age": "Float64", "colour": "string"})
    yield "polars", pl.DataFrame(columns)
    yield "polars categories", pl.DataFrame(columns).with_columns(pl.col("colour").cast(pl.Categorical))


TABLES = dict(tables())


@pytest.mark.parametrize("name", TABLES)
def test_every_form_of_a_table(name):
    circuit = mixed()
    counts = circuit.counts(TABLES[name])
    assert isinstance(counts, torch.Tensor if name == "tensor" else np.ndarray)
    np.testing.assert_array_equal(counts, COUNTS)
    np.testing.assert_array_equal(circuit.predict(TABLES[name]), COUNTS.argmax(-1))
    np.testing.assert_array_equal(circuit(TABLES[name]), COUNTS)
    assert circuit.labels(TABLES[name]).tolist() == ["a", "c", "a", "a", "c"]


def test_one_row():
    assert mixed().predict([31.0, "red"]) == 0
    assert mixed().predict([31.0, "red"]).shape == ()
    assert mixed().labels([3.0, "blue"]) == "c"


def test_tables_after_files(tmp_path):
    mixed().save(tmp_path / "a")
    for table in TABLES.values():
        np.testing.assert_array_equal(Circuit.load(tmp_path / "a").counts(table), COUNTS)


def test_columns_without_names_come_in_their_order():
    circuit = mixed(columns=())
    np.testing.assert_array_equal(circuit.counts(pd.DataFrame({"x": AGES, "y": COLOURS})), COUNTS)
    with pytest.raises(ValueError, match="the table must have 2 columns, got 3"):
        circuit.counts({"x": [1], "y": ["red"], "z": [0]})


def test_bits_in_lists_and_frames():
    circuit = Circuit(2, [Layer(np.array([1]), np.array([[0], [1]]))], k=1, columns=["a", "b"])
    assert circuit.predict([[1, 1], [0, 1]]).tolist() == [1.0, 0.0]
    assert circuit.predict(pd.DataFrame({"b": [True, False], "a": [True, True]})).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ([[31.0, 1]], ValueError, None),
        ([["31", "red"]], TypeError, "column 'age' has numbers, got '31'; convert it, or give None"),
        ([["unknown", "red"]], TypeError, "column 'age' has numbers, got 'unknown'"),
        ([[31.0, "red"], [31.0, 2]], TypeError, "column 'colour' has texts such as 'blue', got 2"),
        ([[31.0, True], [1, "red"]], TypeError, "column 'colour' has texts such as 'blue', got True"),
        ([[1j, "red"]], TypeError, "column 'age' has numbers, got 1j"),
        ([[10**400, "red"]], ValueError, "too large"),
        ([[31.0, "red"], [1.0]], ValueError, "rows of 2 values"),
        ([[31.0, "red", 3]], ValueError, "rows of 2 values"),
        (np.array([[31.0, 2.0]]), ValueError, "by their place, 0 to 1, or NaN; got 2.0"),
        (np.array([[31.0, 0.5]]), ValueError, "got 0.5"),
        ({"age": [1.0]}, ValueError, "the table has no column 'colour'; it has 'age'"),
        ({"age": [1.0], "colour": ["red", "blue"]}, ValueError, "the same length, got [1, 2]"),
        ({"age": [[1.0]], "colour": ["red"]}, ValueError, "column 'age' must be one value a row"),
        ([{"age": 1.0, "colour": "red"}, {"age": 1.0}], ValueError, "row 1 has no 'colour'; give None"),
        (pd.DataFrame([[1.0, "red", 2.0]], columns=["age", "colour", "age"]), ValueError, "the same name"),
        (pd.DataFrame({"age": pd.to_datetime(["2020-01-01"]), "colour": ["red"]}), TypeError, "has numbers, got"),
        (pl.DataFrame({"age": [1.0]}).lazy(), TypeError, "got LazyFrame"),
        ("red", TypeError, "got str"),
        (None, TypeError, "got NoneType"),
        (np.zeros((1, 2), dtype=complex), TypeError, "boolean, integer or floating-point"),
        (torch.zeros(1, 2, dtype=torch.complex64), TypeError, "boolean, integer or floating-point"),
    ],
)
def test_tables_that_are_refused(table, error, message):
    if message is None:  # places, as in an array
        assert mixed().predict(table).tolist() == [0]
        return
    with pytest.raises(error, match=r"softly\.logic\.Circuit\.predict: .*" + re.escape(message)):
        mixed().predict(table)


@pytest.mark.parametrize("value", [0.5, 1.5, 2.0, -1.0, NAN, np.inf])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_what_is_no_bit_is_refused(value, dtype):
    circuit = Circuit(2, [Layer(np.array([1]), np.array([[0], [1]]))], k=1)
    bits = torch.tensor([[0.0, 1.0], [1.0, 1.0]], dtype=getattr(torch, dtype))
    assert circuit.counts(bits).flatten().tolist() == [0, 1]
    bits[1, 0] = value
    with pytest.raises(ValueError, match=f"must be bits, 0 or 1; got {value}"):
        circuit(bits)
    assert circuit.counts(torch.tensor([[3, 255]], dtype=torch.uint8)).item() == 1  # bytes, as in C


# Estimators ----------------------------------------------------------------------------------------------------------

SMALL = {"widths": (60, 60), "epochs": 30, "random_state": 0}


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_estimators_of_frames_with_texts(frame, tmp_path):
    generator = np.random.default_rng(0)
    age, colour = generator.uniform(0, 80, 200), generator.choice(["red", "blue", "green"], 200)
    table = frame({"colour": colour.tolist(), "age": age})
    y = np.where((colour == "red") | (age > 60), "yes", "no")
    model = LogicClassifier(**SMALL).fit(table, y)
    assert model.score(table, y) > 0.85
    model.circuit_.save(tmp_path / "a")
    circuit = Circuit.load(tmp_path / "a")
    assert circuit.columns == ("colour", "age")
    assert circuit.texts == (("blue", "green", "red"), ())
    assert circuit.classes == ("no", "yes")
    assert circuit.labels(table).tolist() == model.predict(table).tolist()
    other = frame({"age": age, "colour": colour.tolist()})  # by name
    np.testing.assert_array_equal(model.predict(other), model.predict(table))


def test_estimators_tell_circuits_of_names_and_classes():
    X, y = load_iris(return_X_y=True, as_frame=True)
    model = LogicClassifier(**SMALL).fit(X, 10 * y)
    assert model.circuit_.columns == tuple(X.columns)
    assert model.circuit_.classes == ("0", "10", "20")
    np.testing.assert_array_equal(model.circuit_.labels(X).astype(int), model.predict(X))
    assert LogicClassifier(**SMALL).fit(X.to_numpy(), y).circuit_.columns == ()


@pytest.mark.parametrize("link", ["identity", "logit"])
def test_the_circuit_of_a_regressor_predicts_what_it_does(link, tmp_path):
    X, y = load_diabetes(return_X_y=True)
    y = 1e6 + y  # more digits than floats have, in double precision none is lost
    model = LogicRegressor(**SMALL, link=link).fit(X, y)
    model.circuit_.save(tmp_path / "a")
    circuit = Circuit.load(tmp_path / "a")
    assert circuit.task == "numbers"
    np.testing.assert_array_equal(circuit.predict(X), model.predict(X))
    np.testing.assert_allclose(circuit(X)[:, 0], model.predict(X), rtol=1e-6)
    assert 1 - ((circuit.predict(X) - y) ** 2).mean() / y.var() == pytest.approx(model.score(X, y))
    assert model.score(X, y) > 0.2


def test_estimators_of_structured_arrays():
    X, y = load_iris(return_X_y=True)
    table = np.rec.fromarrays(X.T, names=["a", "b", "c", "d"])
    model = LogicClassifier(**SMALL).fit(table, y)
    assert model.circuit_.columns == ("a", "b", "c", "d")
    np.testing.assert_array_equal(model.predict(table), LogicClassifier(**SMALL).fit(X, y).predict(X))


def test_names_of_columns_that_are_numbers():
    """As pandas gives them where a file has no header."""
    generator = np.random.default_rng(0)
    table = pd.DataFrame({0: generator.choice(["red", "blue"], 100), 1: generator.normal(size=100)})
    model = LogicClassifier(**SMALL).fit(table, table[0] == "red")
    assert model.circuit_.columns == ("0", "1")
    assert model.score(table[[1, 0]], table[0] == "red") == 1
    assert model.circuit_.labels({1: [0.5], 0: ["red"]}).tolist() == ["True"]
    assert model.circuit_.labels([{0: "blue", 1: 0.5}]).tolist() == ["False"]
    with pytest.raises(ValueError, match="two columns of the table have the same name"):
        model.predict(pd.DataFrame([["red", 1.0, 2.0]], columns=[0, 1, "1"]))


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
def test_dates_are_no_numbers(unit):
    """Some are numbers to NumPy, and what is missing the smallest of them."""
    dates = np.array(["2020-01-01", "2021-01-01", "NaT"] * 20, dtype=f"datetime64[{unit}]")
    colours, y = ["red", "blue", "green"] * 20, [0, 1, 1] * 20
    structured = np.array(list(zip(dates, colours, strict=True)), dtype=[("when", dates.dtype), ("colour", "U5")])
    for table in (structured, pd.DataFrame({"colour": colours, "when": dates}), pd.DataFrame({"when": dates})):
        with pytest.raises(TypeError, match=r"LogicClassifier: column 'when' has numbers, got datetime64"):
            LogicClassifier(**SMALL).fit(table, y)
    with pytest.raises(TypeError, match=r"LogicClassifier: X must be numbers, got datetime64"):
        LogicClassifier(**SMALL).fit(np.stack((dates, dates), 1), y)


@pytest.mark.parametrize("dtype", ["S5", object])
def test_texts_may_be_bytes(dtype):
    colours = np.array([b"red", b"blue", b"green"] * 20)
    table = np.array(list(zip(colours.tolist(), range(60), strict=True)), dtype=[("colour", dtype), ("age", float)])
    model = LogicClassifier(**SMALL).fit(table, colours == b"red")
    assert model.circuit_.texts == (("blue", "green", "red"), ())
    assert model.score(table, colours == b"red") == 1


def test_columns_of_nothing_with_texts():
    assert Columns.of(np.zeros((2, 2))) is None
    assert Columns.of([[1, "a"]]) is None
    assert Columns.of(pd.DataFrame({"a": [1.0]})) is None
