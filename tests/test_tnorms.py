import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

import softly
from softly import _p_norm, tnorms

unit = some.floats(0, 1).map(lambda v: round(v, 6))
positive = some.floats(0.05, 12)
SAMPLES = [
    *(tnorms.get(name) for name in tnorms.names()),
    *(
        tnorms.get(name, p=p)
        for name in ("hamacher", "frank", "yager", "aczel_alsina", "dombi")
        for p in (0.3, 1.0, 5.0)
    ),
    *(tnorms.get("schweizer_sklar", p=p) for p in (-0.2, -4.0)),
]
samples = pytest.mark.parametrize("t", SAMPLES, ids=repr)


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


@some.composite
def families(draw):
    name = draw(some.sampled_from(tnorms.names()))
    if name in ("minimum", "probabilistic", "einstein", "lukasiewicz"):
        return tnorms.get(name)
    p = draw(positive)
    return tnorms.get(name, p=-p if name == "schweizer_sklar" else p)


@settings(max_examples=300, deadline=None)
@given(families(), unit, unit, unit, unit)
def test_axioms(t, a, b, c, d):
    a, b, c, d = map(number, (a, b, c, d))
    for operator, neutral in ((t.tnorm, 1.0), (t.tconorm, 0.0)):
        close = lambda x, y: torch.testing.assert_close(x, y, atol=1e-7, rtol=1e-6)  # noqa: E731
        close(operator(a, b), operator(b, a))
        close(operator(a, operator(b, c)), operator(operator(a, b), c))
        close(operator(a, number(neutral)), a)
        close(operator(a, number(1 - neutral)), number(1 - neutral))
        low, high = (
            operator(torch.minimum(a, c), torch.minimum(b, d)),
            operator(torch.maximum(a, c), torch.maximum(b, d)),
        )
        assert low <= high + 1e-9
    torch.testing.assert_close(t.tconorm(a, b), 1 - t.tnorm(1 - a, 1 - b), atol=1e-7, rtol=1e-6)
    assert t.tnorm(a, b) <= torch.minimum(a, b) + 1e-9
    assert t.tconorm(a, b) >= torch.maximum(a, b) - 1e-9


@settings(max_examples=150, deadline=None)
@given(families(), some.lists(unit, min_size=1, max_size=7))
def test_reductions_are_folds(t, values):
    x = torch.tensor(values, dtype=torch.float64)
    for reduce, operator in ((t.all, t.tnorm), (t.any, t.tconorm)):
        fold = x[0]
        for entry in x[1:]:
            fold = operator(fold, entry)
        torch.testing.assert_close(reduce(x), fold, atol=1e-7, rtol=1e-6)


def test_formulas_of_the_appendix():
    a, b = torch.rand(2, 50, dtype=torch.float64)
    x, y = 1 - a, 1 - b
    for p in (0.4, 2.5):
        expected = {
            "hamacher": (a + b + (p - 2) * a * b) / (1 + (p - 1) * a * b),
            "frank": 1 - torch.log1p((p**x - 1) * (p**y - 1) / (p - 1)) / torch.log(number(p)),
            "yager": torch.clamp((a**p + b**p) ** (1 / p), max=1),
            "aczel_alsina": 1 - torch.exp(-(((-x.log()) ** p + (-y.log()) ** p) ** (1 / p))),
            "dombi": 1 / (1 + ((a / x) ** p + (b / y) ** p) ** (-1 / p)),
        }
        for name, value in expected.items():
            torch.testing.assert_close(tnorms.get(name, p=p).tconorm(a, b), value, msg=name)
        sklar = 1 - (x**-p + y**-p - 1) ** (-1 / p)
        torch.testing.assert_close(tnorms.get("schweizer_sklar", p=-p).tconorm(a, b), sklar)


def test_members_of_two_families():
    a, b = torch.rand(2, 20, dtype=torch.float64)
    same = lambda s, t: torch.testing.assert_close(s.tnorm(a, b), t.tnorm(a, b))  # noqa: E731
    for name in ("hamacher", "aczel_alsina", "frank"):
        same(tnorms.get(name, p=1.0), tnorms.get("probabilistic"))
    same(tnorms.get("hamacher", p=2.0), tnorms.get("einstein"))
    same(tnorms.get("yager", p=1.0), tnorms.get("lukasiewicz"))
    for near in (1 - 1e-7, 1 + 1e-7):
        torch.testing.assert_close(tnorms.get("frank", p=near).tnorm(a, b), a * b, atol=1e-7, rtol=0)
    for p in (1e-6, 1e12):
        assert tnorms.get("frank", p=p).tnorm(a, b).isfinite().all()
        x = torch.tensor([[0.9, 0.0, 1.0], [0.9, 1.0, 1.0]], requires_grad=True)
        values = (tnorms.get("frank", p=p).any(x), tnorms.get("frank", p=p).all(x))
        assert torch.autograd.grad(sum(v.sum() for v in values), x)[0].isfinite().all()


