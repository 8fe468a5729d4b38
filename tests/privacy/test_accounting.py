"""Accounting against an independent library, and the plan that uses it."""

from __future__ import annotations

import math
import sys
from importlib import import_module

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from opacus.accountants.analysis import prv, rdp
from scipy.stats import norm

from dpgenerative.encoding.marginals import MARGINALS
from dpgenerative.exceptions import InfeasibleBudgetError
from dpgenerative.privacy import accounting
from dpgenerative.privacy.accounting import (
    GaussianRelease,
    _prv_epsilon,
    calibrate,
    directed_bounds,
    epsilon_of,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_multiplier,
    joint_multiplier,
    loss_bound,
    renyi_curve,
)
from dpgenerative.privacy.latents import LATENTS
from dpgenerative.privacy.noise import choice_rate
from dpgenerative.privacy.norm import NORM
from dpgenerative.privacy.plan import count_epsilon
from dpgenerative.privacy.tables import (
    CHOICE_SHARE,
    CUT_SHARE,
    NEWS_SHARE,
    TABLES,
    count_multiplier,
    share_of_choices,
)
from tests.plans import BUDGETS, make_plan

DELTA = 1e-5


def losses(releases, interval=1e-4):
    """Return Google's privacy loss distributions, dots connected."""
    total = None
    for r in releases:
        one = pld.from_gaussian_mechanism(
            r.noise_multiplier, sampling_prob=min(r.sampling_rate, 1.0),
            value_discretization_interval=interval,
        )  # fmt: skip
        many = one.self_compose(r.steps) if r.steps > 1 else one
        total = many if total is None else total.compose(many)
    return total


def oracle(releases, delta=DELTA, interval=1e-4):
    """Return epsilon, the larger of both directions.

    It errs upwards, by its interval.
    """
    return losses(releases, interval).get_epsilon_for_delta(delta)


GRID = [
    [GaussianRelease(1.0, 0.01, 500)],
    [GaussianRelease(5.0, 0.3, 200)],
    [GaussianRelease(7.5, 0.063, 800), GaussianRelease(9.7)],
    [GaussianRelease(2.9, 0.063, 800), GaussianRelease(3.6)],
    [GaussianRelease(0.8, 0.002, 1000), GaussianRelease(4.0), GaussianRelease(30.0)],
    [GaussianRelease(20.0, 1.0, 100), GaussianRelease(10.0)],
]


@pytest.mark.thin(2)
@pytest.mark.parametrize("releases", GRID)
def test_never_below_the_oracle_and_close_above_it(releases):
    exact = oracle(releases)
    ours = epsilon_of(releases, DELTA, exact)
    assert exact * (1 - 1e-4) <= ours <= exact + 0.02 * max(1.0, exact)


SAMPLED = [
    [GaussianRelease(1.0, 0.01, 500)],
    [GaussianRelease(0.5, 0.5, 3)],
    [GaussianRelease(0.6, 0.01, 20), GaussianRelease(2.0)],
    [GaussianRelease(20.0, 0.3, 1000)],
]


