"""Marginals, association, likelihood and SDMetrics against independent oracles."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from decimal import Decimal
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats
from scipy.optimize import linprog
from scipy.spatial.distance import jensenshannon
from sklearn.linear_model import LinearRegression
from sklearn.neighbors import KernelDensity

from dpgenerative.metrics import columns, fidelity
from dpgenerative.metrics.dependence import (
    AssociationDistance,
    KendallDistance,
    association_distance,
    association_matrix,
    kendall_tau_distance,
    kendall_tau_matrix,
)
from dpgenerative.metrics.external import sdmetrics_diagnostic, sdmetrics_quality
from dpgenerative.metrics.fidelity import (
    DISTANCES,
    independence_baseline,
    marginal_distance,
    sampling_floor,
)
from dpgenerative.metrics.likelihood import log_likelihood
from dpgenerative.metrics.records import closest_record, row_keys
from dpgenerative.metrics.utility import tstr
from tests.test_metrics import mixed_table, slow_cell

CASES = [(m, k) for m in DISTANCES for k in (1, 2, 3) if m != "wasserstein" or k == 1]


def permuted(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Permute every column alone."""
    rng = np.random.default_rng(seed)
    return table.apply(lambda column: column.array.take(rng.permutation(len(table))))


# Marginals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("k", "distance", "floor", "baseline"),
    [
        (1, 0.06307142857142858, 0.03914285714285715, 0.0),
        (2, 0.16045238095238096, 0.0963809523809524, 0.2182857142857143),
        (3, 0.3120285714285715, 0.17451428571428573, 0.46799999999999997),
    ],
)
def test_the_figures_of_the_protocol_do_not_change(k, distance, floor, baseline):
    # Computed at revision 506cf98, before there was any other metric.
    result = marginal_distance(mixed_table(500, 0), mixed_table(400, 1), k)
    assert result.mean == pytest.approx(distance, abs=1e-15)
    assert result.floor == pytest.approx(floor, abs=1e-15)
    assert result.baseline == pytest.approx(baseline, abs=1e-15)


def test_the_draw_of_sets_does_not_change():
    table = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (60, 30)))
    sets = marginal_distance(table, table, 3, references=False).sets
    assert sets[:3] == ((0, 2, 7), (0, 2, 22), (0, 3, 20))
    assert sets[-1] == (27, 28, 29)


@pytest.mark.thin(3)
@pytest.mark.parametrize("k", [1, 2, 3])
def test_jensen_shannon_is_the_square_of_scipys_distance(k):
    real, fake = mixed_table(80, 0), mixed_table(60, 1)
    slow = [
        {n: [slow_cell(real[n], value) for value in table[n]] for n in real}
        for table in (real, fake)
    ]
    result = marginal_distance(real, fake, k, metric="jsd")
    for names, value in zip(result.sets, result.values, strict=True):
        counts = [
            Counter(zip(*(table[n] for n in names), strict=True)) for table in slow
        ]
        cells = list(counts[0] | counts[1])
        p, q = ([count[cell] for cell in cells] for count in counts)
        assert value == pytest.approx(jensenshannon(p, q, base=2) ** 2, abs=1e-12)
    assert result.max > 0.1


@pytest.mark.parametrize(("metric", "k"), CASES)
def test_the_same_rows_in_another_order_have_distance_zero(metric, k):
    real = mixed_table(300, 0)
    shuffled = real.sample(frac=1, random_state=1)[list(reversed(real.columns))]
    allowed = 1e-12 if metric == "jsd" else 0.0
    assert marginal_distance(real, shuffled, k, metric=metric).max <= allowed


@pytest.mark.parametrize(("metric", "k"), CASES)
def test_a_bootstrap_has_about_the_distance_of_the_floor(metric, k):
    real = mixed_table(2000, 0)
    other = real.sample(frac=1, replace=True, random_state=7)
    result = marginal_distance(real, other, k, metric=metric)
    assert result.mean == pytest.approx(result.floor, rel=0.5)
    assert result.floor > 0
    rare = real[real["few"] != 0]
    assert marginal_distance(real, rare, k, metric=metric).mean > 1.5 * result.floor


@pytest.mark.parametrize(("metric", "k"), [case for case in CASES if case[1] > 1])
def test_permuted_columns_have_about_the_distance_of_the_baseline(metric, k):
    real = mixed_table(2000, 0)
    result = marginal_distance(real, permuted(real, 7), k, metric=metric)
    assert result.mean == pytest.approx(result.baseline, rel=0.05)
    assert result.baseline > 1.5 * result.floor


@pytest.mark.parametrize("metric", DISTANCES)
def test_permuting_leaves_single_columns_as_they_are(metric):
    real = mixed_table(200, 0)
    result = marginal_distance(real, permuted(real, 7), metric=metric)
    assert result.max == result.baseline == 0.0


