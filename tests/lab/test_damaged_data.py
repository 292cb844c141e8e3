"""Files of data that are truncated or malformed are refused with their name and the reason."""

import gzip
import io
import struct

import numpy as np
import pytest
from PIL import Image

from softly_lab.data import images, objects, queries, readable, tables, terrain


def idx(array):
    head = b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(head + array.astype(np.uint8).tobytes())


def png(size=4):
    content = io.BytesIO()
    Image.new("RGB", (size, size)).save(content, "PNG")
    return content.getvalue()


@pytest.fixture
def at(tmp_path, monkeypatch):
    """Puts files where a data set is looked for."""

    def put(module, files):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        monkeypatch.setattr(module, "folder", lambda name: tmp_path)

    return put


PIXELS, LABELS = idx(np.zeros((3, 28, 28))), idx(np.zeros(3))
MNIST = {f"{part}-{kind}-ubyte.gz": content for part in ("train", "t10k")
         for kind, content in (("images-idx3", PIXELS), ("labels-idx1", LABELS))}  # fmt: skip


DAMAGED = {
    "empty": b"",
    "no gzip": b"no gzip",
    "gzip that ends early": PIXELS[:40],
    "of 32 bits": gzip.compress(b"\0\0\x0d\3"),
    "half a head": gzip.compress(b"\0\0"),
    "no sizes": gzip.compress(b"\0\0\x08\3\0\0"),
    "a wrong checksum": idx(np.zeros((3, 28, 28)))[:-9] + b"\0" * 9,
    "pixels missing": gzip.compress(gzip.decompress(PIXELS)[:-5]),
}


# By name, as what gzip makes tells the time, and the processes of a test run have to agree on names.
@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_idx(at, content):
    at(images, {**MNIST, "train-images-idx3-ubyte.gz": content})
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.gz: this file is damaged: ."):
        images.mnist()


def test_images_and_labels_that_are_not_of_each_other(at):
    at(images, {**MNIST, "t10k-labels-idx1-ubyte.gz": idx(np.zeros(2))})
    with pytest.raises(ValueError, match=r"t10k has images \(3, 28, 28\) and labels \(2,\)"):
        images.mnist()


@pytest.mark.parametrize("content", [b"", b"no image", png(), png(64)[:60]])
def test_sheets(at, content):
    at(images, {"cifar10_train_00.webp": content, "cifar10_train_labels.csv": b"label\n1\n"})
    with pytest.raises(ValueError, match=r"cifar10_train_00.webp: this file is damaged: ."):
        images.cifar10()


def test_labels_of_sheets(at):
    at(images, {"cifar10_train_00.webp": png(32)})
    with pytest.raises(FileNotFoundError, match="no labels of part train"):
        images.cifar10()
    for content in (b"kind\n1\n", b"label\nx\n", b"label\n\xff\n"):
        at(images, {"cifar10_train_labels.csv": content})
        with pytest.raises(ValueError, match=r"cifar10_train_labels.csv: this file is damaged: ."):
            images.cifar10()


@pytest.mark.parametrize("content", [b"", b"1 1 1\n", b"1 1 1 1 3 x 1 d1\n", b"\xff"])
def test_monk(at, content):
    at(tables, {"monks/monks-1.train": content})
    with pytest.raises(ValueError, match=r"monks-1.train: this file is damaged: ."):
        tables.monk(1)


@pytest.mark.parametrize("content", [b"", b"recurrence-events,40-49\n", b"events,1,2\n", b"<html>,</html>\n"])
def test_breast_cancer(at, content):
    at(tables, {"breast-cancer/breast-cancer.data": content})
    with pytest.raises(ValueError, match=r"breast-cancer.data: this file is damaged: ."):
        tables.breast_cancer()


@pytest.mark.parametrize("content", [b"", b"39, >50K\n", b"x, y, >50K\n"])
def test_adult(at, content):
    at(tables, {"adult/adult.names": b"age: continuous.\nwork: a, b.\n", "adult/adult.data": content})
    with pytest.raises(ValueError, match=r"adult.data: this file is damaged: ."):
        tables.adult()


def test_queries(at):
    at(queries, {"rank.train.query": b"1\n", "rank.train.gz": gzip.compress(b"1 0:1\n")[:12]})
    with pytest.raises(ValueError, match=r"rank.train.gz: this file is damaged: ."):
        queries.lightgbm()
    at(queries, {"rank.train.query": b"x\n"})
    with pytest.raises(ValueError, match=r"rank.train.query: this file is damaged: ."):
        queries.lightgbm()


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b"no archive"])
def test_meshes_and_tiles(at, tmp_path, content):
    at(objects, {"shapenet100_vf.npz": content, f"{terrain.TILES[0][0]}.png": content})
    with pytest.raises(ValueError, match=r"shapenet100_vf.npz: this file is damaged: ."):
        objects._shapenet(None)
    with pytest.raises(ValueError, match=r"png: this file is damaged: ."):
        terrain.tiles(tmp_path)


def test_files_that_are_absent_are_said_to_be(tmp_path):
    with pytest.raises(FileNotFoundError), readable(tmp_path / "none"):
        (tmp_path / "none").read_text()
