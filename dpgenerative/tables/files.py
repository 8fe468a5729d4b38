"""Tables in CSV and Parquet files, read so that no dtype depends on a value.

A reader that infers dtypes looks at the rows: a column becomes text because of one
entry, or a float because one is missing, and that shows in every synthetic table. So
the schema says how the text of a CSV file is to be read, and the dtypes of a Parquet
file are taken in the form that can hold missing values, whether there are any or not.
What cannot be read as the schema says counts as missing. Values raise no error.
"""

from __future__ import annotations

import bz2
import csv
import datetime as dt
import gzip
import lzma
import math
import os
import warnings
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dpgenerative.tables.column import Column
from dpgenerative.tables.dtypes import decimal_scale, is_real_dtype
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.times import temporal_kind

TRUE = frozenset({"true", "t", "yes", "y", "1"})
FALSE = frozenset({"false", "f", "no", "n", "0"})
_NULLABLE = {
    pa.bool_(): pd.BooleanDtype(),
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
    pa.float32(): pd.Float32Dtype(),
    pa.float64(): pd.Float64Dtype(),
    pa.string(): pd.StringDtype(),
    pa.large_string(): pd.StringDtype(),
}
"""Dtypes that hold missing values, by a file's types."""
CERTAIN = 2.0**53
"""Up to here every integer is a float64."""


_OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
}
"""What opens a compressed CSV file, by the end of its name."""


@dataclass(frozen=True)
class CsvFormat:
    """How a CSV file is written.

    Attributes
    ----------
    sep : str, default=","
    encoding : str, default="utf-8-sig"
        UTF-8, with a byte order mark or without.
    decimal : str, default="."
        Where it is a comma, points are taken for thousands.
    na : tuple of str
        Entries that count as missing, besides empty ones.
    date_format : str, optional
        As of `datetime.strptime`, for all instants. None: ISO 8601.
    """

    sep: str = ","
    encoding: str = "utf-8-sig"
    decimal: str = "."
    na: tuple[str, ...] = ()
    date_format: str | None = None

    def __post_init__(self) -> None:
        form, some_day = self.date_format, dt.datetime(2001, 12, 31, tzinfo=dt.UTC)
        if form is not None and not (
            "%" in form and _instant_of(some_day.strftime(form), form)
        ):
            raise ValueError(
                f"The format of dates must be one of datetime.strptime; got {form!r}."
            )


PLAIN = CsvFormat()


def suffix_of(path: str | os.PathLike[str], compressed: bool = False) -> str:
    """Return ".csv" or ".parquet", the kinds of files that are read and written.

    With `compressed`, a CSV file that is read may have been compressed.
    """
    suffix = Path(path).suffix.lower()
    if compressed and suffix in _OPENERS and Path(path).stem.lower().endswith(".csv"):
        return ".csv"
    if suffix not in (".csv", ".parquet"):
        raise ValueError(f"{path} must end in .csv or .parquet.")
    return suffix


def read_table(
    path: str | os.PathLike[str],
    schema: Schema,
    others: bool = True,
    form: CsvFormat = PLAIN,
) -> pd.DataFrame:
    """Read a table in dtypes that depend on the schema and on a file's own types alone.

    Parameters
    ----------
    path : path-like
        A CSV file with one line of names, also compressed, or a Parquet file.
    schema : Schema
        Must name every column of a CSV file.
    others : bool, default=True
        Whether columns that the schema does not name are read, or refused in a CSV
        file; False leaves them out.
    form : CsvFormat, optional
        How a CSV file is written.

    Returns
    -------
    DataFrame
        Numbers as nullable integers or floats, levels as the schema states them, open
        levels as text.

    Raises
    ------
    ValueError
        For a file that is no table, or columns that the schema lacks.
    """
    if suffix_of(path, compressed=True) == ".csv":
        if others:
            _require_named(path, schema, form)
        frame = _chosen(read_text(path, form), schema, others)
        return _typed(_normalized(frame, schema, form), schema)
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid:
        raise ValueError(f"{path} is no Parquet file, or a damaged one.") from None
    # As objects, dates beyond the year 9999 would raise an error that names it.
    frame = table.to_pandas(types_mapper=_dtype_of, date_as_object=False)
    return _typed(_chosen(frame, schema, others), schema)