@pytest.mark.thin(2)
@pytest.mark.parametrize("z", [0.04, 0.12, 0.4, 1.0, 8.0, 300.0])
@pytest.mark.parametrize("q", [1e-6, 0.001, 0.06, 0.5, 0.99])
def test_orders_are_those_of_opacus_and_go_on_where_it_ends(q, z):
    ours = renyi_curve([GaussianRelease(z, q, 7)])
    whole = accounting.RENYI_ORDERS % 1 == 0
    few = (512 if z >= 0.4 else 20) >= accounting.RENYI_ORDERS
    few &= whole | (np.arange(len(few)) % 7 == 0)
    orders = accounting.RENYI_ORDERS[few].tolist()
    found = rdp.compute_rdp(q=q, noise_multiplier=z, steps=7, orders=orders)
    # The series of Opacus ends at terms of e^-30.
    np.testing.assert_allclose(ours[few], found, rtol=1e-9, atol=1e-10)
    # Of order 2 in closed form; and divergences do not fall with the order.
    second = math.log1p(q * q * math.expm1(1 / z**2))
    assert accounting._integer_order(q, z, 2) == pytest.approx(second, rel=1e-9)
    assert np.isfinite(ours).all()
    assert (np.diff(ours) >= -1e-11).all()
    assert (renyi_curve([GaussianRelease(math.inf, q)]) == 0).all()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("release", "delta", "truth"),
    [
        # Truths by loss distributions tilted to epsilon, whose tails keep their digits.
        (GaussianRelease(1.61, 0.01, 100_000), 1e-10, 15.7798),
        pytest.param(
            GaussianRelease(0.610167, 4.36789e-5, 1_459_679), 8.19335e-8, 1.2089,
            marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_many_steps_do_not_add_up_what_one_is_rounded_by(release, delta, truth):
    assert truth <= epsilon_of([release], delta, truth) <= 1.05 * truth


@pytest.mark.parametrize("q", [1e-8, 0.01, 0.9])
@pytest.mark.parametrize("z", [1e-6, 0.001, 0.02, 0.021, 0.3, 1e7])
def test_other_orders_are_bounds_at_any_noise(q, z):
    # Between whole orders, of which (a - 1) times the divergence is convex.
    curve = renyi_curve([GaussianRelease(z, q)])
    orders = accounting.RENYI_ORDERS
    whole = (orders % 1 == 0) & (orders < 12)
    logs = (orders - 1) * curve
    chords = np.interp(orders, [1.0, *orders[whole]], [0.0, *logs[whole]])
    inside = orders < 10
    room = 1e-13 + 1e-12 * chords[inside]
    assert (logs[inside] <= chords[inside] + room).all()
    # And no less than the part where the row is drawn: q^a e^(a (a - 1) / 2 z^2).
    drawn = orders * math.log(q) + orders * (orders - 1) / (2 * z * z)
    assert (logs >= np.maximum(drawn, 0) - 1e-12 * np.abs(drawn)).all()


def test_no_noise_is_no_bound():
    assert (renyi_curve([GaussianRelease(0.0, 0.1)]) == math.inf).all()


def reach_of(releases):
    """Return the largest loss of the grid that `epsilon_of` takes, or more."""
    steps = sum(release.steps for release in releases)
    return loss_bound(renyi_curve(releases), steps, 1e-3 * DELTA) + 0.01


@pytest.mark.thin(2)
@pytest.mark.parametrize("releases", SAMPLED)
def test_each_direction_has_the_cost_of_connected_dots(releases):
    ours = directed_bounds(releases, DELTA, 0.01, reach_of(releases))
    few = sum(release.steps for release in releases) < 30
    total = losses(releases, 1e-3 if few else 1e-4)
    exact = [
        direction.get_epsilon_for_delta(DELTA)
        for direction in (total._pmf_remove, total._pmf_add)
    ]
    for bound, truth in zip(ours, exact, strict=True):
        assert truth <= bound <= truth + 0.02
    assert exact[0] > exact[1]


def test_the_larger_direction_counts(monkeypatch):
    releases = [GaussianRelease(1.3, 0.03, 70)]
    for both in ((2.0, 3.0), (3.0, 2.0), (math.nan, 3.0), (3.0, -0.1)):
        monkeypatch.setattr(accounting, "directed_bounds", lambda *_, b=both: b)
        monkeypatch.setattr(accounting, "epsilon_of_curve", lambda *_: 4.0)
        accounting._prv_epsilon.cache_clear()
        found = epsilon_of(releases, DELTA)
        assert found == (3.0 if min(both) > 0 else 4.0)
    accounting._prv_epsilon.cache_clear()


def test_releases_on_all_rows_are_one_release():
    z = joint_multiplier([3.0, 4.0, math.inf])
    assert z == pytest.approx(1 / math.sqrt(1 / 9 + 1 / 16))
    apart = oracle([GaussianRelease(3.0), GaussianRelease(4.0)])
    assert gaussian_epsilon(z, DELTA) == pytest.approx(apart, rel=1e-3)
    assert joint_multiplier([]) == math.inf


def test_two_terms_of_one_sample_are_one_mechanism():
    # Sensitivities a and c on the same coordinates with noise z (a + c) cost no more
    # than one mechanism of multiplier z, subsampled once; as two mechanisms on
    # independent samples they would seem cheaper than they are.
    z, a, c = 1.2, 0.7, 0.3
    z1, z2 = z * math.sqrt((a + c) / a), z * math.sqrt((a + c) / c)
    assert joint_multiplier([z1, z2]) == pytest.approx(z)
    joint = oracle([GaussianRelease(z, 0.05, 100)], interval=1e-3)
    independent = oracle(
        [GaussianRelease(z1, 0.05, 100), GaussianRelease(z2, 0.05, 100)], interval=1e-3
    )
    assert independent < joint
    assert (
        epsilon_of([GaussianRelease(joint_multiplier([z1, z2]), 0.05, 100)], DELTA)
        >= joint
    )


def test_halves_of_a_budget_do_not_add_up_on_one_sample():
    q, steps = 0.0256, 78
    half = calibrate([], q, steps, 5.0, DELTA / 2)
    joint = GaussianRelease(joint_multiplier([half, half]), q, steps)
    assert oracle([joint], interval=1e-3) > 11.01
    assert epsilon_of([joint], DELTA, 10.0) > 11


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 8.0, 50.0])
def test_gaussian_closed_forms(epsilon):
    z = gaussian_multiplier(epsilon, DELTA)
    assert gaussian_delta(z, epsilon) == pytest.approx(DELTA, rel=1e-6)
    assert gaussian_epsilon(z, DELTA) == pytest.approx(epsilon, rel=1e-6)
    exact = oracle([GaussianRelease(z)], interval=1e-4 * max(1.0, epsilon))
    assert exact == pytest.approx(epsilon, rel=2e-3)


