"""A person with up to k rows: the budget of one row follows from that of k."""

from __future__ import annotations

import html
import math
import re

import numpy as np
import pandas as pd
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from dpgenerative import DPHFlowSynthesizer, DPVAESynthesizer, PrivacyBudget
from dpgenerative.exceptions import InfeasibleBudgetError
from dpgenerative.privacy.accounting import (
    epsilon_of,
    gaussian_delta,
    gaussian_multiplier,
)
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import (
    group_privacy,
    row_budget,
)
from dpgenerative.privacy.report import PrivacyReport
from tests.plans import make_plan

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

both = pytest.mark.parametrize("estimator", [DPHFlowSynthesizer, DPVAESynthesizer])


def plan(k, epsilon=1.0, delta=1e-5, **facts):
    return make_plan(
        epsilon=epsilon, delta=delta, n_rows=5000, sampling_rate=0.05, n_steps=100,
        marginal_budget=0.3, has_open_keys=True, rows_per_unit=k, **facts,
    )  # fmt: skip


def chained(epsilon, delta, k):
    """Return what k steps of one row each add up to, one after the other."""
    total_epsilon, total_delta = epsilon, delta
    for _ in range(k - 1):
        # P(D_0) <= e^epsilon P(D_1) + delta, and P(D_1) is bounded by the rest.
        total_delta = math.exp(epsilon) * total_delta + delta
        total_epsilon += epsilon
    return total_epsilon, total_delta


@pytest.mark.parametrize("k", [1, 2, 3, 10, 100])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-9), (8.0, 1e-3)])
def test_the_budget_of_one_row_adds_up_to_that_of_k(epsilon, delta, k):
    row = row_budget(epsilon, delta, k)
    assert chained(*row, k) == pytest.approx((epsilon, delta))
    assert group_privacy(*row, k) == pytest.approx((epsilon, delta))
    assert row[0] <= epsilon
    assert row[1] <= delta / k * (1 + 1e-12)
    assert row_budget(epsilon, delta, 1) == (epsilon, delta)


@pytest.mark.parametrize("k", [2, 5, 20])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 6.0])
def test_it_holds_for_the_gaussian_mechanism(epsilon, k):
    """k rows move a sum k times as far, and the exact delta of that is known."""
    z = gaussian_multiplier(*row_budget(epsilon, 1e-5, k))
    assert gaussian_delta(z / k, epsilon) <= 1e-5
    # With the whole delta for one row it need not: the formula is not idle.
    assert group_privacy(epsilon / k, 1e-5, k)[1] >= k * 1e-5


@pytest.mark.parametrize("k", [1, 2, 7])
def test_the_accountant_works_at_the_budget_of_one_row(k):
    found = plan(k)
    epsilon, delta = row_budget(1.0, 1e-5, k)
    assert (found.epsilon, found.delta) == (epsilon, delta)
    assert found.guarantee == pytest.approx((1.0, 1e-5))
    assert found.count_epsilon == pytest.approx(0.015 / k)
    assert 0.99 < found.spent() <= 1.0
    total = None
    for r in found.gaussians:
        one = pld.from_gaussian_mechanism(
            r.noise_multiplier, sampling_prob=r.sampling_rate
        )
        many = one.self_compose(r.steps)
        total = many if total is None else total.compose(many)
    rest = total.get_epsilon_for_delta(delta - found.threshold_delta)
    assert found.count_epsilon + rest <= epsilon
    assert found.threshold_delta + total.get_delta_for_epsilon(epsilon) <= delta * (
        1 + 1e-9
    )


def test_more_rows_cost_more_noise():
    noises = [plan(k).noise_multiplier for k in (1, 2, 4)]
    assert noises == sorted(noises)
    assert noises[2] > 3 * noises[0]
    free = plan(3, epsilon=None)
    assert free.noise_multiplier == 0
    assert free.guarantee == (math.inf, 1e-5)
    assert free.curve() == ()


