"""Silhouettes of polygons in the image: the relaxed test of chapter 5, its aggregation, and their kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from softly import native, tnorms
from softly.distributions import Distribution
from softly.rendering import codes
from softly.rendering.distance import signed_distance

_DROPPED = 1e-6
"""Probabilities up to this are dropped with a cutoff, as the original's release does."""
_PAIRS = {"cpu": 1 << 20, "meta": 1 << 20}
"""How many pairs of corners and pixels the reference looks at in one go."""
_PAIRS_ELSEWHERE = 1 << 25
_ERROR, _ERROR_IN_SINGLE = 1e-16, 1e-5
"""By how much faces may change a pixel, all together, that the kernel doesn't look at."""
_STEEP = 320.0
"""Up to which steepness rounding of distances in single precision is little beside that."""


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


def exact(x: Tensor) -> Tensor:
    """Single precision in double, where that is about as fast: what is rounded there is rounded times the steepness."""
    return x.double() if x.dtype == torch.float32 and x.device.type == "cpu" else x


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
        return p.sum(-1) if choice.tconorm is None else choice.tconorm.any(p)

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
    polygons: Tensor,
    steepness: Tensor,
    seen: Tensor | None,
    height: int,
    width: int,
    choice: Choice,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """How much each pixel is covered.

    Args:
        polygons: (..., F, K, 2) Corners in the image, best before they are rounded to single precision (`exact`).
        steepness: () Inverse temperature.
        seen: (..., F) Which polygons there are, of any batch that broadcasts; None for all.
        height, width: Of the image.
        choice: How.
        dtype: Of the image; that of the polygons by default.

    Returns:
        (..., height, width)
    """
    dtype, polygons = polygons.dtype if dtype is None else dtype, exact(polygons)
    if seen is not None:
        seen = seen.expand(polygons.shape[:-2])
    distribution, tconorm = codes.of_distribution(choice.distribution), codes.of_tconorm(choice.tconorm)
    if distribution is None or tconorm is None:
        return reference(polygons, steepness, seen, height, width, choice).to(dtype)
    cutoff = -1.0 if choice.cutoff is None else choice.cutoff
    error = _ERROR if dtype == polygons.dtype else _ERROR_IN_SINGLE
    numbers = (*distribution, choice.squared, *tconorm, cutoff, error)
    return _silhouette(polygons, steepness, seen, height, width, *numbers).to(dtype)


# The kernel ------------------------------------------------------------------------------------------------------


def _of_numbers(
    polygons: Tensor,
    steepness: Tensor,
    seen: Tensor | None,
    height: int,
    width: int,
    distribution: int,
    turned: bool,
    shift: float,
    squared: bool,
    tconorm: int,
    parameter: float,
    cutoff: float,
    error: float,
) -> Tensor:
    choice = Choice(
        codes.distribution_of(distribution, turned, shift),
        squared,
        codes.tconorm_of(tconorm, parameter),
        None if cutoff < 0 else cutoff,
    )
    if polygons.dtype == torch.float32 and codes.delicate(distribution, tconorm, parameter):
        return reference(polygons.double(), steepness, seen, height, width, choice).float()
    return reference(polygons, steepness, seen, height, width, choice)


def _shape(
    polygons: Tensor, steepness: Tensor, seen: Tensor | None, height: int, width: int, *rest: Any
) -> tuple[Tensor, Tensor]:
    size = (*polygons.shape[:-3], height, width)
    return polygons.new_empty(size), polygons.new_empty(2, *size)


def _precision(
    steepness: Tensor, distribution: int, squared: bool, tconorm: int, parameter: float, error: float
) -> tuple[torch.dtype, float]:
    """In which precision a kernel stays within an error, with gradients to match, and what may then be left out."""
    if error < _ERROR_IN_SINGLE:
        return torch.float64, error
    if codes.delicate(distribution, tconorm, parameter):
        return torch.float64, _ERROR
    slope = math.sqrt(steepness.item()) if squared else steepness.item()
    return (torch.float32, error) if slope <= _STEEP else (torch.float64, 0.1 * error)


def _call(name: str, dtype: torch.dtype, polygons: Tensor, seen: Tensor | None, *arguments: Any) -> None:
    faces, corners = polygons.shape[-3:-1]
    batch = polygons.shape[:-3].numel()
    pointers = (polygons.data_ptr(), 0 if seen is None else seen.data_ptr())
    run = native.kernel(name, dtype)
    if not run(*pointers, batch, faces, corners, *arguments, torch.get_num_threads()):
        raise MemoryError(f"softly.Renderer: no memory for {batch} × {faces} faces.")


