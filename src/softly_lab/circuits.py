"""From a table to a circuit: what `softly logic train` does."""

import inspect
import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from softly.logic import Circuit, ColumnEncoding, Encoding, LogicClassifier, LogicRegressor, OneHot, Thermometer
from softly_lab.data.files import Table
from softly_lab.progress import Progress


@dataclass(frozen=True)
class Config:
    """How a network is built and trained. None is the default of `LogicClassifier`, or of `LogicRegressor`.

    Attributes:
        layers, width: Layers of gates, and gates in each; the last layer is made a multiple of the number of classes.
        bits: The most bits that a column of numbers becomes.
        epochs, batch_size, learning_rate: As there.
        held_out: Share of the rows that is kept from training, and measured on.
        seed: Settles the split, the wires and the weights.
    """

    layers: int | None = None
    width: int | None = None
    bits: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    held_out: float = 0.2
    seed: int = 0


@dataclass(frozen=True)
class Result:
    """A circuit, and what it makes of rows that it was trained on and of rows that it was not.

    Attributes:
        circuit: Discretized; what is measured here is measured on it.
        trained, held_out: Accuracy, or R² where numbers are predicted.
        error: Mean absolute error of held-out rows where numbers are predicted.
        always: Accuracy of always saying the most frequent class.
        num_trained, num_held_out: Rows.
        epoch: The epoch after which the discretized network was best on the rows it was trained on.
    """

    circuit: Circuit
    trained: float
    held_out: float
    error: float
    always: float
    num_trained: int
    num_held_out: int
    epoch: int


def split(table: Table, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and rows to hold out, of every class the same share."""
    generator = np.random.default_rng(seed)
    groups = table.target if table.classes else np.zeros(len(table.rows))
    train, held = [], []
    for group in np.unique(groups):
        rows = generator.permutation(np.flatnonzero(groups == group))
        count = min(round(share * len(rows)), len(rows) - 1)
        held.append(rows[:count])
        train.append(rows[count:])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(held))


def train(table: Table, config: Config, *, missing: Collection[str] = (), progress: Progress | None = None) -> Result:
    """Train a network, and keep the discretized one that is best on the rows that it was trained on.

    Held-out rows take no part in that choice, so that what is measured on them is what to expect of new rows.

    Args:
        table: Rows and what to learn from them.
        config: How.
        missing: What stood for a missing value in the file, which the circuit remembers.
        progress: Shows how far training is.
    """
    _check(config)
    trained, held = split(table, config.held_out, config.seed)
    if not len(held):
        raise ValueError(f"{len(table.rows)} rows are too few to hold out {config.held_out:g} of them.")
    model = _estimator(table, config, progress).fit(table.rows[trained], table.target[trained])
    circuit = model.circuit_.described(
        columns=table.columns, texts=table.texts, classes=table.classes, missing=tuple(missing)
    )
    return _measured(circuit, table, trained, held, model.best_epoch_)


def _estimator(table: Table, config: Config, progress: Progress | None) -> LogicClassifier | LogicRegressor:
    """Whatever the config doesn't say is as the estimator has it."""
    estimator = LogicClassifier if table.classes else LogicRegressor
    usual = {name: parameter.default for name, parameter in inspect.signature(estimator).parameters.items()}
    widths = [config.width or max(usual["widths"])] * (config.layers or len(usual["widths"]))
    given = {name: getattr(config, name) for name in ("batch_size", "epochs", "learning_rate")}
    return estimator(
        widths,
        encoding=_encoding(table, config.bits or usual["bits"]),
        random_state=config.seed,
        verbose=progress or False,
        **{name: value for name, value in given.items() if value is not None},
    )


def _encoding(table: Table, bits: int) -> Encoding:
    """A ladder of thresholds for numbers, and a bit for every text."""
    numbers = [column for column, texts in enumerate(table.texts) if not texts]
    texts = [column for column, texts in enumerate(table.texts) if texts]
    return ColumnEncoding([(numbers, Thermometer(bits)), (texts, OneHot())])


def _check(config: Config) -> None:
    for name in ("layers", "width", "bits", "epochs", "batch_size"):
        if (value := getattr(config, name)) is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}.")
    if not 0 < config.held_out < 1:
        raise ValueError(f"the share of held-out rows must be between 0 and 1, got {config.held_out:g}.")
    if not 0 <= config.seed < 2**32:
        raise ValueError(f"seed must be in [0, 2^32), got {config.seed}.")
    if config.learning_rate is not None and not (config.learning_rate > 0 and math.isfinite(config.learning_rate)):
        raise ValueError(f"learning_rate must be positive, got {config.learning_rate:g}.")


def _measured(circuit: Circuit, table: Table, trained: np.ndarray, held: np.ndarray, epoch: int) -> Result:
    wanted = table.target
    if table.classes:
        right = circuit.predict(table.rows) == wanted
        scores = [right[part].mean() for part in (trained, held)]
        always, error = (wanted[held] == np.bincount(wanted[trained]).argmax()).mean(), 0.0
    else:
        missed = circuit.predict(table.rows) - wanted
        scores = [1 - (missed[part] ** 2).mean() / (wanted[part].var() or 1.0) for part in (trained, held)]
        always, error = 0.0, np.abs(missed[held]).mean()
    return Result(
        circuit, float(scores[0]), float(scores[1]), float(error), float(always), len(trained), len(held), epoch
    )
