"""The usual losses of learning to rank, by plain loops over lists, entries and pairs."""

import math

import pytest
import torch

import softly
from softly.sorting import approx_ndcg_loss, lambda_loss, listmle_loss, listnet_loss, metrics, ranknet_loss


def ranknet(s, g, steepness=1.0):
    pairs = [(i, j) for i in range(len(s)) for j in range(len(s)) if g[i] > g[j]]
    return sum(math.log1p(math.exp(-steepness * (s[i] - s[j]))) for i, j in pairs) / max(len(pairs), 1)


def normalised(g):
    gains = [2.0**v - 1 for v in g]
    best = sum(v / math.log2(r + 2) for r, v in enumerate(sorted(gains, reverse=True)))
    return [v / (best or 1.0) for v in gains]


def lambdas(s, g, steepness=1.0, weighting="ndcg2++", mu=10.0):
    n, gains = len(s), normalised(g)
    rank = {i: r + 1 for r, i in enumerate(sorted(range(n), key=lambda i: -s[i]))}
    discount = lambda r: 1 / math.log2(1 + r)  # noqa: E731
    total = 0.0
    for i in range(n):
        for j in range(n):
            if g[i] > g[j]:
                rho = abs(discount(rank[i]) - discount(rank[j]))
                apart = abs(rank[i] - rank[j])
                delta = abs(discount(apart) - discount(apart + 1))
                weight = {"lambdarank": rho, "ndcg2": delta, "ndcg2++": rho + mu * delta}[weighting]
                total += weight * abs(gains[i] - gains[j]) * math.log2(1 + math.exp(-steepness * (s[i] - s[j])))
    return total


def listnet(s, g):
    share = lambda v, i: math.exp(v[i]) / sum(map(math.exp, v))  # noqa: E731
    return -sum(share(g, i) * math.log(share(s, i)) for i in range(len(s)))


def listmle(s, g):
    return -sum(s[i] - math.log(sum(math.exp(s[j]) for j in range(len(s)) if g[j] <= g[i])) for i in range(len(s)))


def approx_ndcg(s, g, steepness=10.0):
    if not any(g):
        return 0.0
    found = 0.0
    for i, gain in enumerate(normalised(g)):
        rank = 1 + sum(1 / (1 + math.exp(-steepness * (s[j] - s[i]))) for j in range(len(s)) if j != i)
        found += gain / math.log2(1 + rank)
    return 1 - found


def pairs(g):
    return sum(a > b for a in g for b in g)


CASES = [
    (ranknet_loss, ranknet, {}, pairs),
    (ranknet_loss, ranknet, {"steepness": 2.5}, pairs),
    *((lambda_loss, lambdas, {"weighting": w}, lambda g: any(g)) for w in ("ndcg2++", "ndcg2", "lambdarank")),
    (lambda_loss, lambdas, {"mu": 3.0, "steepness": 0.7}, lambda g: any(g)),
    (listnet_loss, listnet, {}, lambda g: bool(g)),
    (listmle_loss, listmle, {}, lambda g: bool(g)),
    (approx_ndcg_loss, approx_ndcg, {}, lambda g: any(g)),
    (approx_ndcg_loss, approx_ndcg, {"steepness": 2.0}, lambda g: any(g)),
]


@pytest.mark.parametrize(("loss", "judge", "options", "count"), CASES)
def test_losses_are_their_definitions(loss, judge, options, count):
    scores = torch.randn(6, 5, dtype=torch.float64)
    grades = torch.randint(0, 4, (6, 5))
    lengths = torch.tensor([5, 2, 3, 1, 4, 0])
    grades[2, :3] = 0
    grades[torch.arange(5) >= lengths[:, None]] = -7
    rows = [(s[:n].tolist(), g[:n].tolist()) for s, g, n in zip(scores, grades, lengths.tolist(), strict=True)]
    each = torch.tensor([judge(s, g, **options) for s, g in rows], dtype=torch.float64)
    counts = torch.tensor([float(count(g)) for _, g in rows], dtype=torch.float64)
    torch.testing.assert_close(loss(scores, grades, lengths=lengths, reduction="none", **options), each)
    torch.testing.assert_close(loss(scores, grades, lengths=lengths, reduction="sum", **options), each.sum())
    mean = (each * counts).sum() / counts.sum()
    torch.testing.assert_close(loss(scores, grades, lengths=lengths, **options), mean)
    order = torch.randperm(5)
    mask = (torch.arange(5) < lengths[:, None])[:, order]
    torch.testing.assert_close(loss(scores[:, order], grades[:, order], mask=mask, **options), mean)
    x = scores.clone().requires_grad_()
    function = lambda x: loss(x, grades, lengths=lengths, **options)  # noqa: E731
    assert torch.autograd.gradcheck(function, x)
    assert torch.autograd.gradgradcheck(function, x)
    (grad,) = torch.autograd.grad(function(x), x)
    assert grad[torch.arange(5) >= lengths[:, None]].eq(0).all()


