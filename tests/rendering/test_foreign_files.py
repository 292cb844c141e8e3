"""Files as other programs write them: names with signs, polygons with dents, colours of many kinds."""

import math

import numpy as np
import pytest
import torch
import trimesh
from matplotlib.path import Path as Outline
from PIL import Image

from softly.rendering import Mesh, cube, icosphere, save_image

POINTS = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\n"
RED, BLUE = [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]
HEAD = "ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\nproperty float z\n"
FACES = "element face 1\nproperty list uchar int vertex_indices\n"
ROWS = ["0 0 0", "1 0 0", "0 1 0"]


def write(folder, text, name="mesh.obj", **others):
    for other, content in others.items():
        (folder / other).write_text(content, encoding="utf-8")
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_names_of_materials_have_signs_that_begin_comments_elsewhere(tmp_path):
    (tmp_path / "max.mtl").write_text("newmtl Material #1\nKd 1 0 0\nnewmtl Material #2  # blue\nKd 0 0 1\n")
    text = f"mtllib max.mtl\n{POINTS}usemtl Material #1\nf 1 2 3\nusemtl Material #2 # again\nf 1 3 4\n"
    assert Mesh.load(write(tmp_path, text)).face_colors[0].tolist() == [RED, BLUE]


@pytest.mark.parametrize(
    ("named", "file"),
    [
        ("a#b.mtl", "a#b.mtl"),
        ("two  spaces.mtl", "two  spaces.mtl"),
        (".\\paint.mtl", "paint.mtl"),
        ('"paint.mtl"', "paint.mtl"),
        ("paint.mtl# a comment", "paint.mtl"),
    ],
)
def test_names_of_files_are_found_in_every_form(tmp_path, named, file):
    (tmp_path / file).write_text(f"newmtl red\nKd 1 0 0\nmap_Kd {named.replace('.mtl', '.png')}\n")
    save_image(torch.rand(3, 2, 2), tmp_path / file.replace(".mtl", ".png"))
    text = f"mtllib {named}\n{POINTS}vt 0 0\nvt 1 0\nvt 1 1\nusemtl red\nf 1/1 2/2 3/3\n"
    assert Mesh.load(write(tmp_path, text)).textures.shape == (1, 3, 2, 2)
    assert Mesh.load(tmp_path / "mesh.obj", textures=False).face_colors[0].tolist() == [RED]


@pytest.mark.parametrize("name", ["a#b.obj", "a # b.obj", "two  spaces.obj", "café.obj"])
def test_meshes_come_back_from_files_of_any_name(tmp_path, name):
    colors = torch.eye(3)[torch.arange(12) % 3]
    Mesh(cube().vertices, cube().faces, face_colors=colors).save(tmp_path / name)
    assert torch.equal(Mesh.load(tmp_path / name).face_colors[0], colors)
    image = torch.arange(12.0).reshape(3, 2, 2) / 255
    Mesh(cube().vertices, cube().faces, textures=image, uvs=torch.rand(12, 3, 2)).save(tmp_path / name)
    torch.testing.assert_close(Mesh.load(tmp_path / name).textures[0], image)


def test_materials_may_be_used_before_their_library_is_named(tmp_path):
    (tmp_path / "paint.mtl").write_bytes(b"\xef\xbb\xbfnewmtl red\nKd 1 0 0\n")
    mesh = Mesh.load(write(tmp_path, f"\ufeff{POINTS}usemtl red\nf 1 2 3\nmtllib paint.mtl\n"))
    assert mesh.face_colors[0].tolist() == [RED]


def test_comments_end_with_their_line(tmp_path):
    mesh = Mesh.load(
        write(tmp_path, f"# made in C:\\models\\\n{POINTS}f 1 2 \\\n 3\n# a\x0cb\u2028c\nf 1 3 4 # end \\\n")
    )
    assert mesh.vertices[0, :, :2].tolist() == [[0, 0], [1, 0], [1, 1], [0, 1]]
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 3]]


