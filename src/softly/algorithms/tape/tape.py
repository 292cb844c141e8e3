"""Relaxed programs on a native tape: recorded once for the shapes of their arguments, run as one kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree

from softly import native
from softly.algorithms.engine import dynamo
from softly.algorithms.tape.aten import RULES
from softly.algorithms.tape.recorder import NUMBER, OPERATIONS, Recorder, RecordingError, evaluate

__all__ = ["Tape"]


def _call(name: str, x: Tensor, code: Tensor, constants: Tensor, outputs: Tensor, *rest: Tensor) -> None:
    kernel = native.kernel(name, x.dtype)
    enough = kernel(
        code.data_ptr(),
        len(code),
        constants.data_ptr(),
        len(constants),
        outputs.data_ptr(),
        len(outputs),
        x.data_ptr(),
        len(x),
        *(r.data_ptr() for r in rest),
        x.shape[1],
        torch.get_num_threads(),
    )
    if not enough:
        raise MemoryError(f"softly.relax: no memory for a tape of {len(code)} instructions.")


def _forward(x: Tensor, code: Tensor, constants: Tensor, outputs: Tensor) -> Tensor:
    out = x.new_empty(len(outputs), x.shape[1])
    _call("tape", x, code, constants, outputs, out)
    return out


def _backward(grad: Tensor, x: Tensor, code: Tensor, constants: Tensor, outputs: Tensor) -> Tensor:
    grad_x = torch.empty_like(x)
    _call("tape_backward", x, code, constants, outputs, grad, grad_x)
    return grad_x


def _reference(x: Tensor, code: Tensor, constants: Tensor, outputs: Tensor) -> Tensor:
    """Each instruction as an operation of torch on a row of the batch."""
    values = [*x.unbind(0), *(torch.full((), c, dtype=x.dtype, device=x.device) for c in constants.tolist())]
    for operation, a, b, c, _ in code.tolist():
        values.append(evaluate(OPERATIONS[operation], values[a], values[b], values[c]))
    return torch.stack([values[o].expand(x.shape[1]) for o in outputs.tolist()])


_run = native.Operator(
    "tape",
    forward=_forward,
    shape=lambda x, code, constants, outputs: x.new_empty(outputs.shape[0], x.shape[1]),
    backward=_backward,
    reference=_reference,
)


class _Recording:
    """A recorded program: the instructions that its outputs need, and how its outputs are put together."""

    def __init__(self, recorder: Recorder, results: list[Any], structure: Any) -> None:
        self.structure = structure
        self.others = [r if not isinstance(r, Tensor) else None for r in results]
        slots = [recorder.slots(r) if isinstance(r, Tensor) else np.zeros((1, 0), dtype=np.int64) for r in results]
        self.shapes = [s.shape[1:] for s in slots]
        wanted = [int(s) for array in slots for s in array.ravel()]
        # Constants stand between the inputs and the instructions, of which only those are kept that are needed.
        inputs, code = recorder.inputs, recorder.code
        needed = [False] * len(code)
        pending = [s - inputs for s in wanted if s >= inputs]
        while pending:
            n = pending.pop()
            if not needed[n]:
                needed[n] = True
                pending.extend(o - inputs for o in code[n][1:] if o >= inputs)
        first = inputs + len(recorder.constants)
        place: dict[int, int] = {}
        for n in range(len(code)):
            if needed[n]:
                place[inputs + n] = first + len(place)

        def at(slot: int) -> int:
            return slot if 0 <= slot < inputs else inputs - 1 - slot if slot < 0 else place[slot]

        active = [True] * inputs + [False] * (first - inputs)
        rows = []
        flat = {NUMBER[name] for name in ("less", "less_equal", "equal", "floor", "sign", "constant")}
        operands = {NUMBER["lerp"]: 3, NUMBER["select"]: 3} | dict.fromkeys(
            (NUMBER[n] for n in ("add", "sub", "mul", "div", "minimum", "maximum", "atan2", "less")), 2
        )
        for n, (operation, *places) in enumerate(code):
            if not needed[n]:
                continue
            a, b, c = (at(o) for o in places)
            count = 0 if operation in flat else operands.get(operation, 1)
            if operation == NUMBER["select"]:
                count = 2  # the condition has no derivative
            mask = sum(1 << k for k, o in enumerate((a, b, c)[:count]) if active[o])
            active.append(mask > 0)
            rows.append((operation, a, b, c, mask))
        self.code = torch.tensor(rows, dtype=torch.int32).reshape(-1, 5)
        self.constants = torch.tensor(recorder.constants, dtype=torch.float64)
        self.outputs = torch.tensor([at(s) for s in wanted], dtype=torch.int32)

    def __call__(self, x: Tensor, batch_shape: torch.Size) -> Any:
        rows = _run(x, self.code, self.constants, self.outputs)
        results, begin = [], 0
        for shape, other in zip(self.shapes, self.others, strict=True):
            count = int(np.prod(shape))
            if other is None:
                part = rows[begin : begin + count]
                results.append(part.t().reshape(batch_shape + torch.Size(shape)))
                begin += count
            else:
                results.append(other)
        return _pytree.tree_unflatten(results, self.structure)


def _identity(value: Any) -> Any:
    """What tells a value from outside from what it was before."""
    return (id(value), value._version) if isinstance(value, Tensor) else (type(value), value)


class Tape:
    """A relaxed function that is recorded once and then runs as one native kernel; made by `RelaxedFunction.tape`.

    It is for programs of many small steps. Nothing in it depends on data: no branch is skipped, and a relaxed
    ``while`` runs to its ``max_iterations`` or a hard end. Tensors from outside of the function are constants of the
    recording. At every steepness it gives what the function gives.

    Example:
        >>> x = torch.tensor([[3.0, 1.0, 2.0]])
        >>> sort = softly.algorithms.library.bubble_sort.tape()
        >>> sort(x)[0]
        tensor([[1.0003, 2.0000, 2.9997]])
    """

    def __init__(self, function: Any) -> None:
        if isinstance(function.settings.steepness, Tensor):
            raise TypeError("softly.relax: a tape needs a steepness that is a number, not a tensor.")
        self.function = function
        self._recordings: dict[Any, _Recording] = {}
        self._outside: tuple[Any, ...] | None = None
        self._kept: list[Tensor] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the recorded program over a batch."""
        if torch.compiler.is_compiling():
            return self.function(*args, **kwargs)  # the compiler makes a straight line of it by itself
        tensors = [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if any(native.transformed(t) or t.is_meta for t in tensors):
            return self.function(*args, **kwargs)  # which leaves nothing to data either
        batch = self.function._batch(args, kwargs)
        leaves: list[Tensor] = []
        key: list[Any] = [_identity(value) for value in dynamo.watched(self._readers())]
        for leaf, batched in zip(batch.leaves, batch.batched, strict=True):
            if isinstance(leaf, Tensor):
                if not leaf.dtype.is_floating_point:
                    raise TypeError(f"softly.relax: a tape takes floating-point tensors, got {leaf.dtype}.")
                flat = batch._flat(leaf) if batched else leaf.expand(batch.size, *leaf.shape)
                leaves.append(flat.to(batch.dtype))
                key.append((tuple(flat.shape[1:]), batched))
            else:
                if leaf.__hash__ is None:
                    kind = type(leaf).__name__
                    raise TypeError(f"softly.relax: a tape can't tell recordings apart by an argument of type {kind}.")
                key.append((type(leaf), leaf))
        if not leaves:
            raise TypeError("softly.relax: a tape needs at least one tensor.")
        whole = (tuple(key), batch.structure, batch.dtype)
        if whole not in self._recordings:
            self._recordings[whole] = self._record(batch, leaves)
            # What the key knows by its place in memory has to keep that place.
            self._kept.extend(v for v in dynamo.watched(self._readers()) if isinstance(v, Tensor))
        rows = torch.cat([leaf.reshape(batch.size, -1) for leaf in leaves], 1).t()
        return self._recordings[whole](rows, batch.shape)

    def _readers(self) -> tuple[Any, ...]:
        """What reads what the program reads from outside: the numbers there are part of a recording."""
        if self._outside is None:
            self._outside = self.function._readers()
        return self._outside

    def _record(self, batch: Any, leaves: list[Tensor]) -> _Recording:
        taken = {s for leaf in leaves for s in leaf.shape[1:]}
        # A prime that no dimension is a multiple of tells the batch from all others.
        count = next(p for p in (61, 67, 71, 73, 79, 83, 89, 97, 101) if not any(s and s % p == 0 for s in taken))
        examples = [torch.rand(count, *leaf.shape[1:], dtype=leaf.dtype) + 0.5 for leaf in leaves]
        with torch.no_grad(), Recorder(count, RULES) as recorder:
            for example in examples:
                recorder.follow(example)
            try:
                result = self.function._trace(batch, examples, count)
            except RecordingError as error:
                raise TypeError(f"softly.relax: {self.function.__name__} can't be recorded: {error}.") from None
            results, structure = _pytree.tree_flatten(result)
            return _Recording(recorder, results, structure)
