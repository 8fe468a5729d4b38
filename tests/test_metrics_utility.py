"""Train-synthetic-test-real scores and the scorer, against scikit-learn by hand."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import (
    LinearRegression,
    LogisticRegression,
    Ridge,
    RidgeClassifier,
)
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.validation import check_is_fitted

from dpgenerative import DPHFlowSynthesizer
from dpgenerative.metrics import utility
from dpgenerative.metrics.dependence import kendall_tau_distance
from dpgenerative.metrics.fidelity import marginal_distance
from dpgenerative.metrics.scorer import make_synthesis_scorer
from dpgenerative.metrics.utility import default_classifiers, default_regressors, tstr

CLASS_SCORES = ["macro_f1", "auroc", "average_precision"]
NUMBER_SCORES = ["r2", "rmse", "mae"]


# Classification -----------------------------------------------------------------------


class Recorder(ClassifierMixin, BaseEstimator):
    """Keep what it is given; predict the classes seen in equal shares."""

    def __init__(self, log=None):
        self.log = log

    def __sklearn_clone__(self):
        return Recorder(self.log)

    def fit(self, x, y):
        self.log.update(x_train=x, y_train=y)
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, x):
        self.log.update(x_test=x)
        return np.full((len(x), len(self.classes_)), 1 / len(self.classes_))


def test_a_column_has_at_most_a_hundred_indicators():
    levels = [f"level {i:03d}" for i in range(150) for _ in range(6 + (i < 50))]
    table = pd.DataFrame({"a": levels, "y": np.tile([0, 1], len(levels) // 2)})
    log = {}
    tstr(None, table, table, "y", classifiers={"recorder": Recorder(log)})
    counts = np.sort(log["x_train"].sum(0))
    assert len(counts) == 100
    assert counts[-1] == 51 * 6  # those beyond the 99 most frequent, in one
    assert (counts[-51:-1] == 7).all()  # the 50 larger levels


def test_features_are_encoded_as_documented():
    train = pd.DataFrame(
        {
            "size": [0.0, 2.0, 4.0, np.nan, 4.0, np.inf] * 3,
            "kind": ["a"] * 5 + [None] * 5 + ["r1", "r2"] * 4,
            "empty": [np.nan] * 18,
            "label": ["u", "v"] * 9,
        }
    )
    test = pd.DataFrame(
        {
            "label": ["v", "u", "v", "u"],
            "empty": [1.0] * 4,
            "kind": ["unknown", "a", None, "r1"],
            "size": [np.nan, 3.0, 6.0, 0.0],
        }
    )
    log: dict = {}
    with pytest.warns(UserWarning, match="synthetic: 18"):
        tstr(None, test, train, "label", classifiers={"recorder": Recorder(log)})
    filled = np.array([0.0, 2.0, 4.0, 3.0, 4.0, 3.0] * 3)  # the median of 0 2 4 4 is 3
    scale = filled.std()
    column_of = {tuple(c): i for i, c in enumerate(log["x_train"].T.round(9))}
    size = column_of[tuple(((filled - filled.mean()) / scale).round(9))]
    a = column_of[tuple([1.0] * 5 + [0.0] * 13)]
    missing = column_of[tuple([0.0] * 5 + [1.0] * 5 + [0.0] * 8)]
    pooled = column_of[tuple([0.0] * 10 + [1.0] * 8)]
    assert log["x_train"].shape[1] == 5  # and the empty column
    expected = (np.array([3.0, 3.0, 6.0, 0.0]) - filled.mean()) / scale
    np.testing.assert_allclose(log["x_test"][:, size], expected)
    indicators = log["x_test"][:, [a, missing, pooled]]
    np.testing.assert_array_equal(
        indicators, [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    )


def three_classes(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    label = rng.choice(["common", "middle", "rare"], n, p=[0.6, 0.3, 0.1])
    centre = pd.Series(label).map({"common": 0.0, "middle": 1.5, "rare": 3.0})
    return pd.DataFrame(
        {
            "x": centre + rng.normal(size=n),
            "noise": rng.integers(0, 3, n).astype(str),
            "same": 1.0,
            "label": pd.Categorical(label),
        }
    )


def test_scores_equal_those_computed_directly():
    train, test = (three_classes(400, s)[["x", "label"]] for s in (0, 1))
    tree = DecisionTreeClassifier(max_depth=3, random_state=0)
    scores = tstr(None, test, train, "label", classifiers={"tree": tree}).iloc[0]
    with pytest.raises(NotFittedError):
        check_is_fitted(tree)
    # Scaling one feature changes no split of a tree.
    tree.fit(train[["x"]], train["label"])
    shares = tree.predict_proba(test[["x"]])
    truth = test["label"].astype(str)
    assert scores["macro_f1"] == pytest.approx(
        f1_score(truth, tree.predict(test[["x"]]), average="macro")
    )
    assert scores["auroc"] == pytest.approx(
        roc_auc_score(truth, shares, multi_class="ovr")
    )
    each = [
        average_precision_score(truth == name, shares[:, i])
        for i, name in enumerate(tree.classes_)
    ]
    assert scores["average_precision"] == pytest.approx(np.mean(each))
    assert 0.6 < scores["auroc"] < 0.99


@pytest.mark.parametrize("rare", ["common", "middle"])
def test_two_classes_are_scored_by_the_rarer_one(rare):
    frames = [three_classes(600, s).query("label != 'rare'") for s in (0, 1)]
    test = frames[1]
    of_rare = test["label"] == rare
    kept = np.r_[np.flatnonzero(of_rare)[:40], np.flatnonzero(~of_rare)[:150]]
    test = test.iloc[kept][["x", "label"]]
    tree = DecisionTreeClassifier(max_depth=3, random_state=0)
    train = frames[0][["x", "label"]]
    scores = tstr(None, test, train, "label", classifiers={"tree": tree}).iloc[0]
    tree.fit(train[["x"]], train["label"])
    shares = tree.predict_proba(test[["x"]])[:, list(tree.classes_).index(rare)]
    expected = average_precision_score(test["label"] == rare, shares)
    assert scores["average_precision"] == pytest.approx(expected)


@pytest.mark.parametrize("lost", ["common", "middle", "rare"])
@pytest.mark.parametrize("left", [0, 1])
def test_a_class_lost_in_training_gets_probability_zero(lost, left):
    full, test = (three_classes(400, s)[["x", "label"]] for s in (0, 1))
    train = full[full["label"] != lost]
    nearly = pd.concat([full[full["label"] == lost][:left], train])
    tree = DecisionTreeClassifier(max_depth=2, random_state=0)
    scores = tstr(None, test, nearly, "label", classifiers={"tree": tree}).iloc[0]
    tree.fit(train[["x"]], train["label"])
    shares = pd.DataFrame(tree.predict_proba(test[["x"]]), columns=tree.classes_)
    shares[lost] = 0.0
    each = [roc_auc_score(test["label"] == name, shares[name]) for name in shares]
    assert each[-1] == 0.5
    assert scores["auroc"] == pytest.approx(np.mean(each))
    predicted = tree.predict(test[["x"]])
    assert scores["macro_f1"] == pytest.approx(
        f1_score(test["label"], predicted, average="macro", zero_division=0)
    )


def test_a_class_that_only_training_has_is_not_averaged():
    train, test = (three_classes(400, s)[["x", "label"]] for s in (0, 1))
    test = test[test["label"] != "middle"]
    tree = DecisionTreeClassifier(max_depth=2, random_state=0)
    scores = tstr(None, test, train, "label", classifiers={"tree": tree}).iloc[0]
    tree.fit(train[["x"]], train["label"])
    predicted, truth = tree.predict(test[["x"]]), test["label"].astype(str)
    assert "middle" in predicted
    present = ["common", "rare"]
    assert scores["macro_f1"] == pytest.approx(
        f1_score(truth, predicted, labels=present, average="macro")
    )


def test_all_nine_survive_degenerate_tables():
    test = three_classes(200, 1)
    one_class = three_classes(300, 0).assign(label="common")
    constant = three_classes(300, 0).assign(x=1.0, noise="0")
    for train in (one_class, constant):
        scores = tstr(None, test, train, "label")
        assert len(scores) == 9
        np.testing.assert_allclose(scores["auroc"], 0.5, atol=0.02)
        assert np.isfinite(scores[CLASS_SCORES].to_numpy()).all()


@pytest.mark.thorough
def test_real_rows_beat_permuted_labels_for_every_classifier():
    train, test = three_classes(800, 0), three_classes(500, 1)
    labels = np.random.default_rng(0).permutation(train["label"])
    shuffled = train.assign(label=labels)
    frames = train, test, shuffled
    before = [frame.copy() for frame in frames]
    scores = tstr(*frames, "label", n_jobs=1)
    assert list(scores) == ["model", "trained_on", "repeat", *CLASS_SCORES]
    good, bad = (scores[scores["trained_on"] == on] for on in ("real", "synthetic"))
    assert list(good["model"]) == list(bad["model"]) == list(default_classifiers())
    assert (good["auroc"] > 0.68).all()
    assert good["auroc"].mean() > 0.82
    assert bad["auroc"].mean() == pytest.approx(0.5, abs=0.1)
    for frame, copy in zip(frames, before, strict=True):
        pd.testing.assert_frame_equal(frame, copy)


def test_rows_are_drawn_once_by_seed():
    train, test = three_classes(300, 0), three_classes(100, 1)
    drawn = []
    for seed in (0, 0, 1):
        log: dict = {}
        models = {"recorder": Recorder(log)}
        options = {"classifiers": models, "n_rows": 50, "random_state": seed}
        tstr(None, test, train, "label", **options)
        drawn.append(log["x_train"][:, 0])
    assert len(drawn[0]) == 50
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_target_of_numbers_may_change_dtype():
    train, test = three_classes(300, 0), three_classes(200, 1)
    code = {"common": 0, "middle": 1, "rare": 2}
    whole = [t.assign(label=t["label"].map(code).astype(int)) for t in (train, test)]
    tree = {"tree": DecisionTreeClassifier(max_depth=3, random_state=0)}
    same = tstr(None, whole[1], whole[0], "label", classifiers=tree)
    floats = whole[0].assign(label=whole[0]["label"].astype(float))
    floats.loc[len(floats)] = [np.nan, "0", 1.0, np.nan]  # a row without a target
    pd.testing.assert_frame_equal(
        tstr(None, whole[1], floats, "label", classifiers=tree, n_rows=None), same
    )


def test_default_classifiers_are_the_nine_documented():
    models = default_classifiers(7)
    assert len(models) == 9
    assert models["decision_tree"].max_depth == 10
    assert models["random_forest"].get_params()["max_depth"] == 12
    assert models["random_forest"].n_estimators == 100
    assert models["logistic_regression"].max_iter == 300
    assert models["mlp"].hidden_layer_sizes == (64,)
    assert models["mlp"].early_stopping
    assert models["mlp"].max_iter == 30
    seeded = [m for m in models.values() if "random_state" in m.get_params()]
    assert len(seeded) == 6
    assert all(m.random_state == 7 for m in seeded)


def test_scores_come_without_warnings():
    train, test = three_classes(300, 0), three_classes(200, 1)
    tstr(train, test.assign(noise="unknown"), train, "label")


# Two training tables and repeats ------------------------------------------------------


@pytest.mark.thin(2)
@pytest.mark.parametrize("target", ["label", "x"])
def test_the_real_table_as_synthetic_one_scores_the_same(target):
    train, test = three_classes(300, 0), three_classes(200, 1)
    models = None if target == "x" else {"boost": default_classifiers()["adaboost"]}
    shuffled_columns = train[["label", "same", "x", "noise"]]
    options = {"classifiers": models, "n_rows": 100, "n_repeats": 2}
    scores = tstr(train, test, shuffled_columns, target, **options)
    numbers = NUMBER_SCORES if target == "x" else CLASS_SCORES
    wide = scores.set_index(["repeat", "model", "trained_on"])[numbers].unstack()
    for name in numbers:
        np.testing.assert_array_equal(wide[name, "real"], wide[name, "synthetic"])
    other = tstr(train, test, train[::2], target, **options)
    assert not np.allclose(scores[numbers], other[numbers])


def test_without_a_real_table_the_synthetic_scores_are_the_same():
    train, test = three_classes(200, 0), three_classes(200, 1)
    models = {"bayes": GaussianNB()}
    both = tstr(train, test, train[::2], "label", classifiers=models)
    alone = tstr(None, test, train[::2], "label", classifiers=models)
    assert list(both["trained_on"]) == ["synthetic", "real"]
    pd.testing.assert_frame_equal(alone, both[:1])


def test_repeat_r_is_a_run_with_seed_plus_r():
    train, test = three_classes(400, 0), three_classes(200, 1)
    forest = default_classifiers(5)["random_forest"].set_params(n_estimators=3)
    nested = make_pipeline(FunctionTransformer(), forest)
    options = {"n_rows": 120, "random_state": 5}
    scores = tstr(
        train, test, train, "label", classifiers={"m": nested}, n_repeats=3, **options
    )
    assert list(scores["repeat"]) == [0, 0, 1, 1, 2, 2]
    for repeat in range(3):
        forest.set_params(random_state=5 + repeat)
        options["random_state"] = 5 + repeat
        alone = tstr(None, test, train, "label", classifiers={"m": nested}, **options)
        row = scores[(scores["repeat"] == repeat) & (scores["trained_on"] == "real")]
        np.testing.assert_array_equal(row[CLASS_SCORES], alone[CLASS_SCORES])
    assert scores["auroc"].nunique() == 3


# Regression ---------------------------------------------------------------------------


def quantities(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    kind = rng.choice(list("abc"), n)
    x = rng.normal(size=n)
    shift = pd.Series(kind).map({"a": 0.0, "b": 30.0, "c": 60.0})
    price = 1000 + 20 * x + shift + rng.normal(scale=5, size=n)
    return pd.DataFrame({"x": x, "kind": kind, "price": price})


def errors(truth: pd.Series, predicted: np.ndarray) -> list[float]:
    gap = truth.to_numpy() - predicted
    spread = truth.to_numpy() - truth.mean()
    rmse = np.sqrt((gap**2).mean())
    return [1 - (gap**2).sum() / (spread**2).sum(), rmse, np.abs(gap).mean()]


def test_regression_scores_equal_those_computed_directly():
    train, test = quantities(300, 0), quantities(200, 1)
    models = {
        "linear": LinearRegression(),
        "tree": DecisionTreeRegressor(max_depth=4, random_state=0),
    }
    scores = tstr(None, test, train, "price", classifiers=models)
    assert list(scores) == ["model", "trained_on", "repeat", *NUMBER_SCORES]
    dummies = [
        pd.get_dummies(t.drop(columns="price")).astype(float) for t in (train, test)
    ]
    for row, model in zip(scores.to_dict("records"), models.values(), strict=True):
        with pytest.raises(NotFittedError):
            check_is_fitted(model)
        predicted = model.fit(dummies[0], train["price"]).predict(dummies[1])
        found = [row[name] for name in NUMBER_SCORES]
        np.testing.assert_allclose(found, errors(test["price"], predicted))
        assert 0.5 < row["r2"] < 1 < row["mae"] < row["rmse"] < 20


def test_default_regressors_learn_whatever_the_units_of_the_target():
    train, test = quantities(400, 0), quantities(200, 1)
    assert list(default_regressors()) == [
        "ridge",
        "decision_tree",
        "random_forest",
        "hist_gradient_boosting",
        "mlp",
    ]
    seeds = [
        value
        for model in default_regressors(7).values()
        for name, value in model.get_params().items()
        if name.endswith("random_state") and value is not None
    ]
    assert seeds == [7] * 4
    scores = tstr(train, test, train.assign(price=1000.0), "price").set_index("model")
    real = scores[scores["trained_on"] == "real"]
    constant = scores[scores["trained_on"] == "synthetic"]
    assert (real["r2"].drop("mlp") > 0.8).all()
    assert real.loc["mlp", "r2"] > 0.0
    # A constant target is predicted as such.
    expected = errors(test["price"], np.full(len(test), 1000.0))
    for found in constant[NUMBER_SCORES].to_numpy():
        np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("values", "task", "is_regression"),
    [
        (np.arange(100) % 20, "auto", False),
        (np.arange(100) % 21, "auto", True),
        (np.arange(100) % 21, "classification", False),
        (np.arange(100) % 20, "regression", True),
        (np.arange(100) % 2 * 1.0, "auto", True),
        (np.arange(100) % 2 * 1.0, "classification", False),
        (np.arange(100) % 2 == 0, "auto", False),
        ((np.arange(100) % 50).astype(str), "auto", False),
        (pd.array(np.arange(100), dtype="Int64"), "auto", True),
        (pd.array(np.arange(100) / 2, dtype="Float32"), "auto", True),
        (pd.Categorical(np.arange(100) % 50), "auto", False),
    ],
)
def test_the_task_follows_from_the_test_target(values, task, is_regression):
    table = pd.DataFrame({"x": np.arange(100.0), "y": values})
    model = DecisionTreeRegressor() if is_regression else GaussianNB()
    scores = tstr(None, table, table, "y", classifiers={"m": model}, task=task)
    expected = NUMBER_SCORES if is_regression else CLASS_SCORES
    assert list(scores)[3:] == expected


def test_numbers_of_another_dtype_are_the_same_target():
    train, test = (
        t.round({"price": 0}) for t in (quantities(200, 0), quantities(90, 1))
    )
    models = {"ridge": Ridge()}
    same = tstr(None, test, train, "price", classifiers=models)
    for dtype in ("int64", "Int32", "float32"):
        other = tstr(
            None, test, train.astype({"price": dtype}), "price", classifiers=models
        )
        pd.testing.assert_frame_equal(same, other)


def test_rows_without_a_finite_target_are_left_out():
    train, test = quantities(200, 0), quantities(100, 1)
    models = {"ridge": Ridge()}
    same = tstr(None, test, train, "price", classifiers=models)
    holes = [t.copy() for t in (train, test)]
    for t in holes:
        t.loc[len(t)] = [0.0, "a", np.inf]
        t.loc[len(t)] = [0.0, "a", np.nan]
    other = tstr(None, holes[1], holes[0], "price", classifiers=models)
    pd.testing.assert_frame_equal(same, other)


# Odd tables ---------------------------------------------------------------------------

ODD = {
    "constant": {"x": 1.0, "kind": "a"},
    "no numbers": {"x": np.nan},
    "no values": {"x": None, "kind": None},
    "infinite": {"x": np.inf},
    "huge": {"x": [1e308, -1e308, 3.0] * 20},
    "unknown levels": {"kind": "z"},
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("target", ["price", "grade"])
@pytest.mark.parametrize("odd", ODD)
def test_odd_columns_give_finite_scores_and_are_not_dropped(odd, target):
    def graded(table):
        grade = pd.cut(table["price"], [0, 1000, 1040, 2000], labels=list("lmh"))
        return table.assign(grade=grade, spare=np.arange(len(table)) % 7)

    test = graded(quantities(80, 1))
    fake = graded(quantities(60, 0)).assign(**ODD[odd])
    if target == "grade":
        fake, test = (t.drop(columns="price") for t in (fake, test))
        models = {k: default_classifiers()[k] for k in ("lda", "decision_tree", "mlp")}
    else:
        models = {k: default_regressors()[k] for k in ("ridge", "decision_tree", "mlp")}
    scores = tstr(None, test, fake, target, classifiers=models)
    assert np.isfinite(scores.iloc[:, 3:].to_numpy()).all()


def test_a_column_without_values_is_a_constant_feature():
    train, test = three_classes(100, 0), three_classes(60, 1)
    for empty in (np.nan, None):
        log: dict = {}
        models = {"recorder": Recorder(log)}
        fake = train.assign(x=empty)
        tstr(None, test, fake, "label", classifiers=models)
        whole = log["x_train"].shape[1]
        assert (log["x_train"][:, 0] == 0.0).all()
        tstr(None, test, train, "label", classifiers=models)
        assert log["x_train"].shape[1] == whole


def test_far_values_are_cut_but_stay_far():
    train, test = three_classes(100, 0), three_classes(60, 1)
    test["x"] = [1e300, -1e300, 2.0] * 20
    log: dict = {}
    tstr(None, test, train, "label", classifiers={"recorder": Recorder(log)})
    assert list(log["x_test"][:2, 0]) == [1e15, -1e15]
    spread = train["x"].std(ddof=0)
    assert log["x_test"][2, 0] == pytest.approx((2.0 - train["x"].mean()) / spread)


@pytest.mark.thin(4)
@pytest.mark.parametrize("n", [2, 8, 15, 49])
def test_few_rows_are_scored_with_a_warning(n):
    numbers = quantities(100, 0)
    classes = numbers.assign(price=np.arange(100) % 4 < 2)
    for table in (numbers, classes):
        with pytest.warns(UserWarning, match=f"synthetic: {n}.: with fewer than 50"):
            scores = tstr(None, table, table[:n], "price")
        assert np.isfinite(scores.iloc[:, 3:].to_numpy()).all()
    assert len(tstr(numbers[:50], numbers, numbers[:60], "price", n_rows=50)) == 10


def test_the_warning_names_the_real_table_and_comes_once():
    table = quantities(60, 0)
    with pytest.warns(UserWarning, match="sampling noise") as caught:
        tstr(table[:20], table, table, "price", n_repeats=3)
    assert [str(each.message)[:20] for each in caught] == ["Few rows (real: 20):"]


def test_early_stopping_is_given_up_only_where_it_is_impossible():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=200), "y": np.arange(200) % 25})
    stopping = MLPClassifier((2,), early_stopping=True, max_iter=3, random_state=0)
    # A tenth of 200 rows cannot hold 25 classes, of 300 it can.
    for n, expected in ((200, False), (300, True)):
        grown = pd.concat([table, table[: n - 200]])
        plain = MLPClassifier((2,), early_stopping=expected, max_iter=3, random_state=0)
        found, wanted = (
            tstr(None, table, grown, "y", classifiers={"m": m}, task="classification")
            for m in (stopping, plain)
        )
        pd.testing.assert_frame_equal(found, wanted)


def test_what_is_sent_to_other_processes_means_the_same_there(monkeypatch):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=200), "y": np.arange(200) % 25})
    # One for which early stopping has to be switched off, by the number of classes.
    mlp = MLPClassifier((2,), early_stopping=True, max_iter=3, random_state=0)
    options = {"classifiers": {"mlp": mlp}, "task": "classification"}
    here = tstr(None, table, table, "y", **options)
    original = utility._fit_and_score

    def sent(*arguments):
        return original(*pickle.loads(pickle.dumps(arguments)))

    monkeypatch.setattr(utility, "_fit_and_score", sent)
    pd.testing.assert_frame_equal(tstr(None, table, table, "y", **options), here)


TABLE = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "x"]})
LONG = pd.concat([TABLE] * 20, ignore_index=True)


class Failing(RegressorMixin, BaseEstimator):
    def fit(self, x, y):
        raise ValueError("no luck")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: tstr(None, TABLE, TABLE, "c"), "'target' of tstr must be one of"),
        (lambda: tstr(None, TABLE[["b"]], TABLE[["b"]], "b"), "only column"),
        (
            lambda: tstr(None, TABLE, TABLE[["b"]], "b"),
            r"synthetic must have .* of real_test; it lacks \['a'\]\.$",
        ),
        (
            lambda: tstr(TABLE[["b"]], TABLE, TABLE, "b"),
            r"real_train must have .* of real_test; it lacks \['a'\]\.$",
        ),
        (
            lambda: tstr(None, LONG.assign(b="x"), LONG, "b"),
            "two classes in real_test; target 'b' has 1",
        ),
        (
            lambda: tstr(None, LONG.assign(a=1.5), LONG, "a"),
            "two values in real_test; target 'a' has 1",
        ),
        (
            lambda: tstr(None, LONG, LONG.assign(b=None), "b"),
            "2 training rows of some class; target 'b' leaves 0 synthetic",
        ),
        (
            lambda: tstr(LONG.assign(b=LONG.index.astype(str)), LONG, LONG, "b"),
            "leaves 0 real training rows",
        ),
        (
            lambda: tstr(None, LONG, LONG.assign(a=None), "a", task="regression"),
            "with a finite target; target 'a' leaves 0",
        ),
        (
            lambda: tstr(None, LONG, LONG.assign(b="z"), "b"),
            "No class of target 'b' in the synthetic",
        ),
        (
            lambda: tstr(None, LONG, LONG.astype({"a": str}), "a"),
            "'a' holds strings in one table and none in the other",
        ),
        (
            lambda: tstr(None, LONG, LONG.astype({"a": str}), "a", task="regression"),
            "'a' must be numeric",
        ),
        (lambda: tstr(None, LONG, LONG.astype({"a": str}), "b"), "'a' must be numeric"),
        (
            lambda: tstr(None, TABLE, TABLE, "b", task="regression"),
            "needs a target of numbers; 'b' has dtype (object|str)",
        ),
        (lambda: tstr(None, TABLE, TABLE, "b", task="ranking"), "'task' of tstr must"),
        (lambda: tstr(None, TABLE, TABLE, "b", n_repeats=0), "'n_repeats' of tstr"),
        (lambda: tstr(None, TABLE, TABLE, "b", n_rows=0), "'n_rows' of tstr"),
        (lambda: tstr(None, TABLE, TABLE, "b", random_state=-1), "'random_state' of"),
        (lambda: tstr(None, TABLE, TABLE, "b", classifiers={}), "at least one model"),
        (
            lambda: tstr(None, TABLE, TABLE, "b", classifiers={"r": Ridge()}),
            "'r'] is a Ridge, which does not suit the task: a classification",
        ),
        (
            lambda: tstr(
                None,
                TABLE.assign(a=0.5),
                TABLE,
                "a",
                classifiers={"c": LogisticRegression()},
            ),
            "suit the task: a regression of target 'a' .dtype float64",
        ),
        (
            lambda: tstr(
                None,
                quantities(60, 0),
                quantities(60, 0),
                "price",
                classifiers={"f": Failing()},
            ),
            "'f' failed on the 60 synthetic training rows: no luck",
        ),
        (lambda: make_synthesis_scorer("auroc"), "'metric' of make_synthesis_scorer"),
        (lambda: make_synthesis_scorer(k=0), "'k' of make_synthesis_scorer"),
        (lambda: make_synthesis_scorer(n_samples=0), "'n_samples' of make"),
        (lambda: make_synthesis_scorer(random_state=0.5), "'random_state' of make"),
        (lambda: make_synthesis_scorer("tstr", task="rank"), "'task' of make"),
    ],
)
def test_errors_name_what_is_wrong(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_what_is_no_table_is_refused():
    with pytest.raises(TypeError, match="synthetic must be a DataFrame; got ndarray"):
        tstr(None, TABLE, TABLE.to_numpy(), "b")


def test_models_have_names():
    with pytest.raises(TypeError, match="mapping from names to models; got list"):
        tstr(None, TABLE, TABLE, "b", classifiers=list(default_classifiers().values()))


# Scorer -------------------------------------------------------------------------------


class Resampler(BaseEstimator):
    """Draw training rows again, with some of the columns permuted."""

    def __init__(self, shuffle=False):
        self.shuffle = shuffle

    def fit(self, X, y=None):
        self.rows_ = X, y
        return self

    def sample(self, n_samples=1, random_state=None):
        rng = np.random.default_rng(random_state)
        rows = [part for part in self.rows_ if part is not None]
        drawn = []
        chosen = rng.integers(0, len(rows[0]), n_samples)
        for part in rows:
            if self.shuffle:
                chosen = rng.permutation(chosen)
            is_pandas = isinstance(part, (pd.DataFrame, pd.Series))
            drawn.append(part.iloc[chosen] if is_pandas else part[chosen])
        return drawn[0] if len(drawn) == 1 else tuple(drawn)


def linked(n: int = 300) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, n)
    frame = pd.DataFrame({"x": x, "z": rng.normal(size=n)})
    return frame, pd.Series(x + rng.integers(0, 2, n) > 2, name="y")


def search(scoring, X, y=None):
    grid = GridSearchCV(
        Resampler(),
        {"shuffle": [True, False]},
        scoring=scoring,
        cv=2,
        error_score="raise",
    )
    return grid.fit(X, y)


@pytest.mark.parametrize("metric", ["tvd", "kendall", "tstr"])
@pytest.mark.parametrize("container", ["frame", "array"])
def test_a_search_prefers_rows_that_keep_their_dependence(metric, container):
    X, y = linked()
    y = y.astype(int)
    if container == "array":
        X, y = X.to_numpy(), y.to_numpy()
    scorer = make_synthesis_scorer(metric, classifiers={"bayes": GaussianNB()})
    found = search(scorer, X, y)
    shuffled, kept = found.cv_results_["mean_test_score"]
    assert found.best_params_ == {"shuffle": False}
    assert kept > shuffled + {"tvd": 0.05, "kendall": 0.1, "tstr": 0.2}[metric]
    assert kept > 0.5 if metric == "tstr" else 0 > kept > -0.35


def test_scores_are_the_metrics_of_a_drawn_table():
    X, y = linked()
    joint = X.assign(y=y)
    synth = Resampler(shuffle=True).fit(X[:150], y[:150])
    drawn_x, drawn_y = synth.sample(500, random_state=3)
    drawn, held_out = drawn_x.assign(y=drawn_y.to_numpy()), joint[150:]
    options = {"n_samples": 500, "random_state": 3}
    rows = X[150:], y[150:]
    expected = -marginal_distance(held_out, drawn, 3).mean
    assert make_synthesis_scorer(k=3, **options)(synth, *rows) == expected
    expected = -kendall_tau_distance(held_out, drawn).rmse
    assert make_synthesis_scorer("kendall", **options)(synth, *rows) == expected
    trees = {"tree": DecisionTreeClassifier(max_depth=2, random_state=0)}
    trees["bayes"] = GaussianNB()
    judge = make_synthesis_scorer("tstr", classifiers=trees, **options)
    expected = tstr(None, held_out, drawn, "y", classifiers=trees, random_state=3)
    assert judge(synth, *rows) == expected["auroc"].mean()
    lines = {"ridge": Ridge()}
    judge = make_synthesis_scorer("tstr", target="z", classifiers=lines, **options)
    expected = tstr(None, held_out, drawn, "z", classifiers=lines, random_state=3)
    assert judge(synth, *rows) == expected["r2"].mean()
    forced = make_synthesis_scorer(
        "tstr", target="x", task="regression", classifiers=lines, **options
    )
    expected = tstr(
        None, held_out, drawn, "x", task="regression", classifiers=lines, random_state=3
    )
    assert forced(synth, *rows) == expected["r2"].mean()


def test_the_seed_draws_the_sets_of_columns_too():
    rows = np.random.default_rng(0).normal(size=(120, 30))
    synth = Resampler().fit(rows[:60])
    held_out, drawn = (pd.DataFrame(t) for t in (rows[60:], synth.sample(60, 7)))
    expected = -marginal_distance(held_out, drawn, 2, random_state=7).mean
    assert make_synthesis_scorer(random_state=7)(synth, rows[60:]) == expected


def test_as_many_rows_as_are_held_out_are_drawn_by_default():
    class Counter(Resampler):
        def sample(self, n_samples=1, random_state=None):
            counts.append((n_samples, random_state))
            return super().sample(n_samples, random_state)

    counts: list = []
    synth = Counter().fit(linked()[0])
    make_synthesis_scorer(random_state=4)(synth, linked()[0][:70])
    make_synthesis_scorer(n_samples=90)(synth, linked()[0][:70])
    assert counts == [(70, 4), (90, 0)]


def test_a_pipeline_is_compared_where_its_last_step_stands():
    X, _ = linked()
    X["unused"] = "text"

    def select(frame):
        return frame[["x", "z"]] * 10

    steps = FunctionTransformer(select), Resampler()
    scorer = make_synthesis_scorer()
    piped = scorer(make_pipeline(*steps).fit(X[:150]), X[150:])
    alone = scorer(Resampler().fit(select(X[:150])), select(X[150:]))
    assert piped == alone
    single = make_pipeline(Resampler()).fit(X[:150])
    assert scorer(single, X[150:]) == scorer(Resampler().fit(X[:150]), X[150:])


def test_several_scores_and_pickles():
    X, y = linked()
    scorers = {name: make_synthesis_scorer(name) for name in ("tvd", "kendall")}
    grid = GridSearchCV(
        Resampler(), {"shuffle": [True, False]}, scoring=scorers, refit="tvd", cv=2
    ).fit(X, y)
    assert {"mean_test_tvd", "mean_test_kendall"} <= set(grid.cv_results_)
    synth = Resampler().fit(X, y)
    for scorer in scorers.values():
        assert pickle.loads(pickle.dumps(scorer))(synth, X, y) == scorer(synth, X, y)
    assert "metric='tvd', k=2" in repr(scorers["tvd"])


def test_an_unnamed_y_stands_for_the_named_one():
    X, y = linked()
    synth = Resampler().fit(X, y.to_numpy())
    assert make_synthesis_scorer()(synth, X, y) == make_synthesis_scorer()(
        Resampler().fit(X, y), X, y
    )


def test_the_scorer_says_what_does_not_fit():
    X, y = linked()
    scorer = make_synthesis_scorer()
    with pytest.raises(ValueError, match=r"`sample` returns \(X, y\).*1 object"):
        scorer(Resampler().fit(X), X, y)
    with pytest.raises(ValueError, match=r"`sample` returns X,.*2 object"):
        scorer(Resampler().fit(X, y), X)
    with pytest.raises(ValueError, match="needs `target`"):
        make_synthesis_scorer("tstr")(Resampler().fit(X), X)
    with pytest.raises(ValueError, match=r"lacks \['z'\]"):
        scorer(Resampler().fit(X[["x"]]), X)


@pytest.mark.thin(2)
@pytest.mark.parametrize("with_y", [False, True])
def test_a_search_over_budgets_of_the_synthesizer(with_y):
    X, y = linked(200)
    grid = GridSearchCV(
        DPHFlowSynthesizer(n_steps=5, random_state=0),
        {"epsilon": [0.01, 100.0]},
        scoring=make_synthesis_scorer("tvd", k=1, n_samples=1000),
        cv=2,
        refit=False,
        error_score="raise",
    ).fit(X, y if with_y else None)
    little, much = grid.cv_results_["mean_test_score"]
    assert -1 < little < much - 0.05 < 0


def test_times_are_no_target():
    rows = pd.DataFrame({"x": np.arange(60.0)})
    rows["d"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(60), "D")
    with pytest.raises(ValueError, match="'d' holds times, which are neither"):
        tstr(rows, rows, rows, "d")


def test_classifiers_need_probabilities():
    rows = pd.DataFrame({"x": np.arange(60.0), "c": ["a", "b"] * 30})
    with pytest.raises(ValueError, match="need `predict_proba`"):
        tstr(rows, rows, rows, "c", classifiers={"ridge": RidgeClassifier()})
