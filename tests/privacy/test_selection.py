"""The best of a random number of trials: its bound by formula and by simulation."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import beta, norm
from sklearn.dummy import DummyClassifier

from dpgenerative import DPHFlowSynthesizer, PrivateSearch, SyntheticClassifier
from dpgenerative.meta import search as meta_search
from dpgenerative.meta.calibration import TrialBudget
from dpgenerative.meta.scores import SCORE_SENSITIVITY
from dpgenerative.privacy.accounting import (
    RENYI_ORDERS,
    GaussianRelease,
    epsilon_of_curve,
    gaussian_epsilon,
    renyi_curve,
)
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.selection import (
    TrialDistribution,
    best_of,
    key_share,
    selected_curve,
    selection_epsilon,
)
from dpgenerative.tables.private import Private
from tests.plans import make_plan

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

Z = 1.5  # noise multiplier of the toy trial: N(0, Z^2) without the row, N(1, Z^2) with
DELTA = 1e-3


def density(y, shift, law):
    """Density of the largest of K draws of N(shift, Z^2), K logarithmic."""
    p = 1 - law.gamma
    inner = norm.cdf(y, shift, Z)
    slope = -p / (1 - p * inner) / math.log(law.gamma)
    return slope * norm.pdf(y, shift, Z)


def renyi(first, second, order):
    def integrand(y):
        return first(y) ** order * second(y) ** (1 - order)

    return math.log(quad(integrand, -12, 16, limit=400)[0]) / (order - 1)


def exact_delta(epsilon, law):
    """Hockey-stick divergence of the best trial, the larger of both directions."""

    def excess(first, second):
        def integrand(y):
            a, b = density(y, first, law), density(y, second, law)
            return max(a - math.exp(epsilon) * b, 0.0)

        return quad(integrand, -12, 16, limit=400)[0]

    return max(excess(1, 0), excess(0, 1))


@pytest.mark.parametrize("mean", [1.01, 2.0, 8.0, 100.0])
def test_the_law_has_its_mean_and_the_logarithmic_probabilities(mean):
    law = TrialDistribution(mean)
    p = 1 - law.gamma
    k = np.arange(1, 100_000)
    probabilities = -(p**k) / (k * math.log(law.gamma))
    assert probabilities.sum() == pytest.approx(1)
    assert probabilities @ k == pytest.approx(mean, rel=1e-6)
    rng = np.random.default_rng(0)
    draws = np.array([law.draw(rng) for _ in range(20_000)])
    # Five standard deviations: a false alarm in 2e6 per mean.
    spread = 5 * math.sqrt(probabilities @ k**2 - mean**2) / math.sqrt(len(draws))
    assert abs(draws.mean() - mean) < spread
    share = probabilities[0]
    assert abs((draws == 1).mean() - share) < 5 * math.sqrt(share / len(draws)) + 1e-9


@pytest.mark.thin(2)
@pytest.mark.parametrize("mean", [2.0, 8.0, 40.0])
@pytest.mark.parametrize("order_at", [4, 20, 60, 100])
def test_the_theorem_bounds_the_exact_divergence(mean, order_at):
    law = TrialDistribution(mean)
    order = RENYI_ORDERS[order_at]
    bound = selected_curve(renyi_curve([GaussianRelease(Z)]), law)[order_at]
    for pair in ((1, 0), (0, 1)):
        first, second = (lambda y, s=s: density(y, s, law) for s in pair)
        assert renyi(first, second, order) <= bound
    # The trial's own divergence does not bound it: the selection costs something.
    if order < 3:
        selected = renyi(
            lambda y: density(y, 1, law), lambda y: density(y, 0, law), order
        )
        assert selected > order / (2 * Z * Z)


@pytest.mark.parametrize("mean", [1.5, 8.0, 40.0])
def test_the_bound_is_the_one_of_an_independent_accountant(mean):
    accounting = pytest.importorskip("dp_accounting")
    rdp = pytest.importorskip("dp_accounting.rdp")
    law = TrialDistribution(mean)
    gaussian = accounting.GaussianDpEvent(4.0)
    steps = accounting.SelfComposedDpEvent(
        accounting.PoissonSampledDpEvent(0.02, accounting.GaussianDpEvent(1.1)), 200
    )
    event = accounting.dp_event.RepeatAndSelectDpEvent(
        accounting.ComposedDpEvent([gaussian, steps]), mean, 0
    )
    accountant = rdp.RdpAccountant(RENYI_ORDERS.tolist())
    theirs = accountant.compose(event).get_epsilon(1e-5)
    releases = [GaussianRelease(4.0), GaussianRelease(1.1, 0.02, 200)]
    ours = epsilon_of_curve(selected_curve(renyi_curve(releases), law), 1e-5)
    assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.thin(2)
@pytest.mark.parametrize("mean", [2.0, 8.0, 40.0])
def test_the_guarantee_holds_exactly_and_naive_ones_do_not(mean):
    law = TrialDistribution(mean)
    curve = selected_curve(renyi_curve([GaussianRelease(Z)]), law)
    claimed = epsilon_of_curve(curve, DELTA)
    assert exact_delta(claimed, law) <= DELTA
    of_one_trial = gaussian_epsilon(Z, DELTA)
    assert exact_delta(of_one_trial, law) > 1.1 * DELTA


def lower_bound(without, with_row, epsilon_failure=1e-5):
    """Return a lower confidence bound on epsilon at DELTA, over half-lines.

    Thresholds come from the first half of the draws, probabilities from the second, by
    Clopper and Pearson, each side failing with probability `epsilon_failure`.
    """
    half = len(without) // 2

    def statistic(t, a, b):
        return math.log(max((a > t).mean() - DELTA, 1e-12) / max((b > t).mean(), 1e-4))

    grid = np.quantile(without[:half], np.linspace(0.5, 0.999, 200))
    best = max(grid, key=lambda t: statistic(t, with_row[:half], without[:half]))
    hits, misses = (with_row[half:] > best).sum(), (without[half:] > best).sum()
    n = len(without) - half
    low = beta.ppf(epsilon_failure, hits, n - hits + 1)
    high = beta.ppf(1 - epsilon_failure, misses + 1, n - misses)
    return math.log((low - DELTA) / high)


def simulate(shift, law, n, rng):
    def run():
        return rng.normal(shift, Z)

    return np.array([best_of(run, float, law.draw(rng)) for _ in range(n)])


@pytest.mark.thorough
def test_monte_carlo():
    """Attack the selection; false alarms 2e-5, by the two confidence bounds."""
    law, n, rng = TrialDistribution(8.0), 40_000, np.random.default_rng(2)
    without, with_row = (simulate(shift, law, n, rng) for shift in (0, 1))
    found = lower_bound(without, with_row)
    claimed = epsilon_of_curve(
        selected_curve(renyi_curve([GaussianRelease(Z)]), law), DELTA
    )
    assert found <= claimed
    # What the attack finds is what the exact law allows, so it would have seen more: in
    # 24 seeds between 0.38 and 0.71 of it.
    exact = brentq(lambda e: exact_delta(e, law) - DELTA, 0.1, claimed, xtol=0.01)
    assert 0.25 * exact < found < exact


def test_monte_carlo_sees_trials_that_are_all_released():
    """What twenty trials say together passes the bound of the best of them."""
    rng, n = np.random.default_rng(3), 40_000
    without, with_row = (rng.normal(s, Z, (n, 20)).mean(1) for s in (0, 1))
    curve = selected_curve(renyi_curve([GaussianRelease(Z)]), TrialDistribution(20.0))
    assert lower_bound(without, with_row) > epsilon_of_curve(curve, DELTA)


@pytest.mark.thin(2)
@pytest.mark.parametrize("order", [1.5, 2.0, 8.0])
@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_a_row_in_one_of_two_parts_costs_the_larger_of_both(order, share):
    """The lemma of `selection_epsilon`, in two dimensions: (fit, score)."""
    grid = np.linspace(-14, 15, 1201)
    fit, score = np.meshgrid(grid, grid, indexing="ij")
    both = {
        (a, b): norm.pdf(fit, a, 1.3) * norm.pdf(score, b, 1.6)
        for a, b in ((0, 0), (1, 0), (0, 1))
    }
    mixed = (1 - share) * both[1, 0] + share * both[0, 1]
    larger = order / (2 * 1.3**2)
    for first, second in ((mixed, both[0, 0]), (both[0, 0], mixed)):
        with np.errstate(all="ignore"):
            terms = np.where(first > 0, first**order * second ** (1 - order), 0)
        total = np.nansum(terms[np.isfinite(terms)]) * (grid[1] - grid[0]) ** 2
        assert math.log(total) / (order - 1) <= larger + 1e-6


def test_released_keys_cost_their_share_of_delta():
    law = TrialDistribution(8.0)
    arguments = {
        "epsilon": 0.5, "n_rows": 2000, "sampling_rate": 0.1, "n_steps": 20,
        "marginal_budget": 0.3,
    }  # fmt: skip
    small = 1e-5 * key_share(law, 1.0)
    plan = make_plan(delta=small, has_open_keys=True, **arguments)
    bare = make_plan(delta=small, has_open_keys=False, **arguments)
    z = 20.0
    assert selection_epsilon([bare], z, law, 1.0, 1e-5) == epsilon_of_curve(
        selected_curve(renyi_curve(bare.gaussians), law), 1e-5
    )
    rest = 1e-5 * (1 - 0.1)
    assert selection_epsilon([plan], z, law, 1.0, 1e-5) == pytest.approx(
        epsilon_of_curve(selected_curve(renyi_curve(plan.gaussians), law), rest)
    )
    greedy = make_plan(delta=1e-5, has_open_keys=True, **arguments)
    assert selection_epsilon([greedy], z, law, 1.0, 1e-5) == math.inf


def test_the_dearest_candidate_and_the_score_count():
    law = TrialDistribution(4.0)
    arguments = {
        "delta": 1e-6, "n_rows": 2000, "sampling_rate": 0.1, "n_steps": 20,
        "marginal_budget": 0.3, "has_open_keys": False,
    }  # fmt: skip
    cheap, dear = (make_plan(epsilon=e, **arguments) for e in (0.3, 0.6))
    both = selection_epsilon([cheap, dear], 99.0, law, 2.0, 1e-5)
    assert both == selection_epsilon([dear], 99.0, law, 2.0, 1e-5)
    assert both > selection_epsilon([cheap], 99.0, law, 2.0, 1e-5)
    assert selection_epsilon([dear], 1.0, law, 2.0, 1e-5) > 2 * both


# The parts of the rows, and what is scored on them ------------------------------------


def test_every_row_is_held_out_for_itself():
    """The part held out is a Poisson sample, whose size follows from the rows'."""
    n, share, n_trials, trained = 30, 0.2, 1500, []

    def fit(estimator, pair, public, trial):
        trained.append(np.isin(np.arange(n), pair[0][:, 0]))
        estimator.privacy_ = SimpleNamespace(plan=None)

    search = PrivateSearch(
        DPHFlowSynthesizer(), {"architecture__n_bins": [4]}, holdout=share
    )
    budget = TrialBudget(1.0, 1e-6, n, 24, 6.0, 5.0, 1.0, (None,))
    rng, rows = np.random.default_rng(), np.arange(float(n))[:, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meta_search, "_fit", fit)
        patch.setattr(PrivateSearch, "_deviation", lambda *_, **__: 0.0)
        for _ in range(n_trials):
            private, door = Private((rows, None)), Mechanisms(rng, rng)
            search._trial([{}], budget, private, rng, door, None)
    held_out = 1.0 - np.array(trained)
    error = math.sqrt(share * (1 - share) / n_trials)
    assert abs(held_out.mean(0) - share).max() < 5 * error
    sizes = held_out.sum(1)
    variance = n * share * (1 - share)
    assert abs(sizes.var() / variance - 1) < 4.5 * math.sqrt(2 / n_trials)


