"""Terrain maps with hidden costs, on which shortest paths are learned: a stand-in for the chapters' Warcraft maps.

A map has 12×12 cells of 8×8 pixels: water by a smooth height, woods by a smooth moisture, in five kinds with the costs
of the Warcraft maps. Pictures are put together of tiles, or drawn where there are none.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from softly_lab.data import available, folder, readable

CELLS, PIXELS = 12, 8

# Costs in tenths, so that sums are exact: grass, sand, woods, shallow and deep water.
COSTS = np.array([8, 12, 53, 77, 92], dtype=np.int32)
# Tiles by their colours, which their names don't always tell; woods are trees on grass.
TILES: tuple[tuple[str, ...], ...] = (
    ("dirt_full",),
    tuple(f"sand{number}" for number in range(1, 9)),
    ("tree1_red", "tree1_lightred", "tree2_yellow", "mangrove1", "mangrove3"),
    ("shallow_water", "shallow_water2"),
    ("deep_water", "deep_water2"),
)
_TOGETHER = 256  # maps whose paths are looked for at once
_COLOURS = ((44, 107, 31), (144, 116, 67), (30, 66, 22), (29, 69, 87), (11, 37, 64))


@dataclass(frozen=True)
class Maps:
    """Maps whose shortest path from the top left to the bottom right is the only one, and not the diagonal.

    Attributes:
        images: (n, 3, 96, 96) From 0 to 1.
        costs: (n, 12, 12) Of stepping on a cell.
        paths: (n, 12, 12) 1 on the shortest path, its ends among them.
        drawn: Whether they are drawn, since the tiles are not there.
    """

    images: Tensor
    costs: Tensor
    paths: Tensor
    drawn: bool

    def __len__(self) -> int:
        return len(self.images)


def maps(count: int, seed: int) -> Maps:
    """So many maps, the same for a seed."""
    rng = np.random.default_rng(seed)
    kinds, paths = [], []
    found = 0
    while found < count:
        drawn = landscapes(max(256, 4 * (count - found)), rng)  # most of them have several shortest paths
        path, unique = shortest_paths(COSTS[drawn])
        kept = unique & (path.sum((1, 2)) > CELLS)  # the diagonal says nothing of the map
        kinds.append(drawn[kept])
        paths.append(path[kept])
        found += int(kept.sum())
    kind, path = np.concatenate(kinds)[:count], np.concatenate(paths)[:count]
    there = available("terrain-tiles")
    images = pictures(kind, tiles(folder("terrain-tiles")) if there else drawn_tiles(), rng)
    return Maps(
        torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255,
        torch.from_numpy(COSTS[kind] / 10).float(),
        torch.from_numpy(path).float(),
        not there,
    )


def landscapes(count: int, rng: np.random.Generator) -> np.ndarray:
    """Kinds of cells, (count, 12, 12): water where it is low, sand along it, woods where it is moist, else grass."""
    height, moisture = (_smooth(count, rng) for _ in range(2))
    level = rng.uniform(0.3, 0.55, (count, 1, 1))
    kind = np.where(moisture > rng.uniform(0.35, 0.6, (count, 1, 1)), 2, 0)
    kind = np.where(height < level + 0.2, 1, kind)
    kind = np.where(height < level, 3, kind)
    return np.where(height < 0.6 * level, 4, kind)


def _smooth(count: int, rng: np.random.Generator) -> np.ndarray:
    """Random fields in which neighbours are alike, evenly spread over [0, 1] on each map."""
    axis = np.arange(CELLS)
    distance = np.abs(axis[:, None] - axis[None, :])
    blur = np.exp(-((distance / 1.6) ** 2))
    blur /= np.linalg.norm(blur, axis=1, keepdims=True)
    rough, fine = rng.standard_normal((2, count, CELLS, CELLS))
    noise = blur @ rough @ blur.T + 0.1 * fine
    order = noise.reshape(count, -1).argsort(-1).argsort(-1)
    return order.reshape(noise.shape) / (CELLS * CELLS - 1)


def shortest_paths(costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The shortest paths between opposite corners, steps to all eight neighbours, and whether they are the only ones.

    Args:
        costs: (n, rows, columns) Whole numbers > 0.

    Returns:
        (n, rows, columns) Where shortest paths go, and (n,).
    """
    there = _distances(costs)
    back = _distances(costs[:, ::-1, ::-1])[:, ::-1, ::-1]
    least = there[:, -1:, -1:]
    path = there + back - costs == least
    # Every path of the least cost goes over some of these cells. All of them cost as much only if it goes over all.
    return path, (path * costs).sum((1, 2)) == least[:, 0, 0]


def _distances(costs: np.ndarray) -> np.ndarray:
    """What it costs to get to every cell from the first one, both included."""
    parts = np.array_split(costs, -(-len(costs) // _TOGETHER))
    return np.concatenate([_settled(part) for part in parts])


def _settled(costs: np.ndarray) -> np.ndarray:
    """The same for as many maps as fit the cache."""
    n, rows, columns = costs.shape
    padded = np.full((n, rows + 2, columns + 2), np.iinfo(costs.dtype).max // 4, dtype=costs.dtype)
    distance = padded[:, 1:-1, 1:-1]
    distance[:, 0, 0] = costs[:, 0, 0]
    while True:
        across = np.minimum(np.minimum(padded[:, :, :-2], padded[:, :, 1:-1]), padded[:, :, 2:])
        around = np.minimum(np.minimum(across[:, :-2], across[:, 1:-1]), across[:, 2:])
        shorter = np.minimum(distance, around + costs)
        if (shorter == distance).all():
            return distance
        distance[:] = shorter


def pictures(kinds: np.ndarray, bank: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """(n, 96, 96, 3) Bytes: a random tile of its kind for every cell."""
    cells = np.empty((*kinds.shape, PIXELS, PIXELS, 3), dtype=np.uint8)
    for kind, choices in enumerate(bank):
        places = kinds == kind
        cells[places] = choices[rng.integers(len(choices), size=int(places.sum()))]
    n = len(kinds)
    return cells.transpose(0, 1, 3, 2, 4, 5).reshape(n, CELLS * PIXELS, CELLS * PIXELS, 3)


def tiles(path: Path) -> list[np.ndarray]:
    """The tiles of each kind, (choices, 8, 8, 3) bytes, each in its four mirror images."""
    from PIL import Image

    with readable(path / f"{TILES[0][0]}.png"):
        grass = Image.open(path / f"{TILES[0][0]}.png").convert("RGBA")
    bank = []
    for names in TILES:
        found = []
        for name in names:
            with readable(path / f"{name}.png"):
                tile = Image.alpha_composite(grass, Image.open(path / f"{name}.png").convert("RGBA")).convert("RGB")
            small = np.asarray(tile.resize((PIXELS, PIXELS), Image.Resampling.BOX))
            found += [small, small[::-1], small[:, ::-1], small[::-1, ::-1]]
        bank.append(np.stack(found))
    return bank


def drawn_tiles() -> list[np.ndarray]:
    """Tiles in the colours of the kinds with a little noise, for where there are none."""
    rng = np.random.default_rng(0)
    noisy = [np.array(colour) + rng.normal(0, 9, (16, PIXELS, PIXELS, 1)) for colour in _COLOURS]
    return [choices.clip(0, 255).astype(np.uint8) for choices in noisy]
