"""Refits of a synthesizer to tables that it has drawn itself.

The parametric bootstrap of a private mechanism: the fitted model stands for the
people, a table drawn from it for the private rows, and a refit for the fit. How far
results on the refit's rows lie from those on the model's own shows sampling, noise and
the model's bias together (Efron and Tibshirani 1993, chapter 6; for private releases
Ferrando, Wang and Sheldon 2022). No private row is read.
"""

import copy
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from dpgenerative._progress import watched
from dpgenerative._random import as_seed
from dpgenerative._validation import count, refuse
from dpgenerative.inference.results import Bootstrap, lost_notes
from dpgenerative.synthesizers import session
from dpgenerative.synthesizers.base import Synthesizer
from dpgenerative.synthesizers.expected import means_and_shares

DRAWN = 4
"""Rows that stand for the people, over the released row count: they are free, and four
times as many leave little chance to their draw."""

Rows = tuple[Any, ...]
"""What a sample consists of: X, or X and y."""
Then = Callable[[int, Rows, Synthesizer], Any]
"""What is made of a refit, from its number, the rows that it learned, and itself."""


def bootstrap(
    synthesizer: Synthesizer,
    statistic: Callable[..., Any],
    n_refits: int = 50,
    n_rows: int | None = None,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 1,
) -> Bootstrap:
    """Return how far an analysis of synthetic rows can be trusted.

    Parameters
    ----------
    synthesizer : fitted synthesizer
        As `fit` or `load` returns it. It is not changed, and nothing is spent.
    statistic : callable
        From a sample (``statistic(X)``, or ``statistic(X, y)`` if y was fitted) to a
        number, an array or a Series of any length, such as a mean by group or the
        coefficients of a regression. Or to two of these: results, and their standard
        errors by the usual formulas, for studentised intervals.
    n_refits : int, default=50
        Number of tables drawn and refitted, at least 2. Each takes as long as a fit.
    n_rows : int, optional
        Rows of every table on which the statistic is computed, and of the first, which
        stands for the people. None: four times the released row count. Totals and
        counts are those of so many people: state how many there are.
    n_jobs : int, optional
        Processes that refit at the same time, as joblib takes it; None means 1.
    random_state : int, RandomState or Generator instance or None, default=None
        An int gives the same result at every call.
    verbose : int, default=1
        Above 0 shows a progress bar in terminals and notebooks.

    Returns
    -------
    Bootstrap

    Raises
    ------
    ValueError
        If the synthesizer was fitted with public rows, which a refit would need, or the
        statistic returns no numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpgenerative import DPHFlowSynthesizer
    >>> frame = pd.DataFrame({"smokes": pd.Categorical(["yes", "no"] * 500)})
    >>> synthesizer = DPHFlowSynthesizer(random_state=0, noise="reproducible")
    >>> share = lambda rows: (rows["smokes"] == "yes").mean()
    >>> result = bootstrap(synthesizer.fit(frame), share, 5, random_state=0, verbose=0)
    >>> bool(0.005 < result.standard_error.iloc[0] < 0.1)
    True
    """
    owner = "bootstrap"
    count(2)(owner, "n_refits", n_refits)
    count(also=[None])(owner, "n_rows", n_rows)
    check_fitted(owner, synthesizer)
    seed = seed_of(random_state)
    n = DRAWN * synthesizer.privacy_.plan.n_rows if n_rows is None else n_rows
    child = np.random.SeedSequence(seed).spawn(1)[0]
    people = session.drawn(synthesizer, n, int(child.generate_state(1)[0]))
    is_page = statistic is means_and_shares
    if is_page:
        keys = [column.name for column in synthesizer.schema_ if column.is_key]
        statistic = partial(_without, keys)
    # A copy, since a statistic may change its rows.
    estimate, error = computed(statistic, tuple(map(copy.copy, people)))
    alone = tried(statistic, session.shuffled(synthesizer, people, seed))[0]
    then = partial(_results, statistic, n)
    refits = refitted(synthesizer, people, n_refits, n_jobs, seed, then)
    results = list(watched(refits, "refits", bool(verbose), total=n_refits))
    tables = [_by_name(each, estimate.index) for each in zip(*results, strict=True)]
    resampled, replicates, errors, shuffled = tables
    if is_page:  # a level that a table has lost has no rows
        is_share = estimate.index.get_level_values(1) == "share"
        resampled, replicates, shuffled = (
            each.mask(each.isna() & is_share, 0.0)
            for each in (resampled, replicates, shuffled)
        )
    return Bootstrap(
        estimate, error.reindex(estimate.index), replicates, errors, resampled,
        _by_name([alone], estimate.index).iloc[0], shuffled, n,
        lost_notes(synthesizer, people), session.has_relations(synthesizer),
    )  # fmt: skip


def _without(keys: Sequence[Any], rows: pd.DataFrame, *y: Any) -> pd.Series:
    """Return means and shares of what is no key: keys are made anew."""
    return means_and_shares(pd.concat([rows.drop(columns=keys), *y], axis=1))


