"""Meshes in files: OBJ and PLY here, everything else by trimesh where that is installed."""

from __future__ import annotations

import gzip
import itertools
import math
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np


class Stored(NamedTuple):
    """Arrays of a file: vertices (V, 3), faces (F, 3), and colours of the ones or the others, or None."""

    vertices: np.ndarray
    faces: np.ndarray
    vertex_colors: np.ndarray | None = None
    face_colors: np.ndarray | None = None


def read(path: str | os.PathLike[str]) -> Stored:
    """What a file has; ValueError with line and reason where it is malformed."""
    path = Path(path)
    name = path.name.removesuffix(".gz").lower()
    if name.endswith(".obj"):
        return _read_obj(path)
    if name.endswith(".ply"):
        return _read_ply(path)
    return _read_other(path)


def write(path: str | os.PathLike[str], mesh: Stored) -> None:
    """Write an OBJ or a PLY file."""
    path = Path(path)
    writers: dict[str, Callable[[Path, Stored], None]] = {".obj": _write_obj, ".ply": _write_ply}
    if path.suffix.lower() not in writers:
        raise ValueError(f"softly.rendering.Mesh.save: the file must end with .obj or .ply, got {path.name!r}.")
    writers[path.suffix.lower()](path, mesh)


def _refuse(path: Path, where: int | str, reason: str) -> NoReturn:
    place = f"line {where}" if isinstance(where, int) else where
    raise ValueError(f"softly.rendering.Mesh.load: {path.name}, {place}: {reason}.")


