import pytest
import torch
from torch import nn

from softly import native
from softly.logic import GroupSum, LogicLayer, LogicNetwork, Threshold, gates, stack
from softly.logic.training import evaluate, train_epoch

needs_native = pytest.mark.skipif(not native.available(), reason="the compiled kernels are not there")


def sixteen(network, x):
    """The network as the chapter writes it, gate by gate."""
    for layer in network.layers:
        a, b = x[..., layer.wires[0]], x[..., layer.wires[1]]
        x = (gates.relaxed(a, b) * layer.weight.softmax(-1)).sum(-1)
    return network.head(x)


def both(make, monkeypatch):
    """What ``make()`` gives with the kernels, and without."""
    results = [make()]
    with monkeypatch.context() as patch:
        patch.setattr(native.library, "module", None)
        results.append(make())
    return results


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 7, 32, 100, 141])
def test_network_is_the_sixteen_gates(dtype, batch):
    network = LogicNetwork(30, [200, 170, 90], 10, tau=3.0, beta=0.25, seed=0).to(dtype)
    x = torch.rand(batch, 30, dtype=dtype, requires_grad=True)
    y = torch.randint(0, 10, (batch,))
    results = []
    for scores in (network(x), sixteen(network, x)):
        loss = nn.functional.cross_entropy(scores, y)
        results.append((scores, *torch.autograd.grad(loss, (x, *network.parameters()))))
    tolerance = 1e-6 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(*results, atol=tolerance, rtol=4 * tolerance)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"grad_factor": 1.7},
        {"gates": ("a", "xor", "nand")},
        {"tnorm": "minimum"},
        {"init": "residual", "wiring": "unique"},
    ],
    ids=str,
)
def test_network_is_the_sequence_of_its_parts(options, mode):
    network = LogicNetwork(12, [30, 40, 20], 4, tau=2.0, beta=-1.0, seed=3, **options).double()
    getattr(network, mode)()
    plain = nn.Sequential(*network.layers, network.head)
    x = torch.rand(2, 9, 12, dtype=torch.float64) if mode == "train" else torch.randint(0, 2, (2, 9, 12)).double()
    x.requires_grad_()
    results = []
    for scores in (network(x), plain(x)):
        grads = torch.autograd.grad(scores.sin().sum(), (x, *network.parameters()), allow_unused=True)
        results.append((scores, *(g for g in grads if g is not None)))
    torch.testing.assert_close(*results)


@pytest.mark.native
@needs_native
@pytest.mark.parametrize("storage", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("groups", [0, 5])
@pytest.mark.parametrize(("sizes", "batch"), [([40], 1), ([40], 300), ([60, 50, 40], 37), ([33, 20], 64), ([5], 0)])
def test_kernels_are_the_reference(storage, groups, sizes, batch, monkeypatch):
    wide = torch.promote_types(storage, torch.float32)
    wires = [torch.randint(0, below, (2, size)) for below, size in zip([23, *sizes], sizes, strict=False)]
    rows = torch.rand(23, batch).to(storage).requires_grad_()
    c = torch.rand(sum(sizes), 4, dtype=wide).sub(0.5).requires_grad_()
    factors = [1.5, 0.5, 2.0][: len(sizes)]

    def run():
        result = stack._native_stack(rows, c, wires, factors, groups)
        weights = torch.linspace(-1, 1, result.numel(), dtype=wide).view_as(result)
        return (result, *torch.autograd.grad(result, (rows, c), weights), *torch.autograd.grad(run_c(), c))

    def run_c():
        return stack._native_stack(rows.detach(), c, wires, factors, groups).sum()

    ours, reference = both(run, monkeypatch)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2}[storage]
    torch.testing.assert_close(ours, reference, atol=tolerance, rtol=tolerance)


@pytest.mark.native
@needs_native
@pytest.mark.parametrize("n", [1, 3, 8, 37])
@pytest.mark.parametrize("scale", [1.0, 200.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_coefficients_are_the_softmax_of_the_gates(n, scale, dtype, monkeypatch):
    weights = [(scale * torch.randn(m, 16, dtype=dtype)).requires_grad_() for m in (n, 5)]

    def run():
        c = stack.softmax_coefficients(weights)
        return (c, *torch.autograd.grad(c.sin().sum(), weights))

    ours, reference = both(run, monkeypatch)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(ours, reference, atol=tolerance, rtol=tolerance)
    assert stack.softmax_coefficients([weights[0].detach().fill_(torch.nan)]).isnan().all()


@pytest.mark.native
@needs_native
def test_threads_change_nothing_that_matters():
    network = LogicNetwork(50, [300, 300, 200], 10, tau=3.0, seed=0)
    x, before = torch.rand(333, 50), torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 2, 5):
            torch.set_num_threads(threads)
            scores = network(x)
            results.append((scores, *torch.autograd.grad(scores.square().mean(), network.parameters())))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], atol=1e-5, rtol=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(results[1], results[2], strict=True))


