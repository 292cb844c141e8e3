"""The stop at the distributions: all families, and the facts that choose between them."""

import math

import torch

import softly
from softly_lab.tour.plots import BLUE, ORANGE, panels
from softly_lab.tour.stop import Picture, Visit

CODE = """
import torch, softly

d = softly.distributions.get("cauchy")
d.cdf(torch.tensor([-1.0, 0.0, 1.0]))        # tensor([0.2500, 0.5000, 0.7500])
softly.distributions.names()                 # all sixteen
"""

PROSE = """
<p>A relaxed comparison is the probability that it holds when the difference is perturbed: the hard step
becomes the CDF of a distribution. Which one decides how the relaxation behaves, and softly has sixteen. Each
comes with its density, quantiles, samples and score, in both tails as accurate as the numbers allow.</p>
<p>Symmetric families can order two values. Then two facts count: whether the relaxed minimum is monotonic, so
that its gradient never has the wrong sign, and how far it can be from the hard one.</p>
"""


def title(name: str) -> str:
    """The name of a family as a heading."""
    return name.replace("_", " ")


def visit() -> Visit:
    """Draw the CDF and the density of every family."""
    names = softly.distributions.names()
    columns = 4
    figure, axes = panels(math.ceil(len(names) / columns), columns, height=6.6)
    x = torch.linspace(-4.0, 4.0, 401)
    for name, ax in zip(names, axes, strict=False):
        distribution = softly.distributions.get(name)
        cdf, pdf = distribution.cdf(x), distribution.pdf(x)
        ax.fill_between(x, pdf, color=ORANGE, alpha=0.16, linewidth=0)
        ax.plot(x, pdf, color=ORANGE, linewidth=1.2)
        ax.plot(x, cdf, color=BLUE)
        ax.set_title(title(name))
        ax.set(xlim=(-4, 4), ylim=(-0.04, 1.08), xticks=(-4, 0, 4), yticks=(0, 0.5, 1))
    for ax in axes[len(names) :]:
        ax.remove()
    caption = (
        f'The CDF (<b style="color:{BLUE}">blue</b>) and the density (<b style="color:{ORANGE}">orange</b>) '
        "of every family at steepness 1. The last five are asymmetric."
    )
    return Visit(PROSE + facts(names), CODE, (Picture(figure, caption),))


def facts(names: tuple[str, ...]) -> str:
    """The table of the symmetric families, with the largest error of the relaxed minimum."""
    rows = []
    for name in names:
        distribution = softly.distributions.get(name)
        if distribution.symmetric and name != "heaviside":  # which is the hard step itself
            low, high = distribution.support
            support = "bounded" if math.isfinite(high - low) else "all numbers"
            monotonic = "yes" if distribution.swap_is_monotonic else "no"
            rows.append(
                f"<tr><td>{title(name)}</td><td>{support}</td><td>{monotonic}</td>"
                f"<td>{distribution.swap_error_bound:.4f}</td></tr>"
            )
    return (
        '<div class="table"><table><tr><th>family</th><th>support</th><th>monotonic minimum</th>'
        f"<th>largest error of the minimum, at Lipschitz constant 1</th></tr>{''.join(rows)}</table></div>"
    )
