"""Silhouette supervision (chapter 2): shapes from single images, learned through relaxed silhouette programs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

import softly
from softly.algorithms.library import silhouette_distance, silhouette_three_edges
from softly.rendering import Camera, Mesh, flattening_loss, icosphere, iou_loss, laplacian_loss, voxel_iou
from softly_lab.data import objects
from softly_lab.models import Reconstruction
from softly_lab.runner import Experiment, option
from softly_lab.training import Training

# By methods, the chapter's steepness, and SoftRas' own for this task, which is of squared distances.
STEEPNESS = {"three_edges": 1e4, "distance": 2e3, "softras": 1e4}
STEPS = {"three_edges": 2_500_000, "distance": 1_000_000, "softras": 1_000_000}


@dataclass(frozen=True)
class Config:
    """One network, trained by silhouettes from two views."""

    method: str = option(
        "distance", "Renders: three_edges is Pix2Vex, distance a case of chapter 5's.", choices=tuple(STEEPNESS)
    )
    steepness: float | None = option(None, "Of the renderer; the chapter's if not given.", least=0.0)
    generated: bool = option(False, "Whether to take generated shapes that stand in for ShapeNet.")
    each: int | None = option(None, "Objects of a class at most; all if not given.", least=5)
    vertices: int = option(642, "Of the sphere: 42, 162, 642 or 2562.", least=12)
    image_size: int = option(64, "Of the renderings.", least=8)
    views: int = option(24, "Azimuths.", least=2)
    width: int = option(64, "Channels of the network's first layer.", least=1)
    batch_size: int = option(2, "Objects a step.", least=1)
    learning_rate: float = option(
        5e-5, "Of Adam; 0.3 times it after 60 % of the steps, and again after 80 %.", least=0.0
    )
    laplacian: float = option(5e-3, "Weight of the Laplacian.", least=0.0)
    flattening: float = option(5e-4, "Weight of the flattening.", least=0.0)
    steps: int | None = option(
        None, "Batches to learn from; 2,500,000 for three edges and 1,000,000 for others if not given.", least=1
    )
    report: int = option(10_000, "Steps between two tests.", least=1)
    seed: int = option(0, "Of weights and batches.", least=0)


class SingleView(Training):
    """A mesh from one rendering in colour, trained by silhouettes alone: from there and from another view."""

    def __init__(self, config: Any, render: Callable[[Mesh, Camera], Tensor]) -> None:
        super().__init__()
        self.config, self.steps, self.report, self.render = config, config.steps, config.report, render
        found = objects.load(config.image_size, config.views, generated=config.generated, each=config.each)
        self.train: objects.Objects = found[0]
        self.held: objects.Objects = found[1]
        self.data = self.train.kind
        self.sphere = icosphere(config.vertices)
        self.model = Reconstruction(0.5 * self.sphere.vertices[0], config.image_size, config.width)
        self.optimizer = torch.optim.Adam(self.model.parameters(), config.learning_rate, fused=True)

    def meshes(self, images: Tensor) -> Mesh:
        """The meshes of (n, 4, size, size) images."""
        return self.sphere.at(self.model(images))

    def falling(self, done: float) -> float:
        """What the learning rate is multiplied by when a share of the steps is done."""
        return 0.3 ** ((done >= 0.6) + (done >= 0.8))

    def loss(self, number: int) -> Tensor:
        config, done = self.config, number / self.steps
        for group in self.optimizer.param_groups:
            group["lr"] = config.learning_rate * self.falling(done)
        chosen = torch.randint(len(self.train), (config.batch_size,))
        views = torch.rand(config.batch_size, config.views).argsort(-1)[:, :2]
        seen = self.train.images[chosen.unsqueeze(-1), views]  # (batch, 2, 4, size, size)
        mesh = self.meshes(seen.flatten(0, 1))
        # Each mesh from its own view and from the other one.
        from_both = self.sphere.at(mesh.vertices.repeat_interleave(2, 0))
        camera = objects.camera(views.repeat_interleave(2, 0).flatten(), config.views)
        wanted = seen[:, :, 3].repeat_interleave(2, 0).flatten(0, 1)
        loss = iou_loss(self.render(from_both, camera), wanted).mean()
        loss = loss + config.laplacian * laplacian_loss(mesh).mean()
        return loss + config.flattening * flattening_loss(mesh).mean()

    def test(self) -> dict[str, float]:
        """The mean 3D IoU of all classes, and of each, over all views."""
        seen = [objects.filled(self.meshes(images)) for images in self.held.images.unbind(1)]
        iou = torch.stack([voxel_iou(filled, self.held.hulls) for filled in seen]).mean(0)
        each = {name: iou[self.held.labels == label].mean().item() for label, name in enumerate(self.held.classes)}
        return {"3D IoU": sum(each.values()) / len(each), **each}

    def pictures(self) -> dict[str, Figure]:
        """Test images, and what was made of them, from there and from the side."""
        count = min(8, len(self.held))
        shown = torch.linspace(0, len(self.held) - 1, count).round().long()
        self.model.eval()
        rows = []
        with torch.no_grad():
            mesh = self.meshes(self.held.images[shown, 0])
            for view in (0, max(1, self.config.views // 4)):
                camera = objects.camera(torch.tensor([view]), self.config.views)
                rows += [self.held.images[shown, view], objects.rendered(mesh, camera, self.config.image_size)]
        figure = Figure(figsize=(1.1 * count, 4.4), layout="constrained")
        for axes, images in zip(figure.subplots(4, count, squeeze=False), rows, strict=True):
            for axis, image in zip(axes, images, strict=True):
                axis.imshow(_shown(image))
                axis.axis("off")
        return {"Test images, what was made of them; both from the side, which the network has not seen.": figure}


def _shown(image: Tensor) -> np.ndarray:
    return image.movedim(0, -1).clamp(0, 1).numpy()


def renderer(config: Config) -> Callable[[Mesh, Camera], Tensor]:
    """The silhouettes (n, size, size) of n meshes from a camera each, by the method of a config."""
    steepness = STEEPNESS[config.method] if config.steepness is None else config.steepness
    if config.method == "softras":
        return softly.Renderer.like("softras", image_size=config.image_size, steepness=steepness).silhouette
    program = silhouette_three_edges if config.method == "three_edges" else silhouette_distance

    def render(mesh: Mesh, camera: Camera) -> Tensor:
        corners = mesh.corners(camera.project(mesh.vertices)[..., :2])
        return program(corners, image_size=config.image_size, steepness=steepness)

    return render


class Silhouettes(SingleView):
    """The same by a relaxed program, which is drawn at two steepnesses beside what the network saw."""

    def __init__(self, config: Config) -> None:
        super().__init__(config, renderer(config))
        self.steps = STEPS[config.method] if config.steps is None else config.steps

    def pictures(self) -> dict[str, Figure]:
        figure = Figure(figsize=(4.8, 1.8), layout="constrained")
        first, *others = figure.subplots(1, 3)
        first.imshow(_shown(self.held.images[0, 0]))
        first.set_title("test image", fontsize=7)
        first.axis("off")
        config, camera = self.config, objects.camera(torch.tensor([0]), self.config.views)
        usual = STEEPNESS[config.method] if config.steepness is None else config.steepness
        with torch.no_grad():
            self.model.eval()
            mesh = self.meshes(self.held.images[:1, 0])
            for axis, share in zip(others, (0.1, 1.0), strict=True):
                image = renderer(replace(config, steepness=share * usual))(mesh, camera)[0]
                axis.imshow(image.numpy(), cmap="gray_r", vmin=0, vmax=1)
                axis.set_title(f"steepness {share * usual:g}", fontsize=7)
                axis.axis("off")
        caption = "A test image, and the silhouette made of it at a tenth of the steepness in training, and at it."
        return {**super().pictures(), caption: figure}


EXPERIMENT = Experiment(
    name="silhouette",
    summary="Reconstruct shapes from single images, learned through relaxed silhouette programs.",
    chapter=2,
    config=Config,
    start=Silhouettes,
    presets={
        "quick": {
            "generated": True, "vertices": 42, "image_size": 16, "views": 8, "width": 8, "learning_rate": 3e-3,
            "steepness": 50.0, "steps": 40, "report": 10,
        },
        "standard": {
            "vertices": 162, "image_size": 32, "width": 32, "learning_rate": 2e-4, "steps": 1000, "report": 100,
        },
        "full": {},
    },
    compared={
        "quick": {"method,steepness": (("three_edges", 50.0), ("distance", 50.0), ("softras", 1000.0))},
        "standard": {"method": tuple(STEEPNESS)},
        "full": {"method": tuple(STEEPNESS)},
    },
)  # fmt: skip
