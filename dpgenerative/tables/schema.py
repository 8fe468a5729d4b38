"""What is public about a table: names, kinds, bounds and levels.

A `Schema` states facts that its author vouches for *without looking at the private
rows*: a code book, a data-entry form, a law. Nothing is spent on what it states; what
it leaves open (bounds or levels of ``None``) is found privately, inside the budget.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from dpgenerative.exceptions import UnsupportedColumnError
from dpgenerative.tables.arrow import in_pandas
from dpgenerative.tables.constraints import (
    Constraint,
    Impossible,
    LessEqual,
    alternatives,
    constraint_from_dict,
    is_missing,
)
from dpgenerative.tables.times import (
    PER_DAY,
    count_of,
    holds_days,
    spelled,
    temporal_kind,
    to_units,
)

KINDS = ("continuous", "integer", "categorical", "boolean", "datetime", "timedelta")
TEMPORAL = ("datetime", "timedelta")
EXAMPLES = {"datetime": "2020-01-31", "timedelta": "36h"}
DEFAULT_UNIT = "s"
"""Resolution of times where none is stated."""
OTHER = "other"
"""Level of all text that is not frequent enough to be found privately."""


@dataclass(frozen=True)
class Column:
    """Public facts about one column.

    Parameters
    ----------
    name : hashable
        The column's name.
    kind : {"continuous", "integer", "categorical", "boolean", "datetime", "timedelta"}
        How its values are read.
    lower, upper : float or time, optional
        Bounds of a column of numbers or times, in data units, both or none. Values
        outside are moved to the nearest bound. None: found privately. Bounds of
        instants are what a clock of the column's own zone shows (``"2020-01-01"``).
    levels : sequence, optional
        Levels of a categorical column, in order. Any other value becomes `other` or,
        without one, missing (the first level where the column is not nullable). None:
        found privately.
    ordered : bool, default=False
        Whether the levels have an order (ordinal) or not (nominal).
    nullable : bool, optional
        Whether missing values can occur. None: whatever the dtype can hold, unless
        the noisy count of missing values is within the noise. Where false, a missing
        value is read as `lower`, as `other` or as the first level; where true, missing
        values are sampled as often as was counted, however few.
    resolution : float or {"D", "h", "min", "s", "ms", "us"}, optional
        Step of a continuous column's values (0.01 for percentages with two
        decimals), or the unit of times, which are rounded down to it; None means
        seconds for times. Integers have resolution 1.
    role : {None, "id"}, optional
        "id" for an identifier, of kind "integer" or "categorical": it is never read
        nor learned, nothing is spent on it, and `sample` makes new ones.
    format : str, optional
        How identifiers of kind "categorical" are written: "uuid", or a format of their
        number such as ``"P{:05d}"``. None: the number alone.
    other : str, int, float or bool, optional
        Level of a nominal column that stands for every value that is no level; one
        that `levels` lacks is added to them. None: ``"other"`` for text whose levels
        are found privately, else nothing.

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
    lower: Any = None
    upper: Any = None
    levels: tuple[Any, ...] | None = None
    ordered: bool = False
    nullable: bool | None = None
    resolution: Any = None
    role: str | None = None
    format: str | None = None
    other: Any = None

    def __post_init__(self) -> None:
        if self.kind == "text":
            rule = "must not be text, which no model here can learn: drop the column, "
            self._refuse("kind", rule + "or derive levels or numbers", self.kind)
        if self.kind not in KINDS:
            self._refuse("kind", f"must be one of {KINDS}", self.kind)
        numeric = ("lower", "upper", "resolution")
        for field in ("name", *numeric, "nullable", "ordered", "other"):
            object.__setattr__(self, field, _plain(getattr(self, field)))
        if self.nullable not in (None, True, False):
            self._refuse("nullable", "must be True, False or None", self.nullable)
        if not isinstance(self.ordered, bool):
            self._refuse("ordered", "must be True or False", self.ordered)
        if self.temporal:
            self._read_times()
        for field in numeric if not self.temporal else ():
            value = getattr(self, field)
            if value is not None and not isinstance(value, (int, float)):
                self._refuse(field, "must be a number or None", value)
        self._check_role()
        self._check_other()
        if self.levels is not None:
            self._check_levels(self.levels)
        if self.numeric:
            self._check_numeric()
        else:
            self._check_categorical()

    @property
    def numeric(self) -> bool:
        """Whether values lie on a line, as numbers and times do."""
        return self.kind in ("continuous", "integer") or self.temporal

    @property
    def temporal(self) -> bool:
        """Whether values are instants or durations."""
        return self.kind in TEMPORAL

    @property
    def unit(self) -> str:
        """Unit in which times are counted."""
        return self.resolution or DEFAULT_UNIT

    @property
    def numbers(self) -> Column:
        """The column itself, or for times the one of their whole numbers of units."""
        if not self.temporal:
            return self
        lower, upper = self._counts()
        return Column(
            self.name, "integer", lower=lower, upper=upper, nullable=self.nullable
        )

    def _counts(self) -> list[int | None]:
        """Return the bounds of times in units."""
        return [
            None if end is None else count_of(end, self.kind, self.unit)
            for end in (self.lower, self.upper)
        ]

    def count(self, value: Any) -> float:
        """Return one value as a number: of units, where it is a time.

        Raises
        ------
        ValueError, TypeError
            For what is no number, or no time.
        """
        if self.temporal:
            return count_of(value, self.kind, self.unit)
        if isinstance(value, (bool, np.bool_, str)):
            raise TypeError("not a number")
        return float(value)

    def bounded(self, lower: float, upper: float) -> Column:
        """Return the column with bounds found, given in units where they are times."""
        ends: list[Any] = [lower, upper]
        if self.temporal:
            ends = [spelled(int(end), self.kind, self.unit) for end in ends]
        return replace(self, lower=ends[0], upper=ends[1])

    @property
    def step(self) -> float | None:
        """Spacing of a numeric column's values, in units; None for a continuum."""
        if self.kind == "integer" or self.temporal:
            return 1.0
        return float(self.resolution) if self.resolution else None

    @property
    def is_ordered(self) -> bool:
        """Whether cells of this column come in a meaningful order."""
        return self.numeric or self.ordered

    def _refuse(self, field: str, rule: str, value: object) -> NoReturn:
        raise ValueError(f"Column {self.name!r}: {field} {rule}; got {value!r}.")

    def _read_times(self) -> None:
        if self.resolution is not None and self.resolution not in PER_DAY:
            rule = f"must be one of {tuple(PER_DAY)} for times"
            self._refuse("resolution", rule, self.resolution)
        for field in ("lower", "upper"):
            value = getattr(self, field)
            if value is not None:
                try:
                    count = count_of(value, self.kind, self.unit)
                    text = spelled(count, self.kind, self.unit)
                except (ValueError, TypeError, OverflowError):
                    example = EXAMPLES[self.kind]
                    rule = f"must be a {self.kind} without a zone, such as {example!r}"
                    self._refuse(field, rule, value)
                object.__setattr__(self, field, text)

    def _check_other(self) -> None:
        if self.other is None:
            return
        if self.kind != "categorical" or self.ordered or self.role is not None:
            self._refuse("other", "belongs to levels without an order", self.other)
        if not isinstance(self.other, (str, int, float)) or is_missing(self.other):
            self._refuse("other", "must be text or a number", self.other)

    def _check_role(self) -> None:
        if self.role is None:
            if self.format is not None:
                self._refuse("format", 'belongs to role="id"', self.format)
            return
        if self.role != "id":
            self._refuse("role", 'must be None or "id"', self.role)
        if self.kind not in ("integer", "categorical"):
            self._refuse("role", 'needs kind "integer" or "categorical"', self.kind)
        learned = (self.lower, self.upper, self.levels, self.resolution)
        if any(fact is not None for fact in learned) or self.ordered:
            self._refuse("role", "goes with no bounds or levels", learned)
        if self.format is not None and not self._is_format():
            rule = 'must be "uuid" or a format of a number, for kind "categorical"'
            self._refuse("format", rule, self.format)

    def _is_format(self) -> bool:
        if self.kind != "categorical" or not isinstance(self.format, str):
            return False
        try:
            return self.format == "uuid" or self.format.format(1) != self.format.format(
                2
            )
        except (ValueError, IndexError, KeyError, TypeError):
            return False

    def _check_numeric(self) -> None:
        if self.levels is not None or self.ordered:
            self._refuse("levels and ordered", "belong to categorical columns", self)
        if (self.lower is None) != (self.upper is None):
            self._refuse("lower and upper", "come together", (self.lower, self.upper))
        lower, upper = self._counts() if self.temporal else (self.lower, self.upper)
        if lower is not None and upper is not None and lower > upper:
            self._refuse("lower", "must not exceed upper", (self.lower, self.upper))
        if self.temporal:
            return
        if self.lower is not None and self.upper is not None:
            if not (math.isfinite(self.lower) and math.isfinite(self.upper)):
                self._refuse("bounds", "must be finite", (self.lower, self.upper))
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
        if self.other is not None and self.other not in levels:
            levels = (*levels, self.other)
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
            if any(is_missing(level) for level in self.levels):
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
            is_long = field == "levels" and len(value) > 6
            shown = f"<{len(value)} levels>" if is_long else repr(value)
            facts.append(f"{field}={shown}")
        return f"Column({', '.join(facts)})"


