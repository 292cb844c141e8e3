"""Meshes in files: OBJ and PLY here, everything else by trimesh where that is installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from softly.rendering import obj, ply
from softly.rendering.stored import Stored, refuse


def read(path: str | os.PathLike[str], *, textures: bool = True) -> Stored:
    """What a file has; ValueError with line and reason where it is malformed."""
    path = Path(path)
    name = path.name.removesuffix(".gz").lower()
    if name.endswith(".obj"):
        return obj.read(path, textures=textures)
    if name.endswith(".ply"):
        return ply.read(path)
    return _read_other(path, textures=textures)


def write(path: str | os.PathLike[str], mesh: Stored) -> None:
    """Write an OBJ or a PLY file."""
    path = Path(path)
    writers: dict[str, Callable[[Path, Stored], None]] = {".obj": obj.write, ".ply": ply.write}
    if path.suffix.lower() not in writers:
        raise ValueError(f"softly.rendering.Mesh.save: the file must end with .obj or .ply, got {path.name!r}.")
    writers[path.suffix.lower()](path, mesh)


def _read_other(path: Path, *, textures: bool) -> Stored:
    try:
        import trimesh
    except ImportError:
        raise ImportError(
            f"softly.rendering.Mesh.load: {path.name} is neither .obj nor .ply, and needs trimesh: pip install trimesh."
        ) from None
    try:
        loaded: Any = trimesh.load(path, force="mesh")
    except (ValueError, NotImplementedError) as error:
        refuse(path, "trimesh", str(error))
    colors = uvs = texture = None
    faces = np.asarray(loaded.faces, dtype=np.int64)
    if loaded.visual.kind == "vertex":
        colors = np.asarray(loaded.visual.vertex_colors, dtype=np.float64)[:, :3] / 255.0
    elif loaded.visual.kind == "texture" and loaded.visual.uv is not None:
        uvs = np.asarray(loaded.visual.uv, dtype=np.float64)[faces][..., :2]
        material = loaded.visual.material
        image = getattr(material, "baseColorTexture", None) or getattr(material, "image", None)
        if textures and image is not None:
            texture = np.asarray(image.convert("RGB"), dtype=np.float64).transpose(2, 0, 1) / 255.0
    return Stored(np.asarray(loaded.vertices, dtype=np.float64), faces, colors, None, uvs, texture)
