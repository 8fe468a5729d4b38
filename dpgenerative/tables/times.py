"""Times as whole numbers of a unit, and back.

Instants are read on the clock of their own time zone, as counts since 1970-01-01T00:00
of that clock, so that a day is a day wherever it was.
"""

import datetime as dt
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

PER_DAY = {
    "D": 1,
    "h": 24,
    "min": 1440,
    "s": 86_400,
    "ms": 86_400_000,
    "us": 86_400_000_000,
}
"""Units of time, and how many of them a day has."""
_DAY = PER_DAY["us"]
_YEARS = (1, 1000, 1500, 1600, 1700, 1800, *range(1850, 2101), 2200, 2500, 5000, 9999)
"""Years between whose beginnings the bounds of instants are sought."""


def temporal_kind(dtype: Any) -> str | None:
    """Return "datetime" or "timedelta", None for a dtype that holds no times."""
    if isinstance(dtype, (np.dtype, pd.DatetimeTZDtype, pd.ArrowDtype)):
        return {"M": "datetime", "m": "timedelta"}.get(dtype.kind)
    return None


def time_zone(dtype: Any) -> Any:
    """Return the time zone of a dtype, None where it has none."""
    return getattr(getattr(dtype, "pyarrow_dtype", dtype), "tz", None)


def in_zones(frame: pd.DataFrame, dtypes: Iterable[Any]) -> pd.DataFrame:
    """Return a table with its instants in the time zones of dtypes, one per column.

    What has no zone, or is to have none, stays as it is.
    """
    frame = frame.copy(deep=False)
    for j, zone in enumerate(map(time_zone, dtypes)):
        if zone is not None and time_zone(frame.dtypes.iloc[j]) not in (None, zone):
            frame.isetitem(j, frame.iloc[:, j].dt.tz_convert(zone))
    return frame


# Units --------------------------------------------------------------------------------


