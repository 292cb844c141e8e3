"""What of the faces lies between the near and the far plane, as polygons of the image."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from softly import native
from softly.rendering.camera import Camera
from softly.rendering.mesh import Mesh


def polygons(mesh: Mesh, camera: Camera) -> tuple[Tensor, Tensor | None]:
    """The seen parts of all faces.

    A face that crosses a plane is cut to a convex polygon of up to five corners. One polygon, not two triangles: the
    distance from its border has no seam inside.

    Returns:
        (..., F, K, 2) Corners in the image, K = 3 where no face is known to cross a plane, otherwise 6 with some of
        them repeated; and (..., F) which faces are seen at all, None for all.
    """
    points, seen = camera.view(mesh.vertices), mesh.present
    known = native.data(points[..., 2])
    if known is not None and _between(known, camera):
        return mesh.corners(camera.to_image(points)), seen
    corners = mesh.corners(points)  # (..., F, 3, 3)
    depth = corners[..., 2]
    close, distant = depth < camera.near, depth > camera.far
    somewhere = ~(close.all(-1) | distant.all(-1))
    crossing = native.data(somewhere & (close | distant).any(-1))
    cut = corners if crossing is not None and not bool(crossing.any()) else _cut(corners, camera.near, camera.far)
    seen = somewhere if seen is None else somewhere & seen
    # What isn't seen is put where it can be projected; NaN stays.
    hidden = ~seen[..., None, None].expand_as(cut)
    safe = torch.where(hidden, cut.new_tensor([0.0, 0.0, max(camera.near, 1e-3)]), cut)
    return camera.to_image(safe.flatten(-3, -2)).unflatten(-2, safe.shape[-3:-1]), seen


def _between(depth: Tensor, camera: Camera) -> bool:
    if not depth.numel():
        return True
    low, high = torch.aminmax(depth)
    return low.item() >= camera.near and high.item() <= camera.far


def _cut(corners: Tensor, near: float, far: float) -> Tensor:
    """Cut every edge to the slab between the planes, (..., F, 3, 3) to (..., F, 6, 3).

    The ends of what is left of the three edges are the corners of what is left of the face, in order. Of a face of
    which something is left, at most one edge has nothing: its place is taken by the beginning of the next one.
    """
    start, end = corners, corners.roll(-1, -2)
    z0, z1 = start[..., 2], end[..., 2]
    rise = z1 - z0
    flat = rise == 0
    slope = torch.where(flat, 1.0, rise)

    def enters(z: Tensor, towards: Tensor) -> Tensor:
        """Where, between 0 and 1, the edge that begins at depth z is first inside."""
        share = torch.where(z < near, (near - z) / towards, 0.0)
        return share if far == math.inf else torch.where(z > far, (far - z) / towards, share)

    first = enters(z0, slope)
    last = 1.0 - enters(z1, -slope)
    gone = ((z0 < near) & (z1 < near)) | ((z0 > far) & (z1 > far))

    def at(share: Tensor) -> Tensor:
        share = torch.where(flat | gone, 0.0, share).unsqueeze(-1)
        point = start + share * (end - start)
        held = point[..., 2:].clamp(near, far)  # not a rounding beyond the plane
        return torch.cat([point[..., :2], torch.where(point[..., 2:].isnan(), point[..., 2:], held)], -1)

    begins, ends = at(first), at(torch.where(last == 1.0, 1.0, last))
    ends = torch.where((last == 1.0).unsqueeze(-1) & ~gone.unsqueeze(-1), end, ends)
    following = begins.roll(-1, -2)
    empty = gone.unsqueeze(-1)
    begins, ends = torch.where(empty, following, begins), torch.where(empty, following, ends)
    return torch.stack([begins, ends], -2).flatten(-3, -2)
