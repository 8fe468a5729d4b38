"""scikit-learn's own checks of every estimator.

None is excepted, but for three of randomizers, whose reasons stand beside them.

The oldest scikit-learn that pyproject names is tried by

    pip install "scikit-learn==1.6.*"
    python -m pytest tests/test_contract.py -m "" \\
        -W ignore::pytest.PytestRemovedIn10Warning
"""

from __future__ import annotations

import pickle
import tomllib
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpgenerative import (
    BatchTerm,
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    FlowArchitecture,
    ImagePixelizer,
    LaplaceRandomizer,
    Optimizer,
    PrivateSearch,
    SyntheticClassifier,
    SyntheticRegressor,
    TableSynthesizer,
)
from dpgenerative.synthesizers.flow import FlowRecipe

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

# The checks of predictors take the labels of ten rows for known, and want an error for
# a target that is not finite: no private fit may do either.
OPEN = DPHFlowSynthesizer(
    epsilon=None,
    optimizer=Optimizer(learning_rate=0.1),
    random_state=0,
    noise="reproducible",
)
QUICK = clone(OPEN).set_params(n_steps=40, architecture__n_bins=16)
SYNTHESIZERS = [
    DPHFlowSynthesizer(),
    DPVAESynthesizer(),
    TableSynthesizer(FlowRecipe(FlowArchitecture(), BatchTerm())),
]
# By its tags it takes no tables, with which scikit-learn's checks come, and it runs
# none for such an estimator: here are those that bring no data.
ARRAYS, PIXELS = DPArrayVAESynthesizer(), ImagePixelizer()
WITHOUT_DATA = [
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_valid_tag_types,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
    estimator_checks.check_mixin_order,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_set_params,
]
PREDICTORS = [
    SyntheticClassifier(QUICK, DecisionTreeClassifier(random_state=0), n_samples=300),
    SyntheticRegressor(QUICK, DecisionTreeRegressor(random_state=0), n_samples=300),
]
SEARCH = PrivateSearch(
    DPHFlowSynthesizer(n_steps=5), {"architecture__n_bins": [8, 16]}, mean_trials=1.1
)


@pytest.mark.thin(8)
@parametrize_with_checks([*SYNTHESIZERS, *PREDICTORS, SEARCH])
def test_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("check", WITHOUT_DATA, ids=lambda check: check.__name__)
@pytest.mark.parametrize("estimator", [ARRAYS, PIXELS], ids=lambda e: type(e).__name__)
def test_contract_of_arrays(estimator, check):
    check(type(estimator).__name__, clone(estimator))


NEVER_TWICE = "the noise of a record is drawn anew in every transform"


@pytest.mark.thin(3)
@parametrize_with_checks(
    [LaplaceRandomizer(bounds=(-10, 10))],
    expected_failed_checks=lambda estimator: {
        "check_fit_idempotent": NEVER_TWICE,
        "check_estimators_pickle": NEVER_TWICE,
        "check_dtype_object": "objects have no levels that are public",
    },
)
def test_contract_of_randomizers(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([SyntheticClassifier(OPEN), SyntheticRegressor(OPEN)])
def test_contract_with_default_learners(estimator, check):
    check(estimator)


ALL = [*SYNTHESIZERS, ARRAYS, *PREDICTORS, SEARCH]
every = pytest.mark.parametrize("estimator", ALL, ids=lambda e: type(e).__name__)


def table(n=120):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.choice(["x", "y"], n)})
    return X, (rng.integers(0, 2, n) if n else None)


IMAGES = np.random.default_rng(0).random((120, 3, 4))


def fitted(estimator):
    if isinstance(estimator, DPArrayVAESynthesizer):
        return clone(estimator).set_params(n_steps=5).fit(IMAGES)
    return clone(estimator).fit(*table())


@every
def test_clone_and_parameters(estimator):
    copy = clone(estimator)
    assert copy is not estimator
    assert copy.get_params().keys() == estimator.get_params().keys()
    name = next(name for name in copy.get_params() if name.endswith("n_steps"))
    assert copy.set_params(**{name: 7}).get_params()[name] == 7
    assert estimator.get_params()[name] != 7


@every
def test_text_and_html(estimator):
    assert type(estimator).__name__ in repr(estimator)
    assert type(estimator).__name__ in estimator._repr_html_()


