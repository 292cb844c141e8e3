"""Colours of pixels, blended over depth: the softmax over how close faces are, weighted by their coverage."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from softly import native
from softly.rendering import codes
from softly.rendering.distance import signed_distance
from softly.rendering.silhouette import Choice, coverage, exact, pixel_centres, regular

_PAIRS = 1 << 19
_BEHIND = 1e-3
"""The closeness of the background, where that of what touches the near plane is 1."""
_LEAST = 1e-37
"""Probabilities up to this are 0 here, so that single precision, which hardly has them, sees what double does."""


class Depths(NamedTuple):
    """What of depths is seen, and the inverse temperature of the softmax over them."""

    near: float
    far: float
    sharpness: float

    def closeness(self, depth: Tensor) -> Tensor:
        """near / depth, in (0, 1]."""
        held = depth.clamp(self.near, self.far)
        return self.near / held if self.near > 0 else 1.0 / (1.0 + held)


def negligible(dtype: torch.dtype) -> float:
    """What part of a pixel faces may have, all together, that kernels don't look at, in images of a dtype."""
    return 1e-17 if dtype == torch.float64 else 1e-7


def weights_at(points: Tensor, corners: Tensor) -> Tensor:
    """(..., P, F, 3) Weights of the corners of faces (..., F, 3, 3), homogeneous, where pixels (..., P, 2) see them.

    Beside a face they are those of a point on its border. All are alike for a face that is seen from its side: where
    volumes that the ray of a pixel spans with every two corners sum up to nothing but rounding.
    """
    x, y, z = corners.unsqueeze(-4).unbind(-1)  # (..., 1, F, 3)
    px, py = points[..., None, None, :].unbind(-1)
    across, up = (x - px * z).unbind(-1), (y - py * z).unbind(-1)
    pairs = [(across[a] * up[b], up[a] * across[b]) for a, b in ((1, 2), (2, 0), (0, 1))]
    volumes = [one - other for one, other in pairs]
    total = volumes[0] + volumes[1] + volumes[2]
    with torch.no_grad():
        size = sum(one.abs() + other.abs() for one, other in pairs)
        info = torch.finfo(corners.dtype)
        flat = total.abs() <= 16 * info.eps * size + info.tiny
    inverse = 1.0 / torch.where(flat, 1.0, total)
    parts = [(volume * inverse).clamp(0.0, 1.0) for volume in volumes]
    scale = 1.0 / torch.where(flat, 1.0, parts[0] + parts[1] + parts[2])
    return torch.stack([torch.where(flat, 1.0 / 3.0, part * scale) for part in parts], -1)


