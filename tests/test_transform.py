"""Tables to cells and back, what the releases cost and how far one row moves them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from scipy.optimize import brentq
from scipy.stats import norm

from dpgenerative import DPHFlowSynthesizer, DPVAESynthesizer
from dpgenerative.encoding import marginals
from dpgenerative.encoding.codecs import IntervalCodec
from dpgenerative.encoding.estimates import (
    PRESENT_NOISE,
    PRESENT_SHARE,
    Interval,
    Partition,
    posterior_mean_counts,
    project_to_simplex,
)
from dpgenerative.encoding.grid import is_coarse
from dpgenerative.encoding.increments import learned_columns
from dpgenerative.encoding.marginals import POOL_NOISE, SPLIT_SIZE
from dpgenerative.encoding.shares import STRUCTURE_SHARE, has_open_keys
from dpgenerative.encoding.smoothing import smoothed
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.tables.column import Column
from dpgenerative.tables.dtypes import can_hold_missing
from dpgenerative.tables.private import opened
from dpgenerative.tables.schema import Schema, misfits

DELTA = 1e-5
TOP = 1 - 2.0**-24
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NULLABLE_INTEGERS = ["Int8", "Int16", "Int32", "Int64", "UInt8", "UInt64"]
FLOATS = ["float32", "float64", "Float32", "Float64"]


# Tables -----------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One column: its rows, what a schema says of it, whether it is called nominal."""

    series: pd.Series
    column: Column | None = None
    nominal: bool = False


def punctured(values, rng, dtype, share=0.2):
    """Return a series of a dtype with missing values at random."""
    series = pd.Series(values).astype(dtype)
    return series.mask(pd.Series(rng.random(len(series)) < share))


def decades(rng, n, low, high):
    return rng.choice([-1, 1], n) * 10.0 ** rng.uniform(low, high, n)


def make_integers(dtype):
    def make(rng, n):
        values = rng.integers(0 if "u" in dtype.lower() else -50, 51, n)
        if dtype in INTEGERS:
            return Case(pd.Series(values.astype(dtype)))
        return Case(punctured(values, rng, dtype))

    return make


def make_floats(dtype):
    return lambda rng, n: Case(punctured(rng.normal(size=n) * 7, rng, dtype))


def make_heavy_tails(rng, n):
    values = decades(rng, n, -6, 8)
    values[rng.random(n) < 0.1] = np.inf
    return Case(punctured(values, rng, "float64"))


def make_large_integers(rng, n):
    return Case(pd.Series(decades(rng, n, 0, 9).astype("int64")))


def make_atoms(dtype):
    def make(rng, n):
        values = rng.choice([0, 0, 0, -1, 999_999, 5], n)
        free = rng.random(n) < 0.3
        return Case(
            pd.Series(np.where(free, rng.integers(-9, 99, n), values), dtype=dtype)
        )

    return make


def make_constant(value, dtype):
    return lambda rng, n: Case(pd.Series([value] * n, dtype=dtype))


def make_pinned(rng, n):
    column = Column("", "continuous", lower=5.0, upper=5.0)
    return Case(pd.Series(rng.choice([5.0, 4.0, np.nan], n)), column)


def make_integers_as_floats(rng, n):
    values = punctured(rng.integers(-20, 3000, n), rng, "float64")
    return Case(values, Column("", "integer"))


def make_bounded_integers(rng, n):
    values = pd.Series(rng.integers(-20, 140, n))
    return Case(values, Column("", "integer", lower=0, upper=120))


def make_not_nullable(rng, n):
    values = punctured(rng.normal(size=n), rng, "float64")
    return Case(values, Column("", "continuous", lower=-1, upper=2, nullable=False))


def make_hundredths(rng, n):
    values = punctured(np.round(rng.random(n) * 200, 2), rng, "float64")
    column = Column("", "continuous", lower=0, upper=150, resolution=0.01)
    return Case(values, column)


def make_quarters(rng, n):
    values = pd.Series(np.round(rng.normal(size=n) * 40) / 4)
    return Case(values, Column("", "continuous", resolution=0.25))


def make_bools(dtype):
    def make(rng, n):
        values = rng.random(n) < 0.3
        return Case(
            pd.Series(values) if dtype == "bool" else punctured(values, rng, dtype)
        )

    return make


def make_words(dtype):
    def make(rng, n):
        k = int(rng.choice([2, 5, 40]))
        values = np.array([f"w{i}" for i in range(k)], dtype=object)
        ranks = np.minimum(rng.geometric(0.2, n) - 1, k - 1)
        return Case(punctured(values[ranks], rng, dtype))

    return make


def make_categories(rng, n):
    k = int(rng.choice([1, 2, 7, 300]))
    codes = rng.integers(-1, k, n)
    dtype = pd.CategoricalDtype([f"c{i}" for i in range(k)], ordered=bool(k % 2))
    return Case(pd.Series(pd.Categorical.from_codes(codes, dtype=dtype)))


def make_numbered_categories(rng, n):
    dtype = pd.CategoricalDtype([3, 1, 2, 2**40])
    return Case(pd.Series(rng.choice([1, 2, 3, None], n)).astype(dtype))


def make_objects(rng, n):
    pool = ["a", "b", "", 7, 8, 2.5, True, None, np.nan, ("t", 1), b"bytes", 2**70]
    values = np.empty(n, dtype=object)
    values[:] = [pool[i] for i in rng.integers(0, len(pool), n)]
    return Case(pd.Series(values, dtype=object))


def make_nominal(dtype):
    def make(rng, n):
        values = rng.choice([0, 3, 10, 11], n)
        if dtype in INTEGERS:
            return Case(pd.Series(values.astype(dtype)), nominal=True)
        return Case(punctured(values, rng, dtype), nominal=True)

    return make


def make_grades(rng, n):
    values = pd.Series(rng.choice(["low", "mid", "high", "unheard of", None], n))
    column = Column("", "categorical", levels=("low", "mid", "high"), ordered=True)
    return Case(values, column)


def make_answers(rng, n):
    values = pd.Series(rng.choice(["no", "yes", "?", None], n), dtype="string")
    column = Column("", "categorical", levels=("no", "yes"), nullable=False)
    return Case(values, column)


def make_times(dtype, unit=None, bounds=(None, None)):
    dtype = pd.api.types.pandas_dtype(dtype)
    kind = "timedelta" if "timedelta" in str(dtype) else "datetime"

    def make(rng, n):
        seconds = rng.integers(-3 * 10**8, 10**9, n)
        values = pd.Series(seconds.astype("m8[s]" if kind == "timedelta" else "M8[s]"))
        if getattr(dtype, "tz", None):
            values = values.dt.tz_localize("UTC")
        column = Column("", kind, *bounds, resolution=unit)
        return Case(punctured(values, rng, dtype), column)

    return make


MAKERS = {
    **{f"integer {d}": make_integers(d) for d in INTEGERS + NULLABLE_INTEGERS},
    **{f"float {d}": make_floats(d) for d in FLOATS},
    "heavy tails": make_heavy_tails,
    "large integers": make_large_integers,
    "atoms int64": make_atoms("int64"),
    "atoms float64": make_atoms("float64"),
    "constant int": make_constant(-7, "int16"),
    "constant float": make_constant(0.1, "float64"),
    "zeros": make_constant(0, "float32"),
    "pinned": make_pinned,
    **{
        f"all missing {d}": make_constant(None, d)
        for d in ("float64", "Int64", "boolean", "string", "object", "category")
    },
    "integers as floats": make_integers_as_floats,
    "bounded integers": make_bounded_integers,
    "not nullable": make_not_nullable,
    "hundredths": make_hundredths,
    "quarters": make_quarters,
    "bool": make_bools("bool"),
    "boolean": make_bools("boolean"),
    "string": make_words("string"),
    "object": make_words("object"),
    "categories": make_categories,
    "numbered categories": make_numbered_categories,
    "mixed objects": make_objects,
    **{
        f"nominal {d}": make_nominal(d) for d in ("int8", "float32", "Int64", "Float64")
    },
    "grades": make_grades,
    "answers": make_answers,
    "instants": make_times("datetime64[ns]"),
    "days": make_times("datetime64[s]", "D", ("1969-12-30", "1999-01-01")),
    "hours in a zone": make_times(pd.DatetimeTZDtype("us", "Europe/Berlin"), "h"),
    "milliseconds of Arrow": make_times(pd.ArrowDtype(pa.timestamp("ns")), "ms"),
    "dates of Arrow": make_times(pd.ArrowDtype(pa.date32()), "D"),
    "durations": make_times("timedelta64[ns]", "min"),
    "long durations": make_times("timedelta64[s]", None, ("-1D", "9000D")),
}


@dataclass(frozen=True)
class Table:
    """A frame and what is public about it."""

    frame: pd.DataFrame
    schema: Schema

    @classmethod
    def of(cls, cases):
        """Join columns named 0, 1, 2, ... under an index that means nothing."""
        names = [f"{name} {j}" if j % 2 else j for j, name in enumerate(cases)]
        pairs = list(zip(names, cases.values(), strict=True))
        frame = pd.DataFrame({name: case.series for name, case in pairs})
        frame.index = [f"row {i // 2}" for i in range(len(frame))]
        stated = [renamed(c.column, name) for name, c in pairs if c.column is not None]
        nominal = [name for name, case in pairs if case.nominal]
        return cls(frame, Schema(stated).resolve(frame, nominal))


def renamed(column, name):
    return Column(**{**column.__dict__, "name": name})


def one(series, column=None, nominal=False):
    """Return the table of one column."""
    return Table.of({"x": Case(pd.Series(series), column, nominal)})


def mixed(names, n, seed):
    rng = np.random.default_rng(seed)
    return Table.of({name: MAKERS[name](rng, n) for name in names})


def everything(n, seed=0):
    return mixed(list(MAKERS), n, seed)


tables = st.builds(
    mixed,
    names=st.lists(st.sampled_from(list(MAKERS)), min_size=1, max_size=6, unique=True),
    n=st.integers(1, 80),
    seed=st.integers(0, 2**32 - 1),
)
multipliers = st.sampled_from([0.0, 0.3, 5.0])
# Seeds are drawn, so that the noise is the same at every run.
steady = settings(deadline=None, derandomize=True, max_examples=60)


