"""The decorator: what it takes, what it refuses, and where a relaxed function can go."""

import math
import subprocess
import sys
import warnings

import pytest
import torch

import softly
from softly.algorithms import library

from . import textbook

RNG = torch.Generator().manual_seed(0)
X = torch.rand(20, 6, dtype=torch.float64, generator=RNG)
SQUARE = [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
ENDS = (X + 0.3).sort(1).values

TEXTBOOK = {
    "linear_search": (X.sort(1).values, X[:, 0] + 0.01),
    "selection_sort": (X,),
    "maximum_subarray": (X - 0.5,),
    "horner": ([2.0, -1.0, 3.0], X[:, 0]),
    "rod_cutting": (X[:, :4],),
    "longest_increasing_subsequence": (X,),
    "merge": (X[:, :2].sort(1).values, X[:, 2:4].sort(1).values),
    "square_root": (4 * X[:, 0] + 0.2,),
    "convex_polygon_contains": (SQUARE, 2 * X[:, 0] - 0.5, 2 * X[:, 1] - 0.5),
    "activity_selection": (ENDS - 0.4 * X.flip(1), ENDS),
    "coin_change": ([(1, 1.3), (3, 2.0), (4, 3.1)], 7),
    "prime_factors": (torch.arange(10.0, 30.0, dtype=torch.float64),),
}


@pytest.mark.parametrize("name", TEXTBOOK)
def test_functions_of_a_textbook_relax_without_change(name):
    arguments = TEXTBOOK[name]
    if name == "coin_change":
        costs = X[:, :3] + 1
        arguments = ([(1, costs[:, 0]), (3, costs[:, 1]), (4, costs[:, 2])], 7)
    relaxed = softly.relax(getattr(textbook, name), steepness=1e8)
    steep, plain = relaxed(*arguments), relaxed.hard(*arguments)
    torch.testing.assert_close(steep, plain, check_dtype=False, atol=1e-5, rtol=1e-5)
    # Somewhat softer it is still smooth, and finite.
    tensors = [leaf.clone().requires_grad_() for leaf in leaves(arguments)]
    soft = relaxed.using(steepness=5.0, max_iterations=20)
    values = leaves(soft(*replace(arguments, tensors)))
    gradients = torch.autograd.grad(sum(v.sum() for v in values), tensors, allow_unused=True)
    assert any(g is not None and g.abs().sum() > 0 for g in gradients)
    assert all(g is None or g.isfinite().all() for g in gradients)


def leaves(tree):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def replace(tree, tensors):
    supply = iter(tensors)
    return torch.utils._pytree.tree_map(lambda v: next(supply) if isinstance(v, torch.Tensor) else v, tree)


def sign(x):
    y = -1.0
    if x > 0:
        y = 1.0
    return y


REFUSALS = {
    "try": ("    try:\n        return x\n    except ValueError:\n        return 0\n", "Try", "exceptions don't mix", 3),
    "yield": ("    yield x\n", "Yield", "collect the values in a list", 3),
    "global": ("    global y\n    y = x\n", "Global", "pass the variable as an argument", 3),
    "class": ("    class A:\n        pass\n    return x\n", "ClassDef", "define the class outside", 3),
    "inner": (
        "    @cache\n    def g():\n        return x\n    return g()\n",
        "FunctionDef",
        "an inner function has no decorator",
        4,
    ),
    "delete": ("    y = x\n    del y.z\n    return x\n", "Delete", "delete variables and entries only", 4),
    "while-else": (
        "    while x > 0:\n        x = x - 1\n    else:\n        x = 5\n    return x\n",
        "While",
        "put what stands under `else` after the loop",
        3,
    ),
    "match": ("    match x:\n        case 1:\n            return 2\n", "Match", "write `if` and `elif`", 3),
    "walrus": ("    if (y := x) > 0:\n        return y\n    return x\n", "NamedExpr", "a statement of its own", 3),
    "with": ("    with open('f') as f:\n        return x\n", "With", "softly.algorithms.steepness", 3),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_can_not_be_relaxed_is_refused_at_decoration(name, tmp_path):
    body, kind, advice, line = REFUSALS[name]
    path = tmp_path / "program.py"
    path.write_text(f"\ndef f(x):\n{body}")
    namespace = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    with pytest.raises(SyntaxError, match=rf"program\.py:{line}: {kind} can't be relaxed: .*") as caught:
        softly.relax(namespace["f"])
    assert advice in str(caught.value)


def test_functions_without_source():
    namespace = {}
    exec("def f(x):\n    return x", namespace)
    with pytest.raises(OSError, match="the source of 'f' is not to be had; define it in a file"):
        softly.relax(namespace["f"])
    with pytest.raises(TypeError, match="a function is needed, got builtin_function_or_method"):
        softly.relax(len)
    with pytest.raises(OSError, match="the source of '<lambda>' is not to be had"):
        softly.relax(eval("lambda x: x"))
    twice = softly.relax(lambda x: 2 * x if x > 0 else 0.0, steepness=1e9)
    torch.testing.assert_close(twice(torch.tensor([1.0, -1.0])), torch.tensor([2.0, 0.0]))


def test_a_function_typed_at_a_prompt_says_so():
    code = "import softly\ndef f(x):\n    return x\n\ntry:\n    softly.relax(f)\nexcept OSError as e:\n    print(e)\n\n"
    result = subprocess.run([sys.executable, "-"], input=code, capture_output=True, text=True, check=True)
    assert "define it in a file or in a notebook cell" in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steepness": 0.0}, "steepness must be positive and finite, got 0.0"),
        ({"max_iterations": 0}, "max_iterations must be an int >= 1, got 0"),
        ({"max_paths": 0}, "max_paths must be an int >= 1, got 0"),
        ({"tolerance": 1.0}, r"tolerance must be in \[0, 1\), got 1.0"),
        ({"batch_dims": -1}, "batch_dims must be >= 0, got -1"),
        ({"in_dims": (1,)}, r"in_dims holds 0 and None"),
        ({"distribution": "normal"}, "unknown distribution 'normal'"),
        ({"variables": {"z": 2.0}}, "variables names 'z', which sign doesn't have"),
        ({"variables": {"x": -2.0}}, "steepness must be positive and finite, got -2.0"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        softly.relax(sign, **options)


def test_errors_in_a_program_name_its_line():
    def program(x):
        y = x + 1
        return y[0]

    with pytest.raises(TypeError, match=rf"test_python\.py:{program.__code__.co_firstlineno + 2}: a number can't be"):
        softly.relax(program)(torch.ones(2))


def test_values_stay_inside():
    def peek(x):
        return x.item()

    with pytest.raises(TypeError, match=r"test_python\.py:\d+: item\(\) takes a value out of the program"):
        softly.relax(peek)(torch.ones(2))


def test_relaxed_lengths_are_refused():
    def positive(x):
        return [v for v in x if v > 0]

    def sliced(x, i):
        return x[: int(i)]

    def cut(x, i):
        return x[:i]

    array, number = torch.ones(2, 3), torch.ones(2)
    with pytest.raises(TypeError, match="the `if` of a comprehension depends on a relaxed value"):
        softly.relax(positive)(array)
    with pytest.raises(TypeError, match="the bounds of a slice must be hard ints"):
        softly.relax(sliced)(array, number)
    with pytest.raises(TypeError, match="the bounds of a slice must be hard ints"):
        softly.relax(cut)(array, number)


def test_closures_defaults_keywords_and_docstrings():
    scale = 3.0

    def scaled(x, *, offset=1.0, **rest):
        """What it does."""
        return scale * x + offset + rest.get("extra", 0.0)

    relaxed = softly.relax(scaled)
    x = torch.ones(2)
    torch.testing.assert_close(relaxed(x), torch.full((2,), 4.0))
    scale = 5.0
    torch.testing.assert_close(relaxed(x, offset=0.0, extra=2.0), torch.full((2,), 7.0))
    assert relaxed.__doc__ == "What it does."
    assert relaxed.__name__ == "scaled"


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([2.0, -1.0]))

    @softly.relax(steepness=3.0)
    def forward(self, x):
        score = (self.weight * x).sum()
        return score if score > 0 else 0.0


def test_methods():
    module, x = Scale(), torch.randn(4, 2)
    score = x @ module.weight
    expected = torch.sigmoid(3 * score) * score
    torch.testing.assert_close(module(x), expected)
    actual = torch.autograd.grad(module(x).sum(), module.weight)
    torch.testing.assert_close(actual, torch.autograd.grad(expected.sum(), module.weight))


def test_loops_over_dicts():
    def total(prices, amounts):
        bill = 0.0
        for name, amount in amounts.items():
            if name != "free" and amount > 0:
                bill += prices[name] * amount
        return bill

    prices = {"a": torch.tensor([1.0, 2.0]), "free": torch.tensor([9.0, 9.0])}
    torch.testing.assert_close(softly.relax(total)(prices, {"a": 2, "free": 3}), torch.tensor([2.0, 4.0]))


def test_recursion_keeps_its_options():
    tree = (0, 0.5, 0.0, (0, 1.5, 1.0, 2.0))
    x = torch.tensor([[0.4], [1.2]], dtype=torch.float64)
    p, q = torch.sigmoid(2 * (0.5 - x[:, 0])), torch.sigmoid(2 * (1.5 - x[:, 0]))
    torch.testing.assert_close(library.decision_tree.using(steepness=2.0)(x, tree), (1 - p) * (q + 2 * (1 - q)))


def test_relaxed_where_and_argmax_in_plain_runs():
    def choose(x, y):
        best = torch.argmax(x)
        return torch.where(x[best] > y, x[best], y)

    x, y = X[:3], X[:3, 0] * 1.5
    relaxed = softly.relax(choose, steepness=1e9)
    torch.testing.assert_close(relaxed(x, y), torch.maximum(x.amax(1), y))
    torch.testing.assert_close(relaxed.hard(x, y), torch.maximum(x.amax(1), y))


def test_program_prints_what_was_understood():
    text = str(library.bubble_sort.program)
    assert text.startswith("# Logistic(), Probabilistic(), steepness 8.0\n@relax(steepness=8.0)\ndef bubble_sort(")
    assert "while swapped:" in text
    assert "# if: joins swapped, swaps, array[i + 1], array[i]" in text
    assert "# for: unrolled" in text
    assert text.endswith("# may be relaxed: array, i, n, swapped, swaps")
    assert library.dynamic_time_warping.program.relaxed == ("a", "b", "before", "d")


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (library.bubble_sort.using(max_iterations=8), ((3,),)),
        (library.bubble_sort_loss, ((3,),)),
        (library.binary_search, ((3,), ())),
        (library.knapsack, ((3,),)),
        (library.decision_tree, ((2,),)),
        (library.gcd.using(steepness=2.0, max_iterations=4), ((), ())),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_transforms_and_compilation(function, shapes):
    extra = {"knapsack": ([1, 2, 3], 4), "decision_tree": ((0, 0.4, 1.0, (1, 0.6, 5.0, 7.0)),)}
    rest = extra.get(function.__name__, ())
    tensors = [torch.rand(4, *shape, dtype=torch.float64, generator=RNG).requires_grad_() for shape in shapes]
    exact = function.using(tolerance=0.0)

    def call(*arguments):
        return torch.cat([v.reshape(len(v), -1) for v in leaves(exact(*arguments, *rest))], 1)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "softly.relax: a while loop was cut off", UserWarning)
        expected = call(*tensors)
        torch._dynamo.reset()
        compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
        result = compiled(*tensors)
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(
            torch.autograd.grad(result.sin().sum(), tensors), torch.autograd.grad(expected.sin().sum(), tensors)
        )
        over = tuple(range(len(tensors)))
        plain = tuple(t.detach() for t in tensors)
        single = exact.using(batch_dims=0)
        one = lambda *a: torch.cat([v.reshape(-1) for v in leaves(single(*a, *rest))])  # noqa: E731
        torch.testing.assert_close(torch.func.vmap(one)(*plain), call(*plain))
        reverse, forward = torch.func.jacrev(call, over)(*plain), torch.func.jacfwd(call, over)(*plain)
        torch.testing.assert_close(reverse, forward)


TABLE = torch.tensor([1.0, 2.0, 4.0])
LEARNED = torch.nn.Parameter(torch.ones(2))


def test_compiled_programs_may_know_constants_and_parameters():
    def lookup(x):
        return x * TABLE[1] if x > 0 else TABLE.sum()

    def learned(x):
        return x * LEARNED[1]

    x = torch.randn(3)
    relaxed = softly.relax(lookup)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(relaxed, backend="aot_eager", fullgraph=True)(x), relaxed(x))
    torch._dynamo.reset()
    value = torch.compile(softly.relax(learned), backend="aot_eager", fullgraph=True)(x)
    torch.testing.assert_close(value, x)
    torch.testing.assert_close(torch.autograd.grad(value.sum(), LEARNED)[0], torch.tensor([0.0, x.sum()]))


