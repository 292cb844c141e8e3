import itertools
import math

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import kendalltau, spearmanr
from sklearn.datasets import load_digits
from sklearn.metrics import ndcg_score

import softly
from softly.sorting import Annealer, metrics, ndcg_loss, ranking_loss, spearman_loss


def true_ranks(x: torch.Tensor) -> torch.Tensor:
    return x.argsort(-1).argsort(-1) + 1


def test_ranking_loss():
    x = torch.randn(3, 5, dtype=torch.float64)
    ranks = true_ranks(torch.randn(3, 5))
    P = softly.SoftSort(steepness=1.0).permutation(x)
    expected = np.mean([-math.log(P[b, ranks[b, i] - 1, i]) for b in range(3) for i in range(5)])
    assert float(ranking_loss(P, ranks)) == pytest.approx(expected)
    Q = torch.nn.functional.one_hot(ranks - 1, 5).mT.double()
    assert ranking_loss(Q, ranks) == 0
    assert ranking_loss(1.0 - Q, ranks).isfinite()
    lengths = torch.tensor([5, 2, 3])
    P = softly.SoftSort(steepness=1.0).permutation(x, lengths=lengths)
    ranks = torch.stack([torch.nn.functional.pad(true_ranks(x[i, :n]), (0, 5 - n)) for i, n in enumerate(lengths)])
    alone = [
        -softly.SoftSort(steepness=1.0).permutation(x[i, :n]).gather(0, (true_ranks(x[i, :n]) - 1)[None]).log().sum()
        for i, n in enumerate(lengths)
    ]
    torch.testing.assert_close(ranking_loss(P, ranks), sum(alone) / 10)


def test_spearman_loss():
    x, y = torch.randn(2, 9, dtype=torch.float64)
    loss = spearman_loss(true_ranks(x).double(), true_ranks(y))
    assert float(1 - loss) == pytest.approx(spearmanr(x, y).statistic)
    assert spearman_loss(true_ranks(x).double(), true_ranks(x)) == 0
    assert spearman_loss(torch.ones(2, 1), torch.ones(2, 1)) == 0
    padded = torch.tensor([[1.0, 2.0, 0.0], [3.0, 2.0, 1.0]])
    assert float(spearman_loss(padded, torch.tensor([[2, 1, 0], [1, 2, 3]]))) == pytest.approx((2 + 2) / 2)


LENGTHS = torch.tensor([5, 2, 3])


