"""Association between pairs of columns, and how much synthesis changes it."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from dpgenerative.metrics.columns import (
    aligned,
    as_floats,
    comparable,
    is_number,
    takes_tables,
    warn_if_few,
)


class _MatrixDistance:
    """Summaries of a difference between two matrices."""

    difference: pd.DataFrame

    @property
    def rmse(self) -> float:
        """Root mean square over all p x p entries, the zero diagonal included."""
        return float(np.sqrt(np.mean(self.difference.to_numpy() ** 2)))

    @property
    def mae(self) -> float:
        """Mean absolute value over all p x p entries, the zero diagonal included."""
        return float(np.abs(self.difference.to_numpy()).mean())

    def to_frame(self) -> pd.DataFrame:
        """Return one row per pair of columns, worst first.

        Returns
        -------
        DataFrame of p (p - 1) / 2 rows
            Columns ``columns`` (tuple of two names), ``real`` and ``synthetic`` (of
            associations alone) and ``difference``.
        """
        names = list(self.difference.columns)
        upper = np.triu_indices(len(names), 1)
        matrices = {**vars(self), "difference": self.difference}
        entries = {name: matrix.to_numpy()[upper] for name, matrix in matrices.items()}
        frame = pd.DataFrame({"columns": list(combinations(names, 2)), **entries})
        return frame.sort_values(
            "difference", key=abs, ascending=False, kind="stable", ignore_index=True
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n_columns={len(self.difference)}, "
            f"rmse={self.rmse:.4f}, mae={self.mae:.4f})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class KendallDistance(_MatrixDistance):
    """Difference between the Kendall matrices of two tables.

    Attributes
    ----------
    difference : DataFrame of shape (p, p)
        Synthetic minus real tau-b of the p numeric columns, in [-2, 2]; zero diagonal.
    """

    difference: pd.DataFrame


@dataclass(frozen=True, eq=False, repr=False)
class AssociationDistance(_MatrixDistance):
    """Difference between the association matrices of two tables.

    Attributes
    ----------
    real, synthetic : DataFrame of shape (p, p)
        Association of every pair of the p columns in each table, in [0, 1].
    """

    real: pd.DataFrame
    synthetic: pd.DataFrame

    @property
    def difference(self) -> pd.DataFrame:  # type: ignore[override]
        """Synthetic minus real association, in [-1, 1]; zero diagonal."""
        return self.synthetic - self.real


@takes_tables
def kendall_tau_matrix(frame: pd.DataFrame) -> pd.DataFrame:
    """Kendall's tau-b of every pair of numeric columns.

    Takes O(p^2 n log n) time for p numeric columns. Rows with a missing value in either
    column are left out of that pair. Where tau-b is undefined (a constant column, or
    fewer than two complete rows), the entry is 0: there is no evidence of association.

    Parameters
    ----------
    frame : DataFrame of shape (n, any)
        Columns that are not numeric by dtype are ignored, booleans among them.

    Returns
    -------
    DataFrame of shape (p, p)
        Symmetric, in [-1, 1], ones on the diagonal; rows and columns named alike.

    Raises
    ------
    TypeError
        If `frame` is not a DataFrame.
    ValueError
        If no column is numeric, or there is no row or a repeated column.

    References
    ----------
    M. G. Kendall, "The treatment of ties in ranking problems", Biometrika 33 (1945).

    Examples
    --------
    >>> frame = pd.DataFrame({"a": [1, 2, 3, 4], "b": [1, 3, 2, 4]})
    >>> kendall_tau_matrix(frame).loc["a", "b"].round(3).item()
    0.667
    """
    aligned(frame, frame, ("frame", "frame"))
    names = [name for name in frame.columns if is_number(frame[name])]
    if not names:
        raise ValueError("Kendall's tau needs a numeric column; the table has none.")
    ranks = [_dense_ranks(frame[name]) for name in names]
    return _symmetric(names, ranks, _tau)


@takes_tables
def kendall_tau_distance(
    real: pd.DataFrame, synthetic: pd.DataFrame
) -> KendallDistance:
    """Compare the Kendall matrices of two tables, over the real numeric columns.

    Parameters
    ----------
    real, synthetic : DataFrame of shape (n_real, p) and (n_synthetic, p)
        Same columns, in any order; row counts may differ.

    Returns
    -------
    KendallDistance
        With `rmse` and `mae` over all entries of the difference, as in Table 1 of
        Lee, Kim, Jeong and Ro (AAAI 2022).

    Raises
    ------
    ValueError
        If the columns of the tables differ, a column that is numeric in `real` is
        not in `synthetic`, or no column is numeric.

    Warns
    -----
    UserWarning
        If a table has fewer than 50 rows.

    Examples
    --------
    >>> real = pd.DataFrame({"a": range(50), "b": range(50)})
    >>> round(kendall_tau_distance(real, real.assign(b=range(50, 0, -1))).rmse, 3)
    1.414
    """
    synthetic = aligned(real, synthetic)
    real_matrix = kendall_tau_matrix(real)
    for name in real_matrix:
        as_floats(synthetic[name])  # refuses what is no number
    warn_if_few({"real": len(real), "synthetic": len(synthetic)})
    ranks = [_dense_ranks(synthetic[name]) for name in real_matrix]
    return KendallDistance(_symmetric(list(real_matrix), ranks, _tau) - real_matrix)


@takes_tables
def association_matrix(frame: pd.DataFrame) -> pd.DataFrame:
    """Strength of association of every pair of columns, whatever their kind.

    =================== ==============================================================
    pair                measure
    =================== ==============================================================
    numeric, numeric    absolute value of Kendall's tau-b
    nominal, nominal    Cramer's V with Bergsma's correction of its bias
    numeric, nominal    correlation ratio eta: the root of the share of the number's
                        variance that lies between the means of the levels
    =================== ==============================================================

    Columns are numeric by dtype; all others are nominal, booleans and dates among them.
    Missing is a level of a nominal column. Rows with a missing number are left out of
    the pairs of that numeric column, those with an infinite number out of eta. Where a
    measure is undefined (a constant column, fewer than two complete rows, for V a level
    for every row), the entry is 0: there is no evidence of association.

    The three measures have no common scale: compare an entry with the same entry of
    another table, not with its neighbours. Eta, unlike V, is biased upwards, by about
    ``sqrt((levels - 1) / (rows - 1))`` under independence. Takes O(p^2 n log n) time.

    Parameters
    ----------
    frame : DataFrame of shape (n, p)
        The table.

    Returns
    -------
    DataFrame of shape (p, p)
        Symmetric, in [0, 1], ones on the diagonal; rows and columns named alike.

    Raises
    ------
    TypeError
        If `frame` is not a DataFrame.
    ValueError
        If it has no row, no column or a repeated column.

    References
    ----------
    W. Bergsma, "A bias-correction for Cramer's V and Tschuprow's T", Journal of the
    Korean Statistical Society 42 (2013). K. Pearson, "On the general theory of skew
    correlation and non-linear regression", Drapers' Company Research Memoirs,
    Biometric Series II (1905).

    Examples
    --------
    >>> frame = pd.DataFrame({"x": [1, 1, 3, 3], "y": list("aabb"), "z": list("abab")})
    >>> association_matrix(frame).loc["y"].round(6).tolist()
    [1.0, 1.0, 0.0]
    """
    aligned(frame, frame, ("frame", "frame"))
    columns = [_read(frame[name], frame[name])[0] for name in frame.columns]
    return _symmetric(list(frame.columns), columns, _association)


@takes_tables
def association_distance(
    real: pd.DataFrame, synthetic: pd.DataFrame
) -> AssociationDistance:
    """Compare the association matrices of two tables, over all columns.

    Columns are numeric by their dtype in `real`. Levels are those that occur in each
    table; unused categories do not matter.

    Parameters
    ----------
    real, synthetic : DataFrame of shape (n_real, p) and (n_synthetic, p)
        Same columns, in any order; row counts may differ.

    Returns
    -------
    AssociationDistance
        With `rmse` and `mae` over all entries of the difference.

    Raises
    ------
    TypeError
        If a table is not a DataFrame.
    ValueError
        If the columns of the tables differ, a table is empty, or a column holds
        numbers in one table and strings in the other.

    Warns
    -----
    UserWarning
        If a table has fewer than 50 rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.integers(0, 3, 600)
    >>> real = pd.DataFrame({"x": x, "y": np.array(["low", "mid", "high"])[x]})
    >>> fake = real.assign(x=rng.permutation(x))
    >>> association_distance(real, fake).to_frame().round(2)
      columns  real  synthetic  difference
    0  (x, y)   1.0       0.02       -0.98
    """
    synthetic = aligned(real, synthetic)
    names = list(real.columns)
    pairs = [_read(real[name], synthetic[name]) for name in names]
    warn_if_few({"real": len(real), "synthetic": len(synthetic)})
    tables = zip(*pairs, strict=True)
    return AssociationDistance(*(_symmetric(names, x, _association) for x in tables))


@dataclass(frozen=True, eq=False)
class _Column:
    """A column by codes, -1 where missing: of levels, or the dense ranks of numbers."""

    codes: np.ndarray
    numbers: np.ndarray | None = None


def _read(real: pd.Series, synthetic: pd.Series) -> list[_Column]:
    """Read a column of two tables: as numbers if the real ones are, or by level."""
    pair, levels = comparable(real, synthetic)
    if levels is not None:
        return [_Column(codes) for codes in pair]
    ranks = map(_dense_ranks, (real, synthetic))
    return list(map(_Column, ranks, pair))


def _association(first: _Column, second: _Column) -> float:
    if first.numbers is not None and second.numbers is not None:
        return abs(_tau(first.codes, second.codes))
    if first.numbers is not None:
        return _correlation_ratio(first.numbers, second.codes + 1)
    if second.numbers is not None:
        return _correlation_ratio(second.numbers, first.codes + 1)
    return _cramers_v(first.codes + 1, second.codes + 1)


def _cramers_v(first: np.ndarray, second: np.ndarray) -> float:
    """Cramer's V of two columns of codes, corrected for bias; 0 where undefined."""
    n, rows, columns = len(first), np.bincount(first), np.bincount(second)
    n_rows, n_columns = np.count_nonzero(rows), np.count_nonzero(columns)
    fewer, more = sorted((n_rows - 1, n_columns - 1))
    if fewer == 0 or more >= n - 1:
        return 0.0
    cells, counts = np.unique(first * len(columns) + second, return_counts=True)
    expected = rows[cells // len(columns)] / n * columns[cells % len(columns)]
    phi = (counts * (counts / expected)).sum() / n - 1  # chi-squared over n
    phi = max(0.0, phi - fewer * more / (n - 1))
    widths = [levels - levels**2 / (n - 1) for levels in (fewer, more)]
    return float(np.sqrt(min(1.0, phi / min(widths))))


def _correlation_ratio(values: np.ndarray, codes: np.ndarray) -> float:
    """Eta of numbers on levels; 0 where undefined."""
    finite = np.isfinite(values)
    values, codes = values[finite], codes[finite]
    if len(values) < 2 or np.all(values == values[0]):
        return 0.0
    values = values / np.abs(values).max()  # so that no square overflows
    values = values - values.mean()
    sums, counts = np.bincount(codes, values), np.bincount(codes)
    occurs = counts > 0
    if occurs.sum() == 1:
        return 0.0
    between = (sums[occurs] ** 2 / counts[occurs]).sum()
    return float(np.sqrt(min(1.0, between / (values**2).sum())))


def _symmetric(
    names: Sequence[Hashable],
    columns: Sequence[Any],
    measure: Callable[[Any, Any], float],
) -> pd.DataFrame:
    """Apply a measure to all pairs of columns; ones on the diagonal."""
    matrix = np.eye(len(names))
    for i, j in combinations(range(len(names)), 2):
        matrix[i, j] = matrix[j, i] = measure(columns[i], columns[j])
    return pd.DataFrame(matrix, index=names, columns=names)


def _dense_ranks(series: pd.Series) -> np.ndarray:
    """Return each value's rank among the distinct values, from 0; -1 where missing."""
    return pd.factorize(series, sort=True)[0]


def _tau(first: np.ndarray, second: np.ndarray) -> float:
    complete = (first >= 0) & (second >= 0)
    if complete.sum() < 2:
        return 0.0
    tau = kendalltau(first[complete], second[complete]).statistic
    return 0.0 if np.isnan(tau) else float(tau)
