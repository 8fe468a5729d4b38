"""Nothing about inputs shows in an error, a warning or a dtype but public facts."""

import copy
import datetime as dt
import math
import pickle
import sys
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from dpgenerative import (
    Column,
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    ImagePixelizer,
    LaplaceRandomizer,
    LessEqual,
    Schema,
    SyntheticClassifier,
    SyntheticRegressor,
)
from dpgenerative.encoding.classes import codes
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.encoding.values import (
    distinct_values,
    key_counts,
    keys,
    level_indices,
)
from dpgenerative.exceptions import UnsupportedColumnError
from dpgenerative.meta.learners import _as_floats
from dpgenerative.meta.scores import hits
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.synthesizers import session
from dpgenerative.tables.containers import (
    as_container,
    as_series,
    as_table,
    objects,
    plain,
)
from dpgenerative.tables.entries import PLAIN, CsvFormat, instants_of, typed
from dpgenerative.tables.files import stream_table
from dpgenerative.tables.private import Private, opened
from dpgenerative.tables.rows import Chunks, streamed
from dpgenerative.tables.times import to_units

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")


@pytest.mark.parametrize("last", [2, None])
def test_predictors_keep_the_dtypes_of_arrow_tables(last):
    table = pa.table({"a": pa.array([1, last], pa.int64())})
    frame = as_container("T", table)
    assert frame["a"].dtype == pd.ArrowDtype(pa.int64())
    assert frame["a"].isna().tolist() == [False, last is None]


@pytest.mark.parametrize("kind", [pa.array, lambda v, t: pa.chunked_array([v], t)])
@pytest.mark.parametrize("last", [2, None])
def test_predictors_keep_the_dtypes_of_arrow_targets(kind, last):
    found = as_series("T", kind([1, last], pa.int64()))
    assert found.dtype == pd.ArrowDtype(pa.int64())
    assert found.isna().tolist() == [False, last is None]


@pytest.mark.parametrize("last", [pd.Timestamp(1), "b"])
@pytest.mark.parametrize("kind", [np.array, pd.Index])
def test_targets_of_objects_stay_objects(kind, last):
    y = kind([pd.Timestamp(0), last], dtype=object)
    assert as_series("T", y).dtype == object


@pytest.mark.parametrize("last", [0.0, -0.0, math.nan])
@pytest.mark.parametrize(
    "dtype",
    [object, "float32", "Float64", *map(pd.ArrowDtype, [pa.float32(), pa.float64()])],
    ids=str,
)
def test_one_number_more_is_one_key_more(dtype, last):
    """Arrow's hash tables tell zeros by their signs: each had the count of the last."""
    values = [-0.0, *[0.0] * 9, 1.5]
    before = key_counts(pd.Series(values, dtype=dtype))
    after = key_counts(pd.Series([*values, last], dtype=dtype))
    assert before == {("float", 0.0): 10, ("float", 1.5): 1}
    assert after == before | {("float", 0.0): 10 + (last == 0)}


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("last", [-0.0, 2.0, math.nan, math.inf, None])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_number_does_not_change_the_levels_of_others(kind, last, is_first):
    """A NaN among numbers of 16 bits, in several chunks, gave all of them as bits."""
    numbers = [[1.5, 0.0], [0.0, 1.5]]
    parts = [[last], *numbers] if is_first else [*numbers, [last]]
    held = [[None if x is None else np.float16(x) for x in part] for part in parts]
    column = pa.chunked_array([pa.array(part, pa.float16()) for part in held])
    series = column.cast(kind).to_pandas(types_mapper=pd.ArrowDtype)
    counts = key_counts(series)
    assert counts.pop(("float", 1.5)) == 2
    assert counts.pop(("float", 0.0)) == 2 + (last == 0)
    assert list(counts.values()) == [1] * (last in (2.0, math.inf))
    found = level_indices(series, (0.0, 1.5))
    assert found[is_first:][:4].tolist() == [1, 0, 0, 1]


