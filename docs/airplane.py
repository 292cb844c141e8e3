"""Draws docs/images/airplane.gif: a sphere becomes an airplane that it knows by its silhouettes alone.

`SOFTLY_DATA=FOLDER python docs/airplane.py` takes two minutes; without the folder's mesh it refuses. This is one fit of
`softly run shape --preset standard --aggregation einstein` at the temperature that its search finds, seen from a camera
that flies around it; beside it is the airplane.
"""

from pathlib import Path

import torch

import softly
from softly.rendering import Camera, Lights, save_gif
from softly_lab.experiments.shape import DISTANCE, EXPERIMENT, Shape

SIZE, FRAMES, REST = 128, 36, 8


def main() -> None:
    config = EXPERIMENT.configure("standard", aggregation="einstein")
    task = Shape(config)
    if task.data != config.shape:
        raise SystemExit(f"docs/airplane.py: the mesh is a stand-in, {task.data}; SOFTLY_DATA must name its folder.")
    course = [mesh for mesh, _ in task.fitted(30.0, 10**-1.5, -2.5)]
    renderer = softly.Renderer(SIZE, shading="nearest", background=[1.0, 1.0, 1.0])
    lights = Lights(ambient=0.35, direction=torch.tensor([0.3, 1.0, 0.6]), diffuse=0.55, specular=0.15)
    frames = []
    for number in range(FRAMES + REST):
        done = min(number / (FRAMES - 1), 1.0)
        mesh = course[round(done**2 * (len(course) - 1))]  # most happens in the first steps
        camera = Camera.look_at(distance=DISTANCE, elevation=35.0, azimuth=30.0 + 2.5 * number, fov=26.0)
        with torch.no_grad():
            both = [renderer(seen, camera, lights)[0, :3].clamp(0, 1) for seen in (mesh, task.target)]
        frames.append(torch.cat(both, -1))
    path = Path(__file__).with_name("images") / "airplane.gif"
    save_gif(frames, path, seconds=0.1)
    print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
