"""What is kept because it takes long to make: bounded in memory, not in number."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
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
        kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        lock = threading.Lock()
        total = 0

        @functools.wraps(function)
        def cached(*arguments: Hashable) -> Any:
            nonlocal total
            with lock:
                if arguments in kept:
                    kept.move_to_end(arguments)
                    return kept[arguments][0]
            result = function(*arguments)
            with lock:
                if arguments in kept:  # another thread was faster
                    return kept[arguments][0]
                kept[arguments] = result, size(result)
                total += kept[arguments][1]
                while total > budget and len(kept) > 1:
                    total -= kept.popitem(last=False)[1][1]
            return result

        return cached  # type: ignore[return-value]

    return decorate
