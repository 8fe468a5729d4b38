"""Columns of which nothing is released: said at `fit`, from what is released."""

from __future__ import annotations

import datetime as dt
import warnings

import numpy as np
import pandas as pd
import pytest

from dpgenerative import Column, DPHFlowSynthesizer, DPVAESynthesizer, Schema
from dpgenerative.exceptions import LostColumnWarning
from dpgenerative.privacy.budget import Trial
from dpgenerative.privacy.ledger import Ledger

DAY = dt.date(2020, 1, 1)


def lossy(n=300):
    """Return a table of which only the first column can be learned as it stands."""
    frame = pd.DataFrame({"fine": np.arange(n) % 3 == 0})
    frame["key"] = [f"person {i}" for i in range(n)]
    frame["born"] = pd.Series([DAY + dt.timedelta(i) for i in range(n)], dtype=object)
    frame["woke"] = pd.Series([dt.time(i % 24, i % 60) for i in range(n)], dtype=object)
    frame["tags"] = [["a"] for _ in range(n)]
    frame["note"] = ["none" if i % 4 == 0 else f"saw {i}" for i in range(n)]
    return frame


def fitted(frame, **options):
    return (
        DPHFlowSynthesizer().set_params(n_steps=2, random_state=0, **options).fit(frame)
    )


@pytest.mark.parametrize("estimator", [DPHFlowSynthesizer, DPVAESynthesizer])
def test_lost_columns_are_named_at_fit(estimator):
    with pytest.warns(LostColumnWarning) as caught:
        synthesizer = estimator(n_steps=2, epsilon=20).fit(lossy(2000))
    (warning,) = caught
    text = str(warning.message)
    assert "be found in key, born, woke, tags: what is sampled there means" in text
    assert "Most values in note are missing or too rare" in text
    assert 'role="id"' in text
    assert text in synthesizer.privacy_.notes
    assert warning.filename == __file__


@pytest.mark.filterwarnings("error")
def test_what_is_stated_is_not_lost():
    schema = Schema(
        [
            Column("key", "categorical", role="id"),
            Column("born", "datetime", resolution="D"),
        ]
    )
    rows = fitted(lossy()[["fine", "key", "born"]], epsilon=4, schema=schema)
    assert not any("found in" in note for note in rows.privacy_.notes)


def test_values_that_are_not_of_their_column_are_said():
    frame = pd.DataFrame({"price": np.full(2000, np.nan), "pool": ["Y", "N"] * 1000})
    levels = Column("pool", "categorical", levels=["yes", "no"])
    with pytest.warns(LostColumnWarning, match="Nearly all values in pool, price are"):
        fitted(frame, epsilon=4, schema=Schema([Column("price", "integer"), levels]))


def test_texts_that_are_no_dates_are_said():
    frame = pd.DataFrame({"born": pd.Series(["31.12.2020"] * 300, dtype=object)})
    with pytest.warns(LostColumnWarning, match="in born are missing, or neither dates"):
        fitted(frame, epsilon=None, schema=Schema([Column("born", "datetime")]))


def test_trials_of_a_search_do_not_warn():
    """What is not chosen is not released."""
    synthesizer = DPHFlowSynthesizer(epsilon=4, n_steps=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        synthesizer._fit(lossy(), trial=Trial(300, Ledger()))
    assert "found in key" in synthesizer.privacy_.notes[0]
