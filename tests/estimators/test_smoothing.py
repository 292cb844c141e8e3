"""Stochastic smoothing: unbiased, whatever the noise, the baseline and the sampler; and refused where it isn't."""

import pytest
import torch
from monte_carlo import assert_unbiased, generator

import softly
from softly.estimators import smooth

SMOOTH = ["gaussian", "logistic", "hyperbolic_secant", "cauchy", "gumbel_max", "gumbel_min", "levy"]
KINKED = ["laplace", "reciprocal", "optimal"]
WAYS = [
    {},
    {"baseline": "value"},
    {"baseline": None},
    {"antithetic": True},
    {"antithetic": True, "baseline": None},
    {"sampler": "sobol"},
    {"sampler": "sobol", "baseline": None},
    {"sampler": "latin_hypercube"},
    {"sampler": "latin_hypercube", "antithetic": True},
    {"sampler": "latin_hypercube", "baseline": "value"},
]
MANY = 20_000  # independent estimates of 4 samples each
SCALE = 0.8


def both_positive(y):
    """A step function, whose mean is known under every distribution."""
    return (y > 0).to(y.dtype).prod(-1)


def probability(distribution, y, scale=SCALE):
    return softly.distributions.get(distribution).sf(-y / scale).prod(-1)


def point(distribution):
    shift = {"levy": -1.5}.get(distribution, 0.0)  # one-sided noise has to be able to reach 0
    return torch.tensor([0.3 + shift, -0.4 + shift], dtype=torch.float64)


def estimates(function, y, derivative=1):
    """The value and the gradient, or the Hessian, of many independent estimates."""
    many = y.expand(MANY, -1).clone().requires_grad_()
    if derivative == 2:
        return function.hessian(many)
    value = function(many)
    (gradient,) = torch.autograd.grad(value.sum(), many)
    return value.detach(), gradient


@pytest.mark.parametrize("distribution", SMOOTH + KINKED)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_gradients_of_steps_are_unbiased(distribution, way):
    y = point(distribution).requires_grad_()
    function = smooth(
        both_positive, distribution=distribution, scale=SCALE, num_samples=4, generator=generator(), **way
    )
    value, gradient = estimates(function, y.detach())
    expected = probability(distribution, y)
    assert_unbiased(value, expected.detach())
    assert_unbiased(gradient, torch.autograd.grad(expected, y)[0])


@pytest.mark.parametrize("distribution", SMOOTH)
@pytest.mark.parametrize("way", [{}, {"antithetic": True}, {"sampler": "sobol"}, {"baseline": "value"}], ids=str)
def test_hessians_of_steps_are_unbiased(distribution, way):
    y = point(distribution)
    function = smooth(
        both_positive, distribution=distribution, scale=SCALE, num_samples=8, generator=generator(), **way
    )
    expected = torch.autograd.functional.hessian(lambda x: probability(distribution, x), y)
    hessian = estimates(function, y, 2)
    torch.testing.assert_close(hessian, hessian.mT)
    mean, error = hessian.mean(0), hessian.std(0) / MANY**0.5
    assert ((mean - expected).abs() < 5 * error).all(), (mean, expected, error)


@pytest.mark.parametrize("distribution", ["gaussian", "logistic", "laplace", "gumbel_max"])
def test_linear_and_quadratic_functions(distribution):
    """Their gradients are their own wherever the noise has the moments."""
    matrix = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    slope = torch.tensor([1.0, -3.0], dtype=torch.float64)
    y = torch.tensor([0.3, -0.7], dtype=torch.float64)
    quadratic = lambda x: 0.5 * torch.einsum("...i,ij,...j->...", x, matrix, x) + x @ slope  # noqa: E731
    function = smooth(quadratic, distribution=distribution, scale=0.3, num_samples=8, generator=generator())
    _, gradient = estimates(function, y)
    centre = softly.distributions.get(distribution).sample((10**6,), generator=generator(), dtype=torch.float64).mean()
    assert_unbiased(gradient, matrix @ (y + 0.3 * centre) + slope)
    if distribution in SMOOTH:
        hessian = estimates(function, y, 2)
        error = hessian.std(0) / MANY**0.5
        assert ((hessian.mean(0) - matrix).abs() < 5 * error).all()


def test_a_covariance_matrix():
    factor = torch.tensor([[0.6, 0.0], [0.4, 0.3]], dtype=torch.float64)
    y = torch.tensor([0.1, 0.2], dtype=torch.float64)
    matrix = torch.tensor([[2.0, 0.5], [0.5, -1.0]], dtype=torch.float64)
    quadratic = lambda x: 0.5 * torch.einsum("...i,ij,...j->...", x, matrix, x)  # noqa: E731
    function = smooth(quadratic, scale=factor, num_samples=8, generator=generator())
    value, gradient = estimates(function, y)
    assert_unbiased(value, quadratic(y) + 0.5 * (matrix @ factor @ factor.t()).trace())
    assert_unbiased(gradient, matrix @ y)
    hessian = estimates(function, y, 2)
    assert ((hessian.mean(0) - matrix).abs() < 5 * hessian.std(0) / MANY**0.5).all()
    points = function.samples(torch.zeros(MANY, 2, dtype=torch.float64)).points.flatten(0, 1)
    torch.testing.assert_close(points.t().cov(), factor @ factor.t(), atol=0.01, rtol=0.01)


