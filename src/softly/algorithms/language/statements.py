"""The constructor language of chapter 2: programs as nested modules, run by the same engine as `softly.relax`.

Names are strings, computations are functions whose parameters name the variables that they read; tensors have
their batch in front, as the chapter writes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from softly import _inputs, native
from softly.algorithms.engine import dynamo
from softly.algorithms.engine.arrays import Array
from softly.algorithms.engine.batches import Batch
from softly.algorithms.engine.runtime import Runtime
from softly.algorithms.engine.settings import Settings, make_settings
from softly.algorithms.language.conditions import Condition, checked
from softly.algorithms.language.state import State
from softly.algorithms.tape.tape import Tape
from softly.distributions import Distribution
from softly.tnorms import TNorm

__all__ = [
    "Algorithm",
    "For",
    "If",
    "Input",
    "Let",
    "LetInt",
    "Output",
    "Print",
    "Var",
    "VarInt",
    "While",
]


def _identifier(name: Any, owner: str) -> str:
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"softly.algorithms.{owner}: a name must be an identifier, got {name!r}.")
    return name


class Node:
    """A statement."""

    def _run(self, state: State) -> None:
        raise AttributeError(f"{type(self).__name__} can't be run")


_count = itertools.count()
Block = Node | Sequence[Node] | None


def _block(block: Block, owner: str) -> tuple[Node, ...]:
    nodes = () if block is None else (block,) if isinstance(block, Node) else tuple(block)
    for node in nodes:
        if not isinstance(node, Node):
            raise TypeError(f"softly.algorithms.{owner}: a statement is needed, got {type(node).__name__}.")
    return nodes


def run_all(nodes: Iterable[Node], state: State) -> None:
    for node in nodes:
        node._run(state)


# Declarations ----------------------------------------------------------------------------------------------------


class Input:
    """An argument of an algorithm, a tensor with a batch in front.

    Example:
        >>> softly.algorithms.Input("array").name
        'array'
    """

    def __init__(self, name: str) -> None:
        self.name = _identifier(name, "Input")


class Output:
    """A result of an algorithm.

    Example:
        >>> softly.algorithms.Output("array").name
        'array'
    """

    def __init__(self, name: str) -> None:
        self.name = _identifier(name, "Output")


class Var:
    """A relaxed variable with its first value: a tensor without batch, a number, or a function that gives one.

    Example:
        >>> softly.algorithms.Var("loss", torch.tensor(0.0)).name
        'loss'
    """

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = _identifier(name, "Var"), value

    def _declare(self, state: State) -> None:
        value = state.call(self.value) if callable(self.value) else self.value
        if isinstance(value, (bool, int, float)):
            value = torch.tensor(float(value))
        if not isinstance(value, Tensor):
            raise TypeError(f"softly.algorithms.Var: {self.name!r} must be a tensor, got {type(value).__name__}.")
        engine = state.engine
        value = dynamo.known(value) if engine.static else value
        value = value.detach().to(engine.device, engine.dtype if value.dtype.is_floating_point else value.dtype)
        state.values[self.name] = engine.outer(value)


class VarInt:
    """A hard variable: an int or a list of ints, shared by the batch, or a function that gives one.

    Example:
        >>> softly.algorithms.VarInt("n", lambda array: array.shape[1] - 1).name
        'n'
    """

    def __init__(self, name: str, value: Any) -> None:
        self.name = _identifier(name, "VarInt")
        self.value = value if callable(value) else _integers(value, "VarInt", name)

    def _declare(self, state: State) -> None:
        value = state.call(self.value) if callable(self.value) else self.value
        state.values[self.name] = _integers(value, "VarInt", self.name)
        state.integers.add(self.name)


def _integers(value: Any, owner: str, name: str) -> Any:
    if isinstance(value, int):
        return value
    if isinstance(value, Iterable) and not isinstance(value, (str, Tensor)):
        entries = list(value)
        if all(isinstance(v, int) for v in entries):
            return entries
    raise TypeError(f"softly.algorithms.{owner}: {name!r} must be an int or a list of ints, got {value!r}.")


# Statements ------------------------------------------------------------------------------------------------------


class Let(Node):
    """An assignment, in the forms of the chapter.

    ========================================  ===================
    ``Let('a', 'x')``                         ``a = x``
    ``Let('a', lambda x: x**2)``              ``a = x**2``
    ``Let('a', 'array', ['i'])``              ``a = array[i]``
    ``Let('array', [lambda i: i + 1], 'a')``  ``array[i + 1] = a``
    ``Let('a', ['i'], 'x', ['j'])``           ``a[i] = x[j]``
    ``Let(['a', 'b'], lambda x: (x, -x))``    ``a, b = x, -x``
    ========================================  ===================

    Example:
        >>> from softly.algorithms import *
        >>> Algorithm(Input("x"), Var("y", 0.0), Let("y", lambda x: x**2), Output("y"))(torch.tensor([3.0]))
        tensor([9.])
    """

    def __init__(self, *args: Any) -> None:
        self.target_index: Sequence[Any] | None = None
        self.value_index: Sequence[Any] | None = None
        match args:
            case ([*names], function) if callable(function) and not isinstance(args[0], str):
                self.target: Any = [_identifier(n, "Let") for n in names]
                self.value: Any = function
                return
            case (str(), _):
                self.target, self.value = args
            case (str(), [*_], _) if not isinstance(args[1], str):
                self.target, self.target_index, self.value = args
            case (str(), str(), [*_]):
                self.target, self.value, self.value_index = args
            case (str(), [*_], str(), [*_]) if not isinstance(args[1], str):
                self.target, self.target_index, self.value, self.value_index = args
            case _:
                raise TypeError(f"softly.algorithms.Let: no assignment has the arguments {args}.")
        _identifier(self.target, "Let")

    def _run(self, state: State) -> None:
        if isinstance(self.target, list):
            results = state.call(self.value)
            if not isinstance(results, (list, tuple)) or len(results) != len(self.target):
                raise ValueError(f"softly.algorithms.Let: {self.target} needs {len(self.target)} values.")
            for name, result in zip(self.target, results, strict=True):
                state.write(name, state.engine.wrap(result))
            return
        value = state.read(self.value)
        if self.value_index is not None:
            value = state.engine.access.getitem(value, _one(state.index(self.value_index)))
        if self.target_index is not None:
            state.engine.access.setitem(state[self.target], _one(state.index(self.target_index)), value)
        else:
            state.write(self.target, value.copy() if isinstance(value, Array) else value)


def _one(index: tuple[Any, ...]) -> Any:
    return index[0] if len(index) == 1 else index


class LetInt(Node):
    """An assignment to a `VarInt`.

    Example:
        >>> from softly.algorithms import *
        >>> twice = Algorithm(
        ...     Input("x"), VarInt("n", 2), LetInt("n", lambda n: n + 1), Let("x", lambda x, n: x * n), Output("x")
        ... )
        >>> twice(torch.tensor([1.0]))
        tensor([3.])
    """

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = _identifier(name, "LetInt"), value

    def _run(self, state: State) -> None:
        if self.name not in state.integers:
            raise TypeError(f"softly.algorithms.LetInt: {self.name!r} is not a VarInt.")
        value = state.call(self.value) if callable(self.value) else self.value
        value = state[value] if isinstance(value, str) else value
        state.engine.journals.write(state.values, self.name, _integers(value, "LetInt", self.name))


class Print(Node):
    """Prints what a function of some variables gives.

    Example:
        >>> from softly.algorithms import *
        >>> _ = Algorithm(Input("x"), Print(lambda x: x + 1), Output("x"))(torch.tensor([1.0]))
        tensor([2.])
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def _run(self, state: State) -> None:
        print(state.call(self.function))  # noqa: T201