LATIN_1 = pa.array([b"a", b"Jos\xe9", None], pa.binary()).view(pa.string())
"""Text that is no UTF-8: Python's error holds it whole."""


@pytest.mark.parametrize(
    "convert",
    [
        lambda text: pa.table({"s": text}),
        lambda text: pa.table({"s": text.dictionary_encode()}),
        lambda text: pa.table({"s": text.cast(pa.large_string())}),
        lambda text: pl.from_arrow(pa.table({"s": text})),
        lambda text: pd.DataFrame({"s": pd.arrays.ArrowExtensionArray(text)}),
        lambda text: pd.DataFrame(
            {"s": pd.arrays.ArrowStringArray(pa.chunked_array([text, text[:0]]))}
        ),
    ],
)
def test_text_that_is_no_utf_8_is_read_as_far_as_it_is(convert):
    X = convert(LATIN_1)
    found = as_table("T", X)[0]["s"]
    assert keys(found) == [("str", "a"), ("str", "Jos\ufffd"), None]
    assert keys(as_series("T", found)) == keys(found)


def test_labels_that_are_no_utf_8_are_none_of_the_classes():
    y = pd.Series(pd.arrays.ArrowExtensionArray(LATIN_1))
    for labels in (y, y.array, pd.Index(y), LATIN_1):
        assert codes("T", labels, ["a", "Jos"], None).tolist() == [0, -1, -1]


def test_files_of_text_that_is_no_utf_8_are_read(tmp_path):
    pq.write_table(pa.table({"s": LATIN_1}), tmp_path / "s.parquet")
    by_schema = stream_table(tmp_path / "s.parquet", Schema([]))
    for rows in (by_schema, streamed("T", tmp_path / "s.parquet")):
        assert keys(rows.whole()["s"]) == [("str", "a"), ("str", "Jos\ufffd"), None]


def test_objects_of_wrapped_arrays_are_asked_nothing():
    values = objects(["a", Decimal("sNaN")])  # raises where it is asked
    y = pd.arrays.NumpyExtensionArray(values)
    assert keys(as_series("T", y)) == [("str", "a"), None]
    found, _ = as_table("T", np.zeros((2, 1)), y)
    assert found["target"].tolist()[0] == "a"
    numbers = pd.arrays.NumpyExtensionArray(np.array([0.5, 1.5], "f4"))
    assert as_series("T", numbers).dtype == "float32"


def test_predictors_do_not_unmask():
    masked = np.ma.array([[1.0], [2.0]], mask=[[False], [True]])
    assert as_container("T", masked) is masked
    with pytest.raises(TypeError, match="MaskedArray"):
        as_series("T", masked[:, 0])


def test_predictors_on_arrow_tables():
    rng = np.random.default_rng(0)
    table = pa.table({"a": rng.integers(0, 9, 300), "b": rng.normal(size=300)})
    flow = DPHFlowSynthesizer(n_steps=5)
    model = SyntheticClassifier(flow, classes=[0, 1], random_state=0)
    model.fit(table, rng.integers(0, 2, 300))
    assert model.predict(table.slice(0, 4)).shape == (4,)


def test_labels_that_are_no_class_raise_nothing():
    model = SyntheticClassifier(classes=["a", "b"])
    y = pd.Series(["b", "c", [], None, 1], dtype=object, index=list("vwxyz"), name="t")
    found = model._target(y)
    assert found.cat.codes.tolist() == [1, -1, -1, -1, -1]
    assert found.index.tolist() == list("vwxyz")
    assert found.name == "t"


def test_targets_beyond_float64_warn_of_nothing():
    y = pd.Series(np.array(["1", "1e400"], dtype=np.longdouble))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert SyntheticRegressor()._target(y).tolist() == [1.0, np.inf]