@dataclass(frozen=True)
class Schema:
    """Public facts about a table, one `Column` per column described.

    Columns of the table that the schema leaves out are read by their dtype.

    Parameters
    ----------
    columns : iterable of Column
        In any order; names must be distinct.
    constraints : iterable of Constraint, optional
        Facts about several columns at once (`tables.constraints`), which every
        sampled row satisfies.

    Examples
    --------
    >>> schema = Schema([Column("age", "integer", lower=0, upper=120)])
    >>> Schema.from_dict(schema.to_dict()) == schema
    True
    """

    columns: tuple[Column, ...]
    constraints: tuple[Constraint, ...] = ()

    def __init__(
        self, columns: Iterable[Column], constraints: Iterable[Constraint] = ()
    ) -> None:
        for what, given in (("columns", columns), ("constraints", constraints)):
            if not isinstance(given, Iterable):
                raise ValueError(f"Schema takes {what} as a sequence; got {given!r}.")
        columns, constraints = tuple(columns), tuple(constraints)
        for constraint in constraints:
            if not isinstance(constraint, Constraint):
                raise ValueError(
                    f"Schema takes constraints as Constraint objects; got "
                    f"{constraint!r}."
                )
        for column in columns:
            if not isinstance(column, Column):
                raise ValueError(f"Schema takes Column objects; got {column!r}.")
        names = [column.name for column in columns]
        repeated = sorted({str(name) for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"Schema: column names must be distinct; got {repeated}.")
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "constraints", constraints)

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
        if not self.constraints:
            return f"Schema([{lines}\n])"
        rules = "".join(f"\n    {constraint!r}," for constraint in self.constraints)
        return f"Schema([{lines}\n], constraints=[{rules}\n])"

    def _repr_html_(self) -> str:
        facts = [_column_to_dict(column) for column in self.columns]
        kinds = dict.fromkeys(key for each in facts for key in each)
        cells = [[str(each.get(key, "")) for key in kinds] for each in facts]
        table = pd.DataFrame(cells, columns=list(kinds)).to_html(index=False)
        rules = "".join(f"<li>{escape(repr(each))}</li>" for each in self.constraints)
        return f"{table}<ul>{rules}</ul>" if rules else table

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists, strings and numbers, fit for JSON."""
        facts = {"columns": [_column_to_dict(column) for column in self.columns]}
        if self.constraints:
            facts["constraints"] = [each.to_dict() for each in self.constraints]
        return facts

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Schema:
        """Build a schema from the output of `to_dict`.

        Raises
        ------
        ValueError
            When a column's facts are unknown or contradict each other.
        """
        if set(facts) - {"constraints"} != {"columns"}:
            raise ValueError(f"Schema.from_dict needs the key 'columns'; got {facts}.")
        fields = set(Column.__dataclass_fields__)
        for column in facts["columns"]:
            unknown = sorted(set(column) - fields)
            if unknown:
                raise ValueError(f"Schema.from_dict: unknown facts {unknown}.")
            absent = sorted({"name", "kind"} - set(column))
            if absent:
                raise ValueError(f"Schema.from_dict: {column} lacks {absent}.")
        return cls(
            (Column(**column) for column in facts["columns"]),
            map(constraint_from_dict, facts.get("constraints", ())),
        )

    @classmethod
    def from_dtypes(
        cls, frame: pd.DataFrame, nominal: Iterable[Hashable] = ()
    ) -> Schema:
        """Read what the dtypes of a table make public; no value is looked at.

        Parameters
        ----------
        frame : DataFrame, of pandas or one that speaks Arrow
            Only its column names and dtypes are used.
        nominal : iterable of hashable
            Names of columns to treat as categorical whatever their dtype.

        Raises
        ------
        UnsupportedColumnError
            For a dtype that is not boolean, integer, float, string, object, category,
            datetime or timedelta.
        """
        nominal, frame = set(nominal), in_pandas("Schema", frame)
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
        frame = in_pandas("Schema", frame)
        named = [*self.names, *(n for c in self.constraints for n in c.columns)]
        absent = [name for name in dict.fromkeys(named) if name not in frame.columns]
        if absent:
            raise ValueError(f"Schema names columns that the table lacks: {absent}.")
        resolved = []
        for column in Schema.from_dtypes(frame, nominal).columns:
            stated = [each for each in self.columns if each.name == column.name]
            dtype = frame[column.name].dtype
            resolved.append(_reconcile((*stated, column)[0], column, dtype))
        schema = Schema(resolved, self.constraints)
        for constraint in self.constraints:
            _check_constraint(constraint, schema)
            _check_dtypes(constraint, schema, frame)
        return schema

    @property
    def modelled(self) -> Schema:
        """The columns that a model learns, all but identifiers."""
        learned = (c for c in self.columns if c.role != "id")
        return Schema(learned, self.constraints)

    @property
    def with_missing(self) -> frozenset[Hashable]:
        """Names of the columns of which it says that missing values occur."""
        stated = {column.name for column in self.columns if column.nullable}
        conditions = [each for c in self.constraints for each in c.conditions_on()]
        return frozenset(stated) | {
            name
            for name, condition in conditions
            if any(is_missing(part) for part in alternatives(condition))
        }

    def completed(self, columns: Iterable[Column]) -> Schema:
        """Return this schema with the columns given in place of those of their name."""
        found = {column.name: column for column in columns}
        merged = [found.get(column.name, column) for column in self.columns]
        return Schema(merged, self.constraints)

    def check(self, frame: pd.DataFrame) -> pd.DataFrame:
        """List the cells that this schema will change, the rows that it rules out.

        For the data owner's eyes: the answer describes the rows themselves and lies
        outside the privacy guarantee. Do not release it.

        Parameters
        ----------
        frame : DataFrame, of pandas or one that speaks Arrow
            The table that is to be fitted.

        Returns
        -------
        DataFrame
            One row per offending cell, with columns ``column``, ``row`` (the label of
            the index), ``value`` and ``problem``; for a constraint that a row breaks,
            ``column`` and ``value`` are tuples.
        """
        frame = in_pandas("Schema", frame)
        found = []
        for column in self.resolve(frame).columns:
            series = frame[column.name]
            for problem, mask in _problems(column, series):
                for row in np.flatnonzero(mask):
                    value = series.iloc[row]
                    found.append((column.name, series.index[row], value, problem))
        for constraint in self.constraints:
            for row in np.flatnonzero(~constraint.holds(frame)):
                values = tuple(frame[name].iloc[row] for name in constraint.columns)
                label, problem = frame.index[row], f"breaks {constraint!r}"
                found.append((constraint.columns, label, values, problem))
        return pd.DataFrame(found, columns=["column", "row", "value", "problem"])


def check_condition(column: Column, condition: Any) -> None:
    """Require that a condition (`tables.constraints`) can hold for a column.

    Raises
    ------
    ValueError
        For what is no level or value of the column, an interval of levels or an empty
        one, an empty list, or missing values where there are none.
    """
    parts = alternatives(condition)
    if not parts:
        _unfit(column, condition, "it lists no value")
    for part in parts:
        if isinstance(part, tuple):
            _check_interval(column, part, part)
        elif is_missing(part):
            if column.nullable is False:
                _unfit(column, condition, "the column has no missing values")
        elif column.numeric:
            _check_interval(column, (part, part), part)
            if not column.temporal and column.step is not None:
                steps = column.count(part) / column.step
                if abs(steps - round(steps)) > 1e-6:
                    step = f"{column.step:g}"
                    _unfit(column, part, f"it is no multiple of the resolution {step}")
        elif column.levels is not None and part not in column.levels:
            known = list(column.levels[:20])
            more = " and others" if len(column.levels) > 20 else ""
            _unfit(column, condition, f"{part!r} is none of its levels {known}{more}")


def _check_interval(
    column: Column, interval: tuple[Any, ...], condition: object
) -> None:
    """Require an interval; errors name the condition that it stands for."""
    if not column.numeric:
        _unfit(column, condition, "the column has levels, not intervals; list them")
    if len(interval) != 2:
        _unfit(column, condition, "an interval is a pair (low, high)")
    facts = column.numbers
    try:
        low, high = (
            math.copysign(math.inf, sign) if is_missing(end) else column.count(end)
            for sign, end in ((-1, interval[0]), (1, interval[1]))
        )
    except (ValueError, TypeError, OverflowError):
        what = "numbers only"
        if column.temporal:
            what = f"{column.kind}s only, such as {EXAMPLES[column.kind]!r}"
        _unfit(column, condition, f"the column holds {what}")
    if not low <= high:
        _unfit(column, condition, "the interval is empty")
    if facts.lower is not None and (high < facts.lower or low > facts.upper):
        bounds = f"[{column.lower}, {column.upper}]"
        _unfit(column, condition, f"it is outside the bounds {bounds}")


def _unfit(column: Column, condition: object, why: str) -> NoReturn:
    raise ValueError(
        f"The condition {condition!r} on the column {column.name!r} can never hold: "
        f"{why}."
    )


def _check_constraint(constraint: Constraint, schema: Schema) -> None:
    """Require that a constraint's columns and values are those of the schema."""
    for name in constraint.columns:
        if schema[name].role == "id":
            raise ValueError(f"{constraint!r} speaks of the identifiers {name!r}.")
        is_line = isinstance(constraint, LessEqual)
        if is_line and not schema[name].numeric:
            raise ValueError(f"{constraint!r} needs numbers or times in {name!r}.")
        if schema[name].temporal and not isinstance(
            constraint, (LessEqual, Impossible)
        ):
            raise ValueError(f"{constraint!r} takes no column of times; got {name!r}.")
    if isinstance(constraint, LessEqual):
        kinds = {
            schema[n].kind if schema[n].temporal else "" for n in constraint.columns
        }
        if len(kinds) > 1:
            raise ValueError(f"{constraint!r} compares {sorted(kinds)}.")
        _check_order(constraint, schema[constraint.low], schema[constraint.high])
    for name, condition in constraint.conditions_on():
        check_condition(schema[name], condition)


