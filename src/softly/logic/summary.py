"""What a circuit consists of, as a table and as the chapter's picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from softly.logic import gates
from softly.logic.netlist import XOR, Netlist

__all__ = ["Summary"]


@dataclass(frozen=True)
class Summary:
    """The gates of a circuit.

    Attributes:
        histogram: (layers, 16) How many gates of every kind the layers have.
        num_inputs, num_groups: Bits in, groups of outputs.
        gates_after: Gates that are left after simplification, by kind.
        depth_after: Their depth.

    Example:
        >>> network = softly.logic.LogicNetwork(8, [20], 2, seed=0)
        >>> summary = softly.logic.discretize(network).summary()
        >>> summary.gates_before, summary.histogram.sum(1)
        (20, array([20]))
    """

    histogram: np.ndarray
    num_inputs: int
    num_groups: int
    ands_after: int
    xors_after: int
    depth_after: int

    @classmethod
    def of(cls, layers: Sequence[np.ndarray], netlist: Netlist, num_inputs: int, num_groups: int) -> Summary:
        """Count."""
        xors = int((netlist.kinds == XOR).sum())
        return cls(
            np.stack([np.bincount(layer, minlength=16) for layer in layers]),
            num_inputs,
            num_groups,
            netlist.num_gates - xors,
            xors,
            netlist.depth,
        )

    @property
    def gates_before(self) -> int:
        """Gates of the network as it was trained."""
        return int(self.histogram.sum())

    @property
    def gates_after(self) -> int:
        """Gates that are left after simplification."""
        return self.ands_after + self.xors_after

    def __str__(self) -> str:
        widths = [max(6, len(f"{count:,}") + 1) for count in self.histogram.sum(1)]
        head = "".join(f"{number + 1:>{width}}" for number, width in enumerate(widths))
        lines = [f"{self.num_inputs:,} bits in, {self.num_groups:,} groups out", "", f"{'layer':<16}{head}"]
        for name, row in zip(gates.NAMES, self.histogram.T, strict=True):
            lines.append(
                f"{name:<16}" + "".join(f"{count:>{width},}" for count, width in zip(row, widths, strict=True))
            )
        lines += [
            "",
            f"{self.gates_before:,} gates of depth {len(self.histogram)} became {self.gates_after:,} "
            f"({self.ands_after:,} and, {self.xors_after:,} xor) of depth {self.depth_after}.",
        ]
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """The shares of the gates in every layer, drawn with matplotlib; the axes."""
        if ax is None:
            from matplotlib import pyplot as plt

            ax = plt.subplots(figsize=(7, 0.6 + 0.35 * len(self.histogram)), layout="constrained")[1]
        shares = self.histogram / self.histogram.sum(1, keepdims=True)
        image = ax.imshow(shares, aspect="auto", cmap="viridis", vmin=0)
        ax.set_xticks(range(16), [name.replace("_", " ") for name in gates.NAMES], rotation=60, ha="right")
        ax.set_yticks(range(len(shares)), [f"layer {number + 1}" for number in range(len(shares))])
        ax.figure.colorbar(image, ax=ax, label="share")
        return ax