# Releases ---------------------------------------------------------------------


@dataclass(frozen=True)
class Release:
    """One call of a mechanism, with the exact statistic that it was handed."""

    exact: Any
    std: float
    threshold: float | None = None

    def distance(self, other):
        """Return the L2 distance between two exact statistics."""
        if self.threshold is None:
            return float(np.linalg.norm(self.exact - other.exact))
        keys = set(self.exact) | set(other.exact)
        moves = [self.exact.get(k, 0) - other.exact.get(k, 0) for k in keys]
        return math.hypot(*moves)


class Recorder(Mechanisms):
    """Keeps what it releases, and gives the answers of another recorder if told to."""

    def __init__(self, seed=0, replay=None):
        generators = np.random.default_rng(seed), torch.Generator()
        super().__init__(*generators)
        self._plain = Mechanisms(*generators)
        self._frozen = None if replay is None else iter(replay.answers)
        self.releases = []
        self.answers = []

    def gaussian(self, values, std, **stated):
        self.releases.append(Release(np.array(opened(values), float), std))
        return self._answer(self._plain.gaussian(values, std, **stated))

    def thresholded(self, counts, std, threshold, **stated):
        self.releases.append(Release(dict(opened(counts)), std, threshold))
        return self._answer(self._plain.thresholded(counts, std, threshold, **stated))

    def _answer(self, answer):
        if self._frozen is not None:
            frozen = next(self._frozen)
            assert np.shape(frozen) == np.shape(answer) or isinstance(frozen, dict)
            answer = frozen
        self.answers.append(answer)
        return answer

    @property
    def spent(self):
        """Squared inverse noise multiplier of all releases together."""
        return sum(1 / r.std**2 for r in self.releases)


def fit(table, *, multiplier=0.0, mechanisms=None, n_rows=None, seed=0, **options):
    options = {
        "delta": DELTA,
        "n_bins": 16,
        "with_missing": table.schema.names,
        **options,
    }
    return TableTransformer.fit(
        table.frame,
        table.schema,
        mechanisms or Recorder(seed),
        n_rows=n_rows or len(table.frame),
        multiplier=multiplier,
        **options,
    )


def every_cell(fitted):
    """Decode every cell of every column at positions 0, 1/2 and just under 1."""
    frames = []
    for codec in fitted.codecs:
        codes = np.repeat(np.arange(codec.n_cells), 3)
        places = np.tile([0.0, 0.5, TOP], codec.n_cells)
        frames.append((codec, codec.decode(codes, places), codes))
    return frames


def round_trip(table, fitted):
    """Encode and decode rows, with positions in double precision."""
    rng = np.random.default_rng(0)
    codes = fitted.encode(table.frame)
    pairs = zip(fitted.codecs, fitted.learned(table.frame), strict=True)
    places = [codec.positions(series, rng) for codec, series in pairs]
    return codes, fitted.decode(codes, np.stack(places, 1))


# What comes back --------------------------------------------------------------


def numbers_of(column, series):
    """Return numbers, and times as whole units since 1970; NaN where missing."""
    if not column.temporal:
        return series.to_numpy(float, na_value=np.nan).copy()
    is_instant = column.kind == "datetime"
    zone = getattr(series.dtype, "tz", None)
    plain = series if zone is None else series.dt.tz_localize(None)
    plain = plain.astype("M8[us]" if is_instant else "m8[us]")
    since = plain - pd.Timestamp(0).as_unit("us") if is_instant else plain
    length = int(pd.Timedelta(1, column.unit) / pd.Timedelta(1, "us"))
    ticks = since.to_numpy().astype("m8[us]").astype(np.int64) // length
    return np.where(since.isna(), np.nan, ticks.astype(float))


def as_read(column, series):
    """Return numbers as the documentation says they are read; NaN where missing."""
    values = numbers_of(column, series)
    column = column.numbers
    values[np.isinf(values)] = np.nan
    if not column.nullable:
        values[np.isnan(values)] = column.lower
    values = np.clip(values, column.lower, column.upper)
    step = column.step
    return values if step is None else step * np.round(values / step)


def identity_of(value, dtype):
    """Return what tells values apart; in a column of objects the type counts too."""
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, (str, bool, int, float)):
        return None
    if isinstance(value, int) and abs(value) >= 2**63:
        return None
    return (
        (type(value).__name__, value) if pd.api.types.is_object_dtype(dtype) else value
    )


def check_numbers(codec, series, codes, back):
    expected = as_read(codec.column, series)
    missing = np.isnan(expected)
    np.testing.assert_array_equal(back.isna().to_numpy(bool), missing)
    inside = np.where(missing, 0, codes)
    value = codec.values[inside] * (codec.column.step or 1.0)
    expected = np.where(np.isnan(value), expected, value)[~missing]
    found = numbers_of(codec.column, back)[~missing]
    # Positions are kept below 1 by 2^-24 of the cell; one step is more than this.
    # A zone skips an hour in spring.
    skipped = 3600 if getattr(codec.dtype, "tz", None) else 0
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 + skipped)


def check_dates(codec, series, back):
    """Require the date, but for the weekday where several share a cell."""
    expected, found = as_read(codec.column, series), numbers_of(codec.column, back)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    wide = np.diff(codec.edges)[codec.encode(series).clip(0, len(codec.values) - 1)]
    assert (np.abs(found - expected) <= np.where(wide > 7, 6, wide))[
        ~np.isnan(found)
    ].all()


def check_levels(codec, series, codes, back):
    levels = [identity_of(level, codec.dtype) for level in codec.column.levels]
    other = identity_of(codec.column.other, codec.dtype)
    for value, code, found in zip(series.array, codes, back.array, strict=True):
        key = identity_of(value, codec.dtype)
        if key is not None and value == value and key not in levels and other:
            key = other
        known = key is not None and key in levels
        if not known and codec.column.nullable:
            is_held = can_hold_missing(codec.dtype)
            assert pd.isna(found) if is_held else found in codec.column.levels
            continue
        key = key if known else other or levels[0]
        members = np.flatnonzero(codec.level_cells == code)
        assert levels.index(key) in members
        assert identity_of(found, codec.dtype) in [levels[i] for i in members]


def check_domain(codec, series):
    """Require values that the public facts allow."""
    column = codec.column
    assert series.dtype == codec.dtype
    assert column.nullable or not series.isna().any()
    values = series[series.notna()]
    if not column.numeric:
        levels = {identity_of(level, codec.dtype) for level in column.levels}
        assert {identity_of(value, codec.dtype) for value in values.array} <= levels
        return
    values = numbers_of(column, values)
    column = column.numbers
    assert np.isfinite(values).all()
    slack = 1e-6 * max(abs(column.lower), abs(column.upper), 1e-30)
    single = "32" in str(codec.dtype) and "loat" in str(codec.dtype)
    slack = slack if single else 0.0
    assert (values >= column.lower - slack).all()
    assert (values <= column.upper + slack).all()
    if column.step is not None:
        steps = values / column.step
        np.testing.assert_allclose(steps, np.round(steps), atol=1e-6)


def check_round_trip(table, fitted):
    codes, back = round_trip(table, fitted)
    assert back.columns.tolist() == table.frame.columns.tolist()
    assert back.dtypes.tolist() == table.frame.dtypes.tolist()
    assert back.index.equals(pd.RangeIndex(len(table.frame)))
    assert (codes < [codec.n_cells for codec in fitted.codecs]).all()
    for i, (name, codec) in enumerate(fitted.columns.items()):
        series, cells = table.frame.iloc[:, i], codes[:, fitted.place(name)]
        check_domain(fitted.outer[i], back.iloc[:, i])
        if fitted.outer[i] is not codec:
            check_dates(codec, series, back.iloc[:, i])
            continue
        check = check_numbers if codec.column.numeric else check_levels
        check(codec, series, cells.astype(int), back.iloc[:, i])
    return codes, back


@steady
@given(tables, multipliers, st.booleans(), st.integers(0, 99))
def test_rows_come_back(table, multiplier, anchored, seed):
    options = {"anchored": anchored, "n_bins": 8, "seed": seed}
    fitted = fit(table, multiplier=multiplier, **options)
    check_round_trip(table, fitted)
    for codec in fitted.codecs:
        assert codec.masses.sum() == pytest.approx(1)
        assert (codec.masses > 0).all()
        assert codec.atoms.shape == (codec.n_cells,)
    for codec, decoded, codes in every_cell(fitted):
        check_domain(codec, decoded)
        if has_exact_cells(codec):
            np.testing.assert_array_equal(codec.encode(decoded), codes)


@steady
@given(tables, multipliers, st.integers(0, 99))
def test_rows_that_were_not_fitted_come_back_too(table, multiplier, seed):
    """No value raises: what the fitted domain lacks is read by the public rule."""
    fitted = fit(table, multiplier=multiplier, seed=seed)
    rng = np.random.default_rng(seed)
    frame = table.frame.iloc[rng.integers(0, len(table.frame), 30)].copy()
    for name in frame.columns:
        frame[name] = wild(frame[name], rng)
    check_round_trip(Table(frame, table.schema), fitted)


def has_exact_cells(codec):
    """Whether values know their cell: not on one point, nor rounded to 32 bits."""
    if not codec.column.numeric:
        return codec.column.levels != ("",)  # what an empty list of categories becomes
    column = codec.column.numbers
    if getattr(codec.dtype, "tz", None):
        return False  # of an hour that a clock skips, the next is shown
    return column.lower < column.upper and "oat32" not in str(codec.dtype)


