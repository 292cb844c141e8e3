"""Fixtures for tests and doctests alike."""

from typing import Any

import pytest
import torch

import softly


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, Any]) -> None:
    """Examples use `softly` and `torch` without importing them each time."""
    doctest_namespace.update(softly=softly, torch=torch)
