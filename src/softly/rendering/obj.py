"""OBJ files, with their materials."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from softly.rendering.stored import Stored, content, numbers, refuse

_IGNORED = {"vt", "vn", "vp", "g", "o", "s", "l", "p", "mg", "lod", "shadow_obj", "trace_obj", "usemap", "maplib"}


def _corner(word: str, count: int, path: Path, line: int) -> int:
    try:
        index = int(word.split("/", 1)[0])
    except ValueError:
        refuse(path, line, f"{word!r} is no vertex of a face")
    index = index - 1 if index > 0 else count + index
    if index < 0 or index >= count or word.startswith("0"):
        refuse(path, line, f"{word!r} is none of the {count} vertices so far")
    return index


def read(path: Path) -> Stored:
    vertices: list[list[float]] = []
    colors: list[list[float]] = []
    faces: list[tuple[int, int, int]] = []
    paints: list[int] = []
    materials: dict[str, list[float]] = {}
    palette: list[list[float]] = [[1.0, 1.0, 1.0]]
    paint, started = 0, ""
    text = content(path).decode("utf-8", errors="replace")
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
                    refuse(
                        path,
                        line,
                        f"a vertex has three coordinates, and maybe three colours, not {len(words) - 1} numbers",
                    )
                values = numbers(words[1:], path, line)
                vertices.append(values[:3])
                if len(values) >= 6:
                    colors.append(values[-3:])
            case "f":
                if len(words) < 4:
                    refuse(path, line, f"a face has at least three vertices, not {len(words) - 1}")
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
                refuse(path, line, f"{keyword!r} is not known here")
    if colors and len(colors) != len(vertices):
        refuse(path, "end", f"{len(colors)} of {len(vertices)} vertices have colours; all or none must")
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
                refuse(path, line, "a colour has three numbers")
            found[current] = numbers(words[1:], path, line)
    return found


def write(path: Path, mesh: Stored) -> None:
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
