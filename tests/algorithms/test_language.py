"""The constructor language: the chapter's listings, against the library they were written for."""

import pytest
import torch

import softly
from softly.algorithms import (
    GT,
    LT,
    Algorithm,
    ArgMax,
    CatProbEq,
    Eq,
    For,
    GEq,
    If,
    Input,
    IsFalse,
    IsTrue,
    LEq,
    Let,
    LetInt,
    Max,
    NEq,
    Output,
    Var,
    VarInt,
    While,
)

from . import listings

pytestmark = pytest.mark.filterwarnings("ignore:Using a non-tuple sequence:UserWarning")


def strings(batch, length, letters=4):
    return torch.softmax(2 * torch.randn(batch, length, letters), -1)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_bubble_sort_as_printed(n):
    x = torch.randn(6, n, requires_grad=True)
    results = []
    for modules in (softly.algorithms, listings.algovision()):
        array, loss = listings.bubble_sort(modules)(x)
        (gradient,) = torch.autograd.grad((array * torch.arange(n)).sum() + loss.sum(), x)
        results.append((array, loss, gradient))
    torch.testing.assert_close(results[0], results[1], atol=1e-5, rtol=1e-4)


def test_levenshtein_as_printed():
    s, t = strings(3, 4).requires_grad_(), strings(3, 6).requires_grad_()
    results = []
    for modules in (softly.algorithms, listings.algovision()):
        distance, matrix = listings.levenshtein(modules)(s, t)
        gradient = torch.autograd.grad(distance.sum() + matrix.sin().sum(), (s, t))
        results.append((distance, matrix, gradient))
    torch.testing.assert_close(results[0], results[1], atol=1e-5, rtol=1e-4)


def program(modules, condition, beta=3.0):
    """A condition in a while in a for, with everything written twice."""
    m = modules
    return m.Algorithm(
        m.Input("x"),
        m.Input("y"),
        m.Var("n", torch.tensor(0.0)),
        m.Var("v", torch.zeros(3)),
        m.For(
            "k",
            [0, 2],
            m.While(
                condition(m),
                m.Let("n", lambda n, k: n + 1 + 0.1 * k),
                m.Let("x", lambda x: x - 0.8),
                m.If(m.LT("n", 1.5), [m.Let("v", ["k"], "n")], m.Let("v", [1], lambda y, n: y * n)),
            ),
            m.Let(["x", "y"], lambda x, y: (y, x)),
        ),
        m.Output("n"),
        m.Output("v"),
        m.Output("x"),
        beta=beta,
        max_iter=12,
    )


@pytest.mark.parametrize("name", ["LT", "LEq", "GT", "GEq", "NEq", "Eq"])
def test_every_condition_in_nested_loops_against_algovision(name):
    x, y = torch.rand(7) + 1, torch.rand(7)
    condition = lambda m: getattr(m, name)("x", "y")  # noqa: E731
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of these loops are cut off
        ours = program(softly.algorithms, condition)(x, y)
        theirs = program(listings.algovision(), condition)(x, y)
    torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-3)


def test_equality_is_the_squared_hyperbolic_secant():
    equal = Algorithm(Input("a"), Input("b"), Var("p", 0.0), If(Eq("a", "b"), Let("p", 1)), Output("p"), beta=3.0)
    a, b = torch.randn(2, 5)
    torch.testing.assert_close(equal(a, b), 1 / torch.cosh(1.5 * (a - b)) ** 2)


def test_conditions_combine_and_have_their_own_beta():
    both = Algorithm(
        Input("a"),
        Var("p", 0.0),
        Var("q", 0.0),
        Var("r", 0.0),
        If(GT("a", 0.0, beta=7.0) & LEq("a", 1.0), Let("p", 1)),
        If(GT("a", 0.0) | LEq("a", -1.0), Let("q", 1)),
        If(~GEq("a", 0.0), Let("r", 1)),
        Output("p"),
        Output("q"),
        Output("r"),
        beta=3.0,
    )
    a = torch.randn(5)
    s = torch.sigmoid
    p, q, r = both(a)
    torch.testing.assert_close(p, s(7 * a) * s(3 * (1 - a)))
    torch.testing.assert_close(q, 1 - (1 - s(3 * a)) * (1 - s(3 * (-1 - a))))
    torch.testing.assert_close(r, 1 - s(3 * a))


