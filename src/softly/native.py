"""The border to the compiled kernels, and the only importer of the compiled module.

A kernel enters by `operator`: its forward and backward become two torch operators, and a readable torch
reference stands in wherever a kernel can't go (other devices and dtypes, ``torch.func``, forward-mode
derivatives, derivatives of derivatives), so that nobody notices but by the clock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

__all__ = ["available", "isa"]


def _load() -> ModuleType | None:
    if os.environ.get("SOFTLY_NATIVE", "1") == "0":
        return None
    try:
        from softly import _native
    except ImportError:
        return None
    return _native


_module = _load()


def available() -> bool:
    """Whether the compiled kernels are in use; ``SOFTLY_NATIVE=0`` in the environment switches them off.

    Example:
        >>> softly.native.available() == (softly.native.isa() is not None)
        True
    """
    return _module is not None


def isa() -> str | None:
    """The instruction set of the kernels, ``"avx512"``, ``"avx2"`` or ``"portable"``; None without kernels.

    It is the widest that the machine has, or a narrower one that the environment names: ``SOFTLY_ISA=avx2``.

    Example:
        >>> softly.native.isa() in ("avx512", "avx2", "portable", None)
        True
    """
    return _module.isa() if _module is not None else None


_SUFFIX = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16"}
_FULL = (torch.float32, torch.float64)


def function(name: str) -> Callable[..., Any]:
    """The compiled function ``name``."""
    return getattr(_module, name)


def kernel(name: str, dtype: torch.dtype) -> Callable[..., Any]:
    """The compiled function ``name`` for ``dtype``."""
    return function(f"{name}_{_SUFFIX[dtype]}")


def transformed(x: Tensor) -> bool:
    """Whether ``x`` is seen by ``torch.func`` or by forward-mode differentiation, which know no kernels."""
    if torch.compiler.is_compiling():
        return False
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(x)
    return wrapped or torch.autograd.forward_ad._current_level >= 0


def _reachable(x: Tensor, dtypes: Sequence[torch.dtype] = _FULL) -> bool:
    """Whether a kernel may see ``x``: in CPU memory, of a dtype it knows, outside function transforms."""
    return _module is not None and x.device.type == "cpu" and x.dtype in dtypes and not transformed(x)


def _observed(*tensors: Tensor) -> bool:
    """Whether someone follows what is computed, or only pretends to compute it: the compiler, a mode, a subclass."""
    return (
        torch.compiler.is_compiling()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or any(type(x) not in (Tensor, torch.nn.Parameter) for x in tensors)
    )


def constant(
    name: str,
    *,
    forward: Callable[..., Tensor],
    forward_shape: Callable[..., Tensor],
    reference: Callable[..., Tensor],
) -> Callable[..., Tensor]:
    """Make a function of one tensor that has no derivative from a kernel and its reference.

    Args:
        name: The operator's name in ``torch.ops.softly``.
        forward: ``(x, *constants) -> result``, annotated; ``x`` arrives contiguous and detached.
        forward_shape: The same signature; gives an empty tensor of the shape that ``forward`` returns.
        reference: ``(x, *constants) -> result`` in torch operations.

    Returns:
        ``(x, *constants) -> result``, which chooses between the kernel and the reference.
    """
    op = torch.library.custom_op(f"softly::{name}", forward, mutates_args=())
    op.register_fake(forward_shape)

    def apply(x: Tensor, *constants: Any) -> Tensor:
        x = x.detach()
        if not _reachable(x):
            return reference(x, *constants)
        return (op if _observed(x) else forward)(x.contiguous(), *constants)

    return apply


def operator(
    name: str,
    *,
    forward: Callable[..., Any],
    forward_shape: Callable[..., Any],
    backward: Callable[..., Any],
    reference: Callable[..., Tensor],
    tensors: int | None = 1,
    dtypes: Sequence[torch.dtype] = _FULL,
) -> Callable[..., Tensor]:
    """Make a differentiable function of one tensor, or several, from a pair of kernels and their reference.

    Args:
        name: The operator's name in ``torch.ops.softly``; its backward is ``<name>_backward``.
        forward: ``(*tensors, *constants) -> result``, or ``-> (result, *kept)`` where backward needs more.
            Annotated, as ``torch.library.custom_op`` wants it; the tensors arrive contiguous.
        forward_shape: The same signature; gives empty tensors of the shapes that ``forward`` returns.
        backward: ``(grad, x, *kept, *constants) -> grad_x``, annotated. Of several tensors ``(grad, *tensors, *kept,
            *constants, wanted) -> list of gradients``, with ``wanted: list[bool]``; those not wanted may be empty.
        reference: ``(*tensors, *constants) -> result`` in differentiable torch operations.
        tensors: How many of the arguments are differentiated, the first ones; None where the first is a list of them.
        dtypes: Of the tensors that the kernels know.

    Returns:
        ``(*tensors, *constants) -> result``, which chooses between the kernels and the reference.
    """
    forward_op = torch.library.custom_op(f"softly::{name}", forward, mutates_args=())
    forward_op.register_fake(forward_shape)
    backward_op = torch.library.custom_op(f"softly::{name}_backward", backward, mutates_args=())
    single, leading = tensors == 1, 1 if tensors is None else tensors

    def take(arguments: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """The tensors among the arguments, and what follows them."""
        return arguments[0] if tensors is None else arguments[:leading], arguments[leading:]

    def give(xs: Sequence[Any]) -> Sequence[Any]:
        """The tensors as arguments."""
        return [list(xs)] if tensors is None else xs

    def backward_shape(grad: Tensor, *arguments: Any) -> Tensor | list[Tensor]:
        xs, rest = take(arguments)
        if single:
            return torch.empty_like(xs[0])
        return [torch.empty_like(x) if wanted else x.new_empty(0) for x, wanted in zip(xs, rest[-1], strict=True)]

    backward_op.register_fake(backward_shape)

    def gradients(
        run: Callable[..., Any], grad: Tensor, saved: Sequence[Tensor], constants: Sequence[Any], wanted: list[bool]
    ) -> list[Tensor | None]:
        xs, kept = saved[: len(wanted)], saved[len(wanted) :]
        if torch.is_grad_enabled():
            # The gradient itself is to be differentiated: the reference can do that, to any order.
            chosen = [x for x, needed in zip(xs, wanted, strict=True) if needed]
            found = iter(torch.autograd.grad(reference(*give(xs), *constants), chosen, grad, create_graph=True))
            return [next(found) if needed else None for needed in wanted]
        if single:
            return [run(grad.contiguous(), *xs, *kept, *constants)]
        result = run(grad.contiguous(), *give(xs), *kept, *constants, wanted)
        return [g if needed else None for g, needed in zip(result, wanted, strict=True)]

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        xs, ctx.constants = take(inputs)
        ctx.save_for_backward(*xs, *(output[1:] if isinstance(output, tuple) else ()))

    def differentiate(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
        wanted = list(take(ctx.needs_input_grad)[0])
        none = [
            [None] * len(c) if isinstance(c, list) and any(isinstance(v, Tensor) for v in c) else None
            for c in ctx.constants
        ]
        return *give(gradients(backward_op, grad, ctx.saved_tensors, ctx.constants, wanted)), *none

    forward_op.register_autograd(differentiate, setup_context=setup_context)

    class Direct(torch.autograd.Function):
        """The same without torch.library, whose bookkeeping takes longer than a small kernel."""

        @staticmethod
        def forward(ctx: Any, constants: Sequence[Any], *xs: Tensor) -> Tensor:
            output = forward(*give(xs), *constants)
            result, *kept = output if isinstance(output, tuple) else (output,)
            ctx.constants = constants
            ctx.save_for_backward(*xs, *kept)
            return result

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
            wanted = list(ctx.needs_input_grad[1:])
            return None, *gradients(backward, grad, ctx.saved_tensors, ctx.constants, wanted)

    def apply(*arguments: Any) -> Tensor:
        xs, constants = take(arguments)
        if not all(_reachable(x, dtypes) for x in xs):
            return reference(*arguments)
        xs = [x.contiguous() for x in xs]
        if not _observed(*xs):
            return Direct.apply(constants, *xs)
        output = forward_op(*give(xs), *constants)
        return output[0] if isinstance(output, tuple) else output

    return apply
