"""Logarithms of relaxed permutations: right where the probabilities themselves underflow."""

import math

import mpmath
import pytest
import torch

import softly
from softly.sorting import network_reference as reference
from softly.sorting import ranking_loss

mpmath.mp.dps = 50

SORTERS = {
    "odd_even, logistic": lambda s: softly.SortingNetwork("odd_even", distribution="logistic", steepness=s),
    "odd_even, gaussian": lambda s: softly.SortingNetwork("odd_even", distribution="gaussian", steepness=s),
    "odd_even, laplace": lambda s: softly.SortingNetwork("odd_even", distribution="laplace", steepness=s),
    "odd_even, secant": lambda s: softly.SortingNetwork("odd_even", distribution="hyperbolic_secant", steepness=s),
    "odd_even, cauchy": lambda s: softly.SortingNetwork("odd_even", distribution="cauchy", steepness=s),
    "bitonic, art": lambda s: softly.SortingNetwork(
        distribution=softly.distributions.art("logistic", strength=0.3), steepness=s
    ),
    "NeuralSort": lambda s: softly.NeuralSort(steepness=s),
    "SoftSort": lambda s: softly.SoftSort(steepness=s),
    "SinkhornSort": lambda s: softly.SinkhornSort(steepness=s),
}
sorters = pytest.mark.parametrize("make", SORTERS.values(), ids=SORTERS.keys())


@sorters
def test_they_are_those_of_the_matrix(make):
    sorter, x = make(1.5), torch.randn(3, 4, 6, dtype=torch.float64)
    torch.testing.assert_close(sorter.log_permutation(x), sorter.permutation(x).log())
    torch.testing.assert_close(sorter.log_topk(x, 2), sorter.topk(x, 2).log())
    for options in ({"dim": 1}, {"descending": True}, {"dim": 0, "descending": True}):
        torch.testing.assert_close(sorter.log_permutation(x, **options), sorter.permutation(x, **options).log())
    torch.testing.assert_close(sorter.log_topk(x, 2, dim=1), sorter.topk(x, 2, dim=1).log())
    half = sorter.log_permutation(x.bfloat16())
    assert half.dtype == torch.bfloat16
    assert sorter.log_permutation(x[:0]).shape == (0, 4, 6, 6)
    assert sorter.log_permutation(torch.zeros(1)).tolist() == [[0.0]]


@sorters
def test_lists_of_unequal_length_and_infinities(make):
    sorter, x = make(1.5), torch.randn(4, 6, dtype=torch.float64)
    x[0, 2], x[1, 1], x[1, 4] = math.inf, -math.inf, -math.inf
    for options in ({}, {"lengths": torch.tensor([6, 5, 2, 0])}, {"mask": torch.rand(4, 6) > 0.3}):
        for descending in (False, True):
            P = sorter.permutation(x, descending=descending, **options)
            torch.testing.assert_close(sorter.log_permutation(x, descending=descending, **options), P.log())
        torch.testing.assert_close(sorter.log_topk(x, 2, **options), sorter.topk(x, 2, **options).log())
    y = x.clone().requires_grad_()
    log_P = sorter.log_permutation(y, lengths=torch.tensor([6, 5, 2, 0]))
    (grad,) = torch.autograd.grad(log_P[log_P > -math.inf].sum(), y)
    assert grad.isfinite().all()


@sorters
def test_derivatives(make):
    x = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    for method in (make(1.3).log_permutation, lambda y: make(1.3).log_topk(y, 2)):
        assert torch.autograd.gradcheck(method, x)
        assert torch.autograd.gradgradcheck(method, x)


