"""Colours, light and buffers, against closed forms and ray casting."""

import math

import numpy as np
import pytest
import torch
import trimesh

from softly.rendering import Camera, Lights, Mesh, Renderer, cube, icosphere, pot
from softly.rendering.silhouette import pixel_centres

from . import scenes

FRONT = Camera.look_at(distance=4.0, orthographic=1.2)


def sphere_normals(size):
    """The normals of the unit sphere at the pixels of an orthographic camera at +z, and where there are some."""
    points = 1.2 * pixel_centres(size, size, torch.zeros(1, dtype=torch.float64))
    square = points.square().sum(-1)
    z = (1 - square).clamp(min=0).sqrt()
    return torch.cat([points, z.unsqueeze(-1)], -1).view(size, size, 3), (square < 0.8).view(size, size)


def shaded_sphere(lights, **options):
    sphere = icosphere(level=5)
    mesh = Mesh(sphere.vertices.double(), sphere.faces)
    return Renderer(21, shading="nearest", **options)(mesh, FRONT, lights)[0, :3]


def test_diffuse_light_on_a_sphere():
    direction = torch.tensor([0.3, 0.5, 0.8], dtype=torch.float64)
    image = shaded_sphere(Lights(ambient=0.1, direction=direction, diffuse=[0.9, 0.6, 0.3]))
    normals, inside = sphere_normals(21)
    lit = (normals @ direction / direction.norm()).clamp(min=0)
    for channel, intensity in enumerate((0.9, 0.6, 0.3)):
        torch.testing.assert_close(image[channel][inside], (0.1 + intensity * lit)[inside], atol=3e-3, rtol=0)


def test_a_lamp_on_a_sphere():
    place = torch.tensor([2.0, 1.0, 2.0], dtype=torch.float64)
    image = shaded_sphere(Lights(ambient=0.0, points=place, point_diffuse=1.0))
    normals, inside = sphere_normals(21)
    towards = torch.nn.functional.normalize(place - normals, dim=-1)
    torch.testing.assert_close(image[0][inside], (normals * towards).sum(-1).clamp(min=0)[inside], atol=6e-3, rtol=0)


