"""Relaxed programs (chapter 2): algorithms written as usual, differentiable in their inputs."""

from __future__ import annotations

from softly.algorithms import library
from softly.algorithms.engine.indexing import filter_weights
from softly.algorithms.language.conditions import (
    GT,
    LT,
    ArgMax,
    ArgMin,
    CatProbEq,
    CosineSimilarity,
    Eq,
    GEq,
    IsFalse,
    IsTrue,
    LEq,
    Max,
    Min,
    NEq,
)
from softly.algorithms.language.statements import (
    Algorithm,
    For,
    If,
    Input,
    Let,
    LetInt,
    Output,
    Print,
    Var,
    VarInt,
    While,
)
from softly.algorithms.python.blocks import steepness, unmerged
from softly.algorithms.python.foreign import per_example
from softly.algorithms.python.function import RelaxedFunction, relax
from softly.algorithms.python.program import Program
from softly.algorithms.python.trace import Trace, TraceLine
from softly.algorithms.tape.tape import Tape

__all__ = [
    "Algorithm",
    "ArgMax",
    "ArgMin",
    "CatProbEq",
    "CosineSimilarity",
    "Eq",
    "For",
    "GEq",
    "GT",
    "If",
    "Input",
    "IsFalse",
    "IsTrue",
    "LEq",
    "LT",
    "Let",
    "LetInt",
    "Max",
    "Min",
    "NEq",
    "Output",
    "Print",
    "Program",
    "RelaxedFunction",
    "Tape",
    "Trace",
    "TraceLine",
    "Var",
    "VarInt",
    "While",
    "filter_weights",
    "library",
    "per_example",
    "relax",
    "steepness",
    "unmerged",
]
