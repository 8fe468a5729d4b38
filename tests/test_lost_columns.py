"""Columns of which nothing is released: said at `fit`, from what is released."""

from __future__ import annotations

import datetime as dt
import warnings

import numpy as np
import pandas as pd
import pytest

from dpgenerative import Column, DPHFlowSynthesizer, DPVAESynthesizer, Schema, load
from dpgenerative.exceptions import LostColumnWarning
from dpgenerative.privacy.budget import Trial
from dpgenerative.privacy.ledger import Ledger
from dpgenerative.synthesizers import session

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

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
    assert "be released in key, born, woke, tags: the values sampled" in text
    assert "Most values in note were missing or too rare to release" in text
    assert "State the levels in a Schema, or drop the column" in text
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
    assert not any("released in" in note for note in rows.privacy_.notes)


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
        session.run(synthesizer, lossy(), trial=Trial(300, Ledger()))
    assert "released in key" in synthesizer.privacy_.notes[0]


def codes(n=2000):
    """Return integers of which 60 % are rare, and the rest 1 to 4, 1 most often."""
    rng = np.random.default_rng(0)
    known = rng.choice([1, 2, 3, 4], n, p=[0.4, 0.2, 0.2, 0.2])
    rare = rng.integers(1000, 10**6, n)
    return pd.DataFrame({"b": np.where(rng.random(n) < 0.6, rare, known)})


@pytest.mark.parametrize("estimator", [DPHFlowSynthesizer, DPVAESynthesizer])
def test_rare_codes_are_no_further_rows_of_one_level(estimator, tmp_path):
    """They were all read as the first level, and nothing said so."""
    model = estimator(5.0, n_steps=2, categorical_features=["b"], random_state=0)
    with pytest.warns(LostColumnWarning, match="Most values in b were missing or too"):
        model.fit(codes())
    model.save(tmp_path / "m.dpg")
    found = load(tmp_path / "m.dpg").sample(4000, random_state=0)
    assert found["b"].dtype == codes()["b"].dtype
    shares = found["b"].value_counts(normalize=True).sort_index()
    assert shares.index.tolist() == [1, 2, 3, 4]
    assert abs(shares - [0.4, 0.2, 0.2, 0.2]).max() < 0.05
    (note,) = [n for n in model.privacy_.notes if "neither stated nor estim" in n]
    assert 55 < float(note.partition(" % of b.")[0].rpartition(" ")[2]) < 65
    assert "no missing values in b" not in str(model.privacy_)
    assert set(model.sample(20, given={"b": [2, 3]})["b"]) <= {2, 3}
    with pytest.raises(ValueError, match="no value of the column 'b' meets None"):
        model.sample(3, given={"b": None})


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (Column("b", "categorical", levels=[3, 4]), [3, 4]),
        (Column("b", "categorical", levels=[7, 8]), [7, 8]),
        (Column("b", "boolean"), [0, 1]),
    ],
)
def test_codes_that_are_no_level_are_told(column, expected):
    model = fitted(codes(), epsilon=5, schema=Schema([column]))
    assert any("neither stated nor estimated" in n for n in model.privacy_.notes)
    assert set(model.sample(2000)["b"]) == set(expected)


@pytest.mark.filterwarnings("error")
def test_codes_that_all_are_levels_stay_as_they_were():
    frame = codes().query("b < 5")
    for column in (
        Column("b", "categorical", levels=[1, 2, 3, 4]),
        Column("b", "categorical", levels=[2, 3, 4], other=1),
        Column("b", "categorical", levels=[1, 2, 3, 4], nullable=False),
    ):
        model = fitted(frame, epsilon=5, schema=Schema([column]))
        assert not any("were not found" in note for note in model.privacy_.notes)
        assert not model.schema_["b"].nullable


def test_numbers_of_which_nothing_but_0_was_found_are_named():
    frame = pd.DataFrame({"a": np.arange(2000), "gain": [7000] * 20 + [0] * 1980})
    with pytest.warns(
        LostColumnWarning, match="Only 0, or numbers .* released in gain"
    ):
        model = DPHFlowSynthesizer(0.5, n_steps=2, random_state=0).fit(frame)
    assert any("to be released in gain" in n for n in model.privacy_.notes)
    with warnings.catch_warnings(action="error"):
        DPHFlowSynthesizer(None, n_steps=2).fit(frame.assign(gain=0))


def test_columns_of_a_frame_are_nominal_by_position():
    frame = pd.DataFrame({"a": [1, 2] * 50, "b": [3, 4] * 50})
    model = DPHFlowSynthesizer(None, n_steps=2, categorical_features=[1]).fit(frame)
    assert [c.kind for c in model.schema_.columns] == ["integer", "categorical"]
    numbered = frame.set_axis([1, 0], axis=1)
    model.fit(numbered)
    assert model.schema_[1].kind == "categorical"


def test_structure_that_is_not_learned_is_named():
    rng = np.random.default_rng(0)
    codes = rng.choice(40, 2000, p=np.r_[0.9, np.full(39, 0.1 / 39)])
    hours = pd.Timestamp("2020-01-01") + pd.to_timedelta(
        rng.integers(0, 9000, 2000), "h"
    )
    frame = pd.DataFrame({"code": pd.Categorical(codes), "at": hours, "on": hours})
    times = [
        Column(
            name, "datetime", lower="2020-01-01", upper="2021-01-31T23:00",
            resolution="h", cycles=cycles,
        )
        for name, cycles in (("at", ()), ("on", None))
    ]  # fmt: skip
    notes = fitted(frame, schema=Schema(times)).privacy_.notes
    assert any(
        note.startswith("Rare levels of code (39 levels) share") for note in notes
    )
    assert any(note.startswith("Hours and weekdays of at were not") for note in notes)
    plain = fitted(frame[["on"]], schema=Schema(times[1:])).privacy_.notes
    assert not [note for note in plain if note.startswith(("Rare levels", "Hours and"))]
