"""Samples of pipelines, in the columns that went in."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
)

from dpgenerative import Column, DPHFlowSynthesizer, Schema, sample_from
from dpgenerative.exceptions import LostColumnWarning, PrivacyWarning
from dpgenerative.meta.pipeline import learns

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")


def exact():
    """Blur nothing of what the steps before it do."""
    return DPHFlowSynthesizer(epsilon=None, n_steps=30, random_state=0)


def log():
    return FunctionTransformer(
        np.log1p,
        inverse_func=np.expm1,
        check_inverse=False,
        feature_names_out="one-to-one",
    )


def table(n=600):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "income": np.exp(rng.normal(10, 1, n)),
            "age": rng.integers(20, 60, n).astype(float),
            "town": rng.choice(["Oslo", "Rome"], n),
            "height": rng.normal(170, 10, n),
        }
    )


def similar(sample, frame):
    """Medians apart by less than a tenth: what was not undone is far off."""
    for name in frame.columns:
        if frame[name].dtype == float:
            median = sample[name].astype(float).median()
            assert median == pytest.approx(frame[name].median(), rel=0.1)
        else:
            assert set(sample[name].dropna()) == set(frame[name])


def test_functions_are_undone_without_a_warning():
    frame = table()[["income", "age"]]
    pipeline = make_pipeline(log(), "passthrough", exact()).fit(frame)
    sample = sample_from(pipeline, 2000, random_state=0)
    assert sample.columns.tolist() == ["income", "age"]
    similar(sample, frame)
    pd.testing.assert_frame_equal(sample, sample_from(pipeline, 2000, random_state=0))


@pytest.mark.parametrize("dtype", [float, np.float32])
def test_arrays_stay_arrays(dtype):
    X = table()[["income", "age"]].to_numpy(dtype)
    pipeline = make_pipeline(log(), exact()).fit(X)
    sample = sample_from(pipeline, 500)
    assert isinstance(sample, np.ndarray)
    assert np.nanmedian(sample[:, 0]) == pytest.approx(np.median(X[:, 0]), rel=0.2)


class Found(DPHFlowSynthesizer):
    """Stands for a fit that found the upper bounds `upper` privately."""

    def fit(self, X, y=None):
        super().fit(X, y)
        wide = [replace(c, lower=-16, upper=16) for c in self.schema_.columns]
        self.schema_ = Schema(wide)
        return self


@pytest.mark.parametrize("kind", [pd.DataFrame, np.asarray])
def test_bounds_that_explode_when_undone_are_named(kind):
    frame = np.log1p(table()[["income", "age"]])
    params = {"epsilon": None, "n_steps": 2, "random_state": 0}
    pipeline = make_pipeline(log(), Found(**params)).fit(kind(frame))
    names = ["income", "age"] if kind is pd.DataFrame else [0, 1]
    with pytest.warns(LostColumnWarning, match=re.escape(f"Bounds of {names} were")):
        sample_from(pipeline, 500)
    bounds = [Column(n, "continuous", lower=0, upper=16) for n in frame.columns]
    linear = FunctionTransformer(np.negative, np.negative, check_inverse=False)
    sample_from(make_pipeline(linear, Found(**params)).fit(frame), 500)  # no warning
    if kind is pd.DataFrame:
        stated = Found(schema=Schema(bounds), **params)
        sample_from(make_pipeline(log(), stated).fit(frame), 500)


def test_a_frozen_step_learned_elsewhere():
    frame = table()[["income", "age"]]
    scaler = FrozenEstimator(StandardScaler().fit(frame * 2))
    pipeline = make_pipeline(scaler, exact()).fit(frame)
    similar(sample_from(pipeline, 2000), frame)


def test_a_target_comes_along():
    frame = table()[["income", "age"]]
    pipeline = make_pipeline(log(), exact()).fit(frame, frame["age"] > 40)
    rows, target = sample_from(pipeline, 50)
    assert rows.shape == (50, 2)
    assert target.dtype == bool


def test_steps_that_learned_are_undone_and_named():
    frame = table()[["income", "age", "height"]]
    steps = [
        ("log", log()),
        ("scale", StandardScaler()),
        ("turn", PCA()),
        ("s", exact()),
    ]
    pipeline = Pipeline(steps).fit(frame)
    with pytest.warns(PrivacyWarning, match=r"\['scale', 'turn'\]"):
        sample = sample_from(pipeline, 2000)
    similar(sample, frame)


@pytest.mark.parametrize("output", ["default", "pandas"])
def test_columns_are_put_back_where_they_were(output):
    frame = table()
    columns = ColumnTransformer(
        [
            ("town", OrdinalEncoder(), ["town"]),
            ("scaled", make_pipeline(log(), MinMaxScaler()), ["height", "income"]),
        ],
        remainder="passthrough",
    ).set_output(transform=output)
    pipeline = Pipeline([("columns", columns), ("s", exact())])
    pipeline.set_params(s__categorical_features=[0] if output == "default" else None)
    if output == "pandas":
        pipeline.set_params(s__categorical_features=["town__town"])
    pipeline.fit(frame)
    with pytest.warns(PrivacyWarning, match=r"\['columns'\]"):
        sample = sample_from(pipeline, 2000)
    assert sample.columns.tolist() == frame.columns.tolist()
    similar(sample, frame)


def test_columns_passed_through_keep_their_dtypes():
    n = 200
    frame = pd.DataFrame(
        {
            "income": np.linspace(1, 9, n),
            "town": pd.Categorical(["Oslo", "Rome"] * (n // 2)),
            "rooms": pd.array([1, 2, None, 4] * (n // 4), dtype="Int64"),
            "since": pd.date_range("2020-01-01", periods=n, tz="Europe/Oslo"),
        }
    )
    columns = make_column_transformer(
        (log(), ["income"]), remainder="passthrough", verbose_feature_names_out=False
    ).set_output(transform="pandas")
    pipeline = make_pipeline(columns, exact().set_params(n_steps=0)).fit(frame)
    assert sample_from(pipeline, 50).dtypes.equals(frame.dtypes)


def test_column_transformers_of_public_parts_do_not_warn():
    frame = table()[["income", "age"]]
    columns = make_column_transformer((log(), ["income"]), ("passthrough", slice(1, 2)))
    pipeline = make_pipeline(columns, exact()).fit(frame)
    sample = sample_from(pipeline, 2000)
    similar(sample, frame)
    X = frame.to_numpy()
    columns = make_column_transformer((log(), [True, False]), ("passthrough", [-1]))
    sample = sample_from(make_pipeline(columns, exact()).fit(X), 500)
    assert np.nanmedian(sample[:, 0]) == pytest.approx(np.median(X[:, 0]), rel=0.2)


def test_one_hot_columns_are_undone():
    frame = table()[["town"]]
    encoder = OneHotEncoder(sparse_output=False, handle_unknown="ignore")
    pipeline = make_pipeline(encoder, exact()).fit(frame)
    with pytest.warns(PrivacyWarning, match="onehotencoder"):
        sample = sample_from(pipeline, 200)
    assert set(sample["town"].dropna()) == {"Oslo", "Rome"}


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (PolynomialFeatures(), "'step': PolynomialFeatures has no inverse_transform"),
        (FunctionTransformer(np.log1p), "'step': FunctionTransformer has no inverse_f"),
        (
            ColumnTransformer([("kept", log(), [0])]),
            "'step__remainder': ColumnTransformer drops 1 columns",
        ),
        (
            ColumnTransformer([("bad", PolynomialFeatures(), [0, 1])]),
            "'step__bad': PolynomialFeatures has no inverse_transform",
        ),
        (
            make_pipeline(log(), PolynomialFeatures()),
            "'step__polynomialfeatures': PolynomialFeatures has no inverse_transform",
        ),
        (SimpleImputer(), "'step': SimpleImputer cannot invert .*add_indicator=True"),
        (
            make_pipeline(
                log(), FrozenEstimator(SimpleImputer().fit(table()[["income", "age"]]))
            ),
            "'step__frozenestimator': FrozenEstimator cannot invert these rows",
        ),
        (
            FunctionTransformer(inverse_func=lambda rows: rows["no such column"]),
            "'step': FunctionTransformer cannot invert these rows",
        ),
    ],
)
def test_a_step_that_cannot_be_undone_is_named(step, problem):
    frame = table()[["income", "age"]]
    pipeline = Pipeline([("step", step), ("s", exact())]).fit(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        with pytest.raises(ValueError, match=problem):
            sample_from(pipeline, 5)


def test_refusals():
    X = table()[["income", "age"]]
    with pytest.raises(TypeError, match="synthesizer; got DPHFlowSynthesizer"):
        sample_from(exact())
    with pytest.raises(TypeError, match="whose last step is a synthesizer; got Ridge"):
        sample_from(make_pipeline(log(), Ridge()).fit(X, X["age"]))
    with pytest.raises(ValueError, match="'n_samples' of DPHFlowSynthesizer"):
        sample_from(make_pipeline(log(), exact()).fit(X), 0)


@pytest.mark.parametrize(
    ("step", "answer"),
    [
        (log(), False),
        (StandardScaler(), True),
        (SelectKBest(), True),
        ("passthrough", False),
        (make_pipeline(log(), log()), False),
        (make_pipeline(log(), StandardScaler()), True),
        (FeatureUnion([("a", log()), ("b", "drop")]), False),
        (FeatureUnion([("a", log()), ("b", PCA())]), True),
        (ColumnTransformer([("a", log(), [0])]), False),
        (ColumnTransformer([("a", log(), [0])], remainder=PCA()), True),
        (FrozenEstimator(StandardScaler()), False),
        (object(), True),
    ],
)
def test_what_learns(step, answer):
    assert learns(step) is answer


def test_an_imputer_that_marks_what_it_fills_is_undone():
    frame = table()[["income", "age"]]
    frame.loc[::3, "age"] = np.nan
    pipeline = make_pipeline(SimpleImputer(add_indicator=True), exact()).fit(frame)
    with pytest.warns(PrivacyWarning, match="simpleimputer"):
        sample = sample_from(pipeline, 2000)
    assert sample["age"].isna().mean() == pytest.approx(1 / 3, abs=0.1)
    similar(sample, frame)
