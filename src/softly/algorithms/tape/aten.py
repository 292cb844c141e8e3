"""What the operations of torch do to the slots of a `Recorder`, by their names in torch.ops.aten."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softly.algorithms.tape.recorder import Recorder, RecordingError

RULES: dict[str, Callable[..., Any]] = {}
_PRODUCTS = {*range(-8, 0), *range(1, 9)}  # exponents of powers that are products


def _rule(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def _unary(name: str) -> Callable[..., Any]:
    return lambda r, x: r.each(name, r.slots(x))


def _binary(name: str, swapped: bool = False) -> Callable[..., Any]:
    def rule(r: Recorder, x: Any, y: Any) -> np.ndarray:
        return r.each(name, r.slots(y), r.slots(x)) if swapped else r.each(name, r.slots(x), r.slots(y))

    return rule


for _name in ("neg", "sigmoid", "exp", "log", "sqrt", "tanh", "abs", "sin", "cos", "floor", "sign", "log1p", "expm1"):
    RULES[_name] = _unary(_name)
RULES.update(
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
)


def _sum_like(name: str, swapped: bool) -> Callable[..., Any]:
    def rule(r: Recorder, x: Any, y: Any, alpha: float = 1) -> np.ndarray:
        a, b = r.slots(x), r.slots(y)
        if swapped:
            return r.each(name, b, a if alpha == 1 else r.each("mul", a, r.slots(alpha)))
        return r.each(name, a, b if alpha == 1 else r.each("mul", b, r.slots(alpha)))

    return rule


RULES.update(add=_sum_like("add", False), sub=_sum_like("sub", False), rsub=_sum_like("sub", True))


@_rule("ne")
def _ne(r: Recorder, x: Any, y: Any) -> np.ndarray:
    return r.each("sub", r.slots(1.0), r.each("equal", r.slots(x), r.slots(y)))


def _truth(r: Recorder, x: Any) -> np.ndarray:
    """1 where x is not 0, which NaN is not."""
    return r.slots(x) if _is_truth(x) else _ne(r, x, 0.0)


def _bits(r: Recorder, x: Any) -> np.ndarray:
    if not _is_truth(x):
        raise RecordingError("there is no instruction for bits of whole numbers")
    return r.slots(x)


def _is_truth(x: Any) -> bool:
    return x.dtype is torch.bool if isinstance(x, Tensor) else isinstance(x, bool)


for _kind, _operand in (("logical", _truth), ("bitwise", _bits)):

    @_rule(f"{_kind}_and")
    def _and(r: Recorder, x: Any, y: Any, operand: Callable[..., np.ndarray] = _operand) -> np.ndarray:
        return r.each("mul", operand(r, x), operand(r, y))

    @_rule(f"{_kind}_or")
    def _or(r: Recorder, x: Any, y: Any, operand: Callable[..., np.ndarray] = _operand) -> np.ndarray:
        return r.each("maximum", operand(r, x), operand(r, y))

    @_rule(f"{_kind}_not")
    def _not(r: Recorder, x: Any, operand: Callable[..., np.ndarray] = _operand) -> np.ndarray:
        return r.each("sub", r.slots(1.0), operand(r, x))


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


@_rule("rsqrt")
def _rsqrt(r: Recorder, x: Any) -> np.ndarray:
    return r.each("div", r.slots(1.0), r.each("sqrt", r.slots(x)))


@_rule("square")
def _square(r: Recorder, x: Any) -> np.ndarray:
    return r.each("mul", r.slots(x), r.slots(x))


@_rule("atan")
def _atan(r: Recorder, x: Any) -> np.ndarray:
    return r.each("atan2", r.slots(x), r.slots(1.0))


@_rule("acos")
def _acos(r: Recorder, x: Any) -> np.ndarray:
    slots, one = r.slots(x), r.slots(1.0)
    return r.each("atan2", r.each("sqrt", r.each("mul", r.each("sub", one, slots), r.each("add", one, slots))), slots)


@_rule("relu")
def _relu(r: Recorder, x: Any) -> np.ndarray:
    return r.each("select", r.slots(0.0), r.slots(x), r.each("less_equal", r.slots(x), r.slots(0.0)))


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
    base, power = np.broadcast_arrays(r.slots(x), r.slots(exponent))
    flat = [_power(r, b, e) for b, e in zip(base.ravel(), power.ravel(), strict=True)]
    return np.array(flat, dtype=np.int64).reshape(base.shape)


def _power(r: Recorder, base: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    number = r.constants[-1 - exponent] if exponent < 0 else math.nan
    if number == 0.5:
        return r.each("sqrt", base)
    if number in _PRODUCTS:
        result = base
        for _ in range(int(abs(number)) - 1):
            result = r.each("mul", result, base)
        return result if number > 0 else r.each("div", r.slots(1.0), result)
    return r.each("pow", base, exponent)


@_rule("lerp")
def _lerp(r: Recorder, start: Any, end: Any, weight: Any) -> np.ndarray:
    return r.each("lerp", r.slots(start), r.slots(end), r.slots(weight))


@_rule("where")
def _where(r: Recorder, condition: Any, x: Any, y: Any) -> np.ndarray:
    return r.each("select", r.slots(x), r.slots(y), r.slots(condition))


@_rule("nan_to_num")
def _nan_to_num(r: Recorder, x: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> np.ndarray:
    if nan == nan or posinf is None or neginf is None:
        raise RecordingError("NaN can't be replaced")
    slots = r.slots(x)
    for bound, large in ((float("inf"), posinf), (float("-inf"), neginf)):
        endless = r.each("equal", slots, np.array(r.constant(bound)))
        slots = r.each("select", np.array(r.constant(large)), slots, endless)
    return slots


@_rule("clamp")
def _clamp(r: Recorder, x: Any, min: Any = None, max: Any = None) -> np.ndarray:
    # The derivative at the bounds is 1, as in torch, so that this is no minimum.
    slots = r.slots(x)
    if min is not None:
        low = r.slots(min)
        slots = r.each("select", low, slots, _beyond(r, r.each("less", slots, low), low))
    if max is not None:
        high = r.slots(max)
        slots = r.each("select", high, slots, _beyond(r, r.each("less", high, slots), high))
    return slots


def _beyond(r: Recorder, outside: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Where a bound holds: outside of it, and where it is NaN, which constants are not."""
    if (bound < 0).all():
        return outside
    return r.each("maximum", outside, r.each("sub", r.slots(1.0), r.each("equal", bound, bound)))


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
