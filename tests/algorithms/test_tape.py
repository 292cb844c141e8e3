"""Recorded programs give what the programs give, in value and in derivatives of any order."""

import pytest
import torch

import softly
from softly import native
from softly.algorithms import library
from softly.algorithms.tape import recorder

from . import listings

relax = softly.relax


def draw(seed, *shape, dtype=torch.float64):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def letters(seed, n):
    return torch.softmax(3 * draw(seed, 40, n, 3), -1)


def clip(x, low, high):
    if x < low:
        return low
    if x > high:
        return high
    return x


def mathematics(x, y):
    a = torch.exp(-x) + torch.log(y + 1) * torch.sqrt(y) - torch.tanh(x) / (1 + abs(y))
    b = torch.sin(x) * torch.cos(y) + torch.atan(x) + torch.log1p(y) - torch.expm1(x * 0.1) + torch.square(x)
    c = torch.minimum(x, y) + torch.maximum(x, -y) + torch.clamp(x, 0.2, 0.7) + torch.relu(x - y) + x**3 + y**-2
    d = torch.where(x > y, x, y * 2) + torch.reciprocal(y + 1) + x**1.5 + torch.floor(3 * x) + x % 0.3 + torch.sign(x)
    return a + b + c + d


def arrays(grid, vector):
    moved = torch.cat([grid.T[1:], vector.reshape(1, 2)])
    scaled = torch.softmax(moved, -1) * 2 + grid.mean(0) - vector.amax()
    product = grid @ vector
    total = scaled.sum() + product.prod() + torch.flip(vector, [0])[0] + vector.amin()
    return scaled, total


CASES = {
    "bubble_sort": (library.bubble_sort, (draw(0, 40, 5),)),
    "insertion_sort": (library.insertion_sort, (draw(0, 40, 4),)),
    "binary_search": (library.binary_search, (draw(0, 40, 5).sort(1).values, draw(1, 40))),
    "levenshtein": (library.levenshtein_program, (letters(0, 3), letters(1, 4))),
    "dynamic_time_warping": (library.dynamic_time_warping, (draw(0, 40, 3), draw(1, 40, 4))),
    "knapsack": (library.knapsack, (draw(0, 40, 3), [1, 2, 3], 4)),
    "viterbi": (library.viterbi, (draw(0, 40, 3, 2), draw(1, 40, 2, 2))),
    "shortest_path": (library.shortest_path_program, (draw(0, 40, 2, 3),)),
    "floyd_warshall": (library.floyd_warshall, (draw(0, 40, 3, 3),)),
    "connected_components": (library.connected_components, (draw(0, 40, 3, 3),)),
    "decision_tree": (library.decision_tree, (draw(0, 40, 2), (0, 0.4, 1.0, (1, 0.6, 5.0, 7.0)))),
    "gcd": (library.gcd.using(max_iterations=5, steepness=2.0), (draw(0, 40), draw(1, 40))),
    "clip": (relax(clip, steepness=4.0), (draw(0, 40), 0.3, 0.6)),
    "mathematics": (relax(mathematics), (draw(0, 40), draw(1, 40) + 0.5)),
    "arrays": (relax(arrays), (draw(0, 40, 2, 2), draw(1, 40, 2))),
}


def outcome(function, arguments, seed=3):
    tensors = [a.requires_grad_() for a in arguments if isinstance(a, torch.Tensor)]
    values = torch.utils._pytree.tree_leaves(function(*arguments))
    generator = torch.Generator().manual_seed(seed)
    total = sum((v * torch.rand(v.shape, generator=generator, dtype=torch.float64)).sum() for v in values)
    return values, torch.autograd.grad(total, tensors)


@pytest.mark.filterwarnings("ignore:softly.relax. a while loop was cut off:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_a_tape_gives_what_the_function_gives(name):
    function, arguments = CASES[name]
    exact = function.using(tolerance=0.0)  # a tape leaves nothing out, however improbable
    torch.testing.assert_close(outcome(function.tape(), arguments), outcome(exact, arguments), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", [n for n in softly.distributions.names() if n != "gamma"])
def test_tapes_of_every_distribution(name):
    @relax(distribution=name, steepness=1.7)
    def choose(x, y):
        return x * 2 if x > y else y

    arguments = (4 * draw(0, 40) - 2, draw(1, 40))
    torch.testing.assert_close(outcome(choose.tape(), arguments), outcome(choose, arguments))


@pytest.mark.native
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 3, 31, 32, 33, 200])
def test_kernel_equals_reference(dtype, batch, monkeypatch):
    tape = library.bubble_sort.tape()
    results = []
    x = draw(0, batch, 4, dtype=dtype).requires_grad_()
    for module in (native.library.module, None):
        with monkeypatch.context() as patch:
            patch.setattr(native.library, "module", module)
            array, swaps = tape(x)
            gradient = torch.autograd.grad((array * torch.arange(4)).sum() + swaps.sum(), x)
            results.append((array, swaps, *gradient))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(results[0], results[1], atol=tolerance, rtol=tolerance)


