"""Public rows, and the bounds and levels that they give the private rows.

No error here depends on a value of the private rows, of which names and dtypes alone
are read.
"""

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative.encoding.grid import in_units
from dpgenerative.encoding.values import as_numbers, distinct_values
from dpgenerative.tables.column import Column
from dpgenerative.tables.containers import TableFormat, as_table, select_columns
from dpgenerative.tables.rows import Rows, streamed
from dpgenerative.tables.schema import Schema


def public_table(
    owner: str, public: Any, frame: pd.DataFrame, layout: TableFormat
) -> pd.DataFrame:
    """Return public rows in the columns and dtypes of the private ones.

    Parameters
    ----------
    owner : str
        Whose errors these are.
    public : DataFrame or ndarray, or (X, y)
        A pair where the private rows came with a y.
    frame : DataFrame
        The private rows; only names and dtypes are read.
    layout : TableFormat
        How the private rows came.

    Raises
    ------
    ValueError
        Where containers, names or dtypes are not those of the private rows.
    """
    pair = public if isinstance(public, tuple) else (public, None)
    if len(pair) != 2 or (pair[1] is None) != (layout.y_name is None):
        wanted = "one table" if layout.y_name is None else "a pair (X, y)"
        raise ValueError(f"{owner}: public must be {wanted}, as the private rows are.")
    rows = streamed(f"{owner} (public)", pair[0])
    table, own = as_table(f"{owner} (public)", rows, pair[1])
    table = table.whole() if isinstance(table, Rows) else table
    kinds = (own.x_kind, own.y_kind), (layout.x_kind, layout.y_kind)
    if kinds[0] != kinds[1]:
        raise ValueError(
            f"{owner}: public must come as the private rows do, as "
            f"{' and '.join(filter(None, kinds[1]))}; got "
            f"{' and '.join(filter(None, kinds[0]))}."
        )
    if own.y_name is not None:
        table = table.rename(columns={own.y_name: layout.y_name})
    if set(table.columns) != set(frame.columns):
        unlike = sorted(map(repr, set(table.columns) ^ set(frame.columns)))
        raise ValueError(
            f"{owner}: public must have the columns of the private rows; only one of "
            f"them has {', '.join(unlike)}."
        )
    table = select_columns(table, list(frame.columns))
    for name, given, dtype in zip(table, table.dtypes, frame.dtypes, strict=True):
        # A schema may know levels that neither has.
        both = all(isinstance(each, pd.CategoricalDtype) for each in (given, dtype))
        if given != dtype and not both:
            raise ValueError(
                f"{owner}: public must have the dtypes of the private rows; column "
                f"{name!r} has {given}, and {dtype} there."
            )
    return table.set_axis(frame.columns, axis=1)


def domain_of(schema: Schema, public: pd.DataFrame) -> Schema:
    """Return a schema whose open bounds and levels are those of public rows.

    Parameters
    ----------
    schema : Schema
    public : DataFrame
        Some of the schema's columns. One that holds no usable value stays open.
    """
    columns = (_completed(schema[name], public[name]) for name in public.columns)
    return schema.completed(columns)


def _completed(column: Column, series: pd.Series) -> Column:
    if column.numeric and column.lower is None:
        values = as_numbers(column, series)
        values = values[np.isfinite(values)]
        if len(values):
            lower, upper = values.min(), values.max()
            if step := column.step:
                lower = in_units(column, np.floor(lower / step + 1e-6))
                upper = in_units(column, np.ceil(upper / step - 1e-6))
            return column.bounded(float(lower), float(upper))
    if not column.numeric and column.levels is None:
        levels: tuple[Hashable, ...] = distinct_values(series)
        if levels:
            return replace(column, levels=levels)  # and `other`, where it has one
    return column
