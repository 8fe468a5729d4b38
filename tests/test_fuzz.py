"""Hostile tables: every fit ends well or in an error of ours, the same for neighbours.

A clean error is a ValueError or TypeError that a `raise` of this package raised. A
valid fit samples rows of the same columns and dtypes. Four tables that share dtypes and
differ in a row or two must end alike, to the word, warnings included (but for those
that speak of released numbers: the replay compares them). All of it:
``python -m pytest tests/test_fuzz.py -m fuzz``.
"""

from __future__ import annotations

import datetime as dt
import decimal
import linecache
import math
import pickle
import traceback
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import dpgenerative
from dpgenerative import Column, DPHFlowSynthesizer, DPVAESynthesizer, Schema
from dpgenerative.exceptions import (
    HopelessBudgetWarning,
    LostColumnWarning,
    PrivacyWarning,
)
from tests.fits import few_rows_to_rake

PACKAGE = str(Path(dpgenerative.__file__).parent)
FITS_PER_EXAMPLE = 4
TINY = {
    "n_steps": 2,
    "batch_size": 10**6,
    "architecture__n_bins": 4,
    "architecture__n_basis": 2,
}
# At a sampling rate of 1 calibration has a closed form, whatever the row count.
OF_RELEASES = (HopelessBudgetWarning, LostColumnWarning)

LARGE = [0.0, -0.0, 1e308, -1e308, 5e-324, 2.0**53, 1e-300, 3e38, math.inf, -math.inf]
TEXT = st.text(st.characters(), max_size=4) | st.sampled_from(
    ["", "\0", "\ud800", "nan", "None", "\u202e", "a" * 3000, "\N{SNOWMAN}\ufe0f", "1"]
)
FLOATS = st.floats() | st.sampled_from([*LARGE, math.nan])
SINGLES = st.floats(width=32) | st.just(math.nan)
LONG = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, 2**63 - 1, -(2**63)])


class Odd:
    """An object that knows nothing but itself."""

    def __repr__(self):
        raise RuntimeError("never to be shown")


class Unhashable(str):
    """A string that no dictionary takes."""

    __hash__ = None


class Contrary:
    """An object whose comparisons fail."""

    def __eq__(self, other):
        raise RuntimeError("never to be compared")

    __hash__ = object.__hash__


class Rebel(int):
    """A number that does not add up."""

    def __abs__(self):
        raise RuntimeError("never to be asked")

    __hash__ = int.__hash__


OBJECTS = st.one_of(
    TEXT,
    st.none(),
    FLOATS,
    st.booleans(),
    st.integers(-(10**40), 10**40),
    st.binary(max_size=3),
    st.lists(st.integers(0, 3), max_size=2),
    st.tuples(st.integers(0, 3), TEXT),
    st.dictionaries(TEXT, st.integers(), max_size=1),
    st.sampled_from(
        [
            pd.NA, pd.NaT, np.float32(1.5), np.int8(3), np.bool_(True), np.str_("x"),
            10**400, -(10**400), decimal.Decimal("NaN"), decimal.Decimal("sNaN"),
            dt.date(1, 1, 1), dt.datetime(9999, 12, 31), 1 + 2j,
            pd.Timestamp("2262-04-11"), np.datetime64("NaT"), np.array([1, 2]),
            {1, 2}, frozenset(), Odd(), Unhashable("u"), Contrary(), Ellipsis, Rebel(3),
            pd.Interval(0, 1), pd.Series([1]), float, np.array(2.0), np.longdouble(1),
        ]
    ),
)  # fmt: skip


def series_of(values, dtype):
    """Return a strategy of n values of a dtype."""

    def build(n):
        return st.lists(values, min_size=n, max_size=n).map(
            lambda drawn: pd.Series(as_array(drawn, dtype), dtype=dtype)
        )

    return build


def as_array(values, dtype):
    if dtype is not object:
        return pd.array(values, dtype=dtype)
    array = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        array[i] = value
    return array


