"""The stop at the T-conorms: a differentiable "or", in ten families."""

import math

import torch

import softly
from softly_lab.tour.distributions import title
from softly_lab.tour.plots import GREY, panels
from softly_lab.tour.stop import Picture, Visit

CODE = """
t = softly.tnorms.get("yager", p=2.0)
t.tnorm(a, b); t.tconorm(a, b)               # and, or
t.any(probabilities, dim=-1)                 # over any number of operands, in one closed form
"""

PROSE = """
<p>Once comparisons are probabilities, "and" and "or" have to combine them. T&#8209;norms and T&#8209;conorms
are the ways to do that which stay commutative, associative and monotonic and agree with logic at 0 and 1. A
pixel is covered if one of the triangles covers it: that "or" of thousands is one closed form here.</p>
"""

LEVELS = [i / 10 for i in range(1, 10)]


def visit() -> Visit:
    """Draw every T-conorm as a map, and all of them along the diagonal."""
    return Visit(PROSE, CODE, (maps(), diagonal()))


def maps() -> Picture:
    names = softly.tnorms.names()
    columns = 5
    figure, axes = panels(math.ceil(len(names) / columns), columns, height=4.1)
    x = torch.linspace(0.0, 1.0, 101)
    for name, ax in zip(names, axes, strict=False):
        value = softly.tnorms.get(name).tconorm(x[None, :], x[:, None]).numpy()
        image = ax.imshow(value, cmap="viridis", vmin=0, vmax=1, origin="lower", extent=(0, 1, 0, 1))
        ax.contour(x, x, value, levels=LEVELS, colors="white", linewidths=0.6, alpha=0.7)
        ax.set_title(title(name))
        ax.set(xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
        ax.grid(visible=False)
    for ax in axes[len(names) :]:
        ax.remove()
    bar = figure.colorbar(image, ax=axes[: len(names)], ticks=(0, 0.5, 1), shrink=0.85, pad=0.015, aspect=32)
    bar.outline.set_visible(False)
    caption = "<i>a</i> or <i>b</i> over the unit square, every family at its default parameter."
    return Picture(figure, caption)


def diagonal() -> Picture:
    figure, (left, right) = panels(1, 2, height=3.3)
    x = torch.linspace(0.0, 1.0, 201)
    for ps, ax, family in (((1.0, 2.0, 4.0), left, "yager"), ((0.5, 1.0, 2.0), right, "dombi")):
        for p in ps:
            ax.plot(x, softly.tnorms.get(family, p=p).tconorm(x, x), label=f"{family}, p = {p:g}")
        for name, style in (("minimum", ":"), ("probabilistic", "--")):
            ax.plot(x, softly.tnorms.get(name).tconorm(x, x), style, color=GREY, linewidth=1.2, label=name)
        ax.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="x")
        ax.legend(loc="lower right")
    left.set_ylabel("x or x")
    return Picture(figure, "Most families have a parameter that takes them from one T-conorm to another.")
