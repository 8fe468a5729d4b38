"""Linked rows: several rows of one person, in order, as one record.

A person's rows are learned as *steps*: one of the rows, how many there are, its place
among them, what the row before holds, and the means of all before. Of every person one
step is read, so that a person is one row of a table, whatever the number of their rows.
New people are drawn step by step (`grown`), each given the steps before it.

Formal guarantee: `Sequences.steps` maps the rows of each person to one row, by these
rows and their key alone. So adding or removing a person, with all of their rows, adds
or removes one row of what it returns. Which step is read follows from a hash of the
key; rows beyond the first `most` in order, and rows without a key, are left out.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from numbers import Number
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from dpgenerative._validation import refuse
from dpgenerative.tables.column import Column
from dpgenerative.tables.conditions import on_line, satisfies
from dpgenerative.tables.constraints import Constraint, Facts, LessEqual, builtin
from dpgenerative.tables.containers import objects, plain, select_columns
from dpgenerative.tables.rows import Rows, in_memory
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.values import holds_objects

NUMBER, PLACE = "rows of a person", "place of a row"
BEFORE, MEAN = "{} (row before)", "{} (mean before)"
"""Names of what is learned besides the columns."""


@builtin
@dataclass(frozen=True)
class NoReturnAfter(Constraint):
    """No row of a person follows one that has a value: the dead have no more visits.

    It speaks of linked rows (:doc:`/persons`); a row by itself satisfies it.

    Parameters
    ----------
    name : hashable
        Name of a column that varies within people.
    condition : value, list of values, or interval, default=True
        Values with which a person's rows end (`tables.conditions`).

    Examples
    --------
    >>> NoReturnAfter("outcome", ["died", "moved away"]).columns
    ('outcome',)
    """

    takes_times: ClassVar[bool] = True

    name: Hashable
    condition: Any = True

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return (self.name,)

    def conditions_on(self) -> Iterator[tuple[Hashable, Any]]:
        yield self.name, self.condition

    def check(self, facts: Facts, dtypes: Mapping[Hashable, Any]) -> None:
        super().check(facts, dtypes)
        is_linked = any(column.role == "unit" for column in facts.values())
        if not is_linked or facts[self.name].per_unit:
            rule = "needs linked rows, and a column that varies within people"
            raise ValueError(f"{self!r} {rule}.")

    def holds(self, frame: pd.DataFrame) -> np.ndarray:
        if PLACE not in frame:
            return np.ones(len(frame), bool)
        ends = np.asarray(satisfies(frame[self.name], self.condition))
        return ~ends | (frame[PLACE] == frame[NUMBER]).to_numpy(bool)


@dataclass(frozen=True)
class Sequences:
    """What is public of a table with several rows per person.

    Attributes
    ----------
    unit : hashable
        Column of the person's key.
    order : hashable, optional
        Column by which a person's rows are ordered; None keeps them as they come.
    fixed : tuple of hashable
        Columns of which a person has one value: that of their first row.
    varying : tuple of hashable
        The other columns that are learned, with `order`.
    most : int
        Rows of a person that are read.
    schema : Schema
        What is learned of a step, in the model's order.
    """

    unit: Hashable
    order: Hashable | None
    fixed: tuple[Hashable, ...]
    varying: tuple[Hashable, ...]
    most: int
    schema: Schema

    @classmethod
    def of(cls, owner: str, schema: Schema, most: int) -> Self:
        """Return what a resolved schema says of linked rows.

        Raises
        ------
        ValueError
            For what cannot be learned of them.
        """
        if most < 2:
            rule = 'must be 2 or more with a column of role="unit"'
            refuse(owner, "max_rows_per_unit", rule, most)
        units = [c.name for c in schema if c.role == "unit"]
        orders = [c.name for c in schema if c.role == "order"]
        learned = schema.modelled
        fixed = tuple(c.name for c in learned if c.per_unit)
        varying = tuple(c.name for c in learned if not c.per_unit)
        reserved = {NUMBER, PLACE} & set(schema.names)
        problems = {
            "one column of role unit": len(units) > 1,
            "no column of role owner": schema.owner is not None,
            "one column of role order": len(orders) > 1,
            "a column that varies within a person": not varying,
            "no columns that are learned together (joint)": len(schema.joint) > 0,
            f"no column named {NUMBER!r} or {PLACE!r}": bool(reserved),
        }
        if broken := [rule for rule, is_broken in problems.items() if is_broken]:
            raise ValueError(f"{owner}: linked rows need {broken[0]}.")
        order = orders[0] if orders else None
        steps = _steps(learned, order, fixed, varying, most)
        return cls(units[0], order, fixed, varying, most, steps)

    @property
    def means(self) -> dict[Hashable, Hashable]:
        """Columns of numbers, by the name of their mean before."""
        return {
            MEAN.format(name): name
            for name in self.varying
            if _has_mean(self.schema[name])
        }

    @property
    def before(self) -> dict[Hashable, Hashable]:
        """Columns by the name of their value in the row before."""
        return {BEFORE.format(name): name for name in self.varying}

    @property
    def given(self) -> tuple[Hashable, ...]:
        """What is known of a step, besides the person, when it is drawn."""
        return (PLACE, *self.before, *self.means)

    # Rows to steps --------------------------------------------------------------

    def steps(self, frame: pd.DataFrame | Rows) -> pd.DataFrame:
        """Return one step of every person: private.

        Parameters
        ----------
        frame : DataFrame or Rows
            Of what is read by chunks, a column is in memory at a time, and the key.

        Returns
        -------
        DataFrame
            One row per person, of the columns of `schema`.
        """
        read = _reader(frame)
        persons, keys = _persons(read(self.unit))
        places = np.flatnonzero(persons >= 0)
        by = [persons[places]]
        if self.order is not None:
            by.insert(0, on_line(read(self.order).iloc[places]))
        places = places[np.lexsort([places, *by])]
        sizes = np.bincount(persons[places], minlength=len(keys))
        first = np.cumsum(sizes) - sizes
        sizes = np.minimum(sizes, self.most)
        chosen = (_hashed(keys) % np.maximum(sizes, 1).astype(np.uint64)).astype(int)
        now, begin = places[first + chosen], places[first]
        table: dict[Hashable, Any] = {NUMBER: sizes, PLACE: chosen + 1}
        for name in self.fixed:
            table[name] = _values_at(read(name), begin)
        previous = places[first + np.maximum(chosen, 1) - 1]
        for named, name in self.before.items():
            column = read(name)
            before = _values_at(column, previous)
            table[named] = _missing_where(before, chosen == 0)
            if _has_mean(self.schema[name]):
                values = _finite(column.iloc[places], self.schema[name])
                table[MEAN.format(name)] = _means(values, first, chosen)
            table[name] = _values_at(column, now)
        return pd.DataFrame(table, index=range(len(keys)))[list(self.schema.names)]

    # Steps to rows --------------------------------------------------------------

    def grown(
        self,
        people: pd.DataFrame,
        complete: Callable[[pd.DataFrame], pd.DataFrame],
        past: pd.DataFrame | None = None,
    ) -> pd.DataFrame:
        """Return the rows of people, who are numbered in `unit` from 0 on.

        Parameters
        ----------
        people : DataFrame of n people
            A step of each. Only columns `fixed` and the number of rows matter.
        complete : callable
            Draws the rest of steps that are given in part, and leaves out those that
            have none: the row before was the person's last one.
        past : DataFrame, optional
            First rows of people, with their places; `unit` holds the people's numbers.

        Returns
        -------
        DataFrame
            Columns `unit`, `fixed` and `varying`; a person's rows follow each other.
            Without those of the past.
        """
        persons = people[[*self.fixed, NUMBER]].reset_index(drop=True)
        blank, before = people.iloc[:0].reset_index(drop=True), self.before
        totals = {name: np.zeros((2, len(persons))) for name in self.means.values()}
        nothing = np.ones(len(persons), bool)
        now: Any = {x: _missing_where(people[y], nothing) for y, x in before.items()}
        made = [blank]
        ids, n_past = persons.index, np.zeros(len(persons), int)
        if past is not None:
            n_past = np.bincount(past[self.unit], minlength=len(persons))
        for place in range(1, self.most + 1):
            ids = ids[persons[NUMBER][ids] >= place]
            if not len(ids):
                break
            given = persons.loc[ids[n_past[ids] < place]].assign(**{PLACE: place})
            for named, name in before.items():
                given[named] = now[name].reindex(given.index)
            for named, name in self.means.items():
                sums, counts = totals[name][:, given.index]
                with np.errstate(invalid="ignore"):
                    given[named] = sums / counts
            now = complete(given) if len(given) else blank
            made.append(now)
            if past is not None and (past[PLACE] == place).any():
                old = past[past[PLACE] == place].set_index(self.unit).rename_axis(None)
                now = pd.concat([old, now]) if len(now) else old
            ids = now.index
            for name, total in totals.items():
                values = _finite(now[name], self.schema[name])
                total[:, ids] += np.nan_to_num(values), ~np.isnan(values)
        whole = pd.concat([part for part in made if len(part)] or made)
        whole[self.unit] = whole.index
        whole = whole.sort_values([self.unit, PLACE], ignore_index=True)
        return select_columns(whole, [self.unit, *self.fixed, *self.varying])


def one_row_each(frame: pd.DataFrame | Rows, owner: Hashable) -> pd.DataFrame:
    """Return one row of every person, without their key: private.

    Which one follows from a hash of the key; rows without a key are left out. So adding
    or removing a person, with all of their rows, adds or removes one row.
    """
    names, read = [n for n in frame.columns if n != owner], _reader(frame)
    persons, keys = _persons(read(owner))
    order = np.argsort(persons, kind="stable")
    sizes = np.bincount(persons[persons >= 0], minlength=len(keys))
    first = len(persons) - sizes.sum() + np.cumsum(sizes) - sizes
    now = order[first + (_hashed(keys) % sizes.astype(np.uint64)).astype(int)]
    table = {name: _values_at(read(name), now) for name in names}
    return pd.DataFrame(table, index=range(len(keys)))


def _reader(frame: pd.DataFrame | Rows) -> Callable[[Hashable], pd.Series]:
    """Return what reads a column of a table when it is asked for."""
    if isinstance(frame, Rows) and frame.is_ordered:
        return lambda name: frame.select([name]).whole()[name]
    return in_memory(frame).__getitem__


def people_redrawn(
    persons: np.ndarray, n: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return n people drawn with replacement: places of their rows, and new numbers.

    Parameters
    ----------
    persons : ndarray of int
        The number of each row's person, from 0 on.
    n : int
    rng : Generator
    """
    order, sizes = np.argsort(persons, kind="stable"), np.bincount(persons)
    chosen = rng.integers(0, len(sizes), n)
    first, lengths = (np.cumsum(sizes) - sizes)[chosen], sizes[chosen]
    starts = np.repeat(first - (np.cumsum(lengths) - lengths), lengths)
    return order[starts + np.arange(len(starts))], np.repeat(np.arange(n), lengths)


