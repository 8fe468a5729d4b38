"""Contingency tables: scores of candidates, then the counts of those that were chosen.

A table groups the cells of two columns or more; a row is in exactly one cell of it.

Formal guarantee: the score of a candidate is the sum over its cells of the distance
between the number of rows and an expected number, which is public and whole. One row
more or less changes one number by 1, so a score by at most 1, exactly. What a table
shows beyond its parts is its score less the highest of theirs, and moves by at most 2.
A pair has no parts: it moves by at most 1, and counts twice. Tables are chosen one
after the other, each by the exponential mechanism (`Mechanisms.choose`). Then what the
T chosen show is released with Gaussian noise: T numbers, each of which moves by at most
2, move by 2 sqrt(T) in the Euclidean norm. The counts of T tables move by sqrt(T).

All of it costs at most the plan's share of the precision of Gaussian releases, which is
fixed beforehand, whatever is expected and chosen because of what was released before
(adaptive composition). The number of choices follows from the number of columns.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from itertools import combinations
from operator import itemgetter

import numpy as np

from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan, Release
from dpgenerative.tables.private import Private

TABLES = Release(
    "tables",
    "contingency tables (listed below, if any): their selection by the exponential "
    "mechanism, their scores and counts ({noise})",
    spends="any",
)
SCORE_SHARE = 0.1
"""Share of the tables' budget that scores get, where tables are chosen by scores."""
CHOICE_SHARE = 0.67
"""Share of that for the choices; the rest is for the scores of those chosen."""
MOST_REACH = 2
"""How far a row moves what a table shows beyond its parts; a pair has none, and 1."""
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


@dataclass(frozen=True)
class Candidate:
    """A table that may be worth counting, and what is known of it; no row is.

    Attributes
    ----------
    table : Table
    expected : ndarray of int
        Number of rows expected in every cell.
    chance : int
        Sum of the distances from these numbers that chance alone makes.
    """

    table: Table
    expected: np.ndarray
    chance: int

    def score(self, counts: np.ndarray) -> int:
        """Return the sum of the distances of counts, less that by chance."""
        return int(np.abs(counts - self.expected).sum()) - self.chance

    @property
    def reach(self) -> int:
        """How far a row moves what the table shows beyond its parts."""
        return 1 if len(self.table.columns) == 2 else MOST_REACH


def release_news(
    codes: Private[np.ndarray],
    candidates: Sequence[Candidate],
    wanted: Sequence[int],
    among: Sequence[Sequence[int]],
    plan: PrivacyPlan,
    mechanisms: Mechanisms,
) -> dict[int, tuple[float, float]]:
    """Choose tables one by one, and release what each shows beyond its parts.

    Parameters
    ----------
    codes : Private of ndarray of shape (n, d)
        Cells of all rows.
    candidates : sequence of Candidate
        Those of fewer columns first.
    wanted : sequence of int
        Places of tables of which it is released in any case, each once.
    among : sequence of sequence of int
        For every choice, the places of tables of which one is chosen, unless it is
        already; more than choices before. One or more if none is wanted.
    plan : PrivacyPlan
    mechanisms : Mechanisms

    Returns
    -------
    dict of int to (float, float)
        By place: the news in rows, and the standard deviation of its noise.
    """
    ranks = mechanisms.ranks
    factors = np.array([MOST_REACH // each.reach for each in candidates])

    def scaled(counts: list[np.ndarray]) -> np.ndarray:
        # No sum over rows: the first process has all counts, and all news.
        parts = zip(*ranks.gathered(counts), strict=True)
        totals = [reduce(np.add, each) for each in parts]
        shown: np.ndarray = news(candidates, totals) * factors * ranks.is_first
        return shown

    counts = codes.map(partial(all_counts, [each.table for each in candidates]))
    values = counts.map(scaled)
    multiplier = multipliers(plan, True)[0]
    by_choices = multiplier / math.sqrt(CHOICE_SHARE)
    places = list(wanted)
    for some in among:
        left = [i for i in some if i not in places]
        place = mechanisms.choose(
            values.map(itemgetter(left)), by_choices * math.sqrt(len(among)),
            release=TABLES.name, sensitivity=MOST_REACH,
        )  # fmt: skip
        places.append(left[place])
    sensitivity = MOST_REACH * math.sqrt(len(places))
    std = multiplier / math.sqrt(1 - CHOICE_SHARE) * sensitivity
    noisy = mechanisms.gaussian(
        values.map(itemgetter(places)), std, release=TABLES.name,
        sensitivity=sensitivity,
    )  # fmt: skip
    pairs = zip(noisy / factors[places], std / factors[places], strict=True)
    return dict(zip(places, pairs, strict=True))


def news(candidates: Sequence[Candidate], counts: Sequence[np.ndarray]) -> np.ndarray:
    """Return what every table shows beyond the best of its parts, in whole rows.

    A row moves a score by 1, and the best of some scores by 1.
    """
    best: dict[tuple[int, ...], int] = {}
    values = np.empty(len(candidates), np.int64)
    for i, (each, count) in enumerate(zip(candidates, counts, strict=True)):
        columns, score = each.table.columns, each.score(count)
        parts = combinations(columns, len(columns) - 1)
        of_parts = max([0, *(best.get(part, 0) for part in parts)])
        best[columns], values[i] = max(score, of_parts), score - of_parts
    return values


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
        Whether they were chosen by `release_news`.
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
