"""The two silhouette renderers of chapter 2."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from softly import _inputs
from softly.algorithms.python.function import RelaxedFunction, relax
from softly.distributions import Distribution

__all__ = ["silhouette_distance", "silhouette_three_edges"]


def _side(ax: Any, ay: Any, bx: Any, by: Any, x: Any, y: Any) -> Any:
    """How far a point lies to the left of the line from a to b."""
    length = torch.sqrt((bx - ax) ** 2 + (by - ay) ** 2)
    return ((bx - ax) * (y - ay) - (by - ay) * (x - ax)) / length


def _to_segment(ax: Any, ay: Any, bx: Any, by: Any, x: Any, y: Any) -> Any:
    """The distance of a point from the segment from a to b."""
    along = (x - ax) * (bx - ax) + (y - ay) * (by - ay)
    t = torch.clamp(along / ((bx - ax) ** 2 + (by - ay) ** 2), 0.0, 1.0)
    return torch.sqrt((x - ax - t * (bx - ax)) ** 2 + (y - ay - t * (by - ay)) ** 2 + 1e-20)


@relax
def _inside_edges(x: Any, y: Any, corners: Any) -> Any:
    pixel = 0.0
    for ax, ay, bx, by, cx, cy in corners:
        if _side(ax, ay, bx, by, x, y) > 0:  # noqa: SIM102 - nested, as in the chapter
            if _side(bx, by, cx, cy, x, y) > 0:  # noqa: SIM102
                if _side(cx, cy, ax, ay, x, y) > 0:
                    pixel = 1.0
    return pixel


def _directed_distance(ax: Any, ay: Any, bx: Any, by: Any, cx: Any, cy: Any, x: Any, y: Any) -> Any:
    """The distance of a point from the border of a triangle, positive inside."""
    segments = [(ax, ay, bx, by), (bx, by, cx, cy), (cx, cy, ax, ay)]
    distance = torch.stack([_to_segment(*s, x, y) for s in segments]).amin(0)
    return distance * torch.sign(torch.stack([_side(*s, x, y) for s in segments]).amin(0))


@relax
def _inside_distance(x: Any, y: Any, corners: Any) -> Any:
    pixel = 0.0
    for ax, ay, bx, by, cx, cy in corners:
        if _directed_distance(ax, ay, bx, by, cx, cy, x, y) > 0:
            pixel = 1.0
    return pixel


def _render(
    function: RelaxedFunction,
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
    batch, pixels = len(triangles), image_size**2
    # A face that is seen from behind has its corners clockwise: it has no inside.
    columns = triangles.flatten(2).unbind(1)
    spread = [[c.repeat_interleave(pixels) for c in face.unbind(1)] for face in columns]
    relaxed = function.using(steepness=steepness, distribution=distribution)
    image = relaxed(x.flatten().repeat(batch), y.flatten().repeat(batch), spread)
    return image.reshape(batch, image_size, image_size)


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
    return _render(_inside_edges, triangles, image_size, steepness, distribution, name)


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
    return _render(_inside_distance, triangles, image_size, steepness, distribution, name)
