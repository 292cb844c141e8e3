"""The hard network: gates and wires, no weights, and nothing of torch where it runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from os import PathLike
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from softly.logic import formats
from softly.logic import wiring as wirings
from softly.logic.encodings import Encoding
from softly.logic.execution import Comparisons, Engine
from softly.logic.layers import GroupSum, LogicLayer, Logit
from softly.logic.netlist import Layer, Netlist, build
from softly.logic.network import LogicNetwork
from softly.logic.summary import Summary

__all__ = ["Circuit", "discretize"]

Array = TypeVar("Array", np.ndarray, Tensor)


class Circuit:
    """A discretized network: bits, or numbers to compare, in; scores out, equal to the model in evaluation mode.

    It is simplified when it is made: constants, copies, negations, gates that occur twice and gates that no output
    needs are gone. Examples run 512 at a time, a bit each, on all of torch's threads.

    Args:
        num_inputs: Number of input bits, at least 1.
        layers: Gates and wires.
        k: Number of groups of outputs that are counted: classes, or numbers to predict.
        tau, beta: A score is ``count / tau + beta``.
        logit_size: Where it is not 0, scores are ``logit(score)``, kept half of ``1 / logit_size`` from 0 and 1.
        comparisons: How rows of numbers become bits; None where bits come in.
        columns: Names of the columns, or of the input bits.
        classes: Names of the k groups.

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
        comparisons: Comparisons | None = None,
        columns: Sequence[str] = (),
        classes: Sequence[str] = (),
    ) -> None:
        self.num_inputs, self.layers = num_inputs, tuple(layers)
        self.k, self.tau, self.beta, self.logit_size = k, float(tau), float(beta), logit_size
        self.comparisons = comparisons
        self.columns, self.classes = tuple(columns), tuple(classes)
        self._check()
        self.netlist: Netlist = build(num_inputs, self.layers)

    def _check(self) -> None:
        name = "softly.logic.Circuit"
        if self.num_inputs < 1 or not self.layers:
            raise ValueError(f"{name}: there must be inputs and at least one layer.")
        below = self.num_inputs
        for number, layer in enumerate(self.layers):
            gates, wires = layer.gates, layer.wires
            if gates.ndim != 1 or not len(gates) or wires.shape != (2, len(gates)):
                raise ValueError(f"{name}: layer {number} has gates {gates.shape} and wires {wires.shape}.")
            if not (gates.min() >= 0 and gates.max() < 16):
                raise ValueError(f"{name}: gates of layer {number} must be in [0, 15].")
            if not (wires.min() >= 0 and wires.max() < below):
                raise ValueError(f"{name}: wires of layer {number} must be in [0, {below - 1}].")
            below = len(gates)
        if not (self.tau > 0 and math.isfinite(self.tau) and math.isfinite(self.beta)):
            raise ValueError(f"{name}: tau must be positive and beta finite, got {self.tau} and {self.beta}.")
        if self.k < 1 or below % self.k:
            raise ValueError(f"{name}: k = {self.k} must divide the {below} outputs.")
        if self.logit_size < 0:
            raise ValueError(f"{name}: logit_size must not be negative, got {self.logit_size}.")
        if (c := self.comparisons) is not None:
            if not len(c.columns) == len(c.thresholds) == len(c.kinds) == self.num_inputs:
                raise ValueError(f"{name}: comparisons must give {self.num_inputs} bits, got {len(c.columns)}.")
            if c.num_columns < 1 or not (c.columns.min() >= 0 and c.columns.max() < c.num_columns):
                raise ValueError(f"{name}: comparisons look at columns outside of [0, {c.num_columns - 1}].")
            if not np.isin(c.kinds, (0, 1)).all():
                raise ValueError(f"{name}: kinds of comparisons must be 0 or 1.")
        for names, count, what in ((self.columns, self.num_columns, "columns"), (self.classes, self.k, "classes")):
            if names and len(names) != count:
                raise ValueError(f"{name}: {what} must have {count} names, got {len(names)}.")

    @property
    def num_columns(self) -> int:
        """Numbers in a row of input."""
        return self.num_inputs if self.comparisons is None else self.comparisons.num_columns

    @cached_property
    def _engine(self) -> Engine:
        return Engine(self.netlist, self.k, self.comparisons)

    def _rows(self, x: Array, function: str) -> np.ndarray:
        rows = x.detach().cpu().numpy() if isinstance(x, Tensor) else np.asarray(x)
        if rows.ndim == 0 or rows.shape[-1] != self.num_columns:
            raise ValueError(f"{function}: x must be of shape (..., {self.num_columns}), got {tuple(rows.shape)}.")
        if rows.dtype.kind not in "buif":
            raise TypeError(f"{function}: x must be boolean, integer or floating-point, got {rows.dtype}.")
        return np.ascontiguousarray(rows.reshape(-1, self.num_columns))

    def counts(self, x: Array) -> Array:
        """How many outputs of each group are true.

        Args:
            x: (..., columns) An array or tensor of bits, where every number but 0 is true, or of the numbers that the
                circuit's comparisons are made for.

        Returns:
            (..., k) 32-bit integers, of the kind of ``x``.

        Example:
            >>> layer = softly.logic.LogicLayer(4, 6, seed=0)
            >>> softly.logic.discretize(layer).counts(torch.zeros(1, 4)).shape
            torch.Size([1, 6])
        """
        counts = self._engine.counts(self._rows(x, "softly.logic.Circuit.counts")).reshape(*x.shape[:-1], self.k)
        return torch.from_numpy(counts) if isinstance(x, Tensor) else counts

    def __call__(self, x: Array) -> Array:
        """The scores, (..., k) in float32: ``count / tau + beta``, equal to the model in evaluation mode."""
        counts = self._engine.counts(self._rows(x, "softly.logic.Circuit")).reshape(*x.shape[:-1], self.k)
        scores = torch.from_numpy(counts).float() / self.tau + self.beta
        if self.logit_size:
            scores = torch.logit(scores, 0.5 / self.logit_size)
        return scores if isinstance(x, Tensor) else scores.numpy()

    def predict(self, x: Array) -> Array:
        """The class with the largest count, (...); of ties the lowest.

        Example:
            >>> circuit = softly.logic.discretize(softly.logic.LogicNetwork(4, [6], 3, seed=0))
            >>> circuit.predict(torch.zeros(5, 4, dtype=torch.uint8)).shape
            torch.Size([5])
        """
        best = self._engine.best(self._rows(x, "softly.logic.Circuit.predict")).reshape(x.shape[:-1])
        return torch.from_numpy(best) if isinstance(x, Tensor) else best

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
        names = ("num_inputs", "layers", "k", "tau", "beta", "logit_size", "comparisons", "columns", "classes")
        return {name: getattr(self, name) for name in names}

    def __reduce__(self) -> Any:
        # What it was made of; what the kernels made of that belongs to this process.
        return _restore, (self._arguments(),)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Circuit:
        """Read what `save` wrote; anything else is refused with a ValueError that says why."""
        return cls(**formats.load(path))

    def __repr__(self) -> str:
        return (
            f"Circuit({self.num_inputs} bits, {sum(len(layer.gates) for layer in self.layers):,} gates in "
            f"{len(self.layers)} layers, {self.netlist.num_gates:,} after simplification, k={self.k})"
        )


