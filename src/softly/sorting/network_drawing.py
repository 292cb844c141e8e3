"""Pictures of comparator networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from softly.sorting.network_builders import Layer

_WIRE_GAP = 26  # px between wires
_LANE_GAP = 13  # px between comparators of one layer that would overlap
_LAYER_GAP = 28  # px between layers
_LABEL_WIDTH = 58  # px for a value at either end
_STAY, _TIE, _SWAP = (59, 130, 246), (145, 152, 161), (240, 106, 20)  # legible on white and on black
_STYLE = """
.softly-network line { stroke-width: 2; }
.softly-network .wire { stroke: #9aa4af; stroke-width: 1.2; }
.softly-network .comparator { stroke: #24292f; fill: #24292f; }
.softly-network text { fill: #24292f; font: 12px ui-monospace, Menlo, Consolas, monospace; }
.softly-network .end { text-anchor: end; }
@media (prefers-color-scheme: dark) {
  .softly-network .wire { stroke: #57606a; }
  .softly-network .comparator { stroke: #e6edf3; fill: #e6edf3; }
  .softly-network text { fill: #e6edf3; }
}
"""


def _logistic(difference: float) -> float:
    tail = math.exp(-abs(difference))
    return (1.0 if difference >= 0 else tail) / (1.0 + tail)


def _colour(swap: float) -> str:
    """From blue at 0 (stay) through grey at 1/2 to orange at 1 (swap); grey for NaN."""
    far = 0.0 if math.isnan(swap) else min(1.0, abs(2 * swap - 1))
    end = _SWAP if swap > 0.5 else _STAY
    return "#" + "".join(f"{round(t + far * (e - t)):02x}" for t, e in zip(_TIE, end, strict=True))


def _lanes(layer: Layer) -> list[int]:
    """A lane for every comparator such that those that would overlap are drawn side by side."""
    ends: list[int] = []  # the last wire that is taken in every lane
    lanes = [0] * len(layer)
    for position in sorted(range(len(layer)), key=lambda p: min(layer[p])):
        first, last = min(layer[position]), max(layer[position])
        lane = next((lane for lane, end in enumerate(ends) if end < first), len(ends))
        if lane == len(ends):
            ends.append(last)
        ends[lane] = last
        lanes[position] = lane
    return lanes


def svg(
    n: int,
    layers: Sequence[Layer],
    row: list[float] | None,
    keep: Callable[[float], float] | None,
    heading: str,
) -> str:
    """The picture of a network of ``n`` wires; see `softly.sorting.networks.Network.draw`.

    Args:
        n: Number of wires.
        layers: Of comparators.
        row: The values that go in, or None for the plain network; it becomes what comes out.
        keep: Of a difference, the probability that two values stay where they are; None is logistic.
        heading: For screen readers and tooltips.
    """
    keep = keep or _logistic
    margin = 16 if row is None else _LABEL_WIDTH
    top = 16
    arrows = any(i > j for layer in layers for i, j in layer)
    inputs = None if row is None else list(row)
    marks = []
    x = margin + _LAYER_GAP / 2
    for layer in layers:
        lanes = _lanes(layer)
        for (i, j), lane in zip(layer, lanes, strict=True):
            attributes, note = 'class="comparator"', ""
            if row is not None:
                difference = row[j] - row[i]
                swap = 1.0 - keep(difference)
                row[i], row[j] = row[i] + swap * difference, row[j] - swap * difference
                colour = _colour(swap)
                attributes = f'stroke="{colour}" fill="{colour}"'
                note = f"<title>({i}, {j}): swap {swap:.3f}</title>"
            shape = _comparator(x + lane * _LANE_GAP, top + i * _WIRE_GAP, top + j * _WIRE_GAP, arrows)
            marks.append(f"<g {attributes}>{note}{shape}</g>")
        x += max(lanes, default=0) * _LANE_GAP + _LAYER_GAP
    right = x - _LAYER_GAP / 2
    bottom = top + (n - 1) * _WIRE_GAP

    wires, labels = [], []
    for wire in range(n):
        y = top + wire * _WIRE_GAP
        wires.append(f'<line class="wire" x1="{margin}" y1="{y}" x2="{right:g}" y2="{y}"/>')
        if inputs is not None and row is not None:
            labels.append(f'<text class="end" x="{margin - 6}" y="{y + 4}">{inputs[wire]:.3g}</text>')
            labels.append(f'<text x="{right + 6:g}" y="{y + 4}">{row[wire]:.3g}</text>')
    if row is not None:
        bottom += 34
        labels.append(_legend((margin + right) / 2, bottom))
    width, height = right + margin, bottom + 16
    body = "\n".join([*wires, *marks, *labels])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="softly-network" role="img" width="{width:g}" '
        f'height="{height:g}" viewBox="0 0 {width:g} {height:g}">\n'
        f"<title>{_escape(heading)}</title>\n<style>{_STYLE}</style>\n{body}\n</svg>\n"
    )


def _comparator(x: float, low: float, high: float, arrow: bool) -> str:
    """A line from the wire of the smaller value to that of the larger, where a dot or an arrow head is."""
    down = 1 if high > low else -1
    line = f'<line x1="{x:g}" y1="{low}" x2="{x:g}" y2="{high - (6 * down if arrow else 0)}"/>'
    dot = f'<circle cx="{x:g}" cy="{low}" r="3" stroke="none"/>'
    if arrow:
        head = f'<path d="M{x:g} {high}l-4.5 {-9 * down}h9z" stroke="none"/>'
    else:
        head = f'<circle cx="{x:g}" cy="{high}" r="3" stroke="none"/>'
    return line + dot + head


def _legend(centre: float, y: float) -> str:
    swatches = "".join(
        f'<rect x="{centre - 44 + 8 * k:g}" y="{y - 9:g}" width="8" height="8" fill="{_colour(k / 10)}"/>'
        for k in range(11)
    )
    return (
        f'<text class="end" x="{centre - 52:g}" y="{y:g}">stay</text>{swatches}'
        f'<text x="{centre + 52:g}" y="{y:g}">swap</text>'
    )


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
