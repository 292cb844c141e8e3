"""The stop at the relaxed minimum: how its shape follows from the distribution and the steepness."""

import torch

import softly
from softly_lab.tour.plots import INK, panels
from softly_lab.tour.stop import Picture, Visit

CODE = """
low, high, keep = softly.swap(a, b, distribution="cauchy", steepness=10.0)
softly.minimum(a, b, distribution="optimal", steepness=10.0)
"""

PROSE = """
<p>The relaxed minimum weighs its two arguments by the probability that each is the smaller one. It is the
atom of differentiable sorting: a sorting network is nothing but minima and maxima.</p>
<p>With thin tails, as in the logistic distribution, the curve overshoots and its slope turns negative: the
gradient then pushes a value the wrong way. With the heavy tails of the Cauchy, the reciprocal and the optimal
distribution it never does, and of all that never do, the optimal one is the closest to the hard minimum.</p>
"""

FAMILIES = ("logistic", "cauchy", "reciprocal", "optimal")


def visit() -> Visit:
    """Draw min(x, 0), its slope, and its way to the hard minimum."""
    return Visit(PROSE, CODE, (curves(),))


def curves() -> Picture:
    x = torch.linspace(-2.0, 2.0, 801)
    zero = torch.zeros(())
    figure, (value, slope, sharpened) = panels(1, 3, height=3.2, share=False)
    for name in FAMILIES:
        # The same largest slope of the CDF for all, so that it's the shape that is compared.
        steepness = 1.0 / softly.distributions.get(name).pdf(zero).item()
        z = x.clone().requires_grad_()
        relaxed = softly.minimum(z, zero, distribution=name, steepness=steepness)
        (gradient,) = torch.autograd.grad(relaxed.sum(), z)
        value.plot(x, relaxed.detach(), label=name)
        slope.plot(x, gradient, label=name)
    for steepness, alpha in ((1.0, 0.35), (3.0, 0.6), (10.0, 1.0)):
        relaxed = softly.minimum(x, zero, distribution="cauchy", steepness=steepness)
        sharpened.plot(x, relaxed, color="C1", alpha=alpha, label=f"steepness {steepness:g}")
    hard = torch.minimum(x, zero)
    for ax, title in ((value, "min(x, 0)"), (slope, "its slope"), (sharpened, "cauchy, growing steeper")):
        ax.set_title(title)
        ax.set(xlim=(-2, 2), xlabel="x")
    for ax in (value, sharpened):
        ax.plot(x, hard, ":", color=INK, linewidth=1.1, label="hard")
        ax.set_ylim(-1.3, 0.45)
    slope.axhline(0, color=INK, linewidth=0.9)
    value.legend(loc="lower right")
    sharpened.legend(loc="lower right")
    caption = (
        "The relaxed minimum at the same Lipschitz constant, its derivative, and the limit of large "
        "steepness. Of the slopes, only the logistic one falls below zero."
    )
    return Picture(figure, caption)
