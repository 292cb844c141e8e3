"""The README and the documentation tell the truth, and leave nothing out."""

import contextlib
import doctest
import importlib
import importlib.util
import io
import pkgutil
import re
from pathlib import Path

import pytest

import softly

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def test_readme_example_prints_what_it_says():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue().splitlines() == re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)


def test_readme_fits_on_a_screen_and_its_links_exist():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 45
    for target in re.findall(r"\]\(([^)]*)\)", text):
        assert target.startswith("https://") or (ROOT / target).is_file()
    assert (ROOT / "docs/images/softly.svg").stat().st_size < 200_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_in_the_guide(page):
    # What a page shows of a file is that file's business; test_recipes.py has those of the recipes.
    text = re.sub(r"^```\w+ title=.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    examples = doctest.DocTestParser().get_doctest(text, {}, page.stem, str(page), 0)
    report = io.StringIO()
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(examples, out=report.write)
    assert not report.getvalue()


def test_pages_show_nothing_that_is_only_for_tests():
    spec = importlib.util.spec_from_file_location("sessions", ROOT / "docs/sessions.py")
    sessions = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sessions)
    for page in PAGES:
        text = sessions.on_page_markdown(page.read_text())
        assert not re.search("<doctest|<BLANKLINE>|doctest:", text), page.name
    session = ">>> f(1)  # doctest: +SKIP\na\n<BLANKLINE>\nb <doctest page[3]>:2\n\n"
    assert sessions.on_page_markdown(f"x\n```pycon\n{session}```\n") == (
        "x\n```pycon\n>>> f(1)\na\n\nb <stdin>:2\n```\n"
    )


def test_reference_has_every_public_module():
    names = {info.name for info in pkgutil.walk_packages(softly.__path__, "softly.")}
    public = {name for name in names if "._" not in name and hasattr(importlib.import_module(name), "__all__")}
    documented = {name for page in PAGES for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)}
    # What a package documents includes what it re-exports from its modules.
    missing = {name for name in public if not any(f"{name}.".startswith(f"{d}.") for d in documented)}
    assert not missing


def test_architecture_names_what_is_there():
    text = (ROOT / "docs/architecture.md").read_text()
    names = set(re.findall(r"`((?:softly|softly_lab)\.[\w.]+)`", text))
    paths = set(re.findall(r"`((?:src|native|tests|benchmarks)(?:/[\w./]*)?)`", text))
    assert len(names) > 40
    assert len(paths) > 20
    assert not [path for path in paths if not (ROOT / path).exists()]
    for name in sorted(names):
        pkgutil.resolve_name(name)


def test_citation_is_of_this_version():
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {softly.__version__}\n" in text
    assert "Learning with Differentiable Algorithms" in text
