"""Relaxed comparator networks in logarithms, where their probabilities underflow, or lose the digits of small ones.

A layer keeps a wire's row with probability F(-z) and takes the partner's with F(z): in logarithms, what a layer does is
``log(exp(L + log F(-z)) + exp(L[partner] + log F(z)))``. All of it is in float64: in float32 the values between layers
are not exact enough for second derivatives.
"""

from __future__ import annotations

import torch
from torch import Tensor

from softly._logarithms import NOTHING, add, nothing
from softly.distributions import Distribution
from softly.sorting.network_reference import Wiring, at, constant, partners


def matrix(x: Tensor, network: Wiring, distribution: Distribution) -> Tensor:
    """The logarithms of the permutation matrix at steepness 1, of ``x`` (..., n) in float64."""
    same = torch.eye(x.shape[-1], dtype=torch.bool, device=x.device)
    L = constant(_logarithm(same), x.unsqueeze(-1))
    for other, keep, cross in _swaps(x, network, distribution):
        L = add(L + keep.unsqueeze(-1), at(L, other, -2) + cross.unsqueeze(-1))
    return _final(L)


def rows(x: Tensor, network: Wiring, distribution: Distribution, k: int) -> Tensor:
    """The logarithms of the rows of the k largest, from the last layer to the first."""
    wires = torch.arange(x.shape[-1], device=x.device)
    L = constant(_logarithm(network.outputs[..., :k].unsqueeze(-1) == wires), x.unsqueeze(-2))
    for other, keep, cross in reversed(_swaps(x, network, distribution)):
        L = add(L + keep.unsqueeze(-2), at(L, other, -1) + cross.unsqueeze(-2))
    return _final(L)


def _logarithm(indicator: Tensor) -> Tensor:
    return torch.where(indicator, 0.0, NOTHING).double()


def _final(L: Tensor) -> Tensor:
    return torch.where(nothing(L), -torch.inf, L)


def _swaps(y: Tensor, network: Wiring, distribution: Distribution) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Each layer's partners, with the logarithms of the probabilities to keep a wire's row and to take theirs."""
    swaps = []
    for other, sign in network.layers:
        difference = partners(y, other) - y
        z = -sign * difference
        # Bounded distributions have probabilities of 0.
        keep, cross = (distribution._log_cdf(side).clamp(min=NOTHING) for side in (-z, z))
        y = y + distribution._cdf(z) * difference
        swaps.append((other, keep, cross))
    return swaps
