"""Tables of polars and pyarrow: what goes in comes out, by types alone."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.tree import DecisionTreeClassifier

import dpgenerative
from dpgenerative import Column, DPHFlowSynthesizer, Schema, SyntheticClassifier
from dpgenerative.exceptions import UnsupportedColumnError
from dpgenerative.metrics import (
    association_matrix,
    closest_record,
    kendall_tau_distance,
    likelihood_attack,
    make_synthesis_scorer,
    marginal_distance,
    tstr,
)
from dpgenerative.tables.containers import as_table
from dpgenerative.tables.times import to_units

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

WARDS = ["A", "B", "never"]


def polars_frame(n=400, seed=0):
    rng = np.random.default_rng(seed)
    day = dt.date(2020, 1, 1)
    days = rng.integers(0, 300, n)
    return pl.DataFrame(
        {
            "city": pl.Series(rng.choice(["Oslo", "Rome"], n), dtype=pl.Categorical),
            "ward": pl.Series(rng.choice(["A", "B"], n), dtype=pl.Enum(WARDS)),
            "word": rng.choice(["a", "b"], n),
            "count": pl.Series(rng.integers(0, 9, n), dtype=pl.Int16),
            "share": [None if i % 9 == 0 else x for i, x in enumerate(rng.random(n))],
            "born": [day + dt.timedelta(int(k)) for k in days],
            "seen": pl.Series(
                [dt.datetime(2020, 1, 1, 0, int(k) % 60) for k in days],
                dtype=pl.Datetime("ms"),
            ),
            "stay": [dt.timedelta(hours=int(k)) for k in days],
            "fee": pl.Series(
                [Decimal(int(k)) / 4 for k in days], dtype=pl.Decimal(9, 2)
            ),
            "ill": rng.random(n) < 0.5,
        }
    )


@pytest.fixture(scope="module")
def fitted():
    frame = polars_frame()
    return DPHFlowSynthesizer(epsilon=None, n_steps=5, random_state=0).fit(
        frame.drop("ill"), frame["ill"]
    )


def test_what_arrow_does_not_know_is_named():
    frame = polars_frame().with_columns(long=pl.lit(1).cast(pl.Int128))
    with pytest.raises(UnsupportedColumnError, match="'long', Int128"):
        DPHFlowSynthesizer().fit(frame)


def test_polars_in_polars_out(fitted, tmp_path):
    frame = polars_frame()
    rows, ill = fitted.sample(50, random_state=1)
    assert isinstance(rows, pl.DataFrame)
    assert rows.schema == frame.drop("ill").schema
    assert isinstance(ill, pl.Series)
    assert (ill.name, ill.dtype, len(ill)) == ("ill", pl.Boolean, 50)
    assert set(rows["ward"].unique()) <= {"A", "B"}
    assert rows["share"].null_count()
    fitted.save(tmp_path / "model.dpg")
    again, target = dpgenerative.load(tmp_path / "model.dpg").sample(50, random_state=1)
    assert again.equals(rows)
    assert target.equals(ill)
    assert np.isfinite(fitted.score(frame.drop("ill"), frame["ill"]))


def test_levels_of_an_enum_are_public_and_those_of_a_categorical_are_not(fitted):
    frame, layout = as_table("T", polars_frame())
    schema = Schema([]).resolve(frame)
    assert schema["ward"].levels == ("A", "B", "never")
    assert schema["city"].levels is None
    kinds = {name: text.partition(",")[0] for name, text in layout.written}
    of_levels = "dictionary<values=string_view"  # indices differ between versions
    assert kinds == {"city": of_levels, "ward": of_levels, "word": "string_view"}
    other = polars_frame().with_columns(city=pl.lit("Bonn").cast(pl.Categorical))
    assert as_table("T", other)[1] == layout
    assert as_table("T", other)[0].dtypes.equals(frame.dtypes)


def test_columns_that_are_not_supported_are_named():
    X = pl.DataFrame({"raw": [b"x", b"y"], "when": [1, 2]})
    X = X.with_columns(pl.col("when").cast(pl.Datetime))
    with pytest.raises(UnsupportedColumnError, match="'raw' has dtype binary"):
        DPHFlowSynthesizer().fit(X)
    with pytest.raises(UnsupportedColumnError, match=r"'when' .* supported as levels"):
        DPHFlowSynthesizer(categorical_features=["when"]).fit(X.drop("raw"))


@pytest.mark.parametrize(
    "kind", ["month_day_nano_interval", "uuid", "json_", "bool8", "list_view"]
)
def test_types_that_pandas_does_not_know_are_named(kind):
    if not hasattr(pa, kind):
        pytest.skip("of a newer pyarrow")
    args = [pa.int8()] * (kind == "list_view")
    odd = pa.nulls(2, getattr(pa, kind)(*args))
    table = pa.table({"n": pa.nulls(2, pa.int8()), "odd": odd})
    for rows in (table, as_table("T", table)[0]):
        for read in (DPHFlowSynthesizer().fit, Schema.from_dtypes, Schema([]).check):
            with pytest.raises(UnsupportedColumnError, match="Column 'odd' has dtype"):
                read(rows)


def test_completions_of_polars_rows(fitted):
    part = polars_frame(20, seed=3).select("ward", "count")
    rows, _ = fitted.sample(given=part)
    assert rows.select("ward", "count").equals(part)


@pytest.mark.parametrize(
    "rows", ["rows.csv", Path("rows.parquet"), polars_frame().lazy()]
)
def test_what_is_not_read_is_refused_where_rows_must_be_in_memory(fitted, rows):
    def attacked(rows):
        return likelihood_attack(fitted.score_samples, rows, rows)

    why = rf"{type(rows).__name__} is no table yet.*collect\(\)"
    scores = fitted.score, fitted.score_samples, attacked
    for use in (*scores, Schema.from_dtypes, Schema([]).resolve, Schema([]).check):
        with pytest.raises(TypeError, match=why):
            use(rows)


ARROW = pa.table(
    {
        "view": pa.array(["a", "b"] * 100, pa.string_view()),
        "large": pa.array(["a", "b"] * 100, pa.large_string()),
        "plain": pa.array(["a", "b"] * 100),
        "code": pa.array(["a", None] * 100).cast(pa.dictionary(pa.int8(), pa.string())),
        "wide": pa.array(["a", "b"] * 100).cast(
            pa.dictionary(pa.int32(), pa.large_string())
        ),
        "fee": pa.array([Decimal("1.25"), None] * 100, pa.decimal128(5, 2)),
        "born": pa.array([dt.date(2020, 5, 17)] * 200),
    }
)


def test_pyarrow_in_pyarrow_out():
    synthesizer = DPHFlowSynthesizer(epsilon=None, n_steps=5)
    rows, y = synthesizer.fit(ARROW, ARROW["code"]).sample(30)
    assert rows.schema.equals(ARROW.schema)
    assert isinstance(y, pa.ChunkedArray)
    assert y.type == ARROW["code"].type
    _, y = synthesizer.fit(
        ARROW, ARROW.select(["plain"]).rename_columns(["y"])
    ).sample()
    assert y.schema == pa.schema([("y", pa.string())])


def test_dictionaries_in_chunks():
    """Each chunk of a column has a dictionary of its own."""
    chunks = [pa.array(values).dictionary_encode() for values in (["a"], ["b", "a"])]
    frame, _ = as_table("T", pa.table({"x": pa.chunked_array(chunks)}))
    assert frame["x"].tolist() == ["a", "b", "a"]


@pytest.mark.parametrize("kind", ["decimal128", "decimal256"])
def test_the_scale_of_a_decimal_is_its_resolution(kind):
    def column(scale, precision=8):
        values = pa.array([Decimal(5) / 4] * 9).cast(pa.float64())
        dtype = pd.ArrowDtype(getattr(pa, kind)(precision, scale))
        return pd.Series(values.to_pandas()).astype(dtype)

    frame = pd.DataFrame({"a": column(2), "b": column(0), "c": column(5)})
    schema = Schema([Column("c", "continuous", lower=0, upper=9)]).resolve(frame)
    facts = [(c.kind, c.resolution) for c in schema.columns]
    assert facts == [("continuous", 0.01), ("integer", None), ("continuous", 1e-5)]
    coarse = Schema([Column("c", "continuous", resolution=0.5)]).resolve(frame)
    assert coarse["c"].resolution == 0.5


def test_decimals_come_back_inside_their_precision():
    """Bounds found are powers of two, and 1,024 is no decimal of two digits."""
    dtype = pd.ArrowDtype(pa.decimal128(5, 2))
    values = pd.Series(np.random.default_rng(0).uniform(900, 999, 500)).astype(dtype)
    frame = pd.DataFrame({"fee": values})
    synthesizer = DPHFlowSynthesizer(epsilon=None, n_steps=2).fit(frame)
    rows = synthesizer.sample(500)["fee"]
    assert rows.dtype == dtype
    assert rows.max() <= Decimal("999.99")
    assert (rows.astype(float) % 1).nunique() > 20
    assert Schema([]).check(frame).empty


@pytest.mark.parametrize("facts", [{"kind": "boolean"}, {"kind": "categorical"}])
def test_decimals_are_no_levels(facts):
    dtype = pd.ArrowDtype(pa.decimal128(5, 2))
    frame = pd.DataFrame({"fee": pd.Series([1.0]).astype(dtype)})
    with pytest.raises(ValueError, match=r"'fee'.*holds no levels"):
        Schema([Column("fee", **facts)]).resolve(frame)
    with pytest.raises(UnsupportedColumnError, match="'fee'"):
        Schema.from_dtypes(frame, nominal=["fee"])


def test_days_are_the_resolution_of_dates():
    frame = as_table("T", ARROW)[0]
    assert Schema([]).resolve(frame)["born"].resolution == "D"
    stated = Schema([Column("born", "datetime", lower="2019", upper="2021")])
    assert stated.resolve(frame)["born"].resolution == "D"


def test_schemas_take_polars():
    frame = polars_frame()
    schema = Schema([Column("count", "integer", lower=0, upper=5)])
    found = schema.check(frame, cells=True)
    assert len(found) == (frame["count"] > 5).sum()
    assert schema.resolve(frame).names == tuple(frame.columns)
    assert Schema.from_dtypes(frame)["fee"].resolution == 0.01


def test_metrics_take_polars():
    real, fake = polars_frame(300), polars_frame(300, seed=1)
    pandas = [as_table("T", table)[0] for table in (real, fake)]
    assert marginal_distance(real, fake).max == marginal_distance(*pandas).max
    assert kendall_tau_distance(real, fake).mae == kendall_tau_distance(*pandas).mae
    assert association_matrix(real).equals(association_matrix(pandas[0]))
    assert closest_record(fake, training=real, holdout=polars_frame(300, 2))
    models = {"tree": DecisionTreeClassifier(max_depth=2, random_state=0)}
    options = {"target": "ill", "task": "classification", "classifiers": models}
    assert tstr(real, real, fake, **options).equals(
        tstr(pandas[0], pandas[0], pandas[1], **options)
    )


def test_scorer_takes_polars(fitted):
    frame = polars_frame()
    scorer = make_synthesis_scorer("tvd")
    assert scorer(fitted, frame.drop("ill"), frame["ill"]) > -1


def test_predictors_take_polars():
    frame = polars_frame()
    X = frame.select("count", "ward", "share")
    model = SyntheticClassifier(DPHFlowSynthesizer(epsilon=None, n_steps=2))
    model.fit(X, frame["word"])
    assert set(model.predict(X)) <= {"a", "b"}


# Dates among objects ------------------------------------------------------------------

BORN = Schema([Column("born", "datetime", resolution="D")])


def objects(values):
    return pd.DataFrame({"born": pd.Series(values, dtype=object)})


def test_dates_of_python_are_dates_where_the_schema_says_so(tmp_path):
    days = [dt.date(2020, 1, 1) + dt.timedelta(k % 300) for k in range(600)]
    frame = objects([*days, None])
    synthesizer = DPHFlowSynthesizer(epsilon=None, schema=BORN, n_steps=5).fit(frame)
    synthesizer.save(tmp_path / "model.dpg")
    rows = dpgenerative.load(tmp_path / "model.dpg").sample(300)["born"]
    assert rows.dtype == object
    assert {type(day) for day in rows.dropna()} == {dt.date}
    assert rows.dropna().between(dt.date(2020, 1, 1), dt.date(2020, 12, 31)).all()
    assert rows.nunique() > 100
    assert marginal_distance(frame, rows.to_frame()).max < 0.3
    assert BORN.check(frame).empty
    seconds = Schema([Column("born", "datetime")])
    rows = DPHFlowSynthesizer(epsilon=None, schema=seconds, n_steps=2).fit(frame)
    assert type(rows.sample()["born"][0]) in (dt.datetime, type(None))


class Liar(dt.date):
    @property
    def __class__(self):
        raise ValueError("income was 98765")


ODD = {
    "liar": lambda: Liar(2020, 1, 1),
    "text": lambda: "1.1.2020",
    "number": lambda: 17,
    "list": lambda: [dt.date(2020, 1, 1)],
    "time": lambda: dt.time(1),
    "missing": lambda: pd.NaT,
}


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_date_is_missing(odd):
    frame = objects([dt.date(2020, 1, 1), ODD[odd]()])
    codes = to_units(frame["born"], "D")
    assert codes[0] == 18_262
    assert np.isnan(codes[1])


def test_every_instant_among_objects_is_read_on_its_own_clock():
    zone = dt.timezone(dt.timedelta(hours=9))
    frame = objects(
        [
            dt.datetime(2020, 1, 1, 23, 30, tzinfo=zone),
            pd.Timestamp("2020-01-01T23:30", tz="Asia/Tokyo"),
            "2020-01-01T23:30+09:00",
            pd.Timestamp(np.datetime64(2**40, "s")),
        ]
    )
    assert to_units(frame["born"], "D").tolist() == [18_262] * 3 + [2_932_895]


def test_a_schema_finds_what_is_no_date():
    mixed = objects([dt.date(2020, 1, 1), "2020-02-30", "2020-02-01", None, 3])
    found = BORN.check(mixed, cells=True)
    assert found["row"].tolist() == [1, 4]
    assert set(found["problem"]) == {"neither a time nor text in ISO 8601"}
