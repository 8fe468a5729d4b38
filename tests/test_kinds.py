"""Times, identifiers, nullable and Arrow dtypes, tables of other libraries."""

from __future__ import annotations

import json
import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.tree import DecisionTreeClassifier

from dpgenerative import (
    Column,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    LaplaceRandomizer,
    LessEqual,
    Schema,
    SyntheticClassifier,
)
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.encoding.values import identifiers
from dpgenerative.exceptions import UnsupportedColumnError
from dpgenerative.metrics import kendall_tau_distance, marginal_distance, tstr
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.tables.containers import as_table
from dpgenerative.tables.times import count_of, from_units, spelled, to_units

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

both = pytest.mark.parametrize("estimator", [DPHFlowSynthesizer, DPVAESynthesizer])
BERLIN = pd.DatetimeTZDtype("us", "Europe/Berlin")
ARROW = pd.ArrowDtype


def instants(n, first="2019-06-01", days=700, seed=0):
    rng = np.random.default_rng(seed)
    hours = pd.to_timedelta(rng.integers(0, 24 * days, n), "h")
    return pd.Series(pd.Timestamp(first) + hours)


def kinds(n=1200, seed=0):
    rng = np.random.default_rng(seed)
    when = instants(n, seed=seed)
    gap = rng.random(n) < 0.2
    return pd.DataFrame(
        {
            "when": when,
            "coarse": when.dt.floor("D").astype("datetime64[s]").mask(gap),
            "zoned": when.dt.tz_localize("UTC").astype(BERLIN),
            "stay": pd.Series(pd.to_timedelta(rng.integers(1, 90, n), "min")).mask(gap),
            "Int64": pd.array(rng.integers(0, 9, n), "Int64"),
            "UInt8": pd.array(rng.integers(0, 9, n), "UInt8"),
            "Float64": pd.Series(rng.normal(size=n)).mask(gap).astype("Float64"),
            "boolean": pd.array(rng.random(n) < 0.5, "boolean"),
            "string": pd.array(rng.choice(["a", "b"], n), "string"),
            "arrow int": pd.array(rng.integers(0, 9, n), ARROW(pa.int32())),
            "arrow float": pd.array(rng.normal(size=n), ARROW(pa.float64())),
            "arrow bool": pd.array(rng.random(n) < 0.5, ARROW(pa.bool_())),
            "arrow string": pd.array(rng.choice(["a", "b"], n), ARROW(pa.string())),
            "arrow time": when.astype(ARROW(pa.timestamp("us", "Asia/Tokyo"))),
            "arrow date": when.astype(ARROW(pa.date32())),
            "arrow stay": pd.Series(
                pd.to_timedelta(rng.integers(1, 90, n), "s")
            ).astype(ARROW(pa.duration("s"))),
            "grade": pd.Categorical(
                rng.choice(["low", "high"], n), ["low", "mid", "high"], ordered=True
            ),
        }
    )


@pytest.mark.thin(2)
@both
def test_every_kind_comes_back_in_its_dtype(estimator):
    frame = kinds()
    synthesizer = estimator(epsilon=None, n_steps=20, random_state=0).fit(frame)
    rows = synthesizer.sample(400)
    pd.testing.assert_series_equal(rows.dtypes, frame.dtypes)
    assert rows["Float64"].isna().any()
    assert rows["coarse"].isna().any()
    for name in ("when", "zoned", "arrow time"):
        assert rows[name].dropna().dt.year.between(2019, 2021).mean() > 0.99
    assert np.isfinite(synthesizer.score(frame))
    text = json.dumps(synthesizer.schema_.to_dict(), allow_nan=False)
    assert Schema.from_dict(json.loads(text)) == synthesizer.schema_


def bounds_of(series, multiplier, seed=0, **facts):
    schema = Schema([Column("when", "datetime", **facts, nullable=True)])
    rng = np.random.default_rng(seed)
    fitted = TableTransformer.fit(
        series.to_frame("when"), schema, Mechanisms(rng, rng), n_rows=len(series),
        multiplier=multiplier, delta=1e-6, n_bins=32,
    )  # fmt: skip
    column = fitted.schema["when"]
    return column.lower, column.upper


