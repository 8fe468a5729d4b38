"""A model of one's own, as the page for contributors shows it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from dpgenerative import Column, Schema, TableSynthesizer
from dpgenerative.audit import audit_mechanism, audit_training
from tests.toy_model import pair_synthesizer

LEVELS = ["no", "yes"]
SCHEMA = Schema([Column(name, "categorical", levels=LEVELS) for name in ("a", "b")])


def table(n=4000):
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2, n)
    b = np.where(rng.random(n) < 0.9, a, 1 - a)
    return pd.DataFrame({"a": np.take(LEVELS, a), "b": np.take(LEVELS, b)})


def test_it_learns_the_pair_under_a_guarantee():
    synthesizer = pair_synthesizer(schema=SCHEMA, random_state=0).fit(table())
    sample = synthesizer.sample(4000, random_state=0)
    assert 0.8 < (sample["a"] == sample["b"]).mean() < 0.98  # 0.5 if independent
    assert 0.99 < synthesizer.epsilon_ <= 1
    assert "gradient steps" in str(synthesizer.privacy_)


def test_conditions_clones_and_audits_work_without_another_line():
    synthesizer = clone(pair_synthesizer(schema=SCHEMA, n_steps=5)).fit(table(300))
    assert set(synthesizer.sample(20, given={"b": "yes"})["b"]) == {"yes"}
    assert audit_mechanism(synthesizer, n_trials=200, random_state=0).holds
    assert audit_training(synthesizer, table(100), n_canaries=20, random_state=0).holds


def test_what_is_no_recipe_is_refused():
    with pytest.raises(ValueError, match="'recipe' of TableSynthesizer"):
        TableSynthesizer("pairs").fit(table(30))
