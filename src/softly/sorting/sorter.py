"""The protocol that all sorters share: checks, dimensions, masks and infinities in one place."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from softly import _inputs

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
    values and ranks behind a list's end. Lengths are read on the host.

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
        infinite = rows.isinf()

        def values(y: Tensor) -> Tensor:
            result = self._values(y, self._steepness(y))
            return result.flip(-1) if descending else result

        result = self._each(rows, valid, values, 0)
        # What an infinite entry takes part in with more than a trace is infinite.
        beyond = infinite.any(-1, keepdim=True) & (result.abs() > 1e-3 * _inputs.large(result))
        result = torch.where(beyond, torch.sign(result.detach()) * torch.inf, result)
        return result.movedim(-1, dim)

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

        def matrix(y: Tensor) -> Tensor:
            result = self._permutation(y, self._steepness(y))
            return result.flip(-2) if descending else result

        return self._each(rows, valid, matrix, 2)

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

        def ranks(y: Tensor) -> Tensor:
            result = self._ranks(y, self._steepness(y))
            return y.shape[-1] + 1.0 - result if descending else result

        return self._each(rows, valid, ranks, 1).movedim(-1, dim)

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

        def largest(y: Tensor) -> Tensor:
            result = self._topk(y, self._steepness(y), min(k, y.shape[-1]))
            return torch.nn.functional.pad(result, (0, 0, 0, k - result.shape[-2]))

        return self._each(rows, valid, largest, 3)

    def _permutation(self, x: Tensor, steepness: float | Tensor) -> Tensor:
        raise AttributeError(f"{type(self).__name__} defines no permutation")

    def _values(self, x: Tensor, steepness: float | Tensor) -> Tensor:
        return (self._permutation(x, steepness) @ x.unsqueeze(-1)).squeeze(-1)

    def _ranks(self, x: Tensor, steepness: float | Tensor) -> Tensor:
        ranks = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
        return (ranks @ self._permutation(x, steepness)).reshape(x.shape)

    def _topk(self, x: Tensor, steepness: float | Tensor, k: int) -> Tensor:
        return self._permutation(x, steepness).flip(-2)[..., :k, :]

    def _auto(self, n: int) -> float:
        """The steepness at which "auto" sorts ``n`` values of unit standard deviation.

        Spread evenly, they are ``√12 / n`` apart. With the inverse of that as steepness, the logits of
        neighbours in rank differ by 1: a rank's mass is shared by a few neighbours, for any n and spread.
        """
        return n / math.sqrt(12.0)

    def _steepness(self, x: Tensor) -> float | Tensor:
        if not isinstance(self.steepness, str):
            return self.steepness
        spread = x.detach().std(-1, keepdim=True, correction=0)
        return self._auto(x.shape[-1]) / torch.where(spread > 0, spread, 1.0)

    def _rows(
        self, x: Tensor, dim: int, lengths: Tensor | None, mask: Tensor | None, method: str
    ) -> tuple[Tensor, Tensor | None]:
        """``x`` with the sorted dimension last, and where it is valid."""
        name = f"softly.{method}"
        _inputs.floating(x, name, "x")
        if x.ndim == 0 or not -x.ndim <= dim < x.ndim:
            allowed = f"in [{-x.ndim}, {x.ndim - 1}]" if x.ndim else "the dimension of a vector, not of a number"
            raise ValueError(f"{name}: dim must be {allowed}, got {dim}.")
        rows = x.movedim(dim, -1)
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

    @staticmethod
    def _each(x: Tensor, valid: Tensor | None, function: Callable[[Tensor], Tensor], kind: int) -> Tensor:
        """Apply ``function`` to rows of finite numbers, alone or in groups of one length.

        ``kind`` tells what the dimensions of its result are: 0 ranks, 1 inputs, 2 ranks and inputs, 3 a fixed
        number of ranks and inputs.
        """

        def finite(y: Tensor) -> Tensor:
            return _inputs.at_least_single(lambda z: function(_inputs.finite(z)), y)

        if valid is None:
            return finite(x)
        n, flat, kept = x.shape[-1], x.flatten(0, -2), valid.flatten(0, -2)
        lengths = kept.sum(-1)
        # Entries first, padding behind them, both in their order.
        order = torch.argsort((~kept).to(torch.uint8), dim=-1, stable=True)
        packed = torch.where(kept, flat, 0.0).gather(-1, order)
        parts, members = [], []
        for length in torch.unique(lengths).tolist():
            group = (lengths == length).nonzero().squeeze(-1)
            rows = packed[group, : max(length, 1)]
            part = finite(rows)
            missing = n - rows.shape[-1]
            part = torch.nn.functional.pad(part, (0, missing, 0, missing) if kind == 2 else (0, missing))
            parts.append(part if length else torch.zeros_like(part))
            members.append(group)
        result = torch.cat(parts)[torch.argsort(torch.cat(members))]
        if kind:
            place = torch.argsort(order, dim=-1)
            place = place.reshape(place.shape[0], *[1] * (result.ndim - 2), n).expand_as(result)
            result = result.gather(-1, place)
        return result.reshape(*x.shape[:-1], *result.shape[1:])

    def extra_repr(self) -> str:
        return f"steepness={self.steepness}"
