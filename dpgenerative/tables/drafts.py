"""Drafts of a schema, read off the rows for a person to edit."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative._files import AnyPath, require_file
from dpgenerative._progress import watched
from dpgenerative._validation import refuse
from dpgenerative.tables import entries, files
from dpgenerative.tables.foreign import refuse_metadata
from dpgenerative.tables.questions import (
    MOST_LEVELS,
    UNIQUE,
    asked_between,
    asked_of_clocks,
    asked_of_codes,
    asked_of_markers,
    asked_of_text,
    asked_of_unique,
)
from dpgenerative.tables.schema import Schema

MARK = "from data, replace before use"
"""In a draft's column: names of the facts that were read off the rows."""
ASK = "question, delete when answered"
"""In a draft's column: what only a person can know of it."""
NOTE = "read me"
ADVICE = (
    "This draft holds values of the rows: keep it as closely as the rows themselves. "
    f"Under '{MARK}' every column names the facts that were read off the rows. Replace "
    "each by what a stranger to the rows could know (a code book, a form, a law), or "
    "delete it (but not the kind): bounds and levels are then estimated privately, "
    'and a column without "role": "id" is learned. '
    f"Answer what stands under '{ASK}'. Then delete the mark and the question, and at "
    "last this note. Files with any of them are refused. Free text cannot be learned: "
    "to leave a column out, delete its entry and list its name under 'without'."
)
MOST_DIGITS = 6
"""Numbers of more decimals are drafted without a resolution."""
Guess = tuple[dict[str, Any], Sequence[str | None]]
"""Facts read off a column, and what is to be asked of it."""


def draft_schema(
    path: AnyPath, form: entries.CsvFormat = entries.PLAIN, verbose: bool = False
) -> dict[str, Any]:
    """Draft a schema from the rows themselves, every such fact marked.

    Parameters
    ----------
    path : path-like
        A CSV or Parquet file.
    form : CsvFormat, optional
        How a CSV file is written.
    verbose : bool, default=False
        Show a progress bar after five seconds.

    Returns
    -------
    dict
        As `read_schema` takes it, with marks that it refuses.
    """
    kinds: dict[Any, str] = {}
    if files.suffix_of(path, compressed=True) == ".csv":
        frame = files.read_text(path, form, verbose)
    else:
        frame = files.stream_table(path, Schema([])).whole()
        kinds = {c.name: c.kind for c in Schema.from_dtypes(frame).columns}
    names = watched(frame.columns, "draft", verbose, delay=files.BAR_AFTER)
    columns = [_drafted(frame[name], kinds.get(name), form) for name in names]
    for column, question in asked_between(frame, columns, form):
        _ask(column, question)
    if not kinds and (asked := files.asked_of_one(list(frame.columns))):
        columns[0][ASK] = asked
    written = {"csv": form.stated()} if form != entries.PLAIN else {}
    return {NOTE: ADVICE, **written, "columns": columns, "without": []}


def _drafted(
    series: pd.Series, kind: str | None, form: entries.CsvFormat
) -> dict[str, Any]:
    """Return the entry of a column, what was read off its values marked.

    Every different value is read once, however many rows have it.
    """
    counts = series.value_counts()
    if kind is None:
        read, asked = _guessed(counts, series.is_unique, form)
        column: dict[str, Any] = {"name": series.name, **read}
    else:
        read, asked = _read_by_kind(kind, counts)
        column = {"name": series.name, "kind": kind, **read}
    if read:
        column[MARK] = list(read)
    for question in filter(None, asked):
        _ask(column, question)
    return column


def _ask(column: dict[str, Any], question: str) -> None:
    column[ASK] = f"{column[ASK]} {question}" if ASK in column else question


def _guessed(counts: pd.Series, is_unique: bool, form: entries.CsvFormat) -> Guess:
    """Return what a column of text seems to be, and what to ask of it."""
    if counts.empty:
        return {"kind": "categorical"}, ()
    present, is_key = pd.Series(counts.index), is_unique and len(counts) > MOST_LEVELS
    plain = entries.with_point(present, form.decimal)
    numbers = pd.to_numeric(plain, errors="coerce").to_numpy(float)
    is_code = present.str.match(r"\s*0\d").any()  # as a number it loses its zeros
    if np.isfinite(numbers).all() and not is_code:
        facts, also = _guessed_number(plain, numbers, is_key)
        return facts, (*also, asked_of_codes(counts, numbers))
    words = {str(text).strip().lower() for text in present}
    if words <= {"true", "false"}:
        return {"kind": "boolean"}, ()
    instants = entries.instants_of(present, form.date_format)
    if instants.notna().all():
        unit = "D" if (instants == instants.dt.normalize()).all() else "s"
        return {"kind": "datetime", "resolution": unit}, ()
    asked = asked_of_text(counts, numbers, instants.notna().to_numpy(), is_code)
    is_id = is_key and asked is None
    facts = {"role": "id"} if is_id else _levels(counts)
    clock = asked and asked_of_clocks(numbers[np.isfinite(numbers)])
    unique = None if asked else asked_of_unique(counts)
    also = asked, asked_of_markers(counts), unique, clock
    return {"kind": "categorical", **facts}, also


