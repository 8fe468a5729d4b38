"""Public rows: the domain is theirs, the model starts at them, nothing is spent."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dpgenerative import Column, DPHFlowSynthesizer, DPVAESynthesizer, Schema
from dpgenerative.metrics import association_matrix
from dpgenerative.public import domain_of

FAST = {"n_steps": 5, "batch_size": 64, "random_state": 0, "device": "cpu"}
both = pytest.mark.parametrize("estimator", [DPHFlowSynthesizer, DPVAESynthesizer])


def people(n=300, seed=0, cities=("Oslo", "Rome")):
    rng = np.random.default_rng(seed)
    city = rng.choice(cities, n)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 60, n),
            "income": rng.lognormal(7, 1, n),
            "city": city,
            "north": np.isin(city, cities[0]),
            "visits": pd.array(rng.integers(0, 9, n), dtype="Int64"),
        }
    )


@both
def test_open_bounds_and_levels_are_those_of_public_rows(estimator):
    private, public = people(), people(50, seed=1)
    private.loc[:9, "age"] = 95
    private.loc[:150, "city"] = "Atlantis"
    synthesizer = estimator(None, **FAST).fit(private, public=public)
    for name in ("age", "income", "visits"):
        column = synthesizer.schema_[name]
        assert (column.lower, column.upper) == ("2020-01-01", "2020-07-18")
    assert flow.sample(100)["day"].max() <= days.max()
