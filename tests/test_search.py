"""A search that stays within a budget."""

from __future__ import annotations

import ctypes
import functools
import gc
import io
import logging
import math
import os
import random
import sys
import warnings
from collections.abc import MutableMapping, MutableSequence, MutableSet
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy.stats import randint
from sklearn.base import clone
from sklearn.linear_model import HuberRegressor, LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier

from dpgenerative import (
    Column,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    Impossible,
    PrivateSearch,
    Schema,
    SyntheticClassifier,
    SyntheticRegressor,
)
from dpgenerative._random import SecureGenerator
from dpgenerative.encoding.marginals import MARGINALS
from dpgenerative.exceptions import InfeasibleBudgetError
from dpgenerative.fitting.fit import PrivateFit
from dpgenerative.meta import side_effects
from dpgenerative.meta.calibration import Calibration
from dpgenerative.meta.scores import _cells, hits, pairs_deviation, row_scores
from dpgenerative.meta.search import _containers
from dpgenerative.privacy import accounting, noise
from dpgenerative.privacy.budget import Trial
from dpgenerative.privacy.ledger import Ledger
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.selection import TrialDistribution
from dpgenerative.synthesizers import session

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 2))
Y = X[:, 0] > 0


def flow(**params):
    return DPHFlowSynthesizer().set_params(**{"n_steps": 3, "delta": 1e-6, **params})


def table(n=1500):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {"size": rng.normal(size=n), "kind": rng.choice(["x", "y"], n)}
    )
    return frame, pd.Series(frame["size"] + (frame["kind"] == "x") > 0, name="big")


GRID = {"architecture__n_bins": [8, 32], "clipping": ["flat", "per-layer"]}


@pytest.mark.thin(3)
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("kind", ["flow", "vae"])
def test_the_search_stays_within_its_budget_and_uses_it(epsilon, kind):
    frame, _ = table()
    inner = {"flow": DPHFlowSynthesizer, "vae": DPVAESynthesizer}[kind](n_steps=20)
    search = PrivateSearch(inner, GRID, epsilon, mean_trials=2).fit(frame)
    assert 0.95 * epsilon < search.epsilon_ <= epsilon
    assert search.best_params_["architecture__n_bins"] in (8, 32)
    best = search.best_estimator_
    assert best.architecture.n_bins == search.best_params_["architecture__n_bins"]
    assert best.epsilon_ == search.epsilon_ == best.privacy_.epsilon_spent
    assert best.privacy_ is search.privacy_
    assert best.privacy_.curve() == ((epsilon, 1e-5),)
    assert f"({epsilon:g}, 1e-05)-differential" in str(best.privacy_)
    assert "random number of trials" in str(best.privacy_)
    assert search.sample(4).columns.tolist() == ["size", "kind"]
    assert search.feature_names_in_.tolist() == ["size", "kind"]


def test_the_budget_against_an_independent_accountant():
    accounting = pytest.importorskip("dp_accounting")
    rdp = pytest.importorskip("dp_accounting.rdp")
    frame = table()[0][["size"]]
    schema = Schema([Column("size", "continuous", lower=-4, upper=4, resolution=0.1)])
    inner = DPHFlowSynthesizer(n_steps=20, batch_size=64, schema=schema)
    search = PrivateSearch(
        inner, {"architecture__n_bins": [16]}, 1.0, mean_trials=5
    ).fit(frame)
    plan = search.best_estimator_.privacy_.plan
    event = accounting.ComposedDpEvent(
        [
            accounting.GaussianDpEvent(plan.multiplier(MARGINALS)),
            accounting.SelfComposedDpEvent(
                accounting.PoissonSampledDpEvent(
                    plan.sampling_rate,
                    accounting.GaussianDpEvent(plan.noise_multiplier),
                ),
                plan.n_steps,
            ),
        ]
    )
    assert plan.threshold_delta == 0
    best = accounting.dp_event.RepeatAndSelectDpEvent(event, 5.0, 0)
    theirs = rdp.RdpAccountant().compose(best).get_epsilon(1e-5)
    # The score's curve may lie above the fit's, and so the bound a little above theirs.
    assert theirs <= search.epsilon_ - plan.count_epsilon + 1e-3
    assert theirs > 0.9 * search.epsilon_
    assert plan.count_epsilon == pytest.approx(0.015)