def padded_ranks(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    n = x.shape[-1]
    return torch.stack(
        [torch.nn.functional.pad(true_ranks(x[i, :m]), (0, n - m)) for i, m in enumerate(lengths.tolist())]
    )


@pytest.mark.parametrize("kind", ["cross_entropy", "binary_cross_entropy"])
def test_kinds_and_reductions_of_the_ranking_loss(kind):
    """By plain loops over lists, ranks and inputs; alike for probabilities and their logarithms."""
    x = torch.randn(3, 5, dtype=torch.float64)
    P = softly.NeuralSort(steepness=0.5).permutation(x, lengths=LENGTHS)
    ranks = padded_ranks(torch.randn(3, 5), LENGTHS)
    terms = []
    for b, m in enumerate(LENGTHS.tolist()):
        if kind == "cross_entropy":
            terms.append([-math.log(P[b, ranks[b, i] - 1, i]) for i in range(m)])
        else:
            terms.append(
                [-math.log(P[b, r, i] if ranks[b, i] == r + 1 else 1 - P[b, r, i]) for i in range(m) for r in range(m)]
            )
    each = torch.tensor([np.mean(t) for t in terms], dtype=torch.float64)
    for log in (False, True):
        M = P.log() if log else P
        torch.testing.assert_close(ranking_loss(M, ranks, kind=kind, log=log, reduction="none"), each)
        torch.testing.assert_close(ranking_loss(M, ranks, kind=kind, log=log, reduction="sum"), each.sum())
        everything = torch.tensor(np.concatenate(terms).mean())
        torch.testing.assert_close(ranking_loss(M, ranks, kind=kind, log=log), everything)
    Q = torch.nn.functional.one_hot(true_ranks(x) - 1, 5).mT.double()
    assert ranking_loss(Q, true_ranks(x), kind=kind) == 0
    assert ranking_loss(Q.log(), true_ranks(x), kind=kind, log=True) == 0
    assert ranking_loss(Q.flip(-1), true_ranks(x), kind=kind).isfinite()
    assert ranking_loss(Q.flip(-1).log(), true_ranks(x), kind=kind, log=True).isfinite()
    for log in (False, True):

        def function(y: torch.Tensor, log: bool = log) -> torch.Tensor:
            P = softly.SoftSort(steepness=1.0).permutation(y)
            return ranking_loss(P.log() if log else P, true_ranks(-x), kind=kind, log=log)

        assert torch.autograd.gradcheck(function, x.clone().requires_grad_())
        assert torch.autograd.gradgradcheck(function, x.clone().requires_grad_())


def test_ranks_that_are_no_ranking_are_refused():
    P = softly.SoftSort().permutation(torch.randn(2, 3))
    soft = softly.SoftSort().rank(torch.randn(2, 3))
    good = torch.tensor([[3, 1, 2], [1, 2, 3]])
    for wrong, message in [
        (good - 1, r"count from 1, and 0 is for padding.* need 1 added; .* order\.argsort\(-1\) \+ 1"),
        (-good, "must be from 1 to n = 3, or 0 for padding, got -3 to -1"),
        (good + 1, "must be from 1 to n = 3, or 0 for padding, got 2 to 4"),
        (torch.tensor([[1, 1, 2], [1, 2, 3]]), "each once; some are missing or given twice"),
        (torch.tensor([[1, 2, 0], [1, 2, 3]]), "an entry that is none has rank 0"),
    ]:
        with pytest.raises(ValueError, match=f"softly.sorting.ranking_loss: .*{message}"):
            ranking_loss(P, wrong)
        with pytest.raises(ValueError, match=f"softly.sorting.ranking_loss: .*{message}"):
            ranking_loss(P.log(), wrong, log=True)
        with pytest.raises(ValueError, match=f"softly.sorting.spearman_loss: .*{message}"):
            spearman_loss(soft, wrong)
    with pytest.raises(ValueError, match="each once; some are missing"):
        ranking_loss(
            softly.SoftSort().permutation(torch.randn(1, 3), lengths=torch.tensor([2])), torch.tensor([[1, 3, 0]])
        )


def test_checks_of_ranks_stay_out_of_transforms():
    P, ranks = softly.SoftSort().permutation(torch.randn(4, 3)), true_ranks(torch.randn(4, 3))
    expected = ranking_loss(P, ranks, reduction="none")
    torch.testing.assert_close(torch.func.vmap(ranking_loss)(P, ranks), expected)
    torch.testing.assert_close(torch.func.vmap(ranking_loss, (0, 1))(P, ranks.T.contiguous()), expected)
    compiled = torch.compile(ranking_loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(P, ranks), expected.mean())


def test_reductions_are_one_of_three():
    x, ranks = torch.randn(2, 3, dtype=torch.float64), torch.tensor([[1, 2, 3], [3, 1, 2]])
    losses = [
        lambda **o: ranking_loss(softly.SoftSort().permutation(x), ranks, **o),
        lambda **o: spearman_loss(softly.SoftSort().rank(x), ranks, **o),
        lambda **o: ndcg_loss(x, ranks, sorter="softsort", **o),
        lambda **o: softly.selection.recall_loss(x, ranks > 1, 2, sorter="splitter", **o),
        lambda **o: softly.TopKCrossEntropy([0.5, 0.5], **o)(x, torch.tensor([0, 2])),
        lambda **o: softly.selection.SmoothTopKLoss(1, **o)(x, torch.tensor([0, 2])),
    ]
    for loss in losses:
        each = loss(reduction="none")
        assert each.shape == (2,)
        torch.testing.assert_close(loss(reduction="sum"), each.sum())
        torch.testing.assert_close(loss(reduction="mean"), each.mean())
        torch.testing.assert_close(loss(), each.mean())
        with pytest.raises(ValueError, match="reduction must be one of mean, sum, none, got 'max'"):
            loss(reduction="max")


def test_ndcg_by_the_name_of_a_sorter():
    scores, grades = torch.randn(3, 6, dtype=torch.float64), torch.randint(0, 4, (3, 6))
    for name, sorter in (("odd_even", softly.SortingNetwork("odd_even")), ("neuralsort", softly.NeuralSort())):
        torch.testing.assert_close(ndcg_loss(scores, grades, sorter=name), ndcg_loss(scores, grades, sorter=sorter))
    with pytest.raises(ValueError, match="ndcg_loss: unknown sorter 'bogo'"):
        ndcg_loss(scores, grades, sorter="bogo")
    with pytest.raises(ValueError, match="ndcg_loss: grades must not be negative, got -1"):
        ndcg_loss(scores, torch.full((3, 6), -1), sorter="softsort")
    hidden = torch.cat([grades, torch.full((3, 2), -1)], -1)  # what is padding may be anything
    wide = torch.cat([scores, torch.zeros(3, 2, dtype=torch.float64)], -1)
    alone = ndcg_loss(scores, grades, sorter="softsort")
    torch.testing.assert_close(ndcg_loss(wide, hidden, sorter="softsort", lengths=torch.tensor([6, 6, 6])), alone)


@pytest.mark.parametrize("k", [None, 3])
def test_ndcg_is_that_of_sklearn_in_the_limit(k):
    scores, grades = torch.randn(6, 8, dtype=torch.float64), torch.randint(0, 5, (6, 8))
    for sorter in (
        softly.SortingNetwork(steepness=1e9),
        softly.NeuralSort(steepness=1e9),
        softly.SoftSort(steepness=1e9),
    ):
        linear = ndcg_loss(scores, grades, sorter=sorter, k=k, gain="linear")
        assert float(linear) == pytest.approx(1 - ndcg_score(grades, scores, k=k), abs=1e-6)
        exponential = ndcg_loss(scores, grades, sorter=sorter, k=k)
        assert float(exponential) == pytest.approx(1 - ndcg_score(2.0**grades - 1, scores, k=k), abs=1e-6)


def test_ndcg_through_neuralsort_is_neuralndcg_and_pirank():
    """Their formulas in numpy: gains permuted by NeuralSort's matrix from the largest, at all ranks or the first k."""
    generator = np.random.default_rng(3)
    scores, grades, s = generator.normal(size=7), generator.integers(0, 5, 7), 1.3
    n, ranks = 7, np.arange(1, 8)
    distances = np.abs(scores[:, None] - scores).sum(1)
    P = softmax(s * ((n + 1 - 2 * ranks)[:, None] * scores - distances), axis=-1)
    gains, discount = 2.0**grades - 1, 1 / np.log2(1 + ranks)
    for k in (n, 3):
        expected = 1 - (discount * (P @ gains))[:k].sum() / (discount * np.sort(gains)[::-1])[:k].sum()
        ours = ndcg_loss(torch.tensor(scores), torch.tensor(grades), sorter=softly.NeuralSort(steepness=s), k=k)
        assert float(ours) == pytest.approx(expected, abs=1e-12)


def test_ndcg_of_unequal_lists():
    scores, grades = torch.randn(3, 6, dtype=torch.float64, requires_grad=True), torch.randint(1, 5, (3, 6))
    lengths = torch.tensor([6, 2, 4])
    sorter = softly.NeuralSort(steepness=2.0)
    loss = ndcg_loss(scores, grades, sorter=sorter, lengths=lengths)
    alone = [ndcg_loss(scores[i, :n], grades[i, :n], sorter=sorter) for i, n in enumerate(lengths)]
    torch.testing.assert_close(loss, sum(alone) / 3)
    (grad,) = torch.autograd.grad(loss, scores)
    assert grad[1, 2:].eq(0).all()
    mask = torch.arange(6) < lengths[:, None]
    torch.testing.assert_close(loss, ndcg_loss(scores, grades, sorter=sorter, mask=mask))
    nothing = ndcg_loss(scores, torch.zeros(3, 6), sorter=sorter)
    assert nothing == 0


def test_metrics():
    target = torch.tensor([[1, 2, 3, 4], [4, 3, 2, 1]])
    scores = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.1, 0.2]])
    assert metrics.exact_match(scores, target) == 0.5
    assert metrics.elementwise_match(scores, target) == 0.75
    assert metrics.exact_match_k(scores, target, k=2) == 0.75
    x, y = torch.randint(0, 6, (2, 30))
    assert float(metrics.kendall_tau(x, y)) == pytest.approx(kendalltau(x, y).statistic, abs=1e-6)
    with pytest.raises(ValueError, match=r"k must be in \[1, 4\], got 5"):
        metrics.exact_match_k(scores, target)
    with pytest.raises(ValueError, match="must have one shape"):
        metrics.exact_match(scores, target[0])


