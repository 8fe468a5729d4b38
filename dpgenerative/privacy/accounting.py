"""Accounting: what a list of Gaussian releases costs, and the noise a budget buys.

The bound is the upper end of numerical composition (Gopi, Lee and Wutschitz 2021), by
the parts of Opacus' PRV accountant. Opacus composes the removal of a row alone; here
its addition is composed too, and the larger of both counts. Where the discretisation
fails, Renyi accounting takes its place, whose divergence is the larger of both
(Mironov, Talwar and Zhang 2019, Theorem 5). Releases on all rows (sampling rate 1) are
composed in closed form first: noise multipliers z_1, z_2, ... on the same rows are one
Gaussian mechanism of multiplier ``(sum 1 / z_k^2)^(-1/2)``, whatever was chosen
adaptively inside them, as long as the multipliers were fixed in advance.

Formal guarantee: `epsilon_of` never returns less than the true epsilon of the
composition, for adding or removing one record. Edge cases: no release costs 0; a noise
multiplier of 0 costs inf.
"""

import math
import sys
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from scipy.fft import next_fast_len
from scipy.optimize import brentq
from scipy.special import gammaln, log_ndtr, logsumexp

from dpgenerative.exceptions import InfeasibleBudgetError
from dpgenerative.privacy.losses import AddedRow, loss_quadrature, mean_losses

RENYI_ORDERS = np.array(
    [1 + x / 10 for x in range(1, 100)]
    + [*range(11, 64), 80, 100, 128, 180, 256, 360, 512, 720, 1024, 1448, 2048, 4096]
)
"""The largest matter at epsilon below 0.2, the smallest above 10."""

_LEAST_DELTA = 1e-10
"""Below this the rounding of the convolutions shows."""
_LARGEST_GRID = 2**23
"""Beyond this many grid points (0.5 GiB and more), Renyi accounting takes over."""
_RARE = 1e-5
"""Sampling rates up to here take grids by the variance of losses."""
_ROUNDING = 2.0**-52
"""Of a composed probability, per step: several times the largest of 300,000 errors."""
_MOMENT_ROUNDING = 1e-14
"""Of the logarithm of a moment, over 1 and it: several times the largest of 4,098."""
_LEAST_QUADRATURE = 0.02
"""Noise multiplier up to which moments are bounded in closed form."""
_DELTA_ERROR = 1e-3
"""Part of delta by which numerical composition may err."""
_LEAST_RARE = 0.1
"""Least noise multiplier where rows are rarely sampled: delta may cover all of it."""
_CLOSED = 1e-3
"""Width of the logarithm's bracket in which no bound is near the target."""
_LONGEST_STEP = 0.5
"""Of the search for a noise multiplier's logarithm."""
_LOSS_CELLS = 100_000
"""Grid points of the largest loss, for mechanisms stated by (epsilon, delta) pairs."""


@dataclass(frozen=True)
class GaussianRelease:
    """A Gaussian mechanism on a Poisson sample, repeated.

    Attributes
    ----------
    noise_multiplier : float
        Standard deviation over sensitivity.
    sampling_rate : float, default=1
        Probability that a row takes part in one repetition.
    steps : int, default=1
        Number of repetitions.
    """

    noise_multiplier: float
    sampling_rate: float = 1.0
    steps: int = 1


def joint_multiplier(multipliers: Iterable[float]) -> float:
    """Return the multiplier of one Gaussian mechanism worth several on the same rows.

    Two releases computed from one Poisson sample are one mechanism too: combine them
    first, then subsample once.
    """
    precision = math.fsum(1 / (z * z) for z in multipliers if not math.isinf(z))
    return math.inf if precision == 0 else 1 / math.sqrt(precision)


def gaussian_delta(multiplier: float, epsilon: float) -> float:
    """Return delta(epsilon) of the Gaussian mechanism (Balle and Wang 2018, Thm. 5)."""
    a, b = 0.5 / multiplier, epsilon * multiplier
    return float(np.exp(log_ndtr(a - b)) - np.exp(epsilon + log_ndtr(-a - b)))


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """Return the least multiplier at which one Gaussian mechanism is (eps, delta)-DP.

    Raises
    ------
    InfeasibleBudgetError
        If a multiplier of 1e7 is not enough, or one of 1e-3 is more than enough.
    """

    def excess(log_z: float) -> float:
        return gaussian_delta(math.exp(log_z), epsilon) - delta

    if excess(math.log(1e7)) > 0:
        raise InfeasibleBudgetError(
            "Such an epsilon and delta leave nothing to learn from: the noise would be "
            "ten million times the sensitivity. Raise epsilon or delta."
        )
    if excess(math.log(1e-3)) < 0:
        raise InfeasibleBudgetError(
            "Such an epsilon protects nothing: the noise would be less than a "
            "thousandth of the sensitivity. Lower epsilon, or state epsilon=None."
        )
    return math.exp(float(brentq(excess, math.log(1e-3), math.log(1e7), xtol=1e-10)))


