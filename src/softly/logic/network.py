"""The usual network: an encoding, layers of gates, and sums of groups, run as one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from softly.logic.encodings import Encoding
from softly.logic.layers import GroupSum, LogicLayer, coefficients, prepare
from softly.logic.parametrizations import Parametrization
from softly.logic.stack import stack
from softly.tnorms import TNorm

__all__ = ["LogicNetwork"]


class LogicNetwork(nn.Module):
    """A stack of logic layers and its scores, equal to the ``nn.Sequential`` of its parts, only faster.

    All layers run as one, over a few examples at a time that fit into the cache. In evaluation scores count bits; as
    weights grow, training becomes evaluation.

    Activations between the layers are kept in the dtype of ``x``: with bits in bfloat16 and weights in float32 they
    take half the memory, and scores are in float32.

    Args:
        in_dim: Number of input bits.
        widths: Number of gates of each layer.
        k: Number of classes, or of numbers to predict; has to divide the last width.
        tau, beta: As in `GroupSum`.
        encoding: Turns rows of numbers into ``in_dim`` bits; None where bits come in.
        seed: In [0, 2^32); layer i has the seed ``seed + i * 2^32``. None draws one from torch's generator.
        wiring, parametrization, init, grad_factor, tnorm, gates: As in `LogicLayer`.

    Attributes:
        encoding: As given.
        layers: The layers of gates.
        head: The `GroupSum`.

    Example:
        >>> network = softly.logic.LogicNetwork(8, [20, 20], 2, tau=5.0, seed=0)
        >>> network(torch.rand(3, 8)).shape
        torch.Size([3, 2])
        >>> bits = torch.randint(0, 2, (3, 8)).bool()
        >>> torch.equal(network.eval()(bits), torch.nn.Sequential(*network.layers, network.head)(bits))
        True
    """

    def __init__(
        self,
        in_dim: int,
        widths: Sequence[int],
        k: int,
        *,
        tau: float = 1.0,
        beta: float = 0.0,
        encoding: Encoding | None = None,
        seed: int | None = None,
        wiring: str = "random",
        parametrization: str | Parametrization = "softmax16",
        init: str = "normal",
        grad_factor: float = 1.0,
        tnorm: str | TNorm = "probabilistic",
        gates: Sequence[str | int] | None = None,
    ) -> None:
        super().__init__()
        name = "softly.logic.LogicNetwork"
        if not widths:
            raise ValueError(f"{name}: widths must name at least one layer.")
        if encoding is not None and encoding.num_bits not in (0, in_dim):
            raise ValueError(f"{name}: the encoding gives {encoding.num_bits} bits, not in_dim = {in_dim}.")
        if seed is None:
            seed = int(torch.randint(2**32, ()))
        if not 0 <= seed < 2**32:
            raise ValueError(f"{name}: seed must be in [0, 2^32), got {seed}.")
        self.encoding = encoding
        self.layers = nn.ModuleList(
            LogicLayer(
                below,
                width,
                wiring=wiring,
                seed=seed + (number << 32),
                parametrization=parametrization,
                init=init,
                grad_factor=grad_factor,
                tnorm=tnorm,
                gates=gates,
            )
            for number, (below, width) in enumerate(zip([in_dim, *widths], widths, strict=False))
        )
        self.head = GroupSum(k, tau=tau, beta=beta)
        self.head.check(widths[-1])

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_dim) in [0, 1] or bits, or with an encoding (..., columns), to (..., k) scores."""
        if self.encoding is not None:
            x = self.encoding(x)
        layers: list[LogicLayer] = list(self.layers)  # type: ignore[arg-type]
        alike = {(layer.training, layer.parametrization, layer.gates) for layer in layers}
        if len(alike) > 1 or not all(layer.closed for layer in layers):
            for layer in layers:
                x = layer(x)
            return self.head(x)
        first = layers[0]
        x, compute, result = prepare(x, first.weight, first.in_dim, "softly.logic.LogicNetwork")
        sums = stack(
            x,
            coefficients(layers, compute),
            [layer.wires for layer in layers],
            [layer.grad_factor for layer in layers],
            self.head.k,
        )
        return self.head.scores(sums).to(result)