@pytest.mark.thin(6)
@pytest.mark.parametrize("multiplier", [0.0, 4.0])
@pytest.mark.parametrize(
    ("first", "days", "expected"),
    [
        ("2019-06-01", 700, ("2019-01-01", "2021-12-31T23:59:59")),
        ("1931-02-01", 20_000, ("1931-01-01", "1985-12-31T23:59:59")),
        ("1755-01-01", 3000, ("1700-01-01", "1799-12-31T23:59:59")),
    ],
)
def test_bounds_of_instants_are_found_as_years(first, days, expected, multiplier):
    series = instants(8000, first, days)
    days_of = (expected[0], expected[1][:10])

    def share(wanted, **facts):
        # Noise may open a year more at an end.
        released = [bounds_of(series, multiplier, seed, **facts) for seed in range(10)]
        return released.count(wanted) / len(released)

    least = 0.5 if multiplier else 1.0
    assert share(expected) >= least
    assert share(days_of, resolution="D") >= least
    series[0] = pd.Timestamp("2200-01-01")  # one row of another age does not show
    assert share(expected) >= 0.5 if multiplier else not share(expected)


@pytest.mark.thorough
@pytest.mark.parametrize(("n", "most"), [(500, 0.25), (1000, 0.15), (3000, 0.05)])
def test_years_over_which_few_rows_each_spread_are_found(n, most):
    births = instants(n, "1930-01-01", 34_000)
    beyond = []
    for seed in range(20):
        low, high = map(pd.Timestamp, bounds_of(births, 12.0, seed))
        beyond.append(((births < low) | (births > high)).mean())
    assert np.mean(beyond) < most


def test_years_that_nothing_shows_are_usual_ones():
    births = instants(40, "1930-01-01", 34_000)
    assert bounds_of(births, 60.0) == ("1900-01-01", "2100-01-01T23:59:59")
    assert bounds_of(births, 60.0, resolution="D") == ("1900-01-01", "2100-01-01")


def test_public_bounds_and_units_of_times():
    schema = Schema(
        [
            Column(
                "when", "datetime", lower="2019-07-01", upper="2020", resolution="D"
            ),
            Column("stay", "timedelta", lower="5min", upper="1h", resolution="min"),
        ]
    )
    frame = kinds()[["when", "stay"]]
    rows = (
        DPHFlowSynthesizer(epsilon=None, schema=schema, n_steps=5)
        .fit(frame)
        .sample(2000)
    )
    when = rows["when"].dropna()
    assert when.min() >= pd.Timestamp("2019-07-01")
    assert when.max() <= pd.Timestamp("2020-01-01")
    assert (when == when.dt.floor("D")).all()
    stay = rows["stay"].dropna()
    assert stay.between(pd.Timedelta("5min"), pd.Timedelta("1h")).all()
    assert (stay == stay.dt.floor("min")).all()
    assert stay.nunique() > 20


def test_times_are_learned():
    rng = np.random.default_rng(0)
    late = rng.random(4000) < 0.5
    days = np.where(late, rng.integers(300, 360, 4000), rng.integers(0, 60, 4000))
    when = pd.Timestamp("2020-01-01") + pd.to_timedelta(days, "D")
    frame = pd.DataFrame({"when": when, "late": late})
    schema = Schema(
        [
            Column(
                "when",
                "datetime",
                lower="2020-01-01",
                upper="2020-12-31",
                resolution="D",
            )
        ]
    )
    flow = DPHFlowSynthesizer(epsilon=None, n_steps=200, schema=schema, random_state=0)
    rows = flow.fit(frame).sample(3000)
    ahead = rows["when"] > pd.Timestamp("2020-07-01")
    assert (ahead == rows["late"]).mean() > 0.9


