"""The stop at rendering: a triangle under distributions, a mesh under T-conorms, and a sphere that becomes a pot."""

import time

import torch
from matplotlib.axes import Axes
from torch import Tensor

import softly
from softly.rendering import Camera, Lights, Mesh, icosphere, iou_loss, laplacian_loss, pot
from softly_lab.tour.plots import panels
from softly_lab.tour.stop import Picture, Visit

CODE = """
renderer = softly.Renderer(64, distribution="logistic", steepness=100.0, tconorm="probabilistic")
camera = softly.rendering.Camera.look_at(distance=2.7, elevation=30.0, azimuth=azimuths, fov=60.0)
loss = softly.rendering.iou_loss(renderer.silhouette(mesh, camera), target).mean()
loss.backward()                                        # the gradient in mesh.vertices
"""

PROSE = """
<p>Whether a triangle covers a pixel is a question of yes or no. Perturb the distance of the pixel from the triangle's
border, and it becomes a probability, F(steepness · d): any distribution makes a renderer. Whether <em>some</em>
triangle covers it is an "or" of all these probabilities: any T-conorm makes another one. Both together are a family
that has most renderers of the literature in it.</p>
<p>So an image is differentiable in the mesh, and a mesh can be fitted to images. Below, a sphere sees nothing but the
silhouettes of a pot from {views} sides, and is a pot after {steps} steps, each of them {views} images forward and
backward in {milliseconds:.0f} ms on this machine: the overlap of the silhouettes grows from {before:.0%} to
{after:.0%}.</p>
"""

VIEWS, STEPS, SIZE = 12, 120, 64
GALLERY = (  # by rows: names, with the shape of gammas; r for reversed, s for squared distances
    *("heaviside", "uniform", "cubic_hermite", "wigner", "gaussian", "laplace"),
    *("logistic", "logistic s", "hyperbolic_secant", "cauchy", "cauchy s", "reciprocal"),
    *("optimal", "gumbel_max", "gumbel_min", "exponential", "exponential r", "exponential rs"),
    *("levy", "levy r", "gamma-0.5", "gamma-2", "gamma-0.5 r", "gamma-2 r"),
    *("uniform s", "gaussian s", "levy rs", "gamma-0.5 s", "gamma-0.5 rs", "gamma-2 rs"),
)
AGGREGATIONS = (("minimum", None), ("probabilistic", None), ("yager", 2.0), ("aczel_alsina", 0.5))


