import gzip
import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from softly.logic import Threshold, architectures, parametrizations
from softly_lab.data import folder, images, tables
from softly_lab.experiments import logic
from softly_lab.experiments.logic import CONFIGS, Config, learn, run

real_data = pytest.mark.skipif("SOFTLY_DATA" not in os.environ, reason="SOFTLY_DATA names no folder")


def toy(seed):
    """Three of MONK's columns matter: the first two are equal, or the fifth has its first value (MONK-1)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.stack([torch.randint(0, n, (300,), generator=generator) for n in (3, 3, 2, 3, 4, 2)], 1).float()
    y = ((x[:, 0] == x[:, 1]) | (x[:, 4] == 0)).long()
    return (x[:200], y[:200]), (x[200:], y[200:])


@pytest.fixture
def config(monkeypatch):
    monkeypatch.setitem(logic.DATA, "toy", toy)
    return Config("toy", "monk1", 100.0, epochs=6, seeds=(0, 1), report=2, learning_rate=0.05)


def test_result_is_a_line_of_the_table(config):
    result = run(replace(config, epochs=150, grad_factor=1.5))
    assert result.hard.shape == (2,)
    assert result.hard.mean() > 0.75
    assert result.row().startswith("| toy | learning_rate 0.05, grad_factor 1.5 | 100.00 | ")


def test_killed_runs_take_the_same_course(config, tmp_path, monkeypatch):
    config = replace(config, epochs=4, hard_epochs=2, weight_decay=0.01, decay=True)
    network, measured = learn(config, 0, tmp_path / "whole")
    lines = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [2, 4, 6]
    assert json.loads((tmp_path / "whole" / "config.json").read_text())["data"] == "toy"

    class KilledError(Exception):
        pass

    def die(folder, measured):
        if measured["step"] == 4:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(logic, "report", die)
        with pytest.raises(KilledError):
            learn(config, 0, tmp_path / "killed")
    # The checkpoint is there and its line is not: it is added, and nothing is computed twice.
    again, resumed = learn(config, 0, tmp_path / "killed")
    steps = [json.loads(line)["step"] for line in (tmp_path / "killed" / "metrics.jsonl").read_text().splitlines()]
    assert steps == [4, 6]
    assert resumed["loss"] == measured["loss"]
    for weight, twin in zip(network.parameters(), again.parameters(), strict=True):
        assert torch.equal(weight, twin)
    finished, same = learn(config, 0, tmp_path / "killed")
    assert same == resumed
    assert torch.equal(finished(toy(0)[1][0]), again(toy(0)[1][0]))


def test_every_config_has_data_and_an_architecture():
    for name, config in CONFIGS.items():
        assert config.data == name
        assert name in logic.DATA
        assert config.architecture in architectures.names()


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
    with pytest.raises(FileNotFoundError, match="mnist is read from the folder"):
        folder("mnist")
    monkeypatch.setenv("SOFTLY_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no folder mnist"):
        folder("mnist")


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
    network = logic.build(CONFIGS[name], x.shape[1], 0)
    bits = network.encoding(x[:1000])
    assert bits.shape[1] == network.layers[0].in_dim
    assert bits.any(0).double().mean() > 0.5


def test_best_epoch_on_the_training_data_is_kept(config):
    with pytest.raises(ValueError, match="reports at the end only"):
        replace(config, select=True)
    network, _ = learn(replace(config, select=True, report=30, epochs=30), 0)
    last, _ = learn(replace(config, report=30, epochs=30), 0)
    (x, y), _ = toy(0)
    assert logic.accuracy(network.eval()(x), y) >= logic.accuracy(last.eval()(x), y)
    assert not torch.equal(network.layers[0].weight, last.layers[0].weight)


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


def test_hard_epochs_end_on_the_hard_network(config):
    network, measured = learn(replace(config, hard_epochs=3, decay=True), 0)
    assert measured["step"] == config.epochs + 3
    assert measured["hard"] == measured["soft"]
    assert {layer.parametrization for layer in network.layers} == {parametrizations.get("straight_through")}


def test_best_attempt_on_the_training_data_is_kept(config, tmp_path):
    with pytest.raises(ValueError, match="best of 3 attempts"):
        replace(config, attempts=3)
    config = replace(config, select=True, attempts=3, report=30, epochs=30, seeds=(5,))
    result = run(config, tmp_path)
    folders = [tmp_path / name for name in ("seed-5", "seed-5-attempt-1", "seed-5-attempt-2")]
    tries = [json.loads((path / "metrics.jsonl").read_text()) for path in folders]
    assert len({measured["likelihood"] for measured in tries}) == 3
    best = max(tries, key=lambda measured: (measured["fit"], measured["likelihood"]))
    assert result.hard.tolist() == [best["hard"]]
    assert result.minutes.item() == pytest.approx(sum(measured["minutes"] for measured in tries))