def test_highlights_on_a_flat_quad():
    square = torch.tensor([[-1.0, -1.0, 0.0], [1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [-1.0, 1.0, 0.0]])
    mesh = Mesh(square, torch.tensor([[0, 1, 2], [0, 2, 3]]))
    # The mirrored light of a corner meets the eye at an angle that can be computed.
    direction, eye = torch.tensor([0.0, 0.6, 0.8]), torch.tensor([0.0, 0.0, 4.0])
    lights = Lights(ambient=0.0, direction=direction, diffuse=0.0, specular=0.7, shininess=3.0)
    corner = torch.tensor([1.0, -1.0, 0.0])
    found = lights.shade(corner, torch.tensor([0.0, 0.0, 1.0]), torch.ones(3), eye)
    towards = (eye - corner) / (eye - corner).norm()
    expected = 0.7 * (towards @ torch.tensor([0.0, -0.6, 0.8])) ** 3
    torch.testing.assert_close(found, expected.expand(3))
    flat = Renderer(9, shading="nearest")(mesh, FRONT, Lights(ambient=0.2, direction=direction, diffuse=0.5))
    torch.testing.assert_close(flat[0, 0, 4, 4], torch.tensor(0.2 + 0.5 * 0.8))


def test_highlights_on_a_coarse_sphere_are_those_of_the_sphere():
    # Normals of vertices are the sphere's, and what lies between them is so but for the curvature within a face.
    direction = torch.nn.functional.normalize(torch.tensor([0.4, 0.3, 0.9], dtype=torch.float64), dim=0)
    lights = Lights(ambient=0.1, direction=direction, diffuse=0.5, specular=0.8, shininess=20.0)
    normals, inside = sphere_normals(21)
    facing = (normals @ direction).clamp(min=0)
    mirrored = 2 * facing.unsqueeze(-1) * normals - direction
    expected = 0.1 + 0.5 * facing + 0.8 * mirrored[..., 2].clamp(min=0) ** 20.0
    sphere = icosphere(level=3)
    mesh = Mesh(sphere.vertices.double(), sphere.faces)
    off = {}
    for lighting in ("pixels", "corners"):
        image = Renderer(21, shading="nearest", lighting=lighting)(mesh, FRONT, lights)[0, 0]
        off[lighting] = (image - expected)[inside].abs().max().item()
    assert off["pixels"] < 0.03  # of a vertex normal that is off by a degree
    assert off["corners"] > 5 * off["pixels"]


@pytest.mark.parametrize("shading", ["softmax", "nearest"])
@pytest.mark.parametrize("flat", [False, True])
def test_a_lamp_close_to_a_flat_quad(shading, flat):
    square = torch.tensor([[-1.0, -1.0, 0.0], [1.0, -1.0, 0.0], [1.0, 1.0, 0.0], [-1.0, 1.0, 0.0]]).double()
    faces = torch.tensor([[0, 1, 2], [0, 2, 3]])
    mesh = Mesh(square, faces, face_colors=torch.ones(2, 3).double() if flat else None)
    lamp, eye = torch.tensor([0.3, -0.2, 0.5]).double(), torch.tensor([0.0, 0.0, 2.0]).double()
    lights = Lights(ambient=0.05, points=lamp, point_diffuse=0.6, specular=0.7, shininess=5.0)
    camera, size = Camera.look_at(distance=2.0, fov=40.0), 12
    image = Renderer(size, shading=shading, steepness=1e6)(mesh, camera, lights)[0, 0]
    places = torch.zeros(size * size, 3).double()
    places[:, :2] = 2.0 * math.tan(math.radians(20.0)) * pixel_centres(size, size, square)
    towards = torch.nn.functional.normalize(lamp - places, dim=-1)
    mirrored = towards * torch.tensor([-1.0, -1.0, 1.0])
    along = (mirrored * torch.nn.functional.normalize(eye - places, dim=-1)).sum(-1).clamp(min=0)
    expected = (0.05 + 0.6 * towards[:, 2] + 0.7 * along**5).view(size, size)
    torch.testing.assert_close(image, expected, atol=1e-9, rtol=0)
    corners = Renderer(size, shading=shading, steepness=1e6, lighting="corners")(mesh, camera, lights)[0, 0]
    assert (corners - expected).abs().max() > 0.2


@pytest.mark.parametrize("lighting", ["pixels", "corners"])
def test_faces_from_behind_show_the_other_side_of_their_normals(lighting):
    lights = Lights(ambient=0.1, direction=torch.tensor([0.0, 0.0, 1.0]), diffuse=0.7)
    single = torch.tensor([[-2.0, -2.0, 0.0], [2.0, -2.0, 0.0], [0.0, 3.0, 0.0]])
    for faces in ([[0, 1, 2]], [[0, 2, 1]]):
        image = Renderer(5, shading="nearest", lighting=lighting)(Mesh(single, torch.tensor(faces)), FRONT, lights)
        assert image[0, 0, 2, 2].item() == pytest.approx(0.8)


def test_spherical_harmonics_are_the_integral_of_the_light_over_directions():
    generator = torch.Generator().manual_seed(0)
    harmonics = torch.randn(9, 3, generator=generator, dtype=torch.float64)
    normal = torch.nn.functional.normalize(torch.tensor([0.2, -0.5, 0.7], dtype=torch.float64), dim=0)
    found = Lights(ambient=0.0, harmonics=harmonics).shade(
        torch.zeros(3).double(), normal, torch.ones(3).double(), torch.tensor([0.0, 0.0, 1.0]).double()
    )
    # A grid over the sphere, with light Σ c Y that falls by the cosine.
    theta = (torch.arange(400, dtype=torch.float64) + 0.5) * math.pi / 400
    phi = (torch.arange(800, dtype=torch.float64) + 0.5) * 2 * math.pi / 800
    t, p = torch.meshgrid(theta, phi, indexing="ij")
    x, y, z = t.sin() * p.cos(), t.sin() * p.sin(), t.cos()
    k = [
        math.sqrt(1 / math.pi) / 2,
        math.sqrt(3 / math.pi) / 2,
        math.sqrt(15 / math.pi) / 2,
        math.sqrt(5 / math.pi) / 4,
    ]
    basis = [k[0] * torch.ones_like(x), k[1] * y, k[1] * z, k[1] * x, k[2] * x * y, k[2] * y * z]
    basis += [k[3] * (3 * z * z - 1), k[2] * x * z, k[2] / 2 * (x * x - y * y)]
    facing = (x * normal[0] + y * normal[1] + z * normal[2]).clamp(min=0) * t.sin() * (math.pi / 400) * (math.pi / 400)
    expected = torch.stack([(facing * b).sum() for b in basis]) @ harmonics / math.pi
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)


