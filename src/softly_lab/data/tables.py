"""The tables of chapter 6: MONK's problems, Adult and Breast Cancer. Kinds are numbered from 0; NaN is missing."""

from pathlib import Path

import torch
from torch import Tensor

from softly_lab.data import folder, readable

Part = tuple[Tensor, Tensor]  # rows (n, columns) and labels (n,)


def monk(number: int) -> tuple[Part, Part]:
    """MONK's problem 1, 2 or 3: 124, 169 or 122 rows to learn from, and all 432 to test on; six columns."""
    path = folder("tabular") / "monks"
    train, test = (_monk(path / f"monks-{number}.{part}") for part in ("train", "test"))
    return train, test


def _monk(path: Path) -> Part:
    with readable(path):
        rows = [[int(value) for value in line.split()[:7]] for line in path.read_text().splitlines() if line.strip()]
        if not rows or {len(row) for row in rows} != {7}:
            raise ValueError("its rows must have a class and six attributes")
        table = torch.tensor(rows)
        return table[:, 1:].float() - 1, table[:, 0]


def _kinds(names: str) -> list[list[str]]:
    """The values of every attribute, from lines ``name: value, value.``; empty for numbers."""
    found = []
    for line in names.splitlines():
        _, _, values = line.partition(":")
        kinds = [value.strip() for value in values.strip().rstrip(".").split(",")]
        found.append([] if kinds == ["continuous"] else kinds)
    return found


def _table(lines: list[list[str]], kinds: list[list[str]]) -> Tensor:
    def number(value: str, known: list[str]) -> float:
        if value == "?":
            return torch.nan
        return float(known.index(value)) if known else float(value)

    if not lines:
        raise ValueError("it has no rows")
    return torch.tensor([[number(v, k) for v, k in zip(line, kinds, strict=True)] for line in lines])


def adult() -> tuple[Part, Part]:
    """The Adult census: 32,561 rows to learn from, 16,281 to test on; fourteen columns; 1 is an income above 50K."""
    path = folder("tabular") / "adult"
    described = [line for line in (path / "adult.names").read_text().splitlines() if line and line[0] != "|"]
    kinds = _kinds("\n".join(line for line in described if ":" in line))
    parts = []
    for name in ("adult.data", "adult.test"):
        with readable(path / name):
            rows = [line.rstrip(".").split(", ") for line in (path / name).read_text().splitlines() if ", " in line]
            labels = torch.tensor([("<=50K", ">50K").index(row[-1]) for row in rows])
            parts.append((_table([row[:-1] for row in rows], kinds), labels))
    return parts[0], parts[1]


_BREAST_CANCER = """\
age: 10-19, 20-29, 30-39, 40-49, 50-59, 60-69, 70-79, 80-89, 90-99.
menopause: lt40, ge40, premeno.
tumor-size: 0-4, 5-9, 10-14, 15-19, 20-24, 25-29, 30-34, 35-39, 40-44, 45-49, 50-54, 55-59.
inv-nodes: 0-2, 3-5, 6-8, 9-11, 12-14, 15-17, 18-20, 21-23, 24-26, 27-29, 30-32, 33-35, 36-39.
node-caps: yes, no.
deg-malig: 1, 2, 3.
breast: left, right.
breast-quad: left_up, left_low, right_up, right_low, central.
irradiat: yes, no."""


def breast_cancer() -> Part:
    """Breast Cancer (Ljubljana): 286 rows, nine columns; 1 is a recurrence."""
    path = folder("tabular") / "breast-cancer" / "breast-cancer.data"
    with readable(path):
        rows = [line.split(",") for line in path.read_text().splitlines() if "," in line]
        labels = torch.tensor([("no-recurrence-events", "recurrence-events").index(row[0]) for row in rows])
        return _table([row[1:] for row in rows], _kinds(_BREAST_CANCER)), labels
