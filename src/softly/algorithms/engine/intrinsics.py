"""Python's own functions on relaxed values; each takes the run that calls it first."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softly import minmax
from softly.algorithms.engine.arrays import RELAXED, Array, Categorical, number
from softly.algorithms.engine.containers import Choice, Dict, List, intact, relaxed
from softly.algorithms.engine.numbers import Answer, Number, is_whole
from softly.algorithms.engine.protocol import Run


def _entries(rt: Run, args: tuple[Any, ...]) -> list[Any]:
    return rt.access.entries(args[0]) if len(args) == 1 else list(args)


def _extreme(sign: int) -> Callable[..., Any]:
    plain: Any = max if sign > 0 else min

    def function(rt: Run, *args: Any, key: Any = None, **kwargs: Any) -> Any:
        if set(kwargs) - {"default"}:
            raise TypeError(f"{plain.__name__}() got an unexpected keyword argument {next(iter(kwargs))!r}")
        values = _entries(rt, args)
        if not values:
            return plain(values, **kwargs)
        if len(values) == 1:
            return values[0]
        keys = values if key is None else [rt.call(key, v) for v in values]
        steepness = rt.steepness if sign > 0 else rt.downhill
        if key is None and all(type(k) is Number and not k.whole for k in keys):
            return Number(rt, rt.comparators.extreme([k.tensor for k in keys], sign, steepness))
        if not relaxed(keys):
            return plain(zip(keys, range(len(keys)), values, strict=True), key=lambda t: t[0])[2]
        if any(isinstance(k, (Array, Choice)) for k in keys):
            raise rt.error(TypeError, f"{plain.__name__}() compares numbers, not arrays")
        if any(isinstance(k, (tuple, list)) for k in keys):
            return _by_comparison(rt, values, keys, sign)
        tensors = [number(k) for k in keys]
        for t in tensors:
            if type(t) is float:
                rt.constant(t)  # which notices infinities
        if key is None:
            return Number(rt, rt.comparators.extreme(tensors, sign, steepness), all(map(is_whole, keys)))
        columns = torch.stack(rt.columns(tensors), -1)
        weights = rt.comparators.largest(columns, steepness)
        rows = [[rt.journals.held(v)] for v in values]
        (result,) = rt.joins.join_values(list(weights.unbind(-1)), rows, (f"{plain.__name__}()",), rt.serial)
        return result

    return function


def _by_comparison(rt: Run, values: list[Any], keys: list[Any], sign: int) -> Any:
    best, best_key = values[0], keys[0]
    for value, k in zip(values[1:], keys[1:], strict=True):
        better = rt.conditions.truth(rt.conditions.compare(">" if sign > 0 else "<", k, best_key))
        if isinstance(better, bool):
            best, best_key = (value, k) if better else (best, best_key)
        else:
            yes, no = ([rt.journals.held(v) for v in pair] for pair in ((value, k), (best, best_key)))
            best, best_key = rt.joins.mix(rt.column(better.tensor), yes, no, ["an extreme"] * 2, rt.serial)
    return best


def _abs(rt: Run, x: Any) -> Any:
    if isinstance(x, (*RELAXED, Choice)):
        result = rt.elementwise(lambda t: rt.comparators.absolute(t, rt.steepness), x)
        return Number(rt, result.tensor, is_whole(x)) if isinstance(result, Number) else result
    return abs(x)


def relaxed_sorted(rt: Run, values: Any, *, key: Any = None, reverse: bool = False) -> Any:
    """``sorted``: neighbours are swapped with the probability of their being in the wrong order."""
    entries = list(rt.access.iterate(values))
    keys = entries if key is None else [rt.call(key, v) for v in entries]
    if not relaxed(keys):
        order = sorted(range(len(entries)), key=keys.__getitem__, reverse=reverse)
        return rt.made_list([entries[i] for i in order])
    if any(not isinstance(k, (Number, Categorical, int, float)) for k in keys):
        return _sorted_sequences(rt, entries, keys, reverse)
    x = torch.stack(rt.columns(keys), 1)
    n = x.shape[1]
    if key is not None:
        return _sorted_by(rt, entries, x, reverse)
    if rt.settings.hard:
        x = x.sort(1).values
    else:
        for layer in range(n):
            start, stop = layer % 2, n - (n - layer % 2) % 2
            if stop - start < 2:
                continue
            a, b = x[:, start:stop].unflatten(1, (-1, 2)).unbind(2)
            p = rt.comparators.compare(">", a, b, rt.steepness)
            pairs = torch.stack((rt.comparators.mix(p, b, a), rt.comparators.mix(p, a, b)), 2).flatten(1)
            x = torch.cat((x[:, :start], pairs, x[:, stop:]), 1)
    result = [rt.number(t) for t in x.unbind(1)]
    return rt.made_list(result[::-1] if reverse else result)


def _sorted_by(rt: Run, entries: list[Any], keys: Tensor, reverse: bool) -> Any:
    """Sorted by keys (batch, n): the rows of the relaxed permutation weigh the entries."""
    n = keys.shape[1]
    rows = torch.eye(n, dtype=keys.dtype, device=keys.device).expand(keys.shape[0], n, n).unbind(1)
    ranked, columns = list(rows), list(keys.unbind(1))
    for layer in range(n):
        for i in range(layer % 2, n - 1, 2):
            a, b = columns[i], columns[i + 1]
            p = rt.comparators.compare("<" if reverse else ">", a, b, rt.steepness)
            columns[i], columns[i + 1] = rt.comparators.mix(p, b, a), rt.comparators.mix(p, a, b)
            w, u, v = p.unsqueeze(1), ranked[i], ranked[i + 1]
            ranked[i], ranked[i + 1] = rt.comparators.mix(w, v, u), rt.comparators.mix(w, u, v)
    held = [[rt.journals.held(v)] for v in entries]
    return rt.made_list(
        [rt.joins.join_values(list(row.unbind(1)), held, ("sorted()",), rt.serial)[0] for row in ranked]
    )


def _sorted_sequences(rt: Run, entries: list[Any], keys: list[Any], reverse: bool) -> Any:
    n = len(entries)
    for layer in range(n):
        for i in range(layer % 2, n - 1, 2):
            swap = rt.conditions.truth(rt.conditions.compare("<" if reverse else ">", keys[i], keys[i + 1]))
            if isinstance(swap, bool):
                if swap:
                    entries[i : i + 2], keys[i : i + 2] = entries[i : i + 2][::-1], keys[i : i + 2][::-1]
                continue
            p = rt.column(swap.tensor)
            before = [rt.journals.held(v) for v in (*entries[i : i + 2], *keys[i : i + 2])]
            after = [*before[:2][::-1], *before[2:][::-1]]
            mixed = rt.joins.mix(p, after, before, ["sorted()"] * 4, rt.serial)
            entries[i : i + 2], keys[i : i + 2] = mixed[:2], mixed[2:]
    return rt.made_list(entries)


def _sum(rt: Run, values: Any, start: Any = 0) -> Any:
    if isinstance(values, Array) and values.ndim == 1:
        return rt.number(values.tensor().sum(1)) + start
    for value in rt.access.entries(values):
        start = start + value
    return start


def _over(name: str) -> Callable[..., Any]:
    def function(rt: Run, values: Any) -> Any:
        answers = [number(rt.conditions.truth(v)) for v in rt.access.iterate(values)]
        result = rt.comparators.all(answers) if name == "all" else rt.comparators.any(answers)
        return Answer(rt, result) if isinstance(result, Tensor) else result

    return function


def _hard_only(plain: Any, advice: str) -> Callable[..., Any]:
    def function(rt: Run, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(a, (*RELAXED, Choice)) for a in args):
            raise rt.error(TypeError, f"{plain.__name__}() of a relaxed number; {advice}")
        if any(relaxed(a) for a in args):
            raise rt.error(TypeError, f"{plain.__name__}() of what holds relaxed values; {advice}")
        return plain(*args, **kwargs)

    return function


def _float(rt: Run, *args: Any) -> Any:
    if args and isinstance(args[0], RELAXED):
        value = args[0]
        return Number(rt, rt.column(value)) if not isinstance(value, Array) else rt.entry(rt.cell(value))
    return float(*args)


def _int(rt: Run, *args: Any, **kwargs: Any) -> Any:
    if args and isinstance(args[0], RELAXED):
        return rt.rounding.trunc(args[0])
    return int(*args, **kwargs)


def _round(rt: Run, value: Any, digits: Any = None) -> Any:
    if isinstance(value, RELAXED):
        return rt.rounding.round(value, digits)
    return round(value) if digits is None else round(value, digits)


def _bool(rt: Run, value: Any = False) -> Any:
    return rt.conditions.truth(value)


def _len(rt: Run, value: Any) -> Any:
    if isinstance(value, Choice):
        return rt.control.each(value, lambda option: _len(rt, option))
    own = getattr(type(value), "__len__", None)
    if rt.calls.lowerable(own):
        return rt.call(own, value)
    return len(intact(value))


def _list(rt: Run, values: Any = ()) -> Any:
    return rt.made_list(rt.access.entries(values))


def _tuple(rt: Run, values: Any = ()) -> Any:
    return tuple(rt.access.entries(values))


def _dict(rt: Run, *args: Any, **kwargs: Any) -> Any:
    entries = [
        intact(a) if isinstance(a, dict) else [tuple(rt.access.iterate(p)) for p in rt.access.iterate(a)] for a in args
    ]
    return rt.made_dict(dict(*entries, **kwargs))


def _set(plain: Any) -> Callable[..., Any]:
    return lambda rt, values=(): plain(rt.access.iterate(values))


def _enumerate(rt: Run, values: Any, start: int = 0) -> Iterator[Any]:
    return enumerate(rt.access.iterate(values), start)


def _zip(rt: Run, *values: Any, strict: bool = False) -> Iterator[Any]:
    return zip(*(rt.access.iterate(v) for v in values), strict=strict)


def _map(rt: Run, function: Any, *values: Any) -> Any:
    return rt.made_list([rt.call(function, *a) for a in zip(*(rt.access.iterate(v) for v in values), strict=False)])


def _filter(rt: Run, function: Any, values: Any) -> Any:
    kept = []
    for value in rt.access.iterate(values):
        answer = rt.conditions.truth(value if function is None else rt.call(function, value))
        if isinstance(answer, RELAXED):
            raise rt.error(TypeError, "filter() by a relaxed value; the length would depend on it: write a sum")
        if answer:
            kept.append(value)
    return rt.made_list(kept)


def _reversed(rt: Run, values: Any) -> Any:
    return rt.made_list(list(rt.access.iterate(values))[::-1])


def _reduce(rt: Run, function: Any, values: Any, *start: Run) -> Any:
    return functools.reduce(lambda a, b: rt.call(function, a, b), rt.access.iterate(values), *start)


def _accumulate(rt: Run, values: Any, function: Any = None, *, initial: Any = None) -> Any:
    entries = list(rt.access.iterate(values))
    step = (lambda a, b: a + b) if function is None else (lambda a, b: rt.call(function, a, b))
    return rt.made_list(itertools.accumulate(entries, step, initial=initial))


def _next(rt: Run, iterator: Any, *default: Any) -> Any:
    if rt.control.uncertain:
        raise rt.error(TypeError, "next() where it depends on a relaxed value; use an index")
    return next(iterator, *default)


def _isinstance(rt: Run, value: Any, kinds: Any) -> bool:
    return any(issubclass(k, kinds) for k in _standing_for(value)) or isinstance(value, kinds)


def _standing_for(value: Any) -> tuple[type, ...]:
    """The types that a relaxed value stands for."""
    if isinstance(value, Answer):
        return (bool,)
    if isinstance(value, Number):
        return (int,) if value.whole else (float,)
    if isinstance(value, Categorical):
        return (int,)
    if isinstance(value, Array):
        return (list, Tensor, np.ndarray)
    if isinstance(value, Choice):
        return _standing_for(value.options[0][1])
    return (list,) if isinstance(value, List) else (dict,) if isinstance(value, Dict) else (type(value),)


def _type(rt: Run, value: Any, *more: Any) -> Any:
    if isinstance(value, Array):
        raise rt.error(TypeError, "type() of a relaxed array; use isinstance()")
    return _standing_for(value)[0] if not more else type(value, *more)


def _print(rt: Run, *args: Any, **kwargs: Any) -> None:
    described, rt.describing = rt.describing, True
    shown = [str(a.tensor().tolist()) if isinstance(a, Array) else str(a) for a in args]
    rt.describing = described
    kwargs.setdefault("file", sys.stdout)
    kwargs["file"].write(kwargs.get("sep", " ").join(shown) + kwargs.get("end", "\n"))


def _copy(rt: Run, value: Any) -> Any:
    if isinstance(value, (Array, list, dict, deque)):
        return rt.method(value, "copy")
    return value if isinstance(value, RELAXED) else copy.copy(value)


def _deepcopy(rt: Run, value: Any, memo: Any = None) -> Any:
    return rt.frozen(rt.blended(value) if isinstance(value, Choice) else value)


def _pow(rt: Run, base: Any, exponent: Any, modulus: Any = None) -> Any:
    result = base**exponent
    return result if modulus is None else pow(base, exponent, modulus) if not relaxed(result) else result % modulus


def _getattr(rt: Run, value: Any, name: str, *default: Any) -> Any:
    try:
        return rt.attribute(value, name)
    except AttributeError:
        if default:
            return default[0]
        raise


def _text(plain: Any) -> Callable[..., Any]:
    def function(rt: Run, *args: Any, **kwargs: Any) -> Any:
        if relaxed(args) and not rt.describing:
            raise rt.error(TypeError, f"{plain.__name__}() of a relaxed value; return the value, or print it")
        return plain(*args, **kwargs)

    return function


def _categorical_equal(rt: Run, p: Any, q: Any, *, similarity: str = "cosine", dim: int = -1) -> Any:
    numbers = [rt.array(v) if isinstance(v, (list, tuple)) else v for v in (p, q)]
    if similarity not in ("cosine", "inner") or any(not isinstance(v, Array) or v.ndim != 1 for v in numbers):
        return rt.apply(minmax.categorical_equal, (p, q), {"similarity": similarity, "dim": dim})
    return Answer(rt, rt.same_category(numbers[0].tensor(), numbers[1].tensor(), similarity))


def _divmod(rt: Run, a: Any, b: Any) -> Any:
    return (a // b, a % b) if relaxed((a, b)) else divmod(a, b)


def _super(rt: Run, *args: Any) -> Any:
    if not args:
        raise rt.error(TypeError, "super() without arguments; write super(Class, self)")
    return super(*args)


INTRINSICS: dict[Any, Callable[..., Any]] = {
    min: _extreme(-1),
    max: _extreme(1),
    abs: _abs,
    sorted: relaxed_sorted,
    sum: _sum,
    any: _over("any"),
    all: _over("all"),
    range: _hard_only(range, "a loop bound must be a hard int, as len() and shape are"),
    chr: _hard_only(chr, "text has no derivative"),
    hash: _hard_only(hash, "search a list with == instead"),
    id: _hard_only(id, "compare values"),
    bytes: _hard_only(bytes, "text has no derivative"),
    bytearray: _hard_only(bytearray, "use a list"),
    bin: _hard_only(bin, "bits have no derivative"),
    complex: _hard_only(complex, "keep real and imaginary part apart"),
    int: _int,
    round: _round,
    float: _float,
    bool: _bool,
    len: _len,
    list: _list,
    tuple: _tuple,
    dict: _dict,
    set: _set(set),
    frozenset: _set(frozenset),
    enumerate: _enumerate,
    zip: _zip,
    map: _map,
    filter: _filter,
    reversed: _reversed,
    iter: lambda rt, value: iter(rt.access.iterate(value)),
    next: _next,
    isinstance: _isinstance,
    type: _type,
    print: _print,
    pow: _pow,
    getattr: _getattr,
    setattr: lambda rt, value, name, new: rt.setattr(value, name, new),
    callable: lambda rt, value: callable(value) and not isinstance(value, RELAXED),
    str: _text(str),
    repr: _text(repr),
    format: _text(format),
    divmod: _divmod,
    super: _super,
    functools.reduce: _reduce,
    itertools.accumulate: _accumulate,
    copy.copy: _copy,
    copy.deepcopy: _deepcopy,
    math.fabs: _abs,
    minmax.categorical_equal: _categorical_equal,
}
