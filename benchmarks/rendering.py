"""Silhouettes and colours, forward and backward, of a mesh that a camera sees, against plain torch in chunks of pixels.

Torch takes minutes for what is measured, and as long for every pixel: it gets a sample of them, of a chunk or more.
Mitsuba 3 is measured beside it where it runs.
"""

import math
from collections.abc import Iterator

import torch

import softly
from benchmarks.baselines import mitsuba3
from benchmarks.baselines import rendering as baseline
from benchmarks.harness import Case, Function, OnThreads
from softly.rendering import Camera, Lights, Mesh, icosphere

VIEW = {"distance": 2.7, "elevation": 30.0, "azimuth": 45.0, "fov": 60.0}
SAMPLE = 1 << 19
"""How many pairs of pixels and faces torch sees."""


def ours(level: int, size: int, distribution: str, steepness: float, tconorm: str = "probabilistic") -> Function:
    mesh, camera = icosphere(level=level), Camera.look_at(**VIEW)
    vertices = mesh.vertices.clone().requires_grad_()
    renderer = softly.Renderer(size, distribution=distribution, steepness=steepness, tconorm=tconorm)

    def call() -> torch.Tensor:
        (gradient,) = torch.autograd.grad(renderer.silhouette(Mesh(vertices, mesh.faces), camera).sum(), vertices)
        return gradient

    return call


def plain(
    level: int, size: int, distribution: str, steepness: float, tconorm: str = "probabilistic"
) -> tuple[dict[str, Function], float]:
    """The same in torch on a sample of the pixels, and what share of them that is."""
    mesh = icosphere(level=level)
    triangles = baseline.project(mesh.vertices[0], mesh.faces, **VIEW).detach().requires_grad_()
    points = baseline.pixels(size)
    count = min(max(SAMPLE // len(mesh.faces), 1), len(points))
    chosen = points[torch.randperm(len(points), generator=torch.Generator().manual_seed(0))[:count]]
    options = (triangles, chosen, steepness, distribution, tconorm, SAMPLE)
    calls: dict[str, Function] = {
        "torch": lambda: baseline.step(*options),
        "torch, x and y apart": lambda: baseline.step(*options, baseline.signed_distance_apart),
    }
    share = count / len(points)
    return {f"{name}, from {share:.2%} of the pixels": call for name, call in calls.items()}, share


def blended(level: int, size: int, steepness: float, *, lit: bool = False) -> Case:
    """Colours that are blended over depth, also in the light of a lamp at every pixel."""
    mesh, camera, sharpness = icosphere(level=level), Camera.look_at(**VIEW), 1e4
    vertices, colors = (x.clone().requires_grad_() for x in (mesh.vertices, mesh.vertices.abs()))
    eye = -camera.rotation.mT @ camera.translation
    lights = Lights(ambient=0.0, points=eye.float(), point_diffuse=1.0) if lit else None
    renderer = softly.Renderer(size, distribution="logistic", steepness=steepness, depth_sharpness=sharpness)

    def ours() -> torch.Tensor:
        image = renderer(Mesh(vertices, mesh.faces, vertex_colors=colors), camera, lights)
        return torch.autograd.grad(image.sum(), (vertices, colors))[0]

    corners = baseline.view(mesh.vertices[0], mesh.faces, **VIEW).detach().requires_grad_()
    paint = mesh.vertices.abs()[0, mesh.faces].requires_grad_()
    points = baseline.pixels(size)
    count = min(max(SAMPLE // len(mesh.faces), 1), len(points))
    chosen = points[torch.randperm(len(points), generator=torch.Generator().manual_seed(0))[:count]]
    # The normals of a sphere around the origin are its vertices.
    light = ((mesh.vertices[0] @ camera.rotation.float().T)[mesh.faces], math.tan(math.radians(VIEW["fov"] / 2)))
    options = (corners, paint, chosen, steepness, sharpness, camera.near, SAMPLE, light if lit else None)
    share = count / len(points)
    name = f"torch, from {share:.2%} of the pixels"
    title = f"{len(mesh.faces):,} faces, {size}², colours{' in light' * lit} and opacity, {steepness:g}"
    return Case(title, ours, {name: lambda: baseline.blend_step(*options)[0]}, shares={name: share})


def mitsuba(level: int, size: int) -> dict[str, Function]:
    """The hard silhouette of the same scene and its gradient, by sampling."""
    mesh = icosphere(level=level)
    call = mitsuba3.silhouette(mesh.vertices[0], mesh.faces, size, **VIEW)
    return {f"Mitsuba 3, {mitsuba3.SAMPLES} samples a pixel": call}


def cases() -> Iterator[Case]:
    reason = mitsuba3.missing()
    for name, *arguments in (
        ("1,280 faces, 64², logistic, 100", 3, 64, "logistic", 100.0),
        ("1,280 faces, 256², logistic, 100", 3, 256, "logistic", 100.0),
        ("1,280 faces, 256², uniform, 10^1.5", 3, 256, "uniform", 10**1.5),
        ("1,280 faces, 64², cauchy, exact tails, 100", 3, 64, "cauchy", 100.0),
        ("1,280 faces, 256², cauchy, exact tails, 100", 3, 256, "cauchy", 100.0),
        ("20,480 faces, 256², logistic, 300", 5, 256, "logistic", 300.0),
        ("1,280 faces, 64², logistic, yager, 100", 3, 64, "logistic", 100.0, "yager"),
    ):
        peers, share = plain(*arguments)
        shares = dict.fromkeys(peers, share)
        if reason is None and "cauchy" not in name and "uniform" not in name and "yager" not in name:
            peers |= mitsuba(*arguments[:2])
        yield Case(name, ours(*arguments), peers, note=None if reason is None else lambda _: reason, shares=shares)
    yield blended(3, 64, 100.0)
    yield blended(3, 256, 100.0)
    yield blended(3, 64, 100.0, lit=True)
    yield blended(3, 256, 100.0, lit=True)
    one = ours(3, 256, "logistic", 100.0)
    yield Case("1,280 faces, 256², logistic, 100, two threads", OnThreads(2, one), {"softly, one thread": one})
