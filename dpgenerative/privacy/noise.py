"""Noise: every number that leaves the private rows passes through `Mechanisms`.

Formal guarantees
-----------------
`count` is epsilon-DP for adding or removing one row, in exact arithmetic. `gaussian`
adds independent N(0, std^2) to every entry, whatever the entries are; with std = z *
sensitivity it is the Gaussian mechanism of noise multiplier z. Counts, arrays of an
integer dtype, get this noise rounded to whole numbers: as they are whole themselves,
that is the sum rounded, which is processing, and the low bits of what is released say
nothing. `thresholded` is that mechanism on counts whose *keys* are private: a key
present in one row only survives with probability P(round(N(0, std^2)) > threshold - 1).

`choose` is the exponential mechanism, drawn exactly: it returns i with probability
proportional to exp(r s_i), of whole scores s that one row moves by at most D each. The
logarithm of the ratio of these probabilities, with a row and without it, then lies
between t - h and t for some t, with h = 2 r D. So no test of level a has more power
than min(e^t a, 1 - e^(t - h) (1 - a)), whose corner has level Phi(y) and power Phi(x).
The power of a Gaussian mechanism of noise multiplier z = 1 / m is concave in a: where
it is as large at the corner, it is everywhere, and it is if m >= x - y. At the corner
g(x) - g(y) = h, with g = logit(Phi). The slope of g is the sum of the hazard rates of a
normal at x and at -x. The hazard rate is convex, so that sum is least at 0 and rises on
both sides: ``h >= 2 g((x - y) / 2)``. Hence h = 2 g(m / 2) makes a choice at most as
informative as a Gaussian release of noise multiplier z, in every composition (Dong,
Roth and Su 2022, Theorem 3.2).

Every call states what it releases, and with which sensitivity; all of it is noted in
the `ledger`, with which a fit is compared with its plan. Where several processes fit
one model (`ranks`), their statistics are added up, and the first process draws the
noise once. For gradients it adds the noise to its own sums, so that one exchange gives
all processes what is released.

Edge cases: empty arrays come back empty; std = 0 means no privacy and adds nothing, as
a multiplier of 0, with which the highest score is chosen. A choice takes the longer the
more scores are far below the highest: time is not covered, as that of a whole fit.
"""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import index
from typing import Any

import numpy as np
import torch
from scipy.special import log_ndtr, ndtri
from torch import Tensor

from dpgenerative._random import RandomSource
from dpgenerative.privacy.ledger import Ledger
from dpgenerative.privacy.ranks import ALONE, ProcessGroup
from dpgenerative.tables.private import Private, opened

Key = tuple[str, str | bool | int | float]
"""Type name and value of a string or number of a column."""


