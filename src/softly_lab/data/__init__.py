"""Data sets: looked for in the folder that the environment variable SOFTLY_DATA names, then among what was fetched."""

import os
from pathlib import Path

from softly_lab.data import catalog


def folder(name: str) -> Path:
    """The folder of a data set; raises FileNotFoundError, with what to do, where there is none."""
    root = os.environ.get("SOFTLY_DATA")
    for path in ([Path(root) / name] if root else []) + [catalog.kept() / name]:
        if path.is_dir():
            return path
    where = f"SOFTLY_DATA, {root}, has no folder {name}" if root else "SOFTLY_DATA names no folder"
    known = catalog.sets().get(name)
    remedy = f"softly data fetch {name}" if known and known.fetchable else f"softly data list says where {name} is from"
    raise FileNotFoundError(f"{name} is not there: {where}, and it was not fetched. To get it: {remedy}")


def available(name: str) -> bool:
    """Whether the data set is there, so that no stand-in is needed."""
    try:
        return folder(name).is_dir()
    except FileNotFoundError:
        return False
