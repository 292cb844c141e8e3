import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

import softly
from softly import distributions

SYMMETRIC = [name for name in distributions.names() if distributions.get(name).symmetric]
number = some.floats(-50, 50).map(lambda v: torch.tensor(v, dtype=torch.float64))
CHOICES = [*SYMMETRIC, distributions.art("logistic", strength=0.3), distributions.get("cauchy").squared()]


@settings(max_examples=300, deadline=None)
@given(number, number, number, some.sampled_from(CHOICES), some.floats(0.1, 20))
def test_properties_of_appendix_c(a, b, c, distribution, steepness):
    choice = {"distribution": distribution, "steepness": steepness}
    low = lambda x, y: softly.minimum(x, y, **choice)  # noqa: E731
    high = lambda x, y: softly.maximum(x, y, **choice)  # noqa: E731
    close = lambda x, y: torch.testing.assert_close(x, y, atol=1e-9, rtol=1e-9)  # noqa: E731
    close(low(a, b), low(b, a))  # commutativity
    close(high(a, b), high(b, a))
    assert low(a, b) <= high(b, a) + 1e-9  # ordering
    assert low(a, a) == high(a, a) == a  # idempotency
    close(low(a, b), -high(-a, -b))  # inversion
    if (b - a).abs() > 1e-6 or a == b:  # else the shift alone rounds the difference away
        torch.testing.assert_close(low(a + c, b + c), low(a, b) + c, atol=1e-6, rtol=1e-9)  # stability
    close(low(a, b) + high(a, b), a + b)  # sum preservation
    assert torch.minimum(a, b) <= low(a, b) + 1e-12  # bounded by the hard versions
    assert high(a, b) <= torch.maximum(a, b) + 1e-12
    swap = softly.swap(a, b, **choice)
    assert (swap.low, swap.high) == (low(a, b), high(a, b))
    close(swap.low, swap.keep * a + (1 - swap.keep) * b)  # a convex combination
    close(swap.keep, softly.less(a, b, **choice))


@pytest.mark.parametrize("name", SYMMETRIC)
def test_monotonic_exactly_where_stated(name):
    x = torch.cat(
        [torch.linspace(-20, 20, 4001, dtype=torch.float64), torch.logspace(1.4, 5, 400, dtype=torch.float64)]
    )
    low = softly.minimum(x, torch.zeros_like(x), distribution=name, steepness=1.0)
    assert bool((low.diff() >= -1e-11).all()) == distributions.get(name).swap_is_monotonic


@pytest.mark.parametrize("name", [name for name in SYMMETRIC if name != "heaviside"])
def test_measured_error_is_the_stated_bound(name):
    d = distributions.get(name)
    x = torch.cat(
        [
            torch.linspace(0, 20, 200_001, dtype=torch.float64),
            torch.logspace(1.3, 9, 1000, dtype=torch.float64),
        ]
    )
    # At this steepness the relaxed comparison has Lipschitz constant 1.
    error = softly.minimum(x, torch.zeros_like(x), distribution=d, steepness=1 / d.lipschitz)
    assert float(error.max()) == pytest.approx(d.swap_error_bound, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "bound"),
    [("logistic", 0.0696), ("reciprocal", 0.25), ("cauchy", math.pi**-2), ("optimal", 0.0625)],
)
def test_error_bounds_of_the_thesis(name, bound):
    assert distributions.get(name).swap_error_bound == pytest.approx(bound, abs=5e-5)


@pytest.mark.parametrize("name", [name for name in SYMMETRIC if name != "heaviside"])
def test_derivatives_at_ties(name):
    """min(x, x): half of the gradient each, and curvature -2 s f(0) along the difference."""
    d = distributions.get(name)
    function = lambda v: softly.minimum(v[0], v[1], distribution=d, steepness=3.0)  # noqa: E731
    v = torch.tensor([1.0, 1.0], dtype=torch.float64)
    gradient = torch.func.grad(function)(v)
    torch.testing.assert_close(gradient, torch.full_like(gradient, 0.5))
    if name not in ("laplace", "reciprocal"):  # whose density has a kink at 0
        peak = float(d.pdf(torch.zeros((), dtype=torch.float64)))
        expected = torch.tensor([[-1.0, 1.0], [1.0, -1.0]], dtype=torch.float64) * (2 * 3.0 * peak)
        torch.testing.assert_close(torch.func.hessian(function)(v), expected)


@pytest.mark.parametrize("name", SYMMETRIC)
def test_infinities(name):
    inf = torch.tensor(math.inf)
    for other in (torch.tensor(0.3), torch.tensor(-2.0)):
        swap = softly.swap(other, inf, distribution=name, steepness=1e3)
        assert swap.high == inf
        assert swap.low == pytest.approx(float(other), abs=1e-3)
        assert swap.keep == 1
        swap = softly.swap(other, -inf, distribution=name, steepness=1e3)
        assert swap.low == -inf
        assert swap.keep == pytest.approx(0, abs=1e-6)
    tie = softly.swap(inf, inf, distribution=name)
    assert tie.low == tie.high == inf
    assert tie.keep == 0.5
    assert softly.swap(-inf, inf, distribution=name).low == -inf


