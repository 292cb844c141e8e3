"""Circuits in files: safetensors, which hold numbers and text and nothing that could run."""

from __future__ import annotations

import json
import math
import os
import secrets
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from softly.logic import ladders
from softly.logic import wiring as wirings
from softly.logic.execution import Comparisons
from softly.logic.netlist import Layer

__all__ = ["load", "save"]

_FORMAT, _VERSION = "softly.circuit", 2
_READ = (1, 2)  # versions
# A wiring is drawn from its seed, and a netlist begins with its inputs: as many as the file says. No network is refused
# that has a use for them, since a layer sees at most twice as many inputs as it has gates.
_MOST_INPUTS = 1 << 20


def save(path: str | PathLike[str], circuit: dict[str, Any]) -> None:
    """Write the arguments of a `Circuit` to a file, whole or not at all.

    Example:
        >>> import tempfile
        >>> circuit = softly.logic.discretize(softly.logic.LogicNetwork(8, [20], 2, seed=0))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     circuit.save(f"{folder}/a.safetensors")
        ...     softly.logic.Circuit.load(f"{folder}/a.safetensors")
        Circuit(8 bits, 20 gates in 1 layers, ... after simplification, k=2)
    """
    tensors: dict[str, np.ndarray] = {}
    described = {"format": _FORMAT, "version": _VERSION, **circuit, "layers": []}
    for number, layer in enumerate(circuit["layers"]):
        kinds, codes = np.unique(layer.gates, return_inverse=True)
        tensors[f"gates.{number}"] = _packed(codes, len(kinds))
        description: dict[str, Any] = {"width": len(layer.gates), "kinds": kinds.tolist()}
        if layer.wiring is None:
            tensors[f"wires.{number}"] = _small(layer.wires)
        else:
            description["wiring"], description["seed"] = layer.wiring
        if layer.source is not None:
            tensors[f"sources.{number}"] = _small(_runs(layer.source))
        described["layers"].append(description)
    if (outputs := described.pop("outputs")) is not None:
        tensors["outputs"] = _small(_runs(outputs))
    if (comparisons := described.pop("comparisons")) is not None:
        described["num_columns"] = comparisons.num_columns
        for name, part in zip(ladders.PARTS, ladders.split(comparisons), strict=True):
            tensors[f"comparisons.{name}"] = part if name == "thresholds" else _small(part)
    # In one entry, since safetensors writes several in any order: the same circuit gives the same bytes.
    data = safetensors.numpy.save(tensors, {"circuit": json.dumps(described)})
    target = Path(path)
    # Not by `tempfile`, whose files nobody else may read.
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _bits(kinds: int) -> int:
    """Bits that tell kinds of gates apart; at least one, so that a file is never much smaller than what it says."""
    return max(1, (kinds - 1).bit_length())


def _packed(codes: np.ndarray, kinds: int) -> np.ndarray:
    """Numbers below ``kinds`` with as many bits each as they need, in bytes."""
    bits = _bits(kinds)
    return np.packbits(codes[:, None] >> np.arange(bits) & 1, bitorder="little")


def _unpacked(packed: np.ndarray, kinds: int, count: int) -> np.ndarray:
    bits = _bits(kinds)
    unpacked = np.unpackbits(packed, count=bits * count, bitorder="little").reshape(count, bits)
    return unpacked.astype(np.int64) @ (1 << np.arange(bits))


def _small(values: np.ndarray) -> np.ndarray:
    """Whole numbers in the smallest unsigned type that has them."""
    return np.ascontiguousarray(values, dtype=np.min_scalar_type(int(values.max(initial=0))))


def _runs(values: np.ndarray) -> np.ndarray:
    """(runs, 2) Numbers as runs that count up: the first and how many."""
    starts = np.flatnonzero(np.diff(values, prepend=values[0] - 2) != 1)
    return np.stack((values[starts], np.diff(starts, append=len(values))), 1)