def test_clocks_of_a_zone():
    """Days and hours are those of the zone's own clock; a skipped hour moves on."""
    utc = pd.Series(pd.to_datetime(["2021-06-30 22:30", None, "2021-12-31 23:30"]))
    local = utc.dt.tz_localize("UTC").astype(BERLIN)
    days = to_units(local, "D")
    assert days[[0, 2]].tolist() == [
        count_of("2021-07-01", "datetime", "D"),
        count_of("2022-01-01", "datetime", "D"),
    ]
    assert np.isnan(days[1])
    back = from_units(np.nan_to_num(days), np.isnan(days), "D", BERLIN)
    assert str(back[0]) == "2021-07-01 00:00:00+02:00"
    assert back[1] is pd.NaT
    hours = [
        count_of(t, "datetime", "h") for t in ("2021-03-28 02:00", "2021-10-31 02:00")
    ]
    shown = from_units(np.array(hours, float), np.zeros(2, bool), "h", BERLIN)
    assert str(shown[0]) == "2021-03-28 03:00:00+02:00"
    assert str(shown[1]) == "2021-10-31 02:00:00+02:00"


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Asia/Tokyo", "America/New_York"])
def test_no_instant_raises(unit, zone):
    """However far away: the nearest that the dtype and the calendar hold."""
    far = np.array([2**63 - 1, 0, -(2**63) + 1], dtype=f"M8[{unit}]")
    arrow = pa.array(far.view(np.int64)).cast(pa.timestamp(unit, zone))
    series = pd.Series(pd.arrays.ArrowExtensionArray(arrow))
    found = to_units(series, "D")
    assert np.isfinite(found).all()
    assert found[0] > 50_000
    assert found[2] < -50_000
    for dtype in (f"M8[{unit}]", series.dtype):
        dtype = pd.api.types.pandas_dtype(dtype)
        back = from_units(np.array([1e13, -1e13]), np.zeros(2, bool), "s", dtype)
        assert back.dtype == dtype
        assert 2200 < back.dt.year[0] < 10_000
        assert back.dt.year[1] < 1700


@pytest.mark.parametrize(
    ("value", "kind", "unit", "count"),
    [
        ("1970-01-02", "datetime", "D", 1),
        ("1969-12-31 23:59:59", "datetime", "D", -1),
        ("2000-01-01T00:00:01", "datetime", "s", 946_684_801),
        (pd.Timestamp("1970-01-01 00:01"), "datetime", "us", 60_000_000),
        ("9999-12-31", "datetime", "D", 2_932_896),
        ("0001-01-01", "datetime", "D", -719_162),
        ("-1s", "timedelta", "h", -1),
        ("3 days", "timedelta", "h", 72),
        (np.timedelta64(90, "m"), "timedelta", "h", 1),
    ],
)
def test_times_are_counted(value, kind, unit, count):
    assert count_of(value, kind, unit) == count
    assert count_of(spelled(count, kind, unit), kind, unit) == count


