"""The estimator as its users meet it."""

from __future__ import annotations

import math
import pickle
from copy import deepcopy
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn

from dpgenerative import (
    Column,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    Schema,
    Sparsified,
    SyntheticClassifier,
    forecast,
    load,
)
from dpgenerative.audit import audit_mechanism, audit_training
from dpgenerative.encoding.marginals import MARGINALS
from dpgenerative.exceptions import (
    HopelessBudgetWarning,
    InfeasibleBudgetError,
    UnsupportedColumnError,
)
from dpgenerative.fitting.fit import PrivateFit
from dpgenerative.fitting.options import BatchTerm
from dpgenerative.fitting.recipe import FitSize
from dpgenerative.layers import MaskedLinear
from dpgenerative.privacy.accounting import gaussian_multiplier
from dpgenerative.privacy.embedding import EMBEDDING
from dpgenerative.privacy.norm import NORM
from dpgenerative.privacy.tables import TABLES
from dpgenerative.synthesizers.flow import FlowArchitecture, FlowRecipe
from dpgenerative.synthesizers.flow_rules import table_budget
from dpgenerative.tables.containers import as_table
from tests.plans import make_plan

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

FAST = {"n_steps": 5, "batch_size": 64, "random_state": 0}
both = pytest.mark.parametrize("estimator", [DPHFlowSynthesizer, DPVAESynthesizer])


def mixed(n=300, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(50, 10, n)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "score": x,
            "small": (x / 10).astype(np.float32),
            "colour": pd.Categorical(rng.choice(["red", "green", "blue"], n)),
            "grade": pd.Categorical(
                rng.choice(["low", "mid", "high"], n),
                categories=["low", "mid", "high"],
                ordered=True,
            ),
            "city": rng.choice(["Oslo", "Rome"], n),
            "visits": pd.array(rng.integers(0, 9, n), dtype="Int64"),
            "member": rng.random(n) < 0.5,
            "maybe": pd.array(rng.random(n) < 0.5, dtype="boolean"),
            "note": pd.array(rng.choice(["a", "b"], n), dtype="string"),
        }
    )


def fitted(frame=None, estimator=DPHFlowSynthesizer, **params):
    frame = mixed() if frame is None else frame
    return estimator().set_params(**{**FAST, **params}).fit(frame)


@both
def test_samples_have_the_columns_and_dtypes_of_the_table(estimator):
    frame = mixed()
    sample = fitted(frame, estimator).sample(50)
    assert sample.columns.tolist() == frame.columns.tolist()
    pd.testing.assert_series_equal(sample.dtypes, frame.dtypes)
    assert len(sample) == 50


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8])
def test_arrays_come_back_as_arrays(dtype):
    X = np.random.default_rng(0).integers(0, 50, (200, 3)).astype(dtype)
    sample = fitted(X).sample(7)
    assert isinstance(sample, np.ndarray)
    assert sample.shape == (7, 3)
    assert sample.dtype == dtype


def test_strings_in_arrays():
    X = np.array([["a", "x"], ["b", "y"]] * 200)
    synthesizer = fitted(X, epsilon=5.0)
    sample = synthesizer.sample(20)
    assert sample.shape == (20, 2)
    assert sample.dtype == object
    assert set(sample[:, 0]) <= {"a", "b", None}


@pytest.mark.parametrize("dtype", ["U1", "U40", "S5"])
def test_arrays_of_strings_hold_missing_values_and_hide_the_longest(dtype):
    X = np.array([["a"], ["b"]]).astype(dtype)
    frame, fmt = as_table("T", X)
    assert fmt.x_dtype.kind == "O"
    frame.iloc[1, 0] = None
    restored = fmt.restore(frame)
    assert restored[0, 0] == X[0, 0]
    assert restored[1, 0] is None


@pytest.mark.thin(3)
@both
@pytest.mark.parametrize("kind", ["series", "frame", "array"])
def test_a_target_is_modelled_with_the_rest(estimator, kind):
    frame = mixed()
    target = frame["member"]
    y = {"series": target, "frame": target.to_frame(), "array": target.to_numpy()}[kind]
    synthesizer = estimator(**FAST).fit(frame[["age", "score"]], y)
    X, fake = synthesizer.sample(11)
    assert X.columns.tolist() == ["age", "score"]
    assert isinstance(fake, type(y))
    assert len(fake) == 11
    if kind == "series":
        assert fake.name == "member"
        assert fake.dtype == bool
    assert synthesizer.n_features_in_ == 2
    assert np.isfinite(synthesizer.score(frame[["age", "score"]], y))
    with pytest.raises(ValueError, match="needs y"):
        synthesizer.score(frame[["age", "score"]])


def test_a_target_named_like_a_feature():
    frame = mixed()[["age"]]
    X, y = DPHFlowSynthesizer(**FAST).fit(frame, frame["age"]).sample(5)
    assert X.columns.tolist() == ["age"]
    assert y.name == "age"


@pytest.mark.parametrize("name", ["__y", ("y", 1), 7])
def test_rows_with_a_target_are_scored_whatever_names_columns_have(name):
    X = mixed()[["age"]].set_axis(pd.Index([name], tupleize_cols=False), axis=1)
    y = mixed()["city"].rename(("city", 2))
    assert np.isfinite(DPHFlowSynthesizer(**FAST).fit(X, y).score(X, y))


