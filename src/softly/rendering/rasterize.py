"""Which face is nearest at a pixel, and where on it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from softly import native
from softly.rendering.camera import Camera
from softly.rendering.mesh import Mesh
from softly.rendering.silhouette import exact, pixel_centres
from softly.rendering.vectors import inverse

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

    def to(self, dtype: torch.dtype) -> Buffers:
        """The same in another precision.

        Example:
            >>> camera = softly.rendering.Camera.look_at(distance=4.0)
            >>> softly.Renderer(image_size=3).buffers(softly.rendering.cube(), camera).to(torch.float64).depth.dtype
            torch.float64
        """
        return Buffers(self.depth.to(dtype), self.normals.to(dtype), self.faces, self.barycentrics.to(dtype))


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
        self.corners = corners = mesh.corners(homogeneous)
        a, b, c = corners.unbind(-2)
        # What a face without area, seen from its side, may span by rounding alone.
        square = corners.detach().square().sum(-1).amax(-1)
        self.rounding = 16 * torch.finfo(points.dtype).eps * square  # (..., F)
        # A pixel (x, y, 1) spans a volume with every edge: in proportion to the weight of the corner opposite.
        self.sides = torch.stack([torch.linalg.cross(b, c), torch.linalg.cross(c, a), torch.linalg.cross(a, b)], -2)
        # Seen counter-clockwise, but for cameras that mirror what they see.
        handed = (inverse(camera.rotation.detach().to(points))[1] * scale.detach().prod(-1)).unsqueeze(-1)
        self.front = (torch.linalg.cross(a, b) * c).sum(-1) * handed > 0
        self.near, self.far, self.present = camera.near, camera.far, mesh.present

    def nearest(self, height: int, width: int, *, double_sided: bool) -> Tensor:
        """(..., height · width) The nearest face at every pixel, -1 where there is none."""
        usable = torch.ones_like(self.front) if double_sided else self.front
        if self.present is not None:
            usable = usable & self.present
        batch = torch.broadcast_shapes(self.sides.shape[:-2], usable.shape)
        tensors = (
            self.sides.detach().expand(*batch, 3, 3),
            self.depths.detach().expand(*batch, 3),
            self.corners.detach().expand(*batch, 3, 3),
            self.rounding.expand(batch),
        )
        return _nearest(*tensors, usable.expand(batch), height, width, self.near, self.far)

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
    """What is seen at every pixel; of volumes that faces much smaller than a pixel span, single precision has none."""
    dtype, mesh = mesh.vertices.dtype, mesh.at(exact(mesh.vertices))
    surface = Surface(mesh, camera)
    points = pixel_centres(height, width, mesh.vertices)
    found = surface.nearest(height, width, double_sided=double_sided)
    index, hit = found.clamp(min=0), found >= 0
    if not mesh.faces.shape[-2]:
        shape = (*index.shape[:-1], height, width)
        none = mesh.vertices.new_zeros(*shape, 3)
        return Buffers(torch.full_like(none[..., 0], torch.inf), none, found.reshape(shape), none).to(dtype)
    weights, depth = surface.at(points, index)
    normals = chosen(mesh.normals(), index, 1)
    sheet = lambda x: x.unflatten(hit.ndim - 1, (height, width))  # noqa: E731
    return Buffers(
        sheet(torch.where(hit, depth, torch.inf)),
        sheet(torch.where(hit.unsqueeze(-1), normals, 0.0)),
        sheet(torch.where(hit, index, -1)),
        sheet(torch.where(hit.unsqueeze(-1), weights, 0.0)),
    ).to(dtype)


# The kernel ------------------------------------------------------------------------------------------------------


def _reference(
    sides: Tensor,
    depths: Tensor,
    corners: Tensor,
    rounding: Tensor,
    usable: Tensor,
    height: int,
    width: int,
    near: float,
    far: float,
) -> Tensor:
    points = pixel_centres(height, width, sides)
    if not usable.shape[-1]:
        return torch.full((*usable.shape[:-1], len(points)), -1, dtype=torch.long, device=sides.device)
    rays = torch.cat([points, torch.ones_like(points[:, :1])], -1)
    slack = 64 * torch.finfo(sides.dtype).eps  # so that faces that share an edge leave no gap
    parts = []
    for part in rays.split(max(_PAIRS // max(usable.numel(), 1), 1)):
        volumes = torch.einsum("pi,...fki->...pfk", part, sides)
        total = volumes.sum(-1, keepdim=True)
        weights = volumes / torch.where(total == 0, 1.0, total)
        depth = (weights * depths.unsqueeze(-3)).sum(-1)
        hit = (weights >= -slack).all(-1) & (total.squeeze(-1).abs() > rounding.unsqueeze(-2)) & usable.unsqueeze(-2)
        hit = hit & (depth >= near) & (depth <= far)
        index = torch.where(hit, depth, torch.inf).argmin(-1)
        parts.append(torch.where(hit.any(-1), index, -1))
    return torch.cat(parts, -1)


def _shape(
    sides: Tensor,
    depths: Tensor,
    corners: Tensor,
    rounding: Tensor,
    usable: Tensor,
    height: int,
    width: int,
    *rest: float,
) -> Tensor:
    return usable.new_empty((*usable.shape[:-1], height * width), dtype=torch.long)


def _forward(
    sides: Tensor,
    depths: Tensor,
    corners: Tensor,
    rounding: Tensor,
    usable: Tensor,
    height: int,
    width: int,
    near: float,
    far: float,
) -> Tensor:
    found = _shape(sides, depths, corners, rounding, usable, height, width)
    pointers = tuple(x.data_ptr() for x in (sides, depths, corners, rounding, usable))
    sizes = (usable.shape[:-1].numel(), usable.shape[-1], height, width, near, far)
    if not native.kernel("rasterize", sides.dtype)(*pointers, *sizes, found.data_ptr(), torch.get_num_threads()):
        raise MemoryError(f"softly.Renderer: no memory for {sizes[0]} × {sizes[1]} faces.")
    return found


def _check(
    sides: Tensor,
    depths: Tensor,
    corners: Tensor,
    rounding: Tensor,
    usable: Tensor,
    height: int,
    width: int,
    near: float,
    far: float,
) -> None:
    shape = tuple(usable.shape)
    for name, tensor, own in (("sides", sides, (3, 3)), ("depths", depths, (3,)), ("corners", corners, (3, 3)),
                              ("rounding", rounding, ())):  # fmt: skip
        if tuple(tensor.shape) != (*shape, *own) or tensor.dtype != sides.dtype:
            raise ValueError(
                f"softly.Renderer: {name} must have shape {(*shape, *own)} and be {sides.dtype}, got "
                f"{tuple(tensor.shape)} of {tensor.dtype}."
            )
    if usable.dtype != torch.bool or usable.ndim < 1:
        raise ValueError(f"softly.Renderer: usable must be boolean of shape (..., F), got {shape} of {usable.dtype}.")
    if min(height, width) < 1:
        raise ValueError(f"softly.Renderer: the image's size must be positive, got {(height, width)}.")


_nearest = native.Operator(
    "rasterize",
    forward=_forward,
    shape=_shape,
    backward=None,
    reference=_reference,
    check=_check,
    tensors=4,
)
