"""Soft ranks and sorted values by projection onto the permutahedron: the algorithm of torchsort in numpy and Python."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def _isotonic(y: np.ndarray) -> np.ndarray:
    """Where the blocks of the ascending regression of ``y`` begin, by pool adjacent violators."""
    means: list[float] = []
    begins: list[int] = []
    for i, mean in enumerate(y.tolist()):
        begin = i
        while means and means[-1] >= mean:
            last = begins.pop()
            mean = (means.pop() * (begin - last) + mean * (i + 1 - begin)) / (i + 1 - last)
            begin = last
        means.append(mean)
        begins.append(begin)
    return np.array(begins)


def _block_means(y: np.ndarray, begins: np.ndarray) -> np.ndarray:
    lengths = np.diff(begins, append=len(y))
    return np.repeat(np.add.reduceat(y, begins) / lengths, lengths).astype(y.dtype)


class _Means(torch.autograd.Function):
    """The ascending isotonic regression of every row."""

    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        rows = y.numpy()
        ctx.blocks = [_isotonic(row) for row in rows]
        return torch.from_numpy(np.stack([_block_means(*pair) for pair in zip(rows, ctx.blocks, strict=True)]))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        rows = grad.numpy()
        return torch.from_numpy(np.stack([_block_means(*pair) for pair in zip(rows, ctx.blocks, strict=True)]))


def rank(x: Tensor, steepness: float) -> Tensor:
    ranks = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    z, order = torch.sort(steepness * x)
    return (z - _Means.apply(z - ranks)).gather(-1, torch.argsort(order))


def sort(x: Tensor, steepness: float) -> Tensor:
    ranks = steepness * torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    return ranks - _Means.apply(ranks - torch.sort(x).values)
