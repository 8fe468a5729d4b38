"""From a table to cells and back, by private one-way marginals.

Every column is cut into *cells*: one per level or value that is frequent enough, one
for the rare levels of a nominal column together, intervals of a numeric column, one for
'missing'. The released masses of the cells are where the model starts; inside a cell,
rare levels follow their released masses and numbers are uniform in asinh space.

What touches rows is `TableTransformer.fit`, where every statistic passes through
`Mechanisms`, and `TableTransformer.encode`, whose output stays private. The rest reads
only what was released.

A column that a constraint keeps above another is learned as its distance from it
(`increments`): its cells are those of the increments.

Formal guarantee: the releases of `fit` together are one Gaussian mechanism of the noise
multiplier given: a row is counted once in every histogram, so that histograms with
standard deviations s_1, s_2, ... have multiplier ``(sum 1 / s_k^2)^(-1/2)``. Their
number and their standard deviations are fixed before the first count. (Keys - strings
without known levels, values that many rows of a continuum share - cost a delta besides:
`noise.threshold_for`.)

How the budget is shared: the expected distance of a released histogram of K cells with
noise s grows as K s, the cost as 1 / s^2, so that the sum over columns is least with
1 / s^2 in proportion to K^(2/3). A numeric column spends `STRUCTURE_SHARE` on finding
its cells, one release per level of halving, and the rest on counting them; all counts
of the tree are then joined by weighted least squares (Hay et al. 2010). Intervals that
hold many numbers still are then cut into even pieces, uncounted.
"""

from __future__ import annotations

import math
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, Decimal
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from dpgenerative._random import RandomSource
from dpgenerative.encoding.increments import (
    LONGEST_DAYS,
    increments_of,
    learned_columns,
    least,
    scale,
)
from dpgenerative.privacy.noise import Key, Mechanisms, threshold_for
from dpgenerative.tables.column import Column
from dpgenerative.tables.conditions import alternatives, satisfies
from dpgenerative.tables.containers import holds_objects, labels, plain
from dpgenerative.tables.dtypes import decimal_scale, is_real_dtype
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.times import (
    PER_DAY,
    from_units,
    to_units,
    year_starts,
)
from dpgenerative.tables.values import is_missing

RELEASE = "marginals"
"""What the plan calls all that is released here."""
DOMAIN_SHARE = 0.25
"""Part of a column's budget that finds its bounds or levels, where they are unknown."""
CONTINUOUS_DEPTH = 12
"""Number of halvings of a continuum."""
LATTICE_DEPTH = 16
"""Number of halvings of a grid of more than `FINE_GRID` values."""
FINE_GRID = 1_100_000
"""Up to this many values every one has a grid cell: codes like -1 and 999999 too."""
LINEAR_RATIO = 10.0
"""Bounds of one sign and a smaller ratio are cut on a linear scale, others in asinh."""
SPLIT_SIZE = 1.3
"""A cell may be halved while it holds more than this many times numbers / n_bins..."""
SPLIT_NOISE = 2.5
"""... and more than this many standard deviations of the noise of halving."""
STRUCTURE_SHARE = 0.4
"""Part of a numeric column's budget that finds its cells."""
SPIKE_SHARE = 0.1
"""Part of a continuum's budget that releases the exact values many rows share."""
NO_LEVELS, NO_NUMBERS = ("",), (0,)
"""Levels of a column of which none was found."""
OPEN_LEVELS = 64
"""Number of levels reckoned with where they are unknown: finding them costs most."""
POOL_NOISE = 5.0
"""Levels with fewer rows than this many standard deviations share a cell..."""
SEEN_NOISE = 2.0
"""... and count as absent with fewer than this many..."""
SEEN_SHARE = 1.5e-3
"""... that are fewer than this share of all rows: a level that a sample holds a few
times, in one class only, misleads classifiers more than its absence."""
EMPTY_NOISE = 3.0
"""What nobody states may not occur at all: missing values, and `other` of levels found.
With a noisy count below this many standard deviations they have no cell."""
NEXT_NOISE = 2.5
"""Magnitudes next to occupied ones are so too with more than this many standard
deviations."""
UNSEEN = 1e-3
"""Rows of what counts as absent, since no value is impossible."""

# Signed powers of two between which bounds are sought: |x| < 2^-32, then up to 2^128.
_EXPONENTS = np.arange(-32, 129)
_MAGNITUDES = np.concatenate([-(2.0 ** _EXPONENTS[::-1]), 2.0**_EXPONENTS])


def project_to_simplex(values: np.ndarray, total: float) -> np.ndarray:
    """Return the non-negative vector of a given sum nearest to `values`.

    Parameters
    ----------
    values : ndarray of shape (k,)
    total : float
        Sum of the result; at most 0 gives zeros.
    """
    if total <= 0:
        return np.zeros_like(values)
    ordered = np.sort(values)[::-1]
    shifts = (np.cumsum(ordered) - total) / np.arange(1, len(values) + 1)
    active = np.flatnonzero(ordered > shifts)[-1]
    return np.maximum(values - shifts[active], 0)


def supposed_counts(noisy: np.ndarray, std: float, before: np.ndarray) -> np.ndarray:
    """Return what rare levels have on average, given their noisy counts.

    Before counting, a count is taken to be exponential with the mean of all of them.

    Parameters
    ----------
    noisy : ndarray of shape (n,)
        Counts with normal noise.
    std : float
        Standard deviation of the noise, > 0.
    before : ndarray of shape (n,)
        Estimates with the mean to be taken.

    Returns
    -------
    ndarray of shape (n,)
        Means of normal laws cut off at 0.
    """
    place = noisy / std - std / max(before.mean(), UNSEEN)
    means = place + np.exp(norm.logpdf(place) - norm.logcdf(place))
    return np.maximum(std * means, 0.0)


def outermost(noisy: np.ndarray, std: float) -> tuple[int, int]:
    """Return the first and the last of the magnitudes that hold rows; 0, -1 for none.

    With 99.9 % probability no empty magnitude passes for an occupied one. Next to
    occupied ones, as there are few, a lower threshold will do. Rounding of the noise
    adds a half at most.

    Parameters
    ----------
    noisy : ndarray of shape (n,)
        Counts with normal noise.
    std : float
        Standard deviation of the noise.
    """
    occupied = np.flatnonzero(noisy > std * norm.isf(1e-3 / len(noisy)) + 0.5)
    if not len(occupied):
        return 0, -1
    first, last = occupied[[0, -1]]
    gaps = np.flatnonzero(noisy <= NEXT_NOISE * std + 0.5)
    before, after = gaps[gaps < first], gaps[gaps > last]
    first = before[-1] + 1 if len(before) else 0
    last = after[0] - 1 if len(after) else len(noisy) - 1
    return int(first), int(last)


