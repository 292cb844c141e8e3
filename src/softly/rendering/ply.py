"""PLY files, text and binary."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

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


class _Element(NamedTuple):
    name: str
    number: int
    properties: list[tuple[str, list[str]]]
    """Names, and one type, or of a list those of its length and of its entries."""


def _ply_header(whole: bytes, path: Path) -> tuple[str, list[_Element], bytes, int]:
    end = whole.find(b"end_header")
    if not whole.startswith(b"ply") or end < 0:
        refuse(path, 1, "it is no PLY file: 'ply' or 'end_header' is missing")
    body = whole.index(b"\n", end) + 1 if b"\n" in whole[end:] else len(whole)
    kind, elements = "", []
    lines = whole[:end].decode("ascii", errors="replace").splitlines()
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
            refuse(path, line, f"{row!r} is not understood")
    if kind not in ("ascii", "binary_little_endian", "binary_big_endian"):
        refuse(path, 2, f"the format {kind!r} is not known")
    return kind, elements, whole[body:], len(lines) + 2


def _ply_rows(kind: str, elements: list[_Element], body: bytes, first: int, path: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    if kind == "ascii":
        rows = iter(enumerate((row for row in body.decode("ascii", errors="replace").splitlines()), first))
        for element in elements:
            found[element.name] = []
            for _ in range(element.number):
                line, row = next(((n, r) for n, r in rows if r.strip()), (first, ""))
                values, at, taken = numbers(row.split(), path, line), 0, []
                for _, types in element.properties:
                    size = 1 if len(types) == 1 else 1 + int(values[at]) if at < len(values) else 1
                    taken.append(values[at] if len(types) == 1 and at < len(values) else values[at + 1 : at + size])
                    at += size
                if at != len(values):
                    refuse(path, line, f"{element.name} has {at} numbers, not {len(values)}")
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
        refuse(path, f"byte {at} of the data", "the file ends too early")
    return found


def read(path: Path) -> Stored:
    kind, elements, body, first = _ply_header(content(path), path)
    rows = _ply_rows(kind, elements, body, first, path)
    columns = {element.name: [name for name, _ in element.properties] for element in elements}
    types = {element.name: [t for _, t in element.properties] for element in elements}
    names = columns.get("vertex", [])
    if not {"x", "y", "z"} <= set(names):
        refuse(path, "header", "vertices need the properties x, y and z")
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
            refuse(path, f"face {number}", f"{face} are not three or more of the {len(values)} vertices")
        corners += [(face[0], b, c) for b, c in itertools.pairwise(face[1:])]
    vertices = values[:, [names.index(axis) for axis in "xyz"]]
    return Stored(vertices, np.array(corners, dtype=np.int64).reshape(-1, 3), colors)


def write(path: Path, mesh: Stored) -> None:
    if mesh.face_colors is not None:
        raise ValueError("softly.rendering.Mesh.save: PLY files here have colours of vertices; save faces' as .obj.")
    if mesh.texture is not None:
        raise ValueError("softly.rendering.Mesh.save: PLY files here have no textures; save them as .obj.")
    colored = mesh.vertex_colors is not None
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {len(mesh.vertices)}"]
    header += [f"property double {axis}" for axis in "xyz"]
    header += [f"property double {color}" for color in ("red", "green", "blue") if colored]
    header += [f"element face {len(mesh.faces)}", "property list uchar int vertex_indices", "end_header", ""]
    values = mesh.vertices if mesh.vertex_colors is None else np.concatenate([mesh.vertices, mesh.vertex_colors], -1)
    faces = np.empty(len(mesh.faces), dtype=[("count", "u1"), ("corners", "<i4", (3,))])
    faces["count"], faces["corners"] = 3, mesh.faces
    path.write_bytes("\n".join(header).encode() + values.astype("<f8").tobytes() + faces.tobytes())