@both
def test_learned_attributes(estimator):
    synthesizer = fitted(estimator=estimator)
    assert 0.99 < synthesizer.epsilon_ <= 1.0
    assert synthesizer.delta_ == 1e-5
    assert synthesizer.n_steps_ == FAST["n_steps"]
    assert synthesizer.noise_multiplier_ > 0
    assert synthesizer.schema_.names == tuple(mixed().columns)
    assert synthesizer.feature_names_in_.tolist() == mixed().columns.tolist()


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_the_report_states_the_budget(epsilon):
    synthesizer = fitted(epsilon=epsilon)
    text = str(synthesizer.privacy_)
    assert f"({epsilon:g}, 1e-05)-differential privacy" in text
    assert "adding or removing one row" in text
    assert "levels of member, maybe" in text
    assert (
        "levels of a category dtype (not covered if listed from the rows): colour"
        in text
    )
    assert "unknown levels" in text
    assert 0.99 * epsilon < synthesizer.privacy_.to_dict()["epsilon_spent"] <= epsilon


def test_the_flow_takes_the_last_column_first():
    synthesizer = DPHFlowSynthesizer(epsilon=None, n_steps=5).fit(mixed())
    names = list(mixed().columns)
    order = [codec.column.name for codec in synthesizer._transformer.codecs]
    assert order == [names[-1], *names[:-1]]


def test_the_report_lists_what_the_schema_gave_away():
    schema = Schema([Column("age", "integer", lower=0, upper=120)])
    assert "bounds of age" in str(fitted(mixed()[["age"]], schema=schema).privacy_)
    assert "bounds of" not in str(fitted(mixed()[["age"]]).privacy_)


@pytest.mark.thin(3)
@both
@pytest.mark.parametrize("epsilon", [None, math.inf])
def test_no_privacy_is_explicit_and_adds_no_noise(estimator, epsilon):
    frame = mixed()
    synthesizer = fitted(frame, estimator, epsilon=epsilon)
    assert "NO PRIVACY" in str(synthesizer.privacy_)
    assert synthesizer.epsilon_ == math.inf
    assert synthesizer.noise_multiplier_ == 0
    assert "epsilon=None" in repr(fitted(frame, estimator, epsilon=None))
    colours = synthesizer.sample(20_000)["colour"].value_counts(normalize=True)
    real = frame["colour"].value_counts(normalize=True)
    assert (colours - real).abs().max() < 0.02


@both
def test_sampling_follows_the_seed(estimator):
    synthesizer = fitted(estimator=estimator)
    same = [synthesizer.sample(30, random_state=3) for _ in range(2)]
    pd.testing.assert_frame_equal(*same)
    assert not synthesizer.sample(30).equals(synthesizer.sample(30))
    assert (
        not fitted(estimator=estimator, random_state=None)
        .sample(30)
        .equals(synthesizer.sample(30))
    )
    with pytest.raises(ValueError, match="n_samples"):
        synthesizer.sample(0)


@both
def test_noise_does_not_follow_the_seed_unless_asked(estimator):
    def weights(**params):
        first, *_ = fitted(estimator=estimator, **params)._model.parameters()
        return first

    assert not torch.equal(weights(), weights())
    assert torch.equal(weights(noise="reproducible"), weights(noise="reproducible"))
    report = str(fitted(estimator=estimator, noise="reproducible").privacy_)
    assert "whoever knows the seed can remove the noise" in report
    with pytest.raises(ValueError, match="random_state"):
        fitted(estimator=estimator, noise="reproducible", random_state=None)


@both
def test_fitted_synthesizers_survive_pickling(estimator):
    synthesizer = fitted(estimator=estimator)
    copy = pickle.loads(pickle.dumps(synthesizer))
    pd.testing.assert_frame_equal(
        copy.sample(20, random_state=0), synthesizer.sample(20, random_state=0)
    )


@both
def test_a_saved_synthesizer_does_not_carry_the_seed_of_its_noise(estimator):
    seed = 123_456_789
    fit = fitted(estimator=estimator, noise="reproducible", random_state=seed)
    saved = pickle.loads(pickle.dumps(fit))
    assert saved.random_state is None
    assert str(seed) not in str(vars(saved))
    assert not saved.sample(30).equals(saved.sample(30))
    assert fit.random_state == seed
    unfitted = estimator(noise="reproducible", random_state=seed)
    assert pickle.loads(pickle.dumps(unfitted)).random_state == seed


