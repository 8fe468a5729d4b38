"""What dtypes make public, and whether they can hold what a schema states.

No function here reads a value of the rows.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api import types

from dpgenerative.exceptions import UnsupportedColumnError
from dpgenerative.tables.column import OTHER, Column
from dpgenerative.tables.times import temporal_kind

CERTAIN = 2.0**53
"""Up to here every integer is a float64."""


def decimal_scale(dtype: Any) -> int | None:
    """Return the number of decimals of an Arrow decimal, None for other dtypes."""
    arrow: Any = getattr(dtype, "pyarrow_dtype", pa.null())
    return arrow.scale if pa.types.is_decimal(arrow) else None


def is_real_dtype(dtype: Any) -> bool:
    """Whether a dtype holds integers, floats or decimals."""
    is_binary = types.is_integer_dtype(dtype) or types.is_float_dtype(dtype)
    is_real = is_binary or decimal_scale(dtype) is not None
    return is_real and not isinstance(dtype, pd.SparseDtype)


def can_hold_missing(dtype: Any) -> bool:
    """Whether a series of this dtype can hold a missing value."""
    return not (isinstance(dtype, np.dtype) and dtype.kind in "biu")


def can_hold(dtype: Any, value: Any) -> bool:
    """Whether a stated value survives in a series of this dtype.

    Only dtypes of numbers, of truth values and of strings can fail.
    """
    if types.is_string_dtype(dtype) and not types.is_object_dtype(dtype):
        return isinstance(value, str)
    if not (is_real_dtype(dtype) or types.is_bool_dtype(dtype)):
        return True
    if not isinstance(value, (bool, int, float, Decimal)):
        return False
    try:
        with np.errstate(over="ignore"):
            stored = pd.Series([value]).astype(dtype).iloc[0]
            # To as many digits as the dtype has: in float16 1e9 is inf, and equal.
            return bool(stored == value) and math.isinf(stored) == math.isinf(value)
    except (TypeError, ValueError, OverflowError, NotImplementedError):
        return False


def column_from_dtype(name: Hashable, dtype: Any, nominal: bool = False) -> Column:
    """Return what a dtype makes public of a column.

    Raises
    ------
    UnsupportedColumnError
        For a dtype that is not supported.
    """
    try:
        facts = None if isinstance(dtype, pd.SparseDtype) else _facts_of(dtype, nominal)
    except NotImplementedError:  # pandas knows no values of some types of Arrow
        facts = None
    if facts is None:
        raise UnsupportedColumnError(
            f"Column {name!r} has dtype {dtype}, which is not supported"
            f"{' as levels' if nominal else ''}. Supported: boolean, integer, float, "
            "string, object and category, and (but not as levels) decimal, datetime "
            "and timedelta. Turn it into one of these first."
        )
    return Column(name, **facts)


def _facts_of(dtype: Any, nominal: bool) -> dict[str, Any] | None:
    if isinstance(dtype, pd.CategoricalDtype):
        # A level list is public by declaration; an empty one leaves only 'missing'.
        levels = tuple(dtype.categories) or ("",)
        return {"kind": "categorical", "levels": levels, "ordered": bool(dtype.ordered)}
    nullable = None if can_hold_missing(dtype) else False
    if types.is_bool_dtype(dtype):
        return {"kind": "boolean", "nullable": nullable}
    if types.is_object_dtype(dtype) or types.is_string_dtype(dtype):
        return {"kind": "categorical", "other": OTHER}
    if nominal:
        is_number = is_real_dtype(dtype) and decimal_scale(dtype) is None
        return {"kind": "categorical"} if is_number else None
    if temporal_kind(dtype) is not None:
        is_day = pa.types.is_date(getattr(dtype, "pyarrow_dtype", pa.null()))
        return {"kind": temporal_kind(dtype), "resolution": "D" if is_day else None}
    if not is_real_dtype(dtype):
        return None
    scale = decimal_scale(dtype)
    is_whole = types.is_integer_dtype(dtype) or scale == 0
    step = float(f"1e{-scale}") if scale else None
    kind = "integer" if is_whole else "continuous"
    return {"kind": kind, "nullable": nullable, "resolution": step}


def reconcile(stated: Column, by_dtype: Column, dtype: Any) -> Column:
    """Complete what the schema states with what the dtype makes public.

    Raises
    ------
    ValueError
        If the dtype cannot hold what is stated.
    """
    if stated.is_key:
        _require_identifiers(stated, by_dtype, dtype)
        return replace(stated, nullable=False)
    _require_kind(stated, dtype)
    levels, other, step = stated.levels, stated.other, stated.resolution
    if levels is None and stated.kind == "categorical":
        levels = by_dtype.levels
        other = by_dtype.other if other is None else other
    _require_levels(stated, levels or (() if other is None else (other,)), dtype)
    if step is None and stated.kind == by_dtype.kind:
        step = by_dtype.resolution
    nullable = can_hold_missing(dtype) and stated.nullable is not False
    is_closed = types.is_bool_dtype(dtype) and {False, True} <= set(levels or ())
    if not (stated.numeric or is_closed or stated.nullable is False) and other is None:
        nullable = True  # inside a fit: values that are no level
    return replace(
        stated, levels=levels, nullable=nullable, resolution=step, other=other
    )


def _require_identifiers(stated: Column, by_dtype: Column, dtype: Any) -> None:
    """Require that new identifiers can be written in the dtype."""
    if stated.kind == "integer":
        fits, needed = is_real_dtype(dtype), "numbers"
    else:
        is_open_text = by_dtype.kind == "categorical" and by_dtype.levels is None
        fits, needed = is_open_text, "strings"
    if not fits:
        raise ValueError(
            f"Column {stated.name!r}: identifiers of kind {stated.kind} need a dtype "
            f"of {needed}; got {dtype}."
        )


def _require_kind(stated: Column, dtype: Any) -> None:
    time = temporal_kind(dtype)
    if stated.temporal or time is not None:
        among_objects = types.is_object_dtype(dtype)
        fits = stated.kind == time or stated.kind == "datetime" and among_objects
    elif decimal_scale(dtype) is not None:
        fits = stated.numeric
    else:
        fits = not stated.numeric or is_real_dtype(dtype)
    if not fits:
        lacks = "numbers" if stated.numeric else "levels"
        lacks = "such times" if stated.temporal else lacks
        raise ValueError(
            f"Column {stated.name!r} is {stated.kind}, by its schema or where it was "
            f"fitted, but its dtype {dtype} holds no {lacks}. Convert the column, or "
            "state another kind."
        )


def _require_levels(stated: Column, levels: Sequence[Any], dtype: Any) -> None:
    if unfit := [level for level in levels if not can_hold(dtype, level)]:
        raise ValueError(
            f"Column {stated.name!r}: its dtype {dtype} cannot hold the levels {unfit}."
            " Convert the column, or state other levels."
        )
    if isinstance(dtype, pd.CategoricalDtype) and len(set(levels)) < len(levels):
        raise ValueError(
            f"Column {stated.name!r}: a category dtype takes equal levels for one, as "
            "1 and True are. Convert the column to object, or state other levels."
        )
