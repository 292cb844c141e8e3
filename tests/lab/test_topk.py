"""Every loss and sorter of chapter 4 learns, and its sweeps and significance tests are drawn from what was run."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from softly_lab import experiments, runner
from softly_lab.experiments import topk

EXPERIMENT = experiments.get("topk")
SMALL = {"epochs": 3, "steepnesses": (2.0,), "tuning": 1, "repeats": 2}


def run(**options):
    return runner.run(EXPERIMENT, EXPERIMENT.configure("quick", **{**SMALL, **options}))


@pytest.mark.parametrize("sorter", topk.SORTERS)
def test_every_sorter_learns(sorter):
    learned = run(sorter=sorter, epochs=10, steepnesses=(0.5,)).final
    assert learned["top-1"] > 30
    assert learned["top-5"] > 80
    assert run(sorter=sorter, m=6, p_k=(0.2,) * 5, epochs=6).final["top-5"] > 75


@pytest.mark.parametrize("options", [{"loss": "softmax"}, {"loss": "smooth", "epochs": 6}, {"model": "head"}])
def test_baselines_and_heads_learn(options):
    result = run(**options)
    assert result.final["top-1"] > 40
    assert result.final["top-5"] > result.final["top-3"] > result.final["top-1"]
    assert ("stand-in for ResNeXt-101 WSL" in result.data) == (options.get("model") == "head")


def test_a_pure_top_5_loss_asks_for_no_first_place():
    (loss,) = topk.losses(EXPERIMENT.configure("quick", steepnesses=(2.0,), p_k=(0.0, 0.0, 0.0, 0.0, 1.0)))
    assert loss.top1 == "sort"


def test_a_resnet_learns():
    options = {"epochs": 1, "repeats": 1, "batch_size": 100, "validation": 0.9}
    config = EXPERIMENT.configure("quick", model="resnet18", **{**SMALL, **options})
    task = EXPERIMENT.start(config)
    task.train = tuple(part[:300] for part in task.train)
    task.step(0)
    assert len(task.curves) == 1


def test_p_values_are_those_of_the_networks():
    generator = np.random.default_rng(0)
    a, b = generator.normal(60, 2, 5), generator.normal(63, 1, 5)
    runs = [
        runner.Result(
            "topk", "quick", "", {"repeats": 5}, ({"top-1": float(x.mean()), "± 1": float(x.std(ddof=1))},), 0.0, None
        )
        for x in (a, b)
    ]
    assert topk.p_value(*runs, 1) == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue)


def test_sweeps_are_drawn():
    first = run()
    made = [run(loss="softmax")]
    for alpha, m in ((0.25, None), (0.5, None), (0.75, None), (0.5, 6), (0.5, 8), (0.5, 10)):
        config = {**first.config, "p_k": [1 - alpha, 0.0, 0.0, 0.0, alpha], "m": m}
        made.append(dataclasses.replace(first, config=config))
    captions = list(EXPERIMENT.overview(made))
    assert [caption[:20] for caption in captions] == [
        "The share α of k = 5",
        "The number m of clas",
        "Accuracy beside the ",
    ]
    assert not EXPERIMENT.overview([first])
