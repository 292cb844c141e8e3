"""Cameras against other projects' conventions, derived by hand in NumPy, and in forms that those projects have."""

import math

import numpy as np
import pytest
import torch

from softly.rendering import Camera, Lights, Mesh, Renderer, cube

ROUNDS = range(20)


def tensor(x):
    return torch.tensor(np.asarray(x), dtype=torch.float64)


def scene(seed):
    """A rotation, points before the camera, and the sides of an image."""
    random = np.random.default_rng(seed)
    turned, _ = np.linalg.qr(random.normal(size=(3, 3)))
    turned *= np.sign(np.linalg.det(turned))
    return random, turned, random.normal(size=(20, 3)), *(int(side) for side in random.integers(1, 200, 2))


def agree(camera, points, x, y, depth):
    wanted = tensor(np.stack([x, y, depth], -1))
    torch.testing.assert_close(camera.project(tensor(points))[0], wanted, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("seed", ROUNDS)
def test_pixels_of_opencv(seed):
    random, turned, points, height, width = scene(seed)
    place = np.array([*random.normal(size=2), 6.0])
    K = np.diag([*random.uniform(20, 300, 2), 1.0])
    K[:2, 2] = random.uniform(-20, 220, 2)
    u, v, depth = K @ (turned @ points.T + place[:, None])
    u, v, side = u / depth, v / depth, min(height, width)
    camera = Camera.from_opencv(tensor(K), tensor(turned), tensor(place), (height, width))
    agree(camera, points, (2 * u + 1 - width) / side, -(2 * v + 1 - height) / side, depth)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("seed", ROUNDS)
def test_windows_of_opengl(seed, flat):
    random, turned, points, height, width = scene(seed)
    left, bottom = -random.uniform(0.1, 1, 2)
    right, top, near = random.uniform(0.1, 1, 3)
    far = random.uniform(5, 50)
    across, up, deep = right - left, top - bottom, far - near
    if flat:  # glOrtho
        projection = np.diag([2 / across, 2 / up, -2 / deep, 1.0])
        projection[:3, 3] = -(right + left) / across, -(top + bottom) / up, -(far + near) / deep
    else:  # glFrustum
        projection = np.diag([2 * near / across, 2 * near / up, -(far + near) / deep, 0.0])
        projection[:2, 2] = (right + left) / across, (top + bottom) / up
        projection[2, 3], projection[3, 2] = -2 * far * near / deep, -1.0
    view = np.eye(4)
    view[:3, :3], view[:3, 3] = turned, [*random.normal(size=2), -6.0]
    seen = view @ np.concatenate([points, np.ones((20, 1))], -1).T
    clip = projection @ seen
    column, row = (clip[:2] / clip[3] + 1) / 2 * np.array([[width], [height]])
    side = min(height, width)
    camera = Camera.from_opengl(tensor(view), tensor(projection), (height, width))
    agree(camera, points, (2 * column - width) / side, (2 * row - height) / side, -seen[2])
    assert (camera.near, camera.far) == pytest.approx((near, far))


@pytest.mark.parametrize("seed", ROUNDS)
def test_rows_of_pytorch3d(seed):
    random, turned, points, *_ = scene(seed)
    place, fov = np.array([*random.normal(size=2), 6.0]), random.uniform(10, 150)
    x, y, z = (points @ turned + place).T
    focal = 1 / math.tan(math.radians(fov) / 2)
    camera = Camera.from_pytorch3d(tensor(turned), tensor(place), fov=fov)
    agree(camera, points, -focal * x / z, focal * y / z, z)


@pytest.mark.parametrize("seed", ROUNDS)
def test_look_at_by_cross_products(seed):
    random, _, points, *_ = scene(seed)
    target, elevation, azimuth = random.normal(size=3), random.uniform(-89, 89), random.uniform(-400, 400)
    e, a = math.radians(elevation), math.radians(azimuth)
    eye = target + 7.0 * np.array([math.cos(e) * math.sin(a), math.sin(e), math.cos(e) * math.cos(a)])
    forward = (target - eye) / 7.0
    right = np.cross(forward, [0.0, 1.0, 0.0])
    right /= np.linalg.norm(right)
    x, y, depth = np.stack([right, np.cross(right, forward), forward]) @ (points - eye).T
    focal = math.sqrt(3)
    for camera in (
        Camera.look_at(distance=7.0, elevation=elevation, azimuth=azimuth, target=tensor(target)),
        Camera.look_at(eye=tensor(eye), target=tensor(target)),
    ):
        agree(camera, points, focal * x / depth, focal * y / depth, depth)


@pytest.mark.parametrize("shading", ["softmax", "nearest"])
@pytest.mark.parametrize("double_sided", [False, True])
@pytest.mark.parametrize("orthographic", [None, 1.5])
def test_cameras_that_mirror_or_stretch_see_the_same_light(shading, double_sided, orthographic):
    # Renderers whose first row is at the bottom flip their projection, and view matrices may have a scale.
    box = Mesh(cube().vertices.double(), cube().faces)
    lights = Lights(ambient=0.1, direction=torch.tensor([0.3, 1.0, 2.0]), specular=0.5, shininess=3.0)
    renderer = Renderer(16, shading=shading, double_sided=double_sided, steepness=1e4)
    camera = Camera.look_at(distance=3.0, azimuth=30.0, elevation=20.0, orthographic=orthographic)
    turned, place, focal = camera.rotation, camera.translation, camera.focal
    flip = torch.tensor([-1.0, 1.0, 1.0]).double()
    options = {"orthographic": camera.orthographic}
    wanted = renderer(box, camera, lights)
    for mirrored in (
        Camera(turned, place, focal * flip[:2], **options),
        Camera(flip.unsqueeze(-1) * turned, flip * place, focal, **options),
    ):
        torch.testing.assert_close(renderer(box, mirrored, lights).flip(-1), wanted)
    stretched = Camera(2 * turned, 2 * place, focal / (2 if orthographic else 1), near=0.2, **options)
    torch.testing.assert_close(renderer(box, stretched, lights), wanted)


def test_angles_may_be_whole_numbers():
    found = Camera.look_at(distance=torch.tensor(3), azimuth=torch.arange(4) * 90, fov=torch.tensor(50))
    wanted = Camera.look_at(distance=3.0, azimuth=torch.tensor([0.0, 90.0, 180.0, 270.0]).double(), fov=50.0)
    points = tensor(np.eye(3))
    assert torch.equal(found.project(points), wanted.project(points))


def test_parameters_of_half_precision_are_not_rounded_further():
    found = Camera.look_at(distance=torch.tensor(3.0).half(), azimuth=torch.tensor(130.0).half())
    wanted = Camera.look_at(distance=3.0, azimuth=130.0)
    torch.testing.assert_close(found.rotation.double(), wanted.rotation, atol=1e-6, rtol=0)
    points = torch.rand(9, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert torch.equal(wanted.project(points), wanted.project(points.float()).bfloat16())
    assert torch.equal(wanted.view(points), wanted.view(points.float()).bfloat16())


def test_parameters_keep_the_precision_that_they_have():
    turned, place = scene(0)[1], tensor([0.1, 0.2, 6.0])
    points, K = tensor(np.eye(3)), tensor([[100.0, 0.0, 30.0], [0.0, 90.0, 20.0], [0.0, 0.0, 1.0]])
    for dtype in (torch.float32, torch.float64):
        camera = Camera.from_opencv(K.to(dtype), tensor(turned), place, 64)
        assert torch.equal(camera.project(points), Camera.from_opencv(K, tensor(turned), place, 64).project(points))
    angle = torch.tensor(33.3, dtype=torch.float64)
    camera = Camera.look_at(eye=torch.tensor([0.0, 0.0, 2.0]), target=tensor([0.1, 0.2, 1 / 3]), fov=angle)
    wanted = Camera.look_at(eye=tensor([0.0, 0.0, 2.0]), target=tensor([0.1, 0.2, 1 / 3]), fov=angle)
    assert torch.equal(camera.project(points), wanted.project(points))


@pytest.mark.parametrize("size", [1e-25, 1e-15, 1.0, 1e25])
def test_frames_at_any_scale(size):
    eye, up = torch.tensor([0.0, 0.0, 2.0]) * size, torch.tensor([0.0, 1.0, 0.0]) * size
    for camera in (Camera.look_at(eye=eye), Camera.look_at(eye=torch.tensor([0.0, 0.0, 2.0]), up=up)):
        torch.testing.assert_close(camera.rotation, torch.eye(3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Camera.look_at(distance=True), "distance must be a number or a tensor, got bool"),
        (lambda: Camera.look_at(distance="3"), "distance must be a number or a tensor, got str"),
        (lambda: Camera.look_at(distance=torch.tensor(True)), "distance must be real, got a tensor of torch.bool"),
        (lambda: Camera.look_at(distance=-2.0), r"distance must be in \[0, inf\), got \[-2"),
        (lambda: Camera.look_at(distance=math.inf), r"distance must be in \[0, inf\), got \[inf"),
        (lambda: Camera.look_at(distance=1.0, azimuth=[1.0]), "azimuth must be a number or a tensor, got list"),
        (lambda: Camera.look_at(distance=1.0, fov="60"), "fov must be a number or a tensor, got str"),
        (lambda: Camera.look_at(distance=1.0, near="1"), "near must be a number, got str"),
        (lambda: Camera.look_at(distance=1.0, far=None), "far must be a number, got NoneType"),
        (lambda: Camera.look_at(distance=1.0, orthographic=1.0, near=-1.0), "must be 0 <= near < far, got -1"),
        (lambda: Camera.look_at(distance=1.0, target=[0.0, 0.0, 0.0]), "target must be a tensor, got list"),
        (lambda: Camera.look_at(distance=1.0, target=torch.ones(3, 1)), r"target must have shape \(\.\.\., 3\)"),
        (lambda: Camera.look_at(eye=torch.ones(())), r"eye must have shape \(\.\.\., 3\), got \(\)"),
        (lambda: Camera.look_at(eye=torch.ones(3), up=torch.ones(1)), r"up must have shape \(\.\.\., 3\), got \(1,\)"),
        (
            lambda: Camera.look_at(distance=torch.ones(2), azimuth=torch.ones(3)),
            r"look_at: batches must broadcast, got \(2,\) of distance and \(3,\) of azimuth",
        ),
        (
            lambda: Camera.look_at(distance=torch.ones(2), fov=50 * torch.ones(3)),
            r"batches must broadcast, got \(2,\) of rotation and \(2,\) of translation and \(3,\) of focal",
        ),
        (
            lambda: Camera.from_opencv(torch.eye(3), torch.eye(3), torch.ones(3, 1), 64),  # as OpenCV has them
            r"from_opencv: t must have shape \(\.\.\., 3\), got \(3, 1\)",
        ),
        (
            lambda: Camera.from_opencv(torch.eye(3), torch.ones(3), torch.ones(3), 64),
            r"from_opencv: R must have shape \(\.\.\., 3, 3\), got \(3,\)",
        ),
        (
            lambda: Camera.from_pytorch3d(torch.eye(3), torch.ones(3, 1)),
            r"from_pytorch3d: T must have shape \(\.\.\., 3\), got \(3, 1\)",
        ),
        (
            lambda: Camera.from_pytorch3d(torch.ones(3), torch.ones(3)),
            r"R must have shape \(\.\.\., 3, 3\), got \(3,\)",
        ),
        (
            lambda: Camera.look_at(distance=torch.ones(2)).project(torch.zeros(3, 4, 3)),
            r"batches must broadcast, got \(2,\) of cameras and \(3,\) of points",
        ),
        (lambda: Camera.look_at(distance=2.0).project(torch.zeros(4, 2)), r"points must have shape \(\.\.\., 3\)"),
    ],
)
def test_what_would_be_wrong_is_refused(make, message):
    with pytest.raises((TypeError, ValueError), match=f"softly.rendering.Camera.*{message}"):
        make()


@pytest.mark.parametrize(("flat", "entry"), [(False, 1.0), (True, 0.0)])
def test_projections_without_a_near_plane_are_refused(flat, entry):
    projection = torch.diag(torch.tensor([1.0, 1.0, entry, 1.0 if flat else 0.0]))
    if not flat:
        projection[3, 2] = -1.0
    with pytest.raises(ValueError, match=f"projection has no near plane, with {entry:g} in row 2, column 2"):
        Camera.from_opengl(torch.eye(4), projection, 64)
