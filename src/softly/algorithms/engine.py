"""Runs relaxed programs: paths, the probability of each, and the values where paths join.

A program is Python code that asks the engine at every branch which ways to go. Both branches of a relaxed
condition run one after the other, from the same state; what they wrote is kept in a journal, so that joining them
costs only what was touched. A jump (break, continue, return) takes its share of the probability, its mass, out of
the path that it leaves: what follows is for the rest.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from softly.algorithms import indexing
from softly.algorithms.arrays import Array, Categorical, Store, Undefined, number
from softly.algorithms.comparators import Comparators, constant
from softly.distributions import Distribution
from softly.tnorms import TNorm

Names = tuple[Any, ...]
Mass = Any  # of a path: None for 1, DEAD for 0, or a tensor (batch,)


class _Mark:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


DEAD = _Mark("dead")
MISSING = _Mark("missing")
WHOLE = _Mark("whole")


@dataclass(frozen=True)
class Settings:
    """How a program is relaxed; see `softly.relax`."""

    steepness: float | Tensor
    distribution: Distribution
    tnorm: TNorm
    hard: bool = False
    max_iterations: int = 1024
    tolerance: float = 1e-5
    max_paths: int = 4096
    exact_gradient: bool = False
    variables: dict[str, float | Tensor] = field(default_factory=dict)


class Journal(dict[Any, Any]):
    """The first value of everything that was written: (id of container, key) -> (container, key, old)."""

    def undo(self) -> None:
        for container, key, old in self.values():
            _put(container, key, old)


def _read(container: Any, key: Any) -> Any:
    if type(container) is Store:
        return container.unbound()[key]
    if key is WHOLE:
        return container.copy()
    if isinstance(container, dict):
        return container.get(key, MISSING)
    return container[key]


def _put(container: Any, key: Any, value: Any) -> None:
    if key is WHOLE:
        container.clear()
        container.extend(value) if isinstance(container, list) else container.update(value)
    elif value is MISSING:
        container.pop(key, None)
    else:
        container[key] = value


class Held:
    """A collection at the end of a path: the object, and what was in it then, before other paths undo that."""

    __slots__ = ("content", "original")

    def __init__(self, original: Any, content: Any) -> None:
        self.original, self.content = original, content


_COLLECTIONS = (list, tuple, dict, Array)
_NUMBERS = (bool, int, float)


class Region:
    """A stretch of a path; ``mass`` is how much of what began it is still on it."""

    __slots__ = ("mass",)

    def __init__(self) -> None:
        self.mass: Mass = None


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


YES, NO = HardBranch(True), HardBranch(False)


class Branch(Region):
    """Both ways of a relaxed condition: each is run from the state at the beginning, then they are joined."""

    __slots__ = ("engine", "entry", "first", "labels", "p", "way")

    def __init__(self, engine: Engine, p: Tensor, entry: Names, labels: tuple[str, ...]) -> None:
        super().__init__()
        self.engine, self.p, self.entry, self.labels = engine, p, entry, labels
        self.first: Any = None
        self.way = True

    def __iter__(self) -> Iterator[bool]:
        engine = self.engine
        for self.way in (True, False):
            self.mass = None
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
        return engine.join_branches(self.p, self.first, (self.mass, names, written), self.labels)


class Loop(Region):
    """A loop that can be left with some probability, at each iteration or by a jump."""

    __slots__ = ("count", "engine", "exits", "iteration", "labels", "lossy", "skipped")

    def __init__(self, engine: Engine, labels: tuple[str, ...], lossy: bool) -> None:
        super().__init__()
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
        going = condition if self.mass is None else self.mass * condition
        tolerance = engine.settings.tolerance
        over = self.count > engine.settings.max_iterations
        most, least = engine.range(going)
        if over or most <= tolerance:
            if over:
                engine.warn_leftover(going)
            self.finish(names)
            return False
        if least < 1.0 - tolerance:
            self.leave(engine.complement(condition) if self.mass is None else self.mass - going, names)
            self.mass = going
        return True

    def begin(self) -> None:
        """An iteration that can be continued early begins."""
        self.iteration, self.skipped = Region(), []
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
        names, mass = engine.join_exits(exits, names, self.labels, lossy=True)
        self.mass = engine.times(self.mass, mass)
        return names

    def end(self, names: Names) -> Names:
        engine = self.engine
        engine.regions.pop()
        names, mass = engine.join_exits(self.exits, names, self.labels, self.lossy)
        parent = engine.regions[-1]
        parent.mass = engine.times(parent.mass, mass)
        return names


class Call(Region):
    """The activation of a function: its returns, with their masses."""

    __slots__ = ("returns",)

    def __init__(self) -> None:
        super().__init__()
        self.returns: list[tuple[Mass, Any]] = []


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


class Engine:
    """One run of a program over a batch.

    Args:
        settings: How to relax.
        batch: The number of examples.
        static: Let nothing depend on data, as a compiler and function transforms need it.
        guarded: Expect infinities.
    """

    def __init__(
        self, settings: Settings, batch: int, dtype: torch.dtype, device: torch.device, static: bool, guarded: bool
    ) -> None:
        self.batch, self.dtype, self.device, self.static, self.guarded = batch, dtype, device, static, guarded
        self.regions: list[Any] = []
        self.journals: list[Journal] = []
        self.paths: list[bool] | None = None
        self.taken: list[bool] = []
        self.pending: list[list[bool]] = []
        self.warned = False
        self.running: dict[Any, Settings] = {}
        self._units: dict[int, tuple[Tensor, Tensor]] = {}
        self._constants: dict[float, Tensor] = {}
        self.configure(settings)

    def configure(self, settings: Settings) -> None:
        self.settings = settings
        self.comparators = Comparators(settings.distribution, settings.tnorm, settings.hard, self.guarded)
        self.steepen(settings.steepness)

    def steepen(self, steepness: float | Tensor) -> None:
        """Compare with another steepness from now on."""
        # As a tensor: torch takes longer over numbers.
        self.steepness = steepness if isinstance(steepness, Tensor) else self.constant(steepness)
        self.downhill = -self.steepness

    def error(self, kind: type[Exception], message: str) -> Exception:
        """An exception that names the line of the program."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and "_rt" not in frame.f_locals:
            frame = frame.f_back
        where = f"{frame.f_code.co_filename}:{frame.f_lineno}: " if frame is not None else ""
        return kind(f"softly.relax: {where}{message}.")

    # Values ------------------------------------------------------------------------------------------------------

    def constant(self, value: float) -> Tensor:
        found = self._constants.get(value)
        if found is None:
            found = self._constants[value] = constant(value, self.dtype, self.device)
        return found

    def cell(self, value: Any) -> Any:
        """A value as it can stand in a cell: a number or a tensor of one number per example."""
        if type(value) is Tensor:
            return value
        value = number(value)
        if isinstance(value, Array):
            if value.shape.numel() != 1:
                raise self.error(ValueError, f"an array of shape {tuple(value.shape)} doesn't fit into one cell")
            return value.cells()[0]
        if not isinstance(value, (Tensor, bool, int, float)):
            raise self.error(TypeError, f"a cell of an array can't hold {type(value).__name__}")
        return value

    def column(self, value: Any) -> Tensor:
        """A number or a tensor as (batch,)."""
        if not isinstance(value, Tensor):
            value = self.constant(value)
        return value if value.ndim == 1 else value.expand(self.batch)

    def stack(self, cells: Sequence[Any]) -> Tensor:
        """Cells as a tensor (batch, n)."""
        if not cells:
            return torch.zeros(self.batch, 0, dtype=self.dtype, device=self.device)
        return torch.stack(self.uniform([self.column(c) for c in cells]), 1)

    @staticmethod
    def uniform(tensors: list[Tensor]) -> list[Tensor]:
        """The same tensors, of one dtype."""
        dtype = tensors[0].dtype
        if all(t.dtype == dtype for t in tensors):
            return tensors
        for t in tensors:
            dtype = torch.promote_types(dtype, t.dtype)
        return [t.to(dtype) for t in tensors]

    def array(self, value: Any) -> Array:
        """Anything with entries as an array."""
        if isinstance(value, Array):
            return value
        if isinstance(value, Tensor):
            return Array.of(self, value.expand(self.batch, *value.shape))
        entries = [self.array(v) if isinstance(v, (list, tuple)) else v for v in value]
        if entries and isinstance(entries[0], Array):
            cells = [c for entry in entries for c in entry.cells()]
            return Array(Store(self, (len(entries), *entries[0].shape), None, cells))
        return Array(Store(self, (len(entries),), None, [self.cell(v) for v in entries]))

    def cells_like(self, value: Any, shape: tuple[int, ...]) -> list[Any]:
        """The cells of ``value``, broadcast to ``shape``."""
        value = number(value)
        if isinstance(value, (bool, int, float, Tensor)):
            return [value] * int(torch.Size(shape).numel())
        array = self.array(value)
        if tuple(array.shape) == tuple(shape):
            return array.cells()
        return Array.of(self, array.tensor().expand(self.batch, *shape)).cells()

    def wrap(self, value: Any) -> Any:
        """A batched tensor as a value of the program."""
        if isinstance(value, Tensor) and value.ndim > 1:
            return Array.of(self, value)
        return value

    def outer(self, value: Any) -> Any:
        """A value from outside of the program, which has no batch."""
        return self.array(value) if type(value) in (Tensor, torch.nn.Parameter) and value.ndim else value

    def dense(self, value: Any, ndim: int = 0) -> Any:
        """Arrays and categorical positions as batched tensors, with ones after the batch up to ``ndim`` dimensions."""
        value = number(value)
        tensor = value.tensor() if isinstance(value, Array) else value
        if isinstance(tensor, Tensor) and tensor.ndim and tensor.ndim < ndim + 1:
            tensor = tensor.reshape(tensor.shape[0], *[1] * (ndim + 1 - tensor.ndim), *tensor.shape[1:])
        return tensor

    def elementwise(self, function: Callable[..., Any], *values: Any) -> Any:
        """A function of corresponding entries."""
        values = tuple(self.array(v) if isinstance(v, (list, tuple)) else v for v in values)
        ndim = max(v.ndim if isinstance(v, Array) else 0 for v in values)
        return self.wrap(function(*(self.dense(v, ndim) for v in values)))

    def apply(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A torch function, on each example."""
        leaves, structure = _pytree.tree_flatten((args, kwargs))
        leaves = [self.dense(leaf) for leaf in leaves]
        batched = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.ndim > 0]
        if not batched:
            return self.outer(function(*args, **kwargs))

        def example(*tensors: Tensor) -> Any:
            filled = list(leaves)
            for i, tensor in zip(batched, tensors, strict=True):
                filled[i] = tensor
            positional, named = _pytree.tree_unflatten(filled, structure)
            return function(*positional, **named)

        result = torch.vmap(example, randomness="different")(*(leaves[i] for i in batched))
        return _pytree.tree_map(self.wrap, result)

    def same_category(self, p: Tensor, q: Tensor, similarity: str) -> Tensor:
        """`softly.categorical_equal` along the last dimension; what is compared often is normalised once."""
        if self.settings.hard:
            return (p.argmax(-1) == q.argmax(-1)).to(self.dtype)
        if similarity == "cosine":
            p, q = self._unit(p), self._unit(q)
        return torch.linalg.vecdot(p, q)

    def _unit(self, x: Tensor) -> Tensor:
        if id(x) not in self._units:
            self._units[id(x)] = (x, torch.nn.functional.normalize(x, dim=-1, eps=1e-8))
        return self._units[id(x)][1]

    # Positions ---------------------------------------------------------------------------------------------------

    def weights(self, position: Any, n: int) -> Tensor:
        """The weights (batch, n) of a relaxed position."""
        if isinstance(position, Categorical):
            found = position.weights.shape[1]
            if found > n:
                raise self.error(IndexError, f"a position among {found} can't index an array of {n}")
            return torch.nn.functional.pad(position.weights, (0, n - found)) if found < n else position.weights
        position = self.column(position)
        if self.settings.hard:
            return indexing.nearest_weights(position, n, self.dtype)
        return indexing.filter_weights(
            position,
            n,
            distribution=self.settings.distribution,
            steepness=self.steepness,
            exact_gradient=self.settings.exact_gradient,
        )

    def _full_weights(self, shape: torch.Size, weights: list[tuple[int, Any]]) -> Iterator[tuple[int, Tensor]]:
        for axis, position in weights:
            w = self.weights(position, shape[axis + 1])
            yield axis + 1, w.reshape(w.shape[0], *[1] * axis, w.shape[1], *[1] * (len(shape) - axis - 2))

    def contract(self, tensor: Tensor, weights: list[tuple[int, Any]]) -> Tensor:
        """Read a tensor (batch, ...) at relaxed positions of some of its axes."""
        for axis, w in self._full_weights(tensor.shape, weights):
            used = torch.where(w == 0, 0.0, tensor) if self.guarded or self.settings.hard else tensor
            tensor = (used * w).sum(axis, keepdim=True)
        for axis, _ in reversed(weights):
            tensor = tensor.squeeze(axis + 1)
        return tensor

    def spread(self, tensor: Tensor, weights: list[tuple[int, Any]], value: Any) -> Tensor:
        """Write ``value`` to a tensor (batch, ...) at relaxed positions of some of its axes."""
        total: Tensor | None = None
        for _, w in self._full_weights(tensor.shape, weights):
            total = w if total is None else total * w
        assert total is not None
        if isinstance(value, (list, tuple)):
            value = self.array(value)
        value = self.dense(value)
        if isinstance(value, Tensor) and value.ndim:
            rest = iter(value.shape[1:])
            read = {axis for axis, _ in weights}
            kept = [1 if axis in read else next(rest, 1) for axis in range(tensor.ndim - 1)]
            value = value.reshape(value.shape[0], *kept)
        return self.comparators.mix(total.expand_as(tensor), value, tensor)

    # Writing -----------------------------------------------------------------------------------------------------

    def write(self, container: Any, key: Any, value: Any) -> None:
        """Write one cell of a store, an entry of a list or of a dict."""
        if self.journals:
            journal, k = self.journals[-1], (id(container), key)
            if k not in journal and (id(container), WHOLE) not in journal:
                journal[k] = (container, key, _read(container, key))
        container[key] = value

    def remember(self, container: Any) -> None:
        """Note the content of a list, dict or set that is about to change its length."""
        if not self.journals:
            return
        journal, k = self.journals[-1], (id(container), WHOLE)
        if k in journal:
            return
        old = container.copy()
        for other in [o for o in journal if o[0] == id(container)]:
            _, key, value = journal.pop(other)
            _put(old, key, value)
        journal[k] = (container, WHOLE, old)

    def snapshot(self, region: Region) -> dict[Any, Any]:
        """What was written since a region began."""
        depth = next(i for i in range(len(self.regions) - 1, -1, -1) if self.regions[i] is region)
        outer = sum(1 for r in self.regions[:depth] if not isinstance(r, Call))
        return self.contents(self.journals[outer:])

    def contents(self, journals: Sequence[Journal]) -> dict[Any, Any]:
        """What stands now where something was written."""
        if len(journals) == 1 and not journals[0]:
            return {}
        return {
            k: (container, key, self.held(_read(container, key)))
            for journal in journals
            for k, (container, key, _) in journal.items()
        }

    def held(self, value: Any) -> Any:
        return Held(value, self.frozen(value)) if type(value) in _COLLECTIONS else value

    def hold(self, names: Names) -> Names:
        return tuple([self.held(v) if type(v) in _COLLECTIONS else v for v in names])

    @staticmethod
    def release(names: Names) -> Names:
        return tuple([v.original if type(v) is Held else v for v in names])

    # Probabilities -----------------------------------------------------------------------------------------------

    @staticmethod
    def times(a: Mass, b: Mass) -> Mass:
        if a is DEAD or b is DEAD:
            return DEAD
        return b if a is None else a if b is None else a * b

    def mass(self, target: Region) -> Mass:
        """The probability of being here after the beginning of ``target``."""
        total: Mass = None
        for region in reversed(self.regions):
            total = self.times(total, region.mass)
            if region is target:
                return total
            if isinstance(region, Branch):
                total = self.times(total, region.p if region.way else self.complement(region.p))
        raise AssertionError("a jump out of a region that isn't there")

    def range(self, p: Tensor) -> tuple[float, float]:
        """The largest and the smallest probability in the batch; as if uncertain where nothing may depend on data."""
        if self.static:
            return 1.0, 0.0
        if p.numel() == 0:
            return 0.0, 1.0
        low, high = torch.aminmax(p.detach())
        return float(high), float(low)

    def warn_leftover(self, mass: Mass) -> None:
        if self.warned or self.static:
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
        if high <= self.settings.tolerance:
            return False
        if low >= 1.0 - self.settings.tolerance:
            return True
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
        """The probability that a value is true."""
        if not isinstance(value, (Tensor, Categorical, Array, Undefined)):
            return bool(value)
        value = number(value)
        if not isinstance(value, Tensor):
            return bool(value)  # which raises
        if self.settings.hard:
            return (value != 0).to(self.dtype)
        if value.dtype == torch.bool:
            return value.to(self.dtype)
        high, low = self.range(value)
        if low < -1e-5 or high > 1.0 + 1e-5:
            raise self.error(
                ValueError,
                f"the truth of a relaxed value is a probability in [0, 1], got {low:.4g} to {high:.4g}; "
                "compare it, as in `x != 0`",
            )
        return value

    def branch(self, condition: Any, entry: Names, labels: tuple[str, ...], check: bool) -> Any:
        """The ways to go at an ``if``; ``check`` whether one of them can be left out."""
        if not isinstance(condition, Tensor):
            return YES if condition else NO
        if self.paths is not None:
            return YES if self.choose(condition) else NO
        if check:
            high, low = self.range(condition)
            if low >= 1.0 - self.settings.tolerance:
                return YES
            if high <= self.settings.tolerance:
                return NO
        return Branch(self, self.column(condition), entry, labels)

    @property
    def alive(self) -> bool:
        return self.regions[-1].mass is not DEAD

    def complement(self, p: Tensor) -> Tensor:
        return torch.sub(self.constant(1.0), p)

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

    def return_(self, value: Any) -> None:
        call = next(r for r in reversed(self.regions) if isinstance(r, Call))
        call.returns.append((self.mass(call), self.frozen(value)))
        self.regions[-1].mass = DEAD

    def frozen(self, value: Any) -> Any:
        """A copy that later writes don't reach."""
        if isinstance(value, Array):
            return value.copy()
        if isinstance(value, (list, tuple)):
            return type(value)(self.frozen(v) for v in value)
        if isinstance(value, dict):
            return {k: self.frozen(v) for k, v in value.items()}
        return value

    def invoke(self, body: Callable[[], None], name: str) -> Any:
        """Run the body of a function and give what it returns."""
        call = Call()
        self.regions.append(call)
        body()
        if call.mass is not DEAD:
            call.returns.append((call.mass, None))
        self.regions.pop()
        if len(call.returns) == 1:
            return call.returns[0][1]
        (result,) = self.join_values([m for m, _ in call.returns], [[v] for _, v in call.returns], (f"{name}()",))
        return result

    # Joining -----------------------------------------------------------------------------------------------------

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
            weight = mass_yes / torch.where(total > 0, total, 1.0)
        if not written_yes and not written_no:
            return tuple(self.mix(weight, names_yes, names_no, labels))
        places = {**written_yes, **written_no} if written_no else written_yes
        values_yes, values_no = list(names_yes), list(names_no)
        for k, (container, key, _) in places.items():
            values_yes.append(written_yes[k][2] if k in written_yes else _read(container, key))
            values_no.append(written_no[k][2] if k in written_no else _read(container, key))
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
            _put(container, WHOLE, value)
        elif value is MISSING:
            self.remember(container)
            container.pop(key, None)
        else:
            self.write(container, key, value)

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
                row.append(written[k][2] if k in written else _read(container, key))
            rows.append(row)
        total: Mass = None
        if lossy:
            total = sum(masses[1:], masses[0])
            masses = [mass / torch.where(total > 0, total, 1.0) for mass in masses]
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
            return _Mark(str(len(pending) - 1))

        joined = [self._join([row[i] for row in rows], label, combine) for i, label in enumerate(labels)]
        if not pending:
            return joined
        # All at once: (states, variables, batch).
        flat = self.uniform([values[i] for i in range(len(masses)) for values in pending])
        stacked = torch.stack(flat).unflatten(0, (len(masses), len(pending)))
        filled = iter(self.comparators.average(weights[:, None], stacked).unbind(0))

        def fill(value: Any) -> Any:
            if type(value) is _Mark and value is not MISSING:
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
