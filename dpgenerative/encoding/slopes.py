"""How rows thin out in tails: processing of counts, which costs nothing.

Far from most rows intervals are wide, since noise leaves no room to halve their counts,
and these counts are mostly noise. Spread evenly, they would distort means and
deviations: of amounts of money, a last interval may end a thousand times beyond its
first value. So a smooth decline is fitted to the counts of a
tail. The logarithm of its density is a parabola in asinh space that falls ever faster,
as that of a lognormal does. Counts move towards it as far as their noise says, and rows
decline by it inside their intervals.
"""

from dataclasses import dataclass, replace

import numpy as np

from dpgenerative.encoding.estimates import LEAST, TAIL_NOISE, Partition

STEPS = np.array([0.7, 1.5, 3.0, 6.0, 12.0])
"""Where intervals are cut into even pieces, by the fall of the logarithm of density."""
EVEN = 2.0
"""Fall inside an interval up to which it stays even."""
TAILS = (0.25, 0.12, 0.06)
"""Shares of the rows in a tail: the first whose decline explains its counts."""
LEAST_INTERVALS = 4
MISFIT = 2.0
"""Standard deviations of the sum of squares that a decline may leave."""
LEAST_ERROR = 0.1
"""Relative error of a decline at least."""
N_ROUNDS, MOST_CALLS = 3, 30
"""Of a fit, after each of which its error is estimated anew."""
FIRST_DAMPING, LEAST_DAMPING, LEAST_CURVATURE = 10.0, 1e-9, 1e-12
"""Of its steps, which would be endless without."""
LEAST_GAIN = 1e-8
"""Of a step, relative to the squares that are left."""
LARGEST_LOG, TINY = 300.0, 1e-300
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


@np.errstate(all="ignore")  # of the largest floats, and of tiny lengths
def toward_declines(parts: Partition, ends: np.ndarray) -> Partition:
    """Return intervals whose counts have moved towards a decline on either side.

    Parameters
    ----------
    parts : Partition
    ends : ndarray
        Edges of the grid, on the line where intervals are even.
    """
    edges, counts = ends[parts.places], parts.counts.copy()
    if not np.isfinite(np.ptp(edges)):
        return parts
    plain, declines = np.flatnonzero(~parts.is_spike), []
    for side in (plain, plain[::-1]):
        if tail := _explained(parts, edges, side):
            chosen, decline = tail
            moved = decline.posterior_means(
                parts.noisy[chosen], parts.variances[chosen],
                decline.rows(edges[chosen], edges[chosen + 1]),
            )  # fmt: skip
            counts[chosen[1:]] = moved[1:].clip(min=0)
            declines.append(decline)
    counts *= parts.counts.sum() / max(counts.sum(), TINY)
    return replace(parts, counts=counts, declines=tuple(declines))


def _explained(
    parts: Partition, edges: np.ndarray, side: np.ndarray
) -> "tuple[np.ndarray, Decline] | None":
    """Return the intervals of a tail, from inside, and the decline that explains them.

    The longest tail is tried first. The shortest one needs no explanation. None for
    fewer than two intervals.
    """
    density = parts.counts[side] / np.diff(edges)[side]
    tail = None
    for share in TAILS:
        n = _tail(parts.counts[side], density, share)
        if n < 2:
            break
        chosen = side[:n][::-1]
        starts, stops = edges[chosen], edges[chosen + 1]
        rows, variances = parts.noisy[chosen], parts.variances[chosen]
        decline = fitted(rows, variances, starts, stops)
        tail = chosen, decline
        if _fits(rows, variances, decline.rows(starts, stops)):
            break
    return tail


def _tail(counts: np.ndarray, density: np.ndarray, share: float) -> int:
    """Return how many intervals, from the first on, are a tail of a share of rows.

    It ends where density is highest.
    """
    if not len(counts):
        return 0
    shares = np.cumsum(counts) / max(counts.sum(), TINY)
    n = int(np.searchsorted(shares, share)) + 1
    return min(max(n, LEAST_INTERVALS), int(density.argmax()) + 1)


