"""Logic gate networks (chapter 6) on MONK's problems, Adult, Breast Cancer, MNIST and CIFAR-10."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import Tensor, nn

from softly.logic import Circuit, LogicNetwork, Threshold, discretize, parametrizations
from softly.logic.encodings import Encoding
from softly.logic.training import evaluate, train_epoch
from softly_lab import architectures, baselines
from softly_lab.data import images, tables
from softly_lab.runner import Experiment, Task, option

Part = tuple[Tensor, Tensor]
Data = tuple[Part, Part]


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


def digits(seed: int) -> Data:
    """Scikit-learn's digits; those at the end are by other writers."""
    data = load_digits()
    x, y = torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)
    return (x[:1000], y[:1000]), (x[1000:], y[1000:])


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
    "digits": digits,
}


NAMES = {
    "monk1": "MONK-1",
    "monk2": "MONK-2",
    "monk3": "MONK-3",
    "adult": "Adult",
    "breast_cancer": "Breast Cancer",
    "mnist": "MNIST, 28×28 pixels",
    "mnist_crop": "MNIST, 20×20 pixels",
    "cifar10": "CIFAR-10",
    "cifar10_mirrored": "CIFAR-10, and mirrored",
    "digits": "scikit-learn's digits (stand-in for MNIST)",
}


@dataclass(frozen=True)
class Config:
    """One network; what is not given follows from the data, as `RECIPES` says."""

    data: str = option("mnist_crop", "What is learned.", choices=tuple(DATA))
    model: str = option("logic", "A network of logic gates, or what the chapter compares it with: a decision tree, "
                        "logistic regression, a network of neurons.", choices=("logic", *baselines.NAMES))  # fmt: skip
    architecture: str | None = option(None, "A name of softly_lab.architectures.")
    epochs: int | None = option(None, "How often training goes through the data.", least=1)
    hard_epochs: int | None = option(None, "Epochs on hard gates after that, straight-through: they close the gap to "
                                     "the hard network.", least=0)  # fmt: skip
    batch_size: int | None = option(None, "Examples a step.", least=1)
    learning_rate: float | None = option(None, "Of AdamW.", least=0.0)
    decay: bool | None = option(None, "Whether the rate falls to 0 along half a cosine.")
    weight_decay: float | None = option(None, "Keeps the choice of gates open.", least=0.0)
    init: str | None = option(None, "How gates start.", choices=("normal", "residual"))
    parametrization: str | None = option(None, "Of the gates.")
    grad_factor: float | None = option(None, "Of the layers.", least=0.0)
    blur: float | None = option(None, "In training a bit is the probability that a number, off by up to half of this, "
                                "passes its threshold.", least=0.0)  # fmt: skip
    select: bool | None = option(None, "Keep the epoch whose discretized network is the best on the training data.")
    attempts: int | None = option(None, "With select, networks that are trained, of which the best is kept.", least=1)
    report: int = option(1, "Epochs between two tests.", least=1)
    seed: int = option(0, "Of wires, weights and batches.", least=0)

    @property
    def all_epochs(self) -> int:
        """The epochs of both kinds."""
        return (self.epochs or 0) + (self.hard_epochs or 0)


CHAPTER = {
    "epochs": 200, "hard_epochs": 0, "batch_size": 100, "learning_rate": 0.01, "decay": False, "weight_decay": 0.0,
    "init": "normal", "parametrization": "softmax16", "grad_factor": 1.0, "blur": 0.0, "select": False, "attempts": 1,
}  # fmt: skip
# Gates that start as copies and stay open for a while: what won among the options that were tried.
_IMAGES = {"learning_rate": 0.05, "decay": True, "weight_decay": 0.02, "init": "residual"}
# All examples at once, gates that start as copies, the best of three: what won in cross-validation.
_MONK = {**_IMAGES, "batch_size": 200, "select": True, "attempts": 3}

# What differs from the chapter, by data.
RECIPES: dict[str, dict[str, Any]] = {
    "monk1": {"architecture": "monk1", **_MONK, "epochs": 1000, "weight_decay": 0.3},
    "monk2": {
        "architecture": "monk2", "epochs": 1500, "learning_rate": 0.1, "decay": True, "weight_decay": 0.1,
        "select": True, "attempts": 4,
    },
    "monk3": {"architecture": "monk3", **_MONK, "epochs": 400, "weight_decay": 0.7},
    "adult": {"architecture": "adult", "epochs": 20},
    "breast_cancer": {
        "architecture": "breast_cancer", "epochs": 100, "learning_rate": 0.05, "decay": True, "weight_decay": 0.5,
    },
    "mnist": {"architecture": "mnist_small", **_IMAGES, "epochs": 140, "hard_epochs": 24, "blur": 1.0},
    "mnist_crop": {"architecture": "mnist_small", **_IMAGES, "epochs": 120, "hard_epochs": 8, "blur": 1.0},
    "cifar10": {"architecture": "cifar10_small", **_IMAGES, "epochs": 80, "hard_epochs": 5},
    "cifar10_mirrored": {
        "architecture": "cifar10_small", **_IMAGES, "epochs": 90, "hard_epochs": 6, "weight_decay": 0.01,
    },
    "digits": {"architecture": "monk1", **_IMAGES, "epochs": 40, "hard_epochs": 4, "batch_size": 50},
}  # fmt: skip


