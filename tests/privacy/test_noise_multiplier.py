"""Fits that state the noise of their gradients: epsilon follows, and is never less."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from opacus.accountants.analysis import rdp
from sklearn.base import clone

from dpgenerative import (
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    PrivacyBudget,
    PrivateSearch,
    forecast,
    load,
)
from dpgenerative.audit import audit_release
from dpgenerative.encoding.marginals import MARGINALS
from dpgenerative.exceptions import BudgetExceededError
from dpgenerative.privacy.accounting import GaussianRelease
from dpgenerative.privacy.latents import LATENTS
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import count_epsilon, epsilon_of_noise
from dpgenerative.tables.private import opened
from dpgenerative.tables.schema import Column, Schema
from tests.plans import make_plan
from tests.privacy.test_accounting import DELTA, oracle

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

ORDERS = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))
"""Those of Opacus."""
SCHEMA = Schema([Column("age", "integer", lower=0, upper=9, nullable=False)])
STATED = {
    "n_steps": 3, "batch_size": 16, "random_state": 0, "noise": "reproducible",
}  # fmt: skip
MODELS = [DPArrayVAESynthesizer, DPHFlowSynthesizer, DPVAESynthesizer]


def rows(model, n=60):
    rng = np.random.default_rng(0)
    if model is DPArrayVAESynthesizer:
        return rng.integers(0, 256, (n, 4, 4)).astype(np.uint8)
    return pd.DataFrame({"age": rng.integers(0, 10, n), "b": rng.normal(size=n)})


@pytest.fixture
def exact_count(monkeypatch):
    def exact(self, rows, epsilon):
        self.ledger.count(len(opened(rows)), epsilon)
        return len(opened(rows))

    monkeypatch.setattr(Mechanisms, "count", exact)


def planned(z, **changes):
    facts = {
        "delta": DELTA, "n_rows": 10_000, "sampling_rate": 0.01, "n_steps": 300,
        "marginal_budget": 0.0, "has_open_keys": False, "noise_multiplier": z,
    }  # fmt: skip

    def plan_at(epsilon):
        return make_plan(epsilon=epsilon, **{**facts, **changes})

    return plan_at(epsilon_of_noise(plan_at))


def check_epsilon(z):
    plan = planned(z)
    assert plan.noise_multiplier == z
    ours = plan.spent() - count_epsilon(None, 1, z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the best order is the least
        curve = rdp.compute_rdp(q=0.01, noise_multiplier=z, steps=300, orders=ORDERS)
        renyi, _ = rdp.get_privacy_spent(orders=ORDERS, rdp=curve, delta=DELTA)
    if z < 0.05:
        assert ours == pytest.approx(renyi, rel=1e-6)
        return
    exact = oracle(plan.gaussians, DELTA, 1e-4 * max(1 / z, ours))
    assert exact * (1 - 1e-4) <= ours <= min(renyi, exact + 0.02 * max(1.0, exact))


@pytest.mark.thin(5)
@pytest.mark.parametrize("z", [0.001, 0.01, 0.1, 0.5, 1.0])
def test_epsilon_is_that_of_other_accountants(z):
    check_epsilon(z)
    plan = planned(z)
    assert 0.99 * plan.epsilon < plan.spent() <= plan.epsilon


def test_other_releases_are_paid_for_in_their_share():
    plan = planned(2.0, marginal_budget=0.3, prior_budget=0.2, n_steps=100)
    steps = GaussianRelease(2.0, 0.01, 100)
    others = [
        GaussianRelease(z)
        for z in (plan.multiplier(MARGINALS), plan.multiplier(LATENTS))
    ]
    exact = oracle([*others, steps]) + plan.count_epsilon
    assert exact * (1 - 1e-4) <= plan.spent() <= plan.epsilon <= 1.02 * exact
    assert plan.spent() > 1.2 * (oracle([steps]) + plan.count_epsilon)


@pytest.mark.thin(2)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 20.0])
def test_the_plan_of_an_epsilon_is_found_again(epsilon):
    facts = {
        "delta": DELTA, "n_rows": 10_000, "sampling_rate": 0.01, "n_steps": 300,
        "marginal_budget": 0.3, "has_open_keys": True, "table_budget": 0.1,
    }  # fmt: skip
    known = make_plan(epsilon=epsilon, **facts)
    found = planned(known.noise_multiplier, **{k: facts[k] for k in list(facts)[4:]})
    assert found.multiplier(MARGINALS) == pytest.approx(
        known.multiplier(MARGINALS), rel=0.01
    )
    assert found.epsilon - found.count_epsilon == pytest.approx(
        known.epsilon - known.count_epsilon, rel=0.01
    )


def test_steps_are_taken_where_a_rule_would_take_none():
    def plan_at(epsilon):
        return make_plan(
            epsilon=epsilon, delta=DELTA, n_rows=500, sampling_rate=0.1,
            n_steps=50 * (epsilon > 4), marginal_budget=0.3, has_open_keys=False,
            noise_multiplier=50.0,
        )  # fmt: skip

    plan = plan_at(epsilon_of_noise(plan_at))
    assert plan.n_steps == 50
    assert plan.spent() <= plan.epsilon < 4.1


@pytest.mark.thin(2)
@pytest.mark.usefixtures("exact_count")
@pytest.mark.parametrize("epsilon", [1.0, 6.0])
def test_a_fit_by_its_own_noise_is_the_same(epsilon):
    X = rows(DPArrayVAESynthesizer)
    first = DPArrayVAESynthesizer(epsilon=epsilon, **STATED).fit(X)
    z = first.noise_multiplier_
    second = DPArrayVAESynthesizer(noise_multiplier=z, **STATED).fit(X)
    assert second.noise_multiplier_ == z
    for a, b in zip(first._model.parameters(), second._model.parameters(), strict=True):
        assert a.equal(b)
    np.testing.assert_array_equal(first.sample(5, 1), second.sample(5, 1))
    plans = [fit.privacy_.plan for fit in (first, second)]
    left = [plan.spent() - plan.count_epsilon for plan in plans]
    assert left[0] == pytest.approx(left[1], rel=0.01)


@pytest.mark.thin(2)
@pytest.mark.parametrize("model", MODELS)
def test_every_synthesizer_takes_it(model, tmp_path):
    synthesizer = model(noise_multiplier=0.7, **STATED)
    assert clone(synthesizer).get_params()["noise_multiplier"] == 0.7
    fitted = synthesizer.fit(rows(model))
    plan = fitted.privacy_.plan
    assert fitted.noise_multiplier_ == plan.noise_multiplier == 0.7
    assert fitted.epsilon_ == plan.spent() <= plan.epsilon
    assert plan.count_epsilon == pytest.approx(0.015 * 5 / 0.7)
    assert any("noise multiplier was stated" in note for note in fitted.privacy_.notes)
    fitted.save(tmp_path / "m.dpg")
    assert load(tmp_path / "m.dpg").get_params()["noise_multiplier"] == 0.7


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"epsilon": 2.0}, "'epsilon' .* must be left at 1.0"),
        ({"epsilon": None}, "'epsilon' .* must be left at 1.0"),
        ({"max_rows_per_unit": 2}, "'max_rows_per_unit' .* must be left at 1"),
        ({"noise_multiplier": 0.0}, "'noise_multiplier' .* must be a number in"),
        ({"noise_multiplier": "auto"}, "'noise_multiplier' .* must be a number in"),
    ],
)
def test_one_of_both_is_stated(wrong, said):
    params = {"noise_multiplier": 1.0, **wrong}
    with pytest.raises(ValueError, match=said):
        DPArrayVAESynthesizer(**params).fit(rows(DPArrayVAESynthesizer))


@pytest.mark.parametrize(("z", "none"), [(0.01, True), (1.0, False)])
def test_no_privacy_is_called_so(z, none):
    synthesizer = DPArrayVAESynthesizer(noise_multiplier=z, **STATED)
    report = synthesizer.fit(rows(DPArrayVAESynthesizer)).privacy_
    assert ("NO PRIVACY" in str(report)) == none
    assert ("is no privacy" in str(report)) == none
    assert ("NO PRIVACY" in report._repr_html_()) == none


def test_who_needs_epsilon_beforehand_says_so():
    synthesizer = DPHFlowSynthesizer(noise_multiplier=1.0, **STATED)
    X = rows(DPHFlowSynthesizer)
    with PrivacyBudget(100.0, 1e-3) as budget, pytest.raises(BudgetExceededError):
        synthesizer.fit(X)
    assert not budget.fits
    with pytest.raises(ValueError, match="no epsilon holds"):
        audit_release(synthesizer.set_params(noise="fresh"), X)
    with pytest.raises(ValueError, match="the search sets them"):
        PrivateSearch(synthesizer, {"noise_multiplier": [1.0]}).fit(X)


def test_a_search_states_epsilon_instead():
    synthesizer = DPHFlowSynthesizer(noise_multiplier=1.0, n_steps=3, batch_size=10**6)
    grid = {"architecture__n_bins": [4]}
    search = PrivateSearch(synthesizer, grid, epsilon=4.0, mean_trials=1.5)
    search.fit(rows(DPHFlowSynthesizer, 300))
    assert search.best_estimator_.noise_multiplier is None
    assert search.epsilon_ <= 4.0


@pytest.mark.parametrize("n_rows", [1, 10, 100])
def test_few_rows_do_not_raise_epsilon_until_a_rule_takes_gradients(n_rows):
    plan = forecast(SCHEMA, n_rows, noise_multiplier=100.0).plan
    assert plan.n_steps > 0
    assert plan.spent() < 1


def test_noise_of_no_steps_is_refused():
    synthesizer = DPHFlowSynthesizer(noise_multiplier=1.0, n_steps=0)
    with pytest.raises(ValueError, match="must not be 0 where noise_multiplier"):
        synthesizer.fit(rows(DPHFlowSynthesizer))


def test_a_forecast_is_what_a_fit_plans():
    ahead = forecast(SCHEMA, 5000, noise_multiplier=2.0, n_steps=10, batch_size=500)
    assert ahead.plan.noise_multiplier == 2.0
    assert f"epsilon {ahead.plan.epsilon:.4g}" in str(ahead)
    assert math.isclose(ahead.count_std, 37.7, rel_tol=0.01)