def _forward(
    polygons: Tensor,
    steepness: Tensor,
    seen: Tensor | None,
    height: int,
    width: int,
    distribution: int,
    turned: bool,
    shift: float,
    squared: bool,
    tconorm: int,
    parameter: float,
    cutoff: float,
    error: float,
) -> tuple[Tensor, Tensor]:
    dtype, error = _precision(steepness, distribution, squared, tconorm, parameter, error)
    options = (distribution, turned, shift, squared, tconorm, parameter, cutoff, error)
    image, kept = (x.to(dtype) for x in _shape(polygons, steepness, seen, height, width))
    pointers = (image.data_ptr(), kept.data_ptr())
    _call("silhouette", dtype, polygons, seen, height, width, steepness.item(), *options, *pointers)
    return image.to(polygons.dtype), kept.to(polygons.dtype)


def _backward(
    grad: Tensor,
    polygons: Tensor,
    steepness: Tensor,
    kept: Tensor,
    seen: Tensor | None,
    height: int,
    width: int,
    distribution: int,
    turned: bool,
    shift: float,
    squared: bool,
    tconorm: int,
    parameter: float,
    cutoff: float,
    error: float,
    wanted: list[bool],
) -> list[Tensor]:
    dtype, error = _precision(steepness, distribution, squared, tconorm, parameter, error)
    options = (distribution, turned, shift, squared, tconorm, parameter, cutoff, error)
    grad, kept = grad.to(dtype), kept.to(dtype)
    pulled, change = torch.empty_like(polygons, dtype=dtype), grad.new_empty(())
    pointers = (grad.data_ptr(), kept.data_ptr(), pulled.data_ptr(), change.data_ptr() if wanted[1] else 0)
    _call("silhouette_backward", dtype, polygons, seen, height, width, steepness.item(), *options, *pointers)
    return [
        pulled.to(polygons.dtype) if wanted[0] else polygons.new_empty(0),
        change.to(steepness.dtype).reshape(steepness.shape) if wanted[1] else steepness.new_empty(0),
    ]


def _check(
    polygons: Tensor,
    steepness: Tensor,
    seen: Tensor | None,
    height: int,
    width: int,
    distribution: int,
    turned: bool,
    shift: float,
    squared: bool,
    tconorm: int,
    parameter: float,
    cutoff: float,
    error: float,
) -> None:
    if polygons.ndim < 3 or polygons.shape[-2] not in (3, 6) or polygons.shape[-1] != 2:
        raise ValueError(f"softly.Renderer: polygons must have shape (..., F, 3 or 6, 2), got {tuple(polygons.shape)}.")
    if steepness.numel() != 1:
        raise ValueError(f"softly.Renderer: steepness must be a single number, got {tuple(steepness.shape)}.")
    if seen is not None and (seen.dtype != torch.bool or seen.shape != polygons.shape[:-2]):
        raise ValueError(f"softly.Renderer: seen must be boolean of shape {tuple(polygons.shape[:-2])}.")
    if min(height, width) < 1:
        raise ValueError(f"softly.Renderer: the image's size must be positive, got {(height, width)}.")
    if not 0 < error < 1:
        raise ValueError(f"softly.Renderer: the error must be between 0 and 1, got {error}.")
    codes.distribution_of(distribution, turned, shift)
    codes.tconorm_of(tconorm, parameter)


_LARGEST = 1e9
"""Up to which coordinates distances can be squared."""


def regular(steepness: Tensor, *tensors: Tensor) -> bool:
    """Whether kernels may see all this: a steepness and coordinates that are numbers, and not too large."""
    if not 0 < steepness.item() < math.inf:
        return False
    for tensor in tensors:
        if tensor.numel():
            low, high = torch.aminmax(tensor)
            if not (low.item() > -_LARGEST and high.item() < _LARGEST):  # so too where one is NaN
                return False
    return True


def _regular(polygons: Tensor, steepness: Tensor, *_: Any) -> bool:
    return regular(steepness, polygons)


_silhouette = native.Operator(
    "silhouette",
    forward=_forward,
    shape=_shape,
    backward=_backward,
    reference=_of_numbers,
    check=_check,
    regular=_regular,
    tensors=2,
    dtypes=(torch.float64,),
)
