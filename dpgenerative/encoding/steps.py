"""Cells of what is given of a step of linked rows (`tables.sequences`).

What a person's row before holds has the cells that rows have now, and so have means of
rows before. Places follow from the number of rows. So nothing is released for these,
but where a column is learned by parts, or as it differs from another.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace

import numpy as np

from dpgenerative.encoding.codecs import Codec, IntervalCodec, LevelCodec
from dpgenerative.encoding.increments import learned_columns
from dpgenerative.encoding.values import dtype_with_levels
from dpgenerative.tables.column import Column
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.sequences import NUMBER, PLACE, Sequences

LEAST_MASS = 1e-6
"""Of a cell that no released count says anything of."""


def repeated(schema: Schema, sequences: Sequences | None) -> dict[Hashable, Hashable]:
    """Return columns whose cells follow from those of another, by name: that one."""
    if sequences is None:
        return {}
    learned = learned_columns(schema)
    names = {PLACE: NUMBER, **sequences.before, **sequences.means}
    return {
        given: name for given, name in names.items() if learned[name] == schema[name]
    }


def counted(schema: Schema, sequences: Sequences | None) -> Schema:
    """Return the columns of which something is released, and the rules among them."""
    return schema.without(repeated(schema, sequences).keys())


def given_codec(
    column: Column, dtype: object, now: Codec, codecs: Mapping[Hashable, Codec]
) -> Codec:
    """Return the cells of a given column, from those of the column that it repeats."""
    shares = shares_of_places(codecs[NUMBER])
    if column.name == PLACE:
        edges = np.arange(len(shares) + 1) + 0.5
        own = column.bounded(1, len(shares))
        return IntervalCodec(own, dtype, shares, edges, edges[1:] - 0.5)
    masses = (1 - shares[0]) * now.masses
    if now.column.nullable:
        masses[-1] += shares[0]
    else:
        masses = np.append(masses, shares[0])
    own = replace(now.column, name=column.name, nullable=True, per_unit=False)
    if isinstance(now, LevelCodec):
        cells, parts = now.level_cells, now.level_masses
        if not now.column.nullable:
            cells, parts = np.append(cells, now.n_cells), np.append(parts, 1.0)
        dtype = dtype_with_levels(own, dtype)
        return LevelCodec(own, dtype, masses, cells, parts)
    assert isinstance(now, IntervalCodec)
    if column.kind != now.column.kind or column.step != now.column.step:
        return _averaged(column, dtype, now, masses)
    return IntervalCodec(own, dtype, masses, now.edges, now.values)


def _averaged(
    column: Column, dtype: object, now: IntervalCodec, masses: np.ndarray
) -> IntervalCodec:
    """Return the cells of means of a column's values: those of the column.

    Between cells of one value each, which lie apart, there are cells of their own.
    """
    step = now.column.numbers.step
    ends = np.stack([now.edges[:-1], now.edges[1:]], 1)
    if step is not None:
        is_single = ~np.isnan(now.values)
        ends[is_single] = now.values[is_single, None] + [-0.25, 0.25]
        ends *= step
    edges = np.unique(ends)
    own = column.bounded(now.column.lower, now.column.upper)
    middle = (edges[:-1] + edges[1:]) / 2
    cells = np.searchsorted(ends[:, 0], middle, side="right") - 1
    parts = np.where(middle < ends[cells, 1], np.diff(edges), 0.0)
    lengths = ends[cells, 1] - ends[cells, 0]
    inner = np.maximum(masses[cells] * parts / lengths, LEAST_MASS)
    masses = np.append(inner, masses[-1])
    blank = np.full(len(inner), np.nan)
    return IntervalCodec(own, dtype, masses / masses.sum(), edges, blank)


def shares_of_numbers(number: Codec) -> np.ndarray:
    """Return the shares of people who have 1, 2, ... rows."""
    assert isinstance(number, IntervalCodec)
    whole = np.floor(number.edges).astype(int)
    lengths = np.diff(whole)
    shares = np.zeros(whole[-1])
    shares[whole[0] :] = np.repeat(number.masses[: len(lengths)] / lengths, lengths)
    return shares


def shares_of_places(number: Codec) -> np.ndarray:
    """Return the shares of steps at each place: one of a person's rows is as likely."""
    numbers = shares_of_numbers(number)
    ends = numbers / np.arange(1, len(numbers) + 1)
    shares = np.maximum(ends[::-1].cumsum()[::-1], LEAST_MASS)
    return np.asarray(shares / shares.sum())
