"""Two programs of this library as single operators: for training, where the programs would be slow."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from softly import _inputs, native
from softly._compiling import constant_result
from softly.algorithms.library.graphs import FAR, neighbours

__all__ = ["EditDistance", "ShortestPath", "levenshtein", "shortest_path"]

_BEYOND = 1e30  # the distance of a cell that isn't there


def _check(enough: bool, name: str) -> None:
    if not enough:
        raise MemoryError(f"softly.algorithms.library.{name}: no memory for the scratch space.")


# Edit distance ---------------------------------------------------------------------------------------------------


class EditDistance(NamedTuple):
    """The result of `levenshtein`.

    Example:
        >>> s, t = torch.eye(3)[[0, 1, 2]], torch.eye(3)[[0, 2]]
        >>> softly.algorithms.library.levenshtein(s, t).matrix.shape
        torch.Size([4, 3])
    """

    distance: Tensor
    """(...) The distance of the strings."""
    matrix: Tensor
    """(..., n + 1, m + 1) The distances of all their prefixes."""


def _levenshtein_forward(costs: Tensor, steepness: float) -> Tensor:
    n, m, batch = costs.shape
    out = costs.new_empty(n + 1, m + 1, batch)
    kernel = native.kernel("levenshtein", costs.dtype)
    _check(kernel(costs.data_ptr(), out.data_ptr(), n, m, batch, steepness, torch.get_num_threads()), "levenshtein")
    return out


def _levenshtein_backward(grad: Tensor, costs: Tensor, steepness: float) -> Tensor:
    n, m, batch = costs.shape
    out = torch.empty_like(costs)
    kernel = native.kernel("levenshtein_backward", costs.dtype)
    pointers = (costs.data_ptr(), grad.data_ptr(), out.data_ptr())
    _check(kernel(*pointers, n, m, batch, steepness, torch.get_num_threads()), "levenshtein")
    return out


@constant_result  # which has to be outside of the cache
def _diagonals(n: int, m: int) -> tuple[list[list[int]], list[int]]:
    """For each anti-diagonal the places of its inner cells' costs, and where in all diagonals each cell is."""
    return _cached_diagonals(n, m)


@lru_cache(maxsize=64)
def _cached_diagonals(n: int, m: int) -> tuple[list[list[int]], list[int]]:
    costs = [[(i - 1) * m + k - i - 1 for i in range(max(1, k - m), min(n, k - 1) + 1)] for k in range(n + m + 1)]
    order = [(i, k - i) for k in range(n + m + 1) for i in range(max(0, k - m), min(n, k) + 1)]
    place = {cell: p for p, cell in enumerate(order)}
    return costs, [place[i, j] for i in range(n + 1) for j in range(m + 1)]


def _levenshtein_reference(costs: Tensor, steepness: float | Tensor) -> Tensor:
    """One anti-diagonal after the other: its cells don't depend on each other."""
    n, m, batch = costs.shape
    flat = costs.flatten(0, 1)
    places, order = _diagonals(n, m)
    diagonals: list[Tensor] = []
    for k in range(n + m + 1):
        # Cells (i, k - i); the ends are at the border of the matrix, where the distance is k.
        edge = costs.new_full((1, batch), float(k))
        first, last = max(0, k - m), min(n, k)
        parts = [edge] if first == 0 else []
        if places[k]:
            low, high = places[k][0] // m + 1, places[k][-1] // m + 1
            before, earlier = diagonals[k - 1], diagonals[k - 2]
            at, at_earlier = max(0, k - 1 - m), max(0, k - 2 - m)
            options = torch.stack(
                (
                    before[low - 1 - at : high - at] + 1.0,
                    before[low - at : high + 1 - at] + 1.0,
                    earlier[low - 1 - at_earlier : high - at_earlier] + flat[places[k]],
                )
            )
            parts.append((torch.softmax(options * -steepness, 0) * options).sum(0))
        if last == k and k > 0:
            parts.append(edge)
        diagonals.append(torch.cat(parts))
    return torch.cat(diagonals)[order].unflatten(0, (n + 1, m + 1))


