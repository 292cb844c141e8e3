"""The protocol that all sorters share: checks, dimensions, masks and infinities in one place."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import torch
from torch import Tensor

from softly import _dims, _inputs, native
from softly._steepness import Steep, Steepness
from softly._straight_through import straight_through
from softly.distributions.base import log
from softly.sorting import hard
from softly.sorting.lists import FINITE, HIGH, LOW, Lists, backwards

__all__ = ["Sorter", "Steepness"]


class Sorter(Steep):
    """A differentiable sorting operator.

    Every sorter relaxes sorting to a matrix of probabilities: ``P[rank, input]`` is how likely the input has that
    rank, rows go from the smallest to the largest, and ``P @ x`` is the sorted vector. As ``steepness -> inf`` it
    is the permutation matrix of ``torch.sort``. Calling a sorter sorts.

    A subclass defines ``_permutation(x, steepness, lists)`` for finite ``x`` of shape (..., n), and overrides
    ``_values``, ``_ranks`` and ``_topk`` where there is a cheaper way than through the matrix, and ``_log_permutation``
    and ``_log_topk`` where there is one that doesn't underflow. ``lists`` is None where all entries are there and
    finite.

    Lists of unequal length share a tensor with ``lengths`` or a boolean ``mask`` of their entries. Each is
    sorted as if it were alone, so that padding never gets probability: its columns are 0, and so are the rows,
    values and ranks behind a list's end. Entries at -inf and inf have the first and last ranks, shared evenly, and
    leave the others to be sorted as if alone. That holds compiled and under ``torch.func`` too.

    Args:
        steepness: Inverse temperature, > 0; a tensor or parameter can be learned; "auto" adapts to the spread
            and number of the values.
        straight_through: Whether values are those of the hard operator, with the gradients of the soft one.

    Example:
        >>> softly.SoftSort(steepness=4.0).permutation(torch.tensor([3.0, 1.0, 2.0])).argmax(-1)
        tensor([1, 2, 0])
    """

    def __init__(self, *, steepness: Steepness = 10.0, straight_through: bool = False) -> None:
        super().__init__(steepness, name=f"softly.{type(self).__name__}", auto=True)
        self.straight_through = straight_through

    @property
    def monotonic(self) -> bool:
        """Whether no sorted value ever falls where an input rises, so that no gradient has the wrong sign."""
        return False

    @property
    def doubly_stochastic(self) -> bool:
        """Whether columns of the matrix sum to 1 like its rows, so that a value has one place in all."""
        return False

    def error_bound(self, n: int, *, k: int | None = None) -> float | None:
        """How far a sorted value of ``n``, or one of the k largest, can be from the hard one; None if unknown.

        Example:
            >>> softly.SortingNetwork("bitonic", distribution="optimal", steepness=10.0).error_bound(8)
            0.0375
            >>> softly.NeuralSort().error_bound(8) is None
            True
        """
        return None

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
        result = self._relaxed(lambda y: self._sorted(y, valid), lambda y: hard.values(y, valid), rows)
        return _moved(backwards(result, rows, valid, -1) if descending else result, -1, dim)

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
        result = self._relaxed(lambda y: self._matrix(y, valid), lambda y: hard.matrix(y, valid), rows)
        return backwards(result, rows, valid, -2) if descending else result

    def log_permutation(
        self,
        x: Tensor,
        *,
        dim: int = -1,
        descending: bool = False,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The logarithms of `permutation`, right where probabilities underflow: what losses are made of.

        As ``steepness -> inf`` entries go to 0 where the permutation matrix is 1 and to -inf elsewhere; rows of their
        exponentials sum to 1.

        Args:
            x: (..., n, ...) Values.
            dim: The dimension that is sorted; the others, in their order, come first in the result.
            descending: Rank 0 is the largest, by the same relaxation read backwards.
            lengths: (...) Lengths of lists that are padded at their end, of the shape of ``x`` without ``dim``.
            mask: Where ``x`` holds an entry, of the shape of ``x``; what isn't there has -inf.

        Example:
            >>> softly.SoftSort(steepness=200.0).log_permutation(torch.tensor([1.0, 0.0]))
            tensor([[-200.,    0.],
                    [   0., -200.]])
        """
        rows, valid = self._rows(x, dim, lengths, mask, "log_permutation")
        result = _inputs.at_least_single(lambda y: self._log_matrix(y, valid), rows)
        return backwards(result, rows, valid, -2) if descending else result

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
        result = self._relaxed(lambda y: self._ranked(y, valid), lambda y: hard.ranks(y, valid), rows)
        if descending:
            total = rows.shape[-1] if valid is None else valid.sum(-1, keepdim=True)
            result = total + 1 - result if valid is None else torch.where(valid, total + 1 - result, result)
        return _moved(result, -1, dim)

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
        k = _count(k, rows.shape[-1])
        return self._relaxed(lambda y: self._top(y, valid, k), lambda y: hard.top(y, valid, k), rows)

    def log_topk(
        self,
        x: Tensor,
        k: int,
        *,
        dim: int = -1,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The logarithms of `topk`, right where probabilities underflow, (..., k, n).

        As ``steepness -> inf`` entries go to 0 at ``torch.topk(x, k).indices`` and to -inf elsewhere.

        Args:
            x: (..., n, ...) Values.
            k: How many, in [1, n].
            dim: The dimension that is searched; the others, in their order, come first in the result.
            lengths: (...) Lengths of lists that are padded at their end, of the shape of ``x`` without ``dim``.
            mask: Where ``x`` holds an entry, of the shape of ``x``; what isn't there has -inf.

        Example:
            >>> softly.TopKNetwork(distribution="logistic", steepness=200.0).log_topk(torch.tensor([1.0, 0.0]), 1)
            tensor([[  -0., -200.]])
        """
        rows, valid = self._rows(x, dim, lengths, mask, "log_topk")
        k = _count(k, rows.shape[-1])
        return _inputs.at_least_single(lambda y: self._log_top(y, valid, k), rows)

    def topk_values(
        self,
        x: Tensor,
        k: int,
        *,
        dim: int = -1,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The relaxed values of the k largest, from the largest: ``topk(x, k) @ x``, of the shape of ``x`` but for dim.

        As ``steepness -> inf`` this is ``torch.topk(x, k, dim).values``.

        Args:
            x: (..., n, ...) Values.
            k: How many, in [1, n].
            dim: The dimension that is searched.
            lengths: (...) Lengths of lists that are padded at their end, of the shape of ``x`` without ``dim``.
            mask: Where ``x`` holds an entry, of the shape of ``x``.

        Example:
            >>> softly.SoftSort(steepness=50.0).topk_values(torch.tensor([3.0, 1.0, 2.0]), 2)
            tensor([3., 2.])
        """
        rows, valid = self._rows(x, dim, lengths, mask, "topk_values")
        k = _count(k, rows.shape[-1])

        def soft(y: Tensor) -> Tensor:
            P = self._top(y, valid, k)
            entries = Lists(y, valid).entries
            values = (P @ torch.where(entries == FINITE, y, 0.0).unsqueeze(-1)).squeeze(-1)
            low, high = (torch.where((entries == kind).unsqueeze(-2), P, 0.0).sum(-1) > 0 for kind in (LOW, HIGH))
            return torch.where(low, -torch.inf, torch.where(high, torch.inf, values))

        def exact(y: Tensor) -> Tensor:
            return backwards(hard.values(y, valid), y, valid, -1)[..., :k]

        return _moved(self._relaxed(soft, exact, rows), -1, dim)

    # What a subclass defines: rows of finite entries, or with `lists` such that large numbers stand for the others ---

    def _permutation(self, x: Tensor, steepness: float | Tensor, lists: Lists | None) -> Tensor:
        raise AttributeError(f"{type(self).__name__} defines no permutation")

    def _log_permutation(self, x: Tensor, steepness: float | Tensor, lists: Lists | None) -> Tensor:
        return log(self._permutation(x, steepness, lists))

    def _values(self, x: Tensor, steepness: float | Tensor, lists: Lists | None) -> Tensor:
        P = self._permutation(x, steepness, lists)
        return (P @ (x if lists is None else torch.where(lists.entries == FINITE, x, 0.0)).unsqueeze(-1)).squeeze(-1)

    def _ranks(self, x: Tensor, steepness: float | Tensor, lists: Lists | None) -> Tensor:
        """Ranks from 1, of finite entries among each other."""
        ranks = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
        P = self._permutation(x, steepness, lists)
        if lists is not None:
            ranks = torch.where(lists.ranks == FINITE, ranks - lists.below, 0.0).unsqueeze(-2)
            return (ranks @ P).squeeze(-2)
        return (ranks @ P).reshape(x.shape)

    def _topk(self, x: Tensor, steepness: float | Tensor, k: int) -> Tensor:
        return self._permutation(x, steepness, None).flip(-2)[..., :k, :]

    def _log_topk(self, x: Tensor, steepness: float | Tensor, k: int) -> Tensor:
        return log(self._topk(x, steepness, k))

    def _auto(self, n: int, k: int) -> float:
        """The steepness at which "auto" sorts ``n`` values of unit standard deviation, or selects k of them.

        Spread evenly, they are ``√12 / n`` apart. With the inverse of that as steepness, the logits of
        neighbours in rank differ by 1: a rank's mass is shared by a few neighbours, for any n and spread.
        """
        return n / math.sqrt(12.0)

    # Rows with whatever entries ----------------------------------------------------------------------------------

    def _lists(self, x: Tensor, valid: Tensor | None) -> Lists | None:
        return None if valid is None and _inputs.known_finite(x) else Lists(x, valid)

    def _sorted(self, x: Tensor, valid: Tensor | None) -> Tensor:
        lists = self._lists(x, valid)
        if lists is None:
            return self._values(x, self._dial(x, None), None)
        return lists.values(self._values(lists.filled(x), self._dial(x, lists), lists))

    def _matrix(self, x: Tensor, valid: Tensor | None) -> Tensor:
        lists = self._lists(x, valid)
        if lists is None:
            return self._permutation(x, self._dial(x, None), None)
        return lists.present(self._permutation(lists.filled(x), self._dial(x, lists), lists))

    def _log_matrix(self, x: Tensor, valid: Tensor | None) -> Tensor:
        lists = self._lists(x, valid)
        if lists is None:
            return self._log_permutation(x, self._dial(x, None), None)
        return lists.present(self._log_permutation(lists.filled(x), self._dial(x, lists), lists), -torch.inf)

    def _ranked(self, x: Tensor, valid: Tensor | None) -> Tensor:
        lists = self._lists(x, valid)
        if lists is None:
            return self._ranks(x, self._dial(x, None), None)
        return lists.expected_ranks(self._ranks(lists.filled(x), self._dial(x, lists), lists))

    def _top(self, x: Tensor, valid: Tensor | None, k: int) -> Tensor:
        lists = self._lists(x, valid)
        if lists is None:
            return self._topk(x, self._dial(x, None, k), k)
        P = lists.present(self._permutation(lists.filled(x), self._dial(x, lists, k), lists))
        return lists.from_largest(P, -2)[..., :k, :]

    def _log_top(self, x: Tensor, valid: Tensor | None, k: int) -> Tensor:
        lists = self._lists(x, valid)
        if lists is None:
            return self._log_topk(x, self._dial(x, None, k), k)
        log_P = self._log_permutation(lists.filled(x), self._dial(x, lists, k), lists)
        return lists.from_largest(lists.present(log_P, -torch.inf), -2)[..., :k, :]

    def _dial(self, x: Tensor, lists: Lists | None, k: int | None = None) -> float | Tensor:
        """The steepness for rows of ``x``: a number, or a tensor that multiplies them."""
        steepness, n = self._current_steepness(), x.shape[-1]
        if isinstance(steepness, str):
            return self._automatic(x, lists, n if k is None else k)
        if isinstance(steepness, Tensor):
            return _inputs.steepness_of_lists(steepness, x, self._name)
        return steepness

    def _automatic(self, x: Tensor, lists: Lists | None, k: int) -> Tensor:
        n = x.shape[-1]
        if lists is None:
            spread = x.detach().std(-1, keepdim=True, correction=0)
            return self._auto(n, k) / torch.where(spread > 0, spread, 1.0)
        finite, count = lists.entries == FINITE, lists.count.clamp(min=1)
        entries = torch.where(finite, x.detach(), 0.0)
        mean = entries.sum(-1, keepdim=True) / count
        spread = (torch.where(finite, entries - mean, 0.0).square().sum(-1, keepdim=True) / count).sqrt()
        return self._auto_by_count(lists, n, k).to(x.dtype) / torch.where(spread > 0, spread, 1.0)

    def _auto_by_count(self, lists: Lists, n: int, k: int) -> Tensor:
        scales = [self._auto(count, min(k, count)) if count else 1.0 for count in range(n + 1)]
        return torch.tensor(scales, dtype=torch.float64, device=lists.count.device)[lists.count]

    def _relaxed(self, soft: Callable[[Tensor], Tensor], exact: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        result = _inputs.at_least_single(soft, x)
        return straight_through(exact(x.detach()), result) if self.straight_through else result

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
        if dim == -1 and x.ndim > 2 and x.shape[-1] == 1 and x.shape[-2] > 1 and not torch.compiler.is_compiling():
            _dims.warn_of_one(x, name)
        if lengths is not None and mask is not None:
            raise ValueError(f"{name}: give lengths or mask, not both.")
        if lengths is not None:
            if lengths.shape != rows.shape[:-1] or lengths.is_floating_point() or lengths.dtype == torch.bool:
                raise ValueError(
                    f"{name}: lengths must be integers of shape {tuple(rows.shape[:-1])}, "
                    f"got {lengths.dtype} of shape {tuple(lengths.shape)}."
                )
            read = native.data(lengths)
            if read is not None and ((read < 0) | (read > rows.shape[-1])).any():
                raise ValueError(
                    f"{name}: lengths must be in [0, {rows.shape[-1]}], got {int(read.min())} to {int(read.max())}."
                )
            present = torch.arange(rows.shape[-1], device=x.device) < lengths.unsqueeze(-1)
            if read is None:  # a list whose length can't be, and can't be refused, is NaN
                wrong = ((lengths < 0) | (lengths > rows.shape[-1])).unsqueeze(-1)
                return torch.where(wrong, torch.nan, rows), present | wrong
            return rows, present
        if mask is not None:
            if mask.shape != x.shape or mask.dtype != torch.bool:
                raise ValueError(
                    f"{name}: mask must be boolean of shape {tuple(x.shape)}, "
                    f"got {mask.dtype} of shape {tuple(mask.shape)}."
                )
            return rows, mask.movedim(dim, -1)
        return rows, None

    def extra_repr(self) -> str:
        through = ", straight_through=True" if self.straight_through else ""
        return f"steepness={self.steepness}{through}"


def _moved(x: Tensor, source: int, destination: int) -> Tensor:
    """``x.movedim``, which costs as much as a small sort even where nothing moves."""
    return x if (source - destination) % x.ndim == 0 else x.movedim(source, destination)


def _count(k: int, n: int) -> int:
    try:
        number = operator.index(k)
    except TypeError:
        number = None
    if number is None or isinstance(k, bool):
        raise TypeError(f"softly.topk: k must be an integer, got {type(k).__name__}.")
    if not 1 <= number <= n:
        raise ValueError(f"softly.topk: k must be in [1, {n}], got {number}.")
    return number
