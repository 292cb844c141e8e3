"""The stop at relaxed programs: a shortest path at three steepnesses, costs that are learned from paths, a gallery."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import softly
from softly.algorithms import library
from softly_lab.tour.plots import CYCLE, GREEN, INK, ORANGE, panels
from softly_lab.tour.stop import Picture, Visit

CODE = """
@softly.relax(steepness=4.0)
def clip(x, low, high):                     # plain Python, written for one example
    if x < low:
        return low
    if x > high:
        return high
    return x

y = clip(x, 0.0, 1.0)                       # x: (batch,); y has a gradient everywhere
path, distances = softly.algorithms.library.shortest_path(costs, steepness=2.0)
"""

PROSE = """
<p>Write an ordinary Python function; <code>softly.relax</code> makes it differentiable. A condition on tensors becomes
a probability, both branches run, and where paths join their values are averaged. Loops, <code>break</code>,
<code>return</code>, indexing and recursion work; turned up, the steepness gives the plain function back.</p>
<p>Bellman's and Ford's algorithm, so relaxed, does not find one shortest path over a terrain but tells how likely each
cell is on it. Below, costs are learned that nobody ever states: {steps} steps of gradient descent on nothing but the
shortest paths of {maps} terrains, read off {features} features of each cell. On {unseen} other terrains, {right:.0%} of
the paths that the learned costs give are no more than 2% longer than the shortest.</p>
"""

SIZE, MAPS, UNSEEN, FEATURES, STEPS = 12, 24, 100, 6, 60
STEEPNESSES = (0.5, 2.0, 10.0)
TRUE = torch.linspace(0.5, 5.5, FEATURES)


def terrain(generator: torch.Generator, count: int) -> tuple[Tensor, Tensor]:
    """Kinds of ground in smooth patches, (count, size, size, features) one-hot, and what each cell costs."""
    noise = torch.randn(count, FEATURES, SIZE, SIZE, generator=generator)
    smooth = torch.nn.functional.avg_pool2d(noise, 3, stride=1, padding=1)
    kinds = torch.nn.functional.one_hot(smooth.argmax(1), FEATURES).float()
    return kinds, kinds @ TRUE


def rough(costs: Tensor) -> Tensor:
    """Costs that leave a hard path no choice."""
    return costs + 0.01 * torch.rand(costs.shape, generator=torch.Generator().manual_seed(1))


def shortest(costs: Tensor) -> Tensor:
    """The hard path, 0 and 1."""
    return library.shortest_path(rough(costs), steepness=1e5, rounds=40).path.round()


def learn() -> tuple[Tensor, float]:
    """Costs of the kinds of ground, learned from shortest paths alone; and how good they are on unseen terrains."""
    generator = torch.Generator().manual_seed(0)
    kinds, costs = terrain(generator, MAPS)
    paths = shortest(costs)
    weights = torch.zeros(FEATURES, requires_grad=True)
    optimizer = torch.optim.Adam([weights], lr=0.1)
    for _ in range(STEPS):
        guess = torch.nn.functional.softplus(kinds @ weights)
        loss = (library.shortest_path(guess, steepness=6.0, rounds=20).path - paths).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    learned = torch.nn.functional.softplus(weights).detach()
    kinds, costs = terrain(generator, UNSEEN)
    length = lambda paths: (paths * costs).sum((1, 2))  # noqa: E731
    excess = length(shortest(kinds @ learned)) / length(shortest(costs)) - 1
    return learned, float((excess < 0.02).float().mean())


def visit() -> Visit:
    """Draw paths, learn costs, and turn the dial of everything in the library."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        learned, right = learn()
        pictures = (steepnesses(), costs_learned(learned), gallery())
    finally:
        torch.set_num_threads(threads)
    prose = PROSE.format(steps=STEPS, maps=MAPS, features=FEATURES, unseen=UNSEEN, right=right)
    return Visit(prose, CODE, pictures)


def steepnesses() -> Picture:
    """A terrain, its path at three steepnesses, and the hard one."""
    costs = rough(terrain(torch.Generator().manual_seed(5), 1)[1][0])
    figure, axes = panels(1, 2 + len(STEEPNESSES), height=2.2)
    axes[0].imshow(costs.numpy(), cmap="YlOrBr")
    axes[0].set_title("what a cell costs")
    for ax, steepness in zip(axes[1:], (*STEEPNESSES, 1e5), strict=True):
        ax.imshow(library.shortest_path(costs, steepness=steepness).path.numpy(), cmap="Blues", vmin=0, vmax=1)
        ax.set_title(f"steepness {steepness:g}" if steepness < 1e3 else "hard")
    for ax in axes:
        ax.set(xticks=[], yticks=[])
        ax.grid(visible=False)
    caption = "The cheapest way from the upper left to the lower right: how likely each cell is on it."
    return Picture(figure, caption)


def costs_learned(learned: Tensor) -> Picture:
    figure, (ax, plain) = panels(1, 2, height=2.5, share=False)
    # Paths don't change when all costs are multiplied by the same number.
    scaled = learned * (TRUE.sum() / learned.sum())
    ax.plot([0, 6], [0, 6], color=INK, linestyle=":", linewidth=1.1)
    ax.scatter(TRUE.numpy(), scaled.numpy(), color=ORANGE, zorder=3)
    ax.set(title="kinds of ground", xlabel="true cost", ylabel="learned cost", xlim=(0, 6), ylim=(0, 6.5))
    x = torch.linspace(-1.0, 2.0, 301)
    for steepness, alpha in ((2.0, 0.35), (5.0, 0.65), (20.0, 1.0)):
        relaxed = softly.relax(clip, steepness=steepness)
        plain.plot(x.numpy(), relaxed(x, 0.0, 1.0).numpy(), color=GREEN, alpha=alpha, label=f"steepness {steepness:g}")
    plain.plot(x.numpy(), x.clamp(0, 1).numpy(), color=INK, linestyle=":", linewidth=1.1, label="hard")
    plain.set(title="clip(x, 0, 1)", xlabel="x", xlim=(-1, 2))
    plain.legend(loc="upper left")
    caption = (
        "Left: costs learned from shortest paths alone, up to a common factor. Right: the function of the example, "
        "with its two early returns."
    )
    return Picture(figure, caption)


