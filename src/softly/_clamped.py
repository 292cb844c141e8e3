"""The one place where infinite derivatives are clamped.

``x ** p`` has an infinite first derivative at 0 for ``p < 1`` and an infinite second one for ``1 < p < 2``.
Values stay exact here; for ``x < BORDER`` the first derivative is the one at `BORDER` and higher ones are 0. So it is
with the logarithm of a probability at a border that depends on where its digits end.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

BORDER = 1e-12


def near_border(x: Tensor, function: Callable[[Tensor], Tensor], slope: float, border: float = BORDER) -> Tensor:
    """``function(x)`` for ``x >= 0``, with derivative ``slope`` where ``x < border``."""
    small = x < border
    tangent = function(x.detach()) + slope * (x - x.detach())
    return torch.where(small, tangent, function(torch.where(small, 1.0, x)))


def log(p: Tensor) -> Tensor:
    """``log p`` of a probability to all its digits, whose second derivative is finite as well.

    At 0 it is the logarithm of the smallest normal number.
    """
    return _log(p, torch.finfo(p.dtype).tiny ** 0.5)


def log_other(p: Tensor) -> Tensor:
    """``log(1 - p)`` of a probability: below the rounding of 1 the difference has no digits."""
    return _log(1.0 - p, torch.finfo(p.dtype).eps)


def _log(p: Tensor, border: float) -> Tensor:
    tiny = torch.finfo(p.dtype).tiny
    return near_border(p, lambda y: torch.log(y.clamp(min=tiny)), 1.0 / border, border)


def power(x: Tensor, exponent: float) -> Tensor:
    """``x ** exponent`` for ``x >= 0`` and ``exponent > 0``, with finite derivatives everywhere."""
    if exponent == int(exponent):
        return x**exponent
    return near_border(x, lambda y: y**exponent, exponent * BORDER ** (exponent - 1.0))
