"""Logic gate networks as an experiment: its data, and what its options do."""

import gzip
import os

import numpy as np
import pytest
import torch
from PIL import Image

from softly.logic import Threshold, parametrizations
from softly_lab import architectures
from softly_lab.data import folder, images, tables
from softly_lab.experiments import logic
from softly_lab.runner import run

real_data = pytest.mark.skipif("SOFTLY_DATA" not in os.environ, reason="SOFTLY_DATA names no folder")


def toy(seed):
    """Three of MONK's columns matter: the first two are equal, or the fifth has its first value (MONK-1)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.stack([torch.randint(0, n, (300,), generator=generator) for n in (3, 3, 2, 3, 4, 2)], 1).float()
    y = ((x[:, 0] == x[:, 1]) | (x[:, 4] == 0)).long()
    return (x[:200], y[:200]), (x[200:], y[200:])


@pytest.fixture
def task(monkeypatch):
    """Makes and runs a task on toy data."""
    monkeypatch.setitem(logic.DATA, "monk1", toy)
    made = []

    def start(config):
        made.append(logic.Logic(config))
        return made[-1]

    experiment = logic.Experiment("logic", "", 6, logic.Config, start, {"quick": {"data": "monk1"}})
    usual = {"epochs": 6, "hard_epochs": 0, "learning_rate": 0.05, "select": False, "attempts": 1, "decay": False}

    def go(**options):
        result = run(experiment, experiment.configure("quick", **{**usual, **options}))
        return made[-1], result

    return go


def test_it_learns(task):
    _, result = task(epochs=150, report=50)
    assert result.final["accuracy"] > 75


def test_recipes():
    for name, recipe in logic.RECIPES.items():
        assert name in logic.DATA
        assert recipe["architecture"] in architectures.names()
        assert logic.settled(logic.Config(data=name)).batch_size >= 1
    with pytest.raises(ValueError, match="best of 3 attempts"):
        logic.settled(logic.Config(data="adult", attempts=3))
    with pytest.raises(ValueError, match="architecture must be one of"):
        logic.settled(logic.Config(data="adult", architecture="big"))


def test_best_epoch_and_attempt_on_the_training_data_are_kept(task):
    (x, y), _ = toy(0)
    chosen, _ = task(select=True, epochs=30, report=30)
    last, _ = task(epochs=30, report=30)
    bits = chosen.encoding(x)
    scores = [logic.accuracy(made.chosen().eval()(bits), y) for made in (chosen, last)]
    assert scores[0] >= scores[1]
    several, _ = task(select=True, attempts=3, epochs=30, report=30)
    assert several.best["quality"] >= chosen.best["quality"]
    assert several.steps == 90


def test_hard_epochs_end_on_the_hard_network(task):
    made, result = task(hard_epochs=3, decay=True, weight_decay=0.01)
    assert result.final["step"] == 9
    assert result.final["accuracy"] == result.final["relaxed"]
    assert {layer.parametrization for layer in made.network.layers} == {parametrizations.get("straight_through")}


def test_images_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv("SOFTLY_DATA", str(tmp_path))
    rng = np.random.default_rng(0)
    (tmp_path / "mnist").mkdir()
    for name, count in (("train", 3), ("t10k", 2)):
        pixels, labels = rng.integers(0, 256, (count, 28, 28), np.uint8), np.arange(count, dtype=np.uint8)
        for kind, array in (("images-idx3", pixels), ("labels-idx1", labels)):
            header = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes()
            with gzip.open(tmp_path / "mnist" / f"{name}-{kind}-ubyte.gz", "wb") as file:
                file.write(header + array.tobytes())
    (x, y), (u, v) = images.mnist()
    assert np.array_equal(u.numpy(), pixels)
    assert (tuple(x.shape), y.tolist(), v.tolist()) == ((3, 28, 28), [0, 1, 2], [0, 1])

    (tmp_path / "cifar10").mkdir()
    sheet = rng.integers(0, 256, (1600, 3200, 3), np.uint8)
    for name in ("train", "test"):
        Image.fromarray(sheet).save(
            tmp_path / "cifar10" / f"cifar10_{name}_00.webp", lossless=True, method=0, quality=0
        )
        rows = "".join(f"{i},{i % 10}\n" for i in range(5000))
        (tmp_path / "cifar10" / f"cifar10_{name}_labels.csv").write_text("index,label\n" + rows)
    (x, y), _ = images.cifar10()
    assert np.array_equal(x[101].numpy(), sheet[32:64, 32:64])
    assert y[:12].tolist() == [*range(10), 0, 1]


def test_tables_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv("SOFTLY_DATA", str(tmp_path))
    for name in ("monks", "adult", "breast-cancer"):
        (tmp_path / "tabular" / name).mkdir(parents=True)
    for part in ("train", "test"):
        (tmp_path / f"tabular/monks/monks-1.{part}").write_text(" 1 1 3 2 1 4 2 data_5\n 0 2 1 1 1 1 1 data_6\n")
    (x, y), _ = tables.monk(1)
    assert (x.tolist(), y.tolist()) == ([[0, 2, 1, 0, 3, 1], [1, 0, 0, 0, 0, 0]], [1, 0])
    (tmp_path / "tabular/adult/adult.names").write_text("| words: more\n\nage: continuous.\nsex: Female, Male.\n")
    (tmp_path / "tabular/adult/adult.data").write_text("39, Male, <=50K\n50, ?, >50K\n")
    (tmp_path / "tabular/adult/adult.test").write_text("|1x3 Cross validator\n25, Female, >50K.\n")
    (x, y), (u, v) = tables.adult()
    assert x[0].tolist() == [39, 1]
    assert x[1].isnan().tolist() == [False, True]
    assert (y.tolist(), u.tolist(), v.tolist()) == ([0, 1], [[25, 0]], [1])
    row = "recurrence-events,40-49,premeno,20-24,0-2,?,2,right,right_up,no\n"
    (tmp_path / "tabular/breast-cancer/breast-cancer.data").write_text(row)
    x, y = tables.breast_cancer()
    assert x.nan_to_num(-1).tolist() == [[3, 2, 4, 0, -1, 1, 1, 2, 1]]
    assert y.tolist() == [1]


def test_missing_data_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("SOFTLY_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(FileNotFoundError, match=r"mnist is not there: SOFTLY_DATA names no .*softly data fetch mnist"):
        folder("mnist")
    monkeypatch.setenv("SOFTLY_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="has no folder mnist"):
        folder("mnist")
    for root in (tmp_path / "cache" / "softly" / "data", tmp_path):
        (root / "mnist").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="has no folder mnist with its files"):
        folder("mnist")
    (tmp_path / "cache" / "softly" / "data" / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"")
    assert folder("mnist").parts[-2:] == ("data", "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"")
    assert folder("mnist") == tmp_path / "mnist"


@real_data
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("monk1", (124, 432)),
        ("monk2", (169, 432)),
        ("monk3", (122, 432)),
        ("adult", (32561, 16281)),
        ("breast_cancer", (214, 72)),
        ("mnist_crop", (60000, 10000)),
    ],
)
def test_real_data_fits_its_encoding(name, sizes):
    (x, y), (u, v) = logic.DATA[name](0)
    assert (len(x), len(u)) == (len(y), len(v)) == sizes
    network = logic.build(logic.settled(logic.Config(data=name)), x.shape[1], 0)
    bits = network.encoding(x[:1000])
    assert bits.shape[1] == network.layers[0].in_dim
    assert bits.any(0).double().mean() > 0.5


def test_blurred_bits_are_probabilities_that_end_in_bits():
    x = torch.rand(50, 3)
    encoding = Threshold([0.25, 0.5, 0.75]).fit(x)
    torch.testing.assert_close(logic.blurred(Threshold(0.5).fit(x), x, 1.0), x)
    assert torch.equal(logic.blurred(encoding, x, 0.0), encoding(x))
    assert torch.equal(logic.blurred(encoding, x, 1e-7) > 0.5, encoding(x))
    # Numbers that are off by up to a fifth, either way.
    off = x + torch.linspace(-0.2, 0.2, 2001)[:, None, None]
    expected = torch.stack([encoding(rows) for rows in off]).float().mean(0)
    torch.testing.assert_close(logic.blurred(encoding, x, 0.4), expected, atol=1e-3, rtol=0)
