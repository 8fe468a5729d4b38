"""Drafts of a schema, read off the rows for a person to edit."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative._files import AnyPath, require_file
from dpgenerative._progress import watched
from dpgenerative._validation import refuse
from dpgenerative.tables import entries, files
from dpgenerative.tables.foreign import refuse_metadata
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.values import as_objects

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
_MONEY = (
    r"[\s(]*[-+]?\s*[$€£¥]\s*[-+]?\d[\d,.' ]*[\s)]*|\s*[-+]?\d[\d,.' ]*[$€£¥]\s*|"
    r"\s*[-+]?[1-9]\d{0,2}(?:[,' ]\d{3})*(?:\.\d+)?\s*"
)
_CODES = "Codes? As levels they keep their leading zeros, which numbers would lose."
_QUESTIONS = {
    r"\s*\d+\s*": _CODES,
    _MONEY: (
        "Numbers with signs of money or separators of thousands? Write them as "
        "plain numbers (538000), or they are levels that come back as text."
    ),
    entries.COMMA_NUMBER: (
        "Numbers with a decimal comma? Then draft again with --decimal ,"
    ),
}
"""Questions about text that all matches a pattern; the first that matches counts."""
_UNIT = r"^\s*[-+]?\d[\d,.' ]*(%|°?[^\W\d]+(?:/[^\W\d]+)?)\s*$"
"""A number and its unit: 45%, 180 cm, 50 km/h."""
MOSTLY = 0.5
"""Share of numbers or dates among texts from which a draft asks about the others, and
of different texts among all from which it asks whether they are free text."""
MARKERS = frozenset(
    ("-", "--", ".", "?", "n/a", "#n/a", "na", "<na>", "n.a.", "nan", "none", "null")
) | {"missing", "unknown", "not available"}
"""Texts, in lower case, that often mean missing."""
ENOUGH = 20
"""Different values from which a pattern that all of them follow is no coincidence."""
SCREENED = 1_000
"""Rows, or values, on which a pattern is tried before all of them are read."""
_MIXED = (
    "{}, except for entries such as {}? The kind {} counts those as missing; as "
    "levels, all come back as text."
)
_MARKED = (
    "Does {} mean missing? Of a CSV file draft again with --na, or list it under "
    "'na' in 'csv'; else it is a level."
)
_UNIQUE = (
    'Hardly a value repeats. Identifiers take "role": "id": they are not read, and '
    "samples have new ones. Free text and names cannot be learned: delete the entry, "
    "and list its name under 'without'. A quantity takes no role."
)
_CLOCK = (
    "Times of a clock, such as 1345 for 13:45? Write them as minutes since midnight "
    "(825): between 1359 and 1400 lie numbers that are no times."
)
_NESTED = (
    "Every entry begins with that of {0}, as codes of a nested list do: codes take the "
    'kind "categorical", also where all are digits. Leave {0} out and derive it from '
    "samples, or state by Determines how it follows."
)
_DATE_FORMATS = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d",
    "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%b %d, %Y", "%Y-%m-%d",
)  # fmt: skip
"""Forms of dates that a draft tries, each followed by a form of the time if texts have
one."""
_COMPUTED = (
    "Is it {0} in every row, as in those read? Then state "
    '{{"constraint": "Derived", "name": {1}, "expression": {2}}} under "constraints": '
    "it is then exact, and nothing is spent on it."
)
MOST_LEVELS = 50
"""Text with more different values is drafted without levels."""


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
    for column, prefix in _nested(frame, columns):
        _ask(column, _NESTED.format(_quoted(prefix)))
    for column, formula in _computed(frame, columns, form):
        texts = formula.replace("`", ""), _quoted(column["name"]), _quoted(formula)
        _ask(column, _COMPUTED.format(*texts))
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


def _quoted(text: Any) -> str:
    return json.dumps(str(text), ensure_ascii=False)


def _guessed(counts: pd.Series, is_unique: bool, form: entries.CsvFormat) -> Guess:
    """Return what a column of text seems to be, and what to ask of it."""
    if counts.empty:
        return {"kind": "categorical"}, ()
    present, is_key = pd.Series(counts.index), is_unique and len(counts) > MOST_LEVELS
    plain = entries.with_point(present, form.decimal)
    numbers = pd.to_numeric(plain, errors="coerce").to_numpy(float)
    is_code = present.str.match(r"\s*0\d").any()  # as a number it loses its zeros
    if np.isfinite(numbers).all() and not is_code:
        return _guessed_number(plain, numbers, is_key)
    words = {str(text).strip().lower() for text in present}
    if words <= {"true", "false"}:
        return {"kind": "boolean"}, ()
    instants = entries.instants_of(present, form.date_format)
    if instants.notna().all():
        unit = "D" if (instants == instants.dt.normalize()).all() else "s"
        return {"kind": "datetime", "resolution": unit}, ()
    asked = _asked_of_text(counts, numbers, instants.notna().to_numpy(), is_code)
    is_id = is_key and asked is None
    facts = {"role": "id"} if is_id else _levels(counts)
    clock = asked and _asked_of_clocks(numbers[np.isfinite(numbers)])
    unique = None if asked else _asked_of_unique(counts)
    questions = asked, _asked_of_markers(counts), unique, clock
    return {"kind": "categorical", **facts}, questions


def _guessed_number(texts: pd.Series, numbers: np.ndarray, is_key: bool) -> Guess:
    is_whole = bool((numbers == np.round(numbers)).all())
    if is_whole and is_key:
        return {"kind": "integer", "role": "id"}, (_UNIQUE, _asked_of_clocks(numbers))
    kind = "integer" if is_whole else "continuous"
    facts = {"kind": kind, **_bounds(kind, numbers)}
    if is_whole:
        has_decimals = texts.str.contains(".", regex=False).any()
        asked = "Whole numbers written with decimals: are they integers?"
        return facts, (asked if has_decimals else None, _asked_of_clocks(numbers))
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
        return _levels(counts), (_asked_of_markers(counts), _asked_of_unique(counts))
    if kind not in ("integer", "continuous"):
        return {}, ()
    numbers = entries.numbers_of(counts.index.to_series())
    return _bounds(kind, numbers), (_asked_of_clocks(numbers),)


def _levels(counts: pd.Series) -> dict[str, Any]:
    levels = sorted(set(counts.index.astype(str)))
    return {"levels": levels} if 0 < len(levels) <= MOST_LEVELS else {}


def _bounds(kind: str, values: np.ndarray) -> dict[str, Any]:
    values = values[~np.isnan(values)]
    if not len(values):
        return {}
    number = int if kind == "integer" else float
    return {"lower": number(values.min()), "upper": number(values.max())}


# Questions ----------------------------------------------------------------------------


def _asked_of_text(
    counts: pd.Series, numbers: np.ndarray, dated: np.ndarray, is_code: bool
) -> str | None:
    """Return what to ask where texts may stand for something that can be learned."""
    is_number, rest = np.isfinite(numbers), ~_are_markers(counts)
    pattern = None
    if is_code or not is_number[rest].all():
        texts = counts[rest]
        pattern = _asked_of_pattern(_some(texts)) and _asked_of_pattern(texts)
    question = (
        _asked_of_most(counts, dated, "Dates", '"datetime"')
        or pattern
        or _asked_of_most(counts, is_number, "Numbers", '"continuous" or "integer"')
    )
    if question and is_code and np.average(is_number, weights=counts) > MOSTLY:
        return _CODES
    return question


def _asked_of_most(
    counts: pd.Series, fits: np.ndarray, what: str, kinds: str
) -> str | None:
    """Return what to ask of texts if most of them, but not all, fit."""
    if not 1 > np.average(fits, weights=counts) > MOSTLY:
        return None
    odd = counts[~fits]
    return _MIXED.format(what, _quoted(odd.index[odd == odd.max()].min()), kinds)


def _asked_of_pattern(counts: pd.Series) -> str | None:
    """Return what to ask of texts that all are written alike."""
    present = pd.Series(counts.index, dtype=object)
    if {text.strip().lower() for text in present} <= entries.TRUTHS.keys():
        return (
            'Yes or no? The kind "boolean" takes these words and gives True and False; '
            "as levels they come back as they are written."
        )
    if forms := _date_formats(_some(counts)):
        which = " or ".join(f'"{form}"' for form in forms)
        return (
            f"Dates? Then draft again with --date-format {which}, if all "
            "dates of the file are written so; else rewrite them as 2024-12-31."
        )
    asked = (q for p, q in _QUESTIONS.items() if present.str.fullmatch(p).all())
    units = present.str.extract(_UNIT)[0]
    if units.notna().all() and units.nunique() == 1:
        return (
            f"Numbers with the unit {units.iloc[0]}? Write them without, or they are "
            "levels that come back as text."
        )
    return next(asked, None)


def _date_formats(counts: pd.Series) -> list[str]:
    """Return the forms in which more texts are dates than in any other, and most."""
    texts = pd.Series(counts.index)
    shares = {
        form: np.average(entries.instants_of(texts, form).notna(), weights=counts)
        for form in (form + _clock_format(texts[0]) for form in _DATE_FORMATS)
    }
    return [f for f in shares if shares[f] == max(shares.values()) > MOSTLY]


def _clock_format(text: str) -> str:
    """Return the form of the time that follows a date, empty if there is none."""
    form = ("", " %H:%M", " %H:%M:%S")[min(text.count(":"), 2)]
    is_half_a_day = form and text.strip()[-1] in "mM"
    return f"{form.replace('%H', '%I')} %p" if is_half_a_day else form


def _some(counts: pd.Series) -> pd.Series:
    """Return evenly spaced ones of many different texts."""
    return counts.iloc[:: 1 + (len(counts) - 1) // SCREENED]


def _are_markers(counts: pd.Series) -> np.ndarray:
    """Return which texts often mean missing."""
    return np.array([str(t).strip().lower() in MARKERS for t in counts.index], bool)


def _asked_of_markers(counts: pd.Series) -> str | None:
    markers = counts.index[_are_markers(counts)]
    return _MARKED.format(" or ".join(map(_quoted, markers))) if len(markers) else None


def _asked_of_unique(counts: pd.Series) -> str | None:
    is_unique = len(counts) > max(MOST_LEVELS, MOSTLY * counts.sum())
    return _UNIQUE if is_unique else None


def _asked_of_clocks(numbers: np.ndarray) -> str | None:
    """Return what to ask of different numbers that all are times written as HHMM."""
    hours, minutes = np.divmod(numbers, 100)
    if len(numbers) < ENOUGH or numbers.min() < 0 or numbers.max() > 2400:
        return None
    is_clock = np.isin(minutes, np.arange(60)).all() and len(set(hours)) > 4
    # Multiples of 50 are amounts rather than times.
    return _CLOCK if is_clock and (minutes % 50).any() else None


def _nested(
    frame: pd.DataFrame, columns: Sequence[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield columns of codes that begin with those of another, and the other's name."""
    codes = {c["name"]: c for c in columns if c["kind"] in ("integer", "categorical")}
    heads = {name: _texts_of(frame[name].head(SCREENED)) for name in codes}
    for name, prefix in permutations(codes, 2):
        if _begin(heads[name], heads[prefix]):
            pairs = frame[[name, prefix]].dropna().drop_duplicates()
            codes_in, prefixes = _texts_of(pairs[name]), _texts_of(pairs[prefix])
            is_varied = len(set(codes_in)) >= ENOUGH and len(set(prefixes)) > 1
            if is_varied and _begin(codes_in, prefixes):
                yield codes[name], prefix