def gaussian_epsilon(multiplier: float, delta: float) -> float:
    """Return the least epsilon of the Gaussian mechanism at this delta."""
    if gaussian_delta(multiplier, 0.0) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(multiplier, high) > delta:
        high *= 2
    root = brentq(lambda e: gaussian_delta(multiplier, e) - delta, 0.0, high, xtol=1e-9)
    return float(root) + 1e-9


def slack_of(target: float) -> float:
    """Return by how much numerical composition may err: 0.01 from 1 to 10."""
    return max(min(0.01, 0.01 * target), min(target / 1000, 0.3))


def classical_epsilon(multiplier: float, delta: float) -> float:
    """Return the epsilon of the usual formula, which holds below 1 only.

    Dwork and Roth 2014, Theorem A.1. Above, what is true can be far more.
    """
    return math.sqrt(2 * math.log(1.25 / delta)) / multiplier


def epsilon_of(
    releases: Sequence[GaussianRelease], delta: float, target: float = 1.0
) -> float:
    """Return an upper bound on epsilon of the composition.

    Parameters
    ----------
    releases : sequence of GaussianRelease
        Everything released about the same rows.
    delta : float
        Target delta.
    target : float, default=1
        Order of magnitude of the answer; the bound's slack is `slack_of` it.
    """
    if any(r.noise_multiplier <= 0 for r in releases):
        return math.inf
    full = [r for r in releases if r.sampling_rate >= 1]
    sampled = [r for r in releases if r.sampling_rate < 1]
    z = joint_multiplier(r.noise_multiplier / math.sqrt(r.steps) for r in full)
    if not sampled:
        return 0.0 if math.isinf(z) else gaussian_epsilon(z, delta)
    one = [] if math.isinf(z) else [GaussianRelease(z)]
    # Where delta alone covers everything, the bounds fall below 0.
    return max(0.0, _prv_epsilon((*sampled, *one), delta, target))


@lru_cache
def _opacus_prv() -> Any:
    """Import Opacus' privacy random variables, without all of Opacus.

    Its accountants import its optimizers, for a type, and these torch's distributed
    tensors and sympy: a second, in which the files that are needed are read ten times.
    """
    name, spec = "opacus.accountants", find_spec("opacus")
    if "opacus" not in sys.modules and spec and spec.submodule_search_locations:
        name = f"{__name__}_opacus"
        package, base = ModuleType(name), ModuleType(f"{name}.accountant")
        package.__path__ = [f"{spec.submodule_search_locations[0]}/accountants"]
        # What Opacus' accountant inherits, of which only the analysis is used.
        base.IAccountant = object  # type: ignore[attr-defined]
        sys.modules.setdefault(name, package)
        sys.modules.setdefault(base.__name__, base)
    return import_module(f"{name}.analysis.prv")


def renyi_curve(releases: Sequence[GaussianRelease]) -> np.ndarray:
    """Return the Renyi divergence of a composition at `RENYI_ORDERS`."""
    curve = np.zeros(len(RENYI_ORDERS))
    if any(r.noise_multiplier <= 0 for r in releases):
        return curve + math.inf
    for r in releases:
        if r.sampling_rate >= 1 or math.isinf(r.noise_multiplier):
            curve += r.steps * RENYI_ORDERS / (2 * r.noise_multiplier**2)
            continue
        q, z = r.sampling_rate, r.noise_multiplier
        is_integer = RENYI_ORDERS % 1 == 0
        rdp = np.empty_like(curve)
        rdp[is_integer] = [_integer_order(q, z, a) for a in RENYI_ORDERS[is_integer]]
        rdp[~is_integer] = _other_orders(q, z, RENYI_ORDERS[~is_integer])
        curve += r.steps * np.nan_to_num(rdp, nan=math.inf, posinf=math.inf)
    return curve


