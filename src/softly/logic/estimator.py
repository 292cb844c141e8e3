"""What estimators of logic gate networks have in common: columns to bits, training, and the circuit that is kept."""

from __future__ import annotations

import copy
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from softly.logic import parametrizations
from softly.logic.circuit import Circuit
from softly.logic.discretization import discretize
from softly.logic.encodings import ColumnEncoding, Encoding, OneHot, Thermometer
from softly.logic.network import LogicNetwork
from softly.logic.parametrizations import Parametrization, Softmax
from softly.logic.tables import Columns
from softly.logic.training import evaluate, train_epoch
from softly.tnorms import TNorm

try:
    from sklearn.base import BaseEstimator, is_classifier
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "softly.logic.LogicClassifier and LogicRegressor need scikit-learn: pip install scikit-learn", name=error.name
    ) from None

Array = np.ndarray
# Is told the epoch that is done, the number of epochs, and what was reached, by name.
Progress = Callable[[int, int, Mapping[str, float]], None]

# As many steps as gates take to settle, however small a table is, and how often a large one is seen at least.
_STEPS, _EPOCHS = 1500, 10
# Gates times rows of a step up to which a second thread gains little, and loses much where others are at work.
_SMALL = 2_000_000


class LogicEstimator(BaseEstimator):
    widths: Sequence[int]
    encoding: Encoding | None
    bits: int
    wiring: str
    parametrization: str | Parametrization
    init: str
    grad_factor: float
    tnorm: str | TNorm
    gates: Sequence[str | int] | None
    learning_rate: float | None
    weight_decay: float
    batch_size: int
    epochs: int | None
    hard_fraction: float
    validation_fraction: float
    patience: int | None
    warm_start: bool
    threads: int | None
    random_state: Any
    verbose: bool | Progress

    def _keep(self, given: Mapping[str, Any]) -> None:
        """Arguments as attributes, unchanged, as scikit-learn wants them."""
        for name, value in given.items():
            if name != "self":
                setattr(self, name, value)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _validated(self, X: Any, *, reset: bool = True, **options: Any) -> Any:
        if reset:
            self._columns = Columns.of(X)
        name = f"softly.logic.{type(self).__name__}"
        if self._columns is not None:
            X = self._columns.numbers(X, name)
        elif isinstance(X, np.ndarray) and X.dtype.kind in "mM":
            raise TypeError(f"{name}: X must be numbers, got {X.dtype}.")
        return validate_data(self, X, reset=reset, ensure_all_finite="allow-nan", dtype=np.float64, **options)

    @property
    def _warm(self) -> bool:
        return self.warm_start and hasattr(self, "network_")

    def _weighted(self, X: Array, y: Array, sample_weight: Any) -> tuple[Array, Array, Array]:
        """Rows that count, and how much; a weight of 0 is as if the row was not there."""
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        kept = weight > 0
        if not kept.any():
            raise ValueError(f"softly.logic.{type(self).__name__}: sample_weight must not be zero for all rows.")
        return X[kept], y[kept], weight[kept]

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
        columns = self._columns or Columns(0, names=tuple(getattr(self, "feature_names_in_", ())))
        return discretize(
            model,
            columns=columns.names,
            texts=columns.texts,
            classes=tuple(map(str, getattr(self, "classes_", ()))),
            task="classes" if is_classifier(self) else "numbers",
            scale=getattr(self, "_scale", 1.0),
            shift=getattr(self, "_shift", 0.0),
        )

    def _widths(self, k: int) -> list[int]:
        """Gates of each layer; those of the last one are summed to k scores."""
        if not len(self.widths) or min(self.widths) < 1:
            raise ValueError(f"softly.logic.{type(self).__name__}: widths must be positive, got {self.widths}.")
        *hidden, last = self.widths
        return [*hidden, -(-last // k) * k]

    def _network(self, bits: int, k: int, *, tau: float, beta: float, seed: int) -> LogicNetwork:
        return LogicNetwork(
            bits,
            self._widths(k),
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

    def _learn(
        self,
        x: Tensor,
        y: Tensor,
        weight: Tensor,
        make: Callable[[int, int], LogicNetwork],
        loss: Callable[[Tensor, Tensor, Tensor], Tensor],
        score: Callable[[Tensor, Tensor, Tensor], float],
        after: nn.Module | None = None,
    ) -> tuple[LogicNetwork, Circuit]:
        """Train what ``make(bits, seed)`` gives, or go on with what there is; ``after`` changes its scores."""
        self._check()
        random = check_random_state(self.random_state)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(random.randint(2**31)))
            order = torch.randperm(len(x))
            validation, train = order.tensor_split([round(self.validation_fraction * len(x))])
            if self._warm:
                network = copy.deepcopy(self.network_)
                encoding, network.encoding = network.encoding, None
                assert encoding is not None
            else:
                encoding = self._encoding().fit(x[train])
                _at_least_two(encoding)
                network = make(encoding.num_bits, int(random.randint(2**31)))
            data = encoding(x), y, weight / weight.mean()
            model: nn.Module = network if after is None else nn.Sequential(network, after)
            judges = validation if len(validation) else train
            gates = sum(len(layer.weight) for layer in network.layers)
            with _on_threads(self.threads or (1 if gates * self.batch_size <= _SMALL else None)):
                self._run(model, network, [part[train] for part in data], [part[judges] for part in data], loss, score)
        network.encoding = encoding
        return network, self._circuit(model.eval())

    def _check(self) -> None:
        name = f"softly.logic.{type(self).__name__}"
        if (self.epochs is not None and self.epochs < 1) or self.batch_size < 1:
            raise ValueError(f"{name}: epochs and batch_size must be at least 1.")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"{name}: threads must be at least 1, got {self.threads}.")
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"{name}: validation_fraction must be in [0, 1), got {self.validation_fraction}.")
        if not 0 <= self.hard_fraction <= 1:
            raise ValueError(f"{name}: hard_fraction must be in [0, 1], got {self.hard_fraction}.")
        if self._warm and [layer.out_dim for layer in self.network_.layers] != self._widths(self.network_.head.k):
            raise ValueError(f"{name}: warm_start goes on with the network of the first fit; widths must not change.")

    def _run(
        self,
        model: nn.Module,
        network: LogicNetwork,
        train: Sequence[Tensor],
        validation: Sequence[Tensor],
        loss: Callable[[Tensor, Tensor, Tensor], Tensor],
        score: Callable[[Tensor, Tensor, Tensor], float],
    ) -> None:
        bits, y, weight = train
        steps = -(-len(bits) // self.batch_size)
        epochs = max(_EPOCHS, -(-_STEPS // steps)) if self.epochs is None else self.epochs
        # Few steps have to be long ones: from where they start, weights have about five to go before a gate is another.
        rate = min(max(0.05, 20 / (epochs * steps)), 0.5) if self.learning_rate is None else self.learning_rate
        optimizer = torch.optim.AdamW(model.parameters(), rate, weight_decay=self.weight_decay, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * steps)
        soft = parametrizations.get(self.parametrization)
        best, best_state = (-math.inf, -math.inf), copy.deepcopy(model.state_dict())
        self.loss_curve_, self.validation_scores_, self.best_epoch_ = [], [], 0
        show = self.verbose if callable(self.verbose) else self._line if self.verbose else _nothing
        for epoch in range(1, epochs + 1):
            hardened = isinstance(soft, Softmax) and epoch > round((1 - self.hard_fraction) * epochs)
            _choose(network, parametrizations.get("straight_through") if hardened else soft)
            self.loss_curve_.append(
                train_epoch(
                    model, optimizer, loss, bits, y, weight=weight, batch_size=self.batch_size, schedule=schedule
                )
            )
            hard = evaluate(model, validation[0])  # the network that will be used
            self.validation_scores_.append(score(hard, *validation[1:]))
            show(epoch, epochs, {"loss": self.loss_curve_[-1], "discretized": self.validation_scores_[-1]})
            quality = (self.validation_scores_[-1], -loss(hard, *validation[1:]).item())
            if quality > best:
                best, best_state, self.best_epoch_ = quality, copy.deepcopy(model.state_dict()), epoch
            if self.patience is not None and (epoch - self.best_epoch_) * steps >= self.patience:
                break
        self.n_iter_ = len(self.loss_curve_)
        model.load_state_dict(best_state)
        _choose(network, soft)

    def _line(self, epoch: int, epochs: int, reached: Mapping[str, float]) -> None:
        words = ", ".join(f"{name} {value:.4f}" for name, value in reached.items())
        sys.stderr.write(f"{type(self).__name__} {epoch}/{epochs} {words}\n")

    def _warn(self, score: float, worse: str | None) -> None:
        """Say so where the circuit has learned nothing, by its score on the training rows."""
        gates = self.circuit_.netlist.num_gates
        if score >= 1 or (gates and worse is None):
            return
        failed = "without any gates" if worse is None else f"{worse} on its training rows"
        warnings.warn(
            f"softly.logic.{type(self).__name__}: the circuit is {failed} ({gates} gates after {self.n_iter_} epochs, "
            f"the one of epoch {self.best_epoch_} kept, score {score:.3f}). Train for longer (epochs, patience) or "
            "with a larger learning_rate; None does for both. Or columns tell nothing.",
            ConvergenceWarning,
            stacklevel=3,
        )

    def _scores(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return self.circuit_(torch.tensor(self._validated(X, reset=False)))


def _nothing(epoch: int, epochs: int, reached: Mapping[str, float]) -> None:
    """What is shown where nothing is to be shown."""


def _choose(network: LogicNetwork, parametrization: Parametrization) -> None:
    for layer in network.layers:
        layer.parametrization = parametrization  # type: ignore[assignment]


@contextmanager
def _on_threads(number: int | None) -> Iterator[None]:
    """So many of torch's threads inside, and as many as before afterwards; None changes nothing."""
    before = torch.get_num_threads()
    try:
        if number is not None:
            torch.set_num_threads(number)
        yield
    finally:
        torch.set_num_threads(before)


def _at_least_two(encoding: Encoding) -> None:
    """Data without anything to tell apart still needs two bits for a gate: these are always 1."""
    for _ in range(encoding.num_bits, 2):
        encoding.columns = torch.cat((encoding.columns, encoding.columns.new_zeros(1)))
        encoding.thresholds = torch.cat((encoding.thresholds, encoding.thresholds.new_full((1,), -math.inf)))
        encoding.kinds = torch.cat((encoding.kinds, encoding.kinds.new_zeros(1)))


def mean(values: Tensor, weight: Tensor) -> float:
    return float((values * weight.double()).sum() / weight.double().sum())
