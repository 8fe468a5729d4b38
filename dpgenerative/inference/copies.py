"""Synthetic tables that carry their own error, for analysts who get only files.

One table is drawn from the synthesizer. The others are drawn from refits to tables of
the first one's rows, which stand for the people. The rule for intervals is that of
`bootstrap`: results on the copies vary around the result on the first table as that
varies around the truth.
"""

import copy
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from dpgenerative._progress import watched
from dpgenerative._validation import count, number
from dpgenerative.inference.refits import check_fitted, refitted, seed_of
from dpgenerative.synthesizers import session
from dpgenerative.synthesizers.base import Synthesizer


def sample_copies(
    synthesizer: Synthesizer,
    n_copies: int,
    n_samples: int,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 1,
) -> Iterator[Any]:
    """Yield a synthetic table, and copies of it that show how far to trust it.

    Parameters
    ----------
    synthesizer : fitted synthesizer
        It is not changed, and nothing is spent.
    n_copies : int
        Number of copies, at least 2; 20 are enough for 95 % intervals.
    n_samples : int
        Rows of every table: no fewer than the private ones, or refits see few
        different rows.
    n_jobs, random_state, verbose
        As `bootstrap` takes them.

    Yields
    ------
    X : DataFrame or ndarray of shape (n_samples, n_features)
        First a sample of the synthesizer, then one of every refit; ``(X, y)`` if y was
        fitted too.

    Raises
    ------
    ValueError
        If the synthesizer was fitted with public rows.
    """
    count(2)("sample_copies", "n_copies", n_copies)
    count()("sample_copies", "n_samples", n_samples)
    check_fitted("sample_copies", synthesizer)
    seed = seed_of(random_state)
    return _copies(synthesizer, n_copies, n_samples, n_jobs, seed, bool(verbose))


def _copies(
    synthesizer: Any, n_copies: int, n_samples: int, n_jobs: Any, seed: int, bar: bool
) -> Iterator[Any]:
    first = session.drawn(synthesizer, n_samples, seed)
    yield copy.copy(first[0]) if len(first) == 1 else tuple(map(copy.copy, first))
    then = partial(_copy, n_samples)
    copies = refitted(synthesizer, first, n_copies, n_jobs, seed, then)
    yield from watched(copies, "copies", bar, total=n_copies)


def _copy(n_samples: int, i: int, rows: Any, fitted: Any) -> Any:
    return fitted.sample(n_samples)  # by the refit's own seed


def copies_to(
    paths: Sequence[Path], synthesizer: Any, n_samples: int, n_jobs: Any, seed: int
) -> None:
    """Write a synthetic table to the first of some files, copies to the others."""
    synthesizer.sample_to(paths[0], n_samples, seed)
    first = session.drawn_in_parts(synthesizer, n_samples, seed)
    then = partial(_write, paths[1:], n_samples)
    copies = refitted(synthesizer, first, len(paths) - 1, n_jobs, seed, then)
    for _ in watched(copies, "copies", True, total=len(paths) - 1):
        pass


def _write(
    paths: Sequence[Path], n_samples: int, i: int, rows: Any, fitted: Any
) -> None:
    fitted.sample_to(paths[i], n_samples)


def combine(estimates: Any, level: float = 0.95) -> pd.DataFrame:
    """Return estimates with intervals, from results on tables of `sample_copies`.

    Parameters
    ----------
    estimates : array-like or DataFrame of shape (n_tables,) or (n_tables, n_results)
        Results on the first table, then on each of the copies.
    level : float in (0, 1), default=0.95

    Returns
    -------
    DataFrame
        One row per result: ``estimate`` (on the first table, less the bias that the
        copies show), ``standard_error``, ``lower``, ``upper``, and ``df``, degrees of
        freedom of the intervals.

    Raises
    ------
    ValueError
        For fewer than three tables.

    Examples
    --------
    >>> combine([41.2, 41.0, 41.9, 40.8, 41.1])[["lower", "upper"]].round(1)
       lower  upper
    0   39.5   42.9
    """
    number(low=0, high=1)("combine", "level", level)
    table = pd.DataFrame(estimates).astype(float)
    if len(table) < 3:
        raise ValueError(
            f"combine needs results on three tables or more; got {len(table)}."
        )
    first, copies = table.iloc[0], table.iloc[1:]
    n = copies.count()
    error = copies.std() * np.sqrt(1 + 1 / n)
    reach = stats.t.ppf((1 + level) / 2, n - 1) * error
    centre = 2 * first - copies.mean()
    return pd.DataFrame(
        {
            "estimate": centre, "standard_error": error, "lower": centre - reach,
            "upper": centre + reach, "df": n - 1,
        }
    )  # fmt: skip