@pytest.mark.parametrize("suffix", ["obj", "ply"])
@pytest.mark.parametrize("seed", range(6))
def test_polygons_with_dents_are_what_is_inside_of_them(tmp_path, suffix, seed):
    random = np.random.default_rng(seed)
    count = int(random.integers(4, 30))
    angle = np.sort(random.uniform(0, 2 * math.pi, count))
    radius = random.uniform(0.1, 1, count)
    outline = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1)
    turned, _ = np.linalg.qr(random.normal(size=(3, 3)))
    points = outline @ turned[:2] + 0.3
    rows = [" ".join(map(str, point)) for point in points.tolist()]
    if suffix == "obj":
        text = "".join(f"v {row}\n" for row in rows) + "f " + " ".join(str(i + 1) for i in range(count)) + "\n"
    else:
        text = HEAD.replace("vertex 3", f"vertex {count}").replace("float", "double") + FACES + "end_header\n"
        text += "\n".join([*rows, f"{count} " + " ".join(map(str, range(count)))]) + "\n"
    mesh = Mesh.load(write(tmp_path, text, f"mesh.{suffix}"))
    assert mesh.faces.shape == (count - 2, 3)
    queries = random.uniform(-1, 1, (2000, 2))
    shares = [Outline(outline[face]).contains_points(queries) for face in mesh.faces.numpy()]
    covered = np.sum(shares, 0)
    assert covered.max() == 1
    assert np.array_equal(covered > 0, Outline(outline).contains_points(queries))
    normals = torch.from_numpy(np.cross(turned[0], turned[1])).float()
    assert bool((mesh.normals()[0] @ normals > -1e-6).all())


def test_polygons_without_dents_are_fans_and_crossing_ones_end(tmp_path):
    mesh = Mesh.load(write(tmp_path, "v 0 0 0\nv 1 0 0\nv 2 0 0\nv 2 1 0\nv 0 1 0\nf 1 2 3 4 5\n"))
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 3], [0, 3, 4]]
    crossing = "v 0 0 0\nv 1 1 0\nv 1 0 0\nv 0 1 0\nv 0.5 2 0\nf 1 2 3 4 5\nf 1 1 1 1\n"
    assert Mesh.load(write(tmp_path, crossing)).faces.shape == (5, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v 0 0 0 255 0 0\nv 1 0 0 0 255 0\n", r"vertex 0: colours must be in \[0, 1\], not \[255.0, 0.0, 0.0\]"),
        ("v 0 0 0 1 0 0 0.5\n", "line 1: seven numbers may end with a colour, or with a colour and its opacity"),
        ("v ٣ 0 0\n", "line 1: '٣ 0 0' are not numbers"),
        (f"mtllib bytes.mtl\n{POINTS}", r"bytes.mtl, line 2: colours must be in \[0, 1\], not \[255.0, 0.0, 0.0\]"),
        (f"mtllib none.mtl\n{POINTS}", "none.mtl, line 2: an image without options is known here, not 'map_Kd'"),
        (
            "mtllib image.mtl\nv 0 0 0 1 0 0\nv 1 0 0 1 0 0\nv 0 1 0 1 0 0\nvt 0 0\nusemtl image\nf 1/1 2/1 3/1\n",
            "end: vertices have colours and faces an image, a mesh has one; load it with textures=False",
        ),
    ],
)
def test_what_would_be_wrong_is_refused(tmp_path, text, message):
    save_image(torch.rand(3, 2, 2), tmp_path / "image.png")
    libraries = {
        "bytes.mtl": "newmtl red\nKd 255 0 0\n",
        "none.mtl": "newmtl red\nmap_Kd\n",
        "image.mtl": "newmtl image\nmap_Kd image.png\n",
    }
    with pytest.raises(ValueError, match=message):
        Mesh.load(write(tmp_path, text, **libraries))


def colored(kinds, values, prefix=""):
    return "".join(
        f"property {kind} {prefix}{name}\n" for kind, name in zip(kinds, ("red", "green", "blue"), strict=True)
    ), values