def test_nothing_but_the_best_trial_is_left():
    frame, _ = table(400)
    search = PrivateSearch(flow(), GRID, mean_trials=3).fit(frame)
    assert {name for name in vars(search) if name.endswith("_")} == {
        "best_estimator_", "best_params_", "best_score_", "score_std_",
        "trial_epsilon_", "trial_delta_", "epsilon_", "delta_", "n_features_in_",
        "feature_names_in_",
    }  # fmt: skip
    assert not [name for name in vars(search) if name.startswith("_")]


def test_trials_differ_though_the_seed_is_one(monkeypatch):
    frame, _ = table(400)
    seen = []
    original = PrivateSearch._trial

    def watched(self, *arguments):
        found = original(self, *arguments)
        seen.append(found)
        return found

    monkeypatch.setattr(PrivateSearch, "_trial", watched)
    search = PrivateSearch(
        flow(random_state=0), {"architecture__n_bins": [8]}, mean_trials=2
    )
    while len(seen) < 4:
        search.set_params(random_state=0).fit(frame)
    assert len({found.score for found in seen}) == len(seen)
    weights = [
        next(iter(found.estimator._model.parameters())).sum().item() for found in seen
    ]
    assert len(set(weights)) == len(weights)


def test_a_classifier_is_chosen_by_its_accuracy():
    frame, y = table()
    grid = {"classifier__max_depth": [1, 4], "synthesizer__architecture__n_bins": [16]}
    tree = make_tree()
    search = PrivateSearch(
        SyntheticClassifier(DPHFlowSynthesizer(n_steps=30), tree), grid, 8.0,
        mean_trials=3, holdout=0.3,
    ).fit(frame, y)  # fmt: skip
    assert search.classes_.tolist() == [False, True]
    assert search.predict(frame).shape == y.shape
    assert search.predict_proba(frame).shape == (len(y), 2)
    assert search.best_score_ == pytest.approx(
        search.score(frame, y), abs=6 * search.score_std_ + 6 * 0.5 / math.sqrt(450)
    )
    assert search.score_std_ < 0.05


def make_tree():
    class Tree(DecisionTreeClassifier):
        def fit(self, X, y):
            return super().fit(self.encoded(X), y)

        def predict_proba(self, X):
            return super().predict_proba(self.encoded(X))

        def predict(self, X):
            return super().predict(self.encoded(X))

        @staticmethod
        def encoded(X):
            return np.c_[X["size"].fillna(0), X["kind"] == "x"]

    return Tree()


@pytest.mark.thorough
def test_the_better_candidate_wins(monkeypatch):
    """A learner that cannot see loses, unless all 16 trials draw it: 2e-5."""
    monkeypatch.setattr(TrialDistribution, "draw", lambda self, rng: 16)
    frame, y = table()
    search = PrivateSearch(
        SyntheticClassifier(DPHFlowSynthesizer(n_steps=20), make_tree()),
        {"n_samples": [2, 2000]}, 20.0, holdout=0.4,
    ).fit(frame, y)  # fmt: skip
    assert search.best_params_["n_samples"] == 2000
    assert search.score(frame, y) > 0.7


def test_candidates_that_are_estimators_stay_as_they_were_given():
    given = [flow(epsilon=5.0, verbose=1), DPVAESynthesizer(5.0, n_steps=3, verbose=1)]
    search = PrivateSearch(SyntheticClassifier(), {"synthesizer": given})
    search.set_params(mean_trials=1.2).fit(X, Y)
    assert search.best_params_["synthesizer"] in given
    for synthesizer in given:
        assert (synthesizer.epsilon, synthesizer.verbose) == (5.0, 1)
        assert not hasattr(synthesizer, "privacy_")


