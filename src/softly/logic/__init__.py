"""Logic gate networks: learned by gradient descent, run on bits."""

from softly.logic import architectures, execution, export, gates, netlist, parametrizations, training, wiring
from softly.logic.circuit import Circuit, discretize
from softly.logic.encodings import ColumnEncoding, Encoding, OneHot, Thermometer, Threshold
from softly.logic.layers import GroupSum, LogicLayer, Logit
from softly.logic.network import LogicNetwork

__all__ = [
    "Circuit",
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
    "discretize",
    "execution",
    "export",
    "gates",
    "netlist",
    "parametrizations",
    "training",
    "wiring",
]
