"""T-conorms over many operands: forward and backward."""

from collections.abc import Iterator

import torch

import softly
from benchmarks.baselines import tnorms as baseline
from benchmarks.harness import Case, forward_backward

BASELINES = {
    "probabilistic": baseline.probabilistic_any,
    "einstein": baseline.einstein_any,
    "yager": lambda x: baseline.yager_any(x, 2.0),
    "yager, p = 2.5": lambda x: baseline.yager_any(x, 2.5),
}


def cases() -> Iterator[Case]:
    for rows, n in ((4096, 32), (1024, 1280)):
        x = torch.rand(rows, n, generator=torch.Generator().manual_seed(0)) * 0.9 / n
        for name, plain in BASELINES.items():
            family, _, p = name.partition(", p = ")
            ours = softly.tnorms.get(family, p=float(p) if p else None).any
            torch.testing.assert_close(ours(x), plain(x))
            yield Case(
                f"{name}, any over {rows} × {n}, forward and backward",
                forward_backward(ours, x),
                {"torch": forward_backward(plain, x)},
            )