@pytest.mark.native
def test_the_operations_have_the_numbers_of_the_kernels():
    if native.available():
        assert native.function("tape_operations")() == recorder.OPERATIONS


def test_derivatives_of_derivatives():
    tape = library.bubble_sort.tape()
    x = draw(0, 2, 3).requires_grad_()
    assert torch.autograd.gradcheck(tape, x)
    assert torch.autograd.gradgradcheck(tape, x)
    function = lambda y: tape(y)[0].square().sum()  # noqa: E731
    torch.testing.assert_close(
        torch.func.hessian(function)(x.detach()), torch.autograd.functional.hessian(function, x.detach())
    )


def test_one_recording_for_each_shape_and_hard_argument():
    tape = library.knapsack.tape()
    for capacity, batch in ((3, 2), (3, 5), (4, 2)):
        values = draw(0, batch, 2)
        torch.testing.assert_close(tape(values, [1, 2], capacity), library.knapsack(values, [1, 2], capacity))
    assert len(tape._recordings) == 2


def test_a_tape_takes_the_batch_as_the_function_does():
    pair = library.dynamic_time_warping.using(batch_dims=2)
    a, b = draw(0, 2, 3, 4), draw(1, 2, 3, 2)
    torch.testing.assert_close(pair.tape()(a, b), pair(a, b))
    shared = library.dynamic_time_warping.using(in_dims=(0, None))
    template = draw(2, 3).requires_grad_()
    torch.testing.assert_close(
        torch.autograd.grad(shared.tape()(a[0], template).sum(), template),
        torch.autograd.grad(shared(a[0], template).sum(), template),
    )


def test_tapes_of_the_chapters_listings():
    x = draw(0, 9, 4).requires_grad_()
    sort = listings.bubble_sort(softly.algorithms)
    torch.testing.assert_close(outcome(sort.tape(), (x,)), outcome(sort, (x,)), atol=1e-6, rtol=1e-6)
    strings = (letters(0, 3), letters(1, 2))
    edits = listings.levenshtein(softly.algorithms)
    torch.testing.assert_close(outcome(edits.tape(), strings), outcome(edits, strings))


def test_a_tape_under_compilation():
    tape = library.bubble_sort.tape()
    x = draw(0, 2, 3)
    torch._dynamo.reset()
    compiled = torch.compile(lambda y: tape(y)[0], backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), tape(x)[0])


OUTSIDE = torch.ones(2, requires_grad=True)


def test_what_can_not_be_recorded():
    @relax
    def captured(x):
        return x * OUTSIDE[0]

    @relax
    def sorting(x):
        return torch.cumsum(x, 0)

    with pytest.raises(TypeError, match="captured can't be recorded: a tensor from outside requires a gradient"):
        captured.tape()(torch.ones(3))
    with pytest.raises(TypeError, match="sorting can't be recorded: there is no instruction for torch's cumsum"):
        sorting.tape()(torch.ones(3, 2))
    with pytest.raises(TypeError, match="can't tell recordings apart by an argument of type set"):
        relax(clip).tape()(torch.ones(2), {1}, 0.0)
    with pytest.raises(TypeError, match=r"a tape needs one steepness, got \(2,\)"):
        relax(clip, steepness=torch.tensor([2.0, 3.0])).tape()(torch.ones(2), 0.0, 1.0)
    with pytest.raises(TypeError, match=r"a tape takes floating-point tensors, got torch\.int64"):
        library.knapsack.tape()(torch.ones(2, 2, dtype=torch.int64), [1, 1], 2)


@pytest.mark.native
@pytest.mark.skipif(not softly.native.available(), reason="the compiled kernels are not there")
def test_operator_is_registered_properly():
    tape = library.bubble_sort.tape()
    tape(draw(0, 2, 3))
    (recording,) = tape._recordings.values()
    x = draw(0, 4, 5).requires_grad_()  # the numbers of an example, and the steepness
    torch.library.opcheck(torch.ops.softly.tape, (x, recording.code, recording.constants, recording.outputs))


def test_numbers_of_outside_that_differ_between_examples_are_refused():
    """A tensor as long as the batch of a recording can't be told from one that has a number for each example."""
    from softly.algorithms.tape.aten import RULES

    with recorder.Recorder(61, RULES) as seen:
        x = torch.rand(61)
        seen.follow(x)
        assert seen.slots(x + torch.full((61,), 2.0)).shape == (1,)
        with pytest.raises(recorder.RecordingError, match="numbers that differ between examples come from outside"):
            x + torch.arange(61.0)


