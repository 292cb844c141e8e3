"""Statements that ask the engine; see `softly.algorithms.python.lowering`."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence
from dataclasses import dataclass

from softly.algorithms.python.expressions import Expressions
from softly.algorithms.python.syntax import (
    JUMPS,
    LEAVING,
    assigned,
    bare_arguments,
    certain,
    cheap,
    engine_call,
    engine_part,
    leaves,
    name_node,
    names_tuple,
    own_nodes,
    parameter_names,
    strings,
    undefined_names,
    without_docstring,
)


@dataclass(frozen=True)
class Note:
    """What was understood of a statement: what it is, and the variables whose values join after it."""

    line: int
    text: str


class Lowering(Expressions):
    """Rewrites the body of a function."""

    def __init__(self, filename: str, local: set[str], variables: Sequence[str]) -> None:
        super().__init__(filename, local, variables)
        self.notes: list[Note] = []
        self.loops: list[tuple[str, tuple[str, ...]]] = []

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
            if leaves(statement) and i + 1 < len(statements):
                rest = self.block(statements[i + 1 :])
                guard = ast.If(engine_part("control.alive"), rest, [])
                lowered.append(ast.copy_location(guard, statements[i + 1]))
                break
        return lowered or [ast.Pass()]

    def _touched(self, statements: Sequence[ast.stmt]) -> list[str]:
        """For the notes: the arrays and lists that some statements write into."""
        found = []
        for node in own_nodes(statements):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                found.append(f"{ast.unparse(node)}")
        return sorted(set(found))

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        names = assigned([*node.body, *node.orelse])
        branch = self.fresh("branch")
        self.note(node, "if", [*names, *self._touched([*node.body, *node.orelse])])
        test = self.condition(node.test)
        check = not (cheap(node.body) and cheap(node.orelse))
        start = ast.Assign(
            [name_node(branch, ast.Store)],
            engine_call("control.branch", test, names_tuple(names), strings(names), ast.Constant(check)),
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
        lossy = any(isinstance(n, LEAVING) for n in own_nodes(node.body))
        start = ast.Assign(
            [name_node(loop, ast.Store)], engine_call("control.loop", strings(names), ast.Constant(lossy))
        )
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
        jumps = any(isinstance(n, (ast.Break, ast.Continue)) for n in own_nodes(node.body, into_loops=False)) or any(
            isinstance(n, LEAVING) for n in own_nodes(node.body)
        )
        self.note(node, "for: unrolled", [*names, *self._touched(node.body)] if jumps else [])
        loop = self.fresh("loop")
        span = self._span(node)
        target = self.visit(node.target)
        original = copy.deepcopy(node.body)
        body = self.iteration(node, loop, names) if jumps else self.block(node.body)
        start: list[ast.stmt] = []
        if span is None:
            iterable: ast.expr = engine_call("access.iterate", self.visit(node.iter))
        else:
            # The bounds may be relaxed: an entry is in the range with a probability.
            bounds, item = self.fresh("span"), self.fresh("item")
            start = [ast.Assign([name_node(bounds, ast.Store)], span)]
            iterable = name_node(bounds)
            if not jumps and not node.orelse and not any(isinstance(n, ast.For) for n in own_nodes(node.body)):
                # The innermost loops twice, without the question where it needn't be asked.
                again = self.block(copy.deepcopy(original))
                hard = ast.For(target, iterable, body, [])
                body = self._present(bounds, item, [ast.Assign([target], name_node(item)), *again], names)
                relaxed = ast.For(name_node(item, ast.Store), iterable, body, [])
                question = engine_call("control.certain", iterable)
                return [ast.copy_location(s, node) for s in (*start, ast.If(question, [hard], [relaxed]))]
            body = self._present(bounds, item, [ast.Assign([target], name_node(item)), *body], names)
            target = name_node(item, ast.Store)
        if not jumps:
            rest = self.block(node.orelse) if node.orelse else []
            return [*(ast.copy_location(s, node) for s in (*start, ast.For(target, iterable, body, []))), *rest]
        lossy = any(isinstance(n, LEAVING) for n in own_nodes([*node.body, *node.orelse]))
        start.append(
            ast.Assign([name_node(loop, ast.Store)], engine_call("control.loop", strings(names), ast.Constant(lossy)))
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
        if call.keywords or any(isinstance(a, ast.Starred) for a in call.args) or certain(call.args):
            return None
        if "range" in self.local or any("range" in s for s in self.scopes):
            return None
        return engine_call("control.span", *(self.visit(a) for a in call.args))

    def _present(self, span: str, item: str, body: list[ast.stmt], names: tuple[str, ...]) -> list[ast.stmt]:
        branch = self.fresh("branch")
        arguments = (name_node(span), name_node(item), names_tuple(names), strings(names))
        start = ast.Assign([name_node(branch, ast.Store)], engine_call("control.present", *arguments))
        end = ast.Call(ast.Attribute(name_node(branch), "end", ast.Load()), [names_tuple(names)], [])
        finish = ast.Assign([names_tuple(names, ast.Store)], end)
        way = ast.If(name_node(f"{branch}_way"), body, [])
        return [start, ast.For(name_node(f"{branch}_way", ast.Store), name_node(branch), [way, finish], [])]

    def iteration(self, node: ast.For | ast.While, loop: str, names: tuple[str, ...]) -> list[ast.stmt]:
        self.loops.append((loop, names))
        body = self.block(node.body)
        self.loops.pop()
        if any(isinstance(n, ast.Continue) for n in own_nodes(node.body, into_loops=False)):
            begin = ast.Expr(ast.Call(ast.Attribute(name_node(loop), "begin", ast.Load()), [], []))
            close: ast.expr = ast.Call(ast.Attribute(name_node(loop), "close", ast.Load()), [names_tuple(names)], [])
            body = [begin, *body, ast.Assign([names_tuple(names, ast.Store)], close) if names else ast.Expr(close)]
        return body

    def end(self, loop: str, names: tuple[str, ...]) -> ast.stmt:
        end: ast.expr = ast.Call(ast.Attribute(name_node(loop), "end", ast.Load()), [names_tuple(names)], [])
        return ast.Assign([names_tuple(names, ast.Store)], end) if names else ast.Expr(end)

    def visit_Break(self, node: ast.Break) -> ast.stmt:
        return self._jump(node, "control.break_")

    def visit_Continue(self, node: ast.Continue) -> ast.stmt:
        return self._jump(node, "control.continue_")

    def _jump(self, node: ast.stmt, method: str) -> ast.stmt:
        loop, names = self.loops[-1]
        return ast.copy_location(ast.Expr(engine_call(method, name_node(loop), names_tuple(names))), node)

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        value = self.visit(node.value) if node.value is not None else ast.Constant(None)
        return ast.copy_location(ast.Expr(engine_call("control.return_", value)), node)

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        raised = ast.Raise(*(self.visit(e) if e is not None else None for e in (node.exc, node.cause)))
        return ast.copy_location(ast.If(engine_call("control.raises"), [ast.copy_location(raised, node)], []), node)

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
        start = ast.Assign([name_node(mark, ast.Store)], engine_call("control.mark"))
        handlers = []
        for handler in node.handlers:
            recover = ast.Expr(engine_call("control.recover", name_node(mark), name_node(error)))
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
            [name_node(block, ast.Store)], engine_call("control.block", manager, names_tuple(names), strings(names))
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
            call = engine_call("access.setitem", self.visit(target.value), self.visit(target.slice), value)
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
                    engine_call("access.delitem", self.visit(target.value), self.visit(target.slice))
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
        bound = engine_call("control.closure", name_node(inner), ast.Constant(node.name))
        store = ast.Assign([name_node(node.name, ast.Store)], bound)
        return [ast.copy_location(made, node), ast.copy_location(store, node)]

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        value = self.visit(node.value)
        if isinstance(node.target, ast.Name):
            old: ast.expr = name_node(node.target.id)
            # Arrays and lists are changed in place by +=, and so reach other names of the same one.
            new = engine_call("access.update", ast.Constant(type(node.op).__name__), old, value)
            return [ast.copy_location(ast.Assign([node.target], new), node)]
        if isinstance(node.target, ast.Attribute):
            owner = self.fresh("owner")
            first = ast.Assign([name_node(owner, ast.Store)], self.visit(node.target.value))
            attribute = ast.Constant(node.target.attr)
            old = engine_call("attribute", name_node(owner), attribute)
            new = engine_call("access.update", ast.Constant(type(node.op).__name__), old, value)
            second = ast.Expr(engine_call("setattr", name_node(owner), attribute, new))
            return [ast.copy_location(s, node) for s in (first, second)]
        assert isinstance(node.target, ast.Subscript)
        container, key = self.fresh("container"), self.fresh("key")
        first = ast.Assign(
            [names_tuple([container, key], ast.Store)],
            ast.Tuple([self.visit(node.target.value), self.visit(node.target.slice)], ast.Load()),
        )
        old = engine_call("access.getitem", name_node(container), name_node(key))
        new = engine_call("access.update", ast.Constant(type(node.op).__name__), old, value)
        second = ast.Expr(engine_call("access.setitem", name_node(container), name_node(key), new))
        return [ast.copy_location(s, node) for s in (first, second)]
