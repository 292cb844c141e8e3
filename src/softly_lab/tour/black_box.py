"""The stop at black boxes: costs learned through a shortest path algorithm, and how good the gradients are."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import softly
from softly.estimators import (
    FenchelYoungLoss,
    Imle,
    PerturbedOptimizer,
    SpoPlusLoss,
    blackbox,
    negative_identity,
    smooth,
    solvers,
)
from softly_lab.tour.plots import panels
from softly_lab.tour.stop import Picture, Visit

CODE = """
solve = softly.estimators.solvers.shortest_path           # or any callable of yours
loss = softly.estimators.FenchelYoungLoss(solve, sense="min", scale=0.3, num_samples=10)
loss(costs, true_paths).backward()                        # the gradient of a mean over perturbed paths

mistakes = lambda costs, paths: (solve.perturbed(costs) - paths).abs().sum((-2, -1))
softly.estimators.smooth(mistakes, num_samples=10)(costs, true_paths).sum().backward()
softly.Resgro(mistakes, num_samples=10, subset_size=5)(costs, true_paths).backward()   # no gradient at all
"""

PROSE = """
<p>A solver, a simulator, a metric: what nobody wants to relax can be trained through as it is. Noise makes its mean
smooth, and samples of that mean tell its gradient. Here a small network sees terrain maps and learns what their cells
cost, from nothing but the shortest paths that somebody took.</p>
<p>How good a gradient is depends on what is done with the samples. Subtracting the mean of the other samples, the
default, costs nothing and saves half of them and more; drawing them evenly helps little in 36 dimensions.</p>
"""

SIDE, KINDS, MAPS, STEPS = 8, 5, 64, 80
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def mistakes(costs: Tensor, paths: Tensor) -> Tensor:
    """How many cells of the shortest path are wrong."""
    return (solvers.shortest_path.perturbed(costs) - paths).abs().sum((-2, -1))


def losses(generator: torch.Generator, samples: int = 10) -> dict[str, Loss]:
    """What to train with, by name: functions of costs, true paths and true costs."""
    solve = solvers.shortest_path
    noise: Any = {"num_samples": samples, "generator": generator}
    smoothed = smooth(mistakes, scale=0.3, **noise)
    soft = PerturbedOptimizer(solve, sense="min", scale=0.3, **noise)
    young = FenchelYoungLoss(solve, sense="min", scale=0.3, **noise)
    curved = softly.NewtonLoss(FenchelYoungLoss(solve, sense="min", scale=0.3, reduction="none", **noise))
    linear = blackbox(solve, strength=5.0)
    likely = Imle(solve, strength=5.0, sense="min", distribution="gaussian", scale=0.3, **noise)
    identity = negative_identity(solve)
    plus = SpoPlusLoss(solve.perturbed)
    greedy = softly.Resgro(mistakes, subset_size=(samples + 1) // 2, scale=0.3, reduction="mean", **noise)
    return {
        "smoothed mistakes": lambda y, paths, costs: smoothed(y, paths).mean(),
        "perturbed optimizer": lambda y, paths, costs: (soft(y) - paths).square().sum((-2, -1)).mean(),
        "Fenchel-Young": lambda y, paths, costs: young(y, paths),
        "Newton of Fenchel-Young": lambda y, paths, costs: curved(y, paths) / len(y),
        "blackbox": lambda y, paths, costs: (linear(y) - paths).abs().sum((-2, -1)).mean(),
        "I-MLE": lambda y, paths, costs: (likely(y) - paths).abs().sum((-2, -1)).mean(),
        "negative identity": lambda y, paths, costs: (identity(y) - paths).abs().sum((-2, -1)).mean(),
        "SPO+ (sees the costs)": lambda y, paths, costs: plus(y, costs, paths),
        "RESGRO": lambda y, paths, costs: greedy(y, paths),
    }


def terrain(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Noisy features of terrain maps, the costs of their cells, and the shortest paths."""
    price = torch.tensor([0.3, 0.8, 1.5, 3.0, 6.0])
    kinds = torch.randint(KINDS, (MAPS, SIDE, SIDE), generator=generator)
    features = torch.nn.functional.one_hot(kinds, KINDS) + 0.1 * torch.randn(
        MAPS, SIDE, SIDE, KINDS, generator=generator
    )
    return features, price[kinds], solvers.shortest_path(price[kinds])


