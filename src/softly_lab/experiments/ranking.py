"""Learning to rank by graded relevance: NDCG through differentiable sorters, against losses that see no order."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.metrics import ndcg_score
from torch import Tensor, nn

import softly
from softly.sorting import baselines
from softly_lab.data import available
from softly_lab.data.queries import Queries, diabetes, lightgbm
from softly_lab.runner import Experiment, Task, option

Loss = Callable[[Tensor, Queries], Tensor]


def squared_error(scores: Tensor, queries: Queries) -> Tensor:
    """Between score and grade: every document on its own."""
    there = torch.arange(scores.shape[1]) < queries.lengths[:, None]
    return nn.functional.mse_loss(scores[there], queries.grades[there].float())


def ndcg_through(sorter: softly.sorting.Sorter) -> Loss:
    return lambda scores, queries: softly.sorting.ndcg_loss(
        scores, queries.grades, sorter=sorter, lengths=queries.lengths
    )


def baseline(loss: Callable[..., Tensor]) -> Loss:
    return lambda scores, queries: loss(scores, queries.grades, lengths=queries.lengths)


LOSSES: dict[str, Loss] = {
    "squared_error": squared_error,
    "odd_even": ndcg_through(softly.SortingNetwork("odd_even", steepness="auto")),
    "bitonic": ndcg_through(softly.SortingNetwork("bitonic", steepness="auto")),
    "neuralsort": ndcg_through(softly.NeuralSort(steepness="auto")),
    "softsort": ndcg_through(softly.SoftSort(steepness="auto")),
    "ranknet": baseline(baselines.ranknet_loss),
    "lambda": baseline(baselines.lambda_loss),
    "listnet": baseline(baselines.listnet_loss),
    "listmle": baseline(baselines.listmle_loss),
    "approx_ndcg": baseline(baselines.approx_ndcg_loss),
}


@dataclass(frozen=True)
class Config:
    """One loss on one data set: held-out queries choose the number of epochs, then all of them are learned from."""

    data: str = option("auto", "The queries; auto is lightgbm, or diabetes where it is not there.",
                       choices=("auto", "lightgbm", "diabetes"))  # fmt: skip
    loss: str = option("odd_even", "What is trained by.", choices=tuple(LOSSES))
    ks: tuple[int, ...] = option((10, 5, 1), "The k of NDCG@k; the first one chooses the epochs.", least=1)
    hidden: int = option(32, "Width of the hidden layer.", least=1)
    epochs: int = option(60, "The most that are tried.", least=1)
    batch_size: int = option(16, "Queries a step.", least=1)
    learning_rate: float = option(3e-3, "Of Adam.", least=0.0)
    validation: float = option(0.25, "Share of the queries on which the epochs are chosen.", least=0.0)
    tuning: int = option(4, "Networks that choose.", least=1)
    repeats: int = option(10, "Networks that are tested.", least=1)
    seed: int = option(0, "Of all of them.", least=0)


class Ranking(Task):
    """A step trains one network: first those that choose the number of epochs, then those that are tested."""

    report = 1

    def __init__(self, config: Config) -> None:
        self.config, self.steps = config, config.tuning + config.repeats
        kind = config.data
        if kind == "auto":
            kind = "lightgbm" if available("ltr-lightgbm") else "diabetes"
        self.train, self.held = lightgbm() if kind == "lightgbm" else diabetes()
        self.data = "LightGBM's queries" if kind == "lightgbm" else "scikit-learn's diabetes (stand-in for queries)"
        self.curves: list[list[list[float]]] = []
        self.tested: list[list[float]] = []

    @property
    def epochs(self) -> int:
        """As many as were best on held-out queries so far."""
        return int(np.mean(self.curves, 0)[:, 0].argmax()) + 1

    def step(self, number: int) -> None:
        config, loss = self.config, LOSSES[self.config.loss]
        if number < config.tuning:
            seed = 1000 * config.seed + 100 + number
            order = torch.randperm(len(self.train), generator=torch.Generator().manual_seed(seed))
            held, kept = order.tensor_split([round(config.validation * len(self.train))])
            _, curve = learn(config, loss, self.train[kept], self.train[held], config.epochs, seed)
            self.curves.append(curve.tolist())
        else:
            seed = 1000 * config.seed + number - config.tuning
            _, curve = learn(config, loss, self.train, self.held, self.epochs, seed)
            self.tested.append(curve[-1].tolist())

    def measure(self) -> dict[str, float]:
        """NDCG on the test queries, means over networks, and their deviation; at first on held-out ones."""
        if not self.tested:
            best = np.mean(self.curves, 0)[self.epochs - 1]
            return {
                "epochs": self.epochs,
                **{f"held-out NDCG@{k}": v for k, v in zip(self.config.ks, best, strict=True)},
            }
        tested = np.array(self.tested)
        spread = tested.std(0, ddof=1) if len(tested) > 1 else np.zeros(len(self.config.ks))
        named = zip(self.config.ks, tested.mean(0).tolist(), spread.tolist(), strict=True)
        return {"epochs": self.epochs} | {n: v for k, m, s in named for n, v in ((f"NDCG@{k}", m), (f"± {k}", s))}

    def state(self) -> Any:
        return {"curves": self.curves, "tested": self.tested}

    def load(self, state: Any) -> None:
        self.curves, self.tested = state["curves"], state["tested"]

    def pictures(self) -> dict[str, Figure]:
        figure = Figure(figsize=(6, 3), layout="constrained")
        axes = figure.subplots()
        mean = np.mean(self.curves, 0)
        for column, k in enumerate(self.config.ks):
            axes.plot(np.arange(1, len(mean) + 1), mean[:, column], label=f"NDCG@{k}")
        axes.axvline(self.epochs, color="grey", linewidth=0.8)
        axes.set_xlabel("epochs")
        axes.legend()
        return {"NDCG on held-out queries; the line is the number of epochs that was chosen.": figure}


def learn(
    config: Config, loss: Loss, train: Queries, test: Queries, epochs: int, seed: int
) -> tuple[nn.Module, np.ndarray]:
    """A trained model, and its (epochs, ks) NDCG after every epoch."""
    torch.manual_seed(seed)
    columns = train.features.shape[-1]
    model = nn.Sequential(nn.Linear(columns, config.hidden), nn.ReLU(), nn.Linear(config.hidden, 1), nn.Flatten(1))
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate)
    curve = []
    for _ in range(epochs):
        for batch in torch.randperm(len(train)).split(config.batch_size):
            queries = train[batch]
            optimizer.zero_grad()
            loss(model(queries.features), queries).backward()
            optimizer.step()
        with torch.no_grad():
            curve.append(measure(model(test.features), test, config.ks))
    return model, np.array(curve)


def measure(scores: Tensor, queries: Queries, ks: tuple[int, ...]) -> list[float]:
    """The mean NDCG@k of the queries that have more than one document, and a relevant one."""
    found = []
    for row, grades, length in zip(scores, queries.grades, queries.lengths.tolist(), strict=True):
        gains = 2.0 ** grades[:length].numpy() - 1
        if length > 1 and gains.any():
            found.append([ndcg_score(gains[None], row[None, :length].numpy(), k=k) for k in ks])
    return np.mean(found, 0).tolist()


EXPERIMENT = Experiment(
    name="ranking",
    summary="Rank documents of queries by graded relevance, through NDCG.",
    chapter=8,
    config=Config,
    start=Ranking,
    presets={
        "quick": {"data": "diabetes", "epochs": 10, "tuning": 2, "repeats": 2},
        "standard": {},
        "full": {},
    },
    compared={preset: {"loss": tuple(LOSSES)} for preset in ("quick", "standard", "full")},
)