@sorters
def test_transforms(make):
    x = torch.randn(3, 4, dtype=torch.float64)
    sorter = make(2.0)
    for method in (sorter.log_permutation, lambda y: sorter.log_topk(y, 2)):
        torch.testing.assert_close(torch.func.vmap(method)(x), method(x))
        torch.testing.assert_close(torch.func.jacfwd(method)(x[0]), torch.func.jacrev(method)(x[0]))
    torch._dynamo.reset()
    compiled = torch.compile(sorter.log_permutation, fullgraph=True, backend="aot_eager")
    y = x.clone().requires_grad_()
    result = compiled(y)
    torch.testing.assert_close(result, sorter.log_permutation(x))
    (grad,) = torch.autograd.grad(result[..., 0, 1].sum(), y)
    torch.testing.assert_close(grad, torch.func.grad(lambda z: sorter.log_permutation(z)[..., 0, 1].sum())(x))


def cdf(name: str, z: mpmath.mpf) -> mpmath.mpf:
    return {"logistic": lambda: 1 / (1 + mpmath.exp(-z)), "gaussian": lambda: mpmath.ncdf(z)}[name]()


def exact(x: list[float], name: str, steepness: float) -> list[list[mpmath.mpf]]:
    """The matrix of an odd-even network, with fifty digits."""
    n = len(x)
    y, P = [mpmath.mpf(v) for v in x], [[mpmath.mpf(i == j) for j in range(n)] for i in range(n)]
    for layer in softly.sorting.networks.get("odd_even", n).layers:
        for i, j in layer:
            keep, cross = (cdf(name, sign * steepness * (y[j] - y[i])) for sign in (1, -1))
            y[i], y[j] = keep * y[i] + cross * y[j], keep * y[j] + cross * y[i]
            P[i], P[j] = (
                [keep * a + cross * b for a, b in zip(P[i], P[j], strict=True)],
                [keep * b + cross * a for a, b in zip(P[i], P[j], strict=True)],
            )
    return P


@pytest.mark.parametrize("name", ["logistic", "gaussian"])
@pytest.mark.parametrize("steepness", [10.0, 30.0])
def test_fifty_digits_agree(name, steepness):
    lowest = 0.0
    for _ in range(5):
        x = 4.0 * torch.randn(5)
        expected = [[float(mpmath.log(p)) for p in row] for row in exact(x.tolist(), name, steepness)]
        expected = torch.tensor(expected, dtype=torch.float64)
        sorter = softly.SortingNetwork("odd_even", distribution=name, steepness=steepness)
        torch.testing.assert_close(sorter.log_permutation(x.double()), expected, rtol=1e-10, atol=1e-13)
        torch.testing.assert_close(sorter.log_permutation(x).double(), expected, rtol=1e-6, atol=1e-7)
        lowest = min(lowest, expected.min().item())
    assert lowest < -87  # which float32 has no probability for


@pytest.mark.parametrize("name", ["logistic", "gaussian"])
def test_small_probabilities_of_the_reference_keep_their_digits(name):
    x = torch.randn(5)
    d, steepness = softly.distributions.get(name), 6.0
    P = reference.matrix(x, reference.wiring("odd_even 5", x), d, steepness)
    expected = torch.tensor([[float(p) for p in row] for row in exact(x.tolist(), name, steepness)])
    normal = expected > 1e-36
    assert expected.min() < 1e-9
    torch.testing.assert_close(P[normal], expected[normal], rtol=2e-4, atol=0)


@sorters
@pytest.mark.parametrize("steepness", [10.0, 30.0])
def test_single_precision_is_as_good_as_double(make, steepness):
    """Value, gradient and Hessian of the loss, relative to the largest entry."""
    for _ in range(20):
        x, ranks = torch.randn(5), torch.randperm(5) + 1
        loss = lambda y: ranking_loss(make(steepness).log_permutation(y), ranks, log=True)  # noqa: B023, E731
        for derivative in (lambda y: loss(y), torch.func.grad(loss), torch.func.hessian(loss)):  # noqa: B023
            single, double = derivative(x), derivative(x.double())
            assert double.isfinite().all()
            assert (single - double).abs().max() <= 1e-4 * double.abs().max()


