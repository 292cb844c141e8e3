"""The one mechanism behind ``straight_through=True``: the hard value forward, the soft gradient backward."""

from __future__ import annotations

import torch
from torch import Tensor


def straight_through(hard: Tensor, soft: Tensor) -> Tensor:
    """The value of ``hard`` with the derivatives of ``soft``, of any order and in every mode of differentiation.

    Args:
        hard: (...) What the relaxation tends to, of the shape of ``soft`` and of any dtype.
        soft: (...) The relaxation. Where it is infinite the derivative is 0, since inf - inf is no number.

    Returns:
        (...) of the dtype of ``soft``.
    """
    finite = torch.where(soft.isinf(), 0.0, soft)
    return hard.detach().to(soft.dtype) + (finite - finite.detach())
