"""The renderers of chapter 5: how many, which of them coincide, and the heat map of what they reach."""

import itertools

import pytest
import torch

from softly.rendering import Camera, Mesh, icosphere
from softly_lab import executors, experiments, renderers
from softly_lab.renderers import AGGREGATIONS, CANONICAL, DISTRIBUTIONS, Kind, kinds
from softly_lab.runner import Result

CAMERA = Camera.look_at(distance=3.0, elevation=20.0, azimuth=torch.tensor([0.0, 40.0]))


def image(kind):
    sphere = icosphere(42)  # three of its faces: more of them cover every pixel by far
    return kind.make(16, 5.0).silhouette(Mesh(1.2 * sphere.vertices.double(), sphere.faces[:3]), CAMERA)


def test_there_are_1242_of_which_966_are_distinct():
    assert (len(DISTRIBUTIONS), len(AGGREGATIONS)) == (23, 27)
    assert len(set(kinds())) == 1242
    assert len({kind.canonical() for kind in kinds()}) == 966


@pytest.mark.parametrize(("name", "other"), CANONICAL.items())
def test_names_that_render_the_same(name, other):
    for squared in (False, True):
        if name in DISTRIBUTIONS:
            pair = Kind(name, squared, "probabilistic"), Kind(other, squared, "probabilistic")
        else:
            pair = Kind("logistic", squared, name), Kind("logistic", squared, other)
        assert pair[0].canonical() == pair[1]
        torch.testing.assert_close(image(pair[0]), image(pair[1]))


def test_all_others_differ():
    for names, kind in (
        (DISTRIBUTIONS, lambda name: Kind(name, False, "average")),
        (AGGREGATIONS, lambda name: Kind("logistic", False, name)),
    ):
        images = {name: image(kind(name)) for name in names if name not in CANONICAL}
        for (a, one), (b, two) in itertools.combinations(images.items(), 2):
            assert (one - two).abs().max() > 1e-6, (a, b)
            assert one.isfinite().all()


def run(kind, value):
    return Result("shape", "quick", "wings", kind._asdict(), ({"step": 1, "IoU": value},), 0.0, None)


def test_the_heat_map_has_what_was_run_and_its_best():
    found = [run(kind, 0.5 + 0.001 * place) for place, kind in enumerate(list(kinds())[:40])]
    ((caption, figure),) = renderers.heat_map(found, "IoU").items()
    names = {Kind(**r.config).canonical() for r in found}
    assert caption.startswith(f"IoU of {len(names)} of the 966 distinct renderers")
    plain = figure.axes[4].images[0].get_array()
    assert int((~plain.mask).sum()) == sum(not kind.squared for kind in names)
    best = sum(bar.get_height() for bar in figure.axes[0].patches)
    assert best == max(1, round(0.1 * sum(not kind.squared for kind in names)))
    assert renderers.heat_map(found[:1], "IoU") == {}


def test_values_that_go_together(tmp_path):
    experiment = experiments.get("shape")
    wanted = experiment.compared["standard"]
    jobs = list(executors.jobs(experiment, "standard", wanted, lambda config: tmp_path))
    assert len(jobs) == 42
    assert jobs[0].options == {"distribution": "uniform", "squared": False, "aggregation": "probabilistic"}
    assert len({Kind(**job.options).canonical() for job in jobs}) == 42
    with pytest.raises(ValueError, match=r"aggregation must be one of .*, got 'sum'"):
        executors.jobs(experiment, "quick", {"distribution,aggregation": [("uniform", "sum")]}, lambda config: tmp_path)
