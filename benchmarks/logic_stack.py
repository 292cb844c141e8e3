"""Training logic gate networks: forward and backward of a step, without the optimizer's, which all of them share."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from benchmarks.baselines import logic_stack as baseline
from benchmarks.harness import Case, Function
from softly.logic import LogicNetwork


def step(model: nn.Module, x: Tensor, y: Tensor) -> Function:
    """Loss and gradients in all weights, set to None before as an optimizer's ``zero_grad`` does."""

    def call() -> None:
        model.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()

    return call


def cases() -> Iterator[Case]:
    torch.manual_seed(0)
    for in_dim, width, depth, batch in ((784, 8000, 6, 100), (9216, 12000, 4, 100), (17, 24, 6, 100)):
        k = 10 if width > 100 else 2
        network = LogicNetwork(in_dim, [width] * depth, k, tau=10.0, seed=0)
        plain = nn.Sequential(*network.layers, network.head)
        sixteen = nn.Sequential(
            *(baseline.Layer(layer.wires, layer.weight) for layer in network.layers), baseline.GroupSum(k, 10.0)
        )
        x, y = torch.randint(0, 2, (batch, in_dim)).float(), torch.randint(0, k, (batch,))
        torch.testing.assert_close(network(x), sixteen(x), atol=1e-4, rtol=1e-6)
        name = f"{in_dim} → {depth}×{width}, batch {batch}"
        yield Case(f"fused, {name}", step(network, x, y), {"torch, 16 gates": step(sixteen, x, y)})
        yield Case(f"nn.Sequential, {name}", step(plain, x, y), {"torch, 16 gates": step(sixteen, x, y)})
        yield Case(
            f"fused, bfloat16 activations, {name}",
            step(network, x.bfloat16(), y),
            {"softly, float32": step(network, x, y)},
        )