def _fits(rows: np.ndarray, variances: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether a decline explains rows, but for noise and small errors."""
    squares = (rows - expected) ** 2 / (variances + (LEAST_ERROR * expected) ** 2)
    return bool(squares.sum() <= len(rows) + MISFIT * np.sqrt(2 * len(rows)))


@np.errstate(all="ignore")
def with_slopes(parts: Partition, ends: np.ndarray) -> Partition:
    """Return intervals cut so that rows decline inside them, away from most rows.

    Parameters
    ----------
    parts : Partition
    ends : ndarray
        Edges of the grid, on the line where intervals are even.
    """
    edges, counts, plain = ends[parts.places], parts.counts, ~parts.is_spike
    places, shares = [], []
    for i, start in enumerate(parts.places[:-1].tolist()):
        pieces = np.array([start])
        for decline in parts.declines if plain[i] else ():
            if decline.includes(*edges[i : i + 2]):
                pieces = start + decline.cuts(ends[start : parts.places[i + 1] + 1])
        share = np.ones(1)
        if len(pieces) > 1:
            inside = ends[np.append(pieces, parts.places[i + 1])]
            share = decline.rows(inside[:-1], inside[1:]).clip(min=TINY)
        places.append(pieces)
        shares.append(counts[i] * share / share.sum())
    return parts.cut(places, shares)


@dataclass(frozen=True)
class Decline:
    """Density of rows on one side of an origin: exp(a - b u - c u^2), u its distance.

    Attributes
    ----------
    a, b, c : float
    origin, scale : float
        On the line where intervals are even; distances are in units of the latter.
    sign : {-1, 1}
        Side of the origin.
    error : float
        Standard deviation of the rows of an interval from it, relative to them.
    """

    a: float
    b: float
    c: float
    origin: float
    scale: float
    sign: int
    error: float

    def includes(self, start: float, stop: float) -> bool:
        """Return whether an interval lies on this side of the origin."""
        return min(self.sign * (x - self.origin) for x in (start, stop)) >= 0

    def rows(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """Return the rows of intervals."""
        return np.asarray(self.rows_and_slopes(starts, stops)[0])

    def rows_and_slopes(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """Return the rows of intervals, and their derivatives by -b and -c, (3, n)."""
        lengths = (stops - starts) / self.scale
        places = starts[:, None] + (stops - starts)[:, None] * (NODES + 1) / 2
        u = np.abs(places - self.origin) / self.scale
        logs = np.minimum(self.a - self.b * u - self.c * u**2, LARGEST_LOG)
        density = np.exp(logs)
        powers = np.stack([density, density * u, density * u**2])
        return np.asarray(lengths / 2 * (powers @ WEIGHTS))

    def posterior_means(
        self, rows: np.ndarray, variances: np.ndarray, expected: np.ndarray
    ) -> np.ndarray:
        """Return rows to expect, given noisy ones and those that the decline expects.

        Rows that noise does not explain, of an interval or of all up to the end
        together, are no part of a decline, and stay.
        """
        own = (self.error * expected) ** 2
        gaps = rows - expected
        beyond, noise = (np.cumsum(x[::-1])[::-1] for x in (gaps, variances + own))
        shares = [
            own / (own + variances),
            1 - TAIL_NOISE**2 * variances / np.maximum(gaps**2, variances),
            1 - TAIL_NOISE**2 * noise / np.maximum(beyond**2, noise),
        ]
        return np.asarray(expected + np.maximum.reduce(shares).clip(0, 1) * gaps)

    def cuts(self, line: np.ndarray) -> np.ndarray:
        """Return where to cut the edges of a grid, an interval's, into even pieces."""
        u = np.sort(np.abs(line - self.origin)) / self.scale
        falls = (self.b + self.c * (u + u[0])) * (u - u[0])
        places, last = [0], len(line) - 1
        if falls[-1] <= EVEN:
            return np.zeros(1, int)
        for place in np.searchsorted(falls, STEPS[falls[-1] > STEPS]).tolist():
            if place - places[-1] > 1 and last - place > 1:  # no piece is one value
                places.append(place)
        cut = np.array(places)
        return cut if self.sign > 0 else np.append(0, last - cut[:0:-1])


def fitted(
    rows: np.ndarray,
    variances: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
) -> Decline:
    """Fit a decline to noisy rows of intervals, at least two, by least squares.

    It begins with the first one, whose rows are the most certain.
    """
    sign = 1 if starts[-1] > starts[0] else -1
    origin = float(starts[0] if sign > 0 else stops[0])
    scale = float(max(abs(starts[-1] - origin), abs(stops[-1] - origin)))
    first = np.log(max(rows[0], LEAST) / (stops[0] - starts[0]) * scale)
    first, c = min(float(first), LARGEST_LOG), float(len(rows) > 2)
    decline = Decline(first, 1.0, c, origin, scale, sign, error=1.0)
    for _ in range(N_ROUNDS):
        own = (decline.error * decline.rows(starts, stops)) ** 2
        decline = _closest(decline, rows, np.sqrt(variances + own), starts, stops)
        expected = np.maximum(decline.rows(starts, stops), LEAST)
        excess = ((rows - expected) ** 2 - variances) / expected**2
        weights = expected**4 / (variances + (decline.error * expected) ** 2) ** 2
        square = max(LEAST_ERROR**2, np.average(excess, weights=weights))
        decline = replace(decline, error=float(np.sqrt(square)))
    return decline


def _closest(
    decline: Decline,
    rows: np.ndarray,
    stds: np.ndarray,
    starts: np.ndarray,
    stops: np.ndarray,
) -> Decline:
    """Return the decline whose squares are least, from one on.

    By damped steps (Levenberg 1944; Marquardt 1963), of which b and c end at 0: for
    three numbers, in a third of the time of a library's method for many.
    """
    n = min(len(rows), 3)
    least, signs = np.array([-LARGEST_LOG, 0, 0])[:n], np.array([[1.0], [-1], [-1]])[:n]

    def at(values: np.ndarray) -> tuple[Decline, np.ndarray, np.ndarray]:
        moved = replace(decline, **dict(zip("abc", values.tolist(), strict=False)))
        parts = moved.rows_and_slopes(starts, stops)[:n]
        return moved, (rows - parts[0]) / stds, parts * signs / stds

    values, damping = np.array([decline.a, decline.b, decline.c])[:n], FIRST_DAMPING
    decline, gaps, slopes = at(values)
    for _ in range(MOST_CALLS):
        pull = slopes @ gaps
        is_free = (values > least) | (pull > 0)
        normal = slopes[is_free] @ slopes[is_free].T
        diagonal = np.diag_indices_from(normal)
        normal[diagonal] = normal[diagonal] * (1 + damping) + LEAST_CURVATURE
        step = np.zeros(n)
        step[is_free] = np.linalg.solve(normal, pull[is_free])
        further = np.maximum(values + step, least)
        moved = at(further)
        gain = gaps @ gaps - moved[1] @ moved[1]
        damping = max(damping * (0.1 if gain > 0 else 10.0), LEAST_DAMPING)
        if gain > 0:
            values, (decline, gaps, slopes) = further, moved
        if abs(gain) <= LEAST_GAIN * (gaps @ gaps):
            break
    return decline
