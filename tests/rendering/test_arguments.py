"""What would be wrong, or what torch would stumble on, is refused by name; and what is right is computed in full."""

import math

import numpy as np
import pytest
import torch
import trimesh
from PIL import Image
from scipy.special import sph_harm_y

from softly import rendering
from softly.rendering import Camera, Lights, Mesh, Renderer, cube, icosphere, pot, torus

CAMERA = Camera.look_at(distance=4.0)
ONE = torch.tensor([[0, 1, 2]])
BATCH = torch.zeros(2, 3, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"squared": "no"}, "squared must be True or False, got 'no'"),
        ({"double_sided": None}, "double_sided must be True or False, got None"),
        ({"straight_through": 1}, "straight_through must be True or False, got 1"),
        ({"cutoff": "9"}, "cutoff must be a number, got str"),
        ({"cutoff": True}, "cutoff must be a number, got bool"),
        ({"depth_sharpness": None}, "depth_sharpness must be a number, got NoneType"),
        ({"background": "white"}, "background must be numbers or a tensor, got 'white'"),
        ({"background": [1.0, 2.0]}, r"background must be three numbers, .*, got \(2,\)"),
    ],
)
def test_options_of_renderers(options, message):
    with pytest.raises((TypeError, ValueError), match=f"softly.Renderer: {message}"):
        Renderer(4, **options)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda r: r.silhouette(CAMERA, cube()), "mesh must be a Mesh, got Camera"),
        (lambda r: r.silhouette(cube(), None), "camera must be a Camera, got NoneType"),
        (lambda r: r(cube(), cube()), "camera must be a Camera, got Mesh"),
        (lambda r: r(cube(), CAMERA, 0.5), "lights must be Lights, got float"),
        (lambda r: r.buffers(cube()), "camera must be a Camera, got NoneType"),
        (
            lambda r: Renderer(4, background=torch.rand(3, 3, 4, 4))(Mesh(BATCH, ONE), CAMERA),
            r"batches must broadcast, got \(3,\) of background and \(2,\) of images",
        ),
    ],
)
def test_scenes(run, message):
    with pytest.raises((TypeError, ValueError), match=f"softly.Renderer: {message}"):
        run(Renderer(4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ambient": [1.0, 2.0]}, "ambient must be a number or three, got 2"),
        ({"ambient": None}, "ambient must be a number, got NoneType"),
        ({"ambient": torch.ones(2, 3)}, r"ambient must be a number or three, got \(2, 3\)"),
        ({"specular": ["a", 1, 1]}, "specular's entries must be a number, got str"),
        (
            {"direction": torch.ones(2, 3), "diffuse": torch.ones(3, 3)},
            r"diffuse must be a number, three, or of shape \(2, 3\), got \(3, 3\)",
        ),
        ({"shininess": None}, "shininess must be a number, got NoneType"),
        ({"shininess": torch.ones(2)}, r"shininess must be a single number, got \(2,\)"),
        ({"shininess": torch.tensor(-1.0)}, "shininess must be positive and finite, got -1"),
        ({"harmonics": [1.0]}, "harmonics must be a tensor, got list"),
    ],
)
def test_lights(options, message):
    with pytest.raises((TypeError, ValueError), match=f"softly.rendering.Lights: {message}"):
        Lights(**options)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (
            lambda: Mesh(BATCH, ONE.expand(3, 1, 3)),
            r"Mesh: batches must broadcast, got \(2,\) of vertices and \(3,\) of f",
        ),
        (lambda: Mesh(BATCH, ONE, vertex_colors=torch.rand(3, 3, 3)), r"Mesh: .* and \(3,\) of vertex_colors"),
        (
            lambda: cube().corners(torch.rand(9, 3)),
            r"Mesh.corners: values must have shape \(\.\.\., 8, C\), got \(9, 3\)",
        ),
        (lambda: cube().corners(torch.rand(8)), r"Mesh.corners: values must have shape \(\.\.\., 8, C\), got \(8,\)"),
        (lambda: Mesh.join(cube()), "Mesh.join: meshes must be a sequence of them, got Mesh"),
        (lambda: Mesh.join([1]), "Mesh.join: meshes must be a sequence of them"),
        (lambda: torus(tube=0.0), "torus: tube must be positive and finite, got 0.0"),
        (lambda: torus(radius=math.nan), "torus: radius must be positive and finite, got nan"),
        (
            lambda: rendering.voxelize(cube(), 4, extent=math.inf),
            "voxelize: extent must be positive and finite, got inf",
        ),
        (lambda: rendering.voxelize(cube(), 4, extent="1"), "voxelize: extent must be a number, got str"),
        (
            lambda: rendering.voxelize(cube().at(math.nan * cube().vertices), 4),
            "voxelize: vertices must be numbers, got NaN",
        ),
        (lambda: rendering.voxel_iou(BATCH, BATCH), "voxel_iou: one must be a boolean tensor, got torch.float32"),
        (
            lambda: rendering.voxel_iou(torch.ones(4, 4, 4) > 0, torch.ones(4, 4, 1) > 0),
            r"voxel_iou: other must have as many voxels as one, \(4, 4, 4\), got \(4, 4, 1\)",
        ),
        (lambda: rendering.laplacian_loss(BATCH), "laplacian_loss: mesh must be a Mesh, got Tensor"),
        (lambda: rendering.iou_loss(BATCH, [[1.0]]), "iou_loss: target must be a tensor, got list"),
        (
            lambda: rendering.iou_loss(BATCH[0, 0], BATCH[0, 0]),
            r"iou_loss: silhouette must have shape \(\.\.\., H, W\)",
        ),
        (
            lambda: rendering.iou_loss(BATCH, torch.zeros(3, 3, 3)),
            r"iou_loss: batches must broadcast, got \(2,\) of sil",
        ),
        (
            lambda: rendering.iou_loss(BATCH, torch.full((3, 3), 255, dtype=torch.uint8)),
            r"iou_loss: target must be in \[0, 1\], got 255 to 255",
        ),
    ],
)
def test_everything_else(run, message):
    with pytest.raises((TypeError, ValueError), match=f"softly.rendering.{message}"):
        run()


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda f: rendering.save_image(torch.full((2, 2), math.nan), f / "a.png"), "save_image: .* no NaN"),
        (
            lambda f: rendering.save_image(torch.zeros(0, 2), f / "a.png"),
            r"save_image: .* must have pixels, got \(0, 2\)",
        ),
        (
            lambda f: rendering.save_image(torch.zeros(4, 2, 2), f / "a.jpg"),
            "save_image: a.jpg can't be written by Pillow",
        ),
        (lambda f: rendering.save_image(torch.zeros(2, 2), f / "a.nothing"), "save_image: a.nothing can't be written"),
        (
            lambda f: rendering.save_gif([torch.zeros(8, 8), torch.zeros(4, 12)], f / "a.gif"),
            "save_gif: frames must have the same size, got 8 × 8 and 12 × 4",
        ),
        (
            lambda f: rendering.save_gif(BATCH, f / "a.gif", seconds=0.004),
            "save_gif: seconds must be positive, from 0.01 to 655",
        ),
        (lambda f: rendering.save_gif(BATCH, f / "a.gif", seconds=math.inf), "save_gif: seconds must be positive"),
        (lambda f: rendering.save_gif(BATCH, f / "a.gif", seconds="1"), "save_gif: seconds must be a number, got str"),
    ],
)
def test_images(tmp_path, run, message):
    with pytest.raises((TypeError, ValueError), match=f"softly.rendering.{message}"):
        run(tmp_path)
    with pytest.raises(FileNotFoundError):
        rendering.save_image(torch.zeros(2, 2), tmp_path / "no" / "a.png")


