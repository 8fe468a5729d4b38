"""Total variation distance between the marginals of two tables.

Every column is first turned into a few cells: a numeric column is cut at the
20-quantile edges of the *real* column (at its distinct values when it has at most 20),
any other column has one cell per level, and a missing value is a cell of its own. A
k-way marginal is the table of cell frequencies of k columns; its distance is half the
sum of absolute differences, between 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

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
        Total variation distance of each set's marginal, in [0, 1].
    """

    sets: tuple[tuple[Hashable, ...], ...]
    values: np.ndarray

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
        return (
            f"MarginalDistance(k={self.k}, n_sets={len(self.sets)}, "
            f"mean={self.mean:.4f}, max={self.max:.4f})"
        )


def marginal_distance(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    k: int = 1,
    *,
    max_sets: int | None = None,
    random_state: int = 0,
) -> MarginalDistance:
    """Compare the k-way marginals of a synthetic table with those of the real one.

    Numeric columns are those with a numeric dtype in `real` (booleans are levels).
    Where `real` holds integers, synthetic values are rounded to integers first.

    Parameters
    ----------
    real, synthetic : DataFrame of shape (n_real, p) and (n_synthetic, p)
        Same columns, in any order; row counts may differ.
    k : int, default=1
        Size of the sets of columns: 1 for single columns, 2 for pairs, ...
    max_sets : int, optional
        Compare at most this many sets. None: all columns, 300 pairs, 200 triples
        (or larger sets).
    random_state : int, default=0
        Seed of the draw of sets, where there are more than `max_sets`. Sets of growing
        size, up to k, are drawn one after the other from one generator.

    Returns
    -------
    MarginalDistance
        Distances in [0, 1]; 0 for equal marginals.

    Raises
    ------
    TypeError
        When a table is not a DataFrame.
    ValueError
        When the columns of the tables differ, a table is empty, a column that is
        numeric in `real` is not in `synthetic`, or `k` or `max_sets` is out of range.

    Examples
    --------
    >>> real = pd.DataFrame({"a": list("xxyy"), "b": [True, True, False, False]})
    >>> fake = pd.DataFrame({"a": list("xxxy"), "b": [True, True, False, False]})
    >>> marginal_distance(real, fake).values.tolist()
    [0.25, 0.0]
    """
    synthetic = aligned(real, synthetic)
    names = list(real.columns)
    chosen = _draw_sets(len(names), k, max_sets, random_state)
    used = sorted({position for members in chosen for position in members})
    cells = {j: _cells(real[names[j]], synthetic[names[j]]) for j in used}
    values = [
        _total_variation([cells[j] for j in members], len(real)) for members in chosen
    ]
    sets = tuple(tuple(names[j] for j in members) for members in chosen)
    return MarginalDistance(sets, np.array(values))


def sampling_floor(
    real: pd.DataFrame,
    k: int = 1,
    *,
    max_sets: int | None = None,
    random_state: int = 0,
) -> MarginalDistance:
    """Distance of a bootstrap of the real table: what sampling alone accounts for.

    Parameters
    ----------
    real : DataFrame of shape (n, p)
        The real table; n rows are drawn from it with replacement.
    k, max_sets, random_state
        As in `marginal_distance`, with the same sets; `random_state` also seeds the
        bootstrap.

    Returns
    -------
    MarginalDistance
        Distances between `real` and the bootstrap.
    """
    aligned(real, real)
    rng = np.random.default_rng(random_state)
    bootstrap = real.iloc[rng.integers(0, len(real), len(real))]
    return marginal_distance(
        real, bootstrap, k, max_sets=max_sets, random_state=random_state
    )


def independence_baseline(
    real: pd.DataFrame,
    k: int = 2,
    *,
    max_sets: int | None = None,
    random_state: int = 0,
) -> MarginalDistance:
    """Distance of the real columns, each permuted alone: perfect marginals, no more.

    Parameters
    ----------
    real : DataFrame of shape (n, p)
        The real table.
    k, max_sets, random_state
        As in `marginal_distance`, with the same sets; `random_state` also seeds the
        permutations.

    Returns
    -------
    MarginalDistance
        Distances between `real` and the table of permuted columns.
    """
    aligned(real, real)
    rng = np.random.default_rng(random_state)
    permuted = {
        name: real[name].array.take(rng.permutation(len(real))) for name in real.columns
    }
    return marginal_distance(
        real, pd.DataFrame(permuted), k, max_sets=max_sets, random_state=random_state
    )


