"""What files of meshes have, and how what they can't have is refused."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Iterable, Sequence
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


def file(folder: Path, names: Iterable[str]) -> Path | None:
    """The first of these files that is there, also as Windows writes it or in quotation marks."""
    forms = (form for name in names for form in (name, name.strip("\"'").replace("\\", "/")))
    return next((folder / name for name in forms if os.path.isfile(folder / name)), None)


def rows(text: str) -> list[str]:
    """Lines as files have them: Python knows more characters that end one, which may be part of a name."""
    return text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def plain(word: str) -> str:
    """A number as files have it, without the underscores and digits of other scripts that Python would take."""
    return word.replace("_", "?") if word.isascii() else "?"


def numbers(words: list[str], path: Path, line: int, *, finite: bool = True) -> list[float]:
    try:
        values = [float(plain(word)) for word in words]
    except ValueError:
        refuse(path, line, f"{' '.join(words)!r} are not numbers")
    if finite and not all(math.isfinite(value) for value in values):
        refuse(path, line, f"{' '.join(words)!r} are not finite")
    return values


def shades(values: np.ndarray, path: Path, whose: str) -> np.ndarray:
    """Colours, refused where they aren't in [0, 1]: bytes as numbers, mostly."""
    wrong = ~((values >= 0) & (values <= 1)).all(-1)
    if wrong.any():
        number = int(wrong.argmax())
        refuse(path, f"{whose} {number}", f"colours must be in [0, 1], not {values[number].tolist()}")
    return values


Point = Sequence[float]


def triangles(polygon: Sequence[Point]) -> list[tuple[int, int, int]]:
    """The corners of triangles that make up a flat polygon: a fan where that is inside of it, otherwise ears of it."""
    count = len(polygon)
    if count == 3:
        return [(0, 1, 2)]
    fan = [(0, k, k + 1) for k in range(1, count - 1)]
    areas = [_turn(*(polygon[k] for k in face)) for face in fan]
    normal = [math.fsum(parts) for parts in zip(*areas, strict=True)]
    if all(_dot(area, normal) >= 0.0 for area in areas):
        return fan
    left, found = list(range(count)), []
    while len(left) > 3:
        ear = next((k for k in range(len(left)) if _is_ear(k, left, polygon, normal)), 0)
        found.append((left[ear - 1], left[ear], left[(ear + 1) % len(left)]))
        del left[ear]
    return [*found, (left[0], left[1], left[2])]


def _is_ear(k: int, left: list[int], polygon: Sequence[Point], normal: Point) -> bool:
    """Whether a corner can be cut off: it points outwards, and no other one lies in its triangle."""
    a, b, c = (polygon[left[at % len(left)]] for at in (k - 1, k, k + 1))
    if _dot(_turn(a, b, c), normal) <= 0.0:
        return False
    others = (polygon[at] for at in left)
    return not any(
        all(_dot(_turn(start, end, x), normal) >= 0.0 for start, end in ((a, b), (b, c), (c, a)))
        for x in others
        if x not in (a, b, c)
    )


def _turn(a: Point, b: Point, c: Point) -> tuple[float, float, float]:
    (ux, uy, uz), (vx, vy, vz) = ((q - p for p, q in zip(a, x, strict=True)) for x in (b, c))
    return uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx


def _dot(a: Point, b: Point) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