def test_approx_ndcg_is_the_metric_in_the_limit():
    scores, grades = torch.randn(9, 7, dtype=torch.float64), torch.randint(0, 4, (9, 7))
    for gain in ("exponential", "linear"):
        limit = approx_ndcg_loss(scores, grades, steepness=1e7, gain=gain)
        assert 1 - limit.item() == pytest.approx(metrics.ndcg(scores, grades, gain=gain).item(), abs=1e-5)


def test_the_order_in_which_ties_are_written_does_not_matter():
    scores, grades = torch.randn(7, dtype=torch.float64), torch.tensor([0, 2, 1, 1, 2, 0, 1])
    order = torch.randperm(7)
    for loss in (ranknet_loss, lambda_loss, listnet_loss, listmle_loss, approx_ndcg_loss):
        torch.testing.assert_close(loss(scores[order], grades[order]), loss(scores, grades))


def test_listmle_is_the_likelihood_of_an_order():
    """Over all orders of three entries, the likelihoods add up to 1."""
    scores = torch.randn(3, dtype=torch.float64)
    orders = torch.tensor([[1, 2, 3], [1, 3, 2], [2, 1, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]])
    losses = listmle_loss(scores.expand(6, -1), orders, reduction="none")
    torch.testing.assert_close(torch.exp(-losses).sum(), torch.tensor(1.0, dtype=torch.float64))


@pytest.mark.parametrize("loss", [ranknet_loss, lambda_loss, listnet_loss, listmle_loss, approx_ndcg_loss])
def test_borders(loss):
    grades = torch.tensor([[0, 2, 1, 3], [1, 1, 0, 0]])
    for scores in (torch.zeros(2, 4), 1e4 * torch.randn(2, 4), torch.full((2, 4), -math.inf)):
        x = scores.clone().requires_grad_()
        value = loss(x, grades)
        assert value.isfinite()
        assert torch.autograd.grad(value, x)[0].isfinite().all()
    single = loss(torch.randn(2, 4).bfloat16(), grades)
    assert single.dtype == torch.bfloat16
    name = f"softly.sorting.{loss.__name__}"
    with pytest.raises(ValueError, match=f"{name}: scores and grades must have one shape"):
        loss(torch.zeros(3), grades)
    with pytest.raises(ValueError, match=f"{name}: grades must not be negative, got -1"):
        loss(torch.zeros(2, 4), grades - 1)
    with pytest.raises(ValueError, match=f"{name}: give lengths or mask, not both"):
        loss(torch.zeros(2, 4), grades, lengths=torch.tensor([4, 4]), mask=torch.ones(2, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match=f"{name}: reduction must be one of"):
        loss(torch.zeros(2, 4), grades, reduction="max")


def test_bad_choices():
    x, grades = torch.zeros(3), torch.tensor([0, 1, 2])
    with pytest.raises(ValueError, match="weighting must be one of ndcg2"):
        lambda_loss(x, grades, weighting="ndcg1")
    with pytest.raises(ValueError, match="mu must not be negative"):
        lambda_loss(x, grades, mu=-1.0)
    with pytest.raises(ValueError, match="gain must be 'exponential' or 'linear'"):
        approx_ndcg_loss(x, grades, gain="log")
    with pytest.raises(ValueError, match="steepness must be positive"):
        softly.sorting.ranknet_loss(x, grades, steepness=0)
