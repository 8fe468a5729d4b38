"""What a release leaves out, and what comes back: dtypes, missing values, ranges."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpgenerative
from dpgenerative import (
    Column,
    Determines,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    Schema,
)
from dpgenerative.encoding.estimates import NEXT_NOISE, n_beyond, outermost
from dpgenerative.encoding.marginals import EMPTY_NOISE
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.exceptions import SamplingError
from dpgenerative.fitting.fit import PrivateFit
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.tables.column import OTHER
from dpgenerative.tables.files import stream_table

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

both = pytest.mark.parametrize("estimator", [DPHFlowSynthesizer, DPVAESynthesizer])
FAST = {"n_steps": 3, "batch_size": 64, "random_state": 0}


def released(frame, *, std, seed=0, schema=None, delta=1e-6):
    """Release the marginals of a frame of one column with a given noise."""
    schema = Schema([]) if schema is None else schema
    fitted = TableTransformer.fit(
        frame, schema.resolve(frame),
        Mechanisms(np.random.default_rng(seed), np.random.default_rng(0)),
        n_rows=len(frame), multiplier=std, delta=delta, n_bins=64,
        with_missing=schema.with_missing,
    )  # fmt: skip
    return next(iter(fitted.columns.values()))


# Dtypes -------------------------------------------------------------------------------


@both
def test_stated_levels_that_the_dtype_lacks_come_back(estimator, tmp_path):
    levels = ["x", "y", "z", "w"]
    schema = Schema([Column("a", "categorical", levels=levels, nullable=False)])
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": pd.Categorical(rng.choice(["x", "y"], 60)), "b": rng.normal(size=60)}
    )
    synthesizer = estimator(0.2, schema=schema, **FAST).fit(frame)
    synthesizer.save(tmp_path / "model.dpg")
    for fitted in (synthesizer, dpgenerative.load(tmp_path / "model.dpg")):
        tables = [fitted.sample(2000), fitted.sample(50, given={"a": "w"})]
        tables.append(fitted.sample(given=pd.DataFrame({"a": ["z"] * 5})))
        if estimator is DPVAESynthesizer:
            tables.append(fitted.decode(np.zeros((50, fitted._model.latent_dim))))
        for table in tables:
            assert table["a"].dtype == pd.CategoricalDtype(levels)
            assert not table["a"].isna().any()
    assert set(tables[0]["a"]) == set(levels)


def test_equal_levels_are_no_levels_of_a_category():
    schema = Schema([Column("a", "categorical", levels=["x", 1, True])])
    frame = pd.DataFrame({"a": ["x", 1, True] * 20})
    with pytest.raises(ValueError, match="Column 'a': a category dtype takes equal"):
        schema.resolve(frame.astype("category"), [])
    assert schema.resolve(frame, [])["a"].levels == ("x", 1, True)


def test_public_rows_may_have_levels_that_the_private_dtype_lacks(monkeypatch):
    frame = pd.DataFrame({"a": pd.Categorical(["x", "y"] * 30)})
    public = pd.DataFrame({"a": pd.Categorical(["z"] * 60)})
    schema = Schema([Column("a", "categorical", levels=["x", "y", "z"])])
    seen = []
    pretrain = PrivateFit._pretrain

    def watched(self, model, transformer, public):
        seen.append(transformer.encode(public))
        pretrain(self, model, transformer, public)

    monkeypatch.setattr(PrivateFit, "_pretrain", watched)
    DPHFlowSynthesizer(None, schema=schema).set_params(**FAST).fit(frame, public=public)
    assert np.unique(seen[0]).tolist() == [2]


# Missing values -----------------------------------------------------------------------


COMPLETE = {
    "float": pd.Series(np.random.default_rng(0).normal(size=3000)),
    "integer": pd.Series([1, 2, 3] * 1000, dtype="Int64"),
    "text": pd.Series(["a", "b", "c"] * 1000, dtype=object),
    "levels": pd.Series(pd.Categorical(["a", "b", "c"] * 1000)),
    "ordered": pd.Series(pd.Categorical(["a", "b", "c"] * 1000, ordered=True)),
    "times": pd.Series(pd.date_range("2001", periods=3000, freq="D")),
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", COMPLETE)
@pytest.mark.parametrize("std", [0.0, 5.0, 80.0])
def test_missing_values_within_the_noise_are_absent(name, std):
    """Three standard deviations: one fit in 700 has noise beyond."""
    frame = COMPLETE[name].to_frame("x")
    codecs = [released(frame, std=std, seed=seed) for seed in range(25)]
    nullable = [codec.column.nullable for codec in codecs]
    assert sum(nullable) <= 1
    for codec in codecs:
        codes = np.arange(codec.n_cells)
        if not codec.column.nullable:
            assert codec.decode(codes, np.zeros(len(codes))).notna().all()


@pytest.mark.parametrize("name", COMPLETE)
def test_missing_values_beyond_the_noise_keep_their_share(name):
    rng = np.random.default_rng(1)
    frame = COMPLETE[name].mask(pd.Series(rng.random(3000) < 0.2)).to_frame("x")
    for seed in range(5):
        codec = released(frame, std=5.0, seed=seed)
        assert codec.column.nullable
        assert codec.masses[-1] == pytest.approx(0.2, abs=0.05)


@pytest.mark.parametrize("name", COMPLETE)
def test_missing_values_that_are_stated_keep_their_cell(name):
    kind = Schema.from_dtypes(COMPLETE[name].to_frame("x"))["x"].kind
    schema = Schema([Column("x", kind, nullable=True)])
    frame = COMPLETE[name].to_frame("x")
    codecs = [released(frame, std=5.0, seed=s, schema=schema) for s in range(8)]
    assert all(codec.column.nullable for codec in codecs)
    assert any(codec.masses[-1] > 1e-4 for codec in codecs)


def test_a_constraint_that_speaks_of_missing_values_states_them():
    rule = Determines(["sex"], "weeks", {"m": None})
    levels = {"levels": ["m", "f"], "nullable": False}
    schema = Schema([Column("sex", "categorical", **levels)], [rule])
    assert schema.with_missing == {"weeks"}
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"sex": ["m", "f"] * 100, "weeks": rng.normal(size=200)})
    fitted = DPHFlowSynthesizer(1.0).set_params(schema=schema, **FAST).fit(frame)
    sample = fitted.sample(300)
    assert (sample["weeks"].isna() | (sample["sex"] == "f")).all()


@both
def test_a_complete_table_stays_complete_at_a_low_epsilon(estimator):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(1500, 8)), columns=list("abcdefgh"))
    frame["i"] = rng.choice(["x", "y"], len(frame))
    fitted = estimator(0.1, **FAST).fit(frame)
    gone = [column.name for column in fitted.schema_.columns if not column.nullable]
    assert len(gone) >= 7
    assert fitted.sample(3000)[gone].notna().all(axis=None)
    note = next(n for n in fitted.privacy_.notes if n.startswith("Missing values"))
    assert ", ".join(gone) in note
    assert "nullable=True" in note
    with pytest.raises(ValueError, match="no missing values"):
        fitted.sample(5, given={gone[0]: None})
    frame.loc[::2, gone] = None
    assert np.isfinite(fitted.score_samples(frame)).all()


def test_the_door_of_sample_lets_no_missing_value_through(monkeypatch):
    schema = Schema([Column("id", "categorical", role="id")])
    frame = pd.DataFrame({"id": ["a", "b"] * 40, "x": range(80)})
    fitted = DPVAESynthesizer(None).set_params(schema=schema, **FAST).fit(frame)
    with pytest.raises(SamplingError, match="missing in id"):
        fitted.sample(given=pd.DataFrame({"id": ["a", None]}))
    assert fitted.sample(given=pd.DataFrame({"id": ["a", "c"]}))["id"].tolist() == [
        "a",
        "c",
    ]
    whole = TableTransformer.rows

    def broken(self, *args):
        frame, inside = whole(self, *args)
        return frame.astype({"x": float}).assign(x=np.nan), inside

    monkeypatch.setattr(TableTransformer, "rows", broken)
    draws = (fitted.sample, lambda: fitted.decode(np.zeros((1, 1)).repeat(2, 1)))
    for draw in draws:
        with pytest.raises(SamplingError, match="missing in x"):
            draw()


# Ranges -------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(0, 9), (0, 1), (-5, 5), (3, 6), (0, 2)])
def test_integers_of_few_values_stay_in_their_range(low, high):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.integers(low, high + 1, 4000)})
    ends = [
        (column.lower, column.upper)
        for column in (released(frame, std=8.0, seed=s).column for s in range(20))
    ]
    assert sum(end == (low, high) for end in ends) >= 18


def test_a_magnitude_does_not_hold_its_end():
    """A rare 1, and never a 2."""
    rare = pd.DataFrame({"x": (np.arange(4000) % 50 == 0).astype(int)})
    uppers = [released(rare, std=3.0, seed=s).column.upper for s in range(20)]
    assert set(uppers) == {1.0}
    days = (pd.to_timedelta(rare["x"], "D")).to_frame("x")
    stays = Schema([Column("x", "timedelta", resolution="D")])
    column = released(days, std=3.0, schema=stays).column
    assert pd.Timedelta(column.upper) == pd.Timedelta(1, "D")
    for dtype in ("Int64", "float64"):
        schema = Schema([Column("x", "integer")])
        frame = pd.DataFrame({"x": pd.Series([1, 2, 3, 4] * 50, dtype=dtype)})
        assert released(frame, std=0.0, schema=schema).column.upper == 4
        frame = pd.DataFrame({"x": pd.Series([1, 2, 3, 3] * 50, dtype=dtype)})
        assert released(frame, std=0.0, schema=schema).column.upper == 3


def test_bounds_found_on_a_grid_are_numbers_as_people_write_them():
    """0.3, and not 3 times 0.1."""
    frame = pd.DataFrame({"x": np.arange(3, 12).repeat(100) / 10})
    schema = Schema([Column("x", "continuous", resolution=0.1)])
    column = released(frame, std=1.0, schema=schema).column
    assert (column.lower, column.upper) == (0.3, 1.1)


@pytest.mark.parametrize("seed", range(5))
def test_tails_that_fade_are_not_cut(seed):
    rng = np.random.default_rng(seed)
    values = np.round(rng.lognormal(6, 1.6, 10_000)).astype(int)
    column = released(pd.DataFrame({"x": values}), std=20.0, seed=seed).column
    # Where the next power of two has more rows than the noise can hide.
    assert (values > column.upper).sum() < 4 * 2 * 20
    assert np.log2(column.upper + 1) % 1 == 0


def test_the_end_of_rows_is_where_counts_stop():
    widths, stds = np.ones(6), np.full(6, 5.0)
    assert n_beyond(np.array([1000, 990, 1010, 980, 3.0, -4]), stds, widths) == 2
    # Rows that decline steeply may go on to do so; some are seen; there is no end.
    assert n_beyond(np.array([9000, 1500, 200, 25, 3.0, 1]), stds, widths) == 0
    assert n_beyond(np.array([1000, 990, 1010, 980, 30.0, 20]), stds, widths) == 0
    assert n_beyond(np.array([1000, 990, 1010, 980, 1000.0, 990]), stds, widths) == 0
    # The interval before the end is wide, the one beyond is narrow.
    wide = np.array([1, 1, 1, 200.0])
    assert n_beyond(np.array([800, 800, 800, 5.0]), np.full(4, 5.0), wide) == 1
    # 400, 100: 25 are to be expected; from the middle of a wide one to the next, 6.
    for sizes, std, most in (([1, 1, 1, 1], 5, 2.5), ([1, 1, 2, 2], 1, 1.125)):
        for count, found in ((most - 0.1, 1), (most + 0.1, 0)):
            rows = np.array([400, 400, 100, count])
            assert n_beyond(rows, np.full(4, std), np.array(sizes)) == found


SIGNED = np.array([32, 16, 8, 4, 2, 1, 2, 4, 8, 16, 32])


@pytest.mark.parametrize(
    ("counts", "n_rows", "expected"),
    [
        # Next to occupied magnitudes, alone or together, fewer rows are seen.
        ([0, 0, 0, 0, 0, 0, NEXT_NOISE + 1, 50, 0, 0, 0], 50, (6, 7)),
        ([0, 0, 0, 0, 0, 0, 0, 50, 2.5, 2.5, 0], 50, (7, 9)),
        ([0, 0, 0, 0, 0, 0, 0, NEXT_NOISE + 1, 0, 0, 0], 4, (0, -1)),
        # None stands out alone, but four do together, and four of both signs.
        ([0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 0], 16, (6, 9)),
        ([0, 3, 3, 3, 3, 0, 3, 3, 3, 3, 0], 24, (1, 9)),
        # Beyond 0 lie magnitudes of the same size.
        ([0, 0, 9, 0, 0, 0, 0, 50, 50, 0, 0], 109, (2, 8)),
        # Half of the rows are elsewhere: on the other side, or a little further out.
        ([0, 0, 0, 0, 0, 0, 0, 50, 0, 0, 0], 100, (2, 8)),
    ],
)
def test_magnitudes_that_hold_rows(counts, n_rows, expected):
    assert outermost(np.array(counts, float), 1.0, SIGNED, n_rows) == expected


def test_bounds_that_no_row_fits_are_noted():
    gains = [0] * 5000 + [700] * 1000
    frame = pd.DataFrame({"age": np.arange(6000) % 60 + 20, "gain": gains})
    for bounds, noted in (((0, 99), False), ((200, 300), True), ((0, 10), True)):
        low, high = bounds
        schema = Schema(
            [
                Column("age", "integer", lower=low, upper=high),
                Column("gain", "integer", lower=0, upper=999),
            ]
        )
        model = DPHFlowSynthesizer(epsilon=90.0, schema=schema, n_steps=2).fit(frame)
        notes = str(model.privacy_.notes)
        assert ("values of age lie at a stated bound" in notes) == noted
        assert "values of gain" not in notes


@pytest.mark.parametrize(
    ("counts", "n_rows", "expected"),
    [
        # Sixteen years together stand out, and none of eight.
        ([0] * 20 + [2.0] * 16 + [0] * 20, 32, (20, 35)),
        # Where rows may be missing, half as many years more hold some.
        ([0] * 20 + [2.0] * 16 + [0] * 20, 64, (12, 44)),
        # A window of 16 or 32 years ends with those that hold rows.
        ([0] * 20 + [90.0] * 12 + [0] * 20, 1080, (20, 31)),
    ],
)
def test_years_that_hold_rows(counts, n_rows, expected):
    years = np.arange(1, len(counts) + 1)
    found = outermost(np.array(counts, float), 1.0, years, n_rows, are_years=True)
    assert found == expected


def test_missing_values_do_not_widen_bounds():
    frame = pd.DataFrame({"x": [*np.linspace(2, 3, 500), *[np.nan] * 9500]})
    for epsilon in (None, 5.0):
        column = DPHFlowSynthesizer(epsilon, n_steps=2).fit(frame).schema_["x"]
        assert (column.lower, column.upper) == (2, 4)


@pytest.mark.parametrize("n_rows", [400, 1000])
def test_few_rows_on_both_sides_of_zero_are_not_cut_off(n_rows):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(n_rows, 2)))
    column = DPHFlowSynthesizer(n_steps=2).fit(frame.add_prefix("x")).schema_["x0"]
    assert column.lower <= -1
    assert column.upper >= 1


def test_the_report_says_what_the_domain_leaves_out():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "balance": rng.lognormal(6, 2, 2000).astype(int),
            "zip": [f"{z:05d}" for z in np.minimum(rng.zipf(1.3, 2000), 9999)],
            "age": rng.integers(0, 90, 2000),
        }
    )
    schema = Schema([Column("age", "integer", lower=0, upper=120)])
    notes = (
        DPHFlowSynthesizer(2.0)
        .set_params(schema=schema, **FAST)
        .fit(frame)
        .privacy_.notes
    )
    assert any(n.startswith("Bounds of balance were estimated") for n in notes)
    assert any(n.startswith("Levels of zip were estimated") for n in notes)
    assert not any("age" in n for n in notes[:3])


# One value ----------------------------------------------------------------------------

CONSTANTS = {
    "three": 3, "negative": -7, "zero": 0, "large": 99_999, "half": 2.5, "tiny": 0.01,
    "below": -1e6, "day": pd.Timestamp("2020-02-03"), "hours": pd.Timedelta("36h"),
}  # fmt: skip


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", CONSTANTS)
def test_a_column_that_counts_show_to_be_one_value_is_that_value(name):
    frame = pd.DataFrame({"x": [CONSTANTS[name]] * 2000})
    decoded = [drawn(frame, seed) for seed in range(10)]
    assert sum((each == CONSTANTS[name]).all() for each in decoded) >= 9
    frame.loc[::4, "x"] = None
    codec = released(frame, std=5.0)
    assert codec.column.nullable
    assert codec.n_cells == 2
    assert codec.masses[1] == pytest.approx(0.25, abs=0.03)


def drawn(frame, seed, schema=None):
    """Return what every cell of a released column decodes to, at 50 places."""
    std = len(frame) / (400 if schema is None else 4000)
    codec = released(frame, std=std, seed=seed, schema=schema)
    cells = np.repeat(np.arange(codec.n_cells - bool(codec.column.nullable)), 50)
    return codec.decode(cells, np.random.default_rng(0).random(len(cells)))


def test_stated_bounds_of_a_constant_stay():
    frame = pd.DataFrame({"x": [3] * 8000})
    schema = Schema([Column("x", "integer", lower=-1000, upper=100_000)])
    codec = released(frame, std=2.0, schema=schema)
    assert (codec.column.lower, codec.column.upper) == (-1000, 100_000)
    assert (drawn(frame, 0, schema) == 3).all()
    assert codec.log_within(frame["x"])[0] == pytest.approx(0, abs=1e-9)
    # Noise hides more than 0.5 % of the rows elsewhere.
    assert released(frame, std=120.0, schema=schema).n_cells > 3


@pytest.mark.parametrize("values", [[3] * 9 + [2], [0] * 9 + [1], [2.5] * 9 + [4.0]])
def test_a_second_value_beyond_the_noise_stays(values):
    frame = pd.DataFrame({"x": values * 200})
    assert all(drawn(frame, seed).nunique() > 1 for seed in range(10))


def test_of_two_values_that_are_stated_both_can_occur():
    frame = pd.DataFrame({"x": [0] * 2000})
    schema = Schema([Column("x", "integer", lower=0, upper=1)])
    assert set(drawn(frame, 0, schema)) == {0, 1}


@both
def test_a_constant_column_is_sampled_as_such(estimator, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.integers(18, 90, 2000), "c": 3})
    fitted = estimator(1.0, **FAST).fit(frame)
    fitted.save(tmp_path / "model.dpg")
    for each in (fitted, dpgenerative.load(tmp_path / "model.dpg")):
        assert set(each.sample(2000)["c"]) == {3}
        assert set(each.sample(9, given={"c": 3})["c"]) == {3}
        assert (each.schema_["c"].lower, each.schema_["c"].upper) == (3, 3)
    assert np.isfinite(fitted.score_samples(frame)).all()
    assert any("c (3)" in note for note in fitted.privacy_.notes)


# Other --------------------------------------------------------------------------------


def zips(n=4000):
    rng = np.random.default_rng(0)
    frequent = rng.choice(["10115", "20095", "80331"], n)
    rare = [f"9{k:04d}" for k in range(n)]
    return pd.DataFrame(
        {
            "zip": np.where(rng.random(n) < 0.3, rare, frequent),
            "x": rng.integers(0, 4, n),
        }
    )


@pytest.mark.parametrize("dtype", [object, "string"])
def test_rare_text_shares_a_level(dtype, tmp_path):
    frame = zips().astype({"zip": dtype})
    fitted = DPHFlowSynthesizer(3.0).set_params(**FAST).fit(frame)
    column = fitted.schema_["zip"]
    assert column.levels == ("10115", "20095", "80331", OTHER)
    assert (column.other, column.nullable) == (OTHER, False)
    fitted.save(tmp_path / "model.dpg")
    again = dpgenerative.load(tmp_path / "model.dpg")
    for each in (fitted, again):
        sample = each.sample(2000)
        assert (sample["zip"] == OTHER).mean() == pytest.approx(0.3, abs=0.05)
        assert set(each.sample(9, given={"zip": OTHER})["zip"]) == {OTHER}
        given = pd.DataFrame({"zip": ["99999", "10115"]}, dtype=dtype)
        assert each.sample(given=given)["zip"].tolist() == ["99999", "10115"]
    scored = frame.iloc[:2].assign(zip=["unseen", "other"], x=[1, 1])
    first, second = fitted.score_samples(scored.astype(frame.dtypes))
    assert first == second
    assert Schema.from_dict(fitted.schema_.to_dict()) == fitted.schema_


def test_a_level_called_other_is_not_the_rare_ones(tmp_path):
    frame = zips().replace({"zip": {"10115": "other", "20095": "(other)"}})
    fitted = DPHFlowSynthesizer(3.0).set_params(**FAST).fit(frame)
    column = fitted.schema_["zip"]
    assert (column.other, column.levels[-1]) == ("((other))", "((other))")
    fitted.save(tmp_path / "model.dpg")
    for each in (fitted, dpgenerative.load(tmp_path / "model.dpg")):
        shares = each.sample(2000)["zip"].value_counts(normalize=True)
        for level, share in (("other", 0.7 / 3), ("((other))", 0.3)):
            assert shares[level] == pytest.approx(share, abs=0.05)
            assert set(each.sample(9, given={"zip": level})["zip"]) == {level}
    rows = frame.iloc[:2].assign(zip=["9?", "other"], x=1)
    assert len(set(fitted.score_samples(rows))) == 2
    assert Schema.from_dict(fitted.schema_.to_dict()) == fitted.schema_
    note = next(n for n in fitted.privacy_.notes if n.startswith("Levels of"))
    assert "'((other))'" in note


WORDS = ["other", "missing", "nan", "None", "", "NA", "null", "<NA>", "NaN"]


@pytest.mark.parametrize("levels", [WORDS, None])
def test_no_level_is_a_reserved_word(levels):
    frame = pd.DataFrame({"x": [*WORDS, None] * 400}, dtype=object)
    schema = Schema([Column("x", "categorical", levels=levels)])
    codec = released(frame, std=5.0, schema=schema)
    cells = codec.encode(frame["x"].iloc[: len(WORDS) + 1])
    assert codec.masses[cells] == pytest.approx(np.full(len(cells), 0.1), abs=0.02)
    assert codec.decode(cells, np.full(len(cells), 0.5)).tolist() == [*WORDS, None]


def test_other_alone_or_zero_alone_is_a_level_that_was_released():
    frame = pd.DataFrame({"x": ["other"] * 500, "y": [0] * 500})
    params = {**FAST, "categorical_features": ["y"]}
    fitted = DPHFlowSynthesizer(5.0).set_params(**params).fit(frame)
    assert not any("frequent enough" in note for note in fitted.privacy_.notes)
    assert set(fitted.sample(500)["x"]) == {"other"}


def test_other_is_absent_where_all_text_is_found():
    frame = pd.DataFrame({"x": pd.Series(["a", "b"] * 1000, dtype=object)})
    found = [released(frame, std=10.0, seed=s).column for s in range(25)]
    assert sum(column.levels == ("a", "b") for column in found) >= 23
    assert all(c.other == (OTHER if OTHER in c.levels else None) for c in found)


def test_other_can_be_stated(tmp_path):
    column = Column("zip", "categorical", levels=["10115"], other="elsewhere")
    assert column.levels == ("10115", "elsewhere")
    assert Schema([column]).check(zips()).empty
    codec = released(zips()[["zip"]], std=0.0, schema=Schema([column]))
    assert codec.encode(pd.Series(["10115", "?", "elsewhere"])).tolist() == [0, 1, 1]
    zips().to_csv(tmp_path / "t.csv", index=False)
    schema = Schema([column, Column("x", "integer")])
    read = stream_table(tmp_path / "t.csv", schema).whole()
    assert set(read["zip"]) == {"10115", "elsewhere"}
    for facts in (
        {"kind": "integer"},
        {"kind": "categorical", "levels": ["a"], "ordered": True},
        {"kind": "categorical", "role": "id"},
    ):
        with pytest.raises(ValueError, match="other"):
            Column("x", other="rest", **facts)
    with pytest.raises(ValueError, match="cannot hold"):
        Schema([Column("x", "categorical", other="rest")]).resolve(zips())


@pytest.mark.parametrize(
    ("dtype", "levels", "fits"),
    [
        ("float32", [0.1, 0.2], True),
        ("float16", [1.0, 1e9], False),
        ("int8", [1, 300], False),
        ("string", ["a", 3], False),
        (pd.ArrowDtype(pa.string()), ["a", 3], False),
        (pd.ArrowDtype(pa.float16()), [False, True], False),
        (object, ["a", 3], True),
    ],
)
def test_levels_that_a_dtype_cannot_hold_are_refused_at_once(dtype, levels, fits):
    frame = pd.DataFrame({"x": pd.array([], dtype=dtype)})
    schema = Schema([Column("x", "categorical", levels=levels)])
    if fits:
        assert schema.resolve(frame)["x"].levels == tuple(levels)
        return
    with pytest.raises(ValueError, match="cannot hold the levels"):
        schema.resolve(frame)


def test_numbers_have_an_other_where_it_is_stated():
    frame = pd.DataFrame({"x": [3, 4] * 400 + list(range(100, 300))})
    schema = Schema([Column("x", "categorical", other=-1)])
    codec = released(frame, std=4.0, schema=schema)
    assert codec.column.levels == (3, 4, -1)
    assert codec.masses[-1] == pytest.approx(0.2, abs=0.05)
    assert EMPTY_NOISE * 4 < 200
