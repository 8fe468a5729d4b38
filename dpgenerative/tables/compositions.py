"""Columns that sum to a public total in every row: shares, percentages, hours.

The first is learned as it is, each further one as its share of what those before it
leave (`encoding.stick_breaking`), and the last is computed. No row is drawn again, so
that sums are exact and no column's own distribution is bent for them.
"""

import math
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative.tables.column import Column
from dpgenerative.tables.constraints import (
    Constraint,
    Facts,
    builtin,
    distinct_names,
    refuse_field,
)
from dpgenerative.tables.derived import (
    MOST_DIGITS,
    Computed,
    Values,
    check_digits,
    values_of,
)
from dpgenerative.tables.dtypes import can_hold
from dpgenerative.tables.values import as_stored

ROOM = 1e-6
"""Share of the total by which rows may miss it: those of 32 bits do."""


@builtin
@dataclass(frozen=True)
class Composition(Computed):
    """Numbers, none below 0, that sum to a total in every row.

    Sampled rows keep it exactly, in the precision of their dtypes. A row in which one
    of them is missing satisfies it, and is sampled with the last one missing.

    Parameters
    ----------
    names : sequence of hashable
        Three columns of numbers or more, of one resolution. Their bounds are 0 and
        the total where none are stated. All but the last are learned: the first as
        it is, the others as shares of what is left.
    total : float, default=1
        What they sum to.
    digits : int, optional
        Decimals to which the last is rounded. None: those of the resolution, if any.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"sand": [60, 10], "silt": [30, 40], "clay": [10, 40]})
    >>> Composition(["sand", "silt", "clay"], total=100).holds(frame).tolist()
    [True, False]
    """

    names: Sequence[Hashable]
    total: float = 1.0
    digits: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", distinct_names(self, self.names))
        if len(self.names) < 3:
            refuse_field(self, "names", "must be three or more")
        is_number = isinstance(self.total, (int, float)) and self.total is not True
        if not (is_number and 0 < self.total <= sys.float_info.max):
            refuse_field(self, "total", "must be a positive number")
        check_digits(self, self.digits)

    @property
    def name(self) -> Hashable:  # type: ignore[override]
        """The column that is computed."""
        return self.names[-1]

    @property
    def reads(self) -> tuple[Hashable, ...]:
        return tuple(self.names[:-1])

    @property
    def repairs(self) -> tuple[Hashable, ...]:
        return tuple(self.names[1:])

    def check(self, facts: Facts, dtypes: Mapping[Hashable, Any]) -> None:
        super().check(facts, dtypes)
        columns = [facts[name] for name in self.names]
        for column in columns:
            if not column.numeric:
                raise ValueError(f"{self!r} needs numbers in {column.name!r}.")
            bounds = (column.lower, column.upper)
            if column.lower is not None and (bounds[0] < 0 or bounds[1] > self.total):
                raise ValueError(
                    f"{self!r} needs bounds of {column.name!r} between 0 and "
                    f"{self.total}; got {bounds}."
                )
        steps = {column.step for column in columns}
        if len(steps) > 1:
            each = ", ".join(f"{x.step} of {x.name!r}" for x in columns)
            raise ValueError(f"{self!r} needs columns of one resolution; got {each}.")
        if columns[0].misses_step(np.array([float(self.total)])).any():
            raise ValueError(f"{self!r} needs a total on the grid of its columns.")
        self._check_sums(columns)
        upper, dtype = columns[-1].upper, dtypes[self.name]
        if not can_hold(dtype, as_stored(upper, dtype)):
            raise ValueError(
                f"{self!r} needs a dtype of {self.name!r} that holds its upper bound "
                f"{upper}; got {dtype}."
            )

    def _check_sums(self, columns: Iterable[Column]) -> None:
        """Require that some values within the bounds sum to the total."""
        low = math.fsum(column.lower for column in columns)
        high = math.fsum(min(column.upper, self.total) for column in columns)
        room = ROOM * self.total
        if not low - room <= self.total <= high + room:
            raise ValueError(
                f"{self!r} has no rows: by the bounds of its columns they sum to "
                f"between {low:g} and {high:g}."
            )

    def completed(self, facts: Facts) -> "Composition":
        step = facts[self.name].step
        if step is None or self.digits is not None:
            return self
        every = range(MOST_DIGITS)
        exact = (d for d in every if abs(round(step, d) - step) < 1e-9 * step)
        return replace(self, digits=next(exact, None))

    def compute(self, frame: pd.DataFrame) -> Values:
        rest = np.full(len(frame), float(self.total))
        for name in self.reads:
            rest = rest - values_of(frame[name])
        # What rounding leaves of nothing, on either side of 0.
        room = self.total * max(_precision(frame[name].dtype) for name in self.reads)
        rest = np.where(np.abs(rest) <= room, 0.0, rest)
        return rest if self.digits is None else np.round(rest, self.digits)

    def holds(self, frame: pd.DataFrame) -> np.ndarray:
        off = np.abs(self.compute(frame) - values_of(frame[self.name]))
        room = ROOM * self.total
        if self.digits is not None:
            room += 0.5 * 10.0**-self.digits
        return np.isnan(off) | (off <= room)


def _precision(dtype: Any) -> float:
    """Return how far sums of rounded numbers between 0 and 1 miss 1, at most."""
    plain = getattr(dtype, "numpy_dtype", dtype)
    is_float = isinstance(plain, np.dtype) and plain.kind == "f"
    return max(1e-12, 4 * float(np.finfo(plain).eps) if is_float else 0.0)


def with_bounds(facts: Facts, constraints: Iterable[Constraint]) -> dict[Hashable, Any]:
    """Return what is public of columns, with the bounds that compositions imply."""
    bounded = dict(facts)
    for each in constraints:
        if not isinstance(each, Composition):
            continue
        for name in each.names:
            if bounded[name].numeric and bounded[name].lower is None:
                bounded[name] = bounded[name].bounded(0, each.total)
    return bounded


def check_apart(constraints: Sequence[Constraint]) -> None:
    """Require that no other constraint sets a column of a composition.

    Raises
    ------
    ValueError
    """
    for each in constraints:
        for other in constraints if isinstance(each, Composition) else ():
            both = [name for name in each.columns if name in other.repairs]
            if other is not each and both:
                raise ValueError(
                    f"Schema: {each!r} and {other!r} exclude each other, as both "
                    f"decide how {both} are made. Leave out one of them."
                )
