"""Rows that come in chunks, for tables that no memory has to hold.

A table in memory is the case of one chunk. Otherwise a *pass* reads a file, an Arrow
dataset or a query anew, by batches and of the columns asked for alone. The row groups
of files, their statistics and the borders of chunks decide nothing but how many rows
are read at a time: what is counted over chunks is summed, in whole numbers.

Formal guarantee: none of its own; all of it is private. No error names a value: what a
file or a query reports of a failure is left out, and types are compared before any row
is read.
"""

import glob
import os
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, Generic

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow.parquet import read_schema as parquet_schema

from dpgenerative._files import erase_error_details
from dpgenerative.tables import arrow
from dpgenerative.tables.arrow import Written
from dpgenerative.tables.private import Private, S, T, opened

CHUNK = 2**17
"""Approximate number of rows that are read at a time."""


@contextmanager
def _unquoted() -> Iterator[None]:
    """Replace errors by one that quotes nothing of the rows."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        erase_error_details(error)
        raise ValueError(
            f"The rows cannot be read: {type(error).__name__}. Its message may hold "
            "values, and is left out."
        ) from None


@dataclass(eq=False)
class Rows:
    """Private rows that are read again in every pass.

    Attributes
    ----------
    head : DataFrame
        Their columns and dtypes; no row.
    n : int
        Their number, private.
    tables : callable
        From names of columns to Arrow tables of them, in order.
    frame : callable
        From such a table to a frame, of dtypes that follow from types alone.
    container : str
        Container in which samples come back.
    written : tuple of (name, str)
        Types of text that pandas has another dtype for.
    codes : (object, ndarray), optional
        What encoded the rows last, and their cells.
    is_ordered : bool
        Whether every pass has the rows in one order.
    deal : callable, optional
        From the number of a process and that of all to rows that the others need not
        read, and how many of them come before those that all read.
    """

    head: pd.DataFrame
    n: int
    tables: Callable[[Sequence[str]], Iterable[pa.Table]]
    frame: Callable[[pa.Table], pd.DataFrame]
    container: str = "frame"
    written: Written = ()
    codes: tuple[Any, np.ndarray] | None = None
    is_ordered: bool = True
    deal: Callable[[int, int], tuple["Rows", int]] | None = None

    def __len__(self) -> int:
        return self.n

    @property
    def columns(self) -> pd.Index:
        """Names of the columns."""
        return self.head.columns

    @property
    def dtypes(self) -> pd.Series:
        """Dtypes by column."""
        return self.head.dtypes

    def select(self, names: Sequence[Hashable]) -> "Rows":
        """Return some of the columns."""
        return replace(self, head=self.head[list(names)])

    def dealt(self, rank: int, size: int) -> tuple["Rows", int]:
        """Return the rows that one process reads, and how many are its alone."""
        rows, n_own = self.deal(rank, size) if self.deal else (self, 0)
        return replace(self, n=rows.n, tables=rows.tables, deal=None), n_own

    def __getitem__(self, mask: np.ndarray) -> "pd.DataFrame | Rows":
        """Return the rows that a mask of all of them selects.

        Raises
        ------
        TypeError
            For a query, which may give its rows in another order each time.
        """
        require_order(self)

        def tables(names: Sequence[str]) -> Iterator[pa.Table]:
            start = 0
            for table in self.tables(names):
                yield table.filter(pa.array(mask[start : start + len(table)]))
                start += len(table)

        n = int(mask.sum())
        return replace(self, n=n, tables=tables, deal=None) if n else self.head

    def whole(self) -> pd.DataFrame:
        """Return all rows in memory."""
        return pd.concat([self.head, *self.parts()], ignore_index=True)

    def parts(self, names: Sequence[Hashable] | None = None) -> Iterator[pd.DataFrame]:
        """Yield all rows, or some of their columns, by chunks.

        Raises
        ------
        ValueError
            If they cannot be read, or are not as many as they were.
        """
        wanted = [str(name) for name in (self.columns if names is None else names)]
        n_read = 0
        with _unquoted():
            frames = map(self.frame, self.tables(wanted))
        while True:
            with _unquoted():
                part = next(frames, None)
            n_read += 0 if part is None else len(part)
            if n_read > self.n or (part is None and n_read < self.n):
                raise ValueError("The number of rows has changed since the first pass.")
            if part is None:
                return
            if not part.dtypes.equals(self.dtypes[wanted]):
                raise ValueError("The types of columns have changed on the way.")
            yield part


def require_order(rows: Any) -> None:
    """Require rows that every pass has in one order."""
    if isinstance(rows, Rows) and not rows.is_ordered:
        raise TypeError(
            "Queries have no order of rows by which several processes could share "
            "them. Write the rows to Parquet files first."
        )


def added(parts: Iterable[Any]) -> Any:
    """Return the sum of arrays, in their order."""
    return reduce(np.add, parts)


@dataclass(frozen=True, eq=False)
class Chunks(Generic[T]):
    """Private values made of rows, chunk by chunk, as often as they are summed.

    Attributes
    ----------
    read : Private of callable
        Begins a pass.
    in_memory : bool
    """

    read: Private[Callable[[], Iterable[T]]]
    in_memory: bool = False

    def map(self, function: Callable[[T], S]) -> "Chunks[S]":
        """Return what a function makes of every chunk."""

        def change(read: Callable[[], Iterable[T]]) -> Callable[[], Iterable[S]]:
            if not self.in_memory:
                return lambda: map(function, read())
            values = list(map(function, read()))
            return lambda: values

        return Chunks(self.read.map(change), self.in_memory)

    def total(
        self, count: Callable[[T], S], add: Callable[[Iterable[S]], Any] = added
    ) -> Private[Any]:
        """Return the sum of counts over all chunks: one pass."""
        return self.read.map(lambda read: add(map(count, read())))


def parts(
    rows: pd.DataFrame | Rows, names: Sequence[Hashable] | None = None
) -> Iterable[pd.DataFrame]:
    """Return rows, or some columns of them, by chunks: one where they are in memory."""
    return rows.parts(names) if isinstance(rows, Rows) else [rows]


def in_memory(rows: pd.DataFrame | Rows) -> pd.DataFrame:
    """Return rows as one table in memory."""
    return rows.whole() if isinstance(rows, Rows) else rows


def chunks(
    rows: Private[pd.DataFrame | Rows], names: Sequence[Hashable] | None = None
) -> Chunks[pd.DataFrame]:
    """Return private rows, or some columns of them, by chunks."""
    table = opened(rows)
    in_memory = not isinstance(table, Rows)
    return Chunks(Private(lambda: parts(table, names)), in_memory)


def room_for(rows: Any, n_columns: int, dtype: Any) -> np.ndarray:
    """Return an array of one line per row, on disk where rows are not in memory.

    It is the file of no name: its owner's alone, and gone with the process, however
    that ends. (Windows deletes it when it is closed.)

    Raises
    ------
    OSError
        If the folder of temporary files has too little space.
    """
    shape = (len(rows), n_columns)
    if not isinstance(rows, Rows):
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:
        if hasattr(os, "posix_fallocate"):  # else a full disk would end the process
            size = shape[0] * shape[1] * np.dtype(dtype).itemsize
            os.posix_fallocate(file.fileno(), 0, size)
        return np.memmap(file, dtype, "w+", shape=shape)


# Sources ------------------------------------------------------------------------------


def streamed(owner: str, data: Any) -> Any:
    """Return as `Rows` what `fit` reads by chunks, and what is in memory as it is.

    Parameters
    ----------
    owner : str
        Whose errors these are.
    data : object
        A path or glob of Parquet files or a folder of them, a dataset of pyarrow, a
        LazyFrame of polars or a relation of DuckDB.
    """
    kind = type(data)
    if arrow.is_path(kind):
        return _of_dataset(owner, parquet(data), "frame")
    if arrow.is_dataset(kind):
        return _of_dataset(owner, data, arrow.container_of(data, "frame"))
    if arrow.is_query(kind):
        return _of_query(data)
    if kind.__name__ == "DuckDBPyRelation":
        return _of_relation(data)
    return data


def parquet(path: str | os.PathLike[str]) -> Any:
    """Return the dataset of one Parquet file, or all of a folder or a glob, by name."""
    from pyarrow import dataset

    text = os.fspath(path)
    if os.path.isdir(text):
        inside = (file.relative_to(text) for file in Path(text).rglob("*.parquet"))
        # Those of hidden names others may still be writing.
        paths = [
            os.path.join(text, file)
            for file in inside
            if not any(part.startswith((".", "_")) for part in file.parts)
        ]
    else:
        paths = [text] if os.path.exists(text) else glob.glob(text, recursive=True)
    files = sorted(file for file in paths if os.path.isfile(file))
    if not files:
        why = "matches no file" if set(text) & set("*?[") else "does not exist"
        why = "holds no .parquet file" if os.path.isdir(text) else why
        raise FileNotFoundError(f"{text} {why}.")
    try:
        return dataset.dataset(files, format="parquet", partitioning=None)
    except pa.ArrowInvalid:
        with suppress(pa.ArrowInvalid):  # which also refuses repeated names
            arrow.require_distinct(text, parquet_schema(files[0]).names)
        raise ValueError(f"{text} is not a Parquet file, or is damaged.") from None


def of_dataset(
    owner: str, dataset: Any, frame: Callable[[pa.Table], pd.DataFrame]
) -> Rows:
    """Return the rows of a dataset of pyarrow, in frames that a function makes."""
    names = arrow.names_without_labels(dataset.schema)
    arrow.require_distinct(owner, names)
    fragments = _fragments(owner, dataset)

    def deal(rank: int, size: int) -> tuple[Rows, int]:
        # In turn; of the last ones, which may be short, all take some rows.
        with _unquoted():
            groups = [g for file in fragments for g in file.split_by_row_group()]
        n_dealt = (len(groups) - 1) // size * size
        own, left = groups[rank:n_dealt:size], groups[n_dealt:]
        facts = dataset.schema, dataset.format, dataset.filesystem
        rows = _scanned(type(dataset)([*own, *left], *facts), frame)
        return rows, sum(group.num_rows for part in own for group in part.row_groups)

    rows = replace(_scanned(dataset, frame), deal=deal if fragments else None)
    return rows.select(names)


def _scanned(dataset: Any, frame: Callable[[pa.Table], pd.DataFrame]) -> Rows:
    def tables(names: Sequence[str]) -> Iterator[pa.Table]:
        schema = _chosen(dataset.schema, names)
        small: list[pa.RecordBatch] = []
        for batch in dataset.to_batches(
            columns=names, batch_size=CHUNK, batch_readahead=1, fragment_readahead=1
        ):
            small.append(batch)  # as small row groups make them
            if sum(map(len, small)) >= CHUNK:
                yield pa.Table.from_batches(small, schema)
                small = []
        yield pa.Table.from_batches(small, schema)

    with _unquoted():  # count_rows takes a row group for its whole file
        n = sum(len(batch) for batch in dataset.to_batches(columns=[]))
    return Rows(frame(dataset.schema.empty_table()), n, tables, frame)


def _of_dataset(owner: str, dataset: Any, container: str) -> Rows:
    rows = of_dataset(owner, dataset, arrow.as_frame)
    written = arrow.written(_chosen(dataset.schema, rows.columns))
    return replace(rows, container=container, written=written)


def _chosen(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in names], schema.metadata)


def _of_query(query: Any) -> Rows:
    """Return the rows of a LazyFrame."""
    import polars as pl

    with _unquoted():
        schema = pa.table(query.head(0).collect()).schema
        levels = arrow.enums(query.collect_schema())
        n = query.select(pl.len()).collect().item()

    def tables(names: Sequence[str]) -> Iterator[pa.Table]:
        chosen = query.select(names)
        if hasattr(chosen, "collect_batches"):
            return map(pa.table, chosen.collect_batches(chunk_size=CHUNK))
        starts = range(0, n, CHUNK)
        return (pa.table(chosen.slice(start, CHUNK).collect()) for start in starts)

    frame = partial(arrow.as_frame, levels=levels)
    head, written = frame(schema.empty_table()), arrow.written(schema)
    return Rows(head, n, tables, frame, "polars frame", written, is_ordered=False)


def _of_relation(relation: Any) -> Rows:
    """Return the rows of a relation of DuckDB."""
    from duckdb import ColumnExpression

    def tables(names: Sequence[str]) -> Iterator[pa.Table]:
        chosen = relation.select(*map(ColumnExpression, names))
        is_new = hasattr(type(chosen), "to_arrow_reader")
        reader = chosen.to_arrow_reader if is_new else chosen.fetch_arrow_reader
        return map(pa.Table.from_batches, ([batch] for batch in reader(CHUNK)))

    with _unquoted():
        schema = pa.table(relation.limit(0)).schema
        n = relation.aggregate("count(*)").fetchall()[0][0]
    head, written = arrow.as_frame(schema.empty_table()), arrow.written(schema)
    return Rows(head, n, tables, arrow.as_frame, written=written, is_ordered=False)


def _fragments(owner: str, dataset: Any) -> list[Any]:
    """Return a dataset's Parquet files with their row groups; none of another dataset.

    All files must have the columns and types of the first: values that do not fit its
    types would fail on the way.
    """
    try:
        fragments = list(dataset.get_fragments())
    except ValueError:  # filtered
        return []
    for fragment in fragments:
        with _unquoted():
            own, wanted = (
                _chosen(schema, arrow.names_without_labels(schema))
                for schema in (fragment.physical_schema, dataset.schema)
            )
        if not own.equals(wanted):
            unlike = sorted({f.name for f in {*own} ^ {*wanted}})
            raise ValueError(
                f"{owner}: all files must have the same columns and types, in the same "
                f"order; {unlike or 'the order'} differs."
            )
    is_cut = all(hasattr(fragment, "split_by_row_group") for fragment in fragments)
    # A union of datasets has no format.
    return fragments if is_cut and hasattr(dataset, "format") else []
