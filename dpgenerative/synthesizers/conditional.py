"""Rows that satisfy conditions and constraints, chosen among candidates.

A model that can be clamped draws candidates whose given columns satisfy what is asked,
each with a weight: how probable that was, given the columns drawn before it. Rows
of the conditional distribution are had from them

- by rejection: a candidate of weight w is kept with probability w / M. With M = 1,
  which no weight exceeds, the rows kept follow the conditional distribution exactly;
- with M the largest weight seen, where M = 1 would cost more candidates than allowed.
  The rows kept then lack the part of the distribution that lies above M: of the order
  of one in as many rows as were kept, and at least `LEAST_ROWS` are;
- for partial rows, each of which is a condition of its own, by drawing one of its
  candidates with probability in proportion to the weights (sampling / importance
  resampling), which is exact in the limit of many candidates.

A column that is learned as an increment on another (`increments`) is clamped where that
one is given too. Otherwise a condition on it is met by rejection, and a value of a
partial row by weight: the column below is set to the value less the candidate's
increment, and counts by the density of that within the candidate's cell, 0 outside.
Where that cannot be (the column below is missing, of another grid, or an increment
itself), the increment follows from both columns and counts likewise.

All of it reads the released model and what the caller gave, never private rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgenerative._validation import refuse
from dpgenerative.encoding.codecs import Codec, Segments
from dpgenerative.encoding.increments import Increment
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.exceptions import SamplingError
from dpgenerative.tables.column import Column
from dpgenerative.tables.conditions import alternatives, check_condition, satisfies
from dpgenerative.tables.containers import labels
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.times import from_units, temporal_kind, time_zone, to_units
from dpgenerative.tables.values import is_missing

LEAST_ROWS = 500
"""So many candidates are kept at least where the largest weight is not known."""
CHUNK = 2**16
"""Candidates drawn at a time."""
FEW_CANDIDATES = 100
"""Candidates per partial row at first..."""
EFFECTIVE = 20
"""... and for all of `max_tries` where they are worth fewer than this many."""
POOR = 5
"""Fewer effective candidates than this are warned of."""

Drawer = Callable[
    [int, Mapping[int, Tensor]], tuple[np.ndarray, np.ndarray, np.ndarray]
]
"""From a number of rows and log-shares of cells: codes, positions, log-weights."""


@dataclass
class Candidates:
    """Rows of a fitted model from which those asked for are chosen.

    Attributes
    ----------
    owner : str
        Name of the synthesizer, for errors.
    transformer : TableTransformer
    schema : Schema
        Its constraints hold for all rows returned.
    draw : callable
        Draws cells, positions and log-weights.
    can_clamp : bool
        Whether positions within cells are free to choose.
    rng : numpy.random.Generator
    max_tries : int
        Most candidates drawn per row.
    open_levels : collection of hashable
        Columns whose levels were found privately: others occur.
    """

    owner: str
    transformer: TableTransformer
    schema: Schema
    draw: Drawer
    can_clamp: bool
    rng: np.random.Generator
    max_tries: int
    open_levels: Collection[Hashable]

    # One condition for all rows -------------------------------------------------

    def satisfying(self, n: int, given: Mapping[Hashable, Any]) -> pd.DataFrame:
        """Return n rows that satisfy conditions on columns, and all constraints.

        Raises
        ------
        ValueError
            For a condition that no value of its column satisfies.
        SamplingError
            When too few candidates do.
        """
        clamped = self._segments(given)
        points = self._points(given, clamped)
        shares = {j: self._log_shares(j, each) for j, each in clamped.items()}
        found: list[pd.DataFrame] = []
        scores = np.empty(0)
        tried, bound, needed = 0, 0.0, n
        while True:
            size = self._size(needed, int((scores > bound).sum()), tried)
            codes, positions, log_weights = self.draw(size, shares)
            if not tried and np.exp(log_weights).mean() < 1 / self.max_tries:
                bound, needed = -np.inf, max(n, LEAST_ROWS)
            if needed > n or bound < 0:
                bound = max(bound, log_weights.max())
            tried += size
            # Kept with probability exp(log_weight - bound), whatever bound is later.
            score = log_weights - np.log1p(-self.rng.random(size))
            hopeful = score > bound
            places = self._placed(codes[hopeful], positions[hopeful], clamped)
            frame, holds = self._checked(codes[hopeful], places, given, points)
            found.append(frame[holds])
            scores = np.append(scores, score[hopeful][holds])
            n_kept = int((scores > bound).sum())
            if n_kept >= needed:
                table = pd.concat(found, ignore_index=True)
                return table[scores > bound].iloc[:n].reset_index(drop=True)
            self._give_up(n, needed, n_kept, tried)

    def _size(self, needed: int, n_kept: int, tried: int) -> int:
        rate = max(n_kept / tried, 1 / self.max_tries) if tried else 1.0
        return int(np.clip(1.2 * (needed - n_kept) / rate, 1024, CHUNK))

    def _give_up(self, n: int, needed: int, n_kept: int, tried: int) -> None:
        """Raise an error once the bound is reached, or surely will be."""
        least = self.max_tries * LEAST_ROWS
        limit = self.max_tries * max(n, LEAST_ROWS)
        if tried >= limit or tried >= least and n_kept / tried * limit < needed / 2:
            raise SamplingError(
                f"{self.owner}.sample: of {tried} candidates {n_kept} satisfy what is "
                f"given and all constraints (acceptance rate {n_kept / tried:.2g}); "
                f"{needed} are needed. Ask for less, or raise "
                f"max_tries={self.max_tries}."
            )

    def _segments(self, given: Mapping[Hashable, Any]) -> dict[int, Segments]:
        """Return the parts of cells to which columns are clamped, by place.

        What a constraint repairs, or an increment makes, is not known before.
        """
        self._require_names(given)
        names = [codec.column.name for codec in self.transformer.codecs]
        if ids := [name for name in given if name not in names]:
            owner = f"{self.owner}.sample"
            refuse(owner, "given", "names identifiers, which are made anew", ids)
        late = {name for c in self.schema.constraints for name in c.repairs}
        late |= {each.name for each in self.transformer.increments}
        segments = {}
        for name, condition in given.items():
            j = names.index(name)
            found = self._possible(self.transformer.outer[j], condition)
            if name not in late:
                segments[j] = found
        return segments

    def _possible(self, codec: Codec, condition: Any) -> Segments:
        """Return where a condition holds; raise an error where it never does."""
        name = codec.column.name
        check_condition(codec.column, condition)
        if _points(codec.column, condition) and len(alternatives(condition)) > 1:
            raise ValueError(
                f"{self.owner}.sample: one number of the continuum {name!r} has "
                f"probability 0 beside others; give intervals, not {condition!r}."
            )
        found = codec.segments(condition)
        if not (found.high > found.low).any():
            raise ValueError(
                f"{self.owner}.sample: no value of the column {name!r} satisfies "
                f"{condition!r}."
            )
        return found

    def _points(
        self, given: Mapping[Hashable, Any], clamped: Mapping[int, Segments]
    ) -> dict[Hashable, Any]:
        """Return single numbers of continua, whose cells are drawn."""
        found = {
            n: _points(self.schema[n], condition) for n, condition in given.items()
        }
        for each in self.transformer.increments:
            if found.get(each.name):
                raise ValueError(
                    f"{self.owner}.sample: one number of the continuum {each.name!r} "
                    f"has probability 0, as a sum of {each.low.name!r} and an "
                    "increment; give an interval, or a DataFrame of partial rows."
                )
        names = [self.transformer.codecs[j].column.name for j in clamped]
        return {name: found[name][0] for name in names if found[name]}

    def _require_names(self, given: Any) -> None:
        names = list(self.schema.names)
        if unknown := [name for name in given if name not in names]:
            owner = f"{self.owner}.sample"
            refuse(owner, "given", f"must name columns among {names}", unknown)

    def _log_shares(self, j: int, segments: Segments) -> Tensor:
        shares = segments.shares(self.transformer.codecs[j].n_cells)
        return torch.from_numpy(shares).log().float().unsqueeze(0)

    def _placed(
        self, codes: np.ndarray, positions: np.ndarray, clamped: Mapping[int, Segments]
    ) -> np.ndarray:
        if self.can_clamp:
            positions = positions.copy()
            for j, segments in clamped.items():
                positions[:, j] = segments.place(codes[:, j], positions[:, j])
        return positions

    def _checked(
        self,
        codes: np.ndarray,
        positions: np.ndarray,
        given: Mapping[Hashable, Any],
        points: Mapping[Hashable, Any],
    ) -> tuple[pd.DataFrame, np.ndarray]:
        """Return repaired rows, and which of them satisfy everything."""

        def settle(name: Hashable, drawn: pd.Series) -> tuple[pd.Series, np.ndarray]:
            if name in points:
                drawn = pd.Series(points[name], drawn.index, drawn.dtype)
            return drawn, np.full(len(drawn), name in points)

        frame, holds = self.transformer.rows(codes, positions, settle)
        frame = self._repaired(frame)
        holds &= self._holds(frame)
        for name, condition in given.items():
            if name not in points:
                holds &= satisfies(frame[name], condition)
        return frame, holds

    def _repaired(self, frame: pd.DataFrame) -> pd.DataFrame:
        for constraint in self.schema.constraints:
            frame = constraint.repair(frame)
        return frame

    def _holds(self, frame: pd.DataFrame) -> np.ndarray:
        holds = np.ones(len(frame), dtype=bool)
        for constraint in self.schema.constraints:
            holds &= constraint.holds(frame)
        return holds

    # Partial rows ---------------------------------------------------------------

    def completing(self, frame: pd.DataFrame, impute: bool) -> pd.DataFrame:
        """Return one complete row for every row of a table of some columns.

        Parameters
        ----------
        frame : DataFrame of n rows
        impute : bool
            Whether missing values are to be filled in too, by values.

        Raises
        ------
        ValueError
            For values that do not fit their columns.
        SamplingError
            When no candidate of a row satisfies the constraints.
        """
        self._require_names(frame.columns)
        known = Known(self, frame, impute)
        n = len(frame)
        codes, positions, effective = self._chosen(known, np.arange(n), 1)
        if not np.isinf(effective).all():
            codes, positions, effective = self._chosen(
                known, np.arange(n), min(FEW_CANDIDATES, self.max_tries)
            )
            hard = np.flatnonzero(effective < EFFECTIVE)
            if len(hard) and self.max_tries > FEW_CANDIDATES:
                codes[hard], positions[hard], effective[hard] = self._chosen(
                    known, hard, self.max_tries
                )
        if not effective.all():
            raise SamplingError(
                f"{self.owner}.sample: {int((effective == 0).sum())} of the {n} rows "
                f"given have no completion among {self.max_tries} candidates that "
                "keeps the constraints of the schema. See whether the values given do "
                f"(Schema.check), give less, or raise max_tries={self.max_tries}."
            )
        if poor := int((effective < POOR).sum()):
            warnings.warn(
                f"{self.owner}.sample: for {poor} of the {n} rows given, the "
                f"{self.max_tries} candidates are worth fewer than {POOR}: what is "
                "given there is improbable, and the completion is rough. Give less, or "
                "raise max_tries.",
                UserWarning,
                stacklevel=4,
            )
        table, *_ = known.rows(codes, positions, np.arange(n))
        return known.put(self._repaired(table), np.arange(n)).set_axis(frame.index)

    def _chosen(
        self, known: Known, rows: np.ndarray, n_candidates: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return cells and positions of one candidate per row, and what they are worth.

        The worth is the effective number of candidates, ``(sum w)^2 / sum w^2``, inf
        where all weights are 1 and 0 where all are 0.
        """
        width = len(self.transformer.codecs)
        codes = np.empty((len(rows), width), dtype=np.int64)
        positions = np.empty((len(rows), width))
        effective = np.empty(len(rows))
        size = max(1, CHUNK // 4 // n_candidates)
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            repeated = np.repeat(rows[part], n_candidates)
            drawn, places, log_weights = self.draw(
                len(repeated), known.log_shares(repeated)
            )
            log_weights = log_weights.copy()
            if self.schema.constraints:
                frame, inside, log_density = known.rows(drawn, places, repeated)
                log_weights += log_density
                frame = known.put(self._repaired(frame), repeated)
                log_weights[~(inside & self._holds(frame))] = -np.inf
            log_weights = log_weights.reshape(-1, n_candidates)
            race = log_weights + self.rng.gumbel(size=log_weights.shape)
            best = race.argmax(1) + n_candidates * np.arange(len(race))
            codes[part], positions[part] = drawn[best], places[best]
            effective[part] = _effective(log_weights)
        return codes, positions, effective


class Known:
    """What a table of partial rows says of every column.

    Parameters
    ----------
    candidates : Candidates
    frame : DataFrame
    impute : bool
    """

    def __init__(self, candidates: Candidates, frame: pd.DataFrame, impute: bool):
        self.transformer = candidates.transformer
        self.values: dict[Hashable, pd.Series] = {}
        self.given: dict[Hashable, np.ndarray] = {}
        self.codes: dict[int, np.ndarray] = {}
        for j, codec in enumerate(self.transformer.outer):
            name = codec.column.name
            if name not in frame.columns:
                continue
            series = frame[name].reset_index(drop=True)
            given = ~series.isna() if impute else pd.Series(True, series.index)
            values = series[given]
            is_open = name in candidates.open_levels
            _require_fit(candidates.owner, codec.column, values, is_open)
            self.values[name] = _held(candidates.owner, codec, values)
            self.given[name] = given.to_numpy()
            self.codes[j] = np.full(len(series), -1)
            if codec is self.transformer.codecs[j]:
                self.codes[j][given] = codec.encode(self.values[name])
        for each in self.transformer.increments:
            if each.name in self.values:
                self._encode(each)

    def _encode(self, each: Increment) -> None:
        """Find the cells of increments that the values given decide."""
        j = self.transformer.place(each.name)
        missing = self.values[each.name].isna()
        rows = missing.index[missing]
        self.codes[j][rows] = self.transformer.codecs[j].n_cells - 1
        if each.low.name in self.values:
            names = [each.low.name, each.name]
            rows = missing.index[~missing].intersection(self.values[names[0]].index)
            pair = pd.DataFrame(
                {k: self.values[name][rows] for k, name in enumerate(names)}
            )
            added = each.apart(pair.set_axis(labels(names), axis=1))
            self.codes[j][rows] = self.transformer.codecs[j].encode(added)

    def log_shares(self, rows: np.ndarray) -> dict[int, Tensor]:
        """Return 0 for the cells that the rows may have, else -inf, per column."""
        shares = {}
        for j, codes in self.codes.items():
            codec = self.transformer.codecs[j]
            found = torch.full((len(rows), codec.n_cells), -torch.inf)
            cells = torch.from_numpy(codes[rows])
            is_open = cells < 0
            found.scatter_(1, cells.clamp(min=0).unsqueeze(1), 0.0)
            found[is_open] = 0.0
            if codec.column.nullable:
                found[is_open, -1] = -torch.inf
            shares[j] = found
        return shares

    def rows(
        self, codes: np.ndarray, positions: np.ndarray, rows: np.ndarray
    ) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
        """Return candidates with what is given, which are in bounds, log-densities.

        The density is that of what follows from the values given.
        """
        lows, matched = self._below(codes, positions, rows)

        def settle(name: Hashable, drawn: pd.Series) -> tuple[pd.Series, np.ndarray]:
            if name in lows:
                low, chosen = lows[name]
                drawn = drawn.where(~chosen, low)
            return self._settled(name, drawn, rows)

        frame, inside = self.transformer.rows(codes, positions, settle)
        log_density = np.zeros(len(rows))
        learned = self.transformer.learned(frame) if matched else []
        for j, chosen in matched.items():
            codec = self.transformer.codecs[j]
            fits = codec.encode(learned[j]) == codes[:, j]
            found = np.where(fits, codec.log_within(learned[j]), -np.inf)
            log_density += np.where(chosen, found, 0.0)
        return frame, inside, log_density

    def _below(
        self, codes: np.ndarray, positions: np.ndarray, rows: np.ndarray
    ) -> tuple[dict[Hashable, tuple[pd.Series, np.ndarray]], dict[int, np.ndarray]]:
        """Return columns that follow from those above them, and in which rows.

        And by place the rows in which what follows has to match the cells drawn.
        """
        lows: dict[Hashable, tuple[pd.Series, np.ndarray]] = {}
        matched: dict[int, np.ndarray] = {}
        built = {each.name for each in self.transformer.increments}
        for each in self.transformer.increments:
            low, j = each.low.name, self.transformer.place(each.name)
            if each.name not in self.values:
                continue
            matched[j] = self.given[each.name][rows] & (self.codes[j][rows] < 0)
            if low in lows or low in built or not each.invertible:
                continue
            k = self.transformer.place(low)
            codec = self.transformer.codecs[k]
            chosen = matched[j] & ~self._is_given(low, rows)
            chosen &= (codes[:, k] < codec.n_cells - 1) | (not codec.column.nullable)
            added = self.transformer.codecs[j].decode(codes[:, j], positions[:, j])
            values, inside = each.below(
                codec.dtype, self.values[each.name].reindex(rows), added
            )
            lows[low] = values, chosen & inside
            matched[j], matched[k] = matched[j] & ~(chosen & inside), chosen
        return lows, matched

    def _is_given(self, name: Hashable, rows: np.ndarray) -> np.ndarray:
        given = self.given.get(name)
        return np.zeros(len(rows), dtype=bool) if given is None else given[rows]

    def put(self, frame: pd.DataFrame, rows: np.ndarray) -> pd.DataFrame:
        """Return drawn rows with the values that are given."""
        for name in self.values:
            frame[name], _ = self._settled(name, frame[name], rows)
        return frame

    def _settled(
        self, name: Hashable, drawn: pd.Series, rows: np.ndarray
    ) -> tuple[pd.Series, np.ndarray]:
        if name not in self.values:
            return drawn, np.zeros(len(rows), dtype=bool)
        given = self.given[name][rows]
        column = drawn.copy()
        column[given] = self.values[name].loc[rows[given]].array
        return column, given


def _require_fit(owner: str, column: Column, values: pd.Series, is_open: bool) -> None:
    """Raise an error for values that no row has; bounds and open levels are soft."""
    column = replace(column, lower=None, upper=None)
    found = Schema([column]).check(values.to_frame(column.name))
    soft = ["not finite", "not among the levels"] if is_open else ["not finite"]
    unfit = found[~found["problem"].isin(soft)].reset_index(drop=True)
    if len(unfit):
        raise ValueError(
            f"{owner}.sample: the value {unfit['value'][0]!r} given does not fit the "
            f"column {column.name!r}: {unfit['problem'][0]}."
        )


def _held(owner: str, codec: Codec, values: pd.Series) -> pd.Series:
    """Return values as their column holds them; raise an error where it cannot.

    Instants without a time zone are read on the clock of the column's.
    """
    column, dtype = codec.column, codec.dtype
    try:
        if _is_local(values.dtype) and time_zone(dtype) is not None:
            counts, missing = to_units(values, "us"), values.isna().to_numpy(bool)
            counts = np.where(missing, 0.0, counts)
            held = from_units(counts, missing, "us", dtype).set_axis(values.index)
        else:
            held = values.astype(dtype)
        lost = np.zeros(len(values), dtype=bool)
        if column.temporal:
            lost = np.isnan(to_units(held, "us")) & ~values.isna().to_numpy(bool)
        elif column.numeric:
            a, b = (each.to_numpy(float, na_value=np.nan) for each in (held, values))
            lost = ~np.isclose(a, b, rtol=1e-3, equal_nan=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{owner}.sample: what is given for the column {column.name!r} does not "
            f"fit its dtype {dtype}: {error}"
        ) from None
    if lost.any():
        raise ValueError(
            f"{owner}.sample: the value {values[lost].iloc[0]!r} given for the column "
            f"{column.name!r} does not fit its dtype {dtype}."
        )
    return held


def _is_local(dtype: Any) -> bool:
    return temporal_kind(dtype) == "datetime" and time_zone(dtype) is None


def _points(column: Column, condition: Any) -> list[Any]:
    """Return the single values of a continuum that a condition lists."""
    if not column.numeric or column.step is not None:
        return []
    parts = alternatives(condition)
    return [p for p in parts if not isinstance(p, tuple) and not is_missing(p)]


def _effective(log_weights: np.ndarray) -> np.ndarray:
    """Return the effective number of the candidates in every row."""
    most = log_weights.max(1, keepdims=True)
    weights = np.exp(log_weights - np.where(np.isinf(most), 0.0, most))
    worth = weights.sum(1) ** 2 / np.maximum((weights**2).sum(1), 1e-300)
    return np.where((log_weights == 0).all(1), np.inf, worth)
