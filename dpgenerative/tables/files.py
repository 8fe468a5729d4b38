"""Tables in CSV and Parquet files, read so that no dtype depends on a value.

A reader that infers dtypes reads the rows: a column becomes text because of one entry,
or a float because one is missing, and that shows in every synthetic table. So the
schema states how the text of a CSV file is read. The dtypes of a Parquet file are read
in the form that can hold missing values, whether there are any or not. What cannot be
read as the schema states counts as missing. Values raise no error.
"""

import bz2
import csv
import gzip
import lzma
import mmap
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dpgenerative._files import AnyPath, encodable, erase_error_details, require_file
from dpgenerative._progress import watched
from dpgenerative.tables import arrow
from dpgenerative.tables.column import Column
from dpgenerative.tables.entries import PLAIN, CsvFormat, typed
from dpgenerative.tables.rows import CHUNK, Rows, of_dataset, parquet
from dpgenerative.tables.schema import OFF_STEP, Misfits, Schema, misfits

BAR_AFTER = 5
"""Seconds after which reading, and drafting, show a progress bar."""
_CSV = (".csv", ".csv.gz", ".csv.bz2", ".csv.xz")
_DAMAGED = (ValueError, EOFError, OSError, lzma.LZMAError, pd.errors.ParserWarning)
"""Errors of reading a file that is no table, or not of the form stated."""
_NUMBERS = (
    "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64",
    "Float32", "Float64",
)  # fmt: skip
_NULLABLE = {
    pa.from_numpy_dtype(np.dtype(name.lower())): pd.api.types.pandas_dtype(name)
    for name in _NUMBERS
} | {pa.bool_(): pd.BooleanDtype()}
_NULLABLE |= dict.fromkeys((pa.string(), pa.large_string()), pd.StringDtype())
"""Dtypes that hold missing values, by a file's types."""


def is_csv(path: AnyPath) -> bool:
    """Whether a path names a CSV file, which may be compressed."""
    return os.fspath(path).lower().endswith(_CSV)


def suffix_of(path: AnyPath, compressed: bool = False) -> str:
    """Return ".csv" or ".parquet", the kinds of files that are read and written.

    With `compressed`, a CSV file that is read may have been compressed.
    """
    if compressed and is_csv(path):
        return ".csv"
    suffix = Path(path).suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise ValueError(f"{path} must end in .csv or .parquet.")
    return suffix


# Reading ------------------------------------------------------------------------------


def stream_table(
    path: AnyPath,
    schema: Schema,
    form: CsvFormat = PLAIN,
    without: Sequence[str] | None = (),
) -> Rows:
    """Read a table in dtypes that depend on the schema and on a file's own types alone.

    Parameters
    ----------
    path : path-like
        A CSV file with one line of names, also compressed, or Parquet files: one, a
        folder or a glob of them.
    schema : Schema
        Must name every column of a CSV file.
    form : CsvFormat, optional
        How a CSV file is written.
    without : sequence of str, optional
        Columns of the file that are left out; None: all that the schema lacks.

    Returns
    -------
    Rows
        By chunks. Numbers as nullable integers or floats, levels as the schema states
        them, open levels as text.

    Raises
    ------
    ValueError
        For a file that is no table, columns that the schema lacks, or columns to leave
        out that the file lacks.
    """
    is_text = not os.path.isdir(path) and suffix_of(path, compressed=True) == ".csv"
    rows = _of_text(path, schema, form) if is_text else _of_parquet(path, schema)
    if without is None:
        return rows.select([name for name in rows.columns if name in schema])
    if absent := [name for name in without if name not in rows.columns]:
        raise ValueError(f"{path} lacks columns that are to be left out: {absent}.")
    names = [name for name in rows.columns if name not in without]
    if is_text:
        _require_named(names, schema)
    return rows.select(names)


def _of_parquet(path: AnyPath, schema: Schema) -> Rows:
    def frame(table: pa.Table) -> pd.DataFrame:
        texts = map(arrow.decode_utf8_lossy, table.columns)
        table = pa.Table.from_arrays(list(texts), schema=table.schema)
        # As objects, dates beyond the year 9999 would raise an error that names it.
        # What pandas notes in a file would make a column of it an index.
        columns = table.to_pandas(
            types_mapper=_dtype_of, date_as_object=False, ignore_metadata=True
        )
        return _in_dtypes(columns, schema, PLAIN)

    return of_dataset(str(path), parquet(path), frame)


def _dtype_of(kind: pa.DataType) -> Any:
    """Return the dtype of a file's type, None for instants and dictionaries.

    As objects, decimals, times of day and lists would pass for text.
    """
    of_arrow = pa.types.is_decimal, pa.types.is_time, pa.types.is_nested
    is_arrows = any(is_kind(kind) for is_kind in of_arrow)
    return pd.ArrowDtype(kind) if is_arrows else _NULLABLE.get(kind)


