"""SinkhornSort against optimal transport by POT, and against what makes it a good matrix."""

import math
import warnings

import numpy as np
import ot
import pytest
import torch

import softly


def inputs(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("steepness", [0.1, 0.6, 3.0])
@pytest.mark.parametrize("n", [2, 5, 12])
def test_it_is_entropic_transport(n, steepness):
    x = inputs(n, seed=n)
    y = np.arange(1.0, n + 1) - (n + 1) / 2
    uniform = np.full(n, 1.0 / n)
    cost = (y[:, None] - x.numpy()[None, :]) ** 2
    plan = ot.sinkhorn(
        uniform, uniform, cost, 1.0 / steepness, method="sinkhorn_log", numItermax=100_000, stopThr=1e-13
    )
    P = softly.SinkhornSort(steepness=steepness).permutation(x)
    np.testing.assert_allclose(P, n * plan, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("steepness", [0.01, 1.0, 10.0, 100.0, 1e4])
@pytest.mark.parametrize(
    "shape",
    [
        lambda x: x,
        lambda x: (2.0 * x).exp(),
        lambda x: x.round(),
        lambda x: torch.where(x > 0, 5.0 + 0.01 * x, 0.01 * x),
        lambda x: torch.cat([0.01 * x[:, 1:], torch.full_like(x[:, :1], 50.0)], -1),
        torch.zeros_like,
    ],
    ids=["even", "skewed", "tied", "clustered", "outlier", "equal"],
)
def test_doubly_stochastic(shape, steepness, dtype):
    # Warnings are errors: it also converged.
    x = shape(inputs(4, 60, dtype=dtype))
    P = softly.SinkhornSort(steepness=steepness).permutation(x)
    assert P.min() >= 0
    ones = torch.ones(4, 60, dtype=dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(P.sum(-1), ones, atol=tolerance, rtol=0)
    torch.testing.assert_close(P.sum(-2), ones, atol=tolerance, rtol=0)


def test_two_entries_are_the_logistic_swap():
    a, b = inputs(2, 30)
    P = softly.SinkhornSort(steepness=1.7).permutation(torch.stack([a, b], -1))
    keep = torch.sigmoid(1.7 * (b - a))
    torch.testing.assert_close(
        P, torch.stack([torch.stack([keep, 1 - keep], -1), torch.stack([1 - keep, keep], -1)], -2)
    )


def test_it_is_neuralsort_made_doubly_stochastic():
    x = inputs(7)
    P = softly.NeuralSort(steepness=0.8).permutation(x)
    for _ in range(2000):
        P = P / P.sum(-2, keepdim=True)
        P = P / P.sum(-1, keepdim=True)
    torch.testing.assert_close(softly.SinkhornSort(steepness=0.8).permutation(x), P)


def test_hard_limit():
    x = torch.tensor([0.3, -1.2, 1.9, 0.1, -0.4])
    sorter = softly.SinkhornSort(steepness=1e3)
    assert torch.equal(sorter.sort(x), x.sort().values)
    assert torch.equal(sorter.rank(x), torch.tensor([4.0, 1.0, 5.0, 3.0, 2.0]))
    assert torch.equal(sorter.topk(x, 2).argmax(-1), torch.tensor([2, 0]))


def unrolled(x, steepness, iterations=400):
    """The matrix by alternate normalisation in plain torch, to be differentiated as it is."""
    n = x.shape[-1]
    logits = steepness * torch.arange(1 - n, n, 2, dtype=x.dtype).unsqueeze(-1) * x
    for _ in range(iterations):
        logits = logits - logits.logsumexp(-2, keepdim=True)
        logits = logits - logits.logsumexp(-1, keepdim=True)
    return logits.exp()


@pytest.mark.parametrize("x", [inputs(4), torch.tensor([0.2, 0.2, -0.5, 1.0], dtype=torch.float64)], ids=["", "tie"])
def test_derivatives_are_those_of_the_unrolled_iteration(x):
    weights = inputs(4, 4, seed=3)
    sorter = softly.SinkhornSort(steepness=0.6)
    ours = lambda y: (sorter.permutation(y) * weights).sum()  # noqa: E731
    theirs = lambda y: (unrolled(y, 0.6) * weights).sum()  # noqa: E731
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(torch.func.grad(ours)(x), torch.func.grad(theirs)(x))
    expected = torch.autograd.functional.hessian(theirs, x)
    torch.testing.assert_close(torch.autograd.functional.hessian(ours, x), expected)
    torch.testing.assert_close(torch.func.hessian(ours)(x), expected)
    third = torch.func.grad(lambda y: torch.func.grad(lambda z: torch.func.grad(ours)(z)[0])(y)[1])
    reference = torch.func.grad(lambda y: torch.func.grad(lambda z: torch.func.grad(theirs)(z)[0])(y)[1])
    torch.testing.assert_close(third(x), reference(x))


def test_gradients_where_the_matrix_is_almost_a_permutation():
    # At n = 2 they are known: s p (1 - p). So steep, p (1 - p) is 1e-13.
    x = torch.tensor([0.0, 3.0], dtype=torch.float64, requires_grad=True)
    P = softly.SinkhornSort(steepness=10.0).permutation(x)
    (gradient,) = torch.autograd.grad(P[0, 0], x)
    slope = 10.0 * math.exp(-30.0)
    torch.testing.assert_close(gradient, torch.tensor([-slope, slope], dtype=torch.float64), atol=1e-15, rtol=1e-6)


def test_steepness_is_learned():
    x = inputs(2, 4)
    steepness = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    apply = lambda s: softly.SinkhornSort(steepness=s).sort(x)  # noqa: E731
    assert torch.autograd.gradcheck(apply, steepness)
    assert torch.autograd.gradgradcheck(apply, steepness)
    auto = softly.SinkhornSort(steepness="auto")
    torch.testing.assert_close(auto.rank(1000.0 * x + 5.0), auto.rank(x))


def test_a_warning_names_the_residual():
    x = torch.cat([inputs(40).mul(2).exp(), torch.tensor([1e3], dtype=torch.float64)])
    with pytest.warns(UserWarning, match=r"after 1 iterations sums of columns are off by \d\.\de[-+]\d\d.*1\.0e-06"):
        P = softly.SinkhornSort(steepness=0.001, max_iterations=1).permutation(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        coarse = softly.SinkhornSort(steepness=0.001, max_iterations=1, tolerance=0.5).permutation(x)
        torch.func.vmap(softly.SinkhornSort(steepness=0.001, max_iterations=1).permutation)(x.unsqueeze(0))
    assert torch.equal(P, coarse)
    assert P.isfinite().all()


def test_tolerance_stops_the_iterations():
    x = inputs(40)
    fine = softly.SinkhornSort(steepness=0.2).permutation(x)
    coarse = softly.SinkhornSort(steepness=0.2, tolerance=0.9).permutation(x)
    assert 1e-12 < (fine - coarse).abs().max() < 0.1


def test_bad_arguments():
    with pytest.raises(ValueError, match=r"softly\.SinkhornSort: tolerance must be positive, got 0"):
        softly.SinkhornSort(tolerance=0)
    with pytest.raises(ValueError, match="max_iterations must be an integer >= 1, got 0"):
        softly.SinkhornSort(max_iterations=0)
    assert repr(softly.SinkhornSort(steepness=2.0)) == "SinkhornSort(steepness=2.0, tolerance=1e-06, max_iterations=20)"
