"""Terrain maps: their shortest paths are right and the only ones, and they are the same for a seed."""

import networkx as nx
import numpy as np
import pytest
import torch

from softly_lab.data import terrain


def graph(costs):
    made = nx.DiGraph()
    for cell in np.ndindex(costs.shape):
        for move in np.ndindex(3, 3):
            other = cell[0] + move[0] - 1, cell[1] + move[1] - 1
            if other != cell and 0 <= other[0] < costs.shape[0] and 0 <= other[1] < costs.shape[1]:
                made.add_edge(cell, other, weight=int(costs[other]))
    return made


@pytest.mark.parametrize("size", [5, 12])
def test_shortest_paths(size):
    rng = np.random.default_rng(0)
    costs = rng.choice(terrain.COSTS, (40, size, size))
    paths, unique = terrain.shortest_paths(costs)
    assert unique.any()
    assert not unique.all()
    for cost, path, only in zip(costs, paths, unique, strict=True):
        found = list(nx.all_shortest_paths(graph(cost), (0, 0), (size - 1, size - 1), weight="weight"))
        assert only == (len(found) == 1)
        expected = np.zeros_like(path)
        for way in found:
            expected[tuple(np.transpose(way))] = True
        assert (path == expected).all()


def test_maps():
    first, second = terrain.maps(40, 3), terrain.maps(40, 3)
    assert torch.equal(first.images, second.images)
    assert not torch.equal(first.images, terrain.maps(40, 4).images)
    assert first.images.shape == (40, 3, 96, 96)
    assert set(first.costs.unique().mul(10).round().int().tolist()) == set(terrain.COSTS.tolist())
    assert first.paths[:, 0, 0].all()
    assert first.paths[:, -1, -1].all()
    assert 13 < first.paths.sum((1, 2)).mean() < 20
    # Neighbours are alike: a landscape, not noise.
    alike = (first.costs[:, 1:] == first.costs[:, :-1]).double().mean()
    assert alike > 0.45
    # What a cell looks like tells what it costs.
    cells = first.images.reshape(40, 3, 12, 8, 12, 8).mean((3, 5)).permute(0, 2, 3, 1).reshape(-1, 3)
    costs = first.costs.reshape(-1)
    centres = torch.stack([cells[costs == c].mean(0) for c in costs.unique()])
    assert (torch.cdist(cells, centres).argmin(1) == costs.unique(return_inverse=True)[1]).double().mean() > 0.97