def constant(n):
    return OBJECTS.map(
        lambda value: pd.Series(as_array([value] * n, object), dtype=object)
    )


def categories(n):
    levels = st.lists(TEXT | LONG | FLOATS, max_size=4, unique_by=lambda v: (str(v),))
    levels = levels.map(lambda found: [v for v in found if v == v])
    levels = levels.map(lambda found: list(dict.fromkeys(found)))

    def build(found):
        codes = st.lists(st.integers(-1, len(found) - 1), min_size=n, max_size=n)
        return st.tuples(codes, st.booleans()).map(
            lambda pair: pd.Series(
                pd.Categorical.from_codes(pair[0], as_index(found), ordered=pair[1])
            )
        )

    return levels.flatmap(build)


def as_index(levels):
    return pd.Index(as_array(levels, object), dtype=object)


def dated(n):
    days = st.integers(-(10**5), 10**5)
    return st.lists(days, min_size=n, max_size=n).map(
        lambda found: pd.Series(np.array(found, dtype="M8[D]").astype("M8[s]"))
    )


BOOLS = st.booleans()
COLUMNS = {
    "float64": series_of(FLOATS, np.dtype(float)),
    "float32": series_of(SINGLES, np.dtype(np.float32)),
    "float16": series_of(st.floats(width=16), np.dtype(np.float16)),
    "longdouble": series_of(
        st.floats() | st.just(np.longdouble("1e4000")), np.dtype(np.longdouble)
    ),
    "int64": series_of(LONG, np.dtype(np.int64)),
    "int8": series_of(st.integers(-128, 127), np.dtype(np.int8)),
    "uint64": series_of(st.integers(0, 2**64 - 1), np.dtype(np.uint64)),
    "bool": series_of(BOOLS, np.dtype(bool)),
    "Int64": series_of(LONG | st.none(), "Int64"),
    "UInt64": series_of(st.integers(0, 2**64 - 1) | st.none(), "UInt64"),
    "Float64": series_of(FLOATS | st.none(), "Float64"),
    "Float32": series_of(SINGLES | st.none(), "Float32"),
    "boolean": series_of(BOOLS | st.none(), "boolean"),
    "string": series_of(
        st.text(st.characters(codec="utf-8"), max_size=4) | st.none(), "string"
    ),
    "object": series_of(OBJECTS, object),
    "texts": series_of(TEXT, object),
    "constant": constant,
    "category": categories,
    "datetime": dated,
    "complex": series_of(st.complex_numbers(), np.dtype(complex)),
}
NAMES = (
    TEXT
    | st.integers(-3, 3)
    | st.sampled_from([None, 1.5, True, math.nan, ("a", "b"), pd.NaT, b"x", "target"])
)
SCHEMAS = st.sampled_from(
    [
        {"kind": "continuous", "lower": -1e308, "upper": 1e308},
        {"kind": "continuous", "lower": 0.0, "upper": 0.0},
        {"kind": "continuous", "lower": 0, "upper": 5e-324},
        {"kind": "continuous", "lower": 1e15, "upper": 1e15 + 1, "resolution": 0.25},
        {"kind": "continuous", "resolution": 1e-30},
        {"kind": "continuous", "nullable": False},
        {"kind": "integer", "lower": -(2**63), "upper": 2**63},
        {"kind": "integer", "lower": 3, "upper": 3},
        {"kind": "integer"},
        {"kind": "categorical", "levels": ("a", 1, 1.5, True)},
        {"kind": "categorical", "levels": ("a",), "ordered": True, "nullable": False},
        {"kind": "categorical"},
        {"kind": "boolean"},
    ]
)
PARAMETERS = st.sampled_from(
    [
        {},
        {"epsilon": None},
        {"epsilon": 100.0},
        {"epsilon": 0.01},
        {"max_grad_norm": "median"},
        {"clipping": "per-unit"},
        {"clipping": "sparsified"},
        {"divergence": "mmd", "n_partitions": 2},
    ]
)
OWN = {
    DPHFlowSynthesizer: st.sampled_from(
        [
            {},
            {"architecture__anchored": False},
            {"architecture__n_blocks": 2, "architecture__linear": "lu"},
        ]
    ),
    DPVAESynthesizer: st.sampled_from(
        [
            {},
            {"prior": "sparse"},
            {"architecture__n_draws": 2, "architecture__latent_dim": 1},
        ]
    ),
}


