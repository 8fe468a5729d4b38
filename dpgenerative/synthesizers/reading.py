"""What a fit of tables reads: files, containers, and people beside their rows.

Formal guarantee: `sequences.merged` makes one table of two, person by person, and
`sequences.one_row_each` reads one row of a person. No error here depends on a value.
"""

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from dpgenerative._validation import refuse
from dpgenerative.privacy.ranks import ProcessGroup
from dpgenerative.tables.arrow import is_path
from dpgenerative.tables.containers import TableFormat, as_table, select_columns
from dpgenerative.tables.dtypes import CERTAIN
from dpgenerative.tables.files import is_csv, stream_table
from dpgenerative.tables.private import Private
from dpgenerative.tables.rows import Rows, in_memory, require_order, streamed
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.sequences import merged, one_row_each


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