def test_categorical_conditions_and_weights():
    p, q = strings(2, 5)
    inner = Algorithm(Input("p"), Input("q"), Var("y", 0.0), If(CatProbEq("p", "q"), Let("y", 1)), Output("y"))
    torch.testing.assert_close(inner(p, q), (p * q).sum(1))
    # A distribution over positions as an index, as ArgMax gives it.
    weights = Algorithm(
        Input("x"),
        Var("v", torch.zeros(3)),
        Let("v", [lambda x: ArgMax(beta=2.0)(x, x * 0, x - 1)], 5.0),
        Let("x", lambda x: Max(beta=2.0)(x, x * 0)),
        Output("v"),
        Output("x"),
    )
    x = torch.randn(4)
    v, largest = weights(x)
    w = torch.softmax(2 * torch.stack((x, 0 * x, x - 1), 1), 1)
    torch.testing.assert_close(v, 5 * w)
    torch.testing.assert_close(largest, torch.sigmoid(2 * x) * x)


def test_hard_execution_is_exact():
    x = torch.randint(0, 4, (20, 6)).double()  # with ties
    module = listings.bubble_sort(softly.algorithms)
    hard = Algorithm(*_parts(module), hard=True)
    array, swaps = hard(x)
    assert torch.equal(array, x.sort(1).values)
    inversions = (x[:, :, None] > x[:, None, :]).triu(1).sum((1, 2))
    assert torch.equal(swaps, inversions.double())


def _parts(module):
    return (*module.inputs, *module.variables, *module.statements, *module.outputs)


def test_hard_integers_and_truth():
    halving = Algorithm(
        Input("x"),
        Var("go", 1.0),
        VarInt("n", 0),
        While(IsTrue("go"), LetInt("n", lambda n: n + 1), If(GEq("n", 3), Let("go", 0))),
        If(IsFalse("go"), Let("x", lambda x, n: x * n)),
        Output("x"),
    )
    torch.testing.assert_close(halving(torch.tensor([2.0])), torch.tensor([6.0]))


def test_real_valued_positions():
    read = Algorithm(
        Input("a"), Input("i"), Var("y", 0.0), Let("y", "a", ["i"]), Output("y"), beta=4.0, exact_gradient=True
    )
    a, i = torch.randn(3, 5, dtype=torch.float64), torch.rand(3, dtype=torch.float64) * 4
    weights = softly.algorithms.filter_weights(i, 5, distribution=softly.distributions.get("logistic"), steepness=4.0)
    torch.testing.assert_close(read(a, i), (weights * a).sum(1))


def test_transforms_and_compilation():
    module = listings.bubble_sort(softly.algorithms)
    x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    sort = lambda y: module(y)[0]  # noqa: E731
    torch._dynamo.reset()
    compiled = torch.compile(sort, backend="aot_eager", fullgraph=True)
    result, expected = compiled(x), sort(x)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(torch.autograd.grad(result.sin().sum(), x), torch.autograd.grad(expected.sin().sum(), x))
    torch.testing.assert_close(torch.func.jacrev(sort)(x.detach()), torch.func.jacfwd(sort)(x.detach()))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Algorithm(Input("x")), "at least one Input and one Output"),
        (lambda: Algorithm(Input("x"), Var("x", 0.0), Output("x")), "'x' is declared twice"),
        (lambda: Input("2x"), "must be an identifier, got '2x'"),
        (lambda: Let("x"), "no assignment has the arguments"),
        (lambda: If("x", Let("x", 1)), "a condition is needed, got str"),
        (lambda: While(LT("x", 1), "body"), "a statement is needed, got str"),
        (lambda: VarInt("n", 0.5), "'n' must be an int or a list of ints, got 0.5"),
        (lambda: run(Let("z", 1)), "no variable is called 'z'"),
        (lambda: run(LetInt("x", 1)), "'x' is not a VarInt"),
        (lambda: run(For("i", "x", Let("x", 1))), "needs a hard int or list"),
        (lambda: run(Let("x", lambda x: x[:, None])), "'x' is a number, got shape"),
        (lambda: run(NEq("x", 1)), "a statement is needed, got NEq"),
    ],
)
def test_errors(build, message):
    with pytest.raises((ValueError, TypeError, NameError), match=message.replace("(", r"\(")):
        build()


def run(*statements):
    return Algorithm(Input("x"), *statements, Output("x"))(torch.ones(2))
