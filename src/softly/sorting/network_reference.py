"""Relaxed comparator networks in torch operations: what the kernels compute, for any device and derivative.

With partner[i] the other wire of i's comparator, or i itself, a layer is y + w (y[partner] - y): the matrix of a
layer is (1 - w) I + w swap with the same w on both wires of a comparator. Rows of P follow the same rule, with both
probabilities from their own tails of the distribution, so that small entries of P keep their digits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from softly._cache import bounded
from softly._compiling import constant_result
from softly.distributions import Distribution
from softly.sorting import networks

LARGEST_TABLE = 128
"""Up to how many wires there are tables of a network at every size."""

_BUDGET = 64 << 20


class Wiring(NamedTuple):
    """A network as tensors, the same for all rows, or another one for each of them."""

    layers: list[tuple[Tensor, Tensor]]
    """The partner of every wire, and 1 where it gets the smaller value, -1 where the larger; (n,) or (..., n)."""
    outputs: Tensor
    """The wires of the largest values, from the largest; (k,) or (..., k)."""


def wiring(key: str, like: Tensor) -> Wiring:
    """The network of a key, for rows on the device and of the dtype of ``like``."""
    layers, outputs = _wiring(key)
    device, dtype = like.device, like.dtype
    return Wiring(
        [(torch.tensor(p, device=device), torch.tensor(s, dtype=dtype, device=device)) for p, s in layers],
        torch.tensor(outputs, device=device),
    )


def wiring_by_count(key: str, like: Tensor, count: Tensor) -> Wiring:
    """The same for rows of which only the first ``count`` (..., 1) entries are sorted."""
    partners, signs, outputs = (torch.as_tensor(t, device=like.device) for t in _tables(key))

    def chosen(table: Tensor) -> Tensor:
        # Not by indexing: a single number, as vmap makes one of them, would be read.
        return table.index_select(0, count.reshape(-1)).reshape(*count.shape[:-1], table.shape[-1])

    return Wiring(
        [(chosen(partners[:, layer]), chosen(signs[:, layer]).to(like.dtype)) for layer in range(partners.shape[1])],
        chosen(outputs),
    )


def values(x: Tensor, network: Wiring, distribution: Distribution, steepness: float) -> Tensor:
    """The sorted values."""
    return _swaps(x * steepness, network, distribution)[0] / steepness


def matrix(x: Tensor, network: Wiring, distribution: Distribution, steepness: float) -> Tensor:
    """The permutation matrix."""
    P = constant(torch.eye(x.shape[-1], dtype=x.dtype, device=x.device), x.unsqueeze(-1))
    for other, z, cross in _swaps(x * steepness, network, distribution)[1]:
        P = distribution._cdf(-z).unsqueeze(-1) * P + cross.unsqueeze(-1) * at(P, other, -2)
    return P


def rows(
    x: Tensor, network: Wiring, distribution: Distribution, steepness: float, k: int, weights: Tensor | None
) -> Tensor:
    """The rows of the k largest, or their sums by ``weights`` (m, k): from the last layer to the first, without P."""
    wires = torch.arange(x.shape[-1], device=x.device)
    rows = (network.outputs[..., :k].unsqueeze(-1) == wires).to(x.dtype)
    rows = rows if weights is None else weights @ rows
    rows = constant(rows, x.unsqueeze(-2))
    for other, z, cross in reversed(_swaps(x * steepness, network, distribution)[1]):
        rows = distribution._cdf(-z).unsqueeze(-2) * rows + cross.unsqueeze(-2) * at(rows, other, -1)
    return rows


def _swaps(y: Tensor, network: Wiring, distribution: Distribution) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
    """The values behind the last layer, and each layer's partners, z and probabilities F(z) of swapping."""
    swaps: list[tuple[Tensor, ...]] = []
    for other, sign in network.layers:
        difference = partners(y, other) - y
        z = -sign * difference
        cross = distribution._cdf(z)
        y = y + cross * difference
        swaps.append((other, z, cross))
    return y, swaps


def partners(y: Tensor, other: Tensor) -> Tensor:
    """The values on the wires of the partners."""
    return y.index_select(-1, other) if other.ndim == 1 else y.gather(-1, other)


def at(matrices: Tensor, other: Tensor, dim: int) -> Tensor:
    """The rows (-2) or columns (-1) of the partners."""
    if other.ndim == 1:
        return matrices.index_select(dim, other)
    return matrices.gather(dim, other.unsqueeze(-3 - dim).expand(matrices.shape))


def constant(value: Tensor, y: Tensor) -> Tensor:
    """``value``, broadcast to ``y`` and with derivative 0 in it: a single wire has no comparator to bring one."""
    return torch.where(torch.ones((), dtype=torch.bool, device=y.device), value, y)


@constant_result  # which has to be outside of the cache
def _wiring(key: str) -> tuple[list[tuple[list[int], list[int]]], list[int]]:
    partners, signs, outputs = _arrays(key)
    return list(zip(partners.tolist(), signs.tolist(), strict=True)), outputs.tolist()


@bounded(_BUDGET, size=lambda arrays: sum(array.nbytes for array in arrays))
def _arrays(key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    network = networks.lookup(key)
    partners = np.tile(np.arange(network.n), (network.depth, 1))
    signs = np.zeros((network.depth, network.n), dtype=np.int8)
    layer = np.repeat(np.arange(network.depth), np.diff(network.offsets))
    i, j = network.wires.reshape(-1, 2).T
    partners[layer, i], partners[layer, j], signs[layer, i], signs[layer, j] = j, i, 1, -1
    return partners, signs, np.array(network.outputs)


@constant_result
def _tables(key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return _cached_tables(key)


@bounded(_BUDGET, size=lambda arrays: sum(array.nbytes for array in arrays))
def _cached_tables(key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Partners and signs (n + 1, depth, n) and outputs (n + 1, k) at every size."""
    sizes = [_arrays(networks.resized(key, size)) for size in range(1, networks.lookup(key).n + 1)]
    n, k, depth = len(sizes), len(sizes[-1][2]), max(len(partners) for partners, _, _ in sizes)
    partners = np.tile(np.arange(n), (n + 1, depth, 1))
    signs = np.zeros((n + 1, depth, n), dtype=np.int8)
    outputs = np.zeros((n + 1, k), dtype=np.int64)
    for size, (partner, sign, output) in enumerate(sizes, 1):
        partners[size, : len(partner), :size], signs[size, : len(sign), :size] = partner, sign
        outputs[size, : len(output)] = output
    return partners, signs, outputs
