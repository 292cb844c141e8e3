"""T-conorms over many operands, as their definitions read."""

import torch
from torch import Tensor


def probabilistic_any(x: Tensor) -> Tensor:
    return 1 - torch.prod(1 - x, dim=-1)


def einstein_any(x: Tensor) -> Tensor:
    return torch.tanh(torch.atanh(x).sum(-1))


def yager_any(x: Tensor, p: float) -> Tensor:
    return torch.clamp((x**p).sum(-1) ** (1 / p), max=1)
