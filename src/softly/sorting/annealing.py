"""Schedules of the steepness over a training run."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["Annealer"]

_SHAPES = {
    "geometric": lambda start, end, share: start * (end / start) ** share,
    "linear": lambda start, end, share: start + (end - start) * share,
    "cosine": lambda start, end, share: end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * share)),
}


class Annealer:
    """Move the ``steepness`` of operators from ``start`` to ``end``, one `step` at a time, beside any optimizer.

    Soft at first, so that gradients reach everything; hard at the end, so that training sees what is deployed.

    Args:
        operators: Objects with an attribute ``steepness``.
        start, end: First and last steepness, > 0.
        steps: Number of calls of `step` from one to the other, >= 1.
        shape: "geometric", "linear" or "cosine".

    Example:
        >>> sorter = softly.SoftSort(steepness=1.0)
        >>> annealer = softly.sorting.Annealer(sorter, start=1.0, end=100.0, steps=2)
        >>> annealer.step()
        >>> sorter.steepness
        10.0
    """

    def __init__(self, *operators: Any, start: float, end: float, steps: int, shape: str = "geometric") -> None:
        if not operators or not all(hasattr(operator, "steepness") for operator in operators):
            raise TypeError("softly.sorting.Annealer: operators must have a steepness.")
        if not (0 < start < math.inf and 0 < end < math.inf):
            raise ValueError(f"softly.sorting.Annealer: start and end must be positive, got {start} and {end}.")
        if steps < 1:
            raise ValueError(f"softly.sorting.Annealer: steps must be >= 1, got {steps}.")
        if shape not in _SHAPES:
            raise ValueError(f"softly.sorting.Annealer: shape must be one of {', '.join(_SHAPES)}, got {shape!r}.")
        self._operators = operators
        self._start, self._end, self._steps, self._shape = start, end, steps, shape
        self._done = 0
        self._set()

    @property
    def steepness(self) -> float:
        """The current steepness."""
        return _SHAPES[self._shape](self._start, self._end, min(self._done / self._steps, 1.0))

    def step(self) -> None:
        """Advance by one step; after the last one the steepness stays at ``end``."""
        self._done += 1
        self._set()

    def state_dict(self) -> dict[str, int]:
        """What a checkpoint needs."""
        return {"done": self._done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a checkpoint."""
        self._done = int(state["done"])
        self._set()

    def _set(self) -> None:
        for operator in self._operators:
            operator.steepness = self.steepness
