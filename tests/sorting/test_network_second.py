"""The kernel of second derivatives of networks, against the reference and its autograd."""

import pytest
import torch

import softly
from softly import native
from softly.native.operator import _Gradient

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(not native.available(), reason="the compiled kernels are not there"),
]
KNOWN = ("gaussian", "logistic", "hyperbolic_secant", "cauchy")


def derivatives(sorter, x, weights, direction, monkeypatch, kernels=True):
    """The Hessian of a loss of the matrix along a direction, the same of its gradient in ``weights``, and the third."""
    with monkeypatch.context() as patch:
        if not kernels:
            patch.setattr(native.library, "module", None)
        x, weights = x.clone().requires_grad_(), weights.clone().requires_grad_()
        loss = (sorter.permutation(x).sin() * weights).sum()
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        along = (gradient * direction).sum()
        second = torch.autograd.grad(along, (x, weights), retain_graph=True)
        (again,) = torch.autograd.grad(along, x, create_graph=True)
        third = torch.autograd.grad((again * direction).sum(), x)
    return (*second, *third)


@pytest.mark.parametrize("distribution", [*KNOWN, "laplace", "optimal"])
@pytest.mark.parametrize("network", ["odd_even", "bitonic"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-3)])
def test_kernel_is_reference(distribution, network, dtype, tolerance, monkeypatch):
    sorter = softly.SortingNetwork(network, distribution=distribution, steepness=2.5)
    generator = torch.Generator().manual_seed(0)
    for batch, n in ((1, 2), (3, 5), (17, 8), (40, 10)):
        x, direction = torch.randn(2, batch, n, dtype=dtype, generator=generator)
        weights = torch.randn(batch, n, n, dtype=dtype, generator=generator)
        ours = derivatives(sorter, x, weights, direction, monkeypatch)
        theirs = derivatives(sorter, x, weights, direction, monkeypatch, kernels=False)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, atol=tolerance * float(b.abs().max().clamp(min=1)), rtol=tolerance)


@pytest.mark.parametrize("distribution", KNOWN)
def test_numerically(distribution):
    sorter = softly.SortingNetwork("bitonic", distribution=distribution, steepness=2.0)
    x = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    assert torch.autograd.gradgradcheck(sorter.permutation, (x,))


def test_the_kernel_is_used_where_it_can_be(monkeypatch):
    calls = []
    forward = _Gradient.forward
    monkeypatch.setattr(_Gradient, "forward", staticmethod(lambda *a: calls.append(1) or forward(*a)))
    for options, used in (
        ({"distribution": "cauchy"}, True),
        ({"distribution": "laplace"}, False),  # it has a kink
        ({"distribution": softly.distributions.art("logistic")}, False),
    ):
        x = torch.randn(2, 4, requires_grad=True)
        value = softly.SortingNetwork(steepness=2.0, **options).permutation(x).square().sum()
        (gradient,) = torch.autograd.grad(value, x, create_graph=True)
        torch.autograd.grad(gradient.square().sum(), x)
        assert bool(calls) == used
        calls.clear()


@pytest.mark.parametrize("distribution", KNOWN)
def test_logarithms_of_small_entries(distribution, monkeypatch):
    """Their Hessians divide by squares of probabilities, which must have their digits."""
    sorter = softly.SortingNetwork("odd_even", distribution=distribution, steepness=4.0)
    x = torch.tensor([[0.9, 0.1, -0.8, 1.9, -1.7]], dtype=torch.float64)
    ranks = torch.tensor([[1, 2, 3, 4, 5]])
    found = []
    for kernels in (True, False):
        with monkeypatch.context() as patch:
            if not kernels:
                patch.setattr(native.library, "module", None)
            leaf = x.clone().requires_grad_()
            loss = softly.sorting.ranking_loss(sorter.permutation(leaf), ranks)
            (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
            found.append([torch.autograd.grad(gradient[0, i], leaf, retain_graph=True)[0] for i in range(5)])
    torch.testing.assert_close(found[0], found[1], rtol=1e-7, atol=1e-7)


def test_ties_and_large_values():
    for x in (torch.zeros(2, 4), torch.full((2, 4), 1e4), 1e4 * torch.randn(2, 4), torch.zeros(2, 1)):
        leaf = x.clone().requires_grad_()
        value = softly.SortingNetwork(distribution="logistic", steepness=5.0).permutation(leaf).square().sum()
        (gradient,) = torch.autograd.grad(value, leaf, create_graph=True)
        assert torch.autograd.grad((gradient * torch.ones_like(x)).sum(), leaf)[0].isfinite().all()


def test_batched_gradients_see_the_reference():
    x = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    sorter = softly.SortingNetwork(distribution="cauchy", steepness=2.0)
    loss = lambda y: sorter.permutation(y).square().sum()  # noqa: E731
    vectorized = torch.autograd.functional.hessian(loss, x, vectorize=True)
    torch.testing.assert_close(vectorized, torch.autograd.functional.hessian(loss, x))
    torch.testing.assert_close(vectorized, torch.func.hessian(loss)(x.detach()))
