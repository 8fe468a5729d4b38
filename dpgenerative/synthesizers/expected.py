"""Errors that a planned fit would have, by simulating what it releases.

Made-up rows, spread evenly over cells of what is stated, of columns that are
independent, are released as a fit would, and rows are drawn from that. No row of
anybody is read.
"""

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative._progress import watched
from dpgenerative._random import Streams, as_seed
from dpgenerative._validation import count
from dpgenerative.fitting.fit import PrivateFit
from dpgenerative.fitting.trial import made_up_encoding
from dpgenerative.synthesizers import session
from dpgenerative.tables.column import Column
from dpgenerative.tables.dtypes import is_real_dtype
from dpgenerative.tables.private import Private
from dpgenerative.tables.times import PER_DAY, temporal_kind, to_units

MOST_SIMULATED = 50_000
"""Rows. The error of more is nearly all sampling, and shrinks as the root at least."""
MOST_LEVELS = 50
"""Levels of a column whose shares are results: more are names or keys."""


def expected_errors(
    fit: PrivateFit, n_rows: int, n_trials: int, random_state: Any, verbose: int
) -> pd.DataFrame:
    """Return what `Forecast.expected_errors` describes, of a fit that is planned."""
    count(2)("expected_errors", "n_trials", n_trials)
    n, seed = min(n_rows, MOST_SIMULATED), as_seed(random_state)
    dtypes = {each.name: _dtype(each) for each in fit.domain.schema}
    blank = Private(pd.DataFrame(columns=list(dtypes)).astype(dtypes))
    rng = np.random.default_rng(seed)
    made = made_up_encoding(
        fit.recipe, fit.domain, blank, dtypes, fit.scale(n), rng, even=True
    )
    seeds = np.random.SeedSequence(seed).generate_state(n_trials)
    trials = watched(seeds, "trials", bool(verbose), total=n_trials)
    pairs = [_trial(fit, made, n, int(seed)) for seed in trials]
    real, drawn = (pd.DataFrame(list(some)) for some in zip(*pairs, strict=True))
    off = drawn.reindex(columns=real.columns).fillna(0.0) - real  # 0: a lost level
    variances = pd.DataFrame({"people": real.var()})
    variances["error"] = variances["people"] + (off**2).mean()
    errors = np.sqrt(variances.groupby(level=[0, 1], sort=False).mean() * n / n_rows)
    table = errors.rename_axis(["column", "of"]).reset_index()
    order = {name: i for i, name in enumerate(fit.parameters.schema.names)}
    table = table[table["column"].isin(list(order))]  # steps have others
    return table.sort_values("column", key=lambda c: c.map(order), ignore_index=True)


def _trial(
    fit: PrivateFit, made: Any, n: int, seed: int
) -> tuple[pd.Series, pd.Series]:
    """Return results on made-up rows, and on those drawn from their release."""
    rng = np.random.default_rng(seed)
    streams = Streams.create(seed, "reproducible", "cpu")
    fit = session.private_fit(fit.parameters, fit.domain, streams, "cpu")
    rows = fit.domain.drawn(made, n, rng)
    encoding = fit.release(Private(rows)).transformer
    codes = [rng.choice(len(c.masses), n, p=c.masses) for c in encoding.codecs]
    stacked = np.stack(codes, axis=1)
    drawn = encoding.decode(stacked, rng.random(stacked.shape))
    return means_and_shares(_in_days(rows)), means_and_shares(_in_days(drawn))


def _dtype(column: Column) -> np.dtype:
    """Return a dtype that holds a column's values, and missing ones."""
    if column.temporal:
        return np.dtype(f"{column.kind}64[ns]")
    return np.dtype(float if column.numeric else object)


def means_and_shares(rows: pd.DataFrame) -> pd.Series:
    """Return means of numbers, and shares of levels and of truth values.

    Parameters
    ----------
    rows : DataFrame of shape (n, p)
        Times, columns of more than 50 levels and missing values are left out.

    Returns
    -------
    Series
        Indexed by column, "mean" or "share", and level ("" of means).

    Examples
    --------
    >>> means_and_shares(pd.DataFrame({"age": [30, 40], "sex": ["f", "f"]})).tolist()
    [35.0, 1.0]
    """
    results: dict[tuple[Hashable, str, Any], float] = {}
    for name, values in rows.items():
        if is_real_dtype(values.dtype):
            results[name, "mean", ""] = float(values.mean())
        elif not temporal_kind(values.dtype) and values.nunique() <= MOST_LEVELS:
            shares = values.value_counts(normalize=True, sort=False)
            results |= {(name, "share", level): x for level, x in shares.items()}
    return pd.Series(results, dtype=float)


def _in_days(rows: pd.DataFrame) -> pd.DataFrame:
    times = [name for name in rows if temporal_kind(rows[name].dtype)]
    days = {name: to_units(rows[name], "s") / PER_DAY["s"] for name in times}
    return rows.assign(**days)
