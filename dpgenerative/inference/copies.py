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

from dpgenerative._progress import watched
from dpgenerative._validation import count
from dpgenerative.inference.refits import check_fitted, refitted, seed_of
from dpgenerative.inference.results import Bootstrap
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


def combine(
    estimates: Any, independent: Any = None, level: float = 0.95
) -> pd.DataFrame:
    """Return estimates with intervals, from results on tables of `sample_copies`.

    Parameters
    ----------
    estimates : array-like or DataFrame of shape (n_tables,) or (n_tables, n_results)
        Results on the first table, then on each of the copies.
    independent : array-like or DataFrame, optional
        The same after each column of every table was shuffled on its own. With it,
        relations between columns are corrected as in `bootstrap`.
    level : float in (0, 1), default=0.95

    Returns
    -------
    DataFrame
        One row per result: ``estimate`` (on the first table, less the bias that the
        copies show), ``lower`` and ``upper``.

    Raises
    ------
    ValueError
        For fewer than three tables, or two inputs of different shapes.

    Examples
    --------
    >>> combine([41.2, 41.0, 41.9, 40.8, 41.1])[["lower", "upper"]].round(1)
       lower  upper
    0   39.5   42.9
    """
    table = pd.DataFrame(estimates).astype(float).reset_index(drop=True)
    if len(table) < 3:
        raise ValueError(
            f"combine needs results on three tables or more; got {len(table)}."
        )
    alone = table if independent is None else pd.DataFrame(independent).astype(float)
    if alone.shape != table.shape:
        raise ValueError(
            f"combine: estimates and independent differ in shape: {table.shape} and "
            f"{alone.shape}."
        )
    alone = alone.set_axis(table.columns, axis=1).reset_index(drop=True)
    first, copies, none = table.iloc[0], table.iloc[1:], table.iloc[1:] * np.nan
    result = Bootstrap(
        first, none.iloc[0], copies, none, none, alone.iloc[0], alone.iloc[1:], 0,
    )  # fmt: skip
    bounds = result.interval(level)
    bounds.insert(0, "estimate", first - result.bias)
    return bounds
