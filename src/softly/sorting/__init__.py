"""Differentiable sorting and ranking: the sorters, their networks, losses and metrics."""

from softly.sorting import networks

__all__ = ["networks"]
