"""The kernels of relaxed comparator networks, against a plain torch reference and its autograd."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import softly
from softly.sorting import networks
from softly.sorting.networks import Network

_native = pytest.importorskip("softly._native", reason="the compiled module is not there")

pytestmark = pytest.mark.native

SUFFIX = {torch.float32: "f32", torch.float64: "f64"}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}
SIZES = (1, 2, 3, 5, 8, 16, 33, 64, 128)
BATCHES = (1, 3, 8, 13, 17)
SMOOTH = ("gaussian", "laplace", "logistic", "hyperbolic_secant", "cauchy", "reciprocal")


# The reference ----------------------------------------------------------------------------------------------


def _optimal(x):
    far = x.abs() > 0.25
    return torch.where(far, (x > 0).to(x.dtype) - 1 / (16 * torch.where(far, x, 1)), x + 0.5)


def _wigner(x):
    inside = x.abs() < 1
    safe = torch.where(inside, x, 0)
    middle = 0.5 + (safe * torch.sqrt(1 - safe**2) + torch.asin(safe)) / math.pi
    return torch.where(inside, middle, (x > 0).to(x.dtype))


def _hermite(x):
    y = ((x + 1) / 2).clamp(0, 1)
    return 3 * y**2 - 2 * y**3


CDF = {
    "heaviside": lambda x: (torch.sign(x) + 1) / 2,
    "uniform": lambda x: ((x + 1) / 2).clamp(0, 1),
    "cubic_hermite": _hermite,
    "wigner": _wigner,
    "gaussian": lambda x: torch.erfc(-x / math.sqrt(2)) / 2,
    "laplace": lambda x: torch.where(x < 0, torch.exp(-x.abs()) / 2, 1 - torch.exp(-x.abs()) / 2),
    "logistic": torch.sigmoid,
    "hyperbolic_secant": lambda x: 2 / math.pi * torch.atan(torch.exp(math.pi / 2 * x)),
    "cauchy": lambda x: torch.atan(x) / math.pi + 0.5,
    "reciprocal": lambda x: x / (2 + 2 * x.abs()) + 0.5,
    "optimal": _optimal,
}


def _cdf(name, art):
    def replaced(x):
        safe = torch.where(x == 0, 1, x)
        return CDF[name](torch.where(x == 0, 0 * x.detach(), safe / (safe.abs() ** art + 1e-10)))

    return CDF[name] if art is None else replaced


def _reference(network, x, cdf):
    """The sorted values and the permutation matrix."""
    n, P = network.n, torch.eye(network.n, dtype=x.dtype).expand(len(x), -1, -1)
    for layer in network.layers:
        if not layer:
            continue
        i, j = torch.tensor(layer).T
        d = x[:, j] - x[:, i]
        swap = cdf(-d)
        x = x.index_add(1, i, swap * d).index_add(1, j, -swap * d)
        mixed = swap.unsqueeze(-1) * (P[:, j] - P[:, i])
        P = P.index_add(1, i, mixed).index_add(1, j, -mixed)
    assert P.shape[-1] == n
    return x, P


# The kernels ------------------------------------------------------------------------------------------------


class Kernels:
    """The compiled functions on contiguous tensors, of one network, with `outputs` read in that order."""

    def __init__(self, network, outputs=None, steepness=1.0):
        self.n, self.steepness = network.n, steepness
        self.outputs = list(range(network.n)) if outputs is None else list(outputs)
        wires = np.array(network.wires, dtype=np.int32)
        offsets = np.array(network.offsets, dtype=np.int32)
        output = np.array(self.outputs, dtype=np.int32)
        self.plan = _native.sorting_plan(
            network.n, wires.ctypes.data, offsets.ctypes.data, network.depth, output.ctypes.data, len(output)
        )
        self.size = _native.sorting_plan_size(self.plan)

    def __del__(self):
        _native.sorting_plan_destroy(self.plan)

    def _call(self, name, dtype, *arguments, batch, threads):
        arguments = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]
        assert getattr(_native, f"{name}_{SUFFIX[dtype]}")(self.plan, *arguments, batch, threads)

    def _function(self, distribution, art):
        return _native.distributions().index(distribution), -1.0 if art is None else art, self.steepness

    def values(self, x, distribution, art=None, threads=1, keep=True):
        out = x.new_full((len(x), len(self.outputs)), math.nan)
        slopes = x.new_full((len(x), self.size), math.nan) if keep else 0
        function = self._function(distribution, art)
        self._call("network_values", x.dtype, *function, x, out, slopes, batch=len(x), threads=threads)
        return out, slopes

    def values_backward(self, slopes, grad, threads=1):
        grad_x = grad.new_full((len(grad), self.n), math.nan)
        self._call("network_values_backward", grad.dtype, slopes, grad, grad_x, batch=len(grad), threads=threads)
        return grad_x

    def matrix(self, x, distribution, art=None, threads=1, keep=True):
        out = x.new_full((len(x), self.n, self.n), math.nan)
        kept = x.new_full((len(x), 3, self.size), math.nan) if keep else 0
        function = self._function(distribution, art)
        self._call("network_matrix", x.dtype, *function, x, out, kept, batch=len(x), threads=threads)
        return out, kept

    def matrix_backward(self, kept, grad, threads=1):
        grad_x = grad.new_full((len(grad), self.n), math.nan)
        self._call(
            "network_matrix_backward", grad.dtype, self.steepness, kept, grad, grad_x, batch=len(grad), threads=threads
        )
        return grad_x

    def rows(self, x, distribution, art=None, threads=1, rows=None, keep=True):
        k = len(self.outputs) if rows is None else len(rows)
        out = x.new_full((len(x), k, self.n), math.nan)
        kept = x.new_full((len(x), 3, self.size), math.nan) if keep else 0
        function = self._function(distribution, art)
        weights = 0 if rows is None else rows
        self._call("network_rows", x.dtype, *function, x, weights, k, out, kept, batch=len(x), threads=threads)
        return out, kept

    def rows_backward(self, kept, grad, threads=1, rows=None):
        grad_x = grad.new_full((len(grad), self.n), math.nan)
        weights = 0 if rows is None else rows
        arguments = (self.steepness, weights, grad.shape[1], kept, grad, grad_x)
        self._call("network_rows_backward", grad.dtype, *arguments, batch=len(grad), threads=threads)
        return grad_x


def _assert_close(ours, exact, what, times=1):
    """Within so many times the dtype's tolerance of the largest number that takes part."""
    assert ours.shape == exact.shape
    if exact.numel() == 0:
        return
    scale = max(1.0, exact.abs().max().item())
    error = (ours.double() - exact).abs().max().item() / scale
    assert error <= times * TOLERANCE[ours.dtype], f"{what}: {error}"


