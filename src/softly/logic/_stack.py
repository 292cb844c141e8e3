"""Layers of gates in the closed form: four coefficients a gate, whatever mixture of gates it is.

Inside, neurons come first and examples last: a gate reads two rows and writes one.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def reference(
    rows: Tensor,
    coefficients: Tensor,
    wires: Tensor,
    sizes: Sequence[int],
    grad_factors: Sequence[float],
    groups: int,
) -> Tensor:
    """The stack in torch operations.

    Args:
        rows: (in_dim, batch) Activations; their dtype is that of all activations between the layers.
        coefficients: (gates, 4) Of all layers, one after the other, at least in single precision.
        wires: (2, gates) Each pair counts within the layer below.
        sizes: The number of gates of each layer.
        grad_factors: For each layer what multiplies the gradient in its input.
        groups: 0 for the last layer's rows, or the number of groups that they are summed in.

    Returns:
        (gates of the last layer, batch) or (groups, batch), in the dtype of the coefficients.
    """
    storage = rows.dtype
    layers = zip(coefficients.split(list(sizes)), wires.split(list(sizes), 1), grad_factors, strict=True)
    for chosen, (first, second), factor in layers:
        rows = rows.to(storage)
        if factor != 1.0:
            rows = rows * factor + (rows * (1.0 - factor)).detach()
        a, b = rows.index_select(0, first).to(chosen.dtype), rows.index_select(0, second).to(chosen.dtype)
        c0, c1, c2, c3 = chosen.unsqueeze(-1).unbind(1)
        rows = c0 + c1 * a + (c2 + c3 * a) * b
    return rows.unflatten(0, (groups, -1)).sum(1) if groups else rows


def stack(
    x: Tensor,
    coefficients: Tensor,
    wires: Tensor,
    sizes: Sequence[int],
    grad_factors: Sequence[float],
    groups: int = 0,
) -> Tensor:
    """The same with examples first: (..., in_dim) to (..., gates of the last layer) or (..., groups)."""
    rows = x.reshape(-1, x.shape[-1]).t()
    result = reference(rows, coefficients, wires, sizes, grad_factors, groups)
    return result.t().reshape(*x.shape[:-1], result.shape[0])
