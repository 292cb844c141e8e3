"""Cameras project as computed by hand."""

import math

import pytest
import torch

from softly.rendering import Camera, Mesh, Renderer, icosphere

POINT = torch.tensor([[0.3, -0.2, 0.5]], dtype=torch.float64)


def close(actual, expected):
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    ("angles", "expected"),
    [
        # fov 90: x / depth. The camera at +z sees x to the right; at +x (azimuth 90) it sees -z there.
        ({}, [0.3 / 1.5, -0.2 / 1.5, 1.5]),
        ({"azimuth": 90.0}, [-0.5 / 1.7, -0.2 / 1.7, 1.7]),
        ({"azimuth": 180.0}, [-0.3 / 2.5, -0.2 / 2.5, 2.5]),
        # From above, the top of the image is -z.
        ({"elevation": 90.0}, [0.3 / 2.2, -0.5 / 2.2, 2.2]),
        ({"elevation": -90.0}, [0.3 / 1.8, 0.5 / 1.8, 1.8]),
    ],
)
def test_look_at_from_angles(angles, expected):
    close(Camera.look_at(distance=2.0, fov=90.0, **angles).project(POINT)[0, 0], expected)


def test_look_at_from_a_point_is_the_same_as_from_angles():
    e, a = math.radians(25), math.radians(130)
    eye = 3.0 * torch.tensor([math.cos(e) * math.sin(a), math.sin(e), math.cos(e) * math.cos(a)], dtype=torch.float64)
    one = Camera.look_at(eye=eye, fov=40.0)
    other = Camera.look_at(distance=3.0, elevation=25.0, azimuth=130.0, fov=40.0)
    torch.testing.assert_close(one.project(POINT), other.project(POINT))
    target = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
    moved = Camera.look_at(distance=3.0, elevation=25.0, azimuth=130.0, target=target, fov=40.0)
    torch.testing.assert_close(moved.project(POINT + target), other.project(POINT))


def test_up_turns_the_image():
    eye = torch.tensor([0.0, 0.0, 2.0], dtype=torch.float64)
    camera = Camera.look_at(eye=eye, up=torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64), fov=90.0)
    close(camera.project(POINT)[0, 0], [0.2 / 1.5, 0.3 / 1.5, 1.5])


def test_orthographic():
    camera = Camera.look_at(distance=2.0, orthographic=0.5)
    close(camera.project(POINT)[0, 0], [0.6, -0.4, 1.5])


