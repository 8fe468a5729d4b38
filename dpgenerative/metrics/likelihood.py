"""Likelihoods of rows under a model."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import sem


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

    For synthetic rows under a flow fitted to real ones, it measures how likely the rows
    are; for real test rows under a fitted synthesizer, how well it covers them.
    Densities depend on the units of the columns: compare only models of the same table.

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
        If there are no rows, or `score_samples` returns the wrong shape, NaN or plus
        infinity.

    Warns
    -----
    UserWarning
        If all rows have density 0, so that the mean is NaN.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> log_likelihood(norm.logpdf, np.array([-1.0, 0.0, 1.0]))
    LogLikelihood(mean=-1.2523, standard_error=0.1667, n=3, n_impossible=0)
    """
    if len(rows) == 0:
        raise ValueError("rows must have at least one row; got none.")
    scores = row_scores("score_samples", score_samples, rows)
    if np.isnan(scores).any() or np.isposinf(scores).any():
        raise ValueError("score_samples must not return NaN or plus infinity.")
    possible = scores[np.isfinite(scores)]
    if not len(possible):
        warnings.warn(
            "All rows have density 0: the mean log-density is NaN.", stacklevel=2
        )
    return LogLikelihood(
        mean=float(possible.mean()) if len(possible) else math.nan,
        standard_error=float(sem(possible)) if len(possible) > 1 else math.nan,
        n=len(scores),
        n_impossible=len(scores) - len(possible),
    )


def row_scores(name: str, score: Callable[[Any], Any], rows: Any) -> np.ndarray:
    """Return a number for every row, as a callable of this name gives them."""
    scores = np.asarray(score(rows), dtype=np.float64)
    if scores.shape != (len(rows),):
        raise ValueError(
            f"{name} must return one number per row, shape {(len(rows),)}; got shape "
            f"{scores.shape}."
        )
    return scores
