"""Shapes from single images: what they are compared with, and that all ways to render them agree."""

import math

import pytest
import torch

from softly import Renderer
from softly.rendering import Mesh, icosphere, iou_loss, voxel_iou
from softly_lab import experiments, runner
from softly_lab.data import objects
from softly_lab.experiments import silhouette
from softly_lab.models import displaced


def test_the_visual_hull_of_a_ball_is_the_ball():
    sphere = icosphere(642)
    ball = sphere.at(0.4 * sphere.vertices)
    hull = objects.hull(ball)
    assert hull.sum() / 32**3 == pytest.approx(4 / 3 * math.pi * 0.4**3, rel=0.05)
    assert voxel_iou(hull, objects.filled(ball)[0]) > 0.93


def test_displacements_of_nothing_and_to_a_centre():
    base = 0.5 * icosphere(42).vertices[0]
    torch.testing.assert_close(displaced(base, torch.zeros_like(base), torch.zeros(3)), base)
    moved = displaced(base, torch.randn_like(base), torch.randn(3))
    assert moved.abs().max() <= 1
    assert moved.isfinite().all()


def test_the_relaxed_program_renders_what_the_renderer_does():
    config = experiments.get("silhouette").configure("quick", method="distance", steepness=40.0)
    camera = objects.camera(torch.tensor([0, 3]), 8)
    sphere = icosphere(42)
    vertices = (
        0.5 * sphere.vertices.expand(2, -1, -1).double() * torch.tensor([0.9, 1.1], dtype=torch.double)[:, None, None]
    )
    mesh = sphere.at(vertices)
    a, b, c = mesh.corners(camera.project(vertices)[..., :2]).unbind(-2)
    ahead = ((b - a)[..., 0] * (c - a)[..., 1] - (b - a)[..., 1] * (c - a)[..., 0]) > 0
    native = Renderer(config.image_size, distribution="logistic", steepness=40.0)
    for number in range(2):  # a face that is seen from behind is no face to the program: leave them out
        front = Mesh(vertices[number], sphere.faces[ahead[number]])
        one = objects.camera(torch.tensor([[0], [3]][number]), 8)
        torch.testing.assert_close(
            silhouette.renderer(config)(front, one), native.silhouette(front, one), atol=1e-6, rtol=1e-6
        )


@pytest.mark.parametrize("method", silhouette.STEEPNESS)
def test_every_method_has_the_hard_limit(method):
    config = experiments.get("silhouette").configure("quick", method=method, steepness=1e7)
    sphere, camera = icosphere(42), objects.camera(torch.tensor([1]), 8)
    mesh = sphere.at(0.5 * sphere.vertices.double())
    hard = Renderer(16, straight_through=True).silhouette(mesh, camera)
    assert iou_loss(silhouette.renderer(config)(mesh, camera), hard).max() < 1e-3


@pytest.mark.parametrize("method", silhouette.STEEPNESS)
def test_every_method_trains(method):
    experiment = experiments.get("silhouette")
    result = runner.run(experiment, experiment.configure("quick", method=method, steps=6, report=3, each=5))
    assert result.metrics[-1]["loss"] < result.metrics[0]["loss"]


def test_the_temperature_falls_once_and_classes_are_mapped():
    experiment = experiments.get("reconstruction")
    small = {"steps": 10, "report": 10, "each": 5, "vertices": 42, "image_size": 16}
    task = experiment.start(experiment.configure("quick", exponent=-2.0, **small))
    seen = []
    for number in (0, 5, 6, 9):
        task.step(number)
        seen.append((task.renderer.steepness, task.optimizer.param_groups[0]["lr"] / task.config.learning_rate))
    first, last = (100.0, 1.0), (100.0 / 0.3, 0.3)
    assert [pytest.approx(pair) for pair in (first, first, last, last)] == seen
    runs = [
        runner.Result(
            "reconstruction", "quick", "", kind._asdict(), ({"step": 1, "3D IoU": 0.1, "a pot": 0.3},), 0.0, None
        )
        for kind in experiment.compared["standard"]["distribution,squared,aggregation"]
    ]
    ((_, figure),) = experiment.overview(runs).items()
    assert figure.axes[0].images[0].get_array().shape == (30, 2)


def test_three_edges_take_the_steps_of_the_chapter():
    experiment = experiments.get("silhouette")
    small = {"generated": True, "each": 5, "views": 2, "vertices": 42, "image_size": 16, "width": 4}
    steps = {m: experiment.start(experiment.configure("full", method=m, **small)).steps for m in silhouette.STEEPNESS}
    assert steps == {"three_edges": 2_500_000, "distance": 1_000_000, "softras": 1_000_000}
