"""Perturbed optimizers and Fenchel-Young losses, against closed forms."""

import pytest
import torch
from monte_carlo import assert_unbiased, generator

import softly
from softly.estimators import FenchelYoungLoss, PerturbedOptimizer, solvers

MANY = 20_000
SCORES = torch.tensor([0.3, -0.2, 0.7], dtype=torch.float64)


def many(y):
    return y.expand(MANY, *y.shape).clone().requires_grad_()


def argmin(y):
    return solvers.argmax(-y)


SENSES = pytest.mark.parametrize(("solver", "sense"), [(solvers.argmax, "max"), (argmin, "min")])


@SENSES
@pytest.mark.parametrize(
    "way", [{}, {"antithetic": True}, {"sampler": "sobol"}, {"sampler": "latin_hypercube"}], ids=str
)
def test_argmax_under_gumbel_noise_is_the_softmax(solver, sense, way):
    scale, sign = 0.7, 1 if sense == "max" else -1
    noise = "gumbel_max" if sense == "max" else "gumbel_min"
    soft = PerturbedOptimizer(
        solver, sense=sense, distribution=noise, scale=scale, num_samples=4, generator=generator(), **way
    )
    softmax = lambda y: torch.softmax(sign * y / scale, -1)  # noqa: E731
    y = many(SCORES)
    solution = soft(y)
    assert_unbiased(solution.detach(), softmax(SCORES))
    jacobian = torch.autograd.functional.jacobian(softmax, SCORES)
    for i in range(3):
        (row,) = torch.autograd.grad(solution[:, i].sum(), y, retain_graph=True)
        assert_unbiased(row, jacobian[i])


@SENSES
def test_fenchel_young_under_gumbel_noise_is_the_cross_entropy(solver, sense):
    """The mean maximum is the logsumexp, up to Euler's constant."""
    scale, sign = 0.7, 1 if sense == "max" else -1
    noise = "gumbel_max" if sense == "max" else "gumbel_min"
    loss = FenchelYoungLoss(
        solver, sense=sense, distribution=noise, scale=scale, num_samples=4, reduction="none", generator=generator()
    )
    target = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)

    def closed(y):
        return scale * torch.logsumexp(sign * y / scale, -1) - sign * (y * target).sum(-1)

    y = many(SCORES)
    value = loss(y, target.expand(MANY, -1))
    assert_unbiased(value.detach(), closed(SCORES) + scale * 0.5772156649)
    (gradient,) = torch.autograd.grad(value.sum(), y)
    assert_unbiased(gradient, torch.func.grad(closed)(SCORES))
    hessian = loss.hessian(y, target.expand(MANY, -1))
    torch.testing.assert_close(hessian, hessian.mT)
    assert_unbiased(hessian, torch.func.hessian(closed)(SCORES))


def test_two_way_argmax_under_gaussian_noise():
    y = torch.tensor([0.2, -0.3], dtype=torch.float64, requires_grad=True)
    normal = softly.distributions.get("gaussian")
    expected = normal.cdf((y[0] - y[1]) / (0.8 * 2**0.5))
    soft = PerturbedOptimizer(solvers.argmax, scale=0.8, num_samples=4, generator=generator())
    batch = many(y.detach())
    solution = soft(batch)[:, 0]
    assert_unbiased(solution.detach(), expected.detach())
    (gradient,) = torch.autograd.grad(solution.sum(), batch)
    assert_unbiased(gradient, torch.autograd.grad(expected, y)[0])


@pytest.mark.parametrize("sense", ["max", "min"])
@pytest.mark.parametrize("noise", ["additive", "multiplicative"])
def test_the_gradient_is_that_of_the_value(sense, noise):
    """With the same noise the value is differentiable almost everywhere, by finite differences."""
    solver = solvers.argmax if sense == "max" else argmin
    target = torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([[0.3, 0.2, 0.7], [-0.6, 0.5, 1.0]], dtype=torch.float64, requires_grad=True)

    def value(x):
        options = {"num_samples": 6, "scale": 0.3, "reduction": "none", "generator": generator(2)}
        return FenchelYoungLoss(solver, sense=sense, noise=noise, **options)(x, target)

    assert torch.autograd.gradcheck(value, (y,))


