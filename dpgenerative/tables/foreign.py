"""What other tools call the kinds of columns, and how to state them here."""

import re
from collections.abc import Mapping
from typing import Any

KINDS = ("continuous", "integer", "categorical", "boolean", "datetime", "timedelta")
_ID = '"categorical" (or "integer") with role="id"'
_PERSONAL = f"none: leave the column out, or state {_ID}"
_HINTS = {
    '"continuous", or "integer" for whole numbers': "numerical numeric number",
    '"continuous"': "float double decimal real latitude longitude",
    '"integer"': "int uint long bigint smallint",
    '"categorical"': """
        category string str object nominal enum factor varchar
        city country_code administrative_unit state state_abbr postcode
        """,
    '"categorical" with levels and ordered=True': "ordinal ordered",
    '"boolean"': "bool",
    '"datetime"': "date timestamp",
    '"timedelta"': "duration interval",
    _ID: "id identifier key uuid primary_key",
    _PERSONAL: """
        unknown pii email phone_number ssn name first_name last_name address
        street_address secondary_address company ipv_address mac_address url
        user_agent_string credit_card_number iban swift license_plate vin
        """,
}
_WORDS = {word: hint for hint, words in _HINTS.items() for word in words.split()}


def kind_hint(kind: Any) -> str | None:
    """Return which kind another tool's word or dtype stands for; None if unknown."""
    name = str(getattr(kind, "__name__", kind))
    word = re.sub(r"[\[(].*|\d", "", name.lower(), flags=re.DOTALL)
    return f'"{word}"' if word in KINDS else _WORDS.get(word)


def refuse_metadata(what: str, value: Any) -> None:
    """Refuse SDV's metadata by an error that lists the columns to state.

    Raises
    ------
    ValueError
        For metadata of one or several tables, as dictionaries or as SDV's objects.
    """
    tables = _tables(value)
    if not tables:
        return
    names: dict[str, list[str]] = {}
    for table, each in tables.items():
        for name, column in each["columns"].items():
            hint = _column_hint(name, column, each.get("primary_key"))
            prefix = f"{table}." if len(tables) > 1 else ""
            names.setdefault(hint, []).append(f"{prefix}{name}")
    kinds = "; ".join(f"{hint} for {', '.join(some)}" for hint, some in names.items())
    one = " of one table, which is all that a synthesizer learns," * (len(tables) > 1)
    raise ValueError(
        f"{what} is SDV's metadata and no Schema: state the columns{one} as "
        f"Schema([Column(name, kind), ...]), of kind {kinds}."
    )


def _tables(value: Any) -> dict[str, Any]:
    """Return the tables of SDV's metadata by name; none of anything else."""
    is_own = type(value).__module__.partition(".")[0] == "sdv"
    facts = value.to_dict() if is_own else value
    tables = _mapping(facts, "tables") or {"": facts}
    for table in tables.values():
        columns = _mapping(table, "columns")
        if not columns or not all("sdtype" in _mapping(columns, n) for n in columns):
            return {}
    return dict(tables)


def _mapping(facts: Any, key: Any) -> Mapping[Any, Any]:
    """Return a mapping inside another one, empty where either is none."""
    inner = facts.get(key) if isinstance(facts, Mapping) else None
    return inner if isinstance(inner, Mapping) else {}


def _column_hint(name: Any, facts: Mapping[str, Any], key: Any) -> str:
    """Return the kind of a column of SDV's metadata; `key` is its table's."""
    if name in (key if isinstance(key, (list, tuple)) else [key]):
        return _ID
    is_whole = "int" in str(facts.get("computer_representation")).lower()
    # What SDV has other words for is personal data, of which it makes up new.
    return kind_hint("int" if is_whole else facts["sdtype"]) or _PERSONAL
