"""Files of meshes: read as others read them, written so that they come back, refused where they are malformed."""

import gzip
import os
import struct
from pathlib import Path

import pytest
import torch
import trimesh

from softly.rendering import Mesh, icosphere

MESHES = Path(os.environ.get("SOFTLY_DATA", "")) / "meshes"


def obj(tmp_path, text):
    path = tmp_path / "mesh.obj"
    path.write_text(text)
    return path


POINTS = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nv 0.5 2 0\n"


def test_polygons_negative_indices_and_comments(tmp_path):
    mesh = Mesh.load(
        obj(tmp_path, f"# a house\no house\n{POINTS}vt 0 0\nvn 0 0 1\ng wall\nf 1/1/1 2//1 3 \\\n4\nf -3 -1 -2\n")
    )
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 3], [2, 4, 3]]
    assert mesh.vertices[0, 4].tolist() == [0.5, 2.0, 0.0]


def test_colors_of_vertices_and_materials(tmp_path):
    mesh = Mesh.load(obj(tmp_path, "v 0 0 0 1 0 0\nv 1 0 0 0 1 0\nv 1 1 0 0 0 1\nf 1 2 3\n"))
    assert mesh.vertex_colors[0].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    (tmp_path / "paint box.mtl").write_text("newmtl dark red\nKa 0 0 0\nKd 0.5 0 0\nnewmtl plain\n")
    text = f"mtllib paint box.mtl\n{POINTS}f 1 2 3\nusemtl dark red\nf 1 3 4\nusemtl plain\nf 3 5 4\n"
    mesh = Mesh.load(obj(tmp_path, text))
    assert mesh.face_colors[0].tolist() == [[1, 1, 1], [0.5, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v 0 0\n", "mesh.obj, line 1: a vertex has three coordinates"),
        ("v 0 0 zero\n", "line 1: '0 0 zero' are not numbers"),
        ("v 0 0 nan\n", "line 1: '0 0 nan' are not finite"),
        (POINTS + "f 1 2\n", "line 6: a face has at least three vertices, not 2"),
        (POINTS + "f 1 2 6\n", "line 6: '6' is none of the 5 vertices so far"),
        (POINTS + "f 0 1 2\n", "line 6: '0' is none of the 5"),
        (POINTS + "f 1 2 -6\n", "line 6: '-6' is none of the 5"),
        (POINTS + "f a b c\n", "line 6: 'a' is no vertex of a face"),
        (POINTS + "curv 0 1 2\n", "line 6: 'curv' is not known here"),
        ("v 0 0 0 1 0 0\nv 0 0 1\n", "end: 1 of 2 vertices have colours"),
        ("v 1_0 0 0\n", "line 1: '1_0 0 0' are not numbers"),
        (POINTS + "f 1 2 0_3\n", "line 6: '0_3' is no vertex of a face"),
        (POINTS + "f 1 2 3 \\", "line 6: the file ends where a line goes on"),
        (POINTS + "mtllib\n", "line 6: mtllib names no file"),
    ],
)
def test_malformed_obj_files_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        Mesh.load(obj(tmp_path, text))


@pytest.mark.parametrize(
    "named", ["paint.mtl # a comment", "\\\npaint.mtl", "absent.mtl paint.mtl", "two words.mtl"], ids=range(4)
)
def test_libraries_of_materials_are_found(tmp_path, named):
    (tmp_path / ("two words.mtl" if "two" in named else "paint.mtl")).write_text("newmtl red\nKd 1 0 0\n")
    mesh = Mesh.load(obj(tmp_path, f"mtllib {named}\n{POINTS}usemtl red\nf 1 2 3\n"))
    assert mesh.face_colors[0].tolist() == [[1, 0, 0]]


@pytest.mark.parametrize("suffix", ["obj", "ply"])
@pytest.mark.parametrize("colored", [False, True])
def test_what_is_saved_comes_back_and_others_read_it(tmp_path, suffix, colored):
    sphere = icosphere(42)
    colors = torch.rand(42, 3, dtype=torch.float64) if colored else None
    mesh = Mesh(sphere.vertices.double(), sphere.faces, vertex_colors=colors)
    path = tmp_path / f"sphere.{suffix}"
    mesh.save(path)
    again = Mesh.load(path)
    assert torch.equal(again.vertices, mesh.vertices.float())
    assert torch.equal(again.faces, mesh.faces)
    if colored:
        torch.testing.assert_close(again.vertex_colors, mesh.vertex_colors.float())
    judge = trimesh.load(path, process=False)
    assert judge.faces.tolist() == mesh.faces.tolist()
    torch.testing.assert_close(torch.tensor(judge.vertices), mesh.vertices[0], atol=1e-7, rtol=0)


