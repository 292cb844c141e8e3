"""What becomes of values in a relaxed Python function: hard ones, collections, arrays, positions, calls."""

import importlib.util
import math

import pytest
import torch

import softly
from softly.algorithms import steepness

from .examples import Count, P, X, Y, close, relax

sigmoid = torch.sigmoid


def test_hard_values_stay_hard_along_a_path_and_join_to_their_expectation():
    seen = []

    @relax(max_iterations=4)
    def hard_along(x):
        n, kept, name = 5, 3, "same"
        while x > 0:
            n -= 1
            seen.append(n)
            x = x - 1
        return n, kept, name

    with pytest.warns(UserWarning, match="cut off"):
        n, kept, name = hard_along(X + 10)
    assert seen == [4, 3, 2, 1]
    assert n.dtype == torch.float64
    close(kept, 3.0)
    assert name == "same"


def test_collections_join_element_by_element():
    @relax()
    def collect(x):
        items, pair, table = [1, x], (x, 2), {"a": 0}
        if x > 0:
            items = [2, x]
            items.append(4)
            pair = (0, 2)
            table["a"] = 1
        else:
            items.append(5)
        return items, pair, table

    p = sigmoid(2 * X)
    items, pair, table = collect(X)
    close(items[0], p * 2 + (1 - p))
    close(items[1], X)
    close(items[2], p * 4 + (1 - p) * 5)
    close(pair[0], (1 - p) * X)
    close(table["a"], p)


def test_different_lengths_can_not_join():
    @relax()
    def grow(x):
        items = []
        if x > 0:
            items.append(x)
        return items

    with pytest.raises(ValueError, match="different lengths on joining paths"):
        grow(X)


def test_strings_can_not_mix():
    @relax()
    def label(x):
        return "positive" if x > 0 else "negative"

    with pytest.raises(TypeError, match=r"test_values.py:\d+: .*only numbers"):
        label(X)


def test_a_bound_that_depends_on_a_relaxed_number():
    @relax()
    def bound(x):
        n = 2
        if x > 0:
            n = 3
        total = 0
        for i in range(n):
            total += i
        return total

    # It is 2 or 3, told apart half-way: the third round is run with the probability that the bound is above it.
    n = 2 + sigmoid(2 * X)
    close(bound(X), sigmoid(2 * (n - 0.5)) * 0 + sigmoid(2 * (n - 1.5)) * 1 + sigmoid(2 * (n - 2.5)) * 2)
    close(bound.using(steepness=1e6)(X), torch.where(X > 0, 3.0, 1.0))

    @relax()
    def listed(x):
        n = 2
        if x > 0:
            n = 3
        return [i for i in range(n)]  # noqa: C416

    with pytest.raises(TypeError, match=r"range\(\) of a relaxed number; a loop bound must be a hard int"):
        listed(X)


def test_variables_of_one_branch():
    @relax()
    def temporary(x):
        if x > 0:
            t = x * 2
            x = t
        return x

    p = sigmoid(2 * X)
    close(temporary(X), p * 2 * X + (1 - p) * X)

    @relax()
    def missing(x):
        if x > 0:
            t = x * 2
        return t + 1

    with pytest.raises(UnboundLocalError, match="'t' has no value here"):
        missing(X)


def test_truth_is_that_of_python():
    @relax()
    def truth(x):
        return 1.0 if x else 0.0

    close(truth(X), 1 - 1 / torch.cosh(X) ** 2)  # x != 0
    close(truth(torch.tensor([False, True])), torch.tensor([0.0, 1.0]))

    @relax()
    def flag(x):
        found = 0
        if x > 0:
            found = 1
        return 2.0 if found else 3.0

    close(flag(X), 3 - sigmoid(2 * X))  # a flag is true with its probability, whether it says 1 or True


def test_indexing_at_real_positions():
    array = torch.tensor([[1.0, 2.0, 4.0], [3.0, 5.0, 9.0], [0.0, 1.0, 0.0]], dtype=torch.float64)

    @relax()
    def read(array, i):
        return array[i]

    # As in Python, −1 is the last entry.
    w = torch.stack([1 / torch.cosh(torch.where(X < -0.5, X + 3, X) - j) ** 2 for j in range(3)], 1)
    w = w / w.sum(1, keepdim=True)
    close(read(array, X), (w * array).sum(1))

    @relax()
    def write(array, i, y):
        array[i] = y
        return array

    close(write(array, X, Y), w * Y[:, None] + (1 - w) * array)


