import functools
import math

import numpy as np
import pytest
import scipy.special
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

import softly
from softly import distributions
from softly.sorting import networks

SYMMETRIC = [name for name in distributions.names() if distributions.get(name).symmetric]
SORTERS = {
    "bitonic": softly.SortingNetwork("bitonic", steepness=4.0),
    "odd_even": softly.SortingNetwork("odd_even", distribution="optimal", steepness=4.0),
    "pairwise": softly.SortingNetwork("pairwise", distribution="logistic", steepness=4.0),
    "odd_even_merge": softly.SortingNetwork("odd_even_merge", distribution="reciprocal", steepness=4.0),
    "art": softly.SortingNetwork("bitonic", distribution=distributions.art("logistic"), steepness=4.0),
    "squared": softly.SortingNetwork("bitonic", distribution=distributions.get("cauchy").squared(), steepness=4.0),
    "NeuralSort": softly.NeuralSort(steepness=2.0),
    "SoftSort": softly.SoftSort(steepness=4.0),
}
NETWORKS = [name for name in SORTERS if isinstance(SORTERS[name], softly.SortingNetwork)]
every = pytest.mark.parametrize("sorter", SORTERS.values(), ids=SORTERS.keys())


def batch(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(5))


@every
def test_methods_agree(sorter):
    x = batch(4, 3, 9)
    P = sorter.permutation(x)
    torch.testing.assert_close(P.sum(-1), torch.ones_like(x))
    torch.testing.assert_close(sorter.sort(x), (P @ x.unsqueeze(-1)).squeeze(-1))
    torch.testing.assert_close(sorter(x), sorter.sort(x))
    torch.testing.assert_close(sorter.rank(x), torch.arange(1, 10, dtype=x.dtype) @ P)
    for k in (1, 4, 9):
        torch.testing.assert_close(sorter.topk(x, k), P.flip(-2)[..., :k, :])
    torch.testing.assert_close(sorter.permutation(x, descending=True), P.flip(-2))
    torch.testing.assert_close(sorter.sort(x, descending=True), sorter.sort(x).flip(-1))
    torch.testing.assert_close(sorter.rank(x, descending=True), 10 - sorter.rank(x))
    torch.testing.assert_close(sorter.permutation(x, dim=1), sorter.permutation(x.movedim(1, -1)))
    torch.testing.assert_close(sorter.topk(x, 2, dim=0), sorter.topk(x.movedim(0, -1), 2))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 33])
def test_networks_are_doubly_stochastic(name, n):
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        P = SORTERS[name].permutation(batch(5, n, dtype=dtype))
        assert (P >= 0).all()
        torch.testing.assert_close(P.sum(-1), torch.ones_like(P.sum(-1)), atol=tolerance, rtol=0)
        torch.testing.assert_close(P.sum(-2), torch.ones_like(P.sum(-1)), atol=tolerance, rtol=0)


@pytest.mark.parametrize("name", ["logistic", "reciprocal", "cauchy", "optimal", "gaussian"])
def test_networks_are_monotonic_where_their_swap_is(name):
    """The chapter's table: raising one input never lowers an output."""
    sorter = softly.SortingNetwork("bitonic", distribution=name, steepness=1.0)
    x = 4.0 * batch(400, 6)
    jacobian = torch.func.vmap(torch.func.jacrev(sorter.sort))(x)
    assert bool((jacobian >= -1e-9).all()) == distributions.get(name).swap_is_monotonic


@pytest.mark.parametrize(
    ("sorter", "monotonic", "bounded"),
    [
        (softly.NeuralSort(steepness=1.0), False, True),
        (softly.SoftSort(steepness=1.0), False, True),
        (softly.SinkhornSort(steepness=1.0), False, True),
        (softly.FastSort(steepness=1.0), True, False),
        (softly.SortingNetwork("odd_even", distribution="logistic", steepness=1.0), False, True),
        (softly.SortingNetwork("odd_even", distribution=distributions.art("logistic"), steepness=1.0), False, True),
        (softly.SortingNetwork("odd_even", distribution="reciprocal", steepness=1.0), True, True),
        (softly.SortingNetwork("odd_even", distribution="cauchy", steepness=1.0), True, True),
        (softly.SortingNetwork("odd_even", distribution="optimal", steepness=1.0), True, True),
    ],
    ids=lambda value: str(value) if isinstance(value, torch.nn.Module) else "",
)
def test_which_minimum_is_monotonic_and_which_has_a_bounded_error(sorter, monotonic, bounded):
    """The chapter's table of operators, on the minimum of x and 0, whose true value is 0 for x > 0."""
    x = torch.linspace(0.01, 1000.0, 20_001, dtype=torch.float64)
    minimum = sorter.sort(torch.stack([x, torch.zeros_like(x)], -1))[:, 0]
    assert bool((minimum.diff() >= -1e-9).all()) == monotonic
    assert bool(minimum.abs().max() < 1.0) == bounded


