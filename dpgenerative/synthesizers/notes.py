"""Notes and public facts of a domain, for the privacy report."""

import math
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from dpgenerative.encoding.calendar import parts_of
from dpgenerative.encoding.codecs import Codec, LevelCodec
from dpgenerative.encoding.values import NO_NUMBERS
from dpgenerative.privacy.plan import PrivacyPlan
from dpgenerative.privacy.tables import TABLES
from dpgenerative.tables.column import Column
from dpgenerative.tables.dtypes import can_hold_missing
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.times import PER_DAY

MOSTLY_MISSING = 0.5
"""Released share of missing values, and of those too rare to be released, from which a
column without stated levels is lost."""
NEARLY_MISSING = 0.95
"""The same for columns of numbers, times and stated levels."""
AT_A_BOUND = 0.995
"""Share of the first or the last cell among released values that are not missing."""
ORDERED_ONLY = (
    "With so few rows, gradients learned the dependence between ordered columns only: "
    "nominal columns are independent unless a contingency table of them was released."
)
MOST_LISTED = 50
"""Most names of columns that a sentence lists."""
LOST = (
    "No value was frequent enough to be released in {}: the values sampled there are "
    "meaningless.",
    "Most values in {} were missing or too rare to release: rare text appears as the "
    "level 'other' of the column, rare numbers appear as missing or as other levels. "
    "State the levels in a Schema, or drop the column.",
    "Most values in {} are missing, or neither dates nor texts in ISO 8601.",
    "Nearly all values in {} are missing, or not of the kind or levels stated: leave "
    "such columns out, or correct what is stated by its public source. To the owner of "
    "the rows alone, schema.check(df) counts the cells that do not fit.",
    "Only 0, or numbers very close to it, were frequent enough to be released in {}. "
    "State public bounds in a Schema to keep rarer values, or raise epsilon.",
)
LOST_ADVICE = (
    'State public levels or a kind in a Schema ("datetime" reads Python\'s dates), '
    'declare identifiers (role="id"), derive levels or numbers from texts, lists and '
    "times of day, or leave such columns out."
)
NOISE_STATED = (
    "The noise multiplier was stated. Epsilon was computed from it and from the "
    "released row count, which sets the sampling rate: it was not known before the "
    "fit, and holds for outcomes with this count."
)


def named_tables(fitted: Any) -> list[tuple[Hashable, ...]]:
    """Return the column names of the tables that a fitted model was corrected by."""
    check_is_fitted(fitted)
    names = fitted._transformer.names
    return [tuple(names[j] for j in columns) for columns in fitted._model.counted]


def counted_tables(
    tables: Sequence[Sequence[Hashable]], plan: PrivacyPlan
) -> tuple[str, ...]:
    """Return which contingency tables were released, if there was a share for any."""
    if math.isinf(plan.multiplier(TABLES)):
        return ()
    if not tables:
        return ("No contingency table was released: none was worth its noise.",)
    named = "; ".join(" x ".join(map(str, names)) for names in tables)
    return (f"Contingency tables measured: {named}.",)


def public_facts(
    schema: Schema, stated: Schema, typed: Collection[Hashable]
) -> tuple[str, ...]:
    """Return what the schema, dtypes and parameters state, which costs no budget.

    Columns that are `typed` have the levels of their dtype where none are stated.
    """
    columns, named = schema.columns, [c.name for c in stated.columns if c.levels]
    levels = [c.name for c in columns if c.levels is not None]
    by_dtype = [name for name in levels if name in typed and name not in named]
    ids = [c.name for c in stated.columns if c.role == "id"]
    keys = [c.name for c in stated.columns if c.role in ("unit", "owner")]
    bounded = [c for c in columns if c.lower is not None]
    by_fact: dict[str, list[Hashable]] = {
        "bounds of": [f"{c.name} ({c.lower} to {c.upper})" for c in bounded],
        "resolution of": [c.name for c in columns if c.resolution is not None],
        "no missing values in": [c.name for c in columns if not c.nullable],
        "levels of": [name for name in levels if name not in by_dtype],
        "levels of a category dtype (not covered if listed from the rows):": by_dtype,
        "identifiers, which are not read:": ids,
        "keys of persons, which say whose a row is:": keys,
    }
    facts = ["column names, order, dtypes and kinds; constructor parameters"]
    facts += [f"{fact} {listed(names)}" for fact, names in by_fact.items() if names]
    facts += [f"learned together: {listed(names)}" for names in stated.joint]
    for each in stated.constraints:
        facts.append(f"constraint {type(each).__name__} on {listed(each.columns)}")
    return tuple(facts)