@pytest.mark.parametrize(("metric", "k"), CASES)
def test_references_are_those_of_the_explicit_tables(metric, k):
    real, fake = mixed_table(120, 0), mixed_table(90, 1)
    result = marginal_distance(real, fake, k, metric=metric, random_state=3)
    rows = np.random.default_rng(3).integers(0, 120, 120)
    tables = {"floor": real.iloc[rows], "baseline": permuted(real, 3)}
    functions = {"floor": sampling_floor, "baseline": independence_baseline}
    for name, table in tables.items():
        expected = marginal_distance(real, table, k, metric=metric, random_state=3)
        alone = functions[name](real, k, metric=metric, random_state=3)
        np.testing.assert_allclose(alone.values, expected.values, atol=1e-12)
        assert getattr(result, name) == pytest.approx(expected.mean, abs=1e-12)
        assert alone.sets == result.sets
        assert alone.metric == metric
        assert alone.floor is alone.baseline is None


@pytest.mark.parametrize(("metric", "k"), CASES)
def test_distances_do_not_depend_on_references(metric, k):
    real, fake = mixed_table(120, 0), mixed_table(90, 1)
    bare = marginal_distance(real, fake, k, metric=metric, references=False)
    full = marginal_distance(real, fake, k, metric=metric)
    np.testing.assert_array_equal(bare.values, full.values)
    assert bare.floor is bare.baseline is None
    assert "floor" not in repr(bare)
    assert repr(full) == (
        f"{repr(bare)[:-1]}, floor={full.floor:.4f}, baseline={full.baseline:.4f})"
    )
    assert repr(bare).startswith(f"MarginalDistance({metric!r}, k={k}, n_sets=")


@pytest.mark.parametrize("metric", DISTANCES)
def test_a_comparison_reads_every_column_once(monkeypatch, metric):
    real, fake = mixed_table(120, 0), mixed_table(90, 1)
    seen = []
    read = fidelity._read
    monkeypatch.setattr(
        fidelity, "_read", lambda *c: seen.append(c[0].name) or read(*c)
    )
    marginal_distance(real, fake, metric=metric, references=False)
    assert seen == list(real.columns)


@pytest.mark.parametrize("metric", ["tvd", "jsd"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_levels_are_compared_symmetrically(metric, k):
    one, other = (
        mixed_table(n, s)[["colour", "flag", "note"]] for n, s in ((200, 0), (150, 1))
    )
    there, back = (
        marginal_distance(*pair, k, metric=metric).values
        for pair in ((one, other), (other, one))
    )
    np.testing.assert_allclose(there, back, atol=1e-12)
    assert there.max() > 0


def moved(real: object, fake: object) -> float:
    tables = (pd.DataFrame({"x": values}) for values in (real, fake))
    return marginal_distance(*tables, metric="wasserstein", references=False).max


@pytest.mark.parametrize("seed", range(5))
def test_wasserstein_of_numbers_agrees_with_scipy_and_with_sorting(seed):
    rng = np.random.default_rng(seed)
    real, fake = rng.gamma(2.0, 3.0, 40), rng.normal(4.0, 5.0, 40)
    expected = np.abs(np.sort(real) - np.sort(fake)).mean() / np.ptp(real)
    assert moved(real, fake) == pytest.approx(expected)
    scipys = stats.wasserstein_distance(real, fake[:25]) / np.ptp(real)
    assert moved(real, fake[:25]) == pytest.approx(scipys)
    assert moved(fake, real) * np.ptp(fake) == pytest.approx(expected * np.ptp(real))
    assert moved(5 - 2 * real, 5 - 2 * fake) == pytest.approx(expected)


def test_wasserstein_of_levels_is_total_variation():
    real, fake = (mixed_table(200, s)[["colour", "flag", "note"]] for s in (0, 1))
    np.testing.assert_array_equal(
        marginal_distance(real, fake, metric="wasserstein").values,
        marginal_distance(real, fake).values,
    )


def cheapest_transport(real: np.ndarray, fake: np.ndarray) -> float:
    """Move rows, missing ones too, at the cost of a real width to and from missing."""
    width = np.nanmax(real) - np.nanmin(real)
    cost = np.abs(np.subtract.outer(real, fake)) / width
    gone = np.isnan(real)[:, None] != np.isnan(fake)[None, :]
    cost = np.where(gone, 1.0, np.nan_to_num(cost))
    n, m = cost.shape
    rows, columns = np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))
    shares = np.r_[np.full(n, 1 / n), np.full(m, 1 / m)]
    return linprog(cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=shares).fun


