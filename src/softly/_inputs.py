"""What public functions do with their arguments before any mathematics: checks, and half precision."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from softly import native

_HALF = (torch.bfloat16, torch.float16)
_AUTOCAST = ("cpu", "cuda", "xpu", "mps")


def floating(x: Tensor, function: str, argument: str) -> Tensor:
    """Refuse everything but floating-point tensors."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{function}: {argument} must be a tensor, got {type(x).__name__}.")
    if not x.dtype.is_floating_point:
        raise TypeError(f"{function}: {argument} must be a floating-point tensor, got {x.dtype}.")
    return x


def shaped(x: Tensor, shape: tuple[int, ...], function: str, argument: str) -> Tensor:
    """Refuse everything but floating-point tensors (..., *shape)."""
    floating(x, function, argument)
    if x.ndim < len(shape) or x.shape[x.ndim - len(shape) :] != shape:
        expected = ", ".join(str(size) for size in shape)
        raise ValueError(f"{function}: {argument} must have shape (..., {expected}), got {tuple(x.shape)}.")
    return x


def together(function: str, **batches: torch.Size) -> torch.Size:
    """What batches are broadcast to, or an error that names them."""
    try:
        return torch.broadcast_shapes(*batches.values())
    except RuntimeError:
        found = " and ".join(f"{tuple(shape)} of {name}" for name, shape in batches.items() if shape)
        raise ValueError(f"{function}: batches must broadcast, got {found}.") from None


def number(value: float, function: str, argument: str) -> float:
    """Any kind of real number, numpy's too, as Python's; no truth, text or tensor."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{function}: {argument} must be a number, got {type(value).__name__}.")
    return float(value)


def truth(value: bool, function: str, argument: str) -> bool:
    """True or False, and nothing that counts as one of them."""
    if not isinstance(value, bool):
        raise TypeError(f"{function}: {argument} must be True or False, got {value!r}.")
    return value


def integer(value: int, function: str, argument: str) -> int:
    """Any kind of integer, numpy's too, as Python's; nothing that would have to be rounded."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{function}: {argument} must be an integer, got {type(value).__name__}.")
    return operator.index(value)


def steepness(value: float | Tensor, function: str) -> float | Tensor:
    """Refuse inverse temperatures that aren't positive and finite.

    Where a tensor can't be read, while compiling or under ``torch.func`` or on another device, NaN takes the place of
    what is refused elsewhere: results are NaN then, instead of wrong.
    """
    if isinstance(value, Tensor):
        floating(value, function, "steepness")
        read = native.data(value)
        if read is None or read.device.type != "cpu":
            return torch.where((value > 0) & (value < math.inf), value, math.nan)
        if not (0 < read.item() < math.inf if read.numel() == 1 else bool(((read > 0) & (read < math.inf)).all())):
            worst = read.flatten()[~((read > 0) & (read < math.inf)).flatten()][0].item()
            raise ValueError(f"{function}: steepness must be positive and finite, got a tensor with {worst:g}.")
        return value
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{function}: steepness must be a number or a tensor, got {type(value).__name__}.")
    if not 0 < value < math.inf:
        raise ValueError(f"{function}: steepness must be positive and finite, got {value}.")
    return value


def steepness_of_lists(value: float | Tensor, x: Tensor, function: str) -> float | Tensor:
    """The same for lists (..., n): a tensor is a single number, or has one for each list, of shape (..., 1)."""
    if isinstance(value, Tensor) and value.ndim:
        sizes = zip(value.shape[::-1], x.shape[::-1], strict=False)
        if value.ndim > x.ndim or value.shape[-1] != 1 or any(size not in (1, of) for size, of in sizes):
            raise ValueError(
                f"{function}: a steepness that is a tensor must be a single number or have one for each list, "
                f"of shape {(*x.shape[:-1], 1)}, got {tuple(value.shape)}."
            )
    return steepness(value, function)


class _Rounded(Protocol):
    def to(self, dtype: torch.dtype, /) -> Self: ...


_Result = TypeVar("_Result", bound=_Rounded)


def at_least_single(function: Callable[..., _Result], *tensors: Tensor) -> _Result:
    """Evaluate ``function`` in float32 where ``tensors`` are in half precision, and round its result back.

    Nothing in it is in less than that under autocast either.
    """
    device = tensors[0].device.type
    if device in _AUTOCAST and torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):
            return at_least_single(function, *tensors)
    dtype = tensors[0].dtype
    if dtype in _HALF and all(t.dtype == dtype for t in tensors):
        return function(*(t.float() for t in tensors)).to(dtype)
    return function(*tensors)


def large(x: Tensor) -> float:
    """A number of the dtype of ``x`` that acts like infinity, yet can be squared."""
    return 0.25 * math.sqrt(torch.finfo(x.dtype).max)


def known_finite(x: Tensor) -> bool:
    """Whether ``x`` can be read, and has no infinite entry.

    A finite sum tells, and is many times faster to have than the answer itself.
    """
    read = native.data(x)
    return read is not None and (math.isfinite(read.sum()) or not bool(read.isinf().any()))


def finite(x: Tensor) -> Tensor:
    """Replace ±inf by large numbers; NaN stays."""
    return torch.nan_to_num(x, nan=torch.nan, posinf=large(x), neginf=-large(x))


def unit_range(x: Tensor, function: str, argument: str) -> None:
    """Refuse numbers outside of [0, 1], but for rounding; NaN is no number."""
    low, high = (bound.item() for bound in torch.aminmax(x))
    if math.isnan(low):
        low, high = (bound.item() for bound in torch.aminmax(torch.where(x.isnan(), 0.5, x)))
    rounding = 16.0 * torch.finfo(x.dtype).eps
    if low < -rounding or high > 1.0 + rounding:
        raise ValueError(f"{function}: {argument} must be in [0, 1], got {low:g} to {high:g}.")
