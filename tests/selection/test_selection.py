import itertools
import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import softly
from softly import distributions
from softly.selection import SmoothTopKLoss, networks, soft_topk

SORTERS = {
    "splitter": softly.TopKNetwork(steepness=3.0),
    "bitonic": softly.TopKNetwork("bitonic", steepness=3.0),
    "sorting network": softly.SortingNetwork("odd_even", steepness=3.0),
    "NeuralSort": softly.NeuralSort(steepness=2.0),
    "SoftSort": softly.SoftSort(steepness=3.0),
    "SinkhornSort": softly.SinkhornSort(steepness=2.0),
}
every = pytest.mark.parametrize("sorter", SORTERS.values(), ids=SORTERS.keys())


@pytest.mark.parametrize(
    ("n", "k", "depth", "size"), [(1024, 5, 22, 5273), (10450, 5, 27, 68085), (1000, 5, 22, None), (16, 5, 10, None)]
)
def test_splitter_networks_have_their_size(n, k, depth, size):
    network = networks.get("splitter", n, k)
    assert network.depth == depth
    assert size is None or network.size == size


@pytest.mark.parametrize("name", networks.names())
def test_networks_select(name):
    for n in range(1, 13):
        for k in range(1, n + 1):
            network = networks.get(name, n, k)
            assert network.selects()
            assert network.k == k
            assert len(set(network.outputs)) == k


@pytest.mark.parametrize(("n", "k"), [(100, 7), (333, 40), (64, 64), (1024, 5)])
def test_large_networks_select(n, k):
    assert networks.get("splitter", n, k).selects(patterns=2000)


def test_selects_can_fail():
    network = networks.SelectionNetwork(3, (((0, 1),),), name="broken", outputs=(1,))
    assert not network.selects()


def test_truncated_networks_lose_comparators():
    assert networks.get("bitonic", 64, 3).size < softly.sorting.networks.get("bitonic", 64).size
    assert networks.get("bitonic", 64, 64).layers == softly.sorting.networks.get("bitonic", 64).layers


@pytest.mark.parametrize("name", networks.names())
@pytest.mark.parametrize("k", [1, 3, 7])
def test_rows_are_stochastic(name, k):
    x = torch.randn(4, 13, dtype=torch.float64)
    P = softly.TopKNetwork(name if name != "optimal" else "splitter", steepness=2.0).topk(x, k)
    assert P.shape == (4, k, 13)
    assert (P >= 0).all()
    torch.testing.assert_close(P.sum(-1), torch.ones(4, k, dtype=torch.float64))
    assert (P.sum(-2) <= 1 + 1e-12).all()


@pytest.mark.parametrize("name", ["bitonic", "odd_even", "pairwise"])
def test_truncated_networks_are_the_rows_of_the_whole(name):
    x = torch.randn(3, 20, dtype=torch.float64)
    whole = softly.SortingNetwork(name, steepness=2.0).permutation(x, descending=True)
    torch.testing.assert_close(softly.TopKNetwork(name, steepness=2.0).topk(x, 6), whole[:, :6])


def test_topk_network_selects_only():
    sorter = softly.TopKNetwork(steepness="auto")
    assert sorter.topk(torch.randn(30), 3).sum() == pytest.approx(3, abs=1e-5)
    for method in (sorter.sort, sorter.rank, sorter.permutation):
        with pytest.raises(TypeError, match="use SortingNetwork"):
            method(torch.zeros(3))
    with pytest.raises(ValueError, match="unknown network 'merge'; choose from splitter"):
        softly.TopKNetwork("merge")
    with pytest.raises(ValueError, match=r"k must be in \[1, n\] = \[1, 3\], got 4"):
        networks.get("splitter", 3, 4)
    with pytest.raises(ValueError, match="unknown network 'split'"):
        networks.get("split", 3, 1)


