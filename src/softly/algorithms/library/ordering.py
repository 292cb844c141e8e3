"""Sorting and searching."""

from __future__ import annotations

from typing import Any

from softly.algorithms.python.function import relax

__all__ = ["binary_search", "bubble_sort", "bubble_sort_loss", "insertion_sort"]


@relax(steepness=8.0)
def bubble_sort(array: Any) -> Any:
    """Sort by swapping neighbours until nothing is out of order, and count the swaps.

    As ``steepness -> inf``: the sorted array, and its number of inversions (Kendall's τ, unnormalised). The sum of
    the array is the same at every steepness.

    Args:
        array: (batch, n).

    Returns:
        The sorted array (batch, n) and the number of swaps (batch,).

    Example:
        >>> array, swaps = softly.algorithms.library.bubble_sort(torch.tensor([[3.0, 1.0, 2.0]]))
        >>> array, swaps
        (tensor([[1.0003, 2.0000, 2.9997]]), tensor([2.0000]))
    """
    swaps = 0.0
    swapped = True
    n = len(array) - 1
    while swapped:
        swapped = False
        for i in range(n):
            if array[i] > array[i + 1]:
                array[i], array[i + 1] = array[i + 1], array[i]
                swapped = True
                swaps += 1
        n -= 1
    return array, swaps


@relax(steepness=8.0)
def bubble_sort_loss(array: Any) -> Any:
    """The probability that bubble sort has something to swap: ``1 - ∏ (1 - p)`` over all of its comparisons.

    The loss that trains scores to be in order. As ``steepness -> inf`` it is 0 for sorted arrays and 1 for others.

    Args:
        array: (batch, n).

    Returns:
        (batch,)

    Example:
        >>> softly.algorithms.library.bubble_sort_loss(torch.tensor([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]))
        tensor([0.0010, 1.0000])
    """
    unsorted = False
    for last in range(len(array) - 1, 0, -1):
        for i in range(last):
            if array[i] > array[i + 1]:
                array[i], array[i + 1] = array[i + 1], array[i]
                unsorted = True
    return unsorted


@relax(steepness=8.0)
def insertion_sort(array: Any) -> Any:
    """Sort by inserting one entry after the other where it belongs.

    Where an entry belongs is a relaxed number, and the entry is written at a real position. As ``steepness -> inf``
    the result is the sorted array.

    Args:
        array: (batch, n).

    Returns:
        (batch, n)

    Example:
        >>> softly.algorithms.library.insertion_sort.using(steepness=50.0)(torch.tensor([[3.0, 1.0, 2.0]]))
        tensor([[1., 2., 3.]])
    """
    for i in range(1, len(array)):
        key = array[i]
        j = i - 1
        while j >= 0 and array[j] > key:
            array[j + 1] = array[j]
            j -= 1
        array[j + 1] = key
    return array


@relax(steepness=8.0)
def binary_search(array: Any, target: Any) -> Any:
    """How many entries of a sorted array are below a target, found by halving the step.

    As ``steepness -> inf`` this is ``bisect.bisect_left(array, target)``; it never leaves [0, n].

    Args:
        array: (batch, n), in non-descending order.
        target: (batch,)

    Returns:
        (batch,)

    Example:
        >>> array = torch.tensor([[1.0, 2.0, 4.0, 8.0]])
        >>> softly.algorithms.library.binary_search(array, torch.tensor([3.0]))
        tensor([1.9997])
    """
    n = len(array)
    step = 1
    while 2 * step <= n:
        step *= 2
    below = 0
    while step > 0:
        # A position beyond the end reads the last entry: if that is below the target, so are all.
        if array[min(below + step, n) - 1] < target:
            below = min(below + step, n)
        step //= 2
    return below
