"""A model of one's own in one file: all rooms and the command line work with it."""

from __future__ import annotations

import json
import sys
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from dpgenerative import (
    Column,
    PrivateSearch,
    Schema,
    TableSynthesizer,
    forecast,
    load,
)
from dpgenerative.audit import audit_mechanism, audit_release, audit_training
from dpgenerative.cli import main
from dpgenerative.inference import bootstrap
from dpgenerative.persistence.registry import ESTIMATORS, MODELS
from tests.toy_model import PairRecipe, PairSynthesizer

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

LEVELS = ["no", "yes"]
SCHEMA = Schema([Column(name, "categorical", levels=LEVELS) for name in ("a", "b")])


def table(n=4000):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, n)
    b = np.where(rng.random(n) < 0.9, a, 1 - a)
    return pd.DataFrame({"a": np.take(LEVELS, a), "b": np.take(LEVELS, b)})


def test_it_learns_the_pair_under_a_guarantee():
    synthesizer = PairSynthesizer(schema=SCHEMA, random_state=0).fit(table())
    sample = synthesizer.sample(4000, random_state=0)
    assert 0.8 < (sample["a"] == sample["b"]).mean() < 0.98  # 0.5 if independent
    assert 0.99 < synthesizer.epsilon_ <= 1
    assert "gradient steps" in str(synthesizer.privacy_)


def test_conditions_clones_and_audits_work_without_another_line():
    synthesizer = clone(PairSynthesizer(schema=SCHEMA, n_steps=5)).fit(table(300))
    assert set(synthesizer.sample(20, given={"b": "yes"})["b"]) == {"yes"}
    assert audit_mechanism(synthesizer, n_trials=200, random_state=0).holds
    assert audit_training(synthesizer, table(100), n_canaries=20, random_state=0).holds
    few = PairSynthesizer(n_steps=2)
    assert audit_release(few, table(20), pair="missing", n_runs=4).holds


def test_files_and_forecasts_work_without_another_line(tmp_path):
    synthesizer = PairSynthesizer(schema=SCHEMA, n_steps=5).fit(table(300))
    path = tmp_path / "pair.dpg"
    synthesizer.save(path)
    again = load(path)
    assert type(again) is PairSynthesizer
    drawn = again.sample(50, random_state=3)
    pd.testing.assert_frame_equal(drawn, synthesizer.sample(50, random_state=3))
    plan = forecast(SCHEMA, 300, model="pair", n_steps=5).plan
    assert (plan.n_steps, plan.n_rows) == (5, 300)
    assert [release.name for release in plan.releases] == [
        release.name for release in synthesizer.privacy_.plan.releases
    ]


def test_intervals_work_without_another_line():
    synthesizer = PairSynthesizer(schema=SCHEMA, n_steps=5).fit(table(300))
    share = lambda rows: (rows["a"] == "yes").mean()  # noqa: E731
    result = bootstrap(synthesizer, share, 3, random_state=0, verbose=0)
    assert 0 < result.standard_error.iloc[0] < 0.5
    assert result.replicates.shape == (3, 1)


def test_a_private_search_works_without_another_line():
    search = PrivateSearch(
        PairSynthesizer(schema=SCHEMA), {"n_steps": [5, 6]}, epsilon=3.0, mean_trials=2
    ).fit(table(300))
    assert type(search.best_estimator_) is PairSynthesizer
    assert search.best_estimator_.n_steps_ in (5, 6)
    assert 2.9 < search.epsilon_ <= 3


@pytest.fixture
def forgotten(monkeypatch):
    """Let a command begin in a process that has not imported the model."""
    monkeypatch.delitem(MODELS, "pair")
    monkeypatch.delitem(ESTIMATORS, "PairSynthesizer")
    monkeypatch.delitem(sys.modules, "tests.toy_model")


