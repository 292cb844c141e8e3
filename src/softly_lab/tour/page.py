"""The page of the tour: one HTML file that needs nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template

import torch

import softly
from softly_lab.tour.plots import svg
from softly_lab.tour.stop import Visit


@dataclass(frozen=True)
class Section:
    """A stop that was visited.

    Attributes:
        title: The heading.
        name: An identifier, for links.
        visit: What the stop gave back; None where it failed.
        error: The traceback where it failed, otherwise empty.
        seconds: How long it took.
    """

    title: str
    name: str
    visit: Visit | None
    error: str
    seconds: float


def render(sections: Sequence[Section], *, seconds: float) -> str:
    """The whole page."""
    template = Template(resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        style=resources.files("softly_lab").joinpath("page.css").read_text(encoding="utf-8"),
        tagline=escape(softly.__doc__ or ""),
        contents="\n".join(f'<a href="#{s.name}">{escape(s.title)}</a>' for s in sections),
        sections="\n".join(map(_section, sections)),
        colophon=escape(f"softly {softly.__version__} · torch {torch.__version__} · {seconds:.1f} s"),
    )


def _section(section: Section) -> str:
    parts = [f"<h2>{escape(section.title)} <small>{section.seconds:.1f} s</small></h2>"]
    if section.visit is None:
        parts.append(f'<pre class="error">{escape(section.error)}</pre>')
    else:
        parts += [section.visit.prose, f"<pre><code>{escape(section.visit.code.strip())}</code></pre>"]
        for number, picture in enumerate(section.visit.pictures):
            drawing = svg(picture.figure, f"{section.name}-{number}")
            caption = f"<figcaption>{picture.caption}</figcaption>"
            parts.append(f'<figure><div class="drawing">{drawing}</div>{caption}</figure>')
    return f'<section id="{section.name}">\n' + "\n".join(parts) + "\n</section>"
