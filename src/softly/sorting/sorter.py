"""The protocol that all sorters share: checks, dimensions, masks and infinities in one place."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from softly import _inputs, native

Steepness = float | Tensor | str


class Sorter(torch.nn.Module):
    """A differentiable sorting operator.

    Every sorter relaxes sorting to a matrix of probabilities: ``P[rank, input]`` is how likely the input has that
    rank, rows go from the smallest to the largest, and ``P @ x`` is the sorted vector. As ``steepness -> inf`` it
    is the permutation matrix of ``torch.sort``. Calling a sorter sorts.

    A subclass defines ``_permutation(x, steepness)`` for finite ``x`` of shape (..., n), and overrides
    ``_values``, ``_ranks`` and ``_topk`` where there is a cheaper way than through the matrix.

    Lists of unequal length share a tensor with ``lengths`` or a boolean ``mask`` of their entries. Each is
    sorted as if it were alone, so that padding never gets probability: its columns are 0, and so are the rows,
    values and ranks behind a list's end. Entries at -inf and inf have the first and last ranks, shared evenly, and
    leave the others to be sorted as if alone. Both are read on the host: while compiling or under ``torch.func``
    there are no lists of unequal length, and infinities act as very large numbers.

    Args:
        steepness: Inverse temperature, > 0; a tensor or parameter can be learned; "auto" adapts to the spread
            and number of the values.

    Example:
        >>> softly.SoftSort(steepness=4.0).permutation(torch.tensor([3.0, 1.0, 2.0])).argmax(-1)
        tensor([1, 2, 0])
    """

    def __init__(self, *, steepness: Steepness = 10.0) -> None:
        super().__init__()
        name = f"softly.{type(self).__name__}"
        if isinstance(steepness, str):
            if steepness != "auto":
                raise ValueError(f"{name}: steepness must be a positive number or 'auto', got {steepness!r}.")
        else:
            steepness = _inputs.steepness(steepness, name)
        self.steepness = steepness

    def forward(self, x: Tensor) -> Tensor:
        return self.sort(x)

    def sort(
        self,
        x: Tensor,
        *,
        dim: int = -1,
        descending: bool = False,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The relaxed sorted values, of the shape of ``x``.

        As ``steepness -> inf`` this is ``torch.sort(x, dim).values``.

        Args:
            x: (..., n, ...) Values.
            dim: The dimension that is sorted.
            descending: From the largest, by the same relaxation read backwards.
            lengths: (...) Lengths of lists that are padded at their end, of the shape of ``x`` without ``dim``.
            mask: Where ``x`` holds an entry, of the shape of ``x``.

        Example:
            >>> softly.SoftSort(steepness=50.0).sort(torch.tensor([3.0, 1.0, 2.0]), descending=True)
            tensor([3., 2., 1.])
        """
        rows, valid = self._rows(x, dim, lengths, mask, "sort")
        return _moved(self._each(rows, valid, "values", descending), -1, dim)

    def permutation(
        self,
        x: Tensor,
        *,
        dim: int = -1,
        descending: bool = False,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The relaxed permutation matrices ``P[rank, input]``, in the last two dimensions of (..., n, n).

        As ``steepness -> inf`` this is the matrix with ``P @ x == torch.sort(x).values``; rows sum to 1.

        Args:
            x: (..., n, ...) Values.
            dim: The dimension that is sorted; the others, in their order, come first in the result.
            descending: Rank 0 is the largest, by the same relaxation read backwards.
            lengths: (...) Lengths of lists that are padded at their end, of the shape of ``x`` without ``dim``.
            mask: Where ``x`` holds an entry, of the shape of ``x``.

        Example:
            >>> softly.SoftSort(steepness=2.0).permutation(torch.tensor([3.0, 1.0, 2.0]))
            tensor([[0.0159, 0.8668, 0.1173],
                    [0.1065, 0.1065, 0.7870],
                    [0.8668, 0.0159, 0.1173]])
        """
        rows, valid = self._rows(x, dim, lengths, mask, "permutation")
        return self._each(rows, valid, "matrix", descending)

    def rank(
        self,
        x: Tensor,
        *,
        dim: int = -1,
        descending: bool = False,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The expected rank of every entry, from 1 to n, of the shape of ``x``.

        As ``steepness -> inf`` this is the rank of the entry; the smallest has 1, with ``descending`` the largest.

        Args:
            x: (..., n, ...) Values.
            dim: The dimension that is ranked.
            descending: Rank 1 is the largest.
            lengths: (...) Lengths of lists that are padded at their end, of the shape of ``x`` without ``dim``.
            mask: Where ``x`` holds an entry, of the shape of ``x``.

        Example:
            >>> softly.SoftSort(steepness=50.0).rank(torch.tensor([3.0, 1.0, 2.0]))
            tensor([3., 1., 2.])
        """
        rows, valid = self._rows(x, dim, lengths, mask, "rank")
        return _moved(self._each(rows, valid, "ranks", descending), -1, dim)

    def topk(
        self,
        x: Tensor,
        k: int,
        *,
        dim: int = -1,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The rows of the k largest, (..., k, n): row 0 is the distribution of the largest over the inputs.

        As ``steepness -> inf`` rows are one-hot at ``torch.topk(x, k).indices``; ``topk(x, k)`` equals
        ``permutation(x, descending=True)[..., :k, :]``.

        Args:
            x: (..., n, ...) Values.
            k: How many, in [1, n].
            dim: The dimension that is searched; the others, in their order, come first in the result.
            lengths: (...) Lengths of lists that are padded at their end, of the shape of ``x`` without ``dim``.
            mask: Where ``x`` holds an entry, of the shape of ``x``.

        Example:
            >>> softly.SoftSort(steepness=2.0).topk(torch.tensor([3.0, 1.0, 2.0]), 2)
            tensor([[0.8668, 0.0159, 0.1173],
                    [0.1065, 0.1065, 0.7870]])
        """
        rows, valid = self._rows(x, dim, lengths, mask, "topk")
        n = rows.shape[-1]
        if isinstance(k, bool) or not isinstance(k, int):
            raise TypeError(f"softly.topk: k must be an integer, got {type(k).__name__}.")
        if not 1 <= k <= n:
            raise ValueError(f"softly.topk: k must be in [1, {n}], got {k}.")
        return self._each(rows, valid, "rows", True, k)

    def _permutation(self, x: Tensor, steepness: float | Tensor) -> Tensor:
        raise AttributeError(f"{type(self).__name__} defines no permutation")

    def _values(self, x: Tensor, steepness: float | Tensor) -> Tensor:
        return (self._permutation(x, steepness) @ x.unsqueeze(-1)).squeeze(-1)

    def _ranks(self, x: Tensor, steepness: float | Tensor) -> Tensor:
        ranks = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
        return (ranks @ self._permutation(x, steepness)).reshape(x.shape)

    def _topk(self, x: Tensor, steepness: float | Tensor, k: int) -> Tensor:
        return self._permutation(x, steepness).flip(-2)[..., :k, :]

    def _auto(self, n: int, k: int) -> float:
        """The steepness at which "auto" sorts ``n`` values of unit standard deviation, or selects k of them.

        Spread evenly, they are ``√12 / n`` apart. With the inverse of that as steepness, the logits of
        neighbours in rank differ by 1: a rank's mass is shared by a few neighbours, for any n and spread.
        """
        return n / math.sqrt(12.0)

    def _steepness(self, x: Tensor, k: int) -> float | Tensor:
        if not isinstance(self.steepness, str):
            return self.steepness
        spread = x.detach().std(-1, keepdim=True, correction=0)
        return self._auto(x.shape[-1], k) / torch.where(spread > 0, spread, 1.0)

    def _rows(
        self, x: Tensor, dim: int, lengths: Tensor | None, mask: Tensor | None, method: str
    ) -> tuple[Tensor, Tensor | None]:
        """``x`` with the sorted dimension last, and where it is valid."""
        name = f"softly.{method}"
        _inputs.floating(x, name, "x")
        if x.ndim == 0 or not -x.ndim <= dim < x.ndim:
            allowed = f"in [{-x.ndim}, {x.ndim - 1}]" if x.ndim else "the dimension of a vector, not of a number"
            raise ValueError(f"{name}: dim must be {allowed}, got {dim}.")
        rows = _moved(x, dim, -1)
        if rows.shape[-1] == 0:
            raise ValueError(f"{name}: x must have at least one entry along dim, got shape {tuple(x.shape)}.")
        if lengths is not None and mask is not None:
            raise ValueError(f"{name}: give lengths or mask, not both.")
        if lengths is not None:
            if lengths.shape != rows.shape[:-1] or lengths.is_floating_point() or lengths.dtype == torch.bool:
                raise ValueError(
                    f"{name}: lengths must be integers of shape {tuple(rows.shape[:-1])}, "
                    f"got {lengths.dtype} of shape {tuple(lengths.shape)}."
                )
            if ((lengths < 0) | (lengths > rows.shape[-1])).any():
                raise ValueError(
                    f"{name}: lengths must be in [0, {rows.shape[-1]}], "
                    f"got {int(lengths.min())} to {int(lengths.max())}."
                )
            return rows, torch.arange(rows.shape[-1], device=x.device) < lengths.unsqueeze(-1)
        if mask is not None:
            if mask.shape != x.shape or mask.dtype != torch.bool:
                raise ValueError(
                    f"{name}: mask must be boolean of shape {tuple(x.shape)}, "
                    f"got {mask.dtype} of shape {tuple(mask.shape)}."
                )
            return rows, mask.movedim(dim, -1)
        return rows, None

    def _each(self, x: Tensor, valid: Tensor | None, what: str, descending: bool, k: int = 0) -> Tensor:
        """Sort every row of ``x``: all at once if they are alike, otherwise in groups of one length."""
        # While compiling or transformed nothing may depend on data: infinities then act as very large numbers.
        fixed = torch.compiler.is_compiling() or native.transformed(x)
        if valid is None and fixed:
            return _inputs.at_least_single(lambda y: self._alike(_inputs.finite(y), 0, 0, what, descending, k), x)
        if valid is None and not _inputs.any_infinite(x):
            return _inputs.at_least_single(lambda y: self._alike(y, 0, 0, what, descending, k), x)
        return _inputs.at_least_single(lambda y: self._grouped(y, valid, what, descending, k), x)

    def _alike(self, x: Tensor, below: int, above: int, what: str, descending: bool, k: int) -> Tensor:
        """Sort rows of finite entries, each with so many entries at -inf and at +inf behind them.

        Those have the first and the last ranks, shared evenly; the finite entries are sorted as if alone.
        """
        n = x.shape[-1]
        steepness = self._steepness(x, min(k, n) or n)
        batch, total = x.shape[:-1], n + below + above
        if what == "values":
            result = self._values(x, steepness) if n else x
            if below or above:
                lowest, highest = x.new_full((*batch, below), -torch.inf), x.new_full((*batch, above), torch.inf)
                result = torch.cat([lowest, result, highest], -1)
            return result.flip(-1) if descending else result
        if what == "ranks":
            result = (self._ranks(x, steepness) if n else x) + below
            if below or above:
                lowest = x.new_full((*batch, below), 0.5 * (1 + below))
                highest = x.new_full((*batch, above), below + n + 0.5 * (1 + above))
                result = torch.cat([result, lowest, highest], -1)
            return total + 1.0 - result if descending else result
        if what == "matrix":
            middle = self._permutation(x, steepness) if n else x.new_zeros(*batch, 0, 0)
            middle = middle.flip(-2) if descending else middle
        else:
            middle = self._topk(x, steepness, min(k, n)) if n else x.new_zeros(*batch, 0, 0)
        if below or above:
            lowest = x.new_zeros(below, total)
            lowest[:, n : n + below] = 1.0 / max(below, 1)
            highest = x.new_zeros(above, total)
            highest[:, n + below :] = 1.0 / max(above, 1)
            ends = (highest, lowest) if descending else (lowest, highest)
            first, last = (end.expand(*batch, *end.shape) for end in ends)
            middle = torch.cat([first, torch.nn.functional.pad(middle, (0, below + above)), last], -2)
        return middle[..., :k, :] if what == "rows" else middle

    def _grouped(self, x: Tensor, valid: Tensor | None, what: str, descending: bool, k: int) -> Tensor:
        n, flat = x.shape[-1], x.reshape(-1, x.shape[-1])
        kept = torch.ones_like(flat, dtype=torch.bool) if valid is None else valid.reshape(-1, n)
        low, high = kept & (flat == -torch.inf), kept & (flat == torch.inf)
        kind = torch.where(low, 1, torch.where(high, 2, torch.where(kept, 0, 3)))
        # Finite entries first, then -inf, inf and padding, each in their order.
        order = torch.argsort(kind, dim=-1, stable=True)
        packed = torch.where(kind == 0, flat, 0.0).gather(-1, order)
        counts = torch.stack([(kind == 0).sum(-1), low.sum(-1), high.sum(-1)], -1)
        parts, members = [], []
        for count in torch.unique(counts, dim=0):
            finite, below, above = count.tolist()
            group = (counts == count).all(-1).nonzero().squeeze(-1)
            part = self._alike(packed[group, :finite], below, above, what, descending, k)
            missing = n - finite - below - above
            shape = {"values": (0, missing), "ranks": (0, missing), "matrix": (0, missing, 0, missing)}
            rows = (0, missing, 0, k - part.shape[-2]) if what == "rows" else shape[what]
            parts.append(torch.nn.functional.pad(part, rows))
            members.append(group)
        if not parts:  # an empty batch
            return self._alike(x, 0, 0, what, descending, k)
        result = torch.cat(parts)[torch.argsort(torch.cat(members))]
        if what != "values":  # put the inputs back where they were
            place = torch.argsort(order, dim=-1)
            place = place.reshape(len(place), *[1] * (result.ndim - 2), n).expand_as(result)
            result = result.gather(-1, place)
        return result.reshape(*x.shape[:-1], *result.shape[1:])

    def extra_repr(self) -> str:
        return f"steepness={self.steepness}"


def _moved(x: Tensor, source: int, destination: int) -> Tensor:
    """``x.movedim``, which costs as much as a small sort even where nothing moves."""
    return x if (source - destination) % x.ndim == 0 else x.movedim(source, destination)
