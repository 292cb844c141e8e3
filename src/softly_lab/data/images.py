"""MNIST and CIFAR-10."""

import csv
import gzip
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from softly_lab.data import folder

Part = tuple[Tensor, Tensor]  # images (n, ...) in bytes and labels (n,)


def _idx(path: Path) -> np.ndarray:
    with gzip.open(path) as file:
        content = file.read()
    if content[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path.name}: not an idx file of bytes.")
    shape = np.frombuffer(content, ">u4", content[3], 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def mnist() -> tuple[Part, Part]:
    """60,000 images to learn from and 10,000 to test on, (n, 28, 28)."""
    path = folder("mnist")
    parts = []
    for name in ("train", "t10k"):
        images, labels = (_idx(path / f"{name}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1"))
        parts.append((torch.tensor(images), torch.tensor(labels).long()))
    return parts[0], parts[1]


def cifar10() -> tuple[Part, Part]:
    """50,000 images to learn from and 10,000 to test on, (n, 32, 32, 3)."""
    from PIL import Image

    path = folder("cifar10")
    parts = []
    for name in ("train", "test"):
        blocks = []
        for sheet in sorted(path.glob(f"cifar10_{name}_*.webp")):
            pixels = np.asarray(Image.open(sheet).convert("RGB"))
            blocks.append(pixels.reshape(50, 32, 100, 32, 3).transpose(0, 2, 1, 3, 4).reshape(-1, 32, 32, 3))
        with (path / f"cifar10_{name}_labels.csv").open() as file:
            labels = [int(row["label"]) for row in csv.DictReader(file)]
        images = torch.tensor(np.concatenate(blocks))
        if len(images) != len(labels):
            raise ValueError(f"cifar10: {len(images)} images and {len(labels)} labels in part {name}.")
        parts.append((images, torch.tensor(labels)))
    return parts[0], parts[1]
