"""PLY files, text and binary."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softly.rendering import stored
from softly.rendering.images import read_image
from softly.rendering.stored import Stored, content, numbers, refuse

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

_COLORS = ("red", "green", "blue")


class _Element(NamedTuple):
    name: str
    number: int
    properties: list[tuple[str, list[str]]]
    """Names, and one type, or of a list those of its length and of its entries."""


class _Header(NamedTuple):
    kind: str
    elements: list[_Element]
    images: list[str]
    body: bytes
    first: int
    """The line of the body, of a text."""


def _ply_header(whole: bytes, path: Path) -> _Header:
    end = re.search(rb"^end_header[ \t]*(\r\n|\n|\r|$)", whole, re.MULTILINE) or re.search(
        rb"\rend_header[ \t]*\r", whole
    )
    if not whole.startswith(b"ply") or end is None:
        refuse(path, 1, "it is no PLY file: 'ply' or 'end_header' is missing")
    kind = ""
    elements: list[_Element] = []
    images: list[str] = []
    lines = stored.rows(whole[: end.start()].decode("utf-8", errors="replace"))
    for line, row in enumerate(lines, 1):
        words = row.split()
        try:
            match words:
                case ["format", kind, "1.0"]:
                    pass
                case ["element", name, count]:
                    if int(count) < 0 or any(element.name == name for element in elements):
                        raise ValueError
                    elements.append(_Element(name, int(count), []))
                case ["property", "list", length, entry, name]:
                    elements[-1].properties.append((name, [_TYPES[length], _TYPES[entry]]))
                case ["property", type_, name]:
                    elements[-1].properties.append((name, [_TYPES[type_]]))
                case ["comment", "TextureFile", _, *_]:  # as VCG's programs have it, such as MeshLab
                    images.append(row.split(None, 2)[2].strip())
                case ["ply"] | ["comment", *_] | ["obj_info", *_] | []:
                    pass
                case _:
                    raise ValueError
        except (ValueError, KeyError, IndexError):
            refuse(path, line, f"{row!r} is not understood")
    if kind not in ("ascii", "binary_little_endian", "binary_big_endian"):
        refuse(path, 2, f"the format {kind!r} is not known")
    return _Header(kind, elements, images, whole[end.end() :], len(lines) + 2)


def _ply_rows(header: _Header, path: Path) -> dict[str, list[Any]]:
    kind, elements, _, body, first = header
    return _text_rows(elements, body, first, path) if kind == "ascii" else _binary_rows(kind, elements, body, path)


def _text_rows(elements: list[_Element], body: bytes, first: int, path: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    lines = enumerate(stored.rows(body.decode("ascii", errors="replace")), first)
    rows = iter([(line, row.split()) for line, row in lines if row.strip()])
    for element in elements:
        found[element.name] = []
        for number in range(element.number):
            line, words = next(rows, (first, None))
            if words is None:
                refuse(path, "end", f"{element.name} has {number} of {element.number} entries")
            values, at = numbers(words, path, line, finite=False), 0
            taken: list[Any] = []
            for _, types in element.properties:
                if len(types) == 1:
                    taken.append(values[at] if at < len(values) else None)
                    at += 1
                else:
                    size = _length(values[at] if at < len(values) else 0, path, line)
                    taken.append(values[at + 1 : at + 1 + size])
                    at += 1 + size
            if at != len(values):
                refuse(path, line, f"{element.name} has {at} numbers, not {len(values)}")
            found[element.name].append(taken)
    line, words = next(rows, (first, None))
    if words is not None:
        refuse(path, line, "the header has no element for what follows here")
    return found


def _binary_rows(kind: str, elements: list[_Element], body: bytes, path: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    order, at = "<" if kind == "binary_little_endian" else ">", 0
    try:
        for element in elements:
            found[element.name] = []
            for _ in range(element.number):
                taken = []
                for _, types in element.properties:
                    (value,) = struct.unpack_from(order + types[0], body, at)
                    if len(types) > 1:
                        size = _length(value, path, f"byte {at} of the data")
                        at += struct.calcsize(types[0])
                        taken.append(list(struct.unpack_from(f"{order}{size}{types[1]}", body, at)))
                        at += size * struct.calcsize(types[1])
                    else:
                        at += struct.calcsize(types[0])
                        taken.append(value)
                found[element.name].append(taken)
    except struct.error:
        refuse(path, f"byte {at} of the data", "the file ends too early")
    if body[at:].strip():
        refuse(path, f"byte {at} of the data", "the header has no element for what follows here")
    return found


def _length(value: float, path: Path, where: int | str) -> int:
    if value < 0 or not float(value).is_integer():
        refuse(path, where, f"{value:g} is not the length of a list")
    return int(value)


def read(path: Path, *, textures: bool = True) -> Stored:
    header = _ply_header(content(path), path)
    rows = _ply_rows(header, path)
    properties = {element.name: element.properties for element in header.elements}
    single = {name: (i, types[0]) for i, (name, types) in enumerate(properties.get("vertex", [])) if len(types) == 1}
    if not {"x", "y", "z"} <= set(single):
        refuse(path, "header", "vertices need the properties x, y and z")
    vertices = _columns(rows["vertex"], [single[axis][0] for axis in "xyz"], path, "vertex")
    colors = _colors("vertex", rows, properties, path)
    if rows.get("tristrips"):
        refuse(path, "header", "strips of triangles are not known here")
    names = ("vertex_indices", "vertex_index")
    lists = [i for i, (name, types) in enumerate(properties.get("face", [])) if name in names and len(types) > 1]
    if rows.get("face") and not lists:
        refuse(path, "header", "faces need a list vertex_indices")
    corners: list[tuple[int, int, int]] = []
    sources: list[int] = []
    places: list[Any] = []
    points = vertices.tolist()
    wedges = next(
        (i for i, (name, types) in enumerate(properties.get("face", [])) if name == "texcoord" and len(types) > 1), None
    )
    spots = _spots(rows, single, path)
    for number, row in enumerate(rows.get("face", [])):
        face = row[lists[0]]
        known = all(float(index).is_integer() and 0 <= index < len(points) for index in face)
        if len(face) < 3 or not known:
            named = ", ".join(f"{index:g}" for index in face)
            refuse(path, f"face {number}", f"[{named}] are not three or more of the {len(points)} vertices")
        polygon = [int(index) for index in face]
        where = (
            _wedges(row[wedges], len(face), number, path)
            if wedges is not None
            else [spots[i] for i in polygon]
            if spots
            else None
        )
        for a, b, c in stored.triangles([points[index] for index in polygon]):
            corners.append((polygon[a], polygon[b], polygon[c]))
            sources.append(number)
            if where is not None:
                places.append((where[a], where[b], where[c]))
    uvs = np.array(places, dtype=np.float64).reshape(-1, 3, 2) if places else None
    image = _image(header.images, uvs, path) if textures else None
    painted = None if colors is not None else _colors("face", rows, properties, path)
    shown = painted if colors is None else colors
    if image is not None and shown is not None and not (shown == 1).all():
        refuse(path, "header", "it has colours and an image, a mesh has one; load it with textures=False")
    return Stored(
        vertices,
        np.array(corners, dtype=np.int64).reshape(-1, 3),
        colors if image is None else None,
        None if painted is None or image is not None else painted[np.array(sources, dtype=np.int64)],
        uvs,
        image,
    )


def _spots(rows: dict[str, list[Any]], single: dict[str, tuple[int, str]], path: Path) -> list[list[float]]:
    """Where in an image vertices are, by any of the names that programs have for that; nothing where there is none."""
    for names in (("texture_u", "texture_v"), ("u", "v"), ("s", "t")):
        if set(names) <= set(single):
            found: list[list[float]] = _columns(
                rows["vertex"], [single[name][0] for name in names], path, "vertex"
            ).tolist()
            return found
    return []


def _wedges(values: list[float], corners: int, number: int, path: Path) -> list[list[float]]:
    if len(values) != 2 * corners or not np.isfinite(values).all():
        refuse(path, f"face {number}", f"texcoord must be {2 * corners} finite numbers, not {values}")
    return np.reshape(values, (-1, 2)).tolist()


def _image(names: list[str], uvs: np.ndarray | None, path: Path) -> np.ndarray | None:
    if len(names) > 1:
        refuse(path, "header", f"it has {len(names)} images, a mesh has one; load it with textures=False")
    image = stored.file(path.parent, names)
    if image is None:
        return None
    if uvs is None:
        refuse(path, "header", "it has an image, and no texture coordinates; load it with textures=False")
    return read_image(image, "softly.rendering.Mesh.load")


def _colors(
    element: str, rows: dict[str, list[Any]], properties: dict[str, list[tuple[str, list[str]]]], path: Path
) -> np.ndarray | None:
    single = {name: (i, types[0]) for i, (name, types) in enumerate(properties.get(element, [])) if len(types) == 1}
    for prefix in ("", "diffuse_"):
        picked = [single.get(prefix + color) for color in _COLORS]
        found = [place for place in picked if place is not None]
        if len(found) == 3:
            scale = np.array([{"B": 255.0, "H": 65535.0}.get(kind, 1.0) for _, kind in found])
            values = _columns(rows[element], [place for place, _ in found], path, element) / scale
            return stored.shades(values, path, element)
    return None


def _columns(rows: list[list[Any]], places: list[int], path: Path, whose: str) -> np.ndarray:
    values = np.array([[row[place] for place in places] for row in rows], dtype=np.float64).reshape(-1, len(places))
    wrong = ~np.isfinite(values).all(-1)
    if wrong.any():
        number = int(wrong.argmax())
        refuse(path, f"{whose} {number}", f"{values[number].tolist()} are not finite")
    return values


def write(path: Path, mesh: Stored) -> None:
    if mesh.face_colors is not None:
        raise ValueError("softly.rendering.Mesh.save: PLY files here have colours of vertices; save faces' as .obj.")
    if mesh.texture is not None:
        raise ValueError("softly.rendering.Mesh.save: PLY files here have no textures; save them as .obj.")
    if mesh.uvs is not None:
        raise ValueError("softly.rendering.Mesh.save: PLY files here have no texture coordinates; save them as .obj.")
    colored = mesh.vertex_colors is not None
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {len(mesh.vertices)}"]
    header += [f"property double {axis}" for axis in "xyz"]
    header += [f"property double {color}" for color in _COLORS if colored]
    header += [f"element face {len(mesh.faces)}", "property list uchar int vertex_indices", "end_header", ""]
    values = mesh.vertices if mesh.vertex_colors is None else np.concatenate([mesh.vertices, mesh.vertex_colors], -1)
    faces = np.empty(len(mesh.faces), dtype=[("count", "u1"), ("corners", "<i4", (3,))])
    faces["count"], faces["corners"] = 3, mesh.faces
    path.write_bytes("\n".join(header).encode() + values.astype("<f8").tobytes() + faces.tobytes())
