"""How far training has come: a bar where rich is installed and someone watches, lines otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(title: str, total: int, *, shown: bool) -> Iterator[Callable[[int, str], None]]:
    """Gives a function to call with the number of steps done and a few words on them."""
    if not shown:
        yield lambda done, words: None
        return
    try:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ModuleNotFoundError:
        bar = False
    else:
        bar = sys.stderr.isatty()
    if not bar:
        yield lambda done, words: _line(f"{title} {done}/{total} {words}")
        return
    from rich.console import Console

    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[words]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as display:
        task = display.add_task(title, total=total, words="")
        yield lambda done, words: display.update(task, completed=done, words=words)


def _line(text: str) -> None:
    sys.stderr.write(text + "\n")
