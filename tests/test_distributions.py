import math

import mpmath
import numpy as np
import pytest
import scipy.stats as st
import torch

import softly
from softly import distributions

SYMMETRIC = [name for name in distributions.names() if distributions.get(name).symmetric]
CONTINUOUS = [name for name in distributions.names() if name != "heaviside"]

JUDGES = {
    "uniform": st.uniform(-1, 2),
    "cubic_hermite": st.beta(2, 2, loc=-1, scale=2),
    "wigner": st.semicircular(),
    "gaussian": st.norm(),
    "laplace": st.laplace(),
    "logistic": st.logistic(),
    "hyperbolic_secant": st.hypsecant(scale=2 / math.pi),
    "cauchy": st.cauchy(),
    "gumbel_max": st.gumbel_r(),
    "gumbel_min": st.gumbel_l(),
    "exponential": st.expon(),
    "levy": st.levy(),
    "gamma": st.gamma(0.5),
}
VARIANTS = {
    **{name: distributions.get(name) for name in CONTINUOUS},
    "gamma(2)": distributions.Gamma(2.0),
    "gamma(7.5)": distributions.Gamma(7.5),
    "exponential reversed": distributions.get("exponential").reversed(),
    "levy reversed": distributions.get("levy").reversed(),
    "gamma reversed": distributions.get("gamma").reversed(),
    "logistic squared": distributions.get("logistic").squared(),
    "exponential squared": distributions.get("exponential").squared(),
    "levy shifted": distributions.get("levy").shifted(0.7),
    "logistic art": distributions.art("logistic", strength=0.4),
    "cauchy art": distributions.art("cauchy", strength=0.25),
}
variants = pytest.mark.parametrize("d", VARIANTS.values(), ids=VARIANTS.keys())


def probabilities() -> torch.Tensor:
    inner = torch.linspace(0.003, 0.997, 301, dtype=torch.float64)
    tails = torch.logspace(-14, -3, 23, dtype=torch.float64)
    return torch.cat([tails, inner, 1 - tails])


def points(d: distributions.Distribution) -> torch.Tensor:
    """Points of the support's inside, quantiles of evenly spread probabilities."""
    return d.icdf(torch.linspace(0.0137, 0.9873, 40, dtype=torch.float64))


@pytest.mark.parametrize("name", JUDGES)
def test_scipy_agrees(name):
    d, judge = distributions.get(name), JUDGES[name]
    x = torch.cat([torch.linspace(-12, 12, 1001, dtype=torch.float64), torch.logspace(-6, 6, 200, dtype=torch.float64)])
    x = torch.cat([x, -x[1001:]])
    with np.errstate(all="ignore"):  # scipy overflows where the result is 0
        np.testing.assert_allclose(d.cdf(x), judge.cdf(x), rtol=1e-6, atol=1e-14)
        np.testing.assert_allclose(d.sf(x), judge.sf(x), rtol=1e-6, atol=1e-14)
        inside = x[(x - d.support[0]).abs() > 1e-9]
        np.testing.assert_allclose(d.pdf(inside), judge.pdf(inside), rtol=1e-6, atol=1e-14)
    u = probabilities()
    u = u[1 - u > 1e-10]  # above, scipy loses digits that symmetry keeps
    np.testing.assert_allclose(d.icdf(u), judge.ppf(u), rtol=1e-6, atol=1e-9)
    assert d.support == pytest.approx(judge.support())