@pytest.mark.thin(4)
@both
@pytest.mark.parametrize("later", ["fresh", "secure"])
def test_a_seed_that_noise_followed_is_in_no_copy_whatever_noise_is_set_later(
    estimator, later, tmp_path, monkeypatch
):
    seed = 123_456_789
    origin = estimator(noise="reproducible", random_state=seed, n_steps=2)
    fit, clone_of_fit = clone(origin).fit(mixed()), clone(clone(origin))
    predictor = SyntheticClassifier(estimator(**origin.get_params(deep=False)))
    predictor.fit(mixed()[["age", "score"]], mixed()["colour"])
    failed = clone(origin)
    monkeypatch.setattr(PrivateFit, "run", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failed.fit(mixed())
    for held in (origin, fit, failed, predictor):
        assert str(seed) in str(held.get_params())
        for copied in (pickle.loads(pickle.dumps(held)), deepcopy(held)):
            assert str(seed) not in str(vars(copied)) + str(copied.get_params())
    half = SyntheticClassifier(clone(origin))
    with pytest.raises(ZeroDivisionError):
        half.fit(mixed()[["age", "score"]], mixed()["colour"])
    assert str(seed) not in str(vars(pickle.loads(pickle.dumps(half))))
    predictor.synthesizer.set_params(noise=later)
    assert str(seed) not in str(vars(pickle.loads(pickle.dumps(predictor))))
    for held in (origin, fit, failed, clone_of_fit):
        for copied in (held.set_params(noise=later), clone(held)):
            assert copied.random_state == seed
            assert str(seed) not in str(vars(pickle.loads(pickle.dumps(copied))))
    predictor.set_params(synthesizer=None)
    assert deepcopy(predictor).synthesizer is None
    fit.save(tmp_path / "model")
    assert str(seed).encode() not in (tmp_path / "model").read_bytes()


@pytest.mark.thorough
@both
def test_workers_are_sent_the_seed_that_their_fits_follow(estimator):
    search = GridSearchCV(
        estimator(noise="reproducible", random_state=7, n_steps=2),
        {"epsilon": [0.5, 1.0]}, cv=2, n_jobs=2, error_score="raise",
    ).fit(mixed())  # fmt: skip
    assert search.best_estimator_.random_state == 7
    assert pickle.loads(pickle.dumps(search)).best_estimator_.random_state is None
    assert pickle.loads(pickle.dumps(search)).estimator.random_state is None


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_ambient_autocast_changes_no_fit(dtype):
    frame = mixed()
    flow = fitted(frame, noise="reproducible")
    expected = flow.score_samples(frame)
    with torch.autocast("cpu", dtype):
        fitted(frame).fit(frame, public=frame)
        again = fitted(frame, noise="reproducible")
        found = again.score_samples(frame)
        assert len(again.sample(9)) == 9
    np.testing.assert_allclose(found, expected, atol=0.5)
    np.testing.assert_array_equal(again.score_samples(frame), expected)


def test_scoring_other_dtypes_names_no_value():
    synthesizer = DPHFlowSynthesizer(**FAST).fit(pd.DataFrame({"age": range(30)}))
    with pytest.raises(ValueError, match="'age' is integer, by its schema") as raised:
        synthesizer.score(pd.DataFrame({"age": ["Jane Doe"] * 30}))
    assert "Doe" not in str(raised.value)


@both
def test_scores_are_densities(estimator):
    frame = mixed()
    synthesizer = fitted(frame, estimator)
    scores = synthesizer.score_samples(frame)
    assert scores.shape == (len(frame),)
    assert np.isfinite(scores).all()
    assert synthesizer.score(frame) == pytest.approx(scores.mean())


def test_the_density_of_one_number_integrates_to_one():
    frame = pd.DataFrame({"x": np.random.default_rng(0).lognormal(0, 1, 400)})
    schema = Schema([Column("x", "continuous", lower=0, upper=40, nullable=False)])
    synthesizer = fitted(frame, schema=schema)
    grid = (np.arange(400_000) + 0.5) / 10_000
    density = np.exp(synthesizer.score_samples(pd.DataFrame({"x": grid})))
    assert density.sum() / 10_000 == pytest.approx(1, abs=1e-3)


def test_probabilities_of_a_whole_table_add_up():
    frame = pd.DataFrame(
        {
            "a": pd.Categorical(["x", "y", "z"] * 60),
            "b": np.random.default_rng(0).integers(0, 6, 180),
        }
    )
    levels = {"levels": ["x", "y", "z"], "nullable": True}
    known = Column("a", "categorical", **levels)
    schema = Schema([known, Column("b", "integer", lower=0, upper=5)])
    synthesizer = fitted(frame, schema=schema)
    cells = [(a, b) for a in ["x", "y", "z", None] for b in range(6)]
    table = pd.DataFrame(cells, columns=["a", "b"]).astype(frame.dtypes.to_dict())
    assert np.exp(synthesizer.score_samples(table)).sum() == pytest.approx(1, abs=1e-5)


def test_a_dependence_is_learned_under_privacy():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 5000)
    frame = pd.DataFrame({"a": a, "b": np.where(rng.random(5000) < 0.9, a, 2 - a)})
    schema = Schema([Column(c, "categorical", levels=(0, 1, 2)) for c in "ab"])
    sample = DPHFlowSynthesizer(schema=schema, random_state=0).fit(frame).sample(5000)
    agree = (sample["a"] == sample["b"]).mean()
    assert agree > 0.85 * (frame["a"] == frame["b"]).mean()


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "params",
    [
        {"clipping": "per-layer"},
        {"clipping": "per-unit"},
        {"clipping": Sparsified(0.8)},
        {"max_grad_norm": "median"},
        {"divergence": "mmd", "n_partitions": 4},
        {"divergence": lambda z: z.square().mean(), "divergence__max_grad_norm": 0.01},
        {
            "architecture__anchored": False,
            "architecture__n_blocks": 2,
            "architecture__linear": "low-rank",
            "architecture__hidden_units": 8,
        },
        {
            "architecture__n_blocks": 2,
            "architecture__linear": "lu",
            "architecture__dequantization": "variational",
        },
        {"optimizer": "sgd"},
        {"optimizer": "adabelief"},
        {"optimizer__averaging": 0.0},
        {
            "architecture__hidden_units": 8,
            "architecture__n_basis": 3,
            "architecture__n_bins": 8,
        },
    ],
    ids=lambda params: "-".join(f"{k}={v}"[:24] for k, v in params.items()),
)
def test_every_option_fits_and_samples(params):
    frame = mixed()
    synthesizer = fitted(frame, **params)
    pd.testing.assert_series_equal(synthesizer.sample(20).dtypes, frame.dtypes)
    assert np.isfinite(synthesizer.score_samples(frame)).all()
    assert 0.99 < synthesizer.epsilon_ <= 1.0


