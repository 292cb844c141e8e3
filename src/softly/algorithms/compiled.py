"""Relaxed programs under torch.compile: one call in its graph, traced through the engine with nothing left to data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from softly import _compiling

_RUNS: dict[int, Callable[..., Any]] = {}


def _run(key: int, *arguments: Any) -> Any:
    return _RUNS[key](*arguments)


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
