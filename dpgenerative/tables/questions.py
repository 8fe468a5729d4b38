"""Questions that a draft of a schema asks: what only a person can know of a column."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations, takewhile
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative.tables import entries
from dpgenerative.tables.values import as_objects

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
UNIQUE = (
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
_CODED = (
    "Does {} mean missing? As a number it counts in means. Of a CSV file draft again "
    "with --na={}, or list it under 'na' in 'csv'."
)
_NINES = r"9*[6-9](\.0*)?"
"""Codes for missing, refused and their like: 9, 97, 998, 9999."""
_KEY = (
    "Rows of one value agree in {0}. Is it the key of a person with several rows? Then "
    '"role": "unit" takes the place of its bounds or levels, and columns of one value '
    'per person are "per_unit": true. Without a key a person with many rows is hardly '
    "protected. Is it a code? Then state by Determines what follows from it."
)
_COMPUTED = (
    "Is it {0} in every row, as in those read? Then state "
    '{{"constraint": "Derived", "name": {1}, "expression": {2}}} under "constraints": '
    "it is then exact, and nothing is spent on it."
)
MOST_LEVELS = 50
"""Text with more different values is drafted without levels."""
MOST_CODES = 3
"""Different numbers, at most, that may be codes for missing."""


def quoted(text: Any) -> str:
    """Return text as JSON writes it."""
    return json.dumps(str(text), ensure_ascii=False)


def asked_of_text(
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
    return _MIXED.format(what, quoted(odd.index[odd == odd.max()].min()), kinds)


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


def asked_of_markers(counts: pd.Series) -> str | None:
    """Return what to ask of texts that often mean missing."""
    markers = counts.index[_are_markers(counts)]
    return _MARKED.format(" or ".join(map(quoted, markers))) if len(markers) else None


def asked_of_unique(counts: pd.Series) -> str | None:
    """Return what to ask of values of which hardly one repeats."""
    is_unique = len(counts) > max(MOST_LEVELS, MOSTLY * counts.sum())
    return UNIQUE if is_unique else None


def asked_of_clocks(numbers: np.ndarray) -> str | None:
    """Return what to ask of different numbers that all are times written as HHMM."""
    hours, minutes = np.divmod(numbers, 100)
    if len(numbers) < ENOUGH or numbers.min() < 0 or numbers.max() > 2400:
        return None
    is_clock = np.isin(minutes, np.arange(60)).all() and len(set(hours)) > 4
    # Multiples of 50 are amounts rather than times.
    return _CLOCK if is_clock and (minutes % 50).any() else None


def asked_of_codes(counts: pd.Series, numbers: np.ndarray) -> str | None:
    """Return what to ask of a few numbers of several rows each, as codes are.

    That is of some that alone are negative; of 99, 997 and their like, if they lie
    farther from all others than these from each other.
    """
    order = np.argsort(numbers)
    negative, order = order[numbers[order] < 0], order[::-1]
    texts = [str(counts.index[place]).strip() for place in order]
    n = sum(1 for _ in takewhile(re.compile(_NINES).fullmatch, texts))
    rest = numbers[order[n:]]
    if 0 < n < len(texts) and numbers[order[n - 1]] - rest[0] <= rest[0] - rest[-1]:
        n = 0
    for codes in (negative, order[:n]):
        is_whole = np.array_equal(numbers[codes], np.round(numbers[codes]))
        is_few = 0 < len(codes) <= min(MOST_CODES, len(numbers) - 2) and is_whole
        if is_few and counts.iloc[codes].min() > 1:
            texts = [str(counts.index[place]).strip() for place in codes]
            return _CODED.format(" or ".join(texts), texts[0])
    return None


def asked_between(
    frame: pd.DataFrame, columns: Sequence[dict[str, Any]], form: entries.CsvFormat
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield columns of a draft and what to ask of them, as they follow from others."""
    for column, prefix in _nested(frame, columns):
        yield column, _NESTED.format(quoted(prefix))
    for column, formula in _computed(frame, columns, form):
        texts = formula.replace("`", ""), quoted(column["name"]), quoted(formula)
        yield column, _COMPUTED.format(*texts)
    for column, names in _keys(frame, columns):
        yield column, _KEY.format(" and ".join(map(quoted, names[:3])))


def _keys(
    frame: pd.DataFrame, columns: Sequence[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """Yield columns of which rows of one value agree in others, and these."""
    head = frame.head(SCREENED)
    varied = [name for name in frame if frame[name].nunique() > 1]
    for column in columns:
        name, kind = column["name"], column["kind"]
        if "role" in column or kind not in ("integer", "categorical"):
            continue
        sizes = frame[name].value_counts()
        if len(sizes) <= MOST_LEVELS or (sizes > 1).mean() < MOSTLY:
            continue
        others = [each for each in varied if each != name]
        fixed = [
            each
            for each in others
            if _agree(head, name, each) and _agree(frame, name, each)
        ]
        if fixed:
            yield column, fixed


def _agree(rows: pd.DataFrame, name: Any, other: Any) -> bool:
    """Return whether rows of one value have one value of another column."""
    pairs = rows[[name, other]].dropna().drop_duplicates()
    return not pairs[name].duplicated().any()


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