def one_table(data: Any, unit: Hashable) -> Any:
    """Return people and their rows as one table, and all else as it is."""
    if not (isinstance(data, tuple) and len(data) == 2 and unit is not None):
        return data
    people, rows = data
    return merged(people, rows, unit)


def merged(people: pd.DataFrame, rows: pd.DataFrame, unit: Hashable) -> pd.DataFrame:
    """Return rows with what the first row of their person in `people` says: private.

    Rows of nobody there are left out. Which rows of a person these are, and what they
    say, depends on the person's rows in both tables alone.
    """
    keys = pd.concat([people[unit], rows[unit]], ignore_index=True)
    persons = _persons(keys)[0]
    own, theirs = persons[: len(people)], persons[len(people) :]
    first = np.full(persons.max(initial=-1) + 2, -1)  # the last one is of no person
    first[own[::-1]] = np.arange(len(people))[::-1]
    first[-1] = -1
    places = first[theirs]
    here = np.flatnonzero(places >= 0)
    table = {name: _values_at(rows[name], here) for name in rows}
    others = [name for name in people if name != unit]
    table |= {name: _values_at(people[name], places[here]) for name in others}
    return pd.DataFrame(table, index=range(len(here)))


def _steps(
    learned: Schema, order: Hashable, fixed: Any, varying: Any, most: int
) -> Schema:
    """Return what is learned of a step: what is given of it comes first."""
    number = Column(NUMBER, "integer", lower=1, upper=most, nullable=False)
    columns = [*(learned[name] for name in fixed), number, replace(number, name=PLACE)]
    now = [learned[name] for name in varying]
    for each in now:
        name, cycles = BEFORE.format(each.name), () if each.kind == "datetime" else None
        before = replace(each, name=name, role=None, nullable=True, cycles=cycles)
        columns.append(before)
    for each in filter(_has_mean, now):
        name, bounds = MEAN.format(each.name), (each.lower, each.upper)
        columns.append(Column(name, "continuous", *bounds, nullable=True))
    columns += now
    constraints: list[Constraint] = list(learned.constraints)
    if order is not None:  # first: of two rules, the order is learned by this one
        constraints.insert(0, LessEqual(BEFORE.format(order), order))
    return Schema(columns, constraints)


