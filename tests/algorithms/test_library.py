"""The library of algorithms: hard limits against independent judges, derivatives, and the hard runs."""

import bisect
import itertools
import math

import networkx
import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.path import Path as Polygon
from rapidfuzz.distance import LCSseq, Levenshtein
from sklearn.tree import DecisionTreeRegressor

import softly
from softly.algorithms import library

STEEP = 1e7
# Twenty examples of fifty inputs each are a thousand.
BATCH = 50
thousand = settings(max_examples=20, deadline=None, derandomize=True)
seeds = st.integers(0, 2**31 - 1)


def steep(function, **options):
    return function.using(steepness=STEEP, **options)


def draw(seed, *shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def near(actual, expected, tolerance=1e-5):
    expected = torch.as_tensor(np.asarray(expected), dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


def letters(seed, n, alphabet=3):
    codes = torch.randint(alphabet, (BATCH, n), generator=torch.Generator().manual_seed(seed))
    return codes, torch.nn.functional.one_hot(codes, alphabet).double()


@thousand
@given(seeds, st.integers(1, 6))
def test_bubble_sort_sorts_and_counts_inversions(seed, n):
    x = draw(seed, BATCH, n)
    array, swaps = steep(library.bubble_sort)(x)
    near(array, np.sort(x, axis=1))
    if n > 1:
        # Kendall's τ is (concordant - discordant) / pairs.
        tau = [scipy.stats.kendalltau(row, np.arange(n)).statistic for row in x.numpy()]
        near(swaps, (1 - np.array(tau)) / 2 * math.comb(n, 2))


def test_bubble_sort_of_two_is_the_logistic_swap():
    x = torch.randn(20, 2, dtype=torch.float64)
    array, swaps = library.bubble_sort.using(steepness=3.0)(x)
    low, high, keep = softly.swap(x[:, 0], x[:, 1], distribution="logistic", steepness=3.0)
    torch.testing.assert_close(array, torch.stack((low, high), 1))
    torch.testing.assert_close(swaps, 1 - keep)


def test_bubble_sort_loss_is_the_probability_of_any_swap():
    x = torch.randn(6, 3, dtype=torch.float64)
    p1 = torch.sigmoid(8 * (x[:, 0] - x[:, 1]))
    first, second = torch.lerp(x[:, 0], x[:, 1], p1), torch.lerp(x[:, 1], x[:, 0], p1)
    p2 = torch.sigmoid(8 * (second - x[:, 2]))
    second = torch.lerp(second, x[:, 2], p2)
    p3 = torch.sigmoid(8 * (first - second))
    torch.testing.assert_close(library.bubble_sort_loss(x), 1 - (1 - p1) * (1 - p2) * (1 - p3))


@thousand
@given(seeds, st.integers(2, 6))
def test_bubble_sort_loss_tells_sorted_arrays_from_others(seed, n):
    x = draw(seed, BATCH, n)
    x[::2] = x[::2].sort(1).values
    near(steep(library.bubble_sort_loss)(x), (np.diff(x, axis=1) < 0).any(1).astype(float))


@thousand
@given(seeds, st.integers(1, 6))
def test_insertion_sort(seed, n):
    x = draw(seed, BATCH, n)
    near(steep(library.insertion_sort)(x), np.sort(x, axis=1))


@thousand
@given(seeds, st.integers(1, 9))
def test_binary_search(seed, n):
    array, target = draw(seed, BATCH, n).sort(1).values, draw(seed + 1, BATCH)
    expected = [bisect.bisect_left(list(row), t) for row, t in zip(array.numpy(), target.numpy(), strict=True)]
    near(steep(library.binary_search)(array, target), expected)


@thousand
@given(seeds, st.integers(1, 5), st.integers(1, 5))
def test_levenshtein(seed, n, m):
    (s, s_hot), (t, t_hot) = letters(seed, n), letters(seed + 1, m)
    expected = [Levenshtein.distance(a.tolist(), b.tolist()) for a, b in zip(s, t, strict=True)]
    near(steep(library.levenshtein_program)(s_hot, t_hot)[:, -1, -1], expected)


@thousand
@given(seeds, st.integers(1, 5), st.integers(1, 5))
def test_longest_common_subsequence(seed, n, m):
    (s, s_hot), (t, t_hot) = letters(seed, n), letters(seed + 1, m)
    expected = [LCSseq.similarity(a.tolist(), b.tolist()) for a, b in zip(s, t, strict=True)]
    near(steep(library.longest_common_subsequence)(s_hot, t_hot), expected)


def warp(a, b):
    """Every alignment, one by one."""
    if len(a) == 1 or len(b) == 1:
        return np.abs(np.subtract.outer(a, b)).sum()
    rest = min(warp(a[:-1], b), warp(a, b[:-1]), warp(a[:-1], b[:-1]))
    return rest + abs(a[-1] - b[-1])


@thousand
@given(seeds, st.integers(1, 4), st.integers(1, 5))
def test_dynamic_time_warping(seed, n, m):
    a, b = draw(seed, BATCH, n), draw(seed + 1, BATCH, m)
    near(steep(library.dynamic_time_warping)(a, b), [warp(x, y) for x, y in zip(a.numpy(), b.numpy(), strict=True)])


@thousand
@given(seeds, st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 12))
def test_knapsack(seed, weights, capacity):
    values = draw(seed, BATCH, len(weights))
    packed = np.array([c for c in itertools.product((0, 1), repeat=len(weights)) if np.dot(c, weights) <= capacity])
    near(steep(library.knapsack)(values, weights, capacity), (values.numpy() @ packed.T).max(1))


@thousand
@given(seeds, st.integers(1, 4), st.integers(1, 3))
def test_viterbi(seed, steps, states):
    emissions, transitions = draw(seed, BATCH, steps, states), draw(seed + 1, BATCH, states, states)
    score, path = steep(library.viterbi)(emissions, transitions)
    sequences = np.array(list(itertools.product(range(states), repeat=steps)))
    e, t = emissions.numpy(), transitions.numpy()
    totals = e[:, np.arange(steps), sequences].sum(2) + t[:, sequences[:, :-1], sequences[:, 1:]].sum(2)
    near(score, totals.max(1))
    near(torch.stack(path, 1).argmax(2).double(), sequences[totals.argmax(1)])


def grid_graph(costs):
    graph = networkx.DiGraph()
    h, w = costs.shape
    for i, j in np.ndindex(h, w):
        for a, b in itertools.product((i - 1, i, i + 1), (j - 1, j, j + 1)):
            if (a, b) != (i, j) and 0 <= a < h and 0 <= b < w:
                graph.add_edge((i, j), (a, b), weight=costs[a, b])
    graph.add_node((0, 0))
    return graph


def dijkstra(costs):
    """The path as a mask, and all distances."""
    h, w = costs.shape
    distances, paths = networkx.single_source_dijkstra(grid_graph(costs), (0, 0))
    mask = np.zeros((h, w))
    mask[tuple(np.transpose(paths[h - 1, w - 1]))] = 1
    return mask, np.array([[distances[i, j] for j in range(w)] for i in range(h)]) + costs[0, 0]


@thousand
@given(seeds, st.integers(1, 3), st.integers(1, 3))
def test_shortest_path(seed, h, w):
    costs = 0.1 + draw(seed, BATCH, h, w)
    paths, distances = steep(library.shortest_path_program)(costs)
    expected = [dijkstra(c) for c in costs.numpy()]
    near(paths, [p for p, _ in expected])
    near(distances, [d for _, d in expected])


@thousand
@given(seeds, st.integers(1, 3), st.integers(1, 3))
def test_bellman_ford_until_nothing_changes(seed, h, w):
    costs = 0.1 + draw(seed, BATCH, h, w)
    paths, distances = library.bellman_ford.using(steepness=1e7)(costs, 1e-5)
    expected = [dijkstra(c) for c in costs.numpy()]
    near(paths, [p for p, _ in expected])
    near(distances, [d for _, d in expected], 1e-4)


@thousand
@given(seeds, st.integers(1, 4))
def test_floyd_warshall(seed, n):
    weights = draw(seed, BATCH, n, n) * (1 - torch.eye(n))
    graphs = [networkx.from_numpy_array(w + np.eye(n), create_using=networkx.DiGraph) for w in weights.numpy()]
    expected = [networkx.floyd_warshall_numpy(g) for g in graphs]
    near(steep(library.floyd_warshall)(weights), expected)


@thousand
@given(seeds, st.integers(1, 5), st.floats(0.1, 0.6))
def test_connected_components(seed, n, density):
    edges = (draw(seed, BATCH, n, n) < density).triu(1)
    adjacency = (edges | edges.mT).double()
    expected = np.zeros((BATCH, n))
    for b in range(BATCH):
        for component in networkx.connected_components(networkx.from_numpy_array(adjacency[b].numpy())):
            expected[b, list(component)] = min(component)
    near(torch.stack(steep(library.connected_components)(adjacency), 1), expected)


def test_decision_tree():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(1000, 4)).astype(np.float32).astype(float), rng.normal(size=1000)
    model = DecisionTreeRegressor(max_depth=4, random_state=0).fit(x, y)
    tree = model.tree_

    def build(node):
        if tree.children_left[node] < 0:
            return float(tree.value[node].item())
        threshold = float(tree.threshold[node])
        return (int(tree.feature[node]), threshold, build(tree.children_left[node]), build(tree.children_right[node]))

    near(library.decision_tree.using(steepness=1e12)(torch.as_tensor(x), build(0)), model.predict(x))


