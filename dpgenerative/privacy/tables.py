"""Contingency tables: scores of candidates, then the counts of those that were chosen.

A table groups the cells of a few columns; a row is in exactly one cell of it.

Formal guarantee: the score of a candidate is the sum over its cells of the distance
between the number of rows and an expected number, which is public and whole, times a
public whole weight. One row more or less changes one number by 1, so a score of weight
w by at most w, exactly, and all scores by at most the root of the sum of their squared
weights in the Euclidean norm. It changes the counts of T tables by sqrt(T). Both are
Gaussian releases with shares of the plan's precision that are fixed beforehand,
whatever is expected and chosen because of what was released before (adaptive
composition of Gaussian mechanisms).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan, Release
from dpgenerative.tables.private import Private

TABLES = Release(
    "tables",
    "contingency tables (listed below, if any): their counts, and the scores by which "
    "they were selected ({noise})",
    spends="any",
)
SCORE_SHARE = 0.1
"""Share of the tables' budget that scores get, where tables are chosen by scores."""
WEIGHT_OF_PAIRS = 3
"""How many times less noise scores of pairs get than those of more columns."""


CHUNK = 2**17
"""Rows that are counted at a time."""
MOST_CELLS = 2**13
"""Cells of a table of which others are sums."""


@dataclass(frozen=True)
class Table:
    """Groups of the cells of a few columns.

    Attributes
    ----------
    columns : tuple of int
        Ascending.
    groups : tuple of ndarray of shape (n_cells,)
        The group of every cell, by column, counted from 0.
    """

    columns: tuple[int, ...]
    groups: tuple[np.ndarray, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of groups of every column."""
        return tuple(int(groups.max()) + 1 for groups in self.groups)

    def of(self, places: Sequence[int]) -> "Table":
        """Return the table of some of its columns."""
        columns = tuple(self.columns[i] for i in places)
        return Table(columns, tuple(self.groups[i] for i in places))

    def keys(self, columns: np.ndarray) -> np.ndarray:
        """Return the number of every row's cell, of codes by column."""
        keys = np.zeros(columns.shape[1], np.int64)
        for j, groups, size in zip(self.columns, self.groups, self.shape, strict=True):
            keys *= size
            keys += groups[columns[j]]
        return keys


def all_counts(tables: Sequence[Table], codes: np.ndarray) -> list[np.ndarray]:
    """Return the rows in every cell of many tables, of codes (n, d) read once.

    Rows are counted in a few larger tables, of which all others are sums.
    """
    groups: dict[tuple[int, bytes], np.ndarray] = {}
    for table in tables:
        for j, each in zip(table.columns, table.groups, strict=True):
            groups[j, each.tobytes()] = each
    places = {key: i for i, key in enumerate(groups)}
    wanted = tuple(
        tuple(places[j, x.tobytes()] for j, x in zip(t.columns, t.groups, strict=True))
        for t in tables
    )
    whole = Table(tuple(j for j, _ in groups), tuple(groups.values()))
    larger = _larger(wanted, whole.shape)
    parts = [whole.of(places) for places in larger]
    sums = [np.zeros(math.prod(table.shape), np.int64) for table in parts]
    size = max([CHUNK, *map(len, sums)])
    for start in range(0, len(codes), size):
        columns = np.ascontiguousarray(codes[start : start + size].T)
        for table, total in zip(parts, sums, strict=True):
            total += np.bincount(table.keys(columns), minlength=len(total))
    pairs = zip(larger, parts, sums, strict=True)
    counted = [(places, total.reshape(t.shape)) for places, t, total in pairs]
    return [_summed(places, counted) for places in wanted]


@lru_cache(maxsize=1)  # rows and the model's pool are counted by the same tables
def _larger(
    wanted: tuple[tuple[int, ...], ...], sizes: tuple[int, ...]
) -> list[list[int]]:
    """Return sets of columns that hold all those wanted, of few cells together."""
    left = [frozenset(places) for places in wanted]
    unions = []
    while left:
        union = set(left[0])
        n_cells = math.prod(sizes[i] for i in union)
        for places in left:
            n_new = math.prod([sizes[i] for i in places - union])
            if n_cells * n_new <= MOST_CELLS:
                union |= places
                n_cells *= n_new
        left = [places for places in left if not places <= union]
        unions.append(sorted(union))
    return unions


def _summed(
    wanted: Sequence[int], counted: Sequence[tuple[list[int], np.ndarray]]
) -> np.ndarray:
    """Return the counts over some columns, of a larger table that has them all."""
    places, counts = next(pair for pair in counted if set(wanted) <= set(pair[0]))
    others = tuple(i for i, place in enumerate(places) if place not in wanted)
    order = [sorted(wanted).index(place) for place in wanted]
    return np.asarray(counts.sum(others).transpose(order))


def multipliers(plan: PrivacyPlan, has_scores: bool) -> tuple[float, float]:
    """Return the noise multipliers of all scores together, and of all counts."""
    share = SCORE_SHARE if has_scores else 0.0
    scores = plan.multiplier(TABLES) / math.sqrt(share) if share else math.inf
    return scores, plan.multiplier(TABLES) / math.sqrt(1 - share)


def weights(tables: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Return the weights of the scores of tables, given by their columns."""
    return np.array([WEIGHT_OF_PAIRS if len(each) == 2 else 1 for each in tables])


def score_noise(plan: PrivacyPlan, tables: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Return the standard deviations of the noise in the scores of tables."""
    factors = weights(tables)
    return np.asarray(multipliers(plan, True)[0] * np.linalg.norm(factors) / factors)


def release_scores(
    codes: Private[np.ndarray],
    tables: Sequence[Table],
    expected: Sequence[np.ndarray],
    plan: PrivacyPlan,
    mechanisms: Mechanisms,
) -> np.ndarray:
    """Release how far the rows are from what is expected of them, table by table.

    Parameters
    ----------
    codes : Private of ndarray of shape (n, d)
        Cells of all rows.
    tables : sequence of Table
        At least one.
    expected : sequence of ndarray
        Whole numbers, of the tables' shapes; public or released.
    plan : PrivacyPlan
    mechanisms : Mechanisms

    Returns
    -------
    ndarray of shape (n_tables,)
        In rows, with the noise of `score_noise`.
    """
    ranks, factors = mechanisms.ranks, weights([table.columns for table in tables])

    def scores(counts: list[np.ndarray]) -> np.ndarray:
        pairs = zip(zip(*ranks.gathered(counts), strict=True), expected, strict=True)
        exact = [np.abs(sum(parts) - wanted).sum() for parts, wanted in pairs]
        # No sum over rows: the first process has all counts, and all scores.
        values: np.ndarray = np.array(exact, dtype=np.int64) * factors
        return values if ranks.is_first else values * 0

    values = codes.map(partial(all_counts, tables)).map(scores)
    sensitivity = float(np.linalg.norm(factors))
    std = multipliers(plan, True)[0] * sensitivity
    noisy = mechanisms.gaussian(
        values, std, release=TABLES.name, sensitivity=sensitivity
    )
    return np.asarray(noisy / factors)


def release_counts(
    codes: Private[np.ndarray],
    tables: Sequence[Table],
    has_scores: bool,
    plan: PrivacyPlan,
    mechanisms: Mechanisms,
) -> list[np.ndarray]:
    """Release the counts of tables, at least one.

    Parameters
    ----------
    codes : Private of ndarray of shape (n, d)
        Cells of all rows.
    tables : sequence of Table
    has_scores : bool
        Whether they were chosen by `release_scores`.
    plan : PrivacyPlan
    mechanisms : Mechanisms
    """
    counts = codes.map(partial(all_counts, tables))
    exact = counts.map(lambda parts: np.concatenate([x.ravel() for x in parts]))
    sensitivity = math.sqrt(len(tables))
    std = multipliers(plan, has_scores)[1] * sensitivity
    noisy = mechanisms.gaussian(
        exact, std, release=TABLES.name, sensitivity=sensitivity
    )
    ends = np.cumsum([math.prod(table.shape) for table in tables])[:-1]
    parts = np.split(noisy, ends)
    return [x.reshape(t.shape) for x, t in zip(parts, tables, strict=True)]