def lost_columns(schema: Schema, codecs: Sequence[Codec], private: bool) -> str:
    """Return which columns were released hardly or not at all, and what to do."""
    lost: dict[str, list[Hashable]] = {text: [] for text in LOST}
    empty, rare, undated, unread, zero = lost.values()
    for codec in codecs:
        column = schema[codec.column.name]
        released = codec.column
        mostly_missing = codec.unnamed_mass >= MOSTLY_MISSING
        nothing = NO_NUMBERS if column.other is None else (column.other,)
        if column.kind == "categorical" and column.levels is None and mostly_missing:
            (empty if released.levels == nothing else rare).append(column.name)
        elif pd.api.types.is_object_dtype(codec.dtype) and column.temporal:
            undated += [column.name] if mostly_missing else []
        elif codec.unnamed_mass > NEARLY_MISSING:
            unread.append(column.name)
        elif private and column.lower is None and released.lower == released.upper == 0:
            zero.append(column.name)
    texts = [text.format(listed(names)) for text, names in lost.items() if names]
    advice = [LOST_ADVICE] if empty or rare or undated else []
    return " ".join([*texts, *advice])


def listed(names: Sequence[Hashable]) -> str:
    """Return names as a list in words, the first of many."""
    more = len(names) - MOST_LISTED
    text = ", ".join(str(name) for name in names[:MOST_LISTED])
    return f"{text} and {more} more" if more > 0 else text


def domain_notes(schema: Schema, codecs: Sequence[Codec]) -> Iterator[str]:
    """Yield what the released domain leaves out, and how to state it."""
    pairs = [(schema[codec.column.name], codec.column) for codec in codecs]
    shared = {a.name: b.other for a, b in pairs if a.levels is None}
    if others := [name for name, other in shared.items() if other is not None]:
        named = listed([repr(level) for level in {shared[name]: 0 for name in others}])
        yield (
            f"Levels of {listed(others)} were estimated privately. Rarer values share "
            f"one level of their column: {named}. Where the list of levels is public, "
            "state it in a Schema: none is lost then."
        )
    bounded = [b for a, b in pairs if a.numeric and a.lower is None]
    if names := [column.name for column in bounded]:
        yield (
            f"Bounds of {listed(names)} were estimated privately, from noisy counts. "
            "Values outside the bounds in schema_ were moved to the nearest bound, and "
            "samples may hold values that no row can have, such as negative counts. "
            "State public bounds in a Schema: the fit then spends nothing on finding "
            "them."
        )
    if constant := [f"{b.name} ({b.lower})" for b in bounded if b.lower == b.upper]:
        yield (
            f"A single value stands for {listed(constant)}: other values, if there are "
            "any, are too few to distinguish from noise. State bounds to keep them."
        )
    if names := [c.column.name for c in codecs if _lies_at_a_bound(schema, c)]:
        yield (
            f"Nearly all values of {listed(names)} lie at a stated bound, or beyond: "
            "schema.check(df) counts those beyond."
        )
    codes = [c for c in codecs if not can_hold_missing(c.dtype) and c.column.nullable]
    if codes:
        shares = [f"{100 * c.unnamed_mass:.3g} % of {c.column.name}" for c in codes]
        yield (
            f"Values that are neither stated nor estimated levels: {listed(shares)}. "
            "These dtypes hold no missing values, so samples have other levels there, "
            "as often as these occur. State public levels, or `other`, in a Schema."
        )
    none = [c for c in codecs if can_hold_missing(c.dtype) and not c.column.nullable]
    if names := [c.column.name for c in none if schema[c.column.name].nullable]:
        yield (
            f"Missing values of {listed(names)}, if there are any, are too few to "
            "distinguish from noise: samples have none. State nullable=True in a "
            "Schema to keep their noisy share, or nullable=False to spend nothing on "
            "them."
        )


