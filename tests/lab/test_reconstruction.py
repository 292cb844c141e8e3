"""Shapes from single images: what they are compared with, and that all ways to render them agree."""

import math

import pytest
import torch

from softly import Renderer
from softly.rendering import Mesh, icosphere, iou_loss, voxel_iou
from softly_lab import experiments, runner
from softly_lab.data import objects
from softly_lab.experiments import silhouette
from softly_lab.files import load_state, save_state
from softly_lab.models import Reconstruction, displaced


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


def test_images_are_renderings_with_the_hard_silhouette_as_opacity():
    train, test = objects.load(32, 8, generated=True, each=5)
    assert train.images.shape[1:] == (8, 4, 32, 32)
    assert (len(train), len(test)) == (12, 3)
    assert train.kind == "renderings and visual hulls of generated shapes (stand-in for those of all of ShapeNet)"
    sphere, camera = icosphere(162), objects.camera(torch.arange(3), 8)
    ball = sphere.at(0.4 * sphere.vertices)
    image = objects.rendered(ball, camera, 32)
    assert torch.equal(image[:, 3], Renderer(32, straight_through=True).silhouette(ball, camera))
    colors, opacity = train.images.split((3, 1), 2)
    assert set(opacity.unique().tolist()) == {0.0, 1.0}
    assert not (colors * (1 - opacity)).any()
    assert colors.min() >= 0
    assert colors.max() <= 1
    assert colors[opacity.expand_as(colors) > 0].std() > 0.05  # more than a silhouette
    turned = Mesh(ball.vertices, ball.faces[:, [0, 2, 1]])
    torch.testing.assert_close(objects.rendered(turned, camera, 32), image)  # inside out


def test_networks_see_colours_and_are_judged_by_silhouettes():
    experiment = experiments.get("silhouette")
    small = {"method": "softras", "each": 5, "vertices": 42, "image_size": 16, "batch_size": 4}
    task = experiment.start(experiment.configure("quick", **small))

    def loss():
        torch.manual_seed(1)
        return task.loss(0)

    first = task.model.body[0].weight
    (gradient,) = torch.autograd.grad(loss(), first)
    assert (gradient.abs().amax((0, 2, 3)) > 0).all()
    with torch.no_grad():
        first[:, :3] = 0.0
    blind = loss()
    task.train.images[:, :, :3] = torch.rand_like(task.train.images[:, :, :3])
    assert loss() == blind
    task.train.images[:, :, 3] = 1.0 - task.train.images[:, :, 3]
    assert loss() != blind


def test_tests_are_of_all_views(monkeypatch):
    experiment = experiments.get("silhouette")
    task = experiment.start(experiment.configure("quick", each=5, vertices=42, image_size=16, views=6))
    balls = task.sphere.at(0.3 * task.sphere.vertices)
    seen = []

    def meshes(images):
        seen.append(images)
        return balls.at(balls.vertices * (len(seen) if len(seen) < 6 else 0.0))

    monkeypatch.setattr(task, "meshes", meshes)
    found = task.test()
    assert torch.equal(torch.stack(seen, 1), task.held.images)
    balls_of = [objects.filled(balls.at(balls.vertices * size))[0] for size in (1.0, 2.0, 3.0, 4.0, 5.0, 0.0)]
    expected = torch.stack([voxel_iou(ball, task.held.hulls[0]) for ball in balls_of]).mean().item()
    assert found[task.held.classes[task.held.labels[0]]] == pytest.approx(expected)


def test_reconstructed_shapes_are_where_objects_are():
    base = 0.5 * icosphere(42).vertices[0]
    network = Reconstruction(base, 16, width=4).eval()
    torch.nn.init.zeros_(network.displacement.weight), torch.nn.init.zeros_(network.displacement.bias)
    torch.nn.init.zeros_(network.centre.weight), torch.nn.init.zeros_(network.centre.bias)
    images = torch.rand(3, 4, 16, 16)
    torch.testing.assert_close(network(images), (0.5 * base).expand(3, -1, -1))
    torch.nn.init.constant_(network.centre.bias, 0.1)
    moved = 0.5 * displaced(base, torch.zeros_like(base), torch.full((3,), 0.01))
    torch.testing.assert_close(network(images), moved.expand(3, -1, -1))
    torch.nn.init.constant_(network.displacement.bias, 50.0)
    torch.nn.init.constant_(network.centre.bias, 1e4)
    assert network(images).abs().max() <= objects.EXTENT


