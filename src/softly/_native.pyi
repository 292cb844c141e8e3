"""The compiled module. Its kernels take integers and are reached through softly.native only."""

from collections.abc import Callable
from typing import Any

def isa() -> str: ...
def __getattr__(name: str) -> Callable[..., Any]: ...