def _has_mean(column: Column) -> bool:
    return column.numeric and not column.temporal


def _persons(series: pd.Series) -> tuple[np.ndarray, Any]:
    """Return the number of each row's person, -1 without a key, and the keys.

    Keys of objects are compared as Python does: pandas compares texts up to the first
    zero character, but only where all keys are texts.
    """
    if pd.api.types.is_float_dtype(series.dtype):
        return pd.factorize(on_line(series))
    if not holds_objects(series.dtype):
        return pd.factorize(series)
    numbers: dict[Hashable, int] = {}
    # NaN is no key: it is not equal to itself.
    persons = [
        -1 if key is None or key != key else numbers.setdefault(key, len(numbers))
        for key in map(plain, series)
    ]
    return np.array(persons, dtype=np.intp), list(numbers)


def _hashed(keys: Any) -> np.ndarray:
    """Return 64-bit numbers that follow from each key alone: equal for equal ones."""
    encoded = objects(_text(key).encode(errors="surrogatepass") for key in keys)
    return np.asarray(pd.util.hash_array(encoded, categorize=False))


def _text(key: Any) -> str:
    """Return a text that is the same in all processes, as hashes of numbers are.

    Of other objects, where their `repr` is: of bytes, dates and tuples of these.
    """
    if isinstance(key, str):
        return key
    return f"#{hash(key)}" if isinstance(key, Number) else f"#{key!r}"


