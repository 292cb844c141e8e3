"""Black-box differentiation, I-MLE, SPO+ and the negative identity, by hand and against PyEPO."""

import pyepo
import pytest
import torch
from monte_carlo import assert_unbiased, generator
from pyepo import EPO
from pyepo.model.opt import optModel

from softly.estimators import (
    FenchelYoungLoss,
    Imle,
    PerturbedOptimizer,
    SpoPlusLoss,
    blackbox,
    negative_identity,
    solvers,
)


def argmin(y):
    return solvers.argmax(-y)


SENSES = [("max", solvers.argmax), ("min", argmin)]
senses = pytest.mark.parametrize(("sense", "solver"), SENSES, ids=["max", "min"])


class Model(optModel):
    """One of our solvers, as PyEPO calls it."""

    def __init__(self, sense="max", size=4):
        self.modelSense = EPO.MAXIMIZE if sense == "max" else EPO.MINIMIZE
        self.sense, self.size = sense, size
        super().__init__()

    def _getModel(self):
        return None, list(range(self.size))

    def setObj(self, c):
        self.costs = torch.as_tensor(c, dtype=torch.float32)

    def solve(self):
        solution = dict(SENSES)[self.sense](self.costs)
        return solution.numpy(), float((solution * self.costs).sum())


def problems():
    g = generator(4)
    y, costs, weights = (torch.randn(6, 4, generator=g) for _ in range(3))
    return y.requires_grad_(), costs, weights


def gradient(value, y):
    return torch.autograd.grad(value, y)[0]


@senses
def test_blackbox(sense, solver):
    y, _, weights = problems()
    solution = blackbox(solver, strength=3.0, sense=sense)(y)
    assert torch.equal(solution, solver(y))
    theirs = pyepo.func.blackboxOpt(Model(sense), lambd=3.0)
    torch.testing.assert_close(gradient((solution * weights).sum(), y), gradient((theirs(y) * weights).sum(), y))
    # By the formula: both signs turn with the sense.
    sign = 1.0 if sense == "min" else -1.0
    expected = sign * (solver(y.detach() + sign * 3.0 * weights) - solver(y.detach())) / 3.0
    torch.testing.assert_close(gradient((blackbox(solver, strength=3.0, sense=sense)(y) * weights).sum(), y), expected)


@senses
def test_the_senses_mirror_each_other(sense, solver):
    y, _, weights = problems()
    other = {"max": "min", "min": "max"}[sense]
    mirrored = lambda x: solver(-x)  # noqa: E731
    for make in (blackbox, negative_identity):
        ours = gradient((make(solver, sense=sense)(y) * weights).sum(), y)
        theirs = gradient((make(mirrored, sense=other)(-y) * weights).sum(), y)
        torch.testing.assert_close(ours, theirs)


@senses
def test_negative_identity(sense, solver):
    y, _, weights = problems()
    solution = negative_identity(solver, sense=sense)(y)
    assert torch.equal(solution, solver(y))
    theirs = pyepo.func.negativeIdentity(Model(sense))
    torch.testing.assert_close(gradient((solution * weights).sum(), y), gradient((theirs(y) * weights).sum(), y))


@senses
def test_spo_plus(sense, solver):
    y, costs, _ = problems()
    best = solver(costs)
    loss = SpoPlusLoss(solver, sense=sense, reduction="none")
    theirs = pyepo.func.SPOPlus(Model(sense), reduction="none")
    value = loss(y, costs)
    expected = theirs(y, costs, best, (best * costs).sum(-1, keepdim=True))
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient(value.sum(), y), gradient(expected.sum(), y))
    torch.testing.assert_close(loss(y, costs, best), value)
    regret = ((best - solver(y)) * costs).sum(-1) * (1 if sense == "max" else -1)
    assert (value >= regret - 1e-5).all()
    torch.testing.assert_close(loss(costs, costs), torch.zeros(6))


@senses
def test_spo_plus_is_the_gradient_of_its_value(sense, solver):
    y, costs, _ = (t.detach().double() for t in problems())
    loss = SpoPlusLoss(solver, sense=sense, reduction="none")
    assert torch.autograd.gradcheck(lambda x: loss(x, costs), (y.requires_grad_(),))


@senses
def test_imle_without_noise_is_blackbox(sense, solver):
    y, _, weights = problems()
    solve = Imle(solver, strength=2.0, sense=sense, distribution="heaviside", num_samples=3)
    ours, theirs = solve(y), blackbox(solver, strength=2.0, sense=sense)(y)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradient((ours * weights).sum(), y), gradient((theirs * weights).sum(), y))


class Fixed:
    """The noise that our samples have, for PyEPO: (B, S, n)."""

    def __init__(self, noise):
        self.noise = noise

    def sample(self, size, device=None, dtype=None):
        return self.noise.transpose(0, 1).to(dtype)


@senses
def test_imle(sense, solver):
    y, _, weights = problems()
    solve = Imle(solver, strength=2.0, sense=sense, num_samples=5, scale=0.7, generator=generator(1))
    noise = Imle(solver, num_samples=5, generator=generator(1)).noise.draw(y.detach())
    theirs = pyepo.func.implicitMLE(Model(sense), n_samples=5, sigma=0.7, lambd=2.0, distribution=Fixed(noise))
    ours, expected = solve(y), theirs(y)
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(gradient((ours * weights).sum(), y), gradient((expected * weights).sum(), y))


