"""Instants that are learned as dates, times of day and weekdays.

Hours and weekdays repeat over the whole range of a column of instants, whose cells span
weeks or years. So such a column is learned as two or three: its date, its time of day
where its unit is finer than a day, and its weekday. The date of a sampled row is moved
within its cell to the nearest one of the weekday drawn. Which columns are learned so
follows from the schema alone; what is read of private rows is private.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative.encoding import grid
from dpgenerative.encoding.codecs import Codec, IntervalCodec, whole_codec
from dpgenerative.encoding.values import as_numbers
from dpgenerative.tables.column import CYCLES, Column
from dpgenerative.tables.conditions import alternatives
from dpgenerative.tables.times import PER_DAY, from_units, spelled
from dpgenerative.tables.values import is_missing

TIME, WEEKDAY = "time of day", "weekday"
FARTHEST = 6
"""Days that a date moves at most, within its cell, to its weekday."""
LEAST_DAYS = 14
"""Days that the bounds of a column span at least, if its weekdays are learned."""
_INSTANT = np.dtype("M8[us]")


def parts_of(column: Column) -> dict[Hashable, Column]:
    """Return the columns by which one of instants is learned, in the model's order.

    The date has the column's own name. A column without cycles is learned as it is.
    """
    cycles = CYCLES if column.cycles is None else column.cycles
    if column.kind != "datetime" or not cycles:
        return {column.name: column}
    per_day, ends = PER_DAY[column.unit], (column.lower, column.upper)
    date = replace(column, resolution="D")
    n_days = np.inf
    if column.lower is not None:
        first, last = (column.count(end) // per_day for end in ends)
        n_days = last - first
    parts: dict[Hashable, Column] = {}
    if "weekday" in cycles and n_days >= LEAST_DAYS:
        name = f"{column.name} ({WEEKDAY})"
        parts[name] = Column(
            name, "categorical", levels=tuple(range(7)), nullable=column.nullable
        )
    if "hour" in cycles and per_day > 1 and n_days >= 1:
        name = f"{column.name} ({TIME})"
        lower, upper = (
            spelled(count, "datetime", column.unit) for count in (0, per_day - 1)
        )
        parts[name] = Column(
            name, "datetime", lower, upper, nullable=column.nullable,
            resolution=column.resolution,
        )  # fmt: skip
    return {**parts, column.name: date} if parts else {column.name: column}


@dataclass(frozen=True)
class Calendar:
    """A column of instants that is learned by its parts.

    Attributes
    ----------
    whole : IntervalCodec
        The column itself, in one cell.
    time, weekday : hashable or None
        Names of the columns of its times of day and weekdays, None where not learned.
    """

    whole: IntervalCodec
    time: Hashable = None
    weekday: Hashable = None

    @classmethod
    def fitted(cls, column: Column, dtype: Any) -> "Calendar | None":
        """Return how a column is split, None where it is learned as it is."""
        names = [name for name in parts_of(column) if name != column.name]
        if not names:
            return None
        time = next((n for n in names if str(n).endswith(f"({TIME})")), None)
        weekday = next((n for n in names if str(n).endswith(f"({WEEKDAY})")), None)
        return cls(whole_codec(column, dtype), time, weekday)

    @property
    def name(self) -> Hashable:
        """Name of the column, and of its dates."""
        return self.whole.column.name

    @property
    def parts(self) -> tuple[Hashable, ...]:
        """Names of what is learned besides the date."""
        return tuple(name for name in (self.weekday, self.time) if name is not None)

    @property
    def per_day(self) -> int:
        """Number of the column's units in a day."""
        return PER_DAY[self.whole.column.unit]

    def dtype_of(self, part: Hashable) -> Any:
        """Return the dtype of what is learned."""
        return np.dtype(float) if part == self.weekday else _INSTANT

    def completed(self, date: Column) -> "Calendar":
        """Return it with what follows from the dates that were released."""
        column = replace(self.whole.column, nullable=date.nullable)
        if column.lower is None:
            days = date.numbers
            ends = [days.lower * self.per_day, (days.upper + 1) * self.per_day - 1]
            column = column.bounded(*grid.within_type(column, self.whole.dtype, ends))
        return replace(self, whole=whole_codec(column, self.whole.dtype))

    # Rows to parts --------------------------------------------------------------

    def of(self, frame: pd.DataFrame, part: Hashable) -> pd.Series:
        """Return a part of a column of private rows: private."""
        column, series = self.whole.column, frame[self.name]
        read = as_numbers if column.lower is None else grid.in_steps
        counts = read(column, series)
        missing = np.isnan(counts)
        days = np.floor(np.where(missing, 0.0, counts) / self.per_day)
        if part == self.weekday:
            return pd.Series(np.where(missing, np.nan, _weekdays(days)))
        if part == self.time:
            times = np.where(missing, 0.0, counts) - days * self.per_day
            return from_units(times, missing, column.unit, _INSTANT)
        return from_units(days, missing, "D", _INSTANT)

    def log_days(self, date: Codec, series: pd.Series) -> np.ndarray:
        """Return the logarithm of the number of days that are moved to each date.

        Not counted are those that stay, as their cell has no day of the weekday drawn:
        densities are too small where cells are shorter than a week.
        """
        assert isinstance(date, IntervalCodec)
        days = grid.in_steps(date.column, series)
        low, high = _ends(date, date.encode(series))
        first = np.where(days - 7 >= low, days - 3, low)
        last = np.where(days + 7 <= high, days + 3, high)
        return np.where(np.isnan(days), 0.0, np.log(np.maximum(last - first + 1, 1)))

    # Parts to rows --------------------------------------------------------------

    def built(
        self,
        date: Codec,
        codes: np.ndarray,
        drawn: Mapping[Hashable, pd.Series],
    ) -> tuple[pd.Series, np.ndarray]:
        """Return the column, and which of its values lie within its bounds.

        Parameters
        ----------
        date : Codec
            Of the dates.
        codes : ndarray of shape (n,)
            Cells of the dates.
        drawn : mapping
            Dates, times of day and weekdays by name.
        """
        assert isinstance(date, IntervalCodec)
        days = as_numbers(date.column, drawn[self.name])
        if self.weekday is not None:
            wanted = drawn[self.weekday].to_numpy()
            days = _moved(days, wanted, *_ends(date, codes))
        counts = days * self.per_day
        if self.time is not None:
            times = drawn[self.time].to_numpy().view(np.int64)
            counts = counts + times // (PER_DAY["us"] // self.per_day)
        return grid.nearest_values(self.whole.column, self.whole.dtype, counts)

    # Conditions -----------------------------------------------------------------

    def conditions(self, condition: Any) -> Iterator[tuple[Hashable, Any]]:
        """Yield conditions on the parts that hold where one on the column does."""
        column, parts = self.whole.column.numbers, alternatives(condition)
        ranges = [self._range(each) for each in parts if not is_missing(each)]
        ranges = [(low, high) for low, high in ranges if low <= high]
        days = [tuple(int(end // self.per_day) for end in pair) for pair in ranges]
        is_daily = all(first == last for first, last in days)
        # Other dates may move to the days asked for.
        room = 0 if is_daily and len({*days}) == 1 else FARTHEST * bool(self.weekday)
        least, most = (int(b // self.per_day) for b in (column.lower, column.upper))
        dates: list[Any] = [None for each in parts if is_missing(each)]
        for first, last in days:
            ends = max(first - room, least), min(last + room, most)
            dates.append(tuple(spelled(day, "datetime", "D") for day in ends))
        yield self.name, dates
        if not is_daily or any(map(is_missing, parts)):
            return
        if self.weekday is not None:
            yield self.weekday, _weekdays(np.unique(days)).tolist()
        if self.time is not None:
            unit, per_day = self.whole.column.unit, self.per_day
            times = [
                tuple(spelled(int(end % per_day), "datetime", unit) for end in pair)
                for pair in ranges
            ]
            yield self.time, times

    def _range(self, part: Any) -> tuple[int, int]:
        """Return the counts between which a condition holds, of whole days at bounds.

        Instants beyond the bounds are moved to them.
        """
        column, per_day = self.whole.column, self.per_day
        lower, upper = column.numbers.lower, column.numbers.upper
        low, high = part if isinstance(part, tuple) else (part, part)
        low = lower if is_missing(low) else max(np.floor(column.count(low)), lower)
        high = upper if is_missing(high) else min(np.floor(column.count(high)), upper)
        first, last = int(low), int(high)  # beyond 2^53, as floats do not add
        if first <= last:
            first -= first % per_day if low == lower else 0
            last += per_day - 1 - last % per_day if high == upper else 0
        return first, last


def _weekdays(days: np.ndarray) -> np.ndarray:
    """Return 0 (Monday) to 6 of days since 1970-01-01, a Thursday."""
    return (days.astype(np.int64) + 3) % 7


def _ends(date: IntervalCodec, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the last day of cells."""
    inside = np.minimum(codes, len(date.values) - 1)
    return np.ceil(date.edges[inside]), np.floor(date.edges[inside + 1])


def _moved(
    days: np.ndarray, wanted: np.ndarray, low: np.ndarray, high: np.ndarray
) -> np.ndarray:
    """Return the nearest day of the wanted weekday in [low, high], if there is one."""
    present = ~np.isnan(days)
    own = _weekdays(np.where(present, days, 0))
    moved = days + (wanted - own + 3) % 7 - 3
    moved = np.where(moved < low, moved + 7, moved)
    moved = np.where(moved > high, moved - 7, moved)
    fits = (moved >= low) & (moved <= high)
    return np.where(present & fits, moved, days)


def replace_missing(
    codec: Codec, codes: np.ndarray, positions: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return cells and positions, in some rows with others in place of 'missing'.

    The others follow the released masses.
    """
    if not codec.column.nullable:
        return codes, positions
    chosen = rows & (codes >= codec.n_cells - 1)
    masses = codec.masses[:-1]
    ends = np.cumsum(masses) / max(masses.sum(), np.finfo(float).tiny)
    draws = positions[chosen] * (1 - 1e-9)
    codes, positions = codes.copy(), positions.copy()
    codes[chosen] = np.minimum(np.searchsorted(ends, draws, "right"), len(masses) - 1)
    positions[chosen] = (draws * 7919) % 1  # digits that chose no cell
    return codes, positions
