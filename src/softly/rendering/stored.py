"""What files of meshes have, and how what they can't have is refused."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np


class Stored(NamedTuple):
    """Arrays of a file: vertices (V, 3), faces (F, 3), and what there is of the rest.

    That is colours of the ones or the others, texture coordinates (F, 3, 2) and an image (3, H, W).
    """

    vertices: np.ndarray
    faces: np.ndarray
    vertex_colors: np.ndarray | None = None
    face_colors: np.ndarray | None = None
    uvs: np.ndarray | None = None
    texture: np.ndarray | None = None


def refuse(path: Path, where: int | str, reason: str) -> NoReturn:
    place = f"line {where}" if isinstance(where, int) else where
    raise ValueError(f"softly.rendering.Mesh.load: {path.name}, {place}: {reason}.")


def content(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix.lower() == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error):
        refuse(path, "beginning", "it is not a gzip file, or not all of one")


def plain(word: str) -> str:
    """A number as files have it, without the underscores that Python would pass over."""
    return word.replace("_", "?")


def numbers(words: list[str], path: Path, line: int) -> list[float]:
    try:
        values = [float(plain(word)) for word in words]
    except ValueError:
        refuse(path, line, f"{' '.join(words)!r} are not numbers")
    if not all(math.isfinite(value) for value in values):
        refuse(path, line, f"{' '.join(words)!r} are not finite")
    return values
