"""The regions of a path: branches, loops and calls, each with the mass that is still on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from softly.algorithms.engine.journals import Journal, Mark, Names
from softly.algorithms.engine.numbers import Answer
from softly.algorithms.engine.protocol import Run

Mass = Any  # of a path: None for 1, DEAD for 0, or a tensor (batch,)
DEAD = Mark("dead")


class Region:
    """A stretch of a path; ``mass`` is how much of what began it is still on it.

    ``journaled`` tells whether there is a journal for what is written in it, ``since`` when it began.
    """

    __slots__ = ("mass", "since")
    journaled = True

    def __init__(self, engine: Run) -> None:
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

    def __init__(self, engine: Run, p: Tensor, entry: Names, labels: tuple[str, ...], condition: Any = None) -> None:
        self.mass, self.since = None, engine.serial
        self.engine, self.p, self.entry, self.labels, self.condition = engine, p, entry, labels, condition
        self.first: Any = None
        self.way = True

    def __iter__(self) -> Iterator[bool]:
        engine = self.engine
        for self.way in (True, False):
            self.mass = None
            engine.serial += 1
            engine.control.regions.append(self)
            engine.journals.append(Journal())
            yield self.way

    def end(self, names: Names) -> Names:
        engine = self.engine
        journal = engine.journals.pop()
        engine.control.regions.pop()
        written = engine.journals.contents([journal])
        names = engine.journals.hold(names)
        journal.undo()
        if self.first is None:
            self.first = (self.mass, names, written)
            return self.entry
        return engine.joins.join_branches(self.p, self.first, (self.mass, names, written), self.labels, self.since)


class Aside(Region):
    """The second operand of an ``and`` or ``or``, which counts with the probability that it is asked for."""

    __slots__ = ("condition", "p", "way")
    journaled = False

    def __init__(self, engine: Run, p: Tensor, way: bool, condition: Any) -> None:
        super().__init__(engine)
        self.p, self.way, self.condition = p, way, condition


class Loop(Region):
    """A loop that can be left with some probability, at each iteration or by a jump."""

    __slots__ = ("count", "engine", "exits", "iteration", "labels", "lossy", "skipped")

    def __init__(self, engine: Run, labels: tuple[str, ...], lossy: bool) -> None:
        super().__init__(engine)
        self.engine, self.labels, self.lossy = engine, labels, lossy
        self.exits: list[tuple[Mass, Names, dict[Any, Any]]] = []
        self.count = 0
        self.iteration: Region | None = None
        self.skipped: list[tuple[Mass, Names, dict[Any, Any]]] = []
        engine.control.regions.append(self)
        engine.journals.append(Journal())

    @property
    def alive(self) -> bool:
        return self.mass is not DEAD

    def leave(self, mass: Mass, names: Names) -> None:
        """Let a mass go to what follows the loop, with the state of now."""
        if mass is not DEAD:
            self.exits.append((mass, self.engine.journals.hold(names), self.engine.control.snapshot(self)))

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
                engine.control.warn_leftover(self.mass)
            self.finish(names)
            return False
        if engine.control.paths is not None:
            if engine.control.choose(condition) and self.count <= engine.settings.max_iterations:
                return True
            self.finish(names)
            return False
        tolerance = engine.settings.tolerance
        going = engine.joins.times(self.mass, condition)
        over = self.count > engine.settings.max_iterations
        most, least = engine.control.range(going)
        if not engine.static and tolerance > 0:
            # Each example goes on or ends by itself, as it would without the others.
            if self.mass is not None:
                # With a gradient an operation costs more than to see that it isn't needed.
                if not condition.requires_grad or engine.control.range(condition)[0] >= 1.0 - tolerance:
                    going = torch.where(condition < 1.0 - tolerance, going, self.mass)
            elif most >= 1.0 - tolerance:
                going = torch.where(going < 1.0 - tolerance, going, 1.0)
            if least <= tolerance:
                going = torch.where(going > tolerance, going, 0.0)
            least = 1.0 if self.mass is None and least >= 1.0 - tolerance else least
        if over or most <= tolerance:
            if over:
                engine.control.warn_leftover(going)
            self.finish(names)
            return False
        if least < 1.0:
            self.leave(engine.complement(going) if self.mass is None else self.mass - going, names)
            self.mass = going
        return True

    def begin(self) -> None:
        """An iteration that can be continued early begins."""
        self.iteration, self.skipped = Region(self.engine), []
        self.engine.control.regions.append(self.iteration)
        self.engine.journals.append(Journal())

    def close(self, names: Names) -> Names:
        """An iteration ends: what was continued early joins the rest."""
        engine, region = self.engine, self.iteration
        assert region is not None
        exits = self.skipped
        if region.mass is not DEAD:
            exits = [*exits, (region.mass, engine.journals.hold(names), engine.control.snapshot(region))]
        engine.control.regions.pop()
        names, mass = engine.joins.join_exits(exits, names, self.labels, True, region.since)
        self.mass = engine.joins.times(self.mass, mass)
        return names

    def end(self, names: Names) -> Names:
        engine = self.engine
        engine.control.regions.pop()
        names, mass = engine.joins.join_exits(self.exits, names, self.labels, self.lossy, self.since)
        parent = engine.control.regions[-1]
        parent.mass = engine.joins.times(parent.mass, mass)
        return names


class Call(Region):
    """The activation of a function: its returns, with their masses; ``lossy`` if some mass went into exceptions."""

    __slots__ = ("journaled", "lossy", "returns")

    def __init__(self, engine: Run, straight: bool) -> None:
        super().__init__(engine)
        self.journaled = not straight
        self.returns: list[tuple[Mass, Any, dict[Any, Any]]] = []
        self.lossy = False


class Paths:
    """Runs a block once for every path through its conditions, each from the same state."""

    def __init__(self, engine: Run, entry: Names, labels: tuple[str, ...]) -> None:
        self.engine, self.entry, self.labels = engine, entry, labels
        self.loop: Loop | None = None

    def __iter__(self) -> Iterator[None]:
        engine = self.engine
        if engine.control.paths is not None:  # already on a single path
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
            engine.control.paths, engine.control.taken, engine.control.pending = pending.pop(), [], pending
            self.loop.mass = None
            yield
            engine.control.paths = None

    def end(self, names: Names) -> Names:
        if self.loop is None:
            return names
        self.loop.leave(self.loop.mass, names)
        self.engine.journals[-1].undo()
        return self.entry

    def join(self, names: Names) -> Names:
        return names if self.loop is None else self.loop.end(names)
