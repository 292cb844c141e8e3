"""SoftSort: a softmax over the distances to the sorted values."""

from __future__ import annotations

import torch
from torch import Tensor

from softly.sorting.sorter import Sorter

__all__ = ["SoftSort"]


class SoftSort(Sorter):
    """SoftSort (Prillo and Eisenschlos, 2020): row r is ``softmax(-steepness * |sort(x)[r] - x|)``.

    As ``steepness -> inf`` the matrix is the permutation of ``torch.sort``; at every steepness its rows, but not
    its columns, sum to 1. At n = 2 it is the logistic swap. It costs O(n²) and is the cheapest matrix there is.

    Args:
        steepness: Inverse temperature, > 0, or "auto".

    Example:
        >>> softly.SoftSort(steepness=1.0).permutation(torch.tensor([1.0, 0.0]))
        tensor([[0.2689, 0.7311],
                [0.7311, 0.2689]])
    """

    def _permutation(self, x: Tensor, steepness: float | Tensor) -> Tensor:
        return _toward(torch.sort(x, -1).values, x, steepness)

    def _topk(self, x: Tensor, steepness: float | Tensor, k: int) -> Tensor:
        return _toward(torch.topk(x, k, -1).values, x, steepness)


def _toward(values: Tensor, x: Tensor, steepness: float | Tensor) -> Tensor:
    """Rows for the order statistics ``values``."""
    values, x = values * steepness, x * steepness
    return torch.softmax(-(values.unsqueeze(-1) - x.unsqueeze(-2)).abs(), -1)
