"""Networks as the chapters have them."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def convolutional(shape: Sequence[int], outputs: int, channels: Sequence[int] = (32, 64)) -> nn.Sequential:
    """The network of chapters 2 and 3: images of ``shape`` (channels, height, width) to so many numbers.

    Convolutions of 5×5 with as many channels as given, each with a ReLU and a maximum over 2×2, then a layer of 64.
    """
    layers: list[nn.Module] = []
    before = shape[0]
    for width in channels:
        layers += [nn.Conv2d(before, width, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
        before = width
    body = nn.Sequential(*layers, nn.Flatten())
    with torch.no_grad():
        features = body(torch.zeros(1, *shape)).shape[1]
    return nn.Sequential(body, nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, outputs))


class _Block(nn.Module):
    """Two convolutions of 3×3 around which the input passes by, as in ResNet18; it may be halved and widened."""

    def __init__(self, width: int, before: int | None = None) -> None:
        super().__init__()
        stride = 1 if before is None else 2
        self.body = nn.Sequential(
            nn.Conv2d(before or width, width, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.past: nn.Module = nn.Identity()
        if before is not None:
            self.past = nn.Sequential(nn.Conv2d(before, width, 1, stride=2, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.past(x) + self.body(x))


def resnet18(channels: int, outputs: int, width: int = 64) -> nn.Sequential:
    """ResNet18 for small images, as CIFAR's: the first convolution is of 3×3 and halves nothing."""
    stem = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
    return nn.Sequential(stem, _Block(width), _Block(width), *_narrowing(width, outputs))


def _narrowing(width: int, outputs: int) -> list[nn.Module]:
    """The upper half of ResNet18: images that get smaller and deeper, and a linear layer of their mean."""
    layers: list[nn.Module] = []
    for wider in (2 * width, 4 * width, 8 * width):
        layers += [_Block(wider, wider // 2), _Block(wider)]
    return [*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, outputs)]


def terrain_costs(cells: int, width: int = 64) -> nn.Sequential:
    """The network of the shortest-path tasks (chapter 2): images to costs ≥ 0 of ``cells`` × ``cells`` cells.

    The first five layers of ResNet18, the largest features of each cell, and their mean.
    """
    return nn.Sequential(*_beginning(width), nn.AdaptiveMaxPool2d(cells), _Mean())


def terrain_paths(cells: int, width: int = 64) -> nn.Sequential:
    """What has to find paths alone: all of ResNet18, to a score for each of ``cells`` × ``cells`` cells."""
    return nn.Sequential(*_beginning(width), *_narrowing(width, cells * cells), nn.Unflatten(1, (cells, cells)))


def _beginning(width: int) -> list[nn.Module]:
    """The first five layers of ResNet18."""
    return [
        nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        _Block(width),
        _Block(width),
    ]


class _Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def fully_connected(inputs: int, width: int, outputs: int) -> nn.Sequential:
    """Five layers with ReLUs between them (chapter 7)."""
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(inputs, width), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def lenet5(side: int, outputs: int, activation: type[nn.Module]) -> nn.Sequential:
    """LeNet-5 on images of ``side`` × ``side`` pixels (chapter 7)."""
    small = side < 20  # scikit-learn's digits, which two convolutions without padding would use up
    body = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), activation(), nn.AvgPool2d(2),
        nn.Conv2d(6, 16, 5, padding=2 if small else 0), activation(), nn.AvgPool2d(2), nn.Flatten(),
    )  # fmt: skip
    with torch.no_grad():
        features = body(torch.zeros(1, 1, side, side)).shape[1]
    return nn.Sequential(
        body, nn.Linear(features, 120), activation(), nn.Linear(120, 84), activation(), nn.Linear(84, outputs)
    )


class Reconstruction(nn.Module):
    """Images to the vertices of a sphere that is deformed: the encoder and decoder of chapters 2 and 5.

    Three convolutions of 5×5 with batch normalisation, three layers to a code of 512, and a decoder of 1024 and 2048
    to a displacement of every vertex in the space of logits, and a centre; then all is halved, to the cube from -0.5
    to 0.5 where the objects are.

    Args:
        base: (V, 3) Vertices inside of the cube from -1 to 1, away from its sides.
        size: Of the images, which have four channels: red, green, blue and opacity.
        width: Channels of the first convolution; everything else is in proportion to its 64.
    """

    base: Tensor

    def __init__(self, base: Tensor, size: int, width: int = 64) -> None:
        super().__init__()
        self.register_buffer("base", base)
        layers: list[nn.Module] = []
        before = 4
        for channels in (width, 2 * width, 4 * width):
            layers += [nn.Conv2d(before, channels, 5, stride=2, padding=2), nn.BatchNorm2d(channels), nn.ReLU()]
            before = channels
        features = before * (-(-size // 8)) ** 2
        sizes = (features, 16 * width, 16 * width, 8 * width, 16 * width, 32 * width)
        layers.append(nn.Flatten())
        for one, other in pairwise(sizes):
            layers += [nn.Linear(one, other), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.displacement = nn.Linear(sizes[-1], base.numel())
        self.centre = nn.Linear(sizes[-1], 3)

    def forward(self, images: Tensor) -> Tensor:
        """(n, V, 3) for images (n, 4, size, size)."""
        code = self.body(images)
        displacement = self.displacement(code).unflatten(-1, self.base.shape)
        return 0.5 * displaced(self.base, displacement, 0.1 * self.centre(code).unsqueeze(-2))


def displaced(base: Tensor, displacement: Tensor, centre: Tensor) -> Tensor:
    """Vertices (..., V, 3) inside of the cube from -1 to 1, moved in the space of logits, then towards a centre.

    A vertex stays in its octant of the centre, which takes any place: 0 and 0 leave ``base`` as it is.
    """
    moved = torch.sigmoid(torch.logit(base.abs()) + displacement) * base.sign()
    middle = torch.tanh(centre)
    return moved.clamp(min=0) * (1 - middle) + moved.clamp(max=0) * (1 + middle) + middle
