"""Straight-line programs that run on a tape by themselves: nothing may be told from the outside but the time."""

import copy
import importlib.util
import math
import random
import subprocess
import sys
import textwrap
import warnings

import pytest
import torch

import softly
from softly import relax
from softly.algorithms import library
from softly.algorithms.python import taping

from . import random_programs

pytestmark = pytest.mark.skipif(not softly.native.available(), reason="the compiled kernels are not there")

OFFSET = 1.0
TABLE = torch.tensor([1.0, 2.0, 3.0])
LIST = [1.0, 2.0]


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def taped(function):
    return repr(function).endswith("on a tape>")


def shifted(a, b):
    return a + OFFSET if a > b else b * TABLE[1]


def helped(a, b):
    return helper(a) if a > b else b


def helper(a):
    return a + OFFSET


def sorts(array):
    for i in range(len(array)):
        for j in range(len(array) - 1 - i):
            if array[j] > array[j + 1]:
                array[j], array[j + 1] = array[j + 1], array[j]
    return array


def sums(array, limit=0.0, *, twice=False):
    total, count = 0.0, 0
    for v in array:
        if v > limit and not (v > 1.0):
            total += math.exp(v) if twice else v
            count += 1
    return total, count


def returns_early(a, b):
    if a < 0:
        return b
    if b < 0:
        return a
    return a * b


def squares(array):
    squared = [v * v for v in array]
    return [max(squared), min(squared), sum(abs(v) for v in array)]


def jumps(array):
    found = -1.0
    for v in array:
        if v < 0:
            continue
        if v > 1:
            break
        found = v
    return found


def ends_hard(array):
    i = 0
    while i < len(array) and array[i] < 0.5:
        i += 1
    return i * 1.0


PROGRAMS = {
    "larger": (shifted, (draw(5), draw(5, seed=1))),
    "a helper": (helped, (draw(5), draw(5, seed=1))),
    "sort": (sorts, (draw(3, 5),)),
    "sums": (sums, (draw(3, 5), 0.25)),
    "early returns": (returns_early, (draw(5), draw(5, seed=1))),
    "lists": (squares, (draw(3, 4),)),
    "jumps": (jumps, (draw(3, 4),)),
}


def outcome(function, arguments):
    tensors = [a.clone().requires_grad_() if isinstance(a, torch.Tensor) else a for a in arguments]
    results = torch.utils._pytree.tree_leaves(function(*tensors))
    wanted = [t for t in tensors if isinstance(t, torch.Tensor)]
    scale = sum(((i + 1) * r.sum() for i, r in enumerate(results) if r.requires_grad), torch.zeros(()).double())
    first = torch.autograd.grad(scale, wanted, create_graph=True, materialize_grads=True)
    total = sum(g.square().sum() for g in first)
    flat = tuple(torch.zeros_like(g) for g in first)
    second = torch.autograd.grad(total, wanted, materialize_grads=True) if total.requires_grad else flat
    return [*results, *first, *second], [r.requires_grad for r in results], [r.dtype for r in results]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("options", [{}, {"distribution": "cauchy", "steepness": 3.0}, {"tnorm": "hamacher"}], ids=str)
