"""What a mesh is fitted by: how far silhouettes overlap, and how smooth the surface is."""

from __future__ import annotations

import torch
from torch import Tensor

from softly import _inputs, native
from softly.rendering.mesh import Mesh
from softly.rendering.vectors import unit

__all__ = ["edge_length_loss", "flattening_loss", "iou_loss", "laplacian_loss"]


def iou_loss(silhouette: Tensor, target: Tensor) -> Tensor:
    """1 - intersection / union of silhouettes, where probabilities add and multiply.

    0 where both are hard and equal, 1 where they don't overlap.

    Args:
        silhouette: (..., H, W) In [0, 1].
        target: (..., H, W) The same.

    Returns:
        (...) One loss for each image.

    Example:
        >>> softly.rendering.iou_loss(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
        tensor(0.5000)
    """
    name = "softly.rendering.iou_loss"
    _inputs.floating(silhouette, name, "silhouette")
    if not isinstance(target, Tensor):
        raise TypeError(f"{name}: target must be a tensor, got {type(target).__name__}.")
    for image, argument in ((silhouette, "silhouette"), (target, "target")):
        if image.ndim < 2:
            raise ValueError(f"{name}: {argument} must have shape (..., H, W), got {tuple(image.shape)}.")
    if silhouette.shape[-2:] != target.shape[-2:]:
        raise ValueError(
            f"{name}: target must be of the size of silhouette, {tuple(silhouette.shape[-2:])}, "
            f"got {tuple(target.shape[-2:])}."
        )
    _inputs.together(name, silhouette=silhouette.shape[:-2], target=target.shape[:-2])
    target = target.to(silhouette.dtype)
    for image, argument in ((silhouette, "silhouette"), (target, "target")):
        known = native.data(image)
        if known is not None and known.numel() and known.device.type == "cpu":
            _inputs.unit_range(known, name, argument)
    return _inputs.at_least_single(_iou_loss, silhouette, target)


def _iou_loss(silhouette: Tensor, target: Tensor) -> Tensor:
    both = silhouette * target
    intersection, union = both.sum((-2, -1)), (silhouette + target - both).sum((-2, -1))
    empty = union == 0
    return 1.0 - torch.where(empty, 1.0, intersection / torch.where(empty, 1.0, union))


def _edges(mesh: Mesh, name: str) -> tuple[Tensor, Tensor]:
    """Every edge once, (E, 2), and for those of two faces the corners opposite, (I, 4): both ends, both others."""
    if not isinstance(mesh, Mesh):
        raise TypeError(f"{name}: mesh must be a Mesh, got {type(mesh).__name__}.")
    if mesh.faces.ndim > 2:
        raise ValueError(f"{name}: the meshes of a batch must share their faces; take the loss of each before joining.")
    faces, count = mesh.faces, mesh.vertices.shape[-2]
    ends = torch.cat([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]).sort(-1).values
    across = torch.cat([faces[:, 2], faces[:, 0], faces[:, 1]])
    proper = ends[:, 0] != ends[:, 1]  # of a face that has a vertex twice, one is none
    ends, across = ends[proper], across[proper]
    # As one number each, which are sorted in a tenth of the time that rows take.
    keys, inverse, counts = torch.unique(ends[:, 0] * count + ends[:, 1], return_inverse=True, return_counts=True)
    unique = torch.stack([keys.div(max(count, 1), rounding_mode="floor"), keys % max(count, 1)], -1)
    order = inverse.argsort(stable=True)
    first = counts.cumsum(0) - counts
    shared = (counts == 2).nonzero().squeeze(-1)
    one, other = order[first[shared]], order[first[shared] + 1]
    return unique, torch.cat([unique[shared], across[one, None], across[other, None]], -1)


def laplacian_loss(mesh: Mesh) -> Tensor:
    """The sum of squared distances of the vertices from the mean of their neighbours.

    0 where each is in the middle of its neighbours; moving the mesh changes nothing.

    Returns:
        (...) One loss for each mesh.

    Example:
        >>> softly.rendering.laplacian_loss(softly.rendering.cube())
        tensor([19.8800])
    """
    edges, _ = _edges(mesh, "softly.rendering.laplacian_loss")
    a, b = edges.unbind(-1)

    def loss(vertices: Tensor) -> Tensor:
        sums = torch.zeros_like(vertices).index_add(-2, a, vertices[..., b, :]).index_add(-2, b, vertices[..., a, :])
        count = torch.bincount(edges.flatten(), minlength=vertices.shape[-2]).to(vertices.dtype).unsqueeze(-1)
        apart = torch.where(count > 0, vertices - sums / count.clamp(min=1), 0.0)
        return apart.square().sum((-2, -1))

    return _inputs.at_least_single(loss, mesh.vertices)


def flattening_loss(mesh: Mesh) -> Tensor:
    """The sum of ``(1 + cos θ)²`` over the edges of two faces, θ the angle between them: 0 where the surface is flat.

    Returns:
        (...) One loss for each mesh.

    Example:
        >>> softly.rendering.flattening_loss(softly.rendering.cube())
        tensor([12.])
    """
    _, corners = _edges(mesh, "softly.rendering.flattening_loss")

    def loss(vertices: Tensor) -> Tensor:
        a, b, c, d = (vertices[..., index, :] for index in corners.unbind(-1))
        along = unit(b - a)

        def rising(x: Tensor) -> Tensor:
            x = x - a
            return unit(x - (x * along).sum(-1, keepdim=True) * along)

        return (1.0 + (rising(c) * rising(d)).sum(-1)).square().sum(-1)

    return _inputs.at_least_single(loss, mesh.vertices)


def edge_length_loss(mesh: Mesh) -> Tensor:
    """The mean of the squared lengths of the edges; 0 where there are none.

    Returns:
        (...) One loss for each mesh.

    Example:
        >>> softly.rendering.edge_length_loss(softly.rendering.cube())
        tensor([5.3333])
    """
    edges, _ = _edges(mesh, "softly.rendering.edge_length_loss")

    def loss(vertices: Tensor) -> Tensor:
        ends = vertices[..., edges, :]
        return (ends[..., 0, :] - ends[..., 1, :]).square().sum((-2, -1)) / max(len(edges), 1)

    return _inputs.at_least_single(loss, mesh.vertices)