@pytest.mark.parametrize("name", ["gaussian", "laplace", "logistic", "hyperbolic_secant", "cauchy"])
def test_small_probabilities_have_their_digits(name):
    d, judge = distributions.get(name), JUDGES[name]
    x = torch.linspace(-37, -1, 73, dtype=torch.float64)
    np.testing.assert_allclose(d.cdf(x), judge.cdf(x), rtol=1e-12, atol=0)
    np.testing.assert_allclose(d.sf(-x), judge.sf(-x), rtol=1e-12, atol=0)
    single = torch.linspace(-12, -1, 23)
    np.testing.assert_allclose(d.cdf(single), judge.cdf(single.double()), rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", JUDGES)
def test_scipy_agrees_on_log_cdf(name):
    d, judge = distributions.get(name), JUDGES[name]
    tails = torch.logspace(-6, 3.5, 300, dtype=torch.float64)
    x = torch.cat([-tails, torch.linspace(-12, 12, 301, dtype=torch.float64), tails])
    with np.errstate(all="ignore"):
        expected = torch.as_tensor(judge.logcdf(x))
    # Below this, some of scipy's take the logarithm of what has all but underflowed.
    known = (expected > -690) | torch.full(x.shape, name in ("gaussian", "logistic", "cauchy"))
    torch.testing.assert_close(d.log_cdf(x)[known], expected[known], rtol=1e-9, atol=1e-14)
    outside = x < d.support[0]
    assert d.log_cdf(x)[outside].eq(-math.inf).all()
    assert d.log_cdf(torch.tensor([-math.inf, math.inf])).tolist() == [-math.inf, 0]
    assert d.log_cdf(torch.tensor(math.nan)).isnan()


@pytest.mark.parametrize(("name", "slope"), [("laplace", 1.0), ("logistic", 1.0), ("hyperbolic_secant", math.pi / 2)])
def test_exponential_tails_in_logarithms(name, slope):
    """Far below 0 the logarithm of the CDF is a line."""
    x = torch.tensor([-60.0, -800.0, -1e6, -1e15], dtype=torch.float64, requires_grad=True)
    value = distributions.get(name).log_cdf(x)
    offset = {"laplace": -math.log(2), "logistic": 0.0, "hyperbolic_secant": math.log(2 / math.pi)}[name]
    torch.testing.assert_close(value, slope * x + offset, rtol=1e-15, atol=0)
    (first,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    torch.testing.assert_close(first, torch.full_like(first, slope))
    if first.requires_grad:
        (second,) = torch.autograd.grad(first.sum(), x)
        assert second.abs().max() < 1e-20


def test_the_gaussian_tail_in_logarithms():
    """(log Φ)' = φ/Φ and (log Φ)'' = -φ/Φ (x + φ/Φ), by continued fractions of mpmath's digits."""
    mpmath.mp.dps = 60
    points = [-1e6, -1e4, -300.0, -40.0, -20.5, -20.0, -19.5, -10.0, -5.0, -1.0, 0.0, 3.0, 40.0]
    x = torch.tensor(points, dtype=torch.float64, requires_grad=True)
    value = distributions.get("gaussian").log_cdf(x)
    (first,) = torch.autograd.grad(value.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    (third,) = torch.autograd.grad(second.sum(), x)
    assert third.isfinite().all()
    for z, f, g in zip(points, first.tolist(), second.tolist(), strict=True):
        z = mpmath.mpf(z)
        if z > -100:
            density, below = mpmath.npdf(z), mpmath.ncdf(z)
            ratio = density / below
            assert f == pytest.approx(float(ratio), rel=1e-10, abs=1e-300)
            assert g == pytest.approx(float(-ratio * (z + ratio)), rel=1e-8, abs=1e-300)
        else:
            assert f == pytest.approx(float(-z), rel=1e-3)
            assert g == pytest.approx(-1, abs=1e-4)


@pytest.mark.parametrize("name", distributions.names())
def test_nan_is_not_hidden(name):
    d, nan = distributions.get(name), torch.tensor([math.nan, 0.5])
    for function in (d.cdf, d.sf, d.log_cdf, d.icdf):
        assert function(nan).isnan().tolist() == [True, False]
    for outside in (-0.1, 1.1):
        assert d.icdf(torch.tensor(outside)).isnan()


@variants
def test_log_cdf_is_the_logarithm_of_cdf(d):
    x = points(d).requires_grad_()
    torch.testing.assert_close(d.log_cdf(x), d.cdf(x).log())
    (slope,) = torch.autograd.grad(d.log_cdf(x).sum(), x)
    torch.testing.assert_close(slope, d.pdf(x) / d.cdf(x), rtol=1e-6, atol=1e-9)
    assert torch.autograd.gradcheck(d.log_cdf, x)
    assert torch.autograd.gradgradcheck(d.log_cdf, x, atol=1e-4)
    torch.testing.assert_close(torch.func.vmap(d.log_cdf)(x), d.log_cdf(x))
    tangents = torch.func.jvp(d.log_cdf, (x.detach(),), (torch.ones_like(x),))[1]
    torch.testing.assert_close(tangents, slope)
    single = d.log_cdf(x.detach().float())
    torch.testing.assert_close(single.double(), d.log_cdf(x.detach()), rtol=1e-4, atol=1e-5)
    for far in (-1e4, 1e4):
        y = torch.full((2,), far, dtype=torch.float64, requires_grad=True)
        (grad,) = torch.autograd.grad(d.log_cdf(y).clamp(min=-1e300).sum(), y)
        assert grad.isfinite().all()


@pytest.mark.parametrize("name", SYMMETRIC)
def test_log_cdf_compiles(name):
    d = distributions.get(name)
    x = torch.linspace(-3.1, 3.1, 9, dtype=torch.float64, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(d.log_cdf, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), d.log_cdf(x))


@pytest.mark.parametrize("shape", [0.2, 1.0, 2.0, 30.0])
def test_scipy_agrees_on_gamma(shape):
    d, judge = distributions.get("gamma", shape=shape), st.gamma(shape)
    x = torch.logspace(-10, 3, 300, dtype=torch.float64)
    np.testing.assert_allclose(d.cdf(x), judge.cdf(x), rtol=1e-6, atol=1e-300)
    np.testing.assert_allclose(d.sf(x), judge.sf(x), rtol=1e-6, atol=1e-300)
    np.testing.assert_allclose(d.pdf(x), judge.pdf(x), rtol=1e-6, atol=1e-300)
    u = probabilities()
    np.testing.assert_allclose(d.icdf(u), judge.ppf(u), rtol=1e-6)


def test_closed_forms():
    x = torch.linspace(-5, 5, 101, dtype=torch.float64)
    torch.testing.assert_close(distributions.get("reciprocal").cdf(x), 0.5 + x / (2 + 2 * x.abs()))
    optimal = torch.where(x < -0.25, -1 / (16 * x), torch.where(x > 0.25, 1 - 1 / (16 * x), x + 0.5))
    torch.testing.assert_close(distributions.get("optimal").cdf(x), optimal)
    torch.testing.assert_close(distributions.Gamma(1.0).cdf(x), distributions.Exponential().cdf(x))
    phi = x / (x.abs() ** 0.3 + 1e-10)
    torch.testing.assert_close(distributions.art("laplace", strength=0.3).cdf(x), distributions.Laplace().cdf(phi))
    torch.testing.assert_close(distributions.art("cauchy", strength=0.0).cdf(x), distributions.Cauchy().cdf(x))
    squared = distributions.get("gaussian").squared()
    torch.testing.assert_close(squared.cdf(x), distributions.get("gaussian").cdf(x * x.abs()))
    levy = distributions.get("levy")
    torch.testing.assert_close(levy.reversed().cdf(x), 1 - levy.cdf(-x))
    torch.testing.assert_close(levy.shifted(0.5).cdf(x), levy.cdf(x + 0.5))


def test_the_steepness_of_the_thesis_under_art():
    """cdf(β φ(x)) of chapter 3 is our art at steepness β^(1 / (1 - λ)), up to the offset of φ."""
    x, beta, strength = torch.linspace(-3, 3, 20, dtype=torch.float64), 7.0, 0.25
    thesis = torch.sigmoid(beta * x / x.abs() ** strength)
    ours = distributions.art("logistic", strength=strength).cdf(beta ** (1 / (1 - strength)) * x)
    torch.testing.assert_close(ours, thesis, atol=1e-8, rtol=0)


@variants
def test_pdf_is_the_derivative_of_cdf(d):
    x = points(d).requires_grad_()
    (slope,) = torch.autograd.grad(d.cdf(x).sum(), x)
    torch.testing.assert_close(slope, d.pdf(x))
    (slope,) = torch.autograd.grad(d.sf(x).sum(), x)
    torch.testing.assert_close(slope, -d.pdf(x))


@variants
def test_score_is_the_derivative_of_log_pdf(d):
    x = points(d).requires_grad_()
    log_pdf = d.pdf(x).log()
    slope = torch.autograd.grad(log_pdf.sum(), x)[0] if log_pdf.requires_grad else torch.zeros_like(x)
    torch.testing.assert_close(d.score(x), -slope, atol=1e-7, rtol=1e-6)


@variants
def test_icdf_inverts_cdf(d):
    u = torch.linspace(0.02, 0.98, 49, dtype=torch.float64)
    torch.testing.assert_close(d.cdf(d.icdf(u)), u, atol=1e-9, rtol=0)
    assert d.icdf(torch.tensor([-0.1, 1.1])).isnan().all()


@variants
def test_icdf_is_differentiable_twice(d):
    u = torch.tensor([0.15, 0.3, 0.62, 0.91], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(d.icdf, u)
    assert torch.autograd.gradgradcheck(d.icdf, u, atol=1e-4, rtol=1e-3)


@variants
def test_samples_follow_the_cdf(d):
    x = d.sample((20_000,), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert x.isfinite().all()
    # Kolmogorov's statistic exceeds 1.95 / sqrt(n) once in a thousand seeds.
    assert st.kstest(x.numpy(), lambda v: d.cdf(torch.as_tensor(v)).numpy()).statistic < 1.95 / math.sqrt(20_000)


@pytest.mark.parametrize("name", distributions.names())
def test_symmetry_is_a_fact(name):
    d = distributions.get(name)
    x = torch.linspace(-7, 7, 500, dtype=torch.float64)
    assert torch.allclose(d.cdf(-x), 1 - d.cdf(x)) == d.symmetric
    assert d.squared().symmetric == d.symmetric
    assert d.reversed().reversed() == d


@pytest.mark.parametrize("name", distributions.names())
def test_peak_is_a_fact(name):
    d = distributions.get(name)
    x = torch.linspace(-7, 7, 501, dtype=torch.float64)
    top = d.pdf(torch.zeros((), dtype=torch.float64))
    assert bool(top > 0 and (d.pdf(x) <= top).all() and d.symmetric) == d.peaked


@pytest.mark.parametrize(
    ("name", "monotonic", "bound"),
    [
        ("logistic", False, 0.0696),
        ("reciprocal", True, 1 / 4),
        ("cauchy", True, 1 / math.pi**2),
        ("optimal", True, 1 / 16),
        ("heaviside", True, 0.0),
        ("gaussian", False, None),
        ("laplace", False, None),
        ("uniform", False, 1 / 16),
        ("cubic_hermite", False, None),
        ("wigner", False, None),
        ("hyperbolic_secant", False, None),
    ],
)
def test_swap_facts(name, monotonic, bound):
    d = distributions.get(name)
    assert d.swap_is_monotonic == monotonic
    if bound is not None:
        assert d.swap_error_bound == pytest.approx(bound, abs=4e-5)


def test_facts_of_derived_distributions():
    art = distributions.art("logistic", strength=0.5)
    assert art.swap_is_monotonic is False
    assert art.swap_error_bound == math.inf
    # The thesis' 0.0302 belongs to λ = 0.5 at β = 4, where no Lipschitz constant is needed to state it.
    x = torch.linspace(0, 50, 1_000_001, dtype=torch.float64)
    assert float((x * art.cdf(-(4.0**2) * x)).max()) == pytest.approx(0.0302, abs=5e-5)
    assert distributions.get("levy").swap_is_monotonic is None
    assert distributions.get("levy").swap_error_bound is None
    assert distributions.Gamma(0.5).lipschitz == math.inf
    assert distributions.Gamma(2.0).lipschitz == pytest.approx(1 / math.e)


@variants
def test_tails_in_single_precision(d):
    x = torch.tensor([-1e30, -1e4, -50.0, -1e-8, 0.0, 1e-30, 1e-8, 50.0, 1e4, 1e30, math.inf, -math.inf])
    x.requires_grad_()
    for function in (d.cdf, d.sf, d.pdf):
        value = function(x)
        assert value.isfinite().all()
        if value.requires_grad:
            (grad,) = torch.autograd.grad(value[:-2].sum(), x, create_graph=True)
            assert grad.isfinite().all()
            if grad.requires_grad:
                (second,) = torch.autograd.grad(grad[:-2].sum(), x)
                # The second derivative of ART grows beyond all bounds next to ties, and overflows at 1e-30.
                representable = x.abs() > 1e-20 if d.lipschitz == math.inf else x.abs() >= 0
                assert not second[representable].isnan().any()
    assert ((d.cdf(x) >= 0) & (d.cdf(x) <= 1)).all()
    assert d.cdf(torch.tensor(math.nan)).isnan()
    assert d.pdf(torch.tensor(math.nan)).isnan()


def test_the_clamped_derivative_of_gamma():
    x = torch.tensor([0.0, 1e-13, 1e-3], dtype=torch.float64, requires_grad=True)
    value = distributions.Gamma(0.5).cdf(x)
    np.testing.assert_allclose(value.detach(), st.gamma(0.5).cdf(x.detach()), rtol=1e-12)
    (grad,) = torch.autograd.grad(value.sum(), x)
    assert grad[0] == grad[1] == pytest.approx(1e6 / math.sqrt(math.pi))
    assert grad[2] == pytest.approx(st.gamma(0.5).pdf(1e-3))


def test_half_precision_is_evaluated_in_single():
    x = torch.linspace(-3, 3, 25).bfloat16()
    torch.testing.assert_close(
        distributions.get("cauchy").cdf(x), distributions.get("cauchy").cdf(x.float()).bfloat16()
    )


def test_samples_are_reproducible():
    d = distributions.get("gamma")
    draw = lambda: d.sample((5,), generator=torch.Generator().manual_seed(1))  # noqa: E731
    assert torch.equal(draw(), draw())
    assert d.sample().shape == ()


def test_bad_input():
    with pytest.raises(ValueError, match="unknown distribution 'caucy'; choose from heaviside, uniform"):
        distributions.get("caucy")
    with pytest.raises(ValueError, match="only 'gamma' has a shape"):
        distributions.get("cauchy", shape=2.0)
    with pytest.raises(ValueError, match="shape must be positive and finite, got -1"):
        distributions.get("gamma", shape=-1.0)
    with pytest.raises(TypeError, match="must be a name or a Distribution, got int"):
        distributions.get(3)
    with pytest.raises(TypeError, match=r"floating-point tensor, got torch\.int64"):
        distributions.get("cauchy").cdf(torch.arange(3))
    with pytest.raises(ValueError, match="strength must be in"):
        distributions.art("logistic", strength=1.0)
    with pytest.raises(ValueError, match="must be symmetric"):
        distributions.art("levy")
    with pytest.raises(ValueError, match="no score"):
        distributions.get("heaviside").score(torch.zeros(1))
    with pytest.raises(ValueError, match="shift must be finite"):
        distributions.get("levy").shifted(math.nan)
    assert softly.distributions.get(distributions.Cauchy()) == distributions.get("cauchy")


def test_distributions_can_be_made_inside_compiled_code():
    def run(x):
        art = distributions.art("logistic", strength=0.25)
        gamma = distributions.get("gamma", shape=0.7)
        others = gamma.reversed().cdf(x) + gamma.shifted(0.3).squared().cdf(x)
        return softly.sort(x, distribution=art) + softly.sort(x, distribution=distributions.art("cauchy")) + others

    torch._dynamo.reset()
    x = torch.tensor([3.0, 1.0, 2.0])
    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="aot_eager")(x), run(x))
