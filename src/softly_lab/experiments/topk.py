"""Top-k classification (chapter 4): a cross-entropy with k drawn from P_K, against the softmax cross-entropy."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import Tensor, nn

import softly
from softly_lab.data import available, images
from softly_lab.models import resnet18
from softly_lab.published import Sample, welch
from softly_lab.runner import Experiment, Result, Task, option
from softly_lab.tour.plots import STYLE, panels

Loss = Callable[[Tensor, Tensor], Tensor]
Part = tuple[Tensor, Tensor]  # images (n, channels, height, width) or embeddings (n, m), and labels (n,)
SORTERS = ("splitter", "odd_even", "neuralsort", "softsort", "sinkhornsort")
P_K = ((0.5, 0.0, 0.0, 0.0, 0.5), (0.25, 0.0, 0.0, 0.0, 0.75), (0.1, 0.0, 0.0, 0.0, 0.9), (0.2,) * 5)


@dataclass(frozen=True)
class Config:
    """One loss on one data set: held-out images choose steepness and epochs, then all of them are learned from."""

    data: str = option("auto", "The images; auto is cifar100, or digits where it is not there. families are points of "
                       "200 classes that look alike.", choices=("auto", "cifar100", "digits", "families"))  # fmt: skip
    model: str = option("hidden", "A hidden layer on few pixels, the head of such a network, fine-tuned on its "
                        "embeddings, or a ResNet18 on all pixels.", choices=("hidden", "head", "resnet18"))  # fmt: skip
    loss: str = option("topk", "What is trained by; smooth is the loss of Berrada and others.",
                       choices=("topk", "softmax", "smooth"))  # fmt: skip
    sorter: str = option("splitter", "What ranks the scores; splitter selects the first ones.", choices=SORTERS)
    m: int | None = option(None, "Rank the true class and the m - 1 largest of the others; all if not given.", least=1)
    p_k: tuple[float, ...] = option((0.5, 0.0, 0.0, 0.0, 0.5), "The distribution of k.", least=0.0)
    ks: tuple[int, ...] = option((1, 2, 3, 5), "The k of the accuracies that are measured.", least=1)
    steepnesses: tuple[float, ...] = option((0.5, 1.0, 2.0, 4.0, 8.0, 16.0), "Choices for the sorter.", least=0.0)
    hidden: int = option(256, "Width of the hidden layer.", least=1)
    epochs: int = option(20, "The most that are tried.", least=1)
    batch_size: int = option(100, "Images a step.", least=1)
    learning_rate: float = option(1e-3, "Of Adam.", least=0.0)
    validation: float = option(0.2, "Share of the images on which steepness and epochs are chosen.", least=0.0)
    tuning: int = option(2, "Networks that choose, for each steepness.", least=1)
    repeats: int = option(5, "Networks that are tested.", least=1)
    seed: int = option(0, "Of all of them.", least=0)


def losses(config: Config) -> list[Loss]:
    """The losses of all steepnesses to choose from."""
    if config.loss == "softmax":
        return [nn.CrossEntropyLoss()]
    if config.loss == "smooth":
        return [softly.selection.SmoothTopKLoss(len(config.p_k), steepness=s) for s in config.steepnesses]
    kinds: dict[str, Callable[..., Any]] = {
        "splitter": softly.TopKNetwork,
        "odd_even": lambda steepness: softly.SortingNetwork("odd_even", steepness=steepness),
        "neuralsort": softly.NeuralSort,
        "softsort": softly.SoftSort,
        "sinkhornsort": softly.SinkhornSort,
    }
    sorters = [kinds[config.sorter](steepness=s) for s in config.steepnesses]
    # With weight on the first place alone, or none on it, there is nothing that the softmax could guide. Rows that can
    # all choose one class like it best in the middle, so that it has to be told by a loss of its own that it isn't.
    guide = "softmax" if sorters[0].doubly_stochastic else "separate"
    top1 = guide if 0 < config.p_k[0] < 1 else "sort"
    return [softly.TopKCrossEntropy(list(config.p_k), sorter=sorter, m=config.m, top1=top1) for sorter in sorters]


class TopK(Task):
    """A step trains one network: first those that choose steepness and epochs, then those that are tested."""

    report = 1

    def __init__(self, config: Config) -> None:
        self.config = config
        kind = config.data
        if kind == "auto":
            kind = "cifar100" if available("cifar100") else "digits"
        whole = config.model == "resnet18"
        self.train, self.held = {"cifar100": lambda: cifar100(whole), "digits": digits, "families": families}[kind]()
        small = "" if whole else ", 8×8 pixels"
        self.data = {
            "cifar100": f"CIFAR-100, a part of it{small}",
            "digits": "scikit-learn's digits (stand-in)",
            "families": "families of classes that look alike (made up)",
        }[kind]
        if config.model == "head":
            self.data = f"Embeddings by a network of its own (stand-in for ResNeXt-101 WSL) of {self.data}"
        self.losses = losses(config)
        self.steps = len(self.losses) * config.tuning + config.repeats
        self.curves: list[list[list[float]]] = []
        self.tested: list[list[float]] = []

    def chosen(self) -> tuple[int, int]:
        """The loss and the number of epochs that were best on held-out images, with k drawn from P_K."""
        config = self.config
        wanted = [config.p_k[k - 1] if k <= len(config.p_k) else 0.0 for k in config.ks]
        if not any(wanted):
            wanted = [1.0] * len(config.ks)
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
            curve = learn(config, self.losses[choice], *parts, config.epochs, first + 100 + attempt)[1]
            self.curves.append(curve.tolist())
        else:
            best, epochs = self.chosen()
            seed = first + number - len(self.losses) * config.tuning
            curve = learn(config, self.losses[best], self.train, self.held, epochs, seed)[1]
            self.tested.append(curve[-1].tolist())

    def measure(self) -> dict[str, float]:
        """Accuracies on the test images in per cent, means over networks, and their deviation."""
        found: dict[str, float] = {"networks": len(self.curves) + len(self.tested)}
        if len(self.curves) >= self.config.tuning:
            choice, found["epochs"] = self.chosen()
            if self.config.loss != "softmax":
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
    torch.manual_seed(seed)
    (shape, classes), hidden = (train[0].shape[1:], int(train[1].max()) + 1), config.hidden
    if config.model == "resnet18":
        return _trained(config, resnet18(shape[0], classes), loss, train, test, epochs)
    body = nn.Sequential(nn.Flatten(), nn.Linear(shape.numel(), hidden), nn.ReLU())
    model = nn.Sequential(body, nn.Linear(hidden, classes))
    if config.model == "hidden":
        return _trained(config, model, loss, train, test, epochs)
    _trained(config, model, nn.CrossEntropyLoss(), train, test, config.epochs)
    with torch.no_grad():
        train, test = (body(train[0]), train[1]), (body(test[0]), test[1])
    return _trained(config, copy.deepcopy(model[1]), loss, train, test, epochs)


def _trained(
    config: Config, model: nn.Module, loss: Loss, train: Part, test: Part, epochs: int
) -> tuple[nn.Module, np.ndarray]:
    inputs, labels = train
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate)
    curve = []
    for _ in range(epochs):
        model.train()
        for batch in torch.randperm(len(inputs)).split(config.batch_size):
            optimizer.zero_grad()
            loss(model(inputs[batch]), labels[batch]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            scores = torch.cat([model(part) for part in test[0].split(1000)])
        first = scores.topk(max(config.ks), -1).indices
        hits = (first == test[1].unsqueeze(-1)).float().cumsum(-1).mean(0)
        curve.append([hits[k - 1].item() for k in config.ks])
    return model, np.array(curve)


def digits() -> tuple[Part, Part]:
    """Scikit-learn's handwritten digits; those at the end are by other writers."""
    data = load_digits()
    pixels, labels = torch.tensor(data.images / 16.0, dtype=torch.float32).unsqueeze(1), torch.tensor(data.target)
    return (pixels[:1000], labels[:1000]), (pixels[1000:], labels[1000:])


