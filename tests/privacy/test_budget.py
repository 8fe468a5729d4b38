"""A budget for several fits, which refuses the fit too many."""

from __future__ import annotations

import copy
import pickle
import threading
from pickle import PicklingError

import numpy as np
import pytest
from joblib import Parallel, delayed, parallel_config
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from dpgenerative import (
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    PrivacyBudget,
    PrivateSearch,
    SyntheticClassifier,
)
from dpgenerative.exceptions import BudgetExceededError, InfeasibleBudgetError
from dpgenerative.fitting.fit import PrivateFit
from dpgenerative.privacy.budget import charge

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

X = np.random.default_rng(0).normal(size=(200, 2))


def flow(epsilon=1.0, delta=1e-6):
    return DPHFlowSynthesizer(epsilon, delta, n_steps=3)


def test_fits_add_up_and_the_one_too_many_reads_no_row(monkeypatch):
    with PrivacyBudget(2.5, 1e-5) as budget:
        flow().fit(X)
        DPVAESynthesizer(0.5, 1e-6, n_steps=3).fit(X)
        SyntheticClassifier(flow(0.75)).fit(X, X[:, 0] > 0)
        assert budget.spent == pytest.approx((2.25, 3e-6))
        assert budget.remaining == pytest.approx((0.25, 7e-6))
        monkeypatch.setattr(PrivateFit, "run", lambda *_: pytest.fail("a row was read"))
        with pytest.raises(BudgetExceededError, match=r"asks for epsilon=0.3 .* 0.25"):
            flow(0.3).fit(X)
        assert budget.spent == pytest.approx((2.25, 3e-6))
    assert [owner for owner, _, _ in budget.fits] == [
        "DPHFlowSynthesizer",
        "DPVAESynthesizer",
        "DPHFlowSynthesizer",
    ]
    assert "2.25" in repr(budget)


def test_delta_runs_out_too():
    with PrivacyBudget(100.0, 1.5e-6):
        flow().fit(X)
        with pytest.raises(BudgetExceededError, match="delta=1e-06"):
            flow().fit(X)


def test_decimal_fractions_fit():
    with PrivacyBudget(0.3, 3e-6) as budget:
        for _ in range(3):
            charge("T", 0.1, 1e-6)
        with pytest.raises(BudgetExceededError):
            charge("T", 1e-9, 1e-15)
    assert len(budget.fits) == 3


@pytest.mark.parametrize("epsilon", [None, np.inf])
def test_no_privacy_fits_no_budget(epsilon):
    with PrivacyBudget(1e6, 0.9), pytest.raises(BudgetExceededError, match="inf"):
        flow(epsilon).fit(X)


def test_outside_the_block_nothing_is_charged():
    with PrivacyBudget(1.0, 1e-5) as budget:
        pass
    flow(5.0).fit(X)
    assert budget.spent == (0.0, 0.0)
    with budget:
        flow(0.5).fit(X)
    with budget, pytest.raises(BudgetExceededError):
        flow(0.6).fit(X)


def test_nested_budgets_must_all_pay_and_none_does_if_one_cannot():
    with PrivacyBudget(3.0, 1e-5) as outer:
        flow().fit(X)
        with PrivacyBudget(0.5, 1e-5) as inner:
            with pytest.raises(BudgetExceededError):
                flow().fit(X)
            flow(0.5).fit(X)
        assert inner.spent[0] == 0.5
        assert outer.spent[0] == 1.5
        flow(1.5).fit(X)


def test_public_mistakes_are_free_and_failures_after_the_first_release_are_not():
    with PrivacyBudget(1.0, 0.5) as budget:
        with pytest.raises(ValueError, match="n_steps"):
            DPHFlowSynthesizer(n_steps=-1).fit(X)
        with pytest.raises(ValueError, match="0 sample"):
            flow().fit(X[:0])
        shares = {"marginal_budget": 0.6, "architecture__table_budget": 0.4}
        with pytest.raises(ValueError, match="leave gradients 1e-6"):
            flow().set_params(**shares).fit(X)
        assert budget.spent == (0.0, 0.0)
        with pytest.raises(InfeasibleBudgetError):
            flow(1e-9, 1e-15).fit(X)
        assert budget.spent == (1e-9, 1e-15)


