"""The plan of a fit: what is released, with which noise, and what that costs.

The plan is the one place where the parts meet: the row count fixes the sampling rate
and the number of steps, accounting fixes the noise, and nothing after that may change
either.

Formal guarantee: the row count is released under pure epsilon_c-DP; for every value of
it the remaining releases, whose noise multipliers, sampling rate and number of steps
are fixed by that value, are (epsilon - epsilon_c, delta)-DP together; so the whole is
(epsilon, delta)-DP by basic composition. A thresholded release of keys costs
`threshold_delta`, and the accountant works at what is left of delta.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from dpgenerative._validation import check_option, refuse
from dpgenerative.exceptions import InfeasibleBudgetError
from dpgenerative.privacy.accounting import (
    GaussianRelease,
    calibrate,
    epsilon_of,
    epsilon_of_curve,
    gaussian_multiplier,
    renyi_curve,
)
from dpgenerative.privacy.ledger import Ledger, equal, refuse_difference, within

COUNT_SHARE = 0.015
"""Share of epsilon that releases the number of rows."""
COUNTED_AS = 5.0
"""Over the noise multiplier, where that is stated, the epsilon of which the row count
gets its share: about what one release of such noise on all rows costs. It is 1 or more.
"""
THRESHOLD_SHARE = 0.1
"""Share of delta that pays for released keys: unknown levels, frequent values."""
_LARGEST_EXPONENT = 600.0
"""Beyond it the growth of delta with the rows of a person overflows."""
_LEAST_DELTA = 1e-250
"""Of one row. Far below, floats have few digits left."""
_SPARED, _SPARED_LEAST = 1e-6, 3e-9
"""Of epsilon, where no gradients follow that take what is left: a share, and besides
the precision of `gaussian_epsilon`."""
_LARGEST_SHARED = 4e5
"""Epsilon up to which a stated noise multiplier lets other releases cost more."""
_RESERVED = ("row count", "keys", "gradients", "others", "score")
"""Names of other releases of fits and searches, which no `Release` can have."""
_CURVE = tuple(10.0**-k for k in range(1, 10))
"""Values of delta at which a run's privacy curve is read."""


@dataclass(frozen=True)
class Release:
    """A kind of Gaussian release on all rows, as whoever releases it declares it.

    A container or model that declares one states its share of the budget; the plan sets
    its multiplier, and the ledger notes under its name what it cost.

    Attributes
    ----------
    name : str
        The `release` of `Mechanisms.gaussian`.
    words : str
        What the report says was released, with ``{noise}`` for the noise, or
        ``{multiplier}`` for its multiplier.
    stage : {"rows", "norm", "model"}
        What is released: counts or moments of the rows, before everything else; the
        clipping norm; what a model takes from the rows after its training.
    spends : {"all", "some", "any"}
        How much of its part it costs: all; or some, as where halvings of cells are not
        needed; or any, as where nothing was worth counting.
    multiplier : float, default=inf
        Noise multiplier of all parts together; inf for no such release.
    """

    name: str
    words: str
    stage: Literal["rows", "norm", "model"] = "model"
    spends: Literal["all", "some", "any"] = "all"
    multiplier: float = math.inf

    def __post_init__(self) -> None:
        allowed = {"stage": ("rows", "norm", "model"), "spends": ("all", "some", "any")}
        for field, options in allowed.items():
            check_option("a Release", field, getattr(self, field), options)
        if self.name in _RESERVED:
            refuse("a Release", "name", f"must not be one of {_RESERVED}", self.name)

    def __str__(self) -> str:
        z = self.multiplier
        noise = f"Gaussian, noise multiplier {z:.4g} for all together" if z else "exact"
        words = self.words.replace("{noise}", noise)
        return words.replace("{multiplier}", f"{z:.4g}")

    def agrees(self, spent: float) -> bool:
        """Return whether the privacy loss noted is the one planned."""
        planned = self.multiplier**-2
        if self.spends == "all":
            return equal(spent, planned)
        return within(spent, planned) and (spent > 0 or self.spends == "any")


