"""Which faces have a part in which pixels: a few of all, and what is costly need be computed for these alone."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from softly import native
from softly.rendering import codes
from softly.rendering.blend import Depths, negligible
from softly.rendering.silhouette import Choice, regular


class Contenders(NamedTuple):
    """Faces, pixel after pixel and image after image."""

    faces: Tensor
    """(N,)"""
    pixels: Tensor
    """(N,) Theirs, in their image."""
    ends: Tensor
    """(..., P + 1) Where in these the faces of a pixel begin, which is where those of the one before end."""

    def of(self, first: int, count: int) -> tuple[Tensor, Tensor]:
        """(..., M), (..., M) The faces of so many pixels, and which of these each belongs to, counted from 0.

        Where an image has fewer of them than another one the rest belongs to the pixel behind the last.
        """
        begin, end = self.ends[..., first, None], self.ends[..., first + count, None]
        at = begin + torch.arange(int((end - begin).amax()))
        there = at < end
        at = at.clamp(max=len(self.faces) - 1)
        return torch.where(there, self.faces[at], 0), torch.where(there, self.pixels[at] - first, count)

    def each(self) -> int:
        """How many faces of all images a pixel has, in the mean over pixels."""
        return len(self.faces) // (self.ends.shape[-1] - 1) + 1


def contenders(
    polygons: Tensor,
    steepness: Tensor,
    corners: Tensor,
    depths: Tensor,
    visible: Tensor | None,
    height: int,
    width: int,
    within: Depths,
    choice: Choice,
    dtype: torch.dtype,
) -> Contenders | None:
    """The faces of which `blend` sees something in each pixel, by a kernel.

    The arguments are those of `blend`. None where there is no such kernel, where someone else follows what is computed,
    and where most faces have a part in most pixels.
    """
    distribution = codes.of_distribution(choice.distribution)
    tensors = (polygons, corners, depths)
    if distribution is None or not native.available() or torch.compiler.is_compiling():
        return None
    if not native.plain((*tensors, steepness)) or any(
        x.device.type != "cpu" or x.dtype != torch.float64 for x in tensors
    ):
        return None
    if not regular(steepness, *tensors) or not polygons.numel():
        return None
    batch = torch.broadcast_shapes(polygons.shape[:-3], corners.shape[:-3], depths.shape[:-2])
    spread = [x.detach().expand(*batch, *x.shape[-k:]).contiguous() for x, k in zip(tensors, (3, 3, 2), strict=True)]
    seen = None if visible is None else visible.expand(*batch, visible.shape[-1]).contiguous()
    images, (faces, sides) = batch.numel(), polygons.shape[-3:-1]
    cutoff = -1.0 if choice.cutoff is None else choice.cutoff
    numbers = (height, width, steepness.item(), *distribution, choice.squared, cutoff, *within)
    run = native.kernel("contenders", torch.float64)

    def look(*pointers: int) -> None:
        scene = (spread[0].data_ptr(), 0 if seen is None else seen.data_ptr(), images, faces, sides)
        rest = (spread[1].data_ptr(), spread[2].data_ptr(), *numbers, negligible(dtype))
        if not run(*scene, *rest, *pointers, torch.get_num_threads()):
            raise MemoryError(f"softly.Renderer: no memory for {images} × {faces} faces.")

    counts = torch.empty(images, height * width, dtype=torch.long)
    look(counts.data_ptr(), 0, 0)
    ends = torch.cat([counts.new_zeros(1), counts.flatten().cumsum(0)])
    total = int(ends[-1])
    if 2 * total > counts.numel() * faces:
        return None
    found = torch.empty(total, dtype=torch.long)
    look(0, ends.data_ptr(), found.data_ptr())
    pixels = torch.arange(height * width).repeat(images).repeat_interleave(counts.flatten())
    windows = ends.as_strided((images, height * width + 1), (height * width, 1))
    return Contenders(found, pixels, windows.unflatten(0, batch))
