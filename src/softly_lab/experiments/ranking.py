"""Learning to rank by graded relevance: NDCG through differentiable sorters, against losses that see no order.

`python -m softly_lab.experiments.ranking` runs it on scikit-learn's diabetes data, and on the queries of LightGBM's
example where the folder SOFTLY_DATA has them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.metrics import ndcg_score
from torch import Tensor, nn

import softly
from softly_lab.data.queries import Queries, diabetes, lightgbm
from softly_lab.experiments import print_tables

Loss = Callable[[Tensor, Queries], Tensor]


@dataclass(frozen=True)
class Config:
    """A comparison on one data set.

    Attributes:
        data: A name of `DATA`.
        ks: The k of the NDCG@k that are measured; the first one chooses the number of epochs.
        hidden: Width of the one hidden layer.
        epochs: The most that are tried.
        batch_size: Queries a step.
        validation: Share of the training queries on which the number of epochs is chosen.
        tuning_seeds: Seeds of the runs that choose.
        seeds: Seeds of the runs that are reported.
    """

    data: str
    ks: tuple[int, ...] = (10, 5, 1)
    hidden: int = 32
    epochs: int = 60
    batch_size: int = 16
    learning_rate: float = 3e-3
    validation: float = 0.25
    tuning_seeds: tuple[int, ...] = (100, 101, 102, 103)
    seeds: tuple[int, ...] = tuple(range(10))


CONFIGS = {name: Config(name) for name in ("diabetes", "lightgbm")}
DATA: dict[str, Callable[[], tuple[Queries, Queries]]] = {"diabetes": diabetes, "lightgbm": lightgbm}


def squared_error(scores: Tensor, queries: Queries) -> Tensor:
    """Between score and grade: every document on its own."""
    there = torch.arange(scores.shape[1]) < queries.lengths[:, None]
    return nn.functional.mse_loss(scores[there], queries.grades[there].float())


def ndcg_through(sorter: softly.sorting.Sorter) -> Loss:
    return lambda scores, queries: softly.sorting.ndcg_loss(
        scores, queries.grades, sorter=sorter, lengths=queries.lengths
    )


LOSSES: dict[str, Loss] = {
    "squared error": squared_error,
    "NDCG, odd-even network": ndcg_through(softly.SortingNetwork("odd_even", steepness="auto")),
    "NDCG, bitonic network": ndcg_through(softly.SortingNetwork("bitonic", steepness="auto")),
    "NDCG, NeuralSort": ndcg_through(softly.NeuralSort(steepness="auto")),
    "NDCG, SoftSort": ndcg_through(softly.SoftSort(steepness="auto")),
}


@dataclass(frozen=True)
class Result:
    """For every loss the number of epochs that validation chose, and (seeds, ks) NDCG on the test queries."""

    config: Config
    epochs: dict[str, int]
    ndcg: dict[str, np.ndarray]
    seconds: float

    def table(self) -> str:
        """Mean ± standard deviation over seeds."""
        lines = [
            "| loss | epochs | " + " | ".join(f"NDCG@{k}" for k in self.config.ks) + " |",
            "|---" * (2 + len(self.config.ks)) + "|",
        ]
        for name, ndcg in self.ndcg.items():
            std = ndcg.std(0, ddof=1) if len(ndcg) > 1 else np.zeros(ndcg.shape[1])
            cells = [f"{m:.3f} ± {s:.3f}" for m, s in zip(ndcg.mean(0), std, strict=True)]
            lines.append(f"| {name} | {self.epochs[name]} | {' | '.join(cells)} |")
        return "\n".join(lines)


def run(config: Config) -> Result:
    """Choose the number of epochs on a part of the training queries, then train on all of them and test."""
    started = time.perf_counter()
    train, test = DATA[config.data]()
    epochs, ndcg = {}, {}
    for name, loss in LOSSES.items():
        curves = []
        for seed in config.tuning_seeds:
            order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
            held, kept = order.tensor_split([round(config.validation * len(train))])
            curves.append(learn(config, loss, train[kept], train[held], config.epochs, seed)[1])
        epochs[name] = int(np.mean(curves, 0)[:, 0].argmax()) + 1
        ndcg[name] = np.stack([learn(config, loss, train, test, epochs[name], seed)[1][-1] for seed in config.seeds])
    return Result(config, epochs, ndcg, time.perf_counter() - started)


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


if __name__ == "__main__":
    print_tables(run, CONFIGS.values(), [CONFIGS["lightgbm"]])
