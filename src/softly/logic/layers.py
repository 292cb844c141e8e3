"""A layer of logic gates that learns which gates it has, and the sums that turn bits into scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from softly import tnorms
from softly.logic import gates as gate_table
from softly.logic import parametrizations
from softly.logic import wiring as wirings
from softly.logic.parametrizations import Parametrization
from softly.logic.stack import stack
from softly.tnorms import TNorm

__all__ = ["GroupSum", "LogicLayer", "Logit"]

_INITS = ("normal", "residual")
# Of the gate that passes its first input on, beside fifteen zeros: nine parts in ten.
_RESIDUAL = 5.0


class LogicLayer(nn.Module):
    """Gates with two inputs each, drawn once; which gate each of them is, is learned.

    In training a neuron is a mixture of all its gates, relaxed to [0, 1]; in evaluation it is the gate with the
    largest weight, and bits give bits. As the weight of one gate grows, training becomes evaluation.

    Activations are kept in the dtype of ``x``: bits in bfloat16 with weights in float32 take half the memory.

    Args:
        in_dim: Number of inputs, at least 2.
        out_dim: Number of gates.
        wiring: One of `softly.logic.wiring.names`.
        seed: Of the wiring; None draws one from torch's generator. Weights come from torch's generator.
        parametrization: Name or `softly.logic.parametrizations.Parametrization`. "softmax16" mixes the gates; on
            one hard gate at a time train "straight_through", the most likely one, and "gumbel", one that is drawn.
        init: "normal" draws weights from the standard normal distribution; "residual" starts every gate close to
            passing its first input on, which keeps gradients alive in deep networks.
        grad_factor: Multiplies the gradient in ``x``; above 1 it makes up for gradients that vanish.
        tnorm: Name or `TNorm` of the relaxed gates. The closed form, and with it the kernels, need "probabilistic".
        gates: Names or numbers of the gates to choose from; None for all sixteen.

    Attributes:
        wires: (2, out_dim) The inputs of every gate; part of the ``state_dict``.
        weight: (out_dim, number of gates) What is learned.

    Example:
        >>> layer = softly.logic.LogicLayer(4, 3, seed=0)
        >>> layer(torch.rand(5, 4)).shape
        torch.Size([5, 3])
        >>> layer.eval()(torch.tensor([[0.0, 1.0, 1.0, 0.0]]))
        tensor([[1., 1., 1.]])
    """

    wires: Tensor

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        wiring: str = "random",
        seed: int | None = None,
        parametrization: str | Parametrization = "softmax16",
        init: str = "normal",
        grad_factor: float = 1.0,
        tnorm: str | TNorm = "probabilistic",
        gates: Sequence[str | int] | None = None,
    ) -> None:
        super().__init__()
        name = "softly.logic.LogicLayer"
        self.in_dim, self.out_dim = in_dim, out_dim
        self.wiring = wiring
        self.seed = int(torch.randint(2**32, ())) if seed is None else seed
        self.parametrization = parametrizations.get(parametrization)
        self.tnorm = tnorms.get(tnorm)
        self.gates = gate_table.numbers(gates, function=name)
        if init not in _INITS:
            raise ValueError(f"{name}: init must be one of {', '.join(_INITS)}; got {init!r}.")
        if init == "residual" and 3 not in self.gates:
            raise ValueError(f"{name}: init='residual' needs the gate 'a' among the gates.")
        if not math.isfinite(grad_factor):
            raise ValueError(f"{name}: grad_factor must be finite, got {grad_factor}.")
        self.init, self.grad_factor = init, float(grad_factor)
        self.register_buffer("wires", wirings.wires(wiring, in_dim, out_dim, self.seed))
        self.weight = nn.Parameter(torch.empty(out_dim, len(self.gates)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew; the wires stay."""
        with torch.no_grad():
            if self.init == "normal":
                self.weight.normal_()
            else:
                self.weight.zero_()[:, self.gates.index(3)] = _RESIDUAL

    def gate_ids(self) -> Tensor:
        """(out_dim,) The number of the gate with the largest weight, the lowest one of ties.

        Example:
            >>> layer = softly.logic.LogicLayer(4, 3, seed=0, init="residual")
            >>> layer.gate_ids()
            tensor([3, 3, 3])
        """
        return torch.tensor(self.gates, device=self.weight.device)[self.weight.detach().argmax(-1)]

    @property
    def closed(self) -> bool:
        """Whether four coefficients a gate say everything: with the probabilistic T-norm, and in evaluation.

        Example:
            >>> softly.logic.LogicLayer(4, 3, tnorm="minimum").closed
            False
        """
        return not self.training or isinstance(self.tnorm, tnorms.Probabilistic)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_dim) in [0, 1], or bits, to (..., out_dim)."""
        x, compute, result = prepare(x, self.weight, self.in_dim, "softly.logic.LogicLayer")
        if self.closed:
            c = coefficients([self], compute)
            return stack(x, c, [self.wires], [self.grad_factor]).to(result)
        if self.grad_factor != 1.0:
            x = x * self.grad_factor + (x * (1.0 - self.grad_factor)).detach()
        a, b = x.to(compute)[..., self.wires].unbind(-2)
        p = self.parametrization.mix(self.weight.to(compute), torch.eye(len(self.gates)).to(x.device, compute))
        return (gate_table.relaxed(a, b, tnorm=self.tnorm)[..., self.gates] * p).sum(-1).to(result)

    def extra_repr(self) -> str:
        """What a printed layer says of itself."""
        return f"{self.in_dim}, {self.out_dim}, wiring={self.wiring!r}, seed={self.seed}"


def coefficients(layers: Sequence[LogicLayer], dtype: torch.dtype) -> Tensor:
    """The numbers c of ``c0 + c1 a + c2 b + c3 ab`` of all gates of layers that are made alike, (gates, 4).

    In training they belong to mixtures, in evaluation to one gate each.
    """
    first = layers[0]
    if first.training:
        return first.parametrization.coefficients([layer.weight.to(dtype) for layer in layers], first.gates)
    ids = torch.cat([layer.gate_ids() for layer in layers])
    return gate_table.COEFFICIENTS.to(first.weight.device, dtype)[ids]


def prepare(x: Tensor, weight: Tensor, in_dim: int, function: str) -> tuple[Tensor, torch.dtype, torch.dtype]:
    """Check the input; floating-point ``x``, the dtype to compute in and that of the result."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{function}: x must be a tensor, got {type(x).__name__}.")
    if x.ndim == 0 or x.shape[-1] != in_dim:
        raise ValueError(f"{function}: x must be of shape (..., {in_dim}), got {tuple(x.shape)}.")
    if x.is_complex():
        raise TypeError(f"{function}: x must be real, got {x.dtype}.")
    result = torch.promote_types(x.dtype, weight.dtype) if x.is_floating_point() else weight.dtype
    if x.dtype not in (torch.bfloat16, torch.float16):
        x = x.to(result)
    return x, torch.promote_types(result, torch.float32), result


