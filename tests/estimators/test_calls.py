"""What a black box does wrong is said, with its name and the sample."""

import numpy as np
import pytest
import torch

from softly.estimators import (
    FenchelYoungLoss,
    Imle,
    PerturbedOptimizer,
    SpoPlusLoss,
    blackbox,
    each,
    negative_identity,
    smooth,
    solvers,
)


def squares(y):
    return y.square().sum(-1)


def square_of_one(y):
    return float((np.asarray(y) ** 2).sum())


def failing(y):
    raise KeyError("nothing there")


@pytest.mark.parametrize("vectorized", [True, False])
def test_failures_name_the_black_box(vectorized):
    with pytest.raises(RuntimeError, match=r"smooth: failing failed.*KeyError") as caught:
        smooth(failing, vectorized=vectorized)(torch.zeros(2, 3))
    assert isinstance(caught.value.__cause__, KeyError)
    assert ("sample 0" in str(caught.value)) == (not vectorized)


@pytest.mark.parametrize("vectorized", [True, False])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_names_the_sample(vectorized, value):
    def spoiled(y):
        result = squares(y)
        result[..., 1] = torch.where(y[..., 1, 0] > 0.5, value, 0.0)
        return result

    y = torch.tensor([[0.0], [0.5]])
    with pytest.raises(ValueError, match=rf"spoiled returned {value} for sample \d of example 1"):
        smooth(spoiled, vectorized=vectorized, num_samples=8)(y)


def test_wrong_shapes():
    with pytest.raises(ValueError, match=r"must return shape \(10, 2, ...\), got \(2,\)"):
        smooth(lambda y: y.sum((0, 2)))(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"must return shape \(2, ...\), got \(3,\) on sample 0"):
        smooth(lambda y: y.sum(0), vectorized=False)(torch.zeros(2, 3))
    with pytest.raises(TypeError, match="must return numbers, got str"):
        smooth(lambda y: "no")(torch.zeros(2, 3))
    with pytest.raises(TypeError, match="real numbers"):
        smooth(lambda y: y.sum(-1) * 1j)(torch.zeros(2, 3))


def test_inputs_are_checked():
    function = smooth(squares)
    with pytest.raises(ValueError, match="must not be NaN, got NaN in example 1"):
        function(torch.tensor([[0.0], [torch.nan]]))
    with pytest.raises(ValueError, match="first dimension of examples"):
        function(torch.tensor(1.0))
    with pytest.raises(TypeError, match="floating-point"):
        function(torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(RuntimeError, match="no numbers"):
        function(torch.zeros(2, 3, device="meta"))


def test_answers_may_be_numpy_and_integers():
    y = torch.zeros(2, 3, requires_grad=True)
    value = smooth(lambda x: (np.asarray(x) > 0).sum(-1))(y)
    assert value.dtype == torch.float32
    value.sum().backward()
    assert y.grad.abs().sum() > 0


@pytest.mark.parametrize("processes", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_one_by_one(processes):
    y = torch.randn(3, 4, 2)
    torch.testing.assert_close(each(square_of_one, processes=processes)(y), squares(y))


def test_one_by_one_with_arguments():
    y, target = torch.randn(3, 4, 2), torch.randn(4, 2)
    distance = each(lambda a, b: (a - b).abs())
    torch.testing.assert_close(distance(y, target), (y - target).abs())
    value = smooth(each(lambda a, b: float((a - b).square().sum())), num_samples=3)(y[0], target)
    assert value.shape == (4,)


def test_one_by_one_failures():
    def picky(y):
        if y[0] == 5:
            raise ValueError("no fives")
        return y.sum()

    y = torch.zeros(2, 3, 1)
    y[1, 2] = 5
    with pytest.raises(RuntimeError, match="for sample 1 of example 2: ValueError: no fives"):
        each(picky)(y)
    with pytest.raises(ValueError, match=r"returned shape \(1,\) at first, \(2,\) for sample 1 of example 2"):
        each(lambda x: torch.zeros(1 if x[0] == 0 else 2))(y)
    with pytest.raises(ValueError, match="must have 3 examples, got 2"):
        each(picky)(y, torch.zeros(2))
    with pytest.raises(ValueError, match="batch before"):
        each(picky)(torch.zeros(3))
    with pytest.raises(ValueError, match="dims must not be negative"):
        each(picky, dims=-1)
    with pytest.raises(ValueError, match="without examples"):
        each(picky)(torch.zeros(0, 1))


@pytest.mark.parametrize("vectorized", [True, False])
def test_black_boxes_may_work_in_place(vectorized):
    memory = {}

    def careless(y):
        y.abs_()
        buffer = memory.setdefault(y.shape, np.zeros(tuple(y.shape[:-1]), dtype=np.float32))
        buffer[...] = y.numpy().sum(-1)
        return buffer

    y = torch.randn(3, 2, requires_grad=True)
    before = y.detach().clone()
    options = {"num_samples": 6, "baseline": "value", "vectorized": vectorized}
    ours = smooth(careless, **options, generator=torch.Generator().manual_seed(0)).samples(y)
    theirs = smooth(lambda x: x.abs().sum(-1), **options, generator=torch.Generator().manual_seed(0)).samples(y)
    assert torch.equal(y, before)
    assert torch.equal(ours.points, theirs.points)
    torch.testing.assert_close(ours.values, theirs.values)


def test_no_examples():
    y = torch.zeros(0, 3, requires_grad=True)
    for options in ({}, {"sampler": "sobol"}, {"sampler": "latin_hypercube"}, {"scale": torch.eye(3)}):
        value = smooth(squares, **options)(y)
        assert value.shape == (0,)
        value.sum().backward()
        assert y.grad.shape == (0, 3)


WEIGHT = torch.ones(3, requires_grad=True)


def weighted(y):
    return solvers.argmax(y) * WEIGHT


@pytest.mark.parametrize(
    "call",
    [
        lambda y: smooth(weighted)(y),
        lambda y: smooth(weighted, vectorized=False)(y),
        lambda y: smooth(each(lambda x: (WEIGHT * x).sum()))(y),
        lambda y: smooth(lambda x: [[(WEIGHT * b).sum() for b in s] for s in x])(y),
        lambda y: smooth(weighted).samples(y),
        lambda y: smooth(lambda x: weighted(x).sum(-1)).hessian(y),
        lambda y: torch.func.grad(lambda x: smooth(weighted)(x).sum())(y),
        lambda y: torch.func.grad(lambda w: smooth(lambda x: (w * x).sum(-1))(y).sum())(torch.ones(3)),
        lambda y: PerturbedOptimizer(weighted)(y),
        lambda y: FenchelYoungLoss(weighted)(y, y),
        lambda y: FenchelYoungLoss(weighted).hessian(y, y),
        lambda y: Imle(weighted)(y),
        lambda y: blackbox(weighted)(y),
        lambda y: negative_identity(weighted)(y),
        lambda y: SpoPlusLoss(weighted, sense="max")(y, y),
    ],
)
def test_parameters_inside_a_black_box_are_refused(call):
    """They would silently get no gradient."""
    y = torch.rand(2, 3)
    with pytest.raises(ValueError, match=r"only y gets a gradient, but .* returned a tensor that requires one"):
        call(y)


def test_parameters_are_no_matter_where_no_gradient_is_asked_for():
    y = torch.rand(2, 3)
    with torch.no_grad():
        smooth(weighted)(y)
    smooth(lambda x: weighted(x).detach())(y)
    smooth(torch.no_grad()(weighted))(y)
