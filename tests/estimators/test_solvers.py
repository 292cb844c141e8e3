"""The solvers, against others."""

import functools
import itertools

import networkx
import numpy as np
import pytest
import torch
from monte_carlo import generator

from softly import native
from softly.estimators import solvers
from softly.estimators.grid_path import _reference, grid_path


def dijkstra(costs):
    """The cost of the shortest path, by networkx."""
    h, w = costs.shape
    graph = networkx.DiGraph()
    for i, j in itertools.product(range(h), range(w)):
        for a, b in itertools.product(range(max(i - 1, 0), min(i + 2, h)), range(max(j - 1, 0), min(j + 2, w))):
            if (a, b) != (i, j):
                graph.add_edge((i, j), (a, b), weight=float(costs[a, b]))
    if (h, w) == (1, 1):
        return float(costs[0, 0])
    return float(costs[0, 0]) + networkx.dijkstra_path_length(graph, (0, 0), (h - 1, w - 1))


def connected(path):
    """Whether the cells of a path are a chain from the first to the last."""
    cells = [tuple(c) for c in path.nonzero().tolist()]
    ends = [(0, 0), (path.shape[0] - 1, path.shape[1] - 1)]
    assert all(end in cells for end in ends)
    near = lambda a, b: a != b and max(abs(a[0] - b[0]), abs(a[1] - b[1])) == 1  # noqa: E731
    graph = networkx.Graph()
    graph.add_nodes_from(cells)
    graph.add_edges_from((a, b) for a in cells for b in cells if near(a, b))
    return networkx.is_connected(graph)


@pytest.mark.parametrize("shape", [(12, 12), (1, 1), (1, 7), (5, 1), (3, 8)])
def test_shortest_paths_against_networkx(shape):
    for costs in torch.rand(10, *shape, generator=generator(), dtype=torch.float64):
        path = solvers.shortest_path(costs)
        assert set(path.unique().tolist()) <= {0.0, 1.0}
        assert connected(path)
        np.testing.assert_allclose(float((path * costs).sum()), dijkstra(costs), rtol=1e-12)


@pytest.mark.native
@pytest.mark.skipif(not native.available(), reason="the compiled kernels are not there")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_kernel_is_its_reference(dtype):
    g = generator()
    grids = {
        "any": torch.rand(40, 6, 7, generator=g),
        "ties": torch.randint(0, 3, (100, 5, 5), generator=g),
        "ones": torch.ones(3, 4, 6),
        "zeros": torch.zeros(3, 6, 4),
        "negative": torch.randn(40, 5, 5, generator=g),
        "walls": torch.rand(60, 5, 5, generator=g) / (torch.rand(60, 5, 5, generator=g) > 0.4),
        "unknown": torch.rand(10, 4, 4, generator=g).log().mul(-1).sub(0.2).sqrt(),
        "none": torch.zeros(0, 4, 4),
    }
    for name, costs in grids.items():
        for clamped in (False, True):
            ours, theirs = grid_path(costs.to(dtype), clamped), _reference(costs.to(dtype), clamped)
            assert torch.equal(ours.nan_to_num(7), theirs.nan_to_num(7)), (name, clamped)
    torch.library.opcheck(torch.ops.softly.grid_path, (grids["any"].to(dtype), False))


def test_large_grids():
    """Those that have more cells than the short form of the kernel's queue can number."""
    costs = torch.rand(260, 260, generator=generator())
    single, double = (solvers.shortest_path(costs.to(dtype)) for dtype in (torch.float32, torch.float64))
    assert connected(single)
    torch.testing.assert_close((costs * single).sum(), (costs * double.float()).sum())
    small = solvers.shortest_path(costs[:200, :200].contiguous())
    assert connected(small)


