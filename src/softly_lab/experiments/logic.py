"""Logic gate networks (chapter 6) on MONK's problems, Adult, Breast Cancer, MNIST and CIFAR-10.

`python -m softly_lab.experiments.logic NAME... [--out DIR] [--seeds 0 1 ...] [--init residual] ...` trains and tests,
and prints a line of the results table for each. With --out a killed run goes on where it was.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from softly.logic import LogicNetwork, Threshold, architectures, parametrizations
from softly.logic.encodings import Encoding
from softly.logic.training import evaluate, train_epoch
from softly_lab.data import images, tables

Part = tuple[Tensor, Tensor]
Data = tuple[Part, Part]


@dataclass(frozen=True)
class Config:
    """Networks of one architecture on one data set, one for every seed.

    Attributes:
        data: A name of `DATA`.
        architecture: A name of `softly.logic.architectures`.
        published: The accuracy that the chapter reports, discretized, mean over 10 runs.
        decay: Whether the learning rate falls to 0 along half a cosine; else it is constant, as in the chapter.
        weight_decay: Of AdamW: how fast weights that gain nothing shrink, which keeps the choice of gates open.
        init, parametrization, grad_factor: As in `softly.logic.LogicLayer`.
        blur: In training a bit is the probability that a number, off by up to half of this, passes its threshold:
            with 1 and a threshold of 0.5 the grey value itself. Tests are on bits.
        select: Whether the epoch is kept whose discretized network is the best on the training data; else the last.
        attempts: With `select`, how many networks are trained for a seed, each with wires of its own. The one whose
            discretized form is the best on the training data is kept.
        hard_epochs: Epochs on hard gates after the others, straight-through, without weight decay, at first with two
            fifths of the learning rate: they close the gap between training and the hard network.
        report: Epochs between two measurements, after each of which a killed run can go on. With `select` the best
            epoch is not part of a checkpoint, and there is a single measurement, at the end.
    """

    data: str
    architecture: str
    published: float
    epochs: int = 200
    batch_size: int = 100
    learning_rate: float = 0.01
    decay: bool = False
    weight_decay: float = 0.0
    init: str = "normal"
    parametrization: str = "softmax16"
    grad_factor: float = 1.0
    blur: float = 0.0
    select: bool = False
    attempts: int = 1
    hard_epochs: int = 0
    seeds: tuple[int, ...] = tuple(range(10))
    report: int = 10_000

    def __post_init__(self) -> None:
        name = "softly_lab.experiments.logic"
        if self.select and self.report < self.all_epochs:
            raise ValueError(f"{name}: a run that selects its best epoch reports at the end only.")
        if self.attempts > 1 and not self.select:
            raise ValueError(f"{name}: the best of {self.attempts} attempts is known only to a run with select.")

    @property
    def all_epochs(self) -> int:
        """The number of epochs of both kinds."""
        return self.epochs + self.hard_epochs


# Of these, the results table has what differs from the chapter.
SHOWN = (
    "batch_size",
    "learning_rate",
    "decay",
    "weight_decay",
    "blur",
    "init",
    "parametrization",
    "grad_factor",
    "attempts",
)


@dataclass(frozen=True)
class Result:
    """For every seed the test accuracy of the discretized and of the relaxed network, and minutes."""

    config: Config
    hard: np.ndarray
    soft: np.ndarray
    minutes: np.ndarray

    def row(self) -> str:
        """A line of the results table."""
        c, n = self.config, len(self.hard)
        spread = f" ± {100 * self.hard.std(ddof=1):.2f}" if n > 1 else ""
        options = ", ".join(
            f"{field.name} {getattr(c, field.name)}"
            for field in fields(Config)
            if field.name in SHOWN and getattr(c, field.name) != field.default
        )
        cells = [c.data, options or "as in the chapter", f"{c.published:.2f}"]
        cells += [f"{100 * self.hard.mean():.2f}{spread}", f"{100 * self.soft.mean():.2f}"]
        epochs = f"{c.epochs} + {c.hard_epochs}" if c.hard_epochs else str(c.epochs)
        cells += [str(n), epochs, f"{self.minutes.mean():.1f}"]
        return f"| {' | '.join(cells)} |"


def monk(number: int) -> Callable[[int], Data]:
    return lambda seed: tables.monk(number)


def breast_cancer(seed: int) -> Data:
    """Three quarters to learn from and one to test on, as the seed says: the data set has no split of its own."""
    x, y = tables.breast_cancer()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    train, test = order.tensor_split([len(x) * 3 // 4])
    return (x[train], y[train]), (x[test], y[test])


def mnist(seed: int) -> Data:
    (x, y), (u, v) = images.mnist()
    return (x.flatten(1) / 255, y), (u.flatten(1) / 255, v)


def mnist_crop(seed: int) -> Data:
    """The 20×20 pixels in the middle, in which the digits lie."""
    (x, y), (u, v) = images.mnist()
    return (x[:, 4:24, 4:24].flatten(1) / 255, y), (u[:, 4:24, 4:24].flatten(1) / 255, v)


def cifar10(seed: int) -> Data:
    (x, y), (u, v) = images.cifar10()
    return (x.flatten(1) / 255, y), (u.flatten(1) / 255, v)


def cifar10_mirrored(seed: int) -> Data:
    """Training images as they are, and left to right."""
    (x, y), (u, v) = images.cifar10()
    return (torch.cat((x, x.flip(2))).flatten(1) / 255, torch.cat((y, y))), (u.flatten(1) / 255, v)


DATA: dict[str, Callable[[int], Data]] = {
    "monk1": monk(1),
    "monk2": monk(2),
    "monk3": monk(3),
    "adult": lambda seed: tables.adult(),
    "breast_cancer": breast_cancer,
    "mnist": mnist,
    "mnist_crop": mnist_crop,
    "cifar10": cifar10,
    "cifar10_mirrored": cifar10_mirrored,
}


def _images(
    data: str,
    architecture: str,
    published: float,
    epochs: int,
    hard_epochs: int,
    weight_decay: float,
    blur: float = 0.0,
) -> Config:
    """Gates that start as copies and stay open for a while: what won among the options that were tried."""
    return Config(
        data,
        architecture,
        published,
        epochs=epochs,
        learning_rate=0.05,
        decay=True,
        weight_decay=weight_decay,
        init="residual",
        blur=blur,
        hard_epochs=hard_epochs,
        seeds=(0,),
        report=1,
    )


def _monk(data: str, published: float, epochs: int, weight_decay: float) -> Config:
    """All examples at once, gates that start as copies, the best of three: what won in cross-validation."""
    return Config(
        data,
        data,
        published,
        epochs=epochs,
        batch_size=200,
        learning_rate=0.05,
        decay=True,
        weight_decay=weight_decay,
        init="residual",
        select=True,
        attempts=3,
    )


CONFIGS = {
    config.data: config
    for config in (
        _monk("monk1", 100.0, 1000, 0.3),
        Config("monk2", "monk2", 90.9, 1500, learning_rate=0.1, decay=True, weight_decay=0.1, select=True, attempts=4),
        _monk("monk3", 97.7, 400, 0.7),
        Config("adult", "adult", 84.8, 20, report=20),
        Config("breast_cancer", "breast_cancer", 76.1, 100, learning_rate=0.05, decay=True, weight_decay=0.5),
        _images("mnist", "mnist_small", 97.69, 140, 24, 0.02, 1.0),
        _images("mnist_crop", "mnist_small", 97.69, 120, 8, 0.02, 1.0),
        _images("cifar10", "cifar10_small", 51.27, 80, 5, 0.02),
        _images("cifar10_mirrored", "cifar10_small", 51.27, 90, 6, 0.01),
    )
}


def build(config: Config, columns: int, seed: int) -> LogicNetwork:
    """The network with its encoding; a crop has fewer columns than its architecture."""
    architecture = architectures.get(config.architecture)
    encoding = architecture.encoding()
    if encoding.num_columns != columns:
        encoding = Threshold(0.5).fit(torch.zeros(1, columns))
    torch.manual_seed(seed)
    return LogicNetwork(
        encoding.num_bits,
        [architecture.width] * architecture.depth,
        architecture.classes,
        tau=architecture.tau,
        encoding=encoding,
        seed=seed,
        init=config.init,
        parametrization=config.parametrization,
        grad_factor=config.grad_factor,
    )


def learn(
    config: Config, seed: int, folder: Path | None = None, *, attempt: int = 0
) -> tuple[LogicNetwork, dict[str, float]]:
    """Train one network; the last of its measurements.

    With a folder, every measurement is kept there as a line of metrics.jsonl after the checkpoint that belongs to it.
    """
    (x, y), (u, v) = DATA[config.data](seed)
    network = build(config, x.shape[1], seed + 1000 * attempt)
    encoding, network.encoding = network.encoding, None  # bits are made once, not at every step
    assert encoding is not None
    u = torch.cat([encoding(part) for part in u.split(4096)])
    x = torch.cat([blurred(encoding, part, config.blur) for part in x.split(4096)])
    optimizer = torch.optim.AdamW(
        network.parameters(), config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    measured: dict[str, float] = {"step": 0, "minutes": 0.0}
    best: tuple[tuple[float, float], dict[str, Tensor]] | None = None
    checkpoint = None if folder is None else folder / "checkpoints" / "last.safetensors"
    if folder is not None and checkpoint is not None:
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        origin = {"seed": seed, "attempt": attempt, "torch": torch.__version__}
        (folder / "config.json").write_text(json.dumps({**asdict(config), **origin}))
        if checkpoint.exists():
            measured = restore(checkpoint, network, optimizer)
            prepare(config, int(measured["step"]) - 1, network, optimizer)
            report(folder, measured)
    before, started = measured["minutes"], time.perf_counter()
    for epoch in range(int(measured["step"]), config.all_epochs):
        prepare(config, epoch, network, optimizer)
        torch.manual_seed(seed * 100_003 + epoch)  # so that a run that was interrupted takes the same course
        loss = train_epoch(network, optimizer, nn.functional.cross_entropy, x, y, batch_size=config.batch_size)
        if config.select:
            scores = evaluate(network, x)
            quality = (accuracy(scores, y), -nn.functional.cross_entropy(scores, y).item())
            if best is None or quality > best[0]:
                best = quality, {name: tensor.clone() for name, tensor in network.state_dict().items()}
        if (epoch + 1) % config.report and epoch + 1 < config.all_epochs:
            continue
        minutes = before + (time.perf_counter() - started) / 60
        if best is not None:
            network.load_state_dict(best[1])
        hard = accuracy(evaluate(network, u), v)
        with torch.no_grad():
            soft = accuracy(torch.cat([network(part) for part in u.split(1024)]), v)
        measured = {"step": epoch + 1, "loss": loss, "hard": hard, "soft": soft, "minutes": minutes}
        if best is not None:
            measured.update(zip(("fit", "likelihood"), best[0], strict=True))
        if folder is not None and checkpoint is not None:
            save(checkpoint, network, optimizer, measured)
            report(folder, measured)
    network.encoding = encoding
    return network, measured


def prepare(config: Config, epoch: int, network: LogicNetwork, optimizer: torch.optim.Optimizer) -> None:
    """Set what depends on the epoch."""
    rate, done = config.learning_rate, epoch / config.epochs
    if epoch >= config.epochs:
        rate, done = 0.4 * rate, (epoch - config.epochs) / config.hard_epochs
        optimizer.param_groups[0]["weight_decay"] = 0.0
        for layer in network.layers:
            layer.parametrization = parametrizations.get("straight_through")  # type: ignore[assignment]
    optimizer.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * done)) / 2 if config.decay else rate


def blurred(encoding: Encoding, x: Tensor, width: float) -> Tensor:
    """Bits of thresholds, as probabilities where the numbers are uncertain by so much."""
    if not width:
        return encoding(x)
    columns, thresholds, _ = encoding.comparisons()
    return ((x[:, columns] - thresholds.float()) / width + 0.5).clamp(0, 1)


def accuracy(scores: Tensor, labels: Tensor) -> float:
    """The share of examples whose label has the largest score."""
    return (scores.argmax(-1) == labels).double().mean().item()


def save(path: Path, network: LogicNetwork, optimizer: torch.optim.Optimizer, measured: dict[str, float]) -> None:
    """Write a checkpoint so that there is always a whole one."""
    tensors = {f"network.{name}": tensor for name, tensor in network.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        tensors.update({f"optimizer.{number}.{name}": tensor for name, tensor in state.items()})
    unfinished = path.with_suffix(f".{os.getpid()}")
    save_file(tensors, unfinished, metadata={"measured": json.dumps(measured)})
    unfinished.replace(path)


def restore(path: Path, network: LogicNetwork, optimizer: torch.optim.Optimizer) -> dict[str, float]:
    """Load a checkpoint; what was measured when it was written."""
    with safe_open(path, "pt") as file:
        measured: dict[str, float] = json.loads(file.metadata()["measured"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    prefix = "network."
    network.load_state_dict({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)})
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimizer."):
            _, number, entry = name.split(".")
            state.setdefault(int(number), {})[entry] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return measured


def report(folder: Path, measured: dict[str, float]) -> None:
    """Add a line to metrics.jsonl, unless it is there already."""
    path = folder / "metrics.jsonl"
    line = json.dumps(measured)
    if not path.exists() or line not in path.read_text().splitlines():
        with path.open("a") as file:
            file.write(line + "\n")


def run(config: Config, out: Path | None = None) -> Result:
    """Train a network for every seed, the best of several attempts."""
    results = []
    for seed in config.seeds:
        tries = []
        for attempt in range(config.attempts):
            name = f"seed-{seed}-attempt-{attempt}" if attempt else f"seed-{seed}"
            tries.append(learn(config, seed, None if out is None else out / name, attempt=attempt)[1])
        best = max(tries, key=lambda measured: (measured.get("fit", 0.0), measured.get("likelihood", 0.0)))
        results.append([best["hard"], best["soft"], sum(measured["minutes"] for measured in tries)])
    hard, soft, minutes = np.array(results).T
    return Result(config, hard, soft, minutes)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m softly_lab.experiments.logic", description=__doc__)
    parser.add_argument("names", nargs="+", choices=CONFIGS, metavar="NAME", help=", ".join(CONFIGS))
    parser.add_argument("--out", type=Path, help="a folder for configs, metrics and checkpoints")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--hard-epochs", type=int)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--decay", action=argparse.BooleanOptionalAction)
    parser.add_argument("--weight-decay", type=float)
    parser.add_argument("--blur", type=float)
    parser.add_argument("--init")
    parser.add_argument("--parametrization")
    parser.add_argument("--grad-factor", type=float)
    parser.add_argument("--select", action=argparse.BooleanOptionalAction)
    parser.add_argument("--attempts", type=int)
    options = vars(parser.parse_args())
    names, out = options.pop("names"), options.pop("out")
    torch.set_num_threads(options.pop("threads"))
    changes = {name: value for name, value in options.items() if value is not None}
    if "seeds" in changes:
        changes["seeds"] = tuple(changes["seeds"])
    sys.stdout.write("| data | options | thesis | discretized | relaxed | seeds | epochs | minutes each |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|---|\n")
    for name in names:
        config = replace(CONFIGS[name], **changes)
        sys.stdout.write(run(config, None if out is None else out / name).row() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
