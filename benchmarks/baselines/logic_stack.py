"""Logic gate networks as the chapter writes them: every one of the sixteen relaxed gates, weighted by the softmax."""

import torch
from torch import Tensor, nn


def gate(a: Tensor, b: Tensor, i: int) -> Tensor:
    """The i-th relaxed gate of the chapter's table."""
    match i:
        case 0:
            return torch.zeros_like(a)
        case 1:
            return a * b
        case 2:
            return a - a * b
        case 3:
            return a
        case 4:
            return b - a * b
        case 5:
            return b
        case 6:
            return a + b - 2 * a * b
        case 7:
            return a + b - a * b
        case 8:
            return 1 - (a + b - a * b)
        case 9:
            return 1 - (a + b - 2 * a * b)
        case 10:
            return 1 - b
        case 11:
            return 1 - b + a * b
        case 12:
            return 1 - a
        case 13:
            return 1 - a + a * b
        case 14:
            return 1 - a * b
        case _:
            return torch.ones_like(a)


class Layer(nn.Module):
    def __init__(self, wires: Tensor, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("wires", wires.clone())
        self.weight = nn.Parameter(weight.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        a, b = x[:, self.wires[0]], x[:, self.wires[1]]
        p = torch.softmax(self.weight, -1)
        result = torch.zeros_like(a)
        for i in range(16):
            result = result + p[:, i] * gate(a, b, i)
        return result


class GroupSum(nn.Module):
    def __init__(self, k: int, tau: float) -> None:
        super().__init__()
        self.k, self.tau = k, tau

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), self.k, -1).sum(-1) / self.tau
