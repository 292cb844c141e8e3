"""Where paths join: the mean of what they wrote, by their probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from softly.algorithms.engine.arrays import Array, Categorical, Store, Undefined, number
from softly.algorithms.engine.journals import MISSING, WHOLE, Held, Journals, Mark, Names, put, read

Mass = Any  # of a path: None for 1, DEAD for 0, or a tensor (batch,)
DEAD = Mark("dead")
_NUMBERS = (bool, int, float)


class Joining(Journals):
    """A run whose paths join."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.regions: list[Any] = []

    @staticmethod
    def times(a: Mass, b: Mass) -> Mass:
        if a is DEAD or b is DEAD:
            return DEAD
        return b if a is None else a if b is None else a * b

    def join_branches(self, p: Tensor, yes: Any, no: Any, labels: tuple[str, ...]) -> Names:
        parent = self.regions[-1]
        (mass_yes, names_yes, written_yes), (mass_no, names_no, written_no) = yes, no
        if mass_yes is None and mass_no is None:
            weight: Any = p
        else:
            mass_yes, mass_no = self.times(p, mass_yes), self.times(self.complement(p), mass_no)
            if mass_yes is DEAD and mass_no is DEAD:
                parent.mass = DEAD
                return self.release(names_no)
            if mass_yes is DEAD or mass_no is DEAD:
                mass, names, written = (
                    (mass_no, names_no, written_no) if mass_yes is DEAD else (mass_yes, names_yes, written_yes)
                )
                parent.mass = self.times(parent.mass, mass)
                for container, key, value in written.values():
                    self._settle(container, key, value)
                return self.release(names)
            total = mass_yes + mass_no
            parent.mass = self.times(parent.mass, total)
            # Where nobody is left any mixture will do, as long as it is a state that can be calculated with.
            weight = torch.where(total > 0, mass_yes / torch.where(total > 0, total, 1.0), p)
        if not written_yes and not written_no:
            return tuple(self.mix(weight, names_yes, names_no, labels))
        places = {**written_yes, **written_no} if written_no else written_yes
        values_yes, values_no = list(names_yes), list(names_no)
        for k, (container, key, _) in places.items():
            values_yes.append(written_yes[k][2] if k in written_yes else read(container, key))
            values_no.append(written_no[k][2] if k in written_no else read(container, key))
        count = len(labels)
        joined = self.mix(weight, values_yes, values_no, (*labels, *["an entry"] * len(places)))
        for (container, key, _), value in zip(places.values(), joined[count:], strict=True):
            self._settle(container, key, value)
        return tuple(joined[:count])

    def _settle(self, container: Any, key: Any, value: Any) -> None:
        if type(container) is Store:
            self.write(container, key, value)
            return
        if type(value) is Held:
            value = value.original
        if key is WHOLE:
            self.remember(container)
            put(container, WHOLE, value)
        elif value is MISSING:
            self.remember(container)
            container.pop(key, None)
        else:
            self.write(container, key, value)

    @staticmethod
    def normalised(masses: list[Mass]) -> tuple[list[Mass], Mass]:
        """Masses that sum to 1, and what they summed to; all alike where nobody is left."""
        total: Any = sum(masses[1:], masses[0])
        left, safe = total > 0, torch.where(total > 0, total, 1.0)
        return [torch.where(left, mass / safe, 1.0 / len(masses)) for mass in masses], total

    def join_exits(self, exits: Any, names: Names, labels: tuple[str, ...], lossy: bool) -> tuple[Names, Mass]:
        """Join the states in which a region was left, and close its journal."""
        journal = self.journals.pop()
        if not exits:
            journal.undo()
            return names, DEAD
        masses = [mass for mass, _, _ in exits]
        if len(exits) == 1:
            mass, names, written = exits[0]
            journal.undo()
            for container, key, value in written.values():
                self._settle(container, key, value)
            return self.release(names), mass
        journal.undo()
        places: dict[Any, Any] = {}
        for _, _, written in exits:
            places.update(written)
        rows = []
        for _, at_exit, written in exits:
            row = list(at_exit)
            for k, (container, key, _) in places.items():
                row.append(written[k][2] if k in written else read(container, key))
            rows.append(row)
        total: Mass = None
        if lossy:
            masses, total = self.normalised(masses)
        joined = self.join_values(masses, rows, (*labels, *["an entry"] * len(places)))
        count = len(labels)
        for (container, key, _), value in zip(places.values(), joined[count:], strict=True):
            self._settle(container, key, value)
        return tuple(joined[:count]), total

    def mix(self, p: Tensor, yes: Sequence[Any], no: Sequence[Any], labels: Sequence[str]) -> list[Any]:
        """Join two states: one interpolation over all that differs."""
        if self.settings.hard or self.guarded:
            return [self._mix_one(p, a, b, label) for a, b, label in zip(yes, no, labels, strict=True)]
        joined = list(yes)
        changed: list[int] = []
        starts: list[Tensor] = []
        ends: list[Tensor] = []
        dtype = p.dtype
        for i, a in enumerate(yes):
            b = no[i]
            kind_a, kind_b = type(a), type(b)
            if a is b and kind_a is not Held:
                continue
            if kind_a is not Tensor and kind_b is Tensor and kind_a in _NUMBERS:
                a, kind_a = self.constant(a), Tensor
            elif kind_b is not Tensor and kind_a is Tensor and kind_b in _NUMBERS:
                b, kind_b = self.constant(b), Tensor
            if kind_a is Tensor and kind_b is Tensor and a.dtype is dtype and b.dtype is dtype:
                changed.append(i)
                starts.append(b)
                ends.append(a)
            elif kind_a in _NUMBERS and kind_b in _NUMBERS:
                if a != b:
                    joined[i] = self._expectation(p, a, b)
            else:
                joined[i] = self._mix_one(p, a, b, labels[i])
        if changed:
            mixed: Any
            if self.static or len(starts) == 1:
                mixed = [torch.lerp(b, a, p) for b, a in zip(starts, ends, strict=True)]
            else:
                mixed = torch._foreach_lerp(starts, ends, [p] * len(starts))
            for i, value in zip(changed, mixed, strict=True):
                joined[i] = value
        return joined

    def _expectation(self, p: Tensor, a: float, b: float) -> Tensor:
        """``p a + (1 - p) b`` of numbers."""
        if a == 1 and b == 0:
            return p
        if a == 0 and b == 1:
            return self.complement(p)
        return torch.lerp(self.constant(b), self.constant(a), p)

    def _mix_one(self, p: Tensor, a: Any, b: Any, label: str) -> Any:
        return self._join(
            [a, b],
            label,
            lambda values: self.comparators.mix(p.reshape(p.shape + (1,) * (_depth(values) - 1)), *values),
        )

    def join_values(self, masses: Sequence[Mass], rows: Sequence[Sequence[Any]], labels: Sequence[str]) -> list[Any]:
        """Join any number of states by their masses."""
        weights = torch.stack([self.column(1.0 if m is None else m) for m in masses])
        if self.settings.hard:
            weights = torch.nn.functional.one_hot(weights.argmax(0), len(weights)).T.to(weights.dtype)
        pending: list[list[Tensor]] = []

        def combine(values: list[Any]) -> Any:
            if any(isinstance(v, Tensor) and v.ndim > 1 for v in values):
                return self.comparators.average(weights, torch.stack(self.uniform(values)))
            if not any(isinstance(v, Tensor) for v in values):
                numbers = torch.tensor([float(v) for v in values], dtype=weights.dtype, device=weights.device)
                return self.comparators.average(weights, numbers[:, None].expand_as(weights))
            pending.append([self.column(v) for v in values])
            return Mark(str(len(pending) - 1))

        joined = [self._join([row[i] for row in rows], label, combine) for i, label in enumerate(labels)]
        if not pending:
            return joined
        # All at once: (states, variables, batch).
        flat = self.uniform([values[i] for i in range(len(masses)) for values in pending])
        stacked = torch.stack(flat).unflatten(0, (len(masses), len(pending)))
        filled = iter(self.comparators.average(weights[:, None], stacked).unbind(0))

        def fill(value: Any) -> Any:
            if type(value) is Mark and value is not MISSING:
                return next(filled)
            if type(value) in (list, tuple):
                return type(value)(fill(v) for v in value)
            return {k: fill(v) for k, v in value.items()} if type(value) is dict else value

        return [fill(value) for value in joined]

    def _join(self, values: list[Any], label: str, combine: Callable[[list[Any]], Any]) -> Any:
        first = values[0]
        if all(v is first for v in values):
            return first.original if type(first) is Held else first
        if any(type(v) is Held for v in values):
            if type(first) is Held and all(type(v) is Held and v.original is first.original for v in values):
                return first.original
            values = [v.content if type(v) is Held else v for v in values]
            first = values[0]
        if any(isinstance(v, Undefined) or v is MISSING for v in values):
            return Undefined(label) if MISSING not in values else MISSING
        if all(isinstance(v, (bool, int, float)) for v in values):
            return first if all(v == first for v in values) else combine(values)
        if any(isinstance(v, Categorical) for v in values):
            if all(isinstance(v, Categorical) and v.weights.shape == first.weights.shape for v in values):
                return Categorical(combine([v.weights for v in values]))
            values = [number(v) for v in values]
        if all(isinstance(v, (Tensor, bool, int, float)) for v in values):
            return combine(values)
        if any(isinstance(v, Array) for v in values) and all(isinstance(v, (Array, list, tuple)) for v in values):
            arrays = [self.array(v) for v in values]
            if any(a.shape != arrays[0].shape for a in arrays):
                shapes = " and ".join(str(tuple(a.shape)) for a in arrays)
                raise self.error(ValueError, f"{label!r} has different shapes on joining paths: {shapes}")
            if isinstance(first, Array) and all(isinstance(v, Array) and v.same(first) for v in values):
                return first
            return Array.of(self, combine([a.tensor() for a in arrays]))
        kind = type(first)
        if all(type(v) is kind for v in values) and kind in (list, tuple, dict):
            if any(len(v) != len(first) for v in values):
                lengths = " and ".join(str(len(v)) for v in values)
                error = self.error(ValueError, f"{label} has different lengths on joining paths: {lengths}")
                # A list that nobody looks at any more does no harm.
                return [Undefined(label, error)] if kind is list else Undefined(label, error)
            if kind is dict:
                if any(v.keys() != first.keys() for v in values):
                    raise self.error(ValueError, f"{label!r} has different keys on joining paths")
                return {k: self._join([v[k] for v in values], label, combine) for k in first}
            return kind(self._join([v[i] for v in values], label, combine) for i in range(len(first)))
        try:
            equal = all(bool(v == first) for v in values)
        except Exception:
            equal = False
        if equal:
            return first
        shown = " and ".join(repr(v)[:40] for v in values[:3])
        raise self.error(
            TypeError, f"{label!r} is {shown} on joining paths; only numbers, and collections of them, can be mixed"
        )


def _depth(values: Sequence[Any]) -> int:
    return max((v.ndim for v in values if isinstance(v, Tensor)), default=1) or 1
