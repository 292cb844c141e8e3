"""Triangle meshes, batched."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor

from softly import _inputs, native
from softly.rendering import files
from softly.rendering import textures as _textures
from softly.rendering.stored import Stored
from softly.rendering.vectors import unit

__all__ = ["Mesh"]

_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8)


class Mesh:
    """Triangles in space: vertices, and faces that are three of them each, with colours where they have some.

    Moving a vertex moves every face that has it: all that is computed of a mesh is differentiable in its vertices and
    in its colours and textures.

    Args:
        vertices: (..., V, 3) Points of the world, right-handed with y up; (V, 3) is a batch of one.
        faces: (F, 3) Vertices of each face, of all meshes of the batch; counter-clockwise as seen from outside. Or
            (..., F, 3) with the batch of ``vertices``, whose rows of -1 are no faces: what `join` makes.
        vertex_colors: (..., V, 3) Red, green and blue in [0, 1].
        face_colors: (..., F, 3) The same for each face.
        textures: (..., F, R², 3) Texels of each face: R² triangles alike, in the order of SoftRas. Or with ``uvs``
            (..., 3, H, W) an image that is wrapped around the mesh: bilinear between the centres of its pixels, and
            repeated beyond its borders.
        uvs: (..., F, 3, 2) Where in the image the corners of faces are: (0, 0) is its lower left corner, (1, 1) its
            upper right one. Of coordinates (V, 2) that vertices have, ``mesh.corners(uvs)``.

    Example:
        >>> mesh = softly.rendering.Mesh(torch.eye(3), torch.tensor([[0, 1, 2]]))
        >>> mesh.vertices.shape, mesh.normals()
        (torch.Size([1, 3, 3]), tensor([[[0.5774, 0.5774, 0.5774]]]))
    """

    def __init__(
        self,
        vertices: Tensor,
        faces: Tensor,
        *,
        vertex_colors: Tensor | None = None,
        face_colors: Tensor | None = None,
        textures: Tensor | None = None,
        uvs: Tensor | None = None,
    ) -> None:
        name = "softly.rendering.Mesh"
        _inputs.floating(vertices, name, "vertices")
        if vertices.ndim < 2 or vertices.shape[-1] != 3:
            raise ValueError(f"{name}: vertices must have shape (..., V, 3), got {tuple(vertices.shape)}.")
        self.vertices = vertices if vertices.ndim > 2 else vertices.unsqueeze(0)
        self.faces = _checked_faces(faces, self.vertices, name)
        self.vertex_colors = self._colors(vertex_colors, "vertex_colors", self.vertices.shape[-2])
        self.face_colors = self._colors(face_colors, "face_colors", self.faces.shape[-2])
        self.textures, self.uvs = _textures.checked(textures, uvs, self.faces.shape[-2])
        batches = {"vertices": self.vertices.shape[:-2], "faces": self.faces.shape[:-2]}
        owns = {"vertex_colors": 2, "face_colors": 2, "textures": 3, "uvs": 3}
        found = {part: getattr(self, part) for part in owns}
        batches |= {part: x.shape[: -owns[part]] for part, x in found.items() if x is not None}
        _inputs.together(name, **batches)
        kinds = {"vertex_colors": vertex_colors, "face_colors": face_colors, "textures": textures}
        given = [kind for kind, value in kinds.items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"{name}: a mesh has one of {', '.join(kinds)}, got {' and '.join(given)}.")

    def _colors(self, colors: Tensor | None, argument: str, count: int) -> Tensor | None:
        if colors is None:
            return None
        name = "softly.rendering.Mesh"
        _inputs.floating(colors, name, argument)
        colors = colors if colors.ndim > 2 else colors.unsqueeze(0)
        if colors.shape[-2:] != (count, 3):
            raise ValueError(f"{name}: {argument} must have shape (..., {count}, 3), got {tuple(colors.shape)}.")
        return colors

    def __repr__(self) -> str:
        batch = "×".join(str(size) for size in self.vertices.shape[:-2])
        return f"Mesh({batch} of {self.vertices.shape[-2]} vertices and {self.faces.shape[-2]} faces)"

    def at(self, vertices: Tensor) -> Mesh:
        """The same faces, colours and textures at other vertices.

        Example:
            >>> cube = softly.rendering.cube()
            >>> cube.at(2.0 * cube.vertices).vertices.max()
            tensor(2.)
        """
        if vertices is self.vertices:
            return self
        colors = {"vertex_colors": self.vertex_colors, "face_colors": self.face_colors, "textures": self.textures}
        return Mesh(vertices, self.faces, **colors, uvs=self.uvs)

    @property
    def present(self) -> Tensor | None:
        """(..., F) Which rows of ``faces`` are faces; None where all are.

        Example:
            >>> softly.rendering.cube().present is None
            True
        """
        return self.faces[..., 0] >= 0 if self.faces.ndim > 2 else None

    def count(self) -> Tensor | int:
        """How many faces there are: a number, or (...) one for each mesh of the batch.

        Example:
            >>> softly.rendering.cube().count()
            12
        """
        present = self.present
        return self.faces.shape[0] if present is None else present.sum(-1)

    def corners(self, values: Tensor | None = None) -> Tensor:
        """The vertices of each face, or other ``values`` (..., V, C) that vertices have.

        Returns:
            (..., F, 3, C)

        Example:
            >>> softly.rendering.cube().corners().shape
            torch.Size([1, 12, 3, 3])
        """
        faces, count = self.faces, self.vertices.shape[-2]
        if values is None:
            values = self.vertices
        else:
            name = "softly.rendering.Mesh.corners"
            _inputs.floating(values, name, "values")
            if values.ndim < 2 or values.shape[-2] != count:
                raise ValueError(f"{name}: values must have shape (..., {count}, C), got {tuple(values.shape)}.")
            _inputs.together(name, values=values.shape[:-2], faces=faces.shape[:-2])
        batch = torch.broadcast_shapes(values.shape[:-2], faces.shape[:-2])
        # gather, since the derivative of index_select takes several times as long.
        index = faces.clamp(min=0).flatten(-2).unsqueeze(-1).expand(*batch, -1, values.shape[-1])
        found = values.expand(*batch, *values.shape[-2:]).gather(-2, index)
        return found.unflatten(-2, (faces.shape[-2], 3))

    def normals(self) -> Tensor:
        """(..., F, 3) The faces' unit normals, outward where their vertices are counter-clockwise; 0 without area.

        Example:
            >>> softly.rendering.cube().normals()[0, 0]
            tensor([0., 0., 1.])
        """
        return unit(self._area_vectors())

    def vertex_normals(self) -> Tensor:
        """(..., V, 3) The unit normals of the vertices: their faces' normals, weighted by area.

        Example:
            >>> sphere = softly.rendering.icosphere(642)
            >>> bool((sphere.vertex_normals() * sphere.vertices).sum(-1).min() > 0.999)
            True
        """
        areas = self._area_vectors()
        present = self.present
        if present is not None:
            areas = torch.where(present.unsqueeze(-1), areas, 0.0)
        shape = (*areas.shape[:-2], self.vertices.shape[-2], 3)
        spread = areas.unsqueeze(-2).expand(*areas.shape[:-1], 3, 3).flatten(-3, -2)
        index = self.faces.clamp(min=0).flatten(-2).unsqueeze(-1).expand_as(spread)
        return unit(areas.new_zeros(shape).scatter_add(-2, index, spread))

    def _area_vectors(self) -> Tensor:
        a, b, c = self.corners().unbind(-2)
        return torch.linalg.cross(b - a, c - a)

    @staticmethod
    def load(path: str | os.PathLike[str], *, textures: bool = True) -> Mesh:
        """Read a mesh from a file: OBJ, also with .gz, or PLY; other formats by trimesh.

        Polygons become triangles; colours of vertices and faces, the diffuse colours of materials, texture coordinates
        and the image of the materials are kept. A library of materials or an image that isn't there is passed over.

        Args:
            path: The file.
            textures: Whether images are read, by Pillow. A mesh has one: of files with several take False.

        Raises:
            ValueError: With the line and the reason, where the file is malformed.

        Example:
            >>> import pathlib, tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = pathlib.Path(folder) / "square.obj"
            ...     _ = path.write_text("v 0 0 0\\nv 1 0 0\\nv 1 1 0\\nv 0 1 0\\nf 1 2 3 -1\\n")
            ...     softly.rendering.Mesh.load(path)
            Mesh(1 of 4 vertices and 2 faces)
        """
        found = files.read(path, textures=textures)
        tensor = lambda x: None if x is None else torch.from_numpy(x).to(torch.get_default_dtype())  # noqa: E731
        return Mesh(
            torch.from_numpy(found.vertices).to(torch.get_default_dtype()),
            torch.from_numpy(found.faces),
            vertex_colors=tensor(found.vertex_colors),
            face_colors=tensor(found.face_colors),
            textures=tensor(found.texture),
            uvs=tensor(found.uvs),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the only mesh of a batch to an OBJ or a PLY file, with its colours.

        OBJ files have materials beside them, and an image where the mesh has one, at eight bits a colour.

        Example:
            >>> import pathlib, tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = pathlib.Path(folder) / "cube.ply"
            ...     softly.rendering.cube().save(path)
            ...     softly.rendering.Mesh.load(path)
            Mesh(1 of 8 vertices and 12 faces)
        """
        name = "softly.rendering.Mesh.save"
        if self.textures is not None and self.uvs is None:
            raise ValueError(
                f"{name}: files have no texels of faces; save a mesh with an image and uvs, or with face_colors."
            )
        whole = {"vertices": (self.vertices, 2), "faces": (self.faces, 2), "vertex_colors": (self.vertex_colors, 2)}
        whole |= {"face_colors": (self.face_colors, 2), "textures": (self.textures, 3), "uvs": (self.uvs, 3)}
        for part, (tensor, own) in whole.items():
            if tensor is None:
                continue
            if tensor.shape[:-own].numel() != 1:
                raise ValueError(f"{name}: a file has one mesh, got {part} of shape {tuple(tensor.shape)} in {self}.")
            if not bool(tensor.isfinite().all()):
                raise ValueError(f"{name}: {part} must be finite in files, got others.")
            if part.endswith("colors") and not bool(((tensor >= 0) & (tensor <= 1)).all()):
                raise ValueError(f"{name}: {part} must be in [0, 1] in files, got others; clamp them.")
        faces = self.faces.reshape(-1, 3)
        there = faces[:, 0] >= 0
        array = lambda x: x.detach().cpu().double().reshape(-1, 3).numpy()  # noqa: E731
        stored = Stored(
            array(self.vertices),
            faces[there].cpu().numpy(),
            None if self.vertex_colors is None else array(self.vertex_colors),
            None if self.face_colors is None else array(self.face_colors.reshape(-1, 3)[there]),
            None if self.uvs is None else self.uvs.detach().cpu().double().reshape(-1, 3, 2)[there.cpu()].numpy(),
            None
            if self.textures is None
            else self.textures.detach().cpu().double().numpy().reshape(self.textures.shape[-3:]),
        )
        files.write(path, stored)

    @staticmethod
    def join(meshes: Sequence[Mesh]) -> Mesh:
        """One batch of meshes that needn't have the same faces; what is missing is padded, and not seen.

        Args:
            meshes: Each with one batch dimension, all with colours of one kind or none, and textures of one size.

        Example:
            >>> cube, sphere = softly.rendering.cube(), softly.rendering.icosphere(12)
            >>> softly.rendering.Mesh.join([cube, sphere])
            Mesh(2 of 12 vertices and 20 faces)
        """
        name = "softly.rendering.Mesh.join"
        if isinstance(meshes, Mesh) or not all(isinstance(mesh, Mesh) for mesh in meshes):
            raise TypeError(f"{name}: meshes must be a sequence of them, got {meshes!r}.")
        if not meshes:
            raise ValueError(f"{name}: meshes must have at least one entry, got none.")
        for mesh in meshes:
            if mesh.vertices.ndim != 3:
                raise ValueError(f"{name}: a mesh must have one batch dimension, got {tuple(mesh.vertices.shape)}.")
        most = max(mesh.vertices.shape[1] for mesh in meshes)
        longest = max(mesh.faces.shape[-2] for mesh in meshes)
        faces = [
            (mesh.faces if mesh.faces.ndim > 2 else mesh.faces.unsqueeze(0)).expand(mesh.vertices.shape[0], -1, -1)
            for mesh in meshes
        ]
        mapped = any(mesh.uvs is not None for mesh in meshes)
        return Mesh(
            torch.cat([_padded(mesh.vertices, most, 0) for mesh in meshes]),
            torch.cat([_padded(f, longest, -1) for f in faces]),
            vertex_colors=_joined([m.vertex_colors for m in meshes], meshes, most, name),
            face_colors=_joined([m.face_colors for m in meshes], meshes, longest, name),
            textures=_joined([m.textures for m in meshes], meshes, None if mapped else longest, name),
            uvs=_joined([m.uvs for m in meshes], meshes, longest, name),
        )