@dataclass(frozen=True)
class PrivacyPlan:
    """Numbers that fix the guarantee of one fit. None of them is private.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee for one row; epsilon is inf without privacy.
    count_epsilon : float
        Pure epsilon of the released row count.
    n_rows : int
        The released row count.
    threshold_delta : float
        Cost of releasing keys by a threshold.
    noise_multiplier : float
        Noise multiplier of every gradient step; inf where there are none.
    sampling_rate : float
        Probability that a row enters a batch.
    n_steps : int
        Number of gradient steps; 0 trains nothing and spends nothing on gradients.
    releases : tuple of Release
        What else is released, on all rows, in its order.
    rows_per_unit : int, default=1
        Number k of rows that one person has at most. What holds for one row holds for
        a person by group privacy (`group_privacy`).
    mean_trials : float, default=0
        Mean number of trials of the private search that chose this fit as its best:
        epsilon, delta and count_epsilon are then those of the search, the rest those
        of one trial. 0 without one.
    """

    epsilon: float
    delta: float
    count_epsilon: float
    n_rows: int
    threshold_delta: float
    noise_multiplier: float
    sampling_rate: float
    n_steps: int
    releases: tuple[Release, ...]
    rows_per_unit: int = 1
    mean_trials: float = 0.0

    @property
    def guarantee(self) -> tuple[float, float]:
        """The guaranteed (epsilon, delta) for a person."""
        return group_privacy(self.epsilon, self.delta, self.rows_per_unit)

    @property
    def private(self) -> bool:
        """Whether anything is guaranteed."""
        return math.isfinite(self.epsilon)

    @property
    def batch_size(self) -> float:
        """Expected batch size by the released row count, the gradient's divisor."""
        return self.sampling_rate * self.n_rows

    def multiplier(self, release: Release) -> float:
        """Return the noise multiplier of a release; inf if it is not planned."""
        planned = (r.multiplier for r in self.releases if r.name == release.name)
        return next(planned, math.inf)

    @property
    def gaussians(self) -> tuple[GaussianRelease, ...]:
        """Every Gaussian release of the fit, as accountants see it."""
        fixed = _fixed(self.releases)
        if not self.n_steps:
            return fixed
        steps = GaussianRelease(self.noise_multiplier, self.sampling_rate, self.n_steps)
        return (*fixed, steps)

    def spent(self) -> float:
        """Return what all releases cost a person, at the guaranteed delta.

        Given the released count, as `curve`: whatever the count, it is the guaranteed
        epsilon at most.
        """
        if not self.private:
            return math.inf
        if self.mean_trials:
            return self.epsilon
        return self.rows_per_unit * self._cost(self.delta)

    def _cost(self, delta: float) -> float:
        """Return what all releases cost one row at a delta."""
        rest, target = delta - self.threshold_delta, self.epsilon - self.count_epsilon
        return self.count_epsilon + epsilon_of(self.gaussians, rest, target)

    def curve(self) -> tuple[tuple[float, float], ...]:
        """Return pairs (epsilon, delta) for a person, the guaranteed first.

        The guaranteed pair holds for all sets of outcomes, unless a noise multiplier
        was stated: epsilon then follows from the count, too. The others depend on the
        released row count and hold for the sets whose outcomes have this count::

            P(fit(D) in S) <= e^epsilon P(fit(D') in S) + delta

        for all neighbours D, D'. For, with p and p' the probabilities of the count and
        R and R' what else is released given it, ``P(fit(D) in S) = p P(R in S) <= p
        (e^a P(R' in S) + delta) <= e^(c + a) p' P(R' in S) + delta``, where a is what
        the rest costs at delta and c the count's epsilon. Given the count and all other
        rows, they bound the rates of every attack on the fit, too.

        Empty without privacy. After a private search there is the guaranteed pair
        alone.
        """
        if not self.private:
            return ()
        pairs = [self.guarantee]
        for delta in () if self.mean_trials else _CURVE:
            if self.threshold_delta < delta != self.delta:
                row = self._cost(delta), delta
                pairs.append(group_privacy(*row, self.rows_per_unit))
        return tuple(pair for pair in pairs if pair[1] < 1)

    def check(self, ledger: Ledger) -> None:
        """Raise unless what a fit released is what was planned, release by release.

        Without privacy nothing was guaranteed.

        Raises
        ------
        LedgerError
            If they differ.
        """
        if not self.private:
            return
        agrees = {
            "row count": ledger.n_rows == self.n_rows
            and within(ledger.count_epsilon, self.count_epsilon),
            **{r.name: r.agrees(ledger.total(r.name)) for r in self.releases},
            "keys": within(ledger.key_delta, self.threshold_delta),
            "gradients": sum(ledger.steps.values()) == self.n_steps
            and all(
                rate == self.sampling_rate
                and equal(multiplier, self.noise_multiplier)
                and divisor == self.batch_size
                for rate, multiplier, divisor in ledger.steps
            ),
            "others": set(ledger.losses) <= {r.name for r in self.releases},
        }
        refuse_difference(agrees)


def _fixed(releases: Sequence[Release]) -> tuple[GaussianRelease, ...]:
    return tuple(GaussianRelease(each.multiplier) for each in releases)


