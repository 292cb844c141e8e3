"""Which variables of a function may be relaxed, as far as its source tells."""

from __future__ import annotations

import ast
from collections.abc import Sequence

_HARD_CALLS = ("len", "range", "isinstance", "type")
_HARD_ATTRIBUTES = ("shape", "ndim", "size", "dim", "dtype")


def may_be_relaxed(parameters: Sequence[str], body: Sequence[ast.stmt]) -> tuple[str, ...]:
    """The variables that depend on the arguments, or are assigned where a condition depends on them.

    An argument may always be a tensor; what is hard in a call, such as an int that is passed, stays hard in it.
    """
    found = set(parameters)
    while True:
        before = len(found)
        _follow(body, found, False)
        if len(found) == before:
            return tuple(sorted(found))


def _depends(node: ast.AST | None, found: set[str]) -> bool:
    if node is None:
        return False
    if isinstance(node, ast.Name):
        return node.id in found
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _HARD_CALLS:
        return False
    if isinstance(node, ast.Attribute) and node.attr in _HARD_ATTRIBUTES:
        return False
    return any(_depends(child, found) for child in ast.iter_child_nodes(node))


def _targets(node: ast.expr) -> set[str]:
    while isinstance(node, (ast.Subscript, ast.Attribute, ast.Starred)):
        node = node.value
    if isinstance(node, (ast.Tuple, ast.List)):
        return {name for element in node.elts for name in _targets(element)}
    return {node.id} if isinstance(node, ast.Name) else set()


def _follow(statements: Sequence[ast.stmt], found: set[str], under: bool) -> None:
    for statement in statements:
        if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if under or _depends(statement.value, found):
                for target in targets:
                    found |= _targets(target)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            function = statement.value.func  # perhaps a method that changes what it belongs to
            if isinstance(function, ast.Attribute) and (under or _depends(ast.Tuple(statement.value.args), found)):
                found |= _targets(function.value)
        elif isinstance(statement, (ast.If, ast.While)):
            inside = under or _depends(statement.test, found)
            _follow([*statement.body, *statement.orelse], found, inside)
        elif isinstance(statement, ast.For):
            ranged = isinstance(statement.iter, ast.Call) and _depends(ast.Tuple(statement.iter.args), found)
            if under or _depends(statement.iter, found):
                found |= _targets(statement.target)
            _follow([*statement.body, *statement.orelse], found, under or ranged)
        elif isinstance(statement, (ast.With, ast.Try)):
            _follow(statement.body, found, under)
