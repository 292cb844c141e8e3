"""The generalized differentiable renderer of chapter 5."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from softly import _inputs, distributions, native, tnorms
from softly._steepness import Steep
from softly._straight_through import straight_through as _straight_through
from softly.distributions import Distribution
from softly.rendering.camera import Camera
from softly.rendering.camera import image_size as _image_size
from softly.rendering.clipping import polygons
from softly.rendering.lights import Lights
from softly.rendering.mesh import Mesh
from softly.rendering.rasterize import buffers
from softly.rendering.shading import blended, nearest
from softly.rendering.silhouette import Choice, exact, silhouette
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
        shading: "softmax" blends the colours of all faces, weighted by their coverage and the softmax over how close
            they are; "nearest" takes those of the nearest face.
        cutoff: Drops what the original's release drops: faces outside of which a pixel lies with ``steepness · d² >=
            cutoff`` and probabilities up to 1e-6. None drops nothing.
        background: Three numbers, or a tensor that broadcasts to (..., 3, height, width); black by default.
        double_sided: Whether faces have a colour from behind; silhouettes see them in any case.
        depth_sharpness: Inverse temperature of the softmax over near / depth, > 0.
        straight_through: Whether silhouettes are hard, with soft gradients.
        lighting: Where light is computed: at "pixels", from interpolated places and normals, or at the "corners" of
            faces, whose colours are then interpolated, which is faster and flatter.
        supersampling: An image is the mean over so many times as many rows and columns.

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
        shading: str = "softmax",
        cutoff: float | None = None,
        background: Sequence[float] | Tensor | None = None,
        double_sided: bool = True,
        depth_sharpness: float = 1e4,
        straight_through: bool = False,
        lighting: str = "pixels",
        supersampling: int = 1,
    ) -> None:
        super().__init__(steepness, name="softly.Renderer")
        self.image_size = _image_size(image_size, "softly.Renderer")
        cutoff = None if cutoff is None else _inputs.number(cutoff, "softly.Renderer", "cutoff")
        if cutoff is not None and not 0 < cutoff < math.inf:
            raise ValueError(f"softly.Renderer: cutoff must be positive and finite, or None, got {cutoff}.")
        average = isinstance(tconorm, str) and tconorm == "average"
        if average and straight_through:
            raise ValueError("softly.Renderer: 'average' has no hard limit; straight_through needs a T-conorm.")
        if shading not in ("softmax", "nearest"):
            raise ValueError(f"softly.Renderer: shading must be 'softmax' or 'nearest', got {shading!r}.")
        if lighting not in ("pixels", "corners"):
            raise ValueError(f"softly.Renderer: lighting must be 'pixels' or 'corners', got {lighting!r}.")
        depth_sharpness = _inputs.number(depth_sharpness, "softly.Renderer", "depth_sharpness")
        if not 0 < depth_sharpness < math.inf:
            raise ValueError(f"softly.Renderer: depth_sharpness must be positive and finite, got {depth_sharpness}.")
        self.supersampling = _inputs.integer(supersampling, "softly.Renderer", "supersampling")
        if self.supersampling < 1:
            raise ValueError(f"softly.Renderer: supersampling must be at least 1, got {supersampling}.")
        self.straight_through = _inputs.truth(straight_through, "softly.Renderer", "straight_through")
        self.double_sided = _inputs.truth(double_sided, "softly.Renderer", "double_sided")
        self.shading, self.lighting, self.depth_sharpness = shading, lighting, depth_sharpness
        self.background = background
        self._behind(torch.zeros(()))
        self._choice = Choice(
            distributions.get(distribution),
            _inputs.truth(squared, "softly.Renderer", "squared"),
            None if average else tnorms.get(tconorm),
            cutoff,
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
        _check_scene(mesh, camera)
        return _inputs.at_least_single(
            lambda vertices: self._pooled(self._silhouette(mesh.at(vertices), camera, steepness)), mesh.vertices
        )

    def forward(self, mesh: Mesh, camera: Camera, lights: Lights | None = None) -> Tensor:
        """The image in colours, with the silhouette as its opacity.

        As steepness and depth_sharpness grow, colours are those of the nearest faces. In the light faces that have a
        colour or texels are flat, with the face's normal, and all others smooth, with those of the vertices.

        Args:
            mesh, camera: As of `silhouette`.
            lights: White ambient light by default.

        Returns:
            (..., 4, height, width) Red, green, blue and opacity.

        Example:
            >>> cube = softly.rendering.cube()
            >>> red = softly.rendering.Mesh(cube.vertices, cube.faces, face_colors=torch.eye(3)[:1].expand(12, 3))
            >>> image = softly.Renderer(image_size=4, steepness=1e4)(red, softly.rendering.Camera.look_at(distance=4.0))
            >>> image[0, :, 1, 1], image[0, :, 0, 0]
            (tensor([1., 0., 0., 1.]), tensor([0., 0., 0., 0.]))
        """
        steepness = self._checked_steepness()
        lights = Lights() if lights is None else lights
        _check_scene(mesh, camera)
        if not isinstance(lights, Lights):
            raise TypeError(f"softly.Renderer: lights must be Lights, got {type(lights).__name__}.")
        return _inputs.at_least_single(
            lambda vertices: self._pooled(self._image(mesh.at(vertices), camera, lights, steepness)), mesh.vertices
        )

    def buffers(self, mesh: Any = True, camera: Camera | None = None) -> Any:
        """Depth, normals, number and barycentric coordinates of the nearest face at every pixel, hard.

        Depth and coordinates are differentiable in the vertices, where the same faces stay nearest. Without a mesh and
        a camera these are the buffers of the module, as of every other one.

        Returns:
            `Buffers`

        Example:
            >>> camera = softly.rendering.Camera.look_at(distance=3.0, fov=90.0)
            >>> softly.Renderer(image_size=3).buffers(softly.rendering.cube(), camera).depth
            tensor([[[inf, inf, inf],
                     [inf, 2., inf],
                     [inf, inf, inf]]])
        """
        if camera is None and isinstance(mesh, bool):
            return super().buffers(mesh)
        seen_by = _check_scene(mesh, camera)
        size, both = self.image_size, self.double_sided
        return _inputs.at_least_single(
            lambda vertices: buffers(mesh.at(vertices), seen_by, *size, double_sided=both), mesh.vertices
        )

    def _size(self) -> tuple[int, int]:
        height, width = self.image_size
        return height * self.supersampling, width * self.supersampling

    def _pooled(self, image: Tensor) -> Tensor:
        k = self.supersampling
        if k == 1:
            return image
        return image.unflatten(-1, (-1, k)).unflatten(-3, (-1, k)).mean((-3, -1))

    def _silhouette(self, mesh: Mesh, camera: Camera, steepness: float | Tensor) -> Tensor:
        size, dtype = self._size(), mesh.vertices.dtype
        corners, seen = polygons(mesh.at(exact(mesh.vertices)), camera)
        dial = _as_dial(steepness, corners)
        if self.straight_through:
            shown = silhouette(corners.detach(), torch.ones_like(dial), seen, *size, _HARD[dtype], dtype)
            hard = torch.where(shown.isnan(), shown, (shown > 0).to(dtype))
            if not (torch.is_grad_enabled() or torch.compiler.is_compiling() or native.transformed(corners)):
                return hard  # nobody asks for the derivatives of the soft image
            return _straight_through(hard, silhouette(corners, dial, seen, *size, self._choice, dtype))
        image = silhouette(corners, dial, seen, *size, self._choice, dtype)
        if self._choice.tconorm is None:
            count = mesh.count()
            if isinstance(count, Tensor):
                return image / count.clamp(min=1).to(image)[..., None, None]
            return image / max(count, 1)
        return image

    def _image(self, mesh: Mesh, camera: Camera, lights: Lights, steepness: float | Tensor) -> Tensor:
        opacity = self._silhouette(mesh, camera, steepness)
        behind = self._behind(mesh.vertices)
        _inputs.together("softly.Renderer", background=behind.shape[:-3], images=opacity.shape[:-2])
        size = self._size()
        at_pixels, both = self.lighting == "pixels", self.double_sided
        scene = (camera, lights, *size, behind)
        if self.shading == "nearest":
            colors = nearest(mesh, *scene, at_pixels=at_pixels, double_sided=both)
        else:
            dial = _as_dial(steepness, mesh.vertices)
            how = (dial, self._choice, self.depth_sharpness, mesh.vertices.dtype)
            colors = blended(mesh.at(exact(mesh.vertices)), *scene, *how, at_pixels=at_pixels, double_sided=both)
        batch = torch.broadcast_shapes(colors.shape[:-3], opacity.shape[:-2])
        colors, opacity = colors.expand(*batch, *colors.shape[-3:]), opacity.expand(*batch, *size)
        return torch.cat([colors, opacity.unsqueeze(-3)], -3)

    def _behind(self, like: Tensor) -> Tensor:
        if self.background is None:
            return like.new_zeros(3, 1, 1)
        try:
            found = torch.as_tensor(self.background, dtype=like.dtype, device=like.device)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(
                f"softly.Renderer: background must be numbers or a tensor, got {self.background!r}."
            ) from None
        if found.shape == (3,):
            return found.reshape(3, 1, 1)
        height, width = self.image_size
        if found.ndim < 3 or any(
            size not in (1, of) for size, of in zip(found.shape[-3:], (3, height, width), strict=True)
        ):
            raise ValueError(
                f"softly.Renderer: background must be three numbers, or broadcast to (..., 3, {height}, {width}), "
                f"got {tuple(found.shape)}."
            )
        found, k = found.expand(*found.shape[:-3], 3, height, width), self.supersampling
        return found if k == 1 else found.repeat_interleave(k, -1).repeat_interleave(k, -2)

    def extra_repr(self) -> str:
        """What the renderer is made of."""
        choice = self._choice
        tconorm = "average" if choice.tconorm is None else choice.tconorm
        return f"{self.image_size}, {choice.distribution}, {tconorm}, squared={choice.squared}"


def _check_scene(mesh: Mesh, camera: Camera | None) -> Camera:
    if not isinstance(mesh, Mesh):
        raise TypeError(f"softly.Renderer: mesh must be a Mesh, got {type(mesh).__name__}.")
    if not isinstance(camera, Camera):
        raise TypeError(f"softly.Renderer: camera must be a Camera, got {type(camera).__name__}.")
    return camera


def _as_dial(steepness: float | Tensor, like: Tensor) -> Tensor:
    if isinstance(steepness, Tensor):
        if steepness.numel() != 1:
            raise ValueError(f"softly.Renderer: steepness must be a single number, got {tuple(steepness.shape)}.")
        return steepness.reshape(()).to(like.device)
    return torch.tensor(steepness, dtype=torch.float64, device=like.device)
