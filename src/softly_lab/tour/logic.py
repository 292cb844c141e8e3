"""The stop at logic gate networks: train gates on digits, then run nothing but gates."""

import time
from collections.abc import Iterator

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import Tensor

import softly
from softly.logic import Circuit, LogicNetwork, Threshold
from softly.logic.netlist import XOR
from softly.logic.training import evaluate, train_epoch
from softly_lab.tour.plots import BLUE, GREY, INK, ORANGE, panels
from softly_lab.tour.stop import Picture, Visit

CODE = """
encoding = softly.logic.Threshold([2.0, 6.0, 10.0, 14.0]).fit(images)    # four bits a pixel
model = softly.logic.LogicNetwork(256, [2000, 2000], 10, tau=20.0, encoding=encoding, seed=0)
optimizer = torch.optim.Adam(model.parameters(), 0.05)
for epoch in range(15):
    softly.logic.training.train_epoch(model, optimizer, cross_entropy, images, labels, batch_size=50)
circuit = softly.logic.discretize(model)                                 # gates and wires, no weights
circuit.predict(unseen)
circuit.to_verilog()
"""

PROSE = """
<p>A network of logic gates has no numbers inside: every neuron is one of the sixteen gates of two bits, and its two
inputs are drawn once. While it learns, a neuron is a mixture of all sixteen, relaxed so that gradients flow; afterwards
it is the gate with the largest weight.</p>
<p>The one below learned digits in {seconds:.1f} s. As a circuit it is right for {accuracy:.1%} of {unseen} unseen ones.
Of its {before:,} gates {after:,} are left when constants, copies and gates that no class needs are gone, and they
classify <b>{rate:.1f} million images a second</b> on one thread, from their bits to their classes.</p>
"""

EPOCHS, TRAINED = 15, 1300


