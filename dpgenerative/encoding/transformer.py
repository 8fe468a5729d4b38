"""From a table to cells and back.

A table is learned as *cells*, one per column and row, and positions within them. The
released masses of the cells (`marginals`) are where the model starts; inside a cell,
rare levels follow their released masses and numbers are uniform in asinh space
(`codecs`). A column that a constraint keeps above another is learned as its distance
from it (`increments`): its cells are those of the increments. Columns that belong
together are learned as one (`places`), whose cells are boxes.

What reads private rows is `TableTransformer.fit`, where every statistic passes through
`Mechanisms`, and `learned`, `encode`, `positions` and `arrays`, whose output stays
private. So does that of `log_within`, for scores. The rest reads only what was
released.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from dpgenerative._random import RandomSource
from dpgenerative.encoding.calendar import Calendar, replace_missing
from dpgenerative.encoding.codecs import LARGEST_POSITION, Codec
from dpgenerative.encoding.estimates import Estimate
from dpgenerative.encoding.increments import (
    Increment,
    distinct,
    increment_column,
    increments_of,
    learned_columns,
    nested_signs,
)
from dpgenerative.encoding.marginals import MarginalRelease
from dpgenerative.encoding.nesting import Nesting, nested_levels, nesting_rules
from dpgenerative.encoding.places import Given, Places
from dpgenerative.encoding.shares import cells_aimed_at, column_stds, has_open_keys
from dpgenerative.encoding.steps import counted, given_codec, repeated
from dpgenerative.encoding.stick_breaking import StickBreaking, stick_breaks_of
from dpgenerative.encoding.values import dtype_with_levels
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.tables.column import Column
from dpgenerative.tables.containers import labels
from dpgenerative.tables.private import Private, opened
from dpgenerative.tables.rows import Chunks, Rows, chunks, parts, room_for
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.sequences import Sequences

Built = Increment | StickBreaking
"""Columns that are learned by what lies between them and others."""
B = TypeVar("B", Increment, StickBreaking)


@dataclass(frozen=True)
class _Learning:
    """What is released of the columns of private rows, one after another.

    Attributes
    ----------
    rows : Private of DataFrame or Rows
    schema : Schema
    dtypes : mapping from name to dtype
    release : callable
        Releases the marginal of a name, a dtype and private values; of increments,
        with the column of these.
    """

    rows: Private[Any]
    schema: Schema
    dtypes: Mapping[Hashable, Any]
    release: Callable[..., Codec]

    def places(self, with_missing: Collection[Hashable]) -> tuple[Places, ...]:
        """Return the columns that are learned together, released."""
        places = []
        for names in self.schema.joint:
            place = Places.fitted([self.schema[name] for name in names], self.dtypes)
            entries = chunks(self.rows, list(names)).map(place.of)
            whole = next((name for name in names if name in with_missing), None)
            codec = self.release(names[0], np.dtype(float), entries, whole)
            places.append(place.completed(codec))
        return tuple(places)

    def single(
        self, columns: Sequence[Column]
    ) -> tuple[dict[Hashable, Column], list[Calendar]]:
        """Return columns that are learned by themselves or by their parts, released."""
        released, calendars = {}, []
        for column in columns:
            name, dtype = column.name, self.dtypes[column.name]
            calendar = Calendar.fitted(column, dtype)
            if calendar is None:
                dtype = dtype_with_levels(column, dtype)
                entries = chunks(self.rows, [name]).map(itemgetter(name))
                released[name] = self.release(name, dtype, entries).column
                continue
            for part in (*calendar.parts, name):
                entries = chunks(self.rows, [name]).map(partial(calendar.of, part=part))
                date = self.release(part, calendar.dtype_of(part), entries, name)
            calendars.append(calendar.completed(date.column))
            released[name] = calendars[-1].whole.column
        return released, calendars

    def increments(self, columns: dict[Hashable, Column]) -> tuple[Increment, ...]:
        """Return the columns that are learned as increments, released; note them."""
        increments = []
        for name, rule in increments_of(self.schema).items():
            low, high = columns[rule.low], self.schema[name]
            increment = Increment.fitted(low, high, self.dtypes[name], rule.strict)
            # A first column that has lost its missing values needs no distances.
            stated = replace(self.schema[rule.low], nullable=low.nullable)
            added = increment_column(stated, high, rule.strict)
            increments.append(self._completed(increment, added))
            columns[name] = increments[-1].whole.column
        return tuple(increments)

    def breaks(self) -> tuple[StickBreaking, ...]:
        """Return the columns that are learned as shares of what is left, released."""
        schema, dtypes = self.schema, self.dtypes
        return tuple(
            self._completed(StickBreaking.fitted(rule, name, schema, dtypes[name]))
            for name, rule in stick_breaks_of(schema).items()
        )

    def _completed(self, built: B, column: Column | None = None) -> B:
        """Return a column that is built on others, released."""
        entries = chunks(self.rows, [*built.bases, built.name]).map(built.of)
        codec = self.release(built.name, built.dtype, entries, column=column)
        return built.completed(codec.column)


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
        One per column that is learned, in order: of increments, and of times of day
        and weekdays before dates, where a column is learned as such.
    increments : tuple of Increment
        Columns that are learned as increments, after those that they are built on.
    calendars : tuple of Calendar
        Columns of instants that are learned by their parts.
    nestings : tuple of Nesting
        Columns whose levels lie within those of others, and increments whose signs
        follow from others.
    places : tuple of Places
        Columns that are learned together.
    breaks : tuple of StickBreaking
        Columns that are learned as shares of what others leave of a total.
    sequences : Sequences, optional
        Of linked rows.
    """

    codecs: tuple[Codec, ...]
    increments: tuple[Increment, ...] = ()
    calendars: tuple[Calendar, ...] = ()
    nestings: tuple[Nesting, ...] = ()
    places: tuple[Places, ...] = ()
    breaks: tuple[StickBreaking, ...] = ()
    sequences: Sequences | None = None

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
        sequences: Sequences | None = None,
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
        sequences : Sequences, optional
            Of linked rows: what is given of a step has the cells that rows have now.

        Returns
        -------
        TableTransformer
        """
        schema = distinct(schema)
        learned = learned_columns(schema)
        repeats = repeated(schema, sequences)
        released = learned.keys() - repeats
        n_open = sum(has_open_keys(learned[name], anchored) for name in released)
        asked = counted(schema, sequences)
        noise = column_stds(asked, multiplier, n_bins, n_rows)
        stds = dict(zip(learned_columns(asked), noise, strict=True))
        total = Estimate(count=n_rows, variance=n_std**2)
        codecs: dict[Hashable, Codec] = {}
        nested = nesting_rules(schema)

        def release(
            name: Hashable, dtype: Any, entries: Chunks[pd.Series], whole: Any = None,
            column: Column | None = None,
        ) -> Codec:  # fmt: skip
            own, column = name if whole is None else whole, column or learned[name]
            codecs[name] = MarginalRelease(
                column, dtype, mechanisms, n_rows, total, stds[name], delta,
                n_open, cells_aimed_at(column, n_bins), anchored,
                may_lose_missing=own not in with_missing, is_target=name == target,
                nesting=nested.get(name),
            ).fit(entries)  # fmt: skip
            return codecs[name]

        rules, dtypes = increments_of(schema), dict(opened(rows).dtypes.items())
        learning = _Learning(rows, schema, dtypes, release)
        places = learning.places(with_missing)
        others = {*rules, *stick_breaks_of(schema), *chain(*schema.joint), *repeats}
        single = [each for each in schema.columns if each.name not in others]
        if sequences is not None:  # first what rows are, then what they were before
            single.sort(key=lambda each: each.name in sequences.before)
        columns, calendars = learning.single(single)
        increments = learning.increments(columns)
        breaks = learning.breaks()
        for each in increments:
            if each.has_both:
                codecs[each.name] = each.parted(codecs[each.name])
        levels, signs = nested_levels(nested, codecs), nested_signs(increments, codecs)
        nestings = (*levels, *signs)
        for name, now in repeats.items():
            codecs[name] = given_codec(schema[name], dtypes[name], codecs[now], codecs)
        ordered = tuple(codecs[name] for name in learned)
        split = tuple(calendars)
        return cls(ordered, increments, split, nestings, places, breaks, sequences)

    @property
    def given(self) -> tuple[Hashable, ...]:
        """What is known of a step of linked rows when it is drawn.

        Besides the person: nothing is drawn from relations within it.
        """
        return () if self.sequences is None else self.sequences.given

    @property
    def transitions(self) -> list[tuple[Hashable, Hashable]]:
        """Nominal columns of linked rows: what they were before, and what they are.

        Without those that are drawn before what is given.
        """
        pairs = {} if self.sequences is None else self.sequences.before
        columns = {codec.column.name: codec.column for codec in self.codecs}
        place = {name: j for j, name in enumerate(columns)}
        return [
            (before, name)
            for before, name in pairs.items()
            if not columns[name].is_ordered and place[before] < place[name]
        ]

    @property
    def built(self) -> tuple[Built, ...]:
        """What is built on other columns, each after those that it needs."""
        return (*self.increments, *self.breaks)

    @property
    def schema(self) -> Schema:
        """The schema completed by what was released."""
        return Schema(codec.column for codec in self.outer)

    @property
    def names(self) -> list[Hashable]:
        """Names of what is learned, in order."""
        return [codec.column.name for codec in self.codecs]

    @property
    def columns(self) -> dict[Hashable, Codec]:
        """Codecs by column of the table: of its increments, or of its dates.

        And of one cell where columns are learned together.
        """
        parts = {name for each in self.calendars for name in each.parts}
        named = {codec.column.name: codec for codec in self.codecs}
        for each in self.calendars:
            named[each.name] = replace(named[each.name], dtype=each.whole.dtype)
        for place in self.places:
            named |= dict(zip(place.names, place.wholes, strict=True))
        return {name: codec for name, codec in named.items() if name not in parts}

    @property
    def outer(self) -> tuple[Codec, ...]:
        """Codecs of the columns of the table, of one cell for those of several parts.

        And for those that are learned as increments.
        """
        wholes = {each.name: each.whole for each in (*self.built, *self.calendars)}
        return tuple({**self.columns, **wholes}.values())

    def place(self, name: Hashable) -> int:
        """Return the place of what is learned by its name, or by one of its columns."""
        together = {name: each.name for each in self.places for name in each.names}
        return self.names.index(together.get(name, name))

    def parts(self, name: Hashable) -> dict[Hashable, Any]:
        """Return what is learned of a column, and functions to read it from the column.

        None for what is built on others and for places, which need other columns too.
        Places are learned by the name of their first column.
        """
        for split in self.calendars:
            if split.name == name:
                names = (*split.parts, name)
                return {part: partial(split.of, part=part) for part in names}
        for place in self.places:
            if name in place.names:
                return {name: None} if name == place.name else {}
        is_built = any(each.name == name for each in self.built)
        return {name: None if is_built else itemgetter(name)}

    def _readers(self) -> Iterator[tuple[list[Hashable], Any]]:
        """Yield, for every codec, the columns it needs and a function to read them."""
        built: dict[Hashable, tuple[list[Hashable], Any]] = {
            each.name: ([*each.bases, each.name], each.of) for each in self.built
        }
        built |= {each.name: ([*each.names], each.of) for each in self.places}
        for name in self.columns:
            for read in self.parts(name).values():
                yield built[name] if read is None else ([name], read)

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
        learned = dict(zip(self.names, self.learned(frame), strict=True))
        places = {each.name: each for each in self.places}
        breaks = {each.name: each for each in self.breaks}
        logs = []
        for codec in self.codecs:
            name = codec.column.name
            if name in places:
                logs.append(places[name].log_within(frame))
            elif name in breaks:
                logs.append(breaks[name].log_within(codec, learned[name], frame))
            else:
                logs.append(codec.log_within(learned[name]))
        dated = (each for each in self.calendars if each.weekday is not None)
        logs += [c.log_days(self.columns[c.name], learned[c.name]) for c in dated]
        return np.sum(logs, axis=0)

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
            What is built on others can be beyond its bounds, to which it is moved.
        """
        given, cells = given or {}, codes.astype(np.int64)
        if self.calendars:
            cells, positions = self._complete(cells, positions)
        drawn = {
            codec.column.name: codec.decode(cells[:, j], positions[:, j])
            for j, codec in enumerate(self.codecs)
        }
        for place in self.places:
            j = self.place(place.name)
            drawn |= place.built(cells[:, j], positions[:, j], given)
        inside = np.ones(len(codes), dtype=bool)

        def put(name: Hashable, column: pd.Series, fits: np.ndarray) -> None:
            if name in given:
                column = with_given(column, given[name])
                fits[given[name].index] = True
            drawn[name] = column
            inside[~fits] = False

        for split in self.calendars:
            dates = cells[:, self.place(split.name)]
            put(split.name, *split.built(self.columns[split.name], dates, drawn))
        for name in given.keys() - {each.name for each in self.built}:
            drawn[name] = with_given(drawn[name], given[name])
        for each in self.built:
            put(each.name, *each.built(drawn, drawn[each.name]))
        frame = pd.DataFrame(dict(enumerate(drawn[name] for name in self.columns)))
        return frame.set_axis(labels(list(self.columns)), axis=1), inside

    def _complete(
        self, cells: np.ndarray, positions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return cells and positions in which no date lacks its time or weekday."""
        cells, positions = cells.copy(), np.array(positions)
        for split in self.calendars:
            date = self.columns[split.name]
            n_dates = date.n_cells - bool(date.column.nullable)
            is_dated = cells[:, self.place(split.name)] < n_dates
            for j in map(self.place, split.parts):
                cells[:, j], positions[:, j] = replace_missing(
                    self.codecs[j], cells[:, j], positions[:, j], is_dated
                )
        return cells, positions