@pytest.mark.parametrize(
    ("kinds", "values", "prefix", "expected"),
    [
        (("uchar", "uchar", "uchar"), "255 0 51", "", [1.0, 0.0, 0.2]),
        (("uchar", "float", "ushort"), "255 0.5 65535", "", [1.0, 0.5, 1.0]),
        (("double", "double", "double"), "1 0.5 0", "", [1.0, 0.5, 0.0]),
        (("uchar", "uchar", "uchar"), "255 0 51", "diffuse_", [1.0, 0.0, 0.2]),
    ],
)
@pytest.mark.parametrize("owner", ["vertex", "face"])
def test_colors_of_ply_files(tmp_path, kinds, values, prefix, expected, owner):
    properties, values = colored(kinds, values, prefix)
    if owner == "vertex":
        text = HEAD + properties + FACES + "end_header\n" + "".join(f"{row} {values}\n" for row in ROWS) + "3 0 1 2\n"
        found = Mesh.load(write(tmp_path, text, "mesh.ply")).vertex_colors[0, 2]
    else:
        text = HEAD + FACES.replace("face 1", "face 2") + properties + "end_header\n" + "\n".join(ROWS)
        text += f"\n3 0 1 2 0 0 0\n4 0 1 2 1 {values}\n"
        mesh = Mesh.load(write(tmp_path, text, "mesh.ply"))
        assert mesh.face_colors[0, 0].tolist() == [0, 0, 0]
        assert torch.equal(mesh.face_colors[0, 1], mesh.face_colors[0, 2])
        found = mesh.face_colors[0, 2]
    torch.testing.assert_close(found, torch.tensor(expected))


@pytest.mark.parametrize("kind", ["int", "float", "char"])
def test_colors_of_ply_files_that_are_bytes_in_disguise_are_refused(tmp_path, kind):
    properties, values = colored([kind] * 3, "0 100 0")
    text = HEAD + properties + FACES + "end_header\n" + "".join(f"{row} {values}\n" for row in ROWS) + "3 0 1 2\n"
    with pytest.raises(ValueError, match=r"mesh.ply, vertex 0: colours must be in \[0, 1\], not \[0.0, 100.0, 0.0\]"):
        Mesh.load(write(tmp_path, text, "mesh.ply"))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_headers_of_ply_files_end_where_they_end(tmp_path, end):
    head = HEAD.replace("ply\n", "ply\ncomment end_header follows\n").replace("ascii", "binary_little_endian")
    data = np.frombuffer(b"\n" * 36, dtype="<f4")  # coordinates whose bytes are line feeds
    body = data.tobytes() + b"\x03" + np.array([0, 1, 2], dtype="<i4").tobytes()
    mesh = Mesh.load(write(tmp_path, (head + FACES + "end_header\n").replace("\n", end).encode() + body, "mesh.ply"))
    assert torch.equal(mesh.vertices.flatten(), torch.from_numpy(data.copy()))
    text = (HEAD + FACES + "end_header\n" + "\n".join(ROWS) + "\n3 0 1 2\n").replace("\n", end)
    assert Mesh.load(write(tmp_path, text, "text.ply")).faces.tolist() == [[0, 1, 2]]


def test_what_a_mesh_has_not_may_be_nan(tmp_path):
    text = HEAD + "property float quality\n" + FACES + "end_header\n" + "".join(f"{row} nan\n" for row in ROWS)
    assert Mesh.load(write(tmp_path, text + "3 0 1 2\n", "mesh.ply")).vertices.isfinite().all()
    with pytest.raises(ValueError, match=r"vertex 0: \[nan, 0.0, 0.0\] are not finite"):
        Mesh.load(write(tmp_path, text.replace("0 0 0 nan", "nan 0 0 0") + "3 0 1 2\n", "mesh.ply"))


@pytest.mark.parametrize("kind", ["face", "simple"])
def test_colors_that_trimesh_has(tmp_path, kind, monkeypatch):
    box = trimesh.creation.box()
    if kind == "face":
        box.visual.face_colors = [255, 0, 51, 255]
    else:
        box.visual = trimesh.visual.TextureVisuals(
            material=trimesh.visual.material.SimpleMaterial(diffuse=[255, 0, 51, 255])
        )
    monkeypatch.setattr(trimesh, "load", lambda *_, **__: box)
    (tmp_path / "box.other").write_text("")
    mesh = Mesh.load(tmp_path / "box.other")
    torch.testing.assert_close(mesh.face_colors, torch.tensor([1.0, 0.0, 0.2]).expand(1, 12, 3))


