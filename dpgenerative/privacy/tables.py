"""Contingency tables: scores of candidates, then the counts of those that were chosen.

A table groups the cells of two columns or more; a row is in exactly one cell of it.

Formal guarantee: the score of a candidate is the sum over its cells of the distance
between the number of rows and an expected number, which is public and whole. One row
more or less changes one number by 1, so a score by at most 1, exactly. What a table
shows beyond its parts is its score less the highest of theirs, and moves by at most 2.
A pair has no parts: it moves by at most 1, and counts twice. Tables are chosen one
after the other, each by the exponential mechanism (`Mechanisms.choose`).

A cut divides the groups of one column in two. The score of a cut is that of the table
of both halves, less a public number, and moves by at most 1: a row is in one cell of
one half. Cuts are chosen by the exponential mechanism, too, `MOST_CUTS` at most; then
what is chosen of a table is a table of other groups, and all above holds of it.

Then what the T chosen show is released with Gaussian noise: T numbers, each of which
moves by at most 2, move by 2 sqrt(T) in the Euclidean norm. The counts of T tables move
by sqrt(T).

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

from dpgenerative.exceptions import LedgerError
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan, Release
from dpgenerative.tables.private import Private

TABLES = Release(
    "tables",
    "contingency tables (listed below, if any): their selection and the cuts of "
    "their columns by the exponential mechanism, their scores and counts ({noise})",
    spends="any",
)
CHOICE_SHARE, CUT_SHARE, NEWS_SHARE = 0.067, 0.05, 0.033
"""Shares of the tables' budget, where tables are chosen: for choices among tables and
among cuts, and for what the chosen show."""
MOST_CUTS = 14
"""Choices among cuts: of all columns of two of the largest tables."""
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


def share_of_choices(has_cuts: bool) -> float:
    """Return the share of the tables' budget that a `Comparison` has."""
    return CHOICE_SHARE + CUT_SHARE * has_cuts + NEWS_SHARE


def count_multiplier(plan: PrivacyPlan, share: float) -> float:
    """Return the noise multiplier of all counts, but for a share of the budget."""
    return plan.multiplier(TABLES) / math.sqrt(1 - share)


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


