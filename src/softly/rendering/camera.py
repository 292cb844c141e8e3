"""Cameras: where from, how wide, and what of it is in front."""

from __future__ import annotations

import math
from numbers import Real

import torch
from torch import Tensor

from softly import _inputs, native
from softly.rendering.vectors import unit

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
        near, far = (_inputs.number(x, name, argument) for x, argument in ((near, "near"), (far, "far")))
        if not (0 if orthographic else 1e-12) <= near < far:
            rule = "0 <= near < far" if orthographic else "0 < near < far"
            raise ValueError(f"{name}: near and far must be {rule}, got {near} and {far}.")
        self.rotation = _inputs.shaped(rotation, (3, 3), name, "rotation")
        self.translation = _inputs.shaped(translation, (3,), name, "translation")
        self.focal = _inputs.shaped(focal, (2,), name, "focal")
        self.centre = None if centre is None else _inputs.shaped(centre, (2,), name, "centre")
        self._batch = _inputs.together(
            name,
            rotation=rotation.shape[:-2],
            translation=translation.shape[:-1],
            focal=focal.shape[:-1],
            centre=torch.Size() if centre is None else centre.shape[:-1],
        )
        self.orthographic, self.near, self.far = _inputs.truth(orthographic, name, "orthographic"), near, far

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
            far_away, e, a = _numbers(name, distance=distance, elevation=elevation, azimuth=azimuth)
            _check_range(far_away, 0.0, math.inf, name, "distance", closed=True)
            rotation = _orbit(torch.deg2rad(e), torch.deg2rad(a))
            offset = far_away.unsqueeze(-1) * rotation[..., 2, :]
            place = (
                offset if target is None else _inputs.shaped(target, (3,), name, "target").to(offset.device) + offset
            )
        else:
            if any(isinstance(angle, Tensor) or angle != 0 for angle in (elevation, azimuth)):
                raise ValueError(f"{name}: elevation and azimuth belong to distance, got them with eye.")
            place = _inputs.shaped(eye, (3,), name, "eye")
            back = place if target is None else place - _inputs.shaped(target, (3,), name, "target").to(place.device)
            rotation = _frame(back, up, name)
        translation = -(rotation * place.unsqueeze(-2)).sum(-1)  # no matrix product, which autocast would round
        if orthographic is None:
            focal = _of_angle(60.0 if fov is None else fov, name)
        else:
            if fov is not None:
                raise ValueError(f"{name}: give fov or orthographic, got both.")
            (half,) = _numbers(name, orthographic=orthographic)
            _check_range(half, 0.0, math.inf, name, "orthographic")
            focal = 1.0 / half
        focal = torch.stack([focal, focal], -1).to(rotation.device)
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
        for tensor, argument, shape in ((K, "K", (3, 3)), (R, "R", (3, 3)), (t, "t", (3,))):
            _inputs.shaped(tensor, shape, name, argument)
        _check_entries(K, {(0, 1): 0.0, (1, 0): 0.0, (2, 0): 0.0, (2, 1): 0.0, (2, 2): 1.0}, name, "K")
        flip = torch.tensor([1.0, -1.0, -1.0], device=K.device)
        unit = 2.0 / min(height, width)
        focal = torch.stack([K[..., 0, 0], K[..., 1, 1]], -1) * unit
        middle = K.new_tensor([width / 2 - 0.5, height / 2 - 0.5])
        centre = (K[..., :2, 2] - middle) * K.new_tensor([unit, -unit])
        return Camera(flip.to(R).unsqueeze(-1) * R, flip.to(t) * t, focal, centre, near=near, far=far)

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
            _inputs.shaped(matrix, (4, 4), name, argument)
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
        if a == (0.0 if orthographic else 1.0):
            raise ValueError(f"{name}: projection has no near plane, with {a:g} in row 2, column 2.")
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
        _inputs.shaped(R, (3, 3), name, "R")
        _inputs.shaped(T, (3,), name, "T")
        flip = torch.tensor([-1.0, 1.0, -1.0], device=R.device)
        focal = _of_angle(fov, name)
        focal = torch.stack([focal, focal], -1).to(R.device)
        return Camera(flip.to(R).unsqueeze(-1) * R.transpose(-1, -2), flip.to(T) * T, focal, near=near, far=far)

    def view(self, points: Tensor) -> Tensor:
        """(..., V, 3) Points of the world in front of the camera: x to the right, y up, and the depth.

        Example:
            >>> softly.rendering.Camera.look_at(distance=2.0).view(torch.zeros(1, 3))
            tensor([[[0., 0., 2.]]])
        """
        name = "softly.rendering.Camera"
        _inputs.shaped(points, (3,), name, "points")
        points = points if points.ndim > 2 else points.reshape(1, -1, 3)
        _inputs.together(name, cameras=self._batch, points=points.shape[:-2])
        return _inputs.at_least_single(self._view, points)

    def _view(self, points: Tensor) -> Tensor:
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

        def projected(points: Tensor) -> Tensor:
            seen = self.view(points)
            return torch.cat([self.to_image(seen), seen[..., 2:]], -1)

        _inputs.floating(vertices, "softly.rendering.Camera.project", "vertices")
        return _inputs.at_least_single(projected, vertices)


