"""Select, measure, correct: what noisy gradients cannot see, one measured table shows.

After training, tables of a few columns are compared with what the model expects; those
that differ most, and those that were asked for, are counted, and the model is brought
nearer to their counts. Rows pass `privacy.tables` alone.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from pandas.api.types import is_hashable

from dpgenerative._validation import refuse
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.fitting.growth import Clamped, nothing_clamped
from dpgenerative.models.cells import CellFacts
from dpgenerative.models.factors import CountedTable, TableFactor, grouping, scales_of
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan
from dpgenerative.privacy.tables import (
    Candidate,
    Table,
    all_counts,
    multipliers,
    release_counts,
    release_news,
)
from dpgenerative.tables.private import Private
from dpgenerative.tables.schema import Schema

SCORED_GROUPS = {2: 20, 3: 4, 4: 2, 5: 2, 6: 2, 7: 2}
"""Groups per column in which tables of so many columns are compared."""
MOST_CANDIDATES = 2000
LEAST_DEVIATION = 3.0
"""Standard deviations of its noise that the news of a table must exceed."""
MOST_TABLES, MOST_LARGER = 10, 5
"""Choices among pairs, and among larger tables, of which there are many more."""
WEIGHT_OF_WANTED = 5
"""Weight of a table that was asked for, beside others."""
SIZES = (2, 4, 8, 16, 32)
"""Groups per column in which tables are counted: each splits those before it."""
CELLS_PER_ROW = 0.4
"""Cells of a counted table, per row and standard deviation of its noise."""
POOL, RAKED = 2**17, 2**16
"""Rows drawn from the model to compare tables with, and to correct it on."""
MEAN_DEVIATION = math.sqrt(2 / math.pi)
"""Mean distance from its mean of a normal of standard deviation 1."""

Columns = tuple[int, ...]


def check_workload(owner: str, name: str, value: Any) -> None:
    """Require a sequence of tables, each of two to seven different column names."""
    few, most = min(SCORED_GROUPS), max(SCORED_GROUPS)
    tables: Any = value if isinstance(value, (list, tuple)) else [None]
    for table in tables:
        is_listed = isinstance(table, (list, tuple))
        is_listed = is_listed and all(map(is_hashable, table))
        if not (is_listed and few <= len(set(table)) == len(table) <= most):
            rule = f"must be a list of lists of {few} to {most} different column names"
            refuse(owner, name, rule, value)


def check_names(owner: str, workload: Sequence[Any], schema: Schema) -> None:
    """Require tables of columns that are learned, and not together."""
    learned = [column.name for column in schema.columns]
    for table in workload:
        if not set(table) <= set(learned):
            rule = f"must name columns that are learned, which are {learned}"
            refuse(owner, "workload", rule, table)
        if any(len(set(table) & set(names)) > 1 for names in schema.joint):
            rule = "must name one column at most of what is learned together (joint)"
            refuse(owner, "workload", rule, table)


def factors_of_groups(transformer: TableTransformer) -> list[TableFactor]:
    """Return what rules out levels that do not lie in their group."""
    return [
        TableFactor.of_pairs(
            (transformer.place(each.within), transformer.place(each.name)),
            torch.from_numpy(each.allowed),
        )
        for each in transformer.nestings
    ]


@dataclass(frozen=True)
class Measurement:
    """The rows on which tables are counted, and the noise.

    Attributes
    ----------
    facts : sequence of CellFacts
    codes : Private of ndarray of shape (n, d)
        Cells of all rows.
    plan : PrivacyPlan
    mechanisms : Mechanisms
    """

    facts: Sequence[CellFacts]
    codes: Private[np.ndarray]
    plan: PrivacyPlan
    mechanisms: Mechanisms

    def correct(
        self,
        model: Any,
        generator: torch.Generator,
        wanted: Sequence[Columns],
        given: Clamped = nothing_clamped,
    ) -> None:
        """Count the tables wanted and those that the model gets wrong; correct it.

        Parameters
        ----------
        model : HFlow
        generator : torch.Generator
        wanted : sequence of tuple of int
            Tables to count in any case, as ascending columns.
        given : callable, optional
            From n to the cells of n rows where they are given, if any are.
        """
        tables = self._candidates(wanted)
        chosen = [table.columns for table in tables]
        is_choice = len(chosen) > max(1, len(set(wanted)))
        if is_choice:
            pool = model.sample(POOL, generator, clamped=given(POOL))[0].cpu().numpy()
            chosen = self._selected(tables, pool, wanted)
        if chosen:
            counted = self._counted(chosen, is_choice)
            model.correct(RAKED, generator, counted, given(RAKED))

    def _candidates(self, wanted: Sequence[Columns]) -> list[Table]:
        """Return tables to compare, by public numbers.

        All pairs (of more than 63 columns, those with the first column, often the one
        to predict, then those of columns near each other); then tables of three and
        more columns, those with the first column before the others, as long as there
        are not too many; and all that are wanted.
        """
        candidates: list[Columns] = []
        for columns in _families(len(self.facts)):
            present = set(candidates)
            new = [c for c in columns if c not in present and self._is_drawn(c)]
            total = len(candidates) + len(new)
            if len(columns[0]) > 2 and total > MOST_CANDIDATES:
                break
            if len(new) > MOST_CANDIDATES:
                new.sort(key=lambda c: (c[0] > 0, c[1] - c[0]))
            candidates += new[:MOST_CANDIDATES]
        others = [c for c in dict.fromkeys(wanted) if c not in candidates]
        candidates += sorted(others, key=len)
        return [self._table(c, [SCORED_GROUPS[len(c)]] * len(c)) for c in candidates]

    def _is_drawn(self, columns: Columns) -> bool:
        """Return whether a table shows more than relations within what is given."""
        given = [self.facts[j].is_given for j in columns]
        return not given[-1] and sum(given) < 2

    def _table(self, columns: Columns, sizes: Sequence[int]) -> Table:
        pairs = zip(columns, sizes, strict=True)
        groups = (grouping(self.facts[j], n).numpy() for j, n in pairs)
        return Table(columns, tuple(groups))

    def _selected(
        self, tables: Sequence[Table], pool: np.ndarray, wanted: Sequence[Columns]
    ) -> list[Columns]:
        """Release what tables show; return the columns of those worth counting.

        Beside those wanted, as many are counted as bring the model closest in all,
        those first that would bring it closest alone.
        """
        n = self.plan.n_rows
        shares = [counts / len(pool) for counts in all_counts(tables, pool)]
        candidates = [
            Candidate(table, np.rint(n * share).astype(np.int64), chance)
            for table, share in zip(tables, shares, strict=True)
            for chance in [round(_by_chance(share, n, len(pool)))]
        ]
        places = [i for i, table in enumerate(tables) if table.columns in wanted]
        others = [i for i in range(len(tables)) if i not in places]
        pairs = [i for i in others if len(tables[i].columns) == 2]
        larger = [i for i in others if len(tables[i].columns) > 2]
        most = min(len(self.facts), MOST_TABLES)
        among = [pairs] * min(most, len(pairs))
        among += [larger] * min(most, MOST_LARGER, len(larger))
        released = release_news(
            self.codes, candidates, places, among, self.plan, self.mechanisms
        )
        by_counts = multipliers(self.plan, True)[1]
        cost = {
            i: MEAN_DEVIATION * by_counts * math.prod(tables[i].shape) for i in released
        }
        best = n_wanted = len(places)
        order = places + [
            i
            for i in sorted(released, key=lambda i: -_gain(released[i][0], cost[i]))
            if i not in places and released[i][0] > LEAST_DEVIATION * released[i][1]
        ]
        news = [released[i][0] for i in order]
        costs = [cost[i] for i in order]
        gain = 0.0
        for k in range(n_wanted, len(order) + 1):
            both = zip(news[:k], costs[:k], strict=True)
            gains = [_gain(each, math.sqrt(k) * cost) for each, cost in both]
            total = sum(gains) + (WEIGHT_OF_WANTED - 1) * sum(gains[:n_wanted])
            best, gain = (k, total) if total > gain else (best, gain)
        chosen = [tables[i].columns for i in order[:best]]
        return self.mechanisms.ranks.same(chosen)

    def _counted(self, chosen: Sequence[Columns], scored: bool) -> list[CountedTable]:
        """Release the counts of tables, as finely as noise allows."""
        noise = multipliers(self.plan, scored)[1] * math.sqrt(len(chosen))
        facts = [[self.facts[j] for j in columns] for columns in chosen]
        sizes = [self._sizes(each, noise) for each in facts]
        tables = [self._table(c, s) for c, s in zip(chosen, sizes, strict=True)]
        counts = release_counts(self.codes, tables, scored, self.plan, self.mechanisms)
        counted = []
        parts = zip(chosen, facts, sizes, counts, strict=True)
        for columns, each, size, count in parts:
            total = max(1.0, count.sum())  # the row count may be far off for few rows
            shares = torch.from_numpy(count / total).float()
            scales = scales_of(each, size)
            counted.append(CountedTable(columns, scales, shares, noise / total))
        return counted

    def _sizes(self, facts: Sequence[CellFacts], noise: float) -> list[int]:
        """Return the number of groups of every column.

        All have as many as noise allows. Nominal columns then have as many more, all of
        them alike, as still fit, since none of their groups borrows from neighbours.
        """
        most = CELLS_PER_ROW * self.plan.n_rows / max(noise, 1)
        numbers = [2] * len(facts)
        for size in SIZES:
            sizes = [min(size, len(fact.masses)) for fact in facts]
            if math.prod(sizes) > most:
                break
            numbers = sizes
        levels = [len(f.masses) for f in facts if not f.has_neighbours]
        for size in range(min([*levels, *numbers]), max(levels, default=0) + 1):
            pairs = zip(numbers, facts, strict=True)
            sizes = [
                n if f.has_neighbours else max(n, min(size, len(f.masses)))
                for n, f in pairs
            ]
            if math.prod(sizes) > most:
                break
            numbers = sizes
        return numbers


def _families(d: int) -> Iterator[list[Columns]]:
    """Yield sets of columns: pairs, then larger ones, those with column 0 first."""
    for k in SCORED_GROUPS:
        sets: list[Columns] = []
        if math.comb(d, k) < 10**6:
            sets = list(combinations(range(d), k))
        elif k == 2:  # more than candidates, even of those that come first
            sets = [(i, j) for j in range(1, d) for i in {0, j - 1}]
        if k > 2 and sets:
            yield [columns for columns in sets if columns[0] == 0]
        if sets:
            yield sets


def _by_chance(shares: np.ndarray, n: int, n_pool: int) -> float:
    """Return the score that chance alone makes of n rows and a pool of the model."""
    deviations = np.sqrt(shares * (1 - shares) * (n + n**2 / n_pool))
    # Where no row is expected, the deviation is the number of rows.
    rare = n * shares < 0.5
    return float(np.where(rare, n * shares, MEAN_DEVIATION * deviations).sum())


def _gain(news: float, noise: float) -> float:
    """Return how far a table of that much noise brings the model towards the rows.

    Gaps and noise of one size each are met by the share of both that is gap.
    """
    return max(news, 0.0) * (1 - noise / math.hypot(noise, news))
