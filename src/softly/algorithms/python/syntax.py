"""Syntax trees: what is asked of those of a function, and how those are made that ask the engine."""

from __future__ import annotations

import ast
from collections.abc import Sequence

JUMPS = (ast.Break, ast.Continue, ast.Return, ast.Raise)
HEAVY = (
    *(ast.For, ast.While, ast.If, ast.IfExp, ast.Call, ast.Raise, ast.ListComp, ast.GeneratorExp, ast.With),
    *(ast.FunctionDef, ast.Delete),
)
LEAVING = (ast.Return, ast.Raise, ast.Assert)  # what may end a function


def name_node(identifier: str, context: type[ast.expr_context] = ast.Load) -> ast.Name:
    return ast.Name(identifier, context())


def engine_part(name: str) -> ast.expr:
    """What a dotted name is in the run of a program."""
    found: ast.expr = name_node("_rt")
    for part in name.split("."):
        found = ast.Attribute(found, part, ast.Load())
    return found


def engine_call(method: str, *args: ast.expr, keywords: Sequence[ast.keyword] = ()) -> ast.Call:
    return ast.Call(engine_part(method), list(args), list(keywords))


def thunk(body: ast.expr) -> ast.Lambda:
    empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(empty, body)


def names_tuple(names: Sequence[str], context: type[ast.expr_context] = ast.Load) -> ast.Tuple:
    return ast.Tuple([name_node(n, context) for n in names], context())


def strings(names: Sequence[str]) -> ast.Tuple:
    return ast.Tuple([ast.Constant(n) for n in names], ast.Load())


def own_nodes(statements: Sequence[ast.AST], into_loops: bool = True) -> list[ast.AST]:
    """All nodes of some statements; without those of inner loops if not ``into_loops``."""
    found: list[ast.AST] = []
    pending: list[ast.AST] = list(statements)
    while pending:
        node = pending.pop()
        found.append(node)
        if not into_loops and isinstance(node, (ast.For, ast.While)):
            continue
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            continue  # their jumps are their own
        pending.extend(ast.iter_child_nodes(node))
    return found


def assigned(statements: Sequence[ast.stmt]) -> tuple[str, ...]:
    """The names that some statements assign, in alphabetical order."""
    names = set()
    pending: list[ast.AST] = list(statements)
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp, ast.Lambda)):
            continue  # their variables are their own
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
            continue
        if isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        pending.extend(ast.iter_child_nodes(node))
    return tuple(sorted(names))


def leaves(statement: ast.stmt) -> bool:
    """Whether a statement may jump out of itself."""
    if isinstance(statement, (*JUMPS, ast.Assert)):
        return True
    if isinstance(statement, (ast.For, ast.While)):
        body = [*statement.body, *statement.orelse]
        # break and continue of the loop stay inside of it.
        return any(isinstance(n, LEAVING) for n in own_nodes(body))
    if isinstance(statement, (ast.If, ast.With, ast.Try)):
        inner = [*statement.body, *getattr(statement, "orelse", [])]
        inner += [s for handler in getattr(statement, "handlers", []) for s in handler.body]
        return any(leaves(s) for s in inner)
    return False


def cheap(code: Sequence[ast.AST]) -> bool:
    """Whether running some code costs no more than finding out that it needn't be."""
    return not any(isinstance(n, (*HEAVY, *JUMPS)) for n in own_nodes(code))


def certain(bounds: Sequence[ast.expr]) -> bool:
    """Whether the bounds of a range are hard to the eye: constants and lengths."""
    return all(
        isinstance(n, (ast.Constant, ast.BinOp, ast.operator, ast.expr_context, ast.UnaryOp, ast.unaryop))
        or (isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "len")
        or (isinstance(n, ast.Name) and n.id == "len")
        for bound in bounds
        for n in ([bound] if isinstance(bound, ast.Call) else ast.walk(bound))
    )


def pure(code: Sequence[ast.AST]) -> bool:
    """Whether evaluating an expression changes nothing: it calls nothing but what only looks."""
    looking = ("len", "abs", "min", "max", "sum", "float", "int", "isinstance", "range", "sqrt", "exp", "log")
    return all(
        not isinstance(n, ast.Call)
        or (n.func.attr if isinstance(n.func, ast.Attribute) else getattr(n.func, "id", "")) in looking
        for n in own_nodes(code)
    )


def returns_at_end(body: Sequence[ast.stmt]) -> bool:
    """Whether a function returns nowhere but in its last statement, and raises nothing."""
    return not any(isinstance(n, LEAVING) for n in own_nodes(body[:-1])) and (
        isinstance(body[-1], ast.Return) or not any(isinstance(n, LEAVING) for n in own_nodes(body[-1:]))
    )


def parameter_names(arguments: ast.arguments) -> list[str]:
    names = [a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
    return names + [a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None]


def bare_arguments(
    arguments: ast.arguments,
    defaults: Sequence[ast.expr] = (),
    keyword_defaults: Sequence[ast.expr | None] | None = None,
    first: Sequence[str] = (),
) -> ast.arguments:
    """The same parameters without annotations, after some more."""
    return ast.arguments(
        posonlyargs=[*(ast.arg(n) for n in first), *(ast.arg(a.arg) for a in arguments.posonlyargs)],
        args=[ast.arg(a.arg) for a in arguments.args],
        vararg=ast.arg(arguments.vararg.arg) if arguments.vararg else None,
        kwonlyargs=[ast.arg(a.arg) for a in arguments.kwonlyargs],
        kw_defaults=[None] * len(arguments.kwonlyargs) if keyword_defaults is None else list(keyword_defaults),
        kwarg=ast.arg(arguments.kwarg.arg) if arguments.kwarg else None,
        defaults=list(defaults),
    )


def without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    first = body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return body[1:] or [ast.copy_location(ast.Pass(), first)]
    return body


def undefined_names(names: Sequence[str], parameters: Sequence[str]) -> list[ast.stmt]:
    """Statements that say of variables that they have no value yet."""
    return [
        ast.Assign([name_node(n, ast.Store)], engine_call("undefined", ast.Constant(n)))
        for n in names
        if n not in parameters
    ]


def infinite(node: ast.AST) -> bool:
    """Whether infinity is spoken of: math.inf, float("inf")."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, float):
            return node.value in (float("inf"), float("-inf"))
        return isinstance(node.value, str) and node.value.strip("+-").lower() in ("inf", "infinity")
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in ("inf", "infty", "infinity")
