"""What a stop of the tour gives back."""

from dataclasses import dataclass

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A figure and what there is to see in it.

    Attributes:
        figure: Made with `softly_lab.tour.plots`, so that it suits a light and a dark page, or an SVG document.
        caption: One sentence of HTML.
    """

    figure: Figure | str
    caption: str


@dataclass(frozen=True)
class Visit:
    """One section of the page.

    Attributes:
        prose: A few sentences, as HTML paragraphs or tables.
        code: The lines of Python that a reader would write to get there.
        pictures: At least one.
    """

    prose: str
    code: str
    pictures: tuple[Picture, ...]
