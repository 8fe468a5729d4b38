"""Columns that belong together, learned as one column of places.

The bounds of two or three numeric columns span a rectangle or a box. It is halved by
one column after the other, and the digits of these halvings, one after another, are the
number of a place (a Morton number). A row has one such number. To halve an interval of
numbers is to halve a box, so that the tree that cuts a single column (`marginals`) cuts
boxes where rows are (a k-d tree), by the same releases and with the same sensitivity.

Between boxes the density is smooth: it is averaged over neighbours on the grid of
places, again and again, while every box keeps its mass (Tobler's pycnophylactic
interpolation). That reads released masses alone.

Which columns are learned so follows from the schema alone; what is read of private rows
is private.
"""

import math
import sys
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.ndimage import uniform_filter
from scipy.sparse import csr_array

from dpgenerative.encoding import grid
from dpgenerative.encoding.codecs import (
    Codec,
    IntervalCodec,
    Segments,
    draw_parts,
    whole_codec,
)
from dpgenerative.tables.column import Column
from dpgenerative.tables.conditions import alternatives
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.values import is_missing

MOST_HALVINGS = {2: 16, 3: 18}
"""Number of halvings of a box by all columns together, by how many these are."""
FINEST = 2.0**20
"""More values of a column than so many are as many as a continuum's."""
ROUNDS = 40
"""How many times the density is averaged over neighbours."""
LEAST_DENSITY = 1e-30
"""No place is impossible."""
GENERATOR = 7919
"""Multiples of one position by its powers fill a box evenly (a Korobov lattice)."""
Given = Mapping[Hashable, pd.Series]
"""Values of some columns by name, each indexed by the rows that have them."""


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
    most = MOST_HALVINGS[len(columns)]
    room = [min(most, _most_halvings(column)) for column in columns]
    turns = [
        axis
        for turn in range(most)
        for axis in range(len(columns))
        if turn < room[axis]
    ]
    return turns[:most]


def _most_halvings(column: Column) -> float:
    """Return how many halvings separate all values of a column."""
    low, high = grid.ends_of(column)
    if column.step is None or high - low >= FINEST:
        return math.inf if low < high else 0
    return math.ceil(math.log2(high - low + 1))


