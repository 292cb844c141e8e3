"""Calls: what a program may call with relaxed values, and what is refused.

A function is known (Python's own, of math, torch, NumPy, operator, itertools), or it has source code and is lowered
as the program is, or the user said that it may be called example by example. Everything else is refused, since code
that doesn't know relaxed values would quietly calculate with a whole batch.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree

from softly.algorithms.engine.arrays import RELAXED, Array, Categorical, number
from softly.algorithms.engine.containers import Choice, List, has_attributes, relaxed
from softly.algorithms.engine.intrinsics import INTRINSICS
from softly.algorithms.engine.journals import MUTABLE
from softly.algorithms.engine.numbers import Answer, Number
from softly.algorithms.engine.protocol import Run
from softly.algorithms.python.lowering import Lowered, lower

# Functions of single numbers, which need no care for the batch.
_ELEMENTWISE = {
    *("abs", "acos", "add", "asin", "atan", "atan2", "ceil", "clamp", "clip", "clone", "cos", "cosh", "deg2rad"),
    *("detach", "div", "double", "elu", "erf", "erfc", "exp", "exp2", "expm1", "float", "floor", "fmod", "frac"),
    *("gelu", "hypot", "leaky_relu", "lerp", "lgamma", "log", "log10", "log1p", "log2", "logaddexp", "logit"),
    *("logsigmoid", "maximum", "minimum", "mul", "neg", "pow", "reciprocal", "relu", "remainder", "round"),
    *("rsqrt", "sigmoid", "sign", "silu", "sin", "sinh", "softplus", "sqrt", "square", "sub", "tan", "tanh"),
    *("trunc", "xlogy"),
}
# The functions of the module math on numbers that are tensors, and where their operand has no value or no slope.
_MATH: dict[str, Callable[..., Tensor]] = {
    "fabs": torch.abs,
    "gamma": lambda x: torch.exp(torch.lgamma(x)),
    "log": lambda x, base=None: torch.log(x) if base is None else torch.log(x) / torch.log(base),
    "degrees": torch.rad2deg,
    "radians": torch.deg2rad,
    "cbrt": lambda x: torch.sign(x) * torch.abs(x) ** (1 / 3),
}
_PARTIAL: dict[str, Callable[[Tensor], Tensor]] = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt"), lambda x: x <= 0),
    "log1p": lambda x: x <= -1,
    **dict.fromkeys(("acos", "asin", "arccos", "arcsin", "atanh", "arctanh"), lambda x: x.abs() >= 1),
    "acosh": lambda x: x <= 1,
    **dict.fromkeys(("exp", "expm1", "sinh", "cosh"), lambda x: x.abs() > math.log(torch.finfo(x.dtype).max) - 1),
    "reciprocal": lambda x: x == 0,
}
# NumPy's functions by torch's names.
_NUMPY = {
    "absolute": "abs",
    "fabs": "abs",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "power": "pow",
    "divide": "true_divide",
    "true_divide": "true_divide",
    "mod": "remainder",
    "amax": "amax",
    "amin": "amin",
    "concatenate": "cat",
    "degrees": "rad2deg",
    "radians": "deg2rad",
}
_UFUNCS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "true_divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "mod": operator.mod,
    "power": operator.pow,
    "negative": operator.neg,
    "matmul": operator.matmul,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}
_MOVING = {
    *(itertools.chain, itertools.product, itertools.combinations, itertools.permutations, itertools.islice),
    *(itertools.repeat, itertools.cycle, itertools.zip_longest, itertools.pairwise, itertools.count),
    *(itertools.combinations_with_replacement, itertools.starmap, itertools.chain.from_iterable),
}
_INPLACE = ("out", "inplace")


class Calls:
    """Calls of one run."""

    def __init__(self, engine: Run) -> None:
        self.engine = engine

    def __call__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        engine = self.engine
        intrinsic = INTRINSICS.get(function) if _hashable(function) else None
        if intrinsic is not None:
            return intrinsic(engine, *args, **kwargs)
        if isinstance(function, MethodType):
            return self._bound(function, args, kwargs)
        if hasattr(function, "__relaxed_call__") and not isinstance(function, type):
            return function.__relaxed_call__(engine, args, kwargs)
        if isinstance(function, torch.nn.Module):
            return self._module(function, args, kwargs)
        if isinstance(function, functools.partial):
            return engine.call(function.func, *function.args, *args, **{**function.keywords, **kwargs})
        if not (relaxed(args) or relaxed(kwargs)):
            return self._hard(function, args, kwargs)
        if isinstance(function, type):
            return self._make(function, args, kwargs)
        return self._known(function, args, kwargs)

    def _hard(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call without relaxed values: as it is, but what it may write into is remembered."""
        engine = self.engine
        if isinstance(function, FunctionType) and (lowered := getattr(function, "_softly_lowered", None)):
            return lowered(*args, **kwargs)
        if engine.journals:
            for leaf in (*args, *kwargs.values()):
                self._remember(leaf)
        result = function(*args, **kwargs)
        if isinstance(result, MUTABLE):
            return List(engine, result) if type(result) is list else result
        if isinstance(function, type) and has_attributes(result):
            engine.births[id(vars(result))] = (vars(result), engine.serial)
        return engine.outer(result)

    def _remember(self, value: Any, depth: int = 4) -> None:
        engine = self.engine
        if isinstance(value, MUTABLE):
            engine.journals.remember(value)
            if depth:
                for entry in value.values() if isinstance(value, dict) else value:
                    self._remember(entry, depth - 1)
        elif has_attributes(value) and depth:
            engine.journals.remember(vars(value))
            for entry in vars(value).values():
                self._remember(entry, depth - 1)

    def _known(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        engine = self.engine
        module = getattr(function, "__module__", None) or ""
        if hasattr(function, "_softly_lowered"):
            return function._softly_lowered(*args, **kwargs)
        if isinstance(function, BuiltinFunctionType) and module == "math":
            return self._math(function, args, kwargs)
        if module.split(".")[0] == "torch" or _of_torch(function) or _of_softly(module):
            return self.torch(function, args, kwargs)
        if isinstance(function, np.ufunc) or module.split(".")[0] == "numpy":
            return self._numpy(function, args, kwargs)
        if module in ("_operator", "operator"):
            return self._operator(function, args, kwargs)
        if function in _MOVING:
            return function(*(_opened(engine, a) for a in args), **kwargs)
        if isinstance(function, FunctionType):
            return self.lowered_call(function, args, kwargs)
        called = getattr(type(function), "__call__", None)  # noqa: B004 - of its class, to be lowered
        if has_attributes(function) and self.lowerable(called):
            return engine.call(called, function, *args, **kwargs)
        raise self.refusal(function)

    def refusal(self, function: Any, reason: str = "") -> Exception:
        name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function)
        owner = getattr(function, "__module__", None)
        name = f"{owner}.{name}" if owner and owner not in ("builtins", "__main__") else name
        return self.engine.error(
            TypeError,
            f"{name}() doesn't know relaxed values{reason}; write it out in Python, or wrap it in "
            "softly.algorithms.per_example if it takes the numbers of one example and gives numbers",
        )

    # Code of the user --------------------------------------------------------------------------------------------

    def lowerable(self, function: Any) -> bool:
        return isinstance(function, FunctionType) and not function.__module__.startswith(("softly.", "torch."))

    def lowered_call(self, function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        engine = self.engine
        inner = getattr(function, "_softly_lowered", None)
        if inner is not None:
            return inner(*args, **kwargs)
        lowered = helper(function)
        if isinstance(lowered, Exception):
            raise self.refusal(function, f" and can't be lowered ({_reason(lowered)})") from lowered
        if lowered.infinite:
            engine.guard()
        return engine.control.invoke(
            lambda: lowered.function(engine, *args, **kwargs), function.__name__, lowered.straight
        )

    def _bound(self, method: MethodType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        engine, function, owner = self.engine, method.__func__, method.__self__
        if hasattr(function, "__relaxed_call__"):
            return function.__relaxed_call__(engine, (owner, *args), kwargs)
        anything = relaxed(args) or relaxed(kwargs) or relaxed(owner)
        if isinstance(function, FunctionType) and (anything or (has_attributes(owner) and engine.journals)):
            if isinstance(owner, torch.nn.Module):
                return self._module(method, args, kwargs)
            return self.lowered_call(function, (owner, *args), kwargs)
        if anything:
            raise self.refusal(method)
        return self._hard(method, args, kwargs)

    def _module(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        engine = self.engine
        dense = lambda v: engine.dense(engine.array(v) if isinstance(v, (list, Choice)) else v)  # noqa: E731
        result = function(*map(dense, args), **{k: dense(v) for k, v in kwargs.items()})
        return _pytree.tree_map(engine.wrap, result)

    def _make(self, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A new object that holds relaxed values."""
        engine = self.engine
        if issubclass(kind, BaseException):
            return kind(*args, **kwargs)
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return kind(*args, **kwargs)
        if kind in _MOVING:
            return kind(*(_opened(engine, a) for a in args), **kwargs)
        if kind.__module__ == "collections" and issubclass(kind, MUTABLE):
            return kind(*(_opened(engine, a) for a in args), **kwargs)
        init = getattr(kind, "__init__", None)
        if not isinstance(init, FunctionType) or kind.__new__ is not object.__new__ or type(kind) is not type:
            raise self.refusal(kind)
        result = object.__new__(kind)
        if hasattr(result, "__dict__"):
            engine.births[id(vars(result))] = (vars(result), engine.serial)
        if dataclasses.is_dataclass(kind) and init.__code__.co_filename == "<string>":
            init(result, *args, **kwargs)  # which only stores its arguments
        else:
            self.lowered_call(init, (result, *args), kwargs)
        return result

    # Known functions ---------------------------------------------------------------------------------------------

    def torch(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        engine, name = self.engine, getattr(function, "__name__", "")
        if (name.endswith("_") and not name.endswith("__")) or any(kwargs.get(k) is not None for k in _INPLACE):
            raise engine.error(
                TypeError, f"{name}() changes a tensor in place, behind the program's back; write x[...] = value"
            )
        if name in ("argmax", "argmin") and len(args) == 1 and not kwargs:
            return engine.conditions.arg_extreme(args[0], 1 if name == "argmax" else -1)
        if name in ("all", "any") and isinstance(args[0], Array):
            return self.all_any(name, *args, **kwargs)
        if name == "where" and len(args) == 3:
            if not isinstance(args[0], RELAXED):
                return args[1] if args[0] else args[2]
            # A comparison in a program is a probability, and so chooses by it.
            return engine.elementwise(lambda p, a, b: engine.comparators.mix(p, a, b), *args)
        if name == "stack" and len(args) == 1 and not kwargs:
            return engine.array(args[0])  # cells stay cells
        if name in ("floor", "ceil", "round", "trunc") and len(args) == 1 and not kwargs:
            return getattr(engine.rounding, name)(args[0])
        if name in _PARTIAL and len(args) == 1:
            return engine.elementwise(lambda x: function(engine.control.safe(x, _PARTIAL[name]), **kwargs), *args)
        values = [*args, *kwargs.values()]
        if name in _ELEMENTWISE and not any(isinstance(v, (Array, Categorical, Choice, list, tuple)) for v in values):
            plain = [number(v) for v in args]
            return engine.number(function(*plain, **{k: number(v) for k, v in kwargs.items()}))
        return engine.apply(function, args, kwargs)

    def all_any(self, name: str, answers: Array, dim: int | None = None) -> Any:
        engine = self.engine
        tensor = answers.tensor()
        reduce = engine.comparators.every if name == "all" else engine.comparators.some
        if dim is None:
            return Answer(engine, reduce(tensor.flatten(1)))
        return engine.wrap(reduce(tensor.movedim(dim + 1 if dim >= 0 else dim, 1)))

    def _math(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        engine, name = self.engine, function.__name__
        if name in ("floor", "ceil", "trunc"):
            return getattr(engine.rounding, name)(args[0])
        if name in ("dist", "hypot", "fsum", "prod", "sumprod"):
            return self._norm(name, args)
        if name in ("isnan", "isinf", "isfinite"):
            return name == "isfinite"
        if name == "isclose":
            raise self.refusal(function)
        if name == "pow":
            return args[0] ** args[1]
        if name == "fmod":
            quotient = args[0] / args[1]
            return args[0] - args[1] * engine.rounding.trunc(quotient)
        substitute = _MATH.get(name, getattr(torch, name, None))
        if substitute is None or kwargs:
            raise engine.error(TypeError, f"math.{name} of a relaxed value; torch has no such function")
        values = [number(a) if isinstance(a, RELAXED) else engine.constant(a) for a in args]
        if name in ("gcd", "lcm") and any(isinstance(v, Tensor) and v.is_floating_point() for v in values):
            raise self.refusal(function)
        if name in _PARTIAL and isinstance(values[0], Tensor):
            values[0] = engine.control.safe(values[0], _PARTIAL[name])
        return engine.elementwise(substitute, *values)

    def _norm(self, name: str, args: tuple[Any, ...]) -> Any:
        engine = self.engine
        if name in ("fsum", "prod"):
            entries = list(engine.access.iterate(args[0]))
            return functools.reduce(
                operator.add if name == "fsum" else operator.mul, entries, 0.0 if name == "fsum" else 1
            )
        if name == "sumprod":
            return functools.reduce(operator.add, (a * b for a, b in zip(*args, strict=True)), 0)
        parts = (
            [a - b for a, b in zip(*map(engine.access.iterate, args), strict=True)] if name == "dist" else list(args)
        )
        total = functools.reduce(operator.add, (p * p for p in parts))
        return engine.call(math.sqrt, total)

    def _numpy(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        engine, name = self.engine, function.__name__
        if kwargs.get("out") is not None:
            raise engine.error(TypeError, f"numpy.{name}(out=...) writes behind the program's back; assign the result")
        if name in _UFUNCS and not kwargs:
            values = [engine.array(a) if isinstance(a, (list, tuple, np.ndarray)) else a for a in args]
            return _UFUNCS[name](*values)
        if name in ("array", "asarray", "copy", "ascontiguousarray") and len(args) == 1:
            array = engine.array(args[0]) if not isinstance(args[0], Number) else args[0]
            return array.copy() if isinstance(array, Array) and name in ("array", "copy") else array
        if name in ("where", "argmax", "argmin", "floor", "ceil", "round", "trunc", "rint"):
            values = [engine.array(a) if isinstance(a, (list, tuple, np.ndarray)) else a for a in args]
            return self.torch(getattr(torch, {"rint": "round"}.get(name, name)), tuple(values), kwargs)
        if name in ("maximum", "minimum", "absolute", "fabs", "abs"):
            return engine.elementwise(lambda *t: _extreme(engine, name, t), *args)
        name = _NUMPY.get(name, name)
        if name in _ELEMENTWISE or name in ("cat", "sum", "mean", "prod", "amax", "amin", "dot", "cumsum", "rad2deg"):
            values = [
                engine.array(a) if isinstance(a, np.ndarray) or (isinstance(a, list) and name != "cat") else a
                for a in args
            ]
            if "axis" in kwargs:
                kwargs = {**{k: v for k, v in kwargs.items() if k != "axis"}, "dim": kwargs["axis"]}
            found = getattr(torch, name, None)
            if found is not None:
                return self.torch(found, tuple(values), kwargs)
        raise self.refusal(function)

    def _operator(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        engine, name = self.engine, getattr(function, "__name__", type(function).__name__)
        symbols = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
        if name in symbols:
            return engine.conditions.compare(symbols[name], *args)
        table: dict[str, Callable[..., Any]] = {
            "getitem": engine.access.getitem,
            "contains": lambda a, b: engine.conditions.contains(b, a),
            "not_": engine.conditions.not_,
            "truth": engine.conditions.truth,
            "is_": engine.conditions.is_,
            "itemgetter": lambda value: engine.access.getitem(value, function.__reduce__()[1][0]),
        }
        if name in table and (name != "itemgetter" or len(function.__reduce__()[1]) == 1):
            return table[name](*args)
        if name in (
            "add",
            "sub",
            "mul",
            "truediv",
            "floordiv",
            "mod",
            "pow",
            "neg",
            "pos",
            "and_",
            "or_",
            "xor",
            "matmul",
        ):
            return function(*args, **kwargs)
        raise self.refusal(function)


def _extreme(engine: Any, name: str, values: tuple[Tensor, ...]) -> Tensor:
    if name in ("absolute", "fabs", "abs"):
        return engine.comparators.absolute(values[0], engine.steepness)
    sign = 1 if name == "maximum" else -1
    return engine.comparators.extreme(values, sign, engine.steepness if sign > 0 else engine.downhill)


def _opened(engine: Any, value: Any) -> Any:
    """An iterable that foreign code can take apart."""
    return list(engine.access.iterate(value)) if isinstance(value, (list, Choice, Array)) else value


_helpers: WeakKeyDictionary[Callable[..., Any], Lowered | Exception] = WeakKeyDictionary()


def helper(function: FunctionType) -> Lowered | Exception:
    """A plain function that a program calls, lowered as the program is; the reason where it can't be."""
    if function not in _helpers:
        try:
            _helpers[function] = lower(function)
        except (SyntaxError, OSError, TypeError) as error:
            _helpers[function] = error
    return _helpers[function]


def _reason(error: Exception) -> str:
    return str(error.msg if isinstance(error, SyntaxError) else error).removeprefix("softly.relax: ").rstrip(".")


def _of_softly(module: str) -> bool:
    return module.startswith("softly.") and not module.startswith("softly.algorithms.library")


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _of_torch(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    return (isinstance(owner, ModuleType) and owner.__name__.startswith("torch")) or (
        getattr(function, "__objclass__", None) is torch._C.TensorBase
        or type(owner).__name__ in ("_VariableFunctionsClass",)
        or owner is torch._C._VariableFunctions
    )
