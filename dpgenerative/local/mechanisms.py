"""Laplace noise and randomised response on integers, in integer arithmetic.

Formal guarantee: each function is epsilon-DP for one entry, exactly. A probability is a
ratio of integers, rounded to the private side, and every draw is compared in integers;
no float is among what is released, so that no low bits of one reveal where it came from
(Mironov 2012). Entries are perturbed independently of each other.

Edge cases: no entries come back as none; a sensitivity of 0 gets no noise.
"""

import math
from fractions import Fraction

import numpy as np

from dpgenerative._random import RandomSource
from dpgenerative.exceptions import InfeasibleBudgetError

FINENESS = 2**20
"""Probabilities and rates are rounded to multiples of one over this."""
LARGEST_EPSILON = 28.0
"""Levels of larger epsilon are perturbed by this one: 63 bits hold no larger odds."""


def rate_of(epsilon: float, sensitivity: int) -> tuple[int, int]:
    """Return s and t with s / t at most epsilon / sensitivity, and close to it.

    Raises
    ------
    InfeasibleBudgetError
        If nothing but noise would be left.
    """
    exact = Fraction(epsilon) / sensitivity
    s = min(FINENESS, math.floor(2**50 * exact))
    if s < 1:
        raise InfeasibleBudgetError(
            f"epsilon={epsilon:.3g} for a feature leaves nothing but noise. Raise it."
        )
    return s, math.ceil(s / exact)


def laplace_noise(
    shape: tuple[int, ...], epsilon: float, sensitivity: int, rng: RandomSource
) -> np.ndarray:
    """Draw whole numbers k with probability proportional to ``exp(-(s / t) |k|)``.

    `privacy.noise.discrete_laplace`, for many at a time; added to integers that one
    record moves by at most `sensitivity` in all, they are epsilon-DP (`rate_of`).
    """
    noise = np.zeros(math.prod(shape), dtype=np.int64)
    if not sensitivity:
        return noise.reshape(shape)
    left, (s, t) = np.arange(len(noise)), rate_of(epsilon, sensitivity)
    while len(left):
        rest = rng.integers(0, t, len(left))
        decays = _decay(rest, t, rng)
        rest, drawn = rest[decays], left[decays]
        size = (rest + t * _repeats(len(rest), rng)) // s
        is_negative = rng.integers(0, 2, len(rest)) == 1
        # Else zero would come up twice.
        accepted = (size > 0) | ~is_negative
        noise[drawn[accepted]] = np.where(is_negative, -size, size)[accepted]
        left = np.concatenate([left[~decays], drawn[~accepted]])
    return noise.reshape(shape)


def _decay(a: np.ndarray, b: int, rng: RandomSource) -> np.ndarray:
    """Return True with probability ``exp(-a / b)`` for every a, 0 <= a <= b."""
    odd, left, k = np.zeros(len(a), dtype=bool), np.arange(len(a)), 1
    while len(left):
        goes_on = rng.integers(0, b * k, len(left)) < a[left]
        odd[left[~goes_on]] = k % 2 == 1
        left, k = left[goes_on], k + 1
    return odd


def _repeats(n: int, rng: RandomSource) -> np.ndarray:
    """Draw the number of successes of probability 1 / e before the first failure."""
    counts, left = np.zeros(n, dtype=np.int64), np.arange(n)
    while len(left):
        left = left[_decay(np.ones(len(left), dtype=np.int64), 1, rng)]
        counts[left] += 1
    return counts


def respond(
    codes: np.ndarray, n_options: int, epsilon: float, rng: RandomSource
) -> np.ndarray:
    """Keep codes below n with odds ``e^epsilon`` against each of the others.

    Generalised randomised response (Kairouz, Oh and Viswanath 2014).
    """
    odds = math.exp(min(epsilon, LARGEST_EPSILON)) * (1 - 1e-15)
    keep = max(FINENESS, math.floor(FINENESS * odds))
    draws = rng.integers(0, keep + (n_options - 1) * FINENESS, len(codes))
    other = np.maximum(draws - keep, 0) // FINENESS
    return np.where(draws < keep, codes, other + (other >= codes))


def respond_missing(
    missing: np.ndarray, epsilon: float, share: float, rng: RandomSource
) -> np.ndarray:
    """Randomise which entries are missing, for a share of epsilon.

    An entry that is there is called missing with probability p, a missing one with q:
    ``q = e^epsilon p``, since that answer reveals nothing else, and ``1 - p = e^(share
    epsilon) (1 - q)``, since the others spend the rest on their values.
    """
    whole = math.exp(min(epsilon, LARGEST_EPSILON))
    part = math.exp(-share * min(epsilon, LARGEST_EPSILON))
    p = math.ceil(FINENESS**2 * (1 - part) / (whole - part))
    # Rounding of floats is below 1 here, and goes to the private side.
    q = min(math.floor(whole * p), math.floor(FINENESS**2 * (1 - part) + p * part)) - 1
    draws = rng.integers(0, FINENESS**2, len(missing))
    return draws < np.where(missing, max(p, q), p)