@pytest.mark.parametrize(("n_basis", "widths"), [("auto", [8, 3, 3]), (4, [4, 5, 5])])
def test_columns_that_few_rows_tell_of_have_few_functions(n_basis, widths):
    """Of 4,000 rows, 3,800 are 0 in one column and missing in another."""
    rng = np.random.default_rng(0)
    number = {"lower": -40_000, "upper": 40_000}
    kinds = {"zero": "integer", "missing": "continuous", "plain": "continuous"}
    frame = pd.DataFrame(rng.normal(0, 9000, (4000, 3)), columns=list(kinds))
    frame = frame.clip(-40_000, 40_000)
    frame.loc[200:, "zero"], frame.loc[200:, "missing"] = 0.0, np.nan
    frame["zero"] = frame["zero"].round().astype(int)
    schema = Schema(
        Column(name, kind, nullable=name == "missing", **number)
        for name, kind in kinds.items()
    )
    synthesizer = fitted(frame, schema=schema, architecture__n_basis=n_basis)
    # The last column comes first; 'missing' and a heavy value have an indicator.
    assert synthesizer._model.first.widths == widths


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("n_numbers", "n_levels", "zeros", "n_basis"),
    [(30, 0, 0, 2), (12, 0, 0, 2), (6, 0, 0, 3), (6, 9, 0, 3), (12, 0, 8, 4)],
)
def test_more_ordered_columns_have_fewer_functions_each(
    n_numbers, n_levels, zeros, n_basis
):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((6000, n_numbers + n_levels)))
    names = [f"x{j}" for j in range(n_numbers)] + [f"k{j}" for j in range(n_levels)]
    frame = frame.set_axis(names, axis=1)
    facts = {"lower": 0, "upper": 1, "nullable": False}
    numbers = [Column(name, "continuous", **facts) for name in names[:n_numbers]]
    facts = {"levels": tuple("abcdef"), "nullable": False}
    levels = [Column(name, "categorical", **facts) for name in names[n_numbers:]]
    frame.loc[100:, names[:zeros]] = 0.0
    for column in levels:
        frame[column.name] = rng.choice(column.levels, len(frame))
    synthesizer = fitted(frame, schema=Schema([*levels, *numbers]), epsilon=0.65)
    widths = synthesizer._model.first.widths
    # Columns of zeros have two functions and an indicator of the zero.
    expected = [n_basis] * (n_numbers - zeros) + [3] * zeros + [6] * n_levels
    assert sorted(widths) == sorted(expected)


def test_partitions_act_with_a_divergence_only():
    def weights(**params):
        return fitted(noise="reproducible", **params)._model.first.skip.weight

    assert torch.equal(weights(n_partitions=2), weights(n_partitions=8))
    some, more = (
        weights(divergence="mmd", n_partitions=n, divergence__max_grad_norm=0.1)
        for n in (2, 8)
    )
    assert not torch.equal(some, more)


def test_the_norm_estimate_is_paid_for():
    given = fitted(noise="reproducible")
    estimated = fitted(noise="reproducible", max_grad_norm="median")
    assert given.privacy_.plan.n_rows == estimated.privacy_.plan.n_rows
    assert estimated.noise_multiplier_ > given.noise_multiplier_
    assert "clipping norm (quantile" in str(estimated.privacy_)
    assert estimated.epsilon_ <= 1.0


@pytest.mark.parametrize(
    ("n_rows", "epsilon", "norm"),
    [
        (0, 1.0, 1),
        (5, 0.5, 1),
        (20, 1.0, 2),
        (80, 1.0, 4),
        (40, 2.0, 4),
        (10**6, 1.0, 8),
    ],
)
def test_the_norm_follows_rows_times_epsilon_per_parameter(n_rows, epsilon, norm):
    """Of what is trained, one weight is masked; the others and three biases are 10."""
    see = torch.tensor([[True, False], [True, True]])
    masked = MaskedLinear(torch.tensor([0, 0, 1]), torch.tensor([0, 1]), see)
    assert masked.n_free + 2 == 7
    model = nn.ModuleList([masked, MaskedLinear.dense(2, 1)])
    model.append(MaskedLinear.dense(50, 1).requires_grad_(False))
    schema = Schema(Column(f"x{j}", "boolean") for j in range(4))
    scale = FitSize(n_rows, schema, epsilon)
    assert DPHFlowSynthesizer()._recipe.clipping_norm(model, scale) == norm


def test_a_fit_clips_to_the_norm_of_its_recipe(monkeypatch):
    assert "clipping to norm 1)" in str(fitted(estimator=DPVAESynthesizer).privacy_)
    monkeypatch.setattr(FlowRecipe, "clipping_norm", lambda self, model, scale: 3.5)
    assert "clipping to norm 3.5)" in str(fitted().privacy_)
    assert "clipping to norm 2)" in str(fitted(max_grad_norm=2).privacy_)