def _of_text(path: AnyPath, schema: Schema, form: CsvFormat) -> Rows:
    """Return the rows of a CSV file, whose text a temporary file stores."""
    names = _names_in(path, form)
    texts = pa.schema([(name, pa.string()) for name in names])
    n, may_lack = 0, False
    # Every pass reads some columns: parsing all lines anew would take most of the time.
    with tempfile.TemporaryFile() as file:
        with (
            _errors_erased(path, form, names),
            _opened(path, form, names, chunksize=CHUNK) as parts,
            pa.ipc.new_file(file, texts) as written,
        ):
            for part in parts:
                written.write(pa.Table.from_pandas(part, texts, preserve_index=False))
                n += len(part)
                may_lack |= bool(part.iloc[:, -1].isna().any())
            if may_lack:
                _require_whole_lines(path, form, len(names))
        file.flush()
        buffer = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def tables(wanted: Sequence[str]) -> Iterator[pa.Table]:
        read = pa.ipc.open_file(buffer)
        for i in range(read.num_record_batches):
            yield pa.Table.from_batches([read.get_batch(i)]).select(wanted)

    def frame(table: pa.Table) -> pd.DataFrame:
        return _in_dtypes(table.to_pandas(), schema, form)

    return Rows(frame(texts.empty_table()), n, tables, frame)


def _in_dtypes(frame: pd.DataFrame, schema: Schema, form: CsvFormat) -> pd.DataFrame:
    """Return columns in the dtypes that the schema asks for."""
    facts = {column.name: column for column in schema.columns}
    parts = (typed(series, facts.get(name), form) for name, series in frame.items())
    return pd.DataFrame(dict(enumerate(parts))).set_axis(frame.columns, axis=1)


def read_as_written(path: AnyPath, schema: Schema, form: CsvFormat) -> pd.DataFrame:
    """Read rows by a fitted schema; keep levels that it lacks as they are written.

    They are what the fit did not release, or the schema did not state: as missing ones
    they would seem to have been missing all along.

    Raises
    ------
    ValueError
        For columns that were fitted and that the file lacks.
    """
    without_other = Schema(replace(column, other=None) for column in schema.columns)
    rows = stream_table(path, without_other, form, without=None)
    if absent := [name for name in schema.names if name not in rows.columns]:
        raise ValueError(f"{path} lacks columns that were fitted: {absent}.")
    frame = rows.whole()
    levelled = [column.name for column in schema.columns if column.levels is not None]
    if not levelled:
        return frame[list(schema.names)]
    as_text = Schema(Column(name, "categorical") for name in levelled)
    written = stream_table(path, as_text, form, without=None).whole()
    for name in levelled:
        unread = frame[name].isna() & written[name].notna()
        if unread.any():
            frame[name] = frame[name].astype(object).where(~unread, written[name])
    return frame[list(schema.names)]


def misfits_of(
    path: AnyPath,
    schema: Schema,
    form: CsvFormat = PLAIN,
    without: Sequence[str] = (),
    is_part: bool = False,
) -> tuple[list[Misfits], int]:
    """Return the problems that a schema has with a file, and the number of its rows.

    Unlike `Schema.check` of the rows that are read, it knows entries that count as
    missing because they cannot be read. Rounding is no problem. A file that is one of
    two (`is_part`) may lack columns.
    """
    frame = stream_table(path, schema, form, without).whole()
    if is_part:
        schema = schema.without({*schema.names} - {*frame.columns})
    as_text = Schema(Column(name, "categorical") for name in frame.columns)
    written = stream_table(path, as_text, form, without).whole()
    problems = []
    for column in schema.columns:
        if column.is_key or column.name not in frame:
            continue
        texts = written[column.name]
        unread = texts[frame[column.name].isna() & texts.notna()]
        if len(unread):
            is_level = column.levels is not None and column.kind != "boolean"
            unfit = "not among the levels" if is_level else f"no {column.kind}"
            problems.append((column.name, f"{unfit}, so missing", unread))
    problems += [each for each in misfits(schema, frame) if each[1] != OFF_STEP]
    return problems, len(frame)


def read_text(
    path: AnyPath, form: CsvFormat = PLAIN, verbose: bool = False
) -> pd.DataFrame:
    """Read a CSV file as text, with empty entries missing."""
    names = _names_in(path, form)
    with (
        _errors_erased(path, form, names),
        _opened(path, form, names, chunksize=CHUNK) as parts,
    ):
        read = watched(parts, "parts read", verbose, delay=BAR_AFTER)
        frame = pd.concat(read, ignore_index=True)
        _require_whole_lines(path, form, len(names))
        return frame


def _require_whole_lines(path: AnyPath, form: CsvFormat, n: int) -> None:
    """Refuse lines of fewer than n entries, which pandas fills with missing ones.

    They are damage: a line that a break cuts in two would be two rows of one person.
    """
    opened = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    opener: Any = opened.get(Path(path).suffix.lower(), open)
    with (
        opener(path, "rt", encoding=form.encoding, newline="") as file,
        suppress(csv.Error),  # entries longer than the module reads
    ):
        for line in csv.reader(file, delimiter=form.sep):
            is_blank = len(line) < 2 and not "".join(line).strip()
            if len(line) < n and not is_blank:
                raise ValueError


