"""Errors of common analyses: of one standard error by chance, and as large as made."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dpgenerative.metrics import AnalysisErrors, analysis_errors, report
from dpgenerative.metrics.analyses import ANALYSES
from dpgenerative.metrics.findings import _effects, _judge_analyses


def table(n, rng):
    x = rng.normal(size=n)
    group = rng.choice(list("abcd"), n, p=[0.4, 0.3, 0.2, 0.1])
    return pd.DataFrame(
        {
            "x": x,
            "y": 2 * x + rng.normal(size=n) * (1 + np.abs(x)),
            "money": rng.lognormal(sigma=1, size=n).round(2),
            "count": rng.poisson(2, n),
            "group": group,
            "part": np.char.add(group, rng.choice(list("12"), n)),
            "time": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(rng.integers(0, 525_600, n), "min"),
        }
    )


def errors_of(change, analysis, about=None, n=4000):
    real = table(n, np.random.default_rng(0))
    found = analysis_errors(real, change(real.copy())).table
    found = found[found["analysis"] == analysis]
    return found if about is None else found[found["about"] == about]["error"].item()


def test_constants_differ_by_no_rounding():
    rng = np.random.default_rng(0)
    real, same, other = (
        pd.DataFrame({"k": value, "x": rng.normal(size=n)})
        for value, n in ((0.3, 1000), (0.3, 1237), (0.4, 900))
    )
    table = analysis_errors(real, same).table
    of_k = table[table["about"].map(lambda about: "k" in about)]
    assert set(of_k["analysis"]) == {"quantile"}
    assert (of_k["error"] == 0).all()
    means = analysis_errors(real, other).table.query("analysis == 'mean'")
    assert np.isinf(means["error"].iloc[0])


def test_tables_of_one_kind_differ_by_standard_errors():
    results = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        results.append(analysis_errors(table(1500, rng), table(1500, rng)).table)
    both = pd.concat(results)
    squares = (both["error"] ** 2).groupby(both["analysis"]).mean()
    for name in ("mean", "quantile", "mean by group", "slope", "standard deviation"):
        # Two tables of one kind: twice the variance, and tails are heavy here.
        assert 1 < squares[name] < 4, name
    assert set(squares.index) == set(ANALYSES)
    means = both["error"].abs().groupby(both["analysis"]).mean()
    for name in ("hours", "weekdays", "months"):
        assert 1 < means[name] < 2, name


def test_a_table_is_not_off_from_itself():
    real = table(500, np.random.default_rng(0))
    own = analysis_errors(real, real)
    off = own.table[own.table["analysis"] != "combinations"]
    assert off["error"].abs().max() < 1e-9
    assert (own.table["error"] >= 0)[own.table["analysis"] == "combinations"].all()
    assert own.redrawn["error"].abs().max() > 0.5
    shuffled = analysis_errors(real, real[list(real.columns[::-1])])
    pd.testing.assert_frame_equal(shuffled.table, own.table)


@pytest.mark.parametrize(
    ("change", "analysis", "about", "expected"),
    [
        (lambda t: t.assign(x=t["x"] + 0.1), "mean", ("x",), 0.1 * 4000**0.5),
        (lambda t: t.assign(x=1.1 * t["x"]), "standard deviation", ("x",),
         0.1 * (2 * 4000) ** 0.5),
        (lambda t: t.assign(x=t["x"] + 0.5), "quantile", ("x", 0.5),
         0.1915 * 2 * 4000**0.5),
        (lambda t: t.assign(x=t["x"] + (t["group"] == "a")), "mean by group",
         ("x", "group", "a"), 1600**0.5),
    ],
)  # fmt: skip
def test_errors_are_as_large_as_made(change, analysis, about, expected):
    assert errors_of(change, analysis, about) == pytest.approx(expected, rel=0.15)


def test_slopes_and_calendar():
    steeper = errors_of(lambda t: t.assign(y=t["y"] + t["x"] / 2), "slope")
    (row,) = steeper[steeper["about"] == ("y", "x")].itertuples()
    assert row.synthetic - row.real == pytest.approx(0.5)
    assert row.error > 8
    noon = errors_of(lambda t: t.assign(time=t["time"].dt.floor("12h")), "hours")
    assert noon["synthetic"].item() > 0.9
    same = errors_of(lambda t: t.assign(time=t["time"].dt.floor("12h")), "weekdays")
    assert same["error"].item() == 0
    real = table(500, np.random.default_rng(0))
    real["time"] = real["time"].dt.floor("D")
    assert "hours" not in set(analysis_errors(real, real).table["analysis"])


def test_combinations():
    def break_apart(frame):
        frame["part"] = frame["part"].sample(frac=1, random_state=0).to_numpy()
        return frame

    (row,) = errors_of(break_apart, "combinations").itertuples()
    assert row.about == ("group", "part")
    assert row.synthetic == pytest.approx(0.7, abs=0.03)
    assert row.real == 1 / 4000
    rare = pd.DataFrame(
        {"a": list("xy") * 100, "b": [f"{i % 100}" for i in range(200)]}
    )
    one, two = rare.iloc[:100], rare.iloc[100:]
    assert (analysis_errors(one, two).table["synthetic"] <= 1).all()


def test_odd_columns():
    frame = pd.DataFrame(
        {
            "constant": np.ones(60),
            "missing": np.full(60, np.nan),
            "some": [np.nan, np.inf, 1.0] * 20,
            "few": pd.array([1, None] * 30, "Int64"),
            "flag": [True, False] * 30,
            "text": pd.array(["a", None, "b"] * 20, "string"),
            "none": pd.to_datetime([None] * 60),
        }
    )
    errors = analysis_errors(frame, frame.sample(frac=1, random_state=0))
    assert isinstance(errors, AnalysisErrors)
    assert errors.table["error"].notna().all()
    with pytest.raises(ValueError, match="columns of real"):
        analysis_errors(frame, frame[["constant"]])
    with pytest.warns(UserWarning, match="Few rows"):
        analysis_errors(frame.head(10), frame)


def test_summary():
    real = table(500, np.random.default_rng(0))
    errors = analysis_errors(real, real.assign(x=real["x"] + 1))
    summary = errors.summary()
    assert list(summary.index) == list(ANALYSES)
    assert summary.loc["mean", "synthetic"] > 5 > summary.loc["mean", "redrawn"]
    assert summary["results"].sum() == len(errors.table)
    assert "standard deviation" in str(errors)
    assert repr(errors) == f"AnalysisErrors({len(errors.table)} results)"


@pytest.mark.thorough
def test_the_report_names_the_worst():
    real = table(1000, np.random.default_rng(0))
    made = table(1000, np.random.default_rng(1))
    made["money"] *= 1.5
    made["time"] = made["time"].dt.floor("D") + pd.Timedelta("12h")
    made["part"] = made["part"].sample(frac=1, random_state=0).to_numpy()
    page = report(real, made)
    grades = {each.topic: each for each in page.findings}
    assert grades["means"].about == grades["deviations"].about == ("money",)
    assert grades["calendar"].about == ("time",)
    for topic in ("means", "deviations", "calendar", "combinations"):
        assert grades[topic].grade == "weak", topic
    assert "Do not quote the mean of money." in page.to_html()
    good = {each.topic: each for each in report(real, real).findings}
    assert all(good[topic].grade == "good" for topic in _effects(page.analyses.table))


def test_means_of_other_rows_of_one_law_are_rarely_called_off():
    n_off = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        names = ("a", "b", "c")
        tables = [pd.DataFrame(rng.normal(size=(300, 3)), columns=names) for _ in "12"]
        judged = _judge_analyses(analysis_errors(*tables))
        n_off += next(f.severity for f in judged if f.topic == "means") > 1
    assert n_off <= 8
