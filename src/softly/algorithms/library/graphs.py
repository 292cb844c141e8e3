"""Paths and components of graphs."""

from __future__ import annotations

from typing import Any

import torch

from softly.algorithms.python.function import relax

__all__ = ["bellman_ford", "connected_components", "floyd_warshall", "shortest_path_program"]

FAR = 1e9


def neighbours(i: int, j: int, h: int, w: int) -> list[int]:
    """The numbers of the cells around a cell of a grid, row by row."""
    return [
        a * w + b
        for a in range(max(i - 1, 0), min(i + 2, h))
        for b in range(max(j - 1, 0), min(j + 2, w))
        if (a, b) != (i, j)
    ]


def nearest(distance: list[Any], h: int, w: int) -> list[Any]:
    """For every cell of a grid the number of the neighbour before it; the first has none, and gets its own."""
    before = [0]
    for v in range(1, h * w):
        around = neighbours(v // w, v % w, h, w)
        before.append(around[torch.argmin(torch.stack([distance[u] for u in around]))])
    return before


def trace_back(distance: list[Any], h: int, w: int, steps: int) -> Any:
    """The cells of a path of so many steps, from the last cell of a grid over the nearest neighbours to the first."""
    before = nearest(distance, h, w)
    path = torch.zeros(h * w)
    node = h * w - 1
    for _ in range(steps):
        path[node] = 1.0
        node = before[node]
    path[node] = 1.0
    return path


@relax(steepness=9.0)
def shortest_path_program(costs: Any, rounds: int | None = None) -> Any:
    """The cheapest way over a grid from its first to its last cell, by Bellman and Ford with eight neighbours.

    In every round each cell learns from its neighbours how far they are. The path is found backwards, by asking for
    the nearest neighbour. As ``steepness -> inf`` it is 1 on the cells of the shortest path and 0 elsewhere.
    `shortest_path` gives the same values, faster.

    Args:
        costs: (batch, h, w) What it costs to enter a cell, > 0.
        rounds: The most steps that a path may have, by default those of the longest possible path, h w - 1.

    Returns:
        The path (batch, h, w), and the distances of all cells (batch, h, w).

    Example:
        >>> costs = torch.tensor([[[1.0, 1.0, 5.0], [5.0, 5.0, 1.0], [5.0, 5.0, 1.0]]])
        >>> path, distances = softly.algorithms.library.shortest_path_program(costs)
        >>> path.round(), distances[:, -1, -1]
        (tensor([[[1., 1., 0.],
                 [0., 0., 1.],
                 [0., 0., 1.]]]), tensor([4.]))
    """
    h, w = costs.shape
    rounds = h * w - 1 if rounds is None else rounds
    distance: list[Any] = [FAR] * (h * w)
    distance[0] = costs[0, 0]
    for _ in range(rounds):
        previous = list(distance)
        for v in range(1, h * w):
            i, j = v // w, v % w
            distance[v] = min([previous[u] for u in neighbours(i, j, h, w)]) + costs[i, j]
    path = trace_back(distance, h, w, rounds)
    return path.reshape(h, w), torch.stack(distance).reshape(h, w)


@relax(steepness=9.0, max_iterations=64)
def bellman_ford(costs: Any, margin: float = 1e-3) -> Any:
    """The cheapest way over a grid, like `shortest_path_program`, but in rounds until no cell gets nearer.

    The variant with an outer ``while``, on whole grids instead of cells; another ``while`` follows the path backwards
    until it arrives. As ``steepness -> inf`` path and distances are those of `shortest_path`, the latter to the margin.

    Args:
        costs: (batch, h, w) What it costs to enter a cell, > 0.
        margin: How much nearer counts.

    Returns:
        The path (batch, h, w), and the distances of all cells (batch, h, w).

    Example:
        >>> costs = torch.tensor([[[1.0, 2.0], [1.0, 1.0]]])
        >>> softly.algorithms.library.bellman_ford.using(steepness=1e5)(costs)[1]
        tensor([[[1., 3.],
                 [2., 2.]]])
    """
    h, w = costs.shape
    padded = costs.new_full((h + 2, w + 2), FAR)
    padded[1, 1] = costs[0, 0]
    changed = True
    while changed:
        before = padded[1 : h + 1, 1 : w + 1].clone()
        around = [padded[a : a + h, b : b + w] for a in range(3) for b in range(3) if (a, b) != (1, 1)]
        nearer = torch.stack(around).amin(0) + costs
        nearer[0, 0] = costs[0, 0]
        padded[1 : h + 1, 1 : w + 1] = nearer
        changed = (before - nearer).amax() > margin
    distance = padded[1 : h + 1, 1 : w + 1].clone()
    before = nearest(list(distance.reshape(h * w)), h, w)
    path = torch.zeros(h * w)
    node = h * w - 1
    path[node] = 1.0
    while node != 0:
        node = before[node]
        path[node] = 1.0
    return path.reshape(h, w), distance


@relax(steepness=9.0)
def floyd_warshall(weights: Any) -> Any:
    """The distances of all pairs of nodes.

    As ``steepness -> inf`` these are the lengths of the shortest paths.

    Args:
        weights: (batch, n, n) Lengths of the edges, 0 on the diagonal and large where there is none.

    Returns:
        (batch, n, n)

    Example:
        >>> weights = torch.tensor([[[0.0, 1.0, 9.0], [9.0, 0.0, 1.0], [9.0, 9.0, 0.0]]])
        >>> softly.algorithms.library.floyd_warshall(weights)[:, 0, 2]
        tensor([2.])
    """
    n = len(weights)
    distance = weights.clone()
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if k not in (i, j):
                    detour = distance[i, k] + distance[k, j]
                    if detour < distance[i, j]:
                        distance[i, j] = detour
    return distance


@relax(steepness=20.0)
def connected_components(adjacency: Any) -> Any:
    """For every node the smallest number of a node that it is connected with.

    As ``steepness -> inf`` two nodes have the same number where a path leads from one to the other over edges
    above ½.

    Args:
        adjacency: (batch, n, n) Symmetric, how likely each edge is there.

    Returns:
        The list of the numbers of the nodes, each (batch,).

    Example:
        >>> adjacency = torch.tensor([[[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]])
        >>> torch.stack(softly.algorithms.library.connected_components(adjacency), -1).round().abs()
        tensor([[0., 1., 0.]])
    """
    n = len(adjacency)
    label = list(range(n))
    for _ in range(n - 1):
        for i in range(n):
            for j in range(n):
                if i != j and adjacency[i, j] > 0.5 and label[j] < label[i]:
                    label[i] = label[j]
    return label
