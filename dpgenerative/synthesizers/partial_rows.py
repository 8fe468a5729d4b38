"""Values given in partial rows, and what follows from them for the other columns."""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgenerative.encoding.codecs import Codec, IntervalCodec
from dpgenerative.encoding.increments import Increment, scale
from dpgenerative.encoding.transformer import Built, TableTransformer, with_given
from dpgenerative.encoding.values import as_numbers, floats
from dpgenerative.tables.column import Column
from dpgenerative.tables.schema import OFF_STEP, Schema, misfits
from dpgenerative.tables.times import from_units, temporal_kind, time_zone, to_units
from dpgenerative.tables.values import as_python, is_missing


class PartialRows:
    """The values given in partial rows, by column, and the cells that they allow.

    Parameters
    ----------
    owner : str
        Name of the synthesizer's method, for errors.
    transformer : TableTransformer
    open_levels : collection of hashable
        Columns whose levels were estimated privately: others occur.
    frame : DataFrame
    impute : bool
    """

    def __init__(
        self,
        owner: str,
        transformer: TableTransformer,
        open_levels: Collection[Hashable],
        frame: pd.DataFrame,
        impute: bool,
    ) -> None:
        self.transformer = transformer
        self.values: dict[Hashable, pd.Series] = {}
        self.given = {name: np.zeros(len(frame), bool) for name in transformer.columns}
        self.codes: dict[int, np.ndarray] = {}
        for codec in self.transformer.outer:
            name = codec.column.name
            if name not in frame.columns:
                continue
            series = frame[name].reset_index(drop=True)
            given = ~series.isna() if impute else pd.Series(True, series.index)
            values = series[given]
            require_fit(owner, codec.column, values, name in open_levels)
            self.values[name] = _converted(owner, codec, values)
            self.given[name] = given.to_numpy()
            if not any(name in place.names for place in transformer.places):
                self._encode_given(name)
        for each in self.transformer.built:
            if each.name in self.values:
                self._encode(each)

    def _encode_given(self, name: Hashable) -> None:
        """Find the cells of what is learned of a column, unless built on others."""
        values, given = self.values[name].to_frame(name), self.given[name]
        for part, read in self.transformer.parts(name).items():
            j = self.transformer.place(part)
            self.codes[j] = np.full(len(given), -1)
            if read is not None:
                self.codes[j][given] = self.transformer.codecs[j].encode(read(values))

    def _encode(self, each: Built) -> None:
        """Find the cells of what is built on others, where all values are given."""
        j = self.transformer.place(each.name)
        missing = self.values[each.name].isna()
        rows = missing.index[missing]
        self.codes[j][rows] = self.transformer.codecs[j].n_cells - 1
        if self.values.keys() >= {*each.bases}:
            rows = missing.index[~missing]
            for name in each.bases:
                rows = rows.intersection(self.values[name].index)
            read = {n: self.values[n][rows] for n in (*each.bases, each.name)}
            self.codes[j][rows] = self.transformer.codecs[j].encode(each.of(read))

    def log_shares(self, rows: np.ndarray) -> dict[int, Tensor]:
        """Return 0 for the cells that the rows may have, else -inf, per column.

        Of columns that are learned together, the log-density of the values given.
        """
        shares = {}
        for j, codes in self.codes.items():
            codec, cells = self.transformer.codecs[j], codes[rows]
            is_open = cells < 0
            allowed = is_open[:, None] | (cells[:, None] == np.arange(codec.n_cells))
            if codec.column.nullable:
                allowed[is_open, -1] = False
            shares[j] = logs(allowed)
        shares |= self._log_shares_of_places(rows)
        others = {each.name for each in self.transformer.built}
        others |= {name for each in self.transformer.places for name in each.names}
        for each in self.transformer.increments:
            if each.name in self.values and each.low.name not in others:
                k = self.transformer.place(each.low.name)
                shares[k] = logs(self._in_reach(each, k, rows)) + shares.get(k, 0)
                if each.has_both:
                    j = self.transformer.place(each.name)
                    shares[j] = shares[j] + logs(self._leads_here(each, j, rows))
        return nested(self.transformer, shares)

    def _leads_here(self, each: Increment, j: int, rows: np.ndarray) -> np.ndarray:
        """Return which cells of an increment can lead to values that are given.

        Increments from between the bounds of the column below, and all distances where
        that may be missing. (With the exact one alone, most candidates would have it,
        and their effective number would hide how few others there are.)
        """
        codec, column = self.transformer.codecs[j], each.whole.column
        assert isinstance(codec, IntervalCodec)
        high, step = self.values[each.name].reindex(rows), codec.column.step or 1.0
        ends, size = codec.edges * step, scale(each.low, column)
        most = as_numbers(column, high)[:, None] - each.lowest
        least = most - size * (each.low.numbers.upper - each.low.numbers.lower)
        apart, above = each.signs((ends[:-1] + ends[1:]) / 2)
        allowed = above & (ends[:-1] <= most) & (ends[1:] >= least)
        allowed |= apart & (each.low.name not in self.values)
        of_given = self.codes[j][rows, None] >= 0
        allowed |= of_given | ~allowed.any(axis=1, keepdims=True)
        n_more = codec.n_cells - allowed.shape[1]
        return np.pad(allowed, [(0, 0), (0, n_more)], constant_values=True)

    def _in_reach(self, each: Increment, k: int, rows: np.ndarray) -> np.ndarray:
        """Return which cells of a column an increment can lead from, to values given.

        Others have candidates of weight 0. All are allowed where none can, and where
        the column below is given itself.
        """
        codec = self.transformer.codecs[k]
        assert isinstance(codec, IntervalCodec)
        whole, added = each.whole.column, self.transformer.columns[each.name].column
        high = as_numbers(whole, self.values[each.name].reindex(rows))[:, None]
        size = scale(codec.column, whole)  # of a date, a day
        ends, added = codec.edges * (codec.column.step or 1.0) * size, added.numbers
        allowed = ends[1:] >= high - max(added.upper, each.least) - size
        allowed &= ends[:-1] <= high - max(added.lower, each.least)
        is_given = self.given[each.low.name][rows, None]
        allowed |= is_given | ~allowed.any(axis=1, keepdims=True)
        n_more = codec.n_cells - allowed.shape[1]
        return np.pad(allowed, [(0, 0), (0, n_more)], constant_values=True)

    def _log_shares_of_places(self, rows: np.ndarray) -> dict[int, Tensor]:
        """Return log-densities of the values given in the cells of places."""
        given, shares = self.given_in(rows), {}
        for each in self.transformer.places:
            if given.keys() & set(each.names):
                j = self.transformer.place(each.name)
                n_cells = self.transformer.codecs[j].n_cells
                log_shares = each.log_shares(given, len(rows), n_cells)
                shares[j] = torch.from_numpy(log_shares).float()
        return shares

    def rows(
        self, codes: np.ndarray, positions: np.ndarray, rows: np.ndarray
    ) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
        """Return candidates with the values given, which are in bounds, log-densities.

        The density is that of what follows from the values given.
        """
        lows, matched, is_above = self._below(codes, positions, rows)
        given = self.given_in(rows)
        for name, low in lows.items():
            given[name] = pd.concat([low, given[name]]) if name in given else low
        frame, inside = self.transformer.rows(codes, positions, given)
        log_density = np.zeros(len(rows))
        learned = self.transformer.learned(frame) if matched else []
        breaks = {self.transformer.place(x.name): x for x in self.transformer.breaks}
        for j, chosen in matched.items():
            codec = self.transformer.codecs[j]
            fits = codec.encode(learned[j]) == codes[:, j]
            if codec.column.numeric:  # values out of bounds have the outermost cells
                step, ends = codec.column.step or 1.0, codec.column.numbers
                numbers = as_numbers(codec.column, learned[j])
                room = 1e-6 * np.maximum(step, 1e-3 * np.abs(numbers))
                fits &= ~((numbers < ends.lower - room) | (numbers > ends.upper + room))
            within = codec.log_within(learned[j])
            if j in breaks:  # one share is one value, whatever is left
                within = breaks[j].log_within(codec, learned[j], frame)
                within = np.where(codec.atoms[codes[:, j]], 0.0, within)
            within = np.where(fits, within, -np.inf)
            log_density += np.where(chosen, within, 0.0)
        return frame, inside & is_above, log_density

    def _below(
        self, codes: np.ndarray, positions: np.ndarray, rows: np.ndarray
    ) -> tuple[dict[Hashable, pd.Series], dict[int, np.ndarray], np.ndarray]:
        """Return values of columns that follow from those above them.

        And by place the rows in which what follows has to match the cells drawn: those
        of the column below where its value was set, else those of the increment. A
        frequent value below is not set: no increment of a continuum leads to it. Last,
        which of the values set are in bounds.
        """
        lows: dict[Hashable, pd.Series] = {}
        matched: dict[int, np.ndarray] = {}
        is_above = np.ones(len(rows), dtype=bool)
        built = {each.name for each in self.transformer.built}
        built |= {each.name for each in self.transformer.calendars}
        for each in self.transformer.built:
            j = self.transformer.place(each.name)
            if each.name not in self.values:
                continue
            matched[j] = self.given[each.name][rows] & (self.codes[j][rows] < 0)
            if not isinstance(each, Increment):
                continue
            low = each.low.name
            if low in lows or low in built or not each.invertible:
                continue
            k = self.transformer.place(low)
            codec = self.transformer.codecs[k]
            chosen = matched[j] & ~self.given[low][rows] & ~codec.atoms[codes[:, k]]
            added = self.transformer.codecs[j].decode(codes[:, j], positions[:, j])
            high = self.values[each.name].reindex(rows)
            values, inside = each.below(codec.dtype, high, added)
            lows[low] = values[chosen & inside]
            matched[j], matched[k] = matched[j] & ~chosen, chosen
            is_above &= inside | ~chosen
        return lows, matched, is_above

    def given_in(self, rows: np.ndarray) -> dict[Hashable, pd.Series]:
        """Return the values given in some rows, by name and place among them."""
        by_name = {}
        for name, values in self.values.items():
            places = np.flatnonzero(self.given[name][rows])
            by_name[name] = values.loc[rows[places]].set_axis(places)
        return by_name

    def put(self, frame: pd.DataFrame, rows: np.ndarray) -> pd.DataFrame:
        """Return drawn rows with the values that are given."""
        for name, values in self.given_in(rows).items():
            frame[name] = with_given(frame[name], values)
        return frame