def _by_name(results: Sequence[pd.Series], names: pd.Index) -> pd.DataFrame:
    """Return results of several tables by name, of arrays by place.

    An array of another length says nothing: its places may be those of other results.
    """
    if isinstance(names, pd.RangeIndex):
        results = [x if len(x) == len(names) else x.iloc[:0] for x in results]
    table = pd.DataFrame(list(results)).reset_index(drop=True)
    return table.reindex(columns=names)


def _results(
    statistic: Callable[..., Any], size: int, _: int, rows: Rows, fitted: Synthesizer
) -> tuple[pd.Series, ...]:
    """Return results on the rows of a refit and on its sample, and their errors."""
    made = session.drawn(fitted, size, None)  # which follows the refit's own seed
    mixed = session.shuffled(fitted, made, 0)
    resampled = tried(statistic, rows)[0]
    return resampled, *tried(statistic, made), tried(statistic, mixed)[0]


def check_fitted(owner: str, synthesizer: Any) -> None:
    """Require a fitted synthesizer."""
    if not isinstance(synthesizer, Synthesizer):
        refuse(owner, "synthesizer", "must be a fitted synthesizer", synthesizer)
    check_is_fitted(synthesizer)
    if getattr(session.layout_of(synthesizer), "people", ()):
        rule = "must be fitted to one table, in which rows hold what is said of people"
        refuse(owner, "synthesizer", rule, synthesizer)


def seed_of(random_state: Any) -> int:
    """Return an integer seed, a fresh one of None: samples then count no calls."""
    seed = as_seed(random_state)
    return secrets.randbits(31) if seed is None else seed


def refitted(
    synthesizer: Synthesizer,
    people: Rows,
    n_refits: int,
    n_jobs: Any,
    seed: int,
    then: Then,
) -> Iterator[Any]:
    """Yield what a function makes of tables drawn from the people, and of refits.

    Tables are of the released size, drawn with replacement (linked rows: people, with
    all of their rows). Refits are exact reruns: of all parameters, with noise of the
    same size.
    """
    n = synthesizer.privacy_.plan.n_rows
    seeds = np.random.SeedSequence(seed).generate_state(2 * n_refits)
    yield from Parallel(n_jobs=n_jobs, return_as="generator")(
        delayed(_refit)(synthesizer, people, n, pair, then, i)
        for i, pair in enumerate(seeds.reshape(-1, 2).tolist())
    )


def _refit(
    synthesizer: Synthesizer, people: Rows, n: int, seeds: list[int], then: Then, i: int
) -> Any:
    drawn, seed = seeds
    rows = session.redrawn(synthesizer, people, n, drawn)
    return then(i, rows, session.refit(synthesizer, *rows, seed=seed))


def computed(statistic: Callable[..., Any], rows: Rows) -> tuple[pd.Series, pd.Series]:
    """Return results as numbers, and their standard errors, NaN where there are none.

    Standard errors in a Series are matched by its index.

    Raises
    ------
    ValueError
        If they are no numbers.
    """
    returned = statistic(*rows)
    is_pair = isinstance(returned, tuple) and len(returned) == 2
    value, error = returned if is_pair else (returned, np.nan)
    name = getattr(statistic, "__name__", "statistic")
    values = _series(name, value)
    if isinstance(error, pd.Series):
        error = error.reindex(values.index)
    errors = _errors(error)
    if len(errors) not in (1, len(values)):
        raise ValueError(
            f"bootstrap: statistic returns {len(values)} results and {len(errors)} "
            "standard errors."
        )
    return values, pd.Series(np.broadcast_to(errors, len(values)), values.index)


def _errors(value: Any) -> pd.Series:
    try:
        return pd.Series(np.ravel(np.asarray(value, float)))
    except (TypeError, ValueError):
        raise ValueError(
            "bootstrap: of two things that statistic returns, the second must be "
            f"standard errors; got {value!r}."
        ) from None


def _series(name: str, value: Any) -> pd.Series:
    if isinstance(value, pd.DataFrame):
        value = value.stack(list(range(value.columns.nlevels)), future_stack=True)
    try:
        if isinstance(value, pd.Series):
            series = value.astype(float)
        elif isinstance(value, tuple):
            raise TypeError
        else:
            numbers = np.asarray(value, dtype=float)
            index = [name] if numbers.ndim == 0 else range(numbers.size)
            series = pd.Series(numbers.ravel(), index)
    except (TypeError, ValueError):
        series = pd.Series(dtype=float)
    if not np.isfinite(series).any() or series.index.has_duplicates:
        raise ValueError(
            "bootstrap: statistic must return a number, an array or a Series of "
            f"numbers, each of a name of its own; got {value!r}."
        )
    return series


def tried(statistic: Callable[..., Any], rows: Rows) -> tuple[pd.Series, pd.Series]:
    """Return what `computed` does, empty where the statistic raises an error."""
    try:
        return computed(statistic, rows)
    except Exception:  # by a user's function, where a table lacks a level
        return pd.Series(dtype=float), pd.Series(dtype=float)
