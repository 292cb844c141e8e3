"""Light: ambient, directional, of points, and as spherical harmonics."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from softly import _inputs, native
from softly.rendering.vectors import dot, unit

__all__ = ["Lights"]

Triple = float | Sequence[float] | Tensor


class Lights:
    """What shines on a mesh, by Phong's model: ambient and diffuse light times the colour, and highlights added.

    A surface that looks away from a light gets none of it. Light is linear: twice the intensities are twice the
    colours, and everything is differentiable in all of them.

    Args:
        ambient: Intensity everywhere, a number or three of them for red, green and blue.
        direction: (3,) or (L, 3) Towards where light comes from, of any length.
        diffuse: Intensity of each directional light, a number, three, or (L, 3).
        points: (3,) or (L, 3) Places of lamps, whose light doesn't fade with distance.
        point_diffuse: Their intensity, in the same ways.
        specular: Intensity of the highlights of all these lights.
        shininess: The exponent of highlights, > 0.
        harmonics: (9, 3) Coefficients of the real spherical harmonics up to degree 2 of the light that comes in, as
            irradiance by Ramamoorthi and Hanrahan, divided by π.

    Example:
        >>> lights = softly.rendering.Lights(ambient=0.2, direction=torch.tensor([0.0, 0.0, 2.0]), diffuse=0.8)
        >>> up = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.6, 0.8], [0.0, 0.0, -1.0]])
        >>> lights.shade(torch.zeros(3, 3), up, torch.ones(3, 3), torch.tensor([0.0, 0.0, 5.0]))[:, 0]
        tensor([1.0000, 0.8400, 0.2000])
    """

    def __init__(
        self,
        *,
        ambient: Triple = 1.0,
        direction: Tensor | None = None,
        diffuse: Triple = 0.5,
        points: Tensor | None = None,
        point_diffuse: Triple = 0.5,
        specular: Triple = 0.0,
        shininess: float = 16.0,
        harmonics: Tensor | None = None,
    ) -> None:
        name = "softly.rendering.Lights"
        for tensor, argument in ((direction, "direction"), (points, "points")):
            if tensor is not None:
                _inputs.floating(tensor, name, argument)
                if tensor.ndim not in (1, 2) or tensor.shape[-1] != 3:
                    raise ValueError(f"{name}: {argument} must have shape (3,) or (L, 3), got {tuple(tensor.shape)}.")
        if harmonics is not None and _inputs.floating(harmonics, name, "harmonics").shape != (9, 3):
            raise ValueError(f"{name}: harmonics must have shape (9, 3), got {tuple(harmonics.shape)}.")
        for value, argument, places in (
            (ambient, "ambient", None),
            (diffuse, "diffuse", direction),
            (point_diffuse, "point_diffuse", points),
            (specular, "specular", None),
        ):
            _check_triple(value, name, argument, None if places is None else places.reshape(-1, 3).shape[0])
        if not isinstance(shininess, Tensor):
            shininess = _inputs.number(shininess, name, "shininess")
        elif _inputs.floating(shininess, name, "shininess").numel() != 1:
            raise ValueError(f"{name}: shininess must be a single number, got {tuple(shininess.shape)}.")
        known = native.data(shininess) if isinstance(shininess, Tensor) else shininess
        if known is not None and not 0 < known < math.inf:
            raise ValueError(f"{name}: shininess must be positive and finite, got {float(known)}.")
        self.ambient, self.direction, self.diffuse = ambient, direction, diffuse
        self.points, self.point_diffuse = points, point_diffuse
        self.specular, self.shininess, self.harmonics = specular, shininess, harmonics

    def shade(self, positions: Tensor, normals: Tensor, colors: Tensor, eye: Tensor) -> Tensor:
        """The colours of surface points as seen from ``eye``; all (..., 3).

        Example:
            >>> lights = softly.rendering.Lights(ambient=[1.0, 0.5, 0.0])
            >>> lights.shade(torch.zeros(3), torch.tensor([0.0, 0.0, 1.0]), torch.full((3,), 0.5), torch.ones(3))
            tensor([0.5000, 0.2500, 0.0000])
        """
        light, shine = self.parts(positions, normals, eye - positions)
        return colors * light + shine

    @property
    def even(self) -> bool:
        """Whether all places get the same light: ambient alone.

        Example:
            >>> softly.rendering.Lights().even
            True
        """
        return self.direction is None and self.points is None and self.harmonics is None

    def parts(self, positions: Tensor, normals: Tensor, towards_eye: Tensor) -> tuple[Tensor, Tensor]:
        """What colours of surface points are multiplied by, and what is added to them; all (..., 3).

        Example:
            >>> lights = softly.rendering.Lights(ambient=0.25)
            >>> lights.parts(torch.zeros(3), torch.tensor([0.0, 0.0, 1.0]), torch.ones(3))
            (tensor([0.2500, 0.2500, 0.2500]), tensor([0., 0., 0.]))
        """
        light = _triple(self.ambient, normals).expand_as(normals)
        shine = torch.zeros_like(light)
        if self.harmonics is not None:
            light = light + _irradiance(normals, self.harmonics.to(normals))
        towards_eye = unit(towards_eye)
        for towards, intensity in self._sources(positions):
            facing = dot(normals, towards)
            light = light + intensity * facing.clamp(min=0.0)
            # Of the direction to the eye along that of the mirrored light, 2 facing normals - towards.
            along = (2.0 * facing * dot(normals, towards_eye) - dot(towards, towards_eye)).clamp(min=0.0)
            lit = (facing > 0) & (along > 0)
            power = torch.where(lit, torch.where(lit, along, 1.0) ** self.shininess, 0.0)
            shine = shine + _triple(self.specular, normals) * power
        return light, shine

    def _sources(self, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Unit vectors towards every light, and its intensity."""
        found = []
        for places, intensity, fixed in (
            (self.direction, self.diffuse, True),
            (self.points, self.point_diffuse, False),
        ):
            if places is None:
                continue
            places = places.to(positions).reshape(-1, 3)
            amounts = _triple(intensity, positions).expand(len(places), 3)
            for place, amount in zip(places, amounts, strict=True):
                way = place.expand_as(positions) if fixed else place - positions
                found.append((unit(way), amount))
        return found