FAR = {
    "instants": pd.Series(np.array([0, -(2**62)]).view("M8[s]")),
    "zone": pd.Series(
        pd.array(np.array([0, 2**62]).view("M8[s]"), "M8[s]")
    ).dt.tz_localize("UTC"),
    "durations": pd.Series(np.array([0, 2**62]).view("m8[s]")),
    "days": pd.Series([0, 2**31 - 1], dtype="int32[pyarrow]").astype("date32[pyarrow]"),
}


@pytest.mark.parametrize("classes", [None, ["a", "b"]])
@pytest.mark.parametrize("times", FAR)
def test_times_are_no_labels_however_far(times, classes):
    model = SyntheticClassifier(classes=classes)
    for y in (FAR[times], FAR[times].iloc[:1]):
        with pytest.raises(ValueError, match="Unknown label type") as error:
            model.fit(np.zeros((len(y), 1)), y)
        assert str(y.dtype) in str(error.value)


@pytest.mark.parametrize("times", FAR)
def test_times_are_no_labels_of_images(times):
    for y in (FAR[times], FAR[times].iloc[:1]):
        with pytest.raises(ValueError, match="got an array of times"):
            codes("T", y, ["a", "b"], len(y))


@pytest.mark.parametrize("times", FAR)
def test_learners_read_times_as_numbers(times):
    near, whole = (_as_floats(y.to_frame()) for y in (FAR[times][:1], FAR[times]))
    assert whole[0, 0] == near[0, 0] == 0
    assert np.isfinite(whole).all()


@pytest.mark.parametrize("n", [2, 3])
def test_errors_do_not_count_rows(n):
    images = DPArrayVAESynthesizer(image_shape=(4, 4))
    with pytest.raises(ValueError, match=r"got \(n_samples, 5, 5\)\.$"):
        images.fit(np.zeros((n, 5, 5)))
    with pytest.raises(ValueError, match=r"sizes \(n, 7,\)\.$"):
        as_series("T", np.zeros((n, 7)))


@pytest.mark.parametrize("unit", ["W", "D", "h", "m", "M", "Y"])
def test_far_times_in_arrays_raise_nothing(unit):
    times = np.array([[10**15], [1]]).astype(f"M8[{unit}]")
    frame, layout = as_table("T", times)
    assert frame.dtypes.tolist() == [np.dtype("M8[s]")]
    assert frame.iloc[1, 0] == times[1, 0]
    assert layout.x_dtype == times.dtype


def test_far_durations_in_arrays_raise_nothing():
    times = np.array([[10**15], [1]], dtype="m8[D]")
    frame, _ = as_table("T", times)
    assert frame.iloc[:, 0].tolist() == [
        pd.Timedelta(np.timedelta64(86_400 * 10**9, "s")),
        pd.Timedelta(days=1),
    ]


@pytest.mark.parametrize("unit", ["M", "Y"])
@pytest.mark.parametrize("far", [1, 10**15])
def test_durations_of_no_fixed_length_are_refused(unit, far):
    with pytest.raises(UnsupportedColumnError, match="cannot read arrays of"):
        as_table("T", np.array([[far]], dtype=f"m8[{unit}]"))


def test_long_durations_get_bounds():
    """All of them beyond the longest whose bounds are sought."""
    mechanisms = Mechanisms(np.random.default_rng(0), np.random.default_rng(0))
    frame = pd.DataFrame({"a": np.full(1000, 2 * 10**10).astype("m8[s]")})
    schema = Schema([Column("a", "timedelta", resolution="ms")]).resolve(frame)
    fitted = TableTransformer.fit(
        frame, schema, mechanisms, n_rows=1000, multiplier=1.0, delta=1e-6, n_bins=5
    )
    assert pd.Timedelta(fitted.schema["a"].upper) == pd.Timedelta(days=100_000)


