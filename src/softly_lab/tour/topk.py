"""The stop at top-k: a loss that accepts the first few guesses, and what it does to a small classifier."""

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import softly
from softly_lab.experiments.topk import Config, digits, families, learn
from softly_lab.tour.plots import BLUE, GREY, ORANGE, panels
from softly_lab.tour.stop import Picture, Visit

CODE = """
P = softly.TopKNetwork(steepness=2.0).topk(scores, 3)  # (batch, 3, classes), P[rank, class]
loss = softly.TopKCrossEntropy([0.5, 0.0, 0.0, 0.0, 0.5])(scores, labels)
loss.backward()
"""

PROSE = """
<p>A selection network finds the k largest of n values, in order, with fewer comparators than sorting takes: 22 layers
for the first 5 of 1,024, where a bitonic network has 55. Relaxed, it tells how likely each class is the first, second
or third guess.</p>
<p>A loss can then say how many guesses it grants. With P<sub>K</sub> = [.5, 0, .5], half of it asks for the first
place and half is content with the first three.</p>
<p>That pays where there are many classes and labels are ambiguous. Below are 200 classes in families of five that look
alike, and of ten labels four are drawn from the whole family. A softmax insists on each of them, and after a few epochs
learns their noise by heart. With P<sub>K</sub> = [.5, 0, 0, 0, .5] the family is worth half, and the first five guesses
hold the right class for {top5:.1%} of unseen examples (softmax: {soft5:.1%}) after {epochs} epochs; the first is right
for {top1:.1%} ({soft1:.1%}). With ten digits, nearly always right, there is nothing to gain.</p>
"""

P_K, STEEPNESS = (0.5, 0.0, 0.5), 2.0
DIGITS = Config(p_k=P_K, ks=(1, 3), epochs=10)
FAMILIES = Config(p_k=(0.5, 0.0, 0.0, 0.0, 0.5), ks=(1, 5), epochs=12)


def visit() -> Visit:
    """Follow one digit through the loss, and train with both losses where classes are many."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the classifiers are too small for more
    try:
        train, test = digits()
        sorter = softly.TopKNetwork(steepness=STEEPNESS)
        model, _ = learn(DIGITS, softly.TopKCrossEntropy(P_K, sorter=sorter), train, test, DIGITS.epochs, 0)
        with torch.no_grad():
            scores = model(test[0])
        followed = example(test[0], test[1], scores, sorter)
        train, test = families()
        _, softmax = learn(FAMILIES, nn.CrossEntropyLoss(), train, test, FAMILIES.epochs, 0)
        _, topk = learn(FAMILIES, softly.TopKCrossEntropy(FAMILIES.p_k), train, test, FAMILIES.epochs, 0)
    finally:
        torch.set_num_threads(threads)
    (soft1, soft5), (top1, top5) = softmax[-1], topk[-1]
    prose = PROSE.format(epochs=FAMILIES.epochs, soft1=soft1, soft5=soft5, top1=top1, top5=top5)
    return Visit(prose, CODE, (followed, curves(softmax, topk)))


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
    epochs = range(1, FAMILIES.epochs + 1)
    for column, ax in enumerate(axes):
        ax.plot(epochs, topk[:, column], color=BLUE, label="P$_K$ = [.5, 0, 0, 0, .5]")
        ax.plot(epochs, softmax[:, column], color=GREY, linestyle="--", label="softmax cross-entropy")
        title = f"the true class is among the first {FAMILIES.ks[column]}" if column else "the first guess is right"
        best = max(softmax[:, column].max(), topk[:, column].max())
        ax.set(title=title, xlabel="epoch", ylim=(best - 0.1, best + 0.01), xlim=(1, FAMILIES.epochs))
        ax.set_xticks(range(2, FAMILIES.epochs + 1, 2))
    axes[0].legend(loc="lower right")
    caption = "Share of 10,000 unseen examples of 200 classes, after every epoch on 8,000 others, one seed."
    return Picture(figure, caption)
