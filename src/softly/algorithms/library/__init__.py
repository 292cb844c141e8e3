"""Algorithms, relaxed: most are plain Python under `softly.relax`, and some have a faster twin.

A relaxed function takes its options by `using`: ``bubble_sort.using(steepness=20.0)(x)``.
"""

from softly.algorithms.library.decisions import decision_tree, gcd
from softly.algorithms.library.fused import EditDistance, ShortestPath, levenshtein, shortest_path
from softly.algorithms.library.graphs import bellman_ford, connected_components, floyd_warshall, shortest_path_program
from softly.algorithms.library.ordering import binary_search, bubble_sort, bubble_sort_loss, insertion_sort
from softly.algorithms.library.sequences import (
    dynamic_time_warping,
    knapsack,
    levenshtein_program,
    longest_common_subsequence,
    viterbi,
)
from softly.algorithms.library.silhouettes import silhouette_distance, silhouette_three_edges

__all__ = [
    "EditDistance",
    "ShortestPath",
    "bellman_ford",
    "binary_search",
    "bubble_sort",
    "bubble_sort_loss",
    "connected_components",
    "decision_tree",
    "dynamic_time_warping",
    "floyd_warshall",
    "gcd",
    "insertion_sort",
    "knapsack",
    "levenshtein",
    "levenshtein_program",
    "longest_common_subsequence",
    "shortest_path",
    "shortest_path_program",
    "silhouette_distance",
    "silhouette_three_edges",
    "viterbi",
]
