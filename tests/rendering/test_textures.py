"""Texels of faces and images around meshes, against bilinear look-ups, SoftRas' order and hand computations."""

import math

import numpy as np
import pytest
import torch
import trimesh
from PIL import Image

from softly.rendering import Camera, Lights, Mesh, Renderer, cube, icosphere
from softly.rendering.silhouette import pixel_centres
from softly.rendering.textures import looked_up, texels

from . import scenes

FRONT = Camera.look_at(distance=4.0, orthographic=1.0)
SQUARE = torch.tensor([[-1.0, -1.0, 0.0], [1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [-1.0, 1.0, 0.0]], dtype=torch.float64)
HALVES = torch.tensor([[0, 1, 2], [0, 2, 3]])
SHADINGS = pytest.mark.parametrize("shading", ["softmax", "nearest"])
LIGHTINGS = pytest.mark.parametrize("lighting", ["pixels", "corners"])


def noise(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def quad(image, low=0.0, high=1.0):
    """A square that fills the picture, with the part of an image from low to high on it."""
    corners = (low + (high - low) * (SQUARE[:, :2] + 1) / 2)[HALVES]
    return Mesh(SQUARE, HALVES, textures=image, uvs=corners)


def bilinear(image, u, v):
    """By torch, whose grid goes down; the image is repeated so often that no border is seen."""
    tiled = image.repeat(1, 5, 5).unsqueeze(0)
    grid = torch.stack([(2 * (u + 2) / 5) - 1, 1 - 2 * (v + 2) / 5], -1)
    return torch.nn.functional.grid_sample(tiled, grid.unsqueeze(0), align_corners=False)[0]


@SHADINGS
@LIGHTINGS
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.25, 0.5), (-1.3, 1.7)])
def test_a_quad_from_the_front_shows_the_image(shading, lighting, low, high):
    image, size = noise(3, 6, 9), 14
    renderer = Renderer(size, shading=shading, lighting=lighting, steepness=1e6, distribution="logistic")
    found = renderer(quad(image, low, high), FRONT)[0, :3]
    centres = pixel_centres(size, size, image).view(size, size, 2)
    where = low + (high - low) * (centres + 1) / 2
    # The middle of the square is a seam of its faces, where what is seen is half of the one and half of the other.
    torch.testing.assert_close(found, bilinear(image, where[..., 0], where[..., 1]), atol=1e-9, rtol=0)


def test_an_image_of_the_pictures_size_is_the_picture():
    image = noise(3, 8, 8)
    found = Renderer(8, shading="nearest")(quad(image), FRONT)[0, :3]
    torch.testing.assert_close(found, image, atol=1e-12, rtol=0)


def test_perspective_is_that_of_the_plane():
    # A square that lies on the ground: a pixel's ray meets it at a place that can be computed.
    image, size = noise(3, 7, 5), 21
    lying = SQUARE[:, [0, 2, 1]] * torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    uvs = ((SQUARE[:, :2] + 1) / 2)[HALVES]
    camera = Camera.look_at(distance=4.0, elevation=30.0, fov=40.0)
    found = Renderer(size, shading="nearest")(Mesh(lying, HALVES, textures=image, uvs=uvs), camera)[0]
    e, centres = math.radians(30.0), pixel_centres(size, size, image) * math.tan(math.radians(20.0))
    x, y = centres.unbind(-1)
    # From the eye at (0, 4 sin, 4 cos), along right, up and forward.
    forward, up = (-math.sin(e), -math.cos(e)), (math.cos(e), -math.sin(e))
    height, depth = up[0] * y + forward[0], up[1] * y + forward[1]
    t = -4 * math.sin(e) / height
    px, pz = t * x, 4 * math.cos(e) + t * depth
    inside = (px.abs() < 0.999) & (pz.abs() < 0.999) & (t > 0)
    expected = bilinear(image, ((px + 1) / 2).view(size, size), ((1 - pz) / 2).view(size, size))
    inside = inside.view(size, size)
    assert inside.sum() > 50
    torch.testing.assert_close(found[:3, inside], expected[:, inside], atol=1e-9, rtol=0)