def test_ties_match_only_ties():
    """Constant scores say nothing, and are right only about what is constant."""
    target = torch.tensor([[1, 2, 3], [2, 1, 1], [5, 5, 5]])
    constant = torch.zeros(3, 3)
    assert metrics.exact_match(constant, target).item() == pytest.approx(1 / 3)
    assert metrics.elementwise_match(constant, target).item() == pytest.approx(1 / 3)
    assert metrics.exact_match(torch.zeros(4, 5), torch.rand(4, 5)) == 0
    assert metrics.exact_match_k(torch.zeros(4, 5), torch.rand(4, 5)) == 0
    assert metrics.exact_match(torch.tensor([0.3, 0.1, 0.1]), torch.tensor([2, 1, 1])) == 1
    assert metrics.exact_match(torch.tensor([0.3, 0.1, 0.2]), torch.tensor([2, 1, 1])) == 0
    assert metrics.elementwise_match(torch.tensor([0.3, 0.1, 0.1]), torch.tensor([3, 2, 1])).item() == pytest.approx(
        1 / 3
    )
    assert metrics.exact_match(torch.tensor([math.nan, 1.0]), torch.tensor([2, 1])) == 0
    for scores, truth in itertools.product(itertools.product(range(3), repeat=3), repeat=2):
        same = all(np.sign(scores[i] - scores[j]) == np.sign(truth[i] - truth[j]) for i in range(3) for j in range(3))
        assert metrics.exact_match(torch.tensor(scores), torch.tensor(truth)) == same


