"""What the tests of rendering look at."""

import os
from pathlib import Path

import torch

from softly.rendering import Camera, Mesh, cube, icosphere, pot, torus

DISTRIBUTIONS = [
    *("uniform", "cubic_hermite", "wigner", "gaussian", "laplace", "logistic", "hyperbolic_secant", "cauchy"),
    *("reciprocal", "optimal", "gumbel_max", "gumbel_min", "exponential", "levy", "gamma"),
]
TCONORMS = [
    *(("minimum", None), ("probabilistic", None), ("einstein", None), ("lukasiewicz", None)),
    *((name, p) for name in ("hamacher", "frank", "yager", "aczel_alsina", "dombi") for p in (0.5, 2.0, 4.0)),
    *(("yager", 1.0), ("yager", 1.7), ("aczel_alsina", 1.0), ("dombi", 1.0)),
    *(("schweizer_sklar", p) for p in (-0.5, -1.0, -2.0, -4.0)),
]


def triangles(count: int, *, seed: int = 0, size: float = 0.5, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """(count, 3, 2) Random ones in the image."""
    generator = torch.Generator().manual_seed(seed)
    centres = 2 * torch.rand(count, 1, 2, generator=generator, dtype=torch.float64) - 1
    return (centres + size * torch.randn(count, 3, 2, generator=generator, dtype=torch.float64)).to(dtype)


def flat(corners: torch.Tensor) -> tuple[Mesh, Camera]:
    """A scene whose image has the triangles (..., F, 3, 2)."""
    vertices = torch.cat([corners, torch.zeros_like(corners[..., :1])], -1).flatten(-3, -2)
    faces = torch.arange(vertices.shape[-2]).view(-1, 3)
    return Mesh(vertices, faces), Camera.look_at(distance=2.0, orthographic=1.0)


def meshes() -> dict[str, Mesh]:
    """Generated ones, and what the folder that SOFTLY_DATA names has."""
    found = {"cube": cube(), "icosphere": icosphere(162), "pot": pot(), "torus": torus()}
    folder = Path(os.environ.get("SOFTLY_DATA", "")) / "meshes"
    for name in ("airplane", "chair_1", "teapot"):
        path = folder / f"{name}.obj"
        if path.is_file():
            found[name] = read(path)
    return found


def read(path: Path) -> Mesh:
    """The vertices and triangles of a file, by a few lines."""
    rows = [line.split() for line in path.read_text().splitlines()]
    vertices = torch.tensor([[float(v) for v in row[1:4]] for row in rows if row[:1] == ["v"]])
    faces = [[int(c.split("/")[0]) - 1 for c in row[1:]] for row in rows if row[:1] == ["f"]]
    corners = [[f[0], f[k], f[k + 1]] for f in faces for k in range(1, len(f) - 1)]
    middle = (vertices.amin(0) + vertices.amax(0)) / 2
    vertices = vertices - middle
    return Mesh(vertices / vertices.norm(dim=-1).max(), torch.tensor(corners))


def view(**arguments: float) -> Camera:
    return Camera.look_at(**{"distance": 3.0, "elevation": 25.0, "azimuth": 40.0, "fov": 45.0, **arguments})
