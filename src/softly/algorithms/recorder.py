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

aten = torch.ops.aten

# In the order of native/tape.h.
OPERATIONS = (
    *("add", "sub", "mul", "div", "neg", "lerp", "sigmoid", "exp", "log", "sqrt", "tanh", "abs", "minimum", "maximum"),
    *("less", "less_equal", "equal", "select", "atan2", "sin", "cos", "ndtr", "floor", "sign", "constant"),
    *("log1p", "expm1"),
)
NUMBER = {name: i for i, name in enumerate(OPERATIONS)}


class RecordingError(Exception):
    """What a tape has no instruction for. Not a TypeError, which torch would take for its own."""


class Recorder(TorchDispatchMode):
    """Sees the operations on tensors that descend from `follow`-ed ones.

    Args:
        batch: The number of made-up examples; a dimension of this length is the batch, so that no other may be.
    """

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch = batch
        self.inputs = 0
        self.code: list[tuple[int, int, int, int]] = []  # operation and operands; slots ~c are constants
        self.constants: list[float] = []
        self._constant: dict[float, int] = {}
        self._known: dict[tuple[int, ...], int] = {}
        self._slots: dict[int, tuple[Tensor, np.ndarray]] = {}

    # Slots -------------------------------------------------------------------------------------------------------
    # Inputs and instructions count from 0 in the order of their appearance; the constant c is -1 - c.

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape in which the batch has length 1, since all of it shares a slot."""
        if sum(s == self.batch for s in shape) > 1 or any(s != self.batch and s % self.batch == 0 for s in shape if s):
            raise RecordingError("examples are mixed")
        return tuple(1 if s == self.batch else s for s in shape)

    def follow(self, tensor: Tensor) -> None:
        """Make a tensor (batch, ...) an input."""
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
        rule = _RULES.get(name)
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
        case "add" | "sub" | "mul" | "div" | "minimum" | "maximum" | "atan2":
            return getattr(torch, name)(a, b)
        case _:
            return getattr(torch, name)(a)


# Rules: what an operation of torch does to slots -----------------------------------------------------------------

_RULES: dict[str, Callable[..., Any]] = {}


def _rule(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _RULES.update(dict.fromkeys(names, function))
        return function

    return register


def _unary(name: str) -> Callable[..., Any]:
    return lambda r, x: r.each(name, r.slots(x))


def _binary(name: str, swapped: bool = False) -> Callable[..., Any]:
    def rule(r: Recorder, x: Any, y: Any) -> np.ndarray:
        return r.each(name, r.slots(y), r.slots(x)) if swapped else r.each(name, r.slots(x), r.slots(y))

    return rule


for _name in ("neg", "sigmoid", "exp", "log", "sqrt", "tanh", "abs", "sin", "cos", "floor", "sign", "log1p", "expm1"):
    _RULES[_name] = _unary(_name)
_RULES.update(
    special_ndtr=_unary("ndtr"),
    detach=_unary("constant"),
    mul=_binary("mul"),
    minimum=_binary("minimum"),
    maximum=_binary("maximum"),
    atan2=_binary("atan2"),
    lt=_binary("less"),
    le=_binary("less_equal"),
    gt=_binary("less", swapped=True),
    ge=_binary("less_equal", swapped=True),
    eq=_binary("equal"),
    bitwise_and=_binary("mul"),
    logical_and=_binary("mul"),
    bitwise_or=_binary("maximum"),
    logical_or=_binary("maximum"),
)


def _sum_like(name: str, swapped: bool) -> Callable[..., Any]:
    def rule(r: Recorder, x: Any, y: Any, alpha: float = 1) -> np.ndarray:
        a, b = r.slots(x), r.slots(y)
        if swapped:
            return r.each(name, b, a if alpha == 1 else r.each("mul", a, r.slots(alpha)))
        return r.each(name, a, b if alpha == 1 else r.each("mul", b, r.slots(alpha)))

    return rule


_RULES.update(add=_sum_like("add", False), sub=_sum_like("sub", False), rsub=_sum_like("sub", True))


@_rule("ne")
def _ne(r: Recorder, x: Any, y: Any) -> np.ndarray:
    return r.each("sub", r.slots(1.0), r.each("equal", r.slots(x), r.slots(y)))


@_rule("logical_not", "bitwise_not")
def _not(r: Recorder, x: Any) -> np.ndarray:
    return r.each("sub", r.slots(1.0), r.slots(x))


@_rule("isnan")
def _isnan(r: Recorder, x: Any) -> np.ndarray:
    return _ne(r, x, x)


@_rule("div")
def _div(r: Recorder, x: Any, y: Any, *, rounding_mode: str | None = None) -> np.ndarray:
    quotient = r.each("div", r.slots(x), r.slots(y))
    if rounding_mode not in (None, "floor"):
        raise RecordingError(f"there is no instruction for torch's div with rounding_mode={rounding_mode!r}")
    return r.each("floor", quotient) if rounding_mode else quotient


@_rule("floor_divide")
def _floor_divide(r: Recorder, x: Any, y: Any) -> np.ndarray:
    return r.each("floor", r.each("div", r.slots(x), r.slots(y)))


@_rule("remainder")
def _remainder(r: Recorder, x: Any, y: Any) -> np.ndarray:
    return r.each("sub", r.slots(x), r.each("mul", r.slots(y), _floor_divide(r, x, y)))


@_rule("reciprocal")
def _reciprocal(r: Recorder, x: Any) -> np.ndarray:
    return r.each("div", r.slots(1.0), r.slots(x))


@_rule("square")
def _square(r: Recorder, x: Any) -> np.ndarray:
    return r.each("mul", r.slots(x), r.slots(x))


@_rule("atan")
def _atan(r: Recorder, x: Any) -> np.ndarray:
    return r.each("atan2", r.slots(x), r.slots(1.0))


@_rule("relu")
def _relu(r: Recorder, x: Any) -> np.ndarray:
    return r.each("select", r.slots(x), r.slots(0.0), r.each("less", r.slots(0.0), r.slots(x)))


@_rule("erf")
def _erf(r: Recorder, x: Any) -> np.ndarray:
    return r.each("sub", r.slots(1.0), _erfc(r, x))


@_rule("erfc")
def _erfc(r: Recorder, x: Any) -> np.ndarray:
    return r.each("mul", r.slots(2.0), r.each("ndtr", r.each("mul", r.slots(x), r.slots(-math.sqrt(2.0)))))


@_rule("ones_like")
def _ones_like(r: Recorder, x: Tensor, **_: Any) -> np.ndarray:
    return np.full(r.slots(x).shape, r.constant(1.0))


@_rule("zeros_like")
def _zeros_like(r: Recorder, x: Tensor, **_: Any) -> np.ndarray:
    return np.full(r.slots(x).shape, r.constant(0.0))


@_rule("pow")
def _pow(r: Recorder, x: Any, exponent: Any) -> np.ndarray:
    base = r.slots(x)
    if isinstance(exponent, Tensor) or not isinstance(x, Tensor):
        return r.each("exp", r.each("mul", r.each("log", base), r.slots(exponent)))
    if exponent == 0.5:
        return r.each("sqrt", base)
    if float(exponent).is_integer() and 0 < abs(exponent) <= 8:
        result = base
        for _ in range(int(abs(exponent)) - 1):
            result = r.each("mul", result, base)
        return r.each("div", r.slots(1.0), result) if exponent < 0 else result
    return r.each("exp", r.each("mul", r.each("log", base), r.slots(float(exponent))))


@_rule("lerp")
def _lerp(r: Recorder, start: Any, end: Any, weight: Any) -> np.ndarray:
    return r.each("lerp", r.slots(start), r.slots(end), r.slots(weight))


@_rule("where")
def _where(r: Recorder, condition: Any, x: Any, y: Any) -> np.ndarray:
    return r.each("select", r.slots(x), r.slots(y), r.slots(condition))


@_rule("clamp")
def _clamp(r: Recorder, x: Any, min: Any = None, max: Any = None) -> np.ndarray:
    # The derivative at the bounds is 1, as in torch, so that this is no minimum.
    slots = r.slots(x)
    if min is not None:
        low = r.slots(min)
        slots = r.each("select", low, slots, r.each("less", slots, low))
    if max is not None:
        high = r.slots(max)
        slots = r.each("select", high, slots, r.each("less", high, slots))
    return slots


@_rule("clamp_min")
def _clamp_min(r: Recorder, x: Any, bound: Any) -> np.ndarray:
    return _clamp(r, x, bound)


@_rule("clone", "alias", "contiguous", "lift_fresh", "_to_copy", "to")
def _same(r: Recorder, x: Any, *_: Any, **__: Any) -> np.ndarray:
    return r.slots(x)


@_rule("view", "_unsafe_view", "reshape", "_reshape_alias")
def _view(r: Recorder, x: Tensor, size: Sequence[int], *_: Any) -> np.ndarray:
    wanted = list(size)
    if -1 in wanted:
        wanted[wanted.index(-1)] = x.numel() // max(-math.prod(wanted), 1)
    return r.slots(x).reshape(r.shape(wanted))


@_rule("unsqueeze")
def _unsqueeze(r: Recorder, x: Tensor, dim: int) -> np.ndarray:
    return np.expand_dims(r.slots(x), dim % (x.ndim + 1))


@_rule("squeeze")
def _squeeze(r: Recorder, x: Tensor, dim: Any = None) -> np.ndarray:
    return r.slots(x)  # the shape of the result says the rest


@_rule("permute")
def _permute(r: Recorder, x: Tensor, dims: Sequence[int]) -> np.ndarray:
    return r.slots(x).transpose([d % x.ndim for d in dims])


@_rule("transpose")
def _transpose(r: Recorder, x: Tensor, first: int, second: int) -> np.ndarray:
    return np.swapaxes(r.slots(x), first, second)


@_rule("t")
def _t(r: Recorder, x: Tensor) -> np.ndarray:
    return r.slots(x).T


@_rule("expand")
def _expand(r: Recorder, x: Tensor, size: Sequence[int], **_: Any) -> np.ndarray:
    slots = r.slots(x)
    known = (1,) * (len(size) - slots.ndim) + slots.shape
    return np.broadcast_to(
        slots, [k if s == -1 else (1 if s == r.batch else s) for s, k in zip(size, known, strict=True)]
    )


@_rule("select")
def _select(r: Recorder, x: Tensor, dim: int, index: int) -> np.ndarray:
    return np.take(r.slots(x), index, axis=r.axis(x, dim))


@_rule("slice")
def _slice(r: Recorder, x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> np.ndarray:
    if x.shape[dim % x.ndim] == r.batch and start in (None, 0) and (end is None or end >= r.batch) and step == 1:
        return r.slots(x)
    key = [slice(None)] * x.ndim
    key[r.axis(x, dim)] = slice(start, end, step)
    return r.slots(x)[tuple(key)]


@_rule("unbind")
def _unbind(r: Recorder, x: Tensor, dim: int = 0) -> list[np.ndarray]:
    return list(np.moveaxis(r.slots(x), r.axis(x, dim), 0))


@_rule("stack")
def _stack(r: Recorder, tensors: Sequence[Tensor], dim: int = 0) -> np.ndarray:
    return np.stack(np.broadcast_arrays(*[r.slots(t) for t in tensors]), dim % (tensors[0].ndim + 1))


@_rule("cat")
def _cat(r: Recorder, tensors: Sequence[Tensor], dim: int = 0) -> np.ndarray:
    return np.concatenate([r.slots(t) for t in tensors], r.axis(tensors[0], dim))


@_rule("split_with_sizes", "split")
def _split(r: Recorder, x: Tensor, sizes: Any, dim: int = 0) -> list[np.ndarray]:
    axis = r.axis(x, dim)
    lengths = [sizes] * -(-x.shape[axis] // sizes) if isinstance(sizes, int) else sizes
    return np.split(r.slots(x), np.cumsum(lengths)[:-1].tolist(), axis)


@_rule("flip")
def _flip(r: Recorder, x: Tensor, dims: Sequence[int]) -> np.ndarray:
    return np.flip(r.slots(x), tuple(r.axis(x, d) for d in dims))


@_rule("constant_pad_nd")
def _pad(r: Recorder, x: Tensor, pad: Sequence[int], value: float = 0) -> np.ndarray:
    slots = r.slots(x)
    widths = [(0, 0)] * slots.ndim
    for i in range(len(pad) // 2):
        widths[-1 - i] = (pad[2 * i], pad[2 * i + 1])
    return np.pad(slots, widths, constant_values=r.constant(value))


@_rule("sum")
def _sum(r: Recorder, x: Tensor, dim: Any, keepdim: bool = False, **_: Any) -> np.ndarray:
    return _reduce(r, "add", x, dim, keepdim)


@_rule("mean")
def _mean(r: Recorder, x: Tensor, dim: Any, keepdim: bool = False, **_: Any) -> np.ndarray:
    axes = [dim] if isinstance(dim, int) else dim
    count = math.prod(x.shape[a] for a in axes)
    return r.each("div", _reduce(r, "add", x, dim, keepdim), r.slots(float(count)))


@_rule("prod")
def _prod(r: Recorder, x: Tensor, dim: int, keepdim: bool = False, **_: Any) -> np.ndarray:
    return _reduce(r, "mul", x, dim, keepdim)


@_rule("amax")
def _amax(r: Recorder, x: Tensor, dim: Any = (), keepdim: bool = False) -> np.ndarray:
    return _reduce(r, "maximum", x, dim, keepdim)


@_rule("amin")
def _amin(r: Recorder, x: Tensor, dim: Any = (), keepdim: bool = False) -> np.ndarray:
    return _reduce(r, "minimum", x, dim, keepdim)


def _reduce(r: Recorder, name: str, x: Tensor, dim: Any, keepdim: bool) -> np.ndarray:
    axes = [dim] if isinstance(dim, int) else list(dim)
    return r.fold(name, r.slots(x), [r.axis(x, a) for a in axes], keepdim)


@_rule("linalg_vector_norm")
def _norm(r: Recorder, x: Tensor, order: float, dim: Any, keepdim: bool = False, **_: Any) -> np.ndarray:
    if order != 2:
        raise RecordingError(f"there is no instruction for torch's linalg_vector_norm of order {order}")
    slots = r.slots(x)
    total = r.fold("add", r.each("mul", slots, slots), [r.axis(x, a) for a in dim], keepdim)
    # At 0, where the norm has no derivative, it counts as 0.
    zero = r.each("equal", total, r.slots(0.0))
    return r.each("select", r.slots(0.0), r.each("sqrt", r.each("select", r.slots(1.0), total, zero)), zero)


@_rule("_softmax")
def _softmax(r: Recorder, x: Tensor, dim: int, _half: bool) -> np.ndarray:
    axis = r.axis(x, dim)
    slots = r.slots(x)
    # The largest is only there for the range of exp, and has no derivative.
    largest = r.each("constant", r.fold("maximum", slots, [axis], True))
    powers = r.each("exp", r.each("sub", slots, largest))
    return r.each("div", powers, r.fold("add", powers, [axis], True))


@_rule("mm", "bmm")
def _matmul(r: Recorder, x: Tensor, y: Tensor) -> np.ndarray:
    a, b = r.slots(x), r.slots(y)
    r.axis(x, -1)
    products = r.each("mul", a[..., :, :, None], b[..., None, :, :])
    return r.fold("add", products, [products.ndim - 2], False)