def test_own_scores():
    frame, _ = table(600)
    target = frame["size"]

    def closeness(estimator, X, y):
        return 1 - np.abs(estimator.predict(X) - y) / 4

    search = PrivateSearch(
        SyntheticRegressor(flow()), {"n_samples": [500]}, 4.0, mean_trials=1.5,
        scoring=closeness,
    ).fit(frame, target)  # fmt: skip
    assert 0 < search.best_score_ < 1.2
    with pytest.raises(ValueError, match="'scoring' of PrivateSearch"):
        PrivateSearch(SyntheticRegressor(), {}).fit(frame, target)


def test_distributions_draw_the_number_of_candidates_asked_for():
    search = PrivateSearch(
        flow(), {"architecture__n_bins": randint(4, 64)}, n_candidates=7, random_state=0
    )
    first = search._candidates()
    assert len(first) == 7
    assert first == search._candidates()
    search.set_params(random_state=np.random.default_rng(0))
    assert len(search._candidates()) == 7
    assert len(PrivateSearch(flow(), GRID)._candidates()) == 4
    assert (
        len(PrivateSearch(flow(), [GRID, {"architecture__n_bins": [9]}])._candidates())
        == 5
    )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"estimator": Ridge()}, "'estimator' of PrivateSearch"),
        (
            {
                "estimator": SyntheticClassifier(Ridge()),
                "param_distributions": {"n_samples": [9]},
            },
            "'synthesizer' of Synthetic",
        ),
        ({"epsilon": None}, "'epsilon' of PrivateSearch"),
        ({"epsilon": 101.0}, "'epsilon' of PrivateSearch"),
        ({"delta": 0.0}, "'delta' of PrivateSearch"),
        ({"mean_trials": 1}, "'mean_trials' of PrivateSearch"),
        ({"holdout": 1.0}, "'holdout' of PrivateSearch"),
        ({"n_candidates": 0}, "'n_candidates' of PrivateSearch"),
        ({"scoring": "accuracy"}, "'scoring' of PrivateSearch"),
        ({"param_distributions": ["n_bins"]}, "must be a dict of lists"),
        ({"param_distributions": []}, "must be a dict of lists"),
        ({"param_distributions": "n_bins"}, "must be a dict of lists"),
        ({"param_distributions": {"epsilon": [1]}}, r"cannot have \['epsilon'\]"),
        (
            {"param_distributions": {"synthesizer__delta": [1]}},
            r"cannot have \['synthesizer__delta'\]",
        ),
        (
            {"param_distributions": {"noise": ["reproducible"]}},
            "cannot have",
        ),
        (
            {"param_distributions": {"architecture__n_bins": [1]}},
            "'architecture__n_bins' of DPHFlowSynthesizer",
        ),
        ({"param_distributions": {"nonsense": [1]}}, "nonsense"),
        ({"estimator": flow(noise="reproducible", random_state=0)}, "independent"),
    ],
)
def test_refusals(changes, problem):
    search = PrivateSearch(flow(), {"architecture__n_bins": [8]}).set_params(**changes)
    with pytest.raises(ValueError, match=problem):
        search.fit(X)


def test_a_budget_too_small_for_any_noise():
    search = PrivateSearch(flow(), {"architecture__n_bins": [8]}, 1e-6, 1e-9)
    with pytest.raises(InfeasibleBudgetError, match="mean_trials=8"):
        search.fit(X)


def test_a_learner_that_always_fails_says_so_without_a_number():
    class Broken(LogisticRegression):
        def fit(self, X, y):
            raise RuntimeError(f"{len(y)} rows")

    search = PrivateSearch(
        SyntheticClassifier(flow(), Broken()), {"n_samples": [50]}, mean_trials=1.5
    )
    with pytest.raises(RuntimeError, match="learner failed on synthetic rows") as error:
        search.fit(X, Y)
    assert "rows" not in str(error.value.__cause__)