def group_privacy(epsilon: float, delta: float, k: int) -> tuple[float, float]:
    """Return the (epsilon, delta) of k rows together from that of one row.

    ``(k epsilon, delta (1 + e^epsilon + ... + e^((k - 1) epsilon)))``: with tables
    D_0, ..., D_k of which neighbours differ by one row, ``P(D_0) <= e^epsilon P(D_1) +
    delta <= e^(2 epsilon) P(D_2) + e^epsilon delta + delta <= ...`` (Dwork and Roth
    2014, Theorem 2.2 and its proof; Vadhan 2017, Lemma 2.2).

    Parameters
    ----------
    epsilon, delta : float
    k : int

    Examples
    --------
    >>> group_privacy(0.0, 1e-6, 3)
    (0.0, 3e-06)
    """
    if math.isinf(epsilon):
        return epsilon, delta
    return k * epsilon, delta * _growth(epsilon, k)


def _growth(epsilon: float, k: int) -> float:
    """Return 1 + e^epsilon + ... + e^((k - 1) epsilon); inf beyond floats."""
    if (k - 1) * epsilon > _LARGEST_EXPONENT:
        return math.inf
    return math.fsum(math.exp(i * epsilon) for i in range(k))


def row_budget(epsilon: float, delta: float, k: int) -> tuple[float, float]:
    """Return the (epsilon, delta) of one row that gives k rows what is asked.

    Parameters
    ----------
    epsilon, delta : float
        For k rows together.
    k : int

    Raises
    ------
    InfeasibleBudgetError
        If nothing of delta is left for one row.
    """
    left = delta / _growth(epsilon / k, k)
    if left < _LEAST_DELTA:
        raise InfeasibleBudgetError(
            f"epsilon={epsilon:g} and delta={delta:g}, of {k} row(s) together, leave "
            "one row no delta. Ask for a smaller epsilon or a larger delta, or allow a "
            "person fewer rows."
        )
    return epsilon / k, left


def count_epsilon(
    epsilon: float | None, rows_per_unit: int = 1, noise_multiplier: float | None = None
) -> float:
    """Return the epsilon of the row count, for one row.

    A share of `epsilon` or, where the noise multiplier of gradients is stated and
    epsilon follows from the count, of ``COUNTED_AS / noise_multiplier``, at least 1.
    """
    if noise_multiplier is not None:
        epsilon = max(1.0, COUNTED_AS / noise_multiplier)
    return math.inf if epsilon is None else COUNT_SHARE * epsilon / rows_per_unit


def count_std(epsilon: float) -> float:
    """Return the standard deviation of a row count's two-sided geometric noise."""
    p = -math.expm1(-epsilon)
    return math.sqrt(2 * (1 - p)) / p


def make_plan(
    *,
    epsilon: float | None,
    delta: float,
    n_rows: int,
    sampling_rate: float,
    n_steps: int,
    shares: Mapping[Release, float],
    has_open_keys: bool = False,
    rows_per_unit: int = 1,
    noise_multiplier: float | None = None,
) -> PrivacyPlan:
    """Share a budget among the releases of a fit.

    Parameters
    ----------
    epsilon : float or None
        Total epsilon; None for no privacy.
    delta : float
    n_rows : int
        The released row count.
    sampling_rate : float
        Probability that a row enters a batch.
    n_steps : int
        0 for no gradients: releases of the stage "rows" then get what gradients would.
    shares : mapping of Release to float in [0, 1)
        Share of the budget of every release on all rows, in the units in which Gaussian
        releases add up (squared inverse noise multipliers); 0 for none.
    has_open_keys : bool, default=False
        Whether levels or frequent values are released by a threshold.
    rows_per_unit : int, default=1
        Number k of rows for which (epsilon, delta) is to hold together.
    noise_multiplier : float, optional
        That of every gradient, where it is stated: `epsilon` is then what the other
        releases have their shares of, and what the plan spends may be another
        (`epsilon_of_noise`). For single rows.

    Returns
    -------
    PrivacyPlan

    Raises
    ------
    InfeasibleBudgetError
        If no noise fits the budget.
    """
    check_shares(shares, 0 if epsilon is None else n_steps)
    if epsilon is None:
        return PrivacyPlan(
            epsilon=math.inf, delta=delta, count_epsilon=math.inf, n_rows=n_rows,
            threshold_delta=0.0, noise_multiplier=0.0 if n_steps else math.inf,
            sampling_rate=sampling_rate, n_steps=n_steps, rows_per_unit=rows_per_unit,
            releases=_planned(0.0, shares),
        )  # fmt: skip
    total = epsilon
    spent = count_epsilon(epsilon, rows_per_unit)
    epsilon, delta = row_budget(epsilon, delta, rows_per_unit)
    threshold_delta = THRESHOLD_SHARE * delta if has_open_keys else 0.0
    rest, rest_delta = epsilon - spent, delta - threshold_delta
    stated = noise_multiplier is not None
    if n_steps:
        most = min(rest, _LARGEST_SHARED) if stated else rest
    else:
        most = rest * (1 - _SPARED) - _SPARED_LEAST
        shares = _without_gradients(shares)
    whole = gaussian_multiplier(most, rest_delta)
    releases = _planned(whole, shares)
    noise = noise_multiplier if n_steps else math.inf
    if noise is None:
        fixed = list(_fixed(releases))
        with _of_one_row(rows_per_unit):
            noise = calibrate(fixed, sampling_rate, n_steps, rest, rest_delta)
    if stated:
        spent = count_epsilon(None, 1, noise_multiplier)
        epsilon = rest + spent
    plan = PrivacyPlan(
        epsilon=epsilon, delta=delta, count_epsilon=spent, n_rows=n_rows,
        threshold_delta=threshold_delta, noise_multiplier=noise,
        sampling_rate=sampling_rate, n_steps=n_steps, rows_per_unit=rows_per_unit,
        releases=releases,
    )  # fmt: skip
    if not stated and plan.spent() > total:
        raise InfeasibleBudgetError(
            f"The releases cost {plan.spent():.4g}, more than epsilon={total:.4g}."
        )
    return plan