def image_size(size: int | tuple[int, int], name: str) -> tuple[int, int]:
    """Height and width."""
    pair = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if len(pair) != 2:
        raise ValueError(f"{name}: the image's size must be a number or (height, width), got {size!r}.")
    height, width = (_inputs.integer(side, name, "the image's size") for side in pair)
    if min(height, width) < 1:
        raise ValueError(f"{name}: the image's size must be positive, got {size!r}.")
    return height, width


def _numbers(name: str, **values: Number) -> tuple[Tensor, ...]:
    """Tensors of one batch and dtype, that of the widest which are tensors, on their device; at least float32."""
    given = [value for value in values.values() if isinstance(value, Tensor)]
    for argument, value in values.items():
        if isinstance(value, Tensor) and (value.dtype == torch.bool or value.dtype.is_complex):
            raise TypeError(f"{name}: {argument} must be real, got a tensor of {value.dtype}.")
        if not isinstance(value, (Tensor, Real)) or isinstance(value, bool):
            raise TypeError(f"{name}: {argument} must be a number or a tensor, got {type(value).__name__}.")
    single = given and all(t.dtype.is_floating_point and t.dtype != torch.float64 for t in given)
    dtype = torch.float32 if single else torch.float64
    device = given[0].device if given else None
    found = {
        argument: value.to(device, dtype)
        if isinstance(value, Tensor)
        else torch.tensor(float(value), dtype=dtype, device=device)
        for argument, value in values.items()
    }
    _inputs.together(name, **{argument: value.shape for argument, value in found.items()})
    return torch.broadcast_tensors(*found.values())


def _check_range(value: Tensor, low: float, high: float, name: str, argument: str, *, closed: bool = False) -> None:
    known = native.data(value)
    if known is None:
        return
    inside = ((known >= low) if closed else (known > low)) & (known < high)
    if not bool(inside.all()):
        interval = f"{'[' if closed else '('}{low:g}, {high:g})"
        raise ValueError(f"{name}: {argument} must be in {interval}, got {known.flatten().tolist()}.")


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
    (angle,) = _numbers(name, fov=fov)
    _check_range(angle, 0.0, 180.0, name, "fov")
    return 1.0 / torch.tan(torch.deg2rad(angle) / 2)


def _orbit(e: Tensor, a: Tensor) -> Tensor:
    """The rows right, up and back at an elevation and an azimuth: of a camera above a pole too."""
    zero = torch.zeros_like(a)
    right = torch.stack([a.cos(), zero, -a.sin()], -1)
    up = torch.stack([-e.sin() * a.sin(), e.cos(), -e.sin() * a.cos()], -1)
    back = torch.stack([e.cos() * a.sin(), e.sin(), e.cos() * a.cos()], -1)
    return torch.stack([right, up, back], -2)


def _frame(back: Tensor, up: Tensor | None, name: str) -> Tensor:
    upwards = back.new_tensor([0.0, 1.0, 0.0]) if up is None else _inputs.shaped(up, (3,), name, "up").to(back)
    _inputs.together(name, eye=back.shape[:-1], up=upwards.shape[:-1])
    upwards, back = torch.broadcast_tensors(unit(upwards), unit(back))
    right = unit(torch.linalg.cross(upwards, back))
    known = native.data(right)
    if known is not None and bool((known == 0).all(-1).any()):
        raise ValueError(f"{name}: eye must differ from target, and not lie above it along up; choose another up.")
    return torch.stack([right, torch.linalg.cross(back, right), back], -2)
