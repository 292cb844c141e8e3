"""Colours of pixels: of the nearest face, or blended over depth."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from softly.rendering.blend import Depths, blend, exponents, in_pieces, shares
from softly.rendering.camera import Camera
from softly.rendering.clipping import polygons
from softly.rendering.contenders import Contenders, contenders
from softly.rendering.lights import Lights
from softly.rendering.mesh import Mesh
from softly.rendering.rasterize import Surface, buffers, chosen
from softly.rendering.silhouette import Choice
from softly.rendering.skin import Skin
from softly.rendering.vectors import interpolated

Scene = tuple[Tensor, Tensor, Tensor, Tensor]
"""Polygons, steepness, corners and depths of `blend`."""
_MORE = 4
"""How many times as much memory a face of a pixel takes by itself."""


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
    values = interpolated(chosen(skin.corners, faces, 2), weights)
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

    Closeness is near / depth, in (0, 1], of the point of a face that a pixel sees, or beside it of one on its border:
    barycentric coordinates are held in [0, 1] there, as SoftRas has it. The background has a closeness of its own.
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
    behind = background.expand(*_batch(sheets.shape[:-3], background), 3, height, width)
    found = contenders(*scene, visible, height, width, within, choice, dtype)
    if found is None:
        paint, count = _of_all(scene, visible, skin, within, choice), surface.depths.numel() // 3
    else:
        paint, count = _of_few(scene, found, skin, within, choice), _MORE * found.each()
    return in_pieces(height, width, behind, count, paint).to(dtype)


def _of_all(
    scene: Scene, visible: Tensor | None, skin: Skin, within: Depths, choice: Choice
) -> Callable[[Tensor, Tensor, int], Tensor]:
    """Pixels, given their background, of all faces."""
    every = torch.arange(scene[0].shape[-3], device=scene[0].device)

    def paint(points: Tensor, base: Tensor, _: int) -> Tensor:
        share, weights = shares(points, *scene, visible, within, choice)
        values = torch.einsum("...pfk,...fkc->...pfc", weights, skin.corners).flatten(-3, -2)
        faces = every.expand(len(points), -1).flatten()
        colors = skin.colors(values, weights.flatten(-3, -2), faces).unflatten(-2, (len(points), -1))
        return torch.einsum("...pf,...pfc->...pc", share[..., :-1], colors) + share[..., -1:] * base

    return paint


def _of_few(
    scene: Scene, found: Contenders, skin: Skin, within: Depths, choice: Choice
) -> Callable[[Tensor, Tensor, int], Tensor]:
    """The same of the faces that have a part in a pixel."""
    sheets, steepness, corners, depths = scene

    def paint(points: Tensor, base: Tensor, first: int) -> Tensor:
        faces, pixels = found.of(first, len(points))  # of one image and pixel, each
        places = torch.cat([points, points[:1]])[pixels].unsqueeze(-2)
        sheet, triangle, depth = (
            chosen(x, faces, k).unsqueeze(-1 - k) for x, k in ((sheets, 2), (corners, 2), (depths, 1))
        )
        value, weights = exponents(places, sheet, steepness, triangle, depth, within, choice)
        value, weights = value.flatten(-3), weights.flatten(-4, -2)
        values = interpolated(chosen(skin.corners, faces, 2), weights)
        colors = skin.colors(values, weights, faces)

        none = value.new_zeros(*value.shape[:-1], len(points) + 1)
        top = none.scatter_reduce(-1, pixels, value.detach(), "amax")
        share, rest = (value - top.gather(-1, pixels)).exp(), (-top).exp()
        total = rest.scatter_add(-1, pixels, share)
        parts = share.unsqueeze(-1) * colors
        index = pixels.unsqueeze(-1).expand_as(parts)
        sums = parts.new_zeros(*parts.shape[:-2], len(points) + 1, 3).scatter_add(-2, index, parts)
        return (sums[..., :-1, :] + rest[..., :-1, None] * base) / total[..., :-1, None]

    return paint


def _batch(shape: torch.Size, background: Tensor) -> torch.Size:
    return torch.broadcast_shapes(shape, background.shape[:-3])
