"""The stop at sorting: a sorting network, and a small CNN that learns to read numbers from their order alone."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import softly
from softly_lab.tour.plots import BLUE, GREEN, INK, panels
from softly_lab.tour.stop import Picture, Visit

CODE = """
sorter = softly.SortingNetwork("odd_even", distribution="cauchy", steepness=10.0)
log_P = sorter.log_permutation(cnn(images))                       # (batch, n, n), log P[rank, input]
loss = softly.sorting.ranking_loss(log_P, true_ranks, log=True)   # the order is all that is known
loss.backward()
"""

PROSE = """
<p>A sorting network compares and swaps pairs of values in a fixed pattern. With relaxed swaps it gives, instead of one
permutation, the probability of every rank for every input: a doubly stochastic matrix with a gradient.</p>
<p>So a network can learn from order alone. Below, a small CNN reads four-digit numbers, composed of scikit-learn's
handwritten digits. It is never told a number, only the order of the numbers in {n} pictures. After {steps} steps it
gives {element:.0%} of unseen numbers their right rank, and {exact:.0%} of all lists of {n} are in order as a whole.</p>
"""

N, DIGITS, BATCH, STEPS = 5, 4, 48, 600


def visit() -> Visit:
    """Draw a network at work, train the CNN, and show what it learned."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the CNN is too small for more, which then only wait for each other
    try:
        run = train()
    finally:
        torch.set_num_threads(threads)
    prose = PROSE.format(n=N, steps=STEPS, exact=run["exact"][-1], element=run["element"][-1])
    return Visit(prose, CODE, (network(), curves(run), examples(run)))


def network() -> Picture:
    drawing = softly.sorting.networks.get("bitonic", 8).draw(
        [0.62, 0.15, 0.91, 0.34, 0.58, 0.07, 0.75, 0.43],
        keep=lambda d: float(softly.distributions.get("cauchy").cdf(torch.tensor(20.0 * d))),
    )
    caption = "A bitonic network on eight values: what goes in, how likely each comparator swaps, and what comes out."
    return Picture(drawing, caption)


class Numbers:
    """Four-digit numbers of handwritten digits, a part of them for training and the rest for testing."""

    def __init__(self, part: slice, seed: int) -> None:
        data = load_digits()
        self.images = torch.tensor(data.images[part] / 16.0, dtype=torch.float32)
        self.labels = torch.tensor(data.target[part])
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self, lists: int) -> tuple[Tensor, Tensor]:
        """Pictures (lists, n, 1, 8, 32) and the numbers they show (lists, n)."""
        index = torch.randint(len(self.images), (lists, N, DIGITS), generator=self.generator)
        images = self.images[index].permute(0, 1, 3, 2, 4).reshape(lists, N, 1, 8, 8 * DIGITS)
        powers = 10 ** torch.arange(DIGITS - 1, -1, -1)
        return images, (self.labels[index] * powers).sum(-1)


def reader() -> nn.Module:
    """A CNN from a picture to one number, whose scale is its own business."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=4),
        nn.ReLU(),
        nn.Conv2d(64, 32, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * DIGITS, 1),
    )


def train() -> dict[str, list]:
    torch.manual_seed(0)
    known, unseen = Numbers(slice(0, 1400), 1), Numbers(slice(1400, None), 2)
    model, sorter = reader(), softly.SortingNetwork("odd_even", distribution="cauchy", steepness=10.0)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    test_images, test_numbers = unseen.draw(400)
    run: dict[str, list] = {"step": [], "loss": [], "exact": [], "element": []}
    for step in range(STEPS + 1):
        images, numbers = known.draw(BATCH)
        scores = model(images.flatten(0, 1)).reshape(BATCH, N)
        ranks = numbers.argsort(-1).argsort(-1) + 1
        loss = softly.sorting.ranking_loss(sorter.log_permutation(scores), ranks, log=True)
        if step % 30 == 0:
            with torch.no_grad():
                guess = model(test_images.flatten(0, 1)).reshape(test_numbers.shape)
            run["step"].append(step)
            run["loss"].append(loss.item())
            run["exact"].append(softly.sorting.metrics.exact_match(guess, test_numbers).item())
            run["element"].append(softly.sorting.metrics.elementwise_match(guess, test_numbers).item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    run["images"], run["numbers"], run["guess"] = [test_images[0]], [test_numbers[0]], [guess[0]]
    run["all"] = [test_numbers.flatten(), guess.flatten()]
    return run


def curves(run: dict[str, list]) -> Picture:
    figure, (accuracy, scatter) = panels(1, 2, height=3.2, share=False)
    accuracy.plot(run["step"], run["element"], color=BLUE, label="ranks that are right")
    accuracy.plot(run["step"], run["exact"], color=GREEN, label="lists that are all right")
    accuracy.axhline(1 / 120, color=INK, linestyle=":", linewidth=1.1, label="chance, whole lists")
    accuracy.set(title="on unseen numbers", xlabel="training step", ylim=(0, 1), xlim=(0, STEPS))
    accuracy.legend(loc="lower right")
    numbers, guess = run["all"]
    scatter.plot(numbers.numpy(), guess.numpy(), ".", color=BLUE, markersize=2.5, alpha=0.5)
    scatter.set(title="what the CNN says, over what is shown", xlabel="number", ylabel="score")
    caption = "Training on the order of five numbers: accuracy, and the scale of numbers that the CNN found for itself."
    return Picture(figure, caption)


def examples(run: dict[str, list]) -> Picture:
    images, numbers, guess = run["images"][0], run["numbers"][0], run["guess"][0]
    figure, axes = panels(1, N, height=0.95)
    for ax, index in zip(axes, np.argsort(guess.numpy()), strict=True):
        ax.imshow(images[index, 0].numpy(), cmap="gray_r", interpolation="nearest", aspect="equal")
        ax.set(title=f"{int(numbers[index]):04d} → {guess[index]:.2f}", xticks=[], yticks=[])
    return Picture(figure, "Five unseen numbers in the order that the CNN gives them, with its scores.")