@pytest.mark.usefixtures("forgotten")
def test_the_command_line_works_without_another_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table(300).to_csv("rows.csv", index=False)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA.to_dict()), "utf-8")
    fit = "fit rows.csv --schema schema.json --epsilon 2 --model pair -o pair.dpg"
    fit = [*fit.split(), "--set", "n_steps=5"]
    assert main(fit) == 2
    assert "must be one of ('flow', 'vae')" in capsys.readouterr().err
    assert main(["--import", "no.such_module", *fit]) == 2
    assert "No module named 'no'" in capsys.readouterr().err

    def run(line):
        assert main(["--import", "tests.toy_model", *line.split()]) == 0
        return capsys.readouterr().out

    printed = run(" ".join(fit))
    assert "(2, 1e-05)-differential privacy" in printed
    assert run("report pair.dpg") == printed
    run("sample pair.dpg -n 30 -o drawn.csv --given b=yes")
    drawn = pd.read_csv("drawn.csv")
    assert drawn.shape == (30, 2)
    assert set(drawn["b"]) == {"yes"}
    run("report pair.dpg --real rows.csv -o page.html --quiet")
    assert (tmp_path / "page.html").exists()
    steps = "forecast schema.json --rows 300 --model pair --set n_steps=7"
    assert "Training: 7 steps" in run(f"{steps} --epsilon 1")
    stated = ["--import", "tests.toy_model", *steps.split(), "--noise-multiplier", "2"]
    assert main(stated) == 2  # no parameter of this class
    assert "noise_multiplier" in capsys.readouterr().err


def test_what_is_no_recipe_is_refused():
    with pytest.raises(ValueError, match="'recipe' of TableSynthesizer"):
        TableSynthesizer("pairs").fit(table(30))


# Parameters of a recipe ---------------------------------------------------------------


class ScaledRecipe(PairRecipe):
    rules: ClassVar = {**PairRecipe.rules, "gain": lambda scale: 1 + scale.n_rows}

    def __init__(self, gain="auto"):
        self.gain = gain

    def build(self, facts, scale, generator):
        model = super().build(facts, scale, generator)
        model.gain = self.resolved("gain", scale)
        return model


class ScaledSynthesizer(TableSynthesizer):
    def __init__(self, epsilon=1.0, delta=1e-5, *, gain="auto"):
        super().__init__(epsilon=epsilon, delta=delta, n_steps=5, schema=SCHEMA)
        self.gain = gain

    @property
    def _recipe(self):
        return ScaledRecipe(self.gain)


def test_a_parameter_of_a_recipe_is_one_of_the_synthesizer():
    synthesizer = TableSynthesizer(ScaledRecipe(), schema=SCHEMA, n_steps=5)
    assert synthesizer.fit(table(300))._model.gain > 1
    chosen = clone(synthesizer).set_params(recipe__gain=3)
    assert chosen.fit(table(300))._model.gain == 3
    assert synthesizer.recipe.gain == "auto"
    assert "gain=3" in repr(chosen)


def test_a_parameter_of_a_class_of_ones_own_is_searched_over():
    grid = {"gain": [2, 3], "epsilon": [2.0]}
    search = GridSearchCV(ScaledSynthesizer(), grid, cv=2, scoring=lambda s, X: s.gain)
    search.fit(table(300))
    assert search.best_estimator_._model.gain == 3
    private = PrivateSearch(
        ScaledSynthesizer(), {"gain": [2]}, epsilon=3.0, mean_trials=1.5
    )
    assert private.fit(table(300)).best_estimator_._model.gain == 2
    assert "optimizer__name" not in search.get_params()
    with pytest.raises(ValueError, match="Invalid parameter 'optimizer'"):
        ScaledSynthesizer().set_params(optimizer__learning_rate=0.1)


def test_a_checkpoint_of_other_parameters_of_a_recipe_is_refused(tmp_path):
    def began(self, model, *others):
        raise KeyboardInterrupt

    path, fitted = tmp_path / "unfinished.dpg", {"schema": SCHEMA, "n_steps": 5}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScaledRecipe, "finish", began)
        with pytest.raises(KeyboardInterrupt):
            TableSynthesizer(ScaledRecipe(2), **fitted).fit(table(300), checkpoint=path)
    with pytest.raises(ValueError, match="checkpoint"):
        TableSynthesizer(ScaledRecipe(3), **fitted).fit(table(300), checkpoint=path)


# What a recipe gets wrong -------------------------------------------------------------


class Mistaken(PairRecipe):
    def objective(self, *arguments):
        losses = super().objective(*arguments)
        return lambda indices: (losses(indices)[0].mean(), None)


class Constant(PairRecipe):
    def build(self, facts, scale, generator):
        return super().build(facts, scale, generator).requires_grad_(False)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [(Mistaken(), "one loss per row"), (Constant(), "without parameters")],
)
def test_mistakes_of_a_recipe_are_named(recipe, message):
    with pytest.raises(ValueError, match=message) as error:
        TableSynthesizer(recipe, schema=SCHEMA, n_steps=5).fit(table(300))
    assert not any(letter.isdigit() for letter in str(error.value))  # nothing of rows