@pytest.mark.parametrize("n_missing", [0, 2, 5])
def test_missing_numbers_cost_a_real_width(n_missing):
    rng = np.random.default_rng(n_missing)
    real, fake = rng.normal(size=12), rng.normal(0.5, size=9)
    fake[:n_missing] = np.nan
    present = fake[n_missing:]
    share = len(present) / 9
    inside = stats.wasserstein_distance(real, present) / np.ptp(real)
    assert moved(real, fake) == pytest.approx(1 - share + share * inside)
    # The documented plan moves present rows proportionally: no cheaper than the best.
    assert moved(real, fake) >= cheapest_transport(real, fake) - 1e-9
    if not n_missing:
        assert moved(real, fake) == pytest.approx(cheapest_transport(real, fake))


def test_wasserstein_of_numbers_of_the_size_of_floats():
    real, fake = np.random.default_rng(0).uniform(-1, 1, (2, 50))
    real[:2] = -1, 1
    huge = moved(1.7e308 * real, 1.7e308 * fake)
    assert huge == pytest.approx(moved(real, fake))


def test_wasserstein_by_hand():
    assert moved([0, 10], [0.0, np.nan]) == pytest.approx(0.5 + 0.5 * 0.5)
    assert moved([0.0, 10.0], [np.nan] * 3) == 1.0
    assert moved([np.nan] * 3, [1.0, 2.0]) == 1.0
    assert moved([np.nan] * 3, [np.nan] * 2) == 0.0
    assert moved([5.0, 5.0], [5.0, 5.0, 5.0]) == 0.0
    assert moved([5.0, 5.0], [5.0, 6.0, 500.0, 5.0]) == 0.5
    assert moved([0.0, 1.0], [3.0, 4.0]) == 3.0
    assert moved([0, 2], [0.4, 1.6]) == 0.0  # integers are compared as integers
    assert moved([0.0, 2.0], [0.4, 1.6]) == pytest.approx(0.2)


@pytest.mark.parametrize("metric", DISTANCES)
def test_tables_without_anything_in_common(metric):
    real = pd.DataFrame({"a": ["x", "y"] * 30, "b": [0.0, 1.0] * 30})
    fake = pd.DataFrame({"a": ["u", "v"] * 30, "b": [np.nan] * 60})
    fake.index = fake.index + 1000  # row labels are no part of a row
    result = marginal_distance(real, fake, metric=metric)
    np.testing.assert_allclose(result.values, 1.0)


@pytest.mark.thin(3)
@pytest.mark.parametrize("metric", DISTANCES)
@pytest.mark.parametrize("dtype", ["float64", "object", "category", "Int64", "string"])
def test_columns_may_be_missing_altogether(metric, dtype):
    empty = pd.DataFrame({"e": pd.Series([None] * 60, dtype=dtype), "x": range(60)})
    numeric = empty.assign(e=np.arange(60.0))
    text = empty.assign(e=["a", "b"] * 30)
    assert marginal_distance(empty, empty, metric=metric).max == 0.0
    for full in (numeric, text):
        if dtype in ("float64", "Int64") and full is text:
            continue
        result = marginal_distance(empty, full, metric=metric)
        assert result.values[0] == pytest.approx(1.0)
        assert result.values[1] == 0.0
        assert marginal_distance(full, empty, metric=metric).max == pytest.approx(1.0)
    pairs = marginal_distance(empty, empty, 2)
    assert pairs.max == pairs.baseline == 0.0
    assert association_matrix(empty).loc["e", "x"] == 0.0


