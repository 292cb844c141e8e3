"""The renderers of chapter 5: how many, which of them coincide, and the heat map of what they reach."""

import itertools

import pytest
import torch

from softly import Renderer
from softly.rendering import Camera, Mesh, icosphere, iou_loss
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


def run(kind, value, **options):
    return Result("shape", "quick", "wings", {**kind._asdict(), **options}, ({"step": 1, "IoU": value},), 0.0, None)


def test_the_heat_map_has_what_was_run_and_its_best():
    found = [run(kind, 0.5 + 0.001 * place) for place, kind in enumerate(list(kinds())[:40])]
    ((caption, figure),) = renderers.heat_map(found, "IoU").items()
    names = {Kind(**r.config).canonical() for r in found}
    assert caption.startswith(f"IoU of {len(names)} of the 966 distinct renderers")
    plain = figure.axes[4].images[0].get_array()
    assert plain.count() == sum(not kind.squared for kind in names)
    best = sum(bar.get_height() for bar in figure.axes[0].patches)
    assert best == max(1, round(0.1 * sum(not kind.squared for kind in names)))
    assert renderers.heat_map(found[:1], "IoU") == {}


def test_the_heat_map_shows_the_best_rate_in_the_mean_over_seeds():
    one, two = Kind("uniform", False, "average"), Kind("logistic", False, "average")
    found = [run(one, value, seed=seed, learning_rate=rate) for value, seed, rate in
             ((0.9, 0, 0.1), (0.1, 1, 0.1), (0.6, 0, 0.3), (0.8, 1, 0.3))]  # fmt: skip
    ((_, figure),) = renderers.heat_map(
        [*found, run(two, 0.2, seed=0, learning_rate=0.1)], "IoU", "learning_rate"
    ).items()
    shown = figure.axes[4].images[0].get_array()
    assert shown[0, 0] == pytest.approx(0.7)
    assert shown.compressed().tolist() == pytest.approx([0.7, 0.2])
    easier = [run(kind, 1.0, seed=0, learning_rate=0.1, views=4) for kind in (one, two)]
    maps = renderers.heat_map([*found, run(two, 0.2, seed=0, learning_rate=0.1), *easier], "IoU", "learning_rate")
    assert len(maps) == 2  # what can't be compared is not in one map


def test_the_pose_that_is_looked_for_shows_the_reference():
    experiment = experiments.get("pose")
    task = experiment.start(experiment.configure("quick", errors=(10.0, 20.0, 40.0)))
    first = task.model.errors().split(8)
    assert [bool(((low <= e) & (e <= high)).all()) for e, (low, high) in zip(first, task.bands, strict=True)] == [
        True
    ] * 2
    truth = torch.stack([task.distance, *torch.zeros(2, 8), torch.full((8,), 20.0)], -1).repeat(2, 1)
    task.model.values.data.copy_(truth)
    image = Renderer(32, straight_through=True).silhouette(task.mesh, task.model())
    assert iou_loss(image, task.wanted).max() < 0.01
    assert task.test()["within 3°"] == 100
    with pytest.raises(ValueError, match="errors must be two numbers or more"):
        experiment.start(experiment.configure("quick", errors=(30.0,)))


def test_values_that_go_together(tmp_path):
    experiment = experiments.get("shape")
    wanted = experiment.compared["standard"]
    jobs = list(executors.jobs(experiment, "standard", wanted, lambda config: tmp_path))
    assert len(jobs) == 42
    assert jobs[0].options == {"distribution": "uniform", "squared": False, "aggregation": "probabilistic"}
    assert len({Kind(**job.options).canonical() for job in jobs}) == 42
    with pytest.raises(ValueError, match=r"aggregation must be one of .*, got 'sum'"):
        executors.jobs(experiment, "quick", {"distribution,aggregation": [("uniform", "sum")]}, lambda config: tmp_path)
