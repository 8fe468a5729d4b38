"""Constraints that no row satisfies together, known from public facts alone.

The values of a column fall into *cells*, in all of which a condition of the constraints
holds or none: the values and limits that they name, and what lies between. Every
combination of cells is tried with one value of each. An order counts as kept where the
ends of two cells allow it, and what cannot be decided so counts as possible.
"""

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
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
from dpgenerative.tables.dtypes import CERTAIN
from dpgenerative.tables.times import count_of
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
    known = [each for each in constraints if type(each) in KINDS.values()]
    for linked in _linked([*known, *orders]):
        if not _is_possible(linked, facts):
            stated = [each for each in known if each in linked]
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
    names = list(dict.fromkeys(name for each in constraints for name in each.columns))
    cells = [_cells(facts[name], list(_named(constraints, name))) for name in names]
    of = {name: each for name, each in zip(names, cells, strict=True) if each}
    shape = [len(each.values) for each in of.values()]
    if len(of) < len(names) or math.prod(shape) > MOST_ROWS:
        return True
    places = dict(zip(names, np.indices(shape).reshape(len(shape), -1), strict=True))
    columns = {name: of[name].values.iloc[places[name]].array for name in names}
    from dpgenerative.tables.containers import labels  # loads scipy

    rows = pd.DataFrame(columns).set_axis(labels(names), axis=1)
    holds = np.ones(len(rows), dtype=bool)
    for each in constraints:
        if isinstance(each, LessEqual):
            low = of[each.low].lower[places[each.low]]
            high = of[each.high].upper[places[each.high]]
            holds &= ~(low >= high if each.strict else low > high)
        else:
            holds &= each.holds(rows)
    return bool(holds.any())


def _named(constraints: Sequence[Constraint], name: Hashable) -> Iterator[Any]:
    """Yield the values and intervals that constraints name of a column."""
    for constraint in constraints:
        for column, condition in constraint.conditions_on():
            yield from alternatives(condition) if column == name else ()


@dataclass(frozen=True)
class _Cells:
    """One value of every cell, and the ends of cells of numbers; NaN where missing."""

    values: pd.Series
    lower: np.ndarray
    upper: np.ndarray


def _cells(column: Column, parts: list[Any]) -> _Cells | None:
    """Return the cells of a column, None where floats do not tell its numbers apart."""
    if column.numeric:
        return _numbers(column, [part for part in parts if not is_missing(part)])
    named = list(dict.fromkeys(part for part in parts if not is_missing(part)))
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
    low, high = (
        infinite if end is None else number(end)
        for end, infinite in ((column.lower, -math.inf), (column.upper, math.inf))
    )
    limits = {number(end) for end in ends if not is_missing(end)} | {low, high}
    points = sorted(limit for limit in limits if low <= limit <= high)
    if any(CERTAIN <= abs(point) < math.inf for point in points):
        return None
    step = None if column.temporal else column.step
    cells = [(p, p, p) for p in points if math.isfinite(p) and not _misses(p, step)]
    for start, end in pairwise(points):
        value = _between(start, end, step)
        if value is None:
            continue
        if step is not None:  # the first and the last multiple between
            start = value if math.isfinite(start) else start
            end = end if math.isinf(end) else (math.ceil(end / step - 1e-6) - 1) * step
        cells.append((value, start, end))
    if column.nullable is not False:
        cells.append((math.nan,) * 3)
    values, lower, upper = np.array(cells, dtype=float).reshape(-1, 3).T
    series = pd.Series(values)
    if column.temporal:
        counts = np.nan_to_num(np.round(values), nan=np.iinfo(np.int64).min)
        unit = "M8[us]" if column.kind == "datetime" else "m8[us]"
        series = pd.Series(counts.astype(np.int64).view(unit))
    return _Cells(series, lower, upper)


def _misses(value: float, step: float | None) -> bool:
    return step is not None and abs(value / step - round(value / step)) > 1e-6


def _between(start: float, end: float, step: float | None) -> float | None:
    """Return a number between two, a multiple of the step; None where there is none."""
    if math.isinf(start):
        start = (end if math.isfinite(end) else 0.0) - 2 * (step or 1.0)
    if math.isinf(end):
        end = start + 2 * (step or 1.0)
    if step is None:
        return (start + end) / 2
    value = (math.floor(start / step + 1e-6) + 1) * step
    return value if value < end - 1e-6 * step else None
