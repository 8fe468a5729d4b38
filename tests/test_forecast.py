"""Forecasts, and the warning of a budget that leaves little but noise."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

from dpgenerative import (
    Column,
    Composition,
    Determines,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    Impossible,
    LessEqual,
    Schema,
    forecast,
)
from dpgenerative.cli import main
from dpgenerative.encoding.marginals import DOMAIN_SHARE
from dpgenerative.exceptions import HopelessBudgetWarning
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.report import cautions
from dpgenerative.synthesizers import expected
from dpgenerative.tables.private import opened
from tests.plans import make_plan

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

SCHEMA = Schema(
    [
        Column("ward", "categorical", levels=("A", "B", "C"), nullable=False),
        Column("age", "integer", lower=0, upper=120, nullable=False),
        Column("weight", "continuous", lower=0, upper=200, nullable=False),
        Column("height", "continuous", nullable=False),
        Column("town", "categorical", nullable=True),
    ]
)
STAY = {"lower": "2020-01-01", "upper": "2020-12-31", "resolution": "D"}
ORDERED = Schema(
    [*SCHEMA.columns, *(Column(n, "datetime", **STAY) for n in ("came", "went"))],
    constraints=[LessEqual("came", "went")],
)
FITS = {"flow": DPHFlowSynthesizer, "vae": DPVAESynthesizer}


def table(n):
    rng = np.random.default_rng(0)
    came = pd.Timestamp("2020-02-01") + pd.to_timedelta(rng.integers(0, 90, n), "D")
    return pd.DataFrame(
        {
            "ward": rng.choice(["A", "B", "C"], n),
            "age": rng.integers(0, 100, n),
            "weight": rng.normal(80, 10, n),
            "height": rng.normal(170, 10, n),
            "town": pd.Series(rng.choice(["X", "Y"], n), dtype=object),
            "came": came,
            "went": came + pd.to_timedelta(rng.integers(0, 30, n), "D"),
        }
    )


@pytest.fixture
def stds(monkeypatch):
    """Row counts are released as they are; noise of counts is written down."""
    seen = []
    gaussian = Mechanisms.gaussian

    def recorded(self, values, std, **facts):
        seen.append(std)
        return gaussian(self, values, std, **facts)

    def exact(self, rows, epsilon):
        self.ledger.count(len(opened(rows)), epsilon)
        return len(opened(rows))

    monkeypatch.setattr(Mechanisms, "gaussian", recorded)
    monkeypatch.setattr(Mechanisms, "count", exact)
    return seen


@pytest.mark.thin(3)
@pytest.mark.parametrize("schema", [SCHEMA, ORDERED], ids=["plain", "ordered"])
@pytest.mark.parametrize("model", FITS)
def test_what_is_forecast_is_what_a_fit_does(stds, model, schema):
    ahead = forecast(schema, 3000, 2.0, model=model, n_steps=2)
    rows = table(3000)[list(schema.names)]
    fit = FITS[model](epsilon=2.0, schema=schema, n_steps=2).fit(rows)
    assert ahead.plan == fit.privacy_.plan
    for noise in ahead.columns["noise_rows"]:
        assert any(noise == pytest.approx(std, rel=1e-9) for std in stds)
    counted = ahead.columns.set_index("column")
    assert counted["noise_share"].to_numpy() == pytest.approx(
        counted["noise_rows"].to_numpy() / 3000
    )
    told = 3000 / (5 * counted["noise_rows"])
    expected = np.minimum(counted["cells"], np.floor(told))
    assert counted["cells_above_noise"].tolist() == expected.tolist()
    assert counted.loc["ward", "cells"] == 3
    if schema is ORDERED:  # the bounds of increments of times are found
        came, went = counted.loc[["came", "went"], "noise_rows"]
        assert went == pytest.approx(came / np.sqrt(1 - DOMAIN_SHARE))


def test_the_outlook_follows_rows_and_epsilon():
    with np.errstate(all="raise"):
        outlooks = [forecast(SCHEMA, n, 1.0).outlook for n in (50, 500, 50_000)]
    assert outlooks == ["hopeless", "marginals only", "good"]
    assert forecast(SCHEMA, 500, 0.1).outlook == "hopeless"
    # Rows per column would do, but not against the noise of the row count.
    one = Schema([Column("smokes", "boolean", nullable=False)])
    assert forecast(one, 100, 1.0).outlook == "hopeless"
    assert forecast(one, 1000, 1.0).outlook == "good"
    assert "Outlook: hopeless" in str(forecast(one, 100, 1.0))
    assert "Little but noise" not in str(forecast(one, 100, 1.0))  # said already
    large = str(forecast(one, 2000, 1.0, 1e-3))
    assert "delta 0.001 should be below 1/n (about 5e-04 here" in large
    assert "Without training" in str(forecast(one, 2000, 1.0, n_steps=0))


def test_a_column_that_may_have_missing_values_has_a_cell_for_them():
    columns = [Column("a", "boolean", nullable=known) for known in (False, True, None)]
    cells = [forecast(Schema([each]), 100).columns["cells"][0] for each in columns]
    assert cells == [2, 3, 3]


@pytest.mark.parametrize("model", FITS)
def test_a_hopeless_budget_is_warned_of(stds, model):
    synthesizer = FITS[model](epsilon=1.0, schema=SCHEMA, n_steps=2)
    with pytest.warns(HopelessBudgetWarning, match="from 50 rows") as caught:
        synthesizer.fit(table(50))
    assert {warning.filename for warning in caught} == {__file__}
    assert any("Little but noise" in note for note in synthesizer.privacy_.notes)


def test_others_are_not(stds):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        few = DPHFlowSynthesizer(epsilon=1.0, schema=SCHEMA, n_steps=2).fit(table(500))
        free = DPHFlowSynthesizer(epsilon=None, n_steps=2).fit(table(50))
    assert "Few relations" in few.privacy_.notes[0]
    assert not any("Few relations" in note for note in free.privacy_.notes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"delta": 1e-3}, "delta 0.001 should be below 1/n"),
        ({"epsilon": 20.0}, "next to"),
    ],
)
def test_weak_guarantees_are_noted(changes, words):
    facts = {
        "epsilon": 1.0, "delta": 1e-5, "n_rows": 50_000, "sampling_rate": 1.0,
        "n_steps": 10, "marginal_budget": 0.5, "has_open_keys": False,
    }  # fmt: skip
    assert cautions(make_plan(**facts), 5) == ()
    (caution,) = cautions(make_plan(**{**facts, **changes}), 5)
    assert words in caution


def test_the_command_forecasts(tmp_path, capsys):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA.to_dict()))
    arguments = ["forecast", str(path), "--rows", "500", "--epsilon", "1"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert out.strip() == str(forecast(SCHEMA, 500, 1.0)).strip()
    assert main([*arguments, "--set", "n_steps=7"]) == 0
    assert "7 steps" in capsys.readouterr().out
    assert main([*arguments, "--errors"]) == 0
    table = capsys.readouterr().out.split("as many real rows):\n")[1].splitlines()
    assert [line.split()[0] for line in table[1:]] == list(SCHEMA.names)


@pytest.mark.thorough
def test_expected_errors_are_those_of_releases():
    columns = [
        Column("x", "continuous", lower=0, upper=12, nullable=False),
        Column("day", "datetime", **STAY, nullable=False),
        Column("sex", "categorical", levels=("f", "m"), nullable=False),
    ]
    n = 4000
    errors = forecast(Schema(columns), n).expected_errors(40, 0, verbose=0)
    assert errors["column"].tolist() == ["x", "day", "sex"]
    assert errors["of"].tolist() == ["mean", "mean", "share"]
    # Of people: those of a uniform law.
    uniform = np.array([12 / np.sqrt(12), 366 / np.sqrt(12), 0.5]) / np.sqrt(n)
    assert (errors["people"] / uniform).to_numpy() == pytest.approx(1, abs=0.3)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "x": rng.uniform(0, 12, n),
            "day": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(np.arange(n) % 366, "D"),
            "sex": rng.choice(["f", "m"], n),
        }
    )
    flow = DPHFlowSynthesizer(schema=Schema(columns), noise="reproducible")
    off = []
    for seed in range(12):
        drawn = flow.set_params(random_state=seed).fit(rows).sample(n)
        shares = (drawn["sex"] == "f").mean() - (rows["sex"] == "f").mean()
        off.append([drawn["x"].mean() - rows["x"].mean(), shares])
    squares = np.square(errors[["people", "error"]].to_numpy()[[0, 2]])
    added = np.sqrt(squares[:, 1] - squares[:, 0])
    assert np.sqrt(np.square(off).mean(axis=0)) / added == pytest.approx(1, abs=0.6)


@pytest.mark.thorough
def test_expected_errors_shrink_as_rows_grow(monkeypatch):
    monkeypatch.setattr(expected, "MOST_SIMULATED", 4000)
    few, more, most = (
        forecast(SCHEMA, n).expected_errors(3, 0, verbose=0)["error"]
        for n in (300, 5000, 10**6)
    )
    assert (few > more).all()
    assert (more > most).all()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((Schema([]), 100), "Schema with columns"),
        ((SCHEMA, 0), "n_rows"),
        ((SCHEMA, 10**9 + 1), r"'n_rows' .* must be an integer in \[1, 1e\+09\]"),
        ((SCHEMA, 100, None), "epsilon"),
        ((SCHEMA, 100, np.inf), "epsilon"),
    ],
)
def test_what_cannot_be_forecast_is_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        forecast(*arguments)


def test_constraints_on_columns_that_are_not_stated_change_nothing():
    more = Schema(SCHEMA.columns, [LessEqual("age", "limit")])
    assert str(forecast(more, 500)) == str(forecast(SCHEMA, 500))


@pytest.mark.parametrize(
    ("constraint", "match"),
    [
        (LessEqual("ward", "age"), "needs numbers or times in 'ward'"),
        (LessEqual("age", "age"), "compares 'age' with itself"),
        (LessEqual("key", "age"), "speaks of the identifiers 'key'"),
        (Impossible({"age": 999}), "999 on the column 'age' can never hold"),
        (Determines(["town"], "ward", {"X": "Z"}), "'Z' on the column 'ward' can nev"),
    ],
)
def test_constraints_that_a_fit_refuses_are_refused(constraint, match):
    key = Column("key", "integer", role="id")
    with pytest.raises(ValueError, match=match):
        forecast(Schema([key, *SCHEMA.columns], [constraint]), 500)


def test_models_that_count_no_cells_or_are_not_known_are_refused():
    with pytest.raises(ValueError, match="anchored"):
        forecast(SCHEMA, 100, architecture__anchored=False)
    with pytest.raises(ValueError, match="Invalid parameter 'n_bims'"):
        forecast(SCHEMA, 100, architecture__n_bims=8)
    with pytest.raises(ValueError, match=r"'model' .* one of \('flow', 'vae'"):
        forecast(SCHEMA, 100, model="gan")


def test_bounds_of_a_composition_are_those_of_its_total():
    names = ["a", "b", "c"]
    bare = [Column(name, "continuous") for name in names]
    stated = [Column(name, "continuous", lower=0, upper=1) for name in names]
    rules = [Composition(names)]
    ahead, expected = (forecast(Schema(c, rules), 1000) for c in (bare, stated))
    pd.testing.assert_frame_equal(ahead.columns, expected.columns)
