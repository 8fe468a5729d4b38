"""Distances between rows of mixed tables, and between images."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.ndimage import uniform_filter
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import gen_batches

from dpgenerative.metrics.columns import (
    as_floats,
    common_codes,
    comparable_codes,
    is_number,
    origin_of,
)

WINDOW = 7
"""Side of the square over which structural similarity takes means and variances."""
_BLOCK = 2**20  # distances in memory at once: as many as stay in a cache


@dataclass(frozen=True)
class Points:
    """Rows of mixed tables as points, with nominal columns as integer codes.

    The squared distance of two points is that of their `numbers`, plus one for every
    column of `levels` in which they differ. One indicator per level would give the
    same, in thousands of dimensions.

    Attributes
    ----------
    numbers : ndarray of shape (n, d)
    levels : ndarray of int, shape (n, c)
    """

    numbers: np.ndarray
    levels: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)

    def squares(self, others: "Points") -> np.ndarray:
        """Return squared distances of each row to the corresponding one."""
        apart = ((self.numbers - others.numbers) ** 2).sum(1)
        return np.asarray(apart + (self.levels != others.levels).sum(1))


class Embedding:
    """Rows of mixed tables as points, so that distances count differing columns.

    A numeric value becomes its rank among the rows of `tables`, from 0 to 1; a missing
    number gets the rank 1/2 and a second coordinate of 1. The squared distance of two
    rows is the number of nominal columns in which they differ plus the squared
    differences of ranks, and 0 for equal rows: a variant of Gower's distance (1971)
    that no scale and no heavy tail can dominate.

    Parameters
    ----------
    tables : sequence of DataFrame
        Tables with the same columns, whose values together define the ranks.
    others : sequence of DataFrame
        Further tables, whose levels are included.

    Attributes
    ----------
    names : list of hashable
        The columns in the order of the points': numbers first, then levels.

    Raises
    ------
    ValueError
        If a column holds numbers in one of `tables` and text in another.
    """

    def __init__(
        self, tables: Sequence[pd.DataFrame], others: Sequence[pd.DataFrame] = ()
    ) -> None:
        self._numbers: dict[Any, tuple[float, np.ndarray]] = {}
        self._levels: dict[Any, pd.Index] = {}
        for name in tables[0].columns:
            first, *rest = (frame[name] for frame in tables)
            # Not as categories, whose hash pandas takes: lone surrogates have none.
            column = pd.concat(map(_uncategorised, (first, *rest)))
            if is_number(column):
                origin = origin_of(column)
                values = as_floats(column, origin)
                self._numbers[name] = origin, np.sort(values[~np.isnan(values)])
            else:
                for each in rest:
                    comparable_codes(first, each)
                columns = [column, *(frame[name] for frame in others)]
                self._levels[name] = common_codes(*columns)[1]
        self.names = [*self._numbers, *self._levels]

    def __call__(self, frame: pd.DataFrame) -> Points:
        """Return the points of some rows."""
        nothing = np.empty((len(frame), 0))
        ranks = [self._ranks(frame[name]) for name in self._numbers]
        codes = [self._codes(frame[name]) for name in self._levels]
        return Points(
            np.column_stack([nothing, *ranks]),
            np.column_stack([nothing.astype(np.int32), *codes]),
        )

    def _ranks(self, column: pd.Series) -> np.ndarray:
        origin, ordered = self._numbers[column.name]
        values = as_floats(column, origin)
        missing = np.isnan(values)
        sides = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
        ranks = sum(sides) / 2 / max(len(ordered), 1)
        return np.column_stack([np.where(missing, 0.5, ranks), missing])

    def _codes(self, column: pd.Series) -> np.ndarray:
        levels = self._levels[column.name]
        codes = common_codes(pd.Series(levels, dtype=object), column)[0][1]
        # Unknown levels share one code; missing is a level of its own.
        return np.minimum(codes, len(levels)).astype(np.int32)


def _uncategorised(column: pd.Series) -> pd.Series:
    is_category = isinstance(column.dtype, pd.CategoricalDtype)
    return column.astype(object) if is_category else column


def nearest(points: Points, others: Points, k: int = 1) -> np.ndarray:
    """Return squared distances to the k nearest of `others`, ascending, (n, k)."""

    def smallest(distances: np.ndarray) -> np.ndarray:
        return np.partition(distances, k - 1, axis=1)[:, :k]

    return np.sort(summarised(points, others, smallest), axis=1)


def summarised(
    points: Points, others: Points, summary: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return a summary of every point's squared distances to all others."""
    return np.concatenate([summary(d) for d in blocks(points, others)])


def blocks(points: Points, others: Points) -> Iterator[np.ndarray]:
    """Yield squared distances of a few points to all others at a time.

    What rounding leaves of equal numbers, up to 1e-12, is 0.
    """
    # A constant coordinate, since scikit-learn takes no points without any.
    numbers, centres = (np.pad(p.numbers, ((0, 0), (0, 1))) for p in (points, others))
    levels = np.ascontiguousarray(others.levels.T)
    for rows in gen_batches(len(points), max(1, _BLOCK // len(others))):
        distances = euclidean_distances(numbers[rows], centres, squared=True)
        distances *= distances >= 1e-12
        for own, other in zip(points.levels[rows].T, levels, strict=True):
            distances += own[:, None] != other
        yield distances


def structural_similarity(
    one: np.ndarray, other: np.ndarray, shape: tuple[int, int], data_range: float = 1.0
) -> np.ndarray:
    """Return the mean structural similarity index of pairs of grey images.

    Parameters
    ----------
    one, other : ndarray of shape (n, height * width)
        Images, row by row.
    shape : (int, int)
        Height and width, both at least `WINDOW`.
    data_range : float, default=1
        Largest minus smallest possible value.

    Returns
    -------
    ndarray of shape (n,)
        In [-1, 1]; 1 for equal images.

    References
    ----------
    Wang, Bovik, Sheikh and Simoncelli, "Image quality assessment: from error visibility
    to structural similarity" (2004), with K1 = .01, K2 = .03 and a uniform window.
    """
    if min(shape) < WINDOW:
        raise ValueError(
            f"Images of shape {shape} are smaller than the {WINDOW} window."
        )
    x, y = (np.asarray(v, dtype=float).reshape(-1, *shape) for v in (one, other))
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2

    def mean(values: np.ndarray) -> np.ndarray:
        edge = WINDOW // 2
        return uniform_filter(values, (1, WINDOW, WINDOW))[:, edge:-edge, edge:-edge]

    mx, my = mean(x), mean(y)
    unbiased = WINDOW**2 / (WINDOW**2 - 1)
    vx = unbiased * (mean(x * x) - mx * mx)
    vy = unbiased * (mean(y * y) - my * my)
    vxy = unbiased * (mean(x * y) - mx * my)
    index = (2 * mx * my + c1) * (2 * vxy + c2)
    index /= (mx * mx + my * my + c1) * (vx + vy + c2)
    return np.asarray(index.mean((1, 2)))
