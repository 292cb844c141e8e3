"""Relaxed programs under torch.compile: one call in its graph, traced through the engine with nothing left to data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from softly import _compiling

_RUNS: dict[int, Callable[..., Any]] = {}


def _run(key: int, *arguments: Any) -> Any:
    return _RUNS[key](*arguments)


def known(value: torch.Tensor) -> torch.Tensor:
    """A tensor from outside of a program, as a tracing compiler can take it: written out as a constant."""
    if detect_fake_mode() is None or isinstance(value, FakeTensor):
        return value
    if value.requires_grad:
        raise TypeError(
            "softly.relax: under torch.compile a program can't reach out for a tensor that requires a gradient; "
            "pass it as an argument."
        )
    with _disable_current_modes():
        entries = value.tolist()
    return torch.tensor(entries, dtype=value.dtype, device=value.device)


class Graph:
    """A function that the compiler puts into its graph as it is, instead of following its Python code."""

    def __init__(self, run: Callable[..., Any]) -> None:
        def register() -> int:
            _RUNS[id(run)] = run
            torch.compiler.allow_in_graph(_run)
            return id(run)

        self._register = _compiling.constant_result(register)

    def __call__(self, *arguments: Any) -> Any:
        return _run(self._register(), *arguments)
