"""Cells of single columns: values become cells and positions within them, and back.

A codec holds released masses and public facts alone. What `encode` and `positions`
return of private rows is private.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative._random import RandomSource
from dpgenerative.encoding import grid
from dpgenerative.encoding.values import level_codes, restored_levels
from dpgenerative.tables.column import Column
from dpgenerative.tables.conditions import alternatives, satisfies
from dpgenerative.tables.dtypes import can_hold_missing
from dpgenerative.tables.values import is_missing

LARGEST_POSITION = 1 - 2.0**-24
"""The largest number of 32 bits below 1."""


def draw_parts(
    cells: np.ndarray, lengths: np.ndarray, chosen: np.ndarray, uniforms: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draw one part of each chosen cell by inverting its distribution function.

    Parameters
    ----------
    cells : ndarray of int of shape (m,)
        Cell of every part, ascending.
    lengths : ndarray of shape (m,)
        Weight of every part.
    chosen : ndarray of int of shape (n,)
        The cells of which a part is drawn.
    uniforms : ndarray of shape (n,)
        Numbers in [0, 1).

    Returns
    -------
    part : ndarray of int of shape (n,)
    inside : ndarray of shape (n,)
        How far into the part the uniform reaches.
    """
    ends = np.cumsum(lengths)
    totals = np.bincount(cells, lengths, minlength=chosen.max(initial=0) + 1)
    first = np.searchsorted(cells, chosen)
    last = np.searchsorted(cells, chosen, side="right") - 1
    # The parts of all cells lie on one line, on which cells follow each other.
    target = np.append(0.0, ends)[first] + uniforms * totals[chosen]
    part = np.clip(np.searchsorted(ends, target, side="right"), first, last)
    inside = target - (ends - lengths)[part]
    return part, np.clip(inside, 0, lengths[part])


@dataclass(frozen=True)
class Segments:
    """The parts of a column's cells whose values satisfy a condition.

    Attributes
    ----------
    cells : ndarray of int of shape (m,)
        Cell of every part, ascending.
    low, high : ndarray of shape (m,)
        Positions between which it lies in its cell.
    """

    cells: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def shares(self, n_cells: int) -> np.ndarray:
        """Return the part of every cell that satisfies the condition."""
        return np.bincount(self.cells, self.high - self.low, minlength=n_cells)

    def place(self, codes: np.ndarray, draws: np.ndarray) -> np.ndarray:
        """Return positions in the parts of the cells given, from uniform draws."""
        part, inside = draw_parts(self.cells, self.high - self.low, codes, draws)
        return self.low[part] + inside


@dataclass(frozen=True)
class Codec(ABC):
    """Cells of one column: released masses, and how values become cells and back.

    Attributes
    ----------
    column : Column
        Public facts, completed by released bounds or levels.
    dtype : object
        The column's dtype.
    masses : ndarray of shape (n_cells,)
        Released probability of every cell, 'missing' last where there is one.
    """

    column: Column
    dtype: Any
    masses: np.ndarray

    @property
    def n_cells(self) -> int:
        """Number of cells, 'missing' included."""
        return len(self.masses)

    @property
    def unnamed_mass(self) -> float:
        """Released probability of 'missing', and of values that are no level."""
        return float(self.masses[-1]) * bool(self.column.nullable)

    @property
    def atoms(self) -> np.ndarray:
        """Which cells hold one value or unordered values, with nothing inside."""
        return np.ones(self.n_cells, dtype=bool)

    @abstractmethod
    def encode(self, series: pd.Series) -> np.ndarray:
        """Return the cell of every value."""

    def positions(self, series: pd.Series, rng: RandomSource) -> np.ndarray:
        """Return the position in [0, 1) of every value within its cell."""
        return rng.random(len(series))

    @abstractmethod
    def decode(self, codes: np.ndarray, positions: np.ndarray) -> pd.Series:
        """Return a value for every cell and position, in the column's dtype."""

    @abstractmethod
    def log_within(self, series: pd.Series) -> np.ndarray:
        """Return the log-density of every value given its cell.

        A probability for levels and grids, a density in data units for a continuum.
        """

    @abstractmethod
    def segments(self, condition: Any) -> Segments:
        """Return where the values lie that satisfy a condition on the column.

        A value of a continuum has probability 0: it stands for its whole cell. Parts
        do not overlap, whether intervals of the condition do or not.
        """


