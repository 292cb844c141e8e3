"""The generalized differentiable renderer of chapter 5."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from softly import _inputs, distributions, tnorms
from softly._steepness import Steep
from softly._straight_through import straight_through as _straight_through
from softly.distributions import Distribution
from softly.rendering.camera import Camera
from softly.rendering.camera import image_size as _image_size
from softly.rendering.clipping import polygons
from softly.rendering.mesh import Mesh
from softly.rendering.silhouette import Choice, silhouette
from softly.tnorms import TNorm

__all__ = ["Renderer"]

# Faces that share an edge leave no gap between them: a pixel is covered up to the rounding of its distance.
_ROUNDING = {torch.float32: 2.0**-20, torch.float64: 2.0**-48}
_HARD = {
    dtype: Choice(distributions.get("heaviside").shifted(rounding), False, tnorms.get("minimum"), None)
    for dtype, rounding in _ROUNDING.items()
}


class Renderer(Steep):
    """Renders meshes so that images are differentiable in all that is rendered.

    A face covers a pixel with probability ``F(steepness · d)``, where d is the signed distance of the pixel from the
    border of the face, and pixels add their faces up by a T-conorm. As ``steepness -> inf`` the silhouette is the hard
    one, 1 where a face is and 0 elsewhere, but for "average"; at every steepness it stays in [0, 1].

    Args:
        image_size: The length of the sides, or (height, width).
        distribution: Name or `Distribution` of F.
        steepness: Inverse temperature, > 0; it may be set from step to step. In images whose shorter side spans
            [-1, 1], so that 100 blurs over a fiftieth of half of it.
        squared: Whether the distance is squared first, keeping its sign: ``F(steepness · |d| d)``.
        tconorm: Name or `TNorm`, or "average": the sum of the probabilities divided by the number of faces.
        cutoff: Drops what the original's release drops: faces outside of which a pixel lies with ``steepness · d² >=
            cutoff`` and probabilities up to 1e-6. None drops nothing.
        straight_through: Whether values are hard, with soft gradients.

    Example:
        >>> renderer = softly.Renderer(image_size=4, distribution="logistic", steepness=100.0)
        >>> camera = softly.rendering.Camera.look_at(distance=4.0)
        >>> renderer.silhouette(softly.rendering.cube(), camera).round(decimals=2)
        tensor([[[0., 0., 0., 0.],
                 [0., 1., 1., 0.],
                 [0., 1., 1., 0.],
                 [0., 0., 0., 0.]]])
    """

    def __init__(
        self,
        image_size: int | tuple[int, int] = 64,
        *,
        distribution: str | Distribution = "uniform",
        steepness: float | Tensor = 100.0,
        squared: bool = False,
        tconorm: str | TNorm = "probabilistic",
        cutoff: float | None = None,
        straight_through: bool = False,
    ) -> None:
        super().__init__(steepness, name="softly.Renderer")
        self.image_size = _image_size(image_size, "softly.Renderer")
        if cutoff is not None and not 0 < cutoff < math.inf:
            raise ValueError(f"softly.Renderer: cutoff must be positive and finite, or None, got {cutoff}.")
        average = isinstance(tconorm, str) and tconorm == "average"
        if average and straight_through:
            raise ValueError("softly.Renderer: 'average' has no hard limit; straight_through needs a T-conorm.")
        self.straight_through = straight_through
        self._choice = Choice(
            distributions.get(distribution),
            bool(squared),
            None if average else tnorms.get(tconorm),
            None if cutoff is None else float(cutoff),
        )

    @staticmethod
    def like(name: str, *, image_size: int | tuple[int, int] = 64, **options: Any) -> Renderer:
        """A renderer that behaves as one of the literature.

        | name | distribution | T-conorm | steepness | |
        | --- | --- | --- | --- | --- |
        | "softras" | logistic, squared | probabilistic | 1e5 | its σ is 1e-5 |
        | "dib-r" | exponential, reversed, squared | probabilistic | 7000 | as released |
        | "nmr", "opendr" | uniform | probabilistic | half the shorter side | hard, with soft gradients over a pixel |
        | "rhodin" | gaussian | probabilistic | 100 | |
        | "logistic" | logistic | probabilistic | 200 | chapter 2's |

        Args:
            name: Of the table.
            image_size: As of the class.
            options: Other arguments of the class, which take the place of these.

        Example:
            >>> softly.Renderer.like("softras", image_size=32)
            Renderer((32, 32), Logistic(), Probabilistic(), squared=True)
        """
        size = _image_size(image_size, "softly.Renderer.like")
        hard = {"distribution": "uniform", "steepness": max(min(size) / 2, 1.0), "straight_through": True}
        known: dict[str, dict[str, Any]] = {
            "softras": {"distribution": "logistic", "squared": True, "steepness": 1e5},
            "dib-r": {
                "distribution": distributions.get("exponential").reversed(),
                "squared": True,
                "steepness": 7000.0,
            },
            "nmr": hard,
            "opendr": hard,
            "rhodin": {"distribution": "gaussian", "steepness": 100.0},
            "logistic": {"distribution": "logistic", "steepness": 200.0},
        }
        if name not in known:
            raise ValueError(f"softly.Renderer.like: unknown renderer {name!r}; choose from {', '.join(known)}.")
        return Renderer(size, **{**known[name], **options})

    def silhouette(self, mesh: Mesh, camera: Camera) -> Tensor:
        """How much of each pixel the mesh covers; faces are seen from both sides.

        Args:
            mesh: The batch of it and that of the camera are broadcast.
            camera: What lies before its near plane or beyond its far plane is cut off.

        Returns:
            (..., height, width) in [0, 1]; the first row is at the top.

        Example:
            >>> renderer = softly.Renderer(image_size=(3, 5), steepness=1e4)
            >>> camera = softly.rendering.Camera.look_at(distance=2.5, elevation=30.0, azimuth=45.0)
            >>> renderer.silhouette(softly.rendering.icosphere(162), camera)
            tensor([[[0., 0., 1., 0., 0.],
                     [0., 1., 1., 1., 0.],
                     [0., 0., 1., 0., 0.]]])
        """
        steepness = self._checked_steepness()
        return _inputs.at_least_single(
            lambda vertices: self._silhouette(_moved(mesh, vertices), camera, steepness), mesh.vertices
        )

    def _silhouette(self, mesh: Mesh, camera: Camera, steepness: float | Tensor) -> Tensor:
        height, width = self.image_size
        corners, seen = polygons(mesh, camera)
        dial = _as_dial(steepness, corners)
        image = silhouette(corners, dial, seen, height, width, self._choice)
        if self._choice.tconorm is None:
            count = mesh.count()
            if isinstance(count, Tensor):
                return image / count.clamp(min=1).to(image)[..., None, None]
            return image / max(count, 1)
        if self.straight_through:
            hard = silhouette(corners.detach(), torch.ones_like(dial), seen, height, width, _HARD[corners.dtype])
            return _straight_through(hard > 0, image)
        return image

    def extra_repr(self) -> str:
        """What the renderer is made of."""
        choice = self._choice
        tconorm = "average" if choice.tconorm is None else choice.tconorm
        return f"{self.image_size}, {choice.distribution}, {tconorm}, squared={choice.squared}"


def _as_dial(steepness: float | Tensor, like: Tensor) -> Tensor:
    if isinstance(steepness, Tensor):
        if steepness.numel() != 1:
            raise ValueError(f"softly.Renderer: steepness must be a single number, got {tuple(steepness.shape)}.")
        return steepness.reshape(()).to(like.device)
    return torch.tensor(steepness, dtype=torch.float64, device=like.device)


def _moved(mesh: Mesh, vertices: Tensor) -> Mesh:
    """The same faces at other vertices."""
    return mesh if vertices is mesh.vertices else Mesh(vertices, mesh.faces)
