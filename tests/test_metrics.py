"""Metrics against brute force, closed forms and cases worked by hand."""

from __future__ import annotations

import warnings
from collections import Counter
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.validation import check_is_fitted

from dpgenerative.metrics import (
    KendallDistance,
    default_classifiers,
    fidelity,
    independence_baseline,
    kendall_tau_distance,
    kendall_tau_matrix,
    marginal_distance,
    sampling_floor,
    tstr,
)


def mixed_table(n: int, seed: int) -> pd.DataFrame:
    """Make a table of each kind of column, dependent and with missing values."""
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 4, n)
    colour = pd.Categorical.from_codes(
        np.where(rng.random(n) < 0.1, -1, (base + rng.integers(0, 2, n)) % 3),
        categories=["red", "green", "blue"],
    )
    size = base + rng.normal(size=n)
    size[rng.random(n) < 0.05] = np.nan
    return pd.DataFrame(
        {
            "few": base,
            "many": rng.poisson(40 + 10 * base),
            "skewed": np.minimum(rng.geometric(0.4, n), 15),
            "size": size,
            "colour": colour,
            "flag": rng.random(n) < 0.2 + 0.1 * base,
            "note": np.where(base > 1, "late", None),
        }
    )


def slow_cell(real: pd.Series, value: object) -> object:
    """Return the cell of one value, one comparison at a time."""
    if pd.isna(value):
        return "missing"
    if not pd.api.types.is_numeric_dtype(real) or real.dtype == bool:
        return value
    known = sorted(x for x in real if not pd.isna(x))
    if len(set(known)) <= 20:
        edges = sorted(set(known))[1:]
    else:
        edges = [np.quantile(known, i / 20) for i in range(1, 20)]
    return max([edge for edge in edges if edge <= value], default="lowest")


def slow_distance(real: pd.DataFrame, fake: pd.DataFrame, names: tuple) -> float:
    """Return the total variation distance of one marginal, with dictionaries."""
    counts = []
    for frame in (real, fake):
        cells = [[slow_cell(real[n], v) for v in frame[n]] for n in names]
        counts.append(Counter(zip(*cells, strict=True)))
    return (
        sum(
            abs(counts[0][cell] / len(real) - counts[1][cell] / len(fake))
            for cell in set(counts[0]) | set(counts[1])
        )
        / 2
    )


@pytest.mark.parametrize("k", [1, 2, 3])
def test_marginal_distance_agrees_with_brute_force(k):
    real, fake = mixed_table(80, 0), mixed_table(60, 1)
    result = marginal_distance(real, fake, k)
    assert result.sets == tuple(combinations(real.columns, k))
    assert result.k == k
    expected = [slow_distance(real, fake, names) for names in result.sets]
    np.testing.assert_allclose(result.values, expected, atol=1e-12)
    assert result.mean == pytest.approx(np.mean(expected))
    assert result.max == pytest.approx(np.max(expected))
    assert max(expected) > 0.1


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_sparse_counting_equals_dense_counting(monkeypatch, limit):
    real, fake = mixed_table(150, 0), mixed_table(90, 1)
    dense = marginal_distance(real, fake, 3).values
    monkeypatch.setattr(fidelity, "_MAX_CELLS", limit)
    np.testing.assert_allclose(marginal_distance(real, fake, 3).values, dense)


def test_distances_worked_by_hand():
    real = pd.DataFrame({"x": [1, 1, 2, 5], "y": pd.Categorical(["a", "b", "a", None])})
    fake = pd.DataFrame(
        {"x": [0, 2, 4, 9], "y": pd.Categorical(["c", "b", None, None])}
    )
    one, two = (marginal_distance(real, fake, k) for k in (1, 2))
    # x in [-, 2), [2, 5), [5, -): 2 1 1 against 1 2 1; y a, b, c, -: 2 1 0 1, 0 1 1 2
    np.testing.assert_allclose(one.values, [0.25, 0.5])
    # (1a, 1b, 2a, 5-) against (1c, 2b, 2-, 5-), where 1 stands for all below 2
    np.testing.assert_allclose(two.values, [0.75])
    assert one.to_frame()["columns"].tolist() == [("y",), ("x",)]
    assert repr(one) == "MarginalDistance(k=1, n_sets=2, mean=0.3750, max=0.5000)"


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_same_rows_in_another_order_have_distance_zero(k):
    real = mixed_table(300, 0)
    shuffled = real.sample(frac=1, random_state=1)[list(reversed(real.columns))]
    assert marginal_distance(real, shuffled, k).max == 0.0


def test_level_lists_and_dtypes_do_not_matter_but_levels_do():
    real = pd.DataFrame({"c": pd.Categorical(["a", "b", "b"])})
    other = pd.DataFrame({"c": pd.Categorical(["b", "a", "b"], ["z", "b", "a"])})
    assert marginal_distance(real, other).max == 0.0
    assert marginal_distance(real, other.astype(object)).max == 0.0
    assert marginal_distance(real, other.astype("string")).max == 0.0
    unseen = pd.DataFrame({"c": ["q", "q", "q"]})
    assert marginal_distance(real, unseen).max == 1.0


