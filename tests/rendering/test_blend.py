"""The kernel of blended colours is its reference."""

import pytest
import torch

import softly
from softly import native
from softly.rendering import Camera, Lights, Mesh, Renderer, icosphere
from softly.rendering.blend import Depths, blend, weights_at
from softly.rendering.clipping import polygons
from softly.rendering.rasterize import Surface
from softly.rendering.silhouette import Choice, pixel_centres

from . import scenes

GET = softly.distributions.get
SPHERE = icosphere(162)
SIZE = (19, 22)


def painted(dtype, mesh=SPHERE):
    return Mesh(mesh.vertices.to(dtype, copy=True), mesh.faces, vertex_colors=(mesh.vertices.to(dtype) + 1) / 2)


def run(dtype, *, camera=None, mesh=SPHERE, size=SIZE, steepness=20.0, lights=None, **options):
    """Image, and the gradients of a weighted sum of it in vertices, colours, background and steepness."""
    mesh = painted(dtype, mesh)
    vertices, colors = mesh.vertices.requires_grad_(), mesh.vertex_colors.requires_grad_()
    behind = noise((3, *size), 3).to(dtype).requires_grad_()
    dial = torch.nn.Parameter(torch.tensor(steepness, dtype=torch.float64))
    renderer = Renderer(size, steepness=dial, background=behind, **{"distribution": "logistic", **options})
    image = renderer(Mesh(vertices, mesh.faces, vertex_colors=colors), camera or scenes.view(), lights)[:, :3]
    loss = (image * noise(image.shape, 1).to(dtype)).sum()
    return image.detach(), *torch.autograd.grad(loss, (vertices, colors, behind, dial))


def noise(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def without_kernel(monkeypatch, *arguments, **options):
    with monkeypatch.context() as patch:
        patch.setattr(native.library, "module", None)
        return run(*arguments, **options)


def assert_same(found, expected, tolerance):
    for a, b in zip(found, expected, strict=True):
        scale = max(b.abs().max().item(), 1e-3)
        torch.testing.assert_close(a.double(), b.double(), atol=tolerance * scale, rtol=0)


OPTIONS = {
    **{name: {"distribution": name} for name in scenes.DISTRIBUTIONS},
    "reversed": {"distribution": GET("gamma", shape=0.5).reversed()},
    "shifted": {"distribution": GET("levy").reversed().shifted(1.0)},
    "squared": {"squared": True, "steepness": 400.0},
    "cutoff": {"distribution": "cauchy", "cutoff": 2.0},
    "soft in depth": {"depth_sharpness": 10.0},
    "hard in depth": {"depth_sharpness": 1e6},
    "one-sided": {"double_sided": False},
    "cut by the planes": {"camera": Camera.look_at(distance=3.0, elevation=17.0, azimuth=23.0, near=2.4, far=3.1)},
    "near at 0": {
        "camera": Camera.look_at(distance=3.0, elevation=17.0, orthographic=1.2, near=0.0),
        "depth_sharpness": 300.0,
    },
    "orthographic": {"camera": Camera.look_at(distance=3.0, elevation=17.0, orthographic=1.2)},
    "several cameras": {"camera": Camera.look_at(distance=3.0, elevation=21.0, azimuth=torch.tensor([13.0, 80.0]))},
    "light at corners": {
        "lighting": "corners",
        "lights": Lights(ambient=0.2, direction=torch.tensor([0.3, 0.5, 0.8]), specular=0.5),
    },
}


@pytest.mark.native
@pytest.mark.skipif(not native.available(), reason="the compiled kernels are not there")
class TestKernel:
    @pytest.mark.parametrize("name", OPTIONS)
    def test_double_precision_is_exact(self, name, monkeypatch):
        options = {"depth_sharpness": 1e3, **OPTIONS[name]}
        found = run(torch.float64, **options)
        assert_same(found, without_kernel(monkeypatch, torch.float64, **options), 1e-10)

    @pytest.mark.parametrize("sharpness", [10.0, 1e3, 1e4])
    @pytest.mark.parametrize(
        "distribution", ["logistic", "gaussian", "cubic_hermite", "cauchy", "gumbel_min", "laplace"]
    )
    def test_single_precision_is_double_but_for_what_is_dropped(self, distribution, sharpness):
        options = {"distribution": distribution, "steepness": 60.0, "depth_sharpness": sharpness, "size": (40, 40)}
        found, exact = (run(dtype, **options) for dtype in (torch.float32, torch.float64))
        torch.testing.assert_close(found[0].double(), exact[0], atol=1e-6, rtol=0)
        assert_same(found[1:], exact[1:], 1e-5)

    @pytest.mark.parametrize(("distribution", "squared"), [("uniform", False), ("logistic", True), ("levy", False)])
    def test_single_precision_is_double_inside_where_it_is_steep(self, distribution, squared):
        camera, choice = scenes.view(), Choice(GET(distribution), squared, None, None)
        surface, dial = Surface(SPHERE, camera), torch.tensor(1e8 if squared else 1e4)
        scene = (polygons(SPHERE, camera)[0], surface.corners, surface.depths, noise((1, 320, 3, 3), 1).float())

        def shades(dtype):
            sheets, *others = (x.to(dtype).detach().requires_grad_() for x in (*scene, noise((3, 40, 40), 2).float()))
            image = blend(sheets, dial, *others, None, 40, 40, Depths(1e-3, 1e3, 1e3), choice)
            assert image.dtype == dtype
            return image.detach(), *torch.autograd.grad((image * noise((3, 40, 40), 3)).sum(), (sheets, *others))

        assert_same(shades(torch.float32), shades(torch.float64), 1e-6)

    @pytest.mark.parametrize("size", [(1, 1), (3, 70), (33, 31)])
    def test_every_size(self, size, monkeypatch):
        found = run(torch.float64, size=size)
        assert_same(found, without_kernel(monkeypatch, torch.float64, size=size), 1e-10)

    @pytest.mark.parametrize("count", [0, 1, 17])
    def test_every_number_of_faces(self, count, monkeypatch):
        few = Mesh(SPHERE.vertices, SPHERE.faces[:count])
        found = run(torch.float64, mesh=few) if count else [Renderer(3, background=[0.1, 0.2, 0.3])(few, scenes.view())]
        if count:
            assert_same(found, without_kernel(monkeypatch, torch.float64, mesh=few), 1e-10)
        else:
            torch.testing.assert_close(found[0][0, :3, 1, 1], torch.tensor([0.1, 0.2, 0.3]))

    def test_threads_change_nothing_from_call_to_call(self):
        camera = Camera.look_at(distance=3.0, elevation=21.0, azimuth=torch.tensor([13.0, 80.0]))
        alone = run(torch.float32, camera=camera, size=(70, 90))
        before = torch.get_num_threads()
        try:
            torch.set_num_threads(3)
            first, second = (run(torch.float32, camera=camera, size=(70, 90)) for _ in range(2))
        finally:
            torch.set_num_threads(before)
        for a, b in zip(first, second, strict=True):
            assert torch.equal(a, b)
        assert torch.equal(first[0], alone[0])
        assert_same(first, alone, 1e-4)


@pytest.mark.parametrize("without", [False, True])
def test_derivatives(without, monkeypatch):
    if without:
        monkeypatch.setattr(native.library, "module", None)
    polygons, dial = scenes.triangles(3, size=1.0), torch.tensor(4.0, dtype=torch.float64)
    depths = 2.0 + noise((3, 3), 0).abs()
    corners = torch.cat([polygons * depths.unsqueeze(-1), depths.unsqueeze(-1)], -1)
    tensors = (polygons, dial, corners, depths, noise((3, 3, 3), 1), noise((3, 3, 4), 2))
    tensors = tuple(x.detach().clone().requires_grad_() for x in tensors)
    choice = Choice(GET("logistic"), False, None, None)

    def call(*tensors):
        return blend(*tensors, None, 3, 4, Depths(0.5, 100.0, 8.0), choice)

    assert torch.autograd.gradcheck(call, tensors)
    assert torch.autograd.gradgradcheck(call, tensors)


def test_weights_are_those_of_the_point_that_a_ray_meets():
    corners = torch.tensor([[[-1.0, -1.0, 2.0], [1.5, -1.0, 3.0], [0.2, 1.5, 2.5]]], dtype=torch.float64)
    points = pixel_centres(9, 9, corners)
    weights = weights_at(points, corners)[:, 0]
    torch.testing.assert_close(weights.sum(-1), torch.ones(81).double())
    met = weights @ corners[0]
    inside = (weights > 0).all(-1)
    assert inside.sum() > 5
    torch.testing.assert_close(met[inside][:, :2] / met[inside][:, 2:], points[inside])


def test_weights_of_a_face_that_is_seen_from_its_side_are_alike():
    line = torch.tensor([[[0.1, 0.1, 1.0], [0.2, 0.2, 1.0], [0.4, 0.4, 1.0]]], requires_grad=True)
    weights = weights_at(torch.tensor([[0.0, 0.0], [0.3, 0.1]]), line)
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 3))
    (grad,) = torch.autograd.grad(weights.square().sum(), line)
    assert not grad.any()