@dataclass(frozen=True)
class Places:
    """Columns of a table that are learned as one.

    Attributes
    ----------
    wholes : tuple of IntervalCodec
        The columns themselves, each in one cell, and one for missing values.
    firsts : ndarray of float of shape (n_cells,)
        The first place of every cell, a whole number.
    masses : ndarray of shape (n_cells,)
        Released masses of cells.
    """

    wholes: tuple[IntervalCodec, ...]
    firsts: np.ndarray
    masses: np.ndarray

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what follows from the rest."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def fitted(
        cls, columns: Sequence[Column], dtypes: Mapping[Hashable, Any]
    ) -> "Places":
        """Return the rule for some columns, of which nothing is released yet."""
        nullable = bool(_numbers(columns).nullable)
        wholes = (
            whole_codec(replace(each, nullable=nullable), dtypes[each.name])
            for each in columns
        )
        return cls(tuple(wholes), np.empty(0), np.empty(0))

    def completed(self, codec: Codec) -> "Places":
        """Return it with what follows from the masses that were released."""
        assert isinstance(codec, IntervalCodec)
        nullable, missing = bool(codec.column.nullable), codec.unnamed_mass
        wholes = (
            whole_codec(replace(each.column, nullable=nullable), each.dtype, missing)
            for each in self.wholes
        )
        firsts = codec.edges[:-1] - codec.edges[0]
        return Places(tuple(wholes), firsts, codec.masses[: len(firsts)])

    @cached_property
    def cells(self) -> np.ndarray:
        """Cell of every place, ascending."""
        places = np.arange(self.n_places)
        return np.asarray(np.searchsorted(self.firsts, places, side="right") - 1)

    @cached_property
    def shares(self) -> np.ndarray:
        """Probability of every place, given its cell."""
        return self._smooth(self.cells, self.masses)

    @property
    def names(self) -> tuple[Hashable, ...]:
        """Names of the columns."""
        return tuple(each.column.name for each in self.wholes)

    @property
    def name(self) -> Hashable:
        """Name of what is learned: that of the first column."""
        return self.names[0]

    @property
    def n_places(self) -> int:
        """Number of places."""
        return int(2 ** len(self._axes))

    @property
    def _columns(self) -> list[Column]:
        return [each.column for each in self.wholes]

    @property
    def _axes(self) -> list[int]:
        """Which column every halving halves, the first one first."""
        return _halvings(self._columns)

    @property
    def _edges(self) -> list[np.ndarray]:
        """The edges of every column's parts, in steps; a part may be empty.

        A grid's value v is in the part from a to b if a <= v < b.
        """
        columns = enumerate(self._columns)
        return [_even_edges(column, self._axes.count(j)) for j, column in columns]

    @property
    def _parts(self) -> list[np.ndarray]:
        """The part of every place, by column."""
        numbers = np.arange(self.n_places)
        parts, used = [np.zeros_like(numbers) for _ in self.wholes], [0] * 3
        for shift, axis in enumerate(self._axes[::-1]):
            parts[axis] |= (numbers >> shift & 1) << used[axis]
            used[axis] += 1
        return parts

    @property
    def _facts(self) -> Iterator[tuple[Column, np.ndarray, np.ndarray]]:
        """Every column with its edges and the part of every place."""
        return zip(self._columns, self._edges, self._parts, strict=True)

    def _log_size(self, names: Collection[Hashable]) -> np.ndarray:
        """Return the logarithm of how many values every place has in some columns.

        Of a continuum, how large it is; -inf of a place without any value.
        """
        log_size = np.zeros(self.n_places)
        for column, edges, part in self._facts:
            if column.name in names:
                lengths = edges[1:] - edges[:-1]
                if column.step is None:
                    lengths = np.maximum(lengths, np.spacing(np.abs(edges[1:])))
                with np.errstate(divide="ignore"):
                    log_size += np.log(lengths)[part]
        return log_size

    def _smooth(self, cells: np.ndarray, masses: np.ndarray) -> np.ndarray:
        """Return shares of places in their cells, by a density without jumps."""
        log_size = self._log_size(self.names)
        size = np.exp(log_size - log_size.max())
        size = np.where(np.bincount(cells, size)[cells] > 0, size, 1.0)
        order = np.lexsort(self._parts[::-1])
        shape = [len(edges) - 1 for edges in self._edges]
        density = np.ones(self.n_places)
        for turn in range(ROUNDS + 1):
            if turn:
                box = density[order].reshape(shape)
                density[order] = uniform_filter(box, 3, mode="nearest").ravel()
            density = np.maximum(density, LEAST_DENSITY)
            density *= (masses / np.bincount(cells, density * size))[cells]
        shares = np.maximum(density, LEAST_DENSITY) * size
        return np.asarray(shares / np.bincount(cells, shares)[cells])

    # Rows to numbers ------------------------------------------------------------

    def _located(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the place of private rows, -1 where a column is missing: private."""
        keys, chosen = self._keys(self.names, frame, slice(None))
        return np.append(keys.argsort(), -1)[chosen]  # a place has a key of its own

    def of(self, frame: pd.DataFrame) -> pd.Series:
        """Return the numbers of the places of private rows: private.

        Missing where any of the columns is.
        """
        places = self._located(frame)
        return pd.Series(np.where(places < 0, np.nan, self.n_places + places))

    def log_within(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the log-density of every row given its cell."""
        log_size = self._log_size(self.names)
        with np.errstate(divide="ignore"):  # places without any value
            logs = np.log(self.shares) - np.maximum(log_size, -sys.float_info.max)
        return np.asarray(np.append(logs, 0.0)[self._located(frame)])

    # Numbers to rows ------------------------------------------------------------

    def built(
        self, codes: np.ndarray, positions: np.ndarray, given: Given
    ) -> dict[Hashable, pd.Series]:
        """Return the columns of given cells and positions, by name.

        Parameters
        ----------
        codes, positions : ndarray of shape (n,)
        given : mapping from name to Series
            Values of some columns, each indexed by the rows that have them: the others
            are drawn among the places with these.
        """
        missing = codes > self.cells[-1]
        inside = np.where(missing, 0, codes)
        places = draw_parts(self.cells, self.shares, inside, positions)[0]
        for rows, keys, chosen, _ in self._patterns(given, len(codes)):
            rows, chosen = rows[chosen >= 0], chosen[chosen >= 0]
            # Places of one key in one cell, next to each other.
            n_keys, order = keys.max() + 1, np.lexsort([keys, self.cells])
            groups = self.cells * n_keys + keys
            of = inside[rows] * n_keys + chosen
            drawn, _ = draw_parts(
                groups[order], self.shares[order], of, positions[rows]
            )
            places[rows] = order[drawn]
        return self._drawn(places, positions, missing)

    def _drawn(
        self, places: np.ndarray, positions: np.ndarray, missing: np.ndarray
    ) -> dict[Hashable, pd.Series]:
        """Return values inside places, by name."""
        columns, power = {}, GENERATOR
        for whole, (column, edges, part) in zip(self.wholes, self._facts, strict=True):
            low, high = edges[part[places]], edges[part[places] + 1]
            share = positions.astype(float) * power % 1
            steps = low * (1 - share) + high * share
            if column.step is not None:
                steps = np.minimum(low + np.floor((high - low) * share), edges[-1] - 1)
            columns[column.name] = grid.from_steps(column, whole.dtype, steps, missing)
            power *= GENERATOR
        return columns

    # Conditions and values given ------------------------------------------------

    def segments(self, conditions: Mapping[Hashable, Any]) -> Segments:
        """Return the places that hold values which satisfy conditions on the columns.

        As a whole: others of their values do not satisfy them.
        """
        met = np.ones(self.n_places + 1, dtype=bool)
        for column, edges, part in self._facts:
            if column.name in conditions:
                meets = _meets(column, edges, conditions[column.name])
                met &= meets[np.append(part, len(edges) - 1)]
        met[-1] &= bool(self._columns[0].nullable)
        ends = np.cumsum(self.shares)
        starts = np.append(0.0, ends[:-1])
        first = starts[np.searchsorted(self.cells, self.cells)]
        low, high = np.append(starts - first, 0.0), np.append(ends - first, 1.0)
        cells = np.append(self.cells, self.cells[-1] + 1)
        return Segments(cells[met], low[met].clip(0, 1), high[met].clip(0, 1))

    def log_shares(self, given: Given, n: int, n_cells: int) -> np.ndarray:
        """Return the log-density of values given in n rows, given each cell.

        Up to a constant of each row.

        Parameters
        ----------
        given : mapping from name to Series
            As `built` takes it.
        n, n_cells : int

        Returns
        -------
        ndarray of shape (n, n_cells)
            'Missing' is possible where a value that is given is missing.
        """
        logs = np.zeros((n, n_cells))
        n_boxes = int(self.cells[-1]) + 1
        logs[:, n_boxes:] = -np.inf
        for rows, keys, chosen, log_size in self._patterns(given, n):
            least = log_size[np.isfinite(log_size)].min()
            densities = self.shares * np.exp(np.minimum(least - log_size, 0.0))
            shares = csr_array((densities, (keys, self.cells)))
            with np.errstate(divide="ignore"):
                logs[rows, :n_boxes] = np.log(shares[chosen.clip(0)].toarray())
            absent = rows[chosen < 0]
            logs[absent, :n_boxes], logs[absent, n_boxes:] = -np.inf, 0.0
        return logs

    def _patterns(self, given: Given, n: int) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield, for every set of columns that some rows have, what is given in them.

        These are the rows, and as one number per place and per row the parts of these
        columns: -1 where a value that is given is missing. Then the places' log-sizes.
        """
        named = [name for name in self.names if name in given]
        if not named:
            return
        has = np.zeros((n, len(named)), dtype=bool)
        for j, name in enumerate(named):
            has[given[name].index, j] = True
        for pattern in np.unique(has, axis=0):
            names = [named[j] for j in np.flatnonzero(pattern)]
            if names:
                rows = np.flatnonzero((has == pattern).all(axis=1))
                yield rows, *self._keys(names, given, rows), self._log_size(names)

    def _keys(
        self, names: Sequence[Hashable], given: Given, rows: np.ndarray | slice
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the parts of some columns as one number, per place and per row.

        That of a row is -1 where any of them is missing.
        """
        facts = [fact for fact in self._facts if fact[0].name in names]
        shape = [len(edges) - 1 for _, edges, _ in facts]
        chosen = [
            _parts_of(column, given[column.name].loc[rows], edges)
            for column, edges, _ in facts
        ]
        keys = np.ravel_multi_index([part for _, _, part in facts], shape)
        numbers = np.ravel_multi_index([np.maximum(x, 0) for x in chosen], shape)
        return keys, np.where(np.min(chosen, axis=0) < 0, -1, numbers)


def _even_edges(column: Column, n_halvings: int) -> np.ndarray:
    """Return the edges of equal parts of a column, on a grid its first values."""
    low, high = grid.ends_of(column)
    shares = np.linspace(0, 1, 2**n_halvings + 1)
    if column.step is None:
        return np.maximum.accumulate(low * (1 - shares) + high * shares)
    return np.ceil(low * (1 - shares) + (high + 1) * shares)


def _parts_of(column: Column, series: pd.Series, edges: np.ndarray) -> np.ndarray:
    """Return the parts in which values lie, -1 where they are missing."""
    steps = grid.in_steps(column, series)
    parts = np.searchsorted(edges[1:-1], steps, side="right")
    return np.where(np.isnan(steps), -1, parts)


def _meets(column: Column, edges: np.ndarray, condition: Any) -> np.ndarray:
    """Return which parts of a column have values that satisfy it, 'missing' last."""
    first, last = edges[:-1], edges[1:]
    if column.step is not None:
        last = np.maximum(last - 1, first)
    met = np.zeros(len(edges), dtype=bool)
    for each in alternatives(condition):
        if is_missing(each):
            met[-1] = True
            continue
        low, high = grid.asked_between(column, each)
        low, high = max(low, column.lower), min(high, column.upper)
        low, high = grid.steps_between(column, low, high)
        met[:-1] |= (low <= last) & (high >= first)
    return met