def _check(network, distribution, art, dtype, batch, threads, scale=3.0):
    x = (torch.randn(batch, network.n) * scale).to(dtype)
    exact_x = x.double().requires_grad_()
    values, P = _reference(network, exact_x, _cdf(distribution, art))
    kernels = Kernels(network)

    def gradient(output, grad):
        if not output.requires_grad:  # no comparators
            return torch.zeros_like(exact_x)
        (result,) = torch.autograd.grad(output, exact_x, grad.double(), retain_graph=True, allow_unused=True)
        return torch.zeros_like(exact_x) if result is None else result

    out, slopes = kernels.values(x, distribution, art, threads)
    _assert_close(out, values, "values")
    grad = torch.randn_like(out)
    _assert_close(kernels.values_backward(slopes, grad, threads), gradient(values, grad), "gradient of values")

    out, kept = kernels.matrix(x, distribution, art, threads)
    _assert_close(out, P, "matrix")
    grad = torch.randn_like(out)
    _assert_close(kernels.matrix_backward(kept, grad, threads), gradient(P, grad), "gradient of the matrix")
    without, _ = kernels.matrix(x, distribution, art, threads, keep=False)
    assert torch.equal(without, out)

    top = Kernels(network, outputs=range(network.n - 1, max(-1, network.n - 6), -1))
    out, kept = top.rows(x, distribution, art, threads)
    best = P.flip(1)[:, : out.shape[1]]
    _assert_close(out, best, "rows")
    grad = torch.randn_like(out)
    _assert_close(top.rows_backward(kept, grad, threads), gradient(best, grad), "gradient of rows")


@pytest.mark.parametrize("dtype", SUFFIX, ids=str)
@pytest.mark.parametrize("distribution", CDF)
def test_every_distribution(distribution, dtype):
    for name, n, batch in [
        ("bitonic", 16, 17),
        ("odd_even", 5, 3),
        ("bitonic", 33, 8),
        ("odd_even_merge", 8, 1),
    ]:
        _check(networks.get(name, n), distribution, None, dtype, batch, threads=1)


