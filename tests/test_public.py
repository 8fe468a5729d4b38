"""Public rows: the domain is theirs, the model starts at them, nothing is spent."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dpgenerative import Column, DPHFlowSynthesizer, DPVAESynthesizer, Optimizer, Schema
from dpgenerative.fitting.domain import TableDomain
from dpgenerative.fitting.public import domain_of
from dpgenerative.metrics import association_matrix
from dpgenerative.synthesizers import session

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

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
        assert (column.lower, column.upper) == (public[name].min(), public[name].max())
    assert synthesizer.schema_["city"].levels == ("Oslo", "Rome", "other")
    sample = synthesizer.sample(500)
    assert sample["age"].max() <= public["age"].max()
    assert set(sample["city"]) == {"Oslo", "Rome", "other"}
    assert (sample["city"] == "other").mean() > 0.3


def test_what_the_schema_states_comes_first():
    schema = Schema(
        [
            Column("age", "integer", lower=0, upper=120),
            Column("city", "categorical", levels=["Rome", "Lima"]),
        ]
    )
    resolved = schema.resolve(people())
    found = domain_of(resolved, people(seed=1))
    assert found["age"] == resolved["age"]
    assert found["city"] == resolved["city"]
    assert found["income"].lower == people(seed=1)["income"].min()


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        (Column("a", "continuous"), [2.5, np.inf, np.nan, -1.0], (-1.0, 2.5)),
        (Column("a", "continuous"), [np.nan, -np.inf], (None, None)),
        (Column("a", "continuous", resolution=0.5), [0.3, 0.9], (0.0, 1.0)),
        (Column("a", "continuous", resolution=0.1), [0.3, 1.1], (0.3, 1.1)),
        (Column("a", "integer"), [0.5, 0.6], (0.0, 1.0)),
    ],
)
def test_bounds_of_public_values(column, values, expected):
    found = domain_of(Schema([column]), pd.DataFrame({"a": values}))["a"]
    assert (found.lower, found.upper) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["b", None, "a", "b"], ("a", "b")),
        ([2, 1.0, True, "x", None], (True, 1.0, 2, "x")),
        ([None, None], None),
    ],
)
def test_levels_of_public_values(values, expected):
    frame = pd.DataFrame({"a": pd.Series(values, dtype=object)})
    found = domain_of(Schema([Column("a", "categorical")]), frame)["a"].levels
    assert found == expected


@pytest.mark.thorough
@both
def test_the_model_starts_at_what_public_rows_show(estimator):
    private, public = people(), people(1500, seed=1)
    options = {**FAST, "batch_size": 512, "optimizer__learning_rate": 1e-6}
    found = {}
    for name, rows in (("with", public), ("without", None)):
        # So small a rate teaches nothing of the private rows' dependence.
        synthesizer = estimator(None).set_params(**options)
        sample = synthesizer.fit(private, public=rows).sample(4000, random_state=0)
        found[name] = association_matrix(sample).loc["city", "north"]
    assert found["with"] > 0.4
    assert found["without"] < 0.1


def test_few_private_rows_leave_a_model_that_public_rows_taught_whole():
    private, public = people(), people(3000, seed=1)
    synthesizer = DPHFlowSynthesizer(1.0, random_state=0)
    steps = [
        session.planned_fit(
            synthesizer, session.prepare(synthesizer, private, None, rows).domain
        )
        .plan(300)
        .n_steps
        for rows in (None, public)
    ]
    assert steps == [100, 0]
    sample = synthesizer.fit(private, public=public).sample(4000, random_state=0)
    assert association_matrix(sample).loc["city", "north"] > 0.4


@both
def test_the_learning_rate_after_public_rows(estimator):
    schema = Schema([])

    def rate(learning_rate, has_public):
        synthesizer = estimator(optimizer=Optimizer(learning_rate=learning_rate))
        fit = session.planned_fit(synthesizer, TableDomain(schema))
        return fit._optimizer(1000, has_public).learning_rate

    assert rate("auto", True) == 0.01 < rate("auto", False)
    assert rate(0.5, True) == 0.5


def test_public_rows_cost_nothing_and_are_reported():
    private, public = people(), people(77, seed=1)
    schema = domain_of(Schema([]).resolve(private), public)
    options = {**FAST, "schema": schema, "noise": "reproducible"}
    alone = DPHFlowSynthesizer(1.0).set_params(**options).fit(private)
    helped = DPHFlowSynthesizer(1.0).set_params(**options).fit(private, public=public)
    assert helped.privacy_.plan == alone.privacy_.plan
    assert "77 rows given as public" in str(helped.privacy_)
    assert "given as public" not in str(alone.privacy_)


def test_levels_that_public_rows_have_are_not_paid_for():
    schema = Schema([Column("income", "continuous", resolution=0.01)])
    private, public = people(), people(50, seed=1)
    fitted = DPHFlowSynthesizer(1.0).set_params(**FAST, schema=schema)
    assert fitted.fit(private, public=public).privacy_.plan.threshold_delta == 0
    # A column that is missing in all public rows stays open.
    public["city"] = pd.Series([None] * 50, dtype=object)
    assert domain_of(schema.resolve(private), public)["city"].levels is None


@pytest.mark.thin(3)
@both
@pytest.mark.parametrize("kind", ["pair", "arrays", "array"])
def test_public_rows_come_as_private_ones_do(estimator, kind):
    private, public = people(), people(50, seed=1)[::-1]
    if kind == "pair":
        X, y = private[["age", "income"]], private["city"]
        other = public[["income", "age"]], public["city"]
    else:
        X, y = private[["age", "income"]].to_numpy(), private["city"].to_numpy()
        other = public[["age", "income"]].to_numpy(), public["city"].to_numpy()
    if kind == "array":
        y, other = None, other[0]
    synthesizer = estimator(None, **FAST).fit(X, y, public=other)
    age = synthesizer.schema_.columns[0]
    assert (age.lower, age.upper) == (public["age"].min(), public["age"].max())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.drop(columns="age"), "only one of them has 'age'"),
        (lambda f: f.assign(more=1), "only one of them has 'more'"),
        (
            lambda f: f.astype({"age": float}),
            "column 'age' has float64, and int64 there",
        ),
        (
            lambda f: f.astype({"city": "category"}),
            "column 'city' has category, and (object|str) there",
        ),
        (lambda f: (f, f["age"]), "public must be one table"),
        (
            lambda f: f[["age", "visits"]].to_numpy(float),
            "must come as the private rows",
        ),
        (lambda f: f[:0], r"0 sample\(s\)"),
    ],
)
def test_public_rows_that_do_not_fit(change, said):
    with pytest.raises(ValueError, match=said):
        DPHFlowSynthesizer(**FAST).fit(people(), public=change(people()))
    with pytest.raises(ValueError, match="public must be a pair"):
        DPHFlowSynthesizer(**FAST).fit(people(), people()["age"], public=people())


def test_public_rows_of_a_csv_file_are_read_as_private_ones(tmp_path):
    path = tmp_path / "people.csv"
    pd.DataFrame({"size": [1.5, 2.5] * 50, "city": ["Oslo", "Rome"] * 50}).to_csv(
        path, index=False
    )
    schema = Schema([Column("size", "continuous"), Column("city", "categorical")])
    flow = DPHFlowSynthesizer(schema=schema, epsilon=None, n_steps=0)
    flow.fit(path, public=path)
    assert flow.schema_["size"].upper == 2.5


def test_public_levels_of_a_category_are_read_as_private_ones():
    private, public = people()[["age", "city"]], people(50, seed=1)[["age", "city"]]
    private["city"] = pd.Categorical(private["city"], ["Rome", "Oslo", "Lima"])
    public["city"] = pd.Categorical(public["city"], ["Oslo", "Rome"])
    fitted = DPHFlowSynthesizer(None).set_params(**FAST).fit(private, public=public)
    assert fitted.schema_["city"].levels == ("Rome", "Oslo", "Lima")


def test_times_take_their_bounds_from_public_rows():
    days = pd.Series(pd.date_range("2020-01-01", periods=200, freq="D"))
    public = pd.DataFrame({"day": days, "size": np.arange(200.0)})
    private = public.assign(day=days + pd.Timedelta("30D"))
    flow = DPHFlowSynthesizer(None, n_steps=2, random_state=0)
    column = flow.fit(private, public=public).schema_["day"]
    assert (column.lower, column.upper) == ("2020-01-01", "2020-07-18")
    assert flow.sample(100)["day"].max() <= days.max()
