"""The networks of chapter 6 by name: their layers, temperature, and what their input bits mean.

All are straight, with the same number of gates in every layer. The bits of the tables are our reconstruction of the
chapter's numbers of bits (17, 116, 51), which it doesn't explain: one-hot for what has kinds, and thresholds for what
is a number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from softly.logic.encodings import ColumnEncoding, Encoding, OneHot, Threshold
from softly.logic.network import LogicNetwork
from softly.logic.parametrizations import Parametrization
from softly.tnorms import TNorm

__all__ = ["Architecture", "get", "names"]

# Numbers of Adult's columns: thresholds by column, and the number of kinds of the others. The survey's weights
# (column 2) say nothing of a person.
_ADULT_NUMBERS = {
    0: (22.0, 27.0, 32.0, 38.0, 45.0, 55.0),  # age
    4: (9.5, 12.5),  # years of education: beyond high school, beyond college
    10: (1.0, 5100.0, 7000.0),  # capital gain
    11: (1.0, 1820.0),  # capital loss
    12: (35.0, 41.0, 46.0, 55.0),  # hours a week
}
_ADULT_KINDS = {1: 8, 3: 16, 5: 7, 6: 14, 7: 6, 8: 5, 9: 2, 13: 41}


def _monk() -> tuple[Encoding, int]:
    return OneHot((3, 3, 2, 3, 4, 2)), 6


def _adult() -> tuple[Encoding, int]:
    numbers = [([column], Threshold(thresholds)) for column, thresholds in _ADULT_NUMBERS.items()]
    return ColumnEncoding([*numbers, (list(_ADULT_KINDS), OneHot(tuple(_ADULT_KINDS.values())))]), 14


def _breast_cancer() -> tuple[Encoding, int]:
    return OneHot((9, 3, 12, 13, 2, 3, 2, 5, 2)), 9


def _pixels(columns: int, resolution: int) -> Callable[[], tuple[Encoding, int]]:
    return lambda: (Threshold(i / resolution for i in range(1, resolution)), columns)


@dataclass(frozen=True)
class Architecture:
    """A network of the chapter's table.

    Attributes:
        name: As in `names`.
        depth, width: Layers, and gates a layer.
        classes: Number of classes.
        tau: Temperature of the scores.
    """

    name: str
    depth: int
    width: int
    classes: int
    tau: float
    _encoding: Callable[[], tuple[Encoding, int]]

    def encoding(self) -> Encoding:
        """From the columns of the data set, pixels in [0, 1], to bits. Kinds are numbered from 0; NaN is missing."""
        encoding, columns = self._encoding()
        return encoding.fit(torch.zeros(1, columns))

    def network(
        self,
        *,
        seed: int | None = None,
        wiring: str = "random",
        parametrization: str | Parametrization = "softmax16",
        init: str = "normal",
        grad_factor: float = 1.0,
        tnorm: str | TNorm = "probabilistic",
        gates: Sequence[str | int] | None = None,
    ) -> LogicNetwork:
        """A new network with its encoding; options as in `LogicNetwork`."""
        encoding = self.encoding()
        return LogicNetwork(
            encoding.num_bits,
            [self.width] * self.depth,
            self.classes,
            tau=self.tau,
            encoding=encoding,
            seed=seed,
            wiring=wiring,
            parametrization=parametrization,
            init=init,
            grad_factor=grad_factor,
            tnorm=tnorm,
            gates=gates,
        )


_ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture("monk1", 6, 24, 2, 1.0, _monk),
        Architecture("monk2", 6, 12, 2, 1.0, _monk),
        Architecture("monk3", 6, 12, 2, 1.0, _monk),
        Architecture("adult", 5, 256, 2, 1 / 0.075, _adult),
        Architecture("breast_cancer", 5, 128, 2, 1 / 0.1, _breast_cancer),
        Architecture("mnist_small", 6, 8_000, 10, 1 / 0.1, _pixels(784, 2)),
        Architecture("mnist", 6, 64_000, 10, 1 / 0.03, _pixels(784, 2)),
        Architecture("cifar10_small", 4, 12_000, 10, 1 / 0.03, _pixels(3072, 4)),
        Architecture("cifar10_medium", 4, 128_000, 10, 1 / 0.01, _pixels(3072, 4)),
        Architecture("cifar10_large", 5, 256_000, 10, 1 / 0.01, _pixels(3072, 32)),
        Architecture("cifar10_large_x2", 5, 512_000, 10, 1 / 0.01, _pixels(3072, 32)),
        Architecture("cifar10_large_x4", 5, 1_024_000, 10, 1 / 0.01, _pixels(3072, 32)),
    )
}


def names() -> tuple[str, ...]:
    """The names of all architectures."""
    return tuple(_ARCHITECTURES)


def get(name: str) -> Architecture:
    """Look an architecture up by name."""
    if name not in _ARCHITECTURES:
        choices = ", ".join(_ARCHITECTURES)
        raise ValueError(f"softly_lab.architectures.get: name must be one of {choices}; got {name!r}.")
    return _ARCHITECTURES[name]
