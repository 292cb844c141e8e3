"""Functions that nobody wrote for softly: right for each example of a batch, or refused by softly's own words."""

import re
from collections import Counter
from pathlib import Path

import pytest

from . import judge
from .public import ALGORITHMS

DOCS = Path(__file__).parents[2] / "docs" / "programs.md"


@pytest.fixture(scope="module")
def verdicts():
    return {name: judge.judge(name) for name in ALGORITHMS}


@pytest.mark.xdist_group("public")
def test_functions_of_others(verdicts):
    bad = {n: v for n, v in verdicts.items() if v.kind not in ("right", "refused")}
    assert not bad
    slopes = {n: v.gradient for n, v in verdicts.items() if v.gradient.startswith(("wrong", "raw", "slow"))}
    assert not slopes
    kinds = Counter(v.kind for v in verdicts.values())
    assert kinds["right"] >= 0.7 * len(verdicts)
    # The table of the documentation says the same.
    text = DOCS.read_text()
    rows = dict(re.findall(r"^\| (functions|right|refused|gradients) \| (\d+) ", text, re.M))
    gradients = sum(v.gradient == "right" for v in verdicts.values())
    expected = {"functions": len(verdicts), **kinds, "gradients": gradients}
    assert {k: int(v) for k, v in rows.items()} == expected
