"""Linked rows: people with several rows, each of them one record."""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys
import warnings
from collections import Counter
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import GridSearchCV

from dpgenerative import (
    Column,
    Composition,
    Derived,
    Determines,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    Impossible,
    LessEqual,
    NoReturnAfter,
    PrivateSearch,
    Schema,
    forecast,
    load,
    search_privacy,
)
from dpgenerative.encoding.codecs import IntervalCodec
from dpgenerative.encoding.increments import increments_of, learned_columns
from dpgenerative.encoding.shares import has_open_keys
from dpgenerative.encoding.steps import counted, shares_of_places
from dpgenerative.exceptions import (
    HopelessBudgetWarning,
    LostColumnWarning,
    SamplingError,
)
from dpgenerative.fitting import growth
from dpgenerative.inference import bootstrap
from dpgenerative.metrics import marginal_distance, report
from dpgenerative.models.cells import CellFacts
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.ranks import ProcessGroup
from dpgenerative.synthesizers import reading, session
from dpgenerative.synthesizers.flow_rules import columns_paired
from dpgenerative.tables import rows as chunked
from dpgenerative.tables import sequences as sequences_of
from dpgenerative.tables.private import opened
from dpgenerative.tables.sequences import (
    NUMBER,
    PLACE,
    Sequences,
    merged,
    one_row_each,
    people_redrawn,
)
from tests.fits import few_rows_to_rake
from tests.privacy.processes import fits_in_threads
from tests.privacy.test_ranks import assert_equal_models
from tests.privacy.test_replay import COUNTED, Recorder, compare, declared, dumped
from tests.test_persistence import FIXTURES

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

K = 4
FEW = {"n_steps": 5, "random_state": 0, "noise": "reproducible", "max_rows_per_unit": K}
VISIT = {"lower": "2020-01-01", "upper": "2023-12-31", "resolution": "D"}


def schema(*more, **facts):
    return Schema(
        [
            Column("patient", "integer", role="unit"),
            Column("day", "datetime", role="order", cycles=(), **VISIT),
            Column("born", "integer", lower=1920, upper=2010, per_unit=True),
            Column("cost", "continuous", lower=0, upper=100, resolution=0.5),
            Column("ward", "categorical", levels=("A", "B", "C")),
        ],
        more,
        **facts,
    )


def unlinked():
    """Return the columns but for the key, each as of a row by itself."""
    return [replace(c, role=None, per_unit=False) for c in schema().columns[1:]]