# What a schema may say ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"kind": "datetime", "lower": "soon", "upper": "2020"}, "lower must be"),
        ({"kind": "datetime", "lower": 0, "upper": 10}, "lower must be a datetime"),
        ({"kind": "datetime", "lower": "2021", "upper": "2020"}, "must not exceed"),
        ({"kind": "datetime", "lower": "2021"}, "come together"),
        (
            {"kind": "datetime", "lower": "2020-01-01T00:00Z", "upper": "2021"},
            "without a zone",
        ),
        ({"kind": "datetime", "lower": "01.02.2020", "upper": "2021"}, "lower must be"),
        ({"kind": "datetime", "lower": "today", "upper": "2099"}, "lower must be"),
        ({"kind": "integer", "nullable": "no"}, "nullable must be True, False or None"),
        ({"kind": "categorical", "levels": ["a"], "ordered": 1}, "ordered must be"),
        ({"kind": "datetime", "resolution": 1}, "resolution must be one of"),
        ({"kind": "datetime", "resolution": "Y"}, "resolution must be one of"),
        ({"kind": "timedelta", "lower": "2020-01-01", "upper": "1D"}, "lower must be"),
        ({"kind": "datetime", "levels": ["2020"]}, "belong to categorical"),
        ({"kind": "integer", "resolution": "D"}, "must be a number"),
        ({"kind": "text"}, "no model here can learn.*drop the column"),
        ({"kind": "integer", "role": "key"}, "role must be one of .None, .id."),
        ({"kind": "datetime", "role": "id"}, "role needs kind"),
        ({"kind": "integer", "role": "id", "lower": 0, "upper": 9}, "no bounds"),
        ({"kind": "categorical", "role": "id", "levels": ["a"]}, "no bounds or levels"),
        ({"kind": "integer", "role": "id", "format": "{}"}, "format must be"),
        ({"kind": "categorical", "role": "id", "format": "P"}, "format must be"),
        ({"kind": "categorical", "role": "id", "format": "{a}"}, "format must be"),
        ({"kind": "categorical", "role": "id", "format": "{:9999d}"}, "format must be"),
        ({"kind": "categorical", "role": "id", "format": "{0:{0}}"}, "format must be"),
        ({"kind": "categorical", "format": "{}"}, "format belongs to role"),
    ],
)
def test_facts_that_make_no_sense(facts, message):
    with pytest.raises(ValueError, match=f"'my column'.*{message}"):
        Column("my column", **facts)


def test_bounds_are_kept_as_text():
    column = Column("x", "datetime", lower=pd.Timestamp("2020-01-01"), upper="2021-06")
    assert (column.lower, column.upper) == ("2020-01-01", "2021-06-01")
    assert eval(repr(column), {"Column": Column}) == column
    assert Schema.from_dict(
        json.loads(json.dumps(Schema([column]).to_dict()))
    ) == Schema([column])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("datetime", [1, 2]),
        ("datetime", pd.array(["2020-01-01", "2020-01-02"], "string")),
        ("timedelta", ["1h", "2h"]),
        ("timedelta", pd.date_range("2020", periods=2)),
        ("datetime", pd.to_timedelta([1, 2])),
        ("integer", pd.date_range("2020", periods=2)),
        ("continuous", pd.to_timedelta([1, 2])),
        ("categorical", pd.date_range("2020", periods=2)),
        ("boolean", pd.date_range("2020", periods=2)),
    ],
)
def test_kinds_that_a_dtype_does_not_hold(kind, values):
    frame = pd.DataFrame({"my column": values})
    with pytest.raises(ValueError, match=f"'my column' is {kind}, by its schema"):
        Schema([Column("my column", kind)]).resolve(frame)


@pytest.mark.parametrize("dtype", [BERLIN, ARROW(pa.timestamp("us", "Asia/Tokyo"))])
def test_rows_in_another_time_zone_are_the_same_instants(dtype):
    zoned = instants(400).dt.tz_localize("UTC").astype(dtype)
    rows = pd.DataFrame({"at": zoned, "x": np.arange(400.0)})
    rows["later"] = rows["at"] + pd.Timedelta("3h")
    elsewhere = rows.copy()
    for name in ("at", "later"):
        elsewhere[name] = rows[name].dt.tz_convert("America/New_York")
    schema = Schema(
        [
            Column("at", "datetime", lower="2019-01-01", upper="2022-01-01"),
            Column("later", "datetime", lower="2019-01-01", upper="2022-01-01"),
            Column("x", "continuous", lower=0, upper=400),
        ],
        constraints=[LessEqual("at", "later")],
    )
    plain = {"epsilon": None, "n_steps": 3, "random_state": 0, "schema": schema}
    flow = DPHFlowSynthesizer(**plain).fit(rows)
    np.testing.assert_array_equal(
        flow.score_samples(elsewhere), flow.score_samples(rows)
    )
    options = {"noise": "reproducible", "random_state": 0, "schema": schema}
    own, other = (
        LaplaceRandomizer(3.0, **options).fit(rows).transform(given)
        for given in (rows, elsewhere)
    )
    pd.testing.assert_frame_equal(own, other)
    night = rows["at"].dt.hour.astype(int) < 6
    plain |= {"n_steps": 100, "schema": Schema(schema.columns[:1])}
    model = SyntheticClassifier(DPHFlowSynthesizer(**plain))
    model.fit(rows[["at"]], night.rename("night"))
    probabilities = (model.predict_proba(given[["at"]]) for given in (rows, elsewhere))
    np.testing.assert_array_equal(*probabilities)


