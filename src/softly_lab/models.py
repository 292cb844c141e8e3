"""Networks as the chapters have them."""

from collections.abc import Sequence

import torch
from torch import nn


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
