"""RESGRO, against its combinatorial formula."""

import itertools
import math

import pytest
import torch
from monte_carlo import assert_unbiased, generator

import softly
from softly.estimators import smooth


def gradient_of(loss, y, *args, **options):
    leaf = y.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(leaf, *args, **options), leaf)[0]


def rugged(y):
    return y.round().abs().sum(-1) + 0.1 * y.sum(-1)


def by_subsets(points, values, size):
    """The mean over all subsets of the best of each, by enumeration."""
    ends = []
    for subset in itertools.combinations(range(len(points)), size):
        chosen = values[list(subset)]
        best = [s for s, v in zip(subset, chosen, strict=True) if v == chosen.min()]
        ends.append(points[best].mean(0))
    return torch.stack(ends).mean(0)


@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize("ties", [False, True])
def test_the_mean_over_all_subsets(size, ties):
    y = torch.randn(5, 3, dtype=torch.float64, generator=generator())
    loss = (lambda x: x.sum(-1).round()) if ties else rugged
    shared = smooth(loss, num_samples=6, scale=0.8, generator=generator(1))
    samples = shared.samples(y)
    resgro = softly.Resgro(loss, num_samples=6, subset_size=size)
    step = gradient_of(resgro, y, samples=samples)
    for b in range(5):
        expected = by_subsets(samples.points[:, b], samples.values[:, b], size)
        if (samples.values[:, b] == samples.values[0, b]).all():
            expected = y[b]
        torch.testing.assert_close(y[b] - step[b], expected)


@pytest.mark.parametrize("size", [2, 3, 10])
def test_the_weights_of_ranks(size):
    """C(M - r, K - 1) / C(M, K)."""
    y = torch.zeros(1, 10, dtype=torch.float64)
    points = torch.eye(10, dtype=torch.float64).unsqueeze(1)
    values = torch.arange(10.0, dtype=torch.float64).flip(0).unsqueeze(1)
    source = smooth(rugged, num_samples=10)
    samples = softly.estimators.Samples(source.noise, y, points, points, values)
    resgro = softly.Resgro(rugged, num_samples=10, subset_size=size)
    weights = -gradient_of(resgro, y, samples=samples)[0]
    expected = [math.comb(10 - r, size - 1) / math.comb(10, size) for r in range(10, 0, -1)]
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64))
    assert abs(float(weights.sum()) - 1) < 1e-12


def test_vanilla_is_the_best_sample():
    y = torch.randn(4, 3, generator=generator())
    shared = smooth(rugged, num_samples=7, scale=0.8, generator=generator(1))
    samples = shared.samples(y)
    best = samples.points[samples.values.argmin(0), torch.arange(4)]
    for num_sets in (None, 1, 5):
        resgro = softly.Resgro(rugged, num_samples=7, num_sets=num_sets)
        torch.testing.assert_close(y - gradient_of(resgro, y, samples=samples), best)


@pytest.mark.parametrize("loss", [rugged, lambda x: x.sum(-1).round()])
def test_random_subsets_have_the_mean_of_all(loss):
    one = torch.randn(1, 2, dtype=torch.float64, generator=generator())
    many = 20_000
    shared = smooth(loss, num_samples=6, scale=0.8, generator=generator(1))
    samples = shared.samples(one)
    expected = gradient_of(softly.Resgro(loss, num_samples=6, subset_size=3), one, samples=samples)[0]
    repeated = softly.estimators.Samples(
        samples.source,
        one.expand(many, -1),
        samples.noise.expand(-1, many, -1),
        samples.points.expand(-1, many, -1),
        samples.values.expand(-1, many),
    )
    resgro = softly.Resgro(loss, num_samples=6, subset_size=3, num_sets=2, generator=generator(2))
    assert_unbiased(gradient_of(resgro, one.expand(many, -1), samples=repeated), expected)


def test_a_solved_example_gets_no_step():
    y = torch.tensor([[0.0, 0.0], [5.0, 0.0]])
    solved = lambda x: (x.abs() > 2).float().sum(-1) * (x.abs().sum(-1))  # noqa: E731
    for num_sets in (None, 3):
        resgro = softly.Resgro(solved, num_samples=8, subset_size=3, num_sets=num_sets, scale=0.1)
        step = gradient_of(resgro, y)
        assert step[0].abs().sum() == 0
        assert step[1].abs().sum() > 0


