"""Draws the charts of the guide from the tables of its pages, so that both have the same numbers.

As a hook of mkdocs it adds them to the site, as images/chart-<name>.svg; `python docs/charts.py FOLDER` writes PNGs
to look at. They are as wide as a phone.
"""

import re
import sys
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from softly_lab.tour.plots import BLUE, CYCLE, GREEN, GREY, INK, ORANGE, STYLE, standalone

WIDTH = 4.6  # inches


def table(page: str, first: str) -> list[list[str]]:
    """The rows below the header of the page's table whose first cell that is."""
    lines = (Path(__file__).with_name(page)).read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def number(cell: str) -> float | None:
    """The number that a cell begins with, without what makes it bold; None where it is empty."""
    found = re.match(r"[+-]?[\d.]+", cell.strip("*").replace("−", "-"))
    return float(found[0]) if found else None


def steepness() -> Figure:
    """How far the top-k loss is ahead of the softmax, by steepness."""
    figure = Figure(figsize=(WIDTH, 3.3), layout="constrained")
    axes = figure.subplots()
    steps = [0.2, 0.5, 1.0, 2.0, 4.0, 10.0]
    colours = iter(CYCLE)
    kept = {}
    for name, *cells in table("topk.md", "data, top1"):
        data, _, top1 = name.partition(", ")
        colour = kept.setdefault(data, None) or next(colours)
        kept[data] = colour
        dashed = top1 != "softmax"
        axes.plot(
            steps, [number(cell) for cell in cells], color=colour, linestyle="--" if dashed else "-", marker=".",
            label=None if dashed else data,
        )  # fmt: skip
    axes.axhline(0, color=INK, linewidth=0.8)
    axes.set(xscale="log", xlabel="steepness", title="ahead of the softmax, in points (dashed: top1 = separate)")
    axes.set_xticks(steps, [f"{step:g}" for step in steps], minor=False)
    axes.set_xticks([], minor=True)
    axes.legend(loc="lower right", ncols=2)
    return figure


def accuracy() -> Figure:
    """How far estimators are ahead of the linear model, in points."""
    rows = table("logic.md", "data")
    rows = rows[: next((i for i, row in enumerate(rows) if not row[0]), len(rows))]
    figure = Figure(figsize=(WIDTH, 0.9 + 0.36 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for column, label, colour, marker in (
        (5, "boosting", GREEN, "^"),
        (4, "forest", ORANGE, "s"),
        (1, "softly", BLUE, "o"),
    ):
        places = [(i, number(row[column]), number(row[2])) for i, row in enumerate(rows)]
        known = [(i, 100 * (value - linear)) for i, value, linear in places if value is not None and linear is not None]
        axes.plot([x for _, x in known], [i for i, _ in known], marker, color=colour, label=label, markersize=6)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(rows)), [row[0] for row in rows])
    axes.set(xlabel="ahead of the linear model, in points of accuracy or R²")
    axes.invert_yaxis()
    axes.legend(loc="upper left")
    return figure


def training() -> Figure:
    """Ways of training, by the accuracy of the discretized network."""
    rows = [row for row in table("logic.md", "training") if (number(row[3]) or 0.0) > 50]
    figure = Figure(figsize=(WIDTH, 0.8 + 0.34 * len(rows)), layout="constrained")
    axes = figure.subplots()
    names, values, spreads = [], [], []
    for name, rate, decay, discretized, _ in rows:
        words = re.sub(r'[`"]', "", name).replace("init=", "")
        names.append(f"{words}, {rate}" + (f", {decay}" if decay else ""))
        values.append(number(discretized))
        spreads.append(number(discretized.strip("*").partition("± ")[2]) or 0.0)
    best = max(value for value in values if value is not None)
    axes.barh(names, values, xerr=spreads, color=[BLUE if v == best else GREY for v in values], ecolor=INK, height=0.62)
    axes.set(xlim=(85, 96), xlabel="accuracy when discretized, in %")
    axes.tick_params(axis="y", labelsize=7)
    axes.grid(visible=False, axis="y")
    axes.invert_yaxis()
    return figure


CHARTS = {"topk-steepness": steepness, "logic-accuracy": accuracy, "logic-training": training}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs once it knows its files."""
    for name, draw in CHARTS.items():
        with matplotlib.rc_context(STYLE):
            figure = draw()
        files.append(File.generated(config, f"images/chart-{name}.svg", content=standalone(figure, name)))
    return files


if __name__ == "__main__":
    for name, draw in CHARTS.items():
        with matplotlib.rc_context({**STYLE, "figure.facecolor": "#ffffff", "grid.color": "#d5dae1"}):
            draw().savefig(Path(sys.argv[1]) / f"chart-{name}.png", dpi=110)
