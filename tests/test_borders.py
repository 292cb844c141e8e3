"""Every border of PyTorch on every operator, each in a process that has not called softly before."""

import borders
import contract

ROWS = {row.name: row for row in contract.ROWS}


def cross(name: str, border: str) -> None:
    borders.BORDERS[border](ROWS[name])


def export(name: str, path: str) -> None:
    borders.export(ROWS[name], path)


def load(name: str, path: str) -> None:
    borders.load(ROWS[name], path)
