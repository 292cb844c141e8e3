"""Every border of PyTorch on every operator, each in a process that has not called softly before."""

import re
from pathlib import Path

import borders
import cold
import contract
import pytest

ROWS = {row.name: row for row in contract.ROWS}
CORE = (  # one of each kind of kernel, and of what has none
    "any[probabilistic]",
    "minimum",
    "argmax",
    "bitonic.sort",
    "bitonic.permutation",
    "bitonic.rank",
    "bitonic.topk",
    "NeuralSort.permutation",
    "SoftSort.sort",
    "SinkhornSort.permutation",
    "FastSort.rank[kl]",
    "TopKNetwork.topk",
    "TopKCrossEntropy[softmax]",
    "soft_topk",
    "LogicNetwork",
    "levenshtein",
    "Renderer.silhouette[logistic]",
)
CELLS = [
    pytest.param(name, border, id=f"{name}-{border}", marks=[] if name in CORE else pytest.mark.slow)
    for name in ROWS
    for border in (*borders.BORDERS, "export")
    if (border, name) not in borders.NOT_ASKED
]


def cross(name: str, border: str) -> None:
    borders.BORDERS[border](ROWS[name])


def export(name: str, path: Path) -> None:
    borders.export(ROWS[name], path)


def load(name: str, path: Path) -> None:
    borders.load(ROWS[name], path)


@pytest.mark.parametrize(("name", "border"), CELLS)
def test_border(name, border, tmp_path):
    if border == "export":
        path = tmp_path / "model.pt2"
        raised = cold.run(export, name, path) or cold.run(load, name, path)
    else:
        raised = cold.run(cross, name, border)
    expected = borders.RAISES.get((border, name))
    if expected is None:
        assert raised is None, raised
    else:
        assert raised is not None, "it raises no more: take it out of the table"
        assert re.search(expected, raised), raised


def test_the_docs_show_what_is_refused():
    page = (Path(__file__).parents[1] / "docs" / "borders.md").read_text()
    for border, name in (*borders.RAISES, *borders.NOT_ASKED):
        assert re.search(rf"^\| {border} \|[^|\n]*`{re.escape(name)}`", page, re.MULTILINE), (border, name)


def fail(message: str) -> None:
    raise ValueError(message)


def test_a_cold_process_tells_what_it_raised():
    assert "ValueError: nothing" in cold.run(fail, "nothing")
