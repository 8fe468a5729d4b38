"""Instants learned as dates, times of day and weekdays: exact, private, and right."""

from __future__ import annotations

from datetime import date

import numpy as np
import pandas as pd
import pytest

from dpgenerative import Column, DPHFlowSynthesizer, DPVAESynthesizer, Schema, load
from dpgenerative.encoding.calendar import Calendar, _moved, parts_of, replace_missing
from dpgenerative.encoding.increments import learned_columns
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.tables.constraints import LessEqual

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

YEARS = {"lower": "2020-01-01", "upper": "2023-12-31T23:59"}
FEW = {"n_steps": 5, "random_state": 0, "noise": "reproducible"}


def admissions(n=4000, seed=0):
    """Return stays that begin on workdays between 7 and 19, by ward."""
    rng = np.random.default_rng(seed)
    days = rng.integers(0, 1461, 3 * n)
    days = days[(days + 2) % 7 < 5][:n]  # 2020 began on a Wednesday
    ward = rng.choice(["early", "late"], n)
    hour = np.where(ward == "early", rng.normal(9, 1, n), rng.normal(16, 1, n))
    minutes = (hour.clip(7, 18.9) * 60).astype(int)
    start = pd.Timestamp("2020-01-01") + pd.to_timedelta(days, "D")
    start += pd.to_timedelta(minutes, "min")
    return pd.DataFrame({"ward": ward, "start": start})


def fitted(frame, multiplier=0.0, **facts):
    schema = Schema([Column("start", "datetime", **{**YEARS, **facts})]).resolve(frame)
    return TableTransformer.fit(
        frame, schema, Mechanisms(*[np.random.default_rng(0)] * 2), n_rows=len(frame),
        multiplier=multiplier, delta=1e-6, n_bins=32, with_missing=schema.names,
    )  # fmt: skip


# Which columns ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "parts"),
    [
        ({}, ["weekday", "time of day"]),
        ({"lower": None, "upper": None}, ["weekday", "time of day"]),
        ({"resolution": "D"}, ["weekday"]),
        ({"upper": "2020-01-09"}, ["time of day"]),
        ({"upper": "2020-01-01T12:00"}, []),
        ({"upper": "2020-01-09", "resolution": "D"}, []),
        ({"cycles": ()}, []),
        ({"cycles": ["hour"]}, ["time of day"]),
        ({"cycles": ("weekday",)}, ["weekday"]),
    ],
)
def test_what_is_learned_follows_from_public_facts(facts, parts):
    column = Column("when", "datetime", **{**YEARS, **facts})
    names = [f"when ({part})" for part in parts] + ["when"]
    assert list(parts_of(column)) == names == list(learned_columns(Schema([column])))
    assert (Calendar.fitted(column, np.dtype("M8[s]")) is None) == (not parts)
    assert Column(**column.to_dict()) == column


@pytest.mark.parametrize(
    ("kind", "cycles"),
    [("timedelta", ()), ("integer", ["hour"]), ("datetime", "hour"),
     ("datetime", ["month"]), ("datetime", [1])],
)  # fmt: skip
def test_cycles_are_checked(kind, cycles):
    with pytest.raises(ValueError, match="cycles"):
        Column("when", kind, cycles=cycles)


def test_increments_and_other_kinds_are_not_split():
    columns = [Column(name, "datetime", **YEARS) for name in ("start", "end")]
    columns += [Column("long", "timedelta"), Column("n", "integer")]
    schema = Schema(columns, [LessEqual("start", "end")])
    names = ["start (weekday)", "start (time of day)", "start", "end", "long", "n"]
    assert list(learned_columns(schema)) == names


# Parts and back -----------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["h", "min", "s", "us"])
@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
def test_rows_come_back(unit, zone):
    frame = admissions(500)[["start"]]
    frame.loc[::7, "start"] = pd.NaT
    frame["start"] = frame["start"].dt.tz_localize(zone).dt.floor(unit)
    codecs = fitted(frame, resolution=unit)
    codes = codecs.encode(frame)
    positions = codecs.positions(frame, np.random.default_rng(0)).astype(float)
    back, inside = codecs.rows(codes, positions)
    assert inside.all()
    assert back.dtypes.equals(frame.dtypes)
    gap = (back["start"] - frame["start"]).abs().max()
    assert gap <= pd.Timedelta("1s")  # positions are of 24 bits
    assert back["start"].isna().equals(frame["start"].isna())


def test_dates_among_objects_have_weekdays():
    frame = admissions(900)[["start"]]
    frame["start"] = [day.date() for day in frame["start"]]
    codecs = fitted(frame, resolution="D", upper="2023-12-31")
    assert codecs.names == ["start (weekday)", "start"]
    rng = np.random.default_rng(0)
    codes = codecs.encode(frame)
    back = codecs.decode(codes, rng.random(codes.shape))
    assert all(isinstance(day, date) and day.weekday() < 5 for day in back["start"])


