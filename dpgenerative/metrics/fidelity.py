"""Distances between the marginals of two tables.

Every column is first discretized into cells: a numeric column is cut at the 20-quantile
edges of the *real* column (at its distinct values if there are at most 20: a synthetic
number between two of them counts as the lower one, and one beyond them as the nearest),
any other column has one cell per level, and missing values form a cell of their own. A
k-way marginal is the table of cell frequencies of k columns. Two of them, p and q, are
compared by one of three distances:

``"tvd"``
    Total variation distance, half the sum of ``|p - q|``; in [0, 1].
``"jsd"``
    Jensen-Shannon divergence to base 2, the mean Kullback-Leibler divergence of p and q
    from ``(p + q) / 2``; in [0, 1]. Its square root is the Jensen-Shannon *distance*.
``"wasserstein"``
    Single columns only, and without cells: the Wasserstein-1 distance of the numbers
    divided by the range of the real ones, so that 1 is the width of the real column
    (numbers beyond its range can make it exceed 1). Where only a share s or t of rows
    has a number, the distance of the numbers is weighted by min(s, t) and ``|s - t|``
    is added: a missing value lies one real width away from every number. Where all
    real numbers are equal, their range gives no scale, and the distance is the share
    of synthetic numbers that differ. Columns that are not numeric have the total
    variation distance, which is Wasserstein-1 for levels that are all 1 apart.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.special import rel_entr
from scipy.stats import wasserstein_distance

from dpgenerative._validation import check_option, count
from dpgenerative.metrics.columns import aligned, comparable, takes_tables, warn_if_few

DISTANCES = ("tvd", "jsd", "wasserstein")
N_QUANTILES = 20
MAX_SETS = {2: 300, 3: 200}  # by size of the sets; larger ones as for triples
_MAX_CELLS = 2**22  # counted densely up to here, relabelled to occupied cells beyond


@dataclass(frozen=True, eq=False, repr=False)
class MarginalDistance:
    """Distances between the k-way marginals of two tables, one per set of columns.

    Attributes
    ----------
    sets : tuple of tuple of hashable
        The sets of column names compared, all of size k.
    values : ndarray of shape (n_sets,)
        Distance of each set's marginal, at least 0; at most 1 except for
        "wasserstein".
    metric : {"tvd", "jsd", "wasserstein"}
        What `values` measure.
    floor : float or None
        Mean distance, over the same sets, of a bootstrap sample of the real table: what
        sampling that many rows accounts for. None where it was not asked for.
    baseline : float or None
        Mean distance, over the same sets, of the real table with each column permuted
        independently: what perfect single columns reach without any dependence. Always
        0 for k = 1, since a permutation leaves a single column's marginal unchanged.
        None where it was not asked for.
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
        stated = [name for name in names if getattr(self, name) is not None]
        shown = "".join(f", {name}={getattr(self, name):.4f}" for name in stated)
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
        Same columns, in any order; row counts may differ. Columns may consist of
        missing values only.
    k : int, default=1
        Size of the sets of columns: 1 for single columns, 2 for pairs, ...
    metric : {"tvd", "jsd", "wasserstein"}, default="tvd"
        Total variation distance, Jensen-Shannon divergence, or for k = 1 Wasserstein-1
        distance in units of the real range. The module's docstring defines them.
    references : bool, default=True
        Whether to compute `floor` and `baseline` too, on the same sets: about three
        times the work. Without them, small tables do not trigger a warning.
    max_sets : int, optional
        Compare at most this many sets. None: all columns, 300 pairs, 200 triples
        (or larger sets).
    random_state : int, default=0
        Seed of the draw of sets, if there are more than `max_sets`, and of both
        references. Sets of sizes 1 to k are drawn in turn from one generator.

    Returns
    -------
    MarginalDistance
        0 for equal marginals; 1 for total variation and Jensen-Shannon where the tables
        have no cell in common.

    Raises
    ------
    TypeError
        If a table is not a DataFrame.
    ValueError
        If the columns of the tables differ, a table is empty, a column holds numbers
        in one table and strings in the other, `metric` is unknown,
        `metric="wasserstein"` meets infinite numbers or k > 1, or `k` or `max_sets` is
        out of range.

    Warns
    -----
    UserWarning
        If `references` are asked for and a table has fewer than 50 rows.

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
    sets = _draw_sets(real.shape[1], k, metric, max_sets, random_state)
    result = _compared(real, synthetic, sets, metric)
    if not references:
        return result
    warn_if_few({"real": len(real), "synthetic": len(synthetic)})
    others = resampled(real, random_state), permuted(real, random_state)
    floor, baseline = (_compared(real, other, sets, metric).mean for other in others)
    return replace(result, floor=floor, baseline=baseline)


