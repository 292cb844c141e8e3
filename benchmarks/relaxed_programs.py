"""Which distribution relaxed programs do best with: python -m benchmarks.relaxed_programs [NAME ...].

Each task learns through a program, by Adam, and is judged by the hard program. A steepness is chosen for every
distribution on three seeds, and the table is of ten others. Where a program is monotonic, the share of its gradients
below -0.01, which have the wrong sign, is shown as well.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import softly
from softly.algorithms import library

DISTRIBUTIONS = ("logistic", "gaussian", "cauchy", "optimal")
STEEPNESSES = (2.0, 4.0, 8.0, 16.0, 32.0)
TUNING, TESTED, STEPS = range(100, 103), range(10), 150
Task = Callable[[Callable[[Any], Any], torch.Generator], tuple[Tensor, Callable[[], Tensor], Callable[[], float]]]


@softly.relax
def clip(x, low, high):  # type: ignore[no-untyped-def]
    if x < low:
        return low
    if x > high:
        return high
    return x


def clipping(at: Callable[[Any], Any], generator: torch.Generator) -> Any:
    """Two bounds of a clip, from noisy results; the distance to the true ones."""
    x = 1.5 * torch.randn(64, generator=generator)
    wanted = x.clamp(-0.5, 0.8) + 0.05 * torch.randn(64, generator=generator)
    bounds = torch.tensor([-2.0, 2.0], requires_grad=True)
    low, high = (lambda i: bounds[i].expand(64)), at(clip)
    loss = lambda: (high(x, low(0), low(1)) - wanted).square().mean()  # noqa: E731
    return bounds, loss, lambda: float((bounds.detach() - torch.tensor([-0.5, 0.8])).abs().mean())


def ordering(at: Callable[[Any], Any], generator: torch.Generator) -> Any:
    """A linear score by which lists of five are in order; the share of pairs of new lists that are not."""
    weights, features = torch.randn(6, generator=generator), torch.randn(60, 5, 6, generator=generator)
    order = (features @ weights).argsort(-1)
    features = features.gather(1, order.unsqueeze(-1).expand_as(features))
    learned = torch.zeros(6, requires_grad=True)
    loss = lambda: at(library.bubble_sort_loss)(features[:20] @ learned).mean()  # noqa: E731

    def judge() -> float:
        scores = (features[20:] @ learned).detach()
        return float((scores.unsqueeze(-1) >= scores.unsqueeze(-2))[..., *torch.triu_indices(5, 5, 1)].float().mean())

    return learned, loss, judge


def sorting(at: Callable[[Any], Any], generator: torch.Generator) -> Any:
    """Values whose sorted list is known; the mean distance to it."""
    x, wanted = (torch.randn(16, 5, generator=generator) for _ in range(2))
    wanted, learned = wanted.sort(-1).values, x.requires_grad_()
    loss = lambda: (at(library.bubble_sort)(learned)[0] - wanted).square().mean()  # noqa: E731
    return learned, loss, lambda: float((learned.detach().sort(-1).values - wanted).abs().mean())


def distances(at: Callable[[Any], Any], generator: torch.Generator) -> Any:
    """Lengths of edges whose shortest paths are known; the mean error of the lengths of these paths."""
    n, outside = 5, 1 - torch.eye(5)
    true = library.floyd_warshall.hard(torch.rand(4, n, n, generator=generator) * outside)
    learned = torch.rand(4, n, n, generator=generator).requires_grad_()
    loss = lambda: (at(library.floyd_warshall)(learned.abs() * outside) - true).square().mean()  # noqa: E731
    judge = lambda: float((library.floyd_warshall.hard(learned.abs() * outside) - true).abs().mean())  # noqa: E731
    return learned, loss, judge


def warping(at: Callable[[Any], Any], generator: torch.Generator) -> Any:
    """A curve that is near to eight others under dynamic time warping; the mean distance to them."""
    shape = torch.sin(torch.linspace(0, 6, 8))
    stretched = [shape[torch.randint(0, 8, (8,), generator=generator).sort().values] for _ in range(8)]
    curves = torch.stack(stretched) + 0.1 * torch.randn(8, 8, generator=generator)
    learned = torch.zeros(8, requires_grad=True)
    program = library.dynamic_time_warping
    loss = lambda: at(program)(learned.expand(8, 8), curves).mean()  # noqa: E731
    return learned, loss, lambda: float(program.hard(learned.detach().expand(8, 8), curves).mean())


TASKS: dict[str, Task] = {
    "clip": clipping, "order": ordering, "sort": sorting, "distances": distances, "warping": warping,
}  # fmt: skip


def reached(task: Task, distribution: str, steepness: float, seed: int) -> float:
    programs: dict[int, Any] = {}

    def at(program: Any) -> Any:
        if id(program) not in programs:
            programs[id(program)] = program.using(distribution=distribution, steepness=steepness)
        return programs[id(program)]

    learned, loss, judge = task(at, torch.Generator().manual_seed(seed))
    optimizer = torch.optim.Adam([learned], 0.05)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    return judge()


def wrong(name: str, distribution: str, steepness: float) -> str:
    """The share of derivatives of a monotonic program below -0.01."""
    generator = torch.Generator().manual_seed(0)
    if name == "clip":
        x = torch.randn(2000, generator=generator, requires_grad=True)
        rows = [
            torch.autograd.grad(clip.using(distribution=distribution, steepness=steepness)(x, -0.5, 0.8).sum(), x)[0]
        ]
    elif name in ("sort", "distances"):
        program = (library.bubble_sort if name == "sort" else library.floyd_warshall).using(
            distribution=distribution, steepness=steepness
        )
        x = torch.randn(100, 5, generator=generator) if name == "sort" else torch.rand(100, 4, 4, generator=generator)
        x.requires_grad_()
        result = program(x)[0] if name == "sort" else program(x)
        rows = [torch.autograd.grad(y, x, retain_graph=True)[0] for y in result.flatten(1).sum(0)]
    else:
        return ""
    return f"{100 * float((torch.stack(rows) < -0.01).float().mean()):.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.relaxed_programs", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TASKS))
    torch.set_num_threads(1)
    for name in parser.parse_args().names or TASKS:
        task = TASKS[name]
        for distribution in DISTRIBUTIONS:
            tuned = {s: sum(reached(task, distribution, s, seed) for seed in TUNING) / len(TUNING) for s in STEEPNESSES}
            best = min(tuned, key=tuned.__getitem__)
            found = torch.tensor([reached(task, distribution, best, seed) for seed in TESTED])
            words = f"{found.mean():.4f} ± {found.std():.4f}"
            print(f"| {name} | {distribution} | {best:g} | {words} | {wrong(name, distribution, best)} |", flush=True)


if __name__ == "__main__":
    main()
