import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

import softly
from softly import distributions

SYMMETRIC = [name for name in distributions.names() if distributions.get(name).symmetric]
number = some.floats(-50, 50).map(lambda v: torch.tensor(v, dtype=torch.float64))
CHOICES = [*SYMMETRIC, distributions.art("logistic", strength=0.3), distributions.get("cauchy").squared()]


@settings(max_examples=300, deadline=None)
@given(number, number, number, some.sampled_from(CHOICES), some.floats(0.1, 20))
def test_properties_of_appendix_c(a, b, c, distribution, steepness):
    choice = {"distribution": distribution, "steepness": steepness}
    low = lambda x, y: softly.minimum(x, y, **choice)  # noqa: E731
    high = lambda x, y: softly.maximum(x, y, **choice)  # noqa: E731
    close = lambda x, y: torch.testing.assert_close(x, y, atol=1e-9, rtol=1e-9)  # noqa: E731
    close(low(a, b), low(b, a))  # commutativity
    close(high(a, b), high(b, a))
    assert low(a, b) <= high(b, a) + 1e-9  # ordering
    assert low(a, a) == high(a, a) == a  # idempotency
    close(low(a, b), -high(-a, -b))  # inversion
    if (b - a).abs() > 1e-6 or a == b:  # else the shift alone rounds the difference away
        torch.testing.assert_close(low(a + c, b + c), low(a, b) + c, atol=1e-6, rtol=1e-9)  # stability
    close(low(a, b) + high(a, b), a + b)  # sum preservation
    assert torch.minimum(a, b) <= low(a, b) + 1e-12  # bounded by the hard versions
    assert high(a, b) <= torch.maximum(a, b) + 1e-12
    swap = softly.swap(a, b, **choice)
    assert (swap.low, swap.high) == (low(a, b), high(a, b))
    close(swap.low, swap.keep * a + (1 - swap.keep) * b)  # a convex combination
    close(swap.keep, softly.less(a, b, **choice))


@pytest.mark.parametrize("name", SYMMETRIC)
def test_monotonic_exactly_where_stated(name):
    x = torch.cat(
        [torch.linspace(-20, 20, 4001, dtype=torch.float64), torch.logspace(1.4, 5, 400, dtype=torch.float64)]
    )
    low = softly.minimum(x, torch.zeros_like(x), distribution=name, steepness=1.0)
    assert bool((low.diff() >= -1e-11).all()) == distributions.get(name).swap_is_monotonic


@pytest.mark.parametrize("name", [name for name in SYMMETRIC if name != "heaviside"])
def test_measured_error_is_the_stated_bound(name):
    d = distributions.get(name)
    x = torch.cat(
        [
            torch.linspace(0, 20, 200_001, dtype=torch.float64),
            torch.logspace(1.3, 9, 1000, dtype=torch.float64),
        ]
    )
    # At this steepness the relaxed comparison has Lipschitz constant 1.
    error = softly.minimum(x, torch.zeros_like(x), distribution=d, steepness=1 / d.lipschitz)
    assert float(error.max()) == pytest.approx(d.swap_error_bound, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "bound"),
    [("logistic", 0.0696), ("reciprocal", 0.25), ("cauchy", math.pi**-2), ("optimal", 0.0625)],
)
def test_error_bounds_of_the_thesis(name, bound):
    assert distributions.get(name).swap_error_bound == pytest.approx(bound, abs=5e-5)


@pytest.mark.parametrize("name", [name for name in SYMMETRIC if name != "heaviside"])
def test_derivatives_at_ties(name):
    """min(x, x): half of the gradient each, and curvature -2 s f(0) along the difference."""
    d = distributions.get(name)
    function = lambda v: softly.minimum(v[0], v[1], distribution=d, steepness=3.0)  # noqa: E731
    v = torch.tensor([1.0, 1.0], dtype=torch.float64)
    gradient = torch.func.grad(function)(v)
    torch.testing.assert_close(gradient, torch.full_like(gradient, 0.5))
    if name not in ("laplace", "reciprocal"):  # whose density has a kink at 0
        peak = float(d.pdf(torch.zeros((), dtype=torch.float64)))
        expected = torch.tensor([[-1.0, 1.0], [1.0, -1.0]], dtype=torch.float64) * (2 * 3.0 * peak)
        torch.testing.assert_close(torch.func.hessian(function)(v), expected)