def settled(config: Config) -> Config:
    """The config with all that follows from its data."""
    usual = {**CHAPTER, **RECIPES[config.data]}
    config = replace(config, **{name: value for name, value in usual.items() if getattr(config, name) is None})
    if config.architecture not in architectures.names():
        raise ValueError(
            f"logic: architecture must be one of {', '.join(architectures.names())}, got {config.architecture!r}."
        )
    if config.attempts != 1 and not config.select:
        raise ValueError(f"logic: the best of {config.attempts} attempts is known only with --select yes.")
    return config


def build(config: Config, columns: int, seed: int) -> LogicNetwork:
    """The network with its encoding; a crop has fewer columns than its architecture."""
    options: dict[str, Any] = {
        "init": config.init, "parametrization": config.parametrization, "grad_factor": config.grad_factor,
    }  # fmt: skip
    torch.manual_seed(seed)
    if config.data == "digits":
        encoding: Encoding = Threshold([0.25, 0.5, 0.75]).fit(torch.zeros(1, columns))
        return LogicNetwork(encoding.num_bits, [1000] * 3, 10, tau=6.0, encoding=encoding, seed=seed, **options)
    assert config.architecture is not None
    architecture = architectures.get(config.architecture)
    encoding = architecture.encoding()
    if encoding.num_columns != columns:
        encoding = Threshold(0.5).fit(torch.zeros(1, columns))
    widths = [architecture.width] * architecture.depth
    return LogicNetwork(
        encoding.num_bits, widths, architecture.classes, tau=architecture.tau, encoding=encoding, seed=seed, **options
    )