@dataclass(frozen=True)
class LevelCodec(Codec):
    """Cells of a categorical column.

    Attributes
    ----------
    level_cells : ndarray of shape (n_levels,)
        Cell of every level.
    level_masses : ndarray of shape (n_levels,)
        Released probability of every level, given its cell.
    """

    level_cells: np.ndarray
    level_masses: np.ndarray

    @property
    def unnamed_mass(self) -> float:
        column, missing = self.column, super().unnamed_mass
        if column.other is None or column.levels is None:
            return missing
        place = column.levels.index(column.other)
        cell = self.masses[self.level_cells[place]]
        return missing + float(cell * self.level_masses[place])

    @property
    def _imputes(self) -> bool:
        """Whether samples have levels in place of values that the dtype cannot lack."""
        return bool(self.column.nullable) and not can_hold_missing(self.dtype)

    def encode(self, series: pd.Series) -> np.ndarray:
        return self.level_cells[level_codes(series, self.column)]

    def decode(self, codes: np.ndarray, positions: np.ndarray) -> pd.Series:
        order, cells, masses = self._by_cell()
        part, _ = draw_parts(cells, masses, codes, positions)
        places = order[part]
        if self._imputes:
            weights = (self.masses[self.level_cells] * self.level_masses)[:-1].cumsum()
            draws = np.searchsorted(weights, positions * weights[-1], side="right")
            places = np.where(places < len(weights), places, draws)
        return restored_levels(self.column, self.dtype, places)

    def log_within(self, series: pd.Series) -> np.ndarray:
        return np.log(self.level_masses[level_codes(series, self.column)])

    def segments(self, condition: Any) -> Segments:
        order, cells, masses = self._by_cell()
        ends = np.cumsum(masses)
        starts = ends - masses
        first = np.searchsorted(cells, cells)
        last = np.searchsorted(cells, cells, side="right") - 1
        whole = ends[last] - starts[first]
        low, high = (starts - starts[first]) / whole, (ends - starts[first]) / whole
        levels = [*(self.column.levels or ()), *[None] * bool(self.column.nullable)]
        met = satisfies(pd.Series(levels, dtype=object), condition)[order]
        met &= order < len(levels) - self._imputes
        return Segments(cells[met], low[met], high[met])

    def _by_cell(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the order of the levels by cell; cells and masses in that order."""
        order = np.argsort(self.level_cells, kind="stable")
        return order, self.level_cells[order], self.level_masses[order]


@dataclass(frozen=True)
class IntervalCodec(Codec):
    """Cells of a numeric column.

    Attributes
    ----------
    edges : ndarray of shape (n_intervals + 1,)
        Ends of the intervals, in steps of the column (data units for a continuum).
    values : ndarray of shape (n_intervals,)
        The one value of an interval that stands for a single number, else NaN.
    """

    edges: np.ndarray
    values: np.ndarray

    @property
    def atoms(self) -> np.ndarray:
        flags = ~np.isnan(self.values)
        return np.append(flags, True) if self.column.nullable else flags

    @property
    def axis(self) -> grid.CellAxis:
        """The scale on which values are uniform within an interval."""
        return grid.CellAxis.of(self.column)

    def encode(self, series: pd.Series) -> np.ndarray:
        return self._located(series)[1]

    def _located(self, series: pd.Series) -> tuple[np.ndarray, ...]:
        """Return numbers in steps, their cells, and the ends of these on the line."""
        steps = grid.in_steps(self.column, series)
        cells = np.searchsorted(self.edges[1:-1], steps, side="right")
        ends = self.axis.to(self.edges)
        codes = np.where(np.isnan(steps), len(self.values), cells)
        return steps, codes, ends[cells], ends[cells + 1]

    def positions(self, series: pd.Series, rng: RandomSource) -> np.ndarray:
        steps, cells, low, high = self._located(series)
        draws = rng.random(len(steps))
        if self.column.step is not None:
            steps = steps + draws - 0.5
        within = (self.axis.to(steps) - low) / (high - low)
        return np.where(self.atoms[cells], draws, within.clip(0, LARGEST_POSITION))

    def decode(self, codes: np.ndarray, positions: np.ndarray) -> pd.Series:
        missing = codes >= len(self.values)
        inside = np.where(missing, 0, codes)
        low, high = self.edges[inside], self.edges[inside + 1]
        ends = self.axis.to(low), self.axis.to(high)
        steps = self.axis.back(ends[0] + positions * (ends[1] - ends[0]))
        steps = np.clip(steps, low, high)
        if self.column.step is not None:
            steps = np.clip(np.round(steps), np.ceil(low), np.floor(high))
        value = self.values[inside]
        steps = np.where(np.isnan(value), steps, value)
        return grid.from_steps(self.column, self.dtype, steps, missing)

    def log_within(self, series: pd.Series) -> np.ndarray:
        steps, codes, low, high = self._located(series)
        log_mass = self.axis.log_slope(steps)
        if self.column.step is not None:
            span = self.axis.to(steps + 0.5) - self.axis.to(steps - 0.5)
            # Far from 0 the difference of two large numbers gives way to the slope.
            far = np.abs(steps) > 1e6
            log_mass = np.where(far, log_mass, np.log(np.where(far, 1.0, span)))
            # An interval may hold more values than the one that it stands for.
            is_single = np.append(self.values, np.nan)[codes] == steps
            log_mass = np.where(is_single, np.log(high - low), log_mass)
        return np.where(np.isnan(steps), 0.0, log_mass - np.log(high - low))

    def segments(self, condition: Any) -> Segments:
        parts: list[tuple[int, float, float]] = []
        for part in alternatives(condition):
            if is_missing(part):
                parts.append((len(self.values), 0.0, 1.0))
            else:
                parts += self._parts_between(*grid.asked_between(self.column, part))
        apart: list[tuple[int, float, float]] = []
        for cell, low, high in sorted(parts):
            if apart and apart[-1][0] == cell:
                low = max(low, apart[-1][2])
            if low < high:
                apart.append((cell, low, high))
        cells, lows, highs = np.array(apart, float).reshape(-1, 3).T
        return Segments(cells.astype(np.int64), lows, highs)

    def _parts_between(self, low: float, high: float) -> list[tuple[int, float, float]]:
        """Return (cell, low, high) of the parts of cells between two numbers."""
        column = self.column.numbers
        if column.step is None and low == high:
            cell = np.searchsorted(self.edges[1:-1], low, side="right")
            return [(int(cell), 0.0, 1.0)]
        low, high = max(low, column.lower), min(high, column.upper)
        if column.step is not None:
            first, last = grid.steps_between(column, low, high)
            low, high = first - 0.5, last + 0.5
        ends = self.axis.to(self.edges)
        cut = self.axis.to(np.clip(self.edges, low, high))
        start, stop = ((c - ends[:-1]) / np.diff(ends) for c in (cut[:-1], cut[1:]))
        # A cell that stands for a single number lies inside as a whole or not at all.
        is_single = ~np.isnan(self.values)
        start[is_single] = 0.0
        stop[is_single] = ((low <= self.values) & (self.values <= high))[is_single]
        cells = np.flatnonzero(stop > start)
        parts = cells, start[cells], stop[cells]
        return list(zip(*(each.tolist() for each in parts), strict=True))


def whole_codec(column: Column, dtype: Any, missing: float = 0.0) -> IntervalCodec:
    """Return one cell of a whole column, and one of missing values.

    The first has no values where the bounds of the column are open.
    """
    low, high = (0.0, 0.0) if column.lower is None else grid.ends_of(column)
    half = 0.0 if column.step is None else 0.5
    masses = np.array([1 - missing, missing])[: 1 + bool(column.nullable)]
    edges = np.array([low - half, high + half])
    return IntervalCodec(column, dtype, masses, edges, np.full(1, np.nan))
