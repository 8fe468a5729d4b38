"""Columns that are never below another one, learned as their distance from it.

Two columns of one grid satisfy `LessEqual` if the second is learned as the first plus
an increment that is not negative: a stay of three days between two dates of which each
is known by its month. Which columns are learned so, and the bounds of the
increments, follow from the schema alone. Nothing is released here; the increments of
private rows are private.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative.encoding import grid
from dpgenerative.encoding.calendar import parts_of
from dpgenerative.encoding.codecs import Codec, IntervalCodec, whole_codec
from dpgenerative.encoding.nesting import Nesting
from dpgenerative.encoding.places import place_columns
from dpgenerative.encoding.stick_breaking import share_of, stick_breaks_of
from dpgenerative.encoding.values import as_numbers
from dpgenerative.tables.column import Column
from dpgenerative.tables.constraints import LessEqual
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.times import PER_DAY, from_units

WIDEST_APART = 80_000.0
"""Steps of a grid that is fine enough for distances far from increments."""

LEAST_MASS = 1e-12
"""Of cells in which no increment can lie."""

# Which columns ------------------------------------------------------------------------


def increments_of(schema: Schema) -> dict[Hashable, LessEqual]:
    """Return the constraints that hold by increments, by name of the second column.

    One per second column, the first that is stated, where a value of the first column's
    grid plus one of the second's is always on the second's. None closes a circle, none
    involves a column that another constraint repairs, and of none the bounds say that
    it holds: of a visit after a birth, an increment of decades would blur the visit.
    Where cycles of the second column are stated, these are learned in place of its
    distance.

    Parameters
    ----------
    schema : Schema
        Of a table (`Schema.resolve`).

    Returns
    -------
    dict
        First columns that are increments themselves stand before those on top of them.
    """
    rules: dict[Hashable, LessEqual] = {}
    own = distinct(schema)
    repaired = {name for each in schema.constraints for name in each.repairs}
    for each in schema.constraints:
        if (
            isinstance(each, LessEqual)
            and each.high not in rules
            and repaired.isdisjoint(each.columns)
            and _on_one_grid(schema[each.low], schema[each.high])
            and not _is_certain(each, schema)
            and not _has_cycles(each.high, own)
            and each.high not in _below(each.low, rules)
        ):
            rules[each.high] = each
    order = sorted(rules, key=lambda name: len(_below(name, rules)))
    return {name: rules[name] for name in order}


def _has_cycles(name: Hashable, schema: Schema) -> bool:
    """Return whether a column is learned by its date and cycles that are stated."""
    return bool(schema[name].cycles) and len(parts_of(schema[name])) > 1


def _is_certain(rule: LessEqual, schema: Schema) -> bool:
    """Return whether the stated bounds leave no row that breaks a rule."""
    low, high = schema[rule.low], schema[rule.high]
    if low.lower is None or high.lower is None:
        return False
    last = scale(low, high) * low.numbers.upper
    first = high.numbers.lower
    return last < first if rule.strict else last <= first


def _below(name: Hashable, rules: dict[Hashable, LessEqual]) -> list[Hashable]:
    """Return a column and those that it is learned from."""
    names = [name]
    while names[-1] in rules:
        names.append(rules[names[-1]].low)
    return names


def _on_one_grid(low: Column, high: Column) -> bool:
    if low.temporal:
        return PER_DAY[high.unit] % PER_DAY[low.unit] == 0
    if high.step is None or low.step is None:
        return high.step is None
    ratio = low.step / high.step
    return abs(ratio - round(ratio)) < 1e-9 * ratio


def scale(low: Column, high: Column) -> float:
    """Return the size of the first column's numbers in those of the second."""
    return PER_DAY[high.unit] / PER_DAY[low.unit] if low.temporal else 1.0


def learned_columns(schema: Schema) -> dict[Hashable, Column]:
    """Return every column by name as it is learned.

    Some are learned by their increments, instants by several columns, and the columns
    of a set of `joint` by one.
    """
    rules = increments_of(schema)
    columns: dict[Hashable, Column] = {}
    places = place_columns(schema)
    shares = stick_breaks_of(schema)
    for column in distinct(schema).columns:
        rule = rules.get(column.name)
        if column.name in shares:
            columns[column.name] = share_of(column)
        elif column.name in places:
            numbers = places[column.name]
            columns |= {} if numbers is None else {column.name: numbers}
        elif rule is None:
            columns.update(parts_of(column))
        else:
            low = schema[rule.low]
            columns[column.name] = increment_column(low, column, rule.strict)
    return columns


def distinct(schema: Schema) -> Schema:
    """Return a schema that splits no instants where a part has another's name."""
    names, columns = set(schema.names), []
    for column in schema.columns:
        parts = parts_of(column).keys() - {column.name}
        if not parts.isdisjoint(names):
            column = replace(column, cycles=())
        names |= parts
        columns.append(column)
    return Schema(columns, schema.constraints, schema.joint)