def test_categorical_features():
    X = np.random.default_rng(0).integers(0, 3, (200, 2)).astype(float)
    for chosen in ([0], [True, False], ["x0"]):
        synthesizer = fitted(X, categorical_features=chosen)
        kinds = [c.kind for c in synthesizer.schema_.columns]
        assert kinds == ["categorical", "continuous"]
    for bad in ([5], [True], ["nope"], "all", 0):
        with pytest.raises(ValueError, match="categorical_features"):
            fitted(X, categorical_features=bad)


@pytest.mark.parametrize("anchored", [np.True_, np.False_, 1])
def test_flags_of_other_types_are_flags(anchored):
    X = np.random.default_rng(0).normal(size=(60, 2))
    flow = DPHFlowSynthesizer(None, n_steps=2)
    flow.set_params(architecture__anchored=anchored)
    assert flow.fit(X).sample(3).shape == (3, 2)


@both
def test_a_million_rows_do_not_need_memory_at_once(estimator, monkeypatch):
    from dpgenerative.synthesizers import tables

    monkeypatch.setattr(tables, "SAMPLE_CHUNK", 64)
    synthesizer = fitted(estimator=estimator)
    sample = synthesizer.sample(1000, random_state=0)
    assert len(sample) == 1000
    assert sample.index.tolist() == list(range(1000))
    pd.testing.assert_series_equal(sample.dtypes, mixed().dtypes)


# scikit-learn ---------------------------------------------------------------------


@both
def test_clone_and_parameters(estimator):
    synthesizer = estimator(epsilon=2.0, clipping="per-layer")
    assert clone(synthesizer).get_params() == synthesizer.get_params()
    assert synthesizer.set_params(epsilon=3.0).epsilon == 3.0
    before = estimator(**FAST)
    params = before.get_params()
    assert before.fit(mixed()).get_params() == params


@pytest.mark.thin(2)
@both
def test_grid_search_over_epsilon(estimator):
    search = GridSearchCV(
        estimator(**FAST), {"epsilon": [0.5, 5.0]}, cv=2, error_score="raise"
    )
    search.fit(mixed()[["age", "colour", "member"]])
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.sample(3).shape == (3, 3)


@both
def test_last_step_of_a_pipeline(estimator):
    pipeline = make_pipeline(FunctionTransformer(), estimator(**FAST))
    frame = mixed()[["age", "score"]]
    assert np.isfinite(pipeline.fit(frame).score(frame))
    assert pipeline[-1].sample(4).shape == (4, 2)


@both
def test_unfitted(estimator):
    for call in ("sample", "score_samples", "score"):
        with pytest.raises(NotFittedError):
            getattr(estimator(), call)(*([mixed()] if "score" in call else []))


@both
def test_a_failed_fit_leaves_nothing(estimator):
    synthesizer = estimator(epsilon=-1)
    with pytest.raises(ValueError, match="epsilon"):
        synthesizer.fit(mixed())
    assert not [name for name in vars(synthesizer) if name.endswith("_")]


# Bad input ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0),
        ("epsilon", -1.0),
        ("epsilon", math.nan),
        ("epsilon", "one"),
        ("epsilon", True),
        ("delta", 0),
        ("delta", 1),
        ("delta", None),
        ("clipping", "none"),
        ("clipping", pd.NA),
        ("delta", np.float16(1e-5)),
        ("max_grad_norm", np.float32(1)),
        ("max_grad_norm", 0),
        ("max_grad_norm", "mean"),
        ("clipping", Sparsified(1.0)),
        ("n_partitions", 0),
        ("divergence", "kl"),
        ("divergence__max_grad_norm", -1),
        ("schema", {"a": 1}),
        ("marginal_budget", 1.0),
        ("architecture__anchored", "yes"),
        ("optimizer__learning_rate", Fraction(1, 100)),
        ("architecture__n_blocks", 0),
        ("architecture__n_bins", 1),
        ("architecture__n_basis", 0),
        ("architecture__hidden_units", -1),
        ("architecture__linear", "dense"),
        ("architecture__dequantization", "none"),
        ("optimizer", "lbfgs"),
        ("optimizer__learning_rate", 0),
        ("n_steps", -1),
        ("batch_size", 1.5),
        ("optimizer__averaging", 1.0),
        ("random_state", -1),
        ("device", "tpu"),
    ],
)
def test_bad_parameters_are_named(name, value):
    with pytest.raises(ValueError, match=name) as error:
        DPHFlowSynthesizer().set_params(**{**FAST, name: value}).fit(mixed())
    assert repr(getattr(value, "share", value)) in str(error.value)


