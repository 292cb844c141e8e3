"""Which face is nearest at a pixel, and where on it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from softly.rendering.camera import Camera
from softly.rendering.mesh import Mesh
from softly.rendering.silhouette import pixel_centres

_PAIRS = 1 << 21
"""How many pairs of pixels and faces are looked at in one go."""


class Buffers(NamedTuple):
    """What is seen at every pixel: of the nearest face its depth, normal, number, and where on it.

    Example:
        >>> camera = softly.rendering.Camera.look_at(distance=4.0)
        >>> found = softly.Renderer(image_size=3).buffers(softly.rendering.cube(), camera)
        >>> found.depth[0, 1, 1], found.normals[0, 1, 1], found.faces[0, 0, 0]
        (tensor(3.), tensor([0., 0., 1.]), tensor(-1))
    """

    depth: Tensor
    """(..., H, W) Along the camera's axis; inf where nothing is."""
    normals: Tensor
    """(..., H, W, 3) In the world; 0 where nothing is."""
    faces: Tensor
    """(..., H, W) -1 where nothing is."""
    barycentrics: Tensor
    """(..., H, W, 3) Weights of the face's vertices; 0 where nothing is."""


class Surface:
    """The faces of a mesh before a camera: depths and barycentric coordinates of pixels on them."""

    def __init__(self, mesh: Mesh, camera: Camera) -> None:
        points = camera.view(mesh.vertices)
        flat = torch.cat([points[..., :2], torch.ones_like(points[..., 2:])], -1) if camera.orthographic else points
        scale = torch.cat([camera.focal.to(points), torch.ones_like(camera.focal[..., :1]).to(points)], -1)
        homogeneous = flat * scale.unsqueeze(-2)
        if camera.centre is not None:
            moved = camera.centre.to(points).unsqueeze(-2) * homogeneous[..., 2:]
            homogeneous = torch.cat([homogeneous[..., :2] + moved, homogeneous[..., 2:]], -1)
        self.depths = mesh.corners(points[..., 2:]).squeeze(-1)  # (..., F, 3)
        corners = mesh.corners(homogeneous)
        a, b, c = corners.unbind(-2)
        # What a face without area, seen from its side, may span by rounding alone.
        square = corners.detach().square().sum(-1).amax(-1)
        self.rounding = 16 * torch.finfo(points.dtype).eps * square  # (..., F)
        # A pixel (x, y, 1) spans a volume with every edge: in proportion to the weight of the corner opposite.
        self.sides = torch.stack([torch.linalg.cross(b, c), torch.linalg.cross(c, a), torch.linalg.cross(a, b)], -2)
        self.front = (torch.linalg.cross(a, b) * c).sum(-1) > 0  # seen counter-clockwise
        self.near, self.far, self.present = camera.near, camera.far, mesh.present

    def hits(self, points: Tensor, *, double_sided: bool) -> tuple[Tensor, Tensor]:
        """(..., P) The nearest face at points (P, 2), and whether there is one."""
        rays = torch.cat([points, torch.ones_like(points[:, :1])], -1)
        volumes = torch.einsum("pi,...fki->...pfk", rays, self.sides)
        total = volumes.sum(-1, keepdim=True)
        weights = volumes / torch.where(total == 0, 1.0, total)
        slack = 64 * torch.finfo(weights.dtype).eps  # so that faces that share an edge leave no gap
        depth = (weights * self.depths.unsqueeze(-3)).sum(-1)
        hit = (weights >= -slack).all(-1) & (total.squeeze(-1).abs() > self.rounding.unsqueeze(-2))
        hit = hit & (depth >= self.near) & (depth <= self.far)
        if not double_sided:
            hit = hit & self.front.unsqueeze(-2)
        if self.present is not None:
            hit = hit & self.present.unsqueeze(-2)
        nearest = torch.where(hit, depth, torch.inf)
        if not nearest.shape[-1]:
            none = torch.zeros(nearest.shape[:-1], dtype=torch.long, device=nearest.device)
            return none, none.bool()
        index = nearest.argmin(-1)
        return index, hit.any(-1)

    def at(self, points: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """(..., P, 3), (..., P) Weights and depths of points (P, 2) on given faces, differentiable."""
        rays = torch.cat([points, torch.ones_like(points[:, :1])], -1)
        volumes = (chosen(self.sides, index, 2) * rays.unsqueeze(-2)).sum(-1)
        total = volumes.sum(-1, keepdim=True)
        weights = volumes / torch.where(total == 0, 1.0, total)
        return weights, (weights * chosen(self.depths, index, 1)).sum(-1)


def chosen(values: Tensor, index: Tensor, channels: int) -> Tensor:
    """(..., P, ...) The values (..., F, ...) of the faces (..., P), which have so many dimensions of their own."""
    own = values.shape[values.ndim - channels :]
    flat = values.flatten(values.ndim - channels) if channels else values.unsqueeze(-1)
    batch = torch.broadcast_shapes(flat.shape[:-2], index.shape[:-1])
    where = index.expand(*batch, index.shape[-1]).unsqueeze(-1).expand(*batch, index.shape[-1], flat.shape[-1])
    found = flat.expand(*batch, *flat.shape[-2:]).gather(-2, where)
    return found.reshape(*batch, index.shape[-1], *own)


def buffers(mesh: Mesh, camera: Camera, height: int, width: int, *, double_sided: bool) -> Buffers:
    """What is seen at every pixel."""
    surface = Surface(mesh, camera)
    points = pixel_centres(height, width, mesh.vertices)
    step = max(_PAIRS // max(surface.depths.numel() // 3, 1), 1)
    with torch.no_grad():
        found = [surface.hits(part, double_sided=double_sided) for part in points.split(step)]
    index, hit = torch.cat([f for f, _ in found], -1), torch.cat([h for _, h in found], -1)
    if not mesh.faces.shape[-2]:
        shape = (*index.shape[:-1], height, width)
        none = mesh.vertices.new_zeros(*shape, 3)
        return Buffers(torch.full_like(none[..., 0], torch.inf), none, index.reshape(shape) - 1, none)
    weights, depth = surface.at(points, index)
    normals = chosen(mesh.normals(), index, 1)
    sheet = lambda x: x.unflatten(hit.ndim - 1, (height, width))  # noqa: E731
    return Buffers(
        sheet(torch.where(hit, depth, torch.inf)),
        sheet(torch.where(hit.unsqueeze(-1), normals, 0.0)),
        sheet(torch.where(hit, index, -1)),
        sheet(torch.where(hit.unsqueeze(-1), weights, 0.0)),
    )
