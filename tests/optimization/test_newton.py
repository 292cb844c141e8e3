"""Newton losses, against direct linear algebra."""

import itertools

import pytest
import torch
from monte_carlo import generator

import softly
from softly.estimators import FenchelYoungLoss, smooth, solvers

CURVATURES = ["hessian", "fisher", "elementwise"]


def gradient_of(loss, y, *args):
    leaf = y.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(leaf, *args), leaf)[0]


def bumpy(y):
    """A loss (B,) that is not convex."""
    return torch.sin(2.0 * y).sum(-1) + 0.3 * y.square().sum(-1) + y[..., 0] * y[..., 1]


def bowl(y):
    return torch.cosh(y).sum(-1) + 0.5 * (y[..., 0] - y[..., 1]).square()


def points(batch=6, m=3):
    return torch.randn(batch, m, dtype=torch.float64, generator=generator(1))


def hessians(loss, y):
    return torch.stack([torch.func.hessian(lambda x: loss(x.unsqueeze(0))[0])(row) for row in y])


def direct(loss, y, curvature, tikhonov):
    """The step, by definition."""
    g = torch.func.grad(lambda x: loss(x).sum())(y)
    if curvature == "fisher":
        C = torch.einsum("bi,bj->ij", g, g).expand(len(y), -1, -1) / len(y)
    elif curvature == "hessian":
        C = hessians(loss, y).mean(0).expand(len(y), -1, -1)
    else:
        C = hessians(loss, y)
    return torch.linalg.solve(C + tikhonov * torch.eye(y.shape[-1]).double(), g.unsqueeze(-1)).squeeze(-1)


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("tikhonov", [0.0, 0.3])
@pytest.mark.parametrize("form", ["each", "sum"])
def test_against_linear_algebra(curvature, tikhonov, form):
    y = points()
    loss = bowl if form == "each" else lambda x: bowl(x).sum()
    newton = softly.NewtonLoss(loss, curvature=curvature, tikhonov=tikhonov)
    expected = direct(bowl, y, curvature, tikhonov)
    torch.testing.assert_close(gradient_of(newton, y), expected)
    torch.testing.assert_close(newton(y), 0.5 * expected.square().sum())
    assert newton.last.changed == 0
    torch.testing.assert_close(newton.last.value.sum(), bowl(y).sum())


@pytest.mark.parametrize("curvature", CURVATURES)
def test_mean_divides_the_gradient_and_nothing_else(curvature):
    y = points()
    total = gradient_of(softly.NewtonLoss(bowl, curvature=curvature), y)
    mean = gradient_of(softly.NewtonLoss(bowl, curvature=curvature, reduction="mean"), y)
    torch.testing.assert_close(mean, total / len(y))


@pytest.mark.parametrize("curvature", ["hessian", "elementwise"])
def test_a_quadratic_is_solved_in_one_step(curvature):
    A = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    centre = torch.tensor([3.0, -1.0], dtype=torch.float64)
    quadratic = lambda y: 0.5 * torch.einsum("bi,ij,bj->b", y - centre, A, y - centre)  # noqa: E731
    y = points(4, 2)
    newton = softly.NewtonLoss(quadratic, curvature=curvature, tikhonov=0.0)
    torch.testing.assert_close(y - gradient_of(newton, y), centre.expand(4, 2))


@pytest.mark.parametrize("curvature", ["hessian", "elementwise"])
def test_squared_error_is_its_own_newton_loss(curvature):
    y, target = points(), points().flip(0)
    newton = softly.NewtonLoss("squared_error", curvature=curvature, tikhonov=0.0)
    torch.testing.assert_close(newton(y, target), 0.5 * (y - target).square().sum())
    torch.testing.assert_close(gradient_of(newton, y, target), y - target)


def softmax_loss(y, p):
    return -(p * y.log_softmax(-1)).sum(-1)


def bce_loss(y, p):
    return -(p * y.log() + (1 - p) * (1 - y).log()).sum(-1)


