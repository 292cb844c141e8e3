"""Shortest paths on pictures of terrain, learned from paths alone (chapters 2 and 7)."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import softly
from softly import estimators
from softly.algorithms import library
from softly.estimators import solvers
from softly_lab.data import terrain
from softly_lab.models import terrain_costs, terrain_paths
from softly_lab.runner import Experiment, option
from softly_lab.training import Training

METHODS = (
    "baseline", "relaxed_for", "relaxed_while", "smooth_loss", "smooth_algorithm", "perturbed", "fenchel_young",
    "blackbox", "imle", "resgro",
)  # fmt: skip
SAMPLED = ("smooth_loss", "smooth_algorithm", "resgro")
NEWTON = ("none", "fisher", "hessian")


@dataclass(frozen=True)
class Config:
    """One network, trained by one method.

    What the chapters do not state was chosen on validation maps, after 250 steps of 32 channels with one seed: the rate
    from 0.0003, 0.001, 0.003 and 0.01, the steepness from 3, 9 and 27, the scale of the noise from 0.1, 0.3 and 1.
    RESGRO did as well with subsets of half of its samples as with larger ones.
    """

    method: str = option("relaxed_for", "How gradients come through the algorithm.", choices=METHODS)
    loss: str = option("l2", "Between paths: l1, or the squared l2.", choices=("l1", "l2"))
    newton: str = option("none", "The curvature of a Newton loss around it.", choices=NEWTON)
    tikhonov: float | None = option(None, "Of the Newton loss; by itself if not given.", least=0.0)
    steepness: float = option(9.0, "Of relaxed algorithms.", least=0.0)
    rounds: int = option(24, "The most steps that a relaxed path may have.", least=11)
    scale: float | None = option(
        None, "Of the noise; if not given 0.3 where the loss or the algorithm is sampled, 0.1 where solutions are.",
        least=0.0,
    )  # fmt: skip
    num_samples: int = option(10, "Of stochastic methods.", least=1)
    num_sets: int | None = option(None, "Of RESGRO's bootstrap; 1 is the one-set variant, none all subsets.", least=1)
    subset_size: int | None = option(None, "Of RESGRO's subsets; half of the samples if not given.", least=2)
    strength: float = option(20.0, "Of blackbox and I-MLE.", least=0.0)
    maps: int = option(10_000, "Maps to learn from.", least=1)
    test_maps: int = option(1000, "Maps to test on.", least=1)
    width: int = option(64, "Channels of the network.", least=1)
    batch_size: int = option(70, "Maps a step.", least=1)
    learning_rate: float | None = option(
        None, "Of Adam, 0.001 for RESGRO and 0.003 elsewhere if not given; a tenth after 60 % of the steps, and again "
        "after 80 %.", least=0.0,
    )  # fmt: skip
    validation: bool = option(False, "Test on other maps than those of the test, to choose options by.")
    steps: int = option(7150, "Batches to learn from.", least=1)
    report: int = option(143, "Steps between two tests.", least=1)
    seed: int = option(0, "Of weights, batches and noise.", least=0)


class ShortestPath(Training):
    """Costs of the cells of a map, trained by what becomes of shortest paths."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        if config.method == "resgro" and config.newton != "none":
            raise ValueError(f"shortest-path: RESGRO has a step of its own, without newton={config.newton}.")
        self.config, self.steps, self.report = config, config.steps, config.report
        self.train = terrain.maps(config.maps, 0)
        self.held = terrain.maps(config.test_maps, 2 if config.validation else 1)
        how = "drawn maps" if self.train.drawn else "maps of terrain tiles"
        self.data = f"{how} (stand-in for Warcraft)" + (", validation" if config.validation else "")
        network = terrain_paths if config.method == "baseline" else terrain_costs
        self.model = network(terrain.CELLS, config.width).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        usual = 1e-3 if config.method == "resgro" else 3e-3
        self.rate = usual if config.learning_rate is None else config.learning_rate
        self.optimizer = torch.optim.Adam(self.model.parameters(), self.rate)
        self.criterion = self._newton(self._criterion())

    def _between(self, path: Tensor, wanted: Tensor) -> Tensor:
        """The loss of each path."""
        difference = path - wanted
        return (difference.abs() if self.config.loss == "l1" else difference.square()).sum((-2, -1))

    def _criterion(self) -> Callable[..., Tensor]:
        """The loss of each example, (B,), of costs and true paths."""
        config, solver = self.config, solvers.shortest_path
        usual = 0.3 if config.method in SAMPLED else 0.1
        scale = usual if config.scale is None else config.scale
        noise: dict[str, Any] = {"scale": scale, "num_samples": config.num_samples}
        hard = lambda costs, wanted: self._between(solver.perturbed(costs), wanted)  # noqa: E731
        through: Callable[[Tensor], Tensor]
        if config.method == "baseline":
            entropy = torch.nn.functional.binary_cross_entropy_with_logits
            return lambda costs, wanted: entropy(costs, wanted, reduction="none").sum((-2, -1))
        if config.method == "smooth_loss":
            return estimators.smooth(hard, **noise)
        if config.method == "fenchel_young":
            return estimators.FenchelYoungLoss(solver, sense="min", reduction="none", **noise)
        if config.method == "resgro":
            size = config.subset_size or max(2, config.num_samples // 2)
            size = config.num_samples if config.num_sets == 1 else size
            return softly.Resgro(hard, subset_size=size, num_sets=config.num_sets, **noise)
        if config.method == "relaxed_for":
            relaxed: Any = functools.partial(library.shortest_path, steepness=config.steepness, rounds=config.rounds)
            through = lambda costs: relaxed(costs).path  # noqa: E731
        elif config.method == "relaxed_while":
            program = library.bellman_ford.using(steepness=config.steepness, max_iterations=config.rounds)
            through = lambda costs: program(costs)[0]  # noqa: E731
        elif config.method == "smooth_algorithm":
            through = estimators.smooth(solver.perturbed, **noise)
        elif config.method == "perturbed":
            through = estimators.PerturbedOptimizer(solver, sense="min", **noise)
        elif config.method == "blackbox":
            through = estimators.blackbox(solver, strength=config.strength)
        else:
            through = estimators.Imle(solver, sense="min", strength=config.strength, **noise)
        return lambda costs, wanted: self._between(through(costs), wanted)

    def _newton(self, criterion: Callable[..., Tensor]) -> Callable[..., Tensor]:
        config = self.config
        if config.newton == "none":
            return lambda costs, wanted: criterion(costs, wanted).sum() / len(costs)
        tikhonov: Any = "auto" if config.tikhonov is None else config.tikhonov
        curvature: Any = config.newton
        return softly.NewtonLoss(criterion, curvature=curvature, tikhonov=tikhonov, reduction="mean")

    def _costs(self, images: Tensor) -> Tensor:
        """Of every cell; the baseline's are scores, > 0 where it takes the path to go."""
        return self.model(images.contiguous(memory_format=torch.channels_last))

    def loss(self, number: int) -> Tensor:
        config, done = self.config, number / self.steps
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * 0.1 ** ((done >= 0.6) + (done >= 0.8))
        chosen = torch.randint(len(self.train), (config.batch_size,))
        return self.criterion(self._costs(self.train.images[chosen]), self.train.paths[chosen])

    def _paths(self, images: Tensor) -> Tensor:
        costs = torch.cat([self._costs(part) for part in images.split(200)])
        return (costs > 0).float() if self.config.method == "baseline" else solvers.shortest_path(costs)

    def test(self) -> dict[str, float]:
        """The share of paths that are right in every cell, and of those that cost as little as possible."""
        paths, maps = self._paths(self.held.images), self.held
        right = (paths == maps.paths).all(-1).all(-1)
        cost, least = ((p * maps.costs).sum((-2, -1)) for p in (paths, maps.paths))
        cheap = right if self.config.method == "baseline" else cost < least + 1e-3
        return {"EM": 100 * right.double().mean().item(), "cost match": 100 * cheap.double().mean().item()}

    def pictures(self) -> dict[str, Figure]:
        """Test maps, the costs that were learned, and both paths."""
        with torch.no_grad():
            self.model.eval()
            images = self.held.images[:4]
            costs, paths = self._costs(images), self._paths(images)
        figure = Figure(figsize=(9, 5), layout="constrained")
        axes = figure.subplots(3, 4)
        for column in range(4):
            axes[0][column].imshow(images[column].permute(1, 2, 0).numpy())
            axes[1][column].imshow(costs[column].numpy(), cmap="magma")
            both = torch.stack([paths[column], self.held.paths[column], torch.zeros(12, 12)], -1)
            axes[2][column].imshow(both.numpy())
            for row in range(3):
                axes[row][column].axis("off")
        found = "Test maps, the costs that were learned, and paths: found red, true green, both yellow."
        return {found: figure, **self._softened(images[0], costs[0].clamp(min=1e-3))}

    def _softened(self, image: Tensor, costs: Tensor) -> dict[str, Figure]:
        """The path of one map, as relaxed at two steepnesses and as perturbed by noise of two sizes."""
        costs = costs / costs.mean()
        shown: dict[str, Tensor] = {"map": image.permute(1, 2, 0), "path": solvers.shortest_path(costs)}
        for steepness in (3.0, 30.0):
            relaxed: Any = library.shortest_path(costs.unsqueeze(0), steepness=steepness, rounds=self.config.rounds)
            shown[f"relaxed, steepness {steepness:g}"] = relaxed.path[0].detach()
        for scale in (0.5, 0.05):
            perturbed = estimators.PerturbedOptimizer(solvers.shortest_path, sense="min", scale=scale, num_samples=100)
            shown[f"perturbed, scale {scale:g}"] = perturbed(costs.unsqueeze(0))[0].detach()
        figure = Figure(figsize=(9, 2), layout="constrained")
        for axis, (title, picture) in zip(figure.subplots(1, len(shown)), shown.items(), strict=True):
            axis.imshow(picture.numpy(), vmin=0, vmax=1)
            axis.set_title(title, fontsize=7)
            axis.axis("off")
        return {"The path through learned costs: hard, relaxed, and the mean under noise.": figure}


EXPERIMENT = Experiment(
    name="shortest-path",
    summary="Find shortest paths on pictures of terrain, learned from paths alone.",
    chapter=2,
    config=Config,
    start=ShortestPath,
    presets={
        "quick": {"maps": 300, "test_maps": 100, "width": 16, "batch_size": 20, "steps": 120, "report": 40},
        "standard": {"steps": 1000, "report": 100},
        "full": {},
    },
    compared={
        "quick": {"method": METHODS},
        "standard": {
            "method": ("baseline", "relaxed_for", "smooth_loss", "fenchel_young", "blackbox", "resgro"),
        },
        "full": {"method": METHODS, "seed": range(10)},
    },
)  # fmt: skip
