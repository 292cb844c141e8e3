import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

import softly
from softly.logic import GroupSum, LogicLayer, Logit, gates, parametrizations, wiring

BITS = torch.tensor(list(itertools.product((0.0, 1.0), repeat=2)), dtype=torch.float64)


def sixteen(layer: LogicLayer, x: torch.Tensor) -> torch.Tensor:
    """The layer as the chapter writes it: every gate of its table, weighted by the softmax."""
    a, b = x[..., layer.wires[0]], x[..., layer.wires[1]]
    ab = a * b
    table = [0 * a, ab, a - ab, a, b - ab, b, a + b - 2 * ab, a + b - ab]
    table += [1 - gate for gate in reversed(table)]
    p = layer.weight.softmax(-1).unbind(-1)
    return sum(p[i] * table[i] for i in range(16))


def test_gate_numbers_are_truth_tables():
    python = {
        "and": lambda a, b: a and b,
        "or": lambda a, b: a or b,
        "xor": lambda a, b: a != b,
        "implies": lambda a, b: not a or b,
        "implied_by": lambda a, b: a or not b,
        "a": lambda a, b: a,
        "not_b": lambda a, b: not b,
        "nand": lambda a, b: not (a and b),
        "true": lambda a, b: True,
    }
    for name, gate in python.items():
        expected = [bool(gate(bool(a), bool(b))) for a, b in BITS]
        assert gates.TRUTH[gates.NAMES.index(name)].tolist() == expected
    for number, row in enumerate(gates.TRUTH.int().tolist()):
        assert number == 8 * row[0] + 4 * row[1] + 2 * row[2] + row[3]
    assert [gates.NAMES.index(name) for name in ("and", "a", "b", "xor", "or")] == [1, 3, 5, 6, 7]


@pytest.mark.parametrize("tnorm", softly.tnorms.names())
def test_relaxed_gates_are_boolean_on_bits_and_in_the_unit_interval(tnorm):
    torch.testing.assert_close(gates.relaxed(*BITS.T, tnorm=tnorm).T, gates.TRUTH.double())
    a, b = torch.rand(2, 200, dtype=torch.float64)
    values = gates.relaxed(a, b, tnorm=tnorm)
    assert values.min() >= -1e-12
    assert values.max() <= 1 + 1e-12
    torch.testing.assert_close(values.flip(-1), 1 - values)


def test_coefficients_are_the_probabilistic_gates():
    a, b = torch.rand(2, 50, dtype=torch.float64)
    powers = torch.stack((torch.ones_like(a), a, b, a * b), -1)
    torch.testing.assert_close(powers @ gates.COEFFICIENTS.T, gates.relaxed(a, b))


@pytest.mark.parametrize("bad", [["and", "xand"], [16], [True], [], [1.0]])
def test_unknown_gates_are_refused(bad):
    with pytest.raises(ValueError, match="gates must"):
        gates.numbers(bad)


@pytest.mark.parametrize("name", wiring.names())
@pytest.mark.parametrize(
    ("n", "m"), [(2, 1), (3, 3), (4, 6), (5, 10), (17, 24), (17, 136), (24, 12), (50, 37), (9, 30)]
)
def test_wires_use_all_inputs_alike(name, n, m):
    for seed in range(20):
        pairs = wiring.wires(name, n, m, seed)
        assert pairs.shape == (2, m)
        counts = pairs.flatten().bincount(minlength=n)
        assert counts.numel() == n
        assert counts.max() - counts.min() <= 1
        assert (pairs[0] != pairs[1]).all()
        if name == "unique":
            assert len({frozenset(pair) for pair in pairs.T.tolist()}) == m


def test_wires_are_the_same_everywhere():
    # Numbers that other machines and versions have to reproduce.
    assert wiring.wires("random", 5, 4, 1).tolist() == [[3, 4, 4, 0], [1, 2, 0, 2]]
    assert wiring.wires("unique", 5, 4, 1).tolist() == [[0, 1, 3, 3], [2, 0, 4, 2]]
    large = wiring.wires("random", 784, 8000, 7).numpy()
    assert int((large * np.arange(1, 8001)).sum()) == 24995147077
    assert not torch.equal(wiring.wires("random", 784, 8000, 8), torch.from_numpy(large))


