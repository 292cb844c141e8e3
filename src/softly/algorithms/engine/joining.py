"""Where paths join: the mean of what they wrote, by their probabilities."""

from __future__ import annotations

import collections
import dataclasses
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softly.algorithms.engine.arrays import Array, Categorical, Store, Undefined, number
from softly.algorithms.engine.containers import Choice, Dict, List, Maybe, Torn, birth, relaxed, torn
from softly.algorithms.engine.frames import named_elsewhere
from softly.algorithms.engine.journals import MISSING, WHOLE, Held, Journals, Mark, Names, mutable, put, read
from softly.algorithms.engine.numbers import Answer, Number, is_whole

Mass = Any  # of a path: None for 1, DEAD for 0, or a tensor (batch,)
DEAD = Mark("dead")
_NUMBERS = (bool, int, float)
_DEEP = 3


class Blend:
    """How the values of joining paths become one.

    Args:
        combine: The mean of tensors and numbers, one for each path.
        weights: The probability (batch,) of each path.
        since: When the paths parted; what a program made later is seen by one of them alone.
        labels: The variables that are joined.
    """

    def __init__(
        self,
        combine: Callable[[list[Any]], Any],
        weights: Callable[[], Sequence[Tensor]],
        since: int,
        labels: Sequence[str],
    ) -> None:
        self.combine, self.weights, self.since, self.labels = combine, weights, since, labels
        self.merged: dict[tuple[int, ...], tuple[Any, Any]] = {}


