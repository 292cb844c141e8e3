"""What a relaxed program does with a batch, line by line: for a look at where its probability and gradients go."""

from __future__ import annotations

import ast
import functools
import html
import sys
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from softly.algorithms.engine.batches import Batch
from softly.algorithms.engine.control import Control
from softly.algorithms.engine.frames import program_frames
from softly.algorithms.engine.numbers import Answer
from softly.algorithms.engine.regions import DEAD, Loop
from softly.algorithms.engine.runtime import Runtime
from softly.algorithms.engine.settings import Settings

__all__ = ["Trace", "TraceLine"]

_FLAT = 1e-3  # of the steepest slope that a condition can have


@dataclass
class TraceLine:
    """What happened on a line.

    Attributes:
        line: Its number in the file.
        text: The line itself.
        visits: How often an example is expected to come here: its probability, summed over all visits.
        probability: Of a condition: its mean over the batch and all visits; None elsewhere.
        slope: Of a condition: how steep it is on average, 1 at an even chance, 0 where it is certain.

    Example:
        >>> softly.relax(lambda x: 1 if x > 0 else 0).trace(torch.tensor([5.0])).lines[0].flat
        True
    """

    line: int
    text: str
    _: KW_ONLY
    visits: float = 0.0
    probability: float | None = None
    slope: float | None = None

    @property
    def flat(self) -> bool:
        """Whether no gradient comes through the condition."""
        return self.slope is not None and self.slope < _FLAT


@dataclass
class Trace:
    """What a relaxed function does with a batch; made by `RelaxedFunction.trace`. It prints as a table.

    Attributes:
        lines: The lines of the function.
        iterations: The rounds of each ``while``, by its line.
        gap: The mean distance between the relaxed and the hard results.
        steepness: The steepness that was used.
        suggested: The smallest steepness tried at which the gap is below 5 % of the size of the results, or None.

    Example:
        >>> @softly.relax(steepness=2.0)
        ... def sign(x):
        ...     if x > 0:
        ...         return 1.0
        ...     return -1.0
        >>> print(sign.trace(torch.tensor([-0.5, 0.5])))
        visits      p  slope
                              @softly.relax(steepness=2.0)
                              def sign(x):
          1.00   0.50   0.79      if x > 0:
          0.50                        return 1.0
          0.50                    return -1.0
        steepness 2: 0.538 from the hard result; try steepness 8
    """

    lines: list[TraceLine]
    _: KW_ONLY
    iterations: dict[int, int] = field(default_factory=dict)
    gap: float = 0.0
    steepness: float = 0.0
    suggested: float | None = None

    def __str__(self) -> str:
        shown = ["visits      p  slope"]
        for line in self.lines:
            visits = f"{line.visits:6.2f}" if line.visits else " " * 6
            p = "" if line.probability is None else f"{line.probability:.2f}"
            slope = "" if line.slope is None else "flat" if line.flat else f"{line.slope:.2f}"
            rounds = f"  # {self.iterations[line.line]} rounds" if line.line in self.iterations else ""
            shown.append(f"{visits}{p:>7}{slope:>7}  {line.text}{rounds}".rstrip())
        advice = f"; try steepness {self.suggested:g}" if self.suggested not in (None, self.steepness) else ""
        shown.append(f"steepness {self.steepness:g}: {self.gap:.3g} from the hard result{advice}")
        return "\n".join(shown)

    @staticmethod
    def of_call(function: Any, batch: Batch) -> Trace:
        """What a relaxed function does with a batch."""
        settings, lowered = function.settings, function._lowered
        engine = Tracer(settings, batch.size, batch.dtype, batch.device, False, True)
        engine.running[function.function] = settings
        args, kwargs = batch.enter(engine)
        with torch.no_grad():
            run = functools.partial(function._invoke, engine, args, kwargs)
            lines = traced(engine, lowered.original.__code__.co_filename, lowered.source, lowered.first_line, run)
            gap, _ = _gap(function, batch, settings)
            ladder = (settings.steepness * 2.0**k for k in range(-4, 12))
            suggested = next((s for s in ladder if _close(function, batch, replace(settings, steepness=s))), None)
        steepness = float(settings.steepness)
        return Trace(
            lines,
            iterations=engine.rounds,
            gap=gap,
            steepness=steepness,
            suggested=None if suggested is None else float(suggested),
        )

    def svg(self) -> str:
        """The source as a picture, with heat behind the lines; a frame where a condition is flat."""
        height, width = 18, 8.2
        columns = max((len(line.text) for line in self.lines), default=1) + 10
        most = max((line.visits for line in self.lines), default=0.0) or 1.0
        parts = []
        for i, line in enumerate(self.lines):
            y = i * height
            share = min(line.visits / most, 1.0)
            frame = ' stroke="#1f5fbf"' if line.flat else ""
            parts.append(
                f'<rect x="0.5" y="{y + 0.5}" width="{columns * width:.0f}" height="{height - 1}" '
                f'fill="#d62728" fill-opacity="{0.5 * share:.3f}"{frame}/>'
            )
            visits = f"{line.visits:.2f}" if line.visits else ""
            text = html.escape(f"{visits:>7}  {line.text}")
            parts.append(f'<text x="4" y="{y + 13}" xml:space="preserve">{text}</text>')
        size = f'width="{columns * width + 1:.0f}" height="{len(self.lines) * height + 1}"'
        style = 'font-family="monospace" font-size="13"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(parts)}</svg>'

    def _repr_svg_(self) -> str:
        return self.svg()