def test_bad_tables():
    frame = mixed()
    with pytest.raises(ValueError, match="distinct"):
        fitted(pd.concat([frame, frame], axis=1))
    with pytest.raises(ValueError, match="0 sample"):
        fitted(frame.iloc[:0])
    with pytest.raises(ValueError, match="0 feature"):
        fitted(frame[[]])
    with pytest.raises(ValueError, match="2D"):
        fitted(np.arange(5.0))
    with pytest.raises(TypeError, match="toarray"):
        fitted(sparse.eye(5).tocsr())
    for untyped in ([[1, 2], [3, 4]], np.ma.ones((5, 2))):
        with pytest.raises(TypeError, match="depend on its values"):
            fitted(untyped)
    with pytest.raises(TypeError, match="depend on its values"):
        DPHFlowSynthesizer(**FAST).fit(frame, [True] * len(frame))
    with pytest.raises(ValueError, match="Complex"):
        fitted(np.ones((5, 2)) * 1j)
    with pytest.raises(ValueError, match="same number of rows"):
        DPHFlowSynthesizer(**FAST).fit(frame, np.array([1, 2]))
    with pytest.raises(ValueError, match="sample_weight"):
        DPHFlowSynthesizer(**FAST).fit(frame, sample_weight=np.ones(len(frame)))
    with pytest.raises(ValueError, match="lacks"):
        fitted(frame, schema=Schema([Column("nope", "boolean")]))


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (mixed(123), np.arange(45)),
        (mixed(123), np.ones((123, 2))),
        (mixed(123), mixed(123)),
        (mixed(123)[[]], None),
    ],
    ids=["rows", "columns", "frame", "no columns"],
)
def test_no_message_counts_the_rows(X, y):
    with pytest.raises(ValueError, match=r"DPHFlowSynthesizer") as error:
        DPHFlowSynthesizer(**FAST).fit(X, y)
    assert "123" not in str(error.value)
    assert "45" not in str(error.value)


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "value",
    [pd.Timestamp("2020"), pd.Timedelta(1), 10**400],
    ids=["date", "span", "long"],
)
def test_objects_in_arrays_stay_objects(value):
    # Whether all of them are dates is a fact about values.
    array = np.array([[value], [value], [1.5]], dtype=object)
    for rows in (array, array[:2]):
        assert fitted(rows).sample(3).dtype == object
        for y in (rows[:, 0], pd.Index(rows[:, 0], dtype=object)):
            _, fake = DPHFlowSynthesizer(**FAST).fit(rows, y).sample(3)
            assert fake.dtype == object


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("names", "match"),
    [
        ([np.nan, "a"], "one is missing"),
        ([b"x", 2], None),
        ([("a", "b"), 1.5], None),
        ([True, False], None),
        ([1.5, 3], None),
    ],
    ids=["missing", "bytes", "tuple", "flags", "numbers"],
)
@both
def test_odd_column_names(estimator, names, match):
    frame = mixed()[["age", "city"]]
    frame.columns = pd.Index(names, dtype=object, tupleize_cols=False)
    if match is not None:
        with pytest.raises(ValueError, match=match):
            fitted(frame, estimator)
        return
    synthesizer = fitted(frame, estimator)
    found = synthesizer.sample(3).columns.tolist()
    assert list(map(repr, found)) == list(map(repr, names))
    assert np.isfinite(synthesizer.score(frame))


@pytest.mark.parametrize(
    "values",
    [
        np.ones(10) * 1j,
        pd.arrays.SparseArray(np.ones(10)),
        pd.period_range("2020", periods=10),
    ],
    ids=["complex", "sparse", "period"],
)
def test_unsupported_dtypes_name_the_column(values):
    with pytest.raises(UnsupportedColumnError, match="'when'"):
        fitted(pd.DataFrame({"ok": range(10), "when": values}))


def test_scoring_other_columns():
    synthesizer = fitted(mixed()[["age", "score"]])
    with pytest.raises(ValueError, match=r"unseen: \['colour'\], absent: \['age'\]"):
        synthesizer.score(mixed()[["score", "colour"]])
    with pytest.raises(ValueError, match="2 features"):
        fitted(np.ones((50, 2))).score(np.ones((50, 3)))
    assert np.isfinite(synthesizer.score(mixed()[["score", "age"]]))


def test_an_infeasible_budget_says_what_to_change():
    with pytest.raises(InfeasibleBudgetError, match="Raise epsilon"):
        fitted(epsilon=1e-9, delta=1e-15)


HOSTILE = {
    "huge": [2**62, -(2**62), 0, 1],
    "infinite": [np.inf, -np.inf, np.nan, 1.0],
    "large": [1e308, -1e308, 5e-324, 0.0],
    "missing": [np.nan] * 4,
    "constant": [7] * 4,
    "objects": [[1, 2], {"a": 1}, b"x", ("t",)],
    "mixed": [1, "1", 1.0, True],
    "unicode": ["\ud800", "\0", "\N{SNOWMAN}" * 1000, ""],
    "none": [None] * 4,
    "long": [10**5000, 1, 2, 3],
    "too large": np.array(["1e4000", "0", "1", "2"], dtype=np.longdouble),
    "unsigned": np.array([2**64 - 1, 0, 5, 2**63], dtype=np.uint64).tolist(),
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("kind", HOSTILE)
def test_values_never_raise(kind):
    column = pd.Series(
        np.tile(HOSTILE[kind], 10)
        if isinstance(HOSTILE[kind], np.ndarray)
        else HOSTILE[kind] * 10,
        dtype=object if kind in ("long", "unicode") else None,
    )
    sample = fitted(pd.DataFrame({"x": column, "y": range(40)})).sample(30)
    assert sample["x"].dtype == column.dtype


@both
@pytest.mark.parametrize("n", [1, 2, 3])
def test_very_small_tables(estimator, n):
    frame = mixed().iloc[:n]
    pd.testing.assert_series_equal(
        fitted(frame, estimator).sample(5).dtypes, frame.dtypes
    )


def test_few_rows_spend_more_on_marginals_and_learn_less():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(1000, 12)), columns=list("abcdefghijkl"))
    bounds = {"lower": -5, "upper": 5, "nullable": True}
    columns = [Column(c, "continuous", **bounds) for c in frame]
    # Far from where numbers change: that of rows is released with noise.
    few, enough = (
        DPHFlowSynthesizer(epsilon, schema=Schema(columns[:d]), n_steps=2).fit(
            frame.iloc[:n, :d]
        )
        for n, d, epsilon in ((650, 12, 1.0), (1000, 4, 2.6))
    )

    def share(flow):
        plan = flow.privacy_.plan
        whole = gaussian_multiplier(
            plan.epsilon - plan.count_epsilon, plan.delta - plan.threshold_delta
        )
        return (whole / plan.multiplier(MARGINALS)) ** 2

    assert share(few) == pytest.approx(0.9, abs=1e-3)
    # Of four columns, counted tables get a quarter.
    assert share(enough) == pytest.approx(0.75 * 0.41, abs=0.02)
    # One function more says that a value is missing.
    assert few._model.first.widths == [1 + 1] * 12
    assert enough._model.first.widths == [4 + 1] * 4


