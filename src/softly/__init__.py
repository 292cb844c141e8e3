"""Write an algorithm; softly makes it differentiable."""

from softly import distributions, native, sorting, tnorms
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
from softly.sorting import NeuralSort, SoftSort, SortingNetwork, permutation, rank, sort, topk

__version__ = "0.1.0"

__all__ = [
    "NeuralSort",
    "SoftSort",
    "SortingNetwork",
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
    "permutation",
    "rank",
    "sort",
    "sorting",
    "swap",
    "tnorms",
    "topk",
]
