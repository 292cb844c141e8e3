"""One epoch of training, and what the hard network makes of data."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["evaluate", "train_epoch"]


def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[..., Tensor],
    x: Tensor,
    y: Tensor,
    *,
    weight: Tensor | None = None,
    batch_size: int = 100,
    schedule: torch.optim.lr_scheduler.LRScheduler | None = None,
    generator: torch.Generator | None = None,
) -> float:
    """Go once through the data, in random order; the model is in training mode afterwards.

    Args:
        model: Whatever ``loss(model(x), y)`` makes sense for.
        optimizer: Of the model's parameters.
        loss: Gives a mean over examples.
        x, y: (n, ...) The data.
        weight: (n,) Of examples; then ``loss(model(x), y, weight)`` gives the mean.
        batch_size: Examples a step; the last batch may be smaller.
        schedule: Of the optimizer's rate, by steps.
        generator: Of the order.

    Returns:
        The mean loss.

    Example:
        >>> network = softly.logic.LogicNetwork(4, [8, 8], 2, seed=0)
        >>> optimizer = torch.optim.Adam(network.parameters(), 0.01)
        >>> x = torch.randint(0, 2, (20, 4)).bool()
        >>> loss = torch.nn.functional.cross_entropy
        >>> softly.logic.training.train_epoch(network, optimizer, loss, x, x[:, 0].long()) > 0
        True
    """
    model.train()
    total, wanted = 0.0, (y,) if weight is None else (y, weight)
    for batch in torch.randperm(len(x), generator=generator).split(batch_size):
        optimizer.zero_grad()
        value = loss(model(x[batch]), *(part[batch] for part in wanted))
        value.backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
        total += value.item() * len(batch)
    return total / len(x)


def evaluate(model: nn.Module, x: Tensor, *, batch_size: int = 1024) -> Tensor:
    """What the model gives for the data in evaluation mode, on hard gates; it returns to the mode it was in.

    Example:
        >>> network = softly.logic.LogicNetwork(4, [8, 8], 2, seed=0)
        >>> softly.logic.training.evaluate(network, torch.randint(0, 2, (20, 4)).bool()).shape
        torch.Size([20, 2])
    """
    training = model.training
    model.eval()
    with torch.no_grad():
        result = torch.cat([model(part) for part in x.split(batch_size)])
    model.train(training)
    return result
