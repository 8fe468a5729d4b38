"""Smooth densities from noisy counts of intervals: processing, which costs nothing.

Where noise leaves room for a few counts only, their intervals are cut into even pieces.
The pieces' densities are smooth by assumption: second differences, relative to
the density nearby, are normal with one variance, which the counts themselves decide
(empirical Bayes). What comes back is the mean of the pieces given the counts.
"""

import math
from dataclasses import replace

import numpy as np

from dpgenerative.encoding.estimates import LEAST, Partition

STRENGTHS = 10.0 ** np.arange(-2, 5.1, 0.5)
"""Inverse variances of second differences, of which the likeliest is selected."""
TINY = 1e-300
FLOOR = 0.2
"""Part of the mean density that is added to what is nearby: counts may be 0."""
MOST_PIECES = 200
"""More are left as they are: the time grows with their third power."""


def cut_evenly(parts: Partition, ends: np.ndarray, most: float) -> Partition:
    """Return intervals of more than `most` rows cut into even pieces.

    Nothing is counted: pieces share the rows as positions inside the interval did. But
    the model can separate them. Where noise leaves room for five counts, the numbers
    are still more informative of another column than five cells.

    Parameters
    ----------
    parts : Partition
    ends : ndarray
        Edges of the grid, on the line where intervals are even.
    most : float
    """
    cuts, counts = [], []
    whole = zip(parts.places[:-1], parts.places[1:], parts.counts, strict=True)
    for start, stop, count in whole:
        n_pieces = max(math.ceil(count / most - 1e-9), 1)
        even = np.linspace(ends[start], ends[stop], n_pieces + 1)[:-1]
        # The edges of the grid nearest above those of even pieces.
        cut = start + np.unique(np.searchsorted(ends[start:stop], even))
        cut = cut[cut < stop]
        lengths = np.diff(ends[np.append(cut, stop)])
        cuts.append(cut)
        counts.append(count * lengths / lengths.sum() if len(cut) > 1 else [count])
    return parts.cut(cuts, counts)


def smooth_pieces(parts: Partition, pieces: Partition, axis: np.ndarray) -> Partition:
    """Return the pieces of intervals with smooth counts.

    Parameters
    ----------
    parts, pieces : Partition
        Intervals that were counted, and the pieces that they were cut into.
    axis : ndarray
        Edges of the grid, on the line where intervals are even.
    """
    groups = np.searchsorted(parts.places[1:-1], pieces.places[:-1], side="right")
    lengths, counts = np.diff(axis[pieces.places]), pieces.counts.copy()
    # Spikes stand for themselves; what lies between them is smooth.
    alone = parts.is_spike
    runs = np.cumsum(alone | np.append(False, alone[:-1]))
    for run in np.unique(runs[~alone]):
        among = np.flatnonzero((runs == run) & ~alone)
        chosen = np.isin(groups, among)
        counts[chosen] = smoothed(
            counts[chosen], groups[chosen] - among[0],
            parts.variances[among], lengths[chosen],
        )  # fmt: skip
    return replace(pieces, counts=counts)


def smoothed(
    counts: np.ndarray, groups: np.ndarray, variances: np.ndarray, lengths: np.ndarray
) -> np.ndarray:
    """Return the posterior means of the counts of pieces.

    Parameters
    ----------
    counts : ndarray of shape (k,)
        Non-negative estimates, of which the sums over groups were counted.
    groups : ndarray of int of shape (k,)
        Interval of every piece, from 0, ascending.
    variances : ndarray of shape (n_groups,)
        Of the noise in the count of every interval, > 0.
    lengths : ndarray of shape (k,)
        Lengths of the pieces.

    Returns
    -------
    ndarray of shape (k,)
        Non-negative, with the sum of `counts`.
    """
    k, n_groups = len(counts), len(variances)
    if n_groups < 2 or not 4 <= k <= MOST_PIECES or counts.sum() < LEAST:
        return counts
    sums = (groups == np.arange(n_groups)[:, None]) / np.sqrt(variances)[:, None]
    noisy = sums @ counts
    nearby = counts / lengths + FLOOR * counts.sum() / lengths.sum()
    nearby = np.convolve(nearby, np.full(3, 1 / 3), mode="valid")
    bend = np.diff(np.eye(k), 2, axis=0) / lengths / nearby[:, None]
    try:
        fits = [_fit(sums, noisy, bend, strength) for strength in STRENGTHS]
    except np.linalg.LinAlgError:  # noise beyond the precision of floats
        return counts
    means = max(fits, key=lambda fit: fit[0])[1]
    # Pieces below 0 take from those of their own interval.
    wholes, means = np.maximum(np.bincount(groups, means), 0), np.maximum(means, 0)
    means *= (wholes / np.maximum(np.bincount(groups, means), TINY))[groups]
    total = means.sum()
    return means * counts.sum() / total if total > 0 else counts


def _fit(
    sums: np.ndarray, noisy: np.ndarray, bend: np.ndarray, strength: float
) -> tuple[float, np.ndarray]:
    """Return the log-likelihood of one strength, up to a constant, and the means."""
    precision = sums.T @ sums + strength * bend.T @ bend
    means = np.linalg.solve(precision, sums.T @ noisy)
    misfit = noisy @ (noisy - sums @ means)
    log_det = np.linalg.slogdet(precision)[1]
    return (len(bend) * np.log(strength) - log_det - misfit) / 2, means
