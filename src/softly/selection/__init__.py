"""Differentiable selection: top-k networks, and learning with them."""

from softly.selection import networks
from softly.selection.applications import TopKGate, recall_loss, soft_knn
from softly.selection.losses import SmoothTopKLoss, TopKCrossEntropy
from softly.selection.operators import TopKNetwork
from softly.selection.threshold import soft_topk

__all__ = [
    "SmoothTopKLoss",
    "TopKCrossEntropy",
    "TopKGate",
    "TopKNetwork",
    "networks",
    "recall_loss",
    "soft_knn",
    "soft_topk",
]
