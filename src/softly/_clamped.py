"""The one place where infinite derivatives are clamped.

``x ** p`` has an infinite first derivative at 0 for ``p < 1`` and an infinite second one for ``1 < p < 2``.
Values stay exact here; for ``x < BORDER`` the first derivative is the one at `BORDER` and higher ones are 0. So it is
with the logarithm of a probability below the rounding of 1, whose own digits may be none.
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
    """``log p`` of a probability, that of the smallest normal number at 0, with derivatives as where p is rounding."""
    digits = torch.finfo(p.dtype)
    return near_border(p, lambda y: torch.log(y.clamp(min=digits.tiny)), 1.0 / digits.eps, digits.eps)


def power(x: Tensor, exponent: float) -> Tensor:
    """``x ** exponent`` for ``x >= 0`` and ``exponent > 0``, with finite derivatives everywhere."""
    if exponent == int(exponent):
        return x**exponent
    return near_border(x, lambda y: y**exponent, exponent * BORDER ** (exponent - 1.0))
