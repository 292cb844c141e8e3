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

from softly.logic import wiring as wirings
from softly.logic.execution import Comparisons
from softly.logic.netlist import Layer

__all__ = ["load", "save"]

_FORMAT, _VERSION = "softly.circuit", 1
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
        gates = np.append(layer.gates, 0) if len(layer.gates) % 2 else layer.gates
        tensors[f"gates.{number}"] = (gates[::2] | gates[1::2] << 4).astype(np.uint8)
        description: dict[str, Any] = {"width": len(layer.gates)}
        if layer.wiring is None:
            tensors[f"wires.{number}"] = np.ascontiguousarray(layer.wires, dtype=np.int32)
        else:
            description["wiring"], description["seed"] = layer.wiring
        described["layers"].append(description)
    if (comparisons := described.pop("comparisons")) is not None:
        described["num_columns"] = comparisons.num_columns
        tensors["comparisons.columns"] = comparisons.columns.astype(np.int32)
        tensors["comparisons.thresholds"] = comparisons.thresholds.astype(np.float64)
        tensors["comparisons.kinds"] = comparisons.kinds.astype(np.uint8)
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
        below = file.whole(described, "num_inputs", 1)
        layers = []
        for number, layer in enumerate(file.part(described, "layers", list)):
            where = f"layer {number}"
            if not isinstance(layer, dict):
                raise file.error(f"{where} is not described.")
            packed = file.array(f"gates.{number}", np.uint8, 1)
            width = file.whole(layer, "width", 1)
            if len(packed) != (width + 1) // 2:
                raise file.error(f"{where} has {width} gates, but {len(packed)} bytes of them.")
            gates = np.stack((packed & 15, packed >> 4), -1).reshape(-1)[:width]
            if below > max(_MOST_INPUTS, 2 * width):
                raise file.error(f"{where} has {below} inputs for {width} gates, more than it could use.")
            if "wiring" not in layer:
                wires = file.array(f"wires.{number}", np.int32, 2)
                layers.append(Layer(gates, wires))
            else:
                seeded = file.part(layer, "wiring", str), file.whole(layer, "seed", 0)
                try:
                    wires = wirings.wires(seeded[0], below, width, seeded[1]).numpy()
                except ValueError as error:
                    raise file.error(f"{where}: {error}") from None
                layers.append(Layer(gates, wires, seeded))
            below = width
        comparisons = None
        if "num_columns" in described:
            comparisons = Comparisons(
                file.whole(described, "num_columns", 1),
                file.array("comparisons.columns", np.int32, 1).astype(np.int64),
                file.array("comparisons.thresholds", np.float64, 1),
                file.array("comparisons.kinds", np.uint8, 1),
            )
        return {
            "num_inputs": described["num_inputs"],
            "layers": layers,
            "k": file.whole(described, "k", 1),
            "tau": file.number(described, "tau"),
            "beta": file.number(described, "beta"),
            "logit_size": file.whole(described, "logit_size", 0),
            "comparisons": comparisons,
            "columns": file.names(described, "columns"),
            "classes": file.names(described, "classes"),
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
        if described.get("version") != _VERSION:
            raise self.error(f"its version is {repr(described.get('version'))[:40]}; this softly reads {_VERSION}.")
        return described

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
        if name not in self._names:
            raise self.error(f"it has no {name!r}.")
        try:
            value = self._file.get_tensor(name)
        except Exception as error:  # a dtype that numpy doesn't have, for one
            raise self.error(f"{name!r} can't be read: {error}.") from None
        if value.dtype != dtype or value.ndim != dimensions:
            raise self.error(f"{name!r} is {value.dtype} of shape {value.shape}, which it can't be.")
        return value