@sorters
@pytest.mark.parametrize("steepness", [10.0, 30.0])
def test_losses_of_probabilities_stay_bounded(make, steepness):
    for _ in range(100):
        x, ranks = torch.randn(5), torch.randperm(5) + 1
        loss = lambda y: ranking_loss(make(steepness).permutation(y), ranks)  # noqa: B023, E731
        y = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(loss(y), y, create_graph=True)
        assert grad.abs().max() < 100 * steepness
        for entry in grad:
            assert torch.autograd.grad(entry, y, retain_graph=True)[0].isfinite().all()


@sorters
def test_gradients_of_losses_of_probabilities_are_right(make):
    """As those of logarithms, as long as no probability is below the border that the gradient is clamped at."""
    smallest = 1.0
    for _ in range(50):
        x, ranks = torch.randn(7), torch.randperm(7) + 1
        y = x.double().requires_grad_()
        log_P = make(4.0).log_permutation(y)
        if log_P.min() < -43:
            continue
        smallest = min(smallest, log_P.min().exp().item())
        (expected,) = torch.autograd.grad(ranking_loss(log_P, ranks, log=True), y)
        y = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(ranking_loss(make(4.0).permutation(y), ranks), y)
        assert (grad - expected).abs().max() <= 1e-4 * expected.abs().max()
    assert smallest < 1e-3


