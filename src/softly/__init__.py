"""Write an algorithm; softly makes it differentiable."""

from softly import distributions, native, tnorms
from softly.minmax import (
    Swap,
    argmax,
    argmin,
    categorical_equal,
    equal,
    greater,
    less,
    max,
    maximum,
    min,
    minimum,
    swap,
)

__version__ = "0.1.0"

__all__ = [
    "Swap",
    "argmax",
    "argmin",
    "categorical_equal",
    "distributions",
    "equal",
    "greater",
    "less",
    "max",
    "maximum",
    "min",
    "minimum",
    "native",
    "swap",
    "tnorms",
]
