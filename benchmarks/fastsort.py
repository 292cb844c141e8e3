"""Sorting and ranking by projection onto the permutahedron: forward and backward, against torchsort if it is there."""

import importlib
import importlib.util
from collections.abc import Iterator

import torch

import softly
from benchmarks.baselines import fastsort as baseline
from benchmarks.harness import Case, Function, forward_backward

ROWS, LENGTH = 32, 1000


def cases() -> Iterator[Case]:
    # It is no dependency of the benchmarks: it has no wheels, and its build needs torch to be installed before.
    torchsort = importlib.import_module("torchsort") if importlib.util.find_spec("torchsort") else None
    x = torch.randn(ROWS, LENGTH, generator=torch.Generator().manual_seed(0))
    # Where about half of the neighbours are pooled.
    for method, steepness in (("rank", 300.0), ("sort", 0.003)):
        for regularization in ("l2", "kl"):
            ours = getattr(softly.FastSort(regularization=regularization, steepness=steepness), method)
            peers: dict[str, Function] = {}
            if torchsort is not None:
                operator = getattr(torchsort, f"soft_{method}")
                theirs = lambda y, f=operator, r=regularization, s=steepness: f(y, r, 1.0 / s)  # noqa: E731
                # It sorts -x in descending order, which for KL is another relaxation, of the same cost.
                if method == "rank" or regularization == "l2":
                    torch.testing.assert_close(ours(x), theirs(x), atol=2e-2, rtol=1e-3)
                peers["torchsort"] = forward_backward(theirs, x)
            if regularization == "l2":
                reference = getattr(baseline, method)
                plain = lambda y, f=reference, s=steepness: f(y, s)  # noqa: E731
                torch.testing.assert_close(ours(x), plain(x), atol=2e-2, rtol=1e-3)
                peers["numpy"] = forward_backward(plain, x)
            if peers:
                name = f"{method}, {regularization}, {ROWS} × {LENGTH}, forward and backward"
                yield Case(name, forward_backward(ours, x), peers)