def test_buffers_against_ray_casting():
    mesh, size = icosphere(162), (15, 18)
    camera = scenes.view()
    found = Renderer(size).buffers(mesh, camera)
    e, a = math.radians(25.0), math.radians(40.0)
    back = np.array([math.cos(e) * math.sin(a), math.sin(e), math.cos(e) * math.cos(a)])
    right = np.array([math.cos(a), 0.0, -math.sin(a)])
    plane = pixel_centres(*size, torch.zeros(1, dtype=torch.float64)).numpy() * math.tan(math.radians(22.5))
    rays = plane[:, :1] * right + plane[:, 1:] * np.cross(back, right) - back
    solid = trimesh.Trimesh(mesh.vertices[0].double().numpy(), mesh.faces.numpy(), process=False)
    where, ray, face = solid.ray.intersects_location(np.broadcast_to(3.0 * back, rays.shape), rays, multiple_hits=False)
    expected = torch.full((15 * 18,), -1)
    expected[torch.from_numpy(ray)] = torch.from_numpy(face)
    assert (found.faces.flatten() != expected).sum() <= 1
    same = (found.faces.flatten() == expected) & (expected >= 0)
    depth = torch.full((15 * 18,), math.inf, dtype=torch.float64)
    depth[torch.from_numpy(ray)] = torch.from_numpy(3.0 - where @ back)
    torch.testing.assert_close(found.depth.flatten()[same].double(), depth[same], atol=1e-5, rtol=1e-5)
    corners = mesh.corners()[0, found.faces.flatten()[same]]
    rebuilt = (found.barycentrics.flatten(0, 2)[same].unsqueeze(-1) * corners).sum(-2)
    place = torch.zeros(15 * 18, 3, dtype=torch.float64)
    place[torch.from_numpy(ray)] = torch.from_numpy(where)
    torch.testing.assert_close(rebuilt.double(), place[same], atol=1e-5, rtol=1e-5)
    assert found.depth.isinf().equal(found.faces < 0)


def test_faces_without_area_are_not_hit():
    # The pot's surface is closed by faces with twice the same place, of which rounding makes slivers.
    mesh = pot().at(0.75 * pot().vertices)
    camera = Camera.look_at(distance=2.7, elevation=20.0, azimuth=20.0, fov=50.0)
    covered = Renderer(192, straight_through=True).silhouette(mesh, camera) > 0
    assert not ((Renderer(192).buffers(mesh, camera).faces >= 0) & ~covered).any()


def test_softmax_tends_to_the_nearest():
    generator = torch.Generator().manual_seed(0)
    colors = torch.rand(162, 3, generator=generator)
    mesh, camera = Mesh(icosphere(162).vertices, icosphere(162).faces, vertex_colors=colors), scenes.view()
    options = {"distribution": "logistic", "steepness": 1e5, "background": [0.1, 0.2, 0.3]}
    soft = Renderer(16, depth_sharpness=1e6, **options)(mesh, camera)
    hard = Renderer(16, shading="nearest", **options)(mesh, camera)
    assert ((soft - hard).abs().amax(1) > 1e-3).sum() <= 3  # pixels next to an edge
    assert hard[0, :3, 0, 0].tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert soft[0, :3, 0, 0].tolist() == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize("shading", ["softmax", "nearest"])
def test_images_are_differentiable(shading):
    colors = torch.rand(12, 3, dtype=torch.float64).requires_grad_()
    vertices = icosphere(12).vertices.double().requires_grad_()
    direction = torch.tensor([0.2, 0.4, 1.0], dtype=torch.float64, requires_grad=True)
    ambient = torch.tensor([0.3, 0.2, 0.1], dtype=torch.float64, requires_grad=True)
    renderer = Renderer((4, 5), distribution="logistic", steepness=3.0, shading=shading, depth_sharpness=20.0)

    def render(v, c, d, a):
        mesh = Mesh(v, icosphere(12).faces, vertex_colors=c)
        return renderer(mesh, scenes.view(), Lights(ambient=a, direction=d, specular=0.3))

    assert torch.autograd.gradcheck(render, (vertices, colors, direction, ambient))