def test_threads_share_the_budget():
    refused = []

    def fit():
        try:
            charge("T", 0.1, 1e-7)
        except BudgetExceededError as error:
            refused.append(error)

    with PrivacyBudget(2.0, 1e-3) as budget:
        threads = [threading.Thread(target=fit) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(budget.fits) == 20
    assert len(refused) == 30


def test_a_fit_in_another_process_is_refused():
    with PrivacyBudget(9.0, 1e-3) as budget:
        budget._process += 1
        with pytest.raises(BudgetExceededError, match="another process"):
            flow().fit(X)


def test_no_estimator_is_sent_to_workers():
    predictors = SyntheticClassifier(flow()), SyntheticClassifier()
    search = PrivateSearch(predictors[1], {"n_samples": [50]})
    # Who clones what is fitted, and fits the clone, is not counted there either.
    fitted = flow().fit(X), SyntheticClassifier(flow()).fit(X, X[:, 0] > 0)
    with PrivacyBudget(9.0, 1e-3):
        for each in (flow(), make_pipeline(flow()), *predictors, search, *fitted):
            with pytest.raises(BudgetExceededError, match="n_jobs=1"):
                pickle.dumps(each)
        with pytest.raises(BudgetExceededError, match="copied"):
            copy.deepcopy(fitted)
    for each in (flow(), *fitted):
        pickle.dumps(each)


def test_fitted_estimators_are_not_refitted_uncounted_in_workers():
    fitted = SyntheticClassifier(flow()).fit(X, X[:, 0] > 0)
    label = np.arange(len(X)) % 3
    with PrivacyBudget(9.0, 1e-3) as budget:
        with pytest.raises((BudgetExceededError, PicklingError)):
            OneVsRestClassifier(fitted, n_jobs=2).fit(X, label)
        assert budget.fits == []
        OneVsRestClassifier(fitted, n_jobs=1).fit(X, label)
        assert len(budget.fits) == 3


def test_searches_are_counted_fit_by_fit_and_workers_refused():
    search = GridSearchCV(flow(), {"architecture__n_bins": [8, 16]}, cv=2, refit=True)
    with PrivacyBudget(5.0, 1e-3) as budget:
        search.fit(X)
        assert budget.spent[0] == 5.0
    with PrivacyBudget(5.0, 1e-3) as budget:
        with parallel_config("threading"):
            GridSearchCV(flow(), {"architecture__n_bins": [8, 16]}, cv=2, n_jobs=2).fit(
                X
            )
        assert len(budget.fits) == 5


@pytest.mark.parametrize(
    "run",
    [
        lambda budget: GridSearchCV(flow(), {"n_steps": [3]}, cv=2, n_jobs=2).fit(X),
        lambda budget: cross_val_score(make_pipeline(flow()), X, cv=2, n_jobs=2),
        lambda budget: Parallel(2)(delayed(flow().fit)(X) for _ in range(2)),
        lambda budget: Parallel(2)(delayed(repr)(budget) for _ in range(2)),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_workers_are_refused_with_what_to_do(run):
    budget = PrivacyBudget(5.0, 1e-3)
    says = "threads|n_jobs=1 or joblib's threading"
    with pytest.raises(BudgetExceededError, match=says), budget:
        run(budget)
    assert budget.fits == []


def test_a_budget_leaves_other_errors_of_pickling_as_they_are():
    budget = PrivacyBudget(5.0, 1e-3)
    with budget, pytest.raises(BudgetExceededError):
        pickle.dumps(flow())
    with pytest.raises(PicklingError, match="a lambda"), budget:
        raise PicklingError("a lambda")


@pytest.mark.parametrize("send", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_budget_is_not_doubled(send):
    budget = PrivacyBudget(5.0, 1e-3)
    with pytest.raises(BudgetExceededError, match=r"PrivacyBudget\(\*budget.remaining"):
        send(budget)
    assert PrivacyBudget(*budget.remaining).epsilon == 5.0


def test_a_search_that_would_exceed_it_stops_in_time():
    search = GridSearchCV(
        flow(), {"architecture__n_bins": [8, 16]}, cv=2, error_score="raise"
    )
    with PrivacyBudget(3.0, 1e-3) as budget:
        with pytest.raises(BudgetExceededError):
            search.fit(X)
        assert budget.spent[0] == 3.0


def test_a_private_search_is_charged_once():
    search = PrivateSearch(
        flow(), {"architecture__n_bins": [8, 16]}, 0.9, 1e-6, mean_trials=1.5
    )
    with PrivacyBudget(1.0, 1e-3) as budget:
        search.fit(X)
        assert budget.fits == [("PrivateSearch", 0.9, 1e-6)]
        with pytest.raises(BudgetExceededError):
            search.fit(X)


@pytest.mark.parametrize(
    ("epsilon", "delta", "name"),
    [(0, 1e-5, "epsilon"), (np.inf, 1e-5, "epsilon"), (1, 0, "delta"), (1, 1, "delta")],
)
def test_bad_budgets(epsilon, delta, name):
    with pytest.raises(ValueError, match=f"'{name}' of PrivacyBudget"):
        PrivacyBudget(epsilon, delta)
