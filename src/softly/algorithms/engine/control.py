"""Runs relaxed programs: paths, the probability of each, and the values where paths join.

A program is Python code that asks the engine at every branch which ways to go. Both branches of a relaxed
condition run one after the other, from the same state; what they wrote is kept in a journal, so that joining them
costs only what was touched. A jump (break, continue, return) takes its share of the probability, its mass, out of
the path that it leaves: what follows is for the rest.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from softly.algorithms.engine.arrays import Array, Categorical, Undefined, number
from softly.algorithms.engine.containers import Choice, torn
from softly.algorithms.engine.joining import DEAD, Joining, Mass
from softly.algorithms.engine.journals import Journal, Names
from softly.algorithms.engine.numbers import Answer, Number, is_whole
from softly.algorithms.engine.settings import Settings


class Region:
    """A stretch of a path; ``mass`` is how much of what began it is still on it.

    ``journaled`` tells whether there is a journal for what is written in it, ``since`` when it began.
    """

    __slots__ = ("mass", "since")
    journaled = True

    def __init__(self, engine: Engine) -> None:
        self.mass: Mass = None
        self.since = engine.serial
        engine.serial += 1


class HardBranch:
    """A branch whose condition was hard, or all but certain for the whole batch."""

    __slots__ = ("ways",)

    def __init__(self, way: bool) -> None:
        self.ways = (way,)

    def __iter__(self) -> Iterator[bool]:
        return iter(self.ways)

    @staticmethod
    def end(names: Names) -> Names:
        return names


class Span:
    """A range with relaxed bounds, and the hard one that holds it."""

    __slots__ = ("entries", "start", "step", "stop")

    def __init__(self, start: Any, stop: Any, step: int, entries: range) -> None:
        self.start, self.stop, self.step, self.entries = start, stop, step, entries

    def __iter__(self) -> Iterator[int]:
        return iter(self.entries)


YES, NO = HardBranch(True), HardBranch(False)


class Branch(Region):
    """Both ways of a relaxed condition: each is run from the state at the beginning, then they are joined."""

    __slots__ = ("condition", "engine", "entry", "first", "labels", "p", "way")

    def __init__(self, engine: Engine, p: Tensor, entry: Names, labels: tuple[str, ...], condition: Any = None) -> None:
        self.mass, self.since = None, engine.serial
        self.engine, self.p, self.entry, self.labels, self.condition = engine, p, entry, labels, condition
        self.first: Any = None
        self.way = True

    def __iter__(self) -> Iterator[bool]:
        engine = self.engine
        for self.way in (True, False):
            self.mass = None
            engine.serial += 1
            engine.regions.append(self)
            engine.journals.append(Journal())
            yield self.way

    def end(self, names: Names) -> Names:
        engine = self.engine
        journal = engine.journals.pop()
        engine.regions.pop()
        written = engine.contents([journal])
        names = engine.hold(names)
        journal.undo()
        if self.first is None:
            self.first = (self.mass, names, written)
            return self.entry
        return engine.join_branches(self.p, self.first, (self.mass, names, written), self.labels, self.since)


class Aside(Region):
    """The second operand of an ``and`` or ``or``, which counts with the probability that it is asked for."""

    __slots__ = ("condition", "p", "way")
    journaled = False

    def __init__(self, engine: Engine, p: Tensor, way: bool, condition: Any) -> None:
        super().__init__(engine)
        self.p, self.way, self.condition = p, way, condition


class Loop(Region):
    """A loop that can be left with some probability, at each iteration or by a jump."""

    __slots__ = ("count", "engine", "exits", "iteration", "labels", "lossy", "skipped")

    def __init__(self, engine: Engine, labels: tuple[str, ...], lossy: bool) -> None:
        super().__init__(engine)
        self.engine, self.labels, self.lossy = engine, labels, lossy
        self.exits: list[tuple[Mass, Names, dict[Any, Any]]] = []
        self.count = 0
        self.iteration: Region | None = None
        self.skipped: list[tuple[Mass, Names, dict[Any, Any]]] = []
        engine.regions.append(self)
        engine.journals.append(Journal())

    @property
    def alive(self) -> bool:
        return self.mass is not DEAD

    def leave(self, mass: Mass, names: Names) -> None:
        """Let a mass go to what follows the loop, with the state of now."""
        if mass is not DEAD:
            self.exits.append((mass, self.engine.hold(names), self.engine.snapshot(self)))

    def finish(self, names: Names) -> None:
        """Nothing is left to iterate over."""
        self.leave(self.mass, names)
        self.mass = DEAD

    def test(self, condition: Any, names: Names) -> bool:
        """Whether to run another iteration of a ``while``."""
        engine = self.engine
        self.count += 1
        if isinstance(condition, Answer):
            condition = condition.tensor
        if not isinstance(condition, Tensor):
            if condition and (self.mass is None or self.count <= engine.settings.max_iterations):
                return True
            if condition:
                engine.warn_leftover(self.mass)
            self.finish(names)
            return False
        if engine.paths is not None:
            if engine.choose(condition) and self.count <= engine.settings.max_iterations:
                return True
            self.finish(names)
            return False
        tolerance = engine.settings.tolerance
        going = engine.times(self.mass, condition)
        over = self.count > engine.settings.max_iterations
        most, least = engine.range(going)
        if not engine.static and tolerance > 0:
            # Each example goes on or ends by itself, as it would without the others.
            if self.mass is not None:
                # With a gradient an operation costs more than to see that it isn't needed.
                if not condition.requires_grad or engine.range(condition)[0] >= 1.0 - tolerance:
                    going = torch.where(condition < 1.0 - tolerance, going, self.mass)
            elif most >= 1.0 - tolerance:
                going = torch.where(going < 1.0 - tolerance, going, 1.0)
            if least <= tolerance:
                going = torch.where(going > tolerance, going, 0.0)
            least = 1.0 if self.mass is None and least >= 1.0 - tolerance else least
        if over or most <= tolerance:
            if over:
                engine.warn_leftover(going)
            self.finish(names)
            return False
        if least < 1.0:
            self.leave(engine.complement(going) if self.mass is None else self.mass - going, names)
            self.mass = going
        return True

    def begin(self) -> None:
        """An iteration that can be continued early begins."""
        self.iteration, self.skipped = Region(self.engine), []
        self.engine.regions.append(self.iteration)
        self.engine.journals.append(Journal())

    def close(self, names: Names) -> Names:
        """An iteration ends: what was continued early joins the rest."""
        engine, region = self.engine, self.iteration
        assert region is not None
        exits = self.skipped
        if region.mass is not DEAD:
            exits = [*exits, (region.mass, engine.hold(names), engine.snapshot(region))]
        engine.regions.pop()
        names, mass = engine.join_exits(exits, names, self.labels, True, region.since)
        self.mass = engine.times(self.mass, mass)
        return names

    def end(self, names: Names) -> Names:
        engine = self.engine
        engine.regions.pop()
        names, mass = engine.join_exits(self.exits, names, self.labels, self.lossy, self.since)
        parent = engine.regions[-1]
        parent.mass = engine.times(parent.mass, mass)
        return names


class Call(Region):
    """The activation of a function: its returns, with their masses; ``lossy`` if some mass went into exceptions."""

    __slots__ = ("journaled", "lossy", "returns")

    def __init__(self, engine: Engine, straight: bool) -> None:
        super().__init__(engine)
        self.journaled = not straight
        self.returns: list[tuple[Mass, Any, dict[Any, Any]]] = []
        self.lossy = False


class Paths:
    """Runs a block once for every path through its conditions, each from the same state."""

    def __init__(self, engine: Engine, entry: Names, labels: tuple[str, ...]) -> None:
        self.engine, self.entry, self.labels = engine, entry, labels
        self.loop: Loop | None = None

    def __iter__(self) -> Iterator[None]:
        engine = self.engine
        if engine.paths is not None:  # already on a single path
            yield
            return
        pending: list[list[bool]] = [[]]
        self.loop = Loop(engine, self.labels, lossy=True)
        count = 0
        while pending:
            count += 1
            if count > engine.settings.max_paths:
                raise engine.error(
                    ValueError, f"an unmerged block has more than max_paths={engine.settings.max_paths} paths"
                )
            engine.paths, engine.taken, engine.pending = pending.pop(), [], pending
            self.loop.mass = None
            yield
            engine.paths = None

    def end(self, names: Names) -> Names:
        if self.loop is None:
            return names
        self.loop.leave(self.loop.mass, names)
        self.engine.journals[-1].undo()
        return self.entry

    def join(self, names: Names) -> Names:
        return names if self.loop is None else self.loop.end(names)


class Engine(Joining):
    """One run of a program over a batch; its arguments are those of `Values`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.paths: list[bool] | None = None
        self.taken: list[bool] = []
        self.pending: list[list[bool]] = []
        self.warned = False
        self.running: dict[Any, Settings] = {}

    def snapshot(self, region: Region) -> dict[Any, Any]:
        """What was written since a region began."""
        depth = next(i for i in range(len(self.regions) - 1, -1, -1) if self.regions[i] is region)
        outer = sum(1 for r in self.regions[:depth] if r.journaled)
        return self.contents(self.journals[outer:])

    # Probabilities -----------------------------------------------------------------------------------------------

    def mass(self, target: Region) -> Mass:
        """The probability of being here after the beginning of ``target``."""
        total: Mass = None
        for region in reversed(self.regions):
            total = self.times(total, region.mass)
            if region is target:
                return total
            if isinstance(region, (Branch, Aside)):
                total = self.times(total, region.p if region.way else self.complement(region.p))
        raise AssertionError("a jump out of a region that isn't there")

    @property
    def uncertain(self) -> bool:
        """Whether some examples may not be on this path."""
        return any(isinstance(r, (Branch, Aside)) or r.mass is not None for r in self.regions)

    def presence(self) -> Mass:
        """The probability of being here."""
        total: Mass = None
        for region in self.regions:
            total = self.times(total, region.mass)
            if isinstance(region, (Branch, Aside)):
                total = self.times(total, region.p if region.way else self.complement(region.p))
        return total

    def negligible(self) -> bool:
        """Whether hardly any example is on this path, so that it can be forgotten."""
        mass = self.presence()
        if self.static or mass is None or mass is DEAD or self.range(mass)[0] > self.settings.tolerance:
            return False
        next(r for r in reversed(self.regions) if isinstance(r, Call)).lossy = True
        return True

    def here(self) -> Tensor:
        """Which examples the plain program would bring here: a bool tensor (batch,)."""
        found = torch.ones(self.batch, dtype=torch.bool, device=self.device)
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
            if self.static and self.uncertain:
                self.guard()
            return operand
        wrong = bad(operand.detach())
        if not self.static and not bool(wrong.any()):
            return operand
        self.guard()
        mass = self.presence()
        if mass is None or mass is DEAD:
            return operand
        nobody = mass.detach() <= self.settings.tolerance
        nobody = nobody.reshape(nobody.shape + (1,) * (operand.ndim - nobody.ndim))
        return torch.where(wrong & nobody, torch.ones_like(operand), operand)

    def range(self, p: Tensor) -> tuple[float, float]:
        """The largest and the smallest probability in the batch; as if uncertain where nothing may depend on data."""
        if self.static:
            return 1.0, 0.0
        if p.numel() == 0:
            return 0.0, 1.0
        low, high = torch.aminmax(p.detach())
        return float(high), float(low)

    def warn_leftover(self, mass: Mass) -> None:
        if self.warned or self.trusts():
            return
        left = 1.0 if mass is None else float(mass.detach().max())
        if left > self.settings.tolerance:
            self.warned = True
            warnings.warn(
                f"softly.relax: a while loop was cut off after max_iterations={self.settings.max_iterations}, with "
                f"up to {left:.3g} of the probability left; it counts for the last state.",
                stacklevel=2,
            )

    def choose(self, p: Tensor) -> bool:
        """Which way the single path goes that is being followed."""
        assert self.paths is not None
        high, low = self.range(p)
        if high <= self.settings.tolerance or low >= 1.0 - self.settings.tolerance:
            self.skip(p)
            return high > self.settings.tolerance
        tolerance = self.settings.tolerance
        if not self.static and tolerance > 0:
            p = torch.where(p <= tolerance, 0.0, torch.where(p >= 1.0 - tolerance, 1.0, p))
        step = len(self.taken)
        way = self.paths[step] if step < len(self.paths) else True
        if step >= len(self.paths):
            self.pending.append([*self.taken, False])
        self.taken.append(way)
        region = self.regions[-1]
        region.mass = self.times(region.mass, p if way else self.complement(p))
        return way

    # Control flow ------------------------------------------------------------------------------------------------

    def truth(self, value: Any) -> Any:
        """A bool, or the probability that a value is true."""
        kind = type(value)
        if kind is Answer or kind is bool:
            return value
        if not isinstance(value, (Tensor, Number, Categorical, Array, Undefined, Choice)):
            broken = torn(value)
            if broken is not None:
                broken.fail()
            return bool(value)
        if isinstance(value, Choice):
            return self.each(value, self.truth)
        value = number(value)
        if not isinstance(value, Tensor):
            return bool(value)  # which raises
        if value.dtype == torch.bool:
            return self.answer_of(value.to(self.dtype))
        if self.typed:
            return self.compare("!=", Number(self, value), 0)
        if self.settings.hard:
            return (value != 0).to(self.dtype)
        high, low = self.range(value)
        if low < -1e-5 or high > 1.0 + 1e-5:
            raise self.error(
                ValueError,
                f"the truth of a relaxed value is a probability in [0, 1], got {low:.4g} to {high:.4g}; "
                "compare it, as in `x != 0`",
            )
        return value

    def answer_of(self, p: Tensor) -> Any:
        return Answer(self, p) if self.typed else p

    def each(self, choice: Choice, action: Callable[[Any], Any]) -> Any:
        """Do the same to each of the collections that a branch chose from, and join what it gives."""
        options = list(choice.options)
        left: Mass = None

        def among(i: int, left: Any) -> Any:
            weight, option = options[i]
            if i == len(options) - 1:
                return action(option)
            share = weight if left is None else torch.where(left > 0, weight / torch.where(left > 0, left, 1.0), 0.0)
            rest = self.complement(weight) if left is None else left - weight
            return self.conditional(
                Answer(self, share.clamp(0.0, 1.0)), lambda: action(option), lambda: among(i + 1, rest), True
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
                return Branch(self, p if p.ndim else self.column(p), entry, labels, condition)
        elif isinstance(condition, Tensor):
            p = condition
        else:
            return YES if condition else NO
        if self.paths is not None:
            return YES if self.choose(p) else NO
        if check:
            high, low = self.range(p)
            tolerance = self.settings.tolerance
            if low >= 1.0 - tolerance or high <= tolerance:
                self.skip(p)
                return YES if high > tolerance else NO
            if not self.static and (low <= tolerance or high >= 1.0 - tolerance):
                # For each example as if it were alone.
                p = torch.where(p <= tolerance, 0.0, torch.where(p >= 1.0 - tolerance, 1.0, p))
        return Branch(self, self.column(p), entry, labels, condition)

    def skip(self, p: Tensor) -> None:
        """Remember a condition that was all but certain, so that results still have a gradient, if only 0."""
        if self.anchor is None and p.requires_grad:
            self.anchor = p

    def span(self, *bounds: Any) -> Any:
        """The range of a ``for``; relaxed ints as its bounds make a relaxed one."""
        if set(map(type, bounds)) == {int}:
            return range(*bounds)
        if not any(isinstance(b, Number) for b in bounds):
            return self.call(range, *bounds)
        start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = bounds[2] if len(bounds) == 3 else 1
        whole = all(is_whole(b) for b in (start, stop)) and type(step) is int and abs(step) == 1
        if self.static or not whole or self.paths is not None:
            return self.call(range, *bounds)  # which raises
        ends = [v.tensor.detach() if isinstance(v, Number) else self.constant(v) for v in (start, stop)]
        low, high = sorted(ends, key=lambda t: float(t.sum())) if step < 0 else ends
        first, last = math.floor(float(low.min())), math.ceil(float(high.max()))
        if last - first > self.settings.max_iterations:
            raise self.error(
                ValueError,
                f"a loop over a relaxed range of {last - first}; max_iterations={self.settings.max_iterations}",
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
        begun = self.compare(within[0], i, span.start)
        inside = self.compare(within[1], i, span.stop)
        if isinstance(begun, bool) or isinstance(inside, bool):
            known, other = (begun, inside) if isinstance(begun, bool) else (inside, begun)
            return self.branch(other if known else False, entry, labels, True)
        both = Answer(self, begun.tensor * inside.tensor, ("and", begun, inside))
        return self.branch(both, entry, labels, True)

    @property
    def alive(self) -> bool:
        return self.regions[-1].mass is not DEAD

    def loop(self, labels: tuple[str, ...], lossy: bool) -> Loop:
        return Loop(self, labels, lossy)

    def unmerged(self, entry: Names, labels: tuple[str, ...]) -> Paths:
        return Paths(self, entry, labels)

    def break_(self, loop: Loop, names: Names) -> None:
        loop.leave(self.mass(loop), names)
        self.regions[-1].mass = DEAD

    def continue_(self, loop: Loop, names: Names) -> None:
        assert loop.iteration is not None
        loop.skipped.append((self.mass(loop.iteration), self.hold(names), self.snapshot(loop.iteration)))
        self.regions[-1].mass = DEAD

    def raises(self) -> bool:
        """Whether to raise an exception: if the plain program would. Otherwise the path ends here, and is forgotten."""
        mass = self.presence()
        if mass is None or (not self.trusts() and bool(self.here().any())):
            self.describing = True
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
            journal = self.journals.pop()
            if self.journals:
                for k, entry in journal.items():
                    self.journals[-1].setdefault(k, entry)

    def return_(self, value: Any) -> None:
        call = next(r for r in reversed(self.regions) if isinstance(r, Call))
        written = self.snapshot(call) if call.journaled else {}
        call.returns.append((self.mass(call), self.held(value), written))
        self.regions[-1].mass = DEAD

    def invoke(self, body: Callable[[], None], name: str, straight: bool = False) -> Any:
        """Run the body of a function and give what it returns; a ``straight`` one returns only at its end."""
        call = Call(self, straight)
        self.regions.append(call)
        if call.journaled:
            self.journals.append(Journal())
        self.depth += 1
        body()
        self.depth -= 1
        if call.mass is not DEAD:
            call.returns.append((call.mass, None, self.snapshot(call) if call.journaled else {}))
        self.regions.pop()
        if straight and len(call.returns) == 1 and call.returns[0][0] is None:
            return self.released(call.returns[0][1])
        exits = [(mass, (value,), written) for mass, value, written in call.returns]
        if not call.journaled:
            self.journals.append(Journal())
        if not exits:
            raise self.error(ValueError, f"{name} never returns")
        (result,), _ = self.join_exits(exits, (None,), (f"{name}()",), call.lossy, call.since)
        return result