def test_a_vector_has_a_jacobian():
    y = torch.tensor([0.3, -0.4], dtype=torch.float64)
    function = smooth(torch.sign, scale=SCALE, num_samples=4, generator=generator())
    many = y.expand(MANY, -1).clone().requires_grad_()
    weights = torch.tensor([1.0, -2.0], dtype=torch.float64)
    (gradient,) = torch.autograd.grad((function(many) * weights).sum(), many)
    slope = 2 * softly.distributions.get("gaussian").pdf(y / SCALE) / SCALE
    assert_unbiased(gradient, weights * slope)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_double_backward_is_the_hessian(way):
    y = torch.randn(3, 2, dtype=torch.float64, generator=generator()).requires_grad_()
    scales = [0.5] if way.get("sampler") else [0.5, torch.tensor([[0.5, 0.1], [0.0, 0.4]])]
    for scale in scales:
        function = smooth(both_positive, scale=scale, num_samples=8, generator=generator(), **way)
        samples = function.samples(y)
        expected = function.derivatives(y, samples=samples)
        value = function(y, samples=samples)
        (gradient,) = torch.autograd.grad(value.sum(), y, create_graph=True)
        rows = [torch.autograd.grad(gradient[:, i].sum(), y, retain_graph=True)[0] for i in range(2)]
        torch.testing.assert_close(value, expected.value)
        torch.testing.assert_close(gradient, expected.gradient)
        torch.testing.assert_close(torch.stack(rows, 1), expected.hessian)


def test_transforms_see_the_same_derivatives():
    y = torch.tensor([[0.3, -0.4]], dtype=torch.float64)

    def seeded(x):
        function = smooth(both_positive, distribution="logistic", num_samples=6, scale=0.5, generator=generator(3))
        return function(x).sum()

    function = smooth(both_positive, distribution="logistic", num_samples=6, scale=0.5, generator=generator(3))
    expected = function.derivatives(y)
    torch.testing.assert_close(torch.func.grad(seeded)(y), expected.gradient)
    direction = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(torch.func.jvp(seeded, (y,), (direction,))[1], (expected.gradient * direction).sum())
    pushed = torch.func.jvp(torch.func.grad(seeded), (y,), (direction,))[1]
    torch.testing.assert_close(pushed[0], expected.hessian[0] @ direction[0])
    with pytest.raises(RuntimeError, match="call it without vmap"):
        torch.func.vmap(lambda x: seeded(x[None]))(y)


@pytest.mark.parametrize("distribution", KINKED)
def test_kinks_have_no_second_derivative(distribution):
    y = torch.tensor([[0.3, -0.4]], requires_grad=True)
    function = smooth(both_positive, distribution=distribution, num_samples=4, generator=generator())
    with pytest.raises(ValueError, match="its density has a kink"):
        function.hessian(y)
    (gradient,) = torch.autograd.grad(function(y).sum(), y, create_graph=True)
    with pytest.raises(RuntimeError, match="its density has a kink"):
        torch.autograd.grad(gradient.sum(), y)
    with pytest.raises(RuntimeError, match="its density has a kink"):
        torch.func.jvp(torch.func.grad(lambda x: function(x).sum()), (y.detach(),), (torch.ones(1, 2),))
    torch.func.jvp(lambda x: function(x).sum(), (y.detach(),), (torch.ones(1, 2),))  # the first is there


@pytest.mark.parametrize(
    ("distribution", "reason"),
    [
        ("uniform", "jumps at the ends"),
        ("exponential", "would be biased"),
        ("wigner", "infinite variance"),
        ("cubic_hermite", "infinite variance"),
        ("gamma", "infinite variance"),
        ("heaviside", "no density"),
        (softly.distributions.get("gaussian").squared(), "nobody has checked"),
        (softly.distributions.art("logistic"), "nobody has checked"),
        (softly.distributions.get("exponential").reversed(), "would be biased"),
    ],
)
def test_what_would_be_biased_is_refused(distribution, reason):
    with pytest.raises(ValueError, match=reason):
        smooth(both_positive, distribution=distribution)


def test_shifted_and_reversed_distributions():
    y = torch.tensor([0.3, 0.2], dtype=torch.float64, requires_grad=True)
    noise = softly.distributions.get("levy").reversed().shifted(-1.0)
    function = smooth(both_positive, distribution=noise, scale=SCALE, num_samples=4, generator=generator())
    assert_unbiased(estimates(function, y.detach())[1], torch.autograd.grad(probability(noise, y), y)[0])


