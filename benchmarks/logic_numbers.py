"""Circuits on rows of numbers: a million of them and one, against their bits and scikit-learn's logistic regression."""

from collections.abc import Callable, Iterator

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from benchmarks.harness import Case
from softly.logic import Circuit, LogicClassifier
from softly.logic.execution import Comparisons

ROWS = 1_000_000


def cases() -> Iterator[Case]:
    """Digits by a circuit of 4×1,000 gates and up to 4 thresholds a pixel, from bits, bytes, floats and doubles."""
    x, y = load_digits(return_X_y=True)
    model = LogicClassifier([1000] * 4, bits=4, epochs=20, learning_rate=0.05, random_state=0).fit(x, y)
    circuit, other = model.circuit_, LogisticRegression(max_iter=5000).fit(x, y)
    assert circuit.inputs is not None
    print(f"  {circuit}, {len(circuit.inputs.columns)} comparisons of {circuit.num_columns} columns")
    bits = np.resize(circuit.inputs(x).astype(np.uint8), (ROWS, len(circuit.inputs.columns)))
    alone = _on_bits(circuit)
    rows = np.resize(x, (ROWS, x.shape[1]))
    forms = {"bytes": rows.astype(np.uint8), "floats": rows.astype(np.float32), "doubles": rows}
    for name, form in forms.items():
        assert (circuit.predict(form[:5000]) == alone.counts(bits[:5000]).argmax(-1)).all()
        peers = {"their bits": lambda: alone.predict(bits)}
        if name != "bytes":
            peers["logistic regression"] = lambda form=form: other.predict(form)  # type: ignore[misc]
        yield Case(f"{ROWS:,} rows of {name}", lambda form=form: circuit.predict(form), peers, note=_a_row(ROWS))
    one_bits = bits[:1]
    for name, form in forms.items():
        row = form[:1]
        peers = {"its bits": lambda: alone.predict(one_bits)}
        if name != "bytes":
            peers["logistic regression"] = lambda row=row: other.predict(row)  # type: ignore[misc]
        yield Case(f"one row of {name}", lambda row=row: circuit.predict(row), peers, note=_a_row(1))


def _on_bits(circuit: Circuit) -> Circuit:
    """The same gates, on the bits that the comparisons that are left give."""
    assert circuit.comparisons is not None
    assert circuit.inputs is not None
    merged, places = circuit.comparisons.merged()
    kept = {tuple(row): i for i, row in enumerate(_keys(circuit.inputs))}
    found = np.array([kept.get(tuple(row), 0) for row in _keys(merged)])[places]
    first = circuit.layers[0]
    layers = [type(first)(first.gates, found[first.wires]), *circuit.layers[1:]]
    return Circuit(len(kept), layers, k=circuit.k, tau=circuit.tau)


def _keys(comparisons: Comparisons) -> Iterator[tuple[float, ...]]:
    parts = (comparisons.columns, comparisons.kinds, comparisons.thresholds)
    yield from zip(*(part.tolist() for part in parts), strict=True)


def _a_row(rows: int) -> Callable[[float], str]:
    return lambda seconds: f"{seconds / rows * 1e9:,.0f} ns a row"