@pytest.mark.parametrize("name", ["logistic", "reciprocal", "cauchy", "optimal"])
@pytest.mark.parametrize("network", ["bitonic", "odd_even"])
def test_error_is_within_the_bound_times_depth(name, network):
    d = distributions.get(name)
    sorter = softly.SortingNetwork(network, distribution=name, steepness=1 / d.lipschitz)
    x = 3.0 * batch(300, 12)
    error = (sorter.sort(x) - x.sort(-1).values).abs().max()
    assert 0 < error <= d.swap_error_bound * networks.get(network, 12).depth


@given(some.floats(-5, 5), some.floats(-5, 5), some.floats(0.1, 10))
@settings(max_examples=50, deadline=None)
def test_two_values_are_the_logistic_swap(a, b, steepness):
    x = torch.tensor([a, b], dtype=torch.float64)
    keep = torch.sigmoid(torch.tensor(steepness * (b - a), dtype=torch.float64))
    expected = torch.stack([torch.stack([keep, 1 - keep]), torch.stack([1 - keep, keep])])
    for sorter in (
        softly.NeuralSort(steepness=steepness),
        softly.SoftSort(steepness=steepness),
        softly.SortingNetwork("bitonic", distribution="logistic", steepness=steepness),
        softly.SortingNetwork("odd_even", distribution="logistic", steepness=steepness),
    ):
        torch.testing.assert_close(sorter.permutation(x), expected, atol=1e-9, rtol=0)