@samples
def test_truth_tables(t):
    for dtype in (torch.float32, torch.float64):
        for a, b in itertools.product((0.0, 1.0), repeat=2):
            x, y = torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype)
            assert t.tnorm(x, y) == float(bool(a) and bool(b))
            assert t.tconorm(x, y) == float(bool(a) or bool(b))


@samples
def test_neutral_elements_have_slope_one(t):
    """T(a, 1) = a and S(a, 0) = a fix the derivative along the border."""
    for reduce, neutral in ((t.all, 1.0), (t.any, 0.0)):
        x = torch.tensor([0.35, neutral, neutral], dtype=torch.float64, requires_grad=True)
        (grad,) = torch.autograd.grad(reduce(x), x)
        assert grad.isfinite().all()
        assert grad[0] == pytest.approx(1.0, abs=1e-5)


@samples
def test_annihilators_have_the_slope_of_the_limit(t):
    """One entry at the annihilator: its derivative is the one-sided limit."""
    if t == tnorms.get("minimum"):
        return
    for operator, border, inward in ((t.tnorm, 0.0, 1), (t.tconorm, 1.0, -1)):
        a = torch.tensor(border, dtype=torch.float64, requires_grad=True)
        b = number(0.6)
        (grad,) = torch.autograd.grad(operator(a, b), a)
        step = 1e-13 if isinstance(t, tnorms.AczelAlsina) else 1e-9
        slope = (operator(a.detach() + inward * step, b) - border) / (inward * step)
        # These approach their limits like a power of a logarithm, or a small power.
        slow = isinstance(t, tnorms.AczelAlsina | tnorms.SchweizerSklar) and t.p != 1
        tolerance = 0.2 if slow else 1e-2
        if not (isinstance(t, tnorms.AczelAlsina) and t.p < 1):
            assert grad == pytest.approx(float(slope), abs=tolerance)
        assert grad.isfinite()


@samples
def test_thousands_of_entries(t):
    for dtype in (torch.float32, torch.float64):
        for x in (
            torch.rand(3, 5000, dtype=dtype),
            torch.full((3, 5000), 0.999, dtype=dtype),
            torch.full((3, 5000), 1e-3, dtype=dtype),
            torch.ones(3, 5000, dtype=dtype),
            torch.zeros(3, 5000, dtype=dtype),
        ):
            x.requires_grad_()
            for reduce in (t.all, t.any):
                value = reduce(x)
                assert ((value >= 0) & (value <= 1)).all()
                (grad,) = torch.autograd.grad(value.sum(), x)
                assert grad.isfinite().all()
    assert t.all(torch.ones(5000)) == 1
    assert t.any(torch.zeros(5000)) == 0