def test_rows_that_cannot_be_drawn_fail_their_trial():
    never = Impossible({"a": (0.0, 1.0 - 1e-15)})  # but for the last float or so
    column = Column("a", "continuous", lower=0, upper=1, nullable=False)
    schema = Schema([column], constraints=[never])
    frame = pd.DataFrame({"a": np.linspace(0, 1, 200)})
    search = PrivateSearch(
        flow(schema=schema), {"architecture__n_bins": [4, 8]}, mean_trials=1.5
    )
    with pytest.raises(RuntimeError, match="no rows satisfied the constraints"):
        search.fit(frame)


@pytest.mark.thin(3)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_very_small_tables_and_empty_parts(n):
    frame, y = table(n)
    for holdout in (0.01, 0.99):
        PrivateSearch(flow(), GRID, mean_trials=1.1, holdout=holdout).fit(frame)
        PrivateSearch(
            SyntheticClassifier(flow(), n_samples=20), {"n_samples": [20]},
            mean_trials=1.1, holdout=holdout,
        ).fit(frame, y)  # fmt: skip


@pytest.mark.parametrize("estimator", [DPHFlowSynthesizer, DPVAESynthesizer])
@pytest.mark.parametrize(
    "params",
    [
        {}, {"divergence": "mmd"}, {"max_grad_norm": "median"},
        {"clipping": "per-unit"},
        {"clipping": "sparsified"},
    ],
)  # fmt: skip
def test_a_fit_to_no_rows_works_inside_a_trial_only(estimator, params):
    frame = table(5)[0].iloc[:0].assign(n=np.zeros(0, int), m=pd.array([], "Int64"))
    empty = estimator(n_steps=3).set_params(**params)
    ledger = Ledger()
    session.run(empty, frame, trial=Trial(200, ledger))
    assert empty.privacy_.plan.n_rows == 200
    assert ledger.n_fits == 1
    assert len(empty.sample(5)) == 5
    with pytest.raises(ValueError, match="0 sample"):
        empty.fit(frame)


# Scores: one row moves them by 1/2 --------------------------------------------------


def fitted():
    frame, y = table(300)
    return frame, y, DPHFlowSynthesizer(epsilon=None, n_steps=5, random_state=0)


def test_strange_rows_and_no_rows_have_a_distance():
    frame, y, synthesizer = fitted()
    synthesizer.fit(frame, y)
    strange = pd.DataFrame({"size": [np.inf, np.nan], "kind": ["never", None]})
    assert math.isfinite(pairs_deviation(synthesizer, strange, y[:2], 60.0))
    nothing = pairs_deviation(synthesizer, frame[:0], y[:0], 60.0)
    assert nothing == pytest.approx(0.0)


@pytest.mark.thorough
def test_a_better_copy_has_a_smaller_distance():
    frame, y, _ = fitted()
    good = DPHFlowSynthesizer(epsilon=None, n_steps=300).fit(frame, y)
    noisy = DPHFlowSynthesizer(epsilon=0.01, n_steps=5).fit(frame, y)
    scores = [pairs_deviation(s, frame, y, 300.0) for s in (good, noisy)]
    assert scores[0] > scores[1] + 10


PLACES = np.arange(40) % 20
DAYS = pd.Series(pd.date_range("2020-01-01", periods=20))[PLACES]