def _values_at(series: pd.Series, places: np.ndarray) -> pd.Series:
    """Return the values at places, in the dtype that they have.

    From an array pandas would turn objects that all are times into times.
    """
    return series.iloc[places].reset_index(drop=True)


def _missing_where(series: pd.Series, flags: np.ndarray) -> pd.Series:
    """Return values, some of them missing, in a dtype that can hold this.

    The dtype is public: it follows from that of the values, whatever the flags.
    """
    dtype = series.iloc[:0].reset_index(drop=True).reindex([0]).dtype
    return series.reset_index(drop=True).astype(dtype).where(~flags)


def _finite(series: pd.Series, column: Column) -> np.ndarray:
    """Return numbers as floats within their bounds; NaN if missing or infinite."""
    values = series.to_numpy(float, na_value=np.nan)
    values = np.where(np.isfinite(values), values, np.nan)
    if column.lower is None:
        return values
    return np.clip(values, float(column.lower), float(column.upper))


def _means(values: np.ndarray, first: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the means of runs of values, each added up by itself; NaN of none."""
    means = np.full(len(first), np.nan)
    for k in np.unique(lengths[lengths > 0]):
        some = np.flatnonzero(lengths == k)
        runs = values[first[some, None] + np.arange(k)]
        counts = (~np.isnan(runs)).sum(axis=1)
        with np.errstate(invalid="ignore", over="ignore"):
            means[some] = np.nansum(runs, axis=1) / counts
    return means
