"""A silhouette and its gradient in the vertices by Mitsuba 3, where that and its LLVM are installed.

Mitsuba traces rays: the surface shines and nothing else does, so that the image is the hard silhouette, averaged over
the samples of each pixel; the gradient is that of its moving border, of as many samples (`direct_projective`). It needs
LLVM, which DRJIT_LIBLLVM_PATH names; some versions end the process, so that it is tried out in one of its own.
"""

import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

SAMPLES = 16


def missing() -> str | None:
    """Why there is no Mitsuba here; None where there is."""
    try:
        tried = subprocess.run([sys.executable, "-m", __name__], capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return "no Mitsuba: it took longer than five minutes"
    if tried.returncode == 0:
        return None
    lines = [line for line in tried.stderr.splitlines() if "rror" in line] or [f"it ended with {tried.returncode}"]
    return f"no Mitsuba: {lines[0][:120]}"


def silhouette(
    vertices: Tensor, faces: Tensor, size: int, *, distance: float, elevation: float, azimuth: float, fov: float
) -> Callable[[], Any]:
    """A call that makes the image and its gradient, of vertices (V, 3) and faces (F, 3), on one thread."""
    import drjit
    import mitsuba

    mitsuba.set_variant("llvm_ad_mono")
    mitsuba.set_log_level(mitsuba.LogLevel.Error)
    drjit.set_thread_count(1)
    mesh = mitsuba.Mesh("mesh", vertex_count=len(vertices), face_count=len(faces))
    params = mitsuba.traverse(mesh)
    params["vertex_positions"] = vertices.flatten().numpy()
    params["faces"] = faces.int().flatten().numpy().astype("uint32")
    params.update()
    e, a = math.radians(elevation), math.radians(azimuth)
    eye = [distance * x for x in (math.cos(e) * math.sin(a), math.sin(e), math.cos(e) * math.cos(a))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mesh.ply"
        mesh.write_ply(str(path))
        scene = mitsuba.load_dict(
            {
                "type": "scene",
                "integrator": {"type": "direct_projective", "sppc": SAMPLES, "sppp": SAMPLES, "sppi": 0},
                "sensor": {
                    "type": "perspective",
                    "fov": fov,
                    "fov_axis": "smaller",
                    "to_world": mitsuba.ScalarTransform4f().look_at(origin=eye, target=[0, 0, 0], up=[0, 1, 0]),
                    "film": {
                        "type": "hdrfilm",
                        "width": size,
                        "height": size,
                        "rfilter": {"type": "box"},
                        "pixel_format": "luminance",
                    },
                },
                "mesh": {
                    "type": "ply",
                    "filename": str(path),
                    "emitter": {"type": "area", "radiance": {"type": "uniform", "value": 1.0}},
                },
            }
        )
    moving = mitsuba.traverse(scene)
    key = "mesh.vertex_positions"

    def call() -> Any:
        drjit.enable_grad(moving[key])
        moving.update()
        image = mitsuba.render(scene, moving, spp=SAMPLES)
        drjit.backward(drjit.sum(image))
        gradient = drjit.grad(moving[key])
        drjit.eval(gradient, image)
        drjit.sync_thread()
        return image, gradient

    return call


if __name__ == "__main__":
    import torch

    corners = torch.tensor([[-1.0, -1.0, 0.0], [1.0, -1.0, 0.0], [0.0, 1.0, 0.0]])
    silhouette(corners, torch.tensor([[0, 1, 2]]), 8, distance=2.7, elevation=30.0, azimuth=45.0, fov=60.0)()
