"""What a relaxed Python function means, construct by construct."""

import pytest
import torch

import softly
from softly.algorithms import unmerged

from .examples import P, X, Y, close, relax

sigmoid = torch.sigmoid


def test_every_comparison():
    @relax()
    def all_of_them(x, y):
        return [x < y, x <= y, x > y, x >= y, x == y, x != y]

    less, less_equal, greater, greater_equal, equal, different = all_of_them(X, Y)
    close(less, 1 - P)
    close(less_equal, 1 - P)
    close(greater, P)
    close(greater_equal, P)
    close(equal, 1 / torch.cosh(X - Y) ** 2)
    close(different, 1 - 1 / torch.cosh(X - Y) ** 2)


def test_chained_comparison_is_a_conjunction():
    @relax()
    def between(x, y):
        return -1 < x < y

    close(between(X, Y), sigmoid(2 * (X + 1)) * (1 - P))


def test_each_access_is_perturbed_independently():
    @relax()
    def itself(x):
        return x < x

    close(itself(X), 0.5)


@pytest.mark.parametrize("name", ["probabilistic", "yager", "minimum"])
def test_logic_is_that_of_the_tnorm(name):
    tnorm = softly.tnorms.get(name)

    @relax(tnorm=name)
    def logic(x, y):
        return [x > 0 and y > 0, x > 0 or y > 0, not x > 0]

    a, b = sigmoid(2 * X), sigmoid(2 * Y)
    both, either, neither = logic(X, Y)
    close(both, tnorm.tnorm(a, b))
    close(either, tnorm.tconorm(a, b))
    close(neither, 1 - a)


@pytest.mark.parametrize("name", [n for n in softly.distributions.names() if n != "heaviside"])
def test_any_distribution(name):
    @relax(distribution=name)
    def choose(x, y):
        return 3.0 if x < y else 5.0

    p = softly.distributions.get(name).cdf(2.0 * (Y - X))
    close(choose(X, Y), 3 * p + 5 * (1 - p))


def test_if_is_a_convex_combination():
    @relax()
    def branch(x, y):
        z = 0.0
        if x > y:
            z = x * x
        else:
            z = y - 1
        return z

    close(branch(X, Y), P * X**2 + (1 - P) * (Y - 1))


def test_elif_and_nested_conditions_are_exact():
    @relax()
    def chain(x, y):
        if x > y:
            if x > 0:
                z = 1.0
            else:
                z = 2.0
        elif y > 0:
            z = 3.0
        else:
            z = 4.0
        return z

    a, b = sigmoid(2 * X), sigmoid(2 * Y)
    close(chain(X, Y), P * (a + 2 * (1 - a)) + (1 - P) * (3 * b + 4 * (1 - b)))


def sequence(x):
    a = 1.0 if x > 0 else -1.0
    b = 0.0 if a < 0 else a * a
    return b


def test_sequential_conditions_merge():
    mean = 2 * sigmoid(2 * X) - 1
    close(relax()(sequence)(X), sigmoid(2 * mean) * mean**2)


def test_unmerged_conditions_are_exact():
    @relax()
    def exact(x):
        with unmerged():
            a = 1.0 if x > 0 else -1.0
            b = 0.0 if a < 0 else a * a
        return b

    # a is a hard number on each path, and so is the second condition.
    close(exact(X), sigmoid(2 * X))


def test_unmerged_paths_of_relaxed_values():
    @relax()
    def exact(x, y):
        total = 0.0
        with unmerged():
            a = x if x > 0 else y
            if a > 1:
                total = a
        return total

    p = sigmoid(2 * X)
    close(exact(X, Y), p * sigmoid(2 * (X - 1)) * X + (1 - p) * sigmoid(2 * (Y - 1)) * Y)


def test_unmerged_blocks_have_a_limit():
    @relax(max_paths=8)
    def exact(x):
        count = 0.0
        with unmerged():
            for _ in range(4):
                if x > 0:
                    count += 1
        return count

    with pytest.raises(ValueError, match=r"test_semantics.py:\d+: an unmerged block has more than max_paths=8 paths"):
        exact(X)
    close(exact.using(max_paths=16)(X), 4 * sigmoid(2 * X))


def test_unmerged_loops_and_returns():
    @relax()
    def walk(x):
        n = 0
        with unmerged():
            while x > n:
                n += 1
                if n == 3:
                    return 10.0
            n = n * n
        return n + 0.0

    p = [sigmoid(2 * (X - i)) for i in range(3)]
    reach = [torch.ones_like(X), p[0], p[0] * p[1], p[0] * p[1] * p[2]]
    close(walk(X), sum(reach[i] * (1 - p[i]) * i**2 for i in range(3)) + 10 * reach[3])


def test_hard_conditions_are_ordinary_control_flow():
    @relax()
    def hard(x, flag, mode):
        if flag:
            x = x + 1
        if mode == "twice":
            x = x * 2
        k = 0
        while k < 3:
            k += 1
        return x + k

    close(hard(X, True, "twice"), 2 * (X + 1) + 3)
    close(hard(X, False, "once"), X + 3)


