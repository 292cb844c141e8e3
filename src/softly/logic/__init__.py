"""Logic gate networks: learned by gradient descent, run on bits."""

from typing import TYPE_CHECKING, Any

from softly.logic import execution, export, gates, netlist, parametrizations, training, wiring
from softly.logic.circuit import Circuit
from softly.logic.discretization import discretize
from softly.logic.encodings import ColumnEncoding, Encoding, OneHot, Thermometer, Threshold
from softly.logic.layers import GroupSum, LogicLayer, Logit
from softly.logic.network import LogicNetwork

if TYPE_CHECKING:
    from softly.logic.classifier import LogicClassifier, LogicRegressor

__all__ = [
    "Circuit",
    "ColumnEncoding",
    "Encoding",
    "GroupSum",
    "LogicClassifier",
    "LogicLayer",
    "LogicNetwork",
    "LogicRegressor",
    "Logit",
    "OneHot",
    "Thermometer",
    "Threshold",
    "discretize",
    "execution",
    "export",
    "gates",
    "netlist",
    "parametrizations",
    "training",
    "wiring",
]


def __getattr__(name: str) -> Any:
    # scikit-learn is not needed for anything else, and takes longer to import than all of softly.
    if name in ("LogicClassifier", "LogicRegressor"):
        from softly.logic import classifier

        return getattr(classifier, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