def test_back_faces_are_hidden_where_one_side_counts():
    inside_out = Mesh(cube().vertices, cube().faces.flip(-1))
    for mesh, depth in ((cube(), 2.0), (inside_out, 4.0)):
        found = Renderer(4, double_sided=False).buffers(mesh, Camera.look_at(distance=3.0, fov=30.0))
        assert found.depth[0, 1, 1].item() == pytest.approx(depth)
    single = Mesh(torch.tensor([[-1.0, -1.0, 0.0], [1.0, -1.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([[0, 2, 1]]))
    for shading in ("softmax", "nearest"):
        renderer = Renderer(4, double_sided=False, shading=shading, steepness=1e4)
        assert renderer(single, FRONT)[0, :3].max() == 0
        assert renderer(single, FRONT)[0, 3].max() == 1


def test_supersampling_is_the_mean_over_more_pixels():
    mesh, camera = icosphere(42), scenes.view()
    fine = Renderer((8, 12), distribution="logistic").silhouette(mesh, camera)
    found = Renderer((4, 6), distribution="logistic", supersampling=2).silhouette(mesh, camera)
    torch.testing.assert_close(found, torch.nn.functional.avg_pool2d(fine, 2))
    assert Renderer((4, 6), supersampling=2, background=torch.rand(3, 4, 6))(mesh, camera).shape == (1, 4, 4, 6)


@pytest.mark.parametrize("shading", ["softmax", "nearest"])
def test_images_of_degenerate_meshes_are_finite(shading):
    for vertices, faces in (
        (torch.zeros(1, 3, 3), torch.tensor([[0, 1, 2]])),
        (torch.zeros(1, 4, 3), torch.zeros(0, 3).long()),
        (3.0 * cube().vertices, cube().faces),
        (cube().vertices, cube().faces.repeat(2, 1)),
    ):
        leaf = vertices.clone().requires_grad_()
        image = Renderer(6, shading=shading)(Mesh(leaf, faces), Camera.look_at(distance=3.0))
        assert image.isfinite().all()
        if image.requires_grad:
            (grad,) = torch.autograd.grad(image.sum(), leaf)
            assert grad.isfinite().all()


def test_joined_meshes_have_the_colors_of_each():
    one = Mesh(cube().vertices, cube().faces, face_colors=torch.rand(12, 3))
    other = Mesh(icosphere(42).vertices, icosphere(42).faces, face_colors=torch.rand(80, 3))
    renderer, camera = Renderer(12, distribution="logistic", steepness=300.0), scenes.view()
    both = renderer(Mesh.join([one, other]), camera)
    torch.testing.assert_close(both, torch.cat([renderer(one, camera), renderer(other, camera)]), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("shading", ["softmax", "nearest"])
def test_several_cameras_and_meshes_broadcast(shading):
    meshes = [
        Mesh(cube().vertices, cube().faces, face_colors=torch.rand(12, 3)),
        Mesh(icosphere(42).vertices, icosphere(42).faces, face_colors=torch.rand(80, 3)),
    ]
    azimuth = torch.tensor([[5.0], [33.0], [71.0]])
    renderer = Renderer((9, 7), distribution="logistic", steepness=200.0, shading=shading)
    both, cameras = Mesh.join(meshes), Camera.look_at(distance=4.0, elevation=10.0, azimuth=azimuth)
    image, found = renderer(both, cameras), renderer.buffers(both, cameras)
    assert image.shape == (3, 2, 4, 9, 7)
    assert found.normals.shape == (3, 2, 9, 7, 3)
    for i, angle in enumerate(azimuth.flatten().tolist()):
        for k, mesh in enumerate(meshes):
            camera = Camera.look_at(distance=4.0, elevation=10.0, azimuth=angle)
            torch.testing.assert_close(image[i, k], renderer(mesh, camera)[0], atol=1e-4, rtol=1e-4)
            alone = renderer.buffers(mesh, camera)
            assert torch.equal(found.faces[i, k], alone.faces[0])
            torch.testing.assert_close(found.normals[i, k], alone.normals[0])


def test_a_renderer_is_still_a_module():
    assert list(Renderer(4, steepness=torch.tensor(3.0)).buffers()) == [torch.tensor(3.0)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Renderer(4, shading="flat"), "'softmax' or 'nearest', got 'flat'"),
        (lambda: Renderer(4, lighting="vertices"), "'pixels' or 'corners', got 'vertices'"),
        (lambda: Renderer(4, depth_sharpness=0.0), "depth_sharpness must be positive"),
        (lambda: Renderer(4, supersampling=0), "supersampling must be at least 1"),
        (lambda: Renderer(4, background=torch.ones(2))(cube(), FRONT), "three numbers"),
        (lambda: Lights(direction=torch.ones(2)), r"direction must have shape \(3,\)"),
        (lambda: Lights(harmonics=torch.ones(4, 3)), r"\(9, 3\)"),
        (lambda: Lights(shininess=0.0), "shininess must be positive"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("shading", ["softmax", "nearest"])
@pytest.mark.parametrize("painted", ["vertices", "faces", "texture", "nothing"])
def test_backgrounds_broadcast_with_meshes_and_pixels(shading, painted):
    sphere = icosphere(12)
    meshes = {
        "vertices": Mesh(sphere.vertices, sphere.faces, vertex_colors=torch.rand(12, 3)),
        "faces": Mesh(sphere.vertices, sphere.faces, face_colors=torch.rand(2, 20, 3)),
        "texture": Mesh(sphere.vertices, sphere.faces, textures=torch.rand(3, 4, 4), uvs=torch.rand(20, 3, 2)),
        "nothing": Mesh(sphere.vertices, sphere.faces[:0]),
    }
    mesh, camera = meshes[painted], Camera.look_at(distance=3.0)
    behind = torch.rand(2, 3, 1, 6)
    image = Renderer((4, 6), steepness=30.0, shading=shading, background=behind, supersampling=2)(mesh, camera)
    for one, color in zip(image, behind, strict=True):
        torch.testing.assert_close(one[:3, 0], color[:, 0])
    with pytest.raises(ValueError, match=r"broadcast to \(..., 3, 4, 6\), got \(3, 5, 6\)"):
        Renderer((4, 6), shading=shading, background=torch.rand(3, 5, 6))(mesh, camera)


@pytest.mark.parametrize("shading", ["softmax", "nearest"])
def test_colors_of_faces_broadcast_with_meshes(shading):
    sphere, colors = icosphere(12), torch.rand(3, 20, 3)
    vertices = torch.stack([sphere.vertices, 0.5 * sphere.vertices])
    renderer, camera = Renderer(5, steepness=40.0, shading=shading), Camera.look_at(distance=3.0, elevation=20.0)
    image = renderer(Mesh(vertices, sphere.faces, face_colors=colors), camera)
    for i in range(2):
        for j in range(3):
            one = Mesh(vertices[i], sphere.faces, face_colors=colors[j])
            torch.testing.assert_close(image[i, j], renderer(one, camera)[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_buffers_of_half_precision_are_those_of_single(dtype):
    mesh, camera = icosphere(162), scenes.view()
    mesh = mesh.at(mesh.vertices.to(dtype))
    found = Renderer(9).buffers(mesh, camera)
    exact = Renderer(9).buffers(mesh.at(mesh.vertices.float()), camera)
    assert found.depth.dtype == found.normals.dtype == found.barycentrics.dtype == dtype
    assert torch.equal(found.faces, exact.faces)
    for a, b in zip(found, exact, strict=True):
        assert torch.equal(a, b.to(a.dtype))


def test_autocast_does_not_round_harmonics():
    lights = Lights(harmonics=torch.rand(9, 3))
    scene = (torch.zeros(1, 3), torch.tensor([[0.6, 0.48, 0.64]]), torch.ones(1, 3), torch.ones(3))
    exact = lights.shade(*scene)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(lights.shade(*scene), exact)


@pytest.mark.parametrize("shading", ["softmax", "nearest"])
def test_a_lamp_on_a_surface_leaves_second_derivatives_finite(shading):
    points = torch.tensor([[-0.5, -0.5, 0.0], [0.5, -0.5, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.0]]).requires_grad_()
    mesh = Mesh(points, torch.tensor([[0, 1, 3], [1, 2, 3], [2, 0, 3]]))
    lights = Lights(points=torch.zeros(3), specular=0.5)
    image = Renderer(5, steepness=30.0, distribution="logistic", shading=shading)(mesh, FRONT, lights)
    (grad,) = torch.autograd.grad((image * torch.rand_like(image)).sum(), points, create_graph=True)
    assert grad.isfinite().all()
    assert torch.autograd.grad(grad.square().sum(), points)[0].isfinite().all()
