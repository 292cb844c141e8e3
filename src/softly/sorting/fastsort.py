"""FastSort: sorting and ranking as projections onto the permutahedron."""

from __future__ import annotations

import torch
from torch import Tensor

from softly import _inputs, native
from softly.sorting.lists import FINITE, LOW, Lists
from softly.sorting.sorter import Sorter, Steepness

__all__ = ["FastSort"]


class FastSort(Sorter):
    """Fast soft sorting and ranking (Blondel et al., 2020): projections onto permutahedra, in O(n log n).

    The permutahedron of w is the convex hull of its permutations. ``sort(x)`` projects ``steepness * (1, ..., n)``
    onto that of x, and ``rank(x)`` projects ``steepness * x`` onto that of ``(1, ..., n)``, which is regularised
    linear programming with strength ``1 / steepness``. As ``steepness -> inf`` these are ``torch.sort`` and the
    ranks; they are exact from a finite steepness on, for values as soon as it exceeds the largest gap between
    neighbours, for ranks ("l2") the inverse of the smallest. Sorted values keep the sum of ``x`` ("l2") or of
    ``exp(x)`` ("kl"); ranks sum to ``n (n + 1) / 2``.

    Where a result is exact, ranks have derivative 0: a steepness that leaves a share of the neighbours pooled
    learns best. "auto" puts the typical gap at the border.

    There are no probabilities behind this relaxation: `permutation` and `topk` raise.

    Args:
        regularization: "l2", the Euclidean projection, which is piecewise linear; or "kl", the Kullback-Leibler
            projection, of ``exp`` of both vectors for values, and of ``exp(steepness * x)`` onto the permutahedron
            of ``(1, ..., n)`` for ranks: within a block it is a softmax, and smooth.
        steepness: Inverse regularisation strength, > 0, or "auto".
        straight_through: Whether values are hard, with soft gradients.

    Example:
        >>> softly.FastSort(steepness=0.5).rank(torch.tensor([3.0, 1.0, 2.0]))
        tensor([2.5000, 1.5000, 2.0000])
        >>> softly.FastSort(steepness=0.5).sort(torch.tensor([3.0, 1.0, 2.0]))
        tensor([1.5000, 2.0000, 2.5000])
    """

    def __init__(
        self, *, regularization: str = "l2", steepness: Steepness = 1.0, straight_through: bool = False
    ) -> None:
        super().__init__(steepness=steepness, straight_through=straight_through)
        if regularization not in ("l2", "kl"):
            raise ValueError(f"softly.FastSort: regularization must be 'l2' or 'kl', got {regularization!r}.")
        self.regularization = regularization

    @property
    def monotonic(self) -> bool:
        """Always: isotonic regression is."""
        return True

    def _values(self, x: Tensor, steepness: float | Tensor, lists: Lists | None) -> Tensor:
        if isinstance(self._current_steepness(), str):
            # Ranks are pooled where steepness * gap < 1, values where steepness < gap: what "auto" is for ranks,
            # its inverse is for values.
            steepness = 1.0 / steepness
        z = steepness * torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)
        if lists is not None:
            # Ranks that are not finite are as far from the others as to be pooled with none of them.
            far = 10.0 * _inputs.large(x)
            z = torch.where(lists.ranks == FINITE, z, torch.where(lists.ranks == LOW, z - far, z + far))
        return _project(z, x, self.regularization == "kl")

    def _ranks(self, x: Tensor, steepness: float | Tensor, lists: Lists | None) -> Tensor:
        n = x.shape[-1]
        ranks = torch.arange(1, n + 1, dtype=x.dtype, device=x.device)
        if lists is not None:
            outside = torch.where(lists.ranks == LOW, 0.5, n + 1.0).to(x.dtype)
            ranks = torch.where(lists.ranks == FINITE, ranks - lists.below, outside)
        if self.regularization == "kl":
            return _project(steepness * x, ranks.log(), True).exp()
        return _project(steepness * x, ranks, False)

    def _permutation(self, x: Tensor, steepness: float | Tensor, lists: Lists | None) -> Tensor:
        raise TypeError(
            "softly.FastSort: it sorts and ranks without a permutation matrix; for permutation and topk use "
            "softly.SoftSort or softly.SortingNetwork."
        )

    def extra_repr(self) -> str:
        return f"regularization={self.regularization!r}, {super().extra_repr()}"


