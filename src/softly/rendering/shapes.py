"""Meshes that need no file."""

from __future__ import annotations

import math

import torch

from softly import _inputs
from softly.rendering.mesh import Mesh

__all__ = ["cube", "icosphere", "pot", "torus"]


def icosphere(vertices: int | None = None, *, level: int | None = None) -> Mesh:
    """The unit sphere, an icosahedron whose faces are divided by four ``level`` times: 20 · 4^level of them.

    All vertices have length 1, and as the level grows the faces tend to the sphere.

    Args:
        vertices: How many vertices: 12, 42, 162, 642, 2562, 10242, ...
        level: The same as a number of divisions, from 0.

    Example:
        >>> softly.rendering.icosphere(642)
        Mesh(1 of 642 vertices and 1280 faces)
    """
    name = "softly.rendering.icosphere"
    if (vertices is None) == (level is None):
        raise ValueError(f"{name}: give vertices or level, got {'none' if level is None else 'both'}.")
    if level is None:
        assert vertices is not None
        vertices = _inputs.integer(vertices, name, "vertices")
        level = next((k for k in range(9) if 10 * 4**k + 2 == vertices), None)
        if level is None:
            raise ValueError(f"{name}: vertices must be 10 · 4^level + 2 (12, 42, 162, 642, ...), got {vertices}.")
    level = _inputs.integer(level, name, "level")
    if not 0 <= level <= 8:
        raise ValueError(f"{name}: level must be in [0, 8], got {level}.")
    g = (1.0 + math.sqrt(5.0)) / 2.0
    corners: list[tuple[float, float, float]] = [
        (-1, g, 0),
        (1, g, 0),
        (-1, -g, 0),
        (1, -g, 0),
        (0, -1, g),
        (0, 1, g),
        (0, -1, -g),
        (0, 1, -g),
    ]
    corners += [(g, 0, -1), (g, 0, 1), (-g, 0, -1), (-g, 0, 1)]
    points = torch.nn.functional.normalize(torch.tensor(corners, dtype=torch.float64), dim=-1)
    faces = torch.tensor(
        [
            *([0, 11, 5], [0, 5, 1], [0, 1, 7], [0, 7, 10], [0, 10, 11], [1, 5, 9], [5, 11, 4], [11, 10, 2]),
            *([10, 7, 6], [7, 1, 8], [3, 9, 4], [3, 4, 2], [3, 2, 6], [3, 6, 8], [3, 8, 9], [4, 9, 5], [2, 4, 11]),
            *([6, 2, 10], [8, 6, 7], [9, 8, 1]),
        ]
    )
    for _ in range(level):
        points, faces = _divided(points, faces)
    return Mesh(points.to(torch.get_default_dtype()), faces)


