import math

import torch

from softly._straight_through import straight_through


def step(x: torch.Tensor) -> torch.Tensor:
    return straight_through(x > 0, torch.sigmoid(x))


def test_hard_forward_and_soft_backward_to_any_order():
    x = torch.tensor([-1.0, 0.5, 3.0], dtype=torch.float64)
    assert step(x).tolist() == [0.0, 1.0, 1.0]
    assert step(x).dtype == torch.float64
    torch.testing.assert_close(torch.func.jacrev(step)(x), torch.func.jacrev(torch.sigmoid)(x))
    torch.testing.assert_close(torch.func.jacfwd(step)(x), torch.func.jacrev(torch.sigmoid)(x))
    with torch.no_grad():
        value, tangent = torch.func.jvp(step, (x,), (torch.ones_like(x),))
    assert value.tolist() == [0.0, 1.0, 1.0]
    torch.testing.assert_close(tangent, torch.sigmoid(x) * torch.sigmoid(-x))
    hessian = lambda f: torch.func.hessian(lambda y: f(y).sum())(x)  # noqa: E731
    torch.testing.assert_close(hessian(step), hessian(torch.sigmoid))
    torch.testing.assert_close(torch.func.vmap(step)(x), step(x))
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    y = x.clone().requires_grad_()
    torch.testing.assert_close(compiled(y), step(x))
    (grad,) = torch.autograd.grad(compiled(y).sum(), y)
    torch.testing.assert_close(grad, torch.sigmoid(x) * torch.sigmoid(-x))


def test_the_hard_value_brings_no_gradient_of_its_own():
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    (grad,) = torch.autograd.grad(straight_through(x * 5.0, x.square()).sum(), x)
    assert grad.tolist() == [-2.0, 4.0]


def test_infinities_stay_and_have_no_gradient():
    x = torch.tensor([math.inf, -math.inf, 1.0, math.nan], requires_grad=True)
    value = straight_through(x, x)
    assert value[:3].tolist() == [math.inf, -math.inf, 1.0]
    assert value[3].isnan()
    (grad,) = torch.autograd.grad(value[:3].sum(), x)
    assert grad[:3].tolist() == [0.0, 0.0, 1.0]
