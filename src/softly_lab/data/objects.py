"""Objects of several classes, seen from all sides: what shapes are reconstructed from.

A stand-in for the chapters' renderings of ShapeNet, which can't be had: 93 meshes of ten classes, or generated shapes
in several proportions, white in white light. What an object fills is its visual hull, all that no silhouette cuts off,
since many of the meshes are not closed.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

import softly
from softly.rendering import Camera, Lights, Mesh, voxelize
from softly_lab.data import available, folder, meshes, readable

DISTANCE, FOV, ELEVATION = 2.732, 30.0, 30.0
VOXELS, EXTENT = 32, 0.5
_CARVED_FROM = (-60.0, -30.0, 0.0, 30.0, 60.0, 90.0)
_LIGHTS = Lights(ambient=0.4, direction=torch.tensor([0.5, 1.0, 0.7]), diffuse=0.6)


@dataclass(frozen=True)
class Objects:
    """Objects in one order.

    Attributes:
        images: (n, views, 4, size, size) Red, green and blue on black, and as opacity the hard silhouette, 0 or 1.
        hulls: (n, 32, 32, 32) Which voxels of the cube from -0.5 to 0.5 they fill.
        labels: (n,) Their classes.
        classes: The classes' names.
        kind: What they are, for tables.
    """

    images: Tensor
    hulls: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    kind: str

    def __len__(self) -> int:
        return len(self.images)

    def at(self, chosen: Tensor) -> "Objects":
        """Some of them."""
        return Objects(self.images[chosen], self.hulls[chosen], self.labels[chosen], self.classes, self.kind)


def camera(view: Tensor, views: int, elevation: float = ELEVATION) -> Camera:
    """The cameras of some of so many views around an object, which begin in front."""
    return Camera.look_at(distance=DISTANCE, elevation=elevation, azimuth=view * (360.0 / views), fov=FOV)


def load(size: int, views: int, *, generated: bool = False, each: int | None = None) -> tuple[Objects, Objects]:
    """Objects to learn from and others to test on, every fifth of a class; at most ``each`` of a class."""
    generated = generated or not available("shapenet-subset")
    found = _generated(each or 10) if generated else _shapenet(each)
    kind = "generated shapes" if generated else "93 meshes of ShapeNet" if each is None else "some meshes of ShapeNet"
    images, hulls, labels, held = [], [], [], []
    with torch.no_grad():
        for label, group in enumerate(found.values()):
            for place, mesh in enumerate(group):
                images.append(rendered(mesh, camera(torch.arange(views), views), size))
                hulls.append(hull(mesh))
                labels.append(label)
                held.append(place % 5 == 4)
    both = Objects(torch.stack(images), torch.stack(hulls), torch.tensor(labels), tuple(found),
                   f"renderings and visual hulls of {kind} (stand-in for those of all of ShapeNet)")  # fmt: skip
    test = torch.tensor(held)
    return both.at(~test), both.at(test)


def rendered(mesh: Mesh, cameras: Camera, size: int) -> Tensor:
    """(n, 4, size, size) A mesh from n cameras, white in the light, with its hard silhouette as opacity."""
    # Flat: surfaces of ShapeNet are often two, back to back, and the mean of their normals points anywhere.
    white = Mesh(mesh.vertices, mesh.faces, face_colors=torch.ones(mesh.faces.shape))
    return softly.Renderer(size, shading="nearest", straight_through=True)(white, cameras, _LIGHTS)


def hull(mesh: Mesh, size: int = 256) -> Tensor:
    """(32, 32, 32) The voxels that all silhouettes touch, from 12 azimuths of six elevations.

    A silhouette touches a voxel whose centre is less than about a fifth of a voxel outside of it: legs and wings are
    thinner than voxels, and would be cut off otherwise.
    """
    line = ((torch.arange(VOXELS) + 0.5) * (2.0 / VOXELS) - 1.0) * EXTENT
    points = torch.cartesian_prod(line, line, line)
    inside = torch.ones(len(points), dtype=torch.bool)
    hard = softly.Renderer(size, straight_through=True)
    for elevation in _CARVED_FROM:
        cameras = camera(torch.arange(12), 12, elevation)
        seen = cameras.project(points)[..., :2]  # (12, points, 2)
        column, row = ((seen * seen.new_tensor([1.0, -1.0]) + 1.0) * (size / 2)).floor().long().unbind(-1)
        there = ((column >= 0) & (column < size) & (row >= 0) & (row < size)).all(0)
        place = row.clamp(0, size - 1) * size + column.clamp(0, size - 1)
        touched = torch.nn.functional.max_pool2d(hard.silhouette(mesh, cameras), 3, stride=1, padding=1)
        inside &= there & (touched.flatten(1).gather(1, place) > 0).all(0)
    return inside.reshape(VOXELS, VOXELS, VOXELS)


def filled(mesh: Mesh) -> Tensor:
    """(..., 32, 32, 32) The voxels of closed meshes."""
    return voxelize(mesh, VOXELS, extent=EXTENT)


def _shapenet(each: int | None) -> dict[str, list[Mesh]]:
    found: dict[str, list[Mesh]] = {}
    path = folder("shapenet-subset") / "shapenet100_vf.npz"
    with readable(path), path.open("rb") as content, np.load(content) as file:
        for name in sorted(key[:-2] for key in file.files if key.endswith("/v")):
            group = found.setdefault(name.split("/")[0], [])
            if each is None or len(group) < each:
                vertices, faces = torch.from_numpy(file[f"{name}/v"]), torch.from_numpy(file[f"{name}/f"]).long()
                group.append(Mesh(vertices, faces))
    return found


def _generated(each: int) -> dict[str, list[Mesh]]:
    """Generated meshes in drawn proportions, about as large as ShapeNet's."""
    generator = torch.Generator().manual_seed(0)
    found: dict[str, list[Mesh]] = {}
    for what, make in meshes.STAND_INS.values():
        mesh = make()
        unit = mesh.vertices / (2.4 * mesh.vertices.abs().max())
        scales = 0.6 + 0.4 * torch.rand(each, 3, generator=generator)
        found[what] = [mesh.at(unit * scale) for scale in scales]
    return found
