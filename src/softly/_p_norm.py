"""p-norms of rows of numbers >= 0, which T-norms with a power p are made of."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from softly import _clamped, _inputs, native


def reference(x: Tensor, p: float, reduction: str = "") -> Tensor:
    """``(Σ xᵢ^p)^(1/p)`` for ``x >= 0``, p > 0; where all are 0 each has the derivative of a lone one, 1."""
    scale = x.detach().amax(-1, keepdim=True)
    zero = scale == 0
    ratio = x / torch.where(zero, 1.0, scale)
    total = _clamped.power(ratio, p).sum(-1, keepdim=True)
    norm = torch.where(zero, x.sum(-1, keepdim=True), scale * torch.where(zero, 1.0, total) ** (1.0 / p))
    return norm.squeeze(-1)


# The same in fewer passes, at p = 2 by a kernel: the power is taken once, its derivative is a quotient, and rows are
# scaled only where their sum of powers over- or underflows. Where the norm is that of a reduction, "any" or "all",
# entries, or what they lack of 1, must be in [0, 1].


def _uneasy(x: Tensor, norm: Tensor, p: float) -> tuple[Tensor, Tensor] | None:
    """Rows that are 0, and rows whose sum of powers has lost its digits; None where there are none of either."""
    limits = torch.finfo(norm.dtype)
    rate = min(1.0, 1.0 / p)
    least, most = (limits.tiny / limits.eps**2) ** rate, (limits.max * limits.eps) ** rate
    if norm.numel():
        low, high = torch.aminmax(norm)
        if low.item() > least and high.item() < most:  # not where one is NaN
            return None
    lost = ~((norm > least) & (norm < most))
    zero = lost & (x.amax(-1) == 0)
    return zero, lost & ~zero


_PRODUCTS: dict[float, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    2.0: (torch.square, lambda x: x),
    3.0: (lambda x: x.pow(3.0), torch.square),
    4.0: (lambda x: x.square().square_(), lambda x: x.pow(3.0)),
}
"""Powers x^p, and x^(p - 1), that are products: much cheaper than powers, so that nothing has to be kept of them."""


def _shape(x: Tensor, p: float, reduction: str = "") -> tuple[Tensor, Tensor, Tensor]:
    rows = x.shape[:-1]
    return x.new_empty(rows), x.new_empty(rows), x.new_empty(0 if p in _PRODUCTS else x.shape)


def _forward(x: Tensor, p: float, reduction: str = "") -> tuple[Tensor, Tensor, Tensor]:
    powers = x.new_empty(0)
    if p == 2:
        norm = x.new_empty(x.shape[:-1])
        sizes = (norm.numel(), x.shape[-1], torch.get_num_threads())
        if not native.kernel("euclidean", x.dtype)(x.data_ptr(), norm.data_ptr(), *sizes) and reduction:
            _inputs.unit_range(
                x.detach() if reduction == "any" else 1.0 - x.detach(), f"softly.tnorms.{reduction}", "x"
            )
    elif p in _PRODUCTS:
        norm = _PRODUCTS[p][0](x).sum(-1).pow_(1.0 / p)
    else:
        powers = x.pow(p)
        norm = powers.sum(-1).pow_(1.0 / p)
    kept, uneasy = norm.clone(), _uneasy(x, norm, p)
    if uneasy is not None:
        norm[uneasy[1]] = reference(x[uneasy[1]], p)
    return norm, kept, powers


def _backward(grad: Tensor, x: Tensor, norm: Tensor, powers: Tensor, p: float, reduction: str = "") -> Tensor:
    factor = (grad / norm if p == 2 else grad * norm.pow(1.0 - p)).unsqueeze(-1)
    if p in _PRODUCTS:
        result = _PRODUCTS[p][1](x) * factor
    else:
        # Near 0 clamped as `_clamped.power` is, which shows for p < 2; at 0 the quotient would be NaN.
        border = _clamped.BORDER * x.amax(-1, keepdim=True)
        slope = powers / torch.maximum(x, border.clamp(min=torch.finfo(x.dtype).tiny))
        if p < 2 and (x.amin(-1, keepdim=True) < border).any():
            slope = torch.where(x < border, border.pow(p - 1.0), slope)
        result = slope.mul_(factor)
    uneasy = _uneasy(x, norm, p)
    if uneasy is not None:
        zero, lost = uneasy
        result[zero] = grad[zero].unsqueeze(-1)
        with torch.enable_grad():
            rows = x[lost].requires_grad_()
            (result[lost],) = torch.autograd.grad(reference(rows, p), rows, grad[lost])
    return result


_rows = native.Operator(
    "p_norm",
    forward=_forward,
    shape=_shape,
    backward=_backward,
    reference=reference,
)


def p_norm(x: Tensor, p: float, dim: int, reduction: str = "") -> Tensor:
    """``(Σ xᵢ^p)^(1/p)`` along ``dim``, for ``x >= 0`` and p > 0."""
    if p == 1:
        return x.sum(dim)
    return _rows(x.movedim(dim, -1), p, reduction)
