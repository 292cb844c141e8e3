"""Runs relaxed programs: paths, the probability of each, and the values where paths join.

A program is Python code that asks the engine at every branch which ways to go. Both branches of a relaxed
condition run one after the other, from the same state; what they wrote is kept in a journal, so that joining them
costs only what was touched. A jump (break, continue, return) takes its share of the probability, its mass, out of
the path that it leaves: what follows is for the rest.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from softly.algorithms.engine.containers import Choice
from softly.algorithms.engine.journals import Journal, Names
from softly.algorithms.engine.numbers import Answer, Number, is_whole
from softly.algorithms.engine.protocol import Run
from softly.algorithms.engine.regions import DEAD, NO, YES, Aside, Branch, Call, Loop, Mass, Paths, Region, Span


class Control:
    """The control flow of one run."""

    def __init__(self, engine: Run) -> None:
        self.engine = engine
        self.regions: list[Any] = []
        self.depth = 0  # of calls
        self.paths: list[bool] | None = None
        self.taken: list[bool] = []
        self.pending: list[list[bool]] = []
        self.warned = False

    def snapshot(self, region: Region) -> dict[Any, Any]:
        """What was written since a region began."""
        depth = next(i for i in range(len(self.regions) - 1, -1, -1) if self.regions[i] is region)
        outer = sum(1 for r in self.regions[:depth] if r.journaled)
        return self.engine.journals.contents(self.engine.journals[outer:])

    def mass(self, target: Region) -> Mass:
        """The probability of being here after the beginning of ``target``."""
        total: Mass = None
        for region in reversed(self.regions):
            total = self.engine.joins.times(total, region.mass)
            if region is target:
                return total
            if isinstance(region, (Branch, Aside)):
                total = self.engine.joins.times(total, region.p if region.way else self.engine.complement(region.p))
        raise AssertionError("a jump out of a region that isn't there")

    @property
    def uncertain(self) -> bool:
        """Whether some examples may not be on this path."""
        return any(isinstance(r, (Branch, Aside)) or r.mass is not None for r in self.regions)

    def presence(self) -> Mass:
        """The probability of being here."""
        total: Mass = None
        for region in self.regions:
            total = self.engine.joins.times(total, region.mass)
            if isinstance(region, (Branch, Aside)):
                total = self.engine.joins.times(total, region.p if region.way else self.engine.complement(region.p))
        return total

    def negligible(self) -> bool:
        """Whether hardly any example is on this path, so that it can be forgotten."""
        mass = self.presence()
        if self.engine.static or mass is None or mass is DEAD or self.range(mass)[0] > self.engine.settings.tolerance:
            return False
        next(r for r in reversed(self.regions) if isinstance(r, Call)).lossy = True
        return True

    def here(self) -> Tensor:
        """Which examples the plain program would bring here: a bool tensor (batch,)."""
        found = torch.ones(self.engine.batch, dtype=torch.bool, device=self.engine.device)
        for region in self.regions:
            if isinstance(region, (Branch, Aside)):
                condition = region.condition
                exact = condition.exact() if isinstance(condition, Answer) else region.p.detach() > 0.5
                found = found & (exact if region.way else ~exact)
            if region.mass is DEAD:
                return torch.zeros_like(found)
            if region.mass is not None:
                found = found & (region.mass.detach() > 0.5)
        return found

    def safe(self, operand: Any, bad: Callable[[Tensor], Tensor]) -> Any:
        if not isinstance(operand, Tensor) or operand.ndim == 0 or not self.uncertain:
            if self.engine.static and self.uncertain:
                self.engine.guard()
            return operand
        wrong = bad(operand.detach())
        if not self.engine.static and not bool(wrong.any()):
            return operand
        self.engine.guard()
        mass = self.presence()
        if mass is None or mass is DEAD:
            return operand
        nobody = mass.detach() <= self.engine.settings.tolerance
        nobody = nobody.reshape(nobody.shape + (1,) * (operand.ndim - nobody.ndim))
        return torch.where(wrong & nobody, torch.ones_like(operand), operand)

    def range(self, p: Tensor) -> tuple[float, float]:
        """The largest and the smallest probability in the batch; as if uncertain where nothing may depend on data."""
        if self.engine.static:
            return 1.0, 0.0
        if p.numel() == 0:
            return 0.0, 1.0
        low, high = torch.aminmax(p.detach())
        return float(high), float(low)

    def warn_leftover(self, mass: Mass) -> None:
        if self.warned or self.engine.trusts():
            return
        left = 1.0 if mass is None else float(mass.detach().max())
        if left > self.engine.settings.tolerance:
            self.warned = True
            warnings.warn(
                "softly.relax: a while loop was cut off after "
                f"max_iterations={self.engine.settings.max_iterations}, "
                f"with up to {left:.3g} of the probability left; it counts for the last state.",
                stacklevel=2,
            )

    def choose(self, p: Tensor) -> bool:
        """Which way the single path goes that is being followed."""
        assert self.paths is not None
        high, low = self.range(p)
        if high <= self.engine.settings.tolerance or low >= 1.0 - self.engine.settings.tolerance:
            self.skip(p)
            return high > self.engine.settings.tolerance
        tolerance = self.engine.settings.tolerance
        if not self.engine.static and tolerance > 0:
            p = torch.where(p <= tolerance, 0.0, torch.where(p >= 1.0 - tolerance, 1.0, p))
        step = len(self.taken)
        way = self.paths[step] if step < len(self.paths) else True
        if step >= len(self.paths):
            self.pending.append([*self.taken, False])
        self.taken.append(way)
        region = self.regions[-1]
        region.mass = self.engine.joins.times(region.mass, p if way else self.engine.complement(p))
        return way

    def each(self, choice: Choice, action: Callable[[Any], Any]) -> Any:
        """Do the same to each of the collections that a branch chose from, and join what it gives."""
        options = list(choice.options)
        left: Mass = None

        def among(i: int, left: Any) -> Any:
            weight, option = options[i]
            if i == len(options) - 1:
                return action(option)
            share = weight if left is None else torch.where(left > 0, weight / torch.where(left > 0, left, 1.0), 0.0)
            rest = self.engine.complement(weight) if left is None else left - weight
            return self.conditional(
                Answer(self.engine, share.clamp(0.0, 1.0)), lambda: action(option), lambda: among(i + 1, rest), True
            )

        return among(0, left)

    def conditional(self, condition: Any, yes: Callable[[], Any], no: Callable[[], Any], check: bool) -> Any:
        """``yes() if condition else no()``."""
        result: Any = None
        branch = self.branch(condition, (None,), ("a conditional expression",), check)
        for way in branch:
            result = yes() if way else no()
            (result,) = branch.end((result,))
        return result

    def branch(self, condition: Any, entry: Names, labels: tuple[str, ...], check: bool) -> Any:
        """The ways to go at an ``if``; ``check`` whether one of them can be left out."""
        if type(condition) is Answer:
            p = condition.tensor
            if not check and self.paths is None:
                return Branch(self.engine, p if p.ndim else self.engine.column(p), entry, labels, condition)
        elif isinstance(condition, Tensor):
            p = condition
        else:
            return YES if condition else NO
        if self.paths is not None:
            return YES if self.choose(p) else NO
        if check:
            high, low = self.range(p)
            tolerance = self.engine.settings.tolerance
            if low >= 1.0 - tolerance or high <= tolerance:
                self.skip(p)
                return YES if high > tolerance else NO
            if not self.engine.static and (low <= tolerance or high >= 1.0 - tolerance):
                # For each example as if it were alone.
                p = torch.where(p <= tolerance, 0.0, torch.where(p >= 1.0 - tolerance, 1.0, p))
        return Branch(self.engine, self.engine.column(p), entry, labels, condition)

    def skip(self, p: Tensor) -> None:
        """Remember a condition that was all but certain, so that results still have a gradient, if only 0."""
        if self.engine.anchor is None and p.requires_grad:
            self.engine.anchor = p

    def span(self, *bounds: Any) -> Any:
        """The range of a ``for``; relaxed ints as its bounds make a relaxed one."""
        if set(map(type, bounds)) == {int}:
            return range(*bounds)
        if not any(isinstance(b, Number) for b in bounds):
            return self.engine.call(range, *bounds)
        start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = bounds[2] if len(bounds) == 3 else 1
        whole = all(is_whole(b) for b in (start, stop)) and type(step) is int and abs(step) == 1
        if self.engine.static or not whole or self.paths is not None:
            return self.engine.call(range, *bounds)  # which raises
        ends = [v.tensor.detach() if isinstance(v, Number) else self.engine.constant(v) for v in (start, stop)]
        low, high = sorted(ends, key=lambda t: float(t.sum())) if step < 0 else ends
        first, last = math.floor(float(low.min())), math.ceil(float(high.max()))
        if last - first > self.engine.settings.max_iterations:
            raise self.engine.error(
                ValueError,
                f"a loop over a relaxed range of {last - first}; max_iterations={self.engine.settings.max_iterations}",
            )
        return Span(start, stop, step, range(first, last) if step > 0 else range(last, first, -1))

    @staticmethod
    def certain(span: Any) -> bool:
        """Whether the range of a loop is a hard one."""
        return type(span) is range

    def present(self, span: Any, i: int, entry: Names, labels: tuple[str, ...]) -> Any:
        """The ways to go with an entry of a range: it may not be in it."""
        if type(span) is not Span:
            return YES
        within = (">=", "<") if span.step > 0 else ("<=", ">")
        begun = self.engine.conditions.compare(within[0], i, span.start)
        inside = self.engine.conditions.compare(within[1], i, span.stop)
        if isinstance(begun, bool) or isinstance(inside, bool):
            known, other = (begun, inside) if isinstance(begun, bool) else (inside, begun)
            return self.branch(other if known else False, entry, labels, True)
        both = Answer(self.engine, begun.tensor * inside.tensor, ("and", begun, inside))
        return self.branch(both, entry, labels, True)

    @property
    def alive(self) -> bool:
        return self.regions[-1].mass is not DEAD

    def loop(self, labels: tuple[str, ...], lossy: bool) -> Loop:
        return Loop(self.engine, labels, lossy)

    def unmerged(self, entry: Names, labels: tuple[str, ...]) -> Paths:
        return Paths(self.engine, entry, labels)

    def break_(self, loop: Loop, names: Names) -> None:
        loop.leave(self.mass(loop), names)
        self.regions[-1].mass = DEAD

    def continue_(self, loop: Loop, names: Names) -> None:
        assert loop.iteration is not None
        loop.skipped.append(
            (self.mass(loop.iteration), self.engine.journals.hold(names), self.snapshot(loop.iteration))
        )
        self.regions[-1].mass = DEAD

    def raises(self) -> bool:
        """Whether to raise an exception: if the plain program would. Otherwise the path ends here, and is forgotten."""
        mass = self.presence()
        if mass is None or (not self.engine.trusts() and bool(self.here().any())):
            self.engine.describing = True
            return True
        self.regions[-1].mass = DEAD
        next(r for r in reversed(self.regions) if isinstance(r, Call)).lossy = True
        return False

    def mark(self) -> int:
        """Where a ``try`` begins."""
        return len(self.regions)

    def recover(self, mark: int, error: Exception) -> None:
        """Go on after an exception that the whole batch has run into, or pass it on."""
        inner = self.regions[mark:]
        uncertain = any(isinstance(r, (Branch, Aside)) or r.mass is not None for r in inner)
        if uncertain or str(error).strip("'\"").startswith("softly."):
            raise error
        for region in reversed(inner):
            self.regions.pop()
            if not region.journaled:
                continue
            journal = self.engine.journals.pop()
            if self.engine.journals:
                for k, entry in journal.items():
                    self.engine.journals[-1].setdefault(k, entry)

    def return_(self, value: Any) -> None:
        call = next(r for r in reversed(self.regions) if isinstance(r, Call))
        written = self.snapshot(call) if call.journaled else {}
        call.returns.append((self.mass(call), self.engine.journals.held(value), written))
        self.regions[-1].mass = DEAD

    def invoke(self, body: Callable[[], None], name: str, straight: bool = False) -> Any:
        """Run the body of a function and give what it returns; a ``straight`` one returns only at its end."""
        call = Call(self.engine, straight)
        self.regions.append(call)
        if call.journaled:
            self.engine.journals.append(Journal())
        self.depth += 1
        body()
        self.depth -= 1
        if call.mass is not DEAD:
            call.returns.append((call.mass, None, self.snapshot(call) if call.journaled else {}))
        self.regions.pop()
        if straight and len(call.returns) == 1 and call.returns[0][0] is None:
            return self.engine.journals.released(call.returns[0][1])
        exits = [(mass, (value,), written) for mass, value, written in call.returns]
        if not call.journaled:
            self.engine.journals.append(Journal())
        if not exits:
            raise self.engine.error(ValueError, f"{name} never returns")
        (result,), _ = self.engine.joins.join_exits(exits, (None,), (f"{name}()",), call.lossy, call.since)
        return result

    def block(self, manager: Any, entry: Names, labels: tuple[str, ...]) -> Any:
        """A ``with`` statement of a program."""
        if not hasattr(manager, "__relaxed_block__"):
            raise self.engine.error(
                TypeError, "only softly.algorithms.steepness(...) and unmerged() can stand in a `with`"
            )
        return manager.__relaxed_block__(self.engine, entry, labels)

    def closure(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """An inner function of a program."""

        def called(*args: Any, **kwargs: Any) -> Any:
            return self.invoke(lambda: function(*args, **kwargs), name)

        called.__name__ = name
        return self.lowered(called)

    def lowered(self, function: Any) -> Any:
        """A function whose code is lowered already."""
        function._softly_lowered = function
        return function
