"""Differentiable sorting and ranking: chapter 3 of the thesis."""

from softly.sorting import networks
from softly.sorting.fastsort import FastSort
from softly.sorting.neuralsort import NeuralSort
from softly.sorting.softsort import SoftSort
from softly.sorting.sorter import Sorter

__all__ = ["FastSort", "NeuralSort", "SoftSort", "Sorter", "networks"]
