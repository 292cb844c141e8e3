"""Relaxed sorting networks with the Cauchy distribution, layer by layer, each layer vectorised.

A layer is one gather and one interpolation: every wire looks at its partner, or at itself where it has none.
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
