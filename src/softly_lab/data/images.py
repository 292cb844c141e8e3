"""MNIST, EMNIST, CIFAR-10, CIFAR-100 and SVHN."""

import csv
import gzip
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from softly_lab.data import folder, readable

Part = tuple[Tensor, Tensor]  # images (n, ...) in bytes and labels (n,)


def _idx(path: Path) -> np.ndarray:
    with readable(path):
        with gzip.open(path) as file:
            content = file.read()
        if content[:3] != b"\x00\x00\x08":
            raise ValueError("it is no idx file of bytes")
        shape = np.frombuffer(content, ">u4", content[3], 4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def _pair(path: Path, prefix: str) -> tuple[np.ndarray, np.ndarray]:
    """Images of 28×28 pixels and their labels."""
    images, labels = (_idx(path / f"{prefix}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1"))
    if images.shape != (*labels.shape, 28, 28) or labels.ndim != 1:
        raise ValueError(f"{path}: {prefix} has images {images.shape} and labels {labels.shape}.")
    return images, labels


def mnist() -> tuple[Part, Part]:
    """60,000 images to learn from and 10,000 to test on, (n, 28, 28)."""
    path = folder("mnist")
    parts = []
    for name in ("train", "t10k"):
        images, labels = _pair(path, name)
        parts.append((torch.tensor(images), torch.tensor(labels).long()))
    return parts[0], parts[1]


def emnist_letters() -> tuple[Part, Part]:
    """124,800 letters to learn from and 20,800 to test on, (n, 28, 28), upright; labels from 0, which is A."""
    path = folder("emnist-letters")
    parts = []
    for name in ("train", "test"):
        pixels, labels = _pair(path, f"emnist-letters-{name}")
        parts.append((torch.tensor(pixels).transpose(1, 2), torch.tensor(labels).long() - 1))
    return parts[0], parts[1]


def cifar10() -> tuple[Part, Part]:
    """50,000 images to learn from and 10,000 to test on, (n, 32, 32, 3)."""
    return _sheets("cifar10", "train", 32, "label"), _sheets("cifar10", "test", 32, "label")


def cifar100() -> tuple[Part, Part]:
    """The images that there are of 50,000 to learn from and 10,000 to test on, (n, 32, 32, 3)."""
    return _sheets("cifar100", "train", 32, "label"), _sheets("cifar100", "test", 32, "label")


def svhn() -> tuple[Part, Part]:
    """The house numbers that there are of 16,000 to learn from and 13,068 to test on, (n, 64, 64, 3)."""
    return _sheets("svhn", "train", 64, "number"), _sheets("svhn", "test", 64, "number")


def _sheets(name: str, part: str, size: int, label: str) -> Part:
    """Images in rows on sheets; of the labels as many as there are images."""
    from PIL import Image

    path, blocks = folder(name), []
    sheets = sorted(path.glob(f"*_{part}_*.webp"))
    for number, sheet in enumerate(sheets):
        if not sheet.stem.endswith(f"_{number:02d}"):
            raise FileNotFoundError(f"{name}: sheet {number:02d} of part {part} is missing, which labels go by.")
        with readable(sheet):
            with Image.open(sheet) as opened:
                pixels = np.asarray(opened.convert("RGB"))
            columns = pixels.shape[1] // size
            images = pixels.reshape(-1, size, columns, size, 3).transpose(0, 2, 1, 3, 4)
            blocks.append(images.reshape(-1, size, size, 3))
    if not blocks:
        raise FileNotFoundError(f"{name}: there are no sheets of part {part} in {path.name}.")
    table = next(path.glob(f"*_{part}_labels.csv"), None)
    if table is None:
        raise FileNotFoundError(f"{name}: there are no labels of part {part} in {path.name}.")
    with readable(table), table.open() as file:
        labels = [int(row[label]) for row in csv.DictReader(file)]
    found = np.concatenate(blocks)[: len(labels)]
    return torch.tensor(found), torch.tensor(labels[: len(found)])
