"""Losses of silhouettes and surfaces, against sums by hand."""

import pytest
import torch

from softly.rendering import Mesh, cube, edge_length_loss, flattening_loss, icosphere, iou_loss, laplacian_loss


def test_iou_is_that_of_sets():
    one = torch.tensor([[[1.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]], [[0.0, 0.0, 0.0]]])
    other = torch.tensor([[[0.0, 1.0, 1.0]], [[1.0, 0.0, 0.0]], [[0.0, 0.0, 0.0]]])
    torch.testing.assert_close(iou_loss(one, other), torch.tensor([2 / 3, 1.0, 0.0]))
    with pytest.raises(ValueError, match=r"target must be of the size of silhouette, \(1, 3\), got \(2, 3\)"):
        iou_loss(one, torch.zeros(2, 3))


def test_laplacian_by_hand():
    mesh = icosphere(12)
    neighbours = {i: set() for i in range(12)}
    for face in mesh.faces.tolist():
        for i in face:
            neighbours[i] |= set(face) - {i}
    v = mesh.vertices[0]
    expected = sum(((v[i] - v[sorted(near)].mean(0)) ** 2).sum() for i, near in neighbours.items())
    torch.testing.assert_close(laplacian_loss(mesh)[0], expected)


def test_flattening_by_angles():
    # Two faces at a right angle, then folded flat, then shut.
    faces = torch.tensor([[0, 1, 2], [1, 0, 3]])
    for last, expected in (([0.0, 0.0, 1.0], 1.0), ([0.0, -1.0, 0.0], 0.0), ([0.0, 1.0, 0.0], 4.0)):
        vertices = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], last])
        torch.testing.assert_close(flattening_loss(Mesh(vertices, faces)), torch.tensor([expected]))


def test_all_are_differentiable():
    vertices = icosphere(12).vertices.double() + 0.1 * torch.randn(12, 3).double()
    for loss in (laplacian_loss, flattening_loss, edge_length_loss):
        assert torch.autograd.gradcheck(
            lambda v, loss=loss: loss(Mesh(v, icosphere(12).faces)), vertices.requires_grad_()
        )


def test_meshes_of_different_faces_are_refused():
    for loss in (laplacian_loss, flattening_loss, edge_length_loss):
        with pytest.raises(ValueError, match="share their faces"):
            loss(Mesh.join([cube(), icosphere(12)]))


def test_degenerate_meshes_have_finite_losses_and_gradients():
    none = torch.zeros(0, 3, dtype=torch.long)
    sliver = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0.5, 0, 0], [0.5, 1, 0]])
    for vertices, faces in (
        (torch.zeros(0, 3), none),
        (torch.ones(3, 3), none),
        (torch.ones(4, 3), torch.tensor([[0, 1, 2], [0, 2, 3], [0, 1, 2]])),
        (sliver, torch.tensor([[0, 1, 2], [1, 0, 3]])),
        (sliver, torch.tensor([[0, 0, 1], [1, 0, 3]])),
    ):
        points = vertices.clone().requires_grad_()
        for loss in (laplacian_loss, flattening_loss, edge_length_loss):
            value = loss(Mesh(points, faces))
            (grad,) = torch.autograd.grad(value.sum(), points)
            assert value.isfinite().all()
            assert not len(grad) or grad.abs().max() < 10
