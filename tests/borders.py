"""The borders of PyTorch: what each asks of an operator, in a process that has not called softly before.

A border is a function of a `Row`; it raises AssertionError where a result is wrong. Whatever else is raised must be
listed in `RAISES`. ``test_borders.py`` runs every border on every row, each in a process of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from contract import ROWS, Row
from torch import Tensor
from torch.autograd import forward_ad

Function = Callable[..., Tensor]


def function_of(row: Row) -> Function:
    return partial(row.function, **row.hyper)


def traced(row: Row) -> Function:
    """What compiled code sees: of a black box that which asks it."""
    return row.black_box or function_of(row)


def scalar(f: Function) -> Function:
    return lambda *tensors: f(*tensors).double().square().sum()


def tangents(tensors: list[Tensor]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in tensors]


def gradients(f: Function, tensors: list[Tensor], create_graph: bool = False) -> tuple[Tensor, ...]:
    """By plain autograd, in eager mode."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    return torch.autograd.grad(f(*leaves), leaves, create_graph=create_graph, materialize_grads=True)


def pushed(f: Function, tensors: list[Tensor], directions: list[Tensor]) -> Tensor:
    """The directional derivative, by differentiating the gradient: in eager mode, without forward mode."""
    leaves = [t.detach().clone().requires_grad_() for t in tensors]
    value = f(*leaves)
    weights = torch.zeros_like(value, requires_grad=True)
    pulled = torch.autograd.grad(value, leaves, weights, create_graph=True, materialize_grads=True)
    total = sum((g * v).sum() for g, v in zip(pulled, directions, strict=True))
    return torch.autograd.grad(total, weights, materialize_grads=True)[0]


def close(actual: Any, expected: Any, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance, equal_nan=True)


def compiled(f: Function) -> Function:
    return torch.compile(f, fullgraph=True, backend="aot_eager")


# The borders -----------------------------------------------------------------------------------------------------


def compile(row: Row) -> None:
    f, tensors = traced(row), row.inputs(2)
    leaves = [t.clone().requires_grad_() for t in tensors]
    result = compiled(f)(*leaves)
    pulled = torch.autograd.grad(result.double().square().sum(), leaves, materialize_grads=True)
    close(result.detach(), f(*tensors))
    close(pulled, gradients(scalar(f), tensors))


def compile_grad(row: Row) -> None:
    f, tensors = traced(row), row.inputs(2)
    over = tuple(range(len(tensors)))
    actual = compiled(lambda *ts: torch.func.grad(scalar(f), over)(*ts))(*tensors)
    close(actual, gradients(scalar(f), tensors))


def compile_jvp(row: Row) -> None:
    f, tensors = traced(row), row.inputs(2)
    directions = tangents(tensors)
    actual = compiled(lambda ts, vs: torch.func.jvp(f, tuple(ts), tuple(vs))[1])(tensors, directions)
    close(actual, pushed(f, tensors, directions))


def compile_vmap(row: Row) -> None:
    f, tensors = traced(row), row.inputs(3)
    close(compiled(lambda *ts: torch.func.vmap(f)(*ts))(*tensors), f(*tensors))


class Exported(torch.nn.Module):
    def __init__(self, f: Function) -> None:
        super().__init__()
        self.f = f

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.f(*tensors)


def export(row: Row, path: Path) -> None:
    """The first half; `load` is the other, in another process."""
    program = torch.export.export(Exported(traced(row)), tuple(row.inputs(2)))
    torch.export.save(program, path)


def load(row: Row, path: Path) -> None:
    program, tensors = torch.export.load(path), row.inputs(2)
    close(program.module()(*tensors), function_of(row)(*tensors))


def func(row: Row) -> None:
    f, tensors = function_of(row), row.inputs()
    over = tuple(range(len(tensors)))
    reverse = torch.func.jacrev(f, over)(*tensors)
    forward = torch.func.jacfwd(f, over)(*tensors)
    batched = row.inputs(3)
    per_example = torch.func.vmap(torch.func.grad(scalar(f), over))(*batched)
    mapped = torch.func.vmap(f)(*batched)
    plain = torch.autograd.functional.jacobian(f, tuple(tensors))
    close(reverse, plain)
    close(forward, plain)
    close(mapped, f(*batched))
    close(per_example, gradients(scalar(f), batched))
    if row.twice:
        hessian = torch.func.hessian(scalar(f))(*tensors)
        close(hessian, torch.autograd.functional.hessian(scalar(f), tuple(tensors))[0][0], 1e-8)


def vectorized(row: Row) -> None:
    """Backward passes under the older vmap: ``is_grads_batched`` and ``hessian(vectorize=True)``."""
    f, tensors = function_of(row), row.inputs()
    leaves = [t.requires_grad_() for t in tensors]
    value = f(*leaves)
    weights = torch.eye(value.numel(), dtype=value.dtype).reshape(-1, *value.shape)
    pulled = torch.autograd.grad(value, leaves, weights, is_grads_batched=True, materialize_grads=True)
    jacobian = torch.autograd.functional.jacobian(f, tuple(leaves))
    for actual, expected in zip(pulled, jacobian, strict=True):
        close(actual, expected.reshape(actual.shape))
    if row.twice:
        hessian = torch.autograd.functional.hessian(scalar(f), tuple(leaves), vectorize=True)
        close(hessian, torch.autograd.functional.hessian(scalar(f), tuple(leaves)), 1e-8)


