"""Newton losses against the losses they are made of, and perturbed shortest paths against PyEPO, if it is there."""

import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import torch

import softly
from benchmarks.harness import Case, Function, forward_backward

BATCH, LENGTH = 100, 10
GRIDS, SIDE, SAMPLES = 70, 12, 10


def newton_cases() -> Iterator[Case]:
    """How many times the plain loss a Newton loss takes: the bars are 1.5, 15 and 40."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(BATCH, LENGTH, generator=generator)
    ranks = torch.randn(BATCH, LENGTH, generator=generator).argsort(-1).argsort(-1) + 1
    sorters = {
        "SoftSort": softly.SoftSort(steepness=2.0),
        "NeuralSort": softly.NeuralSort(steepness=2.0),
        "Cauchy network": softly.SortingNetwork("odd_even", distribution="cauchy", steepness=10.0),
        "logistic network": softly.SortingNetwork("odd_even", distribution="logistic", steepness=10.0),
    }
    for name, sorter in sorters.items():

        def loss(y: torch.Tensor, sorter: Any = sorter) -> torch.Tensor:
            return softly.sorting.ranking_loss(sorter.permutation(y), ranks, reduction="none")

        for curvature in ("fisher", "hessian"):
            newton = softly.NewtonLoss(loss, curvature=curvature)
            plain = forward_backward(loss, x)
            yield Case(
                f"{curvature} of {name}, {BATCH} × {LENGTH}", forward_backward(newton, x), {"the plain loss": plain}
            )


def path_cases() -> Iterator[Case]:
    costs = torch.rand(GRIDS, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    solver = softly.estimators.solvers.shortest_path
    soft = softly.estimators.PerturbedOptimizer(solver, sense="min", scale=0.1, num_samples=SAMPLES)
    peers: dict[str, Function] = {}
    if importlib.util.find_spec("pyepo"):
        perturbed = importlib.import_module("pyepo.func").perturbedOpt
        model = importlib.import_module("pyepo.model.opt").optModel

        class Grid(model):  # type: ignore[misc, valid-type]
            """The same solver, as PyEPO calls it: one problem at a time."""

            def _getModel(self) -> tuple[None, list[int]]:
                return None, list(range(SIDE * SIDE))

            def setObj(self, c: Any) -> None:
                self.costs = torch.as_tensor(c, dtype=torch.float32).reshape(SIDE, SIDE)

            def solve(self) -> tuple[Any, float]:
                path = solver.perturbed(self.costs)
                return path.flatten().numpy(), float((path * self.costs).sum())

        theirs = perturbed(Grid(), n_samples=SAMPLES, sigma=0.1)
        peers["PyEPO"] = forward_backward(lambda y: theirs(y).square(), costs.flatten(1))
    yield Case(f"{GRIDS} grids × {SAMPLES} samples", forward_backward(lambda y: soft(y).square(), costs), peers)


def cases() -> Iterator[Case]:
    yield from newton_cases()
    yield from path_cases()
