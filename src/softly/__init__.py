"""Write an algorithm; softly makes it differentiable."""

from softly import algorithms, distributions, logic, native, selection, sorting, tnorms
from softly.algorithms import relax
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
from softly.selection import TopKCrossEntropy, TopKNetwork
from softly.sorting import FastSort, NeuralSort, SinkhornSort, SoftSort, SortingNetwork, permutation, rank, sort, topk

__version__ = "0.1.0"

__all__ = [
    "FastSort",
    "NeuralSort",
    "SinkhornSort",
    "SoftSort",
    "SortingNetwork",
    "TopKCrossEntropy",
    "TopKNetwork",
    "Swap",
    "algorithms",
    "argmax",
    "argmin",
    "categorical_equal",
    "distributions",
    "equal",
    "greater",
    "less",
    "logic",
    "max",
    "maximum",
    "min",
    "minimum",
    "native",
    "permutation",
    "rank",
    "relax",
    "selection",
    "sort",
    "sorting",
    "swap",
    "tnorms",
    "topk",
]
