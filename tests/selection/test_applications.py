import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

import softly
from softly.selection import TopKGate, recall_loss, soft_knn

SORTERS = {
    "splitter": lambda steepness: softly.TopKNetwork(steepness=steepness),
    "bitonic": lambda steepness: softly.TopKNetwork("bitonic", distribution="logistic", steepness=steepness),
    "NeuralSort": lambda steepness: softly.NeuralSort(steepness=steepness),
    "SoftSort": lambda steepness: softly.SoftSort(steepness=steepness),
}
every = pytest.mark.parametrize("sorter", SORTERS.values(), ids=SORTERS.keys())


def digits():
    """Images with a little noise, so that no two distances are equal."""
    data = load_digits()
    generator = torch.Generator().manual_seed(0)
    images = torch.tensor(data.data) / 16.0
    return images + 1e-3 * torch.randn(images.shape, generator=generator, dtype=images.dtype), torch.tensor(data.target)


@every
@pytest.mark.parametrize("k", [1, 5])
def test_neighbours_vote_as_in_scikit_learn(sorter, k):
    images, labels = digits()
    keys, known, queries = images[:300], labels[:300], images[300:500]
    result = soft_knn(queries, keys, known, k, sorter=sorter(1e9), num_classes=10)
    expected = KNeighborsClassifier(k).fit(keys.numpy(), known.numpy()).predict_proba(queries.numpy())
    torch.testing.assert_close(result, torch.tensor(expected), atol=1e-4, rtol=0)


@every
def test_votes_are_probabilities_and_move_queries_and_keys(sorter):
    queries = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    keys = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 0, 2, 1, 2])
    function = lambda q, p: soft_knn(q, p, labels, 2, sorter=sorter(0.5), num_classes=5)  # noqa: E731
    votes = function(queries, keys)
    assert votes.shape == (2, 3, 5)
    assert (votes >= 0).all()
    assert (votes[..., 3:] == 0).all()
    torch.testing.assert_close(votes.sum(-1), torch.ones(2, 3, dtype=torch.float64))
    for grad in torch.autograd.grad(votes[..., 0].sum(), (queries, keys)):
        assert grad.ne(0).all()
    assert torch.autograd.gradcheck(function, (queries, keys), atol=1e-4, rtol=1e-3)


def test_number_of_classes_is_counted():
    keys, labels = torch.randn(4, 2), torch.tensor([0, 3, 1, 1])
    assert soft_knn(torch.randn(2), keys, labels, 2, sorter=softly.SoftSort()).shape == (4,)


def test_wrong_neighbours_are_refused():
    sorter = softly.SoftSort()
    with pytest.raises(ValueError, match=r"shapes \(\.\.\., d\) and \(n, d\), got \(3, 2\) and \(4, 3\)"):
        soft_knn(torch.zeros(3, 2), torch.zeros(4, 3), torch.zeros(4, dtype=torch.long), 1, sorter=sorter)
    with pytest.raises(ValueError, match=r"labels must be integers of shape \(4,\)"):
        soft_knn(torch.zeros(3, 2), torch.zeros(4, 2), torch.zeros(4), 1, sorter=sorter)


def recall(scores, relevant, k):
    """Counted one list at a time."""
    lists = []
    for row, wanted in zip(scores.tolist(), relevant.tolist(), strict=True):
        first = sorted(range(len(row)), key=lambda i: -row[i])[:k]
        if any(wanted):
            lists.append(sum(wanted[i] for i in first) / min(k, sum(wanted)))
    return sum(lists) / len(lists)


@every
@pytest.mark.parametrize("k", [1, 3, 12])
def test_recall_in_the_limit(sorter, k):
    scores = torch.randn(20, 12, dtype=torch.float64)
    relevant = torch.rand(20, 12) < 0.25
    relevant[0], relevant[1] = False, True
    loss = recall_loss(scores, relevant, k, sorter=sorter(1e9))
    assert loss.item() == pytest.approx(1 - recall(scores, relevant, k), abs=1e-5)


@every
def test_recall_has_a_gradient_everywhere(sorter):
    scores = torch.randn(3, 7, dtype=torch.float64, requires_grad=True)
    relevant = torch.rand(3, 7) < 0.5
    relevant[:, 0] = True
    function = lambda s: recall_loss(s, relevant, 3, sorter=sorter(1.0))  # noqa: E731
    (grad,) = torch.autograd.grad(function(scores), scores)
    assert grad.ne(0).all()
    assert torch.autograd.gradcheck(function, scores, atol=1e-4, rtol=1e-3)


def test_recall_stays_within_bounds_and_skips_lists_without_relevant_entries():
    sorter = softly.TopKNetwork(steepness=0.1)
    assert 0 <= recall_loss(torch.randn(50, 9), torch.rand(50, 9) < 0.5, 4, sorter=sorter) <= 1
    scores = torch.randn(2, 5)
    relevant = torch.tensor([[False] * 5, [True, False, False, True, False]])
    torch.testing.assert_close(
        recall_loss(scores, relevant, 2, sorter=sorter), recall_loss(scores[1], relevant[1], 2, sorter=sorter)
    )
    assert recall_loss(scores, torch.zeros(2, 5, dtype=torch.bool), 2, sorter=sorter) == 0
    with pytest.raises(ValueError, match="relevant must be boolean and of the shape of scores"):
        recall_loss(scores, relevant.float(), 2, sorter=sorter)


@pytest.mark.parametrize("k", [1, 2, 5, 8, 20])
def test_gate_in_the_limit(k):
    scores = torch.randn(30, 8, dtype=torch.float64)
    weights = TopKGate(k, steepness=1e9)(scores)
    top = scores.topk(min(k, 8), -1)
    expected = torch.zeros_like(scores).scatter(-1, top.indices, torch.softmax(top.values, -1))
    torch.testing.assert_close(weights, expected, atol=1e-6, rtol=0)
    assert ((weights > 1e-6).sum(-1) <= k).all()


@pytest.mark.parametrize("distribution", ["logistic", "cauchy", "gaussian"])
def test_gate_weights_sum_to_1_and_reach_every_expert(distribution):
    gate = TopKGate(2, distribution=distribution, steepness=2.0)
    scores = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    weights = gate(scores)
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, dtype=torch.float64))
    (grad,) = torch.autograd.grad(weights[:, 0].sum(), scores)
    assert grad.ne(0).all()
    assert torch.autograd.gradcheck(gate, scores, atol=1e-4, rtol=1e-3)


def test_gate_learns_its_steepness_and_stays_finite():
    gate = TopKGate(2, steepness=torch.nn.Parameter(torch.tensor(3.0)))
    gate(torch.randn(4, 6))[:, 0].sum().backward()
    (steepness,) = gate.parameters()
    assert steepness.grad.ne(0)
    scores = torch.tensor([1e4, -1e4, 0.0, 1e4, torch.inf, -torch.inf])
    assert TopKGate(3)(scores).isfinite().all()
    assert TopKGate(3)(scores.bfloat16()).dtype == torch.bfloat16
    with pytest.raises(ValueError, match="k must be >= 1, got 0"):
        TopKGate(0)
