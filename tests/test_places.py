"""Columns that belong together are learned as one column of places."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dpgenerative import (
    Column,
    Derived,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    Impossible,
    LessEqual,
    Schema,
    SyntheticRegressor,
    forecast,
    load,
)
from dpgenerative.cli import main
from dpgenerative.encoding.places import Places, place_columns
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.exceptions import SamplingError
from dpgenerative.fitting.recipe import FitSize
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.synthesizers.flow_rules import ordered_only
from dpgenerative.tables.private import Private
from tests.fits import few_rows_to_rake, shared

LAT = Column("lat", "continuous", lower=47, upper=48, resolution=1e-4)
LONG = Column("long", "continuous", lower=-123, upper=-121)
FLOOR = Column("floor", "integer", lower=-1, upper=3)
FLAT = Column("flat", "continuous", lower=5, upper=5)
AGE = Column("age", "integer", lower=0, upper=100)
CENTRES = np.array([[47.2, -122.6], [47.7, -121.3]])
SETS = {
    "two": [LAT, LONG],
    "three": [LAT, LONG, FLOOR],
    "few values": [FLOOR, LAT],
    "one value": [FLAT, LONG],
    "nothing else": [FLAT, replace(FLAT, name="floor", kind="integer", lower=5)],
}


def homes(n=2000, seed=0, missing=0.0):
    """Return homes in two towns, far from which nobody lives."""
    rng = np.random.default_rng(seed)
    town = rng.integers(0, 2, n)
    place = CENTRES[town] + rng.normal(0, 1, (n, 2)) * [0.01, 0.02]
    frame = pd.DataFrame(
        {
            "age": 30 + 30 * town + rng.integers(0, 9, n),
            "long": place[:, 1], "flat": 5.0, "floor": rng.integers(-1, 4, n),
            "lat": place[:, 0].round(4),
            "view": rng.choice(["sea", "hill"], n),
        }
    )  # fmt: skip
    frame.loc[rng.random(n) < missing, "lat"] = np.nan
    return frame


def schema_of(columns=SETS["two"], **facts):
    names = tuple(column.name for column in columns)
    return Schema([*columns, AGE], joint=[names], **facts)


@shared
def fitted(
    kind=DPHFlowSynthesizer, missing=0.0, nullable=None, constrained=False, n_columns=2
):
    columns = [
        Column("lat", "continuous", 47, 48, resolution=1e-4, nullable=nullable), LONG,
        FLOOR,
    ][:n_columns]  # fmt: skip
    rules = [LessEqual("floor", "age"), Impossible({"lat": (47.21, 47.3)})]
    schema = schema_of(columns, constraints=rules if constrained else [])
    params = {"n_steps": 20, "noise": "reproducible", "random_state": 0}
    with few_rows_to_rake():
        frame = homes(missing=missing)
        return kind(epsilon=20, schema=schema, **params).fit(frame)


def transformer(columns, n_bins=16, multiplier=0.0, frame=None):
    frame = homes()[[c.name for c in columns]] if frame is None else frame
    schema = Schema(columns, joint=[[c.name for c in columns]]).resolve(frame)
    door = Mechanisms(np.random.default_rng(0), np.random.default_rng(1))
    return TableTransformer.fit(
        Private(frame), schema, door, n_rows=len(frame), multiplier=multiplier,
        delta=1e-6, n_bins=n_bins,
    )  # fmt: skip


def of_town(frame):
    """Return the nearest town of every row, and how many deviations away it is."""
    apart = (frame[["lat", "long"]].to_numpy(float)[:, None] - CENTRES) / [0.01, 0.02]
    distances = np.hypot(*np.moveaxis(apart, 2, 0))
    return distances.argmin(1), distances.min(1)


# Numbers ------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", SETS.values(), ids=SETS)
def test_values_come_back_to_their_own_cell(columns):
    made = transformer(columns)
    rng = np.random.default_rng(0)
    (codec,), (place,) = made.codecs, made.places
    codes = rng.choice(codec.n_cells, 3000, p=codec.masses)[:, None]
    positions = rng.random(codes.shape)
    frame = made.decode(codes, positions)
    np.testing.assert_array_equal(made.encode(frame), codes)
    assert set(frame.columns) == set(place.names)


@pytest.mark.parametrize("columns", SETS.values(), ids=SETS)
def test_half_an_interval_of_numbers_is_half_a_box(columns):
    place = Places.fitted(columns, {c.name: np.dtype(float) for c in columns})
    parts, n = np.array(place._parts), place.n_places
    np.testing.assert_array_equal(np.unique(parts, axis=1).shape[1], n)
    width = n
    while width >= 1:
        for start in range(0, n, max(width, n // 8)):
            box = parts[:, start : start + width]
            sides = box.max(axis=1) - box.min(axis=1) + 1
            assert np.prod(sides) == width
        width //= 2


def test_places_are_numbered_along_a_curve_whatever_the_first_column():
    column = place_columns(schema_of())["lat"]
    assert column.lower == 2**16
    assert column.upper == 2**17 - 1
    assert not column.is_ordered
    assert place_columns(schema_of())["long"] is None


@pytest.mark.parametrize("columns", SETS.values(), ids=SETS)
def test_probabilities_of_values_sum_to_one(columns):
    made = transformer(columns)
    grids = [
        np.arange(c.lower, c.upper + 1)
        if c.kind == "integer" or c.lower == c.upper
        else np.linspace(c.lower, c.upper, 513)[:-1] + (c.upper - c.lower) / 1026
        for c in columns
    ]
    points = np.stack(np.meshgrid(*grids, indexing="ij"), -1).reshape(-1, len(columns))
    frame = pd.DataFrame(points, columns=[c.name for c in columns])
    log = np.log(made.codecs[0].masses)[made.encode(frame)[:, 0]]
    density = np.exp(log + made.log_within(frame))
    measure = 1.0
    for column, values in zip(columns, grids, strict=True):
        if column.step is None and column.lower == column.upper:
            measure *= np.spacing(column.upper)
        elif len(values) == 512:
            measure *= (column.upper - column.lower) / 512 / (column.step or 1.0)
    assert density.sum() * measure == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("resolution", [None, 1.0])
def test_bounds_may_be_as_wide_as_floats(resolution):
    most = np.finfo(float).max / 2
    wide = [
        Column(name, "continuous", -most, most, resolution=resolution) for name in "ab"
    ]
    frame = pd.DataFrame({"a": [0.0, 1e300, -1e300] * 50, "b": [most, 2.0, -3.0] * 50})
    made = transformer(wide, frame=frame)
    codes = np.arange(made.codecs[0].n_cells)[:, None]
    assert np.isfinite(made.log_within(frame)).all()
    drawn = made.decode(codes, np.full(codes.shape, 0.3))
    np.testing.assert_array_equal(made.encode(drawn), codes)


def test_density_is_smooth_between_boxes_and_boxes_keep_their_mass():
    made = transformer([LAT, LONG])
    (place,), (codec,) = made.places, made.codecs
    np.testing.assert_allclose(np.bincount(place.cells, place.shares), 1.0)
    assert len(np.bincount(place.cells)) == codec.n_cells
    even = replace(place)
    even.__dict__["shares"] = 1 / np.bincount(place.cells)[place.cells]
    fresh = homes(seed=1)[["lat", "long"]]
    smooth, flat = (each.log_within(fresh).mean() for each in (place, even))
    assert smooth > flat + 0.05


def test_a_row_is_counted_in_one_cell():
    class Counter(Mechanisms):
        def gaussian(self, values, std, *, release, sensitivity):
            from dpgenerative.tables.private import opened

            totals.append(opened(values).sum())
            return super().gaussian(
                values, std, release=release, sensitivity=sensitivity
            )

    totals = []
    frame = homes(missing=0.1)[["lat", "long"]]
    schema = Schema([LAT, LONG], joint=[("lat", "long")]).resolve(frame)
    TableTransformer.fit(
        Private(frame), schema, Counter(*map(np.random.default_rng, (0, 1))),
        n_rows=len(frame), multiplier=0.01, delta=1e-6, n_bins=16,
    )  # fmt: skip
    assert 3 <= len(totals) <= 5
    assert max(totals) == len(frame)


# Fits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DPHFlowSynthesizer, DPVAESynthesizer])
def test_samples_lie_where_rows_lie(kind):
    synthesizer = fitted(kind)
    frame, drawn = homes(), synthesizer.sample(2000, random_state=0)
    assert list(drawn.columns) == list(frame.columns)
    assert drawn.dtypes.to_dict() == frame.dtypes.to_dict()
    assert drawn["lat"].between(47, 48).all()
    assert drawn["long"].between(-123, -121).all()
    np.testing.assert_allclose(drawn["lat"], drawn["lat"].round(4), atol=1e-9)
    # A third of the rows of two independent columns would lie far from both towns.
    assert (of_town(drawn)[1] > 5).mean() < 0.05


def test_other_columns_depend_on_places():
    drawn = fitted().sample(2000, random_state=0)
    town, _ = of_town(drawn)
    assert drawn["age"][town == 1].mean() - drawn["age"][town == 0].mean() > 15


def test_missing_values_are_missing_together():
    drawn = fitted(missing=0.2, nullable=True).sample(2000, random_state=0)
    assert drawn["lat"].isna().mean() == pytest.approx(0.2, abs=0.05)
    assert (drawn["lat"].isna() == drawn["long"].isna()).all()


def test_constraints_hold():
    drawn = fitted(constrained=True).sample(1000, random_state=0)
    assert (drawn["floor"] <= drawn["age"]).all()
    assert not drawn["lat"].between(47.21, 47.3).any()


def test_columns_without_missing_values_have_none():
    frame = homes().astype({"floor": int})
    schema = Schema([FLOOR, LAT], joint=[("floor", "lat")])
    frame.loc[3, "lat"] = np.nan
    params = {"n_steps": 2, "noise": "reproducible", "random_state": 0}
    with few_rows_to_rake():
        synthesizer = DPHFlowSynthesizer(schema=schema, **params).fit(frame)
    drawn = synthesizer.sample(500, random_state=0)
    assert drawn["floor"].dtype == frame["floor"].dtype
    assert not drawn[["floor", "lat"]].isna().to_numpy().any()
    assert drawn["floor"].between(-1, 3).all()


def test_models_without_counted_cells_are_refused():
    synthesizer = DPHFlowSynthesizer(schema=schema_of(), n_steps=2)
    synthesizer.set_params(architecture__anchored=False)
    with pytest.raises(ValueError, match=r"'joint' .* must not be stated for a model"):
        synthesizer.fit(homes(200))


def test_files_hold_places(tmp_path):
    synthesizer = fitted()
    synthesizer.save(tmp_path / "model.dpg")
    again = load(tmp_path / "model.dpg")
    assert again.schema_ == synthesizer.schema_
    pd.testing.assert_frame_equal(
        again.sample(200, random_state=3), synthesizer.sample(200, random_state=3)
    )


def test_densities_are_those_of_places():
    scores = fitted().score_samples(pd.concat([homes(50), homes(50).assign(lat=47.9)]))
    assert np.isfinite(scores).all()
    assert scores[:50].mean() > scores[50:].mean() + 2


def test_reports_say_what_is_learned_together():
    report = str(fitted().privacy_)
    assert "learned together: lat, long" in report
    assert "lie at a stated bound" not in report


def test_forecasts_count_one_column():
    table = forecast(schema_of(), 10_000, epsilon=1).columns
    assert table["column"].tolist().count("lat") == 1
    assert "long" not in table["column"].tolist()


def test_predictors_take_places():
    columns = ["lat", "long", "age"]
    params = {"n_steps": 20, "noise": "reproducible", "random_state": 0, "epsilon": 20}
    synthesizer = DPHFlowSynthesizer(schema=schema_of(), **params)
    from sklearn.tree import DecisionTreeRegressor

    frame = homes()[columns]
    with few_rows_to_rake():
        model = SyntheticRegressor(synthesizer, DecisionTreeRegressor(max_depth=3))
        model.fit(frame[["lat", "long"]], frame["age"])
    assert model.score(frame[["lat", "long"]], frame["age"]) > 0.5


# Conditions and partial rows ----------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"lat": (47.5, None)},
        {"lat": [(47.19, 47.21), (47.7, 47.71)], "long": (-122.7, -122.5)},
        {"lat": 47.2},
        {"lat": (47.5, math.inf), "long": (-math.inf, -121)},
        {"long": (None, -122), "age": (60, 70)},
    ],
)
def test_conditions_hold(given):
    drawn = fitted().sample(50, given=given, random_state=0)
    from dpgenerative.tables.conditions import satisfies

    for name, condition in given.items():
        assert satisfies(drawn[name], condition).all()


def test_missing_places_can_be_asked_for():
    drawn = fitted(missing=0.2, nullable=True).sample(
        50, given={"lat": None}, random_state=0
    )
    assert drawn[["lat", "long"]].isna().all(axis=None)


def test_conditions_are_followed_in_proportion():
    synthesizer = fitted()
    free = synthesizer.sample(20_000, random_state=0)
    free = free[free["lat"] > 47.5]["age"].mean()
    drawn = synthesizer.sample(4000, given={"lat": (47.5, None)}, random_state=0)
    assert drawn["age"].mean() == pytest.approx(free, abs=1.5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lat": 49}, "can never hold: it is outside the bounds"),
        ({"long": -122.6}, "one number of the continuum 'long' has probability 0"),
        ({"lat": None, "long": (-122, None)}, "no values of the columns"),
    ],
)
def test_conditions_that_no_place_meets_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        fitted(missing=0.2, nullable=True).sample(5, given=given, random_state=0)


@pytest.mark.parametrize("kind", [DPHFlowSynthesizer, DPVAESynthesizer])
def test_rows_are_completed_by_one_coordinate(kind):
    given = pd.DataFrame({"lat": np.repeat(CENTRES[:, 0], 200)})
    drawn = fitted(kind).sample(given=given, random_state=0)
    assert (drawn["lat"] == given["lat"]).all()
    town, distance = of_town(drawn)
    assert (town == np.repeat([0, 1], 200)).mean() > 0.9
    assert np.median(distance) < 3


@pytest.mark.parametrize("names", [["lat"], ["floor", "lat"], ["floor", "long"]])
def test_rows_are_completed_by_some_of_three_columns(names):
    given = pd.DataFrame(np.repeat(CENTRES, 50, axis=0), columns=["lat", "long"])
    given["floor"] = np.resize([-1, 0, 1, 2, 3], 100)
    drawn = fitted(n_columns=3).sample(given=given[names], random_state=0)
    pd.testing.assert_frame_equal(drawn[names], given[names], check_dtype=False)
    town, distance = of_town(drawn)
    assert (town == np.repeat([0, 1], 50)).mean() > 0.9
    assert np.median(distance) < 4


def test_rows_are_completed_by_both_coordinates_or_the_others():
    given = pd.DataFrame(np.repeat(CENTRES, 200, axis=0), columns=["lat", "long"])
    drawn = fitted().sample(given=given, random_state=0)
    pd.testing.assert_frame_equal(drawn[["lat", "long"]], given)
    age = drawn["age"].to_numpy()
    assert age[200:].mean() - age[:200].mean() > 15
    drawn = fitted().sample(given=drawn[["age"]], random_state=0)
    assert (of_town(drawn)[0] == np.repeat([0, 1], 200)).mean() > 0.75


def test_missing_coordinates_are_imputed():
    frame = homes(300, missing=0.3)
    frame.loc[::5, "long"] = np.nan
    synthesizer = fitted(missing=0.2, nullable=True)
    filled = synthesizer.sample(given=frame, impute=True, random_state=0)
    assert not filled[["lat", "long"]].isna().to_numpy().any()
    for name in ("lat", "long"):
        given = ~frame[name].isna()
        assert (filled[name][given] == frame[name][given]).all()
    assert np.median(of_town(filled)[1]) < 3


def test_a_row_given_with_one_missing_coordinate_counts_as_missing():
    given = pd.DataFrame({"lat": [np.nan] * 20})
    drawn = fitted(missing=0.2, nullable=True).sample(given=given, random_state=0)
    assert drawn[["lat", "long"]].isna().all(axis=None)


# What is stated -----------------------------------------------------------------------


def test_schemas_come_back_from_json():
    schema = schema_of()
    facts = json.loads(json.dumps(schema.to_dict()))
    assert facts["joint"] == [["lat", "long"]]
    assert Schema.from_dict(facts) == schema
    assert "joint=[('lat', 'long')]" in repr(schema)
    assert "joint: lat, long" in schema._repr_html_()
    assert "joint" not in Schema([LAT, LONG]).to_dict()


def test_the_command_line_takes_places(tmp_path):
    homes(300)[["lat", "long", "age"]].to_csv(tmp_path / "homes.csv", index=False)
    text = json.dumps(schema_of().to_dict())
    (tmp_path / "schema.json").write_text(text)
    files = [str(tmp_path / name) for name in ("homes.csv", "model.dpg", "drawn.csv")]
    options = ["--schema", str(tmp_path / "schema.json"), "--set", "n_steps=2"]
    assert main(["fit", files[0], "-o", files[1], "--epsilon", "5", *options]) in (
        0,
        None,
    )
    assert main(["sample", files[1], "-o", files[2], "-n", "20"]) in (0, None)
    assert len(pd.read_csv(files[2])) == 20


NAMES = ("lat", "long")
DATE = Column("day", "datetime", lower="2020-01-01", upper="2021-01-01")


@pytest.mark.parametrize(
    ("columns", "joint", "rules", "message"),
    [
        ([LAT, LONG], ("lat", "long"), [], "takes joint as a list of sets"),
        ([LAT, LONG], "lat", [], "takes joint as a list of sets"),
        ([LAT, LONG], [("lat",)], [], "takes joint as a list of sets"),
        ([LAT, LONG], [("lat", ["long"])], [], "takes joint as a list of sets"),
        ([LAT, LONG], 3, [], "takes joint as a list of sets"),
        ([LAT], [NAMES], [], "names 'long', which is no column of the schema"),
        ([LAT, LONG], [("lat", "lat")], [], "more than once"),
        ([LAT, LONG, AGE], [NAMES, ("long", "age")], [], "more than once"),
        ([LAT, DATE], [("lat", "day")], [], "hold numbers"),
        ([LAT, Column("c", "categorical")], [("lat", "c")], [], "hold numbers"),
        ([LAT, Column("i", "integer", role="id")], [("lat", "i")], [], "hold numbers"),
        ([LAT, Column("w", "continuous")], [("lat", "w")], [], "need bounds"),
        ([LAT, LONG], [NAMES], [LessEqual("long", "lat")], "exclude each other"),
        ([LAT, LONG], [NAMES], [Derived("long", "2 * lat")], "exclude each other"),
    ],
)
def test_sets_that_cannot_be_learned_are_refused(columns, joint, rules, message):
    with pytest.raises(ValueError, match=message):
        Schema(columns, rules, joint)


def test_columns_that_cannot_be_missing_together_are_refused():
    lat = Column("lat", "continuous", lower=47, upper=48, nullable=True)
    schema = Schema([lat, FLOOR], joint=[("lat", "floor")])
    with pytest.raises(ValueError, match="are missing together"):
        schema.resolve(homes())


def test_tables_take_places_once():
    frame, options = homes(100), {"schema": schema_of(), "n_steps": 2}
    synthesizer = DPHFlowSynthesizer(workload=[("lat", "long")], **options)
    with pytest.raises(ValueError, match="one column at most"):
        synthesizer.fit(frame)
    with few_rows_to_rake():
        synthesizer.set_params(workload=[("long", "age")]).fit(frame)
    assert "long" in str(synthesizer.privacy_)


def test_a_decoder_is_conditioned_on_no_place():
    synthesizer = DPVAESynthesizer(schema=schema_of(), conditional="long", n_steps=2)
    with pytest.raises(ValueError, match="must not be a column of joint"):
        synthesizer.fit(homes(100))


def test_conditions_beyond_all_mass_end_with_an_error_of_sampling():
    given = {"lat": (47.9995, 48), "long": (-123, -122.9999), "age": (98, 100)}
    with pytest.raises(SamplingError, match="candidates"):
        fitted().sample(500, given=given, max_tries=2)


def test_few_rows_of_places_alone_leave_no_order_to_learn():
    names = ("lat", "long")
    sex = Column("sex", "categorical", levels=("f", "m"))
    flat = [Column(name, "continuous", lower=0, upper=1) for name in names]
    apart, joint = (Schema([*flat, sex], joint=each) for each in ([], [names]))
    scale = FitSize(300, apart, 1.0)
    assert ordered_only(scale)
    assert not ordered_only(replace(scale, schema=joint))