@pytest.mark.parametrize("dtype", SUFFIX, ids=str)
@pytest.mark.parametrize("art", [0.0, 0.25, 0.5])
@pytest.mark.parametrize("distribution", CDF)
def test_every_distribution_under_art(distribution, art, dtype):
    # The slope is infinite at ties, and deep networks have nearly tied values: these are shallow.
    for name, n, batch in [("bitonic", 2, 17), ("bitonic", 3, 3), ("optimal", 4, 8)]:
        _check(networks.get(name, n), distribution, art, dtype, batch, threads=1)


@pytest.mark.parametrize("dtype", SUFFIX, ids=str)
@pytest.mark.parametrize("art", [None, 0.3])
@pytest.mark.parametrize("distribution", CDF)
def test_a_swap_is_accurate_far_out_in_the_tail(distribution, art, dtype):
    """Tail, density and slope of single swaps: a few units in the last place, whichever way it rather swaps."""
    tiny, eps = torch.finfo(dtype).tiny, torch.finfo(dtype).eps
    x = torch.cat([torch.logspace(-6, 5, 1117, dtype=torch.float64), torch.tensor([0.0, 0.2499, 0.2501, 0.99])])
    difference = torch.cat([x, -x]).to(dtype)
    kept = Kernels(networks.get("odd_even", 2)).matrix(torch.stack([0 * difference, difference], 1), distribution, art)[
        1
    ]
    d = difference.double().requires_grad_()
    exact = _tail(distribution, art)(d.abs())
    (density,) = torch.autograd.grad(exact.sum(), d)
    density = -density * torch.sign(d.detach())
    if art is not None or distribution == "heaviside":
        density = torch.where(d == 0, 0, density)
    elif distribution in SMOOTH:
        density = torch.where(d == 0, -_slope_at_zero(distribution), density)
    weight = torch.where(d < 0, 1 - exact, exact).detach()
    # How a tail feels an error in its argument, which kernels round under art, and the reference always.
    argument = d.detach().abs() ** (1 - (art or 0))
    sensitivity = argument**2 if distribution == "gaussian" else 2 * argument
    rounded = (0 if art is None else 4 * eps) + 2 * torch.finfo(torch.float64).eps
    # A bounded support ends at 1, where a rounded argument moves a small tail by more than its own size.
    absolute = tiny + 4 * eps * (distribution in ("uniform", "cubic_hermite", "wigner"))
    tail = torch.where(d < 0, -exact, exact).detach()
    for ours, expected in zip(kept.double()[:, :2, 0].T, (tail, density), strict=True):
        bound = (8 * eps + rounded * sensitivity) * expected.abs() + absolute
        excess = (ours - expected).abs() / bound
        if distribution not in SMOOTH and art is None:
            excess = excess[d != 0]  # the reference has no derivative there
        assert excess.max() <= 1
    slope = (weight - d * density).detach()
    assert (kept[:, 2, 0].double() - slope).abs().max() < TOLERANCE[dtype] / 10


@pytest.mark.parametrize("distribution", ["gaussian", "laplace", "logistic", "hyperbolic_secant", "cauchy"])
@pytest.mark.parametrize(("name", "n"), [("bitonic", 16), ("bitonic", 80), ("odd_even", 5), ("odd_even", 70)])
def test_small_entries_keep_their_digits(name, n, distribution):
    """Of matrices and rows; what the logarithms of the reference say, computed in float64, is exact for float32."""
    x, network = 2.0 * torch.randn(9, n), networks.get(name, n)
    log_P = softly.SortingNetwork(name, distribution=distribution, steepness=5.0).log_permutation(x.double())
    P, _ = Kernels(network, steepness=5.0).matrix(x, distribution)
    top, _ = Kernels(network, outputs=range(n - 1, n - 4, -1), steepness=5.0).rows(x, distribution)
    for ours, expected in ((P, log_P), (top, log_P.flip(-2)[:, :3])):
        small = (expected < -17) & (expected > -85)
        assert small.any() or distribution == "cauchy"
        normal = expected > -85
        error = (ours.double().log() - expected)[normal].abs()
        assert error.max() < 2e-4


