"""Meshes as voxels, to compare what they enclose."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from softly import _inputs
from softly.rendering.mesh import Mesh

__all__ = ["voxel_iou", "voxelize"]

_PAIRS = 1 << 22


def voxelize(mesh: Mesh, resolution: int = 32, *, extent: float = 0.5) -> Tensor:
    """Which voxels of a cube around the origin have their centre inside of a closed mesh.

    A point is inside where the surface winds around it: holes are outside, and parts may overlap.

    Args:
        mesh: Closed, its faces counter-clockwise from outside.
        resolution: How many voxels a side.
        extent: The cube goes from -extent to extent.

    Returns:
        (..., resolution, resolution, resolution) Boolean, by x, y and z.

    Example:
        >>> inside = softly.rendering.voxelize(softly.rendering.icosphere(162), 16, extent=1.0)
        >>> round(float(inside.sum()) * (2 / 16) ** 3, 1)  # the sphere's volume is 4.2
        4.1
    """
    name = "softly.rendering.voxelize"
    resolution = _inputs.integer(resolution, name, "resolution")
    if resolution < 1:
        raise ValueError(f"{name}: resolution must be at least 1, got {resolution}.")
    extent = _inputs.number(extent, name, "extent")
    if not 0 < extent < math.inf:
        raise ValueError(f"{name}: extent must be positive and finite, got {extent}.")
    if bool(mesh.vertices.isnan().any()):
        raise ValueError(f"{name}: vertices must be numbers, got NaN, which is neither inside nor outside.")
    with torch.no_grad():
        corners = mesh.corners().double()
        present = mesh.present
        if present is not None:
            corners = torch.where(present[..., None, None], corners, 0.0)
        centres = ((torch.arange(resolution).double() + 0.5) * (2.0 / resolution) - 1.0) * extent
        winding = _winding(corners.flatten(0, -4), centres.to(corners.device), extent)
        return (winding != 0).reshape(*corners.shape[:-3], resolution, resolution, resolution)


def _winding(corners: Tensor, levels: Tensor, extent: float) -> Tensor:
    """(B, X, Y, Z) How often surfaces (B, F, 3, 3) wind around points: by the crossings above them, along z."""
    count, size = len(corners), len(levels)
    owner = torch.arange(count, device=corners.device).repeat_interleave(corners.shape[1])
    corners = corners.flatten(0, 1)
    low, high = corners[..., 0].aminmax(dim=-1)
    # A little beside the centres, since rays through vertices and edges would count them twice.
    y = levels + 2.9e-7 * extent
    turns = torch.zeros(count, size, size, size + 1, dtype=torch.int32, device=corners.device)
    for column, x in enumerate((levels + 1.3e-7 * extent).tolist()):
        reached = ((low <= x) & (x <= high)).nonzero().squeeze(-1)
        for faces in reached.split(max(_PAIRS // size, 1)):
            face, row, height, turn = _crossings(corners[faces], x, y)
            # A crossing is above as many centres as are lower than it.
            place = owner[faces[face]], torch.full_like(row, column), row, torch.searchsorted(levels, height)
            turns.index_put_(place, turn, accumulate=True)
    return turns.flip(-1).cumsum(-1, dtype=torch.int32).flip(-1)[..., 1:]


def _crossings(corners: Tensor, x: float, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Where lines along z through x and each of y cross faces (F, 3, 3): face, line, height, and +1 for out of it."""
    a, b, c = corners.unsqueeze(-2).unbind(-3)  # (F, 1, 3)

    def side(p: Tensor, q: Tensor) -> Tensor:
        return (q[..., 0] - p[..., 0]) * (y - p[..., 1]) - (q[..., 1] - p[..., 1]) * (x - p[..., 0])

    sides = torch.stack([side(b, c), side(c, a), side(a, b)], -1)
    up, down = (sides > 0).all(-1), (sides < 0).all(-1)
    face, row = (up | down).nonzero(as_tuple=True)
    weights = sides[face, row]
    height = (weights * corners[face, :, 2]).sum(-1) / weights.sum(-1)
    return face, row, height, up[face, row].int() * 2 - 1


def voxel_iou(one: Tensor, other: Tensor) -> Tensor:
    """Intersection over union of voxels, (...) for (..., X, Y, Z) boolean; 1 where both are empty.

    Example:
        >>> half = torch.tensor([[[True, True], [False, False]]])
        >>> softly.rendering.voxel_iou(half, torch.tensor([[[True, False], [False, False]]]))
        tensor(0.5000)
    """
    name = "softly.rendering.voxel_iou"
    for voxels, argument in ((one, "one"), (other, "other")):
        if not isinstance(voxels, Tensor) or voxels.dtype != torch.bool:
            kind = voxels.dtype if isinstance(voxels, Tensor) else type(voxels).__name__
            raise TypeError(f"{name}: {argument} must be a boolean tensor, got {kind}.")
        if voxels.ndim < 3:
            raise ValueError(f"{name}: {argument} must have shape (..., X, Y, Z), got {tuple(voxels.shape)}.")
    if one.shape[-3:] != other.shape[-3:]:
        raise ValueError(
            f"{name}: other must have as many voxels as one, {tuple(one.shape[-3:])}, got {tuple(other.shape[-3:])}."
        )
    _inputs.together(name, one=one.shape[:-3], other=other.shape[:-3])
    both, either = (one & other).sum((-3, -2, -1)), (one | other).sum((-3, -2, -1))
    return torch.where(either > 0, both / either.clamp(min=1), 1.0)
