"""The tour's page stands alone, and a stop that fails takes no other with it."""

import io
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest
from rich.console import Console

from softly.sorting import networks
from softly_lab.files import write
from softly_lab.tour import STOPS, Stop, run
from softly_lab.tour.plots import panels, standalone

VOID = {"meta", "link", "br", "img", "hr"}


class Page(HTMLParser):
    """Keeps ids, internal links and outside resources, and checks that elements are nested properly."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.outside, self.open = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "xlink:href") and value.startswith("#"):
                self.links.append(value[1:])
            elif name in ("href", "xlink:href", "src", "srcset") and not value.startswith("data:"):
                self.outside.append(value)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_tour_is_one_page_that_needs_nothing_else(tmp_path):
    # One test for all, since the tour takes a while.
    out = tmp_path / "deep" / "page"
    result = subprocess.run(
        [Path(sys.executable).with_name("softly"), "tour", "--out", out],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error", "COLUMNS": "200"},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr == ""
    assert str(out / "index.html") in result.stdout
    assert all(stop.title in result.stdout for stop in STOPS)

    assert [path.name for path in out.iterdir()] == ["index.html"]
    text = (out / "index.html").read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert page.outside == []
    assert "@import" not in text
    assert not re.search(r"url\((?!#|&quot;#)", text)
    assert len(page.ids) == len(set(page.ids))
    assert set(page.links) <= set(page.ids)
    assert {stop.module for stop in STOPS} <= set(page.ids)
    assert text.count("<svg") >= len(STOPS)


def test_failed_stop_is_shown_and_others_go_on(tmp_path, monkeypatch):
    broken = ModuleType("softly_lab.tour.broken")

    def visit():
        raise ValueError("this <stop> is broken")

    broken.visit = visit
    monkeypatch.setitem(sys.modules, broken.__name__, broken)
    terminal = io.StringIO()
    stops = (Stop("Broken", "broken"), Stop("Nowhere", "nowhere"), *STOPS[:1])
    assert not run(tmp_path, stops=stops, console=Console(file=terminal, width=200))
    assert "Broken: ValueError: this <stop> is broken" in terminal.getvalue()
    assert "No module named 'softly_lab.tour.nowhere'" in terminal.getvalue()
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "this &lt;stop&gt; is broken" in text
    assert "<svg" in text


def test_page_replaces_the_old_one_at_once(tmp_path, monkeypatch):
    path = tmp_path / "index.html"
    write(path, "old")
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "figure", [networks.get("bitonic", 4).draw(), panels(1, 2, height=1.0)[0]], ids=["text", "plot"]
)
def test_pictures_are_files_of_their_own(figure):
    root = ElementTree.fromstring(standalone(figure, "name"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme" in root[0].text