@pytest.mark.thin(3)
@every
def test_pickles_and_joblib_files_draw_the_same_rows(estimator, tmp_path):
    X, _ = table()
    if isinstance(estimator, SyntheticClassifier):
        estimator = clone(estimator).set_params(classifier=None)
    if isinstance(estimator, SyntheticRegressor):
        estimator = clone(estimator).set_params(regressor=None)
    fit = fitted(estimator)
    joblib.dump(fit, tmp_path / "fit")
    for copy in (pickle.loads(pickle.dumps(fit)), joblib.load(tmp_path / "fit")):
        assert copy.n_features_in_ == fit.n_features_in_
        if isinstance(estimator, DPArrayVAESynthesizer):
            samples = (each.sample(9, random_state=1) for each in (copy, fit))
            np.testing.assert_array_equal(*samples)
            continue
        assert copy.n_features_in_ == 2
        assert copy.feature_names_in_.tolist() == ["a", "b"]
        if hasattr(fit, "predict"):
            assert (copy.predict(X) == fit.predict(X)).all()
        else:
            pd.testing.assert_frame_equal(
                copy.sample(9, random_state=1)[0], fit.sample(9, random_state=1)[0]
            )


@every
def test_kinds_and_tags(estimator):
    tags = get_tags(estimator)
    assert tags.non_deterministic
    assert tags.input_tags.allow_nan
    takes_tables = not isinstance(estimator, DPArrayVAESynthesizer)
    assert tags.input_tags.string == takes_tables
    assert tags.input_tags.two_d_array == takes_tables
    assert tags.input_tags.three_d_array != takes_tables
    assert is_classifier(estimator) == isinstance(estimator, SyntheticClassifier)
    assert is_regressor(estimator) == isinstance(estimator, SyntheticRegressor)


def test_arrays_are_fitted_as_scikit_learn_asks():
    """Its checks bring tables alone; this is what they say of arrays."""
    synthesizer = DPArrayVAESynthesizer(n_steps=5, random_state=0, noise="reproducible")
    for call in ("sample", "score", "score_samples", "encode", "reconstruct"):
        with pytest.raises(NotFittedError):
            getattr(synthesizer, call)(*([] if call == "sample" else [IMAGES]))
    before, given = synthesizer.get_params(), IMAGES.copy()
    assert synthesizer.fit(IMAGES, None) is synthesizer
    assert synthesizer.get_params() == before
    assert np.array_equal(IMAGES, given)
    assert synthesizer.n_features_in_ == 12
    public = {name for name in vars(synthesizer) if not name.startswith("_")}
    given_names = {n for n in public if not n.endswith("_")}
    assert given_names == set(synthesizer.get_params(deep=False))
    state = synthesizer.__getstate__()
    first = synthesizer.score_samples(IMAGES)
    assert synthesizer.__getstate__().keys() == state.keys()
    assert first.shape == (120,)
    assert synthesizer.score(IMAGES) == pytest.approx(first.mean())
    assert np.array_equal(synthesizer.fit(IMAGES).score_samples(IMAGES), first)
    frozen = IMAGES.copy()
    frozen.flags.writeable = False
    assert np.array_equal(clone(synthesizer).fit(frozen).score_samples(frozen), first)
    with pytest.raises(ValueError, match="takes images of shape"):
        synthesizer.score_samples(IMAGES[:, :2])
    search = GridSearchCV(
        DPArrayVAESynthesizer(n_steps=1),
        {"architecture__networks": ["mlp", "conv"]},
        cv=2,
        error_score="raise",
    ).fit(IMAGES)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_weights_are_refused_with_the_reason_and_by_routing():
    X, _ = table()
    weights = np.ones(len(X))
    flow = DPHFlowSynthesizer(n_steps=5)
    with pytest.raises(ValueError, match="how far one row can move the model"):
        flow.fit(X, sample_weight=weights)
    with pytest.raises(ValueError, match=r"rows with replacement.*max_rows_per_unit"):
        flow.fit(X, sample_weight=weights)
    with pytest.raises(TypeError, match="unknown arguments: \\['weights'\\]"):
        flow.fit(X, weights=weights)
    flow.fit(X, sample_weight=None)
    assert "sample_weight" not in str(flow.get_metadata_routing())
    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(flow, {"n_steps": [5]}, cv=2)
        with pytest.raises(TypeError, match="sample_weight"):
            search.fit(X, sample_weight=weights)
        search.fit(X)


def test_the_oldest_scikit_learn_named_here_is_pyproject_s():
    with open(Path(__file__).parents[1] / "pyproject.toml", "rb") as file:
        needed = tomllib.load(file)["project"]["dependencies"]
    oldest = next(d for d in needed if d.startswith("scikit-learn"))
    assert oldest.removeprefix("scikit-learn>=") in __doc__
