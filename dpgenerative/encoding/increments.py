"""Columns that are never below another, as its distance from them: public rules.

What `LessEqual` says of two columns of one grid is kept by learning the second as the
first plus an increment that is not negative: a stay of three days between two dates of
which each is known by its month. Which columns are learned so, and the bounds of the
increments, follow from the schema alone.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from dpgenerative.tables.column import Column
from dpgenerative.tables.constraints import LessEqual
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.times import PER_DAY

LONGEST_DAYS = 100_000.0
"""No duration is longer, where nothing states its bounds."""


def increments_of(schema: Schema) -> dict[Hashable, LessEqual]:
    """Return the constraints that hold by increments, by name of the second column.

    One per second column, the first that is stated, where every value of the first
    column's grid plus one of the second's is on the second's. None makes a circle, and
    none has a column that another constraint repairs.

    Parameters
    ----------
    schema : Schema
        Of a table (`Schema.resolve`).

    Returns
    -------
    dict
        First columns that are increments themselves stand before those on top of them.
    """
    found: dict[Hashable, LessEqual] = {}
    repaired = {name for each in schema.constraints for name in each.repairs}
    for each in schema.constraints:
        if (
            isinstance(each, LessEqual)
            and each.high not in found
            and repaired.isdisjoint(each.columns)
            and _on_one_grid(schema[each.low], schema[each.high])
            and each.high not in _below(each.low, found)
        ):
            found[each.high] = each
    order = sorted(found, key=lambda name: len(_below(name, found)))
    return {name: found[name] for name in order}


def _below(name: Hashable, found: dict[Hashable, LessEqual]) -> list[Hashable]:
    """Return a column and those that it is built on."""
    names = [name]
    while names[-1] in found:
        names.append(found[names[-1]].low)
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
    """Return every column by name as it is learned: increments where they are."""
    columns = {column.name: column for column in schema.columns}
    for name, rule in increments_of(schema).items():
        columns[name] = _increments(schema[rule.low], schema[name], rule.strict)
    return columns


def _increments(low: Column, high: Column, strict: bool) -> Column:
    """Return a column of increments.

    Bounds of numbers follow where both columns state theirs. Those of times do not:
    they span years, between which lie days.
    """
    kind = "timedelta" if high.temporal else high.kind
    column = Column(high.name, kind, nullable=high.nullable, resolution=high.resolution)
    if high.temporal or low.lower is None or high.lower is None:
        return column
    lower = max(least(high, strict), high.lower - low.upper)
    return replace(column, lower=lower, upper=max(lower, high.upper - low.lower))


def least(high: Column, strict: bool) -> float:
    """Return the smallest increment."""
    return float(high.step or 0.0) if strict else 0.0