def test_instants_are_never_nominal():
    frame = pd.DataFrame({"when": instants(50)})
    with pytest.raises(UnsupportedColumnError, match="'when'"):
        DPHFlowSynthesizer(categorical_features=["when"]).fit(frame)


def test_check_lists_times_outside_their_bounds():
    frame = pd.DataFrame({"when": pd.to_datetime(["2018", "2019", "2022"])})
    column = Column("when", "datetime", lower="2019-01-01", upper="2020-01-01")
    found = Schema([column]).check(frame, cells=True)
    assert found["row"].tolist() == [0, 2]
    assert found["problem"].tolist() == [
        "before the lower bound",
        "after the upper bound",
    ]


# Identifiers --------------------------------------------------------------------------

IDS = Schema(
    [
        Column("key", "integer", role="id"),
        Column("code", "categorical", role="id", format="2026-{:05d}"),
        Column("token", "categorical", role="id", format="uuid"),
        Column("name", "categorical", role="id"),
    ]
)


def people(n=300):
    return pd.DataFrame(
        {
            "key": pd.array(np.arange(n) * 7 + 10**6, "Int32"),
            "x": np.random.default_rng(0).normal(size=n),
            "code": pd.array([f"SECRET{i}" for i in range(n)], "string"),
            "token": [f"SECRET{i}" for i in range(n)],
            "name": pd.array([f"SECRET{i}" for i in range(n)], ARROW(pa.string())),
        }
    )


@both
def test_identifiers_are_made_anew(estimator):
    frame = people()
    synthesizer = estimator(n_steps=5, schema=IDS, random_state=0).fit(frame)
    rows = synthesizer.sample(50, random_state=1)
    assert rows.columns.tolist() == frame.columns.tolist()
    pd.testing.assert_series_equal(rows.dtypes, frame.dtypes)
    assert rows["key"].tolist() == list(range(1, 51))
    assert rows["code"].tolist()[:2] == ["2026-00001", "2026-00002"]
    assert rows["name"].tolist()[:2] == ["1", "2"]
    assert rows["token"].nunique() == 50
    assert all(uuid.UUID(token).version == 4 for token in rows["token"])
    pd.testing.assert_frame_equal(rows, synthesizer.sample(50, random_state=1))
    assert synthesizer.n_features_in_ == 5
    assert synthesizer.schema_["key"].role == "id"
    assert np.isfinite(synthesizer.score(frame))
    assert "identifiers, which are not read: key, code, token, name" in str(
        synthesizer.privacy_
    )


def test_decoded_rows_are_numbered_too():
    frame = people(100)
    synthesizer = DPVAESynthesizer(n_steps=5, schema=IDS).fit(frame)
    rows = synthesizer.reconstruct(frame)
    assert rows["key"].tolist() == list(range(1, 101))
    pd.testing.assert_series_equal(rows.dtypes, frame.dtypes)


def test_nothing_is_spent_on_identifiers():
    """The fit is bit-equal to one without them."""
    options = {"n_steps": 5, "random_state": 0, "noise": "reproducible"}
    with_ids = DPHFlowSynthesizer(schema=IDS, **options).fit(people())
    without = DPHFlowSynthesizer(**options).fit(people()[["x"]])
    assert with_ids.privacy_.plan == without.privacy_.plan
    assert with_ids._transformer.schema == without._transformer.schema
    pd.testing.assert_series_equal(
        with_ids.sample(50, random_state=0)["x"],
        without.sample(50, random_state=0)["x"],
    )