class If(Node):
    """Both branches run; what they assign is averaged by the probability of the condition.

    Example:
        >>> from softly.algorithms import *
        >>> sign = Algorithm(
        ...     Input("x"), Var("y", 0.0), If(GT("x", 0.0), Let("y", 1), Let("y", -1)), Output("y"), beta=2.0
        ... )
        >>> sign(torch.tensor([0.0, 1.0]))
        tensor([0.0000, 0.7616])
    """

    def __init__(self, condition: Condition, if_true: Block = None, if_false: Block = None) -> None:
        self.condition = checked(condition, "If")
        self.if_true, self.if_false = _block(if_true, "If"), _block(if_false, "If")
        nodes = (*self.if_true, *self.if_false)
        self._check = not all(isinstance(n, (Let, LetInt)) for n in nodes)

    def _run(self, state: State) -> None:
        branch = state.engine.control.branch(self.condition(state), (), (), self._check)
        for way in branch:
            run_all(self.if_true if way else self.if_false, state)
            branch.end(())


class While(Node):
    """Repeats while a condition holds; the state after i iterations counts with the probability of exactly i.

    Example:
        >>> from softly.algorithms import *
        >>> count = Algorithm(
        ...     Input("x"), Var("n", 0.0), While(LT("n", "x"), Let("n", lambda n: n + 1)), Output("n"), beta=20.0
        ... )
        >>> count(torch.tensor([2.5]))
        tensor([3.])
    """

    def __init__(self, condition: Condition, *sequence: Node) -> None:
        self.condition, self.sequence = checked(condition, "While"), _block(sequence, "While")

    def _run(self, state: State) -> None:
        loop = state.engine.control.loop((), False)
        while loop.alive and loop.test(self.condition(state), ()):
            run_all(self.sequence, state)
        loop.end(())


