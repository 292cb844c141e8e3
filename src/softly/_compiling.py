"""What torch.compile has to know, without importing the compiler."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.utils._python_dispatch import _disable_current_modes

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def constant_result(function: F) -> F:
    """``torch.compiler.assume_constant_result``, which would import the compiler: as long again as torch itself."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def outside(reason: str) -> Callable[[F], F]:
    """``torch.compiler.disable`` with a reason, which would import the compiler.

    Compiled code calls the function as it is, with all that it calls. As part of one whole graph it can't be.
    """

    def decorate(function: F) -> F:
        disabled: list[Callable[..., Any]] = []

        @functools.wraps(function)
        def called(*arguments: Any, **options: Any) -> Any:
            if torch.compiler.is_dynamo_compiling():  # this very frame
                torch._dynamo.graph_break(msg=reason)
            if "torch._dynamo" not in sys.modules:
                return function(*arguments, **options)
            if not disabled:
                disabled.append(torch.compiler.disable(function))
            return disabled[0](*arguments, **options)

        called._torchdynamo_disable = True  # type: ignore[attr-defined]
        called._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
        return called  # type: ignore[return-value]

    return decorate


class _Made:
    """What compiled code made, by name."""


_made = _Made()


@constant_result
def _keep(kind: Callable[..., Any], *arguments: Any) -> str:
    thing = kind(*arguments)
    name = f"made_{hashlib.sha256(repr(thing).encode()).hexdigest()}"  # guards want an identifier
    vars(_made).setdefault(name, thing)  # the same object each time, as guards want it
    return name


def made(kind: Callable[..., T], *arguments: Any) -> T:
    """``kind(*arguments)``, an object that never changes and whose representation tells all of it.

    Compiled code can't make those, but can take them from a place.
    """
    if torch.compiler.is_dynamo_compiling():
        return getattr(_made, _keep(kind, *arguments))
    return kind(*arguments)


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