def brute_force(scores, label, p_k, sorter, top1):
    """The loss by summing over every k and rank, one example at a time."""
    P = sorter.topk(scores, len(p_k))
    softmax = torch.softmax(scores, -1)
    total = 0.0
    for k, share in enumerate(p_k, 1):
        among = sum(P[r, label] for r in range(k))
        if k == 1 and top1 != "sort":
            among = softmax[label] if top1 == "softmax" else 0.0
        total = total + share * among
    if top1 == "separate":
        rest = 1 - p_k[0]
        later = -rest * torch.log(total / rest) if rest else 0.0
        return -p_k[0] * torch.log(softmax[label]) + later
    return -torch.log(total)


@every
@pytest.mark.parametrize("top1", ["sort", "softmax", "separate"])
@pytest.mark.parametrize("p_k", [[1.0], [0.5, 0.5], [0.2, 0.0, 0.3, 0.5], [0.0, 0.0, 1.0]])
def test_loss_is_its_definition(sorter, top1, p_k):
    scores, labels = torch.randn(5, 6, dtype=torch.float64), torch.tensor([0, 5, 2, 2, 1])
    loss = softly.TopKCrossEntropy(p_k, sorter=sorter, top1=top1, reduction="none")(scores, labels)
    expected = torch.stack([brute_force(s, y, p_k, sorter, top1) for s, y in zip(scores, labels, strict=True)])
    torch.testing.assert_close(loss, expected, atol=1e-9, rtol=1e-6)


def test_loss_over_permutations():
    """At a finite temperature too, the matrix of a stochastic sorter is an average over hard rankings."""
    scores, label, p_k = torch.randn(5, dtype=torch.float64), 3, [0.25, 0.25, 0.5]
    weights = {}
    for order in itertools.permutations(range(5)):  # Plackett-Luce
        left, p = list(range(5)), 1.0
        for entry in order:
            p *= float(torch.softmax(scores[left], -1)[left.index(entry)])
            left.remove(entry)
        weights[order] = p
    accepted = sum(
        p * sum(share for k, share in enumerate(p_k, 1) if order.index(label) < k) for order, p in weights.items()
    )
    P = torch.zeros(3, 5, dtype=torch.float64)
    for order, p in weights.items():
        for rank in range(3):
            P[rank, order[rank]] += p

    class PlackettLuce(softly.sorting.Sorter):
        def _topk(self, x, steepness, k):
            return P[:k].expand(*x.shape[:-1], k, 5)

    loss = softly.TopKCrossEntropy(p_k, sorter=PlackettLuce(), top1="sort")(scores[None], torch.tensor([label]))
    assert float(loss) == pytest.approx(-math.log(accepted))


@every
def test_gradients_reach_every_class(sorter):
    scores = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    loss = softly.TopKCrossEntropy([0.5, 0.0, 0.5], sorter=sorter, top1="softmax")(scores, torch.tensor([0, 3, 7]))
    (grad,) = torch.autograd.grad(loss, scores)
    assert grad.ne(0).all()
    small = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    function = lambda s: softly.TopKCrossEntropy([0.5, 0.0, 0.5], sorter=sorter, m=4)(s, torch.tensor([1, 4]))  # noqa: E731
    assert torch.autograd.gradcheck(function, small, atol=1e-4, rtol=1e-3)
    assert torch.autograd.gradgradcheck(function, small, atol=1e-3, rtol=1e-2)


def test_only_the_largest_are_ranked():
    scores = torch.randn(6, 30, dtype=torch.float64)
    labels = torch.randint(0, 30, (6,))
    sorter = softly.TopKNetwork(steepness=3.0)
    loss = softly.TopKCrossEntropy([0.5, 0.5], sorter=sorter, m=5, top1="sort", reduction="none")(scores, labels)
    for s, y, value in zip(scores, labels, loss, strict=True):
        others = s[torch.arange(30) != y].topk(4).values
        ranked = torch.cat([s[y : y + 1], others]).sort(descending=True).values
        place = (ranked == s[y]).nonzero()[0]
        expected = softly.TopKCrossEntropy([0.5, 0.5], sorter=sorter, top1="sort")(ranked[None], place)
        torch.testing.assert_close(value, expected)
    whole = softly.TopKCrossEntropy([0.5, 0.5], sorter=sorter, m=30, top1="sort")(scores, labels)
    torch.testing.assert_close(whole, softly.TopKCrossEntropy([0.5, 0.5], sorter=sorter, top1="sort")(scores, labels))