def wild(series, rng):
    """Replace a few values by the largest, the strangest and the missing."""
    dtype, series = series.dtype, series.copy()
    rows = rng.permutation(len(series))[:4]
    if pd.api.types.is_integer_dtype(dtype):
        info = np.iinfo(str(dtype).lower())
        series.iloc[rows[:2]] = pd.array([info.min, info.max], dtype=dtype)
    elif pd.api.types.is_float_dtype(dtype):
        info = np.finfo(str(dtype).lower())
        values = [float(info.min), float(info.max), np.inf, -np.inf]
        series.iloc[rows] = pd.array(values, dtype=dtype)
    elif pd.api.types.is_object_dtype(dtype):
        series.iloc[rows[:3]] = ["never seen", float("inf"), frozenset()]
    elif isinstance(dtype, pd.StringDtype):
        # Arrow, which pandas 3 stores strings in, has no lone surrogates.
        strange = "\ud800" if dtype.storage == "python" else "?"
        series.iloc[rows[:2]] = ["never seen", strange]
    elif isinstance(dtype, np.dtype) and dtype.kind in "mM":
        most = 2**63 - 1 if "ns" in str(dtype) else 2**40
        series.iloc[rows[:2]] = np.array([most, -most])[: len(rows)].view(dtype)
    return series


@pytest.mark.parametrize("multiplier", [0.0, 1.0])
def test_all_columns_at_once(multiplier):
    table = everything(400)
    fitted = fit(table, multiplier=multiplier)
    check_round_trip(table, fitted)
    assert fitted.schema.names == table.schema.names
    rng = np.random.default_rng(0)
    places = fitted.positions(table.frame, rng)
    assert places.dtype == np.float32
    assert ((places >= 0) & (places < 1)).all()


@pytest.mark.parametrize("k", [2, 3, 255, 256, 5000])
@pytest.mark.parametrize("dtype", ["object", "string", "category"])
def test_any_number_of_levels(k, dtype):
    names = np.array([f"level {i}" for i in range(k)], dtype=object)
    table = one(pd.Series(np.tile(names, 3)).astype(dtype))
    fitted = fit(table)
    codes, back = round_trip(table, fitted)
    assert fitted.codecs[0].n_cells == k + 1
    assert codes.dtype == (np.uint8 if k < 256 else np.int16)
    pd.testing.assert_series_equal(back[0], table.frame[0], check_index=False)


def skewed_levels(k, n):
    ranks = np.minimum(np.random.default_rng(0).geometric(0.02, n) - 1, k - 1)
    dtype = pd.CategoricalDtype([f"level {i:03d}" for i in range(k)])
    return one(pd.Series(pd.Categorical.from_codes(ranks, dtype=dtype)))


def means_given(noisy, std, mean):
    """Mean of an exponential count given itself with noise, by quadrature."""
    count = np.linspace(0, 60 * std, 20_001)[:, None]
    weights = np.exp(-0.5 * ((noisy - count) / std) ** 2 - count / mean)
    return (count * weights).sum(0) / weights.sum(0)


def test_rare_levels_share_a_cell():
    n, std = 3000, 12 / POOL_NOISE
    recorder = Recorder()
    table = skewed_levels(300, n)
    codec = fit(table, multiplier=std, mechanisms=recorder).codecs[0]
    masses = codec.masses[codec.level_cells] * codec.level_masses
    assert masses.sum() == pytest.approx(1)
    sizes = np.bincount(codec.level_cells)
    assert (sizes > 1).sum() == 1
    rare = codec.level_cells == sizes.argmax()
    assert 50 < rare.sum() < 280
    # Those that count as absent leave their share to the others.
    counts = project_to_simplex(recorder.answers[0], n)[rare]
    assert (counts < 12).all()
    supposed = means_given(recorder.answers[0][rare], std, counts.mean())
    assert std < PRESENT_SHARE * n
    seen = supposed >= std
    assert 10 < seen.sum() < len(seen) - 10
    expected = supposed[seen] * counts.sum() / supposed[seen].sum()
    np.testing.assert_allclose(masses[rare][seen] * n, expected, rtol=1e-2)
    assert (masses[~rare][:-1] * n >= 12).all()
    assert not rare[-1]  # 'missing'


def test_levels_that_are_well_counted_stay_in_large_tables():
    # Each has a smaller share of all rows than PRESENT_SHARE.
    n, std = 100_000, 2.0
    codec = fit(skewed_levels(400, n), multiplier=std).codecs[0]
    shared = np.bincount(codec.level_cells).argmax()
    rows = codec.level_masses[codec.level_cells == shared] * codec.masses[shared] * n
    assert rows.max() < PRESENT_SHARE * n
    assert (rows > 0.9 * PRESENT_NOISE * std).sum() > 10
    assert (rows < 0.05).sum() > 10


@pytest.mark.parametrize("noisy", [-1e3, 0.0, 1e3])
def test_posterior_mean_counts_are_positive(noisy):
    found = posterior_mean_counts(np.full(3, noisy), 10.0, 0.0)
    assert (found >= 0).all()
    assert (found <= max(noisy, 10.0)).all()


def test_levels_of_a_shared_cell_come_back_by_their_masses():
    codec = fit(skewed_levels(300, 3000), multiplier=5.0).codecs[0]
    shared = np.bincount(codec.level_cells).argmax()
    codes, places = np.full(20_000, shared), (np.arange(20_000) + 0.5) / 20_000
    drawn = codec.decode(codes, places).value_counts(normalize=True)
    share = drawn[list(codec.column.levels)].to_numpy()
    expected = np.where(codec.level_cells == shared, codec.level_masses, 0)[:-1]
    np.testing.assert_allclose(share, expected, atol=2e-4)


def test_levels_within_the_noise_are_hardly_ever_sampled():
    n, std = 3000, 5.0
    codec = fit(skewed_levels(300, n), multiplier=std).codecs[0]
    shared = np.bincount(codec.level_cells).argmax()
    rows = codec.level_masses[codec.level_cells == shared] * codec.masses[shared] * n
    absent = rows < 0.05
    assert absent.sum() > 50
    assert (rows[absent] > 0).all()
    assert rows[absent].sum() < 1
    assert rows[~absent].min() > 0.9 * PRESENT_SHARE * n
    assert rows[~absent].sum() > 100


@pytest.mark.parametrize("n_rare", [0, 9])
def test_a_label_of_two_levels_keeps_both(n_rare):
    n, std = 2000, 20.0
    levels = pd.Categorical.from_codes([0] * n + [1] * n_rare, ["no", "yes"])
    table = one(levels)
    (target,) = table.schema.names
    rows = []
    for seed in range(20):
        options = {"multiplier": std, "seed": seed, "with_missing": ()}
        plain = fit(table, **options).codecs[0].masses[1] * n
        kept = fit(table, target=target, **options).codecs[0].masses[1] * n
        assert plain < 1 or kept == pytest.approx(plain, rel=0.5)
        rows.append(kept)
    # As many as one may expect of counts that nobody can tell from none.
    assert min(rows) > 0.1 * std
    assert 0.3 * std < np.mean(rows) < 1.5 * std
    # A cell of missing values is no level, and among more levels none is kept.
    column = Column(target, "categorical", levels=["no", "yes"], nullable=True)
    maybe = pd.Categorical([*levels, *["maybe"] * n], [*levels.categories, "maybe"])
    for values, place in ((one(levels, column), 2), (one(maybe), slice(None))):
        for seed in range(5):
            options = {"multiplier": std, "seed": seed}
            kept, plain = (
                fit(values, target=name, **options).codecs[0].masses[place] * n
                for name in (target, None)
            )
            assert kept == pytest.approx(plain, rel=0.03, abs=0.01)


def test_the_last_column_is_the_one_to_predict():
    n = 1000
    yes = pd.Categorical(["no"] * (n - 3) + ["yes"] * 3)
    frame = pd.DataFrame({"first": yes, "other": np.arange(n) % 2 == 0, "last": yes})
    for kind in (DPHFlowSynthesizer, DPVAESynthesizer):
        shares = []
        for _ in range(5):
            model = kind(epsilon=0.3, delta=1e-5, n_steps=1).fit(frame)
            drawn = model.sample(20_000)
            shares.append((drawn[["first", "last"]] == "yes").mean())
        assert min(s["last"] for s in shares) > 1e-3
        assert min(s["first"] for s in shares) < 5e-4


@pytest.mark.parametrize("ordered", [False, True])
def test_one_rare_level_within_the_noise(ordered):
    # Its cell is its own; in an order it keeps what was released.
    column = Column("x", "categorical", levels=(0, 1, 2), ordered=ordered)
    table = one([0] * 5000 + [1] * 5000 + [2] * 20, column)
    released = [
        fit(table, multiplier=40.0, seed=k).codecs[0].masses[2] for k in range(30)
    ]
    rows = np.array(released) * 10_020
    assert ((rows > 1) & (rows < 35)).any() == ordered
    assert (rows < 1).any()


def test_frequent_levels_keep_their_cells():
    codec = fit(skewed_levels(2, 3000), multiplier=2.0).codecs[0]
    np.testing.assert_array_equal(codec.level_cells, [0, 1, 2])


def test_levels_with_an_order_keep_their_cells():
    levels = tuple(range(50))
    column = Column("x", "categorical", levels=levels, ordered=True, nullable=False)
    codec = fit(one([0] * 60 + [49], column), multiplier=5.0).codecs[0]
    np.testing.assert_array_equal(codec.level_cells, np.arange(50))
    assert codec.column.is_ordered


@pytest.mark.parametrize("multiplier", [0.0, 2.0])
@pytest.mark.parametrize("name", ["hundredths", "integer int64", "string", "boolean"])
def test_probabilities_within_cells_sum_to_one(name, multiplier):
    table = mixed([name], 300, 0)
    codec = fit(table, multiplier=multiplier).codecs[0]
    column, dtype = codec.column, table.frame[0].dtype
    if column.numeric:
        steps = np.arange(column.lower / column.step, column.upper / column.step + 0.5)
        values = pd.Series(steps * column.step).astype(dtype)
    else:
        values = pd.Series(list(column.levels), dtype=dtype)
    codes = codec.encode(values)
    share = np.bincount(codes, np.exp(codec.log_within(values)))
    np.testing.assert_allclose(share, 1, atol=1e-9)
    assert len(share) == codec.n_cells - column.nullable
    if column.nullable:
        assert codec.log_within(pd.Series([None], dtype=dtype))[0] == 0


