"""Newton losses where they can't be expected to help: MNIST and the softmax cross-entropy (chapter 7)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import Tensor, nn

import softly
from softly_lab.data import available, images
from softly_lab.models import fully_connected, lenet5
from softly_lab.runner import Experiment, option
from softly_lab.training import Training

MODELS: dict[str, Callable[[int], nn.Sequential]] = {
    "M1": lambda side: fully_connected(side * side, 100, 10),
    "M2": lambda side: fully_connected(side * side, 400, 10),
    "M3": lambda side: fully_connected(side * side, 1600, 10),
    "M4": lambda side: lenet5(side, 10, nn.Sigmoid),
    "M5": lambda side: lenet5(side, 10, nn.ReLU),
}
METHODS = ("regular", "elementwise", "hessian", "fisher")


@dataclass(frozen=True)
class Config:
    """One network.

    The chapter states neither rates nor batches nor Tikhonov's λ. Rates were chosen by M1, M2, M4 and M5 after an
    epoch, from 0.03, 0.1, 0.3 and 1 for SGD and from 0.0003, 0.001, 0.003 and 0.01 for Adam, and λ by M1 from 0.01,
    0.1, 1 and 10, all on validation images of MNIST and with one seed.
    """

    data: str = option("auto", "The images; auto is mnist, or digits where it is not there.",
                       choices=("auto", "mnist", "digits"))  # fmt: skip
    model: str = option("M1", "Five layers of 100, 400 or 1,600 units, LeNet-5 with sigmoids, LeNet-5 with ReLUs.",
                        choices=tuple(MODELS))  # fmt: skip
    optimizer: str = option("sgd", "The optimizer.", choices=("sgd", "adam"))
    method: str = option("regular", "The cross-entropy itself, or a Newton loss of it.", choices=METHODS)
    learning_rate: float | None = option(None, "0.3 for SGD and 0.003 for Adam if not given.", least=0.0)
    tikhonov: float = option(1.0, "Of Newton losses.", least=0.0)
    batch_size: int = option(100, "Images a step.", least=1)
    epochs: int = option(200, "How often training goes through the images.", least=1)
    validation: bool = option(False, "Test on a sixth of the images to learn from, to choose options by.")
    seed: int = option(0, "Of weights and batches.", least=0)


class Classification(Training):
    """Classes of images."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        kind = config.data
        if kind == "auto":
            kind = "mnist" if available("mnist") else "digits"
        if kind == "mnist":
            (x, self.labels), (u, self.held_labels) = images.mnist()
            self.images, self.held = x.unsqueeze(1).float() / 255, u.unsqueeze(1).float() / 255
        else:
            data = load_digits()
            pixels, labels = torch.tensor(data.images / 16, dtype=torch.float32).unsqueeze(1), torch.tensor(data.target)
            (self.images, self.held), (self.labels, self.held_labels) = (
                pixels.split([1000, 797]),
                labels.split([1000, 797]),
            )
        self.data = "MNIST" if kind == "mnist" else "scikit-learn's digits (stand-in for MNIST)"
        if config.validation:
            kept = len(self.images) - len(self.images) // 6
            self.images, self.held = self.images.tensor_split([kept])
            self.labels, self.held_labels = self.labels.tensor_split([kept])
            self.data += ", validation"
        self.report = -(-len(self.images) // config.batch_size)
        self.steps = self.report * config.epochs
        self.model = MODELS[config.model](self.images.shape[-1])
        if config.optimizer == "sgd":
            self.optimizer = torch.optim.SGD(self.model.parameters(), config.learning_rate or 0.3)
        else:
            self.optimizer = torch.optim.Adam(self.model.parameters(), config.learning_rate or 3e-3)
        curvature: Any = config.method
        self.criterion: Callable[[Tensor, Tensor], Tensor] = nn.CrossEntropyLoss()
        if config.method != "regular":
            self.criterion = softly.NewtonLoss(
                "softmax_cross_entropy", curvature=curvature, tikhonov=config.tikhonov, reduction="mean"
            )

    def loss(self, number: int) -> Tensor:
        epoch, batch = divmod(number, self.report)
        order = torch.randperm(
            len(self.images), generator=torch.Generator().manual_seed(1000 * self.config.seed + epoch)
        )
        chosen = order[batch * self.config.batch_size : (batch + 1) * self.config.batch_size]
        return self.criterion(self.model(self.images[chosen]), self.labels[chosen])

    def test(self) -> dict[str, float]:
        scores = torch.cat([self.model(part) for part in self.held.split(1000)])
        return {"accuracy": 100 * (scores.argmax(-1) == self.held_labels).double().mean().item()}

    def pictures(self) -> dict[str, Figure]:
        """What is taken for what."""
        with torch.no_grad():
            self.model.eval()
            guess = torch.cat([self.model(part) for part in self.held.split(1000)]).argmax(-1)
        counts = torch.zeros(10, 10).index_put_((self.held_labels, guess), torch.ones(len(guess)), accumulate=True)
        figure = Figure(figsize=(4, 3.4), layout="constrained")
        axes = figure.subplots()
        axes.imshow(counts.sqrt().numpy(), cmap="Blues")
        axes.set_xlabel("taken for")
        axes.set_ylabel("is")
        axes.set_xticks(range(10))
        axes.set_yticks(range(10))
        return {"How often test images of one class are taken for another (square roots).": figure}


EXPERIMENT = Experiment(
    name="classification",
    summary="Classify digits by Newton losses of the softmax cross-entropy.",
    chapter=7,
    config=Config,
    start=Classification,
    presets={
        "quick": {"data": "digits", "optimizer": "adam", "batch_size": 50, "epochs": 10},
        "standard": {"epochs": 1},
        "full": {},
    },
    compared={
        "quick": {"method": METHODS},
        "standard": {
            "model": ("M1", "M2", "M4", "M5"), "optimizer": ("sgd", "adam"), "method": METHODS, "seed": range(5),
        },
        "full": {"model": tuple(MODELS), "optimizer": ("sgd", "adam"), "method": METHODS, "seed": range(20)},
    },
)  # fmt: skip