def ties(a, b):
    return torch.minimum(a, b), torch.maximum(a, b), torch.abs(a - b), torch.relu(a - b), torch.clamp(a, 1.0, 2.0)


@pytest.mark.native
def test_gradients_at_ties_are_those_of_torch():
    a = torch.tensor([1.0, 2.0, 0.0, -3.0], dtype=torch.float64, requires_grad=True)
    b = torch.tensor([1.0, 2.0, 0.0, 4.0], dtype=torch.float64, requires_grad=True)
    tape = relax(ties).tape()
    for found, wanted in zip(tape(a, b), ties(a, b), strict=True):
        torch.testing.assert_close(found, wanted)
        options = {"retain_graph": True, "materialize_grads": True}
        torch.testing.assert_close(
            torch.autograd.grad(found.sum(), (a, b), **options), torch.autograd.grad(wanted.sum(), (a, b), **options)
        )


@pytest.mark.native
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_numbers_that_are_none_stay_none(dtype):
    x = torch.tensor([[1.0, float("nan"), 0.5], [2.0, 1.0, 0.0]], dtype=dtype)
    array, swaps = library.bubble_sort.tape()(x)
    assert array.dtype == swaps.dtype == dtype
    assert bool(array[0].isnan().any())
    assert bool(swaps[0].isnan())
    assert bool(array[1].isfinite().all())
    assert bool(swaps[1].isfinite())


@pytest.mark.native
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_numbers_that_are_none_win_as_they_do_in_torch(dtype):
    nan = float("nan")
    a = torch.tensor([1.0, nan, 2.0, nan, -1.0, nan], dtype=dtype)
    b = torch.tensor([nan, 1.0, 2.0, nan, 3.0, -2.0], dtype=dtype)
    for found, wanted in zip(relax(ties).tape()(a, b), ties(a, b), strict=True):
        torch.testing.assert_close(found, wanted, equal_nan=True)


POWERS = [
    lambda a, b: a**0,
    lambda a, b: a**1,
    lambda a, b: a**2,
    lambda a, b: a**-3,
    lambda a, b: a**9,
    lambda a, b: a**0.5,
    lambda a, b: a**1.5,
    lambda a, b: 2.0**a,
    lambda a, b: 0.0**a,
    lambda a, b: a**b,
]


@pytest.mark.native
@pytest.mark.parametrize("power", POWERS)
@pytest.mark.parametrize("taped", [True, False])
def test_powers_are_those_of_torch_for_every_base(power, taped):
    numbers = torch.tensor([0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 2.5], dtype=torch.float64)
    a, b = (x.flatten().clone().requires_grad_() for x in torch.meshgrid(numbers, numbers, indexing="ij"))
    relaxed = relax(power).tape() if taped else relax(power)
    found, wanted = relaxed(a, b), power(a, b)
    torch.testing.assert_close(found, wanted, equal_nan=True)
    regular = wanted.isfinite()
    slopes, expected = (torch.autograd.grad(x[regular].sum(), (a, b), materialize_grads=True) for x in (found, wanted))
    for slope, right in zip(slopes, expected, strict=True):
        assert torch.equal(slope.isfinite(), right.isfinite())
        torch.testing.assert_close(slope[right.isfinite()], right[right.isfinite()])


@pytest.mark.native
def test_what_is_true_on_a_tape_is_what_is_not_zero():
    a = torch.tensor([0.0, 1.0, -1.0, 0.5, float("nan"), 3.0])
    b = torch.tensor([0.0, 0.0, -2.0, -0.5, 0.0, float("nan")])

    def truths(a, b):
        return torch.logical_and(a, b), torch.logical_or(a, b), torch.logical_not(a), torch.sign(a)

    for found, wanted in zip(relax(truths).tape()(a, b), truths(a, b), strict=True):
        assert torch.equal(found, wanted)


def test_bits_of_whole_numbers_are_refused_on_tapes():
    def bits(a):
        return a.int() & 3

    with pytest.raises(TypeError, match="no instruction for bits of whole numbers"):
        relax(bits).tape()(torch.tensor([1.0, 5.0]))


@pytest.mark.native
def test_the_origin_has_no_angle_to_differentiate():
    a = torch.tensor([0.0, 1.0], requires_grad=True)
    b = torch.tensor([0.0, 2.0], requires_grad=True)
    found = torch.autograd.grad(relax(torch_atan2).tape()(a, b).sum(), (a, b))
    torch.testing.assert_close(found, torch.autograd.grad(torch.atan2(a, b).sum(), (a, b)))


def torch_atan2(a, b):
    return torch.atan2(a, b)
