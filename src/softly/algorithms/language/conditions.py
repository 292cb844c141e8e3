"""The conditions of the constructor language, and its minimum and maximum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from softly import _inputs
from softly.algorithms.language.state import State

__all__ = [
    "ArgMax",
    "ArgMin",
    "CatProbEq",
    "CosineSimilarity",
    "Eq",
    "GEq",
    "GT",
    "IsFalse",
    "IsTrue",
    "LEq",
    "LT",
    "Max",
    "Min",
    "NEq",
]


class Condition:
    """A condition on two values, each a name, a function of variables, or a number; ``&``, ``|``, ``~`` combine."""

    def __init__(self, left: Any, right: Any, beta: float | Tensor | None = None) -> None:
        self.left, self.right = left, right
        self.beta = beta if beta is None else _inputs.steepness(beta, f"softly.algorithms.{type(self).__name__}")

    def __call__(self, state: State) -> Any:
        steepness = state.engine.steepness if self.beta is None else self.beta
        return self._answer(state, state.read(self.left), state.read(self.right), steepness)

    def _answer(self, state: State, left: Any, right: Any, steepness: float | Tensor) -> Any:
        raise AttributeError(f"{type(self).__name__} has no answer")

    def __and__(self, other: Condition) -> Condition:
        return _Combined(lambda s: s.engine.comparators.both(self(s), other(s)))

    def __or__(self, other: Condition) -> Condition:
        return _Combined(lambda s: s.engine.comparators.either(self(s), other(s)))

    def __invert__(self) -> Condition:
        return _Combined(lambda s: s.engine.conditions.not_(self(s)))


class _Combined(Condition):
    def __init__(self, function: Callable[[State], Any]) -> None:
        self.function = function

    def __call__(self, state: State) -> Any:
        return self.function(state)


def checked(value: Any, owner: str) -> Condition:
    if not isinstance(value, Condition):
        raise TypeError(f"softly.algorithms.{owner}: a condition is needed, got {type(value).__name__}.")
    return value


class _Comparison(Condition):
    symbol = ""

    def _answer(self, state: State, left: Any, right: Any, steepness: float | Tensor) -> Any:
        return state.engine.conditions.compare(self.symbol, left, right, steepness)


class LT(_Comparison):
    """``left < right``, with the probability F(beta (right - left)).

    Example:
        >>> from softly.algorithms import *
        >>> less = Algorithm(Input("x"), Var("p", 0.0), If(LT("x", 1.0), Let("p", 1)), Output("p"), beta=1.0)
        >>> less(torch.tensor([0.0]))
        tensor([0.7311])
    """

    symbol = "<"


class LEq(_Comparison):
    """``left <= right``; relaxed it is `LT`.

    Example:
        >>> softly.algorithms.LEq("a", "b").symbol
        '<='
    """

    symbol = "<="


class GT(_Comparison):
    """``left > right``, with the probability F(beta (left - right)).

    Example:
        >>> softly.algorithms.GT("a", "b").symbol
        '>'
    """

    symbol = ">"


class GEq(_Comparison):
    """``left >= right``; relaxed it is `GT`.

    Example:
        >>> softly.algorithms.GEq("a", "b").symbol
        '>='
    """

    symbol = ">="


class Eq(_Comparison):
    """``left == right``, with the probability f(beta (left - right)) / f(0).

    Example:
        >>> softly.algorithms.Eq("a", "b").symbol
        '=='
    """

    symbol = "=="


class NEq(_Comparison):
    """``left != right``, the complement of `Eq`.

    Example:
        >>> softly.algorithms.NEq("a", "b").symbol
        '!='
    """

    symbol = "!="


class CosineSimilarity(Condition):
    """Whether two categorical distributions are the same: the cosine of their angle.

    Example:
        >>> from softly.algorithms import *
        >>> same = Algorithm(
        ...     Input("p"), Input("q"), Var("y", 0.0), If(CosineSimilarity("p", "q"), Let("y", 1)), Output("y")
        ... )
        >>> same(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]]))
        tensor([0.7071])
    """

    similarity = "cosine"

    def __call__(self, state: State) -> Any:
        return state.engine.same_category(state.tensor(self.left), state.tensor(self.right), self.similarity)


class CatProbEq(CosineSimilarity):
    """Whether a draw of one categorical distribution is one of another: their inner product.

    Example:
        >>> from softly.algorithms import *
        >>> same = Algorithm(Input("p"), Input("q"), Var("y", 0.0), If(CatProbEq("p", "q"), Let("y", 1)), Output("y"))
        >>> same(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]]))
        tensor([0.5000])
    """

    similarity = "inner"


class IsTrue(Condition):
    """Whether a variable in [0, 1] is true.

    Example:
        >>> softly.algorithms.IsTrue("swapped").left
        'swapped'
    """

    def __init__(self, variable: Any) -> None:
        super().__init__(variable, None)

    def _answer(self, state: State, left: Any, right: Any, steepness: float | Tensor) -> Any:
        return state.engine.conditions.truth(left)


class IsFalse(IsTrue):
    """Whether a variable in [0, 1] is false.

    Example:
        >>> softly.algorithms.IsFalse("done").left
        'done'
    """

    def _answer(self, state: State, left: Any, right: Any, steepness: float | Tensor) -> Any:
        return state.engine.conditions.not_(left)


# Functions -------------------------------------------------------------------------------------------------------


class _Extreme:
    sign = 1.0

    def __init__(self, beta: float | Tensor) -> None:
        self.beta = _inputs.steepness(beta, f"softly.algorithms.{type(self).__name__}")

    def _weights(self, stacked: Tensor) -> Tensor:
        return torch.softmax(stacked * (self.sign * self.beta), -1)


class Max(_Extreme):
    """The relaxed maximum of its arguments, their mean under `ArgMax`.

    Example:
        >>> softly.algorithms.Max(beta=2.0)(torch.tensor([0.0]), torch.tensor([1.0]))
        tensor([0.8808])
    """

    def __call__(self, *tensors: Tensor) -> Tensor:
        """Reduce the arguments elementwise."""
        stacked = torch.stack(tensors, -1)
        return torch.linalg.vecdot(self._weights(stacked), stacked)


class Min(Max):
    """The relaxed minimum of its arguments, their mean under `ArgMin`.

    Example:
        >>> softly.algorithms.Min(beta=2.0)(torch.tensor([0.0]), torch.tensor([1.0]))
        tensor([0.1192])
    """

    sign = -1.0


class ArgMax(_Extreme):
    """The probabilities of its arguments to be the largest, in a new last dimension.

    Example:
        >>> softly.algorithms.ArgMax(beta=2.0)(torch.tensor([0.0]), torch.tensor([1.0]))
        tensor([[0.1192, 0.8808]])
    """

    def __call__(self, *tensors: Tensor) -> Tensor:
        """Weigh the arguments elementwise."""
        return self._weights(torch.stack(tensors, -1))


class ArgMin(ArgMax):
    """The probabilities of its arguments to be the smallest, in a new last dimension.

    Example:
        >>> softly.algorithms.ArgMin(beta=2.0)(torch.tensor([0.0]), torch.tensor([1.0]))
        tensor([[0.8808, 0.1192]])
    """

    sign = -1.0
