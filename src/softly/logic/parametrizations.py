"""How numbers that gradient descent can change choose a gate.

A parametrization mixes a table with a row for every gate: the coefficients of the gates, or any other. In training the
mixture is what the layer computes with; in evaluation the gate with the largest weight is taken alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import torch
from torch import Tensor

from softly.logic.gates import COEFFICIENTS
from softly.logic.stack import softmax_coefficients

__all__ = ["Gumbel", "Parametrization", "Softmax", "get", "names"]


class Parametrization(ABC):
    """Weights to mixtures of gates. A subclass defines `mix`.

    Example:
        >>> isinstance(softly.logic.parametrizations.get("softmax16"), softly.logic.parametrizations.Parametrization)
        True
    """

    @abstractmethod
    def mix(self, weight: Tensor, table: Tensor) -> Tensor:
        """The mixtures of the rows of ``table``, (gates, columns), that ``weight``, (n, gates), asks for: (n, columns).

        Example:
            >>> weight = torch.tensor([[0.0, 0.0], [0.0, 3.0]])
            >>> softly.logic.parametrizations.get("softmax16").mix(weight, torch.tensor([[0.0], [1.0]]))
            tensor([[0.5000],
                    [0.9526]])
        """

    def coefficients(self, weights: Sequence[Tensor], gates: tuple[int, ...]) -> Tensor:
        """The same of the gates' coefficients, for the weights of several layers together: (sum of n, 4).

        Example:
            >>> softly.logic.parametrizations.get("softmax16").coefficients([torch.zeros(1, 2)], (1, 7))
            tensor([[0.0000, 0.5000, 0.5000, 0.0000]])
        """
        return self.mix(torch.cat(list(weights)), COEFFICIENTS.to(weights[0])[list(gates)])


@dataclass(frozen=True)
class Softmax(Parametrization):
    """The softmax of the weights is the probability of the gates: the parametrization of the thesis.

    Example:
        >>> softly.logic.parametrizations.Softmax().mix(torch.zeros(1, 2), torch.tensor([[0.0], [1.0]]))
        tensor([[0.5000]])
    """

    def mix(self, weight: Tensor, table: Tensor) -> Tensor:
        return torch.softmax(weight, -1) @ table

    def coefficients(self, weights: Sequence[Tensor], gates: tuple[int, ...]) -> Tensor:
        return softmax_coefficients(weights) if len(gates) == 16 else super().coefficients(weights, gates)


@dataclass(frozen=True)
class Gumbel(Parametrization):
    """One gate at a time: the largest weight after Gumbel noise, with the gradient of the softmax.

    Training then runs on hard gates, as evaluation does, and the gap between the two closes. Without noise this is
    plain straight-through.

    Args:
        temperature: Of the softmax that gives the gradient, > 0.
        scale: Of the noise, >= 0; at 1 a gate is drawn with its softmax probability.

    Example:
        >>> quiet = softly.logic.parametrizations.Gumbel(scale=0.0)
        >>> quiet.mix(torch.tensor([[0.0, 0.1]]), torch.tensor([[0.0], [1.0]]))
        tensor([[1.]])
    """

    _: KW_ONLY
    temperature: float = 1.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        name = "softly.logic.parametrizations.Gumbel"
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ValueError(f"{name}: temperature must be positive and finite, got {self.temperature}.")
        if not (self.scale >= 0 and math.isfinite(self.scale)):
            raise ValueError(f"{name}: scale must be finite and not negative, got {self.scale}.")

    def mix(self, weight: Tensor, table: Tensor) -> Tensor:
        weight = self._drawn(weight)
        return self._hard(weight, table, Softmax().mix(weight / self.temperature, table))

    def coefficients(self, weights: Sequence[Tensor], gates: tuple[int, ...]) -> Tensor:
        weight = self._drawn(torch.cat(list(weights)))
        soft = Softmax().coefficients([weight / self.temperature], gates)
        return self._hard(weight, COEFFICIENTS.to(weight)[list(gates)], soft)

    def _drawn(self, weight: Tensor) -> Tensor:
        if not self.scale:
            return weight
        # From uniform numbers, which are several times as fast to draw as exponential ones.
        return weight - self.scale * torch.rand_like(weight).log_().neg_().log_()

    @staticmethod
    def _hard(weight: Tensor, table: Tensor, soft: Tensor) -> Tensor:
        """The row of the largest weight, with the gradient of ``soft``."""
        return table[weight.argmax(-1)] + (soft - soft.detach())  # in this order nothing is rounded


_PARAMETRIZATIONS: dict[str, Parametrization] = {
    "softmax16": Softmax(),
    "straight_through": Gumbel(scale=0.0),
    "gumbel": Gumbel(),
}


def names() -> tuple[str, ...]:
    """The names of all parametrizations.

    Example:
        >>> softly.logic.parametrizations.names()
        ('softmax16', 'straight_through', 'gumbel')
    """
    return tuple(_PARAMETRIZATIONS)


def get(parametrization: str | Parametrization) -> Parametrization:
    """Look a parametrization up by name; an object is returned as it is.

    Example:
        >>> softly.logic.parametrizations.get("gumbel")
        Gumbel(temperature=1.0, scale=1.0)
    """
    if isinstance(parametrization, Parametrization):
        return parametrization
    if parametrization not in _PARAMETRIZATIONS:
        raise ValueError(
            f"softly.logic.parametrizations.get: parametrization must be one of {', '.join(_PARAMETRIZATIONS)}, "
            f"or a Parametrization; got {parametrization!r}."
        )
    return _PARAMETRIZATIONS[parametrization]
