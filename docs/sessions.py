"""Takes out of the pages what only tests need: directives of doctest, and its words for empty lines.

A hook of mkdocs. What pages show and what is tested stay one text; the reference has its own option for that.
"""

import re
from typing import Any

_SESSION = re.compile(r"^```pycon\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_DIRECTIVE = re.compile(r"[ \t]*# *doctest:.*$", re.MULTILINE)


def shown(session: str) -> str:
    """A session as it is shown."""
    session = _DIRECTIVE.sub("", session).replace("<BLANKLINE>", "")
    # Tracebacks and programs name the file of a function; of one that was typed in that is the test's.
    return re.sub(r"<doctest [^>]*>", "<stdin>", session).rstrip() + "\n"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for every page."""
    return _SESSION.sub(lambda found: f"```pycon\n{shown(found[1])}```", markdown)