@pytest.mark.parametrize("epsilon", [1e6, 1e9])
def test_a_budget_beyond_all_noise_is_refused_in_words(epsilon):
    with pytest.raises(InfeasibleBudgetError, match="epsilon=None"):
        gaussian_multiplier(epsilon, DELTA)


@pytest.mark.thin(2)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("rate", [0.002, 0.3, 1.0])
def test_calibration_spends_the_budget_and_no_more(epsilon, rate):
    fixed = [GaussianRelease(3 * gaussian_multiplier(epsilon, DELTA))]
    z = calibrate(fixed, rate, 300, epsilon, DELTA)
    releases = [*fixed, GaussianRelease(z, rate, 300)]
    assert 0.99 * epsilon < epsilon_of(releases, DELTA, epsilon) <= epsilon
    exact = oracle(releases, interval=1e-4 * max(1.0, epsilon))
    assert exact <= epsilon * (1 + 1e-3)


def test_an_infeasible_budget_names_what_to_change():
    with pytest.raises(InfeasibleBudgetError, match="marginal_budget"):
        calibrate([GaussianRelease(1.0)], 0.1, 100, 0.1, DELTA)


def test_edge_cases():
    assert epsilon_of([], DELTA) == 0
    assert epsilon_of([GaussianRelease(0.0)], DELTA) == math.inf
    assert gaussian_epsilon(1e9, DELTA) == 0


def plan(**changes):
    facts = {
        "epsilon": 1.0,
        "delta": DELTA,
        "n_rows": 30_000,
        "sampling_rate": 0.05,
        "n_steps": 200,
        "marginal_budget": 0.15,
        "has_open_keys": False,
    }
    return make_plan(**{**facts, **changes})


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("epsilon", "shares", "has_open_keys", "estimates_norm"),
    [  # every pair of values of two parameters
        (0.1, (0.0, 0.0), False, False),
        (0.1, (0.05, 0.0), True, True),
        (0.1, (0.05, 0.3), False, True),
        (1.0, (0.0, 0.0), True, True),
        (1.0, (0.05, 0.0), False, False),
        (1.0, (0.05, 0.3), True, False),
        (10.0, (0.0, 0.0), True, False),
        (10.0, (0.05, 0.0), False, True),
        (10.0, (0.05, 0.3), True, False),
    ],
)
def test_the_plan_adds_up(epsilon, has_open_keys, estimates_norm, shares):
    prior_budget, table_budget = shares
    p = plan(
        epsilon=epsilon, has_open_keys=has_open_keys, estimates_norm=estimates_norm,
        prior_budget=prior_budget, table_budget=table_budget,
    )  # fmt: skip
    assert 0.99 * epsilon < p.spent() <= epsilon
    assert p.count_epsilon == count_epsilon(epsilon) <= 0.02 * epsilon
    exact = oracle(p.gaussians, p.delta - p.threshold_delta, 1e-4 * max(1.0, epsilon))
    assert exact + p.count_epsilon <= epsilon * (1 + 1e-4)
    assert (p.threshold_delta > 0) == has_open_keys
    assert math.isfinite(p.multiplier(NORM)) == estimates_norm
    assert math.isfinite(p.multiplier(LATENTS)) == (prior_budget > 0)
    assert math.isfinite(p.multiplier(TABLES)) == (table_budget > 0)
    assert len(p.gaussians) == 2 + estimates_norm + sum(share > 0 for share in shares)