@pytest.mark.parametrize("network", ["splitter", "bitonic", "odd_even"])
def test_the_label_does_not_leak_through_the_order_of_wires(network):
    """Whichever class is the true one, the same matrix ranks them, and renaming the classes changes nothing."""
    scores = torch.randn(9, dtype=torch.float64)
    sorter = softly.TopKNetwork(network, steepness=2.0)
    loss = softly.TopKCrossEntropy([1.0], sorter=sorter, m=5, top1="sort", reduction="none")
    best = scores.topk(5)
    row = sorter.topk(best.values, 1)[0]
    losses = loss(scores.expand(9, -1), torch.arange(9))
    torch.testing.assert_close(losses[best.indices], -row.log())
    torch.testing.assert_close(torch.exp(-losses[best.indices]).sum(), torch.tensor(1.0, dtype=torch.float64))
    names = torch.randperm(9)
    renamed = torch.empty_like(scores).scatter(0, names, scores)
    torch.testing.assert_close(loss(renamed.expand(9, -1), names), losses)
    alike = loss(torch.zeros(9, 9, dtype=torch.float64), torch.arange(9))
    assert alike[4:].eq(alike[4]).all()  # of equal scores the first are the best, and the last place is for the others
    torch.testing.assert_close(torch.exp(-alike[:5]).sum(), torch.tensor(1.0, dtype=torch.float64))
    whole = [
        softly.TopKCrossEntropy([0.4, 0.6], sorter=sorter, m=m)(scores[None], torch.tensor([3])) for m in (9, 12, None)
    ]
    assert whole[0] == whole[1] == whole[2]


@pytest.mark.parametrize("name", ["splitter", "bitonic", "neuralsort", "softsort", "sinkhornsort"])
def test_sorters_by_name(name):
    scores, labels = torch.randn(4, 6, dtype=torch.float64), torch.tensor([0, 5, 2, 2])
    objects = {
        "splitter": softly.TopKNetwork,
        "bitonic": softly.SortingNetwork,
        "neuralsort": softly.NeuralSort,
        "softsort": softly.SoftSort,
        "sinkhornsort": softly.SinkhornSort,
    }
    losses = [
        softly.TopKCrossEntropy([0.5, 0.5], sorter=s, top1="sort")(scores, labels)
        for s in (name, objects[name](steepness=1.0))
    ]
    torch.testing.assert_close(*losses)
    relevant = torch.rand(4, 6) > 0.5
    torch.testing.assert_close(
        *(softly.selection.recall_loss(scores, relevant, 2, sorter=s) for s in (name, objects[name]()))
    )
    keys, known = torch.randn(5, 6, dtype=torch.float64), torch.tensor([0, 1, 0, 2, 1])
    torch.testing.assert_close(
        *(softly.selection.soft_knn(scores, keys, known, 2, sorter=s) for s in (name, objects[name]()))
    )
    with pytest.raises(ValueError, match=r"softly.TopKCrossEntropy: unknown sorter 'bogo'; choose from splitter, "):
        softly.TopKCrossEntropy([1.0], sorter="bogo")