@pytest.mark.parametrize("text", ["1 h", "1 H", "1 T", "never", ""])
def test_times_in_csv_files_warn_of_nothing(tmp_path, text):
    path = tmp_path / "rows.csv"
    path.write_text(f"a,b\n{text},2020-01-01T00:00:00.123456789\n,\n")
    schema = Schema([Column("a", "timedelta"), Column("b", "datetime")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = stream_table(path, schema).whole()
    assert frame.dtypes.tolist() == [np.dtype("m8[us]"), np.dtype("M8[us]")]


@pytest.mark.parametrize("stated", [[], [Column("a", "datetime")]])
@pytest.mark.parametrize("day", [1, 10**8, None])
def test_dates_in_parquet_files_raise_nothing(tmp_path, stated, day):
    path = tmp_path / "rows.parquet"
    days = pa.array([0, day], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"a": days}), path)
    frame = stream_table(path, Schema(stated)).whole()
    assert frame["a"].dtype == "M8[ms]"
    assert frame["a"].isna().tolist() == [False, day is None]


@pytest.mark.parametrize("last", [1, None])
def test_types_of_parquet_files_stay_what_they_are(tmp_path, last):
    path = tmp_path / "rows.parquet"
    kinds = [pa.int8(), pa.uint64(), pa.float32(), pa.bool_(), pa.string()]
    values = [None if last is None else x for x in (1, 1, 1.0, True, "x")]
    columns = {str(k): pa.array([v], k) for k, v in zip(kinds, values, strict=True)}
    pq.write_table(pa.table(columns), path)
    dtypes = [str(dtype) for dtype in stream_table(path, Schema([])).whole().dtypes]
    assert dtypes == ["Int8", "UInt64", "Float32", "boolean", "string"]


TEXTS = {
    "datetime": ["2020-01-01T05:00:00", "2020-01-01 05:00", "9000-01-01", "2020"],
    "timedelta": ["1 h", "5 us", "100000 days"],
    "continuous": [str(2**63), "9007199254740993"],
    "integer": [str(2**53 - 1), "-1", "1.5"],
}
INTRUDERS = [
    *("2020-01-01T00:00:00+23:59", "2020-01-01T00:00:00.123456789", "now", "a", "inf"),
    *("9" * 400, str(2**64 - 1), "1 ns", "0001-01-01", "1_0", "1.5", "-1", "\ud800"),
]


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("text", INTRUDERS)
def test_a_text_does_not_change_how_others_are_read(kind, text):
    column, others = Column("a", kind), TEXTS[kind] * 20
    alone = typed(pd.Series(others, dtype=object), column, PLAIN)
    among = typed(pd.Series([text, *others], dtype=object), column, PLAIN)
    assert alone.equals(among[1:].reset_index(drop=True))


@pytest.mark.parametrize("text", [None, *INTRUDERS])
def test_a_text_does_not_change_the_levels_of_others(text):
    """Whole numbers beyond 2^53 became floats where one more row had no level."""
    column = Column("a", "categorical", levels=[2**53, 2**53 + 1, 1, "1", "x"])
    others = pd.Series([str(2**53 + 1), "1", "1.0"] * 2, dtype=object)
    found = typed(pd.concat([others, pd.Series([text], dtype=object)]), column, PLAIN)
    assert found.cat.codes.tolist()[:6] == [1, 2, 2] * 2
    assert found.index.tolist() == [*range(6), 0]


def test_instants_of_a_stated_form_are_read_row_by_row():
    form = CsvFormat(date_format="%d.%m.%Y %H:%M%z")
    texts = ["1.2.2020 05:00+0000", "1.2.2020 05:00+0100", "1.2.9000 05:00-0100", "a"]
    found = instants_of(pd.Series(texts, dtype=object), form.date_format)
    hours = ["2020-02-01T05", "2020-02-01T04", "9000-02-01T06", "NaT"]
    assert found.to_numpy().tolist() == np.array(hours, "M8[us]").tolist()
    assert found.dtype == "M8[us]"


@pytest.mark.parametrize("form", ["mixed", "ISO8601", "%Q", ""])
def test_forms_of_instants_are_those_of_strptime(form):
    with pytest.raises(ValueError, match=r"one of datetime\.strptime; got"):
        CsvFormat(date_format=form)