def visit() -> Visit:
    """Train, discretize, and measure."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        started = time.perf_counter()
        model, soft, hard, (images, labels) = train()
        seconds = time.perf_counter() - started
        circuit = softly.logic.discretize(model)
        predictions = circuit.predict(images)
        rate = images_per_second(circuit, images)
    finally:
        torch.set_num_threads(threads)
    summary = circuit.summary()
    prose = PROSE.format(
        seconds=seconds,
        accuracy=float((predictions == labels).float().mean()),
        unseen=len(labels),
        before=summary.gates_before,
        after=summary.gates_after,
        rate=rate / 1e6,
    )
    kinds = Figure(figsize=(9.0, 1.9), layout="constrained")
    summary.plot(kinds.subplots()).grid(visible=False)
    caption = "Which gates it learned. Constants and copies cost nothing: they are gone before the circuit runs."
    return Visit(prose, CODE, (curves(soft, hard), Picture(kinds, caption), drawing(circuit)))


def train() -> tuple[LogicNetwork, list[float], list[float], tuple[Tensor, Tensor]]:
    """The model, its share of unseen digits after every epoch, relaxed and discretized, and these digits."""
    generator = torch.Generator().manual_seed(0)
    data, target = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
    order = torch.randperm(len(data), generator=generator)
    images, labels = data[order].to(torch.uint8), target[order]
    torch.manual_seed(0)
    encoding = Threshold([2.0, 6.0, 10.0, 14.0]).fit(images[:TRAINED])
    model = LogicNetwork(encoding.num_bits, [2000, 2000], 10, tau=20.0, encoding=encoding, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    loss = torch.nn.functional.cross_entropy
    seen, unseen = (images[:TRAINED], labels[:TRAINED]), (images[TRAINED:], labels[TRAINED:])
    soft, hard = [], []
    for _ in range(EPOCHS):
        train_epoch(model, optimizer, loss, *seen, batch_size=50, generator=generator)
        with torch.no_grad():
            soft.append(float((model(unseen[0]).argmax(-1) == unseen[1]).float().mean()))
        hard.append(float((evaluate(model, unseen[0]).argmax(-1) == unseen[1]).float().mean()))
    return model, soft, hard, unseen


def images_per_second(circuit: Circuit, images: Tensor) -> float:
    many = np.tile((images[:, :, None] >= torch.tensor([2, 6, 10, 14])).flatten(1).numpy(), (32, 1))
    bits = Circuit(circuit.num_inputs, circuit.layers, k=circuit.k)  # the same, from bits
    times = []
    for _ in range(5):
        started = time.perf_counter()
        bits.predict(many)
        times.append(time.perf_counter() - started)
    return len(many) / min(times)


def curves(soft: list[float], hard: list[float]) -> Picture:
    figure, axes = panels(1, 1, height=2.5)
    epochs = range(1, EPOCHS + 1)
    axes[0].plot(epochs, hard, color=BLUE, label="the circuit")
    axes[0].plot(epochs, soft, color=GREY, linestyle="--", label="the relaxed network")
    axes[0].set(xlabel="epoch", title="the digit is recognized", xlim=(1, EPOCHS), ylim=(0.5, 1))
    axes[0].legend(loc="lower right")
    return Picture(figure, f"Share of unseen digits, after every epoch on {TRAINED:,} others, one seed.")


def drawing(circuit: Circuit, cones: int = 4) -> Picture:
    """Everything behind a few of the outputs that vote for zero."""
    netlist, group = circuit.netlist, len(circuit.netlist.outputs) // circuit.k
    gates = {node: (kind, a, b) for node, kind, a, b in netlist.gates()}
    # Two levels of gates, all of whose inputs are inputs of the circuit.
    level = dict(zip(gates, netlist.levels.tolist(), strict=True))
    chosen = [literal for literal in netlist.outputs[:group].tolist() if level.get(literal >> 1) == 2][:cones]
    figure = Figure(figsize=(9.0, 2.6), layout="constrained")
    for ax, literal in zip(figure.subplots(1, len(chosen), squeeze=False)[0], chosen, strict=True):
        ax.set(xlim=(-0.75, 2.6), ylim=(-0.6, 3.6), xticks=[], yticks=[])
        ax.grid(visible=False)
        ax.spines[:].set_visible(False)
        height = _draw(ax, circuit, gates, literal, 2, iter(range(8)))[1]
        ax.text(2.5, height, "+1", va="center", ha="left", fontsize=9, color=INK)
    caption = (
        "Four of the two hundred votes for zero. Inputs say “pixel (row, column) is at least …”; ∧ is and, ⊕ is xor, "
        "and a small circle negates."
    )
    return Picture(figure, caption)


def _draw(
    ax: Axes, circuit: Circuit, gates: dict[int, tuple[int, int, int]], literal: int, x: int, rows: Iterator[int]
) -> tuple[float, float]:
    """Draw a literal and what is behind it, right at ``x``; where its wire begins."""
    node, negated = literal >> 1, literal & 1
    if node not in gates:
        y = float(next(rows))
        assert circuit.comparisons is not None
        column, least = circuit.comparisons.columns[node - 1], circuit.comparisons.thresholds[node - 1]
        label = f"({column // 8}, {column % 8}) ≥ {least:g}"
        ax.text(0.0, y, label, va="center", ha="right", fontsize=6.5, color=INK)
        start = 0.05
    else:
        kind, a, b = gates[node]
        ends = [_draw(ax, circuit, gates, part, x - 1, rows) for part in (a, b)]
        y = sum(end[1] for end in ends) / 2
        for end in ends:
            ax.plot([end[0], x - 0.2], [end[1], y], color=GREY, linewidth=1.0, zorder=1)
        ax.scatter([x], [y], s=190, color=ORANGE if kind == XOR else BLUE, zorder=2)
        symbol = "⊕" if kind == XOR else "∧"
        ax.text(x, y, symbol, va="center", ha="center", fontsize=9, color="#ffffff", zorder=3)
        start = x + 0.2
    if negated:
        ax.scatter([start + 0.07], [y], s=22, facecolor="none", edgecolor=GREY, zorder=2)
        start += 0.14
    ax.plot([start, start + 0.12], [y, y], color=GREY, linewidth=1.0, zorder=1)
    return start + 0.12, y
