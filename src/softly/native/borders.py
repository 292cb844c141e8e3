"""Who else looks at a tensor: the compiler, function transforms, forward mode, modes and subclasses.

Everything that softly asks torch by private names stands here and in `softly.native.operator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

_functorch = torch._C._functorch
is_wrapped = _functorch.is_functorch_wrapped_tensor
is_legacy = _functorch.is_legacy_batchedtensor
_PLAIN = (Tensor, torch.nn.Parameter)


def tensors_in(arguments: Iterable[Any]) -> list[Tensor]:
    """The tensors among the arguments of an operator, in its lists too."""
    found = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            found.append(argument)
        elif isinstance(argument, list):
            found.extend(entry for entry in argument if isinstance(entry, Tensor))
    return found


def transformed(*tensors: Tensor) -> bool:
    """Whether ``torch.func``, forward mode or a batched backward sees the tensors, which know no kernels.

    The code that ``torch.compile`` reads can't tell: an operator asks again when the compiler differentiates its graph.
    """
    return not torch.compiler.is_dynamo_compiling() and lifted(*tensors)


def lifted(*tensors: Tensor) -> bool:
    """The same where the dispatcher calls, and dynamo never looks."""
    return (
        _functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or any(is_wrapped(x) or is_legacy(x) for x in tensors)
    )


def mapped() -> bool:
    """Whether ``torch.func.vmap`` is at work, where a tensor may be one example of many and nothing can be drawn."""
    stack = _functorch.get_interpreter_stack() if _functorch.peek_interpreter_stack() is not None else None
    return any(level.key() == _functorch.TransformType.Vmap for level in stack or ())


def plain(tensors: Sequence[Tensor]) -> bool:
    """Whether nobody but the code that runs sees the tensors: neither `lifted` nor `observed`, in one go."""
    if (
        _functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None
    ):
        return False
    for x in tensors:  # noqa: SIM110 - all() of a generator takes twice as long
        if type(x) not in _PLAIN or x.is_meta or is_wrapped(x) or is_legacy(x):
            return False
    return True


def observed(*tensors: Tensor) -> bool:
    """Whether someone follows what is computed, or only pretends to compute it: a mode, a tracer, a subclass."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None
        or any(type(x) not in _PLAIN or x.is_meta for x in tensors)
    )


def data(x: Tensor) -> Tensor | None:
    """The numbers behind ``x``, of all examples of function transforms; None where there are none to be read.

    What is read here may choose between two ways to the same result, and may be refused. It must not change a result:
    compiled and traced code has no data.
    """
    if torch.compiler.is_compiling():
        return None
    while is_wrapped(x):
        x = _functorch.get_unwrapped(x)
    return None if observed(x) or is_legacy(x) else x.detach()


def graphed(x: Tensor) -> bool:
    """Whether ``x`` has a gradient to hand on, at any level of function transforms."""
    while is_wrapped(x):
        if x.requires_grad:
            return True
        x = _functorch.get_unwrapped(x)
    return x.requires_grad
