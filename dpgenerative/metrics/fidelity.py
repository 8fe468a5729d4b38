"""Distances between the marginals of two tables, and likelihoods of rows.

Every column is first turned into a few cells: a numeric column is cut at the
20-quantile edges of the *real* column (at its distinct values when it has at most 20),
any other column has one cell per level, and a missing value is a cell of its own. A
k-way marginal is the table of cell frequencies of k columns. Two of them, p and q, are
compared by one of `METRICS`:

``"tvd"``
    Total variation distance, half the sum of ``|p - q|``; in [0, 1].
``"jsd"``
    Jensen-Shannon divergence to base 2, the mean Kullback-Leibler divergence of p and q
    from ``(p + q) / 2``; in [0, 1]. Its square root is the Jensen-Shannon *distance*.
``"wasserstein"``
    Single columns only, and without cells: the Wasserstein-1 distance of the numbers
    divided by the range of the real ones, so that 1 is the width of the real column
    (synthetic numbers beyond it can exceed 1). Where only a share s or t of the rows
    has a number, the distance of the numbers counts by min(s, t) and ``|s - t|`` is
    added: missing lies one real width away from every number. Where all real numbers
    are equal, their range gives no scale and the distance is the share of other
    numbers. Columns that are not numeric have the total variation distance, which is
    Wasserstein-1 where any two levels are 1 apart.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import rel_entr
from scipy.stats import wasserstein_distance

from dpgenerative._validation import check_option
from dpgenerative.metrics.columns import (
    aligned,
    as_floats,
    comparable_codes,
    is_number,
    takes_tables,
    warn_if_few,
)

METRICS = ("tvd", "jsd", "wasserstein")
N_QUANTILES = 20
MAX_SETS = {2: 300, 3: 200}  # by size of the sets; larger ones as for triples

_MAX_CELLS = 2**22  # counted densely up to here, relabelled to occupied cells beyond

_Sets = Sequence[tuple[int, ...]]


@dataclass(frozen=True, eq=False, repr=False)
class MarginalDistance:
    """Distances between the k-way marginals of two tables, one per set of columns.

    Attributes
    ----------
    sets : tuple of tuple of hashable
        The sets of column names compared, all of size k.
    values : ndarray of shape (n_sets,)
        Distance of each set's marginal, at least 0; at most 1 but for "wasserstein".
    metric : {"tvd", "jsd", "wasserstein"}
        What `values` measure.
    floor : float or None
        Mean distance, over the same sets, of a bootstrap of the real table: what
        sampling as many rows accounts for. None where it was not asked for.
    baseline : float or None
        Mean distance, over the same sets, of the real columns permuted each alone: what
        perfect single columns reach without dependence. Always 0 for k = 1, since a
        permutation leaves a single column's marginal as it is. None where it was not
        asked for.
    """

    sets: tuple[tuple[Hashable, ...], ...]
    values: np.ndarray
    metric: str = "tvd"
    floor: float | None = None
    baseline: float | None = None

    @property
    def k(self) -> int:
        """Number of columns in each set."""
        return len(self.sets[0])

    @property
    def mean(self) -> float:
        """Mean distance over the sets."""
        return float(self.values.mean())

    @property
    def max(self) -> float:
        """Largest distance of any set."""
        return float(self.values.max())

    def to_frame(self) -> pd.DataFrame:
        """Return one row per set, worst first.

        Returns
        -------
        DataFrame
            Columns ``columns`` (tuple of names) and ``distance``.
        """
        frame = pd.DataFrame({"columns": list(self.sets), "distance": self.values})
        return frame.sort_values("distance", ascending=False, ignore_index=True)

    def __repr__(self) -> str:
        names = ("mean", "max", "floor", "baseline")
        known = [name for name in names if getattr(self, name) is not None]
        shown = "".join(f", {name}={getattr(self, name):.4f}" for name in known)
        return (
            f"MarginalDistance({self.metric!r}, k={self.k}, n_sets={len(self.sets)}"
            f"{shown})"
        )


@takes_tables
def marginal_distance(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    k: int = 1,
    *,
    metric: str = "tvd",
    references: bool = True,
    max_sets: int | None = None,
    random_state: int = 0,
) -> MarginalDistance:
    """Compare the k-way marginals of a synthetic table with those of the real one.

    Numeric columns are those with a numeric dtype in `real` (booleans are levels).
    Where `real` holds integers, synthetic values are rounded to integers first. Row
    labels do not matter.

    Parameters
    ----------
    real, synthetic : DataFrame of shape (n_real, p) and (n_synthetic, p)
        Same columns, in any order; row counts may differ. Columns may be missing
        altogether.
    k : int, default=1
        Size of the sets of columns: 1 for single columns, 2 for pairs, ...
    metric : {"tvd", "jsd", "wasserstein"}, default="tvd"
        Total variation distance, Jensen-Shannon divergence, or for k = 1 Wasserstein-1
        distance in units of the real range. The module's docstring defines them.
    references : bool, default=True
        Whether to measure `floor` and `baseline` too, on the same sets: about three
        times the work. Without them, small tables pass without a warning.
    max_sets : int, optional
        Compare at most this many sets. None: all columns, 300 pairs, 200 triples
        (or larger sets).
    random_state : int, default=0
        Seed of the draw of sets, where there are more than `max_sets`, and of both
        references. Sets of growing size, up to k, are drawn one after the other from
        one generator.

    Returns
    -------
    MarginalDistance
        0 for equal marginals; 1 for total variation and Jensen-Shannon where the tables
        have no cell in common.

    Raises
    ------
    TypeError
        When a table is not a DataFrame.
    ValueError
        When the columns of the tables differ, a table is empty, a column holds numbers
        in one table and strings in the other, `metric` is none of the three,
        `metric="wasserstein"` meets infinite numbers or k > 1, or `k` or `max_sets` is
        out of range.

    Warns
    -----
    UserWarning
        When `references` are asked for and a table has fewer than 50 rows.

    References
    ----------
    J. Lin, "Divergence measures based on the Shannon entropy", IEEE Transactions on
    Information Theory 37 (1991). S. S. Vallender, "Calculation of the Wasserstein
    distance between probability distributions on the line", Theory of Probability and
    its Applications 18 (1974). B. Efron, "Bootstrap methods: another look at the
    jackknife", Annals of Statistics 7 (1979).

    Examples
    --------
    >>> real = pd.DataFrame({"a": list("xxyy"), "b": [1.0, 2.0, 3.0, 5.0]})
    >>> fake = pd.DataFrame({"a": list("xxxy"), "b": [2.0, 3.0, 4.0, 6.0]})
    >>> marginal_distance(real, fake, references=False).values.tolist()
    [0.25, 0.25]
    >>> marginal_distance(real, fake, metric="wasserstein", references=False)
    MarginalDistance('wasserstein', k=1, n_sets=2, mean=0.2500, max=0.2500)
    """
    synthetic = aligned(real, synthetic)
    sets = _checked_sets(real, k, metric, max_sets, random_state)
    columns = _columns(real, synthetic, sets, metric)
    values = _distances(columns, sets, len(real), metric)
    floor = baseline = None
    if references:
        warn_if_few(len(real), len(synthetic))
        resampled = _resampled(columns, len(real), random_state)
        floor = float(np.mean(_distances(resampled, sets, len(real), metric)))
        permuted = _permuted(columns, real.shape, random_state)
        baseline = float(np.mean(_distances(permuted, sets, len(real), metric)))
    return MarginalDistance(_named(real, sets), values, metric, floor, baseline)


@takes_tables
def sampling_floor(
    real: pd.DataFrame,
    k: int = 1,
    *,
    metric: str = "tvd",
    max_sets: int | None = None,
    random_state: int = 0,
) -> MarginalDistance:
    """Distance of a bootstrap of the real table: what sampling alone accounts for.

    Parameters
    ----------
    real : DataFrame of shape (n, p)
        The real table; n rows are drawn from it with replacement.
    k, metric, max_sets, random_state
        As in `marginal_distance`, with the same sets; `random_state` also seeds the
        bootstrap.

    Returns
    -------
    MarginalDistance
        Distances between `real` and the bootstrap; their mean is the `floor` of
        `marginal_distance`.

    Raises
    ------
    TypeError, ValueError
        As in `marginal_distance`.

    Examples
    --------
    >>> real = pd.DataFrame({"a": list("xy") * 500})
    >>> sampling_floor(real).mean < 0.05
    True
    """
    aligned(real, real)
    sets = _checked_sets(real, k, metric, max_sets, random_state)
    columns = _columns(real, real.iloc[:0], sets, metric)
    resampled = _resampled(columns, len(real), random_state)
    values = _distances(resampled, sets, len(real), metric)
    return MarginalDistance(_named(real, sets), values, metric)


@takes_tables
def independence_baseline(
    real: pd.DataFrame,
    k: int = 2,
    *,
    metric: str = "tvd",
    max_sets: int | None = None,
    random_state: int = 0,
) -> MarginalDistance:
    """Distance of the real columns, each permuted alone: perfect marginals, no more.

    Parameters
    ----------
    real : DataFrame of shape (n, p)
        The real table.
    k, metric, max_sets, random_state
        As in `marginal_distance`, with the same sets; `random_state` also seeds the
        permutations.

    Returns
    -------
    MarginalDistance
        Distances between `real` and the table of permuted columns; their mean is the
        `baseline` of `marginal_distance`. All 0 for k = 1.

    Raises
    ------
    TypeError, ValueError
        As in `marginal_distance`.

    Examples
    --------
    >>> real = pd.DataFrame({"a": list("xy") * 500, "b": list("uv") * 500})
    >>> round(independence_baseline(real).mean, 1)
    0.5
    """
    aligned(real, real)
    sets = _checked_sets(real, k, metric, max_sets, random_state)
    columns = _columns(real, real.iloc[:0], sets, metric)
    permuted = _permuted(columns, real.shape, random_state)
    values = _distances(permuted, sets, len(real), metric)
    return MarginalDistance(_named(real, sets), values, metric)


@dataclass(frozen=True, eq=False, repr=False)
class LogLikelihood:
    """Mean log-density of rows under a model.

    Attributes
    ----------
    mean : float
        Mean log-density, in nats per row, of the rows of positive density; NaN where
        there are none.
    standard_error : float
        Standard deviation of those log-densities (n - 1 in the denominator) over the
        root of their number; NaN for fewer than two of them.
    n : int
        Number of rows.
    n_impossible : int
        Number of rows of density 0. Their log-density is minus infinity, and so is the
        mean over all rows if there is one; `mean` leaves them out, so read the two
        together.
    """

    mean: float
    standard_error: float
    n: int
    n_impossible: int

    def to_frame(self) -> pd.DataFrame:
        """Return one row.

        Returns
        -------
        DataFrame of shape (1, 4)
            One column per attribute.
        """
        return pd.DataFrame([vars(self)])

    def __repr__(self) -> str:
        return (
            f"LogLikelihood(mean={self.mean:.4f}, "
            f"standard_error={self.standard_error:.4f}, n={self.n}, "
            f"n_impossible={self.n_impossible})"
        )


def log_likelihood(score_samples: Callable[[Any], Any], rows: Any) -> LogLikelihood:
    """Mean log-density of rows under a fitted model, such as a flow.

    Of synthetic rows under a flow fitted to real ones it tells how likely the rows are;
    of real test rows under a fitted synthesizer, how well it covers them. Densities
    change with the units of the columns: compare only models of the same table.

    Parameters
    ----------
    score_samples : callable
        Takes `rows` and returns the log-density of each, of shape (n,), in nats, like
        the method of that name of scikit-learn's density estimators.
    rows : DataFrame or array of shape (n, p)
        The rows to score.

    Returns
    -------
    LogLikelihood
        With the standard error of the mean over rows.

    Raises
    ------
    ValueError
        When there are no rows, or `score_samples` returns another shape, NaN or plus
        infinity.

    Warns
    -----
    UserWarning
        When all rows have density 0, so that the mean is NaN.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> log_likelihood(norm.logpdf, np.array([-1.0, 0.0, 1.0]))
    LogLikelihood(mean=-1.2523, standard_error=0.1667, n=3, n_impossible=0)
    """
    if len(rows) == 0:
        raise ValueError("rows must have at least one row; got none.")
    scores = np.asarray(score_samples(rows), dtype=np.float64)
    if scores.shape != (len(rows),):
        raise ValueError(
            f"score_samples must return one number per row, shape {(len(rows),)}; got "
            f"shape {scores.shape}."
        )
    if np.isnan(scores).any() or np.isposinf(scores).any():
        raise ValueError("score_samples must not return NaN or plus infinity.")
    possible = scores[np.isfinite(scores)]
    if not len(possible):
        warnings.warn(
            "All rows have density 0: the mean log-density is NaN.", stacklevel=2
        )
    n_impossible = len(scores) - len(possible)
    return LogLikelihood(*_mean_and_error(possible), len(scores), n_impossible)


def _mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Return the mean and its standard error, NaN where they are not defined."""
    mean = float(values.mean()) if len(values) else math.nan
    if len(values) < 2:
        return mean, math.nan
    return mean, float(values.std(ddof=1) / math.sqrt(len(values)))


