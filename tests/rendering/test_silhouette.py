"""Silhouettes against hard rasterisers, closed forms and folds."""

import functools
import math

import numpy as np
import pytest
import torch
import trimesh
from matplotlib.path import Path as Outline

import softly
from softly.rendering import Camera, Mesh, Renderer, cube, icosphere
from softly.rendering.distance import signed_distance
from softly.rendering.silhouette import pixel_centres

from . import scenes

HARD = {"distribution": "logistic", "steepness": 1e7}


def distances(corners, size):
    like = corners.double()
    return signed_distance(pixel_centres(*size, like), like)


def test_pixel_centres():
    square = pixel_centres(2, 2, torch.zeros(1, dtype=torch.float64)).tolist()
    assert square == [[-0.5, 0.5], [0.5, 0.5], [-0.5, -0.5], [0.5, -0.5]]
    wide = pixel_centres(2, 4, torch.zeros(1, dtype=torch.float64))
    assert wide[0].tolist() == [-1.5, 0.5]
    assert wide[-1].tolist() == [1.5, -0.5]


def test_distances_are_those_from_points_along_the_border():
    corners = scenes.triangles(12)
    points = pixel_centres(9, 9, corners)
    found = signed_distance(points, corners)
    share = torch.linspace(0, 1, 2001, dtype=torch.float64)[:, None, None]
    border = (corners + share.unsqueeze(-1) * (corners.roll(-1, -2) - corners)).transpose(0, 1).flatten(1, 2)
    brute = (points[:, None, None] - border).norm(dim=-1).amin(-1)
    torch.testing.assert_close(found.abs(), brute, atol=2e-3, rtol=0)
    for face, column in zip(corners, found.unbind(-1), strict=True):
        assert torch.equal(column > 0, torch.from_numpy(Outline(face.numpy()).contains_points(points.numpy())))


def test_either_way_round_and_repeated_corners():
    corners = scenes.triangles(8)
    points = pixel_centres(7, 7, corners)
    expected = signed_distance(points, corners)
    torch.testing.assert_close(signed_distance(points, corners.flip(-2)), expected)
    torch.testing.assert_close(signed_distance(points, corners[:, [0, 0, 1, 2, 2, 2]]), expected)


def test_a_point_beside_a_corner_on_a_straight_line_may_be_inside():
    corners = torch.tensor([[[0.0, 0.2], [0.0, -0.4], [0.0, -0.9], [0.5, 0.1]]], dtype=torch.float64)
    points = torch.tensor([[0.05, -0.4], [-0.05, -0.4]], dtype=torch.float64)
    expected = torch.tensor([[0.05], [-0.05]], dtype=torch.float64)
    torch.testing.assert_close(signed_distance(points, corners), expected)


def test_a_point_on_the_line_of_a_sliver_is_outside():
    sliver = torch.tensor([[[-0.5, 0.0], [0.0, 1e-9], [0.5, 0.0]], [[-0.5, 0.0], [0.5, 0.0], [0.5, 0.0]]])
    points = torch.tensor([[0.9, 0.0], [-0.7, 0.0], [0.1, 0.2]])
    expected = torch.tensor([[-0.4, -0.4], [-0.2, -0.2], [-0.2, -0.2]])
    torch.testing.assert_close(signed_distance(points, sliver), expected)


