"""Calling black boxes: what they are given, what they must give back, and errors that name them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch
from torch import Tensor

from softly import _inputs, native

__all__ = ["each"]

OUTSIDE = (
    "softly.estimators: a black box runs outside of compiled code. Compile the model without fullgraph=True, or "
    "compile what is before and after it."
)


def readable(y: Tensor, function: str) -> Tensor:
    """The numbers of ``y``, of shape (B, ...), which black boxes are asked with."""
    _inputs.floating(y, function, "y")
    if y.ndim == 0:
        raise ValueError(f"{function}: y must have a first dimension of examples, got a single number.")
    if native.mapped():
        raise RuntimeError(
            f"{function}: vmap, and jacfwd and hessian by it, give one example at a time, but this takes all of them: "
            "call it without vmap."
        )
    read = native.data(y)
    if read is None:
        raise RuntimeError(f"{function}: y has no numbers that a black box could be asked with. {OUTSIDE}")
    if math.isnan(read.sum()) and read.isnan().any():  # a sum tells faster
        example = int(rows(read, 1).isnan().any(1).nonzero()[0])
        raise ValueError(f"{function}: y must not be NaN, got NaN in example {example}.")
    return read


def rows(x: Tensor, dims: int) -> Tensor:
    """``x`` with all dimensions after the first ``dims`` made one."""
    return x.reshape(*x.shape[:dims], x.shape[dims:].numel())


def constant(tensors: Sequence[Any], function: str) -> None:
    """Refuse arguments that ask for a gradient they would not get."""
    if torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in tensors):
        raise ValueError(f"{function}: only y gets a gradient; detach the other arguments, of which one requires one.")


def untrained(answer: Any, name: str, function: str) -> None:
    """Refuse an answer of the black box ``name`` that would hand a gradient on, which stops at ``function``."""
    if isinstance(answer, (list, tuple)):
        for part in answer:
            untrained(part, name, function)
    elif isinstance(answer, Tensor) and native.graphed(answer):
        raise ValueError(
            f"{function}: only y gets a gradient, but {name} returned a tensor that requires one, for parameters that "
            "it has captured: detach them or what it returns, and train them by a loss of their own."
        )


def name_of(fn: Callable[..., Any]) -> str:
    """What to call a black box in errors."""
    if isinstance(fn, functools.partial):
        return name_of(fn.func)
    if isinstance(fn, _Each):
        return name_of(fn.fn)
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__


def evaluate(
    fn: Callable[..., Any],
    x: Tensor,
    arguments: Sequence[Any],
    function: str,
    *,
    vectorized: bool = True,
    like: Tensor | None = None,
    infinite: bool = False,
) -> Tensor:
    """The black box ``fn`` at all samples.

    It is called in the mode of its caller, so that parameters that would lose their gradients are seen.

    Args:
        x: (S, B, ...) The samples.
        arguments: What ``fn`` takes after them.
        function: Who asks, for errors.
        vectorized: Whether ``fn`` takes all samples at once.
        like: Tensor of the shape (B, ...) that each sample's answer must have; None for any.
        infinite: Whether answers may be infinite.

    Returns:
        (S, B, ...) of the dtype and on the device of ``x``.
    """
    name, samples = name_of(fn), x.shape[0]

    def ask(inputs: Tensor, leading: torch.Size, where: str) -> Tensor:
        try:
            answer = fn(inputs.detach().clone(), *arguments)  # which may work in place
        except Exception as error:
            raise RuntimeError(f"{function}: {name} failed{where}: {type(error).__name__}: {error}") from error
        untrained(answer, name, function)
        try:
            answer = torch.as_tensor(answer)
        except Exception as error:
            raise TypeError(
                f"{function}: {name} must return numbers, got {type(answer).__name__}{where}: {error}"
            ) from error
        shape = None if like is None else (*leading[:-1], *like.shape)
        if answer.shape[: len(leading)] != leading or (shape is not None and answer.shape != shape):
            wanted = ", ".join(map(str, (*leading, "...") if shape is None else shape))
            raise ValueError(f"{function}: {name} must return shape ({wanted}), got {tuple(answer.shape)}{where}.")
        if answer.dtype.is_complex:
            raise TypeError(f"{function}: {name} must return real numbers, got {answer.dtype}{where}.")
        return answer.detach().to(x, copy=True)  # a black box may use its memory again

    if vectorized:
        result = ask(x, x.shape[:2], "")
    elif samples == 0:
        raise ValueError(f"{function}: there must be at least one sample.")
    else:
        result = torch.stack([ask(x[s], x.shape[1:2], f" on sample {s}") for s in range(samples)])
    bad = result.isnan() if infinite else ~result.isfinite()
    if bad.any():
        sample, example = rows(bad, 2).any(2).nonzero()[0].tolist()
        value = result[sample, example][bad[sample, example]].flatten()[0].item()
        raise ValueError(f"{function}: {name} returned {value} for sample {sample} of example {example}.")
    return result


def each(fn: Callable[..., Any], *, dims: int = 1, processes: int = 0) -> Callable[..., Tensor]:
    """Make a function of one example into one of any number of them, as the estimators call it.

    The results are those of calling ``fn`` in a loop over the leading dimensions, whatever the number of processes.

    Args:
        fn: Takes one example, a tensor of ``dims`` dimensions, and one example of each further argument; returns a
            number, an array or a tensor, always of the same shape.
        dims: How many dimensions an example has.
        processes: How many processes share the calls; 0 calls in this one. ``fn`` and its results have to be picklable
            then, and are sent to processes that are started anew and stay for later calls.

    Returns:
        A callable of (..., \\*example) that returns (..., \\*result). Further arguments have the batch as their first
        dimension, the last of the leading ones.

    Example:
        >>> count = softly.estimators.each(lambda y: float((y > 0).sum()))
        >>> count(torch.tensor([[1.0, -1.0], [2.0, 3.0]]))
        tensor([1., 2.])
    """
    function = "softly.estimators.each"
    if _inputs.integer(dims, function, "dims") < 0:
        raise ValueError(f"{function}: dims must not be negative, got {dims}.")
    if _inputs.integer(processes, function, "processes") < 0:
        raise ValueError(f"{function}: processes must not be negative, got {processes}.")
    return _Each(fn, dims, processes)


class _Each:
    def __init__(self, fn: Callable[..., Any], dims: int, processes: int) -> None:
        self.fn, self.dims, self.processes = fn, dims, processes
        self._pool: Executor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}

    def _executor(self) -> Executor:
        if self._pool is None:
            # A fork of a process whose torch has threads may hang.
            self._pool = ProcessPoolExecutor(self.processes, mp_context=get_context("forkserver"))
        return self._pool

    def __call__(self, y: Tensor, *arguments: Any) -> Tensor:
        function = "softly.estimators.each"
        if y.ndim <= self.dims:
            raise ValueError(
                f"{function}: y must have a batch before its {self.dims} dimensions of an example, got shape "
                f"{tuple(y.shape)}."
            )
        leading = y.shape[: y.ndim - self.dims]
        examples = y.detach().reshape(-1, *y.shape[len(leading) :])
        batch = leading[-1]
        for argument in arguments:
            if len(argument) != batch:
                raise ValueError(f"{function}: further arguments must have {batch} examples, got {len(argument)}.")
        calls = [(examples[i], *(argument[i % batch] for argument in arguments)) for i in range(len(examples))]
        places = [_place(i, leading) for i in range(len(examples))]
        if not calls:
            raise ValueError(
                f"{function}: nobody knows the shape of the result of {name_of(self.fn)} without examples."
            )
        if self.processes:
            chunk = -(-len(calls) // (4 * self.processes))
            answers = list(self._executor().map(_call, [self.fn] * len(calls), calls, places, chunksize=chunk))
        else:
            answers = [_call(self.fn, call, place) for call, place in zip(calls, places, strict=True)]
        results = [torch.as_tensor(answer) for answer in answers]
        for number, result in enumerate(results):
            if result.shape != results[0].shape:
                raise ValueError(
                    f"{function}: {name_of(self.fn)} returned shape {tuple(results[0].shape)} at first, "
                    f"{tuple(result.shape)} {places[number]}."
                )
        return torch.stack(results).reshape(*leading, *results[0].shape)


def _place(number: int, leading: torch.Size) -> str:
    """Which call it is, in words."""
    sample, example = divmod(number, leading[-1])
    return f"for sample {sample} of example {example}" if len(leading) > 1 else f"for example {example}"


def _call(fn: Callable[..., Any], arguments: Sequence[Any], place: str) -> Any:
    try:
        return fn(*arguments)
    except Exception as error:
        raise RuntimeError(f"{place}: {type(error).__name__}: {error}") from error
