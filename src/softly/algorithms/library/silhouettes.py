"""The two silhouette renderers of chapter 2."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from softly import _inputs, distributions
from softly.algorithms.python.function import RelaxedFunction, relax
from softly.distributions import Distribution

__all__ = ["silhouette_distance", "silhouette_three_edges"]


@relax
def _inside_edges(sides: Any) -> Any:
    pixel = 0.0
    for i in range(len(sides)):
        if sides[i, 0] > 0:  # noqa: SIM102 - nested, as in the chapter
            if sides[i, 1] > 0:  # noqa: SIM102
                if sides[i, 2] > 0:
                    pixel = 1.0
    return pixel


@relax
def _inside_distance(distances: Any) -> Any:
    pixel = 0.0
    for distance in distances:
        if distance > 0:
            pixel = 1.0
    return pixel


class _Edges:
    """The edges of triangles (batch, faces, 3, 2) in the frames of their own: numbers of (batch, faces, 3)."""

    def __init__(self, triangles: Tensor) -> None:
        way = triangles.roll(-1, 2) - triangles
        self.length = way.square().sum(-1).sqrt()
        direction = way / self.length.unsqueeze(-1)
        x, y = direction.unbind(-1)
        self._direction, self._normal, self._start = direction, torch.stack([-y, x], -1), triangles

    def _seen_along(self, axis: Tensor, points: Tensor) -> Tensor:
        """(batch, points, faces, 3) How far points (points, 2) lie from the edges' starts, along an axis of each."""
        return torch.einsum("pi,bfki->bpfk", points, axis) - (self._start * axis).sum(-1).unsqueeze(1)

    def sides(self, points: Tensor) -> Tensor:
        """How far to the left of each edge."""
        return self._seen_along(self._normal, points)

    def distances(self, points: Tensor) -> Tensor:
        """(batch, points, faces) From the border, positive inside; clockwise, a triangle has no inside."""
        line, along = self.sides(points), self._seen_along(self._direction, points)
        beyond = along - torch.minimum(along.clamp(min=0.0), self.length.unsqueeze(1))
        distance = ((line.square() + beyond.square()).amin(-1) + 1e-20).sqrt()
        return torch.where(line.amin(-1) > 0, distance, -distance)


def _with(function: RelaxedFunction, distribution: Distribution) -> RelaxedFunction:
    compiling = torch.compiler.is_compiling()
    return function.using(distribution=distribution) if compiling else _recorded(function, distribution)


@lru_cache(maxsize=16)
def _recorded(function: RelaxedFunction, distribution: Distribution) -> RelaxedFunction:
    """Kept from call to call with its recordings, which take much longer than to run them."""
    return function.using(distribution=distribution)


def _render(
    function: RelaxedFunction,
    geometry: Callable[[_Edges, Tensor], Tensor],
    triangles: Tensor,
    image_size: int,
    steepness: float | Tensor,
    distribution: str | Distribution,
    name: str,
) -> Tensor:
    _inputs.floating(triangles, name, "triangles")
    if triangles.ndim != 4 or triangles.shape[2:] != (3, 2):
        raise ValueError(f"{name}: triangles must have shape (batch, faces, 3, 2), got {tuple(triangles.shape)}.")
    if not isinstance(image_size, int) or image_size < 1:
        raise ValueError(f"{name}: image_size must be an int >= 1, got {image_size!r}.")
    centres = (torch.arange(image_size, dtype=triangles.dtype, device=triangles.device) + 0.5) * (2 / image_size) - 1
    # Rows from the top, where y is 1; every pixel of every image is an example.
    y, x = torch.meshgrid(-centres, centres, indexing="ij")
    relaxed = _with(function, distributions.get(distribution)).using(steepness=steepness)
    image: Tensor = relaxed(geometry(_Edges(triangles), torch.stack([x.flatten(), y.flatten()], -1)).flatten(0, 1))
    return image.reshape(len(triangles), image_size, image_size)


def silhouette_three_edges(
    triangles: Tensor,
    *,
    image_size: int = 64,
    steepness: float | Tensor = 100.0,
    distribution: str | Distribution = "logistic",
) -> Tensor:
    """Render a silhouette: a pixel is 1 if for some triangle it lies to the left of all three edges.

    Three nested conditions for each pixel and triangle: the renderer of Pix2Vex. As ``steepness -> inf`` the result is
    the image of the union of the triangles; it stays in [0, 1]. Every triangle is tried at every pixel.

    Args:
        triangles: (batch, faces, 3, 2) Corners, counter-clockwise, x to the right and y up in [-1, 1].
        image_size: The length of the sides of the image.
        steepness: Inverse temperature, > 0.
        distribution: Name or `Distribution`.

    Returns:
        (batch, image_size, image_size); the first row is at the top.

    Example:
        >>> triangle = torch.tensor([[[[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]]]])
        >>> softly.algorithms.library.silhouette_three_edges(triangle, image_size=2).round(decimals=2)
        tensor([[[0.5000, 0.0000],
                 [1.0000, 0.5000]]])
    """
    name = "softly.algorithms.library.silhouette_three_edges"
    return _render(_inside_edges, _Edges.sides, triangles, image_size, steepness, distribution, name)


def silhouette_distance(
    triangles: Tensor,
    *,
    image_size: int = 64,
    steepness: float | Tensor = 100.0,
    distribution: str | Distribution = "logistic",
) -> Tensor:
    """Render a silhouette: a pixel is 1 if its directed distance from the border of some triangle is positive.

    One condition for each pixel and triangle, on the Euclidean distance; `softly.Renderer` sees the same, by a kernel.
    As ``steepness -> inf`` the result is the image of the union of the triangles; it stays in [0, 1]. Every triangle
    is tried at every pixel.

    Args:
        triangles: (batch, faces, 3, 2) Corners, counter-clockwise, x to the right and y up in [-1, 1].
        image_size: The length of the sides of the image.
        steepness: Inverse temperature, > 0.
        distribution: Name or `Distribution`.

    Returns:
        (batch, image_size, image_size); the first row is at the top.

    Example:
        >>> triangle = torch.tensor([[[[-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]]]])
        >>> softly.algorithms.library.silhouette_distance(triangle, image_size=2).round(decimals=2)
        tensor([[[0.5000, 0.0000],
                 [1.0000, 0.5000]]])
    """
    name = "softly.algorithms.library.silhouette_distance"
    return _render(_inside_distance, _Edges.distances, triangles, image_size, steepness, distribution, name)
