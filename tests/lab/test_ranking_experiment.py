"""Graded queries, and what is measured of their rankings."""

import gzip

import pytest
import torch

import softly
from softly_lab.data import queries
from softly_lab.experiments import ranking


def test_diabetes():
    train, test = queries.diabetes()
    assert int(train.lengths.sum() + test.lengths.sum()) == 442
    assert train.lengths.unique().numel() > 5


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
