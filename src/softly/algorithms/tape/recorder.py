"""Records what a program does to its tensors as a straight line of operations on single numbers.

While it runs once on a few made-up examples, every torch operation is seen. A tensor is followed as an array of
slots: one number of every example each. Operations that only move numbers (select, stack, reshape) just move slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

# In the order of native/programs/tape.h.
OPERATIONS = (
    *("add", "sub", "mul", "div", "neg", "lerp", "sigmoid", "exp", "log", "sqrt", "tanh", "abs", "minimum", "maximum"),
    *("less", "less_equal", "equal", "select", "atan2", "sin", "cos", "ndtr", "floor", "sign", "constant"),
    *("log1p", "expm1", "pow"),
)
BINARY = ("add", "sub", "mul", "div", "minimum", "maximum", "atan2", "pow")  # by their names in torch
NUMBER = {name: i for i, name in enumerate(OPERATIONS)}


class RecordingError(Exception):
    """What a tape has no instruction for. Not a TypeError, which torch would take for its own."""


class Recorder(TorchDispatchMode):
    """Sees the operations on tensors that descend from `follow`-ed ones.

    Args:
        batch: The number of made-up examples; a dimension of this length is the batch, so that no other may be.
        rules: What each operation does to slots: ``(recorder, *args, **kwargs) -> slots``, or a list of slots.
        limit: The most instructions that are recorded.
    """

    def __init__(self, batch: int, rules: dict[str, Callable[..., Any]], limit: int | None = None) -> None:
        super().__init__()
        self.batch, self.rules, self.limit = batch, rules, limit
        self.inputs = 0
        self.code: list[tuple[int, int, int, int]] = []  # operation and operands; slots ~c are constants
        self.constants: list[float] = []
        self._constant: dict[float, int] = {}
        self._known: dict[tuple[int, ...], int] = {}
        self._slots: dict[int, tuple[Tensor, np.ndarray]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled while it records; torch would import its compiler to say so

    # Slots -------------------------------------------------------------------------------------------------------
    # Inputs and instructions count from 0 in the order of their appearance; the constant c is -1 - c.

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape in which the batch has length 1, since all of it shares a slot."""
        if sum(s == self.batch for s in shape) > 1 or any(s != self.batch and s % self.batch == 0 for s in shape if s):
            raise RecordingError("examples are mixed")
        return tuple(1 if s == self.batch else s for s in shape)

    def follow(self, tensor: Tensor) -> None:
        """Make a tensor (batch, ...), or a number that all examples share, an input."""
        shape = self.shape(tensor.shape)
        count = math.prod(shape)
        self._slots[id(tensor)] = (tensor, np.arange(self.inputs, self.inputs + count).reshape(shape))
        self.inputs += count

    def constant(self, value: float) -> int:
        key = float(value)
        if key not in self._constant:
            if key != key:
                raise RecordingError("NaN is no constant")
            self._constant[key] = -1 - len(self.constants)
            self.constants.append(key)
        return self._constant[key]

    def slots(self, value: Any) -> np.ndarray:
        """The slots of a tensor or a number."""
        if not isinstance(value, Tensor):
            return np.array(self.constant(value))
        if id(value) in self._slots:
            return self._slots[id(value)][1]
        if value.requires_grad:
            raise RecordingError("a tensor from outside requires a gradient; pass it as an argument")
        shape = self.shape(value.shape)
        plain = value
        for axis, length in enumerate(value.shape):
            if length == self.batch:
                plain = value.narrow(axis, 0, 1)
                if not bool((value == plain).all()):
                    raise RecordingError("numbers that differ between examples come from outside")
        return np.array([self.constant(v) for v in plain.double().flatten().tolist()]).reshape(shape)

    def emit(self, name: str, a: int, b: int | None = None, c: int | None = None) -> int:
        operands = (a, a if b is None else b, a if c is None else c)
        if all(o < 0 for o in operands):
            return self.constant(_fold(name, *(self.constants[-1 - o] for o in operands)))
        if name == "mul":
            for x, y in ((a, b), (b, a)):
                if x is not None and x < 0 and self.constants[-1 - x] == 1.0:
                    assert y is not None
                    return y
        key = (NUMBER[name], *operands)
        if key not in self._known:
            if len(self.code) == self.limit:
                raise RecordingError(f"it has more than {self.limit} instructions")
            self.code.append(key)
            self._known[key] = self.inputs + len(self.code) - 1
        return self._known[key]

    def each(self, name: str, *arrays: np.ndarray) -> np.ndarray:
        """An instruction for each entry of broadcast arrays of slots."""
        spread = np.broadcast_arrays(*arrays)
        flat = [self.emit(name, *map(int, slots)) for slots in zip(*(s.ravel() for s in spread), strict=True)]
        return np.array(flat, dtype=np.int64).reshape(spread[0].shape)

    def fold(self, name: str, slots: np.ndarray, axes: Sequence[int], keep: bool) -> np.ndarray:
        """Reduce some axes by an associative instruction."""
        for axis in sorted((a % slots.ndim for a in axes), reverse=True):
            parts = list(np.moveaxis(slots, axis, 0))
            while len(parts) > 1:  # as a tree, which loses fewer digits than a chain
                paired = [self.each(name, parts[i], parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
                parts = paired + parts[len(paired) * 2 :]
            slots = np.expand_dims(parts[0], axis) if keep else parts[0]
        return slots

    # Operations --------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        tensors = [t for t in _pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        if not any(id(t) in self._slots for t in tensors):
            return result  # whatever it is, it is the same for every input
        name = func.overloadpacket.__name__
        rule = self.rules.get(name)
        if rule is None:
            raise RecordingError(f"there is no instruction for torch's {name}")
        self._check_batch(name, args, kwargs)
        made = rule(self, *args, **kwargs)
        outputs = [t for t in _pytree.tree_leaves(result) if isinstance(t, Tensor)]
        made = made if isinstance(made, list) else [made]
        for tensor, slots in zip(outputs, made, strict=True):
            self._slots[id(tensor)] = (tensor, np.asarray(slots).reshape(self.shape(tensor.shape)))
        return result

    def axis(self, tensor: Tensor, dim: int) -> int:
        """A dimension that isn't the batch."""
        dim = dim % max(tensor.ndim, 1)
        if tensor.ndim and tensor.shape[dim] == self.batch:
            raise RecordingError("examples are mixed")
        return dim

    def _check_batch(self, name: str, args: Any, kwargs: Any) -> None:
        if name in ("sum", "mean", "amax", "amin", "prod") and len(args) < 2 and "dim" not in kwargs:
            raise RecordingError("examples are mixed")


def _fold(name: str, a: float, b: float, c: float) -> float:
    values = [torch.tensor(v, dtype=torch.float64) for v in (a, b, c)]
    return float(evaluate(name, *values))


def evaluate(name: str, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """One instruction, in torch."""
    match name:
        case "lerp":
            return torch.lerp(a, b, c)
        case "select":
            return torch.where(c != 0, a, b)
        case "less":
            return (a < b).to(a.dtype)
        case "less_equal":
            return (a <= b).to(a.dtype)
        case "equal":
            return (a == b).to(a.dtype)
        case "ndtr":
            return torch.special.ndtr(a)
        case "constant":
            return a.detach()
        case _ if name in BINARY:
            return getattr(torch, name)(a, b)
        case _:
            return getattr(torch, name)(a)
