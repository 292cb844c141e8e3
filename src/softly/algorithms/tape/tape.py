"""Relaxed programs on a native tape: recorded once for the shapes of their arguments, run as one kernel."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree

from softly import native
from softly.algorithms.engine import dynamo
from softly.algorithms.tape.aten import RULES
from softly.algorithms.tape.recorder import BINARY, NUMBER, OPERATIONS, Recorder, RecordingError, evaluate

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


class Recording:
    """A recorded program: the instructions that its outputs need, and how its outputs are put together.

    Attributes:
        trusting: Whether checks of the data were left out, which the function itself makes.
    """

    def __init__(
        self, recorder: Recorder, results: list[Any], structure: Any, *, learned: bool, trusting: bool
    ) -> None:
        self.structure, self.trusting = structure, trusting
        self.others = [r if not isinstance(r, Tensor) else None for r in results]
        self.dtypes = [r.dtype if isinstance(r, Tensor) else None for r in results]
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

        # The steepness is the last of the inputs.
        active = [True] * (inputs - 1) + [learned] + [False] * (first - inputs)
        rows = []
        flat = {NUMBER[name] for name in ("less", "less_equal", "equal", "floor", "sign", "constant")}
        # Of a selection the condition has no derivative.
        operands = {NUMBER["lerp"]: 3, NUMBER["select"]: 2} | {NUMBER[name]: 2 for name in BINARY}
        for n, (operation, *places) in enumerate(code):
            if not needed[n]:
                continue
            a, b, c = (at(o) for o in places)
            count = 0 if operation in flat else operands.get(operation, 1)
            mask = sum(1 << k for k, o in enumerate((a, b, c)[:count]) if active[o])
            active.append(mask > 0)
            rows.append((operation, a, b, c, mask))
        self.code = torch.tensor(rows, dtype=torch.int32).reshape(-1, 5)
        self.constants = torch.tensor(recorder.constants, dtype=torch.float64)
        self.outputs = torch.tensor([at(s) for s in wanted], dtype=torch.int32)
        self.constant = [not any(active[at(int(s))] for s in array.ravel()) for array in slots]

    def __call__(self, x: Tensor, batch_shape: torch.Size) -> Any:
        rows = _run(x, self.code, self.constants, self.outputs)
        results, begin = [], 0
        for shape, dtype, constant, other in zip(self.shapes, self.dtypes, self.constant, self.others, strict=True):
            if dtype is None:
                results.append(other)
                continue
            end = begin + math.prod(shape)
            part = rows[begin:end].detach() if constant else rows[begin:end]
            results.append(part.t().reshape(batch_shape + torch.Size(shape)).to(dtype))
            begin = end
        return _pytree.tree_unflatten(results, self.structure)


def _identity(value: Any) -> Any:
    """What tells a value from outside from what it was before."""
    if isinstance(value, Tensor):
        return id(value), value._version
    return (type(value), value) if isinstance(value, (bool, int, float, str)) else id(value)


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
        self.function = function
        self._recordings: dict[Any, Recording] = {}
        self._outside: tuple[Any, ...] = ()
        self._kept: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the recorded program over a batch."""
        if torch.compiler.is_compiling():
            return self.function(*args, **kwargs)  # the compiler makes a straight line of it by itself
        tensors = [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if any(native.transformed(t) or t.is_meta for t in tensors):
            return self.function(*args, **kwargs)  # which leaves nothing to data either
        batch = self.function._batch(args, kwargs)
        recording = self.recording(batch, self.function)
        return self.play(recording, batch, self.function)

    def play(self, recording: Recording, batch: Any, function: Any) -> Any:
        """Run a recording with the steepness of a function."""
        steepness = torch.as_tensor(function.settings.steepness, dtype=batch.dtype, device=batch.device)
        rows = [leaf.reshape(batch.size, -1) for leaf in _floating(batch)]
        inputs = torch.cat([*rows, steepness.reshape(1, 1).expand(batch.size, 1)], 1).t()
        return recording(inputs, batch.shape)

    def key(self, batch: Any, function: Any) -> Any:
        """What tells recordings apart: shapes, all arguments that are no tensors, and what is read from outside."""
        key: list[Any] = [isinstance(function.settings.steepness, Tensor)]
        key.extend(_identity(value) for reader in self._outside for value in dynamo.unfolded(reader()))
        key.extend(_identity(value) for value in function.settings.variables.values())
        for leaf, batched in zip(batch.leaves, batch.batched, strict=True):
            if isinstance(leaf, Tensor):
                key.append((tuple(leaf.shape[batch.dims :] if batched else leaf.shape), batched))
            else:
                if leaf.__hash__ is None:
                    kind = type(leaf).__name__
                    raise TypeError(f"softly.relax: a tape can't tell recordings apart by an argument of type {kind}.")
                key.append((type(leaf), leaf))
        return tuple(key), batch.structure, batch.dtype

    def watch(self, function: Any) -> None:
        """Look up once more what is read from outside: by another function in the place of one, it may be another."""
        self._outside = function._readers()

    def known(self, batch: Any, function: Any) -> Recording | None:
        """The recording for a batch, if there is one."""
        return self._recordings.get(self.key(batch, function))

    def recording(
        self, batch: Any, function: Any, *, instructions: int | None = None, iterations: int | None = None
    ) -> Recording:
        """The recording for a batch; made if there is none, of so many instructions and iterations at most."""
        found = self.known(batch, function)
        if found is None:
            self.watch(function)
            found = self.known(batch, function)
        if found is None:
            found = self._recordings[self.key(batch, function)] = self._record(
                batch, function, instructions, iterations
            )
            # What the key knows by its place in memory has to keep that place.
            self._kept.extend(v for reader in self._outside for v in dynamo.unfolded(reader()))
        return found

    def _record(self, batch: Any, function: Any, instructions: int | None, iterations: int | None) -> Recording:
        leaves, steepness = _floating(batch), function.settings.steepness
        if isinstance(steepness, Tensor) and steepness.numel() != 1:
            raise TypeError(f"softly.relax: a tape needs one steepness, got {tuple(steepness.shape)}.")
        taken = {s for leaf in leaves for s in leaf.shape[1:]}
        # A prime that no dimension is a multiple of tells the batch from all others.
        count = next(p for p in (61, 67, 71, 73, 79, 83, 89, 97, 101) if not any(s and s % p == 0 for s in taken))
        most = function.settings.max_iterations
        most = most if iterations is None else min(most, iterations)
        # Whatever holds where it is called for the first time, a recording is for all calls.
        with torch.inference_mode(False), torch.no_grad(), torch.device("cpu"):
            draw = torch.Generator().manual_seed(0)
            examples = [torch.rand(count, *leaf.shape[1:], dtype=leaf.dtype, generator=draw) + 0.5 for leaf in leaves]
            steep = torch.full((), float(steepness), dtype=batch.dtype)
            settings = dataclasses.replace(function.settings, steepness=steep, max_iterations=most)
            recorder = Recorder(count, RULES, instructions)
            for example in (*examples, steep):
                recorder.follow(example)
            try:
                with recorder:
                    result, engine = function._trace(batch, examples, count, settings)
            except RecordingError as error:
                raise TypeError(f"softly.relax: {function.__name__} can't be recorded: {error}.") from None
            results, structure = _pytree.tree_flatten(result)
            learned = isinstance(steepness, Tensor)
            return Recording(recorder, results, structure, learned=learned, trusting=engine.trusting)


def _floating(batch: Any) -> list[Tensor]:
    """The tensors of a batch, each with the batch in front."""
    leaves = []
    for leaf, batched in zip(batch.leaves, batch.batched, strict=True):
        if isinstance(leaf, Tensor):
            if not leaf.dtype.is_floating_point:
                raise TypeError(f"softly.relax: a tape takes floating-point tensors, got {leaf.dtype}.")
            leaves.append((batch._flat(leaf) if batched else leaf.expand(batch.size, *leaf.shape)).to(batch.dtype))
    if not leaves:
        raise TypeError("softly.relax: a tape needs at least one tensor.")
    return leaves