def test_half_precision_and_empty_batches():
    x = torch.randn(4, 5, dtype=torch.bfloat16, generator=RNG)
    array, _ = library.bubble_sort(x)
    assert array.dtype == torch.bfloat16
    torch.testing.assert_close(array.float(), library.bubble_sort(x.float())[0], atol=0.05, rtol=0.05)
    array, swaps = library.bubble_sort(torch.empty(0, 5))
    assert array.shape == (0, 5)
    assert swaps.shape == (0,)


def test_numbers_alone_run_as_they_are():
    assert softly.relax(sign)(2.0) == 1.0
    assert math.isclose(softly.relax(textbook.horner)([1.0, 2.0], 3.0), 5.0)


class Stretch:
    factor = 3.0

    @softly.relax
    def scaled(self, v):
        return v * self.factor if v > 0 else -v

    @softly.relax
    def both(self, x):
        scaled = self.scaled
        return self.scaled(x) + scaled(x) if x > 1 else 0.0


def test_relaxed_methods_call_relaxed_methods():
    x = torch.tensor([2.0, -3.0, 4.0])
    stretch = Stretch()
    torch.testing.assert_close(stretch.scaled(x), torch.tensor([6.0, 3.0, 12.0]), atol=1e-3, rtol=0)
    torch.testing.assert_close(stretch.both(x), torch.tensor([12.0, 0.0, 24.0]), atol=1e-2, rtol=0)
    assert "self.factor" in str(stretch.scaled.program)


def test_a_forgotten_batch_is_named():
    @softly.relax
    def loop(x):
        total = 0.0
        for value in x:
            total += value
        return total

    @softly.relax
    def length(x):
        return x[0] if len(x) > 1 else 0.0

    @softly.relax
    def place(x):
        return x[0] if x[0] > 0 else 0.0

    for function in (loop, length, place):
        with pytest.raises(TypeError, match=r"an argument has shape \(5,\).*x\[None\], or batch_dims=0"):
            function(torch.randn(5))
        assert function(torch.randn(1, 5)).shape == (1,)
        assert function.using(batch_dims=0)(torch.randn(5)).shape == ()

    @softly.relax
    def inner(x):
        for value in x[0]:
            return value

    with pytest.raises(TypeError, match=r"a list or an array\.$"):  # here the batch was not forgotten
        inner(torch.randn(2, 5))