N = 60
COLUMNS = {
    "numbers": list(range(N)),
    "strings": [str(i % 3) for i in range(N)],
    "dates": list(pd.date_range("2020-01-01", periods=N)),
    "flags": [True, False] * (N // 2),
}


@pytest.mark.parametrize("compare", [marginal_distance, association_distance])
@pytest.mark.parametrize("other", ["numbers", "dates", "flags"])
def test_strings_on_one_side_only_are_refused(compare, other):
    sides = [pd.DataFrame({"col": COLUMNS[kind]}) for kind in ("strings", other)]
    for pair in (sides, sides[::-1]):
        with pytest.raises(ValueError, match=r"[Cc]olumn 'col'"):
            compare(*pair)


def test_equal_looking_levels_of_different_types_are_different():
    codes, levels = columns.common_codes(pd.Series([1, 2]), pd.Series(["2", "1", None]))
    assert [each.tolist() for each in codes] == [[0, 1], [2, 3, -1]]
    assert list(levels) == [1, 2, "2", "1"]


def test_levels_of_another_dtype_are_compared_by_value():
    whole = pd.DataFrame({"col": pd.Categorical([1, 2] * 30)})
    assert marginal_distance(whole, whole.astype(int)).max == 0.0
    assert association_distance(whole, whole.astype(int)).rmse == 0.0
    mixed = pd.DataFrame({"col": ["1", 2] * 30})
    assert marginal_distance(mixed, whole).max == 0.5


@pytest.mark.parametrize("backend", ["numpy", "arrow"])
def test_instants_are_the_same_in_every_time_zone(backend):
    hours = pd.date_range("2020-03-28", periods=60, freq="h", tz="Europe/Berlin")
    real = pd.DataFrame({"at": hours, "n": range(60)})
    fake = real.assign(at=hours.tz_convert("America/New_York"))
    if backend == "arrow":
        fake["at"] = fake["at"].astype(pd.ArrowDtype(pa.timestamp("us", "UTC")))
    for metric in DISTANCES:
        assert marginal_distance(real, fake, metric=metric).max == 0.0
    assert kendall_tau_distance(real, fake).rmse == 0.0
    # An instant without a zone is what the real clock shows.
    bare = real.assign(at=hours.tz_localize(None))
    assert marginal_distance(real, bare).max == 0.0
    with pytest.raises(ValueError, match=r"100.0% of the rows of holdout"):
        closest_record(real, real, fake)


TABLE = mixed_table(60, 0)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: marginal_distance(TABLE, TABLE, metric="tv"), "'metric' .*one of"),
        (lambda: sampling_floor(TABLE, metric="l2"), "'metric' .*one of"),
        (lambda: marginal_distance(TABLE, TABLE, 2, metric="wasserstein"), "k=1"),
        (lambda: independence_baseline(TABLE, metric="wasserstein"), "k=1"),
        (lambda: moved([0.0, 1.0], [0.0, np.inf]), "'x' has infinite values"),
        (lambda: moved([-np.inf, 1.0], [0.0, 1.0]), "'x' has infinite values"),
        (lambda: association_matrix(TABLE.iloc[:0]), "frame must have rows"),
        (lambda: association_matrix(TABLE[["few", "few"]]), "distinct columns"),
        (lambda: association_distance(TABLE, TABLE[["few"]]), "lacks"),
    ],
)
def test_errors_name_what_is_wrong(call, text):
    with pytest.raises(ValueError, match=text):
        call()


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "compare",
    [marginal_distance, kendall_tau_distance, association_distance, sdmetrics_quality],
)
@pytest.mark.parametrize("sizes", [(49, 60), (60, 49)])
def test_fewer_than_fifty_rows_warn(compare, sizes):
    real, fake = (mixed_table(n, 0) for n in sizes)
    with pytest.warns(UserWarning, match="sampling noise") as caught:
        compare(real, fake)
    assert any(each.filename == __file__ for each in caught)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compare(mixed_table(50, 0), mixed_table(50, 1))
        marginal_distance(real, fake, references=False)


# Association --------------------------------------------------------------------------


def labelled(column: pd.Series) -> pd.Series:
    return column.astype(object).where(column.notna(), "missing")


def slow_v(first: pd.Series, second: pd.Series) -> float:
    """Return Bergsma's V from scipy's chi-squared of a cross table."""
    table = pd.crosstab(*(labelled(s) for s in (first, second)))
    (r, c), n = table.shape, len(first)
    phi = stats.chi2_contingency(table, correction=False).statistic / n
    phi = max(0.0, phi - (r - 1) * (c - 1) / (n - 1))
    r, c = (size - (size - 1) ** 2 / (n - 1) for size in (r, c))
    return math.sqrt(phi / (min(r, c) - 1))


def slow_eta(number: pd.Series, level: pd.Series) -> float:
    """Return eta from the F statistic of the analysis of variance."""
    level = labelled(level)[number.notna()]
    groups = [group for _, group in number.dropna().groupby(level)]
    between, within = len(groups) - 1, number.notna().sum() - len(groups)
    f = stats.f_oneway(*groups).statistic
    return math.sqrt(between * f / (between * f + within))


def slow_association(first: pd.Series, second: pd.Series) -> float:
    numeric = [columns.is_number(column) for column in (first, second)]
    if all(numeric):
        both = first.notna() & second.notna()
        return abs(stats.kendalltau(first[both], second[both]).statistic)
    if not any(numeric):
        return slow_v(first, second)
    return slow_eta(first, second) if numeric[0] else slow_eta(second, first)


@pytest.mark.parametrize("seed", [0, 1])
def test_association_agrees_with_scipy(seed):
    table = mixed_table(300, seed)
    matrix = association_matrix(table)
    assert list(matrix.columns) == list(matrix.index) == list(table.columns)
    np.testing.assert_array_equal(np.diag(matrix), 1.0)
    np.testing.assert_array_equal(matrix, matrix.T)
    for one, other in combinations(table, 2):
        expected = slow_association(table[one], table[other])
        assert matrix.loc[one, other] == pytest.approx(expected, abs=1e-9)
    assert matrix.to_numpy().min() >= 0
    assert 0.3 < matrix.loc["few", "note"] < 1