def increment_column(low: Column, high: Column, strict: bool) -> Column:
    """Return the column of increments of two columns.

    Bounds of numbers follow where both columns state theirs. Those of times do not:
    they span years, between which lie days.
    """
    kind = "timedelta" if high.temporal else high.kind
    column = Column(high.name, kind, nullable=high.nullable, resolution=high.resolution)
    if high.temporal or low.lower is None or high.lower is None:
        return column
    lower = max(least(high, strict), high.lower - low.upper)
    upper = max(lower, high.upper - low.lower)
    if low.nullable:
        lower = -upper - gap_of(low, high)
    return replace(column, lower=lower, upper=upper)


def least(high: Column, strict: bool) -> float:
    """Return the smallest increment."""
    return float(high.step or 0.0) if strict else 0.0


def gap_of(low: Column, high: Column) -> float:
    """Return what is between increments and distances from a lower bound.

    Of a fine grid a quarter of the span of the first column: intervals get wider away
    from 0, and those of these distances would be too unlike. Else one step.
    """
    if high.step is None:
        return 0.0
    first = low.numbers
    span = scale(low, high) * (first.upper - first.lower) / high.step
    return high.step * (1 + (span // 4 if span <= WIDEST_APART else 0))


# The columns of a table ---------------------------------------------------------------


@dataclass(frozen=True)
class Increment:
    """A column that is learned as another one plus an increment.

    Where the other is missing, the distance from its lower bound is learned, as a
    negative number, so that it has cells of its own.

    Attributes
    ----------
    low : Column
        The column below, completed by released bounds.
    whole : IntervalCodec
        The column itself, in one cell.
    least : float
        The smallest increment.
    reach : tuple of float, optional
        Released bounds of what is learned; None where distances are positive, as in
        files of formats up to 3.
    """

    low: Column
    whole: IntervalCodec
    least: float
    reach: tuple[float, float] | None = None

    @classmethod
    def fitted(cls, low: Column, high: Column, dtype: Any, strict: bool) -> "Increment":
        """Return the rule for columns of which the second may have open bounds."""
        whole, reach = whole_codec(high, dtype), (-np.inf, np.inf)
        return cls(low, whole, least(high, strict), reach if low.nullable else None)

    @property
    def name(self) -> Hashable:
        """Name of the column."""
        return self.whole.column.name

    @property
    def bases(self) -> tuple[Hashable, ...]:
        """Names of the columns on which it is built."""
        return (self.low.name,)

    @property
    def invertible(self) -> bool:
        """Whether the column less an increment is on the grid of the one below."""
        high = self.whole.column
        return scale(self.low, high) == 1 and self.low.step == high.step

    @property
    def dtype(self) -> Any:
        """Dtype of the increments."""
        return np.dtype("m8[us]" if self.whole.column.temporal else float)

    def completed(self, increments: Column) -> "Increment":
        """Return the rule with what follows from the increments that were released."""
        dtype, added = self.whole.dtype, increments.numbers
        high = replace(self.whole.column, nullable=increments.nullable)
        reach = self.reach and (added.lower, added.upper)
        if high.lower is not None:
            return replace(self, whole=replace(self.whole, column=high), reach=reach)
        first = self.low.numbers
        factor = scale(self.low, high)
        ends = [factor * first.lower + added.lower, factor * first.upper + added.upper]
        if reach:
            ends[0] = factor * first.lower
            ends[1] = max(ends[1], ends[0] - added.lower - self.gap)
        bounded = high.bounded(*grid.within_type(high, dtype, ends))
        return replace(self, whole=whole_codec(bounded, dtype), reach=reach)

    def of(self, rows: Mapping[Hashable, pd.Series]) -> pd.Series:
        """Return the increments of private rows: private."""
        column = self.whole.column
        steps = grid.in_steps(self.low, rows[self.low.name])
        numbers = as_numbers(column, rows[self.name])
        numbers = np.where(np.isinf(numbers), np.nan, numbers)
        if column.lower is not None:
            facts = column.numbers
            numbers = np.clip(numbers, facts.lower, facts.upper)
        step, most = self.low.numbers.step or 1.0, np.finfo(float).max
        with np.errstate(over="ignore"):
            distance = numbers - self._base(steps * step)
            added = np.clip(distance, self.least, most)
            if self.has_distances:
                apart = np.maximum(-distance.clip(0.0, most) - self.gap, -most)
                added = np.where(np.isnan(steps), apart, added)
        if not column.temporal:
            return pd.Series(added)
        missing = np.isnan(added)
        counts = np.where(missing, 0.0, added)
        return from_units(counts, missing, column.unit, self.dtype)

    def built(
        self, rows: Mapping[Hashable, pd.Series], added: pd.Series
    ) -> tuple[pd.Series, np.ndarray]:
        """Return the column, and which of its values lie within its bounds.

        Others have the sign that does not go with the column below.
        """
        column = self.whole.column
        low = as_numbers(self.low, rows[self.low.name])
        numbers, fits = as_numbers(column, added), np.ones(len(low), dtype=bool)
        if self.reach:
            alone = np.isnan(low)
            apart, above = self.signs(numbers)
            fits = np.isnan(numbers) | np.where(alone, apart, above)
            fits |= not self.has_both
            numbers = np.where(alone & apart, -numbers - self.gap, numbers)
            numbers = np.maximum(numbers, np.where(alone, 0.0, self.least))
        base = self._base(low)
        values, inside = grid.nearest_values(column, self.whole.dtype, numbers + base)
        return values, inside & fits

    def below(
        self, dtype: Any, high: pd.Series, added: pd.Series
    ) -> tuple[pd.Series, np.ndarray]:
        """Return the column below in its dtype, and which values are in its bounds.

        Where the others are missing, nothing follows: a value outside the bounds.
        """
        column = self.whole.column
        numbers = as_numbers(column, high) - as_numbers(column, added)
        unknown = np.isnan(numbers) | ~self.signs(as_numbers(column, added))[1]
        numbers = np.where(unknown, self.low.numbers.lower, numbers)
        values, inside = grid.nearest_values(self.low, dtype, numbers)
        return values, inside & ~unknown

    @property
    def gap(self) -> float:
        """What is between increments and distances, which are negative."""
        return gap_of(self.low, self.whole.column)

    @property
    def has_distances(self) -> bool:
        """Whether distances are negative, and the released bounds leave some."""
        half = 0.5 * (self.whole.column.step or 0.0)
        return self.reach is not None and self.reach[0] < half - self.gap

    @property
    def has_both(self) -> bool:
        """Whether they leave increments as well."""
        half = 0.5 * (self.whole.column.step or 0.0)
        if self.reach is None or not self.has_distances:
            return False
        return self.reach[1] > self.least - half

    def signs(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return which numbers are distances, and which are increments.

        Of a continuum, 0 is both.
        """
        half = 0.5 * (self.whole.column.step or 0.0)
        return numbers <= half - self.gap, numbers >= self.least - half

    def parted(self, codec: Codec) -> IntervalCodec:
        """Return cells of increments cut where distances and increments begin.

        What is counted of a cell goes to its parts by their lengths on the axis, and
        nothing to what lies between.
        """
        assert isinstance(codec, IntervalCodec)
        step = codec.column.step or 1.0
        half = 0.5 * (codec.column.step is not None)
        cuts = np.array([half - self.gap / step, self.least / step - half])
        low, high = codec.edges[[0, -1]]
        edges = np.unique([*codec.edges, *cuts[(low < cuts) & (cuts < high)]])
        cells = np.searchsorted(codec.edges, edges[:-1], side="right") - 1
        middle, value = (edges[:-1] + edges[1:]) / 2, codec.values[cells]
        lengths = np.diff(codec.axis.to(edges))
        lengths[(cuts[0] < middle) & (middle < cuts[1])] = 0.0
        holds = np.searchsorted(edges[1:-1], value, side="right") == np.arange(
            len(value)
        )
        lengths = np.where(np.isnan(value), lengths, holds)
        parts = lengths / np.maximum(np.bincount(cells, lengths), LEAST_MASS)[cells]
        inner = np.maximum(codec.masses[cells] * parts, LEAST_MASS)
        masses = np.append(inner, codec.masses[len(codec.values) :])
        masses = masses / masses.sum()
        single = grid.single_values(codec.column, edges)
        values = np.where(np.isnan(value) | ~holds, single, value)
        return replace(codec, masses=masses, edges=edges, values=values)

    @property
    def lowest(self) -> float:
        """The lower bound of the column below, in numbers of the column."""
        return scale(self.low, self.whole.column) * self.low.numbers.lower

    def _base(self, values: np.ndarray) -> np.ndarray:
        """Return numbers of the column below in those of the column."""
        size = scale(self.low, self.whole.column)
        return np.where(np.isnan(values), self.lowest, size * values)


def nested_signs(
    increments: Sequence[Increment], codecs: Mapping[Hashable, Codec]
) -> Iterator[Nesting]:
    """Yield which cells of increments go with which of the column below."""
    for each in increments:
        if each.has_both:
            low, added = codecs[each.low.name], codecs[each.name]
            assert isinstance(added, IntervalCodec)
            middle = (added.edges[:-1] + added.edges[1:]) / 2
            signs = each.signs(middle * (added.column.step or 1.0))
            apart, above = (np.append(each, True)[: added.n_cells] for each in signs)
            allowed = np.tile(above, (low.n_cells, 1))
            allowed[-1] = apart  # where it is missing
            yield Nesting(each.name, each.low.name, allowed)
