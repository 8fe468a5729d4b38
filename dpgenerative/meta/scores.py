"""Scores of a private search, to which one row contributes little."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative._random import RandomSource
from dpgenerative.encoding.values import level_codes, level_indices
from dpgenerative.metrics.fidelity import number_cells
from dpgenerative.synthesizers import session
from dpgenerative.synthesizers.base import Synthesizer
from dpgenerative.tables.column import Column
from dpgenerative.tables.conditions import on_line
from dpgenerative.tables.containers import as_series, plain
from dpgenerative.tables.private import Private

SCORE_SENSITIVITY = 0.5
"""Sensitivity of the sum of (score - 1/2) over rows, and of `pairs_deviation`."""
_N_BINS = 10
"""Quantile intervals of a numeric column in the distance of pairs."""
_SCORE_ROWS = 20_000
"""Most synthetic rows that are sampled for this distance."""
Cells = tuple[np.ndarray, np.ndarray]
"""Cells of synthetic and of held-out values of one column."""


def row_scores(
    scoring: Callable[..., Any], estimator: Any, X: Any, y: Any
) -> np.ndarray:
    """Return one score in [0, 1] per row; rows on which scoring raises get 0.

    A row that raises must not change the others' scores, so that these are then
    computed one by one.
    """
    n = len(X)
    if n == 0:
        return np.zeros(0)
    try:
        scores = np.asarray(scoring(estimator, X, y), dtype=float)
    except Exception:
        if n == 1:
            return np.zeros(1)
        single = (np.arange(n) == i for i in range(n))
        parts = [(rows(X, row), rows(y, row)) for row in single]
        return np.concatenate([row_scores(scoring, estimator, *p) for p in parts])
    if scores.shape != (n,):
        raise ValueError("PrivateSearch: scoring must return one number per row.")
    return np.clip(np.nan_to_num(scores, nan=0.0), 0.0, 1.0)


def rows(data: Any, chosen: np.ndarray) -> Any:
    """Return chosen rows of a table or column with its dtypes, or None of None."""
    return None if data is None else data[chosen]


def split(
    private: Private[tuple[Any, Any]], holdout: float, rng: RandomSource
) -> tuple[Private[Any], Private[Any]]:
    """Return X and y of rows to fit and of those held out; each row is drawn alone."""

    def parts(pair: tuple[Any, Any]) -> list[Any]:
        is_test = rng.random(len(pair[0])) < holdout
        return [[rows(x, chosen) for x in pair] for chosen in (~is_test, is_test)]

    both = private.map(parts)
    return both.map(itemgetter(0)), both.map(itemgetter(1))


def hits(estimator: Any, X: Any, y: Any) -> list[float]:
    """Return 1 for every label that is predicted correctly, else 0."""
    truth = map(plain, as_series("PrivateSearch", y).tolist())
    labels = map(plain, estimator.predict(X))
    return [float(a is not None and a == b) for a, b in zip(truth, labels, strict=True)]


def pairs_deviation(synthesizer: Synthesizer, X: Any, y: Any, n_test: float) -> float:
    """Return `n_test` times (1/2 - distance of pairs of columns).

    The distance is the mean over pairs of columns of the total variation distance
    between synthetic shares and held-out counts divided by `n_test`, which does not
    depend on the rows. One row moves one count per pair by one, so every distance by at
    most ``1 / (2 n_test)``, and the result by at most 1/2.
    """
    sample = synthesizer.sample(min(_SCORE_ROWS, synthesizer.privacy_.plan.n_rows))
    drawn = sample if isinstance(sample, tuple) else (sample, None)
    synthetic = session.read_again(synthesizer, *drawn)
    test = session.read_again(synthesizer, X, y) if len(X) else synthetic.iloc[:0]
    stated = session.with_stated_levels(synthesizer)
    cells = [
        _cells(c, synthetic[c.name], test[c.name], c.name in stated)
        for c in synthesizer.schema_.modelled.columns
    ]
    pairs = list(combinations(cells, 2)) or [(cells[0], cells[0])]
    distances = [_distance(*pair, n_test) for pair in pairs]
    return n_test * (0.5 - float(np.mean(distances)))


def _distance(first: Cells, second: Cells, n_test: float) -> float:
    """Return the distance of a pair of columns."""
    n_second = 1 + max(cells.max(initial=0) for cells in second)
    fake, real = (a * n_second + b for a, b in zip(first, second, strict=True))
    n_cells = 1 + max(fake.max(), real.max(initial=0))
    shares = np.bincount(fake, minlength=n_cells) / len(fake)
    counts = np.bincount(real, minlength=n_cells)
    return float(np.abs(shares - counts / n_test).sum() / 2)


def _cells(
    column: Column, synthetic: pd.Series, test: pd.Series, stated: bool
) -> Cells:
    """Return cells of synthetic and held-out values, to no candidate's advantage.

    Deciles of synthetic numbers or times, 0 where there is none, and levels: those that
    the candidate did not find have a cell of their own, unless the schema states them.
    A number that is two deciles or more has a cell of its own too.
    """
    if column.levels is not None:
        facts = replace(column, nullable=True)  # the same cells for every candidate
        drawn, real = level_codes(synthetic, facts), level_codes(test, facts)
        is_other = level_indices(test, column.levels) < 0
        n = len(column.levels)
        return drawn, np.where(is_other & (real < n) & (not stated), n + 1, real)
    drawn, real = on_line(synthetic), on_line(test)
    finite = drawn[np.isfinite(drawn)]
    shares = np.arange(1, _N_BINS) / _N_BINS
    at = np.quantile(finite, shares) if len(finite) else np.zeros(0)
    edges, times = np.unique(at, return_counts=True)
    edges = np.union1d(edges, np.nextafter(edges[times > 1], np.inf))
    return number_cells(drawn, edges), number_cells(real, edges)