def _check_dtypes(constraint: Constraint, schema: Schema, frame: pd.DataFrame) -> None:
    """Require that columns of integers can hold what a constraint sets them to."""
    for name, value in constraint.conditions_on():
        dtype = frame[name].dtype
        is_set = name in constraint.repairs and not is_missing(value)
        is_whole = schema[name].numeric and pd.api.types.is_integer_dtype(dtype)
        if is_set and is_whole and not _can_hold(dtype, value):
            _unfit(schema[name], value, f"its dtype {dtype} cannot hold it")


def _check_order(constraint: LessEqual, low: Column, high: Column) -> None:
    if low.lower is None or high.lower is None:
        return
    first, last = low.lower, high.upper
    if low.temporal:
        first, last = (count_of(end, low.kind, "us") for end in (first, last))
    if first > last or constraint.strict and first == last:
        raise ValueError(
            f"{constraint!r} can never hold: {low.name!r} is at least {low.lower}, "
            f"{high.name!r} at most {high.upper}."
        )


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
    nullable = None if can_hold_missing(dtype) else False
    if isinstance(dtype, pd.SparseDtype):
        raise _unsupported(name, dtype)
    if isinstance(dtype, pd.CategoricalDtype):
        # A level list is public by declaration; an empty one leaves only 'missing'.
        levels = tuple(dtype.categories) or ("",)
        ordered = bool(dtype.ordered)
        return Column(name, "categorical", levels=levels, ordered=ordered)
    if pd.api.types.is_bool_dtype(dtype):
        return Column(name, "boolean", nullable=nullable)
    if pd.api.types.is_object_dtype(dtype) or pd.api.types.is_string_dtype(dtype):
        return Column(name, "categorical", other=OTHER)
    if temporal_kind(dtype) is not None and not nominal:
        unit = "D" if holds_days(dtype) else None
        return Column(name, str(temporal_kind(dtype)), resolution=unit)
    scale = decimal_scale(dtype)
    if scale is not None and not nominal:
        if scale == 0:
            return Column(name, "integer")
        step = float(f"1e{-scale}")
        return Column(name, "continuous", resolution=step)
    if scale is None and is_real_dtype(dtype):
        if nominal:
            return Column(name, "categorical", nullable=nullable)
        is_integer = pd.api.types.is_integer_dtype(dtype)
        kind = "integer" if is_integer else "continuous"
        return Column(name, kind, nullable=nullable)
    raise _unsupported(name, dtype)


