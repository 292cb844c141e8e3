"""Logic gate networks as scikit-learn estimators: numbers in, classes or numbers out."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from softly.logic._progress import progress
from softly.logic.circuit import Circuit
from softly.logic.discretization import discretize
from softly.logic.encodings import ColumnEncoding, Encoding, OneHot, Thermometer
from softly.logic.layers import Logit
from softly.logic.network import LogicNetwork
from softly.logic.parametrizations import Parametrization
from softly.logic.tables import Columns
from softly.logic.training import evaluate, train_epoch
from softly.tnorms import TNorm

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "softly.logic.LogicClassifier and LogicRegressor need scikit-learn: pip install scikit-learn", name=error.name
    ) from None

__all__ = ["LogicClassifier", "LogicRegressor"]

Array = np.ndarray

# As many steps as gates take to settle, however small a table is, and how often a large one is seen at least.
_STEPS, _EPOCHS = 1500, 20


class _LogicEstimator(BaseEstimator):
    def __init__(
        self,
        widths: Sequence[int] = (1000, 1000, 1000, 1000),
        *,
        encoding: Encoding | None = None,
        bits: int = 8,
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
        validation_fraction: float = 0.0,
        patience: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.widths = widths
        self.encoding = encoding
        self.bits = bits
        self.tau = tau
        self.wiring = wiring
        self.parametrization = parametrization
        self.init = init
        self.grad_factor = grad_factor
        self.tnorm = tnorm
        self.gates = gates
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.epochs = epochs
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _validated(self, X: Any, *, reset: bool = True, **options: Any) -> Any:
        if reset:
            self._columns = Columns.of(X)
        if self._columns is not None:
            X = self._columns.numbers(X, f"softly.logic.{type(self).__name__}")
        return validate_data(self, X, reset=reset, ensure_all_finite="allow-nan", dtype=np.float64, **options)

    def _encoding(self) -> Encoding:
        """As given, or a ladder for numbers and a bit for every text."""
        if self.encoding is not None:
            return copy.deepcopy(self.encoding)
        if self._columns is None:
            return Thermometer(self.bits)
        columns: dict[bool, list[int]] = {False: [], True: []}
        for column, texts in enumerate(self._columns.texts):
            columns[bool(texts)].append(column)
        return ColumnEncoding([(columns[False], Thermometer(self.bits)), (columns[True], OneHot())])

    def _circuit(self, model: nn.Module) -> Circuit:
        """With everything that is known of its columns, classes and numbers."""
        columns = self._columns or Columns(0, tuple(getattr(self, "feature_names_in_", ())))
        return discretize(
            model,
            columns=columns.names,
            texts=columns.texts,
            classes=tuple(map(str, getattr(self, "classes_", ()))),
            task="classes" if isinstance(self, ClassifierMixin) else "numbers",
            scale=getattr(self, "_scale", 1.0),
            shift=getattr(self, "_shift", 0.0),
        )

    def _network(self, bits: int, k: int, *, tau: float, beta: float, seed: int) -> LogicNetwork:
        *hidden, last = self.widths
        return LogicNetwork(
            bits,
            [*hidden, -(-last // k) * k],
            k,
            tau=tau,
            beta=beta,
            seed=seed,
            wiring=self.wiring,
            parametrization=self.parametrization,
            init=self.init,
            grad_factor=self.grad_factor,
            tnorm=self.tnorm,
            gates=self.gates,
        )

    def _size(self, k: int) -> int:
        """Number of gates that are summed to a score."""
        if not len(self.widths) or min(self.widths) < 1:
            raise ValueError(f"softly.logic.{type(self).__name__}: widths must be positive, got {self.widths}.")
        return -(-self.widths[-1] // k)

    def _learn(
        self,
        x: Tensor,
        y: Tensor,
        make: Callable[[int, int], nn.Module],
        loss: Callable[[Tensor, Tensor], Tensor],
        score: Callable[[Tensor, Tensor], float],
    ) -> tuple[LogicNetwork, Circuit]:
        """Train what ``make(bits, seed)`` gives, a network or a sequence that begins with one."""
        name = f"softly.logic.{type(self).__name__}"
        if (self.epochs is not None and self.epochs < 1) or self.batch_size < 1:
            raise ValueError(f"{name}: epochs and batch_size must be at least 1.")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"{name}: validation_fraction must be in [0, 1), got {self.validation_fraction}.")
        random = check_random_state(self.random_state)
        encoding = self._encoding()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(random.randint(2**31)))
            order = torch.randperm(len(x))
            validation, train = order.tensor_split([round(self.validation_fraction * len(x))])
            encoding.fit(x[train])
            _at_least_two(encoding)
            bits = encoding(x)
            model = make(encoding.num_bits, int(random.randint(2**31)))
            judges = validation if len(validation) else train
            self._run(model, (bits[train], y[train]), (bits[judges], y[judges]), loss, score)
        network = model if isinstance(model, LogicNetwork) else model[0]  # type: ignore[index]
        network.encoding = encoding
        return network, self._circuit(model.eval())

    def _run(
        self,
        model: nn.Module,
        train: tuple[Tensor, Tensor],
        validation: tuple[Tensor, Tensor],
        loss: Callable[[Tensor, Tensor], Tensor],
        score: Callable[[Tensor, Tensor], float],
    ) -> None:
        steps = -(-len(train[0]) // self.batch_size)
        epochs = max(_EPOCHS, -(-_STEPS // steps)) if self.epochs is None else self.epochs
        # Few steps have to be long ones: from where they start, weights have about five to go before a gate is another.
        rate = min(max(0.05, 20 / (epochs * steps)), 0.5) if self.learning_rate is None else self.learning_rate
        optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=self.weight_decay, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps)
        best, best_state = (-math.inf, -math.inf), copy.deepcopy(model.state_dict())
        self.loss_curve_, self.validation_scores_, self.best_epoch_ = [], [], 0
        with progress(type(self).__name__, epochs, shown=self.verbose) as show:
            for epoch in range(1, epochs + 1):
                self.loss_curve_.append(
                    train_epoch(model, optimizer, loss, *train, batch_size=self.batch_size, schedule=schedule)
                )
                hard = evaluate(model, validation[0])  # the network that will be used
                self.validation_scores_.append(score(hard, validation[1]))
                show(epoch, f"loss {self.loss_curve_[-1]:.4f}, discretized {self.validation_scores_[-1]:.4f}")
                quality = (self.validation_scores_[-1], -loss(hard, validation[1]).item())
                if quality > best:
                    best, best_state, self.best_epoch_ = quality, copy.deepcopy(model.state_dict()), epoch
                if self.patience is not None and (epoch - self.best_epoch_) * steps >= self.patience:
                    break
        self.n_iter_ = len(self.loss_curve_)
        model.load_state_dict(best_state)

    def _warn(self, score: float, without: float, what: str) -> None:
        """Say so where the circuit has learned nothing: its score on the training rows, and that of not looking."""
        gates = self.circuit_.netlist.num_gates
        if score >= 1 or (gates and score > without):
            return
        failed = f"no better on its training rows than {what}" if score <= without else "without any gates"
        warnings.warn(
            f"softly.logic.{type(self).__name__}: the circuit is {failed} ({gates} gates after {self.n_iter_} epochs, "
            f"the one of epoch {self.best_epoch_} kept, score {score:.3f}). Train for longer (epochs, patience) or with a "
            "larger learning_rate; None does for both. Or columns tell nothing.",
            ConvergenceWarning,
            stacklevel=3,
        )

    def _scores(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return self.circuit_(torch.tensor(self._validated(X, reset=False)))


def _at_least_two(encoding: Encoding) -> None:
    """Data without anything to tell apart still needs two bits for a gate: these are always 1."""
    for _ in range(encoding.num_bits, 2):
        encoding.columns = torch.cat((encoding.columns, encoding.columns.new_zeros(1)))
        encoding.thresholds = torch.cat((encoding.thresholds, encoding.thresholds.new_full((1,), -math.inf)))
        encoding.kinds = torch.cat((encoding.kinds, encoding.kinds.new_zeros(1)))


class LogicClassifier(ClassifierMixin, _LogicEstimator):
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
        epochs: How often training goes through the rows; None as often as makes 1,500 steps, and at least 20 times.
        validation_fraction: Share of the rows that is held out to choose the best epoch; with 0 all rows choose it.
        patience: Steps without a better epoch after which training ends; None trains all epochs.
        random_state: As in scikit-learn; settles wires, weights and order.
        verbose: Whether progress is shown.

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

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows (n, columns) and their classes (n,)."""
        X, y = self._validated(X, y=y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        k = len(self.classes_)
        if k < 2:
            raise ValueError(f"softly.logic.LogicClassifier: y must have at least two classes, got one class: {y[0]}.")
        tau = math.sqrt(self._size(k)) if self.tau is None else self.tau
        self.network_, self.circuit_ = self._learn(
            torch.tensor(X),
            torch.tensor(labels),
            lambda bits, seed: self._network(bits, k, tau=tau, beta=0.0, seed=seed),
            nn.functional.cross_entropy,
            lambda scores, wanted: (scores.argmax(-1) == wanted).double().mean().item(),
        )
        found = self.classes_[self.circuit_.predict(X)]
        self._warn(
            float((found == y).mean()), float(np.bincount(labels).max() / len(labels)), "the most frequent class"
        )
        return self

    def predict(self, X: Any) -> Array:
        """The class of every row; of ties the first one."""
        scores = self._scores(X)
        return self.classes_[scores.argmax(-1).numpy()]

    def predict_proba(self, X: Any) -> Array:
        """The softmax of the scores, (n, classes)."""
        return self._scores(X).double().softmax(-1).numpy()


class LogicRegressor(RegressorMixin, _LogicEstimator):
    """A logic gate network that predicts a number; a scikit-learn estimator.

    The gates of the last layer are counted. With ``link="identity"`` the count is scaled to the range of the training
    targets and a tenth beyond; with ``link="logit"`` it stands for a real number without bounds.

    Args:
        link: "identity" or "logit".
        others: As in `LogicClassifier`; ``tau`` is settled by the targets' range.

    Example:
        >>> import numpy as np
        >>> X = np.random.default_rng(0).uniform(size=(300, 2))
        >>> model = softly.logic.LogicRegressor((200, 200), epochs=60, random_state=0)
        >>> model.fit(X[:200], X[:200, 0] + X[:200, 1]).score(X[200:], X[200:, 0] + X[200:, 1]) > 0.8
        True
    """

    def __init__(
        self,
        widths: Sequence[int] = (1000, 1000, 1000, 1000),
        *,
        link: str = "identity",
        encoding: Encoding | None = None,
        bits: int = 8,
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
        validation_fraction: float = 0.0,
        patience: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            widths,
            encoding=encoding,
            bits=bits,
            wiring=wiring,
            parametrization=parametrization,
            init=init,
            grad_factor=grad_factor,
            tnorm=tnorm,
            gates=gates,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            batch_size=batch_size,
            epochs=epochs,
            validation_fraction=validation_fraction,
            patience=patience,
            random_state=random_state,
            verbose=verbose,
        )
        self.link = link

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from rows (n, columns) and their numbers (n,)."""
        X, y = self._validated(X, y=y, y_numeric=True)
        if self.link not in ("identity", "logit"):
            raise ValueError(f"softly.logic.LogicRegressor: link must be identity or logit, got {self.link!r}.")
        y = y.astype(np.float64)
        size, scale = self._size(1), float(y.std()) or 1.0
        if self.link == "identity":
            low, high = y.min() - 0.1 * scale, y.max() + 0.1 * scale
            self._shift, self._scale = 0.0, 1.0
            tau, beta, unit = size / (high - low), low, scale
        else:
            self._shift, self._scale = float(y.mean()), scale
            tau, beta, unit = float(size), 0.0, 1.0

        def make(bits: int, seed: int) -> nn.Module:
            network = self._network(bits, 1, tau=tau, beta=beta, seed=seed)
            return network if self.link == "identity" else nn.Sequential(network, Logit(size))

        def error(scores: Tensor, wanted: Tensor) -> Tensor:
            return ((scores.squeeze(-1) - wanted) / unit).square().mean()

        self.network_, self.circuit_ = self._learn(
            torch.tensor(X),
            torch.tensor((y - self._shift) / self._scale),
            make,
            error,
            lambda scores, wanted: -error(scores, wanted).item(),
        )
        missed = np.square(self.circuit_.predict(X) - y).mean()
        self._warn(float(1 - missed / (y.var() or 1.0)), 0.0, "the mean")
        return self

    def predict(self, X: Any) -> Array:
        """The number of every row."""
        check_is_fitted(self)
        return self.circuit_.predict(self._validated(X, reset=False))
