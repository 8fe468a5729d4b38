"""What goes on within people who have several rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dpgenerative.metrics import rows_with_before, sequence_results


def people(n=2000, seed=0, resemblance=0.6, moves=0.3):
    """Return three rows of each, with a random intercept and a chain of two states."""
    rng = np.random.default_rng(seed)
    key = np.repeat(np.arange(n), 3)
    level = np.repeat(rng.normal(0, np.sqrt(resemblance), n), 3)
    ill = np.zeros((n, 3), dtype=bool)
    for j in (1, 2):
        ill[:, j] = ill[:, j - 1] ^ (rng.random(n) < moves)
    return pd.DataFrame(
        {
            "key": key,
            "day": pd.Timestamp("2020-01-01")
            + pd.to_timedelta(np.tile([0, 7, 20], n), "D"),
            "x": level + rng.normal(0, np.sqrt(1 - resemblance), 3 * n),
            "ill": ill.ravel(),
            "town": pd.Categorical(np.where(key % 4, "A", "B")),
        }
    )


def test_results_are_those_of_the_law():
    table = sequence_results(people(), people(seed=1), "key", "day")
    expected = {
        ("rows per person", ""): 3,
        ("resemblance", "x"): 0.6,
        ("row before", "x"): 0.6,
        ("same as before", "ill"): 0.7,
        ("same as before", "town"): 1,
        ("ever", "ill"): 1 - 0.7**2,
        ("ever", "town: B"): 0.25,
        ("step", "day"): 10,
        ("rows per person (distance)", ""): 0,
    }
    for about, value in expected.items():
        assert table.loc[about, ["real", "synthetic"]].to_numpy() == pytest.approx(
            value, abs=0.04
        ), about
    off = (table["real"] - table["redrawn"]).abs()
    assert off[off.index.get_level_values(0) != "step"].max() < 0.05
    chains = table.loc["transitions"]
    assert (chains["real"] == 0).all()
    assert chains.loc["ill", ["redrawn", "synthetic"]].between(0, 0.04).all()


def test_what_differs_is_shown():
    other = people(seed=1, resemblance=0.2, moves=0.6)
    other = other[(other["key"] % 2 == 0) | ~other["key"].duplicated()]
    table = sequence_results(people(), other, "key", "day")["synthetic"]
    assert table["resemblance", "x"] == pytest.approx(0.2, abs=0.06)
    assert table["transitions", "ill"] == pytest.approx(0.3, abs=0.04)
    assert table["rows per person", ""] == pytest.approx(2)
    assert table["rows per person (distance)", ""] == pytest.approx(0.5)


def test_the_order_of_rows_does_not_matter_where_one_is_named():
    rows = people(300)
    mixed = rows.sample(frac=1, random_state=0)
    table = sequence_results(rows, mixed, "key", "day")
    assert table["real"].to_numpy() == pytest.approx(table["synthetic"].to_numpy())
    without = sequence_results(rows, mixed, "key")
    assert without.loc[("same as before", "ill"), "synthetic"] != pytest.approx(
        0.7, abs=0.02
    )
    assert "step" not in without.index


def test_rows_without_a_key_single_rows_and_missing_values():
    rows = people(200).astype({"key": "float64"})
    rows.loc[::5, "x"] = np.nan
    rows.loc[rows["key"] == 0, "ill"] = False
    none = pd.concat([rows, rows.assign(key=np.nan)], ignore_index=True)
    table = sequence_results(rows, none, "key", "day")
    assert table["real"].equals(table["synthetic"])
    single = rows.drop_duplicates("key")
    table = sequence_results(rows, single, "key", "day")["synthetic"]
    for about in (("resemblance", "x"), ("row before", "x"), ("same as before", "ill")):
        assert np.isnan(table[about])
    assert table["transitions", "ill"] == pytest.approx(0.5)


@pytest.mark.parametrize(("unit", "order"), [("person", None), ("key", "when")])
def test_columns_that_are_none_are_refused(unit, order):
    with pytest.raises(ValueError, match="must be a column"):
        sequence_results(people(5), people(5), unit, order)


@pytest.mark.parametrize("dtype", ["boolean", "string"])
def test_missing_levels_are_no_level(dtype):
    flags = pd.array([True, None, None, True, True], dtype="boolean").astype(dtype)
    rows = pd.DataFrame({"key": [1, 1, 1, 2, 2], "ill": flags})
    results = sequence_results(rows, rows, "key")["synthetic"]
    assert results["same as before", "ill"] == pytest.approx(1 / 3)
    level = "ill" if dtype == "boolean" else "ill: True"
    assert results["ever", level] == 1.0


def test_rows_stand_beside_those_before():
    rows = pd.DataFrame(
        {"key": [2, 1, 2, None, 1], "t": [3, 1, 2, 0, 5], "x": list("abcde")}
    )
    beside = rows_with_before(rows, "key", "t")
    assert beside["x"].tolist() == ["a", "e"]
    assert beside["x (row before)"].tolist() == ["c", "b"]
    assert beside["t (row before)"].tolist() == [2, 1]
    with pytest.raises(ValueError, match="must be a column"):
        rows_with_before(rows, "nobody")
