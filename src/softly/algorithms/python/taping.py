"""Straight-line programs run on a tape by themselves, where that gives what the engine gives, only faster."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from softly import native
from softly.algorithms.engine.batches import Batch
from softly.algorithms.engine.settings import Settings
from softly.algorithms.tape.tape import Recording, Tape

_INSTRUCTIONS = 40_000  # to record them takes about a second
_ITERATIONS = 64  # a while that goes on after that will hardly have a hard end
_SHAPES = 16  # a function that is called with more of them isn't worth it
_PLAIN = (bool, int, float, str, type(None))


class Taping:
    """The tape of a relaxed function; shared by those that differ only in their steepness.

    It is used where nothing can be told from the outside but the time: the program is a straight line (see
    `softly.algorithms.python.straight`), no check of data is left out, and all numbers are finite.
    """

    def __init__(self, function: Any) -> None:
        self.tape = Tape(function)
        self.found: dict[Any, Recording | None] = {}

    def play(self, function: Any, batch: Batch) -> tuple[Any] | None:
        """The result of a function, or None if it has to be run."""
        if not _fits(function.settings, batch):
            return None
        key = self.tape.key(batch, function)
        if key not in self.found:
            if len(self.found) >= _SHAPES:
                return None
            recording = self._recorded(function, batch)
            key = self.tape.key(batch, function)  # which knows now what is read from outside
            self.found[key] = recording
        recording = self.found[key]
        if recording is None or batch.infinite():
            return None
        result = self.tape.play(recording, batch, function)
        return None if spoiled(result, batch) else (result,)

    def _recorded(self, function: Any, batch: Batch) -> Recording | None:
        if function._bend() is not None:
            self.tape.watch(function)
            return None
        try:
            recording = self.tape.recording(batch, function, instructions=_INSTRUCTIONS, iterations=_ITERATIONS)
        except Exception:
            return None  # the engine says what is wrong, if anything is
        return None if recording.trusting else recording

    @property
    def used(self) -> bool:
        """Whether calls have gone to the tape."""
        return any(recording is not None for recording in self.found.values())


def _fits(settings: Settings, batch: Batch) -> bool:
    if settings.hard or settings.straight_through or any(isinstance(v, Tensor) for v in settings.variables.values()):
        return False
    if batch.dtype not in (torch.float32, torch.float64) or batch.device.type != "cpu" or not batch.size:
        return False
    if not native.available() or torch.is_autocast_enabled("cpu"):
        return False
    if not native.plain([leaf for leaf in batch.leaves if isinstance(leaf, Tensor)]):
        return False
    arguments, named = _pytree.tree_unflatten(batch.leaves, batch.structure)
    leaves = [*arguments, *named.values()]
    return len(leaves) == len(batch.leaves) and all(
        leaf.dtype is batch.dtype and leaf.device.type == "cpu"
        if isinstance(leaf, Tensor)
        else isinstance(leaf, _PLAIN)
        for leaf in leaves
    )


def spoiled(result: Any, batch: Batch) -> bool:
    """Whether a result has numbers that aren't, although no argument has."""
    tensors = [t for t in _pytree.tree_leaves(result) if isinstance(t, Tensor) and t.is_floating_point()]
    # A finite sum says that all are, and is faster to have.
    if all(math.isfinite(t.detach().sum()) or bool(t.detach().isfinite().all()) for t in tensors):
        return False
    return not any(isinstance(x, Tensor) and bool(x.detach().isnan().any()) for x in batch.leaves)