def dual(row: Row) -> None:
    """Forward mode, with and without ``no_grad``."""
    f, tensors = function_of(row), row.inputs(2)
    directions = tangents(tensors)
    with torch.no_grad():
        silent = torch.func.jvp(f, tuple(tensors), tuple(directions))[1]
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(t, v) for t, v in zip(tensors, directions, strict=True)]
        tangent = forward_ad.unpack_dual(f(*duals)).tangent
    expected = pushed(f, tensors, directions)
    close(silent, expected)
    close(torch.zeros_like(expected) if tangent is None else tangent, expected)


def autocast(row: Row) -> None:
    f, tensors = function_of(row), row.inputs(2, dtype=torch.float32)
    leaves = [t.clone().requires_grad_() for t in tensors]
    with torch.autocast("cpu", torch.bfloat16):
        result = f(*leaves)
        loss = result.float().square().sum()
    pulled = torch.autograd.grad(loss, leaves, materialize_grads=True)
    close(result.detach().float(), f(*tensors), 1e-6)
    plain = lambda *ts: f(*ts).square().sum()  # noqa: E731
    close(pulled, gradients(plain, tensors), 1e-5)


def infinities(row: Row) -> None:
    """The same compiled, transformed and one by one; derivatives are finite, and 0 in what is infinite."""
    if row.unit or not row.shapes[0] or row.shapes[0][-1] < 3:
        return
    f, tensors = function_of(row), row.inputs(3)
    tensors[0].view(3, -1)[0, 1] = torch.inf
    tensors[0].view(3, -1)[1, 1] = -torch.inf
    through_compile = compiled(f)(*tensors)
    mapped = torch.func.vmap(f)(*tensors)
    together = f(*tensors)
    alone = torch.stack([f(*(t[i] for t in tensors)) for i in range(3)])
    close(through_compile, together)
    close(mapped, together)
    close(alone, together)
    bounded = lambda *ts: torch.nan_to_num(f(*ts), posinf=0.0, neginf=0.0).square().sum()  # noqa: E731
    pulled = gradients(bounded, tensors)
    assert all(g.isfinite().all() for g in pulled)
    close(torch.func.vmap(torch.func.grad(bounded, tuple(range(len(tensors)))))(*tensors), pulled)


def threads(row: Row) -> None:
    f = function_of(row)
    cases = [row.inputs(batch) for batch in (1, 2, 3, 4)]
    results: dict[int, Tensor | BaseException] = {}

    def work(number: int) -> None:
        try:
            for _ in range(5):
                results[number] = f(*cases[number])
        except BaseException as error:
            results[number] = error

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for number, case in enumerate(cases):
        if isinstance(results[number], BaseException):
            raise results[number]
        close(results[number], f(*case))


def fork(row: Row) -> None:
    """In a child of a process that has called the operator."""
    f, tensors = function_of(row), row.inputs(2)
    before = f(*tensors)
    child = os.fork()
    if not child:
        try:
            torch.set_num_threads(1)  # as workers of a DataLoader do: torch's own threads don't survive a fork
            close(f(*tensors), before)
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def meta(row: Row) -> None:
    f, tensors = function_of(row), row.inputs(2)
    shape = f(*(t.to("meta") for t in tensors))
    assert shape.is_meta
    assert shape.shape == f(*tensors).shape


BORDERS = {
    border.__name__: border
    for border in (
        compile,
        compile_grad,
        compile_jvp,
        compile_vmap,
        func,
        vectorized,
        dual,
        autocast,
        infinities,
        threads,
        fork,
        meta,
    )
}


# What is refused, and by whom ------------------------------------------------------------------------------------

TWO_DEVICES = r"is not on the expected device"

NO_GRAPH = r"runs outside of compiled code"
BLACK_BOXES = [row.name for row in ROWS if row.black_box is not None]
SOLVED = ("blackbox", "Imle")  # whose gradients are made of solutions

RAISES = {
    # (border, operator): what the error says. docs/borders.md shows the same table.
    ("compile_jvp", "cdf[gamma]"): r"forward AD with igamma that does not support it",
    ("meta", "LogicLayer"): TWO_DEVICES,  # the layer's own weights are on the CPU
    ("meta", "LogicNetwork"): TWO_DEVICES,
    **{
        (border, name): NO_GRAPH
        for border in ("compile", "compile_grad", "compile_jvp", "compile_vmap", "export", "meta")
        for name in BLACK_BOXES
    },
    **{("func", name): r"call it without vmap|can't see through a solver" for name in BLACK_BOXES},
    **{(border, "NewtonLoss"): r"a step is done by plain autograd" for border in ("func", "dual")},
    **{("vectorized", name): r"it takes one gradient at a time" for name in SOLVED},
    **{("dual", name): r"can't see through a solver" for name in SOLVED},
}

NOT_ASKED = {
    ("infinities", "levenshtein"): "letters are probabilities",
    **{("infinities", name): "black boxes are asked as they are" for name in BLACK_BOXES},
    ("infinities", "Renderer.silhouette[logistic]"): "a point at infinity has no picture",
    ("infinities", "Renderer.silhouette[gaussian, yager, squared]"): "a point at infinity has no picture",
    ("infinities", "Renderer[nearest]"): "a point at infinity has no picture",
    ("infinities", "Renderer[softmax]"): "a point at infinity has no picture",
}