@pytest.mark.parametrize("sense", ["max", "min"])
@pytest.mark.parametrize("noise", ["additive", "multiplicative"])
def test_double_backward_is_the_hessian(sense, noise):
    solver = solvers.argmax if sense == "max" else argmin
    y = torch.tensor([[0.3, 0.2, 0.7], [-0.6, 0.5, 1.0]], dtype=torch.float64, requires_grad=True)
    target = torch.eye(3, dtype=torch.float64)[:2]

    def loss():
        return FenchelYoungLoss(
            solver, sense=sense, noise=noise, num_samples=7, scale=0.4, reduction="none", generator=generator(2)
        )

    expected = loss().derivatives(y, target)
    value = loss()(y, target)
    (gradient,) = torch.autograd.grad(value.sum(), y, create_graph=True)
    rows = [torch.autograd.grad(gradient[:, i].sum(), y, retain_graph=True)[0] for i in range(3)]
    torch.testing.assert_close(value, expected.value)
    torch.testing.assert_close(gradient, expected.gradient)
    torch.testing.assert_close(torch.stack(rows, 1), expected.hessian)
    torch.testing.assert_close(expected.hessian, expected.hessian.mT)


@pytest.mark.parametrize("distribution", ["gaussian", "logistic", "cauchy", "laplace", "reciprocal", "optimal"])
def test_hessians_of_two_way_argmax(distribution):
    """They ask for one derivative of the density, so that kinks do no harm."""
    noise, scale = softly.distributions.get(distribution), 0.8
    y = torch.tensor([0.2, -0.3], dtype=torch.float64)
    # The density of the difference of two, by quadrature at equal steps of probability.
    e = noise.icdf((torch.arange(200_000, dtype=torch.float64) + 0.5) / 200_000)
    slope = noise.pdf((y[0] - y[1]) / scale + e).mean() / scale
    loss = FenchelYoungLoss(
        solvers.argmax, distribution=noise, scale=scale, num_samples=4, reduction="none", generator=generator()
    )
    target = torch.zeros(MANY, 2, dtype=torch.float64)
    expected = slope * torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    assert_unbiased(loss.hessian(many(y), target), expected)
    value = loss(batch := many(y), target)
    (gradient,) = torch.autograd.grad(value.sum(), batch, create_graph=True)
    assert_unbiased(torch.autograd.grad(gradient[:, 0].sum(), batch)[0], expected[0])


def test_multiplicative_noise_of_one_number():
    """Choosing between a number and nothing has a closed form."""
    y = torch.tensor([0.7, 0.9], dtype=torch.float64, requires_grad=True)
    scale = 0.5
    normal = softly.distributions.get("gaussian")
    # y1 F1 > y2 F2 where log y1 - log y2 exceeds the difference of two normal variables.
    expected = normal.cdf((y[0].log() - y[1].log()) / (scale * 2**0.5))
    soft = PerturbedOptimizer(solvers.argmax, scale=scale, num_samples=4, noise="multiplicative", generator=generator())
    batch = many(y.detach())
    solution = soft(batch)[:, 0]
    assert_unbiased(solution.detach(), expected.detach())
    (gradient,) = torch.autograd.grad(solution.sum(), batch)
    assert_unbiased(gradient, torch.autograd.grad(expected, y)[0])


def test_multiplicative_hessian_is_unbiased():
    """Against the derivative of the mean gradient, by quadrature over both noises."""
    scale, y = 0.6, torch.tensor([0.7, 0.9], dtype=torch.float64)
    nodes = torch.linspace(-6, 6, 1201, dtype=torch.float64)
    weight = softly.distributions.get("gaussian").pdf(nodes)
    weight = weight / weight.sum()
    factor = torch.exp(scale * nodes - 0.5 * scale**2)

    def mean_maximum(x):
        # A smooth closed form: E max(x1 F1, x2 F2) = E_F1 [x1 F1 P(x2 F2 < x1 F1) + E[x2 F2; x2 F2 > x1 F1]].
        normal = softly.distributions.get("gaussian")
        cut = ((x[0] * factor).log() - x[1].log() + 0.5 * scale**2) / scale
        inner = x[0] * factor * normal.cdf(cut) + x[1] * normal.cdf(scale - cut)
        return (weight * inner).sum()

    target = torch.tensor([1.0, 0.0], dtype=torch.float64)
    loss = FenchelYoungLoss(
        solvers.argmax, scale=scale, num_samples=4, noise="multiplicative", reduction="none", generator=generator()
    )
    found = loss.derivatives(many(y), target.expand(MANY, -1))
    assert_unbiased(found.value, mean_maximum(y) - y[0])
    assert_unbiased(found.gradient, torch.func.grad(mean_maximum)(y) - target)
    assert_unbiased(found.hessian, torch.func.hessian(mean_maximum)(y))


