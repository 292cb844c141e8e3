"""The fused operators are the programs, and keep their promises beyond what the contract asks."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from softly.algorithms import library

from .test_library import BATCH, dijkstra, draw, letters, near, seeds, thousand


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 5), (4, 2)])
def test_levenshtein_is_its_program(n, m, dtype):
    s = torch.softmax(draw(0, 11, n, 4), -1).to(dtype).requires_grad_()
    t = torch.softmax(draw(1, 11, m, 4), -1).to(dtype).requires_grad_()
    fused, program = library.levenshtein(s, t, steepness=4.0), library.levenshtein_program.using(steepness=4.0)(s, t)
    torch.testing.assert_close(fused.matrix, program)
    torch.testing.assert_close(fused.distance, program[:, -1, -1])
    weights = draw(2, *program.shape).to(dtype)
    gradients = [torch.autograd.grad((d * weights).sum(), (s, t)) for d in (fused.matrix, program)]
    torch.testing.assert_close(*gradients, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("h", "w", "rounds"), [(1, 1, None), (1, 3, None), (3, 4, None), (3, 3, 2), (2, 2, 0)])
def test_shortest_path_is_its_program(h, w, rounds, dtype):
    costs = (0.1 + draw(0, 11, h, w)).to(dtype).requires_grad_()
    fused = library.shortest_path(costs, steepness=4.0, rounds=rounds)
    program = library.shortest_path_program.using(steepness=4.0)(costs, rounds)
    torch.testing.assert_close(tuple(fused), program)
    weights = draw(1, *costs.shape).to(dtype)
    gradients = [
        torch.autograd.grad((p * weights).sum() + (d * weights.sin()).clamp(max=1e3).sum(), costs)
        for p, d in (fused, program)
    ]
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)


@thousand
@given(seeds, st.integers(1, 8), st.integers(1, 8))
def test_levenshtein_counts_edits(seed, n, m):
    (s, s_hot), (t, t_hot) = letters(seed, n), letters(seed + 1, m)
    expected = [Levenshtein.distance(a.tolist(), b.tolist()) for a, b in zip(s, t, strict=True)]
    near(library.levenshtein(s_hot, t_hot, steepness=1e6).distance, expected)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seeds, st.integers(1, 6), st.integers(1, 6))
def test_shortest_path_is_dijkstras(seed, h, w):
    costs = 0.1 + draw(seed, BATCH, h, w)
    paths, distances = library.shortest_path(costs, steepness=1e7)
    expected = [dijkstra(c) for c in costs.numpy()]
    near(paths, np.array([p for p, _ in expected]))
    near(distances, np.array([d for _, d in expected]))


ON_AN_INSTRUCTION_SET = """
import torch, softly
from softly.algorithms import library

torch.manual_seed(0)
x = torch.randn(37, 5, dtype=torch.float64, requires_grad=True)
costs = (torch.rand(13, 3, 4, dtype=torch.float64) + 0.1).requires_grad_()
s, t = (torch.rand(13, n, 3, dtype=torch.float64).requires_grad_() for n in (3, 4))
results = [*library.bubble_sort.tape()(x), *library.shortest_path(costs), library.levenshtein(s, t).matrix]
results.append(softly.selection.soft_topk(x.flatten(), 20))
total = sum(r.sin().sum() for r in results)
results += torch.autograd.grad(total, (x, costs, s, t))
torch.save((softly.native.isa(), results), path)
"""


@pytest.mark.native
@pytest.mark.parametrize("isa", ["portable", "avx2"])
def test_narrower_kernels_give_the_same(isa, tmp_path):
    narrow, here = tmp_path / "narrow.pt", tmp_path / "here.pt"
    environment = {**os.environ, "SOFTLY_ISA": isa}
    script = f"path = {str(narrow)!r}\n{ON_AN_INSTRUCTION_SET}"
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    exec(ON_AN_INSTRUCTION_SET, {"path": here})
    (used, expected), (_, actual) = torch.load(narrow), torch.load(here)
    assert used in ("portable", isa, None)
    torch.testing.assert_close(actual, expected, atol=1e-12, rtol=1e-10)


def test_walls():
    costs = torch.ones(3, 5, dtype=torch.float64)
    costs[:2, 2] = torch.inf
    costs.requires_grad_()
    path, distances = library.shortest_path(costs, steepness=20.0)
    assert path[:2, 2].abs().max() < 1e-6
    assert path[2, 2] > 0.99
    assert distances[-1, -1].item() == pytest.approx(5, abs=0.2)
    assert torch.autograd.grad(path.square().sum(), costs)[0].isfinite().all()


def test_learned_steepness():
    steepness = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    costs, s, t = 0.1 + draw(0, 2, 3), torch.softmax(draw(0, 3, 2), -1), torch.softmax(draw(1, 2, 2), -1)
    torch.testing.assert_close(
        tuple(library.shortest_path(costs, steepness=steepness)), tuple(library.shortest_path(costs, steepness=3.0))
    )
    assert torch.autograd.gradcheck(lambda b: library.shortest_path(costs, steepness=b).path, steepness)
    assert torch.autograd.gradcheck(lambda b: library.levenshtein(s, t, steepness=b).matrix, steepness)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: library.levenshtein(torch.ones(2, 3), torch.ones(2, 4)), r"shapes \(..., n, letters\)"),
        (lambda: library.levenshtein(torch.ones(2, 3), torch.ones(2, 3), steepness=0), "steepness must be positive"),
        (lambda: library.levenshtein(torch.ones(2, 3), torch.ones(2, 3), similarity="dot"), "'cosine' or 'inner'"),
        (lambda: library.shortest_path(torch.ones(3)), r"costs must have shape \(..., h, w\), got \(3,\)"),
        (lambda: library.shortest_path(torch.ones(3, 3), rounds=-1), "rounds must be an int >= 0, got -1"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()
