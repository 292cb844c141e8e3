"""Light and textures at pixels, of the faces alone that have a part in a pixel: as of all faces."""

import pytest
import torch

import softly
from softly import native
from softly.rendering import Camera, Lights, Mesh, Renderer, blend, icosphere, shading

from . import scenes

GET = softly.distributions.get
SPHERE = icosphere(162)
LAMP, SUN = torch.tensor([1.0, 2.0, 0.5]), torch.tensor([0.3, 0.5, 0.8])
LIGHTS = Lights(ambient=0.2, direction=SUN, points=LAMP, specular=0.5)

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(not native.available(), reason="the compiled kernels are not there"),
]


def noise(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def painted(kind, dtype=torch.float64):
    """A mesh, and what of it has gradients."""
    vertices = SPHERE.vertices.to(dtype, copy=True).requires_grad_()
    count = len(SPHERE.faces)
    shapes = {"vertex_colors": (162, 3), "face_colors": (count, 3), "texels": (count, 4, 3), "image": (3, 5, 4)}
    paint = noise((1, *shapes[kind]), 5).to(dtype).requires_grad_()
    names = {"texels": "textures", "image": "textures"}
    uvs = noise((1, count, 3, 2), 6).to(dtype).requires_grad_()
    rest = {"uvs": uvs} if kind == "image" else {}
    leaves = (vertices, paint, *rest.values())
    return Mesh(vertices, SPHERE.faces, **{names.get(kind, kind): paint}, **rest), leaves


def run(kind="vertex_colors", *, dtype=torch.float64, camera=None, size=(19, 22), **options):
    """Image, and the gradients of a weighted sum of it in all there is."""
    mesh, leaves = painted(kind, dtype)
    behind = noise((3, *size), 3).to(dtype).requires_grad_()
    dial = torch.nn.Parameter(torch.tensor(options.pop("steepness", 20.0), dtype=torch.float64))
    options = {"distribution": "logistic", "depth_sharpness": 1e3, **options}
    image = Renderer(size, steepness=dial, background=behind, **options)(mesh, camera or scenes.view(), LIGHTS)[:, :3]
    loss = (image * noise(image.shape, 1).to(dtype)).sum()
    return image.detach(), *torch.autograd.grad(loss, (*leaves, behind, dial))


def of_all(monkeypatch, *arguments, **options):
    with monkeypatch.context() as patch:
        patch.setattr(shading, "contenders", lambda *_: None)
        return run(*arguments, **options)


def assert_same(found, expected, tolerance):
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        scale = max(b.abs().max().item(), 1e-3)
        torch.testing.assert_close(a, b, atol=tolerance * scale, rtol=0)


OPTIONS = {
    **{name: {"distribution": name} for name in scenes.DISTRIBUTIONS},
    "reversed": {"distribution": GET("gamma", shape=0.5).reversed()},
    "shifted": {"distribution": GET("levy").reversed().shifted(1.0)},
    "squared": {"squared": True, "steepness": 400.0},
    "cutoff": {"distribution": "cauchy", "cutoff": 2.0},
    "steep": {"steepness": 1e4},
    "softer in depth": {"depth_sharpness": 300.0},
    "hard in depth": {"depth_sharpness": 1e6},
    "one-sided": {"double_sided": False},
    "cut by the planes": {"camera": Camera.look_at(distance=3.0, elevation=17.0, azimuth=23.0, near=2.4, far=3.1)},
    "near at 0": {"camera": Camera.look_at(distance=3.0, elevation=17.0, orthographic=1.2, near=0.0)},
    "several cameras": {"camera": Camera.look_at(distance=torch.tensor([3.0, 9.0]), elevation=21.0, azimuth=13.0)},
    "two dimensions of cameras": {
        "camera": Camera.look_at(distance=torch.tensor([[3.0], [5.0], [4.0]]), azimuth=torch.tensor([13.0, 80.0]))
    },
    **{kind: {"kind": kind} for kind in ("face_colors", "texels", "image")},
    "image of several cameras": {"kind": "image", "camera": Camera.look_at(distance=torch.tensor([3.0, 9.0]))},
    "texels at corners": {"kind": "texels", "lighting": "corners"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_few_are_as_right_as_all(name, monkeypatch):
    assert_same(run(**OPTIONS[name]), of_all(monkeypatch, **OPTIONS[name]), 1e-11)


@pytest.mark.parametrize("distribution", ["logistic", "cauchy", "uniform"])
def test_single_precision(distribution, monkeypatch):
    options = {"distribution": distribution, "dtype": torch.float32, "steepness": 60.0, "size": (40, 40)}
    assert_same(run(**options), of_all(monkeypatch, **options), 1e-5)


def test_in_pieces(monkeypatch):
    options = {"camera": OPTIONS["several cameras"]["camera"]}
    whole = run(**options)
    monkeypatch.setattr(blend, "_PAIRS", 1000)
    assert_same(run(**options), whole, 1e-12)


@pytest.mark.parametrize("size", [(1, 1), (3, 70), (33, 31)])
def test_every_size(size, monkeypatch):
    assert_same(run(size=size), of_all(monkeypatch, size=size), 1e-11)


def test_a_view_that_sees_nothing(monkeypatch):
    away = Camera.look_at(eye=torch.tensor([[0.0, 0.0, 3.0], [0.0, 0.0, -3.0]]), target=torch.tensor([0.0, 0.0, 9.0]))
    found = run(distribution="uniform", camera=away)
    assert_same(found, of_all(monkeypatch, distribution="uniform", camera=away), 1e-11)
    seen = (found[0] - noise((3, 19, 22), 3)).abs().amax((1, 2, 3))
    assert seen[0] == 0
    assert seen[1] > 0.1


def test_padded_faces_of_joined_meshes(monkeypatch):
    few = Mesh(SPHERE.vertices, SPHERE.faces[:17])
    mesh = Mesh.join([few, SPHERE, SPHERE.at(0.5 * SPHERE.vertices)])
    mesh = mesh.at(mesh.vertices.double())
    renderer = Renderer(21, distribution="logistic", steepness=40.0)
    found = renderer(mesh, scenes.view(), LIGHTS)
    alone = [renderer(part.at(part.vertices.double()), scenes.view(), LIGHTS)[0] for part in (few, SPHERE)]
    assert_same(found[:2], alone, 1e-11)


def test_few_are_few():
    calls = []

    def spy(*arguments):
        calls.append(shading_contenders(*arguments))
        return calls[-1]

    shading_contenders = shading.contenders
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shading, "contenders", spy)
        run(steepness=1e3, size=(40, 40))
        run(depth_sharpness=1e-3, distribution="cauchy")
    assert calls[0].each() < 8
    assert calls[1] is None


def test_derivatives():
    mesh = icosphere(12)
    camera = Camera.look_at(distance=3.0, elevation=17.0, azimuth=23.0)
    renderer = Renderer((2, 3), distribution="logistic", steepness=6.0, depth_sharpness=300.0)
    paint = (noise((1, 12, 3), 1).sigmoid()).requires_grad_()

    def colours(vertices, paint):
        return renderer(Mesh(vertices, mesh.faces, vertex_colors=paint), camera, LIGHTS)[:, :3]

    leaves = (mesh.vertices.double().requires_grad_(), paint)
    assert torch.autograd.gradcheck(colours, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(colours, leaves, fast_mode=True)
    loss = lambda *x: (colours(*x) * noise((1, 3, 2, 3), 4)).sum()  # noqa: E731
    eager, transformed = torch.autograd.grad(loss(*leaves), leaves), torch.func.grad(loss, (0, 1))(*leaves)
    assert_same(eager, transformed, 1e-11)