def _restore(arguments: dict[str, Any]) -> Circuit:
    return Circuit(**arguments)


def discretize(model: nn.Module, *, columns: Sequence[str] = (), classes: Sequence[str] = ()) -> Circuit:
    """The circuit of a trained model: every gate the one with the largest weight.

    Args:
        model: A `LogicNetwork`, or a ``nn.Sequential`` of an encoding or none, `LogicLayer`, and then `GroupSum` and
            `Logit`, or none of them. Without a `GroupSum` every output is a group of its own.
        columns: Names of the columns, or of the input bits.
        classes: Names of the groups.

    Example:
        >>> softly.logic.discretize(softly.logic.LogicNetwork(8, [20, 20], 2, seed=0))
        Circuit(8 bits, 40 gates in 2 layers, 25 after simplification, k=2)
    """
    name = "softly.logic.discretize"
    encoding: Encoding | None = None
    layers: list[LogicLayer] = []
    head: GroupSum | None = None
    logit_size = 0
    for part in _parts(model):
        if isinstance(part, Encoding) and not layers and encoding is None:
            encoding = part
        elif isinstance(part, LogicLayer) and head is None:
            layers.append(part)
        elif isinstance(part, GroupSum) and layers and head is None:
            head = part
        elif isinstance(part, Logit) and head is not None and not logit_size:
            logit_size = part.size
        else:
            raise TypeError(
                f"{name}: a model is an encoding or none, logic layers, and then GroupSum and Logit or none of them; "
                f"can't take {type(part).__name__} where it stands."
            )
    if not layers:
        raise TypeError(f"{name}: the model has no LogicLayer.")
    if encoding is not None and not encoding.num_bits:
        raise ValueError(f"{name}: fit the encoding on training data first.")
    return Circuit(
        layers[0].in_dim,
        [_layer(layer) for layer in layers],
        k=layers[-1].out_dim if head is None else head.k,
        tau=1.0 if head is None else head.tau,
        beta=0.0 if head is None else head.beta,
        logit_size=logit_size,
        comparisons=None if encoding is None else _comparisons(encoding),
        columns=columns,
        classes=classes,
    )


def _parts(model: nn.Module) -> Iterator[nn.Module]:
    if isinstance(model, LogicNetwork):
        yield from (() if model.encoding is None else (model.encoding,))
        yield from model.layers
        yield model.head
    elif isinstance(model, nn.Sequential):
        for part in model:
            yield from _parts(part)
    elif not isinstance(model, nn.Identity):
        yield model


def _layer(layer: LogicLayer) -> Layer:
    seeded = torch.equal(layer.wires.cpu(), wirings.wires(layer.wiring, layer.in_dim, layer.out_dim, layer.seed))
    return Layer(
        layer.gate_ids().cpu().numpy(), layer.wires.cpu().numpy(), (layer.wiring, layer.seed) if seeded else None
    )


def _comparisons(encoding: Encoding) -> Comparisons:
    columns, thresholds, kinds = (part.cpu().numpy() for part in encoding.comparisons())
    return Comparisons(encoding.num_columns, columns, thresholds, kinds)
