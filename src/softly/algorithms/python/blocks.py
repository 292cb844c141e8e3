"""Blocks of relaxed functions: what a `with` statement in them can say."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from softly import _inputs
from softly.algorithms.engine.runtime import Runtime

__all__ = ["steepness", "unmerged"]


class steepness:  # noqa: N801 - used like a function
    """Within a relaxed function, ``with steepness(20.0):`` gives the comparisons of a block their own steepness.

    In a plain run of the function it does nothing.

    Example:
        >>> @softly.relax(steepness=1.0)
        ... def sign(x):
        ...     with softly.algorithms.steepness(100.0):
        ...         return 1 if x > 0 else -1
        >>> sign(torch.tensor([-0.1, 0.1]))
        tensor([-0.9999,  0.9999])
    """

    def __init__(self, value: float | Tensor) -> None:
        self.value = _inputs.steepness(value, "softly.algorithms.steepness")

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def __relaxed_block__(self, engine: Runtime, entry: Any, labels: Any) -> Any:
        return _SteepBlock(engine, self.value)


class _SteepBlock:
    def __init__(self, engine: Runtime, value: float | Tensor) -> None:
        self.engine, self.value = engine, value

    def __iter__(self) -> Any:
        before = self.engine.steepness
        self.engine.steepen(self.value)
        yield
        self.engine.steepen(before)

    @staticmethod
    def end(names: Any) -> Any:
        return names

    join = end


class unmerged:  # noqa: N801 - used like a function
    """Within a relaxed function, ``with unmerged():`` follows every path through a block to its end.

    Sequences of conditions are otherwise joined after each of them, which is an approximation where a later one
    depends on the earlier. Unmerged they are exact, at the cost of up to 2^conditions runs of the block; more than
    ``max_paths`` are an error. In a plain run of the function it does nothing.

    Example:
        >>> def outside(x):
        ...     with softly.algorithms.unmerged():
        ...         a = 1.0 if x > 0 else -1.0
        ...         b = 0.0 if a < 0 else a * a
        ...     return b
        >>> x = torch.tensor([0.0])
        >>> softly.relax(outside, steepness=9.0)(x)  # a is 1 or -1, each with probability 1/2
        tensor([0.5000])
    """

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None

    def __relaxed_block__(self, engine: Runtime, entry: Any, labels: Any) -> Any:
        return engine.control.unmerged(entry, labels)