def clip(x: Any, low: Any, high: Any) -> Any:
    """Keep x between two bounds."""
    if x < low:
        return low
    if x > high:
        return high
    return x


def letters(word: str) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor([ord(c) - ord("a") for c in word]), 26)[None].float()


def unsure(p: Tensor) -> Tensor:
    """A tenth of the probability goes to other letters."""
    return 0.9 * p + 0.1 / 26


def gallery() -> Picture:
    """The output of every algorithm of the library, against its steepness."""
    array = torch.tensor([[0.8, 0.1, 0.6, 0.3]])
    a, b = torch.tensor([[0.0, 1.0, 2.0, 1.0]]), torch.tensor([[0.2, 0.3, 1.7, 2.1, 0.6]])
    emissions = torch.tensor([[[1.0, 0.6], [0.5, 0.8], [0.2, 0.9]]])
    transitions = torch.tensor([[[0.5, 0.0], [0.0, 0.3]]])
    costs = terrain(torch.Generator().manual_seed(5), 1)[1][:, :3, :3]
    weights = torch.tensor([[[0.0, 1.0, 4.0], [2.0, 0.0, 1.5], [1.0, 3.0, 0.0]]])
    adjacency = torch.tensor([[[0, 0.8, 0.1], [0.8, 0, 0.4], [0.1, 0.4, 0]]])
    tree = (0, 0.5, 1.0, (1, 0.4, 3.0, 2.0))
    outputs: dict[str, Callable[[float], Any]] = {
        "bubble sort": lambda s: library.bubble_sort.using(steepness=s)(array)[0],
        "its swaps, its loss": lambda s: [
            library.bubble_sort.using(steepness=s)(array)[1],
            library.bubble_sort_loss.using(steepness=s)(array),
        ],
        "insertion sort": lambda s: library.insertion_sort.using(steepness=s)(array),
        "binary search": lambda s: library.binary_search.using(steepness=s, tolerance=0.0)(
            array.sort().values, array[:, 2] + 0.05
        ),
        "Levenshtein": lambda s: library.levenshtein(letters("kitten"), letters("sitting"), steepness=s).distance,
        "longest common subsequence": lambda s: library.longest_common_subsequence.using(steepness=s)(
            unsure(letters("kitten")), unsure(letters("sitting"))
        ),
        "dynamic time warping": lambda s: library.dynamic_time_warping.using(steepness=s)(a, b),
        "knapsack": lambda s: library.knapsack.using(steepness=s)(array, [3, 1, 2, 2], 5),
        "Viterbi, states": lambda s: [w[:, 1] for w in library.viterbi.using(steepness=s)(emissions, transitions)[1]],
        "Bellman-Ford, distances": lambda s: library.shortest_path(costs, steepness=s).distances.flatten(1)[:, 1:],
        "Floyd-Warshall": lambda s: library.floyd_warshall.using(steepness=s)(weights).flatten(1)[:, 1:8],
        "connected components": lambda s: library.connected_components.using(steepness=s)(adjacency),
        "decision tree": lambda s: library.decision_tree.using(steepness=s)(torch.tensor([[0.6, 0.3]]), tree),
        "greatest common divisor": lambda s: library.gcd.using(steepness=s, max_iterations=12)(
            torch.tensor([4.0]), torch.tensor([6.0])
        ),
    }
    figure, axes = panels(4, 4, height=8.0, share=False)
    dial = np.geomspace(1.0, 300.0, 25)
    for ax, (title, function) in zip(axes, outputs.items(), strict=False):
        curves = np.array([lines(function(float(s))) for s in dial])
        for k, curve in enumerate(curves.T):
            colour = CYCLE[k % len(CYCLE)]
            ax.plot(dial, curve, color=colour, linewidth=1.4)
            ax.axhline(lines(function(1e6))[k], color=colour, linestyle=":", linewidth=1.0)
        ax.set(title=title, xscale="log", xlim=(1, 300))
    corners = torch.tensor([[[[-0.8, -0.7], [0.9, -0.6], [0.0, 0.8]], [[-0.9, 0.1], [0.2, 0.2], [-0.6, 0.9]]]])
    for ax, render, name in (
        (axes[-2], library.silhouette_three_edges, "silhouette, three edges"),
        (axes[-1], library.silhouette_distance, "silhouette, distance"),
    ):
        ax.imshow(render(corners, image_size=48, steepness=20.0)[0].numpy(), cmap="Greys", vmin=0, vmax=1)
        ax.set(title=name, xticks=[], yticks=[])
        ax.grid(visible=False)
    caption = (
        "The library: what each algorithm gives as its steepness grows, and dotted what it gives when run hard. "
        "The silhouettes of two triangles are at steepness 20."
    )
    return Picture(figure, caption)


def lines(values: Any) -> np.ndarray:
    """The first example of a result, as a flat array."""
    if isinstance(values, Tensor):
        values = values.reshape(values.shape[0], -1)[0]
        return values.numpy()
    return np.concatenate([v[0].reshape(-1).numpy() for v in values])
