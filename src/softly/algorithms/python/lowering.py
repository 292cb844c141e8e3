"""From a Python function to code that runs on the engine: every operation that may meet a relaxed value asks it.

An ``if`` becomes a loop over the ways to go, after each of which the engine is handed the variables that were
assigned::

    if a > b:                         _branch1 = _rt.branch(_rt.compare(">", a, b), (x,), ("x",), False)
        x = a            becomes      for _way in _branch1:
    else:                                 if _way:
        x = b                                 x = a
                                          else:
                                              x = b
                                          (x,) = _branch1.end((x,))

Jumps hand the state to the engine and end the path; what follows a statement that may have jumped stands under
``if _rt.alive``. Line numbers stay those of the source, so that a traceback points into it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from softly.algorithms.python.rewriting import Lowering, Note, assigned, engine_call, infinite, name_node


@dataclass(frozen=True)
class Lowered:
    """A lowered function: ``function(_rt, *arguments)``."""

    function: Callable[..., Any]
    source: str
    first_line: int
    notes: tuple[Note, ...]
    infinite: bool


def _source(function: Callable[..., Any]) -> tuple[ast.FunctionDef, str, int]:
    name = getattr(function, "__name__", "function")
    try:
        lines, first_line = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise OSError(
            f"softly.relax: the source of {name!r} is not to be had; define it in a file or in a notebook cell "
            "rather than at a prompt or by exec."
        ) from error
    source = textwrap.dedent("".join(lines))
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise SyntaxError(f"softly.relax: {name!r} must be defined by a `def` statement of its own.") from error
    definition = tree.body[0]
    if isinstance(definition, ast.AsyncFunctionDef):
        raise SyntaxError(f"softly.relax: {name!r} is an async function, which can't be relaxed.")
    if not isinstance(definition, ast.FunctionDef):
        raise SyntaxError(f"softly.relax: {name!r} must be defined by a `def` statement; a lambda can't be relaxed.")
    ast.increment_lineno(tree, first_line - 1)
    return definition, source, first_line


def lower(function: Callable[..., Any], variables: Sequence[str] = ()) -> Lowered:
    """Lower a Python function; see the module.

    Args:
        function: A plain function with source code.
        variables: Names whose comparisons ask the engine for a steepness of their own.
    """
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"softly.relax: a function is needed, got {type(function).__name__}.")
    definition, source, first_line = _source(function)
    code = function.__code__
    filename = code.co_filename
    arguments = definition.args
    parameters = [a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
    parameters += [a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None]
    names = assigned(definition.body)
    for variable in variables:
        if variable not in (*parameters, *names):
            raise ValueError(f"softly.relax: variables names {variable!r}, which {function.__name__} doesn't have.")
    lowering = Lowering(filename, {*parameters, *names}, variables)
    body = definition.body
    if (
        isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    ):
        body = body[1:] or [ast.copy_location(ast.Pass(), body[0])]
    undefined = [
        ast.Assign([name_node(n, ast.Store)], engine_call("undefined", ast.Constant(n)))
        for n in names
        if n not in parameters
    ]
    endless = any(infinite(node) for statement in body for node in ast.walk(statement))
    lowered = [ast.copy_location(u, definition) for u in undefined] + lowering.block(body)
    bare = ast.arguments(
        posonlyargs=[ast.arg("_rt"), *(ast.arg(a.arg) for a in arguments.posonlyargs)],
        args=[ast.arg(a.arg) for a in arguments.args],
        vararg=ast.arg(arguments.vararg.arg) if arguments.vararg else None,
        kwonlyargs=[ast.arg(a.arg) for a in arguments.kwonlyargs],
        kw_defaults=[None] * len(arguments.kwonlyargs),
        kwarg=ast.arg(arguments.kwarg.arg) if arguments.kwarg else None,
        defaults=[],
    )
    # By another name, so that a call of the function in its own body means the relaxed one.
    inner = ast.copy_location(ast.FunctionDef("_relaxed", bare, lowered, []), definition)
    # The variables of enclosing functions are parameters of a function around, so that the code refers to cells.
    outer_arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(n) for n in code.co_freevars], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    outer = ast.copy_location(
        ast.FunctionDef("_outer", outer_arguments, [inner, ast.Return(name_node("_relaxed"))], []), definition
    )
    module = ast.fix_missing_locations(ast.Module([outer], []))
    outer_code = next(c for c in compile(module, filename, "exec").co_consts if isinstance(c, types.CodeType))
    inner_code = next(c for c in outer_code.co_consts if isinstance(c, types.CodeType) and c.co_name == "_relaxed")
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    made = types.FunctionType(
        inner_code.replace(co_name=code.co_name, co_qualname=code.co_qualname),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        tuple(cells[n] for n in inner_code.co_freevars),
    )
    made.__kwdefaults__ = function.__kwdefaults__
    notes = tuple(sorted(lowering.notes, key=lambda note: note.line))
    return Lowered(made, source, first_line, notes, endless)
