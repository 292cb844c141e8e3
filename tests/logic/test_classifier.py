import io
import pickle
import subprocess
import sys
from contextlib import redirect_stderr

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils.estimator_checks import parametrize_with_checks

from softly.logic import LogicClassifier, LogicRegressor, OneHot, Threshold, parametrizations

SMALL = {"widths": (64, 64), "epochs": 60, "random_state": 0}


@parametrize_with_checks([LogicClassifier(**SMALL), LogicRegressor(**SMALL)])
def test_scikit_learn_is_content(estimator, check):
    check(estimator)


def test_classifier_learns_real_data():
    X, y = load_breast_cancer(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(X, y, random_state=0)
    model = LogicClassifier((200, 200, 200), epochs=60, random_state=0).fit(train_x, train_y)
    assert model.score(test_x, test_y) > 0.93
    p = model.predict_proba(test_x)
    np.testing.assert_allclose(p.sum(1), 1)
    assert np.array_equal(model.classes_[p.argmax(1)], model.predict(test_x))


def test_predictions_are_those_of_the_hard_network():
    X, y = load_iris(return_X_y=True)
    model = LogicClassifier(**SMALL).fit(X, y)
    network = model.network_
    assert not network.training
    bits = network.encoding(torch.from_numpy(X))
    for layer in network.layers:
        bits = layer(bits)
        assert set(bits.unique().tolist()) <= {0.0, 1.0}
    assert np.array_equal(model.predict(X), network.head(bits).argmax(-1).numpy())
    assert network.layers[-1].out_dim == 66  # 64, rounded up for three classes


@pytest.mark.parametrize("link", ["identity", "logit"])
def test_regressor_learns_real_data(link):
    X, y = load_diabetes(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(X, y, random_state=0)
    model = LogicRegressor((200, 200), link=link, epochs=60, random_state=0).fit(train_x, train_y)
    assert model.score(test_x, test_y) > 0.2
    if link == "identity":
        assert model.predict(test_x).min() >= train_y.min() - 0.11 * train_y.std()


def test_early_stopping_keeps_the_best_hard_network():
    X, y = load_iris(return_X_y=True)
    model = LogicClassifier((60, 60), epochs=500, patience=200, validation_fraction=0.3, random_state=1).fit(X, y)
    scores = model.validation_scores_
    assert model.n_iter_ == len(scores) < 500
    assert model.n_iter_ == model.best_epoch_ + 100  # epochs of two steps: 105 rows, a hundred at a time
    assert scores[model.best_epoch_ - 1] == max(scores)


@pytest.mark.parametrize("load", [load_wine, load_iris])
@pytest.mark.parametrize("options", [{"learning_rate": 0.05, "weight_decay": 0.02, "init": "residual"}, {"epochs": 20}])
def test_small_tables_get_enough_steps(load, options):
    """Each of these gave circuits of no gates at all: training ended after twenty epochs, which are forty steps."""
    train_x, test_x, train_y, test_y = train_test_split(*load(return_X_y=True), test_size=0.3, random_state=0)
    model = LogicClassifier((600, 600), **options, random_state=0).fit(train_x, train_y)
    assert model.circuit_.netlist.num_gates > 50
    assert model.score(test_x, test_y) > 0.9


def test_steps_are_counted_not_epochs():
    """The same patience ends small and large batches after as many steps, not as many epochs."""
    X, y = load_wine(return_X_y=True)
    for batch_size in (16, 178):
        model = LogicClassifier((60, 60), batch_size=batch_size, patience=100, random_state=0)
        model.fit(X, np.arange(178) % 2)
        steps = -(-178 // batch_size)
        if model.n_iter_ < -(-1500 // steps):
            assert 100 <= (model.n_iter_ - model.best_epoch_) * steps < 100 + steps
    assert LogicClassifier((8, 8), batch_size=50, random_state=0).fit(X, y).n_iter_ == 375


@pytest.mark.parametrize("link", ["identity", "logit"])
def test_circuits_that_learned_nothing_say_so(link):
    X, y = load_iris(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match=r"LogicClassifier: the circuit is .*\(0 gates after 1 epochs"):
        LogicClassifier((60, 60), epochs=1, learning_rate=0.05, random_state=0).fit(X, y)
    noise = np.random.default_rng(0).normal(size=150)
    with pytest.warns(ConvergenceWarning, match="LogicRegressor: the circuit is no better .* than the mean"):
        LogicRegressor((60, 60), link=link, epochs=1, learning_rate=0.05, random_state=0).fit(X, noise)


def test_a_column_that_is_the_answer_needs_no_gates_and_no_warning():
    X = np.random.default_rng(0).integers(0, 2, (200, 2)).astype(float)
    assert LogicClassifier((8, 8), random_state=0).fit(X, X[:, 0]).score(X, X[:, 0]) == 1


def test_without_validation_all_rows_choose_the_epoch():
    X, y = load_iris(return_X_y=True)
    model = LogicClassifier((60, 60), epochs=30, patience=None, validation_fraction=0.0, random_state=1).fit(X, y)
    assert model.n_iter_ == 30
    assert model.score(X, y) == max(model.validation_scores_) == model.validation_scores_[model.best_epoch_ - 1]


def test_seeds_settle_everything_and_leave_torch_alone():
    X, y = load_iris(return_X_y=True)
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    model = LogicClassifier(**SMALL).fit(X, y)
    assert torch.equal(torch.rand(2), expected)
    twin = clone(model).fit(X, y)
    assert model.loss_curve_ == twin.loss_curve_
    other = clone(model).set_params(random_state=1).fit(X, y)
    assert model.loss_curve_ != other.loss_curve_
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_options_reach_the_network():
    X, y = load_iris(return_X_y=True)
    options = {"gates": ("a", "and", "or"), "wiring": "unique", "tnorm": "einstein", "grad_factor": 2.0, "tau": 3.0}
    quiet = parametrizations.Gumbel(scale=0.5)
    model = LogicClassifier((9, 9), epochs=2, parametrization=quiet, init="residual", **options).fit(X, y)
    layer = model.network_.layers[0]
    assert (layer.gates, layer.wiring, layer.parametrization) == ((1, 3, 7), "unique", quiet)
    assert (layer.grad_factor, model.network_.head.tau) == (2.0, 3.0)
    given = Threshold(3.0)
    model = LogicClassifier((9, 9), epochs=2, encoding=given).fit(X, y)
    assert model.network_.encoding.num_bits == 4
    assert given.num_bits == 0


def test_missing_values_are_a_kind_of_their_own():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    X = np.where(y[:, None] == 1, np.nan, rng.normal(size=(200, 1)))
    model = LogicClassifier((32, 32), epochs=60, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.8


def test_data_without_information_is_no_error():
    X, y = np.ones((20, 1)), np.arange(20) % 2
    with pytest.warns(ConvergenceWarning, match="no better on its training rows than the most frequent class"):
        assert LogicClassifier((8, 8), epochs=2).fit(X, y).predict(X).shape == (20,)
    with pytest.warns(ConvergenceWarning, match="no better"):
        kinds = LogicClassifier((8, 8), epochs=2, encoding=OneHot()).fit(X, y)
    assert kinds.network_.encoding.num_bits == 2


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_progress_is_shown_as_lines_where_nobody_watches():
    X, y = load_iris(return_X_y=True)
    shown = io.StringIO()
    with redirect_stderr(shown):
        LogicClassifier((9, 9), epochs=3, verbose=True).fit(X, y)
    lines = shown.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("LogicClassifier 1/3 loss ")
    assert "discretized" in lines[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs and batch_size must be at least 1"),
        ({"validation_fraction": 1.0}, r"validation_fraction must be in \[0, 1\)"),
        ({"widths": ()}, "widths must be positive"),
    ],
)
def test_impossible_options_are_refused(options, message):
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        LogicClassifier(**options).fit(X, y)


def test_unknown_links_are_refused():
    with pytest.raises(ValueError, match="link must be identity or logit"):
        LogicRegressor(link="log").fit(np.ones((3, 1)), np.ones(3))


def test_softly_needs_no_scikit_learn():
    code = """
import sys
sys.modules["sklearn"] = None
import softly
try:
    softly.logic.LogicClassifier
except ModuleNotFoundError as error:
    assert "pip install scikit-learn" in str(error)
else:
    raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