def _dtype_of(held: pa.DataType) -> Any:
    """Return the dtype of a file's type, None for instants and dictionaries.

    As objects, decimals, times of day and lists would pass for text.
    """
    is_arrows = (
        pa.types.is_decimal(held) or pa.types.is_time(held) or pa.types.is_nested(held)
    )
    return pd.ArrowDtype(held) if is_arrows else _NULLABLE.get(held)


def _normalized(frame: pd.DataFrame, schema: Schema, form: CsvFormat) -> pd.DataFrame:
    """Return texts with numbers and instants as everybody writes them."""
    parts = {}
    for name in frame.columns:
        series, column = frame[name], schema[name]
        if column.kind == "datetime" and form.date_format is not None:
            series = _instants(series, form.date_format)
        elif column.numeric and not column.temporal and form.decimal != ".":
            series = _with_point(series, form.decimal)
        parts[name] = series
    return pd.DataFrame(parts, columns=frame.columns)


def _with_point(texts: pd.Series, decimal: str) -> pd.Series:
    # Without points in other places: those of 31.12.2014 or 484.20 are no thousands.
    plain = texts.where(texts.str.fullmatch(_COMMA_NUMBER, na=False))
    plain = plain.str.replace(".", "", regex=False)
    return plain.str.replace(decimal, ".", regex=False)


def column_names(path: str | os.PathLike[str], form: CsvFormat = PLAIN) -> list[str]:
    """Return the names in the first line of a CSV file."""
    opened = _OPENERS.get(Path(path).suffix.lower(), open)
    try:
        with opened(path, "rt", encoding=form.encoding, newline="") as file:
            names = next(csv.reader(file, delimiter=form.sep), [])
    except (UnicodeError, csv.Error, EOFError, lzma.LZMAError, gzip.BadGzipFile):
        raise _no_table(path, form, "") from None
    repeated = sorted({name for name in names if names.count(name) > 1})
    if not names or repeated:
        what = f"names columns twice: {repeated}" if repeated else "is empty"
        raise ValueError(f"{path} {what}; its first line must hold distinct names.")
    return names


def _no_table(path: str | os.PathLike[str], form: CsvFormat, why: str) -> ValueError:
    encoding = "UTF-8" if form.encoding == PLAIN.encoding else form.encoding
    return ValueError(
        f"{path} is no CSV table in {encoding}{why}. (--sep and --encoding say how a "
        "file is written.)"
    )


def read_text(path: str | os.PathLike[str], form: CsvFormat = PLAIN) -> pd.DataFrame:
    """Read a CSV file as text, with empty entries missing."""
    names = column_names(path, form)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                path, names=names, header=0, index_col=False, dtype=object,
                keep_default_na=False, na_values=["", *form.na],
                encoding=form.encoding, sep=form.sep,
            )  # fmt: skip
    except (ValueError, EOFError, OSError, pd.errors.ParserWarning):
        why = ": every line must have as many entries as the first, which names "
        raise _no_table(path, form, f"{why}{len(names)} columns") from None


def _chosen(frame: pd.DataFrame, schema: Schema, others: bool) -> pd.DataFrame:
    return frame if others else frame[[n for n in frame.columns if n in schema]]


def _require_named(
    path: str | os.PathLike[str], schema: Schema, form: CsvFormat
) -> None:
    names = column_names(path, form)
    unnamed = [name for name in names if name not in schema]
    if unnamed and len(names) == 1 and any(mark in names[0] for mark in ",;\t|"):
        raise ValueError(
            f"The file has a single column, {names[0]!r}. Where the separator is "
            "another one, --sep states it."
        )
    if unnamed:
        raise ValueError(
            f"The schema says nothing of the columns {unnamed}, and a CSV file has no "
            "dtypes: guessing kinds from values would give the values away. Add an "
            'entry such as {"name": ..., "kind": "categorical"} for each, or remove it '
            "from the file. The command `dpgenerative schema` drafts all entries."
        )


