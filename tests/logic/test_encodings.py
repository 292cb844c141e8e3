import numpy as np
import pytest
import torch
from sklearn.preprocessing import OneHotEncoder

from softly.logic import ColumnEncoding, LogicNetwork, OneHot, Thermometer, Threshold


def by_hand(encoding, x):
    """Bits from the comparisons, in plain Python."""
    columns, thresholds, kinds = (t.tolist() for t in encoding.comparisons())
    return [
        [row[c] == t if kind else row[c] >= t for c, t, kind in zip(columns, thresholds, kinds, strict=True)]
        for row in x.double().tolist()
    ]


def table(rows=200):
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(rows, 2, generator=generator)
    kinds = torch.randint(0, 4, (rows, 2), generator=generator).float()
    return torch.cat((numbers, kinds), 1)


@pytest.mark.parametrize(
    "encoding",
    [
        Threshold([0.3, -0.2]),
        Threshold(),
        Thermometer(5),
        OneHot(),
        ColumnEncoding([([2, 3], OneHot()), ([0], Thermometer(3)), ([1], Threshold(0.0))]),
    ],
    ids=["thresholds", "median", "thermometer", "onehot", "columns"],
)
def test_bits_are_comparisons(encoding):
    x = table()
    bits = encoding.fit(x)(x)
    assert bits.dtype == torch.bool
    assert bits.shape == (len(x), encoding.num_bits)
    assert bits.tolist() == by_hand(encoding, x)
    assert torch.equal(encoding(x.view(10, 20, 4)), bits.view(10, 20, -1))


def test_one_hot_is_that_of_scikit_learn():
    x = table()[:, 2:]
    theirs = OneHotEncoder(sparse_output=False).fit_transform(x.numpy())
    assert np.array_equal(OneHot().fit(x)(x).numpy(), theirs.astype(bool))


def test_thermometer_splits_training_data_evenly_and_is_monotone():
    x = torch.randn(4000, 3, dtype=torch.float64)
    encoding = Thermometer(7).fit(x)
    bits = encoding(x).view(-1, 3, 7)
    shares = bits.double().mean(0)
    torch.testing.assert_close(shares, torch.arange(7, 0, -1).expand(3, 7).double() / 8, atol=1e-3, rtol=0)
    assert (bits[..., :-1] >= bits[..., 1:]).all()
    order = x[:, 0].argsort()
    assert (bits[order, 0].sum(-1).diff() >= 0).all()


def test_a_frequent_value_takes_one_threshold_and_leaves_the_others():
    column = torch.cat((torch.zeros(900), torch.arange(1.0, 101.0)))[:, None]
    assert Thermometer(4).fit(column).thresholds.tolist() == [0.5, 25.5, 50.5, 75.5]
    assert Thermometer(3).fit(-column).thresholds.tolist() == [-67.5, -34.5, -0.5]
    several = torch.tensor([0.0] * 50 + [1.0] * 30 + [2.0] * 15 + [3.0, 4.0, 5.0, 6.0, 7.0])[:, None]
    assert Thermometer(4).fit(several).thresholds.tolist() == [0.5, 1.5, 2.5, 4.5]


def test_columns_with_few_values_get_few_bits():
    x = torch.tensor([[1.0, 5.0, 0.0], [2.0, 5.0, 0.0], [4.0, 5.0, 1e-300], [4.0, 5.0, 1.0]], dtype=torch.float64)
    encoding = Thermometer(8).fit(x)
    assert encoding.columns.tolist() == [0, 0, 2, 2]
    assert encoding.thresholds[:2].tolist() == [1.5, 3.0]
    a, b = 1.0, np.nextafter(1.0, 2.0)
    neighbours = torch.tensor([[a], [b]], dtype=torch.float64)
    assert Thermometer(8).fit(neighbours)(neighbours).tolist() == [[False], [True]]


def test_missing_values_give_zeros():
    x = torch.tensor([[1.0, 2.0], [torch.nan, 3.0], [2.0, torch.nan]])
    for encoding in (Thermometer(4), OneHot(), Threshold(0.0)):
        bits = encoding.fit(x)(x)
        missing = x.isnan()[:, encoding.columns]
        assert not (bits & missing).any()
        assert bits.any()


def test_thresholds_stay_exact_when_a_model_is_moved():
    encoding = Threshold(0.1).fit(torch.zeros(1, 4))
    network = LogicNetwork(4, [4], 2, encoding=encoding).bfloat16()
    assert network.encoding.thresholds.dtype == torch.float64
    assert network.encoding.thresholds.tolist() == [0.1] * 4


def test_encodings_are_stored_with_the_model():
    x = table()
    parts = [([2, 3], OneHot()), ([0, 1], Thermometer(3))]
    encoding = ColumnEncoding(parts).fit(x)
    network = LogicNetwork(encoding.num_bits, [20, 20], 2, encoding=encoding, seed=0).eval()
    other = LogicNetwork(encoding.num_bits, [20, 20], 2, encoding=ColumnEncoding([]), seed=1).eval()
    other.load_state_dict(network.state_dict())
    assert torch.equal(other(x), network(x))


def test_wrong_uses_are_refused():
    with pytest.raises(RuntimeError, match="fit the encoding on training data first"):
        OneHot()(torch.zeros(1, 1))
    with pytest.raises(ValueError, match=r"x must be of shape \(\.\.\., 2\), got \(1, 3\)"):
        Threshold(0.5).fit(torch.zeros(1, 2))(torch.zeros(1, 3))
    with pytest.raises(ValueError, match=r"columns must be in \[0, 1\], got \[2\]"):
        ColumnEncoding([([2], OneHot())]).fit(torch.zeros(1, 2))
    with pytest.raises(ValueError, match="not empty"):
        OneHot().fit(torch.zeros(0, 2))
    with pytest.raises(ValueError, match="num_bits must be at least 1"):
        Thermometer(0)
    with pytest.raises(ValueError, match="thresholds must be finite"):
        Threshold([])
    with pytest.raises(ValueError, match="must be finite or NaN"):
        Thermometer(2).fit(torch.tensor([[torch.inf], [0.0]]))
    with pytest.raises(ValueError, match="the encoding gives 2 bits, not in_dim = 3"):
        LogicNetwork(3, [4], 2, encoding=Threshold(0.5).fit(torch.zeros(1, 2)))
