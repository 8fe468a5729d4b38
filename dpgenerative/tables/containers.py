"""Tables of any library as pandas frames, and samples in the container fitted."""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from dpgenerative.exceptions import UnsupportedColumnError
from dpgenerative.tables import arrow
from dpgenerative.tables.arrow import Written
from dpgenerative.tables.rows import Rows


def plain(value: Any) -> str | bool | int | float | None:
    """Return text, a truth value or a number as Python's own; None for all else.

    Decided by an object's real type and read by the methods of the built-in type that
    it derives from: objects of private rows may misreport their class, and methods of
    their own may raise.
    """
    kind = type(value)
    if issubclass(kind, str):
        return str.__str__(value)
    if kind is bool:
        return bool(value)
    if issubclass(kind, int):
        return int.__int__(value)
    if issubclass(kind, float):
        return float.__float__(value)
    if issubclass(kind, np.longdouble):
        with np.errstate(over="ignore"):
            return float(np.longdouble.__float__(value))
    is_time = issubclass(kind, np.timedelta64)  # an integer, by numpy's account
    if issubclass(kind, (np.bool_, np.integer, np.floating)) and not is_time:
        return plain(np.generic.item(value))
    return None


def objects(values: Iterable[Any]) -> np.ndarray:
    """Return an array of objects as they are, without calling their methods."""
    return np.fromiter(values, dtype=object)


COARSE = ("Y", "M", "W", "D", "h", "m")
"""Time units of numpy that are coarser than those of pandas."""