def test_every_pair_of_the_curve_is_for_the_person():
    three = plan(3)
    (epsilon, delta), *others = three.curve()
    assert (epsilon, delta) == pytest.approx((1.0, 1e-5))
    assert others
    assert all(0 < delta < 1 for _, delta in others)
    target = three.epsilon - three.count_epsilon
    for epsilon, delta in others:
        row, at = row_budget(epsilon, delta, 3)
        rest = epsilon_of(three.gaussians, at - three.threshold_delta, target)
        assert three.count_epsilon + rest == pytest.approx(row)


def test_a_budget_that_leaves_one_row_nothing():
    with pytest.raises(InfeasibleBudgetError, match="fewer rows"):
        row_budget(700.0, 1e-5, 1000)
    # Numbers this small have few digits: 0.4 % of delta more would be spent.
    with pytest.raises(InfeasibleBudgetError, match="a larger delta"):
        row_budget(100.0, 1e-300, 2)
    flow = DPHFlowSynthesizer(700.0, max_rows_per_unit=1000)
    with PrivacyBudget(1e3, 0.1) as budget, pytest.raises(InfeasibleBudgetError):
        flow.fit(pd.DataFrame({"x": [1.0, 2.0]}))
    assert budget.fits == []
    with pytest.raises(InfeasibleBudgetError, match="one row of 50: a smaller"):
        plan(50, epsilon=1e-5)
    assert group_privacy(1.0, 1e-5, 2000) == (2000.0, math.inf)


def table(n=400):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.integers(0, 9, n), "b": rng.normal(size=n)})


@both
def test_a_fit_guarantees_it_for_the_person(estimator):
    synthesizer = estimator(n_steps=10, max_rows_per_unit=4).fit(table())
    text = str(synthesizer.privacy_)
    assert "(1, 1e-05)-differential privacy" in text
    assert "all rows of one person, at most 4" in text
    assert "person with at most 4 rows" in text
    assert "one row:" not in text
    assert 0.99 < synthesizer.epsilon_ <= 1.0
    assert synthesizer.delta_ == 1e-5
    guarantee = synthesizer.privacy_.to_dict()["guarantee"]
    assert guarantee == pytest.approx((1.0, 1e-5))
    plan = synthesizer.privacy_.plan
    assert plan.rows_per_unit == 4
    assert (plan.epsilon, plan.delta) == row_budget(1.0, 1e-5, 4)
    single = estimator(n_steps=10).fit(table())
    assert "one row" in str(single.privacy_)
    assert single.noise_multiplier_ < synthesizer.noise_multiplier_ / 2


def test_notebooks_show_the_whole_statement():
    facts = ("levels of <script>",)
    report = PrivacyReport(plan(4), 0.999, "flat <clipping>", facts, ("a & b",))
    page = report._repr_html_()
    assert (
        html.unescape(re.sub("<[^>]+>", "", page)).count("one person, at most 4") == 1
    )
    assert "levels of &lt;script&gt;" in page
    assert "flat &lt;clipping&gt;" in page
    assert "a &amp; b" in page
    said = re.sub(r"\W+", " ", str(report))
    shown = re.sub(
        r"\W+", " ", html.unescape(re.sub("</?(p|ul|li|strong)>", " ", page))
    )
    assert shown.strip() == said.strip()


@both
def test_the_row_count_is_released_at_the_budget_of_one_row(estimator, monkeypatch):
    paid = []
    count = Mechanisms.count

    def watched(self, n, epsilon):
        paid.append(epsilon)
        return count(self, n, epsilon)

    monkeypatch.setattr(Mechanisms, "count", watched)
    fit = estimator(n_steps=10, max_rows_per_unit=4).fit(table())
    assert paid == [fit.privacy_.plan.count_epsilon]
    assert paid[0] == pytest.approx(0.015 / 4)


@both
@pytest.mark.parametrize("k", [0, -1, 1.5, "many", None, True])
def test_other_numbers_of_rows_are_refused(estimator, k):
    with pytest.raises(ValueError, match="'max_rows_per_unit'"):
        estimator(max_rows_per_unit=k).fit(table())