def aligned(
    real: pd.DataFrame,
    other: pd.DataFrame,
    names: tuple[str, str] = ("real", "synthetic"),
) -> pd.DataFrame:
    """Return `other` with its columns in the order of `real`.

    Raises
    ------
    TypeError
        When either is not a DataFrame.
    ValueError
        When either has no row, no column or a repeated column, or their columns differ.
    """
    for frame, name in zip((real, other), names, strict=True):
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"{name} must be a DataFrame; got {type(frame).__name__}.")
        if frame.empty:
            raise ValueError(f"{name} must have rows and columns; got {frame.shape}.")
        if not frame.columns.is_unique:
            repeated = sorted(map(str, frame.columns[frame.columns.duplicated()]))
            raise ValueError(
                f"{name} must have distinct columns; repeated: {repeated}."
            )
    lacking = [column for column in real.columns if column not in other.columns]
    extra = [column for column in other.columns if column not in real.columns]
    if lacking or extra:
        raise ValueError(
            f"{names[1]} must have the columns of {names[0]}; it lacks {lacking} and "
            f"adds {extra}."
        )
    return other[list(real.columns)]


def is_number(series: pd.Series) -> bool:
    """Whether a column is numeric by its dtype; booleans are levels, not numbers."""
    types = pd.api.types
    return types.is_numeric_dtype(series) and not types.is_bool_dtype(series)


def as_floats(series: pd.Series) -> np.ndarray:
    """Return a numeric column as float64, missing values as NaN.

    Raises
    ------
    ValueError
        When the column's dtype is not numeric.
    """
    if not is_number(series):
        raise ValueError(
            f"Column {series.name!r} must be numeric, as in the other table; its dtype "
            f"is {series.dtype}."
        )
    return series.to_numpy(dtype=np.float64, na_value=np.nan)


def level_codes(*columns: pd.Series) -> tuple[list[np.ndarray], pd.Index]:
    """Number the levels of several columns alike.

    Returns
    -------
    codes : list of ndarray of int
        One per column; -1 where missing.
    levels : Index
        The levels that the codes number, those of the first column first.
    """
    coded = [_factorize(column) for column in columns]
    union = coded[0][1]
    for _, levels in coded[1:]:
        union = union.append(levels.difference(union, sort=False))
    renumbered = []
    for codes, levels in coded:
        lookup = np.append(union.get_indexer(levels), -1)  # -1 reads the last entry
        renumbered.append(lookup[codes])
    return renumbered, union


def _factorize(column: pd.Series) -> tuple[np.ndarray, pd.Index]:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.cat.codes.to_numpy(), column.cat.categories.astype(object)
    codes, levels = pd.factorize(column.astype(object))
    return codes, pd.Index(levels, dtype=object)


def _cells(real: pd.Series, synthetic: pd.Series) -> tuple[np.ndarray, int]:
    """Return the cells of real rows then synthetic ones, and how many there are."""
    if not is_number(real):
        codes, levels = level_codes(real, synthetic)
        return np.concatenate(codes) + 1, len(levels) + 1
    values = as_floats(real), as_floats(synthetic)
    if pd.api.types.is_integer_dtype(real):
        values = values[0], np.rint(values[1])
    edges = _edges(values[0])
    joined = np.concatenate(values)
    cells = np.searchsorted(edges, joined, side="right") + 1
    return np.where(np.isnan(joined), 0, cells), len(edges) + 2


def _edges(values: np.ndarray) -> np.ndarray:
    """Inner edges of a numeric column's cells [edge, next edge)."""
    distinct, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    if len(distinct) <= N_QUANTILES:
        return distinct[1:]
    ordered = np.repeat(distinct, counts)
    return np.unique(np.quantile(ordered, np.arange(1, N_QUANTILES) / N_QUANTILES))


def _total_variation(cells: Sequence[tuple[np.ndarray, int]], n_real: int) -> float:
    """Half the L1 distance of joint frequencies; the first `n_real` rows are real."""
    joint, size = np.zeros(1, np.int64), 1
    for codes, n_codes in cells:
        joint, size = joint * n_codes + codes, size * n_codes
        if size > _MAX_CELLS:
            occupied, joint = np.unique(joint, return_inverse=True)
            size = len(occupied)
    real = np.bincount(joint[:n_real], minlength=size) / n_real
    synthetic = np.bincount(joint[n_real:], minlength=size) / (len(joint) - n_real)
    return float(np.abs(real - synthetic).sum() / 2)


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
