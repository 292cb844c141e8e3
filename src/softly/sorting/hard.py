"""The hard operators that sorters relax: sorted values, permutation matrices, ranks and the k largest of lists."""

from __future__ import annotations

import torch
from torch import Tensor

from softly.sorting.lists import backwards


def _order(x: Tensor, valid: Tensor | None) -> Tensor:
    if valid is not None:
        x = torch.where(valid, x, torch.inf)
        absent_last = torch.argsort((~valid).to(torch.uint8), dim=-1, stable=True)
        return absent_last.gather(-1, torch.argsort(x.gather(-1, absent_last), dim=-1, stable=True))
    return torch.argsort(x, dim=-1, stable=True)


def values(x: Tensor, valid: Tensor | None) -> Tensor:
    """The sorted values of the entries that are there, and zeros behind them."""
    values = x.gather(-1, _order(x, valid))
    return values if valid is None else torch.where(_present(valid), values, 0.0)


def _present(valid: Tensor) -> Tensor:
    return torch.arange(valid.shape[-1], device=valid.device) < valid.sum(-1, keepdim=True)


def matrix(x: Tensor, valid: Tensor | None) -> Tensor:
    """The permutation matrices, ``P[rank, input]``."""
    matrix = _one_hot(_order(x, valid))
    return matrix if valid is None else matrix & _present(valid).unsqueeze(-1)


def ranks(x: Tensor, valid: Tensor | None) -> Tensor:
    """The ranks from 1, and 0 for what is not there."""
    ranks = torch.argsort(_order(x, valid), dim=-1) + 1
    return ranks if valid is None else torch.where(valid, ranks, 0)


def top(x: Tensor, valid: Tensor | None, k: int) -> Tensor:
    """The rows of the k largest, from the largest."""
    return backwards(matrix(x, valid), x, valid, -2)[..., :k, :]


def _one_hot(index: Tensor) -> Tensor:
    return index.unsqueeze(-1) == torch.arange(index.shape[-1], device=index.device)
