"""What is public about a table: names, kinds, bounds and levels.

A `Schema` states facts that its author vouches for *without looking at the private
rows*: a code book, a data-entry form, a law. Nothing is spent on what it states; what
it leaves open (bounds or levels of ``None``) is found privately, inside the budget.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from dpgenerative.exceptions import UnsupportedColumnError

KINDS = ("continuous", "integer", "categorical", "boolean")


@dataclass(frozen=True)
class Column:
    """Public facts about one column.

    Parameters
    ----------
    name : hashable
        The column's name.
    kind : {"continuous", "integer", "categorical", "boolean"}
        How its values are read.
    lower, upper : float, optional
        Bounds of a numeric column, in data units, both or none. Values outside are
        moved to the nearest bound. None: found privately.
    levels : sequence, optional
        Levels of a categorical column, in order. Any other value becomes missing (the
        first level where the column is not nullable). None: found privately.
    ordered : bool, default=False
        Whether the levels have an order (ordinal) or not (nominal).
    nullable : bool, optional
        Whether missing values can occur. None: whatever the dtype can hold. Where
        false, a missing value is read as `lower` or as the first level.
    resolution : float, optional
        Step of a continuous column's values (0.01 for percentages with two
        decimals). Integers have resolution 1.

    Raises
    ------
    ValueError
        When the facts contradict each other.

    Examples
    --------
    >>> Column("age", "integer", lower=0, upper=120)
    Column('age', 'integer', lower=0, upper=120)
    """

    name: Hashable
    kind: str
    lower: float | None = None
    upper: float | None = None
    levels: tuple[Any, ...] | None = None
    ordered: bool = False
    nullable: bool | None = None
    resolution: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            self._refuse("kind", f"must be one of {KINDS}", self.kind)
        for field in ("name", "lower", "upper", "resolution", "nullable", "ordered"):
            object.__setattr__(self, field, _plain(getattr(self, field)))
        for field in ("lower", "upper", "resolution"):
            value = getattr(self, field)
            if value is not None and not isinstance(value, (int, float)):
                self._refuse(field, "must be a number or None", value)
        if self.levels is not None:
            self._check_levels(self.levels)
        if self.numeric:
            self._check_numeric()
        else:
            self._check_categorical()

    @property
    def numeric(self) -> bool:
        """Whether values are numbers on a line."""
        return self.kind in ("continuous", "integer")

    @property
    def step(self) -> float | None:
        """Spacing of a numeric column's values; None for a continuum."""
        return 1.0 if self.kind == "integer" else self.resolution

    @property
    def is_ordered(self) -> bool:
        """Whether cells of this column come in a meaningful order."""
        return self.numeric or self.ordered

    def _refuse(self, field: str, rule: str, value: object) -> NoReturn:
        raise ValueError(f"Column {self.name!r}: {field} {rule}; got {value!r}.")

    def _check_numeric(self) -> None:
        if self.levels is not None or self.ordered:
            self._refuse("levels and ordered", "belong to categorical columns", self)
        if (self.lower is None) != (self.upper is None):
            self._refuse("lower and upper", "come together", (self.lower, self.upper))
        if self.lower is not None and self.upper is not None:
            if not (math.isfinite(self.lower) and math.isfinite(self.upper)):
                self._refuse("bounds", "must be finite", (self.lower, self.upper))
            if self.lower > self.upper:
                self._refuse("lower", "must not exceed upper", (self.lower, self.upper))
            step = self.step
            if step and step > 0:
                first = math.ceil(self.lower / step - 1e-6)
                if first > math.floor(self.upper / step + 1e-6):
                    rule = f"hold no multiple of {step:g} between them"
                    self._refuse("bounds", rule, (self.lower, self.upper))
        if self.resolution is not None:
            if self.kind == "integer":
                self._refuse("resolution", "is 1 for integers", self.resolution)
            if not 1e-30 <= self.resolution <= 1e30:
                self._refuse("resolution", "must lie in [1e-30, 1e30]", self.resolution)

    def _check_levels(self, given: object) -> None:
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            self._refuse("levels", "must be a sequence of values", given)
        levels = tuple(_plain(level) for level in given)
        if not all(isinstance(level, Hashable) for level in levels):
            self._refuse("levels", "must be hashable values", levels)
        object.__setattr__(self, "levels", levels)

    def _check_categorical(self) -> None:
        numeric_facts = (self.lower, self.upper, self.resolution)
        if any(fact is not None for fact in numeric_facts):
            self._refuse("bounds and resolution", "belong to numbers", numeric_facts)
        if self.kind == "boolean" and self.levels is None:
            object.__setattr__(self, "levels", (False, True))
        if self.levels is not None:
            if not self.levels:
                self._refuse("levels", "must not be empty", self.levels)
            # 1, 1.0 and True are equal, and may all be levels of an object column.
            kinds = {(type(level).__name__, level) for level in self.levels}
            if len(kinds) != len(self.levels):
                self._refuse("levels", "must be distinct", self.levels)
            if any(_is_missing(level) for level in self.levels):
                self._refuse("levels", "must not hold missing values", self.levels)
        elif self.ordered:
            self._refuse("ordered", "needs levels", self.ordered)

    def __repr__(self) -> str:
        facts = [repr(self.name), repr(self.kind)]
        for field, value in list(asdict(self).items())[2:]:
            if value is None or value is False and field == "ordered":
                continue
            if field == "levels" and self.kind == "boolean":
                continue
            if field == "levels" and len(value) > 6:
                value = f"<{len(value)} levels>"
                facts.append(f"{field}={value}")
            else:
                facts.append(f"{field}={value!r}")
        return f"Column({', '.join(facts)})"