class _TracedLoop(Loop):
    __slots__ = ()

    def test(self, condition: Any, names: Any) -> bool:
        engine = self.engine
        assert isinstance(engine, Tracer)
        engine.ask(condition)
        line = engine.place()
        going = super().test(condition, names)
        engine.rounds[line] = max(engine.rounds.get(line, 0), self.count if going else self.count - 1)
        return going


class _TracedControl(Control):
    engine: Tracer

    def branch(self, condition: Any, entry: Any, labels: Any, check: bool) -> Any:
        self.engine.ask(condition)
        return super().branch(condition, entry, labels, check)

    def loop(self, labels: tuple[str, ...], lossy: bool) -> Loop:
        return _TracedLoop(self.engine, labels, lossy)


class Tracer(Runtime):
    """A run that takes notes."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.control = _TracedControl(self)
        self.visits: dict[int, float] = {}
        self.asked: dict[int, list[Tensor]] = {}
        self.rounds: dict[int, int] = {}
        self.filename = ""
        self.headers: dict[int, int] = {}  # the lines of compound statements, and of the first statement in each

    def place(self) -> int:
        frame = next((f for f in program_frames() if f.f_code.co_filename == self.filename), None)
        return 0 if frame is None else frame.f_lineno

    def come(self, line: int) -> None:
        mass = self.control.presence()
        if mass is not DEAD:
            share = 1.0 if mass is None else float(mass.detach().mean())
            self.visits[line] = self.visits.get(line, 0.0) + share

    def ask(self, condition: Any) -> None:
        if self.place() in self.headers:
            self.come(self.place())  # lowered to several statements, it is one visit
        if isinstance(condition, Answer):
            self.asked.setdefault(self.place(), []).append(self.column(condition.tensor).detach())

    def watch(self, first: int, last: int) -> Callable[[FrameType, str, Any], Any]:
        """A function for `sys.settrace` that sums up the probability of coming to each line."""

        def local(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line" and first <= frame.f_lineno <= last and frame.f_lineno not in self.headers:
                self.come(frame.f_lineno)
            return local

        def start(frame: FrameType, event: str, _: Any) -> Any:
            return local if frame.f_code.co_filename == self.filename and "_rt" in frame.f_code.co_varnames else None

        return start


def traced(engine: Tracer, filename: str, source: str, first_line: int, run: Callable[[], Any]) -> list[TraceLine]:
    """Run a program while taking notes of its lines."""
    texts = source.rstrip().splitlines()
    engine.filename = filename
    for node in ast.walk(ast.parse(textwrap.dedent(source))):
        if isinstance(node, (ast.If, ast.While, ast.For, ast.With, ast.FunctionDef)):
            offset = first_line - 1
            engine.headers[node.lineno + offset] = node.body[0].lineno + offset if isinstance(node, ast.For) else 0
    before = sys.gettrace()
    sys.settrace(engine.watch(first_line, first_line + len(texts) - 1))
    try:
        run()
    finally:
        sys.settrace(before)
    lines = []
    for i, text in enumerate(texts):
        number = first_line + i
        inside = engine.headers.get(number) or number
        line = TraceLine(number, text, visits=engine.visits.get(inside, 0.0))
        if number in engine.asked:
            p = torch.cat(engine.asked[number])
            line.probability, line.slope = float(p.mean()), float((4 * p * (1 - p)).mean())
        lines.append(line)
    return lines


def _gap(function: Any, batch: Batch, settings: Settings) -> tuple[float, float]:
    """How far relaxed results are from hard ones on average, and how large these are."""
    soft, _ = function._attempt(batch, settings, False, True, None)
    hard, _ = function._attempt(batch, replace(settings, hard=True), False, True, None)
    pairs = [
        (a, b)
        for a, b in zip(_pytree.tree_leaves(soft), _pytree.tree_leaves(hard), strict=True)
        if isinstance(a, Tensor) and bool(b.isfinite().all())
    ]
    if not pairs:
        return 0.0, 0.0
    gaps, sizes = [(a - b).abs().mean() for a, b in pairs], [b.abs().mean() for _, b in pairs]
    return float(torch.stack(gaps).mean()), float(torch.stack(sizes).mean())


def _close(function: Any, batch: Batch, settings: Settings) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gap, size = _gap(function, batch, settings)
    return gap <= 0.05 * size