@SHADINGS
@LIGHTINGS
def test_one_color_throughout_is_that_color(shading, lighting):
    color = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    sphere = icosphere(42)
    vertices, camera = sphere.vertices.double(), scenes.view()
    lights = Lights(ambient=0.2, direction=torch.tensor([1.0, 1.0, 1.0]), specular=0.4, shininess=4.0)
    renderer = Renderer(9, shading=shading, lighting=lighting, distribution="logistic", steepness=30.0)
    smooth = Mesh(vertices, sphere.faces, vertex_colors=color.expand(42, 3))
    image = color[:, None, None].expand(3, 4, 5)
    mapped = Mesh(vertices, sphere.faces, textures=image, uvs=noise(80, 3, 2))
    torch.testing.assert_close(renderer(mapped, camera, lights), renderer(smooth, camera, lights))
    flat = Mesh(vertices, sphere.faces, face_colors=color.expand(80, 3))
    tiled = Mesh(vertices, sphere.faces, textures=color.expand(80, 9, 3))
    torch.testing.assert_close(renderer(tiled, camera, lights), renderer(flat, camera, lights))


@SHADINGS
def test_one_texel_is_the_color_of_a_face(shading):
    colors = noise(80, 3)
    sphere = icosphere(42)
    renderer = Renderer(11, shading=shading, steepness=200.0)
    one, other = (
        renderer(Mesh(sphere.vertices.double(), sphere.faces, **kind), scenes.view())
        for kind in ({"face_colors": colors}, {"textures": colors.unsqueeze(-2)})
    )
    torch.testing.assert_close(one, other)


def test_four_texels_by_hand():
    # The triangle (0, 0), (1, 0), (0, 1): the first two barycentric coordinates are 1 - x - y and x.
    values = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 1.0]]).unsqueeze(0)
    for weights, expected in (
        ([0.1, 0.1, 0.8], [1.0, 0.0, 0.0]),  # at the third corner
        ([0.8, 0.1, 0.1], [0.0, 1.0, 0.0]),  # at the first
        ([0.1, 0.8, 0.1], [0.0, 0.0, 1.0]),  # at the second
        ([0.3, 0.3, 0.4], [1.0, 1.0, 1.0]),  # in the middle, which is beyond the diagonal of the first cell
        ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]),
        ([0.0, 1.0, 0.0], [0.0, 0.0, 1.0]),
    ):
        found = texels(values, torch.tensor([weights]), torch.zeros(1).long())
        assert found.tolist() == [expected]


@pytest.mark.parametrize("side", [1, 2, 3, 5])
def test_texels_lie_as_those_of_softras(side):
    generator = torch.Generator().manual_seed(0)
    weights = torch.distributions.Dirichlet(torch.ones(3, dtype=torch.float64)).sample((300,))
    faces = torch.randint(4, (300,), generator=generator)
    values = noise(4, side**2, 3)
    expected = []
    for (a, b, _), face in zip(weights.tolist(), faces.tolist(), strict=True):  # as in its kernel
        x, y = int(a * side), int(b * side)
        if (a + b) * side - x - y <= 1:
            expected.append(values[face, y * side + x])
        else:
            expected.append(values[face, (side - 1 - y) * side + (side - 1 - x)])
    assert torch.equal(texels(values, weights, faces), torch.stack(expected))