@dataclass(frozen=True, eq=False)
class _Column:
    """One column of two tables, real rows first; numbers where `n_cells` is 0."""

    entries: np.ndarray
    n_cells: int

    def against(self, n_real: int, rows: np.ndarray) -> _Column:
        """Replace the second table by some rows of the first."""
        real = self.entries[:n_real]
        return _Column(np.concatenate([real, real[rows]]), self.n_cells)


def _columns(
    real: pd.DataFrame, synthetic: pd.DataFrame, sets: _Sets, metric: str
) -> dict[int, _Column]:
    """Return the columns that the sets use, by position."""
    used = sorted({position for members in sets for position in members})
    read = _numbers_or_cells if metric == "wasserstein" else _cells
    return {j: read(real.iloc[:, j], synthetic.iloc[:, j]) for j in used}


def _resampled(
    columns: Mapping[int, _Column], n_real: int, random_state: int
) -> dict[int, _Column]:
    """Compare the real rows with as many of them, drawn with replacement."""
    rows = np.random.default_rng(random_state).integers(0, n_real, n_real)
    return {j: column.against(n_real, rows) for j, column in columns.items()}


def _permuted(
    columns: Mapping[int, _Column], shape: tuple[int, int], random_state: int
) -> dict[int, _Column]:
    """Compare the real rows with themselves, every column permuted alone."""
    rng = np.random.default_rng(random_state)
    # One permutation per column of the table, so that they do not depend on the sets.
    orders = ((j, rng.permutation(shape[0])) for j in range(shape[1]))
    return {j: columns[j].against(shape[0], o) for j, o in orders if j in columns}


