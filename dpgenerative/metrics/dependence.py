"""Kendall's tau-b between numeric columns, and how far a synthetic table moves it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from dpgenerative.metrics.fidelity import aligned, as_floats, is_number


@dataclass(frozen=True, eq=False, repr=False)
class KendallDistance:
    """Difference between the Kendall matrices of two tables.

    Attributes
    ----------
    difference : DataFrame of shape (p, p)
        Synthetic minus real tau-b of the p numeric columns; zero diagonal.
    """

    difference: pd.DataFrame

    @property
    def rmse(self) -> float:
        """Root mean square over all p x p entries, the zero diagonal included."""
        return float(np.sqrt(np.mean(self.difference.to_numpy() ** 2)))

    @property
    def mae(self) -> float:
        """Mean absolute value over all p x p entries, the zero diagonal included."""
        return float(np.abs(self.difference.to_numpy()).mean())

    def __repr__(self) -> str:
        return (
            f"KendallDistance(n_columns={len(self.difference)}, "
            f"rmse={self.rmse:.4f}, mae={self.mae:.4f})"
        )


def kendall_tau_matrix(frame: pd.DataFrame) -> pd.DataFrame:
    """Kendall's tau-b of every pair of numeric columns.

    Takes O(p^2 n log n) time for p numeric columns. A row missing in either column is
    left out of that pair. Where tau-b is undefined (a constant column, or fewer than
    two complete rows) the entry is 0: no association can be seen.

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
    ValueError
        When no column is numeric.

    References
    ----------
    M. G. Kendall, "The treatment of ties in ranking problems", Biometrika 33 (1945).

    Examples
    --------
    >>> frame = pd.DataFrame({"a": [1, 2, 3, 4], "b": [1, 3, 2, 4]})
    >>> kendall_tau_matrix(frame).loc["a", "b"].round(3).item()
    0.667
    """
    names = [name for name in frame.columns if is_number(frame[name])]
    if not names:
        raise ValueError("Kendall's tau needs a numeric column; the table has none.")
    ranks = [_dense_ranks(as_floats(frame[name])) for name in names]
    matrix = np.eye(len(names))
    for i, j in combinations(range(len(names)), 2):
        matrix[i, j] = matrix[j, i] = _tau(ranks[i], ranks[j])
    return pd.DataFrame(matrix, index=names, columns=names)


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
        When the columns of the tables differ, a column that is numeric in `real` is
        not in `synthetic`, or no column is numeric.
    """
    synthetic = aligned(real, synthetic)
    numeric = [name for name in real.columns if is_number(real[name])]
    values = {name: as_floats(synthetic[name]) for name in numeric}
    difference = kendall_tau_matrix(pd.DataFrame(values)) - kendall_tau_matrix(real)
    return KendallDistance(difference)


def _dense_ranks(values: np.ndarray) -> np.ndarray:
    """Return each value's rank among the distinct values, from 0; -1 where missing."""
    ranks = np.unique(values, return_inverse=True)[1]
    return np.where(np.isnan(values), -1, ranks)


def _tau(first: np.ndarray, second: np.ndarray) -> float:
    complete = (first >= 0) & (second >= 0)
    if not complete.all():
        first, second = first[complete], second[complete]
    if len(first) < 2:
        return 0.0
    tau = kendalltau(first, second).statistic
    return 0.0 if np.isnan(tau) else float(tau)
