"""`softly.relax`: an ordinary Python function, made differentiable."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import graphlib
import importlib
import itertools
import pickle
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils import _pytree

from softly import native
from softly.algorithms.engine import dynamo
from softly.algorithms.engine.arrays import Array, Categorical
from softly.algorithms.engine.batches import Batch, Copying, opened, outcome, plain, results
from softly.algorithms.engine.calls import helper
from softly.algorithms.engine.containers import Choice
from softly.algorithms.engine.frames import raised_at
from softly.algorithms.engine.numbers import Number
from softly.algorithms.engine.runtime import Runtime
from softly.algorithms.engine.settings import Settings, make_settings
from softly.algorithms.engine.values import forgotten_batch
from softly.algorithms.python.lowering import Lowered, lower
from softly.algorithms.python.program import Program
from softly.algorithms.python.taping import Taping, spoiled
from softly.algorithms.python.trace import Trace
from softly.algorithms.tape.tape import Tape
from softly.distributions import Distribution
from softly.tnorms import TNorm

__all__ = ["RelaxedFunction", "relax"]

# Errors that are raised again with their place in the source. Types derived from them may not be made of a text.
_REWORDED = (TypeError, AttributeError, RuntimeError, NotImplementedError)


class RelaxedFunction:
    """A relaxed Python function; made by `relax`.

    Called like the function, with a batch in front of every tensor. As ``steepness -> inf`` it gives what the
    function itself gives for each example.

    Example:
        >>> @softly.relax(steepness=2.0)
        ... def larger(a, b):
        ...     return a if a > b else b
        >>> larger(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 3.0]))
        tensor([1.8808, 3.0000])
        >>> larger.hard(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 3.0]))
        tensor([2., 3.])
    """

    __name__: str
    __qualname__: str

    def __init__(
        self,
        function: Callable[..., Any],
        settings: Settings,
        batch_dims: int,
        in_dims: tuple[int | None, ...] | None,
        *,
        lists: bool = False,
        taped: bool = True,
        lowered: Lowered | None = None,
        taping: Taping | None = None,
    ) -> None:
        if batch_dims < 0:
            raise ValueError(f"softly.relax: batch_dims must be >= 0, got {batch_dims}.")
        self._lowered = lowered or lower(function, tuple(settings.variables))
        self.function, self.settings, self._batch_dims, self._in_dims = function, settings, batch_dims, in_dims
        self._lists, self._taped = bool(lists), bool(taped)
        self._taping = taping or Taping(self)
        functools.update_wrapper(self, function)
        self._entry = dynamo.Entry.of(self._key(), self)
        # The steepness is an input of compiled graphs, so that one serves all of them.
        chosen = settings.steepness
        self._steep = chosen if isinstance(chosen, Tensor) else torch.tensor(chosen, dtype=torch.float64)

    def _key(self) -> str:
        """What tells functions apart that need graphs of their own."""
        if self.function not in _numbers:
            _numbers[self.function] = len(_numbers), next(_count)
        options = {f.name: getattr(self.settings, f.name) for f in dataclasses.fields(self.settings)}
        learned = isinstance(options.pop("steepness"), Tensor)
        tensors = {n: id(v) if isinstance(v, Tensor) else v for n, v in options.pop("variables").items()}
        parts = (_numbers[self.function], learned, options, tensors, self._batch_dims, self._in_dims, self._lists)
        return f"{self.__name__} {parts}"

    @property
    def program(self) -> Program:
        """What was understood of the function; printable.

        Example:
            >>> @softly.relax(steepness=8.0)
            ... def sign(x):
            ...     y = -1
            ...     if x > 0:
            ...         y = 1
            ...     return y
            >>> print(sign.program)
            # Logistic(), Probabilistic(), steepness 8.0
            @softly.relax(steepness=8.0)
            def sign(x):
                y = -1
                if x > 0:  # if: joins y
                    y = 1
                return y
            # may be relaxed: x, y
        """
        return Program.of_function(self._lowered, self.settings)

    def using(self, **changes: Any) -> RelaxedFunction:
        """The same function with other options of `relax`.

        Example:
            >>> @softly.relax
            ... def positive(x):
            ...     return 1 if x > 0 else 0
            >>> positive.using(steepness=1.0)(torch.tensor([0.0, 2.0]))
            tensor([0.5000, 0.8808])
        """
        current = {f.name: getattr(self.settings, f.name) for f in dataclasses.fields(self.settings)}
        own = self._own()
        for name in changes:
            if name not in current and name not in own:
                close = difflib.get_close_matches(name, [*current, *own], 1)
                hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join([*current, *own])}."
                raise TypeError(f"softly.relax: using() got an unknown option {name!r}{hint}")
        only_steepness = changes.keys() <= {"steepness"}
        own.update({name: changes.pop(name) for name in list(changes) if name in own})
        settings = make_settings("softly.relax", **{**current, **changes})
        lowered = self._lowered if settings.variables.keys() == self.settings.variables.keys() else None
        taping = self._taping if only_steepness else None
        own["in_dims"] = _checked(own["in_dims"])
        return RelaxedFunction(self.function, settings, **own, lowered=lowered, taping=taping)

    def _own(self) -> dict[str, Any]:
        """The options that are no settings of the engine."""
        return {
            "batch_dims": self._batch_dims,
            "in_dims": self._in_dims,
            "lists": self._lists,
            "taped": self._taped,
        }

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the relaxed function over a batch."""
        if torch.compiler.is_compiling():
            return self._entry(args, kwargs, self._steep)
        leaves = _pytree.tree_leaves(opened((args, kwargs)))
        inner: Any = next((leaf for leaf in leaves if isinstance(leaf, (Array, Number, Categorical, Choice))), None)
        if inner is not None:  # called by a function that itself was called by a program
            return self.__relaxed_call__(inner.engine, args, kwargs)
        if any(isinstance(leaf, Copying) for leaf in leaves) or not any(isinstance(leaf, Tensor) for leaf in leaves):
            return self.function(*args, **kwargs)  # called by a plain run, or with nothing to relax
        static = any(native.transformed(leaf) or leaf.is_meta for leaf in leaves if isinstance(leaf, Tensor))
        return self._run(args, kwargs, self.settings, static)

    def _readers(self) -> tuple[Callable[[], tuple[Any, ...]], ...]:
        """Functions that read what this one and all that it calls read from outside."""
        return tuple(lowered.reader() for lowered in self._reached().values())

    def _bend(self) -> str | None:
        """Why the function is no straight line, or None."""
        reached = self._reached()
        calls = {}
        for function, lowered in reached.items():
            scope = lowered.scope()
            obstacle = lowered.line.obstacle_in(scope, reached)
            if obstacle is not None:
                return obstacle
            calls[function] = {getattr(value, "function", value) for value in scope.values() if callable(value)}
        try:
            tuple(graphlib.TopologicalSorter(calls).static_order())
        except graphlib.CycleError:
            return "it calls itself"
        return None

    def _reached(self) -> dict[Any, Lowered]:
        """This function and all that it calls, lowered."""
        found: dict[Any, Lowered] = {self.function: self._lowered}
        pending = [self._lowered]
        while pending:
            for value in pending.pop().scope().values():
                inner = value.function if isinstance(value, RelaxedFunction) else value
                if not isinstance(inner, types.FunctionType) or inner in found or _foreign(inner):
                    continue
                helped = helper(inner)
                if isinstance(helped, Lowered):
                    found[inner] = helped
                    pending.append(helped)
        return found

    def _compiled(self, outside: list[Any], args: Any, kwargs: Any, steep: Tensor) -> Any:
        dynamo.settle(outside)
        tensors = [x for x in _pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.is_floating_point()]
        if not isinstance(self.settings.steepness, Tensor):
            steep = steep.to(tensors[0].dtype if tensors else torch.get_default_dtype())
        settings = dataclasses.replace(self.settings, steepness=steep)
        real = dynamo.watched(self._entry.readers)
        inputs = {id(a): b for a, b in zip(real, outside, strict=True) if isinstance(a, Tensor)}
        return self._run(args, kwargs, settings, True, inputs)

    def _run(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        settings: Settings,
        static: bool,
        inputs: Mapping[int, Tensor] | None = None,
    ) -> Any:
        batch = Batch(self, args, kwargs)
        if self._taped and not static:
            taped = self._taping.play(self, batch)
            if taped is not None:
                return taped[0]
        guarded = self._lowered.infinite or (not static and batch.infinite())
        result, engine = self._attempt(batch, settings, static, guarded, inputs)
        if not static and not engine.guarded and spoiled(result, batch):
            # Something infinite came up on the way: once more, with care for states that nobody is in.
            result, engine = self._attempt(batch, settings, static, True, inputs)
        if settings.straight_through and not settings.hard:
            return self._straight(batch, settings, static, result, inputs)
        return result

    def _attempt(
        self, batch: Batch, settings: Settings, static: bool, guarded: bool, inputs: Mapping[int, Tensor] | None
    ) -> tuple[Any, Runtime]:
        engine = Runtime(settings, batch.size, batch.dtype, batch.device, static, guarded)
        engine.inputs = inputs or {}
        engine.running[self.function] = settings
        args, kwargs = batch.enter(engine)
        try:
            return batch.leave(engine, self._invoke(engine, args, kwargs)), engine
        except RecursionError as error:
            raise RecursionError(
                f"softly.relax: {self.__name__} calls itself too deeply; where the end depends on a relaxed value, "
                "give the recursion a hard bound."
            ) from error
        except (TypeError, AttributeError, RuntimeError) as error:
            told = engine.describing or str(error).startswith("softly.")
            if told or type(error) not in _REWORDED:
                raise
            where = raised_at(error.__traceback__)
            reason = str(error).rstrip(".") or type(error).__name__
            raise type(error)(f"softly.relax: {where}{reason}.") from error

    def _straight(
        self, batch: Batch, settings: Settings, static: bool, soft: Any, inputs: Mapping[int, Tensor] | None
    ) -> Any:
        """The values of the hard program with the gradients of the relaxed one."""
        with torch.no_grad():
            hard, _ = self._attempt(batch, dataclasses.replace(settings, hard=True), static, True, inputs)
        return _pytree.tree_map(straight_through, hard, soft)

    def _invoke(self, engine: Runtime, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        body = functools.partial(self._lowered.function, engine, *args, **kwargs)
        return engine.control.invoke(body, self.__name__, self._lowered.straight)

    def __relaxed_call__(self, engine: Runtime, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        caller = engine.settings, engine.steepness
        if self._lowered.infinite:
            engine.guard()
        # A function that calls itself does so with the options that it was called with.
        settings = engine.running.get(self.function, self.settings)
        engine.configure(dataclasses.replace(settings, hard=settings.hard or caller[0].hard))
        result = self._invoke(engine, args, kwargs)
        engine.configure(caller[0])
        engine.steepen(caller[1])
        return result

    def tape(self) -> Tape:
        """The function on a native tape: recorded once for each shape of its arguments, then one kernel.

        Example:
            >>> @softly.relax(steepness=2.0)
            ... def larger(a, b):
            ...     return a if a > b else b
            >>> larger.tape()(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 3.0]))
            tensor([1.8808, 3.0000])
        """
        return Tape(self)

    def trace(self, *args: Any, **kwargs: Any) -> Trace:
        """What the function does with a batch, line by line: where its probability goes, where gradients vanish.

        Example:
            >>> @softly.relax(steepness=2.0)
            ... def larger(a, b):
            ...     return a if a > b else b
            >>> larger.trace(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 0.0])).suggested
            2.0
        """
        return Trace.of_call(self, Batch(self, args, kwargs))

    def _batch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Batch:
        return Batch(self, args, kwargs)

    def _trace(self, batch: Batch, examples: list[Tensor], count: int, settings: Settings) -> tuple[Any, Runtime]:
        """Run on examples of another number, with nothing left to data."""
        engine = Runtime(settings, count, batch.dtype, batch.device, True, self._lowered.infinite)
        engine.running[self.function] = settings
        args, kwargs = batch.enter(engine, examples)
        result = self._invoke(engine, args, kwargs)
        return _pytree.tree_map(lambda v: outcome(engine, v), results(engine, result)), engine

    def hard(self, *args: Any, **kwargs: Any) -> Any:
        """Run the plain function on every example.

        Example:
            >>> @softly.relax
            ... def count(x):
            ...     return sum([1 if v > 0 else 0 for v in x])
            >>> count.hard(torch.tensor([[1.0, -1.0, 2.0], [-1.0, -2.0, -3.0]]))
            tensor([2, 0])
        """
        batch = Batch(self, args, kwargs)
        results = []
        with torch.no_grad():
            for i in range(batch.size):
                one_args, one_kwargs = batch.example(i)
                try:
                    results.append(plain(self.function(*one_args, **one_kwargs)))
                except (TypeError, IndexError) as error:
                    # torch says this of a number that is measured, iterated or indexed.
                    if batch.bare is None or not re.search(r"\b0-d|dimension 0\b", str(error)):
                        raise
                    hint = forgotten_batch(batch.bare)
                    raise TypeError(f"softly.relax: {self.__qualname__}.hard: {error}{hint}.") from error
        return batch.collect(results)

    def __reduce__(self) -> Any:
        found: Any = sys.modules.get(self.__module__)
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is self:
            return self.__qualname__
        if not isinstance(found, RelaxedFunction) and found is not self.function:
            raise pickle.PicklingError(
                f"softly.relax: {self.__qualname__} can't be pickled, since {self.__module__} has no such function."
            )
        options = {f.name: getattr(self.settings, f.name) for f in dataclasses.fields(self.settings)}
        return _again, (self.__module__, self.__qualname__, {**options, **self._own()})

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self._method, instance)

    @functools.cached_property
    def _method(self) -> Callable[..., Any]:
        """The function as one that a method can be of: the compiler wants to know the file that it is in."""

        @functools.wraps(self, updated=())
        def method(*args: Any, **kwargs: Any) -> Any:
            return self(*args, **kwargs)

        for name in ("program", "using", "hard", "tape", "trace", "__relaxed_call__"):
            setattr(method, name, getattr(self, name))
        return method

    def __repr__(self) -> str:
        how = ", on a tape" if self._taped and self._taping.used else ""
        return f"<relaxed function {self.__name__}{how}>"


_numbers: WeakKeyDictionary[Callable[..., Any], Any] = WeakKeyDictionary()
_count = itertools.count()


def _again(module: str, name: str, options: dict[str, Any]) -> RelaxedFunction:
    """A relaxed function as it was pickled."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found.using(**options) if isinstance(found, RelaxedFunction) else relax(found, **options)


def _foreign(function: Callable[..., Any]) -> bool:
    return (function.__module__ or "").split(".")[0] in ("torch", "numpy", "softly") and not (
        function.__module__ or ""
    ).startswith("softly.algorithms.library")


def straight_through(hard: Any, soft: Any) -> Any:
    """``hard`` with the gradient of ``soft``."""
    if not isinstance(soft, Tensor) or not soft.is_floating_point():
        return hard
    hard = hard.to(soft.dtype)
    finite = torch.where(soft.detach().isfinite(), soft, 0.0)
    return torch.where(hard.isfinite(), hard + (finite - finite.detach()), hard)


def _checked(in_dims: Sequence[int | None] | None) -> tuple[int | None, ...] | None:
    if in_dims is None:
        return None
    if any(dim not in (0, None) for dim in in_dims):
        raise ValueError(f"softly.relax: in_dims holds 0 and None, one for each positional argument, got {in_dims}.")
    return tuple(in_dims)


def relax(
    function: Callable[..., Any] | None = None,
    /,
    *,
    steepness: float | Tensor = 10.0,
    distribution: str | Distribution = "logistic",
    tnorm: str | TNorm = "probabilistic",
    hard: bool = False,
    batch_dims: int = 1,
    in_dims: Sequence[int | None] | None = None,
    max_iterations: int = 1024,
    tolerance: float = 1e-5,
    max_paths: int = 4096,
    exact_gradient: bool = False,
    variables: Mapping[str, float | Tensor] | None = None,
    straight_through: bool = False,
    lists: bool = False,
    taped: bool = True,
) -> Any:
    """Make a plain Python function differentiable in its tensors.

    The function is written for one example. Conditions on tensors become probabilities, both branches run, and
    where paths join their values are averaged; conditions on Python's own numbers stay what they are. As
    ``steepness -> inf`` the result is that of the function itself.

    Args:
        function: A function with source code. Without it, the result is a decorator.
        steepness: Inverse temperature of comparisons and positions, > 0.
        distribution: Perturbs what is compared.
        tnorm: Combines probabilities in ``and`` and ``or``.
        hard: Decide exactly, on the same engine.
        batch_dims: The number of leading dimensions of every tensor that are not the function's business.
        in_dims: For each positional argument 0, or None where its tensors have no batch. Parameters never have one.
        max_iterations: Where a relaxed ``while`` is cut off.
        tolerance: A probability that is negligible, for the whole batch, to a branch or loop.
        max_paths: How many paths an `unmerged` block may have.
        exact_gradient: Differentiate the normaliser of real-valued positions, too.
        variables: The steepness of comparisons of single variables, by their names.
        straight_through: Give the values of the hard program, with the gradients of the relaxed one.
        lists: The function works on lists: tensors come to it as lists of numbers, with all that lists can do.
        taped: Record a program without data-dependent ends, exceptions and calls into the unknown at its first call,
            and run it as one kernel from then on; ``repr`` says so.

    Returns:
        A `RelaxedFunction`.

    Example:
        >>> @softly.relax(steepness=4.0)
        ... def clip(x, low, high):
        ...     if x < low:
        ...         return low
        ...     if x > high:
        ...         return high
        ...     return x
        >>> clip(torch.tensor([-1.0, 0.2, 3.0]), 0.0, 1.0)
        tensor([-0.0180,  0.1596,  1.0007])
    """
    settings = make_settings(
        "softly.relax",
        steepness=steepness,
        distribution=distribution,
        tnorm=tnorm,
        hard=hard,
        max_iterations=max_iterations,
        tolerance=tolerance,
        max_paths=max_paths,
        exact_gradient=exact_gradient,
        variables=variables,
        straight_through=straight_through,
    )

    def decorate(f: Callable[..., Any]) -> RelaxedFunction:
        return RelaxedFunction(f, settings, batch_dims, _checked(in_dims), lists=lists, taped=taped)

    return decorate if function is None else decorate(function)