def _typed(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return the columns in the dtypes that the schema asks for."""
    parts = {}
    for j, name in enumerate(frame.columns):
        series = frame.iloc[:, j]
        if name in schema and not _is_of_its_own(series.dtype):
            series = _READERS[schema[name].kind](series, schema[name])
        elif isinstance(series.dtype, pd.CategoricalDtype):
            # A file's dictionary holds what happened to occur.
            series = _texts(series)
        parts[j] = series
    return pd.DataFrame(parts).set_axis(frame.columns, axis=1)


def _is_of_its_own(dtype: Any) -> bool:
    """Return whether a file's type is read as what it is, or refused by the schema."""
    is_arrows = isinstance(dtype, pd.ArrowDtype) and decimal_scale(dtype) is None
    return is_arrows or temporal_kind(dtype) is not None


def _numbers(series: pd.Series) -> np.ndarray:
    # One by one: how pandas reads a number depends on the others.
    values = np.array([_number_of(text) for text in _texts(series)], dtype=float)
    return np.where(np.isfinite(values), values, np.nan)


def _as_continuous(series: pd.Series, column: Column) -> pd.Series:
    if decimal_scale(series.dtype) is not None:
        return series
    return pd.Series(_numbers(series), index=series.index, dtype="Float64")


def _as_integer(series: pd.Series, column: Column) -> pd.Series:
    is_decimal = decimal_scale(series.dtype) is not None
    if is_decimal or pd.api.types.is_integer_dtype(series.dtype):
        return series
    values = np.round(np.clip(_numbers(series), -CERTAIN, CERTAIN))
    return pd.Series(values, index=series.index).astype("Int64")


def _as_boolean(series: pd.Series, column: Column) -> pd.Series:
    found = _texts(series).map(_truth_of, na_action="ignore")
    return found.astype("boolean")


def _truth_of(text: Any) -> bool | None:
    word = str(text).strip().lower()
    return True if word in TRUE else False if word in FALSE else None


def _as_levels(series: pd.Series, column: Column) -> pd.Series:
    texts = _texts(series)
    if column.levels is None:
        return texts
    table = {level: level for level in column.levels}
    table |= {str(level): level for level in reversed(column.levels)}
    numbers = {
        float(level): level
        for level in reversed(column.levels)
        if isinstance(level, (int, float))
    }

    def level_of(text: Any) -> Any:
        if isinstance(text, Hashable) and text in table:
            return table[text]
        return numbers.get(_number_of(text), column.other)

    dtype = pd.CategoricalDtype(list(column.levels), ordered=column.ordered)
    return texts.map(level_of, na_action="ignore").astype(dtype)


def _number_of(text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        return math.nan


def _texts(series: pd.Series) -> pd.Series:
    """Return entries as Python objects, None where missing."""
    entries = series.astype(object)
    return entries.where(entries.notna(), None)


def _as_instants(series: pd.Series, column: Column) -> pd.Series:
    """Read ISO 8601; where texts have time zones, on the clock of Greenwich."""
    return series if _is_of_numbers(series.dtype) else _instants(series)


def _is_of_numbers(dtype: Any) -> bool:
    return is_real_dtype(dtype) or pd.api.types.is_bool_dtype(dtype)


def _instants(series: pd.Series, form: str | None = None) -> pd.Series:
    # One by one: pandas lends the zone of a text to those after it.
    values = np.array([_instant_of(text, form) for text in _texts(series)], "M8[us]")
    return pd.Series(values, index=series.index)


def _instant_of(text: Any, form: str | None) -> dt.datetime | None:
    try:
        read = dt.datetime
        found = read.fromisoformat(text) if form is None else read.strptime(text, form)
        if found.tzinfo is not None:
            found = found.astimezone(dt.UTC)
    except (ValueError, TypeError, OverflowError):
        return None
    return found.replace(tzinfo=None)


def _as_durations(series: pd.Series, column: Column) -> pd.Series:
    if _is_of_numbers(series.dtype):
        return series
    texts = [text if isinstance(text, str) else None for text in _texts(series)]
    with warnings.catch_warnings():
        # A warning of an outdated unit would speak of values.
        warnings.simplefilter("ignore", FutureWarning)
        found = pd.to_timedelta(pd.Series(texts, series.index, object), errors="coerce")
    return found.dt.as_unit("us")


_READERS: dict[str, Callable[[pd.Series, Column], pd.Series]] = {
    "continuous": _as_continuous,
    "integer": _as_integer,
    "boolean": _as_boolean,
    "categorical": _as_levels,
    "datetime": _as_instants,
    "timedelta": _as_durations,
}


def write_table(
    parts: Iterable[pd.DataFrame], path: str | os.PathLike[str], suffix: str
) -> None:
    """Write frames of the same columns one after the other, holding one at a time.

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
            part.to_csv(path, index=False, header=i == 0, mode="a" if i else "w")
        return
    writer = None
    try:
        for part in parts:
            part = part.set_axis([str(name) for name in part.columns], axis=1)
            if writer is None:
                schema = _arrow_schema(part)
                writer = pq.ParquetWriter(path, schema)
            table = pa.Table.from_pandas(part, schema, preserve_index=False)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _arrow_schema(frame: pd.DataFrame) -> pa.Schema:
    """Return the types of a frame; a column without any value yet is one of text."""
    schema = pa.Schema.from_pandas(frame, preserve_index=False)
    for i, column in enumerate(schema):
        if pa.types.is_null(column.type):
            schema = schema.set(i, column.with_type(pa.string()))
    return schema


# Drafts of a schema -------------------------------------------------------------------

MARK = "from data, replace before use"
"""In a draft's column: names of the facts that were read off the rows."""
ASK = "question, delete when answered"
"""In a draft's column: what only a person can know of it."""
NOTE = "read me"
ADVICE = (
    "This draft holds values of the rows: keep it as closely as the rows themselves. "
    f"Under '{MARK}' every column names the facts that were read off the rows. Replace "
    "each by what a stranger to the rows could know (a code book, a form, a law), or "
    "delete it (but not the kind): bounds and levels are then found privately, and a "
    f'column without "role": "id" is learned. Answer what stands under \'{ASK}\'. Then '
    "delete the mark and the question, and at last this note. Files with any of them "
    "are refused. Free text cannot be learned: leave it out of the table."
)
MOST_DIGITS = 6
"""Numbers of more decimals are drafted without a resolution."""
_COMMA_NUMBER = (
    r"\s*[-+]?(?=,?\d)(?:\d{1,3}(?:\.\d{3})+|\d*)(?:,\d*)?(?:[eE][-+]?\d+)?\s*"
)
_MONEY = (
    r"[\s(]*[-+]?\s*[$€£¥]\s*[-+]?\d[\d,.' ]*[\s)]*|\s*[-+]?\d[\d,.' ]*[$€£¥]\s*|"
    r"\s*[-+]?[1-9]\d{0,2}(?:[,' ]\d{3})*(?:\.\d+)?\s*"
)
_DATE_FORMATS = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d",
    "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%b %d, %Y", "%d.%m.%Y %H:%M",
)  # fmt: skip
"""Forms of dates that a draft tries."""
MOST_LEVELS = 50
"""Text with more different values is drafted without levels."""


def draft_schema(
    path: str | os.PathLike[str], form: CsvFormat = PLAIN
) -> dict[str, Any]:
    """Draft a schema from the rows themselves, every such fact marked.

    Parameters
    ----------
    path : path-like
        A CSV or Parquet file.
    form : CsvFormat, optional
        How a CSV file is written.

    Returns
    -------
    dict
        As `Schema.to_dict`, with marks that `unmarked_schema` refuses.
    """
    if suffix_of(path, compressed=True) == ".csv":
        frame = read_text(path, form)
        columns = [_guessed(name, frame[name], form) for name in frame.columns]
    else:
        frame = read_table(path, Schema([]))
        known = Schema.from_dtypes(frame).columns
        columns = [_bounded(column, frame[column.name], []) for column in known]
    return {NOTE: ADVICE, "columns": columns}


def _guessed(name: Hashable, texts: pd.Series, form: CsvFormat) -> dict[str, Any]:
    """Return the facts of a column of text, and what to ask of it."""
    present = texts.dropna()
    plain = present if form.decimal == "." else _with_point(present, form.decimal)
    numbers = pd.to_numeric(plain, errors="coerce").to_numpy(float)
    if len(present) and np.isfinite(numbers).all():
        return _guessed_number(name, texts, plain, numbers)
    words = {str(text).strip().lower() for text in present.unique()}
    if words and words <= {"true", "false"}:
        return _bounded(Column(name, "boolean"), texts, ["kind"])
    instants = _instants(present, form.date_format)
    if words and instants.notna().all():
        unit = "D" if (instants == instants.dt.normalize()).all() else "s"
        marked = ["kind", "resolution"]
        return {"name": name, "kind": "datetime", "resolution": unit, MARK: marked}
    asked = _asked_of_text(present, words)
    if asked is None and _is_key(texts):
        return _identifier(name, "categorical")
    facts = _bounded(Column(name, "categorical"), texts, ["kind"])
    return facts if asked is None else {**facts, ASK: asked}


def _is_key(texts: pd.Series) -> bool:
    return len(texts) > MOST_LEVELS and texts.is_unique


def _identifier(name: Hashable, kind: str) -> dict[str, Any]:
    return {"name": name, "kind": kind, "role": "id", MARK: ["kind", "role"]}


def _guessed_number(
    name: Hashable, texts: pd.Series, plain: pd.Series, numbers: np.ndarray
) -> dict[str, Any]:
    """Return the facts of a column of numbers."""
    digits = plain.str.extract(r"\.(\d*?)0*$", expand=False).str.len().max()
    whole = bool((numbers == np.round(numbers)).all())
    if whole and _is_key(texts):
        return _identifier(name, "integer")
    column = Column(name, "integer" if whole else "continuous")
    facts = _bounded(column, pd.Series(numbers), ["kind"])
    if whole and plain.str.contains(".", regex=False).any():
        facts[ASK] = "Whole numbers written with decimals: are they integers?"
    elif not whole and digits <= MOST_DIGITS:
        marked = [*facts.pop(MARK), "resolution"]
        facts |= {"resolution": float(f"1e-{int(digits)}"), MARK: marked}
    elif not whole:
        facts[ASK] = (
            f"Numbers of more than {MOST_DIGITS} decimals: to which resolution are "
            "they known? Without one, synthetic numbers have all digits of a float."
        )
    return facts


def _asked_of_text(present: pd.Series, words: set[str]) -> str | None:
    """Return what to ask where texts look like something that can be learned."""
    if words and words <= TRUE | FALSE:
        return (
            'Yes or no? The kind "boolean" takes these words and gives True and False; '
            "as levels they come back as they are written."
        )
    if not words:
        return None
    fitting = [form for form in _DATE_FORMATS if _instants(present, form).notna().all()]
    if fitting:
        which = " or ".join(f'"{form}"' for form in fitting)
        return f"Dates? Then draft again, and fit, with --date-format {which}."
    if present.str.fullmatch(_MONEY).all():
        return (
            "Numbers with signs of money or separators of thousands? Write them as "
            "plain numbers (538000), or they are levels that come back as text."
        )
    if present.str.fullmatch(_COMMA_NUMBER).all():
        return (
            "Numbers with a decimal comma? Then draft again, and fit, with --decimal ,"
        )
    return None


def _bounded(column: Column, series: pd.Series, marked: list[str]) -> dict[str, Any]:
    """Return the facts of a column, with bounds or levels read off its values."""
    facts: dict[str, Any] = {"name": column.name, "kind": column.kind}
    if column.numeric:
        values = _numbers(series)
        values = values[~np.isnan(values)]
        if len(values):
            number = int if column.kind == "integer" else float
            facts |= {"lower": number(values.min()), "upper": number(values.max())}
            marked = [*marked, "lower", "upper"]
    elif column.kind == "categorical":
        levels = sorted(series.dropna().astype(str).unique())
        if 0 < len(levels) <= MOST_LEVELS:
            facts["levels"] = levels
            marked = [*marked, "levels"]
    return {**facts, MARK: marked} if marked else facts


def unmarked_schema(facts: Any, source: str) -> Schema:
    """Return the schema that a person has been through.

    Parameters
    ----------
    facts : dict
        As `Schema.to_dict` or `draft_schema` gave it, edited.
    source : str
        What errors call it.

    Raises
    ------
    ValueError
        Where marks or the note of a draft are left, or the facts are no schema.
    """
    columns = facts.get("columns") if isinstance(facts, dict) else None
    if not isinstance(columns, list) or not all(isinstance(c, dict) for c in columns):
        raise ValueError(
            f'{source} is no schema: it must be {{"columns": [{{"name": ..., "kind": '
            "...}, ...]}."
        )
    marked = [c.get("name") for c in columns if MARK in c or ASK in c]
    if marked or NOTE in facts:
        where = f"in the columns {marked}" if marked else f"but for its '{NOTE}'"
        raise ValueError(
            f"{source} is a draft, {where}: what was read off the rows would be "
            "released without noise. Replace or delete the facts that are named under "
            f"'{MARK}', answer the questions, then delete both and the '{NOTE}'."
        )
    return Schema.from_dict(facts)