def test_integers_of_any_kind():
    scores, labels, relevant = torch.randn(3, 5), torch.tensor([0, 1, 2]), torch.rand(3, 5) > 0.5
    functions = [
        lambda k: softly.topk(scores, k),
        lambda k: softly.TopKNetwork().topk(scores, k),
        lambda k: softly.NeuralSort().log_topk(scores, k),
        lambda k: softly.selection.TopKGate(k)(scores),
        lambda k: SmoothTopKLoss(k)(scores, labels),
        lambda k: softly.TopKCrossEntropy([0.5, 0.5], m=k)(scores, labels),
        lambda k: softly.selection.recall_loss(scores, relevant, k, sorter="splitter"),
        lambda k: softly.selection.soft_knn(scores, scores, labels, k, sorter="splitter"),
        lambda k: softly.sorting.ndcg_loss(scores, labels.expand(5, 3).T, sorter="bitonic", k=k),
        lambda k: softly.sorting.metrics.ndcg(scores, labels.expand(5, 3).T, k=k),
        lambda k: softly.sorting.metrics.mrr(scores, labels.expand(5, 3).T, k=k),
        lambda k: softly.sorting.metrics.exact_match_k(scores, scores, k=k),
    ]
    for function in functions:
        for k in (np.int64(2), np.uint8(2), torch.tensor(2)):
            torch.testing.assert_close(function(k), function(2))
        for k in (2.0, np.float32(2), True, "2"):
            with pytest.raises(TypeError, match="must be an integer, got"):
                function(k)


@pytest.mark.parametrize("top1", ["sort", "softmax", "separate"])
def test_a_distribution_over_k_for_every_example_under_vmap(top1):
    scores, labels = torch.randn(4, 6, dtype=torch.float64), torch.tensor([0, 5, 2, 2])
    p_k = torch.softmax(torch.randn(4, 3, dtype=torch.float64), -1)
    loss = softly.TopKCrossEntropy([1.0], top1=top1, reduction="none")
    one = lambda s, y, p: loss(s[None], y[None], p[None])[0]  # noqa: E731
    expected = loss(scores, labels, p_k)
    torch.testing.assert_close(torch.func.vmap(one)(scores, labels, p_k), expected)
    torch.testing.assert_close(
        torch.func.vmap(one, (None, None, 1))(scores[0], labels[0], p_k.T),
        torch.stack([loss(scores[:1], labels[:1], p[None])[0] for p in p_k]),
    )
    grads = torch.func.vmap(torch.func.grad(one))(scores, labels, p_k)
    torch.testing.assert_close(grads, torch.func.grad(lambda s: loss(s, labels, p_k).sum())(scores))


@pytest.mark.parametrize("loss", [softly.TopKCrossEntropy([0.5, 0.5]), SmoothTopKLoss(2)], ids=["ours", "smooth"])
def test_targets_that_are_no_class_are_refused(loss):
    scores = torch.randn(3, 4)
    for wrong in (4, -1):
        with pytest.raises(ValueError, match=rf"target must be in \[0, 3\], one of the classes, got {wrong}"):
            loss(scores, torch.tensor([0, wrong, 1]))
    if not isinstance(loss, SmoothTopKLoss):
        assert loss(scores, torch.tensor([0, -100, 1])).isfinite()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(scores, torch.tensor([0, 3, 1])), loss(scores, torch.tensor([0, 3, 1])))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_smooth_topk_loss_leaves_out_classes_at_minus_infinity(k):
    scores = torch.randn(5, dtype=torch.float64)
    masked = torch.cat([scores, torch.full((2,), -math.inf, dtype=torch.float64)]).requires_grad_()
    alone = scores.clone().requires_grad_()
    loss = SmoothTopKLoss(k, steepness=3.0)
    values = [loss(s[None], torch.tensor([1])) for s in (masked, alone)]
    torch.testing.assert_close(*values)
    grads = [torch.autograd.grad(v, s)[0] for v, s in zip(values, (masked, alone), strict=True)]
    torch.testing.assert_close(grads[0][:5], grads[1])
    assert grads[0][5:].eq(0).all()
    few = torch.tensor([[0.3, -math.inf, -math.inf, -math.inf]], requires_grad=True)
    value = loss(few, torch.tensor([0]))
    assert value == 0
    assert torch.autograd.grad(value, few)[0].isfinite().all()
    half = loss(masked[None].half(), torch.tensor([1]))
    assert half.dtype == torch.float16
    assert half.item() == pytest.approx(values[1].item(), abs=1e-2)


