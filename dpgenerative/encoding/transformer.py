"""From a table to cells and back.

A table is learned as *cells*, one per column and row, and positions within them. The
released masses of the cells (`marginals`) are where the model starts; inside a cell,
rare levels follow their released masses and numbers are uniform in asinh space
(`codecs`). A column that a constraint keeps above another is learned as its distance
from it (`increments`): its cells are those of the increments.

What touches rows is `TableTransformer.fit`, where every statistic passes through
`Mechanisms`, and `TableTransformer.encode`, whose output stays private. The rest reads
only what was released.
"""

from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative._random import RandomSource
from dpgenerative.encoding.codecs import LARGEST_POSITION, Codec
from dpgenerative.encoding.estimates import Estimate
from dpgenerative.encoding.increments import Increment, increments_of, learned_columns
from dpgenerative.encoding.marginals import MarginalRelease
from dpgenerative.encoding.shares import column_stds, has_open_keys
from dpgenerative.encoding.values import dtype_with_levels
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.tables.column import Column
from dpgenerative.tables.containers import labels
from dpgenerative.tables.private import Private, opened
from dpgenerative.tables.rows import Chunks, Rows, chunks, parts, room_for
from dpgenerative.tables.schema import Schema

Given = Mapping[Hashable, pd.Series]
"""Values of some columns by name, each indexed by the rows that have them."""


def with_given(drawn: pd.Series, values: pd.Series) -> pd.Series:
    """Return drawn values with those given in their places."""
    column = drawn.copy()
    column.iloc[values.index] = values.array
    return column