def _unsupported(name: Hashable, dtype: Any) -> UnsupportedColumnError:
    return UnsupportedColumnError(
        f"Column {name!r} has dtype {dtype}, which no release covers. Supported: "
        "boolean, integer, float, decimal (not as levels), string, object, category, "
        "datetime and timedelta. Turn it into one of these before fitting."
    )


def decimal_scale(dtype: Any) -> int | None:
    """Return the number of decimals of an Arrow decimal, None for other dtypes."""
    if not isinstance(dtype, pd.ArrowDtype):
        return None
    import pyarrow as pa

    arrow = dtype.pyarrow_dtype
    return int(arrow.scale) if pa.types.is_decimal(arrow) else None


def is_real_dtype(dtype: Any) -> bool:
    """Whether a dtype holds integers, floats or decimals."""
    types = pd.api.types
    if isinstance(dtype, pd.SparseDtype) or types.is_complex_dtype(dtype):
        return False
    is_binary = types.is_integer_dtype(dtype) or types.is_float_dtype(dtype)
    return bool(is_binary or decimal_scale(dtype) is not None)


def can_hold_missing(dtype: Any) -> bool:
    """Whether a series of this dtype can hold a missing value: a public fact."""
    if isinstance(dtype, np.dtype):
        return dtype.kind not in "biu"
    return True


