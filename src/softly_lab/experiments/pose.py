"""Camera pose optimisation (chapter 5): where from a silhouette of a teapot was seen."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import softly
from softly.rendering import Camera, iou_loss
from softly_lab.data import meshes
from softly_lab.experiments.shape import RECONSTRUCTED, SINGLED_OUT
from softly_lab.renderers import AGGREGATIONS, DISTRIBUTIONS, heat_map, kind_of, kinds
from softly_lab.runner import Experiment, option
from softly_lab.training import Training


@dataclass(frozen=True)
class Config:
    """One renderer, whose temperature falls from step to step, on pairs of a reference and a pose to start from."""

    distribution: str = option("logistic", "What perturbs distances.", choices=tuple(DISTRIBUTIONS))
    squared: bool = option(False, "Whether distances are squared first.")
    aggregation: str = option("probabilistic", "How faces are put together.", choices=tuple(AGGREGATIONS))
    shape: str = option("teapot", "What is seen.", choices=tuple(meshes.STAND_INS))
    generated: bool = option(False, "Whether to take a generated shape that stands in for it.")
    image_size: int = option(64, "Of the silhouettes.", least=1)
    pairs: int = option(200, "References, each with a start in every band.", least=1)
    errors: tuple[float, ...] = option((15.0, 35.0, 55.0, 75.0), "Bounds of the bands of first errors.", least=0.0)
    learning_rate: float = option(0.3, "Of Adam, in degrees; the chapter tries 0.1 as well.", least=0.0)
    first: float = option(-1.0, "The temperature's exponent of ten in the first step.", least=-300.0)
    last: float = option(-7.0, "The same in the last step.", least=-300.0)
    steps: int = option(1000, "Of the optimisation.", least=2)
    report: int = option(100, "Steps between two measurements.", least=1)
    seed: int = option(0, "Of references and starts.", least=0)


class Poses(nn.Module):
    """Distance, elevation, azimuth and half of the field of view, relative to where the reference was seen from."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.values = nn.Parameter(start)

    def forward(self) -> Camera:
        distance, elevation, azimuth, angle = self.values.unbind(-1)
        return Camera.look_at(distance=distance, elevation=elevation, azimuth=azimuth, fov=2.0 * angle)

    def errors(self) -> Tensor:
        """How far they are from the truth, in degrees."""
        return self.values[:, 1:3].detach().norm(dim=-1)


class Pose(Training):
    """All pairs at once; since Adam looks at every number by itself, they don't see each other."""

    batched = False

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, self.steps, self.report = config, config.steps, config.report
        mesh, self.data = meshes.load(config.shape, generated=config.generated)
        self.bands = list(pairwise(config.errors))
        if not self.bands or any(low > high for low, high in self.bands):
            raise ValueError(f"pose: errors must be two numbers or more that don't fall, got {config.errors}.")
        pairs = config.pairs
        self.distance = distance = 2.5 + 1.5 * torch.rand(pairs)
        elevation, azimuth = 60.0 * torch.randn(2, pairs)
        # The mesh is turned, so that what is to be found is 0.
        turn = Camera.look_at(distance=distance, elevation=elevation, azimuth=azimuth).rotation
        turned = mesh.at(mesh.vertices @ turn.mT)
        hard = softly.Renderer(config.image_size, straight_through=True)
        wanted = hard.silhouette(turned, Camera.look_at(distance=distance, fov=40.0))
        self.mesh = mesh.at(turned.vertices.repeat(len(self.bands), 1, 1))
        self.wanted = wanted.repeat(len(self.bands), 1, 1)
        self.model: Poses = Poses(torch.cat([self._starts(low, high) for low, high in self.bands]))
        self.start = self.model.values.detach().clone()
        self.optimizer = torch.optim.Adam(self.model.parameters(), config.learning_rate, betas=(0.5, 0.99))
        self.renderer = kind_of(config).make(config.image_size)

    def _starts(self, low: float, high: float) -> Tensor:
        pairs = self.config.pairs
        direction = 2 * math.pi * torch.rand(pairs)
        error = low + (high - low) * torch.rand(pairs)
        sides = [error * direction.sin(), error * direction.cos()]
        return torch.stack([2.0 + 8.0 * torch.rand(pairs), *sides, 10.0 + 20.0 * torch.rand(pairs)], -1)

    def loss(self, number: int) -> Tensor:
        done = number / (self.steps - 1)
        self.renderer.steepness = 10.0 ** -(self.config.first + done * (self.config.last - self.config.first))
        with torch.no_grad():  # a camera that sees something
            self.model.values[:, 0].clamp_(min=0.5)
            self.model.values[:, 3].clamp_(2.0, 80.0)
        return iou_loss(self.renderer.silhouette(self.mesh, self.model()), self.wanted).sum()

    def test(self) -> dict[str, float]:
        """Shares in per cent of poses that are found: the chapter counts 3°, the original's release 5°."""
        errors = self.model.errors()
        share = lambda within, found: 100.0 * (found < within).double().mean().item()  # noqa: E731
        result = {"within 3°": share(3.0, errors), "within 5°": share(5.0, errors)}
        for (low, high), found in zip(self.bands, errors.split(self.config.pairs), strict=True):
            result[f"within 3° from {low:g}-{high:g}°"] = share(3.0, found)
        return result

    def pictures(self) -> dict[str, Figure]:
        """References, and what is seen from the first and the last pose."""
        count = min(8, len(self.wanted))
        shown = torch.linspace(0, len(self.wanted) - 1, count).round().long()
        hard = softly.Renderer(self.config.image_size, straight_through=True)
        with torch.no_grad():
            seen = [hard.silhouette(self.mesh, camera)[shown] for camera in (Poses(self.start)(), self.model())]
        errors = self.model.errors()[shown].tolist()
        figure = Figure(figsize=(1.2 * count, 2.8), layout="constrained")
        axes = figure.subplots(2, count, squeeze=False)
        for column, error in enumerate(errors):
            for row, images in enumerate(seen):
                both = torch.stack([images[column], self.wanted[shown][column], torch.zeros_like(images[column])], -1)
                axes[row][column].imshow(both.numpy())
                axes[row][column].axis("off")
            axes[1][column].set_title(f"{error:.1f}°", fontsize=8)
        return {"From first and last poses red, references green, both yellow; errors at the end.": figure}


EXPERIMENT = Experiment(
    name="pose",
    summary="Find where from a silhouette was seen, with any of 1,242 renderers.",
    chapter=5,
    config=Config,
    start=Pose,
    presets={
        "quick": {
            "generated": True, "image_size": 32, "pairs": 8, "errors": (15.0, 35.0), "steps": 600, "report": 100,
        },
        "standard": {"pairs": 20, "learning_rate": 0.1},
        "full": {},
    },
    compared={
        "quick": {"distribution,squared,aggregation": RECONSTRUCTED[:3]},
        "standard": {"distribution,squared,aggregation": (*RECONSTRUCTED, *SINGLED_OUT)},
        "full": {
            "distribution,squared,aggregation": tuple(dict.fromkeys(kind.canonical() for kind in kinds())),
            "learning_rate": (0.1, 0.3),
        },
    },
    overview=lambda runs: heat_map(runs, "within 3°", "learning_rate"),
)  # fmt: skip
