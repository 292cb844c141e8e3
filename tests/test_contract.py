"""Every check of the contract on every row of its table."""

import contract
import pytest
from contract import ROWS, Row

from softly import native

rows = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@rows
@pytest.mark.parametrize(
    "check",
    [
        contract.check_limit,
        contract.check_gradients,
        contract.check_batch,
        contract.check_purity,
        contract.check_dtypes,
        contract.check_finite,
        contract.check_nan,
        contract.check_hyperparameters,
        contract.check_transforms,
        contract.check_compile,
    ],
    ids=lambda check: check.__name__.removeprefix("check_"),
)
def test_contract(row: Row, check):
    check(row)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("cdf[cauchy]", "any[probabilistic]", "any[yager, p=2.5]", "minimum", "clamp", "bitonic.permutation"),
        *("SoftSort.sort", "SoftSort.topk", "SoftSort.permutation", "NeuralSort.sort", "NeuralSort.log_permutation"),
    ],
)
def test_inductor(name):
    (row,) = (row for row in ROWS if row.name == name)
    contract.check_compile(row, backend="inductor")


@pytest.mark.native
@pytest.mark.skipif(not native.available(), reason="the compiled kernels are not there")
@pytest.mark.parametrize("row", [row for row in ROWS if row.native_op], ids=lambda row: row.name)
def test_native(row: Row, monkeypatch):
    contract.check_native(row, monkeypatch)