@takes_tables
def sampling_floor(
    real: pd.DataFrame,
    k: int = 1,
    *,
    metric: str = "tvd",
    max_sets: int | None = None,
    random_state: int = 0,
) -> MarginalDistance:
    """Distance of a bootstrap sample of the real table: what sampling accounts for.

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
        Distances between `real` and the bootstrap sample; their mean is the `floor` of
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
    sets = _draw_sets(real.shape[1], k, metric, max_sets, random_state)
    return _compared(real, resampled(real, random_state), sets, metric)


@takes_tables
def independence_baseline(
    real: pd.DataFrame,
    k: int = 2,
    *,
    metric: str = "tvd",
    max_sets: int | None = None,
    random_state: int = 0,
) -> MarginalDistance:
    """Distance of the real table with its columns permuted: no dependence is left.

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
    sets = _draw_sets(real.shape[1], k, metric, max_sets, random_state)
    return _compared(real, permuted(real, random_state), sets, metric)


# Marginals and the distances between them ---------------------------------------------


Seed = int | np.random.Generator


def resampled(real: pd.DataFrame, random_state: Seed) -> pd.DataFrame:
    """Return as many rows of a table, drawn with replacement."""
    rng = np.random.default_rng(random_state)
    return real.iloc[rng.integers(0, len(real), len(real))]


def permuted(real: pd.DataFrame, random_state: Seed) -> pd.DataFrame:
    """Return a table with each column permuted alone."""
    rng = np.random.default_rng(random_state)
    orders = [rng.permutation(len(real)) for _ in real]
    columns = [real.iloc[o, j].reset_index(drop=True) for j, o in enumerate(orders)]
    return pd.concat(columns, axis=1).set_axis(real.columns, axis=1)


def _compared(
    real: pd.DataFrame, other: pd.DataFrame, sets: list[tuple[int, ...]], metric: str
) -> MarginalDistance:
    """Compare the marginals of all sets; every column is read once."""
    columns = {
        j: _read(real.iloc[:, j], other.iloc[:, j], metric)
        for j in sorted({j for members in sets for j in members})
    }
    values = [_distance([columns[j] for j in members], metric) for members in sets]
    names = tuple(tuple(real.columns[j] for j in members) for members in sets)
    return MarginalDistance(names, np.array(values), metric)


_Column = tuple[np.ndarray, np.ndarray, int]
"""One column of two tables: its cells in both and their number; or numbers, and 0."""


def _read(real: pd.Series, other: pd.Series, metric: str) -> _Column:
    """Return the numbers of a column, or the cells of its numbers or levels."""
    pair, levels = comparable(real, other)
    if levels is not None:
        return pair[0] + 1, pair[1] + 1, len(levels) + 1
    if pd.api.types.is_integer_dtype(real):
        pair[1] = np.rint(pair[1])
    if metric == "wasserstein":
        if any(np.isinf(values).any() for values in pair):
            raise ValueError(
                f"Column {real.name!r} has infinite values, whose Wasserstein distance "
                "is not defined; use metric='tvd' or 'jsd'."
            )
        return pair[0], pair[1], 0
    edges = _edges(pair[0])
    cells, others = (number_cells(values, edges) for values in pair)
    return cells, others, len(edges) + 2


