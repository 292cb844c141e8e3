"""Write an algorithm; softly makes it differentiable."""

from softly import algorithms, distributions, estimators, logic, native, optimization, selection, sorting, tnorms
from softly.algorithms import relax
from softly.elementary import abs, clamp, relu, round, sign, where
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
from softly.optimization import NewtonLoss, Resgro
from softly.selection import TopKCrossEntropy, TopKNetwork
from softly.sorting import (
    FastSort,
    NeuralSort,
    SinkhornSort,
    SoftSort,
    SortingNetwork,
    median,
    permutation,
    quantile,
    rank,
    sort,
    topk,
    topk_values,
)

__version__ = "0.1.0"

__all__ = [
    "FastSort",
    "NeuralSort",
    "NewtonLoss",
    "Resgro",
    "SinkhornSort",
    "SoftSort",
    "SortingNetwork",
    "Swap",
    "TopKCrossEntropy",
    "TopKNetwork",
    "abs",
    "algorithms",
    "argmax",
    "argmin",
    "categorical_equal",
    "clamp",
    "distributions",
    "equal",
    "estimators",
    "greater",
    "less",
    "logic",
    "max",
    "maximum",
    "median",
    "min",
    "minimum",
    "native",
    "optimization",
    "permutation",
    "quantile",
    "rank",
    "relax",
    "relu",
    "round",
    "selection",
    "sign",
    "sort",
    "sorting",
    "swap",
    "tnorms",
    "topk",
    "topk_values",
    "where",
]