def _integer_order(q: float, z: float, order: float) -> float:
    """Return a Renyi divergence (Mironov, Talwar and Zhang 2019, Section 3.3).

    In logarithms, since binomial coefficients of large orders exceed all floats.
    """
    i = np.arange(order + 1)
    terms = gammaln(order + 1) - gammaln(i + 1) - gammaln(order - i + 1)
    terms += i * math.log(q) + (order - i) * math.log1p(-q) + i * (i - 1) / (2 * z * z)
    return max(float(logsumexp(terms)), 0.0) / (order - 1)  # NaN stays NaN


def _other_orders(q: float, z: float, orders: np.ndarray) -> np.ndarray:
    """Return Renyi divergences, ``log(E (1 + u)^a) / (a - 1)`` with u as in losses.

    By the trapezoid rule, whose error vanishes exponentially for analytic functions
    (Trefethen and Weideman 2014): less than rounding at steps of a 16th of a deviation.
    Where there is next to no noise, by the inequality of Minkowski, ``|1 - q + q x|_a
    <= 1 - q + q |x|_a``, which is sharp there and needs no points. Rounding is added.
    """
    norms = np.logaddexp(math.log1p(-q), math.log(q) + (orders - 1) / (2 * z * z))
    moments = orders * norms
    if z > _LEAST_QUADRATURE:
        x = z / 16 * np.arange(-192, math.ceil(16 * orders.max() / z) + 193)
        mass = -0.5 * (x / z) ** 2 - math.log(16 * math.sqrt(2 * math.pi))
        loss = np.logaddexp(math.log1p(-q), math.log(q) + (x - 0.5) / (z * z))
        moments = logsumexp(mass + orders[:, None] * loss, axis=1)
    moments = np.maximum(moments, 0.0)
    return np.asarray((moments + _MOMENT_ROUNDING * (1 + moments)) / (orders - 1))


def epsilon_of_curve(curve: np.ndarray, delta: float) -> float:
    """Return epsilon at delta (Canonne, Kamath and Steinke 2020, Prop. 12)."""
    terms = np.log1p(-1 / RENYI_ORDERS)
    terms -= np.log(delta * RENYI_ORDERS) / (RENYI_ORDERS - 1)
    return max(0.0, float(np.min(curve + terms)))


@lru_cache(maxsize=1024)
def _prv_epsilon(
    releases: tuple[GaussianRelease, ...], delta: float, target: float
) -> float:
    curve = renyi_curve(releases)
    renyi = epsilon_of_curve(curve, delta)
    eps_error, delta_error = slack_of(target), delta * _DELTA_ERROR
    mesh = _mesh(releases, delta_error, eps_error)
    reach = loss_bound(curve, sum(r.steps for r in releases), delta_error) + eps_error
    if delta < _LEAST_DELTA or 2 * reach / mesh > _LARGEST_GRID:
        return renyi
    try:
        both = directed_bounds(releases, delta, eps_error, reach)
    except (RuntimeError, ValueError, IndexError):
        return renyi
    # A discretisation that breaks down shows as NaN or as a bound below zero.
    return min(renyi, max(both)) if all(bound > 0 for bound in both) else renyi


def directed_bounds(
    releases: Sequence[GaussianRelease], delta: float, eps_error: float, reach: float
) -> tuple[float, float]:
    """Return upper bounds on epsilon where a row is removed, and where one is added.

    Parameters
    ----------
    releases : sequence of GaussianRelease
    delta, eps_error : float
    reach : float
        The largest loss of the grid, of either sign (`loss_bound`).
    """
    prv = _opacus_prv()
    counts = [r.steps for r in releases]
    facts = [(r.sampling_rate, r.noise_multiplier) for r in releases]
    removed = [prv.PoissonSubsampledGaussianPRV(*each) for each in facts]
    added = [AddedRow(*each) for each in facts]
    delta_error = delta * _DELTA_ERROR
    rounded = delta_error + sum(counts) * _ROUNDING
    mesh = _mesh(releases, delta_error, eps_error)
    n = next_fast_len(math.ceil(reach / mesh) + 1)  # of 2 n points
    reach = (n - 1.5) * mesh
    domain = prv.Domain.create_aligned(-reach, reach, mesh)

    def bound(losses: Sequence[Any], means: Sequence[float]) -> float:
        ends = domain.t_min, domain.t_max
        cut = [prv.TruncatedPrivacyRandomVariable(loss, *ends) for loss in losses]
        pairs = zip(cut, means, strict=True)
        exact = [SimpleNamespace(cdf=x.cdf, mean=partial(float, m)) for x, m in pairs]
        parts = [prv.discretize(loss, domain) for loss in exact]
        whole = prv.compose_heterogeneous(parts, counts)
        return float(whole.compute_epsilon(delta, rounded, eps_error)[2])

    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        means = zip(*(mean_losses(*each) for each in facts), strict=True)
        return bound(removed, next(means)), bound(added, next(means))


