"""Gradient estimators: wrappers that make any callable trainable.

A function that returns a number or a vector is smoothed by `smooth`; a solver, which returns the best solution of a
linear problem, is wrapped by `PerturbedOptimizer`, `blackbox`, `Imle` or `negative_identity`, or trained by
`FenchelYoungLoss` or `SpoPlusLoss`. Black boxes are called with all samples at once, (S, B, ...), and run outside of
compiled code.
"""

from softly.estimators import solvers
from softly.estimators.calls import each
from softly.estimators.imle import Imle
from softly.estimators.linearization import SpoPlusLoss, blackbox, negative_identity
from softly.estimators.perturbed import FenchelYoungLoss, PerturbedOptimizer
from softly.estimators.smoothing import Derivatives, Samples, Smoothed, smooth

__all__ = [
    "Derivatives",
    "FenchelYoungLoss",
    "Imle",
    "PerturbedOptimizer",
    "Samples",
    "Smoothed",
    "SpoPlusLoss",
    "blackbox",
    "each",
    "negative_identity",
    "smooth",
    "solvers",
]