def number_cells(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return which interval between edges a number lies in, from 1; 0 for missing."""
    cells = np.searchsorted(edges, values, side="right") + 1
    return np.where(np.isnan(values), 0, cells)


def _edges(values: np.ndarray) -> np.ndarray:
    """Inner edges of a numeric column's cells [edge, next edge)."""
    finite = values[np.isfinite(values)]
    distinct = np.unique(finite)
    if len(distinct) == 1:  # equal, less, or more
        return np.append(distinct, np.nextafter(distinct, np.inf))
    if len(distinct) <= N_QUANTILES:
        return distinct[1:]
    return np.unique(np.quantile(finite, np.arange(1, N_QUANTILES) / N_QUANTILES))


def _distance(columns: Sequence[_Column], metric: str) -> float:
    real, other, n_cells = columns[0]
    if n_cells == 0:
        return _wasserstein(real, other)
    p, q = _frequencies(columns)
    if metric != "jsd":
        return float(np.abs(p - q).sum() / 2)
    middle = (p + q) / 2
    nats = (rel_entr(p, middle).sum() + rel_entr(q, middle).sum()) / 2
    return float(np.clip(nats / math.log(2), 0.0, 1.0))


def _frequencies(columns: Sequence[_Column]) -> tuple[np.ndarray, np.ndarray]:
    """Return the shares of the joint cells in the real table and in the other."""
    joint, n_cells = np.zeros(1, np.int64), 1
    for real, other, size in columns:
        joint = joint * size + np.concatenate([real, other])
        n_cells *= size
        if n_cells > _MAX_CELLS:
            occupied, joint = np.unique(joint, return_inverse=True)
            n_cells = len(occupied)
    parts = np.split(joint, [len(real)])
    p, q = (np.bincount(part, minlength=n_cells) / len(part) for part in parts)
    return p, q


def _wasserstein(real: np.ndarray, other: np.ndarray) -> float:
    """Wasserstein-1 distance in real widths; missing lies one of them away."""
    # By halves: two floats of either sign may lie further apart than the largest one.
    pair = real[~np.isnan(real)] / 2, other[~np.isnan(other)] / 2
    share, other_share = len(pair[0]) / len(real), len(pair[1]) / len(other)
    gap, common = abs(share - other_share), min(share, other_share)
    if not common:
        return gap
    width = np.ptp(pair[0])
    if width == 0:
        return gap + common * float(np.mean(pair[1] != pair[0][0]))
    return gap + common * float(wasserstein_distance(*pair) / width)


# Sets of columns ----------------------------------------------------------------------


def _draw_sets(
    n_columns: int, k: int, metric: str, max_sets: int | None, random_state: int
) -> list[tuple[int, ...]]:
    """Return sets of k column positions: all of them, or a draw without replacement."""
    owner = "marginal_distance"
    check_option(owner, "metric", metric, DISTANCES)
    if metric == "wasserstein" and k != 1:
        raise ValueError(
            f"metric='wasserstein' compares single columns, k=1; got k={k}. Use "
            "metric='tvd' or 'jsd' for larger sets."
        )
    count(high=n_columns, closed="both")(owner, "k", k)
    count(also=[None])(owner, "max_sets", max_sets)
    rng = np.random.default_rng(random_state)
    for size in range(1, k + 1):  # smaller sets are drawn first, from one generator
        total = math.comb(n_columns, size)
        limit = max_sets or (total if size == 1 else MAX_SETS.get(size, MAX_SETS[3]))
        ranks: Sequence[int] = range(total)
        if total > limit:
            ranks = np.sort(rng.choice(total, limit, replace=False)).tolist()
    return [_unrank(rank, n_columns, k) for rank in ranks]


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