def _numbers_or_cells(real: pd.Series, synthetic: pd.Series) -> _Column:
    if not is_number(real):
        return _cells(real, synthetic)
    numbers = np.concatenate(_numbers(real, synthetic))
    if np.isinf(numbers).any():
        raise ValueError(
            f"Column {real.name!r} has infinite values, whose Wasserstein distance is "
            "not defined; use metric='tvd' or 'jsd'."
        )
    return _Column(numbers, 0)


def _cells(real: pd.Series, synthetic: pd.Series) -> _Column:
    if not is_number(real):
        codes, levels = comparable_codes(real, synthetic)
        cells = np.concatenate(codes) + 1
        return _Column(cells.astype(np.int32), len(levels) + 1)
    values = _numbers(real, synthetic)
    edges = _edges(values[0])
    joined = np.concatenate(values)
    cells = np.searchsorted(edges, joined, side="right") + 1
    cells[np.isnan(joined)] = 0
    return _Column(cells.astype(np.int32), len(edges) + 2)


def _numbers(real: pd.Series, synthetic: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    values = as_floats(real), as_floats(synthetic)
    if pd.api.types.is_integer_dtype(real):
        return values[0], np.rint(values[1])
    return values


def _edges(values: np.ndarray) -> np.ndarray:
    """Inner edges of a numeric column's cells [edge, next edge)."""
    distinct, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    if len(distinct) <= N_QUANTILES:
        return distinct[1:]
    ordered = np.repeat(distinct, counts)
    return np.unique(np.quantile(ordered, np.arange(1, N_QUANTILES) / N_QUANTILES))


def _distances(
    columns: Mapping[int, _Column], sets: _Sets, n_real: int, metric: str
) -> np.ndarray:
    """Return the distance of every set's marginals."""
    return np.array(
        [_distance([columns[j] for j in members], n_real, metric) for members in sets]
    )


def _distance(columns: Sequence[_Column], n_real: int, metric: str) -> float:
    if not columns[0].n_cells:
        entries = columns[0].entries
        return _wasserstein(entries[:n_real], entries[n_real:])
    measure = _jensen_shannon if metric == "jsd" else _total_variation
    return measure(*_frequencies(columns, n_real))


def _frequencies(
    columns: Sequence[_Column], n_real: int
) -> tuple[np.ndarray, np.ndarray]:
    """Joint frequencies of cells in the first `n_real` rows and in the others."""
    joint, size = np.zeros(1, np.int64), 1
    for column in columns:
        joint, size = joint * column.n_cells + column.entries, size * column.n_cells
        if size > _MAX_CELLS:
            occupied, joint = np.unique(joint, return_inverse=True)
            size = len(occupied)
    real = np.bincount(joint[:n_real], minlength=size) / n_real
    return real, np.bincount(joint[n_real:], minlength=size) / (len(joint) - n_real)


def _total_variation(p: np.ndarray, q: np.ndarray) -> float:
    """Half the L1 distance of two vectors of frequencies."""
    return float(np.abs(p - q).sum() / 2)


def _jensen_shannon(p: np.ndarray, q: np.ndarray) -> float:
    """Jensen-Shannon divergence to base 2 of two vectors of frequencies."""
    occupied = (p > 0) | (q > 0)
    p, q = p[occupied], q[occupied]
    middle = (p + q) / 2
    nats = (rel_entr(p, middle).sum() + rel_entr(q, middle).sum()) / 2
    return float(np.clip(nats / math.log(2), 0.0, 1.0))


def _wasserstein(real: np.ndarray, other: np.ndarray) -> float:
    """Wasserstein-1 distance in real widths; missing lies one of them away."""
    known = real[~np.isnan(real)], other[~np.isnan(other)]
    share, other_share = len(known[0]) / len(real), len(known[1]) / len(other)
    gap, common = abs(share - other_share), min(share, other_share)
    return gap + common * _shift(*known) if common else gap


def _shift(real: np.ndarray, other: np.ndarray) -> float:
    """Wasserstein-1 distance of numbers over the range of the real ones."""
    width = np.ptp(real)
    if width == 0:
        return float(np.mean(other != real[0]))
    return float(wasserstein_distance(real, other) / width)


def _checked_sets(
    real: pd.DataFrame, k: int, metric: str, max_sets: int | None, random_state: int
) -> list[tuple[int, ...]]:
    """Return the sets of column positions to compare."""
    check_option("marginal_distance", "metric", metric, METRICS)
    if metric == "wasserstein" and k != 1:
        raise ValueError(
            f"metric='wasserstein' compares single columns, k=1; got k={k}. Use "
            "metric='tvd' or 'jsd' for larger sets."
        )
    return _draw_sets(real.shape[1], k, max_sets, random_state)


def _named(real: pd.DataFrame, sets: _Sets) -> tuple[tuple[Hashable, ...], ...]:
    return tuple(tuple(real.columns[j] for j in members) for members in sets)


def _draw_sets(
    n_columns: int, k: int, max_sets: int | None, random_state: int
) -> list[tuple[int, ...]]:
    """Return sets of k column positions: all of them, or a draw without replacement."""
    _check_range("k", k, 1, n_columns)
    if max_sets is not None:
        _check_range("max_sets", max_sets, 1, None)
    rng = np.random.default_rng(random_state)
    for size in range(1, k + 1):
        total = math.comb(n_columns, size)
        limit = max_sets or (total if size == 1 else MAX_SETS.get(size, MAX_SETS[3]))
        if total > limit:
            ranks = np.sort(rng.choice(total, limit, replace=False))
        else:
            ranks = np.arange(total)
    return [_unrank(int(rank), n_columns, k) for rank in ranks]


def _unrank(rank: int, n_columns: int, k: int) -> tuple[int, ...]:
    """Return the set number `rank` of all k-subsets in lexicographic order."""
    members: list[int] = []
    position = 0
    for remaining in reversed(range(k)):
        while (block := math.comb(n_columns - position - 1, remaining)) <= rank:
            rank -= block
            position += 1
        members.append(position)
        position += 1
    return tuple(members)


def _check_range(name: str, value: Any, lower: int, upper: int | None) -> None:
    if value != int(value) or value < lower or (upper is not None and value > upper):
        most = "" if upper is None else f" and at most {upper}, the number of columns"
        raise ValueError(
            f"{name} must be an integer, at least {lower}{most}; got {value}."
        )
