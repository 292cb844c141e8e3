"""What faces look like: colours or textures, in the light."""

from __future__ import annotations

import torch
from torch import Tensor

from softly.rendering import textures
from softly.rendering.camera import Camera
from softly.rendering.lights import Lights
from softly.rendering.mesh import Mesh
from softly.rendering.vectors import inverse, unit


class Skin:
    """Values at the corners of faces, which are interpolated between them, and the colours that they stand for.

    Faces that have colours or texels of their own are flat, all others as smooth as the normals of their vertices. Seen
    from behind, a face shows the other side of its normals.

    Args:
        mesh, camera, lights: The scene.
        front: (..., F) Which faces are seen from the front.
        at_pixels: Whether light is computed at pixels, from interpolated places and normals, or at the corners.
    """

    def __init__(self, mesh: Mesh, camera: Camera, lights: Lights, front: Tensor, *, at_pixels: bool) -> None:
        positions = mesh.corners()
        self._lights, self._textures = lights, None if mesh.textures is None else mesh.textures.to(positions)
        self._at_pixels, self._mapped = at_pixels and not lights.even, mesh.uvs is not None
        turned, _ = inverse(camera.rotation.to(positions))
        self._back = turned[..., 2].unsqueeze(-2) if camera.orthographic else None
        self._eye = -(turned @ camera.translation.to(positions).unsqueeze(-1)).mT
        if mesh.face_colors is not None or (self._textures is not None and not self._mapped):
            normals = mesh.normals().unsqueeze(-2).expand_as(positions)
        else:
            normals = mesh.corners(mesh.vertex_normals())
        normals = torch.where(front[..., None, None], normals, -normals)
        paint = self._corner_paint(mesh, positions)
        if self._at_pixels:
            parts = [positions, normals, *paint]
        else:
            light, shine = lights.parts(positions, normals, self._towards_eye(positions, 1))
            parts = [light, shine, *paint] if self._textures is not None else [paint[0] * light + shine]
        batch = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))
        self.corners = torch.cat([part.expand(*batch, part.shape[-1]) for part in parts], -1)
        """(..., F, 3, C)"""
        self.finished = self._textures is None and not self._at_pixels
        """Whether what is interpolated are colours already."""

    def _corner_paint(self, mesh: Mesh, positions: Tensor) -> list[Tensor]:
        if self._textures is not None:
            return [] if mesh.uvs is None else [mesh.uvs.to(positions)]
        if mesh.face_colors is not None:
            return [mesh.face_colors.to(positions).unsqueeze(-2).expand(*mesh.face_colors.shape[:-1], 3, 3)]
        if mesh.vertex_colors is not None:
            return [mesh.corners(mesh.vertex_colors.to(positions))]
        return [torch.ones_like(positions)]

    def _towards_eye(self, positions: Tensor, more: int) -> Tensor:
        """From places (..., N, 3), or of corners with so many dimensions more, to the eye; not of unit length."""
        if self._back is not None:
            back = self._back.unsqueeze(-2) if more else self._back
            return back.expand(torch.broadcast_shapes(back.shape, positions.shape))
        return (self._eye.unsqueeze(-2) if more else self._eye) - positions

    def colors(self, values: Tensor, weights: Tensor, faces: Tensor) -> Tensor:
        """(..., N, 3) The colours of interpolated values (..., N, C), of (..., N, 3) of the corners of (..., N)."""
        if self.finished:
            return values
        one, two, paint = values[..., :3], values[..., 3:6], values[..., 6:]
        if self._textures is not None:
            mapped = self._mapped
            paint = (
                textures.looked_up(self._textures, paint) if mapped else textures.texels(self._textures, weights, faces)
            )
        if self._at_pixels:
            one, two = self._lights.parts(one, unit(two), self._towards_eye(one, 0))
        return paint * one + two
