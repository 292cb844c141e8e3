"""What the engine does is tested with and without the tape that straight-line programs run on by themselves."""

import pytest

from softly.algorithms.python import taping

BOTH = ("test_paths", "test_python", "test_semantics", "test_values")


def pytest_generate_tests(metafunc):
    if metafunc.module.__name__.rpartition(".")[2] in BOTH:
        metafunc.parametrize("taped", [True, False], ids=["taped", "engine"], indirect=True)


@pytest.fixture(autouse=True)
def taped(request, monkeypatch):
    """Whether programs may run on a tape."""
    if not getattr(request, "param", True):
        monkeypatch.setattr(taping.Taping, "play", lambda *_: None)
