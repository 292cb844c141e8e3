"""`softly logic`, as a user runs it: from a file to a circuit to source code."""

import csv
import ctypes
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from judges import needs
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from typer.testing import CliRunner

from softly.logic import Circuit, Encoding, LogicClassifier, LogicRegressor, circuit
from softly_lab import circuits
from softly_lab.commands import commands
from softly_lab.data import files
from softly_lab.logic_commands import logic

HOSTILE = ['a"b', "*/ int x; /*", "`define\n$finish", "[red]größe[/red]", "\x1b[31m; rm -rf", "'''", "%s {0} ${name}"]
SMALL = ("--layers", "3", "--width", "120", "--epochs", "50", "--bits", "8")


GCC, ICARUS = needs("gcc"), needs("iverilog")


@pytest.fixture
def softly(tmp_path, monkeypatch):
    """Runs `softly logic` with these arguments, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(commands, ["logic", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def done(softly):
    """The same where nothing may go wrong; what is printed."""

    def run(*arguments):
        result = softly(*arguments)
        assert result.exit_code == 0, result.stderr[-2000:]
        return result.stdout

    return run


def written(path, header, rows, **options):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, **options)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def from_sklearn(path, name):
    data = getattr(datasets, f"load_{name}")()
    rows = [[*row, data.target_names[y]] for row, y in zip(data.data.tolist(), data.target, strict=True)]
    return written(path / f"{name}.csv", [*data.feature_names, "kind"], rows)


def classes_in_c(source, rows, folder):
    (folder / "c").mkdir(exist_ok=True)
    (folder / "c" / "model.c").write_text(source, encoding="ascii")
    options = ("-Os", "-Wall", "-Wextra", "-Werror", "-std=c99", "-pedantic", "-shared", "-fPIC")
    subprocess.run(["gcc", *options, "-o", "model.so", "model.c"], check=True, cwd=folder / "c")
    library = ctypes.CDLL(str(folder / "c" / "model.so"))
    rows = np.ascontiguousarray(rows)
    return np.array([library.circuit_predict_row(row.ctypes.data_as(ctypes.c_void_p)) for row in rows])


def simulated(circuit, source, bits, folder):
    (folder / "model.v").write_text(source, encoding="ascii")
    rows = "\n".join(
        f'    x = {circuit.netlist.num_inputs}\'b{"".join(map(str, row[::-1].tolist()))}; #1 $display("%d", index);'
        for row in bits.astype(int)
    )
    (folder / "test.v").write_text(f"""
module test;
  reg [{circuit.netlist.num_inputs - 1}:0] x;
  wire [{max(1, (circuit.k - 1).bit_length()) - 1}:0] index;
  circuit dut (.x(x), .index(index));
  initial begin
{rows}
  end