def test_days_move_to_the_nearest_of_their_weekday_within_a_cell():
    days = np.arange(20.0)  # from a Thursday on
    moved = _moved(days, np.full(20, 0.0), np.zeros(20), np.full(20, 19.0))
    assert set(moved) == {4.0, 11.0, 18.0}
    assert (np.abs(moved - days)[1:] <= 3).all()
    short = _moved(np.arange(3.0), np.full(3, 0.0), np.zeros(3), np.full(3, 2.0))
    assert short.tolist() == [0, 1, 2]
    assert np.isnan(_moved(np.array([np.nan]), np.zeros(1), np.zeros(1), np.ones(1)))


def test_no_date_lacks_its_time():
    codecs = fitted(admissions(2000)[["start"]].assign(start=lambda t: t["start"]))
    j = codecs.place("start (time of day)")
    codec = codecs.codecs[j]
    n = 20_000
    codes = np.full(n, codec.n_cells - 1)
    positions = np.random.default_rng(0).random(n)
    rows = np.arange(n) % 2 == 0
    cells, _ = replace_missing(codec, codes, positions, rows)
    assert (cells[~rows] == codec.n_cells - 1).all()
    shares = np.bincount(cells[rows], minlength=codec.n_cells) / rows.sum()
    expected = codec.masses[:-1] / codec.masses[:-1].sum()
    np.testing.assert_allclose(shares[:-1], expected, atol=0.015)


def test_densities_are_those_of_the_samples():
    frame = admissions(4000)[["start"]]
    codecs = fitted(frame, resolution="D", upper="2023-12-31")
    date = codecs.columns["start"]
    widths = np.diff(date.edges)
    days = pd.date_range("2020-01-01", "2023-12-31").to_frame(name="start")
    days = days.reset_index(drop=True).astype(frame.dtypes)
    places = codecs.encode(days)
    masses = [c.masses[places[:, j]] for j, c in enumerate(codecs.codecs)]
    density = np.exp(codecs.log_within(days)) * np.prod(masses, axis=0)
    assert widths.min() >= 7  # every cell has every weekday
    assert density.sum() == pytest.approx(1 - date.masses[-1], abs=0.01)
    rng = np.random.default_rng(0)
    cells = [rng.choice(c.n_cells, 300_000, p=c.masses) for c in codecs.codecs]
    drawn = codecs.decode(np.stack(cells, 1), rng.random((300_000, 2)))["start"]
    shares = drawn.value_counts().reindex(days["start"], fill_value=0) / 300_000
    np.testing.assert_allclose(shares.to_numpy(), density, atol=6e-4)


# Tables -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def synthesizer():
    facts = Column("start", "datetime", **YEARS, resolution="min")
    maker = DPHFlowSynthesizer(schema=Schema([facts]), random_state=0)
    return maker.fit(admissions(4000))


def test_hours_weekdays_and_what_depends_on_them(synthesizer):
    sample = synthesizer.sample(4000, random_state=0)
    hours = sample["start"].dt.hour
    assert hours.between(7, 18).mean() >= 0.95
    assert (sample["start"].dt.day_of_week >= 5).mean() <= 0.06
    means = hours.groupby(sample["ward"]).mean()
    assert means["late"] - means["early"] > 5
    assert "start (time of day)" not in sample


def test_conditions(synthesizer):
    month = {"start": ("2021-03-01", "2021-03-31T23:59")}
    sample = synthesizer.sample(300, random_state=0, given=month)["start"]
    assert sample.between("2021-03-01", "2021-03-31 23:59").all()
    assert (sample.dt.day_of_week < 5).mean() > 0.9
    morning = {"start": ("2021-03-02T08:00", "2021-03-02T10:00")}
    sample = synthesizer.sample(50, random_state=0, given=morning)["start"]
    assert sample.between("2021-03-02 08:00", "2021-03-02 10:00").all()
    exact = pd.Timestamp("2021-03-02 09:30")
    sample = synthesizer.sample(5, random_state=0, given={"start": exact})["start"]
    assert (sample == exact).all()
    with pytest.raises(ValueError, match="can never hold"):
        synthesizer.sample(5, given={"start": ("2030-01-01", None)})


def test_conditions_on_dates_keep_their_weekdays():
    rows = admissions(6000)[["start"]]
    codecs = fitted(rows, resolution="D", upper="2023-12-31")
    ends = pd.Timestamp("2021-03-08"), pd.Timestamp("2021-03-14")  # a week
    rng, n = np.random.default_rng(0), 400_000
    cells = [rng.choice(c.n_cells, n, p=c.masses) for c in codecs.codecs]
    cells, positions = np.stack(cells, 1), rng.random((n, 2))
    clamped = dict(codecs.calendars[0].conditions(ends))
    assert list(clamped) == ["start"]
    drawn = codecs.decode(cells, positions)["start"]
    held = drawn.between(*ends).to_numpy()
    date = codecs.columns["start"]
    j = codecs.place("start")
    before = date.decode(cells[:, j], positions[:, j])
    low, high = (pd.Timestamp(end) for end in clamped["start"][0])
    assert before[held].between(low, high).all()


