"""Domains and samples of tables with several rows per person (`tables.sequences`)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative._validation import refuse
from dpgenerative.encoding.nesting import groups_first
from dpgenerative.encoding.values import identifiers
from dpgenerative.exceptions import SamplingError
from dpgenerative.fitting.domain import TableDomain
from dpgenerative.synthesizers.conditional import Candidates
from dpgenerative.synthesizers.partial_rows import require_fit
from dpgenerative.tables.containers import select_columns
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.sequences import NUMBER, PLACE, NoReturnAfter, Sequences

MOST_TRIES = 100
"""Candidates per step, at most: most steps take the first."""


def domain_of(estimator: Any, schema: Schema) -> TableDomain:
    """Return what a fit learns of steps, in their order.

    Raises
    ------
    ValueError
        Where the model, or what the schema says, does not allow it.
    """
    owner = estimator._owner
    if not estimator._recipe.draws_in_order:
        raise ValueError(
            f"{owner} with these parameters cannot draw one row given another: link "
            "rows with DPHFlowSynthesizer, without blocks."
        )
    sequences = Sequences.of(owner, schema, estimator.max_rows_per_unit)
    estimator._recipe.check_schema(owner, sequences.schema)
    with_missing = estimator._stated().with_missing | {*sequences.given}
    steps = groups_first(sequences.schema)
    return TableDomain(steps, with_missing, sequences=sequences)


def drawn(
    estimator: Any, n: int, given: Any, candidates: Candidates, rng: np.random.Generator
) -> pd.DataFrame:
    """Return the rows of n new people.

    Raises
    ------
    ValueError
        For conditions on what varies within a person.
    SamplingError
        If too few people satisfy what is asked.
    """
    sequences, owner = estimator._layout.sequences, f"{estimator._owner}.sample"
    complete = replace(candidates, max_tries=min(candidates.max_tries, MOST_TRIES))
    if isinstance(given, pd.DataFrame):
        return _continued(estimator, given, complete)
    given = {} if given is None else given
    fixed = list(sequences.fixed)
    if not isinstance(given, Mapping) or not given.keys() <= set(fixed):
        rule = f"must map columns that a person has one value of ({fixed}), or be rows"
        refuse(owner, "given", rule, given)
    parts, n_drawn = [], 0
    for _ in range(MOST_TRIES):  # some people may have no first row
        people = candidates.satisfying(n - n_drawn, given)
        part = sequences.grown(people, complete.continuing)
        numbers, new = pd.factorize(part[sequences.unit])
        part[sequences.unit] = numbers + n_drawn
        parts.append(part)
        n_drawn += len(new)
        if n_drawn == n:
            break
    else:
        raise SamplingError(f"{owner}: {n - n_drawn} of {n} people have no valid row.")
    rows = _with_derived(estimator, pd.concat(parts, ignore_index=True))
    dtype, key = estimator._layout.unit_dtype, estimator.schema_[sequences.unit]
    rows[key.name] = identifiers(key, n, dtype, rng).iloc[rows[key.name]].array
    return rows


def _with_derived(estimator: Any, rows: pd.DataFrame) -> pd.DataFrame:
    return Schema(estimator.schema_, estimator.schema_.derived).repaired(rows)


def _continued(
    estimator: Any, given: pd.DataFrame, complete: Candidates
) -> pd.DataFrame:
    """Return the rows that follow those given of some people.

    Raises
    ------
    ValueError
        For rows that lack a column or a key, or are more than a person has.
    """
    sequences = estimator._layout.sequences
    unit, most = sequences.unit, sequences.most
    names = [unit, *sequences.fixed, *sequences.varying]
    if not {*names} <= {*given.columns}:
        refuse(complete.owner, "given", f"must have the columns {names}", given)
    past = select_columns(given, names).reset_index(drop=True)
    open_levels = estimator._open_levels()
    for name in names[1:]:
        column, is_open = estimator.schema_[name], name in open_levels
        require_fit(complete.owner, column, past[name], is_open)
    if sequences.order is not None:
        past = past.sort_values(sequences.order, kind="stable", ignore_index=True)
    numbers, keys = pd.factorize(past[unit])
    n_past = np.bincount(numbers[numbers >= 0], minlength=len(keys))
    if (numbers < 0).any() or n_past.max(initial=0) > most:
        rule = f"must have a key in every row, and {most} rows or fewer of each"
        refuse(complete.owner, "given", rule, given)
    past[unit], past[PLACE] = numbers, 1 + past.groupby(numbers).cumcount()
    left = past.drop_duplicates(unit).set_index(unit)[[*sequences.fixed]].sort_index()
    people: list[pd.DataFrame] = []
    for _ in range(MOST_TRIES):  # until they have as many rows as are given
        if sequences.fixed:
            drawn = complete.continuing(left)
        else:
            drawn = complete.satisfying(len(left), {}).set_axis(left.index)
        drawn = drawn[drawn[NUMBER] >= n_past[drawn.index]]
        people.append(drawn)
        left = left.drop(drawn.index)
        if not len(left):
            break
    whole = pd.concat(people).sort_index()
    whole = whole.drop(index=[*_ended(estimator, past)], errors="ignore")
    past = past[past[unit].isin(whole.index)].reset_index(drop=True)
    past[unit] = past[unit].map(pd.Series(range(len(whole)), whole.index))
    rows = sequences.grown(whole, complete.continuing, past)
    rows = _with_derived(estimator, rows)
    rows[unit] = keys.take(whole.index[rows[unit]])
    return rows


def _ended(estimator: Any, past: pd.DataFrame) -> set[int]:
    """Return the numbers of people who have no row after those given."""
    rules = [c for c in estimator.schema_.constraints if isinstance(c, NoReturnAfter)]
    sequences = estimator._layout.sequences
    more = past.copy(deep=False)
    more[NUMBER] = sequences.most + 1
    return {who for rule in rules for who in past[sequences.unit][~rule.holds(more)]}


def learned_schema(estimator: Any) -> Schema:
    """Return the schema that rows are drawn by: of steps, where rows are linked.

    Of these, derived columns and the constraints on them hold too.
    """
    sequences: Sequences | None = estimator._layout.sequences
    stated: Schema = estimator.schema_
    if sequences is None:
        return stated
    steps = sequences.schema.completed(estimator._transformer.schema.columns)
    made = [stated[each.name] for each in stated.derived]
    ordered = [c for c in steps.constraints if not {*c.columns} <= {*stated.names}]
    return Schema([*steps.columns, *made], [*stated.constraints, *ordered])