def _content(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except gzip.BadGzipFile:
        _refuse(path, "beginning", "it is not a gzip file")


# OBJ -------------------------------------------------------------------------------------------------------------

_IGNORED = {"vt", "vn", "vp", "g", "o", "s", "l", "p", "mg", "lod", "shadow_obj", "trace_obj", "usemap", "maplib"}


def _numbers(words: list[str], path: Path, line: int) -> list[float]:
    try:
        values = [float(word) for word in words]
    except ValueError:
        _refuse(path, line, f"{' '.join(words)!r} are not numbers")
    if not all(math.isfinite(value) for value in values):
        _refuse(path, line, f"{' '.join(words)!r} are not finite")
    return values


def _corner(word: str, count: int, path: Path, line: int) -> int:
    try:
        index = int(word.split("/", 1)[0])
    except ValueError:
        _refuse(path, line, f"{word!r} is no vertex of a face")
    index = index - 1 if index > 0 else count + index
    if index < 0 or index >= count or word.startswith("0"):
        _refuse(path, line, f"{word!r} is none of the {count} vertices so far")
    return index


def _read_obj(path: Path) -> Stored:
    vertices: list[list[float]] = []
    colors: list[list[float]] = []
    faces: list[tuple[int, int, int]] = []
    paints: list[int] = []
    materials: dict[str, list[float]] = {}
    palette: list[list[float]] = [[1.0, 1.0, 1.0]]
    paint, started = 0, ""
    text = _content(path).decode("utf-8", errors="replace")
    for line, row in enumerate(text.splitlines(), 1):
        if row.endswith("\\"):
            started += row[:-1] + " "
            continue
        words = (started + row).split("#", 1)[0].split()
        started = ""
        if not words:
            continue
        match words[0]:
            case "v":
                if len(words) not in (4, 5, 7, 8):
                    _refuse(
                        path,
                        line,
                        f"a vertex has three coordinates, and maybe three colours, not {len(words) - 1} numbers",
                    )
                values = _numbers(words[1:], path, line)
                vertices.append(values[:3])
                if len(values) >= 6:
                    colors.append(values[-3:])
            case "f":
                if len(words) < 4:
                    _refuse(path, line, f"a face has at least three vertices, not {len(words) - 1}")
                corners = [_corner(word, len(vertices), path, line) for word in words[1:]]
                for b, c in itertools.pairwise(corners[1:]):
                    faces.append((corners[0], b, c))
                    paints.append(paint)
            case "mtllib":
                materials.update(_read_materials(path.parent / (started + row).split(None, 1)[1].strip()))
            case "usemtl":
                color = materials.get(" ".join(words[1:]))
                paint = 0
                if color is not None:
                    palette.append(color)
                    paint = len(palette) - 1
            case keyword if keyword not in _IGNORED:
                _refuse(path, line, f"{keyword!r} is not known here")
    if colors and len(colors) != len(vertices):
        _refuse(path, "end", f"{len(colors)} of {len(vertices)} vertices have colours; all or none must")
    painted = np.array(palette)[np.array(paints, dtype=np.int64)] if len(palette) > 1 and not colors else None
    return Stored(
        np.array(vertices, dtype=np.float64).reshape(-1, 3),
        np.array(faces, dtype=np.int64).reshape(-1, 3),
        np.array(colors) if colors else None,
        painted,
    )


def _read_materials(path: Path) -> dict[str, list[float]]:
    """The diffuse colours of materials, by name; none where the file isn't there."""
    found: dict[str, list[float]] = {}
    if not path.is_file():
        return found
    current = None
    for line, row in enumerate(path.read_text(errors="replace").splitlines(), 1):
        words = row.split("#", 1)[0].split()
        if words[:1] == ["newmtl"]:
            current = " ".join(words[1:])
            found[current] = [1.0, 1.0, 1.0]
        elif words[:1] == ["Kd"] and current is not None:
            if len(words) != 4:
                _refuse(path, line, "a colour has three numbers")
            found[current] = _numbers(words[1:], path, line)
    return found


def _write_obj(path: Path, mesh: Stored) -> None:
    rows = []
    for i, vertex in enumerate(mesh.vertices.tolist()):
        extra = [] if mesh.vertex_colors is None else mesh.vertex_colors[i].tolist()
        rows.append("v " + " ".join(repr(float(value)) for value in [*vertex, *extra]))
    if mesh.face_colors is None:
        rows += [f"f {a + 1} {b + 1} {c + 1}" for a, b, c in mesh.faces.tolist()]
    else:
        kinds, which = np.unique(mesh.face_colors, axis=0, return_inverse=True)
        library = path.with_suffix(".mtl")
        paints = [f"newmtl color{i}\nKd {' '.join(repr(float(v)) for v in kind)}" for i, kind in enumerate(kinds)]
        library.write_text("\n".join(paints) + "\n")
        rows.insert(0, f"mtllib {library.name}")
        last = -1
        for (a, b, c), paint in zip(mesh.faces.tolist(), which.reshape(-1).tolist(), strict=True):
            if paint != last:
                rows.append(f"usemtl color{paint}")
                last = paint
            rows.append(f"f {a + 1} {b + 1} {c + 1}")
    path.write_text("\n".join(rows) + "\n")


# PLY -------------------------------------------------------------------------------------------------------------

_TYPES = {
    **dict.fromkeys(("char", "int8"), "b"),
    **dict.fromkeys(("uchar", "uint8"), "B"),
    **dict.fromkeys(("short", "int16"), "h"),
    **dict.fromkeys(("ushort", "uint16"), "H"),
    **dict.fromkeys(("int", "int32"), "i"),
    **dict.fromkeys(("uint", "uint32"), "I"),
    **dict.fromkeys(("float", "float32"), "f"),
    **dict.fromkeys(("double", "float64"), "d"),
}


class _Element(NamedTuple):
    name: str
    number: int
    properties: list[tuple[str, list[str]]]
    """Names, and one type, or of a list those of its length and of its entries."""


def _ply_header(content: bytes, path: Path) -> tuple[str, list[_Element], bytes, int]:
    end = content.find(b"end_header")
    if not content.startswith(b"ply") or end < 0:
        _refuse(path, 1, "it is no PLY file: 'ply' or 'end_header' is missing")
    body = content.index(b"\n", end) + 1 if b"\n" in content[end:] else len(content)
    kind, elements = "", []
    lines = content[:end].decode("ascii", errors="replace").splitlines()
    for line, row in enumerate(lines, 1):
        words = row.split()
        try:
            match words:
                case ["format", kind, "1.0"]:
                    pass
                case ["element", name, count]:
                    elements.append(_Element(name, int(count), []))
                case ["property", "list", length, entry, name]:
                    elements[-1].properties.append((name, [_TYPES[length], _TYPES[entry]]))
                case ["property", type_, name]:
                    elements[-1].properties.append((name, [_TYPES[type_]]))
                case ["ply"] | ["comment", *_] | ["obj_info", *_] | []:
                    pass
                case _:
                    raise ValueError
        except (ValueError, KeyError, IndexError):
            _refuse(path, line, f"{row!r} is not understood")
    if kind not in ("ascii", "binary_little_endian", "binary_big_endian"):
        _refuse(path, 2, f"the format {kind!r} is not known")
    return kind, elements, content[body:], len(lines) + 2


def _ply_rows(kind: str, elements: list[_Element], body: bytes, first: int, path: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    if kind == "ascii":
        rows = iter(enumerate((row for row in body.decode("ascii", errors="replace").splitlines()), first))
        for element in elements:
            found[element.name] = []
            for _ in range(element.number):
                line, row = next(((n, r) for n, r in rows if r.strip()), (first, ""))
                values, at, taken = _numbers(row.split(), path, line), 0, []
                for _, types in element.properties:
                    size = 1 if len(types) == 1 else 1 + int(values[at]) if at < len(values) else 1
                    taken.append(values[at] if len(types) == 1 and at < len(values) else values[at + 1 : at + size])
                    at += size
                if at != len(values):
                    _refuse(path, line, f"{element.name} has {at} numbers, not {len(values)}")
                found[element.name].append(taken)
        return found
    order, at = "<" if kind == "binary_little_endian" else ">", 0
    try:
        for element in elements:
            found[element.name] = []
            for _ in range(element.number):
                taken = []
                for _, types in element.properties:
                    (value,) = struct.unpack_from(order + types[0], body, at)
                    at += struct.calcsize(types[0])
                    if len(types) > 1:
                        entries = struct.unpack_from(f"{order}{int(value)}{types[1]}", body, at)
                        at += int(value) * struct.calcsize(types[1])
                        taken.append(list(entries))
                    else:
                        taken.append(value)
                found[element.name].append(taken)
    except struct.error:
        _refuse(path, f"byte {at} of the data", "the file ends too early")
    return found


def _read_ply(path: Path) -> Stored:
    kind, elements, body, first = _ply_header(_content(path), path)
    rows = _ply_rows(kind, elements, body, first, path)
    columns = {element.name: [name for name, _ in element.properties] for element in elements}
    types = {element.name: [t for _, t in element.properties] for element in elements}
    names = columns.get("vertex", [])
    if not {"x", "y", "z"} <= set(names):
        _refuse(path, "header", "vertices need the properties x, y and z")
    values = np.array(rows["vertex"], dtype=np.float64).reshape(-1, len(names))
    colors = None
    if {"red", "green", "blue"} <= set(names):
        picked = [names.index(color) for color in ("red", "green", "blue")]
        colors = values[:, picked] / (255.0 if types["vertex"][picked[0]] == ["B"] else 1.0)
    corners: list[tuple[int, int, int]] = []
    lists = [i for i, name in enumerate(columns.get("face", [])) if name in ("vertex_indices", "vertex_index")]
    for number, row in enumerate(rows.get("face", []) if lists else []):
        face = [int(index) for index in row[lists[0]]]
        if len(face) < 3 or min(face) < 0 or max(face) >= len(values):
            _refuse(path, f"face {number}", f"{face} are not three or more of the {len(values)} vertices")
        corners += [(face[0], b, c) for b, c in itertools.pairwise(face[1:])]
    vertices = values[:, [names.index(axis) for axis in "xyz"]]
    return Stored(vertices, np.array(corners, dtype=np.int64).reshape(-1, 3), colors)


def _write_ply(path: Path, mesh: Stored) -> None:
    if mesh.face_colors is not None:
        raise ValueError("softly.rendering.Mesh.save: PLY files here have colours of vertices; save faces' as .obj.")
    colored = mesh.vertex_colors is not None
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {len(mesh.vertices)}"]
    header += [f"property double {axis}" for axis in "xyz"]
    header += [f"property double {color}" for color in ("red", "green", "blue") if colored]
    header += [f"element face {len(mesh.faces)}", "property list uchar int vertex_indices", "end_header", ""]
    values = mesh.vertices if mesh.vertex_colors is None else np.concatenate([mesh.vertices, mesh.vertex_colors], -1)
    faces = np.empty(len(mesh.faces), dtype=[("count", "u1"), ("corners", "<i4", (3,))])
    faces["count"], faces["corners"] = 3, mesh.faces
    path.write_bytes("\n".join(header).encode() + values.astype("<f8").tobytes() + faces.tobytes())


def _read_other(path: Path) -> Stored:
    try:
        import trimesh
    except ImportError:
        raise ImportError(
            f"softly.rendering.Mesh.load: {path.name} is neither .obj nor .ply, and needs trimesh: pip install trimesh."
        ) from None
    try:
        loaded: Any = trimesh.load(path, force="mesh")
    except (ValueError, NotImplementedError) as error:
        _refuse(path, "trimesh", str(error))
    colors = getattr(loaded.visual, "vertex_colors", None) if loaded.visual.kind == "vertex" else None
    colors = None if colors is None else np.asarray(colors, dtype=np.float64)[:, :3] / 255.0
    return Stored(np.asarray(loaded.vertices, dtype=np.float64), np.asarray(loaded.faces, dtype=np.int64), colors)