@dataclass(frozen=True)
class Schema:
    """Public facts about a table, one `Column` per column described.

    Columns of the table that the schema leaves out are read by their dtype.

    Parameters
    ----------
    columns : iterable of Column
        In any order; names must be distinct.

    Examples
    --------
    >>> schema = Schema([Column("age", "integer", lower=0, upper=120)])
    >>> Schema.from_dict(schema.to_dict()) == schema
    True
    """

    columns: tuple[Column, ...]

    def __init__(self, columns: Iterable[Column]) -> None:
        columns = tuple(columns)
        for column in columns:
            if not isinstance(column, Column):
                raise ValueError(f"Schema takes Column objects; got {column!r}.")
        names = [column.name for column in columns]
        repeated = sorted({str(name) for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"Schema: column names must be distinct; got {repeated}.")
        object.__setattr__(self, "columns", columns)

    @property
    def names(self) -> tuple[Hashable, ...]:
        """Names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    def __getitem__(self, name: Hashable) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def __contains__(self, name: Hashable) -> bool:
        return name in self.names

    def __len__(self) -> int:
        return len(self.columns)

    def __repr__(self) -> str:
        lines = "".join(f"\n    {column!r}," for column in self.columns)
        return f"Schema([{lines}\n])"

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists, strings and numbers, fit for JSON."""
        return {"columns": [_column_to_dict(column) for column in self.columns]}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Schema:
        """Build a schema from the output of `to_dict`.

        Raises
        ------
        ValueError
            When a column's facts are unknown or contradict each other.
        """
        if set(facts) != {"columns"}:
            raise ValueError(f"Schema.from_dict needs the key 'columns'; got {facts}.")
        fields = set(Column.__dataclass_fields__)
        for column in facts["columns"]:
            unknown = sorted(set(column) - fields)
            if unknown:
                raise ValueError(f"Schema.from_dict: unknown facts {unknown}.")
            absent = sorted({"name", "kind"} - set(column))
            if absent:
                raise ValueError(f"Schema.from_dict: {column} lacks {absent}.")
        return cls(Column(**column) for column in facts["columns"])

    @classmethod
    def from_dtypes(
        cls, frame: pd.DataFrame, nominal: Iterable[Hashable] = ()
    ) -> Schema:
        """Read what the dtypes of a table make public; no value is looked at.

        Parameters
        ----------
        frame : DataFrame
            Only its column names and dtypes are used.
        nominal : iterable of hashable
            Names of columns to treat as categorical whatever their dtype.

        Raises
        ------
        UnsupportedColumnError
            For a dtype that is not boolean, integer, float, string, object or category.
        """
        nominal = set(nominal)
        return cls(
            _column_from_dtype(name, dtype, name in nominal)
            for name, dtype in zip(frame.columns, frame.dtypes, strict=True)
        )

    def resolve(self, frame: pd.DataFrame, nominal: Iterable[Hashable] = ()) -> Schema:
        """Return one column per column of `frame`: as stated here, else by dtype.

        Raises
        ------
        ValueError
            When the schema names a column that the table lacks or states a kind that
            the dtype cannot hold.
        """
        absent = [name for name in self.names if name not in frame.columns]
        if absent:
            raise ValueError(f"Schema names columns that the table lacks: {absent}.")
        resolved = []
        for column in Schema.from_dtypes(frame, nominal).columns:
            if column.name in self:
                dtype = frame[column.name].dtype
                column = _reconcile(self[column.name], column, dtype)
            resolved.append(column)
        return Schema(resolved)

    def check(self, frame: pd.DataFrame) -> pd.DataFrame:
        """List the cells of a table that this schema will change.

        For the data owner's eyes: the answer describes the rows themselves and lies
        outside the privacy guarantee. Do not release it.

        Parameters
        ----------
        frame : DataFrame
            The table that is to be fitted.

        Returns
        -------
        DataFrame
            One row per offending cell, with columns ``column``, ``row`` (the label of
            the index), ``value`` and ``problem``.
        """
        found = []
        for column in self.resolve(frame).columns:
            series = frame[column.name]
            for problem, mask in _problems(column, series):
                for row in np.flatnonzero(mask):
                    value = series.iloc[row]
                    found.append((column.name, series.index[row], value, problem))
        return pd.DataFrame(found, columns=["column", "row", "value", "problem"])


def _is_missing(value: object) -> bool:
    return value is None or value is pd.NA or value is pd.NaT or value != value


def _column_to_dict(column: Column) -> dict[str, Any]:
    facts = {key: value for key, value in asdict(column).items() if value is not None}
    if column.levels is not None:
        facts["levels"] = [_plain(level) for level in column.levels]
    facts["name"] = _plain(facts["name"])
    if not column.ordered:
        del facts["ordered"]
    return facts


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _column_from_dtype(name: Hashable, dtype: Any, nominal: bool) -> Column:
    nullable = can_hold_missing(dtype)
    if isinstance(dtype, pd.SparseDtype):
        raise _unsupported(name, dtype)
    if isinstance(dtype, pd.CategoricalDtype):
        # A level list is public by declaration; an empty one leaves only 'missing'.
        levels = tuple(dtype.categories) or ("",)
        ordered = bool(dtype.ordered)
        return Column(
            name, "categorical", levels=levels, ordered=ordered, nullable=True
        )
    if pd.api.types.is_bool_dtype(dtype):
        return Column(name, "boolean", nullable=nullable)
    if pd.api.types.is_object_dtype(dtype) or pd.api.types.is_string_dtype(dtype):
        return Column(name, "categorical", nullable=True)
    if is_real_dtype(dtype):
        if nominal:
            return Column(name, "categorical", nullable=nullable)
        is_integer = pd.api.types.is_integer_dtype(dtype)
        kind = "integer" if is_integer else "continuous"
        return Column(name, kind, nullable=nullable)
    raise _unsupported(name, dtype)


def _unsupported(name: Hashable, dtype: Any) -> UnsupportedColumnError:
    return UnsupportedColumnError(
        f"Column {name!r} has dtype {dtype}, which no release covers. Supported: "
        "boolean, integer, float, string, object and category. Turn it into one of "
        "these before fitting."
    )


def is_real_dtype(dtype: Any) -> bool:
    """Whether a dtype holds integers or floats."""
    types = pd.api.types
    if isinstance(dtype, pd.SparseDtype) or types.is_complex_dtype(dtype):
        return False
    return bool(types.is_integer_dtype(dtype) or types.is_float_dtype(dtype))


def can_hold_missing(dtype: Any) -> bool:
    """Whether a series of this dtype can hold a missing value: a public fact."""
    if isinstance(dtype, np.dtype):
        return dtype.kind not in "biu"
    return True


def _reconcile(stated: Column, by_dtype: Column, dtype: Any) -> Column:
    """Complete what the schema states with what the dtype makes public."""
    if stated.numeric and not by_dtype.numeric and not is_real_dtype(dtype):
        raise ValueError(
            f"Column {stated.name!r}: the schema says {stated.kind}, but its dtype "
            f"{dtype} holds no numbers. Convert the column, or state another kind."
        )
    levels = stated.levels
    if levels is None and stated.kind == "categorical":
        levels = by_dtype.levels
    unfit = [level for level in levels or () if not _can_hold(dtype, level)]
    if unfit:
        raise ValueError(
            f"Column {stated.name!r}: its dtype {dtype} cannot hold the levels "
            f"{unfit}. Convert the column, or state other levels."
        )
    holds_missing = can_hold_missing(dtype)
    nullable = holds_missing if stated.nullable is None else stated.nullable
    return replace(stated, levels=levels, nullable=nullable and holds_missing)


def _can_hold(dtype: Any, level: Any) -> bool:
    """Whether a level survives in a series of this dtype; only numbers can fail."""
    if not (is_real_dtype(dtype) or pd.api.types.is_bool_dtype(dtype)):
        return True
    if not isinstance(level, (bool, int, float)):
        return False
    try:
        return bool(pd.Series([level]).astype(dtype).iloc[0] == level)
    except (TypeError, ValueError, OverflowError):
        return False


def _problems(column: Column, series: pd.Series) -> Iterable[tuple[str, np.ndarray]]:
    missing = series.isna().to_numpy(bool)
    if not column.nullable:
        yield "missing in a column that is not nullable", missing
    if column.numeric:
        values = series.to_numpy(float, na_value=np.nan)
        yield "not finite", np.isinf(values)
        if column.lower is not None:
            yield "below the lower bound", np.isfinite(values) & (values < column.lower)
            yield "above the upper bound", np.isfinite(values) & (values > column.upper)
        if column.step is not None:
            finite = np.isfinite(values)
            steps = np.where(finite, values, 0) / column.step
            off = np.abs(steps - np.round(steps)) > 1e-6
            yield "not a multiple of the resolution", finite & off
    elif column.levels is not None:
        yield "not among the levels", ~missing & ~series.isin(column.levels).to_numpy()