def test_association_depends_on_neither_names_nor_order_nor_unused_levels():
    table = mixed_table(300, 0)
    colour = table["colour"].cat.add_categories("grey")
    other = table.assign(
        colour=colour.cat.reorder_categories(["grey", "blue", "red", "green"]),
        note=table["note"].map({"late": "z"}),
        size=3 - 1e200 * table["size"],
    ).sample(frac=1, random_state=0)
    np.testing.assert_allclose(
        association_matrix(other), association_matrix(table), atol=1e-12
    )
    result = association_distance(table, other.drop(columns="note").assign(note="z"))
    assert list(result.synthetic) == list(table)


def test_perfect_association_is_one_and_undefined_is_none():
    x = np.arange(60) % 3
    table = pd.DataFrame(
        {
            "x": x,
            "same": np.array(["a", "b", "c"])[x],
            "renamed": pd.Categorical(np.array(["r", "p", "q"])[x]),
            "constant": "k",
            "five": 5.0,
            "own": [f"row {i}" for i in range(60)],
            "lonely": [1.0] + [np.nan] * 59,
        }
    )
    matrix = association_matrix(table)
    assert matrix.loc["same", "renamed"] == pytest.approx(1.0)
    assert matrix.loc["x", "same"] == pytest.approx(1.0)
    undefined = matrix[["constant", "five", "lonely"]].to_numpy()
    assert undefined.sum() == 3  # their diagonal
    assert matrix.loc["own", ["same", "renamed"]].tolist() == [0.0, 0.0]
    assert association_matrix(table.iloc[:1]).to_numpy().sum() == len(table.columns)
    infinite = table.assign(x=np.where(x < 2, x, np.inf))
    assert association_matrix(infinite).loc["x", "same"] == pytest.approx(1.0)


def test_independent_columns_have_hardly_any_association():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.integers(0, 20, (2000, 8))).astype("category")
    table["x"] = rng.normal(size=2000)
    matrix = association_matrix(table)
    # Without the correction V would be near sqrt(361 / 2000 / 19) = 0.098.
    assert matrix.iloc[:8, :8].to_numpy()[np.triu_indices(8, 1)].mean() < 0.03
    # Eta has no correction: its size is the documented one.
    documented = math.sqrt(19 / 1999)
    assert matrix["x"].drop("x").mean() == pytest.approx(documented, rel=0.15)


def test_association_distance_sees_lost_dependence_and_little_else():
    real = mixed_table(2000, 0)
    assert association_distance(real, real).rmse == 0.0
    bootstrap = association_distance(
        real, real.sample(frac=1, replace=True, random_state=0)
    )
    lost = association_distance(real, permuted(real, 1))
    alone = lost.real.to_numpy() - np.eye(len(real.columns))
    assert bootstrap.rmse < 0.2 * lost.rmse
    assert lost.rmse == pytest.approx(np.sqrt(np.mean(alone**2)), rel=0.1)
    assert lost.mae == pytest.approx(np.mean(alone), rel=0.2)
    back = association_distance(permuted(real, 1), real)
    np.testing.assert_allclose(back.difference, -lost.difference, atol=1e-12)


def test_association_frame_puts_the_worst_pair_first():
    names = ["a", "b", "c"]
    real, fake = (pd.DataFrame(np.eye(3), index=names, columns=names) for _ in range(2))
    real.loc["a", "c"] = real.loc["c", "a"] = 0.9
    fake.loc["b", "c"] = fake.loc["c", "b"] = 0.3
    result = AssociationDistance(real, fake)
    expected = pd.DataFrame(
        {
            "columns": [("a", "c"), ("b", "c"), ("a", "b")],
            "real": [0.9, 0.0, 0.0],
            "synthetic": [0.0, 0.3, 0.0],
            "difference": [-0.9, 0.3, 0.0],
        }
    )
    pd.testing.assert_frame_equal(result.to_frame(), expected)
    assert result.rmse == pytest.approx(math.sqrt(2 * (0.81 + 0.09) / 9))
    assert result.mae == pytest.approx(2 * 1.2 / 9)
    assert repr(result) == "AssociationDistance(n_columns=3, rmse=0.4472, mae=0.2667)"
    kendall = KendallDistance(result.difference)
    pd.testing.assert_frame_equal(
        kendall.to_frame(), expected[["columns", "difference"]]
    )
    assert KendallDistance(result.difference.iloc[:1, :1]).to_frame().empty


# Likelihood ---------------------------------------------------------------------------


def test_log_likelihood_is_mean_and_standard_error_of_the_scores():
    rows = np.random.default_rng(0).normal(size=(200, 2))
    model = KernelDensity().fit(rows)
    result = log_likelihood(model.score_samples, rows)
    scores = model.score_samples(rows)
    assert result.mean == pytest.approx(model.score(rows) / 200)
    assert result.standard_error == pytest.approx(stats.sem(scores))
    assert (result.n, result.n_impossible) == (200, 0)
    assert result.to_frame().iloc[0].tolist() == [
        result.mean,
        result.standard_error,
        200,
        0,
    ]