@pytest.mark.native
@needs_native
def test_no_example_sees_another():
    network = LogicNetwork(20, [50, 50], 2, seed=0)
    x = torch.rand(45, 20)
    clean = network(x)
    x[3] = torch.nan
    x[44] = torch.inf
    scores = network(x)
    others = [i for i in range(45) if i not in (3, 44)]
    assert torch.equal(scores[others], clean[others])
    assert scores[3].isnan().all()
    gradient = torch.autograd.grad(scores[others].sum(), network.layers[0].weight)[0]
    assert not gradient.isinf().any()


def test_wires_that_lead_nowhere_are_refused():
    for wrong in (-1, 8, 2**40):
        layer = LogicLayer(8, 4, seed=0)
        layer.wires[1, 2] = wrong
        with pytest.raises(IndexError):
            layer(torch.rand(3, 8))


def test_second_derivatives_in_the_weights():
    network = LogicNetwork(5, [6, 4], 2, seed=0).double()
    names = [name for name, _ in network.named_parameters()]
    x = torch.rand(3, 5, dtype=torch.float64)

    def scores(*weights):
        return torch.func.functional_call(network, dict(zip(names, weights, strict=True)), (x,)).sin()

    weights = tuple(weight.detach().clone().requires_grad_() for weight in network.parameters())
    assert torch.autograd.gradcheck(scores, weights)
    assert torch.autograd.gradgradcheck(scores, weights)


def test_function_transforms():
    network = LogicNetwork(5, [6, 4], 2, seed=0).double()
    x = torch.rand(3, 5, dtype=torch.float64)
    expected = torch.autograd.functional.jacobian(network, x)
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(jacobian(network)(x), expected)
    torch.testing.assert_close(torch.func.vmap(network)(x), network(x))
    parameters = dict(network.named_parameters())

    def loss(weights, row):
        return torch.func.functional_call(network, weights, (row,)).square().sum()

    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)
    for i, row in enumerate(x):
        network.zero_grad()
        network(row).square().sum().backward()
        for name, weight in network.named_parameters():
            torch.testing.assert_close(each[name][i], weight.grad)


def test_compiled_training():
    torch._dynamo.reset()
    network = LogicNetwork(8, [12, 10], 2, tau=2.0, seed=0)
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    x, y = torch.rand(20, 8), torch.randint(0, 2, (20,))
    results = []
    for model in (network, compiled):
        network.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        results.append((loss, *(weight.grad for weight in network.parameters())))
    torch.testing.assert_close(*results)


def test_bfloat16_storage_is_close_and_trains_in_single_precision():
    network = LogicNetwork(40, [500, 500], 10, tau=5.0, seed=0)
    x = torch.randint(0, 2, (64, 40)).float()
    exact, rounded = network(x), network(x.bfloat16())
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, exact, atol=2e-2, rtol=0)
    assert not torch.equal(rounded, exact)
    gradients = [
        torch.autograd.grad(scores.square().mean(), network.layers[0].weight)[0] for scores in (exact, rounded)
    ]
    torch.testing.assert_close(gradients[1], gradients[0], atol=3e-2 * gradients[0].abs().max().item(), rtol=0)
    network.eval()
    assert torch.equal(network(x.bfloat16()), network(x))


def test_layers_in_different_modes_are_taken_one_by_one():
    network = LogicNetwork(6, [8, 8], 2, seed=0)
    network.layers[0].eval()
    x = torch.randint(0, 2, (5, 6)).float()
    torch.testing.assert_close(network(x), nn.Sequential(*network.layers, network.head)(x))


def test_layers_have_seeds_of_their_own():
    network = LogicNetwork(10, [10, 10], 2, seed=7)
    assert [layer.seed for layer in network.layers] == [7, 7 + 2**32]
    assert not torch.equal(network.layers[0].wires, network.layers[1].wires)
    torch.manual_seed(1)
    drawn = LogicNetwork(10, [10], 2)
    torch.manual_seed(1)
    assert LogicNetwork(10, [10], 2).layers[0].seed == drawn.layers[0].seed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widths": []}, "widths must name at least one layer"),
        ({"widths": [9]}, "k = 2 must divide the number of inputs, got 9"),
        ({"widths": [8], "seed": 2**32}, r"seed must be in \[0, 2\^32\)"),
    ],
)
def test_impossible_networks_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LogicNetwork(4, k=2, **options)


def test_network_learns_what_its_bits_say():
    encoding = Threshold([0.25, 0.5, 0.75]).fit(torch.zeros(1, 4))
    x = torch.rand(600, 4)
    y = ((x[:, 0] >= 0.5) ^ (x[:, 1] >= 0.25)).long()
    network = LogicNetwork(12, [60, 60, 60], 2, tau=4.0, encoding=encoding, seed=0)
    optimizer = torch.optim.Adam(network.parameters(), 0.05)
    losses = [train_epoch(network, optimizer, nn.functional.cross_entropy, x, y, batch_size=50) for _ in range(40)]
    assert losses[-1] < 0.2 * losses[0]
    assert network.training
    fresh = torch.rand(500, 4)
    scores = evaluate(network, fresh, batch_size=33)
    assert network.training
    wanted = ((fresh[:, 0] >= 0.5) ^ (fresh[:, 1] >= 0.25)).long()
    assert (scores.argmax(-1) == wanted).double().mean() > 0.98
    assert isinstance(network.head, GroupSum)