def test_values_of_identifiers_do_not_matter():
    """Not even to errors: they are never read."""
    frame = people()
    frame["token"] = [object() for _ in range(len(frame))]
    rows = DPHFlowSynthesizer(schema=IDS, n_steps=5).fit(frame).sample(3)
    assert rows["token"].map(type).eq(str).all()


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (Column("k", "integer", role="id"), ["a", "b"]),
        (Column("k", "categorical", role="id"), [1, 2]),
        (Column("k", "categorical", role="id"), pd.Categorical(["a", "b"])),
        (Column("k", "integer", role="id"), pd.date_range("2020", periods=2)),
    ],
)
def test_identifiers_need_a_dtype_that_holds_them(column, values):
    with pytest.raises(ValueError, match="'k': identifiers of kind"):
        Schema([column]).resolve(pd.DataFrame({"k": values}))


def test_only_identifiers_are_not_enough():
    schema = Schema([Column("key", "integer", role="id")])
    with pytest.raises(ValueError, match="a column that is no identifier"):
        DPHFlowSynthesizer(schema=schema).fit(people()[["key"]])


def test_identifiers_are_not_given():
    synthesizer = DPHFlowSynthesizer(schema=IDS, n_steps=5).fit(people())
    with pytest.raises(ValueError, match=r"'given'.*identifiers"):
        synthesizer.sample(given={"key": 3})
    part = people(4)[["key", "x"]]
    part.loc[0, "x"] = -1e6  # beyond the bounds: what a row of the table may be
    whole = synthesizer.sample(given=part)
    assert whole[["key", "x"]].equals(part)
    assert whole["code"].tolist()[-1] == "2026-00004"


# Tables of other libraries ------------------------------------------------------------


def arrow_table(n=600):
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "count": pa.array([None if i % 9 == 0 else i % 7 for i in range(n)]),
            "share": pa.array(rng.random(n)),
            "word": pa.array(rng.choice(["a", "b"], n)).dictionary_encode(),
            "long": pa.array(rng.choice(["a", "b"], n).tolist(), pa.large_string()),
            "when": pa.array(instants(n)),
        }
    )


def test_arrow_tables_are_read_by_their_types():
    table = arrow_table()
    synthesizer = DPHFlowSynthesizer(epsilon=None, n_steps=5).fit(table)
    frame, _ = as_table("T", table)
    assert [str(dtype) for dtype in frame.dtypes] == [
        "int64[pyarrow]",
        "double[pyarrow]",
        "string[pyarrow]",
        "string[pyarrow]",
        f"{table.schema.field('when').type}[pyarrow]",
    ]
    rows = synthesizer.sample(300)
    assert rows.schema == table.schema
    assert rows["count"].null_count
    assert np.isfinite(synthesizer.score(table))
    # A kind follows from the type, whether or not values are missing.
    complete = table.filter(pa.compute.is_valid(table["count"]))
    frames = [as_table("T", each)[0] for each in (table, complete)]
    assert frames[0].dtypes.equals(frames[1].dtypes)
    repeated = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    with pytest.raises(ValueError, match="distinct column names"):
        DPHFlowSynthesizer().fit(repeated)
    filtered = pa.Table.from_pandas(pd.DataFrame({"a": [1, 2, 3]}).iloc[[0, 2, 1]])
    assert as_table("T", filtered)[0].columns.tolist() == ["a"]
    for notes in (None, {b"pandas": b"of another tool"}):
        bare = filtered.replace_schema_metadata(notes)
        with pytest.raises(ValueError, match="as a column, '__index_level_0__'"):
            DPHFlowSynthesizer().fit(bare)


def test_whatever_speaks_arrow():
    class Foreign:
        def __arrow_c_stream__(self, requested_schema=None):
            return arrow_table().__arrow_c_stream__(requested_schema)

    frame, layout = as_table("T", Foreign())
    assert layout.x_kind == "frame"
    assert frame.shape == (600, 5)