def loss_bound(curve: np.ndarray, steps: int, delta_error: float) -> float:
    """Return a loss that is exceeded, either way, with probability delta_error / 6k.

    By Chernoff: ``P(loss >= x) <= e^((a - 1) (D_a - x))`` at order a, and ``P(loss <=
    -x)`` is no more. What holds for all k steps together holds for one.
    """
    tail = math.log(12.0 * steps / delta_error)
    return float(np.min(curve + tail / (RENYI_ORDERS - 1)))


def _mesh(
    releases: Sequence[GaussianRelease], delta_error: float, eps_error: float
) -> float:
    """Return the width of a grid on which losses err by eps_error.

    By their Theorem: errors of one step are bounded by the width (Hoeffding). Where
    rows are rarely sampled, nearly all losses are nearly 0, which is on the grid, and
    so are the errors: their variance allows for a far wider grid (Bennett).
    """
    steps, tail = sum(r.steps for r in releases), math.log(12 / delta_error)
    mesh = eps_error / math.sqrt(steps * tail / 2)
    if min(r.sampling_rate for r in releases) > _RARE:
        return mesh

    rare = [r for r in releases if r.sampling_rate <= _RARE]
    others = steps - sum(r.steps for r in rare)
    with np.errstate(all="ignore"):  # what breaks down shows as NaN
        while _log_tail(rare, 2 * mesh, eps_error - 2 * mesh * others) > tail:
            mesh *= 2
    return mesh


def _log_tail(rare: Sequence[GaussianRelease], width: float, error: float) -> float:
    """Return minus the logarithm of how probably rounding losses errs by more.

    Rounding changes a loss by at most half the width, and by at most the loss itself:
    that bounds its variance. The mean, which is put right, moves by no more than the
    standard deviation.
    """
    if error <= 0:
        return 0.0
    total, largest = np.float64(0.0), 0.0
    for r in rare:
        mass, u = loss_quadrature(r.sampling_rate, r.noise_multiplier)
        squares = mass * np.minimum(np.log1p(u) ** 2, width * width / 4)
        variance = float(max(squares.sum(), (squares * (1 + u)).sum()))
        total += r.steps * variance
        largest = max(largest, width / 2 + math.sqrt(variance))
    x = largest * error / total
    return float(total / largest**2 * ((1 + x) * np.log1p(x) - x))


def calibrate(
    fixed: Sequence[GaussianRelease],
    sampling_rate: float,
    steps: int,
    epsilon: float,
    delta: float,
) -> float:
    """Return the least noise multiplier that keeps the whole within (epsilon, delta).

    Parameters
    ----------
    fixed : sequence of GaussianRelease
        Releases whose noise is already decided.
    sampling_rate, steps : float, int
        The release whose noise is sought.
    epsilon, delta : float
        Target of the composition of all.

    Returns
    -------
    float
        A multiplier whose bound lies in (0.995 epsilon, epsilon].

    Raises
    ------
    InfeasibleBudgetError
        If the fixed releases alone exceed the target.
    """

    def bound(log_z: float) -> float:
        release = GaussianRelease(math.exp(log_z), sampling_rate, steps)
        return epsilon_of([*fixed, release], delta, epsilon)

    # A bound takes a second or more, so that the search has to be short: it starts from
    # the central limit theorem, corrects that guess once by how far it was off, and
    # then follows secants of log epsilon over log z inside a bracket.
    # Numerical composition adds `slack` to what it finds.
    slack = 0.0 if sampling_rate >= 1 else slack_of(epsilon)
    aim, most = 0.9975 * epsilon, math.log(1e7)
    low, high, least = -math.inf, most, epsilon_of(fixed, delta, epsilon)
    floor = math.log(_LEAST_RARE) if sampling_rate <= _RARE else -math.inf
    guess = _first_guess(fixed, sampling_rate, steps, delta, aim - slack)
    iterates: list[tuple[float, float]] = []
    for _ in range(60):
        guess = max(_inside(guess, low, high), floor)
        value = bound(guess)
        if 0.995 * epsilon < value <= epsilon or guess == floor and value <= epsilon:
            return math.exp(guess)
        if value > epsilon and low > -math.inf and least + slack > epsilon:
            break
        low, high = (guess, high) if value > epsilon else (low, guess)
        if high - low < _CLOSED:
            break  # where the grid ends, and Renyi accounting takes over
        iterates.append((guess, math.log(max(value, 1e-12) / aim)))
        if len(iterates) == 1:
            # Where the limit errs, it errs by about the same factor nearby.
            asked = (aim - slack) ** 2 / max(value - slack, 1e-3 * aim)
            guess = _first_guess(fixed, sampling_rate, steps, delta, asked)
        else:
            (x0, y0), (x1, y1) = iterates[-2:]
            slope = (y1 - y0) / (x1 - x0) if x1 != x0 else -1.0
            guess = x1 - y1 / min(slope, -0.05)
        last = iterates[-1][0]
        guess = min(max(guess, last - _LONGEST_STEP), last + _LONGEST_STEP)
    if high < most:
        return math.exp(high)
    raise InfeasibleBudgetError(
        "No noise keeps the releases within epsilon and delta. Raise one of them, or "
        "lower marginal_budget or another share that was stated."
    )


