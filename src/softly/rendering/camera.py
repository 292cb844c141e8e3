"""Cameras: where from, how wide, and what of it is in front."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from softly import _inputs, native

__all__ = ["Camera"]

Number = float | Tensor
_ROUNDING = 1e-6  # what the entries of matrices may be off, of which cameras take no notice


class Camera:
    """Sees points of the world: right-handed, y up, the camera looks along its own -z.

    A point at (x, y, z) in the camera's frame has depth ``-z`` and is seen at ``focal · (x, y) / depth + centre``,
    or at ``focal · (x, y) + centre`` without perspective. The shorter side of an image spans [-1, 1], x to the right
    and y up. `look_at`, `from_opencv`, `from_opengl` and `from_pytorch3d` make cameras of other parameters; everything
    is differentiable in all of them but ``near`` and ``far``.

    Args:
        rotation: (..., 3, 3) From the world to the camera, for columns.
        translation: (..., 3) Added behind the rotation.
        focal: (..., 2) Of x and y.
        centre: (..., 2) Where the axis is seen; the middle of the image by default.
        orthographic: Whether there is no perspective.
        near, far: What is closer or farther than these depths is cut off, ``0 <= near < far``; with perspective,
            near > 0.

    Example:
        >>> camera = softly.rendering.Camera(torch.eye(3), torch.tensor([0.0, 0.0, -2.0]), torch.ones(2))
        >>> camera.project(torch.tensor([[1.0, 0.5, 0.0]]))
        tensor([[[0.5000, 0.2500, 2.0000]]])
    """

    def __init__(
        self,
        rotation: Tensor,
        translation: Tensor,
        focal: Tensor,
        centre: Tensor | None = None,
        *,
        orthographic: bool = False,
        near: float = 0.1,
        far: float = math.inf,
    ) -> None:
        name = "softly.rendering.Camera"
        for tensor, argument, shape in (
            (rotation, "rotation", (3, 3)),
            (translation, "translation", (3,)),
            (focal, "focal", (2,)),
            (centre, "centre", (2,)),
        ):
            if tensor is None and argument == "centre":
                continue
            _inputs.floating(tensor, name, argument)  # type: ignore[arg-type]
            if tensor.shape[-len(shape) :] != shape:  # type: ignore[union-attr]
                expected = ", ".join(str(size) for size in shape)
                found = tuple(tensor.shape)  # type: ignore[union-attr]
                raise ValueError(f"{name}: {argument} must have shape (..., {expected}), got {found}.")
        if not (0 if orthographic else 1e-12) <= near < far:
            raise ValueError(f"{name}: near and far must be 0 < near < far, got {near} and {far}.")
        self.rotation, self.translation, self.focal, self.centre = rotation, translation, focal, centre
        self.orthographic, self.near, self.far = orthographic, float(near), float(far)

    @staticmethod
    def look_at(
        *,
        distance: Number | None = None,
        elevation: Number = 0.0,
        azimuth: Number = 0.0,
        eye: Tensor | None = None,
        target: Tensor | None = None,
        up: Tensor | None = None,
        fov: Number | None = None,
        orthographic: Number | None = None,
        near: float = 0.1,
        far: float = math.inf,
    ) -> Camera:
        """A camera that looks at ``target``, from a distance and two angles or from a point.

        At azimuth and elevation 0 it looks from +z; azimuth grows towards +x, elevation towards +y.

        Args:
            distance: (...) From the target.
            elevation, azimuth: (...) In degrees.
            eye: (..., 3) The camera's place, instead of the three.
            target: (..., 3) The origin by default.
            up: (..., 3) What is up in the image, with ``eye``; +y by default.
            fov: (...) The full angle in degrees that the shorter side of an image sees, in (0, 180); 60 by default.
            orthographic: (...) Half of what the shorter side sees, in units of the world, for no perspective.
            near, far: As in `Camera`.

        Example:
            >>> camera = softly.rendering.Camera.look_at(distance=2.0, azimuth=90.0, fov=90.0)
            >>> camera.project(torch.tensor([[0.0, 1.0, 0.0]]))
            tensor([[[0.0000, 0.5000, 2.0000]]])
        """
        name = "softly.rendering.Camera.look_at"
        if (distance is None) == (eye is None):
            raise ValueError(f"{name}: give distance or eye, got {'neither' if eye is None else 'both'}.")
        if eye is None:
            if up is not None:
                raise ValueError(f"{name}: up belongs to eye, got it with distance.")
            assert distance is not None
            far_away, e, a = torch.broadcast_tensors(*_numbers(distance, elevation, azimuth))
            rotation = _orbit(torch.deg2rad(e), torch.deg2rad(a))
            offset = far_away.unsqueeze(-1) * rotation[..., 2, :]
            place = offset if target is None else target.to(offset) + offset
        else:
            if any(isinstance(angle, Tensor) or angle != 0 for angle in (elevation, azimuth)):
                raise ValueError(f"{name}: elevation and azimuth belong to distance, got them with eye.")
            place = _inputs.floating(eye, name, "eye")
            towards = torch.zeros_like(place) if target is None else target.to(place)
            rotation = _frame(place - towards, up, name)
        translation = -(rotation * place.unsqueeze(-2)).sum(-1)  # no matrix product, which autocast would round
        if orthographic is None:
            focal = _of_angle(60.0 if fov is None else fov, name)
        else:
            if fov is not None:
                raise ValueError(f"{name}: give fov or orthographic, got both.")
            _check_range(orthographic, 0.0, math.inf, name, "orthographic")
            focal = 1.0 / _numbers(orthographic)[0]
        focal = torch.stack([focal, focal], -1).to(rotation)
        return Camera(rotation, translation, focal, orthographic=orthographic is not None, near=near, far=far)

    @staticmethod
    def from_opencv(
        K: Tensor, R: Tensor, t: Tensor, size: int | tuple[int, int], *, near: float = 0.1, far: float = math.inf
    ) -> Camera:
        """A camera of computer vision: x right, y down, z forward, pixels ``K (R x + t)`` with integers at centres.

        Args:
            K: (..., 3, 3) Intrinsics in pixels, the last row (0, 0, 1), without skew.
            R, t: (..., 3, 3), (..., 3) From the world to the camera.
            size: The image's height and width in pixels, or both as one number.
            near, far: As in `Camera`.

        Example:
            >>> K = torch.tensor([[100.0, 0.0, 31.5], [0.0, 100.0, 31.5], [0.0, 0.0, 1.0]])
            >>> camera = softly.rendering.Camera.from_opencv(K, torch.eye(3), torch.zeros(3), 64)
            >>> camera.project(torch.tensor([[0.08, 0.16, 1.0]]))  # 8 of 32 pixels to the right, 16 down
            tensor([[[ 0.2500, -0.5000,  1.0000]]])
        """
        name = "softly.rendering.Camera.from_opencv"
        height, width = image_size(size, name)
        _inputs.floating(K, name, "K")
        if K.shape[-2:] != (3, 3):
            raise ValueError(f"{name}: K must have shape (..., 3, 3), got {tuple(K.shape)}.")
        _check_entries(K, {(0, 1): 0.0, (1, 0): 0.0, (2, 0): 0.0, (2, 1): 0.0, (2, 2): 1.0}, name, "K")
        flip = K.new_tensor([1.0, -1.0, -1.0])
        unit = 2.0 / min(height, width)
        focal = torch.stack([K[..., 0, 0], K[..., 1, 1]], -1) * unit
        middle = K.new_tensor([width / 2 - 0.5, height / 2 - 0.5])
        centre = (K[..., :2, 2] - middle) * K.new_tensor([unit, -unit])
        return Camera(flip.unsqueeze(-1) * R.to(K), flip * t.to(K), focal, centre, near=near, far=far)

    @staticmethod
    def from_opengl(view: Tensor, projection: Tensor, size: int | tuple[int, int]) -> Camera:
        """A camera of OpenGL: ``projection @ view`` of columns, clip space [-1, 1] over either side of the image.

        Args:
            view: (..., 4, 4) From the world to the camera, which looks along -z.
            projection: (..., 4, 4) Of a perspective (last row 0, 0, -1, 0) or without (0, 0, 0, 1); near and far are
                taken from it.
            size: The image's height and width, or both as one number; their ratio matters.

        Example:
            >>> projection = torch.diag(torch.tensor([1.0, 1.0, -3.0, 0.0])).index_put_(
            ...     (torch.tensor([2, 3]), torch.tensor([3, 2])), torch.tensor([-4.0, -1.0]))
            >>> camera = softly.rendering.Camera.from_opengl(torch.eye(4), projection, 64)
            >>> camera.near, camera.far, camera.project(torch.tensor([[0.5, 0.0, -2.0]]))
            (1.0, 2.0, tensor([[[0.2500, 0.0000, 2.0000]]]))
        """
        name = "softly.rendering.Camera.from_opengl"
        height, width = image_size(size, name)
        for matrix, argument in ((view, "view"), (projection, "projection")):
            _inputs.floating(matrix, name, argument)
            if matrix.shape[-2:] != (4, 4):
                raise ValueError(f"{name}: {argument} must have shape (..., 4, 4), got {tuple(matrix.shape)}.")
        known = native.data(projection)
        if known is None:
            raise ValueError(f"{name}: projection must be readable, for near and far; make the camera outside.")
        last = known.double().reshape(-1, 4, 4)[:, 3]
        orthographic = bool((last == last.new_tensor([0, 0, 0, 1])).all())
        if not orthographic and not bool((last == last.new_tensor([0, 0, -1, 0])).all()):
            raise ValueError(
                f"{name}: projection must have the last row (0, 0, -1, 0) or (0, 0, 0, 1), got {last[0].tolist()}."
            )
        unused = [(0, 2), (1, 2)] if orthographic else [(0, 3), (1, 3)]
        zeros = dict.fromkeys([(0, 1), (1, 0), (2, 0), (2, 1), *unused], 0.0)
        _check_entries(projection, zeros, name, "projection")
        _check_entries(view, {(3, 0): 0.0, (3, 1): 0.0, (3, 2): 0.0, (3, 3): 1.0}, name, "view")
        rows = known.double().reshape(-1, 4, 4)[:, 2, 2:]
        if not bool((rows == rows[0]).all()):
            raise ValueError(f"{name}: the projections of a batch must have the same near and far planes.")
        a, b = rows[0].tolist()
        near, far = ((b + 1) / a, (b - 1) / a) if orthographic else (b / (a - 1), b / (a + 1) if a != -1 else math.inf)
        scale = projection.new_tensor([width, height]) / min(height, width)
        focal = torch.stack([projection[..., 0, 0], projection[..., 1, 1]], -1) * scale
        centre = projection[..., :2, 3] if orthographic else -projection[..., :2, 2]
        return Camera(
            *(view[..., :3, :3], view[..., :3, 3], focal, centre * scale),
            orthographic=orthographic,
            near=near,
            far=far,
        )

    @staticmethod
    def from_pytorch3d(R: Tensor, T: Tensor, *, fov: Number = 60.0, near: float = 0.1, far: float = math.inf) -> Camera:
        """A ``FoVPerspectiveCameras`` of PyTorch3D: rows ``x R + T``, x to the left, y up, z forward.

        Args:
            R, T: (..., 3, 3), (..., 3) From the world to the camera, for rows.
            fov: (...) In degrees, of the shorter side.
            near, far: As in `Camera`; PyTorch3D's ``znear`` and ``zfar``.

        Example:
            >>> camera = softly.rendering.Camera.from_pytorch3d(torch.eye(3), torch.tensor([0.0, 0.0, 2.0]), fov=90.0)
            >>> camera.project(torch.tensor([[1.0, 1.0, 0.0]]))
            tensor([[[-0.5000,  0.5000,  2.0000]]])
        """
        name = "softly.rendering.Camera.from_pytorch3d"
        _inputs.floating(R, name, "R")
        flip = R.new_tensor([-1.0, 1.0, -1.0])
        focal = _of_angle(fov, name)
        focal = torch.stack([focal, focal], -1).to(R)
        return Camera(flip.unsqueeze(-1) * R.transpose(-1, -2), flip * T.to(R), focal, near=near, far=far)

    def view(self, points: Tensor) -> Tensor:
        """(..., V, 3) Points of the world in front of the camera: x to the right, y up, and the depth.

        Example:
            >>> softly.rendering.Camera.look_at(distance=2.0).view(torch.zeros(1, 3))
            tensor([[[0., 0., 2.]]])
        """
        points = points if points.ndim > 2 else points.unsqueeze(0)
        sign = points.new_tensor([1.0, 1.0, -1.0])
        right, up, back = (self.rotation.to(points) * sign.unsqueeze(-1)).unsqueeze(-3).unbind(-1)
        shift = (self.translation.to(points) * sign).unsqueeze(-2)
        # Sums of products, not a matrix product: no device rounds those to fewer digits.
        x, y, z = points.split(1, -1)
        return x * right + y * up + z * back + shift

    def to_image(self, points: Tensor) -> Tensor:
        """(..., V, 2) Where points (..., V, 3) of `view` with positive depth are seen.

        Example:
            >>> camera = softly.rendering.Camera.look_at(distance=2.0, fov=90.0)
            >>> camera.to_image(torch.tensor([[[1.0, 0.0, 4.0]]]))
            tensor([[[0.2500, 0.0000]]])
        """
        flat = points[..., :2] if self.orthographic else points[..., :2] / points[..., 2:]
        seen = self.focal.to(points).unsqueeze(-2) * flat
        return seen if self.centre is None else seen + self.centre.to(points).unsqueeze(-2)

    def project(self, vertices: Tensor) -> Tensor:
        """(..., V, 3) Where points are seen, x to the right and y up in [-1, 1] of the shorter side, and their depth.

        Points at depth 0 or less have no such place: what is behind the camera, `softly.Renderer` cuts off.

        Example:
            >>> softly.rendering.Camera.look_at(distance=2.0, fov=90.0).project(torch.ones(1, 3))
            tensor([[[1., 1., 1.]]])
        """
        _inputs.floating(vertices, "softly.rendering.Camera.project", "vertices")
        seen = self.view(vertices)
        return torch.cat([self.to_image(seen), seen[..., 2:]], -1)


def image_size(size: int | tuple[int, int], name: str) -> tuple[int, int]:
    """Height and width."""
    pair = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if len(pair) != 2:
        raise ValueError(f"{name}: the image's size must be a number or (height, width), got {size!r}.")
    height, width = (_inputs.integer(side, name, "the image's size") for side in pair)
    if min(height, width) < 1:
        raise ValueError(f"{name}: the image's size must be positive, got {size!r}.")
    return height, width


def _numbers(*values: Number) -> list[Tensor]:
    """Tensors of one dtype, that of those which are tensors, on their device."""
    given = [value for value in values if isinstance(value, Tensor)]
    dtype = max((t.dtype for t in given), key=lambda d: torch.finfo(d).bits) if given else torch.float64
    device = given[0].device if given else None
    return [
        value.to(dtype) if isinstance(value, Tensor) else torch.tensor(float(value), dtype=dtype, device=device)
        for value in values
    ]


def _check_range(value: Number, low: float, high: float, name: str, argument: str) -> None:
    known = native.data(value) if isinstance(value, Tensor) else torch.tensor(float(value))
    if known is not None and not bool(((known > low) & (known < high)).all()):
        raise ValueError(f"{name}: {argument} must be in ({low:g}, {high:g}), got {known.flatten().tolist()}.")


def _check_entries(matrix: Tensor, wanted: dict[tuple[int, int], float], name: str, argument: str) -> None:
    """Refuse what a camera has no place for, where it can be read."""
    known = native.data(matrix)
    if known is None:
        return
    for (row, column), value in wanted.items():
        found = known[..., row, column].flatten()
        off = (found - value).abs() > _ROUNDING
        if bool(off.any()):
            wrong = found[off][0].item()
            raise ValueError(f"{name}: {argument} must have {value:g} in row {row}, column {column}, got {wrong:g}.")


def _of_angle(fov: Number, name: str) -> Tensor:
    """(...) The focal length: what is seen under half of the angle is 1 from the middle of the image."""
    _check_range(fov, 0.0, 180.0, name, "fov")
    return 1.0 / torch.tan(torch.deg2rad(*_numbers(fov)) / 2)


def _orbit(e: Tensor, a: Tensor) -> Tensor:
    """The rows right, up and back at an elevation and an azimuth: of a camera above a pole too."""
    zero = torch.zeros_like(a)
    right = torch.stack([a.cos(), zero, -a.sin()], -1)
    up = torch.stack([-e.sin() * a.sin(), e.cos(), -e.sin() * a.cos()], -1)
    back = torch.stack([e.cos() * a.sin(), e.sin(), e.cos() * a.cos()], -1)
    return torch.stack([right, up, back], -2)


def _frame(back: Tensor, up: Tensor | None, name: str) -> Tensor:
    upwards = back.new_tensor([0.0, 1.0, 0.0]) if up is None else up.to(back)
    right = torch.linalg.cross(upwards.expand_as(back), back)
    known = native.data(right)
    if known is not None and not bool((known.square().sum(-1) > 0).all()):
        raise ValueError(f"{name}: eye must differ from target, and not lie above it along up; choose another up.")
    right, back = (torch.nn.functional.normalize(x, dim=-1) for x in (right, back))
    return torch.stack([right, torch.linalg.cross(back, right), back], -2)
