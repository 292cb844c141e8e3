"""The hard network: gates and wires, no weights, and nothing of torch where it runs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from typing import Any, Literal, overload

import numpy as np
import torch
from torch import Tensor

from softly.logic import export, formats
from softly.logic.execution import Comparisons, Engine
from softly.logic.netlist import Layer, Netlist, build
from softly.logic.summary import Summary
from softly.logic.tables import Columns

__all__ = ["Circuit"]


class Circuit:
    """A discretized network: bits, or a table to compare, in; scores out, equal to the model in evaluation mode.

    It is simplified when it is made: constants, copies, negations, gates that occur twice, and whatever no output needs
    are gone. Examples run 512 at a time, a bit each, on all of torch's threads.

    Args:
        num_inputs: Number of input bits, at least 1.
        layers: Gates and wires.
        k: Number of groups of outputs that are counted: classes, or numbers to predict.
        tau, beta: A score is ``count / tau + beta``.
        logit_size: Where it is not 0, scores are ``logit(score)``, kept half of ``1 / logit_size`` from 0 and 1.
        scale, shift: At last, scores are multiplied by the one, and the other is added.
        task: Whether groups are "classes" or "numbers" to predict; None takes a single group for numbers.
        comparisons: How rows of numbers become bits; None where bits come in.
        outputs: The values that are counted, as in `netlist.Layer.source`; None for the gates of the last layer.
        columns: Names of the columns, or of the input bits.
        texts: For every column the texts that it has, none where it has numbers; their places are what is compared.
        missing: What else stands for a missing value in files of texts.
        classes: Names of the k groups.

    Attributes:
        netlist: The gates that are left.
        inputs: The comparisons that are left, by column: the inputs of the netlist. None where bits come in.

    Example:
        >>> model = torch.nn.Sequential(softly.logic.LogicLayer(4, 6, seed=0), softly.logic.GroupSum(2, tau=3.0))
        >>> circuit = softly.logic.discretize(model)
        >>> x = torch.tensor([[0, 1, 1, 0], [1, 1, 1, 1]], dtype=torch.uint8)
        >>> torch.equal(circuit(x), model.eval()(x.float()))
        True
    """

    def __init__(
        self,
        num_inputs: int,
        layers: Sequence[Layer],
        *,
        k: int,
        tau: float = 1.0,
        beta: float = 0.0,
        logit_size: int = 0,
        scale: float = 1.0,
        shift: float = 0.0,
        task: str | None = None,
        comparisons: Comparisons | None = None,
        outputs: np.ndarray | None = None,
        columns: Sequence[str] = (),
        texts: Sequence[Sequence[str]] = (),
        missing: Sequence[str] = (),
        classes: Sequence[str] = (),
    ) -> None:
        self.num_inputs, self.layers, self.k = num_inputs, tuple(layers), k
        self.comparisons, self.outputs = comparisons, outputs
        self._describe(
            tau=tau, beta=beta, logit_size=logit_size, scale=scale, shift=shift, task=task,
            columns=columns, texts=texts, missing=missing, classes=classes,
        )  # fmt: skip
        self.netlist, self.inputs = self._simplified()

    def _describe(
        self,
        *,
        tau: float,
        beta: float,
        logit_size: int,
        scale: float,
        shift: float,
        task: str | None,
        columns: Sequence[str],
        texts: Sequence[Sequence[str]],
        missing: Sequence[str],
        classes: Sequence[str],
    ) -> None:
        """All that is not gates and wires: what can be another without other gates."""
        self.tau, self.beta, self.logit_size = float(tau), float(beta), logit_size
        self.scale, self.shift = float(scale), float(shift)
        self.task = ("numbers" if self.k == 1 else "classes") if task is None else task
        self.columns, self.classes, self.missing = tuple(columns), tuple(classes), tuple(missing)
        self.texts = tuple(map(tuple, texts)) if any(texts) else ()
        self._check()

    def _simplified(self) -> tuple[Netlist, Comparisons | None]:
        if self.comparisons is None:
            return build(self.num_inputs, self.layers, outputs=self.outputs), None
        merged, bits = self.comparisons.merged()
        netlist = build(len(merged.columns), self.layers, bits=bits, outputs=self.outputs)
        used = netlist.used()
        if not len(used):
            used = np.zeros(1, dtype=np.int64)  # a circuit has inputs
        return netlist.kept(used), merged.take(used)

    def _check(self) -> None:
        name = "softly.logic.Circuit"
        if self.num_inputs < 1 or not self.layers:
            raise ValueError(f"{name}: there must be inputs and at least one layer.")
        below = values = self.num_inputs
        for number, layer in enumerate(self.layers):
            gates, wires = layer.gates, layer.wires
            if layer.source is not None:
                below = len(layer.source)
                _check_values(layer.source, values, f"{name}: the source of layer {number}")
            if gates.ndim != 1 or not len(gates) or wires.shape != (2, len(gates)):
                raise ValueError(f"{name}: layer {number} has gates {gates.shape} and wires {wires.shape}.")
            if not (gates.min() >= 0 and gates.max() < 16):
                raise ValueError(f"{name}: gates of layer {number} must be in [0, 15].")
            if not (wires.min() >= 0 and wires.max() < below):
                raise ValueError(f"{name}: wires of layer {number} must be in [0, {below - 1}].")
            below = len(gates)
            values += below
        if self.outputs is not None:
            below = len(self.outputs)
            _check_values(self.outputs, values, f"{name}: outputs")
        if not (self.tau > 0 and math.isfinite(self.tau) and math.isfinite(self.beta)):
            raise ValueError(f"{name}: tau must be positive and beta finite, got {self.tau} and {self.beta}.")
        if self.k < 1 or below % self.k:
            raise ValueError(f"{name}: k = {self.k} must divide the {below} outputs.")
        if self.logit_size < 0:
            raise ValueError(f"{name}: logit_size must not be negative, got {self.logit_size}.")
        if (c := self.comparisons) is not None:
            if not len(c.columns) == len(c.thresholds) == len(c.kinds) == self.num_inputs:
                raise ValueError(f"{name}: comparisons must give {self.num_inputs} bits, got {len(c.columns)}.")
            if not 1 <= c.num_columns < 2**31:
                raise ValueError(f"{name}: comparisons must have columns, fewer than 2^31; got {c.num_columns}.")
            if not (c.columns.min() >= 0 and c.columns.max() < c.num_columns):
                raise ValueError(f"{name}: comparisons look at columns outside of [0, {c.num_columns - 1}].")
            if np.isnan(c.thresholds).any():
                raise ValueError(f"{name}: thresholds of comparisons must not be NaN.")
            if not np.isin(c.kinds, (0, 1)).all():
                raise ValueError(f"{name}: kinds of comparisons must be 0 or 1.")
        if not (math.isfinite(self.scale) and math.isfinite(self.shift)):
            raise ValueError(f"{name}: scale and shift must be finite, got {self.scale} and {self.shift}.")
        if self.task not in ("classes", "numbers"):
            raise ValueError(f"{name}: task must be 'classes' or 'numbers', got {self.task!r}.")
        self._check_names(name)

    def _check_names(self, name: str) -> None:
        if self.texts and (self.comparisons is None or len(self.texts) != self.num_columns):
            raise ValueError(
                f"{name}: texts must be given for all of the {self.num_columns} columns that are compared, "
                f"got {len(self.texts)}."
            )
        for column, texts in enumerate(self.texts):
            if len(set(texts)) < len(texts):
                raise ValueError(f"{name}: the texts of column {column} must be different.")
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"{name}: columns must have different names.")
        for names, count, what in ((self.columns, self.num_columns, "columns"), (self.classes, self.k, "classes")):
            if names and len(names) != count:
                raise ValueError(f"{name}: {what} must have {count} names, got {len(names)}.")

    @property
    def num_columns(self) -> int:
        """Numbers in a row of input."""
        return self.num_inputs if self.comparisons is None else self.comparisons.num_columns

    @cached_property
    def _engine(self) -> Engine:
        return Engine(self.netlist, self.k, self.inputs)

    @cached_property
    def _table(self) -> Columns:
        return Columns(self.num_columns, names=self.columns, texts=self.texts)

    def _rows(self, x: Any, function: str) -> tuple[np.ndarray, tuple[int, ...]]:
        """Rows as the engine takes them, and the shape that results begin with."""
        if isinstance(x, Tensor):
            if x.is_complex():
                raise TypeError(f"{function}: x must be boolean, integer or floating-point, got {x.dtype}.")
            x = (x.detach().float() if x.dtype is torch.bfloat16 else x.detach()).cpu().numpy()
        elif isinstance(x, np.ndarray) and x.dtype.kind not in "buifOSUV":
            raise TypeError(f"{function}: x must be boolean, integer or floating-point, got {x.dtype}.")
        table = self._table.numbers(x, function)
        rows = np.ascontiguousarray(table.reshape(-1, self.num_columns))
        if self.comparisons is None and rows.dtype.kind == "f":
            bits = rows == 1
            if not (bits | (rows == 0)).all():
                other = rows[~bits & (rows != 0)][0]
                raise ValueError(
                    f"{function}: this circuit has no comparisons, so that x must be bits, 0 or 1; got {other}. "
                    "Compare first, as with x >= 0.5, or discretize a model that begins with an encoding."
                )
            rows = bits
        return rows, table.shape[:-1]

    def counts(self, x: Any) -> Any:
        """How many outputs of each group are true.

        Args:
            x: (..., columns) A tensor or array of bits, where every integer but 0 is true; or the numbers that the
                circuit's comparisons are made for, with texts by their place. A table may have the texts themselves:
                lists of rows, dictionaries, a structured array, or a frame of pandas or polars, whose columns are found
                by name. None and NaN stand for what is missing.

        Returns:
            (..., k) 32-bit integers: a tensor for a tensor, and an array for everything else.

        Example:
            >>> layer = softly.logic.LogicLayer(4, 6, seed=0)
            >>> softly.logic.discretize(layer).counts(torch.zeros(1, 4)).shape
            torch.Size([1, 6])
        """
        rows, shape = self._rows(x, "softly.logic.Circuit.counts")
        counts = self._engine.counts(rows).reshape(*shape, self.k)
        return torch.from_numpy(counts) if isinstance(x, Tensor) else counts

    def __call__(self, x: Any) -> Any:
        """The scores, (..., k) in float32, equal to the model in evaluation mode; ``x`` is as in `counts`."""
        rows, shape = self._rows(x, "softly.logic.Circuit")
        scores = self._scores(self._engine.counts(rows).reshape(*shape, self.k), torch.float32)
        return scores if isinstance(x, Tensor) else scores.numpy()

    def _scores(self, counts: np.ndarray, dtype: torch.dtype) -> Tensor:
        scores = torch.from_numpy(counts).to(dtype) / self.tau + self.beta
        if self.logit_size:
            scores = torch.logit(scores, 0.5 / self.logit_size)
        return scores if (self.scale, self.shift) == (1.0, 0.0) else scores * self.scale + self.shift

    def predict(self, x: Any) -> Any:
        """The number of the class with the largest count, of ties the lowest; or the numbers that are predicted.

        Args:
            x: As in `counts`.

        Returns:
            Where the task is classes, (...) integers. Where it is numbers, the scores in double precision, (..., k), or
            (...) if k is 1. A tensor for a tensor, and an array for everything else.

        Example:
            >>> circuit = softly.logic.discretize(softly.logic.LogicNetwork(4, [6], 3, seed=0))
            >>> circuit.predict(torch.zeros(5, 4, dtype=torch.uint8)).shape
            torch.Size([5])
        """
        rows, shape = self._rows(x, "softly.logic.Circuit.predict")
        if self.task == "classes":
            best = self._engine.best(rows).reshape(shape)
            return torch.from_numpy(best) if isinstance(x, Tensor) else best
        scores = self._scores(self._engine.counts(rows).reshape(*shape, self.k), torch.float64)
        scores = scores.squeeze(-1) if self.k == 1 else scores
        return scores if isinstance(x, Tensor) else scores.numpy()

    def labels(self, x: Any) -> np.ndarray:
        """(...) The names of the classes that `predict` finds.

        Example:
            >>> network = softly.logic.LogicNetwork(4, [6], 2, seed=0)
            >>> circuit = softly.logic.discretize(network, classes=["no", "yes"])
            >>> set(circuit.labels([[0, 1, 1, 0], [1, 1, 1, 1]])) <= {"no", "yes"}
            True
        """
        if not self.classes:
            raise ValueError("softly.logic.Circuit.labels: this circuit has no names of classes; use predict.")
        names = np.array(self.classes, dtype=object)
        return names[np.asarray(self.predict(x))]

    def summary(self) -> Summary:
        """Gates of every kind per layer, and what simplification left; prints as a table.

        Example:
            >>> layer = softly.logic.LogicLayer(4, 6, seed=0, init="residual")
            >>> softly.logic.discretize(layer).summary().gates_after  # copies of inputs cost nothing
            0
        """
        return Summary.of([layer.gates for layer in self.layers], self.netlist, self.num_inputs, self.k)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a safetensors file: four bits a gate, wiring by its seed where it has one."""
        formats.save(path, self._arguments())

    def _arguments(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in inspect.signature(Circuit).parameters}

    def described(self, **changes: Any) -> Circuit:
        """The same gates, which are not simplified again, with other names, texts or map of their scores.

        Args:
            changes: Arguments of `Circuit` by keyword, but those that make other gates.

        Example:
            >>> circuit = softly.logic.discretize(softly.logic.LogicNetwork(4, [6], 2, seed=0))
            >>> circuit.described(classes=["no", "yes"]).classes
            ('no', 'yes')
        """
        description = {name: getattr(self, name) for name in inspect.signature(self._describe).parameters}
        if unknown := changes.keys() - description.keys():
            raise TypeError(
                f"softly.logic.Circuit.described: changes must be of {', '.join(description)}; got {min(unknown)}. "
                "Other gates make another Circuit."
            )
        described = object.__new__(Circuit)
        vars(described).update(vars(self))
        vars(described).pop("_table", None)  # it has the names
        described._describe(**{**description, **changes})
        return described

    def __reduce__(self) -> Any:
        # What it was made of; what the kernels made of that belongs to this process.
        return _restore, (self._arguments(),)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Circuit:
        """Read what `save` wrote; anything else is refused with a ValueError that says why."""
        return cls(**formats.load(path))

    def to_c(self, *, name: str = "circuit", numbers: str = "double") -> str:
        """A C99 file without dependencies or allocation, for anything from a microcontroller to a server.

        ``{name}_counts`` and ``{name}_predict`` take one example, a byte a bit; ``{name}_counts_row`` and
        ``{name}_predict_row`` take a row of doubles where the circuit compares numbers, and ``{name}_text`` has the
        double for a text; ``{name}_counts_words`` takes 8 examples at once, or 64 if compiled with
        ``-D{name}_word=uint64_t``. Counts are those of `counts`, and predictions the class or the numbers.

        Args:
            name: With it all names in the file begin, so that one program can have several circuits.
            numbers: What rows consist of, "double" or "float": small machines have floats, and no room for doubles.
                Thresholds are then such that floats compare with them as they would with the doubles.

        Example:
            >>> circuit = softly.logic.discretize(softly.logic.LogicNetwork(8, [20, 20], 2, seed=0))
            >>> "int32_t iris_predict(const uint8_t *bits)" in circuit.to_c(name="iris")
            True
        """
        return export.to_c(self, name=name, numbers=numbers)

    def to_verilog(self, *, pipeline: int = 0, name: str = "circuit", fixed: tuple[int, int] | None = None) -> str:
        """Synthesizable Verilog-2001 from the bits ``x`` to the ``counts`` of all groups and the ``index`` of the best.

        Args:
            pipeline: 0 for combinational logic. Otherwise there are registers after every so many levels of gates, and
                after every level of adders and comparisons; results come ``LATENCY`` clocks after their inputs.
            name: Of the module; that of the gates alone, before counting, is ``{name}_gates``.
            fixed: None, or the bits of a number and how many of them are its fraction, (16, 8) for example: the module
                then takes a ``row`` of numbers in fixed point, and compares them. Its counts are those of `counts` for
                all such numbers; the smallest one stands for a missing value.

        Example:
            >>> circuit = softly.logic.discretize(softly.logic.LogicNetwork(8, [20, 20], 2, seed=0))
            >>> "module circuit_gates (" in circuit.to_verilog()
            True
        """
        return export.to_verilog(self, pipeline=pipeline, name=name, fixed=fixed)

    def to_blif(self, *, name: str = "circuit") -> str:
        """The bits before they are counted, as a BLIF model from x0, x1, … to y0, y1, ….

        Example:
            >>> circuit = softly.logic.discretize(softly.logic.LogicNetwork(8, [20, 20], 2, seed=0))
            >>> ".model circuit" in circuit.to_blif()
            True
        """
        return export.to_blif(self, name=name)

    @overload
    def to_aiger(self, *, binary: Literal[False] = False) -> str: ...
    @overload
    def to_aiger(self, *, binary: Literal[True]) -> bytes: ...
    def to_aiger(self, *, binary: bool = False) -> str | bytes:
        """The bits before they are counted, as an and-inverter graph in AIGER's ascii format, or in its binary one.

        Args:
            binary: Whether bytes are wanted, which are what ABC reads.

        Example:
            >>> circuit = softly.logic.discretize(softly.logic.LogicNetwork(8, [20, 20], 2, seed=0))
            >>> circuit.to_aiger().startswith("aag ")
            True
        """
        return export.to_aiger(self, binary=binary)

    def to_numpy(self) -> str:
        """A Python module with ``counts(rows)`` and ``predict(rows)`` that needs NumPy and nothing else.

        Example:
            >>> circuit = softly.logic.discretize(softly.logic.LogicNetwork(8, [20, 20], 2, seed=0))
            >>> module = {}
            >>> exec(circuit.to_numpy(), module)
            >>> module["counts"](torch.zeros(3, 8).numpy()).shape
            (3, 2)
        """
        return export.to_numpy(self)

    def __repr__(self) -> str:
        return (
            f"Circuit({self.num_inputs} bits, {sum(len(layer.gates) for layer in self.layers):,} gates in "
            f"{len(self.layers)} layers, {self.netlist.num_gates:,} after simplification, k={self.k})"
        )


def _check_values(chosen: np.ndarray, count: int, what: str) -> None:
    if chosen.ndim != 1 or not len(chosen) or not (chosen.min() >= 0 and chosen.max() < count):
        raise ValueError(f"{what} must be values in [0, {count - 1}], at least one.")


def _restore(arguments: dict[str, Any]) -> Circuit:
    return Circuit(**arguments)
