"""Accounting of a private selection: the best of a random number of trials.

Formal guarantee (Papernot and Steinke, "Hyperparameter Tuning with Renyi Differential
Privacy", ICLR 2022, Theorem 2, for the logarithmic distribution, eta = 0): let a trial
be (lambda, e(lambda))-RDP for every order lambda. Draw K with ``P(K = k) = (1 -
gamma)^k / (k log(1 / gamma))``, k = 1, 2, ..., run K trials independently, and release
the best by a total order of what they return - nothing of the others, and not K. That
is (lambda, e')-RDP with ::

    e' = e(lambda) + (1 - 1 / l) e(l) + log(1 / gamma) / l + log(E[K]) / (lambda - 1)

for every order l >= 1; the least of these bounds counts.

A trial that is only RDP up to an event of probability p (a key that one row holds
passes its threshold) costs delta ``(1 + e^epsilon) E[K] p`` more: some of the trials
meets such an event with probability at most E[K] p, so that the selection is within
E[K] p, in total variation, of one of trials that do not; pay once on either side.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import brentq

from dpgenerative._random import RandomSource
from dpgenerative.privacy import accounting
from dpgenerative.privacy.plan import PrivacyPlan


@dataclass(frozen=True)
class TrialDistribution:
    """Logarithmic distribution of the number of trials.

    Attributes
    ----------
    mean : float
        Expected number of trials, above 1.
    """

    mean: float

    @cached_property
    def gamma(self) -> float:
        """The parameter in (0, 1), from its mean ``(1/g - 1) / log(1/g)``."""

        def excess(log_gamma: float) -> float:
            return math.log(math.expm1(-log_gamma) / -log_gamma / self.mean)

        return math.exp(float(brentq(excess, -700.0, -1e-12, xtol=1e-13)))

    def draw(self, rng: RandomSource) -> int:
        """Draw a number of trials, at least 1.

        Geometric, with a probability of success that is ``gamma^U``, U uniform (Kemp
        1981): by methods that a `SecureGenerator` has.
        """
        return int(rng.geometric(self.gamma ** rng.random()))


def best_of(run: Callable[[], Any], score: Callable[[Any], float], n: int) -> Any:
    """Run as many trials as were drawn and return the best; the others are gone."""
    return max((run() for _ in range(n)), key=score)


def selected_curve(curve: np.ndarray, trials: TrialDistribution) -> np.ndarray:
    """Return the Renyi divergence of the best trial (Theorem 2, eta = 0)."""
    orders = accounting.RENYI_ORDERS
    other = (1 - 1 / orders) * curve - math.log(trials.gamma) / orders
    return np.asarray(curve + np.min(other) + math.log(trials.mean) / (orders - 1))


def selection_epsilon(
    plans: Sequence[PrivacyPlan],
    score_multiplier: float,
    trials: TrialDistribution,
    epsilon: float,
    delta: float,
) -> float:
    """Return an upper bound on epsilon of a selection among trials.

    A trial draws one of the plans, cuts the rows in two at random, each row by itself,
    fits by the plan on one part and scores, by a Gaussian release, on the other. One
    row lies in one part. Given the parts of all other rows and the plan, the trial with
    that row is a mixture of two distributions: in the one it moves the fit, and the
    score only through it; in the other the score alone. The Renyi divergence from the
    trial without it is at most the larger of the two, in both directions, by
    quasi-convexity.

    Parameters
    ----------
    plans : sequence of PrivacyPlan
        Of a trial's fit, one per candidate. Their row counts are not counted here.
    score_multiplier : float
        Noise multiplier of the score.
    trials : TrialDistribution
    epsilon, delta : float
        Target. Epsilon weighs the cost of released keys, so that the answer holds only
        if it is at most this.

    Returns
    -------
    float
        The bound; inf where released keys alone exceed delta.
    """
    curves = [accounting.renyi_curve(plan.gaussians) for plan in plans]
    score = accounting.GaussianRelease(score_multiplier)
    curves.append(accounting.renyi_curve([score]))
    keys = max(plan.threshold_delta for plan in plans)
    rest = delta - (1 + math.exp(epsilon)) * trials.mean * keys
    if rest <= 0:
        return math.inf
    curve = selected_curve(np.max(curves, axis=0), trials)
    return accounting.epsilon_of_curve(curve, rest)


def key_share(trials: TrialDistribution, epsilon: float) -> float:
    """Return the part of delta that a trial's delta may be: 1 / (1 + e^eps) E[K]."""
    return 1 / ((1 + math.exp(epsilon)) * trials.mean)
