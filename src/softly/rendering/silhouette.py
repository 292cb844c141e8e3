"""Silhouettes of polygons in the image: the relaxed test of chapter 5, its aggregation, and their kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from softly import native, tnorms
from softly.distributions import Distribution
from softly.rendering.distance import signed_distance

_DROPPED = 1e-6
"""Probabilities up to this are dropped with a cutoff, as the original's release does."""
_PAIRS = {"cpu": 1 << 20, "meta": 1 << 20}
"""How many pairs of corners and pixels the reference looks at in one go."""
_PAIRS_ELSEWHERE = 1 << 25


@dataclass(frozen=True)
class Choice:
    """How a face covers a pixel, and how faces add up."""

    distribution: Distribution
    squared: bool
    tconorm: tnorms.TNorm | None
    """None for the sum."""
    cutoff: float | None


def pixel_centres(height: int, width: int, like: Tensor) -> Tensor:
    """(height · width, 2) The pixels' centres, row by row from the top; the shorter side spans [-1, 1]."""
    unit = 2.0 / min(height, width)
    y = (height / 2 - 0.5 - torch.arange(height, dtype=torch.float64, device=like.device)) * unit
    x = (torch.arange(width, dtype=torch.float64, device=like.device) + 0.5 - width / 2) * unit
    return (
        torch.stack([x.expand(height, width), y.unsqueeze(-1).expand(height, width)], -1).flatten(0, 1).to(like.dtype)
    )


def coverage(distance: Tensor, steepness: Tensor | float, choice: Choice) -> Tensor:
    """The probability that a face covers a pixel at a signed distance."""
    stretched = distance * distance.abs() if choice.squared else distance
    p = choice.distribution.cdf(stretched * steepness)
    if choice.cutoff is not None:
        far = (distance < 0) & (distance.square() * steepness >= choice.cutoff)
        p = torch.where(far | (p <= _DROPPED), 0.0, p)
    return p


def reference(
    polygons: Tensor, steepness: Tensor, seen: Tensor | None, height: int, width: int, choice: Choice
) -> Tensor:
    """The silhouette in pieces of so many pixels as fit; backward they are computed again."""

    def piece(points: Tensor, corners: Tensor, dial: Tensor) -> Tensor:
        p = coverage(signed_distance(points, corners), dial, choice)
        if seen is not None:
            p = torch.where(seen.unsqueeze(-2), p, 0.0)
        return p.sum(-1) if choice.tconorm is None else choice.tconorm.any(p, -1)

    points = pixel_centres(height, width, polygons)
    corners_a_pixel = max(polygons.numel() // 2, 1)
    step = max(_PAIRS.get(polygons.device.type, _PAIRS_ELSEWHERE) // corners_a_pixel, 1)
    if step >= len(points):
        return piece(points, polygons, steepness).unflatten(-1, (height, width))
    again = torch.is_grad_enabled() and not torch.compiler.is_compiling() and not native.transformed(polygons)
    parts = [
        checkpoint(piece, part, polygons, steepness, use_reentrant=False) if again else piece(part, polygons, steepness)
        for part in points.split(step)
    ]
    return torch.cat(parts, -1).unflatten(-1, (height, width))


def silhouette(
    polygons: Tensor, steepness: Tensor, seen: Tensor | None, height: int, width: int, choice: Choice
) -> Tensor:
    """How much each pixel is covered.

    Args:
        polygons: (..., F, K, 2) Corners in the image.
        steepness: () Inverse temperature.
        seen: (..., F) Which polygons there are; None for all.
        height, width: Of the image.
        choice: How.

    Returns:
        (..., height, width)
    """
    return reference(polygons, steepness, seen, height, width, choice)
