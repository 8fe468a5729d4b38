"""The cost of a plain search."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.model_selection import (
    GridSearchCV,
    PredefinedSplit,
    RandomizedSearchCV,
    ShuffleSplit,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from dpgenerative import (
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    LaplaceRandomizer,
    PrivateSearch,
    SyntheticClassifier,
    SyntheticRegressor,
    search_privacy,
)
from dpgenerative.privacy.accounting import epsilon_of_pairs

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 2))
Y = X[:, 0] > 0


def flow(**params):
    return DPHFlowSynthesizer().set_params(**{"n_steps": 3, "delta": 1e-6, **params})


def test_the_cost_of_a_grid_by_hand():
    grid = GridSearchCV(flow(), {"epsilon": [0.5, 1.0, 2.0]}, cv=3).fit(X)
    cost = search_privacy(grid)
    best = grid.best_params_["epsilon"]
    assert cost.epsilon == pytest.approx((0.5 + 1.0 + 2.0) * 2 + best)
    assert cost.delta == pytest.approx(7e-6)
    assert (cost.n_candidates, cost.n_folds, cost.folds_per_row) == (3, 3, 2)
    assert cost.refit
    assert len(cost.fits) == 7
    text = str(cost)
    assert f"{cost.epsilon:.4g}" in text
    assert "no total covers them" in text
    assert "KFold assigns rows to folds" in text


@pytest.mark.filterwarnings("ignore")
def test_a_candidate_that_no_fit_accepts_costs_nothing():
    # scikit-learn scores it NaN and goes on.
    grid = GridSearchCV(flow(), {"epsilon": [1.0, 2.0, -50.0]}, cv=2, refit=False)
    assert search_privacy(grid.fit(X)).epsilon == pytest.approx(3.0)


def test_folds_drawn_for_every_row_by_itself_carry_no_reservation():
    folds = PredefinedSplit(RNG.integers(2, size=len(X)))
    grid = GridSearchCV(
        flow(), {"architecture__n_bins": [8, 9]}, cv=folds, refit=False
    ).fit(X)
    cost = search_privacy(grid)
    assert cost.epsilon == pytest.approx(2.0)
    assert "assigns rows" not in str(cost)
    kept = np.array([-1, *RNG.integers(2, size=len(X) - 1)])
    grid.set_params(cv=PredefinedSplit(kept)).fit(X)
    assert search_privacy(grid).folds_per_row == 2


def test_other_splitters_may_show_a_row_to_every_fit():
    search = RandomizedSearchCV(
        flow(), {"epsilon": [0.25]}, n_iter=1, cv=ShuffleSplit(4), refit=False
    ).fit(X)
    assert search_privacy(search).epsilon == pytest.approx(1.0)


def test_many_small_fits_cost_less_than_their_sum():
    search = GridSearchCV(
        flow(epsilon=0.05), {"architecture__n_bins": [8]}, cv=2, refit=False
    )
    search.fit(X)
    search.cv_results_["params"] *= 20  # as if it had tried that many
    assert search_privacy(search).epsilon == pytest.approx(1.0, rel=1e-3)
    cost = search_privacy(search, delta=1e-4)
    assert cost.epsilon == epsilon_of_pairs([(0.05, 1e-6)] * 20, 1e-4)
    assert cost.epsilon < 0.9
    assert "optimal composition" in str(cost)
    assert search_privacy(search, delta=1e-6).epsilon == math.inf


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(FunctionTransformer(), flow(epsilon=0.5)),
        SyntheticClassifier(flow(epsilon=0.5), DecisionTreeClassifier()),
        SyntheticRegressor(flow(epsilon=0.5), n_samples=50),
        DPVAESynthesizer(0.5, n_steps=3),
    ],
)
def test_the_cost_finds_the_synthesizer(estimator):
    step = "dphflowsynthesizer__" if hasattr(estimator, "steps") else ""
    part = "synthesizer__" if hasattr(estimator, "synthesizer") else step
    y = Y.astype(float) if isinstance(estimator, SyntheticRegressor) else Y
    grid = {f"{part}architecture__n_bins": [8]}
    search = GridSearchCV(estimator, grid, cv=2).fit(X, y)
    assert search_privacy(search).epsilon == pytest.approx(1.0)


def test_the_cost_of_defaults_of_no_privacy_and_of_private_searches():
    tree = DecisionTreeClassifier()
    # fmt: off
    search = GridSearchCV(
        SyntheticClassifier(None, tree), {"n_samples": [50]}, cv=2, refit=False
    ).fit(X, Y)
    # fmt: on
    assert search_privacy(search).epsilon == pytest.approx(1.0)
    search = GridSearchCV(flow(), {"epsilon": [None, 1.0]}, cv=2).fit(X)
    assert search_privacy(search).epsilon == math.inf
    private = PrivateSearch(
        flow(), {"architecture__n_bins": [8]}, 0.7, 1e-6, mean_trials=1.2
    )
    search = GridSearchCV(private, {"holdout": [0.1]}, cv=2, refit=False).fit(X)
    assert search_privacy(search).epsilon == pytest.approx(0.7)


def as_if_done(estimator):
    """Return a search as it is after two folds of one candidate."""
    search = GridSearchCV(estimator, {}, cv=2, refit=False)
    search.cv_results_, search.n_splits_ = {"params": [{}]}, 2
    return search


@pytest.mark.parametrize(
    "wrapper",
    [
        lambda model: BaggingClassifier(model, n_estimators=3),
        lambda model: CalibratedClassifierCV(model, cv=2),
        lambda model: OneVsRestClassifier(model),
        lambda model: StackingClassifier([("one", model)], cv=2),
        lambda model: GridSearchCV(model, {"n_samples": [50]}, cv=2),
        lambda model: make_pipeline(BaggingClassifier(model, n_estimators=3)),
    ],
)
def test_what_may_fit_a_synthesizer_several_times_is_refused(wrapper):
    search = as_if_done(wrapper(SyntheticClassifier(flow())))
    with pytest.raises(TypeError, match=r"several times.*bootstrap=False"):
        search_privacy(search)


def test_a_vote_counts_its_synthesizers_and_a_frozen_one_costs_nothing():
    parts = {
        "a": SyntheticClassifier(flow()),
        "b": flow(),
        "c": FrozenEstimator(flow()),
    }
    vote = make_pipeline(VotingClassifier(list(parts.items())))
    assert search_privacy(as_if_done(vote)).epsilon == pytest.approx(2.0)


def test_steps_that_learn_without_privacy_are_named():
    tree = SyntheticClassifier(flow(), DecisionTreeClassifier())
    cost = search_privacy(as_if_done(make_pipeline(StandardScaler(), tree)))
    assert "StandardScaler learned from private rows" in str(cost)
    vote = VotingClassifier([("a", tree), ("b", DecisionTreeClassifier())])
    assert "DecisionTreeClassifier learned" in str(search_privacy(as_if_done(vote)))
    steps = LaplaceRandomizer(), FunctionTransformer(), tree
    cost = search_privacy(as_if_done(make_pipeline(*steps)))
    assert "learned from private rows" not in str(cost)


def test_parameters_set_after_a_search_do_not_change_what_it_cost():
    given = flow(epsilon=5.0, n_steps=0)
    search = GridSearchCV(given, {"architecture__n_bins": [8]}, cv=2).fit(X)
    assert search_privacy(search).epsilon == pytest.approx(10.0)
    given.set_params(epsilon=0.1)
    with pytest.raises(ValueError, match="other parameters since"):
        search_privacy(search)


def test_what_is_refused_since_has_cost_what_it_cost():
    # Copies do not keep the seed without which noise="reproducible" is refused.
    seeded = flow(noise="reproducible", random_state=0)
    search = GridSearchCV(seeded, {"epsilon": [0.5, 1.0]}, cv=3).fit(X)
    stated = search_privacy(search).epsilon
    assert search_privacy(pickle.loads(pickle.dumps(search))).epsilon == stated
    search.refit = False
    assert search_privacy(search).epsilon == stated
    search.cv = 2
    with pytest.raises(ValueError, match="other folds since"):
        search_privacy(search)


def test_costs_that_cannot_be_stated():
    with pytest.raises(NotFittedError):
        search_privacy(GridSearchCV(flow(), {"architecture__n_bins": [8]}))
    with pytest.raises(ValueError, match="'delta' of search_privacy"):
        search_privacy(
            GridSearchCV(flow(), {"architecture__n_bins": [8]}, cv=2).fit(X), delta=0
        )
    plain = GridSearchCV(Ridge(), {"alpha": [1.0]}, cv=2).fit(X, X[:, 0])
    with pytest.raises(TypeError, match="fits no synthesizer"):
        search_privacy(plain)
    with pytest.raises(TypeError, match="read its privacy_"):
        search_privacy(PrivateSearch(flow(), {}))


@pytest.mark.parametrize(
    ("pairs", "delta"),
    [
        ([(0.1, 1e-6)] * 60, 1e-4),
        ([(1.0, 1e-5)] * 7, 1e-3),
        ([(0.3, 1e-6), (1.0, 1e-7), (2.0, 1e-6)] * 3, 1e-4),
    ],
)
def test_composition_of_pairs_against_another_accountant(pairs, delta):
    pytest.importorskip("dp_accounting")
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    theirs = None
    for pair in pairs:
        parameters = common.DifferentialPrivacyParameters(*pair)
        one = pld.from_privacy_parameters(
            parameters, value_discretization_interval=1e-4
        )
        theirs = one if theirs is None else theirs.compose(one)
    ours = epsilon_of_pairs(pairs, delta)
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(delta), rel=2e-3)


def test_composition_of_pairs_at_its_ends():
    assert epsilon_of_pairs([], 1e-5) == 0
    assert epsilon_of_pairs([(1.0, 1e-5)], 1e-5) == 1.0
    assert epsilon_of_pairs([(1.0, 1e-5)], 1e-6) == math.inf
    assert epsilon_of_pairs([(math.inf, 1e-5)], 1e-3) == math.inf
    assert epsilon_of_pairs([(0.4, 0.0)] * 2, 1e-12) == pytest.approx(0.8)


def test_candidates_that_are_estimators_stay_as_they_were():
    flow = DPHFlowSynthesizer(8.0, n_steps=2)
    inner = {"synthesizer": [flow], "synthesizer__epsilon": [0.1]}
    model, y = SyntheticClassifier(flow, DecisionTreeClassifier()), X[:, 0] > 0
    search = GridSearchCV(model, [inner, {"synthesizer": [flow]}], cv=2, refit=False)
    search.fit(X, y)
    for _ in range(2):
        assert [epsilon for epsilon, _ in search_privacy(search).fits] == [0.1, 8.0]
    assert flow.epsilon == 8


def test_rows_of_one_person_may_be_in_all_folds():
    flow = DPHFlowSynthesizer(n_steps=2, max_rows_per_unit=5)
    grid = {"architecture__n_bins": [8]}
    search = GridSearchCV(flow, grid, cv=2, refit=False).fit(X)
    with pytest.raises(TypeError, match="a person of several rows"):
        search_privacy(search)