def test_a_plan_without_marginals_pays_for_none():
    p = plan(marginal_budget=0.0)
    assert math.isinf(p.multiplier(MARGINALS))
    assert p.noise_multiplier < plan().noise_multiplier


@pytest.mark.parametrize("name", ["prior", "table"])
@pytest.mark.parametrize("k", [1, 4])
def test_moments_and_tables_cost_what_their_share_says(name, k):
    share = {f"{name}_budget": 0.2}
    p = plan(**share, rows_per_unit=k)
    whole = gaussian_multiplier(p.epsilon - p.count_epsilon, p.delta)
    multiplier = p.multiplier(BUDGETS[f"{name}_budget"])
    assert multiplier == pytest.approx(whole / math.sqrt(0.2))
    assert p.noise_multiplier > plan(rows_per_unit=k).noise_multiplier
    assert plan(epsilon=None, **share).multiplier(BUDGETS[f"{name}_budget"]) == 0


def test_scores_and_counts_of_tables_against_an_independent_accountant():
    p = plan(table_budget=0.3)
    *_, tables, steps = p.gaussians
    assert tables == GaussianRelease(p.multiplier(TABLES))
    shares = CHOICE_SHARE, CUT_SHARE, NEWS_SHARE
    spent = [p.multiplier(TABLES) / math.sqrt(share) for share in shares]
    spent.append(count_multiplier(p, share_of_choices(True)))
    parts = [GaussianRelease(z) for z in spent]
    others = [GaussianRelease(p.multiplier(MARGINALS)), steps]
    exact = oracle([*others, *parts]) + p.count_epsilon
    assert exact <= p.epsilon * (1 + 1e-4)
    assert exact == pytest.approx(oracle([*others, tables]) + p.count_epsilon, rel=1e-3)


@pytest.mark.parametrize(("multiplier", "n"), [(1.5, 100), (4.0, 400)])
def test_choices_cost_no_more_than_gaussian_releases(multiplier, n):
    # The worst choice: of two scores, each moved as far as it may be. Its loss is one
    # of two values, and many of them have 2 / pi of the Gaussian releases' variance.
    z = multiplier * math.sqrt(n)
    odds = choice_rate(z)
    up, down = -math.log1p(math.exp(-odds)), -math.log1p(math.exp(odds))
    one = pld.from_two_probability_mass_functions(
        {0: down, 1: up}, {0: up, 1: down}, value_discretization_interval=1e-4
    )
    found = one.self_compose(n).get_epsilon_for_delta(DELTA)
    claim = gaussian_epsilon(multiplier, DELTA)
    assert 0.7 * claim < found <= claim


def test_a_plan_without_privacy_says_so():
    p = plan(epsilon=None)
    assert not p.private
    assert p.noise_multiplier == p.multiplier(MARGINALS) == 0
    assert p.spent() == math.inf