@SHADINGS
@LIGHTINGS
@pytest.mark.parametrize("kind", ["image", "texels"])
def test_images_are_differentiable_twice_in_all_that_makes_them(shading, lighting, kind):
    corners = [[1.0, 0.9, 1.1], [-1.0, -1.1, 0.9], [-0.9, 1.0, -1.1], [1.1, -0.9, -1.0]]
    vertices = (0.7 * torch.tensor(corners, dtype=torch.float64)).requires_grad_()
    faces = torch.tensor([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    textures = (noise(3, 3, 4) if kind == "image" else noise(4, 4, 3)).requires_grad_()
    uvs = noise(4, 3, 2).requires_grad_()
    direction = torch.tensor([0.2, 0.4, 1.0], dtype=torch.float64, requires_grad=True)
    lamp = torch.tensor([0.5, 2.0, 2.0], dtype=torch.float64, requires_grad=True)
    renderer = Renderer(
        (2, 3), distribution="logistic", steepness=3.0, shading=shading, lighting=lighting, depth_sharpness=20.0
    )

    def render(v, c, u, d, p):
        mesh = Mesh(v, faces, textures=c, uvs=u if kind == "image" else None)
        return renderer(mesh, scenes.view(), Lights(ambient=0.3, direction=d, points=p, specular=0.3))

    inputs = (vertices, textures, uvs, direction, lamp)
    assert torch.autograd.gradcheck(render, inputs)
    assert torch.autograd.gradgradcheck(render, inputs)


@SHADINGS
def test_textures_compile_and_are_batched_by_torch_func(shading):
    sphere, camera = icosphere(12), scenes.view()
    image, uvs = noise(2, 3, 4, 4), noise(20, 3, 2)
    lights = Lights(ambient=0.3, direction=torch.tensor([0.2, 0.4, 1.0], dtype=torch.float64))
    renderer = Renderer(4, distribution="logistic", steepness=5.0, shading=shading)

    def render(texture):
        return renderer(Mesh(sphere.vertices.double(), sphere.faces, textures=texture, uvs=uvs), camera, lights)[0]

    expected = torch.stack([render(one) for one in image])
    torch.testing.assert_close(torch.func.vmap(render)(image), expected)
    torch.testing.assert_close(torch.compile(render, backend="aot_eager", fullgraph=True)(image[0]), expected[0])


def test_a_texture_is_learned_from_pictures():
    sphere = icosphere(162)
    uvs = sphere.corners((sphere.vertices[..., :2] + 1) / 2)
    cameras = Camera.look_at(distance=3.0, azimuth=torch.tensor([0.0, 180.0]), fov=45.0)
    wanted = noise(3, 6, 6).float()
    renderer = Renderer(32, shading="nearest")
    target = renderer(Mesh(sphere.vertices, sphere.faces, textures=wanted, uvs=uvs), cameras)
    learned = torch.full((3, 6, 6), 0.5, requires_grad=True)
    optimizer = torch.optim.Adam([learned], 0.1)
    for _ in range(150):
        optimizer.zero_grad()
        picture = renderer(Mesh(sphere.vertices, sphere.faces, textures=learned, uvs=uvs), cameras)
        (picture - target).square().mean().backward()
        optimizer.step()
    middle = (slice(None), slice(1, 5), slice(1, 5))  # what the sphere shows
    torch.testing.assert_close(learned.detach()[middle], wanted[middle], atol=0.02, rtol=0)


def test_joined_meshes_have_the_textures_of_each():
    renderer, camera = Renderer(10, distribution="logistic", steepness=300.0), scenes.view()
    for kinds in (
        [{"textures": noise(12, 4, 3)}, {"textures": noise(80, 4, 3)}],
        [{"textures": noise(3, 4, 5), "uvs": noise(12, 3, 2)}, {"textures": noise(3, 4, 5), "uvs": noise(80, 3, 2)}],
    ):
        shapes = (cube(), icosphere(42))
        meshes = [Mesh(m.vertices.double(), m.faces, **kind) for m, kind in zip(shapes, kinds, strict=True)]
        both = renderer(Mesh.join(meshes), camera)
        alone = torch.cat([renderer(mesh, camera) for mesh in meshes])
        torch.testing.assert_close(both, alone, atol=1e-6, rtol=1e-6)


def test_nan_is_not_hidden():
    found = looked_up(noise(3, 4, 4), torch.tensor([[math.nan, 0.5], [0.5, 0.5]], dtype=torch.float64))
    assert found.isnan().tolist() == [[True] * 3, [False] * 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"textures": torch.ones(12, 5, 3)}, r"\(..., 12, R², 3\).* got \(1, 12, 5, 3\); an image needs uvs"),
        ({"textures": torch.ones(3, 8, 8)}, r"an image needs uvs"),
        ({"textures": torch.ones(12, 0, 3)}, r"R²"),
        ({"textures": torch.ones(8, 8, 3), "uvs": torch.ones(12, 3, 2)}, r"\(..., 3, H, W\), got \(1, 8, 8, 3\)"),
        ({"textures": torch.ones(3, 0, 8), "uvs": torch.ones(12, 3, 2)}, r"\(..., 3, H, W\)"),
        ({"uvs": torch.ones(8, 2)}, r"uvs must have shape \(..., 12, 3, 2\)"),
        ({"textures": torch.ones(12, 4, 3), "face_colors": torch.ones(12, 3)}, "got face_colors and textures"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        Mesh(cube().vertices, cube().faces, **arguments)


def test_textures_of_other_sizes_are_not_joined():
    one, other = (
        Mesh(cube().vertices, cube().faces, textures=noise(3, 4, n), uvs=torch.zeros(12, 3, 2)) for n in (4, 5)
    )
    with pytest.raises(ValueError, match=r"same size, got \(3, 4, 4\) and \(3, 4, 5\); resize them"):
        Mesh.join([one, other])
    with pytest.raises(ValueError, match="of the same kind, got 1 of 2"):
        Mesh.join([one, cube()])


# Files -----------------------------------------------------------------------------------------------------------


def test_images_come_back_from_obj_files_and_others_read_them(tmp_path):
    image = (noise(3, 5, 7) * 255).round() / 255
    mesh = Mesh(icosphere(12).vertices, icosphere(12).faces, textures=image, uvs=noise(20, 3, 2))
    mesh.save(tmp_path / "sphere.obj")
    again = Mesh.load(tmp_path / "sphere.obj")
    torch.testing.assert_close(again.textures, image.float().unsqueeze(0))
    torch.testing.assert_close(again.uvs, mesh.uvs.float())
    assert torch.equal(again.faces, mesh.faces)
    judge = trimesh.load(tmp_path / "sphere.obj", process=False)
    seen = np.asarray(judge.visual.material.image.convert("RGB")) / 255.0
    torch.testing.assert_close(torch.from_numpy(seen).permute(2, 0, 1), image)
    places = torch.from_numpy(np.asarray(judge.visual.uv))[torch.from_numpy(np.asarray(judge.faces))]
    torch.testing.assert_close(places, mesh.uvs[0])
    judge.export(tmp_path / "sphere.glb")
    other = Mesh.load(tmp_path / "sphere.glb")
    torch.testing.assert_close(other.textures, image.float().unsqueeze(0))
    torch.testing.assert_close(other.uvs, mesh.uvs.float(), atol=1e-6, rtol=0)
    assert Mesh.load(tmp_path / "sphere.obj", textures=False).textures is None
    with pytest.raises(ValueError, match=r"no textures; save them as .obj"):
        mesh.save(tmp_path / "sphere.ply")
    with pytest.raises(ValueError, match="no texels of faces"):
        Mesh(cube().vertices, cube().faces, textures=torch.ones(12, 4, 3)).save(tmp_path / "cube.obj")


POINTS = "v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nvt 0 0\nvt 1 0\nvt 1 1\nvt 0 1\n"


def folder(tmp_path, materials, text):
    Image.fromarray(np.full((2, 4, 3), 128, np.uint8)).save(tmp_path / "a wall.png")
    (tmp_path / "box.mtl").write_text(materials)
    path = tmp_path / "mesh.obj"
    path.write_text(f"mtllib box.mtl\n{POINTS}{text}")
    return path


WALL = "newmtl wall\nKd 1 0.5 0\nmap_Kd a wall.png\nnewmtl plain\nKd 0 0 1\n"


def test_colors_of_materials_multiply_their_image(tmp_path):
    mesh = Mesh.load(folder(tmp_path, WALL, "usemtl wall\nf 1/1 2/2 3/3 4/-1\n"))
    assert mesh.textures[0, :, 0, 0].tolist() == pytest.approx([128 / 255, 64 / 255, 0.0])
    assert mesh.uvs[0].tolist() == [[[0, 0], [1, 0], [1, 1]], [[0, 0], [1, 1], [0, 1]]]


def test_what_has_no_image_keeps_its_coordinates_and_colors(tmp_path):
    missing = WALL.replace("a wall", "another wall")
    mesh = Mesh.load(folder(tmp_path, missing, "usemtl wall\nf 1/1 2/2 3/3 4/4\n"))
    assert mesh.textures is None
    assert mesh.uvs is not None
    assert mesh.face_colors[0].tolist() == [[1, 0.5, 0]] * 2
    mesh = Mesh.load(folder(tmp_path, WALL, "usemtl plain\nf 1/1 2/2 3\n"))
    assert mesh.uvs is None


@pytest.mark.parametrize(
    ("materials", "text", "message"),
    [
        (WALL, "usemtl wall\nf 1/1 2/2 3/3\nusemtl plain\nf 1/1 2/2 3/3\n", "1 images and 2 materials"),
        (WALL, "usemtl wall\nf 1 2 3\n", "faces have no texture coordinates; load with textures=False"),
        (WALL, "usemtl wall\nf 1/1 2/2 3/5\n", "line 11: '5' is none of the 4 texture coordinates so far"),
        (WALL, "usemtl wall\nf 1/1 2/2 3/x\n", "line 11: 'x' is no place in the image of a face"),
        (WALL, "vt 1 2 3 4\n", "line 10: texture coordinates are one to three numbers, not 4"),
        ("newmtl wall\nmap_Kd -s 2 2 a wall.png\n", "", "box.mtl, line 2: an image without options"),
        ("newmtl wall\nmap_Kd box.mtl\n", "usemtl wall\nf 1/1 2/2 3/3\n", "box.mtl is no image that Pillow can read"),
    ],
)
def test_malformed_materials_are_refused(tmp_path, materials, text, message):
    with pytest.raises(ValueError, match=message):
        Mesh.load(folder(tmp_path, materials, text))
