"""One file per experiment: a frozen config, and `run(config)`, which returns what was measured."""

import os
import sys
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

import torch


class Comparison(Protocol):
    """The result of an experiment that compares methods on one data set."""

    @property
    def seconds(self) -> float: ...

    def table(self) -> str: ...


Config = TypeVar("Config")


def print_tables(run: Callable[[Config], Comparison], configs: Iterable[Config], real: Iterable[Config]) -> None:
    """Run one experiment after the other, on one thread; those on ``real`` data only where SOFTLY_DATA is set."""
    torch.set_num_threads(1)  # the models are too small for more
    real = tuple(real)
    for config in configs:
        if config in real and "SOFTLY_DATA" not in os.environ:
            sys.stdout.write(f"{config}: left out, since SOFTLY_DATA names no folder\n\n")
            continue
        result = run(config)
        sys.stdout.write(f"{config}, {result.seconds:.0f} s\n\n{result.table()}\n\n")
        sys.stdout.flush()
