"""The tour: every capability once, on one page.

A stop is a module in this package with a function ``visit() -> Visit``, and a line in `STOPS`.
"""

import importlib
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text

from softly_lab.files import write
from softly_lab.tour.page import Section, render
from softly_lab.tour.plots import STYLE


@dataclass(frozen=True)
class Stop:
    """A stop of the tour: its title and the module of this package that makes it."""

    title: str
    module: str


STOPS = (
    Stop("Distributions", "distributions"),
    Stop("T-conorms", "tconorms"),
    Stop("The relaxed minimum", "minimum"),
    Stop("Sorting", "sorting"),
    Stop("Top-k", "topk"),
    Stop("Your own algorithm", "programs"),
    Stop("Rendering", "rendering"),
    Stop("Logic gate networks", "logic"),
    Stop("Training through a black box", "black_box"),
)


class Seconds(ProgressColumn):
    """How long a stop has taken so far; nothing before it begins."""

    def render(self, task: Task) -> Text:
        return Text("" if task.elapsed is None else f"{task.elapsed:.1f} s", style="dim")


def run(out: Path, *, stops: tuple[Stop, ...] = STOPS, console: Console | None = None) -> bool:
    """Visit all stops, write ``out/index.html`` and say where it is.

    A stop that fails is shown with its error, on the page and in the terminal, and the others go on.

    Returns:
        Whether all stops succeeded.
    """
    console = console or Console()
    started = time.perf_counter()
    sections = []
    columns = (SpinnerColumn(finished_text=" "), TextColumn("{task.description}"), Seconds())
    with Progress(*columns, console=console) as progress:
        tasks = [progress.add_task(f"[dim]{stop.title}", start=False, total=1) for stop in stops]
        for stop, task in zip(stops, tasks, strict=True):
            progress.update(task, description=f"[bold]{stop.title}")
            progress.start_task(task)
            section = visit(stop)
            mark = f"[red]✗ {stop.title}" if section.error else f"[green]✓[/] {stop.title}"
            progress.update(task, description=mark, completed=1)
            progress.stop_task(task)
            sections.append(section)
    for section in sections:
        if section.error:
            console.print(f"[red]{section.title}:[/] {section.error.strip().splitlines()[-1]}", highlight=False)
    path = write(out / "index.html", render(sections, seconds=time.perf_counter() - started))
    console.print(f"The tour is in {path}", highlight=False, soft_wrap=True)
    return not any(section.error for section in sections)


def visit(stop: Stop) -> Section:
    """Visit one stop; an exception becomes a section that shows it."""
    started = time.perf_counter()
    try:
        with matplotlib.rc_context(STYLE):
            result, error = importlib.import_module(f"{__name__}.{stop.module}").visit(), ""
    except Exception:
        result, error = None, traceback.format_exc()
    return Section(stop.title, stop.module, result, error, time.perf_counter() - started)