@pytest.mark.parametrize("name", SYMMETRIC)
def test_infinities(name):
    inf = torch.tensor(math.inf)
    for other in (torch.tensor(0.3), torch.tensor(-2.0)):
        swap = softly.swap(other, inf, distribution=name, steepness=1e3)
        assert swap.high == inf
        assert swap.low == pytest.approx(float(other), abs=1e-3)
        assert swap.keep == 1
        swap = softly.swap(other, -inf, distribution=name, steepness=1e3)
        assert swap.low == -inf
        assert swap.keep == pytest.approx(0, abs=1e-6)
    tie = softly.swap(inf, inf, distribution=name)
    assert tie.low == tie.high == inf
    assert tie.keep == 0.5
    assert softly.swap(-inf, inf, distribution=name).low == -inf


def test_infinities_in_reductions():
    x = torch.tensor([0.0, -math.inf, 1.0])
    torch.testing.assert_close(softly.argmax(x)[1], torch.tensor(0.0))
    assert softly.max(x).isfinite()
    assert softly.max(torch.tensor([0.0, math.inf])) == math.inf
    assert softly.min(torch.tensor([0.0, -math.inf])) == -math.inf
    torch.testing.assert_close(softly.argmax(torch.full((4,), -math.inf)), torch.full((4,), 0.25))


def test_reductions():
    x = torch.randn(3, 6, dtype=torch.float64)
    torch.testing.assert_close(softly.argmax(x, steepness=2.0), torch.softmax(2 * x, -1))
    torch.testing.assert_close(softly.max(x, steepness=2.0), (torch.softmax(2 * x, -1) * x).sum(-1))
    torch.testing.assert_close(softly.min(x), -softly.max(-x))
    assert (softly.max(x) <= x.amax(-1)).all()
    assert (softly.min(x) >= x.amin(-1)).all()


def test_comparators():
    a, b = torch.randn(2, 9, dtype=torch.float64)
    torch.testing.assert_close(softly.less(a, b) + softly.greater(a, b), torch.ones_like(a))
    assert softly.less(a, a).eq(0.5).all()
    assert softly.equal(a, a).eq(1).all()
    torch.testing.assert_close(softly.equal(a, b), softly.equal(b, a))
    torch.testing.assert_close(softly.equal(a, b, distribution="gaussian", steepness=2.0), torch.exp(-2 * (a - b) ** 2))