def test_large_grids_without_kernels():
    """The rounds of the reference are those that paths ask for: few on a grid of 40,000 cells, many on a long way."""
    costs = torch.rand(200, 200, generator=generator())
    snake = torch.ones(21, 21)
    for number, row in enumerate(range(1, 21, 2)):
        snake[row] = torch.inf
        snake[row, -1 if number % 2 == 0 else 0] = 1.0
    for grid in (costs, snake):
        path = _reference(grid.unsqueeze(0), False).squeeze(0)
        assert connected(path)
        total = torch.where(path == 1, grid.double(), 0.0).sum()
        np.testing.assert_allclose(total.item(), dijkstra(grid.double()), rtol=1e-6)


def test_negative_costs():
    costs = torch.tensor([[1.0, 2.0], [-1.0, 1.0]])
    with pytest.raises(ValueError, match="costs must not be negative, got -1"):
        solvers.shortest_path(costs)
    assert torch.equal(solvers.shortest_path.perturbed(costs), solvers.shortest_path(costs.clamp(min=0)))


def test_walls():
    wall = torch.ones(3, 3)
    wall[1] = torch.inf
    with pytest.raises(ValueError, match="a path of finite cost"):
        solvers.shortest_path(wall)
    wall[1, 2] = 5.0
    assert solvers.shortest_path(wall)[1, 2] == 1
    with pytest.raises(ValueError, match=r"\(..., height, width\)"):
        solvers.shortest_path(torch.ones(3))


def test_transforms_see_the_same_paths():
    costs = torch.rand(3, 4, 4, generator=generator())
    expected = solvers.shortest_path(costs)
    assert torch.equal(torch.func.vmap(solvers.shortest_path)(costs), expected)
    compiled = torch.compile(solvers.shortest_path.perturbed, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(costs), expected)
    assert solvers.shortest_path(costs.to("meta")).shape == costs.shape
    assert solvers.shortest_path(costs.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("solver", "candidates"),
    [
        (solvers.argmax, torch.eye(4)),
        (
            functools.partial(solvers.topk, k=2),
            torch.tensor([row for row in itertools.product((0.0, 1.0), repeat=4) if sum(row) == 2]),
        ),
        (solvers.ranking, torch.tensor(list(itertools.permutations((1.0, 2.0, 3.0, 4.0))))),
    ],
    ids=["argmax", "topk", "ranking"],
)
def test_no_candidate_is_better(solver, candidates):
    y = torch.randn(50, 3, 4, generator=generator())
    best = (y.unsqueeze(-2) * candidates).sum(-1).argmax(-1)
    assert torch.equal(solver(y), candidates[best])


@pytest.mark.parametrize("sense", ["max", "min"])
def test_no_assignment_is_better(sense):
    y = torch.randn(20, 3, 4, generator=generator())
    candidates = torch.stack([torch.eye(4)[list(p)[:3]] for p in itertools.permutations(range(4))])
    totals = (y.unsqueeze(1) * candidates).sum((-2, -1))
    best = totals.max(1).values if sense == "max" else totals.min(1).values
    solution = solvers.assignment(y, sense=sense)
    torch.testing.assert_close((y * solution).sum((-2, -1)), best)
    assert (solution.sum(-1) == 1).all()


def test_unknown_scores_are_not_hidden():
    y = torch.tensor([[1.0, torch.nan], [1.0, 2.0]])
    for solver in (solvers.argmax, solvers.ranking, functools.partial(solvers.topk, k=1)):
        assert solver(y).isnan().tolist() == [[True, True], [False, False]]
    assert solvers.assignment(torch.stack([y, y.nan_to_num()])).isnan().flatten(1).all(1).tolist() == [True, False]
    assert solvers.shortest_path.perturbed(y).isnan().all()


def test_arguments_are_checked():
    with pytest.raises(ValueError, match=r"k must be in \[1, 2\], got 3"):
        solvers.topk(torch.zeros(2), 3)
    with pytest.raises(ValueError, match="n <= m"):
        solvers.assignment(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="sense must be"):
        solvers.assignment(torch.zeros(2, 2), sense="best")
    with pytest.raises(TypeError, match="floating-point"):
        solvers.ranking(torch.zeros(2, dtype=torch.long))