class Logic(Task):
    """A step is an epoch of an attempt."""

    def __init__(self, given: Config) -> None:
        self.config = config = settled(given)
        assert config.attempts is not None
        self.report, self.steps = config.report, config.all_epochs * config.attempts
        self.data = NAMES[config.data]
        (x, self.labels), (u, self.held_labels) = DATA[config.data](config.seed)
        self.columns = x.shape[1]
        self._begin(0)
        encoding = self.encoding
        self.bits = torch.cat([blurred(encoding, part, config.blur or 0.0) for part in x.split(4096)])
        self.held_bits = torch.cat([encoding(part) for part in u.split(4096)])
        self.held_rows = u.numpy()
        self.loss, self.done = 0.0, 0
        self.best: dict[str, Any] | None = None  # of the attempts and epochs so far, with select

    def _begin(self, attempt: int) -> None:
        config = self.config
        self.network = build(config, self.columns, config.seed + 1000 * attempt)
        encoding, self.network.encoding = self.network.encoding, None  # bits are made once, not at every step
        assert encoding is not None
        self.encoding = encoding
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), config.learning_rate or 0.0, weight_decay=config.weight_decay or 0.0, fused=True
        )

    def step(self, number: int) -> None:
        attempt, epoch = divmod(number, self.config.all_epochs)
        if attempt and not epoch:
            state = torch.get_rng_state()
            self._begin(attempt)
            torch.set_rng_state(state)
        self._prepare(epoch)
        self.done = number + 1
        self.loss = train_epoch(
            self.network,
            self.optimizer,
            nn.functional.cross_entropy,
            self.bits,
            self.labels,
            batch_size=self.config.batch_size or 1,
        )
        if self.config.select:
            scores = evaluate(self.network, self.bits)
            quality = [accuracy(scores, self.labels), -nn.functional.cross_entropy(scores, self.labels).item()]
            if self.best is None or quality > self.best["quality"]:
                kept = {name: tensor.clone() for name, tensor in self.network.state_dict().items()}
                self.best = {"quality": quality, "network": kept}

    def _prepare(self, epoch: int) -> None:
        """Set what depends on the epoch."""
        config, epochs, rate = self.config, self.config.epochs or 1, self.config.learning_rate or 0.0
        done = epoch / epochs
        if epoch >= epochs:
            rate, done = 0.4 * rate, (epoch - epochs) / (config.hard_epochs or 1)
            self.optimizer.param_groups[0]["weight_decay"] = 0.0
            for layer in self.network.layers:
                layer.parametrization = parametrizations.get("straight_through")  # type: ignore[assignment]
        self.optimizer.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * done)) / 2 if config.decay else rate

    def chosen(self) -> LogicNetwork:
        """The network as it is, or with select the best one so far."""
        if self.best is None:
            return self.network
        network = build(self.config, self.columns, self.config.seed)
        network.encoding = None
        network.load_state_dict(self.best["network"])
        return network

    def measure(self) -> dict[str, float]:
        """Accuracies on the test data in per cent, of the network on hard gates and of the relaxed one."""
        network = self.chosen()
        hard = accuracy(evaluate(network, self.held_bits), self.held_labels)
        network.train()
        with torch.no_grad():
            scores = torch.cat([network(part) for part in self.held_bits.split(1024)])
        found = {"loss": self.loss, "accuracy": 100 * hard, "relaxed": 100 * accuracy(scores, self.held_labels)}
        if self.done == self.steps:
            circuit = self.circuit()
            gates, left = sum(len(weight) for weight in self.network.parameters()), circuit.netlist.num_gates
            # Four bits a gate, as the chapter counts: wires are drawn by a seed.
            found |= {"parameters": gates, "OPs": gates, "bytes": -(-gates // 2), "gates left": left}
            found["ns a row"] = baselines.nanoseconds(lambda: circuit.predict(self.held_rows), len(self.held_rows))
        return found

    def circuit(self) -> Circuit:
        """The discretized network, with its encoding."""
        network = self.chosen()
        network.encoding = self.encoding
        made = discretize(network)
        network.encoding = None
        return made

    def state(self) -> Any:
        state = {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}
        return {**state, "loss": self.loss, "best": self.best}

    def load(self, state: Any) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loss, self.best = state["loss"], state["best"]
        if self.optimizer.param_groups[0]["weight_decay"] == 0.0 and self.config.weight_decay:
            for layer in self.network.layers:  # within the hard epochs
                layer.parametrization = parametrizations.get("straight_through")  # type: ignore[assignment]

    def pictures(self) -> dict[str, Figure]:
        """How many gates of each kind the circuit has."""
        kinds = self.circuit().summary()
        figure = Figure(figsize=(6, 3), layout="constrained")
        figure.text(0.01, 0.98, str(kinds), family="monospace", fontsize=7, va="top")
        return {"The circuit.": figure}


def start(config: Config) -> Task:
    """The task of a config: a network of gates, or one of its rivals on the same data."""
    if config.model == "logic":
        return Logic(config)
    (x, y), (u, v) = DATA[config.data](config.seed)
    if not config.data.startswith(("mnist", "digits")):  # these are given pixels as they are
        encoding = architectures.get(RECIPES[config.data]["architecture"]).encoding()
        x, u = (torch.cat([encoding(part) for part in rows.split(4096)]).float() for rows in (x, u))
    task: Task
    if config.model == "mlp":
        settings = settled(config)
        epochs = config.epochs or 200  # as the chapter has it
        task = baselines.Perceptron(
            baselines.NETWORKS[config.data], (x, y), (u, v), epochs, min(settings.batch_size or 100, 100)
        )
    else:
        task = baselines.Scikit(config.model, (x, y), (u, v), config.seed)
    task.data = NAMES[config.data]
    return task


def blurred(encoding: Encoding, x: Tensor, width: float) -> Tensor:
    """Bits of thresholds, as probabilities where the numbers are uncertain by so much."""
    if not width:
        return encoding(x)
    columns, thresholds, _ = encoding.comparisons()
    return ((x[:, columns] - thresholds.float()) / width + 0.5).clamp(0, 1)


def accuracy(scores: Tensor, labels: Tensor) -> float:
    """The share of examples whose label has the largest score."""
    return (scores.argmax(-1) == labels).double().mean().item()


EXPERIMENT = Experiment(
    name="logic",
    summary="Classify by networks of logic gates, and by the circuits they become.",
    chapter=6,
    config=Config,
    start=start,
    presets={"quick": {"data": "digits", "epochs": 8, "hard_epochs": 2}, "standard": {}, "full": {}},
    compared={
        "quick": {"model,init": (("logic", "normal"), ("logic", "residual"), *((m, None) for m in baselines.NAMES))},
        "standard": {
            "model": ("logic", *baselines.NAMES),
            "data": ("monk1", "monk2", "monk3", "adult", "breast_cancer"),
            "seed": range(10),
        },
        "full": {
            "model,data,architecture": (
                *((model, data, None) for model in ("logic", *baselines.NAMES) for data in RECIPES),
                ("logic", "mnist", "mnist"),
                *(("logic", "cifar10", f"cifar10_{size}") for size in ("medium", "large", "large_x2", "large_x4")),
            ),
            "seed": range(10),
        },
    },
    overview=baselines.sizes,
)
