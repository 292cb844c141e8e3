"""Signed distances of points from convex polygons."""

from __future__ import annotations

import torch
from torch import Tensor


def signed_distance(points: Tensor, polygons: Tensor) -> Tensor:
    """The Euclidean distance of points from the border of convex polygons, positive inside, negative outside.

    What is closest is an edge, and then the distance is that from its line, or a corner, and then the point is
    outside. So the derivative is an edge's normal, which needs no division by a distance that may be 0. Corners may
    be repeated; a polygon without area has no inside.

    Args:
        points: (P, 2)
        polygons: (..., F, K, 2) Corners in order, either way round.

    Returns:
        (..., P, F)
    """
    start = polygons
    edge = start.roll(-1, -2) - start
    length2 = edge.square().sum(-1)
    single = length2 <= torch.finfo(polygons.dtype).tiny
    length2 = torch.where(single, 1.0, length2)
    spokes = (start - start[..., :1, :]).detach()
    turn = (spokes[..., 0] * spokes[..., 1].roll(-1, -1) - spokes[..., 1] * spokes[..., 0].roll(-1, -1)).sum(-1)
    normal = torch.stack([-edge[..., 1], edge[..., 0]], -1) / length2.sqrt().unsqueeze(-1)
    normal = torch.where(turn[..., None, None] < 0, -normal, normal)

    u = points[:, None, None, :] - start.unsqueeze(-4)  # (..., P, F, K, 2)
    line = (u * normal.unsqueeze(-4)).sum(-1)
    along = (u * edge.unsqueeze(-4)).sum(-1).detach() / length2.detach().unsqueeze(-3)
    beside = (along > 0) & (along < 1) & ~single.unsqueeze(-3)
    from_edge = torch.where(beside, line.detach().square(), torch.inf)
    from_corner = u.detach().square().sum(-1)
    closest = torch.cat([from_edge, from_corner], -1).argmin(-1, keepdim=True)
    count = polygons.shape[-2]
    at_edge = closest.squeeze(-1) < count
    within = ((line.detach() >= 0) | single.unsqueeze(-3)).all(-1) & (turn != 0).unsqueeze(-2)

    index = closest % count
    straight = line.gather(-1, index).squeeze(-1)
    straight = torch.where(within, straight, torch.where(straight > 0, -straight, straight))
    away = u.gather(-2, index.unsqueeze(-1).expand(*index.shape, 2)).squeeze(-2)
    square = away.square().sum(-1)
    root = torch.where(at_edge | (square == 0), 1.0, square).sqrt()
    around = torch.where(square == 0, 0.0 * square, -root)
    return torch.where(at_edge, straight, around)