def test_runs_of_silhouettes_are_not_gone_on_with(tmp_path):
    experiment = experiments.get("silhouette")
    config = experiment.configure("quick", method="softras", each=5, vertices=42, image_size=16, steps=4, report=2)

    def stop(step, steps, last):
        if step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(experiment, config, tmp_path, watch=stop)
    path = tmp_path / "checkpoints" / "last.safetensors"
    state = load_state(path)
    weight = state["task"]["model"]["body.0.weight"]
    state["task"]["model"]["body.0.weight"] = weight[:, :1].clone()  # as networks were that saw silhouettes
    save_state(path, state)
    with pytest.raises(ValueError, match=r"this is no checkpoint of this run: .*body\.0\.weight"):
        runner.run(experiment, config, tmp_path, resume=True)


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
    result = runner.run(
        experiment, experiment.configure("quick", method=method, batch_size=16, steps=6, report=3, each=5)
    )
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
    line = {"step": 1, "3D IoU": 0.1, "a pot": 0.3}
    runs = [
        runner.Result("reconstruction", "quick", "", {**kind._asdict(), "exponent": -2.0}, (line,), 0.0, None)
        for kind in experiment.compared["full"]["distribution,squared,aggregation"]
    ]
    ((_, figure),) = experiment.overview(runs).items()
    assert figure.axes[0].images[0].get_array().shape == (30, 2)


def test_the_map_of_classes_has_means_over_seeds():
    def run(name, exponent, seed, mean):
        config = {"distribution": name, "squared": False, "aggregation": "average", "exponent": exponent, "seed": seed}
        final = {"step": 1, "loss": 0.0, "3D IoU": mean, "a pot": 2 * mean, "minutes": 0.0}
        return runner.Result("reconstruction", "quick", "", config, (final,), 0.0, None)

    runs = [run("uniform", -1.0, 0, 0.5), run("uniform", -1.0, 1, 0.1), run("uniform", -2.0, 0, 0.4)]
    runs += [run("uniform", -2.0, 1, 0.4), run("logistic", -1.0, 0, 0.2)]
    ((_, figure),) = experiments.get("reconstruction").overview(runs).items()
    (axis,) = figure.axes
    assert axis.images[0].get_array().tolist() == [[0.0, 0.0], [1.0, 1.0]]  # logistic and uniform, each class by itself
    assert [text.get_text() for text in axis.texts] == ["20.0", "40.0", "40.0", "80.0"]


def test_the_picture_from_the_side_is_from_another_view():
    experiment = experiments.get("silhouette")
    task = experiment.start(experiment.configure("quick", each=5, vertices=42, image_size=16, views=3))
    course, steepnesses = task.pictures().values()
    above, _, beside, _ = course.axes[::3]
    assert not (above.images[0].get_array() == beside.images[0].get_array()).all()
    assert [axis.images[0].get_array().shape for axis in steepnesses.axes] == [(16, 16, 4), (16, 16), (16, 16)]


@pytest.mark.parametrize(
    ("name", "option"), [("shape", "exponents"), ("pose", "first"), ("pose", "last"), ("reconstruction", "exponent")]
)
def test_temperatures_that_no_float_has_are_refused(name, option):
    value = (-2.0, -400.0) if option == "exponents" else -400.0
    with pytest.raises(ValueError, match=f"{name}: {option} must be at least -300, got -400"):
        experiments.get(name).configure("quick", **{option: value})


def test_every_renderer_is_compared_at_its_temperature():
    compared = experiments.get("reconstruction").compared
    searched = {kind[:3]: kind[3] for kind in compared["standard"]["distribution,squared,aggregation,exponent"]}
    assert list(searched) == list(compared["full"]["distribution,squared,aggregation"])
    assert set(searched.values()) < set(compared["full"]["exponent"])
    # What squares distances needs a temperature of their square.
    assert all((exponent < -3.0) == squared for (name, squared, _), exponent in searched.items() if name != "cauchy")


def test_three_edges_take_the_steps_of_the_chapter():
    experiment = experiments.get("silhouette")
    small = {"generated": True, "each": 5, "views": 2, "vertices": 42, "image_size": 16, "width": 4}
    steps = {m: experiment.start(experiment.configure("full", method=m, **small)).steps for m in silhouette.STEEPNESS}
    assert steps == {"three_edges": 2_500_000, "distance": 1_000_000, "softras": 1_000_000}
