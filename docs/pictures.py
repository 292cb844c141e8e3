"""Draws the pictures of the README and of the documentation, from softly's own functions.

`python docs/pictures.py` writes docs/images/softly.svg, which is kept in the repository with what airplane.py and
renderers.py draw. As a hook of mkdocs it adds the pictures of the tour to the site, as images/<stop>-<number>.svg.
"""

from pathlib import Path

import matplotlib
import torch
from matplotlib.figure import Figure
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import softly
from softly_lab.tour import STOPS, visit
from softly_lab.tour.plots import BLUE, GREEN, INK, ORANGE, STYLE, panels, standalone


def overview() -> Figure:
    """A comparison, a minimum and an "or", each on its way from soft to hard."""
    figure, (comparison, minimum, either) = panels(1, 3, height=2.7, share=False)
    x = torch.linspace(-2.0, 2.0, 401)
    zero = torch.zeros(())
    for steepness, alpha in ((1.0, 0.3), (3.0, 0.6), (10.0, 1.0)):
        label = f"steepness {steepness:g}"
        comparison.plot(x, softly.less(zero, x, steepness=steepness), color=BLUE, alpha=alpha, label=label)
        minimum.plot(x, softly.minimum(x, zero, steepness=steepness), color=ORANGE, alpha=alpha, label=label)
    hard = {"linestyle": ":", "color": INK, "linewidth": 1.1, "label": "hard"}
    comparison.plot(x, torch.heaviside(x, torch.tensor(0.5)), **hard)
    minimum.plot(x, torch.minimum(x, zero), **hard)
    u = torch.linspace(0.0, 1.0, 201)
    for p, alpha in ((1.0, 0.3), (2.0, 0.6), (8.0, 1.0)):
        probability = softly.tnorms.get("yager", p=p).tconorm(u, torch.tensor(0.4))
        either.plot(u, probability, color=GREEN, alpha=alpha, label=f"yager, p = {p:g}")
    either.plot(u, u.clamp(min=0.4), **hard)
    for ax, title in ((comparison, "0 < x"), (minimum, "min(x, 0)"), (either, "x or 0.4")):
        ax.set_title(title)
        ax.legend(loc="lower right")
    comparison.set(xlim=(-2, 2), ylim=(-0.04, 1.04))
    minimum.set(xlim=(-2, 2), ylim=(-1.5, 0.45))
    either.set(xlim=(0, 1), ylim=(0, 1.04))
    return figure


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by mkdocs once it knows its files."""
    for stop in STOPS:
        section = visit(stop)
        if section.visit is None:
            raise RuntimeError(f"the stop {stop.title!r} of the tour failed:\n{section.error}")
        for number, picture in enumerate(section.visit.pictures):
            name = f"{stop.module}-{number}"
            content = standalone(picture.figure, name)
            files.append(File.generated(config, f"images/{name}.svg", content=content))
    return files


if __name__ == "__main__":
    target = Path(__file__).with_name("images") / "softly.svg"
    with matplotlib.rc_context(STYLE):
        target.write_text(standalone(overview(), "softly"), encoding="utf-8")
    print(target)