@pytest.mark.parametrize("has_open_keys", [False, True])
def test_the_curve_holds_given_the_count(has_open_keys):
    plan = make_plan(
        epsilon=1.0, delta=DELTA, n_rows=5000, sampling_rate=0.1, n_steps=100,
        marginal_budget=0.2, has_open_keys=has_open_keys,
    )  # fmt: skip
    (epsilon, delta), *others = plan.curve()
    assert (epsilon, delta) == (1.0, DELTA)
    assert len(others) == (4 if has_open_keys else 8)
    total = losses(plan.gaussians)
    for bound, at in others:
        rest = at - plan.threshold_delta
        exact = plan.count_epsilon + max(total.get_epsilon_for_delta(rest), 0.0)
        assert exact * (1 - 1e-4) <= bound <= exact + 0.02
    assert [e for e, _ in sorted(others, key=lambda pair: pair[1])] == sorted(
        (e for e, _ in others), reverse=True
    )


def test_the_guarantee_alone_holds_whatever_the_count():
    # Fits that release other counts have other curves through the guaranteed pair: the
    # pairs hold for outcomes of one count.
    few, many = (
        plan(epsilon=4.0, sampling_rate=rate, n_steps=steps)
        for rate, steps in ((1.0, 1), (0.01, 100))
    )
    assert few.curve()[0] == many.curve()[0] == (4.0, DELTA)
    bounds = [dict(map(reversed, p.curve()))[1e-3] for p in (few, many)]
    exact = [p.count_epsilon + oracle(p.gaussians, 1e-3, 1e-3) for p in (few, many)]
    assert exact == pytest.approx(bounds, abs=0.05)
    assert max(exact) > 1.05 * min(bounds)


def test_without_privacy_the_curve_is_empty():
    plan = make_plan(
        epsilon=None, delta=DELTA, n_rows=5000, sampling_rate=0.1, n_steps=100,
        marginal_budget=0.2, has_open_keys=False,
    )  # fmt: skip
    assert plan.curve() == ()


@pytest.mark.thin(2)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 30.0])
def test_few_questions_calibrate_and_none_the_second_time(epsilon):
    fixed = [GaussianRelease(3 * gaussian_multiplier(epsilon, DELTA))]
    _prv_epsilon.cache_clear()
    first = calibrate(fixed, 0.07, 500, epsilon, DELTA)
    asked = _prv_epsilon.cache_info().misses
    assert 1 <= asked <= 3
    assert calibrate(fixed, 0.07, 500, epsilon, DELTA) == first
    assert _prv_epsilon.cache_info().misses == asked


@pytest.fixture
def grids(monkeypatch):
    """Return a list that grows by the size of every grid."""
    sizes, create = [], prv.Domain.create_aligned

    def count(*ends):
        domain = create(*ends)
        sizes.append(domain.size)
        return domain

    monkeypatch.setattr(prv.Domain, "create_aligned", count)
    _prv_epsilon.cache_clear()
    return sizes


@pytest.mark.thin(2)
@pytest.mark.parametrize("epsilon", [0.01, 0.03, 0.1, 10.0, 30.0, 100.0])
def test_few_points_calibrate_from_the_least_epsilon_to_the_largest(epsilon, grids):
    facts = {"sampling_rate": 2048 / 32_561, "n_steps": 800, "marginal_budget": 0.4}
    p = plan(epsilon=epsilon, has_open_keys=True, **facts)
    assert 1 <= len(grids) <= 4
    assert sum(grids) <= 1.1e6
    assert 0.99 * epsilon < p.spent() <= epsilon
    delta = p.delta - p.threshold_delta
    interval = min(1e-3 * epsilon, max(1e-3, 1e-4 * epsilon))
    exact = oracle(p.gaussians, delta, interval) + p.count_epsilon
    assert 0.98 * epsilon < exact <= epsilon * (1 + 1e-3)
    asked = len(grids)
    assert plan(epsilon=epsilon, has_open_keys=True, **facts) == p
    assert len(grids) == asked


@pytest.mark.thin(2)
@pytest.mark.parametrize("z", [60.0, 25.0, 1.5, 0.9])
def test_a_wider_grid_changes_no_answer(z, monkeypatch):
    releases = [GaussianRelease(z, 0.063, 800), GaussianRelease(z)]
    bounds, bound_losses = [], accounting.loss_bound
    for wider in (1, 2):
        _prv_epsilon.cache_clear()
        monkeypatch.setattr(
            accounting, "loss_bound", lambda *args, k=wider: k * bound_losses(*args)
        )
        bounds.append(epsilon_of(releases, DELTA))
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-6)


