"""A table that a user brings, csv or npz: numbers stay numbers, and texts become their places in a column."""

import csv
import math
import re
import shlex
import zipfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from softly.logic import Circuit

MISSING = {"", "?", "na", "n/a", "nan", "null", "none"}  # in small letters
_FLAGS = {None: math.nan, "false": 0.0, "true": 1.0}
_MOST_KINDS = 100  # different texts of a column
_MOST_CLASSES = 256
_NUMBERS_AS_CLASSES = 20  # so many different whole numbers are still taken for classes

_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]*,[0-9]+(e[+-]?[0-9]+)?", re.IGNORECASE)
_DECIMAL_POINT = re.compile(r"[+-]?[0-9]*\.[0-9]*(e[+-]?[0-9]+)?", re.IGNORECASE)
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")
_THOUSANDS_BY_POINT = re.compile(r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}")

# Of numbers, NaN where they are missing; or of texts, None where they are missing.
Column = np.ndarray | list[str | None]


@dataclass(frozen=True)
class Texts:
    """A column as a file has it: its values, and the lines that they are in."""

    values: Sequence[str]
    lines: Sequence[int]


Raw = np.ndarray | Texts


@dataclass(frozen=True)
class Table:
    """Rows of numbers, and what is to be learned from them.

    Attributes:
        columns: Names.
        rows: (n, columns) Numbers, NaN where they are missing; where a column has texts, their places.
        texts: For every column the texts that it has, sorted; none where it has numbers.
        target: (n,) Numbers of classes, or the numbers to predict.
        classes: Names of the classes; empty where numbers are to be predicted.
        skipped: How many rows were left out because they have no target.
    """

    columns: tuple[str, ...]
    rows: np.ndarray
    texts: tuple[tuple[str, ...], ...]
    target: np.ndarray
    classes: tuple[str, ...]
    skipped: int


def read(
    path: Path,
    target: str,
    *,
    drop: Collection[str] = (),
    task: str = "auto",
    missing: Collection[str] = (),
    texts: Collection[str] = (),
    decimal: str = "auto",
) -> Table:
    """Read a table; a ValueError says what is wrong with it.

    Args:
        path: A csv file with a header, its fields parted by commas, semicolons, tabs or bars; or a npz file with an
            array a column, or of several columns.
        target: The column to learn.
        drop: Columns to leave out.
        task: "classes", "numbers", or "auto": texts and up to 20 different whole numbers are classes.
        missing: What stands for a missing value, besides `MISSING`.
        texts: Columns whose values are texts even where they look like numbers.
        decimal: "point" or "comma", or "auto": a comma where numbers of a column have one and no point.
    """
    found = raw(path)
    for name in (target, *drop, *texts):
        if name not in found:
            raise ValueError(f"{path}: there is no column {_short(name)}; there are {_listed(found)}.")
    reader = Reader(path, missing, decimal)
    given = found.pop(target)
    wanted = reader.column(target, given, strict=task != "classes", texts=target in texts)
    known = np.array([value is not None and value == value for value in wanted])
    if not known.any():
        raise ValueError(f"{path}: column {_short(target)} is empty.")
    numbers, classes = _target(wanted, known, f"{path}: column {_short(target)}", task)
    names: list[str] = []
    columns: list[np.ndarray] = []
    kinds: list[tuple[str, ...]] = []
    for name, values in found.items():
        if name in drop:
            continue
        column = reader.column(name, values, texts=name in texts)
        if isinstance(column, np.ndarray):
            if np.isinf(column).any():
                raise ValueError(f"{path}: column {_short(name)} has infinite numbers.")
            kinds.append(())
        else:
            kinds.append(tuple(sorted({text for text in column if text is not None})))
            if len(kinds[-1]) > _MOST_KINDS:
                raise ValueError(
                    f"{path}: column {_short(name)} has {len(kinds[-1])} different texts, such as "
                    f"{_short(kinds[-1][-1])}; {_MOST_KINDS} are the most. Leave it out with --drop."
                )
            places = {text: float(place) for place, text in enumerate(kinds[-1])}
            column = np.array([math.nan if text is None else places[text] for text in column])
        names.append(name)
        columns.append(column)
    if not columns:
        raise ValueError(f"{path}: there is no column but {_short(target)} to learn from.")
    rows = np.stack(columns, 1)[known]
    return Table(tuple(names), rows, tuple(kinds), numbers, classes, int((~known).sum()))


def read_for(
    circuit: Circuit, path: Path, *, missing: Collection[str] = (), decimal: str = "auto"
) -> dict[str, Column]:
    """The columns that a circuit wants of a file, as `softly.logic.Circuit.predict` takes them.

    Spaces around names and texts are nothing in a file, but may be something in the frame that the circuit is from.
    """
    if not circuit.columns:
        raise ValueError("this circuit has no names of columns, by which it could find them in a file.")
    found, reader = raw(path), Reader(path, {*circuit.missing, *missing}, decimal)
    table: dict[str, Column] = {}
    for number, name in enumerate(circuit.columns):
        key = name if name in found else name.strip()
        if key not in found:
            raise ValueError(f"{path}: there is no column {_short(name)}; there are {_listed(found)}.")
        if circuit.texts and circuit.texts[number]:
            table[name] = reader.known(name, found[key], circuit.texts[number])
        else:
            table[name] = reader.numbers(name, found[key])
    return table


