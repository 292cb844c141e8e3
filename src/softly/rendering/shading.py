"""Colours of pixels: of the nearest face, or blended over depth."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from softly import native
from softly.rendering.camera import Camera
from softly.rendering.clipping import polygons
from softly.rendering.distance import signed_distance
from softly.rendering.lights import Lights
from softly.rendering.mesh import Mesh
from softly.rendering.rasterize import Surface, buffers, chosen
from softly.rendering.silhouette import Choice, coverage, pixel_centres
from softly.rendering.skin import Skin

_PAIRS = 1 << 19
_BEHIND = 1e-3
"""The closeness of the background, where that of what touches the near plane is 1."""


def nearest(
    mesh: Mesh,
    camera: Camera,
    lights: Lights,
    height: int,
    width: int,
    background: Tensor,
    *,
    at_pixels: bool,
    double_sided: bool,
) -> Tensor:
    """(..., 3, H, W) The colours of the nearest faces."""
    found = buffers(mesh, camera, height, width, double_sided=double_sided)
    hit = found.faces >= 0
    if not mesh.faces.shape[-2]:
        return background.expand(*hit.shape[:-2], 3, height, width)
    skin = Skin(mesh, camera, lights, Surface(mesh, camera).front, at_pixels=at_pixels)
    faces, weights = found.faces.clamp(min=0).flatten(-2), found.barycentrics.flatten(-3, -2)
    values = (weights.unsqueeze(-1) * chosen(skin.corners, faces, 2)).sum(-2)
    colors = skin.colors(values, weights, faces).unflatten(-2, (height, width))
    return torch.where(hit.unsqueeze(-3), colors.movedim(-1, -3), background)


def blended(
    mesh: Mesh,
    camera: Camera,
    lights: Lights,
    height: int,
    width: int,
    background: Tensor,
    steepness: Tensor,
    choice: Choice,
    sharpness: float,
    *,
    at_pixels: bool,
    double_sided: bool,
) -> Tensor:
    """(..., 3, H, W) The softmax over closeness of the colours of all faces, weighted by their coverage.

    Closeness is near / depth, in (0, 1], of the point of a face that is closest to the pixel; the background has a
    closeness of its own.
    """
    corners, seen = polygons(mesh, camera)
    surface = Surface(mesh, camera)
    skin = Skin(mesh, camera, lights, surface.front, at_pixels=at_pixels)
    every = torch.arange(mesh.faces.shape[-2], device=corners.device)
    visible = surface.front if not double_sided else None
    if seen is not None:
        visible = seen if visible is None else visible & seen

    def piece(points: Tensor, base: Tensor) -> Tensor:
        p = coverage(signed_distance(points, corners), steepness, choice)
        if visible is not None:
            p = torch.where(visible.unsqueeze(-2), p, 0.0)
        rays = torch.cat([points, torch.ones_like(points[:, :1])], -1)
        volumes = torch.einsum("pi,...fki->...pfk", rays, surface.sides)
        total = volumes.sum(-1, keepdim=True)
        weights = (volumes / torch.where(total == 0, 1.0, total)).clamp(0.0, 1.0)
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)
        depth = (weights * surface.depths.unsqueeze(-3)).sum(-1).clamp(camera.near, camera.far)
        closeness = camera.near / depth if camera.near > 0 else 1.0 / (1.0 + depth)
        top = torch.where(p > 0, closeness, _BEHIND).detach().amax(-1, keepdim=True).clamp(min=_BEHIND)
        share = p * torch.exp((torch.where(p > 0, closeness, _BEHIND) - top) * sharpness)
        behind = torch.exp((_BEHIND - top.squeeze(-1)) * sharpness).unsqueeze(-1)
        if skin.finished:
            seen_colors = torch.einsum("...pf,...pfk,...fkc->...pc", share, weights, skin.corners)
        else:
            values = torch.einsum("...pfk,...fkc->...pfc", weights, skin.corners).flatten(-3, -2)
            faces = every.expand(len(points), -1).flatten()
            colors = skin.colors(values, weights.flatten(-3, -2), faces).unflatten(-2, (len(points), -1))
            seen_colors = torch.einsum("...pf,...pfc->...pc", share, colors)
        return (seen_colors + behind * base) / (share.sum(-1, keepdim=True) + behind)

    points = pixel_centres(height, width, mesh.vertices)
    if not mesh.faces.shape[-2]:
        return background.expand(*corners.shape[:-3], 3, height, width)
    flat = background.expand(*corners.shape[:-3], 3, height, width).flatten(-2).transpose(-1, -2)
    step = max(_PAIRS // max(surface.depths.numel() // 3, 1), 1)
    again = torch.is_grad_enabled() and not torch.compiler.is_compiling() and not native.transformed(mesh.vertices)
    parts = []
    for part, base in zip(points.split(step), flat.split(step, -2), strict=True):
        parts.append(checkpoint(piece, part, base, use_reentrant=False) if again else piece(part, base))
    return torch.cat(parts, -2).transpose(-1, -2).unflatten(-1, (height, width))
