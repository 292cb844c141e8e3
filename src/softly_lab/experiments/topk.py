"""Top-k classification (chapter 4): a cross-entropy with k drawn from P_K, against the softmax cross-entropy."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import Tensor, nn

import softly
from softly_lab.data import available, images
from softly_lab.runner import Experiment, Task, option

Loss = Callable[[Tensor, Tensor], Tensor]
Part = tuple[Tensor, Tensor]  # images (n, pixels) and labels (n,)


@dataclass(frozen=True)
class Config:
    """One loss on one data set: held-out images choose steepness and epochs, then all of them are learned from."""

    data: str = option("auto", "The images; auto is cifar100, or digits where it is not there.",
                       choices=("auto", "cifar100", "digits"))  # fmt: skip
    loss: str = option("topk", "What is trained by.", choices=("topk", "softmax"))
    p_k: tuple[float, ...] = option((0.5, 0.0, 0.0, 0.0, 0.5), "The distribution of k.", least=0.0)
    ks: tuple[int, ...] = option((1, 2, 3, 5), "The k of the accuracies that are measured.", least=1)
    steepnesses: tuple[float, ...] = option(
        (0.5, 1.0, 2.0, 4.0, 8.0, 16.0), "Choices for the top-k network.", least=0.0
    )
    hidden: int = option(256, "Width of the hidden layer.", least=1)
    epochs: int = option(20, "The most that are tried.", least=1)
    batch_size: int = option(100, "Images a step.", least=1)
    learning_rate: float = option(1e-3, "Of Adam.", least=0.0)
    validation: float = option(0.2, "Share of the images on which steepness and epochs are chosen.", least=0.0)
    tuning: int = option(2, "Networks that choose, for each steepness.", least=1)
    repeats: int = option(5, "Networks that are tested.", least=1)
    seed: int = option(0, "Of all of them.", least=0)


class TopK(Task):
    """A step trains one network: first those that choose steepness and epochs, then those that are tested."""

    report = 1

    def __init__(self, config: Config) -> None:
        self.config = config
        kind = config.data
        if kind == "auto":
            kind = "cifar100" if available("cifar100") else "digits"
        self.train, self.held = cifar100() if kind == "cifar100" else digits()
        self.data = "CIFAR-100, a part of it, 8×8 pixels" if kind == "cifar100" else "scikit-learn's digits (stand-in)"
        self.losses: list[Loss] = [nn.CrossEntropyLoss()]
        if config.loss == "topk":
            sorters = [softly.TopKNetwork(steepness=choice) for choice in config.steepnesses]
            self.losses = [softly.TopKCrossEntropy(list(config.p_k), sorter, top1="softmax") for sorter in sorters]
        self.steps = len(self.losses) * config.tuning + config.repeats
        self.curves: list[list[list[float]]] = []
        self.tested: list[list[float]] = []

    def chosen(self) -> tuple[int, int]:
        """The loss and the number of epochs that were best on held-out images, with k drawn from P_K."""
        config = self.config
        wanted = [config.p_k[k - 1] if k <= len(config.p_k) else 0.0 for k in config.ks]
        whole = len(self.curves) // config.tuning
        curves = np.array(self.curves[: whole * config.tuning]).reshape(whole, config.tuning, config.epochs, -1)
        reached = curves.mean(1) @ wanted
        choice, epoch = np.unravel_index(reached.argmax(), reached.shape)
        return int(choice), int(epoch) + 1

    def step(self, number: int) -> None:
        config, first = self.config, 1000 * self.config.seed
        choice, attempt = divmod(number, config.tuning)
        if choice < len(self.losses):
            pixels, labels = self.train
            order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(first + 100 + attempt))
            held, kept = order.tensor_split([round(config.validation * len(order))])
            parts = (pixels[kept], labels[kept]), (pixels[held], labels[held])
            _, curve = learn(config, self.losses[choice], *parts, config.epochs, first + 100 + attempt)
            self.curves.append(curve.tolist())
        else:
            best, epochs = self.chosen()
            seed = first + number - len(self.losses) * config.tuning
            _, curve = learn(config, self.losses[best], self.train, self.held, epochs, seed)
            self.tested.append(curve[-1].tolist())

    def measure(self) -> dict[str, float]:
        """Accuracies on the test images in per cent, means over networks, and their deviation."""
        found: dict[str, float] = {"networks": len(self.curves) + len(self.tested)}
        if len(self.curves) >= self.config.tuning:
            choice, found["epochs"] = self.chosen()
            if self.config.loss == "topk":
                found["steepness"] = self.config.steepnesses[choice]
        if self.tested:
            tested = 100 * np.array(self.tested)
            spread = tested.std(0, ddof=1) if len(tested) > 1 else np.zeros(len(self.config.ks))
            for k, mean, deviation in zip(self.config.ks, tested.mean(0).tolist(), spread.tolist(), strict=True):
                found[f"top-{k}"], found[f"± {k}"] = mean, deviation
        return found

    def state(self) -> Any:
        return {"curves": self.curves, "tested": self.tested}

    def load(self, state: Any) -> None:
        self.curves, self.tested = state["curves"], state["tested"]

    def pictures(self) -> dict[str, Figure]:
        figure = Figure(figsize=(6, 3), layout="constrained")
        axes = figure.subplots()
        choice, epochs = self.chosen()
        tuning = self.config.tuning
        mean = 100 * np.mean(self.curves[choice * tuning : (choice + 1) * tuning], 0)
        for column, k in enumerate(self.config.ks):
            axes.plot(np.arange(1, len(mean) + 1), mean[:, column], label=f"top-{k}")
        axes.axvline(epochs, color="grey", linewidth=0.8)
        axes.set_xlabel("epochs")
        axes.legend()
        return {"Accuracy on held-out images; the line is the number of epochs that was chosen.": figure}


def learn(config: Config, loss: Loss, train: Part, test: Part, epochs: int, seed: int) -> tuple[nn.Module, np.ndarray]:
    """A trained model, and its (epochs, ks) accuracies after every epoch."""
    images, labels = train
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(images.shape[1], config.hidden), nn.ReLU(), nn.Linear(config.hidden, int(labels.max()) + 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate)
    curve = []
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(config.batch_size):
            optimizer.zero_grad()
            loss(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            first = model(test[0]).topk(max(config.ks), -1).indices
        hits = (first == test[1].unsqueeze(-1)).float().cumsum(-1).mean(0)
        curve.append([hits[k - 1].item() for k in config.ks])
    return model, np.array(curve)


def digits() -> tuple[Part, Part]:
    """Scikit-learn's handwritten digits; those at the end are by other writers."""
    data = load_digits()
    pixels, labels = torch.tensor(data.data / 16.0, dtype=torch.float32), torch.tensor(data.target)
    return (pixels[:1000], labels[:1000]), (pixels[1000:], labels[1000:])


def cifar100() -> tuple[Part, Part]:
    """The images that there are, reduced to 8×8 pixels."""
    parts = []
    for pixels, labels in images.cifar100():
        reduced = (pixels.reshape(-1, 8, 4, 8, 4, 3).double().mean((2, 4)) / 255.0).float()
        parts.append((reduced.permute(0, 3, 1, 2).flatten(1), labels))
    mean, std = parts[0][0].mean(0), parts[0][0].std(0)
    (x, y), (u, v) = parts
    return ((x - mean) / std, y), ((u - mean) / std, v)


EXPERIMENT = Experiment(
    name="topk",
    summary="Classify images by a cross-entropy with k drawn from P_K.",
    chapter=4,
    config=Config,
    start=TopK,
    presets={
        "quick": {
            "data": "digits", "hidden": 32, "epochs": 5, "batch_size": 50,
            "steepnesses": (1.0, 4.0), "tuning": 1, "repeats": 2,
        },
        "standard": {},
        "full": {},
    },
    compared={preset: {"loss": ("softmax", "topk")} for preset in ("quick", "standard", "full")},
)  # fmt: skip
