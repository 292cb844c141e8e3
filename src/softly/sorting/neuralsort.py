"""NeuralSort: a softmax over the sums of differences that identify each rank."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from softly import distributions
from softly.sorting.lists import Lists
from softly.sorting.sorter import Sorter, Steepness

__all__ = ["NeuralSort"]


class NeuralSort(Sorter):
    """NeuralSort (Grover et al., 2019): row r is ``softmax(steepness * ((2r - n - 1) x - Σⱼ |x - xⱼ|))``.

    As ``steepness -> inf`` the matrix is the permutation of ``torch.sort``; at every steepness its rows sum to 1
    and it is unimodal. At n = 2 it is the logistic swap. With ``num_samples`` it is stochastic: the mean over
    draws of Gumbel noise on ``x``, which is the relaxed Plackett-Luce distribution over permutations.

    Args:
        steepness: Inverse temperature, > 0, or "auto".
        num_samples: Number of draws, or None for the deterministic operator.
        scale: Scale of the noise, > 0.
        generator: Source of the noise, on the device of the inputs.
        straight_through: Whether values are hard, with soft gradients.

    Example:
        >>> softly.NeuralSort(steepness=1.0).permutation(torch.tensor([1.0, 0.0]))
        tensor([[0.2689, 0.7311],
                [0.7311, 0.2689]])
    """

    def __init__(
        self,
        *,
        steepness: Steepness = 10.0,
        num_samples: int | None = None,
        scale: float = 1.0,
        generator: torch.Generator | None = None,
        straight_through: bool = False,
    ) -> None:
        super().__init__(steepness=steepness, straight_through=straight_through)
        if num_samples is not None and num_samples < 1:
            raise ValueError(f"softly.NeuralSort: num_samples must be >= 1 or None, got {num_samples}.")
        if not scale > 0:
            raise ValueError(f"softly.NeuralSort: scale must be positive, got {scale}.")
        self.num_samples = num_samples
        self.scale = scale
        self.generator = generator

    def samples(
        self,
        x: Tensor,
        *,
        dim: int = -1,
        descending: bool = False,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
        log: bool = False,
    ) -> Tensor:
        """The matrices of single draws, (num_samples, ..., n, n), of which `permutation` is the mean.

        A loss of each and then their mean is the expected loss, as the paper has it, an upper bound of the loss of the
        mean: ``ranking_loss(sorter.samples(x, log=True), ranks.expand(sorter.num_samples, *ranks.shape), log=True)``.

        Args:
            x: (..., n, ...) Values.
            dim: The dimension that is sorted; the others, in their order, come between samples and matrices.
            descending: Rank 0 is the largest.
            lengths: (...) Lengths of lists that are padded at their end, of the shape of ``x`` without ``dim``.
            mask: Where ``x`` holds an entry, of the shape of ``x``.
            log: Whether to give logarithms, as `log_permutation` does.

        Example:
            >>> sorter = softly.NeuralSort(num_samples=4, generator=torch.Generator().manual_seed(0))
            >>> sorter.samples(torch.tensor([3.0, 1.0, 2.0])).shape
            torch.Size([4, 3, 3])
        """
        if self.num_samples is None:
            raise ValueError("softly.NeuralSort.samples: num_samples is None, and the operator draws nothing.")
        once = NeuralSort(steepness=self.steepness, num_samples=1, scale=self.scale, generator=self.generator)
        again = lambda t: t.expand(self.num_samples, *t.shape)  # noqa: E731
        return (once.log_permutation if log else once.permutation)(
            again(x),
            dim=dim if dim < 0 else dim + 1,
            descending=descending,
            lengths=None if lengths is None else again(lengths),
            mask=None if mask is None else again(mask),
        )

    def _permutation(self, x: Tensor, steepness: float | Tensor, lists: Lists | None) -> Tensor:
        return self._mean(torch.softmax(_logits(self._samples(x) * steepness, lists), -1))

    def _log_permutation(self, x: Tensor, steepness: float | Tensor, lists: Lists | None) -> Tensor:
        return self._log_mean(torch.log_softmax(_logits(self._samples(x) * steepness, lists), -1))

    def _topk(self, x: Tensor, steepness: float | Tensor, k: int) -> Tensor:
        return self._mean(torch.softmax(_logits(self._samples(x) * steepness, None)[..., -k:, :], -1)).flip(-2)

    def _log_topk(self, x: Tensor, steepness: float | Tensor, k: int) -> Tensor:
        logits = _logits(self._samples(x) * steepness, None)[..., -k:, :]
        return self._log_mean(torch.log_softmax(logits, -1)).flip(-2)

    def _samples(self, x: Tensor) -> Tensor:
        """``x`` with noise, (samples, ...), or itself."""
        if self.num_samples is None:
            return x
        noise = distributions.get("gumbel_max").sample(
            (self.num_samples, *x.shape), generator=self.generator, dtype=x.dtype
        )
        return x + self.scale * noise.to(x.device)

    def _mean(self, P: Tensor) -> Tensor:
        return P if self.num_samples is None else P.mean(0)

    def _log_mean(self, log_P: Tensor) -> Tensor:
        return log_P if self.num_samples is None else torch.logsumexp(log_P, 0) - math.log(self.num_samples)


def _logits(x: Tensor, lists: Lists | None) -> Tensor:
    return -misplacement(x) if lists is None else lists.masked(-misplacement(x))


def order_statistics(x: Tensor) -> Tensor:
    """The sorted values of ``x`` (..., n), for those who make n² numbers of them."""
    if not torch.compiler.is_compiling():
        return torch.sort(x, -1).values
    # The gradient of a sort scatters, and inductor (torch 2.13, on the CPU) loses a part of what it is added to.
    place = torch.arange(x.shape[-1], device=x.device)
    chosen = torch.argsort(x.detach(), -1).unsqueeze(-1) == place
    return torch.where(chosen, x.unsqueeze(-2), 0.0).sum(-1)


def misplacement(x: Tensor) -> Tensor:
    """How far each input is from each rank, (..., n, n): ``Σⱼ |x - xⱼ| - (2r - n - 1) x`` up to a constant per rank."""
    # Up to what is the same for all inputs, (2r - n - 1) x - Σⱼ |x - xⱼ| is the sum of how far x lies on the wrong
    # side of the sorted values before and behind rank r: nothing cancels, and infinities hurt only themselves.
    ahead = order_statistics(x).unsqueeze(-1) - x.unsqueeze(-2)
    below = torch.nn.functional.pad(torch.relu(ahead)[..., :-1, :].cumsum(-2), (0, 0, 1, 0))
    above = torch.nn.functional.pad(torch.relu(-ahead).flip(-2)[..., :-1, :].cumsum(-2), (0, 0, 1, 0)).flip(-2)
    return 2.0 * (below + above) + ahead.abs()
