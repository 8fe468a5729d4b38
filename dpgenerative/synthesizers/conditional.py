"""Rows that satisfy conditions and constraints, chosen among candidates.

A model that can be clamped draws candidates whose given columns satisfy what is asked.
Each has an importance weight: how probable that was, given the columns drawn before it.
Rows of the conditional distribution are obtained from them

- by rejection: a candidate of weight w is accepted with probability w / M. With M = 1,
  if no weight exceeds it, accepted rows follow the conditional distribution exactly;
- with M the largest observed weight, where M = 1 would cost too many candidates or is
  exceeded. The accepted rows then lack the part of the distribution that lies above M:
  about one row in n, if n rows are accepted, and n is at least `LEAST_ROWS`;
- for partial rows, each of which is a condition of its own, by drawing one of its
  candidates with probability in proportion to the weights (sampling / importance
  resampling), which is exact in the limit of many candidates.

A column that is learned as an increment on another (`increments`), or as a share of
what others leave (`stick_breaking`), is clamped where these are given too. Otherwise a
condition on it is met by rejection, and a value of a partial row by weight: the column
below is set to the value less the candidate's increment, and counts by the density of
that within the candidate's cell, 0 outside. Where that cannot be (for shares, or as the
column below is missing, of another grid, an increment itself or learned by its parts),
the increment or share follows from all columns and counts likewise.

All of it reads the released model and what the caller gave, never private rows.
"""

import warnings
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from dpgenerative._validation import check_option, count, refuse
from dpgenerative.encoding.codecs import Codec, Segments
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.exceptions import SamplingError
from dpgenerative.synthesizers.partial_rows import PartialRows, logs, nested
from dpgenerative.tables.column import Column
from dpgenerative.tables.conditions import alternatives, check_condition, satisfies
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.values import is_missing

LEAST_ROWS = 500
"""Least number of candidates to accept if M is the largest observed weight."""
CHUNK = 2**16
"""Candidates drawn at a time."""
FEW_CANDIDATES = 100
"""Candidates per partial row at first..."""
EFFECTIVE = 20
"""... and `max_tries` of them where the first are worth fewer than this many."""
POOR = 5
"""With fewer effective candidates than this, a warning is raised."""

Drawer = Callable[[int, Mapping[int, Tensor]], tuple[np.ndarray, ...]]
"""From a number of rows and log-shares of cells: codes, positions, log-weights."""


def check_given(owner: str, given: Any, impute: Any, max_tries: Any) -> None:
    """Require conditions that are a mapping or a table; raise ValueError."""
    is_table = isinstance(given, pd.DataFrame)
    if not is_table and not isinstance(given, (Mapping, type(None))):
        refuse(owner, "given", "must be a mapping or a DataFrame", given)
    if is_table and not len(given):
        refuse(owner, "given", "needs at least one row", given)
    if is_table and given.columns.has_duplicates:
        refuse(owner, "given", "needs distinct column names", list(given.columns))
    check_option(owner, "impute", impute, [True, False])
    if impute and not is_table:
        refuse(owner, "impute", "needs a DataFrame given", impute)
    count()(owner, "max_tries", max_tries)


