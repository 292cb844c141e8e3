"""Python's own functions on relaxed values; each takes the run that calls it first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from softly import minmax
from softly.algorithms.engine.arrays import RELAXED, Array, floor_divide, number, relaxed


def _entries(args: tuple[Any, ...]) -> list[Any]:
    values = list(args[0]) if len(args) == 1 else list(args)
    return [number(v) for v in values]


def _extreme(sign: int) -> Callable[..., Any]:
    plain = max if sign > 0 else min

    def function(rt: Any, *args: Any, **kwargs: Any) -> Any:
        if not relaxed(args):
            return plain(*args, **kwargs)
        if set(kwargs) - {"default"}:
            raise rt.error(TypeError, f"{plain.__name__}() of relaxed values takes no key")
        values = _entries(args)
        if not values:
            return plain(values, **kwargs)
        if any(isinstance(v, Array) for v in values):
            raise rt.error(TypeError, f"{plain.__name__}() compares numbers, not arrays")
        return (
            values[0]
            if len(values) == 1
            else rt.comparators.extreme(values, sign, rt.steepness if sign > 0 else rt.downhill)
        )

    return function


def _abs(rt: Any, x: Any) -> Any:
    if isinstance(x, RELAXED):
        return rt.elementwise(lambda t: rt.comparators.absolute(t, rt.steepness), x)
    return abs(x)


def relaxed_sorted(rt: Any, values: Any, *, key: Any = None, reverse: bool = False) -> Any:
    if not relaxed(values):
        return sorted(values, key=key, reverse=reverse)
    if key is not None:
        raise rt.error(TypeError, "sorted() of relaxed values takes no key")
    columns = [rt.column(v) for v in _entries((values,))]
    x = torch.stack(rt.uniform(columns), 1)
    n = x.shape[1]
    if rt.settings.hard:
        x = x.sort(1).values
    else:
        # Odd-even transposition: neighbours are swapped with the probability of their being in the wrong order.
        for layer in range(n):
            start, stop = layer % 2, n - (n - layer % 2) % 2
            if stop - start < 2:
                continue
            a, b = x[:, start:stop].unflatten(1, (-1, 2)).unbind(2)
            p = rt.comparators.compare(">", a, b, rt.steepness)
            pairs = torch.stack((rt.comparators.mix(p, b, a), rt.comparators.mix(p, a, b)), 2).flatten(1)
            x = torch.cat((x[:, :start], pairs, x[:, stop:]), 1)
    result = list(x.unbind(1))
    return result[::-1] if reverse else result


def _sum(rt: Any, values: Any, start: Any = 0) -> Any:
    if isinstance(values, Array) and values.ndim == 1:
        return values.tensor().sum(1) + start
    for value in values:
        start = start + value
    return start


def _over(name: str) -> Callable[..., Any]:
    def function(rt: Any, values: Any) -> Any:
        answers = [rt.truth(v) for v in values]
        return rt.comparators.all(answers) if name == "all" else rt.comparators.any(answers)

    return function


def _whole(name: str, advice: str) -> Callable[..., Any]:
    plain: Any = {"range": range, "int": int, "round": round}[name]

    def function(rt: Any, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(a, RELAXED) for a in args):
            raise rt.error(TypeError, f"{name}() of a relaxed number; {advice}")
        return plain(*args, **kwargs)

    return function


def _float(rt: Any, *args: Any) -> Any:
    return number(args[0]) if args and isinstance(args[0], RELAXED) else float(*args)


def _bool(rt: Any, value: Any = False) -> Any:
    return rt.truth(value)


def _categorical_equal(rt: Any, p: Any, q: Any, *, similarity: str = "cosine", dim: int = -1) -> Any:
    numbers = [rt.array(v) if isinstance(v, (list, tuple)) else v for v in (p, q)]
    if similarity not in ("cosine", "inner") or any(not isinstance(v, Array) or v.ndim != 1 for v in numbers):
        return rt.apply(minmax.categorical_equal, (p, q), {"similarity": similarity, "dim": dim})
    return rt.same_category(numbers[0].tensor(), numbers[1].tensor(), similarity)


def _divmod(rt: Any, a: Any, b: Any) -> Any:
    return (floor_divide(number(a), number(b)), number(a) % number(b))


INTRINSICS: dict[Any, Callable[..., Any]] = {
    min: _extreme(-1),
    max: _extreme(1),
    abs: _abs,
    sorted: relaxed_sorted,
    sum: _sum,
    any: _over("any"),
    all: _over("all"),
    range: _whole("range", "a loop bound must be a hard int, as len() and shape are"),
    int: _whole("int", "it has no derivative; keep the real number"),
    round: _whole("round", "it has no derivative; keep the real number"),
    float: _float,
    bool: _bool,
    divmod: _divmod,
    math.fabs: _abs,
    minmax.categorical_equal: _categorical_equal,
}
