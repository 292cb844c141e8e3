"""The compiled module and its functions."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

__all__ = ["available", "isa", "why"]

_ISAS = ("portable", "avx2", "avx512")


def _load() -> tuple[ModuleType | None, str]:
    """The compiled module, or why there is none."""
    wish = os.environ.get("SOFTLY_ISA")
    if wish is not None and wish not in _ISAS:
        raise ValueError(
            f"softly: the environment variable SOFTLY_ISA must be one of {', '.join(_ISAS)}, got {wish!r}."
        )
    if os.environ.get("SOFTLY_NATIVE", "1") == "0":
        return None, "switched off by SOFTLY_NATIVE=0"
    try:
        import softly._native as _native  # which, unlike `from softly import`, says that it is not there
    except ImportError as error:
        return None, str(error)
    return _native, ""


module, _reason = _load()
_told = os.environ.get("SOFTLY_NATIVE", "1") == "0"  # who switched kernels off knows


def why() -> str:
    """Why the compiled kernels are not in use; empty where they are.

    Example:
        >>> bool(softly.native.why()) == (not softly.native.available())
        True
    """
    return _reason


def missed() -> None:
    """Say once that kernels are missing, where one would have been used."""
    global _told
    if _reason and not _told and not torch.compiler.is_compiling():
        _told = True
        message = f"softly runs without its compiled kernels, as right and much slower: {_reason}."
        warnings.warn(f"{message} A reinstall where there is a C++ compiler builds them.", stacklevel=4)


def available() -> bool:
    """Whether the compiled kernels are in use; ``SOFTLY_NATIVE=0`` in the environment switches them off.

    Example:
        >>> softly.native.available() == (softly.native.isa() is not None)
        True
    """
    return module is not None


def isa() -> str | None:
    """The instruction set of the kernels, ``"avx512"``, ``"avx2"`` or ``"portable"``; None without kernels.

    It is the widest that the machine has, or a narrower one that the environment names: ``SOFTLY_ISA=avx2``.

    Example:
        >>> softly.native.isa() in ("avx512", "avx2", "portable", None)
        True
    """
    return module.isa() if module is not None else None


_SUFFIX = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16"}


def function(name: str) -> Callable[..., Any]:
    """The compiled function ``name``."""
    return getattr(module, name)


def kernel(name: str, dtype: torch.dtype) -> Callable[..., Any]:
    """The compiled function ``name`` for ``dtype``."""
    return function(f"{name}_{_SUFFIX[dtype]}")