@dataclass(frozen=True)
class TableFormat:
    """The public layout of what was fitted, in which samples are returned.

    Attributes
    ----------
    x_names : tuple of hashable
        Columns of X inside the joint table.
    y_name : hashable or None
        Column of y; None where there is none.
    x_kind, y_kind : str
        Container of X and of y: "frame", "array" or "series", of another library than
        pandas after its name ("polars frame").
    x_dtype : dtype or None
        Common dtype of an array (object for strings, whatever their width).
    y_label : hashable
        Name of a series or of the one column of a frame.
    ids : tuple of (name, dtype)
        Columns that are not learned: identifiers are made anew, others computed.
    written : tuple of (name, str)
        Types of text that other libraries have and pandas has not.
    sequences : Sequences, optional
        What is public of linked rows.
    unit_dtype : dtype, optional
        Of their persons' key.
    people : tuple of hashable
        Columns of a table of people that came beside that of their rows.
    """

    x_names: tuple[Hashable, ...]
    y_name: Hashable | None
    x_kind: str
    y_kind: str
    x_dtype: Any = None
    y_label: Hashable = None
    ids: tuple[tuple[Hashable, Any], ...] = ()
    written: Written = ()
    sequences: Any = None
    unit_dtype: Any = None
    people: tuple[Hashable, ...] = ()

    @property
    def is_named(self) -> bool:
        """Whether the columns of X had names of their own."""
        return self.x_kind != "array"

    def restore(self, frame: pd.DataFrame) -> Any:
        """Return sampled rows in the containers that were fitted."""
        x: Any = select_columns(frame, self.x_names)
        if self.people:
            kind = self.x_kind, self.written
            return tuple(arrow.to_container(each, *kind) for each in self.pair_of(x))
        if self.is_named:
            x = arrow.to_container(x, self.x_kind, self.written)
        else:
            x = x.to_numpy(dtype=self.x_dtype)
        if self.y_name is None:
            return x
        y: Any = frame[self.y_name].rename(self.y_label)
        if self.y_kind == "array":
            return x, y.to_numpy()
        written = [(self.y_label, text) for n, text in self.written if n == self.y_name]
        y = y if self.y_kind.endswith("series") else y.to_frame()
        return x, arrow.to_container(y, self.y_kind, tuple(written))

    def pair_of(self, rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return people, and rows without what is said of people."""
        unit = self.sequences.unit
        people = select_columns(rows, self.people).drop_duplicates(unit)
        own = [n for n in self.x_names if n == unit or n not in self.people]
        return people.reset_index(drop=True), select_columns(rows, own)


def labels(names: Sequence[Hashable]) -> pd.Index:
    """Return names as an index, without converting any to the type of another."""
    index = pd.Index(objects(names), dtype=object, tupleize_cols=False)
    is_mixed = pd.api.types.infer_dtype(index, skipna=False).startswith("mixed")
    try:
        return index if is_mixed else index.infer_objects()
    except UnicodeEncodeError:  # Arrow, by pandas 3, has no lone surrogates
        return index


def select_columns(frame: Any, names: Sequence[Hashable]) -> Any:
    """Select columns by name, even where names are booleans."""
    if isinstance(frame, Rows):
        return frame.select(names)
    return frame.iloc[:, frame.columns.get_indexer(labels(names))]


def matched(
    owner: str, frame: pd.DataFrame, layout: TableFormat, fitted: TableFormat
) -> pd.DataFrame:
    """Return the columns of X in the order that was fitted; refuse others."""
    names = layout.x_names
    if layout.is_named and fitted.is_named:
        unseen = [c for c in names if c not in fitted.x_names]
        absent = [c for c in fitted.x_names if c not in names]
        if unseen or absent:
            raise ValueError(
                f"{owner} was fitted on other columns; unseen: {unseen}, absent: "
                f"{absent}."
            )
        names = fitted.x_names
    elif len(names) != len(fitted.x_names):
        raise ValueError(
            f"X has {len(names)} features, but {owner} is expecting "
            f"{len(fitted.x_names)} features as input."
        )
    return select_columns(frame, names).set_axis(labels(fitted.x_names), axis=1)


def set_feature_names(estimator: Any, layout: Any) -> None:
    """Set the names of columns that scikit-learn knows of, where all are strings."""
    if layout.is_named and all(isinstance(c, str) for c in layout.x_names):
        estimator.feature_names_in_ = np.array(layout.x_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def table_tags(tags: Any) -> Any:
    """Return scikit-learn's tags of what takes columns of any kind."""
    for kind in ("allow_nan", "string", "categorical"):
        setattr(tags.input_tags, kind, True)
    return tags


def as_table(
    owner: str, X: Any, y: Any = None, *, allow_empty: bool = False
) -> tuple[pd.DataFrame, TableFormat]:
    """Combine X and y into one frame and remember their containers.

    Tables that speak Arrow (pyarrow, polars) become frames of Arrow's dtypes, whatever
    their values are. `Rows` stay what they are.

    Raises
    ------
    TypeError
        For sparse or complex input, or containers other than these and arrays.
    ValueError
        For anything but two dimensions, no rows, no columns, or repeated names.
    """
    arrow.refuse_unread(X)
    if sparse.issparse(X):
        raise TypeError(f"{owner} takes no sparse tables; call X.toarray() first.")
    kind, written = "frame" if isinstance(X, pd.DataFrame) else "array", Written()
    if isinstance(X, Rows):
        kind, written = X.container, X.written
    elif arrow.is_foreign(X):
        X, kind, written = arrow.from_container(owner, X)
    frame = X if isinstance(X, (pd.DataFrame, Rows)) else _array_frame(owner, X)
    _check_names(owner, frame)
    if isinstance(frame, pd.DataFrame):
        frame = arrow.decode_frame(frame)
    n_columns = len(frame.columns)
    if n_columns == 0:
        raise ValueError(
            "X has no columns: 0 feature(s) (shape=(, 0)) while a minimum of 1 is "
            f"required by {owner}."
        )
    if len(frame) == 0 and not allow_empty:
        raise ValueError(
            f"Found array with 0 sample(s) (shape={(0, n_columns)}) while a minimum of "
            f"1 is required by {owner}."
        )
    names = tuple(frame.columns)
    dtype = _array_dtype(X) if kind == "array" else None
    if y is None:
        return frame, TableFormat(names, None, kind, "", dtype, written=written)
    if isinstance(frame, Rows):
        raise TypeError(f"{owner}: of what is read by chunks, y must be a column of X.")
    series, y_kind, label, y_written = _target(owner, y, len(frame))
    y_name: Hashable = "target" if label is None else label
    while y_name in names:
        y_name = f"{y_name}_"
    joint = frame.copy(deep=False)
    joint[y_name] = series.set_axis(frame.index)
    written += tuple((y_name, text) for _, text in y_written)
    return joint, TableFormat(names, y_name, kind, y_kind, dtype, label, (), written)


def require_array(owner: str, name: str, value: Any) -> None:
    """Require a numpy array, whose dtype does not depend on its values."""
    if isinstance(value, np.ma.MaskedArray) or not isinstance(value, np.ndarray):
        kind, how = "Series", "Series(..., dtype=...)"
        if name == "X":
            kind = "DataFrame"
            how = "to_frame() of a Series, DataFrame(..., dtype=...) of lists"
        raise TypeError(
            f"{owner} takes {name} as a {kind} or numpy array; got "
            f"{type(value).__name__}. Make it one ({how}): the dtypes that anything "
            "else would get depend on its values, which are private."
        )


def _array_dtype(array: np.ndarray) -> np.dtype:
    # Fixed-width strings cannot hold a missing value, and the width is the length of
    # the longest private one. pandas reads numbers in the machine's byte order alone.
    if array.dtype.kind in "UST":
        return np.dtype(object)
    return array.dtype.newbyteorder("=")


def _array_frame(owner: str, array: Any) -> pd.DataFrame:
    require_array(owner, "X", array)
    if array.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {array.ndim}D array instead. Reshape your data: "
            f"{owner} takes a table of shape (n_samples, n_features)."
        )
    array = _readable(owner, array)
    names = [f"x{j}" for j in range(array.shape[1])]
    # With its dtype: pandas would turn objects that all are dates into dates.
    return pd.DataFrame(array, columns=names, dtype=array.dtype)