def load(path: str | PathLike[str]) -> dict[str, Any]:
    """The arguments of the `Circuit` in a file, checked as far as it takes to read them safely.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     softly.logic.Circuit.load(file.name)
        Traceback (most recent call last):
        ...
        ValueError: softly.logic.Circuit.load: ...: it is no safetensors file: ...
    """
    with _Reader(path) as file:
        described = file.description()
        first = described["version"] == 1
        below = file.whole(described, "num_inputs", 1)
        layers, widest = [], 0
        for number, layer in enumerate(file.part(described, "layers", list)):
            where = f"layer {number}"
            if not isinstance(layer, dict):
                raise file.error(f"{where} is not described.")
            width = file.whole(layer, "width", 1)
            gates = file.gates(number, width, list(range(16)) if first else file.part(layer, "kinds", list))
            widest = max(widest, width)
            source = None if first else file.runs(f"sources.{number}", max(_MOST_INPUTS, 2 * width))
            below = below if source is None else len(source)
            if below > max(_MOST_INPUTS, 2 * width):
                raise file.error(f"{where} has {below} inputs for {width} gates, more than it could use.")
            if "wiring" not in layer:
                name = f"wires.{number}"
                layers.append(
                    Layer(gates, file.array(name, np.int32, 2) if first else file.unsigned(name, 2), source=source)
                )
            else:
                seeded = file.part(layer, "wiring", str), file.whole(layer, "seed", 0)
                try:
                    wires = wirings.wires(seeded[0], below, width, seeded[1]).numpy()
                except ValueError as error:
                    raise file.error(f"{where}: {error}") from None
                layers.append(Layer(gates, wires, wiring=seeded, source=source))
            below = width
        arguments = {
            "num_inputs": described["num_inputs"],
            "layers": layers,
            "k": file.whole(described, "k", 1),
            "tau": file.number(described, "tau"),
            "beta": file.number(described, "beta"),
            "logit_size": file.whole(described, "logit_size", 0),
            "comparisons": file.comparisons(described, first) if "num_columns" in described else None,
            "columns": file.names(described, "columns"),
            "classes": file.names(described, "classes"),
        }
        if first:
            return arguments
        texts = file.part(described, "texts", list)
        return arguments | {
            "scale": file.number(described, "scale"),
            "shift": file.number(described, "shift"),
            "task": file.part(described, "task", str),
            "texts": [file.names({"texts": part}, "texts") for part in texts],
            "missing": file.names(described, "missing"),
            "outputs": file.runs("outputs", max(_MOST_INPUTS, 2 * widest)),
        }


