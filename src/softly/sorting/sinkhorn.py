"""SinkhornSort: entropic optimal transport between the inputs and the ranks."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from softly import _inputs, native
from softly.sorting.lists import Lists
from softly.sorting.neuralsort import misplacement
from softly.sorting.sorter import Sorter, Steepness

__all__ = ["SinkhornSort"]


class SinkhornSort(Sorter):
    """Sorting as optimal transport (Cuturi et al., 2019), the matrix ``exp(steepness * (2r - n - 1) x + f_r + g)``.

    The potentials f and g make rows and columns sum to 1: it is the plan between the values and the ranks
    ``r - (n + 1) / 2`` of least squared distance plus entropy at the temperature ``1 / steepness``, and also
    NeuralSort's matrix made doubly stochastic. As ``steepness -> inf`` it is the permutation of ``torch.sort``;
    at n = 2 it is the logistic swap.

    In the log domain, each iteration normalises the rows and takes a Newton step in g towards columns of
    sum 1: a handful do where alternate normalisation takes thousands. Two more steps are differentiated, from
    potentials that are not: as a Newton step squares the distance to the solution, derivatives up to the third
    are those of the solution, and nothing is unrolled.

    Args:
        steepness: Inverse temperature, > 0, or "auto".
        tolerance: How far sums of columns may be from 1, within what rounding allows; a warning says if more
            than ``max_iterations`` would be needed.
        max_iterations: How many to take at most; while compiling or under ``torch.func``, where nothing may
            depend on data, so many are taken.
        straight_through: Whether values are hard, with soft gradients.

    Example:
        >>> softly.SinkhornSort(steepness=1.0).permutation(torch.tensor([1.0, 0.0]))
        tensor([[0.2689, 0.7311],
                [0.7311, 0.2689]])
    """

    def __init__(
        self,
        *,
        steepness: Steepness = 10.0,
        tolerance: float = 1e-6,
        max_iterations: int = 20,
        straight_through: bool = False,
    ) -> None:
        super().__init__(steepness=steepness, straight_through=straight_through)
        if not tolerance > 0:
            raise ValueError(f"softly.SinkhornSort: tolerance must be positive, got {tolerance}.")
        max_iterations = _inputs.integer(max_iterations, "softly.SinkhornSort", "max_iterations")
        if max_iterations < 1:
            raise ValueError(f"softly.SinkhornSort: max_iterations must be an integer >= 1, got {max_iterations}.")
        self.tolerance = tolerance
        self.max_iterations = max_iterations

    @property
    def doubly_stochastic(self) -> bool:
        """Always, to its tolerance: that is what its iterations are for."""
        return True

    def _permutation(self, x: Tensor, steepness: float | Tensor, lists: Lists | None) -> Tensor:
        return torch.softmax(self._solved(x, steepness, lists), -1)

    def _log_permutation(self, x: Tensor, steepness: float | Tensor, lists: Lists | None) -> Tensor:
        # In float32 the potentials of entries that share next to no mass are lost in rounding, and derivatives too.
        return torch.log_softmax(self._solved(x.double(), steepness, lists), -1).to(x.dtype)

    def _log_topk(self, x: Tensor, steepness: float | Tensor, k: int) -> Tensor:
        return self._log_permutation(x, steepness, None).flip(-2)[..., :k, :]

    def _solved(self, x: Tensor, steepness: float | Tensor, lists: Lists | None) -> Tensor:
        """The logits with the potentials of the columns; a softmax over rows is the matrix."""
        logits = _logits(x, steepness)
        logits = logits if lists is None else lists.masked(logits)
        read = native.data(logits) is not None and not native.transformed(logits)
        tolerance = max(self.tolerance, _rounding(x))
        g = torch.zeros_like(x).detach()
        for _ in range(self.max_iterations):
            P = torch.softmax(logits.detach() + g.unsqueeze(-2), -1)
            if read and not bool((_residual(P) > tolerance).any()):
                break
            g = g + _newton(P)
        for _ in range(2):
            P = torch.softmax(logits + g.unsqueeze(-2), -1)
            g = g + _newton(P)
        solved = logits + g.unsqueeze(-2)
        if read:
            residual = _residual(torch.softmax(solved.detach(), -1))
            if bool((residual > tolerance).any()):
                warnings.warn(
                    f"softly.SinkhornSort: after {self.max_iterations} iterations sums of columns are off by "
                    f"{float(residual.amax()):.1e}, more than the tolerance {tolerance:.1e}: raise max_iterations.",
                    stacklevel=6,
                )
        return solved

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, tolerance={self.tolerance}, max_iterations={self.max_iterations}"


def _logits(x: Tensor, steepness: float | Tensor) -> Tensor:
    """``steepness * (2r - n - 1) x``, up to potentials of rows and columns."""
    n = x.shape[-1]
    if isinstance(steepness, Tensor):
        steepness = steepness.unsqueeze(-1) if steepness.ndim else steepness
    ranks = torch.arange(1 - n, n, 2, dtype=x.dtype, device=x.device).unsqueeze(-1)
    plain = steepness * ranks * x.unsqueeze(-2)
    # NeuralSort's logits are close to the solution and nothing cancels in them, but they have kinks at ties. The
    # potentials absorb the difference, so that values may come from these and derivatives from the plain ones.
    return -(steepness * misplacement(x.detach())).detach() + (plain - plain.detach())


def _rounding(x: Tensor) -> float:
    """How far a sum over the last dimension may be from 1 by rounding alone."""
    return 4.0 * torch.finfo(x.dtype).eps * math.sqrt(x.shape[-1])


def _residual(P: Tensor) -> Tensor:
    return (P.sum(-2) - 1.0).abs()


def _newton(P: Tensor) -> Tensor:
    """The step in the potentials of the columns towards columns of ``P`` of sum 1; rows have it already."""
    # The derivative of the sums is the Laplacian of the graph with weights PᵀP: made from what is off its
    # diagonal, it stays exact where P is almost a permutation.
    weights = P.mT @ P
    weights = weights - torch.diag_embed(weights.diagonal(dim1=-2, dim2=-1))
    degrees = weights.sum(-1)
    # A common shift changes nothing, and shifts between parts that share next to no mass only follow the rounding
    # of the sums: what is added to the diagonal holds them in place.
    laplacian = torch.diag_embed(degrees + _rounding(P)) - weights
    step = torch.linalg.solve_ex(laplacian, 1.0 - P.sum(-2))[0]
    return step - step.mean(-1, keepdim=True)
