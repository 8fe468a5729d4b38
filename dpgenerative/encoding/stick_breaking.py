"""Columns of a composition, each learned as its share of what is left of the total.

Stick breaking: of columns that sum to a total, the first is learned as it is, the
second as a share of what the first leaves, and so on. Any shares between 0 and 1 give
a valid row, so that none is drawn again. Which columns are learned so follows from the
schema alone. Nothing is released here; the shares of private rows are private.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dpgenerative.encoding import grid
from dpgenerative.encoding.codecs import Codec, IntervalCodec, whole_codec
from dpgenerative.tables.column import Column
from dpgenerative.tables.compositions import ROOM, Composition
from dpgenerative.tables.schema import Schema


@dataclass(frozen=True)
class StickBreaking:
    """A column that is learned as a share of what others leave of a total.

    What is missing among the others takes nothing. On a grid of m steps that are left,
    nothing and all of them have the shares 0 and 1, and the m - 1 values between them
    equal parts of what lies between.

    Attributes
    ----------
    before : tuple of Column
        The others.
    whole : IntervalCodec
        The column itself, in one cell.
    total : float
    """

    dtype: ClassVar[Any] = np.dtype(float)

    before: tuple[Column, ...]
    whole: IntervalCodec
    total: float

    @classmethod
    def fitted(
        cls, composition: Composition, name: Hashable, schema: Schema, dtype: Any
    ) -> "StickBreaking":
        """Return the rule for a column of a composition."""
        place = composition.names.index(name)
        before = tuple(schema[each] for each in composition.names[:place])
        whole = whole_codec(schema[name], dtype)
        return cls(before, whole, float(composition.total))

    @property
    def name(self) -> Hashable:
        """Name of the column."""
        return self.whole.column.name

    @property
    def bases(self) -> tuple[Hashable, ...]:
        """Names of the columns on which it is built."""
        return tuple(column.name for column in self.before)

    def completed(self, shares: Column) -> "StickBreaking":
        """Return the rule with what follows from the shares that were released."""
        column = replace(self.whole.column, nullable=shares.nullable)
        return replace(self, whole=replace(self.whole, column=column))

    def of(self, rows: Mapping[Hashable, pd.Series]) -> pd.Series:
        """Return the shares of private rows: private."""
        column, left = self.whole.column, self._left(rows)
        steps = grid.in_steps(column, rows[self.name])
        half, room = (0.0, ROOM * self.total) if column.step is None else (0.5, 0.0)
        shares = ((steps - half) / self._span(left)).clip(0, 1)
        shares = np.where(steps >= left - room, 1.0, shares)
        return pd.Series(np.where(steps <= 0, 0.0, shares))

    def built(
        self, rows: Mapping[Hashable, pd.Series], shares: pd.Series
    ) -> tuple[pd.Series, np.ndarray]:
        """Return the column, and which of its values lie within its bounds."""
        column, left = self.whole.column, self._left(rows)
        share = shares.to_numpy(float)
        steps = share * self._span(left)
        if column.step is not None:
            within = np.clip(np.floor(steps) + 1, 1, np.maximum(left - 1, 1))
            within = np.where(left > 1, within, np.round(share))
            ends = np.where(share >= 1, left, share)
            steps = np.where((share > 0) & (share < 1), within, ends)
        numbers = np.minimum(steps, left) * (column.step or 1.0)
        return grid.nearest_values(column, self.whole.dtype, numbers)

    def log_within(
        self, codec: Codec, shares: pd.Series, rows: Mapping[Hashable, pd.Series]
    ) -> np.ndarray:
        """Return the log-density of every value given the cell of its share.

        A probability for what is missing and on a grid, where a cell of one share is
        one value, and of narrow cells that in the middle of a value's shares counts.
        """
        density = codec.log_within(shares) - np.log(self._span(self._left(rows)))
        is_atom = codec.atoms[codec.encode(shares)]
        if self.whole.column.step is None:
            return np.where(shares.isna(), 0.0, density)
        return np.where(is_atom, 0.0, np.minimum(density, 0.0))

    def _left(self, rows: Mapping[Hashable, pd.Series]) -> np.ndarray:
        """Return what the others leave of the total, in steps."""
        step = self.whole.column.step
        left = self.total if step is None else round(self.total / step)
        for column in self.before:  # in the order of `Composition.compute`
            left = left - np.nan_to_num(grid.in_steps(column, rows[column.name]))
        return np.maximum(left, 0.0)

    def _span(self, left: np.ndarray) -> np.ndarray:
        """Return the width of what lies between nothing and all that is left."""
        if self.whole.column.step is not None:
            return np.maximum(left - 1, 1.0)
        return np.where(left > 0, left, 1.0)


def stick_breaks_of(schema: Schema) -> dict[Hashable, Composition]:
    """Return the columns that are learned as shares of what is left, in order."""
    stated = [each for each in schema.constraints if isinstance(each, Composition)]
    return {name: each for each in stated for name in each.reads[1:]}


def share_of(column: Column) -> Column:
    """Return the shares that stand for a column."""
    return Column(column.name, "continuous", lower=0, upper=1, nullable=column.nullable)
