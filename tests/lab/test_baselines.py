"""The rivals of logic gate networks have the sizes that the chapter says, and learn what it says they learn."""

import pytest
import torch

from softly_lab import baselines, experiments, runner

EXPERIMENT = experiments.get("logic")


@pytest.mark.parametrize(
    ("inputs", "name", "classes", "parameters"),
    [
        (17, "monk1", 2, 162),
        (116, "adult", 2, 3810),
        (51, "breast_cancer", 2, 434),
        (784, "mnist", 10, 118_282),
        (9216, "cifar10", 10, 12_597_258),
    ],
)
def test_networks_are_those_of_the_chapter(inputs, name, classes, parameters):
    with torch.device("meta"):
        network = baselines.perceptron(inputs, *baselines.NETWORKS[name], classes)
    assert sum(p.numel() for p in network.parameters()) == parameters


@pytest.mark.parametrize(("model", "least"), [("tree", 65), ("logistic", 85), ("mlp", 75)])
def test_rivals_learn_digits(model, least, tmp_path):
    config = EXPERIMENT.configure("quick", model=model)
    result = runner.run(EXPERIMENT, config, tmp_path / "run")
    assert result.final["accuracy"] > least
    assert result.final["ns a row"] > 0
    assert result.final["bytes"] >= result.final["parameters"] > 0
    again = runner.run(EXPERIMENT, config, tmp_path / "run", resume=True)
    assert again.final == result.final


def test_a_finished_network_tells_its_size_and_time():
    result = runner.run(EXPERIMENT, EXPERIMENT.configure("quick", init="normal", epochs=2, hard_epochs=0))
    assert "bytes" not in result.metrics[0]
    assert result.final["parameters"] == 3000
    assert result.final["bytes"] == 1500
    assert 0 < result.final["gates left"] <= 3000
    assert result.final["ns a row"] > 0
    tree = runner.run(EXPERIMENT, EXPERIMENT.configure("quick", model="tree"))
    assert list(EXPERIMENT.overview([result, tree])) == ["How much models know, and how large they are."]
    assert not EXPERIMENT.overview([tree])
