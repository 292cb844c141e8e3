"""From a Python function to code that runs on the engine: every operation that may meet a relaxed value asks it.

An ``if`` becomes a loop over the ways to go, after each of which the engine is handed the variables that were
assigned::

    if a > b:                   branch1 = _rt.control.branch(_rt.conditions.compare(">", a, b), (x,), ("x",), False)
        x = a      becomes      for way in branch1:
    else:                           if way:
        x = b                           x = a
                                    else:
                                        x = b
                                    (x,) = branch1.end((x,))

Jumps hand the state to the engine and end the path; what follows a statement that may have jumped stands under
``if _rt.control.alive``. Line numbers stay those of the source, so that a traceback points into it.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import textwrap
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from softly.algorithms.python.inference import may_be_relaxed
from softly.algorithms.python.rewriting import Lowering, Note
from softly.algorithms.python.straight import Line
from softly.algorithms.python.syntax import (
    assigned,
    bare_arguments,
    infinite,
    name_node,
    names_tuple,
    parameter_names,
    returns_at_end,
    undefined_names,
    without_docstring,
)


@dataclass(frozen=True)
class Lowered:
    """A lowered function: ``function(_rt, *arguments)``."""

    function: Callable[..., Any]
    source: str
    first_line: int
    notes: tuple[Note, ...]
    infinite: bool
    straight: bool  # whether it returns only at its end
    relaxed: tuple[str, ...]  # variables that may be
    original: types.FunctionType
    outside: tuple[str, ...]
    line: Line

    def scope(self) -> dict[str, Any]:
        """What the function reads from outside, as it is now, by name."""
        function = self.original
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        found: dict[str, Any] = {}
        for name in self.outside:
            if name in cells:
                if _filled(cells[name]):
                    found[name] = cells[name].cell_contents
            elif name in function.__globals__ or hasattr(builtins, name):
                found[name] = function.__globals__.get(name, getattr(builtins, name, None))
        return found

    def reader(self) -> Callable[[], tuple[Any, ...]]:
        """A function that reads all that the function reads from outside, so that a compiler sees it happen."""
        function = self.original
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        names = list(self.scope())
        inner = ast.FunctionDef("_reads", bare_arguments(_NONE), [ast.Return(names_tuple(names))], [])
        parameters = ast.arguments(
            posonlyargs=[], args=[ast.arg(n) for n in cells], kwonlyargs=[], kw_defaults=[], defaults=[]
        )
        outer = ast.FunctionDef("_outer", parameters, [inner, ast.Return(name_node("_reads"))], [])
        module = ast.fix_missing_locations(ast.Module([outer], []))
        code = next(c for c in compile(module, "<softly reads>", "exec").co_consts if isinstance(c, types.CodeType))
        reads = next(c for c in code.co_consts if isinstance(c, types.CodeType))
        closure = tuple(cells[n] for n in reads.co_freevars)
        return types.FunctionType(reads, function.__globals__, "_reads", (), closure)


_NONE = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


def _filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None or True
    except ValueError:
        return False


def _source(function: Callable[..., Any]) -> tuple[ast.FunctionDef, str, int]:
    name = getattr(function, "__name__", "function")
    if name == "<lambda>":
        return _lambda_source(function)
    try:
        lines, first_line = inspect.getsourcelines(function)
    except (OSError, TypeError) as error:
        raise _sourceless(name) from error
    source = textwrap.dedent("".join(lines))
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise SyntaxError(f"softly.relax: {name!r} must be defined by a `def` statement of its own.") from error
    definition = tree.body[0]
    if isinstance(definition, ast.AsyncFunctionDef):
        raise SyntaxError(f"softly.relax: {name!r} is an async function, which can't be relaxed.")
    if not isinstance(definition, ast.FunctionDef):
        raise SyntaxError(f"softly.relax: {name!r} must be defined by a `def` statement.")
    ast.increment_lineno(tree, first_line - 1)
    return definition, source, first_line


def _sourceless(name: str) -> OSError:
    return OSError(
        f"softly.relax: the source of {name!r} is not to be had; define it in a file or in a notebook cell "
        "rather than at a prompt or by exec."
    )


def _lambda_source(function: Callable[..., Any]) -> tuple[ast.FunctionDef, str, int]:
    """A lambda as a function that returns its expression; found in its file by its place."""
    code = function.__code__
    lines = linecache.getlines(code.co_filename, function.__globals__)
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        tree = ast.Module([], [])
    places = [p for p in code.co_positions() if p[0] is not None and p[2] is not None and p[3]]
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Lambda)
        and node.lineno == code.co_firstlineno
        and parameter_names(node.args)[: code.co_argcount] == list(code.co_varnames[: code.co_argcount])
        and any((node.body.lineno, node.body.col_offset) == (p[0], p[2]) for p in places)
    ]
    if len(found) != 1:
        raise _sourceless("<lambda>")
    (node,) = found
    result = ast.copy_location(ast.Return(node.body), node.body)
    definition = ast.copy_location(ast.FunctionDef("_lambda", node.args, [result], []), node)
    source = "".join(lines[node.lineno - 1 : node.end_lineno])
    return definition, source, node.lineno


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
    parameters = parameter_names(arguments)
    names = assigned(definition.body)
    for variable in variables:
        if variable not in (*parameters, *names):
            raise ValueError(f"softly.relax: variables names {variable!r}, which {function.__name__} doesn't have.")
    lowering = Lowering(filename, {*parameters, *names}, variables)
    body = without_docstring(definition.body)
    line = Line.of(definition, {*parameters, *names})
    undefined = undefined_names(names, parameters)
    relaxed = may_be_relaxed(parameters, body)
    endless = any(infinite(node) for statement in body for node in ast.walk(statement))
    lowered = [ast.copy_location(u, definition) for u in undefined] + lowering.block(body)
    bare = bare_arguments(arguments, first=["_rt"])
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
    for node in ast.walk(module):
        if isinstance(node, (ast.stmt, ast.expr)):
            # What is made of a statement of several lines is where that begins.
            node.end_lineno, node.end_col_offset = node.lineno, node.col_offset
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
    notes = tuple(sorted(dict.fromkeys(lowering.notes), key=lambda note: note.line))
    return Lowered(
        made,
        source,
        first_line,
        notes,
        endless,
        returns_at_end(body),
        relaxed,
        function,
        tuple(sorted(lowering.outside)),
        line,
    )
