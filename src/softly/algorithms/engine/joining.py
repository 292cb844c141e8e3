"""Where paths join: the mean of what they wrote, by their probabilities."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from softly.algorithms.engine.arrays import Categorical, Store
from softly.algorithms.engine.blending import Blend, Blending, common
from softly.algorithms.engine.containers import Dict, List, Maybe, relaxed, torn
from softly.algorithms.engine.journals import MISSING, WHOLE, Held, Mark, Names, put, read
from softly.algorithms.engine.numbers import Answer, Number, is_whole
from softly.algorithms.engine.protocol import Run
from softly.algorithms.engine.regions import DEAD, Mass

_NUMBERS = (bool, int, float)
_DEEP = 3


class Joining:
    """The joins of one run."""

    def __init__(self, engine: Run) -> None:
        self.engine = engine
        self.blending = Blending(engine)
        self.blend: tuple[Tensor, Blend] | None = None  # of the states that join now

    def times(self, a: Mass, b: Mass) -> Mass:
        if a is DEAD or b is DEAD:
            return DEAD
        if a is None or b is None:
            return b if a is None else a
        # Where nobody is, a condition may be no number.
        return a * torch.where(a == 0, 0.0, b) if self.engine.guarded else a * b

    def join_branches(self, p: Tensor, yes: Any, no: Any, labels: tuple[str, ...], since: int) -> Names:
        parent = self.engine.control.regions[-1]
        (mass_yes, names_yes, written_yes), (mass_no, names_no, written_no) = yes, no
        if mass_yes is None and mass_no is None:
            weight: Any = p
        else:
            mass_yes, mass_no = self.times(p, mass_yes), self.times(self.engine.complement(p), mass_no)
            if mass_yes is DEAD and mass_no is DEAD:
                parent.mass = DEAD
                return self.engine.journals.release(names_no)
            if mass_yes is DEAD or mass_no is DEAD:
                mass, names, written = (
                    (mass_no, names_no, written_no) if mass_yes is DEAD else (mass_yes, names_yes, written_yes)
                )
                parent.mass = self.times(parent.mass, mass)
                if self.engine.control.depth > _DEEP and self.engine.control.negligible():
                    parent.mass = DEAD  # a recursion ends where nobody is left in it
                for container, key, value in written.values():
                    self._settle(container, key, value)
                return self.engine.journals.release(names)
            total = mass_yes + mass_no
            parent.mass = self.times(parent.mass, total)
            # Where nobody is left any mixture will do, as long as it is a state that can be calculated with.
            weight = torch.where(total > 0, mass_yes / torch.where(total > 0, total, 1.0), p)
        if not written_yes and not written_no:
            return tuple(self.mix(weight, names_yes, names_no, labels, since))
        places = {**written_yes, **written_no} if written_no else written_yes
        self._settle_fresh(places, since)
        values_yes, values_no = list(names_yes), list(names_no)
        for k, (container, key, _) in places.items():
            values_yes.append(written_yes[k][2] if k in written_yes else read(container, key))
            values_no.append(written_no[k][2] if k in written_no else read(container, key))
        count = len(labels)
        joined = self.mix(weight, values_yes, values_no, (*labels, *["an entry"] * len(places)), since)
        for (container, key, _), value in zip(places.values(), joined[count:], strict=True):
            self._settle(container, key, value)
        return tuple(joined[:count])

    def _settle_fresh(self, places: dict[Any, Any], since: int) -> None:
        """What one path made is seen by that path alone: it keeps what that path wrote into it."""
        fresh = [
            k
            for k, (container, _, _) in places.items()
            if (container.born > since if type(container) is Store else self._fresh(container, since))
        ]
        for k in fresh:
            self._settle(*places.pop(k))

    def _fresh(self, container: Any, since: int) -> bool:
        if type(container) is Store or isinstance(container, (List, Dict)):
            return container.born > since
        return id(container) in self.engine.births and self.engine.births[id(container)][1] > since

    def _settle(self, container: Any, key: Any, value: Any) -> None:
        if type(container) is Store:
            self.engine.journals.write(container, key, value)
            return
        if type(value) is Held:
            value = value.original
        elif type(value) is tuple:
            value = self.engine.journals.released(value)
        if id(container) in self.engine.outside and ((key is WHOLE and torn(value) is not None) or relaxed(value)):
            self.engine.journals.keep_inside(container)
        if key is WHOLE:
            self.engine.journals.remember(container)
            put(container, WHOLE, value)
        elif value is MISSING:
            self.engine.journals.remember(container)
            container.pop(key, None)
        else:
            self.engine.journals.write(container, key, value)

    @staticmethod
    def normalised(masses: list[Mass]) -> tuple[list[Mass], Mass]:
        """Masses that sum to 1, and what they summed to; all alike where nobody is left."""
        total: Any = sum(masses[1:], masses[0])
        left, safe = total > 0, torch.where(total > 0, total, 1.0)
        return [torch.where(left, mass / safe, 1.0 / len(masses)) for mass in masses], total

    def join_exits(
        self, exits: Any, names: Names, labels: tuple[str, ...], lossy: bool, since: int
    ) -> tuple[Names, Mass]:
        """Join the states in which a region was left, and close its journal."""
        journal = self.engine.journals.pop()
        if not exits:
            journal.undo()
            return names, DEAD
        masses = [mass for mass, _, _ in exits]
        if len(exits) == 1:
            mass, names, written = exits[0]
            journal.undo()
            for container, key, value in written.values():
                self._settle(container, key, value)
            return self.engine.journals.release(names), mass
        journal.undo()
        places: dict[Any, Any] = {}
        for _, _, written in exits:
            places.update(written)
        # What one of several exits alone has seen keeps what it wrote.
        seen = {k: sum(k in written for _, _, written in exits) for k in places}
        alone = {k: place for k, place in places.items() if seen[k] == 1}
        kept = dict(alone)
        self._settle_fresh(alone, since)
        places = {k: place for k, place in places.items() if k not in kept or k in alone}
        rows = []
        for _, at_exit, written in exits:
            row = list(at_exit)
            for k, (container, key, _) in places.items():
                row.append(written[k][2] if k in written else read(container, key))
            rows.append(row)
        total: Mass = None
        if lossy:
            masses, total = self.normalised(masses)
        joined = self.join_values(masses, rows, (*labels, *["an entry"] * len(places)), since)
        count = len(labels)
        for (container, key, _), value in zip(places.values(), joined[count:], strict=True):
            self._settle(container, key, value)
        return tuple(joined[:count]), total

    def mix(
        self, p: Tensor, yes: Sequence[Any], no: Sequence[Any], labels: Sequence[str], since: int = -1
    ) -> list[Any]:
        """Join two states: one interpolation over all that differs."""
        if self.engine.settings.hard or self.engine.guarded:
            blend = self._pair(p, labels, since)
            return [self.blending.join([a, b], label, blend) for a, b, label in zip(yes, no, labels, strict=True)]
        joined = list(yes)
        changed: list[int] = []
        kinds: list[Any] = []
        starts: list[Tensor] = []
        ends: list[Tensor] = []
        dtype = p.dtype
        for i, a in enumerate(yes):
            b = no[i]
            kind_a, kind_b = type(a), type(b)
            if a is b and kind_a is not Held and kind_a is not tuple:
                continue
            made: Any = None
            if kind_a is Tensor and kind_b is Tensor and a.dtype is dtype and b.dtype is dtype:
                changed.append(i)
                kinds.append(None)
                starts.append(b)
                ends.append(a)
                continue
            number_a, number_b = kind_a is Number or kind_a is Answer, kind_b is Number or kind_b is Answer
            if number_a or number_b:
                made = "number" if kind_a is kind_b is Number and not a.whole else _model(a, b)
                if number_a:
                    a, kind_a = a.tensor, Tensor
                if number_b:
                    b, kind_b = b.tensor, Tensor
            if kind_a is not Tensor and kind_b is Tensor and kind_a in _NUMBERS:
                a, kind_a = self.engine.constant(a), Tensor
            elif kind_b is not Tensor and kind_a is Tensor and kind_b in _NUMBERS:
                b, kind_b = self.engine.constant(b), Tensor
            if (
                kind_a is Tensor
                and kind_b is Tensor
                and a.dtype is dtype
                and b.dtype is dtype
                and not self.engine.guarded
            ):
                changed.append(i)
                kinds.append(made)
                starts.append(b)
                ends.append(a)
            elif kind_a in _NUMBERS and kind_b in _NUMBERS:
                if a != b:
                    joined[i] = self._expectation(p, a, b)
            else:
                joined[i] = self.blending.join([yes[i], no[i]], labels[i], self._pair(p, labels, since))
        if changed:
            mixed: Any
            if self.engine.static or len(starts) == 1:
                mixed = [torch.lerp(b, a, p) for b, a in zip(starts, ends, strict=True)]
            else:
                mixed = torch._foreach_lerp(starts, ends, [p] * len(starts))
            for i, made, value in zip(changed, kinds, mixed, strict=True):
                if made is None:
                    joined[i] = value
                else:
                    joined[i] = Number(self.engine, value) if made == "number" else self.blending.made(made, value)
        return joined

    def _pair(self, p: Tensor, labels: Sequence[str], since: int) -> Blend:
        """How two states are joined."""
        if self.blend is None or self.blend[0] is not p:
            blend = Blend(
                lambda values: self.engine.comparators.mix(p.reshape(p.shape + (1,) * (_depth(values) - 1)), *values),
                lambda: (p, self.engine.complement(p)),
                since,
                labels,
            )
            self.blend = p, blend
        return self.blend[1]

    def _expectation(self, p: Tensor, a: Any, b: Any) -> Any:
        """``p a + (1 - p) b`` of numbers."""
        if a == 1 and b == 0:
            mean = p
        elif a == 0 and b == 1:
            mean = self.engine.complement(p)
        else:
            start, end = self.engine.constant(b), self.engine.constant(a)
            mean = self.engine.comparators.mix(p, end, start) if self.engine.guarded else torch.lerp(start, end, p)
        if not self.engine.typed:
            return mean
        return self.blending.made(_model(a, b), mean)

    def join_values(
        self, masses: Sequence[Mass], rows: Sequence[Sequence[Any]], labels: Sequence[str], since: int = -1
    ) -> list[Any]:
        """Join any number of states by their masses."""
        weights = torch.stack([self.engine.column(1.0 if m is None else m) for m in masses])
        if self.engine.settings.hard:
            weights = torch.nn.functional.one_hot(weights.argmax(0), len(weights)).T.to(weights.dtype)
        pending: list[list[Tensor]] = []

        def combine(values: list[Any]) -> Any:
            if any(isinstance(v, Tensor) and v.ndim > 1 for v in values):
                return self.engine.comparators.average(weights, torch.stack(self.engine.uniform(values)))
            if not any(isinstance(v, Tensor) for v in values):
                plain = [float(v) for v in values]
                if not all(map(math.isfinite, plain)):
                    self.engine.guard()
                numbers = torch.tensor(plain, dtype=weights.dtype, device=weights.device)
                return self.engine.comparators.average(weights, numbers[:, None].expand_as(weights))
            pending.append(self.engine.columns(values))
            return Mark(str(len(pending) - 1))

        blend = Blend(combine, lambda: weights.unbind(0), since, labels)
        joined = [self.blending.join([row[i] for row in rows], label, blend) for i, label in enumerate(labels)]
        if not pending:
            return joined
        # All at once: (states, variables, batch).
        flat = self.engine.uniform([values[i] for i in range(len(masses)) for values in pending])
        stacked = torch.stack(flat).unflatten(0, (len(masses), len(pending)))
        filled = self.engine.comparators.average(weights[:, None], stacked).unbind(0)
        return [self._filled(value, filled) for value in joined]

    def _filled(self, value: Any, filled: Sequence[Tensor]) -> Any:
        """A value with means in the place of the marks that stood for them."""
        kind = type(value)
        if kind is Mark and value is not MISSING:
            return filled[int(value.name)]
        if isinstance(value, Number):
            value.tensor = self._filled(value.tensor, filled)
        elif kind is Categorical:
            value.weights = self._filled(value.weights, filled)
        elif kind is Maybe:
            value.value = self._filled(value.value, filled)
        elif kind is List:
            for i, entry in enumerate(value):
                list.__setitem__(value, i, self._filled(entry, filled))
        elif kind is collections.deque:
            for i, entry in enumerate(value):
                value[i] = self._filled(entry, filled)
        elif kind is tuple:
            return tuple([self._filled(v, filled) for v in value])
        elif isinstance(value, tuple):
            return type(value)(*(self._filled(v, filled) for v in value))
        elif isinstance(value, dict):
            for k, entry in value.items():
                dict.__setitem__(value, k, self._filled(entry, filled))
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field in dataclasses.fields(value):
                object.__setattr__(value, field.name, self._filled(getattr(value, field.name), filled))
        return value


def _model(a: Any, b: Any) -> str:
    """What the mean of two numbers is: an answer, a whole number, or another number."""
    kind_a, kind_b = type(a), type(b)
    if kind_a is Number:
        return "whole" if a.whole and is_whole(b) else "number"
    if kind_b is Number:
        return "whole" if b.whole and is_whole(a) else "number"
    if (kind_a is Answer or a is True or a is False) and (kind_b is Answer or b is True or b is False):
        return "answer"
    return common([a, b])


def _depth(values: Sequence[Any]) -> int:
    return max((v.ndim for v in values if isinstance(v, Tensor)), default=1) or 1
