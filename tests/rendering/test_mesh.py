"""Meshes and the shapes that need no file."""

import pytest
import torch

from softly.rendering import Mesh, cube, icosphere, pot, torus


@pytest.mark.parametrize("mesh", [cube(), icosphere(level=2), torus()], ids=["cube", "icosphere", "torus"])
def test_shapes_are_closed_and_face_outwards(mesh):
    edges = torch.cat([mesh.faces[:, [0, 1]], mesh.faces[:, [1, 2]], mesh.faces[:, [2, 0]]])
    there = {tuple(edge) for edge in edges.tolist()}
    assert len(there) == len(edges)
    assert all((b, a) in there for a, b in there)
    a, b, c = mesh.corners().double().unbind(-2)
    volume = (a * torch.linalg.cross(b, c)).sum() / 6
    assert volume > 0


def test_volumes():
    a, b, c = icosphere(level=4).corners().double().unbind(-2)
    assert (a * torch.linalg.cross(b, c)).sum().item() / 6 == pytest.approx(4 / 3 * torch.pi, rel=5e-3)
    a, b, c = cube().corners().double().unbind(-2)
    assert (a * torch.linalg.cross(b, c)).sum().item() / 6 == pytest.approx(8.0)


def test_the_pot_has_no_mirror_image_in_x():
    points = pot().vertices[0]
    assert points[:, 0].max() > 1.05
    assert points[:, 0].min() < -1.05
    assert (points[:, 0].max() + points[:, 0].min()).abs() > 0.01


def test_joined_meshes_keep_their_faces():
    first, second = cube(), icosphere(12)
    both = Mesh.join([first, second])
    assert both.count().tolist() == [12, 20]
    torch.testing.assert_close(both.corners()[0, :12], first.corners()[0])
    torch.testing.assert_close(both.corners()[1], second.corners()[0])
    torch.testing.assert_close(both.vertex_normals()[0, :8], first.vertex_normals()[0])
    torch.testing.assert_close(both.vertex_normals()[1], second.vertex_normals()[0])
    again = Mesh.join([both, first])
    assert again.count().tolist() == [12, 20, 12]


def test_joined_colors():
    red = Mesh(cube().vertices, cube().faces, face_colors=torch.tensor([1.0, 0.0, 0.0]).expand(12, 3))
    blue = Mesh(icosphere(12).vertices, icosphere(12).faces, face_colors=torch.tensor([0.0, 0.0, 1.0]).expand(20, 3))
    assert Mesh.join([red, blue]).face_colors[:, 0].tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    with pytest.raises(ValueError, match="colours of the same kind"):
        Mesh.join([red, cube()])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Mesh(torch.ones(4, 2), torch.zeros(1, 3).long()), ValueError, r"\(..., V, 3\), got \(4, 2\)"),
        (lambda: Mesh(torch.ones(4, 3).long(), torch.zeros(1, 3).long()), TypeError, "floating-point"),
        (lambda: Mesh(torch.ones(4, 3), torch.zeros(1, 3)), TypeError, "integers, got torch.float32"),
        (lambda: Mesh(torch.ones(4, 3), torch.tensor([[0, 1, 4]])), ValueError, "0 to 3, got 4"),
        (lambda: Mesh(torch.ones(4, 3), torch.tensor([[0, 1, -1]])), ValueError, "0 to 3, got -1"),
        (lambda: Mesh(torch.ones(1, 4, 3), torch.tensor([[[0, 1, -1]]])), ValueError, "in part"),
        (lambda: Mesh(torch.ones(4, 3), torch.zeros(1, 4).long()), ValueError, r"faces must have shape"),
        (
            lambda: Mesh(torch.ones(4, 3), torch.zeros(1, 3).long(), face_colors=torch.ones(2, 3)),
            ValueError,
            r"\(..., 1, 3\), got \(1, 2, 3\)",
        ),
        (lambda: Mesh.join([]), ValueError, "at least one"),
        (lambda: icosphere(100), ValueError, "got 100"),
        (lambda: icosphere(), ValueError, "got none"),
        (lambda: icosphere(level=9), ValueError, "got 9"),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize("size", [1e-12, 1e-8, 1.0, 1e12])
def test_normals_of_faces_of_any_size(size):
    box = cube()
    small = box.at(size * box.vertices)
    torch.testing.assert_close(small.normals(), box.normals())
    torch.testing.assert_close(small.vertex_normals(), box.vertex_normals())
