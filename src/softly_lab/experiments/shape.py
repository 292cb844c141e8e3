"""Shape optimisation (chapter 5): a sphere becomes an airplane, by silhouettes alone, in a hundred steps."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

import softly
from softly.rendering import Camera, Lights, Mesh, flattening_loss, icosphere, iou_loss, laplacian_loss
from softly_lab.data import meshes
from softly_lab.models import displaced
from softly_lab.renderers import AGGREGATIONS, DISTRIBUTIONS, Kind, heat_map, kind_of, kinds
from softly_lab.runner import Experiment, Task, option

DISTANCE, FOV = 2.732, 30.0  # half of the field of view is the chapter's viewing angle


@dataclass(frozen=True)
class Config:
    """One renderer, whose learning rate and temperature are searched for each elevation by itself."""

    distribution: str = option("logistic", "What perturbs distances.", choices=tuple(DISTRIBUTIONS))
    squared: bool = option(False, "Whether distances are squared first.")
    aggregation: str = option("probabilistic", "How faces are put together.", choices=tuple(AGGREGATIONS))
    shape: str = option("airplane", "What the sphere becomes.", choices=tuple(meshes.STAND_INS))
    generated: bool = option(False, "Whether to take a generated shape that stands in for it.")
    vertices: int = option(642, "Of the sphere: 42, 162, 642 or 2562.", least=12)
    image_size: int = option(64, "Of the silhouettes.", least=1)
    views: int = option(24, "Azimuths.", least=1)
    elevations: tuple[float, ...] = option((-60.0, -30.0, 0.0, 30.0, 60.0), "In degrees, each a search of its own.")
    learning_rates: tuple[float, ...] = option((10**-1.25, 10**-1.5, 10**-1.75), "Choices for Adam.", least=0.0)
    exponents: tuple[float, ...] = option(
        (-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0), "Of ten: the temperatures that are tried first.", least=-300.0
    )
    finer: int = option(21, "Temperatures then, over a decade to either side of the best.", least=0)
    iterations: int = option(100, "Steps of a fit.", least=1)
    laplacian: float = option(0.03, "Weight of the Laplacian.", least=0.0)
    flattening: float = option(0.0003, "Weight of the flattening.", least=0.0)
    seed: int = option(0, "Nothing is drawn at random: all seeds are alike.", least=0)


class Fit(NamedTuple):
    """A fit: its elevation, learning rate, exponent of the temperature, and the best hard 1 - IoU on its way."""

    elevation: float
    learning_rate: float
    exponent: float
    loss: float


class Shape(Task):
    """A step is one fit: for each elevation first the coarse choices, then the finer ones around the best."""

    report = 1

    def __init__(self, config: Config) -> None:
        self.config = config
        self.target, self.data = meshes.load(config.shape, generated=config.generated)
        self.coarse = list(itertools.product(config.learning_rates, config.exponents))
        self.steps = len(config.elevations) * (len(self.coarse) + config.finer)
        self.hard = softly.Renderer(config.image_size, straight_through=True)
        self.sphere = icosphere(config.vertices)
        self.fits: list[Fit] = []

    def step(self, number: int) -> None:
        place, choice = divmod(number, len(self.coarse) + self.config.finer)
        elevation = self.config.elevations[place]
        if choice < len(self.coarse):
            rate, exponent = self.coarse[choice]
        else:
            best = min(self._of(elevation)[: len(self.coarse)], key=lambda fit: fit.loss)
            spread = np.linspace(-1.0, 1.0, self.config.finer)
            rate, exponent = best.learning_rate, best.exponent + float(spread[choice - len(self.coarse)])
        loss = min(loss for _, loss in self.fitted(elevation, rate, exponent))
        self.fits.append(Fit(elevation, rate, exponent, loss))

    def _of(self, elevation: float) -> list[Fit]:
        return [fit for fit in self.fits if fit.elevation == elevation]

    def best(self) -> list[Fit]:
        """The best fit of each elevation that has some."""
        found = [self._of(elevation) for elevation in self.config.elevations]
        return [min(fits, key=lambda fit: fit.loss) for fits in found if fits]

    def fitted(self, elevation: float, learning_rate: float, exponent: float) -> Iterator[tuple[Mesh, float]]:
        """The mesh before every step of a fit, and its hard 1 - IoU."""
        config = self.config
        renderer = kind_of(config).make(config.image_size, 10.0**-exponent)
        camera = self.camera(elevation)
        wanted = self.hard.silhouette(self.target, camera)
        displacement = torch.zeros_like(self.sphere.vertices, requires_grad=True)
        centre = torch.zeros(3, requires_grad=True)
        optimizer = torch.optim.Adam([displacement, centre], learning_rate, betas=(0.5, 0.95))
        for _ in range(config.iterations):
            mesh = self.sphere.at(displaced(0.5 * self.sphere.vertices, displacement, centre))
            with torch.no_grad():
                reached = iou_loss(self.hard.silhouette(mesh, camera), wanted).mean().item()
            yield mesh, reached
            loss = iou_loss(renderer.silhouette(mesh, camera), wanted).mean()
            loss = loss + config.laplacian * laplacian_loss(mesh).mean()
            loss = loss + config.flattening * flattening_loss(mesh).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def camera(self, elevation: float) -> Camera:
        """All views of an elevation."""
        azimuths = torch.arange(self.config.views) * (-360.0 / self.config.views)
        return Camera.look_at(distance=DISTANCE, elevation=elevation, azimuth=azimuths, fov=FOV)

    def measure(self) -> dict[str, float]:
        """Means over the elevations so far: of the best hard IoU, and of the choices that reached it."""
        best = self.best()
        mean = {name: sum(getattr(fit, name) for fit in best) / len(best) for name in Fit._fields[1:]}
        return {
            "IoU": 1.0 - mean["loss"],
            "1 - IoU": mean["loss"],
            "exponent": mean["exponent"],
            "learning rate": mean["learning_rate"],
        }

    def state(self) -> Any:
        return {"fits": [list(fit) for fit in self.fits]}

    def load(self, state: Any) -> None:
        self.fits = [Fit(*fit) for fit in state["fits"]]

    def pictures(self) -> dict[str, Figure]:
        """The best fit, from the sphere on, and what it was to become."""
        fit = min(self.best(), key=lambda fit: fit.loss)
        course = list(self.fitted(*fit[:3]))
        shown = np.linspace(0, 1, 6) ** 2 * (len(course) - 1)
        parts = [(f"step {round(at)}", course[round(at)][0]) for at in shown] + [("target", self.target)]
        lit = softly.Renderer(112, shading="nearest", background=[1.0, 1.0, 1.0])
        lights = Lights(ambient=0.35, direction=torch.tensor([0.3, 1.0, 0.6]), diffuse=0.65)
        camera = Camera.look_at(distance=DISTANCE, elevation=35.0, azimuth=30.0, fov=26.0)
        figure = Figure(figsize=(1.7 * len(parts), 2.0), layout="constrained")
        for axis, (title, mesh) in zip(figure.subplots(1, len(parts)), parts, strict=True):
            with torch.no_grad():
                image = lit(mesh, camera, lights)[0, :3]
            axis.imshow(image.clamp(0, 1).permute(1, 2, 0).numpy())
            axis.set_title(title, fontsize=9)
            axis.axis("off")
        return {f"The best fit, from the elevation of {fit.elevation:g}°: 1 - IoU is {fit.loss:.3f}.": figure}


# The renderers of the reconstruction task, and twelve more that the chapter singles out.
RECONSTRUCTED = tuple(
    Kind(distribution, squared, aggregation)
    for aggregation in ("probabilistic", "einstein", "yager-2")
    for distribution, squared in (
        ("uniform", False), ("gaussian", False), ("logistic", False), ("logistic", True), ("cauchy", False),
        ("cauchy", True), ("gumbel_min", False), ("gamma-0.5-reversed", False), ("gamma-0.5-reversed", True),
        ("exponential-reversed", False),
    )
)  # fmt: skip
SINGLED_OUT = (
    Kind("logistic", False, "average"), Kind("logistic", False, "maximum"), Kind("logistic", False, "dombi-0.5"),
    Kind("logistic", False, "yager-4"), Kind("logistic", False, "schweizer_sklar-4"),
    Kind("gamma-0.5-reversed", False, "dombi-0.5"), Kind("gamma-0.5", False, "probabilistic"),
    Kind("gumbel_max", False, "probabilistic"), Kind("exponential", False, "probabilistic"),
    Kind("exponential-reversed", True, "probabilistic"), Kind("reciprocal", False, "probabilistic"),
    Kind("levy-reversed", False, "probabilistic"),
)  # fmt: skip

EXPERIMENT = Experiment(
    name="shape",
    summary="Fit a sphere to silhouettes of an airplane, with any of 1,242 renderers.",
    chapter=5,
    config=Config,
    start=Shape,
    presets={
        "quick": {
            "generated": True, "vertices": 162, "image_size": 32, "views": 8, "elevations": (30.0,),
            "learning_rates": (10**-1.5,), "exponents": (-1.5, -2.5), "finer": 2, "iterations": 60,
        },
        "standard": {
            "learning_rates": (10**-1.5,), "exponents": (-2.0, -3.0, -4.0, -5.0), "finer": 5,
        },
        "full": {},
    },
    compared={
        "quick": {"distribution,squared,aggregation": (*RECONSTRUCTED[:10], *RECONSTRUCTED[-3:])},
        "standard": {"distribution,squared,aggregation": (*RECONSTRUCTED, *SINGLED_OUT)},
        "full": {"distribution,squared,aggregation": tuple(dict.fromkeys(kind.canonical() for kind in kinds()))},
    },
    overview=lambda runs: heat_map(runs, "IoU"),
)  # fmt: skip