def test_while_has_the_weights_of_the_corrected_rule():
    @relax(max_iterations=200, tolerance=0.0)
    def count(x):
        n = 0
        while n < x:
            n += 1
        return n

    expected, reached = torch.zeros_like(X), torch.ones_like(X)
    for i in range(201):
        p = sigmoid(2 * (X - i))
        expected += i * reached * (1 - p)
        reached = reached * p
    close(count(X), expected)


def test_while_weights_sum_to_one_when_cut_off():
    @relax(max_iterations=3)
    def count(x):
        n, one = 0, 1.0
        while n < x:
            n += 1
            one = x / x
        return n, one

    x = torch.tensor([0.0, 2.0, 50.0], dtype=torch.float64, requires_grad=True)
    with pytest.warns(UserWarning, match=r"cut off after max_iterations=3, with up to 1 of the probability left"):
        n, one = count(x + 1e-9)
    close(one, 1.0)
    p = [sigmoid(2 * (x - i)) for i in range(3)]
    close(n, p[0] + p[0] * p[1] + p[0] * p[1] * p[2])


def test_one_warning_a_run():
    @relax(max_iterations=2)
    def two_loops(x):
        for _ in range(3):
            while x > 0:
                x = x + 0.0
        return x

    with pytest.warns(UserWarning, match="cut off") as caught:
        two_loops(X)
    assert len(caught) == 1


def test_negligible_branches_are_skipped_when_the_whole_batch_agrees():
    calls = []

    def note(name):
        calls.append(name)
        return 1.0

    @relax(steepness=1e4)
    def skipping(x):
        if x > 0:
            return note("yes")
        return note("no")

    skipping(torch.tensor([1.0, 2.0]))
    assert calls == ["yes"]
    skipping(torch.tensor([1.0, -2.0]))
    assert calls == ["yes", "yes", "no"]


def test_break_continue_and_return_are_probabilities_of_being_done():
    @relax()
    def first_positive(values):
        found = -1.0
        for v in values:
            if v > 0:
                found = v
                break
        return found

    values = torch.tensor([[-1.0, 0.4, 2.0], [0.2, -3.0, 0.1]], dtype=torch.float64)
    p = sigmoid(2 * values)
    q = (1 - p).cumprod(1)
    before = torch.cat((torch.ones(2, 1, dtype=torch.float64), q[:, :-1]), 1)
    expected = (before * p * values).sum(1) - q[:, -1]
    close(first_positive(values), expected)

    @relax()
    def by_return(values):
        for v in values:
            if v > 0:
                return v
        return -1.0

    close(by_return(values), expected)

    @relax()
    def sum_of_positive(values):
        total = 0.0
        for v in values:
            if v <= 0:
                continue
            total += v
        return total

    close(sum_of_positive(values), (p * values).sum(1))


def test_a_return_takes_its_state_along():
    @relax()
    def early(x, array):
        if x > 0:
            array[0] = 7.0
            x = -x
            return array[0] + x
        array[0] = array[0] + 1
        return array[0] + x

    array = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)
    p = sigmoid(2 * X)
    close(early(X, array), p * (7 - X) + (1 - p) * (array[:, 0] + 1 + X))


def test_partial_jumps_condition_the_rest():
    @relax()
    def nested(x, y):
        z = 0.0
        if x > 0:
            if y > 0:
                return 10.0
            z = 1.0
        else:
            z = 2.0
        return z

    a, b = sigmoid(2 * X), sigmoid(2 * Y)
    close(nested(X, Y), a * b * 10 + a * (1 - b) * 1 + (1 - a) * 2)


def test_states_that_nobody_is_in_stay_harmless():
    @relax(steepness=1e6)
    def early(x):
        for _ in range(2):
            if x > 0:
                return x
            if x < -5:
                continue
            x = 1 / x
        return x

    x = torch.tensor([2.0, -4.0, -8.0], dtype=torch.float64, requires_grad=True)
    value = early(x)
    close(value, torch.tensor([2.0, -4.0, -8.0]))
    assert torch.autograd.grad(value.sum(), x)[0].isfinite().all()
    close(early.using(hard=True)(x), torch.tensor([2.0, -4.0, -8.0]))


def test_jumps_in_a_relaxed_while():
    @relax(tolerance=0.0, max_iterations=60)
    def loop(x, y):
        n = 0
        while True:
            if n > x:
                break
            n += 1
            if n < y:
                continue
            n += 1
        return n

    # By hand: a distribution over the hard numbers n would be exact; the relaxed n is its mean on the path.
    assert loop(torch.tensor([5.0]), torch.tensor([-9.0])).item() == pytest.approx(6, abs=0.3)


