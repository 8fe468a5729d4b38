"""What a fit of tables reads: files, containers, and people beside their rows.

Formal guarantee: rows become `Private` here, and no check reads a value.
`sequences.merged` makes one table of two, person by person; `Sequences.steps` and
`sequences.one_row_each` map each person's rows to one row. So the fit that follows,
which is (epsilon, delta)-DP for adding or removing one row of that, is so for a person
with all of their rows.
"""

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from dpgenerative._validation import refuse
from dpgenerative.fitting.domain import TableDomain
from dpgenerative.fitting.public import domain_of, public_table
from dpgenerative.privacy.ranks import ProcessGroup
from dpgenerative.synthesizers import linked
from dpgenerative.synthesizers.session import Data
from dpgenerative.tables.arrow import is_path
from dpgenerative.tables.containers import TableFormat, as_table, select_columns
from dpgenerative.tables.dtypes import CERTAIN
from dpgenerative.tables.files import is_csv, stream_table
from dpgenerative.tables.private import Private
from dpgenerative.tables.rows import Rows, in_memory, require_order, streamed
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.sequences import merged, one_row_each


def read(estimator: Any, X: Any, y: Any, public: Any, allow_empty: bool) -> Data:
    """Return what a fit reads of X and y, and what is public of it.

    Parameters
    ----------
    estimator : synthesizer of tables
    X : table, or tuple of two tables
    y : target, optional
    public : table, optional
    allow_empty : bool
        Whether a table may be without rows.

    Raises
    ------
    TypeError, ValueError
        For what cannot be fitted, no rows, or X and y of different lengths.
    """
    owner, stated, recipe = estimator._owner, estimator._stated(), estimator._recipe
    check_precision(owner, stated)
    frame, layout = table_of(owner, X, y, stated, allow_empty)
    if isinstance(frame, Rows) and not frame.is_ordered and not recipe.reads_once:
        raise TypeError(
            f"{owner}: with these parameters rows are read twice, and a "
            "query may return them in another order. Write it to Parquet files."
        )
    schema = stated.resolve(frame, estimator._nominal(layout))
    if layout.people:
        schema = about_people(schema, layout.people).resolve(frame)
    if schema.unit is not None:
        if public is not None:
            raise ValueError(f"{owner}: linked rows take no public ones yet.")
        return steps_of(estimator, frame, layout, schema)
    names = list(schema.modelled.names)
    if not names:
        raise ValueError(f"{owner} needs a column that is no identifier.")
    recipe.check_schema(owner, schema.modelled)
    if layout.y_name in {each.name for each in schema.derived}:
        rule = "must not be derived: give the column in X"
        refuse(owner, "y", rule, layout.y_name)
    others = [name for name in schema.names if name not in names]
    layout = replace(layout, ids=tuple((n, frame.dtypes[n]) for n in others))
    if public is not None:
        public = public_table(owner, readable(owner, public, stated), frame, layout)
        public = select_columns(public, names)
        schema = domain_of(schema, public)
    rows = private_rows(estimator, frame, schema, names)
    dtypes = tuple(select_columns(frame, names).dtypes)
    domain = estimator._domain(schema)
    domain = replace(domain, has_public=public is not None, dtypes=dtypes)
    return Data(rows, layout, schema, domain, public)


def steps_of(
    estimator: Any, frame: pd.DataFrame | Rows, layout: TableFormat, schema: Schema
) -> Data:
    """Return what a fit of linked rows reads: one step of every person.

    Raises
    ------
    ValueError
        Where rows cannot be linked: public facts alone decide.
    """
    require_one_order(frame)
    domain = linked.domain_of(estimator, schema)
    sequences = domain.sequences
    assert sequences is not None
    made = {*schema.names} - {*schema.modelled.names, sequences.unit}
    ids = tuple((name, frame.dtypes[name]) for name in schema.names if name in made)
    dtype = frame.dtypes[sequences.unit]
    layout = replace(layout, ids=ids, sequences=sequences, unit_dtype=dtype)
    names = [sequences.unit, *sequences.fixed, *sequences.varying]
    rows = select_columns(frame, names)
    dtypes = tuple(sequences.steps(TableDomain.blank(rows)).dtypes)
    steps = Private(rows).map(sequences.steps)
    return Data(steps, layout, schema, replace(domain, dtypes=dtypes))