def test_small_noise_is_the_solver():
    costs = torch.rand(3, 5, 5, generator=generator())
    soft = PerturbedOptimizer(solvers.shortest_path, sense="min", scale=1e-6)
    assert torch.equal(soft(costs), solvers.shortest_path(costs))
    loss = FenchelYoungLoss(solvers.shortest_path, sense="min", scale=1e-6)
    torch.testing.assert_close(loss(costs, solvers.shortest_path(costs)), torch.tensor(0.0), atol=1e-4, rtol=0)


def test_costs_that_noise_made_negative_are_clamped():
    costs = torch.full((2, 3, 3), 0.1, requires_grad=True)
    PerturbedOptimizer(solvers.shortest_path, sense="min", scale=10.0)(costs).sum().backward()
    with pytest.raises(ValueError, match="costs must not be negative"):
        PerturbedOptimizer(solvers.shortest_path, sense="min")(costs - 1.0)


def test_reductions():
    y, target = torch.randn(4, 3, generator=generator()), torch.eye(3)[[0, 1, 2, 0]]
    losses = {
        reduction: FenchelYoungLoss(solvers.argmax, reduction=reduction, generator=generator())(y, target)
        for reduction in ("none", "mean", "sum")
    }
    torch.testing.assert_close(losses["none"].mean(), losses["mean"])
    torch.testing.assert_close(losses["none"].sum(), losses["sum"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sense": "most"}, "sense must be"),
        ({"noise": "loud"}, "noise must be"),
        ({"noise": "multiplicative", "distribution": "cauchy"}, "multiplicative noise is exp of a 'gaussian'"),
        ({"noise": "multiplicative", "scale": torch.eye(3)}, "must be a number"),
        ({"distribution": "uniform"}, "no gradients with"),
        ({"num_samples": 1}, "at least 2"),
    ],
)
@pytest.mark.parametrize("kind", [PerturbedOptimizer, FenchelYoungLoss])
def test_options_are_checked(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(solvers.argmax, **options)


def test_arguments_are_checked():
    loss = FenchelYoungLoss(solvers.argmax)
    with pytest.raises(ValueError, match=r"the shape of y, \(2, 3\), got \(3,\)"):
        loss(torch.zeros(2, 3), torch.zeros(3))
    with pytest.raises(ValueError, match="only y gets a gradient"):
        loss(torch.zeros(2, 3), torch.zeros(2, 3, requires_grad=True))
    with pytest.raises(ValueError, match="target must be finite"):
        loss(torch.zeros(2, 3), torch.full((2, 3), torch.nan))
    with pytest.raises(ValueError, match="reduction must be"):
        FenchelYoungLoss(solvers.argmax, reduction="max")
    with pytest.raises(ValueError, match="can't move a y that is 0"):
        PerturbedOptimizer(solvers.argmax, noise="multiplicative")(torch.zeros(2, 3))


def test_a_solver_in_plain_python():
    def best(y):
        grid = y.numpy()
        return (grid == grid.max(-1, keepdims=True)).astype("int64")

    y = torch.randn(3, 4, generator=generator(), requires_grad=True)
    for vectorized in (True, False):
        solution = PerturbedOptimizer(best, vectorized=vectorized, generator=generator())(y)
        torch.testing.assert_close(solution, PerturbedOptimizer(solvers.argmax, generator=generator())(y))


def test_solutions_are_in_the_hull():
    y = torch.randn(5, 3, 3, generator=generator())
    soft = PerturbedOptimizer(solvers.assignment, num_samples=5)(y)
    for dim in (-1, -2):
        torch.testing.assert_close(soft.sum(dim), torch.ones(5, 3))
