"""The relaxed numbers of a program, in a type of their own.

A `Number` is one real number per example, an `Answer` one probability. Code that knows nothing of relaxed programs
can calculate with them, but can't decide by them: their truth, their hash, their text and their value as a Python
number are refused, with the line of the program that asked.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from softly.algorithms.engine.protocol import Run

_SCALARS = (int, float, bool)


class Number:
    """A relaxed number: a tensor (batch,), or one without dimensions that is the same for all examples.

    ``whole`` tells that it stands for Python's int: made of ints alone, so that on every path it is one.
    """

    __slots__ = ("engine", "tensor", "whole")
    __array_priority__ = 1000

    def __init__(self, engine: Run, tensor: Tensor, whole: bool = False) -> None:
        self.engine, self.tensor, self.whole = engine, tensor, whole

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        raise self.engine.error(TypeError, f"{what} a relaxed value; {remedy}")

    def __bool__(self) -> bool:
        self._refuse("a decision by the truth of", "only code that softly has lowered can go both ways")

    def __hash__(self) -> int:
        self._refuse("a set, or the key of a dict, of", "search a list with == instead")

    def __float__(self) -> float:
        self._refuse("a Python number can't be made of", "calculate with the value itself")

    def __int__(self) -> int:
        self._refuse("a Python int can't be made of", "keep the real number; bounds and sizes must be hard ints")

    __index__ = __int__

    def __complex__(self) -> complex:
        self._refuse("a Python number can't be made of", "calculate with the value itself")

    def __str__(self) -> str:
        if self.engine.describing:
            return str(self.tensor.tolist())
        self._refuse("text can't be made of", "return the value, or print it")

    def __format__(self, spec: str) -> str:
        return str(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.tensor})"

    def __iter__(self) -> Any:
        raise self.engine.no_collection("a loop over a relaxed value; it needs a range, a list or an array")

    def __len__(self) -> int:
        raise self.engine.no_collection("the length of a relaxed value; only arrays and lists have one")

    def __getitem__(self, key: Any) -> Any:
        raise self.engine.no_collection("a number can't be indexed")

    def __setitem__(self, key: Any, value: Any) -> None:
        raise self.engine.no_collection("a number can't be indexed")

    def __array__(self, *_: Any, **__: Any) -> Any:
        self._refuse("a NumPy array can't be made of", "keep the value, or put it into a list")

    def __reduce__(self) -> Any:
        self._refuse("a file or another process can't have", "return the value")

    def __copy__(self) -> Number:
        return self

    def __deepcopy__(self, memo: Any) -> Number:
        return self

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            self._refuse(f"numpy.{ufunc.__name__}.{method} of", "write a loop")
        return self.engine.call(ufunc, *inputs, **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return self.engine.call(func, *args, **kwargs)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.utils import _pytree

        engine = next(a.engine for a in _pytree.tree_leaves((args, kwargs)) if isinstance(a, Number))
        return engine.torch_call(func, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.engine.attribute(self, name)

    def __neg__(self) -> Number:
        return Number(self.engine, -self.tensor, self.whole)

    def __pos__(self) -> Number:
        return Number(self.engine, self.tensor, self.whole)

    def __abs__(self) -> Any:
        return self.engine.call(abs, self)

    def __invert__(self) -> Any:
        if self.tensor.dtype.is_floating_point:
            self._refuse("~ of", "write `not`")
        return Number(self.engine, ~self.tensor)

    def __round__(self, digits: Any = None) -> Any:
        return self.engine.call(round, self) if digits is None else self.engine.call(round, self, digits)

    def __floor__(self) -> Any:
        return self.engine.rounding.floor(self)

    def __ceil__(self) -> Any:
        return self.engine.rounding.ceil(self)

    def __trunc__(self) -> Any:
        return self.engine.rounding.trunc(self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __lt__(self, other: Any) -> Any:
        return self.engine.conditions.compare("<", self, other)

    def __le__(self, other: Any) -> Any:
        return self.engine.conditions.compare("<=", self, other)

    def __gt__(self, other: Any) -> Any:
        return self.engine.conditions.compare(">", self, other)

    def __ge__(self, other: Any) -> Any:
        return self.engine.conditions.compare(">=", self, other)

    def __eq__(self, other: Any) -> Any:
        return self.engine.conditions.compare("==", self, other)

    def __ne__(self, other: Any) -> Any:
        return self.engine.conditions.compare("!=", self, other)

    def __and__(self, other: Any) -> Any:
        return self.engine.conditions.bitwise("&", self, other)

    def __or__(self, other: Any) -> Any:
        return self.engine.conditions.bitwise("|", self, other)

    def __xor__(self, other: Any) -> Any:
        return self.engine.conditions.bitwise("^", self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __lshift__(self, other: Any) -> Any:
        return self.engine.conditions.bitwise("<<", self, other)

    def __rshift__(self, other: Any) -> Any:
        return self.engine.conditions.bitwise(">>", self, other)


Question = tuple[Any, ...]  # ("compare", symbol, a, b), ("not", answer), ("and" or "or", answer, answer)


class Answer(Number):
    """A probability that something is true; in arithmetic it is a number.

    Args:
        question: What was asked, so that the exact answer can be given where a program may have to raise.
    """

    __slots__ = ("question",)

    def __init__(self, engine: Run, tensor: Tensor, question: Question | None = None) -> None:
        self.engine, self.tensor, self.whole = engine, tensor, True
        self.question = question

    def exact(self) -> Tensor:
        """What the plain program would say, for each example: a bool tensor (batch,)."""
        match self.question:
            case ("compare", symbol, a, b):
                return _EXACT[symbol](a, b).expand(self.engine.batch)
            case ("not", answer):
                return ~answer.exact()
            case ("and", first, second):
                return exactly(first, self.engine) & exactly(second, self.engine)
            case ("or", first, second):
                return exactly(first, self.engine) | exactly(second, self.engine)
        return (self.tensor.detach() > 0.5).expand(self.engine.batch)


_EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def exactly(answer: Any, engine: Run) -> Tensor:
    """The exact answer, of an `Answer` or a bool, as a bool tensor (batch,)."""
    if isinstance(answer, Answer):
        return answer.exact()
    return torch.full((engine.batch,), bool(answer), device=engine.device)


def raw(value: Any) -> Any:
    """A relaxed number as its tensor; anything else as it is."""
    return value.tensor if isinstance(value, Number) else value


def is_whole(value: Any) -> bool:
    """Whether a value stands for an int."""
    kind = type(value)
    return value.whole if kind is Number or kind is Answer else kind is int or kind is bool


def _operand(number: Number, other: Any) -> Any:
    """The other operand of an operation as a tensor or a Python number; NotImplemented where it is something else."""
    kind = type(other)
    if kind is Number or kind is Answer:
        return other.tensor
    if kind in _SCALARS:
        engine = number.engine
        # As a tensor: torch takes longer over numbers.
        return engine.constant(other) if number.tensor.dtype is engine.dtype else other
    if isinstance(other, (np.integer, np.floating, np.bool_)):
        return _operand(number, other.item())
    if isinstance(other, Tensor):
        if other.ndim == 0:
            return other
        raise number.engine.error(TypeError, "a tensor from outside can't be mixed in; pass it as an argument")
    return NotImplemented


def _binary(name: str, function: Callable[[Any, Any], Any]) -> None:
    def forward(self: Number, other: Any) -> Any:
        operand = _operand(self, other)
        if operand is NotImplemented:
            return NotImplemented
        return Number(self.engine, function(self.tensor, operand), self.whole and is_whole(other))

    def backward(self: Number, other: Any) -> Any:
        operand = _operand(self, other)
        if operand is NotImplemented:
            return NotImplemented
        return Number(self.engine, function(operand, self.tensor), self.whole and is_whole(other))

    setattr(Number, f"__{name}__", forward)
    setattr(Number, f"__r{name}__", backward)


def _partial(name: str) -> None:
    """Operations that have no value for some operands, or that jump: the engine takes care of those."""

    def forward(self: Number, other: Any) -> Any:
        operand = _operand(self, other)
        if operand is NotImplemented:
            return NotImplemented
        whole = name != "truediv" and self.whole and is_whole(other)
        return Number(self.engine, self.engine.careful.operations[name](self.tensor, operand), whole)

    def backward(self: Number, other: Any) -> Any:
        operand = _operand(self, other)
        if operand is NotImplemented:
            return NotImplemented
        whole = name != "truediv" and self.whole and is_whole(other)
        return Number(self.engine, self.engine.careful.operations[name](operand, self.tensor), whole)

    setattr(Number, f"__{name}__", forward)
    setattr(Number, f"__r{name}__", backward)


for _name in ("add", "sub", "mul"):
    _binary(_name, getattr(operator, _name))
for _name in ("truediv", "floordiv", "mod", "pow"):
    _partial(_name)
