"""From the syntax tree of a function to one that asks the engine; see `softly.algorithms.python.lowering`."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
JUMPS = (ast.Break, ast.Continue, ast.Return, ast.Raise)
HEAVY = (
    *(ast.For, ast.While, ast.If, ast.IfExp, ast.Call, ast.Raise, ast.ListComp, ast.GeneratorExp, ast.With),
    *(ast.FunctionDef, ast.Delete),
)
LEAVING = (ast.Return, ast.Raise, ast.Assert)  # what may end a function


@dataclass(frozen=True)
class Note:
    """What was understood of a statement: what it is, and the variables whose values join after it."""

    line: int
    text: str


def name_node(identifier: str, context: type[ast.expr_context] = ast.Load) -> ast.Name:
    return ast.Name(identifier, context())


def engine_call(method: str, *args: ast.expr, keywords: Sequence[ast.keyword] = ()) -> ast.Call:
    return ast.Call(ast.Attribute(name_node("_rt"), method, ast.Load()), list(args), list(keywords))


def _thunk(body: ast.expr) -> ast.Lambda:
    empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(empty, body)


def names_tuple(names: Sequence[str], context: type[ast.expr_context] = ast.Load) -> ast.Tuple:
    return ast.Tuple([name_node(n, context) for n in names], context())


def _strings(names: Sequence[str]) -> ast.Tuple:
    return ast.Tuple([ast.Constant(n) for n in names], ast.Load())


def _own(statements: Sequence[ast.AST], into_loops: bool = True) -> list[ast.AST]:
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


def _leaves(statement: ast.stmt) -> bool:
    """Whether a statement may jump out of itself."""
    if isinstance(statement, (*JUMPS, ast.Assert)):
        return True
    if isinstance(statement, (ast.For, ast.While)):
        body = [*statement.body, *statement.orelse]
        # break and continue of the loop stay inside of it.
        return any(isinstance(n, LEAVING) for n in _own(body))
    if isinstance(statement, (ast.If, ast.With, ast.Try)):
        inner = [*statement.body, *getattr(statement, "orelse", [])]
        inner += [s for handler in getattr(statement, "handlers", []) for s in handler.body]
        return any(_leaves(s) for s in inner)
    return False


def _cheap(code: Sequence[ast.AST]) -> bool:
    """Whether running some code costs no more than finding out that it needn't be."""
    return not any(isinstance(n, (*HEAVY, *JUMPS)) for n in _own(code))


def _certain(bounds: Sequence[ast.expr]) -> bool:
    """Whether the bounds of a range are hard to the eye: constants and lengths."""
    return all(
        isinstance(n, (ast.Constant, ast.BinOp, ast.operator, ast.expr_context, ast.UnaryOp, ast.unaryop))
        or (isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "len")
        or (isinstance(n, ast.Name) and n.id == "len")
        for bound in bounds
        for n in ([bound] if isinstance(bound, ast.Call) else ast.walk(bound))
    )


def _pure(code: Sequence[ast.AST]) -> bool:
    """Whether evaluating an expression changes nothing: it calls nothing but what only looks."""
    looking = ("len", "abs", "min", "max", "sum", "float", "int", "isinstance", "range", "sqrt", "exp", "log")
    return all(
        not isinstance(n, ast.Call)
        or (n.func.attr if isinstance(n.func, ast.Attribute) else getattr(n.func, "id", "")) in looking
        for n in _own(code)
    )