@st.composite
def tables(draw):
    """Draw rows of a table, two more than it has."""
    n = draw(st.integers(1, 6)) + 2
    kinds = draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=1, max_size=4))
    columns = [draw(COLUMNS[kind](n)) for kind in kinds]
    if draw(st.integers(0, 30)) == 0:
        columns *= 40
    names = draw(
        st.lists(NAMES, min_size=len(columns), max_size=len(columns))
        if len(columns) < 10 and draw(st.booleans())
        else st.just(list(range(len(columns))))
    )
    frame = pd.concat(columns, axis=1)
    frame.columns = as_index(names)
    index = draw(st.sampled_from([None, [0] * n, list("abcdefghijk")[:n]]))
    return frame if index is None else frame.set_axis(index, axis=0)


@st.composite
def estimators(draw, names):
    """Draw a configuration, sometimes with facts on the first column."""
    kind = draw(st.sampled_from(list(OWN)))
    params = {**TINY, **draw(PARAMETERS), **draw(OWN[kind])}
    if draw(st.integers(0, 2)) == 0 and names[0] is not None:
        params["schema"] = Schema([Column(names[0], **draw(SCHEMAS))])
    elif draw(st.integers(0, 9)) == 0:
        params["categorical_features"] = [names[-1]]
    seed = draw(st.integers(0, 2**20))
    estimator = kind(random_state=seed, noise="reproducible")
    return estimator.set_params(**params)


def raised_by_us(error):
    frame = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(frame.filename, frame.lineno or 0)
    return frame.filename.startswith(PACKAGE) and line.lstrip().startswith("raise ")


def is_returned(estimator, dtype, returned):
    """Tell whether a dtype may come back: stated levels can replace others."""
    if estimator.schema is not None and isinstance(dtype, pd.CategoricalDtype):
        return isinstance(returned, pd.CategoricalDtype)
    return returned == dtype


def outcome(estimator, X):
    """Return what can be seen of a fit and a sample, or raise what must not happen."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            sample = estimator.fit(X).sample(5)
        except (ValueError, TypeError) as error:
            if not raised_by_us(error):
                raise
            return "error", type(error).__name__, str(error)
    caught = [w for w in caught if not issubclass(w.category, OF_RELEASES)]
    stray = [w for w in caught if not issubclass(w.category, PrivacyWarning)]
    assert not stray, stray[0]
    assert len(sample) == 5
    assert list(map(type, sample.columns)) == list(map(type, X.columns))
    assert all(map(partial(is_returned, estimator), X.dtypes, sample.dtypes))
    assert pickle.dumps(estimator)
    return "fitted", repr(estimator.privacy_.public), [str(w.message) for w in caught]


def check(data):
    rows = data.draw(tables())
    estimator = data.draw(estimators(list(rows.columns)))
    n = len(rows) - 2
    neighbours = [
        rows.iloc[:n], rows.iloc[: n + 1], rows.iloc[:-2].iloc[::-1], rows.iloc[2:],
    ]  # fmt: skip
    assert len(neighbours) == FITS_PER_EXAMPLE
    first, *others = [outcome(estimator, table) for table in neighbours]
    for other in others:
        assert other == first


def run(max_examples, derandomize):
    tried = settings(
        max_examples=max_examples,
        deadline=None,
        derandomize=derandomize,
        database=None,
        phases=[Phase.generate],
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )(given(st.data())(check))
    with few_rows_to_rake(64):
        tried()


def test_hostile_tables():
    run(15, True)


@pytest.mark.fuzz
def test_ten_thousand_fits_of_hostile_tables():
    run(10_000 // FITS_PER_EXAMPLE, False)