ODD_TYPES = {
    "list": (pa.list_(pa.int64()), [1]),
    "struct": (pa.struct([("a", pa.int64())]), {"a": 1}),
    "binary": (pa.binary(), b"a"),
    "bool": (pa.bool_(), True),
    "decimal": (pa.decimal128(9, 2), Decimal(1)),
    "time": (pa.time32("s"), 1),
    "instant": (pa.timestamp("s", tz="Europe/Oslo"), 1),
}
ODD_KINDS = {
    "datetime": {},
    "timedelta": {},
    "continuous": {},
    "boolean": {},
    "categorical": {"levels": ["a", 1]},
}


@pytest.mark.parametrize("stated", ODD_KINDS)
@pytest.mark.parametrize("held", ODD_TYPES)
def test_values_of_other_types_in_parquet_files_raise_nothing(tmp_path, held, stated):
    kind, value = ODD_TYPES[held]
    column = Column("a", stated, **ODD_KINDS[stated])

    def dtype(values):
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.table({"a": pa.array(values, kind)}), path)
        return stream_table(path, Schema([column])).whole()["a"].dtype

    assert dtype([value, None]) == dtype([None, None])
    if held == "instant" and stated != "datetime":
        # As objects, those far away would end the process.
        assert dtype([value]) == pd.DatetimeTZDtype("ms", "Europe/Oslo")


@pytest.mark.parametrize("value", [1e307, 1.79e308, -1.79e308])
@pytest.mark.parametrize("resolution", [0.01, 1e-30])
def test_huge_numbers_of_a_resolution_warn_of_nothing(value, resolution):
    frame = pd.DataFrame({"a": np.append(np.linspace(0, 1, 200), value)})
    schema = Schema([Column("a", "continuous", resolution=resolution)])
    released(frame, schema)


@pytest.mark.parametrize("value", [1.79e308, -1.79e308])
def test_huge_increments_warn_of_nothing(value):
    numbers = np.linspace(0, 1, 200)
    frame = pd.DataFrame({"a": numbers, "b": np.append(numbers[1:], value)})
    frame.loc[199, "a"] = -value
    low = Column("a", "continuous", lower=-1.7e308, upper=1.7e308)
    found = released(frame, Schema([low], [LessEqual("a", "b")]))
    assert np.isfinite(found.learned(frame)[1]).all()


SIGNALS = {
    "float16": np.array([0x7C01], "u2").view("f2"),
    "float32": np.array([0x7F800001], "u4").view("f4"),
    "float64": np.array([0x7FF0000000000001], "u8").view("f8"),
    "longdouble": np.frombuffer(
        bytes([1, 0, 0, 0, 0, 0, 0, 0x80, 0xFF, 0x7F, 0, 0, 0, 0, 0, 0]), np.longdouble
    ),
}
"""NaN of which arithmetic warns; the last one of x86 alone."""


@pytest.mark.skipif(np.finfo(np.longdouble).bits != 128, reason="other bits")
@pytest.mark.parametrize(
    "facts",
    [
        {"kind": "integer"},
        {"kind": "integer", "lower": 0, "upper": 9},
        {"kind": "continuous"},
        {"kind": "continuous", "resolution": 0.5},
        {"kind": "categorical"},
        {"kind": "categorical", "levels": (0, 1)},
    ],
)
@pytest.mark.parametrize("dtype", SIGNALS)
def test_signaling_missing_values_warn_of_nothing(dtype, facts):
    numbers = np.tile(np.array([0, 1], dtype), 100)
    numbers = np.concatenate([numbers, SIGNALS[dtype]])
    frame = pd.DataFrame({"a": numbers, "b": numbers})
    schema = Schema([Column("a", **facts), Column("b", "continuous")])
    released(frame, schema)


