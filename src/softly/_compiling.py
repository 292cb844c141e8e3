"""What torch.compile has to know, without importing the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def constant_result(function: F) -> F:
    """``torch.compiler.assume_constant_result``, which would import the compiler: as long again as torch itself."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