@pytest.mark.parametrize("anchored", [True, False])
def test_public_bounds_that_leave_one_number(anchored):
    column = Column("x", "continuous", lower=5.0, upper=5.0)
    table = one([5.0, 4.0, 6.0, np.nan, np.inf], column)
    fitted = fit(table, anchored=anchored)
    assert round_trip(table, fitted)[1][0].tolist()[:3] == [5.0, 5.0, 5.0]
    assert np.isfinite(fitted.positions(table.frame, np.random.default_rng(0))).all()
    assert np.isfinite(fitted.log_within(table.frame)).all()


@pytest.mark.parametrize(
    "bounds",
    [
        {"lower": -50, "upper": 300},
        {"lower": 1000, "upper": 1100},
        {"lower": -9_000_100, "upper": -9_000_000},
        {"lower": 0, "upper": 1_000_000},
    ],
)
def test_probabilities_of_integers_sum_to_one(bounds):
    rng = np.random.default_rng(0)
    values = bounds["lower"] + rng.integers(0, 100, 500)
    codec = fit(one(values, Column("x", "integer", **bounds))).codecs[0]
    every = pd.Series(np.arange(bounds["lower"], bounds["upper"] + 1))
    share = np.bincount(codec.encode(every), np.exp(codec.log_within(every)))
    np.testing.assert_allclose(share, 1, atol=1e-6)


@pytest.mark.parametrize("bounds", [(-80, 90), (100, 150), (-15, -10)])
def test_density_of_a_continuum_integrates_to_one(bounds):
    lower, upper = bounds
    values = (
        np.clip(np.random.default_rng(0).standard_t(2, 500), -9, 9) + sum(bounds) / 2
    )
    codec = fit(
        one(values, Column("x", "continuous", lower=lower, upper=upper))
    ).codecs[0]
    for k in np.flatnonzero(~codec.atoms):
        x = np.linspace(codec.edges[k], codec.edges[k + 1], 4001)
        x[-1] = np.nextafter(x[-1], -np.inf)
        density = np.exp(codec.log_within(pd.Series(x)))
        assert trapezoid(density, x) == pytest.approx(1, abs=2e-3)


# Exact marginals --------------------------------------------------------------


def test_without_noise_masses_are_frequencies():
    table = everything(200, seed=3)
    fitted = fit(table)
    codes = fitted.encode(table.frame)
    for j, codec in enumerate(fitted.codecs):
        share = np.bincount(codes[:, j], minlength=codec.n_cells) / 200
        floor = 0.1 * codec.n_cells / 200
        np.testing.assert_allclose(codec.masses, share, atol=floor)
        assert codec.masses.argmax() == share.argmax()


@pytest.mark.parametrize("kind", ["integer", "continuous"])
def test_intervals_that_noise_leaves_wide_are_cut_evenly(kind):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": np.where(rng.random(10_000) < 0.05, 300.0, np.nan)})
    frame["x"] *= rng.lognormal(sigma=1, size=10_000)
    schema = Schema([Column("x", kind, lower=10, upper=20_000, nullable=True)])
    mechanisms = Mechanisms(np.random.default_rng(1), np.random.default_rng(2))
    codec = TableTransformer.fit(
        frame, schema.resolve(frame, []), mechanisms, n_rows=10_000, multiplier=30.0,
        delta=1e-6, n_bins=20,
    ).codecs[0]  # fmt: skip
    share = codec.masses[:-1] / codec.masses[:-1].sum()
    assert 15 <= len(share) <= 40
    assert share.max() < 1.4 / 20
    # Pieces have one density on the line: fewer densities than pieces, none counted.
    density = share / np.diff(codec.axis.to(codec.edges))
    assert len(np.unique(density.round(6))) < len(share) / 2


def test_noise_moves_the_masses():
    table = mixed(["categories", "integer int64"], 500, 0)
    exact, noisy, again = (
        fit(table, multiplier=m, seed=s).codecs[0] for m, s in [(0, 0), (5, 1), (5, 2)]
    )
    assert exact.masses.shape != noisy.masses.shape or (
        np.abs(exact.masses - noisy.masses).max() > 1e-3
    )
    assert noisy.masses.tolist() != again.masses.tolist()


def test_counts_of_the_missing_are_joined_by_their_precision():
    numbers = np.arange(300) % 100
    values = punctured(numbers, np.random.default_rng(0), "float64", 0.3)
    table = one(values, Column("x", "integer", lower=0, upper=99))
    off = []
    for seed in range(20):
        recorder = Recorder(seed)
        codec = fit(table, multiplier=3.0, mechanisms=recorder).codecs[0]
        first, last = recorder.releases[0], recorder.releases[-1]
        assert first.std > 2 * last.std
        counts = [each[-1] for each in (recorder.answers[0], recorder.answers[-1])]
        joined = np.average(counts, weights=[first.std**-2, last.std**-2])
        off.append(np.abs(codec.masses[-1] - np.array([joined, np.mean(counts)]) / 300))
        assert codec.masses.sum() == pytest.approx(1)
    by_precision, evenly = np.mean(off, axis=0)
    assert by_precision < 0.8 * evenly


def grown_tree(rng, depth=4):
    """A random tree of intervals with noisy counts, and the least-squares system."""
    leaves, rows, counts, weights = [], [], [], []

    def grow(level):
        variance = rng.uniform(0.5, 4)
        node = Interval(0, 0, 0.0, variance=variance)
        first = len(leaves)
        if level == depth or (level and rng.random() < 0.8):
            node.halves = [grow(level - 1), grow(level - 1)]
        else:
            leaves.append(node)
        rows.append((first, len(leaves)))
        node.count = rng.normal(50 * (len(leaves) - first), 5)
        counts.append(node.count)
        weights.append(variance**-0.5)
        return node

    root = grow(depth)
    system = np.zeros((len(rows), len(leaves)))
    for line, (start, stop) in zip(system, rows, strict=True):
        line[start:stop] = 1
    return root, leaves, system, np.array(counts), np.array(weights)


@pytest.mark.parametrize("seed", range(5))
def test_counts_of_the_tree_are_its_least_squares_solution(seed):
    """Oracle: the dense weighted least-squares problem that the two passes solve."""
    root, leaves, system, counts, weights = grown_tree(np.random.default_rng(seed))
    weighted = system * weights[:, None], counts * weights
    solution = np.linalg.lstsq(*weighted, rcond=None)[0]
    total = root.gather()
    assert total == pytest.approx(solution.sum())
    root.spread(total)
    assert len(leaves) > 2
    found = np.array([leaf.count for leaf in leaves])
    np.testing.assert_allclose(found, solution, rtol=1e-9)


def test_both_counts_of_a_cell_weigh_by_the_budget_they_took():
    """40 % of a column's budget finds its cells, 60 % counts them again."""
    column = Column("x", "integer", lower=0, upper=1, nullable=False)
    recorder = Recorder()
    table = one([0] * 80 + [1] * 120, column)
    codec = fit(table, multiplier=5.0, mechanisms=recorder).codecs[0]
    halves, counts = recorder.answers
    joined = 0.4 * halves + 0.6 * counts
    expected = joined + (200 - joined.sum()) / 2
    np.testing.assert_allclose(codec.masses, expected / 200)


def test_spread_counts_are_never_negative_and_keep_the_total():
    rng = np.random.default_rng(0)
    for _ in range(20):
        root, leaves, *_ = grown_tree(rng)
        for leaf in leaves[::2]:
            leaf.count -= 200
        root.gather()
        root.spread(100.0)
        found = np.array([leaf.count for leaf in leaves])
        assert (found >= 0).all()
        assert found.sum() == pytest.approx(100)


def test_the_budget_goes_where_the_cells_are():
    """1 / std^2 in proportion to K^(2/3), whatever the rows hold."""
    table = pd.DataFrame(
        {"a": pd.Categorical(["x"] * 64, categories=["x", "y"]), "b": np.arange(64)}
    )
    schema = Schema([
        Column("a", "categorical", levels=("x", "y"), nullable=False),
        Column("b", "integer", lower=0, upper=15, nullable=False),
    ]).resolve(table)  # fmt: skip
    recorder = Recorder()
    TableTransformer.fit(
        table, schema, recorder, n_rows=640, multiplier=2.0, delta=1e-6, n_bins=64
    )
    nominal, *ordered = [r.std**-2 for r in recorder.releases]
    assert nominal + sum(ordered) <= 1 / 4 + 1e-12
    assert ordered[-1] / (1 - STRUCTURE_SHARE) / nominal == pytest.approx(8 ** (2 / 3))


def test_domains_only():
    table = everything(100)
    fitted = fit(table, multiplier=1.0, anchored=False)
    for codec in fitted.codecs:
        np.testing.assert_allclose(codec.masses, 1 / codec.n_cells)
        if isinstance(codec, IntervalCodec):
            assert codec.n_cells == 1 + codec.column.nullable
        else:
            assert codec.n_cells == len(codec.column.levels) + codec.column.nullable


# Numbers of every shape -------------------------------------------------------


@pytest.mark.parametrize("multiplier", [0.0, 3.0])
@pytest.mark.parametrize("bounds", [{}, {"lower": -1, "upper": 99}])
def test_heavy_integers_have_cells_of_their_own(bounds, multiplier):
    rng = np.random.default_rng(0)
    values = rng.choice([0, -1, 99, 50], 4000, p=[0.4, 0.2, 0.2, 0.2])
    values[:800] = rng.integers(1, 99, 800)
    codec = fit(
        one(values, Column("x", "integer", **bounds)), multiplier=multiplier
    ).codecs[0]
    for value in (0, -1, 99, 50):
        cell = codec.encode(pd.Series([value]))[0]
        assert codec.atoms[cell]
        assert codec.values[cell] == value
        assert codec.masses[cell] == pytest.approx((values == value).mean(), abs=0.02)
        np.testing.assert_array_equal(
            codec.edges[[cell, cell + 1]], [value - 0.5, value + 0.5]
        )