def table(n=150, seed=0, dtype="int64"):
    """Return visits of n people, whose costs and wards go on."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, K + 2, n)
    key = np.repeat(rng.permutation(n) + 7, sizes)
    level = np.repeat(rng.normal(50, 20, n), sizes)
    day = pd.Timestamp("2020-02-01") + pd.to_timedelta(
        rng.integers(0, 900, len(key)), "D"
    )
    ward = np.repeat(rng.integers(0, 3, n), sizes)
    rows = pd.DataFrame(
        {
            "patient": key,
            "day": day,
            "born": np.repeat(rng.integers(1930, 2005, n), sizes),
            "cost": (2 * (level + rng.normal(0, 3, len(key)))).round() / 2,
            "ward": pd.Categorical(np.array(list("ABC"))[ward], list("ABC")),
        }
    )
    return rows.astype({"patient": dtype}).sample(frac=1, random_state=seed)


def linked(frame, facts=None):
    return Sequences.of("owner", (facts or schema()).resolve(frame), K)


def steps(frame, facts=None):
    return linked(frame, facts).steps(frame)


def listed(made):
    """Return rows bit by bit, to be counted."""
    return Counter(map(repr, made.astype(object).itertuples(index=False)))


# Rows to steps ------------------------------------------------------------------------


def test_a_step_is_what_is_known_of_a_row():
    frame = table()
    made = steps(frame)
    assert len(made) == frame["patient"].nunique()
    by = frame.sort_values(["patient", "day"], kind="stable").groupby("patient")
    known = [g.head(K).reset_index() for _, g in by]
    for step in made.to_dict("records"):
        i = step[PLACE] - 1
        assert 0 <= i < step[NUMBER] <= K
        matches = [
            g for g in known
            if len(g) == step[NUMBER]
            and g["day"][i] == step["day"] and g["cost"][i] == step["cost"]
        ]  # fmt: skip
        assert matches
        (g, *_) = matches
        if not i:
            assert pd.isna(step["day (row before)"])
            assert pd.isna(step["cost (mean before)"])
            continue
        assert step["day (row before)"] == g["day"][i - 1]
        assert step["ward (row before)"] == g["ward"][i - 1]
        assert step["cost (mean before)"] == pytest.approx(
            g["cost"][:i].clip(0, 100).mean()
        )
    assert set(made[PLACE]) == {1, 2, 3, 4}


VALUES = st.sampled_from([0.0, 1.5, 99.0, 1e308, -1e308, np.nan, np.inf, 0.1, 33.3])
PEOPLE = st.lists(
    st.tuples(st.integers(-5, 5), VALUES, st.integers(0, 400), st.sampled_from("ABC")),
    max_size=30,
)


def frame_of(rows, dtype):
    keys, costs, days, wards = zip(*rows, strict=True)
    return pd.DataFrame(
        {
            "patient": pd.Series(keys).astype(dtype),
            "day": pd.Timestamp("2020-02-01") + pd.to_timedelta(list(days), "D"),
            "born": 1950,
            "cost": costs,
            "ward": pd.Categorical(wards, list("ABC")),
        }
    )


@settings(max_examples=150, deadline=None)
@given(
    PEOPLE,
    st.lists(st.tuples(VALUES, st.integers(0, 400)), min_size=1, max_size=7),
    st.sampled_from(["int64", "float64", "object", "string"]),
    st.randoms(),
)
def test_a_person_adds_one_step_and_moves_no_other(others, own, dtype, order):
    new = [(77, cost, day, "A") for cost, day in own]
    both = [*others, *new]
    order.shuffle(both)
    text = dtype in ("object", "string")
    facts = schema() if not text else Schema(
        [Column("patient", "categorical", role="unit"), *schema().columns[1:]]
    )  # fmt: skip
    cast = "str" if dtype == "object" else dtype
    whole = frame_of(both, cast)
    rest = whole[whole["patient"].astype(str).astype(float) != 77]
    with_them, without = (steps(frame, facts) for frame in (whole, rest))
    assert with_them.dtypes.equals(without.dtypes)
    added = listed(with_them)
    added.subtract(listed(without))
    assert sorted(v for v in added.values() if v) == [1]


def test_means_of_a_person_are_added_up_by_themselves():
    """To the last bit, whoever comes before."""
    rng = np.random.default_rng(0)
    frame = table(60).sort_values("day", kind="stable")
    frame["cost"] = rng.uniform(0, 100, len(frame))
    first = frame["patient"].min()
    frame = frame.iloc[np.argsort(frame["patient"] != first, kind="stable")]
    with_them, without = steps(frame), steps(frame[frame["patient"] != first])
    assert listed(with_them[1:]) == listed(without)


def test_rows_without_a_key_and_beyond_the_most_are_left_out():
    frame = table(dtype="float64")
    more = pd.concat([frame, frame.assign(patient=np.nan)], ignore_index=True)
    assert listed(steps(more)) == listed(steps(frame))
    assert steps(frame.assign(patient=1.0))[NUMBER].tolist() == [K]
    assert steps(frame.assign(patient=np.nan)).empty


def test_dtypes_of_steps_follow_from_public_ones():
    facts = Schema([Column("key", "integer", role="unit")])
    frame = pd.DataFrame(
        {"key": [1, 2, 2], "whole": [1, 2, 3], "flag": [True, False, True], "t": "x"}
    ).astype({"t": "string"})
    frame["at"] = pd.Timestamp("2020-01-01", tz="UTC")
    kinds = [steps(each, facts).dtypes for each in (frame, frame[:1], frame[:0])]
    assert kinds[0].equals(kinds[1])
    assert kinds[0].equals(kinds[2])


KEYED = [Column("patient", "categorical", role="unit")]


HOSTILE = [None, 5, True, "a", "a\0", "\ud800", 10**6000, b"a"]


@pytest.mark.parametrize("key", HOSTILE, ids=range(len(HOSTILE)))
def test_a_key_of_any_kind_changes_the_step_of_no_other(key):
    """Texts that are equal up to a zero are different keys, whatever others are."""
    people = [f"a\0{i // 2}" for i in range(20)]
    facts = Schema(KEYED)
    frames = [
        pd.DataFrame({"patient": pd.Series(keys, dtype=object)}).assign(v=1.5)
        for keys in (people, [key] * 3 + people)
    ]
    for seed in range(5):
        frames = [f.sample(frac=1, random_state=seed) for f in frames]
        without, with_them = (steps(frame, facts) for frame in frames)
        assert len(without) == 10
        added = listed(with_them)
        added.subtract(listed(without))
        new = 0 if key is None or key == b"a" else 1
        assert sorted(v for v in added.values() if v) == [1] * new


@pytest.mark.parametrize("dtype", ["float64", "Float64", "double[pyarrow]"])
def test_keys_that_are_no_number_are_missing(dtype):
    values = np.array([1.0, np.nan, -0.0, 0.0, np.nan])
    keys = pd.Series(pa.array(values)).astype("double[pyarrow]").astype(dtype)
    frame = pd.DataFrame({"patient": keys, "v": 1.5})
    facts = Schema([Column("patient", "integer", role="unit")])
    assert sorted(steps(frame, facts)[NUMBER]) == [1, 2]


def test_objects_stay_objects_whatever_all_of_them_are():
    day = pd.Timestamp("2020-01-01")
    for values in (
        [day.to_pydatetime()] * 3,
        [day, "x", None],
        [pd.Period("2020")] * 3,
    ):
        frame = pd.DataFrame({"patient": ["a", "b", "b"]}, dtype=object)
        frame["seen"] = pd.Series(values, dtype=object)
        made = steps(frame, Schema(KEYED))
        assert made["seen"].dtype == object
        assert made["seen (row before)"].dtype == object


# Fits and samples ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted():
    return DPHFlowSynthesizer(schema=schema(), epsilon=50, **FEW).fit(table(400))


def test_samples_are_rows_of_people(fitted):
    frame, drawn = table(400), fitted.sample(300, random_state=0)
    assert drawn.dtypes.equals(frame.dtypes)
    assert drawn.columns.equals(frame.columns)
    people = drawn.groupby("patient")
    assert drawn["patient"].unique().tolist() == list(range(1, 301))
    assert people.size().between(1, K).all()
    assert people["born"].nunique().eq(1).all()
    assert people["day"].is_monotonic_increasing.all()
    pd.testing.assert_frame_equal(drawn, fitted.sample(300, random_state=0))


@pytest.mark.thorough
def test_what_goes_on_within_a_person_is_learned():
    frame = table(4000)
    flow = DPHFlowSynthesizer(
        schema=schema(), epsilon=10, max_rows_per_unit=K, random_state=0,
        noise="reproducible",
    )  # fmt: skip
    with few_rows_to_rake(2**14):
        drawn = flow.fit(frame).sample(4000, random_state=0)

    def facts(rows):
        rows = rows.sort_values(["patient", "day"], kind="stable")
        rows = rows[rows.groupby("patient").cumcount() < K]
        by = rows.groupby("patient")
        before = by["cost"].shift()
        sizes = by.size().value_counts(normalize=True).sort_index()
        stays = (by["ward"].shift() == rows["ward"])[before.notna()].mean()
        return sizes.to_numpy(), rows["cost"].corr(before), stays

    for real, made in zip(facts(frame), facts(drawn), strict=True):
        assert made == pytest.approx(real, abs=0.1)


def test_of_few_people_rows_follow_each_other_as_soon_as_they_should():
    """And people come when they should: a first row has a distance of its own."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 1400, 600)
    days = first[:, None] + rng.integers(1, 21, (600, 3)).cumsum(axis=1)
    frame = pd.DataFrame({"patient": np.repeat(np.arange(600), 3), "born": 1950})
    frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(days.ravel(), "D")
    frame = frame.assign(cost=1.0, ward="A")
    model = DPHFlowSynthesizer(schema=schema(), n_steps=0, max_rows_per_unit=3)
    drawn = model.fit(frame).sample(600)
    between, firsts = (
        [each(t.groupby("patient")["day"]) for t in (frame, drawn)]
        for each in (lambda of: of.diff().dt.days, lambda of: of.min())
    )
    assert between[1].quantile(0.9) < 2 * between[0].quantile(0.9)
    years = [t.quantile([0.1, 0.5]).dt.year for t in firsts]
    assert (years[1] - years[0]).abs().max() <= 1


def test_people_may_be_asked_for(fitted):
    drawn = fitted.sample(50, random_state=0, given={"born": (1940, 1950)})
    assert drawn["born"].between(1940, 1950).all()
    assert drawn["patient"].nunique() == 50
    with pytest.raises(ValueError, match="columns that a person has one value of"):
        fitted.sample(given={"ward": "A"})


