"""Figures that suit a page which is light or dark."""

import io
import re
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Colours that no picture needs: in the page they become the colours of its text and of its lines.
INK, LINE = "#010203", "#040506"
PAGE_COLOURS = {INK: "currentColor", LINE: "var(--line)"}

# Readable on white and on black alike.
BLUE, ORANGE, GREEN, RED, VIOLET, GREY = "#3b82f6", "#f08c2e", "#22a06b", "#e5484d", "#9b6bf2", "#8b93a1"
CYCLE = (BLUE, ORANGE, GREEN, RED, VIOLET, GREY)

STYLE: Any = {
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": LINE,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "axes.prop_cycle": cycler(color=CYCLE),
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "lines.linewidth": 1.7,
    "lines.solid_capstyle": "round",
}


def panels(
    rows: int, columns: int, *, width: float = 9.0, height: float, share: bool = True
) -> tuple[Figure, list[Axes]]:
    """Small multiples: a figure with ``rows * columns`` axes, in reading order; sizes are in inches.

    The axes have the same limits unless ``share`` is false.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=share, sharey=share, squeeze=False)
    return figure, list(np.ravel(grid))


def svg(figure: Figure | str, name: str) -> str:
    """The figure as an SVG element for the page, in the page's colours, its ids beginning with ``name``."""
    if isinstance(figure, str):
        return figure[figure.index("<svg") :].replace("<svg", '<svg style="max-width: 36rem; margin: auto"', 1)
    buffer = io.StringIO()
    with matplotlib.rc_context({**STYLE, "svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for colour, in_page in PAGE_COLOURS.items():
        text = text.replace(colour, in_page)
    # Two figures on one page mustn't answer to the same id.
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    # A hundredth of a point is finer than any screen, and half the size of what matplotlib writes.
    text = re.sub(r"(\d\.\d\d)\d+", r"\1", text)
    # The page sets the size; the viewBox keeps the proportions.
    return re.sub(r'^(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'^(<svg[^>]*?) height="[^"]*"', r"\1", text))


# A picture by itself has to bring the colours that the tour's page has for its pictures.
COLOURS = """<style>
svg { color: #1c2430; --line: #d5dae1; background: #ffffff; }
@media (prefers-color-scheme: dark) { svg { color: #e4e8ee; --line: #3a424e; background: #1b1f26; } }
</style>"""


def standalone(figure: Figure | str, name: str) -> str:
    """The figure as an SVG file that is readable on a light and on a dark screen."""
    tag, end, rest = svg(figure, name).partition(">")
    return tag + end + COLOURS + rest
