"""A run of a program: what it knows of its batch, and the parts that lowered code asks."""

from __future__ import annotations

from typing import Any

from softly.algorithms.engine.access import Access
from softly.algorithms.engine.arrays import Undefined
from softly.algorithms.engine.calls import Calls
from softly.algorithms.engine.conditions import Conditions
from softly.algorithms.engine.control import Control
from softly.algorithms.engine.joining import Joining
from softly.algorithms.engine.journals import Journals
from softly.algorithms.engine.methods import Methods
from softly.algorithms.engine.positions import Positions
from softly.algorithms.engine.settings import Settings
from softly.algorithms.engine.values import Values


class Runtime(Values):
    """One run of a program over a batch, ``_rt`` in lowered code; its arguments are those of `Values`."""

    def __init__(self, *args: Any) -> None:
        self.running: dict[Any, Settings] = {}
        self.births: dict[int, tuple[Any, int]] = {}  # the attributes of objects that the program made, and when
        self.merged_objects: dict[int, Any] = {}
        self.positions = Positions(self)
        self.conditions = Conditions(self)
        self.access = Access(self)
        self.journals = Journals(self)
        self.joins = Joining(self)
        self.control = Control(self)
        self.calls = Calls(self)
        self.methods = Methods(self)
        super().__init__(*args)

    def undefined(self, name: str) -> Undefined:
        return Undefined(name)

    def attribute(self, value: Any, name: str) -> Any:
        return self.methods.attribute(value, name)

    def setattr(self, value: Any, name: str, new: Any) -> None:
        """``value.name = new``."""
        self.methods.assign(value, name, new)

    def call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self.calls(function, args, kwargs)

    def method(self, value: Any, name: str, /, *args: Any, **kwargs: Any) -> Any:
        return self.methods(value, name, args, kwargs)

    def torch_call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.calls.torch(function, args, kwargs)