def _guessed_number(texts: pd.Series, numbers: np.ndarray, is_key: bool) -> Guess:
    is_whole = bool((numbers == np.round(numbers)).all())
    if is_whole and is_key:
        return {"kind": "integer", "role": "id"}, (UNIQUE, asked_of_clocks(numbers))
    kind = "integer" if is_whole else "continuous"
    facts = {"kind": kind, **_bounds(kind, numbers)}
    if is_whole:
        has_decimals = texts.str.contains(".", regex=False).any()
        asked = "Whole numbers written with decimals: are they integers?"
        return facts, (asked if has_decimals else None, asked_of_clocks(numbers))
    # Negative for multiples of ten.
    digits = max(
        -int(Decimal(t.strip()).normalize().as_tuple().exponent) for t in texts
    )
    if digits <= MOST_DIGITS:
        return {**facts, "resolution": float(f"1e-{digits}")}, ()
    return facts, (
        f"Numbers of more than {MOST_DIGITS} decimals: to which resolution are "
        "they known? Without one, synthetic numbers have all digits of a float.",
    )


def _read_by_kind(kind: str, counts: pd.Series) -> Guess:
    """Return what a column whose kind its dtype states makes known, and questions."""
    if kind == "categorical":
        return _levels(counts), (asked_of_markers(counts), asked_of_unique(counts))
    if kind not in ("integer", "continuous"):
        return {}, ()
    numbers = entries.numbers_of(counts.index.to_series())
    also = asked_of_clocks(numbers), asked_of_codes(counts, numbers)
    return _bounds(kind, numbers), also


def _levels(counts: pd.Series) -> dict[str, Any]:
    levels = sorted(set(counts.index.astype(str)))
    return {"levels": levels} if 0 < len(levels) <= MOST_LEVELS else {}


def _bounds(kind: str, values: np.ndarray) -> dict[str, Any]:
    values = values[~np.isnan(values)]
    if not len(values):
        return {}
    number = int if kind == "integer" else float
    return {"lower": number(values.min()), "upper": number(values.max())}


@dataclass(frozen=True)
class SchemaFile:
    """A file of public facts, for the commands that read rows.

    Attributes
    ----------
    schema : Schema
    csv : CsvFormat
        How CSV files of these rows are written.
    without : sequence of str
        Columns that are left out.
    """

    schema: Schema
    csv: entries.CsvFormat = entries.PLAIN
    without: Sequence[str] = ()


def read_schema(path: str) -> SchemaFile:
    """Read a schema from a JSON file, a draft only once a person has edited it.

    Raises
    ------
    ValueError
        As `unmarked_schema`, and for what is no JSON or no format of CSV files.
    """
    try:
        facts = json.loads(require_file(path).read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path} is not a JSON file: {error}.") from None
    stated = facts if isinstance(facts, dict) else {}
    form, without = stated.pop("csv", {}), stated.pop("without", [])
    schema = unmarked_schema(facts, path)
    fields = list(entries.CsvFormat.__dataclass_fields__)
    if not isinstance(form, dict) or not set(form) <= set(fields):
        refuse(path, "csv", f"must be a dictionary of {fields}", form)
    if not (isinstance(without, list) and all(isinstance(n, str) for n in without)):
        refuse(path, "without", "must be a list of names", without)
    if both := [name for name in without if name in schema]:
        raise ValueError(f"{path} leaves out columns that it states: {both}.")
    return SchemaFile(schema, entries.CsvFormat(**form), without)


def unmarked_schema(facts: Any, source: str) -> Schema:
    """Return the schema that a person has made of a draft.

    Parameters
    ----------
    facts : dict
        As `Schema.to_dict` or `draft_schema` gave it, edited.
    source : str
        What errors call it.

    Raises
    ------
    ValueError
        If marks or the note of a draft are left, or the facts are no schema.
    """
    refuse_metadata(source, facts)
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