_levenshtein = native.Operator(
    "levenshtein",
    forward=_levenshtein_forward,
    shape=lambda costs, steepness: costs.new_empty(costs.shape[0] + 1, costs.shape[1] + 1, costs.shape[2]),
    backward=_levenshtein_backward,
    reference=_levenshtein_reference,
)


def levenshtein(s: Tensor, t: Tensor, *, steepness: float | Tensor = 9.0, similarity: str = "cosine") -> EditDistance:
    """The edit distance of two strings of categorical distributions.

    What `levenshtein_program` computes, as one operator. As ``steepness -> inf`` for one-hot letters it is the number
    of insertions, deletions and substitutions; it is symmetric in ``s`` and ``t``.

    Args:
        s: (..., n, letters) Probabilities.
        t: (..., m, letters) Probabilities.
        steepness: Inverse temperature of the minimum, > 0.
        similarity: "cosine" or "inner": how likely two letters are the same; see `softly.categorical_equal`.

    Returns:
        `EditDistance(distance, matrix)`.

    Example:
        >>> s, t = torch.eye(3)[[0, 1, 2]], torch.eye(3)[[0, 2]]
        >>> softly.algorithms.library.levenshtein(s, t).distance
        tensor(1.0002)
    """
    name = "softly.algorithms.library.levenshtein"
    _inputs.floating(s, name, "s")
    _inputs.floating(t, name, "t")
    steepness = _inputs.steepness(steepness, name)
    if s.ndim < 2 or t.ndim < 2 or s.shape[-1] != t.shape[-1]:
        raise ValueError(
            f"{name}: s and t must have shapes (..., n, letters) and (..., m, letters), "
            f"got {tuple(s.shape)} and {tuple(t.shape)}."
        )
    if similarity not in ("cosine", "inner"):
        raise ValueError(f"{name}: similarity must be 'cosine' or 'inner', got {similarity!r}.")

    def distances(s: Tensor, t: Tensor) -> Tensor:
        if similarity == "cosine":
            s, t = (torch.nn.functional.normalize(x, dim=-1, eps=1e-8) for x in (s, t))
        costs = 1.0 - s @ t.mT
        batch, (n, m) = costs.shape[:-2], costs.shape[-2:]
        rows = costs.reshape(-1, n, m).permute(1, 2, 0)
        run = _levenshtein_reference if isinstance(steepness, Tensor) else _levenshtein
        return run(rows, steepness).permute(2, 0, 1).reshape(*batch, n + 1, m + 1)

    matrix = _inputs.at_least_single(distances, s, t)
    return EditDistance(matrix[..., -1, -1], matrix)


# Shortest path ---------------------------------------------------------------------------------------------------


class ShortestPath(NamedTuple):
    """The result of `shortest_path`.

    Example:
        >>> path, distances = softly.algorithms.library.shortest_path(torch.ones(3, 3))
        >>> distances[-1, -1].round()
        tensor(3.)
    """

    path: Tensor
    """(..., h, w) How likely each cell is on the path."""
    distances: Tensor
    """(..., h, w) What it costs to come from the first cell to each, both included."""


def _path_forward(costs: Tensor, h: int, w: int, rounds: int, steepness: float) -> Tensor:
    out = costs.new_empty(2, *costs.shape)
    kernel = native.kernel("shortest_path", costs.dtype)
    sizes = (h, w, rounds, costs.shape[1], steepness, torch.get_num_threads())
    _check(kernel(costs.data_ptr(), out.data_ptr(), *sizes), "shortest_path")
    return out


def _path_backward(grad: Tensor, costs: Tensor, h: int, w: int, rounds: int, steepness: float) -> Tensor:
    out = torch.empty_like(costs)
    kernel = native.kernel("shortest_path_backward", costs.dtype)
    sizes = (h, w, rounds, costs.shape[1], steepness, torch.get_num_threads())
    _check(kernel(costs.data_ptr(), grad.data_ptr(), out.data_ptr(), *sizes), "shortest_path")
    return out


@constant_result
def _around(h: int, w: int) -> list[list[int]]:
    """The neighbours of all cells but the first, filled up to 8 with a cell that isn't there."""
    return _cached_around(h, w)


