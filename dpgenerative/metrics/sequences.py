"""What goes on within people who have several rows, of two tables.

Number of rows, how much a person's rows resemble each other, how the next row follows
from the one before, and who ever had a value. Nothing here is private: the figures
describe real rows.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype

from dpgenerative._validation import refuse
from dpgenerative.metrics.columns import aligned, as_floats, is_number, takes_tables
from dpgenerative.tables.sequences import BEFORE, people_redrawn
from dpgenerative.tables.times import PER_DAY, temporal_kind

MOST_LEVELS = 20
"""Levels of a column whose transitions are compared, at most."""

Result = tuple[tuple[str, Hashable], float]


@takes_tables
def sequence_results(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    unit: Hashable,
    order: Hashable = None,
    *,
    random_state: int = 0,
) -> pd.DataFrame:
    """Compare what goes on within people who have several rows.

    Parameters
    ----------
    real : DataFrame of shape (n_real, p)
    synthetic : DataFrame of shape (n_synthetic, p)
        Same columns, in any order.
    unit : hashable
        Column of the people's keys. Rows without a key are left out.
    order : hashable, optional
        Column of numbers or times by which a person's rows are ordered. None: as they
        come.
    random_state : int, default=0
        Seed of the people redrawn.

    Returns
    -------
    DataFrame
        Columns ``real``, ``redrawn`` (people drawn from the real ones with replacement)
        and ``synthetic``, indexed by result and column: "rows per person" (mean);
        "resemblance" (intraclass correlation, Fisher 1925, by one-way analysis of
        variance) and "row before" (correlation with it) of numbers; "same as before"
        (share of rows, but for first ones) and "transitions" of levels; "ever" (share
        of people who ever had a truth value or level); "step" (mean change, of times in
        days) of `order`. Of "transitions" and of "rows per person (distance)", it is
        the total variation distance from the real ones, of transitions in the mean over
        the real levels before.

    Raises
    ------
    ValueError
        If `unit` or `order` is no column, or the columns of the tables differ.

    Examples
    --------
    >>> rows = pd.DataFrame({"key": [1, 1, 2, 2], "ill": [True, True, False, False]})
    >>> sequence_results(rows, rows, "key")["synthetic"].to_dict()[("ever", "ill")]
    0.5
    """
    synthetic = aligned(real, synthetic)
    _require_columns("sequence_results", real, unit, order)
    rng = np.random.default_rng(random_state)
    people = _People.of(real, unit, order)
    others = {
        "real": people,
        "redrawn": people.redrawn(rng),
        "synthetic": _People.of(synthetic, unit, order),
    }
    columns = {
        name: {**dict(each.results()), **dict(each.distances(people))}
        for name, each in others.items()
    }
    table = pd.DataFrame({name: pd.Series(each) for name, each in columns.items()})
    table = table.reindex(list(columns["real"]))
    index = pd.MultiIndex.from_tuples(table.index, names=["result", "column"])
    return table.set_axis(index)


@takes_tables
def rows_with_before(
    rows: pd.DataFrame, unit: Hashable, order: Hashable = None
) -> pd.DataFrame:
    """Return all rows but people's first ones, each beside the row before it.

    For models that predict the next row: train them on synthetic people, and test them
    on real ones (`tstr`).

    Parameters
    ----------
    rows : DataFrame of shape (n, p)
    unit : hashable
        Column of the people's keys. Rows without a key are left out.
    order : hashable, optional
        Column of numbers or times by which a person's rows are ordered. None: as they
        come.

    Returns
    -------
    DataFrame of shape (n - people, 2 (p - 1))
        Columns but for `unit`, and their values in the row before: "x (row before)".

    Raises
    ------
    ValueError
        If `unit` or `order` is no column.

    Examples
    --------
    >>> rows = pd.DataFrame({"key": [1, 2, 1, 2], "x": [1, 5, 2, 6]})
    >>> rows_with_before(rows, "key").to_numpy().tolist()
    [[2, 1], [6, 5]]
    """
    _require_columns("rows_with_before", rows, unit, order)
    people = _People.of(rows, unit, order)
    now, before = (
        people.rows.iloc[places].reset_index(drop=True)
        for places in (people.later, people.later - 1)
    )
    return pd.concat([now, before.rename(columns=BEFORE.format)], axis=1)


def _require_columns(
    owner: str, rows: pd.DataFrame, unit: Hashable, order: Hashable
) -> None:
    for about, name in (("unit", unit), ("order", order)):
        if name not in rows and not (about == "order" and name is None):
            refuse(owner, about, "must be a column", name)


@dataclass(frozen=True)
class _People:
    """Rows of people, in order, with the number of the person of each."""

    rows: pd.DataFrame
    person: np.ndarray
    order: Hashable

    @classmethod
    def of(cls, rows: pd.DataFrame, unit: Hashable, order: Hashable) -> "_People":
        person = pd.factorize(rows[unit])[0]
        by = [] if order is None else [as_floats(rows[order])]
        places = np.lexsort([np.arange(len(rows)), *by, person])
        places = places[person[places] >= 0]
        rows = rows.drop(columns=[unit]).iloc[places].reset_index(drop=True)
        return cls(rows, person[places], order)

    def redrawn(self, rng: np.random.Generator) -> "_People":
        """Return as many people drawn with replacement."""
        places, person = people_redrawn(self.person, len(self.sizes), rng)
        rows = self.rows.iloc[places].reset_index(drop=True)
        return _People(rows, person, self.order)

    @property
    def sizes(self) -> np.ndarray:
        """Number of rows of every person."""
        return np.bincount(self.person)

    @property
    def later(self) -> np.ndarray:
        """Places of rows that are not a person's first."""
        return 1 + np.flatnonzero(np.diff(self.person) == 0)

    def results(self) -> Iterator[Result]:
        """Yield results by their name and column."""
        yield ("rows per person", ""), float(self.sizes.mean())
        for name, column in self.rows.items():
            if is_number(column):
                values = as_floats(column)
                yield from self._of_numbers(name, values)
                if name == self.order:
                    length = PER_DAY["s"] if temporal_kind(column.dtype) else 1.0
                    steps = pd.Series(values[self.later] - values[self.later - 1])
                    yield ("step", name), float(steps.mean()) / length
            elif column.nunique() <= MOST_LEVELS:
                yield from self._of_levels(name, column)

    def _of_numbers(self, name: Hashable, values: np.ndarray) -> Iterator[Result]:
        present = ~np.isnan(values)
        yield ("resemblance", name), _intraclass(self.person[present], values[present])
        pair = values[self.later - 1], values[self.later]
        both = ~np.isnan(pair[0]) & ~np.isnan(pair[1])
        yield ("row before", name), _correlation(pair[0][both], pair[1][both])

    def _of_levels(self, name: Hashable, column: pd.Series) -> Iterator[Result]:
        codes = pd.factorize(column)[0]
        same = codes[self.later] == codes[self.later - 1]
        same &= codes[self.later] >= 0
        yield ("same as before", name), float(np.mean(same)) if len(same) else np.nan
        flags = is_bool_dtype(column)
        for level in [True] if flags else column.dropna().unique():
            is_level = (column == level).fillna(False).to_numpy(bool)
            has = np.bincount(self.person, is_level, len(self.sizes)) > 0
            yield ("ever", name if flags else f"{name}: {level}"), float(has.mean())

    def distances(self, real: "_People") -> Iterator[Result]:
        """Yield total variation distances from the real people."""
        most = max(self.sizes.max(initial=0), real.sizes.max(initial=0)) + 1
        shares = [
            np.bincount(each.sizes, minlength=most) / max(len(each.sizes), 1)
            for each in (real, self)
        ]
        apart = float(np.abs(np.subtract(*shares)).sum() / 2)
        yield ("rows per person (distance)", ""), apart
        for name, column in real.rows.items():
            if not is_number(column) and column.nunique() <= MOST_LEVELS:
                chains = [each._chain(name) for each in (real, self)]
                own, other = chains[0].align(chains[1], fill_value=0)
                weights = own.sum(axis=1) / max(own.to_numpy().sum(), 1)
                off = (_shares(own) - _shares(other)).abs().sum(axis=1) / 2
                yield ("transitions", name), float((weights * off).sum())

    def _chain(self, name: Hashable) -> pd.DataFrame:
        """Return how often levels follow each other."""
        values = self.rows[name].astype(object).reset_index(drop=True)
        now = values.iloc[self.later].reset_index(drop=True)
        before = values.iloc[self.later - 1].reset_index(drop=True)
        return pd.crosstab(before, now)


def _shares(counts: pd.DataFrame) -> pd.DataFrame:
    return counts.div(counts.sum(axis=1).clip(lower=1), axis=0)


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    if len(first) < 2 or not first.std() or not second.std():
        return np.nan
    return float(np.corrcoef(first, second)[0, 1])


def _intraclass(person: np.ndarray, values: np.ndarray) -> float:
    """Return the intraclass correlation of numbers, NaN of people with one row each."""
    number = pd.factorize(person)[0]
    sizes: Any = np.bincount(number).astype(float)
    n, n_people = len(values), len(sizes)
    if n <= n_people or n_people < 2:
        return np.nan
    means = np.bincount(number, values) / sizes
    within = ((values - means[number]) ** 2).sum() / (n - n_people)
    between = (sizes * (means - values.mean()) ** 2).sum() / (n_people - 1)
    size = (n - (sizes**2).sum() / n) / (n_people - 1)
    total = between + (size - 1) * within
    return float((between - within) / total) if total else np.nan
