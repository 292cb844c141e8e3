"""Operators of torch that are made of a kernel and its reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from softly.native import library
from softly.native.borders import lifted, plain, tensors_in

_FULL = (torch.float32, torch.float64)
_operators = torch.library.Library("softly", "DEF")


class Operator:
    """A function of one tensor or several, made of a kernel, of the kernel of its derivative, and of their reference.

    The kernels run in CPU memory, on the dtypes they know. Everywhere else the reference does: on other devices,
    under ``torch.func``, in forward mode, and where a derivative is differentiated again. To torch it is an operator
    ``torch.ops.softly.<name>`` that can be compiled, exported and loaded elsewhere, since its constants are numbers,
    strings and tensors. Outside of all that, plain eager code skips the dispatcher, which takes longer than a small
    kernel.

    Args:
        name: The operator's name in ``torch.ops.softly``; its backward is ``<name>_backward``.
        forward: ``(*tensors, *constants) -> result``, or ``-> (result, *kept)`` where backward needs more.
            Annotated, as ``torch.library.infer_schema`` wants it; all tensors arrive contiguous.
        shape: The same signature; gives empty tensors of the shapes that ``forward`` returns.
        backward: ``(grad, x, *kept, *constants) -> grad_x``, annotated. Of several tensors ``(grad, *tensors, *kept,
            *constants, wanted) -> list of gradients``, with ``wanted: list[bool]``; those not wanted may be empty.
            None for an operator that has no derivative.
        reference: ``(*tensors, *constants) -> result`` in differentiable torch operations that don't depend on data.
        check: ``(*tensors, *constants)``; raises for arguments that the kernel must not see.
        regular: ``(*tensors, *constants) -> bool``, which may look at data; where it denies, the reference takes the
            place of the kernel.
        second: ``(u, grad, x, *constants) -> (grad_x, grad_grad)``, of one tensor: the derivatives of the inner product
            of ``u`` and ``backward``.
        curved: ``(x, *constants) -> bool``, whether ``second`` knows the arguments; otherwise the reference has second
            derivatives, as it has all further ones.
        tensors: How many of the arguments are differentiated, the first ones; None where the first is a list of them.
        dtypes: Of the tensors that the kernels know.
    """

    def __init__(
        self,
        name: str,
        *,
        forward: Callable[..., Any],
        shape: Callable[..., Any],
        backward: Callable[..., Any] | None,
        reference: Callable[..., Tensor],
        check: Callable[..., None] | None = None,
        regular: Callable[..., bool] | None = None,
        second: Callable[..., tuple[Tensor, Tensor]] | None = None,
        curved: Callable[..., bool] | None = None,
        tensors: int | None = 1,
        dtypes: Sequence[torch.dtype] = _FULL,
    ) -> None:
        self.name, self.reference, self._shape, self._check = name, reference, shape, check
        self._forward, self._backward, self._regular = forward, backward, regular
        self._second, self._curved = second, curved
        self._tensors, self._dtypes = tensors, tuple(dtypes)
        self._leading = 1 if tensors is None else tensors
        self._op = self._register(name, forward, self._run, shape)
        if backward is not None:
            self._backward_op = self._register(f"{name}_backward", backward, self._run_backward, self._backward_shape)
        _operators.impl(name, self._autograd, "Autograd", with_keyset=True)
        _operators.impl(name, self._outputs_of_reference, "FuncTorchBatched")

    def __call__(self, *arguments: Any) -> Tensor:
        """The result, by the kernel or by the reference."""
        xs, constants = self._split(arguments)
        if library.module is None:
            library.missed()
            return self.reference(*arguments)
        if not self._fit(xs):
            return self.reference(*arguments)
        if not torch.compiler.is_compiling():
            everything = tensors_in(arguments)
            alone = plain(everything)
            if not alone and lifted(*everything):
                return self.reference(*arguments)
            if len(everything) > len(xs) and torch.is_grad_enabled() and self._needed(constants):
                return self.reference(*arguments)
            if alone:
                fits = self._regular is None or self._regular(*arguments)
                return self._direct(arguments, everything) if fits else self.reference(*arguments)
        output = self._op(*arguments)
        return output[0] if isinstance(output, tuple) else output

    def _direct(self, arguments: Sequence[Any], tensors: Sequence[Tensor]) -> Tensor:
        """Without torch's dispatcher."""
        differentiated = False
        for x in tensors:
            if not x.is_contiguous():
                arguments = _contiguous(arguments)
            differentiated = differentiated or x.requires_grad
        if differentiated and self._backward is not None and torch.is_grad_enabled():
            xs, constants = self._split(arguments)
            return _Differentiable.apply(self, None, constants, *xs)
        return self._results(self._forward(*arguments))[0]

    # What torch's dispatcher calls -------------------------------------------------------------------------------

    def _register(
        self, name: str, signature: Callable[..., Any], run: Callable[..., Any], shape: Callable[..., Any]
    ) -> Any:
        _operators.define(name + torch.library.infer_schema(signature, mutates_args=()))
        _operators.impl(name, run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"softly::{name}", shape, lib=_operators)
        return getattr(torch.ops.softly, name).default

    def _autograd(self, keyset: Any, *arguments: Any) -> Any:
        xs, constants = self._split(arguments)
        if lifted(*tensors_in(arguments)) or (torch.is_grad_enabled() and self._needed(constants)):
            return self._outputs_of_reference(*arguments)
        if self._backward is not None and torch.is_grad_enabled() and any(x.requires_grad for x in xs):
            outputs = _Differentiable.apply(self, keyset, constants, *xs)
            return outputs if len(outputs) > 1 else outputs[0]
        return self._below_autograd(keyset, arguments)

    def _below_autograd(self, keyset: Any, arguments: Sequence[Any]) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return self._op.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)

    def _outputs_of_reference(self, *arguments: Any) -> Any:
        """The reference with the outputs of the operator; what only a kernel needs is empty."""
        if self._backward is None:
            arguments = tuple(a.detach() if isinstance(a, Tensor) else a for a in arguments)
        result = self.reference(*arguments)
        count = len(self._op._schema.returns)
        return result if count == 1 else (result, *(result.new_empty(0) for _ in range(count - 1)))

    def _run(self, *arguments: Any) -> Any:
        """The operator on real tensors, whoever calls it."""
        if self._check is not None:
            self._check(*arguments)
        arguments = _contiguous(arguments)
        xs, _ = self._split(arguments)
        if self._native(xs, arguments):
            return self._forward(*arguments)
        result = self.reference(*arguments).contiguous()
        _, *kept = self._results(self._shape(*arguments))
        return (result, *(tensor.zero_() for tensor in kept)) if kept else result

    def _run_backward(self, grad: Tensor, *arguments: Any) -> Any:
        arguments = _contiguous(arguments)
        single = self._tensors == 1
        rest, wanted = (arguments, [True]) if single else (arguments[:-1], arguments[-1])
        xs, others = self._split(rest)
        kept, constants = others[: self._kept], others[self._kept :]
        called = (*self._join(xs), *constants)
        if self._check is not None:
            self._check(*called)
        for name, got, expected in zip(
            ("grad", *["kept"] * self._kept), (grad, *kept), self._results(self._shape(*called)), strict=True
        ):
            if got.shape != expected.shape or got.dtype != expected.dtype:
                raise ValueError(
                    f"softly.{self.name}_backward: {name} must be {expected.dtype} of shape {tuple(expected.shape)}, "
                    f"got {got.dtype} of shape {tuple(got.shape)}."
                )
        if self._native(xs, called):
            return self._backward(grad.contiguous(), *arguments)  # type: ignore[misc]
        with _autograd_again():
            found = self._pull(grad, xs, constants, wanted, create_graph=False)
        gradients = [x.new_empty(0) if g is None else g.contiguous() for g, x in zip(found, xs, strict=True)]
        return gradients[0] if single else gradients

    def _backward_shape(self, grad: Tensor, *arguments: Any) -> Tensor | list[Tensor]:
        xs, rest = self._split(arguments)
        if self._tensors == 1:
            return xs[0].new_empty(xs[0].shape)
        return [x.new_empty(x.shape if wanted else 0) for x, wanted in zip(xs, rest[-1], strict=True)]

    # Derivatives -------------------------------------------------------------------------------------------------

    def _gradients(
        self, grad: Tensor, saved: Sequence[Tensor], constants: Sequence[Any], wanted: list[bool], direct: bool
    ) -> list[Tensor | None]:
        xs, kept = saved[: len(wanted)], saved[len(wanted) :]
        again = torch.is_grad_enabled()
        alone = direct and plain((grad, *xs))
        if alone and again and self._second is not None and self._curved(*xs, *constants):  # type: ignore[misc]
            return [_Gradient.apply(self, constants, kept, grad, *xs)]
        alone = alone and not again
        if not alone and (again or lifted(grad, *xs)):
            # The gradient itself is differentiated or transformed: the reference can do that, to any order.
            return self._pull(grad, xs, constants, wanted, create_graph=again)
        run = self._backward if alone else self._backward_op
        if self._tensors == 1:
            return [run(grad.contiguous(), *xs, *kept, *constants)]  # type: ignore[misc]
        result = run(grad.contiguous(), *self._join(xs), *kept, *constants, wanted)  # type: ignore[misc]
        return [g if needed else None for g, needed in zip(result, wanted, strict=True)]

    def _pull(
        self,
        grad: Tensor,
        xs: Sequence[Tensor],
        constants: Sequence[Any],
        wanted: Sequence[bool],
        *,
        create_graph: bool,
    ) -> list[Tensor | None]:
        """The gradients of the reference, by autograd."""
        with torch.enable_grad():
            if not create_graph:
                xs = [x.detach().requires_grad_(needed) for x, needed in zip(xs, wanted, strict=True)]
            chosen = [x for x, needed in zip(xs, wanted, strict=True) if needed]
            result = self.reference(*self._join(xs), *constants)
            found = iter(torch.autograd.grad(result, chosen, grad, create_graph=create_graph))
        return [next(found) if needed else None for needed in wanted]

    # Arguments ---------------------------------------------------------------------------------------------------

    @property
    def _kept(self) -> int:
        return len(self._op._schema.returns) - 1

    def _split(self, arguments: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """The differentiated tensors among the arguments, and what follows them."""
        return (
            arguments[0] if self._tensors is None else arguments[: self._leading],
            arguments[self._leading :],
        )

    def _join(self, xs: Sequence[Any]) -> Sequence[Any]:
        return [list(xs)] if self._tensors is None else xs

    def _fit(self, xs: Sequence[Tensor]) -> bool:
        return all(x.device.type == "cpu" and x.dtype in self._dtypes for x in xs)

    def _needed(self, constants: Sequence[Any]) -> bool:
        """Whether a derivative is asked for that the kernels don't have: in a constant."""
        return any(x.requires_grad for x in tensors_in(constants))

    def _native(self, xs: Sequence[Tensor], arguments: Sequence[Any]) -> bool:
        """Whether the kernels may see the arguments."""
        return (
            library.module is not None
            and self._fit(xs)
            and all(x.device.type == "cpu" for x in tensors_in(arguments))
            and (self._regular is None or self._regular(*arguments))
        )

    @staticmethod
    def _results(output: Any) -> tuple[Tensor, ...]:
        return output if isinstance(output, tuple) else (output,)


class _Differentiable(torch.autograd.Function):
    """An operator with its derivative: by its kernels, or, with a keyset, by what the dispatcher has below autograd."""

    @staticmethod
    def forward(ctx: Any, operator: Operator, keyset: Any, constants: Sequence[Any], *xs: Tensor) -> Any:
        arguments = (*operator._join(xs), *constants)
        output = operator._forward(*arguments) if keyset is None else operator._below_autograd(keyset, arguments)
        result, *kept = operator._results(output)
        ctx.operator, ctx.constants, ctx.direct = operator, constants, keyset is None
        ctx.save_for_backward(*xs, *kept)
        if keyset is None:
            return result
        ctx.mark_non_differentiable(*kept)
        return (result, *kept)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Any, ...]:
        wanted = list(ctx.needs_input_grad[3:])
        gradients = ctx.operator._gradients(grad, ctx.saved_tensors, ctx.constants, wanted, ctx.direct)
        return None, None, None, *gradients