def test_wires_of_few_inputs():
    pairs = wiring.wires("random", 2, 1001, 3)
    assert (pairs.sum(0) == 1).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ring", 4, 4, 0), "name must be one of random, unique"),
        (("random", 1, 4, 0), "at least 2"),
        (("random", 4, 0, 0), "out_dim must be at least 1"),
        (("random", 4, 4, -1), "seed must be in"),
        (("unique", 4, 7, 0), "4 inputs have 6 pairs"),
    ],
)
def test_impossible_wires_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        wiring.wires(*arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_closed_form_is_the_sixteen_gates(dtype):
    layer = LogicLayer(30, 50, seed=0).to(dtype)
    x = torch.rand(7, 30, dtype=dtype, requires_grad=True)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-13
    results = []
    for value in (layer(x), sixteen(layer, x)):
        grads = torch.autograd.grad(value.square().sum(), (x, layer.weight))
        results.append((value, *grads))
    torch.testing.assert_close(*results, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("tnorm", ["probabilistic", "minimum", "einstein", "lukasiewicz"])
@pytest.mark.parametrize("subset", [None, ("and", "or", "not_a", "a"), ("nand",)])
def test_relaxed_layer_is_the_mixture_of_its_gates(tnorm, subset):
    layer = LogicLayer(6, 5, seed=0, tnorm=tnorm, gates=subset).double()
    x = torch.rand(4, 6, dtype=torch.float64)
    a, b = x[:, layer.wires[0]], x[:, layer.wires[1]]
    numbers = list(gates.numbers(subset))
    expected = (gates.relaxed(a, b, tnorm=tnorm)[..., numbers] * layer.weight.softmax(-1)).sum(-1)
    torch.testing.assert_close(layer(x), expected)
    assert set(layer.gate_ids().tolist()) <= set(numbers)


@pytest.mark.parametrize("tnorm", ["probabilistic", "yager"])
def test_evaluation_is_boolean_and_the_limit_of_training(tnorm):
    layer = LogicLayer(8, 40, seed=1, tnorm=tnorm)
    x = torch.randint(0, 2, (100, 8))
    a, b = x[:, layer.wires[0]], x[:, layer.wires[1]]
    expected = gates.TRUTH[layer.gate_ids(), 2 * a + b]
    layer.eval()
    for bits in (x, x.bool(), x.float(), x.to(torch.uint8), x.double()):
        assert torch.equal(layer(bits).bool(), expected)
    with torch.no_grad():
        layer.weight *= 1e4
    torch.testing.assert_close(layer.train()(x.float()), expected.float(), atol=1e-4, rtol=0)


def test_residual_initialisation_passes_the_first_input_on():
    layer = LogicLayer(20, 30, seed=0, init="residual")
    assert (layer.gate_ids() == 3).all()
    p = layer.weight.softmax(-1)[0, 3].item()
    assert p == pytest.approx(math.exp(5) / (math.exp(5) + 15))
    with pytest.raises(ValueError, match="needs the gate 'a'"):
        LogicLayer(20, 30, init="residual", gates=["and"])


@pytest.mark.parametrize("tnorm", ["probabilistic", "minimum"])
def test_grad_factor_scales_the_gradient_of_the_input_alone(tnorm):
    plain, scaled = (LogicLayer(6, 9, seed=2, grad_factor=f, tnorm=tnorm).double() for f in (1.0, 3.0))
    scaled.load_state_dict(plain.state_dict())
    x = torch.rand(5, 6, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(plain(x), scaled(x))
    g, h = (torch.autograd.grad(layer(x).sin().sum(), (x, layer.weight)) for layer in (plain, scaled))
    torch.testing.assert_close(3.0 * g[0], h[0])
    torch.testing.assert_close(g[1], h[1])


def test_gumbel_trains_on_hard_gates_drawn_by_the_softmax():
    weight = torch.tensor([[0.0, 1.0, 2.0]], dtype=torch.float64).repeat(20_000, 1).requires_grad_()
    table = torch.eye(3, dtype=torch.float64)
    drawn = parametrizations.get("gumbel").mix(weight, table)
    torch.testing.assert_close(drawn, table[drawn.argmax(-1)])
    p = weight[0].detach().softmax(-1)
    error = (p * (1 - p) / len(weight)).sqrt()
    assert ((drawn.detach().mean(0) - p).abs() < 5 * error).all()
    quiet = parametrizations.Gumbel(temperature=2.0, scale=0.0)
    gradient = torch.autograd.grad(quiet.mix(weight[:1], table)[0, 1], weight)[0][0]
    q = (weight[0] / 2).softmax(-1).detach()
    torch.testing.assert_close(gradient, q[1] * (torch.tensor([0.0, 1.0, 0.0]).double() - q) / 2)


def test_the_temperature_is_that_of_the_gradient_of_coefficients_too():
    weight = torch.tensor([[0.0, 1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    gates = (1, 6, 7)
    for temperature in (0.5, 1.0, 3.0):
        quiet = parametrizations.Gumbel(temperature=temperature, scale=0.0)
        soft = parametrizations.Softmax().coefficients([weight / temperature], gates)
        hard = quiet.coefficients([weight], gates)
        direction = torch.arange(1.0, 5.0, dtype=torch.float64)
        torch.testing.assert_close(
            *(torch.autograd.grad((found * direction).sum(), weight)[0] for found in (hard, soft))
        )


def test_gumbel_layer_keeps_bits():
    layer = LogicLayer(8, 40, seed=1, parametrization="gumbel")
    for _ in range(20):
        value = layer(torch.randint(0, 2, (100, 8)).float())
        assert set(value.unique().tolist()) == {0.0, 1.0}
    value.square().mean().backward()
    assert layer.weight.grad.abs().sum() > 0


def test_bits_in_half_precision_keep_weights_in_single():
    layer = LogicLayer(16, 64, seed=0)
    x = torch.randint(0, 2, (9, 16))
    assert layer(x.bfloat16()).dtype == torch.float32
    torch.testing.assert_close(layer(x.bfloat16()), layer(x.float()))
    layer.bfloat16()
    assert layer(x.bfloat16()).dtype == torch.bfloat16


def test_state_dict_holds_the_wires():
    layer, other = LogicLayer(10, 20, seed=0), LogicLayer(10, 20, seed=1)
    other.load_state_dict(layer.state_dict())
    x = torch.rand(3, 10)
    assert torch.equal(layer(x), other(x))


def test_seed_comes_from_torch_where_none_is_given():
    torch.manual_seed(5)
    layers = [LogicLayer(10, 20) for _ in range(2)]
    torch.manual_seed(5)
    again = [LogicLayer(10, 20) for _ in range(2)]
    for layer, twin in zip(layers, again, strict=True):
        assert layer.seed == twin.seed
        assert torch.equal(layer.weight, twin.weight)
    assert layers[0].seed != layers[1].seed
    assert torch.equal(layers[0].wires, wiring.wires("random", 10, 20, layers[0].seed))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init": "zero"}, "init must be one of normal, residual; got 'zero'"),
        ({"parametrization": "softmax4"}, "parametrization must be one of softmax16, straight_through, gumbel"),
        ({"grad_factor": math.inf}, "grad_factor must be finite"),
        ({"gates": ["xnand"]}, "softly.logic.LogicLayer: gates must"),
        ({"wiring": "dense"}, "name must be one of"),
    ],
)
def test_impossible_layers_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LogicLayer(4, 4, **options)


def test_wrong_inputs_are_refused():
    layer = LogicLayer(4, 4, seed=0)
    with pytest.raises(ValueError, match=r"x must be of shape \(\.\.\., 4\), got \(2, 5\)"):
        layer(torch.rand(2, 5))
    with pytest.raises(TypeError, match="x must be a tensor, got list"):
        layer([0.0] * 4)
    with pytest.raises(TypeError, match="x must be real"):
        layer(torch.zeros(4, dtype=torch.complex64))


def test_group_sum_counts_neighbours():
    x = torch.rand(3, 2, 12, dtype=torch.float64)
    expected = torch.stack([x[..., i * 4 : i * 4 + 4].sum(-1) / 5 + 7 for i in range(3)], -1)
    torch.testing.assert_close(GroupSum(3, tau=5.0, beta=7.0)(x), expected)
    assert GroupSum(2)(torch.tensor([True, True, False, True])).tolist() == [2.0, 1.0]
    assert GroupSum(1)(torch.ones(1000, dtype=torch.bfloat16)).item() == 1000
    with pytest.raises(ValueError, match="k = 5 must divide the number of inputs, got 12"):
        GroupSum(5)(x)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"k": 0}, "k must be"), ({"k": 2, "tau": 0.0}, "tau must be"), ({"k": 2, "beta": math.nan}, "beta must be")],
)
def test_impossible_group_sums_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        GroupSum(**options)


def test_logit_covers_the_real_numbers():
    head = nn.Sequential(GroupSum(1, tau=10.0), Logit(10))
    counts = torch.tensor([[1.0] * n + [0.0] * (10 - n) for n in range(11)], requires_grad=True)
    values = head(counts).squeeze(-1)
    torch.testing.assert_close(values[1:-1], torch.logit(torch.arange(1, 10) / 10))
    assert (values.diff() > 0).all()
    torch.testing.assert_close(values, -values.flip(0))
    with pytest.raises(ValueError, match="size must be"):
        Logit(0)
