"""What public functions do with their arguments before any mathematics: checks, and half precision."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

_HALF = (torch.bfloat16, torch.float16)


def floating(x: Tensor, function: str, argument: str) -> Tensor:
    """Refuse everything but floating-point tensors."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{function}: {argument} must be a tensor, got {type(x).__name__}.")
    if not x.dtype.is_floating_point:
        raise TypeError(f"{function}: {argument} must be a floating-point tensor, got {x.dtype}.")
    return x


def steepness(value: float | Tensor, function: str) -> float | Tensor:
    """Refuse inverse temperatures that aren't positive and finite; a tensor, perhaps learned, is trusted."""
    if isinstance(value, Tensor):
        return value
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{function}: steepness must be a number or a tensor, got {type(value).__name__}.")
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{function}: steepness must be positive and finite, got {value}.")
    return value


def at_least_single(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Evaluate ``function`` in float32 where ``tensors`` are in half precision, and round its result back."""
    dtype = tensors[0].dtype
    if dtype in _HALF and all(t.dtype == dtype for t in tensors):
        return function(*(t.float() for t in tensors)).to(dtype)
    return function(*tensors)


def large(x: Tensor) -> float:
    """A number of the dtype of ``x`` that acts like infinity, yet can be squared."""
    return 0.25 * math.sqrt(torch.finfo(x.dtype).max)


def any_infinite(x: Tensor) -> bool:
    """Whether an entry is infinite. A finite sum says no, and is many times faster to have than the answer itself."""
    return not math.isfinite(x.detach().sum()) and bool(x.isinf().any())


def finite(x: Tensor) -> Tensor:
    """Replace ±inf by large numbers; NaN stays."""
    return torch.nan_to_num(x, nan=torch.nan, posinf=large(x), neginf=-large(x))
