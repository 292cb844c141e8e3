"""Meshes of the rendering tasks, and generated ones that stand in for them where they are not there."""

import torch

from softly.rendering import Mesh, cube, icosphere, pot
from softly_lab.data import available, folder


def _wings() -> Mesh:
    """A body with wings and a tail, about as large as the airplane."""
    ball = icosphere(162)
    body = ball.vertices[0] * ball.vertices.new_tensor([0.06, 0.06, 0.45])
    boxes = [((0.0, 0.0, 0.05), (0.42, 0.02, 0.08)), ((0.0, 0.0, -0.38), (0.16, 0.02, 0.04)),
             ((0.0, 0.08, -0.38), (0.015, 0.1, 0.05))]  # fmt: skip
    return _together([(body, ball.faces)], boxes)


def _stool() -> Mesh:
    """A seat with a back and four legs."""
    legs = [((x, -0.35, z), (0.04, 0.25, 0.04)) for x in (-0.26, 0.26) for z in (-0.26, 0.26)]
    return _together([], [((0.0, -0.05, 0.0), (0.3, 0.05, 0.3)), ((0.0, 0.3, -0.27), (0.3, 0.3, 0.03)), *legs])


def _together(
    parts: list[tuple[torch.Tensor, torch.Tensor]],
    boxes: list[tuple[tuple[float, float, float], tuple[float, float, float]]],
) -> Mesh:
    """Parts, and boxes by their centres and half sides, as one mesh."""
    box = cube()
    for centre, half in boxes:
        sides = box.vertices[0] * box.vertices.new_tensor(half)
        parts.append((sides + box.vertices.new_tensor(centre), box.faces))
    points, faces, start = [], [], 0
    for vertices, found in parts:
        points.append(vertices)
        faces.append(found + start)
        start += len(vertices)
    return Mesh(torch.cat(points), torch.cat(faces))


# What can be asked for, and what stands in for it.
STAND_INS = {"airplane": ("wings", _wings), "teapot": ("a pot", pot), "chair_1": ("a stool", _stool)}


def load(name: str, *, generated: bool = False) -> tuple[Mesh, str]:
    """A mesh, and what it is, for tables; what is generated is a stand-in, and said to be one."""
    what, make = STAND_INS[name]
    if generated or not available("meshes"):
        return make(), f"{what} (stand-in for {name})"
    return Mesh.load(folder("meshes") / f"{name}.obj"), name
