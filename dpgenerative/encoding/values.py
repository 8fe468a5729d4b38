"""Values of columns: as numbers, as positions among levels, as keys, as dtypes."""

import math
import uuid
from collections import Counter
from collections.abc import Hashable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative.privacy.noise import Key
from dpgenerative.tables.column import Column
from dpgenerative.tables.containers import labels, plain
from dpgenerative.tables.dtypes import decimal_scale
from dpgenerative.tables.times import to_units
from dpgenerative.tables.values import holds_objects

NO_LEVELS, NO_NUMBERS = ("",), (0,)
"""Levels of a column in which none was released."""


# Numbers ------------------------------------------------------------------------------


def as_numbers(column: Column, series: pd.Series) -> np.ndarray:
    """Return numbers, or times in units, NaN where missing."""
    return to_units(series, column.unit) if column.temporal else floats(series)


def floats(series: pd.Series) -> np.ndarray:
    """Return numbers in float64, without a warning, which would reveal values.

    Warned of are those too large, and NaN that signals, as bits read from files may be;
    once added to, it does not warn of what is computed of it later.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return series.to_numpy(float, na_value=np.nan) + 0.0


def limits(dtype: Any) -> Any:
    """Return an object with the `min` and `max` of a dtype, infinite if not numeric."""
    scale = decimal_scale(dtype)
    if scale is not None:
        # A little below, since the ends themselves are not representable as floats.
        most = 10.0 ** (dtype.pyarrow_dtype.precision - scale) * (1 - 1e-15)
        most -= 10.0**-scale
        return SimpleNamespace(min=-most, max=most)
    plain = getattr(dtype, "numpy_dtype", dtype)
    if not isinstance(plain, np.dtype) or plain.kind not in "iuf":
        return SimpleNamespace(min=-math.inf, max=math.inf)
    return np.finfo(plain) if plain.kind == "f" else np.iinfo(plain)


def as_integers(values: np.ndarray, missing: np.ndarray, dtype: Any) -> pd.Series:
    """Return whole numbers in an integer dtype, the ends of its range beyond them."""
    info = limits(dtype)
    kind, nullable = (np.uint64, "UInt64") if info.min == 0 else (np.int64, "Int64")
    values = np.round(values)
    inside = (values > info.min) & (values < info.max)
    whole = np.where(inside, values, 0).astype(kind)
    ends = np.where(values > 0, kind(info.max), kind(info.min))
    series = pd.Series(np.where(inside, whole, ends))
    if missing.any():
        series = series.astype(nullable).mask(pd.Series(missing))
    return series.astype(dtype)


# Levels -------------------------------------------------------------------------------


def level_indices(series: pd.Series, levels: Sequence[Hashable]) -> np.ndarray:
    """Return the position of every value among the levels, -1 where it is not one."""
    by_value = {level: i for i, level in reversed(list(enumerate(levels)))}
    if holds_objects(series.dtype):
        by_key = {_key(level): i for i, level in enumerate(levels)}
        indices = [
            -1 if key is None else by_key.get(key, by_value.get(key[1], -1))
            for key in keys(series)
        ]
        return np.array(indices, dtype=int)
    places, uniques = _factorized(series)
    table = np.array([by_value.get(value, -1) for value in uniques] + [-1], dtype=int)
    return table[places]


def level_codes(series: pd.Series, column: Column) -> np.ndarray:
    """Return the position of every value among the levels of a column.

    Values that are no level count as `other` or, without one, as missing: the position
    after the last level. Missing values of a column that has none count as `other` or
    as the first level.
    """
    assert column.levels is not None
    other = None if column.other is None else column.levels.index(column.other)
    nothing = len(column.levels) if column.nullable else other or 0
    codes = level_indices(series, column.levels)
    unknown = np.flatnonzero(codes < 0)
    codes[unknown] = nothing
    if other is not None:
        rest = series.iloc[unknown]
        if rest.dtype == object:
            usable = np.array([key is not None for key in keys(rest)], dtype=bool)
        else:
            usable = rest.notna().to_numpy(bool)
        codes[unknown[usable]] = other
    return codes


def distinct_values(series: pd.Series) -> tuple[Hashable, ...]:
    """Return the values of a column that can be levels, once each and in order."""
    distinct = {key for key in keys(series) if key is not None}
    return tuple(key[1] for key in sorted(distinct))


def keys(series: pd.Series) -> list[Key | None]:
    """Return a key for every value of a column; None for unusable values."""
    return [_key(value) for value in series.array]


def key_counts(series: pd.Series) -> dict[Key, int]:
    """Return how often every usable value of a column occurs."""
    if holds_objects(series.dtype):
        return Counter(key for key in keys(series) if key is not None)
    places, uniques = _factorized(series)
    counts = np.bincount(places[places >= 0], minlength=len(uniques)).tolist()
    total: Counter[Key] = Counter()
    for key, count in zip(keys(pd.Series(uniques)), counts, strict=True):
        if key is not None:
            total[key] += count
    return total


def _factorized(series: pd.Series) -> tuple[np.ndarray, Any]:
    """Return the place of every entry among distinct values, -1 where missing.

    Arrow's dictionaries of floats separate 0.0 from -0.0. Those of 16 bits, of several
    chunks of which one holds NaN, have other numbers than the rows.
    """
    if pd.api.types.is_float_dtype(series.dtype):
        series = pd.Series(floats(series))
    with np.errstate(over="ignore"):
        return pd.factorize(series)


def _key(value: Any) -> Key | None:
    """Return the key of one value of a column of objects.

    Equal values of one type have one key, so that which of them came first in the table
    (0.0 or -0.0) does not show.
    """
    own = plain(value)
    if own is None or own != own or type(own) is int and abs(own) >= 2**63:
        return None
    return type(own).__name__, own + 0.0 if type(own) is float else own


# Dtypes -------------------------------------------------------------------------------


def dtype_with_levels(column: Column, dtype: Any) -> Any:
    """Return the dtype of samples: of the levels if its categories lack some."""
    levels = column.levels
    if not isinstance(dtype, pd.CategoricalDtype) or levels in (None, NO_LEVELS):
        return dtype
    if set(levels) <= set(dtype.categories):
        return dtype
    return pd.CategoricalDtype(labels(levels), ordered=column.ordered)


def restored_levels(column: Column, dtype: Any, positions: np.ndarray) -> pd.Series:
    """Return levels in a dtype, missing for the position after the last one."""
    levels = column.levels or ()
    table = np.empty(len(levels) + 1, dtype=object)
    table[:-1] = levels
    if isinstance(dtype, pd.CategoricalDtype):
        places = dtype.categories.get_indexer(pd.Index(table, dtype=object))
        return pd.Series(pd.Categorical.from_codes(places[positions], dtype=dtype))
    if not pd.api.types.is_object_dtype(dtype):
        table[-1] = np.nan if isinstance(dtype, np.dtype) else pd.NA
    series = pd.Series(table[positions], dtype=object)
    if pd.api.types.is_float_dtype(dtype):
        return pd.to_numeric(series).astype(dtype)
    return series.astype(dtype)


# Identifiers --------------------------------------------------------------------------


def identifiers(
    column: Column, n: int, dtype: Any, rng: np.random.Generator, before: int = 0
) -> pd.Series:
    """Return n distinct identifiers: 1 to n, in the column's format.

    Or the n that follow those `before`.
    """
    numbers = range(before + 1, before + n + 1)
    if column.kind == "integer":
        if before + n > limits(dtype).max:
            raise ValueError(
                f"Column {column.name!r}: {dtype} holds no {before + n} distinct "
                "identifiers. Draw fewer rows, or fit the column in a wider dtype."
            )
        return pd.Series(numbers).astype(dtype)
    if column.format == "uuid":
        made = [str(uuid.UUID(bytes=rng.bytes(16), version=4)) for _ in numbers]
    else:
        made = [(column.format or "{}").format(number) for number in numbers]
    return pd.Series(made, dtype=object).astype(dtype)