def in_pieces(
    height: int, width: int, background: Tensor, count: int, paint: Callable[[Tensor, Tensor, int], Tensor]
) -> Tensor:
    """(..., 3, H, W) What ``paint`` makes of pixels (P, 2) before a background (..., P, 3), and again backward.

    Args:
        height, width: Of the image.
        background: (..., 3, H, W)
        count: Of the faces that a pixel looks at, in all images, which says how many pixels fit.
        paint: Gives colours (..., P, 3); its last argument is the number of the first of the pixels.
    """
    step = max(_PAIRS // max(count, 1), 1)
    points = pixel_centres(height, width, background).split(step)
    again = len(points) > 1 and torch.is_grad_enabled() and not torch.compiler.is_compiling()
    again = again and not native.transformed(background)
    behind = background.flatten(-2).mT.split(step, -2)
    pieces = zip(points, behind, range(0, height * width, step), strict=True)
    parts = [checkpoint(paint, *piece, use_reentrant=False) if again else paint(*piece) for piece in pieces]
    return torch.cat(parts, -2).mT.unflatten(-1, (height, width))


def exponents(
    points: Tensor,
    polygons: Tensor,
    steepness: Tensor,
    corners: Tensor,
    depths: Tensor,
    within: Depths,
    choice: Choice,
) -> tuple[Tensor, Tensor]:
    """(..., P, F), (..., P, F, 3) Of the part of each face in a pixel, where the background's is 0; and weights."""
    p = coverage(signed_distance(points, polygons), steepness, choice)
    there = p > _LEAST
    weights = weights_at(points, corners)
    depth = (weights * depths.unsqueeze(-3)).sum(-1)
    value = torch.where(there, p, 1.0).log() + within.sharpness * (within.closeness(depth) - _BEHIND)
    return torch.where(there, value, -torch.inf), weights


def shares(
    points: Tensor,
    polygons: Tensor,
    steepness: Tensor,
    corners: Tensor,
    depths: Tensor,
    visible: Tensor | None,
    within: Depths,
    choice: Choice,
) -> tuple[Tensor, Tensor]:
    """(..., P, F + 1), (..., P, F, 3) The part of each face, and last of the background, in a pixel; and weights."""
    value, weights = exponents(points, polygons, steepness, corners, depths, within, choice)
    if visible is not None:
        value = torch.where(visible.unsqueeze(-2), value, -torch.inf)
    return torch.softmax(torch.cat([value, torch.zeros_like(value[..., :1])], -1), -1), weights


def reference(
    polygons: Tensor,
    steepness: Tensor,
    corners: Tensor,
    depths: Tensor,
    colors: Tensor,
    background: Tensor,
    visible: Tensor | None,
    height: int,
    width: int,
    within: Depths,
    choice: Choice,
) -> Tensor:
    """The image of colours (..., F, 3, 3) at the corners of faces, which are interpolated between them."""

    def paint(points: Tensor, base: Tensor, _: int) -> Tensor:
        share, weights = shares(points, polygons, steepness, corners, depths, visible, within, choice)
        seen = torch.einsum("...pf,...pfk,...fkc->...pc", share[..., :-1], weights, colors)
        return seen + share[..., -1:] * base

    return in_pieces(height, width, background, depths.numel() // 3, paint)


def blend(
    polygons: Tensor,
    steepness: Tensor,
    corners: Tensor,
    depths: Tensor,
    colors: Tensor,
    background: Tensor,
    visible: Tensor | None,
    height: int,
    width: int,
    within: Depths,
    choice: Choice,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The same, by a kernel where it knows the choice.

    In single precision weights of faces that are all but parallel to a ray are off by more than gradients may be, so
    that all is computed in double where a kernel can.

    Args:
        polygons: (..., F, K, 2) What is seen of the faces, in the image.
        steepness: () Inverse temperature of the coverage.
        corners: (..., F, 3, 3) Of the faces, homogeneous.
        depths: (..., F, 3) Of their corners.
        colors: (..., F, 3, 3) At their corners.
        background: (..., 3, H, W)
        visible: (..., F) Which faces have a colour; None for all.
        height, width: Of the image.
        within: Planes and sharpness.
        choice: How faces cover pixels.
        dtype: Of the image; that of the polygons by default.

    Returns:
        (..., 3, H, W)
    """
    dtype = polygons.dtype if dtype is None else dtype
    polygons, corners, depths, colors, background = map(exact, (polygons, corners, depths, colors, background))
    behind = background.expand(*background.shape[:-2], height, width)
    whole = (polygons, corners, colors, behind)
    batch = torch.broadcast_shapes(depths.shape[:-2], *(x.shape[:-3] for x in whole))
    polygons, corners, colors, behind = (x.expand(*batch, *x.shape[-3:]) for x in whole)
    depths = depths.expand(*batch, *depths.shape[-2:])
    visible = None if visible is None else visible.expand(depths.shape[:-1])
    tensors = (polygons, steepness, corners, depths, colors, behind, visible)
    distribution = codes.of_distribution(choice.distribution)
    if distribution is None:
        return reference(*tensors, height, width, within, choice).to(dtype)
    cutoff = -1.0 if choice.cutoff is None else choice.cutoff
    numbers = (*distribution, choice.squared, cutoff, *within, negligible(dtype))
    return _blend(*tensors, height, width, *numbers).to(dtype)


# The kernel ------------------------------------------------------------------------------------------------------


def _of_numbers(
    polygons: Tensor,
    steepness: Tensor,
    corners: Tensor,
    depths: Tensor,
    colors: Tensor,
    background: Tensor,
    visible: Tensor | None,
    height: int,
    width: int,
    distribution: int,
    turned: bool,
    shift: float,
    squared: bool,
    cutoff: float,
    near: float,
    far: float,
    sharpness: float,
    dropped: float,
) -> Tensor:
    choice = Choice(codes.distribution_of(distribution, turned, shift), squared, None, None if cutoff < 0 else cutoff)
    within = Depths(near, far, sharpness)
    tensors = (polygons, steepness, corners, depths, colors, background, visible)
    return reference(*tensors, height, width, within, choice)


def _shape(
    polygons: Tensor,
    steepness: Tensor,
    corners: Tensor,
    depths: Tensor,
    colors: Tensor,
    background: Tensor,
    visible: Tensor | None,
    height: int,
    width: int,
    *rest: Any,
) -> tuple[Tensor, Tensor]:
    batch = polygons.shape[:-3]
    return polygons.new_empty(*batch, 3, height, width), polygons.new_empty(5, *batch, height, width)


def _call(name: str, polygons: Tensor, visible: Tensor | None, others: tuple[Tensor, ...], *arguments: Any) -> None:
    faces, sides = polygons.shape[-3:-1]
    batch = polygons.shape[:-3].numel()
    pointers = (polygons.data_ptr(), 0 if visible is None else visible.data_ptr())
    run = native.kernel(name, polygons.dtype)
    rest = (x.data_ptr() for x in others)
    if not run(*pointers, batch, faces, sides, *rest, *arguments, torch.get_num_threads()):
        raise MemoryError(f"softly.Renderer: no memory for {batch} × {faces} faces.")


def _forward(
    polygons: Tensor,
    steepness: Tensor,
    corners: Tensor,
    depths: Tensor,
    colors: Tensor,
    background: Tensor,
    visible: Tensor | None,
    height: int,
    width: int,
    distribution: int,
    turned: bool,
    shift: float,
    squared: bool,
    cutoff: float,
    near: float,
    far: float,
    sharpness: float,
    dropped: float,
) -> tuple[Tensor, Tensor]:
    options = (distribution, turned, shift, squared, cutoff, near, far, sharpness, dropped)
    image, kept = _shape(polygons, steepness, corners, depths, colors, background, visible, height, width)
    pointers = (image.data_ptr(), kept.data_ptr())
    others = (corners, depths, colors, background)
    _call("blend", polygons, visible, others, height, width, steepness.item(), *options, *pointers)
    return image, kept


def _backward(
    grad: Tensor,
    polygons: Tensor,
    steepness: Tensor,
    corners: Tensor,
    depths: Tensor,
    colors: Tensor,
    background: Tensor,
    kept: Tensor,
    visible: Tensor | None,
    height: int,
    width: int,
    distribution: int,
    turned: bool,
    shift: float,
    squared: bool,
    cutoff: float,
    near: float,
    far: float,
    sharpness: float,
    dropped: float,
    wanted: list[bool],
) -> list[Tensor]:
    options = (distribution, turned, shift, squared, cutoff, near, far, sharpness, dropped)
    change = polygons.new_empty(())
    found = [torch.empty_like(x) for x in (polygons, corners, depths, colors, background)]
    pointers = (
        *(grad.data_ptr(), kept.data_ptr(), found[0].data_ptr(), change.data_ptr() if wanted[1] else 0),
        *(x.data_ptr() for x in found[1:]),
    )
    others = (corners, depths, colors)
    _call("blend_backward", polygons, visible, others, height, width, steepness.item(), *options, *pointers)
    every = [found[0], change.to(steepness.dtype).reshape(steepness.shape), *found[1:]]
    return [x if needed else x.new_empty(0) for x, needed in zip(every, wanted, strict=True)]


def _check(
    polygons: Tensor,
    steepness: Tensor,
    corners: Tensor,
    depths: Tensor,
    colors: Tensor,
    background: Tensor,
    visible: Tensor | None,
    height: int,
    width: int,
    distribution: int,
    turned: bool,
    shift: float,
    squared: bool,
    cutoff: float,
    near: float,
    far: float,
    sharpness: float,
    dropped: float,
) -> None:
    if polygons.ndim < 3 or polygons.shape[-2] not in (3, 6) or polygons.shape[-1] != 2:
        raise ValueError(f"softly.Renderer: polygons must have shape (..., F, 3 or 6, 2), got {tuple(polygons.shape)}.")
    if min(height, width) < 1:
        raise ValueError(f"softly.Renderer: the image's size must be positive, got {(height, width)}.")
    if steepness.numel() != 1:
        raise ValueError(f"softly.Renderer: steepness must be a single number, got {tuple(steepness.shape)}.")
    shape, batch = tuple(polygons.shape[:-2]), tuple(polygons.shape[:-3])
    for name, tensor, expected in (("corners", corners, (*shape, 3, 3)), ("depths", depths, (*shape, 3)),
                                   ("colors", colors, (*shape, 3, 3)),
                                   ("background", background, (*batch, 3, height, width))):  # fmt: skip
        if tuple(tensor.shape) != expected or tensor.dtype != polygons.dtype:
            raise ValueError(
                f"softly.Renderer: {name} must have shape {expected} and be {polygons.dtype}, got "
                f"{tuple(tensor.shape)} of {tensor.dtype}."
            )
    if visible is not None and (visible.dtype != torch.bool or tuple(visible.shape) != shape):
        raise ValueError(f"softly.Renderer: visible must be boolean of shape {shape}.")
    if not 0 <= near < far:
        raise ValueError(f"softly.Renderer: near and far must be in order, got {near} and {far}.")
    if not 0 < sharpness < math.inf:
        raise ValueError(f"softly.Renderer: the sharpness must be positive and finite, got {sharpness}.")
    if not 0 < dropped < 1:
        raise ValueError(f"softly.Renderer: what is dropped must be between 0 and 1, got {dropped}.")
    codes.distribution_of(distribution, turned, shift)


def _regular(
    polygons: Tensor, steepness: Tensor, corners: Tensor, depths: Tensor, colors: Tensor, background: Tensor, *_: Any
) -> bool:
    return regular(steepness, polygons, corners, depths, colors, background)


_blend = native.Operator(
    "blend",
    forward=_forward,
    shape=_shape,
    backward=_backward,
    reference=_of_numbers,
    check=_check,
    regular=_regular,
    tensors=6,
    dtypes=(torch.float64,),
)