def of_pairs():
    """Return a search, and a fitted synthesizer to be scored on distances."""
    rows = pd.DataFrame(
        {
            "a": list("uvvw") * 75,
            "b": pd.Categorical([0, 1, 1] * 100),
            "c": np.linspace(-1, 1, 300),
        }
    )
    fitted = DPHFlowSynthesizer(epsilon=None, n_steps=3, random_state=0).fit(rows)
    return PrivateSearch(fitted, {}), fitted, rows, None


def of_labels():
    """Return a search, and a classifier to be scored on its hits."""
    rows, labels = pd.DataFrame({"a": np.arange(300.0)}), pd.Series([0, 1, 1] * 100)
    fitted = DummyClassifier(strategy="constant", constant=1).fit(rows, labels)
    return PrivateSearch(SyntheticClassifier(), {}), fitted, rows, labels


def of_ones_own():
    """Return a search whose scores lie anywhere."""
    rows = pd.DataFrame({"a": np.linspace(-3, 4, 300)})
    search = PrivateSearch(None, {}, scoring=lambda estimator, X, y: X["a"])
    return search, None, rows, None


@pytest.mark.parametrize("make", [of_pairs, of_labels, of_ones_own])
def test_one_row_moves_a_score_by_half_at_most(make):
    search, fitted, X, y = make()
    rng, n_test, moves = np.random.default_rng(0), 30.0, []

    def deviation(rows):
        if hasattr(fitted, "_n_sampled"):
            fitted._n_sampled = 0  # the same sample
        parts = X.iloc[rows], None if y is None else y.iloc[rows]
        return search._deviation(fitted, *parts, n_test)

    for size in (0, 1, 2, 5, 30, 90) * 4:
        rows = rng.integers(300, size=size + 1)
        moves.append(abs(deviation(rows) - deviation(rows[:-1])))
    assert max(moves) <= SCORE_SENSITIVITY * (1 + 1e-9)
    assert max(moves) > 0.8 * SCORE_SENSITIVITY
