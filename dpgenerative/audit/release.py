"""Whole fits, with and without a row of unusual values."""

import math
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_string_dtype
from sklearn.base import clone

from dpgenerative._intervals import epsilon_of_events, epsilon_of_rates
from dpgenerative._validation import check_option, count, refuse
from dpgenerative.audit.result import AuditResult, check
from dpgenerative.encoding.values import as_numbers, limits
from dpgenerative.privacy.plan import row_budget
from dpgenerative.synthesizers import session
from dpgenerative.synthesizers.tables import BaseTableSynthesizer
from dpgenerative.tables.dtypes import can_hold_missing, is_real_dtype

PAIRS = ("outlier", "category", "missing")
OWNED = 3
"""Rows of a person who is added where one of each is read."""
CANARY = "\N{SNOWMAN} a string that no other row holds"


def audit_release(
    estimator: BaseTableSynthesizer,
    X: pd.DataFrame,
    *,
    pair: str = "outlier",
    n_runs: int = 200,
    n_samples: int = 100,
    confidence: float = 0.95,
) -> AuditResult:
    """Fit a table and its neighbour many times, and try to distinguish the results.

    The neighbour has one row more: the table's first row with the worst values that its
    columns can take. Where rows have a key of persons, it has one person more, with as
    many such rows as are read, or three where one of each is. The adversary observes
    the released row count, bounds, levels and masses, and samples. One half of the fits
    selects a statistic and its threshold; the other half bounds the two rates by
    Clopper and Pearson.

    Parameters
    ----------
    estimator : DPHFlowSynthesizer, DPVAESynthesizer or TableSynthesizer
        Configuration, fitted or not; it is left as it is. Few steps make it fast.
    X : DataFrame of shape (n_samples, n_features)
        A small table.
    pair : {"outlier", "category", "missing"}, default="outlier"
        The row's values: the largest number of every numeric column, a string that no
        other row holds, or a missing value wherever the dtype can hold one.
    n_runs : int, default=200
        Number of fits of either table, at least 4.
    n_samples : int, default=100
        Number of rows drawn from every fit.
    confidence : float in (0, 1), default=0.95

    Returns
    -------
    AuditResult
        `best` is the bound of an adversary that is always right.

    Raises
    ------
    TypeError
        If `estimator` is not a synthesizer of this package, or X not a DataFrame.
    ValueError
        For ``epsilon=None``, ``noise="reproducible"``, a table without a column for
        this pair, or a parameter out of its range.

    References
    ----------
    Jagielski, Ullman and Oprea, "Auditing differentially private machine learning: how
    private is private SGD?", 2020.
    """
    owner = "audit_release"
    check(owner, estimator, confidence, None)
    check_option(owner, "pair", pair, PAIRS)
    count(4)(owner, "n_runs", n_runs)
    count()(owner, "n_samples", n_samples)
    if estimator.noise == "reproducible":
        rule = "must not be reproducible: every fit would be"
        refuse(owner, "noise", rule, estimator.noise)
    if estimator.noise_multiplier is not None:
        rule = "must not be stated: no epsilon holds for fits of every row count"
        refuse(owner, "noise_multiplier", rule, estimator.noise_multiplier)
    if not isinstance(X, pd.DataFrame):
        raise TypeError(f"{owner} takes X as a DataFrame; got {type(X).__name__}.")
    most = int(estimator.max_rows_per_unit)
    n_rows = most if session.is_linked(estimator) else OWNED
    key = session.key_of(estimator.schema)
    unit = None if key is None else key.name
    tables = X, _neighbour(owner, X, pair, unit, n_rows)
    views = [_view(estimator, x, n_samples) for x in tables for _ in range(n_runs)]
    frame = pd.DataFrame(views).fillna(-math.inf)
    worlds = np.repeat([False, True], n_runs)
    total = float(session.stated_epsilon(estimator) or math.inf), float(estimator.delta)
    claim = row_budget(*total, most if unit is None else 1)
    bound = _split_bound(frame, worlds, claim[1], confidence)
    half = n_runs // 2
    best = epsilon_of_rates((half, half), (0, half), claim[1], confidence)
    name, n_trials = f"Whole fits ({pair})", 2 * n_runs
    whose = "one row" if unit is None else "one person"
    return AuditResult(name, bound, float(confidence), *claim, best, n_trials, whose)


def _neighbour(
    owner: str, X: pd.DataFrame, pair: str, unit: Any, most: int
) -> pd.DataFrame:
    """Return the table with the unusual row of this pair added.

    Or `most` rows of a new person, where `unit` names the column of their key.
    """
    values: dict[Any, Any] = {}
    for name, dtype in X.dtypes.items():
        if name == unit:
            continue
        if pair == "outlier" and is_real_dtype(dtype):
            values[name] = limits(dtype).max
        elif pair == "category" and is_string_dtype(dtype):
            values[name] = CANARY
        elif pair == "missing" and can_hold_missing(dtype):
            values[name] = None
    if not values:
        raise ValueError(f"{owner}: X has no column for pair={pair!r}.")
    n = 1
    if unit is not None:
        n, is_real = most, is_real_dtype(X.dtypes[unit])
        values[unit] = limits(X.dtypes[unit]).max if is_real else CANARY
        if (X[unit] == values[unit]).any():
            refuse(owner, "X", f"must not hold the key {values[unit]!r}", unit)
    row = {
        name: pd.array([values.get(name, X[name].iloc[0])] * n, dtype=dtype)
        for name, dtype in X.dtypes.items()
    }
    return pd.concat([X, pd.DataFrame(row)], ignore_index=True).astype(X.dtypes)


def _view(estimator: BaseTableSynthesizer, X: pd.DataFrame, n: int) -> dict[str, float]:
    """Return what an adversary measures of one fit."""
    fitted: Any = clone(estimator).fit(X)
    view = {"rows": float(fitted.privacy_.plan.n_rows)}
    sample = fitted.sample(n)
    for j, codec in enumerate(session.codecs_of(fitted)):
        column, drawn = codec.column, sample.get(codec.column.name)
        view[f"{j} missing mass"] = float(codec.masses[-1]) * bool(column.nullable)
        view[f"{j} cells"] = float(codec.n_cells)
        if column.numeric:
            facts = column.numbers
            view[f"{j} lower"], view[f"{j} upper"] = facts.lower, facts.upper
            view[f"{j} last mass"] = float(codec.masses[-1 - bool(column.nullable)])
        else:
            levels = column.levels or ()
            view[f"{j} levels"] = float(len(levels))
            view[f"{j} canary"] = float(CANARY in levels)
        if drawn is None:  # a part of a column of instants
            continue
        view[f"{j} missing"] = float(drawn.isna().sum())
        if column.numeric:
            numbers = as_numbers(column, drawn)
            numbers = numbers[~np.isnan(numbers)]
            view[f"{j} largest"] = float(numbers.max()) if len(numbers) else math.nan
    return view


def _split_bound(
    frame: pd.DataFrame, worlds: np.ndarray, delta: float, confidence: float
) -> float:
    """Choose a region on one half of the fits, bound epsilon on the other."""
    first = np.arange(len(worlds)) % 2 == 0
    # Outcomes on one side of a threshold, likelier with the row, or without.
    regions = (
        ((statistic >= threshold) == above, worlds != exchanged)
        for statistic in frame.to_numpy().T
        for threshold in np.unique(statistic[first])
        for above in (True, False)
        for exchanged in (True, False)
    )
    return epsilon_of_events(regions, first, delta, confidence)
