"""Models of any form against their circuits: on all bits, through files, and what is no logic is named."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from softly.logic import Circuit, GroupSum, LogicLayer, LogicNetwork, Logit, OneHot, Thermometer, Threshold, discretize


def all_bits(n):
    return torch.tensor(list(itertools.product((0.0, 1.0), repeat=n)))


class Skip(nn.Module):
    """The input is seen again by the last layer, beside the first and what lies between."""

    def __init__(self):
        super().__init__()
        self.first, self.second = LogicLayer(6, 12, seed=0), LogicLayer(12, 10, seed=1)
        self.third, self.head = LogicLayer(28, 12, seed=2), GroupSum(3, tau=2.0)

    def forward(self, x):
        first = self.first(x)
        return self.head(self.third(torch.cat((x, first, self.second(first)), -1)))


class Patches(nn.Module):
    """The same gates at four places of an image."""

    def __init__(self):
        super().__init__()
        self.local, self.last, self.head = LogicLayer(4, 5, seed=0), LogicLayer(20, 8, seed=1), GroupSum(2)

    def forward(self, x):
        x = x.view(x.size(0), 2, 2, 2, 2).permute(0, 1, 3, 2, 4).reshape(x.shape[0], 4, -1)
        return self.head(self.last(self.local(x).flatten(1)))


class Indexed(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("order", torch.tensor([3, 1, 0, 5]))
        self.layer = LogicLayer(7, 6, seed=0)

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        return self.layer(torch.cat([x[:, self.order], a[:, :2], b[:, -1:]], 1))


class Casting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.head = LogicLayer(6, 8, seed=0), GroupSum(4)

    def forward(self, x):
        x = nn.functional.dropout(x.float(), 0.3, training=self.training)
        return self.head(self.layer(x).to(torch.float32).contiguous())


class Joined(nn.Module):
    """Groups of two heads side by side, one of them straight from the input."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = LogicLayer(6, 8, seed=0), LogicLayer(6, 4, seed=1), GroupSum(2, tau=3.0)
        self.other = GroupSum(1, tau=3.0)

    def forward(self, x):
        return torch.cat((self.head(self.a(x)), self.other(self.b(x)), self.other(x[:, :4])), dim=1)


def straight(*parts):
    return nn.Sequential(nn.Flatten(), LogicLayer(6, 12, seed=0), *parts, LogicLayer(12, 9, seed=1), GroupSum(3))


MODELS = {
    "skip": (Skip, (6,)),
    "patches": (Patches, (1, 4, 4)),
    "indexed": (Indexed, (6,)),
    "casting": (Casting, (6,)),
    "joined": (Joined, (6,)),
    "dropout": (lambda: straight(nn.Dropout(0.5)), (6,)),
    "flattened": (lambda: straight(nn.Identity()), (2, 3)),
    "unflattened": (lambda: straight(nn.Unflatten(1, (3, 4)), nn.Flatten()), (6,)),
    "nested": (lambda: nn.Sequential(straight(nn.Sequential()), Logit(3)), (6,)),
}


@pytest.mark.parametrize("name", MODELS)
def test_circuits_equal_their_models(name, tmp_path):
    torch.manual_seed(0)
    make, shape = MODELS[name]
    model = make()
    size = int(np.prod(shape))
    rows = all_bits(size) if size < 10 else torch.randint(0, 2, (500, size)).float()
    model.train()
    circuit = discretize(model, shape=shape)
    assert all(module.training for module in model.modules()), "modes are left as they were"
    with torch.no_grad():
        expected = model.eval()(rows.reshape(-1, *shape))
    assert torch.equal(circuit(rows), expected)
    circuit.save(tmp_path / "a")
    assert torch.equal(Circuit.load(tmp_path / "a")(rows), expected)
    names: dict = {}
    exec(circuit.to_numpy(), names)
    np.testing.assert_array_equal(names["counts"](rows.numpy()), circuit.counts(rows.numpy()))


def test_rows_need_no_shape():
    for name, (make, shape) in MODELS.items():
        if len(shape) == 1 and name not in ("indexed", "joined"):
            assert discretize(make()).num_columns == 6


def test_straight_models_keep_the_seeds_of_their_wiring():
    circuit = discretize(straight(nn.Dropout()))
    assert [layer.wiring for layer in circuit.layers] == [("random", 0), ("random", 1)]
    assert [layer.source for layer in circuit.layers] == [None, None]
    assert circuit.outputs is None
    assert [layer.wiring for layer in discretize(Skip()).layers] == [("random", i) for i in range(3)]


class Encoded(nn.Module):
    """Two encodings of parts of a table, one of which is seen twice."""

    def __init__(self, table):
        super().__init__()
        self.numbers, self.kinds = Thermometer(3).fit(table[:, :2]), OneHot().fit(table[:, 2:])
        bits = 2 * self.numbers.num_bits + self.kinds.num_bits
        self.network = LogicNetwork(bits, [20, 20], 2, tau=3.0, seed=0)

    def forward(self, x):
        numbers = self.numbers(x[:, :2])
        return self.network(torch.cat((numbers, self.kinds(x[:, 2:]), self.numbers(x[:, :2])), 1))


def test_encodings_anywhere():
    table = torch.cat((torch.randn(40, 2), torch.randint(0, 3, (40, 1))), 1).double()
    model = Encoded(table)
    circuit = discretize(model, shape=(3,))
    assert torch.equal(circuit(table), model.eval()(table))
    assert len(circuit.inputs.columns) <= 9
    with pytest.raises(ValueError, match=r"Thermometer sees rows of 2, .* shape= says"):
        discretize(nn.Sequential(model.numbers, LogicLayer(6, 6)), shape=(3,))


