"""A table that a user brings, csv or npz: numbers stay numbers, texts become columns of 0 and 1."""

import csv
import math
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MISSING = {"", "?", "na", "n/a", "nan", "null", "none"}  # in small letters
_MOST_KINDS = 100  # different texts of a column
_MOST_CLASSES = 256
_NUMBERS_AS_CLASSES = 20  # so many different whole numbers are still taken for classes

# Of numbers, NaN where they are missing; or of texts, None where they are missing.
Column = np.ndarray | list[str | None]


@dataclass(frozen=True)
class Table:
    """Rows of numbers, and what is to be learned from them.

    Attributes:
        columns: Names. Where a column ``colour`` has texts, there is a column ``colour=red`` of 0 and 1 for each.
        rows: (n, columns) Numbers, NaN where they are missing.
        target: (n,) Numbers of classes, or the numbers to predict.
        classes: Names of the classes; empty where numbers are to be predicted.
        skipped: How many rows were left out because they have no target.
    """

    columns: tuple[str, ...]
    rows: np.ndarray
    target: np.ndarray
    classes: tuple[str, ...]
    skipped: int


def read(path: Path, target: str, *, drop: Collection[str] = (), task: str = "auto") -> Table:
    """Read a table; a ValueError says what is wrong with it.

    Args:
        path: A csv file with a header, its fields parted by commas, semicolons, tabs or bars; or a npz file with an
            array a column, or of several columns.
        target: The column to learn.
        drop: Columns to leave out.
        task: "classes", "numbers", or "auto": texts and up to 20 different whole numbers are classes.
    """
    found = _npz(path) if path.suffix.lower() == ".npz" else _csv(path)
    for name in (target, *drop):
        if name not in found:
            raise ValueError(f"{path}: there is no column {_short(name)}; there are {_listed(found)}.")
    wanted = found.pop(target)
    found = {name: column for name, column in found.items() if name not in drop}
    known = np.array([value is not None and value == value for value in wanted])
    if not known.any():
        raise ValueError(f"{path}: column {_short(target)} is empty.")
    numbers, classes = _target(wanted, known, f"{path}: column {_short(target)}", task)
    names, columns = [], []
    for name, column in found.items():
        if isinstance(column, np.ndarray):
            if np.isinf(column).any():
                raise ValueError(f"{path}: column {_short(name)} has infinite numbers.")
            names.append(name)
            columns.append(column)
            continue
        kinds = sorted({text for text in column if text is not None})
        if len(kinds) > _MOST_KINDS:
            raise ValueError(
                f"{path}: column {_short(name)} has {len(kinds)} different texts, such as {_short(kinds[-1])}; "
                f"{_MOST_KINDS} are the most. Leave it out with --drop."
            )
        names += [f"{name}={kind}" for kind in kinds]
        columns += [np.array([text == kind for text in column], dtype=np.float64) for kind in kinds]
    if not columns:
        raise ValueError(f"{path}: there is no column but {_short(target)} to learn from.")
    return Table(tuple(names), np.stack(columns, 1)[known], numbers, classes, int((~known).sum()))


def _target(column: Column, known: np.ndarray, where: str, task: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Numbers of classes and their names, or numbers and none."""
    values = [value for value, there in zip(column, known, strict=True) if there]
    different = sorted(set(values))
    whole = isinstance(column, np.ndarray) and all(float(value).is_integer() for value in different)
    if task == "numbers" or (task == "auto" and isinstance(column, np.ndarray)):
        if not isinstance(column, np.ndarray):
            text = next(value for value in values if _number(value) is None)
            raise ValueError(f"{where} has texts, such as {_short(text)}, which can't be predicted as numbers.")
        if task == "numbers" or not whole or len(different) > _NUMBERS_AS_CLASSES:
            if np.isinf(column).any():
                raise ValueError(f"{where} has infinite numbers.")
            if len(different) < 2:
                raise ValueError(f"{where} is the same in all rows: there is nothing to learn.")
            return column[known], ()
    if len(different) < 2:
        raise ValueError(f"{where} has one class only, {_short(str(different[0]))}: there is nothing to learn.")
    if len(different) > _MOST_CLASSES:
        raise ValueError(f"{where} has {len(different)} classes; {_MOST_CLASSES} are the most.")
    code = {value: number for number, value in enumerate(different)}
    names = tuple(str(int(value)) if whole else str(value) for value in different)
    return np.array([code[value] for value in values]), names


def _csv(path: Path) -> dict[str, Column]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            delimiter = max(",;\t|", key=first.count)
            reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True, strict=True)
            header = [name.strip() for name in next(reader, [])]
            rows: list[list[str]] = []
            for row in reader:
                if row and len(row) != len(header):
                    raise ValueError(f"{path}, line {reader.line_num}: {len(row)} fields instead of {len(header)}.")
                rows += [row] if row else []
    except UnicodeDecodeError:
        raise ValueError(f"{path}: this is no text in UTF-8.") from None
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}.") from None
    if not header or not rows:
        raise ValueError(f"{path}: there are no rows below a header.")
    # Spreadsheets and pandas leave the header of a column of row numbers empty.
    header = [name or f"column {number}" for number, name in enumerate(header, 1)]
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise ValueError(f"{path}: two columns are called {_short(twice)}.")
    return {name: _column(column) for name, column in zip(header, zip(*rows, strict=True), strict=True)}


def _npz(path: Path) -> dict[str, Column]:
    try:
        # Opened here, since a file that is none would be left open by numpy.
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise ValueError("it is a single array")
            arrays = {name: loaded[name] for name in loaded.files}
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: this is no npz file of numbers and texts: {error}.") from None
    lengths = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if not arrays or len(set(lengths.values())) != 1 or not all(lengths.values()):
        raise ValueError(f"{path}: its arrays must have the same number of rows, at least one; got {lengths}.")
    found: dict[str, Column] = {}
    for name, array in arrays.items():
        if array.dtype.kind not in "buifUS":
            raise ValueError(f"{path}: array {_short(name)} is {array.dtype}, neither numbers nor texts.")
        flat = array.reshape(len(array), -1)
        for number, column in enumerate(flat.T):
            key = name if array.ndim == 1 else f"{name}_{number}"
            if array.dtype.kind in "US":
                found[key] = _column(column.astype(str).tolist())
            else:
                found[key] = column.astype(np.float64)
    return found


def _column(texts: Collection[str]) -> Column:
    """Numbers where all of the texts are some."""
    values = [None if text.strip().lower() in MISSING else text.strip() for text in texts]
    numbers = [math.nan if value is None else _number(value) for value in values]
    return values if None in numbers else np.array(numbers, dtype=np.float64)


def _number(text: str | None) -> float | None:
    try:
        return None if text is None or "_" in text else float(text)
    except ValueError:
        return None


def _short(name: str) -> str:
    """A name from a file, as it can be shown: without control characters, and not too long."""
    return repr(name if len(name) <= 40 else f"{name[:40]}…")


def _listed(names: Collection[str]) -> str:
    shown = [_short(name) for name in list(names)[:10]]
    return ", ".join(shown) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