def small(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    frame = pd.DataFrame({"x": x, "y": x + rng.normal(size=n) / 9, "z": x > 0})
    bounds = {"lower": -5, "upper": 5, "nullable": False}
    schema = Schema([
        Column("x", "continuous", **bounds), Column("y", "continuous", **bounds),
        Column("z", "boolean", nullable=False),
    ])  # fmt: skip
    return frame, schema


@pytest.mark.parametrize(
    "given", [{"n_steps": 0}, {"epsilon": 0.005, "noise": "reproducible"}]
)
def test_no_gradients_leave_the_product_of_the_marginals(tmp_path, given):
    frame, schema = small(1000)
    parameters = {"max_grad_norm": "median", "schema": schema, "random_state": 0}
    flow = DPHFlowSynthesizer(**parameters, **given)
    flow.set_params(architecture__table_budget=0.0)
    flow.fit(frame, checkpoint=tmp_path / "unfinished.dpg")
    plan = flow.privacy_.plan
    assert (flow.n_steps_, flow.noise_multiplier_) == (0, math.inf)
    assert plan.multiplier(NORM) == math.inf
    # All of the budget went to marginals, which are the only release of its kind.
    assert flow.epsilon_ == pytest.approx(flow.epsilon, rel=1e-4)
    assert flow.epsilon_ <= flow.epsilon
    assert len(plan.gaussians) == 1
    text = str(flow.privacy_)
    assert "Without training" in text
    assert "gradient steps" not in text
    drawn = flow.sample(4000)
    assert abs(drawn["x"].corr(drawn["y"])) < 0.1
    flow.save(tmp_path / "flow.dpg")
    again = load(tmp_path / "flow.dpg")
    assert str(again.privacy_) == text


def test_few_rows_tell_how_ordered_columns_go_together(tmp_path):
    rng = np.random.default_rng(0)
    shared = rng.random((1000, 1))
    frame = pd.DataFrame(shared + 0.1 * rng.random((1000, 6)), columns=list("abcdef"))
    frame["half"] = np.where(shared[:, 0] > 0.5, "high", "low")
    ends = {"lower": 0.0, "upper": 1.1, "nullable": False}
    columns = [Column(name, "continuous", **ends) for name in frame.columns[:6]]
    columns += [Column("half", "categorical", levels=["high", "low"], nullable=False)]
    seeds = {"random_state": 0, "noise": "reproducible"}
    flow = DPHFlowSynthesizer(epsilon=0.5, schema=Schema(columns), **seeds).fit(frame)
    assert "dependence between ordered columns only" in str(flow.privacy_)
    drawn = flow.sample(4000, random_state=0)
    found = drawn.drop(columns="half").corr(method="spearman").to_numpy()
    assert found[np.triu_indices(6, 1)].mean() > 0.2
    halves = drawn.groupby("half")["a"].mean()
    assert abs(halves["high"] - halves["low"]) < 0.05
    untrained = clone(flow).set_params(n_steps=0).fit(frame)
    assert "dependence between ordered columns only" not in str(untrained.privacy_)
    # What is drawn and what is scored are one model.
    scores = flow.score_samples(drawn)
    shuffled = drawn.assign(b=drawn["b"].to_numpy()[::-1])
    assert scores.mean() > flow.score_samples(shuffled).mean() + 0.05
    flow.save(tmp_path / "flow.dpg")
    again = load(tmp_path / "flow.dpg")
    assert again.sample(4000, random_state=0).equals(drawn)
    np.testing.assert_array_equal(again.score_samples(drawn), scores)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 1.0, 20.0])
@pytest.mark.parametrize("tables", [0.0, 0.5, 1 - 1e-9])
def test_without_gradients_every_budget_is_spent_and_none_exceeded(epsilon, tables):
    plan = make_plan(
        epsilon=epsilon, delta=1e-5, n_rows=100, sampling_rate=1.0, n_steps=0,
        marginal_budget=0.4, table_budget=tables, has_open_keys=True,
    )  # fmt: skip
    assert 0.99 * epsilon < plan.spent() <= epsilon


