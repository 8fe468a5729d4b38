"""Estimates made of noisy counts: post-processing, which costs nothing.

Counts of a tree of intervals are combined by weighted least squares (Hay et al. 2010).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.stats import norm

PRESENT_NOISE = 2.0
"""Counts below this many standard deviations of their noise count as absent..."""
PRESENT_SHARE = 1.5e-3
"""... those of levels that share a cell if they are below one, and fewer than this
share of all rows: a level that a sample holds a few times, in one class only, misleads
some classifiers more than its absence."""
NEXT_NOISE = 2.5
"""Magnitudes next to occupied ones are so too with more than this many standard
deviations."""
MAYBE = 1.0
"""Rows may be missing with fewer than expected by this many standard deviations."""
FEW = 0.02
"""Share of rows of which no more than that may lie in years that are left out."""
TOGETHER = (*range(1, 9), 16, 32, 64, 128)
"""How many years, which rows spread over, are tested together; of magnitudes 8 at
most."""
TAIL_NOISE = 2.5
"""An end of the bounds is empty, as far as one knows, where no interval, nor all up to
the end together, has more rows than this many standard deviations."""
FAR = 2.0
"""It is far too long where it is this many times as long as all between the ends."""
SPIKE = 0.25
"""Share of a column's rows from which an interval is no part of a smooth density."""
SHARP = 2.0
"""A grid cell sticks out with this many times the rows of others in its interval."""
CREDIBLE = 0.5
"""... and if its interval has at least this many times its rows."""
OTHERS = (5e-3, 0.25)
"""A column may be one value where noise hides no more than this share of its rows in
others: within stated bounds, and within bounds that noisy counts put around it."""
LEAST = 0.1
"""Rows of an interval or level at least: none is impossible."""
UNSEEN = 1e-3
"""Rows of what counts as absent, since no value is impossible."""


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
    n_active = int(np.count_nonzero(ordered > shifts))  # 0: the total rounds away
    return np.maximum(values - shifts[max(n_active, 1) - 1], 0)


def posterior_mean_counts(noisy: np.ndarray, std: float, mean: float) -> np.ndarray:
    """Return the posterior means of the counts of rare levels.

    Their prior is exponential.

    Parameters
    ----------
    noisy : ndarray of shape (n,)
        Counts with normal noise.
    std : float
        Standard deviation of the noise, > 0.
    mean : float
        That of the prior.

    Returns
    -------
    ndarray of shape (n,)
        Means of normal distributions truncated at 0.
    """
    place = noisy / std - std / max(mean, UNSEEN)
    means = place + np.exp(norm.logpdf(place) - norm.logcdf(place))
    return np.maximum(std * means, 0.0)


def outermost(
    noisy: np.ndarray,
    std: float,
    sizes: np.ndarray,
    n_rows: float,
    are_years: bool = False,
) -> tuple[int, int]:
    """Return the first and the last of the magnitudes that hold rows; 0, -1 for none.

    With 99 % probability no empty magnitudes, one or several next to each other or of
    both signs, pass for occupied ones. Next to occupied ones, as there are few, a lower
    threshold will do. Where rows are surely missing, the other sign and one magnitude
    more hold some: bounds that are too wide cost little, others cut rows off.

    Parameters
    ----------
    noisy : ndarray of shape (n,)
        Counts with normal noise, whose rounding adds a half at most.
    std : float
        Standard deviation of the noise.
    sizes : ndarray of shape (n,)
        How far from 0 magnitudes go.
    n_rows : float
        Number of rows that hold a number, with noise of its own.
    are_years : bool, default=False
        Rows spread over many of them, none of which is another's negative: where rows
        may be missing, half as many more on either side hold some.
    """
    places = np.arange(len(noisy))
    widths = TOGETHER if are_years else TOGETHER[:8]
    level = np.unique(sizes, return_inverse=True)[1]
    least = std * norm.isf(1e-2 / (2 * len(widths) * len(noisy)))
    one = _conspicuous(noisy, np.ones(len(noisy)), widths)
    both = _conspicuous(np.bincount(level, noisy), np.bincount(level), widths)
    excess, low, high = max(one, both)
    if excess <= least:
        return 0, -1
    if are_years:
        low += _n_empty(noisy[low : high + 1], std, FEW * n_rows)
        high -= _n_empty(noisy[low : high + 1][::-1], std, FEW * n_rows)
    by = level if both > one else places
    occupied = (by >= low) & (by <= high) | (noisy > least + 0.5)
    first, last = np.flatnonzero(occupied)[[0, -1]]
    first -= _reach(noisy[:first][::-1], std, widths)
    last += _reach(noisy[last + 1 :], std, widths)
    inside = noisy[first : last + 1]
    sides = level[first : last + 1]
    more = len(inside) // 2 if are_years else 0
    noise = std * (MAYBE if are_years else NEXT_NOISE)
    is_short = inside.sum() + noise * math.sqrt(len(inside) + 1) < n_rows
    if is_short and sides.max() > 0:
        wider = (level >= sides.min() - more) & (level <= sides.max() + more + 1)
        first, last = np.flatnonzero(wider)[[0, -1]]
    return int(first), int(last)