def families() -> tuple[Part, Part]:
    """200 classes in families of five that look alike; four labels of ten are drawn from the whole family."""
    generator = torch.Generator().manual_seed(0)
    number, members, size = 40, 5, 24
    centres = torch.randn(number, 1, size, generator=generator)
    classes = (centres + 0.5 * torch.randn(number, members, size, generator=generator)).flatten(0, 1)

    def part(count: int) -> Part:
        true = torch.randint(0, len(classes), (count,), generator=generator)
        x = classes[true] + 1.2 * torch.randn(count, size, generator=generator)
        other = true // members * members + torch.randint(0, members, (count,), generator=generator)
        return x, torch.where(torch.rand(count, generator=generator) < 0.4, other, true)

    return part(8000), part(10_000)


def cifar100(whole: bool = False) -> tuple[Part, Part]:
    """The images that there are, reduced to 8×8 pixels if not ``whole``."""
    parts = []
    for pixels, labels in images.cifar100():
        scaled = pixels.double() / 255.0
        if not whole:
            scaled = scaled.reshape(-1, 8, 4, 8, 4, 3).mean((2, 4))
        parts.append((scaled.permute(0, 3, 1, 2).float(), labels))
    mean, std = parts[0][0].mean(0), parts[0][0].std(0)
    (x, y), (u, v) = parts
    return ((x - mean) / std, y), ((u - mean) / std, v)


def p_value(run: Result, baseline: Result, k: int) -> float | None:
    """Of Welch's t-test that the networks of two runs are equally good at the first k; None of single networks."""
    found = [(r.final[f"top-{k}"], r.final[f"± {k}"], r.config["repeats"]) for r in (run, baseline)]
    one, other = (Sample(mean, deviation if count > 1 else None, count) for mean, deviation, count in found)
    return welch(one, other)