@lru_cache(maxsize=64)
def _cached_around(h: int, w: int) -> list[list[int]]:
    around = [neighbours(v // w, v % w, h, w) for v in range(1, h * w)]
    return [a + [h * w] * (8 - len(a)) for a in around]


def _path_reference(costs: Tensor, h: int, w: int, rounds: int, steepness: float | Tensor) -> Tensor:
    n, batch = costs.shape
    index = torch.tensor(_around(h, w), dtype=torch.int64, device=costs.device).reshape(-1, 8)
    nowhere = costs.new_full((1, batch), _BEYOND)
    distance = torch.cat((costs[:1], costs.new_full((n - 1, batch), FAR)))
    for _ in range(rounds):
        options = torch.cat((distance, nowhere))[index]
        least = (torch.softmax(options * -steepness, 1) * options).sum(1)
        distance = torch.cat((costs[:1], least + costs[1:]))
    share = torch.softmax(torch.cat((distance, nowhere))[index] * -steepness, 1)
    last = torch.zeros(n, 1, dtype=costs.dtype, device=costs.device)
    last[-1] = 1.0
    mass = last.expand(n, batch)
    absent = torch.ones_like(costs)
    for r in range(rounds + 1):
        absent = absent * (1.0 - mass)
        if r < rounds:
            going = (mass[1:, None] * share).flatten(0, 1)
            mass = costs.new_zeros(n + 1, batch).index_add(0, index.flatten(), going)[:n] + torch.cat(
                (mass[:1], torch.zeros_like(mass[1:]))
            )
    return torch.stack((1.0 - absent, distance))


_shortest_path = native.Operator(
    "shortest_path",
    forward=_path_forward,
    shape=lambda costs, h, w, rounds, steepness: costs.new_empty(2, *costs.shape),
    backward=_path_backward,
    reference=_path_reference,
)


def shortest_path(costs: Tensor, *, steepness: float | Tensor = 9.0, rounds: int | None = None) -> ShortestPath:
    """The cheapest way over a grid from its first to its last cell, moving to any of eight neighbours.

    What `shortest_path_program` computes, as one operator. As ``steepness -> inf`` the path is 1 on the cells of the
    shortest path and 0 elsewhere; it is 1 at both ends at every steepness at which it arrives.

    Args:
        costs: (..., h, w) What it costs to enter a cell, > 0; inf for walls.
        steepness: Inverse temperature, > 0.
        rounds: The most steps that a path may have, by default those of the longest possible path, h w - 1.

    Returns:
        `ShortestPath(path, distances)`.

    Example:
        >>> costs = torch.tensor([[1.0, 1.0, 5.0], [5.0, 5.0, 1.0], [5.0, 5.0, 1.0]])
        >>> path, distances = softly.algorithms.library.shortest_path(costs)
        >>> path.round(), distances[-1, -1]
        (tensor([[1., 1., 0.],
                 [0., 0., 1.],
                 [0., 0., 1.]]), tensor(4.))
    """
    name = "softly.algorithms.library.shortest_path"
    _inputs.floating(costs, name, "costs")
    steepness = _inputs.steepness(steepness, name)
    if costs.ndim < 2 or 0 in costs.shape[-2:]:
        raise ValueError(f"{name}: costs must have shape (..., h, w), got {tuple(costs.shape)}.")
    h, w = costs.shape[-2:]
    if rounds is None:
        rounds = h * w - 1
    if not isinstance(rounds, int) or rounds < 0:
        raise ValueError(f"{name}: rounds must be an int >= 0, got {rounds!r}.")

    def both(costs: Tensor) -> Tensor:
        rows = costs.reshape(-1, h * w).t().clamp(max=FAR)
        run = _path_reference if isinstance(steepness, Tensor) else _shortest_path
        return run(rows, h, w, rounds, steepness).movedim(2, 0).reshape(*costs.shape[:-2], 2, h, w)

    path, distances = _inputs.at_least_single(both, costs).unbind(-3)
    return ShortestPath(path, distances)
