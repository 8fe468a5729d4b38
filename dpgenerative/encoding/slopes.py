"""How rows lie inside wide intervals: processing of counts, which costs nothing.

An interval far from most rows is wide, since noise leaves no room to halve its count.
Spread evenly over it, its rows would carry means and deviations along: of amounts of
money, a last interval may end a thousand times beyond its first value. So rows decline
inside an interval as they do between the interval before and it.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dpgenerative.encoding.estimates import LEAST, SPIKE, Partition

STEPS = np.array([0.7, 1.5, 3.0, 6.0])
"""Where a decline is cut into even pieces, in units of its length."""


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # of tiny lengths
def with_slopes(parts: Partition, ends: np.ndarray) -> Partition:
    """Return intervals cut so that rows decline inside them, away from most rows.

    Parameters
    ----------
    parts : Partition
    ends : ndarray
        Edges of the grid, on the line where intervals are even.
    """
    counts, lengths = np.maximum(parts.counts, LEAST), np.diff(ends[parts.places])
    alone = parts.heavy | (counts > SPIKE * counts.sum())
    top = int(np.where(alone, 0.0, counts / lengths).argmax())
    rates, bends = np.zeros((2, len(counts)))
    for i, before in _outwards(top, len(counts)):
        if not alone[i] and not alone[before]:
            pair = [before, i]
            rates[i] = decline(*counts[pair], *lengths[pair])
        if rates[i] and before != top:
            # Tails fall ever faster, or as fast.
            bends[i] = max(0.0, rates[i] - rates[before]) / lengths[before]
    places, shares = [], []
    spans = zip(parts.places[:-1], parts.places[1:], strict=True)
    for i, (start, stop) in enumerate(spans):
        line = ends[start : stop + 1]
        line = line - line[0] if i > top else (line[-1] - line)[::-1]
        cut, share = _pieces(line, rates[i], bends[i])
        if i <= top:
            cut, share = len(line) - 1 - cut[::-1], share[::-1]
        places.append(start + cut[:-1])
        shares.append(counts[i] * share)
    sizes = list(map(len, shares))
    return replace(
        parts, places=np.concatenate([*places, parts.places[-1:]]),
        counts=np.concatenate(shares), heavy=np.repeat(parts.heavy, sizes),
        variances=np.repeat(parts.variances, sizes),
    )  # fmt: skip


def decline(before: float, own: float, gap: float, length: float) -> float:
    """Return the rate of one exponential decline over two intervals.

    Parameters
    ----------
    before, own : float
        Rows of the first and the second interval.
    gap, length : float
        Their lengths.

    Returns
    -------
    float
        0 where rows do not decline.
    """
    if own * gap >= before * length:
        return 0.0
    low, high = 0.0, 700.0 / gap
    for _ in range(60):
        rate = (low + high) / 2
        ratio = -math.expm1(-rate * length) / math.expm1(rate * gap)
        low, high = (rate, high) if ratio > own / before else (low, rate)
    return low


def _outwards(top: int, n: int) -> Iterator[tuple[int, int]]:
    """Yield intervals on both sides of one, each after the interval before it."""
    yield from ((i, i - 1) for i in range(top + 1, n))
    yield from ((i, i + 1) for i in range(top - 1, -1, -1))


def _pieces(line: np.ndarray, rate: float, bend: float) -> tuple[np.ndarray, ...]:
    """Return places that cut a line where rows decline, and the pieces' shares."""
    last = len(line) - 1
    if rate * line[-1] <= 2:  # nearly even
        return np.array([0, last]), np.ones(1)
    steps = STEPS / rate
    places = [0]
    for place in np.searchsorted(line, steps[steps < line[-1]]).tolist():
        if place - places[-1] > 1 and last - place > 1:  # no piece is a single value
            places.append(place)
    cut = np.array([*places, last])
    middles = (line[cut[1:]] + line[cut[:-1]]) / 2
    logs = -rate * middles - bend * middles**2 / 2
    share = np.exp(logs - logs.max()) * np.diff(line[cut])
    return cut, share / share.sum()