def test_integers_are_compared_as_integers_and_floats_are_not():
    whole = pd.DataFrame({"n": [1, 2, 3, 4]})
    near = whole - 0.4
    assert marginal_distance(whole, near).max == 0.0
    assert marginal_distance(whole.astype(float), near).max == 0.25
    gaps = pd.DataFrame({"n": pd.array([1, 2, None, 4], dtype="Int64")})
    assert marginal_distance(whole, gaps).max == 0.25
    assert marginal_distance(gaps, gaps.astype(float)).max == 0.0


def test_quantile_cells_hold_equal_shares_and_keep_their_tails():
    real = pd.DataFrame({"x": np.arange(1000.0)})
    # Half of the synthetic rows lie beyond the last edge, half in the lowest cell.
    fake = pd.DataFrame({"x": np.repeat([-1e9, np.inf], 500)})
    assert marginal_distance(real, fake).max == pytest.approx(0.9)


def test_independence_keeps_marginals_and_breaks_dependence():
    values = np.repeat(["a", "b"], 2000)
    real = pd.DataFrame({"x": values, "y": values, "z": np.tile(["c", "d"], 2000)})
    assert independence_baseline(real, 1).max == 0.0
    pairs = independence_baseline(real)
    # Two equal fair coins against independent ones: |1/2 - 1/4| x 4 / 2 = 1/2.
    assert pairs.values[0] == pytest.approx(0.5, abs=0.03)
    assert pairs.values[1:].max() < 0.05


@pytest.mark.parametrize("n", [1000, 16000])
def test_sampling_floor_has_the_size_that_theory_gives(n):
    levels, columns = 10, 12
    rows = np.random.default_rng(0).integers(0, levels, (n, columns))
    floor = sampling_floor(pd.DataFrame(rows).astype("category"))
    # A cell's error is near N(0, p (1 - p) / n); its mean size is sqrt(2 / pi) of that.
    spread = np.sqrt(0.1 * 0.9 / n)
    assert floor.mean == pytest.approx(levels * spread / np.sqrt(2 * np.pi), rel=0.25)


def test_drawn_sets_are_distinct_seeded_and_shared():
    table = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (20, 30)))
    assert len(marginal_distance(table, table, 2).sets) == 300
    triples = marginal_distance(table, table, 3).sets
    assert len(set(triples)) == 200
    assert all(a < b < c for a, b, c in triples)
    assert sampling_floor(table, 3).sets == triples
    assert independence_baseline(table, 3).sets == triples
    assert marginal_distance(table, table, 3, random_state=1).sets != triples
    assert len(marginal_distance(table, table, 2, max_sets=10_000).sets) == 435
    assert len(marginal_distance(table, table, max_sets=4).sets) == 4


@pytest.mark.parametrize(("p", "k"), [(6, 1), (6, 2), (7, 3), (5, 5)])
def test_unranking_lists_the_subsets_in_order(p, k):
    expected = list(combinations(range(p), k))
    assert [fidelity._unrank(r, p, k) for r in range(len(expected))] == expected