def _conspicuous(
    counts: np.ndarray, n_cells: np.ndarray, widths: Sequence[int]
) -> tuple[float, int, int]:
    """Return which counts next to each other stand out most, after how far they do."""
    best = (-math.inf, 0, -1)
    total, size = (np.append(0.0, np.cumsum(x)) for x in (counts, n_cells))
    for width in (width for width in widths if width <= len(counts)):
        cells = size[width:] - size[:-width]
        excess = (total[width:] - total[:-width] - cells / 2) / np.sqrt(cells)
        i = int(excess.argmax())
        best = max(best, (float(excess[i]), i, i + width - 1))
    return best


def _n_empty(noisy: np.ndarray, std: float, few: float) -> int:
    """Return how many years at the beginning hold few rows for sure, but for one."""
    n = np.arange(1, len(noisy))
    most = np.cumsum(noisy[:-1]) + NEXT_NOISE * std * np.sqrt(n)
    return int(n[most <= few].max(initial=0))


def _reach(noisy: np.ndarray, std: float, widths: Sequence[int]) -> int:
    """Return how many magnitudes next to occupied ones are so, too."""
    reach, i = 0, 0
    while i < len(widths) and widths[i] <= len(noisy) - reach:
        ahead = noisy[reach : reach + widths[i]].sum() - widths[i] / 2
        more = ahead > NEXT_NOISE * std * math.sqrt(widths[i])
        reach, i = (reach + widths[i], 0) if more else (reach, i + 1)
    return reach


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
        most = counts[-k:].sum() + PRESENT_NOISE * std
        if near <= 0 or before <= 0 or most > 2 * PRESENT_NOISE * std:
            continue
        decline = min(1.0, near / size * far / before) ** (2 * size / (size + far))
        if most < near * decline * min(1.0, widths[-k:].sum() / size) / 2:
            return k
    return 0


@dataclass(eq=False, kw_only=True)
class Estimate:
    """A number of rows estimated from all counts, and its variance."""

    count: float = 0.0
    variance: float = math.inf

    def add(self, count: float, variance: float) -> None:
        """Add a second, independent count by inverse variance."""
        if self.variance:
            own = variance / (variance + self.variance)
            self.count = own * self.count + (1 - own) * count
            self.variance = (1 - own) * variance


