"""Entries of CSV files: how they are written, and read in the dtypes of a schema."""

import codecs
import datetime as dt
import math
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative._validation import refuse
from dpgenerative.tables.column import Column
from dpgenerative.tables.dtypes import CERTAIN, decimal_scale, is_real_dtype
from dpgenerative.tables.times import temporal_kind
from dpgenerative.tables.values import as_objects

TRUTHS = dict.fromkeys(("true", "t", "yes", "y", "1"), True)
TRUTHS |= dict.fromkeys(("false", "f", "no", "n", "0"), False)
COMMA_NUMBER = (
    r"\s*[-+]?(?=,?\d)(?:\d{1,3}(?:\.\d{3})+|\d*)(?:,\d*)?(?:[eE][-+]?\d+)?\s*"
)
"""Numbers with a decimal comma, and points between groups of three digits."""
_OWNER = "CSV files"


@dataclass(frozen=True)
class CsvFormat:
    """How a CSV file is written.

    Attributes
    ----------
    sep : str, default=","
        One character, or "tab".
    encoding : str, default="utf-8-sig"
        UTF-8, with a byte order mark or without, as is "utf-8".
    decimal : str, default="."
        Where it is a comma, points separate thousands.
    na : tuple of str
        Entries that count as missing, besides empty ones.
    date_format : str, optional
        As of `datetime.strptime`, for all instants. None: ISO 8601.
    """

    sep: str = ","
    encoding: str = "utf-8-sig"
    decimal: str = "."
    na: Sequence[str] = ()
    date_format: str | None = None

    def __post_init__(self) -> None:
        sep = {"tab": "\t", "\\t": "\t"}.get(self.sep, self.sep)
        if not (isinstance(sep, str) and len(sep) == 1):
            refuse(_OWNER, "sep", 'must be one character or "tab"', sep)
        if self.decimal not in (".", ","):
            refuse(_OWNER, "decimal", "must be a point or comma", self.decimal)
        if isinstance(self.na, str) or not all(isinstance(e, str) for e in self.na):
            refuse(_OWNER, "na", "must be a list of entries", self.na)
        object.__setattr__(self, "sep", sep)
        object.__setattr__(self, "encoding", _encoding(self.encoding))
        object.__setattr__(self, "na", tuple(self.na))
        form, some_day = self.date_format, dt.datetime(2001, 12, 31, tzinfo=dt.UTC)
        if form is not None and not (
            "%" in form and _instant_of(some_day.strftime(form), form)
        ):
            raise ValueError(
                f"The format of dates must be one of datetime.strptime; got {form!r}."
            )

    def stated(self) -> dict[str, Any]:
        """Return the facts that differ from the defaults, as JSON has them."""
        facts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: f for name, f in facts.items() if f != getattr(PLAIN, name)}


def _encoding(name: Any) -> str:
    """Return the name of an encoding of text, that of UTF-8 with a byte order mark."""
    try:
        "".encode(name)  # what Python calls an encoding need not be one of text
        return "utf-8-sig" if codecs.lookup(name).name == "utf-8" else str(name)
    except (LookupError, TypeError):
        refuse(_OWNER, "encoding", "must be one of text that Python has", name)


PLAIN = CsvFormat()


def typed(series: pd.Series, column: Column | None, form: CsvFormat) -> pd.Series:
    """Return a column in the dtype that the schema asks for."""
    if _stays(series.dtype, column):
        return series
    if column is None:
        return as_objects(series)
    if column.kind == "continuous":
        return pd.Series(numbers_of(series, form), series.index, "Float64")
    if column.kind == "integer":
        values = np.round(np.clip(numbers_of(series, form), -CERTAIN, CERTAIN))
        return pd.Series(values, series.index).astype("Int64")
    if column.kind == "boolean":
        words = (str(text).strip().lower() for text in as_objects(series))
        truths = [TRUTHS.get(word) for word in words]
        return pd.Series(truths, series.index, object).astype("boolean")
    if column.kind == "datetime":
        return instants_of(series, form.date_format)
    return _durations(series) if column.temporal else _levels(series, column)


def _stays(dtype: Any, column: Column | None) -> bool:
    """Return whether a file's own type stays, for the schema to accept or refuse."""
    if temporal_kind(dtype) is not None:
        return True
    if decimal_scale(dtype) is not None:
        return column is None or column.numeric
    if column is None:
        # A file's dictionary holds the values that happened to occur.
        return not isinstance(dtype, pd.CategoricalDtype)
    if column.temporal and (is_real_dtype(dtype) or pd.api.types.is_bool_dtype(dtype)):
        return True
    is_whole = column.kind == "integer" and pd.api.types.is_integer_dtype(dtype)
    return is_whole or isinstance(dtype, pd.ArrowDtype)


def numbers_of(series: pd.Series, form: CsvFormat = PLAIN) -> np.ndarray:
    """Return entries as finite numbers, NaN for all others."""
    plain = with_point(series, form.decimal)
    # One by one: how pandas reads a number depends on the others.
    values = np.array(list(map(_number_of, as_objects(plain))), dtype=float)
    return np.where(np.isfinite(values), values, np.nan)


def with_point(texts: pd.Series, decimal: str) -> pd.Series:
    """Return numbers with a decimal point in place of another sign."""
    if decimal == ".":
        return texts
    # Points separate groups of three digits only: not in 31.12.2014 or in 484.20.
    plain = texts.where(texts.str.fullmatch(COMMA_NUMBER, na=False))
    plain = plain.str.replace(".", "", regex=False)
    return plain.str.replace(decimal, ".", regex=False)


def _levels(series: pd.Series, column: Column) -> pd.Series:
    texts = as_objects(series)
    if column.levels is None:
        return texts
    places = {level: i for i, level in enumerate(column.levels)}
    table = places | {str(level): i for level, i in reversed(places.items())}
    numbers = {
        float(level): i
        for level, i in reversed(places.items())
        if isinstance(level, (int, float))
    }
    nothing = places.get(column.other, -1)

    def place_of(text: Any) -> int:
        if isinstance(text, Hashable) and text in table:
            return table[text]
        return numbers.get(_number_of(text), nothing)

    # By place: a list of whole numbers of which one is missing becomes one of floats.
    codes = [-1 if text is None else place_of(text) for text in texts]
    dtype = pd.CategoricalDtype(list(column.levels), ordered=column.ordered)
    return pd.Series(pd.Categorical.from_codes(codes, dtype=dtype), texts.index)


def _number_of(text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        return math.nan


def instants_of(series: pd.Series, form: str | None) -> pd.Series:
    """Return texts as instants, by a format of `strptime` or by ISO 8601.

    Times with a zone are converted to UTC.
    """
    # One by one: pandas lends the zone of a text to those after it.
    times = [_instant_of(text, form) for text in as_objects(series)]
    return pd.Series(np.array(times, "M8[us]"), index=series.index)


def _instant_of(text: Any, form: str | None) -> dt.datetime | None:
    try:
        read = dt.datetime
        time = read.fromisoformat(text) if form is None else read.strptime(text, form)
        if time.tzinfo is not None:
            time = time.astimezone(dt.UTC)
    except (ValueError, TypeError, OverflowError):
        return None
    return time.replace(tzinfo=None)


def _durations(series: pd.Series) -> pd.Series:
    texts = [text if isinstance(text, str) else None for text in as_objects(series)]
    # A warning of an outdated unit would speak of values.
    with warnings.catch_warnings(action="ignore"):
        times = pd.to_timedelta(pd.Series(texts, series.index, object), errors="coerce")
    return times.dt.as_unit("us")
