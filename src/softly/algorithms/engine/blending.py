"""How the values of joining paths become one."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from softly.algorithms.engine.arrays import Array, Categorical, Undefined, number
from softly.algorithms.engine.containers import Choice, Dict, List, Maybe, Torn, birth, torn
from softly.algorithms.engine.frames import named_elsewhere
from softly.algorithms.engine.journals import MISSING, Held, mutable
from softly.algorithms.engine.numbers import Answer, Number, is_whole
from softly.algorithms.engine.protocol import Run

_NUMBERS = (bool, int, float)


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


class Blending:
    """The values that join in one run, one by one."""

    def __init__(self, engine: Run) -> None:
        self.engine = engine

    def join(self, values: list[Any], label: str, blend: Blend) -> Any:
        first = values[0]
        kinds = set(map(type, values))
        if kinds == {Number} or kinds == {Tensor}:
            if all(v is first for v in values):
                return first
            if kinds == {Tensor}:
                return blend.combine(values)
            return Number(self.engine, blend.combine([v.tensor for v in values]), all(v.whole for v in values))
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
                result = self.join([v.content if type(v) is Held else v for v in values], label, blend)
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
        return Choice(self.engine, list(zip(blend.weights(), originals, strict=True)))

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
        presence = self.engine.column(sum(shares[1:], shares[0]))
        masses, _ = self.engine.joins.normalised(shares)
        (joined,) = self.engine.joins.join_values(masses, [[v] for v in there], [label], blend.since)
        return Maybe(joined, presence)

    def _join_numbers(self, values: list[Any], blend: Blend) -> Any:
        first = values[0]
        plain = all(isinstance(v, _NUMBERS) for v in values)
        if plain and all(v == first for v in values):
            return first
        if all(isinstance(v, Categorical) and v.weights.shape == first.weights.shape for v in values):
            return Categorical(self.engine, blend.combine([v.weights for v in values]))
        combined = blend.combine([number(v) for v in values])
        if not self.engine.typed or (
            any(type(v) is Tensor for v in values) and not any(isinstance(v, Number) for v in values)
        ):
            return combined
        return self.made(common(values), combined)

    def made(self, model: str, mean: Tensor) -> Number:
        """The mean of numbers as what they are: answers, ints or others."""
        return Answer(self.engine, mean) if model == "answer" else Number(self.engine, mean, model == "whole")

    def _join_collections(self, values: list[Any], label: str, blend: Blend) -> Any:
        first = values[0]
        if any(isinstance(v, (Array, np.ndarray)) for v in values) and all(
            isinstance(v, (Array, list, tuple, np.ndarray)) for v in values
        ):
            arrays = [self.engine.array(v) for v in values]
            if any(a.shape != arrays[0].shape for a in arrays):
                shapes = " and ".join(str(tuple(a.shape)) for a in arrays)
                raise self.engine.error(ValueError, f"{label!r} has different shapes on joining paths: {shapes}")
            if isinstance(first, Array) and all(isinstance(v, Array) and v.same(first) for v in values):
                return first
            return Array.of(self.engine, blend.combine([a.tensor() for a in arrays]))
        family = _family(first)
        if family is None or any(_family(v) != family for v in values):
            return self._join_others(values, label, blend)
        if family == "dict":
            return self._join_dicts(values, label, blend)
        if family == "set":
            if all(v == first for v in values):
                return first
            raise self.engine.error(
                ValueError, f"{label} has different elements on joining paths, and a set can't be mixed"
            )
        broken = next((t for t in map(torn, values) if t is not None), None)
        lengths = {len(v) for v in values}
        if broken is not None or len(lengths) > 1:
            return self._torn(values, label, broken)
        entries = [self.join([v[i] for v in values], label, blend) for i in range(len(first))]
        return self._like(first, entries)

    def _torn(self, values: list[Any], label: str, broken: Torn | None) -> Any:
        if broken is None:
            lengths = " and ".join(str(n) for n in sorted({len(v) for v in values}))
            error = self.engine.error(
                ValueError,
                f"{label} has different lengths on joining paths: {lengths}; give it one length on both, with a "
                "number that does nothing",
            )
            broken = Torn(label, error)
        # A list that nobody looks at any more does no harm.
        return broken if isinstance(values[0], tuple) else self._like(values[0], [broken])

    def _join_dicts(self, values: list[Any], label: str, blend: Blend) -> Any:
        keys = list(dict.fromkeys(k for v in values for k in v))
        entries = {k: self.join([v.get(k, MISSING) for v in values], label, blend) for k in keys}
        if type(values[0]) in (dict, Dict):
            return Dict(self.engine, entries)
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
        return List(self.engine, entries)

    def _join_others(self, values: list[Any], label: str, blend: Blend) -> Any:
        first = values[0]
        kind = type(first)
        if dataclasses.is_dataclass(first) and not isinstance(first, type) and all(type(v) is kind for v in values):
            joined = object.__new__(kind)
            for field in dataclasses.fields(first):
                value = self.join([getattr(v, field.name) for v in values], f"{label}.{field.name}", blend)
                object.__setattr__(joined, field.name, value)
            self.engine.merged_objects[id(joined)] = joined
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
        return self.engine.error(
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


def common(values: Sequence[Any]) -> str:
    """What the mean of numbers is."""
    if all(type(v) is Answer or (type(v) in (bool, int) and v in (0, 1)) for v in values):
        return "answer"
    return "whole" if all(is_whole(v) for v in values) else "number"
