"""The options of relaxed programs, as users give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from softly import _inputs, distributions, tnorms
from softly.distributions import Distribution
from softly.tnorms import TNorm


@dataclass(frozen=True)
class Settings:
    """How a program is relaxed; see `softly.relax`."""

    steepness: float | Tensor
    distribution: Distribution
    tnorm: TNorm
    hard: bool = False
    max_iterations: int = 1024
    tolerance: float = 1e-5
    max_paths: int = 4096
    exact_gradient: bool = False
    variables: dict[str, float | Tensor] = field(default_factory=dict)
    straight_through: bool = False


def make_settings(
    function: str,
    *,
    steepness: float | Tensor = 10.0,
    distribution: str | Distribution = "logistic",
    tnorm: str | TNorm = "probabilistic",
    hard: bool = False,
    max_iterations: int = 1024,
    tolerance: float = 1e-5,
    max_paths: int = 4096,
    exact_gradient: bool = False,
    variables: Mapping[str, float | Tensor] | None = None,
    straight_through: bool = False,
) -> Settings:
    """Check what a user chose."""
    if not isinstance(max_iterations, int) or max_iterations < 1:
        raise ValueError(f"{function}: max_iterations must be an int >= 1, got {max_iterations!r}.")
    if not isinstance(max_paths, int) or max_paths < 1:
        raise ValueError(f"{function}: max_paths must be an int >= 1, got {max_paths!r}.")
    if not 0 <= tolerance < 1:
        raise ValueError(f"{function}: tolerance must be in [0, 1), got {tolerance}.")
    return Settings(
        _inputs.steepness(steepness, function),
        distributions.get(distribution),
        tnorms.get(tnorm),
        bool(hard),
        max_iterations,
        float(tolerance),
        max_paths,
        bool(exact_gradient),
        {name: _inputs.steepness(value, function) for name, value in (variables or {}).items()},
        bool(straight_through),
    )
