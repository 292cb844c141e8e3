"""Data sets, read from the folder that the environment variable SOFTLY_DATA names."""

import os
from pathlib import Path


def folder(name: str) -> Path:
    """The folder of a data set; raises FileNotFoundError, with what to do, where there is none."""
    root = os.environ.get("SOFTLY_DATA")
    if root is None:
        raise FileNotFoundError(f"{name} is read from the folder that the environment variable SOFTLY_DATA names.")
    path = Path(root) / name
    if not path.is_dir():
        raise FileNotFoundError(f"SOFTLY_DATA has no folder {name}.")
    return path


def available(name: str) -> bool:
    """Whether the data set is there, so that no stand-in is needed."""
    try:
        return folder(name).is_dir()
    except FileNotFoundError:
        return False