@pytest.mark.native
@pytest.mark.skipif(not softly.native.available(), reason="the compiled kernels are not there")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_native_largest(dtype):
    for n, m in ((1, 1), (5, 5), (16, 16), (64, 64), (100, 7), (1000, 16), (1003, 64)):
        x = torch.randn(20, n, dtype=dtype)
        assert torch.equal(torch.ops.softly.largest(x, m), x.topk(m, -1).indices)
        ties = torch.randint(0, 3, (20, n)).to(dtype)
        indices = torch.ops.softly.largest(ties, m)
        torch.testing.assert_close(ties.gather(-1, indices), ties.topk(m, -1).values)
        assert torch.equal(indices, ties.sort(dim=-1, descending=True, stable=True).indices[:, :m])
    odd = torch.tensor([[1.0, math.nan, -math.inf, math.inf, 2.0, 0.0, 3.0, 4.0, math.nan]], dtype=dtype)
    assert set(torch.ops.softly.largest(odd, 3)[0].tolist()) == {1, 3, 8}
    torch.library.opcheck(torch.ops.softly.largest, (torch.randn(3, 10, dtype=dtype), 4))


@pytest.mark.native
@pytest.mark.skipif(not softly.native.available(), reason="the compiled kernels are not there")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_native_logsumexp(dtype):
    for n in (1, 3, 8, 17, 1000):
        x = (30 * torch.randn(20, n, dtype=dtype)).requires_grad_()
        out, _ = torch.ops.softly.logsumexp(x)
        expected = torch.logsumexp(x, -1, keepdim=True)
        torch.testing.assert_close(out, expected)
        weights = torch.randn_like(out)
        torch.testing.assert_close(torch.autograd.grad(out, x, weights), torch.autograd.grad(expected, x, weights))
    inf, nan = math.inf, math.nan
    odd = torch.tensor([[inf, 0, 1], [-inf, -inf, -inf], [-inf, 0, 1], [nan, 0, 1], [inf, nan, 1], [1, 2, nan]])
    odd = odd.to(dtype).repeat(1, 5)
    expected = torch.logsumexp(odd, -1, keepdim=True)
    torch.testing.assert_close(torch.ops.softly.logsumexp(odd)[0], expected, equal_nan=True)


def test_distributions_over_k():
    scores, labels = torch.randn(4, 3), torch.tensor([0, 2, 1, 0])
    per_class = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    by_class = softly.TopKCrossEntropy(per_class, reduction="none")(scores, labels)
    single = [softly.TopKCrossEntropy(per_class[y])(s[None], y[None]) for s, y in zip(scores, labels, strict=True)]
    torch.testing.assert_close(by_class, torch.stack(single))
    by_example = softly.TopKCrossEntropy([1.0], reduction="none")(scores, labels, per_class[labels])
    torch.testing.assert_close(by_example, by_class)


def test_options_of_cross_entropy():
    """With k = 1 and the softmax it is torch's cross-entropy, with all its options."""
    scores, labels = torch.randn(7, 5, dtype=torch.float64), torch.tensor([0, 4, 2, -100, 1, 1, 3])
    weight = torch.rand(5, dtype=torch.float64) + 0.1
    for top1 in ("softmax", "separate"):
        for reduction in ("mean", "sum", "none"):
            for smoothing in (0.0, 0.2):
                options = {"weight": weight, "reduction": reduction, "label_smoothing": smoothing}
                ours = softly.TopKCrossEntropy([1.0], top1=top1, **options)(scores, labels)
                torch.testing.assert_close(ours, torch.nn.CrossEntropyLoss(**options)(scores, labels))
    other = softly.TopKCrossEntropy([1.0], ignore_index=1)(scores[4:], labels[4:])
    torch.testing.assert_close(other, torch.nn.functional.cross_entropy(scores[6:], labels[6:]))


