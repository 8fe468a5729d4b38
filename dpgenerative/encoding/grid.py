"""The public grids on which numeric columns are cut, and numbers in steps of them.

Edges follow from the bounds of a column alone. Where bounds are unknown, they are
sought among public ends: signed powers of two for numbers, years for instants.
"""

import math
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative.encoding.values import (
    as_integers,
    as_numbers,
    limits,
    restored_levels,
)
from dpgenerative.tables.column import Column
from dpgenerative.tables.times import (
    PER_DAY,
    count_of,
    from_units,
    to_units,
    year_starts,
)
from dpgenerative.tables.values import is_missing

CONTINUOUS_DEPTH = 12
"""Number of halvings of a continuum."""
LATTICE_DEPTH = 16
"""Number of halvings of a coarse grid (`is_coarse`)."""
FINE_GRID = 1_100_000
"""Up to this many values every one has a grid cell: codes like -1 and 999999 too."""
LINEAR_RATIO = 10.0
"""Bounds of one sign and a smaller ratio are cut on a linear scale, others in asinh."""
USUAL_YEARS = ("1900-01-01", "2100-01-01")
"""Between these instants are supposed to lie where nothing shows their years."""
LONGEST_DAYS = 100_000.0
"""No duration is longer, where nothing states its bounds."""

# Signed powers of two between which bounds are sought: |x| < 2^-32, then up to 2^128.
_EXPONENTS = np.arange(-32, 129)
_MAGNITUDES = np.concatenate([-(2.0 ** _EXPONENTS[::-1]), 2.0**_EXPONENTS])


@dataclass(frozen=True)
class CellAxis:
    """The numeric axis on which intervals are even: asinh, or linear from an origin.

    Bounds far from 0 next to their distance have no decades between them, and their
    asinh would cancel.
    """

    origin: float | None

    @classmethod
    def of(cls, column: Column) -> "CellAxis":
        """Return the scale of a column with bounds."""
        low, high = ends_of(column)
        if column.kind == "datetime":
            return cls(low)
        same_sign = low > 0 or high < 0
        near, far = sorted([abs(low), abs(high)])
        return cls(low if same_sign and far < LINEAR_RATIO * near else None)

    def to(self, steps: np.ndarray) -> np.ndarray:
        """Return places on the axis."""
        return np.arcsinh(steps) if self.origin is None else steps - self.origin

    def back(self, places: np.ndarray) -> np.ndarray:
        """Return the numbers at places on the axis."""
        return np.sinh(places) if self.origin is None else places + self.origin

    def log_slope(self, steps: np.ndarray) -> np.ndarray:
        """Return the logarithm of the derivative of `to`."""
        flat = np.zeros_like(steps)
        return -np.log(np.hypot(1, steps)) if self.origin is None else flat


# Edges --------------------------------------------------------------------------------


def ends_of(column: Column) -> tuple[float, float]:
    """Return the bounds in steps, on the grid where there is one."""
    column = column.numbers
    return steps_between(column, column.lower, column.upper)


def steps_between(column: Column, low: float, high: float) -> tuple[float, float]:
    """Return two numbers in steps: the first and the last of a grid between them."""
    step = column.step
    if step is None:
        return low, high
    return float(math.ceil(low / step - 1e-6)), float(math.floor(high / step + 1e-6))


def asked_between(column: Column, condition: Any) -> tuple[float, float]:
    """Return the ends of a value or an interval, the bounds where it has no limit."""
    low, high = condition if isinstance(condition, tuple) else (condition, condition)
    numbers = column.numbers
    low = numbers.lower if is_missing(low) else column.count(low)
    high = numbers.upper if is_missing(high) else column.count(high)
    return low, high


def is_coarse(column: Column) -> bool:
    """Return whether values of a column with bounds share grid cells."""
    low, high = ends_of(column)
    # Beyond 2^52 there are no halves between whole numbers of float64.
    is_fine = high - low < FINE_GRID and max(-low, high) < 2.0**52
    return column.step is None or not is_fine


def edges_of(column: Column) -> np.ndarray:
    """Return the public edges between which cells are cut."""
    low, high = ends_of(column)
    if column.step is None:
        return _even_edges(column, low, high, CONTINUOUS_DEPTH)
    if not is_coarse(column):
        return np.arange(low, high + 2) - 0.5
    edges = _even_edges(column, low - 0.5, high + 0.5, LATTICE_DEPTH)
    edges[1:-1] = np.floor(edges[1:-1]) + 0.5
    return np.unique(np.clip(edges, edges[0], edges[-1]))


def _even_edges(column: Column, low: float, high: float, depth: int) -> np.ndarray:
    if low == high:
        low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    axis = CellAxis.of(column)
    ends = axis.to(np.array([low, high]))
    with np.errstate(over="ignore"):  # the ends themselves take the place of inf
        edges = axis.back(np.linspace(ends[0], ends[1], 2**depth + 1))
    edges = np.clip(edges, low, high)
    edges[[0, -1]] = low, high
    return np.unique(edges)


def single_values(column: Column, edges: np.ndarray) -> np.ndarray:
    """Return the one value that every interval holds, NaN where it holds more."""
    if column.step is None:
        return np.full(len(edges) - 1, np.nan)
    return np.where(np.diff(edges) > 1, np.nan, (edges[:-1] + edges[1:]) / 2)


def shared_values(
    edges: np.ndarray, heavy: np.ndarray, counts: np.ndarray, keys: np.ndarray
) -> np.ndarray:
    """Return the number that most rows of an interval share, NaN without one.

    Parameters
    ----------
    edges : ndarray of shape (m + 1,)
    heavy : ndarray of bool, shape (m,)
        Intervals that may stand for one number.
    counts : ndarray of shape (m,)
    keys : ndarray of shape (2, k)
        Numbers that many rows share, and how many rows have them.
    """
    shared, n = keys
    cells = cells_between(shared, edges)
    holds = heavy[cells] & (n > counts[cells] / 2)
    single = np.full(len(counts), np.nan)
    single[cells[holds]] = shared[holds]
    return single