class _Gradient(torch.autograd.Function):
    """The gradient of an operator of one tensor that knows its second derivatives."""

    @staticmethod
    def forward(
        ctx: Any, operator: Operator, constants: Sequence[Any], kept: Sequence[Tensor], grad: Tensor, x: Tensor
    ) -> Tensor:
        ctx.operator, ctx.constants = operator, constants
        ctx.save_for_backward(grad, x)
        return operator._backward(grad.contiguous(), x, *kept, *constants)  # type: ignore[misc]

    @staticmethod
    def backward(ctx: Any, u: Tensor) -> tuple[Any, ...]:
        operator, (grad, x) = ctx.operator, ctx.saved_tensors
        again = torch.is_grad_enabled()
        if not again and plain((u, grad, x)):
            curved, pushed = operator._second(u.contiguous(), grad.contiguous(), x.contiguous(), *ctx.constants)
            return None, None, None, pushed, curved
        with torch.enable_grad():
            # The gradient may itself depend on x, which is no part of this derivative.
            pair = (grad.view_as(grad), x.view_as(x)) if again else (grad.detach(), x.detach())
            grad, x = pair if again else (t.requires_grad_() for t in pair)
            (gradient,) = operator._pull(grad, [x], ctx.constants, [True], create_graph=True)
            wanted = [t for t in (grad, x) if t.requires_grad]
            found = iter(torch.autograd.grad(gradient, wanted, u, create_graph=again, materialize_grads=True))
        return None, None, None, *(next(found) if t.requires_grad else None for t in (grad, x))


def _autograd_again() -> Any:
    """Lets autograd see what an operator computes that runs below it."""
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in ("AutogradFunctionality", "ADInplaceOrView"):
        excluded = excluded.remove(getattr(torch._C.DispatchKey, key))
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded)


def _contiguous(arguments: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(
        a.contiguous()
        if isinstance(a, Tensor)
        else [e.contiguous() if isinstance(e, Tensor) else e for e in a]
        if isinstance(a, list)
        else a
        for a in arguments
    )