@senses
def test_adaptive_imle(sense, solver):
    y, _, weights = problems()
    solve = Imle(solver, strength="adaptive", sense=sense, num_samples=5, generator=generator(1))
    noise = Imle(solver, num_samples=5, generator=generator(1)).noise.draw(y.detach())
    theirs = pyepo.func.adaptiveImplicitMLE(Model(sense), n_samples=5, distribution=Fixed(noise))
    ours, expected = solve(y), theirs(y)
    torch.testing.assert_close(gradient((ours * weights).sum(), y), gradient((expected * weights).sum(), y))
    # It is saved with the module.
    assert abs(float(solve.share) - 1.0) == pytest.approx(1e-3)
    other = Imle(solver, strength="adaptive", sense=sense)
    other.load_state_dict(solve.state_dict())
    assert other.share == solve.share
    before = solve.eval().share.clone()
    gradient((solve(y) * weights).sum(), y)
    assert solve.share == before
    assert gradient((solve(y) * 0.0).sum(), y).abs().sum() == 0


def test_adaptive_strength_finds_the_size_where_one_entry_changes():
    y = torch.randn(50, 8, generator=generator(2)).requires_grad_()
    solve = Imle(solvers.argmax, strength="adaptive", scale=0.1, generator=generator(3))
    solve.share.fill_(1e-3)
    target = torch.eye(8)[torch.randint(8, (50,), generator=generator(5))]
    shares = []
    for _ in range(600):
        gradient((solve(y) - target).square().sum(), y)
        shares.append(float(solve.share))
    assert shares[-1] > 0.05  # it grew, and stopped growing
    assert max(shares[-100:]) - min(shares[-100:]) < 0.05
    assert 0.7 < solve.changed < 1.3


@senses
def test_perturbed_optimizer_against_pyepo(sense, solver):
    """The same formula, on noise of its own: the means agree."""
    many = 3000
    y, costs, weights = (t.detach()[:1].expand(many, -1) for t in problems())
    ours_y, theirs_y = y.clone().requires_grad_(), y.clone().requires_grad_()
    ours = PerturbedOptimizer(solver, sense=sense, scale=0.6, num_samples=4, generator=generator(1))(ours_y)
    theirs = pyepo.func.perturbedOpt(Model(sense), n_samples=4, sigma=0.6)(theirs_y)
    assert_unbiased(ours.detach() - theirs.detach(), torch.zeros(4))
    difference = gradient((ours * weights).sum(), ours_y) - gradient((theirs * weights).sum(), theirs_y)
    assert ((difference.mean(0)).abs() < 5 * difference.std(0) / many**0.5).all()
    target = solver(costs)
    ours = FenchelYoungLoss(solver, sense=sense, scale=0.6, num_samples=4, reduction="none")(ours_y, target)
    theirs = pyepo.func.perturbedFenchelYoung(Model(sense), n_samples=4, sigma=0.6, reduction="none")(theirs_y, target)
    assert_unbiased((ours - theirs).detach(), torch.zeros(()))
    assert_unbiased(gradient(ours.sum(), ours_y) - gradient(theirs.sum(), theirs_y), torch.zeros(4))


SOLVED = [
    pytest.param(lambda: blackbox(solvers.argmax), id="blackbox"),
    pytest.param(lambda: negative_identity(solvers.argmax), id="negative_identity"),
    pytest.param(lambda: Imle(solvers.argmax), id="imle"),
    pytest.param(
        lambda: lambda y: SpoPlusLoss(solvers.argmax, sense="max", reduction="none")(y, torch.ones(2, 3)), id="spo_plus"
    ),
]


@pytest.mark.parametrize("make", SOLVED)
def test_there_is_no_second_derivative(make):
    y = torch.randn(2, 3, generator=generator(), requires_grad=True)
    value = make()(y)
    (first,) = torch.autograd.grad((value * value.detach()).sum() + y.pow(3).sum(), y, create_graph=True)
    with pytest.raises(RuntimeError, match="there is no second derivative"):
        torch.autograd.grad(first.sum(), y)


@pytest.mark.parametrize("make", SOLVED[:3])
def test_transforms_are_refused(make):
    solve, y = make(), torch.randn(2, 3, generator=generator(), requires_grad=True)
    with pytest.raises(RuntimeError, match=r"torch.func and forward mode can't see through a solver"):
        torch.func.grad(lambda x: solve(x).sum())(y)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError, match="forward mode"):
        solve(torch.autograd.forward_ad.make_dual(y, torch.ones(2, 3)))
    with pytest.raises(RuntimeError, match="one gradient at a time"):
        torch.autograd.grad(solve(y), y, torch.ones(4, 2, 3), is_grads_batched=True)


def test_wrong_solutions_are_refused():
    with pytest.raises(ValueError, match=r"halved must return shape \(1, 2, 4\), got \(1, 2, 2\)"):
        blackbox(halved)(torch.zeros(2, 4))
    with pytest.raises(ValueError, match=r"halved must return shape \(2, 4\), got \(2, 2\) on sample 0"):
        PerturbedOptimizer(halved, vectorized=False)(torch.zeros(2, 4))


def halved(y):
    return y[..., ::2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: blackbox(argmin, strength=0.0), "strength must be positive"),
        (lambda: blackbox(argmin, sense="none"), "sense must be"),
        (lambda: negative_identity(argmin, sense="none"), "sense must be"),
        (lambda: Imle(argmin, strength=-1.0), "strength must be positive"),
        (lambda: Imle(argmin, strength="some"), "number or 'adaptive'"),
        (lambda: SpoPlusLoss(argmin, reduction="max"), "reduction must be"),
        (lambda: SpoPlusLoss(argmin)(torch.zeros(2, 3), torch.zeros(3)), "costs must have the shape of y"),
        (lambda: SpoPlusLoss(argmin)(torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(3)), "solution must have"),
        (lambda: SpoPlusLoss(solvers.shortest_path)(torch.ones(1, 2, 2), torch.full((1, 2, 2), 3.0)), "negative"),
    ],
)
def test_arguments_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()