def _first_guess(
    fixed: Sequence[GaussianRelease], q: float, steps: int, delta: float, epsilon: float
) -> float:
    """Return log z by the central limit theorem (Bu, Dong, Long and Su 2020)."""
    mu2 = gaussian_multiplier(epsilon, delta) ** -2
    mu2 -= math.fsum(r.steps / r.noise_multiplier**2 for r in fixed)
    if mu2 <= 0:
        return math.log(1e3)
    return -0.5 * math.log(math.log1p(mu2 / (q * q * steps)))


def _inside(guess: float, low: float, high: float) -> float:
    """Keep a step of the search inside its bracket; bisect where it leaves."""
    if low < guess < high:
        return guess
    return (low + high) / 2 if math.isfinite(low) else high - 1.0


def epsilon_of_pairs(pairs: Sequence[tuple[float, float]], delta: float) -> float:
    """Return an upper bound on epsilon of mechanisms stated by (epsilon, delta) alone.

    The optimal composition theorem: nothing composes worse than randomized responses
    that fail with probability delta (Kairouz, Oh and Viswanath 2015; Murtagh and Vadhan
    2016). Their privacy losses are rounded up to a grid, and never worse than added.

    Parameters
    ----------
    pairs : sequence of (float, float)
        Guarantees of the mechanisms, fixed before the first of them ran.
    delta : float
        Delta of the composition; below the failures of the mechanisms the answer is inf
        or, where the deltas given add up to no more, the sum of the epsilons.
    """
    pairs = [(epsilon, failure) for epsilon, failure in pairs if epsilon or failure]
    total = math.fsum(epsilon for epsilon, _ in pairs)
    added = math.fsum(failure for _, failure in pairs)
    basic = total if added <= delta * (1 + 1e-12) else math.inf
    log_intact = math.fsum(math.log1p(-failure) for _, failure in pairs)
    if not 0 < total < math.inf or -math.expm1(log_intact) >= delta:
        return basic
    least, losses = _responses([epsilon for epsilon, _ in pairs], total / _LOSS_CELLS)
    values = (least + np.arange(len(losses))) * (total / _LOSS_CELLS)

    def failure(epsilon: float) -> float:
        above = values > epsilon
        excess = float(losses[above] @ -np.expm1(epsilon - values[above]))
        return -math.expm1(log_intact) + math.exp(log_intact) * excess

    low, high = 0.0, float(values[-1])
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if failure(middle) <= delta else (middle, high)
    return min(basic, high)


def _responses(epsilons: Sequence[float], mesh: float) -> tuple[int, np.ndarray]:
    """Return the distribution of the sum of losses of randomized responses.

    On a grid of this mesh: its least point, and the probabilities from there on.
    """
    least, masses = 0, np.ones(1)
    for epsilon in epsilons:
        up, down = math.ceil(epsilon / mesh), math.floor(epsilon / mesh)
        truth = 1 / (1 + math.exp(-epsilon))
        both = np.zeros(len(masses) + up + down)
        both[: len(masses)] += (1 - truth) * masses
        both[up + down :] += truth * masses
        least, masses = least - down, both
    return least, masses