class Joining(Journals):
    """A run whose paths join."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.regions: list[Any] = []
        self.depth = 0  # of calls
        self.blend: tuple[Tensor, Blend] | None = None  # of the states that join now
        self.births: dict[int, tuple[Any, int]] = {}  # the attributes of objects that the program made, and when
        self.merged_objects: dict[int, Any] = {}

    def times(self, a: Mass, b: Mass) -> Mass:
        if a is DEAD or b is DEAD:
            return DEAD
        if a is None or b is None:
            return b if a is None else a
        # Where nobody is, a condition may be no number.
        return a * torch.where(a == 0, 0.0, b) if self.guarded else a * b

    def join_branches(self, p: Tensor, yes: Any, no: Any, labels: tuple[str, ...], since: int) -> Names:
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
                if self.depth > _DEEP and self.negligible():
                    parent.mass = DEAD  # a recursion ends where nobody is left in it
                for container, key, value in written.values():
                    self._settle(container, key, value)
                return self.release(names)
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

    @abstractmethod
    def negligible(self) -> bool:
        """Whether hardly any example is on this path."""

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
        return id(container) in self.births and self.births[id(container)][1] > since

    def _settle(self, container: Any, key: Any, value: Any) -> None:
        if type(container) is Store:
            self.write(container, key, value)
            return
        if type(value) is Held:
            value = value.original
        elif type(value) is tuple:
            value = self.released(value)
        if id(container) in self.outside and ((key is WHOLE and torn(value) is not None) or relaxed(value)):
            self.keep_inside(container)
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

    def join_exits(
        self, exits: Any, names: Names, labels: tuple[str, ...], lossy: bool, since: int
    ) -> tuple[Names, Mass]:
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
        if self.settings.hard or self.guarded:
            blend = self._pair(p, labels, since)
            return [self._join([a, b], label, blend) for a, b, label in zip(yes, no, labels, strict=True)]
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
                a, kind_a = self.constant(a), Tensor
            elif kind_b is not Tensor and kind_a is Tensor and kind_b in _NUMBERS:
                b, kind_b = self.constant(b), Tensor
            if kind_a is Tensor and kind_b is Tensor and a.dtype is dtype and b.dtype is dtype and not self.guarded:
                changed.append(i)
                kinds.append(made)
                starts.append(b)
                ends.append(a)
            elif kind_a in _NUMBERS and kind_b in _NUMBERS:
                if a != b:
                    joined[i] = self._expectation(p, a, b)
            else:
                joined[i] = self._join([yes[i], no[i]], labels[i], self._pair(p, labels, since))
        if changed:
            mixed: Any
            if self.static or len(starts) == 1:
                mixed = [torch.lerp(b, a, p) for b, a in zip(starts, ends, strict=True)]
            else:
                mixed = torch._foreach_lerp(starts, ends, [p] * len(starts))
            for i, made, value in zip(changed, kinds, mixed, strict=True):
                if made is None:
                    joined[i] = value
                else:
                    joined[i] = Number(self, value) if made == "number" else self._made(made, value)
        return joined

    def _pair(self, p: Tensor, labels: Sequence[str], since: int) -> Blend:
        """How two states are joined."""
        if self.blend is None or self.blend[0] is not p:
            blend = Blend(
                lambda values: self.comparators.mix(p.reshape(p.shape + (1,) * (_depth(values) - 1)), *values),
                lambda: (p, self.complement(p)),
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
            mean = self.complement(p)
        else:
            start, end = self.constant(b), self.constant(a)
            mean = self.comparators.mix(p, end, start) if self.guarded else torch.lerp(start, end, p)
        if not self.typed:
            return mean
        return self._made(_model(a, b), mean)

    def _made(self, model: str, mean: Tensor) -> Number:
        """The mean of numbers as what they are: answers, ints or others."""
        return Answer(self, mean) if model == "answer" else Number(self, mean, model == "whole")

    def join_values(
        self, masses: Sequence[Mass], rows: Sequence[Sequence[Any]], labels: Sequence[str], since: int = -1
    ) -> list[Any]:
        """Join any number of states by their masses."""
        weights = torch.stack([self.column(1.0 if m is None else m) for m in masses])
        if self.settings.hard:
            weights = torch.nn.functional.one_hot(weights.argmax(0), len(weights)).T.to(weights.dtype)
        pending: list[list[Tensor]] = []

        def combine(values: list[Any]) -> Any:
            if any(isinstance(v, Tensor) and v.ndim > 1 for v in values):
                return self.comparators.average(weights, torch.stack(self.uniform(values)))
            if not any(isinstance(v, Tensor) for v in values):
                plain = [float(v) for v in values]
                if not all(map(math.isfinite, plain)):
                    self.guard()
                numbers = torch.tensor(plain, dtype=weights.dtype, device=weights.device)
                return self.comparators.average(weights, numbers[:, None].expand_as(weights))
            pending.append([self.column(v) for v in values])
            return Mark(str(len(pending) - 1))

        blend = Blend(combine, lambda: weights.unbind(0), since, labels)
        joined = [self._join([row[i] for row in rows], label, blend) for i, label in enumerate(labels)]
        if not pending:
            return joined
        # All at once: (states, variables, batch).
        flat = self.uniform([values[i] for i in range(len(masses)) for values in pending])
        stacked = torch.stack(flat).unflatten(0, (len(masses), len(pending)))
        filled = self.comparators.average(weights[:, None], stacked).unbind(0)
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

    # One value ---------------------------------------------------------------------------------------------------

    def _join(self, values: list[Any], label: str, blend: Blend) -> Any:
        first = values[0]
        kinds = set(map(type, values))
        if kinds == {Number} or kinds == {Tensor}:
            if all(v is first for v in values):
                return first
            if kinds == {Tensor}:
                return blend.combine(values)
            return Number(self, blend.combine([v.tensor for v in values]), all(v.whole for v in values))
        if all(v is first for v in values) and type(first) is not tuple:
            return first.original if type(first) is Held else first
        if any(type(v) is Held for v in values):
            return self._join_held(values, label, blend)
        if any(v is MISSING or type(v) is Maybe for v in values):
            return self._join_missing(values, label, blend)
        if any(isinstance(v, Undefined) for v in values):
            return next((v for v in values if isinstance(v, Undefined) and v.error), Undefined(label))
        if all(isinstance(v, (*_NUMBERS, Number, Categorical, Tensor)) for v in values):
            return self._join_numbers(values, blend)
        if any(isinstance(v, Choice) for v in values):
            if all(isinstance(v, Choice) and v.same(first) for v in values):
                return first
            return self._chosen(values, label, blend)
        return self._join_collections(values, label, blend)

    def _join_held(self, values: list[Any], label: str, blend: Blend) -> Any:
        originals = [v.original if type(v) is Held else v for v in values]
        if all(o is originals[0] for o in originals):
            return originals[0]
        key = tuple(id(o) for o in originals)
        if key not in blend.merged:
            if self._shared(originals, blend):
                result = self._chosen(originals, label, blend)
            else:
                result = self._join([v.content if type(v) is Held else v for v in values], label, blend)
            blend.merged[key] = (result, originals)
        return blend.merged[key][0]

    def _shared(self, originals: list[Any], blend: Blend) -> bool:
        """Whether one of some collections has another name, so that what is written to it later is seen there."""
        first = originals[0]
        if isinstance(first, Array) and all(isinstance(o, Array) and o.same(first) for o in originals):
            return False
        before = [o.store if isinstance(o, Array) else o for o in originals if mutable(o) and birth(o) <= blend.since]
        return bool(before) and named_elsewhere(before, blend.labels)

    def _chosen(self, originals: list[Any], label: str, blend: Blend) -> Any:
        """One of several collections that were there before the paths parted."""
        families = {_family(o) for o in originals}
        if len(families) != 1 or None in families:
            raise self._unmixable(label, originals)
        return Choice(self, list(zip(blend.weights(), originals, strict=True)))

    def _join_missing(self, values: list[Any], label: str, blend: Blend) -> Any:
        """The entry of a dict at a key that not all paths have."""
        if all(v is MISSING for v in values):
            return MISSING
        weights = blend.weights()
        there, shares = [], []
        for value, weight in zip(values, weights, strict=True):
            if value is not MISSING:
                there.append(value.value if type(value) is Maybe else value)
                shares.append(weight * value.presence if type(value) is Maybe else weight)
        presence = self.column(sum(shares[1:], shares[0]))
        masses, _ = self.normalised(shares)
        (joined,) = self.join_values(masses, [[v] for v in there], [label], blend.since)
        return Maybe(joined, presence)

    def _join_numbers(self, values: list[Any], blend: Blend) -> Any:
        first = values[0]
        plain = all(isinstance(v, _NUMBERS) for v in values)
        if plain and all(v == first for v in values):
            return first
        if all(isinstance(v, Categorical) and v.weights.shape == first.weights.shape for v in values):
            return Categorical(self, blend.combine([v.weights for v in values]))
        combined = blend.combine([number(v) for v in values])
        if not self.typed or (
            any(type(v) is Tensor for v in values) and not any(isinstance(v, Number) for v in values)
        ):
            return combined
        return self._made(_common(values), combined)

    def _join_collections(self, values: list[Any], label: str, blend: Blend) -> Any:
        first = values[0]
        if any(isinstance(v, (Array, np.ndarray)) for v in values) and all(
            isinstance(v, (Array, list, tuple, np.ndarray)) for v in values
        ):
            arrays = [self.array(v) for v in values]
            if any(a.shape != arrays[0].shape for a in arrays):
                shapes = " and ".join(str(tuple(a.shape)) for a in arrays)
                raise self.error(ValueError, f"{label!r} has different shapes on joining paths: {shapes}")
            if isinstance(first, Array) and all(isinstance(v, Array) and v.same(first) for v in values):
                return first
            return Array.of(self, blend.combine([a.tensor() for a in arrays]))
        family = _family(first)
        if family is None or any(_family(v) != family for v in values):
            return self._join_others(values, label, blend)
        if family == "dict":
            return self._join_dicts(values, label, blend)
        if family == "set":
            if all(v == first for v in values):
                return first
            raise self.error(ValueError, f"{label} has different elements on joining paths, and a set can't be mixed")
        broken = next((t for t in map(torn, values) if t is not None), None)
        lengths = {len(v) for v in values}
        if broken is not None or len(lengths) > 1:
            return self._torn(values, label, broken)
        entries = [self._join([v[i] for v in values], label, blend) for i in range(len(first))]
        return self._like(first, entries)

    def _torn(self, values: list[Any], label: str, broken: Torn | None) -> Any:
        if broken is None:
            lengths = " and ".join(str(n) for n in sorted({len(v) for v in values}))
            error = self.error(
                ValueError,
                f"{label} has different lengths on joining paths: {lengths}; give it one length on both, with a "
                "number that does nothing",
            )
            broken = Torn(label, error)
        # A list that nobody looks at any more does no harm.
        return broken if isinstance(values[0], tuple) else self._like(values[0], [broken])

    def _join_dicts(self, values: list[Any], label: str, blend: Blend) -> Any:
        keys = list(dict.fromkeys(k for v in values for k in v))
        entries = {k: self._join([v.get(k, MISSING) for v in values], label, blend) for k in keys}
        if type(values[0]) in (dict, Dict):
            return Dict(self, entries)
        joined = values[0].copy()
        joined.clear()
        for k, value in entries.items():
            dict.__setitem__(joined, k, value)
        return joined

    def _like(self, model: Any, entries: list[Any]) -> Any:
        if isinstance(model, tuple):
            return type(model)(*entries) if hasattr(model, "_fields") else tuple(entries)
        if isinstance(model, collections.deque):
            return collections.deque(entries, model.maxlen)
        return List(self, entries)

    def _join_others(self, values: list[Any], label: str, blend: Blend) -> Any:
        first = values[0]
        kind = type(first)
        if dataclasses.is_dataclass(first) and not isinstance(first, type) and all(type(v) is kind for v in values):
            joined = object.__new__(kind)
            for field in dataclasses.fields(first):
                value = self._join([getattr(v, field.name) for v in values], f"{label}.{field.name}", blend)
                object.__setattr__(joined, field.name, value)
            self.merged_objects[id(joined)] = joined
            return joined
        try:
            equal = all(type(v) is kind and bool(v == first) for v in values)
        except Exception:
            equal = False
        if equal:
            return first
        raise self._unmixable(label, values)

    def _unmixable(self, label: str, values: Sequence[Any]) -> Exception:
        shown = " and ".join(repr(v)[:40] for v in values[:3])
        return self.error(
            TypeError, f"{label!r} is {shown} on joining paths; only numbers, and collections of them, can be mixed"
        )


def _family(value: Any) -> str | None:
    if isinstance(value, Choice):
        return _family(value.options[0][1])
    if isinstance(value, Array):
        return "array"
    if isinstance(value, tuple):
        return f"tuple {type(value).__name__} {len(value)}"
    families = {list: "list", collections.deque: "deque", dict: "dict", set: "set"}
    return next((name for kind, name in families.items() if isinstance(value, kind)), None)


def _model(a: Any, b: Any) -> str:
    """What the mean of two numbers is: an answer, a whole number, or another number."""
    kind_a, kind_b = type(a), type(b)
    if kind_a is Number:
        return "whole" if a.whole and is_whole(b) else "number"
    if kind_b is Number:
        return "whole" if b.whole and is_whole(a) else "number"
    if (kind_a is Answer or a is True or a is False) and (kind_b is Answer or b is True or b is False):
        return "answer"
    return _common([a, b])


def _common(values: Sequence[Any]) -> str:
    """What the mean of numbers is."""
    if all(type(v) is Answer or (type(v) in (bool, int) and v in (0, 1)) for v in values):
        return "answer"
    return "whole" if all(is_whole(v) for v in values) else "number"


def _depth(values: Sequence[Any]) -> int:
    return max((v.ndim for v in values if isinstance(v, Tensor)), default=1) or 1
