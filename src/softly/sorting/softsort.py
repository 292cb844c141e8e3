"""SoftSort: a softmax over the distances to the sorted values."""

from __future__ import annotations

import torch
from torch import Tensor

from softly.sorting.lists import Lists
from softly.sorting.neuralsort import order_statistics
from softly.sorting.sorter import Sorter

__all__ = ["SoftSort"]


class SoftSort(Sorter):
    """SoftSort (Prillo and Eisenschlos, 2020): row r is ``softmax(-steepness * |sort(x)[r] - x|)``.

    As ``steepness -> inf`` the matrix is the permutation of ``torch.sort``; at every steepness its rows, but not
    its columns, sum to 1. At n = 2 it is the logistic swap. It costs O(n²) and is the cheapest matrix there is.

    Args:
        steepness: Inverse temperature, > 0, or "auto".
        straight_through: Whether values are hard, with soft gradients.

    Example:
        >>> softly.SoftSort(steepness=1.0).permutation(torch.tensor([1.0, 0.0]))
        tensor([[0.2689, 0.7311],
                [0.7311, 0.2689]])
    """

    def _permutation(self, x: Tensor, steepness: float | Tensor, lists: Lists | None) -> Tensor:
        return torch.softmax(_logits(order_statistics(x), x, steepness, lists), -1)

    def _log_permutation(self, x: Tensor, steepness: float | Tensor, lists: Lists | None) -> Tensor:
        return torch.log_softmax(_logits(order_statistics(x), x, steepness, lists), -1)

    def _topk(self, x: Tensor, steepness: float | Tensor, k: int) -> Tensor:
        return torch.softmax(_logits(_largest(x, k), x, steepness, None), -1)

    def _log_topk(self, x: Tensor, steepness: float | Tensor, k: int) -> Tensor:
        return torch.log_softmax(_logits(_largest(x, k), x, steepness, None), -1)


def _largest(x: Tensor, k: int) -> Tensor:
    if torch.compiler.is_compiling():
        return order_statistics(x).flip(-1)[..., :k]
    return torch.topk(x, k, -1).values


def _logits(values: Tensor, x: Tensor, steepness: float | Tensor, lists: Lists | None) -> Tensor:
    """Rows for the order statistics ``values``."""
    values, x = values * steepness, x * steepness
    logits = -(values.unsqueeze(-1) - x.unsqueeze(-2)).abs()
    return logits if lists is None else lists.masked(logits)