class Comparison:
    """Candidates beside the rows: choices among them, and what the chosen show.

    Parameters
    ----------
    codes : Private of ndarray of shape (n, d)
        Cells of all rows.
    candidates : sequence of Candidate
        Those of fewer columns first.
    plan : PrivacyPlan
    mechanisms : Mechanisms
    """

    def __init__(
        self,
        codes: Private[np.ndarray],
        candidates: Sequence[Candidate],
        plan: PrivacyPlan,
        mechanisms: Mechanisms,
    ) -> None:
        self.candidates = list(candidates)
        self.plan, self.mechanisms = plan, mechanisms
        self._codes, self._n_cuts = codes, 0
        tables = [each.table for each in candidates]
        self._both = codes.map(lambda codes: (codes, self._counted(tables, codes)))

    def _counted(self, tables: Sequence[Table], codes: np.ndarray) -> list[np.ndarray]:
        # No sum over rows: the first process has all counts, and all scores.
        parts = self.mechanisms.ranks.gathered(all_counts(tables, codes))
        return [reduce(np.add, each) for each in zip(*parts, strict=True)]

    def _news(self, both: tuple[np.ndarray, list[np.ndarray]]) -> np.ndarray:
        """Return what every table shows, each moved by `MOST_REACH` by a row."""
        shown = news(self.candidates, both[1]) * self._factors
        return np.asarray(shown * self.mechanisms.ranks.is_first)

    @property
    def _factors(self) -> np.ndarray:
        return np.array([MOST_REACH // each.reach for each in self.candidates])

    def _multiplier(self, share: float) -> float:
        return self.plan.multiplier(TABLES) / math.sqrt(share)

    def choose(
        self, wanted: Sequence[int], among: Sequence[Sequence[int]]
    ) -> list[int]:
        """Choose tables one by one; return the places of those wanted and of these.

        Parameters
        ----------
        wanted : sequence of int
            Places of tables that are chosen in any case, each once.
        among : sequence of sequence of int
            For every choice, the places of tables of which one is chosen, unless it is
            already; more than choices before. One or more if none is wanted.
        """
        values = self._both.map(self._news)
        multiplier = self._multiplier(CHOICE_SHARE) * math.sqrt(len(among))
        places = list(wanted)
        for some in among:
            left = [i for i in some if i not in places]
            place = self.mechanisms.choose(
                values.map(itemgetter(left)), multiplier, release=TABLES.name,
                sensitivity=MOST_REACH,
            )  # fmt: skip
            places.append(left[place])
        return places

    def cut(
        self, table: Table, axis: int, expected: np.ndarray, chances: np.ndarray
    ) -> int:
        """Choose a cut between the groups of a column of a table.

        Parameters
        ----------
        table : Table
        axis : int
            Place of the column among those of the table.
        expected : ndarray of int of shape (2, n_cuts, n_cells)
            Expected `halves`.
        chances : ndarray of int of shape (n_cuts,)
            A number less for the score of each cut.

        Returns
        -------
        int
            Number of the last group below the cut.
        """
        self._n_cuts += 1
        if self._n_cuts > MOST_CUTS:
            raise LedgerError("More cuts were asked for than are planned.")
        ranks, n_groups = self.mechanisms.ranks, len(chances) + 1

        def scores(counts: list[np.ndarray]) -> np.ndarray:
            gaps = np.abs(halves(counts[0], axis, n_groups) - expected).sum((0, 2))
            return np.asarray((gaps - chances) * ranks.is_first)

        counts = self._codes.map(partial(self._counted, [table]))
        return self.mechanisms.choose(
            counts.map(scores), self.cut_multiplier, release=TABLES.name, sensitivity=1
        )

    @property
    def cut_multiplier(self) -> float:
        """Noise multiplier of the choice of one cut."""
        return self._multiplier(CUT_SHARE) * math.sqrt(MOST_CUTS)

    def replace(self, place: int, candidate: Candidate) -> None:
        """Put a candidate of other groups of the same columns in the place of one."""
        self.candidates[place] = candidate

        def replaced(
            both: tuple[np.ndarray, list[np.ndarray]],
        ) -> tuple[np.ndarray, list[np.ndarray]]:
            codes, counts = both
            new = self._counted([candidate.table], codes)
            return codes, [*counts[:place], *new, *counts[place + 1 :]]

        self._both = self._both.map(replaced)

    def release(self, places: Sequence[int]) -> dict[int, tuple[float, float]]:
        """Release what each of the tables at some places shows beyond its parts.

        Returns
        -------
        dict of int to (float, float)
            By place: the news in rows, and the standard deviation of its noise.
        """
        sensitivity = MOST_REACH * math.sqrt(len(places))
        std = self._multiplier(NEWS_SHARE) * sensitivity
        noisy = self.mechanisms.gaussian(
            self._both.map(self._news).map(itemgetter(list(places))), std,
            release=TABLES.name, sensitivity=sensitivity,
        )  # fmt: skip
        factors = self._factors[list(places)]
        pairs = zip(noisy / factors, std / factors, strict=True)
        return dict(zip(places, pairs, strict=True))


def halves(counts: np.ndarray, axis: int, n_groups: int) -> np.ndarray:
    """Return the counts below and above every cut, (2, n_groups - 1, n_cells).

    Cuts lie between the first `n_groups` groups of an axis, and others do not count.
    """
    below = np.moveaxis(counts, axis, 0)[:n_groups].cumsum(0)
    both = np.stack([below[:-1], below[-1] - below[:-1]])
    return both.reshape(2, n_groups - 1, -1)


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
    share: float,
    plan: PrivacyPlan,
    mechanisms: Mechanisms,
) -> list[np.ndarray]:
    """Release the counts of tables, at least one.

    Parameters
    ----------
    codes : Private of ndarray of shape (n, d)
        Cells of all rows.
    tables : sequence of Table
    share : float
        Share of the tables' budget by which they were chosen.
    plan : PrivacyPlan
    mechanisms : Mechanisms
    """
    counts = codes.map(partial(all_counts, tables))
    exact = counts.map(lambda parts: np.concatenate([x.ravel() for x in parts]))
    sensitivity = math.sqrt(len(tables))
    std = count_multiplier(plan, share) * sensitivity
    noisy = mechanisms.gaussian(
        exact, std, release=TABLES.name, sensitivity=sensitivity
    )
    ends = np.cumsum([math.prod(table.shape) for table in tables])[:-1]
    parts = np.split(noisy, ends)
    return [x.reshape(t.shape) for x, t in zip(parts, tables, strict=True)]