@thousand
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=50, max_size=50))
def test_gcd(pairs):
    a, b = torch.tensor(pairs, dtype=torch.float64).T
    near(steep(library.gcd)(a, b), [math.gcd(*pair) for pair in pairs])


@pytest.mark.parametrize("render", [library.silhouette_three_edges, library.silhouette_distance])
def test_silhouettes_are_the_union_of_triangles(render):
    size, faces, batch = 12, 3, 10
    corners = 3 * draw(5, batch, faces, 3, 2) - 1.5
    a, b, c = corners.unbind(2)
    flip = ((b - a)[..., 0] * (c - a)[..., 1] - (b - a)[..., 1] * (c - a)[..., 0]) < 0
    corners = torch.where(flip[..., None, None], corners.flip(2), corners)
    image = render(corners, image_size=size, steepness=1e9)
    centres = (np.arange(size) + 0.5) * 2 / size - 1
    points = np.stack(np.meshgrid(centres, -centres), -1).reshape(-1, 2)
    for b in range(batch):
        inside = np.any([Polygon(triangle).contains_points(points) for triangle in corners[b].numpy()], 0)
        near(image[b], inside.reshape(size, size).astype(float))


def test_silhouettes_combine_triangles_as_independent_events():
    corners = torch.tensor([[[[-0.8, -0.7], [0.9, -0.6], [0.1, 0.8]], [[0.0, -0.5], [0.9, 0.2], [-0.3, 0.9]]]])
    for render in (library.silhouette_three_edges, library.silhouette_distance):
        both = render(corners, image_size=8, steepness=7.0)
        single = [render(corners[:, i : i + 1], image_size=8, steepness=7.0) for i in range(2)]
        torch.testing.assert_close(both, 1 - (1 - single[0]) * (1 - single[1]))
    assert library.silhouette_distance(corners, image_size=8, steepness=7.0).min() > 0


