"""The values of a run: numbers, batches of numbers and arrays, and what turns one into another."""

from __future__ import annotations

import collections
import copy
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree

from softly.algorithms.engine import dynamo
from softly.algorithms.engine.arrays import Array, Categorical, Store, number
from softly.algorithms.engine.comparators import Comparators, constant
from softly.algorithms.engine.containers import Choice, Dict, List, Maybe, intact
from softly.algorithms.engine.frames import place, program_frames
from softly.algorithms.engine.numbers import Number
from softly.algorithms.engine.protocol import Run
from softly.algorithms.engine.rounding import Arithmetic, Rounding
from softly.algorithms.engine.settings import Settings


class Values(Run):
    """What a run knows of its batch.

    Args:
        settings: How to relax.
        batch: The number of examples.
        static: Let nothing depend on data, as a compiler and function transforms need it.
        guarded: Expect infinities.
    """

    typed = True  # relaxed numbers are of a type of their own, as code needs that was not written for tensors

    def __init__(
        self, settings: Settings, batch: int, dtype: torch.dtype, device: torch.device, static: bool, guarded: bool
    ) -> None:
        self.batch, self.dtype, self.device, self.static, self.guarded = batch, dtype, device, static, guarded
        self.serial = 0  # grows with every region that begins
        self.trusting = False  # whether a check of data was left out, since nothing may depend on data
        self.describing = False  # whether relaxed numbers may be shown, as the message of an exception does
        self.anchor: Tensor | None = None  # a condition that was skipped, through which a gradient of 0 flows
        self.outside: dict[int, Any] = {}  # lists and dicts that belong to others
        self.inputs: Mapping[int, Tensor] = {}  # tensors from outside, as a compiler has them
        self.bare: torch.Size | None = None  # the shape of an argument that is nothing but a batch
        self.rounding = Rounding(self)
        self.careful = Arithmetic(self, self.rounding)
        self._constants: dict[float, Tensor] = {}
        self._units: dict[int, tuple[Tensor, Tensor]] = {}
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        self.settings = settings
        self.comparators = Comparators(settings.distribution, settings.tnorm, settings.hard, self.guarded, self.static)
        self.steepen(settings.steepness)

    def guard(self) -> None:
        """Expect infinities from now on."""
        self.guarded = True
        self.comparators = replace(self.comparators, guarded=True)

    def steepen(self, steepness: float | Tensor) -> None:
        """Compare with another steepness from now on."""
        # As a tensor: torch takes longer over numbers.
        self.steepness = steepness if isinstance(steepness, Tensor) else self.constant(steepness)
        self.downhill = -self.steepness

    def trusts(self) -> bool:
        """Whether to leave out a check of data."""
        self.trusting = self.trusting or self.static
        return self.static

    def error(self, kind: type[Exception], message: str) -> Exception:
        """An exception that names the line of the program."""
        return kind(f"softly.relax: {place(program_frames())}{message}.")

    def no_collection(self, message: str) -> Exception:
        """The exception for a number in the place of a list, which a forgotten batch may have made of it."""
        return self.error(TypeError, message if self.bare is None else message + forgotten_batch(self.bare))

    def constant(self, value: float) -> Tensor:
        found = self._constants.get(value)
        if found is None:
            if not math.isfinite(value):
                self.guard()
                return constant(value, self.dtype, self.device)
            found = self._constants[value] = constant(value, self.dtype, self.device)
        return found

    def number(self, tensor: Tensor) -> Any:
        """A tensor (batch,) as a number of the program."""
        if not self.typed:
            return tensor
        return Number(self, tensor, tensor.dtype is not self.dtype and not tensor.dtype.is_floating_point)

    def entry(self, cell: Any) -> Any:
        """A cell of an array as a number of the program."""
        if type(cell) is Tensor and cell.dtype is self.dtype and self.typed:
            return Number(self, cell)
        return self.number(cell) if isinstance(cell, Tensor) else cell

    def made_list(self, entries: Any) -> List:
        return List(self, entries)

    def made_dict(self, entries: Any) -> Dict:
        return Dict(self, entries)

    def concatenate(self, a: Any, b: Any) -> List:
        if type(a) is Choice or type(b) is Choice:
            a, b = (self.blended(v) if type(v) is Choice else v for v in (a, b))
        if not isinstance(a, list) or not isinstance(b, list):
            kinds = " and ".join(sorted({"an array" if isinstance(v, Array) else type(v).__name__ for v in (a, b)}))
            raise self.error(
                TypeError,
                f"+ of {kinds}: lists are joined by it, arrays are added; give the program lists (lists=True)",
            )
        return List(self, [*intact(a), *intact(b)])

    def hard_int(self, value: Any, what: str) -> int:
        if isinstance(value, (Number, Categorical, Array)):
            raise self.error(TypeError, f"{what} must be a hard int, not a relaxed number")
        return operator.index(value)

    def cell(self, value: Any) -> Any:
        """A value as it can stand in a cell: a number or a tensor of one number per example."""
        if type(value) is Tensor:
            return value
        value = number(value)
        if type(value) is Choice:
            value = self.blended(value)
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, Array):
            if value.shape.numel() != 1:
                raise self.error(ValueError, f"an array of shape {tuple(value.shape)} doesn't fit into one cell")
            return value.cells()[0]
        if not isinstance(value, (Tensor, bool, int, float)):
            raise self.error(TypeError, f"a cell of an array can't hold {type(value).__name__}")
        return value

    def column(self, value: Any) -> Tensor:
        """A number or a tensor as (batch,)."""
        value = number(value)
        if not isinstance(value, Tensor):
            value = self.constant(value)
        return value if value.ndim == 1 else value.expand(self.batch)

    def stack(self, cells: Sequence[Any]) -> Tensor:
        """Cells as a tensor (batch, n)."""
        if not cells:
            return torch.zeros(self.batch, 0, dtype=self.dtype, device=self.device)
        return torch.stack(self.uniform([self.column(c) for c in cells]), 1)

    def columns(self, values: Sequence[Any]) -> list[Tensor]:
        """Numbers and tensors as (batch,), of one dtype: that of the tensors, whatever numbers are beside them."""
        values = [number(v) for v in values]
        given = [v.dtype for v in values if isinstance(v, Tensor) and v.dtype.is_floating_point]
        dtype = functools.reduce(torch.promote_types, given) if given else self.dtype
        columns = [self.column(v) for v in values]
        return [c if c.dtype is dtype else c.to(dtype) for c in columns] if given else self.uniform(columns)

    @staticmethod
    def uniform(tensors: list[Tensor]) -> list[Tensor]:
        """The same tensors, of one dtype."""
        dtype = tensors[0].dtype
        if all(t.dtype == dtype for t in tensors):
            return tensors
        for t in tensors:
            dtype = torch.promote_types(dtype, t.dtype)
        return [t.to(dtype) for t in tensors]

    def array(self, value: Any) -> Array:
        """Anything with entries as an array."""
        if isinstance(value, Array):
            return value
        if type(value) is Choice:
            return self.array(self.blended(value))
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "biuf":
                raise self.error(TypeError, f"a NumPy array of {value.dtype} in a relaxed program")
            return Array(Store(self, value.shape, None, value.ravel().tolist()))
        if isinstance(value, Tensor):
            return Array.of(self, value.expand(self.batch, *value.shape))
        entries = [self.array(v) if isinstance(v, (list, tuple, Choice)) else v for v in intact(value)]
        if entries and isinstance(entries[0], Array):
            if any(not isinstance(e, Array) or e.shape != entries[0].shape for e in entries):
                raise self.error(ValueError, "rows of different lengths are no array")
            cells = [c for entry in entries for c in entry.cells()]
            return Array(Store(self, (len(entries), *entries[0].shape), None, cells))
        return Array(Store(self, (len(entries),), None, [self.cell(v) for v in entries]))

    def cells_like(self, value: Any, shape: tuple[int, ...]) -> list[Any]:
        """The cells of ``value``, broadcast to ``shape``."""
        value = number(value)
        if isinstance(value, (bool, int, float, Tensor)):
            return [value] * int(torch.Size(shape).numel())
        array = self.array(value)
        if tuple(array.shape) == tuple(shape):
            return array.cells()
        return Array.of(self, array.tensor().expand(self.batch, *shape)).cells()

    def wrap(self, value: Any) -> Any:
        """A batched tensor as a value of the program."""
        if isinstance(value, Tensor):
            return Array.of(self, value) if value.ndim > 1 else self.number(value)
        return value

    def outer(self, value: Any) -> Any:
        """A value from outside of the program, which has no batch."""
        kind = type(value)
        if kind is Tensor or kind is torch.nn.Parameter:
            if self.static:
                value = self.inputs[id(value)] if id(value) in self.inputs else dynamo.known(value)
            return self.array(value) if value.ndim else self.number(value)
        if kind is list or kind is dict or isinstance(value, (collections.deque, dict)):
            self.outside[id(value)] = value
            return value
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and self.typed:
            return self.array(value) if value.ndim else value.item()
        return value

    def dense(self, value: Any, ndim: int = 0) -> Any:
        """Arrays and categorical positions as batched tensors, with ones after the batch up to ``ndim`` dimensions."""
        value = number(value)
        if type(value) is Choice:
            value = self.array(value)
        tensor = value.tensor() if isinstance(value, Array) else value
        if isinstance(tensor, Tensor) and tensor.ndim and tensor.ndim < ndim + 1:
            tensor = tensor.reshape(tensor.shape[0], *[1] * (ndim + 1 - tensor.ndim), *tensor.shape[1:])
        return tensor

    def elementwise(self, function: Callable[..., Any], *values: Any) -> Any:
        """A function of corresponding entries."""
        values = tuple(self.array(v) if isinstance(v, (list, tuple, Choice, np.ndarray)) else v for v in values)
        ndim = max(v.ndim if isinstance(v, Array) else 0 for v in values)
        return self.wrap(function(*(self.dense(v, ndim) for v in values)))

    def apply(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A torch function, on each example."""
        leaves, structure = _pytree.tree_flatten((args, kwargs))
        leaves = [self.dense(leaf) for leaf in leaves]
        batched = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.ndim > 0]
        if not batched:
            args, kwargs = _pytree.tree_unflatten(leaves, structure)
            return self.outer(function(*args, **kwargs))

        def example(*tensors: Tensor) -> Any:
            filled = list(leaves)
            for i, tensor in zip(batched, tensors, strict=True):
                filled[i] = tensor
            positional, named = _pytree.tree_unflatten(filled, structure)
            return function(*positional, **named)

        try:
            result = torch.vmap(example, randomness="different")(*(leaves[i] for i in batched))
        except (TypeError, RuntimeError, ValueError, IndexError, AttributeError) as error:
            if str(error).startswith("softly."):
                raise
            name = getattr(function, "__name__", str(function))
            raise self.error(type(error), f"{name}(): {str(error).splitlines()[0].rstrip('.')}") from error
        return _pytree.tree_map(self.wrap, result)

    def same_category(self, p: Tensor, q: Tensor, similarity: str) -> Tensor:
        """`softly.categorical_equal` along the last dimension; what is compared often is normalised once."""
        if self.settings.hard:
            return (p.argmax(-1) == q.argmax(-1)).to(self.dtype)
        if similarity == "cosine":
            p, q = self._unit(p), self._unit(q)
        return torch.linalg.vecdot(p, q)

    def _unit(self, x: Tensor) -> Tensor:
        if id(x) not in self._units:
            self._units[id(x)] = (x, torch.nn.functional.normalize(x, dim=-1, eps=1e-8))
        return self._units[id(x)][1]

    def complement(self, p: Tensor) -> Tensor:
        return torch.sub(self.constant(1.0), p)

    def frozen(self, value: Any) -> Any:
        """A copy that later writes don't reach."""
        kind = type(value)
        if kind is Array:
            return value.copy()
        if kind is List or kind is list:
            return List(self, [self.frozen(v) for v in value])
        if kind is tuple:
            return tuple([self.frozen(v) for v in value])
        if isinstance(value, tuple):
            return type(value)(*(self.frozen(v) for v in value)) if hasattr(value, "_fields") else value
        if kind is Dict or kind is dict:
            return Dict(self, {k: self.frozen(v) for k, v in value.items()})
        if isinstance(value, (collections.deque, dict)):
            content = copy.copy(value)
            if isinstance(content, dict):
                for k, v in content.items():
                    content[k] = self.frozen(v)
                return content
            content.clear()
            content.extend(self.frozen(v) for v in value)
            return content
        if kind is Maybe:
            return Maybe(self.frozen(value.value), value.presence)
        if kind is set:
            return set(value)
        return value

    def blended(self, choice: Choice) -> Any:
        """A collection that depends on a branch, as one of means."""
        (first_weight, first), *rest = choice.options
        result, total = self.frozen(first), first_weight
        for weight, option in rest:
            together = total + weight
            share = torch.where(together > 0, total / torch.where(together > 0, together, 1.0), 0.5)
            (result,) = self.joins.mix(share, [result], [self.frozen(option)], ["a collection"])
            total = together
        return result

    # Arithmetic --------------------------------------------------------------------------------------------------

    def arithmetic(self, name: str, a: Any, b: Any) -> Any:
        """An operation on arrays and positions."""
        for value in (a, b):
            if isinstance(value, (list, tuple)):
                raise self.error(
                    TypeError,
                    f"{name} of an array and a {type(value).__name__}; lists and arrays don't mix (lists=True)",
                )
        return self.elementwise(self.careful.operations[name], a, b)

    # Positions ---------------------------------------------------------------------------------------------------


def forgotten_batch(shape: torch.Size) -> str:
    """What to do where an argument of a shape that is nothing but a batch is taken for a list."""
    return (
        f"; an argument has shape {tuple(shape)}, which is a batch of numbers to the function: "
        "a single example needs a batch of one, x[None], or batch_dims=0"
    )