def overview(runs: Sequence[Result]) -> Mapping[str, Figure]:
    """What the share of k = 5 and the number of ranked classes do, and which losses differ from the softmax."""
    drawn: dict[str, Figure] = {}
    with mpl.rc_context(STYLE):
        for caption, options, position, label in (
            ("The share α of k = 5 in P_K = [1 − α, 0, 0, 0, α].", ("p_k",), _alpha, "α"),
            ("The number m of classes that are ranked.", ("m",), lambda run: run.config["m"], "m"),
        ):
            groups: dict[str, list[tuple[float, Result]]] = {}
            for run in runs:
                place = position(run) if run.config["loss"] == "topk" else None
                if place is not None:
                    fixed = {k: v for k, v in run.config.items() if k not in options}
                    groups.setdefault(f"{run.data} {fixed}", []).append((place, run))
            group = max(groups.values(), key=len, default=[])
            if len(group) > 2:
                figure, axes = panels(1, 2, height=2.8, share=False)
                for axis, k in zip(axes, (1, 5), strict=True):
                    _curve(axis, sorted(group, key=lambda pair: pair[0]), k, label)
                drawn[f"{caption} {group[0][1].data}, {group[0][1].config['sorter']}."] = figure
        tests = _significance(runs)
        if tests is not None:
            drawn["Accuracy beside the softmax cross-entropy, and p by Welch's t-test over networks."] = tests
    return drawn


def _alpha(run: Result) -> float | None:
    p_k = run.config["p_k"]
    return p_k[4] if len(p_k) == 5 and not any(p_k[1:4]) else None


def _curve(axes: Axes, group: Sequence[tuple[float, Result]], k: int, label: str) -> None:
    finals = [run.final for _, run in group]
    axes.errorbar(
        [place for place, _ in group],
        [f[f"top-{k}"] for f in finals],
        [f[f"± {k}"] for f in finals],
        marker="o",
        markersize=3,
        capsize=2,
    )
    axes.set_title(f"top-{k} accuracy in per cent")
    axes.set_xlabel(label)


def _significance(runs: Sequence[Result]) -> Figure | None:
    """All losses on the data that has most of them, with the p-values of their difference from the softmax."""
    by_data: dict[str, list[Result]] = {}
    for run in runs:
        by_data.setdefault(f"{run.preset}, {run.data}", []).append(run)
    chosen = max(by_data.values(), key=len, default=[])
    baseline = next((run for run in chosen if run.config["loss"] == "softmax"), None)
    others = [run for run in chosen if run.config["loss"] != "softmax"]
    if baseline is None or not others:
        return None
    rows = [("softmax", baseline), *((_name(run), run) for run in others)]
    figure, axes = panels(1, 2, height=1.0 + 0.32 * len(rows), share=False)
    for axis, k in zip(axes, (1, 5), strict=True):
        values, spreads = ([run.final[f"{sign}{k}"] for _, run in rows] for sign in ("top-", "± "))
        axis.barh([name for name, _ in rows], values, xerr=spreads, height=0.6)
        for i, (_, run) in enumerate(rows[1:], 1):
            p = p_value(run, baseline, k)
            if p is not None:
                axis.annotate(f" p = {p:.2g}", (values[i] + spreads[i], i), va="center", fontsize=7)
        low = min(v - s for v, s in zip(values, spreads, strict=True))
        high = max(v + s for v, s in zip(values, spreads, strict=True))
        axis.set_xlim(low - 0.3 * (high - low) - 0.1, high + 0.5 * (high - low) + 0.1)
        axis.invert_yaxis()
        axis.set_title(f"top-{k} accuracy in per cent")
    axes[1].set_yticklabels([])
    return figure


def _name(run: Result) -> str:
    config = run.config
    if config["loss"] == "smooth":
        return "smooth top-k"
    shares = ", ".join(f"{p:g}" for p in config["p_k"])
    return f"{config['sorter']} [{shares}]" + (f", m = {config['m']}" if config["m"] else "")


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
        "full": {
            "model": "resnet18", "epochs": 200, "tuning": 1, "repeats": 2,
            "steepnesses": (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
        },
    },
    compared={
        "quick": {"loss": ("softmax", "topk")},
        "standard": {
            "loss,sorter,p_k": (
                ("softmax", "splitter", P_K[0]),
                ("smooth", "splitter", P_K[0]),
                *(("topk", sorter, p_k) for sorter in SORTERS for p_k in (P_K[0], P_K[3])),
            ),
        },
        "full": {
            "loss,sorter,p_k": (
                ("softmax", "splitter", P_K[0]),
                ("smooth", "splitter", P_K[0]),
                *(("topk", sorter, p_k) for sorter in SORTERS for p_k in (*P_K, (0.0, 0.0, 0.0, 0.0, 1.0))),
            ),
        },
    },
    overview=overview,
)  # fmt: skip