def test_opencv():
    # x right, y down, z forward; pixel (u, v) = (fx X / Z + cx, fy Y / Z + cy), integers at centres.
    K = torch.tensor([[50.0, 0.0, 20.0], [0.0, 60.0, 10.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    R = torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    camera = Camera.from_opencv(K, R, torch.tensor([0.0, 0.0, 2.0]), (40, 60))
    u, v = 50 * 0.2 / 2.5 + 20, 60 * 0.3 / 2.5 + 10
    # Continuous pixel coordinates u + 1/2 of 60, and v + 1/2 of 40 from the top; 20 pixels are a unit.
    close(camera.project(POINT)[0, 0], [(u + 0.5 - 30) / 20, (20 - v - 0.5) / 20, 2.5])
    for row, column, value in ((0, 1, 0), (1, 0, 0), (2, 0, 0), (2, 2, 1)):
        wrong = K.clone()
        wrong[row, column] += 2.0
        with pytest.raises(ValueError, match=f"K must have {value} in row {row}, column {column}, got {value + 2}"):
            Camera.from_opencv(wrong, R, torch.zeros(3), 40)


def test_opengl():
    near, far = 0.5, 8.0
    projection = torch.zeros(4, 4, dtype=torch.float64)
    projection[0, 0], projection[1, 1], projection[0, 2], projection[1, 2] = 1.2, 1.6, 0.1, -0.2
    projection[2, 2], projection[2, 3] = -(far + near) / (far - near), -2 * far * near / (far - near)
    projection[3, 2] = -1.0
    view = torch.eye(4, dtype=torch.float64)
    view[:3, 3] = torch.tensor([0.1, 0.0, -3.0])
    camera = Camera.from_opengl(view, projection, (60, 80))
    clip = projection @ view @ torch.cat([POINT[0], torch.ones(1, dtype=torch.float64)])
    expected = [(clip[0] / clip[3]).item() * 80 / 60, (clip[1] / clip[3]).item(), 2.5]
    close(camera.project(POINT)[0, 0], expected)
    assert camera.near == pytest.approx(near)
    assert camera.far == pytest.approx(far)
    flat = torch.diag(torch.tensor([0.5, 0.5, -2 / (far - near), 1.0], dtype=torch.float64))
    flat[2, 3] = -(far + near) / (far - near)
    camera = Camera.from_opengl(view, flat, 64)
    close(camera.project(POINT)[0, 0], [0.2, -0.1, 2.5])
    assert (camera.near, camera.far) == pytest.approx((near, far))
    with pytest.raises(ValueError, match="last row"):
        Camera.from_opengl(view, torch.ones(4, 4), 64)
    for matrices, place in (((view, projection), (0, 1)), ((view, projection), (1, 3)), ((view, flat), (0, 2))):
        wrong = matrices[1].clone()
        wrong[place] = 0.5
        with pytest.raises(ValueError, match="projection must have 0 in row {}, column {}, got 0.5".format(*place)):
            Camera.from_opengl(matrices[0], wrong, 64)
    with pytest.raises(ValueError, match="view must have 1 in row 3, column 3, got 2"):
        Camera.from_opengl(2 * view, projection, 64)
    rounded = view.clone()
    rounded[3] += torch.tensor([1e-9, -1e-9, 0.0, 1e-9])  # as inverses are
    expected = Camera.from_opengl(view, projection, 64).project(POINT)
    assert torch.equal(Camera.from_opengl(rounded, projection, 64).project(POINT), expected)
    other = projection.clone()
    other[2, 3] *= 2.0
    with pytest.raises(ValueError, match="same near and far planes"):
        Camera.from_opengl(view, torch.stack([projection, other]), 64)


def test_pytorch3d():
    # look_at_view_transform(dist=2, elev=0, azim=0): R = diag(-1, 1, -1), T = (0, 0, 2). It is our camera at +z.
    R = torch.diag(torch.tensor([-1.0, 1.0, -1.0], dtype=torch.float64))
    camera = Camera.from_pytorch3d(R, torch.tensor([0.0, 0.0, 2.0]), fov=70.0)
    torch.testing.assert_close(camera.project(POINT), Camera.look_at(distance=2.0, fov=70.0).project(POINT))


def test_batches_broadcast():
    azimuth = torch.tensor([0.0, 30.0, 60.0], dtype=torch.float64)
    camera = Camera.look_at(distance=3.0, azimuth=azimuth)
    several = camera.project(POINT.expand(1, 5, 3))
    assert several.shape == (3, 5, 3)
    grid = Camera.look_at(distance=3.0, azimuth=azimuth.unsqueeze(-1), fov=torch.tensor([[50.0, 60.0]]))
    assert grid.project(torch.rand(2, 4, 3)).shape == (3, 2, 4, 3)


def test_all_parameters_broadcast_from_the_last_dimension_of_a_batch():
    azimuth, fov = 30.0 * torch.arange(9.0).view(3, 3).double(), torch.tensor([30.0, 50.0, 70.0]).double()
    target, vertices = 0.1 * torch.arange(9.0).view(3, 3).double(), icosphere(12).vertices.double()
    together = Camera.look_at(distance=3.0, azimuth=azimuth, fov=fov, target=target)
    renderer = Renderer((6, 9), distribution="logistic", steepness=9.0)
    several = Mesh(vertices * torch.tensor([1.0, 0.8, 0.6]).view(3, 1, 1), icosphere(12).faces)
    image = renderer.silhouette(several, together)
    one_more = several.at(several.vertices.expand(3, 3, -1, -1))
    beside = renderer.silhouette(one_more, Camera.look_at(distance=3.0, azimuth=40.0, fov=fov))
    for i in range(3):
        for j in range(3):
            alone = several.at(several.vertices[j])
            one = Camera.look_at(distance=3.0, azimuth=azimuth[i, j], fov=fov[j], target=target[j])
            close(together.project(POINT)[i, j], one.project(POINT)[0])
            close(image[i, j], renderer.silhouette(alone, one)[0])
            side = Camera.look_at(distance=3.0, azimuth=40.0, fov=fov[j])
            close(beside[i, j], renderer.silhouette(alone, side)[0])
    moved = Camera(torch.eye(3), torch.tensor([[0.0, 0.0, -2.0], [0.0, 0.0, -3.0]]), torch.ones(2))
    close(moved.view(POINT)[:, 0, 2].double(), [1.5, 2.5])


def test_autocast_does_not_round_cameras():
    place = torch.tensor([1.3, 0.7, 2.1])
    for make in (
        lambda: Camera.look_at(eye=place),
        lambda: Camera.look_at(distance=torch.tensor(2.7), elevation=torch.tensor(33.0)),
    ):
        exact = make()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(make().translation, exact.translation)


def test_numbers_and_tensors_of_any_precision_go_together():
    exact = Camera.look_at(distance=3.0, elevation=20.0, azimuth=30.0).project(POINT)
    single = Camera.look_at(distance=3.0, elevation=torch.tensor(20.0), azimuth=torch.tensor(30.0).double())
    torch.testing.assert_close(single.project(POINT), exact, atol=1e-6, rtol=1e-6)
    mixed = Camera.look_at(distance=torch.tensor([3.0]), elevation=20.0, azimuth=30.0, fov=torch.tensor(60.0).double())
    torch.testing.assert_close(mixed.project(POINT), exact, atol=1e-6, rtol=1e-6)


def test_differentiable_in_all_parameters():
    def project(distance, elevation, azimuth, fov, target):
        camera = Camera.look_at(distance=distance, elevation=elevation, azimuth=azimuth, fov=fov, target=target)
        return camera.project(POINT)

    values = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (2.0, 20.0, 30.0, 50.0)]
    target = torch.tensor([0.1, 0.0, -0.1], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(project, (*values, target))
    eye = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64, requires_grad=True)
    up = torch.tensor([0.1, 1.0, 0.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda e, u: Camera.look_at(eye=e, up=u).project(POINT), (eye, up))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give distance or eye, got neither"),
        ({"distance": 1.0, "eye": torch.ones(3)}, "got both"),
        ({"distance": 1.0, "fov": 180.0}, r"fov must be in \(0, 180\), got \[180"),
        ({"distance": 1.0, "orthographic": -1.0}, r"orthographic must be in \(0, inf\)"),
        ({"distance": 1.0, "near": 0.0}, "0 < near < far, got 0.0"),
        ({"distance": 1.0, "near": 2.0, "far": 1.0}, "0 < near < far, got 2.0 and 1.0"),
        ({"eye": torch.tensor([0.0, 1.0, 0.0])}, "choose another up"),
        ({"eye": torch.zeros(3)}, "eye must differ from target"),
        ({"eye": torch.ones(3), "elevation": 10.0}, "elevation and azimuth belong to distance"),
        ({"eye": torch.ones(3), "azimuth": torch.zeros(())}, "elevation and azimuth belong to distance"),
        ({"distance": 1.0, "fov": 60.0, "orthographic": 1.0}, "give fov or orthographic, got both"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        Camera.look_at(**arguments)
