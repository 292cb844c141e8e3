"""Differentiable sorting and ranking: the sorters, their networks, losses and metrics."""

from softly.sorting import metrics, networks
from softly.sorting.annealing import Annealer
from softly.sorting.baselines import approx_ndcg_loss, lambda_loss, listmle_loss, listnet_loss, ranknet_loss
from softly.sorting.fastsort import FastSort
from softly.sorting.functional import permutation, rank, sort, topk, topk_values
from softly.sorting.losses import ndcg_loss, ranking_loss, spearman_loss
from softly.sorting.network_sort import SortingNetwork
from softly.sorting.neuralsort import NeuralSort
from softly.sorting.quantiles import median, quantile
from softly.sorting.sinkhorn import SinkhornSort
from softly.sorting.softsort import SoftSort
from softly.sorting.sorter import Sorter

__all__ = [
    "Annealer",
    "FastSort",
    "NeuralSort",
    "SinkhornSort",
    "SoftSort",
    "Sorter",
    "SortingNetwork",
    "approx_ndcg_loss",
    "lambda_loss",
    "listmle_loss",
    "listnet_loss",
    "median",
    "metrics",
    "ndcg_loss",
    "networks",
    "permutation",
    "quantile",
    "rank",
    "ranking_loss",
    "ranknet_loss",
    "sort",
    "spearman_loss",
    "topk",
    "topk_values",
]