@every
@pytest.mark.parametrize("top1", ["sort", "softmax", "separate"])
def test_loss_is_finite(sorter, top1):
    for dtype in (torch.float32, torch.float64):
        for scores in (
            torch.zeros(2, 6),
            torch.full((2, 6), 1e4),
            1e4 * torch.randn(2, 6),
            torch.tensor([[-math.inf] * 5 + [0.0]] * 2),
        ):
            s = scores.to(dtype).requires_grad_()
            if isinstance(sorter, softly.SinkhornSort) and scores.abs().max() > 1:
                continue  # it warns that it has not converged, which is another test's business
            loss = softly.TopKCrossEntropy([0.5, 0.5], sorter=sorter, top1=top1)(s, torch.tensor([0, 5]))
            assert loss.isfinite()
            (grad,) = torch.autograd.grad(loss, s)
            assert grad.isfinite().all()


def test_perfect_predictions_cost_nothing():
    scores = torch.full((2, 6), -50.0)
    scores[0, 3] = scores[1, 0] = 50.0
    for top1 in ("sort", "softmax", "separate"):
        loss = softly.TopKCrossEntropy([0.5, 0.0, 0.5], sorter=softly.TopKNetwork(steepness=1e6), top1=top1)
        assert float(loss(scores, torch.tensor([3, 0]))) == pytest.approx(0, abs=1e-4)


def test_smooth_topk_loss_is_its_definition():
    """Sums over all sets of k classes."""
    scores, labels = torch.randn(4, 6, dtype=torch.float64), torch.tensor([0, 5, 2, 2])
    for k, steepness in ((1, 1.0), (2, 3.0), (5, 0.7)):
        loss = SmoothTopKLoss(k, steepness=steepness, reduction="none")(scores, labels)
        for s, y, value in zip(scores, labels.tolist(), loss, strict=True):
            sets = list(itertools.combinations(range(6), k))
            every = sum(math.exp(steepness * ((y not in A) + float(s[list(A)].mean()))) for A in sets)
            own = sum(math.exp(steepness * float(s[list(A)].mean())) for A in sets if y in A)
            assert float(value) == pytest.approx((math.log(every) - math.log(own)) / steepness)
    hard = SmoothTopKLoss(2, steepness=1e4, reduction="none")(scores, labels)
    for s, y, value in zip(scores, labels.tolist(), hard, strict=True):
        rest = s[torch.arange(6) != y].sort(descending=True).values
        assert float(value) == pytest.approx(max(0.0, 1 + float(rest[1] - s[y]) / 2), abs=1e-3)
    scores = (300 * torch.randn(3, 1000)).requires_grad_()
    loss = SmoothTopKLoss(5)(scores, torch.tensor([0, 500, 999]))
    assert loss.isfinite()
    assert torch.autograd.grad(loss, scores)[0].isfinite().all()
    assert torch.autograd.gradgradcheck(
        lambda s: SmoothTopKLoss(2)(s, torch.tensor([1])), torch.randn(1, 5, dtype=torch.float64, requires_grad=True)
    )


@pytest.mark.parametrize(
    "name", [n for n in distributions.names() if distributions.get(n).symmetric and n != "heaviside"]
)
def test_soft_topk_sums_to_k(name):
    x = torch.randn(3, 50, dtype=torch.float64)
    for k in (0.5, 1, 7, 49, 50):
        y = soft_topk(x, k, distribution=name, steepness=2.0)
        assert ((y >= 0) & (y <= 1)).all()
        torch.testing.assert_close(y.sum(-1), torch.full((3,), float(k), dtype=torch.float64))
    hard = soft_topk(x, 4, distribution=name, steepness=1e6)
    expected = torch.zeros_like(x).scatter(-1, x.topk(4, -1).indices, 1.0)
    torch.testing.assert_close(hard, expected, atol=1e-3, rtol=0)


def test_soft_topk_of_a_million():
    x = torch.randn(1_000_000)
    for k in (5, 1000, 500_000):
        assert float(soft_topk(x, k).double().sum()) == pytest.approx(k, rel=1e-4)
    assert soft_topk(torch.zeros(1000), 10).sum() == pytest.approx(10, rel=1e-4)


