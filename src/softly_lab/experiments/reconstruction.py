"""Single-view reconstruction (chapter 5): shapes from single images, with thirty renderers."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from softly_lab.experiments import silhouette
from softly_lab.experiments.shape import RECONSTRUCTED
from softly_lab.renderers import AGGREGATIONS, DISTRIBUTIONS, comparable, kind_of
from softly_lab.runner import Experiment, Result, option


@dataclass(frozen=True)
class Config:
    """One renderer at one temperature; the chapter searches for it at a resolution of half a decade."""

    distribution: str = option("uniform", "What perturbs distances.", choices=tuple(DISTRIBUTIONS))
    squared: bool = option(False, "Whether distances are squared first.")
    aggregation: str = option("probabilistic", "How faces are put together.", choices=tuple(AGGREGATIONS))
    exponent: float = option(
        -2.0, "Of ten: the temperature, 0.3 times of which comes after 60 % of the steps.", least=-300.0
    )
    generated: bool = option(False, "Whether to take generated shapes that stand in for ShapeNet.")
    each: int | None = option(None, "Objects of a class at most; all if not given.", least=5)
    vertices: int = option(642, "Of the sphere: 42, 162, 642 or 2562.", least=12)
    image_size: int = option(64, "Of the renderings.", least=8)
    views: int = option(24, "Azimuths.", least=2)
    width: int = option(64, "Channels of the network's first layer.", least=1)
    batch_size: int = option(64, "Objects a step.", least=1)
    learning_rate: float = option(1e-4, "Of Adam; 0.3 times it after 60 % of the steps.", least=0.0)
    laplacian: float = option(5e-3, "Weight of the Laplacian.", least=0.0)
    flattening: float = option(5e-4, "Weight of the flattening.", least=0.0)
    steps: int = option(250_000, "Batches to learn from.", least=1)
    report: int = option(5000, "Steps between two tests.", least=1)
    seed: int = option(0, "Of weights and batches.", least=0)


class Reconstruction(silhouette.SingleView):
    """As in chapter 2, with a temperature that falls once, together with the learning rate."""

    def __init__(self, config: Config) -> None:
        self.renderer = kind_of(config).make(config.image_size)
        super().__init__(config, self.renderer.silhouette)

    def falling(self, done: float) -> float:
        return 0.3 if done >= 0.6 else 1.0

    def loss(self, number: int) -> Tensor:
        temperature = 10.0**self.config.exponent * self.falling(number / self.steps)
        self.renderer.steepness = 1.0 / temperature
        return super().loss(number)


def class_map(runs: Sequence[Result]) -> dict[str, Figure]:
    """The 3D IoU of every class in the mean over seeds, by renderers, each at its best temperature."""
    figures = {}
    for what, group in comparable(runs, "exponent").items():
        alike: dict[tuple[str, float], list[Result]] = {}
        for run in group:
            kind = kind_of(run.config).canonical()
            name = f"{kind.aggregation}, {kind.distribution}{', squared' * kind.squared}"
            alike.setdefault((name, run.config["exponent"]), []).append(run)
        best: dict[str, dict[str, float]] = {}
        for (name, _), seeds in alike.items():
            classes = [label for label in seeds[0].final if label not in _OTHERS]
            found = {label: statistics.fmean(run.final[label] for run in seeds) for label in classes}
            best[name] = max(best.get(name, found), found, key=itemgetter("3D IoU"))
        if len(best) > 1:
            caption = f"3D IoU in per cent of every class, by renderers ({what}), at the best temperature of each"
            figures[f"{caption}; colours go from the worst renderer of a class to its best."] = _drawn(best)
    return figures


def _drawn(best: Mapping[str, Mapping[str, float]]) -> Figure:
    names = sorted(best)
    classes = list(best[names[0]])
    grid = 100 * np.array([[best[name][label] for label in classes] for name in names])
    low, high = grid.min(0), grid.max(0)
    shares = np.divide(grid - low, high - low, out=np.full_like(grid, 0.5), where=high > low)
    figure = Figure(figsize=(7, 1.2 + 0.25 * len(names)), layout="constrained")
    axis = figure.subplots()
    axis.imshow(shares, aspect="auto", cmap="viridis", vmin=0, vmax=1)
    for (row, column), value in np.ndenumerate(grid):
        color = "black" if shares[row, column] > 0.5 else "white"
        axis.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=7, color=color)
    axis.set_xticks(range(len(classes)), classes, rotation=45, ha="right", fontsize=7)
    axis.set_yticks(range(len(names)), names, fontsize=7)
    return figure


_OTHERS = ("step", "loss", "minutes")

# The exponents that the original's release found best, by T-conorms and distributions as they come in `RECONSTRUCTED`.
_EXPONENTS = (
    (-1.5, -1.5, -2.0, -4.0, -3.5, -4.5, -2.0, -2.0, -4.0, -2.0),
    (-1.5, -1.5, -2.0, -4.0, -3.5, -4.5, -2.5, -2.0, -4.0, -2.0),
    (-1.5, -2.0, -2.0, -4.0, -3.0, -4.0, -2.0, -2.0, -3.5, -2.0),
)
SEARCHED = tuple((*kind, exponent) for kind, exponent in zip(RECONSTRUCTED, chain(*_EXPONENTS), strict=True))

EXPERIMENT = Experiment(
    name="reconstruction",
    summary="Reconstruct shapes from single images, with any of 1,242 renderers.",
    chapter=5,
    config=Config,
    start=Reconstruction,
    presets={
        "quick": {
            "generated": True, "vertices": 162, "image_size": 32, "views": 8, "width": 8, "batch_size": 8,
            "learning_rate": 2e-3, "exponent": -2.0, "steps": 100, "report": 20,
        },
        "standard": {
            "width": 32, "batch_size": 8, "learning_rate": 3e-4, "steps": 10_000, "report": 500,
        },
        "full": {},
    },
    compared={
        "quick": {"distribution,squared,aggregation": RECONSTRUCTED[:3]},
        "standard": {"distribution,squared,aggregation,exponent": SEARCHED},
        "full": {"distribution,squared,aggregation": RECONSTRUCTED, "exponent": tuple(-0.5 * n for n in range(2, 13))},
    },
    overview=class_map,
)  # fmt: skip
