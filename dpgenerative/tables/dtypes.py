"""What the dtype of a column makes public: no function here looks at a value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa


def decimal_scale(dtype: Any) -> int | None:
    """Return the number of decimals of an Arrow decimal, None for other dtypes."""
    arrow = getattr(dtype, "pyarrow_dtype", None)
    if arrow is None or not pa.types.is_decimal(arrow):
        return None
    return int(arrow.scale)


def is_real_dtype(dtype: Any) -> bool:
    """Whether a dtype holds integers, floats or decimals."""
    types = pd.api.types
    if isinstance(dtype, pd.SparseDtype) or types.is_complex_dtype(dtype):
        return False
    is_binary = types.is_integer_dtype(dtype) or types.is_float_dtype(dtype)
    return bool(is_binary or decimal_scale(dtype) is not None)


def can_hold_missing(dtype: Any) -> bool:
    """Whether a series of this dtype can hold a missing value."""
    return not (isinstance(dtype, np.dtype) and dtype.kind in "biu")


def can_hold(dtype: Any, value: Any) -> bool:
    """Whether a stated value survives in a series of this dtype.

    Only dtypes of numbers and of truth values can fail.
    """
    if not (is_real_dtype(dtype) or pd.api.types.is_bool_dtype(dtype)):
        return True
    if not isinstance(value, (bool, int, float)):
        return False
    try:
        return bool(pd.Series([value]).astype(dtype).iloc[0] == value)
    except (TypeError, ValueError, OverflowError):
        return False