def test_colors_of_faces_come_back(tmp_path):
    mesh = Mesh(icosphere(12).vertices, icosphere(12).faces, face_colors=torch.rand(20, 3))
    mesh.save(tmp_path / "sphere.obj")
    torch.testing.assert_close(Mesh.load(tmp_path / "sphere.obj").face_colors, mesh.face_colors)
    with pytest.raises(ValueError, match=r"save faces' as .obj"):
        mesh.save(tmp_path / "sphere.ply")
    placed = Mesh(mesh.vertices, mesh.faces, uvs=torch.rand(20, 3, 2))
    with pytest.raises(ValueError, match=r"no texture coordinates; save them as .obj"):
        placed.save(tmp_path / "sphere.ply")
    with pytest.raises(ValueError, match=r"must end with .obj or .ply, got 'sphere.stl'"):
        mesh.save(tmp_path / "sphere.stl")
    with pytest.raises(ValueError, match="a file has one mesh"):
        Mesh(torch.zeros(2, 3, 3), torch.tensor([[0, 1, 2]])).save(tmp_path / "two.obj")


PLY = "ply\nformat {} 1.0\ncomment a square\nelement vertex 4\nproperty float x\nproperty float y\nproperty float z\n"
PLY += "property uchar red\nproperty uchar green\nproperty uchar blue\nelement face 1\n"
PLY += "property list uchar int vertex_indices\nend_header\n"
WHOLE = PLY.format("ascii") + 4 * "0 0 0 1 1 1\n"
ROWS = [(0, 0, 0, 255, 0, 0), (1, 0, 0, 0, 255, 0), (1, 1, 0, 0, 0, 255), (0, 1, 0, 51, 0, 0)]


@pytest.mark.parametrize("kind", ["ascii", "binary_little_endian", "binary_big_endian"])
def test_ply_files_of_every_format(tmp_path, kind):
    order = ">" if "big" in kind else "<"
    if kind == "ascii":
        body = "".join(" ".join(str(v) for v in row) + "\n" for row in ROWS).encode() + b"4 0 1 2 3\n"
    else:
        body = b"".join(struct.pack(order + "3f3B", *row) for row in ROWS) + struct.pack(order + "B4i", 4, 0, 1, 2, 3)
    path = tmp_path / "square.ply"
    path.write_bytes(PLY.format(kind).encode() + body)
    mesh = Mesh.load(path)
    assert mesh.faces.tolist() == [[0, 1, 2], [0, 2, 3]]
    assert mesh.vertices[0, 2].tolist() == [1, 1, 0]
    torch.testing.assert_close(mesh.vertex_colors[0, 3], torch.tensor([0.2, 0.0, 0.0]))
    if kind != "ascii":
        path.write_bytes(path.read_bytes()[:-4])
        with pytest.raises(ValueError, match="the file ends too early"):
            Mesh.load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "line 1: it is no PLY file"),
        ("ply\nformat ascii 2.0\nend_header\n", "line 2: 'format ascii 2.0' is not understood"),
        ("ply\nformat ascii 1.0\nproperty float x\nend_header\n", "line 3: 'property float x' is not understood"),
        ("ply\nformat ascii 1.0\nelement vertex 0\nproperty float x\nend_header\n", "vertices need the properties"),
        (PLY.format("ascii") + "0 0 0 1 1\n", "line 14: vertex has 6 numbers, not 5"),
        (WHOLE + "3 0 1 7\n", r"face 0: \[0, 1, 7\] are not three or more of the 4 vertices"),
        (WHOLE + "3 0 1.5 2\n", r"face 0: \[0, 1.5, 2\] are not three or more"),
        (WHOLE, "end: face has 0 of 1 entries"),
        (WHOLE + "-1\n", "line 18: -1 is not the length of a list"),
        (WHOLE + "2.5 0 1\n", "line 18: 2.5 is not the length of a list"),
        (WHOLE + "3 0 1 2\n3 0 2 3\n", "line 19: the header has no element for what follows"),
        (WHOLE.replace("vertex_indices", "corners") + "3 0 1 2\n", "header: faces need a list vertex_indices"),
        (WHOLE.replace("list uchar int", "int") + "3\n", "header: faces need a list vertex_indices"),
        (WHOLE.replace("element face", "element tristrips") + "3 0 1 2\n", "header: strips of triangles are not known"),
        (PLY.format("ascii").replace("face 1", "face -1"), "line 11: 'element face -1' is not understood"),
        (PLY.format("ascii").replace("face 1", "vertex 1"), "line 11: 'element vertex 1' is not understood"),
    ],
)
def test_malformed_ply_files_are_refused(tmp_path, text, message):
    path = tmp_path / "mesh.ply"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        Mesh.load(path)