def test_parts_with_colors_of_different_kinds_are_refused(tmp_path):
    one, other = trimesh.creation.box(), trimesh.creation.box()
    one.visual.vertex_colors = [255, 0, 0, 255]
    material = trimesh.visual.material.PBRMaterial(baseColorFactor=[0, 0, 255, 255])
    other.visual = trimesh.visual.TextureVisuals(material=material)
    trimesh.Scene([one, other]).export(tmp_path / "parts.glb")
    with pytest.raises(ValueError, match=r"parts.glb, trimesh: its parts have colours of different kinds"):
        Mesh.load(tmp_path / "parts.glb")
    trimesh.creation.box().export(tmp_path / "plain.off")
    assert Mesh.load(tmp_path / "plain.off").face_colors is None


@pytest.mark.parametrize("given", [True, False])
def test_simple_materials_color_faces_and_not_images(tmp_path, given, monkeypatch):
    box = trimesh.creation.box()
    image = Image.new("RGB", (2, 2), (200, 100, 0))
    options = {"diffuse": [51, 0, 0, 255]} if given else {}
    monkeypatch.setattr(trimesh, "load", lambda *_, **__: box)
    (tmp_path / "box.other").write_text("")
    box.visual = trimesh.visual.TextureVisuals(material=trimesh.visual.material.SimpleMaterial(**options))
    found = Mesh.load(tmp_path / "box.other").face_colors
    assert (found is None) != given
    if found is not None:
        torch.testing.assert_close(found[0, 0], torch.tensor([0.2, 0.0, 0.0]))
    material = trimesh.visual.material.SimpleMaterial(image=image, **options)
    box.visual = trimesh.visual.TextureVisuals(uv=np.zeros((8, 2)), material=material)
    texture = Mesh.load(tmp_path / "box.other").textures[0, :, 0, 0]
    torch.testing.assert_close(texture, torch.tensor([200 / 255, 100 / 255, 0.0]))


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (
            "vertex_colors",
            torch.full((42, 3), 1.5),
            r"vertex_colors must be in \[0, 1\] in files, got others; clamp them",
        ),
        ("face_colors", torch.full((80, 3), -0.1), r"face_colors must be in \[0, 1\]"),
        ("vertex_colors", torch.full((42, 3), math.nan), "vertex_colors must be finite in files"),
        ("vertex_colors", torch.rand(2, 42, 3), r"a file has one mesh, got vertex_colors of shape \(2, 42, 3\)"),
        ("face_colors", torch.rand(2, 80, 3), r"a file has one mesh, got face_colors of shape \(2, 80, 3\)"),
        ("faces", icosphere(42).faces.expand(2, 80, 3), r"a file has one mesh, got faces of shape \(2, 80, 3\)"),
        ("vertices", torch.full((42, 3), math.inf), "vertices must be finite in files"),
    ],
)
@pytest.mark.parametrize("suffix", ["obj", "ply"])
def test_what_files_cant_have_is_not_written(tmp_path, kind, value, message, suffix):
    mesh = Mesh(**{"vertices": icosphere(42).vertices, "faces": icosphere(42).faces, kind: value})
    with pytest.raises(ValueError, match=f"softly.rendering.Mesh.save: {message}"):
        mesh.save(tmp_path / f"mesh.{suffix}")
    assert not list(tmp_path.iterdir())


