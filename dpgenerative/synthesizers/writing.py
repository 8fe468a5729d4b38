"""Sampled tables in files: one of rows, or one of people beside one of their rows."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pandas as pd
import pyarrow as pa

from dpgenerative._files import AnyPath, atomic_write
from dpgenerative._validation import refuse
from dpgenerative.tables.containers import TableFormat
from dpgenerative.tables.files import suffix_of, write_table


def paths_of(owner: str, path: Any, people: Sequence[Any]) -> list[AnyPath]:
    """Return the files to write: two where `people` came beside their rows.

    Raises
    ------
    ValueError
        For another number of files, or a file of another suffix.
    """
    paths = [*path] if isinstance(path, (tuple, list)) else [path]
    if len(paths) != 1 + bool(people):
        two = "two: people, and their rows, as they were fitted"
        refuse(owner, "path", f"must be {two if people else 'one'}", path)
    if len({os.path.realpath(each) for each in paths}) < len(paths):
        refuse(owner, "path", "must be two files", path)
    for each in paths:
        suffix_of(each)
    return paths


def write(
    owner: str,
    parts: Iterator[pd.DataFrame],
    paths: Sequence[AnyPath],
    layout: TableFormat,
) -> None:
    """Write rows that come in parts; files appear when all of them are complete.

    Raises
    ------
    ValueError
        Where Parquet has no type for a column.
    """
    tables: list[Iterable[pd.DataFrame]] = [parts]
    if layout.people:
        pair = layout.pair_of(pd.concat(parts, ignore_index=True))
        tables = [[each] for each in pair]
    try:
        with ExitStack() as files:
            for path, table in zip(paths, tables, strict=True):
                draft = files.enter_context(atomic_write(path))
                write_table(table, draft, suffix_of(path))
    except pa.ArrowException as error:
        raise ValueError(
            f"{owner}: Parquet has no type for a column, as for objects of several "
            "types, or for intervals: write a .csv file."
        ) from error