def test_marginals_get_a_share_of_what_stated_tables_leave():
    schema = small(1)[1]
    stated = {"architecture__table_budget": 0.6, "n_steps": 2}
    for n_rows, share in ((60, 0.9), (5000, 0.4 + 0.5 / (1 + (5000 / 300) ** 2))):
        plan = forecast(schema, n_rows, **stated).plan
        kinds = MARGINALS, TABLES, EMBEDDING
        marginals, tables, of_classes = (plan.multiplier(kind) ** -2 for kind in kinds)
        assert marginals / tables == pytest.approx(0.4 * share / 0.6)
        # Classes get the less of a quarter of the rule's share, the less is left.
        rule = table_budget(FitSize(n_rows, schema, 1.0))
        rest = 1 - 0.6 / (1 - 0.4 * share)
        assert of_classes / tables == pytest.approx(0.25 * rule * rest**2 / 0.6)
    architecture = FlowArchitecture(table_budget=0.6)
    again = pickle.loads(pickle.dumps(FlowRecipe(architecture, BatchTerm())))
    rule = again.rules["marginal_budget"]
    assert rule(FitSize(600, schema, 1.0)) == pytest.approx(0.4 * 0.5)
    # One column has no tables to pay for.
    alone = forecast(Schema(schema.columns[:1]), 5000, **stated).plan
    assert math.isinf(alone.multiplier(TABLES))


@pytest.mark.parametrize("share", [0.5, 0.95])
def test_embeddings_leave_gradients_what_stated_tables_leave(share):
    schema = small(1)[1]
    for n_rows in (4000, 100_000):
        stated = {"architecture__table_budget": share, "max_grad_norm": "median"}
        plan = forecast(schema, n_rows, n_steps=50, **stated).plan
        assert plan.spent() <= 1
        assert math.isfinite(plan.multiplier(EMBEDDING))
    # Rounding leaves nothing to release.
    stated = {"architecture__table_budget": 0.3, "marginal_budget": 0.7, "n_steps": 0}
    assert math.isinf(forecast(schema, 4000, **stated).plan.multiplier(EMBEDDING))


def test_no_gradients_by_rule_and_never_without_marginals():
    frame, schema = small(50)
    frame, schema = frame[["x", "z"]], Schema([schema["x"], schema["z"]])
    seeds = {"random_state": 0, "noise": "reproducible"}
    parameters = {"epsilon": 0.1, "schema": schema, **seeds}
    paper = DPHFlowSynthesizer(**parameters).set_params(architecture__anchored=False)
    with pytest.warns(HopelessBudgetWarning):
        assert paper.fit(frame).n_steps_ >= 50
    with pytest.raises(ValueError, match=r"takes no gradients.*, or use audit_rel"):
        audit_mechanism(DPHFlowSynthesizer(**parameters), n_rows=50)
    with pytest.raises(ValueError, match="takes no gradients"):
        audit_training(DPHFlowSynthesizer(**parameters), frame)


@pytest.mark.parametrize("chosen", [[-3], np.array([-3]), [("a", "b"), "c"]])
def test_categorical_features_beside_names_of_other_types(chosen):
    names = pd.Index([("a", "b"), 1, -3, "c"], tupleize_cols=False)
    frame = pd.DataFrame(np.arange(32).reshape(8, 4) % 3).set_axis(names, axis=1)
    flow = DPHFlowSynthesizer(None, n_steps=2, categorical_features=chosen).fit(frame)
    kinds = dict(zip(flow.schema_.names, flow.schema_.columns, strict=True))
    nominal = [name for name, column in kinds.items() if not column.numeric]
    assert set(nominal) == set(pd.Index(chosen, tupleize_cols=False).tolist())


@both
def test_the_report_names_columns_without_a_level(estimator):
    notes = [f"note {i}" for i in range(200)]
    frame = pd.DataFrame({"kind": ["a", "b"] * 100, "notes": notes}, dtype=object)
    fitted = estimator(epsilon=5.0, n_steps=2).fit(frame)
    assert "No value was frequent enough to be released in notes:" in str(
        fitted.privacy_
    )
    stated = Schema([Column("notes", "categorical", levels=notes)])
    frame["kind"] = pd.Series([False] * 200, dtype=object)  # equal to 0
    fitted = estimator(epsilon=5.0, n_steps=2, schema=stated).fit(frame)
    assert "frequent enough" not in str(fitted.privacy_)


@pytest.mark.parametrize(
    ("n", "params", "is_even"),
    [
        (900, {}, True),
        (2200, {}, False),
        (900, {"epsilon": None}, False),
        (900, {"architecture__anchored": False}, False),
    ],
)
def test_samples_of_few_rows_are_spread_evenly(n, params, is_even):
    rows = pd.DataFrame(np.random.default_rng(0).integers(0, 9, (n, 2)))
    flow = DPHFlowSynthesizer(n_steps=2).set_params(**params)
    flow.fit(rows.rename(columns=str))
    assert flow._settings["evenly"] == is_even


def test_whole_numbers_that_are_no_different_floats_are_refused():
    rows = pd.DataFrame({"number": 2**58 + np.arange(100)})
    bounds = {"lower": 2**58, "upper": 2**58 + 100}
    flow = DPHFlowSynthesizer(schema=Schema([Column("number", "integer", **bounds)]))
    with pytest.raises(ValueError, match="Subtract an offset"):
        flow.fit(rows)
    assert not hasattr(flow, "privacy_")
