"""Reading and writing arrays at relaxed positions."""

from __future__ import annotations

import torch
from torch import Tensor

from softly.distributions import Distribution

__all__ = ["filter_weights"]


def filter_weights(
    position: Tensor,
    n: int,
    *,
    distribution: Distribution,
    steepness: float | Tensor,
    exact_gradient: bool = False,
) -> Tensor:
    """How much each of n entries counts when an array is read at a real position.

    The density of the perturbation around the position, normalised to sum to 1. The normaliser is not
    differentiated unless ``exact_gradient``, so that learning can't exploit the grid. As ``steepness -> inf``
    all weight is on the nearest entry; positions beyond the ends count as the ends.

    Args:
        position: (...) Real positions.
        n: The number of entries.
        distribution: Its density is the filter.
        steepness: Inverse temperature, > 0.
        exact_gradient: Differentiate the normaliser as well.

    Returns:
        (..., n) Weights that sum to 1.

    Example:
        >>> logistic = softly.distributions.get("logistic")
        >>> softly.algorithms.filter_weights(torch.tensor(1.25), 4, distribution=logistic, steepness=4.0)
        tensor([0.0267, 0.7885, 0.1812, 0.0037])
    """
    if not position.dtype.is_floating_point:
        position = position.to(torch.get_default_dtype())
    grid = torch.arange(n, dtype=position.dtype, device=position.device)
    # Beyond the ends the densities of all entries may vanish, and with them the sum.
    inside = position.clamp(0, n - 1).unsqueeze(-1)
    weights = distribution._pdf((grid - inside) * steepness)
    total = weights.sum(-1, keepdim=True)
    # Between entries all densities may vanish too, if they are narrow: then it is the nearest.
    nearest = ((grid - inside).abs() <= 0.5).to(weights.dtype)
    weights = torch.where(total == 0, nearest, weights)
    total = weights.sum(-1, keepdim=True)
    return weights / (total if exact_gradient else total.detach())


def nearest_weights(position: Tensor, n: int, dtype: torch.dtype) -> Tensor:
    """One-hot weights (..., n) of the nearest entry."""
    index = position.detach().round().clamp(0, n - 1).long()
    return torch.nn.functional.one_hot(index, n).to(dtype)