def _project(z: Tensor, w: Tensor, kl: bool) -> Tensor:
    """The projection of ``z`` onto the permutahedron of ``w``, in the order of ``z``."""
    return _permutahedron(torch.stack(torch.broadcast_tensors(z, w), -2), kl)


def _blocks(z: Tensor, w: Tensor, kl: bool) -> Tensor:
    """Whether entries i and j are pooled in the isotonic regression of ``z - w``, (..., n, n).

    The regression is ``v_i = max_{j <= i} min_{k >= i} level(j, k)`` with the level of a block from j to k, the
    difference of means or of logarithms of sums: two entries are pooled where one block decides both.
    """
    n = z.shape[-1]
    block = torch.ones(n, n, dtype=torch.bool, device=z.device).triu()
    if kl:
        total = lambda t: torch.logcumsumexp(torch.where(block, t.unsqueeze(-2), -torch.inf), -1)  # noqa: E731
        level = total(z) - total(w)
    else:
        place = torch.arange(n, device=z.device)
        length = (place - place.unsqueeze(-1) + 1).clamp(min=1)
        level = torch.where(block, (z - w).unsqueeze(-2), 0.0).cumsum(-1) / length
    level = torch.where(block, level, torch.inf).flip(-1).cummin(-1).values.flip(-1)
    v = torch.where(block, level, -torch.inf).amax(-2)
    return v.unsqueeze(-1) == v.unsqueeze(-2)


def _permutahedron_reference(pairs: Tensor, kl: bool) -> Tensor:
    # In ascending order the projection is z - v. As the blocks are piecewise constant, on each it is a formula in
    # its entries, z - mean z + mean w or z - lse z + lse w, which is differentiated as it stands. Relative to the
    # largest z of the block, a large z or steepness costs no digits.
    z, order = torch.sort(pairs[..., 0, :], dim=-1, stable=True)
    w = torch.sort(pairs[..., 1, :], dim=-1, stable=True).values
    same = _blocks(z.detach(), w.detach(), kl)
    top = torch.where(same, z.detach().unsqueeze(-2), -torch.inf).amax(-1)
    relative = z.unsqueeze(-2) - top.unsqueeze(-1)
    if kl:
        pooled = lambda t: torch.where(same, t, -torch.inf).logsumexp(-1)  # noqa: E731
    else:
        pooled = lambda t: torch.where(same, t, 0.0).sum(-1) / same.sum(-1)  # noqa: E731
    result = (z - top) - pooled(relative) + pooled(w.unsqueeze(-2))
    unknown = pairs.isnan().any(-1).any(-1, keepdim=True)
    return torch.zeros_like(result).scatter(-1, order, torch.where(unknown, torch.nan, result))


def _call(name: str, pairs: Tensor, *others: Tensor, kl: bool) -> None:
    n = pairs.shape[-1]
    pointers = [t.data_ptr() for t in (pairs, *others)]
    kernel = native.kernel(name, pairs.dtype)
    if not kernel(*pointers, pairs.numel() // (2 * n), n, kl, torch.get_num_threads()):
        raise MemoryError(f"softly.FastSort: no memory for the scratch space of {name}.")


def _permutahedron_shape(pairs: Tensor, kl: bool) -> tuple[Tensor, Tensor]:
    batch, n = pairs.shape[:-2], pairs.shape[-1]
    return pairs.new_empty(*batch, n), pairs.new_empty(*batch, 3, n, dtype=torch.int32)


def _permutahedron_forward(pairs: Tensor, kl: bool) -> tuple[Tensor, Tensor]:
    out, kept = _permutahedron_shape(pairs, kl)
    _call("permutahedron", pairs, out, kept, kl=kl)
    return out, kept


def _permutahedron_backward(grad: Tensor, pairs: Tensor, kept: Tensor, kl: bool) -> Tensor:
    grad_pairs = torch.empty_like(pairs)
    _call("permutahedron_backward", pairs, grad, kept, grad_pairs, kl=kl)
    return grad_pairs


_permutahedron = native.Operator(
    "permutahedron",
    forward=_permutahedron_forward,
    shape=_permutahedron_shape,
    backward=_permutahedron_backward,
    reference=_permutahedron_reference,
)
