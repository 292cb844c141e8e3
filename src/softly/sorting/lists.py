"""Lists in padded rows, some of whose entries may be infinite: who is sorted, and where the results go.

Entries at -inf and inf have the first and last ranks, shared evenly; what is absent has none; the others are sorted
as if they were alone. Nothing here depends on data.
"""

from __future__ import annotations

import torch
from torch import Tensor

from softly import _inputs

LOW, FINITE, HIGH, ABSENT = range(4)  # in the order of their ranks


class Lists:
    """The kinds of the entries of every row, (..., n), and of its ranks.

    Args:
        x: (..., n) Values.
        valid: (..., n) Which of them are there; None for all.
    """

    def __init__(self, x: Tensor, valid: Tensor | None) -> None:
        kinds = torch.where(x == -torch.inf, LOW, torch.where(x == torch.inf, HIGH, FINITE))
        self.entries = kinds if valid is None else torch.where(valid, kinds, ABSENT)
        self.ranks = torch.sort(self.entries, -1).values
        self.below, self.count, self.above = (
            (self.entries == kind).sum(-1, keepdim=True) for kind in (LOW, FINITE, HIGH)
        )
        self.total = self.below + self.count + self.above
        self.place = torch.arange(x.shape[-1], device=x.device)

    @property
    def same(self) -> Tensor:
        """Whether a rank and an entry are of one kind, (..., n, n)."""
        return self.ranks.unsqueeze(-1) == self.entries.unsqueeze(-2)

    def filled(self, x: Tensor) -> Tensor:
        """``x`` with large numbers for all that isn't finite, in the order of their kinds."""
        large = _inputs.large(x)
        filled = torch.where(self.entries == FINITE, x, 3.0 * large)
        return torch.where(self.entries == LOW, -large, torch.where(self.entries == HIGH, large, filled))

    def masked(self, logits: Tensor) -> Tensor:
        """Logits (..., n, n) between ranks and entries of one kind: those of the finite ones, and even ones."""
        finite = (self.ranks == FINITE).unsqueeze(-1)
        return torch.where(self.same, torch.where(finite, logits, 0.0), -torch.inf)

    def present(self, matrix: Tensor, absent: float = 0.0) -> Tensor:
        """A matrix (..., n, n) without what stands in ranks and entries that aren't there."""
        return torch.where((self.ranks == ABSENT).unsqueeze(-1), absent, matrix)

    def values(self, sorted_values: Tensor) -> Tensor:
        """Sorted values, finite ones where ranks are finite, with the infinite ones, and 0 behind a list's end."""
        ends = torch.where(self.ranks == LOW, -torch.inf, torch.where(self.ranks == HIGH, torch.inf, 0.0))
        return torch.where(self.ranks == FINITE, sorted_values, ends.to(sorted_values.dtype))

    def expected_ranks(self, ranks: Tensor) -> Tensor:
        """Ranks of finite entries among each other, made ranks in their list, with those of the infinite ones."""
        low, high = 0.5 * (1 + self.below), self.below + self.count + 0.5 * (1 + self.above)
        others = torch.where(self.entries == LOW, low, torch.where(self.entries == HIGH, high, 0.0))
        return torch.where(self.entries == FINITE, ranks + self.below, others.to(ranks.dtype))

    def from_largest(self, x: Tensor, dim: int) -> Tensor:
        """The entries of ``x`` along ``dim``, one for each rank, from the last rank of the list to its first."""
        index = torch.where(self.place < self.total, self.total - 1 - self.place, self.place)
        return x.gather(dim, index if dim == -1 else index.unsqueeze(-1).expand(x.shape))

    # For those who sort nothing but the finite entries -------------------------------------------------------------

    def packed(self, x: Tensor) -> Tensor:
        """The finite entries of ``x`` first, in their order, and zeros behind them."""
        return torch.where(self.entries == FINITE, x, 0.0).gather(-1, self._order)

    @property
    def _order(self) -> Tensor:
        return torch.argsort((self.entries != FINITE).to(torch.uint8), dim=-1, stable=True)

    def unpacked_values(self, packed: Tensor) -> Tensor:
        """What `values` gives, of sorted finite entries (..., n) that begin at 0."""
        index = (self.place - self.below).clamp(0, packed.shape[-1] - 1)
        return self.values(packed.gather(-1, index))

    def unpacked_matrix(self, packed: Tensor, log: bool = False) -> Tensor:
        """Rows for every rank, (..., n, n), from those of packed entries, which begin at 0; or their logarithms."""
        index = (self.place - self.below).clamp(0, packed.shape[-2] - 1)
        return self._unpacked(packed, index, self.ranks, log)

    def unpacked_top(self, packed: Tensor, k: int, log: bool = False) -> Tensor:
        """Rows for the k largest, (..., k, n), from those of the largest packed entries (..., at most k, n)."""
        place = self.place[:k]
        kinds = self.ranks.gather(-1, (self.total - 1 - place).clamp(min=0))
        kinds = torch.where(place < self.total, kinds, ABSENT)
        return self._unpacked(packed, (place - self.above).clamp(0, packed.shape[-2] - 1), kinds, log)

    def _unpacked(self, packed: Tensor, index: Tensor, kinds: Tensor, log: bool) -> Tensor:
        n = packed.shape[-1]
        rows = packed.gather(-2, index.unsqueeze(-1).expand(*index.shape, n))
        columns = torch.argsort(self._order, -1).unsqueeze(-2).expand(rows.shape)
        rows = rows.gather(-1, columns)
        kind = kinds.unsqueeze(-1)
        size = torch.where(kind == LOW, self.below.unsqueeze(-1), self.above.unsqueeze(-1)).clamp(min=1)
        even = torch.where(kind == ABSENT, 0.0, 1.0 / size.to(rows.dtype))
        same = kind == self.entries.unsqueeze(-2)
        if log:
            return torch.where(same, torch.where(kind == FINITE, rows, even.log()), -torch.inf)
        return torch.where(same, torch.where(kind == FINITE, rows, even), 0.0)


def backwards(result: Tensor, x: Tensor, valid: Tensor | None, dim: int) -> Tensor:
    """``result`` from the last rank to the first; what is absent stays behind."""
    return result.flip(dim) if valid is None else Lists(x, valid).from_largest(result, dim)
