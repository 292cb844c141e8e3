"""What is kept because it takes long to make: bounded in memory, not in number."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def bounded(budget: int, size: Callable[[Any], int]) -> Callable[[F], F]:
    """Keep a function's last results as long as together they take no more than ``budget`` bytes.

    A result that was dropped lives on with whoever holds it. The newest one is kept whatever its size.

    Args:
        budget: In bytes.
        size: How many bytes a result takes.
    """

    def decorate(function: F) -> F:
        kept: dict[Hashable, _Entry] = {}
        lock, clock, total = threading.Lock(), itertools.count(), 0

        @functools.wraps(function)
        def cached(*arguments: Hashable) -> Any:
            nonlocal total
            entry = kept.get(arguments)
            if entry is None:
                result = function(*arguments)
                with lock:
                    if arguments not in kept:  # otherwise another thread was faster
                        kept[arguments] = _Entry(result, size(result))
                        total += kept[arguments].size
                    entry = kept[arguments]
                    entry.used = next(clock)
                    while total > budget and len(kept) > 1:
                        oldest = min(kept, key=lambda key: kept[key].used)
                        total -= kept.pop(oldest).size
            entry.used = next(clock)
            return entry.result

        return cached  # type: ignore[return-value]

    return decorate


class _Entry:
    __slots__ = ("result", "size", "used")

    def __init__(self, result: Any, size: int) -> None:
        self.result, self.size, self.used = result, size, -1
