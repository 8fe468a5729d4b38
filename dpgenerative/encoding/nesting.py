"""Columns of which the levels lie within those of another: codes in their chapters.

Which levels go together is public (`Determines`, and `FixedCombinations` of two columns
of levels). So the group is drawn first, and the level among those that it allows: the
group keeps its own marginal and what depends on it, however many levels there are. Rare
levels share a cell with those of the same groups alone.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgenerative.encoding.codecs import Codec, LevelCodec
from dpgenerative.tables.column import Column
from dpgenerative.tables.constraints import Determines, FixedCombinations
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.values import as_json

Groups = frozenset[Any]


@dataclass(frozen=True)
class NestingRule:
    """Which levels of a column go with which of another.

    Attributes
    ----------
    name, within : hashable
        The column, and that of its groups.
    groups : mapping of level to frozenset
        Levels of the other column, for every level that is listed.
    others : frozenset, optional
        The same for all other levels; None for any group.
    """

    name: Hashable
    within: Hashable
    groups: Mapping[Any, Groups]
    others: Groups | None

    def of(self, column: Column) -> list[Groups | None]:
        """Return the groups of every level, and of missing values."""
        return [self.groups.get(level, self.others) for level in levels_of(column)]


@dataclass(frozen=True)
class Nesting:
    """Which cells of a column go with which of another.

    Attributes
    ----------
    name, within : hashable
        The column, and that of its groups.
    allowed : ndarray of bool of shape (n_cells of the groups, n_cells)
    """

    name: Hashable
    within: Hashable
    allowed: np.ndarray

    @classmethod
    def completed(cls, rule: NestingRule, codec: Codec, groups: Codec) -> "Nesting":
        """Return the rule for cells, once they are released."""
        assert isinstance(codec, LevelCodec)
        assert isinstance(groups, LevelCodec)
        allowed = np.zeros((groups.n_cells, codec.n_cells), bool)
        levels = levels_of(groups.column)
        cells = dict(zip(levels, groups.level_cells.tolist(), strict=True))
        for wanted, cell in zip(
            rule.of(codec.column), codec.level_cells.tolist(), strict=True
        ):
            rows = cells.values() if wanted is None else map(cells.get, wanted)
            allowed[[row for row in rows if row is not None], cell] = True
        return cls(rule.name, rule.within, allowed)


def levels_of(column: Column) -> list[Any]:
    """Return the levels of a column as JSON holds them, and None if it has missing."""
    return [*map(as_json, column.levels or ()), *[None] * bool(column.nullable)]


def nesting_rules(schema: Schema) -> dict[Hashable, NestingRule]:
    """Return the rule of every column that is nested in another, each once.

    A column that lies within others of which one lies within it has none.
    """
    rules: dict[Hashable, NestingRule] = {}
    for constraint in schema.constraints:
        rule = _rule(constraint)
        if rule is None or rule.name in rules:
            continue
        if any(schema[name].numeric for name in (rule.name, rule.within)):
            continue
        above = rule.within
        while above in rules:
            above = rules[above].within
        if above != rule.name:
            rules[rule.name] = rule
    return rules


def _rule(constraint: Any) -> NestingRule | None:
    if isinstance(constraint, Determines) and len(constraint.names) == 1:
        groups = {key[0]: frozenset([value]) for key, value in constraint.mapping}
        return NestingRule(constraint.names[0], constraint.determined, groups, None)
    if isinstance(constraint, FixedCombinations) and len(constraint.names) == 2:
        both: list[dict[Any, set[Any]]] = [{}, {}]
        for pair in constraint.combinations:
            for place in (0, 1):
                both[place].setdefault(pair[place], set()).add(pair[1 - place])
        place = int(len(both[1]) > len(both[0]))  # the column of more levels
        by_level = {level: frozenset(each) for level, each in both[place].items()}
        names = constraint.names
        return NestingRule(names[place], names[1 - place], by_level, frozenset())
    return None


def nested_levels(
    rules: Mapping[Hashable, NestingRule], codecs: Mapping[Hashable, Codec]
) -> Iterator[Nesting]:
    """Yield which cells of levels go together."""
    for name, rule in rules.items():
        yield Nesting.completed(rule, codecs[name], codecs[rule.within])


def groups_first(schema: Schema) -> Schema:
    """Return a schema in which the groups of a column come before it."""
    rules, columns = nesting_rules(schema), list(schema.columns)
    for _ in rules:  # once for every rule of a chain
        for rule in rules.values():
            names = [column.name for column in columns]
            place, above = names.index(rule.name), names.index(rule.within)
            if above > place:
                columns.insert(place, columns.pop(above))
    return Schema(columns, schema.constraints, schema.joint)


def pooled_cells(rare: np.ndarray, groups: Sequence[Groups | None]) -> np.ndarray:
    """Return the cell of every level: the rare ones of a group share one.

    Shared cells are the first ones.
    """
    pools: dict[Groups | None, int] = {}
    pool = [pools.setdefault(each, len(pools)) for each in groups]
    own = len(rare) + np.arange(len(rare))
    return np.asarray(np.unique(np.where(rare, pool, own), return_inverse=True)[1])
