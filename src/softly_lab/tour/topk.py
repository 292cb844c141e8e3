"""The stop at top-k: a loss that accepts the first few guesses, and what it does to a small classifier."""

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import softly
from softly_lab.experiments.topk import Config, digits, learn
from softly_lab.tour.plots import BLUE, GREY, ORANGE, panels
from softly_lab.tour.stop import Picture, Visit

CODE = """
sorter = softly.TopKNetwork("splitter", distribution="cauchy", steepness=2.0)
P = sorter.topk(scores, 3)                             # (batch, 3, classes), P[rank, class]
loss = softly.TopKCrossEntropy([0.5, 0.0, 0.5], sorter=sorter)(scores, labels)
loss.backward()
"""

PROSE = """
<p>A selection network finds the k largest of n values, in order, with fewer comparators than sorting takes: 22 layers
for the first 5 of 1,024, where a bitonic network has 55. Relaxed, it tells how likely each class is the first, second
or third guess.</p>
<p>A loss can then say how many guesses it grants. With P<sub>K</sub> = [.5, 0, .5], half of it asks for the first
place and half is content with the first three. Below, a small classifier of handwritten digits learns with it for
{epochs} epochs: its first guess is right for {top1:.1%} of unseen digits (softmax cross-entropy: {soft1:.1%}), and its
first three hold the right one for {top3:.1%} ({soft3:.1%}).</p>
"""

P_K, STEEPNESS = (0.5, 0.0, 0.5), 2.0
CONFIG = Config(p_k=P_K, ks=(1, 3), epochs=20)


def visit() -> Visit:
    """Train with both losses, and follow one example through the loss."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the classifier is too small for more
    try:
        train, test = digits()
        sorter = softly.TopKNetwork(steepness=STEEPNESS)
        _, softmax = learn(CONFIG, nn.CrossEntropyLoss(), train, test, CONFIG.epochs, 0)
        loss = softly.TopKCrossEntropy(P_K, sorter=sorter)
        model, topk = learn(CONFIG, loss, train, test, CONFIG.epochs, 0)
        with torch.no_grad():
            scores = model(test[0])
        pictures = (example(test[0], test[1], scores, sorter), curves(softmax, topk))
    finally:
        torch.set_num_threads(threads)
    (soft1, soft3), (top1, top3) = softmax[-1], topk[-1]
    prose = PROSE.format(epochs=CONFIG.epochs, soft1=soft1, soft3=soft3, top1=top1, top3=top3)
    return Visit(prose, CODE, pictures)


def example(images: Tensor, labels: Tensor, scores: Tensor, sorter: softly.TopKNetwork) -> Picture:
    """From scores to ranks to the probability of being accepted, for a true class that has the second place."""
    two = scores.topk(2, -1)
    lead = two.values[:, 0] - two.values[:, 1]
    # Not too close to a tie, so that the order is plain to see.
    chosen = int(torch.where(two.indices[:, 1] == labels, (lead - 1.0).abs(), torch.inf).argmin())
    k, label = len(P_K), int(labels[chosen])
    P = sorter.topk(scores[chosen], k).numpy()
    weights = np.cumsum(P_K[::-1])[::-1]
    accepted = weights @ P
    figure = Figure(figsize=(9.0, 2.3), layout="constrained")
    picture, ranks, granted, result = figure.subplots(1, 4, width_ratios=(1.1, 4, 1, 3))
    picture.imshow(images[chosen].reshape(8, 8).numpy(), cmap="gray_r", interpolation="nearest")
    picture.set(title=f"a {label}", xticks=[], yticks=[])
    ranks.imshow(P, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for r, c in np.ndindex(*P.shape):
        if P[r, c] >= 0.095:
            ink = "#ffffff" if P[r, c] > 0.6 else "#1c2430"
            ranks.text(c, r, f".{100 * float(P[r, c]):.0f}", ha="center", va="center", fontsize=7, color=ink)
    ranks.set(title="P: how likely a class has a rank", xlabel="class", ylabel="rank")
    ranks.set_yticks(range(k), [str(r + 1) for r in range(k)])
    granted.barh(range(k), weights, color=ORANGE, height=0.7)
    granted.set(title="weight", xlim=(0, 1.05), ylim=(k - 0.5, -0.5), yticks=[], xticks=[0, 0.5, 1])
    result.bar(range(10), accepted, color=[BLUE if c == label else GREY for c in range(10)], width=0.75)
    result.set(title="p: how likely a class is accepted", xlabel="class", ylim=(0, 1))
    for ax in (ranks, result):
        ax.set_xticks(range(10))
    ranks.grid(visible=False)
    result.grid(visible=False, axis="x")
    caption = (
        "An unseen digit whose true class has the second place. The weight of a rank is the probability that k reaches "
        "it, a cumulative sum of P<sub>K</sub> = [.5, 0, .5]; the weighted sum of the ranks is p, and the loss is "
        "−log p of the true class."
    )
    return Picture(figure, caption)


def curves(softmax: np.ndarray, topk: np.ndarray) -> Picture:
    figure, axes = panels(1, 2, height=2.7, share=False)
    epochs = range(1, CONFIG.epochs + 1)
    for column, ax in enumerate(axes):
        ax.plot(epochs, topk[:, column], color=BLUE, label="P$_K$ = [.5, 0, .5]")
        ax.plot(epochs, softmax[:, column], color=GREY, linestyle="--", label="softmax cross-entropy")
        title = f"the true class is among the first {CONFIG.ks[column]}" if column else "the first guess is right"
        ax.set(
            title=title, xlabel="epoch", ylim=(0.5, 1), xlim=(1, CONFIG.epochs), xticks=range(5, CONFIG.epochs + 1, 5)
        )
    axes[0].legend(loc="lower right")
    return Picture(figure, "Share of 797 unseen digits, after every epoch on 1,000 others, one seed.")
