"""What a relaxed program does with its values besides arithmetic: comparisons, calls, entries of collections."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from softly.algorithms.engine.arrays import RELAXED, Array, Categorical, Undefined, floor_divide, number, relaxed
from softly.algorithms.engine.control import Engine
from softly.algorithms.engine.intrinsics import INTRINSICS, relaxed_sorted
from softly.algorithms.engine.journals import Names
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
# The functions of the module math on numbers that are tensors.
_MATH: dict[str, Callable[..., Tensor]] = {
    "fabs": torch.abs,
    "gamma": lambda x: torch.exp(torch.lgamma(x)),
    "log": lambda x, base=None: torch.log(x) if base is None else torch.log(x) / torch.log(base),
}
_UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": operator.truediv,
    "FloorDiv": floor_divide,
    "Mod": operator.mod,
    "Pow": operator.pow,
    "MatMult": operator.matmul,
    "BitAnd": operator.and_,
    "BitOr": operator.or_,
    "BitXor": operator.xor,
    "LShift": operator.lshift,
    "RShift": operator.rshift,
}
_MUTATORS = {
    *("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "update", "setdefault", "popitem"),
    *("add", "discard"),
}


class Runtime(Engine):
    """The engine with the operations that lowered Python code calls; ``_rt`` in that code."""

    # Conditions --------------------------------------------------------------------------------------------------

    def compare(self, symbol: str, a: Any, b: Any, steepness: float | Tensor | None = None) -> Any:
        if steepness is None:
            steepness = self.steepness
        elif not isinstance(steepness, Tensor):
            steepness = self.constant(steepness)
        if type(a) is Tensor and type(b) is Tensor:
            return self.comparators.compare(symbol, a, b, steepness)
        a, b = number(a), number(b)
        if isinstance(a, Undefined) or isinstance(b, Undefined):
            (a if isinstance(a, Undefined) else b).fail()
        if isinstance(a, Array) or isinstance(b, Array):
            return self.elementwise(lambda x, y: self.comparators.compare(symbol, x, y, steepness), a, b)
        if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and symbol in ("==", "!="):
            if not (relaxed(a) or relaxed(b)):
                return (a == b) == (symbol == "==")
            same: Any = len(a) == len(b) and self.comparators.all(
                [self.compare("==", x, y, steepness) for x, y in zip(a, b, strict=True)]
            )
            return same if symbol == "==" else self.not_(same)
        return self.comparators.compare(symbol, a, b, steepness)

    def steepness_of(self, name: str) -> float | Tensor:
        return self.settings.variables[name]

    def answer(self, value: Any) -> Any:
        """A condition that is a comparison or made of such."""
        if isinstance(value, Tensor):
            return value
        return self.truth(value)

    def hard(self, condition: Any) -> bool:
        """The condition of a comprehension, which decides about the length of a list."""
        if isinstance(condition, RELAXED):
            raise self.error(
                TypeError, "the `if` of a comprehension depends on a relaxed value; write a sum of products"
            )
        return bool(condition)

    def contains(self, value: Any, collection: Any) -> Any:
        if isinstance(collection, dict) or not (relaxed(value) or relaxed(collection)):
            return value in collection
        return self.comparators.any([self.compare("==", value, v) for v in collection])

    def not_(self, value: Any) -> Any:
        value = self.truth(value)
        return self.complement(value) if isinstance(value, Tensor) else not value

    def and_(self, first: Any, second: Callable[[], Any]) -> Any:
        if not isinstance(first, RELAXED):
            return second() if first else first
        p = self.truth(first)
        high, _ = self.range(p)
        if high <= 0.0:  # as in Python, what can't matter isn't evaluated
            return p
        other = second()
        return self.comparators.both(p, self.truth(other))

    def or_(self, first: Any, second: Callable[[], Any]) -> Any:
        if not isinstance(first, RELAXED):
            return first if first else second()
        p = self.truth(first)
        _, low = self.range(p)
        if low >= 1.0:
            return p
        return self.comparators.either(p, self.truth(second()))

    def conditional(self, condition: Any, yes: Callable[[], Any], no: Callable[[], Any], check: bool) -> Any:
        """``yes() if condition else no()``."""
        result: Any = None
        branch = self.branch(condition, (None,), ("a conditional expression",), check)
        for way in branch:
            result = yes() if way else no()
            (result,) = branch.end((result,))
        return result

    # Collections -------------------------------------------------------------------------------------------------

    def getitem(self, collection: Any, key: Any) -> Any:
        kind = type(collection)
        if kind is Array:
            if type(key) is int and collection.flat:
                return collection.store.unbound()[key]
            return collection[key]
        if kind in (list, tuple) and isinstance(key, (Tensor, Categorical)):
            positions = self._positions(collection) if isinstance(key, Categorical) else None
            if positions is not None:
                weights = self.weights(key, len(collection))
                return Categorical((weights.unsqueeze(1) @ positions).squeeze(1))
            return self.array(collection)[key]
        if kind is Tensor:
            raise self.error(TypeError, "a number can't be indexed")
        if isinstance(key, RELAXED):
            raise self.error(TypeError, f"a {kind.__name__} can't be read at a relaxed key")
        return collection[key]

    def _positions(self, collection: Any) -> Tensor | None:
        """Entries that are positions themselves, hard or categorical, as weights (batch, entries, n); else None."""
        if not all(type(v) is Categorical or (type(v) is int and v >= 0) for v in collection):
            return None
        n = max((v.weights.shape[1] if type(v) is Categorical else v + 1 for v in collection), default=0)
        hard = torch.eye(n, dtype=self.dtype, device=self.device)
        rows = [self.weights(v, n) if type(v) is Categorical else hard[v].expand(self.batch, n) for v in collection]
        return torch.stack(rows, 1)

    def setitem(self, collection: Any, key: Any, value: Any) -> None:
        kind = type(collection)
        if kind is Array:
            if type(value) is Tensor and type(key) is int and collection.flat and 0 <= key < collection.store.shape[0]:
                self.write(collection.store, key, value)
            else:
                collection[key] = value
        elif kind is list and isinstance(key, (Tensor, Categorical)):
            weights = self.weights(key, len(collection))
            for i, (old, w) in enumerate(zip(collection, weights.unbind(1), strict=True)):
                self.write(collection, i, self.mix(w, [value], [old], ["an entry"])[0])
        elif kind is Tensor:
            raise self.error(TypeError, "a number can't be indexed")
        elif isinstance(key, RELAXED):
            raise self.error(TypeError, f"a {kind.__name__} can't be written at a relaxed key")
        elif kind is list and isinstance(key, slice):
            self.remember(collection)
            collection[key] = value
        elif kind is list:
            position = operator.index(key)
            if not -len(collection) <= position < len(collection):
                raise IndexError("list assignment index out of range")
            self.write(collection, position % len(collection), value)
        elif kind is dict:
            self.write(collection, key, value)
        else:
            collection[key] = value

    def iterate(self, iterable: Any) -> Iterable[Any]:
        if isinstance(iterable, Tensor):
            raise self.error(TypeError, "a loop over a relaxed number; it needs a range, a list or an array")
        if isinstance(iterable, (list, dict, set)):
            return list(iterable)
        return iterable

    def slice(self, *parts: Any) -> slice:
        if any(isinstance(p, RELAXED) for p in parts):
            raise self.error(TypeError, "the bounds of a slice must be hard ints, not relaxed numbers")
        return slice(*parts)

    def undefined(self, name: str) -> Undefined:
        return Undefined(name)

    def update(self, operation: str, old: Any, value: Any) -> Any:
        """``old += value`` and its like, in place where Python does it in place."""
        if isinstance(old, Array):
            old[...] = _UPDATES[operation](old, value)
            return old
        if isinstance(old, list) and operation == "Add":
            self.remember(old)
            old.extend(value)
            return old
        if type(value) in (int, float) and type(old) is Tensor and old.dtype is self.dtype:
            value = self.constant(value)
        return _UPDATES[operation](old, value)

    def floor_divide(self, a: Any, b: Any) -> Any:
        return floor_divide(a, b) if type(a) is Tensor or type(b) is Tensor else a // b

    def block(self, manager: Any, entry: Names, labels: tuple[str, ...]) -> Any:
        """A ``with`` statement of a program."""
        if not hasattr(manager, "__relaxed_block__"):
            raise self.error(TypeError, "only softly.algorithms.steepness(...) and unmerged() can stand in a `with`")
        return manager.__relaxed_block__(self, entry, labels)

    def attribute(self, value: Any, name: str) -> Any:
        if type(value) is Tensor:
            if name in ("shape", "ndim", "T"):
                return {"shape": torch.Size(()), "ndim": 0, "T": value}[name]
            return getattr(value, name)
        return self.outer(getattr(value, name))

    # Calls -------------------------------------------------------------------------------------------------------

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        builtin = INTRINSICS.get(function) if _hashable(function) else None
        if builtin is not None:
            return builtin(self, *args, **kwargs)
        if hasattr(function, "__relaxed_call__"):
            return function.__relaxed_call__(self, args, kwargs)
        if isinstance(function, torch.nn.Module):
            return self.wrap(function(*(self.dense(a) for a in args), **{k: self.dense(v) for k, v in kwargs.items()}))
        module = getattr(function, "__module__", None) or ""
        anything = relaxed(args) or relaxed(kwargs)
        if isinstance(function, BuiltinFunctionType) and module == "math":
            return self._math(function, args) if anything else function(*args)
        if anything and (module.split(".")[0] == "torch" or _of_torch(function) or _of_softly(module)):
            return self.torch_call(function, args, kwargs)
        if anything and isinstance(function, FunctionType):
            lowered = _helper(function)
            if lowered is not None:
                if lowered.infinite:
                    self.guard()
                return self.invoke(lambda: lowered.function(self, *args, **kwargs), function.__name__)
        return self.outer(function(*args, **kwargs))

    def torch_call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = getattr(function, "__name__", "")
        if name in ("argmax", "argmin") and len(args) == 1 and not kwargs:
            return self.arg_extreme(args[0], 1 if name == "argmax" else -1)
        if name in ("all", "any") and isinstance(args[0], Array):
            return self._all_any(name, *args, **kwargs)
        if name == "where" and len(args) == 3:
            if not isinstance(args[0], RELAXED):
                return args[1] if args[0] else args[2]
            # A comparison in a program is a probability, and so chooses by it.
            return self.elementwise(lambda p, a, b: self.comparators.mix(self.answer(p), a, b), *args)
        if name == "stack" and len(args) == 1 and not kwargs:
            return self.array(args[0])  # cells stay cells
        values = [*args, *kwargs.values()]
        if name in _ELEMENTWISE and not any(isinstance(v, (Array, Categorical, list, tuple)) for v in values):
            return function(*args, **kwargs)
        return self.apply(function, args, kwargs)

    def _all_any(self, name: str, answers: Array, dim: int | None = None) -> Any:
        tensor, tnorm = answers.tensor(), self.comparators.tnorm
        reduce = tnorm.all if name == "all" else tnorm.any
        if dim is None:
            return reduce(tensor.flatten(1), 1)
        return self.wrap(reduce(tensor, dim + 1 if dim >= 0 else dim))

    def _math(self, function: Any, args: tuple[Any, ...]) -> Any:
        name = function.__name__
        substitute = _MATH.get(name, getattr(torch, name, None))
        if substitute is None:
            raise self.error(TypeError, f"math.{name} of a relaxed value; torch has no such function")
        values = [number(a) if isinstance(a, (*RELAXED,)) else self.constant(a) for a in args]
        return self.elementwise(substitute, *values)

    def method(self, value: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
        kind = type(value)
        if kind in (list, dict, set) and name in _MUTATORS:
            if name == "sort" and relaxed(value):
                self.remember(value)
                value[:] = relaxed_sorted(self, value, **kwargs)
                return None
            self.remember(value)
            return getattr(value, name)(*args, **kwargs)
        if kind in (list, tuple) and name in ("index", "count") and (relaxed(value) or relaxed(args)):
            equal = [self.compare("==", v, args[0]) for v in value]
            if name == "count":
                return sum(self.column(e) for e in equal)
            raise self.error(TypeError, "index() of a relaxed value; write the search as a loop")
        if kind in (Tensor, Array) and name in ("item", "numpy"):
            raise self.error(TypeError, f"{name}() takes a value out of the program; calculate with the value itself")
        if kind is Tensor:
            return self.torch_call(getattr(Tensor, name), (value, *args), kwargs)
        if kind is Array and name in ("argmax", "argmin") and not args and not kwargs:
            return self.arg_extreme(value, 1 if name == "argmax" else -1)
        if kind is Array and name in ("all", "any"):
            return self._all_any(name, value, *args, **kwargs)
        if kind is Array and name == "sort" and not args and not kwargs:
            raise self.error(TypeError, "an array is sorted by sorted(array)")
        function = getattr(value, name)
        return self.call(function, *args, **kwargs) if not isinstance(value, Array) else function(*args, **kwargs)

    def arg_extreme(self, values: Any, sign: int) -> Any:
        if not relaxed(values):
            entries = list(values)
            return entries.index(max(entries) if sign > 0 else min(entries))
        tensor = self.array(values).tensor().flatten(1)
        return Categorical(self.comparators.largest(tensor, self.steepness if sign > 0 else self.downhill))


_helpers: WeakKeyDictionary[Callable[..., Any], Lowered | None] = WeakKeyDictionary()


def _helper(function: FunctionType) -> Lowered | None:
    """A plain function that a program calls, lowered as the program is; None where it can only be called as it is."""
    if function not in _helpers:
        try:
            _helpers[function] = lower(function)
        except (SyntaxError, OSError):
            _helpers[function] = None
    return _helpers[function]


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