def test_exceptions_are_raised_where_the_plain_program_would():
    @relax()
    def root(x):
        if x < 0:
            raise ValueError("negative")
        assert x < 100, "too large"
        if x > 1:
            return 2.0
        return x

    x = torch.tensor([0.5, 3.0], dtype=torch.float64)
    p = sigmoid(2 * (x - 1))
    # What would have raised is left out, and the rest is the whole.
    close(root(x), p * 2 + (1 - p) * x)
    with pytest.raises(ValueError, match="negative"):
        root(torch.tensor([0.5, -0.1]))
    with pytest.raises(AssertionError, match="too large"):
        root(torch.tensor([101.0]))


def test_for_else():
    @relax()
    def search(values):
        for v in values:
            if v > 0:
                result = 1.0
                break
        else:
            result = 0.0
        return result

    values = torch.tensor([[-1.0, 0.4], [0.2, -3.0]], dtype=torch.float64)
    close(search(values), 1 - (1 - sigmoid(2 * values)).prod(1))


def test_what_is_unlikely_still_counts():
    """Neither operand decides alone, however many of the batch lean to one side."""

    @relax()
    def logic(x, y):
        return [x > 0 and y > 0, x > 0 or y > 0]

    x = torch.tensor([-0.9, -0.3, -0.1], dtype=torch.float64)
    y = torch.tensor([-0.2, 0.4, -0.6], dtype=torch.float64)
    a, b = sigmoid(2 * x), sigmoid(2 * y)
    close(logic(x, y)[0], a * b)
    a, b = sigmoid(-2 * x), sigmoid(-2 * y)
    close(logic(-x, -y)[1], a + b - a * b)


def test_a_block_keeps_its_steepness_after_a_call():
    @relax(steepness=1.0)
    def inner(x):
        return 1.0 if x > 0 else 0.0

    @relax()
    def outer(x):
        with softly.algorithms.steepness(7.0):
            first = inner(x)
            second = 1.0 if x > 0 else 0.0
        return first, second, 1.0 if x > 0 else 0.0

    first, second, third = outer(X)
    close(first, sigmoid(X))
    close(second, sigmoid(7 * X))
    close(third, sigmoid(2 * X))


def test_unmerged_loops_have_a_limit():
    @relax(max_iterations=3)
    def endless(x):
        n = 0
        with unmerged():
            while x > 0:
                n += 1
        return n + 0.0

    p = sigmoid(2 * X)
    close(endless(X), p * (1 - p) + 2 * p**2 * (1 - p) + 3 * p**3)


def test_lists_are_written_at_relaxed_positions():
    @relax()
    def written(i, v):
        entries = [1.0, 2.0, 3.0]
        entries[i] = v
        return entries

    @relax()
    def weights(i):
        return [[1.0, 0.0, 0.0][i], [0.0, 1.0, 0.0][i], [0.0, 0.0, 1.0][i]]

    position, value = X.abs(), Y
    shares = weights(position)
    for entry, before, share in zip(written(position, value), (1.0, 2.0, 3.0), shares, strict=True):
        close(entry, share * value + (1 - share) * before)
    assert float(torch.stack(shares).min()) < 0.2 < float(torch.stack(shares).max())


def test_arrays_join_with_arrays_and_lists():
    @relax()
    def chosen(x, a, b):
        first = a if x > 0 else b
        second = [1.0, 2.0]
        if x > 0:
            second = a * 1.0
        third = a * 1.0
        if x > 0:
            third = b * 2.0
        return first, second, third

    a, b = torch.stack([X, Y], 1), torch.stack([Y, X * Y], 1)
    p = sigmoid(2 * X).unsqueeze(1)
    first, second, third = chosen(X, a, b)
    close(first, p * a + (1 - p) * b)
    close(
        second if isinstance(second, torch.Tensor) else torch.stack(list(second), 1),
        p * a + (1 - p) * torch.tensor([1.0, 2.0]),
    )
    close(third, p * 2 * b + (1 - p) * a)


def test_answers_are_compared():
    @relax()
    def agree(x, y):
        return (x > 0) == (y > 0), (x > 0) != (y > 0), (x > 0) == False  # noqa: E712

    a, b = sigmoid(2 * X), sigmoid(2 * Y)
    same, different, false = agree(X, Y)
    close(same, a * b + (1 - a) * (1 - b))
    close(different, 1 - a * b - (1 - a) * (1 - b))
    close(false, 1 - a)


def test_collections_that_a_branch_chose_are_true_by_their_probabilities():
    @relax()
    def filled(x):
        some, none = [1.0], []
        chosen = some if x > 0 else none
        result = 3.0 if chosen else 5.0
        return result, len(some) + len(none)

    p = sigmoid(2 * X)
    close(filled(X)[0], 3 * p + 5 * (1 - p))

    @relax()
    def same(x):
        first, second = [1.0], [2.0]
        chosen = first if x > 0 else second
        return 1.0 if chosen is first else len(second) + 0.0

    with pytest.raises(TypeError, match="`is` of a collection that depends on a branch"):
        same(X)
