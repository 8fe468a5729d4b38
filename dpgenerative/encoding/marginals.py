"""The private release of one-way marginals: everything the cells of a table cost.

Every column is cut into *cells*: one per frequent level or value, one for the rare
levels of a nominal column together, intervals of a numeric column, one for 'missing'.

Formal guarantee: the releases of all columns together are one Gaussian mechanism of the
noise multiplier given: a row is counted once in every histogram, so that histograms
with standard deviations s_1, s_2, ... have multiplier ``(sum 1 / s_k^2)^(-1/2)``. Their
number and their standard deviations are fixed before the first count. (Keys - strings
without known levels, values that many rows of a continuum or a coarse grid share - cost
a delta besides: `noise.threshold_for`.)

A numeric column spends a part of its budget (`shares`) on splitting a grid into its
cells, and the rest on counting them; weighted least squares combines all counts of a
tree (`estimates`). What far more rows share than the values beside it gets a cell of
its own: of a continuum or a coarse grid (of over a million values) as a released key,
of another grid by a count of every value or, of few rows, of the bounds and 0. Large
intervals are then cut into even pieces, uncounted.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from dpgenerative.encoding import estimates, grid, values
from dpgenerative.encoding.codecs import Codec, IntervalCodec, LevelCodec
from dpgenerative.encoding.estimates import Interval, Partition
from dpgenerative.encoding.nesting import pooled_cells
from dpgenerative.encoding.shares import (
    DOMAIN_SHARE,
    FEW_HALVINGS,
    POOL_NOISE,
    STRUCTURE_SHARE,
    has_open_domain,
    place_releases,
    spike_share,
    split_releases,
)
from dpgenerative.encoding.slopes import toward_declines, with_slopes
from dpgenerative.encoding.smoothing import cut_evenly, smooth_pieces
from dpgenerative.encoding.tree import EMPTY_NOISE, SPLIT_SIZE, ColumnRelease
from dpgenerative.privacy.noise import Key, sum_of_counts, threshold_for
from dpgenerative.privacy.plan import Release
from dpgenerative.tables.column import OTHER, Column
from dpgenerative.tables.dtypes import is_real_dtype
from dpgenerative.tables.private import Private
from dpgenerative.tables.rows import Chunks

MARGINALS = Release(
    "marginals", "one-way marginals, open bounds and levels ({noise})", "rows", "some"
)
"""Everything that is released here."""
SPIKE_SIZE = 0.25
"""A value has a cell of its own with more than this many times numbers / n_bins..."""
MOST_SPIKES = 0.5
"""... unless more values of a grid than this many times n_bins have so many each."""
FALSE_SPIKES = 1e-2
"""Number of values of one row or none that noise alone makes stand out."""
MOST_KEYS = 2**20
"""Up to this many rows every value of such a column may be a key, beyond them those
of crowded grid cells alone: they are counted in memory, one by one."""


@dataclass(frozen=True)
class MarginalRelease(ColumnRelease):
    """Releases the marginal of one column."""

    def fit(self, entries: Chunks[pd.Series]) -> Codec:
        """Return the codec of a column of private values."""
        release = self
        if has_open_domain(self.column):
            share = DOMAIN_SHARE if self.anchored else 1.0
            column = self._with(share)._domain(entries)
            rest = self._with(1 - share) if self.anchored else self
            release = replace(rest, column=column, is_estimated=True)
        if not self.column.numeric:
            return release._levels(entries)
        is_ordered = self.column.is_ordered
        return release._intervals(entries) if is_ordered else release._boxes(entries)

    def _with(self, share: float) -> "MarginalRelease":
        """Return a release that spends a share of the budget."""
        return replace(self, std=self.std / math.sqrt(share))

    def _domain(self, entries: Chunks[pd.Series]) -> Column:
        """Return the column with bounds or levels that are estimated privately."""
        if self.column.numeric:
            return self.column.bounded(*self._bounds(entries))
        present = entries.total(values.key_counts, sum_of_counts)
        levels = tuple(key[1] for key in self._keys(present))
        if not levels and self.column.other is None:
            is_real = is_real_dtype(self.dtype)
            levels = values.NO_NUMBERS if is_real else values.NO_LEVELS
        other = self.column.other
        # A level of that name that many rows have is none of the rare ones.
        while other in levels and str(other).strip("()") == OTHER:
            other = f"({other})"
        return replace(self.column, levels=levels, other=other)

    def _counted(self, exact: Private[np.ndarray], std: float) -> np.ndarray:
        """Release counts of cells, of which a row is in one."""
        return self.mechanisms.gaussian(
            exact, std, release=MARGINALS.name, sensitivity=1.0
        )

    def _keys(self, counts: Private[dict[Key, int]]) -> dict[Key, float]:
        """Release the keys that many rows have, and their counts."""
        threshold = threshold_for(self.std, self.delta, self.n_open) if self.std else 0
        return self.mechanisms.thresholded(
            counts, self.std, threshold, release=MARGINALS.name
        )

    # Levels ---------------------------------------------------------------------

    def _levels(self, entries: Chunks[pd.Series]) -> Codec:
        n_levels = len(self.column.levels or ()) + bool(self.column.nullable)
        if not self.anchored:
            masses, cells = np.full(n_levels, 1 / n_levels), np.arange(n_levels)
            return LevelCodec(self.column, self.dtype, masses, cells, np.ones(n_levels))
        codes = entries.map(lambda series: values.level_codes(series, self.column))
        exact = codes.total(lambda part: np.bincount(part, minlength=n_levels))
        noisy = self._counted(exact, self.std)
        self.total.add(noisy.sum(), len(noisy) * self.std**2)
        column, noisy = self._without_empty(noisy)
        counts = estimates.project_to_simplex(noisy, self._n_estimated)
        cells = self._pooled(column, counts)
        totals = np.bincount(cells, weights=counts)
        shared = np.bincount(cells)[cells] > 1
        is_label = self.is_target and len(column.levels or ()) == 2
        keeps = np.arange(len(counts)) < 2 * is_label  # never 'missing'
        rare = shared | (keeps & (counts < POOL_NOISE * self.std))
        if self.std and rare.any():
            mean = max(counts[rare].mean(), self.std * keeps.any())
            counts[rare] = estimates.posterior_mean_counts(noisy[rare], self.std, mean)
        totals[cells[~shared]] = counts[~shared]
        least = estimates.PRESENT_NOISE * self.std
        few = min(self.std, estimates.PRESENT_SHARE * self._n_estimated)
        absent = (counts < np.where(shared, few, least)) & ~keeps
        absent[-1] &= not column.nullable  # missing values that have a cell occur
        shares = np.maximum(np.where(absent, 0.0, counts), estimates.UNSEEN)
        shares /= np.bincount(cells, weights=shares)[cells]
        # A shared cell keeps the rows of its absent levels; so do levels in an order.
        if not column.ordered:
            totals[cells[absent & ~shared]] = 0.0
        masses = estimates.masses(totals, column.nullable)
        return LevelCodec(column, self.dtype, masses, cells, shares)

    def _without_empty(self, noisy: np.ndarray) -> tuple[Column, np.ndarray]:
        """Return the column without 'missing' and `other` where none were counted."""
        column, levels = self.column, self.column.levels or ()
        empty = noisy <= EMPTY_NOISE * self.std
        # A category dtype without any level has nothing else.
        may_lose_missing = self.may_lose_missing and levels != values.NO_LEVELS
        if column.nullable and may_lose_missing and empty[-1]:
            column, noisy = replace(column, nullable=False), noisy[:-1]
        if self.is_estimated and column.other is not None and len(levels) > 1:
            place = levels.index(column.other)
            if empty[place]:
                rest = (*levels[:place], *levels[place + 1 :])
                column = replace(column, levels=rest, other=None)
                noisy = np.delete(noisy, place)
        return column, noisy

    def _pooled(self, column: Column, counts: np.ndarray) -> np.ndarray:
        """Give frequent levels cells of their own, and the others of a group one."""
        rare = counts < max(POOL_NOISE * self.std, 1.0)
        rare[-1] &= not column.nullable
        if column.ordered or rare.sum() < 2:
            return np.arange(len(counts))
        groups = self.nesting.of(column) if self.nesting else [None] * len(counts)
        return pooled_cells(rare, groups)

    # Numbers --------------------------------------------------------------------

    def _bounds(self, entries: Chunks[pd.Series]) -> list[float]:
        """Release the outermost magnitudes, or years, that hold rows."""
        column = self.column
        ends = grid.sought_ends(column)

        def count(series: pd.Series) -> np.ndarray:
            numbers = values.as_numbers(column, series)
            unknown = ~np.isfinite(numbers)
            if column.step is not None:
                with np.errstate(over="ignore"):  # huge ones are in the outermost cells
                    numbers = np.round(numbers / column.step) * column.step
            cells = np.searchsorted(ends[1:-1], numbers, side="right")
            cells[unknown] = len(ends) - 1  # of its own
            return np.bincount(cells, minlength=len(ends))

        noisy = self._counted(entries.total(count), self.std)
        places = np.flatnonzero(grid.has_values_between(column, self.dtype, ends))
        sizes = np.maximum(np.abs(ends[:-1]), np.abs(ends[1:]))
        if are_years := column.kind == "datetime":
            sizes = np.arange(1, len(ends))
        n_present = self._n_estimated - noisy[-1]
        first, last = estimates.outermost(
            noisy[places], self.std, sizes[places], n_present, are_years
        )
        if last < 0:
            return grid.usual_years(column) if are_years else [0.0, 1.0]
        lower, upper = ends[places[first]], ends[places[last] + 1]
        return grid.bounds_between(column, self.dtype, lower, upper)

    def _intervals(self, entries: Chunks[pd.Series]) -> Codec:
        column, is_coarse = self.column, grid.is_coarse(self.column)
        fine = grid.edges_of(column)
        if not self.anchored:
            n_cells, ends = 1 + bool(column.nullable), fine[[0, -1]]
            masses = np.full(n_cells, 1 / n_cells)
            single = grid.single_values(column, ends)
            return IntervalCodec(column, self.dtype, masses, ends, single)
        steps = entries.map(partial(grid.in_steps, self.column))
        share = spike_share(column, self.n_bins, self.n_rows, self.std)
        parts = self._with(1 - share)._split(fine, steps, not share)
        column = replace(column, nullable=len(parts.missing) > 0)
        first, last = parts.places[[0, -1]]
        if last - first < len(fine) - 1:  # of a grid
            fine = fine[first : last + 1]
            at = parts.ends[0] - first
            inside = (at >= 0) & (at < len(fine) - 1)
            ends = np.array([at, parts.ends[1]])[:, inside]
            parts = replace(parts, places=parts.places - first, ends=ends)
            bounds = math.ceil(fine[0]), math.floor(fine[-1])
            column = column.bounded(*(grid.in_units(column, end) for end in bounds))
        axis = grid.CellAxis.of(column).to(fine)
        sole = fine[parts.sole - first] if parts.sole >= 0 else math.nan
        size = max(parts.counts.sum(), 1.0) / self.n_bins
        parts = _with_ends(parts, SPIKE_SIZE * size, len(fine) - 1)
        if self.std:
            parts = toward_declines(parts, axis)
        keys = np.empty((2, 0))
        if share:
            keys, rows = self._with(share)._shared(fine, steps, parts, is_coarse)
            rows = np.where(rows > SPIKE_SIZE * size, rows, 0.0)
            if is_coarse or np.count_nonzero(rows) <= MOST_SPIKES * self.n_bins:
                parts = parts.with_spikes(rows)
        pieces = cut_evenly(with_slopes(parts, axis), axis, SPLIT_SIZE * size)
        is_noisy = self.n_rows <= FEW_HALVINGS * self.std
        parts = smooth_pieces(parts, pieces, axis) if is_noisy else pieces
        edges = fine[parts.places]
        single = grid.single_values(column, edges)
        shared = grid.shared_values(edges, parts.heavy, parts.counts, keys)
        single = np.where(np.isnan(single), shared, single)
        if np.isfinite(value := single[edges[:-1] == sole]).any():
            return self._constant(column, value[0], edges, sole, parts)
        counts, nullable = [*parts.counts, *parts.missing], column.nullable
        masses = estimates.masses(counts, nullable, estimates.UNSEEN)
        return IntervalCodec(column, self.dtype, masses, edges, single)

    def _boxes(self, entries: Chunks[pd.Series]) -> Codec:
        """Return cells of numbers of places (`places`): no neighbours on a line."""
        fine = grid.edges_of(self.column)
        parts = self._split(fine, entries.map(partial(grid.in_steps, self.column)))
        edges, counts = fine[parts.places], [*parts.counts, *parts.missing]
        column = replace(self.column, nullable=len(parts.missing) > 0)
        masses = estimates.masses(counts, bool(column.nullable), estimates.UNSEEN)
        return IntervalCodec(column, self.dtype, masses, edges, edges[:-1] + 0.5)

    def _constant(
        self, column: Column, value: float, edges: Any, start: float, parts: Partition
    ) -> Codec:
        """Return the codec of a column of one value, in the cell from `start` on."""
        if self.is_estimated:
            column = column.bounded(*[grid.in_units(column, value)] * 2)
            start, *_, stop = edges = grid.edges_of(column)
        else:
            stop = edges[edges > start][0]
        edges = np.unique([edges[0], start, stop, edges[-1]])
        rows = np.where(edges[:-1] == start, parts.counts.sum(), 0.0)
        masses = estimates.masses(np.append(rows, parts.missing), column.nullable)
        single = np.full(len(rows), value)
        return IntervalCodec(column, self.dtype, masses, edges, single)

    def _shared(
        self,
        fine: np.ndarray,
        steps: Chunks[np.ndarray],
        parts: Partition,
        is_coarse: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Release the values that many rows share.

        Returns
        -------
        keys : ndarray of shape (2, k)
            Those of a continuum or a coarse grid, and how many rows have them.
        rows : ndarray of shape (n_grid,)
            Rows by grid cell, 0 where noise may have made them.
        """
        n_cells, keys = len(fine) - 1, np.empty((2, 0))
        if is_coarse:
            keys = self._shared_keys(steps, fine[parts.places], parts.heavy)
            keys = keys[:, (keys[0] >= fine[0]) & (keys[0] <= fine[-1])]
            rows = np.bincount(grid.cells_between(keys[0], fine), keys[1], n_cells)
            n_empty = self.n_rows
        else:
            exact = steps.total(
                lambda x: np.bincount(grid.cells_between(x, fine), minlength=n_cells)
            )
            rows, n_empty = self._counted(exact, self.std), n_cells
        least = self.std * norm.isf(FALSE_SPIKES / n_empty)
        return keys, np.where(rows > least, rows, 0.0)

    def _shared_keys(
        self, steps: Chunks[np.ndarray], edges: np.ndarray, crowded: np.ndarray
    ) -> np.ndarray:
        """Release the values that many rows share, and how many rows have them."""

        def count(numbers: np.ndarray) -> dict[Key, int]:
            numbers = numbers[~np.isnan(numbers)] + 0.0  # one zero
            if self.n_rows > MOST_KEYS:
                numbers = numbers[crowded[grid.cells_between(numbers, edges)]]
            distinct = np.unique(numbers, return_counts=True)
            pairs = zip(*(each.tolist() for each in distinct), strict=True)
            return {("float", step): n for step, n in pairs}

        shared = self._keys(steps.total(count, sum_of_counts))
        return np.array([[step for _, step in shared], [*shared.values()]], float)

    def _split(
        self, fine: np.ndarray, steps: Chunks[np.ndarray], has_ends: bool = False
    ) -> Partition:
        """Halve a grid where noisy counts are large, then count its intervals.

        Where asked, with `_ends` beside the rest of their intervals. Noise of whole
        numbers is whole, so counts stay integers.
        """

        def counted(numbers: np.ndarray) -> np.ndarray:
            rows = np.sort(numbers[~np.isnan(numbers)])
            below = np.searchsorted(rows, fine)
            below[[0, -1]] = 0, len(rows)
            return np.append(below, len(numbers) - len(rows))

        below = steps.total(counted)
        n_levels = (len(fine) - 2).bit_length()
        nullable = bool(self.column.nullable)
        # Every release that splits cells counts each row once, as that of missing ones
        # does: by this variance, relative to the whole budget's, all share the part.
        planned = split_releases if self.column.is_ordered else place_releases
        n_splits, depth = planned(n_levels, self.n_rows, self.std)
        rough = max(n_splits + nullable, 1) / STRUCTURE_SHARE
        root = Interval(0, len(fine) - 1, self._n_estimated)
        missing = Interval(0, 0, 0.0)
        if nullable:
            std = self.std * math.sqrt(rough)
            noisy = self._counted(below.map(lambda counts: counts[-2:]), std)
            supposed = estimates.project_to_simplex(noisy, self._n_estimated)
            root.supposed = supposed[0]
            root.add(noisy[0], rough)
            missing.add(noisy[1], rough)
        for _ in range(n_splits):
            self._grow(root, depth, below, rough)

        ends = self._count(root, missing, below, fine, has_ends)
        parts = self._partition(root, missing, self._least(root, rough), fine)
        return replace(parts, ends=ends)

    def _count(
        self,
        root: Interval,
        missing: Interval,
        below: Private,
        fine: np.ndarray,
        has_ends: bool,
    ) -> np.ndarray:
        """Add the last counts to intervals; return those of `_ends`, and which."""
        nullable, leaves = bool(self.column.nullable), root.leaves()
        places = np.array([leaf.start for leaf in leaves] + [root.stop])
        cells = [*leaves, missing] if nullable else leaves
        at = self._ends(fine, places) if has_ends else np.empty(0, dtype=np.intp)
        of, n = np.searchsorted(places, at, side="right") - 1, len(cells)

        def apart(below: np.ndarray) -> np.ndarray:
            whole, single = np.diff(below[places]), below[at + 1] - below[at]
            whole = np.append(whole, below[-1])[:n]
            np.subtract.at(whole, of, single)
            return np.append(single, whole)

        fair = 1 / (1 - STRUCTURE_SHARE)
        noisy = self._counted(below.map(apart), self.std * math.sqrt(fair))
        alone, rest = np.split(noisy, [len(at)])
        least = self.std * math.sqrt(fair) * norm.isf(FALSE_SPIKES / max(len(at), 1))
        alone = np.where(alone > least, alone, 0.0)
        counts = rest + np.bincount(of, alone, n)
        variances = fair * (1 + np.bincount(of, alone > 0, n))
        for cell, count, variance in zip(cells, counts, variances, strict=True):
            cell.add(float(count), float(variance))
        return np.array([at, alone])

    def _grow(
        self, root: Interval, depth: int, below: Private, variance: float
    ) -> None:
        """Halve all intervals of many rows up to `depth` times.

        `below` holds the number of rows below every edge of the grid. The intervals are
        disjoint, so that their parts are counted in one release.
        """
        least = self._least(root, variance)
        chosen = [i for i in root.leaves() if i.width > 1 and i.supposed > least]
        for interval in chosen:
            interval.divide(depth)
        parts = [part for interval in chosen for part in interval.leaves()]
        if not parts:
            return
        starts, stops = np.array([(part.start, part.stop) for part in parts]).T
        std = self.std * math.sqrt(variance)
        exact = below.map(lambda counts: counts[stops] - counts[starts])
        noisy = self._counted(exact, std)
        for part, count in zip(parts, noisy, strict=True):
            part.add(count, variance)
        for interval in chosen:
            interval.prune(least)


def _with_ends(parts: Partition, least: float, n_grid: int) -> Partition:
    """Cut out bounds, and 0, of more than so many rows."""
    at, alone = parts.ends[:, parts.ends[1] > least]
    if not len(at):
        return parts
    return parts.with_spikes(np.bincount(at.astype(np.intp), alone, n_grid))
