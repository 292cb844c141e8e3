"""Relaxed programs under torch.compile: one call in its graph, traced through the engine with nothing left to data.

What a graph was made for has to be guarded by the compiler, or it would run for another program: the key of a program
is text that its object holds, and all that a program reads from outside (globals, closures) is read once more where
the compiler sees it. Tensors among that become inputs of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from softly._compiling import constant_result

_ENTRIES: WeakValueDictionary[str, Entry] = WeakValueDictionary()


class Entry:
    """How the compiler comes to run a program; it holds the key that the compiler guards.

    Args:
        key: What tells programs apart that need graphs of their own.
        program: ``program._compiled(outside, *arguments)`` runs it, ``program._readers()`` are functions that read
            what it reads from outside.
    """

    def __init__(self, key: str, program: Any) -> None:
        self.key, self.program = key, program
        self.readers: tuple[Callable[[], tuple[Any, ...]], ...] = ()
        _ENTRIES[key] = self

        def prepare() -> str:
            # Importing the compiler takes as long again as torch itself, so that it waits until there is one.
            torch.compiler.allow_in_graph(run)
            self.readers = self.readers or program._readers()
            return key

        self.prepare = constant_result(prepare)

    @staticmethod
    def of(key: str, program: Any) -> Entry:
        """The entry of a program, shared by those that differ only in what a graph takes as an input."""
        return _ENTRIES.get(key) or Entry(key, program)

    def __call__(self, *arguments: Any) -> Any:
        self.prepare()
        return run(self.key, watched(self.readers), *arguments)


def run(key: str, outside: Any, *arguments: Any) -> Any:
    """Run a program within a graph."""
    return _ENTRIES[key].program._compiled(outside, *arguments)


def watched(readers: tuple[Callable[[], tuple[Any, ...]], ...]) -> list[Any]:
    """What programs read from outside, in a form that the compiler guards or takes as an input."""
    values = (value for reader in readers for value in unfolded(reader()))
    return [value for value in values if isinstance(value, (bool, int, float, str, torch.Tensor))]


def unfolded(values: Iterable[Any], depth: int = 2) -> Iterator[Any]:
    """Values, and those in the lists and dicts among them."""
    for value in values:
        if isinstance(value, (list, tuple)) and depth:
            yield len(value)
            yield from unfolded(value, depth - 1)
        elif isinstance(value, dict) and depth:
            yield len(value)
            for key, entry in value.items():
                yield key
                yield from unfolded((entry,), depth - 1)
        else:
            yield value


def settle(outside: list[Any]) -> None:
    """Make constants of numbers that the compiler would rather have as variables."""
    for value in outside:
        if isinstance(value, torch.SymInt):
            int(value)
        elif isinstance(value, torch.SymFloat):
            float(value)
        elif isinstance(value, torch.SymBool):
            bool(value)


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