def test_kendall_tau_of_what_has_no_order():
    x = torch.tensor([[0.1, 0.4, 0.2]])
    assert metrics.kendall_tau(torch.zeros(1, 3), x) == 0
    assert metrics.kendall_tau(x, torch.zeros(1, 3)) == 0
    assert metrics.kendall_tau(torch.zeros(2, 1), torch.zeros(2, 1)) == 0
    assert metrics.kendall_tau(torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.tensor([[0, 1], [0, 1]])) == 0.5
    assert metrics.kendall_tau(torch.tensor([math.nan, 1.0, 2.0]), torch.tensor([1, 2, 3])).isnan()


@pytest.mark.parametrize("k", [None, 1, 3, 20])
def test_ndcg_metric_is_that_of_sklearn(k):
    grades = torch.randint(0, 4, (20, 7))
    grades[:, 0] = 1
    for scores in (torch.randn(20, 7), torch.randint(0, 3, (20, 7)).float(), torch.zeros(20, 7)):  # ties too
        linear = metrics.ndcg(scores, grades, k=k, gain="linear")
        assert linear.item() == pytest.approx(ndcg_score(grades, scores, k=k), abs=1e-6)
        exponential = metrics.ndcg(scores, grades, k=k)
        assert exponential.item() == pytest.approx(ndcg_score(2.0**grades - 1, scores, k=k), abs=1e-6)


@pytest.mark.parametrize("metric", [metrics.ndcg, metrics.mrr])
def test_metrics_of_unequal_lists(metric):
    scores, grades = torch.randint(0, 3, (8, 6)).float(), torch.randint(0, 3, (8, 6))
    scores[scores == 0] = -math.inf
    lengths = torch.tensor([6, 2, 4, 1, 3, 6, 5, 0])
    grades[torch.arange(6) >= lengths[:, None]] = -1
    alone = [metric(scores[i, :n], grades[i, :n], k=3) for i, n in enumerate(lengths) if grades[i, :n].gt(0).any()]
    expected = sum(alone) / len(alone)
    torch.testing.assert_close(metric(scores, grades, k=3, lengths=lengths), expected)
    order = torch.randperm(6)
    mask = (torch.arange(6) < lengths[:, None])[:, order]
    torch.testing.assert_close(metric(scores[:, order], grades[:, order], k=3, mask=mask), expected)
    assert metric(scores, torch.zeros(8, 6)) == 0


@pytest.mark.parametrize("k", [None, 2])
def test_mrr_is_the_mean_over_all_orders_of_ties(k):
    for _ in range(12):
        scores, grades = torch.randint(0, 3, (5,)).float(), torch.randint(0, 2, (5,))
        if not grades.any():
            continue
        found = []
        for tiebreak in itertools.permutations(range(5)):
            order = sorted(range(5), key=lambda i, t=tiebreak: (-scores[i].item(), t[i]))
            rank = 1 + next(r for r, i in enumerate(order) if grades[i])
            found.append(1 / rank if rank <= (k or 5) else 0.0)
        assert metrics.mrr(scores, grades, k=k).item() == pytest.approx(np.mean(found), abs=1e-6)


