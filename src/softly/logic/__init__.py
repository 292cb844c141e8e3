"""Logic gate networks: learned by gradient descent, run on bits."""

from softly.logic import gates, parametrizations, wiring
from softly.logic.layers import GroupSum, LogicLayer, Logit

__all__ = [
    "GroupSum",
    "LogicLayer",
    "Logit",
    "gates",
    "parametrizations",
    "wiring",
]
