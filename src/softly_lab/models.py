"""Networks as the chapters have them."""

from collections.abc import Sequence

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
    """Two convolutions of 3×3 around which the input passes by, as in ResNet18."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


def terrain_costs(cells: int, width: int = 64) -> nn.Sequential:
    """The network of the shortest-path tasks (chapter 2): images to costs ≥ 0 of ``cells`` × ``cells`` cells.

    The first five layers of ResNet18, the largest features of each cell, and their mean.
    """
    return nn.Sequential(
        nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2, padding=1),
        _Block(width),
        _Block(width),
        nn.AdaptiveMaxPool2d(cells),
        _Mean(),
    )


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