def test_animations_last_as_long_as_they_are_said_to(tmp_path):
    rendering.save_gif((image for image in torch.rand(3, 4, 6)), tmp_path / "a.gif", seconds=0.018)
    with Image.open(tmp_path / "a.gif") as found:
        assert (found.size, found.n_frames, found.info["duration"]) == ((6, 4), 3, 20)


def test_overlap_of_nan_and_of_large_images_in_half_precision():
    hole = torch.ones(2, 2)
    hole[0, 0] = math.nan
    assert rendering.iou_loss(hole, torch.ones(2, 2)).isnan()
    assert rendering.iou_loss(torch.ones(2, 2), hole).isnan()
    full = torch.ones(512, 512).half()
    assert rendering.iou_loss(full, full).item() == 0.0


@pytest.mark.parametrize("loss", [rendering.laplacian_loss, rendering.flattening_loss, rendering.edge_length_loss])
def test_losses_of_faces_with_a_vertex_twice_and_in_half_precision(loss):
    points = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    faces = [[0, 1, 2], [1, 2, 3], [3, 4, 5]]
    expected = loss(Mesh(points, torch.tensor(faces)))
    assert torch.equal(loss(Mesh(points, torch.tensor([*faces, [4, 4, 4]]))), expected)
    if loss is not rendering.flattening_loss:  # which knows edges of two faces
        assert torch.equal(loss(Mesh(points, torch.tensor([*faces, [4, 5, 5]]))), expected)
    rounded = icosphere(642).vertices.half() * 20
    assert torch.equal(loss(icosphere(642).at(rounded)), loss(icosphere(642).at(rounded.float())).half())


def test_the_pot_is_three_closed_surfaces():
    for around in (3, 32):
        mesh = pot(around=around)
        judge = trimesh.Trimesh(mesh.vertices[0].double().numpy(), mesh.faces.numpy(), process=False)
        assert judge.is_watertight
        assert judge.is_winding_consistent
        assert judge.euler_number == 6
        assert all(part.volume > 0 for part in judge.split())
        assert mesh.normals().norm(dim=-1).min() > 0.999


def test_irradiance_is_that_of_an_integral_over_the_sphere():
    random, count = np.random.default_rng(0), 100
    cosine, weight = np.polynomial.legendre.leggauss(count)
    cosine, around = np.meshgrid(cosine, (np.arange(2 * count) + 0.5) * math.pi / count, indexing="ij")
    polar = np.arccos(cosine)
    ways = np.stack([np.sin(polar) * np.cos(around), np.sin(polar) * np.sin(around), cosine], -1)
    coefficients, normals = random.normal(size=(9, 3)), random.normal(size=(5, 3))
    normals /= np.linalg.norm(normals, axis=-1, keepdims=True)

    def real(degree, order):
        value = sph_harm_y(degree, abs(order), polar, around)
        part = value.imag if order < 0 else value.real
        return part if order == 0 else math.sqrt(2) * (-1) ** order * part

    orders = [(degree, order) for degree in range(3) for order in range(-degree, degree + 1)]
    light = sum(real(*pair)[..., None] * row for pair, row in zip(orders, coefficients, strict=True))
    area = weight[:, None, None] * math.pi / count
    wanted = [(np.clip(ways @ n, 0, None)[..., None] * light * area).sum((0, 1)) / math.pi for n in normals]
    zeros = torch.zeros(5, 3, dtype=torch.float64)
    lights = Lights(ambient=0.0, harmonics=torch.from_numpy(coefficients))
    found, _ = lights.parts(zeros, torch.from_numpy(normals), zeros + 1)
    torch.testing.assert_close(found, torch.from_numpy(np.stack(wanted)), atol=1e-4, rtol=0)  # a kink at the horizon
