"""Functions from the table of contents of an algorithms textbook, written for plain numbers."""

import math


def linear_search(values, target):
    """The position of the first value that is not below a target."""
    for i in range(len(values)):
        if values[i] >= target:
            return i
    return len(values)


def selection_sort(a):
    a = list(a)
    for i in range(len(a)):
        for j in range(i + 1, len(a)):
            if a[j] < a[i]:
                a[i], a[j] = a[j], a[i]
    return a


def maximum_subarray(a):
    """Kadane's algorithm."""
    best = current = a[0]
    for x in a[1:]:
        current = max(x, current + x)
        best = max(best, current)
    return best


def horner(coefficients, x):
    result = 0
    for c in coefficients:
        result = result * x + c
    return result


def rod_cutting(prices):
    n = len(prices)
    revenue = [0] * (n + 1)
    for j in range(1, n + 1):
        q = prices[j - 1]
        for i in range(1, j):
            q = max(q, prices[i - 1] + revenue[j - i])
        revenue[j] = q
    return revenue[n]


def longest_increasing_subsequence(a):
    length = [1] * len(a)
    for i in range(len(a)):
        for j in range(i):
            if a[j] < a[i] and length[j] + 1 > length[i]:
                length[i] = length[j] + 1
    return max(length)


def merge(left, right):
    """Merge two sorted lists of numbers: the i-th smallest of both."""
    merged = sorted([*left, *right])
    return merged


def square_root(x, tolerance=1e-3):
    """Newton's method."""
    guess = x if x > 1 else 1.0
    while abs(guess * guess - x) > tolerance:
        guess = (guess + x / guess) / 2
    return guess


def convex_polygon_contains(polygon, x, y):
    inside = True
    for i in range(len(polygon)):
        x1, y1 = polygon[i]
        x2, y2 = polygon[(i + 1) % len(polygon)]
        if (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1) < 0:
            inside = False
            break
    return 1 if inside else 0


def activity_selection(starts, finishes):
    """How many activities fit, taken greedily in the order of their ends."""
    count, last = 0, -math.inf
    for start, finish in zip(starts, finishes, strict=True):
        if start >= last:
            count += 1
            last = finish
    return count


def coin_change(coins, amount):
    """The least value of coins, each with its own cost, that pays an amount."""
    least = [0.0] + [1e6] * amount
    for total in range(1, amount + 1):
        for face, cost in coins:
            if face <= total:
                least[total] = min(least[total], least[total - face] + cost)
    return least[amount]


def prime_factors(n, limit=8):
    """How many of the numbers up to a limit divide n."""
    count = 0
    for d in range(2, limit):
        if n % d < 0.5:
            count += 1
    return count
