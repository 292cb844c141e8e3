"""Sorting numbers on images, learned from their order alone (chapters 3 and 7, and bubble sort of chapter 2)."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

import softly
from softly.sorting import Sorter, metrics
from softly_lab.data import available, numbers
from softly_lab.models import convolutional
from softly_lab.runner import Experiment, Result, option
from softly_lab.tour.plots import STYLE
from softly_lab.training import Training

NETWORKS = ("odd_even", "bitonic", "pairwise")
SORTERS = (*NETWORKS, "neuralsort", "softsort", "sinkhornsort", "fastsort", "bubble_sort")
METHODS = ("regular", "hessian", "fisher", "hessian_control", "fisher_control", "resgro")
DISTRIBUTIONS = ("logistic", "reciprocal", "cauchy", "optimal", "gaussian", "laplace", "hyperbolic_secant")

# Inverse temperatures of the chapter by distribution, for odd-even networks of so many inputs and bitonic ones.
_BETA: dict[str, tuple[dict[int, float], dict[int, float]]] = {
    "logistic": ({3: 79, 5: 30, 7: 33, 9: 54, 15: 32, 32: 128}, {16: 43, 32: 8}),
    "logistic, art": ({3: 15, 5: 20, 7: 13, 9: 34, 15: 16, 32: 29}, {16: 28, 32: 26}),
    "reciprocal": ({3: 14, 5: 60, 7: 69, 9: 44, 15: 120, 32: 1140}, {16: 124, 32: 76}),
    "cauchy": (
        {k: b * math.pi for k, b in {3: 14.5, 5: 51, 7: 71, 9: 15, 15: 40, 32: 169}.items()},
        {16: 12 * math.pi, 32: 48.5 * math.pi},
    ),
    "optimal": ({3: 6, 5: 20, 7: 29, 9: 32, 15: 25, 32: 124}, {16: 17, 32: 25}),
}


@dataclass(frozen=True)
class Config:
    """One network, trained by one method.

    What the chapter does not state: the steepness of sorters that are no networks is "auto", as many as a list's
    spread asks for, and that of distributions that it did not try is the logistic one's. Nor does chapter 7 state
    Tikhonov's λ, or RESGRO's samples, sets and scale: subsets of 10, from 5, 10, 25 and 50, and a scale of 0.3, from
    0.03, 0.1 and 0.3, were the best on validation images of small digits after 300 steps with one seed.

    A control is the plain gradient, made as long as the Newton step of the batch: what it reaches is not by curvature.
    """

    data: str = option("auto", "What is sorted; auto is mnist, or digits where it is not there.",
                       choices=("auto", "mnist", "svhn", "digits"))  # fmt: skip
    n: int = option(5, "The length of a list.", least=2)
    sorter: str = option("odd_even", "The method.", choices=SORTERS)
    distribution: str = option("cauchy", "Of a network's comparators.", choices=DISTRIBUTIONS)
    art: float = option(0.0, "The strength of the activation replacement trick; 0 is none.", least=0.0)
    beta: float | None = option(
        None, "Inverse temperature as the chapter counts it; by n and distribution if not given."
    )
    method: str = option("regular", "The sorter's loss, a Newton loss of it, its control, or RESGRO on Kendall's τ.",
                         choices=METHODS)  # fmt: skip
    tikhonov: float | None = option(None, "Of Newton losses; by itself if not given.", least=0.0)
    num_samples: int = option(100, "Of RESGRO.", least=2)
    subset_size: int = option(10, "Of RESGRO's subsets.", least=2)
    num_sets: int | None = option(None, "Of RESGRO; none is all subsets.", least=1)
    scale: float = option(0.3, "Of RESGRO's noise.", least=0.0)
    validation: bool = option(False, "Test on a fifth of the images to learn from, to choose options by.")
    batch_size: int = option(100, "Lists a step.", least=1)
    learning_rate: float = option(10**-3.5, "Of Adam.", least=0.0)
    channels: tuple[int, ...] = option((32, 64), "Of the convolutions.", least=1)
    half: bool = option(False, "Halve the sides of MNIST's images.")
    steps: int = option(100_000, "Batches to learn from.", least=1)
    report: int = option(1000, "Steps between two tests.", least=1)
    test_lists: int = option(2000, "Lists of a test.", least=1)
    seed: int = option(0, "Of weights and batches.", least=0)


def steepness(config: Config) -> float | str:
    """The chapter's β in softly's terms."""
    beta = config.beta
    if config.sorter not in NETWORKS:
        return "auto" if beta is None else beta
    if beta is None:
        tried = _BETA.get("logistic, art" if config.art else config.distribution, _BETA["logistic"])
        known = tried[1] if config.sorter == "bitonic" else tried[0]
        known = known or tried[0]
        beta = known[min(known, key=lambda k: abs(k - config.n))]
    if config.distribution == "reciprocal":
        beta *= 2
    return beta ** (1 / (1 - config.art))


def make_sorter(config: Config) -> Sorter:
    """The differentiable sorter of a config."""
    value: Any = steepness(config)
    if config.sorter in NETWORKS:
        distribution: Any = config.distribution
        if config.art:
            distribution = softly.distributions.art(distribution, strength=config.art)
        return softly.SortingNetwork(config.sorter, distribution=distribution, steepness=value)
    kinds: dict[str, Any] = {
        "neuralsort": softly.NeuralSort,
        "softsort": softly.SoftSort,
        "sinkhornsort": softly.SinkhornSort,
        "fastsort": softly.FastSort,
    }
    return kinds[config.sorter](steepness=value)


def discordance(scores: Tensor, ranks: Tensor) -> Tensor:
    """The negative Kendall's τ of each list, of scores (..., n): hard, without a gradient."""
    before = torch.sign(scores.unsqueeze(-1) - scores.unsqueeze(-2))
    wanted = torch.sign(ranks.unsqueeze(-1) - ranks.unsqueeze(-2))
    n = scores.shape[-1]
    return -(before * wanted).sum((-2, -1)) / (n * (n - 1))


