"""Tasks that learn by gradient descent, one batch a step."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from softly_lab.runner import Task


class Training(Task):
    """A model, an optimizer, and a loss that draws its own batch.

    Attributes:
        model: What is trained.
        optimizer: Of its parameters.
        batched: Whether steps draw batches, so that several processes can share them.
        parallel: The model as several processes train it.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batched = True
    parallel: nn.Module | None = None

    def __init__(self) -> None:
        self._losses: list[float] = []

    @abstractmethod
    def loss(self, number: int) -> Tensor:
        """The loss of a batch, a scalar."""

    def step(self, number: int) -> None:
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        with self._shared():
            loss = self.loss(number)
        loss.backward()
        self.optimizer.step()
        self._losses.append(loss.item())

    @contextmanager
    def _shared(self) -> Iterator[None]:
        model = self.model
        self.model = self.parallel or model
        try:
            yield
        finally:
            self.model = model

    def measure(self) -> dict[str, float]:
        """The mean loss since the last time, and what `test` says."""
        self.model.eval()
        mean = sum(self._losses) / max(len(self._losses), 1)
        self._losses.clear()
        with torch.no_grad():
            return {"loss": mean, **self.test()}

    @abstractmethod
    def test(self) -> dict[str, float]:
        """How good the model is, by names."""

    def state(self) -> Any:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "losses": list(self._losses),
        }

    def load(self, state: Any) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._losses = list(state["losses"])