def _reconcile(stated: Column, by_dtype: Column, dtype: Any) -> Column:
    """Complete what the schema states with what the dtype makes public."""
    if stated.role == "id":
        return _reconcile_id(stated, by_dtype, dtype)
    held = temporal_kind(dtype) or ("numbers" if is_real_dtype(dtype) else "levels")
    if stated.temporal or held in TEMPORAL:
        among_objects = pd.api.types.is_object_dtype(dtype)
        fits = stated.kind == held or stated.kind == "datetime" and among_objects
    elif decimal_scale(dtype) is not None:
        fits = stated.numeric
    else:
        fits = not stated.numeric or held == "numbers"
    if not fits:
        what = "such times" if stated.temporal else "numbers" if stated.numeric else ""
        raise ValueError(
            f"Column {stated.name!r}: the schema says {stated.kind}, but its dtype "
            f"{dtype} holds no {what or 'levels'}. Convert the column, or state "
            "another kind."
        )
    levels, other = stated.levels, stated.other
    if levels is None and stated.kind == "categorical":
        levels = by_dtype.levels
        other = by_dtype.other if other is None else other
    named = levels or (() if other is None else (other,))
    unfit = [level for level in named if not _can_hold(dtype, level)]
    if unfit:
        raise ValueError(
            f"Column {stated.name!r}: its dtype {dtype} cannot hold the levels "
            f"{unfit}. Convert the column, or state other levels."
        )
    if isinstance(dtype, pd.CategoricalDtype) and len(set(named)) < len(named):
        raise ValueError(
            f"Column {stated.name!r}: a category dtype takes equal levels for one, as "
            "1 and True are. Convert the column to object, or state other levels."
        )
    holds_missing = can_hold_missing(dtype)
    nullable = holds_missing if stated.nullable is None else stated.nullable
    step = stated.resolution
    if step is None and stated.kind == by_dtype.kind:
        step = by_dtype.resolution
    nullable = nullable and holds_missing
    return replace(
        stated, levels=levels, nullable=nullable, resolution=step, other=other
    )


