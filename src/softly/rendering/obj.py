"""OBJ files, with their materials."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from softly.rendering.images import read_image, save_image
from softly.rendering.stored import Stored, content, file, numbers, plain, refuse, rows, shades, triangles

_IGNORED = {"vn", "vp", "g", "o", "s", "l", "p", "mg", "lod", "shadow_obj", "trace_obj", "usemap", "maplib"}


class _Material(NamedTuple):
    """A diffuse colour, and the image that it multiplies."""

    color: tuple[float, ...] = (1.0, 1.0, 1.0)
    image: Path | None = None


def _index(word: str, count: int, one: str, many: str, path: Path, line: int) -> int:
    try:
        index = int(plain(word))
    except ValueError:
        refuse(path, line, f"{word!r} is no {one} of a face")
    index = index - 1 if index > 0 else count + index
    if index < 0 or index >= count or word.startswith("0"):
        refuse(path, line, f"{word!r} is none of the {count} {many} so far")
    return index


def read(path: Path, *, textures: bool = True) -> Stored:
    vertices: list[list[float]] = []
    colors: list[list[float]] = []
    places: list[list[float]] = []
    faces: list[tuple[int, int, int]] = []
    mapped: list[tuple[int, int, int]] = []
    paints: list[tuple[str, ...]] = []
    materials: dict[str, _Material] = {}
    paint: tuple[str, ...] = ()
    started = ""
    lines = rows(content(path).decode("utf-8-sig", errors="replace"))
    for line, row in enumerate(lines, 1):
        if row.endswith("\\") and "#" not in row:  # no comment goes on
            started += row[:-1] + " "
            continue
        row, started = started + row, ""
        words = row.split("#", 1)[0].split()
        if not words:
            continue
        match words[0]:
            case "v":
                if len(words) == 8:
                    refuse(path, line, "seven numbers may end with a colour, or with a colour and its opacity")
                if len(words) not in (4, 5, 7):
                    refuse(
                        path,
                        line,
                        f"a vertex has three coordinates, and maybe three colours, not {len(words) - 1} numbers",
                    )
                values = numbers(words[1:], path, line)
                vertices.append(values[:3])
                if len(values) == 6:
                    colors.append(values[3:])
            case "vt":
                if len(words) not in (2, 3, 4):
                    refuse(path, line, f"texture coordinates are one to three numbers, not {len(words) - 1}")
                places.append([*numbers(words[1:], path, line), 0.0][:2])
            case "f":
                if len(words) < 4:
                    refuse(path, line, f"a face has at least three vertices, not {len(words) - 1}")
                parts = [word.split("/") for word in words[1:]]
                corners = [_index(part[0], len(vertices), "vertex", "vertices", path, line) for part in parts]
                where = [
                    _index(part[1], len(places), "place in the image", "texture coordinates", path, line)
                    for part in parts
                    if len(part) > 1 and part[1]
                ]
                for a, b, c in triangles([vertices[corner] for corner in corners]):
                    faces.append((corners[a], corners[b], corners[c]))
                    mapped.append((where[a], where[b], where[c]) if len(where) == len(corners) else (-1, -1, -1))
                    paints.append(paint)
            case "mtllib":
                if len(words) < 2:
                    refuse(path, line, "mtllib names no file")
                whole = file(path.parent, _names(row))
                for library in [whole] if whole else [file(path.parent, [word]) for word in words[1:]]:
                    if library is not None:
                        materials.update(_read_materials(library, textures=textures))
            case "usemtl":
                paint = _names(row)
            case keyword if keyword not in _IGNORED:
                refuse(path, line, f"{keyword!r} is not known here")
    if started:
        refuse(path, len(lines), "the file ends where a line goes on")
    if colors and len(colors) != len(vertices):
        refuse(path, "end", f"{len(colors)} of {len(vertices)} vertices have colours; all or none must")
    uvs = None
    if mapped and min(mapped)[0] >= 0:
        uvs = np.array(places, dtype=np.float64)[np.array(mapped, dtype=np.int64)]
    used = {names: next((materials[name] for name in names if name in materials), None) for names in paints}
    texture = _texture([material or _Material() for material in used.values()], uvs, path)
    if colors and texture is not None:
        refuse(path, "end", "vertices have colours and faces an image, a mesh has one; load it with textures=False")
    painted = None
    if any(used.values()) and not colors and texture is None:
        kinds = {names: (material or _Material()).color for names, material in used.items()}
        painted = np.array([kinds[names] for names in paints])
    return Stored(
        np.array(vertices, dtype=np.float64).reshape(-1, 3),
        np.array(faces, dtype=np.int64).reshape(-1, 3),
        shades(np.array(colors), path, "vertex") if colors else None,
        painted,
        uvs,
        texture,
    )


def _texture(used: list[_Material], uvs: np.ndarray | None, path: Path) -> np.ndarray | None:
    """The image of all materials that are used, times their colour."""
    if all(material.image is None for material in used):
        return None
    if len(set(used)) > 1:
        count = len({material.image for material in used if material.image is not None})
        refuse(
            path,
            "end",
            f"faces have {count} images and {len(set(used))} materials, a mesh has one; load it with textures=False",
        )
    if uvs is None:
        refuse(path, "end", "a material has an image, and faces have no texture coordinates; load with textures=False")
    assert used[0].image is not None
    return read_image(used[0].image, "softly.rendering.Mesh.load") * np.array(used[0].color)[:, None, None]


def _names(row: str) -> tuple[str, ...]:
    """What a row may name: names have spaces, and signs that begin a comment elsewhere, such as "Material #25"."""
    whole = row.split(None, 1)[1].strip() if len(row.split(None, 1)) > 1 else ""
    return tuple(dict.fromkeys((whole, re.split(r"\s#", whole)[0].strip(), whole.split("#", 1)[0].strip())))


def _read_materials(path: Path, *, textures: bool) -> dict[str, _Material]:
    found: dict[str, _Material] = {}
    current: tuple[str, ...] = ()
    for line, row in enumerate(rows(path.read_text(encoding="utf-8-sig", errors="replace")), 1):
        words = row.split("#", 1)[0].split()
        if words[:1] == ["newmtl"]:
            whole, *shorter = _names(row)
            current = (whole, *shorter) if re.search(r"\s#\s", whole) else (whole,)  # a comment is set apart
            found.update(dict.fromkeys(current, _Material()))
        elif words[:1] == ["Kd"] and current:
            if len(words) != 4:
                refuse(path, line, "a colour has three numbers")
            color = tuple(numbers(words[1:], path, line))
            if not all(0 <= part <= 1 for part in color):
                refuse(path, line, f"colours must be in [0, 1], not {list(color)}")
            found.update({name: found[name]._replace(color=color) for name in current})
        elif words[:1] == ["map_Kd"] and current and textures:
            names = _names(row)
            if not names[0] or names[0].startswith("-"):
                refuse(
                    path, line, f"an image without options is known here, not {row.strip()!r}; load with textures=False"
                )
            image = file(path.parent, names)
            if image is not None:
                found.update({name: found[name]._replace(image=image) for name in current})
    return found


def write(path: Path, mesh: Stored) -> None:
    lines = []
    for i, vertex in enumerate(mesh.vertices.tolist()):
        extra = [] if mesh.vertex_colors is None else mesh.vertex_colors[i].tolist()
        lines.append("v " + _text([*vertex, *extra]))
    if mesh.uvs is None:
        faces = [f"f {a + 1} {b + 1} {c + 1}" for a, b, c in mesh.faces.tolist()]
    else:
        places, where = np.unique(mesh.uvs.reshape(-1, 2), axis=0, return_inverse=True)
        lines += [f"vt {_text(place)}" for place in places.tolist()]
        pairs = np.stack([mesh.faces, where.reshape(-1, 3)], -1) + 1
        faces = ["f " + " ".join(f"{v}/{t}" for v, t in face) for face in pairs.tolist()]
    library = path.with_suffix(".mtl")
    if mesh.face_colors is not None:
        kinds, which = np.unique(mesh.face_colors, axis=0, return_inverse=True)
        paints = [f"newmtl color{i}\nKd {_text(kind)}" for i, kind in enumerate(kinds.tolist())]
        last = -1
        for number, paint in enumerate(which.reshape(-1).tolist()):
            lines += [f"usemtl color{paint}"] * (paint != last) + [faces[number]]
            last = paint
    elif mesh.texture is not None:
        image = path.with_suffix(".png")
        save_image(torch.from_numpy(mesh.texture), image)
        paints = [f"newmtl image\nKd 1.0 1.0 1.0\nmap_Kd {image.name}"]
        lines += ["usemtl image", *faces]
    else:
        path.write_text("\n".join([*lines, *faces]) + "\n", encoding="utf-8")
        return
    library.write_text("\n".join(paints) + "\n", encoding="utf-8")
    path.write_text("\n".join([f"mtllib {library.name}", *lines]) + "\n", encoding="utf-8")


def _text(values: list[float]) -> str:
    return " ".join(repr(float(value)) for value in values)