@pytest.mark.parametrize("shape", ["geometric", "linear", "cosine"])
def test_annealer(shape):
    sorters = softly.SoftSort(), softly.NeuralSort()
    annealer = Annealer(*sorters, start=2.0, end=32.0, steps=4, shape=shape)
    seen = [sorters[0].steepness]
    for _ in range(6):
        annealer.step()
        assert sorters[0].steepness == sorters[1].steepness == annealer.steepness
        seen.append(sorters[0].steepness)
    assert seen[0] == 2.0
    assert seen[4:] == pytest.approx([32.0] * 3)
    assert seen[2] == pytest.approx({"geometric": 8.0, "linear": 17.0, "cosine": 17.0}[shape])
    again = Annealer(softly.SoftSort(), start=2.0, end=32.0, steps=4, shape=shape)
    again.load_state_dict(annealer.state_dict())
    assert again.steepness == annealer.steepness


def test_bad_input():
    P = torch.eye(3)
    with pytest.raises(ValueError, match=r"P must have shape \(..., n, n\), got \(3, 2\)"):
        ranking_loss(P[:, :2], torch.ones(3, dtype=torch.long))
    with pytest.raises(ValueError, match=r"target_ranks must be integers of shape \(3,\)"):
        ranking_loss(P, torch.ones(3))
    with pytest.raises(ValueError, match="must have one shape"):
        spearman_loss(torch.ones(3), torch.ones(2))
    with pytest.raises(ValueError, match="gain must be 'exponential' or 'linear'"):
        ndcg_loss(torch.ones(3), torch.ones(3), sorter=softly.SoftSort(), gain="log")
    with pytest.raises(ValueError, match="shape must be one of geometric"):
        Annealer(softly.SoftSort(), start=1.0, end=2.0, steps=3, shape="steps")
    with pytest.raises(TypeError, match="must have a steepness"):
        Annealer(object(), start=1.0, end=2.0, steps=3)


@pytest.mark.parametrize(
    "sorter",
    [
        softly.SortingNetwork("odd_even", steepness=4.0),
        softly.SortingNetwork("bitonic", distribution="optimal", steepness=8.0),
        softly.NeuralSort(steepness=2.0),
        softly.SoftSort(steepness=4.0),
    ],
    ids=["odd_even", "bitonic", "NeuralSort", "SoftSort"],
)
def test_order_alone_teaches_digits(sorter):
    """A linear model learns the value of scikit-learn's digits from the order of triples."""
    data = load_digits()
    keep = np.isin(data.target, [0, 1, 2, 3])
    images = torch.tensor(data.data[keep] / 16.0, dtype=torch.float32)
    labels = torch.tensor(data.target[keep])
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)

    def draw(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        index = torch.randint(len(images), (4 * count, 3), generator=generator)
        different = labels[index].sort(-1).values.diff(dim=-1).gt(0).all(-1)
        return images[index[different][:count]], labels[index[different][:count]]

    for _ in range(150):
        x, y = draw(100)
        loss = ranking_loss(sorter.permutation(model(x).squeeze(-1)), true_ranks(y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x, y = draw(500)
    assert metrics.exact_match(model(x).squeeze(-1), y) > 0.9


def test_targets_that_are_no_ranks_are_refused():
    x = torch.tensor([[0.3, 2.0, -1.0, 0.7]])
    log_P, ranks = softly.SoftSort().log_permutation(x), softly.SoftSort().rank(x)
    order = x.argsort(-1)  # where the ranks' inputs are, and not what rank inputs have
    with pytest.raises(ValueError, match="count from 0 need 1 added"):
        ranking_loss(log_P, order, log=True)
    with pytest.raises(ValueError, match="count from 0 need 1 added"):
        spearman_loss(ranks, order)
    ties = torch.tensor([[1, 2, 2, 4]])
    with pytest.raises(ValueError, match="missing or given twice"):
        ranking_loss(log_P, ties, log=True)
    with pytest.raises(ValueError, match="must be from 1 to n = 4"):
        ranking_loss(log_P, torch.tensor([[1, 2, 3, 5]]), log=True)
