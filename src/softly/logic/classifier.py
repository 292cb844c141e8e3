"""Logic gate networks as scikit-learn estimators: numbers in, classes or numbers out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from softly.logic.encodings import Encoding
from softly.logic.estimator import Array, LogicEstimator, Progress, mean
from softly.logic.layers import Logit
from softly.logic.parametrizations import Parametrization
from softly.tnorms import TNorm

# isort: split
# Not before the estimator, which says what to install.
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

__all__ = ["LogicClassifier", "LogicRegressor"]


class LogicClassifier(ClassifierMixin, LogicEstimator):
    """A logic gate network that classifies the rows of a table; a scikit-learn estimator.

    Columns become bits, bits go through layers of gates, and the class whose gates count most ones is predicted. What
    is validated, kept and predicted with is always the discretized network. Missing values (NaN) are allowed, and texts
    in columns of a frame or a structured array. ``circuit_`` knows all of it: names, texts, thresholds and classes.

    Args:
        widths: Gates of each layer; the last one is rounded up to a multiple of the number of classes.
        encoding: An `Encoding`, which is copied and fitted; None is ``Thermometer(bits)``.
        bits: Most bits of a column, where no encoding is given.
        tau: Temperature of the scores; None is the root of the number of gates a class.
        wiring, parametrization, init, grad_factor, tnorm, gates: As in `LogicLayer`.
        learning_rate: Of AdamW; it falls to 0 along a cosine. None is 0.05, and 20 / steps where there are fewer than
            400 of them, up to 0.5.
        weight_decay: Of AdamW: how fast weights that gain nothing shrink. It keeps the choice of gates open for longer.
        batch_size: Examples a step.
        epochs: How often training goes through the rows; None as often as makes 1,500 steps, and at least 10 times.
        hard_fraction: Share of the epochs, the last ones, that trains on hard gates, straight-through: then nothing is
            lost when gates become hard. For the parametrization "softmax16"; others are kept throughout.
        validation_fraction: Share of the rows that is held out to choose the best epoch; with 0 all rows choose it.
        patience: Steps without a better epoch after which training ends; None trains all epochs.
        class_weight: As in scikit-learn: how much rows of a class count, or "balanced".
        warm_start: Whether another `fit` goes on with the network of the last one: its wires, comparisons, texts,
            classes, and the range of a regression.
        threads: To train on; None is one for models of up to two million gates times rows of a step, since threads that
            wait for each other lose more than they gain there, and torch's number for larger ones.
        random_state: As in scikit-learn; settles wires, weights and order.
        verbose: Whether every epoch writes a line to the standard error; or a function that is told instead: the epoch
            that is done, the number of epochs, and the loss and score that were reached, by name.

    Attributes:
        network_: The `LogicNetwork`, with its encoding.
        circuit_: Its `Circuit`, which predicts, and can be saved and exported.
        classes_: The classes.
        n_iter_, loss_curve_, validation_scores_: Epochs, and what they reached.
        best_epoch_: The one that was kept.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).normal(size=(300, 4))
        >>> y = np.where(X[:, 0] + X[:, 1] > 0, "yes", "no")
        >>> model = softly.logic.LogicClassifier((64, 64, 64), random_state=0)
        >>> model.fit(X[:200], y[:200]).score(X[200:], y[200:]) > 0.75
        True
    """

    classes_: Array

    def __init__(
        self,
        widths: Sequence[int] = (4000, 4000, 4000, 4000),
        *,
        encoding: Encoding | None = None,
        bits: int = 16,
        tau: float | None = None,
        wiring: str = "random",
        parametrization: str | Parametrization = "softmax16",
        init: str = "residual",
        grad_factor: float = 1.0,
        tnorm: str | TNorm = "probabilistic",
        gates: Sequence[str | int] | None = None,
        learning_rate: float | None = None,
        weight_decay: float = 0.02,
        batch_size: int = 100,
        epochs: int | None = None,
        hard_fraction: float = 0.25,
        validation_fraction: float = 0.0,
        patience: int | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        warm_start: bool = False,
        threads: int | None = None,
        random_state: Any = None,
        verbose: bool | Progress = False,
    ) -> None:
        self._keep(locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from rows (n, columns), their classes (n,), and how much each of them counts (n,)."""
        name = "softly.logic.LogicClassifier"
        X, y = self._validated(X, reset=not self._warm, y=y)
        check_classification_targets(y)
        X, y, weight = self._weighted(X, y, sample_weight)
        classes: Array = self.classes_ if self._warm else np.unique(y)
        if len(new := np.setdiff1d(y, classes)):
            raise ValueError(f"{name}: warm_start goes on with the classes of the first fit; got {new[0]} too.")
        if len(classes) < 2:
            raise ValueError(f"{name}: y must have at least two classes, got one class: {y[0]}.")
        self.classes_, k = classes, len(classes)
        labels = np.searchsorted(classes, y)
        weight = weight * compute_sample_weight(self.class_weight, y)
        tau = math.sqrt(self._widths(k)[-1] // k) if self.tau is None else self.tau
        self.network_, self.circuit_ = self._learn(
            torch.tensor(X),
            torch.tensor(labels),
            torch.tensor(weight, dtype=torch.float32),
            lambda bits, seed: self._network(bits, k, tau=tau, beta=0.0, seed=seed),
            lambda scores, wanted, weight: (
                nn.functional.cross_entropy(scores, wanted, reduction="none") * weight
            ).mean(),
            lambda scores, wanted, weight: mean(scores.argmax(-1) == wanted, weight),
        )
        right = np.average(self.circuit_.predict(X) == labels, weights=weight)
        below = right < np.bincount(labels, weight).max() / weight.sum() - 1e-9
        self._warn(float(right), "worse than always the most frequent class" if below else None)
        return self

    def predict(self, X: Any) -> Array:
        """The class of every row; of ties the first one."""
        scores = self._scores(X)
        return self.classes_[scores.argmax(-1).numpy()]

    def predict_proba(self, X: Any) -> Array:
        """The softmax of the scores, (n, classes)."""
        return self._scores(X).double().softmax(-1).numpy()


class LogicRegressor(RegressorMixin, LogicEstimator):
    """A logic gate network that predicts a number; a scikit-learn estimator.

    The gates of the last layer are counted. With ``link="identity"`` the count is scaled to the range of the training
    targets and a tenth beyond; with ``link="logit"`` it stands for a real number without bounds.

    Args:
        link: "identity" or "logit".
        others: As in `LogicClassifier`; ``tau`` is settled by the targets' range. Two layers, since with more of them a
            count follows the noise of a small table.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).uniform(size=(300, 2))
        >>> model = softly.logic.LogicRegressor((200, 200), epochs=60, random_state=0)
        >>> model.fit(X[:200], X[:200, 0] + X[:200, 1]).score(X[200:], X[200:, 0] + X[200:, 1]) > 0.8
        True
    """

    def __init__(
        self,
        widths: Sequence[int] = (4000, 4000),
        *,
        link: str = "identity",
        encoding: Encoding | None = None,
        bits: int = 16,
        wiring: str = "random",
        parametrization: str | Parametrization = "softmax16",
        init: str = "residual",
        grad_factor: float = 1.0,
        tnorm: str | TNorm = "probabilistic",
        gates: Sequence[str | int] | None = None,
        learning_rate: float | None = None,
        weight_decay: float = 0.02,
        batch_size: int = 100,
        epochs: int | None = None,
        hard_fraction: float = 0.25,
        validation_fraction: float = 0.0,
        patience: int | None = None,
        warm_start: bool = False,
        threads: int | None = None,
        random_state: Any = None,
        verbose: bool | Progress = False,
    ) -> None:
        self._keep(locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from rows (n, columns), their numbers (n,), and how much each of them counts (n,)."""
        X, y = self._validated(X, reset=not self._warm, y=y, y_numeric=True)
        if self.link not in ("identity", "logit"):
            raise ValueError(f"softly.logic.LogicRegressor: link must be identity or logit, got {self.link!r}.")
        X, y, weight = self._weighted(X, y.astype(np.float64), sample_weight)
        size = self._widths(1)[-1]
        if not self._warm:
            self._settle(y, weight)
        elif self.link != self._link:
            raise ValueError("softly.logic.LogicRegressor: warm_start goes on with the link of the first fit.")
        tau, beta = (size / self._range[1], self._range[0]) if self.link == "identity" else (float(size), 0.0)

        def error(scores: Tensor, wanted: Tensor, weight: Tensor) -> Tensor:
            return (((scores.squeeze(-1) - wanted) / self._unit).square() * weight).mean()

        self.network_, self.circuit_ = self._learn(
            torch.tensor(X),
            torch.tensor((y - self._shift) / self._scale),
            torch.tensor(weight),
            lambda bits, seed: self._network(bits, 1, tau=tau, beta=beta, seed=seed),
            error,
            lambda scores, wanted, weight: -mean(((scores.squeeze(-1) - wanted) / self._unit).square(), weight),
            after=None if self.link == "identity" else Logit(size),
        )
        missed = np.average(np.square(self.circuit_.predict(X) - y), weights=weight)
        spread = np.average(np.square(y - np.average(y, weights=weight)), weights=weight)
        score = float(1 - missed / (spread or 1.0))
        self._warn(score, "no better than the mean" if score <= 0 else None)
        return self

    def _settle(self, y: Array, weight: Array) -> None:
        """What a count stands for: the range of the targets, or their mean and deviation."""
        mean = float(np.average(y, weights=weight))
        deviation = math.sqrt(np.average(np.square(y - mean), weights=weight)) or 1.0
        self._link = self.link
        if self.link == "identity":
            low, high = y.min() - 0.1 * deviation, y.max() + 0.1 * deviation
            self._range, self._unit, self._shift, self._scale = (low, high - low), deviation, 0.0, 1.0
        else:
            self._range, self._unit, self._shift, self._scale = (mean, deviation), 1.0, mean, deviation

    def predict(self, X: Any) -> Array:
        """The number of every row."""
        check_is_fitted(self)
        return self.circuit_.predict(self._validated(X, reset=False))