def sigmoid_loss(y, p):
    return bce_loss(y.sigmoid(), p)


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("tikhonov", ["auto", 0.2])
@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("squared_error", lambda y, p: 0.5 * (y - p).square().sum(-1)),
        ("softmax_cross_entropy", softmax_loss),
        ("binary_cross_entropy", bce_loss),
        ("sigmoid_binary_cross_entropy", sigmoid_loss),
    ],
)
def test_closed_forms_are_the_general_path(name, loss, curvature, tikhonov):
    y, p = points().sigmoid(), points().flip(0).softmax(-1)
    closed = softly.NewtonLoss(name, curvature=curvature, tikhonov=tikhonov)
    general = softly.NewtonLoss(loss, curvature=curvature, tikhonov=tikhonov)
    torch.testing.assert_close(gradient_of(closed, y, p), gradient_of(general, y, p))
    torch.testing.assert_close(closed.last.value, general.last.value)
    torch.testing.assert_close(closed.last.tikhonov, general.last.tikhonov)


def test_classes_are_one_hot_targets():
    y, classes = points(), torch.tensor([0, 1, 2, 0, 1, 2])
    newton = softly.NewtonLoss("softmax_cross_entropy")
    expected = gradient_of(newton, y, torch.nn.functional.one_hot(classes, 3))
    torch.testing.assert_close(gradient_of(newton, y, classes), expected)
    with pytest.raises(ValueError, match=r"classes must be in \[0, 2\], got 3"):
        newton(y, classes + 1)
    hard = softly.NewtonLoss("binary_cross_entropy", curvature="elementwise", tikhonov=0.0)
    y = torch.tensor([[0.2, 0.7]], dtype=torch.float64)
    step = gradient_of(hard, y, torch.tensor([[1.0, 0.0]], dtype=torch.float64))
    torch.testing.assert_close(step, torch.tensor([[-0.2, 0.3]], dtype=torch.float64))


@pytest.mark.parametrize("curvature", ["hessian", "elementwise"])
@pytest.mark.parametrize("tikhonov", [0.0, 0.1, "auto"])
def test_steps_are_descent_directions(curvature, tikhonov):
    y = 3 * points(20)
    newton = softly.NewtonLoss(bumpy, curvature=curvature, tikhonov=tikhonov)
    step = gradient_of(newton, y)
    g = torch.func.grad(lambda x: bumpy(x).sum())(y)
    assert ((step * g).sum(-1) > 0).all()
    if curvature == "elementwise" and tikhonov == 0.0:
        assert newton.last.changed > 0


