"""What errors and reports say: no rows, and what a reader can act upon."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from dpgenerative import (
    Column,
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    PrivacyBudget,
    PrivateSearch,
    Schema,
    SyntheticClassifier,
    SyntheticRegressor,
    forecast,
    load,
    search_privacy,
)
from dpgenerative._validation import refuse
from dpgenerative._version import __version__
from dpgenerative.audit.result import AuditResult
from dpgenerative.cli import main
from dpgenerative.exceptions import (
    BudgetExceededError,
    FileFormatError,
    HopelessBudgetWarning,
    InfeasibleBudgetError,
    PrivacyWarning,
    SamplingError,
)
from dpgenerative.local import VAEPerturber
from dpgenerative.metrics import report
from dpgenerative.privacy.accounting import GaussianRelease, calibrate
from dpgenerative.privacy.report import cautions
from dpgenerative.tables.constraints import Constraint
from dpgenerative.tables.drafts import read_schema
from dpgenerative.tables.files import PLAIN, read_as_written

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

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
    assert "levels of a category dtype (not covered if listed from the rows): ward" in (
        facts
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
    assert not text.endswith(":")  # no list is empty
    assert "row count 90 (exact)" in text
    assert "one-way marginals, open bounds and levels (exact)" in text
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
    names = [each["name"] for each in facts["plan"]["releases"]]
    assert names == ["marginals"]
    assert facts["public"] == list(report.public)


def test_where_no_table_is_counted_the_report_says_so(monkeypatch):
    monkeypatch.setattr("dpgenerative.fitting.workload.LEAST_DEVIATION", 30)
    rng = np.random.default_rng(0)
    columns = [Column(n, "categorical", levels=range(4)) for n in "abcdef"]
    frame = pd.DataFrame(rng.integers(0, 4, (4000, 6)), columns=list("abcdef"))
    flow = DPHFlowSynthesizer(schema=Schema(columns), n_steps=2, random_state=0)
    text = str(flow.fit(frame).privacy_)
    assert flow.tables_ == []
    assert "contingency tables (listed below, if any): their selection" in text
    assert "No contingency table was released: none was worth its noise." in text


def test_levels_in_another_spelling_lead_to_the_check_of_the_schema():
    ward = Column("ward", "categorical", levels=["doe", "roe", "poe"], nullable=True)
    flow = DPHFlowSynthesizer(epsilon=9.0, n_steps=2, schema=Schema([ward]))
    with pytest.warns(UserWarning, match=r"schema\.check\(df\)") as caught:
        flow.fit(pd.concat([ROWS[["ward"]]] * 30))
    assert not any("State levels" in str(each.message) for each in caught)


# Files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: DPHFlowSynthesizer().fit("no.parquet"), "no.parquet does not exist."),
        (lambda: DPHFlowSynthesizer().fit("*.parquet"), "*.parquet matches no file."),
        (lambda: DPHFlowSynthesizer().fit("sub"), "sub holds no .parquet file."),
        (lambda: DPHFlowSynthesizer().fit("no.csv"), "There is no file no.csv."),
        (lambda: read_schema("no.json"), "There is no file no.json."),
        (lambda: load("no.dpg"), "There is no file no.dpg."),
        (lambda: load("sub"), "sub is a folder, not a file."),
        (
            lambda: report(ROWS, ROWS, verbose=False).save("no/page.html"),
            "The folder no does not exist.",
        ),
    ],
)
def test_missing_files_are_named_in_a_sentence(call, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    with pytest.raises((FileNotFoundError, IsADirectoryError)) as raised:
        call()
    assert str(raised.value) == said


def test_a_file_of_something_else_is_no_checkpoint(tmp_path):
    path = tmp_path / "rows.csv"
    ROWS.to_csv(path, index=False)
    with pytest.raises(FileFormatError, match="nor a checkpoint"):
        DPHFlowSynthesizer(schema=FACTS).fit(ROWS, checkpoint=path)
    with pytest.raises(ValueError, match=r"is not a JSON file"):
        read_schema(str(path))


def test_a_schema_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(FACTS.to_dict()), encoding="utf-8-sig")
    assert read_schema(str(path)).schema == FACTS


def test_a_file_of_other_columns_is_said_to_lack_those_fitted(tmp_path):
    path = tmp_path / "other.csv"
    pd.DataFrame({"x": range(9)}).to_csv(path, index=False)
    with pytest.raises(ValueError, match=r"lacks columns that were fitted: \['age'\]"):
        read_as_written(path, FACTS, PLAIN)


# Budgets ------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_infinity_is_explained_where_it_is_shown(epsilon):
    fit = DPHFlowSynthesizer(epsilon=epsilon)
    with PrivacyBudget(0.1, 1e-5), pytest.raises(BudgetExceededError) as raised:
        fit.fit(ROWS)
    assert ("inf is a fit" in str(raised.value)) == (epsilon is None)


@pytest.mark.thorough
def test_no_budget_is_shown_that_nobody_gave():
    flow = DPHFlowSynthesizer(epsilon=1e-9, delta=1e-15)
    with pytest.raises(InfeasibleBudgetError) as raised:
        flow.fit(ROWS)
    assert not any(digit in str(raised.value) for digit in "0123456789")
    with pytest.raises(InfeasibleBudgetError, match="within epsilon and delta"):
        calibrate([GaussianRelease(0.1)], 0.5, 10, 1.0, 1e-5)


def test_one_row_is_no_rows():
    plan = DPHFlowSynthesizer(epsilon=1.0, n_steps=1).fit(ROWS).privacy_.plan
    assert "from 1 row (released" in cautions(replace(plan, n_rows=1), 2)[0]


def test_people_are_counted_as_people():
    key, fact = Column("who", "integer", role="owner"), Column("x", "boolean")
    rows = pd.DataFrame({"who": range(40), "x": [True, False] * 20})
    flow = DPHFlowSynthesizer(1.0, schema=Schema([key, fact]), n_steps=1)
    with pytest.warns(HopelessBudgetWarning, match=r"from (1 person|\d+ people) \("):
        flow.fit(rows)
    one = cautions(replace(flow.privacy_.plan, n_rows=1), 2, of_people=True)
    assert "from 1 person (released" in one[0]


# Samples ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"age": ">30"},
            "numbers only; give one, (low, high), a list of such, or None",
        ),
        ({"age": range(3)}, "numbers only; give one, (low, high)"),
        (ROWS[["age"]].iloc[:0], "needs at least one row"),
        (pd.DataFrame({"age": [31, np.nan]}), "a missing value given does not fit"),
        (pd.DataFrame({"age": [30.5]}), "column 'age': not a multiple of the"),
        (pd.DataFrame({"ward": ["Moe"]}), "the value 'Moe' given does not fit"),
    ],
)
def test_conditions_that_do_not_fit_say_what_would(given, said, plain):
    n_samples = 3 if isinstance(given, dict) else None
    with pytest.raises(ValueError, match=r"age|ward|given") as raised:
        plain.sample(n_samples, given=given)
    assert said in str(raised.value)


def test_constraints_that_no_row_satisfies_are_named_where_nothing_was_asked_for():
    class Never(Constraint):
        columns = ("age",)

        def holds(self, frame):
            return np.zeros(len(frame), dtype=bool)

    never = Schema(FACTS.columns, [Never()])
    flow = DPHFlowSynthesizer(epsilon=None, schema=never, n_steps=2)
    flow.fit(ROWS[["age"]])
    with pytest.raises(SamplingError, match="whether the constraints can hold"):
        flow.sample(3, max_tries=2)


# Learners, reports, audits, the command -----------------------------------------------


def test_a_learner_that_fails_leaves_the_synthesizer():
    class Failing:
        def fit(self, X, y):
            raise TypeError("no strings")

        def get_params(self, deep=True):
            return {}

        def predict(self, X): ...

    model = SyntheticClassifier(DPHFlowSynthesizer(n_steps=2), Failing())
    with pytest.raises(TypeError, match="no strings") as raised:
        model.fit(ROWS[["age"]], ROWS["ward"].astype("category"))
    assert "its budget spent" in raised.value.__notes__[0]
    assert len(model.synthesizer_.sample(3)[0]) == 3


def test_the_column_that_is_named_is_furthest_beyond_chance():
    rng = np.random.default_rng(0)
    real = pd.DataFrame(
        {"few": rng.random(200) < 0.5, "many": rng.integers(0, 90, 200)}
    )
    page = report(real, real.sample(frac=1, replace=True, random_state=0))
    text = [each.text for each in page.findings if each.topic == "worst column"]
    assert text[0].startswith("The column furthest beyond chance is ")
    assert "the column furthest beyond chance" in page.html.lower()


def test_an_ideal_adversary_stays_within_the_claim():
    found = AuditResult("Whole fits", 1.5, 0.95, 2.0, 1e-5, 3.281, 20)
    assert "would show about 2.000)" in str(found)


def test_the_command_says_its_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


# Deltas below what noise keeps --------------------------------------------------------

SMALL = 9e-16
FLOW = DPHFlowSynthesizer(delta=SMALL, n_steps=0, schema=FACTS)
AGES = ROWS[["age"]]
IMAGES = np.zeros((40, 4, 4), np.uint8)


def perturber(delta):
    """Return a local randomizer of fitted latents."""
    vae = DPArrayVAESynthesizer(epsilon=None, n_steps=2).fit(IMAGES)
    return VAEPerturber(vae, epsilon=8.0, delta=delta, public=True)


TAKES_DELTA = {
    "synthesizer": lambda delta: clone(FLOW).set_params(delta=delta).fit(AGES),
    "arrays": lambda delta: DPArrayVAESynthesizer(delta=delta, n_steps=2).fit(IMAGES),
    "multiplier": lambda delta: (
        clone(FLOW).set_params(delta=delta, n_steps=2, noise_multiplier=2.0).fit(AGES)
    ),
    "predictor": lambda delta: SyntheticRegressor(
        clone(FLOW).set_params(delta=delta)
    ).fit(AGES, AGES["age"]),
    "search": lambda delta: PrivateSearch(
        FLOW, {"n_steps": [0]}, delta=delta, mean_trials=1.1
    ).fit(AGES),
    "budget": lambda delta: PrivacyBudget(1.0, delta),
    "forecast": lambda delta: forecast(FACTS, 1000, delta=delta),
    "cost": lambda delta: search_privacy(
        GridSearchCV(clone(FLOW).set_params(delta=1e-6), {"n_steps": [0]}, cv=2).fit(
            AGES
        ),
        delta,
    ),
    "perturber": lambda delta: perturber(delta).fit(IMAGES),
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", TAKES_DELTA)
@pytest.mark.filterwarnings("ignore::dpgenerative.exceptions.HopelessBudgetWarning")
def test_a_delta_that_noise_does_not_keep_is_warned_of(name):
    with pytest.warns(
        PrivacyWarning, match=r"a delta of 9e-16.* larger delta"
    ) as found:
        TAKES_DELTA[name](SMALL)
    assert sum(issubclass(each.category, PrivacyWarning) for each in found) == 1
    TAKES_DELTA[name](1e-15)


def test_of_a_person_s_delta_one_row_s_part_counts():
    rows = clone(FLOW).set_params(epsilon=30.0, max_rows_per_unit=3)
    with pytest.warns(PrivacyWarning, match="a delta of 2.06106e-18 for one row"):
        rows.set_params(delta=1e-9).fit(AGES)
    rows.set_params(delta=1e-6).fit(AGES)


def test_without_privacy_no_delta_is_warned_of():
    clone(FLOW).set_params(epsilon=None, n_steps=2).fit(AGES)
