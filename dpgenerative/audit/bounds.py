"""Lower bounds on epsilon from how often an adversary was right."""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from dpgenerative._validation import check_number, count
from dpgenerative.privacy import accounting
from dpgenerative.privacy.plan import PrivacyPlan

_NEAR_ZERO = 0.05
"""An epsilon near 0 that the accountant still distinguishes from 0."""


def least_mu(accuracy: float) -> float:
    """Return the least mu of a Gaussian-DP mechanism that allows this accuracy.

    At mu no adversary is right more often than Phi(mu / 2), both worlds counted alike.
    """
    return max(0.0, 2 * float(ndtri(accuracy)))


def steps_epsilon(mu: float, plan: PrivacyPlan) -> float:
    """Return epsilon of the plan's gradient steps if one of them were mu-GDP."""
    if mu <= 0:
        return 0.0
    steps = accounting.GaussianRelease(1 / mu, plan.sampling_rate, plan.n_steps)
    return accounting.epsilon_of([steps], plan.delta, plan.epsilon)


def run_epsilon(accuracy: float, plan: PrivacyPlan) -> float:
    """Return epsilon of gradient steps that allow such accuracy over a whole run.

    What is sought is the largest noise at which guesses can be right so often: under
    (eps, delta)-DP the total variation between the two worlds is at most
    ``(e^eps - 1 + 2 delta) / (e^eps + 1)``, at any one pair.
    """
    if accuracy <= 0.5:
        return 0.0
    if plan.sampling_rate >= 1:
        return accounting.gaussian_epsilon(1 / least_mu(accuracy), plan.delta)
    grown = math.exp(_NEAR_ZERO)
    delta = ((2 * accuracy - 1) * (grown + 1) - (grown - 1)) / 2
    if delta <= 0:
        return 0.0

    def excess(log_z: float) -> float:
        noise = math.exp(log_z)
        steps = accounting.GaussianRelease(noise, plan.sampling_rate, plan.n_steps)
        return accounting.epsilon_of([steps], delta) - _NEAR_ZERO

    # By the central limit theorem; from there up to the first noise that is too large.
    mu = least_mu(accuracy) / plan.sampling_rate
    high = -0.5 * math.log(math.log1p(mu * mu / plan.n_steps)) - 0.4
    if excess(high) <= 0:
        return 0.0
    while excess(high) > 0:
        low, high = high, high + 0.1
    root = float(brentq(excess, low, high, xtol=1e-3))
    return steps_epsilon(math.exp(-root - 1e-3), plan)


def one_run_p_value(
    n_canaries: int, n_guesses: int, n_correct: int, epsilon: float, delta: float
) -> float:
    """Bound the probability of this many correct guesses under (eps, delta)-DP.

    Parameters
    ----------
    n_canaries : int
        Number of canaries, each included by a fair coin.
    n_guesses : int
        Number of canaries that the adversary guessed, fixed beforehand.
    n_correct : int
        Number of right guesses.
    epsilon, delta : float

    Returns
    -------
    float

    References
    ----------
    Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", 2023,
    theorem 5.2 and appendix D.
    """
    rate = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(n_correct - 1, n_guesses, rate))
    below = binom.pmf(np.arange(n_correct - 1, -1, -1), n_guesses, rate).cumsum()
    worst = float((below / np.arange(1, n_correct + 1)).max(initial=0.0))
    return min(1.0, tail + 2 * n_canaries * delta * worst)


def one_run_bound(
    n_canaries: int, n_guesses: int, n_correct: int, delta: float, confidence: float
) -> float:
    """Return the least epsilon that this many correct guesses do not refute.

    Parameters
    ----------
    n_canaries, n_guesses, n_correct : int
        See `one_run_p_value`.
    delta : float
    confidence : float in (0, 1)

    Returns
    -------
    float
        At least 0.

    Raises
    ------
    ValueError
        If more guesses are right than there are, or `confidence` is out of its range.

    Examples
    --------
    >>> round(one_run_bound(1000, 100, 100, 1e-5, 0.95), 2)
    3.47
    """
    owner = "one_run_bound"
    count(0, high=n_guesses, closed="both")(owner, "n_correct", n_correct)
    check_number(owner, "confidence", confidence, low=0, high=1)
    p = 1 - confidence

    def excess(epsilon: float) -> float:
        return one_run_p_value(n_canaries, n_guesses, n_correct, epsilon, delta) - p

    if excess(0.0) >= 0:
        return 0.0
    high = 1.0
    while excess(high) < 0:
        high *= 2
    return max(0.0, float(brentq(excess, 0.0, high, xtol=1e-4)) - 1e-4)


def ideal_guesses(
    n_canaries: int, epsilon: float, delta: float, confidence: float
) -> tuple[int, float]:
    """Return the best number of guesses for an ideal adversary, and what they show.

    They face one Gaussian mechanism that is exactly (epsilon, delta)-DP, and guess at
    both ends of the scores.
    """
    mu = 1 / accounting.gaussian_multiplier(epsilon, delta)
    # If no number of guesses shows anything, guess half of the canaries.
    best = (max(2, n_canaries // 4 * 2), 0.0)
    for cut in np.linspace(0.0, 4.0, 41):
        # In scores centred between the worlds: right at +mu/2, wrong at -mu/2.
        right, wrong = ndtr(mu / 2 - cut), ndtr(-mu / 2 - cut)
        r = 2 * int(n_canaries * (right + wrong) / 2)
        if not 2 <= r <= n_canaries:
            continue
        v = math.floor(r * right / (right + wrong))
        bound = one_run_bound(n_canaries, r, v, delta, confidence)
        if bound > best[1]:
            best = (r, bound)
    return best
