"""FastSort against isotonic regression, against optimisation by brute force, and against its invariants."""

import numpy as np
import pytest
import scipy.optimize
import torch

import softly
from softly import native

BOTH = pytest.mark.parametrize("regularization", ["l2", "kl"])


def isotonic_l2(z, w):
    return z - scipy.optimize.isotonic_regression(z - w).x


def isotonic_kl(z, w):
    """The isotonic problem of KL, min Σ exp(z - v) + v exp(w) over ascending v, by a general-purpose solver."""

    def loss(steps):
        v = np.cumsum(steps)
        gradient = np.exp(w) - np.exp(z - v)
        return np.exp(z - v).sum() + (v * np.exp(w)).sum(), gradient[::-1].cumsum()[::-1]

    start = np.diff(np.maximum.accumulate(z - w), prepend=0.0)
    bounds = [(None, None), *[(0.0, None)] * (len(z) - 1)]
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000, "maxfun": 100_000}
    return z - np.cumsum(scipy.optimize.minimize(loss, start, jac=True, bounds=bounds, options=options).x)


def inputs(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("steepness", [0.05, 0.7, 3.0])
@pytest.mark.parametrize("n", [2, 6, 200])
def test_l2_is_isotonic_regression(n, steepness):
    x = inputs(n, seed=n)
    ranks = np.arange(1.0, n + 1)
    order = x.argsort()
    sorter = softly.FastSort(steepness=steepness)
    expected = isotonic_l2(steepness * ranks, x[order].numpy())
    np.testing.assert_allclose(sorter.sort(x), expected, atol=1e-10)
    expected = isotonic_l2(steepness * x[order].numpy(), ranks)
    np.testing.assert_allclose(sorter.rank(x)[order], expected, atol=1e-10)


@pytest.mark.parametrize("steepness", [0.1, 0.7, 2.0])
def test_kl_solves_its_isotonic_problem(steepness):
    x = inputs(6, seed=4)
    ranks = np.arange(1.0, 7.0)
    order = x.argsort()
    sorter = softly.FastSort(regularization="kl", steepness=steepness)
    expected = isotonic_kl(steepness * ranks, x[order].numpy())
    np.testing.assert_allclose(sorter.sort(x), expected, atol=1e-5)
    expected = np.exp(isotonic_kl(steepness * x[order].numpy(), np.log(ranks)))
    np.testing.assert_allclose(sorter.rank(x)[order], expected, atol=1e-5)


def test_l2_is_the_nearest_point_of_the_permutahedron():
    # The permutahedron is the set that the ranks majorize: sums over k entries are at most the k largest ranks.
    x, steepness, n = inputs(4, seed=1), 0.8, 4
    subsets = np.array([[int(b) for b in f"{i:04b}"] for i in range(1, 2**n)])
    largest = np.array([sum(range(n, n - int(s.sum()), -1)) for s in subsets])
    found = scipy.optimize.minimize(
        lambda y: ((y - steepness * x.numpy()) ** 2).sum(),
        np.full(n, (n + 1) / 2),
        constraints=[
            scipy.optimize.LinearConstraint(subsets[:-1], -np.inf, largest[:-1]),
            scipy.optimize.LinearConstraint(subsets[-1:], largest[-1:], largest[-1:]),
        ],
        method="SLSQP",
        options={"ftol": 1e-14},
    ).x
    np.testing.assert_allclose(softly.FastSort(steepness=steepness).rank(x), found, atol=1e-6)


@pytest.mark.parametrize("steepness", [0.01, 0.5, 5.0])
def test_invariants(steepness):
    x = inputs(8, 50)
    l2 = softly.FastSort(steepness=steepness)
    kl = softly.FastSort(regularization="kl", steepness=steepness)
    torch.testing.assert_close(l2.sort(x).sum(-1), x.sum(-1))
    torch.testing.assert_close(kl.sort(x).exp().sum(-1), x.exp().sum(-1))
    for sorter in (l2, kl):
        ranks, values = sorter.rank(x), sorter.sort(x)
        torch.testing.assert_close(ranks.sum(-1), torch.full((8,), 50 * 51 / 2, dtype=x.dtype))
        assert ((ranks > 1 - 1e-9) & (ranks < 50 + 1e-9)).all()
        assert (values.diff(dim=-1) > -1e-9).all()
        # Soft ranks are in the order of the values.
        assert (ranks.gather(-1, x.argsort(-1)).diff(dim=-1) > -1e-9).all()
        torch.testing.assert_close(sorter.sort(x, descending=True), values.flip(-1))
        torch.testing.assert_close(sorter.rank(x, descending=True), 51 - ranks)


@BOTH
def test_exact_from_a_finite_steepness(regularization):
    x = torch.tensor([0.3, -1.0, 2.0, 0.9], dtype=torch.float64)
    values = x.sort().values
    gaps = values.diff()
    sorter = softly.FastSort(regularization=regularization, steepness=float(gaps.max()) * 1.01)
    assert torch.equal(sorter.sort(x), values)
    assert not torch.allclose(softly.FastSort(regularization=regularization, steepness=1.2).sort(x), values)
    sorter = softly.FastSort(regularization=regularization, steepness=1.01 / float(gaps.min()))
    torch.testing.assert_close(sorter.rank(x), torch.tensor([2.0, 1.0, 4.0, 3.0], dtype=torch.float64))
    # A steepness as large as can be costs no digits.
    sorter = softly.FastSort(regularization=regularization, steepness=1e15)
    assert torch.equal(sorter.sort(x.float()), values.float())


@BOTH
@pytest.mark.parametrize("n", [5, 40, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.native
@pytest.mark.skipif(not native.available(), reason="the compiled kernels are not there")
def test_kernels_are_the_reference(regularization, n, dtype, monkeypatch):
    x = inputs(3, n, dtype=dtype).requires_grad_()
    weights = inputs(3, n, seed=1, dtype=dtype)
    for steepness in (0.02, 0.4, 8.0, 400.0):
        sorter = softly.FastSort(regularization=regularization, steepness=steepness)
        for method in (sorter.sort, sorter.rank):
            results = []
            for module in (native.library.module, None):
                with monkeypatch.context() as patch:
                    patch.setattr(native.library, "module", module)
                    value = method(x)
                    results.append((value, *torch.autograd.grad(value, x, weights)))
            tolerance = 1e-4 if dtype == torch.float32 else 1e-10
            torch.testing.assert_close(results[0], results[1], atol=tolerance, rtol=tolerance)


@pytest.mark.native
@pytest.mark.skipif(not native.available(), reason="the compiled kernels are not there")
def test_threads_change_nothing():
    x = inputs(64, 300, dtype=torch.float32)
    sorter = softly.FastSort(steepness=0.3)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = sorter.rank(x)
        torch.set_num_threads(3)
        assert torch.equal(sorter.rank(x), one)
    finally:
        torch.set_num_threads(threads)


@BOTH
def test_hessian_is_right(regularization):
    x = inputs(6, seed=4)
    target = inputs(6, seed=5)
    sorter = softly.FastSort(regularization=regularization, steepness=0.5)
    for method in (sorter.sort, sorter.rank):
        loss = lambda y, method=method: ((method(y) - target) ** 3).sum()  # noqa: E731
        functional = torch.func.hessian(loss)(x)
        assert functional.abs().max() > 1e-3
        torch.testing.assert_close(torch.autograd.functional.hessian(loss, x), functional)
        step = 1e-5 * torch.eye(6, dtype=x.dtype)
        gradient = torch.func.grad(loss)
        numerical = torch.stack([(gradient(x + e) - gradient(x - e)) / 2e-5 for e in step])
        torch.testing.assert_close(functional, numerical, atol=1e-5, rtol=1e-5)


@BOTH
def test_steepness_is_learned(regularization):
    x = inputs(2, 7, seed=3)
    for method in ("sort", "rank"):

        def apply(steepness, method=method):
            return getattr(softly.FastSort(regularization=regularization, steepness=steepness), method)(x)

        steepness = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(apply, steepness)
        torch.testing.assert_close(apply(steepness.detach()), apply(0.6))


@BOTH
@pytest.mark.parametrize("method", ["sort", "rank"])
def test_auto_follows_the_spread(regularization, method):
    x = inputs(5, 60, seed=2)
    sorter = softly.FastSort(regularization=regularization, steepness="auto")
    soft = getattr(sorter, method)(x)
    hard = x.sort(-1).values if method == "sort" else 1.0 + x.argsort(-1).argsort(-1)
    exact = (soft - hard).abs() < 1e-9
    if regularization == "l2":
        # Neither hard nor flat, at any scale.
        assert 0.01 < exact.double().mean() < 0.9
        scaled = getattr(sorter, method)(1000.0 * x)
        torch.testing.assert_close(scaled, 1000.0 * soft if method == "sort" else soft)
    error = (soft - hard).abs().mean() / (x.std() if method == "sort" else 60)
    assert 1e-4 < error < 0.2


@BOTH
def test_ties_and_one_entry(regularization):
    sorter = softly.FastSort(regularization=regularization)
    x = torch.tensor([1.0, 3.0, 1.0, 1.0, 30.0])
    ranks = sorter.rank(x)
    assert ranks[0] == ranks[2] == ranks[3]
    torch.testing.assert_close(sorter.rank(torch.full((4,), 1e4)), torch.full((4,), 2.5))
    torch.testing.assert_close(sorter.sort(torch.full((4,), -1e4)), torch.full((4,), -1e4))
    assert sorter.sort(torch.tensor([7.0])).item() == 7.0
    assert sorter.rank(torch.tensor([7.0])).item() == 1.0
    # Signed zeros are equal.
    assert sorter.rank(torch.tensor([0.0, -0.0])).tolist() == pytest.approx([1.5, 1.5])


@BOTH
def test_extreme_values(regularization):
    sorter = softly.FastSort(regularization=regularization, steepness=2.0)
    x = torch.tensor([torch.inf, 0.0, -torch.inf, 5.0])
    torch.testing.assert_close(sorter.rank(x), torch.tensor([4.0, 2.0, 1.0, 3.0]))
    far = torch.tensor([1e4, -1e4, 0.0], requires_grad=True)
    torch.testing.assert_close(sorter.rank(far), torch.tensor([3.0, 1.0, 2.0]))
    (gradient,) = torch.autograd.grad(sorter.sort(far).square().sum(), far)
    assert gradient.isfinite().all()
    for module_result in (sorter.sort(torch.tensor([1.0, torch.nan])), sorter.rank(torch.tensor([torch.nan, 1.0]))):
        assert module_result.isnan().all()


@BOTH
def test_shapes_and_half_precision(regularization):
    x = inputs(2, 7, 3)
    sorter = softly.FastSort(regularization=regularization, steepness=0.5)
    for method in (sorter.sort, sorter.rank):
        moved = method(x, dim=1)
        torch.testing.assert_close(moved.transpose(1, 2), method(x.transpose(1, 2)))
        torch.testing.assert_close(torch.func.vmap(lambda y, m=method: m(y, dim=0))(x), moved)
        assert method(x[:0], dim=1).shape == (0, 7, 3)
        half = method(x.bfloat16(), dim=1)
        assert half.dtype == torch.bfloat16
        torch.testing.assert_close(half.double(), method(x.bfloat16().double(), dim=1), atol=1e-2, rtol=1e-2)


@BOTH
def test_lists_of_unequal_length(regularization):
    x = inputs(3, 6)
    lengths = torch.tensor([6, 2, 0])
    sorter = softly.FastSort(regularization=regularization, steepness=0.5)
    values, ranks = sorter.sort(x, lengths=lengths), sorter.rank(x, lengths=lengths)
    torch.testing.assert_close(values[0], sorter.sort(x[0]))
    torch.testing.assert_close(values[1], torch.nn.functional.pad(sorter.sort(x[1, :2]), (0, 4)))
    torch.testing.assert_close(ranks[1], torch.nn.functional.pad(sorter.rank(x[1, :2]), (0, 4)))
    assert not values[2].any()
    assert not ranks[2].any()
    mask = torch.tensor([False, True, True, False, True, False])
    ranks = sorter.rank(x[0], mask=mask)
    torch.testing.assert_close(ranks[mask], sorter.rank(x[0][mask]))
    assert not ranks[~mask].any()


@pytest.mark.parametrize("call", [lambda s, x: s.permutation(x), lambda s, x: s.topk(x, 2)])
def test_no_matrix(call):
    with pytest.raises(TypeError, match=r"without a permutation matrix.*softly\.SoftSort or softly\.SortingNetwork"):
        call(softly.FastSort(), torch.rand(3))


def test_bad_arguments():
    with pytest.raises(ValueError, match="regularization must be 'l2' or 'kl', got 'l1'"):
        softly.FastSort(regularization="l1")
    with pytest.raises(ValueError, match=r"softly\.FastSort: steepness must be positive and finite, got 0"):
        softly.FastSort(steepness=0)
    assert repr(softly.FastSort(steepness=2.0)) == "FastSort(regularization='l2', steepness=2.0)"