def test_categorical_comparison():
    p = torch.softmax(torch.randn(4, 5, dtype=torch.float64), -1)
    hot = torch.eye(5, dtype=torch.float64)
    for similarity in ("cosine", "inner"):
        table = softly.categorical_equal(hot[:, None], hot[None], similarity=similarity)
        torch.testing.assert_close(table, hot)
    torch.testing.assert_close(softly.categorical_equal(p, p), torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(softly.categorical_equal(p, p, similarity="inner"), (p * p).sum(-1))
    torch.testing.assert_close(
        softly.categorical_equal(p.T, p.flip(0).T, dim=0), softly.categorical_equal(p, p.flip(0))
    )
    assert torch.autograd.gradcheck(softly.categorical_equal, (p.requires_grad_(), hot[:4]))


def test_steepness_can_be_learned():
    a, b = torch.randn(2, 7, dtype=torch.float64)
    steepness = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    for function in (softly.minimum, softly.less, softly.equal):
        assert torch.autograd.gradcheck(lambda s, f=function: f(a, b, steepness=s), steepness)
    assert torch.autograd.gradcheck(lambda s: softly.max(a, steepness=s), steepness)


PAIRS = [softly.minimum, softly.maximum, softly.less, softly.greater, softly.equal]


@pytest.mark.parametrize("function", PAIRS)
def test_numbers_take_the_dtype_of_the_tensor(function):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = torch.tensor([-1.0, 0.5, 2.0], dtype=dtype)
        for number in (0, 0.5, math.inf):
            expected = function(x, torch.full_like(x, number))
            assert torch.equal(function(x, number), expected)
            assert torch.equal(function(number, x), function(torch.full_like(x, number), x))
            assert function(number, x).dtype == function(x, number).dtype == dtype


@pytest.mark.parametrize("function", [*PAIRS, softly.where, softly.clamp])
def test_promotion_does_not_depend_on_the_order(function):
    """float32, float64 and a number, in any order: float64, and the number has all of its digits."""
    single, double = torch.tensor([0.1, 0.2]), torch.tensor([0.1, 0.7], dtype=torch.float64)
    values = (single, double, 0.1) if function in (softly.where, softly.clamp) else (single, double)
    exact = (
        {
            id(v): torch.full((2,), v, dtype=torch.float64) if v is values[-1] and v == 0.1 else v.double()
            for v in values
        }
        if len(values) == 3
        else {id(v): v.double() for v in values}
    )
    for order in itertools.permutations(values):
        result = function(*order)
        assert result.dtype == torch.float64
        assert torch.equal(result, function(*(exact[id(v)] for v in order)))
    scalar = torch.tensor(0.5, dtype=torch.float64)  # which, without dimensions, doesn't decide
    for order in itertools.permutations((single, scalar, 0.1)[: len(values)]):
        assert function(*order).dtype == torch.float32


def test_half_precision_and_large_numbers_beside_infinity():
    half = torch.float16
    assert softly.argmax(torch.tensor([100.0, math.inf], dtype=half)).tolist() == [0, 1]
    assert softly.argmax(torch.tensor([7000.0, 1.0], dtype=half)).tolist() == [1, 0]
    assert softly.max(torch.tensor([7000.0, 1.0], dtype=half)) == 7000
    assert softly.argmax(torch.tensor([1e20, math.inf])).tolist() == [0, 1]
    assert softly.argmax(torch.tensor([3e38, -3e38])).tolist() == [1, 0]
    assert softly.argmin(torch.tensor([-1e20, -math.inf])).tolist() == [0, 1]
    for dtype, number in ((half, 100.0), (torch.float32, 1e20), (torch.float64, 1e200)):
        x, inf = torch.tensor(number, dtype=dtype), torch.tensor(math.inf, dtype=dtype)
        assert softly.minimum(x, inf, distribution="logistic") == x
        assert softly.maximum(x, inf) == inf
        assert softly.less(x, inf) == 1
        assert softly.greater(x, inf) == pytest.approx(0, abs=1e-6)
        assert softly.equal(x, inf) == pytest.approx(0, abs=1e-6)
        assert softly.equal(inf, inf) == 1


@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min"])
def test_several_dimensions(name):
    function, x = getattr(softly, name), torch.randn(2, 3, 4, 5, dtype=torch.float64)
    for dim in ((1,), (1, 3), (-1, 1), (3, 0, 2), (0, 1, 2, 3)):
        reduced = sorted(d % 4 for d in dim)
        others = [d for d in range(4) if d not in reduced]
        flat = x.permute(*others, *reduced).flatten(len(others))
        expected = function(flat)
        if name.startswith("arg"):
            shape = [x.shape[d] for d in (*others, *reduced)]
            back = torch.tensor([*others, *reduced]).argsort().tolist()
            torch.testing.assert_close(function(x, dim=dim), expected.reshape(shape).permute(back))
        else:
            torch.testing.assert_close(function(x, dim=dim), expected)
            kept = function(x, dim=dim, keepdim=True)
            assert kept.shape == x.amax(dim, keepdim=True).shape
            torch.testing.assert_close(kept.reshape(expected.shape), expected)
    with pytest.raises(ValueError, match=r"dim must name one dimension or several different ones, got \(1, -3\)"):
        function(x, dim=(1, -3))
    with pytest.raises(ValueError, match=r"dim must be in \[-4, 3\], got \(0, 4\)"):
        function(x, dim=(0, 4))


A, B = torch.randn(2, 2, 7, generator=torch.Generator().manual_seed(3), dtype=torch.float64).unbind()
TIES = torch.tensor([[0.3, 1.0, 1.0], [0.2, 0.2, 0.2]], dtype=torch.float64)
STRAIGHT = {
    "minimum": (lambda a, **o: softly.minimum(a, B, **o), lambda a: torch.minimum(a, B)),
    "maximum": (lambda a, **o: softly.maximum(a, B, **o), lambda a: torch.maximum(a, B)),
    "swap.low": (lambda a, **o: softly.swap(a, B, **o).low, lambda a: torch.minimum(a, B)),
    "swap.high": (lambda a, **o: softly.swap(a, B, **o).high, lambda a: torch.maximum(a, B)),
    "swap.keep": (lambda a, **o: softly.swap(a, B, **o).keep, lambda a: a < B),
    "less": (lambda a, **o: softly.less(a, B, **o), lambda a: a < B),
    "greater": (lambda a, **o: softly.greater(a, B, **o), lambda a: a > B),
    "equal": (lambda a, **o: softly.equal(a, B, **o), lambda a: a == B),
    "argmax": (softly.argmax, lambda a: torch.nn.functional.one_hot(a.argmax(-1), 7)),
    "argmin": (softly.argmin, lambda a: torch.nn.functional.one_hot(a.argmin(-1), 7)),
    "max": (softly.max, lambda a: a.amax(-1)),
    "min": (softly.min, lambda a: a.amin(-1)),
    "where": (
        lambda a, straight_through=False: softly.where(a.sigmoid(), A, B, straight_through=straight_through),
        lambda a: torch.where(a > 0, A, B),
    ),
    "abs": (softly.abs, torch.abs),
    "relu": (softly.relu, torch.relu),
    "clamp": (lambda a, **o: softly.clamp(a, -0.5, B.abs(), **o), lambda a: a.clamp(torch.tensor(-0.5), B.abs())),
    "sign": (softly.sign, torch.sign),
    "round": (softly.round, torch.round),
    "median": (softly.median, lambda a: a.quantile(0.5, -1)),
    "quantile": (lambda a, **o: softly.quantile(a, 0.3, **o), lambda a: a.quantile(0.3, -1)),
}


@pytest.mark.parametrize("name", STRAIGHT)
def test_straight_through(name):
    function, hard = STRAIGHT[name]
    torch.testing.assert_close(function(A, straight_through=True), hard(A).double(), atol=1e-14, rtol=0)
    for derivative in (torch.func.jacrev, torch.func.jacfwd, lambda f: torch.func.jacrev(torch.func.jacrev(f))):
        actual = derivative(lambda a: function(a, straight_through=True))(A)
        torch.testing.assert_close(actual, derivative(function)(A))
    single = function(A.float(), straight_through=True)
    assert single.dtype == (
        torch.float32
        if name in ("argmax", "argmin", "max", "min", "abs", "relu", "sign", "round", "median", "quantile")
        else torch.float64
    )


def test_straight_through_at_ties_and_infinities():
    """The limit of the relaxation: ties are shared."""
    assert softly.argmax(TIES, straight_through=True).tolist() == [[0, 0.5, 0.5], [1 / 3] * 3]
    assert softly.less(TIES, TIES, straight_through=True).eq(0.5).all()
    assert softly.where(torch.tensor(0.5), 1.0, 3.0, straight_through=True) == 2
    x = torch.tensor([1.0, math.inf, -math.inf], requires_grad=True)
    for function in (softly.maximum, softly.minimum):
        value = function(x, 0.0, straight_through=True)
        assert torch.equal(value, getattr(torch, function.__name__)(x, torch.zeros(3)))
        assert torch.autograd.grad(value.sum(), x)[0].isfinite().all()


@pytest.mark.parametrize("function", [*PAIRS, softly.swap])
def test_bad_input(function):
    x, name = torch.zeros(2), f"softly.{function.__name__}"
    with pytest.raises(ValueError, match=f"{name}: distribution must be symmetric.*'levy'"):
        function(x, x, distribution="levy")
    with pytest.raises(ValueError, match=f"{name}: steepness must be positive and finite, got 0"):
        function(x, x, steepness=0)
    with pytest.raises(ValueError, match="steepness must be positive and finite, got inf"):
        function(x, x, steepness=math.inf)
    with pytest.raises(TypeError, match=f"{name}: b must be a floating-point tensor, got torch.int64"):
        function(x, torch.arange(2))
    with pytest.raises(TypeError, match=f"{name}: a must be a tensor, got list"):
        function([1.0], x)
    with pytest.raises(TypeError, match=f"{name}: a must be a tensor, got bool"):
        function(True, x)
    with pytest.raises(TypeError, match=f"{name}: at least one of a, b must be a tensor, got numbers only"):
        function(1.0, 2)


@pytest.mark.parametrize("function", [softly.argmax, softly.argmin, softly.max, softly.min])
def test_bad_input_of_reductions(function):
    with pytest.raises(ValueError, match=r"dim must be in \[-2, 1\], got 2"):
        function(torch.zeros(2, 3), dim=2)
    with pytest.raises(ValueError, match="must not be empty along dim -1"):
        function(torch.zeros(2, 0))
    with pytest.raises(TypeError, match="floating-point"):
        function(torch.arange(3))


def test_more_bad_input():
    x = torch.zeros(2)
    for distribution in ("heaviside", distributions.get("cauchy").squared()):
        with pytest.raises(ValueError, match="peak at 0"):
            softly.equal(x, x, distribution=distribution)
    with pytest.raises(ValueError, match="similarity must be 'cosine' or 'inner', got 'dot'"):
        softly.categorical_equal(x, x, similarity="dot")