def _padded(x: Tensor, rows: int, value: float) -> Tensor:
    return torch.nn.functional.pad(x, (*(0, 0) * (x.ndim - 2), 0, rows - x.shape[1]), value=value)


def _joined(values: list[Tensor | None], meshes: Sequence[Mesh], rows: int | None, name: str) -> Tensor | None:
    """What meshes have as one batch, each made so many rows long; None for as long as they are."""
    known = [v.expand(m.vertices.shape[0], *v.shape[1:]) for v, m in zip(values, meshes, strict=True) if v is not None]
    if not known:
        return None
    if len(known) < len(values):
        raise ValueError(f"{name}: all meshes need colours of the same kind, got {len(known)} of {len(values)}.")
    known = known if rows is None else [_padded(v, rows, 0) for v in known]
    if len({v.shape[1:] for v in known}) > 1:
        sizes = " and ".join(sorted({str(tuple(v.shape[1:])) for v in known}))
        raise ValueError(f"{name}: all textures must have the same size, got {sizes}; resize them.")
    return torch.cat(known)


def _checked_faces(faces: Tensor, vertices: Tensor, name: str) -> Tensor:
    if not isinstance(faces, Tensor) or faces.dtype not in _INTEGERS:
        kind = faces.dtype if isinstance(faces, Tensor) else type(faces).__name__
        raise TypeError(f"{name}: faces must be a tensor of integers, got {kind}.")
    if faces.ndim < 2 or faces.shape[-1] != 3:
        raise ValueError(f"{name}: faces must have shape (F, 3) or (..., F, 3), got {tuple(faces.shape)}.")
    known, count = native.data(faces), vertices.shape[-2]
    if known is not None and known.numel() and known.device.type == "cpu":
        low, high = (int(bound) for bound in torch.aminmax(known))
        if high >= count or low < (0 if faces.ndim == 2 else -1):
            wrong = high if high >= count else low
            raise ValueError(f"{name}: faces must name vertices 0 to {count - 1}, got {wrong}.")
        if low < 0 and not bool(((known < 0).sum(-1) % 3 == 0).all()):
            raise ValueError(f"{name}: a row of faces that is none must be -1 throughout, got one that is in part.")
    return faces.long()