@pytest.mark.parametrize(("name", "ours"), [("odd_even", "odd_even"), ("bitonic", "bitonic")])
@pytest.mark.parametrize("n", [2, 3, 4, 6, 7, 8, 12, 16])
@pytest.mark.parametrize(
    ("peer", "distribution", "factor"),
    [
        ("logistic", "logistic", 1.0),
        ("cauchy", "cauchy", 1.0),
        ("reciprocal", "reciprocal", 0.5),
        ("optimal", "optimal", 1.0),
    ],
)
def test_diffsort_agrees(name, ours, n, peer, distribution, factor):
    diffsort = pytest.importorskip("diffsort")
    x = batch(5, n, dtype=torch.float32)
    values, matrix = diffsort.DiffSortNet(name, n, steepness=3.0, distribution=peer)(x)
    sorter = softly.SortingNetwork(ours, distribution=distribution, steepness=3.0 * factor)
    torch.testing.assert_close(sorter.sort(x), values, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(sorter.permutation(x), matrix.mT, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("strength", [0.1, 0.4])
def test_diffsort_agrees_on_art(strength):
    diffsort = pytest.importorskip("diffsort")
    x = batch(5, 8, dtype=torch.float32)
    peer = diffsort.DiffSortNet("bitonic", 8, steepness=3.0, distribution="logistic_phi", art_lambda=strength)
    distribution = distributions.art("logistic", strength=strength)
    sorter = softly.SortingNetwork("bitonic", distribution=distribution, steepness=3.0 ** (1 / (1 - strength)))
    torch.testing.assert_close(sorter.permutation(x), peer(x)[1].mT, atol=1e-4, rtol=1e-4)


def test_formulas_in_numpy():
    x, s = batch(11).numpy(), 1.7
    n, ranks = 11, np.arange(1, 12)
    softmax = functools.partial(scipy.special.softmax, axis=-1)
    A = np.abs(x[:, None] - x[None, :]).sum(1)
    neural = softmax(s * ((2 * ranks - n - 1)[:, None] * x[None, :] - A[None, :]))
    np.testing.assert_allclose(softly.NeuralSort(steepness=s).permutation(torch.tensor(x)), neural, atol=1e-12)
    soft = softmax(-s * np.abs(np.sort(x)[:, None] - x[None, :]))
    np.testing.assert_allclose(softly.SoftSort(steepness=s).permutation(torch.tensor(x)), soft, atol=1e-12)


def test_stochastic_neuralsort():
    x = batch(6)
    draw = lambda n: softly.NeuralSort(  # noqa: E731
        steepness=50.0, num_samples=n, scale=0.3, generator=torch.Generator().manual_seed(0)
    ).permutation(x)
    assert torch.equal(draw(3), draw(3))
    P = draw(4000)
    # The first place of Plackett-Luce is a softmax; three standard errors of a proportion.
    expected = torch.softmax(x / 0.3, -1)
    assert ((P[-1] - expected).abs() < 3.5 * torch.sqrt(expected * (1 - expected) / 4000) + 5e-3).all()


@every
def test_lists_of_unequal_length(sorter):
    x = batch(5, 7)
    lengths = torch.tensor([7, 3, 0, 1, 3])
    mask = torch.rand(5, 7, generator=torch.Generator().manual_seed(1)) > 0.4
    garbage = torch.where(torch.arange(7) < lengths[:, None], x, torch.nan)
    P, values, ranks = (getattr(sorter, m)(garbage, lengths=lengths) for m in ("permutation", "sort", "rank"))
    for i, n in enumerate(lengths.tolist()):
        expected = torch.zeros(7, 7, dtype=x.dtype)
        if n:
            expected[:n, :n] = sorter.permutation(x[i, :n])
            torch.testing.assert_close(values[i, :n], sorter.sort(x[i, :n]))
            torch.testing.assert_close(ranks[i, :n], sorter.rank(x[i, :n]))
        torch.testing.assert_close(P[i], expected)
        assert values[i, n:].eq(0).all()
        assert ranks[i, n:].eq(0).all()
    top = sorter.topk(x, 4, mask=mask)
    for i in range(5):
        own = x[i][mask[i]]
        k = min(4, len(own))
        torch.testing.assert_close(top[i][:k][:, mask[i]], sorter.topk(own, k))
        assert top[i][:, ~mask[i]].eq(0).all()
        assert top[i][k:].eq(0).all()
    # Padding to a larger tensor changes nothing, and gets no gradient.
    wider = torch.cat([x, torch.full((5, 4), 3.0, dtype=x.dtype)], -1).requires_grad_()
    again = sorter.permutation(wider, lengths=lengths)
    torch.testing.assert_close(again[:, :7, :7], P)
    (grad,) = torch.autograd.grad(again.square().sum(), wider)
    assert grad[:, 7:].eq(0).all()
    assert grad[0, :7].ne(0).any()
    turned = sorter.sort(x.T, dim=0, mask=mask.T)
    torch.testing.assert_close(turned.T, sorter.sort(x, mask=mask))


@every
def test_infinities_sort_to_the_ends(sorter):
    inf = math.inf
    x = torch.tensor(
        [[1.0, inf, -3.0, -inf, 2.0, inf], [1.0, 0.5, -3.0, 0.0, 2.0, inf], [inf] * 6], dtype=torch.float64
    )
    P, finite = sorter.permutation(x), x[0].isfinite()
    torch.testing.assert_close(P[0, 1:4][:, finite], sorter.permutation(x[0][finite]))
    assert P[0, 0].tolist() == [0, 0, 0, 1, 0, 0]
    assert P[0, 4].tolist() == P[0, 5].tolist() == [0, 0.5, 0, 0, 0, 0.5]
    torch.testing.assert_close(P[2], torch.full_like(P[2], 1 / 6))
    values = sorter.sort(x)
    torch.testing.assert_close(values[0, 1:4], sorter.sort(x[0][finite]))
    assert values[0, 0] == -inf
    assert values[0, 4:].eq(inf).all()
    assert values[2].eq(inf).all()
    torch.testing.assert_close(sorter.sort(x, descending=True), values.flip(-1))
    ranks = sorter.rank(x)
    torch.testing.assert_close(ranks[0][finite], sorter.rank(x[0][finite]) + 1)
    assert ranks[0][~finite].tolist() == [5.5, 1, 5.5]
    torch.testing.assert_close(sorter.rank(x, descending=True), 7 - ranks)
    for k in (1, 3, 6):
        torch.testing.assert_close(sorter.topk(x, k), P.flip(-2)[..., :k, :])
    mask = torch.ones_like(x, dtype=torch.bool)
    mask[0, 1] = mask[1, 0] = False
    P = sorter.permutation(x, mask=mask)
    assert P[0, 4].tolist() == [0, 0, 0, 0, 0, 1]
    assert P[0, 5].eq(0).all()


@every
def test_one_value_has_its_gradient(sorter):
    for result in (sorter.sort, sorter.rank, sorter.permutation, functools.partial(sorter.topk, k=1)):
        x = batch(3, 1).requires_grad_()
        (grad,) = torch.autograd.grad(result(x).sum(), x)
        assert torch.equal(grad, torch.full_like(x, 1.0 if result == sorter.sort else 0.0))


@pytest.mark.parametrize("name", SYMMETRIC)
def test_every_symmetric_distribution(name):
    sorter = softly.SortingNetwork("bitonic", distribution=name, steepness=100.0)
    x = torch.tensor([3.0, -1.0, 0.5, 2.0], dtype=torch.float64)
    torch.testing.assert_close(sorter.sort(x), x.sort().values, atol=0.05, rtol=0)
    assert sorter.sort(torch.zeros(4)).eq(0).all()


def test_a_network_of_ones_own():
    network = networks.Network(3, (((0, 2),), ((0, 1),), ((1, 2),)))
    sorter = softly.SortingNetwork(network, steepness=1e6)
    x = batch(10, 3)
    torch.testing.assert_close(sorter.sort(x), x.sort(-1).values, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="the network has 3 wires, got 4 values"):
        sorter.sort(torch.zeros(4))


@pytest.mark.parametrize("network", ["bitonic", "odd_even"])
@pytest.mark.parametrize("name", ["cauchy", "logistic", "optimal"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_automatic_steepness(network, name, scale):
    """The error stays below a tenth of the spread, whatever n and the spread are, and gradients don't vanish."""
    for n in (2, 8, 32):
        x = (scale * batch(20, n)).requires_grad_()
        sorter = softly.SortingNetwork(network, distribution=name, steepness="auto")
        values = sorter.sort(x)
        spread = x.detach().std(-1, correction=0)
        assert ((values - x.sort(-1).values).abs().amax(-1) <= 0.1 * spread + 1e-12).all()
        wider = softly.SortingNetwork(network, distribution=name, steepness="auto").permutation(7.0 * x)
        torch.testing.assert_close(wider, sorter.permutation(x))
        (grad,) = torch.autograd.grad(sorter.permutation(x).diagonal(dim1=-2, dim2=-1).sum(), x)
        assert (grad.abs().amax(-1) * spread > 1e-6).all()
    assert softly.SoftSort(steepness="auto").sort(torch.ones(3)).eq(1).all()


def test_steepness_can_be_learned():
    x = batch(3, 6)
    for make in (softly.SortingNetwork, softly.NeuralSort, softly.SoftSort):
        s = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda t, m=make: m(steepness=t).permutation(x), s)
        assert torch.autograd.gradcheck(lambda t, m=make: m(steepness=t).sort(x), s)
    parameter = torch.nn.Parameter(torch.tensor(2.0))
    assert list(softly.SortingNetwork(steepness=parameter).parameters()) == [parameter]


def test_functions():
    x = batch(2, 5)
    s = softly.SortingNetwork("bitonic")
    torch.testing.assert_close(softly.sort(x), s.sort(x))
    torch.testing.assert_close(softly.rank(x, sorter=s), s.rank(x))
    torch.testing.assert_close(
        softly.topk(x, 2, sorter="softsort", steepness=3.0), softly.SoftSort(steepness=3.0).topk(x, 2)
    )
    torch.testing.assert_close(
        softly.permutation(x, sorter="odd_even", distribution="logistic", steepness=3.0, descending=True),
        softly.SortingNetwork("odd_even", distribution="logistic", steepness=3.0).permutation(x, descending=True),
    )


def test_hessian_of_a_ranking_loss():
    """Through the operator, under torch.func and by autograd, the second derivative is that of the reference."""
    x = batch(7)
    ranks = torch.tensor([2, 1, 3, 7, 5, 4, 6])
    sorter = softly.SortingNetwork("bitonic", steepness=2.0)
    loss = lambda t: softly.sorting.ranking_loss(sorter.permutation(t), ranks)  # noqa: E731
    transformed = torch.func.hessian(loss)(x)
    recorded = torch.autograd.functional.hessian(loss, x)
    torch.testing.assert_close(recorded, transformed, atol=1e-8, rtol=0)
    assert recorded.abs().max() > 1e-3


@every
def test_bad_input(sorter):
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"softly.sort: x must have at least one entry along dim, got shape \(2, 0\)"):
        sorter.sort(torch.zeros(2, 0))
    with pytest.raises(ValueError, match=r"softly.rank: dim must be in \[-2, 1\], got 2"):
        sorter.rank(x, dim=2)
    with pytest.raises(TypeError, match=r"softly.permutation: x must be a floating-point tensor, got torch.int64"):
        sorter.permutation(torch.arange(3))
    with pytest.raises(ValueError, match=r"softly.topk: k must be in \[1, 3\], got 4"):
        sorter.topk(x, 4)
    with pytest.raises(TypeError, match="k must be an integer, got float"):
        sorter.topk(x, 2.0)
    with pytest.raises(ValueError, match="lengths or mask, not both"):
        sorter.sort(x, lengths=torch.tensor([1, 2]), mask=x.bool())
    with pytest.raises(ValueError, match=r"lengths must be in \[0, 3\], got 1 to 4"):
        sorter.sort(x, lengths=torch.tensor([1, 4]))
    with pytest.raises(ValueError, match=r"lengths must be integers of shape \(2,\)"):
        sorter.sort(x, lengths=torch.tensor([1.0, 2.0]))
    with pytest.raises(ValueError, match=r"mask must be boolean of shape \(2, 3\)"):
        sorter.sort(x, mask=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="dim must be the dimension of a vector"):
        sorter.sort(torch.tensor(1.0))
    assert sorter.sort(torch.tensor([1.0, math.nan, 2.0])).isnan().any()


def test_bad_hyperparameters():
    for make in (softly.SortingNetwork, softly.NeuralSort, softly.SoftSort):
        with pytest.raises(ValueError, match=f"softly.{make.__name__}: steepness must be positive and finite, got -1"):
            make(steepness=-1)
        with pytest.raises(ValueError, match="a positive number or 'auto', got 'steep'"):
            make(steepness="steep")
    with pytest.raises(ValueError, match="unknown network 'bubble'; choose from odd_even, bitonic"):
        softly.SortingNetwork("bubble")
    with pytest.raises(ValueError, match="must be symmetric"):
        softly.SortingNetwork(distribution="gamma")
    with pytest.raises(ValueError, match="num_samples must be >= 1 or None, got 0"):
        softly.NeuralSort(num_samples=0)
    with pytest.raises(ValueError, match="unknown sorter 'quick'; choose from odd_even, bitonic"):
        softly.sort(torch.zeros(2), sorter="quick")
    with pytest.raises(ValueError, match="has its steepness and distribution already"):
        softly.sort(torch.zeros(2), sorter=softly.SoftSort(), steepness=2.0)
    with pytest.raises(ValueError, match="only sorting networks have a distribution"):
        softly.sort(torch.zeros(2), sorter="softsort", distribution="cauchy")


def test_a_sorted_dimension_of_one_is_pointed_out():
    scores = batch(4, 7, 1)
    for call in (softly.sort, softly.rank, softly.permutation, softly.SoftSort().sort, softly.median):
        with pytest.warns(UserWarning, match=r"shape \(4, 7, 1\).*squeeze\(-1\), or dim=-2.*dim=2 says so") as caught:
            call(scores)
        assert caught[0].filename == __file__
    # What is meant is not.
    softly.sort(scores, dim=2)
    softly.sort(scores, dim=-2)
    softly.sort(batch(4, 1))
    softly.sort(batch(4, 1, 1))
    torch.testing.assert_close(softly.sort(scores, dim=-2), softly.sort(scores.squeeze(-1)).unsqueeze(-1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steepness": True}, "steepness must be a number or a tensor, got bool"),
        ({"steepness": [1.0]}, "steepness must be a number or a tensor, got list"),
        ({"sorter": ["bitonic"]}, r"softly\.sort: sorter must be a name or a Sorter, got list"),
        ({"distribution": ["cauchy"]}, "distribution must be a name or a Distribution"),
    ],
)
def test_functions_refuse_what_classes_refuse(options, message):
    """Also where a sorter with an equal choice is kept already."""
    x = torch.tensor([3.0, 1.0, 2.0])
    softly.sort(x, steepness=1.0)
    with pytest.raises(TypeError, match=message):
        softly.sort(x, **options)
