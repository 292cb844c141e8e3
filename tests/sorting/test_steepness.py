"""The dial: numbers, tensors and parameters, checked, saved, moved and compiled."""

import copy

import pytest
import torch
from torch._dynamo.testing import CompileCounter

import softly

SORTERS = {
    "network": softly.SortingNetwork,
    "NeuralSort": softly.NeuralSort,
    "SoftSort": softly.SoftSort,
    "SinkhornSort": softly.SinkhornSort,
    "FastSort": softly.FastSort,
}
MODULES = {
    **SORTERS,
    "TopKNetwork": softly.TopKNetwork,
    "TopKGate": lambda **options: softly.selection.TopKGate(2, **options),
    "SmoothTopKLoss": lambda **options: softly.selection.SmoothTopKLoss(2, **options),
}
modules = pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
sorters = pytest.mark.parametrize("make", SORTERS.values(), ids=SORTERS)


@modules
def test_numbers_buffers_and_parameters(make):
    number, tensor = make(steepness=3.0), make(steepness=torch.tensor(3.0))
    learned = make(steepness=torch.nn.Parameter(torch.tensor(3.0)))
    assert number.steepness == 3.0
    assert isinstance(number.steepness, float)
    assert "steepness" not in number.state_dict()
    assert list(dict(tensor.named_buffers())) == ["steepness"]
    assert list(dict(learned.named_parameters())) == ["steepness"]
    for module in (tensor, learned):
        assert module.state_dict()["steepness"] == 3.0
        assert module.double().steepness.dtype == torch.float64
        assert copy.deepcopy(module).steepness == 3.0
    tensor.steepness = 5.0
    assert tensor.steepness == 5.0
    assert not tensor.state_dict()
    learned.load_state_dict({"steepness": torch.tensor(7.0)})
    assert learned.steepness == 7.0


@modules
def test_states_from_before_it_was_a_buffer_load(make):
    module = make(steepness=torch.tensor(3.0))
    module.load_state_dict({})
    assert module.steepness == 3.0


@modules
@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan")])
def test_bad_values_are_refused(make, bad):
    for value in (bad, torch.tensor(bad), torch.nn.Parameter(torch.tensor(bad))):
        with pytest.raises(ValueError, match="steepness must be positive and finite"):
            make(steepness=value)
        module = make(steepness=1.0)
        with pytest.raises(ValueError, match="steepness must be positive and finite"):
            module.steepness = value


@sorters
def test_what_is_learned_is_checked_when_it_is_used(make):
    sorter = make(steepness=torch.nn.Parameter(torch.tensor(1.0)))
    with torch.no_grad():
        sorter.steepness.sub_(2.0)
    with pytest.raises(ValueError, match="steepness must be positive and finite, got a tensor with -1"):
        sorter.sort(torch.tensor([2.0, 1.0]))
    # Where it can't be read, the result can't be taken for a right one.
    assert torch.compile(sorter, backend="eager")(torch.tensor([2.0, 1.0])).isnan().all()


@sorters
def test_one_for_each_list(make):
    x = torch.randn(4, 5, dtype=torch.float64)
    each = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    together = make(steepness=each.unsqueeze(-1)).sort(x)
    for row, steepness, result in zip(x, each.tolist(), together, strict=True):
        torch.testing.assert_close(result, make(steepness=steepness).sort(row))
    mapped = torch.func.vmap(lambda row, s: make(steepness=s).sort(row))(x, each)
    torch.testing.assert_close(mapped, together)
    with pytest.raises(ValueError, match=r"one for each list, of shape \(4, 1\), got \(4,\)"):
        make(steepness=each).sort(torch.randn(4, 4))


@sorters
def test_annealing_compiles_once(make):
    torch._dynamo.reset()
    counter, sorter, x = CompileCounter(), make(steepness=1.0), torch.randn(3, 6)
    compiled = torch.compile(sorter, backend=counter, fullgraph=True)
    for step in range(12):
        sorter.steepness = 1.0 + step
        torch.testing.assert_close(compiled(x), sorter(x), atol=1e-5, rtol=1e-5)
    assert counter.frame_count == 1


def test_annealing_a_function_compiles_twice_at_most():
    torch._dynamo.reset()
    counter, x = CompileCounter(), torch.randn(3, 6)
    compiled = torch.compile(lambda y, s: softly.sort(y, steepness=s), backend=counter, fullgraph=True)
    for step in range(12):
        torch.testing.assert_close(compiled(x, 1.0 + step), softly.sort(x, steepness=1.0 + step))
    assert counter.frame_count <= 2


@sorters
def test_gradients_reach_a_learned_steepness(make):
    x = torch.randn(3, 5, dtype=torch.float64)

    def sorted_at(steepness):
        return make(steepness=steepness).sort(x)

    assert torch.autograd.gradcheck(sorted_at, torch.tensor(0.7, dtype=torch.float64, requires_grad=True))