TEXTURED = HEAD.replace("ply\n", "ply\ncomment TextureFile my image.png\n")
WEDGES = "property list uchar float texcoord\n"
PLACES = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("names", ["texture_u texture_v", "u v", "s t", "wedges"])
def test_textures_of_ply_files(tmp_path, names):
    image = torch.arange(12.0).reshape(3, 2, 2) / 255
    save_image(image, tmp_path / "my image.png")
    if names == "wedges":  # which come before what vertices have
        text = TEXTURED + "property float u\nproperty float v\n" + FACES + WEDGES + "end_header\n"
        text += "".join(f"{row} 0 0\n" for row in ROWS) + "3 0 1 2 6 0 0 1 0 0 1\n"
    else:
        text = TEXTURED + "".join(f"property float {name}\n" for name in names.split()) + FACES + "end_header\n"
        text += "".join(f"{row} {u} {v}\n" for row, (u, v) in zip(ROWS, PLACES, strict=True)) + "3 0 1 2\n"
    mesh = Mesh.load(write(tmp_path, text, "mesh.ply"))
    torch.testing.assert_close(mesh.textures[0], image)
    assert mesh.uvs[0, 0].tolist() == PLACES
    assert Mesh.load(tmp_path / "mesh.ply", textures=False).textures is None
    (tmp_path / "my image.png").unlink()
    assert Mesh.load(tmp_path / "mesh.ply").textures is None


@pytest.mark.parametrize(
    ("header", "rows", "face", "message"),
    [
        ("", "", "3 0 1 2 4 0 0 1 0", r"face 0: texcoord must be 6 finite numbers, not \[0.0, 0.0, 1.0, 0.0\]"),
        ("", "", "3 0 1 2 6 0 0 1 0 0 nan", "face 0: texcoord must be 6 finite numbers"),
        ("comment TextureFile b.png\n", "", "3 0 1 2 6 0 0 1 0 0 1", "it has 2 images, a mesh has one"),
        (
            "property uchar red\nproperty uchar green\nproperty uchar blue\n",
            " 9 9 9",
            "3 0 1 2 6 0 0 1 0 0 1",
            "it has colours",
        ),
    ],
)
def test_textures_of_ply_files_that_a_mesh_cant_have(tmp_path, header, rows, face, message):
    save_image(torch.zeros(3, 2, 2), tmp_path / "my image.png")
    text = TEXTURED + header + FACES + WEDGES + "end_header\n" + "".join(f"{row}{rows}\n" for row in ROWS) + face + "\n"
    with pytest.raises(ValueError, match=f"mesh.ply, .*{message}"):
        Mesh.load(write(tmp_path, text, "mesh.ply"))


def test_an_image_needs_texture_coordinates(tmp_path):
    save_image(torch.zeros(3, 2, 2), tmp_path / "my image.png")
    text = TEXTURED + FACES + "end_header\n" + "\n".join(ROWS) + "\n3 0 1 2\n"
    with pytest.raises(ValueError, match="it has an image, and no texture coordinates; load it with textures=False"):
        Mesh.load(write(tmp_path, text, "mesh.ply"))


def mapped(folder, image):
    (folder / "paint.mtl").write_text(f"newmtl a\nmap_Kd {image}\n")
    text = f"mtllib paint.mtl\n{POINTS}vt 0 0\nvt 1 0\nvt 1 1\nusemtl a\nf 1/1 2/2 3/3\n"
    return Mesh.load(write(folder, text)).textures[0]


def test_images_of_sixteen_bits_and_of_no_known_range(tmp_path):
    grey = np.arange(16, dtype=np.uint16).reshape(4, 4) * 4369
    Image.fromarray(grey).save(tmp_path / "grey.png")
    wanted = torch.arange(16.0).reshape(4, 4).expand(3, 4, 4) / 15
    torch.testing.assert_close(mapped(tmp_path, "grey.png"), wanted)
    Image.fromarray(grey / np.float32(65535)).save(tmp_path / "shares.tiff")
    with pytest.raises(
        ValueError, match=r"shares.tiff has pixels of 'F', of no known range; save it with 8 or 16 bits"
    ):
        mapped(tmp_path, "shares.tiff")


@pytest.mark.parametrize(
    "content", [b"P6 2 2 x", b"BM" + bytes(range(60)), b"GIF89a\xff\xff\xff\xff\x00\x00\x00,", b""]
)
def test_malformed_images_are_refused(tmp_path, content):
    (tmp_path / "image.ppm").write_bytes(content)
    with pytest.raises(ValueError, match=r"softly.rendering.Mesh.load: image.ppm is no image that Pillow can read"):
        mapped(tmp_path, "image.ppm")