def inputs(*shapes):
    return tuple(draw(i, 2, *shape).requires_grad_() for i, shape in enumerate(shapes))


def strings(n, m):
    s, t = torch.softmax(3 * draw(0, 2, n, 3), -1), torch.softmax(3 * draw(1, 2, m, 3), -1)
    return s.detach().requires_grad_(), t.detach().requires_grad_()


TREE = (0, 0.4, 1.0, (1, 0.6, 5.0, 7.0))
CASES = {
    "bubble_sort": (library.bubble_sort, inputs((4,))),
    "bubble_sort_loss": (library.bubble_sort_loss, inputs((3,))),
    "insertion_sort": (library.insertion_sort.using(exact_gradient=True), inputs((3,))),
    "binary_search": (library.binary_search.using(exact_gradient=True), inputs((3,), ())),
    "levenshtein": (library.levenshtein_program, strings(2, 3)),
    "longest_common_subsequence": (library.longest_common_subsequence, strings(2, 3)),
    "dynamic_time_warping": (library.dynamic_time_warping, inputs((3,), (2,))),
    "knapsack": (lambda v: library.knapsack(v, [1, 2, 3], 4), inputs((3,))),
    "viterbi": (lambda e, t: library.viterbi(e, t)[0], inputs((3, 2), (2, 2))),
    "viterbi states": (lambda e, t: torch.stack(library.viterbi(e, t)[1]), inputs((3, 2), (2, 2))),
    "shortest_path": (lambda c: library.shortest_path_program(c)[0], inputs((2, 3))),
    "shortest_path distances": (lambda c: library.shortest_path_program(c)[1], inputs((2, 3))),
    "bellman_ford": (library.bellman_ford.using(max_iterations=4), inputs((2, 2))),
    "shortest_path, fused": (lambda c: torch.stack(library.shortest_path(c)), inputs((2, 3))),
    "levenshtein, fused": (lambda s, t: library.levenshtein(s, t).matrix, strings(2, 3)),
    "floyd_warshall": (library.floyd_warshall, inputs((3, 3))),
    "connected_components": (lambda a: torch.stack(library.connected_components(a), 1), inputs((3, 3))),
    "decision_tree": (lambda x: library.decision_tree(x, TREE), inputs((2,))),
    "gcd": (library.gcd.using(steepness=3.0, max_iterations=6), inputs((), ())),
    "silhouette_three_edges": (
        lambda t: library.silhouette_three_edges(t, image_size=2, steepness=4.0),
        inputs((2, 3, 2)),
    ),
    "silhouette_distance": (lambda t: library.silhouette_distance(t, image_size=2, steepness=4.0), inputs((1, 3, 2))),
}