def test_the_standard_error_covers_the_expected_log_density():
    entropy = -0.5 * math.log(2 * math.pi * math.e)
    draws = np.random.default_rng(0).normal(size=(400, 100))
    found = [log_likelihood(stats.norm.logpdf, row) for row in draws]
    hits = [abs(each.mean - entropy) < 2 * each.standard_error for each in found]
    assert 0.9 < np.mean(hits) < 0.99


def test_rows_of_density_zero_are_counted_apart():
    rows = pd.DataFrame({"x": [0.5, 2.0, 0.25, -1.0]})
    result = log_likelihood(lambda t: stats.uniform(0, 0.5 * 2).logpdf(t["x"]), rows)
    assert (result.mean, result.n, result.n_impossible) == (0.0, 4, 2)
    assert repr(result) == (
        "LogLikelihood(mean=0.0000, standard_error=0.0000, n=4, n_impossible=2)"
    )
    with pytest.warns(UserWarning, match="density 0"):
        nowhere = log_likelihood(lambda t: np.full(len(t), -np.inf), rows)
    assert math.isnan(nowhere.mean)
    assert nowhere.n_impossible == 4
    assert math.isnan(log_likelihood(lambda t: [1.0], rows[:1]).standard_error)


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        ([0.0], "one number per row"),
        ([[0.0], [1.0]], "one number per row"),
        ([0.0, np.nan], "NaN"),
        ([0.0, np.inf], "infinity"),
    ],
)
def test_scores_that_are_no_log_densities_are_refused(scores, text):
    with pytest.raises(ValueError, match=text):
        log_likelihood(lambda rows: scores, np.zeros((2, 1)))
    with pytest.raises(ValueError, match="at least one row"):
        log_likelihood(lambda rows: scores, np.zeros((0, 1)))


# SDMetrics ----------------------------------------------------------------------------


