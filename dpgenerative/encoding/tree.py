"""Counts of a column in a tree of halvings, and what follows from them.

Nothing is released here, and nothing reads rows: `marginals` counts.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgenerative.encoding import estimates, grid
from dpgenerative.encoding.estimates import Interval, Partition
from dpgenerative.encoding.nesting import NestingRule
from dpgenerative.encoding.shares import is_wide
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.tables.column import Column

SPLIT_SIZE = 1.3
"""A cell may be halved while it holds more than this many times numbers / n_bins, those
in cells of more than a quarter (`estimates.SPIKE`) left aside..."""
SPLIT_NOISE = 2.5
"""... and more than this many standard deviations of the noise of halving."""
EMPTY_NOISE = 3.0
"""What nobody states may not occur at all: missing values, and `other` of levels that
were released. With a noisy count below this many standard deviations it has no cell."""


@dataclass(frozen=True)
class ColumnRelease:
    """What the release of one column's marginal is made of, and what its counts say.

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