@pytest.mark.parametrize("size", [(64, 64), (33, 57), (50, 20)])
def test_triangles_against_matplotlib(size):
    corners = scenes.triangles(30, size=0.3, dtype=torch.float32)
    mesh, camera = scenes.flat(corners)
    image = Renderer(size, **HARD).silhouette(mesh, camera)[0]
    points = pixel_centres(*size, corners.double()).numpy()
    hit = np.any([Outline(face.numpy()).contains_points(points) for face in corners], 0).reshape(size)
    clear = (distances(corners, size).abs().amin(-1) > 1e-5).view(size)
    assert torch.equal((image > 0.5)[clear], torch.from_numpy(hit)[clear])
    torch.testing.assert_close(image[clear], image[clear].round(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", scenes.meshes())
def test_meshes_against_ray_casting(name):
    mesh, size = scenes.meshes()[name], (20, 28)
    azimuth, elevation = 40.0, 25.0
    camera = scenes.view(azimuth=azimuth, elevation=elevation)
    image = Renderer(size, **HARD).silhouette(mesh, camera)[0]
    e, a = math.radians(elevation), math.radians(azimuth)
    back = np.array([math.cos(e) * math.sin(a), math.sin(e), math.cos(e) * math.cos(a)])
    right = np.array([math.cos(a), 0.0, -math.sin(a)])
    plane = pixel_centres(*size, torch.zeros(1, dtype=torch.float64)).numpy() * math.tan(math.radians(22.5))
    rays = plane[:, :1] * right + plane[:, 1:] * np.cross(back, right) - back
    solid = trimesh.Trimesh(mesh.vertices[0].double().numpy(), mesh.faces.numpy(), process=False)
    hit = solid.ray.intersects_any(np.broadcast_to(3.0 * back, rays.shape), rays).reshape(size)
    # Rays that graze an edge may be seen either way.
    assert ((image > 0.5).numpy() != hit).sum() <= 2


def test_what_is_behind_the_camera_is_not_seen():
    renderer = Renderer(16, **HARD)
    camera = Camera.look_at(distance=3.0)
    behind = Mesh(cube().vertices + torch.tensor([0.0, 0.0, 10.0]), cube().faces)
    assert renderer.silhouette(behind, camera).max() == 0
    far = Camera.look_at(distance=3.0, far=1.5)
    assert renderer.silhouette(cube(), far).max() == 0
    assert renderer.silhouette(cube(), Camera.look_at(distance=3.0, near=4.5)).max() == 0


@pytest.mark.parametrize("planes", [{"near": 0.5}, {"near": 0.5, "far": 3.0}, {"far": 2.0}])
def test_faces_across_the_planes_against_ray_casting(planes):
    vertices = torch.tensor([[-1.0, -0.4, 2.9], [1.2, -0.3, -1.0], [0.1, 0.8, 0.5], [0.0, -1.0, 4.0]])
    mesh = Mesh(vertices, torch.tensor([[0, 1, 2], [1, 3, 2]]))
    camera = Camera.look_at(distance=3.0, fov=80.0, **planes)
    image = Renderer(40, **HARD).silhouette(mesh, camera)[0]
    plane = pixel_centres(40, 40, torch.zeros(1, dtype=torch.float64)).numpy() * math.tan(math.radians(40))
    rays = np.concatenate([plane, -np.ones((len(plane), 1))], -1)
    solid = trimesh.Trimesh(vertices.double().numpy(), mesh.faces.numpy(), process=False)
    where, ray, _ = solid.ray.intersects_location(np.broadcast_to([0.0, 0.0, 3.0], rays.shape), rays)
    depth = 3.0 - where[:, 2]
    hit = np.zeros(1600, dtype=bool)
    hit[ray[(depth > planes.get("near", 0.1)) & (depth < planes.get("far", math.inf))]] = True
    assert ((image > 0.5).numpy() != hit.reshape(40, 40)).sum() <= 2
    assert hit.any()


def test_a_cut_face_has_no_seam():
    # A face that reaches behind the camera and covers the lower half of the image.
    vertices = torch.tensor([[-90.0, -0.5, 10.0], [90.0, -0.5, 10.0], [0.0, -0.5, -2e3]], dtype=torch.float64)
    mesh = Mesh(vertices, torch.tensor([[0, 1, 2]]))
    camera = Camera.look_at(distance=1e-6, fov=90.0)
    image = Renderer(16, distribution="logistic", steepness=3.0).silhouette(mesh, camera)[0]
    left, right = image[12, :8], image[12, 8:].flip(-1)
    torch.testing.assert_close(left, right, atol=1e-6, rtol=1e-6)
    # The horizon is close, at y = -0.5 / 2000: the distance is that of the height in the image.
    y = pixel_centres(16, 16, vertices)[::16, 1]
    middle = torch.sigmoid(-3.0 * (y + 0.5 / 2e3))
    torch.testing.assert_close(image[:8, 8], middle[:8], atol=1e-3, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("name", scenes.DISTRIBUTIONS)
def test_every_distribution_of_one_triangle(name, squared, dtype):
    corners = scenes.triangles(1, seed=3, dtype=dtype)
    mesh, camera = scenes.flat(corners)
    d = distances(corners, (12, 12)).view(12, 12)
    for distribution in (
        softly.distributions.get(name),
        softly.distributions.get(name).reversed(),
        softly.distributions.get(name).reversed().shifted(0.7),
        softly.distributions.get(name).shifted(-0.4).reversed(),
    ):
        options = {"distribution": distribution, "squared": squared, "tconorm": "minimum"}
        image = Renderer(12, steepness=7.0, **options).silhouette(mesh, camera)[0]
        expected = distribution.cdf(7.0 * (d * d.abs() if squared else d))
        tolerance = {"atol": 2e-5, "rtol": 2e-5} if dtype == torch.float32 else {"atol": 1e-11, "rtol": 1e-11}
        if name == "gamma":  # whose slope at 0 is infinite
            tolerance["atol"] *= 50
        torch.testing.assert_close(image.double(), expected, **tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("name", "p"), scenes.TCONORMS)
def test_every_tconorm_is_the_fold_of_its_binary_form(name, p, dtype):
    corners = scenes.triangles(9, seed=5, dtype=dtype)
    mesh, camera = scenes.flat(corners)
    tconorm = softly.tnorms.get(name) if p is None else softly.tnorms.get(name, p=p)
    image = Renderer(8, distribution="cauchy", steepness=5.0, tconorm=tconorm).silhouette(mesh, camera)[0]
    covered = softly.distributions.get("cauchy").cdf(5.0 * distances(corners, (8, 8)))
    folded = functools.reduce(tconorm.tconorm, covered.unbind(-1)).view(8, 8)
    tolerance = 2e-5 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(image.double(), folded, atol=tolerance, rtol=tolerance)


def test_average_divides_by_the_faces_of_the_mesh():
    corners = scenes.triangles(5, seed=6)
    mesh, camera = scenes.flat(corners)
    renderer = Renderer(8, distribution="logistic", steepness=9.0, tconorm="average")
    expected = softly.distributions.get("logistic").cdf(9.0 * distances(corners, (8, 8))).mean(-1).view(8, 8)
    torch.testing.assert_close(renderer.silhouette(mesh, camera)[0], expected)
    padded = Mesh.join([mesh, Mesh(icosphere(12).vertices.double(), icosphere(12).faces)])
    torch.testing.assert_close(renderer.silhouette(padded, camera)[0], expected)
    # Faces that are cut off still count.
    more = Mesh(
        torch.cat([mesh.vertices, mesh.vertices + torch.tensor([0.0, 0.0, 9.0])], 1), torch.arange(30).view(-1, 3)
    )
    torch.testing.assert_close(renderer.silhouette(more, camera)[0], expected / 2)
    with pytest.raises(ValueError, match="'average' has no hard limit"):
        Renderer(8, tconorm="average", straight_through=True)


def test_cutoff_drops_what_the_release_drops():
    corners = scenes.triangles(6, seed=7, size=0.2)
    mesh, camera = scenes.flat(corners)
    image = Renderer(16, distribution="cauchy", steepness=50.0, cutoff=2.0).silhouette(mesh, camera)[0]
    d = distances(corners, (16, 16))
    p = softly.distributions.get("cauchy").cdf(50.0 * d)
    kept = ~((d < 0) & (d.square() >= 2.0 / 50.0)) & (p > 1e-6)
    expected = 1 - torch.where(kept, 1 - p, 1.0).prod(-1).view(16, 16)
    torch.testing.assert_close(image, expected)
    whole = Renderer(16, distribution="cauchy", steepness=50.0).silhouette(mesh, camera)[0]
    assert (whole - image).max() > 0.01


def test_straight_through_is_hard_with_soft_gradients():
    vertices = icosphere(162).vertices.double().requires_grad_()
    mesh, camera = Mesh(vertices, icosphere(162).faces), scenes.view()
    options = {"distribution": "logistic", "steepness": 20.0}
    weights = torch.linspace(-1, 1, 576, dtype=torch.float64).view(1, 24, 24)
    soft = Renderer(24, **options).silhouette(mesh, camera)
    hard = Renderer(24, straight_through=True, **options).silhouette(mesh, camera)
    assert hard.unique().tolist() == [0.0, 1.0]
    torch.testing.assert_close(hard.detach(), Renderer(24, **HARD).silhouette(mesh, camera).round())
    one, other = (torch.autograd.grad((image * weights).sum(), vertices)[0] for image in (soft, hard))
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("wrong", [False, True])
def test_straight_through_without_gradients(wrong):
    mesh = icosphere(162)
    vertices = mesh.vertices.clone()
    vertices[0, 0, 0] = torch.nan if wrong else vertices[0, 0, 0]
    renderer, camera = Renderer(24, straight_through=True, steepness=20.0), scenes.view()
    shown = renderer.silhouette(mesh.at(vertices), camera)
    assert bool(shown.isnan().any()) == wrong
    tangent = torch.ones_like(vertices)
    with torch.no_grad():
        torch.testing.assert_close(renderer.silhouette(mesh.at(vertices), camera), shown, equal_nan=True)
        _, pushed = torch.func.jvp(lambda v: renderer.silhouette(mesh.at(v), camera).sum(), (vertices,), (tangent,))
    assert pushed.isnan() if wrong else pushed != 0


def test_joined_meshes_are_rendered_as_each_alone():
    first, second = cube(), icosphere(162)
    camera, renderer = scenes.view(), Renderer(20, distribution="gaussian", steepness=30.0)
    both = renderer.silhouette(Mesh.join([first, second]), camera)
    alone = torch.cat([renderer.silhouette(mesh, camera) for mesh in (first, second)])
    torch.testing.assert_close(both, alone, atol=2e-5, rtol=0)


def test_cameras_and_meshes_broadcast():
    camera = Camera.look_at(distance=3.0, azimuth=torch.tensor([[0.0], [50.0], [100.0]]))
    mesh = Mesh(torch.stack([cube().vertices[0], 0.5 * cube().vertices[0]]), cube().faces)
    renderer = Renderer((6, 8), distribution="logistic")
    image = renderer.silhouette(mesh, camera)
    assert image.shape == (3, 2, 6, 8)
    alone = renderer.silhouette(Mesh(mesh.vertices[1], mesh.faces), Camera.look_at(distance=3.0, azimuth=50.0))
    torch.testing.assert_close(image[1, 1], alone[0])


def test_joined_meshes_and_several_cameras_broadcast():
    meshes = [cube(), icosphere(42)]
    azimuth = torch.tensor([[0.0], [33.0], [71.0]])
    renderer = Renderer((9, 7), distribution="logistic", steepness=20.0)
    image = renderer.silhouette(Mesh.join(meshes), Camera.look_at(distance=3.0, azimuth=azimuth))
    assert image.shape == (3, 2, 9, 7)
    for i, angle in enumerate(azimuth.flatten().tolist()):
        for k, mesh in enumerate(meshes):
            alone = renderer.silhouette(mesh, Camera.look_at(distance=3.0, azimuth=angle))[0]
            torch.testing.assert_close(image[i, k], alone, atol=2e-5, rtol=0)


def test_steepness_can_be_set_and_learned():
    mesh, camera = cube(), scenes.view()
    renderer = Renderer(8, distribution="logistic", steepness=5.0)
    soft = renderer.silhouette(mesh, camera)
    renderer.steepness = 50.0
    assert not torch.allclose(renderer.silhouette(mesh, camera), soft)
    dial = torch.nn.Parameter(torch.tensor(5.0, dtype=torch.float64))
    learned = Renderer(8, distribution="logistic", steepness=dial)
    torch.testing.assert_close(learned.silhouette(mesh, camera), soft)
    vertices = mesh.vertices.double()
    weights = torch.linspace(-1, 1, 64, dtype=torch.float64).view(8, 8)

    def loss(s):
        learned.steepness = s
        return (learned.silhouette(Mesh(vertices, mesh.faces), camera) * weights).sum()

    assert torch.autograd.gradcheck(loss, (torch.tensor(4.0, dtype=torch.float64, requires_grad=True),))


DEGENERATE = {
    "empty": (torch.zeros(1, 0, 3), torch.zeros(0, 3).long()),
    "no faces": (torch.zeros(1, 4, 3), torch.zeros(0, 3).long()),
    "a point": (torch.zeros(1, 3, 3), torch.tensor([[0, 1, 2]])),
    "a line": (torch.tensor([[[-0.5, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]]), torch.tensor([[0, 1, 2]])),
    "twice the same corner": (torch.tensor([[[-0.5, 0.0, 0.0], [0.5, 0.5, 0.0]]]), torch.tensor([[0, 1, 1]])),
    "doubled": (cube().vertices, cube().faces.repeat(2, 1)),
    "far outside": (cube().vertices + torch.tensor([50.0, 0.0, 0.0]), cube().faces),
    "around the camera": (3.0 * cube().vertices, cube().faces),
    "through the eye": (
        torch.tensor([[[-1.0, 0.0, 3.0], [1.0, 0.0, 3.0], [0.0, 0.0, 2.0]]]),
        torch.tensor([[0, 1, 2]]),
    ),
    "pixels on edges": (
        torch.tensor([[[-0.75, -0.75, 0.0], [0.75, -0.75, 0.0], [0.0, 0.75, 0.0]]]),
        torch.tensor([[0, 1, 2]]),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("perspective", [True, False])
@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_meshes_are_finite(case, perspective, dtype):
    vertices, faces = DEGENERATE[case]
    camera = Camera.look_at(distance=3.0, **({"fov": 60.0} if perspective else {"orthographic": 1.0}))
    for options in (
        {"distribution": "logistic"},
        {"distribution": "uniform", "tconorm": "yager"},
        {"distribution": "gamma", "squared": True, "tconorm": "einstein"},
        {"distribution": softly.distributions.get("levy").reversed(), "tconorm": softly.tnorms.get("dombi", p=0.5)},
        {"distribution": "heaviside", "tconorm": "minimum"},
    ):
        for steepness in (1.0, 1e6):
            leaf = vertices.to(dtype).requires_grad_()
            image = Renderer(8, steepness=steepness, **options).silhouette(Mesh(leaf, faces), camera)
            assert image.shape == (1, 8, 8)
            assert image.isfinite().all()
            assert image.min() >= 0
            assert image.max() <= 1
            if leaf.numel() and image.requires_grad:
                (grad,) = torch.autograd.grad(image.sum(), leaf)
                assert grad.isfinite().all()


def test_edges_shared_by_faces_are_covered():
    camera = Camera.look_at(distance=2.0, orthographic=1.0)
    square = torch.tensor([[[-1.0, -1.0, 0.0], [1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [-1.0, 1.0, 0.0]]])
    mesh = Mesh(square, torch.tensor([[0, 1, 2], [0, 2, 3]]))  # pixels lie on the diagonal
    hard = Renderer(8, straight_through=True).silhouette(mesh, camera)
    assert hard.min() == 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"image_size": 0}, ValueError, "must be positive, got 0"),
        ({"image_size": (1, 2, 3)}, ValueError, r"\(height, width\)"),
        ({"image_size": 2.0}, TypeError, "integer"),
        ({"steepness": 0.0}, ValueError, "steepness must be positive"),
        ({"cutoff": -1.0}, ValueError, "cutoff must be positive"),
        ({"tconorm": "nothing"}, ValueError, "unknown T-norm"),
        ({"distribution": "nothing"}, ValueError, "unknown distribution"),
    ],
)
def test_refusals(arguments, error, message):
    with pytest.raises(error, match=message):
        Renderer(**arguments)


def test_steepness_of_several_numbers_is_refused():
    renderer = Renderer(4, steepness=torch.tensor([1.0, 2.0]))
    with pytest.raises(ValueError, match="single number"):
        renderer.silhouette(cube(), scenes.view())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("distribution", ["logistic", "cauchy"])
def test_the_relaxed_program_is_the_same_renderer(distribution, dtype):
    # Two meshes from two views each, by a program that asks every face and every pixel.
    sphere = icosphere(12)
    meshes = Mesh(torch.stack([0.8 * sphere.vertices[0], sphere.vertices[0] + 0.1]).to(dtype), sphere.faces)
    cameras = Camera.look_at(distance=3.0, elevation=21.0, azimuth=torch.tensor([[13.0], [77.0]], dtype=dtype))
    vertices = meshes.vertices.requires_grad_()
    image = Renderer(9, distribution=distribution, steepness=15.0).silhouette(meshes.at(vertices), cameras)
    assert image.shape == (2, 2, 9, 9)
    seen = meshes.corners(cameras.project(vertices)[..., :2])
    a, b, c = seen.unbind(-2)
    turn = (b - a)[..., 0] * (c - a)[..., 1] - (b - a)[..., 1] * (c - a)[..., 0]
    ordered = torch.where(turn[..., None, None] < 0, seen.flip(-2), seen).flatten(0, 1)
    program = softly.algorithms.library.silhouette_distance(
        ordered, image_size=9, steepness=15.0, distribution=distribution
    )
    tolerance = 2e-5 if dtype == torch.float32 else 1e-9
    torch.testing.assert_close(image.flatten(0, 1), program, atol=tolerance, rtol=0)
    found, expected = (torch.autograd.grad(x.square().sum(), vertices)[0] for x in (program, image))
    torch.testing.assert_close(found, expected, atol=5 * tolerance * expected.abs().max().item(), rtol=0)


@pytest.mark.parametrize("distribution", ["logistic", "cauchy"])
def test_the_relaxed_program_of_three_edges_multiplies_their_probabilities(distribution):
    mesh, camera = icosphere(42).vertices.double(), scenes.view()
    corners = camera.project(mesh)[:, icosphere(42).faces, :2]
    points = pixel_centres(9, 9, corners)
    start, end = corners.unsqueeze(1), corners.roll(-1, 2).unsqueeze(1)  # (1, 1, faces, 3, 2)
    way, off = end - start, points[None, :, None, None] - start
    side = (way[..., 0] * off[..., 1] - way[..., 1] * off[..., 0]) / way.norm(dim=-1)
    inside = softly.distributions.get(distribution).cdf(15.0 * side).prod(-1)
    found = softly.algorithms.library.silhouette_three_edges(
        corners, image_size=9, steepness=15.0, distribution=distribution
    )
    torch.testing.assert_close(found.flatten(1), 1 - (1 - inside).prod(-1), atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("name", "covered"),
    [
        ("softras", lambda d: torch.sigmoid(1e5 * d * d.abs())),
        ("dib-r", lambda d: torch.exp(-7000.0 * d.clamp(max=0).square())),
        ("rhodin", lambda d: torch.special.ndtr(100.0 * d)),
        ("logistic", lambda d: torch.sigmoid(200.0 * d)),
        ("nmr", lambda d: (d >= 0).double()),
        ("opendr", lambda d: (d >= 0).double()),
    ],
)
def test_renderers_of_the_literature(name, covered):
    corners = scenes.triangles(4, seed=9)
    mesh, camera = scenes.flat(corners)
    image = Renderer.like(name, image_size=16).silhouette(mesh, camera)[0]
    expected = 1 - (1 - covered(distances(corners, (16, 16)))).prod(-1).view(16, 16)
    torch.testing.assert_close(image, expected, atol=1e-9, rtol=1e-9)


def test_renderers_of_the_literature_take_options():
    assert Renderer.like("softras", steepness=5.0).steepness == 5.0
    with pytest.raises(ValueError, match="unknown renderer 'blender'; choose from softras"):
        Renderer.like("blender")