@pytest.mark.parametrize("multiplier", [0.0, 3.0])
@pytest.mark.parametrize("atom", [0.0, -1.0, 0.25, 1000.0, -math.log(101), 1 / 3])
def test_heavy_numbers_of_a_continuum_have_cells_of_their_own(atom, multiplier):
    rng = np.random.default_rng(0)
    values = np.where(rng.random(5000) < 0.9, atom, rng.lognormal(0, 4, 5000))
    codec = fit(one(values), multiplier=multiplier).codecs[0]
    cell = codec.encode(pd.Series([atom]))[0]
    assert codec.atoms[cell]
    assert codec.values[cell] == atom
    assert codec.masses[cell] == pytest.approx(0.9, abs=0.03)
    assert codec.edges[cell + 1] - codec.edges[cell] < 0.05 * max(1, abs(atom))
    assert not codec.atoms[codec.encode(pd.Series([atom + 7]))[0]]


@pytest.mark.parametrize("multiplier", [0.0, 1.0])
def test_numbers_beside_a_heavy_one_are_cut_as_finely_as_alone(multiplier):
    values = np.random.default_rng(0).integers(1, 1001, 4000)
    column = Column("x", "integer", lower=0, upper=1000)
    with_zeros = np.append(values, np.zeros(36_000, dtype=int))
    beside, alone = (
        fit(one(x, column), multiplier=multiplier).codecs[0].n_cells
        for x in (with_zeros, values)
    )
    assert beside > alone


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ([999_999, 0, -1, 5], None),
        ([99_999, 0], Column("x", "integer", lower=0, upper=99_999)),
        (
            [1000.0, 0.37],
            Column("x", "continuous", lower=0, upper=1000, resolution=0.01),
        ),
        ([7e5, 3e4], Column("x", "continuous", lower=1e4, upper=1e6, resolution=100)),
    ],
)
def test_heavy_values_of_a_fine_grid_come_back(values, column):
    """A code for 'unknown' far from the rest is a value like any other."""
    table = one(np.repeat(values, 100), column)
    _, back = round_trip(table, fit(table))
    assert sorted(back[0].unique()) == sorted(values)


@pytest.mark.parametrize("atom", [-1e-4, 1e-4, 0.0, 0.4999, 0.9999, -0.9999])
def test_heavy_numbers_stay_in_their_cell(atom):
    """The end of a cell belongs to the next one, however round it is."""
    values = np.append(np.linspace(-1, 1, 50), [atom] * 200)
    column = Column("x", "continuous", lower=-1, upper=1)
    codec = fit(one(values, column)).codecs[0]
    cell = codec.encode(pd.Series([atom]))
    assert codec.atoms[cell]
    assert codec.encode(codec.decode(cell, np.array([0.5]))) == cell


@pytest.mark.parametrize("multiplier", [0.0, 1.0])
def test_a_crowded_stretch_of_a_continuum_is_not_one_value(multiplier):
    rng = np.random.default_rng(0)
    # 2,000 rows in a 400th of a grid cell, 900 of them with one value.
    crowd = np.append(rng.uniform(0.5, 0.5 + 1e-6, 1100), np.full(900, 0.5 + 5e-7))
    column = Column("x", "continuous", lower=-1, upper=1)
    values = np.append(rng.uniform(-1, 1, 500), crowd)
    codec = fit(one(values, column), multiplier=multiplier).codecs[0]
    cell = codec.encode(pd.Series([0.5 + 5e-7]))
    assert codec.masses[cell] > 0.7
    assert not codec.atoms[cell]
    values = np.append(values, np.full(300, 0.5 + 5e-7))
    codec = fit(one(values, column), multiplier=multiplier).codecs[0]
    assert codec.values[codec.encode(pd.Series([0.5]))] == 0.5 + 5e-7


ROUND = np.arange(6, 18) * 1.25


def wages(n, step=1):
    """Return wages in units of a step; a sixth of them are one of twelve round ones."""
    rng = np.random.default_rng(0)
    smooth = np.clip(rng.lognormal(2.5, 0.4, n), 2, 60)
    values = np.where(rng.random(n) < 1 / 6, rng.choice(ROUND, n), smooth) / step
    bounds = {"lower": 2 / step, "upper": 60 / step, "nullable": False}
    if step == 1:
        return one(values, Column("x", "continuous", **bounds))
    return one(np.round(values).astype(int), Column("x", "integer", **bounds))


@pytest.mark.parametrize("multiplier", [0.0, 2.0])
@pytest.mark.parametrize("step", [1, 0.01, 1e-4, 1e-6])
def test_values_that_many_rows_share_have_cells_of_their_own(step, multiplier):
    table = wages(20_000, step)
    codec = fit(table, multiplier=multiplier, n_bins=64).codecs[0]
    for value in np.round(ROUND / step, 2):
        cell = codec.encode(pd.Series([value]))[0]
        assert codec.values[cell] == value
        exact = (table.frame[0] == value).mean()
        assert codec.masses[cell] == pytest.approx(exact, abs=0.003)
    assert codec.masses[codec.atoms].sum() == pytest.approx(1 / 6, abs=0.03)
    assert codec.n_cells < 64 * SPLIT_SIZE + 3 * len(ROUND)


def test_smooth_numbers_have_no_cells_of_one_value():
    rng = np.random.default_rng(0)
    for values in (rng.normal(0, 1, 20_000), rng.integers(0, 1000, 20_000)):
        kind = "integer" if values.dtype.kind == "i" else "continuous"
        column = Column("x", kind, lower=-10, upper=1000, nullable=False)
        for multiplier in (0.0, 2.0):
            codec = fit(one(values, column), multiplier=multiplier, n_bins=64).codecs[0]
            assert not codec.atoms.any()


@pytest.mark.parametrize("is_grid", [False, True])
def test_in_large_tables_crowded_cells_alone_have_keys(is_grid, monkeypatch):
    table, shared, asked = wages(20_000), 1 / 3 + 7, []
    if is_grid:
        shared, column = 70_333, Column("x", "integer", lower=0, upper=10**9)
        table = one(table.frame.iloc[:, 0].round().astype(int), column)
    table.frame.iloc[:8000, 0] = shared
    monkeypatch.setattr(marginals, "MOST_KEYS", 19_999)
    whole = marginals.MarginalRelease._keys

    def seen(self, counts):
        asked.append(len(opened(counts)))
        return whole(self, counts)

    monkeypatch.setattr(marginals.MarginalRelease, "_keys", seen)
    codec = fit(table, multiplier=2.0, n_bins=64).codecs[0]
    assert codec.values[codec.encode(pd.Series([shared]))[0]] == shared
    assert is_grid or codec.atoms.sum() == 1
    assert 0 < asked[0] < 1000


@steady
@given(st.data())
def test_cutting_out_spikes_keeps_the_values_every_interval(data):
    widths = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    places = np.append(0, np.cumsum(widths))
    sizes = st.sampled_from([0.0, 0.5, 3.0, 100.0])
    counts = np.array(
        data.draw(st.lists(sizes, min_size=len(widths), max_size=len(widths)))
    )
    rows = np.array(
        data.draw(st.lists(sizes, min_size=sum(widths), max_size=sum(widths)))
    )
    heavy = np.diff(places) == 1
    before = Partition(places, counts, np.ones(len(counts)), heavy, np.zeros(0))
    after = before.with_spikes(rows)
    assert set(places) <= set(after.places)
    of = np.searchsorted(places[1:-1], after.places[:-1], side="right")
    assert (after.counts >= 0).all()
    np.testing.assert_allclose(np.bincount(of, after.counts, len(counts)), counts)
    cut = np.flatnonzero(np.diff(after.places) == 1)
    new = [c for c in cut if widths[of[c]] > 1 and after.heavy[c]]
    for c in new:
        whole, n = counts[of[c]], rows[after.places[c]]
        assert n * (widths[of[c]] - 1) > 2 * (whole - n)
        assert whole > n / 2  # else it is noise
    # One that has all rows is cut out, and leaves nothing to the others.
    assert len(new) or not any(
        w > 1 and ((rows[p : p + w] >= c) & (rows[p : p + w] < 2 * c)).any()
        for p, w, c in zip(places, widths, counts, strict=False)
    )


def test_a_value_of_few_rows_is_not_released():
    values = np.append(np.linspace(-1, 1, 500), np.full(30, 1 / 3))
    column = Column("x", "continuous", lower=-1, upper=1)
    found = [
        fit(one(values, column), multiplier=5.0, seed=seed, n_bins=200).codecs[0]
        for seed in range(20)
    ]
    assert not any((codec.values == 1 / 3).any() for codec in found)


