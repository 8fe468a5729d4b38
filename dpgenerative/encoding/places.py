"""Columns that belong together, learned as one column of places.

The bounds of two or three numeric columns span a rectangle or a box. It is halved by
one column after the other, and the digits of these halvings, one after another, are the
number of a place (a Morton number). A row has one such number. To halve an interval of
numbers is to halve a box, so that the tree that cuts a single column (`marginals`) cuts
boxes where rows are (a k-d tree), by the same releases and with the same sensitivity.
Inside a box values are uniform.

Which columns are learned so follows from the schema alone; what is read of private rows
is private.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative.encoding import grid
from dpgenerative.encoding.codecs import Codec, IntervalCodec, Segments
from dpgenerative.tables.column import Column
from dpgenerative.tables.conditions import alternatives
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.values import is_missing

MOST_HALVINGS = 20
"""Number of halvings of a box, by all columns together."""
GENERATOR = 7919
"""Multiples of one position by its powers fill a box evenly (a Korobov lattice)."""


@dataclass(frozen=True, repr=False)
class PlaceColumn(Column):
    """Numbers of places: whole numbers, whose order means little."""

    @property
    def is_ordered(self) -> bool:
        """Whether cells of this column come in a meaningful order: they do not."""
        return False


def place_columns(schema: Schema) -> dict[Hashable, Column | None]:
    """Return what is learned for columns of `joint`: of each set, one for the first."""
    learned: dict[Hashable, Column | None] = {}
    for names in schema.joint:
        learned |= dict.fromkeys(names)
        learned[names[0]] = _numbers([schema[name] for name in names])
    return learned


def _numbers(columns: Sequence[Column]) -> Column:
    """Return the column of the numbers of places.

    They do not begin at 0, so that their axis is linear (`CellAxis`).
    """
    n_places = 2 ** len(_halvings(columns))
    nullable = all(column.nullable is not False for column in columns)
    return PlaceColumn(
        columns[0].name, "integer", n_places, 2 * n_places - 1, nullable=nullable
    )


def _halvings(columns: Sequence[Column]) -> list[int]:
    """Return which column every halving of the box halves, the first one first."""
    room = [_most_halvings(column) for column in columns]
    turns = [
        axis
        for turn in range(MOST_HALVINGS)
        for axis in range(len(columns))
        if turn < room[axis]
    ]
    return turns[:MOST_HALVINGS]


def _most_halvings(column: Column) -> int:
    """Return how many halvings separate all values of a column."""
    low, high = grid.ends_of(column)
    if column.step is None:
        return MOST_HALVINGS * (low < high)
    return math.ceil(math.log2(high - low + 1))


@dataclass(frozen=True)
class Places:
    """Columns of a table that are learned as one.

    Attributes
    ----------
    wholes : tuple of IntervalCodec
        The columns themselves, each in one cell, and one for missing values.
    """

    wholes: tuple[IntervalCodec, ...]

    @classmethod
    def fitted(cls, columns: Sequence[Column], dtypes: Mapping[Hashable, Any]) -> Any:
        """Return the rule for some columns, of which no mass is released yet."""
        nullable = bool(_numbers(columns).nullable)
        return cls(
            tuple(_whole(each, dtypes[each.name], nullable, 0.0) for each in columns)
        )

    def completed(self, codec: Codec) -> "Places":
        """Return it with what was released of missing values."""
        facts = bool(codec.column.nullable), codec.unnamed_mass
        return Places(
            tuple(_whole(each.column, each.dtype, *facts) for each in self.wholes)
        )

    @property
    def names(self) -> tuple[Hashable, ...]:
        """Names of the columns."""
        return tuple(each.column.name for each in self.wholes)

    @property
    def name(self) -> Hashable:
        """Name of what is learned: that of the first column."""
        return self.names[0]

    @property
    def _columns(self) -> list[Column]:
        return [each.column for each in self.wholes]

    def _edges(self) -> list[np.ndarray]:
        """Return the edges of every column's parts, in steps; the last may be empty.

        A grid's value v is in the part from a to b if a <= v < b.
        """
        axes = _halvings(self._columns)
        return [
            _even_edges(column, axes.count(j)) for j, column in enumerate(self._columns)
        ]

    # Rows to numbers ------------------------------------------------------------

    def of(self, frame: pd.DataFrame) -> pd.Series:
        """Return the numbers of the places of private rows: private.

        Missing where any of the columns is.
        """
        parts = [
            _parts_of(column, frame[column.name], edges)
            for column, edges in zip(self._columns, self._edges(), strict=True)
        ]
        missing = np.any([part < 0 for part in parts], axis=0)
        axes, left = _halvings(self._columns), [0] * len(parts)
        numbers = np.ones(len(frame), dtype=np.int64)
        for axis in axes:
            left[axis] += 1
            shift = axes.count(axis) - left[axis]
            numbers = 2 * numbers + (np.where(missing, 0, parts[axis]) >> shift & 1)
        return pd.Series(np.where(missing, np.nan, numbers))

    def log_within(self, codec: Codec, frame: pd.DataFrame) -> np.ndarray:
        """Return the log-density of every row given its cell."""
        logs = -sum(np.log(size) for size in self._sizes(codec))
        logs = np.append(logs, 0.0)  # missing
        return np.asarray(logs[codec.encode(self.of(frame))])

    # Numbers to rows ------------------------------------------------------------

    def _boxes(self, codec: Codec) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the first and the last part of every cell, by column."""
        assert isinstance(codec, IntervalCodec)
        axes, numbers = _halvings(self._columns), codec.edges + 0.5
        firsts = _digits(numbers[:-1].astype(np.int64), axes, len(self.wholes))
        lasts = _digits(numbers[1:].astype(np.int64) - 1, axes, len(self.wholes))
        return list(zip(firsts, lasts, strict=True))

    def _ends(self, codec: Codec) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return between which steps every cell lies, by column."""
        pairs = zip(self._boxes(codec), self._edges(), strict=True)
        return [(edges[first], edges[last + 1]) for (first, last), edges in pairs]

    def _sizes(self, codec: Codec) -> list[np.ndarray]:
        """Return how many values, or how much of a continuum, a cell has, by column."""
        pairs = zip(self._columns, self._ends(codec), strict=True)
        return [
            np.maximum(high - low, np.spacing(high) if column.step is None else 1.0)
            for column, (low, high) in pairs
        ]

    def built(
        self, codec: Codec, codes: np.ndarray, positions: np.ndarray
    ) -> dict[Hashable, pd.Series]:
        """Return the columns of given cells, by name."""
        ends = self._ends(codec)
        missing = codes >= len(ends[0][0])
        inside = np.where(missing, 0, codes)
        drawn, power = {}, 1
        for whole, (lows, highs) in zip(self.wholes, ends, strict=True):
            low, high = lows[inside], highs[inside]
            share = positions.astype(float) * power % 1
            steps = low * (1 - share) + high * share
            if whole.column.step is not None:
                steps = np.minimum(
                    low + np.floor((high - low) * share), highs.max() - 1
                )
            drawn[whole.column.name] = grid.from_steps(
                whole.column, whole.dtype, steps, missing
            )
            power *= GENERATOR
        return drawn

    # Conditions and values given ------------------------------------------------

    def segments(self, codec: Codec, conditions: Mapping[Hashable, Any]) -> Segments:
        """Return the cells that hold values which satisfy conditions on the columns.

        As a whole: others of their values do not satisfy them.
        """
        met = np.ones(codec.n_cells, dtype=bool)
        pairs = zip(self._columns, self._ends(codec), strict=True)
        for column, (low, high) in pairs:
            if column.name in conditions:
                last = high if column.step is None else np.maximum(high - 1, low)
                parts = alternatives(conditions[column.name])
                meets = [_overlap(column, low, last, part) for part in parts]
                met &= np.any(meets, axis=0)[: codec.n_cells]
        cells = np.flatnonzero(met)
        return Segments(cells, np.zeros(len(cells)), np.ones(len(cells)))

    def log_shares(
        self, codec: Codec, given: Mapping[Hashable, pd.Series], n: int
    ) -> np.ndarray:
        """Return the log-density of values given in n rows, given each cell.

        Parameters
        ----------
        codec : Codec
        given : mapping from name to Series
            Values of some columns, each indexed by the rows that have them.
        n : int

        Returns
        -------
        ndarray of shape (n, n_cells)
            'Missing' is possible where a value that is given is missing.
        """
        logs, absent = np.zeros((n, codec.n_cells)), np.zeros(n, dtype=bool)
        facts = zip(self._columns, self._edges(), strict=True)
        boxes = zip(self._boxes(codec), self._sizes(codec), strict=True)
        n_boxes = codec.n_cells - bool(codec.column.nullable)
        for (column, edges), ((first, last), size) in zip(facts, boxes, strict=True):
            values = given.get(column.name, pd.Series(dtype=float))
            part = _parts_of(column, values, edges)[:, None]
            inside = (first <= part) & (part <= last)
            logs[values.index, :n_boxes] += np.where(inside, -np.log(size), -np.inf)
            absent[values.index] |= part[:, 0] < 0
        logs[:, n_boxes:] = np.where(absent, 0.0, -np.inf)[:, None]
        return logs


def _whole(column: Column, dtype: Any, nullable: bool, missing: float) -> IntervalCodec:
    """Return one cell of a whole column, and one of missing values."""
    column = replace(column, nullable=nullable)
    masses = np.array([1 - missing, missing])[: 1 + nullable]
    ends = grid.edges_of(column)[[0, -1]]
    return IntervalCodec(column, dtype, masses, ends, np.full(1, np.nan))


def _even_edges(column: Column, n_halvings: int) -> np.ndarray:
    """Return the edges of equal parts of a column, on a grid its first values."""
    low, high = grid.ends_of(column)
    shares = np.linspace(0, 1, 2**n_halvings + 1)
    if column.step is None:
        return low * (1 - shares) + high * shares
    return low + np.ceil((high - low + 1) * shares)


def _parts_of(column: Column, series: pd.Series, edges: np.ndarray) -> np.ndarray:
    """Return the parts in which values lie, -1 where they are missing."""
    steps = grid.in_steps(column, series)
    parts = np.searchsorted(edges[1:-1], steps, side="right")
    return np.where(np.isnan(steps), -1, parts)


def _digits(numbers: np.ndarray, axes: Sequence[int], n: int) -> list[np.ndarray]:
    """Return the digits of every column, as one whole number each."""
    parts = [np.zeros_like(numbers) for _ in range(n)]
    for shift, axis in enumerate(axes):
        parts[axis] = 2 * parts[axis] + (numbers >> (len(axes) - 1 - shift) & 1)
    return parts


def _overlap(
    column: Column, first: np.ndarray, last: np.ndarray, part: Any
) -> np.ndarray:
    """Return which cells have values in a part of a condition, 'missing' last.

    Values lie between the ends given, in steps.
    """
    if is_missing(part):
        return np.append(np.zeros(len(first), dtype=bool), True)
    low, high = part if isinstance(part, tuple) else (part, part)
    low = column.lower if is_missing(low) else column.count(low)
    high = column.upper if is_missing(high) else column.count(high)
    if column.step is not None:
        low = math.ceil(low / column.step - 1e-6)
        high = math.floor(high / column.step + 1e-6)
    return np.append((low <= last) & (high >= first), False)