def test_a_tape_gives_what_the_engine_gives(name, options):
    function, arguments = PROGRAMS[name]
    automatic = relax(function, **options)
    engine = relax(function, taped=False, tolerance=0.0, **options)  # a tape leaves nothing out, however improbable
    results, wanted = outcome(automatic, arguments), outcome(engine, arguments)
    assert taped(automatic)
    assert results[1:] == wanted[1:]
    torch.testing.assert_close(results[0], wanted[0], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", ["bubble_sort", "bubble_sort_loss", "floyd_warshall"])
def test_programs_of_the_library_are_taped(name):
    function = getattr(library, name).using(steepness=20.0, max_iterations=100)
    x = draw(3, 4).sigmoid() if name != "floyd_warshall" else draw(2, 3, 3).exp()
    engine = function.using(taped=False)
    torch.testing.assert_close(outcome(function, (x,))[0], outcome(engine, (x,))[0], atol=2e-3, rtol=2e-3)
    assert taped(function), function._bend()
    assert not taped(engine)


def test_what_a_program_reads_from_outside_is_seen_when_it_changes(monkeypatch):
    a, b = draw(5), draw(5, seed=1)
    for function in (shifted, helped):
        automatic, engine = relax(function), relax(function, taped=False)

        def agree(automatic=automatic, engine=engine):
            torch.testing.assert_close(automatic(a, b), engine(a, b), atol=1e-6, rtol=1e-6)
            assert taped(automatic)

        with monkeypatch.context() as patch:
            agree()
            patch.setitem(globals(), "OFFSET", 5.0)
            agree()
            TABLE[1] = 7.0
            agree()
            TABLE[1] = 2.0
            agree()
            patch.setitem(globals(), "TABLE", torch.tensor([9.0, 8.0, 7.0]))
            agree()
            patch.setitem(globals(), "helper", lambda a: a * OFFSET * 3)
            agree()
            patch.setitem(globals(), "OFFSET", 6.0)
            agree()


def test_closures_are_seen_when_they_change():
    scale = 2.0

    @relax
    def scaled(x):
        return x * scale if x > 0 else x

    x = torch.tensor([1.0, -1.0])
    assert scaled(x).tolist() == pytest.approx([2.0, -1.0], abs=1e-3)
    scale = 3.0
    assert scaled(x).tolist() == pytest.approx([3.0, -1.0], abs=1e-3)
    assert taped(scaled)


def draws(x):
    return x + random.random() if x > 0 else x


def draws_tensors(x):
    return x + torch.rand(()) if x > 0 else x


def grows(x, seen=[0.0]):  # noqa: B006
    seen.append(1.0)
    return x + len(seen) if x > 0 else x


def reads_a_list(x):
    return x + LIST[0] if x > 0 else x


def prints(x):
    print("here")  # noqa: T201
    return x


def raises(x):
    if x > 0:
        raise ValueError("positive")
    return x


def asserts(x):
    assert x < 0
    return x


def recurs(x, n):
    return recurs(x - 1, n - 1) if n > 0 and x > 0 else x


class Options:
    offset = 1.0


OPTIONS = Options()


def reads_an_attribute(x):
    return x + OPTIONS.offset if x > 0 else x


def calls_a_module(x):
    return torch.nn.functional.softplus(x) if x > 0 else x


def counts(x):
    n = 0
    while x > 0:
        x, n = x - 1, n + 1
    return n * 1.0


def reads_at(array, position):
    return array[position] * 2.0


@pytest.mark.parametrize(
    "function",
    [draws, draws_tensors, grows, reads_a_list, prints, raises, asserts, reads_an_attribute, calls_a_module, counts],
)
def test_what_may_change_unseen_is_not_taped(function, capsys):
    relaxed = relax(function, steepness=50.0)
    relaxed(torch.tensor([-1.0, -2.0]))
    relaxed(torch.tensor([-1.0, -2.0]))
    assert not taped(relaxed)


def test_recursion_is_not_taped():
    relaxed = relax(recurs)
    relaxed(torch.tensor([1.0, 2.0]), 3)
    assert not taped(relaxed)


def test_checks_of_data_are_made():
    relaxed = relax(reads_at)
    array = torch.tensor([[1.0, 2.0, 3.0]])
    assert relaxed(array, torch.tensor([1.0])).item() == pytest.approx(4.0, abs=1e-3)
    with pytest.raises(IndexError, match="a relaxed position of 7 is out of range for 3 entries"):
        relaxed(array, torch.tensor([7.0]))
    assert not taped(relaxed)


def test_a_while_with_a_hard_end_is_taped():
    relaxed, x = relax(ends_hard), draw(3, 6)
    torch.testing.assert_close(relaxed(x), relax(ends_hard, taped=False)(x), atol=1e-4, rtol=1e-4)
    assert taped(relaxed)
    cut = relax(ends_hard, max_iterations=2)
    with pytest.warns(UserWarning, match="cut off after max_iterations=2"):
        cut(torch.zeros(1, 6))
    assert not taped(cut)


def test_one_recording_serves_every_steepness():
    sort, x = relax(sorts), draw(3, 5)
    for steepness in (1.0, 2.0, 30.0):
        annealed = sort.using(steepness=steepness)
        torch.testing.assert_close(annealed(x), annealed.using(taped=False, tolerance=0.0)(x), atol=1e-6, rtol=1e-6)
        assert annealed._taping is sort._taping
    assert len(sort._taping.found) == 1
    learned = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    annealed = sort.using(steepness=learned)
    (found,) = torch.autograd.grad(annealed(x)[:, 0].sum(), learned)
    (wanted,) = torch.autograd.grad(annealed.using(taped=False, tolerance=0.0)(x)[:, 0].sum(), learned)
    assert taped(annealed)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-6) != 0.0
    assert torch.autograd.gradcheck(lambda s: sort.using(steepness=s)(x), learned)


def test_infinities_and_what_overflows_go_to_the_engine():
    larger, plain = relax(shifted), relax(shifted, taped=False)
    for a, b in (([math.inf, 1.0], [0.0, 2.0]), ([-math.inf, 1.0], [0.0, 2.0]), ([math.nan, 1.0], [0.0, 2.0])):
        a, b = torch.tensor(a), torch.tensor(b)
        torch.testing.assert_close(larger(a, b), plain(a, b), equal_nan=True)

    def divides(a, b):
        return a / b if b > 0 else 0.0

    larger, plain = relax(divides), relax(divides, taped=False)
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([0.0, -1.0])
    torch.testing.assert_close(larger(a, b), plain(a, b))