def _computed(
    frame: pd.DataFrame, columns: Sequence[dict[str, Any]], form: entries.CsvFormat
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield columns that are the sum or the product of two others, and the formula."""
    kinds = ("integer", "continuous")
    numeric = {c["name"]: c for c in columns if c["kind"] in kinds and "role" not in c}
    heads = {n: entries.numbers_of(frame[n].head(SCREENED), form) for n in numeric}
    varied = {n: head for n, head in heads.items() if len(np.unique(head)) > 1}
    names, table = list(varied), np.array(list(varied.values()))
    matches: dict[int, str] = {}
    for j, k in combinations(range(len(names)), 2):
        for sign, values in ("+", table[j] + table[k]), ("*", table[j] * table[k]):
            if np.count_nonzero(~np.isnan(values)) < ENOUGH:
                continue
            some = np.abs(table[:, :ENOUGH] - values[:ENOUGH])
            is_near = ~(some > 1e-6 * np.abs(values[:ENOUGH])).any(axis=1)
            for i in np.flatnonzero(is_near).tolist():
                near = np.abs(values - table[i]) <= 1e-6 * np.abs(values)
                is_varied = len(np.unique(table[i])) >= ENOUGH
                is_new = is_varied and i not in (j, k, *matches)
                if is_new and near[~np.isnan(values)].all():
                    matches[i] = f"`{names[j]}` {sign} `{names[k]}`"
    yield from ((numeric[names[i]], formula) for i, formula in matches.items())


def _texts_of(series: pd.Series) -> list[str | None]:
    """Return the entries of a column as text, None where missing."""
    return [None if entry is None else str(entry) for entry in as_objects(series)]


def _begin(texts: Sequence[str | None], prefixes: Sequence[str | None]) -> bool:
    """Return whether every text is its prefix and more, where both are known."""
    return all(
        text is None or prefix is None or (text != prefix and text.startswith(prefix))
        for text, prefix in zip(texts, prefixes, strict=True)
    )


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
