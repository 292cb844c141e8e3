"""Tables as people have them, of numbers and texts, by name or by place: as rows of numbers that circuits compare."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

__all__ = ["Columns"]

_DATES = "mM"  # by numpy's kinds of dtypes: numbers to some, with a missing one that is the smallest


@dataclass(frozen=True)
class Columns:
    """What the columns of a table are, and how their values become numbers.

    A number stays one, and a text becomes its place in the list of texts. What is missing, or a text that is not in
    that list, becomes NaN, with which every comparison is false.

    Attributes:
        number: How many columns there are.
        names: Their names; empty where columns are known by their place alone.
        texts: For every column the texts that it may have, none where it has numbers; empty where all have numbers.

    Example:
        >>> columns = softly.logic.tables.Columns(2, names=("age", "colour"), texts=((), ("blue", "red")))
        >>> columns.numbers([{"colour": "red", "age": 30}, {"colour": "mauve", "age": None}], "example")
        array([[30.,  1.],
               [nan, nan]])
    """

    number: int
    _: KW_ONLY
    names: tuple[str, ...] = ()
    texts: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(cls, table: Any) -> Columns | None:
        """The columns of a structured array, or of a frame that has texts, which are sorted; None for anything else.

        A frame that has dates is one, too, so that `numbers` refuses them by name.

        Example:
            >>> import numpy as np
            >>> table = np.array([(3.5, "red"), (1.0, "blue")], dtype=[("age", float), ("colour", "U9")])
            >>> softly.logic.tables.Columns.of(table)
            Columns(number=2, names=('age', 'colour'), texts=((), ('blue', 'red')))
        """
        structured = isinstance(table, np.ndarray) and table.dtype.names is not None
        if structured:
            names = table.dtype.names
        elif _is_frame(table):
            names = tuple(table.columns)
        else:
            return None
        texts, dated = [], False
        for name in names:
            values = np.asarray(table[name])
            known = map(_text, values.tolist() if values.dtype.kind in "OUS" else ())
            texts.append(tuple(sorted({text for text in known if text is not None})))
            dated |= values.dtype.kind in _DATES
        if not (structured or dated or any(texts)):
            return None
        return cls(len(texts), names=tuple(map(str, names)), texts=tuple(texts))

    def numbers(self, table: Any, function: str) -> np.ndarray:
        """(..., columns) Numbers, NaN where they are missing.

        Args:
            table: An array of numbers, where texts are given by their place; rows of numbers and texts in lists, tuples
                or an array of objects; dictionaries, one a row or one of columns; a structured array; or a frame of
                pandas or polars. Columns are found by name where both sides have names, and others are left out.
            function: Whose errors these are.
        """
        if isinstance(table, np.ma.MaskedArray) and table.dtype.names is None:
            table = np.ma.filled(table.astype(np.float64), np.nan)
        if isinstance(table, np.ndarray) and table.dtype.kind in "buif":
            return self._checked(table, function)
        if isinstance(table, np.ndarray) and table.dtype.names is not None:
            return self._found(table, table.dtype.names, function)
        if isinstance(table, Mapping):
            return self._found(table, tuple(table), function)
        if _is_frame(table):
            return self._found(table, tuple(table.columns), function)
        if isinstance(table, (list, tuple)) and table and all(isinstance(row, Mapping) for row in table):
            columns = self._transposed(table, function)
            return self._found(columns, tuple(columns), function)
        return self._rows(table, function)

    def _checked(self, rows: np.ndarray, function: str) -> np.ndarray:
        """An array of numbers, whose texts are places."""
        if rows.ndim == 0 or rows.shape[-1] != self.number:
            raise ValueError(f"{function}: x must be of shape (..., {self.number}), got {tuple(rows.shape)}.")
        for column, texts in enumerate(self.texts):
            if texts:
                places = rows[..., column]
                known = np.isin(places, np.arange(len(texts))) | (places != places)
                if not known.all():
                    raise ValueError(
                        f"{function}: {self._name(column)} has texts, which an array of numbers gives by their place, "
                        f"0 to {len(texts) - 1}, or NaN; got {places[~known].flat[0]}. A list of rows may have texts."
                    )
        return rows

    def _rows(self, table: Any, function: str) -> np.ndarray:
        """Rows without names."""
        if not isinstance(table, (list, tuple, np.ndarray)):
            raise TypeError(
                f"{function}: x must be a tensor, an array, lists of rows, dictionaries, or a frame of pandas or "
                f"polars; got {type(table).__name__}."
            )
        try:
            rows = np.asarray(table)
            if rows.dtype.kind not in "buif":
                rows = np.array(table, dtype=object)
        except ValueError as error:
            raise ValueError(f"{function}: x must have rows of {self.number} values each: {error}.") from None
        if rows.dtype.kind in "buif":
            return self._checked(rows, function)
        if rows.ndim not in (1, 2) or rows.shape[-1] != self.number:
            raise ValueError(f"{function}: x must have rows of {self.number} values, got the shape {rows.shape}.")
        columns = [self._column(i, values, function) for i, values in enumerate(np.atleast_2d(rows).T)]
        return np.stack(columns, -1).reshape(rows.shape)

    def _found(self, table: Any, names: Sequence[Any], function: str) -> np.ndarray:
        """Columns of a table by their names, or where the circuit has none by their places."""
        keys = {str(name): name for name in names}
        if len(keys) < len(names):
            raise ValueError(f"{function}: two columns of the table have the same name.")
        if self.names:
            missing = [name for name in self.names if name not in keys]
            if missing:
                raise ValueError(f"{function}: the table has no column {_short(missing[0])}; it has {_listed(names)}.")
            found = [table[keys[name]] for name in self.names]
        else:
            found = [table[name] for name in names]
            if len(found) != self.number:
                raise ValueError(f"{function}: the table must have {self.number} columns, got {len(found)}.")
        columns = [self._column(i, values, function) for i, values in enumerate(found)]
        lengths = {len(column) for column in columns}
        if len(lengths) > 1:
            raise ValueError(f"{function}: columns must be of the same length, got {sorted(lengths)}.")
        return np.stack(columns, 1)

    def _transposed(self, rows: Sequence[Mapping[Any, Any]], function: str) -> dict[str, list[Any]]:
        rows = [{str(name): value for name, value in row.items()} for row in rows]
        names: Iterable[str] = self.names or rows[0]
        for number, row in enumerate(rows):
            missing = [name for name in names if name not in row]
            if missing:
                raise ValueError(
                    f"{function}: row {number} has no {_short(missing[0])}; give None where a value is missing."
                )
        return {name: [row[name] for row in rows] for name in names}

    def _column(self, column: int, values: Any, function: str) -> np.ndarray:
        where = f"{function}: {self._name(column)}"
        if isinstance(values, np.ma.MaskedArray):
            values = np.ma.filled(values.astype(object), None)
        array = np.asarray(values) if hasattr(values, "dtype") else np.array(values, dtype=object)
        if array.ndim != 1:
            raise ValueError(f"{where} must be one value a row, got the shape {array.shape}.")
        texts = self.texts[column] if self.texts else ()
        if array.dtype.kind in _DATES:
            wanted = "texts" if texts else "numbers"
            raise TypeError(f"{where} has {wanted}, got {array.dtype}; convert it, for example to days.")
        if not texts and array.dtype.kind in "buif":
            return array.astype(np.float64)
        if texts:
            places = {text: float(place) for place, text in enumerate(texts)}
            return np.array([_place(value, places, where) for value in array.tolist()], dtype=np.float64)
        return np.array([_number(value, where) for value in array.tolist()], dtype=np.float64)

    def _name(self, column: int) -> str:
        return f"column {_short(self.names[column])}" if self.names else f"column {column}"


def _is_frame(table: Any) -> bool:
    """Whether it is a frame of pandas or polars; a lazy one has no length."""
    return not isinstance(table, np.ndarray) and hasattr(table, "__len__") and hasattr(table, "columns")


def _missing(value: Any) -> bool:
    """None, NaN, or what pandas has for the same."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, np.floating)) and bool(value != value)


def _number(value: Any, where: str) -> float:
    if _missing(value):
        return math.nan
    if isinstance(value, (Real, Decimal, np.bool_, np.number)) and not isinstance(value, np.complexfloating):
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{where} has a number that is too large for a double.") from None
    remedy = "; convert it, or give None where it stands for a missing number" if isinstance(value, str) else ""
    raise TypeError(f"{where} has numbers, got {_short(value)}{remedy}.")


def _place(value: Any, places: Mapping[str, float], where: str) -> float:
    if _missing(value):
        return math.nan
    if (text := _text(value)) is None:
        raise TypeError(f"{where} has texts such as {_short(next(iter(places)))}, got {_short(value)}.")
    return places.get(text, math.nan)


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def _short(value: Any) -> str:
    """A value from somebody's table, as it can be shown."""
    text = value if isinstance(value, str) else None
    return repr(value)[:40] if text is None else ascii(text if len(text) <= 40 else f"{text[:40]}...")


def _listed(names: Iterable[Any]) -> str:
    shown = [_short(name) for name in names]
    return ", ".join(shown[:10]) + (f" and {len(shown) - 10} more" if len(shown) > 10 else "")
