"""Layers of gates in the closed form: four coefficients a gate, whatever mixture of gates it is.

Inside, neurons come first and examples last: a gate reads two rows and writes one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from softly import native
from softly.logic.gates import COEFFICIENTS


def reference(
    rows: Tensor,
    coefficients: Tensor,
    wires: Sequence[Tensor],
    grad_factors: Sequence[float],
    groups: int,
) -> Tensor:
    """The stack in torch operations.

    Args:
        rows: (in_dim, batch) Activations; their dtype is that of all activations between the layers.
        coefficients: (gates, 4) Of all layers, one after the other, at least in single precision.
        wires: For each layer (2, gates) rows of the layer below.
        grad_factors: For each layer what multiplies the gradient in its input.
        groups: 0 for the last layer's rows, or the number of groups that they are summed in.

    Returns:
        (gates of the last layer, batch) or (groups, batch), in the dtype of the coefficients.
    """
    storage = rows.dtype
    layers = zip(coefficients.split(_sizes(wires)), wires, grad_factors, strict=True)
    for chosen, (first, second), factor in layers:
        rows = rows.to(storage)
        if factor != 1.0:
            rows = rows * factor + (rows * (1.0 - factor)).detach()
        a, b = rows.index_select(0, first).to(chosen.dtype), rows.index_select(0, second).to(chosen.dtype)
        c0, c1, c2, c3 = chosen.unsqueeze(-1).unbind(1)
        rows = (c3 * a + c2) * b + (c1 * a + c0)
    return rows.unflatten(0, (groups, -1)).sum(1) if groups else rows


def _sizes(wires: Sequence[Tensor]) -> list[int]:
    return [pairs.shape[1] for pairs in wires]


def _shape(rows: Tensor, coefficients: Tensor, wires: list[Tensor], grad_factors: list[float], groups: int) -> Tensor:
    return coefficients.new_empty(groups or wires[-1].shape[1], rows.shape[1])


def _forward(rows: Tensor, coefficients: Tensor, wires: list[Tensor], grad_factors: list[float], groups: int) -> Tensor:
    out = _shape(rows, coefficients, wires, grad_factors, groups)
    places, sizes = _addresses(wires), array("q", _sizes(wires))
    status = native.kernel("logic_forward", rows.dtype)(
        rows.data_ptr(),
        coefficients.data_ptr(),
        places.buffer_info()[0],
        sizes.buffer_info()[0],
        len(wires),
        *rows.shape,
        groups,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    _check(status)
    return out


def _backward(
    grad: Tensor,
    rows: Tensor,
    coefficients: Tensor,
    wires: list[Tensor],
    grad_factors: list[float],
    groups: int,
    wanted: list[bool],
) -> list[Tensor]:
    grad_rows = torch.empty_like(rows) if wanted[0] else rows.new_empty(0)
    grad_coefficients = torch.empty_like(coefficients)
    places, sizes, factors = _addresses(wires), array("q", _sizes(wires)), array("d", grad_factors)
    status = native.kernel("logic_backward", rows.dtype)(
        rows.data_ptr(),
        coefficients.data_ptr(),
        places.buffer_info()[0],
        sizes.buffer_info()[0],
        factors.buffer_info()[0],
        len(wires),
        *rows.shape,
        groups,
        grad.data_ptr(),
        grad_rows.data_ptr() if wanted[0] else 0,
        grad_coefficients.data_ptr(),
        torch.get_num_threads(),
    )
    _check(status)
    return [grad_rows, grad_coefficients if wanted[1] else coefficients.new_empty(0)]


def _addresses(tensors: Sequence[Tensor]) -> array[int]:
    return array("Q", [tensor.data_ptr() for tensor in tensors])


def _check(status: int) -> None:
    if status < 0:
        raise IndexError("softly.logic: wires lead to inputs that don't exist.")
    if status == 0:
        raise MemoryError("softly.logic: not enough memory for the activations of a few examples.")


_native_stack = native.Operator(
    "logic_stack",
    forward=_forward,
    shape=_shape,
    backward=_backward,
    reference=reference,
    tensors=2,
    dtypes=(torch.float32, torch.float64, torch.bfloat16),
)
# What activations are stored in, and what is computed in.
_KERNELS = {
    (torch.float32, torch.float32),
    (torch.float64, torch.float64),
    (torch.bfloat16, torch.float32),
}


def stack(
    x: Tensor,
    coefficients: Tensor,
    wires: Sequence[Tensor],
    grad_factors: Sequence[float],
    groups: int = 0,
) -> Tensor:
    """The same with examples first: (..., in_dim) to (..., gates of the last layer) or (..., groups)."""
    rows = x.reshape(-1, x.shape[-1]).t()
    function = _native_stack if (x.dtype, coefficients.dtype) in _KERNELS else reference
    result = function(rows, coefficients, [pairs.contiguous() for pairs in wires], list(grad_factors), groups)
    return result.t().reshape(*x.shape[:-1], result.shape[0])


_COEFFICIENTS = COEFFICIENTS.tolist()


def _softmax_reference(weights: Sequence[Tensor]) -> Tensor:
    # Made here and not kept, since a transform that is compiled takes no tensors from outside.
    table = weights[0].new_tensor(_COEFFICIENTS)
    return torch.cat([torch.softmax(weight, -1) @ table for weight in weights])


def _softmax_shape(weights: Sequence[Tensor]) -> Tensor:
    return weights[0].new_empty(sum(weight.shape[0] for weight in weights), 4)


def _softmax_forward(weights: list[Tensor]) -> Tensor:
    out = _softmax_shape(weights)
    kernel, threads = native.kernel("gate_coefficients", out.dtype), torch.get_num_threads()
    for weight, to in zip(weights, _parts(out, weights), strict=True):
        kernel(weight.data_ptr(), to, weight.shape[0], threads)
    return out


def _softmax_backward(grad: Tensor, weights: list[Tensor], wanted: list[bool]) -> list[Tensor]:
    kernel, threads = native.kernel("gate_coefficients_backward", grad.dtype), torch.get_num_threads()
    grads = []
    for weight, above, needed in zip(weights, _parts(grad, weights), wanted, strict=True):
        grads.append(torch.empty_like(weight) if needed else weight.new_empty(0))
        if needed:
            kernel(weight.data_ptr(), above, grads[-1].data_ptr(), weight.shape[0], threads)
    return grads


def _parts(rows: Tensor, weights: list[Tensor]) -> Iterator[int]:
    """Where in memory the rows of each layer begin."""
    sizes = (weight.shape[0] * rows.shape[1] * rows.element_size() for weight in weights[:-1])
    return accumulate(sizes, initial=rows.data_ptr())


# Coefficients of the mixtures of all sixteen gates: (n, 16) weights of several layers to (sum of n, 4).
softmax_coefficients = native.Operator(
    "gate_coefficients",
    forward=_softmax_forward,
    shape=_softmax_shape,
    backward=_softmax_backward,
    reference=_softmax_reference,
    tensors=None,
)
