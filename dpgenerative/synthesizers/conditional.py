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
from dpgenerative.constraints import alternatives, is_missing, satisfies
from dpgenerative.exceptions import SamplingError
from dpgenerative.schema import Column, Schema, check_condition
from dpgenerative.transform import Segments, TableTransformer

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
        segments = self._segments(given)
        repaired = {name for c in self.schema.constraints for name in c.repairs}
        clamped = {
            j: each for j, each in segments.items() if self._name(j) not in repaired
        }
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
            frame = self._decoded(codes[hopeful], positions[hopeful], clamped)
            frame, holds = self._checked(frame, given)
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
        self._require_names(given)
        names = [codec.column.name for codec in self.transformer.codecs]
        if ids := [name for name in given if name not in names]:
            owner = f"{self.owner}.sample"
            refuse(owner, "given", "names identifiers, which are made anew", ids)
        segments = {}
        for name, condition in given.items():
            j = names.index(name)
            codec = self.transformer.codecs[j]
            check_condition(codec.column, condition)
            if _points(codec.column, condition) and len(alternatives(condition)) > 1:
                raise ValueError(
                    f"{self.owner}.sample: one number of the continuum {name!r} has "
                    f"probability 0 beside others; give intervals, not {condition!r}."
                )
            segments[j] = codec.segments(condition)
            if not segments[j].shares(codec.n_cells).any():
                raise ValueError(
                    f"{self.owner}.sample: no value of the column {name!r} satisfies "
                    f"{condition!r}."
                )
        return segments

    def _require_names(self, given: Any) -> None:
        names = list(self.schema.names)
        if unknown := [name for name in given if name not in names]:
            owner = f"{self.owner}.sample"
            refuse(owner, "given", f"must name columns among {names}", unknown)

    def _name(self, j: int) -> Hashable:
        return self.transformer.codecs[j].column.name

    def _log_shares(self, j: int, segments: Segments) -> Tensor:
        shares = segments.shares(self.transformer.codecs[j].n_cells)
        return torch.from_numpy(shares).log().float().unsqueeze(0)

    def _decoded(
        self, codes: np.ndarray, positions: np.ndarray, clamped: Mapping[int, Segments]
    ) -> pd.DataFrame:
        if self.can_clamp:
            positions = positions.copy()
            for j, segments in clamped.items():
                positions[:, j] = segments.place(codes[:, j], positions[:, j])
        return self.transformer.decode(codes, positions)

    def _checked(
        self, frame: pd.DataFrame, given: Mapping[Hashable, Any]
    ) -> tuple[pd.DataFrame, np.ndarray]:
        """Return repaired rows, and which of them satisfy everything."""
        for name, condition in given.items():
            for point in _points(self.schema[name], condition):
                frame[name] = pd.Series(point, frame.index, frame[name].dtype)
        frame = self._repaired(frame)
        holds = self._holds(frame)
        for name, condition in given.items():
            if not _points(self.schema[name], condition):
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
                f"given have no completion among {self.max_tries} candidates. Give "
                f"less, or raise max_tries={self.max_tries}."
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
        table = known.put(self.transformer.decode(codes, positions), np.arange(n))
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
                frame = known.put(self.transformer.decode(drawn, places), repeated)
                frame = known.put(self._repaired(frame), repeated)
                log_weights[~self._holds(frame)] = -np.inf
            shape = (-1, n_candidates)
            log_weights = log_weights.reshape(shape)
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
        self.codecs = {
            j: codec
            for j, codec in enumerate(candidates.transformer.codecs)
            if codec.column.name in frame.columns
        }
        self.values: dict[int, pd.Series] = {}
        self.codes: dict[int, np.ndarray] = {}
        for j, codec in self.codecs.items():
            series = frame[codec.column.name].reset_index(drop=True)
            given = ~series.isna() if impute else pd.Series(True, series.index)
            values = series[given]
            is_open = codec.column.name in candidates.open_levels
            _require_fit(candidates.owner, codec.column, values, is_open)
            self.values[j] = values.astype(codec.dtype)
            self.codes[j] = np.full(len(series), -1)
            self.codes[j][given] = codec.encode(self.values[j])

    def log_shares(self, rows: np.ndarray) -> dict[int, Tensor]:
        """Return 0 for the cells that the rows may have, else -inf, per column."""
        shares = {}
        for j, codes in self.codes.items():
            found = torch.full((len(rows), self.codecs[j].n_cells), -torch.inf)
            cells = torch.from_numpy(codes[rows])
            is_open = cells < 0
            found.scatter_(1, cells.clamp(min=0).unsqueeze(1), 0.0)
            found[is_open] = 0.0
            if self.codecs[j].column.nullable:
                found[is_open, -1] = -torch.inf
            shares[j] = found
        return shares

    def put(self, frame: pd.DataFrame, rows: np.ndarray) -> pd.DataFrame:
        """Return drawn rows with the values that are given."""
        for j, values in self.values.items():
            name = self.codecs[j].column.name
            given = self.codes[j][rows] >= 0
            column = frame[name].copy()
            column[given] = values.loc[rows[given]].array
            frame[name] = column
        return frame


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