class Mechanisms:
    """The one door through which statistics of the rows are released.

    Parameters
    ----------
    rng : RandomSource
        Noise of counts, histograms and other sums over all rows.
    gradients : RandomSource or torch.Generator
        Noise of gradients. On a CPU the former: torch's generator there keeps 32 bits
        of its seed, which an adversary can search. On CUDA the latter, which keeps 64.

    Attributes
    ----------
    ledger : Ledger
        What was released.
    ranks : ProcessGroup
        The processes whose rows these are the statistics of.
    """

    ranks: ProcessGroup = ALONE

    def __init__(
        self, rng: RandomSource, gradients: RandomSource | torch.Generator
    ) -> None:
        self._rng = rng
        self._gradients = gradients
        self.ledger = Ledger()

    def count(self, rows: Private[Any], epsilon: float) -> int:
        """Release how many rows there are, at least 1, by the geometric mechanism."""
        parts = self.ranks.gathered(len(opened(rows)))

        def release() -> int:
            noise = 0 if math.isinf(epsilon) else discrete_laplace(epsilon, self._rng)
            return max(1, sum(parts) + noise)

        released = self.ranks.once(release)
        self.ledger.count(released, epsilon)
        return released

    def gaussian(
        self,
        values: Private[np.ndarray] | np.ndarray,
        std: float,
        *,
        release: str,
        sensitivity: float,
    ) -> np.ndarray:
        """Release an array with independent Gaussian noise on every entry.

        The noise of counts, an array of an integer dtype, is rounded to whole numbers.

        Parameters
        ----------
        values : Private of ndarray
        std : float
        release : str
            Name of a `plan.Release`; in a search, "score".
        sensitivity : float
            How far one row can move the values, in the Euclidean norm.
        """
        self.ledger.gaussian(release, std, sensitivity)
        parts = self.ranks.gathered(opened(values))
        return self.ranks.once(lambda: self._noisy(reduce(np.add, parts), std))

    def thresholded(
        self,
        counts: Private[dict[Key, int]] | Mapping[Key, int],
        std: float,
        threshold: float,
        *,
        release: str,
    ) -> dict[Key, float]:
        """Release the keys whose noisy count exceeds a threshold, in sorted order.

        A row has one key at most: the counts have sensitivity 1.
        """
        self.ledger.keys(release, std, threshold)
        parts = self.ranks.gathered(opened(counts))

        def passing() -> dict[Key, float]:
            total = sum_of_counts(parts)
            keys = sorted(total)
            noisy = self._noisy(np.array([total[key] for key in keys], int), std)
            pairs = zip(keys, noisy.tolist(), strict=True)
            return {key: value for key, value in pairs if value > threshold}

        return self.ranks.once(passing)

    def choose(
        self,
        scores: Private[np.ndarray] | np.ndarray,
        multiplier: float,
        *,
        release: str,
        sensitivity: int,
    ) -> int:
        """Release the place of a high score, by the exponential mechanism.

        Parameters
        ----------
        scores : Private of ndarray of shape (n,)
            Whole numbers, n > 0.
        multiplier : float
            Noise multiplier of the Gaussian release that costs as much.
        release : str
            Name of a `plan.Release`.
        sensitivity : int
            How far one row can move any one score.
        """
        self.ledger.gaussian(release, multiplier * sensitivity, sensitivity)
        parts = self.ranks.gathered(opened(scores))
        rate = choice_rate(multiplier) / sensitivity

        def chosen() -> int:
            return exponential_choice(reduce(np.add, parts).tolist(), rate, self._rng)

        return self.ranks.once(chosen)

    def gradient(
        self,
        sums: Sequence[Tensor],
        stds: Sequence[float],
        *,
        sensitivities: Sequence[float],
        divisor: float,
    ) -> list[Tensor]:
        """Release gradient sums; parameter k gets N(0, stds[k]^2) on every entry.

        Parameters
        ----------
        sums : sequence of Tensor
        stds : sequence of float
        sensitivities : sequence of float
            Noise with which all of it is one mechanism of multiplier 1.
        divisor : float
            Public number by which the sum over rows was divided.
        """
        self.ledger.gradient(stds, sensitivities, divisor)
        if self.ranks.is_first:
            noises = self._normal(sum(x.numel() for x in sums), sums[0].device)
            pieces = torch.split(noises, [x.numel() for x in sums])
            sums = [
                torch.add(x, noise.view_as(x).to(x.dtype), alpha=std)
                for x, std, noise in zip(sums, stds, pieces, strict=True)
            ]
        return self.ranks.total(sums)

    def _noisy(self, values: np.ndarray, std: float) -> np.ndarray:
        """Add noise to every entry of an array, whole to whole numbers."""
        noise = std * self._rng.standard_normal(np.shape(values))
        if np.asarray(values).dtype.kind in "iu":
            noise = np.rint(noise)
        noisy: np.ndarray = np.asarray(values, float) + noise
        return noisy

    def _normal(self, n: int, device: torch.device) -> Tensor:
        """Draw n standard normals in float64."""
        if isinstance(self._gradients, torch.Generator):
            draws = torch.empty(n, dtype=torch.float64, device=device)
            return draws.normal_(0.0, 1.0, generator=self._gradients)
        return torch.from_numpy(self._gradients.standard_normal(n)).to(device)


