import math

import pytest
import torch

import softly
from softly import distributions

SYMMETRIC = [name for name in distributions.names() if distributions.get(name).symmetric]
CONTINUOUS = [name for name in SYMMETRIC if name != "heaviside"]


def test_where_is_a_mean():
    p, a, b = torch.rand(3, 9, dtype=torch.float64)
    torch.testing.assert_close(softly.where(p, a, b), p * a + (1 - p) * b)
    torch.testing.assert_close(softly.where(p, 2.0, -1), 3 * p - 1)
    torch.testing.assert_close(softly.where(0.25, a, b), 0.25 * a + 0.75 * b)
    assert softly.where(p[:, None], a, b).shape == (9, 9)


def test_where_leaves_out_what_is_not_chosen():
    inf = math.inf
    p = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.5, 0.5], requires_grad=True)
    a, b = torch.tensor([inf, 2.0, -inf, 2.0, inf, 1.0]), torch.tensor([3.0, inf, 3.0, -inf, 3.0, -inf])
    value = softly.where(p, a, b)
    assert value.tolist() == [3, 2, 3, 2, inf, -inf]
    (grad,) = torch.autograd.grad(value[:4].sum(), p)
    assert grad.isfinite().all()


@pytest.mark.parametrize("name", SYMMETRIC)
def test_definitions(name):
    x = torch.linspace(-3, 3, 61, dtype=torch.float64)
    d, options = distributions.get(name), {"distribution": name, "steepness": 2.5}
    torch.testing.assert_close(softly.abs(x, **options), softly.maximum(x, -x, **options))
    torch.testing.assert_close(softly.abs(-x, **options), softly.abs(x, **options))
    torch.testing.assert_close(softly.relu(x, **options), x * d.cdf(2.5 * x))
    torch.testing.assert_close(softly.relu(x, **options) - softly.relu(-x, **options), x)
    torch.testing.assert_close(softly.sign(x, **options), 2 * d.cdf(2.5 * x) - 1)
    torch.testing.assert_close(softly.sign(-x, **options), -softly.sign(x, **options), atol=1e-15, rtol=0)
    held = softly.maximum(-1.0, softly.minimum(x, 0.5, **options), **options)
    torch.testing.assert_close(softly.clamp(x, -1, 0.5, **options), held)
    assert ((softly.clamp(x, -1, 0.5, **options) - x.clamp(-1, 0.5)).abs() <= 2 * d.swap_error / 2.5 + 1e-12).all()