def test_reductions_take_one_pass():
    """The number of dispatched operations does not grow with the number of operands."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Count.calls += 1
            return func(*args, **(kwargs or {}))

    for t in SAMPLES:
        counts = []
        for n in (4, 4000):
            Count.calls = 0
            with Count():
                t.any(torch.rand(n))
            counts.append(Count.calls)
        assert counts[0] == counts[1] < 80


def test_shapes():
    t = tnorms.get("probabilistic")
    assert t.all(torch.ones(2, 0, 3), dim=1).eq(1).all()
    assert t.any(torch.ones(2, 0, 3), dim=1).eq(0).all()
    assert t.all(torch.tensor(0.3)) == pytest.approx(0.3)
    assert t.tnorm(torch.rand(4, 1), torch.rand(3)).shape == (4, 3)


@samples
def test_operands_outside_the_unit_interval_are_refused(t):
    x = torch.tensor([0.5, -0.25, 1.5])
    inside = torch.tensor([0.0, 1.0, 0.3, torch.nan])
    for function in (t.all, t.any):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            with pytest.raises(ValueError, match=r"softly.tnorms.a..: x must be in \[0, 1\], got -0.25 to 1.5"):
                function(x.to(dtype))
        for bad in ([torch.nan, 2.0], [0.5] * 40 + [-0.1], [torch.inf, 0.5]):
            with pytest.raises(ValueError, match=r"x must be in \[0, 1\]"):
                function(torch.tensor(bad))
        function(inside)
        function(torch.tensor([1.0 + 1e-6, -1e-6]))
    with pytest.raises(ValueError, match=r"softly.tnorms.tnorm: b must be in \[0, 1\], got -0.25 to 1.5"):
        t.tnorm(inside[:3], x)
    with pytest.raises(ValueError, match=r"softly.tnorms.tconorm: a must be in \[0, 1\], got -0.25 to 1.5"):
        t.tconorm(x, inside[:3])
    torch.func.vmap(t.tnorm)(inside[:3], inside[:3])


@pytest.mark.parametrize("p", [0.5, 0.7, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 50.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norms_in_few_passes_are_those_of_the_reference(p, dtype):
    """Rows that are 0, or whose powers underflow or overflow, and entries that are 0, or next to it."""
    x = torch.rand(8, 6, dtype=dtype)
    x[0], x[4, :3], x[5, 2] = 0, 0, 1e-14
    x[1], x[2], x[3] = 1e-25 * x[1], 1e-12 * x[2], 1e15 * x[3]
    x[6, 1] = torch.nan
    weights, results = torch.randn(8, dtype=dtype), []
    for norm in (lambda y: _p_norm.p_norm(y, p, -1), lambda y: _p_norm.reference(y, p)):
        y = x.clone().requires_grad_()
        value = norm(y)
        results.append((value.detach(), torch.autograd.grad(value, y, weights)[0]))
    digits = 1e-5 if dtype == torch.float32 else 1e-12
    (value, grad), (expected, slope) = results
    torch.testing.assert_close(value, expected, rtol=digits, atol=0, equal_nan=True)
    scale = slope.abs().amax(-1, keepdim=True)
    torch.testing.assert_close(grad / scale, slope / scale, rtol=digits, atol=digits, equal_nan=True)
    assert grad[0].eq(weights[0]).all()
    assert _p_norm.p_norm(x[:0], p, -1).shape == (0,)


@samples
def test_several_dimensions(t):
    x = torch.rand(2, 3, 4, dtype=torch.float64)
    for reduce in (t.all, t.any):
        for dim in (1, (1,), (0, 2), (-1, 1), (0, 1, 2)):
            reduced = sorted(d % 3 for d in (dim if isinstance(dim, tuple) else (dim,)))
            others = [d for d in range(3) if d not in reduced]
            expected = reduce(x.permute(*others, *reduced).flatten(len(others)))
            torch.testing.assert_close(reduce(x, dim=dim), expected)
            kept = reduce(x, dim=dim, keepdim=True)
            assert kept.shape == x.amax(dim, keepdim=True).shape
            torch.testing.assert_close(kept.reshape(expected.shape), expected)
    assert t.all(torch.ones(2, 0, 3), dim=(1, 2), keepdim=True).tolist() == [[[1.0]], [[1.0]]]


def test_bad_input():
    with pytest.raises(ValueError, match=r"softly.tnorms.Frank: p must be in \(0, inf\), got -1"):
        tnorms.get("frank", p=-1)
    with pytest.raises(ValueError, match=r"SchweizerSklar: p must be in \(-inf, 0\), got 2"):
        tnorms.get("schweizer_sklar", p=2.0)
    with pytest.raises(ValueError, match="'einstein' has no parameter p; hamacher, frank"):
        tnorms.get("einstein", p=2.0)
    with pytest.raises(ValueError, match="unknown T-norm 'godel'; choose from minimum"):
        tnorms.get("godel")
    with pytest.raises(TypeError, match=r"floating-point tensor, got torch\.bool"):
        tnorms.get("minimum").all(torch.ones(2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"dim must be in \[-1, 0\], got 2"):
        tnorms.get("minimum").all(torch.ones(2), dim=2)
    with pytest.raises(ValueError, match=r"dim must name one dimension or several different ones, got \(\)"):
        tnorms.get("minimum").all(torch.ones(2), dim=())
    assert softly.tnorms.get(tnorms.Yager(3.0)).p == 3.0