@dataclass(eq=False)
class Interval(Estimate):
    """Grid cells from `start` to `stop` in the tree of halvings, and their noisy count.

    `supposed` is the estimate that decides on halving: not negative, and in line with
    that of the interval above.
    """

    start: int
    stop: int
    supposed: float
    halves: list["Interval"] = field(default_factory=list)

    @property
    def width(self) -> int:
        """Number of grid cells."""
        return self.stop - self.start

    def divide(self, depth: int) -> None:
        """Halve it, and its halves in turn, up to `depth` times."""
        if depth and self.width > 1:
            middle = (self.start + self.stop) // 2
            self.halves = [
                Interval(self.start, middle, 0.0), Interval(middle, self.stop, 0.0)
            ]  # fmt: skip
            for half in self.halves:
                half.divide(depth - 1)

    def prune(self, least: float) -> None:
        """Undo halvings of halves of at most `least` rows; suppose rows of the others.

        What was counted below stays in the count.
        """
        if self.halves:
            counts = [sum(leaf.count for leaf in h.leaves()) for h in self.halves]
            supposed = project_to_simplex(np.array(counts), self.supposed)
            for half, rows in zip(self.halves, supposed, strict=True):
                half.supposed = float(rows)
                if rows > least:
                    half.prune(least)
                else:
                    half.gather()
                    half.halves = []

    def leaves(self) -> list["Interval"]:
        """Return the intervals that were not halved, in order."""
        if not self.halves:
            return [self]
        return [leaf for half in self.halves for leaf in half.leaves()]

    def gather(self) -> float:
        """Add to every count those below it; return the count of the whole."""
        if self.halves:
            counts = [half.gather() for half in self.halves]
            self.add(sum(counts), sum(half.variance for half in self.halves))
        return self.count

    def sole(self, std: float, rows: Estimate, most: float) -> int:
        """Return where the grid cell begins that has all rows, as far as noise shows.

        Parameters
        ----------
        std : float
            Standard deviation of the noise of variance 1.
        rows : Estimate
            Their number by other counts.
        most : float
            Share of them that noise may hide elsewhere.

        Returns
        -------
        int
            -1 where rows may lie elsewhere, or noise may hide more.
        """
        leaf = max(self.leaves(), key=lambda leaf: leaf.count)
        count, variance = self._beside(leaf.start)
        rest = Estimate(count=count, variance=variance * std**2)
        rest.add(rows.count - leaf.count, rows.variance + leaf.variance * std**2)
        noise = PRESENT_NOISE * math.sqrt(rest.variance)
        # Sums of exact counts are rounded.
        is_alone = rest.count <= noise + 0.5
        is_clear = leaf.width == 1 and noise <= most * leaf.count
        return leaf.start if is_alone and is_clear else -1

    def _beside(self, place: int) -> tuple[float, float]:
        """Return the rows of all but the leaf at a place, and their variance."""
        if not self.halves:
            return 0.0, 0.0
        first, second = self.halves
        half, other = (first, second) if place < first.stop else (second, first)
        count, variance = half._beside(place)
        return count + other.count, variance + other.variance

    def spread(self, total: float) -> None:
        """Set the count to `total` and bring those below into line, none negative."""
        if self.halves:
            counts = np.array([half.count for half in self.halves])
            variances = np.array([half.variance for half in self.halves])
            counts += (total - counts.sum()) * variances / variances.sum()
            shares = project_to_simplex(counts, total)
            for half, count in zip(self.halves, shares, strict=True):
                half.spread(count)
        self.count = float(total)