def lost_structure(
    schema: Schema, codecs: Sequence[Codec], increments: Collection[Hashable]
) -> Iterator[str]:
    """Yield which structure inside columns could not be learned."""
    shared = {c.column.name: _n_sharing(c) for c in codecs}
    if names := [f"{name} ({n} levels)" for name, n in shared.items() if n]:
        yield (
            f"Rare levels of {listed(names)} share cells: samples have them as often "
            "as released, but what they go with was learned for all of a cell at once. "
            "If they lie in groups of another column, state a Determines constraint."
        )
    timed = [c for c in schema.modelled if c.kind == "datetime" and PER_DAY[c.unit] > 1]
    if apart := [c.name for c in timed if c.name in increments]:
        yield (
            f"Hours and weekdays of {listed(apart)} were not learned, but the distance "
            "from the time before. State which are worth more: "
            "Column(..., cycles=('hour', 'weekday'))."
        )
    whole = [c.name for c in timed if len(parts_of(c)) == 1]
    if plain := [name for name in whole if name not in increments]:
        yield (
            f"Hours and weekdays of {listed(plain)} were not learned: its values are "
            "spread evenly over each cell, night and day."
        )


def _n_sharing(codec: Codec) -> int:
    """Return how many levels share a cell with others."""
    if not isinstance(codec, LevelCodec):
        return 0
    sizes = np.bincount(codec.level_cells)
    return int(sizes[sizes > 1].sum())


def _lies_at_a_bound(schema: Schema, codec: Codec) -> bool:
    """Return whether nearly all released values lie at one of the stated bounds."""
    column = schema[codec.column.name]
    if not column.numeric or column.lower is None or column.lower == column.upper:
        return False
    masses = codec.masses[: len(codec.masses) - bool(codec.column.nullable)]
    if len(masses) < 2:
        return False
    return bool(max(masses[0], masses[-1]) > AT_A_BOUND * masses.sum())


def unit_notes(noise: str, rows_per_unit: int, key: Column | None) -> tuple[str, ...]:
    """Return the notes of every fit, and of its noise; `key` is that of persons."""
    unit = (
        "The privacy unit is one row: a person with k rows gets k times epsilon (and "
        "a larger delta). Aggregate to one row per person, or state max_rows_per_unit."
    )
    if rows_per_unit > 1:
        unit = (
            f"The privacy unit is a person with at most {rows_per_unit} rows. The "
            "fit does not check this: whoever prepares the table must ensure it."
        )
    if key is not None:
        read = f"Of more than {rows_per_unit} rows the first are read"
        read = read if key.role == "unit" else "One row of each is read"
        unit = "The privacy unit is a person, with all of their rows. "
        unit += f"{read}, and rows without a key are not."
    notes = [
        unit,
        "Each call of fit on the same rows spends this much again.",
        "Not covered: what a fitted model returns for private rows (score_samples, "
        "encode and the like), timing, memory.",
    ]
    if noise == "secure":
        notes.append(
            'noise="secure": noise and batches came from the operating system\'s '
            "cryptographic generator, every normal the sum of several."
        )
    if noise == "reproducible":
        notes.insert(
            0,
            'noise="reproducible": noise and batches follow random_state; whoever '
            "knows the seed can remove the noise and undo the guarantee, and nothing "
            "is promised across two fits with one seed: their noise is the same.",
        )
    return tuple(notes)