class _Reader:
    """A safetensors file whose every surprise is a ValueError that names it."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)

    def __enter__(self) -> _Reader:
        try:
            self._file = safetensors.safe_open(self.path, framework="numpy").__enter__()
        except FileNotFoundError:
            raise
        except Exception as error:  # whatever its parser says
            raise self.error(f"it is no safetensors file: {error}.") from None
        self._names = set(self._file.keys())
        return self

    def __exit__(self, *exception: Any) -> None:
        self._file.__exit__(*exception)

    def error(self, reason: str) -> ValueError:
        return ValueError(f"softly.logic.Circuit.load: {self.path}: {reason}")

    def description(self) -> dict[str, Any]:
        text = (self._file.metadata() or {}).get("circuit")
        if text is None:
            raise self.error("it is no circuit, but another safetensors file.")
        try:
            described = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.error(f"its description can't be read: {error}.") from None
        if not isinstance(described, dict):
            raise self.error("its description is not an object.")
        if described.get("format") != _FORMAT:
            raise self.error(f"its format is {repr(described.get('format'))[:40]}, not {_FORMAT!r}.")
        version = described.get("version")
        if isinstance(version, bool) or not isinstance(version, int) or version not in _READ:
            versions = " and ".join(map(str, _READ))
            raise self.error(f"its version is {repr(version)[:40]}; this softly reads {versions}.")
        return described

    def gates(self, number: int, width: int, kinds: list[Any]) -> np.ndarray:
        """Gates of a layer, packed with as many bits as tell its kinds apart."""
        if not 1 <= len(kinds) <= 16 or not all(type(kind) is int and 0 <= kind < 16 for kind in kinds):
            raise self.error(f"'kinds' of layer {number} must be gates, 0 to 15, got {str(kinds)[:40]}.")
        packed = self.array(f"gates.{number}", np.uint8, 1)
        if len(packed) != -(-width * _bits(len(kinds)) // 8):
            raise self.error(f"layer {number} has {width} gates, but {len(packed)} bytes of them.")
        codes = _unpacked(packed, len(kinds), width)
        if codes.max() >= len(kinds):
            raise self.error(f"layer {number} has gates of none of its {len(kinds)} kinds.")
        return np.array(kinds)[codes]

    def comparisons(self, described: dict[str, Any], first: bool) -> Comparisons:
        """How numbers become bits."""
        columns = self.whole(described, "num_columns", 1)
        if first:
            return Comparisons(
                columns,
                self.array("comparisons.columns", np.int32, 1).astype(np.int64),
                self.array("comparisons.thresholds", np.float64, 1),
                self.array("comparisons.kinds", np.uint8, 1),
            )
        parts = [
            self.array(f"comparisons.{name}", np.float64, 1)
            if name == "thresholds"
            else self.unsigned(f"comparisons.{name}", 2 if name == "runs" else 1)
            for name in ladders.PARTS
        ]
        try:
            return ladders.join(columns, described["num_inputs"], *parts)
        except ValueError as error:
            raise self.error(str(error)) from None

    def part(self, described: dict[str, Any], key: str, kind: type) -> Any:
        value = described.get(key)
        if not isinstance(value, kind):
            raise self.error(f"{key!r} must be a {kind.__name__}, got {str(value)[:40]}.")
        return value

    def whole(self, described: dict[str, Any], key: str, least: int) -> int:
        value = described.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
            raise self.error(f"{key!r} must be a whole number from {least}, got {str(value)[:40]}.")
        return value

    def number(self, described: dict[str, Any], key: str) -> float:
        value = described.get(key)
        try:
            number = math.nan if isinstance(value, (bool, str)) else float(value)  # type: ignore[arg-type]
        except (TypeError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise self.error(f"{key!r} must be a finite number, got {str(value)[:40]}.")
        return number

    def names(self, described: dict[str, Any], key: str) -> list[str]:
        value = self.part(described, key, list)
        if not all(isinstance(name, str) for name in value):
            raise self.error(f"{key!r} must be names.")
        return value

    def array(self, name: str, dtype: type, dimensions: int) -> np.ndarray:
        value = self.tensor(name)
        if value.dtype != dtype or value.ndim != dimensions:
            raise self.error(f"{name!r} is {value.dtype} of shape {value.shape}, which it can't be.")
        return value

    def unsigned(self, name: str, dimensions: int) -> np.ndarray:
        """Whole numbers of any size, as 64-bit ones."""
        value = self.tensor(name)
        if value.dtype not in (np.uint8, np.uint16, np.uint32) or value.ndim != dimensions:
            raise self.error(f"{name!r} is {value.dtype} of shape {value.shape}, which it can't be.")
        return value.astype(np.int64)

    def runs(self, name: str, most: int) -> np.ndarray | None:
        """Numbers that were written as runs, not more than ``most``; None where there are none."""
        if name not in self._names:
            return None
        runs = self.unsigned(name, 2)
        if runs.shape[1] != 2 or not runs.size or runs[:, 1].min() < 1 or runs[:, 1].sum() > most:
            raise self.error(f"{name!r} must be runs of at most {most} numbers.")
        first, count = runs.T
        return np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())

    def tensor(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise self.error(f"it has no {name!r}.")
        try:
            return self._file.get_tensor(name)
        except Exception as error:  # a dtype that numpy doesn't have, for one
            raise self.error(f"{name!r} can't be read: {error}.") from None
