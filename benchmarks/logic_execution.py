"""Circuits from uint8 images to classes, against straight-line C as difflogic makes it; and making them.

The thesis reckons with about 250 gates a cycle and core.
"""

import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

import softly
from benchmarks.baselines import logic_execution as baseline
from benchmarks.harness import Case, Function, OnThreads, duration, repetitions
from softly.logic import Circuit, LogicNetwork, discretize, training
from softly.logic.netlist import Layer
from softly_lab.data import images

INPUTS, WIDTH, DEPTH, CLASSES = 784, 8000, 6, 10
NON_TRIVIAL = [1, 2, 4, 6, 7, 8, 9, 11, 13, 14]
IMAGES = 1 << 14


def cases() -> Iterator[Case]:
    """With gates of all kinds, with none that simplification removes, and trained on MNIST where that is there."""
    pixels = np.random.default_rng(0).integers(0, 2, (IMAGES, INPUTS), dtype=np.uint8)
    yield from _network("all kinds of gates", _layers(list(range(16)), [INPUTS, *[WIDTH] * DEPTH]), pixels)
    yield from _network("only non-trivial gates", _layers(NON_TRIVIAL, [INPUTS, *[WIDTH] * DEPTH]), pixels)
    try:
        (train, labels), (test, _) = images.mnist()
    except FileNotFoundError as error:
        print(f"  no trained network: {error}")
    else:
        x = train.flatten(1) >= 128
        network = LogicNetwork(INPUTS, [WIDTH] * DEPTH, CLASSES, tau=10.0, seed=0)
        optimizer = torch.optim.Adam(network.parameters(), 0.03)
        for _ in range(2):
            training.train_epoch(network, optimizer, torch.nn.functional.cross_entropy, x, labels)
        pixels = np.resize((test.flatten(1) >= 128).numpy().astype(np.uint8), (IMAGES, INPUTS))
        yield from _network("trained on MNIST", list(discretize(network).layers), pixels)
    started = time.perf_counter()
    large = Circuit(95_232, _layers(list(range(16)), [95_232, *[1_024_000] * 5]), k=CLASSES)
    large.predict(np.zeros((1, 95_232), dtype=np.uint8))
    print(f"  5.12 million gates: {large}\n    drawn and prepared in {time.perf_counter() - started:.1f} s")


def _network(name: str, layers: list[Layer], pixels: np.ndarray) -> Iterator[Case]:
    started = time.perf_counter()
    circuit = Circuit(INPUTS, layers, k=CLASSES)
    circuit.predict(pixels[:1])
    prepared = time.perf_counter() - started
    predict, seconds = baseline.compile_predict(INPUTS, [(layer.gates, layer.wires) for layer in layers], CLASSES)
    assert (predict(pixels) == circuit.predict(pixels)).all()
    print(f"  {name}: {circuit}\n    prepared in {prepared:.3f} s; gcc took {seconds:.0f} s")
    ours: Function = lambda: circuit.predict(pixels)  # noqa: E731
    before, after = sum(len(layer.gates) for layer in layers), circuit.netlist.num_gates

    def note(seconds: float) -> str:
        # A gate reads two slots and writes one, of 64 bytes for 512 images.
        moved, bound = after * IMAGES / 512 * 192 / seconds, _bandwidth()
        gates = before * IMAGES / seconds
        return (
            f"{seconds / IMAGES * 1e9:.0f} ns an image, {gates / 1e9:.0f} gates a nanosecond{_in_cycles(gates)}; "
            f"{moved / 1e9:.0f} GB/s of values, where xor of whole arrays in the cache moves {bound / 1e9:.0f}"
        )

    name = f"{INPUTS} → {DEPTH} × {WIDTH:,}, {name}, {IMAGES:,} images"
    yield Case(name, ours, {"straight-line C, gcc -O1": lambda: predict(pixels)}, note=note)
    yield Case("the same on two threads", OnThreads(2, ours), {"one": OnThreads(1, ours)})


def _in_cycles(gates: float) -> str:
    """Gates a second as gates a cycle, where Linux tells the processor's clock."""
    try:
        clock = re.search(r"cpu MHz\s*: ([\d.]+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        clock = None
    return f" and {gates / float(clock[1]) / 1e6:.0f} a cycle" if clock else ""


def _bandwidth() -> float:
    """Bytes a second that numpy's xor of two arrays into a third reads and writes within the second level cache."""
    a, b, c = (np.ones(1 << 14, dtype=np.uint64) for _ in range(3))
    xor: Function = lambda: np.bitwise_xor(a, b, out=c)  # noqa: E731
    count = repetitions(xor, 0.02)
    return 3 * a.nbytes / min(duration(xor, count) for _ in range(5))


def _layers(kinds: list[int], widths: list[int]) -> list[Layer]:
    generator = np.random.default_rng(0)
    return [
        Layer(generator.choice(kinds, width), softly.logic.wiring.wires("random", below, width, number).numpy())
        for number, (below, width) in enumerate(pairwise(widths))
    ]
