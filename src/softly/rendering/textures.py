"""Textures: how they are looked up where barycentric or texture coordinates say.

Texels of faces lie as in SoftRas: a face is divided into R² triangles alike, and each has one colour. An image is
looked up as OBJ files and OpenGL have it: (0, 0) is its lower left corner, (1, 1) its upper right one, its pixels'
centres lie at half pixels, between them colours are bilinear, and beyond the image it is repeated.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from softly import _inputs

NAME = "softly.rendering.Mesh"


def checked(textures: Tensor | None, uvs: Tensor | None, faces: int) -> tuple[Tensor | None, Tensor | None]:
    """Both with a batch dimension, or an error."""
    if uvs is not None:
        _inputs.floating(uvs, NAME, "uvs")
        uvs = uvs if uvs.ndim > 3 else uvs.unsqueeze(0)
        if uvs.shape[-3:] != (faces, 3, 2):
            raise ValueError(f"{NAME}: uvs must have shape (..., {faces}, 3, 2), got {tuple(uvs.shape)}.")
    if textures is None:
        return None, uvs
    _inputs.floating(textures, NAME, "textures")
    textures = textures if textures.ndim > 3 else textures.unsqueeze(0)
    shape = tuple(textures.shape)
    if uvs is not None:
        if len(shape) < 4 or shape[-3] != 3 or not min(shape[-2:]):
            raise ValueError(f"{NAME}: with uvs, textures must be an image of shape (..., 3, H, W), got {shape}.")
    elif len(shape) < 4 or shape[-3] != faces or shape[-1] != 3 or not _is_square(shape[-2]):
        raise ValueError(
            f"{NAME}: without uvs, textures must have shape (..., {faces}, R², 3), with R² texels on each of the "
            f"{faces} faces, got {shape}; an image needs uvs."
        )
    return textures, uvs


def _is_square(count: int) -> bool:
    return count > 0 and math.isqrt(count) ** 2 == count


def looked_up(image: Tensor, uvs: Tensor) -> Tensor:
    """(..., N, 3) The colours of an image (..., 3, H, W) at (..., N, 2)."""
    height, width = image.shape[-2:]
    x, y = uvs[..., 0] * width - 0.5, (1.0 - uvs[..., 1]) * height - 0.5
    left, top = x.detach().floor(), y.detach().floor()
    x, y = x - left, y - top
    columns = [left.long().remainder(width), (left.long() + 1).remainder(width)]
    rows = [top.long().remainder(height), (top.long() + 1).remainder(height)]
    colors = image.flatten(-2).transpose(-1, -2)
    found = torch.zeros((), dtype=image.dtype, device=image.device)
    for row, share in zip(rows, (1.0 - y, y), strict=True):
        for column, part in zip(columns, (1.0 - x, x), strict=True):
            found = found + (share * part).unsqueeze(-1) * _rows(colors, row * width + column)
    return found


def texels(textures: Tensor, weights: Tensor, faces: Tensor) -> Tensor:
    """(..., N, 3) The texels (..., F, R², 3) where faces (..., N) have barycentric coordinates (..., N, 3).

    Piecewise constant: it has derivatives in the texels alone.
    """
    side = math.isqrt(textures.shape[-2])
    scaled = weights[..., :2].detach() * side
    x, y = scaled.floor().clamp(0, side - 1).unbind(-1)
    y = torch.minimum(y, side - 1 - x)  # of an edge, not a rounding beyond it
    # Beyond the diagonal of its cell a point is in a triangle that points the other way: those count from the end.
    beyond = (scaled.sum(-1) - x - y > 1) & (x + y < side - 1)
    x, y = torch.where(beyond, side - 1 - x, x), torch.where(beyond, side - 1 - y, y)
    return _rows(textures.flatten(-3, -2), faces * side**2 + (y * side + x).long())


def _rows(values: Tensor, index: Tensor) -> Tensor:
    """(..., N, 3) The rows (..., N) of values (..., M, 3)."""
    batch = torch.broadcast_shapes(values.shape[:-2], index.shape[:-1])
    index = index.expand(*batch, index.shape[-1]).unsqueeze(-1).expand(*batch, index.shape[-1], 3)
    return values.expand(*batch, *values.shape[-2:]).gather(-2, index)