def test_indexing_in_two_dimensions():
    grid = torch.arange(12.0, dtype=torch.float64).reshape(1, 3, 4)
    i, j = torch.tensor([1.3], dtype=torch.float64), torch.tensor([2.2], dtype=torch.float64)

    @relax(steepness=3.0)
    def read(grid, i, j):
        return grid[i, j], grid[1, j], grid[i, 0]

    def weights(position, n):
        w = 1 / torch.cosh(1.5 * (torch.arange(n, dtype=torch.float64) - position)) ** 2
        return w / w.sum()

    both, column, row = read(grid, i, j)
    close(both, weights(i, 3) @ grid[0] @ weights(j, 4))
    close(column, grid[0, 1] @ weights(j, 4))
    close(row, weights(i, 3) @ grid[0, :, 0])


def test_the_normaliser_is_differentiated_only_on_demand():
    array = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    position = torch.tensor([0.7], dtype=torch.float64, requires_grad=True)

    @relax()
    def read(array, i):
        return array[i]

    exact = read.using(exact_gradient=True)
    assert torch.autograd.gradcheck(exact, (array, position))
    density = 1 / torch.cosh(torch.arange(3) - position) ** 2
    (expected,) = torch.autograd.grad((density * array[0]).sum() / density.sum().item(), position)
    (actual,) = torch.autograd.grad(read(array, position), position)
    close(actual, expected)


def test_categorical_positions():
    scores = torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]], dtype=torch.float64)
    array = torch.tensor([[5.0, 6.0, 7.0], [1.0, 2.0, 3.0]], dtype=torch.float64)

    @relax()
    def lookup(scores, array):
        best = torch.argmax(scores)
        value = array[best]
        array[best] = 0.0
        return value, array, best + 1

    w = torch.softmax(2 * scores, 1)
    value, written, position = lookup(scores, array)
    close(value, (w * array).sum(1))
    close(written, (1 - w) * array)
    close(position, (w * torch.arange(3)).sum(1) + 1)


def test_relaxed_builtins():
    @relax()
    def builtins(x, y, z):
        return [min(x, y), max([x, y, z]), abs(x), sum([x, y, 1]), *sorted([x, y]), any([x > 0, y > 0])]

    z = X.flip(0)
    low, high, absolute, total, first, second, either = builtins(X, Y, z)
    close(low, (1 - P) * X + P * Y)
    stacked = torch.stack((X, Y, z))
    close(high, (torch.softmax(2 * stacked, 0) * stacked).sum(0))
    close(absolute, X * torch.tanh(X))
    close(total, X + Y + 1)
    close(first, (1 - P) * X + P * Y)
    close(second, P * X + (1 - P) * Y)
    close(either, 1 - (1 - sigmoid(2 * X)) * (1 - sigmoid(2 * Y)))


def test_all_and_any_of_an_array():
    @relax()
    def every(grid):
        return (grid > 0).all(), (grid > 0).any(1), torch.all(grid > 0), any(v > 0 for v in grid[0])

    grid = torch.randn(4, 2, 3, dtype=torch.float64)
    p = sigmoid(2 * grid)
    whole, rows, again, first = every(grid)
    close(whole, p.prod(1).prod(1))
    close(again, whole)
    close(rows, 1 - (1 - p).prod(2))
    close(first, rows[:, 0])


def test_calls_to_relaxed_torch_and_module():
    net = torch.nn.Linear(3, 2).double()
    weight = torch.randn(3, dtype=torch.float64)

    @relax()
    def helper(x):
        return x if x > 0 else 0.0

    @relax()
    def calls(array, x):
        hidden = net(array)
        total = torch.tanh(array).sum() + (array * weight).sum() + math.exp(1.0) * torch.exp(x) + math.sin(x)
        return helper(hidden[0]) + total

    array = torch.randn(3, 3, dtype=torch.float64)
    hidden = net(array)[:, 0]
    expected = sigmoid(2 * hidden) * hidden + array.tanh().sum(1) + (array * weight).sum(1)
    close(calls(array, X), expected + math.e * X.exp() + X.sin())


