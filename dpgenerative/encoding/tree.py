"""Counts of a column in a tree of halvings: how intervals of a grid are released.

Formal guarantee: every release here is one of `ColumnRelease._counted`, a histogram of
cells of which a row is in one at most: of sensitivity 1. Which cells these are follows
from public facts and from what was released before.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import norm

from dpgenerative.encoding import estimates, grid
from dpgenerative.encoding.estimates import Interval, Partition
from dpgenerative.encoding.nesting import NestingRule
from dpgenerative.encoding.shares import (
    STRUCTURE_SHARE,
    is_wide,
    place_releases,
    split_releases,
)
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import Release
from dpgenerative.tables.column import Column
from dpgenerative.tables.private import Private
from dpgenerative.tables.rows import Chunks

MARGINALS = Release(
    "marginals", "one-way marginals, open bounds and levels ({noise})", "rows", "some"
)
"""Everything that is released here."""
SPLIT_SIZE = 1.3
"""A cell may be halved while it holds more than this many times numbers / n_bins, those
in cells of more than a quarter (`estimates.SPIKE`) left aside..."""
SPLIT_NOISE = 2.5
"""... and more than this many standard deviations of the noise of halving."""
FALSE_SPIKES = 1e-2
"""Number of values of one row or none that noise alone makes stand out."""
EMPTY_NOISE = 3.0
"""What nobody states may not occur at all: missing values, and `other` of levels that
were released. With a noisy count below this many standard deviations it has no cell."""


@dataclass(frozen=True)
class ColumnRelease:
    """What the release of one column's marginal is made of, and its histograms.

    Attributes
    ----------
    column : Column
        Public facts; bounds and levels may be unknown.
    dtype : object
        The column's dtype.
    mechanisms : Mechanisms
        The door through which every count is released.
    n_rows : int
        The released row count.
    total : Estimate
        The number of rows by that count and those of columns so far.
    std : float
        Noise of the column's budget, were it spent on one count (`column_stds`).
    delta : float
        Paid for the keys of all columns that `has_open_keys`.
    n_open : int
        How many columns these are.
    n_bins : int
        Number of intervals aimed at.
    anchored : bool
        Whether cells are counted; else only bounds and levels are estimated.
    may_lose_missing : bool
        Whether 'missing' has no cell where its count is within the noise.
    is_target : bool
        Whether of two levels none counts as absent: nothing would be to predict.
    nesting : NestingRule, optional
        Rare levels share a cell with those of the same groups.
    is_estimated : bool, default=False
        Whether bounds or levels are private estimates: they may exceed those of rows.
    """

    column: Column
    dtype: Any
    mechanisms: Mechanisms
    n_rows: int
    total: estimates.Estimate
    std: float
    delta: float
    n_open: int
    n_bins: int
    anchored: bool
    may_lose_missing: bool
    is_target: bool
    nesting: NestingRule | None = None
    is_estimated: bool = False

    @property
    def _n_estimated(self) -> float:
        """Number of rows, estimated from all that was counted so far."""
        return max(1.0, self.total.count)

    def _counted(self, exact: Private[np.ndarray], std: float) -> np.ndarray:
        """Release counts of cells, of which a row is in one."""
        return self.mechanisms.gaussian(
            exact, std, release=MARGINALS.name, sensitivity=1.0
        )

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

    def _ends(self, fine: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return grid cells that are counted beside the rest of their intervals.

        They hold what many rows may share, and what clipping makes rows share: stated
        bounds, and 0. Of wide grids with too few rows to count every value. A count
        that does not stand out from its noise counts as none: a bias of up to a few
        deviations of it, with less variance than to add it to the others.
        """
        column = self.column
        if column.step is None or not column.is_ordered or grid.is_coarse(column):
            return np.empty(0, dtype=np.intp)
        low, high = grid.ends_of(column)
        has_zero = low <= 0 <= high and column.kind != "datetime"
        numbers = [0.0] * has_zero + [low, high] * (not self.is_estimated)
        if not numbers or not is_wide(column, self.n_bins):
            return np.empty(0, dtype=np.intp)
        at = np.unique(grid.cells_between(np.array(numbers), fine))
        of = np.searchsorted(places, at, side="right") - 1
        return at[np.diff(places)[of] > 1]

    def _least(self, root: Interval, variance: float) -> float:
        """Return the number of rows up to which intervals are not halved."""
        rows = np.array([leaf.supposed for leaf in root.leaves()])
        plain = rows[rows <= estimates.SPIKE * root.supposed].sum()
        noise = self.std * math.sqrt(variance)
        return max(SPLIT_SIZE * plain / self.n_bins, SPLIT_NOISE * noise)

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

    def _partition(
        self, root: Interval, missing: Interval, least: float, fine: np.ndarray
    ) -> Partition:
        """Combine all counts of a tree; leave out what has no rows."""
        nullable = bool(self.column.nullable)
        both = np.array([root.gather(), missing.count])[: 1 + nullable]
        lost = (missing.variance if nullable else 0.0) * self.std**2
        sole = self._sole(root, both[1:].sum(), lost)
        self.total.add(both.sum(), root.variance * self.std**2 + lost)
        whole = estimates.project_to_simplex(both, self._n_estimated)
        if nullable and self.may_lose_missing:
            std = self.std * math.sqrt(missing.variance)
            if missing.count <= EMPTY_NOISE * std:
                whole = np.array([self._n_estimated])
        leaves = self._occupied(root.leaves())
        noisy = np.array([leaf.count for leaf in leaves])
        root.spread(whole[0])
        places = np.array([leaf.start for leaf in leaves] + [leaves[-1].stop])
        counts = np.array([leaf.count for leaf in leaves])
        heavy = (np.diff(places) == 1) & (counts > least)
        variances = self.std**2 * np.array([leaf.variance for leaf in leaves])
        parts = Partition(places, counts, variances, heavy, whole[1:], sole, noisy)
        has_tails = self.std and self.column.is_ordered
        return parts.with_tails(fine) if has_tails else parts

    def _sole(self, root: Interval, n_missing: float, variance: float) -> int:
        """Return the edge at which the one value of all rows begins, -1 without one."""
        n, variance = self.total.count - n_missing, self.total.variance + variance
        rows = estimates.Estimate(count=n, variance=variance)
        # Of two values that are stated, both can occur.
        may_be_two = root.width == 2 and not self.is_estimated
        most = estimates.OTHERS[self.is_estimated]
        return -1 if may_be_two else root.sole(self.std, rows, most)

    def _occupied(self, leaves: list[Interval]) -> list[Interval]:
        """Return the intervals between the ends of rows, where bounds are estimates.

        Magnitudes reach beyond the last row; years and continua are left alone.
        """
        column = self.column
        if not self.is_estimated or column.temporal or column.step is None:
            return leaves
        counts = np.array([leaf.count for leaf in leaves])
        stds = self.std * np.sqrt([leaf.variance for leaf in leaves])
        widths = np.array([leaf.width for leaf in leaves])
        first = estimates.n_beyond(counts[::-1], stds[::-1], widths[::-1])
        n_last = estimates.n_beyond(counts[first:], stds[first:], widths[first:])
        return leaves[first : len(leaves) - n_last]