def test_batches_of_any_kind():
    x = draw(2, 3, 4)
    sort = relax(sorts, batch_dims=2)
    torch.testing.assert_close(sort(x), relax(sorts, batch_dims=2, taped=False, tolerance=0.0)(x), atol=1e-6, rtol=0)
    assert taped(sort)
    single = relax(sorts, batch_dims=0)
    torch.testing.assert_close(single(x[0, 0]), relax(sorts)(x[0])[0], atol=1e-6, rtol=0)
    shared = relax(shifted, in_dims=(0, None))
    a, b = draw(5).requires_grad_(), draw(1)[0].requires_grad_()
    (found,), (wanted,) = (
        torch.autograd.grad(f(a, b).sum(), b) for f in (shared, relax(shifted, in_dims=(0, None), taped=False))
    )
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    assert relax(sorts)(torch.zeros(0, 3)).shape == (0, 3)
    turned = draw(4, 3).t()
    torch.testing.assert_close(relax(sorts)(turned), relax(sorts)(turned.contiguous()))


def test_arguments_stay_what_they_are():
    x = draw(3, 5)
    before = x.clone()
    sort = relax(sorts)
    result = sort(x)
    result.fill_(0.0)
    sort(x).fill_(7.0)
    assert taped(sort)
    assert torch.equal(x, before)


def test_hard_arguments_have_recordings_of_their_own():
    relaxed, engine = relax(sums), relax(sums, taped=False, tolerance=0.0)
    x = draw(3, 5)
    for limit in (0, 0.0, 1, True, 0.5):
        for twice in (False, True):
            torch.testing.assert_close(
                relaxed(x, limit, twice=twice), engine(x, limit, twice=twice), atol=1e-6, rtol=1e-6
            )
    assert taped(relaxed)


def test_no_more_is_recorded_than_pays(monkeypatch):
    relaxed = relax(sums)
    for n in range(1, 2 * taping._SHAPES):
        relaxed(draw(2, n))
    assert len(relaxed._taping.found) == taping._SHAPES
    monkeypatch.setattr(taping, "_INSTRUCTIONS", 10)
    small = relax(sorts)
    small(draw(2, 6))
    assert not taped(small)


def test_recording_draws_no_random_numbers_and_is_for_all_modes():
    torch.manual_seed(0)
    wanted = torch.rand(3)
    torch.manual_seed(0)
    sort, x = relax(sorts), draw(3, 5)
    with torch.inference_mode():
        sort(x)
    assert torch.equal(torch.rand(3), wanted)
    y = x.clone().requires_grad_()
    sort(y).sum().backward()
    assert taped(sort)
    assert y.grad is not None
    with torch.device("meta"):
        relax(sorts)(x)
    with torch.autocast("cpu"):
        torch.testing.assert_close(relax(sorts)(x), relax(sorts, taped=False)(x))


def test_functions_that_hold_a_tape_can_be_copied():
    sort, x = relax(sorts), draw(3, 5)
    sort(x)
    torch.testing.assert_close(copy.deepcopy(sort)(x), sort(x))


def test_single_and_half_precision():
    sort = relax(sorts)
    x = draw(3, 5)
    torch.testing.assert_close(sort(x.float()), sort(x).float(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(sort(x.half()), relax(sorts, taped=False)(x.half()))


def test_a_first_call_does_not_import_the_compiler(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            import torch, softly
            from softly.algorithms import library
            x = torch.randn(3, 5, requires_grad=True)
            library.bubble_sort(x)[0].sum().backward()
            print(library.bubble_sort, "torch._dynamo" in sys.modules)
            """
        )
    )
    shown = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "<relaxed function bubble_sort, on a tape> False"


def test_nothing_is_warned_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sort = relax(sorts)
        sort(draw(3, 5))
    assert taped(sort)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_give_what_the_engine_gives(seed, tmp_path):
    path = tmp_path / f"program_{seed}.py"
    path.write_text(random_programs.program(seed))
    described = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    function = getattr(module, path.stem)
    arguments = (draw(5, seed=seed), draw(5, seed=seed + 1), draw(5, 3, seed=seed + 2))
    steepness = (1.0, 3.0, 10.0)[seed % 3]
    automatic = relax(function, steepness=steepness)
    found = outcome(automatic, arguments)
    wanted = outcome(relax(function, steepness=steepness, taped=False, tolerance=0.0), arguments)
    assert taped(automatic)
    assert found[1:] == wanted[1:]
    torch.testing.assert_close(found[0], wanted[0], atol=1e-6, rtol=1e-5)
