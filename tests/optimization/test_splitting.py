"""Split backpropagation, and what the chapter proves of it."""

import functools

import pytest
import torch
from torch import nn

import softly
from softly.optimization import split


def network():
    torch.manual_seed(0)
    return [
        nn.Sequential(nn.Linear(5, 7), nn.Tanh()),
        nn.Sequential(nn.Linear(7, 6), nn.Tanh()),
        nn.Sequential(nn.Linear(6, 4), nn.Tanh()),
        nn.Linear(4, 3),
    ]


def data():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 5, generator=generator), torch.randn(8, 3, generator=generator)


def gradients(layers, loss):
    parameters = [p for layer in layers for p in layer.parameters()]
    return torch.autograd.grad(loss, parameters)


def last_loss(y, target):
    return torch.nn.functional.smooth_l1_loss(y, target, reduction="sum")


@pytest.mark.parametrize("splits", [[4], [2], [1, 3], [1, 2, 3, 4]])
def test_unit_steps_of_gradient_descent_are_backpropagation(splits):
    """Exactly, for parameters before, between and inside of the stages."""
    layers, (x, target) = [layer.double() for layer in network()], (t.double() for t in data())
    expected = gradients(layers, last_loss(nn.Sequential(*layers)(x), target))

    def stage(start):
        def run(z):
            for i in range(start, len(layers)):
                if i in splits and i > start:
                    return split(stage(i))(z)
                z = layers[i](z)
            if len(layers) in splits and start < len(layers):
                return split(lambda y: last_loss(y, target))(z)
            return last_loss(z, target)

        return run

    torch.testing.assert_close(gradients(layers, stage(0)(x)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [0.1, 0.5, 2.0])
def test_the_gradient_is_the_step(size):
    z = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    stage = lambda x: x.pow(4).sum()  # noqa: E731
    loss = split(stage, step=size)(z)
    (gradient,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(gradient, size * 4 * z.detach() ** 3)
    torch.testing.assert_close(loss, 0.5 * gradient.square().sum())


@pytest.mark.parametrize(
    "factory",
    [
        functools.partial(torch.optim.SGD, lr=0.3),
        torch.optim.Adam,
        functools.partial(torch.optim.RMSprop, lr=0.05),
        functools.partial(torch.optim.LBFGS, lr=0.5, max_iter=3),
    ],
    ids=["sgd", "adam", "rmsprop", "lbfgs"],
)
def test_any_optimizer_does_the_step(factory):
    z = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    stage = lambda x: (x - 1.0).pow(4).sum()  # noqa: E731
    (gradient,) = torch.autograd.grad(split(stage, step=factory)(z), z)
    moved = z.detach().clone().requires_grad_()
    optimizer = factory([moved])

    def closure():
        optimizer.zero_grad()
        loss = stage(moved)
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(gradient, (z - moved).detach())
    assert gradient.abs().sum() > 0


def test_any_callable_does_the_step():
    z = torch.randn(4, 3, requires_grad=True)
    target = torch.zeros(4, 3)
    (gradient,) = torch.autograd.grad(split(last_loss, step=lambda x, t: 0.5 * (x + t))(z, target), z)
    torch.testing.assert_close(gradient, 0.5 * z.detach())
    newton = softly.NewtonLoss(lambda x: (x - 1.0).square().sum(-1), tikhonov=0.0)
    whole = split(lambda x: (x - 1.0).square().sum(), step=newton.target)
    torch.testing.assert_close(torch.autograd.grad(whole(z), z)[0], z.detach() - 1.0)


def test_a_stage_without_gradient_is_stepped_by_resgro():
    layer = nn.Linear(2, 2)
    hard = lambda z: (z.round() - 3.0).abs().sum(-1)  # noqa: E731
    resgro = softly.Resgro(hard, num_samples=20, scale=1.0, generator=torch.Generator().manual_seed(0))
    loss = split(lambda z: hard(z).sum(), step=resgro.target)(layer(torch.ones(3, 2)))
    loss.backward()
    assert layer.weight.grad.abs().sum() > 0


def test_parameters_of_a_stage_with_a_step_of_its_own():
    """They get the stage's gradients, whatever the step."""
    before, after = nn.Linear(5, 4), nn.Linear(4, 3)
    x, target = data()
    stage = lambda z: last_loss(after(z), target)  # noqa: E731
    expected = torch.autograd.grad(stage(before(x)), list(after.parameters()))
    for step in (0.1, torch.optim.Adam, lambda z: z - 1.0):
        loss = split(stage, step=step)(before(x))
        found = torch.autograd.grad(loss, [*after.parameters(), *before.parameters()])
        torch.testing.assert_close(found[:2], expected)


def newton_step(function, theta):
    gradient = torch.func.grad(function)(theta)
    hessian = torch.func.hessian(function)(theta)
    return theta - torch.linalg.solve(hessian, gradient)


@pytest.mark.parametrize("seed", range(5))
def test_two_newton_steps_are_one(seed):
    """Of one output and one sample; with more they are not."""
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(3, dtype=torch.float64, generator=generator)
    x = torch.randn(3, dtype=torch.float64, generator=generator)
    model = lambda t: torch.sin(t @ x) + 0.3 * (t * x).square().sum() + t[0] * t[1]  # noqa: E731
    loss = lambda z: torch.cosh(z - 0.7) + 0.1 * z**2  # noqa: E731
    expected = newton_step(lambda t: loss(model(t)), theta)
    newton = softly.NewtonLoss(lambda y: loss(y).squeeze(-1), curvature="elementwise", tikhonov=0.0)
    end = newton.target(model(theta).reshape(1, 1)).squeeze()
    found = newton_step(lambda t: 0.5 * (end - model(t)) ** 2, theta)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("size", [0.3, 1.0])
def test_the_regularizers_of_both_steps(size):
    """A step leads to the minimum of the loss with the regularizer that the chapter gives."""
    generator = torch.Generator().manual_seed(3)
    f = torch.randn(4, dtype=torch.float64, generator=generator)
    loss = lambda z: torch.cosh(z).sum() + 0.1 * z.prod()  # noqa: E731
    gradient, hessian = torch.func.grad(loss)(f), torch.func.hessian(loss)(f)

    def omega_gradient(z):
        return loss(f) + size * gradient @ (z - f) - loss(z) + 0.5 * (z - f) @ (z - f)

    def omega_newton(z):
        return loss(f) + size * (z - f) @ gradient + 0.5 * (z - f) @ hessian @ (z - f) - loss(z)

    leaf = f.clone().requires_grad_()
    down = f - torch.autograd.grad(split(loss, step=size)(leaf), leaf)[0]
    newton = softly.NewtonLoss(lambda y: loss(y[0]).reshape(1), curvature="elementwise", tikhonov=0.0)
    full = newton.target(f.unsqueeze(0))[0]
    for omega, end in ((omega_gradient, down), (omega_newton, f + size * (full - f))):
        total = lambda z, omega=omega: loss(z) + omega(z)  # noqa: E731
        assert omega(f).abs() < 1e-12
        torch.testing.assert_close(torch.func.grad(total)(end), torch.zeros_like(f), atol=1e-9, rtol=0)
        assert (torch.linalg.eigvalsh(torch.func.hessian(total)(end)) > 0).all()


def test_nothing_is_computed_twice_for_nothing():
    """Without parameters in the stage, the backward pass does not go through it again."""
    passes = []

    class Counted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, z):
            return z.square().sum()

        @staticmethod
        def backward(ctx, grad):
            passes.append(1)
            return grad * torch.ones(3)

    split(Counted.apply)(torch.ones(3, requires_grad=True)).backward()
    assert len(passes) == 1


def test_arguments_are_checked():
    z = torch.ones(3, requires_grad=True)
    with pytest.raises(TypeError, match="step must be a number or callable"):
        split(torch.sum, step="adam")
    with pytest.raises(ValueError, match="positive and finite, got 0"):
        split(torch.sum, step=0)
    with pytest.raises(ValueError, match="must return a scalar"):
        split(torch.square)(z)
    with pytest.raises(
        ValueError, match=r"must return a scalar, got shape \(3,\)"
    ):  # a sum would count the step thrice
        split(torch.square, step=lambda x: x)(z)
    with pytest.raises(ValueError, match="does not depend on z by differentiable"):
        split(lambda x: x.detach().sum())(z)
    other = torch.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match="does not depend on z"):
        split(lambda x: other.sum())(z)
    with pytest.raises(TypeError, match=r"functools.partial"):
        split(torch.sum, step=lambda p: torch.optim.SGD([p], lr=0.1))(z.detach().requires_grad_())
    with pytest.raises(ValueError, match=r"must return shape \(3,\), got \(2,\)"):
        split(torch.sum, step=lambda x: x[:2])(z)
    with pytest.raises(RuntimeError, match=r"outside of torch.func"):
        torch.func.vmap(split(torch.sum))(torch.ones(2, 3))
