"""Conditions on one column: what they mean, which values satisfy them.

A *condition*, in a constraint and in ``sample(given=...)``, is

- a value: equal to it, as Python has it (1, 1.0 and True are equal), and as the column
  holds it (.1 is the nearest number of 32 bits where the column has such);
- a list (or set) of values: equal to one of them;
- a tuple ``(low, high)``: between them, both included, None for no limit;
- None (or NaN): missing.
"""

import datetime as dt
import math
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from dpgenerative._validation import shown
from dpgenerative.tables.column import EXAMPLES, Column
from dpgenerative.tables.times import count_of, temporal_kind, to_units
from dpgenerative.tables.values import as_stored, holds_objects, is_missing

_LISTS = (
    list, set, frozenset,
    np.ndarray, pd.Series, pd.Index, pd.api.extensions.ExtensionArray,
)  # fmt: skip


def alternatives(condition: Any) -> list[Any]:
    """Return the values, intervals and missing values that a condition lists."""
    if isinstance(condition, np.ndarray):
        condition = np.atleast_1d(condition)
    return list(condition) if isinstance(condition, _LISTS) else [condition]


def satisfies(series: pd.Series, condition: Any) -> np.ndarray:
    """Return which values of a column satisfy a condition.

    Parameters
    ----------
    series : Series of length n
    condition : object
        See the module's text.

    Returns
    -------
    ndarray of bool of shape (n,)
    """
    matches = np.zeros(len(series), dtype=bool)
    values = []
    for part in alternatives(condition):
        if isinstance(part, tuple):
            matches |= _between(series, part)
        elif is_missing(part):
            matches |= series.isna().to_numpy(bool)
        else:
            values.append(part)
    return matches | _equal(series, values) if values else matches


def _equal(series: pd.Series, values: list[Any]) -> np.ndarray:
    if kind := temporal_kind(series.dtype):
        times = [count_of(value, kind, "us") for value in values]
        return np.isin(to_units(series, "us"), times)
    stored = [as_stored(value, series.dtype) for value in values]
    # Arrow raises where a value is not of the column's own type, or too large for it.
    is_arrow = isinstance(series.dtype, pd.ArrowDtype)
    equal = (series.astype(object) if is_arrow else series).isin(stored).to_numpy(bool)
    if series.dtype == object and any(isinstance(each, dt.date) for each in series):
        dates = to_units(pd.Series(values, dtype=object), "us")
        equal = equal | np.isin(to_units(series, "us"), dates)
    return equal


def _between(series: pd.Series, interval: tuple[Any, ...]) -> np.ndarray:
    kind, values = _times_of(series), on_line(series)
    inside = ~np.isnan(values)
    for end, reaches in zip(interval, (np.greater_equal, np.less_equal), strict=True):
        if not is_missing(end):
            stored = as_stored(end, series.dtype)
            limit = count_of(end, kind, "us") if kind else float(stored)
            inside &= reaches(values, limit)
    return inside


def _times_of(series: pd.Series) -> str | None:
    """Return the kind of times of an ordered column, None for numbers.

    Numbers have dtypes of their own: what is ordered among objects are dates.
    """
    return "datetime" if holds_objects(series.dtype) else temporal_kind(series.dtype)


def on_line(series: pd.Series) -> np.ndarray:
    """Return an ordered column as floats, times in microseconds; NaN where missing."""
    if _times_of(series) is not None:
        return to_units(series, "us")
    return series.to_numpy(float, na_value=np.nan)


def check_condition(column: Column, condition: Any) -> None:
    """Require that a condition can hold for a column.

    Raises
    ------
    ValueError
        For what is no level or value of the column, an interval of levels or an empty
        one, an empty list, or missing values where there are none.
    """
    parts = alternatives(condition)
    if not parts:
        refuse_condition(column, condition, "it lists no value")
    for part in parts:
        if why := _why_never(column, part):
            refuse_condition(column, part, why)


def refuse_condition(column: Column, condition: object, why: str) -> NoReturn:
    """Raise the error of a condition that no value of a column satisfies."""
    what = f"The condition {shown(condition)} on the column {column.name!r}"
    raise ValueError(f"{what} can never hold: {why}.")


def _why_never(column: Column, part: Any) -> str | None:
    """Return why no value of a column can satisfy a condition, None where some can."""
    if isinstance(part, tuple):
        return _why_empty(column, part)
    if is_missing(part):
        return "the column has no missing values" if column.nullable is False else None
    if column.numeric:
        why = _why_empty(column, (part, part))
        if why is None and column.misses_step(column.count(part)):
            step = f"{column.step:g}" if not column.temporal else repr(column.unit)
            why = f"it is no multiple of the resolution {step}"
        return why
    if column.levels is None or part in column.levels:
        return None
    more = " and others" if len(column.levels) > 20 else ""
    return f"it is none of its levels {list(column.levels[:20])}{more}"


def _why_empty(column: Column, interval: tuple[Any, ...]) -> str | None:
    if not column.numeric:
        return "the column has levels, not intervals; list them"
    if len(interval) != 2:
        return "an interval is a pair (low, high)"
    try:
        low, high = interval
        low = -math.inf if is_missing(low) else column.count(low)
        high = math.inf if is_missing(high) else column.count(high)
    except (ValueError, TypeError, OverflowError):
        if not column.temporal:
            remedy = "give one, (low, high), a list of such, or None for missing"
            return f"the column holds numbers only; {remedy}"
        example = repr(EXAMPLES[column.kind])
        if column.kind == "datetime":
            example += ", on its own clock and without a time zone"
        return f"the column holds {column.kind}s only, such as {example}"
    if not low <= high:
        return "the interval is empty"
    bounds = column.numbers
    if bounds.lower is not None and (high < bounds.lower or low > bounds.upper):
        return f"it is outside the bounds [{column.lower}, {column.upper}]"
    return None