def test_eigenvalues_that_are_changed():
    """By the rule: max(|e|, λ, 1e-8 max |e|), of matrices that are not positive definite, and of no others."""
    A = torch.diag(torch.tensor([2.0, -0.5, 0.0], dtype=torch.float64))
    B = torch.diag(torch.tensor([2.0, 0.5, 0.1], dtype=torch.float64))
    slope = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)
    loss = lambda y: torch.stack([0.5 * y[0] @ A @ y[0] + slope @ y[0], 0.5 * y[1] @ B @ y[1] + slope @ y[1]])  # noqa: E731
    y = torch.zeros(2, 3, dtype=torch.float64)
    newton = softly.NewtonLoss(loss, curvature="elementwise", tikhonov=0.0)
    expected = torch.tensor([[0.5, 2.0, 0.0], [0.5, 2.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(gradient_of(newton, y), expected)
    assert newton.last.changed == 2
    held = softly.NewtonLoss(loss, curvature="elementwise", tikhonov=0.1)
    # The eigenvalues are those of C + λ: 2.1, -0.4 and 0.1.
    expected = torch.tensor([[1 / 2.1, 1 / 0.4, 0.0], [1 / 2.1, 1 / 0.6, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(gradient_of(held, y), expected)
    assert held.last.changed == 1


def test_singular_curvatures():
    """The softmax has one; what it does not know is not moved."""
    y, p = points(), points().flip(0).softmax(-1)
    for curvature in CURVATURES:
        newton = softly.NewtonLoss(softmax_loss, curvature=curvature, tikhonov=0.0)
        step = gradient_of(newton, y, p)
        assert step.isfinite().all()
        torch.testing.assert_close(step.sum(-1), torch.zeros(6).double(), atol=1e-5, rtol=0)
    assert newton.last.changed == 6


def test_automatic_regularization():
    y = points()
    eigenvalues = torch.linalg.eigvalsh(hessians(bumpy, y))
    newton = softly.NewtonLoss(bumpy, curvature="elementwise")
    newton(y)
    torch.testing.assert_close(newton.last.tikhonov, 0.1 * eigenvalues.abs().mean(-1))
    newton = softly.NewtonLoss(bumpy)
    newton(y)
    mean = torch.linalg.eigvalsh(hessians(bumpy, y).mean(0)).abs().mean()
    torch.testing.assert_close(newton.last.tikhonov, 0.1 * mean)
    linear = softly.NewtonLoss(lambda x: 3.0 * x.sum(-1))
    torch.testing.assert_close(gradient_of(linear, y), torch.full_like(y, 3.0))
    assert linear.last.tikhonov == 1
    with pytest.raises(ValueError, match="the curvature is 0, and so is tikhonov"):
        softly.NewtonLoss(lambda x: 3.0 * x.sum(-1), tikhonov=0.0)(y)


def test_strong_regularization_is_the_gradient():
    y = points()
    for curvature in CURVATURES:
        newton = softly.NewtonLoss(bumpy, curvature=curvature, tikhonov=1e8)
        g = torch.func.grad(lambda x: bumpy(x).sum())(y)
        torch.testing.assert_close(1e8 * gradient_of(newton, y), g, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tikhonov", [0.0, 0.2, "auto"])
def test_fisher_of_more_numbers_than_examples(tikhonov):
    y = points(4, 9)
    newton = softly.NewtonLoss(bowl, curvature="fisher", tikhonov=tikhonov)
    step = gradient_of(newton, y)
    g = torch.func.grad(lambda x: bowl(x).sum())(y)
    C = g.t() @ g / 4
    damping = 0.1 * C.trace() / 9 if tikhonov == "auto" else tikhonov
    expected = torch.linalg.lstsq(C + damping * torch.eye(9).double(), g.t(), driver="gelsd").solution.t()
    torch.testing.assert_close(step, expected)


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("m", [3, 200])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_loss_that_couples_the_batch_is_refused(curvature, m, dtype):
    y = points(6, m).to(dtype)
    for coupled in (
        lambda x: (x - x.mean(0)).square().sum() + x.pow(4).sum(),
        lambda x: (x - x.mean(0)).square().sum(-1) + x.pow(4).sum(-1),
        lambda x: x.square().sum(-1) + x.flip(0)[:, 0],
        lambda x: x.square().sum() + x[2, 0] * x[3, 1],  # two of them
        lambda x: x.square().sum(-1) + torch.eye(6)[0] * x[1, 0],  # one of them, by another that knows nothing of it
    ):
        newton = softly.NewtonLoss(coupled, curvature=curvature)
        for _ in range(2):
            with pytest.raises(ValueError, match=rf"couples the examples of the batch.*reshape\(1, {6 * m}\)"):
                newton(y)


def test_a_loss_that_couples_the_batch():
    coupled = lambda y: (y - y.mean(0)).square().sum() + y.pow(4).sum()  # noqa: E731
    y = points()
    whole = softly.NewtonLoss(lambda x: coupled(x.reshape(6, 3)), curvature="elementwise", tikhonov=0.0)
    flat = y.reshape(1, 18)
    hessian = torch.func.hessian(lambda x: coupled(x.reshape(6, 3)))(flat.squeeze(0))
    g = torch.func.grad(coupled)(y).reshape(18)
    torch.testing.assert_close(gradient_of(whole, flat)[0], torch.linalg.solve(hessian, g))


@pytest.mark.parametrize(
    "sorter",
    [
        softly.SortingNetwork("bitonic", distribution="cauchy", steepness=3.0),
        softly.SortingNetwork("odd_even", distribution="logistic", steepness=3.0),
        softly.SoftSort(steepness=2.0),
        softly.NeuralSort(steepness=2.0),
    ],
    ids=["cauchy", "logistic", "softsort", "neuralsort"],
)
@pytest.mark.parametrize("curvature", CURVATURES)
def test_exact_through_sorters(sorter, curvature):
    y = points(5, 4)
    ranks = points(5, 4).flip(0).argsort(-1).argsort(-1) + 1

    def loss(x, target):
        return softly.sorting.ranking_loss(sorter.log_permutation(x), target, log=True, reduction="none")

    newton = softly.NewtonLoss(loss, curvature=curvature, tikhonov=2.0)
    step = gradient_of(newton, y, ranks)
    g = torch.func.grad(lambda x: loss(x, ranks).sum())(y)
    if curvature == "fisher":
        C = (torch.einsum("bi,bj->ij", g, g) / 5).expand(5, 4, 4)
    else:
        C = torch.stack([torch.func.hessian(lambda x, i=i: loss(x[None], ranks[i : i + 1])[0])(y[i]) for i in range(5)])
        C = C.mean(0).expand(5, 4, 4) if curvature == "hessian" else C
    damped = C + 2.0 * torch.eye(4).double()
    definite = torch.linalg.eigvalsh(damped).amin(-1) > 0
    expected = torch.linalg.solve(damped, g.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(step[definite], expected[definite], rtol=1e-6, atol=1e-8)
    assert definite.any()


def test_stochastic_hessians():
    y = points(4, 2)
    count = lambda x: (x > 0).double().prod(-1)  # noqa: E731
    function = lambda: smooth(count, num_samples=50, scale=0.7, generator=generator(3))  # noqa: E731
    for curvature in CURVATURES:
        step = gradient_of(softly.NewtonLoss(function(), curvature=curvature, tikhonov=5.0), y)
        found = function().derivatives(y)
        if curvature == "fisher":
            C = (torch.einsum("bi,bj->ij", found.gradient, found.gradient) / 4).expand(4, 2, 2)
        else:
            C = found.hessian if curvature == "elementwise" else found.hessian.mean(0).expand(4, 2, 2)
        expected = torch.linalg.solve(C + 5.0 * torch.eye(2).double(), found.gradient.unsqueeze(-1)).squeeze(-1)
        torch.testing.assert_close(step, expected)
    target = torch.eye(2, dtype=torch.float64)[[0, 1, 0, 1]]
    for curvature, reduction in itertools.product(CURVATURES, ("none", "sum")):
        options = {"num_samples": 9, "reduction": reduction, "generator": generator(3)}
        newton = softly.NewtonLoss(FenchelYoungLoss(solvers.argmax, **options), curvature=curvature)
        assert gradient_of(newton, y, target).isfinite().all()
    with pytest.raises(ValueError, match="reduction of the loss must be 'none' or 'sum'"):
        softly.NewtonLoss(FenchelYoungLoss(solvers.argmax))


def test_examples_of_any_shape_and_dtype():
    for dtype in (torch.float32, torch.bfloat16):
        y = points(4, 6).to(dtype).reshape(4, 2, 3)
        loss = lambda x: torch.cosh(x).flatten(1).sum(-1)  # noqa: E731
        step = gradient_of(softly.NewtonLoss(loss), y)
        assert step.shape == (4, 2, 3)
        assert step.dtype == dtype
    assert softly.NewtonLoss(loss)(torch.zeros(0, 3)) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hinge"}, "one of squared_error"),
        ({"loss": torch.nn.CrossEntropyLoss()}, "reduction of the loss must be"),
        ({"loss": torch.nn.Linear(3, 1)}, "the loss has parameters"),
        ({"loss": bowl, "curvature": "gauss"}, "curvature must be"),
        ({"loss": bowl, "tikhonov": -1.0}, "at least 0"),
        ({"loss": bowl, "tikhonov": "some"}, "number or 'auto'"),
        ({"loss": bowl, "reduction": "none"}, "reduction must be"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        softly.NewtonLoss(**options)


def test_arguments_are_checked():
    y = points()
    with pytest.raises(ValueError, match=r"must return shape \(6,\).*got \(6, 3\)"):
        softly.NewtonLoss(torch.square)(y)
    with pytest.raises(ValueError, match="does not depend on y"):
        softly.NewtonLoss(lambda x: x.detach().sum(-1))(y)
    with pytest.raises(ValueError, match="derivatives of the loss must be finite"):
        softly.NewtonLoss(lambda x: (x - x.detach()).sqrt().sum(-1))(y)
    with pytest.raises(ValueError, match="takes y of shape"):
        softly.NewtonLoss("squared_error")(y)
    with pytest.raises(ValueError, match="target must have the shape"):
        softly.NewtonLoss("squared_error")(y, y[:, :1])
    with pytest.raises(ValueError, match="only y gets a gradient"):
        softly.NewtonLoss("squared_error")(y, y.clone().requires_grad_())


def test_sums_without_second_derivatives_are_taken_as_they_are():
    """Whether they couple examples can't be told."""
    solve = softly.estimators.blackbox(solvers.argmax, strength=1.0, sense="max")
    newton = softly.NewtonLoss(lambda y: (solve(y) * torch.tensor([1.0, 2.0, 3.0])).sum(), curvature="fisher")
    assert gradient_of(newton, points().float()).isfinite().all()


@pytest.mark.parametrize("curvature", CURVATURES)
def test_parameters_inside_the_loss_are_refused(curvature):
    """They would silently get no gradient, whether captured themselves or by way of what is made of them."""
    y, layer = points(), torch.nn.Linear(3, 3).double()
    made = layer(torch.ones(1, 3).double())
    captured = [lambda x: bowl(layer(x)), lambda x: bowl(x + made), lambda x: bowl(layer(x)).sum()]
    for loss in captured:
        newton = softly.NewtonLoss(loss, curvature=curvature)
        for _ in range(2):
            with pytest.raises(ValueError, match=r"NewtonLoss: only y gets a gradient.*captured.*split\(stage, step"):
                newton(y.clone().requires_grad_())
        with torch.no_grad():
            assert newton(y).isfinite()
        whole = softly.optimization.split(lambda x, loss=loss: loss(x).sum(), step=newton.target)
        found = torch.autograd.grad(whole(y), list(layer.parameters()), retain_graph=True)
        expected = torch.autograd.grad(loss(y).sum(), list(layer.parameters()), retain_graph=True)
        torch.testing.assert_close(found, expected)
    layer.requires_grad_(False)
    assert gradient_of(softly.NewtonLoss(captured[0], curvature=curvature), y).abs().sum() > 0


@pytest.mark.parametrize("curvature", ["hessian", "fisher"])
def test_parameters_inside_a_black_box_are_refused(curvature):
    weight = torch.ones(3, dtype=torch.float64, requires_grad=True)
    newton = softly.NewtonLoss(smooth(lambda x: (weight * x).sum(-1)), curvature=curvature)
    with pytest.raises(ValueError, match="smooth: only y gets a gradient"):
        newton(points())


@pytest.mark.native
@pytest.mark.parametrize("tikhonov", ["auto", 0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_kernel_of_the_fisher_is_the_general_path(tikhonov, dtype, monkeypatch):
    for y in (points(6, 3), points(40, 10), points(5, 5), torch.zeros(4, 2), points(6, 4).expand(6, 4).clone() * 1e-3):
        y = y.to(dtype)
        results = []
        for kernels in (True, False):
            with monkeypatch.context() as patch:
                if not kernels:
                    patch.setattr(softly.native.library, "module", None)
                newton = softly.NewtonLoss(bowl, curvature="fisher", tikhonov=tikhonov)
                results.append((gradient_of(newton, y), newton.last.tikhonov))
        torch.testing.assert_close(results[0], results[1], rtol=1e-4 if dtype == torch.float32 else 1e-7, atol=1e-6)
