"""What a relaxed function was understood to be."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from softly.algorithms.engine.settings import Settings
from softly.algorithms.python.lowering import Lowered
from softly.algorithms.python.rewriting import Note

__all__ = ["Program"]


@dataclass(frozen=True)
class Program:
    """The source of a relaxed function with notes: what each condition joins, what is unrolled.

    Attributes:
        source: The function's own lines.
        first_line: The number of the first of them in its file.
        notes: What was understood, by line.
        relaxed: The variables that may be relaxed, if all arguments are.

    Example:
        >>> @softly.relax(steepness=8.0)
        ... def sign(x):
        ...     y = 0
        ...     if x > 0:
        ...         y = 1
        ...     return y
        >>> [note.text for note in sign.program.notes]
        ['if: joins y']
    """

    source: str
    first_line: int
    notes: tuple[Note, ...]
    heading: str
    _: KW_ONLY
    relaxed: tuple[str, ...] = ()

    @staticmethod
    def of_function(lowered: Lowered, settings: Settings) -> Program:
        """The program of a lowered function."""
        kind = "hard" if settings.hard else f"steepness {settings.steepness}"
        heading = f"# {settings.distribution}, {settings.tnorm}, {kind}"
        return Program(lowered.source, lowered.first_line, lowered.notes, heading, relaxed=lowered.relaxed)

    def __str__(self) -> str:
        lines = self.source.rstrip().splitlines()
        width = max(len(line) for line in lines)
        by_line: dict[int, list[str]] = {}
        for note in self.notes:
            by_line.setdefault(note.line, []).append(note.text)
        shown = [self.heading]
        for i, line in enumerate(lines):
            remark = "; ".join(by_line.get(self.first_line + i, []))
            shown.append(f"{line:<{width}}  # {remark}" if remark else line)
        if self.relaxed:
            shown.append(f"# may be relaxed: {', '.join(self.relaxed)}")
        return "\n".join(shown)