def positive_part(v):
    if v > 0:
        return v
    return 0.0


def test_plain_functions_that_are_called_are_relaxed_too():
    @relax()
    def calls(x, y):
        return positive_part(x) + positive_part(y) + positive_part(-3.0)

    expected = sigmoid(2 * X) * X + sigmoid(2 * Y) * Y
    close(calls(X, Y), expected)
    close(calls(X[:1], Y[:1]), expected[:1])  # where a tensor has a truth value of its own


def test_whole_numbers_in_tensors():
    @relax()
    def larger(a, b):
        if a > b:
            b = a
        return b

    a, b = torch.tensor([1, 5]), torch.tensor([2, 3])
    p = sigmoid(2.0 * (a - b - 0.5))  # ints are told apart half-way, so that there are no ties
    close(larger(a, b), p * a + (1 - p) * b)
    assert larger.hard(a, b).tolist() == [2, 5]

    @relax(steepness=1e6)
    def order(a, b):
        return [a < b, a <= b, a > b, a >= b, a == b, a != b]

    a, b = torch.tensor([1, 2, 3]), torch.tensor([2, 2, 2])
    for actual, expected in zip(order(a, b), (a < b, a <= b, a > b, a >= b, a == b, a != b), strict=True):
        close(actual, expected)


def test_categorical_equality():
    @relax()
    def same(p, q):
        return 1.0 if softly.categorical_equal(p, q) else 0.0

    p, q = torch.softmax(torch.randn(2, 4, 5), -1)
    close(same(p, q), torch.cosine_similarity(p, q))


def relaxed_floor(x, steepness=2.0):
    low = torch.floor(x.detach())
    top = sigmoid(torch.tensor(steepness, dtype=x.dtype))
    return low + (top - sigmoid(steepness * (1 - (x - low)))) / (top - 0.5)


