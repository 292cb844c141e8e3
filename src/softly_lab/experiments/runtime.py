"""How long sorters take, and how much they keep in memory (chapter 3): softly, plain torch and peers in one run."""

import importlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from torch import Tensor

import softly
from softly_lab.runner import Experiment, Result, Task, option
from softly_lab.tour.plots import STYLE

NETWORKS = ("odd_even", "bitonic", "pairwise")
SORTERS = (*NETWORKS, "neuralsort", "softsort", "sinkhornsort", "fastsort")
SIZES = (4, 16, 32, 128, 1024)
Function = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Config:
    """One sorter at one size: permutation matrices, or ranks where it has none, with their gradients."""

    sorter: str = option("bitonic", "What sorts.", choices=SORTERS)
    n: int = option(32, "The length of a list.", least=2)
    numbers: int = option(4096, "In all lists together; there is at least one list.", least=2)
    rounds: int = option(20, "Of all implementations in turn; the best of each counts.", least=1)
    seconds: float = option(0.2, "Of one implementation in one round, at least one call.", least=0.0)
    peers: bool = option(True, "Whether to time plain torch and installed peers, too.")
    seed: int = option(0, "Of the numbers.", least=0)


def layered(x: Tensor, network: softly.sorting.networks.Network, steepness: float) -> Tensor:
    """A Cauchy network's permutation matrix in plain torch: both ends of all comparators of a layer at a time."""
    matrix = torch.eye(x.shape[-1], dtype=x.dtype).expand(*x.shape, x.shape[-1])
    for layer in network.layers:
        low, high = torch.tensor(layer).T
        a, b = x[:, low], x[:, high]
        p = torch.atan(steepness * (b - a)) / math.pi + 0.5
        x = x.index_copy(1, low, p * a + (1 - p) * b).index_copy(1, high, p * b + (1 - p) * a)
        q, first, second = p.unsqueeze(-1), matrix[:, low], matrix[:, high]
        matrix = matrix.index_copy(1, low, q * first + (1 - q) * second)
        matrix = matrix.index_copy(1, high, q * second + (1 - q) * first)
    return matrix


def neural(x: Tensor, steepness: float) -> Tensor:
    """NeuralSort's formula."""
    n = x.shape[-1]
    spread = (x.unsqueeze(-1) - x.unsqueeze(-2)).abs().sum(-1)
    scaling = torch.arange(1 - n, n, 2, dtype=x.dtype)
    return torch.softmax(steepness * (scaling.unsqueeze(-1) * x.unsqueeze(-2) - spread.unsqueeze(-2)), -1)


def soft(x: Tensor, steepness: float) -> Tensor:
    """SoftSort's formula."""
    ordered = x.sort(-1).values
    return torch.softmax(-steepness * (ordered.unsqueeze(-1) - x.unsqueeze(-2)).abs(), -1)


def implementations(config: Config) -> dict[str, Function]:
    """What is timed, by name; softly first."""
    steepness = 10.0
    found: dict[str, Function] = {}
    if config.sorter in NETWORKS:
        network = softly.sorting.networks.get(config.sorter, config.n)
        found["softly"] = softly.SortingNetwork(config.sorter, distribution="cauchy", steepness=steepness).permutation
        found["torch"] = lambda x: layered(x, network, steepness)
        peer = _installed("diffsort")
        whole = config.sorter == "odd_even" or (config.sorter == "bitonic" and config.n & (config.n - 1) == 0)
        if peer is not None and whole and config.n <= 128:  # its dense layers take minutes for more
            theirs = peer.DiffSortNet(config.sorter, config.n, steepness=steepness, distribution="cauchy")
            found["diffsort"] = lambda x: theirs(x)[1]
    elif config.sorter == "fastsort":
        found["softly"] = softly.FastSort(steepness=steepness).rank
        peer = _installed("torchsort")
        if peer is not None:
            found["torchsort"] = lambda x: peer.soft_rank(x, regularization_strength=1 / steepness)
    else:
        kind = {"neuralsort": softly.NeuralSort, "softsort": softly.SoftSort, "sinkhornsort": softly.SinkhornSort}
        found["softly"] = kind[config.sorter](steepness=steepness).permutation
        formula = {"neuralsort": neural, "softsort": soft}.get(config.sorter)
        if formula is not None:
            found["torch"] = lambda x: formula(x, steepness)
    return found if config.peers else {"softly": found["softly"]}