@contextmanager
def _of_one_row(rows_per_unit: int) -> Iterator[None]:
    """Explain an infeasible budget by the number of rows that share it."""
    try:
        yield
    except InfeasibleBudgetError as error:
        if rows_per_unit == 1:
            raise
        raise InfeasibleBudgetError(
            f"{error} This is the budget of one row of {rows_per_unit}: a smaller "
            "max_rows_per_unit leaves more."
        ) from None


def epsilon_of_noise(plan_at: Callable[[float], PrivacyPlan]) -> float:
    """Return the epsilon whose plan pays for gradients of a stated noise multiplier.

    It is the least epsilon, up to half a percent or a jump of a rule, that allows
    gradient steps and at which all releases but the row count's stay within their part:
    `make_plan` would calibrate this noise from it. It has few digits.

    Parameters
    ----------
    plan_at : callable
        From an epsilon to the plan that `make_plan` makes of it and of the noise.
    """
    first = plan_at(1.0)
    renyi = epsilon_of_curve(renyi_curve(first.gaussians), first.delta)
    low, high, best, digits = math.log(1e-3), math.inf, math.inf, 2
    guess = math.log(max(1.0, renyi))
    tried: dict[float, tuple[float, float]] = {}
    for _ in range(60):
        while (epsilon := float(f"{math.exp(guess):.{digits}g}")) in tried:
            digits += 1
        plan, x = plan_at(epsilon), math.log(epsilon)
        rest = plan.epsilon - plan.count_epsilon
        used = (plan.spent() - plan.count_epsilon) / rest if plan.n_steps else math.inf
        low, high = (low, min(x, high)) if used <= 1 else (max(x, low), high)
        best = min(best, epsilon) if used <= 1 else best
        if 0.995 < used <= 1 or high - low < 1e-3:
            return best
        y = math.log(max(used, 1e-12) / 0.9975)
        tried[epsilon] = x, y
        slope = -1.0
        if len(tried) > 1 and math.isfinite(y):
            x0, y0 = list(tried.values())[-2]
            slope = min((y - y0) / (x - x0), -0.05) if math.isfinite(y0) else -1.0
        guess = x - y / slope
        if not low < guess < high:
            guess = (low + high) / 2 if math.isfinite(high) else x + 1
    return best


def check_shares(shares: Mapping[Release, float], n_steps: int) -> None:
    """Require shares of one budget, which leave something for gradients."""
    names = [release.name for release in shares]
    if len(set(names)) < len(names):
        raise ValueError(f"A plan takes every release once; got {sorted(names)}.")
    stated = {release.name: share for release, share in shares.items()}
    if not all(0 <= share < 1 for share in stated.values()):
        raise ValueError(f"Shares of a budget must be in [0, 1); got {stated}.")
    if n_steps and math.fsum(stated.values()) >= 1:
        raise InfeasibleBudgetError(f"Shares leave gradients nothing: {stated}.")


def _without_gradients(shares: Mapping[Release, float]) -> dict[Release, float]:
    """Return shares in which releases of the rows get that of gradients, too."""
    left = 1 - math.fsum(v for r, v in shares.items() if r.stage != "rows")
    whole = math.fsum(v for r, v in shares.items() if r.stage == "rows")
    return {
        r: left * (v / whole) if r.stage == "rows" and v else v
        for r, v in shares.items()
    }


def _planned(whole: float, shares: Mapping[Release, float]) -> tuple[Release, ...]:
    """Return the releases with multipliers, given that of all of them together."""
    return tuple(
        replace(release, multiplier=whole / math.sqrt(share))
        for release, share in shares.items()
        if share > 0
    )