@pytest.mark.filterwarnings("ignore:softly.relax. a while loop was cut off:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    function, tensors = CASES[name]
    if name == "bubble_sort":
        assert torch.autograd.gradgradcheck(function, tensors)
    assert torch.autograd.gradcheck(function, tensors)


HARD = {
    "bubble_sort": (library.bubble_sort, (draw(0, 5, 6),)),
    "bubble_sort with ties": (library.bubble_sort, (draw(0, 5, 6).mul(3).round(),)),
    "insertion_sort": (library.insertion_sort, (draw(0, 5, 6).mul(3).round(),)),
    "binary_search": (library.binary_search, (draw(0, 5, 6).sort(1).values, draw(1, 5))),
    "levenshtein": (library.levenshtein_program, (letters(0, 4)[1][:5], letters(1, 3)[1][:5])),
    "dynamic_time_warping": (library.dynamic_time_warping, (draw(0, 5, 3), draw(1, 5, 4))),
    "knapsack": (library.knapsack, (draw(0, 5, 3), [1, 2, 3], 4)),
    "shortest_path": (library.shortest_path_program, (draw(0, 5, 3, 2),)),
    "bellman_ford": (library.bellman_ford, (draw(0, 5, 3, 2),)),
    "floyd_warshall": (library.floyd_warshall, (draw(0, 5, 3, 3),)),
    "decision_tree": (library.decision_tree, (draw(0, 5, 2), TREE)),
    "gcd": (library.gcd, (torch.tensor([12.0, 7.0, 9.0]), torch.tensor([18.0, 7.0, 6.0]))),
}


@pytest.mark.parametrize("name", HARD)
def test_the_engine_run_hard_is_plain_python(name):
    function, arguments = HARD[name]
    exact = function.using(hard=True)(*arguments)
    plain = function.hard(*arguments)
    torch.testing.assert_close(exact, plain, check_dtype=False, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("function", [library.silhouette_three_edges, library.silhouette_distance])
def test_silhouette_errors(function):
    with pytest.raises(ValueError, match=r"triangles must have shape \(batch, faces, 3, 2\), got \(1, 3, 2\)"):
        function(torch.zeros(1, 3, 2))
    with pytest.raises(ValueError, match="image_size must be an int >= 1, got 0"):
        function(torch.zeros(1, 1, 3, 2), image_size=0)
