"""What the estimators reach at their defaults, beside scikit-learn: python -m benchmarks.logic_accuracy [NAME ...].

Splits and seeds were fixed before any default was chosen. Settings are chosen with ``--inside``, on the rows to train
on alone: these are split once more, by other seeds, and the rows to test on are not looked at.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from softly.logic import LogicClassifier, LogicRegressor
from softly_lab.data import folder, images

SEEDS = range(5)
TESTED = 0.3
PEERS = ("linear", "forest", "boosting")
Split = tuple[Any, Any, Any, Any]  # rows to train on and to test on, and what they are


def _bundled(name: str) -> Callable[[int], Split]:
    def split(seed: int) -> Split:
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        return _parted(x, y, seed)

    return split


def _parted(x: Any, y: Any, seed: int) -> Split:
    kinds = y if y.dtype.kind == "i" else None
    return tuple(train_test_split(x, y, test_size=TESTED, random_state=seed, stratify=kinds))


def _mnist(seed: int) -> Split:
    """5,000 of the images to learn from, and all 10,000 to test on."""
    (x, y), (test_x, test_y) = images.mnist()
    rows = np.random.default_rng(seed).permutation(len(x))[:5000]
    flat = x.flatten(1).numpy().astype(np.float64)
    return flat[rows], test_x.flatten(1).numpy().astype(np.float64), y.numpy()[rows], test_y.numpy()


def _adult(seed: int) -> Split:
    """All rows, as they were split; the seed is the estimators' alone."""
    path = folder("tabular") / "adult"
    names = [line.split(":")[0] for line in (path / "adult.names").read_text().splitlines() if ":" in line][-14:]
    parts = []
    for part in ("adult.data", "adult.test"):
        rows = [line.rstrip(".").split(", ") for line in (path / part).read_text().splitlines() if ", " in line]
        columns = list(zip(*rows, strict=True))
        kinds = [float if all(v.lstrip("-").isdigit() for v in column) else "U32" for column in columns[:-1]]
        table = np.array([tuple(row[:-1]) for row in rows], dtype=list(zip(names, kinds, strict=True)))
        parts.append((table, np.array(columns[-1])))
    (x, y), (test_x, test_y) = parts
    return x, test_x, y, test_y


SPLITS: dict[str, Callable[[int], Split]] = {
    "wine": _bundled("wine"),
    "iris": _bundled("iris"),
    "breast_cancer": _bundled("breast_cancer"),
    "digits": _bundled("digits"),
    "mnist_5000": _mnist,
    "adult": _adult,
    "diabetes": _bundled("diabetes"),
}


def _inside(split: Split, seed: int) -> Split:
    """The rows to train on, split once more."""
    x, _, y, _ = split
    return _parted(x, y, 1000 + seed)


def _plain(x: Any) -> Any:
    """A structured array as a matrix of objects, which scikit-learn takes."""
    return np.array(x.tolist(), dtype=object) if x.dtype.names else x


def _linear(x: Any, model: Any) -> Any:
    if not x.dtype.names:
        return make_pipeline(StandardScaler(), model)
    texts = [i for i, name in enumerate(x.dtype.names) if x.dtype[name].kind == "U"]
    kinds = OneHotEncoder(handle_unknown="ignore")
    return make_pipeline(ColumnTransformer([("texts", kinds, texts)], remainder=StandardScaler()), model)


def _peers(x: Any, numbers: bool, seed: int) -> Iterator[tuple[str, Any]]:
    yield "linear", _linear(x, RidgeCV(np.logspace(-3, 3, 13)) if numbers else LogisticRegression(max_iter=5000))
    forest = (RandomForestRegressor if numbers else RandomForestClassifier)(random_state=seed)
    boosting = (HistGradientBoostingRegressor if numbers else HistGradientBoostingClassifier)(random_state=seed)
    for name, model in (("forest", forest), ("boosting", boosting)):
        if x.dtype.names:
            texts = [i for i, column in enumerate(x.dtype.names) if x.dtype[column].kind == "U"]
            kinds = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
            model = make_pipeline(ColumnTransformer([("texts", kinds, texts)], remainder="passthrough"), model)
        yield name, model


def run(name: str, seed: int, options: dict[str, Any], *, inside: bool, peers: Collection[str]) -> dict[str, float]:
    """Scores on the rows to test on, accuracy or R²; gates that are left, and the processor time that the fit took."""
    split = SPLITS[name](seed)
    if inside:
        split = _inside(split, seed)
    x, test_x, y, test_y = split
    numbers = y.dtype.kind == "f"
    model = (LogicRegressor if numbers else LogicClassifier)(random_state=seed, **options)
    start = time.process_time()
    model.fit(x, y)
    found = {"seconds": time.process_time() - start, "softly": model.score(test_x, test_y)}
    found |= {"trained": model.score(x, y), "gates": model.circuit_.netlist.num_gates}
    for peer, other in _peers(x, numbers, seed):
        if peer in peers:
            found[peer] = other.fit(_plain(x), y).score(_plain(test_x), test_y)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.logic_accuracy", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SPLITS))
    parser.add_argument("--inside", action="store_true", help="split the rows to train on, and leave the others alone")
    parser.add_argument("--options", type=json.loads, default={}, help="of the estimators, as JSON")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS, help="scikit-learn's models to run, too")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    warnings.simplefilter("always")
    print("| data | softly | trained | linear | difference | forest | boosting | gates | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in given.names or SPLITS:
        runs = [run(name, seed, given.options, inside=given.inside, peers=given.peers) for seed in SEEDS[: given.seeds]]
        table = {key: np.array([found[key] for found in runs]) for key in runs[0]}
        shown = {key: f"{values.mean():.3f}" for key, values in table.items()}
        if "linear" in table:
            difference = table["softly"] - table["linear"]
            error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else np.nan
            shown["difference"] = f"{difference.mean():+.4f} ± {error:.4f}"
        shown |= {"gates": f"{table['gates'].mean():.0f}", "seconds": f"{table['seconds'].max():.0f}"}
        order = ("softly", "trained", "linear", "difference", "forest", "boosting", "gates", "seconds")
        print(f"| {name} | " + " | ".join(shown.get(key, "") for key in order) + " |", flush=True)


if __name__ == "__main__":
    main()
