"""What errors and reports say: no rows, and what a reader can act upon."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from dpgenerative import (
    Column,
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    PrivacyBudget,
    Schema,
    forecast,
)
from dpgenerative._validation import refuse

ROWS = pd.DataFrame({"age": [31, 47, 59] * 30, "ward": ["Doe", "Roe", "Poe"] * 30})
FACTS = Schema([Column("age", "integer", lower=17, upper=90)])


@pytest.fixture(scope="module")
def plain():
    facts = Schema(
        [
            *FACTS.columns,
            Column("ward", "categorical", levels=["Doe", "Poe", "Roe"]),
        ]
    )
    return DPHFlowSynthesizer(epsilon=None, schema=facts, n_steps=2).fit(ROWS)


# Rows in place of something else ------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda fit: forecast(ROWS, 100),
        lambda fit: DPHFlowSynthesizer(schema=ROWS).fit(ROWS),
        lambda fit: DPHFlowSynthesizer(ROWS).fit(ROWS),
        lambda fit: DPHFlowSynthesizer(clipping=ROWS).fit(ROWS),
        lambda fit: DPHFlowSynthesizer(n_steps=ROWS).fit(ROWS),
        lambda fit: DPHFlowSynthesizer().fit(ROWS, checkpoint=ROWS),
        lambda fit: fit.sample(ROWS),
        lambda fit: fit.sample(3, random_state=ROWS.ward),
        lambda fit: PrivacyBudget(ROWS, 1e-5),
        lambda fit: Column("ward", "categorical", levels=ROWS.ward),
        lambda fit: Column("ward", "integer", levels=ROWS.ward),
        lambda fit: Column("age", "integer", lower=ROWS.age, upper=90),
        lambda fit: Schema(ROWS.to_numpy()),
        lambda fit: Schema.from_dict(ROWS.to_dict()),
    ],
)
def test_an_error_quotes_no_rows(call, plain):
    with pytest.raises((ValueError, TypeError)) as raised:
        call(plain)
    text = str(raised.value)
    assert not any(cell in text for cell in ("Doe", "Roe", "31", "47"))
    assert "ambiguous" not in text


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1.5, "got 1.5."),
        ("adam", "got 'adam'."),
        (None, "got None."),
        ((1, None, "a"), "got (1, None, 'a')."),
        ({"a": 1}, "got {'a': 1}."),
        ([1] * 9, "got an object of type list."),
        ("x" * 61, "got an object of type str."),
        ([ROWS], "got an object of type list."),
        (ROWS.to_dict("list"), "got an object of type dict."),
        (np.ones(2), "got an object of type ndarray."),
    ],
)
def test_short_values_alone_are_quoted(value, said):
    with pytest.raises(ValueError, match="The parameter 'x' of f") as raised:
        refuse("f", "x", "is wrong", value)
    assert str(raised.value).endswith(said)


# What a report says -------------------------------------------------------------------


def test_public_facts_tell_bounds_and_levels_of_a_dtype_apart():
    frame = ROWS.astype({"ward": "category"}).assign(sex=ROWS.ward)
    frame["sex"] = frame["sex"].astype("category")
    sex = Column("sex", "categorical", levels=["Doe", "Poe", "Roe"])
    public = DPHFlowSynthesizer(
        epsilon=None, n_steps=2, schema=Schema([*FACTS.columns, sex])
    )
    facts = public.fit(frame).privacy_.public
    assert "bounds of age (17 to 90)" in facts
    assert "levels of sex" in facts
    assert (
        "levels of the category dtype of ward; if they were listed from the rows, the "
        "guarantee does not cover them" in facts
    )


def test_many_bounds_are_listed_up_to_a_number():
    columns = [Column(f"x{j}", "integer", lower=0, upper=9) for j in range(60)]
    frame = pd.DataFrame(0, range(50), [c.name for c in columns])
    flow = DPHFlowSynthesizer(epsilon=None, n_steps=0, schema=Schema(columns))
    facts = flow.fit(frame).privacy_.public
    (bounds,) = [fact for fact in facts if fact.startswith("bounds")]
    assert bounds.endswith("x48 (0 to 9) and 10 more")


def test_the_range_of_pixels_is_printed():
    pixels = np.zeros((60, 4, 4), dtype=np.uint8)
    text = str(DPArrayVAESynthesizer(epsilon=None, n_steps=2).fit(pixels).privacy_)
    assert "range of the pixels (0 to 255)" in text


@pytest.mark.parametrize("epsilon", [None, np.inf])
def test_a_fit_without_privacy_speaks_of_none(epsilon):
    flow = DPHFlowSynthesizer(epsilon=epsilon, n_steps=2).fit(ROWS)
    text = str(flow.privacy_)
    assert "NO PRIVACY" in text
    assert "row count 90 (exact)" in text
    assert "one-way marginals, domains included (exact)" in text
    assert "Bounds and levels of ward, age were read off the rows." in text
    for word in ("privately", "noisy", "geometric", "Gaussian", "times epsilon"):
        assert word not in text


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_a_report_is_strict_json(epsilon):
    flow = DPHFlowSynthesizer(epsilon=epsilon, n_steps=2, schema=FACTS)
    report = flow.fit(ROWS[["age"]]).privacy_
    facts = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert facts["guarantee"] == [epsilon, 1e-5]
    assert facts["adjacency"] == "adding or removing one row"
    assert facts["releases"] == report._releases()
    assert facts["plan"]["moment_multiplier"] is None
    assert facts["public"] == list(report.public)


def test_where_no_table_is_counted_the_report_says_so():
    rng = np.random.default_rng(0)
    columns = [Column(n, "categorical", levels=range(4)) for n in "abcdef"]
    frame = pd.DataFrame(rng.integers(0, 4, (4000, 6)), columns=list("abcdef"))
    flow = DPHFlowSynthesizer(schema=Schema(columns), n_steps=2, random_state=0)
    text = str(flow.fit(frame).privacy_)
    assert flow.tables_ == []
    assert "how far tables of a few columns are from the model" in text
    assert "No table of a few columns was worth counting." in text


def test_levels_in_another_spelling_lead_to_the_check_of_the_schema():
    ward = Column("ward", "categorical", levels=["doe", "roe", "poe"], nullable=True)
    flow = DPHFlowSynthesizer(epsilon=9.0, n_steps=2, schema=Schema([ward]))
    with pytest.warns(UserWarning, match=r"schema\.check\(df\)") as caught:
        flow.fit(pd.concat([ROWS[["ward"]]] * 30))
    assert not any("State levels" in str(each.message) for each in caught)
