"""Judges relaxed functions of others by the plain function on each example of a batch."""

import contextlib
import copy
import importlib
import importlib.metadata
import math
import signal
import warnings
from dataclasses import dataclass

import torch
from torch.utils import _pytree

import softly

from .public import ALGORITHMS

BATCH, STEEPNESS, SECONDS = 4, 1e6, 20


@dataclass
class Verdict:
    """What became of a function: right, refused, wrong, raw (an error that isn't softly's), or slow."""

    kind: str
    reason: str = ""
    gradient: str = ""


def draw(letter, generator, first):
    """An argument as a tree of tensors (batch,)."""

    def uniform(*shape, low=-3.0, high=3.0):
        return low + (high - low) * torch.rand(BATCH, *shape, dtype=torch.float64, generator=generator)

    def whole(*shape, low=2, high=31):
        return torch.randint(low, high, (BATCH, *shape), generator=generator)

    def distinct(n, high=20):
        rows = [torch.randperm(high, generator=generator)[:n] for _ in range(BATCH)]
        return torch.stack(rows)

    def rows(tensor):
        return [list(part.unbind(1)) for part in tensor.unbind(1)]

    match letter:
        case "L" | "L4" | "L8":
            return list(uniform(int(letter[1:] or 6)).unbind(1))
        case "S":
            return list(uniform(6).sort(1).values.unbind(1))
        case "R" | "X":
            ordered = (uniform(6) if letter == "R" else distinct(6)).sort(1).values
            turned = torch.stack([row.roll(int(k)) for row, k in zip(ordered, (1, 2, 3, 4), strict=True)])
            return list(turned.unbind(1))
        case "W":
            return list(distinct(6).unbind(1))
        case "O":
            return list(distinct(6).sort(1).values.unbind(1))
        case "D":
            return list(whole(6, low=1, high=10).unbind(1))
        case "B":
            return list(whole(6, low=0, high=2).unbind(1))
        case "F" | "F+5":
            return uniform(low=1.0, high=5.0) + float(letter[2:] or 0)
        case "N":
            return whole()
        case "Y":
            return whole(low=3, high=7)
        case "Z":
            return rows(whole(3, 3, low=0, high=2))
        case "N3":
            return list(whole(3, low=0, high=3).unbind(1))
        case "E" | "E3":
            entries = torch.stack(first, 1)
            return entries[torch.arange(BATCH), torch.tensor([0, 2, 3, 5])]
        case "M":
            return rows(uniform(3, 3, low=0.1))
        case "T":
            return rows(uniform(9).sort(1).values.reshape(BATCH, 3, 3))
        case "C":
            half = uniform(3, 3)
            return rows(half @ half.mT + 2 * torch.eye(3, dtype=torch.float64))
        case "Q":
            ways = uniform(4, 4, low=0.5)
            ways[:, 0, 3] = ways[:, 2, 1] = math.inf
            ways[:, range(4), range(4)] = 0.0
            return rows(ways)
        case "A":
            return rows(uniform(3, 3, low=0.5, high=4.0).triu(1))
        case "P":
            return [tuple(pair.unbind(1)) for pair in uniform(4, 2).unbind(1)]
        case "I":
            ends = uniform(6).sort(1).values.reshape(BATCH, 3, 2)
            return rows(ends)
        case "V":
            return [(i, v) for i, v in enumerate(uniform(3).unbind(1))]
    raise ValueError(letter)


def arguments(name):
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    specification = ALGORITHMS[name]
    found = []
    for part in specification:
        if part in ("E", "E3"):
            found.append(part)
            continue
        relaxed = isinstance(part, str) and part != "?"
        found.append(draw(part, generator, None) if relaxed else part)
    sequence = next((f for f in found if isinstance(f, list)), None)
    return tuple(draw(f, generator, sequence) if f in ("E", "E3") else f for f in found)


def example(tree, i):
    return _pytree.tree_map(lambda v: v[i].item() if isinstance(v, torch.Tensor) else copy.copy(v), tree)


