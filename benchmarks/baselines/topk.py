"""Frozen baseline of a selection network: the whole matrix, layer by layer, in vectorised torch."""

import math

import torch
from torch import Tensor


class DenseSelection:
    """Top-k rows of a relaxed network with Cauchy swaps, by n × n matrices."""

    def __init__(self, n: int, layers: list[list[tuple[int, int]]], outputs: list[int], steepness: float) -> None:
        self.n, self.outputs, self.steepness = n, torch.tensor(outputs), steepness
        self.layers = [torch.tensor(layer).T for layer in layers]

    def __call__(self, x: Tensor) -> Tensor:
        P = torch.eye(self.n).expand(len(x), -1, -1)
        for i, j in self.layers:
            a, b = x[:, i], x[:, j]
            keep = torch.atan(self.steepness * (b - a)) / math.pi + 0.5
            x = x.index_copy(1, i, keep * a + (1 - keep) * b).index_copy(1, j, keep * b + (1 - keep) * a)
            rows_i, rows_j, weight = P[:, i], P[:, j], keep.unsqueeze(-1)
            P = P.index_copy(1, i, weight * rows_i + (1 - weight) * rows_j)
            P = P.index_copy(1, j, weight * rows_j + (1 - weight) * rows_i)
        return P[:, self.outputs]
