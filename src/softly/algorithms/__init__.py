"""Relaxed programs (chapter 2): algorithms written as usual, differentiable in their inputs."""

from softly.algorithms.indexing import filter_weights
from softly.algorithms.program import Program
from softly.algorithms.python import RelaxedFunction, relax, steepness, unmerged

__all__ = ["Program", "RelaxedFunction", "filter_weights", "relax", "steepness", "unmerged"]