class GroupSum(nn.Module):
    """Sums of k groups of neighbours, as scores: ``sum / tau + beta``.

    In evaluation the sums count bits. More neurons a group need a larger ``tau``, so that the softmax over the scores
    does not saturate.

    Args:
        k: Number of groups: classes, or numbers to predict. It has to divide the number of inputs.
        tau: Temperature, positive.
        beta: Offset, for regression.

    Example:
        >>> softly.logic.GroupSum(2, tau=2.0)(torch.tensor([1.0, 1.0, 0.0, 1.0]))
        tensor([1.0000, 0.5000])
    """

    def __init__(self, k: int, *, tau: float = 1.0, beta: float = 0.0) -> None:
        super().__init__()
        name = "softly.logic.GroupSum"
        if k < 1:
            raise ValueError(f"{name}: k must be at least 1, got {k}.")
        if not (tau > 0 and math.isfinite(tau)):
            raise ValueError(f"{name}: tau must be positive and finite, got {tau}.")
        if not math.isfinite(beta):
            raise ValueError(f"{name}: beta must be finite, got {beta}.")
        self.k, self.tau, self.beta = k, float(tau), float(beta)

    def check(self, features: int) -> None:
        """Raise a ValueError where so many inputs can't be put into k groups of one size.

        Example:
            >>> softly.logic.GroupSum(3).check(6)
        """
        if features == 0 or features % self.k:
            raise ValueError(f"softly.logic.GroupSum: k = {self.k} must divide the number of inputs, got {features}.")

    def scores(self, sums: Tensor) -> Tensor:
        """Sums to scores.

        Example:
            >>> softly.logic.GroupSum(2, tau=4.0, beta=1.0).scores(torch.tensor([0.0, 8.0]))
            tensor([1., 3.])
        """
        scores = sums / self.tau
        return scores + self.beta if self.beta else scores

    def forward(self, x: Tensor) -> Tensor:
        """(..., n) to (..., k)."""
        self.check(x.shape[-1])
        if not x.is_floating_point():
            x = x.to(torch.get_default_dtype())
        wide = torch.promote_types(x.dtype, torch.float32)
        # Neurons first, as layers leave them: then the gradient comes in the order in which they want it.
        sums = x.movedim(-1, 0).unflatten(0, (self.k, -1)).sum(1, dtype=wide).movedim(0, -1)
        return self.scores(sums).to(x.dtype)

    def extra_repr(self) -> str:
        """What a printed module says of itself."""
        return f"{self.k}, tau={self.tau:g}, beta={self.beta:g}"


class Logit(nn.Module):
    """``log(x / (1 - x))``, for scores in [0, 1] that stand for all real numbers.

    It comes after ``GroupSum(k, tau=size)`` with groups of that size. A count of none or all stands for half a count
    from the border, which keeps values and gradients finite.

    Args:
        size: Number of neurons in a group.

    Example:
        >>> softly.logic.Logit(100)(torch.tensor([0.0, 0.5, 1.0]))
        tensor([-5.2933,  0.0000,  5.2933])
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"softly.logic.Logit: size must be at least 1, got {size}.")
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """(...) in [0, 1] to (...)."""
        return torch.logit(x, 0.5 / self.size)
