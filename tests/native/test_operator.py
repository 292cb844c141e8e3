"""An operator of one kernel, on its own: who may call the kernel, and who gets the reference."""

import pytest
import torch
from torch import Tensor

from softly import native

calls: list[str] = []


def _forward(x: Tensor, weights: Tensor | None, power: int) -> tuple[Tensor, Tensor]:
    calls.append("forward")
    assert x.is_contiguous()
    assert weights is None or weights.is_contiguous()
    scale = torch.ones_like(x[..., :1]) if weights is None else weights.expand_as(x)
    return x.detach() ** power * scale, power * x.detach() ** (power - 1) * scale


def _backward(grad: Tensor, x: Tensor, slope: Tensor, weights: Tensor | None, power: int) -> Tensor:
    calls.append("backward")
    assert grad.is_contiguous()
    assert slope.is_contiguous()
    return grad * slope


def _reference(x: Tensor, weights: Tensor | None, power: int) -> Tensor:
    calls.append("reference")
    return x**power * (1.0 if weights is None else weights)


def _check(x: Tensor, weights: Tensor | None, power: int) -> None:
    if power < 1:
        raise ValueError(f"power must be positive, got {power}")


power = native.Operator(
    "operator_for_tests",
    forward=_forward,
    shape=lambda x, weights, power: (torch.empty_like(x), torch.empty_like(x)),
    backward=_backward,
    reference=_reference,
    check=_check,
    regular=lambda x, weights, power: x.numel() == 0 or native.data(x) is None or float(native.data(x).max()) < 100.0,
)
pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(not native.available(), reason="the compiled kernels aren't there"),
]


@pytest.fixture(autouse=True)
def _forget():
    calls.clear()


def inputs(*shape: int) -> Tensor:
    return torch.rand(*shape, dtype=torch.float64) + 0.5


def cube(x: Tensor) -> Tensor:
    return power(x, None, 3)


def test_kernels_run_in_plain_code():
    x = inputs(4).requires_grad_()
    (gradient,) = torch.autograd.grad(cube(x).sum(), x)
    torch.testing.assert_close(gradient, 3 * x.detach() ** 2)
    assert calls == ["forward", "backward"]


def test_the_reference_runs_where_kernels_cannot():
    x = inputs(4)
    for other in (x.half(), x.to("meta")):
        assert cube(other).dtype == other.dtype
    assert set(calls) == {"reference"}


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: torch.func.jacrev(f),
        lambda f: torch.func.jacfwd(f),
        lambda f: torch.func.vmap(f),
        lambda f: torch.func.hessian(lambda x: f(x).sum()),
        lambda f: lambda x: torch.func.jvp(f, (x,), (torch.ones_like(x),))[1],
        lambda f: torch.func.vmap(torch.func.grad(lambda x: f(x).sum())),
    ],
    ids=["jacrev", "jacfwd", "vmap", "hessian", "jvp", "vmap of grad"],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_transforms(transform, compiled):
    x = inputs(3, 4) if transform is not None else None
    actual = transform(cube)
    if compiled:
        torch._dynamo.reset()
        actual = torch.compile(actual, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(actual(x), transform(lambda y: y**3)(x))


def test_derivatives_of_derivatives():
    x = inputs(4).requires_grad_()
    assert torch.autograd.gradcheck(cube, x)
    assert torch.autograd.gradgradcheck(cube, x)
    first = torch.autograd.grad(cube(x).sum(), x, create_graph=True)[0]
    second = torch.autograd.grad(first.sum(), x, create_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(second.sum(), x)[0], torch.full_like(x, 6.0))


def test_batched_backward():
    x = inputs(4).requires_grad_()
    weights = torch.eye(4, dtype=x.dtype)
    (jacobian,) = torch.autograd.grad(cube(x), x, weights, is_grads_batched=True)
    torch.testing.assert_close(jacobian, torch.diag(3 * x.detach() ** 2))


def test_constants_are_made_contiguous():
    x, weights = inputs(3, 4), inputs(4, 3).t()
    for call in (power, lambda *arguments: torch.ops.softly.operator_for_tests(*arguments)[0]):
        y = x.t().contiguous().t().requires_grad_()
        result = call(y, weights, 2)
        torch.testing.assert_close(result, x**2 * weights)
        (gradient,) = torch.autograd.grad(result.sum(), y)
        torch.testing.assert_close(gradient, 2 * x * weights)
    assert "reference" not in calls


def test_constants_that_are_differentiated_get_the_reference():
    x, weights = inputs(4), inputs(4).requires_grad_()
    for call in (power, lambda *arguments: torch.ops.softly.operator_for_tests(*arguments)[0]):
        (gradient,) = torch.autograd.grad(call(x, weights, 2).sum(), weights)
        torch.testing.assert_close(gradient, x**2)


def test_irregular_data_gets_the_reference_also_when_compiled():
    torch._dynamo.reset()
    compiled = torch.compile(cube, fullgraph=True, backend="aot_eager")
    for x, who in ((inputs(4), "forward"), (inputs(4) + 200.0, "reference")):
        calls.clear()
        leaf = x.clone().requires_grad_()
        result = compiled(leaf)
        assert calls[-1] == who
        torch.testing.assert_close(result.detach(), x**3)
        torch.testing.assert_close(torch.autograd.grad(result.sum(), leaf)[0], 3 * x**2)


def test_what_kernels_are_given_is_checked():
    x = inputs(4)
    with pytest.raises(ValueError, match="power must be positive, got 0"):
        torch.ops.softly.operator_for_tests(x, None, 0)
    kept = torch.empty_like(x)
    with pytest.raises(
        ValueError, match=r"grad must be torch.float64 of shape \(4,\), got torch.float64 of shape \(3,\)"
    ):
        torch.ops.softly.operator_for_tests_backward(x[:3], x, kept, None, 2)
    with pytest.raises(ValueError, match=r"kept must be torch\.float64 of shape"):
        torch.ops.softly.operator_for_tests_backward(x, x, kept.float(), None, 2)


def test_opcheck():
    torch.library.opcheck(torch.ops.softly.operator_for_tests, (inputs(4).requires_grad_(), None, 3))


def test_without_kernels_the_operator_is_its_reference(monkeypatch):
    monkeypatch.setattr(native.library, "module", None)
    x = inputs(4).requires_grad_()
    result = torch.ops.softly.operator_for_tests(x, None, 3)[0]  # as in a model that was exported elsewhere
    torch.testing.assert_close(torch.autograd.grad(result.sum(), x)[0], 3 * x.detach() ** 2)
    assert set(calls) == {"reference"}


def test_modes_see_the_operator():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Look(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Look():
        cube(inputs(3))
    assert "softly.operator_for_tests.default" in seen