@dataclass
class Candidates:
    """Candidate rows of a fitted model, from which valid ones are chosen.

    Attributes
    ----------
    owner : str
        Name of the synthesizer's method, for errors.
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
        Columns whose levels were estimated privately: others occur.
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
            If too few candidates do.
        """
        clamped, points = self._clamped(given)
        shares = {
            j: logs(segments.shares(self.transformer.codecs[j].n_cells)).unsqueeze(0)
            for j, segments in clamped.items()
        }
        shares = nested(self.transformer, shares)
        frames: list[pd.DataFrame] = []
        scores = np.empty(0)
        tried, n_valid, bound, needed = 0, 0, 0.0, n
        while True:
            size = self._size(needed, n_valid, tried)
            codes, positions, log_weights = self.draw(size, shares)
            if not tried and np.exp(log_weights).mean() < 1 / self.max_tries:
                bound, needed = -np.inf, max(n, LEAST_ROWS)
            most = log_weights.max()
            if most > max(bound, 0):  # by as much as a correction raises a class
                needed = max(n, LEAST_ROWS)
            if needed > n or bound < 0 or most > 0:
                bound = max(bound, most)
            tried += size
            # Accepted with probability exp(log_weight - bound), also for a later bound.
            score = log_weights - np.log1p(-self.rng.random(size))
            hopeful = score > bound
            codes, positions = codes[hopeful], positions[hopeful]
            for j, segments in clamped.items() if self.can_clamp else ():
                positions[:, j] = segments.place(codes[:, j], positions[:, j])
            frame, holds = self._checked(codes, positions, given, points)
            frames.append(frame[holds])
            scores = np.append(scores, score[hopeful][holds])
            n_valid = int((scores > bound).sum())
            if n_valid >= needed or self._must_end(n, needed, n_valid, tried):
                table = pd.concat(frames, ignore_index=True)
                return table[scores > bound].iloc[:n].reset_index(drop=True)

    def _size(self, needed: int, n_valid: int, tried: int) -> int:
        rate = max(n_valid / tried, 1 / self.max_tries) if tried else 1.0
        return int(np.clip(1.2 * (needed - n_valid) / rate, 1024, CHUNK))

    def _must_end(self, n: int, needed: int, n_valid: int, tried: int) -> bool:
        """Return whether to stop, since the limit is reached or surely will be.

        Fewer than n rows raise an error; fewer than `needed` are a rough sample, with a
        warning.
        """
        least = self.max_tries * LEAST_ROWS
        limit = self.max_tries * max(n, LEAST_ROWS)
        is_hopeless = tried >= least and n_valid / tried * limit < needed / 2
        if tried < limit and not is_hopeless:
            return False
        if n_valid < n:
            raise SamplingError(
                f"{self.owner}: of {tried} candidates {n_valid} satisfy what is given "
                f"and all constraints (acceptance rate {n_valid / tried:.2g}); {n} "
                "are needed. See whether the constraints can hold together, ask for "
                f"less, or raise max_tries={self.max_tries}."
            )
        warnings.warn(
            f"{self.owner}: of {tried} candidates only {n_valid} satisfy what is given "
            f"and all constraints, and {needed} are needed for rows that follow the "
            f"model closely. Ask for less, or raise max_tries={self.max_tries}.",
            stacklevel=4,
        )
        return True

    def _clamped(
        self, given: Mapping[Hashable, Any]
    ) -> tuple[dict[int, Segments], dict[Hashable, Any]]:
        """Return the parts of cells to which columns are clamped, by place.

        And the single numbers of continua, by name, of which only the cells are drawn.
        A constraint's repair, or an increment, fixes these numbers only later.
        """
        self._require_names(given)
        outer = {codec.column.name: codec for codec in self.transformer.outer}
        calendars = {each.name: each for each in self.transformer.calendars}
        if ids := [name for name in given if self.schema[name].is_key]:
            refuse(self.owner, "given", "names identifiers, which are made anew", ids)
        built = {
            each.name: "as it is built on " + ", ".join(map(repr, each.bases))
            for each in self.transformer.built
        }
        for place in self.transformer.places:
            built |= dict.fromkeys(place.names, "as part of a place (joint)")
        repaired = {name for c in self.schema.constraints for name in c.repairs}
        clamped, points = {}, {}
        for name, condition in given.items():
            if name not in outer:
                check_condition(self.schema[name], condition)
                continue
            segments, single = self._possible(outer[name], condition)
            if single and name in built:
                raise ValueError(
                    f"{self.owner}: one number of the continuum {name!r} has "
                    f"probability 0, {built[name]}; "
                    "give an interval, or a DataFrame of partial rows."
                )
            if name in built or name in repaired:
                continue
            if name in calendars:
                for part, each in calendars[name].conditions(condition):
                    j = self.transformer.place(part)
                    clamped[j] = self.transformer.codecs[j].segments(each)
                continue
            clamped[self.transformer.place(name)] = segments
            if single:
                points[name] = single[0]
        return clamped | self._clamped_places(given), points

    def _clamped_places(self, given: Mapping[Hashable, Any]) -> dict[int, Segments]:
        """Return the cells to which columns that are learned together are clamped.

        Raise an error where none satisfies the conditions on all of them.
        """
        clamped = {}
        for each in self.transformer.places:
            conditions = {name: given[name] for name in each.names if name in given}
            if not conditions:
                continue
            j = self.transformer.place(each.name)
            clamped[j] = each.segments(conditions)
            if not len(clamped[j].cells):
                raise ValueError(
                    f"{self.owner}: no values of the columns {list(conditions)}, which "
                    f"are learned together, meet {conditions!r}."
                )
        return clamped

    def _possible(self, codec: Codec, condition: Any) -> tuple[Segments, list[Any]]:
        """Return where a condition holds, and the single number of a continuum.

        Raise an error where it never holds.
        """
        name = codec.column.name
        check_condition(codec.column, condition)
        single = _single_numbers(codec.column, condition)
        if single and len(alternatives(condition)) > 1:
            raise ValueError(
                f"{self.owner}: one number of the continuum {name!r} has probability 0 "
                f"beside others; give intervals, not {condition!r}."
            )
        segments = codec.segments(condition)
        if not (segments.high > segments.low).any():
            raise ValueError(
                f"{self.owner}: no value of the column {name!r} meets {condition!r}."
            )
        return segments, single

    def _require_names(self, given: Any) -> None:
        names = list(self.schema.names)
        if unknown := [name for name in given if name not in names]:
            refuse(self.owner, "given", f"must name columns among {names}", unknown)

    def _checked(
        self,
        codes: np.ndarray,
        positions: np.ndarray,
        given: Mapping[Hashable, Any],
        points: Mapping[Hashable, Any],
    ) -> tuple[pd.DataFrame, np.ndarray]:
        """Return repaired rows, and which of them satisfy everything."""
        outer = {codec.column.name: codec for codec in self.transformer.outer}
        fixed = {
            name: pd.Series(value, range(len(codes)), outer[name].dtype)
            for name, value in points.items()
        }
        frame, holds = self.transformer.rows(codes, positions, fixed)
        frame = self.schema.repaired(frame)
        holds &= self._holds(frame)
        for name, condition in given.items():
            if name not in points:
                holds &= satisfies(frame[name], condition)
        return frame, holds

    def _holds(self, frame: pd.DataFrame) -> np.ndarray:
        """Return which rows satisfy all constraints and bounds of derived columns."""
        flags = [holds for _, holds in self.schema.satisfied(frame)]
        for column in (self.schema[each.name] for each in self.schema.derived):
            missing = frame[column.name].isna().to_numpy(bool)
            bounds = (column.lower, column.upper)
            inside = not column.numeric or satisfies(frame[column.name], bounds)
            flags.append(np.where(missing, bool(column.nullable), inside))
        return np.all([np.ones(len(frame), dtype=bool), *flags], axis=0)

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
            If no candidate of a row satisfies the constraints.
        """
        self._require_names(frame.columns)
        derived = [each.name for each in self.schema.derived]
        if computed := [name for name in frame.columns if name in derived]:
            rule = (
                "must leave out what is computed from other columns, as the last part "
                "of a Composition is: give those others"
            )
            refuse(self.owner, "given", rule, computed)
        table, effective = self._completed(frame, impute)
        n = len(frame)
        if not effective.all():
            raise SamplingError(
                f"{self.owner}: {int((effective == 0).sum())} of the {n} rows given "
                f"have no completion among {self.max_tries} candidates that keeps the "
                "constraints of the schema. See whether the values given do "
                f"(Schema.check), give less, or raise max_tries={self.max_tries}."
            )
        if poor := int((effective < POOR).sum()):
            warnings.warn(
                f"{self.owner}: for {poor} of the {n} rows given, the {self.max_tries} "
                f"candidates are worth fewer than {POOR} draws: the values given are "
                "improbable, so the completion is rough. Give fewer values, or raise "
                "max_tries.",
                stacklevel=4,
            )
        return table

    def continuing(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return one complete row for every row of a table that has any."""
        table, effective = self._completed(frame, False)
        return table[effective > 0]

    def _completed(
        self, frame: pd.DataFrame, impute: bool
    ) -> tuple[pd.DataFrame, np.ndarray]:
        """Return complete rows, and how many candidates each was chosen from."""
        about = self.owner, self.transformer, self.open_levels
        partial = PartialRows(*about, frame, impute)
        rows, few = np.arange(len(frame)), min(FEW_CANDIDATES, self.max_tries)
        codes, positions, effective = self._chosen(partial, rows, 1)
        if len(rest := np.flatnonzero(~np.isinf(effective))):
            better = self._chosen(partial, rest, few)
            codes[rest], positions[rest], effective[rest] = better
            hard = np.flatnonzero(effective < EFFECTIVE)
            if len(hard) and self.max_tries > FEW_CANDIDATES:
                better = self._chosen(partial, hard, self.max_tries)
                codes[hard], positions[hard], effective[hard] = better
        table, *_ = partial.rows(codes, positions, rows)
        table = partial.put(self.schema.repaired(table), rows)
        return table.set_axis(frame.index), effective

    def _chosen(
        self, partial: PartialRows, rows: np.ndarray, n_candidates: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return cells and positions of one candidate per row, and effective numbers.

        The effective number of candidates is ``(sum w)^2 / sum w^2``, inf where all
        weights are 1 and 0 where all are 0.
        """
        width = len(self.transformer.codecs)
        codes = np.empty((len(rows), width), dtype=np.int64)
        positions = np.empty((len(rows), width))
        effective = np.empty(len(rows))
        size = max(1, CHUNK // 4 // n_candidates)
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            repeated = np.repeat(rows[part], n_candidates)
            shares = partial.log_shares(repeated)
            drawn, places, log_weights = self.draw(len(repeated), shares)
            log_weights = log_weights.copy()
            if self.schema.constraints:
                frame, inside, log_density = partial.rows(drawn, places, repeated)
                log_weights += log_density
                frame = partial.put(self.schema.repaired(frame), repeated)
                log_weights[~(inside & self._holds(frame))] = -np.inf
            log_weights = log_weights.reshape(-1, n_candidates)
            race = log_weights + self.rng.gumbel(size=log_weights.shape)
            best = race.argmax(1) + n_candidates * np.arange(len(race))
            codes[part], positions[part] = drawn[best], places[best]
            effective[part] = _effective(log_weights)
        return codes, positions, effective


def _single_numbers(column: Column, condition: Any) -> list[Any]:
    """Return the single values of a continuum that a condition lists."""
    if not column.numeric or column.step is not None:
        return []
    parts = alternatives(condition)
    pairs = [part if isinstance(part, tuple) else (part, part) for part in parts]
    return [
        low for low, high in pairs
        if not (is_missing(low) or is_missing(high))
        and column.count(low) == column.count(high)
    ]  # fmt: skip


def _effective(log_weights: np.ndarray) -> np.ndarray:
    """Return the effective number of the candidates in every row."""
    most = log_weights.max(1, keepdims=True)
    weights = np.exp(log_weights - np.where(np.isinf(most), 0.0, most))
    worth = weights.sum(1) ** 2 / np.maximum((weights**2).sum(1), 1e-300)
    return np.where((log_weights == 0).all(1), np.inf, worth)