def rescaled(loss: Callable[..., Tensor], newton: softly.NewtonLoss, scores: Tensor, ranks: Tensor) -> Tensor:
    """A loss whose gradient is that of ``loss`` (B,), as long as the step of its Newton loss: without curvature."""
    leaf = scores.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf, ranks).sum(), leaf)
    length = (leaf.detach() - newton.target(leaf.detach(), ranks)).norm()
    gradient = gradient * (length / gradient.norm().clamp(min=torch.finfo(gradient.dtype).tiny))
    return 0.5 * (scores - (leaf.detach() - gradient)).square().sum() / len(scores)


class Sorting(Training):
    """Scores of images, trained by what a differentiable sorter makes of them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, self.steps, self.report = config, config.steps, config.report
        kind = config.data
        if kind == "auto":
            kind = "mnist" if available("mnist") else "digits"
        parts: tuple[numbers.Numbers, numbers.Numbers]
        if kind == "mnist":
            parts = numbers.mnist(half=config.half)
        else:
            parts = numbers.digits() if kind == "digits" else numbers.svhn()
        self.train: numbers.Numbers
        self.held: numbers.Numbers
        self.train, self.held = parts[0].divided(0.8) if config.validation else parts
        self.data = {
            "mnist": "MNIST, four digits" + (", 14×56 pixels" if config.half else ""),
            "svhn": "SVHN, a part of it",
            "digits": "scikit-learn's digits, four of them (stand-in for MNIST)",
        }[kind] + (", validation" if config.validation else "")
        channels = config.channels if kind != "svhn" else (*config.channels, *(4 * c for c in config.channels))
        self.model = convolutional(self.train.shape, 1, channels)
        self.optimizer = torch.optim.Adam(self.model.parameters(), config.learning_rate)
        self.sorter = None if config.sorter == "bubble_sort" else make_sorter(config)
        self.bubble_sort = softly.algorithms.library.bubble_sort.using(steepness=float(config.beta or 8.0)).tape()

        self.criterion = self._criterion()

    def _each(self, scores: Tensor, ranks: Tensor) -> Tensor:
        """The sorter's loss of each list."""
        if self.sorter is None:
            # The numbers in their true order: nothing is to be swapped.
            return self.bubble_sort(scores.gather(-1, ranks.argsort(-1)))[1]
        if self.config.sorter == "fastsort":
            return (self.sorter.rank(scores) - ranks).square().mean(-1)
        return softly.sorting.ranking_loss(self.sorter.log_permutation(scores), ranks, reduction="none", log=True)

    def _criterion(self) -> Callable[[Tensor, Tensor], Tensor]:
        """The loss of scores and true ranks, a scalar."""
        config = self.config
        if config.method == "regular":
            return lambda scores, ranks: self._each(scores, ranks).mean()
        if config.method == "resgro":
            return softly.Resgro(
                discordance, num_samples=config.num_samples, subset_size=config.subset_size, num_sets=config.num_sets,
                scale=config.scale, reduction="mean",
            )  # fmt: skip
        curvature: Any = config.method.removesuffix("_control")
        tikhonov: Any = "auto" if config.tikhonov is None else config.tikhonov
        newton = softly.NewtonLoss(self._each, curvature=curvature, tikhonov=tikhonov, reduction="mean")
        return functools.partial(rescaled, self._each, newton) if config.method.endswith("_control") else newton

    def loss(self, number: int) -> Tensor:
        drawn, shown = self.train.lists(self.config.batch_size, self.config.n)
        return self.criterion(self._scores(drawn), shown.argsort(-1).argsort(-1) + 1)

    def test(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for length in sorted({self.config.n, 5}):
            generator = torch.Generator().manual_seed(1000 * self.config.seed + length)
            scores, shown = [], []
            for _ in range(-(-self.config.test_lists // 100)):
                drawn, values = self.held.lists(100, length, generator)
                scores.append(self._scores(drawn))
                shown.append(values)
            together, truth = torch.cat(scores), torch.cat(shown)
            if length == self.config.n:
                found["EM"] = 100 * float(metrics.exact_match(together, truth))
                found["EW"] = 100 * float(metrics.elementwise_match(together, truth))
            if length == 5:
                found["EM5"] = 100 * float(metrics.exact_match(together, truth))
        return found

    def _scores(self, drawn: Tensor) -> Tensor:
        return self.model(drawn.flatten(0, 1)).reshape(drawn.shape[:2])

    def pictures(self) -> dict[str, Figure]:
        """A few lists in the order that the model gives them."""
        drawn, shown = self.held.lists(4, min(self.config.n, 6), torch.Generator().manual_seed(0))
        with torch.no_grad():
            order = self._scores(drawn).argsort(-1)
        figure = Figure(figsize=(9, 2.6), layout="constrained")
        axes = figure.subplots(*order.shape, squeeze=False)
        for row, (images, values, places) in enumerate(zip(drawn, shown, order, strict=True)):
            for column, place in enumerate(places.tolist()):
                image = images[place].permute(1, 2, 0)
                axes[row][column].imshow(image.numpy(), cmap="gray_r" if image.shape[-1] == 1 else None)
                right = values[place] == values.sort().values[column]
                axes[row][column].set_title(
                    str(values[place].item()), color="#22a06b" if right else "#e5484d", fontsize=8
                )
                axes[row][column].axis("off")
        return {"Test images in the order of their scores; what is in its place is green.": figure}


def overview(runs: Sequence[Result]) -> Mapping[str, Figure]:
    """What the inverse temperature does, for every distribution and sorter that was run with more than two."""
    curves: dict[str, dict[float, list[float]]] = {}
    for run in runs:
        config = run.config
        if config["beta"] is not None and config["method"] == "regular":
            how = config["distribution"] if config["sorter"] in NETWORKS else ""
            name = f"{config['sorter']} {how}, n = {config['n']}, {run.preset}, {run.data}"
            curves.setdefault(name, {}).setdefault(config["beta"], []).append(run.final["EM"])
    curves = {name: points for name, points in curves.items() if len(points) > 2}
    if not curves:
        return {}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6, 3.2), layout="constrained")
        axes = figure.subplots()
        for name, points in curves.items():
            betas = sorted(points)
            axes.plot(betas, [np.mean(points[beta]) for beta in betas], marker="o", markersize=3, label=name)
        axes.set_xscale("log")
        axes.set_xlabel("inverse temperature β")
        axes.set_ylabel("exact matches in per cent")
        axes.legend(fontsize=6)
    return {"Exact matches against the inverse temperature.": figure}


EXPERIMENT = Experiment(
    name="sorting",
    summary="Sort numbers on images, learned from their order alone.",
    chapter=3,
    config=Config,
    start=Sorting,
    presets={
        "quick": {
            "data": "digits", "channels": (8, 16), "batch_size": 32, "learning_rate": 1e-3,
            "steps": 300, "report": 100, "test_lists": 500,
        },
        "standard": {"half": True, "channels": (16, 32), "steps": 2400, "report": 200, "learning_rate": 1e-3},
        "full": {},
    },
    compared={
        "quick": {"sorter": tuple(s for s in SORTERS if s != "pairwise")},
        "standard": {"sorter": ("odd_even", "bitonic", "neuralsort", "sinkhornsort", "fastsort")},
        "full": {"sorter": SORTERS, "n": (3, 5, 7, 9, 15, 32), "seed": range(5)},
    },
    overview=overview,
)  # fmt: skip
