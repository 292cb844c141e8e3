"""Signed distances of points from convex polygons."""

from __future__ import annotations

import torch
from torch import Tensor


def signed_distance(points: Tensor, polygons: Tensor) -> Tensor:
    """The Euclidean distance of points from the border of convex polygons, positive inside, negative outside.

    What is closest is an edge, and then the distance is that from its line, or a corner, and then the point is
    outside, but for a corner on a straight line. So the derivative is an edge's normal, which needs no division by a
    distance that may be 0. Corners may be repeated; a polygon without area has no inside.

    Args:
        points: (..., P, 2)
        polygons: (..., F, K, 2) Corners in order, either way round.

    Returns:
        (..., P, F)
    """
    # x and y apart: sums over two numbers take torch longer than all the rest.
    sx, sy = polygons.unbind(-1)
    ex, ey = sx.roll(-1, -1) - sx, sy.roll(-1, -1) - sy
    length2 = ex.square() + ey.square()
    single = length2 <= torch.finfo(polygons.dtype).tiny
    length2 = torch.where(single, 1.0, length2)
    ax, ay = ((s - s[..., :1]).detach() for s in (sx, sy))
    turn = (ax * ay.roll(-1, -1) - ay * ax.roll(-1, -1)).sum(-1)
    length = torch.where(turn.unsqueeze(-1) < 0, -length2.sqrt(), length2.sqrt())
    nx, ny = -ey / length, ex / length  # to the inside

    px, py = points[..., None, None, :].unbind(-1)
    ux, uy = px - sx.unsqueeze(-3), py - sy.unsqueeze(-3)  # (..., P, F, K)
    line = ux * nx.unsqueeze(-3) + uy * ny.unsqueeze(-3)
    with torch.no_grad():
        along = (ux * ex.unsqueeze(-3) + uy * ey.unsqueeze(-3)) / length2.unsqueeze(-3)
        beside = (along > 0) & (along < 1) & ~single.unsqueeze(-3)
        # An edge that a point faces, beside it and outside, is the closest, though rounding makes others seem closer.
        from_edge = torch.where(beside, line.square() * torch.where(line < 0, 1.0, 2.0), torch.inf)
        from_corner = 2.0 * (ux.square() + uy.square())
        closest = torch.cat([from_edge, from_corner], -1).argmin(-1, keepdim=True)
        count = polygons.shape[-2]
        at_edge, index = closest.squeeze(-1) < count, closest % count
        within = ((line >= 0) | single.unsqueeze(-3)).all(-1) & (turn != 0).unsqueeze(-2)

    straight = line.gather(-1, index).squeeze(-1)
    straight = torch.where(within, straight, torch.where(straight > 0, -straight, straight))
    square = (ux.gather(-1, index).square() + uy.gather(-1, index).square()).squeeze(-1)
    root = torch.where(at_edge | (square == 0), 1.0, square).sqrt()
    around = torch.where(square == 0, 0.0 * square, torch.where(within, root, -root))
    return torch.where(at_edge, straight, around)
