"""Meshes in files: OBJ and PLY here, everything else by trimesh where that is installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from softly.rendering import obj, ply
from softly.rendering.images import pixels
from softly.rendering.stored import Stored, refuse


def read(path: str | os.PathLike[str], *, textures: bool = True) -> Stored:
    """What a file has; ValueError with line and reason where it is malformed."""
    path = Path(path)
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".obj"):
        return obj.read(path, textures=textures)
    if name.endswith(".ply"):
        return ply.read(path, textures=textures)
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
    path.stat()
    try:
        loaded: Any = trimesh.load(path, force="mesh")
    except ImportError:
        raise
    except Exception as error:  # whatever a reader of a malformed file stumbles over
        refuse(path, "trimesh", str(error) or type(error).__name__)
    faces = np.asarray(loaded.faces, dtype=np.int64)
    if not len(faces):
        refuse(path, "trimesh", "no faces are found in it")
    colors = painted = uvs = texture = None
    visual = loaded.visual
    if not visual.defined:
        parts: Any = getattr(trimesh.load(path), "geometry", {})
        if any(part.visual.defined for part in parts.values()):
            refuse(path, "trimesh", "its parts have colours of different kinds, a mesh has one; save them apart")
    if visual.kind == "vertex":
        colors = _shares(visual.vertex_colors)
    elif visual.kind == "face":
        painted = _shares(visual.face_colors)
    elif visual.kind == "texture":
        material = visual.material
        image = getattr(material, "baseColorTexture", None) or getattr(material, "image", None)
        factor = getattr(material, "baseColorFactor", None)
        if factor is None and image is None:
            diffuse: Any = getattr(material, "diffuse", None)
            # What trimesh has where a file has none.
            factor = None if np.array_equal(diffuse, trimesh.visual.color.DEFAULT_COLOR) else diffuse
        tint = np.ones(3) if factor is None else _shares(factor)
        if visual.uv is not None:
            uvs = np.asarray(visual.uv, dtype=np.float64)[faces][..., :2]
        if textures and image is not None and uvs is not None:
            texture = pixels(image, path, "softly.rendering.Mesh.load") * tint[:, None, None]
        elif factor is not None:
            painted = np.broadcast_to(tint, (len(faces), 3)).copy()
    return Stored(np.asarray(loaded.vertices, dtype=np.float64), faces, colors, painted, uvs, texture)


def _shares(colors: Any) -> np.ndarray:
    """Red, green and blue in [0, 1], of trimesh's bytes."""
    return np.asarray(colors, dtype=np.float64)[..., :3] / 255.0
