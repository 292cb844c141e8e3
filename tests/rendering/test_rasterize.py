"""The kernel that looks for nearest faces is its reference, wherever it runs."""

import math

import pytest
import torch

from softly import native
from softly.rendering import Camera, Mesh, Renderer, cube, icosphere
from softly.rendering import rasterize as module
from softly.rendering.rasterize import Surface

from . import scenes

pytestmark = pytest.mark.native

CAMERAS = {
    "perspective": scenes.view(),
    "orthographic": Camera.look_at(distance=3.0, elevation=-20.0, azimuth=200.0, orthographic=1.1),
    "inside": Camera.look_at(distance=0.3, elevation=10.0, azimuth=33.0, fov=80.0),
    "planes": Camera.look_at(distance=3.0, elevation=15.0, azimuth=75.0, fov=45.0, near=2.7, far=3.2),
}


def both(mesh, camera, height, width, *, double_sided=True):
    """By the operator and by its reference."""
    surface = Surface(mesh, camera)
    found = surface.nearest(height, width, double_sided=double_sided)
    operator, module._nearest = module._nearest, module._reference
    try:
        return found, surface.nearest(height, width, double_sided=double_sided), surface
    finally:
        module._nearest = operator


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("double_sided", [True, False])
@pytest.mark.parametrize("view", CAMERAS)
@pytest.mark.parametrize("name", scenes.meshes())
def test_the_kernel_is_the_reference(name, view, double_sided, dtype):
    mesh = scenes.meshes()[name]
    mesh = Mesh(mesh.vertices.to(dtype), mesh.faces)
    found, expected, surface = both(mesh, CAMERAS[view], 37, 50, double_sided=double_sided)
    # Where two faces are equally close, or a pixel is on an edge, rounding decides.
    other = found != expected
    assert other.double().mean() < 0.003
    points = module.pixel_centres(37, 50, mesh.vertices)
    hits = other & (found >= 0) & (expected >= 0)
    _, depth = surface.at(points, found.clamp(min=0))
    _, wanted = surface.at(points, expected.clamp(min=0))
    torch.testing.assert_close(depth[hits], wanted[hits], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (16, 3), (33, 64)])
def test_sizes_and_batches(size):
    cameras = Camera.look_at(distance=4.0, azimuth=torch.tensor([[5.0], [33.0], [71.0]]))
    joined = Mesh.join([cube(), icosphere(42)])
    found, expected, _ = both(joined, cameras, *size)
    assert found.shape == (3, 2, size[0] * size[1])
    assert (found != expected).double().mean() < 0.01
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(both(joined, cameras, *size)[0], found)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30])
def test_what_has_no_place_is_not_hit(value):
    vertices = cube().vertices.double().clone()
    vertices[0, 7] = value
    found, expected, _ = both(Mesh(vertices, cube().faces), scenes.view(), 12, 12)
    assert torch.equal(found, expected)
    assert (found >= 0).any()


def test_equal_depths_go_to_the_first_face():
    mesh = Mesh(cube().vertices.double(), cube().faces.repeat(2, 1))
    found, expected, _ = both(mesh, scenes.view(), 20, 20)
    assert torch.equal(found, expected)
    assert found.max() < 12


def test_no_faces_and_degenerate_ones():
    empty = Mesh(torch.zeros(1, 4, 3), torch.zeros(0, 3).long())
    flat = Mesh(torch.zeros(1, 3, 3), torch.tensor([[0, 1, 2]]))
    for mesh in (empty, flat):
        found, expected, _ = both(mesh, scenes.view(), 4, 5)
        assert torch.equal(found, expected)
        assert (found == -1).all()


def arguments(dtype=torch.float64):
    surface = Surface(Mesh(cube().vertices.to(dtype), cube().faces), scenes.view())
    usable = torch.ones_like(surface.front)
    return (surface.sides, surface.depths, surface.corners, surface.rounding, usable, 5, 6, 0.1, math.inf)


@pytest.mark.skipif(not native.available(), reason="no kernels")
def test_torch_accepts_the_operator():
    torch.library.opcheck(torch.ops.softly.rasterize.default, arguments())


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (1, torch.zeros(1, 11, 3).double(), r"depths must have shape \(1, 12, 3\)"),
        (3, torch.zeros(1, 12), "rounding must have shape .* torch.float64, got .* torch.float32"),
        (4, torch.ones(1, 12), "usable must be boolean"),
        (5, 0, "the image's size must be positive"),
    ],
)
def test_what_the_kernel_must_not_see_is_refused(place, value, message):
    given = list(arguments())
    given[place] = value
    with pytest.raises(ValueError, match=message):
        torch.ops.softly.rasterize(*given)


def test_buffers_compile_and_are_batched_by_torch_func():
    renderer, camera = Renderer(6), scenes.view()

    def depth(vertices):
        found = renderer.buffers(Mesh(vertices, cube().faces), camera)
        return torch.where(found.faces < 0, 0.0, found.depth)[0]

    vertices = torch.stack([cube().vertices[0], 0.8 * cube().vertices[0]])
    expected = torch.stack([depth(one) for one in vertices])
    torch.testing.assert_close(torch.func.vmap(depth)(vertices), expected)
    compiled = torch.compile(depth, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(vertices[1]), expected[1])
    slope = torch.func.jacrev(lambda v: depth(v).sum())(vertices[0])
    leaf = vertices[0].clone().requires_grad_()
    torch.testing.assert_close(slope, torch.autograd.grad(depth(leaf).sum(), leaf)[0])


@pytest.mark.parametrize("size", [0.02, 0.1])
def test_faces_much_smaller_than_a_pixel_leave_no_holes(size):
    sphere = icosphere(10242)
    small = sphere.at(size * sphere.vertices)
    camera = Camera.look_at(distance=2.7, elevation=30.0, fov=60.0, target=torch.tensor([0.37, 0.37, 0.0]))
    renderer = Renderer(256, straight_through=True)
    found, exact = (renderer.buffers(mesh, camera) for mesh in (small, small.at(small.vertices.double())))
    assert torch.equal(found.faces >= 0, renderer.silhouette(small, camera) > 0)
    assert (found.faces >= 0).sum() > 2
    torch.testing.assert_close(found.depth, exact.depth.float(), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(found.barycentrics.sum(-1)[found.faces >= 0].min().item(), 1.0)
    image = Renderer(256, shading="nearest")(small, camera)
    assert torch.equal(image[:, 0] > 0, found.faces >= 0)
