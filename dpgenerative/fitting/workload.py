"""Select, measure, correct: what noisy gradients cannot see, one measured table shows.

After training, tables of a few columns are compared with what the model expects; those
that differ most, and those that were asked for, are counted, and the model is brought
nearer to their counts. Rows pass `privacy.tables` alone.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from pandas.api.types import is_hashable

from dpgenerative._validation import refuse
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.fitting.domain import TableDomain
from dpgenerative.fitting.growth import Clamped, nothing_clamped
from dpgenerative.models.cells import CellFacts, grouping
from dpgenerative.models.factors import CountedTable, TableFactor, scales_of
from dpgenerative.privacy.noise import Mechanisms, choice_rate
from dpgenerative.privacy.plan import PrivacyPlan
from dpgenerative.privacy.tables import (
    MOST_CUTS,
    Candidate,
    Comparison,
    Table,
    all_counts,
    count_multiplier,
    halves,
    release_counts,
    share_of_choices,
)
from dpgenerative.tables.private import Private
from dpgenerative.tables.schema import Schema

SCORED_GROUPS = {2: 20, 3: 4, 4: 4, 5: 4, 6: 4, 7: 4}
"""Groups per column in which tables of so many columns are compared, at most."""
CUT_GROUPS = 64
"""Groups between which a column may be cut."""
MOST_CUT = MOST_CUTS // max(SCORED_GROUPS)
"""Tables of which all columns are cut."""
MOST_CANDIDATES, MOST_COMPARED = 2000, 2**24
"""Tables to compare, and cells of all of them."""
MOST_EXPECTED = 2**40
"""Rows that are expected: sums of these are exact."""
LEAST_DEVIATION = 3.0
"""Standard deviations of its noise that the news of a table must exceed."""
MOST_TABLES, MOST_LARGER = 10, 5
"""Choices among pairs, and among larger tables, of which there are many more."""
WEIGHT_OF_WANTED = 5
"""Weight of a table that was asked for, beside others."""
SIZES = (2, 4, 8, 16, 32)
"""Groups per column in which tables are counted: each splits those before it."""
PAIR_SIZES = (2, 5, 10, 20, 40)
"""The same of two columns, of which 20 groups each are compared; 5 do not split 2."""
CELLS_PER_ROW = 0.4
"""Cells of a counted table, per row and standard deviation of its noise."""
POOL, RAKED = 2**17, 2**16
"""Rows drawn from the model to compare tables with, and to correct it on..."""
CELLS_DRAWN = 2**24
"""... of which all columns together have no more cells."""
MEAN_DEVIATION = math.sqrt(2 / math.pi)
"""Mean distance from its mean of a normal of standard deviation 1."""

Columns = tuple[int, ...]
Cuts = tuple[int | None, ...]
"""Of every column of a table, the first cell above the cut between its groups."""


def rows_drawn(n: int, facts: Sequence[CellFacts]) -> int:
    """Return how many rows are drawn where n are asked for: fewer of many columns."""
    return max(1, min(n, CELLS_DRAWN // len(facts)))


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


def factors_of_nestings(transformer: TableTransformer) -> list[TableFactor]:
    """Return what rules out cells that do not go with those of a column before."""
    factors = []
    for each in transformer.nestings:
        places = transformer.place(each.within), transformer.place(each.name)
        allowed = each.allowed if places[0] < places[1] else each.allowed.T
        first, last = sorted(places)
        factors.append(TableFactor.of_pairs((first, last), torch.tensor(allowed)))
    return factors


def count_tables(
    model: Any,
    transformer: TableTransformer,
    rows: Private[Any],
    plan: PrivacyPlan,
    mechanisms: Mechanisms,
    generator: torch.Generator,
    wanted: Sequence[Columns] = (),
    given: Clamped = nothing_clamped,
    most_pairs: int = MOST_TABLES,
) -> None:
    """Count tables of private rows, and correct a trained model; see `Measurement`."""
    codes = rows.map(transformer.encode)
    facts = TableDomain.facts(transformer)
    measurement = Measurement(facts, codes, plan, mechanisms, most_pairs)
    measurement.correct(model, generator, wanted, given)


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
    most_pairs : int
        Choices among pairs of columns.
    """

    facts: Sequence[CellFacts]
    codes: Private[np.ndarray]
    plan: PrivacyPlan
    mechanisms: Mechanisms
    most_pairs: int = MOST_TABLES

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
        model : HFlow or VAE
        generator : torch.Generator
        wanted : sequence of tuple of int
            Tables to count in any case, as ascending columns.
        given : callable, optional
            From n to the cells of n rows where they are given, if any are.
        """
        tables = self._candidates(wanted)
        chosen, share = {t.columns: uncut(t.columns) for t in tables}, 0.0
        if len(chosen) > max(1, len(set(wanted))):
            share = share_of_choices(self._has_cuts(tables, wanted))
            n = rows_drawn(POOL, self.facts)
            pool = model.pool(n, generator, given(n)).cpu().numpy()
            chosen = self._selected(tables, pool, wanted, share)
        if chosen:
            counted = self._counted(chosen, share)
            n = rows_drawn(RAKED, self.facts)
            model.correct(n, generator, counted, given(n))

    def _candidates(self, wanted: Sequence[Columns]) -> list[Table]:
        """Return tables to compare, by public numbers.

        All pairs (of more than 63 columns, those with the first column, often the one
        to predict, then those of columns near each other); then tables of three and
        more columns, those with the first column before the others, as long as there
        are not too many; and all that are wanted.
        """
        candidates: dict[Columns, Table] = {}
        n_cells = 0
        for columns in _families(len(self.facts)):
            new = [c for c in columns if c not in candidates and self._is_drawn(c)]
            total = len(candidates) + len(new)
            if len(columns[0]) > 2 and total > MOST_CANDIDATES:
                break
            if len(new) > MOST_CANDIDATES:
                new.sort(key=lambda c: (c[0] > 0, c[1] - c[0]))
            tables = [self._scored(c) for c in new[:MOST_CANDIDATES]]
            n_cells += sum(math.prod(table.shape) for table in tables)
            if len(columns[0]) > 2 and n_cells > MOST_COMPARED:
                break
            candidates |= {table.columns: table for table in tables}
        others = [c for c in dict.fromkeys(wanted) if c not in candidates]
        return [*candidates.values(), *map(self._scored, sorted(others, key=len))]

    def _is_drawn(self, columns: Columns) -> bool:
        """Return whether a table shows more than relations within what is given."""
        given = [self.facts[j].is_given for j in columns]
        return not given[-1] and sum(given) < 2

    def _table(
        self, columns: Columns, sizes: Sequence[int], cuts: Cuts | None = None
    ) -> Table:
        parts = zip(columns, sizes, cuts or uncut(columns), strict=True)
        groups = (grouping(self.facts[j], n, cut).numpy() for j, n, cut in parts)
        return Table(columns, tuple(groups))

    def _scored(self, columns: Columns) -> Table:
        return self._table(columns, [SCORED_GROUPS[len(columns)]] * len(columns))

    def _expected(self, tables: Sequence[Table], pool: np.ndarray) -> list[Candidate]:
        """Return tables with the numbers of rows that the model lets expect."""
        n = min(self.plan.n_rows, MOST_EXPECTED)
        shares = (counts / len(pool) for counts in all_counts(tables, pool))
        return [
            Candidate(table, _whole(n * share), round(_by_chance(share, n, len(pool))))
            for table, share in zip(tables, shares, strict=True)
        ]

    def _has_cuts(self, tables: Sequence[Table], wanted: Sequence[Columns]) -> bool:
        """Return whether a column of a larger table that is not wanted may be cut."""
        larger = (t.columns for t in tables if len(t.columns) > 2)
        columns = {j for each in larger if each not in wanted for j in each}
        return any(_n_to_cut(self.facts[j]) for j in columns)

    def _selected(
        self,
        tables: Sequence[Table],
        pool: np.ndarray,
        wanted: Sequence[Columns],
        share: float,
    ) -> dict[Columns, Cuts]:
        """Release what tables show; return the columns of those worth counting.

        Beside those wanted, as many are counted as bring the model closest in all,
        those first that would bring it closest alone. Two of the larger are cut, and
        compared in no more groups than are counted of one table.
        """
        places = [i for i, table in enumerate(tables) if table.columns in wanted]
        others = [i for i in range(len(tables)) if i not in places]
        pairs = [i for i in others if len(tables[i].columns) == 2]
        larger = [i for i in others if len(tables[i].columns) > 2]
        d = len(self.facts)
        among = [pairs] * min(d, self.most_pairs, len(pairs))
        among += [larger] * min(d, MOST_LARGER, len(larger))
        expected = self._expected(tables, pool)
        comparison = Comparison(self.codes, expected, self.plan, self.mechanisms)
        chosen = comparison.choose(places, among)
        cuts = {i: uncut(tables[i].columns) for i in chosen}
        new, noise = chosen[len(places) :], count_multiplier(self.plan, share)
        for i in [i for i in new if len(tables[i].columns) > 2][:MOST_CUT]:
            columns = tables[i].columns
            cuts[i] = self._cut(comparison, columns, pool)
            counted = self._sizes([self.facts[j] for j in columns], noise)
            sizes = [min(n, SCORED_GROUPS[len(columns)]) for n in counted]
            table = self._table(columns, sizes, cuts[i])
            comparison.replace(i, *self._expected([table], pool))
        released = comparison.release(chosen)
        costs = {
            i: MEAN_DEVIATION * noise * math.prod(comparison.candidates[i].table.shape)
            for i in chosen
        }
        best = _worth_counting(released, costs, places)
        return self.mechanisms.ranks.same({tables[i].columns: cuts[i] for i in best})

    def _cut(self, comparison: Comparison, columns: Columns, pool: np.ndarray) -> Cuts:
        """Choose a cut of every column with neighbours, given those before it.

        The cut nearest the median has half of the prior.
        """
        n, cuts = min(self.plan.n_rows, MOST_EXPECTED), list(uncut(columns))
        for axis, fact in enumerate(self.facts[j] for j in columns):
            n_groups = _n_to_cut(fact)
            if not n_groups:
                continue
            sizes = [SCORED_GROUPS[len(columns)]] * len(columns)
            sizes[axis] = CUT_GROUPS
            table = self._table(columns, sizes, tuple(cuts))
            (counts,) = all_counts([table], pool)
            shares = halves(counts, axis, n_groups) / len(pool)
            both = shares.swapaxes(0, 1)
            chances = _whole(np.array([_by_chance(x, n, len(pool)) for x in both]))
            groups = table.groups[axis]
            below = np.bincount(groups, fact.masses.numpy())[:n_groups].cumsum()
            rate = choice_rate(comparison.cut_multiplier)
            prior = math.log(n_groups - 1) / max(rate, 1 / MOST_EXPECTED)
            chances[np.abs(2 * below[:-1] - below[-1]).argmin()] -= round(prior)
            last = comparison.cut(table, axis, _whole(n * shares), chances)
            cuts[axis] = int((groups <= last).sum())
        return tuple(cuts)

    def _counted(
        self, chosen: Mapping[Columns, Cuts], share: float
    ) -> list[CountedTable]:
        """Release the counts of tables, as finely as noise allows."""
        noise = count_multiplier(self.plan, share) * math.sqrt(len(chosen))
        facts = [[self.facts[j] for j in columns] for columns in chosen]
        sizes = [self._sizes(each, noise) for each in facts]
        parts = zip(chosen, sizes, chosen.values(), strict=True)
        tables = [self._table(*part) for part in parts]
        counts = release_counts(self.codes, tables, share, self.plan, self.mechanisms)
        counted = []
        for (columns, cuts), each, size, count in zip(
            chosen.items(), facts, sizes, counts, strict=True
        ):
            total = max(1.0, count.sum())  # the row count may be far off for few rows
            shares = torch.from_numpy(count / total).float()
            scales = scales_of(each, size, cuts)
            counted.append(CountedTable(columns, scales, shares, noise / total))
        return counted

    def _sizes(self, facts: Sequence[CellFacts], noise: float) -> list[int]:
        """Return the number of groups of every column.

        All have as many as noise allows. Nominal columns then have as many more, all of
        them alike, as still fit, since none of their groups borrows from neighbours.
        """
        most = CELLS_PER_ROW * self.plan.n_rows / max(noise, 1)
        numbers = [2] * len(facts)
        for size in PAIR_SIZES if len(facts) == 2 else SIZES:
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


def uncut(columns: Columns) -> Cuts:
    """Return that no column is cut."""
    return (None,) * len(columns)


def _n_to_cut(facts: CellFacts) -> int:
    """Return the number of groups between which a column may be cut, or 0 for two."""
    n_groups = int(grouping(facts, CUT_GROUPS).max()) + 1 - facts.nullable
    return n_groups if facts.has_neighbours and n_groups > 2 else 0


def _whole(numbers: np.ndarray) -> np.ndarray:
    return np.rint(numbers).astype(np.int64)


def _worth_counting(
    released: Mapping[int, tuple[float, float]],
    costs: Mapping[int, float],
    wanted: Sequence[int],
) -> list[int]:
    """Return the places of tables to count: those wanted, and those that pay together.

    Parameters
    ----------
    released : mapping from int to (float, float)
        The news of each, and the standard deviation of its noise.
    costs : mapping from int to float
        Noise of all counts of each, if it is counted alone, in rows.
    wanted : sequence of int
    """
    others = [i for i, (news, std) in released.items() if news > LEAST_DEVIATION * std]
    others.sort(key=lambda i: -_gain(released[i][0], costs[i]))
    order = [*wanted, *(i for i in others if i not in wanted)]
    best, most = len(wanted), 0.0
    for k in range(len(wanted), len(order) + 1):
        gains = [_gain(released[i][0], math.sqrt(k) * costs[i]) for i in order[:k]]
        total = sum(gains) + (WEIGHT_OF_WANTED - 1) * sum(gains[: len(wanted)])
        best, most = (k, total) if total > most else (best, most)
    return order[:best]


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
