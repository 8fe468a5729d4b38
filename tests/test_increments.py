"""Columns learned as their distance from another that they are never below."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import chi2_contingency, spearmanr

import dpgenerative
from dpgenerative import (
    Column,
    Determines,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    LessEqual,
    Schema,
)
from dpgenerative.encoding.increments import (
    Increment,
    distinct,
    increments_of,
    learned_columns,
)
from dpgenerative.exceptions import SamplingError
from tests.test_transform import Table, compare_neighbours, fit

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

RULE = LessEqual("low", "high")
SPANS = {
    "integers": ("integer", {"lower": 0, "upper": 50}, {"lower": 5, "upper": 90}),
    "tenths": (
        "continuous",
        {"lower": -2, "upper": 5, "resolution": 0.1},
        {"lower": -2, "upper": 9, "resolution": 0.1},
    ),
    "whole and half": (
        "continuous",
        {"lower": 0, "upper": 5, "resolution": 1},
        {"lower": 0, "upper": 9, "resolution": 0.5},
    ),
    "continuum": (
        "continuous", {"lower": -3, "upper": 5}, {"lower": -1, "upper": 9},
    ),
    "dates": (
        "datetime",
        {"lower": "2020-01-01", "upper": "2020-12-31", "resolution": "D"},
        {"lower": "2020-01-01", "upper": "2021-12-31", "resolution": "D"},
    ),
    "dates and hours": (
        "datetime",
        {"lower": "2020-01-01", "upper": "2020-12-31", "resolution": "D"},
        {"lower": "2020-01-01", "upper": "2021-12-31", "resolution": "h"},
    ),
    "open dates": ("datetime", {"resolution": "D"}, {"resolution": "D"}),
    "durations": (
        "timedelta", {"lower": "0h", "upper": "9D"}, {"lower": "0h", "upper": "20D"},
    ),
    "open integers": ("integer", {}, {}),
    "open above": ("integer", {"lower": 0, "upper": 50}, {}),
    "open below": ("integer", {}, {"lower": 0, "upper": 50}),
}  # fmt: skip


def columns(span, **both):
    kind, low, high = SPANS[span]
    return [Column("low", kind, **low, **both), Column("high", kind, **high, **both)]


def values(span, n=400, seed=0):
    """Return rows within all bounds, some of them with missing values."""
    rng = np.random.default_rng(seed)
    low, added = rng.integers(0, 5, n), rng.integers(5, 9, n) // 2
    kind = SPANS[span][0]
    if kind == "datetime":
        first = pd.Timestamp("2020-02-01", tz="Asia/Tokyo")
        frame = {"low": first + pd.to_timedelta(low * 30, "D")}
        frame["high"] = frame["low"] + pd.to_timedelta(added, "D")
        frame["low"] = frame["low"].tz_localize(None)
    elif kind == "timedelta":
        frame = {"low": pd.to_timedelta(low, "D")}
        frame["high"] = frame["low"] + pd.to_timedelta(added, "h")
    elif kind == "integer":
        frame = {"low": pd.array(low, "Int16"), "high": pd.array(low + added, "Int16")}
        frame["low"] += 3
        frame["high"] += 3
    else:
        frame = {"low": low.astype(float), "high": low + added / 2}
    frame = pd.DataFrame(frame)
    frame.loc[rng.random(n) < 0.1, "low"] = None
    frame.loc[rng.random(n) < 0.1, "high"] = None
    frame.loc[0, "high"] = None
    return frame


def schema(span, *rules, **both):
    return Schema(columns(span, **both), rules or [RULE])


@pytest.mark.parametrize("span", SPANS)
def test_increments_and_back(span):
    frame = values(span)
    facts = schema(span).resolve(frame)
    learned = fit(Table(frame, facts))
    (each,) = learned.increments
    added = each.of(frame)
    assert (added.isna() == frame["high"].isna()).all()
    back, inside = each.built(frame, added)
    assert inside.all()
    pd.testing.assert_series_equal(back, frame["high"], check_names=False)
    codes = learned.encode(frame)
    decoded, inside = learned.rows(codes, np.full(codes.shape, 0.3))
    assert inside.all()
    assert RULE.holds(decoded).all()
    assert (decoded.dtypes == frame.dtypes).all()
    assert (decoded.isna() == frame.isna()).all(axis=None)
    both = frame.notna().all(axis=1)
    if facts["low"].step is not None:
        # Increments of few values have cells of their own.
        distance, drawn = ((t["high"] - t["low"])[both] for t in (
            frame.assign(high=local(frame["high"])),
            decoded.assign(high=local(decoded["high"])),
        ))  # fmt: skip
        assert (distance == drawn).mean() > 0.95
    assert learned.schema["high"].kind == SPANS[span][0]
    assert learned.schema["high"].lower is not None


def local(series):
    return series.dt.tz_localize(None) if hasattr(series.dtype, "tz") else series


STRANGE = [(None, None), (7, None), (None, 7), (9, 2), (-7e4, 7e4), (7e4, -7e4)]
ONE_OF_EACH = [
    "integers",
    "continuum",
    "dates",
    "open dates",
    "durations",
    "open above",
]


@pytest.mark.thin(3)
@pytest.mark.parametrize("span", ONE_OF_EACH)
def test_one_row_moves_the_counts_by_no_more_than_the_budget(span):
    kind = SPANS[span][0]
    for row in STRANGE:
        frame = values(span, 60)
        for name, number in zip(frame.columns, row, strict=True):
            frame.loc[7, name] = number and of_kind(number, kind, frame[name].dtype)
        facts = schema(span).resolve(frame)
        assert compare_neighbours(Table(frame, facts), 7, 1.0) <= 1 + 1e-9, row


def of_kind(number, kind, dtype):
    """Return a number, or so many days, as a column holds it."""
    if kind == "datetime":
        day = pd.Timestamp("2020-01-01") + pd.Timedelta(int(number), "D")
        return day.tz_localize(getattr(dtype, "tz", None))
    if kind == "timedelta":
        return pd.Timedelta(int(number), "D")
    return int(np.clip(number, -(2**15), 2**15 - 1)) if kind == "integer" else number


def test_strict_order_and_rows_that_break_it():
    facts = Schema(columns("integers"), [LessEqual("low", "high", strict=True)])
    frame = pd.DataFrame({"low": [9, 9, 9, 60, np.nan], "high": [9, 5, 12, 70, 7]})
    (each,) = fit(Table(frame, facts.resolve(frame))).increments
    assert each.of(frame).tolist() == [1, 1, 3, 20, -20]
    back, inside = each.built(frame, pd.Series([1, 1, 3, 40, -20]))
    assert back.tolist() == [10, 10, 12, 90, 7]
    assert inside.tolist() == [True, True, True, False, True]


def test_distances_from_the_lower_bound_are_no_increments():
    """A quarter of the span of the first column lies between, and a step."""
    frame = values("integers", 300)
    learned = fit(Table(frame, schema("integers").resolve(frame)))
    (each,) = learned.increments
    added = each.of(frame).to_numpy()
    alone = frame["low"].isna().to_numpy()
    assert (added[alone & frame["high"].notna()] <= -13).all()
    assert (added[~alone & frame["high"].notna()] >= 0).all()
    inside = each.built(frame, pd.Series(np.where(alone, 3.0, -60.0)))[1]
    assert not inside.any()
    (pairs,) = learned.nestings
    assert (pairs.within, pairs.name) == ("low", "high")
    codes = learned.encode(frame)
    assert pairs.allowed[codes[:, 0], codes[:, 1]].all()
    # No other cell of increments goes with a first column that is missing.
    both = pairs.allowed[-1] & pairs.allowed[0]
    assert both.tolist() == [False] * (len(both) - 1) + [True]


@pytest.mark.parametrize("span", ["integers", "continuum", "open dates"])
def test_files_of_before_have_distances_that_are_positive(span):
    frame = values(span)
    (each,) = fit(Table(frame, schema(span).resolve(frame))).increments
    before = replace(each, reach=None)
    added = before.of(frame)
    back, inside = before.built(frame, added)
    assert inside.all()
    pd.testing.assert_series_equal(back, frame["high"], check_names=False)
    assert not (added < 0 * added.dropna().iloc[0]).any()


@pytest.mark.parametrize(("step", "n"), [(0.1, 11), (0.05, 7), (0.3, 59), (0.01, 40)])
def test_distances_are_those_of_the_grid(step, n):
    """Rounding of a bound and its gap must not lose what lies at the lower bound."""
    bounds = {"lower": step * 3, "resolution": step}
    low = Column("low", "continuous", upper=step * n, **bounds)
    high = Column("high", "continuous", upper=2 * step * n, **bounds)
    high_values = step * np.arange(3, 2 * n)
    frame = pd.DataFrame({"low": np.nan, "high": np.repeat(high_values, 30)})
    frame.loc[::2, "low"] = step * 3
    table = Table(frame, Schema([low, high], [RULE]).resolve(frame))
    (each,) = fit(table).increments
    back, inside = each.built(frame, each.of(frame))
    assert inside.all()
    np.testing.assert_allclose(back, frame["high"])


YEARS = {"lower": "1900-01-01", "upper": "2100-12-31", "resolution": "D"}
WIDE = {
    "dates": ("datetime", YEARS),
    "continuum": ("continuous", {"lower": 0, "upper": 1e6}),
    "coarse grid": ("integer", {"lower": 0, "upper": 2**52}),
    "nearly coarse": ("integer", {"lower": 0, "upper": 550_000}),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("case", WIDE)
def test_wide_bounds_blur_no_distance(case):
    rng = np.random.default_rng(0)
    low = rng.integers(100, 500, 2000)
    frame = pd.DataFrame({"low": low, "high": low + rng.integers(0, 9, 2000)})
    kind, bounds = WIDE[case]
    if kind == "datetime":
        frame = pd.Timestamp("2020-01-01") + frame.apply(pd.to_timedelta, unit="D")
    frame["low"] = frame["low"].mask(rng.random(2000) < 0.4)
    facts = [Column(name, kind, **bounds) for name in ("low", "high")]
    model = DPHFlowSynthesizer(5.0, schema=Schema(facts, [RULE]), n_steps=0)
    rows = model.fit(frame).sample(2000)
    assert rows["low"].isna().mean() == pytest.approx(0.4, abs=0.05)
    middle = [t["high"][t["low"].isna()].median() for t in (frame, rows)]
    size = pd.Timedelta(1, "D") if kind == "datetime" else 1
    assert abs(middle[1] - middle[0]) < 40 * size
    added = (rows["high"] - rows["low"]).dropna()
    assert (added < 12 * size).mean() > 0.9


def test_a_column_that_is_one_number_may_be_missing():
    missing = np.random.default_rng(0).random(1000) < 0.4
    frame = pd.DataFrame({"low": np.where(missing, np.nan, 5.0), "high": 5.0})
    model = DPHFlowSynthesizer(None, schema=Schema([], [RULE]), n_steps=0).fit(frame)
    rows = model.sample(1000)
    assert rows["low"].isna().mean() == pytest.approx(missing.mean(), abs=0.06)
    assert set(rows["high"]) == {5.0}


def test_samples_of_lost_distances_are_completed():
    """Of few rows the bounds may leave increments alone: distances are these, then."""
    facts = [Column(n, "integer", lower=0, upper=50) for n in ("low", "high")]
    low, high = Schema(facts).columns
    each = Increment.fitted(low, high, np.dtype(float), strict=False)
    added = Column("high", "integer", lower=0, upper=20, nullable=False)
    each = each.completed(added)
    frame = pd.DataFrame({"low": [np.nan, 5.0], "high": [7.0, 9.0]})
    assert each.of(frame).tolist() == [7, 4]
    back, inside = each.built(frame, each.of(frame))
    assert (back.tolist(), inside.all()) == ([7, 9], True)


@pytest.mark.thorough
def test_completions_leave_as_many_missing_as_samples_do():
    rng = np.random.default_rng(0)
    low = rng.gamma(2, 5, 2000)
    frame = pd.DataFrame({"low": low, "high": low + rng.exponential(4, 2000)})
    frame["low"] = frame["low"].mask(rng.random(2000) < 0.3)
    frame["other"] = rng.exponential(4, 2000)
    facts = [Column(n, "continuous", lower=0, upper=60) for n in frame]
    model = DPHFlowSynthesizer(None, schema=Schema(facts, [RULE]), n_steps=50)
    rows = model.fit(frame).sample(40_000)
    met = rows[rows["high"].between(9.8, 10.6)]
    whole = model.sample(given=pd.DataFrame({"high": [10.2] * 150}), max_tries=4000)
    share = whole["low"].isna().mean()
    assert share == pytest.approx(met["low"].isna().mean(), abs=0.11)


def test_rare_values_are_completed():
    """What cannot lead to them is no candidate; missing values may be asked for."""
    rng = np.random.default_rng(0)
    low = rng.integers(0, 11, 1500)
    high = np.minimum(low + rng.poisson(2, 1500), 20)
    frame = pd.DataFrame({"low": pd.Series(low).mask(low % 5 == 1), "high": high})
    facts = [Column("low", "integer", lower=0, upper=10, nullable=True)]
    facts.append(Column("high", "integer", lower=0, upper=20))
    model = DPHFlowSynthesizer(None, schema=Schema(facts, [RULE]), n_steps=0)
    model.fit(frame)
    for top in (17, 19, 20):
        part = pd.DataFrame({"low": np.nan, "high": [top] * 30}).astype(frame.dtypes)
        filled = model.sample(given=part, impute=True)
        assert filled["low"].between(0, 10).all()
    never = frame.assign(low=low.astype(float))
    rows = model.fit(never).sample(20, given={"low": None})
    assert rows["low"].isna().all()


@pytest.mark.parametrize("epsilon", [3.0, None])
def test_an_autoencoder_keeps_the_share_of_what_is_missing(epsilon):
    frame = pd.DataFrame({"low": np.arange(2000) % 40, "c": ["a", "b"] * 1000})
    frame["high"] = frame["low"] + np.arange(2000) % 7
    frame["low"] = frame["low"].mask(np.arange(2000) % 5 < 2)
    facts = [Column(name, "integer", lower=0, upper=60) for name in ("low", "high")]
    model = DPVAESynthesizer(epsilon, schema=Schema(facts, [RULE]), n_steps=40)
    rows = model.fit(frame).sample(2000)
    assert rows["low"].isna().mean() == pytest.approx(0.4, abs=0.05)
    assert RULE.holds(rows).all()


@pytest.mark.parametrize("order", [["low", "high", "c"], ["c", "high", "low"]])
def test_of_few_rows_no_distance_is_taken_for_an_increment(order):
    """Without steps every column is drawn by itself, but for what rules out pairs."""
    rng = np.random.default_rng(0)
    low = rng.integers(30, 90, 2000).astype(float)
    high = low + rng.integers(0, 4, 2000)
    low[rng.random(2000) < 0.4] = np.nan
    frame = pd.DataFrame({"low": low, "high": high, "c": rng.choice(["a", "b"], 2000)})
    facts = [Column(name, "integer", lower=0, upper=100) for name in ("low", "high")]
    facts = Schema([*facts, Column("c", "categorical", levels=["a", "b"])], [RULE])
    model = DPHFlowSynthesizer(5.0, schema=facts, n_steps=0).fit(frame[order])
    rows = model.sample(3000)
    alone = rows["low"].isna()
    assert alone.mean() == pytest.approx(0.4, abs=0.06)
    medians = [t["high"][t["low"].isna()].median() for t in (frame, rows)]
    assert medians[1] == pytest.approx(medians[0], abs=6)
    added = (rows["high"] - rows["low"])[~alone]
    assert added.between(0, 4).mean() > 0.9


def names(*rules, **kinds):
    steps = {"a": 1.0, "b": 1.0, "c": 1.0, **kinds}
    facts = [Column(n, "continuous", resolution=step) for n, step in steps.items()]
    return list(increments_of(Schema(facts, rules)))


def test_which_columns_are_learned_as_increments():
    ab, bc, ca, ac = (LessEqual(*pair) for pair in ("ab", "bc", "ca", "ac"))
    assert names(ab) == ["b"]
    assert names(bc, ab) == ["b", "c"]
    assert names(ab, bc, ca) == ["b", "c"]
    assert names(ac, bc) == ["c"]
    assert names(LessEqual("a", "a")) == []
    assert names(ab, b=0.5) == names(ab, b=None) == names(ab, a=None, b=None) == ["b"]
    assert names(ab, a=0.5) == names(ab, a=None) == names(ab, a=0.3, b=0.2) == []
    assert names(ab, Determines(["c"], "a", {1.0: 2.0})) == []
    assert names(ab, Determines(["a"], "c", {1.0: 2.0})) == ["b"]


# Fits ---------------------------------------------------------------------------------


def stays(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    admitted = pd.Timestamp("2020-01-01") + pd.to_timedelta(
        rng.integers(0, 700, n), "D"
    )
    days = rng.geometric(0.3, n)
    cost = (900 * days * rng.lognormal(0, 0.1, n)).round()
    discharged = admitted + pd.to_timedelta(days, "D")
    frame = {"admitted": admitted, "discharged": discharged, "cost": cost}
    return pd.DataFrame(frame)


DATES = {"lower": "2020-01-01", "upper": "2021-12-31", "resolution": "D"}
STAYS = Schema(
    [
        Column("admitted", "datetime", nullable=False, **DATES),
        Column("discharged", "datetime", nullable=False, **DATES),
        Column("cost", "continuous", lower=0, upper=50_000, nullable=False),
    ],
    [LessEqual("admitted", "discharged")],
)


def days_of(frame):
    return (frame["discharged"] - frame["admitted"]).dt.days


@pytest.fixture(scope="module")
def learned():
    flow = DPHFlowSynthesizer(3.0, schema=STAYS, n_steps=100, random_state=0)
    return flow.fit(stays())


def test_the_distance_between_dates_is_learned(learned):
    rows = learned.sample(3000, random_state=0)
    days, real = days_of(rows), days_of(stays())
    assert days.median() == real.median()
    assert spearmanr(days, rows["cost"]).statistic > 0.8
    assert abs((days <= 3).mean() - (real <= 3).mean()) < 0.05
    assert rows["discharged"].max() <= pd.Timestamp("2021-12-31")
    # Rows beyond the last date are drawn again, not moved to it.
    assert (rows["discharged"] == rows["discharged"].max()).mean() < 0.01


@pytest.mark.thorough
def test_dates_among_objects_keep_their_order_and_distance():
    frame = stays()
    for name in ("admitted", "discharged"):
        frame[name] = frame[name].dt.date.astype(object)
    model = DPHFlowSynthesizer(3.0, schema=STAYS, random_state=0).fit(frame)
    assert STAYS.check(frame).empty
    rows = model.sample(500, random_state=0, given={"admitted": ("2020-06-01", None)})
    assert {type(day) for day in rows["discharged"]} == {date}
    assert rows["admitted"].min() >= date(2020, 6, 1)
    days = (rows["discharged"] - rows["admitted"]).map(lambda stay: stay.days)
    assert days.min() >= 0
    assert 2 <= days.median() <= 4
    part = frame[["admitted", "discharged"]].head(20)
    whole = model.sample(given=part, random_state=0)
    pd.testing.assert_frame_equal(whole[["admitted", "discharged"]], part)


def test_it_survives_saving(learned, tmp_path):
    learned.save(tmp_path / "model")
    again = dpgenerative.load(tmp_path / "model")
    given = {"discharged": ("2020-06-01", "2020-06-30")}
    for options in ({}, {"given": given}):
        first, second = (
            s.sample(50, random_state=1, **options) for s in (learned, again)
        )
        pd.testing.assert_frame_equal(first, second)


def test_conditions_on_the_second_column(learned):
    rows = learned.sample(60_000, random_state=3)
    given = {"discharged": ("2020-06-01", "2020-06-30"), "cost": (0, 3000)}
    met = rows[rows["discharged"].between(*given["discharged"])]
    met = met[met["cost"].between(*given["cost"])]
    drawn = learned.sample(600, given=given, random_state=0)
    assert drawn["discharged"].between(*given["discharged"]).all()
    edges = [0, 2, 3, 1000]
    counts = [np.histogram(days_of(frame), edges)[0] for frame in (met, drawn)]
    assert chi2_contingency(counts).pvalue > 1e-6
    with pytest.raises(ValueError, match="outside the bounds"):
        learned.sample(given={"discharged": "2025-01-01"})
    with pytest.raises(ValueError, match="can never hold: the column has no missing"):
        learned.sample(given={"discharged": None})


@pytest.mark.thorough
def test_partial_rows_with_the_second_column(learned):
    day = pd.Timestamp("2020-06-15")
    rows = learned.sample(100_000, random_state=3)
    met = rows[rows["discharged"] == day]
    part = pd.DataFrame({"discharged": [day] * 200}, index=range(5, 205))
    whole = learned.sample(given=part, random_state=0, max_tries=10_000)
    pd.testing.assert_frame_equal(whole[["discharged"]], part, check_dtype=False)
    edges = [0, 2, 3, 4, 6, 1000]
    counts = [np.histogram(days_of(frame), edges)[0] for frame in (met, whole)]
    assert chi2_contingency(counts).pvalue > 1e-6
    both = stays(100, seed=5)[["admitted", "discharged"]]
    whole = learned.sample(given=both, random_state=0)
    pd.testing.assert_frame_equal(whole[["admitted", "discharged"]], both)
    assert spearmanr(days_of(whole), whole["cost"]).statistic > 0.7
    first = learned.sample(given=both[["admitted"]], random_state=0)
    pd.testing.assert_frame_equal(first[["admitted"]], both[["admitted"]])
    assert 2 <= days_of(first).median() <= 4
    with pytest.raises(SamplingError, match="have no completion"):
        learned.sample(given=both.assign(discharged=both["admitted"][::-1].min()))


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("estimator", "span"),
    [
        (DPHFlowSynthesizer, "integers"),
        (DPHFlowSynthesizer, "open integers"),
        (DPVAESynthesizer, "continuum"),
    ],
)
def test_missing_values_and_densities(estimator, span):
    frame = values(span, 600)
    model = estimator(None, schema=schema(span), n_steps=100, random_state=0)
    model.fit(frame)
    rows = model.sample(2000, random_state=0)
    assert RULE.holds(rows).all()
    assert (rows.dtypes == frame.dtypes).all()
    if estimator is DPHFlowSynthesizer:
        missing = rows.isna().mean().to_numpy()
        assert missing == pytest.approx([0.1, 0.1], abs=0.05)
        # What a missing column leaves of the one above it.
        alone = [t["high"][t["low"].isna()].dropna() for t in (frame, rows)]
        assert np.median(alone[0]) == pytest.approx(np.median(alone[1]), abs=1.5)
    assert np.isfinite(model.score_samples(frame)).all()
    part = frame[["high"]].iloc[:40]
    whole = model.sample(given=part, random_state=0)
    pd.testing.assert_frame_equal(whole[["high"]], part)
    part = frame.iloc[:40]
    filled = model.sample(given=part, impute=True, random_state=0)
    assert filled.notna().all(axis=None)
    assert RULE.holds(filled).all()
    known = part["high"].notna()
    assert (filled["high"][known] == part["high"][known]).all()


def test_probabilities_of_all_rows_sum_to_one():
    facts = [Column(n, "integer", lower=0, upper=3, nullable=False) for n in "ab"]
    frame = pd.DataFrame({"a": [0, 1, 2, 3] * 50, "b": [1, 1, 3, 3] * 50, "c": 1.0})
    facts = Schema(
        [*facts, Column("c", "categorical", levels=[1.0])], [LessEqual("a", "b")]
    )
    model = DPHFlowSynthesizer(None, schema=facts, n_steps=20).fit(frame)
    codec = model._transformer.codecs[1]
    assert (codec.column.lower, codec.column.upper) == (0, 3)
    pairs = [(a, b, 1.0) for a in range(4) for b in range(a, 4)]
    inside = np.exp(model.score_samples(pd.DataFrame(pairs, columns=list("abc")))).sum()
    generator, rng = torch.Generator().manual_seed(0), np.random.default_rng(0)
    cells = model._recipe.draw(model._model, 40_000, generator, rng)
    drawn, held = model._transformer.rows(*cells)
    assert inside == pytest.approx(held.mean() * drawn["c"].notna().mean(), abs=0.01)


def test_chains_keep_their_order():
    rng = np.random.default_rng(0)
    steps = rng.integers(0, 4, (800, 3)).cumsum(axis=1)
    frame = pd.DataFrame(steps, columns=list("cab")).astype("Int64")
    frame.loc[rng.random(800) < 0.05, "a"] = pd.NA
    order = ["c", "a", "b"]
    facts = [Column(n, "integer", lower=0, upper=9) for n in order]
    rules = [LessEqual(*pair) for pair in pairwise(order)]
    model = DPHFlowSynthesizer(None, schema=Schema(facts, rules[::-1]), n_steps=60)
    model.fit(frame)
    assert [each.name for each in model._transformer.increments] == ["a", "b"]
    rows = model.sample(1000)
    assert all(rule.holds(rows).all() for rule in rules)
    part = frame[["a", "b"]].dropna().iloc[:50]
    whole = model.sample(given=part)
    pd.testing.assert_frame_equal(whole[["a", "b"]], part)
    assert all(rule.holds(whole).all() for rule in rules)
    assert set(model.sample(50, given={"b": 4})["b"]) == {4}


def test_what_is_refused():
    frame = values("continuum", 50)
    facts = Schema(columns("continuum"), [LessEqual("high", "low", strict=True)])
    facts = facts.completed([Column("low", "continuous", lower=-3, upper=-1)])
    with pytest.raises(ValueError, match="can never hold: 'high' is at least -1"):
        DPHFlowSynthesizer(schema=facts).fit(frame)
    with pytest.raises(ValueError, match="not be the second column of a LessEqual"):
        DPVAESynthesizer(schema=schema("continuum"), conditional="high").fit(frame)
    model = DPHFlowSynthesizer(schema=schema("continuum"), n_steps=5).fit(frame)
    with pytest.raises(
        ValueError, match="the continuum 'high' has probability 0, as it"
    ):
        model.sample(given={"high": 1.25})


def test_a_label_that_others_are_built_on():
    frame = values("integers", 300)
    facts = schema("integers", nullable=False)
    frame = frame.fillna(10)
    frame["high"] = np.maximum(frame["high"], frame["low"])
    model = DPVAESynthesizer(schema=facts, conditional="low", n_steps=10).fit(frame)
    rows = model.reconstruct(frame)
    assert (rows["low"] == frame["low"]).all()
    assert (rows["high"] >= rows["low"]).all()


def test_one_cell_holds_the_column_itself():
    (each,) = fit(
        Table(values("dates"), schema("dates").resolve(values("dates")))
    ).increments
    assert isinstance(each, Increment)
    assert len(each.whole.values) == 1
    assert each.whole.column.upper == "2021-12-31"


@pytest.mark.parametrize("stated", [[], [Column("b", "continuous", lower=-9, upper=9)]])
def test_absent_missing_increments_are_no_missing_values(stated):
    a = np.random.default_rng(0).normal(size=3000)
    schema = Schema(stated, [LessEqual("a", "b")])
    flow = DPHFlowSynthesizer(epsilon=50.0, n_steps=2, schema=schema, random_state=0)
    flow.fit(pd.DataFrame({"a": a, "b": a + 1}))
    assert [column.nullable for column in flow.schema_.columns] == [False, False]
    with pytest.raises(ValueError, match="has no missing values"):
        flow.sample(5, given={"b": None})


@pytest.mark.thorough
def test_a_frequent_value_below_the_one_given_is_as_likely_as_in_samples():
    rng = np.random.default_rng(0)
    low, added = rng.gamma(2, 10, 3000), rng.gamma(2, 5, 3000)
    low[rng.random(3000) < 0.5] = 0
    rows = pd.DataFrame({"low": low, "high": low + added})
    columns = [Column(name, "continuous", lower=0, upper=400) for name in rows]
    schema = Schema(columns, [LessEqual("low", "high")])
    flow = DPHFlowSynthesizer(None, schema=schema, n_steps=0, random_state=0).fit(rows)
    drawn = flow.sample(100_000, random_state=0)
    near = drawn[drawn["high"].between(18, 22)]
    part = pd.DataFrame({"high": [20.0] * 150})
    whole = flow.sample(given=part, max_tries=2000, random_state=0)
    share = (near["low"] == 0).mean()
    assert 0.2 < share < 0.4
    assert abs((whole["low"] == 0).mean() - share) < 0.15


@pytest.mark.parametrize(
    ("upper", "strict", "is_learned"),
    [(2.5, False, True), (2, False, False), (2, True, True), (1, True, False)],
)
def test_an_order_that_bounds_imply_is_not_learned(upper, strict, is_learned):
    columns = [
        Column("a", "continuous", lower=0, upper=upper),
        Column("b", "continuous", lower=2, upper=9),
    ]
    rules = increments_of(Schema(columns, [LessEqual("a", "b", strict)]))
    assert list(rules) == ["b"] * is_learned
    days = {"lower": "2010-01-01", "resolution": "D"}
    columns = [
        Column("a", "datetime", **days, upper="2019-12-31"),
        Column("b", "datetime", lower="2020-01-01", upper="2021-12-31"),
    ]
    assert not increments_of(Schema(columns, [LessEqual("a", "b")]))


def test_partial_rows_with_the_later_of_two_instants():
    """Only earlier instants are drawn, so that most of them can be the first."""
    rows = stays(2000)[["admitted", "discharged"]]
    columns = [Column(name, "datetime", **DATES) for name in rows]
    schema = Schema(columns, [LessEqual("admitted", "discharged")])
    flow = DPHFlowSynthesizer(20.0, schema=schema, n_steps=0, random_state=0).fit(rows)
    assert flow._transformer.calendars
    part = rows[["discharged"]].iloc[:150]
    whole = flow.sample(given=part, random_state=0)
    pd.testing.assert_frame_equal(whole[["discharged"]], part, check_dtype=False)
    assert abs(days_of(whole).median() - days_of(rows).median()) <= 1


def test_partial_rows_with_the_last_of_three():
    rng = np.random.default_rng(0)
    first = rng.integers(0, 100, 2000)
    second = first + rng.integers(40, 50, 2000)
    rows = pd.DataFrame(
        {"a": first, "b": second, "c": second + rng.integers(0, 9, 2000)}
    )
    columns = [Column(name, "integer", lower=0, upper=200) for name in rows]
    schema = Schema(columns, [LessEqual("a", "b"), LessEqual("b", "c")])
    flow = DPHFlowSynthesizer(20.0, schema=schema, n_steps=0, random_state=0).fit(rows)
    part = rows.loc[rows["c"].between(80, 120), ["c"]].iloc[:50]
    whole = flow.sample(given=part, max_tries=4000, random_state=0)
    pd.testing.assert_frame_equal(whole[["c"]], part)
    assert abs((whole["b"] - whole["a"]).mean() - 44.5) < 3
    assert abs((whole["c"] - whole["b"]).mean() - 4) < 3


@pytest.mark.parametrize(
    ("cycles", "resolution", "is_learned"),
    [
        (None, "min", True), ((), "min", True), (("weekday",), "min", False),
        (("hour",), "D", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("other", ["cost", "discharged (weekday)"])
def test_cycles_decide_where_they_are_learned(cycles, resolution, is_learned, other):
    """Also where a part has the name of another column: plan and fit agree."""
    facts = {**DATES, "resolution": resolution}
    columns = [
        Column("admitted", "datetime", cycles=(), **facts),
        Column("discharged", "datetime", cycles=cycles, **facts),
        Column(other, "boolean"),
    ]
    schema = Schema(columns, [LessEqual("admitted", "discharged")])
    is_taken = other != "cost" and cycles == ("weekday",)
    rules = increments_of(schema)
    assert list(rules) == ["discharged"] * (is_learned or is_taken)
    assert learned_columns(schema) == learned_columns(distinct(schema))
    rows = stays(200)[["admitted", "discharged"]].assign(**{other: True})
    DPHFlowSynthesizer(schema=schema, n_steps=0).fit(rows)