def to_units(series: pd.Series, unit: str) -> np.ndarray:
    """Return whole units of time, rounded down, as floats; NaN where missing."""
    if series.dtype == object:
        series = dates_among(series)
    zone = time_zone(series.dtype)
    if isinstance(series.dtype, pd.ArrowDtype):
        values = pa.array(series).to_numpy(zero_copy_only=False)  # instants in UTC
    else:
        values = series.to_numpy(f"M8[{series.dtype.unit}]" if zone else None)
    if zone is not None:
        instants = pd.Series(_between_ends(values)).dt.tz_localize("UTC")
        values = instants.dt.tz_convert(zone).dt.tz_localize(None).to_numpy()
    counts = values.view(np.int64)
    own_unit, per_day = np.datetime_data(values.dtype)[0], PER_DAY[unit]
    own_per_day = 1000 * _DAY if own_unit == "ns" else PER_DAY[own_unit]
    if own_per_day >= per_day:
        # numpy would round durations towards 0.
        units = np.floor_divide(counts, own_per_day // per_day).astype(float)
    else:
        units = counts.astype(float) * (per_day // own_per_day)
    return np.where(np.isnat(values), np.nan, units)


def as_times(counts: np.ndarray, kind: str) -> np.ndarray:
    """Return whole microseconds, NaN where missing, as instants or durations."""
    whole = np.nan_to_num(counts, nan=np.iinfo(np.int64).min).astype(np.int64)
    return whole.view("M8[us]" if kind == "datetime" else "m8[us]")


def dates_among(series: pd.Series) -> pd.Series:
    """Return the dates and instants of a column of objects; all else is missing.

    Texts are read as ISO 8601. Types are compared exactly: a subclass could raise, or
    lie about what it is.
    """
    values = np.full(len(series), "NaT", dtype="M8[us]")
    for i, value in enumerate(series.array):
        if type(value) is str:
            with suppress(ValueError):
                value = dt.datetime.fromisoformat(value)
        if type(value) is pd.Timestamp:
            with suppress(Exception):  # a time zone of a user's own class
                values[i] = _between_ends(value.tz_localize(None).to_numpy())
        elif type(value) is dt.datetime:
            values[i] = value.replace(tzinfo=None)
        elif type(value) is dt.date:
            values[i] = value
    return pd.Series(values, index=series.index)


def _between_ends(instants: Any) -> Any:
    """Return instants within the years 1 to 9999, and within their type."""
    ends = np.array(_ends(np.datetime_data(instants.dtype)[0]), dtype="M8[us]")
    return np.clip(instants, *ends.astype(instants.dtype))


def _ends(numpy_unit: str) -> tuple[int, int]:
    """Return the first and last microsecond used, a day from where a type ends."""
    if numpy_unit == "ns":
        return -(2**63) // 1000 + _DAY, 2**63 // 1000 - _DAY
    # Python reads the years 1 to 9999.
    ends = np.array([dt.datetime.min, dt.datetime.max], "M8[us]").astype(np.int64)
    return int(ends[0]) + _DAY, int(ends[1]) - _DAY


def from_units(
    counts: np.ndarray, missing: np.ndarray, unit: str, dtype: Any
) -> pd.Series:
    """Return a series of times of a dtype from whole units.

    Ambiguous times take the first occurrence, nonexistent ones move forward. What the
    dtype cannot hold becomes the nearest that it can. In a column of objects they are
    instants of Python, or its dates where the unit is a day.
    """
    letter = "m" if temporal_kind(dtype) == "timedelta" else "M"
    length = _DAY // PER_DAY[unit]
    earliest, latest = _ends(_unit(dtype))
    inside = np.clip(np.round(counts), -(-earliest // length), latest // length)
    values = (inside.astype(np.int64) * length).astype(f"{letter}8[us]")
    values[missing] = np.array("NaT", dtype=values.dtype)
    if pd.api.types.is_object_dtype(dtype):
        # Python's dates, or its instants: by the unit, which is public.
        plain = values.astype("M8[D]") if unit == "D" else values
        return pd.Series(plain.astype(object), dtype=object)
    series = pd.Series(values)
    zone = time_zone(dtype)
    if zone is not None:
        dst = np.ones(len(series), dtype=bool)
        series = series.dt.tz_localize(zone, ambiguous=dst, nonexistent="shift_forward")
    if not isinstance(dtype, pd.ArrowDtype):
        return series.astype(dtype)
    array = pa.array(series, from_pandas=True).cast(dtype.pyarrow_dtype, safe=False)
    return pd.Series(pd.arrays.ArrowExtensionArray(array))


def _unit(dtype: Any) -> str:
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":
        return np.datetime_data(dtype)[0]
    return getattr(getattr(dtype, "pyarrow_dtype", dtype), "unit", "s")


# Single times -------------------------------------------------------------------------


def count_of(value: Any, kind: str, unit: str) -> int:
    """Return the whole units of one time, rounded down.

    Raises
    ------
    ValueError, TypeError
        For what is no instant on a clock without a zone, or no duration; for text
        that does not begin with the year.
    """
    types = pd.api.types
    if isinstance(value, bool) or types.is_integer(value) or types.is_float(value):
        raise TypeError("a number is no time")
    if kind == "datetime" and isinstance(value, str) and not value[:4].isdecimal():
        # pandas would guess which of 01.02.2020 is the day, and read "today".
        raise ValueError("not a year first")
    time = pd.Timedelta(value) if kind == "timedelta" else pd.Timestamp(value)
    if time is pd.NaT or getattr(time, "tzinfo", None) is not None:
        raise ValueError("not a time without a zone")
    return int(to_units(pd.Series(np.array([time.to_numpy()])), unit)[0])


def spelled(count: int, kind: str, unit: str) -> str:
    """Return one time as text that `count_of` reads."""
    length = dt.timedelta(microseconds=count * (_DAY // PER_DAY[unit]))
    if kind == "timedelta":
        return str(pd.Timedelta(length))
    instant = dt.datetime(1970, 1, 1) + length
    return instant.isoformat().removesuffix("T00:00:00")


def year_starts(unit: str) -> np.ndarray:
    """Return the beginnings of some years in units: a public grid for bounds."""
    starts = np.array([f"{year:04d}-01-01" for year in _YEARS], "M8[s]")
    return to_units(pd.Series(starts), unit)