def readable(owner: str, data: Any, stated: Schema) -> Any:
    """Return a table; files and what else is read by chunks as `Rows`."""
    if is_path(type(data)) and is_csv(data):
        data = stream_table(data, stated)
    return streamed(owner, data)


def check_precision(owner: str, stated: Schema) -> None:
    """Raise ValueError for bounds whose whole numbers are one float or few.

    Less an offset, they would. Wider bounds are read as coarsely as floats are.
    """
    for column in stated.columns:
        if column.kind != "integer" or column.lower is None:
            continue
        most, width = max(-column.lower, column.upper), column.upper - column.lower
        if width < CERTAIN < most:
            raise ValueError(
                f"{owner}: as floats, the whole numbers from {column.lower:,} to "
                f"{column.upper:,} of {column.name!r} are not different. Subtract an "
                "offset, or state them as categorical if they are codes."
            )


def table_of(
    owner: str, X: Any, y: Any, stated: Schema, allow_empty: bool
) -> tuple[pd.DataFrame | Rows, TableFormat]:
    """Return X and y as one table, and its layout.

    Parameters
    ----------
    owner : str
        Whose errors these are.
    X : table, or tuple of two tables
        A pair are people, and their rows.
    y : target, optional
    stated : Schema
    allow_empty : bool
        Whether a table may be without rows.

    Raises
    ------
    TypeError, ValueError
        For what is no table, or no pair of people and their rows.
    """
    if not (isinstance(X, tuple) and stated.unit is not None):
        table = readable(owner, X, stated)
        return as_table(owner, table, y, allow_empty=allow_empty)
    if y is not None or len(X) != 2:
        raise ValueError(f"{owner}: give two tables, people and their rows, without y.")
    pair = [readable(owner, each, stated) for each in X]
    read = [as_table(owner, each, allow_empty=True) for each in pair]
    for frame, _ in read:
        require_one_order(frame)
    (people, own), (rows, layout) = ((in_memory(frame), form) for frame, form in read)
    unit = stated.unit
    both = [set(form.x_names) for form in (own, layout)]
    if both[0] & both[1] != {unit} or people.dtypes[unit] != rows.dtypes[unit]:
        raise ValueError(
            f"{owner}: people and their rows must have the column {unit!r} in common, "
            "of one dtype, and no other."
        )
    frame = merged(people, rows, unit)
    written = tuple(dict.fromkeys((*own.written, *layout.written)))
    names = tuple(frame.columns)
    return frame, replace(layout, x_names=names, written=written, people=own.x_names)


def private_rows(
    estimator: Any, frame: pd.DataFrame | Rows, schema: Schema, names: list[Hashable]
) -> Private[Any]:
    """Return what is fitted of a table: all rows, or one of every person.

    Raises
    ------
    ValueError
        For several keys of persons, or several rows of each.
    """
    if schema.owner is None:
        return Private(select_columns(frame, names))
    require_one_order(frame)
    most, owners = estimator.max_rows_per_unit, [c for c in schema if c.role == "owner"]
    if len(owners) > 1 or most != 1:
        rule = "must be 1, and one column of role owner: one row of each is read"
        refuse(estimator._owner, "max_rows_per_unit", rule, most)
    rows = Private(select_columns(frame, [schema.owner, *names]))
    return rows.map(partial(one_row_each, owner=schema.owner))


def require_one_order(frame: pd.DataFrame | Rows) -> None:
    """Require that several processes read the rows of a person in one order.

    Which row of a person is read follows from it, and which process has the person.
    """
    if ProcessGroup.present().size > 1:
        require_order(frame)


def about_people(schema: Schema, names: tuple[Hashable, ...]) -> Schema:
    """Return a schema in which a person has one value of some columns.

    Raises
    ------
    ValueError
        Where one of them orders a person's rows.
    """
    if orders := [c.name for c in schema if c.name in names and c.role == "order"]:
        raise ValueError(f"{orders} order a person's rows: not a column of people.")
    columns = [
        replace(c, per_unit=True) if c.name in names and c.role is None else c
        for c in schema
    ]
    return Schema(columns, schema.constraints, schema.joint)