def test_arithmetic_with_whole_quotients():
    @relax()
    def quotients(x, y):
        z = x
        z //= 0.5
        return [x // y, x % y, 2**x, divmod(x, y)[0], z, (x // 0.25) * y, math.log(y, 2), math.pow(y, 2)]

    def expected(x, y):
        floors = [relaxed_floor(x / d) for d in (y, 0.5, 0.25)]
        return [floors[0], x - y * floors[0], 2**x, floors[0], floors[1], floors[2] * y, y.log2(), y**2]

    x = X.clone().requires_grad_()
    results, wanted = quotients(x, Y), expected(x, Y)
    for actual, value in zip(results, wanted, strict=True):
        close(actual, value)
    gradients = [torch.autograd.grad(sum(r.sum() for r in rs), x)[0] for rs in (results, wanted)]
    close(*gradients)
    y = Y + 0.01  # so that no quotient is whole but for rounding
    hard = [X // y, X % y, 2**X, X // y, X // 0.5, (X // 0.25) * y, y.log2(), y**2]
    for actual, value in zip(quotients.using(steepness=1e6)(X, y), hard, strict=True):
        close(actual, value)


def test_whole_numbers_of_relaxed_ones_are_continuous_and_exact_at_whole_numbers():
    @relax(steepness=5.0)
    def whole(x):
        return [round(x), int(x), math.floor(x), math.ceil(x), x // 1]

    integers = torch.arange(-3.0, 4.0, dtype=torch.float64)
    for values in whole(integers):
        close(values, integers)
    for values in (whole(integers + 1e-9), whole(integers - 1e-9)):
        for value in values:
            torch.testing.assert_close(value, integers, atol=1e-6, rtol=0)
    x = torch.tensor([-1.7, -0.2, 0.2, 1.4, 2.6], dtype=torch.float64)
    steep = whole.using(steepness=1e6)(x)
    for value, hard in zip(steep, (x.round(), x.trunc(), x.floor(), x.ceil(), x.floor()), strict=True):
        close(value, hard)
    y = x.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda v: torch.stack(whole(v)), (y,))


def test_arrays_tell_their_size_and_give_their_parts():
    @relax()
    def parts(grid):
        assert (len(grid), grid.dim(), grid.numel(), grid.size(1), tuple(grid.shape)) == (2, 2, 6, 3, (2, 3))
        return grid.max(), grid[0].min(), grid.mean(0), grid.T[0], grid[:, ::2], grid[-1, -1], grid[..., 1], grid[1][1:]

    g = torch.randn(4, 2, 3)
    expected = (
        g.amax((1, 2)),
        g[:, 0].amin(1),
        g.mean(1),
        g[:, :, 0],
        g[:, :, ::2],
        g[:, -1, -1],
        g[:, :, 1],
        g[:, 1, 1:],
    )
    for actual, value in zip(parts(g), expected, strict=True):
        close(actual, value)


def test_comprehensions_enumerate_zip_and_unpacking():
    @relax()
    def mixed(array):
        doubled = [2 * v for v in array]
        pairs = [a * b for a, b in zip(array, doubled, strict=True)]
        first, *rest = pairs
        total = sum(i * v for i, v in enumerate(rest))
        return first + total

    x = torch.randn(2, 3, dtype=torch.float64)
    close(mixed(x), 2 * x[:, 0] ** 2 + 2 * x[:, 2] ** 2)


def test_steepness_of_conditions_and_variables():
    @relax(variables={"y": 7.0})
    def own(x, y):
        with steepness(20.0):
            a = 1.0 if x > 0 else 0.0
        b = 1.0 if y > 0 else 0.0
        c = 1.0 if x > 0 else 0.0
        return [a, b, c]

    a, b, c = own(X, Y)
    close(a, sigmoid(20 * X))
    close(b, sigmoid(7 * Y))
    close(c, sigmoid(2 * X))


def test_steepness_can_be_learned():
    s = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)

    @relax(steepness=s)
    def positive(x):
        return 1.0 if x > 0 else 0.0

    (grad,) = torch.autograd.grad(positive(X).sum(), s)
    p = sigmoid(2 * X)
    close(grad, (X * p * (1 - p)).sum())


def conditional_swap(array):
    if array[3] > array[4]:
        array[3], array[4] = array[4], array[3]
    return array[3], array[4]


@pytest.mark.parametrize("n", [5, 1000])
def test_a_conditional_swap_costs_two_elements(n):
    x = torch.randn(8, n)
    relaxed = relax()(conditional_swap)
    with Count() as empty:
        relax()(lambda_free)(x)
    with Count() as count:
        relaxed(x)
    assert 0 < len(count.operations) - len(empty.operations) <= 6
    # No operation is on the whole array but the one that takes it apart.
    assert sum(str(op).startswith("aten.unbind") for op in count.operations) == 1
    assert not any(str(op).startswith(("aten.stack", "aten.cat")) for op in count.operations)


def lambda_free(array):
    return array[3], array[4]


def test_arguments_are_never_mutated():
    @relax()
    def overwrite(array, items):
        array[0] = 0.0
        array += 1
        return array

    x = torch.randn(2, 3)
    before = x.clone()
    close(overwrite(x, None), torch.cat((torch.ones(2, 1), before[:, 1:] + 1), 1))
    assert torch.equal(x, before)


def test_rows_are_views():
    @relax()
    def view(grid):
        row = grid[1]
        row[0] = 9.0
        grid[0][1] = 8.0
        return grid

    grid = torch.zeros(2, 2, 2)
    expected = torch.tensor([[0.0, 8.0], [9.0, 0.0]])
    close(view(grid), expected)
    close(view.hard(grid), expected)


def test_batch_dims_and_in_dims():
    @relax(batch_dims=0)
    def single(x, y):
        return x if x > y else y

    @relax(batch_dims=2)
    def grid(array):
        return array[0] if array[0] > array[1] else array[1]

    @relax(in_dims=(0, None))
    def shared(x, weights):
        return x * weights[1]

    close(single(X[0], Y[0]), P[0] * X[0] + (1 - P[0]) * Y[0])
    x = torch.randn(2, 3, 2)
    assert grid(x).shape == (2, 3)
    torch.testing.assert_close(grid(x)[1], grid.using(batch_dims=1)(x[1]))
    close(shared(X, torch.tensor([1.0, 2.0], dtype=torch.float64)), 2 * X)
    with pytest.raises(ValueError, match=r"tensors of one batch, got \(3,\) and \(2,\)"):
        shared.using(in_dims=None)(X, Y[:2])


def test_infinities():
    @relax()
    def smallest(array):
        best = float("inf")
        for v in array:
            if v < best:
                best = v
        return best

    x = torch.tensor([[1.0, -2.0, 4.0], [3.0, math.inf, 1.0]], dtype=torch.float64, requires_grad=True)
    value = smallest(x)
    assert value.isfinite().all()
    (grad,) = torch.autograd.grad(value.sum(), x)
    assert grad.isfinite().all()


def smallest_of(values):
    best = math.inf
    for v in values:
        if v < best:
            best = v
    return best


def test_infinities_in_functions_that_are_called():
    @relax()
    def through(array):
        return smallest_of(array) + 1

    x = torch.randn(4, 3, dtype=torch.float64)
    close(through(x), relax()(smallest_of)(x) + 1)
    assert through(x).isfinite().all()


def test_nan_is_not_hidden():
    x = torch.tensor([[1.0, math.nan, 2.0, 3.0, 4.0]])
    assert relax()(conditional_swap)(x.roll(2, 1))[0].isnan().all()


WIDER = (
    "max(a, b, 0.5)",
    "max(0.5, a, b)",
    "max(b, 0.5, a)",
    "min([0.5, a, b])",
    "sorted([a, 0.5, b])[0]",
    "sum([0.5, b, a])",
)
OWN = (
    "max(a, 0.5)",
    "min(0.5, a)",
    "max(1, a)",
    "sorted([0.5, a])[0]",
    "sorted([a, 2])[1]",
    "a + 0.5",
    "max(a, 0.5, key=abs)",
)


@pytest.mark.parametrize("expression", WIDER + OWN)
@pytest.mark.parametrize("other", [torch.float64, torch.bfloat16, torch.int64], ids=str)
def test_numbers_have_no_say_in_dtypes(expression, other, tmp_path):
    """Tensors are promoted as torch does it, in any order of arguments and operands."""
    (tmp_path / "program.py").write_text(
        f"def forwards(a, b):\n    return {expression}\n\n\ndef backwards(b, a):\n    return {expression}\n"
    )
    spec = importlib.util.spec_from_file_location("program", tmp_path / "program.py")
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    a, b = torch.tensor([0.25, 2.0]), torch.tensor([1.0, 3.0]).to(other)
    for hard in (False, True):
        expected = torch.float32 if expression in OWN else torch.promote_types(a.dtype, other)
        assert softly.relax(module.forwards, hard=hard)(a, b).dtype == expected
        assert softly.relax(module.backwards, hard=hard)(b, a).dtype == expected
    assert softly.relax(module.forwards, steepness=1e6)(a, b).float().tolist() == pytest.approx(
        softly.relax(module.forwards, hard=True)(a, b).float().tolist(), abs=1e-2
    )


def test_identity_of_what_is_not_relaxed():
    def identities(x):
        rows = [x, 2 * x]
        same, none = rows, None
        found = [same is rows, list(rows) is rows, none is None, rows is None, same is not rows, none is not None]
        return [x if answer else 0 * x for answer in found]

    assert [float(y) for y in relax()(identities)(torch.ones(1))] == [1, 0, 1, 0, 0, 0]


def test_bits_of_whole_tensors():
    def bits(a, b):
        return a & b, a | 1, 2 ^ a, b << 1, a >> 1

    a, b = torch.tensor([5, 6, 12]), torch.tensor([3, 5, 10])
    found = relax()(bits)(a, b)
    assert [y.tolist() for y in found] == [y.tolist() for y in (a & b, a | 1, 2 ^ a, b << 1, a >> 1)]
    with pytest.raises(TypeError, match=r"& of relaxed numbers; bits have no derivative"):
        relax()(bits)(a.float(), b)
