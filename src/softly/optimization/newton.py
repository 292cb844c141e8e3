"""Newton losses: second-order steps on the loss, first-order training of what is before it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from softly import native
from softly._compiling import outside
from softly.estimators import Derivatives, calls
from softly.optimization.closed_forms import CLOSED_FORMS, one_hot
from softly.optimization.splitting import OUTSIDE, Reduction, checked_reduction, pulled_to, trained, untransformed

__all__ = ["NewtonLoss", "NewtonStep"]

Curvature = Literal["hessian", "fisher", "elementwise"]
_SHARE = 0.1  # of the mean eigenvalue, for "auto"
_FLOOR = 1e-8  # of the largest eigenvalue, where the curvature is not positive definite
_ROUNDING = np.finfo(np.float64).eps
_KERNELS = (torch.float32, torch.float64)
_MOST = 256  # numbers an example, beyond which BLAS is faster than our kernel
Array = np.ndarray


class NewtonStep(NamedTuple):
    """What `NewtonLoss.last` tells of a step.

    Example:
        >>> newton = softly.NewtonLoss(lambda y: y.cos().sum(-1), curvature="elementwise", tikhonov=0.0)
        >>> _ = newton(torch.tensor([[0.1], [3.0]]))
        >>> newton.last.changed
        1
    """

    value: Tensor
    """The loss, as it was returned: (B,), or the sum."""
    tikhonov: Tensor
    """What was added to the curvature: () or, elementwise, (B,)."""
    changed: int
    """How many eigenvalues were changed, since the curvature was not positive definite; of all matrices."""


class NewtonLoss(torch.nn.Module):
    """A loss whose gradient is the Newton step of another: ``y - z*`` with ``z* = y - (C + λ I)⁻¹ ∇loss(y)``.

    Its value is ``½ |y - z*|²``, where z* counts as fixed. Where the loss is quadratic, one step of gradient descent
    with step size 1 on this loss solves it, for ``curvature="elementwise"`` and ``tikhonov=0``. As ``tikhonov ->
    inf`` the step is the gradient over λ. The step is always a descent direction: where ``C + λ I`` is not positive
    definite, its eigenvalues e become ``max(|e|, λ, 1e-8 max |e|)``; `last` tells how many were changed.

    Args:
        loss: ``(y, *args)``, of ``y`` (B, ...), returns the loss of each example (B,), the recommended form, or a
            scalar that is their **sum**: a mean can't be told from a sum, and would make steps with the Fisher B
            times too long and λ B times as strong beside a Hessian. (A loss with an attribute ``reduction`` of "mean"
            is refused.) Examples must not depend on each other: a loss that couples a batch of N examples of m numbers
            is a loss of one example, ``y.reshape(1, N * m)``. The first call checks that, of a scalar by its second
            derivatives, if it has any. `smooth` and `FenchelYoungLoss` give stochastic Hessians. A name stands for a
            closed form, of ``(y, target)``: "squared_error", "softmax_cross_entropy", "binary_cross_entropy" (``y``
            probabilities) or "sigmoid_binary_cross_entropy", sums over the entries of an example.
        curvature: "hessian", the mean of the Hessians over the batch; "fisher", the mean of the outer products of the
            gradients; "elementwise", the Hessian of each example, which is less stable.
        tikhonov: λ >= 0, absolute, added to the curvature C; "auto" is a tenth of the mean absolute eigenvalue of C,
            and 1 where that is 0. Ranking losses and the softmax cross-entropy have singular curvatures: 0 is not for
            them.
        reduction: "sum", or "mean", which divides value and gradient by B and changes nothing else.

    Parameters inside the loss would get no gradient, and are refused; with ``split(stage, step=newton.target)`` they
    get theirs, the stage being the sum of the loss. Curvatures are averaged and systems solved in float64; Hessians are
    exact through softly's kernels.

    Example:
        >>> newton = softly.NewtonLoss(lambda y: (y - 3.0).square().sum(-1), tikhonov=0.0)
        >>> y = torch.zeros(2, 4, requires_grad=True)
        >>> newton(y).backward()
        >>> (y - y.grad)[0]
        tensor([3., 3., 3., 3.], grad_fn=<SelectBackward0>)
    """

    _name = "softly.NewtonLoss"

    def __init__(
        self,
        loss: str | Callable[..., Tensor],
        *,
        curvature: Curvature = "hessian",
        tikhonov: float | Literal["auto"] = "auto",
        reduction: Reduction = "sum",
    ) -> None:
        super().__init__()
        if isinstance(loss, str) and loss not in CLOSED_FORMS:
            raise ValueError(f"{self._name}: loss must be callable or one of {', '.join(CLOSED_FORMS)}, got {loss!r}.")
        if getattr(loss, "reduction", None) == "mean":
            raise ValueError(
                f"{self._name}: the reduction of the loss must be 'none' or 'sum', got 'mean', which would scale steps."
            )
        if isinstance(loss, torch.nn.Module) and any(p.requires_grad for p in loss.parameters()):
            raise ValueError(
                f"{self._name}: the loss has parameters, which would get no gradient: freeze them, or train with "
                "softly.optimization.split(loss, step=...) and the target of a Newton loss of a plain function of it."
            )
        if curvature not in ("hessian", "fisher", "elementwise"):
            raise ValueError(
                f"{self._name}: curvature must be 'hessian', 'fisher' or 'elementwise', got {curvature!r}."
            )
        if tikhonov != "auto":
            if isinstance(tikhonov, (str, bool)) or not isinstance(tikhonov, (int, float)):
                raise ValueError(f"{self._name}: tikhonov must be a number or 'auto', got {tikhonov!r}.")
            if not 0 <= tikhonov < float("inf"):
                raise ValueError(f"{self._name}: tikhonov must be at least 0 and finite, got {tikhonov}.")
        self.loss, self.curvature, self.tikhonov = loss, curvature, tikhonov
        self.reduction = checked_reduction(reduction, self._name)
        self.last: NewtonStep | None = None
        """Of the last call."""
        self._independent = False

    @outside(OUTSIDE)
    def forward(self, y: Tensor, *args: Any) -> Tensor:
        """``½ |y - z*|²``.

        Args:
            y: (B, ...) What the loss takes.
            args: What it takes besides; they get no gradient.
        """
        calls.constant(args, self._name)
        return pulled_to(y, self._target(y, args, alone=torch.is_grad_enabled()), self.reduction)

    @outside(OUTSIDE)
    def target(self, y: Tensor, *args: Any) -> Tensor:
        """z*, the end of the step, as `split` takes it for its ``step``: a constant.

        Args:
            y: (B, ...) What the loss takes.
            args: What it takes besides.
        """
        return self._target(y, args, alone=False)

    def _target(self, y: Tensor, args: tuple[Any, ...], alone: bool) -> Tensor:
        """z*; ``alone`` refuses a loss in which anything but ``y`` is trained."""
        read = calls.readable(y, self._name)
        untransformed(y, self._name)
        if not len(read):
            self.last = NewtonStep(read.new_zeros(()), read.new_zeros((), dtype=torch.float64), 0)
            return read.clone()
        if self.curvature == "fisher":
            value, gradient = self._first(read, args, alone)
            ends = self._fast_fisher_ends(read, gradient, value)
            if ends is not None:
                return ends
            step, tikhonov, changed = self._fisher_step(self._numbers(gradient, 1))
        else:
            value, gradient, hessian = self._second(read, args, alone)
            matrices = self._numbers(hessian, 2)
            matrices = 0.5 * (matrices + matrices.swapaxes(-1, -2))
            if self.curvature == "hessian":
                matrices = matrices.mean(0, keepdims=True)
            size = np.abs(np.linalg.eigvalsh(matrices)).mean(-1) if self.tikhonov == "auto" else np.zeros(len(matrices))
            step, tikhonov, changed = self._solved(matrices, self._numbers(gradient, 1), self._damping(size))
        damping = torch.from_numpy(tikhonov if self.curvature == "elementwise" else tikhonov.reshape(()))
        self.last = NewtonStep(value, damping, changed)
        return read - torch.from_numpy(step).to(read).reshape(read.shape)

    def _numbers(self, x: Tensor, dims: int) -> Array:
        """``x`` in float64, with all dimensions after the first ``dims`` made one."""
        numbers: Array = calls.rows(x, dims).double().cpu().numpy()
        if not math.isfinite(numbers.sum()) and not np.isfinite(numbers).all():
            raise ValueError(f"{self._name}: the derivatives of the loss must be finite.")
        return numbers

    # Derivatives ---------------------------------------------------------------------------------------------------

    def _first(self, y: Tensor, args: tuple[Any, ...], alone: bool) -> tuple[Tensor, Tensor]:
        """The loss and its gradient."""
        if isinstance(self.loss, str):
            return self._closed(y, args)[:2]
        with torch.enable_grad():
            leaf = y.detach().requires_grad_()
            value = self._evaluated(leaf, args, alone)
            unknown = not self._independent and len(y) > 1
            (gradient,) = torch.autograd.grad(value.sum(), leaf, retain_graph=unknown)
            if unknown:
                self._check_independence(value, leaf)
        return value.detach(), gradient

    def _second(self, y: Tensor, args: tuple[Any, ...], alone: bool) -> Derivatives:
        """The loss, its gradient, and the Hessian of each example."""
        if isinstance(self.loss, str):
            return self._closed(y, args)
        if hasattr(self.loss, "derivatives"):
            return self.loss.derivatives(y, *args)
        with torch.enable_grad():
            leaf = y.detach().requires_grad_()
            value = self._evaluated(leaf, args, alone)
            (gradient,) = torch.autograd.grad(value.sum(), leaf, create_graph=True)
            if not self._independent and len(y) > 1:
                self._check_independence(value, leaf)
            flat = calls.rows(gradient, 1)
            if not gradient.requires_grad:  # a linear loss
                return Derivatives(value.detach(), gradient, flat.new_zeros(*flat.shape, flat.shape[1]))
            hessian = torch.stack([calls.rows(self._again(flat[:, i].sum(), leaf), 1) for i in range(flat.shape[1])], 1)
        return Derivatives(value.detach(), gradient.detach(), hessian)

    def _closed(self, y: Tensor, args: tuple[Any, ...]) -> Derivatives:
        assert isinstance(self.loss, str)
        if y.ndim != 2 or len(args) != 1:
            raise ValueError(
                f"{self._name}: {self.loss!r} takes y of shape (B, m) and one target, got shape {tuple(y.shape)} and "
                f"{len(args)} targets."
            )
        return CLOSED_FORMS[self.loss](y, one_hot(y, args[0], self.loss, self._name))

    def _evaluated(self, leaf: Tensor, args: tuple[Any, ...], alone: bool) -> Tensor:
        assert not isinstance(self.loss, str)
        value = self.loss(leaf, *args)
        if not isinstance(value, Tensor) or value.shape not in ((), leaf.shape[:1]):
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"{self._name}: the loss must return shape ({len(leaf)},), one number for each example, or their sum, "
                f"a scalar; got {got}."
            )
        if not value.requires_grad:
            raise ValueError(
                f"{self._name}: the loss does not depend on y by differentiable operations; softly.estimators.smooth "
                "makes one of it that does."
            )
        if alone and trained(value, leaf):
            raise ValueError(
                f"{self._name}: only y gets a gradient, but the loss has captured parameters that require one: detach "
                "them, or give them theirs by softly.optimization.split(stage, step=newton.target), with this loss for "
                "newton and its sum for stage."
            )
        return value

    @staticmethod
    def _again(value: Tensor, leaf: Tensor, weight: Tensor | None = None) -> Tensor:
        return torch.autograd.grad(value, leaf, weight, retain_graph=True, materialize_grads=True)[0]

    def _check_independence(self, value: Tensor, leaf: Tensor) -> None:
        """Refuse a loss that couples examples.

        Of a loss for each example no other may have a derivative, and of a sum its gradient for each example.
        """
        self._independent, each = True, value
        if not value.ndim:
            each = calls.rows(torch.autograd.grad(value, leaf, create_graph=True)[0], 1)
            try:
                self._again(each, leaf, torch.zeros_like(each))
            except RuntimeError:  # it has no second derivatives: nobody can tell
                return
        # Numbers that differ, so that what examples do to each other does not cancel.
        probe = torch.cos(2.0 * torch.arange(each.numel(), device=each.device)).to(each).reshape(each.shape)
        places = torch.arange(len(leaf), device=leaf.device)
        for digit, side in itertools.product(range((len(leaf) - 1).bit_length()), (0, 1)):  # any two differ in a digit
            chosen = (places >> digit) % 2 == side
            weight = probe * chosen.reshape(-1, *[1] * (each.ndim - 1))
            found = calls.rows(self._again(each, leaf, weight), 1).abs()
            # What has no part in it has a derivative of 0, but for what may have been rounded.
            if (found[~chosen] > torch.finfo(leaf.dtype).eps * found.amax()).any():
                self._independent = False
                raise ValueError(
                    f"{self._name}: the loss couples the examples of the batch: give them as one example, "
                    f"y.reshape(1, {leaf.numel()})."
                )

    # Steps: of matrices so small that numpy is faster --------------------------------------------------------------

    def _fisher_step(self, gradient: Array) -> tuple[Array, Array, int]:
        """The step with the mean outer product of the gradients (B, m), by the smaller of two Gram matrices."""
        size, m = gradient.shape
        # (Gᵀ G + λ)⁻¹ Gᵀ = Gᵀ (G Gᵀ + λ)⁻¹
        rows = gradient.T if m > size else gradient
        matrix = rows.T @ rows / size
        step, tikhonov, changed = self._solved(matrix[None], rows, self._damping(matrix.trace().reshape(1) / m))
        return step.T if m > size else step, tikhonov, changed

    def _fast_fisher_ends(self, y: Tensor, gradient: Tensor, value: Tensor) -> Tensor | None:
        """z* by a kernel, which takes less than calling numpy does; None where it can't be."""
        size, m = len(y), y.numel() // len(y)
        if not native.available() or y.device.type != "cpu" or y.dtype not in _KERNELS or not m <= size or m > _MOST:
            return None
        y, gradient = y.contiguous(), gradient.contiguous()
        ends, tikhonov = torch.empty_like(y), torch.zeros((), dtype=torch.float64)
        automatic = self.tikhonov == "auto"
        if not automatic:
            tikhonov.fill_(float(self.tikhonov))
        pointers = (y.data_ptr(), gradient.data_ptr(), ends.data_ptr(), tikhonov.data_ptr())
        if native.kernel("fisher_step", y.dtype)(*pointers, automatic, size, m):
            return None
        self.last = NewtonStep(value, tikhonov, 0)
        return ends

    def _damping(self, size: Array) -> Array:
        """λ for curvatures whose mean absolute eigenvalues are ``size``."""
        if self.tikhonov != "auto":
            return np.full_like(size, self.tikhonov)
        return np.where(size == 0, 1.0, _SHARE * size)

    def _solved(self, matrices: Array, gradient: Array, tikhonov: Array) -> tuple[Array, Array, int]:
        """``(C + λ)⁻¹ g`` for rows g of ``gradient`` (B, m), with C of ``matrices`` (1 or B, m, m) for all or each."""
        damped = matrices.copy()
        np.einsum("bii->bi", damped)[...] += tikhonov[:, None]
        shared = len(matrices) == 1
        right = gradient.T[None] if shared else gradient[..., None]
        step, changed = (
            (np.linalg.solve(damped, right), 0) if _definite(damped) else self._held(damped, right, tikhonov)
        )
        return step[0].T if shared else step[..., 0], tikhonov, changed

    def _held(self, damped: Array, right: Array, tikhonov: Array) -> tuple[Array, int]:
        """The same where not all matrices are positive definite: the eigenvalues of those that aren't are held."""
        values, vectors = np.linalg.eigh(damped)
        largest = np.abs(values).max(-1, keepdims=True)
        definite = values[..., :1] > _ROUNDING * values.shape[-1] * largest
        held = np.maximum(np.maximum(np.abs(values), tikhonov[:, None]), _FLOOR * largest)
        held = np.where(definite, values, held)
        along = vectors.swapaxes(-1, -2) @ right
        if (along[np.broadcast_to(held[..., None] == 0, along.shape)] != 0).any():
            raise ValueError(f"{self._name}: the curvature is 0, and so is tikhonov, where the gradient is not.")
        step = vectors @ (along / np.where(held == 0, 1.0, held)[..., None])
        return step, int((held != values).sum())

    def extra_repr(self) -> str:
        name = self.loss if isinstance(self.loss, str) else calls.name_of(self.loss)
        return f"{name}, curvature={self.curvature!r}, tikhonov={self.tikhonov!r}"


def _definite(matrices: Array) -> bool:
    """Whether all are positive definite: pivots that are rounding errors are those of a singular matrix."""
    try:
        pivots = np.linalg.cholesky(matrices).diagonal(axis1=-2, axis2=-1)
    except np.linalg.LinAlgError:
        return False
    return bool((pivots.min(-1) ** 2 > _ROUNDING * matrices.shape[-1] * pivots.max(-1) ** 2).all())