def test_more_noise_never_costs_more():
    for middle, target in ((585.0, 0.01), (5.0, 2.0), (0.49, 100.0)):
        costs = [
            epsilon_of([GaussianRelease(middle * c, 0.063, 800)], DELTA, target)
            for c in (0.9, 0.98, 1.0, 1.02, 1.1)
        ]
        assert costs == sorted(costs, reverse=True)
        assert len(set(costs)) == 5


def test_the_reach_bounds_both_tails_of_every_loss():
    # In closed form: the loss of a Gaussian mechanism is N(m / 2, m), m = 1 / z^2.
    for z in (500.0, 5.0, 0.5):
        reach = accounting.loss_bound(renyi_curve([GaussianRelease(z)]), 1, 1e-8)
        outside = norm.sf(reach * z - 0.5 / z) + norm.cdf(-reach * z - 0.5 / z)
        assert outside <= 1e-8 / 6
        assert outside > 1e-8 / 600


def test_what_is_imported_of_opacus_is_opacus_own(monkeypatch):
    whole = import_module("opacus.accountants.analysis.prv")
    assert accounting._opacus_prv.__wrapped__() is whole
    monkeypatch.delitem(sys.modules, "opacus")
    alone = accounting._opacus_prv.__wrapped__()
    assert alone is not whole
    assert alone.__file__ == whole.__file__
    assert "opacus" not in sys.modules


RARE = [
    [GaussianRelease(0.27, 1e-6, 1000)],
    [GaussianRelease(0.31, 1e-7, 1_000_000)],
    [GaussianRelease(0.26, 1e-6, 300), GaussianRelease(8.0)],
]


@pytest.mark.thin(2)
@pytest.mark.parametrize("releases", RARE)
def test_rare_rows_cost_no_less_than_the_oracle_and_not_much_more(releases):
    exact = oracle(releases, interval=1e-3)
    ours = epsilon_of(releases, DELTA, exact)
    # The oracle errs upwards, by its own discretization.
    assert exact * (1 - 1e-3) <= ours <= exact + 2 * accounting.slack_of(exact)


@pytest.mark.parametrize("releases", [RARE[0], RARE[2]])
def test_where_rows_are_rare_a_wide_grid_is_as_good(releases, monkeypatch):
    reach = reach_of(releases)
    wide = directed_bounds(releases, DELTA, 0.05, reach)
    monkeypatch.setattr(accounting, "_RARE", 0.0)
    fine = directed_bounds(releases, DELTA, 0.05, reach)
    assert wide == pytest.approx(fine, abs=2e-3)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rate", "steps", "epsilon", "spends"),
    [
        (1e-6, 1000, 1.0, True),
        (1e-7, 1_000_000, 1.0, True),
        pytest.param(1e-6, 1_000_000, 10.0, True, marks=pytest.mark.slow),
        (1e-9, 1000, 1.0, False),  # delta covers that the row is sampled at all
    ],
)
def test_few_points_calibrate_where_rows_are_rare(rate, steps, epsilon, spends, grids):
    fixed = [GaussianRelease(3 * gaussian_multiplier(epsilon, DELTA))]
    z = calibrate(fixed, rate, steps, epsilon, DELTA)
    assert sum(grids) <= 1e7
    spent = epsilon_of([*fixed, GaussianRelease(z, rate, steps)], DELTA, epsilon)
    assert spent <= epsilon
    assert (spent > 0.99 * epsilon) == spends


def test_a_search_ends_where_no_bound_is_near_the_target(monkeypatch):
    # As where a grid becomes too large, and another bound takes over.
    asked = []

    def jumps(releases, *_):
        asked.append(releases[-1].noise_multiplier if releases else math.inf)
        return 0.5 if asked[-1] > 2.0 else 3.0

    monkeypatch.setattr(accounting, "epsilon_of", jumps)
    assert 2 < calibrate([], 0.1, 10, 1.0, DELTA) < 2.01
    assert len(asked) < 25
