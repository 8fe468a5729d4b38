"""Constraints that no row satisfies together, known from public facts alone.

The values of a column fall into *cells*, in all of which a condition of the constraints
holds or none: the values and limits that they name, and what lies between. Every
combination of cells is tried with one value of each. An order counts as satisfied where
the ends of two cells allow it. What cannot be decided so counts as possible, and
derived columns as free.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative.tables.column import Column
from dpgenerative.tables.conditions import alternatives
from dpgenerative.tables.constraints import (
    KINDS,
    Constraint,
    Facts,
    LessEqual,
    check_orders,
)
from dpgenerative.tables.derived import Computed
from dpgenerative.tables.dtypes import CERTAIN
from dpgenerative.tables.times import as_times, count_of
from dpgenerative.tables.values import is_missing

MOST_ROWS = 20_000
"""Combinations of cells that are tried at most, of columns that constraints link."""


def check_possible(constraints: Sequence[Constraint], facts: Facts) -> None:
    """Require that some row can satisfy all constraints.

    Raises
    ------
    ValueError
        If public facts show that none does.
    """
    orders = check_orders(constraints, facts)
    if any(facts[n].nullable is not False for each in orders for n in each.columns):
        orders = []  # none follows from others where a value between is missing
    others = [each for each in constraints if not isinstance(each, Computed)]
    builtin = [each for each in others if type(each) in KINDS.values()]
    for linked in _linked([*builtin, *orders]):
        if not _is_possible(linked, facts):
            stated = [each for each in builtin if each in linked]
            raise ValueError(
                f"No row satisfies all of {stated} within the bounds and levels of the "
                "columns. Change or drop one of them."
            )


def _linked(constraints: Sequence[Constraint]) -> list[list[Constraint]]:
    """Return constraints in groups that have no column in common."""
    groups: list[list[Constraint]] = []
    for constraint in constraints:
        names = set(constraint.columns)
        meets = [g for g in groups if any(names & {*each.columns} for each in g)]
        groups = [group for group in groups if group not in meets]
        groups.append([*(each for group in meets for each in group), constraint])
    return groups


def _is_possible(constraints: Sequence[Constraint], facts: Facts) -> bool:
    named: dict[Hashable, list[Any]] = {n: [] for c in constraints for n in c.columns}
    for each in constraints:
        for name, condition in each.conditions_on():
            named[name] += alternatives(condition)
    cells = {name: _cells(facts[name], parts) for name, parts in named.items()}
    of = {name: each for name, each in cells.items() if each}
    shape = [len(each.values) for each in of.values()]
    if len(of) < len(named) or math.prod(shape) > MOST_ROWS:
        return True
    places = dict(zip(of, np.indices(shape).reshape(len(shape), -1), strict=True))
    columns = {name: each.values.iloc[places[name]].array for name, each in of.items()}
    from dpgenerative.tables.containers import labels  # loads scipy

    rows = pd.DataFrame(columns).set_axis(labels(list(of)), axis=1)
    holds = np.ones(len(rows), dtype=bool)
    for each in constraints:
        if isinstance(each, LessEqual):
            low = of[each.low].lower[places[each.low]]
            high = of[each.high].upper[places[each.high]]
            holds &= ~(low >= high if each.strict else low > high)
        else:
            holds &= each.holds(rows)
    return bool(holds.any())


@dataclass(frozen=True)
class _Cells:
    """One value of every cell, and the ends of cells of numbers; NaN where missing."""

    values: pd.Series
    lower: np.ndarray
    upper: np.ndarray


def _cells(column: Column, parts: list[Any]) -> _Cells | None:
    """Return the cells of a column, None where floats do not separate its numbers."""
    named = list(dict.fromkeys(part for part in parts if not is_missing(part)))
    if column.numeric:
        return _numbers(column, named)
    others = [object()] if column.levels is None else column.levels
    rest = [level for level in others if level not in named][:1]
    missing = [None] if column.nullable is not False else []
    values = pd.Series([*named, *rest, *missing], dtype=object)
    nothing = np.full(len(values), np.nan)
    return _Cells(values, nothing, nothing)


def _numbers(column: Column, parts: list[Any]) -> _Cells | None:
    def number(value: Any) -> float:
        is_time = column.temporal
        return float(count_of(value, column.kind, "us") if is_time else value)

    ends = [end for p in parts for end in (p if isinstance(p, tuple) else (p,))]
    low = -math.inf if column.lower is None else number(column.lower)
    high = math.inf if column.upper is None else number(column.upper)
    limits = {number(end) for end in ends if not is_missing(end)} | {low, high}
    points = np.array(sorted(limit for limit in limits if low <= limit <= high))
    if ((np.abs(points) >= CERTAIN) & np.isfinite(points)).any():
        return None
    cells = _cells_between(points, None if column.temporal else column.step)
    if column.nullable is not False:
        cells = np.column_stack([cells, np.full(3, np.nan)])
    series = pd.Series(cells[0])
    if column.temporal:
        series = pd.Series(as_times(np.round(cells[0]), column.kind))
    return _Cells(series, cells[1], cells[2])


def _cells_between(points: np.ndarray, step: float | None) -> np.ndarray:
    """Return a value of every cell and the ends of the cells, shape (3, n_cells)."""
    far = CERTAIN * max(1.0, step or 0.0)
    points = np.clip(points, -far, far)
    start, stop = np.append(points, points[:-1]), np.append(points, points[1:])
    if step is None:
        return np.stack([(start + stop) / 2, start, stop])
    is_open = start < stop  # else a single point
    first = np.where(is_open, np.floor(start / step + 1e-6) + 1, start / step)
    last = np.where(is_open, np.ceil(stop / step - 1e-6) - 1, stop / step)
    is_multiple = np.abs(first - first.round()) < 1e-6
    has_multiple = np.where(is_open, first <= last, is_multiple)
    low, high = (np.where(is_open, n * step, start) for n in (first, last))
    return np.stack([low, low, high])[:, has_multiple]