def test_conditions_on_several_instants(synthesizer):
    ends = ["2021-03-02T08:00", "2022-05-06T09:31"]
    sample = synthesizer.sample(20, random_state=0, given={"start": ends})["start"]
    assert set(sample) == set(pd.to_datetime(ends))
    sample = synthesizer.sample(3, given={"start": ("0001-01-01", None)})
    assert sample.notna().all(axis=None)


def test_instants_at_a_bound_are_conditions():
    bounds = {"lower": "2020-01-01T23:00", "upper": "2023-12-31"}
    rows = admissions(500)[["start"]].assign(start=pd.Timestamp("2020-01-01T23:00"))
    schema = Schema([Column("start", "datetime", **bounds, resolution="min")])
    fit = DPHFlowSynthesizer(100.0, schema=schema, **FEW).fit(rows)
    clamped = dict(fit._transformer.calendars[0].conditions("2020-01-01T23:00"))
    # Times before 23:00 are moved to the bound.
    times = clamped["start (time of day)"]
    assert times == [("1970-01-01", "1970-01-01T23:00:00")]


@pytest.mark.parametrize(
    "columns",
    [("x", "x (weekday)"), ("x", "x (time of day)"), (1, "1"), ("1 (weekday)", 1)],
)
def test_instants_are_whole_where_a_part_has_the_name_of_another(columns):
    start = admissions(300)["start"]
    rows = pd.DataFrame(dict(enumerate([start, start])))
    rows.columns = pd.Index(columns, dtype=object)
    schema = Schema.from_dtypes(rows)
    assert len(learned_columns(schema)) == len({*learned_columns(schema)}) >= 4
    fit = DPHFlowSynthesizer(**FEW).fit(rows)
    assert list(fit.sample(20, random_state=0)) == list(columns)
    assert any(column.cycles == () for column in fit.schema_)


def test_partial_rows(synthesizer):
    part = admissions(200, seed=5)[["start"]]
    whole = synthesizer.sample(given=part, random_state=0)
    assert whole["start"].equals(part["start"])
    late = part["start"].dt.hour >= 13
    assert ((whole["ward"] == "late") == late).mean() > 0.9


def test_files_and_scores(synthesizer, tmp_path):
    synthesizer.save(tmp_path / "model.dpg")
    again = load(tmp_path / "model.dpg")
    same = again.sample(100, random_state=1), synthesizer.sample(100, random_state=1)
    pd.testing.assert_frame_equal(*same)
    rows = admissions(500, seed=7)
    moved = rows.assign(start=rows["start"].dt.floor("D") + pd.Timedelta("3h"))
    scores = synthesizer.score_samples(rows), synthesizer.score_samples(moved)
    assert scores[0].mean() > scores[1].mean() + 1


def test_order_and_open_bounds():
    rows = admissions(1500)
    rows["end"] = rows["start"] + pd.Timedelta("30h")
    schema = Schema([], [LessEqual("start", "end")])
    fit = DPVAESynthesizer(schema=schema, **FEW).fit(rows)
    sample = fit.sample(500, random_state=0)
    assert (sample["end"] >= sample["start"]).all()
    assert sample["start"].dt.hour.between(6, 19).mean() > 0.8


def test_conditions_where_all_rows_are_of_one_day():
    start = pd.Timestamp("2020-03-04") + pd.to_timedelta(np.arange(3000), "s")
    fit = DPHFlowSynthesizer(30.0, **FEW).fit(pd.DataFrame({"start": start}))
    day = ("2020-03-04", "2020-03-05")
    assert len(fit.sample(9, random_state=0, given={"start": day})) == 9


def test_a_decoder_is_conditioned_on_the_column_of_its_name():
    rows = admissions(300)[["start", "ward"]]
    fit = DPVAESynthesizer(conditional="ward", **FEW).fit(rows)
    assert fit._model.condition == fit._transformer.place("ward") == 0
    assert set(fit.sample(50, given={"ward": "late"})["ward"]) == {"late"}


def test_dates_at_midnight_stay_there():
    rows = admissions(4000).assign(start=lambda t: t["start"].dt.floor("D"))
    schema = Schema([Column("start", "datetime", **YEARS)])
    fit = DPHFlowSynthesizer(schema=schema, **FEW).fit(rows)
    start = fit.sample(2000, random_state=0)["start"]
    assert (start == start.dt.floor("D")).mean() > 0.95