def test_rows_follow_those_of_the_past(fitted):
    """People of one row get more; their key, and what is constant, stay."""
    frame = table(60).sort_values("day")
    past = frame.groupby("patient").head(2)
    made = fitted.sample(given=past, random_state=0)
    assert made.columns.tolist() == frame.columns.tolist()
    assert set(made["patient"]) <= set(past["patient"])
    whole = pd.concat([past, made])
    assert whole.groupby("patient").size().max() == K
    assert whole.groupby("patient")["born"].nunique().eq(1).all()
    assert whole.groupby("patient")["day"].is_monotonic_increasing.all()
    for frame, match in (
        (past.drop(columns="ward"), "must have the columns"),
        (pd.concat([past] * 3), "4 rows or fewer of each"),
        (past.assign(patient=np.nan), "a key in every row"),
        (past.assign(ward="X"), "not among the levels"),
        (past.assign(born=np.nan), "a missing value given does not fit"),
        (past.assign(day="late"), "'day'"),
    ):
        with pytest.raises(ValueError, match=match):
            fitted.sample(given=frame)
    with pytest.raises(ValueError, match="'impute'"):
        fitted.sample(given=past, impute=True)


def test_people_have_as_many_rows_as_are_given(fitted):
    """Of those with three, two thirds have four: of all people two fifths do."""
    past = table(500, seed=2).sort_values("day").groupby("patient").head(3)
    past = past[past.groupby("patient")["day"].transform("size") == 3]
    more = fitted.sample(given=past, random_state=0)["patient"].nunique()
    assert 0.53 < more / past["patient"].nunique() < 0.8


def test_how_levels_follow_each_other_is_counted():
    """Also where they do not depend on those before."""
    frame = table(400)
    frame["ward"] = frame["ward"].sample(frac=1, random_state=0).to_numpy()
    frame["cost"] = frame["cost"].sample(frac=1, random_state=1).to_numpy()
    flow = DPHFlowSynthesizer(schema=schema(), epsilon=50, **FEW).fit(frame)
    assert ("ward (row before)", "ward") in flow.tables_


def test_fewer_new_people_of_many_rows(fitted, monkeypatch):
    for name, value in (("PEOPLE", 10**6), ("FEWEST", 5), ("ROWS", 1000)):
        monkeypatch.setattr(growth, name, value)
    transformer = fitted._transformer
    number = transformer.codecs[transformer.place(NUMBER)]
    mean = number.masses @ np.arange(1, K + 1)
    people = growth._Growth(fitted._model, transformer, transformer.sequences, None)
    assert people._n_people == round(1000 / mean)


def test_what_follows_depends_on_the_last_row_and_the_means():
    """The person's rows are given, place by place, to whoever draws the next ones."""
    frame = table(3, seed=1).sort_values(["patient", "day"])
    past = frame.groupby("patient").head(2).reset_index(drop=True)
    past["patient"] = pd.factorize(past["patient"])[0]
    past[PLACE] = past.groupby("patient").cumcount() + 1
    sequences = linked(frame)
    people = sequences.steps(frame).head(3).assign(**{NUMBER: K})
    asked = []

    def complete(given):
        asked.append(given)
        return people.loc[given.index].assign(**{PLACE: given[PLACE], "cost": 50.0})

    made = sequences.grown(people, complete, past)
    n_past = past.groupby("patient").size()
    assert made.groupby("patient").size().tolist() == (K - n_past).tolist()
    first = {}
    for steps_asked in asked:
        for person, row in steps_asked.iterrows():
            first.setdefault(person, row)
    for person, row in first.items():
        own = past[past["patient"] == person]
        assert row[PLACE] == len(own) + 1
        assert row["day (row before)"] == own["day"].iloc[-1]
        assert row["cost (mean before)"] == pytest.approx(own["cost"].mean())


def test_no_row_follows_one_that_ends_them():
    frame = table(300)
    flow = DPHFlowSynthesizer(schema=schema(NoReturnAfter("ward", ["C"])), **FEW)
    drawn = flow.fit(frame).sample(100, random_state=0)
    ends = drawn["ward"] == "C"
    assert ends.any()
    assert not ends[drawn.groupby("patient").cumcount(ascending=False) > 0].any()
    with pytest.raises(ValueError, match="needs linked rows"):
        Schema(schema().columns[1:], [NoReturnAfter("ward", "C")]).resolve(
            frame[["day", "born", "cost", "ward"]]
        )
    with pytest.raises(ValueError, match="varies within people"):
        schema(NoReturnAfter("born", 1950)).resolve(frame)
    past = frame[frame["patient"] < 40].groupby("patient").head(2)
    ended = past[past["ward"] == "C"]["patient"].unique()
    after = flow.sample(given=past, random_state=0)["patient"]
    assert not set(after) & set(ended)
    assert set(after) <= set(past["patient"]) - set(ended)


def pair(frame):
    """Return people and their rows."""
    people = frame.drop_duplicates("patient")[["patient", "born"]]
    return people.sample(frac=1, random_state=1), frame.drop(columns="born")


def test_people_and_their_rows_may_be_two_tables(tmp_path):
    frame = table(300)
    facts = Schema([replace(c, per_unit=False) for c in schema()])
    flow = DPHFlowSynthesizer(schema=facts, **FEW).fit(pair(frame))
    people, rows = flow.sample(40, random_state=0)
    assert people.dtypes.equals(pair(frame)[0].dtypes)
    assert rows.dtypes.equals(pair(frame)[1].dtypes)
    assert people["patient"].tolist() == list(range(1, 41))
    assert set(rows["patient"]) == set(people["patient"])
    flow.save(tmp_path / "model.dpg")
    files = tmp_path / "people.csv", tmp_path / "rows.csv"
    load(tmp_path / "model.dpg").sample_to(files, 40, random_state=0)
    for file, made in zip(files, (people, rows), strict=True):
        assert file.read_text() == made.to_csv(index=False)
    for wrong in (files[0], (files[0], files[0])):
        with pytest.raises(ValueError, match="must be two"):
            flow.sample_to(wrong, 3)
    known = tuple(each[each["patient"] <= 9] for each in pair(frame))
    assert set(flow.sample(given=known)[1]["patient"]) <= set(known[1]["patient"])
    again = DPHFlowSynthesizer(schema=schema(), **FEW).fit(files)
    assert again.sample(3)[0].columns.tolist() == ["patient", "born"]


