"""Logic gate networks: learned by gradient descent, run on bits."""

from softly.logic import architectures, gates, parametrizations, training, wiring
from softly.logic.encodings import ColumnEncoding, Encoding, OneHot, Thermometer, Threshold
from softly.logic.layers import GroupSum, LogicLayer, Logit
from softly.logic.network import LogicNetwork

__all__ = [
    "ColumnEncoding",
    "Encoding",
    "GroupSum",
    "LogicLayer",
    "LogicNetwork",
    "Logit",
    "OneHot",
    "Thermometer",
    "Threshold",
    "architectures",
    "gates",
    "parametrizations",
    "training",
    "wiring",
]
