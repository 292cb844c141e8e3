"""Images as files, by Pillow."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softly import _inputs

__all__ = ["save_gif", "save_image"]


def _pillow(name: str) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(f"{name}: images are read and written by Pillow: pip install pillow.") from None
    return Image


def read_image(path: Path, name: str) -> np.ndarray:
    """(3, H, W) The colours of an image, in [0, 1]."""
    pillow = _pillow(name)
    try:
        with pillow.open(path) as image:
            image.load()
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # whatever a reader of a malformed file stumbles over
        raise ValueError(f"{name}: {path.name} is no image that Pillow can read: {error}.") from None
    return pixels(image, path, name)


def pixels(image: Any, path: Path, name: str) -> np.ndarray:
    """(3, H, W) The same of an image that is read."""
    if image.mode in ("I", "F"):
        raise ValueError(
            f"{name}: {path.name} has pixels of {image.mode!r}, of no known range; save it with 8 or 16 bits."
        )
    if image.mode.startswith("I;16"):  # which Pillow would cut off at 8 bits
        return np.stack([np.asarray(image, dtype=np.float64) / 65535.0] * 3)
    return np.asarray(image.convert("RGB"), dtype=np.float64).transpose(2, 0, 1) / 255.0


def _picture(image: Tensor, name: str) -> Any:
    pillow = _pillow(name)
    _inputs.floating(image, name, "image")
    image = image.detach().cpu()
    while image.ndim > 2 and image.shape[0] == 1:
        image = image[0]
    if image.ndim != 2 and (image.ndim != 3 or image.shape[0] not in (3, 4)):
        raise ValueError(f"{name}: an image must have shape (H, W), (3, H, W) or (4, H, W), got {tuple(image.shape)}.")
    if not image.numel():
        raise ValueError(f"{name}: an image must have pixels, got {tuple(image.shape)}.")
    if bool(image.isnan().any()):
        raise ValueError(f"{name}: an image must have no NaN, which has no colour.")
    values = (255.0 * image.float().clamp(0.0, 1.0)).round().to(torch.uint8)
    return pillow.fromarray((values if values.ndim == 2 else values.movedim(0, -1)).contiguous().numpy())


def _write(picture: Any, path: Path, name: str, **options: Any) -> None:
    try:
        picture.save(path, **options)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"{name}: {path.name} can't be written by Pillow: {error}.") from None


def save_image(image: Tensor, path: str | os.PathLike[str]) -> None:
    """Write a silhouette, or an image in colours, to a file of any format that Pillow knows.

    Args:
        image: (H, W) or (3 or 4, H, W) In [0, 1], and clamped to that; leading dimensions of size 1 are dropped.
        path: Where to, with the suffix of the format.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     softly.rendering.save_image(torch.rand(4, 8, 8), pathlib.Path(folder) / "noise.png")
    """
    name = "softly.rendering.save_image"
    _write(_picture(image, name), Path(path), name)


def save_gif(frames: Iterable[Tensor], path: str | os.PathLike[str], *, seconds: float = 0.1) -> None:
    """Write images as an animation that goes on forever.

    Args:
        frames: Images as of `save_image`; of four channels the last is how much of them covers white.
        path: Where to.
        seconds: How long each is seen, to the hundredth, as such files have it.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     softly.rendering.save_gif(torch.rand(5, 8, 8), pathlib.Path(folder) / "noise.gif")
    """
    name = "softly.rendering.save_gif"
    frames = list(frames)
    if not frames:
        raise ValueError(f"{name}: frames must have at least one, got none.")
    seconds = _inputs.number(seconds, name, "seconds")
    if not 0.005 < seconds < 655.355:
        raise ValueError(f"{name}: seconds must be positive, from 0.01 to 655.35, got {seconds}.")
    pictures = []
    for frame in frames:
        if isinstance(frame, Tensor) and frame.ndim >= 3 and frame.shape[-3] == 4:
            frame = frame[..., :3, :, :] * frame[..., 3:, :, :] + 1.0 - frame[..., 3:, :, :]
        pictures.append(_picture(frame, name))
    first, *rest = pictures
    for picture in rest:
        if picture.size != first.size:
            sizes = " and ".join(f"{width} × {height}" for width, height in (first.size, picture.size))
            raise ValueError(f"{name}: frames must have the same size, got {sizes}.")
    _write(first, Path(path), name, save_all=True, append_images=rest, duration=10 * round(100 * seconds), loop=0)