def test_relu_is_gelu_and_silu():
    x = torch.linspace(-4, 4, 33, dtype=torch.float64)
    gelu, silu = torch.nn.functional.gelu(x), torch.nn.functional.silu(x)
    torch.testing.assert_close(softly.relu(x, distribution="gaussian", steepness=1.0), gelu)
    torch.testing.assert_close(softly.relu(x, distribution="logistic", steepness=1.0), silu)


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("steepness", [0.5, 3.0, 40.0])
def test_rounding_is_a_continuous_stair(name, steepness):
    options = {"distribution": name, "steepness": steepness}
    integers = torch.arange(-3, 4, dtype=torch.float64)
    torch.testing.assert_close(softly.round(integers, **options), integers, atol=1e-15, rtol=0)
    torch.testing.assert_close(softly.round(integers + 0.5, **options), integers + 0.5)
    below = softly.round(integers - 1e-13, **options)
    torch.testing.assert_close(below, integers, atol=1e-10, rtol=0)
    x = torch.linspace(-2, 2, 4001, dtype=torch.float64)
    stairs = softly.round(x, **options)
    assert (stairs.diff() >= -1e-14).all()
    torch.testing.assert_close(softly.round(-x, **options), -stairs, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(softly.round(x + 3, **options), stairs + 3, atol=1e-11, rtol=1e-11)


def test_infinities():
    x = torch.tensor([math.inf, -math.inf, 2.0], requires_grad=True)
    for function, expected in [
        (softly.abs, [math.inf, math.inf, 2.0]),
        (softly.relu, [math.inf, 0.0, 2.0]),
        (softly.sign, [1.0, -1.0, 1.0]),
        (softly.round, [math.inf, -math.inf, 2.0]),
        (lambda y, **o: softly.clamp(y, -1.0, 1.0, **o), [1.0, -1.0, 1.0]),
        (lambda y, **o: softly.clamp(y, -1.0, math.inf, **o), [math.inf, -1.0, 2.0]),
    ]:
        value = function(x, distribution="logistic", steepness=30.0)
        torch.testing.assert_close(value, torch.tensor(expected), atol=1e-6, rtol=1e-6)
        assert torch.autograd.grad(value.sum(), x)[0].isfinite().all()


def test_quantiles():
    x = torch.randn(3, 6, 4, dtype=torch.float64)
    q = torch.tensor([0.0, 0.2, 0.5, 0.93, 1.0], dtype=torch.float64)
    for dim in (0, 1, -1):
        for keepdim in (False, True):
            hard = torch.quantile(x, q, dim, keepdim=keepdim)
            for sorter in ("bitonic", softly.SoftSort(steepness=1e9), softly.FastSort(steepness=1e6)):
                options = {"steepness": 1e12} if sorter == "bitonic" else {}
                soft = softly.quantile(x, q, dim=dim, keepdim=keepdim, sorter=sorter, **options)
                torch.testing.assert_close(soft, hard, atol=1e-6, rtol=1e-6)
                for i in (0, 3):
                    one = softly.quantile(x, float(q[i]), dim=dim, keepdim=keepdim, sorter=sorter, **options)
                    torch.testing.assert_close(one, hard[i], atol=1e-6, rtol=1e-6)
            even = softly.median(x, dim=dim, keepdim=keepdim, steepness=1e12)
            torch.testing.assert_close(even, torch.quantile(x, 0.5, dim, keepdim=keepdim), atol=1e-6, rtol=1e-6)
    values = softly.sort(x, dim=1, steepness=2.0)
    torch.testing.assert_close(softly.quantile(x, 0.3, dim=1, steepness=2.0), 0.5 * values[:, 1] + 0.5 * values[:, 2])


def test_quantiles_beside_infinity_and_of_q():
    x = torch.tensor([1.0, 2.0, math.inf])
    assert softly.median(x, steepness=1e6) == pytest.approx(2, abs=1e-4)
    assert softly.quantile(x, 1.0) == math.inf
    y, q = torch.randn(5, dtype=torch.float64), torch.tensor([0.3, 0.6], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda q: softly.quantile(y, q), q.requires_grad_())
    each = torch.func.vmap(lambda p: softly.quantile(y, p))(q)
    torch.testing.assert_close(each, softly.quantile(y, q))


def test_bad_input():
    x = torch.zeros(3)
    for function in (softly.abs, softly.relu, softly.sign, softly.round):
        with pytest.raises(TypeError, match=f"softly.{function.__name__}: x must be a floating-point tensor"):
            function(torch.arange(3))
        with pytest.raises(ValueError, match=f"softly.{function.__name__}: distribution must be symmetric"):
            function(x, distribution="levy")
        with pytest.raises(ValueError, match=f"softly.{function.__name__}: steepness must be positive"):
            function(x, steepness=-1.0)
    with pytest.raises(ValueError, match=r"softly.clamp: low must not be above high, got 1.0 and 0.0"):
        softly.clamp(x, 1.0, 0.0)
    with pytest.raises(TypeError, match=r"softly.where: p must be a floating-point tensor, got torch.bool"):
        softly.where(x > 0, x, x)
    with pytest.raises(ValueError, match=r"softly.quantile: q must be in \[0, 1\], got 1.5"):
        softly.quantile(x, 1.5)
    with pytest.raises(ValueError, match=r"softly.quantile: q must be in \[0, 1\], got -0.5 to 0.5"):
        softly.quantile(x, torch.tensor([-0.5, 0.5]))
    with pytest.raises(ValueError, match=r"softly.quantile: q must be floating-point and of shape"):
        softly.quantile(x, torch.rand(2, 2))
