import itertools
import math
import random
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from softly.sorting import networks
from softly.sorting.networks import Network

ANY_SIZE = [name for name in networks.names() if name != "optimal"]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", networks.names())
@pytest.mark.parametrize("n", range(1, 17))
def test_sorts_every_zero_one_pattern(name, n):
    assert networks.get(name, n).sorts()


@pytest.mark.parametrize("name", ANY_SIZE)
@pytest.mark.parametrize("n", [17, 31, 33, 48, 100, 129, 257])
def test_sorts_random_patterns(name, n):
    assert networks.get(name, n).sorts()


@pytest.mark.parametrize("name", networks.names())
@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_sorts_every_permutation(name, n):
    network = networks.get(name, n)
    for values in itertools.permutations(range(n)):
        assert network.apply(values) == list(range(n))


@pytest.mark.parametrize("name", ANY_SIZE)
def test_sorts_values_with_ties(name):
    generator = random.Random(0)
    values = [generator.randrange(20) for _ in range(77)]
    assert networks.get(name, 77).apply(values) == sorted(values)


@pytest.mark.parametrize("n", [16, 40])
@pytest.mark.parametrize("name", ["odd_even", "odd_even_merge", "pairwise", "bitonic"])
def test_sorts_notices_a_missing_comparator(name, n):
    network = networks.get(name, n)
    # Every comparator of the last layer is needed.
    for missing in range(len(network.layers[-1])):
        last = network.layers[-1]
        broken = Network(n, (*network.layers[:-1], last[:missing] + last[missing + 1 :]))
        assert not broken.sorts()