@pytest.mark.parametrize(
    "values",
    [
        DAYS,
        DAYS.dt.tz_localize("Europe/Oslo"),
        DAYS.astype("timestamp[us][pyarrow]"),
        DAYS.astype("date32[pyarrow]"),
        DAYS.dt.date,
        DAYS - DAYS.iloc[0],
        (DAYS - DAYS.iloc[0]).astype("duration[us][pyarrow]"),
        pd.Series(
            map(Decimal, PLACES.tolist()), dtype=pd.ArrowDtype(pa.decimal128(5, 2))
        ),
        pd.Series(PLACES, dtype="Int64"),
    ],
    ids=lambda values: str(values.dtype),
)
def test_values_on_a_line_have_cells_of_their_own(values):
    known = values.reset_index(drop=True)
    present = np.arange(40) < 30
    column = Column("a", "continuous")
    found, real = _cells(column, known, known.where(present), False)
    np.testing.assert_array_equal(found, 1 + PLACES // 2)
    np.testing.assert_array_equal(real, np.where(present, found, 0))


def test_what_a_candidate_lost_is_no_match():
    kinds = pd.Series(list("abcdefgh") * 40)
    frame = pd.DataFrame({"kind": kinds, "same": ["x"] * 320})
    columns = [Column(n, "categorical", levels=sorted(set(frame[n]))) for n in frame]
    losing, stated = (
        flow(epsilon=0.001, schema=Schema(known)).fit(frame)
        for known in (columns[1:], columns)
    )
    assert losing.schema_["kind"].levels == ("other",)
    scores = [pairs_deviation(s, frame, None, 320.0) for s in (losing, stated)]
    assert scores[0] == pytest.approx(-160.0)
    assert scores[1] > scores[0]


def test_a_schema_may_merge_levels():
    column = Column("kind", "categorical", levels=["a", "rest"], other="rest")
    drawn, real = pd.Series(["a", "rest"]), pd.Series(["a", "b", None])
    for stated, cells in ((True, [0, 1, 2]), (False, [0, 3, 2])):
        assert _cells(column, drawn, real, stated)[1].tolist() == cells


def test_a_constant_column_is_no_match_of_numbers():
    drawn, real = pd.Series(np.zeros(9)), pd.Series([-1.0, 0.0, 1e-300])
    found, cells = _cells(Column("a", "continuous"), drawn, real, False)
    assert found.tolist() == [2] * 9
    assert cells.tolist() == [1, 2, 3]


def test_identifiers_have_no_cells():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": np.arange(200), "a": rng.normal(size=200)})
    schema = Schema([Column("id", "integer", role="id")])
    fitted = flow(epsilon=None, schema=schema).fit(frame)
    moved = frame.assign(id=frame["id"] + 1000)
    drawn = fitted.sample(200)
    fitted.sample = lambda n: drawn
    distances = [pairs_deviation(fitted, rows, None, 200.0) for rows in (frame, moved)]
    assert distances[0] == distances[1]


def test_rows_that_raise_count_for_themselves_only():
    def scoring(estimator, X, y):
        values = np.asarray(X)[:, 0]
        if (values == 13).any():
            raise ValueError("13")
        return values

    rows = np.array([[0.25], [13.0], [2.0], [-1.0], [np.nan]])
    found = row_scores(scoring, None, rows, None)
    assert found.tolist() == [0.25, 0.0, 1.0, 0.0, 0.0]
    others = rows[[0, 2, 3, 4]]
    assert row_scores(scoring, None, others, None).tolist() == [0.25, 1.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="one number per row"):
        row_scores(lambda *_: np.ones(2), None, rows, None)


def test_warnings_of_trials_stay_inside():
    frame, y = table(300)

    class Loud(DecisionTreeClassifier):
        def fit(self, X, y):
            warnings.warn(f"{len(y)} rows", UserWarning, stacklevel=2)
            return super().fit(np.zeros((len(y), 1)), y)

        def predict(self, X):
            warnings.warn(f"{len(X)} rows", UserWarning, stacklevel=2)
            return super().predict(np.zeros((len(X), 1)))

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        PrivateSearch(
            SyntheticClassifier(flow(), Loud()), {"n_samples": [50]}, mean_trials=1.5
        ).fit(frame, y)
    assert not seen


class Zero:
    def predict(self, X):
        return np.zeros(len(X), dtype=int).astype(object)


def test_one_label_of_a_list_does_not_change_how_the_others_are_read():
    classifier = SyntheticClassifier()
    found = []
    for labels in ([0] * 50, [0] * 50 + ["a"]):
        rows, y = _containers(classifier, [[0.0]] * len(labels), labels)
        found.append(row_scores(hits, Zero(), rows, y).sum())
    assert found == [50, 50]


@pytest.mark.parametrize("kind", ["arrow", "categorical", "index"])
def test_parts_of_rows_keep_the_dtypes_that_were_planned_for(kind):
    """Planned without unknown levels, so no trial may have any to release."""
    x = pd.DataFrame({"a": pd.Categorical(["u", "v"] * 200)})
    y = pd.Categorical([1, 2] * 200)
    if kind == "arrow":
        x = pytest.importorskip("pyarrow").table({"a": [0.0, 1.0] * 200})
        y = None
    if kind == "index":
        y = pd.CategoricalIndex(y)
    column = Column("a", "continuous", lower=0, upper=1, nullable=False)
    schema = Schema([column] * (kind == "arrow"))
    search = PrivateSearch(
        flow(schema=schema), {"architecture__n_bins": [8]}, 4.0, mean_trials=1.1
    ).fit(x, y)  # fmt: skip
    whole = flow(schema=schema).fit(x, y)
    plan = search.best_estimator_.privacy_.plan
    assert bool(plan.threshold_delta) == bool(whole.privacy_.plan.threshold_delta)
    assert search.best_estimator_.schema_ == whole.schema_


def test_a_trial_that_was_not_planned_is_an_error(monkeypatch):
    release = PrivateFit.release

    def other(self, rows, n_rows=None):
        found = release(self, rows, n_rows)
        longer = replace(found.plan, n_steps=found.plan.n_steps + 1)
        return found if n_rows is None else replace(found, plan=longer)

    monkeypatch.setattr(PrivateFit, "release", other)
    with pytest.raises(RuntimeError, match="not what was planned"):
        PrivateSearch(flow(), {"architecture__n_bins": [8]}, mean_trials=1.1).fit(X)


@pytest.mark.parametrize("secure", [True, False])
def test_a_search_asks_the_operating_system_alone(secure, monkeypatch):
    def no_other(*args):
        raise AssertionError("a statistical generator was opened by the search")

    planned, default_rng = session.planned_fit, np.random.default_rng

    def planned_unwatched(*args):
        # A plan opens the generators of a fit, and draws nothing.
        with monkeypatch.context() as patch:
            patch.setattr(np.random, "default_rng", default_rng)
            return planned(*args)

    search = PrivateSearch(
        flow(noise="secure" if secure else "fresh"),
        {"architecture__n_bins": [8]},
        4.0,
        mean_trials=2,
    )
    monkeypatch.setattr(session, "planned_fit", planned_unwatched)
    monkeypatch.setattr("dpgenerative.meta.search.np.random.default_rng", no_other)
    monkeypatch.setattr(PrivateSearch, "_trial", drawn_alone)
    with pytest.raises(InterruptedError):
        search.fit(X)


def drawn_alone(self, candidates, budget, private, rng, mechanisms, *_):
    assert isinstance(rng, SecureGenerator)
    TrialDistribution(2.0).draw(rng)
    raise InterruptedError  # of nobody else


def test_public_rows_of_polars():
    frame = pl.DataFrame(X, schema=["a", "b"])
    search = PrivateSearch(flow(), {"architecture__n_bins": [8]}, mean_trials=2)
    search.fit(frame, public=frame[:50])
    assert "50 rows given as public" in str(search.privacy_)
    rest = frame.drop("b")
    search.fit(rest, frame["b"], public=(rest[:50], frame["b"][:50]))
    assert "50 rows given as public" in str(search.privacy_)


@pytest.mark.parametrize("estimator", [flow(), SyntheticClassifier(flow())])
def test_public_rows_train_every_trial_and_state_the_domain(estimator):
    frame = pd.DataFrame(X, columns=["a", "b"])
    target = pd.Series(Y, name="c")
    public = (frame[:50] * 2, target[:50])
    search = PrivateSearch(estimator, {"architecture__n_bins": [8]}, mean_trials=2)
    if not isinstance(estimator, DPHFlowSynthesizer):
        search.set_params(
            param_distributions={"synthesizer__architecture__n_bins": [8]}
        )
    search.fit(frame, target, public=public)
    assert "50 rows given as public" in str(search.privacy_)
    best = search.best_estimator_
    schema = getattr(best, "synthesizer_", best).schema_
    assert schema["a"].upper == public[0]["a"].max()
    with pytest.raises(ValueError, match="public must"):
        search.fit(frame, target, public=public[0])


class Loud(LogisticRegression):
    """Tells whoever listens that it is fitted, in every way there is."""

    def fit(self, X, y):
        sys.stdout.write("trial")
        sys.stderr.write("trial")
        os.write(1, b"trial")
        os.write(2, b"trial")
        ctypes.CDLL(None).printf(b"trial")  # stays in the C library's buffer
        logging.getLogger("learner").error("trial")
        warnings.warn("trial", UserWarning, stacklevel=2)
        draws = np.random.randint(2**31), random.getrandbits(31)  # noqa: NPY002
        self.draws_ = [*draws, int(torch.randint(2**31, ()))]
        return super().fit(X, y)


def states():
    """Return the states of the generators that all of a process shares."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return kind, keys.tolist(), rest, random.getstate(), torch.get_rng_state().tolist()


def loud_search(n_trials):
    """Return the best learner of so many trials."""
    model = SyntheticClassifier(DPHFlowSynthesizer(n_steps=3), Loud())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrialDistribution, "draw", lambda *_: n_trials)
        search = PrivateSearch(model, {"n_samples": [50]}, epsilon=5.0).fit(X, Y)
    return search.best_estimator_.learner_


def test_generators_do_not_tell_which_trial_won_nor_how_many_there_were():
    """Learners keep the seeds that they drew, and are released."""
    before, kept = states(), []
    for n_trials in (1, 3):
        np.random.set_state((*before[:2], *before[2]))  # noqa: NPY002
        random.setstate(before[3])
        torch.set_rng_state(torch.tensor(before[4], dtype=torch.uint8))
        kept.append(loud_search(n_trials).draws_)
        assert states() == before
    # Each trial has numbers that nobody else knows.
    assert not set(kept[0]) & set(kept[1])


@pytest.mark.skipif(sys.platform != "linux", reason="asks the C library by its name")
@pytest.mark.parametrize("n_trials", [1, 3])
def test_learners_do_not_tell_how_many_trials_there_were(n_trials, capfd, caplog):
    loud_search(n_trials)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records
    logging.getLogger("learner").error("heard again")
    assert len(caplog.records) == 1
    os.write(1, b"seen again")
    assert capfd.readouterr().out == "seen again"


@pytest.mark.skipif(sys.platform == "win32", reason="asks for descriptors")
def test_a_service_without_outputs_searches_too(monkeypatch):
    def closed(_):
        raise OSError("Bad file descriptor")

    monkeypatch.setattr(side_effects.os, "dup", closed)
    monkeypatch.setattr(sys, "__stdout__", None)
    PrivateSearch(flow(), {"n_steps": [3]}, epsilon=5.0).fit(X)


CONTAINERS = MutableMapping, MutableSequence, MutableSet


def package_state():
    """Return the counts of caches, and sizes of containers, of modules and classes."""
    gc.collect()  # weak containers
    state = {}
    modules = [m for name, m in sys.modules.items() if name.startswith("dpgenerative")]
    classes = [x for m in modules for x in vars(m).values() if isinstance(x, type)]
    for space in (*modules, *classes):
        for name, value in vars(space).items():
            value = getattr(value, "__func__", value)
            if isinstance(value, functools._lru_cache_wrapper):
                state[space.__name__, name] = value.cache_info()
            elif isinstance(value, CONTAINERS) and not name.startswith("__"):
                state[space.__name__, name] = len(value)
            elif isinstance(value, (int, float)):
                state[space.__name__, name] = value
    return state


INNER = flow(batch_size=16)
MODELS = {
    "flow": (INNER, {"architecture__n_bins": [8]}, None),
    "classifier": (SyntheticClassifier(INNER), {"n_samples": [50]}, Y),
}


@pytest.fixture
def first_budget(monkeypatch):
    """Let trials have the first budget that is within the search's."""
    monkeypatch.setattr(Calibration, "largest", lambda self: self.budget(1.0))


class Terminal(io.StringIO):
    """Looks like a terminal, and shows what it is left with."""

    def isatty(self):
        return True

    def left(self):
        return self.getvalue().rpartition("\r")[2].strip()


@pytest.mark.parametrize("fails", [False, True])
def test_trials_are_counted_in_a_terminal_that_forgets_them(
    fails, monkeypatch, first_budget
):
    def scores(estimator, X, y):
        shown.append(screen.getvalue())
        if fails and len(shown) == 3:
            raise KeyboardInterrupt
        return np.ones(len(X))

    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    monkeypatch.setattr(TrialDistribution, "draw", lambda *_: 3)
    shown = []
    search = PrivateSearch(flow(), {"n_steps": [3]}, scoring=scores, verbose=1)
    with pytest.raises(KeyboardInterrupt) if fails else nullcontext():
        search.fit(X)
    assert len(shown) == 3
    assert "trials (8 expected): 0 trials" in shown[0]
    assert "2 trials [" in shown[2]
    assert "/3" not in screen.getvalue()  # a total would be the secret itself
    assert screen.left() == ""


@pytest.mark.parametrize("verbose", [0, 1])
def test_files_get_no_count_of_trials_nor_terminals_that_want_none(
    verbose, capfd, monkeypatch, first_budget
):
    search = PrivateSearch(flow(), {"n_steps": [3]}, mean_trials=2, verbose=verbose)
    if not verbose:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    search.fit(X)
    assert capfd.readouterr() == ("", "")


def test_the_state_of_the_package_has_what_it_should():
    accounting._prv_epsilon.cache_clear()
    before = package_state()
    flow(batch_size=16).fit(X)
    where = "dpgenerative.privacy.accounting", "_prv_epsilon"
    assert before[where].misses == 0 < package_state()[where].misses
    assert ("dpgenerative.privacy.gradients.core", "PLACES") in before


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", MODELS)
def test_caches_do_not_tell_how_many_trials_there_were(name, monkeypatch, first_budget):
    estimator, grid, y = MODELS[name]
    states = []
    for n_trials in (1, 3):
        monkeypatch.setattr(TrialDistribution, "draw", lambda *_, n=n_trials: n)
        search = PrivateSearch(estimator, grid, epsilon=5.0).fit(X, y)
        assert search.best_estimator_.privacy_.plan.sampling_rate < 1  # else no cache
        states.append(package_state())
    assert states[0] == states[1]


@pytest.mark.thorough
def test_nor_how_many_there_were_before_an_interruption(monkeypatch, first_budget):
    states, original = [], PrivateSearch._trial
    for n_trials in (1, 3):
        left = iter(range(n_trials))

        def trial(self, *arguments, left=left):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return original(self, *arguments)

        monkeypatch.setattr(TrialDistribution, "draw", lambda *_: 9)
        monkeypatch.setattr(PrivateSearch, "_trial", trial)
        with pytest.raises(KeyboardInterrupt):
            PrivateSearch(INNER, MODELS["flow"][1], epsilon=5.0).fit(X)
        states.append(package_state())
    assert states[0] == states[1]


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", MODELS)
def test_caches_do_not_tell_how_many_rows_there_were(name, monkeypatch):
    original = Mechanisms.count
    monkeypatch.setattr(noise, "discrete_laplace", lambda *_: 0)
    one = range(200)
    monkeypatch.setattr(Mechanisms, "count", lambda self, _, e: original(self, one, e))
    estimator, _, y = MODELS[name]
    states = []
    for n_rows in (60, 240):
        with side_effects.clearing_caches():
            pass
        fitted = clone(estimator).fit(X[:n_rows], None if y is None else y[:n_rows])
        assert fitted.privacy_.plan.n_rows == 200
        states.append(package_state())
    assert states[0] == states[1]


def test_an_epsilon_of_the_learner_can_be_searched():
    model = SyntheticRegressor(flow(), HuberRegressor())
    grid = {"regressor__epsilon": [1.2, 1.5]}

    def half(fitted, rows, y):
        return np.full(len(rows), 0.5)

    search = PrivateSearch(model, grid, scoring=half).fit(X, np.asarray(X)[:, 0])
    assert search.best_params_["regressor__epsilon"] in (1.2, 1.5)
