"""Silhouettes and blended colours in plain torch, in chunks of pixels, each of them forward and backward at once."""

from collections.abc import Callable

import torch
from torch import Tensor


def view(vertices: Tensor, faces: Tensor, distance: float, elevation: float, azimuth: float, fov: float) -> Tensor:
    """(F, 3, 3) The faces before a camera that looks at the origin: x and y times the depth, and the depth."""
    e, a, half = (torch.deg2rad(torch.tensor(angle)) for angle in (elevation, azimuth, fov / 2))
    back = torch.stack([e.cos() * a.sin(), e.sin(), e.cos() * a.cos()])
    right = torch.stack([a.cos(), torch.zeros(()), -a.sin()])
    up = torch.linalg.cross(back, right)
    seen = vertices @ torch.stack([right, up, back]).T
    return torch.cat([seen[:, :2] / half.tan(), distance - seen[:, 2:]], -1)[faces]


def project(vertices: Tensor, faces: Tensor, distance: float, elevation: float, azimuth: float, fov: float) -> Tensor:
    """(F, 3, 2) The faces in its image."""
    corners = view(vertices, faces, distance, elevation, azimuth, fov)
    return corners[..., :2] / corners[..., 2:]


def pixels(size: int) -> Tensor:
    """(size², 2) Their centres in [-1, 1]."""
    at = (torch.arange(size) + 0.5) * 2 / size - 1
    return torch.stack([at.expand(size, size), -at.unsqueeze(1).expand(size, size)], -1).reshape(-1, 2)


def signed_distance(points: Tensor, triangles: Tensor) -> Tensor:
    """(P, F)"""
    edge = triangles.roll(-1, -2) - triangles
    u = points[:, None, None] - triangles
    t = ((u * edge).sum(-1) / edge.square().sum(-1)).clamp(0, 1)
    distance = (u - t.unsqueeze(-1) * edge).norm(dim=-1).amin(-1)
    side = edge[..., 0] * u[..., 1] - edge[..., 1] * u[..., 0]
    inside = (side > 0).all(-1) | (side < 0).all(-1)
    return torch.where(inside, distance, -distance)


def signed_distance_apart(points: Tensor, triangles: Tensor) -> Tensor:
    """The same with x and y in tensors of their own and one square root, which torch does in half the time."""
    ax, ay = triangles.unbind(-1)
    ex, ey = ax.roll(-1, -1) - ax, ay.roll(-1, -1) - ay
    ux, uy = points[:, 0, None, None] - ax, points[:, 1, None, None] - ay
    t = ((ux * ex + uy * ey) / (ex * ex + ey * ey)).clamp(0, 1)
    rx, ry = ux - t * ex, uy - t * ey
    distance = (rx * rx + ry * ry).amin(-1).clamp(min=1e-20).sqrt()
    side = ex * uy - ey * ux
    inside = (side > 0).all(-1) | (side < 0).all(-1)
    return torch.where(inside, distance, -distance)


CDFS: dict[str, Callable[[Tensor], Tensor]] = {
    "logistic": torch.sigmoid,
    "uniform": lambda x: (0.5 * x + 0.5).clamp(0, 1),
    "cauchy": lambda x: torch.atan(x) / torch.pi + 0.5,
}


TCONORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "probabilistic": lambda p: 1 - (1 - p).prod(-1),
    "yager": lambda p: p.square().sum(-1).sqrt().clamp(max=1),
}


def step(
    triangles: Tensor,
    points: Tensor,
    steepness: float,
    distribution: str,
    tconorm: str,
    pairs: int,
    distance: Callable[[Tensor, Tensor], Tensor] = signed_distance,
) -> Tensor:
    """The gradient of the sum of a silhouette over ``points``, so many ``pairs`` at once; ``triangles`` need it."""
    total = torch.zeros_like(triangles)
    for part in points.split(max(pairs // len(triangles), 1)):
        covered = CDFS[distribution](steepness * distance(part, triangles))
        (gradient,) = torch.autograd.grad(TCONORMS[tconorm](covered).sum(), triangles)
        total += gradient
    return total


def blend_step(
    corners: Tensor,
    colors: Tensor,
    points: Tensor,
    steepness: float,
    sharpness: float,
    near: float,
    pairs: int,
    lit: tuple[Tensor, float] | None = None,
) -> list[Tensor]:
    """The gradients of the sum of colours over ``points``, in faces (F, 3, 3) before the camera and colours (F, 3, 3).

    The softmax over near / depth, weighted by the logistic coverage, before a black background; lit by normals
    (F, 3, 3) at the corners, and half of the width that is seen at depth 1, from a lamp at the camera, at every pixel.
    """
    total = [torch.zeros_like(corners), torch.zeros_like(colors)]
    for part in points.split(max(pairs // len(corners), 1)):
        covered = torch.sigmoid(steepness * signed_distance_apart(part, corners[..., :2] / corners[..., 2:]))
        a, b, c = corners.unbind(-2)
        sides = torch.stack([torch.linalg.cross(b, c), torch.linalg.cross(c, a), torch.linalg.cross(a, b)], -2)
        rays = torch.cat([part, torch.ones_like(part[:, :1])], -1)
        volumes = torch.einsum("pi,fki->pfk", rays, sides)
        total_volume = volumes.sum(-1, keepdim=True)
        weights = (volumes / torch.where(total_volume == 0, 1.0, total_volume)).clamp(0, 1)
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-12)
        closeness = near / (weights * corners[..., 2]).sum(-1)
        top = closeness.detach().amax(-1, keepdim=True)
        share = covered * torch.exp((closeness - top) * sharpness)
        behind = torch.exp((1e-3 - top) * sharpness)
        if lit is None:
            seen = torch.einsum("pf,pfk,fkc->pc", share, weights, colors)
        else:
            places = corners * corners.new_tensor([lit[1], lit[1], -1.0])
            normal = torch.nn.functional.normalize(torch.einsum("pfk,fkc->pfc", weights, lit[0]), dim=-1)
            lamp = torch.nn.functional.normalize(-torch.einsum("pfk,fkc->pfc", weights, places), dim=-1)
            light = (normal * lamp).sum(-1).clamp(min=0)
            seen = torch.einsum("pf,pf,pfk,fkc->pc", share, light, weights, colors)
        image = seen / (share.sum(-1, keepdim=True) + behind).clamp(min=1e-30)
        for sums, gradient in zip(total, torch.autograd.grad(image.sum(), (corners, colors)), strict=True):
            sums += gradient
    return total