@dataclass(frozen=True)
class Reader:
    """From texts to numbers.

    Attributes:
        path: Of the file, for errors.
        missing: What stands for a missing value, besides `MISSING`.
        decimal: "point", "comma" or "auto".
    """

    path: Path
    missing: Collection[str]
    decimal: str

    def column(self, name: str, values: Raw, *, texts: bool = False, strict: bool = True) -> Column:
        """Numbers where all values are some; where only some are, that is an error, unless ``strict`` is false."""
        if isinstance(values, np.ndarray):
            if texts:
                raise self._no_texts(name)
            return values
        present = self._present(values, MISSING)
        if texts:
            return present
        numbers, other = self._parsed(name, present)
        if other is None:
            return numbers
        if strict and 2 * np.isfinite(numbers).sum() >= sum(value is not None for value in present):
            raise self._error(name, values, other, f", or --texts {_quoted(name)} if its values are texts")
        return present

    def known(self, name: str, values: Raw, texts: Collection[str]) -> list[str | None]:
        """Those of these texts that the values are. What is one of them is not missing, whatever `MISSING` says."""
        if isinstance(values, np.ndarray):
            raise self._no_texts(name)
        places = {text.strip(): text for text in texts}
        if len(places) < len(texts):
            raise ValueError(f"{self.path}: some texts of column {_short(name)} differ by spaces alone.")
        return [None if value is None else places.get(value) for value in self._present(values, set())]

    def numbers(self, name: str, values: Raw) -> np.ndarray:
        """Numbers, and nothing else; or the words for true and false, as 1 and 0."""
        if isinstance(values, np.ndarray):
            return values
        present = self._present(values, MISSING)
        numbers, other = self._parsed(name, present)
        if other is None:
            return numbers
        flags = [None if value is None else value.lower() for value in present]
        if not set(flags) <= _FLAGS.keys():
            raise self._error(name, values, other, "")
        return np.array([_FLAGS[flag] for flag in flags])

    def _present(self, values: Texts, missing: Collection[str]) -> list[str | None]:
        words = {*missing, *(word.strip().lower() for word in self.missing)}
        return [None if value.strip().lower() in words else value.strip() for value in values.values]

    def _no_texts(self, name: str) -> ValueError:
        return ValueError(f"{self.path}: column {_short(name)} has numbers, where texts are wanted.")

    def _parsed(self, name: str, present: list[str | None]) -> tuple[np.ndarray, int | None]:
        """Numbers, NaN where there are none, and the first place of something else."""
        comma = self._comma(name, present)
        numbers, other = np.full(len(present), math.nan), None
        for place, value in enumerate(present):
            if value is not None:
                number = _number(value.replace(",", ".") if comma and "." not in value else value)
                if number is None:
                    other = place if other is None else other
                else:
                    numbers[place] = number
        return numbers, other

    def _comma(self, name: str, present: list[str | None]) -> bool:
        """Whether numbers of a column have a decimal comma."""
        if self.decimal == "point":
            return False
        if self.decimal == "comma":
            if thousands := [value for value in present if value and _THOUSANDS_BY_POINT.fullmatch(value)]:
                raise ValueError(
                    f"{self.path}: column {_short(name)} has {_short(thousands[0])}, which with decimal commas may be "
                    "a number of thousands: write it without the point."
                )
            return True
        commas = [value for value in present if value is not None and _DECIMAL_COMMA.fullmatch(value)]
        if not commas or any(value is not None and _DECIMAL_POINT.fullmatch(value) for value in present):
            return False
        if all(_THOUSANDS.fullmatch(value) for value in commas):
            raise ValueError(
                f"{self.path}: column {_short(name)} has {_short(commas[0])}, which may be a number of thousands or "
                "one with a decimal comma: say --decimal comma, or --decimal point and write it without the comma."
            )
        return True

    def _error(self, name: str, values: Texts, place: int, remedy: str) -> ValueError:
        value = values.values[place].strip()
        return ValueError(
            f"{self.path}, line {values.lines[place]}: column {_short(name)} has numbers, but here {_short(value)}: "
            f"say --missing {_quoted(value)} if that stands for a missing value{remedy}."
        )


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


def raw(path: Path) -> dict[str, Raw]:
    """All columns of a file as they are."""
    return _npz(path) if path.suffix.lower() == ".npz" else _csv(path)


def _csv(path: Path) -> dict[str, Raw]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            file.seek(0)
            delimiter = max(",;\t|", key=first.count)
            reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True, strict=True)
            header = [name.strip() for name in next(reader, [])]
            rows: list[list[str]] = []
            lines: list[int] = []
            for row in reader:
                if row and len(row) != len(header):
                    raise ValueError(f"{path}, line {reader.line_num}: {len(row)} fields instead of {len(header)}.")
                if row:
                    rows.append(row)
                    lines.append(reader.line_num)
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
    return {name: Texts(column, lines) for name, column in zip(header, zip(*rows, strict=True), strict=True)}


def _npz(path: Path) -> dict[str, Raw]:
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
    found: dict[str, Raw] = {}
    for name, array in arrays.items():
        if array.dtype.kind not in "buifUS":
            raise ValueError(f"{path}: array {_short(name)} is {array.dtype}, neither numbers nor texts.")
        flat = array.reshape(len(array), -1)
        for number, column in enumerate(flat.T):
            key = name if array.ndim == 1 else f"{name}_{number}"
            if array.dtype.kind in "US":
                found[key] = Texts(column.astype(str).tolist(), range(1, len(column) + 1))
            else:
                found[key] = column.astype(np.float64)
    return found


def _number(text: str | None) -> float | None:
    try:
        return None if text is None or "_" in text else float(text)
    except ValueError:
        return None


def _quoted(name: str) -> str:
    """A word as a shell takes it."""
    return shlex.quote("".join(char if char.isprintable() else "?" for char in name[:40]))


def _short(name: str) -> str:
    """A name from a file, as it can be shown: without control characters, and not too long."""
    return repr(name if len(name) <= 40 else f"{name[:40]}…")


def _listed(names: Collection[str]) -> str:
    shown = [_short(name) for name in list(names)[:10]]
    return ", ".join(shown) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
