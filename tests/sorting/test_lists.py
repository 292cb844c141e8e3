"""Infinite and absent entries: sorted as if the others were alone, in eager mode, compiled and transformed."""

import pytest
import torch

import softly
from softly.sorting.network_reference import LARGEST_TABLE

SORTERS = {
    "bitonic": softly.SortingNetwork("bitonic", steepness=3.0),
    "odd_even": softly.SortingNetwork("odd_even", distribution="logistic", steepness=3.0),
    "auto": softly.SortingNetwork("bitonic", steepness="auto"),
    "NeuralSort": softly.NeuralSort(steepness=1.0),
    "NeuralSort, auto": softly.NeuralSort(steepness="auto"),
    "SoftSort": softly.SoftSort(steepness=2.0),
    "SinkhornSort": softly.SinkhornSort(steepness=0.5),
    "FastSort": softly.FastSort(steepness=0.5),
    "FastSort, kl": softly.FastSort(regularization="kl", steepness=0.5),
}
sorters = pytest.mark.parametrize("sorter", SORTERS.values(), ids=SORTERS)
INF = float("inf")
ROWS = torch.tensor(
    [
        [0.3, -1.0, 2.0, 0.7, -0.2, 1.1],
        [0.3, INF, 2.0, -INF, -0.2, 1.1],
        [INF, INF, 2.0, -0.4, -INF, 1.1],
        [INF, -INF, -INF, INF, -INF, 0.5],
        [INF, -INF, INF, INF, -INF, -INF],
    ],
    dtype=torch.float64,
)
MASK = torch.tensor(
    [
        [True, True, True, True, True, True],
        [True, False, True, True, False, True],
        [False, True, True, True, True, False],
        [True, False, False, False, False, True],
        [False, False, False, False, False, False],
    ]
)


def methods(sorter):
    yield sorter.sort
    yield sorter.rank
    yield lambda x, **options: sorter.sort(x, descending=True, **options)
    yield lambda x, **options: sorter.rank(x, descending=True, **options)
    if not isinstance(sorter, softly.FastSort):
        yield sorter.permutation
        yield lambda x, **options: sorter.permutation(x, descending=True, **options)
        yield lambda x, **options: sorter.topk(x, 3, **options)
        yield lambda x, **options: sorter.topk_values(x, 3, **options)


def alone(sorter, row, valid):
    """Rank and sort what is there and finite, and put the rest where it belongs, one by one."""
    finite = [i for i in range(6) if valid[i] and row[i].isfinite()]
    low = [i for i in range(6) if valid[i] and row[i] == -INF]
    high = [i for i in range(6) if valid[i] and row[i] == INF]
    values, ranks = torch.zeros(6, dtype=row.dtype), torch.zeros(6, dtype=row.dtype)
    if finite:
        values[len(low) : len(low) + len(finite)] = sorter.sort(row[finite])
        ranks[finite] = sorter.rank(row[finite]) + len(low)
    values[: len(low)] = -INF
    values[len(low) + len(finite) : len(low) + len(finite) + len(high)] = INF
    ranks[low] = 0.5 * (1 + len(low))
    ranks[high] = len(low) + len(finite) + 0.5 * (1 + len(high))
    return values, ranks


@sorters
@pytest.mark.parametrize("masked", [False, True])
def test_each_list_is_sorted_as_if_alone(sorter, masked):
    valid = MASK if masked else torch.ones_like(MASK)
    options = {"mask": MASK} if masked else {}
    for row, there, values, ranks in zip(
        ROWS, valid, sorter.sort(ROWS, **options), sorter.rank(ROWS, **options), strict=True
    ):
        expected = alone(sorter, row, there)
        torch.testing.assert_close((values, ranks), expected, atol=1e-9, rtol=1e-9)


@sorters
@pytest.mark.parametrize("masked", [False, True])
def test_compiled_and_transformed(sorter, masked):
    options = {"mask": MASK} if masked else {}
    for method in methods(sorter):
        expected = method(ROWS, **options)
        torch._dynamo.reset()
        compiled = torch.compile(lambda x, m, f=method: f(x, **m), fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(ROWS, options), expected, atol=1e-9, rtol=1e-9)
        if masked:
            mapped = torch.func.vmap(lambda x, m, f=method: f(x, mask=m))(ROWS, MASK)
        else:
            mapped = torch.func.vmap(method)(ROWS)
        torch.testing.assert_close(mapped, expected, atol=1e-9, rtol=1e-9)