def sum_of_counts(parts: Iterable[Mapping[Key, int]]) -> Counter[Key]:
    """Return how often every key occurs in all parts."""
    total: Counter[Key] = Counter()
    for part in parts:
        total.update(part)
    return total


def threshold_for(std: float, delta: float, n_releases: int) -> float:
    """Return the threshold of `Mechanisms.thresholded` that costs `delta` in all.

    With k releases of which one row touches one key each, the cost is
    ``1 - (1 - p)^k`` with ``p = P(round(N(0, std^2)) > threshold - 1)``. For a whole
    threshold t the noise of a single row has to be t or more, and rounding makes t of
    ``t - 1/2``.
    """
    p = -math.expm1(math.log1p(-delta) / n_releases)
    return float(math.ceil(0.5 - std * ndtri(p)))


def choice_rate(multiplier: float) -> float:
    """Return the rate r of a choice that costs what a Gaussian release would.

    Of scores that one row moves by 1: half of what the range h of privacy losses may
    be, ``logit(Phi(1 / (2 multiplier)))``.

    Parameters
    ----------
    multiplier : float
        Noise multiplier of the Gaussian release; inf makes all scores alike.

    Examples
    --------
    >>> round(choice_rate(1.0), 4)  # ln(Phi(0.5) / Phi(-0.5))
    0.807
    """
    half = 0.5 / multiplier if multiplier else math.inf
    return min(float(log_ndtr(half) - log_ndtr(-half)), sys.float_info.max)


# Exact draws of whole numbers ---------------------------------------------------------


def discrete_laplace(epsilon: float, rng: RandomSource) -> int:
    """Draw k with probability proportional to ``exp(-epsilon |k|)``, exactly.

    Integers alone: a float is a ratio of integers, so that nothing is rounded (Canonne,
    Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", 2020,
    Algorithm 2).

    Parameters
    ----------
    epsilon : float
        Positive and finite.
    rng : RandomSource
        Its bytes are read.
    """
    s, t = float(epsilon).as_integer_ratio()
    while True:
        rest = _below(t, rng)
        if not _decays(rest, t, rng):
            continue
        whole = 0
        while _decays(1, 1, rng):
            whole += 1
        size = (rest + t * whole) // s
        is_negative = _below(2, rng) == 1
        # Else zero would come up twice.
        if size or not is_negative:
            return -size if is_negative else size


def exponential_choice(scores: Sequence[int], rate: float, rng: RandomSource) -> int:
    """Draw i with probability proportional to ``exp(rate scores[i])``, exactly.

    Any place is proposed, and accepted with ``exp(rate (scores[i] - max(scores)))``, a
    product of probabilities exp(-1) and one more. Integers alone, as above.

    Parameters
    ----------
    scores : sequence of int
        At least one. Floats are refused: their differences would be rounded.
    rate : float
        Finite, at least 0.
    rng : RandomSource
        Its bytes are read.
    """
    s, t = float(rate).as_integer_ratio()
    exact = [index(score) for score in scores]
    highest = max(exact)
    while True:
        place = _below(len(exact), rng)
        whole, rest = divmod((highest - exact[place]) * s, t)
        # `all` ends at the first failure, however many there could be.
        if all(_decays(1, 1, rng) for _ in range(whole)) and _decays(rest, t, rng):
            return place


def _decays(a: int, b: int, rng: RandomSource) -> bool:
    """Return True with probability ``exp(-a / b)``, 0 <= a <= b (their Algorithm 1)."""
    k = 1
    while _below(b * k, rng) < a:
        k += 1
    return k % 2 == 1


def _below(n: int, rng: RandomSource) -> int:
    """Draw a whole number in [0, n), all of them alike."""
    bits = (n - 1).bit_length()
    while True:
        word = int.from_bytes(rng.bytes((bits + 7) // 8), "big") >> -bits % 8
        if word < n:
            return word
