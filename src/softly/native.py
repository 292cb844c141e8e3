"""The border to the compiled kernels, and the only importer of the compiled module.

A kernel enters by `operator`: its forward and backward become two torch operators, and a readable torch
reference stands in wherever a kernel can't go (other devices and dtypes, ``torch.func``, forward-mode
derivatives, derivatives of derivatives), so that nobody notices but by the clock.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
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
    """The instruction set of the kernels, ``"avx2"`` or ``"portable"``; None without kernels.

    Example:
        >>> softly.native.isa() in ("avx2", "portable", None)
        True
    """
    return _module.isa() if _module is not None else None


_SUFFIX = {torch.float32: "f32", torch.float64: "f64"}


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


def _reachable(x: Tensor) -> bool:
    """Whether a kernel may see ``x``: in CPU memory, of a dtype it knows, outside function transforms."""
    return _module is not None and x.device.type == "cpu" and x.dtype in _SUFFIX and not transformed(x)


def _plain(x: Tensor) -> bool:
    """Whether nothing but autograd watches ``x``: no compiler, no mode that sees every operator, no subclass."""
    return (
        type(x) in (Tensor, torch.nn.Parameter)
        and not torch.compiler.is_compiling()
        and not torch._C._len_torch_dispatch_stack()
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
        return (forward if _plain(x) else op)(x.contiguous(), *constants)

    return apply


def operator(
    name: str,
    *,
    forward: Callable[..., Any],
    forward_shape: Callable[..., Any],
    backward: Callable[..., Tensor],
    reference: Callable[..., Tensor],
) -> Callable[..., Tensor]:
    """Make a differentiable function of one tensor from a pair of kernels and their reference.

    Args:
        name: The operator's name in ``torch.ops.softly``; its backward is ``<name>_backward``.
        forward: ``(x, *constants) -> result``, or ``-> (result, *kept)`` where backward needs more than x.
            Annotated, as ``torch.library.custom_op`` wants it; ``x`` arrives contiguous.
        forward_shape: The same signature; gives empty tensors of the shapes that ``forward`` returns.
        backward: ``(grad, x, *kept, *constants) -> grad_x``, annotated.
        reference: ``(x, *constants) -> result`` in differentiable torch operations.

    Returns:
        ``(x, *constants) -> result``, which chooses between the kernels and the reference.
    """
    forward_op = torch.library.custom_op(f"softly::{name}", forward, mutates_args=())
    forward_op.register_fake(forward_shape)
    backward_op = torch.library.custom_op(f"softly::{name}_backward", backward, mutates_args=())
    backward_op.register_fake(lambda grad, x, *rest: torch.empty_like(x))
    num_constants = len(inspect.signature(forward).parameters) - 1

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        x, *ctx.constants = inputs
        kept = output[1:] if isinstance(output, tuple) else ()
        ctx.save_for_backward(x, *kept)

    def differentiate(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        x, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():
            # The gradient itself is to be differentiated: the reference can do that, to any order.
            (grad_x,) = torch.autograd.grad(reference(x, *ctx.constants), x, grad, create_graph=True)
        else:
            run = backward if _plain(grad) and _plain(x) else backward_op
            grad_x = run(grad.contiguous(), x, *kept, *ctx.constants)
        return (grad_x, *[None] * num_constants)

    forward_op.register_autograd(differentiate, setup_context=setup_context)

    class Kernel(torch.autograd.Function):
        """The same without torch's dispatcher, whose way through Python costs more than many a kernel."""

        @staticmethod
        def forward(ctx: Any, x: Tensor, *constants: Any) -> Tensor:
            output = forward(x, *constants)
            setup_context(ctx, (x, *constants), output)
            return output[0] if isinstance(output, tuple) else output

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            return differentiate(ctx, grad)

    def apply(x: Tensor, *constants: Any) -> Tensor:
        if not _reachable(x):
            return reference(x, *constants)
        output = (Kernel.apply if _plain(x) else forward_op)(x.contiguous(), *constants)
        return output[0] if isinstance(output, tuple) else output

    return apply
