"""Colours of pixels: of the nearest face, or blended over depth."""

from __future__ import annotations

import torch
from torch import Tensor

from softly.rendering.blend import Depths, blend, in_pieces, shares
from softly.rendering.camera import Camera
from softly.rendering.clipping import polygons
from softly.rendering.lights import Lights
from softly.rendering.mesh import Mesh
from softly.rendering.rasterize import Surface, buffers, chosen
from softly.rendering.silhouette import Choice
from softly.rendering.skin import Skin


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
        return background.expand(*_batch(hit.shape[:-2], background), 3, height, width)
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
    dtype: torch.dtype,
    *,
    at_pixels: bool,
    double_sided: bool,
) -> Tensor:
    """(..., 3, H, W) The softmax over closeness of the colours of all faces, weighted by their coverage.

    Closeness is near / depth, in (0, 1], of the point of a face that is closest to the pixel; the background has a
    closeness of its own.
    """
    sheets, visible = polygons(mesh, camera)
    if not mesh.faces.shape[-2]:
        return background.expand(*_batch(sheets.shape[:-3], background), 3, height, width)
    surface = Surface(mesh, camera)
    skin = Skin(mesh, camera, lights, surface.front, at_pixels=at_pixels)
    if not double_sided:
        visible = surface.front if visible is None else visible & surface.front
    within = Depths(camera.near, camera.far, sharpness)
    scene = (sheets, steepness, surface.corners, surface.depths)
    if skin.finished:
        return blend(*scene, skin.corners, background, visible, height, width, within, choice, dtype)
    every = torch.arange(mesh.faces.shape[-2], device=sheets.device)

    def paint(points: Tensor, base: Tensor) -> Tensor:
        share, weights = shares(points, *scene, visible, within, choice)
        values = torch.einsum("...pfk,...fkc->...pfc", weights, skin.corners).flatten(-3, -2)
        faces = every.expand(len(points), -1).flatten()
        colors = skin.colors(values, weights.flatten(-3, -2), faces).unflatten(-2, (len(points), -1))
        return torch.einsum("...pf,...pfc->...pc", share[..., :-1], colors) + share[..., -1:] * base

    behind = background.expand(*_batch(sheets.shape[:-3], background), 3, height, width)
    return in_pieces(height, width, behind, surface.depths.numel() // 3, paint).to(dtype)


def _batch(shape: torch.Size, background: Tensor) -> torch.Size:
    return torch.broadcast_shapes(shape, background.shape[:-3])