def visit() -> Visit:
    """Draw the family, and fit a member of it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        pictures, facts = fit()
        return Visit(PROSE.format(views=VIEWS, steps=STEPS, **facts), CODE, (gallery(), tconorms(), pictures))
    finally:
        torch.set_num_threads(threads)


def show(ax: Axes, image: Tensor, title: str) -> None:
    """An image without axes; silhouettes in grey, white where nothing is."""
    if image.ndim == 2:
        ax.imshow(image.numpy(), cmap="gray_r", vmin=0.0, vmax=1.0, interpolation="nearest")
    else:
        ax.imshow(image.clamp(0, 1).movedim(0, -1).numpy(), interpolation="nearest")
    ax.set_title(title)
    ax.set_axis_off()


def gallery() -> Picture:
    """One triangle under all distributions."""
    corners = torch.tensor([[-0.6, -0.5, 0.0], [0.7, -0.35, 0.0], [-0.05, 0.65, 0.0]])
    mesh, camera = Mesh(corners, torch.tensor([[0, 1, 2]])), Camera.look_at(distance=2.0, orthographic=1.0)
    figure, axes = panels(5, 6, height=9.0)
    for ax, entry in zip(axes, GALLERY, strict=True):
        kind, _, how = entry.partition(" ")
        name, _, shape = kind.partition("-")
        options = {"shape": float(shape)} if shape else {}
        distribution = softly.distributions.get(name, **options)
        distribution = distribution.reversed() if "r" in how else distribution
        squared = "s" in how
        renderer = softly.Renderer(SIZE, distribution=distribution, squared=squared, steepness=30.0 if squared else 6.0)
        variant = ", ".join(word for letter, word in (("r", "reversed"), ("s", "squared")) if letter in how)
        title = kind.replace("_", " ").replace("-", " ") + (f"\n{variant}" if variant else "")
        show(ax, renderer.silhouette(mesh, camera)[0], title)
    caption = (
        "One triangle, perturbed by each distribution: how far it reaches, inside and outside. Those that are not "
        "symmetric may be reversed, and distances squared."
    )
    return Picture(figure, caption)


def tconorms() -> Picture:
    """A mesh under T-conorms and steepnesses."""
    mesh, camera = icosphere(162), Camera.look_at(distance=2.7, elevation=20.0, fov=60.0)
    steepnesses = (10.0, 30.0, 100.0, 300.0)
    figure, axes = panels(len(AGGREGATIONS), len(steepnesses), height=8.0, width=8.0)
    cells = [(t, s) for t in AGGREGATIONS for s in steepnesses]
    for ax, ((name, p), steepness) in zip(axes, cells, strict=True):
        tconorm = softly.tnorms.get(name) if p is None else softly.tnorms.get(name, p=p)
        image = softly.Renderer(SIZE, distribution="logistic", steepness=steepness, tconorm=tconorm)
        label = {"minimum": "maximum"}.get(name, name.replace("_", "-")) + ("" if p is None else f", p = {p:g}")
        show(ax, image.silhouette(mesh, camera)[0], f"{label}\nsteepness {steepness:g}")
    return Picture(figure, "A sphere of 320 faces, each blurred by a logistic distribution, under four T-conorms.")


def fit() -> tuple[Picture, dict[str, float]]:
    """A sphere, fitted to the silhouettes of a pot."""
    truth, sphere = pot(), icosphere(642)
    truth = truth.at(0.75 * truth.vertices)
    azimuths, elevation = torch.arange(VIEWS) * (360.0 / VIEWS), torch.tensor([15.0, 45.0, -20.0]).repeat(VIEWS // 3)
    cameras = Camera.look_at(distance=2.7, elevation=elevation, azimuth=azimuths, fov=50.0)
    hard = softly.Renderer(SIZE, distribution="heaviside", tconorm="minimum")
    renderer = softly.Renderer(SIZE, distribution="logistic", steepness=60.0)
    target = hard.silhouette(truth, cameras)
    start = 0.6 * sphere.vertices
    offsets = torch.zeros_like(start, requires_grad=True)
    optimizer = torch.optim.Adam([offsets], lr=0.02, betas=(0.5, 0.95))
    snapshots, began = [start], time.perf_counter()
    for step in range(STEPS):
        renderer.steepness = 60.0 * (5.0 ** (step / STEPS))
        mesh = Mesh(start + offsets, sphere.faces)
        loss = iou_loss(renderer.silhouette(mesh, cameras), target).mean() + 0.02 * laplacian_loss(mesh).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step + 1 in (10, 30, STEPS):
            snapshots.append((start + offsets).detach())
    milliseconds = 1e3 * (time.perf_counter() - began) / STEPS
    overlap = [float(1 - iou_loss(hard.silhouette(Mesh(v, sphere.faces), cameras), target).mean()) for v in snapshots]
    front = Camera.look_at(distance=2.7, elevation=20.0, azimuth=20.0, fov=50.0)
    painter = softly.Renderer(128, shading="nearest", background=[1.0, 1.0, 1.0])
    light = Lights(ambient=0.35, direction=torch.tensor([0.4, 0.8, 0.6]), diffuse=0.65)
    titles = ("sphere", "10 steps", "30 steps", f"{STEPS} steps")
    figure, axes = panels(1, 5, height=2.3)
    for ax, vertices, title, share in zip(axes, snapshots, titles, overlap, strict=False):
        color = torch.tensor([0.94, 0.62, 0.3]).expand(sphere.vertices.shape[1], 3)
        show(
            ax, painter(Mesh(vertices, sphere.faces, vertex_colors=color), front, light)[0, :3], f"{title}, {share:.0%}"
        )
    color = torch.tensor([0.35, 0.55, 0.95]).expand(truth.vertices.shape[1], 3)
    painted = Mesh(truth.vertices, truth.faces, vertex_colors=color)
    show(axes[-1], painter(painted, front, light)[0, :3], "the pot")
    caption = f"A sphere of 1,280 faces becomes a pot, of which it sees {VIEWS} silhouettes."
    facts = {"milliseconds": milliseconds, "before": overlap[0], "after": overlap[-1]}
    return Picture(figure, caption), facts
