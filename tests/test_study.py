"""The framework of attack and accuracy: splits, settings, records, figures."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils import get_tags

from dpgenerative import (
    Column,
    DPArrayVAESynthesizer,
    DPVAESynthesizer,
    ImagePixelizer,
    LaplaceRandomizer,
    Schema,
)
from dpgenerative._files import locked
from dpgenerative.metrics import bounded_phi, phi
from dpgenerative.study import framework, plot_tradeoff, privacy_utility_tradeoff
from dpgenerative.study.generators import ClassGenerator

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

ATTACK = {"n_draws": 2, "seeds": (0, 1)}


class Copier(BaseEstimator):
    """Releases its rows; under privacy noise of scale 1 / epsilon on every number."""

    def __init__(self, epsilon=None, noise_multiplier=None, random_state=None):
        self.epsilon = epsilon
        self.noise_multiplier = noise_multiplier
        self.random_state = random_state

    def fit(self, X):
        rng = np.random.default_rng(self.random_state)
        scale = 0.0 if self.epsilon is None else 1 / self.epsilon
        if self.noise_multiplier is not None:
            scale = self.noise_multiplier
            self.epsilon_ = 1 / scale
        self.rows_ = self._noisy(X, scale, rng)
        return self

    def sample(self, n, random_state):
        chosen = np.random.default_rng(random_state).integers(len(self.rows_), size=n)
        return framework.take(self.rows_, chosen)

    def reconstruct(self, X, random_state, sampled):
        assert sampled
        known, given = (np.asarray(r, dtype=float) for r in (self.rows_, X))
        known, flat = known.reshape(len(known), -1), given.reshape(len(X), -1)
        nearest = ((flat[:, None] - known) ** 2).sum(2).argmin(1)
        return known[nearest].reshape(X.shape)

    def _noisy(self, X, scale, rng):
        if not isinstance(X, pd.DataFrame):
            return X + rng.normal(0, scale, X.shape)
        numbers = X.select_dtypes("number").columns
        noise = rng.normal(0, scale, X[numbers].shape)
        return X.assign(**(X[numbers] + noise)).reset_index(drop=True)


class TableCopier(Copier):
    """The same, attacked by the density of its rows."""

    reconstruct = property()

    def score_samples(self, rows):
        own = self.rows_.select_dtypes("number").to_numpy()
        given = rows.select_dtypes("number").to_numpy()
        return -((given[:, None] - own) ** 2).sum(2).min(1)


class Bare(BaseEstimator):
    """Has what every synthesizer has, and no more."""

    def __init__(self, epsilon=None):
        self.epsilon = epsilon

    def fit(self, X):
        return self

    def sample(self, n, random_state):
        return None


class Noise(TransformerMixin, BaseEstimator):
    """Adds noise of scale 1 / epsilon."""

    def __init__(self, epsilon=1.0, random_state=None):
        self.epsilon = epsilon
        self.random_state = random_state

    def fit(self, X, y=None):
        self.n_ = len(X)
        return self

    def transform(self, X):
        rng = np.random.default_rng(self.random_state)
        return X + rng.normal(0, 1 / self.epsilon, X.shape)


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    return X.assign(a=X["a"] + 3 * y), pd.Series(y, name="ill")


def arrays(n=160, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return rng.normal(size=(n, 2, 3)) + 3 * y[:, None, None], y


def run(**options):
    X, y = table()
    options = ATTACK | {"classifier": LogisticRegression()} | options
    return privacy_utility_tradeoff(TableCopier(), X, y, **options)


def test_noise_costs_accuracy_and_attack():
    found = run(epsilons=[0.1, 100.0], local={"noise": [Noise(0.2)]})
    assert found.groupby(["mechanism", "scope"]).size().to_dict() == {
        ("real rows", ""): 2, ("no privacy", ""): 2, ("central", ""): 4,
        ("noise", "train"): 2, ("noise", "full"): 2,
    }  # fmt: skip
    mean = found.groupby(["mechanism", "scope", "value"], dropna=False).mean(
        numeric_only=True
    )
    plain, weak = mean.loc["no privacy"].iloc[0], mean.loc["central", "", 100.0]
    strong = mean.loc["central", "", 0.1]
    assert plain["average_precision"] == weak["average_precision"] == 1
    assert plain["accuracy"] > 0.88
    assert strong["average_precision"] < 0.65
    assert strong["accuracy"] < plain["accuracy"] - 0.05
    train, full = mean.loc["noise", "train", 0.2], mean.loc["noise", "full", 0.2]
    # Rows as they left their owners are in the table; those behind them are not.
    assert full["average_precision"] == 1
    assert train["average_precision"] < 0.7
    assert full["accuracy"] < train["accuracy"]
    assert found["epsilon"].tolist()[:4] == pytest.approx(
        [np.nan, np.inf, 0.1, 100], nan_ok=True
    )


def test_phi_is_against_no_privacy_at_the_same_seed():
    found = run(epsilons=[0.3])
    for seed, lines in found.groupby("seed"):
        by = lines.set_index("mechanism")
        plain, central = by.loc["no privacy"], by.loc["central"]
        given = (
            plain["accuracy"], central["accuracy"], plain["average_precision"],
            central["average_precision"], central["chance"],
        )  # fmt: skip
        assert central["phi"] == phi(*given), seed
        assert central["bounded_phi"] == bounded_phi(*given)
        assert np.isnan(by["phi"]["real rows"])


def test_split_has_as_many_others_as_members_and_no_row_twice():
    X, y = table(301)
    study = study_of(X, y)
    members, others, test = study.split(3)
    assert len(members) == len(others) == 120
    assert len(test) == 61
    assert len(np.unique(np.concatenate([members, others, test]))) == 301
    assert abs(y[members].mean() - y[test].mean()) < 0.02
    assert not np.array_equal(members, study.split(4)[0])


def study_of(X, y):
    rows, codes, classes, target = framework._read(X, y)
    return framework.Study(
        TableCopier(), rows, codes, classes, target, LogisticRegression(),
        "likelihood", 1, "mixed", 100, 0.2, None,
    )  # fmt: skip


def test_generators_learn_members_and_classifiers_never_see_real_rows(monkeypatch):
    X, y = table()
    study = study_of(X, y)
    fitted, trained = [], []
    fit = TableCopier.fit
    monkeypatch.setattr(
        TableCopier, "fit", lambda self, X: (fitted.append(X), fit(self, X))[1]
    )
    accuracies = framework.Study.accuracies
    monkeypatch.setattr(
        framework.Study,
        "accuracies",
        lambda self, train, tests, *rest: (
            trained.append((train[0], tests[0])),
            accuracies(self, train, tests, *rest),
        )[1],
    )
    setting = framework.Setting("central", 0, "epsilon", 1.0)
    framework._run(0, study, setting)
    members, _, test = study.split(0)
    pd.testing.assert_frame_equal(fitted[0][["a", "b", "c"]], X.iloc[members])
    assert fitted[0]["ill"].astype(int).tolist() == y.iloc[members].tolist()
    pd.testing.assert_frame_equal(trained[0][1], X.iloc[test])
    assert not np.isin(trained[0][0]["a"], X["a"]).any()


def test_local_mechanisms_are_fitted_to_members_alone(monkeypatch):
    X, y = arrays()
    seen = []
    monkeypatch.setattr(
        Noise, "fit", lambda self, X, y=None: (seen.append(len(X)), self)[1]
    )
    privacy_utility_tradeoff(Copier(), X, y, local={"n": [Noise(2.0)]}, **ATTACK)
    assert seen == [64, 64]
    bytes_ = (X * 9).clip(0, 255).astype(np.uint8)
    setting = framework.Setting("n", 0, local=Noise(0.01))
    out, _ = study_of(bytes_, y).perturbed(setting, np.arange(4))
    assert out.dtype == np.uint8
    assert out.min() == 0
    assert out.max() == 255


def test_flat_transformers_take_arrays_and_tell_what_a_record_costs():
    X, y = arrays()
    pixels = X.clip(0, 1).repeat(4, 1).repeat(3, 2)
    local = {
        "laplace": [LaplaceRandomizer(epsilon=9.0, bounds=(-3, 6))],
        "cells": [ImagePixelizer(epsilon=2.0, cell=4)],
    }
    options = {"n_draws": 2, "seeds": (0,), "local": local}
    found = privacy_utility_tradeoff(Copier(), pixels, y, **options)
    assert found.groupby("mechanism")["epsilon"].first()["laplace"] == 9
    # Of neighbours that differ in one of 72 pixels: 2.
    assert found.groupby("mechanism")["epsilon"].first()["cells"] == 2 * 72


def test_arrays_get_a_synthesizer_per_class():
    X, y = arrays()
    found = privacy_utility_tradeoff(
        Copier(), X, y, epsilons=[0.05], noise_multipliers=[4.0], **ATTACK
    )
    plain = found[found["mechanism"] == "no privacy"]
    assert (plain["average_precision"] == 1).all()
    assert (plain["accuracy"] > 0.85).all()
    noisy = found[found["parameter"] == "noise_multiplier"]
    assert (noisy["epsilon"] == 0.25).all()
    assert (found[found["value"] == 0.05]["average_precision"] < 0.7).all()


def test_what_is_set_is_not_called_epsilon_where_it_is_none():
    generator = SimpleNamespace(models=[object()])
    for parameter, expected in {"epsilon": 3.0, "sigma": np.nan}.items():
        setting = framework.Setting("central", 0, parameter, 3.0)
        np.testing.assert_equal(framework._epsilon(generator, setting), expected)


def test_no_exact_count_of_a_class_shows():
    rows = np.zeros((120, 4, 4), dtype=np.uint8)
    y = (np.arange(120) < 20).astype(int)
    small = DPArrayVAESynthesizer(epsilon=1.0, n_steps=2, noise="reproducible")
    private = ClassGenerator(small.set_params(random_state=0), 2)
    private.fit((rows, y))
    released = [model.privacy_.plan.n_rows for model in private.models]
    drawn = private.sample(4000, 0)[1]
    assert drawn.mean() == pytest.approx(released[1] / sum(released), abs=0.03)
    open_ = ClassGenerator(Copier(), 2)
    open_.fit((rows, y))
    assert open_.sample(4000, 0)[1].mean() == pytest.approx(0.5, abs=0.03)


@pytest.mark.thorough
def test_real_synthesizers_run():
    X, y = table(240)
    vae = DPVAESynthesizer(epsilon=7.0, n_steps=5)
    options = {"epsilons": [5.0], "n_draws": 2, "seeds": (0,)}
    noise = {"noise_multipliers": [0.7]}
    found = privacy_utility_tradeoff(vae, X.round(1), y, **options, **noise)
    assert found["average_precision"].notna().sum() == 3
    assert found["epsilon"].iloc[2] <= 5
    assert 1 < found["epsilon"].iloc[3] < 1000
    images = np.random.default_rng(0).integers(0, 256, (240, 8, 8)).astype(np.uint8)
    vae = DPArrayVAESynthesizer(n_steps=3)
    found = privacy_utility_tradeoff(vae, images, y, **options)
    again = privacy_utility_tradeoff(vae, images, y, n_jobs=2, **options)
    pd.testing.assert_frame_equal(
        found.drop(columns="seconds"), again.drop(columns="seconds")
    )
    assert found.loc[1:, "ssim"].between(-0.2, 0.5).all()


def test_arrays_go_with_their_labels_where_classes_are_stated():
    images = np.zeros((240, 8, 8), dtype=np.uint8)
    y = np.arange(240) % 2
    images[:, 2:6, 2:6] = 90 * (1 + y[:, None, None])
    images += np.random.default_rng(0).integers(0, 40, images.shape).astype(np.uint8)
    vae = DPArrayVAESynthesizer(classes=[1, 0])
    options = {"n_draws": 2, "seeds": (0,), "epsilons": [20.0]}
    found = privacy_utility_tradeoff(vae, images, y, **options)
    assert (found["accuracy"] > 0.9).all()
    assert found["epsilon"].iloc[2] <= 20


def test_classifiers_of_arrays_get_them_as_they_are():
    class Shape(LogisticRegression):
        def __sklearn_tags__(self):
            tags = super().__sklearn_tags__()
            tags.input_tags.three_d_array = True
            return tags

        def fit(self, X, y):
            assert X.ndim == 3
            return super().fit(X.reshape(len(X), -1), y)

        def predict(self, X):
            return super().predict(X.reshape(len(X), -1))

    assert get_tags(Shape()).input_tags.three_d_array
    X, y = arrays()
    options = ATTACK | {"epsilons": [9.0]}
    as_given = privacy_utility_tradeoff(Copier(), X, y, classifier=Shape(), **options)
    flat = LogisticRegression()
    found = privacy_utility_tradeoff(Copier(), X, y, classifier=flat, **options)
    assert as_given["accuracy"].tolist() == found["accuracy"].tolist()


def test_a_record_serves_one_study_at_a_time(tmp_path):
    path = tmp_path / "fits.jsonl"
    with locked(path), pytest.raises(BlockingIOError, match="in use"):
        run(epsilons=[1.0], record=path)


def test_a_record_spares_finished_fits(tmp_path, monkeypatch):
    path, runs = tmp_path / "study.jsonl", []
    original = framework._run
    monkeypatch.setattr(
        framework, "_run", lambda *a: (runs.append(a[2]), original(*a))[1]
    )
    first = run(epsilons=[1.0], record=path)
    assert len(runs) == 6
    again = run(epsilons=[1.0], record=path)
    assert len(runs) == 6
    pd.testing.assert_frame_equal(first, again)
    run(epsilons=[1.0, 2.0], record=path)
    assert [each.value for each in runs[6:]] == [2.0, 2.0]
    # A study of other rows, or with another attack, is another study.
    run(epsilons=[1.0], n_attacked=60, record=path)
    assert len(runs) == 14
    # Stopped in the middle of a line.
    path.write_text(path.read_text()[:-20])
    run(epsilons=[1.0], n_attacked=60, record=path)
    assert len(runs) == 15
    assert all(json.loads(line)["key"] for line in path.read_text().splitlines())
    run(epsilons=[1.0], n_attacked=60, record=path)
    assert len(runs) == 15


def test_the_same_values_in_another_form_are_another_study():
    X = np.arange(600).reshape(100, 3, 2) % 2 > 0
    texts = pd.DataFrame(X.reshape(100, 6).astype(str), columns=list("abcdef"))
    levels = [*map(str, range(200)), "True", "False"]
    forms = [
        X, X[..., None], X.reshape(100, 2, 3), X.astype(np.uint8),
        texts, texts.rename(columns=str.upper),
        texts.astype("category"), texts.astype(pd.CategoricalDtype(levels)),
        texts.astype(pd.CategoricalDtype([*levels[:100], "?", *levels[101:]])),
    ]  # fmt: skip
    nothing = dict.fromkeys(framework.Study.__dataclass_fields__)
    setting, y = framework.Setting("central", 0), np.arange(100) % 2
    keys = [
        framework.Study(**nothing | {"X": rows, "y": y}).keys([setting])[0]
        for rows in forms
    ]
    assert len(set(keys)) == len(forms)


def test_the_picture_has_a_panel_per_measure():
    found = run(epsilons=[0.1, 10.0], local={"noise": [Noise(0.2), Noise(2.0)]})
    figure = plot_tradeoff(found, title="toy")
    assert len(figure.axes) == 3
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [
        "guessing", "real rows", "no privacy", "central privacy", "noise, train",
        "noise, full", "gain equals loss",
    ]  # fmt: skip
    central = figure.axes[1].containers[0].lines[0]
    np.testing.assert_array_equal(central.get_xdata(), [0.1, 10.0])
    middle = found[found["value"] == 10.0].query("mechanism == 'central'")
    expected = middle["average_precision"].median()
    assert central.get_ydata()[1] == pytest.approx(expected)
    # What was set by its noise is no point of the curve of stated epsilons.
    by_noise = found.query("mechanism == 'central'").replace(
        "epsilon", "noise_multiplier"
    )
    figure = plot_tradeoff(pd.concat([found, by_noise.assign(epsilon=3.0, value=1.0)]))
    first, *_, second = figure.axes[1].containers
    np.testing.assert_array_equal(first.lines[0].get_xdata(), [0.1, 10.0])
    np.testing.assert_array_equal(second.lines[0].get_xdata(), [3.0])
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "central privacy, stated noise" in labels


def test_the_picture_is_the_same_of_a_file_of_text(tmp_path):
    found = run(epsilons=[0.1, 10.0])
    found.to_csv(tmp_path / "study.csv", index=False)
    figures = [plot_tradeoff(x) for x in (found, pd.read_csv(tmp_path / "study.csv"))]
    labels = [[t.get_text() for t in f.legends[0].get_texts()] for f in figures]
    assert labels[0] == labels[1]
    assert "central privacy" in labels[0]


def test_tables_of_other_libraries_are_tables():
    polars = pytest.importorskip("polars")
    X, y = table()
    X = X.assign(town=np.where(X["b"] > 0, "Oslo", "Rome"))
    options = {**ATTACK, "epsilons": [1.0], "classifier": LogisticRegression()}
    own = privacy_utility_tradeoff(TableCopier(), X, y, **options)
    theirs = polars.from_pandas(X), polars.Series("ill", y.to_numpy())
    found = privacy_utility_tradeoff(TableCopier(), *theirs, **options)
    figures = ["mechanism", "seed", "accuracy", "auc"]
    pd.testing.assert_frame_equal(found[figures], own[figures])


def test_settings_may_be_numbers_of_numpy(tmp_path):
    path = tmp_path / "study.jsonl"
    plain = run(epsilons=[1, 2], seeds=[0, 1], record=path)
    lines = path.read_text().splitlines()
    found = run(epsilons=np.array([1, 2]), seeds=np.arange(2), record=path)
    pd.testing.assert_frame_equal(found, plain)
    assert path.read_text().splitlines() == lines


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "noise_multipliers or local"),
        ({"epsilons": [1.0], "seeds": ()}, "seeds"),
        ({"epsilons": [1.0], "test_size": 1.0}, "test_size"),
        ({"epsilons": [1.0], "n_draws": 0}, "n_draws"),
        ({"epsilons": [1.0], "attack": "magic"}, "'attack'"),
        ({"epsilons": [1.0], "distance": "far"}, "'distance'"),
        ({"epsilons": 1.0}, "'epsilons' .* must be a list"),
        ({"epsilons": [0.0]}, "'epsilons' .* must be a number"),
        ({"epsilons": [1.0], "seeds": 3}, "'seeds' .* must be a list"),
        ({"epsilons": [1.0], "seeds": [0, 0]}, "'seeds' .* must be different"),
        ({"epsilons": [1.0], "seeds": [-1]}, "'seeds' .* must be an integer"),
        ({"epsilons": [1.0], "n_synthetic": 0}, "'n_synthetic'"),
        ({"epsilons": [1.0], "y": np.zeros(300)}, "with 1 classes"),
        ({"epsilons": [1.0], "y": np.zeros(7)}, "a label per row"),
        ({"epsilons": [1.0], "y": pd.Series(range(300), name="a")}, "column 'a'"),
    ],
)
def test_wrong_values_are_named(options, message):
    X, y = table()
    y = options.pop("y", y)
    with pytest.raises(ValueError, match=message):
        privacy_utility_tradeoff(TableCopier(), X, y, **options)


@pytest.mark.parametrize(
    ("estimator", "options", "message"),
    [
        (LogisticRegression(), {}, "takes a synthesizer"),
        (TableCopier(), {"attack": "reconstruction"}, "is not among"),
        (TableCopier(), {"local": {"x": [LogisticRegression()]}}, "epsilon, fit and"),
        (TableCopier(), {"local": [Noise(2.0)]}, "must be a mapping"),
        (TableCopier(), {"local": {"x": Noise(2.0)}}, "'x'. must be a list"),
        (Bare(), {"noise_multipliers": [1.0]}, "no parameter noise_m"),
    ],
)
def test_wrong_kinds_are_named(estimator, options, message):
    X, y = table()
    with pytest.raises(TypeError, match=message):
        privacy_utility_tradeoff(estimator, X, y, epsilons=[1.0], **options)


def test_perturbed_tables_keep_their_dtypes():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"n": rng.integers(0, 9, 240), "flag": rng.random(240) < 0.5})
    y = pd.Series(np.where(X["n"] > 4, "hi", "lo"), name="y")
    schema = Schema([Column("n", "integer", lower=0, upper=8)])
    vae = DPVAESynthesizer(n_steps=3, schema=schema)
    local = {"noise": [LaplaceRandomizer(epsilon=50.0, schema=schema)]}
    found = privacy_utility_tradeoff(vae, X, y, local=local, seeds=(0,), n_draws=2)
    assert found.query("mechanism == 'noise'")["accuracy"].notna().all()
