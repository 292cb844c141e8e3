"""Attributes and methods of the values of a program."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter, deque
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from softly.algorithms.engine.arrays import RELAXED, Array, Categorical, Undefined, number
from softly.algorithms.engine.containers import Choice, Dict, List, Maybe, has_attributes, intact, relaxed
from softly.algorithms.engine.intrinsics import relaxed_sorted
from softly.algorithms.engine.journals import MISSING
from softly.algorithms.engine.numbers import Answer, Number
from softly.algorithms.engine.protocol import Run

_MUTATORS = {
    *("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "update", "setdefault", "popitem"),
    *("add", "discard", "appendleft", "popleft", "extendleft", "rotate", "subtract", "intersection_update"),
    *("difference_update", "symmetric_difference_update", "move_to_end"),
}
_ASKING = {"index", "count", "remove"}  # of a list: by comparing entries
_OUT = {
    *("item", "numpy", "tolist", "data_ptr", "backward", "register_hook", "retain_grad", "cpu", "cuda", "to", "data"),
    *("grad", "requires_grad", "storage", "untyped_storage", "share_memory_", "__array__", "share_memory", "type"),
}
_COLLECTIONS = (list, dict, set, frozenset, deque, tuple, str, bytes, range)


class Methods:
    """Attributes and methods in one run."""

    def __init__(self, engine: Run) -> None:
        self.engine = engine

    # Attributes --------------------------------------------------------------------------------------------------

    def attribute(self, value: Any, name: str) -> Any:
        engine, kind = self.engine, type(value)
        if isinstance(value, Undefined):
            value.fail()
        if kind is Choice:
            return functools.partial(engine.method, value, name)
        if isinstance(value, (Number, Categorical)):
            return self._of_number(engine.number(number(value)), name)
        if kind is Array:
            return self._of_array(value, name)
        if isinstance(value, _COLLECTIONS) and callable(getattr(value, name, None)):
            return functools.partial(engine.method, value, name)
        if has_attributes(value):
            return self._of_object(value, name)
        found = getattr(value, name)
        return found if isinstance(value, ModuleType) and callable(found) else engine.outer(found)

    def _of_number(self, value: Number, name: str) -> Any:
        fixed = {"shape": torch.Size(()), "ndim": 0, "T": value, "real": value, "imag": 0.0}
        if name in fixed:
            return fixed[name]
        if name in ("dtype", "device"):
            return getattr(value.tensor, name)
        if not callable(getattr(Tensor, name, None)) and name not in ("is_integer", "conjugate", "bit_length"):
            raise self.engine.error(AttributeError, f"a relaxed number has no attribute {name!r}")
        return functools.partial(self.engine.method, value, name)

    def _of_array(self, value: Array, name: str) -> Any:
        if name in Array.__slots__ or name in vars(Array):
            return object.__getattribute__(value, name)
        if name in ("device", "is_floating_point"):
            return getattr(value.tensor(), name)
        if not callable(getattr(Tensor, name, None)):
            raise self.engine.error(AttributeError, f"a relaxed array has no attribute {name!r}")
        return functools.partial(self.engine.method, value, name)

    def _of_object(self, value: Any, name: str) -> Any:
        engine = self.engine
        found = getattr(type(value), name, None)
        if isinstance(found, property) and isinstance(found.fget, FunctionType):
            return engine.call(found.fget, value)
        entry = vars(value).get(name, MISSING)
        if type(entry) is Maybe:
            return entry.value
        return engine.outer(getattr(value, name))

    def assign(self, value: Any, name: str, new: Any) -> None:
        """``value.name = new``."""
        engine = self.engine
        if isinstance(value, Choice):
            raise engine.error(TypeError, f"the attribute {name!r} of something that depends on a branch is written")
        if isinstance(value, RELAXED):
            raise engine.error(TypeError, f"a relaxed value has no attribute {name!r} that can be written")
        found = getattr(type(value), name, None)
        if isinstance(found, property) and isinstance(found.fset, FunctionType):
            engine.call(found.fset, value, new)
            return
        if id(value) in engine.merged_objects:
            raise engine.error(
                TypeError,
                f"the attribute {name!r} of an object that depends on a branch is written; write in the branches",
            )
        own: Any = type(value).__setattr__
        if not has_attributes(value) or own is not object.__setattr__ or hasattr(found, "__set__"):
            raise engine.error(TypeError, f"the attribute {name!r} of a {type(value).__name__} can't be written here")
        if id(vars(value)) not in engine.births and not dataclasses.is_dataclass(value) and relaxed(new):
            engine.journals.keep_inside(value)
        engine.journals.write(vars(value), name, new)

    # Methods -----------------------------------------------------------------------------------------------------

    def __call__(self, value: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        engine, kind = self.engine, type(value)
        if isinstance(value, Undefined):
            value.fail()
        if kind is Choice:
            return engine.control.each(value, lambda option: engine.method(option, name, *args, **kwargs))
        if isinstance(value, (Number, Categorical)):
            return self._number(engine.number(number(value)), name, args, kwargs)
        if kind is Array:
            return self._array(value, name, args, kwargs)
        if isinstance(value, (list, deque)):
            return self._sequence(value, name, args, kwargs)
        if isinstance(value, dict):
            return self._dict(value, name, args, kwargs)
        if isinstance(value, (set, frozenset, tuple, str, bytes, range)):
            return self._other(value, name, args, kwargs)
        if isinstance(value, super):
            return engine.call(getattr(value, name), *args, **kwargs)
        function = self.attribute(value, name) if has_attributes(value) else getattr(value, name)
        if isinstance(value, (bytearray, memoryview)) and (relaxed(args) or engine.control.uncertain):
            raise engine.error(TypeError, f"{name}() of a {kind.__name__} where it depends on relaxed values")
        return engine.call(function, *args, **kwargs)

    def _number(self, value: Number, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        engine = self.engine
        self._inside(name)
        if name == "conjugate":
            return value
        if name == "is_integer":
            return value.whole or engine.conditions.compare("==", value, Number(engine, value.tensor.detach().round()))
        if name in ("bit_length", "as_integer_ratio", "hex"):
            raise engine.error(TypeError, f"{name}() of a relaxed number")
        function = getattr(Tensor, name, None)
        if function is None:
            raise engine.error(AttributeError, f"a relaxed number has no attribute {name!r}")
        return engine.torch_call(function, (value, *args), kwargs)

    def _inside(self, name: str) -> None:
        if name in _OUT:
            raise self.engine.error(
                TypeError, f"{name}() takes a value out of the program; calculate with the value itself"
            )

    def _array(self, value: Array, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        engine = self.engine
        if name in ("copy", "clone", "tolist", "dim", "numel", "size"):
            return getattr(value, name)(*args)
        self._inside(name)
        if name in ("argmax", "argmin") and not args and not kwargs:
            return engine.conditions.arg_extreme(value, 1 if name == "argmax" else -1)
        if name in ("all", "any"):
            return engine.calls.all_any(name, value, *args, **kwargs)
        if name == "sort" and not args and not kwargs:
            raise engine.error(TypeError, "an array is sorted by sorted(array)")
        if name in ("append", "pop", "insert", "extend", "remove", "index", "count", "reverse", "clear"):
            raise engine.error(
                TypeError, f"an array has no {name}(); a program that works on lists is relaxed with lists=True"
            )
        if "axis" in kwargs:
            kwargs = {**{k: v for k, v in kwargs.items() if k != "axis"}, "dim": kwargs["axis"]}
        function = getattr(Tensor, name, None)
        if function is None:
            raise engine.error(AttributeError, f"a relaxed array has no attribute {name!r}")
        return engine.torch_call(function, (value, *args), kwargs)

    def _sequence(self, value: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        engine = self.engine
        intact(value)
        if name in _ASKING and (relaxed(list(value)) or relaxed(args)):
            return self._ask(value, name, args)
        if name == "sort":
            entries = relaxed_sorted(engine, value, **kwargs)
            engine.journals.remember(value)
            value[:] = entries
            return None
        if name == "copy":
            return List(engine, value) if isinstance(value, list) else value.copy()
        if name in _MUTATORS:
            if id(value) in engine.outside and relaxed(args):
                engine.journals.keep_inside(value)
            if name in ("pop", "insert", "rotate") and args:
                args = (engine.hard_int(args[0], f"the position of {name}()"), *args[1:])
            if name in ("extend", "extendleft"):
                args = (list(engine.access.iterate(args[0])),)
            if name == "pop" and not len(value):
                raise engine.error(IndexError, "pop from an empty list")
            engine.journals.remember(value)
        return getattr(value, name)(*args, **kwargs)

    def _ask(self, value: Any, name: str, args: tuple[Any, ...]) -> Any:
        engine = self.engine
        equal = [engine.conditions.compare("==", v, args[0]) for v in value]
        if name == "count":
            return functools.reduce(lambda a, b: a + b, equal, 0)
        if name == "remove":
            raise engine.error(TypeError, "remove() of a relaxed value; the length of the list would depend on it")
        # The first that is equal: as a position with a weight for each entry.
        left: Any = engine.column(1.0)
        weights = []
        for answer in equal:
            p = engine.column(number(engine.conditions.truth(answer)))
            weights.append(left * p)
            left = left * engine.complement(p)
        total = torch.stack(weights, 1)
        if not engine.trusts() and bool(((total.detach().sum(1) < 0.5) & engine.control.here()).any()):
            raise engine.error(ValueError, "the value is not in the list")
        return engine.number((total * torch.arange(len(equal), dtype=total.dtype, device=total.device)).sum(1))

    def _dict(self, value: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        engine = self.engine
        if args and isinstance(args[0], (*RELAXED, Choice)) and name in ("get", "pop", "setdefault"):
            raise engine.error(TypeError, f"{name}() of a dict at a relaxed key")
        entry = value.get(args[0]) if name in ("get", "pop", "setdefault") and args else None
        if type(entry) is Maybe:
            default = args[1] if len(args) > 1 else None
            found = engine.control.conditional(
                Answer(engine, entry.presence), lambda: entry.value, lambda: default, True
            )
            if name == "pop":
                engine.journals.remember(value)
                del value[args[0]]
            elif name == "setdefault":
                engine.journals.write(value, args[0], found)
            return found
        if name == "setdefault" and args[0] in value:
            return value[args[0]]
        if name in ("setdefault",):
            engine.journals.write(value, args[0], args[1] if len(args) > 1 else None)
            return value[args[0]]
        if name == "get":
            return value.get(*args)
        if name in ("keys", "values", "items"):
            return engine.made_list(getattr(intact(value), name)())
        if name == "copy":
            return Dict(engine, intact(value)) if type(value) in (dict, Dict) else intact(value).copy()
        if name in _MUTATORS:
            if id(value) in engine.outside and (relaxed(args) or relaxed(kwargs)):
                engine.journals.keep_inside(value)
            engine.journals.remember(value)
        counting = isinstance(value, Counter) and name in ("most_common", "elements", "total", "subtract")
        if counting and relaxed(dict(value)):
            raise engine.error(TypeError, f"{name}() of counts that are relaxed")
        return getattr(value, name)(*args, **kwargs)

    def _other(self, value: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        engine = self.engine
        if isinstance(value, tuple):
            if name in _ASKING and (relaxed(value) or relaxed(args)):
                return self._ask(value, name, args)
            if isinstance(getattr(type(value), name, None), FunctionType) and relaxed(value):
                if name in ("_replace", "_asdict"):
                    return getattr(value, name)(*args, **kwargs)
                return engine.call(getattr(type(value), name), value, *args, **kwargs)
        elif relaxed(args) or relaxed(kwargs):
            raise engine.error(TypeError, f"{name}() of a {type(value).__name__} with relaxed values")
        if isinstance(value, set) and name in _MUTATORS:
            engine.journals.remember(value)
        result: Any = getattr(value, name)(*args, **kwargs)
        return List(engine, result) if type(result) is list else result
