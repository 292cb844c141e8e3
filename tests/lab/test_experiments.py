"""Every experiment runs offline in its quick preset, learns something, and goes on after an interruption."""

import dataclasses
import functools
import os

import pytest
import torch

import softly
from softly_lab import experiments, runner

# What quick runs reach at least, far above chance.
REACHED = {
    "classification": ("accuracy", 60.0),
    "shortest-path": ("EM", 5.0),
    "levenshtein": ("accuracy", 0.7),
    "sorting": ("EM", 10.0),
    "topk": ("top-1", 30.0),
    "logic": ("accuracy", 60.0),
    "shape": ("IoU", 0.55),
    "silhouette": ("3D IoU", 0.27),  # 0.19 before training
    "reconstruction": ("3D IoU", 0.3),  # 0.18 before training
    "pose": ("within 5°", 20.0),
    "ranking": ("NDCG@10", 0.7),
}


class InterruptedError(Exception):
    pass


@pytest.mark.parametrize("name", REACHED)
def test_quick_runs_learn_and_go_on_as_if_never_interrupted(name, tmp_path, monkeypatch):
    experiment = experiments.get(name)
    config = experiment.configure("quick")
    whole = runner.run(experiment, config, tmp_path / "whole")
    metric, least = REACHED[name]
    assert whole.final[metric] > least
    assert whole.data
    assert (tmp_path / "whole" / "pictures" / "0.png").exists()

    def stop(step, steps, last):
        if step > steps // 2 and last:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        runner.run(experiment, config, tmp_path / "broken", watch=stop)
    again = runner.run(experiment, config, tmp_path / "broken", resume=True)
    timed = ("minutes", "ns a row")
    for one, two in zip(whole.metrics, again.metrics, strict=True):
        assert {k: v for k, v in one.items() if k not in timed} == {k: v for k, v in two.items() if k not in timed}


@pytest.mark.parametrize("name", experiments.NAMES)
def test_presets(name):
    experiment = experiments.get(name)
    assert experiment.name == name
    assert list(experiment.presets) == list(runner.PRESETS)
    for preset in experiment.presets:
        config = experiment.configure(preset)
        assert config.seed == 0
    for field in dataclasses.fields(experiment.config):
        assert field.metadata["help"].endswith(".")


def test_unknown_experiments_are_refused():
    with pytest.raises(ValueError, match=r"there is no experiment 'sortin'; there are .*sorting,"):
        experiments.get("sortin")


@pytest.mark.parametrize("sorter", experiments.get("sorting").config.__dataclass_fields__["sorter"].metadata["choices"])
def test_every_sorter_trains(sorter):
    experiment = experiments.get("sorting")
    config = experiment.configure("quick", sorter=sorter, steps=40, report=20, test_lists=100)
    result = runner.run(experiment, config)
    assert result.metrics[-1]["loss"] < result.metrics[0]["loss"] * 1.05


RANKING = experiments.importlib.import_module("softly_lab.experiments.sorting")


@pytest.mark.parametrize("method", RANKING.METHODS)
@pytest.mark.parametrize("n", [5, 10])
@pytest.mark.parametrize(
    "options",
    [
        {"sorter": "neuralsort"},
        {"sorter": "softsort"},
        {"sorter": "odd_even", "distribution": "logistic"},
        {"sorter": "odd_even", "distribution": "cauchy"},
    ],
    ids=["neuralsort", "softsort", "logistic", "cauchy"],
)
def test_every_step_on_a_ranking_loss_trains(method, n, options):
    experiment = experiments.get("sorting")
    small = {"n": n, "batch_size": 8, "steps": 3, "report": 3, "test_lists": 100, "validation": True}
    config = experiment.configure("quick", method=method, **options, **small)
    result = runner.run(experiment, config)
    assert 0 <= result.final["EM"] <= result.final["EW"] <= 100
    assert 0 < result.final["loss"] < float("inf")
    assert result.data.endswith("(stand-in for MNIST), validation")


@pytest.mark.parametrize("curvature", ["hessian", "fisher"])
def test_the_control_has_the_plain_direction_and_the_length_of_the_newton_step(curvature):
    torch.manual_seed(0)
    scores = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    ranks = torch.rand(6, 5).argsort(-1) + 1
    configure = functools.partial(experiments.get("sorting").configure, "quick", sorter="softsort", tikhonov=0.2)
    step, control, plain = (
        torch.autograd.grad(RANKING.Sorting(configure(method=method)).criterion(scores, ranks), scores)[0]
        for method in (curvature, f"{curvature}_control", "regular")
    )
    torch.testing.assert_close(control.norm(), step.norm())
    torch.testing.assert_close(control, plain * (step.norm() / plain.norm()))
    assert torch.cosine_similarity(control.flatten(), step.flatten(), 0) < 0.999
    weaker = RANKING.Sorting(configure(method=curvature, tikhonov=2.0))
    assert torch.autograd.grad(weaker.criterion(scores, ranks), scores)[0].norm() < step.norm()


def test_resgro_sees_kendalls_tau():
    scores, ranks = torch.randn(3, 4, 7), torch.rand(4, 7).argsort(-1) + 1
    found = RANKING.discordance(scores, ranks)
    assert found.shape == (3, 4)
    expected = softly.sorting.metrics.kendall_tau(scores, ranks.expand(3, 4, 7))
    torch.testing.assert_close(-found.mean(), expected)


