"""Rendering: meshes, cameras and differentiable images of them (chapter 5)."""

from softly.rendering.camera import Camera
from softly.rendering.images import save_gif, save_image
from softly.rendering.lights import Lights
from softly.rendering.losses import edge_length_loss, flattening_loss, iou_loss, laplacian_loss
from softly.rendering.mesh import Mesh
from softly.rendering.rasterize import Buffers
from softly.rendering.renderer import Renderer
from softly.rendering.shapes import cube, icosphere, pot, torus
from softly.rendering.voxels import voxel_iou, voxelize

__all__ = [
    "Buffers",
    "Camera",
    "Lights",
    "Mesh",
    "Renderer",
    "cube",
    "edge_length_loss",
    "flattening_loss",
    "icosphere",
    "iou_loss",
    "laplacian_loss",
    "pot",
    "save_gif",
    "save_image",
    "torus",
    "voxel_iou",
    "voxelize",
]
