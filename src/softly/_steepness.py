"""The dial of a module: a number that compiled code sees as a tensor, a buffer, or a parameter that is learned."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from softly import _inputs

Steepness = float | Tensor | str


class Steep(torch.nn.Module):
    """A module with a ``steepness``, which can be set at any time.

    A number stays a number, and compiled code is the same for all of them; a tensor becomes a buffer, which moves and
    is saved with the module; a parameter is learned. Where a module takes "auto", that is another choice.

    Args:
        steepness: Inverse temperature, > 0.
        name: The module in errors.
        auto: Whether "auto" is allowed.
    """

    steepness: Steepness
    _dialed: bool
    _as_tensor: Tensor

    def __init__(self, steepness: Steepness, *, name: str, auto: bool = False) -> None:
        super().__init__()
        self._name, self._auto_allowed = name, auto
        self.steepness = steepness

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "steepness":
            super().__setattr__(name, value)
            return
        if isinstance(value, str):
            if value != "auto" or not self._auto_allowed:
                choices = "a positive number or 'auto'" if self._auto_allowed else "a positive number"
                raise ValueError(f"{self._name}: steepness must be {choices}, got {value!r}.")
        else:
            _inputs.steepness(value, self._name)
        for place in (self.__dict__, self._parameters, self._buffers):
            place.pop("steepness", None)
        if isinstance(value, torch.nn.Parameter):
            self.register_parameter("steepness", value)
        elif isinstance(value, Tensor):
            self.register_buffer("steepness", value)
        else:
            self.__dict__["steepness"] = value
        self._keep_dial(value)

    def _keep_dial(self, value: Steepness) -> None:
        """Hold a number as a tensor too, for compiled code: a tensor's value is no reason to compile again."""
        dialed = isinstance(value, (int, float)) and not torch.compiler.is_compiling()
        self.__dict__["_dialed"] = dialed
        if dialed and isinstance(self.__dict__.get("_as_tensor"), Tensor):
            self.__dict__["_as_tensor"].fill_(value)
        elif dialed:
            self.__dict__["_as_tensor"] = torch.tensor(value, dtype=torch.float64, device="cpu")

    def _current_steepness(self) -> Steepness:
        if torch.compiler.is_compiling() and self._dialed:
            return self._as_tensor
        return self.steepness

    def _checked_steepness(self) -> float | Tensor:
        """The steepness of a module that knows no "auto"; what is learned may have left its bounds."""
        current = self._current_steepness()
        assert not isinstance(current, str)
        return _inputs.steepness(current, self._name)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        # States that were saved when a tensor was no buffer yet don't have it.
        buffer = self._buffers.get("steepness")
        if buffer is not None and f"{prefix}steepness" not in state_dict:
            state_dict[f"{prefix}steepness"] = buffer
        super()._load_from_state_dict(state_dict, prefix, *arguments)
