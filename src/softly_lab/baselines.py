"""The chapter's rivals of logic gate networks: a decision tree, logistic regression, and networks of neurons."""

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor, nn

from softly_lab.runner import Result, Task
from softly_lab.tour.plots import STYLE, panels

NAMES = ("tree", "logistic", "mlp")
# Layers and neurons of each, as the chapter's table of architectures has them.
NETWORKS = {
    "monk1": (2, 8),
    "monk2": (2, 8),
    "monk3": (2, 8),
    "adult": (2, 32),
    "breast_cancer": (2, 8),
    "mnist": (3, 128),
    "mnist_crop": (3, 128),
    "cifar10": (5, 1024),
    "cifar10_mirrored": (5, 1024),
    "digits": (3, 32),
}


def nanoseconds(predict: Callable[[], Any], rows: int, seconds: float = 0.3) -> float:
    """Of one row, in the best of several calls that together take so long, at least three."""
    predict()
    best, started, count = float("inf"), time.perf_counter(), 0
    while count < 3 or time.perf_counter() - started < seconds:
        before = time.perf_counter()
        predict()
        best, count = min(best, time.perf_counter() - before), count + 1
    return 1e9 * best / rows


def perceptron(inputs: int, layers: int, width: int, classes: int) -> nn.Sequential:
    """Fully connected layers, the last of which gives scores, with ReLUs between them."""
    sizes = [inputs, *[width] * (layers - 1), classes]
    parts: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        parts += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*parts[:-1])


class Scikit(Task):
    """A model of scikit-learn: one step fits it."""

    steps = report = 1

    def __init__(self, kind: str, train: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor], seed: int) -> None:
        tree = DecisionTreeClassifier(random_state=seed)
        self.model = tree if kind == "tree" else LogisticRegression(max_iter=2000)
        self.train, self.held = train, held

    def step(self, number: int) -> None:
        self.model.fit(self.train[0].numpy(), self.train[1].numpy())

    def measure(self) -> dict[str, float]:
        """Accuracy on the test data in per cent, parameters and bytes, nanoseconds and operations a row."""
        rows, labels = (part.numpy() for part in self.held)
        operations: dict[str, float] = {}
        if isinstance(self.model, DecisionTreeClassifier):
            tree = self.model.tree_
            # A column and a threshold in each inner node, and a class in each leaf.
            parameters = int((tree.children_left >= 0).sum()) + int((tree.children_left < 0).sum())
            size = 3 * parameters
        else:
            parameters = self.model.coef_.size + self.model.intercept_.size
            size, operations = 4 * parameters, {"FLOPs": 2 * self.model.coef_.size}
        return {
            "accuracy": 100 * float(np.mean(self.model.predict(rows) == labels)),
            "parameters": parameters,
            "bytes": size,
            "ns a row": nanoseconds(lambda: self.model.predict(rows), len(rows)),
            **operations,
        }

    def state(self) -> Any:
        return {}

    def load(self, state: Any) -> None:
        self.step(0)  # it is fitted in no time


class Perceptron(Task):
    """A network of neurons, trained by Adam as the chapter does; a step is an epoch."""

    def __init__(
        self, shape: tuple[int, int], train: tuple[Tensor, Tensor], held: tuple[Tensor, Tensor], epochs: int, batch: int
    ) -> None:
        self.train, self.held, self.steps, self.batch = train, held, epochs, batch
        self.report = epochs
        self.model = perceptron(train[0].shape[1], *shape, int(train[1].max()) + 1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3)

    def step(self, number: int) -> None:
        rows, labels = self.train
        for chosen in torch.randperm(len(rows)).split(self.batch):
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(rows[chosen]), labels[chosen]).backward()
            self.optimizer.step()

    def measure(self) -> dict[str, float]:
        """Accuracy on the test data in per cent, parameters and bytes, nanoseconds and operations a row."""
        rows, labels = self.held
        with torch.no_grad():
            guess = self.model(rows).argmax(-1)
            spent = nanoseconds(lambda: self.model(rows), len(rows))
        parameters = sum(p.numel() for p in self.model.parameters())
        return {
            "accuracy": 100 * (guess == labels).double().mean().item(),
            "parameters": parameters,
            "bytes": 4 * parameters,
            "ns a row": spent,
            "FLOPs": 2 * sum(p.numel() for p in self.model.parameters() if p.ndim == 2),
        }

    def state(self) -> Any:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: Any) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def sizes(runs: Sequence[Result]) -> dict[str, Figure]:
    """Accuracy against bytes, of all models on each data set that more than one was run on."""
    by_data: dict[str, dict[str, tuple[float, float]]] = {}
    for run in runs:
        if "bytes" in run.final:
            by_data.setdefault(run.data, {})[run.config["model"]] = run.final["bytes"], run.final["accuracy"]
    by_data = {data: models for data, models in by_data.items() if len(models) > 1}
    if not by_data:
        return {}
    with mpl.rc_context(STYLE):
        figure, axes = panels(1, len(by_data), height=2.6, share=False)
        for axis, (data, models) in zip(axes, by_data.items(), strict=True):
            for name, point in models.items():
                axis.scatter(*point)
                axis.annotate(f" {name}", point, fontsize=8)
            axis.set_xscale("log")
            axis.margins(x=0.3, y=0.2)
            axis.set_title(data)
            axis.set_xlabel("bytes")
        axes[0].set_ylabel("accuracy in per cent")
    return {"How much models know, and how large they are.": figure}
