"""Rendering: meshes, cameras and differentiable images of them (chapter 5)."""

from softly.rendering.camera import Camera
from softly.rendering.mesh import Mesh
from softly.rendering.renderer import Renderer
from softly.rendering.shapes import cube, icosphere, pot, torus

__all__ = [
    "Camera",
    "Mesh",
    "Renderer",
    "cube",
    "icosphere",
    "pot",
    "torus",
]