def _reconcile_id(stated: Column, by_dtype: Column, dtype: Any) -> Column:
    """Check that new identifiers can be written in the dtype."""
    is_text = by_dtype.kind == "categorical" and by_dtype.levels is None
    fits = is_real_dtype(dtype) if stated.kind == "integer" else is_text
    if not fits:
        raise ValueError(
            f"Column {stated.name!r}: identifiers of kind {stated.kind} need a dtype "
            f"of {'numbers' if stated.kind == 'integer' else 'strings'}; got {dtype}."
        )
    return replace(stated, nullable=False)


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
    if column.role == "id":
        return
    if not column.nullable:
        yield "missing in a column that is not nullable", missing
    if column.temporal:
        values = to_units(series, column.unit)
        column = column.numbers
        yield "neither a time nor text in ISO 8601", ~missing & np.isnan(values)
        if column.lower is not None:
            yield "before the lower bound", values < column.lower
            yield "after the upper bound", values > column.upper
    elif column.numeric:
        values = series.to_numpy(float, na_value=np.nan)
        finite = np.isfinite(values)
        yield "not finite", np.isinf(values)
        if column.lower is not None:
            yield "below the lower bound", finite & (values < column.lower)
            yield "above the upper bound", finite & (values > column.upper)
        if column.step is not None:
            steps = np.where(finite, values, 0) / column.step
            off = np.abs(steps - np.round(steps)) > 1e-6
            yield "not a multiple of the resolution", finite & off
    elif column.levels is not None and column.other is None:
        yield "not among the levels", ~missing & ~series.isin(column.levels).to_numpy()