TABLE = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "x"]})


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: marginal_distance(TABLE, TABLE[["a"]]), r"lacks \['b'\]"),
        (lambda: marginal_distance(TABLE[["a"]], TABLE), r"adds \['b'\]"),
        (lambda: marginal_distance(TABLE, TABLE.iloc[:0]), "synthetic must have rows"),
        (lambda: marginal_distance(TABLE, TABLE, 3), "k must be .* at most 2"),
        (lambda: marginal_distance(TABLE, TABLE, 0), "k must be"),
        (lambda: marginal_distance(TABLE, TABLE, max_sets=0), "max_sets must be"),
        (lambda: marginal_distance(TABLE, TABLE.astype(str)), "'a' must be numeric"),
        (lambda: sampling_floor(TABLE[["a", "a"]]), r"repeated: \['a'\]"),
        (lambda: kendall_tau_matrix(TABLE[["b"]]), "needs a numeric column"),
        (lambda: kendall_tau_distance(TABLE, TABLE.astype(str)), "must be numeric"),
        (lambda: tstr(TABLE, TABLE, "c"), "target must be one of"),
        (lambda: tstr(TABLE[["b"]], TABLE[["b"]], "b"), "only column"),
        (lambda: tstr(TABLE[["b"]], TABLE, "b"), r"train must have .*lacks \['a'\]"),
        (lambda: tstr(TABLE, TABLE.assign(b="x"), "b"), "two classes in test"),
        (lambda: tstr(TABLE.assign(b=None), TABLE, "b"), "0 training rows"),
    ],
)
def test_errors_name_what_is_wrong(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_what_is_no_table_is_refused():
    with pytest.raises(TypeError, match="real must be a DataFrame; got ndarray"):
        marginal_distance(TABLE.to_numpy(), TABLE)


def slow_tau(x: np.ndarray, y: np.ndarray) -> float:
    """Return tau-b from the signs of all pairs of rows."""
    a, b = np.sign(np.subtract.outer(x, x)), np.sign(np.subtract.outer(y, y))
    return (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())


def test_kendall_matrix_agrees_with_all_pairs_of_rows_and_with_scipy():
    table = mixed_table(200, 3)
    matrix = kendall_tau_matrix(table)
    assert (
        list(matrix.columns) == list(matrix.index) == ["few", "many", "skewed", "size"]
    )
    for one, other in product(matrix, repeat=2):
        rows = table[list({one, other})].dropna()
        x, y = rows[one].to_numpy(), rows[other].to_numpy()
        assert matrix.loc[one, other] == pytest.approx(slow_tau(x, y), abs=1e-12)
        assert matrix.loc[one, other] == pytest.approx(kendalltau(x, y).statistic)


def test_kendall_matrix_depends_on_ranks_alone():
    table = mixed_table(200, 3)[["few", "size"]]
    bent = table.assign(few=np.exp(table["few"]), size=-(table["size"] ** 3))
    tau, bent_tau = (kendall_tau_matrix(t).loc["few", "size"] for t in (table, bent))
    assert tau > 0.3
    assert bent_tau == pytest.approx(-tau)


def test_undefined_tau_counts_as_no_association():
    table = pd.DataFrame(
        {
            "constant": [5, 5, 5, 5],
            "lonely": [1.0, np.nan, np.nan, np.nan],
            "whole": pd.array([1, 2, 3, None], dtype="Int64"),
            "x": [1, 2, 3, 0],
        }
    )
    expected = np.eye(4)
    expected[2, 3] = expected[3, 2] = 1.0
    np.testing.assert_array_equal(kendall_tau_matrix(table), expected)


def test_kendall_distance_by_hand():
    real = pd.DataFrame({"x": [1, 2, 3], "y": [1, 2, 3], "b": ["u", "v", "u"]})
    fake = pd.DataFrame({"b": ["u", "u"], "y": [2, 1], "x": [1, 2]})
    result = kendall_tau_distance(real, fake)
    assert result.difference.loc["x", "y"] == -2.0
    # Two of four entries are -2.
    assert result.rmse == pytest.approx(np.sqrt(2.0))
    assert result.mae == pytest.approx(1.0)
    assert repr(result) == "KendallDistance(n_columns=2, rmse=1.4142, mae=1.0000)"
    assert kendall_tau_distance(real, real).rmse == 0.0
    assert isinstance(result, KendallDistance)


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
    tstr(train, test, "label", classifiers={"recorder": Recorder(log)})
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
    scores = tstr(train, test, "label", classifiers={"tree": tree}).iloc[0]
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
    scores = tstr(train, test, "label", classifiers={"tree": tree}).iloc[0]
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
    scores = tstr(nearly, test, "label", classifiers={"tree": tree}).iloc[0]
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
    scores = tstr(train, test, "label", classifiers={"tree": tree}).iloc[0]
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
        scores = tstr(train, test, "label")
        assert len(scores) == 9
        np.testing.assert_allclose(scores["auroc"], 0.5, atol=0.02)
        assert np.isfinite(scores.drop(columns="classifier").to_numpy()).all()


def test_real_rows_beat_permuted_labels_for_every_classifier():
    train, test = three_classes(800, 0), three_classes(500, 1)
    before = train.copy(), test.copy()
    good = tstr(train, test, "label", n_jobs=1)
    labels = np.random.default_rng(0).permutation(train["label"])
    bad = tstr(train.assign(label=labels), test, "label")
    assert list(good.columns) == [
        "classifier",
        "macro_f1",
        "auroc",
        "average_precision",
    ]
    assert (good["auroc"] > 0.68).all()
    assert good["auroc"].mean() > 0.82
    assert bad["auroc"].mean() == pytest.approx(0.5, abs=0.1)
    pd.testing.assert_frame_equal(train, before[0])
    pd.testing.assert_frame_equal(test, before[1])


def test_rows_are_drawn_once_by_seed():
    train, test = three_classes(300, 0), three_classes(100, 1)
    drawn = []
    for seed in (0, 0, 1):
        log: dict = {}
        models = {"recorder": Recorder(log)}
        tstr(train, test, "label", classifiers=models, n_rows=50, random_state=seed)
        drawn.append(log["x_train"][:, 0])
    assert len(drawn[0]) == 50
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_target_of_numbers_may_change_dtype():
    train, test = three_classes(300, 0), three_classes(200, 1)
    code = {"common": 0, "middle": 1, "rare": 2}
    whole = [t.assign(label=t["label"].map(code).astype(int)) for t in (train, test)]
    tree = {"tree": DecisionTreeClassifier(max_depth=3, random_state=0)}
    same = tstr(*whole, "label", classifiers=tree)
    floats = whole[0].assign(label=whole[0]["label"].astype(float))
    floats.loc[len(floats)] = [np.nan, "0", 1.0, np.nan]  # a row without a target
    pd.testing.assert_frame_equal(
        tstr(floats, whole[1], "label", classifiers=tree, n_rows=None), same
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
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tstr(train, test.assign(noise="unknown"), "label")
        kendall_tau_distance(train, test)
        marginal_distance(train, test, 3)
