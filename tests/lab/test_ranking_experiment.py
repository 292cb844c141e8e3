"""Learning to rank runs, and reports what it measured."""

import gzip
import os
from dataclasses import replace

import pytest
import torch

import softly
from softly_lab.data import queries
from softly_lab.experiments import ranking

QUICK = {"epochs": 5, "tuning_seeds": (9,), "seeds": (0,)}


def check(config):
    result = ranking.run(config)
    assert list(result.ndcg) == list(ranking.LOSSES)
    for name, ndcg in result.ndcg.items():
        assert 1 <= result.epochs[name] <= config.epochs
        assert ndcg.shape == (len(config.seeds), len(config.ks))
        assert ((ndcg > 0) & (ndcg <= 1)).all()
    assert len(result.table().splitlines()) == 2 + len(ranking.LOSSES)
    return result


def test_diabetes(monkeypatch):
    train, test = queries.diabetes()
    assert int(train.lengths.sum() + test.lengths.sum()) == 442
    assert train.lengths.unique().numel() > 5
    kept = ("squared error", "NDCG, odd-even network")
    monkeypatch.setattr(ranking, "LOSSES", {name: ranking.LOSSES[name] for name in kept})
    result = check(replace(ranking.CONFIGS["diabetes"], **QUICK))
    random = torch.randn(test.grades.shape, generator=torch.Generator().manual_seed(0))
    assert result.ndcg["NDCG, odd-even network"][0, 0] > ranking.measure(random, test, (10,))[0] + 0.05


def test_measure_is_one_minus_the_loss_of_a_hard_sorter():
    train, _ = queries.diabetes()
    scores = torch.randn(train.grades.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for k in (None, 5):
        loss = softly.sorting.ndcg_loss(
            scores, train.grades, sorter=softly.SoftSort(steepness=1e9), k=k, lengths=train.lengths
        )
        assert ranking.measure(scores, train, (k or 100,)) == [pytest.approx(1 - float(loss), abs=1e-6)]


def test_graded_queries_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv("SOFTLY_DATA", str(tmp_path))
    path = tmp_path / "ltr-lightgbm"
    path.mkdir()
    for part in ("train", "test"):
        with gzip.open(path / f"rank.{part}.gz", "wt") as file:
            file.write("2 1:0.5 300:0.25\n0 2:1\n1 1:1\n")
        (path / f"rank.{part}.query").write_text("1\n2\n")
    train, _ = queries.lightgbm()
    assert (train.lengths.tolist(), train.grades.tolist()) == ([1, 2], [[2, 0], [0, 1]])
    assert train.features.shape == (2, 2, 301)
    assert (train.features[0, 0, 300], train.features[1, 0, 2]) == (0.25, 1.0)
    (path / "rank.test.query").write_text("1\n1\n")
    with pytest.raises(ValueError, match=r"rank.test.query tells of 2 rows, there are 3"):
        queries.lightgbm()


@pytest.mark.skipif("SOFTLY_DATA" not in os.environ, reason="SOFTLY_DATA names no folder")
def test_lightgbm(monkeypatch):
    monkeypatch.setattr(ranking, "LOSSES", {"NDCG, SoftSort": ranking.LOSSES["NDCG, SoftSort"]})
    result = check(replace(ranking.CONFIGS["lightgbm"], **QUICK | {"epochs": 2}))
    _, test = queries.lightgbm()
    assert len(test) == 50
    random = torch.randn(test.grades.shape, generator=torch.Generator().manual_seed(0))
    assert result.ndcg["NDCG, SoftSort"][0, 0] > ranking.measure(random, test, (10,))[0] + 0.05
