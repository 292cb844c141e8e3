"""The comparison of losses runs, and reports what it measured."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from softly_lab.experiments import topk

QUICK = {"steepnesses": (1.0,), "epochs": 3, "hidden": 16, "tuning_seeds": (9,), "seeds": (0,)}
CIFAR100 = Path(os.environ.get("SOFTLY_DATA", "")) / "cifar100" / "cifar100_train_00.webp"


def check(config, chance):
    result = topk.run(config)
    assert [method.name for method in result.methods] == ["softmax", "top-k"]
    for method in result.methods:
        assert 1 <= method.epochs <= config.epochs
        assert method.accuracy.shape == (len(config.seeds), len(config.ks))
        assert (np.diff(method.accuracy) >= 0).all()  # the first three hold what the first two hold
        assert (method.accuracy > 2 * chance).all()
    assert "| top-1 | top-2 | top-3 | top-5 |" in result.table()
    assert len(result.table().splitlines()) == 5
    return result


def test_digits():
    config = dataclasses.replace(topk.DIGITS, **QUICK)
    first, second = check(config, 0.1), topk.run(config)
    for a, b in zip(first.methods, second.methods, strict=True):
        np.testing.assert_array_equal(a.accuracy, b.accuracy)


@pytest.mark.skipif(
    "SOFTLY_DATA" not in os.environ or not CIFAR100.is_file(), reason="SOFTLY_DATA names no folder with cifar100"
)
def test_cifar100():
    check(dataclasses.replace(topk.CIFAR100, **QUICK), 0.01)


def test_cifar100_says_where_it_looks(monkeypatch):
    monkeypatch.delenv("SOFTLY_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="SOFTLY_DATA"):
        topk.cifar100()
