"""Expressions that ask the engine; see `softly.algorithms.python.lowering`."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from softly.algorithms.python.syntax import bare_arguments, cheap, engine_call, name_node, pure, thunk

REFUSED: dict[type[ast.AST], str] = {
    ast.AsyncFunctionDef: "async functions can't be relaxed",
    ast.ClassDef: "define the class outside of the function",
    ast.Global: "pass the variable as an argument and return it",
    ast.Nonlocal: "pass the variable as an argument and return it",
    ast.TryStar: "exceptions don't mix with probabilities; test for the case with `if`",
    ast.Match: "write `if` and `elif`",
    ast.Yield: "collect the values in a list and return it",
    ast.YieldFrom: "collect the values in a list and return it",
    ast.Await: "async functions can't be relaxed",
    ast.AsyncFor: "async functions can't be relaxed",
    ast.AsyncWith: "async functions can't be relaxed",
    ast.NamedExpr: "assign in a statement of its own",
}

SYMBOLS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
INTERNAL = "_softly_"  # what the variables begin with that lowering adds


class Expressions(ast.NodeTransformer):
    """Rewrites the expressions of a function."""

    def __init__(self, filename: str, local: set[str], variables: Sequence[str]) -> None:
        self.filename, self.local, self.variables = filename, local, frozenset(variables)
        self.count = 0
        self.scopes: list[set[str]] = []
        self.outside: set[str] = set()  # names that belong to no variable of the function

    def refuse(self, node: ast.AST, advice: str) -> SyntaxError:
        line = getattr(node, "lineno", 0)
        kind = type(node).__name__
        error = SyntaxError(f"softly.relax: {self.filename}:{line}: {kind} can't be relaxed: {advice}.")
        error.filename, error.lineno = self.filename, line
        return error

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{INTERNAL}{prefix}{self.count}"

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if type(node) in REFUSED:
            raise self.refuse(node, REFUSED[type(node)])
        return super().generic_visit(node)

    def condition(self, node: ast.expr) -> ast.expr:
        """A condition as a probability or a bool."""
        lowered = self.visit(node)
        if isinstance(node, (ast.Compare, ast.BoolOp)) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        ):
            answer = "conditions.answer"  # is one already, but for hard operands
        else:
            answer = "conditions.truth"
        return engine_call(answer, lowered)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Store) or node.id in self.local or any(node.id in s for s in self.scopes):
            return node
        self.outside.add(node.id)
        return ast.copy_location(engine_call("outer", node), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return ast.copy_location(engine_call("access.getitem", self.visit(node.value), self.visit(node.slice)), node)

    def visit_Slice(self, node: ast.Slice) -> ast.expr:
        parts = [self.visit(p) if p is not None else ast.Constant(None) for p in (node.lower, node.upper, node.step)]
        return ast.copy_location(engine_call("access.slice", *parts), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return ast.copy_location(engine_call("attribute", self.visit(node.value), ast.Constant(node.attr)), node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        operands = [node.left, *node.comparators]
        if len(node.ops) == 1:
            return ast.copy_location(self.comparison(node.ops[0], *operands, *map(self.visit, operands)), node)
        names = [self.fresh("operand") for _ in operands]
        # One function per link: an operand is evaluated once, and only where it matters.
        result: ast.expr | None = None
        for i in range(len(node.ops) - 1, -1, -1):
            left: ast.expr = name_node(names[i])
            link = self.comparison(node.ops[i], operands[i], operands[i + 1], left, name_node(names[i + 1]))
            heavy = ast.Constant(not pure(operands[i + 1 :]))
            body = link if result is None else engine_call("conditions.and_", link, thunk(result), heavy)
            arguments = ast.arguments(
                posonlyargs=[], args=[ast.arg(names[i + 1])], kwonlyargs=[], kw_defaults=[], defaults=[]
            )
            result = ast.Call(ast.Lambda(arguments, body), [self.visit(operands[i + 1])], [])
        first = ast.arguments(posonlyargs=[], args=[ast.arg(names[0])], kwonlyargs=[], kw_defaults=[], defaults=[])
        assert result is not None
        return ast.copy_location(ast.Call(ast.Lambda(first, result), [self.visit(operands[0])], []), node)

    def comparison(self, op: ast.cmpop, source_a: ast.expr, source_b: ast.expr, a: ast.expr, b: ast.expr) -> ast.expr:
        if isinstance(op, (ast.Is, ast.IsNot)):
            same = engine_call("conditions.is_", a, b)
            return same if isinstance(op, ast.Is) else engine_call("conditions.not_", same)
        if isinstance(op, (ast.In, ast.NotIn)):
            found = engine_call("conditions.contains", a, b)
            return found if isinstance(op, ast.In) else engine_call("conditions.not_", found)
        arguments = [ast.Constant(SYMBOLS[type(op)]), a, b]
        for source in (source_a, source_b):
            while isinstance(source, ast.Subscript):
                source = source.value
            if isinstance(source, ast.Name) and source.id in self.variables:
                arguments.append(engine_call("conditions.steepness_of", ast.Constant(source.id)))
                break
        return engine_call("conditions.compare", *arguments)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        method = "conditions.and_" if isinstance(node.op, ast.And) else "conditions.or_"
        result = self.visit(node.values[-1])
        rest: list[ast.AST] = [node.values[-1]]
        for value in reversed(node.values[:-1]):
            result = engine_call(method, self.visit(value), thunk(result), ast.Constant(not pure(rest)))
            rest.append(value)
        return ast.copy_location(result, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            return ast.copy_location(engine_call("conditions.not_", self.visit(node.operand)), node)
        return ast.copy_location(ast.UnaryOp(node.op, self.visit(node.operand)), node)

    def visit_List(self, node: ast.List) -> ast.expr:
        if isinstance(node.ctx, ast.Store):
            return node
        entries = ast.List([self.visit(e) for e in node.elts], ast.Load())
        return ast.copy_location(engine_call("made_list", entries), node)

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        keys = [None if k is None else self.visit(k) for k in node.keys]
        entries = ast.Dict(keys, [self.visit(v) for v in node.values])
        return ast.copy_location(engine_call("made_dict", entries), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        test = self.condition(node.test)
        check = not (cheap([node.body]) and cheap([node.orelse]))
        yes, no = self.visit(node.body), self.visit(node.orelse)
        return ast.copy_location(
            engine_call("control.conditional", test, thunk(yes), thunk(no), ast.Constant(check)), node
        )

    def visit_Call(self, node: ast.Call) -> ast.expr:
        args = [self.visit(a) for a in node.args]
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        if isinstance(node.func, ast.Attribute):
            call = engine_call(
                "method", self.visit(node.func.value), ast.Constant(node.func.attr), *args, keywords=keywords
            )
        else:
            call = engine_call("call", self.visit(node.func), *args, keywords=keywords)
        return ast.copy_location(call, node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        arguments = node.args
        names = {a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
        names |= {a.arg for a in (arguments.vararg, arguments.kwarg) if a is not None}
        defaults = [self.visit(d) for d in arguments.defaults]
        keyword_defaults = [None if d is None else self.visit(d) for d in arguments.kw_defaults]
        self.scopes.append(names)
        body = self.visit(node.body)
        self.scopes.pop()
        made = ast.Lambda(bare_arguments(arguments, defaults, keyword_defaults), body)
        return ast.copy_location(engine_call("control.lowered", made), node)

    def _comprehension(self, node: Any) -> Any:
        self.scopes.append({n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)})
        for generator in node.generators:
            if generator.is_async:
                raise self.refuse(node, "async functions can't be relaxed")
            generator.iter = engine_call("access.iterate", self.visit(generator.iter))
            generator.ifs = [engine_call("conditions.hard", self.visit(i)) for i in generator.ifs]
        for part in ("elt", "key", "value"):
            if hasattr(node, part):
                setattr(node, part, self.visit(getattr(node, part)))
        self.scopes.pop()
        return node

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        return ast.copy_location(engine_call("made_list", self._comprehension(node)), node)

    def visit_SetComp(self, node: ast.SetComp) -> Any:
        return self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> Any:
        return self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> Any:
        return ast.copy_location(engine_call("made_dict", self._comprehension(node)), node)