def train(name: str, seed: int = 0, samples: int = 10) -> list[float]:
    """Train a linear model of costs, and tell after each step how much longer its paths are than they need to be."""
    generator = torch.Generator().manual_seed(seed)
    features, costs, paths = terrain(generator)
    seen, true, taken = terrain(generator)
    loss = losses(generator, samples)[name]
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(KINDS, 1), torch.nn.Softplus())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    history = []
    for _ in range(STEPS):
        with torch.no_grad():
            found = solvers.shortest_path(model(seen).squeeze(-1))
            history.append(float(((found - taken) * true).sum() / (taken * true).sum()))
        optimizer.zero_grad()
        loss(model(features).squeeze(-1), paths, costs).backward()
        optimizer.step()
    return history


def visit() -> Visit:
    """Draw how costs are learned, and how good gradients are."""
    return Visit(PROSE, CODE, (learning(), gradients()))


def learning() -> Picture:
    figure, axes = panels(1, 3, height=2.9)
    groups = (
        ("by samples of the loss", ("smoothed mistakes", "RESGRO")),
        ("by samples of the solution", ("perturbed optimizer", "Fenchel-Young", "Newton of Fenchel-Young")),
        ("by moved problems", ("blackbox", "I-MLE", "negative identity", "SPO+ (sees the costs)")),
    )
    for ax, (title, names) in zip(axes, groups, strict=True):
        for name in names:
            ax.plot([100 * share for share in train(name)], label=name)
        ax.set_title(title)
        ax.set(xlim=(0, STEPS - 1), ylim=(0, 60), xlabel="step")
        ax.legend(loc="upper right")
    axes[0].set_ylabel("paths too long by, %")
    caption = (
        f"A linear model learns what {KINDS} kinds of terrain cost, from the shortest paths on {MAPS} maps of "
        f"{SIDE} × {SIDE} cells, through the hard algorithm; on maps that it has not seen."
    )
    return Picture(figure, caption)


WAYS: dict[str, Any] = {
    "no baseline": {"baseline": None},
    "ℓ(y)": {"baseline": "value"},
    "leave one out": {},
    "… antithetic": {"antithetic": True},
    "… Latin hypercube": {"sampler": "latin_hypercube"},
    "… Sobol": {"sampler": "sobol"},
}
# Of the same interquartile range.
NOISES = {"gaussian": 0.3, "logistic": 0.3 * 0.614, "laplace": 0.3 * 0.973, "cauchy": 0.3 * 0.674}
COUNTS = (4, 8, 16, 32, 64)
REPEATS = 64


def gradients() -> Picture:
    """The picture of variance reduction, on one grid."""
    generator = torch.Generator().manual_seed(1)
    costs = torch.rand(6, 6, generator=generator) + 0.2
    path = solvers.shortest_path(costs.flip(0))

    def wrong(y: Tensor) -> Tensor:
        return mistakes(y, path)

    figure, axes = panels(2, len(NOISES), height=4.6, share=False)
    for column, (name, scale) in enumerate(NOISES.items()):
        options: Any = {"distribution": name, "scale": scale, "generator": generator}
        truth = estimates(wrong, costs, 1024, 128, **options).mean(0)
        for label, way in WAYS.items():
            cosine, variance = [], []
            for count in COUNTS:
                found = estimates(wrong, costs, count, REPEATS, **options, **way)
                cosine.append(float(torch.cosine_similarity(found, truth, -1).mean()))
                variance.append(float((found - truth).square().sum(-1).mean() / truth.square().sum()))
            axes[column].plot(COUNTS, cosine, label=label)
            axes[len(NOISES) + column].plot(COUNTS, variance, label=label)
        axes[column].set_title(name)
        axes[column].set(xscale="log", ylim=(0, 1))
        axes[len(NOISES) + column].set(xscale="log", yscale="log", ylim=(0.8, 300), xlabel="samples")
        for ax in (axes[column], axes[len(NOISES) + column]):
            ax.set_xticks(COUNTS, [str(count) for count in COUNTS], minor=False)
            ax.minorticks_off()
    axes[0].set_ylabel("cosine to the gradient")
    axes[len(NOISES)].set_ylabel("variance / |gradient|²")
    axes[-1].legend(loc="upper right", fontsize=7)
    caption = (
        "The gradient of the mean number of wrong cells of a perturbed shortest path on a 6 × 6 grid, estimated from "
        "few samples: cosine to the true one and variance, for four distributions of noise of the same width."
    )
    return Picture(figure, caption)


def estimates(fn: Callable[[Tensor], Tensor], y: Tensor, samples: int, repeats: int, **options: Any) -> Tensor:
    """(repeats, n) Independent estimates of the gradient."""
    many = y.expand(repeats, *y.shape).clone().requires_grad_()
    value = smooth(fn, num_samples=samples, **options)(many)
    (gradient,) = torch.autograd.grad(value.sum(), many)
    return gradient.flatten(1).double()
