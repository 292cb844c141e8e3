"""Top-k classification (chapter 4): a cross-entropy with k drawn from P_K, against the softmax cross-entropy.

`python -m softly_lab.experiments.topk` runs it on scikit-learn's digits, and on the part of CIFAR-100 that the folder
SOFTLY_DATA has.
"""

import csv
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import softly
from softly_lab.experiments import print_tables

Loss = Callable[[Tensor, Tensor], Tensor]
Part = tuple[Tensor, Tensor]  # images (n, pixels) and labels (n,)


@dataclass(frozen=True)
class Config:
    """A comparison on one data set.

    Attributes:
        data: "digits", 1,000 images to learn from and 797 to test on, or "cifar100", 10,000 and 5,000.
        p_k: The distribution of k.
        ks: The k of the accuracies that are measured.
        steepnesses: Choices for the top-k network.
        hidden: Width of the one hidden layer.
        epochs: The most that are tried.
        validation: Share of the training images on which steepness and epochs are chosen.
        tuning_seeds: Seeds of the runs that choose.
        seeds: Seeds of the runs that are reported.
    """

    data: str = "digits"
    p_k: tuple[float, ...] = (0.5, 0.0, 0.0, 0.0, 0.5)
    ks: tuple[int, ...] = (1, 2, 3, 5)
    steepnesses: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
    hidden: int = 64
    epochs: int = 60
    batch_size: int = 50
    learning_rate: float = 1e-3
    validation: float = 0.2
    tuning_seeds: tuple[int, ...] = (100, 101)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)


DIGITS = Config()
CIFAR100 = Config(data="cifar100", hidden=256, epochs=20, batch_size=100)


@dataclass(frozen=True)
class Method:
    """What one loss reached: the choices that validation made, and (seeds, ks) accuracies on the test images."""

    name: str
    steepness: float | None
    epochs: int
    accuracy: np.ndarray


@dataclass(frozen=True)
class Result:
    config: Config
    methods: tuple[Method, ...]
    seconds: float

    def table(self) -> str:
        """Mean ± standard deviation over seeds, in per cent, and the paired difference to the first method."""
        lines = [
            "| loss | steepness | epochs | " + " | ".join(f"top-{k}" for k in self.config.ks) + " |",
            "|---" * (3 + len(self.config.ks)) + "|",
        ]
        for method in self.methods:
            steepness = "" if method.steepness is None else f"{method.steepness:g}"
            lines.append(f"| {method.name} | {steepness} | {method.epochs} | {_spread(method.accuracy)} |")
        for method in self.methods[1:]:
            lines.append(f"| difference | | | {_spread(method.accuracy - self.methods[0].accuracy, '+')} |")
        return "\n".join(lines)


def _spread(accuracy: np.ndarray, sign: str = "") -> str:
    percent = 100 * accuracy
    std = percent.std(0, ddof=1) if len(percent) > 1 else np.zeros(percent.shape[1])
    return " | ".join(f"{m:{sign}.2f} ± {s:.2f}" for m, s in zip(percent.mean(0), std, strict=True))


def run(config: Config) -> Result:
    """Choose steepness and epochs on a part of the training images, then train on all of them and test."""
    started = time.perf_counter()
    train, test = DATA[config.data]()
    p_k = list(config.p_k)
    losses: dict[tuple[str, float | None], Loss] = {("softmax", None): nn.CrossEntropyLoss()}
    for choice in config.steepnesses:
        sorter = softly.TopKNetwork(steepness=choice)
        losses["top-k", choice] = softly.TopKCrossEntropy(p_k, sorter, top1="softmax")
    methods = []
    for name in ("softmax", "top-k"):
        choices = [(_tune(config, loss, train), key[1]) for key, loss in losses.items() if key[0] == name]
        (_, epochs), steepness = max(choices, key=lambda tuned: tuned[0][0])
        loss = losses[name, steepness]
        accuracy = [learn(config, loss, train, test, epochs, seed)[1][-1] for seed in config.seeds]
        methods.append(Method(name, steepness, epochs, np.stack(accuracy)))
    return Result(config, tuple(methods), time.perf_counter() - started)


def _tune(config: Config, loss: Loss, train: Part) -> tuple[float, int]:
    """The best accuracy on held-out images, with k drawn from P_K, and the number of epochs that gave it."""
    images, labels = train
    curves = []
    for seed in config.tuning_seeds:
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
        held, kept = order.tensor_split([round(config.validation * len(order))])
        parts = (images[kept], labels[kept]), (images[held], labels[held])
        curves.append(learn(config, loss, *parts, config.epochs, seed)[1])
    wanted = [config.p_k[k - 1] if k <= len(config.p_k) else 0.0 for k in config.ks]
    curve = np.mean(curves, 0) @ wanted
    return curve.max(), int(curve.argmax()) + 1


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
    images, labels = torch.tensor(data.data / 16.0, dtype=torch.float32), torch.tensor(data.target)
    return (images[:1000], labels[:1000]), (images[1000:], labels[1000:])


def cifar100() -> tuple[Part, Part]:
    """The first 10,000 training and 5,000 test images of the folder SOFTLY_DATA, reduced to 8×8 pixels."""
    if "SOFTLY_DATA" not in os.environ:
        raise FileNotFoundError("CIFAR-100 is read from the folder that the environment variable SOFTLY_DATA names.")
    folder = Path(os.environ["SOFTLY_DATA"]) / "cifar100"
    (train, labels), (test, test_labels) = _sheets(folder, "train", 2), _sheets(folder, "test", 1)
    mean, std = train.mean(0), train.std(0)
    return ((train - mean) / std, labels), ((test - mean) / std, test_labels)


def _sheets(folder: Path, part: str, number: int) -> Part:
    from PIL import Image

    blocks = []
    for sheet in range(number):
        pixels = np.asarray(Image.open(folder / f"cifar100_{part}_{sheet:02d}.webp").convert("RGB"))
        images = pixels.reshape(50, 32, 100, 32, 3).transpose(0, 2, 4, 1, 3).reshape(-1, 3, 8, 4, 8, 4)
        blocks.append(torch.tensor(images.mean((3, 5)) / 255.0, dtype=torch.float32).flatten(1))
    result = torch.cat(blocks)
    with (folder / f"cifar100_{part}_labels.csv").open() as file:
        labels = torch.tensor([int(row["label"]) for row in csv.DictReader(file)][: len(result)])
    return result, labels


DATA = {"digits": digits, "cifar100": cifar100}


if __name__ == "__main__":
    print_tables(run, (DIGITS, CIFAR100), [CIFAR100])
