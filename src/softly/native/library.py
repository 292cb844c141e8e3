"""The compiled module and its functions."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

__all__ = ["available", "isa"]


def _load() -> ModuleType | None:
    if os.environ.get("SOFTLY_NATIVE", "1") == "0":
        return None
    try:
        from softly import _native
    except ImportError:
        return None
    return _native


module = _load()


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
