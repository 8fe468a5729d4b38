"""Learners that see synthetic rows only."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from dpgenerative import (
    Column,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    PrivacyBudget,
    Schema,
    SyntheticClassifier,
    SyntheticRegressor,
)
from dpgenerative.exceptions import HopelessBudgetWarning
from dpgenerative.meta.learners import default_learner

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

FAST = {"n_steps": 15, "random_state": 0}


def table(n=1200, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "kind": rng.choice(["x", "y"], n),
            "level": pd.Categorical(rng.choice(["low", "high"], n)),
            "count": pd.array(rng.integers(0, 9, n), dtype="Int64"),
            "flag": rng.random(n) < 0.5,
        }
    )
    signal = X["size"] + 2 * (X["kind"] == "x") + rng.normal(size=n) / 4
    return X, signal.rename("signal")


def labels(signal, kind):
    positive = (signal > 1).to_numpy()
    return {
        "bool": pd.Series(positive, name="rich"),
        "string": pd.Series(np.where(positive, "rich", "poor"), name="rich"),
        "category": pd.Series(np.where(positive, "rich", "poor")).astype("category"),
        "integer": np.where(positive, 7, 3),
        "unicode": np.where(positive, "rich", "poor"),
        "nullable": pd.Series(pd.array(np.where(positive, 7, 3), dtype="Int64")),
        "list": np.where(positive, "rich", "poor").tolist(),
    }[kind]


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "kind", ["bool", "string", "category", "integer", "unicode", "nullable", "list"]
)
def test_labels_come_back_as_they_were(kind):
    X, signal = table()
    y = labels(signal, kind)
    flow = DPHFlowSynthesizer(epsilon=8.0, **FAST)
    model = SyntheticClassifier(flow, random_state=0).fit(X, y)
    assert model.classes_.tolist() == sorted(set(np.asarray(y).tolist()))
    predicted = model.predict(X)
    assert (predicted == np.asarray(y)).mean() > 0.75
    assert model.score(X, np.asarray(y)) > 0.75
    assert model.predict_proba(X[:5]).shape == (5, 2)
    assert model.privacy_ is model.synthesizer_.privacy_
    assert model.n_features_in_ == 5
    assert model.feature_names_in_.tolist() == X.columns.tolist()


def test_the_autoencoder_serves_as_well():
    X, signal = table()
    vae = DPVAESynthesizer(epsilon=8.0, **FAST)
    model = SyntheticClassifier(vae).fit(X, labels(signal, "bool"))
    assert model.score(X, labels(signal, "bool")) > 0.5


def test_classes_are_what_is_public_or_released_never_what_y_holds():
    X, signal = table()
    y = labels(signal, "string")
    y[0] = "a label that one row has"
    flow = DPHFlowSynthesizer(epsilon=2.0, **FAST)
    assert (
        "a label that one row has" not in SyntheticClassifier(flow).fit(X, y).classes_
    )
    told = SyntheticClassifier(flow, classes=["poor", "rich", "unheard of"]).fit(X, y)
    assert set(told.classes_) <= {"poor", "rich", "unheard of"}
    stated = told.synthesizer_.schema_["rich"].levels
    assert list(stated) == ["poor", "rich", "unheard of"]


@pytest.mark.parametrize(
    "classes",
    ["ab", 3, [], ["a", None], ["a", np.nan], [1, "a"], [["a", "b"]], [["a"], []]],
)
def test_classes_that_are_no_list_of_labels_are_refused(classes):
    X, signal = table(50)
    model = SyntheticClassifier(DPHFlowSynthesizer(**FAST), classes=classes)
    with pytest.raises(ValueError, match="'classes' of SyntheticClassifier must be a"):
        model.fit(X, labels(signal, "string"))


@pytest.mark.parametrize(
    ("parameters", "kind", "name"),
    [
        ({"classes": ["3", "7"]}, "integer", "classes"),
        ({"classes": [3.5, 7.0]}, "nullable", "classes"),
        ({"classifier": "forest"}, "integer", "classifier"),
        ({"classifier": LogisticRegression}, "integer", "classifier"),
        ({"random_state": "0"}, "integer", "random_state"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_spent(parameters, kind, name):
    X, signal = table(50)
    model = SyntheticClassifier(DPHFlowSynthesizer(**FAST), **parameters)
    with PrivacyBudget(9.0, 0.1) as budget, pytest.raises(ValueError, match=name):
        model.fit(X, labels(signal, kind))
    assert budget.fits == []


def test_a_learner_that_fails_leaves_none_of_another_fit():
    X, signal = table(300)
    X, y = X[["size"]], labels(signal, "integer")
    model = SyntheticClassifier(DPHFlowSynthesizer(**FAST), classes=[3, 7])
    model.fit(X, y).set_params(classifier=LogisticRegression(C=-1))
    with pytest.raises(ValueError, match="'C'"):
        model.fit(X, y)
    assert len(model.synthesizer_.sample(3)[0]) == 3
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_warning_that_is_an_error_leaves_the_synthesizer():
    X, signal = table(50)
    model = SyntheticRegressor(DPHFlowSynthesizer(epsilon=0.01, n_steps=0))
    with warnings.catch_warnings():
        warnings.simplefilter("error", HopelessBudgetWarning)
        with pytest.raises(HopelessBudgetWarning):
            model.fit(X, signal)
    assert len(model.synthesizer_.sample(3)[0]) == 3


def test_asking_for_a_method_draws_nothing():
    state = np.random.RandomState(0)
    assert hasattr(SyntheticClassifier(random_state=state), "predict_proba")
    assert not hasattr(SyntheticRegressor(random_state=state), "predict_proba")
    assert state.randint(2**31) == np.random.RandomState(0).randint(2**31)


@pytest.mark.parametrize("stated", ["classes", "dtype", "schema"])
def test_public_labels_that_no_classifier_takes_cost_nothing(stated):
    X, signal = table()
    y, chosen = pd.Series(signal / 2, name="code"), {}
    levels = [0.0, 0.5]
    if stated == "schema":
        chosen = {"schema": Schema([Column("code", "categorical", levels=levels)])}
    model = SyntheticClassifier(DPHFlowSynthesizer(epsilon=8.0, **FAST, **chosen))
    if stated == "dtype":
        y = y.astype("category")
    if stated == "classes":
        model.set_params(classes=levels)
    label = pytest.raises(ValueError, match="Unknown label type")
    with PrivacyBudget(9.0, 0.1) as budget, label:
        model.fit(X, y)
    assert not budget.fits


def test_numbers_are_labels_only_if_something_public_says_so():
    X, signal = table()
    y = pd.Series(labels(signal, "integer").astype(float), name="code")
    flow = DPHFlowSynthesizer(epsilon=8.0, **FAST)
    with pytest.raises(ValueError, match="Unknown label type: float64"):
        SyntheticClassifier(flow).fit(X, y)
    schema = Schema([Column("code", "categorical", levels=[3.0, 7.0])])
    stated = SyntheticClassifier(flow.set_params(schema=schema)).fit(X, y)
    assert stated.classes_.tolist() == [3.0, 7.0]
    wrong = Schema([Column("code", "continuous")])
    with pytest.raises(ValueError, match="State it as categorical"):
        SyntheticClassifier(flow.set_params(schema=wrong)).fit(X, y)
    told = SyntheticClassifier(flow.set_params(schema=None), classes=[3.0, 7.0])
    assert told.fit(X, y).classes_.tolist() == [3.0, 7.0]


@pytest.mark.thin(3)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308])
@pytest.mark.parametrize("as_list", [False, True])
def test_values_of_a_private_target_never_raise(bad, as_list):
    X, signal = table(400)
    y = signal.to_numpy().copy()
    y[:3] = bad
    flow = DPHFlowSynthesizer(**FAST)
    model = SyntheticRegressor(flow).fit(X, y.tolist() if as_list else y)
    assert np.isfinite(model.predict(X)).all()
    without = SyntheticRegressor(DPHFlowSynthesizer(epsilon=None, **FAST))
    if not np.isfinite(bad):
        with pytest.raises(ValueError, match="NaN or infinity"):
            without.fit(X, y)


def test_lists_are_floats_whatever_they_hold():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(300, 2)).tolist()
    rows[0] = ["text", None]
    rows[1] = [10**400, True]
    model = SyntheticRegressor(DPHFlowSynthesizer(**FAST)).fit(rows, [0.0] * 300)
    assert model.synthesizer_.sample(5)[0].dtype == float
    with pytest.raises(ValueError, match="different lengths"):
        model.fit([[1.0], [1.0, 2.0]], [0.0, 1.0])
    with pytest.raises(ValueError, match="Unknown label type: object"):
        model.fit(rows, np.array(["a"] * 300))


def test_a_regressor_learns():
    X, signal = table()
    flow = DPHFlowSynthesizer(epsilon=8.0, **FAST)
    model = SyntheticRegressor(flow, n_samples=4000).fit(X, signal)
    assert model.score(X, signal) > 0.4
    assert not hasattr(model, "predict_proba")
    assert not hasattr(model, "classes_")


def test_delegation_follows_the_learner():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 2))
    y = X[:, 0] > 0
    schema = Schema([Column(c, "continuous", nullable=False) for c in ("x0", "x1")])
    flow = DPHFlowSynthesizer(epsilon=8.0, schema=schema, **FAST)
    linear = SyntheticClassifier(flow, LinearSVC())
    assert hasattr(linear, "decision_function")
    assert not hasattr(linear, "predict_proba")
    assert linear.fit(X, y).decision_function(X).shape == (800,)
    logistic = make_pipeline(StandardScaler(), LogisticRegression())
    model = SyntheticClassifier(flow, logistic).fit(X, y)
    assert model.predict_log_proba(X).shape == (800, 2)
    assert logistic[-1].__dict__.get("coef_") is None
    assert model.score(X, y) > 0.9


def test_refusals():
    X, signal = table(50)
    y = labels(signal, "bool")
    with pytest.raises(ValueError, match="requires y to be passed"):
        SyntheticClassifier().fit(X, None)
    with pytest.raises(ValueError, match="'synthesizer' of SyntheticClassifier"):
        SyntheticClassifier(LogisticRegression()).fit(X, y)
    with pytest.raises(ValueError, match="'n_samples' of SyntheticRegressor"):
        SyntheticRegressor(n_samples=0).fit(X, signal)
    with pytest.raises(ValueError, match="one column"):
        SyntheticClassifier().fit(X, np.ones((50, 2), dtype=int))
    with pytest.raises(ValueError, match="same number of rows"):
        SyntheticClassifier().fit(X, y[:-1])
    with pytest.raises(NotFittedError):
        SyntheticClassifier().predict(X)
    rare = np.arange(50)
    with pytest.raises(ValueError, match="no synthetic row has a target"):
        SyntheticClassifier(DPHFlowSynthesizer(n_steps=2)).fit(X, rare)


def test_n_samples_and_the_default():
    X, signal = table(300)
    seen = []

    class Counting(Ridge):
        def fit(self, X, y):
            seen.append(len(y))
            return super().fit(np.zeros((len(y), 1)), y)

    flow = DPHFlowSynthesizer(**FAST)
    for n_samples in (123, None):
        SyntheticRegressor(flow, Counting(), n_samples=n_samples).fit(X, signal)
    assert seen[0] <= 123
    assert 500 < seen[1] <= 1000


@pytest.mark.thin(2)
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_grid_search(n_jobs):
    X, signal = table(600)
    y = labels(signal, "category")
    folds = PredefinedSplit(np.random.default_rng(0).integers(2, size=len(X)))
    grid = {
        "synthesizer__epsilon": [5.0, 50.0],
        "synthesizer__clipping": ["flat", "per-layer"],
        "synthesizer__n_partitions": [8],
    }
    search = GridSearchCV(
        SyntheticClassifier(DPHFlowSynthesizer(n_steps=20), LogisticTable()),
        grid, cv=folds, scoring="roc_auc", n_jobs=n_jobs, error_score="raise",
    )  # fmt: skip
    with warnings.catch_warnings():
        # joblib's workers import the package anew.
        warnings.simplefilter("ignore")
        search.fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert len(scores) == 4
    assert search.best_estimator_.classes_.tolist() == ["poor", "rich"]


class LogisticTable(LogisticRegression):
    """A learner that encodes the table itself, quickly."""

    @staticmethod
    def _encoded(X):
        return np.c_[X["size"].fillna(0), X["kind"] == "x"]

    def fit(self, X, y):
        return super().fit(self._encoded(X), y)

    def predict_proba(self, X):
        return super().predict_proba(self._encoded(X))

    def decision_function(self, X):
        return super().decision_function(self._encoded(X))


def test_the_default_learner_takes_any_table():
    X, signal = table()
    X.loc[:10, "size"] = np.nan
    X.loc[5:20, "kind"] = None
    X.loc[5:20, "count"] = pd.NA
    X["tag"] = np.array([1, "a", 2.5, None] * 300, dtype=object)
    y = labels(signal, "bool")
    model = SyntheticClassifier(DPHFlowSynthesizer(**FAST), random_state=0).fit(X, y)
    strange = X.assign(kind="never seen", tag="never seen")
    assert len(model.predict(strange)) == len(X)
    objects = X.astype(object).to_numpy()
    arrays = SyntheticClassifier(DPHFlowSynthesizer(**FAST)).fit(objects, y.to_numpy())
    assert len(arrays.predict(objects)) == len(X)


@pytest.mark.parametrize("columns", [["size"], ["size", "count"], ["size", "kind"]])
def test_the_default_learner_takes_columns_without_a_value(columns):
    rows = pd.DataFrame({"size": np.nan, "count": [1.0, 2.0] * 30, "kind": ["a"] * 60})
    rows = rows[columns]
    for given in (rows, rows.to_numpy()):
        learner = default_learner(given, HistGradientBoostingClassifier())
        learner.fit(given, [0, 1] * 30)
        assert set(learner.predict(given)) <= {0, 1}


@pytest.mark.thin(3)
@pytest.mark.parametrize("kind", ["bool", "string", "category", "integer"])
def test_probabilities_are_of_the_classes_in_their_order(kind):
    X, signal = table()
    y = labels(signal, kind)
    if kind == "category":
        y = y.cat.reorder_categories(["rich", "poor"], ordered=True)
    flow = DPHFlowSynthesizer(epsilon=8.0, **FAST)
    model = SyntheticClassifier(flow, random_state=0).fit(X, y)
    assert get_scorer("roc_auc")(model, X, y) > 0.85


class Few(DPHFlowSynthesizer):
    """Samples the targets that `wanted` names, of all that were fitted."""

    wanted = ("poor",)

    def sample(self, n_samples=None, random_state=None, **options):
        rows, targets = super().sample(4 * n_samples, random_state, **options)
        chosen = targets.isin(self.wanted).to_numpy()
        return rows[chosen], targets[chosen]


@pytest.mark.parametrize("learner", [None, "logistic"])
def test_a_sample_of_one_class_is_learned_too(learner):
    X, signal = table()
    y = labels(signal, "category")
    model = SyntheticClassifier(
        Few(**FAST), LogisticTable() if learner else None, n_samples=50
    ).fit(X, y)
    assert set(model.predict(X)) == {"poor"}
    assert model.classes_.tolist() == ["poor", "rich"]
    assert model.predict_proba(X[:3]).tolist() == [[1.0, 0.0]] * 3
    assert model.predict_log_proba(X[:3]).tolist() == [[0.0, -np.inf]] * 3
    assert get_scorer("roc_auc")(model, X, y) == 0.5
    assert get_scorer("neg_log_loss")(model, X, y) < 0


def test_classes_that_the_sample_lacks_have_probability_0(monkeypatch):
    X, signal = table()
    X = X[["size"]]
    y = pd.Series(np.digitize(signal, [0, 2]), dtype=object).map(dict(enumerate("cab")))
    monkeypatch.setattr(Few, "wanted", ("c", "b"))
    model = SyntheticClassifier(
        Few(epsilon=8.0, **FAST), LogisticRegression(), classes=["c", "b", "a"]
    ).fit(X, y)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.learner_.classes_.tolist() == ["b", "c"]
    chances = model.predict_proba(X)
    assert (chances[:, 0] == 0).all()
    low, high = (chances[y == label, 1].mean() for label in "cb")
    assert high > low + 0.2
    decisions = model.decision_function(X)
    assert decisions.shape == (len(X), 3)
    assert (model.classes_[decisions.argmax(1)] == model.predict(X)).all()


def test_learners_that_refuse_missing_values_see_complete_rows():
    X, signal = table()
    X = X[["size", "count"]].astype(float)
    X.loc[::4, "size"] = np.nan
    y = labels(signal, "bool")
    flow = DPHFlowSynthesizer(epsilon=8.0, **FAST)
    complete = X.notna().all(axis=1)
    model = SyntheticClassifier(flow, LogisticRegression()).fit(X, y)
    assert model.score(X[complete], y[complete]) > 0.6
    regressor = SyntheticRegressor(flow, Ridge()).fit(X, signal)
    assert np.isfinite(regressor.predict(X[complete])).all()
    # Noise puts values into a few rows of a column, hardly of all columns at once.
    X = pd.DataFrame(np.nan, X.index, list("abcde"))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        SyntheticRegressor(flow, Ridge()).fit(X, signal)


def test_public_rows_reach_the_synthesizer():
    X, signal = table(300)
    pair = table(200, seed=1)
    model = SyntheticRegressor(DPHFlowSynthesizer(**FAST)).fit(X, signal, public=pair)
    assert "200 rows given as public" in str(model.privacy_)
    assert model.synthesizer_.schema_["size"].upper == pair[0]["size"].max()
    old = pair[0], labels(pair[1], "list")
    model = SyntheticClassifier(DPHFlowSynthesizer(**FAST))
    model.fit(X, labels(signal, "list"), public=old)
    assert model.classes_.tolist() == ["poor", "rich"]
    with pytest.raises(ValueError, match="public must be a pair"):
        model.fit(X, labels(signal, "list"), public=old[0])


@pytest.mark.parametrize(
    ("kind", "learner"),
    [
        (SyntheticClassifier, StandardScaler()),
        (SyntheticClassifier, LinearRegression()),
        (SyntheticRegressor, LogisticRegression()),
    ],
)
def test_learners_that_cannot_predict_the_target_cost_nothing(kind, learner):
    X, signal = table()
    refused = pytest.raises(ValueError, match="must be a ")
    with PrivacyBudget(1.0, 1e-5) as budget, refused:
        kind(DPHFlowSynthesizer(**FAST), learner).fit(X, signal > 0)
    assert budget.fits == []


def test_columns_are_those_of_the_fit():
    X, signal = table()
    model = SyntheticClassifier(DPHFlowSynthesizer(**FAST)).fit(X, signal > 0)
    for wrong in (X.assign(more=1), X.iloc[:, 1:], X.iloc[:, ::-1]):
        with pytest.raises(ValueError, match="feature names"):
            model.predict(wrong)
    numbers = X[["size", "count"]].to_numpy(float)
    model.fit(numbers, signal > 0)
    with pytest.raises(ValueError, match="features"):
        model.predict(numbers[:, 1:])


def test_a_learner_of_texts_and_numbers_is_refused():
    X, signal = table(300)
    y = pd.Series(np.where(signal > 0, 1, 0), dtype=object)
    y[signal > 1] = "high"
    model = SyntheticClassifier(DPHFlowSynthesizer(8.0, **FAST))
    with pytest.raises(ValueError, match="texts and numbers"):
        model.fit(X, y)


def test_parameters_of_the_default_synthesizer_can_be_set():
    model = SyntheticClassifier().set_params(synthesizer__epsilon=0.5)
    assert model.synthesizer.epsilon == 0.5
    assert SyntheticClassifier().synthesizer is None


def test_decision_values_of_pairs_of_classes_are_refused():
    X, signal = table(300)
    y = np.digitize(signal, [0, 1, 2])
    pairs = SVC(decision_function_shape="ovo")
    flow = DPHFlowSynthesizer(8.0, **FAST)
    model = SyntheticClassifier(flow, pairs).fit(X[["size"]], y)
    with pytest.raises(ValueError, match="decision_function_shape='ovr'"):
        model.decision_function(X[["size"]])
    model = SyntheticClassifier(flow, SVC()).fit(X[["size"]], y)
    assert model.decision_function(X[["size"]]).shape == (300, 4)


def test_what_is_known_of_rows_is_that_of_the_last_synthesizer():
    X, signal = table(300)
    model = SyntheticClassifier(DPHFlowSynthesizer(8.0, **FAST), LogisticRegression())
    model.fit(X[["size"]], signal > 0)
    with pytest.raises(ValueError, match="could not convert"):
        model.fit(X[["size", "kind"]], signal > 0)
    assert model.n_features_in_ == model.synthesizer_.n_features_in_ == 2
    assert list(model.feature_names_in_) == ["size", "kind"]