def n_beyond(counts: np.ndarray, stds: np.ndarray, widths: np.ndarray) -> int:
    """Return how many intervals at the end lie beyond the last row.

    That is where rows end abruptly: what was counted beyond is within the noise, and
    surely less than half of what it would be if rows went on to decline as between the
    two intervals before. A tail that fades out is left alone.

    Parameters
    ----------
    counts : ndarray of shape (n,)
        Noisy rows per interval.
    stds : ndarray of shape (n,)
        Standard deviations of their noise.
    widths : ndarray of shape (n,)
    """
    for k in range(len(counts) - 2, 0, -1):
        (before, near), (far, size) = counts[-k - 2 : -k], widths[-k - 2 : -k]
        std = math.hypot(*stds[-k:])
        most = counts[-k:].sum() + SEEN_NOISE * std
        if near <= 0 or before <= 0 or most > 2 * SEEN_NOISE * std:
            continue
        decline = min(1.0, near / size * far / before) ** (2 * size / (size + far))
        if most < near * decline * min(1.0, widths[-k:].sum() / size) / 2:
            return k
    return 0


def roundest(low: float, high: float) -> float:
    """Return the number with the fewest significant digits in [low, high]."""
    if low <= 0 <= high:
        return 0.0
    first, last = Decimal(repr(float(low))), Decimal(repr(float(high)))
    top = max(abs(first), abs(last)).adjusted()
    for digits in range(20):
        unit = Decimal(1).scaleb(top + 1 - digits)
        candidate = (first / unit).to_integral_value(ROUND_CEILING) * unit
        if candidate <= last:
            return float(candidate)
    return low


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
        lengths = self.high - self.low
        ends = np.cumsum(lengths)
        first = np.searchsorted(self.cells, codes)
        before = np.append(0.0, ends)[first]
        target = before + draws * self.shares(codes.max(initial=0) + 1)[codes]
        part = np.searchsorted(ends, target, side="right")
        last = np.searchsorted(self.cells, codes, side="right") - 1
        part = np.clip(part, first, last)
        inside = target - (ends - lengths)[part]
        return self.low[part] + np.clip(inside, 0, lengths[part])


@dataclass(frozen=True)
class Codec:
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

    def encode(self, series: pd.Series) -> np.ndarray:
        """Return the cell of every value."""
        raise NotImplementedError

    def positions(self, series: pd.Series, rng: RandomSource) -> np.ndarray:
        """Return the position in [0, 1) of every value within its cell."""
        return rng.random(len(series))

    def decode(self, codes: np.ndarray, positions: np.ndarray) -> pd.Series:
        """Return a value for every cell and position, in the column's dtype."""
        raise NotImplementedError

    def log_within(self, series: pd.Series) -> np.ndarray:
        """Return the log-density of every value given its cell.

        A probability for levels and grids, a density in data units for a continuum.
        """
        raise NotImplementedError

    def segments(self, condition: Any) -> Segments:
        """Return where the values lie that satisfy a condition on the column.

        A value of a continuum has probability 0: it stands for its whole cell.
        """
        raise NotImplementedError

    def _restored(self, values: Any) -> pd.Series:
        if isinstance(self.dtype, pd.CategoricalDtype):
            return pd.Series(pd.Categorical(values, dtype=self.dtype))
        series = pd.Series(values, dtype=object)
        if pd.api.types.is_float_dtype(self.dtype):
            return pd.to_numeric(series).astype(self.dtype)
        return series.astype(self.dtype)


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

    def encode(self, series: pd.Series) -> np.ndarray:
        return self.level_cells[level_codes(series, self.column)]

    def decode(self, codes: np.ndarray, positions: np.ndarray) -> pd.Series:
        order = np.argsort(self.level_cells, kind="stable")
        first = np.searchsorted(self.level_cells[order], np.arange(self.n_cells))
        levels = order[first[codes]]
        for cell in np.flatnonzero(np.bincount(self.level_cells) > 1):
            members = np.flatnonzero(self.level_cells == cell)
            rows = codes == cell
            steps = np.cumsum(self.level_masses[members])
            drawn = np.searchsorted(steps, positions[rows] * steps[-1], side="right")
            levels[rows] = members[np.minimum(drawn, len(members) - 1)]
        table = np.empty(len(self.level_cells), dtype=object)
        table[: len(self.column.levels or ())] = self.column.levels
        if self.column.nullable:
            table[-1] = _missing_value(self.dtype)
        return self._restored(table[levels])

    def log_within(self, series: pd.Series) -> np.ndarray:
        return np.log(self.level_masses[level_codes(series, self.column)])

    def segments(self, condition: Any) -> Segments:
        order = np.argsort(self.level_cells, kind="stable")
        masses = self.level_masses[order]
        cells = self.level_cells[order]
        ends = np.cumsum(masses)
        starts = ends - masses
        first = np.searchsorted(cells, cells)
        last = np.searchsorted(cells, cells, side="right") - 1
        whole = ends[last] - starts[first]
        low, high = (starts - starts[first]) / whole, (ends - starts[first]) / whole
        known = list(self.column.levels or ())
        levels = pd.Series(
            [*known, None] if self.column.nullable else known, dtype=object
        )
        met = satisfies(levels, condition)[order]
        return Segments(cells[met], low[met], high[met])


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

    def segments(self, condition: Any) -> Segments:
        found: list[tuple[int, float, float]] = []
        for part in alternatives(condition):
            if is_missing(part):
                found.append((len(self.values), 0.0, 1.0))
            else:
                ends = part if isinstance(part, tuple) else (part, part)
                found += self._parts_between(*ends)
        cells, low, high = np.array(sorted(set(found)), float).reshape(-1, 3).T
        return Segments(cells.astype(np.int64), low, high)

    def _parts_between(self, first: Any, last: Any) -> list[tuple[int, float, float]]:
        """Return (cell, low, high) of the parts of cells between two values."""
        column = self.column.numbers
        ends = [
            end if is_missing(end) else self.column.count(end) for end in (first, last)
        ]
        low = column.lower if is_missing(ends[0]) else ends[0]
        high = column.upper if is_missing(ends[1]) else ends[1]
        if column.step is None and low == high:
            steps = np.clip([low], self.edges[0], self.edges[-1])
            cell = np.searchsorted(self.edges[1:-1], steps, side="right")[0]
            return [(int(cell), 0.0, 1.0)]
        low, high = max(low, column.lower), min(high, column.upper)
        if column.step is not None:
            low = math.ceil(low / column.step - 1e-6) - 0.5
            high = math.floor(high / column.step + 1e-6) + 0.5
        places = self._line.to(np.clip(self.edges, low, high))
        ends_of = self._line.to(self.edges)
        parts = []
        for k in range(len(self.values)):
            width = ends_of[k + 1] - ends_of[k]
            start = (places[k] - ends_of[k]) / width
            stop = (places[k + 1] - ends_of[k]) / width
            if not np.isnan(self.values[k]):
                is_inside = low <= self.values[k] <= high
                start, stop = (0.0, 1.0) if is_inside else (0.0, 0.0)
            if stop > start:
                parts.append((k, float(start), float(stop)))
        return parts

    def encode(self, series: pd.Series) -> np.ndarray:
        return self._located(series)[1]

    def _located(self, series: pd.Series) -> tuple[np.ndarray, ...]:
        """Return numbers in steps, their cells, and the ends of these on the line."""
        steps = in_steps(self.column, series)
        cells = np.searchsorted(self.edges[1:-1], steps, side="right")
        ends = self._line.to(self.edges)
        codes = np.where(np.isnan(steps), len(self.edges) - 1, cells)
        return steps, codes, ends[cells], ends[cells + 1]

    @property
    def _line(self) -> _Line:
        return _line_of(self.column)

    def positions(self, series: pd.Series, rng: RandomSource) -> np.ndarray:
        steps, cells, low, high = self._located(series)
        draws = rng.random(len(steps))
        if self.column.step is not None:
            steps = steps + draws - 0.5
        within = np.clip((self._line.to(steps) - low) / (high - low), 0, 1 - 2.0**-24)
        return np.where(self.atoms[cells], draws, within)

    def decode(self, codes: np.ndarray, positions: np.ndarray) -> pd.Series:
        missing = codes >= len(self.values)
        inside = np.where(missing, 0, codes)
        low, high = self.edges[inside], self.edges[inside + 1]
        ends = self._line.to(low), self._line.to(high)
        steps = self._line.back(ends[0] + positions * (ends[1] - ends[0]))
        steps = np.clip(steps, low, high)
        if self.column.step is not None:
            steps = np.clip(np.round(steps), np.ceil(low), np.floor(high))
        value = self.values[inside]
        steps = np.where(np.isnan(value), steps, value)
        return self._numbers(steps, missing)

    def _numbers(self, steps: np.ndarray, missing: np.ndarray) -> pd.Series:
        step = self.column.step
        if self.column.temporal:
            return from_units(steps, missing, self.column.unit, self.dtype)
        values = steps if step is None else steps * step
        if step is not None and abs(step * round(1 / step) - 1) < 1e-9:
            # 3 / 10, not 3 * 0.1: the number that people write.
            values = steps / round(1 / step)
        # No -0.0, which rounding makes of small negative numbers.
        values = np.clip(values, self.column.lower, self.column.upper) + 0.0
        info = _limits(self.dtype)
        if info is not None:
            values = np.clip(values, float(info.min), float(info.max))
        if not pd.api.types.is_integer_dtype(self.dtype):
            return pd.Series(np.where(missing, np.nan, values)).astype(self.dtype)
        whole = pd.Series(_as_integers(np.round(values), info))
        if missing.any():
            whole = whole.astype("UInt64" if info.min == 0 else "Int64")
            whole = whole.mask(pd.Series(missing))
        return whole.astype(self.dtype)

    def log_within(self, series: pd.Series) -> np.ndarray:
        steps, _, low, high = self._located(series)
        log_width = np.log(high - low)
        if self.column.step is None:
            log_mass = self._line.log_slope(steps)
        else:
            span = self._line.to(steps + 0.5) - self._line.to(steps - 0.5)
            # Far from 0 the difference of two large numbers gives way to the slope.
            far = np.abs(steps) > 1e6
            log_mass = np.where(
                far, self._line.log_slope(steps), np.log(np.where(far, 1.0, span))
            )
        return np.where(np.isnan(steps), 0.0, log_mass - log_width)