def _check_triple(value: Triple, name: str, argument: str, count: int | None) -> None:
    """Refuse all but a number, three of them, or three for each of so many lights."""
    rule = "a number or three" if count is None else f"a number, three, or of shape ({count}, 3)"
    if isinstance(value, Tensor):
        if value.shape not in ((), (1,), (3,)) and (count is None or value.shape not in ((1, 3), (count, 3))):
            raise ValueError(f"{name}: {argument} must be {rule}, got {tuple(value.shape)}.")
    elif isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != 3:
            raise ValueError(f"{name}: {argument} must be {rule}, got {len(value)}.")
        for part in value:
            _inputs.number(part, name, f"{argument}'s entries")
    else:
        _inputs.number(value, name, argument)


def _triple(value: Triple, like: Tensor) -> Tensor:
    return value.to(like) if isinstance(value, Tensor) else torch.as_tensor(value, dtype=like.dtype, device=like.device)


def _irradiance(normals: Tensor, harmonics: Tensor) -> Tensor:
    """The light that a surface gets, of coefficients in the order (0, 0), (1, -1), (1, 0), (1, 1), (2, -2), ..."""
    x, y, z = normals.unbind(-1)
    one = torch.ones_like(x)
    basis = [
        0.282095 * one,
        *(0.488603 * y, 0.488603 * z, 0.488603 * x),
        *(1.092548 * x * y, 1.092548 * y * z, 0.315392 * (3 * z * z - 1), 1.092548 * x * z),
        0.546274 * (x * x - y * y),
    ]
    weights = [1.0, *[2.0 / 3.0] * 3, *[0.25] * 5]  # the cosine's own, π, 2π/3 and π/4, by π
    bands = zip(weights, basis, harmonics, strict=True)
    return torch.stack([w * b.unsqueeze(-1) * light for w, b, light in bands]).sum(0)
