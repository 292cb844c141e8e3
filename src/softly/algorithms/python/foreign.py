"""Functions that a relaxed program may call although they can't be lowered."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from softly.algorithms.engine.batches import opened, outcome, results
from softly.algorithms.engine.runtime import Runtime

__all__ = ["per_example"]


class per_example:  # noqa: N801 - used like a function
    """Let relaxed programs call a function that can't be lowered, once for each example.

    The function takes the numbers and arrays of one example, as tensors without a batch, and gives numbers or tensors.
    It is not relaxed: where it decides, it decides hard. In a plain run it is called as it is.

    Args:
        function: Any callable.
        differentiable: Whether it calculates with the tensors it gets, so that gradients flow through them. If not,
            its results are constants; a function that gives constants where a gradient is wanted is an error otherwise.

    Example:
        >>> import bisect
        >>> rank = softly.algorithms.per_example(bisect.bisect, differentiable=False)
        >>> @softly.relax
        ... def score(x):
        ...     return rank([1.0, 2.0, 3.0], x) if x > 0 else 0.0
        >>> score(torch.tensor([2.5, -4.0]))
        tensor([2., 0.])
    """

    def __init__(self, function: Callable[..., Any], *, differentiable: bool = True) -> None:
        if not callable(function):
            raise TypeError(f"softly.algorithms.per_example: a function is needed, got {type(function).__name__}.")
        functools.update_wrapper(self, function)
        self.function, self.differentiable = function, differentiable

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)

    def __relaxed_call__(self, engine: Runtime, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = getattr(self.function, "__name__", "a function")
        if engine.static:
            raise engine.error(TypeError, f"{name}() is called example by example, which can't be compiled")
        batched = _pytree.tree_map(lambda v: outcome(engine, v), results(engine, (args, kwargs)))
        leaves, structure = _pytree.tree_flatten(batched)
        rows = []
        for i in range(engine.batch):
            one = [leaf[i].clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            if not self.differentiable:
                one = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in one]
            positional, named = _pytree.tree_unflatten(one, structure)
            rows.append(_pytree.tree_flatten(opened(self.function(*positional, **named))))
        wanted = self.differentiable and any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in leaves)
        columns = zip(*(entries for entries, _ in rows), strict=True)
        together = [self._together(engine, name, list(column), wanted) for column in columns]
        return _pytree.tree_unflatten(together, rows[0][1])

    @staticmethod
    def _together(engine: Runtime, name: str, values: list[Any], wanted: bool) -> Any:
        if not all(isinstance(v, (Tensor, bool, int, float)) for v in values):
            raise engine.error(TypeError, f"{name}() gives {type(values[0]).__name__}; a number or a tensor is needed")
        if wanted and not all(isinstance(v, Tensor) and v.requires_grad for v in values):
            raise engine.error(
                TypeError,
                f"{name}() gives numbers without a gradient; calculate with tensors in it, or say differentiable=False",
            )
        tensors = [torch.as_tensor(v, dtype=engine.dtype, device=engine.device) for v in values]
        return engine.wrap(torch.stack(tensors))