Settle = Callable[[Hashable, pd.Series], tuple[pd.Series, np.ndarray]]
"""From a column's name and drawn values: its values, and which of them are given."""


def _as_drawn(name: Hashable, drawn: pd.Series) -> tuple[pd.Series, np.ndarray]:
    return drawn, np.zeros(len(drawn), dtype=bool)


@dataclass(frozen=True)
class Increment:
    """A column that is learned as another one plus an increment.

    Where the other is missing, increments count from its lower bound.

    Attributes
    ----------
    low : Column
        The column below, completed by released bounds.
    whole : IntervalCodec
        The column itself, in one cell.
    least : float
        The smallest increment.
    """

    low: Column
    whole: IntervalCodec
    least: float

    @classmethod
    def fitted(cls, low: Column, high: Column, dtype: Any, strict: bool) -> Increment:
        """Return the rule for columns of which the second may have open bounds."""
        lower, upper = (0.0, 0.0) if high.lower is None else _grid_ends(high)
        half = 0.0 if high.step is None else 0.5
        edges = np.array([lower - half, upper + half])
        whole = IntervalCodec(high, dtype, np.ones(1), edges, np.full(1, np.nan))
        return cls(low, whole, least(high, strict))

    @property
    def name(self) -> Hashable:
        """Name of the column."""
        return self.whole.column.name

    def completed(self, increments: Column) -> Increment:
        """Return the rule with what follows from the increments that were released."""
        dtype = self.whole.dtype
        high = replace(self.whole.column, nullable=increments.nullable)
        if high.lower is not None:
            return replace(self, whole=replace(self.whole, column=high))
        first, added = self.low.numbers, increments.numbers
        factor = scale(self.low, high)
        ends = [factor * first.lower + added.lower, factor * first.upper + added.upper]
        if high.kind == "datetime":
            ends = np.clip(ends, *year_starts(high.unit)[[0, -1]]).tolist()
        elif high.temporal:
            most = LONGEST_DAYS * PER_DAY[high.unit]
            ends = np.clip(ends, -most, most).tolist()
        elif (info := _limits(dtype)) is not None:
            ends = np.clip(ends, float(info.min), float(info.max)).tolist()
        bounded = high.bounded(*ends)
        rule = Increment.fitted(self.low, bounded, dtype, False)
        return replace(rule, least=self.least)

    def _base(self, values: np.ndarray) -> np.ndarray:
        """Return numbers of the column below in those of the column."""
        present = np.where(np.isnan(values), self.low.numbers.lower, values)
        return scale(self.low, self.whole.column) * present

    def apart(self, frame: pd.DataFrame) -> pd.Series:
        """Return the increments of a table: private."""
        column = self.whole.column
        steps = in_steps(self.low, frame[self.low.name])
        numbers = as_numbers(column, frame[column.name])
        numbers = np.where(np.isinf(numbers), np.nan, numbers)
        if column.lower is not None:
            facts = column.numbers
            numbers = np.clip(numbers, facts.lower, facts.upper)
        step = self.low.numbers.step or 1.0
        with np.errstate(over="ignore"):
            added = numbers - self._base(steps * step)
        added = np.clip(added, self.least, np.finfo(float).max)
        if not column.temporal:
            return pd.Series(added)
        missing = np.isnan(added)
        counts = np.where(missing, 0.0, added)
        return from_units(counts, missing, column.unit, np.dtype("m8[us]"))

    @property
    def invertible(self) -> bool:
        """Whether the column less an increment is on the grid of the one below."""
        high = self.whole.column
        return scale(self.low, high) == 1 and self.low.step == high.step

    def below(
        self, codec: Codec, high: pd.Series, added: pd.Series
    ) -> tuple[pd.Series, np.ndarray]:
        """Return the column below by its codec, and which values are in its bounds."""
        assert isinstance(codec, IntervalCodec)
        column = self.whole.column
        numbers = as_numbers(column, high) - as_numbers(column, added)
        steps = np.round(numbers / step) if (step := self.low.step) else numbers
        inside = np.clip(steps, *_grid_ends(self.low))
        values = np.where(np.isnan(inside), _grid_ends(self.low)[0], inside)
        return codec._numbers(values, np.zeros(len(values), bool)), inside == steps

    def joined(self, low: pd.Series, added: pd.Series) -> tuple[pd.Series, np.ndarray]:
        """Return the column, and which of its values lie within its bounds."""
        column = self.whole.column
        numbers = as_numbers(column, added) + self._base(as_numbers(self.low, low))
        missing = np.isnan(numbers)
        steps = numbers
        if (step := column.numbers.step) is not None:
            steps = np.round(numbers / step)
        ends = _grid_ends(column)
        inside = np.clip(steps, *ends)
        values = self.whole._numbers(np.where(missing, ends[0], inside), missing)
        return values, missing | (inside == steps)


