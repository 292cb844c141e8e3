"""From numbers to bits: every bit is one comparison of a column with a number that training data gave.

Whatever an encoding is called, it comes down to `Encoding.comparisons`: bit i is ``x[column] >= threshold`` or
``x[column] == threshold``. That is all that a circuit, a C file or a chip has to know of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

__all__ = ["ColumnEncoding", "Encoding", "OneHot", "Thermometer", "Threshold"]

_BUFFERS = ("columns", "thresholds", "kinds")


class Encoding(nn.Module, ABC):
    """Bits by comparison. A subclass says in ``_fit`` which comparisons a column asks for.

    Comparisons are exact: thresholds are in double precision and stay so, whatever dtype a model is moved to. A number
    that is missing (NaN) gives zeros.

    Attributes:
        columns: (num_bits,) The column that a bit looks at.
        thresholds: (num_bits,) What it is compared with.
        kinds: (num_bits,) 0 for ``>=``, 1 for ``==``.

    Example:
        >>> encoding = softly.logic.OneHot().fit(torch.tensor([[1.0], [2.0]]))
        >>> encoding(torch.tensor([[2.0], [3.0]]))
        tensor([[False,  True],
                [False, False]])
    """

    columns: Tensor
    thresholds: Tensor
    kinds: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.num_columns = 0
        self.register_buffer("columns", torch.zeros(0, dtype=torch.long))
        self.register_buffer("thresholds", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("kinds", torch.zeros(0, dtype=torch.long))

    @property
    def num_bits(self) -> int:
        """How many bits a row becomes; 0 before `fit`.

        Example:
            >>> softly.logic.Threshold([0.25, 0.5]).fit(torch.zeros(1, 3)).num_bits
            6
        """
        return len(self.columns)

    def comparisons(self) -> tuple[Tensor, Tensor, Tensor]:
        """Columns, thresholds and kinds (0 for ``>=``, 1 for ``==``), each (num_bits,).

        Example:
            >>> softly.logic.Threshold(0.5).fit(torch.zeros(1, 2)).comparisons()
            (tensor([0, 1]), tensor([0.5000, 0.5000], dtype=torch.float64), tensor([0, 0]))
        """
        return self.columns, self.thresholds, self.kinds

    def fit(self, x: Tensor) -> Self:
        """Settle the comparisons on training data, (rows, columns).

        Example:
            >>> softly.logic.Thermometer(3).fit(torch.arange(8.0)[:, None]).thresholds
            tensor([1.5000, 3.5000, 5.5000], dtype=torch.float64)
        """
        name = f"softly.logic.{type(self).__name__}.fit"
        if x.ndim != 2 or 0 in x.shape:
            raise ValueError(f"{name}: x must be of shape (rows, columns), not empty; got {tuple(x.shape)}.")
        chosen = self._fit(x, name)
        sizes = torch.tensor([len(thresholds) for _, thresholds, _ in chosen])
        self.num_columns = x.shape[1]
        self.columns = torch.tensor([column for column, _, _ in chosen]).repeat_interleave(sizes).to(x.device)
        self.thresholds = torch.cat([thresholds.double() for _, thresholds, _ in chosen]).to(x.device)
        self.kinds = torch.tensor([kind for _, _, kind in chosen]).repeat_interleave(sizes).to(x.device)
        return self

    @abstractmethod
    def _fit(self, x: Tensor, name: str) -> list[tuple[int, Tensor, int]]:
        """Column, thresholds and kind, in the order of the bits."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., columns) numbers to (..., num_bits) booleans."""
        name = f"softly.logic.{type(self).__name__}"
        if not self.num_bits:
            raise RuntimeError(f"{name}: fit the encoding on training data first.")
        if x.ndim == 0 or x.shape[-1] != self.num_columns:
            raise ValueError(f"{name}: x must be of shape (..., {self.num_columns}), got {tuple(x.shape)}.")
        if not x.is_floating_point() and not x.is_complex():
            x = x.to(torch.float64)
        values = x.index_select(-1, self.columns)
        return torch.where(self.kinds == 0, values >= self.thresholds, values == self.thresholds)

    def get_extra_state(self) -> Tensor:
        """What the ``state_dict`` holds besides the comparisons: the number of columns."""
        return torch.tensor(self.num_columns)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the number of columns."""
        self.num_columns = int(state)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # How many bits there are is known from the file alone.
        for name in _BUFFERS:
            if (saved := state_dict.get(prefix + name)) is not None:
                setattr(self, name, torch.empty_like(saved, device=self.columns.device))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        exact = self.thresholds
        super()._apply(fn, recurse)
        self.thresholds = exact.to(self.columns.device)
        return self

    def extra_repr(self) -> str:
        """What a printed encoding says of itself."""
        return f"{self.num_columns} columns, {self.num_bits} bits"


class Threshold(Encoding):
    """The same comparisons ``x >= t`` for every column.

    Args:
        thresholds: One number or several; None takes the middle of each column, its median.

    Example:
        >>> softly.logic.Threshold([0.25, 0.5, 0.75]).fit(torch.zeros(1, 2))(torch.tensor([[0.6, 0.1]]))
        tensor([[ True,  True, False, False, False, False]])
    """

    def __init__(self, thresholds: float | Iterable[float] | None = None) -> None:
        super().__init__()
        given = [thresholds] if isinstance(thresholds, (int, float)) else thresholds
        self._given = None if given is None else sorted(float(t) for t in given)
        if self._given is not None and not (self._given and all(map(math.isfinite, self._given))):
            raise ValueError(f"softly.logic.Threshold: thresholds must be finite numbers, got {thresholds}.")

    def _fit(self, x: Tensor, name: str) -> list[tuple[int, Tensor, int]]:
        if self._given is None:
            return [(i, _cuts(column, 1, name), 0) for i, column in enumerate(x.T)]
        shared = torch.tensor(self._given, dtype=torch.float64)
        return [(i, shared, 0) for i in range(x.shape[1])]


class Thermometer(Encoding):
    """Every column climbs a ladder of thresholds, between which training data has equally many rows.

    A larger number sets the bits of a smaller one and perhaps more. A column with few different values gets a bit for
    each gap between them, and a constant one none. A value that alone has more rows than its share, as the zeros of a
    column that is mostly zero, takes one place, and the other thresholds part the rest.

    Args:
        num_bits: The most bits a column gets.

    Example:
        >>> thermometer = softly.logic.Thermometer(3).fit(torch.arange(8.0)[:, None])
        >>> thermometer(torch.tensor([[1.0], [4.0], [9.0]])).int()
        tensor([[0, 0, 0],
                [1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
    """

    def __init__(self, num_bits: int = 8) -> None:
        super().__init__()
        if num_bits < 1:
            raise ValueError(f"softly.logic.Thermometer: num_bits must be at least 1, got {num_bits}.")
        self._most = num_bits

    def _fit(self, x: Tensor, name: str) -> list[tuple[int, Tensor, int]]:
        return [(i, _cuts(column, self._most, name), 0) for i, column in enumerate(x.T)]


def _cuts(column: Tensor, number: int, name: str) -> Tensor:
    """At most ``number`` thresholds, halfway between values that occur, at the quantiles where there are enough."""
    values = column[~column.isnan()].double().sort().values
    if values.isinf().any():
        raise ValueError(f"{name}: x must be finite or NaN.")
    if not len(values):
        return values
    distinct, counts = values.unique(return_counts=True)
    upper = distinct[1:]
    if len(upper) > number:
        upper = distinct[_quantiles(counts, number)]
    # The value below, halfway to which the cut is made.
    lower = distinct[torch.searchsorted(distinct, upper) - 1]
    middle = lower + (upper - lower) / 2
    return torch.where(middle > lower, middle, upper)  # neighbouring numbers have no middle


def _quantiles(counts: Tensor, number: int) -> Tensor:
    """Places, but the first, of values at quantiles. One with more rows than its share has a share, others the rest."""
    heavy = torch.zeros_like(counts, dtype=torch.bool)
    while True:
        rest, shares = counts[~heavy].sum(), number + 1 - heavy.sum()
        if torch.equal(more := counts * shares > rest, heavy):
            break
        heavy = more
    ends = torch.where(heavy, rest, counts * shares).cumsum(0)  # a share is rest / shares: all of it times shares
    places = torch.searchsorted(ends, torch.arange(1, number + 1, device=counts.device) * rest, right=True)
    return places[places > 0].unique()


class OneHot(Encoding):
    """A bit for every value of a column; values that are new, or missing, give zeros.

    Args:
        categories: For every column the number of its values, which are 0, 1, …; None takes those of training data.

    Example:
        >>> softly.logic.OneHot().fit(torch.tensor([[3], [1], [3]]))(torch.tensor([[1], [3], [7]])).int()
        tensor([[1, 0],
                [0, 1],
                [0, 0]], dtype=torch.int32)
    """

    def __init__(self, categories: Sequence[int] | None = None) -> None:
        super().__init__()
        self._categories = None if categories is None else list(categories)

    def _fit(self, x: Tensor, name: str) -> list[tuple[int, Tensor, int]]:
        if self._categories is None:
            return [(i, column[~column.isnan()].unique(), 1) for i, column in enumerate(x.T)]
        if len(self._categories) != x.shape[1]:
            raise ValueError(f"{name}: x must have {len(self._categories)} columns, got {x.shape[1]}.")
        return [(i, torch.arange(number), 1) for i, number in enumerate(self._categories)]


class ColumnEncoding(Encoding):
    """Different encodings for different columns of a table.

    Args:
        parts: Pairs of columns and the encoding of these columns; bits come in this order.

    Example:
        >>> table = torch.tensor([[1.0, 20.0], [2.0, 35.0], [3.0, 50.0]])
        >>> encoding = softly.logic.ColumnEncoding([([0], softly.logic.OneHot()), ([1], softly.logic.Thermometer(2))])
        >>> encoding.fit(table)(table).int()
        tensor([[1, 0, 0, 0, 0],
                [0, 1, 0, 1, 0],
                [0, 0, 1, 1, 1]], dtype=torch.int32)
    """

    def __init__(self, parts: Iterable[tuple[Sequence[int], Encoding]]) -> None:
        super().__init__()
        # Kept out of the modules: once fitted, the comparisons say everything.
        self._parts = [(list(columns), encoding) for columns, encoding in parts]

    def _fit(self, x: Tensor, name: str) -> list[tuple[int, Tensor, int]]:
        chosen = []
        for columns, encoding in self._parts:
            if not all(0 <= column < x.shape[1] for column in columns):
                raise ValueError(f"{name}: columns must be in [0, {x.shape[1] - 1}], got {columns}.")
            for i, thresholds, kind in encoding._fit(x[:, columns], name):
                chosen.append((columns[i], thresholds, kind))
        return chosen
