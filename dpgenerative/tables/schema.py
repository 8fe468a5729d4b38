"""What is public about a table: names, kinds, bounds and levels.

A `Schema` states facts that its author vouches for *without reading the private
rows*: a code book, a data-entry form, a law. Nothing is spent on what it states; what
it leaves open (bounds or levels of ``None``) is estimated privately, inside the budget.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative._validation import check_instance, shown
from dpgenerative.tables.arrow import table_in_pandas
from dpgenerative.tables.column import Column
from dpgenerative.tables.compositions import Composition, check_apart, with_bounds
from dpgenerative.tables.conditions import alternatives
from dpgenerative.tables.constraints import Constraint, constraint_from_dict
from dpgenerative.tables.contradictions import check_possible
from dpgenerative.tables.derived import Computed, Derived, check_repairs, in_order
from dpgenerative.tables.dtypes import column_from_dtype, reconcile
from dpgenerative.tables.foreign import refuse_metadata
from dpgenerative.tables.joint import Sets, check_missing, checked_joint
from dpgenerative.tables.times import dates_among, to_units
from dpgenerative.tables.values import is_missing

OFF_STEP = "not a multiple of the resolution"
Misfits = tuple[Any, str, pd.Series]
"""A column or a constraint's columns, a problem, and the values that have it by row."""


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
    joint : iterable of sequences of hashable, optional
        Sets of two or three numeric columns with stated bounds that belong together,
        such as ``[("lat", "long")]``. Each set is learned as one column of places:
        :ref:`places`. A row in which one of them is missing counts as missing in all.

    Examples
    --------
    >>> schema = Schema([Column("age", "integer", lower=0, upper=120)])
    >>> Schema.from_dict(schema.to_dict()) == schema
    True
    """

    columns: tuple[Column, ...]
    constraints: tuple[Constraint, ...] = ()
    joint: Sets = ()

    def __init__(
        self,
        columns: Iterable[Column],
        constraints: Iterable[Constraint] = (),
        joint: Iterable[Sequence[Hashable]] = (),
    ) -> None:
        refuse_metadata("The 'columns' of Schema", columns)
        columns = _checked("columns", columns, Column)
        constraints = _checked("constraints", constraints, Constraint)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "constraints", constraints)
        names = self.names
        if repeated := sorted({str(name) for name in names if names.count(name) > 1}):
            raise ValueError(f"Schema: column names must be distinct; got {repeated}.")
        in_order(self.derived)
        check_apart(self.constraints)
        check_repairs(self.constraints)
        joint = checked_joint(joint, self.columns, self.constraints)
        object.__setattr__(self, "joint", joint)

    @property
    def names(self) -> tuple[Hashable, ...]:
        """Names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def derived(self) -> tuple[Computed, ...]:
        """The columns that are computed from others."""
        return tuple(each for each in self.constraints if isinstance(each, Computed))

    def __getitem__(self, name: Hashable) -> Column:
        return {column.name: column for column in self.columns}[name]

    def __contains__(self, name: Hashable) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __repr__(self) -> str:
        lines = "".join(f"\n    {column!r}," for column in self.columns)
        rules = "".join(f"\n    {constraint!r}," for constraint in self.constraints)
        rules = f", constraints=[{rules}\n]" if rules else ""
        joint = f", joint={list(self.joint)!r}" if self.joint else ""
        return f"Schema([{lines}\n]{rules}{joint})"

    def _repr_html_(self) -> str:
        facts = [column.to_dict() for column in self.columns]
        kinds = dict.fromkeys(key for each in facts for key in each)
        cells = [[str(each.get(key, "")) for key in kinds] for each in facts]
        table = pd.DataFrame(cells, columns=list(kinds)).to_html(index=False)
        facts_of_several = [*map(repr, self.constraints)]
        facts_of_several += [f"joint: {', '.join(map(str, x))}" for x in self.joint]
        rules = "".join(f"<li>{escape(each)}</li>" for each in facts_of_several)
        return f"{table}<ul>{rules}</ul>" if rules else table

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists, strings and numbers, fit for JSON.

        Names and levels stay what they are: JSON takes those that are text, numbers or
        booleans, and no dates or bytes.
        """
        facts: dict[str, Any] = {"columns": [each.to_dict() for each in self.columns]}
        if self.constraints:
            facts["constraints"] = [each.to_dict() for each in self.constraints]
        if self.joint:
            facts["joint"] = [list(names) for names in self.joint]
        return facts

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> "Schema":
        """Build a schema from the output of `to_dict`.

        Raises
        ------
        ValueError
            If a column's facts are unknown or contradict each other.
        """
        refuse_metadata("What Schema.from_dict is given", facts)
        is_dict = isinstance(facts, Mapping) and "columns" in facts
        is_dict = is_dict and set(facts) <= {"columns", "constraints", "joint"}
        listed = [facts[key] for key in facts if key != "joint"] if is_dict else []
        if not (is_dict and all(map(_are_mappings, listed))):
            raise ValueError(
                "Schema.from_dict takes a dictionary of 'columns' and, where there are "
                "some, 'constraints', each a list of dictionaries, and of 'joint'; got "
                f"{shown(facts)}."
            )
        fields = set(Column.__dataclass_fields__)
        for column in facts["columns"]:
            if unknown := sorted(set(column) - fields):
                raise ValueError(
                    f"Schema.from_dict: unknown facts {unknown} of the column "
                    f"{column.get('name')!r}; known are {sorted(fields)}."
                )
            if absent := sorted({"name", "kind"} - set(column)):
                raise ValueError(f"Schema.from_dict: {column} lacks {absent}.")
        return cls(
            (Column(**column) for column in facts["columns"]),
            map(constraint_from_dict, facts.get("constraints", ())),
            facts.get("joint", ()),
        )

    @classmethod
    def from_dtypes(
        cls, frame: pd.DataFrame, nominal: Iterable[Hashable] = ()
    ) -> "Schema":
        """Read what the dtypes of a table make public; no value is read.

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
        nominal, frame = set(nominal), table_in_pandas("Schema", frame)
        return cls(
            column_from_dtype(name, dtype, name in nominal)
            for name, dtype in zip(frame.columns, frame.dtypes, strict=True)
        )

    def resolve(
        self, frame: pd.DataFrame, nominal: Iterable[Hashable] = ()
    ) -> "Schema":
        """Return one column per column of `frame`: as stated here, else by dtype.

        Raises
        ------
        ValueError
            If the schema names a column that the table lacks or states a kind that
            the dtype cannot hold.
        """
        frame = table_in_pandas("Schema", frame)
        named = [*self.names, *(n for c in self.constraints for n in c.columns)]
        absent = [name for name in dict.fromkeys(named) if name not in frame.columns]
        if absent:
            raise ValueError(f"Schema names columns that the table lacks: {absent}.")
        stated = {column.name: column for column in self.columns}
        dtypes = dict(frame.dtypes.items())
        facts = {
            c.name: reconcile(stated.get(c.name, c), c, dtypes[c.name])
            for c in Schema.from_dtypes(frame, nominal).columns
        }
        facts = with_bounds(facts, self.constraints)
        for constraint in self.constraints:
            constraint.check(facts, dtypes)
        check_possible(self.constraints, facts)
        check_missing(self.joint, stated, facts)
        constraints = [each.completed(facts) for each in self.constraints]
        return Schema(facts.values(), constraints, self.joint)

    @property
    def unit(self) -> Hashable:
        """Name of the column of persons' keys, None where rows are not linked."""
        return next((c.name for c in self.columns if c.role == "unit"), None)

    @property
    def owner(self) -> Hashable:
        """Name of the column of persons' keys of whom one row is read, or None."""
        return next((c.name for c in self.columns if c.role == "owner"), None)

    def without(self, names: Collection[Hashable]) -> "Schema":
        """Return the schema of the other columns, with constraints on them alone."""
        columns = [column for column in self.columns if column.name not in names]
        rules = [c for c in self.constraints if {*names}.isdisjoint(c.columns)]
        return Schema(columns, rules, self.joint)

    @property
    def modelled(self) -> "Schema":
        """The columns that a model learns, and the constraints on them alone.

        Identifiers are made anew, and derived columns are computed.
        """
        others = {column.name for column in self.columns if column.is_key}
        others |= {each.name for each in self.derived}
        columns = [column for column in self.columns if column.name not in others]
        rules = [
            each
            for each in self.constraints
            if others.isdisjoint(each.columns) or isinstance(each, Composition)
        ]
        return Schema(columns, rules, self.joint)

    def repaired(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return sampled rows as constraints repair them, derived columns last."""
        for constraint in self.constraints:
            if constraint not in self.derived:
                frame = constraint.repair(frame)
        for each in in_order(self.derived):
            read = self._timed(frame, each.reads)
            frame = frame.copy(deep=False)
            frame[each.name] = each.compute(read)
        return frame

    def satisfied(self, frame: pd.DataFrame) -> Iterator[tuple[Constraint, np.ndarray]]:
        """Yield every constraint, and which rows satisfy it."""
        for each in self.constraints:
            is_derived = isinstance(each, Derived)
            read = self._timed(frame, each.columns) if is_derived else frame
            yield each, each.holds(read)

    def _timed(self, frame: pd.DataFrame, names: Iterable[Hashable]) -> pd.DataFrame:
        """Return some columns, with dates in a dtype of times even if all are missing.

        Objects that are all missing do not show that they are dates.
        """
        frame = frame[list(names)].copy(deep=False)
        for name in frame:
            if self[name].kind == "datetime" and frame[name].dtype == object:
                frame[name] = dates_among(frame[name])
        return frame

    @property
    def with_missing(self) -> frozenset[Hashable]:
        """Names of the columns that, by this schema, have missing values."""
        stated = {column.name for column in self.columns if column.nullable}
        conditions = [each for c in self.constraints for each in c.conditions_on()]
        return frozenset(stated) | {
            name for name, c in conditions if any(map(is_missing, alternatives(c)))
        }

    def completed(self, columns: Iterable[Column]) -> "Schema":
        """Return this schema with the columns given in place of those of their name."""
        new = {column.name: column for column in columns}
        merged = [new.get(column.name, column) for column in self.columns]
        return Schema(merged, self.constraints, self.joint)

    def check(self, frame: pd.DataFrame, cells: bool = False) -> pd.DataFrame:
        """Count the cells that this schema will change and the rows that it rules out.

        A local tool for the data owner: the result describes the private rows
        themselves and is not covered by the privacy guarantee. Do not release it.
        Values that are merely rounded to the column's resolution are not counted.

        Parameters
        ----------
        frame : DataFrame, of pandas or one that speaks Arrow
            The table that is to be fitted.
        cells : bool, default=False
            Return every offending cell instead of the counts.

        Returns
        -------
        DataFrame
            One row per column and problem: ``column``, ``problem``, ``count`` and
            ``share`` of the rows, and ``examples``, at most three different values.
            With `cells`, one row per cell: ``column``, ``row`` (the label of the
            index), ``value`` and ``problem``. For a constraint that rows break,
            ``column`` and every value are tuples.
        """
        frame = table_in_pandas("Schema", frame)
        if not isinstance(frame, pd.DataFrame):
            kind = type(frame).__name__
            raise TypeError(f"Schema.check takes a DataFrame; got a {kind}.")
        problems = [each for each in misfits(self, frame) if each[1] != OFF_STEP]
        return tabulated(problems, None if cells else len(frame))


def misfits(schema: Schema, frame: pd.DataFrame) -> Iterator[Misfits]:
    """Yield every problem that a schema has with a table, also that of rounding."""
    schema = schema.resolve(frame)
    for column in schema.columns:
        series = frame[column.name]
        for problem, mask in _problems(column, series):
            if mask.any():
                yield column.name, problem, series[mask]
    for constraint, holds in schema.satisfied(frame):
        broken = frame.loc[~holds, list(constraint.columns)]
        rows = list(broken.itertuples(index=False, name=None))
        if rows:
            values = pd.Series(rows, broken.index, dtype=object)
            yield constraint.columns, f"breaks {constraint!r}", values


def tabulated(problems: Iterable[Misfits], n_rows: int | None) -> pd.DataFrame:
    """Return counts and examples of problems in `n_rows` rows; None: every cell."""
    if n_rows is None:
        cells = [
            (n, row, x, p) for n, p, values in problems for row, x in values.items()
        ]
        return pd.DataFrame(cells, columns=["column", "row", "value", "problem"])
    counts = []
    for name, problem, values in problems:
        examples = values[~values.astype(str).duplicated()].head(3).tolist()
        counts.append((name, problem, len(values), len(values) / n_rows, examples))
    names = ["column", "problem", "count", "share", "examples"]
    return pd.DataFrame(counts, columns=names)


def check_schema(owner: str, name: str, value: object) -> None:
    """Require a Schema or None; refuse SDV's metadata with the columns to state."""
    refuse_metadata(f"The parameter {name!r} of {owner}", value)
    check_instance(owner, name, value, Schema)


def _are_mappings(each: Any) -> bool:
    return isinstance(each, list | tuple) and all(isinstance(m, Mapping) for m in each)


def _checked(field: str, given: Any, kind: type) -> tuple[Any, ...]:
    if not isinstance(given, Iterable):
        raise ValueError(
            f"Schema takes {field} as a sequence; got {type(given).__name__}."
        )
    values = tuple(given)
    for value in values:
        if not isinstance(value, kind):
            rule = f"Schema takes {field} as {kind.__name__} objects"
            raise ValueError(f"{rule}; got {shown(value)}.")
    return values


def _problems(column: Column, series: pd.Series) -> Iterator[tuple[str, np.ndarray]]:
    """Yield every kind of problem, and which cells of a column have it."""
    missing = series.isna().to_numpy(bool)
    if column.is_key:
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
        off = column.misses_step(np.where(finite, values, 0))
        yield OFF_STEP, finite & off
    elif column.levels is not None and column.other is None:
        yield "not among the levels", ~missing & ~series.isin(column.levels).to_numpy()
