"""How the budget of marginals is shared among columns, and among their releases.

The expected distance of a released histogram of K cells with noise s grows as K s, the
cost as 1 / s^2, so that the sum over columns is least with 1 / s^2 in proportion to
K^(2/3). All of it follows from what is public and the released row count.
"""

import math

from dpgenerative.encoding import grid
from dpgenerative.encoding.increments import learned_columns
from dpgenerative.tables.column import Column
from dpgenerative.tables.schema import Schema

DOMAIN_SHARE = 0.25
"""Part of a column's budget that finds its bounds or levels, where they are unknown."""
STRUCTURE_SHARE = 0.4
"""Part of a numeric column's budget that finds its cells."""
FAN_OUT = 3
"""Number of halvings in one release..."""
FEW_HALVINGS = 300.0
"""... up to this many rows per standard deviation of a count; above them, one..."""
ONE_SPLIT = 10.0
"""... and up to this many, there is no second release that finds cells."""
LEAST_CELLS = 8
"""Number of cells reckoned with for every column that may have as many."""
SPIKE_SHARE = 0.1
"""Part of a numeric column's budget that finds the values many rows share: of a
continuum and of a coarse grid always, of another grid..."""
SPIKE_CELLS = 2
"""... of more values than this many times n_bins..."""
SPIKE_ROWS = 1000.0
"""... from this many rows per standard deviation of a count on."""
OPEN_LEVELS = 64
"""Number of levels reckoned with where they are unknown: finding them costs most."""
PLACE_SPLITS = 3
"""Number of releases that find the boxes of columns that are learned together: two
halvings of a box halve each column once."""
PLACE_CELLS = 3
"""Cells of columns that are learned together, per interval of a single one."""
POOL_NOISE = 5.0
"""Levels with fewer rows than this many standard deviations share a cell."""


def has_open_domain(column: Column) -> bool:
    """Return whether a column's bounds or levels are unknown."""
    return column.lower is None if column.numeric else column.levels is None


def has_open_keys(column: Column, anchored: bool = True) -> bool:
    """Return whether fitting a column releases keys by a threshold, paid by delta."""
    if column.numeric:
        return anchored and (column.step is None or may_be_coarse(column))
    return column.levels is None


def may_be_coarse(column: Column) -> bool:
    """Return whether values of a grid may share cells, by what is stated of it."""
    is_open = column.lower is None
    return column.is_ordered and (is_open or grid.is_coarse(column))


def cells_aimed_at(column: Column, n_bins: int) -> int:
    """Return the number of cells that a column of numbers is cut into, or fewer."""
    return n_bins if column.is_ordered else PLACE_CELLS * n_bins


def expected_cells(column: Column, n_bins: int) -> float:
    """Return how many cells a column may get, by what is public."""
    if not column.numeric:
        n_levels = OPEN_LEVELS if column.levels is None else len(column.levels)
        return n_levels + bool(column.nullable)
    if column.lower is None or column.step is None:
        return n_bins
    low, high = grid.ends_of(column)
    return min(cells_aimed_at(column, n_bins), high - low + 1)


def column_stds(
    schema: Schema, multiplier: float, n_bins: int, n_rows: int
) -> list[float]:
    """Return the noise of every column's budget, as the deviation of one count.

    Columns that are learned together count as often as they are.
    """
    columns = learned_columns(schema).values()
    times = {names[0]: len(names) for names in schema.joint}
    # Of noise shared evenly, no more cells than these would stand out.
    noise = POOL_NOISE * multiplier * math.sqrt(len(columns))
    most = max(LEAST_CELLS, n_rows / noise) if noise else math.inf
    weights = [
        times.get(c.name, 1) * min(expected_cells(c, n_bins), most) ** (2 / 3)
        for c in columns
    ]
    return [multiplier * math.sqrt(sum(weights) / weight) for weight in weights]


def split_releases(n_levels: int, n_rows: int, std: float) -> tuple[int, int]:
    """Return how many releases find the cells of numbers, and how many halvings each.

    Every release takes its part of the budget. The more noise, the fewer there are, of
    more counts each. The grid has `n_levels` halvings; `std` is that of the column's
    whole budget (`column_stds`).
    """
    if n_rows > FEW_HALVINGS * std:
        return n_levels, 1
    if n_rows > ONE_SPLIT * std:
        return math.ceil(n_levels / FAN_OUT), FAN_OUT
    return min(n_levels, 1), FAN_OUT


def place_releases(n_levels: int, n_rows: int, std: float) -> tuple[int, int]:
    """Return the same as `split_releases` for columns that are learned together."""
    n_splits = PLACE_SPLITS if n_rows > ONE_SPLIT * std else 1
    return min(n_levels, n_splits), math.ceil(n_levels / PLACE_SPLITS)


def cell_std(column: Column, n_bins: int, n_rows: int, std: float) -> float:
    """Return the standard deviation of the counts of a column's cells.

    What finds its bounds or levels is taken out of its whole budget, of this `std`.
    """
    share = 1 - DOMAIN_SHARE if has_open_domain(column) else 1.0
    if column.numeric:
        spikes = spike_share(column, n_bins, n_rows, std)
        share *= (1 - STRUCTURE_SHARE) * (1 - spikes)
    return std / math.sqrt(share)


def spike_share(column: Column, n_bins: int, n_rows: int, std: float) -> float:
    """Return the part of a numeric column's budget that finds what many rows share.

    `std` is that of the budget that is left when bounds are known.
    """
    if column.step is None:
        return SPIKE_SHARE
    if not column.is_ordered or column.lower is None:
        return 0.0
    if grid.is_coarse(column):
        return SPIKE_SHARE
    has_rows = n_rows > SPIKE_ROWS * std
    return SPIKE_SHARE if has_rows and is_wide(column, n_bins) else 0.0


def is_wide(column: Column, n_bins: int) -> bool:
    """Return whether a grid with bounds has far more values than cells are aimed at."""
    low, high = grid.ends_of(column)
    return high - low >= SPIKE_CELLS * n_bins