@dataclass(frozen=True)
class Partition:
    """Intervals of a grid, and how many rows each of them holds by noisy counts.

    Attributes
    ----------
    places : ndarray of int of shape (n + 1,)
        Edges of the grid at which the intervals end.
    counts : ndarray of shape (n,)
        Rows per interval.
    variances : ndarray of shape (n,)
        Of their noise.
    heavy : ndarray of bool of shape (n,)
        Intervals that would have been halved, had they more than one grid cell.
    missing : ndarray of shape (1,) or (0,)
        Rows without a value; none where there is no cell for them.
    sole : int, default=-1
        Edge where the grid cell of all rows begins, as far as noise shows; else -1.
    noisy : ndarray of shape (n,)
        Counts of intervals before they were brought into line, without bias.
    declines : tuple of slopes.Decline
        What the tails follow.
    ends : ndarray of shape (2, k)
        Grid cells of values that are public and often shared (the bounds, 0), and their
        rows, where they were counted.
    """

    places: np.ndarray
    counts: np.ndarray
    variances: np.ndarray
    heavy: np.ndarray
    missing: np.ndarray
    sole: int = -1
    noisy: np.ndarray = field(default_factory=lambda: np.empty(0))
    declines: tuple[Any, ...] = ()
    ends: np.ndarray = field(default_factory=lambda: np.empty((2, 0)))

    @property
    def is_spike(self) -> np.ndarray:
        """Which intervals are no part of a smooth density."""
        return np.asarray(self.heavy | (self.counts > SPIKE * self.counts.sum()))

    @np.errstate(over="ignore", invalid="ignore")  # of the largest floats
    def with_tails(self, ends: np.ndarray) -> "Partition":
        """Let rows at ends that may be empty thin out from the density next to them.

        Where bounds are far too wide, noise leaves a few rows in intervals that hold
        nobody, and they would carry the mean along.

        Parameters
        ----------
        ends : ndarray
            Edges of the grid.
        """
        noisy = self.noisy
        n_low = _n_at_end(noisy[::-1], self.variances[::-1])
        n_high = _n_at_end(noisy, self.variances)
        if n_low + n_high >= len(noisy):
            return self
        places = ends[self.places]
        low, high = places[n_low], places[-1 - n_high]
        parts = self
        if n_high and places[-1] - high > FAR * (high - low):
            parts = parts._with_tail(ends, n_high, noisy[-n_high:].sum())
        if n_low and low - places[0] > FAR * (high - low):
            flipped = parts._flipped(ends)
            flipped = flipped._with_tail(-ends[::-1], n_low, noisy[:n_low].sum())
            parts = flipped._flipped(ends)
        return parts

    def _with_tail(self, ends: np.ndarray, n: int, rows: float) -> "Partition":
        """Give the last `n` intervals so many rows, near the others."""
        rest, whole = self.counts[:-n], self.counts[-n:].sum()
        if not 0 < rest[-1] < SPIKE * self.counts.sum():
            return self
        rows = min(max(0.0, rows), whole)
        rest = rest * (1 + (whole - rows) / rest.sum())
        # Their mean is that of a density that falls exponentially.
        near, start, stop = self.places[[-2 - n, -1 - n, -1]]
        reach = 2 * rows / rest[-1] * (ends[start] - ends[near])
        cut = max(start + 1, np.searchsorted(ends, ends[start] + reach))
        if cut >= stop:
            return self
        variance = self.variances[-n:].sum()
        return replace(
            self,
            places=np.append(self.places[:-n], [cut, stop]),
            counts=np.append(rest, [rows, 0.0]),
            noisy=np.append(self.noisy[:-n], [rows, 0.0]),
            variances=np.append(self.variances[:-n], [variance, variance]),
            heavy=np.append(self.heavy[:-n], [False, False]),
        )

    def _flipped(self, ends: np.ndarray) -> "Partition":
        """Return the intervals as they lie on the reversed grid."""
        return replace(
            self,
            places=len(ends) - 1 - self.places[::-1],
            counts=self.counts[::-1],
            noisy=self.noisy[::-1],
            variances=self.variances[::-1],
            heavy=self.heavy[::-1],
        )

    def with_spikes(self, rows: np.ndarray) -> "Partition":
        """Cut out grid cells of far more rows than those beside them.

        Parameters
        ----------
        rows : ndarray of shape (n_grid,)
            Of grid cells that may be such; 0 elsewhere.
        """
        cells = np.flatnonzero(rows)
        of = np.searchsorted(self.places[1:-1], cells, side="right")
        n_others = np.diff(self.places)[of] - 1
        others = np.maximum(self.counts[of] - rows[cells], 0)
        is_sharp = (n_others > 0) & (rows[cells] * n_others > SHARP * others)
        cells = cells[is_sharp & (self.counts[of] > CREDIBLE * rows[cells])]
        places = np.unique(np.concatenate([self.places, cells, cells + 1]))
        of = np.searchsorted(self.places[1:-1], places[:-1], side="right")
        is_spike = np.isin(places[:-1], cells)
        spikes = np.where(is_spike, rows[places[:-1]], 0.0)
        widths = np.where(is_spike, 0, np.diff(places))
        # How many rows spikes have together, and how wide all else is, by interval.
        together, rest = (np.bincount(of, each)[of] for each in (spikes, widths))
        whole = self.counts[of]
        inside = np.where(rest > 0, np.minimum(together, whole), whole)
        shares = np.where(is_spike, spikes / np.maximum(together, UNSEEN), 0.0)
        shares = inside * shares + (whole - inside) * widths / np.maximum(rest, 1)
        heavy = self.heavy[of] | is_spike
        noisy = self.noisy
        if len(noisy):
            others = (noisy[of] - together) * widths / np.maximum(rest, 1)
            noisy = np.where(is_spike, spikes, others)
        return replace(
            self, places=places, counts=shares, variances=self.variances[of],
            heavy=heavy, sole=-1, noisy=noisy,
        )  # fmt: skip

    def cut(self, starts: list[np.ndarray], counts: list[Any]) -> "Partition":
        """Return intervals cut into pieces, of which starts and rows are listed."""
        sizes = [len(pieces) for pieces in starts]
        return replace(
            self,
            places=np.concatenate([*starts, self.places[-1:]]),
            counts=np.concatenate(counts),
            variances=np.repeat(self.variances, sizes),
            heavy=np.repeat(self.heavy, sizes),
        )


def _n_at_end(noisy: np.ndarray, variances: np.ndarray) -> int:
    """Return how many intervals at the upper end hold no more rows than noise may."""
    sums, summed = (np.cumsum(x[::-1])[::-1] for x in (noisy, variances))
    occupied = sums > TAIL_NOISE * np.sqrt(summed)
    occupied |= noisy > TAIL_NOISE * np.sqrt(variances)
    return int(len(noisy) - 1 - np.flatnonzero(occupied).max(initial=-1))


def masses(
    counts: Sequence[float] | np.ndarray, nullable: bool | None, rows: float = LEAST
) -> np.ndarray:
    """Return probabilities of cells of at least so many rows, 'missing' of fewer."""
    least = np.full(len(counts), rows)
    if nullable:
        least[-1] = UNSEEN
    floored = np.maximum(counts, least)
    return floored / floored.sum()
