"""What the variables of a running program refer to, and where in its source it is."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any

from softly.algorithms.engine.arrays import Array
from softly.algorithms.engine.containers import Choice, has_attributes

_INTERNAL = "_softly_"
_DEPTH = 4


def program_frames() -> Iterator[FrameType]:
    """The frames of lowered code, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if "_rt" in frame.f_locals:
            yield frame
        frame = frame.f_back


def place(frames: Iterator[FrameType]) -> str:
    frame = next(frames, None)
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}: "


def raised_at(trace: TracebackType | None) -> str:
    """The line of the program that an exception came through last."""
    found = ""
    while trace is not None:
        if "_rt" in trace.tb_frame.f_locals:
            found = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}: "
        trace = trace.tb_next
    return found


def named_elsewhere(collections: Sequence[Any], labels: Sequence[str]) -> bool:
    """Whether a variable other than those of ``labels`` leads to one of some collections."""
    wanted = {id(c) for c in collections}
    for i, frame in enumerate(program_frames()):
        for name, value in frame.f_locals.items():
            if name == "_rt" or name.startswith(_INTERNAL) or (i == 0 and name in labels):
                continue
            if _leads_to(value, wanted, _DEPTH):
                return True
    return False


def _leads_to(value: Any, wanted: set[int], depth: int) -> bool:
    if isinstance(value, Array):
        return id(value.store) in wanted
    if id(value) in wanted:
        return True
    if depth == 0:
        return False
    if isinstance(value, (list, tuple, deque)):
        return any(_leads_to(v, wanted, depth - 1) for v in value)
    if isinstance(value, dict):
        return any(_leads_to(v, wanted, depth - 1) for v in value.values())
    if isinstance(value, Choice):
        return any(_leads_to(v, wanted, depth - 1) for _, v in value.options)
    return has_attributes(value) and any(_leads_to(v, wanted, depth - 1) for v in vars(value).values())