@pytest.mark.parametrize("lighting", ["pixels", "corners"])
def test_collinear_faces_are_the_same_by_kernels_and_in_torch(lighting, monkeypatch):
    start, way = noise((40, 1, 3), 1), noise((40, 1, 3), 2)
    vertices = (0.3 * (start + way * noise((40, 3, 1), 3))).flatten(0, 1)
    mesh = Mesh(vertices, torch.arange(120).view(-1, 3), vertex_colors=noise((120, 3), 4).sigmoid())
    lights = Lights(ambient=0.2, direction=torch.tensor([0.3, 0.5, 0.8]))
    renderer = Renderer(32, distribution="logistic", steepness=40.0, lighting=lighting)
    image = renderer(mesh, scenes.view(), lights)
    with monkeypatch.context() as patch:
        patch.setattr(native.library, "module", None)
        torch.testing.assert_close(image, renderer(mesh, scenes.view(), lights), atol=1e-9, rtol=0)


def test_degenerate_faces_leave_gradients_finite():
    vertices = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, 1.0, 0.0]], requires_grad=True)
    faces = torch.tensor([[0, 1, 2], [0, 1, 3], [0, 1, 3], [3, 3, 3]])
    mesh = Mesh(vertices, faces, vertex_colors=vertices.detach().abs())
    image = Renderer(16, distribution="logistic", steepness=50.0)(mesh, Camera.look_at(distance=3.0))
    (grad,) = torch.autograd.grad(image.square().sum(), vertices)
    assert image.isfinite().all()
    assert grad.isfinite().all()
    assert grad.any()


def test_what_is_all_but_impossible_has_no_colour_in_any_precision():
    mesh = Mesh(torch.tensor([[-0.5, -0.5, 0.0], [0.5, -0.5, 0.0], [0.0, 0.5, 0.0]]), torch.tensor([[0, 1, 2]]))
    images = [
        Renderer(21, distribution="logistic", steepness=300.0)(mesh.at(mesh.vertices.to(dtype)), scenes.view())[0, 0]
        for dtype in (torch.float32, torch.float64)
    ]
    assert set(images[0].round().unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(images[0].double(), images[1], atol=1e-4, rtol=0)
