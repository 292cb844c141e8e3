"""What torch.compile has to know, without importing the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch.utils._python_dispatch import _disable_current_modes

F = TypeVar("F", bound=Callable[..., Any])


def constant_result(function: F) -> F:
    """``torch.compiler.assume_constant_result``, which would import the compiler: as long again as torch itself."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def fact(method: Callable[[Any], Any]) -> Any:
    """A property that is found once: to compiled code it is a constant, and no mode of torch sees how it is found."""
    name = method.__qualname__

    @constant_result
    def found(self: Any) -> Any:
        if name not in self.__dict__:
            with _disable_current_modes():
                self.__dict__[name] = method(self)
        return self.__dict__[name]

    return property(lambda self: found(self), doc=method.__doc__)