def _readable(owner: str, array: np.ndarray) -> np.ndarray:
    """Return an array in a dtype that pandas has."""
    if array.dtype.kind == "c":
        raise ValueError(f"Complex data not supported by {owner}.")
    array = array.astype(_array_dtype(array), copy=False)
    if array.dtype.kind not in "biufOmM" or array.dtype in ("m8[Y]", "m8[M]"):
        raise UnsupportedColumnError(f"{owner} cannot read arrays of {array.dtype}.")
    return _in_pandas_unit(array)


def _in_pandas_unit(array: np.ndarray) -> np.ndarray:
    """Convert times of units that pandas lacks: coarse to seconds, multiples to single.

    pandas would turn them itself, and name a time that is too far away in an error.
    """
    kind = array.dtype.kind
    if kind not in "mM":
        return array
    unit, step = np.datetime_data(array.dtype)
    if unit not in COARSE:
        most = np.iinfo(np.int64).max // step
        inside = np.clip(array, *np.array([-most, most]).view(array.dtype))
        return inside.astype(f"{kind}8[{unit}]")
    ends = ["0001-01-01", "9999-12-31"] if kind == "M" else [-(10**9), 10**9]
    inside = np.clip(array, *np.array(ends, dtype=f"{kind}8[D]").astype(array.dtype))
    return inside.astype(f"{kind}8[s]")


def _check_names(owner: str, frame: pd.DataFrame) -> None:
    if isinstance(frame.columns, pd.MultiIndex):
        raise ValueError(f"{owner} takes one level of column names; got a MultiIndex.")
    if frame.columns.hasnans:
        raise ValueError(f"{owner} needs a name for every column; one is missing.")
    arrow.require_distinct(owner, frame.columns)


def _target(owner: str, y: Any, n: int) -> tuple[pd.Series, str, Hashable, Written]:
    container, written = "", Written()
    if arrow.is_foreign(y):
        y, container, written = arrow.from_container(owner, y)
    if not isinstance(y, _COLUMNS):
        require_array(owner, "y", y)
    series = as_series(owner, y)
    if len(series) != n:
        # How many they have is private.
        raise ValueError(f"{owner}: X and y must have the same number of rows.")
    kind = "array" if isinstance(y, np.ndarray) else "series"
    kind = "frame" if isinstance(y, pd.DataFrame) else kind
    label = series.name if isinstance(y, (pd.DataFrame, pd.Series)) else None
    return series, container or kind, label, written


_COLUMNS = (pd.DataFrame, pd.Series, pd.Index, pd.api.extensions.ExtensionArray)
"""Types of columns that have a dtype of their own."""


def as_series(owner: str, y: Any) -> pd.Series:
    """Return a target as a series of the dtype that it has."""
    return arrow.decode_series(_as_series(owner, y))


def _as_series(owner: str, y: Any) -> pd.Series:
    y = arrow.in_pandas(owner, y)
    if isinstance(y, pd.Series):
        return y
    if isinstance(y, pd.DataFrame):
        if y.shape[1] != 1:
            raise ValueError(f"{owner}: y must have one column; got {y.shape[1]}.")
        return y.iloc[:, 0]
    # To unwrap an array pandas asks its objects whether they are missing.
    if isinstance(y, _COLUMNS) and not isinstance(y, pd.arrays.NumpyExtensionArray):
        return pd.Series(y, dtype=y.dtype)
    if isinstance(y, np.ma.MaskedArray):
        require_array(owner, "y", y)
    array = np.asarray(y)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        # How many rows there are is private.
        shape = f"{array.ndim} dimensions of sizes (n, {str(array.shape[1:])[1:]}"
        raise ValueError(f"{owner}: y must be one column; got {shape}.")
    array = _readable(owner, array)
    return pd.Series(array, dtype=array.dtype)


def as_container(owner: str, X: Any) -> Any:
    """Return pandas objects as they are, Arrow's tables as frames, others as arrays.

    The dtype of a list would depend on its values, which are private; so it is always
    read as floats, and what is not a number as missing.
    """
    arrow.refuse_unread(X)
    if isinstance(X, (list, tuple)):
        rows = [_entries(row) for row in X]
        if any(len(row) != len(rows[0]) for row in rows):
            raise ValueError("Expected 2D array, got rows of different lengths.")
        return np.array([[as_number(x) for x in row] for row in rows], dtype=float)
    # As an array it would get the dtype that its missing values need.
    X = arrow.in_pandas(owner, X)
    if isinstance(X, (pd.DataFrame, pd.Series, np.ndarray)):
        return X
    return np.asarray(X) if hasattr(X, "__array__") else X


def _entries(row: Any) -> list[Any]:
    """Return the entries of a list or tuple, by its type as with `plain`."""
    for kind in (list, tuple):
        if issubclass(type(row), kind):
            return list(kind.__iter__(row))
    return []


def as_number(value: Any) -> float:
    """Return a number in floating point, NaN for all that is none."""
    own = plain(value)
    if own is None or type(own) is str:
        return math.nan
    try:
        return float(own)
    except OverflowError:
        return math.inf
