"""Reading tables and columns so that they can be compared: what all metrics use."""

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pandas as pd
from pandas.api.types import (
    infer_dtype,
    is_bool_dtype,
    is_float_dtype,
    is_numeric_dtype,
    is_object_dtype,
)

from dpgenerative.tables.arrow import in_pandas
from dpgenerative.tables.dtypes import CERTAIN
from dpgenerative.tables.times import dates_among, in_zones, temporal_kind, to_units

MIN_ROWS = 50  # tables with fewer rows get a warning: the figures are mostly chance

P = ParamSpec("P")
R = TypeVar("R")


# Tables -------------------------------------------------------------------------------


def takes_tables(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function of pandas tables take those of other libraries, through Arrow.

    Object columns that hold nothing but dates become columns of times.
    """

    @functools.wraps(function)
    def taking(*args: P.args, **kwargs: P.kwargs) -> R:
        given = [_in_pandas(function.__name__, value) for value in args]
        named = {k: _in_pandas(function.__name__, v) for k, v in kwargs.items()}
        return function(*given, **named)  # type: ignore[arg-type]

    return taking


def _in_pandas(owner: str, data: Any) -> Any:
    data = in_pandas(owner, data)
    if not issubclass(type(data), pd.DataFrame):
        return data
    places = np.flatnonzero(data.dtypes.map(is_object_dtype))
    times = ("date", "datetime")
    dated = [j for j in places if infer_dtype(data.iloc[:, j]) in times]
    data = data.copy(deep=False) if dated else data
    for j in dated:
        data.isetitem(j, dates_among(data.iloc[:, j]))
    return data


def aligned(
    real: pd.DataFrame,
    other: pd.DataFrame,
    names: tuple[str, str] = ("real", "synthetic"),
) -> pd.DataFrame:
    """Return `other` with its columns in the order of `real`.

    Instants of another time zone than the real ones are converted to theirs.

    Raises
    ------
    TypeError
        If either is not a DataFrame.
    ValueError
        If either has no row, no column or a repeated column, or their columns differ.
    """
    for frame, name in zip((real, other), names, strict=True):
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"{name} must be a DataFrame; got {type(frame).__name__}.")
        if frame.empty:
            raise ValueError(f"{name} must have rows and columns; got {frame.shape}.")
        if not frame.columns.is_unique:
            twice = sorted(map(str, frame.columns[frame.columns.duplicated()]))
            raise ValueError(f"{name} must have distinct columns; repeated: {twice}.")
    lacking = [column for column in real.columns if column not in other.columns]
    extra = [column for column in other.columns if column not in real.columns]
    differences = {"lacks": lacking, "adds": extra}
    if parts := [f"{verb} {some}" for verb, some in differences.items() if some]:
        raise ValueError(
            f"{names[1]} must have the columns of {names[0]}; it {' and '.join(parts)}."
        )
    return in_zones(other[list(real.columns)], real.dtypes)


def warn_if_few(sizes: Mapping[str, int], stacklevel: int = 4) -> None:
    """Warn of tables with fewer than 50 rows, on behalf of the caller's caller."""
    if few := [f"{name}: {n}" for name, n in sizes.items() if n < MIN_ROWS]:
        warnings.warn(
            f"Few rows ({', '.join(few)}): with fewer than {MIN_ROWS} the figures are "
            "mostly sampling noise.",
            stacklevel=stacklevel,
        )


# Columns ------------------------------------------------------------------------------


def is_number(series: pd.Series) -> bool:
    """Whether a column holds numbers or times by its dtype; booleans are neither."""
    is_numeric = is_numeric_dtype(series) and not is_bool_dtype(series)
    return is_numeric or temporal_kind(series.dtype) is not None


def as_floats(series: pd.Series, origin: float = 0.0) -> np.ndarray:
    """Return a numeric column as float64, missing values as NaN; times in seconds.

    A column in which every value is missing passes as numeric whatever its dtype.
    Numbers are counted from `origin`, of `origin_of`.

    Raises
    ------
    ValueError
        If the column's dtype is not numeric.
    """
    if not is_number(series) and series.isna().all():
        return np.full(len(series), np.nan)
    if not is_number(series):
        raise ValueError(
            f"Column {series.name!r} must be numeric or hold times, as in the other "
            f"table; its dtype is {series.dtype}. (Times that a file holds as text are "
            "read by pd.to_datetime and pd.to_timedelta.)"
        )
    if temporal_kind(series.dtype) is not None:
        return to_units(series, "us") / 1e6
    values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    return (values - origin) + rounded_off(series, values) if origin else values


def rounded_off(series: pd.Series, values: np.ndarray) -> np.ndarray:
    """Return what a numeric column exceeds float64 values of it by: 0 below 2^53.

    Only whole numbers and decimals can.
    """
    rest = np.zeros(len(values))
    large = np.abs(values) >= CERTAIN
    if large.any() and _is_exact(series):
        pairs = zip(series[large], values[large], strict=True)
        rest[large] = [float(value - int(near)) for value, near in pairs]
    return rest


def origin_of(series: pd.Series) -> float:
    """Return where to count the numbers of a column from, so that float64 has them.

    It is their median if that is beyond 2^53, where whole numbers are not all float64.
    """
    if not _is_exact(series) or series.isna().all():
        return 0.0
    middle = float(np.nanmedian(as_floats(series)))
    return middle if abs(middle) >= CERTAIN else 0.0


def _is_exact(series: pd.Series) -> bool:
    """Whether a column holds whole numbers or decimals by its dtype."""
    is_float = is_float_dtype(series) or temporal_kind(series.dtype) is not None
    return is_number(series) and not is_float


def common_codes(*columns: pd.Series) -> tuple[list[np.ndarray], pd.Index]:
    """Encode several columns by the same integer codes.

    Returns
    -------
    codes : list of ndarray of int
        One per column; -1 where missing.
    levels : Index
        The levels that the codes number, those of the first column first.
    """
    # Not by union_categoricals of pandas, to which the levels 1 and "1" are the same.
    coded = [_factorize(column) for column in columns]
    union = coded[0][1]
    for _, levels in coded[1:]:
        union = union.append(levels.difference(union, sort=False))
    # A code of -1 reads the last entry.
    common = [np.append(union.get_indexer(own), -1)[codes] for codes, own in coded]
    return common, union


def _factorize(column: pd.Series) -> tuple[np.ndarray, pd.Index]:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy(), column.cat.categories.astype(object)
    values = column.astype(object)
    if pd.api.types.infer_dtype(values, skipna=True) == "string":
        # Not by pandas, to which lone surrogates are now equal, now different.
        places: dict[str, int] = {}
        codes = np.full(len(values), -1)
        present = values.notna().to_numpy()
        codes[present] = [places.setdefault(x, len(places)) for x in values[present]]
        return codes, pd.Index(list(places), dtype=object)
    try:
        codes, levels = pd.factorize(values)
    except TypeError:  # no hash
        raise TypeError(
            f"Column {column.name!r} has values, such as lists, that no metric can "
            "compare. Leave it out, or turn it into texts."
        ) from None
    return codes, pd.Index(levels, dtype=object)


def comparable_codes(
    real: pd.Series, synthetic: pd.Series
) -> tuple[list[np.ndarray], pd.Index]:
    """Encode two columns by the same codes, unless only one of them holds strings.

    Returns
    -------
    codes, levels
        As in `common_codes`.

    Raises
    ------
    ValueError
        If one column holds only strings and the other none.
    """
    codes, levels = common_codes(real, synthetic)
    is_string = np.array([isinstance(level, str) for level in levels], dtype=bool)
    shares = [is_string[each[each >= 0]].mean() for each in codes if (each >= 0).any()]
    if sorted(shares) == [0.0, 1.0]:
        raise ValueError(
            f"Column {real.name!r} holds strings in one table and none in the other; "
            f"its dtypes are {real.dtype} and {synthetic.dtype}."
        )
    return codes, levels


def comparable(
    real: pd.Series, synthetic: pd.Series
) -> tuple[list[np.ndarray], pd.Index | None]:
    """Read a column of two tables: as numbers if the real one is numeric, or by level.

    Returns
    -------
    values : list of two ndarrays
        As of `as_floats`, from one origin, where `levels` is None, else as of
        `comparable_codes`.
    levels : Index or None
        Levels of a nominal column.

    Raises
    ------
    ValueError
        If one column holds numbers and the other does not, or one only strings and
        the other none.
    """
    if is_number(real):
        origin = origin_of(real)
        return [as_floats(real, origin), as_floats(synthetic, origin)], None
    return comparable_codes(real, synthetic)
