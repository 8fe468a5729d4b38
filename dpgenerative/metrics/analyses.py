"""What a person computes first of a table, and how far the synthetic answer is off.

Means, standard deviations, quantiles, means by group, slopes, hours, weekdays and
months of both tables are compared in standard errors of the real one: the scale on
which a result counts as different. Combinations of levels that no real row has are
counted. Nothing here is private: the figures describe real rows.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative.metrics.columns import (
    aligned,
    as_floats,
    comparable_codes,
    is_number,
    takes_tables,
    warn_if_few,
)
from dpgenerative.metrics.fidelity import resampled
from dpgenerative.tables.times import PER_DAY, temporal_kind, to_units

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
MOST_GROUPS = 20
"""Maximum number of levels by which means are computed: the most frequent ones."""
LEAST_IN_GROUP = 30
"""Real rows of a group at least: below, its standard error is a guess."""
CONSTANT = 1e-6
"""Standard error of a mean by group, in the column's standard deviations, up to which
the group has one value, and no error to compare with."""
MOST_COLUMNS = 20
"""Columns of which pairs are compared: the first ones of each kind."""
ANALYSES = (
    "mean", "standard deviation", "quantile", "mean by group", "slope",
    "hours", "weekdays", "months", "combinations",
)  # fmt: skip

REDRAWN = 5
"""Tables that show what chance alone does: what is furthest off in one varies."""
Entry = tuple[str, tuple[Any, ...], float, float, float]
"""Analysis, columns (and group or quantile), real and synthetic result, error."""
Column = tuple[Hashable, np.ndarray, np.ndarray]
"""Name of a column, and its values in the real and the synthetic table."""


@dataclass(frozen=True, eq=False, repr=False)
class AnalysisErrors:
    """Errors of common analyses of a synthetic table, in standard errors.

    Attributes
    ----------
    table : DataFrame
        One row per result: ``analysis`` (of `ANALYSES`), ``about`` (columns, with the
        quantile or the group), ``real`` and ``synthetic``, and ``error``: synthetic
        minus real, in standard errors of the real result. Of quantiles, the error is
        that of the share of real rows below. Hours, weekdays and months have no sign:
        their total variation distance from the real ones over the one that chance
        alone explains. Of combinations, it is the share of synthetic rows without a
        real counterpart over the share expected of new real rows.
    redrawn : DataFrame
        The same of five tables of rows redrawn from the real ones.
    """

    table: pd.DataFrame
    redrawn: pd.DataFrame

    def summary(self, q: float = 0.9) -> pd.DataFrame:
        """Return a quantile of the absolute errors, by analysis.

        Parameters
        ----------
        q : float in [0, 1], default=0.9

        Returns
        -------
        DataFrame
            Indexed by analysis: ``synthetic``, ``redrawn`` and the number of results.
        """
        tables = {"synthetic": self.table, "redrawn": self.redrawn}
        columns: dict[str, Any] = {
            name: each["error"].abs().groupby(each["analysis"]).quantile(q)
            for name, each in tables.items()
        }
        columns["results"] = self.table["analysis"].value_counts()
        order = [name for name in ANALYSES if name in columns["results"]]
        return pd.DataFrame(columns).loc[order]

    def __repr__(self) -> str:
        return f"AnalysisErrors({len(self.table)} results)"

    def __str__(self) -> str:
        return self.summary().round(1).to_string()


@takes_tables
def analysis_errors(
    real: pd.DataFrame, synthetic: pd.DataFrame, *, random_state: int = 0
) -> AnalysisErrors:
    """Compare what a person computes first of two tables.

    Parameters
    ----------
    real : DataFrame of shape (n_real, p)
    synthetic : DataFrame of shape (n_synthetic, p)
        Same columns, in any order.
    random_state : int, default=0
        First seed of the rows redrawn.

    Returns
    -------
    AnalysisErrors

    Raises
    ------
    TypeError
        If a table is not a DataFrame.
    ValueError
        If a table is empty, or their columns differ.

    Notes
    -----
    Missing values are left out. Standard errors are asymptotic: of a mean s / sqrt(n),
    of a standard deviation from the fourth moment, of the share below a quantile
    binomial, of a slope (least squares on one other column) those that allow for any
    variance (White 1980). Rows redrawn from the real ones have errors of about 1.

    Examples
    --------
    >>> real = pd.DataFrame({"wage": range(100), "sex": list("fm") * 50})
    >>> errors = analysis_errors(real, real.assign(wage=real["wage"] + 10))
    >>> print(errors.table.loc[0, ["analysis", "real", "synthetic"]].to_string())
    analysis     mean
    real         49.5
    synthetic    59.5
    """
    synthetic = aligned(real, synthetic)
    warn_if_few({"real": len(real), "synthetic": len(synthetic)})
    seeds = range(random_state, random_state + REDRAWN)
    by_chance = [_table(real, resampled(real, seed)) for seed in seeds]
    redrawn = pd.concat(by_chance, ignore_index=True)
    return AnalysisErrors(_table(real, synthetic), redrawn)


def _table(real: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    names = ["analysis", "about", "real", "synthetic", "error"]
    table = pd.DataFrame(list(_entries(real, other)), columns=names)
    return table[table["error"].notna()].reset_index(drop=True)


def _entries(real: pd.DataFrame, other: pd.DataFrame) -> Iterator[Entry]:
    numbers, nominal = [], []
    for name in real.columns:
        if is_number(real[name]):
            numbers.append((name, as_floats(real[name]), as_floats(other[name])))
        else:
            codes, levels = comparable_codes(real[name], other[name])
            nominal.append(((name, *codes), levels))
    with np.errstate(all="ignore"):
        for name, *both in numbers:
            own, made = map(_finite, both)
            yield from _moments(name, own, made)
            yield from _quantiles(name, np.sort(own), made)
        for groups, levels in nominal[:MOST_COLUMNS]:
            for each in numbers[:MOST_COLUMNS]:
                yield from _by_group(each, groups, levels)
        for first, second in permutations(numbers[:MOST_COLUMNS], 2):
            yield from _slope(first, second)
        for name in real.columns:
            if temporal_kind(real[name].dtype) == "datetime":
                yield from _calendar(real[name], other[name])
        for (one, _), (two, _) in combinations(nominal[:MOST_COLUMNS], 2):
            yield _combinations(one, two)


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


def _moments(name: Hashable, own: np.ndarray, made: np.ndarray) -> Iterator[Entry]:
    n = len(own)
    if n < 2 or len(made) < 2:
        return
    means, stds = zip(*map(_mean_and_std, (own, made)), strict=True)
    error = (means[1] - means[0]) / (stds[0] / np.sqrt(n))
    yield "mean", (name,), *means, error
    fourth = np.mean((own - means[0]) ** 4)
    spread = np.sqrt((fourth - stds[0] ** 4) / n) / (2 * stds[0])
    yield "standard deviation", (name,), *stds, (stds[1] - stds[0]) / spread


def _mean_and_std(values: np.ndarray) -> tuple[float, float]:
    """Return mean and standard deviation, those of a constant without rounding."""
    is_constant = values[0] == values[-1] and np.ptp(values) == 0
    return (values[0], 0.0) if is_constant else (values.mean(), values.std())


def _quantiles(name: Hashable, own: np.ndarray, made: np.ndarray) -> Iterator[Entry]:
    """Compare quantiles; `own` ascends."""
    if not len(own) or not len(made):
        return
    for q in QUANTILES:
        value = np.quantile(made, q, method="inverted_cdf")
        below, upto = (np.searchsorted(own, value, side) for side in ("left", "right"))
        share = np.clip(q, below / len(own), upto / len(own))
        error = (share - q) / np.sqrt(q * (1 - q) / len(own))
        meant = np.quantile(own, q, method="inverted_cdf")
        yield "quantile", (name, q), meant, value, error


def _by_group(column: Column, groups: Column, levels: pd.Index) -> Iterator[Entry]:
    name, own, made = column
    by, codes, others = groups
    middle = _finite(own).mean() if len(_finite(own)) else 0.0
    least = CONSTANT * _finite(own).std() if len(_finite(own)) else 0.0
    sizes, sums, squares = _sums(own - middle, codes, len(levels))
    n_made, sums_made, _ = _sums(made - middle, others, len(levels))
    errors = np.sqrt((squares / sizes - (sums / sizes) ** 2) / sizes)
    for code in np.argsort(-sizes, kind="stable")[:MOST_GROUPS]:
        has_rows = sizes[code] >= LEAST_IN_GROUP and n_made[code]
        if has_rows and errors[code] > least:
            apart = sums_made[code] / n_made[code] - sums[code] / sizes[code]
            mean = middle + sums[code] / sizes[code]
            about = (name, by, levels[code])
            yield "mean by group", about, mean, mean + apart, apart / errors[code]


def _sums(values: np.ndarray, codes: np.ndarray, n_codes: int) -> list[np.ndarray]:
    """Return by code the number of finite values, their sum and that of squares."""
    usable = np.isfinite(values) & (codes >= 0)
    values, codes = values[usable], codes[usable]
    powers = (np.ones(len(values)), values, values**2)
    return [np.bincount(codes, each, minlength=n_codes) for each in powers]


def _slope(first: Column, second: Column) -> Iterator[Entry]:
    fits = []
    for pair in zip(first[1:], second[1:], strict=True):
        both = np.isfinite(pair).all(axis=0)
        if not both.any():
            return
        x, y = pair[0][both], pair[1][both]
        x, y = x - _mean_and_std(x)[0], y - _mean_and_std(y)[0]
        slope: Any = x @ y / (x @ x)
        fits.append((slope, np.sqrt(x**2 @ (y - slope * x) ** 2) / (x @ x)))
    (own, error), (made, _) = fits
    yield "slope", (second[0], first[0]), own, made, (made - own) / error


def _calendar(real: pd.Series, other: pd.Series) -> Iterator[Entry]:
    """Compare hours, weekdays and months, where there are any."""
    parts: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "hours": lambda seconds: seconds // 3600 % 24,
        "weekdays": lambda seconds: (seconds // 86_400 + 3) % 7,
        "months": lambda seconds: (
            seconds.astype("M8[s]").astype("M8[M]").astype(int) % 12
        ),
    }
    both = [to_units(series, "s") for series in (real, other)]
    seconds = [values[~np.isnan(values)].astype(np.int64) for values in both]
    if not all(map(len, seconds)):
        return
    if not (seconds[0] % PER_DAY["s"]).any():
        del parts["hours"]
    for name, part in parts.items():
        p, q = (np.bincount(part(s), minlength=24) / len(s) for s in seconds)
        distance = np.abs(p - q).sum() / 2
        # Mean distance of a multinomial sample from its shares (normal approximation).
        chance = np.sqrt(p * (1 - p) / len(seconds[0]) * 2 / np.pi).sum() / 2
        yield name, (real.name,), 0.0, distance, distance / chance


def _combinations(first: Column, second: Column) -> Entry:
    width = 2 + max(values.max(initial=0) for values in second[1:])
    own, made = (a * width + b for a, b in zip(first[1:], second[1:], strict=True))
    share = float(np.mean(~np.isin(made, own)))
    _, counts = np.unique(own, return_counts=True)
    # Good (1953): the chance that a new row is of a kind without a row.
    expected = float(max((counts == 1).sum(), 1) / len(own))
    return "combinations", (first[0], second[0]), expected, share, share / expected
