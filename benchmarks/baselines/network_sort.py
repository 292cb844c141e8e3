"""Relaxed sorting networks with the Cauchy distribution, layer by layer, each layer vectorised.

`assigned` are layers as one writes them down: both ends of every comparator are read, and assigned. In the others a
layer is one gather and one interpolation, which torch does two to three times as fast: every wire looks at its
partner, or at itself where it has none.
"""

import math

import torch
from torch import Tensor

Layers = list[tuple[Tensor, Tensor]]


def prepare(layers: tuple[tuple[tuple[int, int], ...], ...], n: int) -> Layers:
    """For each layer the partner of every wire, and 1 where a wire gets the smaller value, -1 where the larger."""
    prepared = []
    for layer in layers:
        partner, sign = torch.arange(n), torch.zeros(n)
        for i, j in layer:
            partner[i], partner[j], sign[i], sign[j] = j, i, 1.0, -1.0
        prepared.append((partner, sign))
    return prepared


def assigned(x: Tensor, ends: list[tuple[Tensor, Tensor]], steepness: float, matrix: bool) -> Tensor:
    """The sorted values, or the matrix."""
    n = x.shape[1]
    P = torch.eye(n, dtype=x.dtype).expand(len(x), n, n)
    for i, j in ends:
        a, b = x[:, i], x[:, j]
        keep = torch.atan(steepness * (b - a)) / math.pi + 0.5
        x = x.clone()
        x[:, i] = keep * a + (1 - keep) * b
        x[:, j] = keep * b + (1 - keep) * a
        if matrix:
            a, b, keep = P[:, i], P[:, j], keep.unsqueeze(-1)
            P = P.clone()
            P[:, i] = keep * a + (1 - keep) * b
            P[:, j] = keep * b + (1 - keep) * a
    return P if matrix else x


def values(x: Tensor, layers: Layers, steepness: float) -> Tensor:
    for partner, sign in layers:
        other = x.index_select(1, partner)
        keep = torch.atan(sign * steepness * (other - x)) / math.pi + 0.5
        x = torch.lerp(other, x, keep)
    return x


def permutation(x: Tensor, layers: Layers, steepness: float) -> Tensor:
    n = x.shape[1]
    P = torch.eye(n, dtype=x.dtype).expand(len(x), n, n)
    for partner, sign in layers:
        other = x.index_select(1, partner)
        keep = torch.atan(sign * steepness * (other - x)) / math.pi + 0.5
        x = torch.lerp(other, x, keep)
        P = torch.lerp(P.index_select(1, partner), P, keep.unsqueeze(-1))
    return P