@dataclass(frozen=True)
class TableTransformer:
    """Cells of all columns of a table.

    Attributes
    ----------
    codecs : tuple of Codec
        One per column, in order; of increments where a column is learned as such.
    increments : tuple of Increment
        Columns that are learned as increments, after those that they are built on.
    """

    codecs: tuple[Codec, ...]
    increments: tuple[Increment, ...] = ()

    @classmethod
    def fit(
        cls,
        rows: Private[pd.DataFrame | Rows],
        schema: Schema,
        mechanisms: Mechanisms,
        *,
        n_rows: int,
        n_std: float = 0.0,
        multiplier: float,
        delta: float,
        n_bins: int,
        anchored: bool = True,
        with_missing: Collection[Hashable] = (),
        target: Hashable = None,
    ) -> "TableTransformer":
        """Release the one-way marginals of a table.

        Parameters
        ----------
        rows : Private of DataFrame or Rows
        schema : Schema
            One column per column of `rows` (`Schema.resolve`), and constraints, of
            which those of order decide what is learned as an increment.
        mechanisms : Mechanisms
            The door through which every count is released.
        n_rows : int
            The released row count.
        n_std : float, default=0
            Standard deviation of its noise.
        multiplier : float
            Noise multiplier of all releases together; 0 for no privacy.
        delta : float
            Paid for the keys of columns that `has_open_keys`.
        n_bins : int
            Number of intervals aimed at per numeric column.
        anchored : bool, default=True
            False releases domains only: uniform masses and one interval per numeric
            column (a model that is not anchored at the marginals).
        with_missing : collection of hashable
            Names of columns in which missing values are known to occur: they keep
            their cell, however few were counted.
        target : hashable, optional
            Name of the column to predict: of two levels, none counts as absent.

        Returns
        -------
        TableTransformer
        """
        learned = learned_columns(schema)
        n_open = sum(has_open_keys(c, anchored) for c in learned.values())
        noise = column_stds(schema, multiplier, n_bins, n_rows)
        stds = dict(zip(learned, noise, strict=True))
        total = Estimate(count=n_rows, variance=n_std**2)
        codecs: dict[Hashable, Codec] = {}

        def release(name: Hashable, dtype: Any, entries: Chunks[pd.Series]) -> Column:
            codecs[name] = MarginalRelease(
                learned[name], dtype, mechanisms, n_rows, total, stds[name], delta,
                n_open, n_bins, anchored, may_lose_missing=name not in with_missing,
                is_target=name == target,
            ).fit(entries)  # fmt: skip
            return codecs[name].column

        rules, dtypes = increments_of(schema), dict(opened(rows).dtypes.items())
        columns = {}
        for name in [name for name in learned if name not in rules]:
            dtype = dtype_with_levels(schema[name], dtypes[name])
            entries = chunks(rows, [name]).map(itemgetter(name))
            columns[name] = release(name, dtype, entries)
        increments = []
        for name, rule in rules.items():
            low, dtype = columns[rule.low], dtypes[name]
            increment = Increment.fitted(low, schema[name], dtype, rule.strict)
            added = chunks(rows, [rule.low, name]).map(increment.of)
            increment = increment.completed(release(name, increment.dtype, added))
            columns[name] = increment.whole.column
            increments.append(increment)
        return cls(tuple(codecs[name] for name in learned), tuple(increments))

    @property
    def schema(self) -> Schema:
        """The schema completed by what was released."""
        return Schema(codec.column for codec in self.outer)

    @property
    def names(self) -> list[Hashable]:
        """Names of the columns, in order."""
        return [codec.column.name for codec in self.codecs]

    @property
    def outer(self) -> tuple[Codec, ...]:
        """Codecs of the columns themselves, of one cell for those of increments."""
        whole: dict[Hashable, Codec] = {i.name: i.whole for i in self.increments}
        return tuple(whole.get(c.column.name, c) for c in self.codecs)

    def place(self, name: Hashable) -> int:
        """Return the place of a column."""
        return self.names.index(name)

    def _readers(self) -> Iterator[tuple[list[Hashable], Any]]:
        """Yield, for every codec, the columns it needs and a function to read them."""
        built = {each.name: each for each in self.increments}
        for name in self.names:
            if name in built:
                yield [built[name].low.name, name], built[name].of
            else:
                yield [name], itemgetter(name)

    def learned(self, frame: pd.DataFrame) -> list[pd.Series]:
        """Return what the codecs read of a table, one column each: private."""
        return [read(frame) for _, read in self._readers()]

    def encode(self, rows: pd.DataFrame | Rows) -> np.ndarray:
        """Return the cell of every entry, shape (n, d): private.

        Where rows are read by chunks, it is on disk (`tables.rows.room_for`), and made
        once.
        """
        if not isinstance(rows, Rows):
            return self._encoded(rows)
        if rows.codes is None or rows.codes[0] is not self:
            rows.codes = self, self._encoded(rows)
        return rows.codes[1]

    def _encoded(self, rows: pd.DataFrame | Rows) -> np.ndarray:
        most = max(codec.n_cells for codec in self.codecs)
        small = np.uint8 if most <= 2**8 else np.int16
        dtype = small if most <= 2**15 else np.int32
        codes = room_for(rows, len(self.codecs), dtype)
        start = 0
        for part in parts(rows):
            for j, series in enumerate(self.learned(part)):
                codes[start : start + len(part), j] = self.codecs[j].encode(series)
            start += len(part)
        return codes

    def positions(self, rows: pd.DataFrame | Rows, rng: RandomSource) -> np.ndarray:
        """Return the position of every entry within its cell, float32 of (n, d)."""
        positions = room_for(rows, len(self.codecs), np.float32)
        for j, (names, read) in enumerate(self._readers()):
            start = 0
            for series in map(read, parts(rows, names)):
                stop = start + len(series)
                positions[start:stop, j] = self.codecs[j].positions(series, rng)
                start = stop
        return np.minimum(positions, np.float32(LARGEST_POSITION), out=positions)

    def arrays(self, rows: pd.DataFrame | Rows) -> Iterator[np.ndarray]:
        """Yield all that models may see of a table, chunk by chunk: private."""
        for part in parts(rows):
            yield self.encode(part)
            yield self.positions(part, np.random.default_rng(0))

    def log_within(self, frame: pd.DataFrame) -> np.ndarray:
        """Return the log-density of every row given its cells, shape (n,)."""
        pairs = zip(self.codecs, self.learned(frame), strict=True)
        return np.sum([codec.log_within(series) for codec, series in pairs], axis=0)

    def decode(self, codes: np.ndarray, positions: np.ndarray) -> pd.DataFrame:
        """Return the table of given cells and positions, both of shape (n, d)."""
        return self.rows(codes, positions)[0]

    def rows(
        self, codes: np.ndarray, positions: np.ndarray, given: Given | None = None
    ) -> tuple[pd.DataFrame, np.ndarray]:
        """Return the table of given cells, and which rows are within all bounds.

        Parameters
        ----------
        codes, positions : ndarray of shape (n, d)
        given : mapping from name to Series, optional
            Values that take the place of drawn ones, before others are built on them.

        Returns
        -------
        frame : DataFrame
        inside : ndarray of bool of shape (n,)
            Sums with an increment can be beyond the bounds, to which they are moved.
        """
        given, cells = given or {}, codes.astype(np.int64)
        drawn = {
            codec.column.name: codec.decode(cells[:, j], positions[:, j])
            for j, codec in enumerate(self.codecs)
        }
        built = {each.name for each in self.increments}
        for name in given.keys() - built:
            drawn[name] = with_given(drawn[name], given[name])
        inside = np.ones(len(codes), dtype=bool)
        for each in self.increments:
            column, fits = each.built(drawn[each.low.name], drawn[each.name])
            if each.name in given:
                column = with_given(column, given[each.name])
                fits[given[each.name].index] = True
            drawn[each.name] = column
            inside &= fits
        frame = pd.DataFrame(dict(enumerate(drawn.values())))
        return frame.set_axis(labels(self.names), axis=1), inside