def test_leave_one_out_is_less_noisy_than_nothing():
    shifted = lambda y: both_positive(y) + 10.0  # noqa: E731
    y = torch.tensor([0.3, -0.4], dtype=torch.float64)
    spread = {
        baseline: estimates(smooth(shifted, num_samples=10, baseline=baseline, generator=generator()), y)[1].var(0)
        for baseline in ("leave_one_out", "value", None)
    }
    assert (spread["leave_one_out"] < 0.01 * spread[None]).all()
    assert (spread["value"] < 0.01 * spread[None]).all()


def test_even_samples_are_less_noisy():
    smooth_function = lambda y: y.sum(-1).sin()  # noqa: E731
    y = torch.tensor([0.3, -0.4], dtype=torch.float64)
    spread = {}
    for sampler in ("random", "sobol", "latin_hypercube"):
        function = smooth(smooth_function, num_samples=16, scale=0.5, sampler=sampler, generator=generator())
        spread[sampler] = estimates(function, y)[0].var()
    assert spread["sobol"] < 0.2 * spread["random"]
    assert spread["latin_hypercube"] < 0.5 * spread["random"]


def test_the_number_of_evaluations():
    calls = []

    def counted(y):
        calls.append(tuple(y.shape))
        return y.sum(-1)

    y = torch.zeros(3, 2)
    smooth(counted, num_samples=6)(y)
    assert calls.pop() == (6, 3, 2)
    assert not calls
    smooth(counted, num_samples=6, vectorized=False)(y)
    assert calls == [(3, 2)] * 6
    calls.clear()
    smooth(counted, num_samples=6, baseline="value")(y)
    assert calls == [(6, 3, 2), (1, 3, 2)]


def test_a_single_number_an_example_and_other_arguments():
    y = torch.tensor([0.2, 0.7], requires_grad=True)
    target = torch.tensor([1.0, 0.0])
    function = smooth(lambda x, t: (x.round() - t).square(), num_samples=4, generator=generator())
    function(y, target).sum().backward()
    assert y.grad.shape == (2,)
    with pytest.raises(ValueError, match="only y gets a gradient"):
        function(y, target.requires_grad_())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 1}, "at least 2, got 1: the baseline of a sample"),
        ({"num_samples": 0, "baseline": None}, "at least 1, got 0"),
        ({"num_samples": 2, "antithetic": True}, "at least 4"),
        ({"num_samples": 5, "antithetic": True}, "multiple of 2, got 5: antithetic samples come in pairs"),
        ({"num_samples": 5, "sampler": "sobol"}, "multiple of 2, got 5: one half is the baseline"),
        ({"num_samples": 6, "sampler": "sobol", "antithetic": True}, "multiple of 4, got 6"),
        ({"scale": 0.0}, "scale must be positive"),
        ({"scale": torch.ones(2, 2)}, "finite and invertible"),
        ({"scale": torch.ones(2, 3)}, "square matrix"),
        ({"scale": torch.eye(2), "distribution": "cauchy"}, "needs the gaussian"),
        ({"scale": torch.eye(2, requires_grad=True)}, "scale gets no gradient"),
        ({"sampler": "halton"}, "sampler must be"),
        ({"baseline": "mean"}, "baseline must be"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        smooth(both_positive, **options)


def test_samples_of_another_are_refused():
    first, second = smooth(both_positive), smooth(both_positive)
    y = torch.zeros(2, 2)
    with pytest.raises(ValueError, match="samples must be those that this function has drawn"):
        second(y, samples=first.samples(y))
    with pytest.raises(ValueError, match="samples must be of the same y"):
        first(y + 1, samples=first.samples(y))
    with pytest.raises(ValueError, match="matrix of 3 rows"):
        smooth(both_positive, scale=torch.eye(3))(y)


def test_dtypes_and_generators():
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        y = torch.zeros(2, 3, dtype=dtype, requires_grad=True)
        value = smooth(lambda x: x.sum(-1))(y)
        value.sum().backward()
        assert value.dtype == y.grad.dtype == dtype
    once, again = (smooth(both_positive, generator=generator(5))(torch.zeros(2, 2)) for _ in range(2))
    assert torch.equal(once, again)


def test_compiled_code_calls_it_as_it_is():
    function = smooth(both_positive, num_samples=4, generator=generator(1))
    model = torch.compile(lambda x: function(x * 2).sum() * 3, backend="eager")
    y = torch.tensor([[0.1, 0.2]])
    expected = smooth(both_positive, num_samples=4, generator=generator(1))(y * 2).sum() * 3
    torch.testing.assert_close(model(y), expected)
    whole = torch.compile(lambda x: function(x * 2).sum(), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="runs outside of compiled code"):
        whole(y)