def find(name):
    """A function of PyPI's package, which bears the name of the folder of these tests."""
    package = importlib.import_module("algorithms")
    root = str(importlib.metadata.distribution("algorithms").locate_file("algorithms"))
    if root not in package.__path__:
        package.__path__.append(root)
    module, function = name.rsplit(".", 1)
    return getattr(importlib.import_module(f"algorithms.{module}"), function)


class SlowError(Exception):
    pass


@contextlib.contextmanager
def limit(seconds):
    def stop(*_):
        raise SlowError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def doubles():
    """Whole numbers become what Python's floats are."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def judge(name):
    """The verdict on one function."""
    function, given = find(name), arguments(name)
    expected = []
    for i in range(BATCH):
        plain = example(given, i)
        expected.append(function(*plain))
    try:
        with limit(SECONDS), warnings.catch_warnings(), doubles():
            warnings.simplefilter("ignore")
            relaxed = softly.relax(function, steepness=STEEPNESS, max_iterations=200)
            result = relaxed(*given)
    except SlowError:
        return Verdict("slow")
    except Exception as error:
        kind = "refused" if refused(error) else "raw"
        return Verdict(kind, f"{type(error).__name__}: {error}".splitlines()[0])
    if not agrees(result, expected):
        return Verdict("wrong", f"{shown(result)} instead of {expected}"[:400])
    return Verdict("right", gradient=slope(function, given))


def refused(error):
    """Whether an error is softly's own, and not somebody else's that was only told where it happened."""
    own = lambda e: str(e).strip("'\"").startswith("softly.")  # noqa: E731
    cause = error.__cause__
    reworded = cause is not None and not own(cause) and str(cause).rstrip(".") in str(error)
    return own(error) and not reworded


def shown(result):
    return _pytree.tree_map(lambda v: v.detach().tolist() if isinstance(v, torch.Tensor) else v, result)


def agrees(result, expected):
    for i, one in enumerate(expected):
        mine = _pytree.tree_map(lambda v, i=i: v[i].item() if isinstance(v, torch.Tensor) else v, result)
        a, b = _pytree.tree_leaves(mine), _pytree.tree_leaves(one)
        if len(a) != len(b):
            return False
        for x, y in zip(a, b, strict=True):
            if isinstance(y, (bool, int, float)):
                if not isinstance(x, (bool, int, float)) or not math.isclose(x, y, rel_tol=1e-4, abs_tol=1e-4):
                    return False
            elif x != y:
                return False
    return True


def slope(function, given):
    """Whether the gradient at a moderate steepness is what finite differences say: "right", "wrong", or "none"."""
    relaxed = softly.relax(function, steepness=5.0, max_iterations=30, tolerance=0.0, exact_gradient=True)
    tensors = [leaf for leaf in _pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)]
    tensors = [t for t in tensors if t.is_floating_point() and bool(t.isfinite().all())]
    if not tensors:
        return "none"
    ids = {id(t): i for i, t in enumerate(tensors)}
    generator = torch.Generator().manual_seed(1)

    def total(values):
        filled = _pytree.tree_map(lambda v: values[ids[id(v)]] if id(v) in ids else v, given)
        leaves = [v for v in _pytree.tree_leaves(relaxed(*filled)) if isinstance(v, torch.Tensor)]
        weights = torch.Generator().manual_seed(2)
        return sum((v * torch.rand(v.shape, dtype=torch.float64, generator=weights)).sum() for v in leaves)

    try:
        with limit(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            leaves = [t.clone().requires_grad_() for t in tensors]
            value = total(leaves)
            if not isinstance(value, torch.Tensor) or not value.requires_grad:
                return "none"
            gradient = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
            way = [torch.randn(t.shape, dtype=torch.float64, generator=generator) for t in tensors]
            step = 1e-6
            up, down = (total([t + s * step * w for t, w in zip(tensors, way, strict=True)]) for s in (1, -1))
            measured = float((up - down) / (2 * step))
            found = sum(float((g * w).sum()) for g, w in zip(gradient, way, strict=True))
    except SlowError:
        return "slow"
    except Exception as error:
        return "refused" if refused(error) else f"raw {type(error).__name__}: {error}"
    return "right" if math.isclose(measured, found, rel_tol=1e-3, abs_tol=1e-4) else f"wrong: {found} for {measured}"