@pytest.mark.parametrize("power", range(8))
def test_depth_and_size_at_powers_of_two(power):
    n = 2**power
    layers = power * (power + 1) // 2
    bitonic = networks.get("bitonic", n)
    assert (bitonic.depth, bitonic.size) == (layers, layers * n // 2)
    batcher = n * power * (power - 1) // 4 + n - 1
    for name in ("odd_even_merge", "pairwise"):
        network = networks.get(name, n)
        assert (network.depth, network.size) == (layers, batcher)


@pytest.mark.parametrize("n", range(1, 20))
def test_odd_even_has_n_layers_of_neighbours(n):
    network = networks.get("odd_even", n)
    assert network.depth == n
    assert network.size == n * (n - 1) // 2
    assert all(j == i + 1 and i % 2 == layer % 2 for layer, pairs in enumerate(network.layers) for i, j in pairs)


def test_optimal_has_the_proven_depths():
    # Knuth, The Art of Computer Programming, vol. 3, 5.3.4, table of T(n), with Bundala and Závodný (2014).
    depths = [0, 1, 3, 3, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 9, 9]
    assert [networks.get("optimal", n).depth for n in range(1, 17)] == depths


@pytest.mark.parametrize("name", ["odd_even", "odd_even_merge", "pairwise", "optimal"])
def test_standard_form_puts_the_smaller_value_on_the_lower_wire(name):
    assert all(i < j for layer in networks.get(name, 13).layers for i, j in layer)


@pytest.mark.parametrize("name", ["bitonic", "odd_even"])
@pytest.mark.parametrize("n", [2, 3, 5, 8, 11, 16, 23, 33])
def test_comparators_are_those_of_diffsort(name, n):
    peer = pytest.importorskip("diffsort.networks")
    network = networks.get(name, n)
    theirs = getattr(peer, f"{name}_network")(n)
    assert len(theirs) == network.depth
    for layer, (first, second, combine_min, combine_max) in zip(network.layers, theirs, strict=True):
        pairs = set()
        for position in range(len(first)):
            wires = {int(first[position].argmax()), int(second[position].argmax())}
            if len(wires) == 2:
                i, j = int(combine_min[:, position].argmax()), int(combine_max[:, position].argmax())
                assert {i, j} == wires
                pairs.add((i, j))
        assert pairs == set(layer)


def test_flat_wires_and_offsets():
    network = networks.get("bitonic", 11)
    wires, offsets = network.wires, network.offsets
    assert wires.itemsize == offsets.itemsize == 4
    assert len(wires) == 2 * network.size
    assert len(offsets) == network.depth + 1
    for layer, pairs in enumerate(network.layers):
        flat = wires[2 * offsets[layer] : 2 * offsets[layer + 1]]
        assert tuple(zip(flat[::2], flat[1::2], strict=True)) == pairs
    assert network.wires is wires
    assert len(networks.get("bitonic", 1).wires) == 0


def test_get_caches_and_networks_are_values():
    network = networks.get("pairwise", 9)
    assert networks.get("pairwise", 9) is network
    copy = Network(9, network.layers, name="pairwise")
    assert copy == network
    assert hash(copy) == hash(network)
    assert copy != Network(9, network.layers[:-1], name="pairwise")
    assert "pairwise" in repr(network)
    with pytest.raises(AttributeError):
        network.n = 3


def test_bad_arguments_are_explained():
    with pytest.raises(ValueError, match=r"softly\.sorting\.networks\.get: n must be >= 1, got 0\."):
        networks.get("bitonic", 0)
    with pytest.raises(TypeError, match=r"n must be an integer, got 2\.5"):
        networks.get("bitonic", 2.5)
    with pytest.raises(ValueError, match=r"one of 'odd_even', 'bitonic', .*, got 'quick'\."):
        networks.get("quick", 4)
    with pytest.raises(ValueError, match=r"'optimal' networks are known for n = 1 to 16, got 17"):
        networks.get("optimal", 17)
    with pytest.raises(ValueError, match=r"layer 1 must use a wire at most once"):
        Network(3, (((0, 1),), ((0, 1), (1, 2))))
    with pytest.raises(ValueError, match=r"layer 0 must use wires in \[0, 2\], got 0 to 3"):
        Network(3, (((0, 3),),))
    with pytest.raises(ValueError, match=r"n must be >= 1, got 0"):
        Network(0, ())
    with pytest.raises(ValueError, match=r"apply: values must have length 4, got 3"):
        networks.get("bitonic", 4).apply([1, 2, 3])
    with pytest.raises(ValueError, match=r"patterns must be >= 1, got 0"):
        networks.get("bitonic", 32).sorts(patterns=0)
    with pytest.raises(ValueError, match=r"draw: keep needs values"):
        networks.get("bitonic", 4).draw(keep=lambda difference: 0.5)


def _segments(svg):
    """Per comparator, where it is drawn: x, and the y of its two ends."""
    lines = [group.find(f"{SVG}line") for group in ElementTree.fromstring(svg).iter(f"{SVG}g")]
    return [(float(line.get("x1")), float(line.get("y1")), float(line.get("y2"))) for line in lines]


@pytest.mark.parametrize("name", networks.names())
@pytest.mark.parametrize("n", [1, 2, 7, 12])
def test_draw_shows_every_wire_and_comparator_without_overlap(name, n):
    network = networks.get(name, n)
    svg = network.draw()
    root = ElementTree.fromstring(svg)
    assert len(root.findall(f"{SVG}line")) == n
    segments = _segments(svg)
    assert len(segments) == network.size
    for (x1, *ends1), (x2, *ends2) in itertools.combinations(segments, 2):
        assert x1 != x2 or max(ends1) < min(ends2) or max(ends2) < min(ends1)
    assert "prefers-color-scheme: dark" in svg


def test_draw_colours_by_swap_weight():
    network = networks.get("odd_even", 2)
    orders = {order: network.draw(order, keep=lambda d: float(d > 0)) for order in [(1.0, 2.0), (2.0, 1.0)]}
    strokes = {}
    for order, svg in orders.items():
        group = next(ElementTree.fromstring(svg).iter(f"{SVG}g"))
        strokes[order] = group.get("stroke")
        texts = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
        assert texts[:4] == [f"{order[0]:g}", "1", f"{order[1]:g}", "2"]
    assert len(set(strokes.values())) == 2


def test_draw_defaults_to_the_logistic_swap():
    svg = networks.get("odd_even", 2).draw([3.0, 1.0], title="a < b")
    low = 3.0 - 2.0 / (1.0 + math.exp(-2.0))
    assert f">{low:.3g}</text>" in svg
    assert "<title>a &lt; b</title>" in svg
    ElementTree.fromstring(networks.get("odd_even", 2).draw([1e4, -1e4]))
    ElementTree.fromstring(networks.get("odd_even", 2).draw([math.nan, 1.0]))


def test_needs_no_torch():
    # The package without its __init__.py, which imports everything.
    code = (
        "import importlib, sys, types; sys.modules['torch'] = None;"
        "package = types.ModuleType('softly'); package.__path__ = [sys.argv[1]]; sys.modules['softly'] = package;"
        "sorting = types.ModuleType('softly.sorting'); sorting.__path__ = [sys.argv[1] + '/sorting'];"
        "sys.modules['softly.sorting'] = sorting;"
        "module = importlib.import_module('softly.sorting.networks'); assert module.get('bitonic', 8).sorts()"
    )
    subprocess.run([sys.executable, "-c", code, str(Path(networks.__file__).parents[1])], check=True)