class For(Node):
    """A loop over hard numbers: ``For('i', n, ...)`` is ``for i in range(n)``; n may name or compute one, or a list.

    Example:
        >>> from softly.algorithms import *
        >>> total = Algorithm(Input("x"), For("i", 4, Let("x", lambda x, i: x + i)), Output("x"))
        >>> total(torch.tensor([0.0]))
        tensor([6.])
    """

    def __init__(self, variable: str, over: Any, *sequence: Node) -> None:
        self.variable, self.over = _identifier(variable, "For"), over
        self.sequence = _block(sequence, "For")

    def _run(self, state: State) -> None:
        over = state.call(self.over) if callable(self.over) else self.over
        over = state[over] if isinstance(over, str) else over
        if isinstance(over, Tensor):
            raise TypeError(f"softly.algorithms.For: {self.variable!r} needs a hard int or list, not a relaxed number.")
        entries = _integers(over, "For", self.variable)
        if self.variable in state.values:
            raise NameError(f"softly.algorithms.For: {self.variable!r} is already a variable.")
        state.integers.add(self.variable)
        for entry in range(entries) if isinstance(entries, int) else entries:
            state.values[self.variable] = entry
            run_all(self.sequence, state)
        state.values.pop(self.variable, None)
        state.integers.discard(self.variable)


