"""Voxels and image files."""

import numpy as np
import pytest
import torch
import trimesh
from PIL import Image

from softly.rendering import Mesh, cube, icosphere, pot, save_gif, save_image, torus, voxel_iou, voxelize

from . import scenes


@pytest.mark.parametrize("name", ["icosphere", "torus", "cube"])
def test_voxels_against_trimesh(name):
    mesh = scenes.meshes()[name].at(0.4 * scenes.meshes()[name].vertices)
    found = voxelize(mesh, 14)
    centres = (np.arange(14) + 0.5) / 14 - 0.5
    points = np.stack(np.meshgrid(centres, centres, centres, indexing="ij"), -1).reshape(-1, 3)
    solid = trimesh.Trimesh(mesh.vertices[0].double().numpy(), mesh.faces.numpy(), process=False)
    inside = torch.from_numpy(solid.contains(points)).view(14, 14, 14)
    assert (found[0] != inside).sum() <= 2
    assert found.any()


def test_parts_may_overlap_and_meshes_be_joined():
    mesh = pot().at(0.4 * pot().vertices)
    alone = voxelize(mesh, 12)
    both = voxelize(Mesh.join([mesh, torus()]), 12)
    assert torch.equal(both[0], alone[0])
    assert alone[0, 6, 6, 6]
    assert voxel_iou(alone, alone).tolist() == [1.0]
    assert voxel_iou(both[:1], both[1:]).item() < 0.7


def test_every_mesh_of_a_batch_has_its_own_voxels():
    sphere = icosphere(42)
    batch = sphere.at(sphere.vertices * torch.linspace(0.1, 0.6, 6).view(2, 3, 1, 1))
    found = voxelize(batch, 12)
    assert found.shape == (2, 3, 12, 12, 12)
    for index in torch.cartesian_prod(torch.arange(2), torch.arange(3)).tolist():
        assert torch.equal(found[*index], voxelize(sphere.at(batch.vertices[*index]), 12)[0])
    assert found.flatten(0, 1).sum((1, 2, 3)).diff().gt(0).all()
    assert not voxelize(Mesh(torch.rand(2, 4, 3), torch.zeros(0, 3, dtype=torch.int64)), 5).any()


def test_a_hole_is_outside():
    assert not voxelize(torus(), 15, extent=1.0)[0, 7, 7, 7]
    assert voxelize(cube(), 15, extent=2.0)[0, 7, 7, 7]


def test_images_come_back(tmp_path):
    image = torch.rand(4, 5, 7)
    save_image(image.unsqueeze(0), tmp_path / "image.png")
    with Image.open(tmp_path / "image.png") as found:
        again = np.asarray(found).astype(np.float32) / 255
    np.testing.assert_allclose(again, image.movedim(0, -1).numpy(), atol=0.002)
    save_image(image[0], tmp_path / "grey.png")
    with Image.open(tmp_path / "grey.png") as found:
        assert found.size == (7, 5)


def test_animations_have_all_frames(tmp_path):
    save_gif([torch.full((3, 6, 6), k / 3) for k in range(4)], tmp_path / "image.gif", seconds=0.05)
    with Image.open(tmp_path / "image.gif") as found:
        assert found.n_frames == 4
        assert found.info["duration"] == 50


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: save_image(torch.rand(2, 4, 4), path), r"\(H, W\), \(3, H, W\) or \(4, H, W\), got \(2, 4, 4\)"),
        (lambda path: save_gif([], path), "at least one"),
        (lambda path: save_gif([torch.rand(4, 4)], path, seconds=0.0), "seconds must be positive"),
        (lambda path: voxelize(icosphere(12), 0), "resolution must be at least 1"),
        (lambda path: voxelize(icosphere(12), 4, extent=0.0), "extent must be positive"),
    ],
)
def test_refusals(call, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        call(tmp_path / "image.gif")
