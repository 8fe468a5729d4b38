"""Columns that sum to a total: exact in samples, with their own distributions."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgenerative import (
    Column,
    Composition,
    Derived,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    LessEqual,
    Schema,
)
from dpgenerative.encoding.increments import learned_columns
from dpgenerative.encoding.stick_breaking import StickBreaking
from dpgenerative.metrics import marginal_distance

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

NAMES = ["p", "q", "r", "s"]
FEW = {"n_steps": 5, "random_state": 0, "noise": "reproducible"}
STEPS = {None: 1.0, 0.25: 5.0, 0.05: 1.0, 1: 24.0}
"""Resolutions, and totals."""


def table(step, total, n=600, seed=0):
    """Return rows that sum to a total, of which many have nothing of some parts."""
    rng = np.random.default_rng(seed)
    weights = rng.gamma([4, 2, 1, 1], size=(n, 4)) * (rng.random((n, 4)) > 0.2)
    weights[weights.sum(axis=1) == 0, 0] = 1
    parts = weights / weights.sum(axis=1, keepdims=True) * total
    if step is not None:
        ends = np.round(parts.cumsum(axis=1) / step)
        parts = np.diff(ends, axis=1, prepend=0) / round(1 / step)
    frame = pd.DataFrame(parts, columns=NAMES)
    return frame.assign(group=pd.Categorical(np.where(parts[:, 0] > total / 2, *"ab")))


def schema(step, total, names=NAMES, **facts):
    columns = [Column(name, "continuous", resolution=step, **facts) for name in names]
    return Schema(columns, [Composition(names, total)])


@pytest.mark.parametrize("step", STEPS)
def test_sampled_rows_sum_to_the_total(step):
    total = STEPS[step]
    frame = table(step, total)
    facts = Schema.from_dict(schema(step, total).to_dict())
    assert not len(facts.check(frame))
    drawn = DPHFlowSynthesizer(schema=facts, **FEW).fit(frame).sample(2000)
    assert np.abs(drawn[NAMES].sum(axis=1) - total).max() < 1e-9 * total
    assert drawn[NAMES].min(axis=None) == 0
    if step is not None:
        nearest = np.round(drawn[NAMES] / step)
        assert (drawn[NAMES] - nearest * step).abs().max(axis=None) < 1e-9
        assert drawn.astype(str).map(len).max(axis=None) <= 5


def test_whole_numbers_and_single_precision_keep_their_dtypes():
    frame = table(1, 24.0)
    frame[["p", "q"]], frame["r"] = (
        frame[["p", "q"]].astype(int),
        frame["r"].astype("f4"),
    )
    columns = [Column(name, "continuous", resolution=1) for name in ("r", "s")]
    facts = Schema(columns, [Composition(NAMES, 24)])
    drawn = DPVAESynthesizer(schema=facts, **FEW).fit(frame).sample(500)
    assert (drawn.dtypes == frame.dtypes).all()
    assert (drawn[NAMES].sum(axis=1) == 24).all()


@given(
    st.lists(st.lists(st.floats(-2, 30), min_size=3, max_size=3), min_size=1),
    st.sampled_from([None, 0.5, 1]),
)
@settings(deadline=None)
def test_shares_and_back(rows, step):
    """Any row gives shares between 0 and 1; any shares give a row that is possible."""
    frame = pd.DataFrame(rows, columns=NAMES[:3])
    facts = schema(step, 24, NAMES[:3], nullable=False).resolve(frame)
    (rule,) = facts.constraints
    each = StickBreaking.fitted(rule, "q", facts, float)
    shares = each.of(frame)
    assert shares.between(0, 1).all()
    back, inside = each.built(frame, shares)
    assert inside.all()
    left = (24 - back - frame["p"].clip(0, 24)) / (step or 1)
    assert (left > -0.51).all()
    possible = (frame[["p", "q"]] >= 0).all(axis=1)
    possible &= frame["p"] + frame["q"] <= 24 - (step or 0)
    off = (back - frame["q"])[possible].abs()
    assert (off <= (step or 0) / 2 + 1e-9).all()


@pytest.mark.parametrize(("step", "seed"), [(None, 0), *((1, k) for k in range(3))])
def test_scores_are_densities_of_values(step, seed):
    """They add up to 1 over all rows, with those that have nothing of a part.

    On a coarse grid, of which rows have few shares, in narrow cells, to at most that:
    of all cells that stand for a value, one counts.
    """
    names, total = NAMES[:3], 12.0
    frame = table(step, total, 4000)[names].assign(r=lambda x: total - x["p"] - x["q"])
    fit = DPHFlowSynthesizer(schema=schema(step, total, names), **FEW)
    fit.set_params(random_state=seed).fit(frame)
    parts = np.arange(total + 1) if step else np.arange(0.05, total, 0.1)
    p, q = (each.ravel() for each in np.meshgrid(parts, parts))
    rows = pd.DataFrame({"p": p, "q": q, "r": total - p - q})
    mass = np.exp(fit.score_samples(rows[rows["r"] >= 0])).sum()
    drawn = fit.sample(4000, random_state=0)[["p", "q"]]
    whole = (drawn > 0).all(axis=1).mean()  # the others are on no point of the mesh
    if step:
        assert 0.5 < mass < 1.01
    else:
        assert mass * 0.01 == pytest.approx(whole, abs=0.1)


def test_scores_of_missing_parts_are_probabilities():
    frame = table(None, 24.0)
    frame.loc[::2, "r"] = np.nan
    fit = DPHFlowSynthesizer(schema=schema(None, 24), **FEW).fit(frame)
    each, rows = fit._transformer.breaks[1], frame[::2]
    codec = fit._transformer.codecs[fit._transformer.place("r")]
    assert (each.log_within(codec, each.of(rows), rows) == 0).all()


@pytest.mark.thorough
@pytest.mark.parametrize("step", [None, 1])
def test_completions_follow_what_is_drawn(step):
    """Also where a part has nothing, which is one share, not a density of shares."""
    fit = DPHFlowSynthesizer(schema=schema(step, 24), **FEW).fit(table(step, 24.0))
    drawn = fit.sample(5000, random_state=0)
    alike = drawn.loc[drawn["q"] == 0, "p"]
    given = pd.DataFrame({"q": np.zeros(500)})
    made = fit.sample(given=given, random_state=0)["p"]
    assert abs(made.mean() - alike.mean()) < 0.25 * alike.std()


def test_missing_parts_leave_their_place_and_the_last_is_missing():
    frame = table(None, 1.0)
    frame.loc[::3, "q"] = np.nan
    fit = DPHFlowSynthesizer(schema=schema(None, 1), **FEW).fit(frame)
    drawn = fit.sample(1000, random_state=0)
    assert 0.2 < drawn["q"].isna().mean() < 0.45
    assert (drawn["s"].isna() == drawn[NAMES[:3]].isna().any(axis=1)).all()
    shares = fit._transformer.breaks[1].of(frame)
    q, p, r = frame["q"].fillna(0), frame["p"], frame["r"]
    left = 1 - p - q
    assert shares.to_numpy() == pytest.approx((r / left).where(left > 0, 0), abs=1e-9)


def test_conditions_hold_and_what_is_given_stays():
    frame = table(1, 24.0)
    fit = DPHFlowSynthesizer(schema=schema(1, 24), **FEW).fit(frame)
    drawn = fit.sample(300, given={"q": (5, 9), "s": (1, None)}, random_state=0)
    assert drawn["q"].between(5, 9).all()
    assert (drawn["s"] >= 1).all()
    assert (drawn[NAMES].sum(axis=1) == 24).all()
    rows = pd.DataFrame({"q": [3.0, 24.0, 8.0, 5.0], "p": [10.0, 0.0, None, None]})
    made = fit.sample(given=rows, impute=True, random_state=0)
    assert made["q"].tolist() == [3, 24, 8, 5]
    assert made["p"].tolist()[:2] == [10, 0]
    assert (made[NAMES].sum(axis=1) == 24).all()
    with pytest.raises(ValueError, match="the last part of a Composition"):
        fit.sample(given=pd.DataFrame({"s": [1.0]}))


@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_what_rounding_leaves_of_nothing_is_nothing(dtype):
    """Where others sum to the total but for rounding, nothing is left."""
    given = pd.DataFrame(
        {"p": [0.3, 0.1, 0.7], "q": [0.6, 0.2, 0.2], "r": [0.1, 0.7, 0.1]}
    )
    given = given.astype(dtype)
    assert Composition(NAMES).compute(given).tolist() == [0, 0, 0]
    frame = table(None, 1.0)
    frame[NAMES] = frame[NAMES].astype(dtype)
    fit = DPHFlowSynthesizer(schema=schema(None, 1), **FEW).fit(frame)
    assert fit.sample(given=given, random_state=0)["s"].tolist() == [0, 0, 0]
    none_left = table(None, 1.0, 4000).query("s == 0 and r > 0")
    shares = fit._transformer.breaks[1].of(none_left.astype({"r": dtype}))
    assert (shares == 1).all()


def test_bounds_are_kept_where_they_are_stated():
    columns = [Column("p", "continuous", lower=0.5, upper=0.75)]
    columns += [Column("q", "continuous", lower=0, upper=0.25)]
    facts = Schema(columns, [Composition(NAMES)])
    drawn = DPHFlowSynthesizer(schema=facts, **FEW).fit(table(None, 1.0)).sample(500)
    assert drawn["p"].between(0.5, 0.75).all()
    assert drawn["q"].between(0, 0.25).all()
    assert facts.resolve(drawn)["s"].upper == 1


@pytest.mark.thorough
@pytest.mark.parametrize("step", [None, 1])
def test_distributions_are_no_further_than_those_of_columns_apart(step):
    total = 24.0
    frame = table(step, total, 10_000)
    columns = [
        Column(name, "continuous", lower=0, upper=total, resolution=step)
        for name in NAMES
    ]
    distances = []
    for rules in ([Composition(NAMES, total)], []):
        fit = DPHFlowSynthesizer(schema=Schema(columns, rules), random_state=0)
        drawn = fit.fit(frame).sample(len(frame), random_state=0)
        distances.append([
            [marginal_distance(frame[list(names)], drawn[list(names)], k,
                               references=False).mean for names in sets]
            for k, sets in ((1, [[n] for n in NAMES]), (2, [NAMES]))
        ])  # fmt: skip
    (one, two), (one_apart, two_apart) = distances
    further = np.subtract(one, one_apart)
    assert further.mean() < 0.01
    assert further.max() < 0.02
    assert two[0] < 1.1 * two_apart[0]


WRONG = {
    "must be three or more": (["p", "q"],),
    "must be distinct names": (["p", "q", "q"],),
    "must be a sequence of names": ("pqr",),
    "total must be a positive number": (NAMES, 0),
    "got True": (NAMES, True),
    "got inf": (NAMES, float("inf")),
    "positive number; got an object": (NAMES, 10**400),
    "digits must be None or an integer": (NAMES, 1, 0.5),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_no_composition_is_refused(message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Composition(*WRONG[message])


def column(name="q", kind="continuous", **facts):
    return Column(name, kind, **facts)


UNFIT = {
    "needs numbers in 'q'": [column(kind="categorical")],
    "between 0 and 1.0; got (-1, 1)": [column(lower=-1, upper=1)],
    "between 0 and 1.0; got (0, 2)": [column(lower=0, upper=2)],
    "one resolution; got None of 'p', 0.1 of 'q'": [column(resolution=0.1)],
    "a total on the grid": [column(name, resolution=0.3) for name in NAMES],
    "takes no column of times": [column(kind="datetime")],
    "sum to between 0 and 0.8": [column(n, lower=0, upper=0.2) for n in NAMES],
    "sum to between 2 and 4": [column(n, lower=0.5, upper=1) for n in NAMES],
}


@pytest.mark.parametrize("message", UNFIT)
def test_columns_that_fit_no_composition_are_refused(message):
    frame = table(None, 1.0)
    if "times" in message:
        frame["q"] = pd.Timestamp("2020-01-01")
    if "numbers" in message:
        frame["q"] = frame["q"].astype(str)
    with pytest.raises(ValueError, match=re.escape(message)):
        Schema(UNFIT[message], [Composition(NAMES)]).resolve(frame)


@pytest.mark.parametrize(
    "other",
    [Composition(["r", "x", "y"]), Derived("p", "group * 2"), Derived("s", "p + q")],
)
def test_two_rules_for_one_column_are_refused(other):
    with pytest.raises(ValueError, match=r"exclude each other|computes"):
        Schema([], [Composition(NAMES), other])
    columns = [Column(name, "continuous", lower=0, upper=1) for name in "qp"]
    with pytest.raises(ValueError, match="exclude each other"):
        Schema(columns, [Composition(NAMES)], joint=[("q", "p")])


def test_a_dtype_that_does_not_hold_the_last_is_refused():
    frame = table(1, 1000.0).astype({"s": "u1"})
    facts = Schema([Column(n, "continuous", resolution=1) for n in NAMES])
    rules = [Composition(NAMES, 1000)]
    with pytest.raises(ValueError, match="holds its upper bound 1000; got uint8"):
        Schema(facts.columns, rules).resolve(frame)
    last = Column("s", "continuous", lower=0, upper=255, resolution=1)
    assert Schema([*facts.columns[:3], last], rules).resolve(frame)["s"].upper == 255


def test_orders_of_its_columns_are_met_by_drawing_again():
    rules = [LessEqual("q", "p"), Composition(NAMES)]
    frame = table(None, 1.0)
    facts = Schema([], rules).resolve(frame)
    assert learned_columns(facts.modelled)["q"].upper == 1
    drawn = DPHFlowSynthesizer(schema=Schema([], rules), **FEW).fit(frame).sample(200)
    assert (drawn["q"] <= drawn["p"]).all()
    with pytest.raises(ValueError, match="must not be learned as a share"):
        DPVAESynthesizer(schema=Schema([], rules[1:]), conditional="q", **FEW).fit(
            frame
        )