# Steps --------------------------------------------------------------------------------


def in_steps(column: Column, series: pd.Series) -> np.ndarray:
    """Return a numeric column in steps, inside its bounds; NaN where missing.

    Values off the grid go to the nearest grid point, infinite ones count as missing,
    and missing ones become the lower bound where the column is not nullable.
    """
    values = as_numbers(column, series)
    column = column.numbers
    values = np.where(np.isinf(values), np.nan, values)
    values = np.clip(values, column.lower, column.upper)
    if not column.nullable:
        values = np.where(np.isnan(values), column.lower, values)
    if column.step is None:
        return values
    return np.clip(np.round(values / column.step), *ends_of(column))


def from_steps(
    column: Column, dtype: Any, steps: np.ndarray, missing: np.ndarray
) -> pd.Series:
    """Return steps as values of a column, in its dtype and within its bounds."""
    if column.temporal:
        return from_units(steps, missing, column.unit, dtype)
    # No -0.0, which rounding makes of small negative numbers.
    values = np.clip(in_units(column, steps), column.lower, column.upper) + 0.0
    info = limits(dtype)
    values = np.clip(values, float(info.min), float(info.max))
    if pd.api.types.is_integer_dtype(dtype):
        return as_integers(values, missing, dtype)
    return pd.Series(np.where(missing, np.nan, values)).astype(dtype)


def computed(column: Column, dtype: Any, series: pd.Series) -> pd.Series:
    """Return floats, times or texts, as `Derived.compute` makes them, in a dtype."""
    missing = series.isna().to_numpy(bool)
    if column.temporal:
        units = np.where(missing, 0.0, to_units(series, column.unit))
        made = from_units(units, missing, column.unit, dtype)
    elif column.numeric:
        most = sys.float_info.max
        free = replace(column, resolution=None, lower=-most, upper=most)
        made = from_steps(free, dtype, series.fillna(0).to_numpy(float), missing)
    elif column.kind == "boolean":
        places = np.where(missing, 2, series.to_numpy(float) != 0)
        made = restored_levels(column, dtype, places)
    else:
        made = series.astype(dtype)
    return made.set_axis(series.index)


def in_units(column: Column, steps: Any) -> Any:
    """Return numbers of steps in the units of a column."""
    step = column.step
    if step is None:
        return steps
    if abs(step * round(1 / step) - 1) < 1e-9:
        # 3 / 10, not 3 * 0.1: the number that people write.
        return steps / round(1 / step)
    return steps * step


def nearest_values(
    column: Column, dtype: Any, numbers: np.ndarray
) -> tuple[pd.Series, np.ndarray]:
    """Return the nearest values of a column, and which numbers are in its bounds.

    NaN becomes missing, which counts as within the bounds.
    """
    missing = np.isnan(numbers)
    step = column.step
    steps = numbers if step is None else np.round(numbers / step)
    ends = ends_of(column)
    inside = np.clip(steps, *ends)
    values = from_steps(column, dtype, np.where(missing, ends[0], inside), missing)
    return values, missing | (inside == steps)


# Bounds -------------------------------------------------------------------------------


def sought_ends(column: Column) -> np.ndarray:
    """Return the years, or signed powers of two, between which bounds are sought."""
    return year_starts(column.unit) if column.kind == "datetime" else _MAGNITUDES


def usual_years(column: Column) -> list[float]:
    """Return bounds of instants, in units, where no year is known to hold some."""
    return [float(count_of(text, "datetime", column.unit)) for text in USUAL_YEARS]


def has_values_between(column: Column, dtype: Any, ends: np.ndarray) -> np.ndarray:
    """Return between which of the ends sought a column of this dtype has values."""
    info = limits(dtype)
    possible = (ends[1:] > float(info.min)) & (ends[:-1] <= float(info.max))
    if column.step is not None:
        first = _first_step(ends, column.step)
        possible &= first[:-1] < first[1:]
    return possible


def bounds_between(column: Column, dtype: Any, low: float, high: float) -> list[float]:
    """Return bounds of the values between two of the ends sought, in units."""
    if column.kind == "datetime":
        return [float(low), float(high) - 1]
    # The innermost magnitude stands for 0.
    innermost = _MAGNITUDES[len(_EXPONENTS)]
    low = 0.0 if low == -innermost else low
    high = 0.0 if high == innermost else high
    if column.step is not None:
        low = in_units(column, _first_step(low, column.step))
        # A magnitude does not hold its upper end.
        inside = in_units(column, _first_step(high, column.step) - 1)
        high = max(low, inside if high else 0.0)
    return within_type(column, dtype, [low, high])


def within_type(column: Column, dtype: Any, ends: list[float]) -> list[float]:
    """Return bounds moved inside what calendars, durations and dtypes hold."""
    if column.kind == "datetime":
        first, last = year_starts(column.unit)[[0, -1]]
    elif column.temporal:
        last = LONGEST_DAYS * PER_DAY[column.unit]
        first = -last
    else:
        first, last = float(limits(dtype).min), float(limits(dtype).max)
    return np.clip(ends, first, last).tolist()


def _first_step(ends: Any, step: float) -> Any:
    """Return the first steps whose multiples are not below the numbers given."""
    steps = ends / step
    return np.ceil(steps - 1e-9 * np.abs(steps))


def cells_between(numbers: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the cells between edges in which numbers lie, without those missing."""
    return np.searchsorted(edges[1:-1], numbers[~np.isnan(numbers)], side="right")
