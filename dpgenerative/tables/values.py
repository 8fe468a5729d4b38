"""Single values as a schema states them."""

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa


def is_missing(value: Any) -> bool:
    """Return whether one value is None or a NaN of some kind."""
    return value is None or bool(np.ndim(value) == 0 and pd.isna(value))


def as_python(value: Any) -> Any:
    """Return a scalar of numpy as Python's own, all else as it is."""
    return value.item() if isinstance(value, np.generic) else value


def as_objects(series: pd.Series) -> pd.Series:
    """Return a column as Python objects, None where missing."""
    entries = series.astype(object)
    return entries.where(entries.notna(), None)


def as_json(value: Any) -> Any:
    """Return one value as JSON can hold it, None where it is missing."""
    if is_missing(value):
        return None
    if isinstance(value, (dt.datetime, dt.date, np.datetime64)):
        return pd.Timestamp(value).isoformat()
    if isinstance(value, (dt.timedelta, np.timedelta64)):
        return str(pd.Timedelta(value))
    return as_python(value)


def as_stored(value: Any, dtype: Any) -> Any:
    """Return a number as a column of its kind stores it, all else as it is."""
    if not isinstance(value, (int, float)):
        return value
    if pd.api.types.is_bool_dtype(dtype):
        return bool(value) if value in (0, 1) else value
    if pa.types.is_decimal(getattr(dtype, "pyarrow_dtype", pa.null())):
        return Decimal(str(+value))  # True is 1
    if not pd.api.types.is_float_dtype(dtype):
        return value
    with np.errstate(over="ignore"):
        return getattr(dtype, "numpy_dtype", dtype).type(value).item()


def holds_objects(dtype: Any) -> bool:
    """Return whether a column of this dtype holds Python objects, as they came."""
    is_python = getattr(dtype, "storage", None) == "python"
    return is_python or pd.api.types.is_object_dtype(dtype)
