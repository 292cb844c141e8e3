"""Circuits from uint8 images to classes, against straight-line C as difflogic makes it; and making them."""

import time
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

import softly
from benchmarks.baselines import logic_inference as baseline
from benchmarks.harness import Case, Function, on_threads
from softly.logic import Circuit
from softly.logic.netlist import Layer

INPUTS, WIDTH, DEPTH, CLASSES = 784, 8000, 6, 10
NON_TRIVIAL = [1, 2, 4, 6, 7, 8, 9, 11, 13, 14]
IMAGES = 1 << 14


def cases() -> Iterator[Case]:
    """With gates of all sixteen kinds, most of which vanish as in a trained network, and with none that vanish."""
    for name, kinds in (("all gates", list(range(16))), ("only non-trivial gates", NON_TRIVIAL)):
        layers = _layers(kinds, [INPUTS, *[WIDTH] * DEPTH])
        started = time.perf_counter()
        circuit = Circuit(INPUTS, layers, k=CLASSES)
        circuit.predict(np.zeros((1, INPUTS), dtype=np.uint8))
        prepared = time.perf_counter() - started
        x = np.random.default_rng(0).integers(0, 2, (IMAGES, INPUTS), dtype=np.uint8)
        predict, seconds = baseline.compile_predict(INPUTS, [(layer.gates, layer.wires) for layer in layers], CLASSES)
        assert (predict(x) == circuit.predict(x)).all()
        ours: Function = lambda c=circuit, x=x: c.predict(x)  # noqa: E731
        gates = sum(len(layer.gates) for layer in layers)
        print(f"  {name}: {circuit}\n    prepared in {prepared:.3f} s; gcc took {seconds:.0f} s")
        yield Case(
            f"{INPUTS} → {DEPTH} × {WIDTH:,}, {name}, {IMAGES:,} images",
            ours,
            {"straight-line C, gcc -O1": lambda p=predict, x=x: p(x)},
            note=lambda s, g=gates: (
                f"{s / IMAGES * 1e9:.0f} ns an image, {g * IMAGES / s / 1e9:.0f} gates a nanosecond"
            ),
        )
        yield Case("the same on two threads", on_threads(2, ours), {"one": on_threads(1, ours)})
    started = time.perf_counter()
    large = Circuit(95_232, _layers(list(range(16)), [95_232, *[1_024_000] * 5]), k=CLASSES)
    large.predict(np.zeros((1, 95_232), dtype=np.uint8))
    print(f"  5.12 million gates: {large}\n    drawn and prepared in {time.perf_counter() - started:.1f} s")


def _layers(kinds: list[int], widths: list[int]) -> list[Layer]:
    generator = np.random.default_rng(0)
    return [
        Layer(generator.choice(kinds, width), softly.logic.wiring.wires("random", below, width, number).numpy())
        for number, (below, width) in enumerate(pairwise(widths))
    ]