@pytest.mark.parametrize("multiplier", [0.0, 2.0])
def test_long_tails(multiplier):
    rng = np.random.default_rng(0)
    n, n_bins = 20_000, 16
    values = np.concatenate([rng.lognormal(0, 3, n // 2), -rng.lognormal(4, 2, n // 2)])
    codec = fit(one(values), multiplier=multiplier, n_bins=n_bins).codecs[0]
    assert not codec.atoms[:-1].any()
    assert codec.masses.max() <= SPLIT_SIZE / n_bins + 1e-9
    cells = rng.choice(codec.n_cells, n, p=codec.masses)
    drawn = codec.decode(cells, rng.random(n)).dropna()
    grid = [0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9]
    real, fake = (np.arcsinh(np.quantile(x, grid)) for x in (values, drawn))
    np.testing.assert_allclose(fake, real, atol=0.5)


@pytest.mark.parametrize("dtype", INTEGERS + NULLABLE_INTEGERS + ["UInt16", "UInt32"])
@pytest.mark.parametrize("end", ["min", "max"])
def test_ends_of_every_integer_type(dtype, end):
    """Released bounds are powers of two; what the type cannot hold stays out."""
    info = np.iinfo(dtype.lower())
    last = info.max if end == "max" else info.min
    values = [3] * 20 + [last - last * i // 80 for i in range(60)]
    table = one(pd.Series(values, dtype=dtype))
    codec = fit(table).codecs[0]
    codes, back = round_trip(table, fit(table))
    _, decoded, cells = every_cell(fit(table))[0]
    codes = np.append(codes[:, 0], cells)
    values = pd.concat([back[0], decoded])
    for found, code in zip(values[codes < len(codec.values)], codes, strict=False):
        low, high = codec.edges[[code, code + 1]]
        assert low - 0.5 <= int(found) <= high + 0.5
        assert max(codec.column.lower, info.min) <= int(found) <= codec.column.upper


@pytest.mark.parametrize("dtype", ["float16", *FLOATS])
def test_ends_of_every_float_type(dtype):
    info = np.finfo(dtype.lower())
    values = np.linspace(float(info.max) / 8, float(info.max), 200)
    fitted = fit(one(pd.Series(values).astype(dtype)))
    decoded = every_cell(fitted)[0][1].dropna()
    assert np.isfinite(decoded.to_numpy(float)).all()


@pytest.mark.parametrize("dtype", ["int64", "Int64"])
@pytest.mark.parametrize("facts", [{}, {"resolution": 0.5}, {"resolution": 5}])
def test_a_continuum_in_an_integer_column_gives_whole_numbers(dtype, facts):
    column = Column("x", "continuous", lower=0, upper=100, **facts)
    table = one(pd.Series(range(0, 100, 5), dtype=dtype), column)
    fitted = fit(table, n_bins=2)
    _, back = round_trip(table, fitted)
    np.testing.assert_array_equal(back[0].to_numpy(float), np.arange(0, 100, 5))
    assert every_cell(fitted)[0][1].dtype == dtype


@pytest.mark.parametrize(
    ("lower", "width", "kind"),
    [
        (1.6e9, 1e8, "integer"),  # seconds since 1970
        (1.6e12, 86_400_000, "integer"),  # milliseconds
        (1.7e15, 1000, "integer"),  # microseconds
        (1.7e18, 1_000_000, "integer"),  # nanoseconds
        (1e16, 16, "integer"),
        (1e9, 1, "continuous"),
        (1e12, 5, "continuous"),
    ],
)
def test_narrow_bounds_far_from_zero(lower, width, kind):
    rng = np.random.default_rng(0)
    values = lower + np.round(rng.integers(0, 9, 500) * width / 8, 2)
    values = np.round(values) if kind == "integer" else values
    table = one(values, Column("x", kind, lower=lower, upper=lower + width))
    fitted = fit(table)
    codes, back = round_trip(table, fitted)
    assert len(np.unique(codes)) > 4
    np.testing.assert_allclose(back[0], values, rtol=0, atol=0.3 * width)
    check_domain(fitted.codecs[0], back[0])
    assert np.isfinite(fitted.log_within(table.frame)).all()


@pytest.mark.parametrize("top", [2 * 10**15, 10**17])
@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_integers_of_a_wide_range_stay_whole(dtype, top):
    spread = np.random.default_rng(0).integers(0, top, 100)
    values = np.concatenate([spread, np.repeat([0, 1, 2, 30], 100)]).astype(dtype)
    table = one(values, Column("x", "integer", lower=0, upper=top))
    fitted = fit(table)
    _, back = round_trip(table, fitted)
    assert (back[0][100:] == values[100:]).all()
    for found in (back[0], every_cell(fitted)[0][1]):
        assert (found.dropna() % 1 == 0).all()


@pytest.mark.parametrize("resolution", [1e-14, 1 / 128, 0.01, 1 / 3, 0.7, 2.5, 1e5])
def test_multiples_of_the_resolution_come_back(resolution):
    values = np.arange(50) * resolution
    facts = {"lower": 0, "upper": values[-1], "resolution": resolution}
    column = Column(0, "continuous", **facts)
    table = one(np.repeat(values, 3), column)
    _, back = round_trip(table, fit(table, n_bins=400))
    np.testing.assert_allclose(back[0], table.frame[0], rtol=1e-12, atol=0)
    assert len(Schema([column]).check(back)) == 0


def test_bounds_between_integers():
    column = Column("x", "integer", lower=0.5, upper=3.5)
    fitted = fit(one([0, 1, 2, 3, 4, 5] * 5, column))
    check_domain(fitted.codecs[0], every_cell(fitted)[0][1])


# Domains found privately ------------------------------------------------------


@pytest.mark.parametrize("multiplier", [0.0, 2.0])
@pytest.mark.parametrize(
    ("values", "lower", "upper"),
    [
        ([3.0, 700.0], 2, 1024),
        ([-3.0, -700.0], -1024, -2),
        ([-0.3, 0.7], -0.5, 1),
        ([0.0, 12.0], 0, 16),
        ([0.0, -12.0], -16, 0),
        ([0.0, 0.0], 0, 0),
        ([1e-7, 1e7], 2.0**-24, 2.0**24),
    ],
)
def test_bounds_are_the_outermost_magnitudes_that_hold_rows(
    values, lower, upper, multiplier
):
    column = fit(one(np.repeat(values, 300)), multiplier=multiplier).codecs[0].column
    assert (column.lower, column.upper) == (lower, upper)


def test_bounds_do_not_follow_one_row():
    values = np.append(np.random.default_rng(0).normal(size=2000), 1e9)
    column = fit(one(values), multiplier=3.0).codecs[0].column
    assert column.upper <= 8
    assert fit(one(values)).codecs[0].column.upper == 2.0**30


def test_empty_magnitudes_seldom_pass_for_occupied_ones():
    table = one([np.nan, np.nan])
    runs = [fit(table, multiplier=1.0, seed=s).codecs[0].column for s in range(400)]
    assert sum((c.lower, c.upper) != (0.0, 1.0) for c in runs) <= 4


def test_frequent_strings_are_found_and_rare_ones_are_not():
    values = ["a"] * 300 + ["b"] * 200 + [f"once {i}" for i in range(300)]
    noisy = fit(one(values), multiplier=2.0).codecs[0].column
    assert noisy.levels == ("a", "b", "other")
    assert noisy.nullable
    assert len(fit(one(values)).codecs[0].column.levels) == 302


def test_one_row_reveals_its_string_with_probability_delta():
    delta = 0.2
    table = one(["only", None, None])
    found = sum(
        "only"
        in fit(table, multiplier=1.0, seed=s, delta=delta).schema.columns[0].levels
        for s in range(500)
    )
    # Rounded noise of standard deviation 2 passes the whole threshold 3 with this
    # probability; 3.5 standard deviations either side.
    p = norm.sf(2.5 / 2)
    assert p <= delta
    assert abs(found - 500 * p) < 3.5 * math.sqrt(500 * p * (1 - p))


@pytest.mark.parametrize("dtype", ["object", "string", "Int64", "float64"])
def test_a_column_without_frequent_levels_still_samples(dtype):
    table = one(pd.Series([None, None], dtype=dtype), nominal=True)
    codec = fit(table, multiplier=1.0).codecs[0]
    assert len(codec.column.levels) == 1
    decoded = codec.decode(np.array([0, 1]), np.zeros(2))
    assert decoded.dtype == dtype
    assert decoded.isna().tolist() == [False, True]


def test_levels_do_not_show_which_equal_value_came_first():
    first, last = (
        fit(one(pd.Series(values, dtype=object))).schema.columns[0].levels
        for values in ([0.0, -0.0], [-0.0, 0.0])
    )
    assert str(first) == str(last) == "(0.0,)"


def test_equal_values_of_several_types_do_not_raise():
    """An error here would depend on the rows."""
    values = pd.Series([True, 1, 1.0, "1"] * 20, dtype=object)
    fitted = fit(one(values))
    _, back = round_trip(one(values), fitted)
    assert len(back) == 80


def test_a_schema_that_rules_missing_values_out_is_kept():
    column = Column("x", "categorical", nullable=False)
    fitted = fit(one(["a", "b"] * 20, column))
    assert not fitted.schema.columns[0].nullable


# What `Schema.check` promises -------------------------------------------------


@pytest.mark.parametrize(
    ("values", "column"),
    [
        (["a", "b", "c", None], Column("x", "categorical", levels=("a", "b"))),
        ([1, 2, 3], Column("x", "categorical", levels=(1, 2))),
        ([1.0, 2.0, np.nan], Column("x", "categorical", levels=(1, 2))),
        ([0, 1, 1], Column("x", "boolean")),
        ([0.0, 1.0, np.nan], Column("x", "boolean")),
        (pd.Series([True, False, None], dtype=object), Column("x", "boolean")),
        (pd.Series([0, 1, None], dtype=object), Column("x", "boolean")),
        ([True, False], Column("x", "categorical", levels=(0, 1))),
        (
            pd.Series([1.0, 2.0], dtype=object),
            Column("x", "categorical", levels=(1, 2)),
        ),
        ([-1, 0, 5, 11], Column("x", "integer", lower=0, upper=10)),
        ([0.5, 1.0, np.nan], Column("x", "integer", lower=0, upper=10)),
        (
            [0.5, 0.55, 2.0],
            Column("x", "continuous", lower=0, upper=1, resolution=0.1),
        ),
    ],
)
def test_check_lists_the_cells_that_change(values, column):
    values = pd.concat([pd.Series(values)] * 3, ignore_index=True)
    table = one(values, renamed(column, 0))
    fitted = fit(table, n_bins=1000)
    _, back = round_trip(table, fitted)
    before, after = table.frame[0].reset_index(drop=True), back[0]
    same = (before.isna() & after.isna()) | (before == after)
    if before.dtype.kind == "f":
        same |= np.isclose(before, after, rtol=0, atol=1e-9)
    frame = table.frame.reset_index(drop=True)
    found = misfits(Schema([renamed(column, 0)]), frame)
    listed = {row for _, _, values in found for row in values.index}
    assert listed == set(np.flatnonzero(~same))


# The ledger -------------------------------------------------------------------

BRANCHES = {
    "integers": Case(pd.Series(range(200))),
    "integers, bounds": Case(
        pd.Series(range(200)), Column("", "integer", lower=0, upper=300)
    ),
    "nullable integers": Case(pd.Series([1, 2, None, 4] * 50, dtype="Int64")),
    "floats": Case(pd.Series(np.linspace(-3, 50, 200))),
    "floats, bounds": Case(
        pd.Series(np.linspace(-3, 50, 200)),
        Column("", "continuous", lower=-5, upper=60),
    ),
    "floats, bounds, never missing": Case(
        pd.Series(np.linspace(-3, 50, 200)),
        Column("", "continuous", lower=-5, upper=60, nullable=False),
    ),
    "one number": Case(pd.Series([7] * 200)),
    "one number, wide bounds": Case(
        pd.Series([7] * 200), Column("", "integer", lower=0, upper=10**6)
    ),
    "one number, nullable, wide bounds": Case(
        pd.Series([7.0] * 200), Column("", "integer", lower=0, upper=10**6)
    ),
    "nothing": Case(pd.Series([np.nan] * 200)),
    "pinned": Case(pd.Series([1.0] * 200), Column("", "integer", lower=1, upper=1)),
    "resolution": Case(
        pd.Series(np.linspace(0, 1, 200)), Column("", "continuous", resolution=0.01)
    ),
    "strings": Case(pd.Series(["a", "b", None, "c"] * 50)),
    "strings, levels": Case(
        pd.Series(["a", "b", None, "c"] * 50),
        Column("", "categorical", levels=("a", "b", "c")),
    ),
    "categories": Case(pd.Series(["a", "b"] * 100, dtype="category")),
    "grades": Case(
        pd.Series([1, 2, 3, 1] * 50),
        Column("", "categorical", levels=(1, 2, 3), ordered=True),
    ),
    "nominal integers": Case(pd.Series([1, 2, 3, 1] * 50), nominal=True),
    "booleans": Case(pd.Series([True, False] * 100)),
    "instants": Case(pd.Series(pd.date_range("1960", periods=200, freq="93D"))),
    "instants, bounds": Case(
        pd.Series(pd.date_range("1960", periods=200, freq="93D")),
        Column("", "datetime", lower="1950-01-01", upper="2030-01-01", resolution="D"),
    ),
    "durations": Case(pd.Series(pd.to_timedelta(range(200), "h"))),
}
# Branches that spend all of their budget whatever the noise: (anchored, not anchored).
SATURATED = {
    "strings": (True, True),
    "nominal integers": (True, True),
    "strings, levels": (True, False),
    "categories": (True, False),
    "grades": (True, False),
    "booleans": (True, False),
    "one number, wide bounds": (True, False),
    "one number, nullable, wide bounds": (True, False),
    "integers": (False, True),
    "floats": (False, True),
    "instants": (False, False),
    "durations": (False, True),
    "nothing": (False, True),
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("anchored", [True, False])
@pytest.mark.parametrize("multiplier", [0.02, 1.0, 30.0])
@pytest.mark.parametrize("branch", BRANCHES)
def test_one_column_spends_no_more_than_its_budget(branch, multiplier, anchored):
    for seed in range(3):
        recorder = Recorder(seed)
        table = Table.of({"x": BRANCHES[branch]})
        fit(table, multiplier=multiplier, mechanisms=recorder, anchored=anchored)
        assert recorder.spent <= (1 + 1e-9) / multiplier**2
        assert all(r.std > 0 for r in recorder.releases)
    column = table.schema.columns[0]
    known = column.lower is not None if column.numeric else column.levels is not None
    if known and not anchored:
        assert not recorder.releases
    saturated = SATURATED.get(branch, (False, False))[not anchored]
    if saturated and (multiplier < 1 or not column.numeric or not known):
        assert recorder.spent == pytest.approx(1 / multiplier**2)


def has_wide_bounds(column):
    return column.lower is not None and is_coarse(column)


@pytest.mark.parametrize("anchored", [True, False])
@pytest.mark.parametrize("multiplier", [0.5, 10.0])
def test_a_table_spends_no_more_than_its_budget(multiplier, anchored):
    recorder = Recorder()
    table = Table.of(BRANCHES)
    fit(table, multiplier=multiplier, mechanisms=recorder, anchored=anchored)
    assert 0.2 / multiplier**2 < recorder.spent <= (1 + 1e-9) / multiplier**2
    open_columns = [r for r in recorder.releases if r.threshold is not None]
    columns = [c for c in learned_columns(table.schema).values() if c.numeric]
    coarse = sum(c.step is None or has_wide_bounds(c) for c in columns)
    most = sum(has_open_keys(c, anchored) for c in columns)
    assert 3 <= coarse < most or not anchored
    assert 2 + anchored * coarse <= len(open_columns) <= 2 + most
    tails, higher = (
        np.array([norm.sf((r.threshold - k) / r.std) for r in open_columns])
        for k in (0.5, 1.5)
    )
    # Thresholds are whole numbers: the least that are paid for, should all be released.
    assert 1 - np.prod(1 - tails) <= DELTA < 1 - (1 - higher.max()) ** (2 + most)


@pytest.mark.parametrize("anchored", [True, False])
def test_without_privacy_nothing_is_noisy(anchored):
    recorder = Recorder()
    fit(Table.of(BRANCHES), mechanisms=recorder, anchored=anchored)
    assert all(r.std == 0 for r in recorder.releases)


def assert_same_fit(first, second):
    for a, b in zip(first.codecs, second.codecs, strict=True):
        assert a.column == b.column
        assert a.dtype == b.dtype
        fields = ("edges", "values") if a.column.numeric else ("level_cells",)
        for field in ("masses", *fields):
            np.testing.assert_array_equal(getattr(a, field), getattr(b, field))
    for a, b in zip(first.increments, second.increments, strict=True):
        assert (a.low, a.whole.column, a.reach) == (b.low, b.whole.column, b.reach)
    for a, b in zip(first.nestings, second.nestings, strict=True):
        np.testing.assert_array_equal(a.allowed, b.allowed)


def compare_neighbours(table, row, multiplier, *, seed=0, **options):
    """Fit with and without a row under the same answers; return the privacy loss.

    The loss is the squared inverse noise multiplier at which the exact statistics of
    the two fits differ.
    """
    others = table.frame[np.arange(len(table.frame)) != row]
    first = Recorder(seed)
    second = Recorder(seed + 1, replay=first)
    n_rows = len(table.frame)
    options = {"multiplier": multiplier, "n_rows": n_rows, **options}
    with_row = fit(table, mechanisms=first, **options)
    without = fit(Table(others, table.schema), mechanisms=second, **options)
    assert_same_fit(with_row, without)
    assert len(first.releases) == len(second.releases)
    loss = 0.0
    for a, b in zip(first.releases, second.releases, strict=True):
        assert (a.std, a.threshold) == (b.std, b.threshold)
        assert a.distance(b) <= 1
        loss += a.distance(b) ** 2 / a.std**2
    return loss


@steady
@given(tables, st.sampled_from([0.1, 1.0, 8.0]), st.booleans(), st.data())
def test_one_row_moves_all_releases_by_no_more_than_the_budget(
    table, multiplier, anchored, data
):
    n = len(table.frame)
    if n == 1:
        return
    row = data.draw(st.integers(0, n - 1))
    seed = data.draw(st.integers(0, 99))
    with_missing = data.draw(st.sampled_from([(), table.schema.names]))
    loss = compare_neighbours(
        table, row, multiplier, seed=seed, anchored=anchored, with_missing=with_missing
    )
    assert loss <= (1 + 1e-9) / multiplier**2


@pytest.mark.parametrize(
    "last", [np.inf, -np.inf, np.nan, 1e300, -1e300, 5e-324, 0.0, -0.0, 3.0]
)
def test_one_strange_number_moves_all_releases_by_no_more_than_the_budget(last):
    values = [*np.linspace(-1, 3, 60), last]
    for column in (None, Column("x", "continuous", lower=-2, upper=4)):
        loss = compare_neighbours(one(values, column), len(values) - 1, 0.5)
        assert 0 <= loss <= 4 * (1 + 1e-9)


@pytest.mark.parametrize("nominal", [False, True])
@pytest.mark.parametrize("place", [0, 2])
@pytest.mark.parametrize("odd", [-0.0, 7.0, np.nan, np.inf, None])
@pytest.mark.parametrize("kind", [pa.float16(), pa.float64()], ids=str)
def test_one_row_of_arrow_moves_all_releases_by_no_more_than_the_budget(
    kind, odd, place, nominal
):
    """Its dictionaries tell 0.0 from -0.0, and change numbers of 16 bits beside NaN."""
    parts = [pa.array(np.float16([0, 1.5, 2] * 10))] * 2
    number = None if odd is None else np.float16(odd)
    parts.insert(place, pa.array([number], pa.float16()))
    column = pa.chunked_array(parts).cast(kind).to_pandas(types_mapper=pd.ArrowDtype)
    loss = compare_neighbours(one(column, nominal=nominal), 30 * place, 0.05)
    assert 0 <= loss <= 400 * (1 + 1e-9)


def test_the_budget_is_reached_where_it_is_spent():
    """A test of sensitivity has to see a row that costs all that may be spent."""
    table = Table.of({name: BRANCHES[name] for name in ("categories", "grades")})
    assert compare_neighbours(table, 5, 2.0) == pytest.approx(1 / 2.0**2)
    shared = one([1 / 3] * 200, Column("x", "continuous", lower=0, upper=1))
    assert compare_neighbours(shared, 5, 0.02) == pytest.approx(1 / 0.02**2)
    wide = Table.of({"x": BRANCHES["one number, wide bounds"]})
    assert compare_neighbours(wide, 5, 0.02) == pytest.approx(1 / 0.02**2)


# Arithmetic -------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=12), st.floats(1e-3, 1e4))
def test_projection_to_the_simplex(values, total):
    values = np.array(values)
    found = project_to_simplex(values, total)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(total)

    # The nearest point is max(values - shift, 0) with the shift that gives the sum.
    def excess(shift):
        return np.maximum(values - shift, 0).sum() - total

    shift = brentq(excess, values.min() - total - 1, values.max(), xtol=1e-12)
    np.testing.assert_allclose(found, np.maximum(values - shift, 0), atol=1e-8)


def test_a_total_that_rounds_away_leaves_nothing():
    found = project_to_simplex(np.array([-1e30, 1e20, 0.0]), 1e-3)
    assert found.tolist() == [0.0, 0.0, 0.0]


def test_projection_is_nearer_than_other_points_of_the_simplex():
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.normal(size=6) * 10
        found = project_to_simplex(values, 3.0)
        others = 3 * rng.dirichlet(np.full(6, 0.3), 2000)
        best = np.square(others - values).sum(1).min()
        assert np.square(found - values).sum() <= best + 1e-9


@pytest.mark.parametrize("total", [0.0, -1.0])
def test_projection_to_nothing(total):
    assert project_to_simplex(np.array([3.0, -1.0]), total).tolist() == [0, 0]


WIDE = {
    "date": Column("x", "integer", lower=0, upper=99_999_999),
    "number of an account": Column("x", "integer", lower=0, upper=10**10),
    "seconds": Column("x", "timedelta", lower="0D", upper="1000D", resolution="s"),
    "open": None,
}


@pytest.mark.parametrize("column", WIDE.values(), ids=WIDE)
def test_values_of_a_coarse_grid_are_spread(column):
    start = 20_200_101
    x = pd.Series(start + np.random.default_rng(0).integers(0, 365, 4000))
    if column and column.temporal:
        x = pd.to_timedelta(x, unit="s")
    schema = Schema([column] if column else [])
    flow = DPHFlowSynthesizer(10.0, schema=schema, n_steps=0, random_state=0)
    drawn = flow.fit(x.to_frame("x")).sample(2000)["x"]
    assert drawn.nunique() > 200
    assert drawn.value_counts().iloc[0] < 100
    assert abs(drawn.mean() / x.mean() - 1) < 1e-3


@pytest.mark.parametrize("code", [999_999_999, 2**53, 2**63 - 1])
@pytest.mark.parametrize("upper", [None, 2.0**63], ids=["open", "stated"])
def test_a_value_that_many_rows_share_is_exact_in_a_coarse_grid(code, upper):
    rng = np.random.default_rng(0)
    x = np.where(rng.random(4000) < 0.3, code, rng.integers(0, 100, 4000))
    columns = [] if upper is None else [Column("x", "integer", lower=0, upper=upper)]
    flow = DPHFlowSynthesizer(5.0, schema=Schema(columns), n_steps=0, random_state=0)
    drawn = flow.fit(pd.DataFrame({"x": x})).sample(2000)["x"]
    assert abs((drawn == code).mean() - (x == code).mean()) < 0.03
    assert drawn[drawn != code].max() < 2000
    near = code - 2 ** max(0, code.bit_length() - 50)  # that a float tells apart
    density = np.exp(flow.score_samples(pd.DataFrame({"x": [code, near]})))
    assert density[0] == pytest.approx((x == code).mean(), abs=0.03)
    assert density[1] < 0.1


@pytest.mark.parametrize("multiplier", [0.0, 5.0])
def test_a_table_without_missing_values_stays_without(multiplier):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "number": rng.normal(size=2000),
            "whole": pd.array(rng.integers(0, 50, 2000), dtype="Int64"),
            "level": pd.array(rng.choice(["a", "b"], 2000), dtype="string"),
        }
    )
    schema = Schema([Column("level", "categorical", levels=["a", "b"])])
    mechanisms = Mechanisms(np.random.default_rng(1), np.random.default_rng(2))
    fitted = TableTransformer.fit(
        frame, schema.resolve(frame, []), mechanisms, n_rows=2000,
        multiplier=multiplier, delta=1e-6, n_bins=16,
    )  # fmt: skip
    # Three standard deviations: one column of 700 has noise beyond.
    assert [codec.column.nullable for codec in fitted.codecs] == [False] * 3


def test_no_number_is_a_negative_zero():
    column = Column("x", "continuous", lower=-1.0, upper=1.0, resolution=0.5)
    fitted = fit(one(np.linspace(-1, 1, 100), column), n_bins=2)
    drawn = pd.concat([series for _, series, _ in every_cell(fitted)])
    zeros = drawn[drawn == 0]
    assert len(zeros)
    assert not np.signbit(zeros).any()


# Smooth densities ---------------------------------------------------------------------


def pieces_of(truth, n_groups, std, seed):
    """Return noisy counts of groups of cells, dealt evenly to these."""
    groups = np.repeat(np.arange(n_groups), len(truth) // n_groups)
    sums = np.bincount(groups, truth)
    noisy = sums + std * np.random.default_rng(seed).normal(size=n_groups)
    return np.maximum(noisy, 0)[groups] * n_groups / len(truth), groups


@pytest.mark.parametrize("seed", range(5))
def test_smooth_densities_are_found_behind_the_noise(seed):
    x = np.linspace(-3, 3, 64)
    truth = np.exp(-(x**2) / 2)
    truth *= 1000 / truth.sum()
    noisy, groups = pieces_of(truth, 16, 20.0, seed)
    lengths = np.ones(64)
    means = smoothed(noisy, groups, np.full(16, 400.0), lengths)
    assert np.abs(means - truth).sum() < 0.85 * np.abs(noisy - truth).sum()
    assert means.sum() == pytest.approx(noisy.sum())
    assert (means >= 0).all()


def test_counts_that_jump_stay_as_they_are():
    truth = np.tile([0.0, 1000.0], 8).repeat(4)
    noisy, groups = pieces_of(truth, 16, 5.0, 0)
    means = smoothed(noisy, groups, np.full(16, 25.0), np.ones(64))
    sums, exact = np.bincount(groups, means), np.bincount(groups, noisy)
    np.testing.assert_allclose(sums, exact, atol=60)


def test_smooth_counts_do_not_depend_on_the_unit_of_length():
    noisy, groups = pieces_of(np.linspace(1, 50, 32), 8, 10.0, 0)
    found = [
        smoothed(noisy, groups, np.full(8, 100.0), np.full(32, unit))
        for unit in (1e-6, 1.0, 1e6)
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)
    np.testing.assert_allclose(found[2], found[1], rtol=1e-6)


# Ends of the bounds -------------------------------------------------------------------


def stays(sign, far=0):
    """Return counts of which hardly one exceeds 10; the bounds reach to 366."""
    counts = np.random.default_rng(0).negative_binomial(0.5, 0.6, 3000)
    counts[:far] = 360
    lower, upper = sorted([0, 366 * sign])
    return one(sign * counts, Column("", "integer", lower=lower, upper=upper))


def drawn(table, seed, multiplier=20.0):
    """Return numbers drawn from the noisy marginal."""
    codec = fit(table, multiplier=multiplier, n_bins=64, seed=seed).codecs[0]
    rng = np.random.default_rng(seed)
    cells = rng.choice(codec.n_cells, 20_000, p=codec.masses)
    return codec.decode(cells, rng.random(20_000)).dropna().to_numpy(float)


@pytest.mark.parametrize("sign", [1, -1])
def test_bounds_that_are_far_too_wide_do_not_carry_the_mean_away(sign):
    table = stays(sign)
    means = [drawn(table, seed).mean() for seed in range(20)]
    errors = np.abs(means - table.frame.to_numpy().mean())
    # Uniform noise in the empty part moves the mean by more than 1.
    assert np.median(errors) < 0.1
    assert errors.mean() < 0.4


@pytest.mark.parametrize("sign", [1, -1])
def test_rows_that_are_seen_far_away_stay_there(sign):
    table = stays(sign, far=300)
    shares = [(np.abs(drawn(table, seed)) > 200).mean() for seed in range(10)]
    np.testing.assert_allclose(shares, 0.1, atol=0.04)


def test_without_noise_every_count_is_kept():
    numbers = drawn(stays(1, far=1), 0, multiplier=0.0)
    assert 0 < (numbers > 200).mean() < 0.002


@pytest.mark.parametrize("n_groups", [1, 2, 3])
def test_few_or_very_many_pieces_are_left_alone_or_finite(n_groups):
    for k in (3, 6, 6000):
        groups = np.arange(k) * n_groups // k
        counts = np.arange(k) % 5.0
        means = smoothed(counts, groups, np.full(n_groups, 9.0), np.ones(k))
        assert np.isfinite(means).all()
        if n_groups < 2 or k != 6:
            np.testing.assert_array_equal(means, counts)


def test_counts_of_next_to_no_rows_are_left_alone():
    counts = np.geomspace(1e-260, 1e-230, 16)
    groups, lengths = np.repeat(np.arange(4), 4), np.geomspace(1e-3, 1, 16)
    found = smoothed(counts, groups, np.full(4, 500.0), lengths)
    np.testing.assert_array_equal(found, counts)


@pytest.mark.parametrize("noise", [1e3, 1e7, 1e12])
def test_noise_beyond_floats_leaves_counts(noise):
    counts, groups = np.array([0.0, 0, 0, 60, 0, 0, 40, 0]), np.repeat(np.arange(4), 2)
    for seed in range(20):
        lengths = 10.0 ** np.random.default_rng(seed).uniform(-3, 0, 8)
        means = smoothed(counts, groups, np.full(4, noise**2), lengths)
        assert means.min() >= 0
        assert means.sum() == pytest.approx(100)


@pytest.mark.parametrize("code", [0, 5000, -1])
def test_what_few_rows_share_at_a_bound_or_at_0_is_exact(code):
    """Whatever the rows below and above it, and beside much noise."""
    rng = np.random.default_rng(0)
    x = rng.lognormal(6, 1, 3000).round().clip(1, 4999)
    x[:240] = code
    column = Column("x", "integer", lower=-1, upper=5000)
    table = one(x.astype(int), column)
    shares = []
    for seed in range(5):
        codec = fit(table, multiplier=20.0, mechanisms=Recorder(seed)).codecs[0]
        at = codec.encode(pd.Series([code]))[0]
        assert codec.values[at] == code
        shares.append(codec.masses[at])
    assert abs(np.mean(shares) - 0.08) < 0.02


def test_nothing_is_alone_at_a_bound_without_rows_there():
    x = np.random.default_rng(0).integers(100, 4900, 3000)
    table = one(x, Column("x", "integer", lower=0, upper=5000))
    codec = fit(table, multiplier=20.0, mechanisms=Recorder(0)).codecs[0]
    for bound in (0, 5000):
        assert np.isnan(codec.values[codec.encode(pd.Series([bound]))[0]])
