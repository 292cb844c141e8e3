"""Data sets: looked for in the folder that the environment variable SOFTLY_DATA names, then among what was fetched."""

import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from softly_lab.data import catalog


def folder(name: str) -> Path:
    """The folder of a data set, the first one with all its files or else with some.

    Raises FileNotFoundError, with what to do, where there is none.
    """
    entry = catalog.get(name)
    for found in (entry.complete, entry.begun):
        for path in filter(found, _places(name)):
            return path
    root = os.environ.get("SOFTLY_DATA")
    where = f"SOFTLY_DATA, {root}, has no folder {name} with its files" if root else "SOFTLY_DATA names no folder"
    raise FileNotFoundError(
        f"{name} is not there: {where}, and it was not fetched. To get it: softly data fetch {name}"
    )


def available(name: str) -> bool:
    """Whether all of the data set is there, so that no stand-in is needed."""
    return any(map(catalog.get(name).complete, _places(name)))


def begun(name: str) -> bool:
    """Whether some of it is there."""
    return any(map(catalog.get(name).begun, _places(name)))


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Read a file of a data set; raises ValueError, with the file and the reason, where it is damaged."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except (
        OSError,
        EOFError,
        zlib.error,
        zipfile.BadZipFile,
        LookupError,
        ValueError,
        TypeError,
        SyntaxError,
    ) as error:
        raise ValueError(f"{path}: this file is damaged: {error or type(error).__name__}.") from None


def _places(name: str) -> list[Path]:
    """Where it is looked for, in this order."""
    root = os.environ.get("SOFTLY_DATA")
    return [*([Path(root) / name] if root else []), catalog.kept() / name]