def _divided(points: torch.Tensor, faces: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Every face in four, with new vertices in the middle of the edges, drawn onto the sphere."""
    edges = torch.cat([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]).sort(-1).values
    unique, inverse = torch.unique(edges, dim=0, return_inverse=True)
    middle = torch.nn.functional.normalize(points[unique].sum(1), dim=-1)
    ab, bc, ca = (len(points) + inverse).view(3, -1)
    a, b, c = faces.unbind(-1)
    parts = [(a, ab, ca), (b, bc, ab), (c, ca, bc), (ab, bc, ca)]
    return torch.cat([points, middle]), torch.stack([torch.stack(p, -1) for p in parts], 1).flatten(0, 1)


def cube() -> Mesh:
    """The cube from -1 to 1: 8 vertices and 12 faces, two for each side.

    Example:
        >>> softly.rendering.cube().vertices.abs().max()
        tensor(1.)
    """
    points = torch.tensor([[x, y, z] for z in (-1.0, 1.0) for y in (-1.0, 1.0) for x in (-1.0, 1.0)])
    sides = [[4, 5, 7, 6], [1, 0, 2, 3], [5, 1, 3, 7], [0, 4, 6, 2], [6, 7, 3, 2], [0, 1, 5, 4]]
    faces = [face for a, b, c, d in sides for face in ((a, b, c), (a, c, d))]
    return Mesh(points, torch.tensor(faces))


def torus(*, radius: float = 0.7, tube: float = 0.3, around: int = 32, across: int = 16) -> Mesh:
    """A ring around the y axis, a surface with a hole.

    Every vertex is at distance ``tube`` from the circle of ``radius`` in the plane y = 0.

    Example:
        >>> softly.rendering.torus()
        Mesh(1 of 512 vertices and 1024 faces)
    """
    name = "softly.rendering.torus"
    around, across = _inputs.integer(around, name, "around"), _inputs.integer(across, name, "across")
    if min(around, across) < 3:
        raise ValueError(f"{name}: around and across must be at least 3, got {around} and {across}.")
    for length, argument in ((radius, "radius"), (tube, "tube")):
        if not 0 < _inputs.number(length, name, argument) < math.inf:
            raise ValueError(f"{name}: {argument} must be positive and finite, got {length}.")
    u = torch.arange(around, dtype=torch.float64).unsqueeze(1) * (2 * math.pi / around)
    v = torch.arange(across, dtype=torch.float64) * (2 * math.pi / across)
    reach = radius + tube * v.cos()
    points = torch.stack([reach * u.sin(), (tube * v.sin()).expand(around, across), reach * u.cos()], -1)
    return Mesh(points.flatten(0, 1).to(torch.get_default_dtype()), _grid(around, across, closed=True))


def pot(*, around: int = 32) -> Mesh:
    """A teapot-like body: a bellied pot with a spout and a handle, of one closed surface for each.

    It has no symmetry of rotation, so that its silhouette tells where it is seen from.

    Example:
        >>> bool(softly.rendering.pot().vertices.abs().max() < 1.3)
        True
    """
    around = _inputs.integer(around, "softly.rendering.pot", "around")
    if around < 3:
        raise ValueError(f"softly.rendering.pot: around must be at least 3, got {around}.")
    profile = [(0.0, -0.55), (0.45, -0.55), (0.68, -0.3), (0.7, 0.0), (0.55, 0.3), (0.35, 0.45), (0.3, 0.5)]
    profile += [(0.12, 0.56), (0.12, 0.65), (0.0, 0.7)]
    radii, heights = torch.tensor(profile, dtype=torch.float64).unbind(-1)
    u = torch.arange(around, dtype=torch.float64).unsqueeze(1) * (2 * math.pi / around)
    body = torch.stack([radii * u.sin(), heights.expand(around, -1), radii * u.cos()], -1).flatten(0, 1)
    spout = _tube([(0.55, -0.25), (0.8, -0.15), (0.95, 0.15), (1.15, 0.35)], [0.2, 0.15, 0.1, 0.07], 12)
    handle = _tube([(-0.6, 0.25), (-0.95, 0.3), (-1.1, 0.0), (-0.95, -0.3), (-0.62, -0.3)], [0.07] * 5, 10)
    parts = [(body, _grid(around, len(profile), closed=False)), spout, handle]
    points, faces, start = [], [], 0
    for part, found in (_welded(*part) for part in parts):
        points.append(part)
        faces.append(found + start)
        start += len(part)
    return Mesh(torch.cat(points).to(torch.get_default_dtype()), torch.cat(faces))


def _welded(points: torch.Tensor, faces: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same surface with one vertex at every place, such as a pole, and without faces that have one twice."""
    places, index = torch.unique(points, dim=0, return_inverse=True)
    faces = index[faces]
    apart = (faces != faces.roll(1, -1)).all(-1)
    return places, faces[apart]


def _tube(path: list[tuple[float, float]], radii: list[float], around: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Circles along a path in the plane z = 0, closed to a point at both ends."""
    line = torch.tensor(path, dtype=torch.float64)
    along = torch.nn.functional.normalize(torch.gradient(line, dim=0)[0], dim=-1)
    across = torch.stack([-along[:, 1], along[:, 0]], -1)
    width = torch.tensor([0.0, *radii, 0.0], dtype=torch.float64)
    ends = lambda x: torch.cat([x[:1], x, x[-1:]])  # noqa: E731
    u = torch.arange(around, dtype=torch.float64).view(-1, 1, 1) * (2 * math.pi / around)
    flat = ends(line) + u.cos() * width.unsqueeze(-1) * ends(across)
    points = torch.cat([flat, (u.sin() * width.unsqueeze(-1))], -1)
    return points.flatten(0, 1), _grid(around, len(width), closed=False)


def _grid(rows: int, columns: int, *, closed: bool) -> torch.Tensor:
    """Two faces for each cell of a grid whose rows, and columns where ``closed``, go around."""
    i, j = torch.meshgrid(torch.arange(rows), torch.arange(columns if closed else columns - 1), indexing="ij")
    at = lambda di, dj: ((i + di) % rows * columns + (j + dj) % columns).flatten()  # noqa: E731
    a, b, c, d = at(0, 0), at(1, 0), at(1, 1), at(0, 1)
    return torch.cat([torch.stack([a, b, c], -1), torch.stack([a, c, d], -1)])