class Algorithm(torch.nn.Module):
    """A program of the chapter's modules, as a module of torch.

    As ``beta -> inf`` it runs as written; with ``hard=True`` it does so exactly.

    Args:
        sequence: Inputs, variables, statements and outputs.
        beta: The steepness, > 0.
        distribution: Perturbs what is compared.
        tnorm: Combines probabilities in ``&`` and ``|``.
        hard: Decide exactly.
        max_iter: Where a `While` is cut off.
        epsilon: A probability that is negligible for the whole batch.
        exact_gradient: Differentiate the normaliser of real-valued positions, too.

    Example:
        >>> from softly.algorithms import *
        >>> larger = Algorithm(
        ...     Input("a"), Input("b"), If(GT("b", "a"), Let("a", "b")), Output("a"), beta=5.0
        ... )
        >>> larger(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 1.0]))
        tensor([1.9933, 2.9999])
    """

    def __init__(
        self,
        *sequence: Input | Output | Var | VarInt | Node,
        beta: float | Tensor = 10.0,
        distribution: str | Distribution = "logistic",
        tnorm: str | TNorm = "probabilistic",
        hard: bool = False,
        max_iter: int = 1024,
        epsilon: float = 1e-5,
        exact_gradient: bool = False,
    ) -> None:
        super().__init__()
        self.settings: Settings = make_settings(
            "softly.algorithms.Algorithm",
            steepness=beta,
            distribution=distribution,
            tnorm=tnorm,
            hard=hard,
            max_iterations=max_iter,
            tolerance=epsilon,
            exact_gradient=exact_gradient,
        )
        self.inputs = [s for s in sequence if isinstance(s, Input)]
        self.outputs = [s for s in sequence if isinstance(s, Output)]
        self.variables = [s for s in sequence if isinstance(s, (Var, VarInt))]
        self.statements = _block([s for s in sequence if not isinstance(s, (Input, Output, Var, VarInt))], "Algorithm")
        if not self.inputs or not self.outputs:
            raise ValueError("softly.algorithms.Algorithm: at least one Input and one Output are needed.")
        names = [s.name for s in (*self.inputs, *self.variables)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"softly.algorithms.Algorithm: {name!r} is declared twice.")
        self._entry = dynamo.Entry.of(f"Algorithm {next(_count)}", self)

    def forward(self, *inputs: Tensor) -> Any:
        """Run the program: one tensor, or a tuple of the outputs."""
        if torch.compiler.is_compiling():
            return self._entry(inputs)
        return self._run(inputs, static=any(native.transformed(x) or x.is_meta for x in inputs))

    def _readers(self) -> tuple[Callable[[], tuple[Any, ...]], ...]:
        return ()

    def _compiled(self, outside: list[Any], inputs: Sequence[Tensor]) -> Any:
        return self._run(inputs)

    def _run(self, inputs: Sequence[Tensor], *, static: bool = True) -> Any:
        return self._results(self._engine(inputs, self.settings, static), inputs)

    def _engine(self, inputs: Sequence[Tensor], settings: Settings, static: bool) -> Runtime:
        if len(inputs) != len(self.inputs):
            raise TypeError(f"softly.algorithms.Algorithm: {len(self.inputs)} inputs are needed, got {len(inputs)}.")
        first = _inputs.floating(inputs[0], "softly.algorithms.Algorithm", "the first input")
        guarded = not static and any(bool(torch.isinf(x.detach()).any()) for x in inputs)
        engine = Runtime(settings, first.shape[0], first.dtype, first.device, static, guarded)
        engine.typed = False  # its functions are written for tensors
        return engine

    def _results(self, engine: Runtime, inputs: Sequence[Tensor]) -> Any:
        first, state = inputs[0], State(engine)
        for declared, value in zip(self.inputs, inputs, strict=True):
            if value.ndim < 1 or value.shape[0] != first.shape[0]:
                raise ValueError(
                    f"softly.algorithms.Algorithm: {declared.name!r} must have a batch of {first.shape[0]} in front, "
                    f"got shape {tuple(value.shape)}."
                )
            state.values[declared.name] = engine.wrap(value)
        for variable in self.variables:
            variable._declare(state)

        def body() -> None:
            run_all(self.statements, state)

        engine.control.invoke(body, "Algorithm", True)
        results = tuple(
            engine.column(v) if not isinstance(v, Array) else v.tensor()
            for v in (state[output.name] for output in self.outputs)
        )
        return results[0] if len(results) == 1 else results

    def tape(self) -> Tape:
        """The program on a native tape: recorded once for each shape of its inputs, then one kernel.

        Example:
            >>> from softly.algorithms import *
            >>> larger = Algorithm(Input("a"), Input("b"), If(GT("b", "a"), Let("a", "b")), Output("a"), beta=5.0)
            >>> larger.tape()(torch.tensor([1.0, 3.0]), torch.tensor([2.0, 1.0]))
            tensor([1.9933, 2.9999])
        """
        return Tape(self)

    __name__ = "Algorithm"
    _batch_dims = 1
    _in_dims = None

    def _batch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Batch:
        return Batch(self, args, kwargs)

    def _trace(self, batch: Batch, examples: list[Tensor], count: int, settings: Settings) -> tuple[Any, Runtime]:
        engine = self._engine(examples, settings, True)
        return self._results(engine, examples), engine