def require_fit(owner: str, column: Column, values: pd.Series, is_open: bool) -> None:
    """Raise ValueError for values that fit no row.

    Others than the bounds, open levels or the resolution of a continuum allow count as
    the nearest, or as `other`.
    """
    column = replace(column, lower=None, upper=None)
    soft = ["not finite", *["not among the levels"] * is_open]
    soft += [OFF_STEP] * (column.kind == "continuous")
    for _, problem, unfit in misfits(Schema([column]), values.to_frame(column.name)):
        if problem in soft:
            continue
        value = as_python(unfit.iloc[0])
        what = "a missing value" if is_missing(value) else f"the value {value!r}"
        raise ValueError(
            f"{owner}: {what} given does not fit the column {column.name!r}: {problem}."
        )


def _converted(owner: str, codec: Codec, values: pd.Series) -> pd.Series:
    """Return values in the dtype of their column; raise ValueError if they do not fit.

    Instants without a time zone are read on the clock of the column's.
    """
    column, dtype = codec.column, codec.dtype
    missing = values.isna().to_numpy(bool)
    lacks_zone = time_zone(dtype) is not None and time_zone(values.dtype) is None
    try:
        if lacks_zone and temporal_kind(values.dtype) == "datetime":
            counts = np.where(missing, 0.0, to_units(values, "us"))
            converted = from_units(counts, missing, "us", dtype).set_axis(values.index)
        else:
            converted = values.astype(dtype)
        lost = np.zeros(len(values), dtype=bool)
        if column.temporal:
            lost = np.isnan(to_units(converted, "us")) & ~missing
        elif column.numeric:
            pair = floats(converted), floats(values)
            lost = ~np.isclose(*pair, rtol=1e-3, equal_nan=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{owner}: what is given for the column {column.name!r} does not fit its "
            f"dtype {dtype}: {error}"
        ) from None
    if lost.any():
        raise ValueError(
            f"{owner}: the value {values[lost].iloc[0]!r} given for the column "
            f"{column.name!r} does not fit its dtype {dtype}."
        )
    return converted


def logs(shares: np.ndarray) -> Tensor:
    """Return the logarithms of shares of cells, -inf of 0."""
    return torch.from_numpy(shares.astype(float)).log().float()


def nested(
    transformer: TableTransformer, shares: Mapping[int, Tensor]
) -> dict[int, Tensor]:
    """Return log-shares of cells without those that go with none of another column."""
    shares = dict(shares)
    for each in transformer.nestings:
        pair = transformer.place(each.within), transformer.place(each.name)
        allowed = torch.from_numpy(each.allowed).float()
        for (k, j), pairs in ((pair, allowed), (pair[::-1], allowed.T)):
            if k in shares:
                possible = shares[k].isfinite().float() @ pairs > 0
                possible |= ~possible.any(1, keepdim=True)
                shares[j] = possible.float().log() + shares.get(j, 0)
    return shares