def _installed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def kept(function: Function, x: Tensor) -> int:
    """The bytes that autograd keeps for the backward pass, and the result."""
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function(x.requires_grad_())
    storage = result.untyped_storage()
    seen[storage.data_ptr()] = storage.nbytes()
    return sum(seen.values())


class Runtime(Task):
    """A step times all implementations once, one after the other, so that a busy machine slows all of them alike."""

    report = 1

    def __init__(self, config: Config) -> None:
        self.config, self.steps = config, config.rounds
        generator = torch.Generator().manual_seed(config.seed)
        self.lists = max(1, config.numbers // config.n)
        self.x = torch.randn(self.lists, config.n, generator=generator)
        self.data = f"normal numbers, {self.lists} lists of {config.n}"
        self.functions = implementations(config)
        self.best: dict[str, float] = {}

    def step(self, number: int) -> None:
        for name, function in self.functions.items():
            x = self.x.clone().requires_grad_()
            weights = torch.ones(()).expand_as(function(x))  # warm, and not counted
            count, started = 0, time.perf_counter()
            while True:
                torch.autograd.grad(function(x), x, weights)
                count, spent = count + 1, time.perf_counter() - started
                if spent >= self.config.seconds:
                    break
            each = spent / count / self.lists
            self.best[name] = min(each, self.best.get(name, each))

    def measure(self) -> dict[str, float]:
        """Microseconds a list, forwards and backwards; others as multiples of softly's, too; bytes and layers."""
        found = {"µs a list" if name == "softly" else name: 1e6 * best for name, best in self.best.items()}
        found |= {f"{name} ×": best / self.best["softly"] for name, best in self.best.items() if name != "softly"}
        found["bytes a list"] = kept(self.functions["softly"], self.x.clone()) / self.lists
        if self.config.sorter in NETWORKS:
            found["layers"] = len(softly.sorting.networks.get(self.config.sorter, self.config.n).layers)
        return found

    def state(self) -> Any:
        return dict(self.best)

    def load(self, state: Any) -> None:
        self.best = dict(state)

    def pictures(self) -> dict[str, Figure]:
        figure = Figure(figsize=(5, 0.6 + 0.4 * len(self.best)), layout="constrained")
        axes = figure.subplots()
        bars = axes.barh(list(self.best)[::-1], [1e6 * best for best in self.best.values()][::-1], log=True)
        axes.bar_label(bars, fmt="{:.3g}", padding=2)
        axes.margins(x=0.15)
        axes.set_xlabel("µs a list, forwards and backwards")
        return {f"{self.config.sorter}, {self.data}.": figure}


def overview(runs: Sequence[Result]) -> Mapping[str, Figure]:
    """Time against the length of lists, for all sorters that have been timed at more than one."""
    curves: dict[str, dict[int, float]] = {}
    for run in runs:
        curves.setdefault(run.config["sorter"], {})[run.config["n"]] = run.final["µs a list"]
    curves = {sorter: points for sorter, points in curves.items() if len(points) > 1}
    if not curves:
        return {}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6, 3.4), layout="constrained")
        axes = figure.subplots()
        for sorter, points in curves.items():
            axes.plot(*zip(*sorted(points.items()), strict=True), marker="o", markersize=3, label=sorter)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("length of a list")
        axes.set_ylabel("µs a list, forwards and backwards")
        axes.legend()
    return {"Time of softly's sorters against the length of lists.": figure}


EXPERIMENT = Experiment(
    name="runtime",
    summary="Time sorters, forwards and backwards, beside plain torch and installed peers.",
    chapter=3,
    config=Config,
    start=Runtime,
    presets={"quick": {"rounds": 3, "seconds": 0.02, "numbers": 1024}, "standard": {}, "full": {"rounds": 50}},
    compared={
        "quick": {"sorter": ("odd_even", "bitonic", "neuralsort", "fastsort"), "n": (4, 16, 32)},
        "standard": {"sorter": SORTERS, "n": SIZES},
        "full": {"sorter": SORTERS, "n": SIZES},
    },
    overview=overview,
)