def _tail(name, art):
    """F(-x) for x >= 0 by formulas that keep a small tail's digits."""
    tails = {
        "heaviside": lambda x: torch.where(x > 0, 0 * x, 0.5),
        "uniform": lambda x: ((1 - x) / 2).clamp(min=0),
        "cubic_hermite": lambda x: _hermite(-x),
        "wigner": lambda x: _wigner(-x),
        "gaussian": lambda x: torch.special.erfcx(x / math.sqrt(2)) * torch.exp(-(x**2) / 2) / 2,
        "laplace": lambda x: torch.exp(-x) / 2,
        "logistic": lambda x: torch.exp(-x) / (1 + torch.exp(-x)),
        "hyperbolic_secant": lambda x: 2 / math.pi * torch.atan(torch.exp(-math.pi / 2 * x)),
        "cauchy": lambda x: torch.atan2(torch.ones_like(x), x) / math.pi,
        "reciprocal": lambda x: 0.5 / (1 + x),
        "optimal": lambda x: torch.where(x > 0.25, 1 / (16 * x.clamp(min=0.25)), 0.5 - x),
    }
    if art is None:
        return tails[name]
    return lambda x: tails[name](torch.where(x == 0, 0, x / (torch.where(x == 0, 1, x) ** art + 1e-10)))


