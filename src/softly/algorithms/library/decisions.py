"""Algorithms that decide one thing after the other."""

from __future__ import annotations

from typing import Any

from softly.algorithms.python.function import relax

__all__ = ["decision_tree", "gcd"]


@relax(steepness=8.0)
def decision_tree(x: Any, tree: Any) -> Any:
    """Walk down a decision tree.

    As ``steepness -> inf`` the result is the leaf that an example falls into; it is always within the range of the
    leaves. Thresholds and leaves may be parameters, and learn.

    Args:
        x: (batch, features).
        tree: A leaf, or a tuple of the number of a feature, a threshold, the tree below and the tree above it.

    Returns:
        (batch,)

    Example:
        >>> tree = (0, 0.5, 1.0, (1, 2.0, 5.0, 7.0))
        >>> softly.algorithms.library.decision_tree(torch.tensor([[0.0, 0.0], [1.0, 3.0]]), tree)
        tensor([1.0719, 6.8914])
    """
    if not isinstance(tree, tuple):
        return tree
    feature, threshold, below, above = tree
    if x[feature] < threshold:
        return decision_tree(x, below)
    return decision_tree(x, above)


@relax(steepness=20.0)
def gcd(a: Any, b: Any) -> Any:
    """The greatest common divisor, by subtracting the smaller of two numbers from the larger until they are equal.

    As ``steepness -> inf`` it is exact for positive integers, and is always at most the larger of them.

    Args:
        a: (batch,)
        b: (batch,)

    Returns:
        (batch,)

    Example:
        >>> softly.algorithms.library.gcd(torch.tensor([12.0]), torch.tensor([18.0]))
        tensor([6.])
    """
    while a != b:
        if a > b:
            a = a - b
        else:
            b = b - a
    return a