def _names_in(path: AnyPath, form: CsvFormat) -> list[str]:
    """Return the names in the first line of a CSV file."""
    names: list[str] = []
    require_file(path)
    with _errors_erased(path, form), suppress(pd.errors.EmptyDataError):
        names = _opened(path, form).to_numpy().ravel().tolist()
    repeated = sorted({name for name in names if names.count(name) > 1})
    if names in ([], [""]) or repeated:
        what = f"names columns twice: {repeated}" if repeated else "is empty"
        raise ValueError(f"{path} {what}; its first line must hold distinct names.")
    return names


def _opened(
    path: AnyPath, form: CsvFormat, names: list[str] | None = None, **options: Any
) -> Any:
    """Return the entries of a CSV file as text, or only those of its first line."""
    first: Any = {"header": None, "nrows": 1, "skip_blank_lines": False}
    below: Any = {"header": 0, "names": names, "na_values": ["", *form.na]}
    return pd.read_csv(
        path, dtype=object, keep_default_na=False, index_col=False, sep=form.sep,
        encoding=form.encoding, **(below if names else first), **options,
    )  # fmt: skip


@contextmanager
def _errors_erased(
    path: AnyPath, form: CsvFormat, names: list[str] | None = None
) -> Iterator[None]:
    """Replace errors by one that quotes nothing of the file: it is no table."""
    try:
        with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
            yield
    except _DAMAGED as error:
        if getattr(error, "errno", None) is not None:
            raise  # by the file system: what damaged files raise has no number
        erase_error_details(error)
        encoding = "UTF-8" if form.encoding == PLAIN.encoding else form.encoding
        why = ": every line must have as many entries as the first, which names "
        raise ValueError(
            f"{path} is not a CSV table in {encoding}"
            f"{f'{why}{len(names)} columns' if names else ''}. (--sep and --encoding "
            "say how a file is written.)"
        ) from None


def asked_of_one(names: Sequence[str]) -> str | None:
    """Return the question about a single column that may be several."""
    if len(names) != 1 or not any(mark in names[0] for mark in ",;\t|"):
        return None
    return (
        f"The file has a single column, {names[0]!r}. Where the separator is another "
        "one, --sep states it."
    )


def _require_named(names: Sequence[str], schema: Schema) -> None:
    if unnamed := [name for name in names if name not in schema]:
        if asked := asked_of_one(names):
            raise ValueError(asked)
        raise ValueError(
            f"The schema lacks the columns {unnamed}. A CSV file has no dtypes, and "
            "inferring kinds from the values would reveal some of them. Add an "
            'entry such as {"name": ..., "kind": "categorical"} for each, or remove it '
            "from the file. The command `dpgenerative schema` drafts all entries."
        )


# Writing ------------------------------------------------------------------------------


def write_table(parts: Iterable[pd.DataFrame], path: AnyPath, suffix: str) -> None:
    """Write frames of the same columns one after the other, holding one at a time.

    Lone surrogates in texts, which UTF-8 cannot hold, become question marks.

    Parameters
    ----------
    parts : iterable of DataFrame
        At least one.
    path : path-like
        The file to write.
    suffix : {".csv", ".parquet"}
    """
    if suffix == ".csv":
        for i, part in enumerate(parts):
            mode = "a" if i else "w"
            part.to_csv(path, index=False, header=i == 0, mode=mode, errors="replace")
        return
    named = map(_encodable, parts)
    first = next(named)
    schema = _arrow_schema(first)
    with pq.ParquetWriter(path, schema) as writer:
        for part in chain([first], named):
            writer.write_table(pa.Table.from_pandas(part, schema, preserve_index=False))


def _encodable(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows with names and texts that UTF-8 can hold."""
    frame = frame.set_axis([encodable(name) for name in frame.columns], axis=1)
    for j, dtype in enumerate(frame.dtypes):
        column = frame.iloc[:, j]
        levels = getattr(dtype, "categories", None)
        with suppress(pa.ArrowException):
            try:
                pa.array(column if levels is None else levels)
            except UnicodeEncodeError:
                if levels is not None:
                    dtype = pd.CategoricalDtype(dict.fromkeys(map(_plain, levels)))
                texts = column.astype(object).map(_plain, na_action="ignore")
                frame.isetitem(j, texts.astype(dtype))
    return frame


def _plain(value: Any) -> Any:
    return encodable(value) if isinstance(value, str) else value


def _arrow_schema(frame: pd.DataFrame) -> pa.Schema:
    """Return the types of a frame; a column without any value yet is one of text."""
    schema = pa.Schema.from_pandas(frame, preserve_index=False)
    for i, field in enumerate(schema):
        if pa.types.is_null(field.type):
            schema = schema.set(i, field.with_type(pa.string()))
    return schema
