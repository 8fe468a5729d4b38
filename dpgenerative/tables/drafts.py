"""Drafts of a schema, read off the rows for a person to edit."""

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative._files import AnyPath, require_file
from dpgenerative.tables import files
from dpgenerative.tables.foreign import refuse_metadata
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
    "delete it (but not the kind): bounds and levels are then found privately, and a "
    f'column without "role": "id" is learned. Answer what stands under \'{ASK}\'. Then '
    "delete the mark and the question, and at last this note. Files with any of them "
    "are refused. Free text cannot be learned: leave it out of the table."
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
    files.COMMA_NUMBER: (
        "Numbers with a decimal comma? Then draft again, and fit, with --decimal ,"
    ),
}
"""Questions about text that all matches a pattern; the first that matches counts."""
_UNIT = r"^\s*[-+]?\d[\d,.' ]*(%|°?[^\W\d]+(?:/[^\W\d]+)?)\s*$"
"""A number and its unit: 45%, 180 cm, 50 km/h."""
MOSTLY = 0.5
"""Share of numbers or dates among texts from which a draft asks about the others."""
_MIXED = (
    "{}, except for entries such as {}? The kind {} counts those as missing; as "
    "levels, all come back as text."
)
_DATE_FORMATS = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d",
    "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%b %d, %Y", "%d.%m.%Y %H:%M",
    "%Y-%m-%d",
)  # fmt: skip
"""Forms of dates that a draft tries."""
MOST_LEVELS = 50
"""Text with more different values is drafted without levels."""


Guess = tuple[dict[str, Any], str | None]
"""Facts read off a column, and what is to be asked of it."""


def draft_schema(path: AnyPath, form: files.CsvFormat = files.PLAIN) -> dict[str, Any]:
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
    if files.suffix_of(path, compressed=True) == ".csv":
        frame = files.read_text(path, form)
        columns = [
            _drafted({"name": name}, *_guessed(frame[name], form))
            for name in frame.columns
        ]
        if asked := files.asked_of_one(list(frame.columns)):
            columns[0][ASK] = asked
    else:
        frame = files.stream_table(path, Schema([])).whole()
        columns = [
            _drafted({"name": c.name, "kind": c.kind}, _range(c.kind, frame[c.name]))
            for c in Schema.from_dtypes(frame).columns
        ]
    return {NOTE: ADVICE, "columns": columns}


def _drafted(
    public: dict[str, Any], read: dict[str, Any], question: str | None = None
) -> dict[str, Any]:
    """Return the entry of a column, what was read off its values marked."""
    marks = {MARK: list(read)} if read else {}
    asked = {} if question is None else {ASK: question}
    return {**public, **read, **marks, **asked}


def _guessed(texts: pd.Series, form: files.CsvFormat) -> Guess:
    """Return what a column of text seems to be, and what to ask of it."""
    present = texts.dropna()
    if present.empty:
        return {"kind": "categorical"}, None
    plain = present if form.decimal == "." else files.with_point(present, form.decimal)
    numbers = pd.to_numeric(plain, errors="coerce").to_numpy(float)
    is_code = present.str.match(r"\s*0\d").any()  # as a number it loses its zeros
    if np.isfinite(numbers).all() and not is_code:
        return _guessed_number(plain, numbers, _is_key(texts))
    words = {str(text).strip().lower() for text in present.unique()}
    if words <= {"true", "false"}:
        return {"kind": "boolean"}, None
    instants = files.instants_of(present, form.date_format)
    if instants.notna().all():
        unit = "D" if (instants == instants.dt.normalize()).all() else "s"
        return {"kind": "datetime", "resolution": unit}, None
    question = (
        _asked_of_most(present, instants.notna(), "Dates", '"datetime"')
        or _asked_of_text(present, words)
        or _asked_of_most(
            present, np.isfinite(numbers), "Numbers", '"continuous" or "integer"'
        )
    )
    if question and is_code and np.isfinite(numbers).mean() > MOSTLY:
        question = _CODES
    if question is None and _is_key(texts):
        return {"kind": "categorical", "role": "id"}, None
    return {"kind": "categorical", **_range("categorical", texts)}, question


def _is_key(texts: pd.Series) -> bool:
    return len(texts) > MOST_LEVELS and texts.is_unique


def _guessed_number(texts: pd.Series, numbers: np.ndarray, is_key: bool) -> Guess:
    is_whole = bool((numbers == np.round(numbers)).all())
    if is_whole and is_key:
        return {"kind": "integer", "role": "id"}, None
    kind = "integer" if is_whole else "continuous"
    facts = {"kind": kind, **_range(kind, pd.Series(numbers))}
    if is_whole:
        with_decimals = texts.str.contains(".", regex=False).any()
        question = "Whole numbers written with decimals: are they integers?"
        return facts, question if with_decimals else None
    digits = max(map(_n_digits, texts))
    if digits <= MOST_DIGITS:
        return {**facts, "resolution": float(f"1e-{digits}")}, None
    return facts, (
        f"Numbers of more than {MOST_DIGITS} decimals: to which resolution are "
        "they known? Without one, synthetic numbers have all digits of a float."
    )


def _n_digits(text: str) -> int:
    """Return the number of decimals, negative for multiples of ten."""
    return -int(Decimal(text.strip()).normalize().as_tuple().exponent)


def _asked_of_most(present: pd.Series, known: Any, what: str, kinds: str) -> str | None:
    """Return what to ask of texts if most of them, but not all, are known."""
    if not 1 > known.mean() > MOSTLY:
        return None
    odd = json.dumps(present[~known].mode()[0], ensure_ascii=False)
    return _MIXED.format(what, odd, kinds)


def _asked_of_text(present: pd.Series, words: set[str]) -> str | None:
    """Return what to ask where texts look like something that can be learned."""
    if words <= files.TRUTHS.keys():
        return (
            'Yes or no? The kind "boolean" takes these words and gives True and False; '
            "as levels they come back as they are written."
        )
    shares = {f: files.instants_of(present, f).notna().mean() for f in _DATE_FORMATS}
    most = max(shares.values())
    if forms := [form for form in shares if shares[form] == most > MOSTLY]:
        which = " or ".join(f'"{form}"' for form in forms)
        return (
            f"Dates? Then draft again, and fit, with --date-format {which}, if all "
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


def _range(kind: str, series: pd.Series) -> dict[str, Any]:
    """Return bounds of numbers, or levels of text, as far as there are some."""
    if kind in ("integer", "continuous"):
        values = files.numbers_of(series)
        values = values[~np.isnan(values)]
        if not len(values):
            return {}
        number = int if kind == "integer" else float
        return {"lower": number(values.min()), "upper": number(values.max())}
    if kind != "categorical":
        return {}
    levels = sorted(series.dropna().astype(str).unique())
    return {"levels": levels} if 0 < len(levels) <= MOST_LEVELS else {}


def read_schema(path: str) -> Schema:
    """Read a schema from a JSON file, a draft only once a person has edited it.

    Raises
    ------
    ValueError
        As `unmarked_schema`, and for what is no JSON.
    """
    try:
        facts = json.loads(require_file(path).read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path} is not a JSON file: {error}.") from None
    return unmarked_schema(facts, path)


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