def _slope_at_zero(name):
    zero = torch.zeros((), dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(_tail(name, None)(zero), zero)[0]


@pytest.mark.parametrize("dtype", SUFFIX, ids=str)
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("name", ["bitonic", "odd_even", "odd_even_merge", "pairwise"])
def test_every_size(name, n, batch, dtype):
    threads = 1 + (n + batch) % 2
    _check(networks.get(name, n), "cauchy", None, dtype, batch, threads)


@pytest.mark.parametrize("dtype", SUFFIX, ids=str)
@pytest.mark.parametrize(("name", "n", "batch"), [("bitonic", 300, 2), ("odd_even", 301, 1), ("pairwise", 200, 3)])
def test_sets_of_near_wires_and_checkpoints(name, n, batch, dtype):
    _check(networks.get(name, n), "logistic", None, dtype, batch, threads=1)


@pytest.mark.parametrize("dtype", SUFFIX, ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_weighted_rows_are_products_with_the_matrix(threads, dtype):
    network = networks.get("bitonic", 50)
    kernels = Kernels(network)
    x, rows = torch.randn(9, 50, dtype=dtype), torch.randn(41, 50, dtype=dtype)
    exact_x = x.double().requires_grad_()
    exact = rows.double() @ _reference(network, exact_x, CDF["cauchy"])[1]
    out, kept = kernels.rows(x, "cauchy", threads=threads, rows=rows)
    _assert_close(out, exact, "rows")
    grad = torch.randn_like(out)
    (expected,) = torch.autograd.grad(exact, exact_x, grad.double())
    _assert_close(kernels.rows_backward(kept, grad, threads, rows), expected, "gradient of rows")


def _random_network(n, depth, size, seed):
    """Layers of arbitrary pairs, in either direction."""
    generator = np.random.default_rng(seed)
    layers = []
    for layer in range(depth):
        wires = generator.permutation(n)[: 2 * (size * (layer + 1) // depth - size * layer // depth)]
        layers.append(tuple((int(i), int(j)) for i, j in wires.reshape(-1, 2)))
    return Network(n, tuple(layers))


@pytest.mark.parametrize("dtype", SUFFIX, ids=str)
@pytest.mark.parametrize(("n", "batch"), [(20, 1), (20, 5), (20, 35), (100, 9)])
def test_steepness_scales_the_input(n, batch, dtype):
    """By a power of two, so that nothing is rounded."""
    network, x = networks.get("bitonic", n), torch.randn(batch, n, dtype=dtype)
    steep, plain = Kernels(network, steepness=4.0), Kernels(network)
    (values, slopes), (expected, expected_slopes) = steep.values(x, "cauchy"), plain.values(4 * x, "cauchy")
    assert torch.equal(values, expected / 4)
    assert torch.equal(slopes, expected_slopes)
    (P, kept), (expected, _) = steep.matrix(x, "cauchy"), plain.matrix(4 * x, "cauchy")
    assert torch.equal(P, expected)
    grad = torch.randn_like(P)
    assert torch.equal(steep.matrix_backward(kept, grad), 4 * plain.matrix_backward(kept, grad))
    (rows, kept), (expected, _) = steep.rows(x, "cauchy"), plain.rows(4 * x, "cauchy")
    assert torch.equal(rows, expected)
    assert torch.equal(steep.rows_backward(kept, grad), 4 * plain.rows_backward(kept, grad))


@pytest.mark.parametrize("dtype", SUFFIX, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_arbitrary_networks(seed, dtype):
    network = _random_network(n=37, depth=9, size=37 + 17 * seed, seed=seed)
    x = torch.randn(6, 37, dtype=dtype)
    exact_x = x.double().requires_grad_()
    values, P = _reference(network, exact_x, CDF["logistic"])
    outputs = np.random.default_rng(seed).permutation(37)[:7]
    kernels = Kernels(network, outputs)
    for ours, exact in [
        (kernels.values(x, "logistic")[0], values[:, outputs]),
        (kernels.rows(x, "logistic")[0], P[:, outputs]),
        (Kernels(network).matrix(x, "logistic")[0], P),
    ]:
        _assert_close(ours, exact, "outputs")
    grad = torch.randn(6, 7, 37, dtype=dtype)
    (expected,) = torch.autograd.grad(P[:, outputs], exact_x, grad.double(), retain_graph=True)
    _assert_close(kernels.rows_backward(kernels.rows(x, "logistic")[1], grad), expected, "gradient of rows")
    grad = torch.randn(6, 7, dtype=dtype)
    (expected,) = torch.autograd.grad(values[:, outputs], exact_x, grad.double(), retain_graph=True)
    _assert_close(kernels.values_backward(kernels.values(x, "logistic")[1], grad), expected, "gradient of values")
    grad = torch.randn(6, 37, 37, dtype=dtype)
    (expected,) = torch.autograd.grad(P, exact_x, grad.double())
    full = Kernels(network)
    _assert_close(full.matrix_backward(full.matrix(x, "logistic")[1], grad), expected, "gradient of the matrix")


def test_a_large_selection_network():
    network = _random_network(n=10_450, depth=40, size=68_085, seed=0)
    outputs = range(10_449, 10_444, -1)
    kernels = Kernels(network, outputs)
    assert kernels.size <= network.size
    x = torch.randn(2, network.n)
    out, kept = kernels.rows(x, "cauchy")
    values, _ = kernels.values(x, "cauchy")
    assert (torch.einsum("bkn,bn->bk", out, x) - values).abs().max() < 1e-4
    assert (out.sum(-1) - 1).abs().max() < 1e-5
    # The directional derivative, by central differences.
    grad, direction, step = torch.randn_like(out), torch.randn_like(x), 1e-5
    gradient = kernels.rows_backward(kept, grad)
    ahead, behind = (
        (kernels.rows((x + sign * step * direction).double(), "cauchy")[0] * grad).sum() for sign in (1, -1)
    )
    expected = (ahead - behind) / (2 * step)
    assert abs((gradient.double() * direction).sum() - expected) < 2e-3 * abs(expected)


@pytest.mark.parametrize("dtype", SUFFIX, ids=str)
def test_threads_change_nothing_but_the_order_of_sums(dtype):
    for batch, n in [(1, 100), (2, 40), (5, 64), (16, 20), (70, 33)]:
        kernels, x = Kernels(networks.get("bitonic", n)), torch.randn(batch, n, dtype=dtype)
        one, two = (kernels.matrix(x, "cauchy", threads=threads) for threads in (1, 2))
        assert torch.equal(one[0], two[0])
        grad = torch.randn_like(one[0])
        one, two = (kernels.matrix_backward(one[1], grad, threads) for threads in (1, 2))
        assert (one - two).abs().max() <= TOLERANCE[dtype] * one.abs().max()
        one, two = (kernels.values(x, "cauchy", threads=threads) for threads in (1, 2))
        assert torch.equal(one[0], two[0])
        grad = torch.randn_like(x)
        assert torch.equal(kernels.values_backward(one[1], grad, 2), kernels.values_backward(two[1], grad, 1))


@pytest.mark.parametrize("distribution", CDF)
def test_nan_spreads_to_what_it_reaches(distribution):
    x = torch.randn(11, 16)
    x[3, 5] = x[10, 2] = math.nan
    clean = [row for row in range(11) if row not in (3, 10)]
    kernels = Kernels(networks.get("bitonic", 16))
    values, _ = kernels.values(x, distribution)
    assert values[[3, 10]].isnan().all()
    assert not values[clean].isnan().any()
    P, kept = kernels.matrix(x, distribution)
    assert P[[3, 10]].isnan().any(-1).all()
    assert not P[clean].isnan().any()
    gradient = kernels.matrix_backward(kept, torch.ones_like(P) + torch.rand_like(P))
    assert gradient[[3, 10]].isnan().all()
    assert not gradient[clean].isnan().any()


def test_hard_limit_is_exact():
    x = torch.randn(20, 32)
    kernels = Kernels(networks.get("bitonic", 32))
    for distribution in ("heaviside", "logistic", "uniform", "gaussian"):
        assert torch.equal(kernels.values(x * 2.0**20, distribution)[0] / 2.0**20, x.sort(-1).values)
        P, _ = kernels.matrix(x * 2.0**20, distribution)
        assert torch.equal(P @ x.unsqueeze(-1), x.sort(-1).values.unsqueeze(-1))


def test_ties_are_symmetric():
    x = torch.zeros(9, 8)
    for distribution in CDF:
        P, _ = Kernels(networks.get("bitonic", 8)).matrix(x, distribution)
        assert (P - 1 / 8).abs().max() < 1e-7


def test_an_empty_batch_is_nothing_to_do():
    kernels = Kernels(networks.get("bitonic", 8))
    out, kept = kernels.matrix(torch.empty(0, 8), "cauchy")
    assert kernels.matrix_backward(kept, out).shape == (0, 8)
    out, slopes = kernels.values(torch.empty(0, 8), "cauchy")
    assert kernels.values_backward(slopes, out).shape == (0, 8)


def _narrower(isa):
    if _native.isa() in ("portable", isa) or "SOFTLY_ISA" in os.environ:
        pytest.skip(f"the kernels are {_native.isa()}, or were chosen")
    return {**os.environ, "SOFTLY_ISA": isa}


# Every kernel, distribution and dtype; sizes and batches on both sides of what fits into a vector.
ON_AN_INSTRUCTION_SET = """
import torch
import softly
from softly.sorting import networks

torch.manual_seed(0)
names = [name for name in softly.distributions.names() if softly.distributions.get(name).symmetric]
chosen = [softly.distributions.get(name) for name in names]
chosen += [softly.distributions.art(name) for name in ("logistic", "cauchy")]
cases = [(d, "bitonic", 16, 13) for d in chosen]
sizes = ("odd_even", 1, 3), ("odd_even", 5, 17), ("pairwise", 33, 3), ("bitonic", 64, 8), ("bitonic", 128, 2)
cases += [(chosen[names.index("cauchy")], *size) for size in (*sizes, ("odd_even", 301, 1))]
results = []
for distribution, network, n, batch in cases:
    for dtype in (torch.float32, torch.float64):
        x = (3 * torch.randn(batch, n, dtype=torch.float64)).to(dtype).requires_grad_()
        sorter = softly.SortingNetwork(network, distribution=distribution, steepness=2.0)
        select = softly.TopKNetwork("splitter", distribution=distribution, steepness=2.0)
        found = [sorter.sort(x), sorter.permutation(x), sorter.rank(x), select.topk(x, min(n, 3))]
        results += [y.detach() for y in found]
        if found[0].requires_grad:
            results += [torch.autograd.grad(y, x, torch.randn_like(y))[0] for y in found if y.requires_grad]
torch.save((softly.native.isa(), results), path)
"""


@pytest.mark.parametrize("isa", ["portable", "avx2"])
def test_the_narrower_kernels_give_the_same(isa, tmp_path):
    environment, narrow, here = _narrower(isa), tmp_path / "narrow.pt", tmp_path / "here.pt"
    script = f"path = {str(narrow)!r}\n{ON_AN_INSTRUCTION_SET}"
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    exec(ON_AN_INSTRUCTION_SET, {"path": here})
    (used, expected), (_, actual) = torch.load(narrow), torch.load(here)
    assert used == isa
    for ours, theirs in zip(actual, expected, strict=True):
        _assert_close(ours, theirs.double(), isa, times=5)  # both are rounded, and ART amplifies that near ties


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["portable", "avx2"])
def test_the_narrower_kernels_too(isa):
    """All of this file, on them."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(command, env=_narrower(isa), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
