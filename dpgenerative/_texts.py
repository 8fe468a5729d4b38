"""What texts of the command line mean: settings, conditions, values."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpgenerative.tables.column import Column
    from dpgenerative.tables.schema import Schema


def texts_by_name(
    option: str, settings: Sequence[str], allowed: Iterable[str]
) -> dict[str, str]:
    """Return the texts of name=text, by name."""
    names, texts = sorted(allowed), {}
    for setting in settings:
        heads = [name for name in names if setting.startswith(f"{name}=")]
        if not heads:
            raise ValueError(f"{option} takes name=value of {names}; got {setting!r}.")
        name = max(heads, key=len)  # which may hold the sign itself
        if name in texts:
            raise ValueError(f"{option} takes every name once; got {name!r} again.")
        texts[name] = setting[len(name) + 1 :]
    return texts


def value_of(text: str) -> Any:
    """Return what a text says as a literal of Python, or else the text.

    Words and dates in a list or an interval need no quotes: [A, B].
    """
    with suppress(SyntaxError, ValueError):
        return ast.literal_eval(text)
    if text[:1] + text[-1:] not in ("[]", "()"):
        return text
    items = [value_of(item.strip()) for item in text[1:-1].split(",")]
    return items if text[0] == "[" else tuple(items)


def conditions(schema: Schema, settings: Sequence[str]) -> dict[Any, Any] | None:
    """Return conditions by column."""
    names = {str(name): name for name in schema.names}
    given = texts_by_name("--given", settings, names)
    return {names[n]: _condition(schema[names[n]], given[n]) for n in given} or None


def _condition(column: Column, text: str) -> Any:
    """Return what a text asks of a column; a level may be written as its text.

    Booleans may be written as in a CSV file.
    """
    from dpgenerative.tables.entries import TRUTHS

    levels, word = {str(level): level for level in column.levels or ()}, text
    if column.kind == "boolean":
        levels, word = TRUTHS, text.lower().strip("'\"")
    # As it is written: the number 1.10 is also that of the level 1.1.
    if word in levels:
        return levels[word]
    if re.fullmatch(r"\[[^][()'\"]+\]", text):
        return [_condition(column, item.strip()) for item in text[1:-1].split(",")]
    value = value_of(text)
    return levels.get(value, value) if isinstance(value, str) else value