@pytest.mark.parametrize("unit", ["M8[D]", "M8[7D]", "M8[25s]", "m8[10ms]"])
def test_arrays_of_times(unit):
    array = np.arange(800).reshape(-1, 2).astype(unit)
    kind = {"M": "datetime", "m": "timedelta"}[array.dtype.kind]
    ends = {"lower": array.min(), "upper": array.max(), "resolution": "ms"}
    schema = Schema([Column(name, kind, **ends) for name in ("x0", "x1")])
    rows = DPHFlowSynthesizer(n_steps=5, schema=schema).fit(array).sample(99)
    assert rows.dtype == array.dtype
    assert rows.shape == (99, 2)
    assert array.min() <= rows.min() < rows.max() <= array.max()


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4", ">M8[s]"])
def test_arrays_of_another_byte_order(dtype):
    array = np.arange(800).reshape(-1, 2).astype(dtype)
    native = array.astype(array.dtype.newbyteorder("="))
    frames = [as_table("T", X, X[:, 0])[0] for X in (array, native)]
    pd.testing.assert_frame_equal(*frames)


def test_targets_that_pandas_has_no_type_for():
    texts = np.array(["2026-11-23", "2026-11-24"], dtype=object)
    for dtype, own in (("M8[D]", pd.Timestamp), (np.dtypes.StringDType(), str)):
        frame, _ = as_table("T", np.zeros((2, 1)), texts.astype(dtype))
        assert frame["target"].tolist() == list(map(own, texts))


# Many levels --------------------------------------------------------------------------


@pytest.mark.thin(2)
@both
def test_a_column_of_many_levels(estimator):
    """Of thousands of levels the frequent ones are kept, and rare ones share a cell."""
    rng = np.random.default_rng(0)
    ranks = np.minimum(rng.zipf(1.3, 4000), 3000)
    names = np.array([f"level {i}" for i in range(3001)])[ranks]
    schema = Schema(
        [Column("b", "categorical", levels=[f"level {i}" for i in range(1, 3001)])]
    )
    frame = pd.DataFrame({"a": names, "b": names})
    options = {"n_steps": 20, "random_state": 0, "noise": "reproducible"}
    synthesizer = estimator(epsilon=2.0, schema=schema).set_params(**options).fit(frame)
    assert all(codec.n_cells < 100 for codec in synthesizer._transformer.codecs)
    rows = synthesizer.sample(3000)
    for name in "ab":
        assert rows[name].nunique() >= 2
        share = (rows[name] == "level 1").mean()
        assert share == pytest.approx((names == "level 1").mean(), abs=0.15)


# Metrics ------------------------------------------------------------------------------


def test_times_are_compared_as_numbers():
    """In bins, not as levels that no two tables share."""
    real, fake = kinds(1500, 0), kinds(1500, 1)
    times = ["when", "coarse", "zoned", "stay", "arrow time", "arrow date"]
    found = marginal_distance(real[times], fake[times])
    assert found.max < 0.1
    late = fake[times].assign(when=fake["when"] + pd.Timedelta("700D"))
    assert marginal_distance(real[times], late).max > 0.9
    assert kendall_tau_distance(real[times], fake[times]).mae < 0.1
    scores = tstr(
        real, real, fake, target="grade", task="classification",
        classifiers={"tree": DecisionTreeClassifier(max_depth=2, random_state=0)},
    )  # fmt: skip
    assert np.isfinite(scores["auroc"]).all()


def test_identifiers_that_a_dtype_cannot_hold_are_refused():
    column = Column("id", "integer", role="id")
    rng = np.random.default_rng(0)
    assert identifiers(column, 127, np.dtype("int8"), rng).is_unique
    with pytest.raises(ValueError, match="'id': int8 holds no 128 distinct"):
        identifiers(column, 128, np.dtype("int8"), rng)
