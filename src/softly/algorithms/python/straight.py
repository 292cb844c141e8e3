"""Which programs are straight lines: those that do the same operations for all numbers, and nothing else.

Only what is known to be so is taken for a straight line. Whatever else a function may do (an exception, an attribute
of an object, a call of anything unknown, a list from outside) can depend on numbers or on the time of day. Whether a
`while` has a hard end shows when it runs.
"""

from __future__ import annotations

import ast
import math
import types
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softly import minmax

_STATEMENTS = (
    *(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Return, ast.Pass, ast.Break),
    ast.Continue,
)
_EXPRESSIONS = (
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Name, ast.Constant, ast.Tuple, ast.List),
    *(ast.Subscript, ast.Slice, ast.ListComp, ast.GeneratorExp, ast.comprehension, ast.operator, ast.unaryop),
    *(ast.boolop, ast.cmpop, ast.expr_context),
)
_METHODS = ("append", "clone", "extend", "insert", "pop", "reshape")
_SHAPES = ("shape", "ndim")
_BUILTINS = (
    *(
        abs,
        all,
        any,
        bool,
        enumerate,
        float,
        int,
        isinstance,
        len,
        list,
        max,
        min,
        pow,
        range,
        reversed,
        round,
        sorted,
        sum,
    ),
    *(tuple, zip),
)
_TORCH = {
    *(
        "abs",
        "argmax",
        "argmin",
        "atan2",
        "clamp",
        "cos",
        "exp",
        "expm1",
        "log",
        "log1p",
        "maximum",
        "minimum",
        "ones",
        "ones_like",
    ),
    *("sigmoid", "sin", "sqrt", "stack", "sum", "tanh", "where", "zeros", "zeros_like"),
}
_MODULES: dict[Any, set[str]] = {
    math: {n for n in vars(math) if not n.startswith("_")},
    torch: _TORCH,
    minmax: {"categorical_equal"},
}
_KNOWN = {
    id(f)
    for f in (*_BUILTINS, *(getattr(module, name) for module, names in _MODULES.items() for name in names))
    if callable(f)
}


@dataclass(frozen=True)
class Line:
    """What the source of a function says about whether it is a straight line.

    Attributes:
        obstacle: Why it is none, or None.
        attributes: What it reads of modules, as (module, attribute).
    """

    obstacle: str | None
    attributes: tuple[tuple[str, str], ...]

    @staticmethod
    def of(definition: ast.FunctionDef, names: set[str]) -> Line:
        """What a definition says; ``names`` are the variables of the function."""
        arguments = definition.args
        defaults = [*arguments.defaults, *(d for d in arguments.kw_defaults if d is not None)]
        if not all(isinstance(d, ast.Constant) for d in defaults):
            return Line("a default is no number", ())
        if arguments.vararg or arguments.kwarg:
            return Line("the number of its arguments varies", ())
        attributes: list[tuple[str, str]] = []
        body = definition.body[1:] if ast.get_docstring(definition) is not None else definition.body
        return Line(next(_obstacles(body, names, attributes), None), tuple(attributes))

    def obstacle_in(self, scope: Mapping[str, Any], lowered: Container[Any]) -> str | None:
        """Why it is none, given what it reads from outside and the functions that are lowered with it."""
        if self.obstacle is not None:
            return self.obstacle
        for owner, name in self.attributes:
            if name not in _MODULES.get(scope.get(owner), ()):
                return f"it reads {owner}.{name}"
        return next((f"it reads {name} from outside" for name, v in scope.items() if not _steady(v, lowered)), None)


def _obstacles(nodes: Sequence[ast.AST], names: set[str], attributes: list[tuple[str, str]]) -> Iterator[str]:
    for node in nodes:
        inner: list[ast.AST] = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Call):
            inner = [*node.args, *(keyword.value for keyword in node.keywords)]
            if isinstance(node.func, ast.Attribute):
                # A method of a list or an array, or a function of a module.
                inner.append(node.func.value if node.func.attr in _METHODS else node.func)
            elif not isinstance(node.func, ast.Name) or node.func.id in names:
                yield f"line {node.lineno} calls what it calculates"
        elif isinstance(node, ast.Attribute):
            inner = []
            if isinstance(node.value, ast.Name) and node.value.id not in names:
                attributes.append((node.value.id, node.attr))
            elif node.attr not in _SHAPES:
                yield f"line {node.lineno} reads {node.attr}"
            else:
                inner = [node.value]
        elif isinstance(node, ast.Expr):
            if not isinstance(node.value, ast.Call):
                yield f"line {node.lineno} is an expression alone"
        elif not isinstance(node, (*_STATEMENTS, *_EXPRESSIONS)):
            yield f"line {getattr(node, 'lineno', '?')} has a {type(node).__name__.lower()}"
        yield from _obstacles(inner, names, attributes)


def _steady(value: Any, lowered: Container[Any]) -> bool:
    """Whether a value from outside is seen when it changes."""
    if isinstance(value, Tensor):
        return not value.requires_grad
    if value is None or isinstance(value, (bool, int, float, str)) or id(value) in _KNOWN:
        return True
    function = getattr(value, "function", value)  # that of a relaxed one
    return (isinstance(value, types.ModuleType) and value in _MODULES) or (
        isinstance(function, types.FunctionType) and function in lowered
    )
