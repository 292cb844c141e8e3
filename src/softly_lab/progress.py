"""Progress of a run or a sweep in the terminal: how far, how fast, what was reached, how long it will take."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class Progress:
    """Watches a run, or runs. Where nobody looks, as in a log file, it writes a line every half minute."""

    def __init__(self, console: Console, name: str, unit: str = "step") -> None:
        self.console, self.name, self.unit = console, name, unit
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[reached]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(name, total=None, rate="", reached="")
        self._started: tuple[float, int] | None = None
        self._said = time.monotonic()

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, step: int, steps: int, last: Mapping[str, Any]) -> None:
        now = time.monotonic()
        first, begun = self._started or (now, step)
        self._started = first, begun
        rate = (step - begun) / (now - first) if now > first else 0.0
        speed = f"{rate:.1f}/s" if rate >= 1 or not rate else f"{1 / rate:.1f} s each"
        numbers = ((name, value) for name, value in last.items() if name not in ("step", "minutes"))
        reached = "  ".join(f"{name} {value:.4g}" for name, value in numbers)
        self._bar.update(self._task, completed=step, total=steps, rate=speed, reached=reached)
        if not self.console.is_terminal and now - self._said > 30:
            self._said = now
            self.console.print(
                f"{self.name}: {self.unit} {step} of {steps}, {speed}  {reached}", highlight=False, soft_wrap=True
            )