def test_every_seed_has_test_lists_of_its_own():
    sorting = experiments.get("sorting")
    first, second = (sorting.start(sorting.configure("quick", seed=seed)) for seed in (0, 1))
    second.model.load_state_dict(first.model.state_dict())
    assert first.test() == first.test()
    assert first.test() != second.test()


def test_options_are_chosen_on_images_that_are_neither_learned_from_nor_tested_on():
    configure = experiments.get("sorting").configure
    usual, chosen = (RANKING.Sorting(configure("quick", validation=value)) for value in (False, True))
    assert (len(chosen.train.labels), len(chosen.held.labels)) == (800, 200)
    assert torch.equal(torch.cat([chosen.train.digits, chosen.held.digits]), usual.train.digits)


@pytest.mark.parametrize(
    "method", experiments.get("shortest-path").config.__dataclass_fields__["method"].metadata["choices"]
)
@pytest.mark.parametrize("newton", ["none", "fisher"])
@pytest.mark.filterwarnings("ignore:softly.relax. a while loop was cut off")
def test_every_way_through_a_shortest_path_trains(method, newton):
    experiment = experiments.get("shortest-path")
    small = {"maps": 20, "test_maps": 10, "width": 4, "batch_size": 4, "steps": 2, "report": 2, "rounds": 14}
    config = experiment.configure("quick", method=method, newton=newton, **small)
    if (method, newton) == ("resgro", "fisher"):
        with pytest.raises(ValueError, match="RESGRO has a step of its own"):
            experiment.start(config)
        return
    result = runner.run(experiment, config)
    assert 0 <= result.final["EM"] <= result.final["cost match"] <= 100


@pytest.mark.parametrize("method", ["regular", "elementwise", "hessian", "fisher"])
@pytest.mark.parametrize("model", ["M1", "M4", "M5"])
def test_every_newton_loss_classifies(method, model):
    experiment = experiments.get("classification")
    config = experiment.configure("quick", method=method, model=model, optimizer="adam", learning_rate=3e-3)
    result = runner.run(experiment, config)
    assert result.final["accuracy"] > (50 if model != "M4" else 5)  # sigmoids begin slowly, in the thesis as well


def test_options_are_chosen_on_other_images_than_those_of_the_test():
    experiment = experiments.get("classification")
    start = lambda validation: experiment.start(experiment.configure("quick", validation=validation))  # noqa: E731
    chosen, tested = start(True), start(False)
    assert (len(chosen.images), len(chosen.held)) == (834, 166)
    assert torch.equal(torch.cat([chosen.images, chosen.held]), tested.images)
    assert torch.equal(torch.cat([chosen.labels, chosen.held_labels]), tested.labels)
    assert chosen.data.endswith(", validation")


def test_options_of_shortest_paths_are_chosen_on_maps_of_their_own():
    experiment = experiments.get("shortest-path")
    small = {"maps": 3, "test_maps": 5, "width": 2}
    chosen, tested = (experiment.start(experiment.configure("quick", validation=v, **small)) for v in (True, False))
    assert torch.equal(chosen.train.costs, tested.train.costs)
    assert not torch.equal(chosen.held.costs, tested.held.costs)
    assert chosen.data == tested.data + ", validation"


def test_steepness_of_the_chapter():
    sorting = experiments.importlib.import_module("softly_lab.experiments.sorting")
    config = experiments.get("sorting").configure
    assert sorting.steepness(config("full", distribution="logistic")) == 30
    assert sorting.steepness(config("full", distribution="reciprocal")) == 120  # half of softly's unit
    assert sorting.steepness(config("full", distribution="logistic", art=0.25)) == pytest.approx(20 ** (4 / 3))
    assert sorting.steepness(config("full", sorter="bitonic", n=32, distribution="optimal")) == 25
    assert sorting.steepness(config("full", sorter="softsort")) == "auto"


@pytest.mark.skipif("SOFTLY_DATA" not in os.environ, reason="SOFTLY_DATA names no folder")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sorting", {"data": "mnist", "half": True, "steps": 4, "report": 4, "test_lists": 100}),
        ("sorting", {"data": "svhn", "channels": (4, 8), "steps": 2, "report": 2, "batch_size": 4, "test_lists": 100}),
        ("logic", {"data": "monk1", "epochs": 20, "hard_epochs": 2, "select": True, "attempts": 2}),
        ("logic", {"data": "breast_cancer", "epochs": 3}),
        ("topk", {"data": "cifar100", "epochs": 1, "hidden": 16}),
        ("ranking", {"data": "lightgbm", "epochs": 1}),
    ],
)
def test_real_data(name, options):
    experiment = experiments.get(name)
    result = runner.run(experiment, experiment.configure("quick", **options))
    assert "stand-in" not in result.data


def test_sweeps_over_the_inverse_temperature_are_drawn():
    experiment = experiments.get("sorting")
    runs = [
        runner.Result(
            "sorting",
            "quick",
            "digits",
            runner.plain(experiment.configure("quick", beta=beta)),
            ({"EM": em},),
            0.1,
            None,
        )
        for beta, em in ((5.0, 10.0), (20.0, 30.0), (80.0, 20.0))
    ]
    assert list(experiment.overview(runs)) == ["Exact matches against the inverse temperature."]
    assert not experiment.overview(runs[:2])
