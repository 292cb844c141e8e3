"""`softly.relax`: an ordinary Python function, made differentiable."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from softly import _inputs, native
from softly.algorithms.engine import dynamo
from softly.algorithms.engine.arrays import Array
from softly.algorithms.engine.batches import Batch, Copying, outcome, plain
from softly.algorithms.engine.runtime import Runtime
from softly.algorithms.engine.settings import Settings, make_settings
from softly.algorithms.python.lowering import lower
from softly.algorithms.python.program import Program
from softly.algorithms.tape.tape import Tape
from softly.distributions import Distribution
from softly.tnorms import TNorm

__all__ = ["RelaxedFunction", "relax", "steepness", "unmerged"]


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

    def __init__(
        self,
        function: Callable[..., Any],
        settings: Settings,
        batch_dims: int,
        in_dims: tuple[int | None, ...] | None,
    ) -> None:
        if batch_dims < 0:
            raise ValueError(f"softly.relax: batch_dims must be >= 0, got {batch_dims}.")
        self._lowered = lower(function, tuple(settings.variables))
        self.function, self.settings, self._batch_dims, self._in_dims = function, settings, batch_dims, in_dims
        functools.update_wrapper(self, function)
        self._graph = dynamo.Graph(self._run)

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
        batch_dims = changes.pop("batch_dims", self._batch_dims)
        in_dims = changes.pop("in_dims", self._in_dims)
        current = {f.name: getattr(self.settings, f.name) for f in dataclasses.fields(self.settings)}
        return RelaxedFunction(
            self.function, make_settings("softly.relax", **{**current, **changes}), batch_dims, _checked(in_dims)
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the relaxed function over a batch."""
        if torch.compiler.is_compiling():
            return self._graph(args, kwargs, self._learned())
        leaves = _pytree.tree_leaves((args, kwargs))
        arrays = [leaf for leaf in leaves if isinstance(leaf, Array)]
        if arrays:  # called by a function that itself was called by a program
            return self.__relaxed_call__(arrays[0].engine, args, kwargs)
        if any(isinstance(leaf, Copying) for leaf in leaves) or not any(isinstance(leaf, Tensor) for leaf in leaves):
            return self.function(*args, **kwargs)  # called by a plain run, or with nothing to relax
        static = any(native.transformed(leaf) for leaf in leaves if isinstance(leaf, Tensor))
        return self._run(args, kwargs, self._learned(), static=static)

    def _learned(self) -> tuple[Tensor, ...]:
        return (self.settings.steepness,) if isinstance(self.settings.steepness, Tensor) else ()

    def _run(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], learned: tuple[Tensor, ...] = (), *, static: bool = True
    ) -> Any:
        settings = dataclasses.replace(self.settings, steepness=learned[0]) if learned else self.settings
        batch = Batch(self, args, kwargs)
        guarded = self._lowered.infinite or (not static and batch.infinite())
        engine = Runtime(settings, batch.size, batch.dtype, batch.device, static, guarded)
        engine.running[self.function] = settings
        args, kwargs = batch.enter(engine)
        return batch.leave(engine, self._invoke(engine, args, kwargs))

    def _invoke(self, engine: Runtime, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return engine.invoke(lambda: self._lowered.function(engine, *args, **kwargs), self.__name__)

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

    def _batch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Batch:
        return Batch(self, args, kwargs)

    def _trace(self, batch: Batch, examples: list[Tensor], count: int) -> Any:
        """Run on examples of another number, with nothing left to data."""
        engine = Runtime(self.settings, count, batch.dtype, batch.device, True, self._lowered.infinite)
        engine.running[self.function] = self.settings
        tensors = iter(examples)
        leaves = [engine.wrap(next(tensors)) if isinstance(leaf, Tensor) else leaf for leaf in batch.leaves]
        args, kwargs = _pytree.tree_unflatten(leaves, batch.structure)
        result = self._invoke(engine, args, kwargs)
        return _pytree.tree_map(lambda v: outcome(engine, v), result)

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
                results.append(plain(self.function(*one_args, **one_kwargs)))
        return batch.collect(results)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<relaxed function {self.__name__}>"


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
    )

    def decorate(f: Callable[..., Any]) -> RelaxedFunction:
        return RelaxedFunction(f, settings, batch_dims, _checked(in_dims))

    return decorate if function is None else decorate(function)


class steepness:  # noqa: N801 - used like a function
    """Within a relaxed function, ``with steepness(20.0):`` gives the comparisons of a block their own steepness.

    In a plain run of the function it does nothing.

    Example:
        >>> @softly.relax(steepness=1.0)
        ... def sign(x):
        ...     with softly.algorithms.steepness(100.0):
        ...         return 1 if x > 0 else -1
        >>> sign(torch.tensor([-0.1, 0.1]))
        tensor([-0.9999,  0.9999])
    """

    def __init__(self, value: float | Tensor) -> None:
        self.value = _inputs.steepness(value, "softly.algorithms.steepness")

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def __relaxed_block__(self, engine: Runtime, entry: Any, labels: Any) -> Any:
        return _SteepBlock(engine, self.value)


class _SteepBlock:
    def __init__(self, engine: Runtime, value: float | Tensor) -> None:
        self.engine, self.value = engine, value

    def __iter__(self) -> Any:
        before = self.engine.steepness
        self.engine.steepen(self.value)
        yield
        self.engine.steepen(before)

    @staticmethod
    def end(names: Any) -> Any:
        return names

    join = end


class unmerged:  # noqa: N801 - used like a function
    """Within a relaxed function, ``with unmerged():`` follows every path through a block to its end.

    Sequences of conditions are otherwise joined after each of them, which is an approximation where a later one
    depends on the earlier. Unmerged they are exact, at the cost of up to 2^conditions runs of the block; more than
    ``max_paths`` are an error. In a plain run of the function it does nothing.

    Example:
        >>> def outside(x):
        ...     with softly.algorithms.unmerged():
        ...         a = 1.0 if x > 0 else -1.0
        ...         b = 0.0 if a < 0 else a * a
        ...     return b
        >>> x = torch.tensor([0.0])
        >>> softly.relax(outside, steepness=9.0)(x)  # a is 1 or -1, each with probability 1/2
        tensor([0.5000])
    """

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def __relaxed_block__(self, engine: Runtime, entry: Any, labels: Any) -> Any:
        return engine.unmerged(entry, labels)
