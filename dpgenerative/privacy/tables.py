"""Counted tables: scores of candidates, then the counts of those that were chosen.

A table groups the cells of a few columns; a row is in exactly one cell of it.

Formal guarantee: the score of a candidate is the sum over its cells of the distance
between the number of rows and an expected number, which is public and whole. One row
more or less changes one number by 1, so every score by at most 1, exactly, and the
scores of m candidates by at most sqrt(m) in the Euclidean norm. It changes the counts
of T tables by sqrt(T). Both are Gaussian releases with shares of the plan's precision
that are fixed beforehand, whatever is expected and chosen because of what was released
before (adaptive composition of Gaussian mechanisms).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan

SCORE_SHARE = 0.3
"""Share of the tables' budget that scores get, where tables are chosen by scores."""


@dataclass(frozen=True)
class Table:
    """Groups of the cells of a few columns.

    Attributes
    ----------
    columns : tuple of int
        Ascending.
    groups : tuple of ndarray of shape (n_cells,)
        The group of every cell, by column, counted from 0.
    """

    columns: tuple[int, ...]
    groups: tuple[np.ndarray, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of groups of every column."""
        return tuple(int(groups.max()) + 1 for groups in self.groups)

    def counts(self, codes: np.ndarray) -> np.ndarray:
        """Return the number of rows in every cell of the table; private if they are.

        Parameters
        ----------
        codes : ndarray of shape (n, d)
        """
        keys = np.zeros(len(codes), np.int32)
        for j, groups, size in zip(self.columns, self.groups, self.shape, strict=True):
            keys *= size
            keys += groups[codes[:, j]]
        counts = np.bincount(keys, minlength=math.prod(self.shape))
        return counts.reshape(self.shape)


def multipliers(plan: PrivacyPlan, has_scores: bool) -> tuple[float, float]:
    """Return the noise multipliers of all scores together, and of all counts."""
    share = SCORE_SHARE if has_scores else 0.0
    scores = plan.table_multiplier / math.sqrt(share) if share else math.inf
    return scores, plan.table_multiplier / math.sqrt(1 - share)


def release_scores(
    codes: np.ndarray,
    tables: Sequence[Table],
    expected: Sequence[np.ndarray],
    plan: PrivacyPlan,
    mechanisms: Mechanisms,
) -> np.ndarray:
    """Release how far the rows are from what is expected of them, table by table.

    Parameters
    ----------
    codes : ndarray of shape (n, d)
        Cells of all rows; private.
    tables : sequence of Table
        At least one.
    expected : sequence of ndarray
        Whole numbers, of the tables' shapes; public or released.
    plan : PrivacyPlan
    mechanisms : Mechanisms

    Returns
    -------
    ndarray of shape (n_tables,)
    """
    ranks = mechanisms.ranks
    parts = ranks.gathered([table.counts(codes) for table in tables])
    pairs = zip(zip(*parts, strict=True), expected, strict=True)
    exact = [np.abs(sum(counts) - wanted).sum() for counts, wanted in pairs]
    sensitivity = math.sqrt(len(tables))
    std = multipliers(plan, True)[0] * sensitivity
    # A score is no sum over rows: the first process has all counts, and all scores.
    values = np.array(exact, dtype=np.int64) * ranks.is_first
    return mechanisms.gaussian(values, std, release="tables", sensitivity=sensitivity)


def release_counts(
    codes: np.ndarray,
    tables: Sequence[Table],
    has_scores: bool,
    plan: PrivacyPlan,
    mechanisms: Mechanisms,
) -> list[np.ndarray]:
    """Release the counts of tables, at least one.

    Parameters
    ----------
    codes : ndarray of shape (n, d)
        Cells of all rows; private.
    tables : sequence of Table
    has_scores : bool
        Whether they were chosen by `release_scores`.
    plan : PrivacyPlan
    mechanisms : Mechanisms
    """
    exact = np.concatenate([table.counts(codes).ravel() for table in tables])
    sensitivity = math.sqrt(len(tables))
    std = multipliers(plan, has_scores)[1] * sensitivity
    noisy = mechanisms.gaussian(exact, std, release="tables", sensitivity=sensitivity)
    ends = np.cumsum([math.prod(table.shape) for table in tables])[:-1]
    parts = np.split(noisy, ends)
    return [x.reshape(t.shape) for x, t in zip(parts, tables, strict=True)]