@pytest.mark.parametrize(
    "change",
    [
        lambda people, rows: (people, rows.assign(born=1)),
        lambda people, rows: (people.drop(columns="patient"), rows),
        lambda people, rows: (people.astype({"patient": float}), rows),
        lambda people, rows: (people, rows, rows),
        lambda people, rows: (
            people.assign(day=pd.Timestamp("2020-01-01")),
            rows.drop(columns="day"),
        ),
    ],
)
def test_two_tables_that_do_not_fit_are_refused(change):
    flow = DPHFlowSynthesizer(schema=schema(), **FEW)
    with pytest.raises(
        ValueError, match=r"must have the col|two tables|order a person"
    ):
        flow.fit(change(*pair(table(50))))


KEYS = st.lists(st.sampled_from(["a", "b", "a\0", "", None, "b\0x"]), max_size=8)


@settings(max_examples=100, deadline=None)
@given(KEYS, KEYS, st.lists(st.integers(0, 3), max_size=3), st.randoms())
def test_a_person_of_two_tables_changes_no_row_of_others(own, theirs, new, order):
    """Nor does it matter where their rows stand."""

    def tables(extra):
        people = pd.DataFrame({"key": own + ["new"] * bool(extra)}, dtype=object)
        people["seen"] = [f"{key}!" for key in people["key"]]
        people = people.astype({"seen": object})
        keys = [*theirs, *(["new"] * len(extra))]
        rows = pd.DataFrame({"key": keys}, dtype=object)
        values = [*range(len(theirs)), *(100 + x for x in extra)]
        rows["value"] = np.array(values, dtype=np.int64)
        shuffled = list(rows.index)
        order.shuffle(shuffled)
        rows = rows.loc[shuffled]
        return merged(people, rows, "key")

    with_them, without = tables(new), tables([])
    assert with_them.dtypes.equals(without.dtypes)
    added = listed(with_them)
    added.subtract(listed(without))
    assert sum(added.values()) == len(new)
    assert all(count >= 0 for count in added.values())
    here = {key for key in own if key is not None}
    assert sorted(without["value"]) == [i for i, k in enumerate(theirs) if k in here]


def test_what_is_said_of_a_person_is_their_first_row():
    people = pd.DataFrame({"key": [2, 1, 2], "sex": ["f", "m", "m"]})
    rows = pd.DataFrame({"key": [1, 2, 3, 2], "value": [1.0, 2.0, 3.0, 4.0]})
    made = merged(people, rows, "key")
    assert made["sex"].tolist() == ["m", "f", "f"]
    assert made["value"].tolist() == [1, 2, 4]


def test_the_report_compares_people(fitted):
    frame = table(150)
    drawn = fitted.sample(150, random_state=0)
    alike = [pair(each) for each in (frame, drawn)]
    page = report(*alike, synthesizer=fitted)
    whole = report(frame, drawn, synthesizer=fitted)
    pd.testing.assert_frame_equal(page.people, whole.people)
    assert len(page.summary()) == len(whole.summary())
    assert ("row before", "cost") in page.people.index
    assert "Within people" in page.html
    assert "one person, with all of their rows" in page.html
    assert report(None, drawn, synthesizer=fitted, public=True).people is None


def test_a_layer_of_ones_own_takes_linked_rows(monkeypatch):
    """The check of what users wrote makes up rows of steps."""
    monkeypatch.setattr(session, "is_custom", lambda recipe: True)
    flow = DPHFlowSynthesizer(schema=schema(), **FEW)
    assert flow.fit(table()).sample(5)["patient"].nunique() == 5


def test_names_are_of_any_kind_and_levels_of_any_dtype():
    """Categories of a dtype may be fewer than the levels that are stated."""
    frame = table(200).drop(columns="day")
    frame.columns = range(len(frame.columns))
    facts = Schema(
        [
            Column(0, "integer", role="unit"),
            Column(1, "integer", lower=1920, upper=2010, per_unit=True),
            Column(3, "categorical", levels=("A", "B", "C", "D")),
        ]
    )
    flow = DPHFlowSynthesizer(schema=facts, **FEW).fit(frame)
    drawn = flow.sample(30, random_state=0)
    assert drawn[0].nunique() == 30
    assert drawn.columns.tolist() == [0, 1, 2, 3]
    assert set(flow.sample(given=frame.head(9))[0]) <= set(frame[0].head(9))