def released(frame, schema):
    mechanisms = Mechanisms(np.random.default_rng(0), np.random.default_rng(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = TableTransformer.fit(
            frame, schema.resolve(frame), mechanisms,
            n_rows=200, multiplier=1.0, delta=1e-6, n_bins=5,
        )  # fmt: skip
        found.arrays(frame)
    return found


class Zone(dt.tzinfo):
    """A time zone that fails once it is told to."""

    fails = False

    def utcoffset(self, when):
        if self.fails:
            raise RuntimeError("asked")
        return dt.timedelta(0)

    dst = utcoffset

    def tzname(self, when):
        return str(self.utcoffset(when))


def test_time_zones_of_objects_raise_nothing():
    zone = Zone()
    instants = [pd.Timestamp(2020, 1, 2, tz=zone), dt.datetime(2020, 1, 2, tzinfo=zone)]
    zone.fails = True
    found = to_units(pd.Series([*instants, dt.date(2020, 1, 3)], dtype=object), "D")
    assert np.isnan(found[0])
    assert found[1:].tolist() == [18263.0, 18264.0]


def all_alike(*_):
    return 1.0


def in_pipeline(flow):
    return make_pipeline(FunctionTransformer(), flow)


def test_pickled_predictors_hold_no_seed_of_noise():
    rng = np.random.default_rng(0)
    flow = DPHFlowSynthesizer(n_steps=5, random_state=7, noise="reproducible")
    model = SyntheticRegressor(flow).fit(
        rng.normal(size=(200, 2)), rng.normal(size=200)
    )
    copy = pickle.loads(pickle.dumps(model))
    assert copy.synthesizer.random_state is None
    assert copy.synthesizer_.random_state is None
    assert model.synthesizer.random_state == 7
    model.set_params(synthesizer__noise="fresh")
    with pytest.raises(ValueError, match="same number of rows"):
        model.fit(np.zeros((9, 2)), np.zeros(8))
    assert pickle.loads(pickle.dumps(model)).synthesizer.random_state is None
    fresh = DPHFlowSynthesizer(n_steps=5, random_state=7, noise="reproducible")
    unfitted = pickle.loads(pickle.dumps(SyntheticRegressor(fresh)))
    assert unfitted.synthesizer.random_state == 7


@pytest.mark.parametrize("wrap", [lambda flow: flow, in_pipeline, SyntheticRegressor])
def test_pickled_searches_hold_no_seed_of_noise(wrap):
    rng = np.random.default_rng(0)
    seed = 0x5EED_1234
    flow = DPHFlowSynthesizer(n_steps=2, random_state=seed, noise="reproducible")
    search = GridSearchCV(wrap(flow), {}, cv=2, scoring=all_alike)
    search.fit(rng.normal(size=(40, 2)), rng.normal(size=40))
    copy = pickle.loads(pickle.dumps(search))
    seeds = [
        value
        for estimator in (copy.estimator, copy.best_estimator_)
        for name, value in estimator.get_params().items()
        if name.endswith("random_state")
    ]
    assert set(seeds) == {None}
    assert seed.to_bytes(4, "little") not in pickle.dumps(search)
    assert flow.random_state == seed
    with pytest.raises(ValueError, match="needs an integer random_state"):
        copy.estimator.fit(rng.normal(size=(9, 2)), rng.normal(size=9))


# Objects that lie ---------------------------------------------------------------------


def told(self, *args):
    raise RuntimeError("the income was 98765")


METHODS = (
    "__hash__", "__eq__", "__ne__", "__lt__", "__bool__", "__len__", "__iter__",
    "__str__", "__repr__", "__format__", "__int__", "__float__", "__index__", "__abs__",
    "__add__", "__array__", "item",
)  # fmt: skip


def hostile(base, *args):
    """Return an object of a subclass whose methods, and class, tell what they hold."""
    body = dict.fromkeys(METHODS, told) | {"__class__": property(told)}
    return type("Hostile", (base,), body)(*args)


class Pretender:
    """No text or number, whatever it says."""

    def __init__(self, kind):
        self.kind = kind

    @property
    def __class__(self):
        return self.kind


# Built inside the tests: pytest asks its parameters.
LIARS = {
    "str": (str, ("a",), "a"),
    "int": (int, (7,), 7),
    "float": (float, (0.5,), 0.5),
    "int64": (np.int64, (7,), 7),
    "uint8": (np.uint8, (7,), 7),
    "float64": (np.float64, (0.5,), 0.5),
    "float32": (np.float32, (0.5,), 0.5),
    "longdouble": (np.longdouble, (0.5,), 0.5),
    "str_": (np.str_, ("a",), "a"),
    "object": (object, (), None),
    "datetime64": (np.datetime64, (5, "ns"), None),
    "timedelta64": (np.timedelta64, (5, "ns"), None),
    "void": (np.void, (b"1234",), None),
}
PRETENDED = (str, bool, int, float, np.int64, np.ndarray)


def liar(name):
    """Return an object that lies, and what it is."""
    if name.startswith("as "):
        return Pretender({kind.__name__: kind for kind in PRETENDED}[name[3:]]), None
    base, args, truth = LIARS[name]
    return hostile(base, *args), truth


ALL = [*LIARS, *(f"as {kind.__name__}" for kind in PRETENDED)]


@pytest.mark.parametrize("name", ALL)
def test_objects_are_what_their_type_is(name):
    found, truth = liar(name)
    own = plain(found)
    assert type(own) is type(truth)
    assert own == truth
    assert objects([found])[0] is found


def test_truth_values_and_huge_numbers_are_plain():
    assert plain(True) is True
    assert plain(np.True_) is True
    assert plain(np.longdouble("1e400")) == float("inf")
    assert plain(b"a") is plain(1j) is plain(None) is None


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ALL)
def test_lying_objects_are_asked_nothing(name):
    """Not in columns, known levels, targets, lists or held-out labels."""
    found = liar(name)[0]
    values = objects(["a", 7, 0.5, None, found] * 8)
    labels = pd.Series(values)
    frame = pd.DataFrame({"open": labels, "known": labels, "x": np.arange(40.0)})
    schema = Schema([Column("known", "categorical", levels=["a", "b", 7])])
    flow = DPHFlowSynthesizer(epsilon=50.0, n_steps=2, schema=schema, random_state=0)
    flow.fit(frame)
    flow.sample(20)
    small = DPHFlowSynthesizer(epsilon=50.0, n_steps=2)
    small.fit(values.reshape(20, 2))
    model = SyntheticClassifier(small, classes=["a", "b"], n_samples=50, random_state=0)
    model.fit(frame[["open", "x"]], labels)
    model.predict(frame[["open", "x"]])
    held_out = frame[["open", "x"]].tail(1), labels.tail(1)
    assert hits(model, *held_out)[0] in (0.0, 1.0)
    model = SyntheticRegressor(small, n_samples=50)
    rows = [[1.0, value] for value in values]
    model.fit(rows, list(values))
    model.predict(rows)


@pytest.mark.parametrize("base", [list, tuple])
def test_rows_that_lie_are_asked_nothing(base):
    row = hostile(base, (1.0, 2.0))
    assert as_container("T", [row, [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert as_container("T", [Pretender(base), []]).shape == (2, 0)


@pytest.mark.parametrize("dtype", [object, pd.StringDtype("python")])
def test_texts_that_lie_are_levels(dtype):
    series = pd.Series(objects(["b", hostile(str, "a")]), dtype=object)
    if dtype is not object:
        held = series.to_numpy()
        series = pd.Series(pd.array(["b", "a"], dtype=dtype))
        series.array._ndarray[:] = held
    assert level_indices(series, ["a", "b"]).tolist() == [1, 0]
    assert distinct_values(series) == ("a", "b")


@pytest.mark.parametrize("value", [0.5, 5e-324, 1e-300, 1e-42, 1.79e308, math.nan])
def test_nothing_is_told_of_a_number_where_numpy_is_to_raise(value):
    """Pixels near zero, which single precision cannot hold, did it."""
    pixels = np.linspace(0, 1, 160).reshape(40, 2, 2)
    pixels[7, 1, 0] = value
    frame = pd.DataFrame({"a": pixels[:, 1, 0]})
    autoencoder = DPArrayVAESynthesizer(n_steps=2)
    with np.errstate(all="raise"):
        autoencoder.fit(pixels)
        autoencoder.set_params(classes=[0, 1]).fit(pixels, np.arange(40) % 2)
        ImagePixelizer(cell=1).fit_transform(pixels)
        LaplaceRandomizer(bounds=(0, 1)).fit_transform(frame)
        for bounds in ({}, {"lower": 0.0, "upper": 1.0}):
            schema = Schema([Column("a", "continuous", **bounds)])
            DPHFlowSynthesizer(n_steps=2, schema=schema).fit(frame)


def test_an_interrupted_end_leaves_the_fit_before_it(monkeypatch):
    """Not a model beside the cost of another."""
    frame = pd.DataFrame({"a": np.linspace(0, 1, 40)})
    synthesizer = DPHFlowSynthesizer(n_steps=2).fit(frame)
    before = dict(vars(synthesizer))
    synthesizer.set_params(epsilon=50.0)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "_report", interrupted)
    with pytest.raises(KeyboardInterrupt):
        synthesizer.fit(frame)
    after = vars(synthesizer)
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before if name != "epsilon")


# The type of private rows -------------------------------------------------------------


USES = {
    "length": len,
    "iteration": list,
    "search": lambda rows: 1 in rows,
    "truth": bool,
    "equality": lambda rows: rows == 3,
    "order": lambda rows: rows < 3,
    "sum": lambda rows: rows + 1,
    "number": float,
    "range": range,
    "array": np.asarray,
    "shape": np.shape,
    "tensor": torch.tensor,
    "numpy's tensor": torch.from_numpy,
    "frame": pd.DataFrame,
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "hash": hash,
    "attributes": vars,
    "slice": lambda rows: rows[:2],
    "mask": lambda rows: rows[np.array([True, False, True])],
    "one row": lambda rows: rows[0],
    "last row": lambda rows: rows[-1],
}


@pytest.mark.parametrize("value", [np.arange(3), torch.arange(3), [1, 2, 3], 3])
@pytest.mark.parametrize("use", USES)
def test_private_rows_have_neither_length_nor_values(use, value):
    with pytest.raises(TypeError) as error:
        USES[use](Private(value))
    assert not any(letter.isdigit() for letter in str(error.value))


def test_what_is_made_of_private_rows_is_private():
    rows = Private(np.arange(40.0))
    for made in (rows, rows.map(len), rows.map(np.mean), rows.to("cpu")):
        assert type(made) is Private
        assert repr(made) == str(made) == "Private(...)"
        assert sys.getsizeof(made) == sys.getsizeof(Private(None))
    assert opened(rows.map(len)) == 40
    drawn = torch.tensor([3, 0])
    assert rows[drawn.numpy()].tolist() == rows.to("cpu")[drawn].tolist() == [3, 0]
    with pytest.raises(IndexError) as error:
        rows[np.array([40])]
    assert not any(letter.isdigit() for letter in str(error.value))


@pytest.mark.parametrize("in_memory", [False, True])
def test_chunks_of_private_rows_show_sums_to_the_door_alone(in_memory):
    parts = Chunks(Private(lambda: [np.arange(3), np.arange(2)]), in_memory)
    for use in (len, list, np.concatenate, lambda parts: parts.read()):
        with pytest.raises(TypeError):
            use(parts)
    total = parts.map(lambda part: part + 1).total(np.sum)
    assert type(total) is Private
    assert opened(total) == 9
