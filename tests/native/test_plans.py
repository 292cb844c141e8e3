"""Plans of networks: owned by who uses them, bounded in memory, found again by text in any process."""

import gc
import threading
import weakref

import cold
import pytest
import torch

import softly
from softly import native
from softly.sorting import network_operators, networks

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(not native.available(), reason="the compiled kernels aren't there"),
]


def test_keys_are_texts_that_make_the_network_again():
    named, selection = networks.get("bitonic", 11), softly.selection.networks.get("splitter", n=16, k=3)
    own = networks.Network(3, [[(0, 1)], [], [(1, 2)], [(0, 1)]], name="mine")
    assert (named.key, selection.key) == ("bitonic 11", "splitter 16 3")
    for network in (named, selection, own, networks.Network(1, [])):
        again = networks.lookup(network.key)
        assert (again.n, again.layers, again.outputs) == (network.n, network.layers, network.outputs)
    for bad in (
        "",
        "bitonic",
        "bitonic x",
        "quick 3",
        "splitter 3 4",
        "custom 2 1,0 0-5",
        "custom 2 0,1 0-1",
        "a b c d",
    ):
        with pytest.raises(ValueError, match="no network has the key"):
            networks.lookup(bad)


def test_plans_are_dropped_but_not_under_a_running_kernel():
    plan = weakref.ref(network_operators._plan("bitonic 900"))
    held = plan()
    for n in range(901, 960):  # more than is kept
        network_operators._plan(f"bitonic {n}")
    gc.collect()
    assert plan() is held
    del held
    gc.collect()
    assert plan() is None


def crowd() -> None:
    torch.set_num_threads(1)
    x, stop = torch.randn(20000, 512), threading.Event()
    expected = softly.sort(x)

    def cycle() -> None:
        n = 700
        while not stop.is_set():
            softly.permutation(torch.randn(1, n))
            n = 700 + (n - 699) % 60

    other = threading.Thread(target=cycle)
    other.start()
    try:
        for _ in range(8):
            assert torch.equal(softly.sort(x), expected)
    finally:
        stop.set()
        other.join()


def test_two_threads_with_more_plans_than_are_kept():
    assert cold.run(crowd) is None


def test_operators_refuse_what_their_kernels_must_not_see():
    x = torch.randn(3, 5, dtype=torch.float64)
    rows = torch.ops.softly.network_rows
    ranks = torch.arange(5.0, 0, -1, dtype=torch.float64).unsqueeze(0)
    weights = torch.stack((ranks, ranks), -1)[..., 0]  # not contiguous
    expected = softly.rank(x, steepness=3.0)
    torch.testing.assert_close(rows(x, None, "bitonic 5", 8, -1.0, 3.0, 5, weights)[0].squeeze(-2), expected)
    with pytest.raises(ValueError, match=r"weights must be torch.float64 of shape \(m, 5\), got torch.float32"):
        rows(x, None, "bitonic 5", 8, -1.0, 3.0, 5, weights.float())
    with pytest.raises(ValueError, match="the network has 8 wires, got shape"):
        torch.ops.softly.network_values(x, None, "bitonic 8", 8, -1.0, 3.0)
    with pytest.raises(ValueError, match="k must be in"):
        rows(x, None, "splitter 5 2", 8, -1.0, 3.0, 3, None)
    with pytest.raises(ValueError, match="kernels know the numbers 0 to 10, got 99"):
        torch.ops.softly.network_values(x, None, "bitonic 5", 99, -1.0, 3.0)
    with pytest.raises(ValueError, match="steepness must be positive"):
        torch.ops.softly.network_values(x, None, "bitonic 5", 8, -1.0, -3.0)
