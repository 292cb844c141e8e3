"""Images of numbers of several digits, which are to be sorted by nothing but their order."""

from dataclasses import dataclass
from typing import Protocol

import torch
from sklearn.datasets import load_digits
from torch import Tensor

from softly_lab.data import images


class Numbers(Protocol):
    """Draws lists of images, with what they show."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of an image."""
        ...

    def lists(self, count: int, length: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """(count, length, *shape) Images and (count, length) the numbers on them, drawn at random."""
        ...

    def divided(self, share: float) -> tuple["Numbers", "Numbers"]:
        """The first images, so large a share of all, and the others."""
        ...


@dataclass(frozen=True)
class Composed:
    """Numbers of four digits, put together of images of digits side by side.

    Attributes:
        digits: (n, height, width) Images from 0 to 1.
        labels: (n,) What they show.
    """

    digits: Tensor
    labels: Tensor

    @property
    def shape(self) -> tuple[int, int, int]:
        return 1, self.digits.shape[1], 4 * self.digits.shape[2]

    def lists(self, count: int, length: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(self.labels), (count, length, 4), generator=generator)
        drawn = self.digits[chosen].transpose(2, 3).reshape(count, length, *self.shape)
        return drawn, self.labels[chosen] @ torch.tensor([1000, 100, 10, 1])

    def divided(self, share: float) -> tuple["Composed", "Composed"]:
        k = round(share * len(self.labels))
        return Composed(self.digits[:k], self.labels[:k]), Composed(self.digits[k:], self.labels[k:])


@dataclass(frozen=True)
class Cropped:
    """House numbers, in random windows of 54×54 pixels of their images.

    Attributes:
        pixels: (n, 3, 64, 64) Bytes.
        labels: (n,) The numbers.
    """

    pixels: Tensor
    labels: Tensor
    shape: tuple[int, int, int] = (3, 54, 54)

    def lists(self, count: int, length: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        chosen = torch.randint(len(self.labels), (count, length), generator=generator)
        room = self.pixels.shape[-1] - self.shape[-1] + 1
        corner = torch.randint(room, (count * length, 2), generator=generator).tolist()
        windows = [
            self.pixels[number, :, y : y + self.shape[1], x : x + self.shape[2]]
            for number, (y, x) in zip(chosen.flatten().tolist(), corner, strict=True)
        ]
        return torch.stack(windows).reshape(count, length, *self.shape) / 255, self.labels[chosen]

    def divided(self, share: float) -> tuple["Cropped", "Cropped"]:
        k = round(share * len(self.labels))
        return Cropped(self.pixels[:k], self.labels[:k]), Cropped(self.pixels[k:], self.labels[k:])


def mnist(*, half: bool) -> tuple[Composed, Composed]:
    """MNIST's digits, of 28×28 pixels or of half as many a side, to learn from and to test on."""
    parts = []
    for pixels, labels in images.mnist():
        scaled = pixels.float() / 255
        if half:
            scaled = torch.nn.functional.avg_pool2d(scaled, 2)
        parts.append(Composed(scaled, labels))
    return parts[0], parts[1]


def digits() -> tuple[Composed, Composed]:
    """Scikit-learn's digits of 8×8 pixels; those that are tested on are by other writers."""
    data = load_digits()
    pixels, labels = torch.tensor(data.images / 16, dtype=torch.float32), torch.tensor(data.target)
    return Composed(pixels[:1000], labels[:1000]), Composed(pixels[1000:], labels[1000:])


def svhn() -> tuple[Cropped, Cropped]:
    """SVHN's house numbers."""
    (x, y), (u, v) = images.svhn()
    return Cropped(x.permute(0, 3, 1, 2), y), Cropped(u.permute(0, 3, 1, 2), v)