def test_a_group_that_varies_is_drawn_before_what_is_given():
    frame = table(200).assign(old=lambda rows: rows["born"] < 1970)
    frame["old"] = pd.Categorical(np.where(frame["old"], "y", "n"), ["y", "n"])
    frame["decade"] = pd.Categorical(frame["born"] // 10 * 10, range(1930, 2001, 10))
    facts = Schema(
        [
            *schema().columns,
            Column("decade", "categorical", per_unit=True),
            Column("old", "categorical"),
        ],
        [
            Determines(
                ["decade"], "old", {d: "yn"[d >= 1970] for d in range(1930, 2001, 10)}
            )
        ],
    )
    flow = DPHFlowSynthesizer(schema=facts, epsilon=50, **FEW).fit(frame)
    place = flow._transformer.place(PLACE)
    assert flow._transformer.place("old") < place
    old = flow._transformer.place("old")
    assert all(f.columns != (place, old) for f in flow._model.factors)
    assert all(c[-1] not in flow._model.first.given for c in flow._model.counted)
    drawn = flow.sample(50)
    assert (drawn["old"].eq("y") == drawn["decade"].astype(int).lt(1970)).all()


def test_what_is_given_is_not_said_to_be_lost():
    frame = table(300).groupby("patient").head(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LostColumnWarning)
        flow = DPHFlowSynthesizer(schema=Schema(schema().columns[:1]), **FEW)
        notes = str(flow.fit(frame).privacy_)
    assert "before)" not in notes.replace("Contingency", "").split("Please note")[1]


@settings(max_examples=60, deadline=None)
@given(PEOPLE, st.lists(VALUES, min_size=1, max_size=7), st.randoms())
def test_a_person_adds_one_row_where_one_of_each_is_read(others, own, order):
    both = [*others, *((77, cost, 1, "A") for cost in own)]
    order.shuffle(both)
    whole = frame_of(both, "int64")
    rest = whole[whole["patient"] != 77]
    added = listed(one_row_each(whole, "patient"))
    added.subtract(listed(one_row_each(rest, "patient")))
    assert sorted(v for v in added.values() if v) == [1]
    read = one_row_each(rest, "patient")
    assert listed(read) <= listed(rest[read.columns])
    assert len(read) == rest["patient"].nunique()


@pytest.mark.parametrize("kind", [DPHFlowSynthesizer, DPVAESynthesizer])
def test_people_may_own_rows_that_are_not_linked(kind):
    """At the noise of one row each, whatever the model."""
    key = Column("patient", "integer", role="owner")
    facts = Schema([key, *unlinked()])
    params = {"schema": facts, "n_steps": 5, "epsilon": 20.0}
    flow = kind(**params, random_state=0, noise="reproducible").fit(table(300))
    text = str(flow.privacy_)
    assert "removing one person, with all of their rows" in text
    assert "One row of each is read" in text
    assert abs(flow.privacy_.plan.n_rows - 300) < 20
    drawn = flow.sample(40, random_state=0)
    assert drawn["patient"].is_unique
    assert flow.score_samples(table(9)).shape == (len(table(9)),)
    assert flow.privacy_.plan.rows_per_unit == 1
    with pytest.raises(ValueError, match="one row of each is read"):
        kind(**params, max_rows_per_unit=K).fit(table())


@pytest.mark.parametrize("role", ["unit", "owner"])
def test_processes_must_read_people_in_one_order(role, tmp_path, monkeypatch):
    frame = table().reset_index(drop=True)
    frame.to_parquet(tmp_path / "rows.parquet")
    rows = chunked.streamed("owner", tmp_path / "rows.parquet")
    query = replace(rows, is_ordered=False)
    facts = Schema([Column("patient", "integer", role=role), *unlinked()])
    most = {"max_rows_per_unit": K if role == "unit" else 1, "n_steps": 5}
    assert DPHFlowSynthesizer(schema=facts, **most).fit(query).sample(3) is not None
    group = ProcessGroup(2, 0)
    monkeypatch.setattr(reading.ProcessGroup, "present", staticmethod(lambda: group))
    flow = DPHFlowSynthesizer(schema=facts, **most)
    with pytest.raises(TypeError, match="have no order"):
        flow.fit(query)
    if role == "unit":
        people = frame.drop_duplicates("patient")[["patient"]].assign(sex="f")
        with pytest.raises(TypeError, match="have no order"):
            flow.fit((people, query))


def test_one_key_says_who_is_protected():
    both = [Column("patient", "integer", role="owner"), Column("visit", "integer")]
    facts = Schema([both[0], replace(both[1], role="unit"), *unlinked()])
    frame = table().assign(visit=1)
    with pytest.raises(ValueError, match="no column of role owner"):
        DPHFlowSynthesizer(schema=facts, **FEW).fit(frame)


def test_names_may_be_truth_values():
    frame = pd.DataFrame({"key": np.arange(90) // 3, True: 1.5, False: 2.5})
    key = Column("key", "integer", role="owner")
    flow = DPHFlowSynthesizer(schema=Schema([key]), n_steps=5).fit(frame)
    assert flow.sample(4).columns.tolist() == ["key", True, False]
    frame = pd.DataFrame({True: np.arange(90) // 3, False: 2.5})
    facts = Schema([Column(True, "integer", role="unit")])
    drawn = DPHFlowSynthesizer(schema=facts, **FEW).fit(frame).sample(4)
    assert drawn.iloc[:, 0].nunique() == 4


def test_searches_of_people_are_not_counted_by_rows():
    facts = Schema([Column("patient", "integer", role="owner"), *unlinked()])
    flow = DPHFlowSynthesizer(schema=facts, n_steps=5)
    search = GridSearchCV(flow, {"epsilon": [5.0]}, cv=2, refit=False, scoring=len_of)
    search.fit(table(60))
    with pytest.raises(TypeError, match="may be in all folds"):
        search_privacy(search)


def len_of(fitted, X, y=None):
    return float(len(X))


def test_refits_of_people_have_their_target():
    key = Column("patient", "integer", role="owner")
    frame = table(60)
    flow = DPHFlowSynthesizer(schema=Schema([key]), n_steps=5, random_state=0)
    flow.fit(frame.drop(columns="ward"), frame["ward"])
    result = bootstrap(flow, lambda X, y: (y == "A").mean(), 2, verbose=0)
    assert np.isfinite(result.summary()["estimate"]).all()


@pytest.mark.thin(2)
@pytest.mark.parametrize("n", [1, 30])
def test_an_owner_leaves_no_trace(n):
    key = Column("patient", "integer", role="owner")
    facts = Schema([key, *unlinked()])
    frame = table().reset_index(drop=True)
    params = {"schema": facts, "epsilon": 40.0}
    compare(with_person(frame, n), frame, True, batch_size=10**6, **params)
    compare(frame, table(7, seed=3).astype(frame.dtypes.to_dict()), **params)


@pytest.mark.thorough
def test_refits_are_of_people(fitted):
    """Tables of refits are of people, with all of their rows and keys of their own."""
    seen = []

    def statistic(rows):
        sizes = rows.groupby("patient").size()
        seen.append((len(sizes), sizes.max(), rows["born"].nunique()))
        before = rows.groupby("patient")["cost"].shift()
        return pd.Series(
            {"size": sizes.mean(), "row before": rows["cost"].corr(before)}
        )

    n = fitted.privacy_.plan.n_rows
    result = bootstrap(fitted, statistic, 4, n_rows=n, random_state=0, verbose=0)
    assert result.summary().index.tolist() == ["size", "row before"]
    assert all(number % n == 0 and most <= K for number, most, _ in seen)
    two = DPHFlowSynthesizer(schema=schema(), **FEW).fit(pair(table(50)))
    with pytest.raises(ValueError, match="fitted to one table"):
        bootstrap(two, len)


def test_the_warning_of_few_people_is_the_note_of_the_report():
    """Which counts the columns that are learned, not those that are given."""
    flow = DPHFlowSynthesizer(0.1, schema=schema(), n_steps=1, max_rows_per_unit=K)
    with pytest.warns(HopelessBudgetWarning) as caught:
        flow.fit(table(30))
    said = [w for w in caught if issubclass(w.category, HopelessBudgetWarning)]
    assert str(said[0].message) in flow.privacy_.notes


def test_people_are_drawn_with_replacement():
    persons = np.array([0, 2, 1, 0, 2, 2])
    places, numbers = people_redrawn(persons, 50, np.random.default_rng(0))
    assert set(numbers) == set(range(50))
    for number in range(50):
        own = places[numbers == number]
        (who,) = {*persons[own]}
        assert own.tolist() == np.flatnonzero(persons == who).tolist()


def test_files_keep_it(fitted, tmp_path):
    fitted.save(tmp_path / "model.dpg")
    again = load(tmp_path / "model.dpg")
    drawn = fitted.sample(40, random_state=3)
    pd.testing.assert_frame_equal(again.sample(40, random_state=3), drawn)
    again.sample_to(tmp_path / "rows.parquet", 40, random_state=3)
    assert pd.read_parquet(tmp_path / "rows.parquet")["patient"].nunique() == 40
    assert Schema.from_dict(schema().to_dict()) == schema()


@pytest.mark.parametrize("version", [3, 4])
def test_files_of_linked_rows_load(version):
    """Up to format 3, first rows had increments from the lower bound of the order."""
    synthesizer = load(FIXTURES / f"linked-{version}.dpg")
    (each,) = synthesizer._transformer.increments
    assert each.has_distances == (version > 3)
    drawn = synthesizer.sample(20, random_state=0)
    assert drawn["patient"].nunique() == 20
    assert drawn.groupby("patient")["day"].is_monotonic_increasing.all()


def test_functions_are_counted_by_the_pairs_that_are_learned():
    masses, flags = torch.full((9,), 1 / 9), torch.zeros(9).bool()
    facts = [
        CellFacts(masses, True, False, flags, is_given=j in (1, 2)) for j in range(5)
    ]
    # Of 5 columns 3 are learned: 1 + 7 + 9 of the 25 pairs, in both directions.
    assert columns_paired(facts) == pytest.approx(math.sqrt(17))


def test_the_report_speaks_of_a_person(fitted):
    text = str(fitted.privacy_)
    assert "adding or removing one person, with all of their rows" in text
    assert "person count" in text
    assert "keys of persons, which say whose a row is: patient" in text
    assert fitted.privacy_.plan.rows_per_unit == 1


def test_a_person_costs_no_more_than_a_row(fitted):
    """The noise is that of a table of one row per person, not of k rows."""
    stated = {"n_steps": 5, "architecture__table_budget": 0.0}
    single = DPHFlowSynthesizer(schema=fitted._layout.sequences.schema, epsilon=50)
    single.set_params(**stated)
    ahead = forecast(schema(), 400, 50, max_rows_per_unit=K, **stated).plan
    alone = forecast(single.schema, 400, 50, **stated).plan
    assert ahead.rows_per_unit == alone.rows_per_unit
    assert ahead.noise_multiplier == pytest.approx(alone.noise_multiplier, rel=0.01)
    sequences = fitted._layout.sequences
    released = learned_columns(counted(sequences.schema, sequences))
    # Of means before, no keys are released; increments of times have no bounds.
    assert [name for name, x in released.items() if has_open_keys(x)] == ["day"]
    ahead = forecast(schema(), 400, max_rows_per_unit=K)
    assert ahead.columns["column"][0] == "born"
    errors = ahead.expected_errors(2, 0, verbose=0)
    assert errors["column"].tolist() == ["day", "born", "cost", "ward"]


def test_what_is_given_costs_nothing(fitted):
    """Of values before and their means, and of places, nothing is released."""
    ahead = forecast(schema(), 400, max_rows_per_unit=K).columns["column"]
    apart = ["born", NUMBER, "day (row before)", "day", "cost", "ward"]
    assert sorted(ahead) == sorted(apart)
    codecs = {c.column.name: c for c in fitted._transformer.codecs}
    for name in ("cost", "ward"):
        now, before = codecs[name].masses, codecs[f"{name} (row before)"].masses
        first = codecs[PLACE].masses[0]
        assert before == pytest.approx([*((1 - first) * now), first])
    block = fitted._model.first
    given = [fitted._transformer.place(name) for name in fitted._transformer.given]
    assert block.given == sorted(given)
    assert not any(block.skip.mask[block.columns(j)].any() for j in given)


def test_places_follow_from_numbers_of_rows():
    edges = np.array([0.5, 1.5, 2.5, 4.5])
    column = Column(NUMBER, "integer", lower=1, upper=4, nullable=False)
    values = np.array([1, 2, np.nan])
    masses = np.array([0.4, 0.2, 0.4])
    number = IntervalCodec(column, np.dtype(int), masses, edges, values)
    later = 0.2 / 3 + 0.2 / 4
    expected = [0.4 + 0.1 + later, 0.1 + later, later, 0.05]
    assert shares_of_places(number) == pytest.approx(expected)


def test_means_have_cells_between_those_of_values():
    frame = table().assign(flag=lambda rows: (rows["cost"] > 50).astype(int))
    facts = Schema([*schema().columns, Column("flag", "integer", lower=0, upper=1)])
    flow = DPHFlowSynthesizer(schema=facts, epsilon=50, **FEW).fit(frame)
    columns = {c.column.name: c for c in flow._transformer.codecs}
    codec = columns["flag (mean before)"]
    cells = codec.encode(pd.Series([0.0, 0.4, 0.6, 1.0, np.nan]))
    assert cells.tolist() == [0, 1, 1, 2, 3]
    assert codec.masses.sum() == pytest.approx(1)
    assert codec.masses[1] < 1e-4


@pytest.mark.thorough
def test_marginals_are_those_of_new_people():
    """What a row holds follows from the row before, and adds up to the marginals."""
    flow = DPHFlowSynthesizer(schema=schema(), epsilon=20, max_rows_per_unit=K)
    frame = table(4000).sort_values("day").groupby("patient").head(K)
    with few_rows_to_rake(2**14):
        drawn = flow.fit(frame).sample(8000)
    names = ["cost", "ward"]
    assert marginal_distance(frame[names], drawn[names], k=1).values.max() < 0.03


def test_text_keys_other_columns_and_times_without_order():
    frame = table(dtype="str").assign(total=lambda rows: rows["cost"] * 2)
    frame["visit"] = np.arange(len(frame))
    facts = Schema(
        [
            Column("patient", "categorical", role="unit", format="P{:04d}"),
            Column("visit", "integer", role="id"),
            *schema().columns[2:],
        ],
        [Derived("total", "2 * cost")],
    )
    drawn = DPHFlowSynthesizer(schema=facts, **FEW).fit(frame).sample(60)
    assert drawn["patient"].iloc[[0, -1]].tolist() == ["P0001", "P0060"]
    assert drawn["visit"].is_unique
    assert drawn["total"].equals(2 * drawn["cost"])


def test_constraints_on_computed_columns_hold():
    rng = np.random.default_rng(0)
    shares = rng.integers(0, 50, (600, 2)) / 100
    frame = pd.DataFrame(shares, columns=["a", "b"]).assign(key=np.arange(600) // 2)
    frame = frame.assign(c=1 - frame.a - frame.b, twice=2 * frame.a, cap=2 * frame.a)
    share = {"kind": "continuous", "lower": 0, "upper": 1, "resolution": 0.01}
    facts = Schema(
        [
            Column("key", "integer", role="unit"),
            *(Column(name, **share) for name in "abc"),
            Column("twice", "continuous", lower=0, upper=0.8),
            Column("cap", "continuous", lower=0, upper=2),
        ],
        [
            Composition(["a", "b", "c"]),
            Derived("twice", "2 * a"),
            LessEqual("twice", "cap"),
        ],
    )
    drawn = DPHFlowSynthesizer(schema=facts, **FEW).fit(frame).sample(100)
    assert drawn[["a", "b", "c"]].sum(axis=1).to_numpy() == pytest.approx(1)
    assert drawn["twice"].max() <= 0.8
    assert (drawn["twice"] <= drawn["cap"]).all()


def test_noise_may_be_stated():
    flow = DPHFlowSynthesizer(schema=schema(), noise_multiplier=2.0, **FEW)
    assert flow.fit(table()).noise_multiplier_ == 2.0


def test_a_table_without_any_key_is_fitted_as_any_other():
    frame = table(dtype="float64").assign(patient=np.nan)
    drawn = DPHFlowSynthesizer(schema=schema(), **FEW).fit(frame).sample(3)
    assert drawn["patient"].nunique() == 3


# One person more leaves no trace ------------------------------------------------------


def with_person(frame, n):
    """Return the table with a person of n unusual rows, in the middle of others."""
    row = {"patient": -1, "born": 10**6, "cost": 1e300, "ward": None}
    own = pd.DataFrame([row] * n).assign(day=pd.Timestamp("2200-01-01"))
    own = own[frame.columns].astype(frame.dtypes.to_dict())
    return pd.concat([frame.iloc[:40], own, frame.iloc[40:]], ignore_index=True)


@pytest.mark.thin(4)
@pytest.mark.parametrize("n", [2, 1, K, 30])
def test_a_person_leaves_no_trace(n):
    params = {"schema": schema(), "max_rows_per_unit": K, "epsilon": 40.0}
    frame = table().reset_index(drop=True)
    compare(with_person(frame, n), frame, True, batch_size=10**6, **params)


@pytest.mark.thorough
@pytest.mark.parametrize("n", [1, 30])
def test_a_person_of_two_tables_leaves_no_trace(n):
    params = {"schema": schema(), "max_rows_per_unit": K, "epsilon": 40.0}
    frame = table().reset_index(drop=True)
    both = [(pair(each),) for each in (with_person(frame, n), frame)]
    compare(*both, True, batch_size=10**6, **params)
    people, rows = pair(table(7, seed=3))
    compare(both[1], ((people, rows.iloc[:1]),), **params)


@pytest.mark.thin(2)
@pytest.mark.parametrize("n", [2, 30])
def test_a_person_of_a_file_leaves_no_trace(n, tmp_path):
    """Whose rows are in groups of the file that are read apart."""
    params = {"schema": schema(), "max_rows_per_unit": K, "epsilon": 40.0}
    frame = table().reset_index(drop=True)
    files = tmp_path / "with.parquet", tmp_path / "without.parquet"
    for path, rows in zip(files, (with_person(frame, n), frame), strict=True):
        rows.to_parquet(path, row_group_size=33, index=False)
    compare(*files, True, batch_size=10**6, **params)


def test_two_processes_fit_people(monkeypatch):
    def make():
        return DPHFlowSynthesizer(schema=schema(), epsilon=50, **FEW)

    one, other = fits_in_threads(monkeypatch, make, table())
    assert_equal_models(one, other)
    assert one.privacy_ == other.privacy_
    assert one.sample(30, random_state=0)["patient"].nunique() == 30


class PartDoor(Recorder):
    """One process' door: notes its part of all releases, and answers from a record."""

    def __init__(self, streams, tapes, record=None):
        super().__init__(Mechanisms(streams.counts, streams.gradients), tapes)
        self.record = record

    def _keep(self, name, private, *args, **stated):
        self.inner.ranks, rank = self.ranks, self.ranks.rank
        tape = self.tape.setdefault(rank, [])
        known = self.record and self.record[rank][len(tape)][2]
        if name == "count" and known:
            released = known
            self.ledger.count(known, *args)
        else:
            released = getattr(self.inner, name)(private, *args, **stated)
            released = released if known is None else copy.deepcopy(known)
        exact = opened(private) if name in ("gaussian", "choose") else None
        stated = declared(*args, **stated), stated
        tape.append((name, stated, *copy.deepcopy((released, exact))))
        return released


@pytest.mark.thorough
@pytest.mark.parametrize("n", [3, 1, 30, K])
def test_a_person_moves_the_sums_of_two_processes_by_the_sensitivity(n, monkeypatch):
    frame, tapes = table().reset_index(drop=True), [{}, {}]

    def fitted(rows, tape, record=None):
        def make():
            flow = DPHFlowSynthesizer(schema=schema(), epsilon=40, batch_size=10**6)
            flow.set_params(**FEW, architecture__table_budget=0.3)
            flow._mechanisms = lambda streams: PartDoor(streams, tape, record)
            return flow

        both = fits_in_threads(monkeypatch, make, rows)
        for each in both:
            del each._mechanisms
        return both

    first = fitted(with_person(frame, n), tapes[0])
    second = fitted(frame, tapes[1], tapes[0])
    for one, other in zip(first, second, strict=True):
        assert_equal_models(one, other)
        assert dumped(one) == dumped(other)
    moved = set()
    for steps in zip(*tapes[0].values(), *tapes[1].values(), strict=True):
        names, facts, _, parts = zip(*steps, strict=True)
        (name,), (_, stated) = {*names}, facts[0]
        assert len({words for words, _ in facts}) == 1  # what is declared
        release = stated.get("release")
        if name == "choose" or release in COUNTED:
            gap = parts[0] + parts[1] - parts[2] - parts[3]
            size = np.linalg.norm(gap) if name == "gaussian" else np.abs(gap).max()
            assert size <= stated["sensitivity"] * (1 + 1e-9), release
            moved |= {(name, release)} if size else set()
    assert {("gaussian", "marginals"), ("gaussian", "tables")} <= moved
    assert ("choose", "tables") in moved


def test_unrelated_people_leave_no_trace():
    facts = Schema([Column("patient", "integer", role="unit")])
    params = {"schema": facts, "max_rows_per_unit": K, "epsilon": 40.0}
    other = table(7, seed=3).assign(cost=-1e9, day=pd.Timestamp("1990-01-01"))
    compare(table(), other.astype(table().dtypes.to_dict()), **params)


# What is refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "params", "match"),
    [
        (schema(), {"max_rows_per_unit": 1}, "must be 2 or more"),
        (Schema([*schema().columns, Column("born2", "integer", role="unit")]), {},
         "one column of role unit"),
        (schema(joint=[("born", "cost")]), {}, "learned together"),
        (schema(), {"architecture__n_blocks": 2}, "without blocks"),
        (schema(), {"workload": [("ward", "patient")]}, "columns that are learned"),
    ],
)  # fmt: skip
def test_what_cannot_be_linked_is_refused(facts, params, match):
    frame = table().assign(born2=1)
    frame = frame[list(facts.names)]
    flow = DPHFlowSynthesizer(schema=facts).set_params(**{**FEW, **params})
    with pytest.raises(ValueError, match=match):
        flow.fit(frame)


def test_files_are_read_as_tables_in_memory(tmp_path, monkeypatch):
    frame = table().reset_index(drop=True)
    frame.to_parquet(tmp_path / "rows.parquet")
    monkeypatch.setattr(chunked, "CHUNK", 50)
    read = chunked.in_memory(chunked.streamed("owner", tmp_path / "rows.parquet"))
    assert listed(read) == listed(frame[read.columns])
    stream = chunked.streamed("owner", tmp_path / "rows.parquet")
    sequences = Sequences.of("owner", schema().resolve(stream), K)
    made = sequences.steps(stream.select([*schema().names]))
    pd.testing.assert_frame_equal(made, sequences.steps(read), check_dtype=False)
    flow = DPHFlowSynthesizer(schema=schema(), **FEW).fit(tmp_path / "rows.parquet")
    assert flow.sample(20, random_state=0)["patient"].nunique() == 20


def test_what_has_no_linked_form_is_refused(fitted):
    frame = table()
    with pytest.raises(ValueError, match="cannot draw one row given another"):
        DPVAESynthesizer(schema=schema(), max_rows_per_unit=K).fit(frame)
    with pytest.raises(ValueError, match="have no scores"):
        fitted.score_samples(frame)
    with pytest.raises(ValueError, match="take no public ones"):
        DPHFlowSynthesizer(schema=schema(), **FEW).fit(frame, public=frame)
    flow = DPHFlowSynthesizer(schema=schema(), max_rows_per_unit=K)
    with pytest.raises(ValueError, match="must have no key of persons"):
        PrivateSearch(flow, {"n_steps": [5]}).fit(frame)


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({"kind": "continuous", "role": "unit"}, "needs kind"),
        ({"kind": "categorical", "role": "order"}, "needs numbers or times"),
        ({"kind": "integer", "role": "unit", "per_unit": True}, "belongs to no role"),
        ({"kind": "integer", "per_unit": 1}, "must be True or False"),
        ({"kind": "integer", "role": "person"}, "must be one of"),
    ],
)
def test_roles_that_do_not_fit_are_refused(facts, match):
    with pytest.raises(ValueError, match=match):
        Column("x", **facts)


@pytest.mark.thorough
def test_people_without_a_valid_row_are_drawn_again():
    """Of two kinds of people, one has no ward that its constraint allows."""
    frame = table(300).assign(kind=lambda rows: rows["born"] % 2 == 0)
    frame["ward"] = frame["ward"].where(frame["kind"], "A")
    facts = Schema(
        [*schema().columns, Column("kind", "boolean", per_unit=True)],
        [Impossible({"kind": True, "ward": ["A", "B", "C"]})],
    )
    flow = DPHFlowSynthesizer(schema=facts, epsilon=50, **FEW).fit(frame)
    drawn = flow.sample(80, random_state=0)
    assert drawn["patient"].unique().tolist() == list(range(1, 81))
    assert not drawn["kind"].any()
    with pytest.raises(SamplingError, match="satisfy what is given"):
        flow.sample(5, given={"kind": True})


def test_the_hash_of_a_key_is_the_same_in_all_processes():
    keys = "[[b'a'], [date(2020, 1, 1)], [('a', 1)], [7]]"
    program = "from datetime import date; from dpgenerative.tables.sequences import *"
    program += "; from dpgenerative.tables.sequences import _hashed"
    program += f"; print([_hashed(key)[0] for key in {keys}])"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in (1, 2)
    }  # fmt: skip
    assert len(printed) == 1


def test_an_order_that_bounds_imply_changes_nothing():
    """A visit is learned from the one before, not from the birth."""
    stated = schema(LessEqual("birthday", "day"))
    lived = {"lower": "1920-01-01", "upper": "2000-12-31", "resolution": "D"}
    birthday = Column("birthday", "datetime", per_unit=True, cycles=(), **lived)
    stated = Schema([*stated.columns, birthday], stated.constraints)
    frame = table(600).assign(birthday=pd.Timestamp("1970-01-01"))
    flow = DPHFlowSynthesizer(schema=stated, epsilon=50, **FEW).fit(frame)
    assert [each.bases for each in flow._transformer.increments] == [
        ("day (row before)",)
    ]
    drawn = flow.sample(600, random_state=0)
    assert abs(drawn["day"].mean() - frame["day"].mean()) < pd.Timedelta("180D")
    overlapping = Schema(
        [replace(c, upper="2023-01-01") if c is birthday else c for c in stated],
        stated.constraints,
    )
    rules = increments_of(linked(frame, overlapping).schema)
    assert {high: rule.low for high, rule in rules.items()} == {
        "day": "day (row before)"
    }


@pytest.mark.thorough
def test_hours_of_an_order_are_learned_where_they_are_stated():
    rng = np.random.default_rng(0)
    frame = table(600)
    frame["day"] += pd.to_timedelta(rng.integers(9 * 60, 17 * 60, len(frame)), "min")
    facts = {**VISIT, "resolution": "min"}
    outside = []
    for cycles in (None, ("hour",)):
        day = Column("day", "datetime", role="order", cycles=cycles, **facts)
        stated = Schema([day if c.name == "day" else c for c in schema()])
        flow = DPHFlowSynthesizer(schema=stated, epsilon=50, **FEW).fit(frame)
        drawn = flow.sample(400, random_state=0)
        assert drawn.groupby("patient")["day"].is_monotonic_increasing.all()
        outside.append((~drawn["day"].dt.hour.between(9, 16)).mean())
        says = any("Hours and weekdays of day" in x for x in flow.privacy_.notes)
        assert says == (cycles is None)
    assert outside[1] < 0.1 < 0.5 < outside[0]


def test_equal_keys_have_one_hash():
    hashes = {sequences_of._hashed([key])[0] for key in (1, 1.0, True, Decimal(1))}
    assert len(hashes) == 1