def plain_table(n: int, seed: int) -> pd.DataFrame:
    """Make a table of two associated numbers and two associated nominal columns."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    level = rng.integers(0, 3, n)
    return pd.DataFrame(
        {
            "x": x,
            "y": x + 0.3 * rng.normal(size=n),
            "u": np.array(["a", "b", "c"])[level],
            "v": pd.Categorical.from_codes(
                (level + (rng.random(n) < 0.2)) % 3, list("pqrs")
            ),
        }
    )


def test_quality_consists_of_known_statistics():
    real, fake = plain_table(300, 0), plain_table(200, 1).iloc[:, ::-1]
    result = sdmetrics_quality(real, fake)
    shapes = result.details["Column Shapes"].set_index("Column")["Score"]
    for name in "xy":
        ks = stats.ks_2samp(real[name], fake[name]).statistic
        assert shapes[name] == pytest.approx(1 - ks)
    nominal = marginal_distance(real[["u", "v"]], fake[["u", "v"]])
    np.testing.assert_allclose(shapes[["u", "v"]], 1 - nominal.values)
    frame = result.to_frame().set_index(["property", "columns"])["score"]
    pairs = frame["Column Pair Trends"]
    pearson = [table[["x", "y"]].corr().iloc[0, 1] for table in (real, fake)]
    assert pairs[("x", "y")] == pytest.approx(1 - abs(pearson[0] - pearson[1]) / 2)
    joint = marginal_distance(real[["u", "v"]], fake[["u", "v"]], 2)
    assert pairs[("u", "v")] == pytest.approx(1 - joint.mean)
    properties = result.properties.set_index("Property")["Score"]
    assert properties["Column Shapes"] == pytest.approx(shapes.mean())
    assert result.score == pytest.approx(properties.mean())
    assert repr(result) == (
        f"SDMetricsScore('quality', score={result.score:.4f}, "
        f"Column Shapes={properties.iloc[0]:.4f}, "
        f"Column Pair Trends={properties.iloc[1]:.4f})"
    )


def test_diagnostic_counts_values_out_of_range():
    real = plain_table(100, 0)
    fake = real.copy()
    fake.loc[:9, "x"] = 1e6
    fake.loc[:19, "u"] = "unseen"
    result = sdmetrics_diagnostic(real, fake)
    validity = result.details["Data Validity"].set_index("Column")["Score"]
    assert validity.to_dict() == pytest.approx({"x": 0.9, "y": 1.0, "u": 0.8, "v": 1.0})
    assert result.score == pytest.approx((validity.mean() + 1.0) / 2)
    assert result.to_frame().iloc[0].tolist() == [
        "Data Validity",
        ("u",),
        "CategoryAdherence",
        pytest.approx(0.8),
    ]
    whole = real.assign(x=0.0)
    narrow = sdmetrics_diagnostic(whole, whole.assign(x=0))
    assert narrow.details["Data Structure"]["Score"].item() < 1


@pytest.mark.parametrize("score", [sdmetrics_quality, sdmetrics_diagnostic])
@pytest.mark.parametrize(
    "dtypes",
    [
        {"day": "datetime64[us]", "u": "category"},
        {"day": "datetime64[s]", "n": "int32"},
        {"day": "timestamp[ns][pyarrow]", "u": "string", "x": "double[pyarrow]"},
        {"n": "Int64", "u": "large_string[pyarrow]"},
    ],
)
def test_sdmetrics_scores_do_not_depend_on_storage(score, dtypes):
    rows = plain_table(100, 0).assign(n=np.arange(100) % 7)
    rows["day"] = pd.date_range("2024-01-01", periods=100, unit="ns")
    rows.loc[:9, ["u", "day"]] = None
    assert score(rows.astype(dtypes), rows).score == pytest.approx(1.0)


def test_sdmetrics_identity_is_one_and_permuting_is_seen():
    real = plain_table(400, 0)
    assert sdmetrics_quality(real, real).score == pytest.approx(1.0)
    assert sdmetrics_diagnostic(real, real).score == pytest.approx(1.0)
    lost = sdmetrics_quality(real, permuted(real, 0))
    assert lost.details["Column Shapes"]["Score"].min() == pytest.approx(1.0)
    assert lost.properties["Score"].iloc[1] < 0.8


@pytest.mark.parametrize("score", [sdmetrics_quality, sdmetrics_diagnostic])
def test_sdmetrics_takes_any_names_and_returns_them(score):
    real, fake = plain_table(100, 0), plain_table(100, 1)
    names = [0, ("a", "b"), 2.5, "v"]
    usual = score(real, fake)
    odd = score(real.set_axis(names, axis=1), fake.set_axis(names, axis=1))
    assert odd.score == usual.score
    back = dict(zip(names, real.columns, strict=True))
    found = [tuple(back[n] for n in row) for row in odd.to_frame()["columns"]]
    assert found == usual.to_frame()["columns"].tolist()


def test_sdmetrics_takes_metadata_as_given():
    real = plain_table(200, 0).assign(code=np.arange(200) % 3)
    fake = plain_table(200, 1).assign(code=np.arange(200) % 2)
    kinds = dict.fromkeys("xy", "numerical") | dict.fromkeys("uv", "categorical")
    metadata = {
        "columns": {n: {"sdtype": kind} for n, kind in kinds.items()}
        | {"code": {"sdtype": "categorical"}}
    }
    result = sdmetrics_quality(real, fake, metadata)
    shapes = result.details["Column Shapes"].set_index("Column")
    assert shapes.loc["code", "Metric"] == "TVComplement"
    assert shapes.loc["code", "Score"] == pytest.approx(1 - 66 / 200)
    default = sdmetrics_quality(real, fake).details["Column Shapes"]
    assert default.set_index("Column").loc["code", "Metric"] == "KSComplement"
    for wrong in ({}, {"columns": {"x": {"sdtype": "numerical"}}}, "metadata"):
        with pytest.raises(ValueError, match="describes exactly the columns"):
            sdmetrics_quality(real, fake, wrong)
    odd = real[["x"]].set_axis([0], axis=1)
    with pytest.raises(ValueError, match=r"by strings only; got \[0\]"):
        sdmetrics_quality(odd, odd, {"columns": {0: {"sdtype": "numerical"}}})


def test_sdmetrics_reads_every_dtype():
    n = 60
    table = pd.DataFrame(
        {
            "whole": pd.array([1, 2, None] * 20, dtype="Int64"),
            "maybe": pd.array([True, False, None] * 20, dtype="boolean"),
            "flag": [True, False, True] * 20,
            "day": pd.date_range("2020-01-01", periods=n),
            "zone": pd.date_range("2020-01-01", periods=n, tz="UTC"),
            "kind": pd.Categorical(["a", None, "b"] * 20),
            "text": pd.array(["a", None, "b"] * 20, dtype="string"),
        }
    )
    for score in (sdmetrics_quality, sdmetrics_diagnostic):
        assert score(table, table.sample(frac=1, random_state=0)).score == 1.0
    shapes = sdmetrics_quality(table, table).details["Column Shapes"]
    assert shapes.loc[shapes["Metric"] == "KSComplement", "Column"].tolist() == [
        "whole",
        "day",
        "zone",
    ]


def test_what_sdmetrics_cannot_score_is_named():
    real = plain_table(100, 0).assign(gone=np.nan, five=5.0)
    with pytest.warns(UserWarning, match="gives no score") as caught:
        result = sdmetrics_quality(real, real)
    texts = [str(each.message) for each in caught]
    assert "gives no score to the columns ['gone']" in texts[0]
    assert "of 15 entries and leaves them out of 'Column Pair Trends'" in texts[1]
    assert all(each.filename == __file__ for each in caught)
    assert result.score == pytest.approx(1.0)
    assert result.to_frame()["score"].isna().any()
    with pytest.raises(ValueError, match="'x' must be numeric"):
        sdmetrics_quality(real, real.assign(x="text"))
    with pytest.raises(ValueError, match="'u' holds strings"):
        sdmetrics_quality(real, real.assign(u=1))


def test_sdmetrics_depends_on_neither_filters_nor_global_seeds():
    small = plain_table(200, 0), plain_table(200, 1)
    scores = []
    for action in ("ignore", "error"):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            scores.append(sdmetrics_quality(*small).score)
    assert scores[0] == scores[1]
    large = [plain_table(60_000, seed)[["u", "v"]] for seed in (0, 1)]
    first, second = (sdmetrics_quality(*large) for _ in range(2))
    assert first.score == second.score
    pairs = first.details["Column Pair Trends"]["Score"].item()
    joint = marginal_distance(*large, 2, references=False).mean
    assert pairs == pytest.approx(1 - joint, abs=1e-12)


@pytest.mark.parametrize("value", [2.0, -5.0, 1e9, np.nextafter(1.0, 2)])
def test_a_constant_that_changes_is_another_cell(value):
    real = pd.DataFrame({"a": np.ones(50)})
    found = marginal_distance(real, real.assign(a=value), references=False)
    assert found.mean == 1
    assert marginal_distance(real, real, references=False).mean == 0
    half = real.assign(a=np.repeat([1.0, value], 25))
    assert marginal_distance(real, half, references=False).mean == 0.5


def figures(compared) -> np.ndarray:
    return compared.to_frame().select_dtypes("number").to_numpy()


def around(start, values, dtype) -> pd.Series:
    held = [None if pd.isna(value) else start + int(value) for value in values]
    if isinstance(dtype, pd.ArrowDtype):
        held = [None if value is None else Decimal(value) for value in held]
    return pd.Series(held, dtype=dtype)


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("start", "dtype"),
    [
        (2**62, "int64"),
        (-(2**62), "int64"),
        (2**64 - 60, "uint64"),
        (2**62, "Int64"),
        (2**62, pd.ArrowDtype(pa.int64())),
        (10**25, pd.ArrowDtype(pa.decimal128(30, 2))),
    ],
)
def test_whole_numbers_beyond_the_floats_are_told_apart(start, dtype):
    rng = np.random.default_rng(0)
    size = rng.integers(0, 50, 300).astype(float)
    size[:9] = 0 if dtype in ("int64", "uint64") else np.nan
    rest = {"b": size[::-1], "c": np.where(rng.random(300) * 50 < size, "x", "y")}
    fake = size.copy()
    fake[100:] = rng.integers(0, 30, 200)

    def table(start, values, dtype):
        return pd.DataFrame({"a": around(start, values, dtype), **rest})

    large = [table(start, values, dtype) for values in (size, fake)]
    small = [table(0, values, "Int64") for values in (size, fake)]
    wasserstein = partial(marginal_distance, metric="wasserstein")
    matrices = kendall_tau_distance, association_distance
    for compare in (marginal_distance, wasserstein, *matrices, sdmetrics_quality):
        found = figures(compare(*large))
        np.testing.assert_allclose(found, figures(compare(*small)), atol=1e-12)
    found, wanted = (
        closest_record(made, real[:150], real[150:]) for real, made in (large, small)
    )
    assert found == wanted
    model = {"classifiers": {"line": LinearRegression()}, "task": "regression"}
    scores = [tstr(None, real, made, "a", **model) for real, made in (large, small)]
    pd.testing.assert_frame_equal(*scores)
    scores = [tstr(None, real, made, "b", **model) for real, made in (large, small)]
    pd.testing.assert_frame_equal(*scores)


def test_few_large_whole_numbers_leave_small_ones_apart():
    # Counted from the large ones, small ones would be one number.
    values = np.array([*range(60), 2**62, 2**62 + 1, 2**62 + 2])
    frame = pd.DataFrame({"a": values, "b": range(63)})
    assert kendall_tau_matrix(frame).loc["a", "b"] == pytest.approx(1)
    other = frame.assign(a=[*range(59, -1, -1), 0, 0, 0])
    assert marginal_distance(frame, other, references=False).values[0] < 0.1
    assert len(np.unique(row_keys(frame[["a"]]))) == 63


def test_equal_numbers_are_equal_rows_whatever_their_dtype():
    held = [2**53, 2**62, 2**62 + 1024, 3]
    dtypes = "int64", "uint64", "Int64", "float64", pd.ArrowDtype(pa.int64())
    keys = [row_keys(pd.DataFrame({"a": held}, dtype=dtype)) for dtype in dtypes]
    assert all((each == keys[0]).all() for each in keys)
    beside = row_keys(pd.DataFrame({"a": [2**53 + 1, 2**62 + 1, 2**62 + 1023, 4]}))
    assert not np.isin(beside, keys[0]).any()