@sorters
def test_gradients_are_those_of_the_others_alone(sorter):
    weights = torch.linspace(-1, 1, 6, dtype=torch.float64)

    def loss(x, **options):
        return (sorter.rank(x, **options) * weights).sum()

    x = ROWS.clone().requires_grad_()
    loss(x, mask=MASK).backward()
    assert x.grad.isfinite().all()
    assert (x.grad[~MASK | ROWS.isinf()] == 0).all()
    for i, (row, there) in enumerate(zip(ROWS, MASK, strict=True)):
        kept = (there & row.isfinite()).nonzero().squeeze(-1)
        if len(kept):
            leaf = row[kept].clone().requires_grad_()
            (gradient,) = torch.autograd.grad((sorter.rank(leaf) * weights[kept]).sum(), leaf, materialize_grads=True)
            torch.testing.assert_close(x.grad[i, kept], gradient, atol=1e-9, rtol=1e-9)
    mapped = torch.func.vmap(torch.func.grad(lambda r, m: loss(r, mask=m)))(ROWS, MASK)
    torch.testing.assert_close(mapped, x.grad, atol=1e-9, rtol=1e-9)


def test_long_lists_without_data_are_right_refused_or_nan():
    n = LARGEST_TABLE + 1
    x = torch.randn(2, n, dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(softly.sort)(x), softly.sort(x))
    x[0, 3] = INF
    with pytest.raises(ValueError, match=rf"may have up to {LARGEST_TABLE} entries, got {n}"):
        torch.func.vmap(softly.sort)(x)
    with pytest.raises(ValueError, match=rf"may have up to {LARGEST_TABLE} entries, got {n}"):
        torch.func.vmap(lambda r, m: softly.sort(r, mask=m))(x, torch.ones_like(x, dtype=torch.bool))
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(softly.sort, backend="aot_eager")(x), softly.sort(x))  # kernels see data
    pushed = torch.compile(lambda z: torch.func.jvp(softly.sort, (z,), (torch.ones_like(z),))[0], backend="aot_eager")
    result = pushed(x)
    assert result[0].isnan().all()
    torch.testing.assert_close(result[1], softly.sort(x[1]))


def test_a_network_of_ones_own_has_one_size():
    sorter = softly.SortingNetwork(softly.sorting.networks.Network(2, [[(0, 1)]]))
    torch.testing.assert_close(torch.func.vmap(sorter)(torch.ones(3, 2)), torch.ones(3, 2))
    for call in (sorter, torch.func.vmap(sorter)):
        with pytest.raises(ValueError, match="the network has 2 wires, got 1 values"):
            call(torch.tensor([[1.0, INF]]))


@sorters
def test_straight_through(sorter):
    through = type(sorter)(
        **({"network": sorter.network} if hasattr(sorter, "network") else {}),
        steepness=sorter.steepness,
        straight_through=True,
    )
    x = ROWS[:1].clone().requires_grad_()
    torch.testing.assert_close(through.sort(x).detach(), ROWS[:1].sort(-1).values)
    torch.testing.assert_close(through.rank(x).detach(), (ROWS[:1].argsort(-1).argsort(-1) + 1).double())
    plain = type(sorter)(
        **({"network": sorter.network} if hasattr(sorter, "network") else {}), steepness=sorter.steepness
    )
    (hard,), (soft,) = (torch.autograd.grad(s.sort(x).square().sum(), x) for s in (through, plain))
    weights = 2 * through.sort(x).detach()
    (expected,) = torch.autograd.grad(plain.sort(x), x, weights)
    torch.testing.assert_close(hard, expected)
    assert isinstance(sorter, softly.FastSort) or not torch.allclose(hard, soft)  # pooled, both have one gradient
    assert through.sort(ROWS, mask=MASK)[1].tolist() == [-INF, 0.3, 1.1, 2.0, 0.0, 0.0]
    if not isinstance(sorter, softly.FastSort):
        matrix = through.permutation(x).detach()
        assert ((matrix == 0) | (matrix == 1)).all()
        torch.testing.assert_close((matrix @ ROWS[:1].unsqueeze(-1)).squeeze(-1), ROWS[:1].sort(-1).values)
        torch.testing.assert_close(through.topk(x, 2), through.permutation(x).flip(-2)[..., :2, :])


@sorters
def test_lengths_that_cannot_be_are_refused_or_nan(sorter):
    lengths = torch.tensor([6, 7, -1, 0, 2])
    with pytest.raises(ValueError, match=r"lengths must be in \[0, 6\], got -1 to 7"):
        sorter.sort(ROWS, lengths=lengths)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, n: sorter.sort(x, lengths=n), fullgraph=True, backend="eager")
    result = compiled(ROWS, lengths)
    assert result[1:3].isnan().any(-1).all()
    kept = torch.tensor([0, 3, 4])
    torch.testing.assert_close(result[kept], sorter.sort(ROWS[kept], lengths=lengths[kept]), atol=1e-9, rtol=1e-9)