@pytest.mark.parametrize("name", ["uniform", "cubic_hermite", "wigner", "heaviside"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bounded_distributions_have_a_floor(name, dtype):
    x = torch.tensor([0.0, 5.0, 10.0], dtype=dtype, requires_grad=True)
    sorter = softly.SortingNetwork("odd_even", distribution=name, steepness=1.0)
    log_P = sorter.log_permutation(x)
    assert log_P.tolist() == [[0.0 if i == j else -math.inf for j in range(3)] for i in range(3)]
    wrong = torch.tensor([2, 3, 1])
    floor = -math.log(torch.finfo(dtype).tiny)
    for P, log in ((log_P, True), (sorter.permutation(x), False)):
        loss = ranking_loss(P, wrong, log=log)
        assert loss.item() == pytest.approx(floor)
        if loss.requires_grad:
            assert torch.autograd.grad(loss, x)[0].isfinite().all()
    near = torch.tensor([0.2, 0.0, 0.1], dtype=dtype, requires_grad=True)
    if name != "heaviside":
        loss = ranking_loss(sorter.log_permutation(near), wrong, log=True)
        assert torch.autograd.grad(loss, near)[0].ne(0).any()


@pytest.mark.parametrize("sorter", ["neuralsort", "softsort", "sinkhornsort", "logistic"])
@pytest.mark.parametrize("top1", ["sort", "softmax", "separate"])
def test_the_top_k_loss_takes_no_logarithm_of_what_underflowed(sorter, top1):
    scores = torch.tensor([[9.0, 6.0, 3.0, 0.0]])
    chosen = softly.TopKNetwork(distribution="logistic", steepness=30.0)
    chosen = {
        "neuralsort": softly.NeuralSort(steepness=30.0),
        "softsort": softly.SoftSort(steepness=30.0),
        "sinkhornsort": softly.SinkhornSort(steepness=30.0),
        "logistic": chosen,
    }[sorter]
    loss = softly.TopKCrossEntropy([0.0, 1.0], sorter=chosen, top1=top1)
    function = lambda s: loss(s, torch.tensor([3]))  # noqa: E731
    results = []
    for dtype in (torch.float32, torch.float64):
        s = scores.to(dtype)
        results.append([function(s), torch.func.grad(function)(s), torch.func.hessian(function)(s)])
    for single, double in zip(*results, strict=True):
        assert double.isfinite().all()
        assert (single - double).abs().max() <= 1e-4 * double.abs().max().clamp(min=1.0)
    assert results[0][0] > 88  # the logarithm of float32's smallest probability
    assert results[0][1].abs().max() > 1  # and it pulls


def test_samples_of_a_stochastic_sorter():
    x, ranks = torch.randn(2, 4, dtype=torch.float64), torch.tensor([[1, 3, 2, 4], [4, 1, 2, 3]])
    make = lambda: softly.NeuralSort(  # noqa: E731
        steepness=2.0, num_samples=7, scale=0.5, generator=torch.Generator().manual_seed(3)
    )
    samples = make().samples(x)
    assert samples.shape == (7, 2, 4, 4)
    torch.testing.assert_close(samples.mean(0), make().permutation(x))
    torch.testing.assert_close(make().samples(x, log=True).exp(), samples)
    torch.testing.assert_close(make().samples(x.T, dim=0), samples)
    torch.testing.assert_close(make().samples(x, descending=True), samples.flip(-2))
    assert len({tuple(P.flatten().tolist()) for P in samples}) == 7
    each = ranking_loss(make().samples(x, log=True), ranks.expand(7, 2, 4), log=True)
    torch.testing.assert_close(each, sum(ranking_loss(P, ranks) for P in samples) / 7)
    assert each > ranking_loss(samples.mean(0), ranks)  # the logarithm is concave
    lengths = torch.tensor([4, 2])
    assert make().samples(x, lengths=lengths)[:, 1, :, 2:].eq(0).all()
    auto = lambda: softly.NeuralSort(  # noqa: E731
        steepness="auto", num_samples=3, generator=torch.Generator().manual_seed(3)
    )
    torch.testing.assert_close(auto().samples(x).mean(0), auto().permutation(x))
    with pytest.raises(ValueError, match="num_samples is None, and the operator draws nothing"):
        softly.NeuralSort().samples(x)


def test_sorters_without_probabilities_say_so():
    x = torch.randn(3)
    with pytest.raises(TypeError, match="FastSort: it sorts and ranks without a permutation matrix"):
        softly.FastSort().log_permutation(x)
    with pytest.raises(TypeError, match="TopKNetwork: it selects without sorting"):
        softly.TopKNetwork().log_permutation(x)


FACTS = {
    "cauchy": (softly.SortingNetwork("bitonic", steepness=2.0), True, True),
    "reciprocal": (softly.SortingNetwork("odd_even", distribution="reciprocal", steepness=2.0), True, True),
    "optimal": (softly.SortingNetwork("bitonic", distribution="optimal", steepness=2.0), True, True),
    "logistic": (softly.SortingNetwork("bitonic", distribution="logistic", steepness=2.0), False, True),
    "uniform": (softly.SortingNetwork("bitonic", distribution="uniform", steepness=2.0), False, True),
    "NeuralSort": (softly.NeuralSort(steepness=2.0), False, False),
    "SoftSort": (softly.SoftSort(steepness=2.0), False, False),
    "SinkhornSort": (softly.SinkhornSort(steepness=2.0), False, False),
    "FastSort, l2": (softly.FastSort(steepness=0.7), True, False),
    "FastSort, kl": (softly.FastSort(regularization="kl", steepness=0.7), True, False),
}


@pytest.mark.parametrize(("sorter", "monotonic", "bounded"), FACTS.values(), ids=FACTS.keys())
def test_facts_of_sorters(sorter, monotonic, bounded):
    """Measured over random lists: whether a value ever falls as an input rises, and how far values are off."""
    slopes, errors = [], []
    for _ in range(100):
        x = 2.0 * torch.randn(int(torch.randint(2, 6, ())), dtype=torch.float64)
        slopes.append(torch.autograd.functional.jacobian(sorter.sort, x).min())
        error = (sorter.sort(x) - x.sort().values).abs().max()
        bound = sorter.error_bound(len(x))
        assert (bound is not None) == bounded
        assert bound is None or error <= bound + 1e-12
        errors.append(error)
    assert sorter.monotonic == monotonic == (min(slopes) > -1e-9)


def test_error_bounds():
    assert softly.SortingNetwork(steepness="auto").error_bound(8) is None
    steepness = torch.nn.Parameter(torch.tensor(4.0))
    learned = softly.SortingNetwork(distribution="optimal", steepness=steepness).error_bound(8)
    assert learned == pytest.approx(6 / 16 / 4)
    top = softly.TopKNetwork(distribution="optimal", steepness=2.0)
    assert top.monotonic
    assert top.error_bound(1024, k=5) == pytest.approx(22 / 16 / 2)
