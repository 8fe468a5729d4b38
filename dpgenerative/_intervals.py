"""Exact bounds of shares, and of the epsilon that two shares need."""

import math
from collections.abc import Iterable

import numpy as np
from scipy.stats import beta

Event = tuple[np.ndarray, np.ndarray]


def least_share(k: int, n: int, confidence: float) -> float:
    """Return the one-sided lower bound of a share, k of n (Clopper and Pearson 1934).

    Parameters
    ----------
    k, n : int
    confidence : float in (0, 1)
        Probability with which the bound holds.
    """
    return float(beta.ppf(1 - confidence, k, n - k + 1)) if k > 0 else 0.0


def clopper_pearson(k: int, n: int, confidence: float) -> tuple[float, float]:
    """Return the exact two-sided interval of a share, k of n.

    Parameters
    ----------
    k, n : int
    confidence : float in (0, 1)
        Probability with which both ends hold.
    """
    each = (1 + confidence) / 2
    return least_share(k, n, each), 1 - least_share(n - k, n, each)


def epsilon_of_events(
    events: Iterable[Event], first: np.ndarray, delta: float, confidence: float
) -> float:
    """Choose an event on some trials; return its `epsilon_of_rates` on the others.

    Parameters
    ----------
    events : iterable of pairs of ndarray of bool, shape (n_trials,)
        Whether an event occurred, and whether it is likely there.
    first : ndarray of bool, shape (n_trials,)
        Trials to choose on.
    delta, confidence : float
    """

    def bound(event: Event, trials: np.ndarray) -> float:
        occurred, likely = (each[trials] for each in event)
        often = int(occurred[likely].sum()), int(likely.sum())
        seldom = int(occurred[~likely].sum()), int((~likely).sum())
        return epsilon_of_rates(often, seldom, delta, confidence)

    return bound(max(events, key=lambda event: bound(event, first)), ~first)


def epsilon_of_rates(
    often: tuple[int, int], seldom: tuple[int, int], delta: float, confidence: float
) -> float:
    """Return the epsilon that an event of these two rates needs, at least 0.

    (epsilon, delta)-DP has ``P <= e^epsilon P' + delta`` for the probabilities of an
    event on neighbours. The event must be chosen on other observations than these.

    Parameters
    ----------
    often, seldom : tuple of (int, int)
        How often the event occurred, and in how many trials, where it is likely and
        where not.
    delta : float
    confidence : float in (0, 1)
        Probability with which the bound holds.
    """
    # Two one-sided bounds hold together with the confidence asked for.
    low = clopper_pearson(*often, confidence)[0]
    high = clopper_pearson(*seldom, confidence)[1]
    return math.log((low - delta) / high) if low - delta > high else 0.0
