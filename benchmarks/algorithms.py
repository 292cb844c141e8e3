"""Relaxed programs: against algovision where it is installed, and fused operators and tapes against programs."""

import importlib
import importlib.util
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import softly
from benchmarks.harness import Case, Function
from softly.algorithms import library

MODULES = ("core", "conditions", "control_structures", "functions", "instructions")


def peer() -> types.ModuleType | None:
    """All names of algovision in one module."""
    if not importlib.util.find_spec("algovision"):
        return None
    together = types.ModuleType("algovision_names")
    for name in MODULES:
        together.__dict__.update(vars(importlib.import_module(f"algovision.{name}")))
    return together


def bubble_sort(m: Any, beta: float) -> Any:
    """Bubble sort as chapter 2 prints it."""
    swap = [
        m.Let("array", [lambda i: i + 1], "a"),
        m.Let("array", ["i"], "b"),
        m.Let("swapped", 1.0),
        m.Let("loss", lambda loss: loss + 1.0),
    ]
    return m.Algorithm(
        m.Input("array"),
        *(
            m.Var(name, torch.tensor(value))
            for name, value in (("a", 0.0), ("b", 0.0), ("swapped", 1.0), ("loss", 0.0))
        ),
        m.VarInt("n", lambda array: array.shape[1] - 1),
        m.While(
            m.IsTrue("swapped"),
            m.Let("swapped", 0),
            m.For(
                "i",
                "n",
                m.Let("a", "array", ["i"]),
                m.Let("b", "array", [lambda i: i + 1]),
                m.If(m.GT("a", "b"), if_true=swap),
            ),
            m.LetInt("n", lambda n: n - 1),
        ),
        m.Output("array"),
        m.Output("loss"),
        beta=beta,
    )


def levenshtein(m: Any, beta: float) -> Any:
    """The edit distance as chapter 2 prints it."""
    return m.Algorithm(
        m.Input("array_s"),
        m.Input("array_t"),
        m.Var("d", lambda array_s, array_t: torch.zeros(array_s.shape[1] + 1, array_t.shape[1] + 1)),
        m.Var("subs_cost", torch.tensor(0.0)),
        m.Var("return_d", torch.tensor(0.0)),
        m.For("i", lambda d: d.shape[1] - 1, m.Let("d", [lambda i: i + 1, 0], lambda i: i + 1)),
        m.For("j", lambda d: d.shape[2] - 1, m.Let("d", [0, lambda j: j + 1], lambda j: j + 1)),
        m.For(
            "i",
            lambda d: d.shape[1] - 1,
            m.For(
                "j",
                lambda d: d.shape[2] - 1,
                m.If(
                    m.CosineSimilarity(lambda array_s, i: array_s[:, i], lambda array_t, j: array_t[:, j]),
                    if_true=m.Let("subs_cost", 0),
                    if_false=m.Let("subs_cost", 1),
                ),
                m.Let(
                    "d",
                    [lambda i: i + 1, lambda j: j + 1],
                    lambda d, i, j, subs_cost: m.Min(beta=beta)(
                        d[:, i, j + 1] + 1, d[:, i + 1, j] + 1, d[:, i, j] + subs_cost
                    ),
                ),
            ),
        ),
        m.Let("return_d", "d", [lambda d: d.shape[1] - 1, lambda d: d.shape[2] - 1]),
        m.Output("return_d"),
        beta=beta,
    )


def step(function: Callable[..., Any], *inputs: torch.Tensor) -> Function:
    """The function and the gradient of all that it gives."""
    inputs = tuple(x.detach().clone().requires_grad_() for x in inputs)

    def call() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # algovision indexes in a way that torch warns about
            results = function(*inputs)
            results = results if isinstance(results, tuple) else (results,)
            return torch.autograd.grad(sum(r.square().sum() for r in results), inputs)

    return call


def cases() -> Iterator[Case]:
    generator = torch.Generator().manual_seed(0)
    algovision = peer()

    for n, batch in ((7, 100), (32, 128)):
        x = torch.randn(batch, n, generator=generator)
        relaxed = library.bubble_sort.using(steepness=8.0)
        engine = relaxed.using(taped=False)
        peers: dict[str, Function] = {}
        if algovision is not None:
            theirs = bubble_sort(algovision, 8.0)
            peers["algovision"] = step(theirs, x)
        for how, function in (("taped", relaxed), ("engine", engine), ("modules", bubble_sort(softly.algorithms, 8.0))):
            yield Case(f"bubble sort, {batch} × {n}, {how}", step(function, x), peers)

    s, t = (torch.softmax(torch.randn(8, 32, 4, generator=generator), -1) for _ in range(2))
    peers = {}
    if algovision is not None:
        peers["algovision"] = step(levenshtein(algovision, 5.0), s, t)
    fused = lambda a, b: library.levenshtein(a, b, steepness=5.0).distance  # noqa: E731
    program = library.levenshtein_program.using(steepness=5.0)
    taped = lambda a, b: program(a, b)[:, -1, -1]  # noqa: E731
    engine = lambda a, b: program.using(taped=False)(a, b)[:, -1, -1]  # noqa: E731
    modules = levenshtein(softly.algorithms, 5.0)
    for how, function in (("modules", modules), ("engine", engine), ("taped", taped), ("fused", fused)):
        yield Case(f"edit distance, 8 × 32 × 32, {how}", step(function, s, t), peers)

    costs = torch.rand(70, 12, 12, generator=generator) + 0.1
    rounds = 24
    yield Case(
        f"shortest path, 70 × 12 × 12, {rounds} rounds, fused",
        step(lambda c: tuple(library.shortest_path(c, rounds=rounds)), costs),
        {"program, engine": step(lambda c: library.shortest_path_program.using(taped=False)(c, rounds), costs)},
    )