def returns_at_end(body: Sequence[ast.stmt]) -> bool:
    """Whether a function returns nowhere but in its last statement, and raises nothing."""
    return not any(isinstance(n, LEAVING) for n in _own(body[:-1])) and (
        isinstance(body[-1], ast.Return) or not any(isinstance(n, LEAVING) for n in _own(body[-1:]))
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


class Lowering(ast.NodeTransformer):
    """Rewrites the body of a function."""

    def __init__(self, filename: str, local: set[str], variables: Sequence[str]) -> None:
        self.filename, self.local, self.variables = filename, local, frozenset(variables)
        self.count = 0
        self.notes: list[Note] = []
        self.loops: list[tuple[str, tuple[str, ...]]] = []
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

    def note(self, node: ast.stmt, kind: str, names: Sequence[str]) -> None:
        self.notes.append(Note(node.lineno, f"{kind}: joins {', '.join(names)}" if names else kind))

    # Statements --------------------------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        lowered: list[ast.stmt] = []
        for i, statement in enumerate(statements):
            result = self.visit(statement)
            lowered.extend(result if isinstance(result, list) else [result])
            if isinstance(statement, JUMPS):
                break  # what follows is never reached
            if _leaves(statement) and i + 1 < len(statements):
                rest = self.block(statements[i + 1 :])
                guard = ast.If(ast.Attribute(name_node("_rt"), "alive", ast.Load()), rest, [])
                lowered.append(ast.copy_location(guard, statements[i + 1]))
                break
        return lowered or [ast.Pass()]

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if type(node) in REFUSED:
            raise self.refuse(node, REFUSED[type(node)])
        return super().generic_visit(node)

    def _touched(self, statements: Sequence[ast.stmt]) -> list[str]:
        """For the notes: the arrays and lists that some statements write into."""
        found = []
        for node in _own(statements):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                found.append(f"{ast.unparse(node)}")
        return sorted(set(found))

    def condition(self, node: ast.expr) -> ast.expr:
        """A condition as a probability or a bool."""
        lowered = self.visit(node)
        if isinstance(node, (ast.Compare, ast.BoolOp)) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        ):
            answer = "answer"  # is one already, but for hard operands
        else:
            answer = "truth"
        return engine_call(answer, lowered)

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        names = assigned([*node.body, *node.orelse])
        branch = self.fresh("branch")
        self.note(node, "if", [*names, *self._touched([*node.body, *node.orelse])])
        test = self.condition(node.test)
        check = not (_cheap(node.body) and _cheap(node.orelse))
        start = ast.Assign(
            [name_node(branch, ast.Store)],
            engine_call("branch", test, names_tuple(names), _strings(names), ast.Constant(check)),
        )
        end: ast.expr = ast.Call(ast.Attribute(name_node(branch), "end", ast.Load()), [names_tuple(names)], [])
        finish: ast.stmt = ast.Assign([names_tuple(names, ast.Store)], end) if names else ast.Expr(end)
        way = ast.If(name_node(f"{branch}_way"), self.block(node.body), self.block(node.orelse) if node.orelse else [])
        loop = ast.For(name_node(f"{branch}_way", ast.Store), name_node(branch), [way, finish], [])
        return [ast.copy_location(s, node) for s in (start, loop)]

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        if node.orelse:
            raise self.refuse(node, "put what stands under `else` after the loop")
        names = assigned(node.body)
        self.note(node, "while", [*names, *self._touched(node.body)])
        loop = self.fresh("loop")
        lossy = any(isinstance(n, LEAVING) for n in _own(node.body))
        start = ast.Assign([name_node(loop, ast.Store)], engine_call("loop", _strings(names), ast.Constant(lossy)))
        test = ast.Call(
            ast.Attribute(name_node(loop), "test", ast.Load()), [self.condition(node.test), names_tuple(names)], []
        )
        alive = ast.Attribute(name_node(loop), "alive", ast.Load())
        body = self.iteration(node, loop, names)
        statement = ast.While(ast.BoolOp(ast.And(), [alive, test]), body, [])
        return [ast.copy_location(s, node) for s in (start, statement, self.end(loop, names))]

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        if not isinstance(node.target, (ast.Name, ast.Tuple, ast.List)):
            raise self.refuse(node, "let the loop assign to a plain variable")
        names = assigned([node])
        jumps = any(isinstance(n, (ast.Break, ast.Continue)) for n in _own(node.body, into_loops=False)) or any(
            isinstance(n, LEAVING) for n in _own(node.body)
        )
        self.note(node, "for: unrolled", [*names, *self._touched(node.body)] if jumps else [])
        loop = self.fresh("loop")
        span = self._span(node)
        target = self.visit(node.target)
        original = copy.deepcopy(node.body)
        body = self.iteration(node, loop, names) if jumps else self.block(node.body)
        start: list[ast.stmt] = []
        if span is None:
            iterable: ast.expr = engine_call("iterate", self.visit(node.iter))
        else:
            # The bounds may be relaxed: an entry is in the range with a probability.
            bounds, item = self.fresh("span"), self.fresh("item")
            start = [ast.Assign([name_node(bounds, ast.Store)], span)]
            iterable = name_node(bounds)
            if not jumps and not node.orelse and not any(isinstance(n, ast.For) for n in _own(node.body)):
                # The innermost loops twice, without the question where it needn't be asked.
                again = self.block(copy.deepcopy(original))
                hard = ast.For(target, iterable, body, [])
                body = self._present(bounds, item, [ast.Assign([target], name_node(item)), *again], names)
                relaxed = ast.For(name_node(item, ast.Store), iterable, body, [])
                question = engine_call("certain", iterable)
                return [ast.copy_location(s, node) for s in (*start, ast.If(question, [hard], [relaxed]))]
            body = self._present(bounds, item, [ast.Assign([target], name_node(item)), *body], names)
            target = name_node(item, ast.Store)
        if not jumps:
            rest = self.block(node.orelse) if node.orelse else []
            return [*(ast.copy_location(s, node) for s in (*start, ast.For(target, iterable, body, []))), *rest]
        lossy = any(isinstance(n, LEAVING) for n in _own([*node.body, *node.orelse]))
        start.append(
            ast.Assign([name_node(loop, ast.Store)], engine_call("loop", _strings(names), ast.Constant(lossy)))
        )
        alive = ast.Attribute(name_node(loop), "alive", ast.Load())
        body = [*body, ast.If(ast.UnaryOp(ast.Not(), alive), [ast.Break()], [])]
        statement = ast.For(target, iterable, body, [])
        rest = []
        if node.orelse:
            rest = [ast.If(ast.Attribute(name_node(loop), "alive", ast.Load()), self.block(node.orelse), [])]
        finish = ast.Expr(ast.Call(ast.Attribute(name_node(loop), "finish", ast.Load()), [names_tuple(names)], []))
        parts = [*start, statement, *rest, finish, self.end(loop, names)]
        return [ast.copy_location(s, node) for s in parts]

    def _span(self, node: ast.For) -> ast.expr | None:
        """The bounds of a loop over a range that may be relaxed; None for other loops."""
        call = node.iter
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"):
            return None
        if call.keywords or any(isinstance(a, ast.Starred) for a in call.args) or _certain(call.args):
            return None
        if "range" in self.local or any("range" in s for s in self.scopes):
            return None
        return engine_call("span", *(self.visit(a) for a in call.args))

    def _present(self, span: str, item: str, body: list[ast.stmt], names: tuple[str, ...]) -> list[ast.stmt]:
        branch = self.fresh("branch")
        arguments = (name_node(span), name_node(item), names_tuple(names), _strings(names))
        start = ast.Assign([name_node(branch, ast.Store)], engine_call("present", *arguments))
        end = ast.Call(ast.Attribute(name_node(branch), "end", ast.Load()), [names_tuple(names)], [])
        finish = ast.Assign([names_tuple(names, ast.Store)], end)
        way = ast.If(name_node(f"{branch}_way"), body, [])
        return [start, ast.For(name_node(f"{branch}_way", ast.Store), name_node(branch), [way, finish], [])]

    def iteration(self, node: ast.For | ast.While, loop: str, names: tuple[str, ...]) -> list[ast.stmt]:
        self.loops.append((loop, names))
        body = self.block(node.body)
        self.loops.pop()
        if any(isinstance(n, ast.Continue) for n in _own(node.body, into_loops=False)):
            begin = ast.Expr(ast.Call(ast.Attribute(name_node(loop), "begin", ast.Load()), [], []))
            close: ast.expr = ast.Call(ast.Attribute(name_node(loop), "close", ast.Load()), [names_tuple(names)], [])
            body = [begin, *body, ast.Assign([names_tuple(names, ast.Store)], close) if names else ast.Expr(close)]
        return body

    def end(self, loop: str, names: tuple[str, ...]) -> ast.stmt:
        end: ast.expr = ast.Call(ast.Attribute(name_node(loop), "end", ast.Load()), [names_tuple(names)], [])
        return ast.Assign([names_tuple(names, ast.Store)], end) if names else ast.Expr(end)

    def visit_Break(self, node: ast.Break) -> ast.stmt:
        return self._jump(node, "break_")

    def visit_Continue(self, node: ast.Continue) -> ast.stmt:
        return self._jump(node, "continue_")

    def _jump(self, node: ast.stmt, method: str) -> ast.stmt:
        loop, names = self.loops[-1]
        return ast.copy_location(ast.Expr(engine_call(method, name_node(loop), names_tuple(names))), node)

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        value = self.visit(node.value) if node.value is not None else ast.Constant(None)
        return ast.copy_location(ast.Expr(engine_call("return_", value)), node)

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        raised = ast.Raise(*(self.visit(e) if e is not None else None for e in (node.exc, node.cause)))
        return ast.copy_location(ast.If(engine_call("raises"), [ast.copy_location(raised, node)], []), node)

    def visit_Try(self, node: ast.Try) -> list[ast.stmt]:
        """Exceptions of entries that aren't there; others don't mix with probabilities."""
        caught = [
            name
            for handler in node.handlers
            for name in (handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type])
        ]
        known = all(isinstance(name, ast.Name) and name.id in ("IndexError", "KeyError") for name in caught)
        if not known or node.finalbody or node.orelse or any(h.name for h in node.handlers):
            raise self.refuse(node, "exceptions don't mix with probabilities; test for the case with `if`")
        mark, error = self.fresh("mark"), self.fresh("error")
        start = ast.Assign([name_node(mark, ast.Store)], engine_call("mark"))
        handlers = []
        for handler in node.handlers:
            recover = ast.Expr(engine_call("recover", name_node(mark), name_node(error)))
            body: list[ast.stmt] = [ast.copy_location(recover, handler), *self.block(handler.body)]
            handlers.append(ast.copy_location(ast.ExceptHandler(handler.type, error, body), handler))
        made = ast.Try(self.block(node.body), handlers, [], [])
        return [ast.copy_location(s, node) for s in (start, made)]

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        failure = ast.Call(name_node("AssertionError"), [node.msg] if node.msg is not None else [], [])
        denial = ast.If(ast.UnaryOp(ast.Not(), node.test), [ast.copy_location(ast.Raise(failure, None), node)], [])
        return self.visit_If(ast.copy_location(denial, node))

    def visit_With(self, node: ast.With) -> list[ast.stmt]:
        if len(node.items) != 1 or node.items[0].optional_vars is not None:
            raise self.refuse(node, "only softly.algorithms.steepness(...) and softly.algorithms.unmerged() go here")
        manager = self.visit(node.items[0].context_expr)
        names = assigned(node.body)
        self.note(node, "with", [*names, *self._touched(node.body)])
        block = self.fresh("block")
        start = ast.Assign(
            [name_node(block, ast.Store)], engine_call("block", manager, names_tuple(names), _strings(names))
        )
        attribute = lambda method: ast.Attribute(name_node(block), method, ast.Load())  # noqa: E731
        end: ast.expr = ast.Call(attribute("end"), [names_tuple(names)], [])
        join: ast.expr = ast.Call(attribute("join"), [names_tuple(names)], [])
        store = lambda e: ast.Assign([names_tuple(names, ast.Store)], e) if names else ast.Expr(e)  # noqa: E731
        loop = ast.For(
            name_node(f"{block}_pass", ast.Store), name_node(block), [*self.block(node.body), store(end)], []
        )
        return [ast.copy_location(s, node) for s in (start, loop, store(join))]

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        value = self.visit(node.value)
        if len(node.targets) == 1:
            return self.assign(node.targets[0], value, node)
        shared = self.fresh("value")
        statements: list[ast.stmt] = [ast.copy_location(ast.Assign([name_node(shared, ast.Store)], value), node)]
        for target in node.targets:
            statements.extend(self.assign(target, name_node(shared), node))
        return statements

    def visit_AnnAssign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        return [] if node.value is None else self.assign(node.target, self.visit(node.value), node)

    def assign(self, target: ast.expr, value: ast.expr, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(target, ast.Name):
            return [ast.copy_location(ast.Assign([target], value), node)]
        if isinstance(target, ast.Subscript):
            call = engine_call("setitem", self.visit(target.value), self.visit(target.slice), value)
            return [ast.copy_location(ast.Expr(call), node)]
        if isinstance(target, (ast.Tuple, ast.List)):
            parts = [self.fresh("part") for _ in target.elts]
            stores: list[ast.expr] = []
            after: list[ast.stmt] = []
            for part, element in zip(parts, target.elts, strict=True):
                if isinstance(element, ast.Starred):
                    stores.append(ast.Starred(name_node(part, ast.Store), ast.Store()))
                    after.extend(self.assign(element.value, name_node(part), node))
                else:
                    stores.append(name_node(part, ast.Store))
                    after.extend(self.assign(element, name_node(part), node))
            return [ast.copy_location(ast.Assign([ast.Tuple(stores, ast.Store())], value), node), *after]
        if isinstance(target, ast.Attribute):
            call = engine_call("setattr", self.visit(target.value), ast.Constant(target.attr), value)
            return [ast.copy_location(ast.Expr(call), node)]
        raise self.refuse(target, "assign to variables, entries and attributes only")

    def visit_Delete(self, node: ast.Delete) -> list[ast.stmt]:
        statements: list[ast.stmt] = []
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                statement: ast.stmt = ast.Expr(
                    engine_call("delitem", self.visit(target.value), self.visit(target.slice))
                )
            elif isinstance(target, ast.Name):
                gone = engine_call("undefined", ast.Constant(target.id))
                statement = ast.Assign([name_node(target.id, ast.Store)], gone)
            else:
                raise self.refuse(node, "delete variables and entries only")
            statements.append(ast.copy_location(statement, node))
        return statements

    def visit_FunctionDef(self, node: ast.FunctionDef) -> list[ast.stmt]:
        """An inner function: lowered as well, and called through the engine."""
        if node.decorator_list:
            raise self.refuse(node, "an inner function has no decorator")
        arguments = node.args
        parameters = parameter_names(arguments)
        names = assigned(node.body)
        defaults = [self.visit(d) for d in arguments.defaults]
        keyword_defaults = [None if d is None else self.visit(d) for d in arguments.kw_defaults]
        loops, self.loops = self.loops, []
        self.scopes.append({*parameters, *names})
        body = without_docstring(node.body)
        undefined = undefined_names(names, parameters)
        lowered = [ast.copy_location(u, node) for u in undefined] + self.block(body)
        self.scopes.pop()
        self.loops = loops
        inner = self.fresh(f"inner_{node.name}_")
        made = ast.FunctionDef(inner, bare_arguments(arguments, defaults, keyword_defaults), lowered, [])
        bound = engine_call("closure", name_node(inner), ast.Constant(node.name))
        store = ast.Assign([name_node(node.name, ast.Store)], bound)
        return [ast.copy_location(made, node), ast.copy_location(store, node)]

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        value = self.visit(node.value)
        if isinstance(node.target, ast.Name):
            old: ast.expr = name_node(node.target.id)
            # Arrays and lists are changed in place by +=, and so reach other names of the same one.
            new = engine_call("update", ast.Constant(type(node.op).__name__), old, value)
            return [ast.copy_location(ast.Assign([node.target], new), node)]
        if isinstance(node.target, ast.Attribute):
            owner = self.fresh("owner")
            first = ast.Assign([name_node(owner, ast.Store)], self.visit(node.target.value))
            attribute = ast.Constant(node.target.attr)
            old = engine_call("attribute", name_node(owner), attribute)
            new = engine_call("update", ast.Constant(type(node.op).__name__), old, value)
            second = ast.Expr(engine_call("setattr", name_node(owner), attribute, new))
            return [ast.copy_location(s, node) for s in (first, second)]
        assert isinstance(node.target, ast.Subscript)
        container, key = self.fresh("container"), self.fresh("key")
        first = ast.Assign(
            [names_tuple([container, key], ast.Store)],
            ast.Tuple([self.visit(node.target.value), self.visit(node.target.slice)], ast.Load()),
        )
        old = engine_call("getitem", name_node(container), name_node(key))
        new = engine_call("update", ast.Constant(type(node.op).__name__), old, value)
        second = ast.Expr(engine_call("setitem", name_node(container), name_node(key), new))
        return [ast.copy_location(s, node) for s in (first, second)]

    # Expressions -------------------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Store) or node.id in self.local or any(node.id in s for s in self.scopes):
            return node
        self.outside.add(node.id)
        return ast.copy_location(engine_call("outer", node), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return ast.copy_location(engine_call("getitem", self.visit(node.value), self.visit(node.slice)), node)

    def visit_Slice(self, node: ast.Slice) -> ast.expr:
        parts = [self.visit(p) if p is not None else ast.Constant(None) for p in (node.lower, node.upper, node.step)]
        return ast.copy_location(engine_call("slice", *parts), node)

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
            heavy = ast.Constant(not _pure(operands[i + 1 :]))
            body = link if result is None else engine_call("and_", link, _thunk(result), heavy)
            arguments = ast.arguments(
                posonlyargs=[], args=[ast.arg(names[i + 1])], kwonlyargs=[], kw_defaults=[], defaults=[]
            )
            result = ast.Call(ast.Lambda(arguments, body), [self.visit(operands[i + 1])], [])
        first = ast.arguments(posonlyargs=[], args=[ast.arg(names[0])], kwonlyargs=[], kw_defaults=[], defaults=[])
        assert result is not None
        return ast.copy_location(ast.Call(ast.Lambda(first, result), [self.visit(operands[0])], []), node)

    def comparison(self, op: ast.cmpop, source_a: ast.expr, source_b: ast.expr, a: ast.expr, b: ast.expr) -> ast.expr:
        if isinstance(op, (ast.Is, ast.IsNot)):
            same = engine_call("is_", a, b)
            return same if isinstance(op, ast.Is) else engine_call("not_", same)
        if isinstance(op, (ast.In, ast.NotIn)):
            found = engine_call("contains", a, b)
            return found if isinstance(op, ast.In) else engine_call("not_", found)
        arguments = [ast.Constant(SYMBOLS[type(op)]), a, b]
        for source in (source_a, source_b):
            while isinstance(source, ast.Subscript):
                source = source.value
            if isinstance(source, ast.Name) and source.id in self.variables:
                arguments.append(engine_call("steepness_of", ast.Constant(source.id)))
                break
        return engine_call("compare", *arguments)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        method = "and_" if isinstance(node.op, ast.And) else "or_"
        result = self.visit(node.values[-1])
        rest: list[ast.AST] = [node.values[-1]]
        for value in reversed(node.values[:-1]):
            result = engine_call(method, self.visit(value), _thunk(result), ast.Constant(not _pure(rest)))
            rest.append(value)
        return ast.copy_location(result, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            return ast.copy_location(engine_call("not_", self.visit(node.operand)), node)
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
        check = not (_cheap([node.body]) and _cheap([node.orelse]))
        yes, no = self.visit(node.body), self.visit(node.orelse)
        return ast.copy_location(engine_call("conditional", test, _thunk(yes), _thunk(no), ast.Constant(check)), node)

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
        return ast.copy_location(engine_call("lowered", made), node)

    def _comprehension(self, node: Any) -> Any:
        self.scopes.append({n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)})
        for generator in node.generators:
            if generator.is_async:
                raise self.refuse(node, "async functions can't be relaxed")
            generator.iter = engine_call("iterate", self.visit(generator.iter))
            generator.ifs = [engine_call("hard", self.visit(i)) for i in generator.ifs]
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