def test_infinities_in_reductions():
    x = torch.tensor([0.0, -math.inf, 1.0])
    torch.testing.assert_close(softly.argmax(x)[1], torch.tensor(0.0))
    assert softly.max(x).isfinite()
    assert softly.max(torch.tensor([0.0, math.inf])) == math.inf
    assert softly.min(torch.tensor([0.0, -math.inf])) == -math.inf
    torch.testing.assert_close(softly.argmax(torch.full((4,), -math.inf)), torch.full((4,), 0.25))


def test_reductions():
    x = torch.randn(3, 6, dtype=torch.float64)
    torch.testing.assert_close(softly.argmax(x, steepness=2.0), torch.softmax(2 * x, -1))
    torch.testing.assert_close(softly.max(x, steepness=2.0), (torch.softmax(2 * x, -1) * x).sum(-1))
    torch.testing.assert_close(softly.min(x), -softly.max(-x))
    assert (softly.max(x) <= x.amax(-1)).all()
    assert (softly.min(x) >= x.amin(-1)).all()


def test_comparators():
    a, b = torch.randn(2, 9, dtype=torch.float64)
    torch.testing.assert_close(softly.less(a, b) + softly.greater(a, b), torch.ones_like(a))
    assert softly.less(a, a).eq(0.5).all()
    assert softly.equal(a, a).eq(1).all()
    torch.testing.assert_close(softly.equal(a, b), softly.equal(b, a))
    torch.testing.assert_close(softly.equal(a, b, distribution="gaussian", steepness=2.0), torch.exp(-2 * (a - b) ** 2))


def test_categorical_comparison():
    p = torch.softmax(torch.randn(4, 5, dtype=torch.float64), -1)
    hot = torch.eye(5, dtype=torch.float64)
    for similarity in ("cosine", "inner"):
        table = softly.categorical_equal(hot[:, None], hot[None], similarity=similarity)
        torch.testing.assert_close(table, hot)
    torch.testing.assert_close(softly.categorical_equal(p, p), torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(softly.categorical_equal(p, p, similarity="inner"), (p * p).sum(-1))
    torch.testing.assert_close(
        softly.categorical_equal(p.T, p.flip(0).T, dim=0), softly.categorical_equal(p, p.flip(0))
    )
    assert torch.autograd.gradcheck(softly.categorical_equal, (p.requires_grad_(), hot[:4]))


def test_steepness_can_be_learned():
    a, b = torch.randn(2, 7, dtype=torch.float64)
    steepness = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    for function in (softly.minimum, softly.less, softly.equal):
        assert torch.autograd.gradcheck(lambda s, f=function: f(a, b, steepness=s), steepness)
    assert torch.autograd.gradcheck(lambda s: softly.max(a, steepness=s), steepness)


@pytest.mark.parametrize(
    "function", [softly.minimum, softly.maximum, softly.swap, softly.less, softly.greater, softly.equal]
)
def test_bad_input(function):
    x, name = torch.zeros(2), f"softly.{function.__name__}"
    with pytest.raises(ValueError, match=f"{name}: distribution must be symmetric.*'levy'"):
        function(x, x, distribution="levy")
    with pytest.raises(ValueError, match=f"{name}: steepness must be positive and finite, got 0"):
        function(x, x, steepness=0)
    with pytest.raises(ValueError, match="steepness must be positive and finite, got inf"):
        function(x, x, steepness=math.inf)
    with pytest.raises(TypeError, match=f"{name}: b must be a floating-point tensor, got torch.int64"):
        function(x, torch.arange(2))
    with pytest.raises(TypeError, match=f"{name}: a must be a tensor, got float"):
        function(1.0, x)


@pytest.mark.parametrize("function", [softly.argmax, softly.argmin, softly.max, softly.min])
def test_bad_input_of_reductions(function):
    with pytest.raises(ValueError, match=r"dim must be in \[-2, 1\], got 2"):
        function(torch.zeros(2, 3), dim=2)
    with pytest.raises(ValueError, match="must not be empty along dim -1"):
        function(torch.zeros(2, 0))
    with pytest.raises(TypeError, match="floating-point"):
        function(torch.arange(3))


def test_more_bad_input():
    x = torch.zeros(2)
    for distribution in ("heaviside", distributions.get("cauchy").squared()):
        with pytest.raises(ValueError, match="peak at 0"):
            softly.equal(x, x, distribution=distribution)
    with pytest.raises(ValueError, match="similarity must be 'cosine' or 'inner', got 'dot'"):
        softly.categorical_equal(x, x, similarity="dot")