endmodule
""")
    subprocess.run(["iverilog", "-g2001", "-o", "test", "test.v", "model.v"], check=True, cwd=folder)
    printed = subprocess.run(["vvp", "-n", "test"], check=True, cwd=folder, capture_output=True, text=True).stdout
    return np.array(printed.split(), dtype=int)


@pytest.fixture(scope="module", params=["iris", "wine", "breast_cancer"])
def trained(request, tmp_path_factory):
    """The folder of a circuit, what was printed when it was trained, the circuit, and the table."""
    folder = tmp_path_factory.mktemp(request.param)
    data, model = from_sklearn(folder, request.param), folder / "model.safetensors"
    arguments = ["logic", "train", str(data), "--target", "kind", "--out", str(model), *SMALL]
    result = CliRunner().invoke(commands, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return folder, result.stdout, Circuit.load(model), files.read(data, "kind")


def test_the_accuracy_that_is_printed(trained):
    _, printed, circuit, table = trained
    accuracy = float(re.search(r"held-out rows: ([\d.]+) %", printed)[1])
    assert accuracy >= 85
    # It is that of the circuit in the file, on rows that were held out.
    _, held = circuits.split(table, 0.2, 0)
    assert accuracy == pytest.approx(100 * (circuit.predict(table.rows) == table.target)[held].mean(), abs=0.05)


@pytest.mark.parametrize("name", ["iris", "wine"])
def test_a_few_epochs_are_enough(name, done, tmp_path):
    """They gave circuits of no gates, and less than guessing."""
    printed = done("train", from_sklearn(tmp_path, name), "--target", "kind", "--epochs", "20", "--width", "600")
    assert float(re.search(r"held-out rows: ([\d.]+) %", printed)[1]) > 85


def test_a_circuit_that_learned_nothing_says_so(softly, tmp_path):
    data = from_sklearn(tmp_path, "iris")
    result = softly("train", data, "--target", "kind", "--epochs", "1", "--width", "30", "--learning-rate", "0.01")
    assert result.exit_code == 0
    assert "warning: softly.logic.LogicClassifier: the circuit is worse than" in result.stderr


def test_inspect(trained, done):
    folder, _, circuit, table = trained
    inspected = done("inspect", folder / "model.safetensors")
    assert str(circuit.summary()) in inspected
    assert "columns: " + ", ".join(table.columns) in inspected
    assert "classes: " + ", ".join(table.classes) in inspected


def test_numpy_predicts_the_same(trained, done):
    folder, _, circuit, table = trained
    names = {}
    exec(done("export", folder / "model.safetensors", "--to", "numpy"), names)
    np.testing.assert_array_equal(names["predict"](table.rows), circuit.predict(table.rows))


@GCC
def test_c_predicts_the_same(trained, done, tmp_path):
    folder, _, circuit, table = trained
    source = done("export", folder / "model.safetensors", "--to", "c")
    np.testing.assert_array_equal(classes_in_c(source, table.rows, tmp_path), circuit.predict(table.rows))


@ICARUS
def test_verilog_predicts_the_same(trained, done, tmp_path):
    folder, _, circuit, table = trained
    source, bits = done("export", folder / "model.safetensors", "--to", "verilog"), circuit.inputs(table.rows)
    np.testing.assert_array_equal(simulated(circuit, source, bits, tmp_path), circuit.predict(table.rows))


def test_exports_that_are_printed_or_written(done, tmp_path):
    data = from_sklearn(tmp_path, "iris")
    done("train", data, "--target", "kind", "--epochs", "1", "--width", "30")
    circuit, model = Circuit.load(tmp_path / "model.safetensors"), "model.safetensors"
    for form, source in (("blif", circuit.to_blif()), ("aiger", circuit.to_aiger()), ("numpy", circuit.to_numpy())):
        assert done("export", model, "--to", form) == source
    pipelined = done("export", model, "--to", "verilog", "--pipeline", "2", "--name", "iris")
    assert pipelined == circuit.to_verilog(pipeline=2, name="iris")
    assert done("export", model, "--to", "c", "--floats", "--name", "a") == circuit.to_c(name="a", numbers="float")
    fixed = done("export", model, "--to", "verilog", "--fixed", "16", "8")
    assert fixed == circuit.to_verilog(fixed=(16, 8))
    assert done("export", model, "--to", "aig", "--out", "a.aig") == ""
    assert (tmp_path / "a.aig").read_bytes() == circuit.to_aiger(binary=True)
    assert done("export", model, "--to", "c", "--out", "a.c") == ""
    assert (tmp_path / "a.c").read_text() == circuit.to_c()


@pytest.fixture
def hostile(tmp_path):
    """Names of columns and classes that end comments, strings and lines; texts, and values that are missing."""
    generator = np.random.default_rng(0)
    rows = []
    for _ in range(120):
        a, b = generator.normal(size=2).round(2)
        text = str(generator.choice(HOSTILE[:3]))
        label = HOSTILE[3 + (a > 0) + (text == HOSTILE[0])]
        rows.append([a if generator.random() < 0.9 else "", b if generator.random() < 0.9 else "?", text, label])
    rows[3][3] = ""
    return written(tmp_path / "hostile.csv", [HOSTILE[0], HOSTILE[1], HOSTILE[2], HOSTILE[6]], rows)


def test_hostile_names_texts_and_missing_values(hostile, done, tmp_path):
    printed = done("train", hostile, "--target", HOSTILE[6], *SMALL)
    assert "119 rows of 3 columns, 3 classes; 1 left out" in printed
    table, circuit = files.read(hostile, HOSTILE[6]), Circuit.load(tmp_path / "model.safetensors")
    assert circuit.columns == tuple(HOSTILE[:3])
    assert circuit.texts == ((), (), tuple(sorted(HOSTILE[:3])))
    assert circuit.classes == tuple(sorted(HOSTILE[3:6]))
    assert np.isnan(table.rows[:, :2]).any()
    predicted = circuit.predict(table.rows)
    assert (predicted == table.target).mean() > 0.8

    inspected = done("inspect", "model.safetensors")
    assert "\x1b" not in printed + inspected
    assert r"\x1b[31m" in inspected
    assert "[red]größe[/red]" in inspected


@GCC
@ICARUS
def test_hostile_names_in_source(hostile, done, tmp_path):
    done("train", hostile, "--target", HOSTILE[6], *SMALL, "--epochs", "2")
    table, circuit = files.read(hostile, HOSTILE[6]), Circuit.load("model.safetensors")
    predicted, bits = circuit.predict(table.rows), circuit.inputs(table.rows)
    c, verilog = (done("export", "model.safetensors", "--to", form) for form in ("c", "verilog"))
    np.testing.assert_array_equal(classes_in_c(c, table.rows, tmp_path), predicted)
    np.testing.assert_array_equal(simulated(circuit, verilog, bits, tmp_path), predicted)


def test_the_installed_command(tmp_path):
    command = [Path(sys.executable).with_name("softly"), "logic", "train", from_sklearn(tmp_path, "iris")]
    result = subprocess.run(
        [*command, "--target", "kind", "--epochs", "20", "--width", "60"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert "150 rows of 4 columns, 3 classes" in result.stdout
    assert Circuit.load(tmp_path / "model.safetensors").classes == ("setosa", "versicolor", "virginica")


def test_numbers_to_predict(done, tmp_path):
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (200, 3))
    data = written(
        tmp_path / "a.csv", ["a", "b", "c", "y"], np.column_stack((x, 100 + 20 * x[:, 0] - 9 * x[:, 1])).tolist()
    )
    printed = done("train", data, "--target", "y", *SMALL)
    assert float(re.search(r"held-out rows: ([\d.]+), mean error", printed)[1]) > 0.7
    circuit, table = Circuit.load(tmp_path / "model.safetensors"), files.read(data, "y")
    assert (circuit.k, circuit.classes) == (1, ())
    assert np.corrcoef(circuit(table.rows)[:, 0], table.target)[0, 1] > 0.8
    np.testing.assert_array_equal(predicted(done("predict", "model.safetensors", data)), circuit.predict(table.rows))


def predicted(printed):
    header, *lines = printed.splitlines()
    assert header == "prediction"
    return np.array(lines, dtype=float)


# New rows ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(tmp_path):
    """A table of a number and a text, of which one or both are missing in some rows; a bar in the text."""
    generator = np.random.default_rng(0)
    rows = []
    for number in range(150):
        age, colour = round(generator.uniform(0, 80), 1), str(generator.choice(["red", "light|blue", "green"]))
        label = "yes" if colour == "red" or age > 60 else "no"
        rows.append(["" if number % 10 == 0 else age, "?" if number % 15 == 0 else colour, label])
    return written(tmp_path / "mixed.csv", ["age", "colour", "answer"], rows)


def test_predict_on_new_rows(mixed, done, tmp_path):
    done("train", mixed, "--target", "answer", *SMALL)
    circuit = Circuit.load("model.safetensors")
    assert (circuit.columns, circuit.texts) == (("age", "colour"), ((), ("green", "light|blue", "red")))
    # Other columns, another order, another delimiter, decimal commas, and a colour that nobody has seen.
    new = "id;colour;age\n1;red;3,5\n2; green ;70\n3;mauve;\n4;NA;2,25\n"
    (tmp_path / "new.csv").write_text(new)
    rows = [[3.5, "red"], [70.0, "green"], [None, "mauve"], [2.25, None]]
    expected = circuit.labels(rows).tolist()
    assert done("predict", "model.safetensors", "new.csv").splitlines() == ["prediction", *expected]
    assert expected[:2] == ["yes", "yes"]
    assert done("predict", "model.safetensors", "new.csv", "--out", "out.csv") == ""
    assert (tmp_path / "out.csv").read_text().splitlines() == ["prediction", *expected]
    np.savez(tmp_path / "new.npz", age=np.array([3.5, 70.0]), colour=np.array(["red", "green"]))
    assert done("predict", "model.safetensors", "new.npz").splitlines() == ["prediction", *expected[:2]]


def test_words_for_missing_values_are_remembered(done, softly, tmp_path):
    rows = [(i if i % 4 else "unknown", i % 7, "a" if i % 7 > 3 else "b") for i in range(60)]
    data = written(tmp_path / "a.csv", ["x", "z", "y"], rows)
    result = softly("train", data, "--target", "y", *SMALL)
    assert result.exit_code == 1
    assert "line 2: column 'x' has numbers, but here 'unknown': say --missing unknown" in result.stderr
    assert "--texts x if its values are texts" in result.stderr
    done("train", data, "--target", "y", *SMALL, "--missing", "Unknown")
    assert len(done("predict", "model.safetensors", data).splitlines()) == 61
    assert Circuit.load("model.safetensors").missing == ("Unknown",)
    (tmp_path / "b.csv").write_text("x,z\n1,2\nlost,3\n")
    result = softly("predict", "model.safetensors", "b.csv")
    assert "line 3: column 'x' has numbers, but here 'lost': say --missing lost" in result.stderr
    assert len(done("predict", "model.safetensors", "b.csv", "--missing", "lost").splitlines()) == 3
    done("train", data, "--target", "y", *SMALL, "--texts", "x")
    assert "unknown" in Circuit.load("model.safetensors").texts[0]


def test_circuits_of_frames_predict_on_the_files_of_the_frames(done, softly, tmp_path):
    """Where texts have spaces, or are words for missing values to files, and where columns are flags."""
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"age": generator.uniform(0, 80, 150), "flag": generator.random(150) > 0.5})
    frame[" colour"] = generator.choice([" red", " blue", "None", "", "NA "], 150)
    frame.loc[::10, "age"] = np.nan
    y = np.where((frame["age"] > 40) ^ frame["flag"] ^ frame[" colour"].isin([" red", "None", ""]), "yes", "no")
    model = LogicClassifier((80, 80), epochs=40, random_state=0).fit(frame, y)
    model.circuit_.save("model.safetensors")
    for form in ("a.csv", "b.npz"):
        if form == "a.csv":
            frame.to_csv(form, index=False)
        else:
            texts = frame[" colour"].to_numpy().astype(str)
            np.savez(form, **{" colour": texts}, age=frame["age"].to_numpy(), flag=frame["flag"].to_numpy())
        assert done("predict", "model.safetensors", form).split() == ["prediction", *model.predict(frame)]
    printed = done("predict", "model.safetensors", "a.csv")
    assert done("predict", "model.safetensors", "a.csv", "--missing", "none") != printed
    (tmp_path / "c.csv").write_text("age,flag,colour\n1,True,red\n2,perhaps,red\n")
    result = softly("predict", "model.safetensors", "c.csv")
    assert "line 2: column 'flag' has numbers, but here 'True'" in result.stderr
    model.circuit_.described(texts=[(), (), ("red", " red", "", "NA", "None")]).save("same.safetensors")
    assert "some texts of column ' colour' differ by spaces" in softly("predict", "same.safetensors", "a.csv").stderr


@pytest.mark.parametrize(
    ("values", "decimal", "numbers"),
    [
        (["1,5", "2", "-0,25"], "auto", [1.5, 2, -0.25]),
        (["1,5e3", "NA"], "auto", [1500, np.nan]),
        (["0,125", "0,250"], "auto", [0.125, 0.25]),
        (["1,234", "2,500"], "comma", [1.234, 2.5]),
        (["1.5", "2"], "auto", [1.5, 2]),
        (["1.5", "2"], "point", [1.5, 2]),
    ],
)
def test_decimal_commas(values, decimal, numbers, tmp_path):
    data = written(tmp_path / "a.csv", ["x", "y"], [(v, i) for i, v in enumerate(values)], delimiter=";")
    np.testing.assert_array_equal(files.read(data, "y", decimal=decimal).rows[:, 0], numbers)


@pytest.mark.parametrize(
    ("values", "decimal", "reason"),
    [
        (["1,234", "2,500"], "auto", "may be a number of thousands or one with a decimal comma: say --decimal"),
        (["1.5", "2,5"], "auto", "line 3: column 'x' has numbers, but here '2,5'"),
        (["1", "2,5"], "point", "line 3: column 'x' has numbers, but here '2,5'"),
        (["1,234,567", "1"], "auto", "line 2: column 'x' has numbers, but here '1,234,567'"),
        (["1,5", "1.234"], "comma", "column 'x' has '1.234', which with decimal commas may be a number of thousands"),
    ],
)
def test_numbers_that_may_be_others(values, decimal, reason, tmp_path):
    data = written(tmp_path / "a.csv", ["x", "y"], [(v, i) for i, v in enumerate(values)], delimiter=";")
    with pytest.raises(ValueError, match=re.escape(reason)):
        files.read(data, "y", decimal=decimal)


def test_targets_are_not_misled_either(tmp_path):
    data = written(tmp_path / "a.csv", ["x", "y"], [(i, i + 0.5 if i else "lost") for i in range(9)])
    with pytest.raises(ValueError, match="line 2: column 'y' has numbers, but here 'lost': say --missing lost"):
        files.read(data, "y")
    assert files.read(data, "y", missing=["lost"]).skipped == 1
    assert "lost" in files.read(data, "y", task="classes").classes


def test_the_same_seed_gives_the_same_file(done, tmp_path):
    data = from_sklearn(tmp_path, "iris")
    for out, seed in (("a", 1), ("b", 1), ("c", 2)):
        done("train", data, "--target", "kind", "--out", out, "--seed", seed, "--epochs", "3", "--width", "60")
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c


# Files ---------------------------------------------------------------------------------------------------------------


def test_forms_of_csv(tmp_path):
    (tmp_path / "a.csv").write_bytes('\ufeff;"x y"; z \r\n0;1,5;a\r\n\r\n1; 2 ;"b;c"\r\n2;NA;a\r\n'.encode())
    table = files.read(tmp_path / "a.csv", "z")
    assert table.columns == ("column 1", "x y")
    assert table.classes == ("a", "b;c")
    np.testing.assert_array_equal(table.rows, [[0, 1.5], [1, 2], [2, np.nan]])
    np.testing.assert_array_equal(table.target, [0, 1, 0])
    assert files.read(tmp_path / "a.csv", "z", drop=["x y"]).columns == ("column 1",)


@pytest.mark.parametrize(
    ("values", "task", "classes"),
    [
        (["2", "1", "1.0"], "auto", ("1", "2")),
        (["0.5", "1", "2"], "auto", ()),
        (["0.5", "1", "2"], "classes", ("0.5", "1.0", "2.0")),
        ([str(i) for i in range(30)], "auto", ()),
        ([str(i) for i in range(3)], "numbers", ()),
        (["yes", "no", "?"], "auto", ("no", "yes")),
    ],
)
def test_what_a_target_is(values, task, classes, tmp_path):
    data = written(tmp_path / "a.csv", ["x", "y"], [(i, value) for i, value in enumerate(values)])
    assert files.read(data, "y", task=task).classes == classes


def test_npz(tmp_path):
    x, names = np.arange(12.0).reshape(3, 2, 2), np.array(["a", "b", "a"])
    np.savez(tmp_path / "a.npz", image=x, flag=np.array([True, False, True]), colour=names, y=np.array([3, 1, 3]))
    table = files.read(tmp_path / "a.npz", "y")
    assert table.columns == (*(f"image_{i}" for i in range(4)), "flag", "colour")
    np.testing.assert_array_equal(table.rows[:, :4], x.reshape(3, 4))
    np.testing.assert_array_equal(table.rows[:, 4:], [[1, 0], [0, 1], [1, 0]])
    assert table.texts == ((),) * 5 + (("a", "b"),)
    assert table.classes == ("1", "3")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no rows below a header"),
        ("x,y\n", "no rows below a header"),
        ("x,z\n1,2\n", "there is no column 'y'; there are 'x', 'z'"),
        ("x,y\n1,2\n1,2,3\n", "line 3: 3 fields instead of 2"),
        ("x,y\n1,a\n2,a\n", "has one class only, 'a'"),
        ("x,y\n1,\n2,?\n", "column 'y' is empty"),
        ("y\n1\n2\n", "no column but 'y' to learn from"),
        ("x,x,y\n1,2,3\n1,2,4\n", "two columns are called 'x'"),
        ('x,y\n"1,2\n', "unexpected end of data"),
        ("x,y\n1,2\ninf,3\n", "column 'x' has infinite numbers"),
        ("x,y\n" + "".join(f"t{i},{i % 2}\n" for i in range(150)), "150 different texts, such as 't99'.*--drop"),
        ("x,y\n" + "".join(f"{i},t{i}\n" for i in range(300)), "300 classes; 256 are the most"),
        ("x\0,y\n\x1b,2\n1,3,\n", "line 3"),
    ],
)
def test_a_bad_csv(text, reason, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match=reason):
        files.read(tmp_path / "a.csv", "y")


def test_files_that_are_something_else(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"x,y\n\xff\xfe,1\n")
    with pytest.raises(ValueError, match="no text in UTF-8"):
        files.read(tmp_path / "a.csv", "y")
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 and so on")
    with pytest.raises(ValueError, match="no npz file"):
        files.read(tmp_path / "a.npz", "y")
    np.savez(tmp_path / "b.npz", x=np.zeros((3, 2)), y=np.zeros(4))
    with pytest.raises(ValueError, match="the same number of rows"):
        files.read(tmp_path / "b.npz", "y")
    np.savez(tmp_path / "c.npz", x=np.array([None, {}]), y=np.zeros(2))
    with pytest.raises(ValueError, match="no npz file"):
        files.read(tmp_path / "c.npz", "y")
    np.savez(tmp_path / "d.npz", x=np.zeros(2, dtype=complex), y=np.zeros(2))
    with pytest.raises(ValueError, match="neither numbers nor texts"):
        files.read(tmp_path / "d.npz", "y")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("train", "none.csv", "--target", "y"), "No such file"),
        (("train", "a.csv", "--target", "z"), "no column 'z'; there are 'x', 'y'"),
        (("train", "a.csv", "--target", "y", "--out", "none/m"), "there is no folder none"),
        (("train", "a.csv", "--target", "y", "--layers", "0"), "layers must be at least 1, got 0"),
        (("train", "a.csv", "--target", "y", "--held-out", "1"), "share of held-out rows must be between 0 and 1"),
        (("train", "a.csv", "--target", "y"), "3 rows are too few"),
        (("inspect", "none"), "No such file"),
        (("inspect", "a.csv"), "no safetensors file"),
        (("predict", "m", "a.csv"), "this circuit has no names of columns"),
        (("predict", "named", "a.csv"), "there is no column 'z'; there are 'x', 'y'"),
        (("export", "m", "--to", "c", "--pipeline", "2"), "--pipeline is for Verilog, not for c"),
        (("export", "m", "--to", "verilog", "--pipeline", "-2"), "pipeline must be a whole number from 0"),
        (("export", "m", "--to", "c", "--name", "a b"), "name must be a letter"),
        (("export", "m", "--to", "aig"), "aig is binary: say --out FILE"),
        (("export", "m", "--to", "blif", "--floats"), "--floats is for C, not for blif"),
        (("export", "m", "--to", "c", "--fixed", "16", "8"), "--fixed is for Verilog, not for c"),
        (("export", "m", "--to", "verilog", "--name", "reg"), "name must not be a word of Verilog"),
        (("export", "m", "--to", "aiger", "--name", "a"), "--name is for C, Verilog and BLIF"),
    ],
)
def test_errors_are_one_line(arguments, reason, softly, tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,a\n2,b\n3,b\n")
    circuit_of_two_inputs().save(tmp_path / "m")
    circuit_of_two_inputs().described(columns=["x", "z"]).save(tmp_path / "named")
    result = softly(*arguments)
    assert result.exit_code == 1
    assert re.fullmatch(rf"softly: [^\n]*{reason}[^\n]*\n", result.stderr), result.stderr


def circuit_of_two_inputs():
    from softly.logic.netlist import Layer

    return Circuit(2, [Layer(np.array([6]), np.array([[0], [1]]))], k=1)


def test_one_bit_is_enough_and_none_says_so(tmp_path):
    data = written(tmp_path / "a.csv", ["x", "y"], [(i % 2, i % 2) for i in range(20)])
    assert circuits.train(files.read(data, "y"), circuits.Config(width=20)).held_out == 1
    data = written(tmp_path / "a.csv", ["x", "y"], [(1, i % 2) for i in range(20)])
    with pytest.warns(ConvergenceWarning, match="without any gates"):
        circuits.train(files.read(data, "y"), circuits.Config(width=20, epochs=1))


TABLES = {
    LogicClassifier: files.Table(("x",), np.arange(40.0)[:, None], ((),), np.arange(40) % 2, ("no", "yes"), 0),
    LogicRegressor: files.Table(("x",), np.arange(40.0)[:, None], ((),), np.arange(40) / 2, (), 0),
}


@pytest.mark.parametrize("estimator", TABLES)
def test_defaults_are_those_of_the_estimators(estimator):
    """Layers were four for numbers, too."""
    made = circuits._estimator(TABLES[estimator], circuits.Config(seed=3), None)
    assert type(made) is estimator
    own = {"encoding": made.encoding, "random_state": 3, "widths": list(estimator().widths)}
    assert made.get_params() == {**estimator().get_params(), **own}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("estimator", TABLES)
def test_encoding_and_circuit_are_made_once(estimator, monkeypatch):
    made = []
    for owner, name in ((Encoding, "fit"), (circuit, "build")):
        function = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, f=function, n=name, **k: (made.append(n), f(*a, **k))[1])
    result = circuits.train(TABLES[estimator], circuits.Config(layers=1, width=8, epochs=1), missing=["?"])
    assert made == ["fit", "build"]
    assert (result.circuit.columns, result.circuit.missing) == (("x",), ("?",))


def test_the_help_says_the_defaults():
    shown = {option.name: option.show_default for option in typer.main.get_command(logic).commands["train"].params}
    classes, numbers = (
        {name: given.default for name, given in inspect.signature(estimator).parameters.items()}
        for estimator in (LogicClassifier, LogicRegressor)
    )
    assert shown["layers"] == f"{len(classes['widths'])}, {len(numbers['widths'])} for numbers"
    assert {int(shown["width"])} == {*classes["widths"], *numbers["widths"]}
    for name in ("bits", "batch_size"):
        assert int(shown[name]) == classes[name] == numbers[name]


def test_the_split_keeps_shares_of_classes():
    target = np.repeat([0, 1, 2], [100, 10, 1])
    table = files.Table(("x",), np.zeros((111, 1)), ((),), target, ("a", "b", "c"), 0)
    train, held = circuits.split(table, 0.2, 0)
    assert sorted([*train, *held]) == list(range(111))
    np.testing.assert_array_equal(np.bincount(target[held], minlength=3), [20, 2, 0])
    assert not np.array_equal(held, circuits.split(table, 0.2, 1)[1])
    # However much is held out, there is a row of every class to learn from.
    train, _ = circuits.split(table, 0.97, 0)
    np.testing.assert_array_equal(np.bincount(target[train]), [3, 1, 1])