def test_exactly_as_many_evaluations():
    calls = []

    def counted(x):
        calls.append(tuple(x.shape))
        return rugged(x)

    y = torch.zeros(3, 2)
    softly.Resgro(counted, num_samples=9, subset_size=4, num_sets=20)(y)
    assert calls == [(9, 3, 2)]
    calls.clear()
    softly.Resgro(counted, num_samples=9, subset_size=4, vectorized=False)(y)
    assert calls == [(3, 2)] * 9


def test_samples_are_shared_with_smooth():
    calls = []

    def counted(x, target):
        calls.append(1)
        return (x.round() - target).abs().sum(-1)

    y = torch.zeros(3, 2, requires_grad=True)
    target = torch.ones(3, 2)
    smoothed = smooth(counted, num_samples=10, scale=0.5)
    samples = smoothed.samples(y, target)
    resgro = softly.Resgro(smoothed, num_samples=10, subset_size=5)
    (smoothed(y, target, samples=samples).sum() + resgro(y, target, samples=samples)).backward()
    assert len(calls) == 1
    assert y.grad.abs().sum() > 0
    with pytest.raises(ValueError, match="samples must be of the same y"):
        resgro(y + 1, target, samples=samples)
    with pytest.raises(ValueError, match="must be 9 samples"):
        softly.Resgro(smoothed, num_samples=9)(y, target, samples=samples)


def test_infinite_losses_are_never_the_best():
    half = lambda x: torch.where(x.squeeze(-1) > 0, x.squeeze(-1), torch.inf)  # noqa: E731
    y = torch.zeros(50, 1)
    end = softly.Resgro(half, num_samples=20, generator=generator()).target(y)
    assert (end > 0).all()
    nothing = softly.Resgro(lambda x: torch.full(x.shape[:2], torch.inf), num_samples=4).target(y)
    assert torch.equal(nothing, y)
    with pytest.raises(ValueError, match="returned nan for sample 0 of example 0"):
        softly.Resgro(lambda x: x.squeeze(-1) * torch.nan)(y)


@pytest.mark.parametrize("distribution", softly.distributions.names())
def test_any_noise(distribution):
    y = torch.zeros(2, 3)
    end = softly.Resgro(rugged, distribution=distribution, generator=generator()).target(y)
    assert end.isfinite().all()


def test_it_minimises():
    y = torch.full((4, 2), 3.0)
    resgro = softly.Resgro(rugged, num_samples=20, subset_size=5, scale=0.5, generator=generator())
    for _ in range(100):
        y = y - 0.5 * gradient_of(resgro, y)
    assert (y.round() <= 0).all()


def test_reductions():
    y = torch.randn(4, 2, generator=generator())
    total, mean = (
        gradient_of(softly.Resgro(rugged, reduction=reduction, generator=generator(1)), y)
        for reduction in ("sum", "mean")
    )
    torch.testing.assert_close(total, 4 * mean)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_samples": 0}, "at least 1"),
        ({"num_samples": 1}, "at least 2, got 1: one alone"),
        ({"num_samples": 4, "subset_size": 5}, r"subset_size must be in \[2, 4\], got 5"),
        ({"subset_size": 1}, "subset_size must be"),
        ({"num_sets": 0}, "num_sets must be at least 1"),
        ({"scale": -1.0}, "scale must be positive"),
        ({"reduction": "none"}, "reduction must be"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        softly.Resgro(rugged, **options)


def test_a_vector_is_no_loss():
    with pytest.raises(ValueError, match="must return a number for each example"):
        softly.Resgro(torch.abs)(torch.zeros(2, 3))


def test_parameters_inside_the_loss_are_refused():
    layer = torch.nn.Linear(2, 1)
    loss = lambda y: layer(y).squeeze(-1)  # noqa: E731
    resgro = softly.Resgro(loss, num_samples=6)
    y = torch.zeros(3, 2, requires_grad=True)
    with pytest.raises(ValueError, match=r"softly\.Resgro: only y gets a gradient.*captured: detach"):
        resgro(y)
    with torch.no_grad():
        resgro(y)
    assert softly.Resgro(lambda y: loss(y).detach(), num_samples=6)(y).requires_grad
    # By a split they get theirs.
    whole = softly.optimization.split(lambda z: loss(z).sum(), step=resgro.target)(y)
    torch.testing.assert_close(torch.autograd.grad(whole, layer.bias)[0], torch.tensor([3.0]))