def test_malformed_numbers_of_binary_ply_files_are_refused(tmp_path):
    path, order = tmp_path / "mesh.ply", "<3f3B"
    header = PLY.format("binary_little_endian").encode()
    points = [struct.pack(order, *row) for row in ROWS]
    for body, message in (
        ([*points[:3], struct.pack(order, 0, torch.nan, 0, 0, 0, 0)], r"vertex 3: \[0.0, nan, 0.0\] are not finite"),
        ([*points, b"\x02\0\0\0\0\0\0\0\0"], r"face 0: \[0, 0\] are not three or more"),
        ([*points, struct.pack("<B3i", 3, 0, 1, 2), b"more"], "byte 73 of the data: the header has no element"),
    ):
        path.write_bytes(header + b"".join(body).ljust(61, b"\0"))
        with pytest.raises(ValueError, match=message):
            Mesh.load(path)
    floats = header.replace(b"list uchar int", b"list float float")
    path.write_bytes(floats + b"".join(points) + struct.pack("<4f", torch.nan, 0, 1, 2))
    with pytest.raises(ValueError, match="byte 60 of the data: nan is not the length of a list"):
        Mesh.load(path)


def test_ply_colors_of_two_bytes_and_other_lists_of_vertices(tmp_path):
    text = PLY.format("ascii").replace("uchar red", "ushort red").replace("uchar green", "ushort green")
    text = text.replace("uchar blue\n", "ushort blue\nproperty list uchar int neighbours\n").replace("face 1", "face 0")
    (tmp_path / "mesh.ply").write_text(text + 3 * "0 0 0 65535 0 13107 0\n" + "0 1 0 0 0 0 2 1 2\n")
    mesh = Mesh.load(tmp_path / "mesh.ply")
    torch.testing.assert_close(mesh.vertex_colors[0, 2], torch.tensor([1.0, 0.0, 0.2]))
    assert mesh.vertices[0, 3].tolist() == [0, 1, 0]


def test_colors_of_other_formats(tmp_path):
    red, box = [255, 0, 51, 255], trimesh.creation.box()
    material = trimesh.visual.material.PBRMaterial(baseColorFactor=red)
    box.visual = trimesh.visual.TextureVisuals(material=material)
    box.export(tmp_path / "box.glb")
    mesh = Mesh.load(tmp_path / "box.glb")
    torch.testing.assert_close(mesh.face_colors, torch.tensor([1.0, 0.0, 0.2]).expand(1, 12, 3))


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.glb", b"glTF\x02\0\0\0\x10\0\0\0"),
        ("a.gltf", b'{"a":'),
        ("a.stl", b"solid x\nfacet\n"),
        ("a.off", b"OFF\n3"),
    ],
)
def test_malformed_files_of_other_formats_are_refused(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=f"softly.rendering.Mesh.load: {name}, trimesh: ."):
        Mesh.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        Mesh.load(tmp_path / f"absent{name}")


def test_other_formats_by_trimesh(tmp_path):
    path = tmp_path / "sphere.stl"
    trimesh.creation.icosphere(subdivisions=1).export(path)
    assert Mesh.load(path).faces.shape == (80, 3)
    path = tmp_path / "mesh.nothing"
    path.write_text("")
    with pytest.raises(ValueError, match=r"mesh.nothing, trimesh"):
        Mesh.load(path)


def test_compressed_files(tmp_path):
    icosphere(12).save(tmp_path / "sphere.obj")
    packed = tmp_path / "packed.obj.gz"
    packed.write_bytes(gzip.compress((tmp_path / "sphere.obj").read_bytes()))
    assert Mesh.load(packed).faces.shape == (20, 3)
    whole = packed.read_bytes()
    assert Mesh.load(packed.rename(tmp_path / "packed.OBJ.GZ")).faces.shape == (20, 3)
    for broken in (b"v 0 0 0", whole[:40], whole[:15] + bytes([whole[15] ^ 255]) + whole[16:]):
        packed.write_bytes(broken)
        with pytest.raises(ValueError, match="not a gzip file, or not all of one"):
            Mesh.load(packed)


@pytest.mark.skipif(not MESHES.is_dir(), reason="SOFTLY_DATA names no folder with meshes")
@pytest.mark.parametrize(
    ("name", "vertices", "faces"),
    [
        ("teapot.obj", None, None),
        ("spot_triangulated.obj", 2930, 5856),
        ("stanford-bunny.obj.gz", 35947, 69451),
        ("pyvista_airplane.ply", 1335, 2452),
    ],
)
def test_real_meshes(name, vertices, faces):
    mesh = Mesh.load(MESHES / name)
    assert mesh.vertices.isfinite().all()
    if faces is not None:
        assert mesh.vertices.shape == (1, vertices, 3)
        assert mesh.faces.shape == (faces, 3)
