"""Dynamic programming over sequences."""

from __future__ import annotations

from typing import Any

import torch

from softly import minmax
from softly.algorithms.python.function import relax

__all__ = [
    "dynamic_time_warping",
    "knapsack",
    "levenshtein_program",
    "longest_common_subsequence",
    "viterbi",
]


@relax(steepness=9.0)
def levenshtein_program(s: Any, t: Any) -> Any:
    """The edit distance of two strings of categorical distributions, as the chapter writes it.

    As ``steepness -> inf`` for one-hot letters: the number of insertions, deletions and substitutions. `levenshtein`
    gives the same values, faster.

    Args:
        s: (batch, n, letters) Probabilities.
        t: (batch, m, letters) Probabilities.

    Returns:
        The distances of all prefixes (batch, n + 1, m + 1); the last entry is that of the strings.

    Example:
        >>> s, t = torch.eye(3)[None, [0, 1, 2]], torch.eye(3)[None, [0, 2]]
        >>> softly.algorithms.library.levenshtein_program(s, t)[:, -1, -1]
        tensor([1.0002])
    """
    n, m = len(s), len(t)
    d = torch.zeros(n + 1, m + 1)
    for i in range(n):
        d[i + 1, 0] = i + 1
    for j in range(m):
        d[0, j + 1] = j + 1
    for i in range(n):
        for j in range(m):
            cost = 0 if minmax.categorical_equal(s[i], t[j]) else 1
            d[i + 1, j + 1] = min(d[i, j + 1] + 1, d[i + 1, j] + 1, d[i, j] + cost)
    return d


@relax(steepness=9.0)
def longest_common_subsequence(s: Any, t: Any) -> Any:
    """The length of the longest sequence of letters that two strings of categorical distributions share.

    As ``steepness -> inf`` for one-hot letters this is the length of the longest common subsequence.

    Args:
        s: (batch, n, letters) Probabilities.
        t: (batch, m, letters) Probabilities.

    Returns:
        (batch,)

    Example:
        >>> s, t = torch.eye(3)[None, [0, 1, 2]], torch.eye(3)[None, [0, 2]]
        >>> softly.algorithms.library.longest_common_subsequence(s, t).round(decimals=2)
        tensor([2.])
    """
    n, m = len(s), len(t)
    length = [[0] * (m + 1) for _ in range(n + 1)]
    for i in range(n):
        for j in range(m):
            if minmax.categorical_equal(s[i], t[j]):
                length[i + 1][j + 1] = length[i][j] + 1
            else:
                length[i + 1][j + 1] = max(length[i][j + 1], length[i + 1][j])
    return length[n][m]


@relax(steepness=9.0)
def dynamic_time_warping(a: Any, b: Any) -> Any:
    """The least total distance of two series that may be stretched in time.

    As ``steepness -> inf`` this is the dynamic time warping distance with absolute differences.

    Args:
        a: (batch, n).
        b: (batch, m).

    Returns:
        (batch,)

    Example:
        >>> a, b = torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[0.0, 0.0, 1.0, 2.0]])
        >>> softly.algorithms.library.dynamic_time_warping(a, b)
        tensor([0.0005])
    """
    n, m = len(a), len(b)
    d = [[0.0] * m for _ in range(n)]
    for i in range(n):
        for j in range(m):
            before = []
            if i > 0:
                before.append(d[i - 1][j])
            if j > 0:
                before.append(d[i][j - 1])
            if i > 0 and j > 0:
                before.append(d[i - 1][j - 1])
            d[i][j] = abs(a[i] - b[j]) + min(before, default=0.0)
    return d[n - 1][m - 1]


@relax(steepness=9.0)
def knapsack(values: Any, weights: list[int], capacity: int) -> Any:
    """The largest total value of things whose total weight is at most a capacity (0/1 knapsack).

    As ``steepness -> inf`` this is the optimum; its gradient in the values tells what is packed.

    Args:
        values: (batch, n).
        weights: n positive ints.
        capacity: An int.

    Returns:
        (batch,)

    Example:
        >>> values = torch.tensor([[6.0, 10.0, 12.0]], requires_grad=True)
        >>> best = softly.algorithms.library.knapsack(values, [1, 2, 3], 5)
        >>> best.item(), torch.autograd.grad(best.sum(), values)[0].round().abs()
        (22.0, tensor([[0., 1., 1.]]))
    """
    best = [0.0] * (capacity + 1)
    for i, weight in enumerate(weights):
        for room in range(capacity, weight - 1, -1):
            best[room] = max(best[room], best[room - weight] + values[i])
    return best[capacity]


@relax(steepness=9.0)
def viterbi(emissions: Any, transitions: Any) -> Any:
    """The best sequence of states: its score, and at each time the weights of the states.

    As ``steepness -> inf`` the weights are one-hot vectors of the states of highest total score.

    Args:
        emissions: (batch, time, states) Scores, as log-probabilities.
        transitions: (batch, states, states) Scores of going from the first to the second.

    Returns:
        The score (batch,) and the list of the states at each time, each of weights (batch, states).

    Example:
        >>> emissions = torch.tensor([[[1.0, 0.0], [0.0, 3.0]]])
        >>> score, states = softly.algorithms.library.viterbi(emissions, torch.zeros(1, 2, 2))
        >>> score, states[1]
        (tensor([3.9999]), tensor([[1.8795e-12, 1.0000e+00]]))
    """
    steps, states = emissions.shape
    score = [emissions[0, s] for s in range(states)]
    back = []
    for time in range(1, steps):
        before = []
        new = []
        for s in range(states):
            candidates = torch.stack([score[r] + transitions[r, s] for r in range(states)])
            before.append(torch.argmax(candidates))
            new.append(candidates[torch.argmax(candidates)] + emissions[time, s])
        back.append(before)
        score = new
    final = torch.stack(score)
    state = torch.argmax(final)
    best = final[state]
    path = [state]
    for before in reversed(back):
        state = before[state]
        path.append(state)
    return best, path[::-1]
