"""Shows the `Example:` of a docstring as a Python session, which by itself it does for `Examples:` only."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Called by mkdocstrings for every object that it documents."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