def test_bad_input():
    name = "softly.TopKCrossEntropy"
    for p_k in ([0.5, 0.4], [1.5, -0.5], torch.full((3, 2), 0.4)):
        with pytest.raises(ValueError, match=f"{name}: p_k must be non-negative and sum to 1"):
            softly.TopKCrossEntropy(p_k)
    assert softly.TopKCrossEntropy([0.33335, 0.33335, 0.33335]) is not None
    with pytest.raises(ValueError, match="m must be at least 3, the largest k of p_k, got 2"):
        softly.TopKCrossEntropy([0.0, 0.0, 1.0], m=2)
    with pytest.raises(ValueError, match="top1 must be"):
        softly.TopKCrossEntropy([1.0], top1="argmax")
    with pytest.raises(ValueError, match="p_k reaches to k = 3, got only 2 classes"):
        softly.TopKCrossEntropy([0.0, 0.0, 1.0])(torch.zeros(1, 2), torch.tensor([0]))
    with pytest.raises(ValueError, match="p_k has rows for 2 classes, got 3 scores"):
        softly.TopKCrossEntropy([[1.0], [1.0]])(torch.zeros(1, 3), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"scores must have shape \(batch, classes\)"):
        softly.TopKCrossEntropy([1.0])(torch.zeros(3), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"p_k must have shape \(batch, K\)"):
        softly.TopKCrossEntropy([1.0])(torch.zeros(2, 3), torch.tensor([0, 1]), torch.ones(1, 1))
    with pytest.raises(ValueError, match="reduction must be one of mean, sum, none"):
        softly.TopKCrossEntropy([1.0], reduction="max")
    with pytest.raises(ValueError, match="label_smoothing must be in"):
        softly.TopKCrossEntropy([1.0], label_smoothing=2.0)
    with pytest.raises(ValueError, match="k must be below the 3 classes, got 3"):
        SmoothTopKLoss(3)(torch.zeros(1, 3), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"soft_topk: k must be in \(0, 3\], got 4"):
        soft_topk(torch.zeros(3), 4)
    with pytest.raises(ValueError, match="must be continuous"):
        soft_topk(torch.zeros(3), 1, distribution="heaviside")


def test_training_on_digits():
    """A linear model of scikit-learn's digits learns through the loss."""
    data = load_digits()
    images, labels = torch.tensor(data.data / 16.0, dtype=torch.float32), torch.tensor(data.target)
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 10)
    loss = softly.TopKCrossEntropy([0.5, 0.0, 0.0, 0.0, 0.5])
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(150):
        optimizer.zero_grad()
        loss(model(images[:1400]), labels[:1400]).backward()
        optimizer.step()
    ranks = model(images[1400:]).topk(3).indices == labels[1400:, None]
    assert ranks[:, 0].float().mean() > 0.85
    assert ranks.any(-1).float().mean() > 0.96


def test_straight_through_memberships():
    x = torch.tensor([3.0, 1.0, 2.0, 0.0], dtype=torch.float64, requires_grad=True)
    for k, expected in ((2, [1.0, 0.0, 1.0, 0.0]), (1.5, [1.0, 0.0, 0.5, 0.0])):
        hard = softly.selection.soft_topk(x, k, straight_through=True)
        assert hard.tolist() == expected
        weights = torch.linspace(-1, 1, 4, dtype=torch.float64)
        (through,) = torch.autograd.grad(hard, x, weights)
        (soft,) = torch.autograd.grad(softly.selection.soft_topk(x, k), x, weights)
        torch.testing.assert_close(through, soft)


@every
def test_which_sorters_give_a_value_one_place_in_all(sorter):
    values = torch.linspace(-1.0, 1.0, 9, dtype=torch.float64)
    columns = sorter.topk(values, 9).sum(-2)
    assert sorter.doubly_stochastic == torch.allclose(columns, torch.ones_like(columns), atol=1e-5)
