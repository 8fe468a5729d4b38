"""Metrics against brute force, closed forms and cases worked by hand."""

from __future__ import annotations

import warnings
from collections import Counter
from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau

from dpgenerative.metrics import (
    KendallDistance,
    fidelity,
    independence_baseline,
    kendall_tau_distance,
    kendall_tau_matrix,
    marginal_distance,
    sampling_floor,
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


@pytest.mark.thorough
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
    one, two = (marginal_distance(real, fake, k, references=False) for k in (1, 2))
    # x in [-, 2), [2, 5), [5, -): 2 1 1 against 1 2 1; y a, b, c, -: 2 1 0 1, 0 1 1 2
    np.testing.assert_allclose(one.values, [0.25, 0.5])
    # (1a, 1b, 2a, 5-) against (1c, 2b, 2-, 5-), where 1 stands for all below 2
    np.testing.assert_allclose(two.values, [0.75])
    assert one.to_frame()["columns"].tolist() == [("y",), ("x",)]
    assert repr(one) == (
        "MarginalDistance('tvd', k=1, n_sets=2, mean=0.3750, max=0.5000)"
    )


def largest_distance(real: pd.DataFrame, fake: pd.DataFrame) -> float:
    """Compare tables of a few rows, without references and so without a warning."""
    return marginal_distance(real, fake, references=False).max


def test_level_lists_and_dtypes_do_not_matter_but_levels_do():
    real = pd.DataFrame({"c": pd.Categorical(["a", "b", "b"])})
    other = pd.DataFrame({"c": pd.Categorical(["b", "a", "b"], ["z", "b", "a"])})
    assert largest_distance(real, other) == 0.0
    assert largest_distance(real, other.astype(object)) == 0.0
    assert largest_distance(real, other.astype("string")) == 0.0
    unseen = pd.DataFrame({"c": ["q", "q", "q"]})
    assert largest_distance(real, unseen) == 1.0


def test_integers_are_compared_as_integers_and_floats_are_not():
    whole = pd.DataFrame({"n": [1, 2, 3, 4]})
    near = whole - 0.4
    assert largest_distance(whole, near) == 0.0
    assert largest_distance(whole.astype(float), near) == 0.25
    gaps = pd.DataFrame({"n": pd.array([1, 2, None, 4], dtype="Int64")})
    assert largest_distance(whole, gaps) == 0.25
    assert largest_distance(gaps, gaps.astype(float)) == 0.0


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
    table = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (60, 30)))
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
        (lambda: marginal_distance(TABLE, TABLE, 3), "'k' of .* in \\[1, 2\\]"),
        (lambda: marginal_distance(TABLE, TABLE, 0), "'k' of marginal"),
        (lambda: marginal_distance(TABLE, TABLE, max_sets=0), "'max_sets' of"),
        (lambda: marginal_distance(TABLE, TABLE.astype(str)), "'a' must be numeric"),
        (lambda: sampling_floor(TABLE[["a", "a"]]), r"repeated: \['a'\]"),
        (lambda: kendall_tau_matrix(TABLE[["b"]]), "needs a numeric column"),
        (lambda: kendall_tau_matrix(TABLE[["a", "a"]]), r"repeated: \['a'\]"),
        (lambda: kendall_tau_distance(TABLE, TABLE.astype(str)), "must be numeric"),
    ],
)
def test_errors_name_what_is_wrong(call, text):
    with pytest.raises(ValueError, match=text):
        call()


def test_what_is_no_table_is_refused():
    with pytest.raises(TypeError, match="real must be a DataFrame; got ndarray"):
        marginal_distance(TABLE.to_numpy(), TABLE)
    lists = TABLE.assign(b=[[1], [2], []])
    with pytest.raises(TypeError, match="Column 'b' has values, such as lists"):
        marginal_distance(lists, lists)


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
    with pytest.warns(UserWarning, match="sampling noise"):
        result = kendall_tau_distance(real, fake)
    assert result.difference.loc["x", "y"] == -2.0
    # Two of four entries are -2.
    assert result.rmse == pytest.approx(np.sqrt(2.0))
    assert result.mae == pytest.approx(1.0)
    assert repr(result) == "KendallDistance(n_columns=2, rmse=1.4142, mae=1.0000)"
    with pytest.warns(UserWarning, match="sampling noise"):
        assert kendall_tau_distance(real, real).rmse == 0.0
    assert isinstance(result, KendallDistance)


def test_scores_come_without_warnings():
    real, fake = mixed_table(300, 0), mixed_table(200, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kendall_tau_distance(real, fake)
        marginal_distance(real, fake, 3)