@dataclass(frozen=True)
class TableTransformer:
    """Cells of all columns of a table.

    Attributes
    ----------
    codecs : tuple of Codec
        One per column, in order; of increments where a column is learned as such.
    increments : tuple of Increment
        Columns that are learned as increments, after those that they are built on.
    """

    codecs: tuple[Codec, ...]
    increments: tuple[Increment, ...] = ()

    @classmethod
    def fit(
        cls,
        frame: pd.DataFrame,
        schema: Schema,
        mechanisms: Mechanisms,
        *,
        n_rows: int,
        multiplier: float,
        delta: float,
        n_bins: int,
        informed: bool = True,
        with_missing: Collection[Hashable] = (),
    ) -> TableTransformer:
        """Release the one-way marginals of a table.

        Parameters
        ----------
        frame : DataFrame
            The private rows.
        schema : Schema
            One column per column of `frame` (`Schema.resolve`), and constraints, of
            which those of order decide what is learned as an increment.
        mechanisms : Mechanisms
            The door through which every count is released.
        n_rows : int
            The released row count.
        multiplier : float
            Noise multiplier of all releases together; 0 for no privacy.
        delta : float
            Paid for the keys of columns that `has_open_keys`.
        n_bins : int
            Number of intervals aimed at per numeric column.
        informed : bool, default=True
            False releases domains only: uniform masses and one interval per numeric
            column (the paper's model, which is not anchored at the marginals).
        with_missing : collection of hashable
            Names of columns in which missing values are known to occur: they keep
            their cell, however few were counted.

        Returns
        -------
        TableTransformer
        """
        rules = increments_of(schema)
        learned = learned_columns(schema)
        n_open = sum(has_open_keys(c, informed) for c in learned.values())
        noise = column_stds(schema, multiplier, n_bins)
        stds = dict(zip(learned, noise, strict=True))
        codecs: dict[Hashable, Codec] = {}
        whole: dict[Hashable, Column] = {}
        increments = []
        for name in [*(name for name in learned if name not in rules), *rules]:
            fitter = _Fitter(
                mechanisms, n_rows, stds[name], delta, n_open, n_bins, informed,
                may_lose_missing=name not in with_missing,
            )  # fmt: skip
            dtype = _dtype_with_levels(schema[name], frame[name].dtype)
            series = frame[name]
            if name in rules:
                low, strict = whole[rules[name].low], rules[name].strict
                increment = Increment.fitted(low, schema[name], dtype, strict)
                series = increment.apart(frame)
                dtype = series.dtype
            codecs[name] = fitter.fit(learned[name], dtype, series)
            whole[name] = codecs[name].column
            if name in rules:
                increments.append(increment.completed(codecs[name].column))
                whole[name] = increments[-1].whole.column
        return cls(tuple(codecs[name] for name in learned), tuple(increments))

    @property
    def schema(self) -> Schema:
        """The schema completed by what was released."""
        return Schema(codec.column for codec in self.outer)

    @property
    def outer(self) -> tuple[Codec, ...]:
        """Codecs of the columns themselves, of one cell for those of increments."""
        whole: dict[Hashable, Codec] = {i.name: i.whole for i in self.increments}
        return tuple(whole.get(c.column.name, c) for c in self.codecs)

    def place(self, name: Hashable) -> int:
        """Return the place of a column."""
        return [codec.column.name for codec in self.codecs].index(name)

    def learned(self, frame: pd.DataFrame) -> list[pd.Series]:
        """Return what the codecs read of a table, one column each: private."""
        rules = {each.name: each for each in self.increments}
        names = [codec.column.name for codec in self.codecs]
        return [rules[n].apart(frame) if n in rules else frame[n] for n in names]

    def encode(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the cell of every entry, shape (n, d): private."""
        most = max(codec.n_cells for codec in self.codecs)
        shape = (len(frame), len(self.codecs))
        codes = np.empty(shape, dtype=np.uint8 if most <= 256 else np.int32)
        for j, series in enumerate(self.learned(frame)):
            codes[:, j] = self.codecs[j].encode(series)
        return codes

    def positions(self, frame: pd.DataFrame, rng: RandomSource) -> np.ndarray:
        """Return the position of every entry within its cell, float32 of (n, d)."""
        positions = np.empty((len(frame), len(self.codecs)), dtype=np.float32)
        for j, series in enumerate(self.learned(frame)):
            positions[:, j] = self.codecs[j].positions(series, rng)
        return np.minimum(positions, np.float32(1 - 2.0**-24))

    def arrays(self, frame: pd.DataFrame) -> list[np.ndarray]:
        """Return all that models may see of a table: private."""
        return [self.encode(frame), self.positions(frame, np.random.default_rng(0))]

    def decode(self, codes: np.ndarray, positions: np.ndarray) -> pd.DataFrame:
        """Return the table of given cells and positions, both of shape (n, d)."""
        return self.rows(codes, positions)[0]

    def rows(
        self, codes: np.ndarray, positions: np.ndarray, settle: Settle = _as_drawn
    ) -> tuple[pd.DataFrame, np.ndarray]:
        """Return the table of given cells, and which rows are within all bounds.

        Parameters
        ----------
        codes, positions : ndarray of shape (n, d)
        settle : callable, optional
            Puts values that are given in place of drawn ones, before others are built
            on them.

        Returns
        -------
        frame : DataFrame
        inside : ndarray of bool of shape (n,)
            Sums with an increment can be beyond the bounds, to which they are moved.
        """
        names = [codec.column.name for codec in self.codecs]
        drawn: dict[Hashable, pd.Series] = {}
        for j, codec in enumerate(self.codecs):
            drawn[names[j]] = codec.decode(
                codes[:, j].astype(np.int64), positions[:, j]
            )
        rules = {each.name for each in self.increments}
        for name in names:
            if name not in rules:
                drawn[name], _ = settle(name, drawn[name])
        inside = np.ones(len(codes), dtype=bool)
        for each in self.increments:
            sums, fits = each.joined(drawn[each.low.name], drawn[each.name])
            drawn[each.name], given = settle(each.name, sums)
            inside &= fits | given
        frame = pd.DataFrame({j: drawn[name] for j, name in enumerate(names)})
        return frame.set_axis(labels(names), axis=1), inside

    def log_within(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the log-density of every row given its cells, shape (n,)."""
        pairs = zip(self.codecs, self.learned(frame), strict=True)
        return np.sum([codec.log_within(series) for codec, series in pairs], axis=0)


@dataclass(frozen=True)
class _Fitter:
    """Releases the marginal of one column; `std` is that of its budget as one count."""

    mechanisms: Mechanisms
    n_rows: int
    std: float
    delta: float
    n_open: int
    n_bins: int
    informed: bool
    may_lose_missing: bool

    def fit(self, column: Column, dtype: Any, series: pd.Series) -> Codec:
        if column.numeric:
            return self._numeric(column, dtype, series)
        if column.levels is None:
            return self._open_levels(column, dtype, series)
        return self._levels(column, dtype, series)

    def _after_domain(self) -> _Fitter:
        share = 1 - DOMAIN_SHARE if self.informed else 1.0
        return replace(self, std=self.std / math.sqrt(share))

    def _domain_std(self) -> float:
        return self.std / math.sqrt(DOMAIN_SHARE if self.informed else 1.0)

    def _released(self, exact: np.ndarray, std: float) -> np.ndarray:
        """Release counts of cells, of which a row is in one."""
        return self.mechanisms.gaussian(exact, std, release=RELEASE, sensitivity=1.0)

    # Levels ---------------------------------------------------------------------

    def _open_levels(self, column: Column, dtype: Any, series: pd.Series) -> Codec:
        std = self._domain_std()
        threshold = threshold_for(std, self.delta, self.n_open) if std else 0.0
        counts = Counter(key for key in _keys(series) if key is not None)
        released = self.mechanisms.thresholded(counts, std, threshold, release=RELEASE)
        levels: tuple[Any, ...] = tuple(key[1] for key in released)
        if not levels and column.other is None:
            levels = NO_NUMBERS if is_real_dtype(dtype) else NO_LEVELS
        column = replace(column, levels=levels)
        return self._after_domain()._levels(column, dtype, series, bool(released))

    def _levels(
        self,
        column: Column,
        dtype: Any,
        series: pd.Series,
        may_lose_other: bool = False,
    ) -> Codec:
        assert column.levels is not None
        n_levels = len(column.levels) + bool(column.nullable)
        if not self.informed:
            masses = np.full(n_levels, 1 / n_levels)
            cells = np.arange(n_levels)
            return LevelCodec(column, dtype, masses, cells, np.ones(n_levels))
        exact = np.bincount(level_codes(series, column), minlength=n_levels)
        noisy = self._released(exact, self.std)
        column, noisy = self._without_empty(column, noisy, may_lose_other)
        counts = project_to_simplex(noisy, self.n_rows)
        cells = self._pooled(column, counts)
        shared = np.bincount(cells)[cells] > 1
        totals = np.bincount(cells, weights=counts)
        if self.std and shared.any():
            counts[shared] = supposed_counts(noisy[shared], self.std, counts[shared])
        least = SEEN_NOISE * self.std
        absent = counts < np.where(shared, min(least, SEEN_SHARE * self.n_rows), least)
        absent[-1] &= not column.nullable  # missing values that have a cell occur
        shares = np.where(absent, UNSEEN, np.maximum(counts, UNSEEN))
        shares /= np.bincount(cells, weights=shares)[cells]
        # A shared cell keeps the rows of its absent levels; so do levels in an order.
        if not column.ordered:
            totals[cells[absent & ~shared]] = 0.0
        return LevelCodec(
            column, dtype, self._masses(totals, bool(column.nullable)), cells, shares
        )

    def _without_empty(
        self, column: Column, noisy: np.ndarray, may_lose_other: bool
    ) -> tuple[Column, np.ndarray]:
        """Return the column without 'missing' and `other` where none were counted."""
        levels = column.levels or ()
        empty = noisy <= EMPTY_NOISE * self.std
        # A category dtype without any level has nothing else.
        may_lose_missing = self.may_lose_missing and levels != NO_LEVELS
        if column.nullable and may_lose_missing and empty[-1]:
            column, noisy = replace(column, nullable=False), noisy[:-1]
        if may_lose_other and column.other is not None:
            place = levels.index(column.other)
            if empty[place]:
                rest = (*levels[:place], *levels[place + 1 :])
                column = replace(column, levels=rest, other=None)
                noisy = np.delete(noisy, place)
        return column, noisy

    def _masses(self, counts: np.ndarray, nullable: bool) -> np.ndarray:
        least = np.full(len(counts), 0.1)
        if nullable:
            least[-1] = UNSEEN
        floored = np.maximum(counts, least)
        return floored / floored.sum()

    def _pooled(self, column: Column, counts: np.ndarray) -> np.ndarray:
        """Give every frequent level a cell of its own, and all others one together."""
        rare = counts < max(POOL_NOISE * self.std, 1.0)
        if column.nullable:
            rare[-1] = False
        if column.ordered or rare.sum() < 2:
            return np.arange(len(counts))
        cells = np.zeros(len(counts), dtype=np.int64)
        cells[~rare] = np.arange(1, (~rare).sum() + 1)
        return cells

    # Numbers --------------------------------------------------------------------

    def _numeric(
        self, column: Column, dtype: Any, series: pd.Series, may_end: bool = False
    ) -> Codec:
        if column.lower is None:
            lower, upper = self._bounds(column, dtype, series)
            bounded = column.bounded(lower, upper)
            may_end = column.step is not None and not column.temporal
            return self._after_domain()._numeric(bounded, dtype, series, may_end)
        grid = _grid(column)
        if not self.informed:
            return self._one_interval(column, dtype, grid)
        steps = in_steps(column, series)
        spared = 1 - SPIKE_SHARE if column.step is None else 1.0
        fitter = replace(self, std=self.std / math.sqrt(spared))
        counts, starts, heavy, stop = fitter._split(
            grid, steps, bool(column.nullable), may_end
        )
        column = replace(column, nullable=len(counts) > len(starts))
        if stop - starts[0] < len(grid) - 1:
            grid, starts = grid[starts[0] : stop + 1], starts - starts[0]
            column = _bounded_by(column, grid[0], grid[-1])
            steps = in_steps(column, series)
        ends = _line_of(column).to(grid)
        counts, starts, heavy = self._cut_evenly(ends, counts, starts, heavy)
        edges = grid[np.append(starts, len(grid) - 1)]
        if column.step is None:
            values = self._spikes(steps, edges, heavy, counts)
        else:
            values = _atom_values(column, edges, heavy)
        return IntervalCodec(
            column, dtype, fitter._masses(counts, bool(column.nullable)), edges, values
        )

    def _spikes(
        self,
        steps: np.ndarray,
        edges: np.ndarray,
        heavy: np.ndarray,
        rows: np.ndarray,
    ) -> np.ndarray:
        """Release the value of every heavy interval that most of its rows share."""
        std = self.std / math.sqrt(SPIKE_SHARE)
        threshold = threshold_for(std, self.delta, self.n_open) if std else 0.0
        steps = steps[~np.isnan(steps)] + 0.0  # one zero
        cells = np.searchsorted(edges[1:-1], steps, side="right")
        exact = zip(*np.unique(steps[heavy[cells]], return_counts=True), strict=True)
        counts: dict[Key, int] = {("float", float(v)): int(n) for v, n in exact}
        released = self.mechanisms.thresholded(counts, std, threshold, release=RELEASE)
        values = np.full(len(heavy), np.nan)
        for (_, value), count in released.items():
            cell = np.searchsorted(edges[1:-1], value, side="right")
            if count > rows[cell] / 2:
                values[cell] = value
        return values

    def _one_interval(self, column: Column, dtype: Any, grid: np.ndarray) -> Codec:
        edges = grid[[0, -1]]
        masses = np.full(1 + bool(column.nullable), 1 / (1 + bool(column.nullable)))
        values = np.full(1, np.nan)
        if column.step is not None:
            values = _atom_values(column, edges, np.zeros(1, dtype=bool))
        return IntervalCodec(column, dtype, masses, edges, values)

    def _bounds(
        self, column: Column, dtype: Any, series: pd.Series
    ) -> tuple[float, float]:
        """Release the outermost magnitudes, or years, that hold rows."""
        values = as_numbers(column, series)
        values = values[np.isfinite(values)]
        if column.step is not None:
            with np.errstate(over="ignore"):  # huge ones are in the outermost cells
                values = np.round(values / column.step) * column.step
        is_instant = column.kind == "datetime"
        ends = year_starts(column.unit) if is_instant else _MAGNITUDES
        info = _limits(dtype)
        possible = np.ones(len(ends) - 1, dtype=bool)
        if info is not None:
            possible = ends[1:] > float(info.min)
            possible &= ends[:-1] < float(info.max)
        if column.step is not None:
            possible &= _first(ends[:-1], column.step) < _first(ends[1:], column.step)
        cells = np.searchsorted(ends, values, side="right") - 1
        cells = np.clip(cells, 0, len(ends) - 2)
        exact = np.bincount(cells, minlength=len(ends) - 1)
        std = self._domain_std()
        noisy = self._released(exact, std)
        places = np.flatnonzero(possible)
        first, last = outermost(noisy[places], std)
        if last < 0:
            return 0.0, 1.0
        lower, upper = ends[places[first]], ends[places[last] + 1]
        if is_instant:
            return float(lower), float(upper) - 1
        # The innermost magnitude stands for 0.
        lower = 0.0 if lower == -_MAGNITUDES[len(_EXPONENTS)] else lower
        upper = 0.0 if upper == _MAGNITUDES[len(_EXPONENTS)] else upper
        if column.step is not None:
            lower = _first(lower, column.step) * column.step
            # A magnitude does not hold its upper end.
            inside = (_first(upper, column.step) - 1) * column.step
            upper = max(lower, inside if upper else 0.0)
        if column.temporal:
            most = LONGEST_DAYS * PER_DAY[column.unit]
            lower, upper = np.clip([lower, upper], -most, most)
        if info is not None:
            lower, upper = max(lower, float(info.min)), min(upper, float(info.max))
        return float(lower), float(upper)

    def _split(
        self, grid: np.ndarray, steps: np.ndarray, nullable: bool, may_end: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """Halve the grid where noisy counts say so, then count what came of it.

        Returns
        -------
        counts : ndarray
            Noisy rows per interval, then those missing, if there are any.
        starts : ndarray
            First grid cell of every interval.
        heavy : ndarray of bool
            Intervals that would have been halved, had they more than one grid cell.
        stop : int
            End of the last interval: with `may_end`, intervals at the ends are left
            out where rows end before them.
        """
        present = ~np.isnan(steps)
        cells = np.searchsorted(grid[1:-1], steps[present], side="right")
        fine = np.bincount(cells, minlength=len(grid) - 1)
        below = np.append(0, np.cumsum(fine))
        n_missing = len(steps) - below[-1]

        n_levels = (len(grid) - 2).bit_length()
        # Variances in units of that of the column's budget as one count.
        rough = max(n_levels + nullable, 1) / STRUCTURE_SHARE
        fair = 1 / (1 - STRUCTURE_SHARE)
        std = self.std * math.sqrt(rough)
        root = _Interval(0, len(grid) - 1, float(self.n_rows))
        missing = _Interval(0, 0, 0.0)
        if nullable:
            exact = np.array([below[-1], n_missing])
            noisy = self._released(exact, std)
            whole = project_to_simplex(noisy, self.n_rows)
            root = _Interval(0, len(grid) - 1, whole[0], noisy[0], rough)
            missing = _Interval(0, 0, whole[1], noisy[1], rough)
        least = max(SPLIT_SIZE * root.supposed / self.n_bins, SPLIT_NOISE * std)
        leaves = self._leaves(root, n_levels, below, least, std, rough)

        starts = np.array([interval.start for interval in leaves])
        ends = np.append(starts, len(grid) - 1)
        exact = np.append(np.diff(below[ends]), n_missing)
        counted = [*leaves, missing] if nullable else leaves
        noisy = self._released(exact[: len(counted)], self.std * math.sqrt(fair))
        for interval, count in zip(counted, noisy, strict=True):
            interval.add(count, fair)
        whole = project_to_simplex(
            np.array([root.gather(), missing.count])[: 1 + nullable], self.n_rows
        )
        std = self.std * math.sqrt(missing.variance) if nullable else 0.0
        if nullable and self.may_lose_missing and missing.count <= EMPTY_NOISE * std:
            whole = np.array([self.n_rows], dtype=float)
        kept = self._occupied(leaves) if may_end else slice(0, len(leaves))
        root.spread(whole[0])
        counts = np.array([interval.count for interval in leaves[kept]])
        heavy = (np.diff(ends)[kept] == 1) & (counts > least)
        stop = leaves[kept][-1].stop
        return np.append(counts, whole[1:]), starts[kept], heavy, stop

    def _occupied(self, leaves: list[_Interval]) -> slice:
        """Return the intervals between the ends of the rows."""
        counts = np.array([interval.count for interval in leaves])
        stds = self.std * np.sqrt([interval.variance for interval in leaves])
        widths = np.array([interval.stop - interval.start for interval in leaves])
        first = n_beyond(counts[::-1], stds[::-1], widths[::-1])
        last = len(leaves) - n_beyond(counts[first:], stds[first:], widths[first:])
        return slice(first, last)

    def _cut_evenly(
        self,
        ends: np.ndarray,
        counts: np.ndarray,
        starts: np.ndarray,
        heavy: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cut intervals that hold many of a column's numbers into even pieces.

        Nothing is counted: pieces share the rows as positions inside the interval did.
        But the model can tell them apart, and where noise leaves room for five counts
        the numbers still say more than five cells about another column.

        Parameters
        ----------
        ends : ndarray
            Edges of the grid, on the line where intervals are even.
        counts, starts, heavy : ndarray
            As `_split` returns them.

        Returns
        -------
        counts, starts, heavy : ndarray
        """
        present = counts[: len(starts)]
        most = SPLIT_SIZE * max(present.sum(), 1.0) / self.n_bins
        cuts, shares = [], []
        for start, stop, count in zip(
            starts, np.append(starts[1:], len(ends) - 1), present, strict=True
        ):
            n_pieces = max(math.ceil(count / most - 1e-9), 1)
            even = np.linspace(ends[start], ends[stop], n_pieces + 1)[:-1]
            own = start + np.unique(np.searchsorted(ends[start:stop], even))
            own = own[own < stop]
            lengths = np.diff(ends[np.append(own, stop)])
            cuts.append(own)
            shares.append(count * lengths / lengths.sum() if len(own) > 1 else [count])
        whole = np.concatenate([*shares, counts[len(starts) :]])
        return whole, np.concatenate(cuts), np.repeat(heavy, [len(c) for c in cuts])

    def _leaves(
        self, root: _Interval, n_levels: int, below: np.ndarray, least: float,
        std: float, rough: float,
    ) -> list[_Interval]:  # fmt: skip
        """Halve intervals of more than `least` rows, at most as often as is paid for.

        Returns
        -------
        list of _Interval
            Those left, in order.
        """
        leaves = []
        level = [root]
        for _ in range(n_levels):
            chosen = [i for i in level if i.stop - i.start > 1 and i.supposed > least]
            leaves += [i for i in level if i not in chosen]
            level = self._halve(chosen, below, std, rough) if chosen else []
        leaves += level
        return sorted(leaves, key=lambda interval: interval.start)

    def _halve(
        self, chosen: list[_Interval], below: np.ndarray, std: float, variance: float
    ) -> list[_Interval]:
        """Halve every interval given; return the halves."""
        ends = [(i.start, (i.start + i.stop) // 2, i.stop) for i in chosen]
        noisy = self._released(np.diff(below[np.array(ends)], axis=1), std)
        for interval, (start, middle, stop), pair in zip(
            chosen, ends, noisy, strict=True
        ):
            low, high = project_to_simplex(pair, interval.supposed)
            interval.halves = [
                _Interval(start, middle, low, pair[0], variance),
                _Interval(middle, stop, high, pair[1], variance),
            ]
        return [half for interval in chosen for half in interval.halves]


@dataclass(eq=False)
class _Interval:
    """Grid cells from `start` to `stop` in the tree of halvings, and their noisy count.

    `supposed` is the count that decided on halving; `count` has the variance given.
    """

    start: int
    stop: int
    supposed: float
    count: float = 0.0
    variance: float = math.inf
    halves: list[_Interval] = field(default_factory=list)

    def add(self, count: float, variance: float) -> None:
        """Join a second, independent count by inverse variance."""
        own = variance / (variance + self.variance)
        self.count = own * self.count + (1 - own) * count
        self.variance = (1 - own) * variance

    def gather(self) -> float:
        """Join every count with those below it; return the count of the whole."""
        if self.halves:
            counts = [half.gather() for half in self.halves]
            self.add(sum(counts), sum(half.variance for half in self.halves))
        return self.count

    def spread(self, total: float) -> None:
        """Set the count to `total` and bring those below into line, none negative."""
        if self.halves:
            counts = np.array([half.count for half in self.halves])
            variances = np.array([half.variance for half in self.halves])
            counts += (total - counts.sum()) * variances / variances.sum()
            for half, count in zip(
                self.halves, project_to_simplex(counts, total), strict=True
            ):
                half.spread(count)
        self.count = float(total)


def identifiers(
    column: Column, n: int, dtype: Any, rng: np.random.Generator
) -> pd.Series:
    """Return n distinct identifiers: 1 to n, written as the column says."""
    numbers = range(1, n + 1)
    if column.kind == "integer":
        info = _limits(dtype)
        if info is not None and n > info.max:
            raise ValueError(
                f"Column {column.name!r}: {dtype} holds no {n} distinct identifiers. "
                "Draw fewer rows, or fit the column in a wider dtype."
            )
        return pd.Series(numbers).astype(dtype)
    if column.format == "uuid":
        made = [str(uuid.UUID(bytes=rng.bytes(16), version=4)) for _ in numbers]
    else:
        made = [(column.format or "{}").format(number) for number in numbers]
    return pd.Series(made, dtype=object).astype(dtype)


def has_open_keys(column: Column, informed: bool = True) -> bool:
    """Return whether fitting a column releases keys by a threshold, paid by delta."""
    if column.numeric:
        return informed and column.step is None
    return column.levels is None


def column_stds(schema: Schema, multiplier: float, n_bins: int) -> list[float]:
    """Return the noise of every column's budget, as the deviation of one count."""
    columns = learned_columns(schema).values()
    weights = [expected_cells(c, n_bins) ** (2 / 3) for c in columns]
    return [multiplier * math.sqrt(sum(weights) / weight) for weight in weights]


def count_std(column: Column, std: float) -> float:
    """Return the standard deviation of the counts of a column's cells.

    Parameters
    ----------
    column : Column
        As stated: what finds its bounds or levels is taken out of its budget.
    std : float
        Of its whole budget (`column_stds`).
    """
    is_open = column.lower is None if column.numeric else column.levels is None
    share = 1 - DOMAIN_SHARE if is_open else 1.0
    if column.numeric:
        share *= 1 - STRUCTURE_SHARE
        share *= 1 - SPIKE_SHARE if column.step is None else 1.0
    return std / math.sqrt(share)


def expected_cells(column: Column, n_bins: int) -> float:
    """Return how many cells a column may get, by what is public."""
    if not column.numeric:
        n_levels = OPEN_LEVELS if column.levels is None else len(column.levels)
        return n_levels + bool(column.nullable)
    if column.lower is None or column.step is None:
        return n_bins
    low, high = _grid_ends(column)
    return min(n_bins, high - low + 1)


def as_numbers(column: Column, series: pd.Series) -> np.ndarray:
    """Return numbers, or times in units, NaN where missing."""
    if column.temporal:
        return to_units(series, column.unit)
    return floats(series)


def in_steps(column: Column, series: pd.Series) -> np.ndarray:
    """Return a numeric column in steps, inside its bounds; NaN where missing.

    Values off the grid go to the nearest grid point, infinite ones count as missing,
    and missing ones become the lower bound where the column is not nullable.
    """
    values = as_numbers(column, series)
    column = column.numbers
    assert column.lower is not None
    values = np.where(np.isinf(values), np.nan, values)
    values = np.clip(values, column.lower, column.upper)
    if not column.nullable:
        values = np.where(np.isnan(values), column.lower, values)
    if column.step is None:
        return values
    return np.clip(np.round(values / column.step), *_grid_ends(column))


def floats(series: pd.Series) -> np.ndarray:
    """Return numbers in float64; a warning of those too large would speak of values."""
    with np.errstate(over="ignore"):
        return series.to_numpy(float, na_value=np.nan)


def level_indices(series: pd.Series, levels: Sequence[Hashable]) -> np.ndarray:
    """Return the position of every value among the levels, -1 where it is not one."""
    by_value = {level: i for i, level in reversed(list(enumerate(levels)))}
    if isinstance(series.dtype, pd.CategoricalDtype):
        found = [by_value.get(value, -1) for value in series.dtype.categories]
        return np.array([*found, -1], dtype=int)[series.cat.codes.to_numpy()]
    if holds_objects(series.dtype):
        by_key = {_key(level): i for i, level in enumerate(levels)}
        keys = _keys(series)
        return np.array(
            [
                -1 if key is None else by_key.get(key, by_value.get(key[1], -1))
                for key in keys
            ],
            dtype=int,
        )
    with np.errstate(over="ignore"):
        places, uniques = pd.factorize(series)
    table = np.array([by_value.get(value, -1) for value in uniques] + [-1], dtype=int)
    return table[places]


def level_codes(series: pd.Series, column: Column) -> np.ndarray:
    """Return the position of every value among the levels of a column.

    Values that are no level count as `other` or, without one, as missing: the position
    after the last level. Missing values of a column that has none count as `other` or
    as the first level.
    """
    assert column.levels is not None
    other = None if column.other is None else column.levels.index(column.other)
    nothing = len(column.levels) if column.nullable else other or 0
    found = level_indices(series, column.levels)
    unknown = np.flatnonzero(found < 0)
    found[unknown] = nothing
    if other is not None:
        rest = series.iloc[unknown]
        if rest.dtype == object:
            usable = np.array([key is not None for key in _keys(rest)], dtype=bool)
        else:
            usable = rest.notna().to_numpy(bool)
        found[unknown[usable]] = other
    return found


def _dtype_with_levels(column: Column, dtype: Any) -> Any:
    """Return the dtype of new values: of categories, where those stated are others."""
    levels = column.levels
    if not isinstance(dtype, pd.CategoricalDtype) or levels in (None, NO_LEVELS):
        return dtype
    if set(levels) <= set(dtype.categories):
        return dtype
    return pd.CategoricalDtype(labels(levels), ordered=column.ordered)


def distinct_values(series: pd.Series) -> tuple[Hashable, ...]:
    """Return the values of a column that can be levels, once each and in order."""
    keys = {key for key in _keys(series) if key is not None}
    return tuple(key[1] for key in sorted(keys, key=lambda key: (key[0], key[1])))


def _keys(series: pd.Series) -> list[Key | None]:
    return [_key(value) for value in series.array]


def _key(value: Any) -> Key | None:
    """Return what tells values of an object column apart; None for the unusable.

    Equal values of one type have one key, so that which of them came first in the table
    (0.0 or -0.0) does not show.
    """
    own = plain(value)
    if own is None or own != own or type(own) is int and abs(own) >= 2**63:
        return None
    return type(own).__name__, own + 0.0 if type(own) is float else own


@dataclass(frozen=True)
class _Line:
    """The scale on which intervals are even: asinh, or linear from an origin.

    Bounds far from 0 next to their distance have no decades between them, and their
    asinh would cancel.
    """

    origin: float | None

    def to(self, steps: np.ndarray) -> np.ndarray:
        return np.arcsinh(steps) if self.origin is None else steps - self.origin

    def back(self, places: np.ndarray) -> np.ndarray:
        return np.sinh(places) if self.origin is None else places + self.origin

    def log_slope(self, steps: np.ndarray) -> np.ndarray:
        flat = np.zeros_like(steps)
        return -np.log(np.hypot(1, steps)) if self.origin is None else flat


def _line_of(column: Column) -> _Line:
    low, high = _grid_ends(column)
    if column.kind == "datetime":
        return _Line(low)
    same_sign = low > 0 or high < 0
    near, far = sorted([abs(low), abs(high)])
    return _Line(low if same_sign and far < LINEAR_RATIO * near else None)


def _grid_ends(column: Column) -> tuple[float, float]:
    """Return the bounds in steps, on the grid where there is one."""
    column = column.numbers
    assert column.lower is not None
    assert column.upper is not None
    if column.step is None:
        return column.lower, column.upper
    low, high = column.lower / column.step, column.upper / column.step
    return float(math.ceil(low - 1e-6)), float(math.floor(high + 1e-6))


def _bounded_by(column: Column, low: float, high: float) -> Column:
    """Return the column with bounds on its grid, between edges of it."""
    assert column.step is not None
    first, last = math.ceil(low), math.floor(high)
    return column.bounded(first * column.step, last * column.step)


def _first(ends: Any, step: float) -> Any:
    """Return the first multiples of a step that are not below the numbers given."""
    steps = ends / step
    return np.ceil(steps - 1e-9 * np.abs(steps))


def _grid(column: Column) -> np.ndarray:
    """Return the public edges between which cells are cut."""
    low, high = _grid_ends(column)
    if column.step is not None:
        # Beyond 2^52 there are no halves between whole numbers of float64.
        if high - low < FINE_GRID and max(-low, high) < 2.0**52:
            return np.arange(low, high + 2) - 0.5
        grid = _even_grid(column, low - 0.5, high + 0.5, LATTICE_DEPTH)
        grid[1:-1] = np.floor(grid[1:-1]) + 0.5
        return np.unique(np.clip(grid, grid[0], grid[-1]))
    return _even_grid(column, low, high, CONTINUOUS_DEPTH)


def _even_grid(column: Column, low: float, high: float, depth: int) -> np.ndarray:
    if low == high:
        low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    line = _line_of(column)
    ends = line.to(np.array([low, high]))
    with np.errstate(over="ignore"):  # the ends themselves take the place of inf
        grid = line.back(np.linspace(ends[0], ends[1], 2**depth + 1))
    grid = np.clip(grid, low, high)
    grid[[0, -1]] = low, high
    return np.unique(grid)


def _atom_values(column: Column, edges: np.ndarray, heavy: np.ndarray) -> np.ndarray:
    """Return the single number an interval of a grid stands for, NaN if it has more."""
    values = (edges[:-1] + edges[1:]) / 2
    values[np.diff(edges) > 1] = np.nan
    low, high = _grid_ends(column)
    for k in np.flatnonzero(heavy & np.isnan(values)):
        start, stop = max(edges[k], low), min(edges[k + 1], high)
        first, last = math.ceil(start), math.floor(stop)
        values[k] = (
            _roundest_time(column, first, last)
            if column.temporal
            else roundest(first, last)
        )
    return values


def _roundest_time(column: Column, first: int, last: int) -> float:
    """Return the first whole day, hour, minute or second between two counts."""
    for unit in ("D", "h", "min", "s"):
        length = max(1, PER_DAY[column.unit] // PER_DAY[unit])
        if (whole := -(-first // length) * length) <= last:
            return float(whole)
    return float(first)


def _limits(dtype: Any) -> Any:
    """Return the ends of a number type, None where it holds no numbers."""
    scale = decimal_scale(dtype)
    if scale is not None:
        # A little below, since the ends are no floats.
        most = 10.0 ** (dtype.pyarrow_dtype.precision - scale) * (1 - 1e-15)
        most -= 10.0**-scale
        return SimpleNamespace(min=-most, max=most)
    plain = getattr(dtype, "numpy_dtype", dtype)
    if not isinstance(plain, np.dtype) or plain.kind not in "iuf":
        return None
    return np.finfo(plain) if plain.kind == "f" else np.iinfo(plain)


def _missing_value(dtype: Any) -> Any:
    if pd.api.types.is_object_dtype(dtype) or isinstance(dtype, pd.CategoricalDtype):
        return None
    return np.nan if isinstance(dtype, np.dtype) else pd.NA


def _as_integers(values: np.ndarray, info: Any) -> np.ndarray:
    """Return whole numbers in the integer type of `info`, its ends for those beyond."""
    kind = np.uint64 if info.min == 0 else np.int64
    inside = (values > info.min) & (values < info.max)
    whole = np.where(inside, values, 0).astype(kind)
    ends = np.where(values > 0, kind(info.max), kind(info.min))
    return np.where(inside, whole, ends)
