"""Monte-Carlo tolerances: what a mean of independent estimates may be off by."""

import torch
from torch import Tensor


def assert_unbiased(estimates: Tensor, expected: Tensor, errors: float = 5.0) -> None:
    """The mean of independent ``estimates`` (N, ...) is ``expected`` (...), up to so many standard errors."""
    mean = estimates.double().mean(0)
    error = estimates.double().std(0) / len(estimates) ** 0.5
    off = (mean - expected).abs() / error.clamp(min=1e-12)
    assert (off < errors).all(), f"mean {mean}, expected {expected}: {off} standard errors"
    # An estimate that says nothing agrees with everything.
    assert (error < 0.1 * expected.abs().max() + 0.02).all(), f"too few estimates: standard errors {error}"


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