class Heads(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.form, self.body = form, LogicLayer(6, 12, seed=0)
        self.classes = nn.Sequential(LogicLayer(12, 9, seed=1), GroupSum(3))
        self.number = nn.Sequential(LogicLayer(12, 10, seed=2), GroupSum(1, tau=10.0), Logit(10))

    def forward(self, x):
        x = self.body(x)
        return self.form(self.classes(x), self.number(x))


def test_several_heads_are_several_circuits():
    rows = all_bits(6)
    for form in (lambda *heads: heads, lambda *heads: list(heads), lambda a, b: {"a": a, "b": b}):
        model = Heads(form)
        circuits, expected = discretize(model), model.eval()(rows)
        assert type(circuits) is type(expected)
        pairs = (
            [(circuits[key], expected[key]) for key in expected]
            if isinstance(expected, dict)
            else list(zip(circuits, expected, strict=True))
        )
        assert [circuit.task for circuit, _ in pairs] == ["classes", "numbers"]
        for circuit, scores in pairs:
            assert torch.equal(circuit(rows), scores)


def module_of(function):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head, self.other = LogicLayer(6, 6, seed=0), GroupSum(3), GroupSum(2)
            self.encoding, self.normalize = Threshold(0.5).fit(torch.zeros(1, 6)), nn.BatchNorm1d(6)
            self.unfitted = Thermometer(2)

        def forward(self, x):
            return function(self, x)

    return Model()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda m, x: m.head(m.layer(x) + 1), "add is not logic"),
        (lambda m, x: m.head(m.layer(x) * m.layer(x)), "mul is not logic"),
        (lambda m, x: m.head(torch.sigmoid(m.layer(x))), "sigmoid is not logic"),
        (lambda m, x: m.head(m.layer(x).relu()), "relu is not logic"),
        (lambda m, x: m.head(m.layer(x)).softmax(-1), "softmax is not logic"),
        (lambda m, x: m.head(m.layer(x)).bool(), "bool changes sums of bits"),
        (lambda m, x: m.head(m.layer(x)).half(), "half changes sums of bits"),
        (lambda m, x: m.head(m.layer(x)).to("cpu", torch.int32), "to changes sums of bits"),
        (lambda m, x: m.head(m.layer(x)).to(dtype=torch.bfloat16), "to changes sums of bits"),
        (lambda m, x: m.head(m.layer(x)).type("torch.IntTensor"), "type changes sums of bits"),
        (lambda m, x: m.head(m.layer(x).T), "T is not logic"),
        (lambda m, x: m.head(m.normalize(m.layer(x))), r"can't take BatchNorm1d where it stands \('normalize'\)"),
        (lambda m, x: m.layer(m.head(m.layer(x))), "can't take LogicLayer where it stands"),
        (lambda m, x: m.head(m.layer(m.encoding(m.layer(x)))), "can't take Threshold where it stands"),
        (lambda m, x: m.head(m.layer(m.encoding(x.float()))), "can't take Threshold where it stands"),
        (lambda m, x: m.layer(m.encoding(x)) if x.sum() > 0 else x, "torch.fx can't trace Model"),
        (lambda m, x: m.head(m.layer(x).flip(0)), "the model must not mix or move"),
        (lambda m, x: m.head(m.layer(x.flatten())), "the model must not mix or move"),
        (lambda m, x: m.head(m.layer(x[:1])), "the model must not mix or move"),
        (lambda m, x: torch.cat((m.head(m.layer(x)), m.other(m.layer(x))), 1), "must have one size, tau, beta"),
        (lambda m, x: torch.cat((m.head(m.layer(x)), m.layer(x)), 1), "bits or sums of bits, and not both"),
        (lambda m, x: m.head(torch.cat((m.layer(x), m.layer(m.encoding(x))), 1)), "compared by encodings or be bits"),
        (lambda m, x: m.head(m.layer(x[x])), "getitem by what comes of x is not logic"),
        (lambda m, x: m.head(m.layer(x.gather(1, x))), "gather by what comes of x is not logic"),
        (lambda m, x: nn.functional.dropout(m.layer(x)), "dropout is not logic"),
        (lambda m, x: m.head(m.layer(x)).unsqueeze(1), "got a result of 3 dimensions"),
        (lambda m, x: (m.layer(x), x.size(0)), "gives? bits or sums of them, got what is neither"),
        (lambda m, x: x, "no LogicLayer"),
    ],
)
def test_what_is_no_logic_is_named(function, message):
    with pytest.raises(TypeError, match=f"softly.logic.discretize: .*{message}"):
        discretize(module_of(function))


def test_models_with_two_inputs_are_refused():
    class Two(nn.Module):
        def forward(self, x, y):
            return x

    with pytest.raises(TypeError, match="one input, got 2"):
        discretize(Two())


def test_encodings_must_be_fitted():
    with pytest.raises(ValueError, match="fit the encoding on training data first"):
        discretize(module_of(lambda m, x: m.layer(m.unfitted(x))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outputs": np.array([99])}, r"outputs must be values in \[0, "),
        ({"outputs": np.zeros(0, dtype=int)}, "outputs must be values"),
        ({"outputs": np.arange(5)}, "must divide the 5 outputs"),
    ],
)
def test_values_that_are_not_there(change, message):
    circuit = discretize(Skip())
    with pytest.raises(ValueError, match=message):
        Circuit(circuit.num_inputs, circuit.layers, k=circuit.k, **change)
    with pytest.raises(TypeError, match=r"got outputs\. Other gates make another Circuit"):
        circuit.described(**change)
